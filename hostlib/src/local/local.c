/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks of one host as a protocol. See local.h, and local_internal.h for its parts. */
#include <stdlib.h>

#include "hostlib/src/base/absence.h"
#include "hostlib/src/base/clock.h"
#include "hostlib/src/protocol/split.h"
#include "local_internal.h"

/* Steps of one poll at most: other communicators of the context have their turn, too. */
#define MAX_ROUNDS 16
/* Longest sleep: a lost rank is noticed at the latest then. */
#define SLEEP_NS (100 * 1000000ull)

static struct fanin_local *
local_of(struct fanin_endpoint *endpoint)
{
	return (struct fanin_local *)endpoint;
}

static int
local_post(struct fanin_endpoint *endpoint, struct fanin_request *request, uint64_t count)
{
	struct fanin_local *local = local_of(endpoint);
	const struct fanin_local_layout *layout = &local->config.layout;
	struct fanin_local_plan plan = { 0 };

	if (local->status != FANIN_OK)
		return local->status;
	fanin_request_layout(request, layout->rank, layout->size, count);
	if (request->sparse == NULL &&
	    !fanin_local_plan_make(&plan, layout, request, local->facts.wide != 0))
		return FANIN_ERR_INVALID;
	request->first_block = 0;
	/* Of a sparse request: not known yet. */
	request->n_blocks = plan.chunks;
	if (local->requests.first == NULL) {
		local->moved_ns = fanin_now_ns(NULL);
		local->polled_ns = local->moved_ns;
	}
	local->bytes += request->send_bytes;
	fanin_request_list_append(&local->requests, request);
	fanin_local_enter(local, request);
	return FANIN_OK;
}

/* An absence of the caller does not count as a wait for others (base/absence.h). */
static void
absence_forgive(struct fanin_local *local, uint64_t now_ns)
{
	const uint64_t by_ns = fanin_absence_forgiven_ns(now_ns - local->polled_ns,
							 local->config.wait_limit_ns);

	local->polled_ns = now_ns;
	if (by_ns != 0)
		local->moved_ns = fanin_absence_move(local->moved_ns, by_ns, now_ns);
}

static int
local_poll(struct fanin_endpoint *endpoint)
{
	struct fanin_local *local = local_of(endpoint);
	const uint64_t now_ns = fanin_now_ns(NULL);
	int moved = 0;

	if (local->status != FANIN_OK)
		return local->status;
	absence_forgive(local, now_ns);
	if (__atomic_load_n(&fanin_local_own(local)->waits, __ATOMIC_RELAXED) != 0)
		__atomic_store_n(&fanin_local_own(local)->waits, 0, __ATOMIC_RELAXED);
	for (int round = 0; round < MAX_ROUNDS && local->status == FANIN_OK; round++) {
		const int n = fanin_local_move(local);

		if (n == 0)
			break;
		moved += n;
	}
	if (local->status == FANIN_OK) {
		const int status = fanin_local_told(&local->config.meeting, &local->error);

		if (status != FANIN_OK)
			fanin_local_fail(local, status);
	}
	if (moved != 0)
		local->moved_ns = now_ns;
	else if (local->status == FANIN_OK)
		fanin_local_look_around(local, now_ns);
	return local->status != FANIN_OK ? local->status : moved;
}

/*
 * Returns 0 if there is something to do. Otherwise this rank may sleep: those that do what it waits
 * for wake it from now on.
 */
static uint64_t
local_idle_ns(struct fanin_endpoint *endpoint)
{
	struct fanin_local *local = local_of(endpoint);
	unsigned int steps, said = 0;

	if (local->status != FANIN_OK)
		return UINT64_MAX;
	local->has_slept = true;
	/* The steps that it waits for may change between the look and the store. */
	while (fanin_local_waits(local, &steps)) {
		if (steps == said)
			return SLEEP_NS;
		said = steps;
		__atomic_store_n(&fanin_local_own(local)->waits, said, __ATOMIC_RELAXED);
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
	}
	return 0;
}

static unsigned int
local_poll_fds(struct fanin_endpoint *endpoint, struct pollfd *fds)
{
	const struct fanin_local *local = local_of(endpoint);

	/* After a failure nobody reads what would wake this rank again and again. */
	if (local->status != FANIN_OK)
		return 0;
	fds[0] = (struct pollfd){ .fd = local->config.meeting.epoll_fd, .events = POLLIN };
	return 1;
}

static const struct fanin_error *
local_error(struct fanin_endpoint *endpoint)
{
	static const struct fanin_error none;
	const struct fanin_local *local = local_of(endpoint);

	return local->status != FANIN_OK ? &local->error : &none;
}

static void
local_missing(struct fanin_endpoint *endpoint, struct fanin_ranks *ranks)
{
	struct fanin_local *local = local_of(endpoint);

	if (local->status != FANIN_OK)
		*ranks = local->error.missing;
	else
		fanin_local_late(local, ranks);
}

static void
local_report(struct fanin_endpoint *endpoint, struct fanin_report *report)
{
	struct fanin_local *local = local_of(endpoint);
	const struct fanin_local_network *network = &local->config.network;
	const struct fanin_local_layout *layout = &local->config.layout;
	struct fanin_ranks late;

	if (network->post != NULL) {
		network->report(network->arg, report);
	} else {
		report->mode = local->facts.mode;
		report->handler = local->facts.handler;
		report->protocol = local->facts.protocol;
		report->transport = local->facts.transport;
		report->manager = local->facts.manager;
		report->window = local->facts.window;
		report->payload_bytes = local->facts.payload_bytes;
		report->trees = local->facts.trees;
		report->trees_asked = local->facts.trees;
		report->in_network = local->facts.in_network != 0;
		report->authenticated = local->facts.authenticated != 0;
		report->interface = "";
		report->blocks = local->n_chunks;
		report->bytes_reduced = local->bytes;
	}
	fanin_local_late(local, &late);
	report->late = late.words[0];
	report->n_late = fanin_ranks_count(&late);
	report->accumulates_f32 = local->facts.wide != 0;
	report->hosts = layout->n_hosts;
	report->local_ranks = layout->n_neighbors;
	report->local_bytes = local->shared_bytes;
}

void
fanin_local_end(struct fanin_endpoint *endpoint)
{
	struct fanin_local *local = local_of(endpoint);

	if (local->status == FANIN_OK && local->requests.first != NULL) {
		fanin_error_set(&local->error, FANIN_ERR_TIMEOUT,
				"rank %u has left the job in the middle of a collective",
				local->config.layout.rank);
		fanin_ranks_add(&local->error.missing, local->config.layout.rank);
		fanin_local_fail(local, FANIN_ERR_TIMEOUT);
	}
}

static void
local_close(struct fanin_endpoint *endpoint)
{
	struct fanin_local *local = local_of(endpoint);

	if (local == NULL)
		return;
	fanin_local_end(endpoint);
	__atomic_store_n(&fanin_local_own(local)->left, 1, __ATOMIC_RELEASE);
	for (unsigned int i = 0; i < FANIN_LOCAL_DEPTH; i++)
		fanin_split_free(&local->hosts[i]);
	fanin_local_sparse_clear(&local->sparse, &local->config.layout);
	fanin_local_part(&local->config.meeting);
	fanin_local_layout_free(&local->config.layout);
	free(local);
}

int
fanin_local_open(const struct fanin_local_config *config, struct fanin_endpoint **endpoint,
		 struct fanin_error *error)
{
	struct fanin_local *local = calloc(1, sizeof(*local));

	if (local == NULL)
		return fanin_error_set(error, FANIN_ERR_NO_MEMORY, "out of memory");
	local->config = *config;
	local->facts = config->meeting.memory.head->facts;
	local->endpoint.protocol = local->facts.sparse ? &fanin_local_sparse_protocol
						       : &fanin_local_protocol;
	fanin_request_list_init(&local->requests);
	*endpoint = &local->endpoint;
	return FANIN_OK;
}

#define COLLECTIVES                                                                                \
	(1 << FANIN_COLLECTIVE_ALLREDUCE | 1 << FANIN_COLLECTIVE_REDUCE |                          \
	 1 << FANIN_COLLECTIVE_REDUCE_SCATTER | 1 << FANIN_COLLECTIVE_BROADCAST |                  \
	 1 << FANIN_COLLECTIVE_ALLGATHER)
#define FUNCTIONS                                                                                  \
	.name = "local", .close = local_close, .post = local_post, .poll = local_poll,             \
	.idle_ns = local_idle_ns, .poll_fds = local_poll_fds, .error = local_error,                \
	.missing = local_missing, .report = local_report

const struct fanin_protocol fanin_local_protocol = { FUNCTIONS, .collectives = COLLECTIVES };
const struct fanin_protocol fanin_local_sparse_protocol = {
	FUNCTIONS, .collectives = COLLECTIVES | 1 << FANIN_COLLECTIVE_ALLREDUCE_SPARSE
};
