/* SPDX-License-Identifier: BSD-3-Clause */
/* Recovery of a communicator on a switch after its run is lost or its path has changed. */
#ifndef FANIN_HOSTLIB_COMM_RECOVER_H
#define FANIN_HOSTLIB_COMM_RECOVER_H

#include "hostlib/src/manager/manager.h"
#include "hostlib/src/transport/transport.h"

struct fanin_recovery {
	bool rejoining; /* the run was lost, and the member is joining again */
	bool moved; /* the first hop is another one, and this rank has not been in a run there */
	bool bound; /* the user named the interface */
	uint32_t generation;      /* of the tree, as last told by the manager; 0: unknown */
	uint32_t applied_changes; /* fanin_manager_changes when the changes were last applied */
	uint64_t refused_ns;      /* when the switch last refused to rejoin; 0: never */
	uint64_t next_follow_ns;  /* when to check whether the switch has another MAC address */
	uint64_t next_move_ns;    /* when to retry moving */
	uint64_t ring_drops;      /* of transports that were closed */
	struct fanin_transport_counts counts; /* likewise of their counts */
	char path_problem[FANIN_TEXT_LEN]; /* why moving fails; empty: it does not fail, or is not
					      needed */
	char hint[2 * FANIN_TEXT_LEN];     /* the engine's */
};

/*
 * Polls an engine on a switch, applies the manager's messages, and resumes a lost run if the
 * protocol can. Returns the number of frames received or a negative status.
 */
int fanin_comm_recover_poll(struct fanin_comm *comm);

/*
 * comm_move.c, as all functions below: moves to the first hop that the manager has told, if it is
 * another one. Nothing changes until this succeeds; to be called repeatedly.
 */
void fanin_comm_move(struct fanin_comm *comm, const struct fanin_manager_home *home);

/* True if the manager has told of another first hop than the communicator's. */
bool fanin_comm_is_elsewhere(const struct fanin_comm *comm);

/*
 * To be called after the member has joined again: points the engine at the switch that answered,
 * which may be another one or have another MAC address. Returns FANIN_OK or a negative status.
 */
int fanin_comm_move_end(struct fanin_comm *comm, struct fanin_error *error);

/*
 * Follows a switch that replaces the communicator's, with its IP address and perhaps another MAC
 * address: checks the kernel's neighbour table every 250 ms. The new switch then tells that the run
 * is lost.
 */
void fanin_comm_follow(struct fanin_comm *comm);

#endif
