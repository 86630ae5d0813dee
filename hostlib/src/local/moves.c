/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The steps of chunks. Each step has a cursor, which goes through the chunks of all posted
 * requests; the counters in memory tell how far the cursors of the other ranks are. docs/local.md
 * has the conditions of each step, and tests/model/local.pml checks them. See local_internal.h.
 */
#include "hostlib/src/protocol/split.h"
#include "local_internal.h"

/* What a step may wait for beside steps of other ranks, which wake this one. */
#define ALL_STEPS (FANIN_LOCAL_FILLED | FANIN_LOCAL_REDUCED | FANIN_LOCAL_TAKEN | FANIN_LOCAL_READY)
#define NETWORK 0x100u /* the job of hosts */
#define NOTHING 0x200u /* there is no chunk to be moved */

/* ---- cursors */

static void
cursor_enter(const struct fanin_local *local, struct fanin_local_cursor *cursor,
	     struct fanin_request *request)
{
	cursor->request = request;
	cursor->index = 0;
	if (request == NULL)
		return;
	if (request->sparse == NULL)
		(void)fanin_local_plan_make(&cursor->plan, &local->config.layout, request,
					    local->facts.wide != 0);
	else
		cursor->plan = (struct fanin_local_plan){
			.chunks = fanin_local_sparse_chunks(request->sparse), .combines = true
		};
}

static bool
is_sparse(const struct fanin_local_cursor *cursor)
{
	return cursor->request != NULL && cursor->request->sparse != NULL;
}

/* True if a sparse request's cursor is at a chunk of the result. */
static bool
is_at_result(const struct fanin_local_cursor *cursor)
{
	return is_sparse(cursor) && cursor->index >= cursor->plan.chunks;
}

/*
 * Finds how many chunks a sparse request has, once its result is known, and leaves the request
 * behind if the cursor is through with it. Returns false if that is not known yet.
 */
static bool
cursor_settle(const struct fanin_local *local, struct fanin_local_cursor *cursor)
{
	struct fanin_request *request = cursor->request;
	uint64_t first, n;

	if (!is_sparse(cursor) || cursor->index <= cursor->plan.chunks)
		return true;
	if (request->n_blocks == 0) {
		/* The first chunk of the result is there until this rank has taken it. */
		first = cursor->chunk - cursor->index + cursor->plan.chunks;
		if (fanin_local_ready(local) <= first)
			return false;
		n = fanin_local_sparse_result_count(
			fanin_local_out(&local->config.meeting.memory, first));
		request->n_blocks = cursor->plan.chunks +
				    fanin_local_sparse_result_chunks(request->sparse, n);
	}
	if (cursor->index == request->n_blocks)
		cursor_enter(local, cursor, request->next);
	return true;
}

static void
cursor_next(const struct fanin_local *local, struct fanin_local_cursor *cursor)
{
	cursor->chunk++;
	cursor->index++;
	if (is_sparse(cursor))
		(void)cursor_settle(local, cursor);
	else if (cursor->index == cursor->plan.chunks)
		cursor_enter(local, cursor, cursor->request->next);
}

static struct fanin_local_piece
piece_at(const struct fanin_local_cursor *cursor)
{
	return fanin_local_piece_of(&cursor->plan, cursor->index);
}

static uint8_t *
out_at(const struct fanin_local *local, const struct fanin_local_cursor *cursor)
{
	return fanin_local_out(&local->config.meeting.memory, cursor->chunk);
}

static void
fail_without_memory(struct fanin_local *local)
{
	fanin_error_set(&local->error, FANIN_ERR_NO_MEMORY,
			"rank %u: out of memory for sparse values", local->config.layout.rank);
	fanin_local_fail(local, FANIN_ERR_NO_MEMORY);
}

/* ---- fill */

static unsigned int
fill_waits_for(struct fanin_local *local)
{
	struct fanin_local_cursor *at = &local->fill;
	enum fanin_local_step step;

	/* Whether a sparse request has another chunk is known when its result is. */
	if (!cursor_settle(local, at))
		return FANIN_LOCAL_READY;
	if (at->request == NULL)
		return NOTHING;
	/* A sparse request is alone in memory: the leader keeps the values of one at a time. */
	if (local->take.request != at->request && (is_sparse(&local->take) || is_sparse(at)))
		return FANIN_LOCAL_READY;
	step = at->plan.combines ? FANIN_LOCAL_REDUCED : FANIN_LOCAL_TAKEN;
	return fanin_local_is_free(local, step, at->chunk) ? 0 : step;
}

static void
fill_move(struct fanin_local *local)
{
	struct fanin_local_cursor *at = &local->fill;
	const struct fanin_local_memory *memory = &local->config.meeting.memory;
	const struct fanin_request *request = at->request;
	uint8_t *in = fanin_local_in(memory, local->config.meeting.place, at->chunk);

	fanin_local_own(local)->calls[at->chunk % FANIN_LOCAL_DEPTH] = fanin_local_call_of(local,
											   request);
	if (!is_sparse(at))
		local->shared_bytes += fanin_local_fill(&local->config.layout, &at->plan, request,
							piece_at(at), in, out_at(local, at));
	else if (!is_at_result(at))
		fanin_local_sparse_fill(request->sparse, at->index, in);
	fanin_local_publish(local, FANIN_LOCAL_FILLED, at->chunk + 1);
	cursor_next(local, at);
}

/* ---- reduce */

/* True if this rank combines some of the chunk. */
static bool
combines_here(const struct fanin_local *local, const struct fanin_local_cursor *at)
{
	if (is_sparse(at))
		return fanin_local_leads(local) && !is_at_result(at);
	return at->plan.combines && at->plan.units != 0 &&
	       (!at->plan.is_small || fanin_local_leads(local));
}

/* The leader looks at each chunk before it makes the hosts' collective of it. */
static bool
looks_at(const struct fanin_local *local, const struct fanin_local_cursor *at)
{
	return fanin_local_leads(local) || combines_here(local, at);
}

static unsigned int
reduce_waits_for(struct fanin_local *local)
{
	const struct fanin_local_cursor *at = &local->reduce;

	if (looks_at(local, at) && !fanin_local_all_have(local, FANIN_LOCAL_FILLED, at->chunk + 1))
		return FANIN_LOCAL_FILLED;
	/* A sparse result is written when it has come. */
	if (combines_here(local, at) && !is_sparse(at) &&
	    !fanin_local_is_free(local, FANIN_LOCAL_TAKEN, at->chunk))
		return FANIN_LOCAL_TAKEN;
	return 0;
}

static void
reduce_move(struct fanin_local *local)
{
	struct fanin_local_cursor *at = &local->reduce;
	const struct fanin_local_memory *memory = &local->config.meeting.memory;
	const struct fanin_local_layout *layout = &local->config.layout;

	if (looks_at(local, at) && !fanin_local_calls_compare(local, at->chunk))
		return;
	if (combines_here(local, at) && !is_sparse(at)) {
		fanin_local_combine(layout, &at->plan, at->request, piece_at(at), memory,
				    local->config.meeting.place, at->chunk);
	} else if (combines_here(local, at) &&
		   !fanin_local_sparse_gather(&local->sparse, layout, at->request->sparse, memory,
					      at->chunk)) {
		fail_without_memory(local);
		return;
	}
	fanin_local_publish(local, FANIN_LOCAL_REDUCED, at->chunk + 1);
	cursor_next(local, at);
}

/* ---- post, at the leader */

static unsigned int
post_waits_for(struct fanin_local *local)
{
	/* There is a request of hosts for each place. */
	if (local->post.chunk - local->finish.chunk >= FANIN_LOCAL_DEPTH)
		return NETWORK;
	return fanin_local_all_have(local, FANIN_LOCAL_REDUCED, local->post.chunk + 1)
		       ? 0
		       : FANIN_LOCAL_REDUCED;
}

/*
 * Makes the hosts' request of all values of this host. Returns FANIN_OK or what the network's post
 * does; a failure of its own is the endpoint's.
 */
static int
sparse_post(struct fanin_local *local, const struct fanin_local_cursor *at,
	    struct fanin_request *hosts)
{
	const struct fanin_local_network *network = &local->config.network;
	struct fanin_local_sparse *sparse = &local->sparse;
	int status = fanin_local_sparse_join(sparse, &local->config.layout, at->request->sparse,
					     &local->error);

	if (status == FANIN_OK && network->post == NULL) {
		status = fanin_local_sparse_alone(sparse);
		if (status != FANIN_OK)
			fanin_error_set(&local->error, status, "out of memory for a sparse result");
	}
	if (status != FANIN_OK) {
		fanin_local_fail(local, status);
		return FANIN_OK;
	}
	if (network->post == NULL)
		return FANIN_OK;
	*hosts = (struct fanin_request){ .collective = FANIN_COLLECTIVE_ALLREDUCE_SPARSE,
					 .dtype = sparse->vector->dtype,
					 .op = sparse->vector->op,
					 .sparse = sparse->vector };
	return network->post(network->arg, hosts, sparse->vector->n);
}

static void
post_move(struct fanin_local *local)
{
	struct fanin_local_cursor *at = &local->post;
	const struct fanin_local_network *network = &local->config.network;
	struct fanin_request *hosts = &local->hosts[at->chunk % FANIN_LOCAL_DEPTH];
	uint64_t count;
	int status = FANIN_OK;

	*hosts = (struct fanin_request){ .status = FANIN_OK };
	if (is_sparse(at)) {
		if (at->index == at->plan.chunks)
			status = sparse_post(local, at, hosts);
	} else if (network->post != NULL) {
		count = fanin_local_hosts_request(&local->config.layout, &at->plan, at->request,
						  piece_at(at), out_at(local, at), hosts);
		status = network->post(network->arg, hosts, count);
	}
	if (status != FANIN_OK)
		fanin_local_fail_by_network(local, status);
	if (local->status == FANIN_OK)
		cursor_next(local, at);
}

/* ---- finish, at the leader */

static unsigned int
finish_waits_for(struct fanin_local *local)
{
	const struct fanin_local_cursor *at = &local->finish;

	if (local->hosts[at->chunk % FANIN_LOCAL_DEPTH].status == FANIN_IN_PROGRESS)
		return NETWORK;
	return is_at_result(at) && !fanin_local_is_free(local, FANIN_LOCAL_TAKEN, at->chunk)
		       ? FANIN_LOCAL_TAKEN
		       : 0;
}

static void
finish_move(struct fanin_local *local)
{
	struct fanin_local_cursor *at = &local->finish;
	struct fanin_request *hosts = &local->hosts[at->chunk % FANIN_LOCAL_DEPTH];
	uint8_t *out = out_at(local, at);

	fanin_split_free(hosts);
	if (hosts->status != FANIN_OK) {
		fanin_local_fail_by_network(local, hosts->status);
		return;
	}
	if (is_at_result(at)) {
		fanin_local_sparse_write(&local->sparse, at->request->sparse,
					 at->index - at->plan.chunks, out);
		at->request->n_blocks = at->plan.chunks +
					fanin_local_sparse_result_chunks(at->request->sparse,
									 local->sparse.found.count);
	} else if (!is_sparse(at)) {
		fanin_local_conclude(&local->config.layout, &at->plan, at->request, piece_at(at),
				     out);
	}
	__atomic_store_n(&local->config.meeting.memory.head->ready, at->chunk + 1,
			 __ATOMIC_RELEASE);
	fanin_local_wake_waiting(local, FANIN_LOCAL_READY);
	cursor_next(local, at);
}

/* ---- take */

static unsigned int
take_waits_for(struct fanin_local *local)
{
	return fanin_local_ready(local) > local->take.chunk ? 0 : FANIN_LOCAL_READY;
}

/* Takes a chunk of a sparse request. Returns true if it is the last one. */
static bool
sparse_take(struct fanin_local *local, struct fanin_local_cursor *at)
{
	struct fanin_request *request = at->request;
	const uint8_t *out = out_at(local, at);
	uint32_t chunks;

	if (!is_at_result(at))
		return false;
	if (!fanin_local_sparse_take(&local->sparse, request->sparse, at->index - at->plan.chunks,
				     out)) {
		fail_without_memory(local);
		return false;
	}
	chunks = fanin_local_sparse_result_chunks(request->sparse,
						  fanin_local_sparse_result_count(out));
	request->n_blocks = at->plan.chunks + chunks;
	return at->index + 1 == request->n_blocks;
}

/* Ends a sparse request. Returns its status. */
static int
sparse_end(struct fanin_local *local, struct fanin_request *request)
{
	struct fanin_local_cursor *const cursors[] = { &local->fill, &local->reduce, &local->post,
						       &local->finish };
	int status;

	/* No cursor stays at its end. */
	for (size_t i = 0; i < sizeof(cursors) / sizeof(cursors[0]); i++)
		(void)cursor_settle(local, cursors[i]);
	status = fanin_local_sparse_finish(&local->sparse, request->sparse);
	fanin_local_sparse_clear(&local->sparse, &local->config.layout);
	return status;
}

static void
take_move(struct fanin_local *local)
{
	struct fanin_local_cursor *at = &local->take;
	struct fanin_request *request = at->request;
	bool is_last = at->index + 1 == at->plan.chunks;
	int status = FANIN_OK;

	if (is_sparse(at))
		is_last = sparse_take(local, at);
	else
		local->shared_bytes += fanin_local_take(&local->config.layout, &at->plan, request,
							piece_at(at), out_at(local, at));
	if (local->status != FANIN_OK)
		return;
	request->done_blocks++;
	request->done_bytes = is_last         ? request->total_bytes
			      : is_sparse(at) ? 0
					      : request->total_bytes / at->plan.chunks *
							request->done_blocks;
	local->n_chunks++;
	cursor_next(local, at);
	fanin_local_publish(local, FANIN_LOCAL_TAKEN, at->chunk);
	if (!is_last)
		return;
	if (request->sparse != NULL)
		status = sparse_end(local, request);
	fanin_request_list_finish(&local->requests, request);
	request->status = status;
}

/* ---- all steps */

/* A step: its cursor, and the one that is ahead of it. */
struct step {
	struct fanin_local_cursor *at;
	const struct fanin_local_cursor *behind; /* NULL: none */
	unsigned int (*waits_for)(struct fanin_local *local);
	void (*move)(struct fanin_local *local);
};
#define N_STEPS 5

/* Fills in the steps, in the order in which results leave the memory earliest. */
static void
steps_list(struct fanin_local *local, struct step steps[N_STEPS])
{
	steps[0] = (struct step){ &local->finish, &local->post, finish_waits_for, finish_move };
	steps[1] = (struct step){ &local->take, NULL, take_waits_for, take_move };
	steps[2] = (struct step){ &local->fill, NULL, fill_waits_for, fill_move };
	steps[3] = (struct step){ &local->reduce, &local->fill, reduce_waits_for, reduce_move };
	steps[4] = (struct step){ &local->post, &local->reduce, post_waits_for, post_move };
}

/* Returns what a step waits for; 0: it can move. */
static unsigned int
step_waits_for(struct fanin_local *local, const struct step *step)
{
	if (step->at->request == NULL ||
	    (step->behind != NULL && step->at->chunk >= step->behind->chunk))
		return NOTHING;
	if (step->behind != NULL && (!cursor_settle(local, step->at) || step->at->request == NULL))
		return NOTHING;
	return step->waits_for(local);
}

int
fanin_local_move(struct fanin_local *local)
{
	struct step steps[N_STEPS];
	int moved = 0;

	steps_list(local, steps);
	for (unsigned int i = 0; i < N_STEPS && local->status == FANIN_OK; i++) {
		if (step_waits_for(local, &steps[i]) != 0)
			continue;
		steps[i].move(local);
		moved++;
	}
	return moved;
}

bool
fanin_local_waits(struct fanin_local *local, unsigned int *waits)
{
	struct step steps[N_STEPS];

	*waits = 0;
	steps_list(local, steps);
	for (unsigned int i = 0; i < N_STEPS; i++) {
		const unsigned int step = step_waits_for(local, &steps[i]);

		if (step == 0)
			return false;
		*waits |= step & ALL_STEPS;
	}
	return true;
}

void
fanin_local_enter(struct fanin_local *local, struct fanin_request *request)
{
	struct step steps[N_STEPS];

	steps_list(local, steps);
	for (unsigned int i = 0; i < N_STEPS; i++) {
		const bool is_leaders = steps[i].at == &local->post ||
					steps[i].at == &local->finish;

		if (steps[i].at->request == NULL && (!is_leaders || fanin_local_leads(local)))
			cursor_enter(local, steps[i].at, request);
	}
}

void
fanin_local_drop(struct fanin_local *local)
{
	struct step steps[N_STEPS];

	steps_list(local, steps);
	for (unsigned int i = 0; i < N_STEPS; i++)
		steps[i].at->request = NULL;
}
