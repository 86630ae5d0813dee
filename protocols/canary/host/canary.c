/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The host protocol of the handler `canary` as a table (protocol/protocol.h), and its rules for the
 * engine. The endpoint starts calling the roll at the first poll.
 */
#include "canary_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

#include "hostlib/src/base/absence.h"

/*
 * Maximum number of switches in which a block's data waits, one after the other: three levels of a
 * fat tree, up and down.
 */
#define SWITCHES_ON_WAY 5

/* ------------------------------------------------------------------ the rules */

/*
 * Returns a number larger than that of any run that this process has begun, even with another
 * clock: a switch may still know the last run.
 */
static uint32_t
run_number(void)
{
	static uint32_t last; /* 0: no run yet */
	const uint32_t now = (uint32_t)time(NULL);
	uint32_t before = __atomic_load_n(&last, __ATOMIC_RELAXED), number;

	do
		number = before == 0 || fanin_block_before(before, now) ? now : before + 1;
	while (!__atomic_compare_exchange_n(&last, &before, number, false, __ATOMIC_RELAXED,
					    __ATOMIC_RELAXED));
	return number;
}

static int
seed_draw(struct canary_seed *seed, struct fanin_error *error)
{
	uint64_t numbers[2];

	while (getrandom(numbers, sizeof(numbers), 0) != sizeof(numbers)) {
		if (errno != EINTR)
			return fanin_error_set(error, FANIN_ERR_SYSTEM, "no random numbers: %s",
					       strerror(errno));
	}
	*seed = (struct canary_seed){
		.nonce = numbers[0],
		.roll = numbers[1] | 1,
		.run = run_number(),
	};
	return FANIN_OK;
}

static int
memory_take(struct fanin_canary *canary)
{
	const struct fanin_protocol_config *config = &canary->engine.config;
	const size_t n_entries = 2u * config->window;

	canary->lanes = calloc(config->window, sizeof(*canary->lanes));
	canary->entries = calloc(n_entries, sizeof(*canary->entries));
	if (canary->lanes == NULL || canary->entries == NULL ||
	    !fanin_sum_frames_open(&canary->frames, n_entries + 1, config->payload_bytes))
		return FANIN_ERR_NO_MEMORY;
	return FANIN_OK;
}

static uint64_t
timers_together_ns(uint64_t timer_us)
{
	return SWITCHES_ON_WAY * 1000 * timer_us;
}

static int
rules_open(struct fanin_engine *engine, struct fanin_error *error)
{
	struct fanin_canary *canary = canary_of(engine);
	const struct fanin_protocol_config *config = &engine->config;
	int status;

	if (config->hosts == NULL)
		return fanin_error_set(
			error, FANIN_ERR_UNSUPPORTED,
			"a job of the handler canary needs the addresses of its ranks, which the network manager knows");
	status = seed_draw(&canary->seed, error);
	if (status == FANIN_OK)
		status = memory_take(canary);
	if (status != FANIN_OK)
		return status;
	for (unsigned int i = 0; i < config->size; i++) {
		canary->peers[i].ips_be[0] = config->hosts[i].ip_be;
		canary->peers[i].ips_be[1] = config->hosts[i].second_ip_be;
	}
	canary->ways[0].flow = config->flow;
	canary->ways[1].flow = config->second_flow;
	canary->n_ways = config->second_flow.src_ip_be == 0 ? 1 : 2;
	canary->sums = (struct fanin_sums){ .isa = fanin_isa_detect(),
					    .n_ranks = config->size,
					    .n_words = 1 };
	canary->fixed_ns = timers_together_ns(config->parameters[FANIN_CANARY_TIMEOUT]);
	canary->timers_ns =
		canary->fixed_ns != 0
			? canary->fixed_ns
			: timers_together_ns(config->parameters[FANIN_CANARY_MAX_TIMEOUT]);
	canary->all = fanin_ranks_all_word(config->size, 0);
	canary->others = canary->all & ~(UINT64_C(1) << config->rank);
	canary->newest_done = UINT32_MAX;
	canary->gap = CANARY_GAP;
	/* Block 0, which has no elements. */
	canary->start = (struct fanin_request){
		.collective = FANIN_COLLECTIVE_ALLREDUCE,
		.dtype = FANIN_U8,
		.op = FANIN_BOR,
	};
	status = fanin_engine_post(&engine->endpoint, &canary->start, 0);
	engine->loop.now_ns = engine->progress_ns;
	fanin_canary_roll_begin(canary);
	return status;
}

static void
rules_close(struct fanin_engine *engine)
{
	struct fanin_canary *canary = canary_of(engine);

	free(canary->lanes);
	free(canary->entries);
	free(canary->frames.memory);
}

static void
rules_away(struct fanin_engine *engine, uint64_t by_ns)
{
	struct fanin_canary *canary = canary_of(engine);
	const uint64_t now_ns = engine->loop.now_ns;

	for (unsigned int i = 0; i < canary->n_ways; i++)
		canary->ways[i].heard_ns = fanin_absence_move(canary->ways[i].heard_ns, by_ns,
							      now_ns);
	for (unsigned int i = 0; i < engine->config.size; i++) {
		uint64_t *asked_ns = &canary->peers[i].asked_ns;

		if (*asked_ns != 0)
			*asked_ns = fanin_absence_move(*asked_ns, by_ns, now_ns);
	}
}

static uint64_t
missing_of(const struct fanin_canary *canary)
{
	const uint32_t oldest = canary->engine.oldest;

	if (!canary->begun)
		return canary->engine.config.rank == 0 ? canary->all & ~canary->called
		       : canary->roll_heard            ? canary->others & ~canary->called
						       : UINT64_C(1);
	if (oldest == canary_next(canary))
		return 0;
	if (canary_leads(canary, oldest))
		return fanin_canary_lacks(canary, oldest);
	return canary->told_block == oldest ? canary->told & canary->others : 0;
}

static void
rules_waits_for(struct fanin_engine *engine, struct fanin_answer_ranks *ranks)
{
	const struct fanin_canary *canary = canary_of(engine);

	/* Silent ranks: those that were asked and have not answered, for however short a time. */
	*ranks = (struct fanin_answer_ranks){
		.missing = fanin_ranks_of_word(missing_of(canary)),
		.silent = fanin_ranks_of_word(fanin_canary_silent_for(canary, 0)),
	};
}

const struct fanin_engine_rules fanin_canary_rules = {
	.size = sizeof(struct fanin_canary),
	.no_wide = true,
	.ranks_max = CANARY_RANKS_MAX,
	.open = rules_open,
	.close = rules_close,
	.send = fanin_canary_send,
	.take_frame = fanin_canary_receive,
	.learn = fanin_canary_learn,
	.finish = fanin_canary_finish,
	.limits = fanin_canary_limits,
	.scan = fanin_canary_scan,
	.away = rules_away,
	.waits_for = rules_waits_for,
	.idle_max_ns = fanin_canary_idle_max_ns,
	.answer = fanin_canary_answer,
	.say_bye = fanin_canary_say_bye,
};

/* ------------------------------------------------------------------ the protocol */

static int
canary_post(struct fanin_endpoint *endpoint, struct fanin_request *request, uint64_t count)
{
	struct fanin_engine *engine = fanin_engine_of(endpoint);
	struct fanin_canary *canary = canary_of(engine);
	const bool was_idle = engine->loop.requests.first == NULL;
	int status;

	/*
	 * Refuses a type and operator that no kernel combines: a block's leader could not make the
	 * result.
	 */
	if (engine->loop.status == FANIN_OK && fanin_request_combines(request) &&
	    fanin_kernel(canary->sums.isa, request->dtype, request->op) == NULL)
		return FANIN_ERR_UNSUPPORTED;
	status = fanin_engine_post(endpoint, request, count);
	if (status != FANIN_OK)
		return status;
	if (was_idle)
		canary->oldest_ns = engine->progress_ns;
	canary->is_closing = request->total_bytes == 0;
	return FANIN_OK;
}

static bool
canary_peers_may_need_results(struct fanin_endpoint *endpoint)
{
	struct fanin_engine *engine = fanin_engine_of(endpoint);

	return engine->loop.status == FANIN_OK && canary_of(engine)->started &&
	       engine->loop.requests.first == NULL && engine->config.size > 1;
}

const struct fanin_canary_stats *
fanin_canary_stats(struct fanin_endpoint *endpoint)
{
	return &canary_of(fanin_engine_of(endpoint))->stats;
}

static void
canary_report(struct fanin_endpoint *endpoint, struct fanin_report *report)
{
	const struct fanin_canary_stats *stats = fanin_canary_stats(endpoint);

	fanin_engine_report(endpoint, report);
	report->led_blocks = stats->led;
	report->led_direct = stats->direct;
	report->asks = stats->asks;
	report->restores = stats->restores;
	report->repeats = stats->repeats;
}

static const struct fanin_switch_ops on_switch = {
	/*
	 * Switches forward the job's packets without knowing the job, so only the manager could
	 * report that it has ended.
	 */
	.abort = fanin_engine_abort,
	.peers_may_need_results = canary_peers_may_need_results,
};

static const char *const handlers[] = { "canary", NULL };

struct fanin_protocol fanin_protocol_canary = {
	.name = "canary",
	.handlers = handlers,
	.has_duties = true,
	.has_leaders = true,
	.rules = &fanin_canary_rules,
	.collectives = FANIN_ENGINE_COLLECTIVES,
	.on_switch = &on_switch,
	FANIN_ENGINE_FUNCTIONS,
	.ready = fanin_canary_ready,
	.post = canary_post,
	.report = canary_report,
};

FANIN_PROTOCOL_REGISTER(fanin_protocol_canary)
