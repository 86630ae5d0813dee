/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Packets of a member that joins and leaves (join_packets.c), for who knows when they are due
 * (join.c).
 */
#ifndef FANIN_HOSTLIB_JOIN_INTERNAL_H
#define FANIN_HOSTLIB_JOIN_INTERNAL_H

#include "join.h"

/* Super-frames that are sent to find out whether they pass. */
#define FANIN_JOIN_PAIRS_MAX 4u

/*
 * Sends a control packet, of this version or the one before. Returns 0 or the errno last reported
 * by the link.
 */
int fanin_member_send(struct fanin_member *member, enum fanin_type type, uint8_t version);

/* Sends JOIN in a super-frame, as long as it is not known whether they pass. */
void fanin_member_send_pair(struct fanin_member *member);

/*
 * Receives one answer of the switch for this job, with the key of its direction, and its tag if it
 * must have one.
 *
 * errnum: set if the link reports an error. Returns false if there is no more.
 */
bool fanin_member_receive(struct fanin_member *member, struct fanin_control *control, int *errnum);

/* Waits for something to receive, until until_ns at most. */
void fanin_member_wait(struct fanin_member *member, uint64_t until_ns);

#endif
