/* SPDX-License-Identifier: BSD-3-Clause */
/* Communicators around the switch of sparse_world.h, for the public calls. */
#ifndef FANIN_PROTOCOLS_SPARSE_TESTS_SPARSE_COMMS_H
#define FANIN_PROTOCOLS_SPARSE_TESTS_SPARSE_COMMS_H

#include "hostlib/src/comm/comm.h"
#include "protocols/sparse/tests/sparse_world.h"

extern struct fanin_ctx sparse_contexts[SPARSE_WORLD_RANKS];
extern struct fanin_comm sparse_comms[SPARSE_WORLD_RANKS];

/* Opens the world with a communicator for each rank; sparse_world_close closes it. */
void sparse_comms_open(uint16_t n_ranks);

/*
 * Tests requests, one of each rank, until none is in progress, and frees them. Returns the status
 * of the last rank's.
 */
int sparse_comms_finish(fanin_request **requests);

#endif
