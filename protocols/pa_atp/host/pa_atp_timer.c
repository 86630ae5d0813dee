/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Loss. A gradient without GACK goes to the switch again after a round trip; a result that later
 * ones have overtaken, or that takes too long, is asked for. A query does not send elements: the
 * server repeats the result, or asks the ranks whose gradients it lacks, and each sends its own
 * directly to it. Called by the poll loop only.
 */
#include "pa_atp_internal.h"
#include "hostlib/src/engine/times.h"

#include <stdio.h>

/*
 * Queries and gradients that may be lost within a timeout, one after the other, and their answers
 * with them.
 */
#define REPEATS 50

/*
 * Silence may mean that the core of a switch or a server was taken away for a moment. To send again
 * too early costs more than to wait: sums are flushed before they are complete. What others have
 * overtaken is lost sooner.
 */
#define PATIENCE_NS (10 * 1000000ull)

/*
 * Returns the longest wait before something unanswered is repeated: on a way of several links,
 * either way may lose it many times.
 */
static uint64_t
repeat_most_ns(const struct fanin_engine *engine)
{
	return engine->config.timeout_ns / REPEATS;
}

/*
 * Returns how long no result may come, beyond which it counts as overdue. The round trip to the
 * switch says nothing of the one to the server, and how long blocks take has others' recovery in
 * it: all would wait for each other longer and longer without a bound. At the bound aggregators
 * have usually been flushed by their timers, so that an early query costs no merging.
 */
static uint64_t
result_wait_ns(const struct fanin_engine *engine)
{
	const uint64_t block_ns = engine->block_time.smoothed_ns == 0 ? FANIN_RTO_INITIAL_NS
								      : engine->block_time.rto_ns;

	return fanin_later(fanin_later(fanin_engine_query_wait_ns(engine), PATIENCE_NS),
			   fanin_earlier(block_ns, FANIN_RTO_INITIAL_NS));
}

/* True if a later transmission has a GACK: the way to the switch and back is there. */
static bool
is_overtaken(const struct fanin_pa_atp *pa, const struct fanin_lane *lane)
{
	return fanin_block_before(lane->order, pa->gacked_order);
}

/*
 * Returns how long a GACK may take. In a queue of one's own round trips hardly vary, but each
 * packet more makes them longer: a round trip more is always allowed for. While no block that was
 * sent once has a GACK, nothing is known of longer round trips, and the time doubles (RFC 6298,
 * section 5; Karn's algorithm).
 */
static uint64_t
gack_wait_ns(const struct fanin_pa_atp *pa, const struct fanin_lane *lane)
{
	const struct fanin_engine *engine = &pa->engine;
	const uint64_t least_ns = is_overtaken(pa, lane)
					  ? fanin_engine_query_wait_ns(engine)
					  : fanin_later(fanin_engine_query_wait_ns(engine),
							PATIENCE_NS);
	const uint64_t most_ns = fanin_later(repeat_most_ns(engine), least_ns);
	const uint64_t smoothed_ns = engine->rtt.smoothed_ns;
	const uint64_t slack_ns = fanin_later(smoothed_ns, FANIN_RTO_MIN_NS);
	uint64_t wait_ns = least_ns;
	unsigned int doublings = pa->gack_doublings;

	if (smoothed_ns != 0 && wait_ns < smoothed_ns + slack_ns)
		wait_ns = smoothed_ns + slack_ns;
	/* What was overtaken by the latest copy of another block is more likely lost than late. */
	if (doublings != 0 && is_overtaken(pa, lane))
		doublings--;
	if (lane->transmissions > doublings + 1)
		doublings = lane->transmissions - 1u;
	for (; doublings != 0 && wait_ns < most_ns; doublings--)
		wait_ns *= 2;
	return fanin_earlier(wait_ns, most_ns);
}

/* A GACK took too long. What is found at about the same time is one reason. */
static void
gack_wait_double(struct fanin_pa_atp *pa, uint64_t wait_ns)
{
	if (pa->engine.loop.now_ns < pa->doubled_ns + wait_ns)
		return;
	pa->doubled_ns = pa->engine.loop.now_ns;
	if (pa->gack_doublings < FANIN_PA_ATP_MOST_DOUBLINGS)
		pa->gack_doublings++;
}

static void
loss_note(struct fanin_pa_atp *pa, uint32_t block)
{
	fanin_dual_on_loss(&pa->dual, block - pa->engine.base, pa->next - pa->engine.base);
}

/* Asks for a result that is lost, or not there. Returns when it is due again. */
static uint64_t
lane_ask(struct fanin_engine *engine, struct fanin_lane *lane)
{
	const uint64_t now_ns = engine->loop.now_ns;
	const uint64_t wait_ns = result_wait_ns(engine);
	const uint64_t most_ns = fanin_later(repeat_most_ns(engine), wait_ns);

	if (lane->block == engine->oldest) {
		const uint32_t n_queries = engine->n_queries;
		const uint64_t due_ns = fanin_engine_ask_oldest(engine, lane, true, wait_ns);

		if (engine->n_queries == n_queries)
			return due_ns;
		engine->ask_ns = fanin_earlier(engine->ask_ns, now_ns + most_ns);
		lane->ask_ns = engine->ask_ns;
	} else {
		if (fanin_engine_query(engine, lane->block, false, true) == 0)
			return now_ns + FANIN_RTO_MIN_NS / 2;
		lane->ask_wait_ns = fanin_engine_back_off_ns(engine, lane->ask_wait_ns);
		lane->ask_wait_ns = fanin_earlier(fanin_later(lane->ask_wait_ns, wait_ns), most_ns);
		lane->ask_ns = now_ns + lane->ask_wait_ns;
	}
	lane->asked = true;
	fanin_pa_atp_lane(fanin_pa_atp_of(engine), lane->block)->asked = true;
	return lane->ask_ns;
}

/*
 * Returns how many later results make a gap. Blocks of different workers of a switch overtake each
 * other by bursts.
 */
static uint32_t
gap_of(const struct fanin_engine *engine)
{
	const uint32_t share = engine->config.window / 8u;

	return engine->config.spread && share > FANIN_PA_ATP_GAP ? share : FANIN_PA_ATP_GAP;
}

void
fanin_pa_atp_gap_check(struct fanin_pa_atp *pa)
{
	struct fanin_engine *engine = &pa->engine;
	uint32_t left = gap_of(engine);
	uint32_t end = pa->newest + 1; /* blocks before it have been overtaken by the gap's results
					*/

	while (left != 0 && end != engine->oldest)
		left -= fanin_engine_is_done(engine, --end);
	if (left != 0)
		return;
	if (fanin_block_before(pa->gap_end, engine->oldest))
		pa->gap_end = engine->oldest;
	for (; fanin_block_before(pa->gap_end, end); pa->gap_end++) {
		struct fanin_lane *lane = fanin_engine_lane(engine, pa->gap_end);

		/* Whatever it waited for before, its result is there, and lost. */
		if (lane->block == pa->gap_end && lane->state == FANIN_LANE_SENT) {
			lane->ask_wait_ns = 0;
			/* Without room for a query it is due until there is some. */
			lane->asked = true;
			lane->ask_ns = engine->loop.now_ns;
			fanin_loop_wake_by(&engine->loop, lane_ask(engine, lane));
		}
	}
}

/*
 * A gradient without GACK is sent again when that is overdue; while nothing comes back the oldest
 * one only. Returns when it is due.
 */
static uint64_t
gack_check(struct fanin_pa_atp *pa, struct fanin_lane *lane)
{
	struct fanin_engine *engine = &pa->engine;
	struct fanin_pa_atp_lane *own = fanin_pa_atp_lane(pa, lane->block);
	const uint64_t wait_ns = gack_wait_ns(pa, lane);
	const uint64_t due_ns = fanin_later(own->direct_ns, lane->sent_ns) + wait_ns;

	if (own->gacked || lane->role != FANIN_LANE_DENSE ||
	    (lane->block != pa->gacked && !is_overtaken(pa, lane)))
		return UINT64_MAX;
	if (due_ns > engine->loop.timers_ns)
		return due_ns;
	if (!fanin_engine_send(engine, lane))
		return engine->loop.now_ns + FANIN_RTO_MIN_NS / 2;
	own->disturbed = true;
	engine->stats.retransmits++;
	loss_note(pa, lane->block);
	gack_wait_double(pa, wait_ns);
	return engine->loop.now_ns + gack_wait_ns(pa, lane);
}

/*
 * A result that was asked for is asked for again; the oldest also if none has come for too long.
 * Returns when it is due.
 */
static uint64_t
result_check(struct fanin_engine *engine, struct fanin_lane *lane)
{
	const bool is_oldest = lane->block == engine->oldest;
	uint64_t due_ns = lane->ask_ns;

	if (!lane->asked && !is_oldest)
		return UINT64_MAX;
	if (!lane->asked)
		due_ns = fanin_later(lane->sent_ns, engine->progress_ns) + result_wait_ns(engine);
	if (is_oldest)
		due_ns = fanin_later(due_ns, engine->ask_ns);
	return due_ns > engine->loop.timers_ns ? due_ns : lane_ask(engine, lane);
}

/*
 * The server has been silent for a while, although the switch had the oldest gradient: sends that
 * again now and then, so that the switch answers if it is there, and a timeout names the right one.
 * Returns when it is due.
 */
static uint64_t
switch_probe(struct fanin_pa_atp *pa, struct fanin_lane *lane)
{
	struct fanin_engine *engine = &pa->engine;
	const uint64_t timeout_ns = engine->config.timeout_ns;
	const uint64_t due_ns = fanin_later(engine->heard_ns + timeout_ns / 10 * 7, pa->probe_ns);

	if (lane->role != FANIN_LANE_DENSE || !fanin_pa_atp_lane(pa, lane->block)->gacked)
		return UINT64_MAX;
	if (due_ns > engine->loop.timers_ns)
		return due_ns;
	if (!fanin_engine_send(engine, lane))
		return engine->loop.now_ns + FANIN_RTO_MIN_NS / 2;
	engine->stats.retransmits++;
	pa->probe_ns = engine->loop.now_ns + timeout_ns / 10;
	return pa->probe_ns;
}

void
fanin_pa_atp_scan(struct fanin_engine *engine)
{
	struct fanin_pa_atp *pa = fanin_pa_atp_of(engine);
	uint64_t next_ns = UINT64_MAX;

	for (uint32_t block = engine->oldest; block != pa->next; block++) {
		struct fanin_lane *lane = fanin_engine_lane(engine, block);

		if (lane->block != block || lane->state != FANIN_LANE_SENT)
			continue;
		next_ns = fanin_earlier(next_ns, gack_check(pa, lane));
		next_ns = fanin_earlier(next_ns, result_check(engine, lane));
		if (block == engine->oldest)
			next_ns = fanin_earlier(next_ns, switch_probe(pa, lane));
	}
	engine->loop.next_timer_ns = next_ns;
}

/* True if the switch has acknowledged enough gradients that were sent after this one. */
static bool
later_ones_arrived(const struct fanin_pa_atp *pa, uint32_t block)
{
	uint32_t n = 0;

	for (block++; block != pa->next && n < FANIN_PA_ATP_GAP; block++)
		n += fanin_pa_atp_lane(pa, block)->gacked;
	return n == FANIN_PA_ATP_GAP;
}

/* Sends a gradient to the server, past all aggregators. */
static void
direct_send(struct fanin_pa_atp *pa, struct fanin_lane *lane)
{
	struct fanin_engine *engine = &pa->engine;
	struct fanin_pa_atp_lane *own = fanin_pa_atp_lane(pa, lane->block);
	struct fanin_hdr *hdr = &engine->headers.fanin;
	uint32_t payload_len;
	const void *payload = fanin_engine_contribution(lane, hdr, &payload_len);
	bool is_sent;

	hdr->type = FANIN_TYPE_PARTIAL;
	hdr->flags |= FANIN_FLAG_DIRECT;
	hdr->members = UINT64_C(1) << engine->config.rank;
	is_sent = fanin_engine_send_elements(engine, lane, payload, payload_len);
	hdr->members = 0;
	if (!is_sent)
		return;
	own->direct_ns = engine->loop.now_ns;
	own->disturbed = true;
	engine->stats.frames_sent++;
	pa->stats.asks_answered++;
	if (!own->gacked)
		loss_note(pa, lane->block);
}

/*
 * The server lacks what this rank has sent of a block. It is sent again if it has arrived at the
 * switch, and is lost further up, or if it is lost on its way there; not while it may still be on
 * its way.
 */
static void
lane_answer(struct fanin_pa_atp *pa, struct fanin_lane *lane)
{
	struct fanin_engine *engine = &pa->engine;
	const bool is_overdue = engine->loop.now_ns - lane->sent_ns >=
				fanin_engine_query_wait_ns(engine);

	if (lane->role != FANIN_LANE_DENSE) {
		/* What this rank has of the block is its result. */
		if (is_overdue && fanin_engine_send(engine, lane))
			pa->stats.asks_answered++;
	} else if (fanin_pa_atp_lane(pa, lane->block)->gacked || is_overdue ||
		   later_ones_arrived(pa, lane->block)) {
		direct_send(pa, lane);
	}
}

void
fanin_pa_atp_receive_ask(struct fanin_pa_atp *pa, const struct fanin_hdr *hdr, uint32_t block)
{
	struct fanin_lane *lane = fanin_engine_lane(&pa->engine, block);

	if ((hdr->members >> pa->engine.config.rank & 1) != 0 && lane->block == block &&
	    lane->state == FANIN_LANE_SENT)
		lane_answer(pa, lane);
}

/*
 * The server also asks for what it lacks, by a packet of its own: here this only means that the
 * wait is not for others.
 */
void
fanin_pa_atp_filter_missing(struct fanin_engine *engine, struct fanin_answer_ranks *ranks)
{
	struct fanin_pa_atp *pa = fanin_pa_atp_of(engine);
	const struct fanin_ranks own = fanin_ranks_one(engine->config.rank);

	pa->is_lacked = fanin_ranks_meet(&ranks->missing, &own);
	pa->lacked = engine->oldest;
	if (!pa->is_lacked)
		return;
	/*
	 * Nor is it known to be for others as long as this rank's is not there: if large packets do
	 * not pass, the server lacks all, and ranks that took each other for late would wait for
	 * ever.
	 */
	if (fanin_ranks_is_empty(&ranks->ended) && fanin_ranks_is_empty(&ranks->silent))
		ranks->missing = (struct fanin_ranks){ 0 };
	fanin_ranks_subtract(&ranks->missing, &own);
	/* The next query is not put off. */
	engine->ask_wait_ns = fanin_earlier(engine->ask_wait_ns, repeat_most_ns(engine));
}

bool
fanin_pa_atp_explain(struct fanin_engine *engine, char *text, size_t text_len)
{
	const struct fanin_pa_atp *pa = fanin_pa_atp_of(engine);
	struct fanin_ranks missing;
	char ranks[128];

	if (engine->loop.now_ns - engine->heard_ns < engine->config.timeout_ns / 2) {
		snprintf(
			text, text_len,
			pa->is_lacked && pa->lacked == engine->oldest
				? "the job's server lacks what this rank has sent of block %u: do packets of this size pass?"
				: "the job's server answers, but the result of block %u never comes: do packets of this size pass?",
			engine->oldest);
		return true;
	}
	if (pa->gack_ns == 0 || engine->loop.now_ns - pa->gack_ns >= engine->config.timeout_ns / 2)
		return false;
	fanin_engine_missing(&engine->endpoint, &missing);
	if (fanin_ranks_is_empty(&missing))
		snprintf(
			text, text_len,
			"the job's server does not answer, but the switch does (block %u was sent %u times)",
			engine->oldest, fanin_engine_lane(engine, engine->oldest)->transmissions);
	else
		snprintf(
			text, text_len,
			"the job's server does not answer any more, but the switch does; block %u waited for %s (of %u)",
			engine->oldest, fanin_format_ranks(&missing, ranks, sizeof(ranks)),
			engine->config.size);
	return true;
}
