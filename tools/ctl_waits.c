/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * faninctl jobs waits, and faninctl --manager waits: which ranks a block waits for, one line per
 * block.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "tools/ctl.h"
#include "tools/ctl_table.h"

/* Prints "rank 3", or "ranks 0, 4-7". */
static void
print_ranks(const json_t *ranks)
{
	size_t n = json_array_size(ranks);

	printf(n == 1 ? "rank " : "ranks ");
	for (size_t i = 0; i < n; i++) {
		json_int_t first = json_integer_value(json_array_get(ranks, i));
		json_int_t last = first;

		while (i + 1 < n && json_integer_value(json_array_get(ranks, i + 1)) == last + 1) {
			last++;
			i++;
		}
		printf("%" JSON_INTEGER_FORMAT, first);
		if (last > first)
			printf("%s%" JSON_INTEGER_FORMAT, last == first + 1 ? ", " : "-", last);
		if (i + 1 < n)
			printf(", ");
	}
}

static void
print_since(const json_t *block)
{
	double seconds = (double)ctl_integer(block, "since_ms") / 1e3;
	char duration[CTL_NUMBER_LEN];

	if (seconds < 60)
		printf(" since %.1f s\n", seconds);
	else
		printf(" since %s\n", ctl_duration(seconds, duration));
}

static bool
is_listed(const json_t *ranks, const json_t *rank)
{
	const json_t *entry;
	size_t i;

	json_array_foreach(ranks, i, entry) {
		if (json_equal(entry, rank))
			return true;
	}
	return false;
}

/*
 * Prints the state of missing ranks: "late", "ended", "silent", or "rank 2 late, rank 3 ended".
 *
 * told: an object with the lists "ended" and "silent".
 */
static void
print_presence(const json_t *ranks, const json_t *told)
{
	static const char *const words[] = { "late", "ended", "silent" };
	json_t *lists[] = { json_array(), json_array(), json_array() };
	const char *separator = "";
	const json_t *rank;
	size_t i;

	json_array_foreach(ranks, i, rank) {
		unsigned int which = is_listed(json_object_get(told, "ended"), rank)    ? 1
				     : is_listed(json_object_get(told, "silent"), rank) ? 2
											: 0;

		json_array_append(lists[which], (json_t *)rank);
	}
	for (i = 0; i < 3; i++) {
		if (json_array_size(lists[i]) != 0) {
			printf("%s", separator);
			separator = ", ";
			if (json_array_size(lists[i]) != json_array_size(ranks)) {
				print_ranks(lists[i]);
				putchar(' ');
			}
			printf("%s", words[i]);
		}
		json_decref(lists[i]);
	}
}

/* Prints "rank 3 (port h3, 10.77.0.4)". told: as for print_presence; NULL leaves the state out. */
static void
print_member(const json_t *member, const json_t *told)
{
	print_ranks(json_object_get(member, "ranks"));
	printf(" (port %s, %s", ctl_string(member, "port"), ctl_string(member, "ip"));
	if (told != NULL) {
		printf(", ");
		print_presence(json_object_get(member, "ranks"), told);
	}
	putchar(')');
}

static void
print_missing(const json_t *missing, const json_t *result)
{
	const json_t *members = json_object_get(result, "members");
	const char *separator = "";
	const json_t *rank, *member;
	size_t i, k;

	json_array_foreach(missing, i, rank) {
		json_array_foreach(members, k, member) {
			if (ctl_integer(member, "rank") != json_integer_value(rank))
				continue;
			printf("%s", separator);
			print_member(member, result);
			separator = ", ";
		}
	}
}

/* Prints for a job without a run which ranks have not joined. */
static void
print_not_joined(const json_t *result)
{
	const json_t *parent = json_object_get(result, "parent");
	const char *separator = "";
	const json_t *member;
	size_t i;

	printf("job %" PRId64 " does not run", ctl_integer(result, "id"));
	json_array_foreach(json_object_get(result, "members"), i, member) {
		if (ctl_is_true(member, "joined"))
			continue;
		printf("%s", separator[0] == '\0' ? " without " : separator);
		print_member(member, NULL);
		separator = ", ";
	}
	if (separator[0] == '\0')
		printf(": all have joined here, but not at the parent (port %s, %s)",
		       ctl_string(parent, "port"), ctl_string(parent, "ip"));
	putchar('\n');
}

bool
ctl_print_progress(const json_t *entry)
{
	const json_t *progress = json_object_get(entry, "progress");
	bool any = false;
	const json_t *rank;
	size_t i;

	if (!json_is_object(progress))
		return false;
	printf("job %" PRId64 ": %" PRId64 " of %" PRId64 " slots in use, %" PRId64 " overflowed;",
	       ctl_integer(entry, "id"), ctl_integer(progress, "slots_used"),
	       ctl_integer(progress, "slots"), ctl_integer(progress, "overflowed"));
	json_array_foreach(json_object_get(progress, "ranks"), i, rank) {
		const int64_t behind = ctl_integer(rank, "behind");

		if (behind == 0)
			continue;
		printf("%s rank %" PRId64 " is %" PRId64 " block%s behind", any ? "," : "",
		       ctl_integer(rank, "rank"), behind, behind == 1 ? "" : "s");
		any = true;
	}
	puts(any ? "" : " no rank is behind");
	return true;
}

static void
print_job_waits(const json_t *result)
{
	const json_t *blocks = json_object_get(result, "blocks");
	const json_t *parent = json_object_get(result, "parent");
	int64_t all = ctl_integer(result, "waiting");
	int64_t id = ctl_integer(result, "id");
	const json_t *block;
	size_t i;

	if (strcmp(ctl_string(result, "state"), "active") != 0) {
		print_not_joined(result);
		return;
	}
	json_array_foreach(blocks, i, block) {
		printf("block %" PRId64 " waits for ", ctl_integer(block, "block"));
		if (strcmp(ctl_string(block, "for"), "parent") == 0)
			printf("the parent's result (port %s, %s)", ctl_string(parent, "port"),
			       ctl_string(parent, "ip"));
		else if (strcmp(ctl_string(block, "for"), "ranks") == 0)
			print_ranks(json_object_get(block, "missing")); /* a server reports ranks,
									   not members */
		else
			print_missing(json_object_get(block, "missing"), result);
		print_since(block);
	}
	if (all == 0)
		printf("no block of job %" PRId64 " waits\n", id);
	else if (all > (int64_t)json_array_size(blocks))
		printf("%" PRId64 " more blocks of job %" PRId64 " wait\n",
		       all - (int64_t)json_array_size(blocks), id);
	ctl_print_progress(result);
}

/* Sends the request and prints the answer. args: taken. */
static int
show(struct ctl *ctl, const char *command, json_t *args, void (*print)(const json_t *))
{
	json_t *result = ctl_call(ctl, command, args);

	if (result == NULL)
		return CTL_FAILED;
	if (ctl->json)
		ctl_print_json(result);
	else
		print(result);
	json_decref(result);
	return CTL_OK;
}

int
ctl_jobs_waits(struct ctl *ctl, int argc, char **argv)
{
	int64_t id;

	if (ctl_operands(ctl, argc, argv, 1, 1) != CTL_OK ||
	    ctl_number(ctl, "ID", argv[optind], 0, UINT32_MAX, &id) != CTL_OK)
		return CTL_USAGE;
	return show(ctl, "jobs.waits", json_pack("{s:I}", "id", (json_int_t)id), print_job_waits);
}

/* Prints what a block waits for at one switch of its tree. */
static void
print_cause(const json_t *cause)
{
	const char *why = ctl_string(cause, "why");

	if (strcmp(why, "sent") == 0 && ctl_string(cause, "server")[0] != '\0') {
		printf("the result of server %s, to which %s has sent it",
		       ctl_string(cause, "server"), ctl_string(cause, "switch"));
		return;
	}
	if (strcmp(why, "missing") != 0) {
		printf(strcmp(why, "sent") == 0 ? "the result that %s has asked for"
						: "%s, which can't be asked",
		       ctl_string(cause, "switch"));
		return;
	}
	print_ranks(json_object_get(cause, "ranks"));
	printf(" behind %s", ctl_string(cause, "switch"));
	/* The state of ranks that have not joined is not known. */
	if (json_object_get(cause, "ended") == NULL)
		return;
	printf(" (");
	print_presence(json_object_get(cause, "ranks"), cause);
	putchar(')');
}

static void
print_causes(const json_t *causes)
{
	const json_t *cause;
	size_t i;

	json_array_foreach(causes, i, cause) {
		printf("%s", i == 0 ? "" : ", ");
		print_cause(cause);
	}
}

/* Writes "train", or "train, tree 2 of 4". */
static void
tree_name(const json_t *job, char *text, size_t len)
{
	if (ctl_integer(job, "trees") > 1)
		snprintf(text, len, "%s, tree %" PRId64 " of %" PRId64, ctl_string(job, "name"),
			 ctl_integer(job, "tree") + 1, ctl_integer(job, "trees"));
	else
		snprintf(text, len, "%s", ctl_string(job, "name"));
}

/*
 * Prints why a job does not run in the network (yet), so that no block can wait. Returns false for
 * other jobs.
 */
static bool
print_without_run(const json_t *job)
{
	const char *state = ctl_string(job, "state");
	char name[128];

	tree_name(job, name, sizeof(name));
	if (strcmp(state, "gathering") == 0 && ctl_integer(job, "came") == ctl_integer(job, "size"))
		printf("job %s does not run yet: the switches look for its hosts\n", name);
	else if (strcmp(state, "gathering") == 0)
		printf("job %s waits for %" PRId64 " of %" PRId64 " ranks to come\n", name,
		       ctl_integer(job, "size") - ctl_integer(job, "came"),
		       ctl_integer(job, "size"));
	else if (strcmp(state, "ring") == 0)
		printf("job %s runs as a ring: its hosts tell who is missing\n", name);
	else if (strcmp(state, "network") != 0)
		printf("job %s does not run: its state is %s\n", name, state);
	else if (json_array_size(json_object_get(job, "not_joined")) > 0) {
		printf("job %s does not run without ", name);
		print_causes(json_object_get(job, "not_joined"));
		putchar('\n');
	} else {
		return false;
	}
	return true;
}

static void
print_tree_waits(const json_t *job)
{
	const json_t *blocks = json_object_get(job, "blocks");
	char name[128];
	const json_t *block, *error;
	int64_t more;
	size_t i;

	tree_name(job, name, sizeof(name));
	json_array_foreach(json_object_get(job, "unreached"), i, error)
		printf("%s %s of job %s can't be asked: %s\n",
		       ctl_string(error, "kind")[0] == '\0' ? "switch" : ctl_string(error, "kind"),
		       ctl_string(error, "switch"), name, ctl_string(error, "error"));
	if (print_without_run(job))
		return;
	json_array_foreach(blocks, i, block) {
		printf("block %" PRId64 " of job %s waits for ", ctl_integer(block, "block"), name);
		print_causes(json_object_get(block, "waits_for"));
		print_since(block);
	}
	more = ctl_integer(job, "waiting") - (int64_t)json_array_size(blocks);
	if (json_array_size(blocks) == 0)
		printf("no block of job %s waits\n", name);
	else if (more > 0)
		printf("%" PRId64 " more blocks of job %s wait\n", more, name);
}

static void
print_manager_waits(const json_t *result)
{
	const json_t *jobs = json_object_get(result, "jobs");
	const json_t *job;
	size_t i;

	json_array_foreach(jobs, i, job)
		print_tree_waits(job);
	if (json_array_size(jobs) == 0)
		printf("there are no jobs\n");
}

int
ctl_manager_waits(struct ctl *ctl, int argc, char **argv)
{
	json_t *args = NULL;

	if (ctl_operands(ctl, argc, argv, 0, 1) != CTL_OK)
		return CTL_USAGE;
	if (optind < argc) {
		args = json_pack("{s:s}", "job", argv[optind]);
		if (args == NULL)
			return ctl_usage_error(
				ctl, "NAME: found text that is not UTF-8, expected UTF-8");
	}
	return show(ctl, "waits", args, print_manager_waits);
}
