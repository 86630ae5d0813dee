/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reports of an engine between polls: the ranks that it waits for, and its counters. Also its table
 * of functions for communicators.
 */
#include "engine_internal.h"

#include "hostlib/src/base/report.h"

/* Returns the ranks that the oldest block waits for, as far as known. */
static struct fanin_answer_ranks
waits_for(struct fanin_engine *engine)
{
	struct fanin_answer_ranks ranks;

	if (engine->rules->waits_for != NULL) {
		engine->rules->waits_for(engine, &ranks);
		return ranks;
	}
	if (engine->told.time_ns == 0 || engine->told.block != engine->oldest ||
	    engine->oldest == engine->end)
		return (struct fanin_answer_ranks){ 0 };
	return engine->told.ranks;
}

void
fanin_engine_missing(struct fanin_endpoint *endpoint, struct fanin_ranks *ranks)
{
	struct fanin_engine *engine = fanin_engine_of(endpoint);

	if (engine->loop.status != FANIN_OK)
		*ranks = engine->loop.error.missing;
	else if (engine->run_lost)
		*ranks = engine->rejoin.missing;
	else
		*ranks = waits_for(engine).missing;
}

void
fanin_engine_late(struct fanin_endpoint *endpoint, struct fanin_ranks *ranks)
{
	struct fanin_engine *engine = fanin_engine_of(endpoint);
	struct fanin_answer_ranks known;

	if (engine->loop.status != FANIN_OK) {
		*ranks = (struct fanin_ranks){ 0 };
		return;
	}
	if (engine->run_lost) {
		*ranks = engine->rejoin.late;
		return;
	}
	known = waits_for(engine);
	*ranks = known.missing;
	fanin_ranks_subtract(ranks, &known.ended);
	fanin_ranks_subtract(ranks, &known.silent);
}

const struct fanin_engine_stats *
fanin_engine_stats(struct fanin_endpoint *endpoint)
{
	struct fanin_engine *engine = fanin_engine_of(endpoint);

	return &engine->stats;
}

void
fanin_engine_report(struct fanin_endpoint *endpoint, struct fanin_report *report)
{
	const struct fanin_engine_stats *stats = fanin_engine_stats(endpoint);
	struct fanin_ranks late;

	fanin_engine_late(endpoint, &late);
#define FILL(field, trees) report->field = stats->field;
	FANIN_REPORT_ENGINE(FILL)
#undef FILL
	report->late = late.words[0];
	report->n_late = fanin_ranks_count(&late);
}

const struct fanin_switch_ops fanin_engine_on_switch = {
	.cut = fanin_engine_cut,
	.accepts = fanin_engine_accepts,
	.abort = fanin_engine_abort,
	.run_lost = fanin_engine_run_lost,
	.suspect_run = fanin_engine_suspect_run,
	.note_rejoin = fanin_engine_note_rejoin,
	.progress = fanin_engine_progress,
	.resume = fanin_engine_resume,
	.move = fanin_engine_move,
	.redirect = fanin_engine_redirect,
	.hint = fanin_engine_hint,
	.peers_may_need_results = fanin_engine_peers_may_need_results,
};
