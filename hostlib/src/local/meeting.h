/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How the ranks of a host find each other and share memory. The leader, the lowest rank of the
 * host, listens on a socket whose name is derived from the job; each other rank connects, and gets
 * the descriptor of memory that has no name. So nothing is left behind, however ranks end. Only
 * processes of the same user in the same network namespace meet. The connections stay: over them
 * ranks wake each other, and notice that a process has ended. One thread at a time.
 */
#ifndef FANIN_HOSTLIB_LOCAL_MEETING_H
#define FANIN_HOSTLIB_LOCAL_MEETING_H

#include <stdbool.h>
#include <stdint.h>

#include "fanin/fanin.h"
#include "hostlib/src/base/error.h"
#include "memory.h"

/* Ranks of a host at most: each has descriptors at the leader. */
#define FANIN_LOCAL_MAX 256u

struct fanin_local_meeting_config {
	const char *secret;       /* known to the job's ranks: the socket's name is derived from it
				   */
	const uint16_t *ranks;    /* of this host, ascending; n entries */
	unsigned int n;           /* 1 to FANIN_LOCAL_MAX */
	unsigned int place;       /* of this rank among them; 0 leads */
	uint64_t agreement;       /* of what all ranks of the host must have alike */
	uint64_t deadline_ns;     /* on the clock of fanin_now_ns */
	uint32_t join_timeout_ms; /* for messages */
	fanin_interrupt_fn interrupt;
	void *interrupt_arg;
};

/* Another rank of the host. */
struct fanin_local_peer {
	int fd;    /* -1: this rank has no connection with it */
	int pidfd; /* -1: unknown */
	bool gone; /* its process has ended, or has closed the connection */
};

struct fanin_local_meeting {
	unsigned int n, place;
	uint16_t *ranks;                /* copied */
	struct fanin_local_peer *peers; /* of each place */
	struct fanin_local_memory memory;
	int epoll_fd; /* readable if a peer has woken this rank, or is gone */
};

/*
 * Meets the other ranks of the host. meeting: may be closed also after a failure. Returns
 * FANIN_OK, or a status with an error that names the ranks which have not come:
 * FANIN_ERR_JOIN_TIMEOUT, FANIN_ERR_JOIN_REFUSED, FANIN_ERR_PERMISSION, FANIN_ERR_INTERRUPTED,
 * FANIN_ERR_NO_MEMORY or FANIN_ERR_SYSTEM.
 */
int fanin_local_meet(const struct fanin_local_meeting_config *config,
		     struct fanin_local_meeting *meeting, struct fanin_error *error);

/* Closes the connections and the memory. */
void fanin_local_part(struct fanin_local_meeting *meeting);

/* Wakes the rank at a place with which this one is connected. Does not block. */
void fanin_local_wake(struct fanin_local_meeting *meeting, unsigned int place);

/*
 * Reads what has woken this rank, and marks peers that are gone. Returns true if one more is gone.
 */
bool fanin_local_listen(struct fanin_local_meeting *meeting);

#endif
