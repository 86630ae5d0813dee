/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A job of `./dev bench stragglers`: iterations of an allreduce, one after the other, by real
 * engines, the real handler and the real server in a dumbbell. Each result is checked. One thread.
 */
#ifndef FANIN_LAB_BENCH_STRAGGLER_JOB_H
#define FANIN_LAB_BENCH_STRAGGLER_JOB_H

#include "lab/bench/dumbbell.h"
#include "hostlib/src/protocol/protocol.h"

#define STRAGGLER_MAX_RANKS 16

struct straggler_job_options {
	uint32_t id;
	uint16_t first_worker; /* number in the dumbbell of its first worker; the others follow */
	uint16_t n_ranks;
	uint16_t server;
	uint16_t window;        /* W of the paper */
	uint16_t payload_bytes; /* of a packet */
	uint32_t congestion;    /* index in fanin_dual_types */
	uint32_t fixed_window;  /* of `sync` */
	uint32_t eta_percent;
	uint32_t bdp;           /* packets */
	uint32_t p_max_percent; /* 0: the default */
	uint32_t iterations;
	uint64_t bytes; /* of each iteration */
};

struct straggler_job;

struct straggler_rank {
	struct straggler_job *job;
	struct rig_host *host;
	struct fanin_endpoint *engine;
	struct fanin_request request;
	int32_t *send;
	int32_t *recv;
	uint32_t iteration; /* the current one, or `iterations` at the end */
	uint16_t rank;
	bool joined;
	uint64_t cookie;
	uint32_t epoch;
	struct fanin_join_ack_body ack;
};

struct straggler_job {
	struct straggler_job_options options;
	struct dumbbell *dumbbell;
	const struct fanin_protocol *protocol;
	struct job *job; /* on the far switch */
	struct straggler_rank ranks[STRAGGLER_MAX_RANKS];
	uint32_t count;     /* elements of an iteration */
	uint64_t begin_ns;  /* start of the first iteration */
	uint64_t *end_ns;   /* of each iteration: when the last rank had its result */
	uint32_t *finished; /* ranks that have the result of each iteration */
	bool wrong;         /* a result is not the sum */
	char error[256];    /* of a rank's engine; empty: none */
};

/*
 * Makes the job on the far switch and its server. error: PIPELINE_ERROR_LEN bytes. Returns 0, or a
 * negative number with error filled; straggler_job_close frees all parts that exist.
 */
int straggler_job_open(struct straggler_job *job, struct dumbbell *dumbbell,
		       const struct straggler_job_options *options, char *error);

/* Makes all ranks join, and opens their engines. Returns as straggler_job_open does. */
int straggler_job_join(struct straggler_job *job, char *error);

/* Posts the first iteration; the others follow as virtual time passes. */
void straggler_job_begin(struct straggler_job *job);

/* True if the job has ended, with or without an error. */
bool straggler_job_is_done(const struct straggler_job *job);

/* Fills in the counters and windows of a rank. */
void straggler_job_report(const struct straggler_job *job, uint16_t rank,
			  struct fanin_report *report);

void straggler_job_close(struct straggler_job *job);

#endif
