/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The window protocol as a table (protocol/protocol.h), for all dense handlers: every rank
 * contributes to each block.
 */
#include "window.h"

/* ------------------------------------------------------------------ the rules */

/* A block b also waits for the result of b - w, where w is the window of congestion control. */
static void
window_ready(struct fanin_engine *engine, struct fanin_lane *lane)
{
	const uint32_t window = engine->config.window;

	/*
	 * If runs can be resumed, lanes must not run further ahead than one window: ranks would
	 * have to keep more results.
	 */
	if (engine->config.recover && lane->block - engine->oldest >= window)
		return;
	/* The lane has reached this block, so the block W before it is done. */
	if (engine->cc.window < window &&
	    !fanin_engine_is_done(engine, lane->block - engine->cc.window))
		return;
	fanin_engine_queue(engine, lane);
}

static void
window_send(struct fanin_engine *engine)
{
	fanin_engine_send_queued(engine);
	/* Checked first because most polls send nothing. */
	if (engine->order - engine->probe_order >= FANIN_ENGINE_PROBE_MIN)
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
	/* Dense handlers need no fields of their own here. */
	.is_usual = true,
	.has_custom = true,
	.has_tags = true,
	.collectives = FANIN_ENGINE_COLLECTIVES,
	FANIN_WINDOW_FUNCTIONS,
};

FANIN_PROTOCOL_REGISTER(fanin_protocol_window)
