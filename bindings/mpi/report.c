/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Counters of the program's collectives, calls and bytes by where they went. Rank 0 prints the sums
 * of all ranks in MPI_Finalize.
 */
#include "core.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct counters report_counters;

static const char *const kind_names[] = {
#define X(name, text) text,
	COLLECTIVE_KINDS(X)
#undef X
};
static const char *const way_names[] = {
#define X(name, text) #name,
	WAYS(X)
#undef X
};
static const char *const way_texts[] = {
#define X(name, text) text,
	WAYS(X)
#undef X
};

void
report_communicator(enum way way)
{
	__atomic_fetch_add(&report_counters.communicators[way], 1, __ATOMIC_RELAXED);
}

#ifdef OPEN_MPI
#define MPI_BUILT_WITH                                                                             \
	"Open MPI v" PRINTED(OMPI_MAJOR_VERSION) "." PRINTED(OMPI_MINOR_VERSION) "." PRINTED(      \
		OMPI_RELEASE_VERSION)
#else
#define MPI_BUILT_WITH "MPICH Version: " MPICH_VERSION
#endif
#define PRINTED(number) PRINTED_TEXT(number)
#define PRINTED_TEXT(number) #number

/* Returns the name and version of the running MPI. Static string. */
static const char *
mpi_version(void)
{
	static char version[MPI_MAX_LIBRARY_VERSION_STRING];
	int length;

	PMPI_Get_library_version(version, &length);
	/* The first of several lines or items suffices. */
	version[strcspn(version, ",\n")] = '\0';
	for (char *tab = version; (tab = strchr(tab, '\t')) != NULL;)
		*tab = ' ';
	return version;
}

static bool
way_is_network(int way)
{
	return way == WAY_NETWORK || way == WAY_MPI_WRONG;
}

/*
 * Finds the next type and operator that MPI has wrong, from *place and *op on, which begin at 0.
 * Returns false if there is none.
 */
static bool
wrong_next(unsigned int *place, struct type_view *view, enum fanin_op *op)
{
	while (*op != 0 || type_next(place, view)) {
		for ((*op)++; *op <= FANIN_BXOR; (*op)++)
			if ((view->finding->wrong & OP_BIT(*op)) != 0)
				return true;
		*op = 0;
	}
	return false;
}

/*
 * Prints the types and operators that MPI has wrong. format: of the two names. between: printed
 * before each but the first.
 */
static void
print_wrong(FILE *out, const char *between, const char *format)
{
	char name[MPI_MAX_OBJECT_NAME] = "";
	struct type_view view;
	unsigned int place = 0;
	enum fanin_op op = 0;
	const char *comma = "";
	int length;

	while (wrong_next(&place, &view, &op)) {
		PMPI_Type_get_name(view.type, name, &length);
		fputs(comma, out);
		fprintf(out, format, name, operator_name(op));
		comma = between;
	}
}

static void
print_messages(FILE *out)
{
	const char *text;
	unsigned int place = 0;
	uint64_t count;

	while ((text = message_next(&place, &count)) != NULL)
		fprintf(out, "fanin-mpi:   %" PRIu64 " times: %s\n", count, text);
}

static void
print_json_messages(FILE *out)
{
	const char *text, *comma = "";
	unsigned int place = 0;
	uint64_t count;

	while ((text = message_next(&place, &count)) != NULL) {
		fprintf(out, "%s{\"count\": %" PRIu64 ", \"text\": \"", comma, count);
		for (; *text != '\0'; text++)
			if ((unsigned char)*text < ' ')
				fprintf(out, "\\u%04x", *text);
			else
				fprintf(out, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
		fputs("\"}", out);
		comma = ", ";
	}
}

static void
print_text(FILE *out, const struct counters *all)
{
	fprintf(out, "fanin-mpi: Fanin %s, %s; built with Fanin %s, %s\n", fanin_version(),
		mpi_version(), FANIN_VERSION, MPI_BUILT_WITH);
	fprintf(out, "fanin-mpi: collectives of all ranks, and where they went\n");
	for (int way = 0; way < N_WAYS; way++) {
		for (int kind = 0; kind < N_COLLECTIVES; kind++)
			if (all->calls[kind][way] != 0)
				fprintf(out,
					"fanin-mpi:   %-20s %12" PRIu64 " calls %16" PRIu64
					" bytes  %s%s\n",
					kind_names[kind], all->calls[kind][way],
					all->bytes[kind][way],
					way_is_network(way) || way == WAY_ERROR ? "" : "MPI: ",
					way_texts[way]);
	}
	for (int way = 0; way < N_WAYS; way++)
		if (all->communicators[way] != 0)
			fprintf(out, "fanin-mpi:   communicators, by rank: %" PRIu64 " %s%s\n",
				all->communicators[way],
				way == WAY_NETWORK ? "with a job " : "to MPI: ", way_texts[way]);
	print_messages(out);
	print_wrong(
		out, "",
		"fanin-mpi:   MPI's own answers are wrong: %s by %s, which is never left to MPI\n");
}

static void
print_json(FILE *out, const struct counters *all)
{
	const char *comma = "";

	fprintf(out,
		"{\"versions\": {\"fanin\": \"%s\", \"mpi\": \"%s\", \"built_with\": {\"fanin\": \"%s\", \"mpi\": \"%s\"}}, ",
		fanin_version(), mpi_version(), FANIN_VERSION, MPI_BUILT_WITH);
	fputs("\"collectives\": [", out);
	for (int way = 0; way < N_WAYS; way++)
		for (int kind = 0; kind < N_COLLECTIVES; kind++)
			if (all->calls[kind][way] != 0) {
				fprintf(out,
					"%s{\"call\": \"%s\", \"way\": \"%s\", \"in_network\": %s, \"reason\": \"%s\", "
					"\"calls\": %" PRIu64 ", \"bytes\": %" PRIu64 "}",
					comma, kind_names[kind], way_names[way],
					way_is_network(way) ? "true" : "false", way_texts[way],
					all->calls[kind][way], all->bytes[kind][way]);
				comma = ", ";
			}
	fputs("], \"communicators\": [", out);
	comma = "";
	for (int way = 0; way < N_WAYS; way++)
		if (all->communicators[way] != 0) {
			fprintf(out,
				"%s{\"way\": \"%s\", \"in_network\": %s, \"reason\": \"%s\", \"count\": %" PRIu64
				"}",
				comma, way_names[way], way == WAY_NETWORK ? "true" : "false",
				way_texts[way], all->communicators[way]);
			comma = ", ";
		}
	fputs("], \"messages\": [", out);
	print_json_messages(out);
	fputs("], \"wrong_in_mpi\": [", out);
	print_wrong(out, ", ", "{\"type\": \"%s\", \"operator\": \"%s\"}");
	fputs("]}\n", out);
}

void
report_print(void)
{
	char buffer[SETTING_LEN];
	const char *path = setting_text("FANIN_MPI_REPORT_FILE", buffer);
	struct counters all = report_counters;
	FILE *out = stderr;
	int rank, status;

	if (!mpi_settings.report)
		return;
	PMPI_Comm_rank(library_comm, &rank);
	/* MPICH's MPI_Reduce is wrong for some placements of ranks, so this is not one. */
	status = PMPI_Allreduce(MPI_IN_PLACE, &all, (int)(sizeof(all) / sizeof(uint64_t)),
				MPI_UINT64_T, MPI_SUM, library_comm);
	if (rank != 0)
		return;
	if (status != MPI_SUCCESS) {
		fputs("fanin-mpi: no report: MPI can't sum the counters of all ranks\n", stderr);
		return;
	}
	if (path != NULL && (out = fopen(path, "w")) == NULL) {
		fprintf(stderr,
			"fanin-mpi: cannot write %s, which FANIN_MPI_REPORT_FILE names: %m\n",
			path);
		out = stderr;
	}
	(mpi_settings.report_json ? print_json : print_text)(out, &all);
	if (out != stderr)
		fclose(out);
}
