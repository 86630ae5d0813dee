/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The switch's pipeline fed from memory: ports are DPDK ring ports in this process, and the rig
 * plays all hosts of the jobs. It lays out a batch of contributions, lets the workers run until
 * they have taken all of them, and checks every result. Times and counts around the workers are
 * those of the pipeline alone: parsing, scheduling, aggregation and emission without any kernel
 * I/O.
 */
#ifndef FANIN_LAB_BENCH_CORE_RIG_H
#define FANIN_LAB_BENCH_CORE_RIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rte_mbuf.h>
#include <rte_ring.h>

#include "lab/reference/hosts.h"
#include "handlers/kernels/kernels.h"
#include "pipeline/job.h"
#include "pipeline/pipeline.h"

#define RIG_MAX_HOSTS 16
#define RIG_MAX_PORTS (RIG_MAX_HOSTS + 1)
#define RIG_MAX_WORKERS 2
#define RIG_MAX_JOBS 64

/* Composition of a batch. */
struct rig_options {
	const char *handler; /* name in the registry */
	unsigned int dtype;  /* wire codes */
	unsigned int op;
	uint32_t payload; /* bytes per contribution, a multiple of 64 */
	uint32_t mbufs; /* contributions in flight, which is one batch; over hosts and jobs a power
			   of two */
	uint16_t hosts; /* 1 to RIG_MAX_HOSTS */
	uint16_t jobs;  /* 1 to RIG_MAX_JOBS; all of them with all hosts, their packets mixed */
	uint16_t n_workers; /* each with a queue on every port, blocks spread over them as RSS would
			     */
	uint16_t more_jobs; /* jobs that the caller opens, with rig_job_open */
	uint32_t slots; /* of all jobs, as the switch is configured; 0: as many as the batch needs;
			   each slot has one mbuf */
	uint32_t more_mbufs;   /* in each worker's pool, for mbufs that slots hold and results of
				  several packets */
	uint32_t port_entries; /* room in each port's queue, in packets, a power of two; 0: twice
				  the blocks of the batch */
	bool parent; /* the switch is not the root: sums go to a parent, which the rig plays, and
			results come from there */
	enum fanin_isa isa;
};

struct rig;

/* Work of one worker; returns TSC cycles. */
typedef uint64_t (*rig_fn)(struct rig *rig, unsigned int worker, void *argument);

/* Work that all workers do at the same time. */
struct rig_call {
	uint32_t number;  /* number of calls so far; first worker: w (release), others: r (acquire)
			   */
	uint32_t waiting; /* workers that have not arrived yet; atomic */
	uint32_t running; /* workers that have not finished yet; atomic */
	rig_fn fn;        /* NULL: the workers end. Written before the number, like the argument */
	void *argument;
	uint64_t cycles[RIG_MAX_WORKERS];
};

struct rig {
	struct rig_options options;
	struct pipeline *pipeline;
	struct job *jobs[RIG_MAX_JOBS];
	struct rte_mempool *pools[RIG_MAX_WORKERS]; /* each worker has its own, as a NIC's queue may
						     */
	/* By port: one for each host, followed by one for the parent, if there is one. */
	uint16_t ethdevs[RIG_MAX_PORTS];
	struct rte_ring *rx[RIG_MAX_PORTS][RIG_MAX_WORKERS];
	struct rte_ring *tx[RIG_MAX_PORTS][RIG_MAX_WORKERS];
	struct fanin_headers headers[RIG_MAX_HOSTS];
	struct hosts_data data;
	struct rte_mbuf **all; /* the batch's contributions, in the order of arrival, worker by
				  worker */
	uint32_t n_blocks;     /* in a batch, of all jobs together */
	uint32_t next_block;   /* of each job, the first block of the batch */
	bool leaders;          /* the jobs' blocks have leaders */
	struct rig_call call;
};

/*
 * Starts the EAL for up to RIG_MAX_WORKERS workers, the calling thread being the first one; once
 * per process. huge: with hugepages. Exits with an explanation if it can't.
 */
void rig_eal(bool huge, unsigned int n_workers);

/* Builds ports, pipeline and jobs. Exits with an explanation if it can't. */
void rig_open(struct rig *rig, const struct rig_options *options);

/*
 * Makes one more job with all hosts, which all join; rig_close frees it.
 *
 * slots: of the job, a power of two; 0: as many as it may have. Exits with an explanation if it
 * can't.
 */
void rig_job_open(struct rig *rig, const char *handler, uint32_t slots, struct job **opened);

/* Frees everything, and exits with an explanation if an mbuf is missing. */
void rig_close(struct rig *rig);

/* core_parent.c: adds the parent to the job that is created. Does nothing without a parent. */
void rig_parent_member(const struct rig *rig, struct job_spec *spec);

/*
 * core_parent.c: makes the parent start the job's run, as all hosts have joined. Does nothing
 * without a parent.
 */
void rig_parent_start(const struct rig *rig, struct job *job);

/*
 * core_parent.c: puts the results of the sums that have come up into the parent's port; a rig_fn.
 * Exits on an error.
 */
uint64_t rig_parent_answer(struct rig *rig, unsigned int worker, void *argument);

/*
 * core_leaders.c: completes the job's specification. Does nothing for jobs whose blocks have no
 * leaders.
 */
void rig_leaders_job(const struct rig *rig, struct job_spec *spec);

/*
 * core_leaders.c: tells the switch the hosts' addresses, before the workers start. Does nothing for
 * other jobs.
 */
void rig_leaders_open(struct rig *rig);

/* core_leaders.c: returns true if host h leads the block; false in jobs without leaders. */
bool rig_leaders_leads(const struct rig *rig, uint16_t h, uint32_t block);

/*
 * core_leaders.c: turns a contribution of host h into its packet in a job whose blocks have
 * leaders.
 */
void rig_leaders_packet(const struct rig *rig, struct rte_mbuf *mbuf, uint16_t h);

/* core_leaders.c: returns true for a leader's result, which it sends in the second turn. */
bool rig_leaders_waits(const struct rig *rig, const struct rte_mbuf *mbuf);

/*
 * core_leaders.c: takes the sums and puts the results into the leaders' ports; a rig_fn. Exits on
 * an error.
 */
uint64_t rig_leaders_answer(struct rig *rig, unsigned int worker, void *argument);

/* Prints why the benchmark can't go on, and exits. */
void rig_die(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* core_run.c: start and stop the workers on their cores, except the calling one. */
void rig_start_workers(struct rig *rig);
void rig_stop_workers(struct rig *rig);

/*
 * Makes all workers do it at the same time, each on its core: memory stays in that core's caches.
 * Returns the cycles of the slowest worker.
 */
uint64_t rig_on_workers(struct rig *rig, rig_fn fn, void *argument);

static inline uint16_t
rig_ports(const struct rig *rig)
{
	return rig->options.hosts + (rig->options.parent ? 1 : 0);
}

/* Returns a worker's share of a batch: rig_share(rig) mbufs of rig->all. */
static inline struct rte_mbuf **
rig_mbufs(struct rig *rig, unsigned int worker)
{
	return rig->all + (size_t)worker * (rig->options.mbufs / rig->options.n_workers);
}

static inline uint32_t
rig_share(const struct rig *rig)
{
	return rig->options.mbufs / rig->options.n_workers;
}

/*
 * Returns the index of a contribution's block among the blocks of the batch that its worker takes,
 * 0 to n_blocks / n_workers - 1.
 */
static inline uint32_t
rig_block_index(const struct rig *rig, const struct fanin_hdr *hdr)
{
	/*
	 * One worker, or two that take turns: this needs no division, as the bare loop calls it,
	 * too.
	 */
	const uint32_t block = (hdr->block - rig->next_block) >> (rig->options.n_workers - 1);

	/* The switch numbers its jobs from 1. */
	return block * rig->options.jobs + (hdr->job - 1);
}

/* Makes the next batch. The contributions are not yet in the ports. */
void rig_prepare(struct rig *rig);

/* Puts the batch into the ports. */
void rig_offer(struct rig *rig);

/*
 * Runs the workers until they have taken the batch and then, if there is a parent, its results.
 * Returns the cycles of the slowest worker, without those of the parent.
 */
uint64_t rig_run(struct rig *rig);

/*
 * Every worker does the same additions in registers, some 20 us. Returns the cycles of the slowest
 * worker: more than usual if another thread uses one of their cores, as on the other hyperthread of
 * a virtual machine's core.
 */
uint64_t rig_calibrate(struct rig *rig);

/*
 * core_bare.c: runs the bare loop over a prepared batch: adds every packet to its block's
 * accumulator, in the order of arrival.
 *
 * accumulators: rig_bare_size bytes, aligned to cache lines. Returns the cycles of the slowest
 * worker.
 */
uint64_t rig_bare(struct rig *rig, uint8_t *accumulators);

/* Every worker clears the accumulators that it will use. */
void rig_bare_clear(struct rig *rig, uint8_t *accumulators);

size_t rig_bare_size(const struct rig *rig);

/* Takes all results from the ports, and exits with an explanation if one is missing or wrong. */
void rig_collect(struct rig *rig);

/* Returns the mbufs of a prepared batch that was not offered. */
void rig_discard(struct rig *rig);

#endif
