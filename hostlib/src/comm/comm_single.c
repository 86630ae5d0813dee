/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Communicators with one engine, on a switch or among the ranks: calls are passed to their
 * protocol.
 */
#include "comm_join.h"

uint64_t
fanin_comm_wait_limit_ns(const struct fanin_join_opts *options)
{
	return options->wait_limit_ms > UINT64_MAX / 1000000u ? 0
							      : options->wait_limit_ms * 1000000u;
}

int
fanin_comm_engine_open(struct fanin_comm *comm, const struct fanin_join_opts *options,
		       struct fanin_protocol_config *config, struct fanin_error *error)
{
	config->timeout_ns = options->timeout_ms * 1000000ull;
	config->wait_limit_ns = fanin_comm_wait_limit_ns(options);
	config->rank = comm->member.config.rank;
	config->size = comm->member.config.size;
	config->wide = comm->member.wide;
	config->log = &comm->ctx->log;
	return comm->protocol->open(comm->protocol, config, &comm->endpoint, error);
}

static int
single_post(struct fanin_comm *comm, struct fanin_request *request, uint64_t count)
{
	if (comm->agreement.is_open || fanin_comm_must_agree(comm, request))
		return fanin_comm_hold(comm, request, count);
	return comm->protocol->post(comm->endpoint, request, count);
}

static int
engine_poll(struct fanin_comm *comm)
{
	int status;

	/* Among the ranks, the protocol itself tells the others of a failure. */
	if (comm->protocol->on_switch == NULL)
		return comm->protocol->poll(comm->endpoint);
	status = fanin_comm_recover_poll(comm);
	if (comm->protocol->error(comm->endpoint)->text[0] != '\0')
		fanin_comm_give_up(comm);
	return status;
}

static int
single_poll(struct fanin_comm *comm)
{
	int status = engine_poll(comm);

	/* Requests that were held back are sent at once. */
	if (__builtin_expect(comm->agreement.is_open, 0) && fanin_comm_agree(comm))
		engine_poll(comm);
	return status;
}

static uint64_t
single_idle_ns(const struct fanin_comm *comm)
{
	return comm->protocol->idle_ns(comm->endpoint);
}

static unsigned int
single_poll_fds(struct fanin_comm *comm, struct pollfd *fds)
{
	return comm->protocol->poll_fds(comm->endpoint, fds);
}

static const struct fanin_error *
single_error(const struct fanin_comm *comm)
{
	return comm->protocol->error(comm->endpoint);
}

static void
single_missing(const struct fanin_comm *comm, struct fanin_ranks *ranks)
{
	comm->protocol->missing(comm->endpoint, ranks);
}

/* Fills in the counts of the communicator's transports, including closed ones. */
static void
counts_report(const struct fanin_comm *comm, struct fanin_report *report)
{
	struct fanin_transport_counts counts = comm->recovery.counts;

	fanin_transport_counts_add(comm->transport, &counts);
	report->super_frames_sent = counts.super_frames.sent;
	report->super_frame_packets_sent = counts.super_frames.sent_packets;
	report->super_frames_received = counts.super_frames.received;
	report->super_frame_packets_received = counts.super_frames.received_packets;
	report->send_calls = counts.send_calls;
	report->receive_calls = counts.receive_calls;
	report->other_calls = counts.other_calls;
	report->bytes_copied_out = counts.copied_out;
	report->bytes_copied_in = counts.copied_in;
}

static void
single_report(const struct fanin_comm *comm, struct fanin_report *report)
{
	struct fanin_transport *transport = comm->transport;

	/*
	 * A result that lacks any rank's data is never accepted: finished collectives were reduced
	 * in the network.
	 */
	report->in_network = comm->protocol->on_switch != NULL;
	report->transport_reason = comm->mode_reason;
	report->handler = comm->member.handler;
	report->interface = comm->route.interface;
	report->accumulates_f32 = comm->member.wide;
	report->window = comm->window;
	report->payload_bytes = comm->payload_bytes;
	report->authenticated = comm->member.config.authenticate;
	if (transport != NULL) {
		report->transport = transport->ops->name;
		report->transport_reason = transport->reason;
		report->ring_drops = comm->recovery.ring_drops +
				     transport->ops->ring_drops(transport);
		counts_report(comm, report);
	}
	comm->protocol->report(comm->endpoint, report);
}

static struct fanin_comm *
single_part(struct fanin_comm *comm, uint16_t tree)
{
	(void)tree; /* there is only one */
	return comm;
}

static int
single_leave(struct fanin_comm *comm, struct fanin_error *error)
{
	int status = FANIN_OK;

	if (comm->endpoint != NULL)
		comm->protocol->close(comm->endpoint);
	if (comm->member.channel.ops != NULL)
		status = fanin_member_leave(&comm->member, error);
	fanin_member_close(&comm->member);
	if (comm->second.channel.ops != NULL)
		comm->second.channel.ops->close(&comm->second.channel);
	if (comm->transport != NULL)
		comm->transport->ops->close(comm->transport);
	return status;
}

const struct fanin_comm_ops fanin_comm_single_ops = {
	.post = single_post,
	.poll = single_poll,
	.idle_ns = single_idle_ns,
	.poll_fds = single_poll_fds,
	.error = single_error,
	.missing = single_missing,
	.report = single_report,
	.part = single_part,
	.leave = single_leave,
};
