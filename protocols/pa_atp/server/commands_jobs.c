/* SPDX-License-Identifier: BSD-3-Clause */
/* The control commands that list, create and destroy jobs, and that report what blocks wait for. */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "control/args.h"
#include "protocols/pa_atp/server/commands.h"

#define FEW_WAITING 16
#define MAX_WAITING 1024
#define MAX_SLOTS (2 * FANIN_WIRE_MAX_WINDOW)

static const struct server_parameter parameters[] = {
#define SERVER_PARAMETER(enumerator, name, least, most, usual, text)                               \
	[FANIN_PA_ATP_##enumerator] = { #name, text, least, most, usual },
	FANIN_PA_ATP_PARAMETERS(SERVER_PARAMETER)
#undef SERVER_PARAMETER
};

#define N_PARAMETERS (sizeof(parameters) / sizeof(parameters[0]))

static_assert(N_PARAMETERS <= FANIN_WIRE_PARAMETERS, "parameters in JOIN_ACK");

const struct server_parameter *
server_parameter(size_t i)
{
	return i < N_PARAMETERS ? &parameters[i] : NULL;
}

static struct server_record *
record_find(const struct daemon *daemon, uint32_t id)
{
	struct server_record *record;

	TAILQ_FOREACH(record, &daemon->records, entry) {
		if (record->id == id)
			return record;
	}
	return NULL;
}

static void
record_free(struct daemon *daemon, struct server_record *record)
{
	TAILQ_REMOVE(&daemon->records, record, entry);
	free(record);
}

void
server_records_free(struct daemon *daemon)
{
	while (!TAILQ_EMPTY(&daemon->records))
		record_free(daemon, TAILQ_FIRST(&daemon->records));
}

json_t *
server_list_counters(void)
{
	json_t *list = json_array();

#define LIST_COUNTER(field, text)                                                                  \
	json_array_append_new(list, json_pack("{s:s,s:s}", "name", #field, "description", text));
	FANIN_SERVER_COUNTERS(LIST_COUNTER)
#undef LIST_COUNTER
	return list;
}

static json_t *
json_ranks(uint64_t ranks)
{
	json_t *list = json_array();

	for (; ranks != 0; ranks &= ranks - 1)
		json_array_append_new(list, json_integer(__builtin_ctzll(ranks)));
	return list;
}

static json_t *
json_ipv4(uint32_t ip_be)
{
	char text[INET_ADDRSTRLEN];

	inet_ntop(AF_INET, &ip_be, text, sizeof(text));
	return json_string(text);
}

/* The switch. Only the kernel knows its MAC address. */
static json_t *
list_members(const struct daemon *daemon, const struct server_record *record,
	     const struct fanin_server_job_stats *stats)
{
	struct fanin_server_stats server;

	server_stats(daemon, &server);
	return json_pack("[{s:i,s:o,s:s,s:o,s:b,s:n}]", "rank", 0, "ranks",
			 json_ranks(fanin_ranks_all_word(stats->size, 0)), "port", server.interface,
			 "ip", json_ipv4(record->switch_ip_be), "joined", stats->epoch != 0, "mac");
}

/* The counters of all handlers, under the names that switches use. */
static json_t *
describe_stats(const struct fanin_server_job_stats *stats)
{
	return json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:i,s:i,s:I,s:I,s:i,s:I,s:i,s:i}",
			 "contributions",
			 (json_int_t)(stats->sums + stats->partials + stats->singles), "duplicates",
			 (json_int_t)stats->duplicates, "results", (json_int_t)stats->results,
			 "repeats", (json_int_t)stats->repeats, "pendings",
			 (json_int_t)stats->answers, "blocks", (json_int_t)stats->blocks, "upward",
			 0, "upward_repeats", 0, "known", (json_int_t)stats->known, "queries",
			 (json_int_t)stats->queries, "upward_queries", 0, "block_ns",
			 (json_int_t)stats->block_ns, "probes", 0, "probe_answers", 0);
}

static json_t *
list_own_counters(const struct fanin_server_job_stats *stats)
{
	json_t *list = json_array();

#define LIST_COUNT(field, text)                                                                    \
	json_array_append_new(list, json_pack("{s:s,s:I}", "name", #field, "count",                \
					      (json_int_t)stats->field));
	FANIN_SERVER_COUNTERS(LIST_COUNT)
#undef LIST_COUNT
	return list;
}

static json_t *
describe_parameters(const struct server_record *record)
{
	json_t *object = json_object();

	for (size_t i = 0; i < N_PARAMETERS; i++)
		json_object_set_new(object, parameters[i].name,
				    json_integer((json_int_t)record->parameters[i]));
	return object;
}

static json_t *
describe_job(const struct daemon *daemon, const struct server_record *record)
{
	struct fanin_server_job_stats stats = { .sz = sizeof(stats) };

	fanin_server_job_stats(daemon->server, record->id, &stats);
	return json_pack(
		"{s:I,s:s,s:s,s:i,s:b,s:s,s:b,s:s,s:I,s:i,s:i,s:I,s:i,s:I,s:o,s:n,s:o,s:o,s:o,s:{},s:i,s:i,s:I,s:I,s:I}",
		"id", (json_int_t)record->id, "owner", record->owner, "handler", SERVER_HANDLER,
		"buffers", 1, "reproducible", 0, "accumulate", "native", "authenticated", 0,
		"state", stats.epoch != 0 ? "active" : "waiting", "epoch", (json_int_t)stats.epoch,
		"size", stats.size, "window", stats.window, "slots", (json_int_t)stats.slots,
		"payload_bytes", stats.payload_bytes, "slot_bytes",
		(json_int_t)(stats.memory_bytes / stats.slots), "members",
		list_members(daemon, record, &stats), "parent", "stats", describe_stats(&stats),
		"counters", list_own_counters(&stats), "parameters", describe_parameters(record),
		"occupancy", "occupancy_sum", 0, "waiting", stats.waiting, "round_trip_us",
		(json_int_t)stats.round_trip_us, "memory_bytes", (json_int_t)stats.memory_bytes,
		"bytes_reduced", (json_int_t)stats.bytes_reduced);
}

json_t *
command_jobs_list(void *user, const json_t *args, struct control_error *error)
{
	const struct daemon *daemon = user;
	struct fanin_server_stats stats;
	json_t *list;

	if (args_check_known(args, error) != 0)
		return NULL;
	list = json_array();
	for (uint32_t id = fanin_server_next_job(daemon->server, 0); id != 0;
	     id = fanin_server_next_job(daemon->server, id)) {
		const struct server_record *record = record_find(daemon, id);

		if (record != NULL)
			json_array_append_new(list, describe_job(daemon, record));
	}
	server_stats(daemon, &stats);
	return json_pack("{s:o,s:{s:I,s:I,s:I}}", "jobs", list, "limits", "max_jobs",
			 (json_int_t)stats.max_jobs, "jobs_free",
			 (json_int_t)(stats.max_jobs - stats.jobs), "slots_per_job",
			 (json_int_t)stats.slots_per_job);
}

static int
fail(struct control_error *error, const char *code, const char *argument, const char *message)
{
	control_fail(error, code, "args.%s: %s", argument, message);
	return -EINVAL;
}

/* Refuses arguments of a switch's jobs that a server's jobs can't have. */
static int
check_unsupported(const json_t *args, struct control_error *error)
{
	static const char *const flags[] = { "reproducible", "authenticate", NULL };
	const char *accumulate = "native", *handler = SERVER_HANDLER;
	bool flag = false;
	bool present;

	if (args_string(args, "handler", SERVER_OWNER_LEN, &handler, &present, error) != 0)
		return -EINVAL;
	if (strcmp(handler, SERVER_HANDLER) != 0) {
		control_fail(
			error, "unsupported",
			"args.handler: found \"%s\", expected \"%s\": its jobs alone have a server",
			handler, SERVER_HANDLER);
		return -EINVAL;
	}
	if (json_object_get(args, "parent") != NULL)
		return fail(error, "unsupported", "parent",
			    "a server is the root of its job and has none");
	if (json_object_get(args, "buffers") != NULL)
		return fail(error, "unsupported", "buffers",
			    "a server has one buffer for each block");
	for (size_t i = 0; flags[i] != NULL; i++) {
		if (args_boolean(args, flags[i], &flag, &present, error) != 0)
			return -EINVAL;
		if (present && flag)
			return fail(error, "unsupported", flags[i],
				    "found true, expected false in a job with a server");
	}
	if (args_string(args, "accumulate", SERVER_OWNER_LEN, &accumulate, &present, error) != 0)
		return -EINVAL;
	if (strcmp(accumulate, "native") == 0)
		return 0;
	if (strcmp(accumulate, "f32") == 0)
		return fail(error, "unsupported", "accumulate",
			    "found \"f32\", expected \"native\" in a job with a server");
	control_fail(error, "invalid", "args.accumulate: found \"%s\", expected \"native\"",
		     accumulate);
	return -EINVAL;
}

/* args.parameters: numbers by name, within the bounds of the switches' handler. */
static int
read_parameters(const json_t *args, uint64_t *values, struct control_error *error)
{
	const json_t *object = json_object_get(args, "parameters");
	const char *known[N_PARAMETERS + 1] = { NULL };

	for (size_t i = 0; i < N_PARAMETERS; i++) {
		values[i] = parameters[i].usual;
		known[i] = parameters[i].name;
	}
	if (object == NULL)
		return 0;
	if (!json_is_object(object))
		return fail(error, "invalid", "parameters", "expected an object with numbers");
	if (args_check_known_at("args.parameters", object, known, error) != 0)
		return -EINVAL;
	for (size_t i = 0; i < N_PARAMETERS; i++) {
		int64_t value = (int64_t)values[i];
		bool present;

		if (args_integer_at("args.parameters", object, parameters[i].name,
				    (int64_t)parameters[i].least, (int64_t)parameters[i].most,
				    &value, &present, error) != 0)
			return -EINVAL;
		values[i] = (uint64_t)value;
	}
	return 0;
}

/* Reads the ranks behind the switch, which are all of the job's. size: 0: as many as there are. */
static int
read_ranks(const json_t *member, int64_t *size, struct control_error *error)
{
	const char *const where = "args.members[0]";
	const json_t *list = json_object_get(member, "ranks");
	uint64_t ranks = 0;
	int64_t rank = 0;
	bool present;
	size_t i;

	if (args_integer_at(where, member, "rank", 0, 0, &rank, &present, error) != 0)
		return -EINVAL;
	if (list == NULL) {
		if (*size == 0)
			*size = 1;
		if (!present || *size == 1)
			return 0;
		return fail(error, "invalid", "members[0].rank",
			    "found one rank, expected \"ranks\" with all of the job");
	}
	for (i = 0; i < json_array_size(list); i++) {
		const json_t *item = json_array_get(list, i);

		if (!json_is_integer(item) || json_integer_value(item) < 0 ||
		    json_integer_value(item) >= FANIN_SERVER_RANKS_MAX)
			break;
		ranks |= UINT64_C(1) << json_integer_value(item);
	}
	if (*size == 0)
		*size = (int64_t)i;
	if (!present && i != 0 && i == json_array_size(list) && i == (size_t)*size &&
	    ranks == fanin_ranks_all_word((unsigned int)*size, 0))
		return 0;
	control_fail(
		error, "invalid",
		"%s.ranks: expected a list of all ranks of the job, from 0 on, each once, and no \"rank\" beside it: the switch below a server has all ranks behind it",
		where);
	return -EINVAL;
}

static int
read_member(const struct daemon *daemon, const json_t *args, uint32_t *ip_be, int64_t *size,
	    struct control_error *error)
{
	static const char *const known[] = { "ip", "mac", "port", "rank", "ranks", NULL };
	const char *const where = "args.members[0]";
	struct fanin_server_stats stats;
	const char *port, *mac;
	const json_t *members;
	const json_t *member;
	bool present;

	if (args_objects(args, "members", 1, 1, &members, NULL, error) != 0)
		return -EINVAL;
	member = json_array_get(members, 0);
	if (args_check_known_at(where, member, known, error) != 0 ||
	    args_ipv4_at(where, member, "ip", ip_be, NULL, error) != 0 ||
	    args_string_at(where, member, "mac", 17, &mac, &present, error) != 0 ||
	    args_string_at(where, member, "port", SERVER_OWNER_LEN, &port, &present, error) != 0 ||
	    read_ranks(member, size, error) != 0)
		return -EINVAL;
	server_stats(daemon, &stats);
	if (!present || strcmp(port, stats.interface) == 0)
		return 0;
	control_fail(error, "not_found", "%s.port: found \"%s\", expected \"%s\", the only one",
		     where, port, stats.interface);
	return -ENOENT;
}

/* The requested job, in the form of the library's options. */
struct job_request {
	struct fanin_server_job_opts opts;
	struct server_record record;
	char address[INET_ADDRSTRLEN];
};

static int
read_job(const struct daemon *daemon, const json_t *args, struct job_request *request,
	 struct control_error *error)
{
	struct fanin_server_job_opts *opts = &request->opts;
	int64_t id = 0, size = 0, slots = 0, payload = 0, message_bytes = 0;
	const char *owner = "";
	bool present;

	if (args_check_known(args, error, "id", "members", "key", "handler", "slots",
			     "payload_bytes", "buffers", "message_bytes", "reproducible",
			     "accumulate", "authenticate", "size", "parent", "owner",
			     "parameters") != 0 ||
	    args_string(args, "owner", SERVER_OWNER_LEN - 1, &owner, &present, error) != 0 ||
	    args_integer(args, "id", 1, FANIN_WIRE_MAX_JOB, &id, &present, error) != 0 ||
	    args_hex64(args, "key", &opts->key, &present, error) != 0 ||
	    args_integer(args, "slots", 2, 1 << 20, &slots, &present, error) != 0 ||
	    args_integer(args, "payload_bytes", 1, UINT16_MAX, &payload, &present, error) != 0 ||
	    args_integer(args, "message_bytes", 1, INT64_MAX, &message_bytes, &present, error) !=
		    0 ||
	    args_integer(args, "size", 1, FANIN_WIRE_MAX_RANKS, &size, &present, error) != 0 ||
	    check_unsupported(args, error) != 0 ||
	    read_parameters(args, opts->parameters, error) != 0)
		return -EINVAL;
	if (size > FANIN_SERVER_RANKS_MAX) {
		control_fail(error, "unsupported",
			     "args.size: found %" PRId64
			     ", expected at most %d ranks in a job with a server",
			     size, FANIN_SERVER_RANKS_MAX);
		return -EINVAL;
	}
	if (read_member(daemon, args, &request->record.switch_ip_be, &size, error) != 0)
		return -EINVAL;
	if (slots > MAX_SLOTS) {
		control_fail(error, "no_room",
			     "asked for %" PRId64 " slots, %d are available to each job", slots,
			     MAX_SLOTS);
		return -EINVAL;
	}
	opts->job = (uint32_t)id;
	opts->size = (uint16_t)size;
	opts->slots = (uint32_t)slots;
	opts->payload_bytes = (uint16_t)payload;
	inet_ntop(AF_INET, &request->record.switch_ip_be, request->address,
		  sizeof(request->address));
	opts->switch_address = request->address;
	opts->handler = SERVER_HANDLER;
	snprintf(request->record.owner, sizeof(request->record.owner), "%s", owner);
	memcpy(request->record.parameters, opts->parameters, sizeof(opts->parameters));
	return 0;
}

/* Chooses a number for a job without one, and a key. */
static int
complete_job(const struct daemon *daemon, struct job_request *request, struct control_error *error)
{
	struct fanin_server_job_opts *opts = &request->opts;

	if (opts->job != 0 && record_find(daemon, opts->job) != NULL) {
		control_fail(error, "exists", "job %u exists already", opts->job);
		return -EEXIST;
	}
	while (opts->job == 0 || record_find(daemon, opts->job) != NULL)
		opts->job++;
	while (opts->key == 0) {
		if (getrandom(&opts->key, sizeof(opts->key), 0) == sizeof(opts->key))
			continue;
		control_fail(error, "internal", "the kernel gives no random key: %s",
			     strerror(errno));
		return -EIO;
	}
	request->record.id = opts->job;
	return 0;
}

/* Returns the error code for a library status. */
static const char *
code_of(int status)
{
	switch (status) {
	case FANIN_ERR_INVALID:
		return "invalid";
	case FANIN_ERR_UNSUPPORTED:
		return "unsupported";
	case FANIN_ERR_CAPACITY:
	case FANIN_ERR_NO_MEMORY:
		return "no_room";
	default:
		return "internal";
	}
}

json_t *
command_jobs_create(void *user, const json_t *args, struct control_error *error)
{
	struct job_request request = { .opts.sz = sizeof(request.opts) };
	struct fanin_server_job_stats stats = { .sz = sizeof(stats) };
	struct daemon *daemon = user;
	struct server_record *record;
	int status;

	if (read_job(daemon, args, &request, error) != 0 ||
	    complete_job(daemon, &request, error) != 0)
		return NULL;
	record = malloc(sizeof(*record));
	if (record == NULL)
		return control_fail(error, "internal", "no memory for a job");
	status = fanin_server_add_job(daemon->server, &request.opts);
	if (status != FANIN_OK) {
		free(record);
		return control_fail(error, code_of(status), "%s",
				    fanin_server_error(daemon->server));
	}
	*record = request.record;
	TAILQ_INSERT_TAIL(&daemon->records, record, entry);
	fanin_server_job_stats(daemon->server, record->id, &stats);
	return json_pack("{s:I,s:o,s:i,s:i,s:i,s:s,s:s,s:b,s:I}", "id", (json_int_t)record->id,
			 "key", json_sprintf("0x%016lx", (unsigned long)request.opts.key), "size",
			 stats.size, "window", stats.window, "payload_bytes", stats.payload_bytes,
			 "handler", SERVER_HANDLER, "accumulate", "native", "authenticated", 0,
			 "slots", (json_int_t)stats.slots);
}

static json_t *
fail_unknown(int64_t id, struct control_error *error)
{
	return control_fail(error, "not_found",
			    "job %" PRId64 " does not exist: `jobs` lists those that do", id);
}

json_t *
command_jobs_destroy(void *user, const json_t *args, struct control_error *error)
{
	struct daemon *daemon = user;
	struct server_record *record;
	const char *owner = NULL;
	bool present;
	int64_t id;

	if (args_check_known(args, error, "id", "owner") != 0 ||
	    args_integer(args, "id", 1, FANIN_WIRE_MAX_JOB, &id, NULL, error) != 0 ||
	    args_string(args, "owner", SERVER_OWNER_LEN - 1, &owner, &present, error) != 0)
		return NULL;
	record = record_find(daemon, (uint32_t)id);
	if (record == NULL)
		return fail_unknown(id, error);
	if (owner != NULL && strcmp(record->owner, owner) != 0)
		return control_fail(error, "not_found",
				    "job %" PRId64 " is of the owner \"%s\", expected \"%s\"", id,
				    record->owner, owner);
	fanin_server_remove_job(daemon->server, record->id);
	record_free(daemon, record);
	return json_object();
}

static json_t *
list_waiting(const struct fanin_server_wait *waits, size_t n)
{
	json_t *list = json_array();

	for (size_t i = 0; i < n; i++)
		json_array_append_new(list,
				      json_pack("{s:I,s:I,s:s,s:I,s:o}", "block",
						(json_int_t)waits[i].block, "since_ms",
						(json_int_t)(waits[i].since_ns / 1000000), "for",
						"ranks", "flushes", (json_int_t)waits[i].flushes,
						"missing", json_ranks(waits[i].missing)));
	return list;
}

json_t *
command_jobs_waits(void *user, const json_t *args, struct control_error *error)
{
	struct fanin_server_job_stats stats = { .sz = sizeof(stats) };
	const struct daemon *daemon = user;
	const struct server_record *record;
	struct fanin_server_wait *waits;
	int64_t most = FEW_WAITING;
	json_t *blocks;
	bool present;
	size_t found;
	int64_t id;

	if (args_check_known(args, error, "id", "most") != 0 ||
	    args_integer(args, "id", 1, FANIN_WIRE_MAX_JOB, &id, NULL, error) != 0 ||
	    args_integer(args, "most", 1, MAX_WAITING, &most, &present, error) != 0)
		return NULL;
	record = record_find(daemon, (uint32_t)id);
	if (record == NULL)
		return fail_unknown(id, error);
	waits = calloc((size_t)most, sizeof(*waits));
	if (waits == NULL)
		return control_fail(error, "internal", "no memory for %" PRId64 " blocks", most);
	found = fanin_server_waits(daemon->server, record->id, waits, (size_t)most);
	blocks = list_waiting(waits, found < (size_t)most ? found : (size_t)most);
	free(waits);
	fanin_server_job_stats(daemon->server, record->id, &stats);
	return json_pack("{s:I,s:s,s:I,s:o,s:o,s:n,s:[],s:[]}", "id", (json_int_t)id, "state",
			 stats.epoch != 0 ? "active" : "waiting", "waiting", (json_int_t)found,
			 "blocks", blocks, "members", list_members(daemon, record, &stats),
			 "parent", "ended", "silent");
}
