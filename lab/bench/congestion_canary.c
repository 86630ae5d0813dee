/* SPDX-License-Identifier: BSD-3-Clause */
/* See congestion_canary.h. */
#include "lab/bench/congestion_canary.h"

#include <stdio.h>
#include <stdlib.h>

#include "protocols/canary/switch/canary.h"

#define SECOND_NS UINT64_C(1000000000)
#define TIMEOUT_NS (30 * SECOND_NS)
#define MAX_LESSONS ((RIG_MAX_LEAVES + RIG_MAX_SPINES) * RIG_LEADERS_RANKS)

static int
engine_add(const struct rig_leaders *leaders, struct congestion_job *job, uint16_t rank,
	   char *error)
{
	struct fanin_peer peers[RIG_LEADERS_RANKS];
	struct fanin_protocol_config config = { .timeout_ns = TIMEOUT_NS };
	struct fanin_error why = { 0 };
	struct fanin_endpoint *engine;
	int status;

	rig_leaders_config(leaders, rank, peers, &config);
	config.transport = shared_host_add(&job->ranks[rank].shared, leaders->id);
	status = job->protocol->open(job->protocol, &config, &engine, &why);
	if (status != FANIN_OK) {
		snprintf(error, PIPELINE_ERROR_LEN, "rank %u: %.200s", rank, why.text);
		return status;
	}
	congestion_job_add(job, rank, engine, config.transport);
	return 0;
}

int
congestion_canary_open(struct rig_leaders *leaders, struct congestion_job *job,
		       const struct congestion_canary_options *options, char *error)
{
	const struct job_spec spec = { .handler = "canary",
				       .slots = 2u * options->window,
				       .payload_bytes = options->payload_bytes,
				       .n_parameters = options->timeout_us != 0,
				       .parameters = { { "timeout_us", options->timeout_us } } };
	int ret = rig_leaders_create(&job->network->leaf_spine, &spec, job->network->ranks,
				     job->n_ranks, false, leaders, error);

	for (uint16_t rank = 0; rank < job->n_ranks && ret == 0; rank++)
		ret = engine_add(leaders, job, rank, error);
	return ret;
}

/* ------------------------------------------------------------------ what switches know */

static uint64_t
count_of(const struct job *job, unsigned int position)
{
	uint64_t sum = 0;

	for (uint16_t w = 0; w < job->n_workers; w++)
		sum += job->worker_stats[w].stats.own[position];
	return sum;
}

const char *
congestion_canary_count(const struct rig_leaders *leaders, unsigned int position, uint64_t *sum)
{
	const struct rig_leaf_spine_options *options = &leaders->network->options;
	const struct fanin_counter *counters = leaders->leaf_jobs[0]->handler->counters;

	*sum = 0;
	if (counters[position].name == NULL)
		return NULL;
	for (uint16_t leaf = 0; leaf < options->n_leaves; leaf++)
		*sum += count_of(leaders->leaf_jobs[leaf], position);
	for (uint16_t spine = 0; spine < options->n_spines; spine++)
		*sum += count_of(leaders->spine_jobs[spine], position);
	return counters[position].name;
}

struct congestion_descriptors
congestion_canary_descriptors(const struct rig_leaders *leaders, uint16_t position)
{
	const uint16_t n_leaves = leaders->network->options.n_leaves;
	const struct job *job = position < n_leaves ? leaders->leaf_jobs[position]
						    : leaders->spine_jobs[position - n_leaves];
	const struct canary_state *state = job->state;
	struct congestion_descriptors descriptors = { .used = state->used };

	for (uint16_t w = 0; w < job->n_workers; w++) {
		descriptors.released += job->worker_stats[w].stats.results;
		descriptors.held_ns += job->worker_stats[w].stats.block_ns;
	}
	return descriptors;
}

/*
 * Reads the timeouts of a switch, for the ranks that it is not the root of. Returns their number.
 */
static unsigned int
timeouts_read(const struct job *job, uint64_t *timeouts)
{
	const struct canary_state *state = job->state;
	unsigned int n = 0;

	for (unsigned int leader = 0; leader < job->params.n_ranks; leader++) {
		if (state->lessons[leader].gap_ns != 0 &&
		    (job->params.ranks_here >> leader & 1) == 0)
			timeouts[n++] = canary_timeout_ns(&job->params, state, leader);
	}
	return n;
}

static int
compare(const void *a, const void *b)
{
	const uint64_t first = *(const uint64_t *)a, second = *(const uint64_t *)b;

	return (first > second) - (first < second);
}

uint64_t
congestion_canary_timeout_ns(const struct rig_leaders *leaders)
{
	const struct rig_leaf_spine_options *options = &leaders->network->options;
	static uint64_t timeouts[MAX_LESSONS];
	unsigned int n = 0;

	for (uint16_t leaf = 0; leaf < options->n_leaves; leaf++)
		n += timeouts_read(leaders->leaf_jobs[leaf], timeouts + n);
	for (uint16_t spine = 0; spine < options->n_spines; spine++)
		n += timeouts_read(leaders->spine_jobs[spine], timeouts + n);
	qsort(timeouts, n, sizeof(timeouts[0]), compare);
	return n == 0 ? 0 : timeouts[n / 2];
}
