/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Congestion control by delay. A window that is too large makes packets wait in queues: half of it
 * would have half the delay and the same goodput. If a window is not too large, halving it does not
 * shorten the delay. So half the window is tried now and then for a few rounds, and the mean delays
 * are compared. By Little's law this compares goodputs: w blocks in flight for a mean time d are w
 * / d blocks a second.
 *
 * One comparison proves little where cores are busy: kernels schedule them for milliseconds at a
 * time, and both windows may happen to be measured in a good phase. So half the window and all of
 * it take turns, and half of it has to be sufficient in each turn. The first turn in which it is
 * not ends the trial.
 *
 * The smallest delay ever seen, which Vegas and BBR use, is no measure here: where cores are busy a
 * round trip takes 0.1 ms if all processes happen to run, and 20 ms on average, whatever the
 * window. With 4 hosts on two idle cores windows of 64 and 256 blocks have the same goodput and
 * pings of 1 and 4 ms; beside two busy loops, 64 has a third of the goodput of 256.
 *
 * The window begins small and doubles with each round until it is W. Queues may be shorter than W
 * blocks, and the blocks that they drop have to be sent again before delays can teach anything.
 * Links lose packets at random, whatever the window. But if a round loses many more blocks than
 * others did, queues overflow, and the window is halved, or reduced further to the part that was
 * not lost. If that does not help, the losses are random after all.
 *
 * A block also waits for other hosts. Hosts run trials at the same block numbers, so that both
 * delays include the same waits.
 */
#include "cc.h"

/* Half the window is sufficient as long as all halvings together keep this much of W's goodput. */
#define GOODPUT_ONE 1024
#define MIN_GOODPUT (GOODPUT_ONE * 93 / 100)

/*
 * With a delay of a + b w, doubling the window gains 1/10 of goodput if the delay grows to less
 * than 17/10.
 */
#define GROW_NUMERATOR 17
#define GROW_DENOMINATOR 10

/* A mean covers this many windows of blocks, and at least this many blocks. */
#define ROUNDS 2
#define MIN_SAMPLES 64

/* Comparisons in a row that half the window has to pass. */
#define TURNS 3

/*
 * A delay counts as at most this many times the mean: a host that computes for a second says
 * nothing about the network.
 */
#define CLIP 4

/*
 * A trial begins each time this many times W blocks are done. Each trial that changes nothing
 * doubles the period, up to the second number of doublings. A trial runs three windows at half the
 * goodput, which costs 1 % with the longest period.
 */
#define PERIOD_WINDOWS 16
#define PERIOD_DOUBLINGS 4

/*
 * Minimum of the window. A window whose blocks take less than this time does not shrink either:
 * queues that short come from the scheduling of cores.
 */
#define SMALLEST 64
#define SHORT_NS (2 * 1000000ull)

/*
 * Queues overflow if a round loses this many of each 1024 blocks, and twice as many as the round
 * that lost least.
 */
#define OVERFLOW 256

static void
window_set(struct fanin_cc *cc, uint32_t window)
{
	/* Blocks that were sent with a larger window may be found lost for some time. */
	cc->delay.settled = window > cc->window;
	cc->window = window;
	cc->generation++;
	cc->delay.done = 0;
	cc->delay.lost = 0;
	cc->delay.sum_ns = 0;
	cc->delay.n = 0;
	cc->delay.skip = window;
}

static void
delay_init(struct fanin_cc *cc)
{
	if (cc->limit > SMALLEST)
		cc->window = SMALLEST;
	cc->delay = (struct fanin_cc_delay){
		.steady = cc->window,
		.skip = cc->window,
		.goodput = GOODPUT_ONE,
		.searching = -1,
		.starting = cc->window < cc->limit,
		.settled = true,
		.min_lost = UINT32_MAX,
	};
}

/* Ends a trial with this steady window. steady_ns: its mean delay; 0: unknown. */
static void
trial_end(struct fanin_cc *cc, uint32_t steady, uint64_t steady_ns, int8_t searching)
{
	cc->delay.trying = false;
	cc->delay.turn = 0;
	cc->delay.searching = searching;
	cc->delay.steady = steady;
	cc->delay.steady_ns = steady_ns;
	window_set(cc, steady);
}

/*
 * Returns the goodput with half the window relative to W's, after comparisons with these sums of
 * delays.
 */
static uint64_t
goodput_of_half(const struct fanin_cc_delay *delay)
{
	return delay->half_ns == 0 ? 0 : delay->goodput * delay->full_ns / (2 * delay->half_ns);
}

static void
goodput_set(struct fanin_cc *cc, uint64_t goodput)
{
	cc->delay.goodput = goodput < GOODPUT_ONE ? (uint32_t)goodput : GOODPUT_ONE;
}

static void
grow(struct fanin_cc *cc)
{
	const uint32_t window = 2 * cc->delay.steady;

	goodput_set(cc,
		    window < cc->limit ? cc->delay.goodput + cc->delay.goodput / 10 : GOODPUT_ONE);
	trial_end(cc, window < cc->limit ? window : cc->limit, 0, 1);
}

static void
trial_begin(struct fanin_cc *cc)
{
	cc->delay.trying = true;
	window_set(cc, cc->delay.steady / 2);
}

/* Judges a completed comparison. A search ends where its direction would change. */
static void
trial_judge(struct fanin_cc *cc, uint64_t half_ns)
{
	struct fanin_cc_delay *delay = &cc->delay;
	const uint32_t steady = delay->steady;
	const bool grows = delay->steady_ns * GROW_DENOMINATOR < half_ns * GROW_NUMERATOR;
	const bool shrinks = !grows && delay->steady_ns >= SHORT_NS && steady >= 2 * SMALLEST;

	delay->full_ns += delay->steady_ns;
	delay->half_ns += half_ns;
	delay->turn++;
	if (shrinks && delay->turn < TURNS) {
		delay->trying = false;
		window_set(cc, steady);
		return;
	}
	if (shrinks && goodput_of_half(delay) >= MIN_GOODPUT) {
		goodput_set(cc, goodput_of_half(delay));
		trial_end(cc, steady / 2, delay->half_ns / delay->turn,
			  delay->searching > 0 ? 0 : -1);
	} else if (grows && delay->turn == 1 && delay->searching >= 0 && steady < cc->limit) {
		grow(cc);
	} else {
		trial_end(cc, steady, delay->steady_ns, 0);
	}
	if (delay->steady != steady)
		delay->doublings = 0;
	else if (delay->doublings < PERIOD_DOUBLINGS)
		delay->doublings++;
}

static void
steady_judge(struct fanin_cc *cc, uint64_t mean_ns, uint32_t block)
{
	struct fanin_cc_delay *delay = &cc->delay;
	const uint32_t period = block / ((PERIOD_WINDOWS * cc->limit) << delay->doublings)
				<< delay->doublings;

	delay->steady_ns = mean_ns;
	delay->sum_ns = 0;
	delay->n = 0;
	if (delay->turn != 0) {
		trial_begin(cc);
		return;
	}
	/* The block numbers have started again: in another run, or after 2^32. */
	if (period + (1u << PERIOD_DOUBLINGS) < delay->period)
		delay->period = period;
	/*
	 * The phase since the last check does not matter: trials of all hosts are at multiples of
	 * the longest period.
	 */
	if (delay->searching == 0 && delay->period >= period)
		return;
	/* With all of W only a smaller window can be tried. */
	if (mean_ns < SHORT_NS && delay->steady == cc->limit)
		return;
	delay->period = block / (PERIOD_WINDOWS * cc->limit);
	delay->full_ns = 0;
	delay->half_ns = 0;
	trial_begin(cc);
}

static void
start_grow(struct fanin_cc *cc)
{
	cc->delay.steady = 2 * cc->window < cc->limit ? 2 * cc->window : cc->limit;
	cc->delay.starting = cc->delay.steady < cc->limit;
	window_set(cc, cc->delay.steady);
}

/*
 * Returns the window after a round that overflowed a queue: half of it, or less if less than half
 * of it was not lost.
 */
static uint32_t
window_that_fits(const struct fanin_cc *cc, uint32_t lost)
{
	const uint32_t fits = lost < 1024 ? cc->window - cc->window * lost / 1024 : 0;
	uint32_t window = SMALLEST;

	while (2 * window <= fits && 4 * window <= cc->window)
		window *= 2;
	return window;
}

/* Judges a round that has ended. */
static void
round_judge(struct fanin_cc *cc)
{
	struct fanin_cc_delay *delay = &cc->delay;
	const uint32_t lost = (uint32_t)((uint64_t)delay->lost * 1024 / cc->window);
	const bool in_vain = cc->window > SMALLEST && delay->overflow != 0 &&
			     lost >= delay->overflow / 4 * 3;
	const bool overflows = lost >= OVERFLOW && lost / 2 >= delay->min_lost;

	delay->done = 0;
	delay->lost = 0;
	delay->overflow = 0;
	if (in_vain || lost < delay->min_lost)
		delay->min_lost = lost;
	if (!in_vain && overflows && cc->window > SMALLEST) {
		delay->starting = false;
		delay->doublings = 0;
		delay->overflow = lost;
		trial_end(cc, window_that_fits(cc, lost), 0, -1);
	} else if (in_vain) {
		delay->searching = 1;
	} else if (delay->starting) {
		start_grow(cc);
	}
}

/* Counts a block that is done, and that was sent with this window or an earlier one. */
static void
round_note(struct fanin_cc *cc, const struct fanin_cc_sample *sample)
{
	struct fanin_cc_delay *delay = &cc->delay;

	/* Losses of an earlier, larger window say nothing about this one. */
	if (!delay->settled && sample->generation == cc->generation) {
		delay->settled = true;
		delay->done = 0;
		delay->lost = 0;
	}
	if (delay->settled && ++delay->done >= cc->window)
		round_judge(cc);
}

static void
delay_on_delay(struct fanin_cc *cc, const struct fanin_cc_sample *sample)
{
	struct fanin_cc_delay *delay = &cc->delay;
	const uint32_t enough = ROUNDS * cc->window > MIN_SAMPLES ? ROUNDS * cc->window
								  : MIN_SAMPLES;
	uint64_t max_ns = CLIP * delay->steady_ns;

	round_note(cc, sample);
	if (delay->starting || sample->generation != cc->generation || cc->limit < 2 * SMALLEST)
		return;
	if (delay->skip != 0) {
		delay->skip--;
		return;
	}
	delay->sum_ns += max_ns != 0 && sample->delay_ns > max_ns ? max_ns : sample->delay_ns;
	if (++delay->n < enough)
		return;
	if (delay->trying)
		trial_judge(cc, delay->sum_ns / delay->n);
	else
		steady_judge(cc, delay->sum_ns / delay->n, sample->block);
}

static void
delay_on_loss(struct fanin_cc *cc, uint64_t now_ns)
{
	(void)now_ns;
	cc->delay.lost++;
}

const struct fanin_cc_type fanin_cc_delay = {
	.name = "delay",
	.description = "no more blocks in flight than goodput needs",
	.init = delay_init,
	.on_delay = delay_on_delay,
	.on_loss = delay_on_loss,
};
