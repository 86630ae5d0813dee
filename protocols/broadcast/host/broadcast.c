/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The host protocol of the handler `broadcast` as a table (protocol/protocol.h): the block engine with the rules of reliable multicast. Broadcasts and
 * Allgathers run by multicast, all else as blocks.
 */
#include "broadcast.h"

#include <stdlib.h>

#include "broadcast_internal.h"
#include "protocols/broadcast/broadcast.h"

#define MS UINT64_C(1000000)

/* ------------------------------------------------------------------ the rules */

int
fanin_multicast_begin(struct fanin_multicast *mc, uint32_t chains)
{
	const struct fanin_engine *engine = &mc->engine;

	mc->chains = chains;
	mc->ops_tail = &mc->ops;
	mc->next = engine->oldest;
	mc->credit = fanin_multicast_credit(engine->config.size, engine->config.payload_bytes);
	mc->depth = (FANIN_MULTICAST_DEPTH_MOST + 1) / 2;
	mc->alpha = (struct fanin_patience){ .ns = 5 * MS, .least_ns = 2 * MS, .most_ns = 200 * MS };
	mc->reordering = FANIN_PATIENCE_REORDERING;
	return fanin_multicast_order(mc);
}

static int
rules_open(struct fanin_engine *engine, struct fanin_error *error)
{
	(void)error;
	return fanin_multicast_begin(fanin_multicast_of(engine),
				     (uint32_t)engine->config.parameters[FANIN_BROADCAST_CHAINS]);
}

void
fanin_multicast_end(struct fanin_engine *engine)
{
	struct fanin_multicast *mc = fanin_multicast_of(engine);

	while (mc->ops != NULL) {
		struct fanin_multicast_op *op = mc->ops;

		mc->ops = op->next;
		fanin_multicast_op_free(op);
	}
	free(mc->order);
}

/*
 * Lanes are released once more in the new run; what was lost with the old one is missing like anything else. What neighbors told is of a time before
 * they had lost it as well.
 */
void
fanin_multicast_resume(struct fanin_engine *engine)
{
	struct fanin_multicast *mc = fanin_multicast_of(engine);

	mc->next = engine->oldest;
	mc->live = (struct fanin_live){ 0 };
	for (struct fanin_multicast_op *op = mc->ops; op != NULL; op = op->next) {
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
	.size = sizeof(struct fanin_multicast),
	.open = rules_open,
	.close = fanin_multicast_end,
	.send = fanin_multicast_send,
	.on_answer = fanin_multicast_on_answer,
	.receive = fanin_multicast_receive,
	.finish = fanin_multicast_finish,
	.scan = fanin_multicast_scan,
	.time_out = fanin_multicast_time_out,
	.resume = fanin_multicast_resume,
	.idle_most_ns = fanin_multicast_idle_most_ns,
};

/* ------------------------------------------------------------------ the protocol */

/* True if the request goes by multicast. */
static bool
is_multicast(const struct fanin_multicast *mc, const struct fanin_request *request, uint64_t count)
{
	return mc->engine.config.size > 1 && count != 0 && request->sparse == NULL &&
	       (mc->makes || !fanin_request_combines(request));
}

int
fanin_multicast_post_any(struct fanin_endpoint *endpoint, struct fanin_request *request,
			 uint64_t count)
{
	struct fanin_engine *engine = fanin_engine_of(endpoint);
	uint64_t n, places;

	if (!is_multicast(fanin_multicast_of(engine), request, count))
		return fanin_engine_post(endpoint, request, count);
	n = fanin_engine_cut(endpoint, request, count);
	if (n > UINT32_MAX / 2)
		return FANIN_ERR_INVALID;
	if (request->stride != 0)
		n = (n - request->start - 1) / request->stride + 1;
	/* Those of packets that are made are numbers of 32 bits. */
	places = fanin_request_combines(request) ? (n + 1) * engine->config.size : 0;
	return places > UINT32_MAX ? FANIN_ERR_INVALID
				   : fanin_multicast_post(engine, request, (uint32_t)n);
}

void
fanin_multicast_report(struct fanin_endpoint *endpoint, struct fanin_report *report)
{
	const struct fanin_multicast_stats *stats = fanin_multicast_stats(endpoint);

	fanin_engine_report(endpoint, report);
	report->multicast_operations = stats->operations;
	report->multicast_packets = stats->packets;
	report->multicast_fetched = stats->fetched;
	report->multicast_late = stats->late;
}

static const char *const handlers[] = { "broadcast", NULL };

struct fanin_protocol fanin_protocol_multicast = {
	.name = "multicast",
	.handlers = handlers,
	.has_tags = true,
	.multicasts = true,
	.beside = FANIN_BESIDE_MULTICAST,
	.rules = &rules,
	.collectives = FANIN_ENGINE_COLLECTIVES,
	.in_flight = fanin_multicast_in_flight,
	.on_switch = &fanin_engine_on_switch,
	FANIN_ENGINE_FUNCTIONS,
	.post = fanin_multicast_post_any,
	.report = fanin_multicast_report,
};

FANIN_PROTOCOL_REGISTER(fanin_protocol_multicast)
