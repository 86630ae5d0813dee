/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pull reductions in one process and in virtual time (protocols/pull/README.md): exact and the same
 * bits on all ranks whatever is lost, doubled or reordered on any link, however few sums switches
 * keep; and nobody asks twice where nothing is lost.
 */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "protocols/pull/switch/pull.h"
#include "protocols/pull/host/pull_internal.h"
#include "tests/unit/host_world.h"
#include "tests/unit/ring_switch.h"
#include "tests/unit/suites.h"

static const struct trial eight = { .seed = 1, .n_ranks = 8, .n_leaves = 2 };
static const struct trial doomed = { .seed = 1, .n_ranks = 8, .n_leaves = 2, .no_recovery = true };

static void
open_world(const struct trial *trial)
{
	struct trial opened = *trial;

	opened.handler = "pull";
	/*
	 * Where a tenth is lost on each link, five questions in a row may be lost on four links
	 * each.
	 */
	opened.timeout_ns = (trial->faults < 0.1 ? 1 : 4) * WORLD_TIMEOUT;
	world_open(&opened);
}

static struct fanin_pull_stats
totals(void)
{
	struct fanin_pull_stats sum = { 0 };

	for (uint16_t rank = 0; rank < world.trial.n_ranks; rank++)
		world_add(&sum, fanin_pull_stats(world_engine(rank)), sizeof(sum));
	return sum;
}

static struct fanin_broadcast_stats
multicast_totals(void)
{
	struct fanin_broadcast_stats sum = { 0 };

	for (uint16_t rank = 0; rank < world.trial.n_ranks; rank++)
		world_add(&sum, fanin_broadcast_stats(world_engine(rank)), sizeof(sum));
	return sum;
}

static const uint16_t sizes[] = { 2, 3, 8, 16 };
static const uint32_t tables[] = { 4, 64, 4096 };
static const uint32_t wave_numbers[] = { 0, 1, 2, 4, 16, 64 };
static const double rates[] = { 0, 0.02, 0.1 };

/*
 * The i-th of the cells: sizes, places and tables in all combinations, and waves and faults in
 * turns.
 */
static struct trial
trial_of(unsigned int i)
{
	const uint16_t n_ranks = sizes[i % 4];

	return (struct trial){
		.seed = i + 1,
		.n_ranks = n_ranks,
		.n_leaves = n_ranks == 3     ? 1
			    : i / 4 % 2 == 0 ? 1
			    : n_ranks == 16  ? 4
					     : 2,
		.entries = tables[i / 8 % 3],
		.waves = wave_numbers[i % 6],
		.wave_blocks = i % 5 == 0 ? 3 : 0,
		.faults = rates[(i / 24 + i) % 3],
	};
}
#define N_TRIALS 72u

/* The i-th pair of a data type and an operator that is defined on it. */
static struct perf_data
data_of(unsigned int i)
{
	struct perf_data data = { .seed = i + 7 };

	for (;;) {
		for (int dtype = FANIN_I8; dtype <= FANIN_F64; dtype++) {
			for (int op = FANIN_SUM; op <= FANIN_AVG; op++) {
				data.dtype = (enum fanin_dtype)dtype;
				data.op = (enum fanin_op)op;
				if (fanin_supports(data.dtype, data.op) && i-- == 0)
					return data;
			}
		}
	}
}

/*
 * Elements that don't divide by packets or ranks: one, about a packet, fewer packets than ranks,
 * and many.
 */
static uint64_t
count_of(unsigned int i, enum fanin_dtype dtype)
{
	const uint64_t per_packet = world.payload_bytes / fanin_dtype_size_of(dtype);
	const uint64_t counts[] = { 1, per_packet + 1, 5 * per_packet - 1, 70 * per_packet + 3 };

	return counts[i % 4];
}

START_TEST(sums_are_exact_whatever_is_lost_doubled_or_reordered)
{
	const struct trial trial = trial_of((unsigned int)_i);

	open_world(&trial);
	for (unsigned int r = 0; r < 4; r++) {
		struct perf_collective like = { .kind = PERF_ALLREDUCE,
						.data = data_of(4 * (unsigned int)_i + r) };

		like.count = count_of(r, like.data.dtype);
		world_post_all(r, like);
	}
	world_run();
	/* And on numbers of slots and entries that have been used. */
	world_forget();
	for (unsigned int r = 0; r < 2; r++) {
		struct perf_collective like = world_sum(count_of(3 - r, FANIN_I32));

		world_post_all(r, like);
	}
	world_run();
	world_close();
}
END_TEST

/* By _i: all pairs of data types and operators have their turn, in a network that loses. */
START_TEST(every_operator_on_every_data_type_is_exact)
{
	struct trial trial = { .seed = (uint64_t)_i + 1,
			       .n_ranks = 4,
			       .n_leaves = 2,
			       .entries = _i % 2 == 0 ? 8 : 4096,
			       .faults = 0.02 };

	open_world(&trial);
	for (unsigned int op = 0; op < 11; op++) {
		struct perf_collective like = { .kind = PERF_ALLREDUCE,
						.data = { .dtype = (enum fanin_dtype)_i,
							  .op = (enum fanin_op)(FANIN_SUM + op),
							  .seed = op } };

		if (!fanin_supports(like.data.dtype, like.data.op))
			continue;
		like.count = count_of(2, like.data.dtype);
		world_post_all(0, like);
		world_run();
		world_forget();
	}
	world_close();
}
END_TEST

/* By _i: size of the job. All collectives, one after the other and several at a time. */
START_TEST(all_collectives_are_exact)
{
	struct trial trial = { .seed = (uint64_t)_i + 1,
			       .n_ranks = sizes[_i % 4],
			       .n_leaves = sizes[_i % 4] == 3 ? 1 : 2,
			       .entries = tables[_i % 3],
			       .faults = rates[_i % 3] };

	open_world(&trial);
	for (unsigned int turn = 0; turn < 3; turn++) {
		for (unsigned int kind = 0; kind < PERF_COLLECTIVES; kind++) {
			struct perf_collective like = {
				.kind = (enum perf_collective_kind)kind,
				.root = (uint16_t)(turn * 7u % trial.n_ranks),
				.data = { .dtype = FANIN_I16, .op = FANIN_SUM, .seed = turn }
			};

			like.count = kind == PERF_BARRIER ? 0 : count_of(turn + 1, FANIN_I16);
			if (perf_collective_has_parts(like.kind))
				like.count = (like.count / trial.n_ranks + 1) * trial.n_ranks;
			world_post_all(kind, like);
		}
		world_run();
		world_forget();
	}
	world_close();
}
END_TEST

/* By _i: the type, and the operator. Native sums would be other bits. */
START_TEST(sums_and_averages_of_halves_are_rounded_once_if_the_job_says_so)
{
	struct trial trial = {
		.seed = 5, .n_ranks = 8, .n_leaves = 1, .entries = 64, .faults = 0.02, .wide = true
	};
	struct perf_collective like = { .kind = _i < 4 ? PERF_ALLREDUCE : PERF_REDUCE_SCATTER,
					.data = { .dtype = _i % 2 == 0 ? FANIN_F16 : FANIN_BF16,
						  .op = _i / 2 % 2 == 0 ? FANIN_SUM : FANIN_AVG,
						  .seed = 3 } };

	open_world(&trial);
	like.count = 40000;
	world_post_all(0, like);
	like.data.op = FANIN_MAX;
	world_post_all(1, like);
	world_run();
	world_close();
}
END_TEST

/*
 * Which answers meet, and so the order of additions, differs from packet to packet, but not from
 * rank to rank.
 */
START_TEST(float_sums_have_the_same_bits_on_all_ranks)
{
	struct trial trial = { .seed = (uint64_t)_i + 1,
			       .n_ranks = 16,
			       .n_leaves = 4,
			       .entries = tables[_i % 3],
			       .faults = 0.02 };
	struct perf_collective like = world_sum(50000);

	like.data.dtype = _i % 2 == 0 ? FANIN_F32 : FANIN_F64;
	like.data.random = true;
	open_world(&trial);
	world_post_all(0, like);
	world_run();
	world_expect_equal_bits();
	world_close();
}
END_TEST

/* ------------------------------------------------------------------ without loss */

/* By _i: one switch, or leaves and a spine. */
START_TEST(without_loss_each_packet_is_asked_for_once_and_comes_as_one_sum)
{
	const struct trial trial = { .seed = 1, .n_ranks = 8, .n_leaves = _i == 0 ? 1 : 2 };
	const uint64_t n_packets = (100000 * 4 + 1407) / 1408;
	struct fanin_broadcast_stats multicast;
	struct fanin_pull_stats stats;

	open_world(&trial);
	world_post_all(0, world_sum(100000));
	world_run();
	stats = totals();
	ck_assert_uint_eq(world.payload_bytes, 1408);
	ck_assert_uint_eq(stats.pulls, n_packets);
	ck_assert_uint_eq(stats.requests, n_packets + stats.busy);
	ck_assert_uint_eq(stats.asks, 0);
	ck_assert_uint_eq(stats.answers, n_packets * 7);
	ck_assert_uint_eq(stats.duplicates, 0);
	ck_assert_uint_eq(stats.overlaps, 0);
	/*
	 * Where another owner's sum has the slot of a switch further on, answers come apart; the
	 * first switch always has one.
	 */
	ck_assert_uint_eq(stats.merged, n_packets);
	ck_assert_uint_eq(stats.ranks_merged, n_packets * 7);
	ck_assert_uint_eq(world_counter(PULL_TIMED_OUT), 0);
	multicast = multicast_totals();
	ck_assert_uint_eq(multicast.packets_sent, n_packets);
	ck_assert_uint_eq(multicast.packets, n_packets * 7);
	ck_assert_uint_eq(multicast.duplicates, 0);
	world_close();
}
END_TEST

/* Each of the leaves has room for one of eight owners' sums. */
START_TEST(without_room_owners_wait_for_their_turn)
{
	const struct trial trial = {
		.seed = 1, .n_ranks = 8, .n_leaves = 2, .entries = 1, .waves = 4, .wave_blocks = 2
	};
	struct fanin_pull_stats stats;

	open_world(&trial);
	world_post_all(0, world_sum(20000));
	world_run();
	stats = totals();
	ck_assert_uint_gt(stats.busy, 0);
	ck_assert_uint_eq(stats.busy, world_counter(PULL_BUSY));
	ck_assert_uint_gt(world_counter(PULL_BYPASSED), 0);
	ck_assert_uint_eq(stats.pulls, (20000 * 4 + 1407) / 1408);
	world_close();
}
END_TEST

/* Nobody else gets data of a reduce or a reduce_scatter, and no link carries it. */
START_TEST(results_for_one_rank_are_sent_to_nobody)
{
	struct perf_collective like = world_sum(64000);

	open_world(&eight);
	like.kind = _i == 0 ? PERF_REDUCE : PERF_REDUCE_SCATTER;
	like.root = 5;
	world_post_all(0, like);
	world_run();
	ck_assert_uint_eq(multicast_totals().packets_sent, 0);
	ck_assert_uint_eq(multicast_totals().fetches, 0);
	ck_assert_uint_eq(totals().asks, 0);
	world_close();
}
END_TEST

/* ------------------------------------------------------------------ what is late, lost, or over */

static bool
keeps_first_responses(uint16_t rank, const struct fanin_hdr *hdr)
{
	(void)rank;
	return hdr->type == FANIN_TYPE_RESPONSE && hdr->progress == 0;
}

static bool
has_pulled(void *user)
{
	return totals().pulls >= *(const uint64_t *)user;
}

/* All answers of one operation come once more while the next one is at the same places. */
START_TEST(a_late_duplicate_of_the_last_use_of_a_number_changes_nothing)
{
	struct perf_collective like = world_sum(20000);
	uint64_t some;

	open_world(&eight);
	world.keeps = keeps_first_responses;
	world_post_all(0, like);
	world_run();
	some = totals().pulls + 3;
	like.data.seed = 99;
	world_post_all(1, like);
	ck_assert(world_wait(SECOND, has_pulled, &some));
	for (uint16_t rank = 0; rank < eight.n_ranks; rank++)
		world_repeat(rank);
	world_run();
	ck_assert_uint_gt(world_counter(PULL_BYPASSED), 0);
	ck_assert_uint_gt(totals().duplicates, 0);
	world_close();
}
END_TEST

static bool
keeps_first_requests(uint16_t rank, const struct fanin_hdr *hdr)
{
	(void)rank;
	return hdr->type == FANIN_TYPE_PULL && hdr->progress == 0;
}

/* Of an operation that has ended: nobody answers, and buffers may have other contents. */
START_TEST(a_late_request_is_not_answered)
{
	struct perf_collective like = world_sum(20000);
	uint64_t answers, some;

	open_world(&eight);
	world.keeps = keeps_first_requests;
	world_post_all(0, like);
	world_run();
	answers = totals().answers;
	for (uint16_t rank = 0; rank < eight.n_ranks; rank++)
		world_repeat(rank);
	world_pass(SECOND);
	ck_assert_uint_eq(totals().answers, answers);
	ck_assert_uint_gt(totals().closed, 0);
	/* Its entries are no obstacle, though they time out. */
	some = totals().pulls + 1;
	world_post_all(1, like);
	ck_assert(world_wait(SECOND, has_pulled, &some));
	for (uint16_t rank = 0; rank < eight.n_ranks; rank++)
		world_repeat(rank);
	world_run();
	world_close();
}
END_TEST

static bool
loses_first_links(uint16_t rank, const struct fanin_hdr *hdr)
{
	(void)rank;
	return hdr->type == FANIN_TYPE_PULL_DELIVERY && hdr->count == 0;
}

/* No request comes to anybody: all is asked for directly. */
START_TEST(lost_requests_are_asked_for_directly)
{
	struct fanin_pull_stats stats;

	open_world(&eight);
	world.loses = loses_first_links;
	world_post_all(0, world_sum(20000));
	world_run();
	stats = totals();
	ck_assert_uint_eq(stats.given, stats.pulls * 7);
	ck_assert_uint_eq(stats.ranks_merged, stats.pulls * 7);
	world_close();
}
END_TEST

/*
 * By _i: the payload. All collectives, with so many pulls at a time that a question about all of
 * them would be longer than the job's packets.
 */
START_TEST(packets_that_ask_are_no_longer_than_the_jobs_packets)
{
	static const uint16_t payloads[] = { 64, 128, 192, 256, 320 };
	const struct trial trial = { .seed = (uint64_t)_i + 1,
				     .n_ranks = 2,
				     .n_leaves = 1,
				     .window = 2048,
				     .entries = 4096,
				     .waves = 1,
				     .faults = 0.02,
				     .payload_bytes = payloads[_i] };
	struct perf_collective like =
		world_sum(RTE_MIN(4200u * payloads[_i], 1u << 20) / sizeof(int32_t));

	open_world(&trial);
	ck_assert_uint_eq(world.payload_bytes, payloads[_i]);
	for (unsigned int kind = 0; kind < PERF_BARRIER; kind++) {
		like.kind = (enum perf_collective_kind)kind;
		world_post_all(kind, like);
	}
	world_run();
	world_forget();
	world.loses = loses_first_links;
	like.kind = PERF_ALLREDUCE;
	world_post_all(0, like);
	world_run();
	ck_assert_uint_gt(totals().given, 0);
	world_close();
}
END_TEST

static bool
loses_ranks_requests(uint16_t rank, const struct fanin_hdr *hdr)
{
	return rank == 6 && loses_first_links(rank, hdr);
}

/*
 * One rank lacks all requests: what switches have of the others is combined, and that rank alone is
 * asked.
 */
START_TEST(only_the_rank_that_lost_the_requests_is_asked_directly)
{
	struct fanin_pull_stats stats;
	uint64_t others;

	open_world(&eight);
	world.loses = loses_ranks_requests;
	world_post_all(0, world_sum(20000));
	world_run();
	stats = totals();
	others = stats.pulls - fanin_pull_stats(world_engine(6))->pulls;
	ck_assert_uint_eq(stats.given, others);
	world_close();
}
END_TEST

/* By _i: an owner, after or before it has begun. */
START_TEST(a_rank_that_posts_late_is_waited_for)
{
	const uint16_t late = _i == 0 ? 0 : 5;
	const struct perf_collective like = world_sum(50000);

	open_world(&eight);
	for (uint16_t rank = 0; rank < eight.n_ranks; rank++) {
		if (rank != late)
			world_post(rank, 0, like);
	}
	world_pass(20 * SECOND);
	ck_assert_uint_eq(totals().requests, 0);
	world_post(late, 0, like);
	world_run();
	ck_assert_uint_eq(totals().asks, 0);
	world_close();
}
END_TEST

/*
 * In the middle, for longer than the timeout. What was asked of it meanwhile it answers about once.
 */
START_TEST(a_rank_without_a_core_is_waited_for)
{
	uint64_t some = 20, given;

	open_world(&eight);
	world_post_all(0, world_sum(100000));
	ck_assert(world_wait(SECOND, has_pulled, &some));
	world_leave(3);
	world_pass(20 * SECOND);
	ck_assert(!world_done(NULL));
	given = totals().given;
	world_return(3);
	world_run();
	ck_assert_uint_gt(totals().again, 0);
	/* Of 16 pulls of each other owner; and they have asked about ten times a second. */
	ck_assert_uint_le(totals().given - given, 7 * 16);
	ck_assert_uint_le(totals().asks, 7 * 20 * 12);
	world_close();
}
END_TEST

/* All that are there name it, and nobody else, within the timeout and as long again. */
static void
expect_named(uint16_t gone)
{
	const uint64_t gone_ns = world_now();

	ck_assert(world_wait(60 * SECOND, world_done, NULL));
	ck_assert_uint_le(world_now() - gone_ns, 2 * WORLD_TIMEOUT);
	world_expect_named(gone, "");
}

/* By _i: the rank. All others name it. */
START_TEST(a_rank_that_is_gone_is_named_by_all_others)
{
	struct trial trial = { .seed = 1, .n_ranks = 8, .n_leaves = 2, .no_recovery = true };
	const uint16_t gone = (uint16_t)_i;
	uint64_t some = 20;

	trial.faults = _i % 2 == 0 ? 0 : 0.01;
	open_world(&trial);
	world_post_all(0, world_sum(100000));
	ck_assert(world_wait(SECOND, has_pulled, &some));
	world_kill(gone);
	expect_named(gone);
	world_close();
}
END_TEST

/*
 * Begins sums, and takes a rank away in the middle that has contributed to all control blocks that
 * may come.
 */
static void
take_away_ahead(uint16_t rank)
{
	uint64_t some = 20;

	world_post_all(0, world_sum(100000));
	ck_assert(world_wait(SECOND, has_pulled, &some));
	world_leave(rank);
	/*
	 * To the control blocks that come, whatever their conditions, as far as switches take that.
	 */
	for (uint32_t i = 0; i < 2 * world.trial.window; i++)
		world_contribute(rank, fanin_engine_progress(world_engine(rank)) + i, 2);
}

/* By _i: the rank. What it has contributed proves nothing. */
START_TEST(a_rank_that_is_gone_is_named_though_it_has_contributed_ahead)
{
	const uint16_t gone = (uint16_t)_i;

	open_world(&doomed);
	take_away_ahead(gone);
	world_kill(gone);
	expect_named(gone);
	world_close();
}
END_TEST

START_TEST(a_rank_that_is_late_is_waited_for_though_it_has_contributed_ahead)
{
	open_world(&doomed);
	take_away_ahead(5);
	world_pass(20 * SECOND);
	for (uint16_t rank = 0; rank < doomed.n_ranks; rank++)
		ck_assert_msg(world.members[rank].requests[0].status == FANIN_IN_PROGRESS,
			      "rank %u: %s", rank, world_error(rank));
	world_close();
}
END_TEST

/* The ranks of the other leaf compute, and ask for nothing: its own leaf's ranks find out. */
START_TEST(a_rank_that_is_gone_is_named_at_its_leaf_while_the_other_leaf_computes)
{
	uint64_t some = 20;

	open_world(&doomed);
	world_post_all(0, world_sum(100000));
	ck_assert(world_wait(SECOND, has_pulled, &some));
	for (uint16_t rank = 4; rank < 8; rank++)
		world.members[rank].is_gone = true;
	world_kill(1);
	expect_named(1);
	world_close();
}
END_TEST

static bool
loses_data(uint16_t rank, const struct fanin_hdr *hdr)
{
	return rank == 2 &&
	       (hdr->type == FANIN_TYPE_RESPONSE_DELIVERY ||
		(hdr->type == FANIN_TYPE_UNICAST_DELIVERY && hdr->number == FANIN_BROADCAST_GIVE));
}

/* As where the MTU of a link is less than its ends say. */
START_TEST(packets_that_never_pass_are_an_error_and_not_waited_for)
{
	const struct trial trial = { .seed = 1, .n_ranks = 4, .n_leaves = 1, .no_recovery = true };
	struct fanin_endpoint *engine;

	open_world(&trial);
	world.loses = loses_data;
	world_post_all(0, world_sum(20000));
	world_wait(60 * SECOND, world_done, NULL);
	engine = world_engine(2);
	ck_assert_int_eq(world.members[2].requests[0].status, FANIN_ERR_TIMEOUT);
	ck_assert_msg(strstr(fanin_engine_error(engine)->text, "do packets of this size pass") !=
			      NULL,
		      "%s", fanin_engine_error(engine)->text);
	world_close();
}
END_TEST

static bool
is_told(void *user)
{
	const struct fanin_broadcast_op *op =
		fanin_pull_of(fanin_engine_of(world_engine(2)))->mc.ops;

	(void)user;
	return op != NULL && op->has_ns != 0;
}

/* What was given is lost, and then nobody tells anything more. */
START_TEST(ranks_that_are_late_after_a_loss_are_waited_for)
{
	const struct trial trial = { .seed = 1, .n_ranks = 4, .n_leaves = 1 };

	open_world(&trial);
	world.loses = loses_data;
	world_post_all(0, world_sum(20000));
	ck_assert(world_wait(SECOND, is_told, NULL));
	world.loses = NULL;
	for (uint16_t rank = 0; rank < trial.n_ranks; rank++)
		world.members[rank].is_away = rank != 2;
	world_pass(20 * SECOND);
	ck_assert_msg(world.members[2].requests[0].status == FANIN_IN_PROGRESS, "%s",
		      world_error(2));
	for (uint16_t rank = 0; rank < trial.n_ranks; rank++) {
		world_return(rank);
	}
	world_run();
	world_close();
}
END_TEST

/* By _i: another operator, another length, another root. */
START_TEST(ranks_that_disagree_are_refused)
{
	const struct trial trial = { .seed = 1, .n_ranks = 3, .n_leaves = 1, .no_recovery = true };

	open_world(&trial);
	for (uint16_t rank = 0; rank < trial.n_ranks; rank++) {
		struct perf_collective like = world_sum(3000);

		like.kind = _i == 2 ? PERF_REDUCE : PERF_ALLREDUCE;
		if (rank == 1 && _i == 0)
			like.data.op = FANIN_MAX;
		if (rank == 1 && _i == 1)
			like.count++;
		if (rank == 1 && _i == 2)
			like.root = 1;
		world_post(rank, 0, like);
	}
	world_wait(10 * SECOND, world_done, NULL);
	for (uint16_t rank = 0; rank < trial.n_ranks; rank++) {
		ck_assert_int_eq(world.members[rank].requests[0].status, FANIN_ERR_REFUSED);
		ck_assert_ptr_nonnull(strstr(world_error(rank), "disagree"));
	}
	world_close();
}
END_TEST

/* Ranks 0 and 1 are hosts of this switch, and the others elsewhere. */
START_TEST(more_ranks_than_a_word_has_bits_are_refused)
{
	char error[PIPELINE_ERROR_LEN] = "";
	struct ring_switch sw;
	struct job *created;
	const char *code;
	struct job_spec spec = {
		.key = RING_SWITCH_KEY,
		.handler = "pull",
		.n_ranks = 65,
		.n_members = 2,
		.has_parent = true,
		.parent = { .port = 2, .ip_be = host_ip_be(2), .mac = { 2, 0, 0, 0, 0, 9 } },
	};

	ring_switch_eal();
	ring_switch_open(&sw, 3, 1, NULL);
	for (uint16_t i = 0; i < 2; i++) {
		spec.members[i].port = i;
		spec.members[i].ip_be = host_ip_be(i);
		spec.members[i].ranks = fanin_ranks_one(i);
	}
	ck_assert_int_eq(job_create(sw.pipeline, &spec, &created, &code, error), -EINVAL);
	ck_assert_str_eq(error, "found size 65 for a job of \"pull\", expected at most 64 ranks");
	spec.n_ranks = 64;
	ck_assert_int_eq(job_create(sw.pipeline, &spec, &created, &code, error), 0);
	ring_switch_close(&sw);
}
END_TEST

Suite *
suite_pull_hosts(void)
{
	Suite *suite = suite_create("pull_hosts");
	TCase *tcase = tcase_create("exact");

	tcase_set_timeout(tcase, 120);
	tcase_add_loop_test(tcase, sums_are_exact_whatever_is_lost_doubled_or_reordered, 0,
			    N_TRIALS);
	tcase_add_loop_test(tcase, every_operator_on_every_data_type_is_exact, FANIN_I8,
			    FANIN_F64 + 1);
	tcase_add_loop_test(tcase, all_collectives_are_exact, 0, 12);
	tcase_add_loop_test(tcase, sums_and_averages_of_halves_are_rounded_once_if_the_job_says_so,
			    0, 8);
	tcase_add_loop_test(tcase, float_sums_have_the_same_bits_on_all_ranks, 0, 6);
	suite_add_tcase(suite, tcase);

	tcase = tcase_create("quiet");
	tcase_set_timeout(tcase, 60);
	tcase_add_loop_test(tcase, without_loss_each_packet_is_asked_for_once_and_comes_as_one_sum,
			    0, 2);
	tcase_add_test(tcase, without_room_owners_wait_for_their_turn);
	tcase_add_loop_test(tcase, results_for_one_rank_are_sent_to_nobody, 0, 2);
	suite_add_tcase(suite, tcase);

	tcase = tcase_create("late");
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, a_late_duplicate_of_the_last_use_of_a_number_changes_nothing);
	tcase_add_test(tcase, a_late_request_is_not_answered);
	tcase_add_test(tcase, lost_requests_are_asked_for_directly);
	tcase_add_loop_test(tcase, packets_that_ask_are_no_longer_than_the_jobs_packets, 0, 5);
	tcase_add_test(tcase, only_the_rank_that_lost_the_requests_is_asked_directly);
	tcase_add_loop_test(tcase, a_rank_that_posts_late_is_waited_for, 0, 2);
	tcase_add_test(tcase, a_rank_without_a_core_is_waited_for);
	tcase_add_loop_test(tcase, a_rank_that_is_gone_is_named_by_all_others, 0, 8);
	tcase_add_loop_test(tcase, a_rank_that_is_gone_is_named_though_it_has_contributed_ahead, 0,
			    8);
	tcase_add_test(tcase, a_rank_that_is_late_is_waited_for_though_it_has_contributed_ahead);
	tcase_add_test(tcase,
		       a_rank_that_is_gone_is_named_at_its_leaf_while_the_other_leaf_computes);
	tcase_add_test(tcase, packets_that_never_pass_are_an_error_and_not_waited_for);
	tcase_add_test(tcase, ranks_that_are_late_after_a_loss_are_waited_for);
	tcase_add_loop_test(tcase, ranks_that_disagree_are_refused, 0, 3);
	tcase_add_test(tcase, more_ranks_than_a_word_has_bits_are_refused);
	suite_add_tcase(suite, tcase);
	return suite;
}
