/* SPDX-License-Identifier: BSD-3-Clause */
/* See leaders.h. */
#include "lab/rig/leaders.h"

#include <errno.h>
#include <string.h>

#define SECRET UINT64_C(0x1eade55eed1eade5)
#define FIRST_ID 1000u

uint32_t
rig_leaders_second(const struct rig_leaders *job, uint16_t rank)
{
	return job->hosts[rank] + job->network->options.hosts_per_leaf;
}

static void
member_add(const struct rig_leaders *job, struct job_spec *spec, uint16_t rank, uint32_t host)
{
	spec->members[spec->n_members].port = rig_host_port(job->network, host);
	spec->members[spec->n_members].ip_be = rig_host_ip_be(job->network, host);
	spec->members[spec->n_members++].ranks = fanin_ranks_one(rank);
}

static int
leaf_create(struct rig_leaders *job, struct job_spec spec, uint16_t leaf, char *error)
{
	const struct rig_leaf_spine *network = job->network;
	const char *code;

	spec.n_members = 0;
	spec.links = 0;
	for (uint16_t rank = 0; rank < job->n_ranks; rank++) {
		if (job->hosts[rank] / network->options.hosts_per_leaf == leaf)
			member_add(job, &spec, rank, job->hosts[rank]);
		else if (job->has_pairs &&
			 rig_leaders_second(job, rank) / network->options.hosts_per_leaf == leaf)
			member_add(job, &spec, rank, rig_leaders_second(job, rank));
	}
	for (uint16_t spine = 0; spine < network->options.n_spines; spine++)
		spec.links |= UINT64_C(1) << rig_up_port(network, spine);
	return job_create(rig_switch_pipeline(network->leaves[leaf]), &spec, &job->leaf_jobs[leaf],
			  &code, error);
}

static int
spine_create(struct rig_leaders *job, struct job_spec spec, uint16_t spine, char *error)
{
	const struct rig_leaf_spine *network = job->network;
	const char *code;

	spec.n_members = 0;
	spec.links = UINT64_MAX >> (64 - network->options.n_leaves);
	return job_create(rig_switch_pipeline(network->spines[spine]), &spec,
			  &job->spine_jobs[spine], &code, error);
}

int
rig_leaders_restore(struct rig_leaders *job, const struct job_spec *spec, bool is_leaf,
		    uint16_t number, char *error)
{
	struct job_spec made = *spec;

	made.id = job->id;
	made.key = job->secret;
	made.n_ranks = job->n_ranks;
	return is_leaf ? leaf_create(job, made, number, error)
		       : spine_create(job, made, number, error);
}

int
rig_leaders_create(struct rig_leaf_spine *network, const struct job_spec *spec,
		   const uint32_t *hosts, uint16_t n_ranks, bool has_pairs, struct rig_leaders *job,
		   char *error)
{
	const uint32_t per_leaf = network->options.hosts_per_leaf;
	static uint32_t last_id = FIRST_ID;
	int ret = 0;

	*job = (struct rig_leaders){ .network = network,
				     .id = spec->id != 0 ? spec->id : ++last_id,
				     .secret = spec->key != 0 ? spec->key : SECRET,
				     .n_ranks = n_ranks,
				     .has_pairs = has_pairs };
	if (n_ranks > RIG_LEADERS_RANKS || n_ranks > network->n_hosts / (has_pairs ? 2 : 1))
		return -EINVAL;
	for (uint16_t rank = 0; rank < n_ranks; rank++)
		job->hosts[rank] = hosts != NULL ? hosts[rank]
				   : has_pairs   ? rank / per_leaf * 2 * per_leaf + rank % per_leaf
						 : rank;
	for (uint16_t leaf = 0; leaf < network->options.n_leaves && ret == 0; leaf++)
		ret = rig_leaders_restore(job, spec, true, leaf, error);
	for (uint16_t spine = 0; spine < network->options.n_spines && ret == 0; spine++)
		ret = rig_leaders_restore(job, spec, false, spine, error);
	return ret;
}

void
rig_leaders_config(const struct rig_leaders *job, uint16_t rank, struct fanin_peer *peers,
		   struct fanin_protocol_config *config)
{
	const struct rig_leaf_spine *network = job->network;
	const struct fanin_job_params *params = &job->leaf_jobs[0]->params;

	for (uint16_t i = 0; i < job->n_ranks; i++) {
		peers[i] = (struct fanin_peer){ .ip_be = rig_host_ip_be(network, job->hosts[i]) };
		if (job->has_pairs)
			peers[i].second_ip_be = rig_host_ip_be(network, rig_leaders_second(job, i));
	}
	if (job->has_pairs)
		config->second_flow = rig_host_flow(network, rig_leaders_second(job, rank));
	config->keys = params->keys;
	config->rank = rank;
	config->size = job->n_ranks;
	config->now_ns = rig_clock;
	config->now_arg = network->rig;
	config->transport = rig_host_transport(network->hosts[job->hosts[rank]]);
	config->flow = rig_host_flow(network, job->hosts[rank]);
	config->job = job->id;
	config->window = params->window;
	config->payload_bytes = (uint16_t)params->payload_bytes;
	config->slots = params->slots.mask + 1u;
	memcpy(config->parameters, params->parameters, sizeof(config->parameters));
	config->hosts = peers;
	config->listener = -1;
}

void
rig_leaders_destroy(struct rig_leaders *job)
{
	const struct rig_leaf_spine *network = job->network;

	for (uint16_t leaf = 0; leaf < network->options.n_leaves; leaf++)
		rig_job_remove(network->leaves[leaf], job->id);
	for (uint16_t spine = 0; spine < network->options.n_spines; spine++)
		rig_job_remove(network->spines[spine], job->id);
}
