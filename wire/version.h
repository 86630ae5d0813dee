/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Packets of the previous version. Only the packets for joining a run are understood, so that a
 * host that tries to join with another version gets an answer that says so. See docs/protocol.md,
 * "Versions".
 */
#ifndef FANIN_WIRE_VERSION_H
#define FANIN_WIRE_VERSION_H

#include "wire/wire.h"

#define FANIN_JOIN_ACK_BODY_BEFORE 128

/*
 * Validates a JOIN, a JOIN_ACK or a REFUSED of the previous version, which has shorter bodies, as
 * fanin_wire_validate does for this version.
 *
 * Returns FANIN_REASON_NONE; FANIN_REASON_VERSION for any other type or version; or the first
 * reason found. Thread-safe, reads headers only.
 */
enum fanin_reason fanin_version_validate(const void *frame, size_t frame_len);

/* Returns the sender's version from a REFUSED of the previous version, which answers a JOIN. */
static inline uint16_t
fanin_version_told(const struct fanin_hdr *hdr)
{
	return hdr->type == FANIN_TYPE_REFUSED && hdr->contributions != 0 ? hdr->contributions
									  : hdr->version;
}

#endif
