/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A switch and strangers who send frames at a member's own port, with its addresses and its keys,
 * to a job with tags. The tests of levels also run with tags.
 */
#include <arpa/inet.h>
#include <string.h>

#include "pipeline/tags.h"
#include "tests/unit/ring_switch.h"
#include "tests/unit/suites.h"

#define HOSTS 2

static struct ring_switch sw;
static struct job *job;
static uint32_t epoch;
static uint8_t out[4096] __attribute__((aligned(8)));
static struct fanin_headers *const got = (struct fanin_headers *)out;

static void
setup(void)
{
	ring_switch_eal();
	ring_switch_open(&sw, 4, 1, NULL);
	ring_switch_authenticate(&sw);
	job = ring_switch_job(&sw, HOSTS, 16);
	epoch = host_join_all(&sw, job, HOSTS, 5);
	for (uint16_t h = 0; h < HOSTS; h++) {
		while (ring_switch_take(&sw, h, out) != 0)
			;
	}
}

static void
teardown(void)
{
	ring_switch_close(&sw);
}

/* Makes host 0's contribution to block 0, with another value in it. */
static size_t
forged_contribution(uint8_t *frame)
{
	const size_t len = host_contribution(&sw, job, 0, epoch, 0, false, frame);

	frame[FANIN_PAYLOAD_OFFSET] ^= 0x55;
	return len;
}

static size_t
seal_with(uint64_t secret, enum fanin_tag_direction direction, uint64_t instance, void *frame,
	  size_t len)
{
	struct fanin_tagger *tagger;

	ck_assert_int_eq(fanin_tagger_create(secret, &tagger), 0);
	ck_assert(fanin_tagger_seal_frame(tagger, direction, instance, frame));
	fanin_tagger_destroy(tagger);
	return len + FANIN_TAG_LEN;
}

/* Forgeries that a stranger can make of it. */
enum forgery {
	UNTAGGED,
	FLAG_ONLY, /* with the length of its count: 8 elements of the payload take the tag's place
		    */
	OTHER_SECRET,
	OTHER_DIRECTION,
	OTHER_START, /* sealed for the switch before its restart */
	CHANGED,     /* a valid tag, with another payload */
	SHORT,       /* too short for a tag */
	FORGERIES
};

static size_t
forge(enum forgery forgery, uint8_t *frame)
{
	struct fanin_headers *headers = (struct fanin_headers *)frame;
	const uint64_t instance = sw.pipeline->instance;
	size_t len = forged_contribution(frame);

	switch (forgery) {
	case UNTAGGED:
		return len;
	case FLAG_ONLY:
		headers->fanin.flags |= FANIN_FLAG_TAGGED;
		return len;
	case OTHER_SECRET:
		return seal_with(RING_SWITCH_KEY + 1, FANIN_TAG_UP, instance, frame, len);
	case OTHER_DIRECTION:
		return seal_with(RING_SWITCH_KEY, FANIN_TAG_DOWN, instance, frame, len);
	case OTHER_START:
		return seal_with(RING_SWITCH_KEY, FANIN_TAG_UP, instance + 1, frame, len);
	case CHANGED:
		len = seal_with(RING_SWITCH_KEY, FANIN_TAG_UP, instance, frame, len);
		frame[FANIN_PAYLOAD_OFFSET + 1] ^= 1;
		return len;
	case SHORT:
		headers->fanin.count = 4;
		headers->fanin.flags |= FANIN_FLAG_TAGGED;
		fanin_wire_set_payload_len(headers, 16);
		return FANIN_PAYLOAD_OFFSET + 16;
	case FORGERIES:
		break;
	}
	return 0;
}

/* Expects a refusal, as the member may not know that this switch was restarted. */
static void
expect_refusal(uint16_t port, enum fanin_reason reason)
{
	ck_assert_uint_eq(ring_switch_take(&sw, port, out), FANIN_PAYLOAD_OFFSET);
	ck_assert_uint_eq(got->fanin.type, FANIN_TYPE_REFUSED);
	ck_assert_uint_eq(got->fanin.count, reason);
	ck_assert_uint_eq(got->fanin.flags, 0);
}

START_TEST(forged_contributions_change_no_sum)
{
	uint8_t frame[4096];

	ring_switch_enqueue_raw(&sw, 0, frame, forge((enum forgery)_i, frame));
	ring_switch_rounds(&sw, 2);
	ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_TAG), 1);
	expect_refusal(0, FANIN_REASON_TAG);
	for (unsigned int h = 0; h < HOSTS; h++)
		host_contribute(&sw, job, h, epoch, 0, false);
	for (uint16_t h = 0; h < HOSTS; h++)
		host_result_check(job, HOSTS, 0, out, ring_switch_take(&sw, h, out));
}
END_TEST

START_TEST(a_packet_delivered_again_is_a_duplicate)
{
	uint8_t frame[4096];
	size_t len = host_contribution(&sw, job, 0, epoch, 0, false, frame);

	len = ring_switch_seal(&sw, frame, len);
	for (int i = 0; i < 3; i++)
		ring_switch_enqueue_raw(&sw, 0, frame, len);
	ring_switch_rounds(&sw, 2);
	host_contribute(&sw, job, 1, epoch, 0, false);
	for (uint16_t h = 0; h < HOSTS; h++)
		host_result_check(job, HOSTS, 0, out, ring_switch_take(&sw, h, out));
	ck_assert_uint_eq(job->worker_stats[0].stats.duplicates, 2);
}
END_TEST

START_TEST(frames_keep_their_padding_and_lose_their_tag)
{
	uint8_t frame[4096] = { 0 };
	struct fanin_headers *headers = (struct fanin_headers *)frame;
	size_t len;

	for (unsigned int h = 0; h < HOSTS; h++) {
		len = host_contribution(&sw, job, h, epoch, 0, false, frame);
		headers->fanin.count = 1;
		fanin_wire_set_payload_len(headers, 4);
		len = ring_switch_seal(&sw, frame, FANIN_PAYLOAD_OFFSET + 4);
		ring_switch_enqueue_raw(&sw, (uint16_t)h, frame, len + 60);
	}
	ring_switch_rounds(&sw, 2);
	ck_assert_uint_eq(ring_switch_take(&sw, 0, out), FANIN_PAYLOAD_OFFSET + 4);
	ck_assert_uint_eq(fanin_wire_validate(out, FANIN_PAYLOAD_OFFSET + 4), FANIN_REASON_NONE);
}
END_TEST

static size_t
make_join(uint32_t id, uint8_t *frame)
{
	const struct fanin_join_body body = { .nonce = 4711, .size = HOSTS, .mtu = 1500 };

	return host_packet(&sw, 0, FANIN_TYPE_JOIN, id, 0, &body, sizeof(body),
			   (struct fanin_headers *)frame);
}

/*
 * The nonce shows whose JOIN it is; the switch does not tell its own key to a sender that can't
 * prove that it has it.
 */
START_TEST(hosts_that_join_without_a_valid_tag_are_told)
{
	uint8_t frame[4096];
	size_t len = make_join(job->params.id, frame);

	ring_switch_enqueue_raw(&sw, 0, frame, len);
	ring_switch_rounds(&sw, 2);
	expect_refusal(0, FANIN_REASON_TAG);
	ck_assert_uint_eq(got->fanin.members, 4711);
	ck_assert_uint_eq(got->fanin.key, job->params.keys.up);

	/* Another secret shows first in the key. */
	len = make_join(job->params.id, frame);
	((struct fanin_headers *)frame)->fanin.key ^= 1;
	len = seal_with(RING_SWITCH_KEY + 1, FANIN_TAG_UP, 0, frame, len);
	ring_switch_enqueue_raw(&sw, 0, frame, len);
	ring_switch_rounds(&sw, 2);
	expect_refusal(0, FANIN_REASON_KEY);

	/* The key of the other direction is in each result. */
	len = make_join(job->params.id, frame);
	((struct fanin_headers *)frame)->fanin.key = job->params.keys.down;
	ring_switch_enqueue_raw(&sw, 0, frame, len);
	ring_switch_rounds(&sw, 2);
	/* The frame as on the link. */
	sw.tagger = (fanin_tagger_destroy(sw.tagger), NULL);
	expect_refusal(0, FANIN_REASON_KEY);
}
END_TEST

/* The answer must not have the buffer's former content. */
START_TEST(a_join_without_a_body_is_told_nothing)
{
	uint8_t frame[4096];
	struct fanin_headers *headers = (struct fanin_headers *)frame;
	size_t len;

	memset(frame, 0x55, sizeof(frame));
	for (int i = 0; i < 64; i++)
		ring_switch_enqueue_raw(&sw, 3, frame, 1000);
	ring_switch_rounds(&sw, 4);
	len = host_packet(&sw, 3, FANIN_TYPE_JOIN, job->params.id, 0, NULL, 0, headers);
	headers->fanin.flags = FANIN_FLAG_TAGGED;
	for (int i = 0; i < 64; i++) {
		ring_switch_enqueue_raw(&sw, 3, frame, len);
		ring_switch_rounds(&sw, 2);
		if (ring_switch_take(&sw, 3, out) != 0 && got->fanin.type == FANIN_TYPE_REFUSED)
			ck_assert_uint_eq(got->fanin.members, 0);
	}
	for (uint16_t p = 0; p < sw.n_ports; p++) {
		while (rte_ring_count(sw.tx[p]) != 0)
			ring_switch_take(&sw, p, out);
	}
}
END_TEST

START_TEST(a_job_without_tags_refuses_them)
{
	struct fanin_tagger *tagger = sw.tagger;
	struct job *plain;
	uint8_t frame[4096];
	size_t len;

	sw.tagger = NULL;
	plain = ring_switch_job(&sw, HOSTS, 16);
	len = make_join(plain->params.id, frame);
	len = seal_with(RING_SWITCH_KEY, FANIN_TAG_UP, 0, frame, len);
	ring_switch_put(&sw, 0, frame, len);
	expect_refusal(0, FANIN_REASON_TAG);
	ck_assert_uint_eq(got->fanin.members, 4711);
	/* Both kinds of jobs run at the same time. */
	len = host_join_all(&sw, plain, HOSTS, 9);
	for (unsigned int h = 0; h < HOSTS; h++)
		host_contribute(&sw, plain, h, (uint32_t)len, 0, false);
	while (ring_switch_take(&sw, 0, out) != 0 && got->fanin.type != FANIN_TYPE_RESULT)
		;
	host_result_check(plain, HOSTS, 0, out, FANIN_PAYLOAD_OFFSET + RING_SWITCH_COUNT * 4);
	while (ring_switch_take(&sw, 1, out) != 0)
		;
	sw.tagger = tagger;
	for (unsigned int h = 0; h < HOSTS; h++)
		host_contribute(&sw, job, h, epoch, 0, false);
	host_result_check(job, HOSTS, 0, out, ring_switch_take(&sw, 0, out));
}
END_TEST

/*
 * Before a job is created and after it was destroyed, hosts get the same answers as without tags.
 */
START_TEST(a_job_that_is_not_there_is_unknown)
{
	uint8_t frame[4096];
	size_t len = make_join(777, frame);

	len = seal_with(RING_SWITCH_KEY, FANIN_TAG_UP, 0, frame, len);
	ring_switch_enqueue_raw(&sw, 0, frame, len);
	ring_switch_rounds(&sw, 2);
	expect_refusal(0, FANIN_REASON_JOB);
	len = host_contribution(&sw, job, 0, epoch, 0, false, frame);
	((struct fanin_headers *)frame)->fanin.job = 777;
	len = seal_with(RING_SWITCH_KEY, FANIN_TAG_UP, sw.pipeline->instance, frame, len);
	ring_switch_enqueue_raw(&sw, 0, frame, len);
	ring_switch_rounds(&sw, 2);
	expect_refusal(0, FANIN_REASON_JOB);
}
END_TEST

/* A packet to another switch's address or MAC is an ordinary frame, whatever its content. */
START_TEST(packets_of_other_switches_pass)
{
	uint8_t frame[4096];
	struct fanin_headers *headers = (struct fanin_headers *)frame;
	const size_t len = forged_contribution(frame);

	host_mac(1, headers->eth.dst);
	ring_switch_enqueue_raw(&sw, 0, frame, len);
	ring_switch_rounds(&sw, 2);
	ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_TAG), 0);
	sw.tagger = (fanin_tagger_destroy(sw.tagger), NULL);
	ck_assert_uint_eq(ring_switch_take(&sw, 1, out), len);
	ck_assert_mem_eq(out, frame, len);
}
END_TEST

START_TEST(the_last_job_with_tags_takes_them_along)
{
	ck_assert(tags_in_use(sw.pipeline));
	rte_rcu_qsbr_thread_offline(sw.pipeline->qsbr, 0);
	ck_assert_int_eq(job_destroy(sw.pipeline, job->params.id), 0);
	rte_rcu_qsbr_thread_online(sw.pipeline->qsbr, 0);
	ck_assert(!tags_in_use(sw.pipeline));
}
END_TEST

Suite *
suite_tagged_jobs(void)
{
	Suite *suite = suite_create("tagged_jobs");
	TCase *tags = tcase_create("tags");

	tcase_add_checked_fixture(tags, setup, teardown);
	tcase_add_loop_test(tags, forged_contributions_change_no_sum, 0, FORGERIES);
	tcase_add_test(tags, a_packet_delivered_again_is_a_duplicate);
	tcase_add_test(tags, frames_keep_their_padding_and_lose_their_tag);
	tcase_add_test(tags, hosts_that_join_without_a_valid_tag_are_told);
	tcase_add_test(tags, a_join_without_a_body_is_told_nothing);
	tcase_add_test(tags, a_job_without_tags_refuses_them);
	tcase_add_test(tags, a_job_that_is_not_there_is_unknown);
	tcase_add_test(tags, packets_of_other_switches_pass);
	tcase_add_test(tags, the_last_job_with_tags_takes_them_along);
	suite_add_tcase(suite, tags);
	return suite;
}
