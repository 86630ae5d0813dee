/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sends blocks to their leaders, in order. Block b is sent once all results up to b - W have come.
 * Called by the poll loop only, except for the rule idle_max_ns.
 */
#include "canary_internal.h"

bool
fanin_canary_send_data(struct fanin_canary *canary, uint32_t block, bool direct)
{
	const struct fanin_lane *lane = fanin_engine_lane(&canary->engine, block);
	struct canary_packet packet = { .flow = block + canary_lane(canary, block)->n_sent,
					.is_reply = direct };
	struct fanin_headers headers;

	fanin_canary_begin(canary, FANIN_TYPE_REDUCE, block, &headers);
	packet.payload = fanin_engine_contribution(lane, &headers.fanin, &packet.len);
	headers.fanin.members = UINT64_C(1) << canary->engine.config.rank;
	if (direct)
		headers.fanin.flags |= FANIN_FLAG_DIRECT | FANIN_FLAG_RETRANSMIT;
	if (!fanin_canary_send_to(canary, &headers, canary_leader_of(canary, block), &packet))
		return false;
	canary_lane(canary, block)->n_sent++;
	return true;
}

/* Block 0 is the barrier at the beginning of a run. */
static bool
may_send(const struct fanin_canary *canary)
{
	const struct fanin_engine *engine = &canary->engine;
	const uint32_t next = canary_next(canary);

	if (!canary->begun || next == engine->end)
		return false;
	if (!canary->started)
		return next == 0;
	return next - engine->oldest < engine->config.window &&
	       canary->in_flight < engine->cc.window;
}

/*
 * Sends the next block, or enters it if this rank leads it. Returns false if there is no room now.
 */
static bool
send_next(struct fanin_canary *canary)
{
	struct fanin_engine *engine = &canary->engine;
	const uint32_t block = canary_next(canary);

	*canary_lane(canary, block) = (struct canary_lane){ 0 };
	if (!canary_leads(canary, block) && !fanin_canary_send_data(canary, block, false))
		return false;
	fanin_engine_await(engine, fanin_engine_lane(engine, block));
	canary->in_flight++;
	if (block == engine->oldest || engine->loop.next_timer_ns == UINT64_MAX)
		fanin_loop_wake_by(&engine->loop,
				   engine->loop.now_ns + fanin_canary_usual_ns(canary));
	/* From here on the request may complete and return to its owner. */
	if (canary_leads(canary, block))
		fanin_canary_lead(canary, block);
	return true;
}

/* True if data has to wait. The transport is asked only if enough packets may be waiting. */
static bool
must_hold(struct fanin_canary *canary)
{
	struct fanin_transport *transport = canary->engine.loop.transport;

	if (canary->n_ahead < CANARY_AHEAD)
		return false;
	canary->n_ahead = transport->ops->tx_waiting != NULL ? transport->ops->tx_waiting(transport)
							     : 0;
	return canary->n_ahead >= CANARY_AHEAD;
}

void
fanin_canary_send(struct fanin_engine *engine)
{
	struct fanin_canary *canary = canary_of(engine);

	canary->was_full = false;
	fanin_canary_send_unsent(canary);
	canary->is_held = false;
	while (engine->loop.status == FANIN_OK && !canary->was_full && may_send(canary)) {
		canary->is_held = must_hold(canary);
		if (canary->is_held || !send_next(canary))
			break;
	}
}

uint64_t
fanin_canary_idle_max_ns(struct fanin_engine *engine)
{
	const struct fanin_canary *canary = canary_of(engine);
	const bool has_requests = engine->loop.requests.first != NULL;

	/*
	 * Other ranks wait for a result that there was no room for, even if this rank waits for
	 * nothing.
	 */
	return canary->n_unsent != 0 || (has_requests && (canary->was_full || canary->is_held))
		       ? FANIN_ENGINE_NO_ROOM_NS
		       : UINT64_MAX;
}
