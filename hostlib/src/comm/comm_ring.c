/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A communicator without a switch: its hosts form a ring.
 */
#include "context.h"

#include <arpa/inet.h>
#include <string.h>
#include <unistd.h>

#define WAIT_MS 50

/* Polls until both neighbours are there. */
static int
wiring_wait(struct fanin_comm *comm, const struct fanin_join_opts *options, uint64_t deadline_ns,
	    struct fanin_error *error)
{
	const struct fanin_ctx *ctx = comm->ctx;
	struct pollfd fds[FANIN_TRANSPORT_MAX_FDS];
	char text[FANIN_TEXT_LEN / 2];

	for (;;) {
		fanin_ring_poll(comm->ring);
		fanin_manager_poll(comm->manager);
		if (fanin_ring_wired(comm->ring))
			return FANIN_OK;
		if (fanin_now_ns(NULL) >= deadline_ns) {
			fanin_ring_wiring_text(comm->ring, text, sizeof(text));
			fanin_error_set(error, 0,
					"the ring of job '%s' is not complete within %.1f s: %s",
					comm->job_name, options->join_timeout_ms / 1e3, text);
			error->missing = fanin_ring_wiring_missing(comm->ring);
			return FANIN_ERR_JOIN_TIMEOUT;
		}
		if (ctx->interrupt != NULL && ctx->interrupt(ctx->interrupt_arg))
			return fanin_error_set(error, FANIN_ERR_INTERRUPTED,
					       "interrupted while joining job '%s'", comm->job_name);
		poll(fds, fanin_ring_poll_fds(comm->ring, fds), WAIT_MS);
	}
}

int
fanin_comm_ring(struct fanin_comm *comm, const struct fanin_join_opts *options,
		const struct fanin_manager_answer *answer, int listener, uint64_t deadline_ns,
		struct fanin_error *error)
{
	struct fanin_ring_config config = {
		.timeout_ns = options->timeout_ms * 1000000ull,
		.wait_limit_ns = fanin_wait_limit_ns(options),
		.rank = answer->rank,
		.size = answer->size,
		.wide = options->accumulate_f32,
		.listener = listener,
		.next = answer->endpoints[(answer->rank + 1u) % answer->size],
		.prev = answer->endpoints[(answer->rank + answer->size - 1u) % answer->size],
		.now_ns = fanin_now_ns,
		.log = &comm->ctx->log,
	};
	struct fanin_keys keys;

	if (options->authenticate) {
		close(listener);
		return fanin_error_set(
			error, FANIN_ERR_MANAGER,
			"the manager answered with a ring for job '%s', which has no authentication, as this host asks for: %s",
			comm->job_name, answer->reason);
	}
	if (fanin_keys_derive(answer->key, &keys) != 0)
		return fanin_error_set(error, FANIN_ERR_NO_MEMORY, "out of memory for the keys");
	config.key = keys.ring;
	if (fanin_ring_create(&config, &comm->ring) != FANIN_OK)
		return fanin_error_set(error, FANIN_ERR_NO_MEMORY, "out of memory for the ring");
	comm->ops = &fanin_comm_ring_ops;
	comm->member.config.rank = answer->rank;
	comm->member.config.size = answer->size;
	comm->member.config.key = answer->key;
	comm->member.wide = options->accumulate_f32;
	fanin_log_line(&comm->ctx->log, FANIN_LOG_WARNING,
		       "job '%s' does not run in the network but in a ring of its hosts: %s",
		       comm->job_name, answer->reason);
	return wiring_wait(comm, options, deadline_ns, error);
}

static int
ring_post(struct fanin_comm *comm, struct fanin_request *request, uint64_t count)
{
	return fanin_ring_post(comm->ring, request, count);
}

static int
ring_poll(struct fanin_comm *comm)
{
	return fanin_ring_poll(comm->ring);
}

static uint64_t
ring_idle_ns(const struct fanin_comm *comm)
{
	return fanin_ring_idle_ns(comm->ring);
}

static unsigned int
ring_poll_fds(struct fanin_comm *comm, struct pollfd *fds)
{
	return fanin_ring_poll_fds(comm->ring, fds);
}

static const struct fanin_error *
ring_error(const struct fanin_comm *comm)
{
	return fanin_ring_error(comm->ring);
}

static uint64_t
ring_missing(const struct fanin_comm *comm)
{
	return fanin_ring_missing(comm->ring);
}

static void
ring_report(const struct fanin_comm *comm, struct fanin_report *report)
{
	const struct fanin_ring_stats *stats = fanin_ring_stats(comm->ring);

	report->transport = "tcp ring";
	report->transport_reason = comm->mode_reason;
	report->handler = "ring";
	report->interface = comm->route.interface;
	report->blocks = stats->collectives;
	report->bytes_reduced = stats->bytes_reduced;
	report->invalid = stats->rejected;
	report->accumulates_f32 = comm->member.wide;
	report->trees = 0;
	report->late = fanin_ring_late(comm->ring);
}

/* What is on its way to another rank still arrives there when this one has left. */
static struct fanin_comm *
ring_part(struct fanin_comm *comm, uint16_t tree)
{
	(void)comm;
	(void)tree;
	return NULL;
}

static int
ring_leave(struct fanin_comm *comm, struct fanin_error *error)
{
	(void)error;
	fanin_ring_leave(comm->ring);
	fanin_ring_destroy(comm->ring);
	return FANIN_OK;
}

const struct fanin_comm_ops fanin_comm_ring_ops = {
	.mode = "ring",
	.has_custom = false,
	.post = ring_post,
	.poll = ring_poll,
	.idle_ns = ring_idle_ns,
	.poll_fds = ring_poll_fds,
	.error = ring_error,
	.missing = ring_missing,
	.report = ring_report,
	.part = ring_part,
	.leave = ring_leave,
};
