/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The host protocol of the handler `canary` as a table (protocol/protocol.h).
 */
#include "canary.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "hostlib/src/engine/run_end.h"

/* Larger than that of any run that this process has begun, whichever clock it is: a switch may still know the last one. */
static uint32_t
run_number(void)
{
	static uint32_t last; /* 0: there was none */
	const uint32_t now = (uint32_t)time(NULL);
	uint32_t before = __atomic_load_n(&last, __ATOMIC_RELAXED), number;

	do
		number = before == 0 || fanin_block_before(before, now) ? now : before + 1;
	while (!__atomic_compare_exchange_n(&last, &before, number, false, __ATOMIC_RELAXED,
					    __ATOMIC_RELAXED));
	return number;
}

static int
canary_open(const struct fanin_protocol *protocol, const struct fanin_protocol_config *config,
	    struct fanin_endpoint **endpoint, struct fanin_error *error)
{
	struct fanin_canary_seed seed = { .run = run_number() };
	uint64_t numbers[2];

	if (config->wide)
		return fanin_error_set(
			error, FANIN_ERR_UNSUPPORTED,
			"the job accumulates sums in f32, which the protocol canary does not");
	if (config->hosts == NULL)
		return fanin_error_set(
			error, FANIN_ERR_UNSUPPORTED,
			"a job of the handler canary needs the addresses of its ranks, which the network manager knows");
	while (getrandom(numbers, sizeof(numbers), 0) != sizeof(numbers)) {
		if (errno != EINTR)
			return fanin_error_set(error, FANIN_ERR_SYSTEM, "no random numbers: %s",
					       strerror(errno));
	}
	seed.nonce = numbers[0];
	seed.roll = numbers[1] | 1;
	return fanin_canary_create(protocol, config, &seed, endpoint, error);
}

static void
canary_close(struct fanin_endpoint *endpoint)
{
	if (endpoint != NULL)
		fanin_run_end_goodbye(endpoint, fanin_canary_say_bye);
	fanin_canary_destroy(endpoint);
}

static void
canary_report(struct fanin_endpoint *endpoint, struct fanin_report *report)
{
	const struct fanin_canary_stats *stats = fanin_canary_stats(endpoint);

	report->blocks = stats->blocks;
	report->bytes_reduced = stats->bytes_reduced;
	report->frames_sent = stats->frames_sent;
	report->frames_received = stats->frames_received;
	report->retransmits = stats->retransmits;
	report->duplicates = stats->duplicates;
	report->invalid = stats->invalid;
	report->queries = stats->queries;
	report->led_blocks = stats->led;
	report->led_direct = stats->direct;
	report->asks = stats->asks;
	report->restores = stats->restores;
	report->repeats = stats->repeats;
	report->late = fanin_canary_late(endpoint);
	report->n_late = (uint32_t)__builtin_popcountll(report->late);
}

static const struct fanin_switch_ops on_switch = {
	/* Switches pass the job's packets on without it: nobody but the manager would say that it has ended. */
	.abort = fanin_canary_abort,
	.peers_may_need_results = fanin_canary_peers_may_need_results,
};

static const char *const handlers[] = { "canary", NULL };

struct fanin_protocol fanin_protocol_canary = {
	.name = "canary",
	.handlers = handlers,
	.has_duties = true,
	.has_leaders = true,
	.collectives = 1 << FANIN_COLLECTIVE_ALLREDUCE | 1 << FANIN_COLLECTIVE_REDUCE |
		       1 << FANIN_COLLECTIVE_REDUCE_SCATTER | 1 << FANIN_COLLECTIVE_BROADCAST |
		       1 << FANIN_COLLECTIVE_ALLGATHER,
	.on_switch = &on_switch,
	.open = canary_open,
	.close = canary_close,
	.ready = fanin_canary_ready,
	.post = fanin_canary_post,
	.poll = fanin_canary_poll,
	.idle_ns = fanin_canary_idle_ns,
	.poll_fds = fanin_canary_poll_fds,
	.error = fanin_canary_error,
	.missing = fanin_canary_missing,
	.report = canary_report,
};

FANIN_PROTOCOL_REGISTER(fanin_protocol_canary)
