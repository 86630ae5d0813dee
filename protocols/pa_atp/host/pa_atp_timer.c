/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Loss recovery. A gradient without GACK goes to the switch again after a round trip. A result that
 * is overtaken or overdue is asked for. A QUERY carries no elements: the server repeats the result,
 * or asks the ranks whose gradients it lacks, and each of these ranks sends its gradient straight
 * to the server. Called by the poll loop only.
 */
#include "pa_atp_internal.h"
#include "hostlib/src/engine/times.h"

#include <stdio.h>

/*
 * Number of queries and gradients that may be lost, with their answers, one after the other within
 * a timeout.
 */
#define REPEATS 50

/*
 * Minimum wait before silence counts as loss: a switch or a server may have lost its core for a
 * moment. Retransmitting too early costs more than waiting, because sums are flushed before they
 * are complete. A packet that others have overtaken counts as lost sooner.
 */
#define PATIENCE_NS (10 * 1000000ull)

/*
 * Returns the longest wait before an unanswered packet is repeated. On a path of several links,
 * packets may be lost many times in either direction.
 */
static uint64_t
repeat_max_ns(const struct fanin_engine *engine)
{
	return engine->config.timeout_ns / REPEATS;
}

/*
 * Returns how long a result may take before it is overdue. The round trip to the switch does not
 * include the one to the server. The measured time of blocks includes the recovery of other ranks;
 * without a bound, all ranks would wait for each other longer and longer. At the bound timers have
 * usually flushed the aggregators, so an early query costs no merging.
 */
static uint64_t
result_wait_ns(const struct fanin_engine *engine)
{
	const uint64_t block_ns = engine->block_time.smoothed_ns == 0 ? FANIN_RTO_INITIAL_NS
								      : engine->block_time.rto_ns;

	return fanin_later(fanin_later(fanin_engine_query_wait_ns(engine), PATIENCE_NS),
			   fanin_earlier(block_ns, FANIN_RTO_INITIAL_NS));
}

/* True if a later transmission has a GACK: the path to the switch and back works. */
static bool
is_overtaken(const struct fanin_pa_atp *pa, const struct fanin_lane *lane)
{
	return fanin_block_before(lane->order, pa->gacked_order);
}

/*
 * Returns how long a GACK may take. In a queue of a host's own packets round trips hardly vary, but
 * each further packet makes them longer, so one more round trip is always allowed for. While no
 * block that was sent once has a GACK, longer round trips are unknown, and the time doubles (RFC
 * 6298, section 5; Karn's algorithm).
 */
static uint64_t
gack_wait_ns(const struct fanin_pa_atp *pa, const struct fanin_lane *lane)
{
	const struct fanin_engine *engine = &pa->engine;
	const uint64_t min_ns = is_overtaken(pa, lane)
					? fanin_engine_query_wait_ns(engine)
					: fanin_later(fanin_engine_query_wait_ns(engine),
						      PATIENCE_NS);
	const uint64_t max_ns = fanin_later(repeat_max_ns(engine), min_ns);
	const uint64_t smoothed_ns = engine->rtt.smoothed_ns;
	const uint64_t slack_ns = fanin_later(smoothed_ns, FANIN_RTO_MIN_NS);
	uint64_t wait_ns = min_ns;
	unsigned int doublings = pa->gack_doublings;

	if (smoothed_ns != 0 && wait_ns < smoothed_ns + slack_ns)
		wait_ns = smoothed_ns + slack_ns;
	/*
	 * A block that the latest copy of another block has overtaken is more likely lost than
	 * late.
	 */
	if (doublings != 0 && is_overtaken(pa, lane))
		doublings--;
	if (lane->transmissions > doublings + 1)
		doublings = lane->transmissions - 1u;
	for (; doublings != 0 && wait_ns < max_ns; doublings--)
		wait_ns *= 2;
	return fanin_earlier(wait_ns, max_ns);
}

/* A GACK is overdue. Overdue GACKs found at about the same time count as one event. */
static void
gack_wait_double(struct fanin_pa_atp *pa, uint64_t wait_ns)
{
	if (pa->engine.loop.now_ns < pa->doubled_ns + wait_ns)
		return;
	pa->doubled_ns = pa->engine.loop.now_ns;
	if (pa->gack_doublings < FANIN_PA_ATP_MAX_DOUBLINGS)
		pa->gack_doublings++;
}

static void
loss_note(struct fanin_pa_atp *pa, uint32_t block)
{
	fanin_dual_on_loss(&pa->dual, block - pa->engine.base, pa->next - pa->engine.base);
}

/* Asks for a result that is lost or not made yet. Returns when it is due again. */
static uint64_t
lane_ask(struct fanin_engine *engine, struct fanin_lane *lane)
{
	const uint64_t now_ns = engine->loop.now_ns;
	const uint64_t wait_ns = result_wait_ns(engine);
	const uint64_t max_ns = fanin_later(repeat_max_ns(engine), wait_ns);

	if (lane->block == engine->oldest) {
		const uint32_t n_queries = engine->n_queries;
		const uint64_t due_ns = fanin_engine_ask_oldest(engine, lane, true, wait_ns);

		if (engine->n_queries == n_queries)
			return due_ns;
		engine->ask_ns = fanin_earlier(engine->ask_ns, now_ns + max_ns);
		lane->ask_ns = engine->ask_ns;
	} else {
		if (fanin_engine_query(engine, lane->block, false, true) == 0)
			return now_ns + FANIN_RTO_MIN_NS / 2;
		lane->ask_wait_ns = fanin_engine_back_off_ns(engine, lane->ask_wait_ns);
		lane->ask_wait_ns = fanin_earlier(fanin_later(lane->ask_wait_ns, wait_ns), max_ns);
		lane->ask_ns = now_ns + lane->ask_wait_ns;
	}
	lane->asked = true;
	fanin_pa_atp_lane(fanin_pa_atp_of(engine), lane->block)->asked = true;
	return lane->ask_ns;
}

/*
 * Returns how many later results make a gap. Blocks of different workers of a switch overtake each
 * other in bursts.
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

		/* The block's result was made and is lost, whatever the block waited for before. */
		if (lane->block == pa->gap_end && lane->state == FANIN_LANE_SENT) {
			lane->ask_wait_ns = 0;
			/* If there is no room for a query, it stays due until there is room. */
			lane->asked = true;
			lane->ask_ns = engine->loop.now_ns;
			fanin_loop_wake_by(&engine->loop, lane_ask(engine, lane));
		}
	}
}

/*
 * Retransmits gradients whose GACK is overdue; only the oldest one while nothing comes back.
 * Returns when the gradient is due.
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
 * Repeats the query for a result that was asked for. Asks for the oldest result also if no result
 * has come for too long. Returns when it is due.
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
 * The server has been silent for a while, although the switch had the oldest gradient. Retransmits
 * that gradient now and then, so that the switch answers if it is alive, and a timeout names the
 * right one. Returns when it is due.
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

/* Sends a gradient straight to the server, past all aggregators. */
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
 * The server lacks this rank's data of a block. The gradient is sent again if it reached the switch
 * and was lost further up, or if it was lost on its way to the switch; not while it may still be on
 * its way.
 */
static void
lane_answer(struct fanin_pa_atp *pa, struct fanin_lane *lane)
{
	struct fanin_engine *engine = &pa->engine;
	const bool is_overdue = engine->loop.now_ns - lane->sent_ns >=
				fanin_engine_query_wait_ns(engine);

	if (lane->role != FANIN_LANE_DENSE) {
		/* This rank's data of the block is the block's result. */
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
 * The server also asks for missing data by ASK. Here the missing ranks only show that the wait is
 * not for others.
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
	 * While this rank's data is missing, the wait is not known to be for others, either. If
	 * large packets do not get through, the server lacks all data, and ranks that took each
	 * other for late would wait for ever.
	 */
	if (fanin_ranks_is_empty(&ranks->ended) && fanin_ranks_is_empty(&ranks->silent))
		ranks->missing = (struct fanin_ranks){ 0 };
	fanin_ranks_subtract(&ranks->missing, &own);
	/* The next query is not delayed. */
	engine->ask_wait_ns = fanin_earlier(engine->ask_wait_ns, repeat_max_ns(engine));
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
