/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which processes of the program have the component with this version and these settings. Each
 * process publishes them before Open MPI exchanges such data in MPI_Init, so the answer needs no
 * collective call: a process without the component would not take part in one.
 */
#include "component.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if OMPI_MAJOR_VERSION >= 5
#include <opal/mca/pmix/pmix-internal.h>
#define GLOBAL_SCOPE PMIX_GLOBAL
#define STRING_TYPE PMIX_STRING
#else
#include <opal/mca/pmix/pmix.h>
#define GLOBAL_SCOPE OPAL_PMIX_GLOBAL
#define STRING_TYPE OPAL_STRING
#endif
#include <opal/util/proc.h>

#define TAG_OF_GROUP 0
/* The longest wait for another host's answer, which comes at once. */
#define ANSWER_SECONDS 10

MPI_Comm library_comm = MPI_COMM_NULL;

static char key[] = "fanin.coll";

/* What is known of each process of MPI_COMM_WORLD. */
enum known {
	UNKNOWN,
	AGREES,
	DIFFERS
};
static enum known *known;
static uint32_t n_processes;
static bool all_agree; /* all of MPI_COMM_WORLD */

void
peers_publish(void)
{
	int status;

	OPAL_MODEX_SEND_VALUE(status, GLOBAL_SCOPE, key, (char *)settings_described(), STRING_TYPE);
	/* The others then find nothing, and use MPI, as this process does. */
	(void)status;
}

#if OMPI_MAJOR_VERSION >= 5
/*
 * Asks the process's own host. What processes exchange when MPI starts should have come to this
 * host, but with Open MPI 5.0.7 and PMIx 5.0 only the first process's has.
 */
static char *
asked_for(opal_process_name_t *name)
{
	int seconds = ANSWER_SECONDS;
	pmix_value_t *value = NULL;
	char *text = NULL;
	pmix_proc_t process;
	pmix_info_t info;

	OPAL_PMIX_CONVERT_NAME(&process, name);
	PMIX_INFO_LOAD(&info, PMIX_TIMEOUT, &seconds, PMIX_INT);
	if (PMIx_Get(&process, key, &info, 1, &value) == PMIX_SUCCESS && value != NULL &&
	    value->type == PMIX_STRING && value->data.string != NULL)
		text = strdup(value->data.string);
	if (value != NULL)
		PMIX_VALUE_RELEASE(value);
	PMIX_INFO_DESTRUCT(&info);
	return text;
}
#else
static char *
asked_for(opal_process_name_t *name)
{
	(void)name;
	return NULL;
}
#endif

/* Returns what a process has published, to be freed; NULL: nothing. */
static char *
published_by(opal_process_name_t *name)
{
	char *text = NULL;
	int status;

	OPAL_MODEX_RECV_VALUE_IMMEDIATE(status, key, name, &text, STRING_TYPE);
	return status == OPAL_SUCCESS && text != NULL ? text : asked_for(name);
}

/*
 * Looks at all processes of MPI_COMM_WORLD, which comes first of all communicators. The first
 * process that has the component says which one differs.
 */
static void
world_look(ompi_communicator_t *comm)
{
	const int size = ompi_comm_size(comm);
	bool some_before = false, has_said = false;

	known = calloc((size_t)size, sizeof(*known));
	if (known == NULL)
		return;
	n_processes = (uint32_t)size;
	all_agree = true;
	for (int rank = 0; rank < size; rank++) {
		opal_process_name_t name = ompi_group_get_proc_name(comm->c_local_group, rank);
		char *text = published_by(&name);
		const bool agrees = text != NULL && strcmp(text, settings_described()) == 0;

		if (name.vpid < n_processes)
			known[name.vpid] = agrees ? AGREES : DIFFERS;
		some_before = some_before || (text != NULL && rank < ompi_comm_rank(comm));
		if (!agrees && !some_before && !has_said && rank != ompi_comm_rank(comm)) {
			has_said = true;
			fprintf(stderr,
				"fanin-mpi: rank %d of MPI_COMM_WORLD does not use the component with these settings, and communicators with it use MPI: found '%s', expected '%s'\n",
				rank, text == NULL ? "no coll/fanin" : text, settings_described());
		}
		all_agree = all_agree && agrees;
		free(text);
	}
}

bool
peers_agree(ompi_communicator_t *comm)
{
	const uint32_t jobid = OPAL_PROC_MY_NAME.jobid;
	bool agree;

	if (comm == &ompi_mpi_comm_world.comm && known == NULL)
		world_look(comm);
	agree = known != NULL;
	for (int rank = 0; agree && rank < ompi_comm_size(comm); rank++) {
		const opal_process_name_t name = ompi_group_get_proc_name(comm->c_local_group,
									  rank);

		agree = name.jobid == jobid && name.vpid < n_processes &&
			known[name.vpid] == AGREES;
	}
	return agree;
}

int
peers_gather(void)
{
	MPI_Group world, ours;
	int *ranks, n = 0, size, status;

	if (all_agree) {
		status = PMPI_Comm_dup(MPI_COMM_WORLD, &library_comm);
		own_comm(library_comm);
		return status;
	}
	PMPI_Comm_size(MPI_COMM_WORLD, &size);
	ranks = malloc(sizeof(*ranks) * (size_t)size);
	if (ranks == NULL || known == NULL)
		no_memory();
	for (int rank = 0; rank < size; rank++)
		if (known[ompi_group_get_proc_name(ompi_mpi_comm_world.comm.c_local_group, rank)
				  .vpid] == AGREES)
			ranks[n++] = rank;
	PMPI_Comm_group(MPI_COMM_WORLD, &world);
	PMPI_Group_incl(world, n, ranks, &ours);
	status = PMPI_Comm_create_group(MPI_COMM_WORLD, ours, TAG_OF_GROUP, &library_comm);
	own_comm(library_comm);
	PMPI_Group_free(&ours);
	PMPI_Group_free(&world);
	free(ranks);
	return status;
}
