/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Jobs whose blocks have leaders, on a real pipeline: which jobs a switch accepts, and data on its
 * way from two hosts to a leader behind spines.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include <check.h>

#include "protocols/canary/switch/canary.h"
#include "tests/unit/leaf_rig.h"
#include "tests/unit/suites.h"

#define RANKS 6
#define LEADER "10.77.0.9" /* of block 5, behind both spines */
#define LINKS (UINT64_C(1) << SPINE_PORT | UINT64_C(1) << (SPINE_PORT + 1))

static struct job *job;
static uint64_t clock_ns;
static char error[PIPELINE_ERROR_LEN];

static uint64_t
clock_read(void *user)
{
	return *(uint64_t *)user;
}

static struct job_spec
usual_spec(void)
{
	return (struct job_spec){
		.key = RING_SWITCH_KEY,
		.handler = "canary",
		.n_members = 2,
		.n_ranks = RANKS,
		.links = LINKS,
		.slots = 16,
		.members = { { .port = 0, .ip_be = host_ip_be(0), .ranks = { { 1 } } },
			     { .port = 1, .ip_be = host_ip_be(1), .ranks = { { 2 } } } },
	};
}

static int
create(struct job_spec *spec)
{
	const char *code;

	error[0] = '\0';
	return job_create(leaf.pipeline, spec, &job, &code, error);
}

static void
setup(void)
{
	leaf_open();
	leaf_hears_all();
	leaf.pipeline->jobs->shared_mbufs = 64;
	leaf.pipeline->jobs->max_jobs = 8;
	clock_ns = UINT64_C(1000000000000);
	leaf.pipeline->clock = clock_read;
	leaf.pipeline->clock_user = &clock_ns;
}

static void
expect_refused(struct job_spec spec, const char *words)
{
	ck_assert_int_eq(create(&spec), -EINVAL);
	ck_assert_msg(strstr(error, words) != NULL, "found \"%s\", expected \"%s\"", error, words);
}

START_TEST(jobs_with_unsuitable_arguments_are_refused)
{
	struct job_spec spec = usual_spec();

	ck_assert_msg(create(&spec) == 0, "%s", error);
	ck_assert_uint_eq(job->params.ports, 3 | LINKS);
	ck_assert_uint_eq(job->params.links, LINKS);
	ck_assert_uint_eq(job->params.port_ranks[0], 1);
	ck_assert_uint_eq(job->params.port_ranks[1], 2);
	ck_assert_uint_eq(job->params.port_ranks[SPINE_PORT], 0);
	/* A spine has no hosts, a single switch no links. */
	spec = usual_spec();
	spec.n_members = 0;
	ck_assert_msg(create(&spec) == 0, "%s", error);
	ck_assert_uint_eq(job->params.children, 0);
	ck_assert_uint_eq(job->params.ports, LINKS);
	spec = usual_spec();
	spec.links = 0;
	ck_assert_msg(create(&spec) == 0, "%s", error);
	spec = usual_spec();
	spec.links = 0;
	spec.n_members = 0;
	expect_refused(spec, "found 0 members");
	/* Ranks are counted modulo the size, and places by twice the window. */
	spec = usual_spec();
	spec.n_members = 0;
	spec.n_ranks = 0;
	expect_refused(spec, "links and no size");
	spec = usual_spec();
	spec.slots = 0;
	expect_refused(spec, "links and no slots");
	spec = usual_spec();
	spec.handler = "single";
	expect_refused(spec, "found links for a job of \"single\"");
	spec = usual_spec();
	spec.has_parent = true;
	spec.parent.ip_be = inet_addr("10.77.9.9");
	expect_refused(spec, "which has no tree");
	spec = usual_spec();
	spec.n_ranks = 65;
	expect_refused(spec, "at most 64 ranks");
	spec = usual_spec();
	spec.wide = true;
	expect_refused(spec, "\"native\"");
	spec = usual_spec();
	spec.members[1].port = 0;
	expect_refused(spec, "found member 1");
	spec = usual_spec();
	spec.members[1].port = SPINE_PORT;
	expect_refused(spec, "found member 1");
	spec = usual_spec();
	spec.members[1].ranks.words[0] = 6;
	expect_refused(spec, "found member 1");
	spec = usual_spec();
	spec.members[1].ip_be = inet_addr("10.77.0.1");
	expect_refused(spec, "found member 1 with the address 10.77.0.1");
	/* A switch without a subnet has no hosts, but may lie between others. */
	leaf.pipeline->subnet_mask_be = 0;
	expect_refused(usual_spec(), "found member 0 with the address 10.0.0.1");
	spec = usual_spec();
	spec.n_members = 0;
	ck_assert_msg(create(&spec) == 0, "%s", error);
	leaf.pipeline->subnet_mask_be = htonl(0xffffff00);
}
END_TEST

/* A host's data of block 5. */
static size_t
reduce(unsigned int h, uint8_t *frame)
{
	const size_t len = host_contribution(&leaf, job, h, 5, 5, false, frame);
	struct fanin_headers *headers = (struct fanin_headers *)frame;

	headers->fanin.type = FANIN_TYPE_REDUCE;
	headers->fanin.members = UINT64_C(1) << h;
	headers->ip.dst_be = inet_addr(LEADER);
	leaf_set_checksum(frame);
	return len;
}

START_TEST(data_meets_on_its_way_and_the_result_comes_back)
{
	uint8_t frame[4096], second[4096];
	const struct fanin_headers *sum = (const struct fanin_headers *)leaf_out;
	struct fanin_headers *headers = (struct fanin_headers *)frame;
	struct job_spec spec = usual_spec();
	uint16_t spine = SPINE_PORT;
	size_t len;

	ck_assert_msg(create(&spec) == 0, "%s", error);
	len = reduce(0, frame);
	ring_switch_put(&leaf, 0, frame, len);
	leaf_expect_silence();
	ring_switch_put(&leaf, 1, second, reduce(1, second));
	if (ring_switch_take(&leaf, spine, leaf_out) == 0)
		ck_assert_uint_eq(ring_switch_take(&leaf, ++spine, leaf_out), len);
	ck_assert_uint_eq(sum->fanin.type, FANIN_TYPE_REDUCE);
	ck_assert_uint_eq(sum->fanin.members, 3);
	ck_assert_uint_eq(sum->fanin.contributions, 2);
	ck_assert_uint_eq(sum->ip.ttl, 63);
	for (uint32_t i = 0; i < RING_SWITCH_COUNT; i++) {
		const size_t at = FANIN_PAYLOAD_OFFSET + i * sizeof(uint32_t);
		uint32_t found, first, other;

		memcpy(&found, leaf_out + at, sizeof(found));
		memcpy(&first, frame + at, sizeof(first));
		memcpy(&other, second + at, sizeof(other));
		ck_assert_uint_eq(found, first + other);
	}
	leaf_expect_silence();
	/* Comes by the other spine, to the job's group. */
	headers->fanin.type = FANIN_TYPE_RESULT;
	headers->fanin.key = job->params.keys.down;
	headers->ip.dst_be = job->group_be;
	leaf_set_checksum(frame);
	ring_switch_put(&leaf, spine ^ 1, frame, len);
	for (uint16_t port = 0; port < 2; port++) {
		ck_assert_uint_eq(ring_switch_take(&leaf, port, leaf_out), len);
		ck_assert_uint_eq(sum->fanin.type, FANIN_TYPE_RESULT);
		ck_assert_uint_eq(sum->ip.src_be, leaf.pipeline->ip_be);
		ck_assert_mem_eq(leaf_out + FANIN_PAYLOAD_OFFSET, frame + FANIN_PAYLOAD_OFFSET,
				 len - FANIN_PAYLOAD_OFFSET);
	}
	leaf_expect_silence();
}
END_TEST

/* Where the blocks of a job may be, as a set. */
static uint64_t
places_of(const struct job *of)
{
	uint64_t places = 0;

	for (uint32_t i = 0; i < 64; i++) {
		for (uint32_t block = 0; block < 1000; block++) {
			if (of->pool->slots[i] ==
			    of->params.slots
				    .by_index[fanin_slot_index(&of->params.slots, block * 977)])
				places |= UINT64_C(1) << i;
		}
	}
	return places;
}

/* The table has 64 places, and a job needs 16. */
START_TEST(each_job_keeps_to_a_part_of_the_table)
{
	struct job *jobs[8];
	uint64_t all = 0;

	for (unsigned int n = 0; n < 8; n++) {
		struct job_spec spec = usual_spec();

		ck_assert_msg(create(&spec) == 0, "%s", error);
		jobs[n] = job;
		all = 0;
		for (unsigned int i = 0; i <= n; i++) {
			const uint64_t places = places_of(jobs[i]);

			ck_assert_uint_eq(all & places, 0);
			ck_assert_int_eq(__builtin_popcountll(places), n < 4 ? 16 : 8);
			all |= places;
		}
	}
	ck_assert_uint_eq(all, UINT64_MAX);
	/* Parts become larger again as the last of them are given back, and each is taken once. */
	rte_rcu_qsbr_thread_offline(leaf.pipeline->qsbr, 0);
	for (unsigned int n = 7; n >= 4; n--)
		ck_assert_int_eq(job_destroy(leaf.pipeline, jobs[n]->params.id), 0);
	ck_assert_int_eq(__builtin_popcountll(places_of(jobs[0])), 16);
	ck_assert_int_eq(job_destroy(leaf.pipeline, jobs[1]->params.id), 0);
	rte_rcu_qsbr_thread_online(leaf.pipeline->qsbr, 0);
	all = places_of(jobs[0]) | places_of(jobs[2]) | places_of(jobs[3]);
	{
		struct job_spec spec = usual_spec();

		ck_assert_msg(create(&spec) == 0, "%s", error);
	}
	ck_assert_uint_eq(places_of(job), ~all);
}
END_TEST

/* Slots that hold blocks of a job, wherever they are. */
static unsigned int
slots_with(const struct job *of)
{
	unsigned int n = 0;

	for (uint32_t i = 0; i <= of->pool->mask; i++)
		n += ((const struct fanin_slot_tag *)of->pool->slots[i])->job == of->params.id;
	return n;
}

/* Neither packets nor timers find these slots, and another job has their places. */
START_TEST(slots_left_behind_by_a_moved_part_are_given_back)
{
	struct job_spec spec = usual_spec();
	const struct job *moved;
	uint64_t places;
	uint8_t frame[4096];

	ck_assert_msg(create(&spec) == 0, "%s", error);
	spec = usual_spec();
	ck_assert_msg(create(&spec) == 0, "%s", error);
	moved = job;
	places = places_of(moved);
	ring_switch_put(&leaf, 0, frame, reduce(0, frame));
	leaf_expect_silence();
	ck_assert_uint_eq(slots_with(moved), 1);
	job_slots_sweep(leaf.pipeline->jobs);
	ck_assert_uint_eq(slots_with(moved), 1);
	spec = usual_spec();
	ck_assert_msg(create(&spec) == 0, "%s", error);
	ck_assert_uint_eq(places_of(moved) & places, 0);
	job_slots_sweep(leaf.pipeline->jobs);
	ck_assert_uint_eq(slots_with(moved), 0);
	ck_assert_uint_eq(((const struct canary_state *)moved->state)->used, 0);
}
END_TEST

START_TEST(the_timer_sends_what_there_is)
{
	uint8_t frame[4096];
	struct job_spec spec = usual_spec();
	uint16_t spine = SPINE_PORT;

	ck_assert_msg(create(&spec) == 0, "%s", error);
	ring_switch_put(&leaf, 0, frame, reduce(0, frame));
	leaf_expect_silence();
	clock_ns += 20000;
	ring_switch_rounds(&leaf, 2);
	if (ring_switch_take(&leaf, spine, leaf_out) == 0)
		ck_assert_uint_ne(ring_switch_take(&leaf, ++spine, leaf_out), 0);
	ck_assert_uint_eq(((const struct fanin_headers *)leaf_out)->fanin.members, 1);
	leaf_expect_silence();
}
END_TEST

START_TEST(hosts_of_a_library_that_cannot_lead_are_told)
{
	uint8_t frame[4096] __attribute__((aligned(8)));
	struct fanin_headers *answer = (struct fanin_headers *)frame;
	struct fanin_join_ack_body ack;
	struct job_spec spec = usual_spec();

	ck_assert_msg(create(&spec) == 0, "%s", error);
	ck_assert_ptr_nonnull(host_sends_join(&leaf, 0, job->params.id, 1, RANKS, answer));
	ck_assert_uint_eq(answer->fanin.type, FANIN_TYPE_JOIN_ACK);
	memcpy(&ack, answer + 1, sizeof(ack));
	ck_assert_uint_ne(ack.flags & FANIN_JOB_LEADERS, 0);
	leaf_drain();
}
END_TEST

START_TEST(hosts_that_join_change_nothing_for_blocks_on_their_way)
{
	uint8_t frame[4096];
	struct job_spec spec = usual_spec();
	uint32_t epoch;
	size_t len;

	ck_assert_msg(create(&spec) == 0, "%s", error);
	len = reduce(0, frame);
	epoch = job_epoch(job);
	ring_switch_put(&leaf, 0, frame, len);
	for (unsigned int h = 0; h < 2; h++)
		ck_assert_ptr_nonnull(host_sends_join(&leaf, h, job->params.id, h + 1, RANKS,
						      (struct fanin_headers *)leaf_out));
	leaf_drain();
	ck_assert_uint_ne(job->epoch, 0);
	ck_assert_uint_eq(job_epoch(job), epoch);
	/* The second host's data meets the first one's. */
	ring_switch_put(&leaf, 1, frame, reduce(1, frame));
	if (ring_switch_take(&leaf, SPINE_PORT, leaf_out) == 0)
		ck_assert_uint_ne(ring_switch_take(&leaf, SPINE_PORT + 1, leaf_out), 0);
	ck_assert_uint_eq(((const struct fanin_headers *)leaf_out)->fanin.members, 3);
	leaf_expect_silence();
}
END_TEST

START_TEST(nobody_joins_where_the_job_has_no_hosts)
{
	uint8_t frame[4096];
	struct fanin_headers *headers = (struct fanin_headers *)frame;
	struct job_spec spec = usual_spec();
	const struct fanin_join_body join = { .nonce = 1, .size = RANKS, .mtu = 1500 };
	size_t len;

	spec.n_members = 0;
	ck_assert_msg(create(&spec) == 0, "%s", error);
	for (uint16_t rank = 0; rank < RANKS; rank++)
		ck_assert_uint_eq(job_child_of(job, rank), JOB_NO_CHILD);
	len = host_packet(&leaf, 0, FANIN_TYPE_JOIN, job->params.id, 0, &join, sizeof(join),
			  headers);
	ring_switch_put(&leaf, 0, frame, len);
	ck_assert_uint_ne(ring_switch_take(&leaf, 0, leaf_out), 0);
	headers = (struct fanin_headers *)leaf_out;
	ck_assert_uint_eq(headers->fanin.type, FANIN_TYPE_REFUSED);
	ck_assert_uint_eq(headers->fanin.count, FANIN_REASON_RANK);
	leaf_expect_silence();
}
END_TEST

Suite *
suite_canary_jobs(void)
{
	Suite *suite = suite_create("canary_jobs");
	TCase *tcase = tcase_create("pipeline");

	tcase_add_checked_fixture(tcase, setup, leaf_close);
	tcase_add_test(tcase, jobs_with_unsuitable_arguments_are_refused);
	tcase_add_test(tcase, data_meets_on_its_way_and_the_result_comes_back);
	tcase_add_test(tcase, the_timer_sends_what_there_is);
	tcase_add_test(tcase, each_job_keeps_to_a_part_of_the_table);
	tcase_add_test(tcase, slots_left_behind_by_a_moved_part_are_given_back);
	tcase_add_test(tcase, hosts_that_join_change_nothing_for_blocks_on_their_way);
	tcase_add_test(tcase, nobody_joins_where_the_job_has_no_hosts);
	tcase_add_test(tcase, hosts_of_a_library_that_cannot_lead_are_told);
	suite_add_tcase(suite, tcase);
	return suite;
}
