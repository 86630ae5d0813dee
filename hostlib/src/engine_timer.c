/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What is sent again, and when to give up. A block that is overdue is only sent again if it is probably lost: a block
 * sent after it has its result already. As long as nothing at all comes back (a peer is late, its core is busy) only the
 * oldest block is, as a probe: its answer tells who is missing, or brings the result that proves the others lost, unless a
 * second one shows that the probe was not needed. So a slow peer costs a packet now and then instead of a window full.
 * Called by the poll loop only.
 */
#include "engine_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Reordering that is waited for once a block is overdue and overtaken. */
static uint64_t
reordering_ns(const struct fanin_engine *engine)
{
	uint64_t half_ns = engine->rtt.smoothed_ns / 2;

	return half_ns > FANIN_RTO_MIN_NS / 2 ? half_ns : FANIN_RTO_MIN_NS / 2;
}

static void
lane_retransmit(struct fanin_engine *engine, struct fanin_lane *lane)
{
	if (fanin_engine_send(engine, lane)) {
		engine->stats.retransmits++;
		return;
	}
	lane->deadline_ns = engine->now_ns + FANIN_RTO_MIN_NS / 2;
}

uint64_t
fanin_engine_patience_ns(const struct fanin_engine *engine, const struct fanin_lane *lane)
{
	unsigned int times = lane->transmissions < 8 ? lane->transmissions : 8;
	uint64_t wait_ns = engine->rtt.rto_ns;

	if (lane->block == engine->oldest && engine->progress_ns <= lane->sent_ns)
		wait_ns <<= times - 1;
	return wait_ns < engine->rtt.rto_max_ns ? wait_ns : engine->rtt.rto_max_ns;
}

/* One lane past its deadline. */
static void
lane_overdue(struct fanin_engine *engine, struct fanin_lane *lane)
{
	bool overtaken = lane->sent_ns < engine->overtaken_ns;
	uint64_t due_ns = lane->sent_ns + fanin_engine_patience_ns(engine, lane);

	if (due_ns > engine->timers_ns) {
		/* The estimate has grown since, or nothing comes back. */
		lane->deadline_ns = due_ns;
	} else if (lane->block == engine->oldest) {
		lane_retransmit(engine, lane);
	} else if (!overtaken && lane->sent_ns >= engine->probed_ns) {
		lane->suspect = false;
		engine->overdue = true;
	} else if (!lane->suspect) {
		/* By a probe alone: its second result, which would clear it, comes within a round trip. */
		lane->suspect = true;
		lane->deadline_ns = engine->now_ns +
				    (overtaken ? reordering_ns(engine) : engine->rtt.rto_ns);
	} else {
		/* Others came through meanwhile. */
		fanin_rtt_note_loss(&engine->rtt, engine->now_ns);
		lane_retransmit(engine, lane);
	}
}

static void
lanes_scan(struct fanin_engine *engine)
{
	uint64_t next_ns = UINT64_MAX;

	engine->overdue = false;
	engine->next_scan_ns = UINT64_MAX;
	for (uint32_t i = 0; i < engine->config.window; i++) {
		struct fanin_lane *lane = &engine->lanes[i];

		if (lane->state != FANIN_LANE_SENT)
			continue;
		if (lane->deadline_ns <= engine->timers_ns)
			lane_overdue(engine, lane);
		/* One that waits for evidence is looked at again when a result comes. */
		if (lane->deadline_ns > engine->timers_ns && lane->deadline_ns < next_ns)
			next_ns = lane->deadline_ns;
	}
	engine->next_scan_ns = next_ns;
}

/* What to look at when frames are refused. */
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

/* "no result for 5.0 s: ..." with all that is known about why. */
static void
engine_time_out(struct fanin_engine *engine)
{
	const struct fanin_lane *lane = fanin_engine_lane(engine, engine->oldest);
	uint64_t silent_ns = engine->now_ns - engine->progress_ns;
	uint64_t missing = fanin_engine_missing(engine);
	bool has_hint = engine->hint != NULL && engine->hint[0] != '\0';
	bool answers = engine->heard_ns != 0 && engine->now_ns - engine->heard_ns < silent_ns / 2;
	char ranks[128];
	char detail[256];
	char link[256] = "";

	if (engine->tx_errnum != 0)
		snprintf(link, sizeof(link), "; sending fails: %s%s", strerror(engine->tx_errnum),
			 tx_advice(engine->tx_errnum));
	if (missing != 0)
		fanin_format_ranks(missing, ranks, sizeof(ranks));

	if (engine->run_lost)
		snprintf(detail, sizeof(detail),
			 "the switch has lost the run, and not all ranks have joined a new one");
	else if (lane->state == FANIN_LANE_QUEUED)
		snprintf(detail, sizeof(detail),
			 "block %u could not be sent, the send ring is full", engine->oldest);
	else if (answers && missing != 0)
		snprintf(detail, sizeof(detail), "block %u waits for %s (of %u)", engine->oldest,
			 ranks, engine->config.size);
	else if (answers && engine->stale_reason != FANIN_REASON_NONE)
		snprintf(detail, sizeof(detail), "the switch refuses block %u: %s", engine->oldest,
			 fanin_reason_text(engine->stale_reason));
	else if (missing != 0)
		snprintf(detail, sizeof(detail),
			 "the switch does not answer any more; block %u waited for %s (of %u)",
			 engine->oldest, ranks, engine->config.size);
	else
		snprintf(detail, sizeof(detail),
			 "the switch does not answer (block %u was sent %u times)", engine->oldest,
			 lane->transmissions);

	fanin_error_set(&engine->error, 0, "no result for %.1f s: %s%s%s%s", (double)silent_ns / 1e9,
			detail, link, has_hint ? "; " : "", has_hint ? engine->hint : "");
	engine->error.missing = missing;
	fanin_engine_fail(engine, FANIN_ERR_TIMEOUT);
}

void
fanin_engine_check_timers(struct fanin_engine *engine)
{
	if (engine->requests == NULL && engine->n_known == 0)
		return;
	if (engine->now_ns - engine->progress_ns >= engine->config.timeout_ns) {
		engine_time_out(engine);
		return;
	}
	if (!engine->run_lost && engine->timers_ns >= engine->next_scan_ns)
		lanes_scan(engine);
}
