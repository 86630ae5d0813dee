/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Packets of the version before this one, of which those by which a run is joined are understood:
 * who tries to join with another version is told so. See docs/protocol.md, "Versions".
 */
#ifndef FANIN_WIRE_VERSION_H
#define FANIN_WIRE_VERSION_H

#include "wire/wire.h"

#define FANIN_JOIN_ACK_BODY_BEFORE 128

/*
 * Validates a JOIN, a JOIN_ACK or a REFUSED of the version before, as fanin_wire_validate does
 * those of this one, with its shorter bodies.
 *
 * Returns FANIN_REASON_NONE; FANIN_REASON_VERSION for any other type or version; or the first
 * reason found. Thread-safe, reads headers only.
 */
enum fanin_reason fanin_version_validate(const void *frame, size_t frame_len);

/*
 * The version that a REFUSED of the version before, which is an answer to a JOIN, says that its
 * sender has.
 */
static inline uint16_t
fanin_version_told(const struct fanin_hdr *hdr)
{
	return hdr->type == FANIN_TYPE_REFUSED && hdr->contributions != 0 ? hdr->contributions
									  : hdr->version;
}

#endif
