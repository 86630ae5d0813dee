/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The job of `./dev bench congestion`: allreduces of i32 by real engines, one for each tree of a
 * rank or a single one, whose results are checked. The code that opens a job adds engines to its
 * ranks. One thread.
 */
#ifndef FANIN_LAB_BENCH_CONGESTION_JOB_H
#define FANIN_LAB_BENCH_CONGESTION_JOB_H

#include "lab/bench/congestion_network.h"
#include "lab/bench/shared_host.h"
#include "hostlib/src/protocol/split.h"

struct congestion_job;

struct congestion_rank {
	struct congestion_job *job;
	struct shared_host shared;
	struct fanin_split split; /* over its engines */
	const struct fanin_transport *transports[FANIN_MAX_TREES];
	struct fanin_request request;
	int32_t *send;
	int32_t *recv;
	uint16_t rank;
	bool is_busy; /* until the request is done */
};

struct congestion_job {
	struct congestion_network *network;
	const struct fanin_protocol *protocol;
	struct congestion_rank ranks[CONGESTION_MAX_HOSTS];
	uint16_t n_ranks;
	uint16_t n_busy;
	uint64_t count;  /* elements of the current allreduce */
	uint64_t most;   /* maximum of elements in a vector */
	bool wrong;      /* a result is not the sum */
	char error[256]; /* of a rank's engine; empty: none */
};

/*
 * Makes ranks without engines on the network's hosts, with vectors of this many bytes. Returns 0 or
 * -ENOMEM; congestion_job_close frees all parts that exist.
 */
int congestion_job_init(struct congestion_job *job, struct congestion_network *network,
			const struct fanin_protocol *protocol, uint64_t max_bytes);

/* Adds an engine, which the job then owns, to a rank. transport: of its shared host. */
void congestion_job_add(struct congestion_job *job, uint16_t rank, struct fanin_endpoint *engine,
			const struct fanin_transport *transport);

/* Makes the hosts call the engines from now on. To be called once all engines are added. */
void congestion_job_attach(struct congestion_job *job);

/* True if the engines of all ranks take requests, or one of them has failed. */
bool congestion_job_is_ready(struct congestion_job *job);

/* Begins an allreduce. The one before must be done. */
void congestion_job_begin(struct congestion_job *job, uint64_t bytes);

/* True if the allreduce has ended, with or without an error. */
bool congestion_job_is_done(const struct congestion_job *job);

/* Adds up the reports of all ranks. */
void congestion_job_report(const struct congestion_job *job, struct fanin_report *sum);

void congestion_job_close(struct congestion_job *job);

#endif
