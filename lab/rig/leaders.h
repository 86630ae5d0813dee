/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Jobs whose blocks have leaders, on all leaves and spines of a network. Their ranks are any hosts
 * of it; each may be linked to two leaves, and then is two hosts of the network.
 */
#ifndef FANIN_LAB_RIG_LEADERS_H
#define FANIN_LAB_RIG_LEADERS_H

#include "hostlib/src/protocol/protocol.h"
#include "lab/rig/leaf_spine.h"

#define RIG_LEADERS_RANKS 64

struct rig_leaders {
	struct rig_leaf_spine *network;
	uint32_t id;
	uint64_t secret;
	uint16_t n_ranks;
	bool has_pairs;                    /* each rank is at the leaf after its host's, too */
	uint32_t hosts[RIG_LEADERS_RANKS]; /* of each rank, its number in the network */
	struct job *leaf_jobs[RIG_MAX_LEAVES];
	struct job *spine_jobs[RIG_MAX_SPINES];
};

/*
 * Makes a job. spec: handler, slots and parameters; members and links are filled in. hosts: of each
 * rank; NULL: the first ones, or if has_pairs is set those of every second leaf. error:
 * PIPELINE_ERROR_LEN bytes. Returns 0 or -errno.
 */
int rig_leaders_create(struct rig_leaf_spine *network, const struct job_spec *spec,
		       const uint32_t *hosts, uint16_t n_ranks, bool has_pairs,
		       struct rig_leaders *job, char *error);

/* The host that a rank is by its second link. */
uint32_t rig_leaders_second(const struct rig_leaders *job, uint16_t rank);

/* Makes it on one switch again, which has lost it: a leaf, or if it is not that a spine. */
int rig_leaders_restore(struct rig_leaders *job, const struct job_spec *spec, bool is_leaf,
			uint16_t number, char *error);

/*
 * What an engine of a rank has to know. Limits of time are left to the caller, and of a rank with
 * two links the transport. peers: room for all ranks; `hosts` points to it.
 */
void rig_leaders_config(const struct rig_leaders *job, uint16_t rank, struct fanin_peer *peers,
			struct fanin_protocol_config *config);

/* Destroys the job on all switches. */
void rig_leaders_destroy(struct rig_leaders *job);

#endif
