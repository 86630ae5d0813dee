/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An MPI program that makes and frees communicators, groups, topologies, windows and files, for
 * which MPI itself calls collectives, and calls none itself. Argument: a file to be written. Rank 0
 * prints "cases N".
 */
#include "check.h"

#include <string.h>

#define BYTES 65536
#define ROUNDS 3

static char data[BYTES], found[BYTES];

static void
communicators(void)
{
	const int dims[] = { size }, periods[] = { 0 };
	MPI_Comm copy, half, again, cart, shared, later;
	MPI_Group group;
	MPI_Request req;

	check(MPI_Comm_dup(MPI_COMM_WORLD, &copy) == MPI_SUCCESS, "MPI_Comm_dup");
	check(MPI_Comm_split(copy, rank % 2, -rank, &half) == MPI_SUCCESS, "MPI_Comm_split");
	check(MPI_Comm_split_type(copy, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &shared) ==
		      MPI_SUCCESS,
	      "MPI_Comm_split_type");
	MPI_Comm_group(copy, &group);
	check(MPI_Comm_create(copy, group, &again) == MPI_SUCCESS, "MPI_Comm_create");
	check(MPI_Cart_create(copy, 1, dims, periods, 0, &cart) == MPI_SUCCESS, "MPI_Cart_create");
	check(MPI_Comm_idup(copy, &later, &req) == MPI_SUCCESS, "MPI_Comm_idup");
	MPI_Wait(&req, MPI_STATUS_IGNORE);
	MPI_Group_free(&group);
	MPI_Comm_free(&later);
	MPI_Comm_free(&cart);
	MPI_Comm_free(&again);
	MPI_Comm_free(&shared);
	MPI_Comm_free(&half);
	MPI_Comm_disconnect(&copy);
}

/* Not all MPI libraries have windows over all transports. */
static void
windows(void)
{
	MPI_Win win;

	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	if (MPI_Win_create(data, BYTES, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win) == MPI_SUCCESS)
		MPI_Win_free(&win);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

static void
files(const char *path)
{
	MPI_File file;

	memset(data, 'a' + rank, BYTES);
	check(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL,
			    &file) == MPI_SUCCESS,
	      "MPI_File_open");
	check(MPI_File_write_at_all(file, (MPI_Offset)rank * BYTES, data, BYTES, MPI_CHAR,
				    MPI_STATUS_IGNORE) == MPI_SUCCESS,
	      "MPI_File_write_at_all");
	check(MPI_File_read_at_all(file, (MPI_Offset)rank * BYTES, found, BYTES, MPI_CHAR,
				   MPI_STATUS_IGNORE) == MPI_SUCCESS,
	      "MPI_File_read_at_all");
	check(memcmp(data, found, BYTES) == 0, "what the file has");
	MPI_File_close(&file);
}

int
main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	for (int i = 0; i < ROUNDS; i++) {
		communicators();
		windows();
		if (argc > 1)
			files(argv[1]);
	}
	if (rank == 0)
		printf("cases %d\n", n_cases);
	MPI_Finalize();
	return 0;
}
