/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Canary: when to ask, and when to give up. A block is overdue when it takes longer than blocks usually do, counted from when it became the oldest one, or
 * a later one had its result first: blocks that merely wait for a rank that is late cause one question at a time, at intervals that double. Called by
 * the poll loop only.
 */
#include "canary_internal.h"
#include "hostlib/src/engine/times.h"

#include <stdio.h>

/* To a rank that does not answer, in a timeout. */
#define LEAST_QUESTIONS 64

static uint64_t
ask_most_ns(const struct fanin_canary *engine)
{
	return engine->config.timeout_ns / 10;
}

uint64_t
fanin_canary_usual_ns(const struct fanin_canary *engine)
{
	/* Blocks that all ranks of the last one have come for don't wait: of timers they teach nothing. */
	return fanin_earlier(fanin_later(engine->block_time.rto_ns,
					 engine->rtt.rto_ns + engine->fixed_ns),
			     ask_most_ns(engine));
}

static bool
query_send(struct fanin_canary *engine, struct canary_lane *lane)
{
	const uint16_t leader = canary_leader_of(engine, lane->block);
	const struct canary_packet packet = { .flow = lane->block + lane->n_sent,
					      .attempt = lane->n_asked };
	struct fanin_headers headers;

	fanin_canary_begin(engine, FANIN_TYPE_QUERY, lane->block, &headers);
	/* 0 is no number. */
	engine->n_queries += 1 + (engine->n_queries == UINT32_MAX);
	headers.fanin.number = engine->n_queries;
	headers.fanin.count = 1;
	headers.fanin.flags = FANIN_FLAG_RETRANSMIT;
	if (!fanin_canary_send_to(engine, &headers, leader, &packet))
		return false;
	engine->questions[engine->n_queries % CANARY_QUESTIONS] =
		(struct canary_question){ engine->n_queries, engine->loop.now_ns };
	canary_note_asked(engine, leader);
	engine->stats.queries++;
	return true;
}

/* Has a rank that the block waits for not answered the last question? */
static bool
is_unanswered(const struct fanin_canary *engine, const struct canary_lane *lane)
{
	uint64_t asked = UINT64_C(1) << canary_leader_of(engine, lane->block);

	if (canary_leads(engine, lane->block))
		asked = fanin_canary_lacks(engine, lane->block);
	for (; asked != 0; asked &= asked - 1) {
		if (engine->peers[__builtin_ctzll(asked)].asked_ns != 0)
			return true;
	}
	return false;
}

/* The interval after this question: it grows as long as answers come, and is short if one is lost. */
static uint64_t
next_wait_ns(const struct fanin_canary *engine, const struct canary_lane *lane)
{
	const uint64_t usual_ns = fanin_canary_usual_ns(engine);
	const uint64_t wait_ns = lane->ask_wait_ns == 0 ? usual_ns : 2 * lane->ask_wait_ns;
	const uint64_t most_ns = is_unanswered(engine, lane)
					 ? fanin_later(usual_ns,
						       engine->config.timeout_ns / LEAST_QUESTIONS)
					 : ask_most_ns(engine);

	return fanin_earlier(wait_ns, fanin_earlier(most_ns, ask_most_ns(engine)));
}

void
fanin_canary_lane_ask(struct fanin_canary *engine, struct canary_lane *lane)
{
	lane->ask_wait_ns = next_wait_ns(engine, lane);
	if (canary_leads(engine, lane->block)) {
		fanin_canary_ask(engine, lane->block, fanin_canary_lacks(engine, lane->block),
				 lane->n_sent);
	} else if (!query_send(engine, lane)) {
		lane->ask_ns = engine->loop.now_ns + CANARY_NO_ROOM_NS;
		return;
	}
	lane->n_sent++;
	lane->n_asked++;
	lane->asked = true;
	lane->ask_ns = engine->loop.now_ns + lane->ask_wait_ns;
}

/* Returns when the lane's next question is due; UINT64_MAX: only after something has come. */
static uint64_t
lane_check(struct fanin_canary *engine, struct canary_lane *lane)
{
	uint64_t due_ns;

	if (lane->state != CANARY_LANE_SENT)
		return UINT64_MAX;
	if (lane->overtaken_ns != 0)
		due_ns = lane->overtaken_ns;
	else if (lane->block == engine->oldest)
		due_ns = engine->oldest_ns;
	else
		return UINT64_MAX;
	due_ns = fanin_later(fanin_later(due_ns, lane->sent_ns) + fanin_canary_usual_ns(engine),
			     lane->ask_ns);
	if (due_ns > engine->loop.timers_ns)
		return due_ns;
	fanin_canary_lane_ask(engine, lane);
	return lane->ask_ns;
}

/* Ranks that have not answered for so long. */
static uint64_t
silent_for(const struct fanin_canary *engine, uint64_t ns)
{
	uint64_t silent = 0;

	for (unsigned int i = 0; i < engine->config.size; i++) {
		const uint64_t asked_ns = engine->peers[i].asked_ns;

		if (asked_ns != 0 && engine->loop.now_ns - asked_ns >= ns)
			silent |= UINT64_C(1) << i;
	}
	return silent;
}

/* Why the oldest block has no result. */
static void
explain(struct fanin_canary *engine, uint64_t silent, char *text, size_t len)
{
	const uint16_t leader = canary_leader_of(engine, engine->oldest);
	struct fanin_ranks missing;
	char absence[FANIN_ABSENCE_LEN];

	if (silent != 0) {
		missing = fanin_ranks_of_word(silent);
		snprintf(text, len, "block %u waits for %s", engine->oldest,
			 fanin_format_absence(&missing, engine->config.size, &missing,
					      FANIN_RANKS_SILENT, absence));
		return;
	}
	fanin_canary_missing(&engine->endpoint, &missing);
	if (!fanin_ranks_is_empty(&missing))
		snprintf(text, len, "block %u waits for %s", engine->oldest,
			 fanin_format_absence(&missing, engine->config.size, &missing,
					      FANIN_RANKS_LATE, absence));
	else if (canary_leads(engine, engine->oldest) || engine->told_block != engine->oldest)
		snprintf(text, len, "block %u is not done: do packets of this size pass?",
			 engine->oldest);
	else
		snprintf(text, len,
			 "rank %u, which leads block %u, lacks what this rank has sent: do packets of this size pass?",
			 leader, engine->oldest);
}

static void
time_out(struct fanin_canary *engine, uint64_t silent)
{
	const uint64_t self = UINT64_C(1) << engine->config.rank;
	const uint64_t waited_ns = engine->loop.now_ns - engine->progress_ns;
	struct fanin_ranks missing = fanin_ranks_of_word(silent);
	char detail[256];

	explain(engine, silent, detail, sizeof(detail));
	if (silent == 0)
		fanin_canary_missing(&engine->endpoint, &missing);
	/* Without a rank to name it is this one that leaves. */
	fanin_canary_tell_all(engine, FANIN_RUN_GONE, silent != 0 ? silent : self);
	fanin_error_set(&engine->loop.error, 0, "no result for %.1f s: %s", (double)waited_ns / 1e9,
			detail);
	engine->loop.error.missing = missing;
	fanin_canary_fail(engine, FANIN_ERR_TIMEOUT);
}

/*
 * Ends the run if a rank has not answered for a timeout, or if there was no result for so long and others are not merely late.
 */
static void
limits_check(struct fanin_canary *engine)
{
	const struct fanin_protocol_config *config = &engine->config;
	const uint64_t now_ns = engine->loop.now_ns;
	const uint64_t waited_ns = now_ns - engine->progress_ns;
	const uint64_t silent = silent_for(engine, config->timeout_ns);

	if (silent != 0)
		time_out(engine, silent);
	else if ((config->wait_limit_ns != 0 && waited_ns >= config->wait_limit_ns) ||
		 (waited_ns >= config->timeout_ns &&
		  (engine->late_ns == 0 || now_ns - engine->late_ns >= config->timeout_ns)))
		time_out(engine, silent_for(engine, config->timeout_ns / 2));
}

/* Of a run that has not begun. */
static void
roll_timers(struct fanin_canary *engine)
{
	struct fanin_loop *loop = &engine->loop;

	if (engine->config.rank == 0) {
		loop->next_timer_ns = UINT64_MAX;
		return;
	}
	if (engine->call_ns <= loop->timers_ns)
		fanin_canary_call(engine);
	loop->next_timer_ns = engine->call_ns;
}

void
fanin_canary_timers(struct fanin_loop *loop)
{
	struct fanin_canary *engine = canary_of_loop(loop);
	uint64_t next_ns = UINT64_MAX;

	if (loop->requests.first == NULL)
		return;
	if (!engine->begun) {
		if (loop->timers_ns >= loop->next_timer_ns)
			roll_timers(engine);
		return;
	}
	/* As others may start late, the time to join ends this: see fanin_canary_ready. */
	if (!engine->started)
		engine->progress_ns = loop->now_ns;
	limits_check(engine);
	if (loop->status != FANIN_OK || loop->timers_ns < loop->next_timer_ns)
		return;
	for (uint32_t block = engine->oldest; block != engine->next; block++)
		next_ns = fanin_earlier(next_ns, lane_check(engine, canary_lane(engine, block)));
	loop->next_timer_ns = next_ns;
}
