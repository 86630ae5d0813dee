/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The component as Open MPI sees it: its parameters, whether it takes part in a program, and which
 * communicators it has a module for.
 */
#include "component.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ompi/runtime/mpiruntime.h>
#include <opal/mca/base/mca_base_var.h>

#define PRINTED(number) PRINTED_TEXT(number)
#define PRINTED_TEXT(number) #number
/* Open MPI keeps its internal interfaces within these. */
#define BUILT_FOR "Open MPI v" PRINTED(OMPI_MAJOR_VERSION) "." PRINTED(OMPI_MINOR_VERSION) "."
#define CONF "/etc/fanin/fanin.conf"

/* More than Open MPI's own components for collectives over any network. */
#define DEFAULT_PRIORITY 90

static struct parameter {
	const char *name; /* of the variable FANIN_MPI_NAME */
	const char *parameter, *help;
	char *value;
} parameters[] = {
	{ "FANIN_MPI", "enable", "0: all calls go to MPI; 1 by default", NULL },
	{ "FANIN_MPI_NONBLOCKING", "nonblocking", "0: nonblocking calls go to MPI; 1 by default",
	  NULL },
	{ "FANIN_MPI_JOB_AT_INIT", "job_at_init",
	  "1: MPI_COMM_WORLD gets its job in MPI_Init; 0 by default", NULL },
	{ "FANIN_MPI_MIN_BYTES", "min_bytes",
	  "vectors with fewer bytes go to MPI, unless its answers are wrong; 1024 by default",
	  NULL },
	{ "FANIN_MPI_MAX_JOBS", "max_jobs",
	  "communicators that may have a job at the same time; 8 by default", NULL },
	{ "FANIN_MPI_TIMEOUT_MS", "timeout_ms",
	  "longest silence of the network before a collective fails; 5000 by default", NULL },
	{ "FANIN_MPI_REPORT", "report",
	  "1 or json: rank 0 reports in MPI_Finalize which collectives went where", NULL },
	{ "FANIN_MPI_REPORT_FILE", "report_file", "file for the report; standard error by default",
	  NULL },
	{ "FANIN_MPI_INTERFACE", "interface", "network interface; that of the route by default",
	  NULL },
	{ "FANIN_MPI_TRANSPORT", "transport", "transport, as for fanin_init; auto by default",
	  NULL },
	{ "FANIN_MPI_HANDLER", "handler", "the job's handler; auto by default", NULL },
};
#define N_PARAMETERS (sizeof(parameters) / sizeof(parameters[0]))

static int priority = DEFAULT_PRIORITY;
static const struct coll_body *body; /* NULL: the program does without the component */

extern const mca_coll_base_component_t mca_coll_fanin_component;

static int
parameters_register(void)
{
	const mca_base_component_t *component = &mca_coll_fanin_component.collm_version;

	mca_base_component_var_register(component, "priority", "Priority of the component",
					MCA_BASE_VAR_TYPE_INT, NULL, 0, 0, OPAL_INFO_LVL_9,
					MCA_BASE_VAR_SCOPE_READONLY, &priority);
	for (size_t i = 0; i < N_PARAMETERS; i++)
		mca_base_component_var_register(component, parameters[i].parameter,
						parameters[i].help, MCA_BASE_VAR_TYPE_STRING, NULL,
						0, 0, OPAL_INFO_LVL_3, MCA_BASE_VAR_SCOPE_READONLY,
						&parameters[i].value);
	return OMPI_SUCCESS;
}

static const char *
parameter_value(const char *name)
{
	for (size_t i = 0; i < N_PARAMETERS; i++) {
		const char *value = parameters[i].value;

		if (strcmp(parameters[i].name, name) == 0 && value != NULL && value[0] != '\0')
			return value;
	}
	return NULL;
}

/* True if a file has a line that begins with "manager". Other programs read what it says. */
static bool
names_manager(const char *path)
{
	FILE *file = fopen(path, "re");
	char line[LINE_MAX];
	bool found = false;

	while (!found && file != NULL && fgets(line, sizeof(line), file) != NULL) {
		const char *key = line + strspn(line, " \t");

		found = strncmp(key, "manager", strlen("manager")) == 0;
	}
	if (file != NULL)
		fclose(file);
	return found;
}

/* True if the program may have a manager. */
static bool
is_wanted(void)
{
	const char *manager = secure_getenv("FANIN_MANAGER");
	const char *conf = secure_getenv("FANIN_CONF");

	return (manager != NULL && manager[0] != '\0') || names_manager(conf != NULL ? conf : CONF);
}

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

/* Loads the file beside this one. Returns NULL if it can't be loaded, which is told. */
static const struct coll_body *
body_load(void)
{
	const char *slash;
	char path[PATH_MAX];
	Dl_info info;
	void *library;

	if (dladdr(&mca_coll_fanin_component, &info) == 0 || info.dli_fname == NULL)
		return NULL;
	slash = strrchr(info.dli_fname, '/');
	snprintf(path, sizeof(path), "%.*s%s",
		 slash == NULL ? 0 : (int)(slash + 1 - info.dli_fname), info.dli_fname, BODY_FILE);
	/* Objects of Open MPI refer to its functions until the program's end. */
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (library != NULL)
		return dlsym(library, BODY_SYMBOL);
	fprintf(stderr, "fanin-mpi: mca_coll_fanin.so: all collectives go to MPI: %s\n", dlerror());
	return NULL;
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
	body = body_load();
	if (body != NULL && !body->begin(parameter_value))
		body = NULL;
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
	return body != NULL ? OMPI_SUCCESS : OMPI_ERR_NOT_AVAILABLE;
}

static mca_coll_base_module_t *
comm_query(ompi_communicator_t *comm, int *chosen_priority)
{
	mca_coll_base_module_t *module;

	if (OMPI_COMM_IS_INTER(comm) || ompi_comm_size(comm) < 2 || !body->peers_agree(comm))
		return NULL;
	module = body->module_make();
	*chosen_priority = priority;
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
		.mca_register_component_params = parameters_register,
	},
	.collm_data = { MCA_BASE_METADATA_PARAM_NONE },
	.collm_init_query = init_query,
	.collm_comm_query = comm_query,
};
