/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Static trees of `./dev bench congestion`: a job of the window protocol for each of several spines
 * as roots, over which requests are split block by block.
 */
#ifndef FANIN_LAB_BENCH_CONGESTION_TREES_H
#define FANIN_LAB_BENCH_CONGESTION_TREES_H

#include "lab/bench/congestion_job.h"

struct congestion_trees {
	struct rig_job jobs[FANIN_MAX_TREES];
	uint16_t n;
};

struct congestion_trees_options {
	uint16_t n;
	uint16_t first_spine; /* of the first tree; those of the other trees follow */
	uint16_t window;      /* of each tree, blocks */
	uint16_t payload_bytes;
};

/*
 * Makes the trees on the job's network, has all ranks join, and adds their engines. error:
 * PIPELINE_ERROR_LEN bytes. Returns 0, or a negative number with error filled;
 * congestion_trees_close frees what there is.
 */
int congestion_trees_open(struct congestion_trees *trees, struct congestion_job *job,
			  const struct congestion_trees_options *options, char *error);

/* After the job. */
void congestion_trees_close(struct congestion_trees *trees);

#endif
