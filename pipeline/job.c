/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Admission, publication and removal of jobs (Flare section 4: memory is split statically over a
 * maximum of jobs; a job that does not fit is refused). Main thread only. See job_run.c for the
 * state that packets change.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <rte_malloc.h>
#include <rte_random.h>

#include "pipeline/job.h"
#include "pipeline/pipeline.h"
#include "pipeline/tags.h"
#include "pipeline/timers.h"

/*
 * Limits for a job whose members are all hosts of this machine: bytes of packets that its slots may
 * hold, and its lowest number of slots. With more slots, packets have left the caches when they are
 * needed again: four hosts with 1 MiB each at MTU 9000 take half as long with 64 slots as with
 * 1024.
 */
#define SHARED_BYTES (600u << 10)
#define SHARED_SLOTS 8u

static uint32_t
round_down_power_of_two(uint32_t value)
{
	return value == 0 ? 0 : 1u << (31 - (unsigned int)__builtin_clz(value));
}

struct job_table *
job_table_create(uint16_t max_jobs, uint32_t slots, uint32_t shared_slots)
{
	struct job_table *table = rte_zmalloc("job_table", sizeof(*table), RTE_CACHE_LINE_SIZE);

	if (table == NULL)
		return NULL;
	table->max_jobs = max_jobs;
	table->mbufs_per_job = slots / max_jobs;
	table->shared_mbufs = shared_slots;
	table->slots_per_job = round_down_power_of_two(slots / max_jobs);
	if (table->slots_per_job > 2 * FANIN_WIRE_MAX_WINDOW)
		table->slots_per_job = 2 * FANIN_WIRE_MAX_WINDOW;
	/* A restarted switch must not reuse the epochs of its predecessor. */
	table->next_epoch = (uint32_t)rte_rand() | 1;
	return table;
}

static void
job_free(struct pipeline *pipeline, struct job *job)
{
	job_slots_give_back(pipeline, job);
	tags_free(job);
	rte_free(job->worker_stats);
	rte_free(job->state);
	rte_free(job);
}

void
job_table_free(struct pipeline *pipeline)
{
	struct job_table *table = pipeline->jobs;

	if (table == NULL)
		return;
	for (uint32_t id = 0; id <= FANIN_WIRE_MAX_JOB; id++) {
		struct job *job = table->jobs[id];

		table->jobs[id] = NULL;
		if (job != NULL)
			job_free(pipeline, job);
	}
	rte_free(table);
}

static const struct fanin_parameter *
find_parameter(const struct fanin_handler *handler, const char *name)
{
	const struct fanin_parameter *parameter = handler->parameters;

	while (parameter != NULL && parameter->name != NULL && strcmp(parameter->name, name) != 0)
		parameter++;
	return parameter != NULL && parameter->name != NULL ? parameter : NULL;
}

/* Writes the names of a handler's parameters, for an error. */
static const char *
list_parameters(const struct fanin_handler *handler, char *text, size_t size)
{
	size_t len = 0;

	snprintf(text, size, "none");
	for (const struct fanin_parameter *parameter = handler->parameters;
	     parameter != NULL && parameter->name != NULL && len < size; parameter++)
		len += (size_t)snprintf(text + len, size - len, "%s%s",
					parameter == handler->parameters ? "" : ", ",
					parameter->name);
	return text;
}

static int
check_parameters(const struct job_spec *spec, const struct fanin_handler *handler, char *error)
{
	char known[PIPELINE_ERROR_LEN / 2];

	for (uint16_t i = 0; i < spec->n_parameters; i++) {
		const struct job_parameter *asked = &spec->parameters[i];
		const struct fanin_parameter *parameter = find_parameter(handler, asked->name);

		if (parameter == NULL) {
			snprintf(error, PIPELINE_ERROR_LEN,
				 "found the parameter \"%.64s\", the handler \"%s\" has %s",
				 asked->name, handler->name,
				 list_parameters(handler, known, sizeof(known)));
			return -EINVAL;
		}
		if (asked->value < parameter->least || asked->value > parameter->most) {
			snprintf(error, PIPELINE_ERROR_LEN,
				 "parameter %s: found %" PRIu64 ", expected %" PRIu64 " to %" PRIu64
				 " (%s)",
				 parameter->name, asked->value, parameter->least, parameter->most,
				 parameter->text);
			return -EINVAL;
		}
	}
	return 0;
}

/* Sets the values of a checked spec; parameters that it does not name get their usual values. */
static void
set_parameters(const struct job_spec *spec, const struct fanin_handler *handler, uint64_t *values)
{
	const struct fanin_parameter *first = handler->parameters;

	for (size_t i = 0; first != NULL && first[i].name != NULL; i++)
		values[i] = first[i].usual;
	for (uint16_t i = 0; i < spec->n_parameters; i++)
		values[find_parameter(handler, spec->parameters[i].name) - first] =
			spec->parameters[i].value;
}

static int
job_allocate(struct pipeline *pipeline, const struct job_spec *spec,
	     const struct fanin_handler *handler, uint32_t payload, struct job **allocated)
{
	struct job *job = rte_zmalloc("job", sizeof(*job), RTE_CACHE_LINE_SIZE);
	size_t state_bytes;
	int ret;

	if (job == NULL)
		return -ENOMEM;
	job->handler = handler;
	job->reproducible = spec->reproducible;
	if (handler->admission == FANIN_ADMIT_KEY)
		job->lone_epoch = job_next_epoch(pipeline->jobs);
	if (spec->owner != NULL)
		snprintf(job->owner, sizeof(job->owner), "%s", spec->owner);
	job->secret = spec->key;
	job->params.id = spec->id;
	job->params.n_children = spec->n_members;
	job->params.window = (uint16_t)(spec->slots / 2);
	job->params.payload_bytes = (uint16_t)payload;
	job->params.children = fanin_ranks_all_word(spec->n_members, 0);
	job->params.has_parent = spec->has_parent; /* the size of slots may depend on it */
	job->params.parent_is_server = spec->has_parent && spec->parent.is_server;
	job->params.isa = pipeline->isa;
	job->params.shared = pipeline->workers_share_slots;
	job->params.in_order = handler->in_order;
	job->params.wide = spec->wide;
	job->params.authenticate = spec->authenticate;
	job->params.buffers = (uint8_t)spec->buffers;
	set_parameters(spec, handler, job->params.parameters);
	job->n_workers = pipeline->n_workers;
	job->worker_stats = rte_zmalloc("job_stats", job->n_workers * sizeof(*job->worker_stats),
					RTE_CACHE_LINE_SIZE);
	state_bytes = fanin_state_size(handler, &job->params);
	if (state_bytes != 0)
		job->state = rte_zmalloc("job_state", state_bytes, RTE_CACHE_LINE_SIZE);
	ret = job_slots_take(pipeline, job, spec->slots);
	if (ret == 0 && (job->worker_stats == NULL || (state_bytes != 0 && job->state == NULL) ||
			 fanin_keys_derive(spec->key, &job->params.keys) != 0 ||
			 (spec->authenticate && tags_create(job, job->n_workers) != 0)))
		ret = -ENOMEM;
	if (ret != 0) {
		job_free(pipeline, job);
		return ret;
	}
	rte_spinlock_init(&job->lock);
	job_tree_build(pipeline, spec, job);
	*allocated = job;
	return 0;
}

/* Chooses or checks the job's id. */
static int
choose_id(const struct job_table *table, struct job_spec *spec, const char **code, char *error)
{
	if (table->n_jobs >= table->max_jobs) {
		*code = "no_room";
		snprintf(error, PIPELINE_ERROR_LEN,
			 "%u jobs exist, limits.max_jobs is %u: destroy one first", table->n_jobs,
			 table->max_jobs);
		return -ENOSPC;
	}
	for (uint32_t id = 1; spec->id == 0 && id <= FANIN_WIRE_MAX_JOB; id++) {
		if (table->jobs[id] == NULL)
			spec->id = id;
	}
	if (table->jobs[spec->id] != NULL) {
		*code = "exists";
		snprintf(error, PIPELINE_ERROR_LEN, "job %u exists already", spec->id);
		return -EEXIST;
	}
	return 0;
}

static const char *
name_of_ordered(void)
{
	uint32_t buffers;
	const struct fanin_handler *handler = fanin_handler_choose(NULL, true, &buffers);

	return handler == NULL ? "" : handler->name;
}

/* Chooses handler and buffers. */
static int
choose_handler(const struct pipeline *pipeline, struct job_spec *spec,
	       const struct fanin_handler **chosen, char *error)
{
	const struct fanin_choice choice = {
		.message_bytes = spec->message_bytes,
		.tree_up_to = pipeline->tree_up_to,
		.multi2_up_to = pipeline->multi2_up_to,
		.multi4_up_to = pipeline->multi4_up_to,
	};
	const bool automatic = strcmp(spec->handler, "auto") == 0;

	if (spec->buffers == 0)
		spec->buffers = 2;
	*chosen = automatic ? fanin_handler_choose(&choice, spec->reproducible, &spec->buffers)
			    : fanin_handler_find(spec->handler);
	if (spec->reproducible && (*chosen == NULL || !(*chosen)->in_order)) {
		snprintf(error, PIPELINE_ERROR_LEN,
			 "found handler \"%s\" for a reproducible job, expected \"%s\" or \"auto\"",
			 spec->handler, name_of_ordered());
		return -EINVAL;
	}
	if (*chosen == NULL) {
		snprintf(error, PIPELINE_ERROR_LEN,
			 "found handler \"%s\", expected one that `version` lists", spec->handler);
		return -EINVAL;
	}
	if (spec->authenticate && (*chosen)->admission == FANIN_ADMIT_KEY) {
		snprintf(
			error, PIPELINE_ERROR_LEN,
			"found authenticate for the handler \"%s\", whose packets pass switches that they are not for: expected none",
			(*chosen)->name);
		return -EINVAL;
	}
	return 0;
}

/* Returns the number of slots of a job whose spec gives none; up to `most`. */
static uint32_t
default_slots(const struct pipeline *pipeline, const struct job_spec *spec, uint32_t payload,
	      uint32_t most)
{
	uint32_t enough = round_down_power_of_two(SHARED_BYTES / payload);

	/* If all members are hosts of this machine, there is no link to fill. */
	for (uint16_t i = 0; i < spec->n_members; i++) {
		if (!pipeline->ports[spec->members[i].port].shared)
			return most;
	}
	return spec->has_parent || spec->links != 0 ? most
						    : RTE_MIN(most, RTE_MAX(enough, SHARED_SLOTS));
}

/*
 * Returns the largest number of mbufs that a slot holds. spec: checked, so that the ranks of its
 * members are known.
 */
static unsigned int
slot_mbufs(const struct job_spec *spec, const struct fanin_handler *handler)
{
	uint16_t first[FANIN_WIRE_MAX_CHILDREN];

	for (uint16_t i = 0; i < spec->n_members; i++)
		first[i] = (uint16_t)fanin_ranks_lowest(&spec->members[i].ranks);
	return fanin_slot_mbufs(handler, spec->n_members,
				fanin_order_build(NULL, first, spec->n_members), spec->buffers);
}

/* Returns the largest number of slots that a job of the handler may have. */
static uint32_t
max_slots(const struct job_table *table, const struct job_spec *spec,
	  const struct fanin_handler *handler)
{
	const unsigned int mbufs = slot_mbufs(spec, handler);

	switch (handler->slots_of) {
	case FANIN_SLOTS_SHARED:
		/*
		 * The window may be larger than the pool: packets without a slot go on to the
		 * server or the leader.
		 */
		if ((handler->shape == FANIN_SHAPE_SERVER ||
		     handler->shape == FANIN_SHAPE_LEADERS) &&
		    job_slots_shared(table, handler) != 0)
			return 2u * FANIN_WIRE_MAX_WINDOW;
		return RTE_MIN(job_slots_shared(table, handler), 2u * FANIN_WIRE_MAX_WINDOW);
	case FANIN_SLOTS_NONE:
		return table->slots_per_job;
	case FANIN_SLOTS_PRIVATE:
		break;
	}
	return RTE_MIN(table->slots_per_job, round_down_power_of_two(table->mbufs_per_job / mbufs));
}

/* Returns the name of the limit that slots are taken from, for an error. */
static const char *
name_of_limit(const struct fanin_handler *handler)
{
	return handler->slots_of == FANIN_SLOTS_SHARED ? "limits.shared_slots"
						       : "limits.slots over limits.max_jobs";
}

/*
 * Chooses the number of slots. The number of packets that they hold is bounded, too: so a job whose
 * hosts are silent never takes packets that other jobs or the ports need.
 */
static int
choose_slots(const struct pipeline *pipeline, struct job_spec *spec,
	     const struct fanin_handler *handler, uint32_t payload, const char **code, char *error)
{
	const uint32_t most = max_slots(pipeline->jobs, spec, handler);
	const uint32_t usual = handler->slots_of == FANIN_SLOTS_SHARED
				       ? RTE_MIN(most, job_slots_shared(pipeline->jobs, handler))
				       : most;

	if (spec->slots == 0)
		spec->slots = default_slots(pipeline, spec, payload, RTE_MAX(usual, 2u));
	if (spec->slots < 2 || (spec->slots & (spec->slots - 1)) != 0) {
		snprintf(error, PIPELINE_ERROR_LEN,
			 "found %u slots, expected a power of two from 2 to %u", spec->slots, most);
		return -EINVAL;
	}
	if (spec->slots > most) {
		*code = "no_room";
		snprintf(
			error, PIPELINE_ERROR_LEN,
			"asked for %u slots, %u are available to each job (%s; a slot of \"%s\" for %u members counts %u)",
			spec->slots, most, name_of_limit(handler), handler->name, spec->n_members,
			slot_mbufs(spec, handler));
		return -ENOSPC;
	}
	return 0;
}

/*
 * A handler's own packets may be as long as the job's: the mbufs that they are made in need room
 * for that.
 */
static int
check_made_packets(const struct pipeline *pipeline, const struct fanin_handler *handler,
		   uint32_t payload, char *error)
{
	const uint32_t room = pipeline->pool == NULL ? 0
						     : rte_pktmbuf_data_room_size(pipeline->pool);
	const uint32_t around = RTE_PKTMBUF_HEADROOM + FANIN_PAYLOAD_OFFSET + FANIN_TAG_LEN;

	if (!handler->makes_packets || handler->makes_headers_only || around + payload <= room)
		return 0;
	snprintf(
		error, PIPELINE_ERROR_LEN,
		"found a payload of %u bytes, expected at most %u: the switch's own packets have no more room",
		payload,
		room > around ? (room - around) / FANIN_PAYLOAD_ALIGN * FANIN_PAYLOAD_ALIGN : 0);
	return -EINVAL;
}

/* Adds FIFOs for parts of longer waits. Without them a long wait only takes more timers. */
static void
use_longer(struct pipeline *pipeline, struct job *job, uint64_t timeout_ns)
{
	const struct fanin_handler *handler = job->handler;
	const uint64_t longest_ns = handler->longest_wait_ns == NULL
					    ? 0
					    : handler->longest_wait_ns(&job->params);
	int timeout = job->timeout;

	while (job->n_longer < RTE_DIM(job->longer) &&
	       timeout_ns * FANIN_TIMER_STEP <= longest_ns) {
		timeout_ns *= FANIN_TIMER_STEP;
		timeout = timers_use(pipeline, timeout_ns, timeout);
		if (timeout < 0)
			return;
		job->longer[job->n_longer++] = (int8_t)timeout;
	}
}

static void
unuse_timeouts(struct pipeline *pipeline, struct job *job)
{
	while (job->n_longer != 0)
		timers_unuse(pipeline, job->longer[--job->n_longer]);
	if (job->timeout >= 0)
		timers_unuse(pipeline, job->timeout);
}

/* Gives the job timers on all workers, if its handler has any. */
static int
use_timeout(struct pipeline *pipeline, struct job *job, const char **code, char *error)
{
	uint64_t timeout_ns;
	int timeout;

	job->timeout = -1;
	if (job->handler->timeout_ns == NULL)
		return 0;
	timeout_ns = job->handler->timeout_ns(&job->params);
	timeout = timers_use(pipeline, timeout_ns, -1);
	if (timeout >= 0) {
		job->timeout = (int8_t)timeout;
		use_longer(pipeline, job, timeout_ns);
		return 0;
	}
	*code = "no_room";
	if (timeout == -ENOSPC)
		snprintf(error, PIPELINE_ERROR_LEN,
			 "other jobs have %u different timeouts already, this one's is %" PRIu64
			 " ns: take one of theirs",
			 PIPELINE_TIMEOUTS, timeout_ns);
	else
		snprintf(error, PIPELINE_ERROR_LEN,
			 "no memory for %u timers of each worker: raise memory.megabytes",
			 pipeline->timers_max);
	return timeout;
}

int
job_create(struct pipeline *pipeline, const struct job_spec *asked, struct job **created,
	   const char **code, char *error)
{
	struct job_table *table = pipeline->jobs;
	struct job_spec spec = *asked;
	const struct fanin_handler *handler;
	uint32_t payload;
	struct job *job;
	int ret;

	*code = "invalid";
	ret = choose_handler(pipeline, &spec, &handler, error);
	if (ret == 0)
		ret = check_parameters(&spec, handler, error);
	if (ret != 0)
		return ret;
	ret = job_tree_check(pipeline, handler, &spec, &payload, error);
	if (ret != 0)
		return ret;
	ret = check_made_packets(pipeline, handler, payload, error);
	if (ret != 0)
		return ret;
	ret = choose_id(table, &spec, code, error);
	if (ret != 0)
		return ret;
	ret = choose_slots(pipeline, &spec, handler, payload, code, error);
	if (ret != 0)
		return ret;
	ret = job_allocate(pipeline, &spec, handler, payload, &job);
	if (ret != 0) {
		*code = "no_room";
		if (ret == -ENOSPC)
			snprintf(
				error, PIPELINE_ERROR_LEN,
				"jobs of \"%s\" with other slots have all that limits.shared_slots gives: destroy them first",
				handler->name);
		else
			snprintf(error, PIPELINE_ERROR_LEN,
				 "no memory for %u slots: raise memory.megabytes", spec.slots);
		return ret;
	}
	ret = use_timeout(pipeline, job, code, error);
	if (ret != 0) {
		job_free(pipeline, job);
		return ret;
	}
	table->n_jobs++;
	/* Set long before the job has a run: only in a run could a packet without a tag do harm. */
	if (spec.authenticate)
		__atomic_fetch_add(&pipeline->n_authenticated, 1, __ATOMIC_RELAXED);
	if (handler->admission == FANIN_ADMIT_KEY)
		__atomic_fetch_add(&pipeline->n_by_key, 1, __ATOMIC_RELAXED);
	__atomic_store_n(&table->jobs[spec.id], job, __ATOMIC_RELEASE);
	*created = job;
	return 0;
}

int
job_destroy(struct pipeline *pipeline, uint32_t id)
{
	struct job_table *table = pipeline->jobs;
	struct job *job = job_lookup(table, id);

	if (job == NULL)
		return -ENOENT;
	__atomic_store_n(&table->jobs[id], NULL, __ATOMIC_RELEASE);
	rte_rcu_qsbr_synchronize(pipeline->qsbr, RTE_QSBR_THRID_INVALID);
	table->n_jobs--;
	if (job->taggers != NULL)
		__atomic_fetch_sub(&pipeline->n_authenticated, 1, __ATOMIC_RELAXED);
	if (job->handler->admission == FANIN_ADMIT_KEY)
		__atomic_fetch_sub(&pipeline->n_by_key, 1, __ATOMIC_RELAXED);
	unuse_timeouts(pipeline, job);
	job_free(pipeline, job);
	return 0;
}

void
job_stats(const struct job *job, struct fanin_handler_stats *sum)
{
	memset(sum, 0, sizeof(*sum));
	for (uint16_t i = 0; i < job->n_workers; i++) {
		const struct fanin_handler_stats *stats = &job->worker_stats[i].stats;

#define ADD_COUNTER(field, text) sum->field += stats->field;
		FANIN_HANDLER_COUNTERS(ADD_COUNTER)
#undef ADD_COUNTER
		for (size_t k = 0; k < FANIN_OWN_COUNTERS_MAX; k++)
			sum->own[k] += stats->own[k];
		sum->block_ns += stats->block_ns;
	}
}
