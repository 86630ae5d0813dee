/* SPDX-License-Identifier: BSD-3-Clause */
/* See congestion_trees.h. */
#include "lab/bench/congestion_trees.h"

#include <errno.h>
#include <stdio.h>

#include "hostlib/src/cc/cc.h"
#include "hostlib/src/engine/engine.h"
#include "protocols/dense/host/window.h"

#define SECOND_NS UINT64_C(1000000000)
#define TIMEOUT_NS (30 * SECOND_NS)
#define MAX_JOIN_NS (60 * SECOND_NS)

static int
tree_make(struct congestion_trees *trees, struct congestion_job *job,
	  const struct congestion_trees_options *options, char *error)
{
	struct congestion_network *network = job->network;
	const struct job_spec spec = { .handler = "single",
				       .slots = 2u * options->window,
				       .payload_bytes = options->payload_bytes };
	const uint16_t spine =
		(uint16_t)((options->first_spine + trees->n) % network->options.n_spines);
	struct rig_job *tree = &trees->jobs[trees->n++];
	int ret = rig_job_create_on(&network->leaf_spine, &spec, network->ranks, job->n_ranks,
				    spine, tree, error);

	if (ret == 0)
		ret = rig_job_join(tree, MAX_JOIN_NS);
	if (ret == -ETIMEDOUT)
		snprintf(error, PIPELINE_ERROR_LEN,
			 "the ranks of the tree over spine %u don't join", spine);
	return ret;
}

static int
engines_add(const struct rig_job *tree, struct congestion_job *job, char *error)
{
	for (uint16_t rank = 0; rank < job->n_ranks; rank++) {
		struct fanin_protocol_config config = { .timeout_ns = TIMEOUT_NS,
							.cc = &fanin_cc_delay };
		struct fanin_transport *transport = shared_host_add(&job->ranks[rank].shared,
								    tree->id);
		struct fanin_endpoint *engine;
		struct fanin_error why = { 0 };

		rig_protocol_config(tree, rank, &config);
		config.transport = transport;
		if (fanin_engine_open(&fanin_protocol_window, &config, &engine, &why) != FANIN_OK) {
			snprintf(error, PIPELINE_ERROR_LEN, "no memory for the engine of rank %u",
				 rank);
			return -ENOMEM;
		}
		congestion_job_add(job, rank, engine, transport);
	}
	return 0;
}

int
congestion_trees_open(struct congestion_trees *trees, struct congestion_job *job,
		      const struct congestion_trees_options *options, char *error)
{
	int ret = 0;

	*trees = (struct congestion_trees){ 0 };
	while (trees->n < options->n && ret == 0)
		ret = tree_make(trees, job, options, error);
	for (uint16_t t = 0; t < trees->n && ret == 0; t++)
		ret = engines_add(&trees->jobs[t], job, error);
	return ret;
}

void
congestion_trees_close(struct congestion_trees *trees)
{
	for (uint16_t t = 0; t < trees->n; t++)
		rig_job_destroy(&trees->jobs[t]);
}
