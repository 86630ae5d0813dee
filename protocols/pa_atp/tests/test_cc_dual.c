/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The dual windows of jobs with a parameter server (protocols/pa_atp/host/dual.h) against numbers
 * that were worked out by hand: each comment has the sum.
 */
#include <check.h>
#include <float.h>

#include "protocols/pa_atp/host/dual.h"
#include "tests/unit/suites.h"

/* The differences that rounding may make. */
#define TINY 1e-12
/* Of a power: it has 32 binary digits of the exponent. */
#define SMALL 1e-8

#define W 64u

static const struct fanin_dual_settings usual = {
	.limit = W,
	.aggregators = 40,
	.sharing_jobs = 2,
	.n_ranks = 4,
};

/* A rank with blocks from 0 on, whose AACKs stay behind by `behind`. */
struct path {
	struct fanin_dual dual;
	uint32_t sent;
	uint32_t acked; /* by what clocks the window */
	uint32_t behind;
	uint64_t sum; /* of the GACKs */
};

static void
path_open(struct path *path, const char *type, const struct fanin_dual_settings *settings)
{
	*path = (struct path){ 0 };
	ck_assert_ptr_nonnull(fanin_dual_find(type));
	fanin_dual_init(&path->dual, fanin_dual_find(type), settings);
}

/* Sends what the windows let through. */
static void
path_send(struct path *path)
{
	const uint32_t aacked = path->acked - path->behind;

	while (fanin_dual_may_send(&path->dual, path->sent - path->acked, path->sent - aacked))
		path->sent++;
}

/* The next block's acknowledgment. */
static void
path_ack(struct path *path, bool marked)
{
	struct fanin_dual_sample sample = { .block = path->acked++,
					    .next = path->sent,
					    .ce = marked };

	sample.gacked = path->acked;
	sample.aacked = path->acked - path->behind;
	sample.sum = path->sum;
	if (path->dual.type->clock == FANIN_DUAL_GACK)
		fanin_dual_on_gack(&path->dual, &sample);
	else
		fanin_dual_on_aack(&path->dual, &sample);
	path_send(path);
}

/*
 * One round trip: acknowledgments up to the one that ends it, the first `marks` of which are
 * marked.
 */
static void
path_round(struct path *path, uint32_t marks)
{
	const uint64_t before = path->dual.rounds;

	while (path->dual.rounds == before) {
		path_ack(path, marks != 0);
		marks -= marks != 0;
	}
}

/* A window outside of slow start, at the very beginning of a round trip, with this alpha. */
static void
path_settle(struct path *path, double cwd, double alpha)
{
	path->dual.slow_start = false;
	path->dual.cwd = cwd;
	path->dual.alpha = alpha;
	path_send(path);
	path_ack(path, false);
	path_round(path, 0);
	path->dual.cwd = cwd;
	path->dual.alpha = alpha;
	path_send(path);
}

START_TEST(each_type_is_found_by_its_name_and_has_its_place)
{
	static const char *const names[FANIN_DUAL_TYPES] = { "sync",        "atp",
							     "straw",       "straw+progress",
							     "straw+limit", "pa-atp" };
	static const char *const traits[FANIN_DUAL_TYPES] = {
		"A", "AE", "GE", "GEP", "GEL", "GEPL"
	};

	for (unsigned i = 0; i < FANIN_DUAL_TYPES; i++) {
		const struct fanin_dual_type *type = &fanin_dual_types[i];
		char found[5] = { 0 };
		unsigned n = 0;

		ck_assert_str_eq(type->name, names[i]);
		ck_assert_ptr_eq(fanin_dual_find(names[i]), type);
		found[n++] = type->clock == FANIN_DUAL_GACK ? 'G' : 'A';
		if (type->ecn)
			found[n++] = 'E';
		if (type->progress)
			found[n++] = 'P';
		if (type->limit)
			found[n++] = 'L';
		ck_assert_str_eq(found, traits[i]);
	}
	ck_assert_ptr_null(fanin_dual_find("pa"));
}
END_TEST

START_TEST(first_windows_are_ten_blocks_and_a_share_of_the_aggregators)
{
	struct fanin_dual_settings settings = usual;
	struct path path;

	path_open(&path, "pa-atp", &settings);
	ck_assert_double_eq(path.dual.cwd, 10);
	ck_assert_double_eq(path.dual.awd, 20);

	/* More aggregators than W; no job that is told; fewer aggregators than jobs; a W of 1. */
	settings.aggregators = 1000;
	path_open(&path, "pa-atp", &settings);
	ck_assert_double_eq(path.dual.awd, 64);
	settings.aggregators = 40;
	settings.sharing_jobs = 0;
	path_open(&path, "pa-atp", &settings);
	ck_assert_double_eq(path.dual.awd, 40);
	settings.sharing_jobs = 50;
	path_open(&path, "pa-atp", &settings);
	ck_assert_double_eq(path.dual.awd, 1);
	settings.limit = 1;
	path_open(&path, "pa-atp", &settings);
	ck_assert_double_eq(path.dual.cwd, 1);
	ck_assert_double_eq(path.dual.awd, 1);
}
END_TEST

START_TEST(blocks_are_held_back_by_both_windows)
{
	struct path path;

	/* CWD 10, AWD 20, W 64. */
	path_open(&path, "pa-atp", &usual);
	ck_assert(fanin_dual_may_send(&path.dual, 9, 19));
	ck_assert(!fanin_dual_may_send(&path.dual, 10, 19));
	ck_assert(!fanin_dual_may_send(&path.dual, 9, 20));
	/* 10.9 blocks are 10. */
	path.dual.cwd = 10.9;
	ck_assert(!fanin_dual_may_send(&path.dual, 10, 19));

	/* Without a limit W is the only one. */
	path_open(&path, "straw+progress", &usual);
	ck_assert(fanin_dual_may_send(&path.dual, 9, 63));
	ck_assert(!fanin_dual_may_send(&path.dual, 9, 64));
}
END_TEST

START_TEST(a_fixed_window_reacts_to_nothing)
{
	struct fanin_dual_settings settings = usual;
	struct path path;

	settings.fixed_window = 16;
	path_open(&path, "sync", &settings);
	path_send(&path);
	ck_assert_uint_eq(path.sent, 16);
	for (unsigned i = 0; i < 1000; i++)
		path_ack(&path, true);
	fanin_dual_on_loss(&path.dual, path.acked, path.sent);
	ck_assert_double_eq(path.dual.cwd, 16);
	ck_assert_double_eq(path.dual.alpha, 0);
	ck_assert_uint_eq(path.dual.losses, 0);

	settings.fixed_window = 0;
	path_open(&path, "sync", &settings);
	ck_assert_double_eq(path.dual.cwd, 64);
	settings.fixed_window = 65;
	path_open(&path, "sync", &settings);
	ck_assert_double_eq(path.dual.cwd, 64);
}
END_TEST

START_TEST(slow_start_grows_by_one_for_each_gack_until_the_first_mark)
{
	struct path path;

	path_open(&path, "straw", &usual);
	path_send(&path);
	for (unsigned i = 1; i <= 8; i++) {
		path_ack(&path, false);
		ck_assert_double_eq(path.dual.cwd, 10 + i);
	}
	/* 18 blocks; a mark halves them, for alpha is 1 so far, and ends slow start. */
	path_ack(&path, true);
	ck_assert(!path.dual.slow_start);
	ck_assert_double_eq(path.dual.cwd, 9);
	path_ack(&path, false);
	ck_assert_double_eq(path.dual.cwd, 9);
	/*
	 * The 11th GACK ends the first round trip, of 10 blocks: e = 1/11, alpha = 7/8 + 1/88 =
	 * 78/88.
	 */
	ck_assert_uint_eq(path.dual.rounds, 0);
	path_ack(&path, false);
	ck_assert_uint_eq(path.dual.rounds, 1);
	ck_assert_double_eq_tol(path.dual.alpha, 78.0 / 88, TINY);
	ck_assert_double_eq(path.dual.cwd, 9);
}
END_TEST

START_TEST(after_slow_start_a_round_trip_is_one_block_more)
{
	struct path path;

	path_open(&path, "straw", &usual);
	path_settle(&path, 20, 0.5);
	for (unsigned round = 1; round <= 5; round++) {
		path_round(&path, 0);
		ck_assert_double_eq(path.dual.cwd, 20 + round);
	}
	/* alpha = (7/8)^5 / 2. */
	ck_assert_double_eq_tol(path.dual.alpha, 16807.0 / 32768 / 2, TINY);
	/* 100 round trips later W is what it is, after some 100 * 64 GACKs. */
	for (unsigned round = 0; round < 100; round++)
		path_round(&path, 0);
	ck_assert_double_eq(path.dual.cwd, W);
	ck_assert_uint_ge(path.acked, 2000);
}
END_TEST

START_TEST(a_window_that_holds_nothing_back_stays)
{
	struct fanin_dual_sample sample = { 0 };
	struct fanin_dual dual;

	/* 10 blocks would be allowed, but a block is there only when the one before it is done. */
	fanin_dual_init(&dual, fanin_dual_find("straw"), &usual);
	dual.slow_start = _i == 0;
	/* In the first round trip after slow start more were there. */
	dual.limited = _i == 1;
	for (uint32_t block = 0; block < 100; block++) {
		ck_assert(fanin_dual_may_send(&dual, 0, 0));
		sample = (struct fanin_dual_sample){
			.block = block, .next = block + 1, .gacked = block + 1, .aacked = block + 1
		};
		fanin_dual_on_gack(&dual, &sample);
	}
	ck_assert_uint_ge(dual.rounds, 98);
	ck_assert_double_eq(dual.cwd, 10 + _i);
}
END_TEST

START_TEST(no_mark_no_cut_whatever_progress_and_alpha_are)
{
	struct path path;

	path_open(&path, "pa-atp", &usual);
	path.behind = 0;
	path_settle(&path, 16, 1);
	path.dual.awd = W;
	/*
	 * The leader of all: its own progress 8, the others' 0: the sum is 4 a + 8 if the first
	 * block without result is a.
	 */
	path.behind = 8;
	for (unsigned i = 0; i < 500; i++) {
		const double before = path.dual.cwd;

		path.sum = 4 * (uint64_t)(path.acked + 1 - 8) + 8;
		path_ack(&path, false);
		ck_assert_double_eq(path.dual.p, 2);
		ck_assert_double_ge(path.dual.cwd, before);
	}
	ck_assert_uint_eq(path.dual.cuts, 0);
}
END_TEST

START_TEST(a_cut_is_by_half_of_alpha)
{
	struct path path;

	/*
	 * atp: 16 AACKs, 4 of them marked. The first mark cuts to 16 (1 - 1/4) = 12, the others are
	 * of the same queue. e = 4/16: alpha = 7/8 * 1/2 + 1/8 * 1/4 = 15/32. The round trip ends
	 * with the first block that was sent in it, so it has as many AACKs as blocks were in
	 * flight.
	 */
	path_open(&path, "atp", &usual);
	path_settle(&path, 16, 0.5);
	path_round(&path, 4);
	ck_assert_double_eq_tol(path.dual.alpha, 15.0 / 32, TINY);
	ck_assert_double_eq(path.dual.cwd, 12);
	ck_assert_uint_eq(path.dual.cuts, 1);

	/* straw: the same by GACKs, and progress is nothing to it. */
	path_open(&path, "straw", &usual);
	path.sum = UINT32_MAX / 2;
	path_settle(&path, 16, 0.5);
	path_round(&path, 4);
	ck_assert_double_eq(path.dual.cwd, 12);
}
END_TEST

START_TEST(marks_of_what_was_sent_before_a_cut_are_answered)
{
	struct path path;

	path_open(&path, "straw", &usual);
	path_settle(&path, 16, 0.5);
	/*
	 * All that is in flight is marked: one cut, although a round trip ends with the 16th one.
	 */
	ck_assert_uint_eq(path.sent - path.acked, 17);
	for (unsigned i = 0; i < 17; i++)
		path_ack(&path, true);
	ck_assert_uint_eq(path.dual.rounds, 2);
	ck_assert_double_eq(path.dual.cwd, 12);
	ck_assert_uint_eq(path.dual.cuts, 1);
	/* The next one was sent afterwards. By now alpha is 7/16 + 1/8 = 9/16: 12 (1 - 9/32). */
	path_ack(&path, true);
	ck_assert_double_eq_tol(path.dual.cwd, 12 * 23.0 / 32, TINY);
	ck_assert_uint_eq(path.dual.cuts, 2);
}
END_TEST

START_TEST(each_type_hears_its_own_clock_only)
{
	struct path atp;
	struct path straw;
	struct fanin_dual_sample sample = { .ce = true, .aecn = true };

	path_open(&atp, "atp", &usual);
	path_open(&straw, "straw", &usual);
	for (uint32_t block = 0; block < 100; block++) {
		sample.block = block;
		sample.next = sample.gacked = sample.aacked = block + 1;
		fanin_dual_on_gack(&atp.dual, &sample);
		fanin_dual_on_aack(&straw.dual, &sample);
	}
	ck_assert_double_eq(atp.dual.cwd, 10);
	ck_assert_double_eq(straw.dual.cwd, 10);
	ck_assert_double_eq(straw.dual.awd, W);
}
END_TEST

START_TEST(progress_is_a_share_of_the_average)
{
	/*
	 * Four ranks; results up to block 99. Last gradients: 109 (this rank's), 104, 101, 101.
	 * Progress 10, 5, 2, 2, on average 19/4: p = 40/19, but 2 at most.
	 */
	struct fanin_dual_sample sample = { .gacked = 110,
					    .aacked = 100,
					    .sum = 110 + 105 + 102 + 102 };

	ck_assert_double_eq(fanin_dual_progress(&sample, 4, 2), 2);
	ck_assert_double_eq_tol(fanin_dual_progress(&sample, 4, 10), 40.0 / 19, TINY);
	/* The second one: 5 / (19/4) = 20/19. The third one: 8/19. */
	sample.gacked = 105;
	ck_assert_double_eq_tol(fanin_dual_progress(&sample, 4, 2), 20.0 / 19, TINY);
	sample.gacked = 102;
	ck_assert_double_eq_tol(fanin_dual_progress(&sample, 4, 2), 8.0 / 19, TINY);
	/* A rank without a GACK since the last result: 0. */
	sample.gacked = 100;
	ck_assert_double_eq(fanin_dual_progress(&sample, 4, 2), 0);
	/* An AACK that came before the GACK that it implies. */
	sample.gacked = 99;
	ck_assert_double_eq(fanin_dual_progress(&sample, 4, 2), 0);
	/* No rank is ahead of the last result, or it is newer than the sum: 1. */
	sample = (struct fanin_dual_sample){ .gacked = 100, .aacked = 100, .sum = 4 * 100 };
	ck_assert_double_eq(fanin_dual_progress(&sample, 4, 2), 1);
	sample.sum = 4 * 100 - 3;
	ck_assert_double_eq(fanin_dual_progress(&sample, 4, 2), 1);
}
END_TEST

START_TEST(sums_are_of_64_bits_and_blocks_wrap)
{
	/*
	 * 64 ranks whose last gradients are blocks 2^32 - 2 + (0 ... 63), as the switch counts
	 * them, that is beyond 32 bits. Results up to block 2^32 - 3. On average 1 + 31.5 blocks
	 * are ahead. The rank whose last one is 2^32 - 2 + 10 has 11: p = 22/65.
	 */
	struct fanin_dual_sample sample = { .gacked = 9, .aacked = UINT32_MAX - 1 };
	const uint64_t first = (UINT64_C(1) << 32) - 2;

	for (unsigned rank = 0; rank < 64; rank++)
		sample.sum += first + rank + 1;
	ck_assert_uint_gt(sample.sum, UINT64_C(1) << 37);
	ck_assert_double_eq_tol(fanin_dual_progress(&sample, 64, 2), 22.0 / 65, TINY);

	/* The switch may have counted on from any multiple of 2^32. */
	sample.sum += UINT64_C(64) * 5 << 32;
	ck_assert_double_eq_tol(fanin_dual_progress(&sample, 64, 2), 22.0 / 65, TINY);
}
END_TEST

START_TEST(round_trips_end_where_blocks_wrap)
{
	struct path path;

	path_open(&path, "straw", &usual);
	path.sent = path.acked = UINT32_MAX - 100;
	path_settle(&path, 20, 0.5);
	for (unsigned round = 0; round < 10; round++)
		path_round(&path, 0);
	/* 10 round trips, some 245 blocks. */
	ck_assert_uint_lt(path.acked, 1000);
	ck_assert_double_eq(path.dual.cwd, 30);
}
END_TEST

START_TEST(the_sum_in_the_gack_changes_the_cut)
{
	/*
	 * Two ranks, results up to the same block; one has 12 GACKs since then and the other one 4:
	 * the average is 8. p = 3/2 and 1/2. alpha is 1/4, and there is a mark. Leader: d =
	 * (1/4)^(1 - 3/4) = 1/sqrt(2): 16 (1 - 0.353553) = 10.343146. Straggler: d = (1/4)^(3/4) =
	 * 0.353553: 16 (1 - 0.176777) = 13.171573.
	 */
	static const struct {
		uint32_t own;
		double p;
		double cwd;
	} ranks[] = {
		{ .own = 12, .p = 1.5, .cwd = 10.343145750507619 },
		{ .own = 4, .p = 0.5, .cwd = 13.171572875253810 },
	};
	struct fanin_dual_settings settings = usual;
	struct path path;

	settings.n_ranks = 2;
	for (unsigned i = 0; i < 2; i++) {
		path_open(&path, "straw+progress", &settings);
		path_settle(&path, 16, 0.25);
		path.behind = ranks[i].own;
		/*
		 * After this GACK: acked + 1 - own blocks have results, and the next blocks are 12
		 * and 4 after that.
		 */
		path.sum = 2 * (uint64_t)(path.acked + 1 - ranks[i].own) + 16;
		path_ack(&path, true);
		ck_assert_double_eq_tol(path.dual.p, ranks[i].p, TINY);
		ck_assert_double_eq_tol(path.dual.cwd, ranks[i].cwd, SMALL);
	}

	/* The same rank, the same mark: only the sum says whether it leads. */
	for (unsigned i = 0; i < 2; i++) {
		path_open(&path, "pa-atp", &settings);
		path.dual.awd = W;
		path_settle(&path, 16, 0.25);
		path.behind = 6;
		/* The other rank has 18 blocks or 2: the average is 12 or 4, p is 1/2 or 3/2. */
		path.sum = 2 * (uint64_t)(path.acked + 1 - 6) + (i == 0 ? 24 : 8);
		path_ack(&path, true);
		ck_assert_double_eq_tol(path.dual.cwd,
					i == 0 ? 13.171572875253810 : 10.343145750507619, SMALL);
	}
}
END_TEST

START_TEST(powers_at_the_ends_are_what_they_should_be)
{
	/* 0^0: a leader without congestion is not cut. */
	ck_assert_double_eq(fanin_dual_decrease(0, 2, 2), 0);
	ck_assert_double_eq(fanin_dual_decrease(0, 0, 2), 0);
	ck_assert_double_eq(fanin_dual_decrease(0, 1, 2), 0);
	/* The first leader is halved whatever the congestion is, even the least. */
	ck_assert_double_eq(fanin_dual_decrease(0.01, 2, 2), 1);
	ck_assert_double_eq(fanin_dual_decrease(DBL_MIN, 2, 2), 1);
	/* The last straggler is DCTCP. */
	ck_assert_double_eq(fanin_dual_decrease(0.37, 0, 2), 0.37);
	/* All are halved where each packet is marked. */
	ck_assert_double_eq(fanin_dual_decrease(1, 0, 2), 1);
	ck_assert_double_eq(fanin_dual_decrease(1, 1.3, 2), 1);
	/* (1/16)^(1/2), (1/16)^(1/4), 0.2^(2/3): p = 1 of 3. */
	ck_assert_double_eq(fanin_dual_decrease(1.0 / 16, 1, 2), 0.25);
	ck_assert_double_eq(fanin_dual_decrease(1.0 / 16, 1.5, 2), 0.5);
	ck_assert_double_eq_tol(fanin_dual_decrease(0.2, 1, 3), 0.341995189335339, SMALL);
}
END_TEST

START_TEST(windows_are_never_less_than_one_block)
{
	struct path path;

	path_open(&path, "straw", &usual);
	path_settle(&path, 1, 1);
	for (unsigned round = 0; round < 20; round++)
		path_round(&path, 1);
	ck_assert_double_eq(path.dual.cwd, 1);
	ck_assert(fanin_dual_may_send(&path.dual, 0, 0));
	/* And from there on it grows. */
	path_round(&path, 0);
	ck_assert_double_eq(path.dual.cwd, 2);

	for (unsigned i = 0; i < 20; i++) {
		fanin_dual_on_loss(&path.dual, path.sent, path.sent + 1);
		path.sent++;
		path.dual.lost = false;
	}
	ck_assert_double_eq(path.dual.cwd, 1);
}
END_TEST

/* AACKs of a whole round trip, the first `marks` of them with AECN. */
static void
aacks(struct path *path, uint32_t marks)
{
	do {
		const struct fanin_dual_sample sample = { .block = path->acked++,
							  .next = path->sent++,
							  .gacked = path->acked,
							  .aacked = path->acked,
							  .aecn = marks != 0 };

		marks -= marks != 0;
		fanin_dual_on_aack(&path->dual, &sample);
	} while (path->dual.awd_round.acks != 0);
}

START_TEST(aecn_shrinks_how_far_a_rank_may_lead_by_half_of_beta)
{
	struct path path;

	/*
	 * Blocks 0 to 9 are on their way. AWD is 40/2, and a round trip without AECN is one more.
	 */
	path_open(&path, "straw+limit", &usual);
	path.sent = 10;
	aacks(&path, 0);
	ck_assert_double_eq(path.dual.awd, 21);
	ck_assert_double_eq(path.dual.beta, 0);
	aacks(&path, 0);
	ck_assert_double_eq(path.dual.awd, 22);
	/*
	 * A round trip of 10 AACKs, 2 of them marked: beta = 1/8 * 2/10 = 1/40, 22 (1 - 1/80) =
	 * 21.725.
	 */
	ck_assert_uint_eq(path.dual.awd_round.end - path.acked + 1, 10);
	aacks(&path, 2);
	ck_assert_double_eq_tol(path.dual.beta, 1.0 / 40, TINY);
	ck_assert_double_eq_tol(path.dual.awd, 21.725, TINY);
	/* Each of 10: beta = 7/8 * 1/40 + 1/8 = 47/320, 21.725 (1 - 47/640). */
	aacks(&path, 10);
	ck_assert_double_eq_tol(path.dual.beta, 47.0 / 320, TINY);
	ck_assert_double_eq_tol(path.dual.awd, 21.725 * (1 - 47.0 / 640), TINY);
	/* CWD has not heard of it. */
	ck_assert_double_eq(path.dual.cwd, 10);
	/* Always: down to one block; never: up to W. */
	for (unsigned i = 0; i < 100; i++)
		aacks(&path, UINT32_MAX);
	ck_assert_double_eq(path.dual.awd, 1);
	for (unsigned i = 0; i < 100; i++)
		aacks(&path, 0);
	ck_assert_double_eq(path.dual.awd, W);
}
END_TEST

START_TEST(a_loss_halves_the_window_once_in_a_round_trip)
{
	struct path path;

	path_open(&path, "pa-atp", &usual);
	path.dual.awd = W;
	path_settle(&path, 32, 0.5);
	fanin_dual_on_loss(&path.dual, path.acked, path.sent);
	ck_assert_double_eq(path.dual.cwd, 16);
	/* So were others that were sent before it was known. */
	fanin_dual_on_loss(&path.dual, path.acked + 1, path.sent);
	fanin_dual_on_loss(&path.dual, path.sent - 1, path.sent);
	ck_assert_double_eq(path.dual.cwd, 16);
	ck_assert_uint_eq(path.dual.losses, 1);
	/*
	 * Marks of these blocks, 31 in a round trip of 32, count in alpha and change nothing else:
	 * 7/8 * 1/2 + 1/8 * 31/32.
	 */
	path_round(&path, 31);
	ck_assert_double_eq_tol(path.dual.alpha, 143.0 / 256, TINY);
	ck_assert_double_eq(path.dual.cwd, 16);
	/* What was sent afterwards is another loss. */
	path_send(&path);
	fanin_dual_on_loss(&path.dual, path.sent - 1, path.sent);
	ck_assert_double_eq(path.dual.cwd, 8);
	ck_assert_uint_eq(path.dual.losses, 2);
}
END_TEST

START_TEST(a_loss_ends_slow_start)
{
	struct path path;

	path_open(&path, "straw", &usual);
	path_send(&path);
	for (unsigned i = 0; i < 10; i++)
		path_ack(&path, false);
	ck_assert_double_eq(path.dual.cwd, 20);
	fanin_dual_on_loss(&path.dual, path.acked, path.sent);
	ck_assert_double_eq(path.dual.cwd, 10);
	path_round(&path, 0);
	ck_assert_double_eq(path.dual.cwd, 10);
	path_round(&path, 0);
	ck_assert_double_eq(path.dual.cwd, 11);
}
END_TEST

START_TEST(a_loss_half_the_numbers_later_is_another_one)
{
	struct path path;

	path_open(&path, "straw", &usual);
	path_settle(&path, 32, 0.5);
	fanin_dual_on_loss(&path.dual, path.acked, path.sent);
	ck_assert_double_eq(path.dual.cwd, 16);
	path_round(&path, 0);
	path_round(&path, 0);
	ck_assert(!path.dual.lost);
	ck_assert(!path.dual.cut);
	/* Block numbers that look older than the first loss. */
	fanin_dual_on_loss(&path.dual, path.acked + 0x80000010u, path.sent + 0x80000010u);
	ck_assert_uint_eq(path.dual.losses, 2);
}
END_TEST

START_TEST(acknowledgments_of_blocks_sent_again_end_no_round_trip)
{
	struct fanin_dual_sample sample = { .block = 20, .next = 40, .gacked = 21, .aacked = 21 };
	struct fanin_dual dual;

	fanin_dual_init(&dual, fanin_dual_find("straw"), &usual);
	fanin_dual_on_gack(&dual, &sample);
	/* The round trip ends with block 40 or later ones. */
	for (unsigned i = 0; i < 100; i++) {
		sample.block = 20 + i % 20;
		fanin_dual_on_gack(&dual, &sample);
	}
	ck_assert_uint_eq(dual.rounds, 0);
	sample.block = 43;
	fanin_dual_on_gack(&dual, &sample);
	ck_assert_uint_eq(dual.rounds, 1);
}
END_TEST

Suite *
suite_cc_dual(void)
{
	Suite *suite = suite_create("cc_dual");
	TCase *all = tcase_create("all");

	tcase_add_test(all, each_type_is_found_by_its_name_and_has_its_place);
	tcase_add_test(all, first_windows_are_ten_blocks_and_a_share_of_the_aggregators);
	tcase_add_test(all, blocks_are_held_back_by_both_windows);
	tcase_add_test(all, a_fixed_window_reacts_to_nothing);
	tcase_add_test(all, slow_start_grows_by_one_for_each_gack_until_the_first_mark);
	tcase_add_test(all, after_slow_start_a_round_trip_is_one_block_more);
	tcase_add_loop_test(all, a_window_that_holds_nothing_back_stays, 0, 2);
	tcase_add_test(all, no_mark_no_cut_whatever_progress_and_alpha_are);
	tcase_add_test(all, a_cut_is_by_half_of_alpha);
	tcase_add_test(all, marks_of_what_was_sent_before_a_cut_are_answered);
	tcase_add_test(all, each_type_hears_its_own_clock_only);
	tcase_add_test(all, progress_is_a_share_of_the_average);
	tcase_add_test(all, sums_are_of_64_bits_and_blocks_wrap);
	tcase_add_test(all, round_trips_end_where_blocks_wrap);
	tcase_add_test(all, the_sum_in_the_gack_changes_the_cut);
	tcase_add_test(all, powers_at_the_ends_are_what_they_should_be);
	tcase_add_test(all, windows_are_never_less_than_one_block);
	tcase_add_test(all, aecn_shrinks_how_far_a_rank_may_lead_by_half_of_beta);
	tcase_add_test(all, a_loss_halves_the_window_once_in_a_round_trip);
	tcase_add_test(all, a_loss_ends_slow_start);
	tcase_add_test(all, a_loss_half_the_numbers_later_is_another_one);
	tcase_add_test(all, acknowledgments_of_blocks_sent_again_end_no_round_trip);
	suite_add_tcase(suite, all);
	return suite;
}
