/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Canary in `./dev bench congestion`: a job with leaders on all switches, for the network's ranks.
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

/*
 * Returns the name of a counter of the handler, by its position, and sets its sum over all
 * switches. NULL: there is none.
 */
const char *congestion_canary_count(const struct rig_leaders *leaders, unsigned int position,
				    uint64_t *sum);

/* Descriptors of one switch. */
struct congestion_descriptors {
	uint32_t used;     /* now */
	uint64_t released; /* so far, after their result has passed */
	uint64_t held_ns;  /* time for which these were held, in all */
};

/* Reads the descriptors of a switch: leaves come first, then spines. */
struct congestion_descriptors congestion_canary_descriptors(const struct rig_leaders *leaders,
							    uint16_t position);

/*
 * Returns the median of the timeouts that switches below roots have learned so far, ns; 0: none
 * has.
 */
uint64_t congestion_canary_timeout_ns(const struct rig_leaders *leaders);

/*
 * Makes the job on all switches and adds the ranks' engines. error: PIPELINE_ERROR_LEN bytes.
 * Returns 0, or a negative number with error filled; rig_leaders_destroy frees all parts that
 * exist.
 */
int congestion_canary_open(struct rig_leaders *leaders, struct congestion_job *job,
			   const struct congestion_canary_options *options, char *error);

#endif
