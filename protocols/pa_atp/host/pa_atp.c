/* SPDX-License-Identifier: BSD-3-Clause */
/* The host protocol of the handler `pa-atp` as a table (protocol/protocol.h): see pa_atp.h. */
#include "pa_atp_internal.h"

#include "hostlib/src/base/report.h"

static void
pa_atp_report(struct fanin_endpoint *endpoint, struct fanin_report *report)
{
	const struct fanin_dual *dual = fanin_pa_atp_dual(endpoint);
	const struct fanin_pa_atp_stats *stats = fanin_pa_atp_stats(endpoint);

	fanin_engine_report(endpoint, report);
	report->congestion = dual->type->name;
	report->cwd = dual->cwd;
	report->awd = dual->awd;
	report->alpha = dual->alpha;
	report->beta = dual->beta;
	report->progress_degree = dual->p;
	report->in_flight = fanin_pa_atp_in_flight(endpoint);
#define FILL(field, trees) report->field = stats->field;
	FANIN_REPORT_PA_ATP(FILL)
#undef FILL
}

static const char *const handlers[] = { "pa-atp", NULL };

struct fanin_protocol fanin_protocol_pa_atp = {
	.name = "pa-atp",
	.handlers = handlers,
	.rules = &fanin_pa_atp_rules,
	.collectives = FANIN_ENGINE_COLLECTIVES,
	.on_switch = &fanin_engine_on_switch,
	FANIN_ENGINE_FUNCTIONS,
	.post = fanin_engine_post,
	.report = pa_atp_report,
};

FANIN_PROTOCOL_REGISTER(fanin_protocol_pa_atp)
