/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The host protocol of the handler `pa-atp` as a table (protocol/protocol.h): an engine of the window protocol with the rules of
 * pa_atp_engine.c, whose windows are those of the congestion control that the job's parameters name.
 */
#include "pa_atp.h"

#include "hostlib/src/window/window.h"
#include "wire/pa_atp.h"

/* The codepoint of senders whose packets may be marked (RFC 3168). */
#define ECT_0 2

/* What the job's parameters say. Returns FANIN_OK or FANIN_ERR_UNSUPPORTED. */
static int
config_make(const struct fanin_protocol_config *config, struct fanin_pa_atp_config *made,
	    struct fanin_error *error)
{
	const uint64_t *parameters = config->parameters;
	const uint64_t congestion = parameters[FANIN_PA_ATP_CONGESTION];

	if (congestion >= FANIN_DUAL_TYPES)
		return fanin_error_set(
			error, FANIN_ERR_UNSUPPORTED,
			"the job's congestion control has the number %llu, this library knows 0 to %u",
			(unsigned long long)congestion, FANIN_DUAL_TYPES - 1);
	*made = (struct fanin_pa_atp_config){
		.type = &fanin_dual_types[congestion],
		.settings = {
			.limit = config->window,
			.aggregators = config->slots,
			.sharing_jobs = config->sharing_jobs,
			.n_ranks = config->size,
			.fixed_window = (uint32_t)parameters[FANIN_PA_ATP_FIXED_WINDOW],
			.p_max = (double)parameters[FANIN_PA_ATP_P_MAX] / 100,
		},
	};
	return FANIN_OK;
}

static int
pa_atp_open(const struct fanin_protocol_config *config, void **engine, struct fanin_error *error)
{
	struct fanin_engine_config engine_config;
	struct fanin_pa_atp_config own;
	int status;

	if (config->size > FANIN_SERVER_RANKS_MAX)
		return fanin_error_set(error, FANIN_ERR_UNSUPPORTED,
				       "the job has %u ranks, jobs of the handler pa-atp have %u at most",
				       config->size, FANIN_SERVER_RANKS_MAX);
	if (config->wide)
		return fanin_error_set(
			error, FANIN_ERR_UNSUPPORTED,
			"the job accumulates sums in f32, which the protocol pa-atp does not");
	status = config_make(config, &own, error);
	if (status != FANIN_OK)
		return status;
	fanin_window_config(config, &engine_config);
	engine_config.rules_arg = &own;
	engine_config.tos = ECT_0;
	/* Its windows are `own`'s. */
	engine_config.cc = NULL;
	return fanin_window_create(&fanin_pa_atp_rules, &engine_config, config->transport, engine,
				   error);
}

static void
pa_atp_report(const void *engine, struct fanin_report *report)
{
	const struct fanin_dual *dual = fanin_pa_atp_dual(engine);
	const struct fanin_pa_atp_stats *stats = fanin_pa_atp_stats(engine);

	fanin_window_report(engine, report);
	report->congestion = dual->type->name;
	report->cwd = dual->cwd;
	report->awd = dual->awd;
	report->alpha = dual->alpha;
	report->beta = dual->beta;
	report->progress_degree = dual->p;
	report->in_flight = fanin_pa_atp_in_flight(engine);
	report->gacks = stats->gacks;
	report->aacks = stats->aacks;
	report->marks = stats->marks;
	report->aecns = stats->aecns;
	report->asks_answered = stats->asks_answered;
}

static const char *const handlers[] = { "pa-atp", NULL };

static struct fanin_protocol fanin_protocol_pa_atp = {
	.name = "pa-atp",
	.handlers = handlers,
	.collectives = FANIN_WINDOW_COLLECTIVES,
	FANIN_WINDOW_FUNCTIONS,
	FANIN_WINDOW_SENDING,
	.open = pa_atp_open,
	.report = pa_atp_report,
};

FANIN_PROTOCOL_REGISTER(fanin_protocol_pa_atp)
