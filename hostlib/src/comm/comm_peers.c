/* SPDX-License-Identifier: BSD-3-Clause */
/* A communicator without a switch: its protocol runs among the ranks. */
#include "comm_join.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define WAIT_MS 50

int
fanin_comm_ready_wait(struct fanin_comm *comm, const struct fanin_join_opts *options,
		      uint64_t deadline_ns, struct fanin_error *error)
{
	const struct fanin_protocol *protocol = comm->protocol;
	const struct fanin_ctx *ctx = comm->ctx;
	struct pollfd fds[FANIN_TRANSPORT_MAX_FDS];
	struct fanin_error problem = { 0 };

	for (;;) {
		protocol->poll(comm->endpoint);
		fanin_manager_poll(comm->manager);
		if (protocol->ready == NULL || protocol->ready(comm->endpoint, &problem))
			return FANIN_OK;
		if (fanin_now_ns(NULL) >= deadline_ns) {
			fanin_error_set(error, 0,
					"the %s of job '%s' is not complete within %.1f s: %s",
					protocol->name, comm->job_name,
					options->join_timeout_ms / 1e3, problem.text);
			error->missing = problem.missing;
			return FANIN_ERR_JOIN_TIMEOUT;
		}
		if (ctx->interrupt != NULL && ctx->interrupt(ctx->interrupt_arg))
			return fanin_error_set(error, FANIN_ERR_INTERRUPTED,
					       "interrupted while joining job '%s'",
					       comm->job_name);
		poll(fds, protocol->poll_fds(comm->endpoint, fds), WAIT_MS);
	}
}

int
fanin_comm_peers(struct fanin_comm *comm, const struct fanin_join_opts *options,
		 const struct fanin_manager_answer *answer, int listener, uint64_t deadline_ns,
		 struct fanin_error *error)
{
	struct fanin_member *member = &comm->member;
	struct fanin_protocol_config config = { .listener = listener, .peers = answer->endpoints };
	int status;

	if (options->authenticate && !comm->protocol->has_tags) {
		close(listener);
		return fanin_error_set(
			error, FANIN_ERR_MANAGER,
			"the manager answered with a %s for job '%s', which has no authentication, as this host asks for: %s",
			comm->protocol->name, comm->job_name, answer->reason);
	}
	if (fanin_keys_derive(answer->key, &config.keys) != 0) {
		close(listener);
		return fanin_error_set(error, FANIN_ERR_NO_MEMORY, "out of memory for the keys");
	}
	comm->trees.n = 0;
	member->config.rank = answer->rank;
	member->config.size = answer->size;
	member->config.key = answer->key;
	member->wide = options->accumulate_f32;
	snprintf(member->handler, sizeof(member->handler), "%s", FANIN_HANDLER_WITHOUT_SWITCH);
	status = fanin_comm_engine_open(comm, options, &config, error);
	if (status != FANIN_OK)
		return status;
	fanin_log_line(&comm->ctx->log, FANIN_LOG_WARNING,
		       "job '%s' does not run in the network but in a %s of its hosts: %s",
		       comm->job_name, comm->protocol->name, answer->reason);
	return fanin_comm_ready_wait(comm, options, deadline_ns, error);
}
