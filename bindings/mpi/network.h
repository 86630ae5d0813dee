/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A collective in the network, as its steps see it. With several ranks on a host each has three
 * steps, but for an allreduce (shared.c): the host's ranks and their leader by MPI, which has
 * shared memory, but combines by the library's operators; the leaders in the network; the leader
 * and its ranks again. The leader tells the others how the network's step ended, so that all ranks
 * of a host return the same. With one rank on each host, and data that need no packing, a
 * collective is posted to the library as it is, so that several can be under way.
 */
#ifndef FANIN_BINDINGS_MPI_NETWORK_H
#define FANIN_BINDINGS_MPI_NETWORK_H

#include "preload.h"

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

static inline int
mpi_status(int status)
{
	return status == MPI_SUCCESS ? FANIN_OK : FANIN_ERR_SYSTEM;
}

/* A step among the ranks of a host. Returns a fanin_status. */
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

/* True if this rank's part of an allgather lies in the send buffer as it goes into the network. */
bool is_sent_as_is(const struct collective *call);
/*
 * Memory for a vector. NULL only if the host has no other ranks, which would wait for this one in
 * their steps.
 */
void *scratch(const struct comm_state *state, size_t bytes);
/* All ranks of the host learn what their leader has got. */
int status_share(const struct comm_state *state, int status);
/* Waits for what was posted, if it was. */
int posted_finish(struct comm_state *state, int posted, fanin_request *req);

/* A step of leaders. `post` is a call of the library that leaves its request in posted_req. */
#define NETWORK_CALL(state, post)                                                                  \
	({                                                                                         \
		fanin_request *posted_req = NULL;                                                  \
		int posted_status;                                                                 \
		posted_status = (post);                                                            \
		posted_finish(state, posted_status, posted_req);                                   \
	})

/* Carry out the whole collective. Return a fanin_status. */
int run_allreduce(const struct step *step);
int run_reduce(const struct step *step);
int run_reduce_scatter(const struct step *step);
int run_broadcast(const struct step *step);
int run_allgather(const struct step *step);

/* shared.c: an allreduce of a communicator whose state has shared memory. */
int shared_allreduce(const struct step *step);

/* Post it, where each host has one rank and no data are packed; a reduce_scatter not in place. */
int post_allreduce(const struct step *step, fanin_request **req);
int post_reduce(const struct step *step, fanin_request **req);
int post_reduce_scatter(const struct step *step, fanin_request **req);
int post_broadcast(const struct step *step, fanin_request **req);
int post_allgather(const struct step *step, fanin_request **req);

#endif
