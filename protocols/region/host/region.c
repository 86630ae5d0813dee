/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The host protocol of the handler `region` as a table (protocol/protocol.h): the block engine with
 * the rules of regions. Collectives run as in the window protocol.
 */
#include "region.h"

#include <stdlib.h>

#include "region_internal.h"

/* ------------------------------------------------------------------ the rules */

static int
rules_open(struct fanin_engine *engine, struct fanin_error *error)
{
	struct fanin_region_engine *region = fanin_region_of(engine);

	(void)error;
	region->first = engine->config.parameters[FANIN_REGION_BASE];
	region->bytes = engine->config.parameters[FANIN_REGION_BYTES];
	region->next_lane = engine->oldest;
	region->window_max = fanin_region_window(engine->config.size, engine->config.payload_bytes);
	region->window = region->window_max > 4 * FANIN_REGION_WINDOW_MIN ? region->window_max / 4
									  : FANIN_REGION_WINDOW_MIN;
	region->reordering = FANIN_PATIENCE_REORDERING;
	region->wake_ns = UINT64_MAX;
	fanin_region_sources_begin(region);
	return FANIN_OK;
}

static void
rules_close(struct fanin_engine *engine)
{
	free(fanin_region_of(engine)->log.entries);
}

/*
 * Called in each poll, after receiving: runs everything that regions start by themselves. Timers of
 * the window protocol run only while a request is posted.
 */
static void
rules_send(struct fanin_engine *engine)
{
	struct fanin_region_engine *region = fanin_region_of(engine);

	region->wake_ns = UINT64_MAX;
	fanin_region_send(region);
	fanin_region_fetch(region);
	fanin_region_fence_step(region);
	if (engine->loop.status != FANIN_OK)
		return;
	fanin_engine_queue_in_order(engine, &region->next_lane, NULL);
	fanin_engine_send_queued(engine);
}

/* Sends the engine's queries. While rounds go on without packets, also finds out who is gone. */
static void
rules_scan(struct fanin_engine *engine)
{
	struct fanin_region_engine *region = fanin_region_of(engine);

	fanin_engine_scan(engine);
	if (region->fence.stage >= FANIN_REGION_WAIT)
		fanin_loop_wake_by(&engine->loop, fanin_live_check(&region->live, engine,
								   region->fence.packet_ns));
}

static void
rules_on_answer(struct fanin_engine *engine, uint32_t block, const struct fanin_answer_ranks *ranks)
{
	(void)fanin_live_told(&fanin_region_of(engine)->live, engine, block, ranks);
}

/*
 * Releases lanes again in the new run. Packets lost with the old run are fetched like any others.
 */
static void
rules_resume(struct fanin_engine *engine)
{
	struct fanin_region_engine *region = fanin_region_of(engine);

	region->next_lane = engine->oldest;
	region->live = (struct fanin_live){ 0 };
}

/*
 * Fails with the ranks that are gone. The other ranks of their leaf only wait for them, as this one
 * does, and are not named.
 */
static bool
rules_time_out(struct fanin_engine *engine)
{
	const struct fanin_last_answer *told = &engine->told;
	struct fanin_ranks gone = told->ranks.ended;
	const bool ended = !fanin_ranks_is_empty(&gone);
	char text[FANIN_ABSENCE_LEN];

	fanin_ranks_merge(&gone, &told->ranks.silent);
	fanin_ranks_keep(&gone, &told->ranks.missing);
	if (told->block != engine->oldest || fanin_ranks_is_empty(&gone))
		return false;
	fanin_error_set(&engine->loop.error, 0, "no result for %.1f s: fence %u waits for %s",
			(double)(engine->loop.now_ns - engine->progress_ns) / 1e9,
			fanin_region_of(engine)->number,
			fanin_format_absence(&gone, engine->config.size, &gone,
					     ended ? FANIN_RANKS_ENDED : FANIN_RANKS_SILENT, text));
	engine->loop.error.missing = gone;
	fanin_engine_fail(engine, FANIN_ERR_TIMEOUT);
	return true;
}

const struct fanin_engine_rules fanin_region_rules = {
	.size = sizeof(struct fanin_region_engine),
	.takes_unsent = true,
	.bounds_flight = true,
	.ranks_max = FANIN_REGION_RANKS_MAX,
	.open = rules_open,
	.close = rules_close,
	.send = rules_send,
	.receive = fanin_region_receive,
	.on_answer = rules_on_answer,
	.scan = rules_scan,
	.resume = rules_resume,
	.time_out = rules_time_out,
	.idle_max_ns = fanin_region_idle_max_ns,
};

/* ------------------------------------------------------------------ the protocol */

const struct fanin_region_stats *
fanin_region_stats(struct fanin_endpoint *endpoint)
{
	return &fanin_region_of(fanin_engine_of(endpoint))->stats;
}

static int
region_attach(struct fanin_endpoint *endpoint, void *memory, uint64_t base, uint64_t bytes,
	      struct fanin_error *error)
{
	struct fanin_region_engine *region = fanin_region_of(fanin_engine_of(endpoint));

	if (base != region->first || bytes != region->bytes)
		return fanin_error_set(
			error, FANIN_ERR_REFUSED,
			"the switches have the region as %llu bytes from address %#llx on, expected %llu from %#llx on",
			(unsigned long long)region->bytes, (unsigned long long)region->first,
			(unsigned long long)bytes, (unsigned long long)base);
	region->memory = memory;
	return FANIN_OK;
}

static uint32_t
in_flight(uint16_t size, uint16_t payload_bytes)
{
	return fanin_region_window(size, payload_bytes) * (size > 1 ? size - 1u : 1u);
}

static const char *const handlers[] = { "region", NULL };

static const struct fanin_protocol_region_ops ops = {
	.attach = region_attach,
	.store = fanin_region_store,
	.fence = fanin_region_post_fence,
};

struct fanin_protocol fanin_protocol_region = {
	.name = "region",
	.handlers = handlers,
	.rules = &fanin_region_rules,
	.collectives = FANIN_ENGINE_COLLECTIVES,
	.on_switch = &fanin_engine_on_switch,
	FANIN_ENGINE_FUNCTIONS,
	.has_tags = true,
	/*
	 * Writes of other ranks arrive, and their FETCHes are served, while the application
	 * computes.
	 */
	.has_duties = true,
	.beside = FANIN_BESIDE_REGION,
	.region = &ops,
	.in_flight = in_flight,
	.post = fanin_engine_post,
	.report = fanin_engine_report,
};

FANIN_PROTOCOL_REGISTER(fanin_protocol_region)
