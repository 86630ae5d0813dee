/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Blocking collectives in the network. With several ranks on a host each collective has three steps: the host's ranks and
 * their leader by MPI, which has shared memory; the leaders in the network; the leader and its ranks again. The leader tells
 * the others how the network's step ended, so that all ranks of a host return the same.
 */
#include "preload.h"

#include <stdlib.h>
#include <string.h>

/* A call that is being carried out. */
struct step {
	struct comm_state *state;
	const struct collective *call;
	size_t bytes;    /* of the vector */
	size_t part;     /* of each rank's part of it, where there are parts */
	size_t elements; /* of the vector, as the network counts them: a complex number has two */
	size_t element_bytes;
	enum fanin_dtype dtype;
	enum fanin_op op;
};

static int
mpi_status(int status)
{
	return status == MPI_SUCCESS ? FANIN_OK : FANIN_ERR_SYSTEM;
}

static bool
is_leader(const struct comm_state *state)
{
	return state->node_rank == 0;
}

static bool
is_alone(const struct comm_state *state)
{
	return state->node_size == 1;
}

/* All ranks of the host learn what their leader has got. */
static int
status_share(const struct comm_state *state, int status)
{
	if (!is_alone(state) && PMPI_Bcast(&status, 1, MPI_INT, 0, state->node) != MPI_SUCCESS)
		return FANIN_ERR_SYSTEM;
	return status;
}

/* Waits for what was posted, if it was. */
static int
posted_finish(struct comm_state *state, int posted, fanin_request *req)
{
	return posted == FANIN_OK ? channel_wait(state->channel, &req) : posted;
}

#define NETWORK_CALL(state, post)                                                                  \
	({                                                                                         \
		fanin_request *posted_req = NULL;                                                  \
		int posted_status;                                                                 \
		posted_status = (post);                                                            \
		posted_finish(state, posted_status, posted_req);                                   \
	})

static const void *
own_data(const struct collective *call)
{
	return call->send == MPI_IN_PLACE ? call->recv : call->send;
}

/* The sum of a host's ranks, in the leader's `sum`. */
static int
node_reduce(const struct step *step, void *sum, int count)
{
	const struct collective *call = step->call;
	const void *mine = own_data(call);
	const void *send = is_leader(step->state) && mine == sum ? MPI_IN_PLACE : mine;

	return mpi_status(PMPI_Reduce(send, sum, count, call->type, call->op, 0, step->state->node));
}

static int
run_allreduce(const struct step *step)
{
	struct comm_state *state = step->state;
	const struct collective *call = step->call;
	const size_t count = (size_t)call->count;
	int status = FANIN_OK;

	if (is_alone(state))
		return NETWORK_CALL(state, fanin_iallreduce(own_data(call), call->recv,
							    step->elements, step->dtype, step->op,
							    state->channel->comm, &posted_req));
	status = node_reduce(step, call->recv, (int)count);
	if (is_leader(state) && status == FANIN_OK)
		status = NETWORK_CALL(state, fanin_iallreduce(call->recv, call->recv,
							      step->elements, step->dtype, step->op,
							      state->channel->comm, &posted_req));
	status = status_share(state, status);
	if (status == FANIN_OK)
		status = mpi_status(PMPI_Bcast(call->recv, (int)count, call->type, 0, state->node));
	return status;
}

/* The leader's part of a reduce. sum: receives the result at the leader of the root's host. */
static int
leader_reduce(const struct step *step, void *sum)
{
	struct comm_state *state = step->state;
	int status = node_reduce(step, sum, (int)step->call->count);

	if (status == FANIN_OK)
		status = NETWORK_CALL(state,
				      fanin_ireduce(sum, sum, step->elements, step->dtype, step->op,
						    (uint16_t)state->host_of[step->call->root],
						    state->channel->comm, &posted_req));
	return status;
}

static int
run_reduce(const struct step *step)
{
	struct comm_state *state = step->state;
	const struct collective *call = step->call;
	const bool is_root = call->root == state->rank;
	const int place = state->place_of[call->root];
	void *sum = is_root ? call->recv : NULL;
	int status = FANIN_OK;

	if (is_alone(state))
		return NETWORK_CALL(state, fanin_ireduce(is_root ? own_data(call) : call->send, sum,
							 step->elements, step->dtype, step->op,
							 (uint16_t)state->host_of[call->root],
							 state->channel->comm, &posted_req));
	if (!is_leader(state)) {
		status = node_reduce(step, NULL, (int)call->count);
	} else {
		if (sum == NULL)
			sum = malloc(step->bytes);
		status = sum == NULL ? FANIN_ERR_NO_MEMORY : leader_reduce(step, sum);
	}
	status = status_share(state, status);
	if (status == FANIN_OK && state->host == state->host_of[call->root] && place != 0) {
		if (is_leader(state))
			status = mpi_status(PMPI_Send(sum, (int)call->count, call->type, place, 0,
						      state->node));
		else if (is_root)
			status = mpi_status(PMPI_Recv(call->recv, (int)call->count, call->type, 0,
						      0, state->node, MPI_STATUS_IGNORE));
	}
	if (is_leader(state) && !is_root)
		free(sum);
	return status;
}

/* data: the vector's bytes, at the root those to send. */
static int
bytes_broadcast(const struct step *step, void *data)
{
	struct comm_state *state = step->state;
	const int root_host = state->host_of[step->call->root];
	int status = FANIN_OK;

	if (!is_alone(state) && state->host == root_host)
		status = mpi_status(PMPI_Bcast(data, (int)step->bytes, MPI_BYTE,
					       state->place_of[step->call->root], state->node));
	if (is_leader(state) && status == FANIN_OK)
		status = NETWORK_CALL(state, fanin_ibroadcast(data, step->bytes, FANIN_U8,
							      (uint16_t)root_host,
							      state->channel->comm, &posted_req));
	status = status_share(state, status);
	if (!is_alone(state) && state->host != root_host && status == FANIN_OK)
		status = mpi_status(PMPI_Bcast(data, (int)step->bytes, MPI_BYTE, 0, state->node));
	return status;
}

static int
pack(const void *from, MPI_Count count, MPI_Datatype type, void *bytes, size_t n, MPI_Comm comm)
{
	int position = 0;

	return mpi_status(PMPI_Pack(from, (int)count, type, bytes, (int)n, &position, comm));
}

static int
unpack(const void *bytes, size_t n, void *to, MPI_Count count, MPI_Datatype type, MPI_Comm comm)
{
	int position = 0;

	return mpi_status(PMPI_Unpack(bytes, (int)n, &position, to, (int)count, type, comm));
}

/* Ranks may describe the same data by different types: those that are not plain are packed, whatever others do. */
static int
run_broadcast(const struct step *step)
{
	const struct collective *call = step->call;
	const bool is_root = call->root == step->state->rank;
	void *packed;
	int status = FANIN_OK;

	if (type_plain_bytes(call->type) != 0)
		return bytes_broadcast(step, call->recv);
	packed = malloc(step->bytes);
	if (packed == NULL)
		return FANIN_ERR_NO_MEMORY;
	if (is_root)
		status = pack(call->recv, call->count, call->type, packed, step->bytes, call->comm);
	if (status == FANIN_OK)
		status = bytes_broadcast(step, packed);
	if (status == FANIN_OK && !is_root)
		status = unpack(packed, step->bytes, call->recv, call->count, call->type, call->comm);
	free(packed);
	return status;
}

/* data: the parts of all ranks. mine: this rank's part, there or elsewhere. */
static int
bytes_allgather(const struct step *step, const void *mine, uint8_t *data)
{
	struct comm_state *state = step->state;
	const size_t part = step->part;
	uint8_t *hosts_part = data + (size_t)state->host * (size_t)state->node_size * part;
	int status;

	if (is_alone(state))
		return NETWORK_CALL(state, fanin_iallgather(mine, data, part, FANIN_U8,
							    state->channel->comm, &posted_req));
	status = mpi_status(PMPI_Gather(is_leader(state) && mine == hosts_part ? MPI_IN_PLACE : mine,
					(int)part, MPI_BYTE, hosts_part, (int)part, MPI_BYTE, 0,
					state->node));
	if (is_leader(state) && status == FANIN_OK)
		status = NETWORK_CALL(state,
				      fanin_iallgather(hosts_part, data,
						       part * (size_t)state->node_size, FANIN_U8,
						       state->channel->comm, &posted_req));
	status = status_share(state, status);
	if (status == FANIN_OK)
		status = mpi_status(PMPI_Bcast(data, (int)step->bytes, MPI_BYTE, 0, state->node));
	return status;
}

/* Where the rank's own part of an allgather is, as bytes: in the program's buffers, or packed at `mine`. */
static const void *
own_part(const struct step *step, uint8_t *mine, int *status)
{
	const struct collective *call = step->call;
	const size_t rank = (size_t)step->state->rank;
	MPI_Aint low, extent;

	*status = FANIN_OK;
	if (call->send != MPI_IN_PLACE) {
		if (type_plain_bytes(call->send_type) != 0)
			return call->send;
		*status = pack(call->send, call->send_count, call->send_type, mine, step->part,
			       call->comm);
		return mine;
	}
	if (type_plain_bytes(call->type) != 0)
		return (const uint8_t *)call->recv + rank * step->part;
	PMPI_Type_get_extent(call->type, &low, &extent);
	*status = pack((const uint8_t *)call->recv + (MPI_Aint)rank * call->count * extent,
		       call->count, call->type, mine, step->part, call->comm);
	return mine;
}

static int
run_allgather(const struct step *step)
{
	const struct collective *call = step->call;
	const struct comm_state *state = step->state;
	const bool is_plain = type_plain_bytes(call->type) != 0;
	uint8_t *packed = NULL, *data = call->recv;
	MPI_Aint low, extent;
	const void *mine;
	int status;

	if (!is_plain || (call->send != MPI_IN_PLACE && type_plain_bytes(call->send_type) == 0)) {
		packed = malloc(step->bytes);
		if (packed == NULL)
			return FANIN_ERR_NO_MEMORY;
		data = packed;
	}
	mine = own_part(step, data + (size_t)state->rank * step->part, &status);
	if (status == FANIN_OK)
		status = bytes_allgather(step, mine, data);
	if (packed != NULL && status == FANIN_OK && is_plain)
		memcpy(call->recv, packed, step->bytes);
	if (packed != NULL && !is_plain) {
		PMPI_Type_get_extent(call->type, &low, &extent);
		for (int i = 0; i < state->size && status == FANIN_OK; i++)
			status = unpack(packed + (size_t)i * step->part, step->part,
					(uint8_t *)call->recv + (MPI_Aint)i * call->count * extent,
					call->count, call->type, call->comm);
	}
	free(packed);
	return status;
}

/* In place the vector is in recv, and the result goes to its start; the network's would be where the part was. */
static int
run_reduce_scatter_alone(const struct step *step)
{
	struct comm_state *state = step->state;
	const struct collective *call = step->call;
	const size_t part = step->part;
	const bool in_place = call->send == MPI_IN_PLACE;
	uint8_t *own = in_place ? (uint8_t *)call->recv + (size_t)state->rank * part : call->recv;
	const int status = NETWORK_CALL(state,
					fanin_ireduce_scatter(own_data(call), own,
							      part / step->element_bytes,
							      step->dtype, step->op,
							      state->channel->comm, &posted_req));

	if (in_place && status == FANIN_OK)
		memmove(call->recv, own, part);
	return status;
}

static int
run_reduce_scatter(const struct step *step)
{
	struct comm_state *state = step->state;
	const struct collective *call = step->call;
	const size_t part = step->part, hosts_part = part * (size_t)state->node_size;
	const bool leads = is_leader(state);
	uint8_t *sum = NULL, *own = NULL;
	int status = FANIN_OK;

	if (is_alone(state))
		return run_reduce_scatter_alone(step);
	if (leads) {
		sum = malloc(step->bytes);
		if (sum == NULL)
			status = FANIN_ERR_NO_MEMORY;
		else
			own = sum + (size_t)state->host * hosts_part;
	}
	if (status == FANIN_OK)
		status = node_reduce(step, sum, (int)call->count * state->size);
	if (leads && status == FANIN_OK)
		status = NETWORK_CALL(state,
				      fanin_ireduce_scatter(sum, own, hosts_part / step->element_bytes,
							    step->dtype, step->op,
							    state->channel->comm, &posted_req));
	status = status_share(state, status);
	if (status == FANIN_OK)
		status = mpi_status(PMPI_Scatter(own, (int)call->count, call->type, call->recv,
						 (int)call->count, call->type, 0, state->node));
	free(sum);
	return status;
}

static int
run_barrier(const struct step *step)
{
	struct comm_state *state = step->state;
	int status = is_alone(state) ? FANIN_OK : mpi_status(PMPI_Barrier(state->node));

	if (is_leader(state) && status == FANIN_OK)
		status = NETWORK_CALL(state, fanin_ibarrier(state->channel->comm, &posted_req));
	return status_share(state, status);
}

int
collective_run(struct comm_state *state, const struct collective *call,
	       const struct operation *operation)
{
	static int (*const runs[N_COLLECTIVES])(const struct step *) = {
		[COLLECTIVE_ALLREDUCE] = run_allreduce,
		[COLLECTIVE_REDUCE] = run_reduce,
		[COLLECTIVE_BCAST] = run_broadcast,
		[COLLECTIVE_BARRIER] = run_barrier,
		[COLLECTIVE_ALLGATHER] = run_allgather,
		[COLLECTIVE_REDUCE_SCATTER_BLOCK] = run_reduce_scatter,
	};
	const size_t element_bytes = fanin_dtype_size_of(operation->dtype);
	const struct step step = { .state = state,
				   .call = call,
				   .bytes = operation->bytes,
				   .part = operation->bytes / (size_t)state->size,
				   .elements = operation->bytes / element_bytes,
				   .element_bytes = element_bytes,
				   .dtype = operation->dtype,
				   .op = operation->op };

	return runs[call->kind](&step);
}
