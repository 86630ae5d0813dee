/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Decides when to send queries, and when to give up. An overdue block causes a query, and a timer
 * never sends it again: the answer tells what was lost (query.c). While nothing comes back only the
 * oldest block is queried, at intervals that double. Other blocks are queried only if later results
 * have overtaken them, or if a switch has sent them up, where they may be lost. Called by the poll
 * loop only.
 */
#include "engine_internal.h"
#include "times.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/*
 * Maximum interval of queries while ranks are late and their switch answers: each query makes the
 * switch watch them for 5 s.
 */
#define ASK_MAX_NS (2000 * 1000000ull)

uint64_t
fanin_engine_back_off_ns(const struct fanin_engine *engine, uint64_t wait_ns)
{
	const uint64_t max_ns = 2 * fanin_engine_retry_max_ns(engine);

	wait_ns = wait_ns == 0 ? fanin_engine_query_wait_ns(engine) : 2 * wait_ns;
	if (wait_ns > ASK_MAX_NS)
		wait_ns = ASK_MAX_NS;
	return fanin_earlier(wait_ns, max_ns);
}

/*
 * Records an overdue query. A block that the switch has sent up, and that takes too long, is lost
 * above the switch or in a long queue.
 */
static void
asked_note(struct fanin_engine *engine, struct fanin_lane *lane)
{
	if (!lane->asked && lane->told == FANIN_BLOCK_SENT)
		engine->cc.type->on_loss(&engine->cc, engine->loop.now_ns);
	lane->asked = true;
}

uint64_t
fanin_engine_ask_oldest(struct fanin_engine *engine, struct fanin_lane *lane, bool overdue,
			uint64_t wait_ns)
{
	if (fanin_engine_query(engine, lane->block, true, overdue) == 0)
		return engine->loop.now_ns + FANIN_RTO_MIN_NS / 2;
	if (overdue)
		asked_note(engine, lane);
	engine->ask_wait_ns = fanin_engine_back_off_ns(engine, engine->ask_wait_ns);
	engine->retry_ns = fanin_engine_back_off_ns(engine, engine->retry_ns);
	/*
	 * An answer from further up takes longer than a round trip, and a long interval leaves time
	 * for it.
	 */
	if (engine->retry_ns < engine->ask_wait_ns / 32)
		engine->retry_ns = engine->ask_wait_ns / 32;
	if (engine->retry_ns < wait_ns)
		engine->retry_ns = wait_ns;
	if (engine->retry_ns > fanin_engine_retry_max_ns(engine))
		engine->retry_ns = fanin_engine_retry_max_ns(engine);
	engine->ask_ns = engine->loop.now_ns + engine->retry_ns;
	return engine->ask_ns;
}

/*
 * Checks the oldest block, which everything else waits for. First a query asks the switch for its
 * state; then overdue queries make the switch act. The intervals grow while answers come, and are
 * short again if none comes. Returns when the next query is due.
 */
static uint64_t
oldest_check(struct fanin_engine *engine, struct fanin_lane *lane)
{
	const bool sent_up = lane->told == FANIN_BLOCK_SENT;
	const uint64_t max_ns = fanin_engine_ask_max_ns(engine);
	/*
	 * The duration of blocks without data says nothing of their round trips, and a needless
	 * query costs no more than they do.
	 */
	const bool waits = engine->rules->waits_for_ranks;
	const uint64_t wait_ns = waits     ? 2 * fanin_engine_query_wait_ns(engine)
				 : sent_up ? fanin_engine_above_wait_ns(engine)
					   : fanin_engine_query_wait_ns(engine);
	uint64_t due_ns = lane->sent_ns + fanin_earlier(wait_ns, max_ns);
	const bool overdue = engine->ask_wait_ns != 0 || lane->told >= FANIN_BLOCK_SENT;

	if (due_ns < engine->ask_ns)
		due_ns = engine->ask_ns;
	if (due_ns > engine->loop.timers_ns)
		return due_ns;
	return fanin_engine_ask_oldest(engine, lane, overdue, wait_ns);
}

/* A query about this block also asks about those after it. */
static void
covered_postpone(struct fanin_engine *engine, uint32_t block, uint64_t wait_ns)
{
	for (uint32_t i = 0; i < FANIN_ANSWER_BLOCKS && i < engine->config.window; i++) {
		struct fanin_lane *lane = fanin_engine_lane(engine, block + i);

		if (lane->block == block + i && lane->told < FANIN_BLOCK_SENT) {
			lane->ask_wait_ns = wait_ns;
			lane->ask_ns = engine->loop.now_ns + wait_ns;
		}
	}
}

/*
 * Checks a block that was lost so often that sending it again is delayed. Returns when its query is
 * due.
 */
static uint64_t
held_check(struct fanin_engine *engine, struct fanin_lane *lane)
{
	const bool all = !fanin_engine_may_reorder(engine);

	if (lane->ask_ns > engine->loop.timers_ns)
		return lane->ask_ns;
	if (fanin_engine_query(engine, lane->block, all, false) == 0)
		return engine->loop.now_ns + FANIN_RTO_MIN_NS / 2;
	lane->ask_wait_ns = fanin_engine_back_off_ns(engine, lane->ask_wait_ns);
	lane->ask_ns = engine->loop.now_ns + lane->ask_wait_ns;
	if (all)
		covered_postpone(engine, lane->block, lane->ask_wait_ns);
	return lane->ask_ns;
}

/*
 * Checks any other block: queries it only if it was overtaken, and not while it waits for other
 * ranks. Returns when the next query is due; UINT64_MAX: only after something comes in.
 */
static uint64_t
lane_check(struct fanin_engine *engine, struct fanin_lane *lane)
{
	const bool overdue = lane->told >= FANIN_BLOCK_SENT;
	uint64_t due_ns = lane->sent_ns + 2 * engine->rtt.rto_ns;

	if (lane->held)
		return held_check(engine, lane);
	if (lane->told == FANIN_BLOCK_OPEN || lane->sent_ns >= engine->overtaken_ns)
		return UINT64_MAX;
	if (lane->told == FANIN_BLOCK_SENT &&
	    due_ns < lane->sent_ns + fanin_engine_above_wait_ns(engine))
		due_ns = lane->sent_ns + fanin_engine_above_wait_ns(engine);
	if (due_ns < lane->ask_ns)
		due_ns = lane->ask_ns;
	if (due_ns > engine->loop.timers_ns)
		return due_ns;
	if (fanin_engine_query(engine, lane->block, !overdue, overdue) == 0)
		return engine->loop.now_ns + FANIN_RTO_MIN_NS / 2;
	if (!overdue) {
		lane->ask_wait_ns = fanin_engine_back_off_ns(engine, lane->ask_wait_ns);
		covered_postpone(engine, lane->block, lane->ask_wait_ns);
		return lane->ask_ns;
	}
	asked_note(engine, lane);
	lane->ask_wait_ns = fanin_engine_back_off_ns(engine, lane->ask_wait_ns);
	lane->ask_ns = engine->loop.now_ns + lane->ask_wait_ns;
	return lane->ask_ns;
}

void
fanin_engine_scan(struct fanin_engine *engine)
{
	uint64_t next_ns = UINT64_MAX;

	for (uint32_t i = 0; i < engine->config.window; i++) {
		struct fanin_lane *lane = fanin_engine_lane(engine, engine->oldest + i);
		uint64_t due_ns;

		if (lane->state != FANIN_LANE_SENT)
			continue;
		due_ns = i == 0 && lane->block == engine->oldest ? oldest_check(engine, lane)
								 : lane_check(engine, lane);
		if (due_ns < next_ns)
			next_ns = due_ns;
	}
	engine->loop.next_timer_ns = next_ns;
}

/* Returns advice for the case that the kernel refuses frames. */
static const char *
tx_advice(int errnum)
{
	switch (errnum) {
	case EMSGSIZE:
		return ": the interface's MTU is less than when the job was joined (ip link)";
	case ENETDOWN:
	case ENXIO:
	case ENODEV:
		return ": the interface is down or gone (ip link)";
	case EPERM:
		return ": a firewall or queueing discipline refuses the packets (nft list ruleset, tc qdisc)";
	default:
		return "";
	}
}

/*
 * Formats what is known about ranks that are waited for. All ranks behind a switch count as missing
 * as long as one of them is. So the text ascribes to a rank only what was said of that rank.
 */
static void
absence_format(const struct fanin_engine *engine, const struct fanin_ranks *missing, char *text)
{
	const struct fanin_answer_ranks *told = &engine->told.ranks;
	struct fanin_ranks gone = engine->run_lost ? engine->rejoin.gone : told->ended;
	enum fanin_ranks_are are = engine->run_lost ? FANIN_RANKS_GONE : FANIN_RANKS_ENDED;

	if (!engine->run_lost && !fanin_ranks_meet(&gone, missing)) {
		gone = told->silent;
		are = FANIN_RANKS_SILENT;
	}
	fanin_ranks_keep(&gone, missing);
	if (fanin_ranks_is_empty(&gone) &&
	    (!engine->run_lost || fanin_ranks_meet(&engine->rejoin.late, missing))) {
		gone = *missing;
		are = FANIN_RANKS_LATE;
	}
	fanin_format_absence(missing, engine->config.size, &gone, are, text);
}

/*
 * Writes why nothing comes from the switch, or from above it. missing: the ranks that are known to
 * be missing; NULL: none are.
 */
static void
silence_explain(struct fanin_engine *engine, const char *missing, char *detail, size_t len)
{
	if (engine->rules->explain != NULL && engine->rules->explain(engine, detail, len))
		return;
	if (missing != NULL)
		snprintf(
			detail, len,
			"the switch, or one above it, does not answer any more; block %u waited for %s (of %u)",
			engine->oldest, missing, engine->config.size);
	else
		snprintf(detail, len, "the switch does not answer (block %u was sent %u times)",
			 engine->oldest, fanin_engine_lane(engine, engine->oldest)->transmissions);
}

/* Returns the maximum size in bytes of the IPv4 packets of the oldest block. */
static uint32_t
packet_bytes(const struct fanin_engine *engine)
{
	const struct fanin_lane *lane = fanin_engine_lane(engine, engine->oldest);
	uint32_t payload_len = engine->config.payload_bytes;

	if (lane->role == FANIN_LANE_DENSE && lane->request != NULL)
		payload_len = fanin_request_extent(lane->request, lane->block).len;
	return FANIN_PAYLOAD_OFFSET - FANIN_ETH_LEN + payload_len;
}

/* Returns why nothing is received, as far as the transport knows, or NULL. */
static const char *
trouble_of(const struct fanin_engine *engine)
{
	struct fanin_transport *transport = engine->loop.transport;

	return transport->ops->rx_trouble != NULL ? transport->ops->rx_trouble(transport) : NULL;
}

/*
 * Explains that the switch answers, but packets with data don't get there, or don't come back.
 * Returns false if this is not the case. waiting: the other ranks that the block lacks, as "; it
 * lacks rank 3, too", or empty.
 */
static bool
loss_explain(const struct fanin_engine *engine, const char *waiting, char *detail, size_t len)
{
	const struct fanin_last_answer *told = &engine->told;

	if (told->time_ns == 0 || told->block != engine->oldest)
		return false;
	if (told->state == FANIN_BLOCK_ABSENT)
		snprintf(
			detail, len,
			"block %u was sent %u times and never arrived at the switch, which answers queries: do packets of %u bytes pass, or is an MTU "
			"on the way less (ip link, faninctl ports)?%s",
			engine->oldest, fanin_engine_lane(engine, engine->oldest)->transmissions,
			packet_bytes(engine), waiting);
	else if (told->state == FANIN_BLOCK_DONE && trouble_of(engine) != NULL)
		snprintf(detail, len,
			 "the switch has sent the result of block %u, and it never came",
			 engine->oldest);
	else if (told->state == FANIN_BLOCK_DONE)
		snprintf(
			detail, len,
			"the switch has sent the result of block %u, and it never came: do packets of %u bytes pass, or is an MTU on the way less (ip "
			"link, faninctl ports), or does a firewall drop them?",
			engine->oldest, packet_bytes(engine));
	else
		return false;
	return true;
}

/* Explains why a block could not be sent even once. */
static void
refusal_explain(const struct fanin_engine *engine, char *detail, size_t len)
{
	struct fanin_transport *transport = engine->loop.transport;

	/* No other packet waits in the transport that could be in the way. */
	if (transport->ops->tx_waiting != NULL && transport->ops->tx_waiting(transport) == 0)
		snprintf(
			detail, len,
			"block %u could not be sent: the interface takes no packets of %u bytes, although none waits: is the MTU of its link's other "
			"end less (faninctl ports)?",
			engine->oldest, packet_bytes(engine));
	else
		snprintf(detail, len, "block %u could not be sent, the send ring is full",
			 engine->oldest);
}

/*
 * Writes why the oldest block has no result, in a run that the switch has not lost. ranks: those
 * that the block lacks, empty if unknown. absence: these ranks and what is known of them.
 */
static void
wait_explain(struct fanin_engine *engine, bool answers, const char *ranks, const char *absence,
	     char *detail, size_t len)
{
	const struct fanin_lane *lane = fanin_engine_lane(engine, engine->oldest);
	const bool is_known = ranks[0] != '\0';
	char waiting[192] = "";

	if (is_known)
		snprintf(waiting, sizeof(waiting), "; it lacks %s, too", ranks);
	if (lane->state == FANIN_LANE_READY || lane->state == FANIN_LANE_QUEUED)
		refusal_explain(engine, detail, len);
	else if (answers && engine->told.state == FANIN_BLOCK_ABSENT &&
		 loss_explain(engine, waiting, detail, len))
		return;
	else if (answers && is_known)
		snprintf(detail, len, "block %u waits for %s", engine->oldest, absence);
	else if (answers && engine->stale_reason != FANIN_REASON_NONE)
		snprintf(detail, len, "the switch refuses block %u: %s", engine->oldest,
			 fanin_reason_text(engine->stale_reason));
	else if (!answers || !loss_explain(engine, waiting, detail, len))
		silence_explain(engine, is_known ? ranks : NULL, detail, len);
}

/* Fails with "no result for 5.0 s: ..." and all that is known about why. */
static void
engine_time_out(struct fanin_engine *engine)
{
	uint64_t silent_ns = engine->loop.now_ns - engine->progress_ns;
	const char *trouble;
	struct fanin_ranks missing;
	bool has_hint = engine->hint != NULL && engine->hint[0] != '\0';
	bool answers = engine->loop.now_ns - engine->heard_ns < engine->config.timeout_ns / 2 ||
		       engine->stale_reason != FANIN_REASON_NONE;
	char ranks[128] = "";
	char absence[FANIN_ABSENCE_LEN] = "";
	char detail[448];
	char link[256] = "";

	if (engine->rules->time_out != NULL && !engine->run_lost && engine->rules->time_out(engine))
		return;
	trouble = trouble_of(engine);
	if (engine->loop.tx_errnum != 0)
		snprintf(link, sizeof(link), "; sending fails: %s%s",
			 strerror(engine->loop.tx_errnum), tx_advice(engine->loop.tx_errnum));
	else if (trouble != NULL)
		snprintf(link, sizeof(link), "; %s", trouble);
	fanin_engine_missing(&engine->endpoint, &missing);
	if (!fanin_ranks_is_empty(&missing)) {
		fanin_format_ranks(&missing, ranks, sizeof(ranks));
		absence_format(engine, &missing, absence);
	}

	if (engine->run_lost && ranks[0] != '\0')
		snprintf(detail, sizeof(detail),
			 "the switch has lost the run, and a new one waits for %s", absence);
	else if (engine->run_lost)
		snprintf(detail, sizeof(detail),
			 "the switch has lost the run, and not all ranks have joined a new one");
	else
		wait_explain(engine, answers, ranks, absence, detail, sizeof(detail));

	fanin_error_set(&engine->loop.error, 0, "no result for %.1f s: %s%s%s%s",
			(double)silent_ns / 1e9, detail, link, has_hint ? "; " : "",
			has_hint ? engine->hint : "");
	engine->loop.error.missing = missing;
	fanin_engine_fail(engine, FANIN_ERR_TIMEOUT);
}

/*
 * True if a rank that all others wait for is gone. After a run is lost, earlier answers no longer
 * count.
 */
static bool
waits_for_gone(const struct fanin_engine *engine)
{
	const struct fanin_last_answer *told = &engine->told;

	if (engine->run_lost)
		return fanin_ranks_meet(&engine->rejoin.gone, &engine->rejoin.missing);
	/* A link may be down for a moment. */
	return told->block == engine->oldest &&
	       (told->ended || (told->silent_ns != 0 && told->time_ns - told->silent_ns >=
								fanin_engine_retry_max_ns(engine)));
}

/*
 * True once waiting must end. The engine waits for late ranks as long as the switch says that the
 * block is open and lacks no rank that is gone, or that a new run lacks only ranks known to be
 * late. The timeout limits any other cause, such as packets that never arrive or a silent switch.
 */
static bool
has_timed_out(const struct fanin_engine *engine)
{
	const struct fanin_protocol_config *config = &engine->config;
	const uint64_t waited_ns = engine->loop.now_ns - engine->progress_ns;
	const uint64_t late_answer_ns = fanin_later(engine->late_answer_ns, engine->progress_ns);

	if (config->wait_limit_ns != 0 && waited_ns >= config->wait_limit_ns)
		return true;
	if (waited_ns < config->timeout_ns)
		return false;
	if (waits_for_gone(engine))
		return true;
	return engine->loop.now_ns - late_answer_ns >= config->timeout_ns;
}

void
fanin_engine_check_timers(struct fanin_loop *loop)
{
	struct fanin_engine *engine = fanin_engine_of_loop(loop);

	if (engine->loop.requests.first == NULL && engine->n_known == 0) {
		engine->suspected = FANIN_REASON_NONE;
		return;
	}
	if (engine->rules->limits != NULL)
		engine->rules->limits(engine);
	else if (has_timed_out(engine))
		engine_time_out(engine);
	if (engine->loop.status != FANIN_OK)
		return;
	fanin_engine_refusal_check(engine);
	if (engine->loop.status != FANIN_OK)
		return;
	if (engine->run_lost || engine->loop.timers_ns < engine->loop.next_timer_ns)
		return;
	engine->rules->scan(engine);
}
