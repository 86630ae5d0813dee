/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The measured loop of the libraries that Fanin is compared with. It is fanin-perf's with --check-ends and --times: warm-up,
 * then each allreduce timed by itself after a barrier; the first and the last one are checked in every element.
 */
#ifndef FANIN_BENCH_PEERS_LOOP_H
#define FANIN_BENCH_PEERS_LOOP_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A library's side. What fails there ends the program. */
struct peer {
	int rank;
	int size;
	void *state; /* the library's */

	void (*barrier)(struct peer *peer);

	/* The sum of all ranks' count floats. */
	void (*allreduce)(struct peer *peer, const float *send, float *recv, size_t count);

	/* Of each of count values the largest of all ranks, in place, on rank 0 at least. */
	void (*maximum)(struct peer *peer, double *values, size_t count);
};

/* What is to be measured, from the command line. */
struct peer_task {
	size_t bytes;
	size_t iters;
	size_t warmup;
};

/* Reads BYTES ITERS WARMUP. What is wrong with them ends the program with status 2. */
void peer_task_parse(struct peer_task *task, const char *const *arguments);

/*
 * Runs the loop. Rank 0 prints one JSON object: "times", each measured allreduce's seconds on the slowest rank, and
 * "mismatches", the number of wrong elements on the rank that has most.
 *
 * Returns the exit status: 0, or 1 if an element is wrong on any rank or memory is short.
 */
int peer_run(struct peer *peer, const struct peer_task *task);

#ifdef __cplusplus
}
#endif

#endif
