/* SPDX-License-Identifier: BSD-3-Clause */
/* The control commands that list, create and destroy jobs, and that report what blocks wait for. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "pipeline/job.h"
#include "control/args.h"
#include "switch/commands.h"
#include "switch/job_args.h"

#define FEW_WAITING 16
#define MAX_WAITING 1024

static json_t *
json_ranks(const struct fanin_ranks *ranks)
{
	json_t *list = json_array();
	unsigned int rank;

	FANIN_RANKS_EACH(rank, ranks)
	json_array_append_new(list, json_integer(rank));
	return list;
}

/* The set may be changed by workers at the same time. */
static json_t *
json_ranks_found(const struct fanin_ranks *ranks)
{
	struct fanin_ranks found;

	job_ranks_load(&found, ranks);
	return json_ranks(&found);
}

/* Returns null at the root. */
static json_t *
describe_parent(const struct pipeline *pipeline, struct job *job)
{
	struct job_parent parent;

	if (!job->params.has_parent)
		return json_null();
	rte_spinlock_lock(&job->lock);
	parent = job->parent;
	rte_spinlock_unlock(&job->lock);
	return json_pack("{s:s,s:o,s:o,s:b,s:b,s:I,s:o}", "port",
			 pipeline->ports[job->parent_port].name, "ip", json_ipv4(job->parent_ip_be),
			 "mac", json_mac(job->params.parent_headers.eth.dst), "server",
			 job->params.parent_is_server, "joined", parent.epoch != 0, "epoch",
			 (json_int_t)parent.epoch, "joined_ranks", json_ranks(&parent.joined));
}

static json_t *
list_members(const struct pipeline *pipeline, struct job *job)
{
	json_t *list = json_array();

	rte_spinlock_lock(&job->lock);
	for (uint16_t i = 0; i < job->params.n_children; i++) {
		const struct job_member *member = &job->members[i];
		json_t *object = json_pack("{s:i,s:o,s:s,s:o,s:b}", "rank", member->rank, "ranks",
					   json_ranks(&job->params.child_ranks[i]), "port",
					   pipeline->ports[member->port].name, "ip",
					   json_ipv4(member->ip_be), "joined", member->joined);

		json_object_set_new(object, "mac",
				    member->joined ? json_mac(member->mac) : json_null());
		json_array_append_new(list, object);
	}
	rte_spinlock_unlock(&job->lock);
	return list;
}

/* Lists the names of the ports that lead to other switches. */
static json_t *
list_links(const struct pipeline *pipeline, const struct job *job)
{
	json_t *list = json_array();

	for (uint64_t left = job->params.links; left != 0; left &= left - 1)
		json_array_append_new(list,
				      json_string(pipeline->ports[__builtin_ctzll(left)].name));
	return list;
}

/*
 * Returns a histogram of open blocks after bursts, over all workers. total: set to the sum of its
 * values.
 */
static json_t *
job_occupancy(const struct job *job, uint64_t *total)
{
	uint64_t sum[COUNTERS_HISTOGRAM] = { 0 };

	*total = 0;
	for (uint16_t i = 0; i < job->n_workers; i++) {
		*total += job->worker_stats[i].occupancy_sum;
		for (unsigned int k = 0; k < COUNTERS_HISTOGRAM; k++)
			sum[k] += job->worker_stats[i].occupancy[k];
	}
	return json_histogram(sum);
}

/* Counts the probes of children that others wait for, and the answers. */
static void
job_probes(const struct job *job, uint64_t *probes, uint64_t *answers)
{
	*probes = 0;
	*answers = 0;
	for (uint16_t i = 0; i < job->n_workers; i++) {
		*probes += job->worker_stats[i].probes;
		*answers += job->worker_stats[i].probe_answers;
	}
}

/* The counters of all handlers, and the pipeline's own counters of the job. */
static json_t *
describe_stats(const struct fanin_handler_stats *stats, uint64_t probes, uint64_t answers)
{
	json_t *object = json_object();

#define SET_COUNTER(field, text)                                                                   \
	json_object_set_new(object, #field, json_integer((json_int_t)stats->field));
	FANIN_HANDLER_COUNTERS(SET_COUNTER)
#undef SET_COUNTER
	json_object_set_new(object, "block_ns", json_integer((json_int_t)stats->block_ns));
	json_object_set_new(object, "probes", json_integer((json_int_t)probes));
	json_object_set_new(object, "probe_answers", json_integer((json_int_t)answers));
	return object;
}

/* The handler's own counters. */
static json_t *
list_own_counters(const struct fanin_handler *handler, const struct fanin_handler_stats *stats)
{
	const struct fanin_counter *counters = handler->counters;
	json_t *list = json_array();

	for (size_t i = 0; counters != NULL && counters[i].name != NULL; i++)
		json_array_append_new(list, json_pack("{s:s,s:I}", "name", counters[i].name,
						      "count", (json_int_t)stats->own[i]));
	return list;
}

static int
compare_values(const void *first, const void *second)
{
	const uint64_t a = *(const uint64_t *)first, b = *(const uint64_t *)second;

	return (a > b) - (a < b);
}

/*
 * Describes one kind of values: each value in its order, and their distribution. values: sorted
 * afterwards.
 */
static json_t *
describe_values(const struct fanin_value *kind, uint64_t *values, unsigned int n)
{
	json_t *each = json_array();

	for (unsigned int i = 0; i < n && kind->by != NULL; i++)
		json_array_append_new(each, json_integer((json_int_t)values[i]));
	qsort(values, n, sizeof(*values), compare_values);
	return json_pack("{s:s,s:s?,s:o,s:I,s:I,s:I}", "name", kind->name, "by", kind->by, "each",
			 each, "min", (json_int_t)values[0], "median", (json_int_t)values[n / 2],
			 "max", (json_int_t)values[n - 1]);
}

/* The handler's report about the job. */
static json_t *
list_values(const struct job *job)
{
	const struct fanin_value *kinds = job->handler->values;
	uint64_t values[FANIN_VALUES_EACH_MAX];
	json_t *list = json_array();

	for (unsigned int i = 0; kinds != NULL && kinds[i].name != NULL; i++) {
		const unsigned int n = job->handler->tell(&job->params, job->state, i, values);

		if (n != 0)
			json_array_append_new(list, describe_values(&kinds[i], values, n));
	}
	return list;
}

static json_t *
describe_parameters(const struct job *job)
{
	const struct fanin_parameter *parameters = job->handler->parameters;
	json_t *object = json_object();

	for (size_t i = 0; parameters != NULL && parameters[i].name != NULL; i++)
		json_object_set_new(object, parameters[i].name,
				    json_integer((json_int_t)job->params.parameters[i]));
	return object;
}

/* Describes how far the job's ranks are; null if the handler does not know. */
static json_t *
describe_progress(const struct job *job)
{
	struct fanin_rank_progress progress;
	uint32_t furthest;
	json_t *ranks;

	if (job->handler->rank_progress == NULL ||
	    !job->handler->rank_progress(&job->params, job->state, job_epoch(job), &progress))
		return json_null();
	furthest = progress.blocks[0];
	for (uint16_t rank = 1; rank < progress.n_ranks; rank++) {
		if (fanin_block_before(furthest, progress.blocks[rank]))
			furthest = progress.blocks[rank];
	}
	ranks = json_array();
	for (uint16_t rank = 0; rank < progress.n_ranks; rank++)
		json_array_append_new(ranks,
				      json_pack("{s:i,s:I,s:I}", "rank", rank, "block",
						(json_int_t)progress.blocks[rank], "behind",
						(json_int_t)(furthest - progress.blocks[rank])));
	return json_pack("{s:I,s:I,s:I,s:o}", "slots_used", (json_int_t)progress.slots_used,
			 "slots", (json_int_t)job->params.slots.mask + 1, "overflowed",
			 (json_int_t)progress.overflowed, "ranks", ranks);
}

static json_t *
describe_job(const struct pipeline *pipeline, struct job *job)
{
	uint32_t epoch = __atomic_load_n(&job->epoch, __ATOMIC_ACQUIRE);
	struct fanin_handler_stats stats;
	uint64_t probes, answers, occupancy_sum;
	json_t *occupancy = job_occupancy(job, &occupancy_sum);

	job_stats(job, &stats);
	job_probes(job, &probes, &answers);
	return json_pack(
		"{s:I,s:s,s:s,s:i,s:b,s:s,s:b,s:s,s:I,s:i,s:i,s:i,s:i,s:I,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:I,s:o,s:o}",
		"id", (json_int_t)job->params.id, "owner", job->owner, "handler",
		job->handler->name, "buffers", job->params.buffers, "reproducible",
		job->reproducible, "accumulate", job_accumulate_names[job->params.wide],
		"authenticated", job->params.authenticate, "state",
		epoch != 0 ? "active" : "waiting", "epoch", (json_int_t)epoch, "size",
		job->params.n_ranks, "window", job->params.window, "slots", 2 * job->params.window,
		"payload_bytes", job->params.payload_bytes, "slot_bytes",
		(json_int_t)(job->pool != NULL ? job->pool->slot_size : 0), "members",
		list_members(pipeline, job), "links", list_links(pipeline, job), "parent",
		describe_parent(pipeline, job), "stats", describe_stats(&stats, probes, answers),
		"counters", list_own_counters(job->handler, &stats), "parameters",
		describe_parameters(job), "occupancy", occupancy, "occupancy_sum",
		(json_int_t)occupancy_sum, "progress", describe_progress(job), "values",
		list_values(job));
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
	return json_pack("{s:o,s:{s:i,s:i,s:I,s:I}}", "jobs", list, "limits", "max_jobs",
			 table->max_jobs, "jobs_free", table->max_jobs - table->n_jobs,
			 "slots_per_job", (json_int_t)table->slots_per_job, "mbufs_per_job",
			 (json_int_t)table->mbufs_per_job);
}

json_t *
command_jobs_create(void *user, const json_t *args, struct control_error *error)
{
	struct daemon *daemon = user;
	struct job_spec spec = { 0 };
	char message[PIPELINE_ERROR_LEN];
	const char *code;
	struct job *job;

	if (job_args_read(daemon->pipeline, args, &spec, error) != 0)
		return NULL;
	while (spec.key == 0) {
		if (getrandom(&spec.key, sizeof(spec.key), 0) != sizeof(spec.key))
			return control_fail(error, "internal", "the kernel gives no random key: %s",
					    strerror(errno));
	}
	if (job_create(daemon->pipeline, &spec, &job, &code, message) != 0)
		return control_fail(error, code, "%s", message);
	return json_pack("{s:I,s:o,s:i,s:i,s:i,s:s,s:s,s:b,s:i,s:I,s:i,s:o}", "id",
			 (json_int_t)job->params.id, "key",
			 json_sprintf("0x%016lx", (unsigned long)job->secret), "size",
			 job->params.n_ranks, "window", job->params.window, "payload_bytes",
			 job->params.payload_bytes, "handler", job->handler->name, "accumulate",
			 job_accumulate_names[job->params.wide], "authenticated",
			 job->params.authenticate, "slots", 2 * job->params.window, "pool_slots",
			 job->pool == NULL ? (json_int_t)0 : (json_int_t)job->pool->mask + 1,
			 "sharing", job->pool == NULL ? 0 : (int)job->pool->n_jobs, "parameters",
			 describe_parameters(job));
}

static json_t *
fail_unknown(int64_t id, struct control_error *error)
{
	return control_fail(error, "not_found", "job %u does not exist: `jobs` lists those that do",
			    (uint32_t)id);
}

json_t *
command_jobs_destroy(void *user, const json_t *args, struct control_error *error)
{
	struct daemon *daemon = user;
	const char *owner = NULL;
	const struct job *job;
	bool present;
	int64_t id;

	if (args_check_known(args, error, "id", "owner") != 0 ||
	    args_integer(args, "id", 1, FANIN_WIRE_MAX_JOB, &id, NULL, error) != 0 ||
	    args_string(args, "owner", JOB_OWNER_LEN - 1, &owner, &present, error) != 0)
		return NULL;
	job = job_lookup(daemon->pipeline->jobs, (uint32_t)id);
	if (job != NULL && owner != NULL && strcmp(job->owner, owner) != 0)
		return control_fail(error, "not_found",
				    "job %u is of the owner \"%s\", expected \"%s\"", (uint32_t)id,
				    job->owner, owner);
	if (job_destroy(daemon->pipeline, (uint32_t)id) != 0)
		return fail_unknown(id, error);
	return json_object();
}

/* The blocks that have waited the longest. */
struct waiting {
	struct fanin_peek *blocks; /* longest wait first */
	size_t n;
	size_t most;
	size_t found; /* number of waiting blocks in all */
};

static bool
is_older(const struct fanin_peek *peek, const struct fanin_peek *than)
{
	if (peek->begun_ns != than->begun_ns)
		return peek->begun_ns < than->begun_ns;
	return fanin_block_before(peek->block, than->block);
}

static void
waiting_add(struct waiting *waiting, const struct fanin_peek *peek)
{
	size_t at;

	waiting->found++;
	if (waiting->n < waiting->most)
		waiting->n++;
	else if (!is_older(peek, &waiting->blocks[waiting->n - 1]))
		return;
	for (at = waiting->n - 1; at > 0 && is_older(peek, &waiting->blocks[at - 1]); at--)
		waiting->blocks[at] = waiting->blocks[at - 1];
	waiting->blocks[at] = *peek;
}

/* Lists the ranks that children name in their packets. */
static json_t *
json_children(const struct job *job, uint64_t children)
{
	json_t *list = json_array();

	for (; children != 0; children &= children - 1)
		json_array_append_new(list,
				      json_integer(job->members[__builtin_ctzll(children)].rank));
	return list;
}

static json_t *
list_waiting(const struct job *job, const struct waiting *waiting)
{
	const uint64_t now_ns = pipeline_now_ns();
	json_t *list = json_array();

	for (size_t i = 0; i < waiting->n; i++) {
		const struct fanin_peek *peek = &waiting->blocks[i];
		/* Workers' clocks may be a little ahead. */
		uint64_t since_ns = now_ns > peek->begun_ns ? now_ns - peek->begun_ns : 0;

		json_array_append_new(list, json_pack("{s:I,s:I,s:s,s:o}", "block",
						      (json_int_t)peek->block, "since_ms",
						      (json_int_t)(since_ns / 1000000), "for",
						      peek->sent ? "parent" : "members", "missing",
						      json_children(job, peek->missing)));
	}
	return list;
}

json_t *
command_jobs_waits(void *user, const json_t *args, struct control_error *error)
{
	const struct daemon *daemon = user;
	struct waiting waiting = { 0 };
	int64_t most = FEW_WAITING;
	struct fanin_peek peek;
	json_t *blocks;
	struct job *job;
	uint32_t epoch;
	bool present;
	int64_t id;

	if (args_check_known(args, error, "id", "most") != 0 ||
	    args_integer(args, "id", 1, FANIN_WIRE_MAX_JOB, &id, NULL, error) != 0 ||
	    args_integer(args, "most", 1, MAX_WAITING, &most, &present, error) != 0)
		return NULL;
	job = job_lookup(daemon->pipeline->jobs, (uint32_t)id);
	if (job == NULL)
		return fail_unknown(id, error);
	waiting.most = (size_t)most;
	waiting.blocks = calloc(waiting.most, sizeof(*waiting.blocks));
	if (waiting.blocks == NULL)
		return control_fail(error, "internal", "no memory for %zu blocks", waiting.most);
	epoch = __atomic_load_n(&job->epoch, __ATOMIC_ACQUIRE);
	for (uint32_t i = 0; i <= job->params.slots.mask && job_epoch(job) != 0; i++) {
		if (job->handler->peek != NULL &&
		    job->handler->peek(&job->params, job_epoch(job), job->params.slots.by_index[i],
				       &peek))
			waiting_add(&waiting, &peek);
	}
	blocks = list_waiting(job, &waiting);
	free(waiting.blocks);
	return json_pack("{s:I,s:s,s:I,s:o,s:o,s:o,s:o,s:o,s:o}", "id", (json_int_t)id, "state",
			 epoch != 0 ? "active" : "waiting", "waiting", (json_int_t)waiting.found,
			 "blocks", blocks, "members", list_members(daemon->pipeline, job), "parent",
			 describe_parent(daemon->pipeline, job), "ended",
			 json_ranks_found(&job->ended), "silent", json_ranks_found(&job->silent),
			 "progress", describe_progress(job));
}
