/* SPDX-License-Identifier: BSD-3-Clause */
/* faninctl --manager: shows the switches, jobs and trees of a manager, and destroys jobs. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/ctl.h"
#include "tools/ctl_table.h"

#define NUMBERS_LEN 64
#define NAMES_LEN 256 /* names of a switch's ports that fit in a line */

/* Runs a command without arguments that shows the answer to one request. */
static int
show(struct ctl *ctl, int argc, char **argv, const char *command, void (*print)(const json_t *))
{
	json_t *result;

	if (ctl_operands(ctl, argc, argv, 0, 0) != CTL_OK)
		return CTL_USAGE;
	result = ctl_call(ctl, command, NULL);
	if (result == NULL)
		return CTL_FAILED;
	if (ctl->json)
		ctl_print_json(result);
	else
		print(result);
	json_decref(result);
	return CTL_OK;
}

static void
print_version(const json_t *result)
{
	char uptime[CTL_NUMBER_LEN];

	printf("manager     %s\n", ctl_string(result, "name"));
	printf("owner       %s\n", ctl_string(result, "owner"));
	printf("version     %s, protocol %" PRId64 " (faninctl %s)\n",
	       ctl_string(result, "version"), ctl_integer(result, "protocol"), FANIN_VERSION);
	printf("running     for %s, process %" PRId64 "\n",
	       ctl_duration(ctl_real(result, "uptime_s"), uptime), ctl_integer(result, "pid"));
	printf("topology    %s\n", ctl_string(result, "topology"));
}

static int
manager_version(struct ctl *ctl, int argc, char **argv)
{
	return show(ctl, argc, argv, "version", print_version);
}

/* title: of the first column. */
static void
print_switches(const json_t *switches, const char *title)
{
	const char *headers[] = { title,   "STATE", ">FOR",    "ADDRESS", ">TREES",
				  ">JOBS", ">MOST", "CONTROL", "ERROR",   NULL };
	struct ctl_table table;
	char duration[CTL_NUMBER_LEN];
	const json_t *entry;
	size_t i;

	ctl_table_start(&table, headers);
	json_array_foreach(switches, i, entry) {
		ctl_table_cell(&table, "%s", ctl_string(entry, "name"));
		ctl_table_cell(&table, "%s", ctl_string(entry, "state"));
		ctl_table_cell(&table, "%s", ctl_duration(ctl_real(entry, "since_s"), duration));
		ctl_table_cell(&table, "%s", ctl_string(entry, "ip"));
		ctl_table_cell(&table, "%" PRId64, ctl_integer(entry, "trees"));
		ctl_table_cell(&table, "%" PRId64, ctl_integer(entry, "jobs"));
		ctl_table_cell(&table, "%" PRId64, ctl_integer(entry, "max_jobs"));
		ctl_table_cell(&table, "%s", ctl_string(entry, "control"));
		ctl_table_cell(&table, "%s", ctl_string(entry, "error"));
	}
	ctl_table_print(&table, "");
}

static void
print_topology(const json_t *result)
{
	static const char *const link_headers[] = { "LINK", "", "STATE", "ERROR", NULL };
	static const char *const host_headers[] = { "HOST", "AT", "STATE", "PLACE", "ERROR", NULL };
	struct ctl_table table;
	const json_t *entry;
	size_t i;

	print_switches(json_object_get(result, "switches"), "SWITCH");
	if (json_array_size(json_object_get(result, "servers")) > 0) {
		putchar('\n');
		print_switches(json_object_get(result, "servers"), "SERVER");
	}
	if (json_array_size(json_object_get(result, "links")) > 0) {
		putchar('\n');
		ctl_table_start(&table, link_headers);
		json_array_foreach(json_object_get(result, "links"), i, entry) {
			ctl_table_cell(&table, "%s", ctl_string(entry, "a"));
			ctl_table_cell(&table, "%s", ctl_string(entry, "b"));
			ctl_table_cell(&table, "%s", ctl_string(entry, "state"));
			ctl_table_cell(&table, "%s", ctl_string(entry, "error"));
		}
		ctl_table_print(&table, "");
	}
	if (json_array_size(json_object_get(result, "hosts")) == 0)
		return;
	putchar('\n');
	ctl_table_start(&table, host_headers);
	json_array_foreach(json_object_get(result, "hosts"), i, entry) {
		ctl_table_cell(&table, "%s", ctl_string(entry, "ip"));
		ctl_table_cell(&table, "%s", ctl_string(entry, "at"));
		ctl_table_cell(&table, "%s", ctl_string(entry, "state"));
		ctl_table_cell(&table, "%s", ctl_is_true(entry, "discovered") ? "found" : "listed");
		ctl_table_cell(&table, "%s", ctl_string(entry, "error"));
	}
	ctl_table_print(&table, "");
}

static int
manager_topology(struct ctl *ctl, int argc, char **argv)
{
	return show(ctl, argc, argv, "topology", print_topology);
}

/* Writes "17,18". text: NUMBERS_LEN bytes, enough for the most trees of a job. Returns text. */
static const char *
list_numbers(const json_t *numbers, char *text)
{
	const json_t *number;
	size_t used = 0, i;

	text[0] = '\0';
	json_array_foreach(numbers, i, number) {
		used += (size_t)snprintf(text + used, NUMBERS_LEN - used, "%s%" JSON_INTEGER_FORMAT,
					 i == 0 ? "" : ",", json_integer_value(number));
		if (used >= NUMBERS_LEN)
			break;
	}
	return text;
}

static void
print_group(struct ctl_table *table, const json_t *job)
{
	char numbers[NUMBERS_LEN];
	const json_t *member;
	int64_t live = 0;
	size_t i;

	json_array_foreach(json_object_get(job, "members"), i, member)
		live += strcmp(ctl_string(member, "state"), "live") == 0;
	ctl_table_cell(table, "%s", ctl_string(job, "name"));
	ctl_table_cell(table, "%s", ctl_string(job, "state"));
	ctl_table_cell(table, "%s", list_numbers(json_object_get(job, "numbers"), numbers));
	if (ctl_integer(job, "trees") == 0 || strcmp(ctl_string(job, "shape"), "leaders") == 0)
		ctl_table_cell(table, "-");
	else if (ctl_integer(job, "trees_asked") > ctl_integer(job, "trees"))
		ctl_table_cell(table, "%" PRId64 " of %" PRId64, ctl_integer(job, "trees"),
			       ctl_integer(job, "trees_asked"));
	else
		ctl_table_cell(table, "%" PRId64, ctl_integer(job, "trees"));
	ctl_table_cell(table, "%" PRId64, ctl_integer(job, "size"));
	ctl_table_cell(table, "%zu", json_array_size(json_object_get(job, "members")));
	ctl_table_cell(table, "%" PRId64, live);
	ctl_table_cell(table, "%s", ctl_string(job, "handler"));
	ctl_table_cell(table, "%s", ctl_is_true(job, "authenticated") ? "yes" : "no");
	ctl_table_cell(table, "%" PRId64, ctl_integer(job, "window"));
	ctl_table_cell(table, "%" PRId64 " B", ctl_integer(job, "payload_bytes"));
	ctl_table_cell(table, "%s",
		       ctl_string(job, "reason")[0] != '\0' ? ctl_string(job, "reason")
							    : ctl_string(job, "trees_reason"));
}

static void
print_jobs(const json_t *result)
{
	static const char *const headers[] = {
		"JOB",     "STATE",         ">NUMBER", ">TREES",   ">RANKS", ">CAME", ">LIVE",
		"HANDLER", "AUTHENTICATED", ">WINDOW", ">PAYLOAD", "REASON", NULL
	};
	const json_t *jobs = json_object_get(result, "jobs");
	const json_t *removals = json_object_get(result, "removals");
	struct ctl_table table;
	const json_t *entry;
	size_t i;

	if (json_array_size(jobs) > 0) {
		ctl_table_start(&table, headers);
		json_array_foreach(jobs, i, entry)
			print_group(&table, entry);
		ctl_table_print(&table, "");
		putchar('\n');
	}
	printf("%zu of %" PRId64 " jobs\n", json_array_size(jobs),
	       ctl_integer(json_object_get(result, "limits"), "jobs"));
	json_array_foreach(removals, i, entry)
		printf("number %" PRId64 " is still to be removed from %s\n",
		       ctl_integer(entry, "job"), ctl_string(entry, "switch"));
	json_array_foreach(json_object_get(result, "namesakes"), i, entry)
		printf("number %" PRId64
		       " on %s is of another manager with this one's name (%s): it stays until `faninctl jobs destroy %" PRId64
		       "` there\n",
		       ctl_integer(entry, "job"), ctl_string(entry, "switch"),
		       ctl_string(entry, "owner"), ctl_integer(entry, "job"));
}

static int
manager_jobs(struct ctl *ctl, int argc, char **argv)
{
	return show(ctl, argc, argv, "jobs", print_jobs);
}

/* Counts the set bits of a number of any length, given as hexadecimal digits after "0x". */
static int
count_bits(const char *digits)
{
	int n = 0;

	for (digits += strncmp(digits, "0x", 2) == 0 ? 2 : 0; *digits != '\0'; digits++) {
		const char digit[] = { *digits, '\0' };

		n += __builtin_popcountl(strtoul(digit, NULL, 16));
	}
	return n;
}

/*
 * Writes "u0,u1", or "-" for an empty list. text: NAMES_LEN bytes; names that do not fit are left
 * out. Returns text.
 */
static const char *
list_names(const json_t *list, char *text)
{
	const json_t *name;
	size_t used = 0, i;

	snprintf(text, NAMES_LEN, "-");
	json_array_foreach(list, i, name) {
		if (used < NAMES_LEN)
			used += (size_t)snprintf(text + used, NAMES_LEN - used, "%s%s",
						 i == 0 ? "" : ",", json_string_value(name));
	}
	return text;
}

static void
print_trees(const json_t *result)
{
	static const char *const headers[] = { "JOB",    "TREE",    ">NUMBER", "SWITCH", "BY PORT",
					       "PARENT", "AT PORT", ">RANKS",  "STATE",  NULL };
	const json_t *tree, *node;
	struct ctl_table table;
	size_t i, k;

	ctl_table_start(&table, headers);
	json_array_foreach(json_object_get(result, "trees"), i, tree) {
		const json_t *nodes = json_object_get(tree, "nodes");

		json_array_foreach(nodes, k, node) {
			const json_t *parent = json_object_get(node, "parent");
			const json_t *links = json_object_get(node, "links");
			char names[NAMES_LEN];
			const json_t *above =
				parent == NULL
					? NULL
					: json_array_get(nodes, (size_t)json_integer_value(parent));

			ctl_table_cell(&table, "%s", ctl_string(tree, "name"));
			if (links != NULL)
				ctl_table_cell(&table, "-");
			else
				ctl_table_cell(&table, "%" PRId64 " of %" PRId64,
					       ctl_integer(tree, "tree") + 1,
					       ctl_integer(tree, "trees"));
			ctl_table_cell(&table, "%" PRId64, ctl_integer(tree, "id"));
			ctl_table_cell(&table, "%s", ctl_string(node, "switch"));
			ctl_table_cell(&table, "%s",
				       links != NULL    ? list_names(links, names)
				       : parent == NULL ? "-"
							: ctl_string(node, "port"));
			ctl_table_cell(&table, "%s",
				       parent == NULL ? "-" : ctl_string(above, "switch"));
			ctl_table_cell(&table, "%s",
				       parent == NULL ? "-" : ctl_string(node, "parent_port"));
			ctl_table_cell(&table, "%d", count_bits(ctl_string(node, "ranks")));
			ctl_table_cell(&table, "%s", ctl_string(node, "state"));
		}
	}
	ctl_table_print(&table, "");
}

static int
manager_trees(struct ctl *ctl, int argc, char **argv)
{
	return show(ctl, argc, argv, "trees", print_trees);
}

static void
print_counters(const char *title, const json_t *counters)
{
	const char *name;
	json_t *value;

	printf("%s\n", title);
	json_object_foreach((json_t *)(uintptr_t)counters, name, value)
		printf("  %-18s  %" PRId64 "\n", name, (int64_t)json_integer_value(value));
}

static void
print_stats(const json_t *result)
{
	char uptime[CTL_NUMBER_LEN];

	printf("running for %s, %" PRId64 " jobs, %" PRId64 " removals pending\n",
	       ctl_duration(ctl_real(result, "uptime_s"), uptime), ctl_integer(result, "jobs"),
	       ctl_integer(result, "removals_pending"));
	print_counters("jobs and hosts", json_object_get(result, "counters"));
	print_counters("connections", json_object_get(result, "control"));
}

static int
manager_stats(struct ctl *ctl, int argc, char **argv)
{
	return show(ctl, argc, argv, "stats", print_stats);
}

static int
manager_jobs_destroy(struct ctl *ctl, int argc, char **argv)
{
	json_t *args, *result;

	if (ctl_operands(ctl, argc, argv, 1, 1) != CTL_OK)
		return CTL_USAGE;
	args = json_pack("{s:s}", "name", argv[optind]);
	if (args == NULL)
		return ctl_usage_error(ctl, "NAME: found text that is not UTF-8, expected UTF-8");
	result = ctl_call(ctl, "jobs.destroy", args);
	if (result == NULL)
		return CTL_FAILED;
	if (ctl->json)
		ctl_print_json(result);
	else
		printf("job \"%s\" destroyed\n", argv[optind]);
	json_decref(result);
	return CTL_OK;
}

const struct ctl_command ctl_manager_commands[] = {
	{ "version", NULL, "", "version and topology of the manager", NULL, manager_version },
	{ "topology", NULL, "", "switches, links, servers and hosts, and which of them live", NULL,
	  manager_topology },
	{ "jobs", NULL, "", "jobs with their states, and what is still to be removed", NULL,
	  manager_jobs },
	{ "jobs", "destroy", "NAME", "removes a job from all its switches", NULL,
	  manager_jobs_destroy },
	{ "trees", NULL, "", "the switches of each job's trees", NULL, manager_trees },
	{ "waits", NULL, "[NAME]", "blocks without a result, and which ranks each waits for", NULL,
	  ctl_manager_waits },
	{ "stats", NULL, "", "what has happened since the manager's start", NULL, manager_stats },
	{ 0 },
};
