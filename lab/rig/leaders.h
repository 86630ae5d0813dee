/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Jobs whose blocks have leaders, on all leaves and spines of a network. Ranks may be any of its
 * hosts. A rank may be linked to two leaves; then it is two hosts of the network.
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
	bool has_pairs; /* each rank is also linked to the leaf after its host's */
	uint32_t hosts[RIG_LEADERS_RANKS]; /* each rank's host, by its number in the network */
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

/* Returns the host that a rank is by its second link. */
uint32_t rig_leaders_second(const struct rig_leaders *job, uint16_t rank);

/* Makes the job again on one switch that has lost it: a leaf, or otherwise a spine. */
int rig_leaders_restore(struct rig_leaders *job, const struct job_spec *spec, bool is_leaf,
			uint16_t number, char *error);

/*
 * Fills in what an engine of a rank has to know. The caller sets time limits and, for a rank with
 * two links, the transport. peers: room for all ranks; `hosts` points to it.
 */
void rig_leaders_config(const struct rig_leaders *job, uint16_t rank, struct fanin_peer *peers,
			struct fanin_protocol_config *config);

/* Destroys the job on all switches. */
void rig_leaders_destroy(struct rig_leaders *job);

#endif
