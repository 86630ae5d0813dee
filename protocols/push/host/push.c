/* SPDX-License-Identifier: BSD-3-Clause */
/* The host protocol of the handler `push` as a table (protocol/protocol.h): see push.h. */
#include "push_internal.h"

static void
push_report(struct fanin_endpoint *endpoint, struct fanin_report *report)
{
	const struct fanin_push_stats *stats = fanin_push_stats(endpoint);

	fanin_engine_report(endpoint, report);
	report->led_blocks = stats->made;
	report->asks = stats->asks;
	report->repeats = stats->repeats;
}

static const char *const handlers[] = { "push", NULL };

struct fanin_protocol fanin_protocol_push = {
	.name = "push",
	.handlers = handlers,
	.has_tags = true,
	.has_duties = true,
	.beside = FANIN_BESIDE_PUSH,
	.rules = &fanin_push_rules,
	.collectives = FANIN_ENGINE_COLLECTIVES,
	.on_switch = &fanin_engine_on_switch,
	FANIN_ENGINE_FUNCTIONS,
	.post = fanin_engine_post,
	.report = push_report,
};

FANIN_PROTOCOL_REGISTER(fanin_protocol_push)
