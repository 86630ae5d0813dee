/* SPDX-License-Identifier: BSD-3-Clause */
/* See dual.h. */
#include "dual.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

/* CWD's initial value, as TCP's (RFC 6928). */
#define INITIAL_CWD 10

#define USUAL_WEIGHT (1.0 / 8)
#define USUAL_P_MAX 2.0

const struct fanin_dual_type fanin_dual_types[FANIN_DUAL_TYPES] = {
	{
		.name = "sync",
		.description = "fixed window, clocked by results",
		.clock = FANIN_DUAL_AACK,
	},
	{
		.name = "atp",
		.description = "window by ECN, clocked by results",
		.clock = FANIN_DUAL_AACK,
		.ecn = true,
	},
	{
		.name = "straw",
		.description = "window by ECN, each rank by itself",
		.clock = FANIN_DUAL_GACK,
		.ecn = true,
	},
	{
		.name = "straw+progress",
		.description = "window by ECN and progress, each rank by itself",
		.clock = FANIN_DUAL_GACK,
		.ecn = true,
		.progress = true,
	},
	{
		.name = "straw+limit",
		.description =
			"window by ECN, each rank by itself within a window by aggregators in use",
		.clock = FANIN_DUAL_GACK,
		.ecn = true,
		.limit = true,
	},
	{
		.name = "pa-atp",
		.description =
			"window by ECN and progress, each rank by itself within a window by aggregators in use",
		.clock = FANIN_DUAL_GACK,
		.ecn = true,
		.progress = true,
		.limit = true,
	},
};

const struct fanin_dual_type *
fanin_dual_find(const char *name)
{
	for (size_t i = 0; i < FANIN_DUAL_TYPES; i++) {
		if (strcmp(fanin_dual_types[i].name, name) == 0)
			return &fanin_dual_types[i];
	}
	return NULL;
}

static double
bounded(double value, double least, double most)
{
	if (value < least)
		return least;
	return value > most ? most : value;
}

void
fanin_dual_init(struct fanin_dual *dual, const struct fanin_dual_type *type,
		const struct fanin_dual_settings *settings)
{
	const double limit = settings->limit;
	const uint32_t jobs = settings->sharing_jobs == 0 ? 1 : settings->sharing_jobs;

	/*
	 * alpha begins at 1, as in RFC 8257: the first mark halves the window, which slow start may
	 * have doubled in the round trip before. beta begins at 0: the first AWD is a fair share.
	 */
	*dual = (struct fanin_dual){
		.type = type,
		.settings = *settings,
		.alpha = type->ecn ? 1 : 0,
		.p = 1,
		.slow_start = type->ecn,
	};
	if (dual->settings.f == 0)
		dual->settings.f = USUAL_WEIGHT;
	if (dual->settings.w == 0)
		dual->settings.w = USUAL_WEIGHT;
	if (dual->settings.p_max == 0)
		dual->settings.p_max = USUAL_P_MAX;
	if (type->ecn)
		dual->cwd = bounded(INITIAL_CWD, 1, limit);
	else
		dual->cwd = settings->fixed_window == 0 ? limit
							: bounded(settings->fixed_window, 1, limit);
	dual->awd = type->limit ? bounded(settings->aggregators / jobs, 1, limit) : limit;
}

bool
fanin_dual_may_send(struct fanin_dual *dual, uint32_t in_flight, uint32_t ahead)
{
	if (ahead >= (uint32_t)dual->awd)
		return false;
	if (in_flight < (uint32_t)dual->cwd)
		return true;
	dual->limited = true;
	return false;
}

/*
 * Returns base^exponent, both 0 to 1, as the product of the base's roots selected by the exponent's
 * binary digits.
 */
static double
power(double base, double exponent)
{
	double product = 1;

	for (unsigned i = 0; i < 32 && exponent > 0; i++) {
		base = sqrt(base);
		exponent *= 2;
		if (exponent >= 1) {
			product *= base;
			exponent -= 1;
		}
	}
	return product;
}

double
fanin_dual_decrease(double alpha, double p, double p_max)
{
	if (alpha <= 0)
		return 0;
	/* p = 0: the exponent is 1, but power() takes only binary digits below 1. */
	return p <= 0 ? alpha : power(alpha, 1 - p / p_max);
}

double
fanin_dual_progress(const struct fanin_dual_sample *sample, uint32_t n_ranks, double p_max)
{
	/*
	 * Sums of progress are less than 2^31, so they are correct modulo 2^32 even if block
	 * numbers wrap around.
	 */
	const int32_t own = (int32_t)(sample->gacked - sample->aacked);
	const int32_t all = (int32_t)((uint32_t)sample->sum - n_ranks * sample->aacked);

	if (all <= 0)
		return 1;
	return bounded((double)own * n_ranks / all, 0, p_max);
}

/* Counts an acknowledgment. Returns whether it ends the round trip. */
static bool
round_count(struct fanin_dual_round *round, const struct fanin_dual_sample *sample, bool marked)
{
	if (!round->begun) {
		round->begun = true;
		round->end = sample->next;
	}
	round->acks++;
	round->marks += marked;
	return (int32_t)(sample->block - round->end) >= 0;
}

/* Returns the level after the round trip, and begins the next one. */
static double
round_end(struct fanin_dual_round *round, const struct fanin_dual_sample *sample, double level,
	  double weight)
{
	const double share = (double)round->marks / round->acks;

	*round = (struct fanin_dual_round){ .begun = true, .end = sample->next };
	return (1 - weight) * level + weight * share;
}

static void
cwd_set(struct fanin_dual *dual, double cwd)
{
	dual->cwd = bounded(cwd, 1, dual->settings.limit);
}

/*
 * Packets sent before a cut saw the queue that the cut is meant to drain, so their marks and losses
 * are ignored.
 */
static void
cut_note(struct fanin_dual *dual, uint32_t next)
{
	dual->cut = true;
	dual->cut_end = next;
}

static void
cwd_on_mark(struct fanin_dual *dual, const struct fanin_dual_sample *sample)
{
	const double p = dual->type->progress ? dual->p : 0;

	dual->slow_start = false;
	if (dual->cut && (int32_t)(sample->block - dual->cut_end) < 0)
		return;
	cwd_set(dual,
		dual->cwd * (1 - fanin_dual_decrease(dual->alpha, p, dual->settings.p_max) / 2));
	cut_note(dual, sample->next);
	dual->cuts++;
}

/* Handles an acknowledgment of the kind that clocks CWD. first: first block without one. */
static void
cwd_on_ack(struct fanin_dual *dual, const struct fanin_dual_sample *sample, uint32_t first)
{
	const bool ended = round_count(&dual->cwd_round, sample, sample->ce);
	const bool marked = dual->cwd_round.marks > 0;

	if (dual->cut && (int32_t)(first - dual->cut_end) > 0)
		dual->cut = false;
	if (dual->lost && (int32_t)(first - dual->loss_end) > 0)
		dual->lost = false;
	if (sample->ce)
		cwd_on_mark(dual, sample);
	else if (dual->slow_start && dual->limited)
		cwd_set(dual, dual->cwd + 1);
	if (!ended)
		return;
	dual->alpha = round_end(&dual->cwd_round, sample, dual->alpha, dual->settings.f);
	dual->rounds++;
	if (!marked && !dual->lost_in_round && !dual->slow_start && dual->limited)
		cwd_set(dual, dual->cwd + 1);
	dual->limited = false;
	dual->lost_in_round = false;
}

void
fanin_dual_on_gack(struct fanin_dual *dual, const struct fanin_dual_sample *sample)
{
	dual->p = fanin_dual_progress(sample, dual->settings.n_ranks, dual->settings.p_max);
	if (dual->type->ecn && dual->type->clock == FANIN_DUAL_GACK)
		cwd_on_ack(dual, sample, sample->gacked);
}

static void
awd_on_ack(struct fanin_dual *dual, const struct fanin_dual_sample *sample)
{
	const bool ended = round_count(&dual->awd_round, sample, sample->aecn);
	const bool marked = dual->awd_round.marks > 0;

	if (!ended)
		return;
	dual->beta = round_end(&dual->awd_round, sample, dual->beta, dual->settings.w);
	dual->awd = bounded(marked ? dual->awd * (1 - dual->beta / 2) : dual->awd + 1, 1,
			    dual->settings.limit);
}

void
fanin_dual_on_aack(struct fanin_dual *dual, const struct fanin_dual_sample *sample)
{
	if (dual->type->ecn && dual->type->clock == FANIN_DUAL_AACK)
		cwd_on_ack(dual, sample, sample->aacked);
	if (dual->type->limit)
		awd_on_ack(dual, sample);
}

void
fanin_dual_on_loss(struct fanin_dual *dual, uint32_t block, uint32_t next)
{
	if (!dual->type->ecn || (dual->lost && (int32_t)(block - dual->loss_end) < 0))
		return;
	dual->lost = true;
	dual->loss_end = next;
	cut_note(dual, next);
	dual->slow_start = false;
	dual->lost_in_round = true;
	dual->losses++;
	cwd_set(dual, dual->cwd / 2);
}
