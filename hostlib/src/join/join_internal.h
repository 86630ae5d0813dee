/* SPDX-License-Identifier: BSD-3-Clause */
/* Packets of a member that joins and leaves (join_packets.c). join.c decides when to send them. */
#ifndef FANIN_HOSTLIB_JOIN_INTERNAL_H
#define FANIN_HOSTLIB_JOIN_INTERNAL_H

#include "join.h"

/* Maximum of super-frames that are sent to find out whether they pass. */
#define FANIN_JOIN_PAIRS_MAX 4u

/* Sends a control packet, of this version or the one before. Returns 0 or the link's last errno. */
int fanin_member_send(struct fanin_member *member, enum fanin_type type, uint8_t version);

/* Sends JOIN in a super-frame, until it is known whether super-frames pass. */
void fanin_member_send_pair(struct fanin_member *member);

/*
 * Receives one answer of the switch for this job, with the key of its direction, and with a valid
 * tag if the job has tags.
 *
 * errnum: set if the link reports an error. Returns false if there are no more.
 */
bool fanin_member_receive(struct fanin_member *member, struct fanin_control *control, int *errnum);

/* Waits for something to receive, until until_ns at most. */
void fanin_member_wait(struct fanin_member *member, uint64_t until_ns);

#endif
