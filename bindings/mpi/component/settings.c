/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The settings as parameters of the component, such as coll_fanin_min_bytes. A parameter takes
 * precedence over the environment, and the environment over fanin.conf.
 */
#include "component.h"

#include <stdio.h>
#include <string.h>

#include "opal/mca/base/mca_base_var.h"

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

int
settings_register(void)
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

int
settings_priority(void)
{
	return priority;
}

const char *
setting_text(const char *name, char text[SETTING_LEN])
{
	for (size_t i = 0; i < N_PARAMETERS; i++) {
		const char *value = parameters[i].value;

		if (strcmp(parameters[i].name, name) != 0 || value == NULL || value[0] == '\0')
			continue;
		snprintf(text, SETTING_LEN, "%s", value);
		return text;
	}
	return setting_of_fanin(name, text);
}

const char *
settings_described(void)
{
	static char text[256];

	snprintf(
		text, sizeof(text),
		"Fanin %s, min_bytes %llu, max_jobs %u, timeout_ms %u, nonblocking %d, job_at_init %d",
		FANIN_VERSION, (unsigned long long)mpi_settings.min_bytes, mpi_settings.max_jobs,
		mpi_settings.timeout_ms, mpi_settings.nonblocking, mpi_settings.job_at_init);
	return text;
}
