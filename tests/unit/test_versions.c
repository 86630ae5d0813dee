/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A switch with hosts and a parent whose packets have version 2, which the test plays; and the
 * additions of version 3: ports for answers, stretches of blocks that share a source port, the path
 * of a JOIN and its sender's address.
 */
#include <arpa/inet.h>
#include <string.h>

#include "pipeline/base/ipv4.h"
#include "tests/unit/answer_words.h"
#include "tests/unit/ring_switch.h"
#include "tests/unit/suites.h"
#include "wire/version.h"

#define HOSTS 2
#define RANKS 3
#define PARENT_PORT 3
#define SOURCE_PORT 50000 /* of host_packet */
#define NAMED_PORT 40123
#define BEFORE FANIN_WIRE_VERSION_BEFORE

static const uint8_t parent_mac[6] = { 0x02, 0, 0, 0, 2, 9 };

static struct ring_switch sw;
static struct job *job;
static uint8_t buffer[4096] __attribute__((aligned(8)));
static struct fanin_headers *const got = (struct fanin_headers *)buffer;
static const struct fanin_join_body *const got_join = (const struct fanin_join_body *)(got + 1);
static const struct fanin_join_ack_body *const got_ack =
	(const struct fanin_join_ack_body *)(got + 1);

static void
make_job(bool has_parent)
{
	struct job_spec spec = {
		.key = RING_SWITCH_KEY,
		.handler = "single",
		.slots = 16,
		.n_ranks = has_parent ? RANKS : HOSTS,
		.n_members = HOSTS,
		.has_parent = has_parent,
		.authenticate = sw.tagger != NULL,
		.parent = { .port = PARENT_PORT, .ip_be = host_ip_be(PARENT_PORT) },
	};
	char error[PIPELINE_ERROR_LEN];
	const char *code;

	for (uint16_t i = 0; i < HOSTS; i++) {
		spec.members[i].port = i;
		spec.members[i].ip_be = host_ip_be(i);
		spec.members[i].ranks = fanin_ranks_one(i);
	}
	memcpy(spec.parent.mac, parent_mac, sizeof(parent_mac));
	ck_assert_msg(job_create(sw.pipeline, &spec, &job, &code, error) == 0, "%s", error);
}

static void
open_switch(bool has_tags, bool has_parent)
{
	ring_switch_eal();
	ring_switch_open(&sw, 4, 1, NULL);
	if (has_tags)
		ring_switch_authenticate(&sw);
	make_job(has_parent);
}

/* ---- packets of the version before: the rig opens them, but does not tag them */

/* Makes a JOIN of host h as a program of the version before. */
static size_t
old_join(unsigned int h, uint64_t nonce, uint8_t *frame)
{
	const struct fanin_join_body body = { .nonce = nonce,
					      .size = job->params.n_ranks,
					      .mtu = 1500 };
	size_t len = host_packet(&sw, h, FANIN_TYPE_JOIN, job->params.id, 0, &body,
				 FANIN_JOIN_BODY_BEFORE, (struct fanin_headers *)frame);

	((struct fanin_headers *)frame)->fanin.version = BEFORE;
	return len;
}

static size_t
seal(enum fanin_tag_direction direction, void *frame, size_t len)
{
	if (sw.tagger == NULL)
		return len;
	ck_assert(fanin_tagger_seal_frame(sw.tagger, direction, 0, frame));
	return len + FANIN_TAG_LEN;
}

static void
put_raw(uint16_t port, const void *frame, size_t len)
{
	ring_switch_enqueue_raw(&sw, port, frame, len);
	ring_switch_rounds(&sw, 2);
}

/*
 * Expects a REFUSED of the version before, which names this version; with a tag unless its receiver
 * is unknown.
 */
static void
expect_old_refusal(uint16_t port, enum fanin_reason reason, uint64_t nonce)
{
	const size_t len = ring_switch_take(&sw, port, buffer);

	ck_assert_uint_eq(len, FANIN_PAYLOAD_OFFSET);
	ck_assert_uint_eq(fanin_version_validate(buffer, len), FANIN_REASON_NONE);
	ck_assert_uint_eq(got->fanin.type, FANIN_TYPE_REFUSED);
	ck_assert_uint_eq(got->fanin.flags, 0);
	ck_assert_uint_eq(got->fanin.count, reason);
	ck_assert_uint_eq(got->fanin.contributions, FANIN_WIRE_VERSION);
	ck_assert_uint_eq(got->fanin.members, nonce);
	ck_assert_uint_eq(got->fanin.epoch, 0);
	ck_assert_uint_eq(ntohs(got->udp.dst_be), SOURCE_PORT);
	ck_assert_uint_eq(ring_switch_take(&sw, port, buffer), 0);
}

/* _i: with tags */
START_TEST(an_older_host_is_told_both_versions)
{
	uint8_t frame[4096] __attribute__((aligned(8)));
	size_t len;

	open_switch(_i != 0, false);
	len = old_join(0, 4711, frame);
	len = seal(FANIN_TAG_UP, frame, len);
	for (int i = 1; i <= 2; i++) {
		put_raw(0, frame, len);
		expect_old_refusal(0, FANIN_REASON_VERSION, 4711);
		ck_assert_uint_eq(got->fanin.key, job->params.keys.down);
		ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_VERSION), i);
	}
	/* The JOIN changes nothing, and the job can still be run. */
	ck_assert_uint_eq(job->joined, 0);
	ck_assert_uint_eq(job->members[0].cookie, 0);
	ck_assert_uint_eq(job->members[0].other_version, BEFORE);
	ck_assert_uint_eq(job->members[1].other_version, 0);
	ck_assert_uint_ne(host_join_all(&sw, job, HOSTS, 5), 0);
	/* The JOIN does not end a run either. */
	put_raw(0, frame, len);
	expect_old_refusal(0, FANIN_REASON_VERSION, 4711);
	ck_assert_uint_ne(job->epoch, 0);
	ring_switch_close(&sw);
}
END_TEST

/*
 * As long as there is no answer, a JOIN of the version before follows the JOIN of this version,
 * with the same nonce.
 */
START_TEST(a_host_that_asks_for_an_older_switch_is_none)
{
	uint8_t frame[4096] __attribute__((aligned(8)));

	open_switch(false, false);
	ck_assert_ptr_nonnull(host_join_with(&sw, 0, job->params.id, 4711, 0, HOSTS, got));
	ck_assert_uint_eq(got_ack->state, FANIN_JOIN_CHALLENGE);
	put_raw(0, frame, old_join(0, 4711, frame));
	expect_old_refusal(0, FANIN_REASON_VERSION, 4711);
	ck_assert_uint_eq(job->members[0].other_version, 0);
	ck_assert_ptr_nonnull(host_sends_join(&sw, 0, job->params.id, 4711, HOSTS, got));
	ck_assert_uint_eq(got_ack->state, FANIN_JOIN_WAITING);
	put_raw(0, frame, old_join(0, 4711, frame));
	expect_old_refusal(0, FANIN_REASON_VERSION, 4711);
	ck_assert_uint_eq(job->members[0].other_version, 0);
	ck_assert_uint_eq(job->joined, 1);
	put_raw(0, frame, old_join(0, 4712, frame));
	expect_old_refusal(0, FANIN_REASON_VERSION, 4712);
	ck_assert_uint_eq(job->members[0].other_version, BEFORE);
	ring_switch_close(&sw);
}
END_TEST

/* _i: with tags */
START_TEST(an_older_stranger_is_told_what_is_wrong_with_it)
{
	uint8_t frame[4096] __attribute__((aligned(8)));
	struct fanin_headers *headers = (struct fanin_headers *)frame;
	size_t len;

	open_switch(_i != 0, false);
	len = old_join(0, 1, frame);
	headers->fanin.key ^= 1;
	put_raw(0, frame, seal(FANIN_TAG_UP, frame, len));
	expect_old_refusal(0, FANIN_REASON_KEY, 1);
	ck_assert_uint_eq(got->fanin.key, job->params.keys.up ^ 1);
	len = old_join(0, 2, frame);
	headers->fanin.job++;
	put_raw(0, frame, seal(FANIN_TAG_UP, frame, len));
	expect_old_refusal(0, FANIN_REASON_JOB, 2);
	len = old_join(0, 3, frame);
	headers->fanin.rank = 7;
	put_raw(0, frame, seal(FANIN_TAG_UP, frame, len));
	expect_old_refusal(0, FANIN_REASON_RANK, 3);
	len = old_join(0, 4, frame);
	put_raw(2, frame, seal(FANIN_TAG_UP, frame, len));
	expect_old_refusal(2, FANIN_REASON_PORT, 4);
	/* With a tag to a job that has none, or without one to a job that has tags. */
	len = old_join(0, 5, frame);
	if (_i == 0) {
		ck_assert_int_eq(fanin_tagger_create(RING_SWITCH_KEY, &sw.tagger), 0);
		len = seal(FANIN_TAG_UP, frame, len);
		sw.tagger = (fanin_tagger_destroy(sw.tagger), NULL);
	}
	put_raw(0, frame, len);
	expect_old_refusal(0, FANIN_REASON_TAG, 5);
	ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_VERSION), 0);
	ck_assert_uint_eq(job->members[0].other_version, 0);
	ring_switch_close(&sw);
}
END_TEST

START_TEST(all_other_packets_of_another_version_are_dropped)
{
	uint8_t frame[4096] __attribute__((aligned(8)));
	struct fanin_headers *headers = (struct fanin_headers *)frame;
	size_t len;
	uint32_t epoch;

	open_switch(false, false);
	epoch = host_join_all(&sw, job, HOSTS, 5);
	len = host_contribution(&sw, job, 0, epoch, 0, false, frame);
	headers->fanin.version = BEFORE;
	put_raw(0, frame, len);
	len = host_packet(&sw, 0, FANIN_TYPE_LEAVE, job->params.id, epoch, NULL, 0, headers);
	headers->fanin.version = BEFORE;
	put_raw(0, frame, len);
	len = host_packet(&sw, 0, FANIN_TYPE_REFUSED, job->params.id, 0, NULL, 0, headers);
	headers->fanin.version = BEFORE;
	put_raw(0, frame, len);
	len = old_join(0, 1, frame);
	fanin_wire_set_payload_len(headers, FANIN_JOIN_BODY_BEFORE - 1);
	put_raw(0, frame, len - 1);
	for (unsigned int version = 0; version <= UINT8_MAX; version++) {
		if (version == BEFORE || version == FANIN_WIRE_VERSION)
			continue;
		len = old_join(0, 1, frame);
		headers->fanin.version = (uint8_t)version;
		put_raw(0, frame, len);
	}
	ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_VERSION), 4 + 254);
	while (ring_switch_take(&sw, 0, buffer) != 0)
		ck_assert_uint_eq(got->fanin.type, FANIN_TYPE_JOIN_ACK);
	ck_assert_uint_ne(job->epoch, 0);
	ring_switch_close(&sw);
}
END_TEST

/* ---- a parent that the test plays */

static size_t
from_parent(enum fanin_type type, const void *body, uint32_t body_len, uint8_t *frame)
{
	struct fanin_headers *headers = (struct fanin_headers *)frame;
	const size_t len = host_packet(&sw, PARENT_PORT, type, job->params.id, 0, body, body_len,
				       headers);

	memcpy(headers->eth.src, parent_mac, sizeof(headers->eth.src));
	return len;
}

static void
put_old_answer(enum fanin_type type, uint64_t nonce, uint16_t version, bool with_tag)
{
	const struct fanin_join_ack_body body = { .nonce = nonce, .state = FANIN_JOIN_CHALLENGE };
	uint8_t frame[4096] __attribute__((aligned(8)));
	struct fanin_headers *headers = (struct fanin_headers *)frame;
	const bool is_ack = type == FANIN_TYPE_JOIN_ACK;
	size_t len = from_parent(type, &body, is_ack ? FANIN_JOIN_ACK_BODY_BEFORE : 0, frame);

	headers->fanin.version = BEFORE;
	if (!is_ack) {
		headers->fanin.members = nonce;
		headers->fanin.count = FANIN_REASON_MEMBER_BUSY;
		headers->fanin.contributions = version;
	}
	put_raw(PARENT_PORT, frame, with_tag ? seal(FANIN_TAG_DOWN, frame, len) : len);
}

static void
put_ack(enum fanin_join_state state, uint64_t nonce, uint16_t port_blocks)
{
	const struct join_ack_words body = {
		.body = {
			.nonce = nonce,
			.state = (uint16_t)state,
			.size = RANKS,
			.window = job->params.window,
			.payload_bytes = job->params.payload_bytes,
			.flags = sw.tagger != NULL ? FANIN_JOB_TAGGED : 0,
			.instance = RING_SWITCH_PARENT_INSTANCE,
			.port_blocks = port_blocks,
		},
		.joined = 7,
	};
	uint8_t frame[4096] __attribute__((aligned(8)));
	const size_t len = from_parent(FANIN_TYPE_JOIN_ACK, &body, sizeof(body), frame);

	if (state == FANIN_JOIN_ACTIVE)
		((struct fanin_headers *)frame)->fanin.epoch = 77;
	ring_switch_put(&sw, PARENT_PORT, frame, len);
}

/* Checks that a JOIN of this version has gone up. Returns its nonce. */
static uint64_t
expect_asked(uint8_t version)
{
	const size_t len = ring_switch_take(&sw, PARENT_PORT, buffer);
	uint8_t rest[4096];

	ck_assert_uint_eq(got->fanin.version, version);
	ck_assert_uint_eq(got->fanin.type, FANIN_TYPE_JOIN);
	ck_assert_uint_eq(got->fanin.contributions, HOSTS);
	ck_assert_uint_eq(len - FANIN_PAYLOAD_OFFSET,
			  version == BEFORE ? FANIN_JOIN_BODY_BEFORE : sizeof(*got_join));
	ck_assert_uint_eq(got_join->size, RANKS);
	ck_assert_uint_eq(got_join->udp_port, version == BEFORE ? FANIN_WIRE_DEFAULT_UDP_PORT : 0);
	ck_assert_uint_eq(got->fanin.port, 0);
	if (version == BEFORE) {
		ck_assert_uint_eq(fanin_version_validate(buffer, len), FANIN_REASON_NONE);
		ck_assert_uint_eq(got_join->cookie, 0);
	} else {
		ck_assert_uint_eq(fanin_wire_validate(buffer, len), FANIN_REASON_NONE);
		ck_assert_uint_eq(got_join->address_be, sw.pipeline->ip_be);
		ck_assert_uint_eq(got_join->path, FANIN_PATH_SINGLE);
	}
	ck_assert_uint_eq(ring_switch_take(&sw, PARENT_PORT, rest), 0);
	return got_join->nonce;
}

static void
expect_waiting(unsigned int h)
{
	ck_assert_ptr_nonnull(host_sends_join(&sw, h, job->params.id, 5 + h, RANKS, got));
	ck_assert_uint_eq(got->fanin.type, FANIN_TYPE_JOIN_ACK);
	ck_assert_uint_eq(got_ack->state, FANIN_JOIN_WAITING);
}

static void
expect_refused(unsigned int h, uint16_t version)
{
	ck_assert_ptr_nonnull(host_sends_join(&sw, h, job->params.id, 5 + h, RANKS, got));
	ck_assert_uint_eq(got->fanin.version, FANIN_WIRE_VERSION);
	ck_assert_uint_eq(got->fanin.type, FANIN_TYPE_REFUSED);
	ck_assert_uint_eq(got->fanin.count, FANIN_REASON_VERSION);
	ck_assert_uint_eq(got->fanin.contributions, version);
	ck_assert_uint_eq(got->fanin.members, 5 + h);
	ck_assert_uint_eq(got->fanin.key, job->params.keys.down);
}

/* _i & 1: with tags. _i / 2: the parent's answer */
START_TEST(hosts_that_join_below_an_older_parent_are_told)
{
	static const struct {
		enum fanin_type type;
		uint16_t told, version;
	} answers[] = { { FANIN_TYPE_JOIN_ACK, 0, BEFORE },
			{ FANIN_TYPE_REFUSED, 0, BEFORE },
			{ FANIN_TYPE_REFUSED, 4, 4 } };
	const enum fanin_type type = answers[_i / 2].type;
	const uint16_t told = answers[_i / 2].told, version = answers[_i / 2].version;
	uint64_t nonce;

	open_switch((_i & 1) != 0, true);
	expect_waiting(0);
	expect_waiting(1);
	nonce = expect_asked(FANIN_WIRE_VERSION);
	expect_waiting(0);
	ck_assert_uint_eq(expect_asked(BEFORE), nonce);
	/* Answers for another JOIN, and one that anybody could have sent. */
	put_old_answer(type, nonce + 1, told, true);
	if (sw.tagger != NULL)
		put_old_answer(type, nonce, told, false);
	expect_waiting(0);
	expect_asked(FANIN_WIRE_VERSION);
	ck_assert_uint_eq(job->parent_version, 0);
	expect_waiting(1);
	expect_asked(BEFORE);

	put_old_answer(type, nonce, told, true);
	ck_assert_uint_eq(job->parent_version, version);
	/* Meanwhile the parent is still asked. */
	expect_refused(0, version);
	expect_asked(FANIN_WIRE_VERSION);
	expect_refused(1, version);
	expect_asked(BEFORE);
	/*
	 * The other host has gone: this one is told all the same, as often as its answer is lost.
	 */
	ck_assert(!job_leave(job, 0, 0, &(uint32_t){ 0 }));
	expect_refused(1, version);
	expect_refused(1, version);
	ck_assert_uint_eq(ring_switch_take(&sw, PARENT_PORT, buffer), 0);
	/* A host that comes later may find another parent. */
	expect_waiting(0);
	expect_asked(FANIN_WIRE_VERSION);
	put_ack(FANIN_JOIN_ACTIVE, nonce, 8);
	ck_assert_ptr_nonnull(host_sends_join(&sw, 1, job->params.id, 6, RANKS, got));
	ck_assert_uint_eq(got_ack->state, FANIN_JOIN_ACTIVE);
	/* The answer belongs to a run that has begun. */
	put_old_answer(type, nonce, told, true);
	ck_assert_ptr_nonnull(host_sends_join(&sw, 1, job->params.id, 6, RANKS, got));
	ck_assert_uint_eq(got_ack->state, FANIN_JOIN_ACTIVE);
	ring_switch_close(&sw);
}
END_TEST

/* _i: with tags */
START_TEST(a_parent_that_has_answered_is_not_taken_for_an_older_one)
{
	uint64_t nonce;

	open_switch(_i != 0, true);
	expect_waiting(0);
	expect_waiting(1);
	nonce = expect_asked(FANIN_WIRE_VERSION);
	expect_waiting(0);
	expect_asked(BEFORE);
	/* The answer of a parent of this version to a JOIN of the version before. */
	put_old_answer(FANIN_TYPE_REFUSED, nonce, FANIN_WIRE_VERSION, true);
	for (int i = 0; i < 4; i++) {
		expect_waiting(1);
		expect_asked(FANIN_WIRE_VERSION);
	}
	put_old_answer(FANIN_TYPE_REFUSED, nonce, 0, true);
	put_old_answer(FANIN_TYPE_JOIN_ACK, nonce, 0, true);
	expect_waiting(0);
	expect_asked(FANIN_WIRE_VERSION);
	put_ack(FANIN_JOIN_WAITING, nonce, 8);
	/* The parent gets a JOIN of the older version again only after a long silence. */
	for (int i = 0; i < 10; i++) {
		expect_waiting(0);
		expect_asked(FANIN_WIRE_VERSION);
	}
	expect_waiting(0);
	expect_asked(FANIN_WIRE_VERSION);
	expect_waiting(0);
	expect_asked(BEFORE);
	ring_switch_close(&sw);
}
END_TEST

/* ---- JOIN and JOIN_ACK of this version */

static const struct fanin_join_ack_body *
join_with(unsigned int h, struct fanin_join_body body)
{
	uint8_t frame[4096];

	body.size = job->params.n_ranks;
	body.mtu = 1500;
	for (int i = 0; i < 2; i++) {
		const size_t len = host_packet(&sw, h, FANIN_TYPE_JOIN, job->params.id, 0, &body,
					       sizeof(body), (struct fanin_headers *)frame);

		((struct fanin_headers *)frame)->fanin.port = SOURCE_PORT;
		ring_switch_put(&sw, (uint16_t)h, frame, len);
		ck_assert_uint_gt(ring_switch_take(&sw, (uint16_t)h, buffer), 0);
		ck_assert_uint_eq(ntohs(got->udp.dst_be), SOURCE_PORT);
		if (got->fanin.type != FANIN_TYPE_JOIN_ACK ||
		    got_ack->state != FANIN_JOIN_CHALLENGE)
			break;
		body.cookie = got_ack->cookie;
	}
	return got_ack;
}

/* Sends a contribution whose sender takes answers at this port, and expects the answer there. */
static void
expect_answer_at(unsigned int h, uint32_t job_id, uint32_t epoch, uint16_t port,
		 enum fanin_type type)
{
	uint8_t frame[4096];
	struct fanin_headers *headers = (struct fanin_headers *)frame;
	const size_t len = host_contribution(&sw, job, h, epoch, 0, true, frame);

	headers->fanin.job = job_id;
	headers->fanin.port = port;
	ring_switch_put(&sw, (uint16_t)h, frame, len);
	ck_assert_uint_gt(ring_switch_take(&sw, (uint16_t)h, buffer), 0);
	ck_assert_uint_eq(got->fanin.type, type);
	ck_assert_uint_eq(got->fanin.port, 0);
	ck_assert_uint_eq(ntohs(got->udp.dst_be), port != 0 ? port : FANIN_WIRE_DEFAULT_UDP_PORT);
}

START_TEST(answers_go_to_the_port_of_what_they_answer)
{
	static const uint16_t ports[] = { NAMED_PORT, 0, NAMED_PORT + 1 };
	uint32_t epoch;

	open_switch(false, false);
	join_with(0, (struct fanin_join_body){ .nonce = 1 });
	join_with(1, (struct fanin_join_body){ .nonce = 2 });
	ck_assert_uint_eq(got_ack->state, FANIN_JOIN_ACTIVE);
	epoch = got->fanin.epoch;
	host_contribute(&sw, job, 0, epoch, 0, false);
	for (unsigned int i = 0; i < sizeof(ports) / sizeof(ports[0]); i++) {
		expect_answer_at(0, job->params.id, epoch, ports[i], FANIN_TYPE_ANSWER);
		expect_answer_at(0, job->params.id, epoch + 1, ports[i], FANIN_TYPE_REFUSED);
		expect_answer_at(0, 777, epoch, ports[i], FANIN_TYPE_REFUSED);
	}
	/* Results are for all hosts. */
	host_contribute(&sw, job, 1, epoch, 0, false);
	for (uint16_t h = 0; h < HOSTS; h++) {
		host_result_check(job, HOSTS, 0, buffer, ring_switch_take(&sw, h, buffer));
		ck_assert_uint_eq(ntohs(got->udp.dst_be), FANIN_WIRE_DEFAULT_UDP_PORT);
	}
	ring_switch_close(&sw);
}
END_TEST

START_TEST(the_path_of_a_join_comes_back)
{
	uint8_t frame[4096];
	const struct fanin_join_body first = {
		.nonce = 1,
		.size = HOSTS,
		.mtu = 1500,
		.path = FANIN_PATH_FIRST,
	};
	size_t len;

	open_switch(false, false);
	join_with(0, (struct fanin_join_body){ .nonce = 1, .path = FANIN_PATH_SECOND });
	ck_assert_uint_eq(got_ack->state, FANIN_JOIN_WAITING);
	ck_assert_uint_eq(got_ack->path, FANIN_PATH_SECOND);
	join_with(0, (struct fanin_join_body){ .nonce = 1, .path = FANIN_PATH_SINGLE });
	ck_assert_uint_eq(got_ack->path, FANIN_PATH_SINGLE);
	/* An earlier packet in the super-frame is skipped. */
	len = host_packet(&sw, 0, FANIN_TYPE_JOIN, job->params.id, 0, &first, sizeof(first),
			  (struct fanin_headers *)frame);
	ring_switch_put(&sw, 0, frame, len);
	ck_assert_uint_eq(ring_switch_take(&sw, 0, buffer), 0);
	ring_switch_close(&sw);
}
END_TEST

/* A JOIN that only tests the path does not make the switch ask its parent. */
START_TEST(a_path_is_no_reason_to_ask_the_parent)
{
	open_switch(false, true);
	expect_waiting(0);
	expect_waiting(1);
	expect_asked(FANIN_WIRE_VERSION);
	join_with(0, (struct fanin_join_body){ .nonce = 1, .path = FANIN_PATH_SECOND });
	ck_assert_uint_eq(ring_switch_take(&sw, PARENT_PORT, buffer), 0);
	ring_switch_close(&sw);
}
END_TEST

START_TEST(a_join_from_another_port_than_it_says_is_refused)
{
	uint8_t frame[4096];
	const struct fanin_join_body body = { .nonce = 1, .size = HOSTS, .mtu = 1500 };
	size_t len;

	open_switch(false, false);
	len = host_packet(&sw, 0, FANIN_TYPE_JOIN, job->params.id, 0, &body, sizeof(body),
			  (struct fanin_headers *)frame);
	((struct fanin_headers *)frame)->fanin.port = SOURCE_PORT + 1;
	ring_switch_put(&sw, 0, frame, len);
	ck_assert_uint_gt(ring_switch_take(&sw, 0, buffer), 0);
	ck_assert_uint_eq(got->fanin.type, FANIN_TYPE_REFUSED);
	ck_assert_uint_eq(got->fanin.count, FANIN_REASON_SOURCE);
	ring_switch_close(&sw);
}
END_TEST

/* _i: with tags */
START_TEST(a_join_from_another_address_than_it_says_is_refused_with_that_one)
{
	const uint32_t other_be = htonl(0xc0a80001);

	open_switch(_i != 0, false);
	join_with(0, (struct fanin_join_body){ .nonce = 1, .address_be = other_be });
	ck_assert_uint_eq(got->fanin.type, FANIN_TYPE_REFUSED);
	ck_assert_uint_eq(got->fanin.count, FANIN_REASON_SOURCE);
	ck_assert_uint_eq(got->fanin.progress, host_ip_be(0));
	ck_assert_uint_eq(got->fanin.members, 1);
	ck_assert_uint_eq(got->fanin.key, job->params.keys.up);
	ck_assert_uint_eq(job->members[0].cookie, 0);
	join_with(0, (struct fanin_join_body){ .nonce = 1, .address_be = host_ip_be(0) });
	ck_assert_uint_eq(got_ack->state, FANIN_JOIN_WAITING);
	/* The JOIN of a member with another address. */
	job->members[1].ip_be = other_be;
	join_with(1, (struct fanin_join_body){ .nonce = 2, .address_be = other_be });
	ck_assert_uint_eq(got->fanin.count, FANIN_REASON_SOURCE);
	ck_assert_uint_eq(got->fanin.progress, host_ip_be(1));
	ring_switch_close(&sw);
}
END_TEST

START_TEST(blocks_that_share_a_port_fit_a_super_frame_and_leave_a_port_for_each_worker)
{
	static const struct {
		uint16_t workers, slots, expected;
	} shapes[] = { { 1, 16, 32 }, { 1, 2, 32 }, { 2, 16, 4 }, { 2, 4, 1 }, { 2, 2, 1 } };

	ring_switch_eal();
	ring_switch_open(&sw, 4, shapes[_i].workers, NULL);
	job = ring_switch_job(&sw, HOSTS, shapes[_i].slots);
	join_with(0, (struct fanin_join_body){ .nonce = 1 });
	ck_assert_uint_eq(got_ack->state, FANIN_JOIN_WAITING);
	ck_assert_uint_eq(job->params.payload_bytes, 1408);
	ck_assert_uint_eq(got_ack->port_blocks, shapes[_i].expected);
	ring_switch_close(&sw);
}
END_TEST

START_TEST(packets_to_the_parent_use_the_ports_it_told)
{
	static const uint16_t told[] = { 0, 1, 8, 24 };
	static const unsigned int shifts[] = { 0, 0, 3, 4 };
	uint64_t nonce;
	uint32_t epoch;

	open_switch(false, true);
	for (size_t i = 0; i < sizeof(told) / sizeof(told[0]); i++) {
		expect_waiting(0);
		expect_waiting(1);
		nonce = expect_asked(FANIN_WIRE_VERSION);
		put_ack(FANIN_JOIN_ACTIVE, nonce, told[i]);
		ck_assert_ptr_nonnull(host_sends_join(&sw, 0, job->params.id, 5, RANKS, got));
		epoch = got->fanin.epoch;
		for (uint32_t block = 0; block < 8; block++) {
			for (unsigned int h = 0; h < HOSTS; h++)
				host_contribute(&sw, job, h, epoch, block, false);
			ck_assert_uint_gt(ring_switch_take(&sw, PARENT_PORT, buffer), 0);
			ck_assert_uint_eq(got->fanin.block, block);
			ck_assert_uint_eq(got->udp.src_be,
					  fanin_wire_source_port_be(block, shifts[i]));
		}
		ck_assert(!job_leave(job, 0, epoch, &epoch));
		epoch = job->epoch;
		ck_assert(job_leave(job, 1, epoch, &epoch));
	}
	ring_switch_close(&sw);
}
END_TEST

/* Sends a result to a device that completes checksums. */
START_TEST(a_device_is_asked_for_the_checksums_of_fanins_packets)
{
	uint8_t foreign[100] = { 0 };
	struct rte_mbuf *mbuf;
	uint32_t epoch;

	open_switch(false, false);
	epoch = host_join_all(&sw, job, HOSTS, 5);
	for (uint16_t h = 0; h < HOSTS; h++) {
		while (ring_switch_take(&sw, h, buffer) != 0)
			;
		sw.pipeline->workers[0]->tx[h].checksum_port_be = sw.pipeline->udp_port_be;
	}
	for (unsigned int h = 0; h < HOSTS; h++)
		host_contribute(&sw, job, h, epoch, 0, false);
	for (uint16_t h = 0; h < HOSTS; h++) {
		const struct fanin_headers *headers;

		ck_assert_int_eq(rte_ring_dequeue(sw.tx[h], (void **)&mbuf), 0);
		ck_assert_uint_eq(mbuf->ol_flags, RTE_MBUF_F_TX_IPV4 | RTE_MBUF_F_TX_UDP_CKSUM);
		ck_assert_uint_eq(mbuf->l2_len, FANIN_ETH_LEN);
		ck_assert_uint_eq(mbuf->l3_len, FANIN_IP_LEN);
		headers = rte_pktmbuf_mtod(mbuf, const struct fanin_headers *);
		ck_assert_uint_eq(headers->udp.checksum_be, ipv4_pseudo_checksum(&headers->ip, 0));
		rte_pktmbuf_free(mbuf);
	}
	/* Packets of others are unchanged. */
	host_mac(1, foreign);
	host_mac(0, foreign + 6);
	foreign[12] = 0x08;
	foreign[14] = 0x45;
	foreign[23] = IPPROTO_UDP;
	ring_switch_put(&sw, 0, foreign, sizeof(foreign));
	ck_assert_int_eq(rte_ring_dequeue(sw.tx[1], (void **)&mbuf), 0);
	ck_assert_uint_eq(mbuf->ol_flags, 0);
	rte_pktmbuf_free(mbuf);
	ring_switch_close(&sw);
}
END_TEST

Suite *
suite_versions(void)
{
	Suite *suite = suite_create("versions");
	TCase *older = tcase_create("older");
	TCase *fields = tcase_create("fields");

	tcase_add_loop_test(older, an_older_host_is_told_both_versions, 0, 2);
	tcase_add_test(older, a_host_that_asks_for_an_older_switch_is_none);
	tcase_add_loop_test(older, an_older_stranger_is_told_what_is_wrong_with_it, 0, 2);
	tcase_add_test(older, all_other_packets_of_another_version_are_dropped);
	tcase_add_loop_test(older, hosts_that_join_below_an_older_parent_are_told, 0, 6);
	tcase_add_loop_test(older, a_parent_that_has_answered_is_not_taken_for_an_older_one, 0, 2);
	suite_add_tcase(suite, older);
	tcase_add_test(fields, answers_go_to_the_port_of_what_they_answer);
	tcase_add_test(fields, a_path_is_no_reason_to_ask_the_parent);
	tcase_add_test(fields, a_join_from_another_port_than_it_says_is_refused);
	tcase_add_test(fields, the_path_of_a_join_comes_back);
	tcase_add_loop_test(fields,
			    a_join_from_another_address_than_it_says_is_refused_with_that_one, 0,
			    2);
	tcase_add_loop_test(
		fields, blocks_that_share_a_port_fit_a_super_frame_and_leave_a_port_for_each_worker,
		0, 5);
	tcase_add_test(fields, packets_to_the_parent_use_the_ports_it_told);
	tcase_add_test(fields, a_device_is_asked_for_the_checksums_of_fanins_packets);
	suite_add_tcase(suite, fields);
	return suite;
}
