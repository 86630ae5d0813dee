/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Jobs in the real pipeline: admission, runs, which senders are accepted, and sums that pass
 * through it.
 */
#include <arpa/inet.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "pipeline/demux.h"
#include "pipeline/mismatch.h"
#include "pipeline/parent.h"
#include "tests/unit/ring_switch.h"
#include "tests/unit/suites.h"

static struct ring_switch sw;
static uint8_t buffer[4096];
static struct fanin_headers *const answer = (struct fanin_headers *)buffer;

static void
setup(void)
{
	ring_switch_eal();
	ring_switch_open(&sw, 4, 1, NULL);
}

static void
setup_two_workers(void)
{
	ring_switch_eal();
	ring_switch_open(&sw, 4, 2, NULL);
}

static void
setup_faults(void)
{
	const struct pipeline_faults faults = {
		.drop = 0.1, .duplicate = 0.1, .reorder = 0.1, .seed = 7
	};

	ring_switch_eal();
	ring_switch_open(&sw, 4, 1, &faults);
}

static void
teardown(void)
{
	ring_switch_close(&sw);
}

static const struct fanin_join_ack_body *
ack_body(void)
{
	return (const struct fanin_join_ack_body *)(answer + 1);
}

/* Returns the ranks that have joined, as a bitmap. */
static uint64_t
joined_in_ack(void)
{
	return ((const struct join_ack_words *)(answer + 1))->joined;
}

static void
leave(const struct job *job, unsigned int h, uint32_t epoch)
{
	uint8_t frame[4096];
	size_t len = host_packet(&sw, h, FANIN_TYPE_LEAVE, job->params.id, epoch, NULL, 0,
				 (struct fanin_headers *)frame);

	ring_switch_put(&sw, (uint16_t)h, frame, len);
	ck_assert_uint_gt(ring_switch_take(&sw, (uint16_t)h, buffer), 0);
	ck_assert_uint_eq(answer->fanin.type, FANIN_TYPE_LEAVE_ACK);
}

START_TEST(run_begins_when_all_have_joined)
{
	struct job *job = ring_switch_job(&sw, 3, 0);

	ck_assert_ptr_nonnull(host_sends_join(&sw, 2, job->params.id, 1, 3, answer));
	ck_assert_uint_eq(ack_body()->state, FANIN_JOIN_WAITING);
	ck_assert_uint_eq(joined_in_ack(), 4);
	ck_assert_uint_eq(ack_body()->window, job->params.window);
	ck_assert_str_eq(ack_body()->handler, "single");
	ck_assert_ptr_nonnull(host_sends_join(&sw, 0, job->params.id, 2, 3, answer));
	ck_assert_uint_eq(joined_in_ack(), 5);
	ck_assert_ptr_nonnull(host_sends_join(&sw, 1, job->params.id, 3, 3, answer));
	ck_assert_uint_eq(ack_body()->state, FANIN_JOIN_ACTIVE);
	ck_assert_uint_ne(answer->fanin.epoch, 0);
}
END_TEST

START_TEST(sum_reaches_every_member_and_no_one_else)
{
	struct job *job = ring_switch_job(&sw, 3, 0);
	uint32_t epoch = host_join_all(&sw, job, 3, 1);

	for (uint32_t block = 0; block < 200; block++) {
		for (unsigned int h = 0; h < 3; h++)
			host_contribute(&sw, job, (h + block) % 3, epoch, block, false);
		for (uint16_t p = 0; p < 3; p++)
			host_result_check(job, 3, block, buffer, ring_switch_take(&sw, p, buffer));
		ck_assert_uint_eq(ring_switch_take(&sw, 3, buffer), 0);
	}
}
END_TEST

/*
 * Ports of different MTU have pools of their own, of packets of different size, and the pipeline
 * uses one of these pools.
 */
START_TEST(doubled_packets_are_whole_whatever_the_pipelines_own_pool_holds)
{
	const struct pipeline_faults faults = { .duplicate = 1, .seed = 7 };
	struct rte_mempool *small = rte_pktmbuf_pool_create("small", 63, 0, PIPELINE_MBUF_PRIV_SIZE,
							    RTE_PKTMBUF_HEADROOM + 128,
							    SOCKET_ID_ANY);
	struct job *job = ring_switch_job(&sw, 2, 0);
	uint32_t epoch = host_join_all(&sw, job, 2, 1);
	struct worker *worker = sw.pipeline->workers[0];

	ck_assert_ptr_nonnull(small);
	sw.pipeline->pool = small;
	faults_init(&worker->faults, &faults, 0);
	host_contribute(&sw, job, 0, epoch, 0, false);
	host_contribute(&sw, job, 1, epoch, 0, false);
	for (uint16_t p = 0; p < 2; p++)
		host_result_check(job, 2, 0, buffer, ring_switch_take(&sw, p, buffer));
	ck_assert_uint_eq(worker->counters.fault_duplicates, 2 + 2);
	ck_assert_uint_eq(worker->n_retries, 0);
	ck_assert_uint_eq(rte_mempool_avail_count(small), 63);
	sw.pipeline->pool = sw.pool;
}
END_TEST

START_TEST(a_packet_that_fits_no_second_time_is_not_tried_forever)
{
	struct job *job = ring_switch_job(&sw, 2, 0);
	uint32_t epoch = host_join_all(&sw, job, 2, 1);
	struct worker *worker = sw.pipeline->workers[0];
	struct rte_mbuf *mbuf = rte_pktmbuf_alloc(sw.pool);
	uint8_t frame[4096];
	size_t len = host_contribution(&sw, job, 0, epoch, 0, false, frame);

	/* The first segment of the frame ends inside of the payload. */
	memcpy(rte_pktmbuf_append(mbuf, FANIN_PAYLOAD_OFFSET + 8), frame, FANIN_PAYLOAD_OFFSET + 8);
	mbuf->next = rte_pktmbuf_alloc(sw.pool);
	mbuf->nb_segs = 2;
	memcpy(rte_pktmbuf_append(mbuf, (uint16_t)(len - FANIN_PAYLOAD_OFFSET - 8)),
	       frame + FANIN_PAYLOAD_OFFSET + 8, len - FANIN_PAYLOAD_OFFSET - 8);
	mbuf->port = sw.pipeline->ports[0].ethdev;
	worker_fanin(worker, mbuf);
	ring_switch_rounds(&sw, 2);
	ck_assert_uint_eq(worker->n_retries, 0);
	ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_FRAME_TRUNCATED), 1);
}
END_TEST

/* Returns how many frames of a type a port has sent. */
static unsigned int
count_of(uint16_t port, enum fanin_type type)
{
	unsigned int n = 0;

	while (ring_switch_take(&sw, port, buffer) != 0)
		n += answer->fanin.type == type;
	return n;
}

START_TEST(hosts_behind_one_port_get_each_result_once)
{
	struct job *job;
	uint32_t epoch;

	/* Hosts 0 to 2 behind port 0, host 3 behind port 1. */
	sw.hosts_per_port = 3;
	job = ring_switch_job(&sw, 4, 0);
	epoch = host_join_all(&sw, job, 4, 1);
	for (uint32_t block = 0; block < 200; block++) {
		for (unsigned int h = 0; h < 4; h++)
			host_contribute(&sw, job, (h + block) % 4, epoch, block, false);
		for (uint16_t p = 0; p < 2; p++) {
			host_result_check(job, 4, block, buffer, ring_switch_take(&sw, p, buffer));
			ck_assert_uint_eq(ring_switch_take(&sw, p, buffer), 0);
		}
	}
	/* A repeated result is for one of them; the others see it, too. */
	host_contribute(&sw, job, 1, epoch, 199, true);
	ck_assert_uint_eq(count_of(0, FANIN_TYPE_RESULT), 1);
	ck_assert_uint_eq(count_of(1, FANIN_TYPE_RESULT), 0);
	/* Children of a run that is over are notified together. */
	worker_call_children(sw.pipeline->workers[0], job, 0xf);
	ring_switch_rounds(&sw, 1);
	ck_assert_uint_eq(count_of(0, FANIN_TYPE_REFUSED), 1);
	ck_assert_uint_eq(count_of(1, FANIN_TYPE_REFUSED), 1);
}
END_TEST

START_TEST(restarted_member_waits_until_the_old_run_is_left)
{
	struct job *job = ring_switch_job(&sw, 2, 0);
	uint32_t epoch = host_join_all(&sw, job, 2, 1);

	ck_assert_ptr_nonnull(host_sends_join(&sw, 0, job->params.id, 77, 2, answer));
	ck_assert_uint_eq(answer->fanin.type, FANIN_TYPE_REFUSED);
	ck_assert_uint_eq(answer->fanin.count, FANIN_REASON_MEMBER_BUSY);
	leave(job, 1, epoch);
	ck_assert_uint_ne(host_join_all(&sw, job, 2, 77), epoch);
	/* Packets of the old run don't reach the new one. */
	host_contribute(&sw, job, 0, epoch, 0, false);
	ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_EPOCH), 1);
}
END_TEST

/*
 * _i: the handler. Slots of runs before the wrap are reused by runs after it, and 0 still means no
 * run.
 */
START_TEST(epochs_wrap)
{
	static const char *const handlers[] = { "single", "multi", "tree" };
	struct job *job = ring_switch_job_of(&sw, handlers[_i], 2, 0);
	uint32_t before = 0;
	uint64_t stale = 0;

	sw.pipeline->jobs->next_epoch = UINT32_MAX - 2;
	for (unsigned int run = 0; run < 6; run++) {
		uint32_t epoch = host_join_all(&sw, job, 2, 1 + 2 * run);

		ck_assert_uint_ne(epoch, 0);
		ck_assert_uint_ne(epoch, before);
		ck_assert_int_eq(epoch<10, run> 2);
		for (uint32_t block = 0; block < 4u * job->params.window; block++) {
			host_contribute(&sw, job, block % 2, epoch, block, false);
			/* A late packet of the run before. */
			if (run > 0 && block < 4)
				host_contribute(&sw, job, (block + 1) % 2, before, block, false);
			host_contribute(&sw, job, (block + 1) % 2, epoch, block, false);
			for (uint16_t p = 0; p < 2; p++) {
				size_t len = ring_switch_take(&sw, p, buffer);

				while (len != 0 && answer->fanin.type == FANIN_TYPE_REFUSED)
					len = ring_switch_take(&sw, p, buffer);
				host_result_check(job, 2, block, buffer, len);
			}
		}
		stale += run > 0 ? 4 : 0;
		ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_EPOCH), stale);
		leave(job, 0, epoch);
		leave(job, 1, epoch);
		before = epoch;
	}
}
END_TEST

START_TEST(late_leave_of_an_old_run_changes_nothing)
{
	struct job *job = ring_switch_job(&sw, 2, 0);
	uint32_t first = host_join_all(&sw, job, 2, 1);
	uint32_t second;

	leave(job, 0, first);
	leave(job, 1, first);
	second = host_join_all(&sw, job, 2, 10);
	leave(job, 0, first);
	ck_assert_uint_eq(job->joined, 3);
	host_contribute(&sw, job, 0, second, 0, false);
	host_contribute(&sw, job, 1, second, 0, false);
	host_result_check(job, 2, 0, buffer, ring_switch_take(&sw, 0, buffer));
}
END_TEST

START_TEST(late_join_of_a_process_that_is_gone_changes_nothing)
{
	struct job *job = ring_switch_job(&sw, 2, 0);
	uint32_t first = host_join_all(&sw, job, 2, 1);
	uint32_t second;

	leave(job, 0, first);
	leave(job, 1, first);
	/* Without a run: a late JOIN must not take rank 1's place. */
	ck_assert_ptr_nonnull(host_join_with(&sw, 1, job->params.id, 2, 0, 2, answer));
	ck_assert_uint_eq(ack_body()->state, FANIN_JOIN_CHALLENGE);
	ck_assert_uint_eq(job->joined, 0);
	second = host_join_all(&sw, job, 2, 10);
	/* In the next run: a late JOIN must not end rank 1's membership, whatever its cookie. */
	for (uint64_t cookie = 0; cookie < 3; cookie++) {
		ck_assert_ptr_nonnull(host_join_with(&sw, 1, job->params.id, 2, cookie, 2, answer));
		ck_assert_uint_eq(ack_body()->state, FANIN_JOIN_CHALLENGE);
	}
	ck_assert_uint_eq(job->joined, 3);
	host_contribute(&sw, job, 0, second, 0, false);
	host_contribute(&sw, job, 1, second, 0, false);
	host_result_check(job, 2, 0, buffer, ring_switch_take(&sw, 1, buffer));
}
END_TEST

START_TEST(cookie_is_good_for_one_process_and_once)
{
	struct job *job = ring_switch_job(&sw, 2, 0);
	uint64_t cookie;

	ck_assert_ptr_nonnull(host_join_with(&sw, 0, job->params.id, 5, 0, 2, answer));
	cookie = ack_body()->cookie;
	ck_assert_uint_ne(cookie, 0);
	ck_assert_ptr_nonnull(host_join_with(&sw, 0, job->params.id, 6, cookie, 2, answer));
	ck_assert_uint_eq(ack_body()->state, FANIN_JOIN_CHALLENGE);
	ck_assert_uint_eq(job->joined, 0);
	ck_assert_ptr_nonnull(host_sends_join(&sw, 0, job->params.id, 5, 2, answer));
	ck_assert_uint_eq(ack_body()->state, FANIN_JOIN_WAITING);
	leave(job, 0, 0);
	ck_assert_ptr_nonnull(host_join_with(&sw, 0, job->params.id, 5, cookie, 2, answer));
	ck_assert_uint_eq(ack_body()->state, FANIN_JOIN_CHALLENGE);
	ck_assert_uint_eq(job->joined, 0);
}
END_TEST

START_TEST(repeated_join_gets_the_same_answer)
{
	struct job *job = ring_switch_job(&sw, 2, 0);
	uint32_t epoch = host_join_all(&sw, job, 2, 5);

	ck_assert_ptr_nonnull(host_sends_join(&sw, 0, job->params.id, 5, 2, answer));
	ck_assert_uint_eq(ack_body()->state, FANIN_JOIN_ACTIVE);
	ck_assert_uint_eq(answer->fanin.epoch, epoch);
}
END_TEST

START_TEST(wrong_size_is_refused_by_name)
{
	struct job *job = ring_switch_job(&sw, 2, 0);

	ck_assert_ptr_nonnull(host_sends_join(&sw, 0, job->params.id, 5, 3, answer));
	ck_assert_uint_eq(answer->fanin.type, FANIN_TYPE_REFUSED);
	ck_assert_uint_eq(answer->fanin.count, FANIN_REASON_SIZE);
	ck_assert_ptr_nonnull(host_sends_join(&sw, 0, job->params.id + 1, 5, 2, answer));
	ck_assert_uint_eq(answer->fanin.count, FANIN_REASON_JOB);
}
END_TEST

/*
 * Sends a manipulated contribution of host 0 through a port, and expects it to be dropped for the
 * reason.
 */
static void
forge(const struct job *job, uint32_t epoch, uint16_t port,
      void (*tamper)(struct fanin_headers *headers), enum fanin_reason reason)
{
	uint64_t before = ring_switch_drops(&sw, reason);
	uint8_t frame[4096];
	size_t len = host_contribution(&sw, job, 0, epoch, 0, false, frame);

	if (tamper != NULL)
		tamper((struct fanin_headers *)frame);
	ring_switch_put(&sw, port, frame, len);
	ck_assert_uint_eq(ring_switch_drops(&sw, reason), before + 1);
	while (ring_switch_take(&sw, port, buffer) != 0)
		ck_assert_uint_eq(answer->fanin.type, FANIN_TYPE_REFUSED);
}

static void
tamper_key(struct fanin_headers *headers)
{
	headers->fanin.key++;
}

/* This key is visible at every port with members. */
static void
tamper_overheard_key(struct fanin_headers *headers)
{
	headers->fanin.key = ring_switch_key(FANIN_TYPE_RESULT);
}

static void
tamper_secret(struct fanin_headers *headers)
{
	headers->fanin.key = RING_SWITCH_KEY;
}

static void
tamper_rank(struct fanin_headers *headers)
{
	headers->fanin.rank = 7;
}

static void
tamper_source(struct fanin_headers *headers)
{
	headers->ip.src_be = host_ip_be(3);
	headers->ip.checksum_be = 0;
	headers->ip.checksum_be = fanin_ip_checksum(&headers->ip);
}

static void
tamper_job(struct fanin_headers *headers)
{
	headers->fanin.job = 4711;
}

static void
tamper_epoch(struct fanin_headers *headers)
{
	headers->fanin.epoch++;
}

static void
tamper_block(struct fanin_headers *headers)
{
	headers->fanin.block = 64;
}

static void
tamper_stale(struct fanin_headers *headers)
{
	headers->fanin.block = UINT32_MAX;
}

static void
tamper_type(struct fanin_headers *headers)
{
	headers->fanin.type = FANIN_TYPE_RESULT;
}

static void
tamper_op(struct fanin_headers *headers)
{
	headers->fanin.dtype = FANIN_WIRE_F32;
	headers->fanin.op = FANIN_WIRE_BXOR;
}

/*
 * Expects a refusal. It has the key of answers if the packet came from a member, and otherwise the
 * packet's own.
 */
static void
expect_refused(uint16_t port, const uint8_t *frame, size_t len, uint64_t key)
{
	ring_switch_put(&sw, port, frame, len);
	ck_assert_uint_ne(ring_switch_take(&sw, port, buffer), 0);
	ck_assert_uint_eq(answer->fanin.type, FANIN_TYPE_REFUSED);
	ck_assert_uint_eq(answer->fanin.key, key);
}

START_TEST(refusals_tell_strangers_no_key)
{
	struct job *job = ring_switch_job(&sw, 2, 16);
	uint32_t epoch = host_join_all(&sw, job, 2, 1);
	const struct fanin_join_body join = { .nonce = 1, .size = 2, .mtu = 1500 };
	uint8_t frame[4096];
	struct fanin_headers *headers = (struct fanin_headers *)frame;
	size_t len = host_contribution(&sw, job, 0, epoch + 1, 0, false, frame);

	expect_refused(0, frame, len, ring_switch_key(FANIN_TYPE_REFUSED));
	headers->fanin.job = 4711;
	expect_refused(0, frame, len, ring_switch_key(FANIN_TYPE_CONTRIBUTION));
	/* JOINs from any port are answered. */
	len = host_packet(&sw, 1, FANIN_TYPE_JOIN, job->params.id, 0, &join, sizeof(join), headers);
	expect_refused(3, frame, len, ring_switch_key(FANIN_TYPE_JOIN));
	headers->fanin.key = 5;
	expect_refused(1, frame, len, 5);
	headers->fanin.key = 0;
	expect_refused(1, frame, len, 0);
}
END_TEST

START_TEST(forged_contributions_are_counted_and_change_nothing)
{
	struct job *job = ring_switch_job(&sw, 2, 16);
	uint32_t epoch = host_join_all(&sw, job, 2, 1);

	forge(job, epoch, 3, NULL, FANIN_REASON_PORT);
	forge(job, epoch, 0, tamper_key, FANIN_REASON_KEY);
	forge(job, epoch, 0, tamper_overheard_key, FANIN_REASON_KEY);
	forge(job, epoch, 0, tamper_secret, FANIN_REASON_KEY);
	forge(job, epoch, 0, tamper_rank, FANIN_REASON_RANK);
	forge(job, epoch, 0, tamper_source, FANIN_REASON_SOURCE);
	forge(job, epoch, 0, tamper_job, FANIN_REASON_JOB);
	forge(job, epoch, 0, tamper_epoch, FANIN_REASON_EPOCH);
	forge(job, epoch, 0, tamper_block, FANIN_REASON_BLOCK_WINDOW);
	forge(job, epoch, 0, tamper_stale, FANIN_REASON_BLOCK_STALE);
	forge(job, epoch, 0, tamper_type, FANIN_REASON_DIRECTION);
	forge(job, epoch, 0, tamper_op, FANIN_REASON_OPERATION);
	host_contribute(&sw, job, 0, epoch, 0, false);
	host_contribute(&sw, job, 1, epoch, 0, false);
	host_result_check(job, 2, 0, buffer, ring_switch_take(&sw, 1, buffer));
}
END_TEST

/* Expects a query to be refused, with one valid frame that has the reason. */
static void
expect_query_refused(const struct job *job, uint32_t epoch, uint32_t block, bool overdue,
		     enum fanin_reason reason)
{
	const uint64_t before = ring_switch_drops(&sw, reason);
	size_t len;

	host_query(&sw, job, 0, epoch, block, 5, overdue);
	ck_assert_uint_eq(ring_switch_drops(&sw, reason), before + 1);
	len = ring_switch_take(&sw, 0, buffer);
	ck_assert_uint_eq(len, FANIN_PAYLOAD_OFFSET);
	ck_assert_uint_eq(fanin_wire_validate(buffer, len), FANIN_REASON_NONE);
	ck_assert_uint_eq(answer->fanin.type, FANIN_TYPE_REFUSED);
	ck_assert_uint_eq(answer->fanin.count, reason);
	ck_assert_uint_eq(answer->fanin.block, block);
	ck_assert_uint_eq(ring_switch_take(&sw, 0, buffer), 0);
}

START_TEST(query_is_refused_where_a_contribution_is)
{
	struct job *job = ring_switch_job(&sw, 2, 16);
	const struct job *other = ring_switch_job(&sw, 2, 16);
	struct job unknown;
	uint32_t epoch;
	uint64_t before;

	expect_query_refused(other, 1, 0, false, FANIN_REASON_NOT_ACTIVE);
	memcpy(&unknown, job, sizeof(unknown));
	unknown.params.id = 4711;
	expect_query_refused(&unknown, 1, 0, true, FANIN_REASON_JOB);
	epoch = host_join_all(&sw, job, 2, 1);
	while (ring_switch_take(&sw, 0, buffer) != 0)
		;
	expect_query_refused(job, epoch + 1, 0, true, FANIN_REASON_EPOCH);
	expect_query_refused(job, epoch - 1, 0, false, FANIN_REASON_EPOCH);
	/* A host that is not a member gets no answer. */
	before = ring_switch_drops(&sw, FANIN_REASON_RANK);
	host_query(&sw, job, 3, epoch, 0, 5, true);
	ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_RANK), before + 1);
	ck_assert_uint_eq(ring_switch_take(&sw, 3, buffer), 0);

	/*
	 * If a slot has gone on to another block, all hosts have the result; a host that only wants
	 * to know is told so.
	 */
	for (uint32_t block = 0; block <= 16; block += 16) {
		for (uint16_t h = 0; h < 2; h++)
			host_contribute(&sw, job, h, epoch, block, false);
		for (uint16_t h = 0; h < 2; h++)
			host_result_check(job, 2, block, buffer, ring_switch_take(&sw, h, buffer));
	}
	expect_query_refused(job, epoch, 0, true, FANIN_REASON_BLOCK_STALE);
	host_query(&sw, job, 0, epoch, 0, 6, false);
	host_take_answer(&sw, 0, 6, answer);
	ck_assert_uint_eq(answer->fanin.count, FANIN_BLOCK_DONE);
}
END_TEST

START_TEST(lost_result_is_repeated_to_the_one_who_asks)
{
	struct job *job = ring_switch_job(&sw, 2, 0);
	uint32_t epoch = host_join_all(&sw, job, 2, 1);

	host_contribute(&sw, job, 0, epoch, 0, false);
	host_query(&sw, job, 0, epoch, 0, 11, false);
	ck_assert_uint_eq(answer_missing(host_take_answer(&sw, 0, 11, answer)), 1 << 1);
	ck_assert_uint_eq(answer->fanin.count, FANIN_BLOCK_OPEN);
	host_contribute(&sw, job, 1, epoch, 0, false);
	ring_switch_take(&sw, 0, buffer);
	ring_switch_take(&sw, 1, buffer);
	/* The answer may have overtaken the result; a host that calls it overdue has lost it. */
	host_query(&sw, job, 1, epoch, 0, 12, false);
	host_take_answer(&sw, 1, 12, answer);
	ck_assert_uint_eq(answer->fanin.count, FANIN_BLOCK_DONE);
	ck_assert_uint_eq(ring_switch_take(&sw, 1, buffer), 0);
	host_query(&sw, job, 1, epoch, 0, 13, true);
	host_result_check(job, 2, 0, buffer, ring_switch_take(&sw, 1, buffer));
	host_take_answer(&sw, 1, 13, answer);
	/* A host that sends its contribution again has lost the result, too. */
	host_contribute(&sw, job, 1, epoch, 0, true);
	host_result_check(job, 2, 0, buffer, ring_switch_take(&sw, 1, buffer));
	ck_assert_uint_eq(ring_switch_take(&sw, 1, buffer), 0);
	ck_assert_uint_eq(ring_switch_take(&sw, 0, buffer), 0);
}
END_TEST

START_TEST(query_sees_the_contributions_before_it_in_a_burst)
{
	struct job *job = ring_switch_job(&sw, 2, 0);
	const uint32_t epoch = host_join_all(&sw, job, 2, 1);
	const struct answer_words *body;
	uint8_t frame[4096];

	for (uint32_t block = 0; block < 3; block++)
		ring_switch_enqueue(&sw, 0, frame,
				    host_contribution(&sw, job, 0, epoch, block, false, frame));
	/* The query follows its own contributions, in one burst. */
	host_query(&sw, job, 0, epoch, 0, 3, false);
	body = host_take_answer(&sw, 0, 3, answer);
	ck_assert_int_eq(answer->fanin.count, FANIN_BLOCK_OPEN);
	ck_assert_uint_eq(answer_missing(body), 1 << 1);
}
END_TEST

START_TEST(jobs_that_do_not_fit_are_refused_with_the_amounts)
{
	struct job_spec spec = { .key = 1, .handler = "single", .slots = 64, .n_members = 1 };
	char error[PIPELINE_ERROR_LEN];
	struct job *job;
	const char *code;

	spec.members[0].ip_be = host_ip_be(0);
	ck_assert_int_eq(job_create(sw.pipeline, &spec, &job, &code, error), -ENOSPC);
	ck_assert_str_eq(code, "no_room");
	ck_assert_ptr_nonnull(strstr(error, "asked for 64 slots, 32 are available"));
	spec.slots = 24;
	ck_assert_int_eq(job_create(sw.pipeline, &spec, &job, &code, error), -EINVAL);
	spec.slots = 0;
	spec.payload_bytes = 1472;
	ck_assert_int_eq(job_create(sw.pipeline, &spec, &job, &code, error), -EINVAL);
	spec.payload_bytes = 0;
	spec.handler = "none";
	ck_assert_int_eq(job_create(sw.pipeline, &spec, &job, &code, error), -EINVAL);
	spec.handler = "single";
	ck_assert_int_eq(job_create(sw.pipeline, &spec, &job, &code, error), 0);
	spec.id = job->params.id;
	ck_assert_int_eq(job_create(sw.pipeline, &spec, &job, &code, error), -EEXIST);
	spec.id = 0;
	ck_assert_int_eq(job_create(sw.pipeline, &spec, &job, &code, error), 0);
	ck_assert_int_eq(job_create(sw.pipeline, &spec, &job, &code, error), -ENOSPC);
	ck_assert_ptr_nonnull(strstr(error, "limits.max_jobs is 2"));
}
END_TEST

/*
 * Ranks at a switch that would sum up ranks which their order never sums up separately; words NULL:
 * the job is accepted.
 */
static const struct {
	uint64_t ranks[2]; /* of each of two members */
	uint16_t n_ranks;
	const char *words;
} orders[] = {
	{ { 0x1, 0x4 }, 4, "found ranks 0, 2 of 4 behind this switch" },
	{ { 0x7, 0x38 }, 6, "found ranks 0-2 of 6 behind member 0" },
	{ { 0x1, 0x6 }, 4, "found ranks 1-2 of 4 behind member 1" },
	{ { 0x4, 0x8 }, 4, NULL },
	{ { 0x8, 0x4 }, 4, NULL },
	{ { 0x10, 0x20 }, 6, NULL },
	{ { 0xf, 0x10 }, 5, NULL },
};

START_TEST(a_reproducible_job_whose_order_would_not_come_out_is_refused)
{
	const bool is_right = orders[_i].words == NULL;
	const uint64_t both = orders[_i].ranks[0] | orders[_i].ranks[1];
	struct job_spec spec = { .key = 1,
				 .handler = "auto",
				 .slots = 4,
				 .n_members = 2,
				 .n_ranks = orders[_i].n_ranks,
				 .reproducible = true,
				 .has_parent = both != (UINT64_C(1) << orders[_i].n_ranks) - 1,
				 .parent = { .port = 2, .ip_be = host_ip_be(2) } };
	char error[PIPELINE_ERROR_LEN];
	struct job *job;
	const char *code;

	for (uint16_t i = 0; i < 2; i++) {
		spec.members[i].port = i;
		spec.members[i].ip_be = host_ip_be(i);
		spec.members[i].ranks = fanin_ranks_of_word(orders[_i].ranks[i]);
	}
	ck_assert_int_eq(job_create(sw.pipeline, &spec, &job, &code, error),
			 is_right ? 0 : -EINVAL);
	if (!is_right) {
		ck_assert_str_eq(code, "invalid");
		ck_assert_msg(strstr(error, orders[_i].words) != NULL, "%s", error);
		/* A job without the option is created, and reduces nothing whose order matters. */
		spec.reproducible = false;
		spec.handler = "tree";
		ck_assert_int_eq(job_create(sw.pipeline, &spec, &job, &code, error), 0);
	}
	ck_assert_int_eq(job->params.has_units, is_right);
}
END_TEST

START_TEST(the_switch_is_no_member_of_its_jobs_and_not_its_own_parent)
{
	struct job_spec spec = { .key = 1, .handler = "single", .n_members = 2 };
	char error[PIPELINE_ERROR_LEN];
	struct job *job;
	const char *code;

	spec.members[0].ip_be = host_ip_be(0);
	spec.members[1].ip_be = sw.pipeline->ip_be;
	ck_assert_int_eq(job_create(sw.pipeline, &spec, &job, &code, error), -EINVAL);
	ck_assert_str_eq(error, "member 1 has the address 10.0.0.254, which is this switch's own");
	spec.members[1].ip_be = host_ip_be(1);
	spec.n_ranks = 3;
	spec.has_parent = true;
	spec.parent.ip_be = sw.pipeline->ip_be;
	ck_assert_int_eq(job_create(sw.pipeline, &spec, &job, &code, error), -EINVAL);
	ck_assert_str_eq(error,
			 "the parent has the address 10.0.0.254, which is this switch's own");
}
END_TEST

/*
 * If a job's packets don't fit into the caches, the job gets slower. An explicit number of slots is
 * kept.
 */
START_TEST(a_job_within_the_machine_gets_fewer_slots_for_larger_packets)
{
	struct job_spec spec = { .key = 1, .handler = "single", .n_members = 2 };
	char error[PIPELINE_ERROR_LEN];
	struct job *job;
	const char *code;

	for (uint16_t p = 0; p < 3; p++) {
		sw.pipeline->ports[p].mtu = 61184;
		sw.pipeline->ports[p].shared = p != 2;
	}
	for (uint16_t i = 0; i < 2; i++)
		spec.members[i].ip_be = host_ip_be(i);
	/* The test's thread is also the worker's. */
	rte_rcu_qsbr_thread_offline(sw.pipeline->qsbr, 0);
	for (unsigned int turn = 0; turn < 4; turn++) {
		/*
		 * Both members are within the machine; the same with smaller packets, or an
		 * explicit number; one member is elsewhere.
		 */
		static const uint32_t expected[] = { 8, 32, 16, 32 };

		spec.members[1].port = turn == 3 ? 2 : 1;
		spec.payload_bytes = turn == 1 ? 8192 : 0;
		spec.slots = turn == 2 ? 16 : 0;
		ck_assert_int_eq(job_create(sw.pipeline, &spec, &job, &code, error), 0);
		ck_assert_uint_eq(job->params.slots.mask + 1, expected[turn]);
		ck_assert_uint_eq(job->params.window, expected[turn] / 2);
		ck_assert_int_eq(job_destroy(sw.pipeline, job->params.id), 0);
	}
	rte_rcu_qsbr_thread_online(sw.pipeline->qsbr, 0);
}
END_TEST

START_TEST(destroyed_job_tells_its_hosts)
{
	struct job *job = ring_switch_job(&sw, 2, 0);
	uint32_t epoch = host_join_all(&sw, job, 2, 1);
	uint8_t frame[4096];
	size_t len = host_contribution(&sw, job, 0, epoch, 0, false, frame);

	host_contribute(&sw, job, 0, epoch, 0, false);
	/* The test's thread is also the worker's: it is quiescent while it destroys. */
	rte_rcu_qsbr_thread_offline(sw.pipeline->qsbr, 0);
	ck_assert_int_eq(job_destroy(sw.pipeline, job->params.id), 0);
	ck_assert_int_eq(job_destroy(sw.pipeline, 1), -ENOENT);
	rte_rcu_qsbr_thread_online(sw.pipeline->qsbr, 0);
	ring_switch_put(&sw, 0, frame, len);
	ck_assert_uint_gt(ring_switch_take(&sw, 0, buffer), 0);
	ck_assert_uint_eq(answer->fanin.type, FANIN_TYPE_REFUSED);
	ck_assert_uint_eq(answer->fanin.count, FANIN_REASON_JOB);
}
END_TEST

/*
 * Makes hosts send each block until they have its result; every host gets every sum, whatever the
 * injector does.
 */
static void
run_blocks(const struct job *job, uint16_t n, uint32_t epoch, uint32_t n_blocks)
{
	for (uint32_t block = 0; block < n_blocks; block++) {
		bool got[4] = { false };
		unsigned int missing = n;

		for (unsigned int attempt = 0; missing != 0; attempt++) {
			ck_assert_uint_lt(attempt, 1000);
			for (uint16_t h = 0; h < n; h++) {
				if (!got[h])
					host_contribute(&sw, job, h, epoch, block, attempt != 0);
			}
			ring_switch_rounds(&sw, FAULTS_MAX_DELAY);
			for (uint16_t h = 0; h < n; h++) {
				size_t len;

				while ((len = ring_switch_take(&sw, h, buffer)) != 0) {
					if (answer->fanin.type != FANIN_TYPE_RESULT ||
					    answer->fanin.block != block)
						continue;
					host_result_check(job, n, block, buffer, len);
					missing -= !got[h];
					got[h] = true;
				}
			}
		}
	}
}

START_TEST(sums_are_exact_under_injected_faults)
{
	struct job *job = ring_switch_job(&sw, 4, 16);
	struct counters sum;
	uint32_t epoch = 0;

	for (unsigned int attempt = 0; epoch == 0; attempt++) {
		ck_assert_uint_lt(attempt, 1000);
		for (uint16_t h = 0; h < 4; h++)
			host_sends_join(&sw, h, job->params.id, 1 + h, 4, answer);
		epoch = job->epoch;
	}
	run_blocks(job, 4, epoch, 500);
	pipeline_counters(sw.pipeline, &sum);
	ck_assert_uint_gt(sum.drops[FANIN_REASON_FAULT_DROP], 0);
	ck_assert_uint_gt(sum.fault_duplicates, 0);
	ck_assert_uint_gt(sum.fault_reorders, 0);
}
END_TEST

START_TEST(slots_are_shared_out_to_the_workers)
{
	struct job *job = ring_switch_job(&sw, 4, 16);
	uint32_t epoch = host_join_all(&sw, job, 4, 1);
	struct counters sum;

	run_blocks(job, 4, epoch, 100);
	pipeline_counters(sw.pipeline, &sum);
	ck_assert_uint_gt(sum.handed_over, 0);
	ck_assert_uint_eq(job->worker_stats[0].stats.results, 50);
	ck_assert_uint_eq(job->worker_stats[1].stats.results, 50);
}
END_TEST

static bool
schedule_is_untouched(const struct job *job)
{
	for (uint32_t i = 0; i <= job->params.slots.mask; i++) {
		if (job->pool->clusters[i] != 0)
			return false;
	}
	return true;
}

/* Otherwise anybody could send all blocks of a job to one worker. */
START_TEST(only_members_packets_touch_the_schedule)
{
	static void (*const tampers[])(struct fanin_headers * headers) = {
		tamper_key, tamper_overheard_key, tamper_rank, tamper_source
	};
	struct job *job = ring_switch_job(&sw, 4, 16);
	uint32_t epoch = host_join_all(&sw, job, 4, 1);
	uint8_t frame[4096];
	struct fanin_headers *headers = (struct fanin_headers *)frame;
	size_t len;

	for (unsigned int i = 0; i <= RTE_DIM(tampers); i++) {
		for (unsigned int known = 0; known < 2; known++) {
			len = host_contribution(&sw, job, 0, epoch, 0, false, frame);
			if (known != 0)
				headers->fanin.type = FANIN_TYPE_KNOWN;
			if (i < RTE_DIM(tampers))
				tampers[i](headers);
			ring_switch_put(&sw, i < RTE_DIM(tampers) ? 0 : 1, frame, len);
			ck_assert_msg(schedule_is_untouched(job), "forgery %u", i);
		}
	}
	host_contribute(&sw, job, 0, epoch, 0, false);
	ck_assert(!schedule_is_untouched(job));
}
END_TEST

/*
 * Two nodes, with the first worker on the second one; neither has memory of its own here, which
 * must not be an error.
 */
START_TEST(blocks_stay_on_the_node_of_their_slots)
{
	const size_t area = 8;
	uint32_t epoch;
	struct job *job;

	sw.pipeline->n_nodes = 2;
	sw.pipeline->nodes[0] = 5;
	sw.pipeline->nodes[1] = 6;
	sw.pipeline->cluster_nodes[0] = 1;
	sw.pipeline->cluster_nodes[1] = 0;
	job = ring_switch_job(&sw, 4, 2 * area);
	epoch = host_join_all(&sw, job, 4, 1);
	for (uint32_t i = 0; i < 2 * area; i++)
		ck_assert_ptr_eq(job->pool->slots[i],
				 job->pool->memory[i % 2] + i / 2 * job->pool->slot_size);
	ck_assert_ptr_ne(job->pool->memory[0], job->pool->memory[1]);
	run_blocks(job, 4, epoch, 100);
	for (uint32_t i = 0; i < 2 * area; i++)
		ck_assert_uint_eq((uint8_t)job->pool->clusters[i], i % 2 == 0 ? 2 : 1);
}
END_TEST

/*
 * _i: a note of an earlier run, made by a worker after the run had ended; a note of this run with a
 * number far ahead.
 */
START_TEST(a_note_of_another_run_or_far_ahead_binds_no_block)
{
	struct job *job = ring_switch_job(&sw, 4, 16);
	const uint32_t epoch = host_join_all(&sw, job, 4, 1);
	const uint32_t run = _i == 0 ? epoch - 1 : epoch;

	for (uint32_t i = 0; i < 16; i++)
		job->pool->clusters[i] = UINT64_C(100000) << 32 | (run & 0xffffff) << 8 | 1;
	run_blocks(job, 4, epoch, 100);
	for (uint32_t i = 0; i < 16; i++)
		ck_assert_uint_lt(job->pool->clusters[i] >> 32, 100);
	ck_assert_uint_gt(job->worker_stats[1].stats.results, 0);
}
END_TEST

/*
 * With rings of the default kind a worker waits for all that began to enqueue before it, whether
 * they are running or not.
 */
START_TEST(workers_wait_for_no_other_at_a_queue)
{
	const uint16_t cluster_size = (uint16_t)_i;

	ring_switch_eal();
	ring_switch_open_clusters(&sw, 2, 2, cluster_size, NULL);
	for (uint16_t i = 0; i < sw.pipeline->n_clusters; i++) {
		const struct rte_ring *queue = sw.pipeline->queues[i];

		ck_assert_int_eq(rte_ring_get_prod_sync_type(queue), RTE_RING_SYNC_MT_RTS);
		ck_assert_int_eq(rte_ring_get_cons_sync_type(queue),
				 cluster_size == 1 ? RTE_RING_SYNC_ST : RTE_RING_SYNC_MT_RTS);
	}
	ring_switch_close(&sw);
}
END_TEST

START_TEST(packets_that_wait_for_a_handler_are_counted)
{
	struct job *job = ring_switch_job(&sw, 2, 16);
	uint32_t epoch = host_join_all(&sw, job, 2, 1);
	struct fanin_handler_stats stats;
	struct counters before, after;
	uint8_t frame[4096];

	pipeline_counters(sw.pipeline, &before);
	for (uint32_t block = 0; block < 5; block++)
		ring_switch_enqueue(&sw, 0, frame,
				    host_contribution(&sw, job, 0, epoch, block, false, frame));
	ring_switch_rounds(&sw, 1);
	host_contribute(&sw, job, 1, epoch, 3, false);
	pipeline_counters(sw.pipeline, &after);
	ck_assert_uint_eq(after.input_sum - before.input_sum, 6);
	ck_assert_uint_eq(after.input_occupancy[histogram_bucket(5)], 1);
	ck_assert_uint_eq(after.input_occupancy[histogram_bucket(1)], 1);
	job_stats(job, &stats);
	ck_assert_uint_eq(stats.blocks, 5);
	ck_assert_uint_eq(stats.results, 1);
}
END_TEST

struct mismatch_reader {
	struct job *job;
	bool runs;  /* atomic */
	bool ended; /* atomic */
	bool found, stopped;
	struct fanin_mismatch mismatch;
};

/* Reads the mismatch of run 1. */
static void *
mismatch_reader_run(void *user)
{
	struct mismatch_reader *reader = user;

	__atomic_store_n(&reader->runs, true, __ATOMIC_RELEASE);
	reader->found = mismatch_read(reader->job, 1, &reader->mismatch);
	reader->stopped = mismatch_stops(reader->job, 1, 50);
	__atomic_store_n(&reader->ended, true, __ATOMIC_RELEASE);
	return NULL;
}

/* Run 2's mismatch is half written when that of run 1, at a later block, is read. */
START_TEST(a_mismatch_is_told_whole_and_in_its_own_run_only)
{
	const struct fanin_mismatch first = { .found = 1, .expected = 2, .block = 100, .rank = 1 };
	struct job *job = ring_switch_job(&sw, 2, 0);
	struct mismatch_reader reader = { .job = job };
	struct fanin_mismatch mismatch;
	pthread_t thread;

	job->epoch = 1;
	mismatch_take(sw.pipeline->workers[0], job, 1, &first, false);
	ring_switch_rounds(&sw, 1);
	for (uint16_t p = 0; p < 2; p++)
		ck_assert_uint_gt(ring_switch_take(&sw, p, buffer), 0);
	ck_assert(mismatch_read(job, 1, &mismatch));
	ck_assert_mem_eq(&mismatch, &first, sizeof(first));
	ck_assert(!mismatch_stops(job, 1, 50) && mismatch_stops(job, 1, 100));

	rte_spinlock_lock(&job->lock);
	job->mismatch.what.block = 50;
	job->mismatch.what.found = 7;
	ck_assert_int_eq(pthread_create(&thread, NULL, mismatch_reader_run, &reader), 0);
	while (!__atomic_load_n(&reader.runs, __ATOMIC_ACQUIRE))
		sched_yield();
	/* A reader that does not wait for the writer is done soon. */
	for (int looks = 0; looks < 100 && !__atomic_load_n(&reader.ended, __ATOMIC_ACQUIRE);
	     looks++)
		usleep(1000);
	__atomic_store_n(&job->mismatch.epoch, 2, __ATOMIC_RELEASE);
	rte_spinlock_unlock(&job->lock);
	pthread_join(thread, NULL);
	ck_assert_msg(!reader.found, "run 1 was told %lu of run 2", reader.mismatch.found);
	ck_assert(!reader.stopped);
	job->epoch = 0;
}
END_TEST

Suite *
suite_jobs(void)
{
	Suite *suite = suite_create("jobs");
	TCase *one = tcase_create("one worker");
	TCase *two = tcase_create("two workers");
	TCase *queues = tcase_create("queues");
	TCase *faults = tcase_create("faults");

	tcase_add_checked_fixture(one, setup, teardown);
	tcase_set_timeout(one, 300);
	tcase_add_test(one, run_begins_when_all_have_joined);
	tcase_add_test(one, sum_reaches_every_member_and_no_one_else);
	tcase_add_test(one, doubled_packets_are_whole_whatever_the_pipelines_own_pool_holds);
	tcase_add_test(one, a_packet_that_fits_no_second_time_is_not_tried_forever);
	tcase_add_test(one, hosts_behind_one_port_get_each_result_once);
	tcase_add_test(one, restarted_member_waits_until_the_old_run_is_left);
	tcase_add_test(one, late_leave_of_an_old_run_changes_nothing);
	tcase_add_loop_test(one, epochs_wrap, 0, 3);
	tcase_add_test(one, late_join_of_a_process_that_is_gone_changes_nothing);
	tcase_add_test(one, cookie_is_good_for_one_process_and_once);
	tcase_add_test(one, repeated_join_gets_the_same_answer);
	tcase_add_test(one, wrong_size_is_refused_by_name);
	tcase_add_test(one, refusals_tell_strangers_no_key);
	tcase_add_test(one, forged_contributions_are_counted_and_change_nothing);
	tcase_add_test(one, query_is_refused_where_a_contribution_is);
	tcase_add_test(one, lost_result_is_repeated_to_the_one_who_asks);
	tcase_add_test(one, query_sees_the_contributions_before_it_in_a_burst);
	tcase_add_test(one, jobs_that_do_not_fit_are_refused_with_the_amounts);
	tcase_add_loop_test(one, a_reproducible_job_whose_order_would_not_come_out_is_refused, 0,
			    (int)(sizeof(orders) / sizeof(orders[0])));
	tcase_add_test(one, the_switch_is_no_member_of_its_jobs_and_not_its_own_parent);
	tcase_add_test(one, a_job_within_the_machine_gets_fewer_slots_for_larger_packets);
	tcase_add_test(one, destroyed_job_tells_its_hosts);
	tcase_add_test(one, packets_that_wait_for_a_handler_are_counted);
	tcase_add_test(one, a_mismatch_is_told_whole_and_in_its_own_run_only);
	suite_add_tcase(suite, one);

	tcase_add_checked_fixture(two, setup_two_workers, teardown);
	tcase_set_timeout(two, 300);
	tcase_add_test(two, slots_are_shared_out_to_the_workers);
	tcase_add_test(two, only_members_packets_touch_the_schedule);
	tcase_add_loop_test(two, a_note_of_another_run_or_far_ahead_binds_no_block, 0, 2);
	tcase_add_test(two, blocks_stay_on_the_node_of_their_slots);
	suite_add_tcase(suite, two);

	tcase_add_loop_test(queues, workers_wait_for_no_other_at_a_queue, 1, 3);
	suite_add_tcase(suite, queues);

	tcase_add_checked_fixture(faults, setup_faults, teardown);
	tcase_set_timeout(faults, 300);
	tcase_add_test(faults, sums_are_exact_under_injected_faults);
	suite_add_tcase(suite, faults);
	return suite;
}
