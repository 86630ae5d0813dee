/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives in the network, by calls of the library, which brings the ranks of a host together
 * (docs/local.md). Data that is neither packed nor copied is posted to the library directly, so
 * that several collectives can be in progress.
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

static inline const void *
own_data(const struct collective *call)
{
	return call->send == MPI_IN_PLACE ? call->recv : call->send;
}

/* True if the send buffer of an allgather goes into the network as it is. */
bool is_sent_as_is(const struct collective *call);
/* Waits for a posted request, if posting succeeded. */
int posted_finish(struct comm_state *state, int posted, fanin_request *req);

/* Carries out a call of the library that leaves its request in posted_req. */
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

/* These post the collective, if no data is packed; a reduce_scatter not in place. */
int post_allreduce(const struct step *step, fanin_request **req);
int post_reduce(const struct step *step, fanin_request **req);
int post_reduce_scatter(const struct step *step, fanin_request **req);
int post_broadcast(const struct step *step, fanin_request **req);
int post_allgather(const struct step *step, fanin_request **req);

#endif
