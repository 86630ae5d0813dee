/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Canary in `./dev bench congestion`: a job with leaders on all switches, whose ranks are those of
 * the network.
 */
#ifndef FANIN_LAB_BENCH_CONGESTION_CANARY_H
#define FANIN_LAB_BENCH_CONGESTION_CANARY_H

#include "lab/bench/congestion_job.h"
#include "lab/rig/leaders.h"

struct congestion_canary_options {
	uint16_t window;
	uint16_t payload_bytes;
	uint32_t timeout_us; /* of descriptors; 0: learned */
};

/* A counter of the handler, by its position; the sum of all switches. NULL: there is none. */
const char *congestion_canary_count(const struct rig_leaders *leaders, unsigned int position,
				    uint64_t *sum);

/* Descriptors of one switch. */
struct congestion_descriptors {
	uint32_t used;     /* now */
	uint64_t released; /* so far, as their result has passed */
	uint64_t held_ns;  /* the sum of these */
};

/* Reads those of a switch: leaves come first, then spines. */
struct congestion_descriptors congestion_canary_descriptors(const struct rig_leaders *leaders,
							    uint16_t position);

/* The median of the timeouts that switches below roots have learned so far, ns; 0: none has. */
uint64_t congestion_canary_timeout_ns(const struct rig_leaders *leaders);

/*
 * Makes the job on all switches and adds the ranks' engines. error: PIPELINE_ERROR_LEN bytes.
 * Returns 0, or a negative number with error filled; rig_leaders_destroy frees what there is.
 */
int congestion_canary_open(struct rig_leaders *leaders, struct congestion_job *job,
			   const struct congestion_canary_options *options, char *error);

#endif
