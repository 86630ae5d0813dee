/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Open MPI's calls from Fortran, which do not use MPI's C names: mpif.h and the module mpi call
 * mpi_allreduce_ and the like, mpi_f08 calls ompi_allreduce_f, which is the same function of the
 * same library. These functions turn them into calls from C. MPICH's Fortran library calls the C
 * names itself.
 */
#include "preload.h"

/* The addresses of these variables are Fortran's MPI_IN_PLACE and MPI_BOTTOM. */
extern int mpi_fortran_in_place_, mpi_fortran_bottom_;

static void *
buffer(void *from_fortran)
{
	if (from_fortran == &mpi_fortran_in_place_)
		return MPI_IN_PLACE;
	return from_fortran == &mpi_fortran_bottom_ ? MPI_BOTTOM : from_fortran;
}

/* Compilers spell the name in one of these ways; Open MPI defines all of them. */
#define FORTRAN_NAMES(lower, upper, inner, params)                                                 \
	PRELOAD_EXPORT void inner params;                                                          \
	PRELOAD_EXPORT void lower params __attribute__((alias(#inner)));                           \
	PRELOAD_EXPORT void lower##_ params __attribute__((alias(#inner)));                        \
	PRELOAD_EXPORT void lower##__ params __attribute__((alias(#inner)));                       \
	PRELOAD_EXPORT void upper params __attribute__((alias(#inner)));                           \
	PRELOAD_EXPORT void inner params

static void
error_set(MPI_Fint *error, int status)
{
	if (error != NULL)
		*error = (MPI_Fint)status;
}

static void
request_set(MPI_Fint *to, MPI_Request req, int status)
{
	if (status == MPI_SUCCESS)
		*to = MPI_Request_c2f(req);
}

#define COMM(f) MPI_Comm_f2c(*(f))
#define TYPE(f) MPI_Type_f2c(*(f))
#define OP(f) MPI_Op_f2c(*(f))

FORTRAN_NAMES(mpi_init, MPI_INIT, ompi_init_f, (MPI_Fint * error))
{
	error_set(error, MPI_Init(NULL, NULL));
}

FORTRAN_NAMES(mpi_init_thread, MPI_INIT_THREAD, ompi_init_thread_f,
	      (MPI_Fint * required, MPI_Fint *provided, MPI_Fint *error))
{
	int level;
	const int status = MPI_Init_thread(NULL, NULL, *required, &level);

	if (status == MPI_SUCCESS)
		*provided = level;
	error_set(error, status);
}

FORTRAN_NAMES(mpi_finalize, MPI_FINALIZE, ompi_finalize_f, (MPI_Fint * error))
{
	error_set(error, MPI_Finalize());
}

FORTRAN_NAMES(mpi_abort, MPI_ABORT, ompi_abort_f,
	      (MPI_Fint * comm, MPI_Fint *code, MPI_Fint *error))
{
	error_set(error, MPI_Abort(COMM(comm), *code));
}

FORTRAN_NAMES(mpi_comm_free, MPI_COMM_FREE, ompi_comm_free_f, (MPI_Fint * comm, MPI_Fint *error))
{
	MPI_Comm freed = COMM(comm);
	const int status = MPI_Comm_free(&freed);

	if (status == MPI_SUCCESS)
		*comm = MPI_Comm_c2f(freed);
	error_set(error, status);
}

FORTRAN_NAMES(mpi_comm_disconnect, MPI_COMM_DISCONNECT, ompi_comm_disconnect_f,
	      (MPI_Fint * comm, MPI_Fint *error))
{
	MPI_Comm freed = COMM(comm);
	const int status = MPI_Comm_disconnect(&freed);

	if (status == MPI_SUCCESS)
		*comm = MPI_Comm_c2f(freed);
	error_set(error, status);
}

FORTRAN_NAMES(mpi_barrier, MPI_BARRIER, ompi_barrier_f, (MPI_Fint * comm, MPI_Fint *error))
{
	error_set(error, MPI_Barrier(COMM(comm)));
}

FORTRAN_NAMES(mpi_allreduce, MPI_ALLREDUCE, ompi_allreduce_f,
	      (void *send, void *recv, MPI_Fint *count, MPI_Fint *type, MPI_Fint *op,
	       MPI_Fint *comm, MPI_Fint *error))
{
	error_set(error, MPI_Allreduce(buffer(send), buffer(recv), *count, TYPE(type), OP(op),
				       COMM(comm)));
}

FORTRAN_NAMES(mpi_reduce, MPI_REDUCE, ompi_reduce_f,
	      (void *send, void *recv, MPI_Fint *count, MPI_Fint *type, MPI_Fint *op,
	       MPI_Fint *root, MPI_Fint *comm, MPI_Fint *error))
{
	error_set(error, MPI_Reduce(buffer(send), buffer(recv), *count, TYPE(type), OP(op), *root,
				    COMM(comm)));
}

FORTRAN_NAMES(mpi_bcast, MPI_BCAST, ompi_bcast_f,
	      (void *data, MPI_Fint *count, MPI_Fint *type, MPI_Fint *root, MPI_Fint *comm,
	       MPI_Fint *error))
{
	error_set(error, MPI_Bcast(buffer(data), *count, TYPE(type), *root, COMM(comm)));
}

FORTRAN_NAMES(mpi_allgather, MPI_ALLGATHER, ompi_allgather_f,
	      (void *send, MPI_Fint *send_count, MPI_Fint *send_type, void *recv, MPI_Fint *count,
	       MPI_Fint *type, MPI_Fint *comm, MPI_Fint *error))
{
	error_set(error, MPI_Allgather(buffer(send), *send_count, TYPE(send_type), buffer(recv),
				       *count, TYPE(type), COMM(comm)));
}

FORTRAN_NAMES(mpi_reduce_scatter_block, MPI_REDUCE_SCATTER_BLOCK, ompi_reduce_scatter_block_f,
	      (void *send, void *recv, MPI_Fint *count, MPI_Fint *type, MPI_Fint *op,
	       MPI_Fint *comm, MPI_Fint *error))
{
	error_set(error, MPI_Reduce_scatter_block(buffer(send), buffer(recv), *count, TYPE(type),
						  OP(op), COMM(comm)));
}

FORTRAN_NAMES(mpi_ibarrier, MPI_IBARRIER, ompi_ibarrier_f,
	      (MPI_Fint * comm, MPI_Fint *request, MPI_Fint *error))
{
	MPI_Request req;
	const int status = MPI_Ibarrier(COMM(comm), &req);

	request_set(request, req, status);
	error_set(error, status);
}

FORTRAN_NAMES(mpi_iallreduce, MPI_IALLREDUCE, ompi_iallreduce_f,
	      (void *send, void *recv, MPI_Fint *count, MPI_Fint *type, MPI_Fint *op,
	       MPI_Fint *comm, MPI_Fint *request, MPI_Fint *error))
{
	MPI_Request req;
	const int status = MPI_Iallreduce(buffer(send), buffer(recv), *count, TYPE(type), OP(op),
					  COMM(comm), &req);

	request_set(request, req, status);
	error_set(error, status);
}

FORTRAN_NAMES(mpi_ireduce, MPI_IREDUCE, ompi_ireduce_f,
	      (void *send, void *recv, MPI_Fint *count, MPI_Fint *type, MPI_Fint *op,
	       MPI_Fint *root, MPI_Fint *comm, MPI_Fint *request, MPI_Fint *error))
{
	MPI_Request req;
	const int status = MPI_Ireduce(buffer(send), buffer(recv), *count, TYPE(type), OP(op),
				       *root, COMM(comm), &req);

	request_set(request, req, status);
	error_set(error, status);
}

FORTRAN_NAMES(mpi_ibcast, MPI_IBCAST, ompi_ibcast_f,
	      (void *data, MPI_Fint *count, MPI_Fint *type, MPI_Fint *root, MPI_Fint *comm,
	       MPI_Fint *request, MPI_Fint *error))
{
	MPI_Request req;
	const int status = MPI_Ibcast(buffer(data), *count, TYPE(type), *root, COMM(comm), &req);

	request_set(request, req, status);
	error_set(error, status);
}

FORTRAN_NAMES(mpi_iallgather, MPI_IALLGATHER, ompi_iallgather_f,
	      (void *send, MPI_Fint *send_count, MPI_Fint *send_type, void *recv, MPI_Fint *count,
	       MPI_Fint *type, MPI_Fint *comm, MPI_Fint *request, MPI_Fint *error))
{
	MPI_Request req;
	const int status = MPI_Iallgather(buffer(send), *send_count, TYPE(send_type), buffer(recv),
					  *count, TYPE(type), COMM(comm), &req);

	request_set(request, req, status);
	error_set(error, status);
}

FORTRAN_NAMES(mpi_ireduce_scatter_block, MPI_IREDUCE_SCATTER_BLOCK, ompi_ireduce_scatter_block_f,
	      (void *send, void *recv, MPI_Fint *count, MPI_Fint *type, MPI_Fint *op,
	       MPI_Fint *comm, MPI_Fint *request, MPI_Fint *error))
{
	MPI_Request req;
	const int status = MPI_Ireduce_scatter_block(buffer(send), buffer(recv), *count, TYPE(type),
						     OP(op), COMM(comm), &req);

	request_set(request, req, status);
	error_set(error, status);
}

/*
 * Open MPI 4.1 sometimes hangs if several of these calls are in progress and ranks have not freed
 * the same communicators. The library frees its own ones before, so that only the program's frees
 * matter.
 */
PRELOAD_EXPORT int
MPI_Comm_idup(MPI_Comm comm, MPI_Comm *newcomm, MPI_Request *req)
{
	closed_wait();
	return PMPI_Comm_idup(comm, newcomm, req);
}
