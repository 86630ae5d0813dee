/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The component as Open MPI sees it: its parameters, whether it takes part in a program, and which
 * communicators it has a module for. What needs a complete MPI begins at the end of MPI_Init and
 * ends at the beginning of MPI_Finalize, where Open MPI calls hooks.
 */
#include "component.h"

#include <stdio.h>
#include <string.h>

#include "ompi/mca/hook/base/base.h"
#include "ompi/runtime/mpiruntime.h"

#define PRINTED(number) PRINTED_TEXT(number)
#define PRINTED_TEXT(number) #number
/* Open MPI keeps its internal interfaces within these. */
#define BUILT_FOR "Open MPI v" PRINTED(OMPI_MAJOR_VERSION) "." PRINTED(OMPI_MINOR_VERSION) "."

static bool takes_part; /* in this program */
static bool has_started;

static void
program_begins(int argc, char **argv, int requested, int *provided)
{
	const bool was_inside = library_enter();
	bool report[2];

	(void)argc;
	(void)argv;
	(void)requested;
	(void)provided;
	if (takes_part && peers_gather() == MPI_SUCCESS) {
		report[0] = mpi_settings.report;
		report[1] = mpi_settings.report_json;
		PMPI_Bcast(report, (int)sizeof(report), MPI_BYTE, 0, library_comm);
		mpi_settings.report = report[0];
		mpi_settings.report_json = report[1];
		library_start();
		has_started = true;
		modules_enable(true);
		if (mpi_settings.job_at_init && module_of_world() != NULL)
			state_make(&(struct collective){ .comm = MPI_COMM_WORLD,
							 .module = module_of_world() },
				   NULL);
	}
	library_leave(was_inside);
}

static void
program_ends(void)
{
	const bool was_inside = library_enter();

	if (has_started) {
		has_started = false;
		library_finish();
		modules_enable(false);
		PMPI_Comm_free(&library_comm);
	}
	library_leave(was_inside);
}

static ompi_hook_base_component_t hook = {
	.hookm_version = { OMPI_HOOK_BASE_VERSION_1_0_0, .mca_component_name = "fanin" },
	.hookm_mpi_init_bottom = program_begins,
	.hookm_mpi_finalize_top = program_ends,
};

/* True if this is the Open MPI that the component was compiled for. */
static bool
version_holds(void)
{
	char version[MPI_MAX_LIBRARY_VERSION_STRING];
	int length;

	PMPI_Get_library_version(version, &length);
	if (strncmp(version, BUILT_FOR, strlen(BUILT_FOR)) == 0)
		return true;
	version[strcspn(version, ",\n")] = '\0';
	fprintf(stderr,
		"fanin-mpi: mca_coll_fanin.so: found %s, expected %sx: all collectives go to MPI\n",
		version, BUILT_FOR);
	return false;
}

/* True if the program has a manager, and FANIN_MPI is not 0. */
static bool
is_wanted(void)
{
	char text[SETTING_LEN];

	/* An invalid file is reported when a job is joined. */
	return fanin_setting("FANIN_MANAGER", text, sizeof(text)) != FANIN_OK || text[0] != '\0';
}

/*
 * Called before the processes exchange what they have published. Programs such as ompi_info, which
 * don't start MPI, open components, too.
 */
static int
component_open(void)
{
	if (ompi_mpi_state == OMPI_MPI_STATE_NOT_INITIALIZED || !is_wanted() || !version_holds())
		return OMPI_SUCCESS;
	settings_read();
	if (!mpi_settings.enabled)
		return OMPI_SUCCESS;
	peers_publish();
	takes_part = ompi_hook_base_register_callbacks(&hook) == OMPI_SUCCESS;
	return OMPI_SUCCESS;
}

static int
component_close(void)
{
	return OMPI_SUCCESS;
}

static int
init_query(bool progress_threads, bool mpi_threads)
{
	(void)progress_threads;
	(void)mpi_threads;
	return takes_part ? OMPI_SUCCESS : OMPI_ERR_NOT_AVAILABLE;
}

static mca_coll_base_module_t *
comm_query(ompi_communicator_t *comm, int *priority)
{
	mca_coll_base_module_t *module;

	if (OMPI_COMM_IS_INTER(comm) || ompi_comm_size(comm) < 2 || !peers_agree(comm))
		return NULL;
	module = module_make();
	if (module != NULL)
		*priority = settings_priority();
	return module;
}

__attribute__((visibility("default")))
const mca_coll_base_component_t mca_coll_fanin_component = {
	.collm_version = {
		COLL_VERSION,
		.mca_component_name = "fanin",
		MCA_BASE_MAKE_VERSION(component, 0, 1, 0),
		.mca_open_component = component_open,
		.mca_close_component = component_close,
		.mca_register_component_params = settings_register,
	},
	.collm_data = { MCA_BASE_METADATA_PARAM_NONE },
	.collm_init_query = init_query,
	.collm_comm_query = comm_query,
};
