/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * When Canary asks for a block, and when it gives up. A block is overdue when it takes longer than
 * blocks usually do. The time counts from when the block became the oldest one, or a later block
 * had its result first. So blocks that merely wait for a late rank cause one question at a time, at
 * intervals that double. Called by the poll loop only.
 */
#include "canary_internal.h"
#include "hostlib/src/engine/times.h"

#include <stdio.h>

/* Number of questions to a rank that does not answer, within a timeout. */
#define MIN_QUESTIONS 64

static uint64_t
ask_max_ns(const struct fanin_canary *canary)
{
	return canary->engine.config.timeout_ns / 10;
}

uint64_t
fanin_canary_usual_ns(const struct fanin_canary *canary)
{
	/*
	 * A descriptor does not wait once all ranks of its last block have come, so measured times
	 * may not include its timers.
	 */
	return fanin_earlier(fanin_later(canary->engine.block_time.rto_ns,
					 canary->engine.rtt.rto_ns + canary->fixed_ns),
			     ask_max_ns(canary));
}

static bool
query_send(struct fanin_canary *canary, uint32_t block)
{
	const uint16_t leader = canary_leader_of(canary, block);
	const struct canary_lane *own = canary_lane(canary, block);
	const struct canary_packet packet = { .flow = block + own->n_sent,
					      .attempt = own->n_asked };
	struct fanin_headers headers;

	fanin_canary_begin(canary, FANIN_TYPE_QUERY, block, &headers);
	/* 0 is not a valid number. */
	canary->n_queries += 1 + (canary->n_queries == UINT32_MAX);
	headers.fanin.number = canary->n_queries;
	headers.fanin.count = 1;
	headers.fanin.flags = FANIN_FLAG_RETRANSMIT;
	if (!fanin_canary_send_to(canary, &headers, leader, &packet))
		return false;
	canary->questions[canary->n_queries % CANARY_QUESTIONS] =
		(struct canary_question){ canary->n_queries, canary->engine.loop.now_ns };
	canary_note_asked(canary, leader);
	canary->engine.stats.queries++;
	return true;
}

/* True if a rank that the block waits for has not answered the last question. */
static bool
is_unanswered(const struct fanin_canary *canary, uint32_t block)
{
	uint64_t asked = UINT64_C(1) << canary_leader_of(canary, block);

	if (canary_leads(canary, block))
		asked = fanin_canary_lacks(canary, block);
	for (; asked != 0; asked &= asked - 1) {
		if (canary->peers[__builtin_ctzll(asked)].asked_ns != 0)
			return true;
	}
	return false;
}

/*
 * Returns the interval after this question. It grows while answers come, and is short after a lost
 * one.
 */
static uint64_t
next_wait_ns(const struct fanin_canary *canary, const struct fanin_lane *lane)
{
	const uint64_t usual_ns = fanin_canary_usual_ns(canary);
	const uint64_t wait_ns = lane->ask_wait_ns == 0 ? usual_ns : 2 * lane->ask_wait_ns;
	const uint64_t max_ns =
		is_unanswered(canary, lane->block)
			? fanin_later(usual_ns, canary->engine.config.timeout_ns / MIN_QUESTIONS)
			: ask_max_ns(canary);

	return fanin_earlier(wait_ns, fanin_earlier(max_ns, ask_max_ns(canary)));
}

void
fanin_canary_block_ask(struct fanin_canary *canary, uint32_t block)
{
	struct fanin_lane *lane = fanin_engine_lane(&canary->engine, block);
	struct canary_lane *own = canary_lane(canary, block);

	lane->ask_wait_ns = next_wait_ns(canary, lane);
	if (canary_leads(canary, block)) {
		fanin_canary_ask(canary, block, fanin_canary_lacks(canary, block), own->n_sent);
	} else if (!query_send(canary, block)) {
		lane->ask_ns = canary->engine.loop.now_ns + FANIN_ENGINE_NO_ROOM_NS;
		return;
	}
	own->n_sent++;
	own->n_asked++;
	lane->asked = true;
	lane->ask_ns = canary->engine.loop.now_ns + lane->ask_wait_ns;
}

/* Returns when the block's next question is due; UINT64_MAX: not before something has come. */
static uint64_t
block_check(struct fanin_canary *canary, uint32_t block)
{
	const struct fanin_lane *lane = fanin_engine_lane(&canary->engine, block);
	uint64_t due_ns = canary_lane(canary, block)->overtaken_ns;

	if (!canary_waits(canary, block))
		return UINT64_MAX;
	if (due_ns == 0 && block == canary->engine.oldest)
		due_ns = canary->oldest_ns;
	else if (due_ns == 0)
		return UINT64_MAX;
	due_ns = fanin_later(fanin_later(due_ns, lane->sent_ns) + fanin_canary_usual_ns(canary),
			     lane->ask_ns);
	if (due_ns > canary->engine.loop.timers_ns)
		return due_ns;
	fanin_canary_block_ask(canary, block);
	return lane->ask_ns;
}

uint64_t
fanin_canary_silent_for(const struct fanin_canary *canary, uint64_t ns)
{
	uint64_t silent = 0;

	for (unsigned int i = 0; i < canary->engine.config.size; i++) {
		const uint64_t asked_ns = canary->peers[i].asked_ns;

		if (asked_ns != 0 && canary->engine.loop.now_ns - asked_ns >= ns)
			silent |= UINT64_C(1) << i;
	}
	return silent;
}

/* Writes why the oldest block has no result. */
static void
explain(struct fanin_canary *canary, uint64_t silent, char *text, size_t len)
{
	const uint16_t leader = canary_leader_of(canary, canary->engine.oldest);
	struct fanin_ranks missing;
	char absence[FANIN_ABSENCE_LEN];

	if (silent != 0) {
		missing = fanin_ranks_of_word(silent);
		snprintf(text, len, "block %u waits for %s", canary->engine.oldest,
			 fanin_format_absence(&missing, canary->engine.config.size, &missing,
					      FANIN_RANKS_SILENT, absence));
		return;
	}
	fanin_engine_missing(&canary->engine.endpoint, &missing);
	if (!fanin_ranks_is_empty(&missing))
		snprintf(text, len, "block %u waits for %s", canary->engine.oldest,
			 fanin_format_absence(&missing, canary->engine.config.size, &missing,
					      FANIN_RANKS_LATE, absence));
	else if (canary_leads(canary, canary->engine.oldest) ||
		 canary->told_block != canary->engine.oldest)
		snprintf(text, len, "block %u is not done: do packets of this size pass?",
			 canary->engine.oldest);
	else
		snprintf(
			text, len,
			"rank %u, which leads block %u, lacks what this rank has sent: do packets of this size pass?",
			leader, canary->engine.oldest);
}

static void
time_out(struct fanin_canary *canary, uint64_t silent)
{
	const uint64_t self = UINT64_C(1) << canary->engine.config.rank;
	const uint64_t waited_ns = canary->engine.loop.now_ns - canary->engine.progress_ns;
	struct fanin_ranks missing = fanin_ranks_of_word(silent);
	char detail[256];

	explain(canary, silent, detail, sizeof(detail));
	if (silent == 0)
		fanin_engine_missing(&canary->engine.endpoint, &missing);
	/* If no rank can be named, this rank is the one that leaves. */
	fanin_run_end_note(&canary->engine, FANIN_RUN_GONE, silent != 0 ? silent : self);
	fanin_canary_tell_all(canary);
	fanin_error_set(&canary->engine.loop.error, 0, "no result for %.1f s: %s",
			(double)waited_ns / 1e9, detail);
	canary->engine.loop.error.missing = missing;
	fanin_engine_fail(&canary->engine, FANIN_ERR_TIMEOUT);
}

/*
 * Ends the run if a rank has not answered for a timeout, or if no result has come for a timeout and
 * the others are not merely late.
 */
static void
limits_check(struct fanin_canary *canary)
{
	const struct fanin_protocol_config *config = &canary->engine.config;
	const uint64_t now_ns = canary->engine.loop.now_ns;
	const uint64_t waited_ns = now_ns - canary->engine.progress_ns;
	const uint64_t late_answer_ns = fanin_later(canary->engine.late_answer_ns,
						    canary->engine.progress_ns);
	const uint64_t silent = fanin_canary_silent_for(canary, config->timeout_ns);

	if (silent != 0)
		time_out(canary, silent);
	else if ((config->wait_limit_ns != 0 && waited_ns >= config->wait_limit_ns) ||
		 now_ns - late_answer_ns >= config->timeout_ns)
		time_out(canary, fanin_canary_silent_for(canary, config->timeout_ns / 2));
}

void
fanin_canary_limits(struct fanin_engine *engine)
{
	struct fanin_canary *canary = canary_of(engine);

	if (!canary->begun)
		return;
	/*
	 * Before the run has started, the limit for joining ends it, because other ranks may start
	 * late: see fanin_canary_ready.
	 */
	if (!canary->started)
		engine->progress_ns = engine->loop.now_ns;
	limits_check(canary);
}

/* For a run that has not begun. */
static uint64_t
roll_check(struct fanin_canary *canary)
{
	if (canary->engine.config.rank == 0)
		return UINT64_MAX;
	if (canary->call_ns <= canary->engine.loop.timers_ns)
		fanin_canary_call(canary);
	return canary->call_ns;
}

void
fanin_canary_scan(struct fanin_engine *engine)
{
	struct fanin_canary *canary = canary_of(engine);
	uint64_t next_ns = canary->begun ? UINT64_MAX : roll_check(canary);

	for (uint32_t block = engine->oldest; block != canary_next(canary); block++)
		next_ns = fanin_earlier(next_ns, block_check(canary, block));
	engine->loop.next_timer_ns = next_ns;
}
