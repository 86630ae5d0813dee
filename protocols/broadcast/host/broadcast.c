/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The host protocol of the handler `broadcast` as a table (protocol/protocol.h): the block engine
 * with the rules of reliable multicast. Broadcasts and Allgathers run by multicast, all else as
 * blocks.
 */
#include "broadcast.h"

#include <stdlib.h>

#include "broadcast_internal.h"
#include "protocols/broadcast/broadcast.h"

#define MS UINT64_C(1000000)

/* ------------------------------------------------------------------ the rules */

int
fanin_broadcast_begin(struct fanin_broadcast_engine *mc, uint32_t chains)
{
	const struct fanin_engine *engine = &mc->engine;

	mc->chains = chains;
	mc->ops_tail = &mc->ops;
	mc->next = engine->oldest;
	mc->credit = fanin_broadcast_credit(engine->config.size, engine->config.payload_bytes);
	mc->depth = (FANIN_BROADCAST_DEPTH_MAX + 1) / 2;
	mc->alpha = (struct fanin_patience){ .ns = 5 * MS, .min_ns = 2 * MS, .max_ns = 200 * MS };
	mc->reordering = FANIN_PATIENCE_REORDERING;
	return fanin_broadcast_order(mc);
}

static int
rules_open(struct fanin_engine *engine, struct fanin_error *error)
{
	(void)error;
	return fanin_broadcast_begin(fanin_broadcast_of(engine),
				     (uint32_t)engine->config.parameters[FANIN_BROADCAST_CHAINS]);
}

void
fanin_broadcast_end(struct fanin_engine *engine)
{
	struct fanin_broadcast_engine *mc = fanin_broadcast_of(engine);

	while (mc->ops != NULL) {
		struct fanin_broadcast_op *op = mc->ops;

		mc->ops = op->next;
		fanin_broadcast_op_free(op);
	}
	free(mc->order);
}

/*
 * The new run releases all lanes once more, and packets lost with the old run are fetched like any
 * other missing packets. Neighbors' earlier answers are discarded, because neighbors may since have
 * lost those packets, too.
 */
void
fanin_broadcast_resume(struct fanin_engine *engine)
{
	struct fanin_broadcast_engine *mc = fanin_broadcast_of(engine);

	mc->next = engine->oldest;
	mc->live = (struct fanin_live){ 0 };
	for (struct fanin_broadcast_op *op = mc->ops; op != NULL; op = op->next) {
		op->has_ns = 0;
		op->lacks_ns = 0;
		op->n_unanswered = 0;
		op->ask_ns = 0;
		op->ask_wait_ns = 0;
	}
}

static const struct fanin_engine_rules rules = {
	.waits_for_ranks = true,
	.samples_asked = true,
	.takes_unsent = true,
	.bounds_flight = true, /* by credits */
	.size = sizeof(struct fanin_broadcast_engine),
	.open = rules_open,
	.close = fanin_broadcast_end,
	.send = fanin_broadcast_send,
	.on_answer = fanin_broadcast_on_answer,
	.receive = fanin_broadcast_receive,
	.finish = fanin_broadcast_finish,
	.scan = fanin_broadcast_scan,
	.time_out = fanin_broadcast_time_out,
	.resume = fanin_broadcast_resume,
	.idle_max_ns = fanin_broadcast_idle_max_ns,
};

/* ------------------------------------------------------------------ the protocol */

/* True if the request goes by multicast. */
static bool
is_multicast(const struct fanin_broadcast_engine *mc, const struct fanin_request *request,
	     uint64_t count)
{
	return mc->engine.config.size > 1 && count != 0 && request->sparse == NULL &&
	       (mc->makes || !fanin_request_combines(request));
}

int
fanin_broadcast_post_any(struct fanin_endpoint *endpoint, struct fanin_request *request,
			 uint64_t count)
{
	struct fanin_engine *engine = fanin_engine_of(endpoint);
	uint64_t n, places;

	if (!is_multicast(fanin_broadcast_of(engine), request, count))
		return fanin_engine_post(endpoint, request, count);
	n = fanin_engine_cut(endpoint, request, count);
	if (n > UINT32_MAX / 2)
		return FANIN_ERR_INVALID;
	if (request->stride != 0)
		n = (n - request->start - 1) / request->stride + 1;
	/* Packets that a root makes have 32-bit numbers. */
	places = fanin_request_combines(request) ? (n + 1) * engine->config.size : 0;
	return places > UINT32_MAX ? FANIN_ERR_INVALID
				   : fanin_broadcast_post(engine, request, (uint32_t)n);
}

void
fanin_broadcast_report(struct fanin_endpoint *endpoint, struct fanin_report *report)
{
	const struct fanin_broadcast_stats *stats = fanin_broadcast_stats(endpoint);

	fanin_engine_report(endpoint, report);
	report->multicast_operations = stats->operations;
	report->multicast_packets = stats->packets;
	report->multicast_fetched = stats->fetched;
	report->multicast_late = stats->late;
}

static const char *const handlers[] = { "broadcast", NULL };

struct fanin_protocol fanin_protocol_broadcast = {
	.name = "multicast",
	.handlers = handlers,
	.has_tags = true,
	.multicasts = true,
	.beside = FANIN_BESIDE_MULTICAST,
	.rules = &rules,
	.collectives = FANIN_ENGINE_COLLECTIVES,
	.in_flight = fanin_broadcast_in_flight,
	.on_switch = &fanin_engine_on_switch,
	FANIN_ENGINE_FUNCTIONS,
	.post = fanin_broadcast_post_any,
	.report = fanin_broadcast_report,
};

FANIN_PROTOCOL_REGISTER(fanin_protocol_broadcast)
