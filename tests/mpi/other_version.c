/* SPDX-License-Identifier: BSD-3-Clause */
/* Preloaded into an MPI program, so that Open MPI seems to be of another minor version. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

int
PMPI_Get_library_version(char *version, int *length)
{
	snprintf(version, MPI_MAX_LIBRARY_VERSION_STRING, "Open MPI v%d.%d.0, package: tests",
		 OMPI_MAJOR_VERSION, OMPI_MINOR_VERSION + 1);
	*length = (int)strlen(version);
	return MPI_SUCCESS;
}
