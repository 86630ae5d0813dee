/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The network of `./dev bench stragglers`, in virtual time: a dumbbell as in PA-ATP's evaluation
 * (section V). Workers are on the near side, servers on the far one, and parallel paths of one rate
 * between them. A worker's path is fixed, as by ECMP, so the near side has a switch for each path.
 * The far switch aggregates.
 *     workers, source - near switch 0 --- path 0 ---+
 *     workers, source - near switch 1 --- path 1 ---+- far switch - servers, sinks
 *     ...
 *
 * Paths and servers' links have the rate, a queue and a threshold for marks; hosts' other links are
 * faster, so that packets wait in the switches' queues and not in the hosts.
 */
#ifndef FANIN_LAB_BENCH_DUMBBELL_H
#define FANIN_LAB_BENCH_DUMBBELL_H

#include "lab/bench/background.h"
#include "pipeline/job.h"
#include "lab/rig/network.h"
#include "protocols/pa_atp/tests/rig_server.h"

#define DUMBBELL_MAX_PATHS 8
#define DUMBBELL_MAX_WORKERS 64
#define DUMBBELL_MAX_SERVERS 8

struct dumbbell_options {
	uint64_t seed;
	uint16_t n_paths;
	uint16_t n_workers;
	uint16_t n_servers;
	uint16_t path_of_worker[DUMBBELL_MAX_WORKERS];
	uint32_t rate_mbit;        /* of paths towards the far side */
	uint32_t server_rate_mbit; /* of links to servers; 0: the paths' */
	uint32_t back_rate_mbit;   /* of paths towards the near side */
	uint32_t host_rate_mbit;   /* of the other links of workers and servers; 0: none */
	uint32_t ecn_bytes;        /* bytes in a queue from which frames are marked; 0: none are */
	uint32_t queue_bytes;      /* maximum of bytes in a queue */
	uint64_t delay_ns;         /* of each link */
	uint32_t aggregators;      /* of the far switch, a power of two */
	uint16_t max_jobs;
	uint64_t server_bytes; /* memory of each server for jobs */
	uint32_t n_packets;    /* that exist at a time, everywhere */
};

struct dumbbell_worker {
	struct rig_host *host;
	uint32_t ip_be;
	uint16_t far_port; /* far switch's port towards the worker, which is its path's */
};

struct dumbbell {
	struct dumbbell_options options;
	struct rig *rig;
	struct rig_switch *near[DUMBBELL_MAX_PATHS];
	struct rig_switch *far;
	uint32_t far_ip_be;
	struct dumbbell_worker workers[DUMBBELL_MAX_WORKERS];
	struct rig_server *servers[DUMBBELL_MAX_SERVERS];
	struct background_path paths[DUMBBELL_MAX_PATHS]; /* of each path, its source and its sink
							   */
};

/*
 * Builds the network and lets a second pass, in which switches learn all addresses. error:
 * RIG_ERROR_LEN bytes. Returns 0, or -errno with error filled; dumbbell_close frees all that was
 * built.
 */
int dumbbell_open(struct dumbbell *dumbbell, const struct dumbbell_options *options, char *error);

/* Frees the network. Returns how many packets have leaked: 0. */
unsigned int dumbbell_close(struct dumbbell *dumbbell);

/* Returns the far switch's port that leads to a server. */
uint16_t dumbbell_server_port(const struct dumbbell *dumbbell, uint16_t server);

/* Returns the traffic of a path towards the far side, so far. */
struct rig_traffic dumbbell_path_traffic(const struct dumbbell *dumbbell, uint16_t path);

/* Returns the traffic of a server's link towards the server, so far. */
struct rig_traffic dumbbell_server_traffic(const struct dumbbell *dumbbell, uint16_t server);

/* Returns the packets that found the queue of a server's link full, so far. */
uint64_t dumbbell_server_drops(const struct dumbbell *dumbbell, uint16_t server);

#endif
