/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The steps of a collective in the network. With several ranks on a host each collective has three
 * steps, except an allreduce (shared.c): the host's ranks and their leader by MPI, which has shared
 * memory, but combines by the library's operators; the leaders in the network; the leader and its
 * ranks again. The leader tells the others the status of the network's step, so that all ranks of a
 * host return the same. With one rank on each host, and data that needs no packing, a collective is
 * posted to the library directly, so that several can be in progress.
 */
#ifndef FANIN_BINDINGS_MPI_NETWORK_H
#define FANIN_BINDINGS_MPI_NETWORK_H

#include "core.h"

/* A call that is being carried out. */
struct step {
	struct comm_state *state;
	const struct collective *call;
	size_t bytes;    /* of the vector */
	size_t part;     /* of each rank's part of it, if there are parts */
	size_t elements; /* of the vector, as the network counts: a complex number has two */
	size_t element_bytes;
	enum fanin_dtype dtype;
	enum fanin_op op;
};

static inline int
mpi_status(int status)
{
	return status == MPI_SUCCESS ? FANIN_OK : FANIN_ERR_SYSTEM;
}

/* Runs a step among the ranks of a host. Returns a fanin_status. */
#define NODE_CALL(state, name, iname, ...)                                                         \
	mpi_status(MPI_CALL((state)->in_background, name, iname, __VA_ARGS__))

static inline bool
is_leader(const struct comm_state *state)
{
	return state->node_rank == 0;
}

static inline bool
is_alone(const struct comm_state *state)
{
	return state->node_size == 1;
}

static inline const void *
own_data(const struct collective *call)
{
	return call->send == MPI_IN_PLACE ? call->recv : call->send;
}

/* True if the send buffer of an allgather goes into the network as it is. */
bool is_sent_as_is(const struct collective *call);
/*
 * Allocates memory for a vector. Returns NULL only if the host has no other ranks, which would wait
 * for this one in their steps.
 */
void *scratch(const struct comm_state *state, size_t bytes);
/* Tells all ranks of the host their leader's status. */
int status_share(const struct comm_state *state, int status);
/* Waits for a posted request, if posting succeeded. */
int posted_finish(struct comm_state *state, int posted, fanin_request *req);

/*
 * Runs a step of the leaders. `post` is a call of the library that leaves its request in
 * posted_req.
 */
#define NETWORK_CALL(state, post)                                                                  \
	({                                                                                         \
		fanin_request *posted_req = NULL;                                                  \
		int posted_status;                                                                 \
		posted_status = (post);                                                            \
		posted_finish(state, posted_status, posted_req);                                   \
	})

/* These carry out the whole collective. They return a fanin_status. */
int run_allreduce(const struct step *step);
int run_reduce(const struct step *step);
int run_reduce_scatter(const struct step *step);
int run_broadcast(const struct step *step);
int run_allgather(const struct step *step);

/* shared.c: an allreduce of a communicator whose state has shared memory. */
int shared_allreduce(const struct step *step);

/*
 * These post the collective, if each host has one rank and no data is packed; a reduce_scatter not
 * in place.
 */
int post_allreduce(const struct step *step, fanin_request **req);
int post_reduce(const struct step *step, fanin_request **req);
int post_reduce_scatter(const struct step *step, fanin_request **req);
int post_broadcast(const struct step *step, fanin_request **req);
int post_allgather(const struct step *step, fanin_request **req);

#endif
