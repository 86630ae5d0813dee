/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The component in a program that it takes part in. What needs a complete MPI begins at the end of
 * MPI_Init and ends at the beginning of MPI_Finalize, where Open MPI calls hooks.
 */
#include "component.h"

#include <stdio.h>

#include <ompi/mca/hook/base/base.h>
#include <opal/runtime/opal_progress.h>

static const char *(*parameter_of)(const char *name);
static bool has_started;

/*
 * Messages of other ranks are printed whatever call of MPI the program is in: they may say why it
 * ends. Open MPI calls this once a message has come; it can't be taken where it completes.
 */
static int
message_take_later(void)
{
	opal_progress_unregister(message_take_later);
	messages_look();
	return 1;
}

static int
message_has_come(ompi_request_t *req)
{
	(void)req;
	opal_progress_register(message_take_later);
	return 0;
}

void
message_awaited(MPI_Request req)
{
	ompi_request_set_callback(req, message_has_come, NULL);
}

static void
program_begins(int argc, char **argv, int requested, int *provided)
{
	const bool was_inside = library_enter();
	bool report[2];

	(void)argc;
	(void)argv;
	(void)requested;
	(void)provided;
	if (peers_gather() == MPI_SUCCESS) {
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
		opal_progress_unregister(message_take_later);
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

const char *
setting_text(const char *name, char text[SETTING_LEN])
{
	const char *value = parameter_of(name);

	if (value == NULL)
		return setting_of_fanin(name, text);
	snprintf(text, SETTING_LEN, "%s", value);
	return text;
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

static bool
body_begin(const char *(*parameter)(const char *name))
{
	parameter_of = parameter;
	settings_read();
	if (!mpi_settings.enabled)
		return false;
	peers_publish();
	return ompi_hook_base_register_callbacks(&hook) == OMPI_SUCCESS;
}

/* The loader finds it by its name. */
extern const struct coll_body fanin_coll_body;
__attribute__((visibility("default"))) const struct coll_body fanin_coll_body = {
	.begin = body_begin,
	.peers_agree = peers_agree,
	.module_make = module_make,
};
