/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sparse requests without a density: the ranks agree on the largest number of values by a small
 * allreduce. All ranks must cut the vector into the same blocks, and must all send a dense vector
 * that may be sparse in the same way. Requests that are posted meanwhile are held back, as block
 * numbers run on across requests.
 */
#include "comm.h"
#include "hostlib/src/protocol/split.h"
#include "hostlib/src/vector/vector.h"

/* The elements of an agreement's data; the result is the maximum of each. */
enum {
	MAX_VALUES,
	N,
	NOT_N, /* its maximum gives the minimum of n */
	N_AGREED
};

static int
post_now(struct fanin_comm *comm, struct fanin_request *request, uint64_t count)
{
	return comm->trees.all != NULL ? fanin_comm_trees_post(comm->trees.all, request, count)
				       : comm->protocol->post(comm->endpoint, request, count);
}

/* Posts the agreement that the first held request needs. */
static int
agreement_post(struct fanin_comm *comm, const struct fanin_vector *sparse)
{
	struct fanin_agreement *agreement = &comm->agreement;

	agreement->data[MAX_VALUES] = sparse->nnz;
	agreement->data[N] = sparse->n;
	agreement->data[NOT_N] = ~sparse->n;
	agreement->request = (struct fanin_request){
		.comm = comm,
		.send = (const uint8_t *)agreement->data,
		.recv = (uint8_t *)agreement->data,
		.collective = FANIN_COLLECTIVE_ALLREDUCE,
		.dtype = FANIN_U64,
		.op = FANIN_MAX,
	};
	return post_now(comm, &agreement->request, N_AGREED);
}

bool
fanin_comm_must_agree(const struct fanin_comm *comm, const struct fanin_request *request)
{
	const struct fanin_vector *sparse = request->sparse;

	return sparse != NULL && !sparse->is_known &&
	       (sparse->is_hinted || !comm->protocol->any_density);
}

int
fanin_comm_hold(struct fanin_comm *comm, struct fanin_request *request, uint64_t count)
{
	if (!comm->agreement.is_open) {
		int status = agreement_post(comm, request->sparse);

		if (status != FANIN_OK)
			return status;
		fanin_request_list_init(&comm->agreement.held);
		comm->agreement.is_open = true;
	}
	request->held_count = count;
	fanin_request_list_append(&comm->agreement.held, request);
	return FANIN_OK;
}

/* Removes the first held request and returns it. */
static struct fanin_request *
held_take(struct fanin_comm *comm)
{
	struct fanin_request *request = comm->agreement.held.first;

	fanin_request_list_finish(&comm->agreement.held, request);
	request->status = FANIN_IN_PROGRESS;
	return request;
}

/* Turns a dense vector that is not sparse enough into a dense request again. */
static void
hint_settle(struct fanin_comm *comm, struct fanin_request *request)
{
	const struct fanin_vector *sparse = request->sparse;

	comm->agreement.maybe_sparse++;
	if (fanin_vector_pays(sparse, sparse->most, comm->member.config.size,
			      comm->protocol->on_switch != NULL)) {
		comm->agreement.maybe_sparse_taken++;
		return;
	}
	fanin_vector_free(request->sparse);
	request->sparse = NULL;
	request->collective = FANIN_COLLECTIVE_ALLREDUCE;
}

/*
 * Applies the agreement to the first held request. Returns FANIN_OK, or FANIN_ERR_INVALID with the
 * request's error set.
 */
static int
agreement_take(struct fanin_comm *comm, struct fanin_request *request)
{
	struct fanin_vector *sparse = request->sparse;
	const uint64_t *data = comm->agreement.data;

	if (data[N] != ~data[NOT_N])
		return fanin_error_set(
			&sparse->error, FANIN_ERR_INVALID,
			"n is %llu here, and %llu to %llu at all ranks, expected the same at all",
			(unsigned long long)sparse->n, (unsigned long long)~data[NOT_N],
			(unsigned long long)data[N]);
	sparse->most = data[MAX_VALUES];
	sparse->is_known = true;
	if (sparse->is_hinted)
		hint_settle(comm, request);
	return FANIN_OK;
}

/*
 * Fails a request that this rank can't post although all other ranks post it, and all requests
 * behind it: their blocks would have other numbers than at the other ranks.
 */
static void
out_of_step(struct fanin_comm *comm, uint64_t count, int status)
{
	struct fanin_error error = { 0 };

	fanin_error_set(&error, status, "a collective of %llu elements can't be posted: %s",
			(unsigned long long)count, fanin_strerror(status));
	fanin_comm_abort(comm, status, &error);
}

/*
 * Posts a request that has waited. If no rank can post it, because packets are too short for its
 * data type, only this request fails. Any other failure is this rank's own.
 */
static void
held_post(struct fanin_comm *comm, struct fanin_request *request)
{
	const uint64_t count = request->held_count;
	int status = post_now(comm, request, count);

	if (status == FANIN_OK)
		return;
	request->status = status;
	if (status != FANIN_ERR_UNSUPPORTED)
		out_of_step(comm, count, status);
}

bool
fanin_comm_agree(struct fanin_comm *comm)
{
	struct fanin_agreement *agreement = &comm->agreement;
	struct fanin_request *request;

	if (agreement->request.status == FANIN_IN_PROGRESS)
		return false;
	fanin_split_free(&agreement->request);
	if (agreement->request.status != FANIN_OK) {
		fanin_request_list_fail(&agreement->held, agreement->request.status);
		agreement->is_open = false;
		return false;
	}
	request = held_take(comm);
	request->status = agreement_take(comm, request);
	if (request->status == FANIN_OK)
		held_post(comm, request);
	while (agreement->held.first != NULL) {
		request = agreement->held.first;
		if (fanin_comm_must_agree(comm, request)) {
			int status = agreement_post(comm, request->sparse);

			if (status == FANIN_OK)
				return true;
			/* This fails all requests that wait. */
			out_of_step(comm, request->held_count, status);
			continue;
		}
		held_post(comm, held_take(comm));
	}
	agreement->is_open = false;
	return true;
}
