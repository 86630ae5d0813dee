/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Waits for requests, some of which may belong to nonblocking calls in the network. It waits for
 * those first, since their thread needs a core, which MPI keeps to itself while it waits. Also,
 * MPICH before 5.1 ends the program (an assertion in MPIR_Waitall_state) if a generalized request
 * is not complete and another entry of the array is MPI_REQUEST_NULL.
 */
#include "preload.h"

#include <sched.h>

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
