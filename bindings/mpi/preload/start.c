/* SPDX-License-Identifier: BSD-3-Clause */
/* The start and end of the program, and the end of communicators. */
#include "preload.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* MPICH's maximum; Open MPI's is smaller. */
#define LONGEST_VERSION 8192
#ifdef OPEN_MPI
#define IS_FOR_OPEN_MPI true
#else
#define IS_FOR_OPEN_MPI false
#endif
static const char *const library_names[] = { "libfanin-mpi-mpich.so", "libfanin-mpi-openmpi.so" };

/* Between MPI_Init and MPI_Finalize; not if the program has started with PMPI_Init. */
static bool has_started;

const char *
setting_text(const char *name, char text[SETTING_LEN])
{
	return setting_of_fanin(name, text);
}

int
error_raise(MPI_Comm comm, int error)
{
	if (error != MPI_SUCCESS)
		PMPI_Comm_call_errhandler(comm, error);
	return error;
}

/*
 * Starts the library with rank 0's environment, on all ranks. level: of threads, in this rank's
 * MPI.
 */
static void
preload_start(int level)
{
	int is_multiple = level == MPI_THREAD_MULTIPLE;
	int rank;

	PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
	if (rank == 0)
		settings_read();
	PMPI_Bcast(&mpi_settings, (int)sizeof(mpi_settings), MPI_BYTE, 0, MPI_COMM_WORLD);
	PMPI_Allreduce(MPI_IN_PLACE, &is_multiple, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
	mpi_settings.nonblocking = mpi_settings.nonblocking && is_multiple;
	attributes_init();
	progress_init();
	library_start();
	has_started = true;
	/* For programs that only make nonblocking calls. */
	if (mpi_settings.enabled && mpi_settings.job_at_init)
		state_make(&(struct collective){ .comm = MPI_COMM_WORLD }, NULL);
}

/*
 * Returns the level of threads to be requested. Nonblocking collectives in the network have a
 * thread that calls MPI, whatever level the program requests.
 */
static int
level_wanted(int required)
{
	char buffers[2][SETTING_LEN];
	const char *enabled = setting_text("FANIN_MPI", buffers[0]);
	const char *nonblocking = setting_text("FANIN_MPI_NONBLOCKING", buffers[1]);

	if ((enabled != NULL && strcmp(enabled, "0") == 0) ||
	    (nonblocking != NULL && strcmp(nonblocking, "0") == 0))
		return required;
	return MPI_THREAD_MULTIPLE;
}

/*
 * Ends a program of another MPI than this library's: their handles are incompatible, and any call
 * would crash.
 */
static void
library_check(void)
{
	static char version[LONGEST_VERSION];
	int length;
	bool is_open_mpi;

	PMPI_Get_library_version(version, &length);
	is_open_mpi = strncmp(version, "Open MPI", strlen("Open MPI")) == 0;
	if (is_open_mpi == IS_FOR_OPEN_MPI)
		return;
	/* The first of several lines or items suffices. */
	version[strcspn(version, ",\n")] = '\0';
	for (char *tab = version; (tab = strchr(tab, '\t')) != NULL;)
		*tab = ' ';
	fprintf(stderr,
		"fanin-mpi: this is %s: found a program of another MPI, '%s', expected %s; preload %s\n",
		library_names[IS_FOR_OPEN_MPI], version, IS_FOR_OPEN_MPI ? "Open MPI" : "MPICH",
		library_names[is_open_mpi]);
	exit(EXIT_FAILURE);
}

PRELOAD_EXPORT int
MPI_Init(int *argc, char ***argv)
{
	int level, status;

	library_check();
	status = PMPI_Init_thread(argc, argv, level_wanted(MPI_THREAD_SINGLE), &level);
	if (status == MPI_SUCCESS)
		preload_start(level);
	return status;
}

PRELOAD_EXPORT int
MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
	int status;

	library_check();
	status = PMPI_Init_thread(argc, argv, level_wanted(required), provided);
	if (status == MPI_SUCCESS)
		preload_start(*provided);
	return status;
}

/*
 * The job ends here, not where MPI deletes attributes: that may be later, and at another place on
 * each rank.
 */
PRELOAD_EXPORT int
MPI_Comm_free(MPI_Comm *comm)
{
	const int status = comm_close(comm);

	return status == MPI_SUCCESS ? PMPI_Comm_free(comm) : status;
}

PRELOAD_EXPORT int
MPI_Comm_disconnect(MPI_Comm *comm)
{
	/* MPI_Comm_disconnect waits for operations in progress, unlike MPI_Comm_free. */
	int status = comm_drain(comm);

	if (status == MPI_SUCCESS)
		status = comm_close(comm);
	return status == MPI_SUCCESS ? PMPI_Comm_disconnect(comm) : status;
}

PRELOAD_EXPORT int
MPI_Abort(MPI_Comm comm, int error)
{
	messages_say_sent();
	return PMPI_Abort(comm, error);
}

PRELOAD_EXPORT int
MPI_Finalize(void)
{
	if (has_started) {
		has_started = false;
		library_finish();
		progress_finish();
		attributes_finish();
	}
	return PMPI_Finalize();
}
