/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The pipeline: workers that poll ports, switch foreign frames and run handlers on Fanin packets.
 * This header is the daemon's interface: it sets the pipeline up, starts and stops it, and reads
 * its state from the main thread.
 */
#ifndef FANIN_PIPELINE_PIPELINE_H
#define FANIN_PIPELINE_PIPELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rte_mempool.h>

#include "pipeline/base/state.h"

#define PIPELINE_ERROR_LEN 512

struct route_spec;

struct pipeline_options {
	pipeline_clock clock; /* NULL: pipeline_now_ns */
	void *clock_user;
	uint32_t ip_be;     /* the switch's own address */
	uint8_t prefix_len; /* of the hosts' subnet, which ip_be is in; 0: there is none */
	uint8_t mac[6];
	uint16_t udp_port; /* host order */
	enum pipeline_idle idle;
	uint32_t idle_empty_polls;
	uint32_t idle_sleep_us;
	uint16_t max_jobs;
	uint32_t slots;
	uint32_t shared_slots; /* of each handler whose jobs share them; a power of two, or 0: there
				  are none */
	uint32_t key_rate; /* packets per second that a worker takes from a port for jobs that admit
			      by key; 0: any number */
	uint32_t mac_entries;
	uint32_t mac_age_seconds;
	struct pipeline_faults faults;
	struct rte_mempool *pool;
	const struct pipeline_port *ports; /* copied */
	uint16_t n_ports;
	const struct route_spec *routes; /* copied */
	uint16_t n_routes;
	uint64_t probe_ns;          /* between requests to one next hop; 0: NEXT_HOPS_PROBE_NS */
	uint32_t probe_misses;      /* in a row after which it is dead; 0: NEXT_HOPS_PROBE_MISSES */
	const unsigned int *lcores; /* of the workers; copied */
	const int *sockets;         /* NUMA nodes of the workers; NULL: of their lcores. Copied */
	enum pipeline_policy policy;
	uint64_t tree_up_to; /* message sizes in bytes, for jobs with the handler "auto" */
	uint64_t multi2_up_to;
	uint64_t multi4_up_to;
	uint16_t cluster_size; /* S: divides n_workers; 1 with PIPELINE_POLICY_RSS */
	uint16_t n_workers;
	enum fanin_isa isa; /* kernels to use; one that the CPU has */
};

/*
 * Builds tables and workers. The ports must be started.
 *
 * error: PIPELINE_ERROR_LEN bytes. Returns 0 and sets *pipeline, or -errno with *error filled.
 */
int pipeline_create(const struct pipeline_options *options, struct pipeline **pipeline,
		    char *error);

/* Launches the workers on their lcores. Returns 0 or -errno. */
int pipeline_start(struct pipeline *pipeline);

/* Asks the workers to stop and waits for them. */
void pipeline_stop(struct pipeline *pipeline);

/* Frees everything, with all jobs; the workers must have stopped. May be NULL. */
void pipeline_free(struct pipeline *pipeline);

/* Adds up the workers' counters. Main thread. */
void pipeline_counters(const struct pipeline *pipeline, struct counters *sum);

/* Returns the live counters of one worker, 0 to n_workers - 1. Main thread. */
const struct counters *pipeline_worker_counters(const struct pipeline *pipeline,
						unsigned int worker);

/* Returns the kernel's number of a worker's thread; 0: it does not run yet. Main thread. */
pid_t pipeline_worker_thread(const struct pipeline *pipeline, unsigned int worker);

/*
 * Returns the longest time so far that a worker that was not asleep did not poll its ports. Main
 * thread.
 */
uint64_t pipeline_worker_longest_round_ns(const struct pipeline *pipeline, unsigned int worker);

/*
 * Periodic work of the main thread, about once a second: ages the MAC table, looks after hosts and
 * slots.
 */
void pipeline_housekeep(struct pipeline *pipeline);

/*
 * Looks after next hops (next_hops.h), if it is time.
 *
 * Returns when it is time again, by pipeline_time_ns; UINT64_MAX: there are none. Main thread.
 */
uint64_t pipeline_watch_next_hops(struct pipeline *pipeline);

/*
 * Sets whether a routed port has a link; without one, packets take other next hops. port: index in
 * pipeline->ports. Main thread.
 */
void pipeline_port_set_link(struct pipeline *pipeline, unsigned int port, bool has_link);

/*
 * Takes a port up or down. Waits for each worker's next round: after a port was taken down, no
 * worker is in its driver, and none enters it until the port is up. Frames to it are dropped as
 * FANIN_REASON_PORT_DOWN. Main thread.
 *
 * port: index in pipeline->ports.
 */
void pipeline_port_set_down(struct pipeline *pipeline, unsigned int port, bool down);

/*
 * Has a worker announce the switch's address on a port. Hosts and neighbors that have another
 * switch's MAC address for it learn the new one. port: index in pipeline->ports. Main thread.
 */
void pipeline_announce(struct pipeline *pipeline, unsigned int port);

/* Returns the index in pipeline->ports of the port with this name, or -ENOENT. */
int pipeline_port_find(const struct pipeline *pipeline, const char *name);

/*
 * Finds the port of a host of the switch's own subnet, by ARP and by the port at which its frames
 * come in. Main thread.
 *
 * ip_be: network order. Returns its index in pipeline->ports; -EINVAL: no host of the subnet can
 * have the address; -EAGAIN: it is unknown, and a worker asks all hosts for it, so that it may be
 * known in some milliseconds; -ENOSPC: no room for another neighbor.
 */
int pipeline_find_host(struct pipeline *pipeline, uint32_t ip_be);

/* Returns the monotonic time by the TSC, nanoseconds. Any thread. */
uint64_t pipeline_now_ns(void);

/*
 * Returns the time that the pipeline's workers see: by the pipeline's own clock, if it has one. Any
 * thread that may read that clock.
 */
static inline uint64_t
pipeline_time_ns(const struct pipeline *pipeline)
{
	return pipeline->clock == NULL ? pipeline_now_ns() : pipeline->clock(pipeline->clock_user);
}

#endif
