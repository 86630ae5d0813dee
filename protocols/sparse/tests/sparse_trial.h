/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A sparse allreduce in virtual time, followed by a second one: real engines around real pipelines,
 * on one switch or on leaves below a spine. Needs ring_switch_eal. One at a time.
 */
#ifndef FANIN_PROTOCOLS_SPARSE_TESTS_SPARSE_TRIAL_H
#define FANIN_PROTOCOLS_SPARSE_TESTS_SPARSE_TRIAL_H

#include "tests/unit/sparse_vectors.h"

struct sparse_trial {
	struct sparse_vectors_options vectors; /* their seed is also that of network and faults */
	const char *handler;
	uint32_t slots; /* of the job: a power of two, twice its window */
	uint16_t mtu;
	bool tree;      /* up to four leaves and a spine */
	double faults;  /* share of packets that are lost; as many are duplicated and reordered */
	double doubled; /* share of packets that are duplicated, if there are no other faults */
};

/* Rank 0's counts of both allreduces. */
struct sparse_trial_counts {
	uint32_t span;
	uint64_t blocks;
	uint64_t shards_sent;
	uint64_t shards_received;
	uint64_t duplicates; /* shards of results that had come already */
};

/*
 * Runs it. Asserts that all ranks end well, with the expected result and the same bits; without
 * faults also that nothing was sent twice. counts: may be NULL.
 */
void sparse_trial_run(const struct sparse_trial *trial, struct sparse_trial_counts *counts);

#endif
