/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * faninctl jobs: lists, creates and destroys the jobs of a switch.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/job_key.h"
#include "tools/ctl.h"
#include "tools/ctl_table.h"

/* More ranks than this are not a person's typing error; the switch allows fewer. */
#define MAX_RANKS 4095

enum create_option {
	OPTION_ID = 256, /* above all letters */
	OPTION_KEY,
	OPTION_KEY_FILE,
	OPTION_SLOTS,
	OPTION_PAYLOAD,
	OPTION_HANDLER,
	OPTION_BUFFERS,
	OPTION_MESSAGE_BYTES,
	OPTION_REPRODUCIBLE,
	OPTION_ACCUMULATE,
	OPTION_AUTHENTICATE,
	OPTION_SIZE,
	OPTION_PARENT,
	OPTION_SERVER,
	OPTION_LINK,
	OPTION_PARAMETER,
};

const struct cli_option ctl_jobs_create_options[] = {
	{ "member", "PORT:IP", 'm',
	  "port and address of the next rank, from rank 0 on; PORT:IP=N says its rank, or of a switch those behind it, like 4-7" },
	{ "size", "N", OPTION_SIZE, "ranks of the whole job (default: as many as members)" },
	{ "parent", "PORT,IP,MAC", OPTION_PARENT,
	  "switch that this one's sums go to (default: none, it is the root)" },
	{ "server", "PORT,IP,MAC", OPTION_SERVER,
	  "parameter server that this switch's sums go to, for handlers whose results servers make" },
	{ "link", "PORT", OPTION_LINK,
	  "port to another switch, for handlers whose jobs have no tree; may be given several times" },
	{ "id", "N", OPTION_ID, "number of the job (default: the smallest free one)" },
	{ "key-file", "FILE", OPTION_KEY_FILE,
	  "has the job's key, as 0x...; - is standard input (default: random)" },
	{ "key", "HEX", OPTION_KEY,
	  "the same on the command line, which other users can see until it is read" },
	{ "slots", "N", OPTION_SLOTS,
	  "switch memory in packets, a power of two (default: an equal share, or less if all members are on memif)" },
	{ "payload", "N", OPTION_PAYLOAD,
	  "bytes per packet, a multiple of 64 (default: from the MTU)" },
	{ "handler", "NAME", OPTION_HANDLER,
	  "as `version` of a switch lists them, or auto: by --message-bytes (default: single)" },
	{ "buffers", "N", OPTION_BUFFERS, "per block, with multi (default: 2)" },
	{ "parameter", "NAME=N", OPTION_PARAMETER,
	  "of the handler, as `version` of a switch lists them" },
	{ "message-bytes", "N", OPTION_MESSAGE_BYTES, "usual size of a collective, for auto" },
	{ "reproducible", NULL, OPTION_REPRODUCIBLE,
	  "floating-point sums in a fixed order: the handler is tree" },
	{ "accumulate", "TYPE", OPTION_ACCUMULATE,
	  "f32: f16 and bf16 sums and averages in f32, rounded once, with half the elements per packet (default: native)" },
	{ "authenticate", NULL, OPTION_AUTHENTICATE,
	  "packets carry message authentication codes: senders without the key can't change a sum; fanin-perf needs --authenticate, too" },
	{ 0 },
};

/* Prints one gap's share of the mean time from a block's first contribution to its last. */
static void
mean_cell(struct ctl_table *table, const json_t *stats, int64_t gaps)
{
	int64_t results = ctl_integer(stats, "results");

	if (results * gaps > 0)
		ctl_table_cell(table, "%.1f us",
			       ctl_real(stats, "block_ns") / 1e3 / (double)(results * gaps));
	else
		ctl_table_cell(table, "-");
}

static void
print_jobs(const json_t *jobs)
{
	static const char *const headers[] = {
		">JOB",     "HANDLER",   "ACCUMULATE",  "AUTHENTICATED",  "STATE",       ">EPOCH",
		">RANKS",   ">WINDOW",   ">PAYLOAD",    ">CONTRIBUTIONS", ">DUPLICATES", ">RESULTS",
		">REPEATS", ">PENDINGS", ">BLOCK TIME", ">INTERARRIVAL",  NULL
	};
	struct ctl_table table;
	const json_t *job;
	size_t i;

	ctl_table_start(&table, headers);
	json_array_foreach(jobs, i, job) {
		const json_t *stats = json_object_get(job, "stats");

		ctl_table_cell(&table, "%" PRId64, ctl_integer(job, "id"));
		ctl_table_cell(&table, "%s", ctl_string(job, "handler"));
		ctl_table_cell(&table, "%s", ctl_string(job, "accumulate"));
		ctl_table_cell(&table, "%s", ctl_is_true(job, "authenticated") ? "yes" : "no");
		ctl_table_cell(&table, "%s", ctl_string(job, "state"));
		ctl_table_cell(&table, "%" PRId64, ctl_integer(job, "epoch"));
		ctl_table_cell(&table, "%" PRId64, ctl_integer(job, "size"));
		ctl_table_cell(&table, "%" PRId64, ctl_integer(job, "window"));
		ctl_table_cell(&table, "%" PRId64 " B", ctl_integer(job, "payload_bytes"));
		ctl_table_cell(&table, "%" PRId64, ctl_integer(stats, "contributions"));
		ctl_table_cell(&table, "%" PRId64, ctl_integer(stats, "duplicates"));
		ctl_table_cell(&table, "%" PRId64, ctl_integer(stats, "results"));
		ctl_table_cell(&table, "%" PRId64, ctl_integer(stats, "repeats"));
		ctl_table_cell(&table, "%" PRId64, ctl_integer(stats, "pendings"));
		mean_cell(&table, stats, 1);
		mean_cell(&table, stats, ctl_integer(job, "size") - 1);
	}
	ctl_table_print(&table, "");
}

/* Prints "0", or for a switch "4-7": the lowest and highest rank behind it. */
static void
ranks_cell(struct ctl_table *table, const json_t *member)
{
	const json_t *ranks = json_object_get(member, "ranks");
	size_t n = json_array_size(ranks);

	if (n > 1)
		ctl_table_cell(table, "%" PRId64 "-%" PRId64 "%s",
			       (int64_t)json_integer_value(json_array_get(ranks, 0)),
			       (int64_t)json_integer_value(json_array_get(ranks, n - 1)),
			       json_integer_value(json_array_get(ranks, n - 1)) -
						       json_integer_value(
							       json_array_get(ranks, 0)) +
						       1 >
					       (json_int_t)n
				       ? " (some)"
				       : "");
	else
		ctl_table_cell(table, "%" PRId64, ctl_integer(member, "rank"));
}

/* Prints a job's parent as the last line of its members. */
static void
print_parent(struct ctl_table *table, const json_t *job)
{
	const json_t *parent = json_object_get(job, "parent");

	if (!json_is_object(parent))
		return;
	ctl_table_cell(table, "%" PRId64, ctl_integer(job, "id"));
	ctl_table_cell(table, "%s", ctl_is_true(parent, "server") ? "server" : "parent");
	ctl_table_cell(table, "%s", ctl_string(parent, "port"));
	ctl_table_cell(table, "%s", ctl_string(parent, "ip"));
	ctl_table_cell(table, "%s", ctl_is_true(parent, "joined") ? "yes" : "no");
	ctl_table_cell(table, "%s", ctl_string(parent, "mac"));
}

static void
print_members(const json_t *jobs)
{
	static const char *const headers[] = { ">JOB",   ">RANK", "PORT", "ADDRESS",
					       "JOINED", "MAC",   NULL };
	struct ctl_table table;
	const json_t *job, *member;
	size_t i, j;

	ctl_table_start(&table, headers);
	json_array_foreach(jobs, i, job) {
		json_array_foreach(json_object_get(job, "members"), j, member) {
			ctl_table_cell(&table, "%" PRId64, ctl_integer(job, "id"));
			ranks_cell(&table, member);
			ctl_table_cell(&table, "%s", ctl_string(member, "port"));
			ctl_table_cell(&table, "%s", ctl_string(member, "ip"));
			ctl_table_cell(&table, "%s", ctl_is_true(member, "joined") ? "yes" : "no");
			ctl_table_cell(&table, "%s",
				       ctl_is_true(member, "joined") ? ctl_string(member, "mac")
								     : "-");
		}
		print_parent(&table, job);
	}
	ctl_table_print(&table, "");
}

/*
 * Prints the values that the handler reports about a job, one per line. Older switches report none.
 */
static void
print_values(const json_t *job)
{
	const json_t *value;
	size_t i;

	json_array_foreach(json_object_get(job, "values"), i, value) {
		const json_t *by = json_object_get(value, "by");

		printf("  %s", ctl_string(value, "name"));
		if (json_is_string(by))
			printf(" by %s: min %" PRId64 ", median %" PRId64 ", max %" PRId64 "\n",
			       json_string_value(by), ctl_integer(value, "min"),
			       ctl_integer(value, "median"), ctl_integer(value, "max"));
		else
			printf(": %" PRId64 "\n", ctl_integer(value, "max"));
	}
}

/*
 * Prints the handlers' own counters and their jobs' parameters: a line for each job that has any.
 */
static void
print_handler_details(const json_t *jobs)
{
	const json_t *job, *counter;
	const char *name;
	json_t *value;
	size_t i, k;
	size_t lines = 0;

	json_array_foreach(jobs, i, job) {
		json_t *parameters = json_object_get(job, "parameters");
		const json_t *counters = json_object_get(job, "counters");

		if (json_object_size(parameters) == 0 && json_array_size(counters) == 0)
			continue;
		printf("job %" PRId64 ", %s:", ctl_integer(job, "id"), ctl_string(job, "handler"));
		json_object_foreach(parameters, name, value)
			printf(" %s=%" PRId64, name, (int64_t)json_integer_value(value));
		json_array_foreach(counters, k, counter)
			printf("%s %s %" PRId64,
			       k == 0 && json_object_size(parameters) == 0 ? "" : ",",
			       ctl_string(counter, "name"), ctl_integer(counter, "count"));
		putchar('\n');
		print_values(job);
		ctl_print_progress(job);
		lines++;
	}
	if (lines != 0)
		putchar('\n');
}

int
ctl_jobs_list(struct ctl *ctl, int argc, char **argv)
{
	const json_t *jobs, *limits;
	json_t *result;

	if (ctl_operands(ctl, argc, argv, 0, 1) != CTL_OK)
		return CTL_USAGE;
	if (optind < argc && strcmp(argv[optind], "list") != 0)
		return ctl_usage_error(
			ctl,
			"found \"jobs %.40s\", expected jobs list, jobs create, jobs destroy or jobs waits",
			argv[optind]);
	result = ctl_call(ctl, "jobs.list", NULL);
	if (result == NULL)
		return CTL_FAILED;
	jobs = json_object_get(result, "jobs");
	limits = json_object_get(result, "limits");
	if (ctl->json) {
		ctl_print_json(result);
	} else {
		if (json_array_size(jobs) > 0) {
			print_jobs(jobs);
			putchar('\n');
			print_members(jobs);
			putchar('\n');
			print_handler_details(jobs);
		}
		printf("%zu of %" PRId64 " jobs, %" PRId64 " slots for each\n",
		       json_array_size(jobs), ctl_integer(limits, "max_jobs"),
		       ctl_integer(limits, "slots_per_job"));
	}
	json_decref(result);
	return CTL_OK;
}

/*
 * Reads "3" or "4-7" into member.rank or member.ranks. Returns false if it is neither.
 */
static bool
set_ranks(json_t *member, const char *text)
{
	unsigned long first, last;
	json_t *ranks;
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	first = last = strtoul(text, &end, 10);
	if (*end == '-' && end[1] >= '0' && end[1] <= '9')
		last = strtoul(end + 1, &end, 10);
	if (*end != '\0' || last < first || last > MAX_RANKS)
		return false;
	if (first == last) {
		json_object_set_new(member, "rank", json_integer((json_int_t)first));
		return true;
	}
	ranks = json_array();
	for (unsigned long rank = first; rank <= last; rank++)
		json_array_append_new(ranks, json_integer((json_int_t)rank));
	json_object_set_new(member, "ranks", ranks);
	return true;
}

/* Appends "PORT:IP", for the next rank, or "PORT:IP=RANKS". */
static int
add_member(const struct ctl *ctl, json_t *args, const char *text)
{
	json_t *members = json_object_get(args, "members");
	const char *colon = strchr(text, ':');
	const char *ip = colon == NULL ? "" : colon + 1;
	size_t ip_len = strcspn(ip, "=");
	json_t *member;

	if (ip_len == 0 || colon == text)
		return ctl_usage_error(
			ctl,
			"--member: found \"%.40s\", expected PORT:IP like h0:10.77.0.1, or PORT:IP=RANKS like up0:10.77.1.254=4-7",
			text);
	if (members == NULL) {
		members = json_array();
		json_object_set_new(args, "members", members);
	}
	member = json_pack("{s:s%, s:s%}", "port", text, (size_t)(colon - text), "ip", ip, ip_len);
	if (json_array_append_new(members, member) != 0)
		return ctl_usage_error(ctl,
				       "--member: found text that is not UTF-8, expected PORT:IP");
	if (ip[ip_len] == '=' && !set_ranks(member, ip + ip_len + 1))
		return ctl_usage_error(
			ctl,
			"--member: found ranks \"%.40s\", expected a rank like 3, or several like 4-7",
			ip + ip_len + 1);
	return CTL_OK;
}

/* Reads "PORT,IP,MAC" of a switch or server. */
static int
set_parent(const struct ctl *ctl, json_t *args, const char *option, const char *text,
	   bool is_server)
{
	const char *ip = strchr(text, ',');
	const char *mac = ip == NULL ? NULL : strchr(ip + 1, ',');

	if (json_object_get(args, "parent") != NULL)
		return ctl_usage_error(
			ctl,
			"%s: found another parent before it, expected one --parent or --server",
			option);
	if (mac == NULL ||
	    json_object_set_new(args, "parent",
				json_pack("{s:s%, s:s%, s:s}", "port", text, (size_t)(ip - text),
					  "ip", ip + 1, (size_t)(mac - ip - 1), "mac", mac + 1)) !=
		    0)
		return ctl_usage_error(
			ctl,
			"%s: found \"%.60s\", expected PORT,IP,MAC like up0,10.78.0.254,02:fa:00:00:00:03",
			option, text);
	if (is_server)
		json_object_set_new(json_object_get(args, "parent"), "server", json_true());
	return CTL_OK;
}

static int
add_number(const struct ctl *ctl, json_t *args, const char *option, const char *key,
	   const char *text)
{
	int64_t value;
	int code = ctl_number(ctl, option, text, 0, UINT32_MAX, &value);

	if (code == CTL_OK)
		json_object_set_new(args, key, json_integer(value));
	return code;
}

static int
add_string(const struct ctl *ctl, json_t *args, const char *option, const char *key,
	   const char *text)
{
	if (json_object_set_new(args, key, json_string(text)) != 0)
		return ctl_usage_error(ctl, "%s: found text that is not UTF-8, expected UTF-8",
				       option);
	return CTL_OK;
}

/* text: in argv; overwritten. */
static int
add_key(const struct ctl *ctl, json_t *args, char *text)
{
	const char *digits = text;
	char key[20];

	if (strncmp(text, "0x", 2) == 0 || strncmp(text, "0X", 2) == 0)
		digits += 2;
	if (digits[0] == '\0' || strlen(digits) > 16 ||
	    strspn(digits, "0123456789abcdefABCDEF") != strlen(digits))
		return ctl_usage_error(
			ctl, "--key: found \"%.40s\", expected 1 to 16 hexadecimal digits", digits);
	snprintf(key, sizeof(key), "0x%s", digits);
	job_key_hide(text);
	return add_string(ctl, args, "--key", "key", key);
}

static int
add_key_of_file(const struct ctl *ctl, json_t *args, const char *path)
{
	char error[JOB_KEY_ERROR_LEN];
	char text[20];
	uint64_t key;

	if (job_key_load(path, &key, error) != 0)
		return ctl_usage_error(ctl, "--key-file %s", error);
	snprintf(text, sizeof(text), "0x%016" PRIx64, key);
	return add_string(ctl, args, "--key-file", "key", text);
}

/* Parses NAME=VALUE; the handler checks the names. text: overwritten. */
static int
add_parameter(const struct ctl *ctl, json_t *args, char *text)
{
	json_t *parameters = json_object_get(args, "parameters");
	char *value = strchr(text, '=');
	int64_t number;
	int code;

	if (value == NULL || value == text)
		return ctl_usage_error(ctl, "--parameter: found \"%.80s\", expected NAME=NUMBER",
				       text);
	*value++ = '\0';
	code = ctl_number(ctl, "--parameter", value, 0, INT64_MAX, &number);
	if (code != CTL_OK)
		return code;
	if (parameters == NULL) {
		parameters = json_object();
		json_object_set_new(args, "parameters", parameters);
	}
	if (json_object_set_new(parameters, text, json_integer(number)) != 0)
		return ctl_usage_error(ctl,
				       "--parameter: found text that is not UTF-8, expected UTF-8");
	return CTL_OK;
}

static int
add_link(const struct ctl *ctl, json_t *args, const char *text)
{
	json_t *links = json_object_get(args, "links");

	if (links == NULL) {
		links = json_array();
		json_object_set_new(args, "links", links);
	}
	if (json_array_append_new(links, json_string(text)) != 0)
		return ctl_usage_error(ctl, "--link: found text that is not UTF-8, expected UTF-8");
	return CTL_OK;
}

/* Checks only the form of an option; the switch checks ranges and names. */
static int
add_option(const struct ctl *ctl, json_t *args, int option, char *text)
{
	switch (option) {
	case 'm':
		return add_member(ctl, args, text);
	case OPTION_ID:
		return add_number(ctl, args, "--id", "id", text);
	case OPTION_SLOTS:
		return add_number(ctl, args, "--slots", "slots", text);
	case OPTION_PAYLOAD:
		return add_number(ctl, args, "--payload", "payload_bytes", text);
	case OPTION_HANDLER:
		return add_string(ctl, args, "--handler", "handler", text);
	case OPTION_BUFFERS:
		return add_number(ctl, args, "--buffers", "buffers", text);
	case OPTION_MESSAGE_BYTES:
		return add_number(ctl, args, "--message-bytes", "message_bytes", text);
	case OPTION_REPRODUCIBLE:
		json_object_set_new(args, "reproducible", json_true());
		return CTL_OK;
	case OPTION_SIZE:
		return add_number(ctl, args, "--size", "size", text);
	case OPTION_PARENT:
		return set_parent(ctl, args, "--parent", text, false);
	case OPTION_SERVER:
		return set_parent(ctl, args, "--server", text, true);
	case OPTION_LINK:
		return add_link(ctl, args, text);
	case OPTION_PARAMETER:
		return add_parameter(ctl, args, text);
	case OPTION_ACCUMULATE:
		return add_string(ctl, args, "--accumulate", "accumulate", text);
	case OPTION_AUTHENTICATE:
		json_object_set_new(args, "authenticate", json_true());
		return CTL_OK;
	case OPTION_KEY:
		return add_key(ctl, args, text);
	case OPTION_KEY_FILE:
		return add_key_of_file(ctl, args, text);
	default:
		return CTL_USAGE;
	}
}

int
ctl_jobs_create(struct ctl *ctl, int argc, char **argv)
{
	json_t *args = json_object();
	json_t *result;
	int option;

	while ((option = ctl_next_option(ctl, argc, argv)) != -1) {
		if (add_option(ctl, args, option, optarg) != CTL_OK)
			goto usage;
	}
	if (optind < argc) {
		ctl_usage_error(ctl, "unexpected argument \"%.40s\"", argv[optind]);
		goto usage;
	}
	if (json_object_get(args, "members") == NULL && json_object_get(args, "links") == NULL) {
		ctl_usage_error(ctl, "expected at least one --member PORT:IP");
		goto usage;
	}
	result = ctl_call(ctl, "jobs.create", args);
	if (result == NULL)
		return CTL_FAILED;
	if (ctl->json)
		ctl_print_json(result);
	else
		printf("job %" PRId64 " created, key %s\n"
		       "handler %s, window %" PRId64 " packets of %" PRId64 " B%s%s\n",
		       ctl_integer(result, "id"), ctl_string(result, "key"),
		       ctl_string(result, "handler"), ctl_integer(result, "window"),
		       ctl_integer(result, "payload_bytes"),
		       strcmp(ctl_string(result, "accumulate"), "f32") == 0
			       ? ", f16 and bf16 sums in f32"
			       : "",
		       ctl_is_true(result, "authenticated") ? ", authenticated" : "");
	json_decref(result);
	return CTL_OK;

usage:
	json_decref(args);
	return CTL_USAGE;
}

int
ctl_jobs_destroy(struct ctl *ctl, int argc, char **argv)
{
	json_t *result;
	int64_t id;

	if (ctl_operands(ctl, argc, argv, 1, 1) != CTL_OK ||
	    ctl_number(ctl, "ID", argv[optind], 0, UINT32_MAX, &id) != CTL_OK)
		return CTL_USAGE;
	result = ctl_call(ctl, "jobs.destroy", json_pack("{s:I}", "id", (json_int_t)id));
	if (result == NULL)
		return CTL_FAILED;
	if (ctl->json)
		ctl_print_json(result);
	else
		printf("job %" PRId64 " destroyed\n", id);
	json_decref(result);
	return CTL_OK;
}
