/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs of benchmarks over leaves and spines: the network, a job's allreduces one after the other,
 * how long each took, and what links carried meanwhile. A failure ends the program. One thread.
 */
#ifndef FANIN_LAB_BENCH_CONGESTION_RUN_H
#define FANIN_LAB_BENCH_CONGESTION_RUN_H

#include "lab/bench/congestion_job.h"
#include "lab/bench/ring_player.h"
#include "lab/bench/virtual.h"

#define CONGESTION_MAX_RUNS 64
/* DPDK's memory, and the packets in it. */
#define CONGESTION_MEGABYTES 700
#define CONGESTION_PACKETS 131071u

struct congestion_run {
	struct congestion_network network;
	struct congestion_job job;
	struct congestion_links before;
	struct congestion_links after;
	uint64_t began_ns; /* when the first allreduce began */
	uint64_t ended_ns;
	uint64_t took_ns[CONGESTION_MAX_RUNS];
	uint32_t n_done;
};

/* Starts DPDK and builds the network. */
void congestion_run_open(struct congestion_run *run, const struct congestion_options *options,
			 unsigned int megabytes);

/* Makes a job without engines on the network's ranks, for vectors of this many bytes. */
void congestion_run_job(struct congestion_run *run, const char *handler, uint64_t bytes);

/* Waits until the job's engines are ready. */
void congestion_run_start(struct congestion_run *run);

/* Makes a ring on the network's ranks, in place of a job. */
struct ring_player *congestion_run_ring(struct congestion_run *run);

/*
 * Runs n collectives with pauses between them, until one fails. Links are measured over all of
 * them, including pauses.
 *
 * one: runs one; returns false if it fails. watch: called after each event of a pause, or NULL.
 */
void congestion_run_all(struct congestion_run *run, uint32_t n, bool (*one)(void),
			bool (*watch)(void *user));

/*
 * Prints members of the JSON object: whether n allreduces are done with correct results, and their
 * times.
 */
void congestion_run_print(const struct congestion_run *run, uint32_t n);

/* Frees the network. The job must be gone before. */
void congestion_run_close(struct congestion_run *run);

#endif
