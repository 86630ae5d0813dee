/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The host protocol of the handler `broadcast` as a table (protocol/protocol.h): an engine of the window protocol with the rules of reliable multicast. Broadcasts and
 * Allgathers run by multicast, all else as in the window protocol.
 */
#include "multicast.h"

#include <stdlib.h>

#include "hostlib/src/window/window.h"
#include "multicast_internal.h"
#include "wire/broadcast.h"

#define ALPHA_FIRST_NS UINT64_C(5000000)
#define REORDER_FIRST_NS UINT64_C(2000000)

/* ------------------------------------------------------------------ the rules */

static int
rules_open(struct fanin_engine *engine)
{
	struct fanin_multicast *mc = fanin_multicast_of(engine);

	mc->config = *(const struct fanin_multicast_config *)engine->config.rules_arg;
	engine->config.rules_arg = NULL;
	mc->ops_tail = &mc->ops;
	mc->next = engine->oldest;
	mc->credit = fanin_multicast_credit(engine->config.size, engine->config.payload_bytes);
	mc->depth = (FANIN_MULTICAST_DEPTH_MOST + 1) / 2;
	mc->alpha_ns = ALPHA_FIRST_NS;
	mc->reorder_ns = REORDER_FIRST_NS;
	return fanin_multicast_order(mc);
}

static void
rules_close(struct fanin_engine *engine)
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
static void
rules_resume(struct fanin_engine *engine)
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

const struct fanin_engine_rules fanin_multicast_rules = {
	.waits_for_ranks = true,
	.samples_asked = true,
	.takes_unsent = true,
	.size = sizeof(struct fanin_multicast),
	.open = rules_open,
	.close = rules_close,
	.send = fanin_multicast_send,
	.on_answer = fanin_multicast_on_answer,
	.receive = fanin_multicast_receive,
	.finish = fanin_multicast_finish,
	.scan = fanin_multicast_scan,
	.time_out = fanin_multicast_time_out,
	.resume = rules_resume,
};

/* ------------------------------------------------------------------ the protocol */

static int
multicast_open(const struct fanin_protocol_config *config, void **engine, struct fanin_error *error)
{
	struct fanin_engine_config engine_config;
	const struct fanin_multicast_config own = {
		.chains = (uint32_t)config->parameters[FANIN_BROADCAST_CHAINS],
		.hosts = config->hosts,
	};

	fanin_window_config(config, &engine_config);
	engine_config.rules_arg = &own;
	/* Credits bound what is on its way. */
	engine_config.cc = NULL;
	return fanin_window_create(&fanin_multicast_rules, &engine_config, config->transport,
				   engine, error);
}

/* True if the request goes by multicast. */
static bool
is_multicast(const struct fanin_engine *engine, const struct fanin_request *request, uint64_t count)
{
	return engine->config.size > 1 && count != 0 && !fanin_request_combines(request) &&
	       request->sparse == NULL;
}

static int
multicast_post(void *memory, struct fanin_request *request, uint64_t count)
{
	struct fanin_engine *engine = memory;
	uint64_t n_packets;

	if (!is_multicast(engine, request, count))
		return fanin_window_post(engine, request, count);
	n_packets = fanin_engine_cut(engine, request, count);
	if (n_packets > UINT32_MAX / 2)
		return FANIN_ERR_INVALID;
	if (request->stride != 0)
		n_packets = (n_packets - request->start - 1) / request->stride + 1;
	return fanin_multicast_post(engine, request, (uint32_t)n_packets);
}

static void
multicast_report(const void *engine, struct fanin_report *report)
{
	const struct fanin_multicast_stats *stats = fanin_multicast_stats(engine);

	fanin_window_report(engine, report);
	report->multicast_operations = stats->operations;
	report->multicast_packets = stats->packets;
	report->multicast_fetched = stats->fetched;
	report->multicast_late = stats->late;
}

static uint64_t
multicast_idle_ns(const void *engine)
{
	return fanin_multicast_idle_ns(engine);
}

static const char *const handlers[] = { "broadcast", NULL };

static struct fanin_protocol fanin_protocol_multicast = {
	.name = "multicast",
	.handlers = handlers,
	.collectives = FANIN_WINDOW_COLLECTIVES,
	FANIN_WINDOW_FUNCTIONS,
	.has_tags = true,
	.in_flight = fanin_multicast_in_flight,
	.open = multicast_open,
	.post = multicast_post,
	.idle_ns = multicast_idle_ns,
	.report = multicast_report,
};

FANIN_PROTOCOL_REGISTER(fanin_protocol_multicast)
