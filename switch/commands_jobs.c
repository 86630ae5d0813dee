/* SPDX-License-Identifier: BSD-3-Clause */
/* The control commands that list, create and destroy jobs. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "pipeline/job.h"
#include "switch/args.h"
#include "switch/commands.h"

/* In which type sums and averages of f16 and bf16 are accumulated; by struct fanin_job_params' wide. */
static const char *const accumulate_names[] = { "native", "f32" };

static json_t *
list_members(const struct pipeline *pipeline, struct job *job)
{
	json_t *list = json_array();

	rte_spinlock_lock(&job->lock);
	for (uint16_t i = 0; i < job->params.n_children; i++) {
		const struct job_member *member = &job->members[i];
		json_t *object = json_pack("{s:i,s:s,s:o,s:b}", "rank", i, "port",
					   pipeline->ports[member->port].name, "ip",
					   json_ipv4(member->ip_be), "joined", member->joined);

		json_object_set_new(object, "mac",
				    member->joined ? json_mac(member->mac) : json_null());
		json_array_append_new(list, object);
	}
	rte_spinlock_unlock(&job->lock);
	return list;
}

/* Histogram of open blocks after bursts, over all workers. */
static json_t *
job_occupancy(const struct job *job)
{
	uint64_t sum[COUNTERS_HISTOGRAM] = { 0 };

	for (uint16_t i = 0; i < job->n_workers; i++) {
		for (unsigned int k = 0; k < COUNTERS_HISTOGRAM; k++)
			sum[k] += job->worker_stats[i].occupancy[k];
	}
	return json_histogram(sum);
}

static json_t *
describe_job(const struct pipeline *pipeline, struct job *job)
{
	uint32_t epoch = __atomic_load_n(&job->epoch, __ATOMIC_ACQUIRE);
	struct fanin_handler_stats stats;

	job_stats(job, &stats);
	return json_pack(
		"{s:I,s:s,s:i,s:b,s:s,s:s,s:I,s:i,s:i,s:i,s:i,s:I,s:o,s:{s:I,s:I,s:I,s:I,s:I,s:I,s:I},s:o}",
		"id", (json_int_t)job->params.id, "handler", job->handler->name, "buffers",
		job->params.buffers, "reproducible", job->reproducible, "accumulate",
		accumulate_names[job->params.wide], "state", epoch != 0 ? "active" : "waiting",
		"epoch", (json_int_t)epoch, "size", job->params.n_children, "window",
		job->params.window, "slots", 2 * job->params.window, "payload_bytes",
		job->params.payload_bytes, "slot_bytes", (json_int_t)job->slot_size, "members",
		list_members(pipeline, job), "stats", "contributions",
		(json_int_t)stats.contributions, "duplicates", (json_int_t)stats.duplicates,
		"results", (json_int_t)stats.results, "repeats", (json_int_t)stats.repeats,
		"pendings", (json_int_t)stats.pendings, "blocks", (json_int_t)stats.blocks,
		"block_ns", (json_int_t)stats.block_ns, "occupancy", job_occupancy(job));
}

json_t *
command_jobs_list(void *user, const json_t *args, struct control_error *error)
{
	struct daemon *daemon = user;
	struct pipeline *pipeline = daemon->pipeline;
	const struct job_table *table = pipeline->jobs;
	json_t *list;

	if (args_check_known(args, error) != 0)
		return NULL;
	list = json_array();
	for (uint32_t id = 1; id <= FANIN_WIRE_MAX_JOB; id++) {
		struct job *job = job_lookup(table, id);

		if (job != NULL)
			json_array_append_new(list, describe_job(pipeline, job));
	}
	return json_pack("{s:o,s:{s:i,s:i,s:I}}", "jobs", list, "limits", "max_jobs",
			 table->max_jobs, "jobs_free", table->max_jobs - table->n_jobs,
			 "slots_per_job", (json_int_t)table->slots_per_job);
}

/* One entry of args.members; its rank is its index unless it says otherwise. */
static int
read_member(const struct pipeline *pipeline, const json_t *entry, size_t index, size_t n_members,
	    struct job_spec *spec, uint64_t *ranks, struct control_error *error)
{
	static const char *const known[] = { "port", "ip", "rank", NULL };
	int64_t rank = (int64_t)index;
	const char *port_name;
	char where[48];
	uint32_t ip_be;
	bool present;
	int port;

	snprintf(where, sizeof(where), "args.members[%zu]", index);
	if (args_check_known_at(where, entry, known, error) != 0 ||
	    args_string_at(where, entry, "port", PIPELINE_NAME_LEN, &port_name, NULL, error) != 0 ||
	    args_ipv4_at(where, entry, "ip", &ip_be, NULL, error) != 0 ||
	    args_integer_at(where, entry, "rank", 0, (int64_t)n_members - 1, &rank, &present,
			    error) != 0)
		return -EINVAL;
	port = pipeline_port_find(pipeline, port_name);
	if (port < 0) {
		control_fail(error, "not_found",
			     "%s.port: found \"%s\", expected the name of a port that `ports` lists",
			     where, port_name);
		return -ENOENT;
	}
	if ((*ranks >> rank & 1) != 0) {
		control_fail(error, "invalid",
			     "%s.rank: found %d again, expected each rank from 0 to %zu once",
			     where, (int)rank, n_members - 1);
		return -EINVAL;
	}
	*ranks |= UINT64_C(1) << rank;
	spec->members[rank].port = (uint16_t)port;
	spec->members[rank].ip_be = ip_be;
	return 0;
}

static int
read_members(const struct pipeline *pipeline, const json_t *args, struct job_spec *spec,
	     struct control_error *error)
{
	const json_t *members;
	const json_t *entry;
	uint64_t ranks = 0;
	size_t index;

	if (args_objects(args, "members", 1, FANIN_WIRE_MAX_CHILDREN, &members, NULL, error) != 0)
		return -EINVAL;
	spec->n_members = (uint16_t)json_array_size(members);
	json_array_foreach(members, index, entry) {
		int ret = read_member(pipeline, entry, index, spec->n_members, spec, &ranks, error);

		if (ret != 0)
			return ret;
	}
	return 0;
}

static int
read_accumulate(const json_t *args, bool *wide, struct control_error *error)
{
	const char *name = accumulate_names[false];
	bool present;

	if (args_string(args, "accumulate", PIPELINE_NAME_LEN, &name, &present, error) != 0)
		return -EINVAL;
	*wide = strcmp(name, accumulate_names[true]) == 0;
	if (*wide || strcmp(name, accumulate_names[false]) == 0)
		return 0;
	control_fail(error, "invalid", "args.accumulate: found \"%s\", expected \"%s\" or \"%s\"",
		     name, accumulate_names[false], accumulate_names[true]);
	return -EINVAL;
}

static int
read_spec(const struct pipeline *pipeline, const json_t *args, struct job_spec *spec,
	  struct control_error *error)
{
	int64_t slots = 0;
	int64_t payload = 0;
	int64_t id = 0;
	int64_t buffers = 0;
	int64_t message_bytes = 0;
	bool present;

	spec->handler = "single";
	if (args_check_known(args, error, "id", "members", "key", "handler", "slots", "payload_bytes",
			     "buffers", "message_bytes", "reproducible", "accumulate") != 0 ||
	    args_integer(args, "id", 1, FANIN_WIRE_MAX_JOB, &id, &present, error) != 0 ||
	    args_hex64(args, "key", &spec->key, &present, error) != 0 ||
	    args_string(args, "handler", PIPELINE_NAME_LEN, &spec->handler, &present, error) != 0 ||
	    args_integer(args, "slots", 2, 1 << 20, &slots, &present, error) != 0 ||
	    args_integer(args, "payload_bytes", 1, UINT16_MAX, &payload, &present, error) != 0 ||
	    args_integer(args, "buffers", 2, FANIN_MAX_BUFFERS, &buffers, &present, error) != 0 ||
	    args_integer(args, "message_bytes", 1, INT64_MAX, &message_bytes, &present, error) != 0 ||
	    args_boolean(args, "reproducible", &spec->reproducible, &present, error) != 0 ||
	    read_accumulate(args, &spec->wide, error) != 0)
		return -EINVAL;
	spec->buffers = (uint32_t)buffers;
	spec->message_bytes = (uint64_t)message_bytes;
	spec->id = (uint32_t)id;
	spec->slots = (uint32_t)slots;
	spec->payload_bytes = (uint32_t)payload;
	return read_members(pipeline, args, spec, error);
}

json_t *
command_jobs_create(void *user, const json_t *args, struct control_error *error)
{
	struct daemon *daemon = user;
	struct job_spec spec = { 0 };
	char message[PIPELINE_ERROR_LEN];
	const char *code;
	struct job *job;

	if (read_spec(daemon->pipeline, args, &spec, error) != 0)
		return NULL;
	while (spec.key == 0) {
		if (getrandom(&spec.key, sizeof(spec.key), 0) != sizeof(spec.key))
			return control_fail(error, "internal", "the kernel gives no random key: %s",
					    strerror(errno));
	}
	if (job_create(daemon->pipeline, &spec, &job, &code, message) != 0)
		return control_fail(error, code, "%s", message);
	return json_pack("{s:I,s:o,s:i,s:i,s:i,s:s,s:s,s:i}", "id", (json_int_t)job->params.id,
			 "key", json_sprintf("0x%016lx", (unsigned long)job->params.key), "size",
			 job->params.n_children, "window", job->params.window, "payload_bytes",
			 job->params.payload_bytes, "handler", job->handler->name, "accumulate",
			 accumulate_names[job->params.wide], "slots", 2 * job->params.window);
}

json_t *
command_jobs_destroy(void *user, const json_t *args, struct control_error *error)
{
	struct daemon *daemon = user;
	int64_t id;

	if (args_check_known(args, error, "id") != 0 ||
	    args_integer(args, "id", 1, FANIN_WIRE_MAX_JOB, &id, NULL, error) != 0)
		return NULL;
	if (job_destroy(daemon->pipeline, (uint32_t)id) != 0)
		return control_fail(error, "not_found",
				    "job %u does not exist: `jobs` lists those that do",
				    (uint32_t)id);
	return json_object();
}
