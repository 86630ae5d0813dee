/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A switch in the middle of a job's tree. The test acts as its children, which are hosts 0 and 1
 * and, as number 2, a switch with the ranks 2 and 3 behind it, and as its parent, behind which are
 * the ranks 4 and 5.
 */
#include <arpa/inet.h>
#include <string.h>

#include "tests/unit/answer_words.h"
#include "tests/unit/ring_switch.h"
#include "tests/unit/suites.h"
#include "wire/version.h"

#define CHILDREN 3
#define RANKS 6
#define PARENT_PORT 3
#define PARENT_EPOCH 77
#define WINDOW 4

static const uint8_t parent_mac[6] = { 0x02, 0, 0, 0, 2, 9 };

static struct ring_switch sw;
static struct job *job;
static uint8_t buffer[4096];
static struct fanin_headers *const got = (struct fanin_headers *)buffer;

/* _i: the handler, whether two workers share the blocks, and whether packets have tags. */
static const char *const handlers[] = { "single", "multi", "tree" };
#define N_VARIANTS 12

static void
make_job(const char *handler)
{
	struct job_spec spec = {
		.key = RING_SWITCH_KEY,
		.handler = handler,
		.slots = 2 * WINDOW,
		.n_ranks = RANKS,
		.n_members = CHILDREN,
		.has_parent = true,
		.authenticate = sw.tagger != NULL,
		.parent = { .port = PARENT_PORT, .ip_be = host_ip_be(PARENT_PORT) },
	};
	char error[PIPELINE_ERROR_LEN];
	const char *code;

	for (uint16_t i = 0; i < CHILDREN; i++) {
		spec.members[i].port = i;
		spec.members[i].ip_be = host_ip_be(i);
		spec.members[i].ranks = fanin_ranks_one(i);
	}
	spec.members[2].ranks = fanin_ranks_of_word(0xc);
	memcpy(spec.parent.mac, parent_mac, sizeof(parent_mac));
	ck_assert_msg(job_create(sw.pipeline, &spec, &job, &code, error) == 0, "%s", error);
}

static void
open_variant(int variant)
{
	ring_switch_eal();
	if (variant / 3 % 2 == 0)
		ring_switch_open(&sw, 4, 1, NULL);
	else
		ring_switch_open_clusters(&sw, 4, 2, 2, NULL);
	if (variant / 6 != 0)
		ring_switch_authenticate(&sw);
	make_job(handlers[variant % 3]);
}

/* Takes the next frame to the parent, which must be of this type. */
static const struct fanin_headers *
parent_take(enum fanin_type type)
{
	size_t len = ring_switch_take(&sw, PARENT_PORT, buffer);

	ck_assert_uint_ge(len, FANIN_PAYLOAD_OFFSET);
	/* A JOIN may have an older version, to find out whether the parent is older. */
	ck_assert_uint_eq(type == FANIN_TYPE_JOIN && got->fanin.version != FANIN_WIRE_VERSION
				  ? fanin_version_validate(buffer, len)
				  : fanin_wire_validate(buffer, len),
			  FANIN_REASON_NONE);
	ck_assert_uint_eq(got->fanin.type, type);
	ck_assert_uint_eq(got->fanin.rank, 0);
	ck_assert_mem_eq(got->eth.dst, parent_mac, 6);
	ck_assert_uint_eq(got->ip.dst_be, host_ip_be(PARENT_PORT));
	ck_assert_uint_eq(got->ip.src_be, sw.pipeline->ip_be);
	return got;
}

static void
parent_is_silent(void)
{
	ck_assert_uint_eq(ring_switch_take(&sw, PARENT_PORT, buffer), 0);
}

static void
put_from_parent(const void *frame, size_t len)
{
	ring_switch_put(&sw, PARENT_PORT, frame, len);
}

static size_t
parent_packet(enum fanin_type type, uint32_t epoch, const void *payload, uint32_t payload_len,
	      struct fanin_headers *frame)
{
	size_t len = host_packet(&sw, PARENT_PORT, type, job->params.id, epoch, payload,
				 payload_len, frame);

	memcpy(frame->eth.src, parent_mac, sizeof(frame->eth.src));
	return len;
}

/* Answers the JOIN that went up. */
static void
parent_ack(enum fanin_join_state state, uint64_t nonce, uint16_t window)
{
	const struct join_ack_words body = {
		.body = {
			.nonce = nonce,
			.state = (uint16_t)state,
			.size = RANKS,
			.window = window,
			.payload_bytes = job->params.payload_bytes,
			.cookie = 4711,
			/* The several workers of the parent don't matter here. */
			.flags = FANIN_JOB_SPREAD | (sw.tagger != NULL ? FANIN_JOB_TAGGED : 0),
			.instance = RING_SWITCH_PARENT_INSTANCE,
		},
		.joined = state == FANIN_JOIN_ACTIVE ? 0x3f : 0x1f,
	};
	uint8_t frame[4096];
	size_t len = parent_packet(FANIN_TYPE_JOIN_ACK,
				   state == FANIN_JOIN_ACTIVE ? PARENT_EPOCH : 0, &body,
				   sizeof(body), (struct fanin_headers *)frame);

	put_from_parent(frame, len);
}

/*
 * Makes the parent's result: element i of all six ranks' sum is 21 i + 6 block; the children
 * contribute parts of it.
 */
static size_t
parent_result(uint32_t epoch, uint32_t block, uint8_t *frame)
{
	struct fanin_headers *headers = (struct fanin_headers *)frame;
	int32_t values[RING_SWITCH_COUNT];
	size_t len;

	for (int i = 0; i < RING_SWITCH_COUNT; i++)
		values[i] = 21 * i + 6 * (int32_t)block;
	len = parent_packet(FANIN_TYPE_RESULT, epoch, values, sizeof(values), headers);
	memcpy(headers->eth.dst, job->params.result_headers.eth.dst, 6);
	headers->ip.dst_be = job->group_be;
	headers->ip.checksum_be = 0;
	headers->ip.checksum_be = fanin_ip_checksum(&headers->ip);
	headers->udp.src_be = htons(FANIN_WIRE_DEFAULT_UDP_PORT);
	headers->fanin.rank = 0;
	headers->fanin.contributions = RANKS;
	headers->fanin.block = block;
	headers->fanin.dtype = FANIN_WIRE_I32;
	headers->fanin.op = FANIN_WIRE_SUM;
	headers->fanin.count = RING_SWITCH_COUNT;
	return len;
}

static void
send_result(uint32_t block)
{
	uint8_t frame[4096];

	put_from_parent(frame, parent_result(PARENT_EPOCH, block, frame));
}

/*
 * Makes all children join, and the parent admit the switch. Returns the run's epoch as the children
 * know it.
 */
static uint32_t
start_run(uint64_t nonce)
{
	const struct fanin_join_body *join = (const struct fanin_join_body *)(got + 1);

	for (unsigned int h = 0; h < CHILDREN; h++)
		ck_assert_ptr_nonnull(
			host_sends_join(&sw, h, job->params.id, nonce + h, RANKS, got));
	parent_take(FANIN_TYPE_JOIN);
	parent_ack(FANIN_JOIN_ACTIVE, join->nonce, WINDOW);
	ck_assert_ptr_nonnull(host_sends_join(&sw, 0, job->params.id, nonce, RANKS, got));
	ck_assert_uint_eq(((const struct fanin_join_ack_body *)(got + 1))->state,
			  FANIN_JOIN_ACTIVE);
	return got->fanin.epoch;
}

static void
expect_result_at(uint16_t child, uint32_t block)
{
	host_result_check(job, RANKS, block, buffer, ring_switch_take(&sw, child, buffer));
}

static void
expect_results(uint32_t block)
{
	for (uint16_t child = 0; child < CHILDREN; child++)
		expect_result_at(child, block);
}

/* Checks that the sum of the children went up. */
static void
expect_upward(uint32_t block)
{
	const struct fanin_headers *up = parent_take(FANIN_TYPE_CONTRIBUTION);
	const int32_t *values = (const int32_t *)(up + 1);

	ck_assert_uint_eq(up->fanin.block, block);
	ck_assert_uint_eq(up->fanin.epoch, PARENT_EPOCH);
	ck_assert_uint_eq(up->fanin.contributions, 4);
	ck_assert_uint_eq(up->fanin.count, RING_SWITCH_COUNT);
	for (int i = 0; i < RING_SWITCH_COUNT; i++)
		ck_assert_int_eq(values[i], 6 * i + 3 * (int32_t)block);
}

static void
contribute_all(uint32_t epoch, uint32_t block)
{
	for (unsigned int h = 0; h < CHILDREN; h++)
		host_contribute(&sw, job, (h + block) % CHILDREN, epoch, block, false);
}

/* Returns the ranks that have joined, from a JOIN_ACK. */
static uint64_t
joined_in(const struct fanin_headers *headers)
{
	return ((const struct join_ack_words *)(headers + 1))->joined;
}

START_TEST(joins_its_parent_when_all_children_are_there)
{
	const struct fanin_join_body *join = (const struct fanin_join_body *)(got + 1);
	const struct fanin_join_ack_body *ack = (const struct fanin_join_ack_body *)(got + 1);
	uint64_t nonce;

	open_variant(_i);
	ck_assert_ptr_nonnull(host_sends_join(&sw, 0, job->params.id, 5, RANKS, got));
	ck_assert_ptr_nonnull(host_sends_join(&sw, 2, job->params.id, 7, RANKS, got));
	ck_assert_uint_eq(joined_in(got), 0xd);
	parent_is_silent();
	ck_assert_ptr_nonnull(host_sends_join(&sw, 1, job->params.id, 6, RANKS, got));
	ck_assert_uint_eq(ack->state, FANIN_JOIN_WAITING);
	ck_assert_uint_eq(ack->size, RANKS);
	parent_take(FANIN_TYPE_JOIN);
	nonce = join->nonce;
	ck_assert_uint_eq(join->size, RANKS);
	ck_assert_uint_eq(join->cookie, 0);
	parent_is_silent();

	/*
	 * Challenged, the switch returns the cookie at once, but not again if the challenge comes
	 * twice.
	 */
	parent_ack(FANIN_JOIN_CHALLENGE, nonce, WINDOW);
	parent_take(FANIN_TYPE_JOIN);
	ck_assert_uint_eq(join->nonce, nonce);
	ck_assert_uint_eq(join->cookie, 4711);
	parent_ack(FANIN_JOIN_CHALLENGE, nonce, WINDOW);
	parent_is_silent();

	/*
	 * While it waits, every JOIN of a child makes it send a JOIN again, and children learn
	 * which ranks have joined.
	 */
	parent_ack(FANIN_JOIN_WAITING, nonce, WINDOW);
	ck_assert_ptr_nonnull(host_sends_join(&sw, 0, job->params.id, 5, RANKS, got));
	ck_assert_uint_eq(ack->state, FANIN_JOIN_WAITING);
	ck_assert_uint_eq(joined_in(got), 0x1f);
	parent_take(FANIN_TYPE_JOIN);

	/* An answer to another JOIN does not count. */
	parent_ack(FANIN_JOIN_ACTIVE, nonce + 1, WINDOW);
	ck_assert_uint_eq(job->epoch, 0);
	parent_ack(FANIN_JOIN_ACTIVE, nonce, WINDOW);
	ck_assert_uint_ne(job->epoch, 0);
	ck_assert_ptr_nonnull(host_sends_join(&sw, 0, job->params.id, 5, RANKS, got));
	ck_assert_uint_eq(ack->state, FANIN_JOIN_ACTIVE);
	ck_assert_uint_eq(joined_in(got), 0x3f);
	parent_is_silent();
	ring_switch_close(&sw);
}
END_TEST

/* Sends one JOIN of host h, whose progress is `progress`, and answers its challenge. */
static void
join_from(unsigned int h, uint64_t nonce, uint32_t progress)
{
	const struct fanin_join_ack_body *ack = (const struct fanin_join_ack_body *)(got + 1);
	struct fanin_join_body body = { .nonce = nonce, .size = RANKS, .mtu = 1500 };
	uint8_t frame[4096];

	for (int i = 0; i < 2; i++) {
		size_t len = host_packet(&sw, h, FANIN_TYPE_JOIN, job->params.id, 0, &body,
					 sizeof(body), (struct fanin_headers *)frame);

		((struct fanin_headers *)frame)->fanin.progress = progress;
		ring_switch_put(&sw, (uint16_t)h, frame, len);
		ck_assert_uint_gt(ring_switch_take(&sw, (uint16_t)h, buffer), 0);
		ck_assert_uint_eq(got->fanin.type, FANIN_TYPE_JOIN_ACK);
		body.cookie = ack->cookie;
	}
}

START_TEST(run_goes_on_where_the_slowest_rank_is)
{
	const struct fanin_join_body *join = (const struct fanin_join_body *)(got + 1);
	const uint32_t around = UINT32_MAX - 1;
	uint8_t frame[4096];
	size_t len;
	struct fanin_join_ack_body body = { .state = FANIN_JOIN_ACTIVE,
					    .size = RANKS,
					    .window = WINDOW };

	open_variant(_i);
	/* Serial numbers: here 2 comes after UINT32_MAX - 1. */
	join_from(0, 5, 2);
	join_from(1, 6, around + 1);
	join_from(2, 7, 3);
	ck_assert_uint_eq(parent_take(FANIN_TYPE_JOIN)->fanin.progress, around + 1);

	/* Ranks at another switch are further back. */
	body.nonce = join->nonce;
	body.payload_bytes = job->params.payload_bytes;
	body.flags = sw.tagger != NULL ? FANIN_JOB_TAGGED : 0;
	body.instance = RING_SWITCH_PARENT_INSTANCE;
	len = parent_packet(FANIN_TYPE_JOIN_ACK, PARENT_EPOCH, &body, sizeof(body),
			    (struct fanin_headers *)frame);
	((struct fanin_headers *)frame)->fanin.progress = around;
	put_from_parent(frame, len);
	join_from(0, 5, 2);
	ck_assert_uint_eq(got->fanin.progress, around);
	ring_switch_close(&sw);
}
END_TEST

START_TEST(children_hear_what_the_parent_has_against_it)
{
	const struct fanin_join_body *join = (const struct fanin_join_body *)(got + 1);
	uint8_t frame[4096];
	struct fanin_headers *headers = (struct fanin_headers *)frame;
	uint64_t nonce;

	open_variant(_i);
	for (unsigned int h = 0; h < CHILDREN; h++)
		ck_assert_ptr_nonnull(host_sends_join(&sw, h, job->params.id, 5 + h, RANKS, got));
	parent_take(FANIN_TYPE_JOIN);
	nonce = join->nonce;
	parent_ack(FANIN_JOIN_ACTIVE, nonce, WINDOW / 2);
	ck_assert_ptr_nonnull(host_sends_join(&sw, 0, job->params.id, 5, RANKS, got));
	ck_assert_uint_eq(got->fanin.type, FANIN_TYPE_REFUSED);
	ck_assert_uint_eq(got->fanin.count, FANIN_REASON_PARENT_MISMATCH);
	parent_is_silent();

	parent_packet(FANIN_TYPE_REFUSED, 0, NULL, 0, headers);
	headers->fanin.count = FANIN_REASON_MEMBER_BUSY;
	/* A refusal that does not name the JOIN does not answer it. */
	put_from_parent(frame, FANIN_PAYLOAD_OFFSET);
	ck_assert_ptr_nonnull(host_sends_join(&sw, 1, job->params.id, 6, RANKS, got));
	ck_assert_uint_eq(got->fanin.type, FANIN_TYPE_JOIN_ACK);
	parent_take(FANIN_TYPE_JOIN);
	headers->fanin.members = nonce;
	put_from_parent(frame, FANIN_PAYLOAD_OFFSET);
	ck_assert_ptr_nonnull(host_sends_join(&sw, 1, job->params.id, 6, RANKS, got));
	ck_assert_uint_eq(got->fanin.count, FANIN_REASON_MEMBER_BUSY);
	/* The refusal is told once; the next JOIN goes up again. */
	ck_assert_ptr_nonnull(host_sends_join(&sw, 1, job->params.id, 6, RANKS, got));
	ck_assert_uint_eq(got->fanin.type, FANIN_TYPE_JOIN_ACK);
	parent_take(FANIN_TYPE_JOIN);
	ring_switch_close(&sw);
}
END_TEST

/* Sends a JOIN of host h, which was in a run before. Returns the type of the answer. */
static unsigned int
rejoin(unsigned int h, uint64_t nonce)
{
	const struct fanin_join_ack_body *ack = (const struct fanin_join_ack_body *)(got + 1);
	struct fanin_join_body body = { .nonce = nonce, .size = RANKS, .mtu = 1500 };
	uint8_t frame[4096];

	/* Other ranks may have caused notifications. */
	while (ring_switch_take(&sw, (uint16_t)h, buffer) != 0)
		;
	for (int i = 0; i < 2; i++) {
		size_t len = host_packet(&sw, h, FANIN_TYPE_JOIN, job->params.id, 0, &body,
					 sizeof(body), (struct fanin_headers *)frame);

		((struct fanin_headers *)frame)->fanin.flags = FANIN_FLAG_RETRANSMIT;
		ring_switch_put(&sw, (uint16_t)h, frame, len);
		ck_assert_uint_gt(ring_switch_take(&sw, (uint16_t)h, buffer), 0);
		if (got->fanin.type != FANIN_TYPE_JOIN_ACK || ack->state != FANIN_JOIN_CHALLENGE)
			break;
		body.cookie = ack->cookie;
	}
	return got->fanin.type;
}

/*
 * Keys are the same on all levels. An attacker between two switches could pass a host's JOIN to a
 * switch further up, in place of the JOIN of the switch that it has cut off, and pass the answers
 * back.
 */
START_TEST(no_host_joins_in_place_of_a_switch_with_other_ranks)
{
	const struct fanin_join_body body = { .nonce = 7, .size = RANKS, .mtu = 1500 };
	uint8_t frame[4096];
	size_t len;

	open_variant(N_VARIANTS - 1);
	len = host_packet(&sw, 2, FANIN_TYPE_JOIN, job->params.id, 0, &body, sizeof(body),
			  (struct fanin_headers *)frame);
	((struct fanin_headers *)frame)->fanin.contributions = 1;
	ring_switch_put(&sw, 2, frame, len);
	ck_assert_uint_gt(ring_switch_take(&sw, 2, buffer), 0);
	ck_assert_uint_eq(got->fanin.type, FANIN_TYPE_REFUSED);
	ck_assert_uint_eq(got->fanin.count, FANIN_REASON_RANK);
	ck_assert_uint_eq(got->fanin.members, 7);
	/* This switch also tells how many ranks are behind it. */
	join_from(0, 5, 0);
	join_from(1, 6, 0);
	join_from(2, 7, 0);
	ck_assert_uint_eq(parent_take(FANIN_TYPE_JOIN)->fanin.contributions, 4);
	ring_switch_close(&sw);
}
END_TEST

START_TEST(a_rejoining_host_hears_that_the_parent_is_silent)
{
	const struct fanin_join_body *join = (const struct fanin_join_body *)(got + 1);
	uint8_t frame[4096];
	struct fanin_headers *headers = (struct fanin_headers *)frame;
	unsigned int refused = 0;
	uint64_t nonce = 0;

	open_variant(_i);
	for (unsigned int h = 0; h < CHILDREN; h++)
		ck_assert_uint_eq(rejoin(h, 5 + h), FANIN_TYPE_JOIN_ACK);
	parent_take(FANIN_TYPE_JOIN);
	nonce = join->nonce;
	/* A parent that answers slowly is not silent. */
	for (unsigned int i = 0; i < 40; i++) {
		if (i % 10 == 0)
			parent_ack(FANIN_JOIN_WAITING, nonce, WINDOW);
		ck_assert_uint_eq(rejoin(i % CHILDREN, 5 + i % CHILDREN), FANIN_TYPE_JOIN_ACK);
		parent_take(FANIN_TYPE_JOIN);
	}
	/* The switch keeps asking a silent parent. */
	for (unsigned int i = 0; i < 40; i++) {
		if (rejoin(0, 5) == FANIN_TYPE_JOIN_ACK) {
			parent_take(FANIN_TYPE_JOIN);
			continue;
		}
		ck_assert_uint_eq(got->fanin.count, FANIN_REASON_NOT_ACTIVE);
		ck_assert_uint_eq(got->fanin.members, 5);
		refused++;
	}
	ck_assert_uint_ge(refused, 10);
	ck_assert_uint_le(refused, 20);
	/*
	 * The parent answers again. Its refusal is passed on, even if the reason is that its own
	 * parent is silent.
	 */
	parent_ack(FANIN_JOIN_WAITING, nonce, WINDOW);
	ck_assert_uint_eq(rejoin(0, 5), FANIN_TYPE_JOIN_ACK);
	parent_packet(FANIN_TYPE_REFUSED, 0, NULL, 0, headers);
	headers->fanin.count = FANIN_REASON_NOT_ACTIVE;
	headers->fanin.members = nonce;
	put_from_parent(frame, FANIN_PAYLOAD_OFFSET);
	ck_assert_uint_eq(rejoin(0, 5), FANIN_TYPE_REFUSED);
	ck_assert_uint_eq(rejoin(0, 5), FANIN_TYPE_JOIN_ACK);
	ring_switch_close(&sw);
}
END_TEST

START_TEST(sums_go_up_and_results_come_down)
{
	uint32_t epoch;

	open_variant(_i);
	epoch = start_run(5);
	for (uint32_t block = 0; block < 10 * WINDOW; block++) {
		contribute_all(epoch, block);
		expect_upward(block);
		for (uint16_t child = 0; child < CHILDREN; child++)
			ck_assert_uint_eq(ring_switch_take(&sw, child, buffer), 0);
		send_result(block);
		expect_results(block);
		ck_assert_uint_eq(got->fanin.epoch, epoch);
	}
	ring_switch_close(&sw);
}
END_TEST

/* Expects a child's query as the next frame to the parent. */
static void
expect_query_upward(unsigned int child, uint32_t block, uint32_t number)
{
	const struct fanin_headers *up = parent_take(FANIN_TYPE_QUERY);

	ck_assert_uint_eq(up->fanin.block, block);
	ck_assert_uint_eq(up->fanin.epoch, PARENT_EPOCH);
	ck_assert_uint_eq(up->fanin.number, number);
	ck_assert_uint_eq(up->fanin.flags, FANIN_FLAG_RETRANSMIT);
	ck_assert_uint_eq(up->fanin.members, fanin_way_push(0, child));
	parent_is_silent();
}

/* Answers a child's query as the parent. */
static void
parent_answers(uint32_t epoch, unsigned int child, uint32_t block, uint32_t number,
	       enum fanin_block_state state, const struct answer_words *body)
{
	uint8_t frame[4096];
	struct fanin_headers *headers = (struct fanin_headers *)frame;
	const size_t len = parent_packet(FANIN_TYPE_ANSWER, epoch, body, sizeof(*body), headers);

	headers->fanin.rank = 0;
	headers->fanin.block = block;
	headers->fanin.number = number;
	headers->fanin.count = (uint16_t)state;
	headers->fanin.members = fanin_way_push(0, child);
	put_from_parent(frame, len);
}

static void
children_are_silent(void)
{
	for (uint16_t child = 0; child < CHILDREN; child++)
		ck_assert_uint_eq(ring_switch_take(&sw, child, buffer), 0);
}

START_TEST(lost_packets_are_repeated_where_they_were_lost)
{
	static const struct answer_words nothing = { 0 };
	struct fanin_handler_stats stats;
	uint32_t epoch;

	open_variant(_i);
	epoch = start_run(5);
	/* A sibling is missing: the switch knows this itself, and does not ask the parent. */
	host_contribute(&sw, job, 0, epoch, 0, false);
	host_contribute(&sw, job, 2, epoch, 0, false);
	host_query(&sw, job, 2, epoch, 0, 7, true);
	ck_assert_uint_eq(answer_missing(host_take_answer(&sw, 2, 7, got)), 0x02);
	ck_assert_uint_eq(got->fanin.count, FANIN_BLOCK_OPEN);
	parent_is_silent();
	host_contribute(&sw, job, 1, epoch, 0, false);
	expect_upward(0);

	/* The sum has gone up: the parent is asked only once the block is overdue. */
	host_contribute(&sw, job, 1, epoch, 0, true);
	host_take_answer(&sw, 1, 0, got);
	host_query(&sw, job, 1, epoch, 0, 8, false);
	host_take_answer(&sw, 1, 8, got);
	ck_assert_uint_eq(got->fanin.count, FANIN_BLOCK_SENT);
	parent_is_silent();
	/* The sum was lost on the way up: it is sent again, and no child learns of it. */
	host_query(&sw, job, 1, epoch, 0, 9, true);
	expect_query_upward(1, 0, 9);
	parent_answers(PARENT_EPOCH, 1, 0, 9, FANIN_BLOCK_ABSENT, &nothing);
	expect_upward(0);
	children_are_silent();
	send_result(0);
	expect_results(0);

	/* The result was lost on the way to a child: this switch repeats it. */
	host_query(&sw, job, 1, epoch, 0, 10, true);
	expect_result_at(1, 0);
	host_take_answer(&sw, 1, 10, got);
	ck_assert_uint_eq(got->fanin.count, FANIN_BLOCK_DONE);
	parent_is_silent();
	/* If the parent repeats the result after that, nothing changes. */
	send_result(0);
	ck_assert_uint_eq(ring_switch_take(&sw, 0, buffer), 0);
	job_stats(job, &stats);
	ck_assert_uint_eq(stats.upward, 1);
	ck_assert_uint_eq(stats.upward_repeats, 1);
	ck_assert_uint_eq(stats.results, 1);
	ck_assert_uint_eq(stats.queries, 4);
	ck_assert_uint_eq(stats.upward_queries, 1);
	ring_switch_close(&sw);
}
END_TEST

START_TEST(parent_s_answer_reaches_the_child_that_asked)
{
	struct answer_words body = answer_words_make(0x30, 0x20, 0);
	const struct answer_words *passed;
	uint32_t epoch;

	body.body.n_blocks = 1;
	open_variant(_i);
	epoch = start_run(5);
	contribute_all(epoch, 0);
	expect_upward(0);
	host_query(&sw, job, 1, epoch, 0, 9, true);
	expect_query_upward(1, 0, 9);
	parent_answers(PARENT_EPOCH, 1, 0, 9, FANIN_BLOCK_OPEN, &body);
	passed = host_take_answer(&sw, 1, 9, got);
	ck_assert_uint_eq(got->fanin.epoch, epoch);
	ck_assert_uint_eq(got->fanin.block, 0);
	ck_assert_uint_eq(got->fanin.count, FANIN_BLOCK_OPEN);
	ck_assert_uint_eq(got->fanin.members, 0);
	ck_assert_uint_eq(answer_missing(passed), 0x30);
	ck_assert_uint_eq(answer_ended(passed), 0x20);
	/* The answer says nothing of this hop. */
	ck_assert_uint_eq(passed->body.n_blocks, 0);
	ck_assert_uint_eq(passed->body.level, 1);
	children_are_silent();

	/* Answers of a run that is over, or to a child that does not exist, are dropped. */
	parent_answers(PARENT_EPOCH - 1, 1, 0, 9, FANIN_BLOCK_OPEN, &body);
	parent_answers(PARENT_EPOCH, CHILDREN, 0, 9, FANIN_BLOCK_OPEN, &body);
	children_are_silent();
	parent_is_silent();
	ring_switch_close(&sw);
}
END_TEST

START_TEST(refusal_by_the_parent_reaches_all_children)
{
	uint8_t frame[4096];
	struct fanin_headers *headers = (struct fanin_headers *)frame;
	uint32_t epoch;

	open_variant(_i);
	epoch = start_run(5);
	contribute_all(epoch, 0);
	expect_upward(0);
	parent_packet(FANIN_TYPE_REFUSED, PARENT_EPOCH, NULL, 0, headers);
	headers->fanin.block = 0;
	headers->fanin.count = FANIN_REASON_MISMATCH;
	put_from_parent(frame, FANIN_PAYLOAD_OFFSET);
	for (uint16_t child = 0; child < CHILDREN; child++) {
		ck_assert_uint_eq(ring_switch_take(&sw, child, buffer), FANIN_PAYLOAD_OFFSET);
		ck_assert_uint_eq(got->fanin.type, FANIN_TYPE_REFUSED);
		ck_assert_uint_eq(got->fanin.epoch, epoch);
		ck_assert_uint_eq(got->fanin.block, 0);
		ck_assert_uint_eq(got->fanin.count, FANIN_REASON_MISMATCH);
	}
	/* A refusal of a run that is over is not for the children. */
	headers->fanin.epoch = PARENT_EPOCH - 1;
	put_from_parent(frame, FANIN_PAYLOAD_OFFSET);
	children_are_silent();
	/* A refusal of a block that no child has sent comes from a forger. */
	headers->fanin.epoch = PARENT_EPOCH;
	headers->fanin.block = 1u << 20;
	headers->fanin.count = FANIN_REASON_BLOCK_WINDOW;
	put_from_parent(frame, FANIN_PAYLOAD_OFFSET);
	children_are_silent();
	ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_BLOCK_WINDOW), 1);
	ring_switch_close(&sw);
}
END_TEST

/*
 * Sends the result of a block from a child that has it already. Its values are those of
 * parent_result.
 */
static void
tell_known(unsigned int child, uint32_t epoch, uint32_t block, bool again)
{
	uint8_t frame[4096];
	uint8_t known[4096];
	size_t len = parent_result(epoch, block, frame);
	const struct fanin_headers *result = (const struct fanin_headers *)frame;
	struct fanin_headers *headers = (struct fanin_headers *)known;

	host_packet(&sw, child, FANIN_TYPE_KNOWN, job->params.id, epoch, result + 1,
		    RING_SWITCH_COUNT * 4, headers);
	headers->fanin.block = block;
	headers->fanin.contributions = RANKS;
	headers->fanin.dtype = result->fanin.dtype;
	headers->fanin.op = result->fanin.op;
	headers->fanin.count = result->fanin.count;
	headers->fanin.flags = again ? FANIN_FLAG_RETRANSMIT : 0;
	ring_switch_put(&sw, (uint16_t)child, known, len);
}

static void
expect_known_upward(uint32_t block)
{
	const struct fanin_headers *up = parent_take(FANIN_TYPE_KNOWN);
	const int32_t *values = (const int32_t *)(up + 1);

	ck_assert_uint_eq(up->fanin.block, block);
	ck_assert_uint_eq(up->fanin.contributions, RANKS);
	for (int i = 0; i < RING_SWITCH_COUNT; i++)
		ck_assert_int_eq(values[i], 21 * i + 6 * (int32_t)block);
}

START_TEST(result_that_a_child_knows_is_everybody_s)
{
	static const struct answer_words nothing = { 0 };
	struct fanin_handler_stats stats;
	uint32_t epoch;

	open_variant(_i);
	epoch = start_run(5);
	/* The known result comes as the first packet of its block, */
	tell_known(1, epoch, 0, false);
	expect_known_upward(0);
	/* after contributions, which it makes superfluous, */
	host_contribute(&sw, job, 0, epoch, 1, false);
	host_contribute(&sw, job, 2, epoch, 1, false);
	tell_known(1, epoch, 1, false);
	expect_known_upward(1);
	/* and after the sum went up, as other switches may have received nothing. */
	contribute_all(epoch, 2);
	expect_upward(2);
	tell_known(2, epoch, 2, false);
	expect_known_upward(2);
	/* The packet was lost on the way up: a query of a child makes it go up again. */
	host_query(&sw, job, 0, epoch, 1, 9, true);
	expect_query_upward(0, 1, 9);
	parent_answers(PARENT_EPOCH, 0, 1, 9, FANIN_BLOCK_ABSENT, &nothing);
	expect_known_upward(1);

	for (uint32_t block = 0; block < 3; block++) {
		send_result(block);
		expect_results(block);
	}
	/*
	 * A child that contributes only now gets the result at once, although it has not queried
	 * it, but not a second time.
	 */
	host_contribute(&sw, job, 0, epoch, 0, false);
	expect_result_at(0, 0);
	host_contribute(&sw, job, 0, epoch, 0, false);
	ck_assert_uint_eq(ring_switch_take(&sw, 0, buffer), 0);
	tell_known(1, epoch, 0, true);
	expect_result_at(1, 0);

	/* Slots continue to work. */
	for (uint32_t block = 3; block < 4 * WINDOW; block++) {
		contribute_all(epoch, block);
		expect_upward(block);
		send_result(block);
		expect_results(block);
	}
	job_stats(job, &stats);
	ck_assert_uint_eq(stats.known, 3);
	ck_assert_uint_eq(stats.results, 4 * WINDOW);
	parent_is_silent();
	ring_switch_close(&sw);
}
END_TEST

START_TEST(known_result_is_checked_as_a_contribution_is)
{
	uint32_t epoch;

	open_variant(_i);
	epoch = start_run(5);
	tell_known(1, epoch - 1, 0, false);
	ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_EPOCH), 1);
	/*
	 * Each child is notified, as it may have nothing to send that would show that its run is
	 * over.
	 */
	ck_assert_uint_eq(ring_switch_take(&sw, 1, buffer), FANIN_PAYLOAD_OFFSET);
	ck_assert_uint_eq(got->fanin.type, FANIN_TYPE_REFUSED);
	ck_assert_uint_eq(got->fanin.count, FANIN_REASON_EPOCH);
	tell_known(1, epoch, 2 * WINDOW, false);
	ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_BLOCK_WINDOW), 1);
	while (ring_switch_take(&sw, 1, buffer) != 0)
		ck_assert_uint_eq(got->fanin.type, FANIN_TYPE_REFUSED);
	parent_is_silent();
	ring_switch_close(&sw);
}
END_TEST

/*
 * Sends a forged result, which must be dropped for its reason; the block still gets the true
 * result.
 */
static void
forge(uint16_t port, uint32_t epoch, uint64_t key, uint32_t source_be, enum fanin_reason reason)
{
	uint8_t frame[4096];
	struct fanin_headers *headers = (struct fanin_headers *)frame;
	uint64_t before = ring_switch_drops(&sw, reason);
	size_t len = parent_result(epoch, 0, frame);

	/*
	 * The frame is for the switch itself: to the group it would be a foreign frame on any other
	 * port.
	 */
	memcpy(headers->eth.dst, sw.pipeline->mac, 6);
	headers->ip.dst_be = sw.pipeline->ip_be;
	headers->ip.src_be = source_be;
	headers->ip.checksum_be = 0;
	headers->ip.checksum_be = fanin_ip_checksum(&headers->ip);
	headers->fanin.key = key;
	ring_switch_put(&sw, port, frame, len);
	ck_assert_uint_eq(ring_switch_drops(&sw, reason), before + 1);
	for (uint16_t child = 0; child < CHILDREN; child++)
		ck_assert_uint_eq(ring_switch_take(&sw, child, buffer), 0);
}

START_TEST(only_the_parent_is_believed)
{
	const uint32_t parent_ip_be = host_ip_be(PARENT_PORT);
	const uint64_t key = ring_switch_key(FANIN_TYPE_RESULT);
	uint8_t frame[4096];
	uint32_t epoch;

	open_variant(_i);
	epoch = start_run(5);
	contribute_all(epoch, 0);
	expect_upward(0);
	forge(1, PARENT_EPOCH, key, parent_ip_be, FANIN_REASON_DIRECTION);
	forge(PARENT_PORT, PARENT_EPOCH, key, host_ip_be(9), FANIN_REASON_DIRECTION);
	forge(PARENT_PORT, PARENT_EPOCH, key + 1, parent_ip_be, FANIN_REASON_KEY);
	forge(PARENT_PORT, PARENT_EPOCH + 1, key, parent_ip_be, FANIN_REASON_EPOCH);

	/* Another station with the parent's address, on the parent's port. */
	parent_result(PARENT_EPOCH, 0, frame);
	((struct fanin_headers *)frame)->eth.src[5]++;
	put_from_parent(frame, FANIN_PAYLOAD_OFFSET + RING_SWITCH_COUNT * 4);
	ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_DIRECTION), 3);
	ck_assert_uint_eq(ring_switch_take(&sw, 0, buffer), 0);

	/* A result of another shape than the block's. */
	parent_result(PARENT_EPOCH, 0, frame);
	((struct fanin_headers *)frame)->fanin.op = FANIN_WIRE_MAX;
	put_from_parent(frame, FANIN_PAYLOAD_OFFSET + RING_SWITCH_COUNT * 4);
	ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_MISMATCH), 1);
	/* A result of a block that no child waits for. */
	send_result(1);
	ck_assert_uint_eq(ring_switch_take(&sw, 0, buffer), 0);

	send_result(0);
	expect_results(0);
	ring_switch_close(&sw);
}
END_TEST

/*
 * Results with the parent's addresses and keys, on its link: to this job's group, and to another
 * job's.
 */
START_TEST(no_result_of_a_stranger_on_the_link_goes_down)
{
	uint8_t frame[4096];
	struct fanin_headers *headers = (struct fanin_headers *)frame;
	uint32_t epoch;
	size_t len;

	open_variant(N_VARIANTS / 2 + _i);
	epoch = start_run(5);
	contribute_all(epoch, 0);
	expect_upward(0);
	for (uint32_t other = 0; other < 2; other++) {
		for (int tagged = 0; tagged < 2; tagged++) {
			len = parent_result(PARENT_EPOCH, 0, frame);
			frame[len - 1] ^= 0x40;
			headers->ip.dst_be = htonl(ntohl(headers->ip.dst_be) + other);
			headers->eth.dst[5] = (uint8_t)(headers->eth.dst[5] + other);
			headers->ip.checksum_be = 0;
			headers->ip.checksum_be = fanin_ip_checksum(&headers->ip);
			headers->fanin.flags = tagged ? FANIN_FLAG_TAGGED : 0;
			ring_switch_enqueue_raw(&sw, PARENT_PORT, frame, len);
			ring_switch_rounds(&sw, 2);
			for (uint16_t child = 0; child < CHILDREN; child++) {
				while (ring_switch_take(&sw, child, buffer) != 0)
					ck_assert(got->fanin.type != FANIN_TYPE_RESULT ||
						  got->ip.dst_be != job->group_be);
			}
		}
	}
	send_result(0);
	expect_results(0);
	ring_switch_close(&sw);
}
END_TEST

START_TEST(run_ends_at_the_parent_when_all_children_have_left)
{
	uint8_t frame[4096];
	uint32_t epoch, second;

	open_variant(_i);
	epoch = start_run(5);
	contribute_all(epoch, 0);
	expect_upward(0);
	for (unsigned int h = 0; h < CHILDREN; h++) {
		parent_is_silent();
		ring_switch_put(&sw, (uint16_t)h, frame,
				host_packet(&sw, h, FANIN_TYPE_LEAVE, job->params.id, epoch, NULL,
					    0, (struct fanin_headers *)frame));
		ck_assert_uint_gt(ring_switch_take(&sw, (uint16_t)h, buffer), 0);
		ck_assert_uint_eq(got->fanin.type, FANIN_TYPE_LEAVE_ACK);
	}
	ck_assert_uint_eq(parent_take(FANIN_TYPE_LEAVE)->fanin.epoch, PARENT_EPOCH);

	/* A late result of the old run is not the new one's. */
	second = start_run(50);
	ck_assert_uint_ne(second, epoch);
	contribute_all(second, 0);
	expect_upward(0);
	put_from_parent(frame, parent_result(PARENT_EPOCH - 1, 0, frame));
	ck_assert_uint_eq(ring_switch_take(&sw, 0, buffer), 0);
	send_result(0);
	expect_results(0);
	ring_switch_close(&sw);
}
END_TEST

/* ------------------------------------------------------------------ more than 64 ranks */

#define MANY 1000
#define MANY_LOW 64      /* child 0, */
#define MANY_PAYLOAD 256 /* less than the sets of ranks need */
#define MANY_HIGH 70     /* child 1, */
#define MANY_FIRST 900   /* and child 2, a switch with all from here on */

/* A JOIN_ACK, an ANSWER or a PROBE_ACK in a job of this many ranks, with its sets of ranks. */
struct many_body {
	union {
		struct fanin_join_ack_body ack;
		struct fanin_answer_body answer;
	};
	uint8_t sets[2 * sizeof(struct fanin_ranks)];
};

static void
make_many_job(void)
{
	struct job_spec spec = {
		.key = RING_SWITCH_KEY,
		.handler = "single",
		.payload_bytes = MANY_PAYLOAD,
		.slots = 2 * WINDOW,
		.n_ranks = MANY,
		.n_members = CHILDREN,
		.has_parent = true,
		.parent = { .port = PARENT_PORT, .ip_be = host_ip_be(PARENT_PORT) },
	};
	char error[PIPELINE_ERROR_LEN];
	const char *code;

	for (uint16_t i = 0; i < CHILDREN; i++) {
		spec.members[i].port = i;
		spec.members[i].ip_be = host_ip_be(i);
	}
	spec.members[0].ranks = fanin_ranks_one(MANY_LOW);
	spec.members[1].ranks = fanin_ranks_one(MANY_HIGH);
	for (unsigned int rank = MANY_FIRST; rank < MANY; rank++)
		fanin_ranks_add(&spec.members[2].ranks, rank);
	memcpy(spec.parent.mac, parent_mac, sizeof(parent_mac));
	ck_assert_msg(job_create(sw.pipeline, &spec, &job, &code, error) == 0, "%s", error);
}

/* Returns the set of ranks at an offset after the headers of the last frame. */
static struct fanin_ranks
set_in_frame(size_t offset)
{
	struct fanin_ranks set;

	fanin_ranks_read(&set, (const uint8_t *)(got + 1) + offset, MANY);
	return set;
}

START_TEST(a_host_whose_link_takes_no_answers_about_all_ranks_is_refused)
{
	const uint32_t needed = (uint32_t)FANIN_MTU_OVERHEAD + fanin_answer_len_max(MANY);
	struct fanin_join_body join = { .nonce = 5, .size = MANY, .mtu = needed - 1 };
	size_t len;

	ck_assert_uint_lt(job->params.payload_bytes + FANIN_MTU_OVERHEAD, needed - 1);
	for (int turn = 0; turn < 2; turn++, join.mtu++) {
		len = host_packet(&sw, 0, FANIN_TYPE_JOIN, job->params.id, MANY_LOW, &join,
				  sizeof(join), (struct fanin_headers *)buffer);
		ring_switch_put(&sw, 0, buffer, len);
		ck_assert_uint_gt(ring_switch_take(&sw, 0, buffer), 0);
		ck_assert_uint_eq(got->fanin.type,
				  turn == 0 ? FANIN_TYPE_REFUSED : FANIN_TYPE_JOIN_ACK);
		if (turn == 0)
			ck_assert_uint_eq(got->fanin.count, FANIN_REASON_MTU);
	}
}
END_TEST

START_TEST(sets_of_ranks_are_as_long_as_the_job_needs)
{
	const struct fanin_ranks elsewhere = fanin_ranks_one(500);
	const size_t set_len = fanin_ranks_bytes(MANY);
	struct fanin_ranks expected = job->params.child_ranks[0];
	struct fanin_answer_ranks told = { 0 };
	struct fanin_ranks found;
	struct many_body body = { 0 };
	uint8_t frame[4096];
	uint64_t nonce = 0;
	uint32_t epoch;
	size_t len;

	for (unsigned int h = 0; h < CHILDREN; h++)
		ck_assert_ptr_nonnull(host_sends_join(&sw, h, job->params.id, 5 + h, MANY, got));
	ck_assert_uint_gt(ring_switch_take(&sw, PARENT_PORT, buffer), 0);
	ck_assert_uint_eq(got->fanin.type, FANIN_TYPE_JOIN);
	ck_assert_uint_eq(got->fanin.rank, MANY_LOW);
	memcpy(&nonce, got + 1, sizeof(nonce));
	/* JOIN_ACK: the ranks here, and the others as the parent says. */
	body.ack = (struct fanin_join_ack_body){ .nonce = nonce,
						 .state = FANIN_JOIN_ACTIVE,
						 .size = MANY,
						 .window = WINDOW,
						 .payload_bytes = job->params.payload_bytes };
	memcpy((uint8_t *)&body + sizeof(body.ack), &elsewhere, set_len);
	len = parent_packet(FANIN_TYPE_JOIN_ACK, PARENT_EPOCH, &body, fanin_join_ack_len(MANY),
			    (struct fanin_headers *)frame);
	put_from_parent(frame, len);
	epoch = job->epoch;
	ck_assert_uint_ne(epoch, 0);
	ck_assert_ptr_nonnull(host_sends_join(&sw, 1, job->params.id, 6, MANY, got));
	ck_assert_uint_eq(fanin_wire_payload_len(got), fanin_join_ack_len(MANY));
	fanin_ranks_merge(&expected, &job->params.child_ranks[1]);
	fanin_ranks_merge(&expected, &job->params.child_ranks[2]);
	fanin_ranks_merge(&expected, &elsewhere);
	found = set_in_frame(sizeof(body.ack));
	ck_assert(fanin_ranks_equal(&found, &expected));

	/* ANSWER of this switch: the ranks that the block lacks. */
	host_contribute(&sw, job, 0, epoch, 0, false);
	host_query(&sw, job, 0, epoch, 0, 7, true);
	do
		len = ring_switch_take(&sw, 0, buffer);
	while (len != 0 && got->fanin.type != FANIN_TYPE_ANSWER);
	ck_assert_uint_eq(len, FANIN_PAYLOAD_OFFSET + fanin_answer_len(MANY));
	fanin_answer_read_ranks((const uint8_t *)(got + 1) + sizeof(body.answer), MANY, &told);
	expected = job->params.child_ranks[1];
	fanin_ranks_merge(&expected, &job->params.child_ranks[2]);
	ck_assert(fanin_ranks_equal(&told.missing, &expected));
	ck_assert(fanin_ranks_is_empty(&told.ended) && fanin_ranks_is_empty(&told.silent));
}
END_TEST

START_TEST(another_switchs_report_of_its_ranks_is_passed_on)
{
	const size_t set_len = fanin_ranks_bytes(MANY);
	const struct fanin_ranks *below = &job->params.child_ranks[2];
	struct fanin_answer_ranks told = { 0 };
	struct many_body body = { 0 };
	uint8_t frame[4096];
	uint32_t epoch;
	uint8_t *sets = (uint8_t *)&body;
	size_t len;

	job->epoch = epoch = 77;
	job->parent_epoch = PARENT_EPOCH;
	for (unsigned int i = 0; i < CHILDREN; i++)
		job->members[i].joined = true;
	job->joined = job->params.children;
	/* PROBE_ACK: about its own ranks only. */
	memset(sets, 0xff, set_len);
	fanin_ranks_write(sets + set_len, &told.silent, MANY);
	sets[set_len + MANY_LOW / 8] = 0xff;
	len = host_packet(&sw, 2, FANIN_TYPE_PROBE_ACK, job->params.id, epoch, &body,
			  fanin_probe_ack_len(MANY), (struct fanin_headers *)frame);
	ring_switch_put(&sw, 2, frame, len);
	ck_assert(fanin_ranks_equal(&job->ended, below));
	ck_assert(fanin_ranks_is_empty(&job->silent));
	/* A PROBE_ACK with the length for a smaller job is ignored. */
	len = host_packet(&sw, 2, FANIN_TYPE_PROBE_ACK, job->params.id, epoch, &body,
			  fanin_probe_ack_len(MANY) - 8, (struct fanin_headers *)frame);
	ring_switch_put(&sw, 2, frame, len);
	ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_BODY), 1);

	/*
	 * The parent's ANSWER goes down to the child that has sent the query, with all its sets of
	 * ranks.
	 */
	told.missing = fanin_ranks_all(MANY);
	told.ended = fanin_ranks_one(3);
	told.silent = fanin_ranks_one(999);
	memset(&body, 0, sizeof(body));
	body.answer.n_blocks = 1;
	fanin_answer_write_ranks((uint8_t *)&body + sizeof(body.answer), MANY, &told);
	len = parent_packet(FANIN_TYPE_ANSWER, PARENT_EPOCH, &body, fanin_answer_len(MANY),
			    (struct fanin_headers *)frame);
	((struct fanin_headers *)frame)->fanin.rank = MANY_LOW;
	((struct fanin_headers *)frame)->fanin.number = 9;
	((struct fanin_headers *)frame)->fanin.count = FANIN_BLOCK_OPEN;
	((struct fanin_headers *)frame)->fanin.members = fanin_way_push(0, 2);
	put_from_parent(frame, len);
	ck_assert_uint_eq(ring_switch_take(&sw, 2, buffer),
			  FANIN_PAYLOAD_OFFSET + fanin_answer_len(MANY));
	ck_assert_uint_eq(got->fanin.rank, MANY_FIRST);
	memset(&told, 0, sizeof(told));
	fanin_answer_read_ranks((const uint8_t *)(got + 1) + sizeof(body.answer), MANY, &told);
	ck_assert_uint_eq(fanin_ranks_count(&told.missing), MANY);
	ck_assert(fanin_ranks_has(&told.ended, 3) && fanin_ranks_count(&told.ended) == 1);
	ck_assert(fanin_ranks_has(&told.silent, 999) && fanin_ranks_count(&told.silent) == 1);
	/* An ANSWER without room for the sets is dropped. */
	len = parent_packet(FANIN_TYPE_ANSWER, PARENT_EPOCH, &body, fanin_answer_len(MANY) - 8,
			    (struct fanin_headers *)frame);
	((struct fanin_headers *)frame)->fanin.rank = MANY_LOW;
	((struct fanin_headers *)frame)->fanin.number = 9;
	((struct fanin_headers *)frame)->fanin.count = FANIN_BLOCK_OPEN;
	((struct fanin_headers *)frame)->fanin.members = fanin_way_push(0, 2);
	put_from_parent(frame, len);
	ck_assert_uint_eq(ring_switch_take(&sw, 2, buffer), 0);
}
END_TEST

static const uint16_t many_ranks[] = { MANY_LOW, MANY_HIGH, MANY_FIRST, 0 };

static void
many_open(void)
{
	ring_switch_eal();
	ring_switch_open(&sw, 4, 1, NULL);
	sw.ranks = many_ranks;
	make_many_job();
}

static void
many_close(void)
{
	ring_switch_close(&sw);
}

/* The sets of this many ranks do not fit into the packets of such a link. */
START_TEST(a_link_that_is_too_small_for_so_many_ranks_is_refused)
{
	struct job_spec spec = { .key = RING_SWITCH_KEY,
				 .handler = "single",
				 .n_ranks = FANIN_WIRE_MAX_RANKS,
				 .n_members = 1,
				 .has_parent = true,
				 .parent = { .port = PARENT_PORT,
					     .ip_be = host_ip_be(PARENT_PORT) } };
	char error[PIPELINE_ERROR_LEN];
	const char *code;

	spec.members[0].ip_be = host_ip_be(0);
	sw.pipeline->ports[0].mtu = 1185;
	ck_assert_int_ne(job_create(sw.pipeline, &spec, &job, &code, error), 0);
	ck_assert_msg(strstr(error, "found an MTU of 1185 among the job's ports, expected 1186") !=
			      NULL,
		      "%s", error);
	sw.pipeline->ports[0].mtu = 1186;
	ck_assert_msg(job_create(sw.pipeline, &spec, &job, &code, error) == 0, "%s", error);
}
END_TEST

START_TEST(ranks_that_make_no_tree_are_refused)
{
	static const struct {
		uint64_t ranks[2];
		uint16_t n_ranks;
		bool has_parent, wide;
		const char *error;
	} cases[] = {
		{ { 1, 1 }, 2, false, false, "found rank 0 behind member 1" },
		{ { 1, 4 }, 2, false, false, "found rank 2 behind member 1" },
		{ { 1, 2 }, 3, false, false, "rank 2 is behind no member" },
		{ { 1, 2 }, 2, true, false, "all 2 ranks are behind this switch" },
		{ { 1, 2 }, FANIN_WIRE_MAX_RANKS + 1, true, false, "found size 4097" },
		{ { 1, 2 }, 3, true, true, "accumulate \"f32\"" },
		{ { 1, 6 }, 3, false, true, "accumulate \"f32\"" },
	};
	char error[PIPELINE_ERROR_LEN];
	const char *code;

	ring_switch_eal();
	ring_switch_open(&sw, 4, 1, NULL);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct job_spec spec = {
			.key = RING_SWITCH_KEY,
			.handler = "single",
			.n_ranks = cases[i].n_ranks,
			.n_members = 2,
			.wide = cases[i].wide,
			.has_parent = cases[i].has_parent,
			.parent = { .port = PARENT_PORT, .ip_be = host_ip_be(PARENT_PORT) },
		};

		for (uint16_t m = 0; m < 2; m++) {
			spec.members[m].port = m;
			spec.members[m].ip_be = host_ip_be(m);
			spec.members[m].ranks = fanin_ranks_of_word(cases[i].ranks[m]);
		}
		ck_assert_int_ne(job_create(sw.pipeline, &spec, &job, &code, error), 0);
		ck_assert_msg(strstr(error, cases[i].error) != NULL,
			      "found \"%s\", expected \"%s\"", error, cases[i].error);
	}
	ring_switch_close(&sw);
}
END_TEST

Suite *
suite_levels(void)
{
	Suite *suite = suite_create("levels");
	TCase *one = tcase_create("a switch with a parent");
	TCase *many = tcase_create("in a job of many ranks");

	tcase_add_loop_test(one, joins_its_parent_when_all_children_are_there, 0, N_VARIANTS);
	tcase_add_loop_test(one, run_goes_on_where_the_slowest_rank_is, 0, N_VARIANTS);
	tcase_add_loop_test(one, children_hear_what_the_parent_has_against_it, 0, N_VARIANTS);
	tcase_add_test(one, no_host_joins_in_place_of_a_switch_with_other_ranks);
	tcase_add_loop_test(one, a_rejoining_host_hears_that_the_parent_is_silent, 0, N_VARIANTS);
	tcase_add_loop_test(one, sums_go_up_and_results_come_down, 0, N_VARIANTS);
	tcase_add_loop_test(one, lost_packets_are_repeated_where_they_were_lost, 0, N_VARIANTS);
	tcase_add_loop_test(one, parent_s_answer_reaches_the_child_that_asked, 0, N_VARIANTS);
	tcase_add_loop_test(one, refusal_by_the_parent_reaches_all_children, 0, N_VARIANTS);
	tcase_add_loop_test(one, result_that_a_child_knows_is_everybody_s, 0, N_VARIANTS);
	tcase_add_loop_test(one, known_result_is_checked_as_a_contribution_is, 0, N_VARIANTS);
	tcase_add_loop_test(one, no_result_of_a_stranger_on_the_link_goes_down, 0, N_VARIANTS / 2);
	tcase_add_loop_test(one, only_the_parent_is_believed, 0, N_VARIANTS);
	tcase_add_loop_test(one, run_ends_at_the_parent_when_all_children_have_left, 0, N_VARIANTS);
	tcase_add_test(one, ranks_that_make_no_tree_are_refused);
	suite_add_tcase(suite, one);
	tcase_add_checked_fixture(many, many_open, many_close);
	tcase_add_test(many, a_host_whose_link_takes_no_answers_about_all_ranks_is_refused);
	tcase_add_test(many, sets_of_ranks_are_as_long_as_the_job_needs);
	tcase_add_test(many, another_switchs_report_of_its_ranks_is_passed_on);
	tcase_add_test(many, a_link_that_is_too_small_for_so_many_ranks_is_refused);
	suite_add_tcase(suite, many);
	return suite;
}
