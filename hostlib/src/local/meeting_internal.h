/* SPDX-License-Identifier: BSD-3-Clause */
/* The messages of a meeting, and what both sides of it do. See meeting.h. */
#ifndef FANIN_HOSTLIB_LOCAL_MEETING_INTERNAL_H
#define FANIN_HOSTLIB_LOCAL_MEETING_INTERNAL_H

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

#include "meeting.h"

#define MAGIC 0x636f6c66u
/* A number that differs if memory or messages do: ranks of one host have the same library. */
#define LAYOUT                                                                                     \
	((uint32_t)(sizeof(struct fanin_local_head) * 31 + sizeof(struct fanin_local_member) * 7 + \
		    FANIN_LOCAL_DEPTH * 3 + FANIN_LOCAL_CHUNK_BYTES + 1))
#define LOOK_MS 20
#define RETRY_NS (5 * 1000000ull)

/* A rank's first message. */
struct hello {
	uint32_t magic;
	uint32_t layout;
	uint64_t agreement;
	uint16_t rank;
	uint8_t unused[6];
};

/* The leader's answer, with the memory's descriptor unless it refuses. */
struct welcome {
	uint32_t magic;
	int32_t status; /* FANIN_OK, or why it refuses */
	struct fanin_error error;
};

/* Says that a rank has mapped the memory. */
static const uint8_t fanin_local_mapped = 'm';

/* ---- common parts (meeting.c) */

/* Sets the error of a failed system call, and returns its status. */
int fanin_local_system_error(struct fanin_error *error, const char *what);

/* Finds the name of the leader's socket, which exists in this network namespace only. */
socklen_t fanin_local_address_of(const struct fanin_local_meeting_config *config,
				 struct sockaddr_un *address);

/*
 * Returns FANIN_OK while there is time left, FANIN_ERR_JOIN_TIMEOUT without an error, or
 * FANIN_ERR_INTERRUPTED.
 */
int fanin_local_time_check(const struct fanin_local_meeting_config *config,
			   struct fanin_error *error);

/* Waits a moment for a descriptor. */
bool fanin_local_look_at(int fd, short events);

/* Returns the user of the other process; (uid_t)-1 if it is unknown. */
uid_t fanin_local_user_of(int fd, pid_t *pid);

/*
 * Takes a connection with another rank. Children of its process may keep the connection open when
 * it ends, so the process is watched, too.
 */
int fanin_local_peer_take(struct fanin_local_meeting *meeting, unsigned int place, int fd,
			  pid_t pid, struct fanin_error *error);

/* Maps the memory, and closes its descriptor. */
int fanin_local_memory_map(struct fanin_local_meeting *meeting, int fd, struct fanin_error *error);

/* lead.c and follow.c: meet as the leader, or as another rank. */
int fanin_local_lead(const struct fanin_local_meeting_config *config,
		     struct fanin_local_meeting *meeting, struct fanin_error *error);
int fanin_local_follow(const struct fanin_local_meeting_config *config,
		       struct fanin_local_meeting *meeting, struct fanin_error *error);

#endif
