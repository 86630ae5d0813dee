/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The request of a nonblocking call in the network is a generalized request of MPI, which all MPI
 * calls accept.
 *
 * MPI_Wait and MPI_Waitall wait for these first: their thread needs a core, which MPI keeps to
 * itself while it waits. Also, MPICH before 5.1 ends the program (an assertion in
 * MPIR_Waitall_state) if a generalized request is not complete and another entry of the array is
 * MPI_REQUEST_NULL.
 */
#include "preload.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

/* MPI's request and its call hold it. */
struct own_request {
	MPI_Request req;
	uint32_t n_holders; /* atomic */
	int error;          /* the request's error when it completes */
	struct own_request *next_open;
};

/*
 * Requests that are not complete. The pointer to the first one is the only part that is read
 * without the lock.
 */
static struct own_request *open_requests;
static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;

/* Called by MPI when the program waits for the request or tests it. */
static int
request_query(void *request, MPI_Status *status)
{
	const struct own_request *done = request;

	PMPI_Status_set_elements(status, MPI_BYTE, 0);
	PMPI_Status_set_cancelled(status, 0);
	status->MPI_SOURCE = MPI_UNDEFINED;
	status->MPI_TAG = MPI_UNDEFINED;
	status->MPI_ERROR = done->error;
	return done->error;
}

static int
request_release(void *of_request)
{
	struct own_request *request = of_request;

	if (__atomic_sub_fetch(&request->n_holders, 1, __ATOMIC_ACQ_REL) == 0)
		free(request);
	return MPI_SUCCESS;
}

/* Collectives can't be cancelled. */
static int
request_cancel(void *request, int is_complete)
{
	(void)request;
	(void)is_complete;
	return MPI_SUCCESS;
}

static void
request_open(struct own_request *request)
{
	pthread_mutex_lock(&open_lock);
	request->next_open = open_requests;
	__atomic_store_n(&open_requests, request, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&open_lock);
}

static void
request_close(const struct own_request *request)
{
	struct own_request **link;

	pthread_mutex_lock(&open_lock);
	for (link = &open_requests; *link != request; link = &(*link)->next_open)
		;
	__atomic_store_n(link, request->next_open, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&open_lock);
}

struct own_request *
request_make(MPI_Comm comm, MPI_Request *req)
{
	struct own_request *request = malloc(sizeof(*request));

	(void)comm;
	if (request == NULL)
		return NULL;
	*request = (struct own_request){ .error = MPI_ERR_OTHER, .n_holders = 2 };
	if (PMPI_Grequest_start(request_query, request_release, request_cancel, request,
				&request->req) != MPI_SUCCESS) {
		free(request);
		return NULL;
	}
	*req = request->req;
	request_open(request);
	return request;
}

/*
 * MPI does not associate these requests with a communicator, and passes their errors to
 * MPI_COMM_WORLD's handler, so an error that ends the program does so here.
 */
void
request_complete(struct own_request *request, int error, bool ends_program)
{
	request->error = error;
	if (error != MPI_SUCCESS && ends_program && !states_give_up())
		PMPI_Abort(MPI_COMM_WORLD, error);
	PMPI_Grequest_complete(request->req);
	request_close(request);
	request_release(request);
}

/* True if the request is that of a call in progress. Thread-safe. */
static bool
request_is_open(MPI_Request req)
{
	const struct own_request *request;

	if (__atomic_load_n(&open_requests, __ATOMIC_RELAXED) == NULL)
		return false;
	pthread_mutex_lock(&open_lock);
	for (request = open_requests; request != NULL && request->req != req;
	     request = request->next_open)
		;
	pthread_mutex_unlock(&open_lock);
	return request != NULL;
}

void
requests_wait(int n, const MPI_Request reqs[])
{
	for (int i = 0; i < n && reqs != NULL; i++)
		while (request_is_open(reqs[i])) {
			mpi_progress();
			sched_yield();
		}
}

PRELOAD_EXPORT int
MPI_Wait(MPI_Request *req, MPI_Status *status)
{
	requests_wait(1, req);
	return PMPI_Wait(req, status);
}

PRELOAD_EXPORT int
MPI_Waitall(int n, MPI_Request reqs[], MPI_Status statuses[])
{
	requests_wait(n, reqs);
	return PMPI_Waitall(n, reqs, statuses);
}
