/* SPDX-License-Identifier: BSD-3-Clause */
/* The ring as a protocol (protocol/protocol.h), for jobs without a reduction tree. */
#include "ring.h"

static void
ring_close(struct fanin_endpoint *endpoint)
{
	if (endpoint != NULL)
		fanin_ring_leave(endpoint);
	fanin_ring_destroy(endpoint);
}

static void
ring_missing(struct fanin_endpoint *endpoint, struct fanin_ranks *ranks)
{
	*ranks = fanin_ranks_of_word(fanin_ring_missing(endpoint));
}

static void
ring_report(struct fanin_endpoint *endpoint, struct fanin_report *report)
{
	const struct fanin_ring_stats *stats = fanin_ring_stats(endpoint);

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
	report->send_calls = stats->send_calls;
	report->receive_calls = stats->receive_calls;
	report->bytes_copied_in = stats->bytes_copied;
	report->late = fanin_ring_late(endpoint);
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
	.open = fanin_ring_open,
	.close = ring_close,
	.ready = fanin_ring_ready,
	.post = fanin_ring_post,
	.poll = fanin_ring_poll,
	.idle_ns = fanin_ring_idle_ns,
	.poll_fds = fanin_ring_poll_fds,
	.error = fanin_ring_error,
	.abort = fanin_ring_abort,
	.missing = ring_missing,
	.report = ring_report,
};

FANIN_PROTOCOL_REGISTER(fanin_protocol_ring)
