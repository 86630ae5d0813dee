/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls without buffers from MPICH's module mpi_f08, which do not use MPI's C names as all other
 * calls from Fortran do. The module passes handles as structures of one integer; `error` is
 * optional.
 */
#include "preload.h"

PRELOAD_EXPORT void mpi_init_f08_(MPI_Fint *error);
PRELOAD_EXPORT void mpi_init_thread_f08_(MPI_Fint *required, MPI_Fint *provided, MPI_Fint *error);
PRELOAD_EXPORT void mpi_finalize_f08_(MPI_Fint *error);
PRELOAD_EXPORT void mpi_abort_f08_(MPI_Fint *comm, MPI_Fint *code, MPI_Fint *error);
PRELOAD_EXPORT void mpi_barrier_f08_(MPI_Fint *comm, MPI_Fint *error);
PRELOAD_EXPORT void mpi_comm_free_f08_(MPI_Fint *comm, MPI_Fint *error);
PRELOAD_EXPORT void mpi_comm_disconnect_f08_(MPI_Fint *comm, MPI_Fint *error);
PRELOAD_EXPORT void mpi_ibarrier_f08_(MPI_Fint *comm, MPI_Fint *request, MPI_Fint *error);

static void
error_set(MPI_Fint *error, int status)
{
	if (error != NULL)
		*error = status;
}

void
mpi_init_f08_(MPI_Fint *error)
{
	error_set(error, MPI_Init(NULL, NULL));
}

void
mpi_init_thread_f08_(MPI_Fint *required, MPI_Fint *provided, MPI_Fint *error)
{
	error_set(error, MPI_Init_thread(NULL, NULL, *required, provided));
}

void
mpi_finalize_f08_(MPI_Fint *error)
{
	error_set(error, MPI_Finalize());
}

void
mpi_abort_f08_(MPI_Fint *comm, MPI_Fint *code, MPI_Fint *error)
{
	error_set(error, MPI_Abort(MPI_Comm_f2c(*comm), *code));
}

void
mpi_barrier_f08_(MPI_Fint *comm, MPI_Fint *error)
{
	error_set(error, MPI_Barrier(MPI_Comm_f2c(*comm)));
}

void
mpi_ibarrier_f08_(MPI_Fint *comm, MPI_Fint *request, MPI_Fint *error)
{
	MPI_Request req = MPI_REQUEST_NULL;

	error_set(error, MPI_Ibarrier(MPI_Comm_f2c(*comm), &req));
	*request = MPI_Request_c2f(req);
}

void
mpi_comm_free_f08_(MPI_Fint *comm, MPI_Fint *error)
{
	MPI_Comm freed = MPI_Comm_f2c(*comm);

	error_set(error, MPI_Comm_free(&freed));
	*comm = MPI_Comm_c2f(freed);
}

void
mpi_comm_disconnect_f08_(MPI_Fint *comm, MPI_Fint *error)
{
	MPI_Comm freed = MPI_Comm_f2c(*comm);

	error_set(error, MPI_Comm_disconnect(&freed));
	*comm = MPI_Comm_c2f(freed);
}

/*
 * The module's own function, which hands requests to MPI by the profiling interface; it exists if
 * the program is in Fortran.
 */
extern void pmpir_waitall_f08_(MPI_Fint *n, MPI_Fint *reqs, MPI_Fint *statuses, MPI_Fint *error)
	__attribute__((weak));
PRELOAD_EXPORT void mpi_waitall_f08_(MPI_Fint *n, MPI_Fint *reqs, MPI_Fint *statuses,
				     MPI_Fint *error);

void
mpi_waitall_f08_(MPI_Fint *n, MPI_Fint *reqs, MPI_Fint *statuses, MPI_Fint *error)
{
	requests_wait(*n, reqs);
	pmpir_waitall_f08_(n, reqs, statuses, error);
}
