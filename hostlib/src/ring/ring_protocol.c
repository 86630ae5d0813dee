/* SPDX-License-Identifier: BSD-3-Clause */
/* The ring as a protocol (protocol/protocol.h), for jobs without a reduction tree. */
#include "ring.h"

static int
ring_open(const struct fanin_protocol_config *config, void **engine, struct fanin_error *error)
{
	const struct fanin_ring_config ring_config = {
		.key = config->keys.ring,
		.timeout_ns = config->timeout_ns,
		.wait_limit_ns = config->wait_limit_ns,
		.rank = config->rank,
		.size = config->size,
		.wide = config->wide,
		.listener = config->listener,
		.peers = config->peers,
		.now_ns = config->now_ns,
		.now_arg = config->now_arg,
		.log = config->log,
	};
	struct fanin_ring *created;

	if (fanin_ring_create(&ring_config, &created) != FANIN_OK)
		return fanin_error_set(error, FANIN_ERR_NO_MEMORY, "out of memory for the ring");
	*engine = created;
	return FANIN_OK;
}

static void
ring_close(void *engine)
{
	fanin_ring_leave(engine);
	fanin_ring_destroy(engine);
}

static bool
ring_ready(const void *engine, struct fanin_error *problem)
{
	if (fanin_ring_wired(engine))
		return true;
	fanin_ring_wiring_text(engine, problem->text, sizeof(problem->text));
	problem->missing = fanin_ranks_of_word(fanin_ring_wiring_missing(engine));
	return false;
}

static int
ring_post(void *engine, struct fanin_request *request, uint64_t count)
{
	return fanin_ring_post(engine, request, count);
}

static int
ring_poll(void *engine)
{
	return fanin_ring_poll(engine);
}

static uint64_t
ring_idle_ns(const void *engine)
{
	return fanin_ring_idle_ns(engine);
}

static unsigned int
ring_poll_fds(void *engine, struct pollfd *fds)
{
	return fanin_ring_poll_fds(engine, fds);
}

static const struct fanin_error *
ring_error(const void *engine)
{
	return fanin_ring_error(engine);
}

static void
ring_missing(const void *engine, struct fanin_ranks *ranks)
{
	*ranks = fanin_ranks_of_word(fanin_ring_missing(engine));
}

static void
ring_report(const void *engine, struct fanin_report *report)
{
	const struct fanin_ring_stats *stats = fanin_ring_stats(engine);

	report->transport = "tcp ring";
	report->blocks = stats->collectives;
	report->bytes_reduced = stats->bytes_reduced;
	report->invalid = stats->rejected;
	report->sparse_algorithm = "recursive-doubling";
	report->sparse_blocks = stats->sparse_collectives;
	report->sparse_elements = stats->sparse_elements;
	report->sparse_values_sent = stats->sparse_values_sent;
	report->sparse_values_received = stats->sparse_values_received;
	report->shards_sent = stats->vectors_sent;
	report->shards_received = stats->vectors_received;
	report->shard_bytes_sent = stats->sparse_bytes_sent;
	report->sparse_dense_bytes = stats->sparse_dense_bytes;
	report->tcp_bytes_sent = stats->bytes_sent;
	report->tcp_bytes_received = stats->bytes_received;
	report->late = fanin_ring_late(engine);
	report->n_late = (uint64_t)__builtin_popcountll(report->late);
}

static const char *const handlers[] = { FANIN_HANDLER_WITHOUT_SWITCH, NULL };

struct fanin_protocol fanin_protocol_ring = {
	.name = "ring",
	.handlers = handlers,
	.collectives = 1 << FANIN_COLLECTIVE_ALLREDUCE | 1 << FANIN_COLLECTIVE_REDUCE |
		       1 << FANIN_COLLECTIVE_REDUCE_SCATTER | 1 << FANIN_COLLECTIVE_BROADCAST |
		       1 << FANIN_COLLECTIVE_ALLGATHER | 1 << FANIN_COLLECTIVE_ALLREDUCE_SPARSE,
	.any_density = true,
	.listen = fanin_ring_listen,
	.open = ring_open,
	.close = ring_close,
	.ready = ring_ready,
	.post = ring_post,
	.poll = ring_poll,
	.idle_ns = ring_idle_ns,
	.poll_fds = ring_poll_fds,
	.error = ring_error,
	.missing = ring_missing,
	.report = ring_report,
};

FANIN_PROTOCOL_REGISTER(fanin_protocol_ring)
