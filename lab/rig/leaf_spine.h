/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Networks of leaves and spines, each leaf linked to each spine, and jobs on trees of them. Hosts
 * are numbered leaf by leaf, and are the ranks of jobs.
 */
#ifndef FANIN_LAB_RIG_LEAF_SPINE_H
#define FANIN_LAB_RIG_LEAF_SPINE_H

#include "hostlib/src/protocol/protocol.h"
#include "hostlib/src/protocol/protocol.h"
#include "pipeline/job.h"
#include "lab/rig/network.h"
#include "lab/rig/server.h"

#define RIG_MAX_LEAVES PIPELINE_MAX_PORTS
#define RIG_MAX_SPINES 16

struct rig_leaf_spine_options {
	uint16_t n_leaves;
	uint16_t hosts_per_leaf;
	uint16_t hosts_per_port; /* of a leaf; 0: one */
	uint16_t n_spines;
	struct rig_end host_end; /* of links between hosts and leaves, both ends */
	struct rig_end up_end;   /* of links between leaves and spines, likewise */
	struct pipeline_faults faults;
	uint16_t max_jobs;
	uint32_t slots;        /* of each switch */
	uint32_t shared_slots; /* likewise, of each handler whose jobs share them; 0: none */
	/*
	 * Each switch has a parameter server at its last port. `server` has its options, without
	 * its address. Servers that do not belong to the job take no part.
	 */
	const struct rig_server_ops *servers; /* NULL: there are none */
	struct rig_server_options server;
};

struct rig_leaf_spine {
	struct rig *rig;
	struct rig_leaf_spine_options options;
	struct rig_switch *leaves[RIG_MAX_LEAVES];
	struct rig_switch *spines[RIG_MAX_SPINES];
	struct rig_server *leaf_servers[RIG_MAX_LEAVES]; /* NULL without servers, as the next one */
	struct rig_server *spine_servers[RIG_MAX_SPINES];
	struct rig_host **hosts;
	uint32_t n_hosts;
};

/* A job on a tree of its hosts' leaves and a spine, or on a single leaf. */
struct rig_job {
	struct rig_leaf_spine *network;
	uint32_t id;
	uint64_t secret;
	const uint32_t *hosts; /* of each rank, the caller's for as long as the job is; NULL: the
				  first ones */
	uint16_t n_ranks;
	uint16_t n_leaves;
	uint16_t leaves[RIG_MAX_LEAVES];               /* that have ranks */
	struct fanin_ranks leaf_ranks[RIG_MAX_LEAVES]; /* of each of them */
	uint16_t spine;                                /* if there are several leaves */
	struct job *jobs[RIG_MAX_LEAVES + 1];          /* of these leaves, and of the spine */
	struct rig_joining *joining;                   /* of each rank, from rig_job_join on */
};

/* A rank that joins: its place, and the JOIN_ACK once it is active. */
struct rig_joining {
	struct rig_job *job;
	uint16_t rank;
	uint64_t cookie;
	bool active;
	struct fanin_headers headers; /* of JOIN_ACK, and its body */
	struct fanin_join_ack_body ack;
};

/*
 * Builds the network in an empty rig. error: RIG_ERROR_LEN bytes. Returns 0, or -errno with error
 * filled; the rig owns what was built.
 */
int rig_leaf_spine_build(struct rig *rig, const struct rig_leaf_spine_options *options,
			 struct rig_leaf_spine *network, char *error);

/* Frees what the rig does not own. Call before the rig is destroyed. */
void rig_leaf_spine_free(struct rig_leaf_spine *network);

/* Returns a host's leaf, and the port of it that leads to the host. */
struct rig_switch *rig_leaf_of(const struct rig_leaf_spine *network, uint32_t host);

/* Addresses of a host, and of leaves and spines, which come after them. */
uint32_t rig_host_ip_be(const struct rig_leaf_spine *network, uint32_t host);
uint32_t rig_leaf_ip_be(uint16_t leaf);
uint32_t rig_spine_ip_be(uint16_t spine);

/* A leaf's port that its host is at, and the one that leads to a spine. */
uint16_t rig_host_port(const struct rig_leaf_spine *network, uint32_t host);
uint16_t rig_up_port(const struct rig_leaf_spine *network, uint16_t spine);

/*
 * Returns the headers of a host's packets by way of its leaf; their destination is the leaf itself
 * unless dst_ip_be is changed.
 */
struct fanin_flow rig_host_flow(const struct rig_leaf_spine *network, uint32_t host);

/* Destroys a job on a switch, if it has it. */
void rig_job_remove(struct rig_switch *sw, uint32_t id);

/*
 * Makes a job of n_ranks hosts over a spine. hosts: as in struct rig_job. spec: handler, slots,
 * parameters and the like, and the number of a job that was destroyed, or 0 for a new one; members
 * and parent are filled in. If its parent is a server, that of the root is the root's server, which
 * gets the job, too.
 *
 * error: PIPELINE_ERROR_LEN bytes. Returns 0 or -errno.
 */
int rig_job_create_on(struct rig_leaf_spine *network, const struct job_spec *spec,
		      const uint32_t *hosts, uint16_t n_ranks, uint16_t spine, struct rig_job *job,
		      char *error);

/* The same with the first hosts. */
int rig_job_create(struct rig_leaf_spine *network, const struct job_spec *spec, uint16_t n_ranks,
		   uint16_t spine, struct rig_job *job, char *error);

/* The server of a job that has one. */
struct rig_server *rig_job_server(const struct rig_job *job);

/*
 * Gives the job to its server, also after that was restarted. Returns FANIN_OK or a negative
 * status.
 */
int rig_job_serve(const struct rig_job *job);

/* Has all ranks join. Returns 0, or -ETIMEDOUT if that takes longer than max_ns. */
int rig_job_join(struct rig_job *job, uint64_t max_ns);

/*
 * Fills in what a rank's endpoint has to know, with the transport of its host. The caller sets
 * timeouts, `recover`, `cc` and the like. The places of ranks stay unknown.
 */
void rig_protocol_config(const struct rig_job *job, uint16_t rank,
			 struct fanin_protocol_config *config);

/* The host of a rank. */
struct rig_host *rig_job_host(const struct rig_job *job, uint16_t rank);

/* Destroys the job on all its switches. */
void rig_job_destroy(struct rig_job *job);

#endif
