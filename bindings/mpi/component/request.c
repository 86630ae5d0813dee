/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The request of a call that a worker carries out: one of Open MPI's own kind for collectives,
 * which may attach operators and types to it.
 */
#include "component.h"

#include <ompi/request/request.h>

struct own_request {
	ompi_coll_base_nbc_request_t super;
};
typedef struct own_request own_request_t;

static int
request_free(ompi_request_t **req)
{
	ompi_request_t *request = *req;
	ompi_communicator_t *comm = request->req_mpi_object.comm;

	OMPI_REQUEST_FINI(request);
	OBJ_RELEASE(request);
	/* The program may have freed it. */
	OBJ_RELEASE(comm);
	*req = MPI_REQUEST_NULL;
	return OMPI_SUCCESS;
}

/* Collectives can't be cancelled. */
static int
request_cancel(ompi_request_t *request, int is_complete)
{
	(void)request;
	(void)is_complete;
	return MPI_ERR_REQUEST;
}

static void
request_construct(own_request_t *request)
{
	ompi_request_t *req = &request->super.super;

	req->req_type = OMPI_REQUEST_COLL;
	req->req_free = request_free;
	req->req_cancel = request_cancel;
}

static OBJ_CLASS_INSTANCE(own_request_t, ompi_coll_base_nbc_request_t, request_construct, NULL);

struct own_request *
request_make(MPI_Comm comm, MPI_Request *req)
{
	own_request_t *request = OBJ_NEW(own_request_t);

	if (request == NULL)
		return NULL;
	OMPI_REQUEST_INIT(&request->super.super, false);
	OBJ_RETAIN(comm);
	request->super.super.req_mpi_object.comm = comm;
	request->super.super.req_status = ompi_status_empty;
	request->super.super.req_state = OMPI_REQUEST_ACTIVE;
	*req = &request->super.super;
	return request;
}

void
request_complete(struct own_request *request, int error, bool ends_program)
{
	/* Open MPI passes it to the handler of the communicator. */
	(void)ends_program;
	request->super.super.req_status.MPI_ERROR = error;
	ompi_request_complete(&request->super.super, true);
}

int
collective_wait(struct comm_state *state, const struct collective *call,
		const struct operation *operation)
{
	const bool was_inside = library_enter();
	MPI_Request req;
	int error;

	/* Other workers may begin calls of the program meanwhile. */
	library_leave(false);
	queue_add(state->queue, call, operation, &req);
	workers_look();
	request_wait(req);
	error = req->req_status.MPI_ERROR;
	ompi_request_free(&req);
	library_leave(was_inside);
	return error;
}
