/* SPDX-License-Identifier: BSD-3-Clause */
/* The multicast regions of a communicator. */
#ifndef FANIN_HOSTLIB_COMM_REGION_H
#define FANIN_HOSTLIB_COMM_REGION_H

#include "hostlib/src/protocol/protocol.h"

struct fanin_comm_regions {
	struct fanin_region *first; /* linked by next */
	uint32_t n_asked;           /* regions that were asked for so far */
	uint64_t next_address;      /* of the next one; 0: it is the first */
};

/* A region, and the job beside its communicator's that carries it. */
struct fanin_region {
	struct fanin_region *next;
	struct fanin_comm *owner; /* the communicator whose ranks the region belongs to */
	struct fanin_comm *comm;
	uint8_t *memory;
	uint64_t bytes;
	uint64_t address; /* of its first byte in the network */
};

/*
 * Makes a region of all ranks' memory; all ranks call it. region: set on success only. Returns
 * FANIN_OK or a negative status.
 */
int fanin_comm_region_create(struct fanin_comm *comm, void *memory, uint64_t bytes,
			     struct fanin_region **region, struct fanin_error *error);

/* Leaves a region's job and frees it. Returns what fanin_leave does. */
int fanin_comm_region_free(struct fanin_region *region);

/*
 * Finds the communicator that reduces a communicator's regions in one way, and joins its job if it
 * has not been joined yet. All ranks call it.
 *
 * way: FANIN_BESIDE_PUSH or FANIN_BESIDE_PULL.
 */
int fanin_comm_region_reducing(struct fanin_comm *comm, enum fanin_beside_use way,
			       struct fanin_comm **reducing, struct fanin_error *error);

#endif
