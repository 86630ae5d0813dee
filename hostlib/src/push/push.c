/* SPDX-License-Identifier: BSD-3-Clause */
/* The host protocol of the handler `push` as a table (protocol/protocol.h): see push.h. */
#include "push.h"

#include "hostlib/src/base/clock.h"
#include "hostlib/src/window/window.h"
#include "wire/push.h"

#define BYE_NS UINT64_C(1000000000)
#define BYE_WAIT_MS 20

static int
push_open(const struct fanin_protocol_config *config, void **engine, struct fanin_error *error)
{
	const uint64_t *parameters = config->parameters;
	const struct fanin_push_config own = {
		.entries = (uint32_t)parameters[FANIN_PUSH_ENTRIES],
		.waves = (uint32_t)parameters[FANIN_PUSH_WAVES],
		.wave_blocks = (uint32_t)parameters[FANIN_PUSH_WAVE_BLOCKS],
	};
	struct fanin_engine_config engine_config;

	if (config->size > FANIN_SERVER_RANKS_MAX)
		return fanin_error_set(error, FANIN_ERR_UNSUPPORTED,
				       "the job has %u ranks, jobs of the handler push have %u at most",
				       config->size, FANIN_SERVER_RANKS_MAX);
	if (config->wide)
		return fanin_error_set(
			error, FANIN_ERR_UNSUPPORTED,
			"the job accumulates sums in f32, which the protocol push does not");
	fanin_window_config(config, &engine_config);
	engine_config.rules_arg = &own;
	engine_config.keeps = true;
	/* Waves bound what is in flight. */
	engine_config.cc = NULL;
	return fanin_window_create(&fanin_push_rules, &engine_config, config->transport, engine,
				   error);
}

static void
push_close(void *engine)
{
	const uint64_t deadline_ns = fanin_now_ns(NULL) + BYE_NS;
	struct pollfd fds[FANIN_TRANSPORT_MAX_FDS];

	while (!fanin_push_say_bye(engine) && fanin_now_ns(NULL) < deadline_ns) {
		poll(fds, fanin_push_poll_fds(engine, fds), BYE_WAIT_MS);
		if (fanin_push_poll(engine) < 0)
			break;
	}
	fanin_engine_destroy(engine);
}

static int
push_poll(void *engine)
{
	return fanin_push_poll(engine);
}

static uint64_t
push_idle_ns(const void *engine)
{
	return fanin_push_idle_ns(engine);
}

static unsigned int
push_poll_fds(void *engine, struct pollfd *fds)
{
	return fanin_push_poll_fds(engine, fds);
}

static void
push_report(const void *engine, struct fanin_report *report)
{
	const struct fanin_push_stats *stats = fanin_push_stats(engine);

	fanin_window_report(engine, report);
	report->led_blocks = stats->made;
	report->asks = stats->asks;
	report->repeats = stats->repeats;
}

static const char *const handlers[] = { "push", NULL };

static struct fanin_protocol fanin_protocol_push = {
	.name = "push",
	.handlers = handlers,
	.has_tags = true,
	.has_duties = true,
	.collectives = FANIN_WINDOW_COLLECTIVES,
	.on_switch = &fanin_window_on_switch,
	.open = push_open,
	.close = push_close,
	.post = fanin_window_post,
	.poll = push_poll,
	.idle_ns = push_idle_ns,
	.poll_fds = push_poll_fds,
	.error = fanin_window_error,
	.missing = fanin_window_missing,
	.report = push_report,
};

FANIN_PROTOCOL_REGISTER(fanin_protocol_push)
