/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The window protocol as a table (protocol/protocol.h): for all dense handlers, whose blocks get a
 * contribution from every rank.
 */
#include "window.h"

/* ------------------------------------------------------------------ the rules */

/*
 * Block b is sent once the result of b - w is there, too, where w is the window of the congestion
 * control.
 */
static void
window_ready(struct fanin_engine *engine, struct fanin_lane *lane)
{
	const uint32_t window = engine->config.window;

	/*
	 * Where runs can be resumed, lanes that run ahead would leave more results to be kept than
	 * one window.
	 */
	if (engine->config.recover && lane->block - engine->oldest >= window)
		return;
	/* A lane is at its block only once the one W before it is done. */
	if (engine->cc.window < window &&
	    !fanin_engine_is_done(engine, lane->block - engine->cc.window))
		return;
	fanin_engine_queue(engine, lane);
}

static void
window_send(struct fanin_engine *engine)
{
	fanin_engine_send_queued(engine);
	/* Most polls send nothing. */
	if (engine->order - engine->probe_order >= FANIN_ENGINE_PROBE_LEAST)
		fanin_engine_probe(engine);
}

const struct fanin_engine_rules fanin_window_rules = {
	.size = sizeof(struct fanin_engine),
	.has_owners = true,
	.samples_asked = true,
	.ready = window_ready,
	.send = window_send,
	.scan = fanin_engine_scan,
};

/* ------------------------------------------------------------------ the protocol */

static const char *const handlers[] = { "single", "multi", "tree", NULL };

struct fanin_protocol fanin_protocol_window = {
	.name = "window",
	.handlers = handlers,
	/* A dense handler needs no fields of its own here. */
	.is_usual = true,
	.has_custom = true,
	.has_tags = true,
	.collectives = FANIN_ENGINE_COLLECTIVES,
	FANIN_WINDOW_FUNCTIONS,
};

FANIN_PROTOCOL_REGISTER(fanin_protocol_window)
