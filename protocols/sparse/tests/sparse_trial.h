/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A sparse allreduce in virtual time, and a second one behind it: real engines around real
 * pipelines, on one switch or on leaves below a spine. Needs ring_switch_eal_of. One at a time.
 */
#ifndef FANIN_PROTOCOLS_SPARSE_TESTS_SPARSE_TRIAL_H
#define FANIN_PROTOCOLS_SPARSE_TESTS_SPARSE_TRIAL_H

#include "tests/unit/sparse_vectors.h"

struct sparse_trial {
	struct sparse_vectors_options vectors; /* its seed is that of network and faults, too */
	const char *handler;
	uint32_t slots; /* of the job: a power of two, twice its window */
	uint16_t mtu;
	bool tree;      /* up to four leaves and a spine */
	double faults;  /* part of the packets that are lost, as many doubled, as many reordered */
	double doubled; /* part of the packets that are doubled, if there are no other faults */
};

/* What rank 0 counts of both allreduces. */
struct sparse_trial_counts {
	uint32_t span;
	uint64_t blocks;
	uint64_t shards_sent;
	uint64_t shards_received;
	uint64_t duplicates; /* shards of results that had come before */
};

/*
 * Runs it. Asserts that all ranks end well, with the right result and the same bits; without faults
 * also that nothing was sent twice. counts: may be NULL.
 */
void sparse_trial_run(const struct sparse_trial *trial, struct sparse_trial_counts *counts);

#endif
