/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The measured loop of the libraries that Fanin is compared with. It is fanin-perf's with
 * --check-ends and --times: warm-up, then each collective timed separately after a barrier; every
 * element of the first and the last one is checked.
 */
#ifndef FANIN_LAB_BENCH_PEERS_LOOP_H
#define FANIN_LAB_BENCH_PEERS_LOOP_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* As fanin-perf's --collective. A broadcast's root is rank 0. */
enum peer_collective {
	PEER_ALLREDUCE,
	PEER_REDUCE_SCATTER,
	PEER_BROADCAST,
	PEER_ALLGATHER,
	PEER_BARRIER,
	PEER_COLLECTIVES
};

/* A library's functions. Their failures end the program. */
struct peer {
	int rank;
	int size;
	enum peer_collective kind;
	void *state; /* the library's */

	void (*barrier)(struct peer *peer);

	/*
	 * Runs the collective of this kind on vectors of count floats, all ranks' parts together.
	 * In place recv is send, and reduce_scatter leaves a rank's part at the start, as MPI does.
	 */
	void (*collective)(struct peer *peer, const float *send, float *recv, size_t count);

	/* Replaces each of count values by its maximum over all ranks, on rank 0 at least. */
	void (*maximum)(struct peer *peer, double *values, size_t count);
};

/* The measurement, from the command line. */
struct peer_task {
	size_t bytes;
	size_t iters;
	size_t warmup;
	bool in_place;    /* receives into the memory that is sent */
	const char *mark; /* as fanin-perf's --mark, or NULL */
};

/* Returns the kind with this name. An unknown name ends the program with status 2. */
enum peer_collective peer_collective_parse(const char *name);

/* Reads BYTES ITERS WARMUP. An invalid value ends the program with status 2. */
void peer_task_parse(struct peer_task *task, const char *const *arguments);

/*
 * Reads the optional arguments after a program's own, up to NULL: in-place, and mark=SOCKET. An
 * invalid one ends the program with status 2.
 */
void peer_task_more(struct peer_task *task, const char *const *arguments);

/*
 * Runs the loop. Rank 0 prints one JSON object: "times", the seconds of each measured collective on
 * the slowest rank, and "mismatches", the number of wrong elements on the rank that has most.
 *
 * Returns the exit status: 0, 1 if an element is wrong on any rank or memory is short, or 2 if a
 * vector can't be cut into parts.
 */
int peer_run(struct peer *peer, const struct peer_task *task);

#ifdef __cplusplus
}
#endif

#endif
