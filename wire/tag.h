/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tags: message authentication codes over header and payload of a job's packets, for jobs whose
 * hosts share a network with strangers. The code is Poly1305-AES (Bernstein, FSE 2005) with
 * libcrypto's Poly1305 and AES-128. See docs/protocol.md, "Tags".
 *
 * A tagged packet has FANIN_FLAG_TAGGED, and FANIN_TAG_LEN bytes behind its payload: a nonce and
 * the code. The lengths of IPv4 and UDP count them. Taggers add them and take them off; between the
 * two a packet is as one without.
 */
#ifndef FANIN_WIRE_TAG_H
#define FANIN_WIRE_TAG_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/wire.h"

#define FANIN_TAG_NONCE_LEN 16
#define FANIN_TAG_CODE_LEN 16

/* Which key: that of what goes to a parent, or of what comes from it. */
enum fanin_tag_direction {
	FANIN_TAG_UP = FANIN_UP,
	FANIN_TAG_DOWN = FANIN_DOWN,
	FANIN_TAG_DIRECTIONS
};

/* UP for a code that is no type's. */
static inline enum fanin_tag_direction
fanin_tag_direction_of(uint8_t type)
{
	return (enum fanin_tag_direction)fanin_type_direction(type);
}

/*
 * Makes and checks the tags of one job. One thread at a time, of one process: after a fork two
 * would use the same nonces.
 */
struct fanin_tagger;

/*
 * Derives the keys of both directions from the job's secret, and draws a random number that no
 * other tagger has, so that nonces are never used twice. Allocates.
 *
 * tagger: set on success only. Returns 0, -ENOMEM, or -EIO if libcrypto has not got what it takes
 * or there is no random number.
 */
int fanin_tagger_create(uint64_t secret, struct fanin_tagger **tagger);

/* tagger may be NULL. */
void fanin_tagger_destroy(struct fanin_tagger *tagger);

/*
 * True if packets of this type are bound to one start of a switch: see `instance` below. Those by
 * which a run is joined and left are not, as the host does not know the instance yet.
 */
bool fanin_tag_has_instance(uint8_t type);

/*
 * Tags a packet: sets the flag in the header and writes the tag.
 *
 * instance: of the switch that is the packet's receiver or, downwards, its sender: JOIN_ACK tells
 * it. Not used where the type has none. payload: payload_len bytes, of any alignment; NULL if there
 * are none. tag: FANIN_TAG_LEN bytes are written. Returns false if libcrypto failed: the packet
 * must not be sent.
 */
bool fanin_tagger_seal(struct fanin_tagger *tagger, enum fanin_tag_direction direction,
		       uint64_t instance, struct fanin_hdr *hdr, const void *payload,
		       uint32_t payload_len, uint8_t *tag);

/*
 * Checks a packet that has the flag, and clears it. Arguments as above; tag: FANIN_TAG_LEN bytes.
 * Returns false, with nothing changed, if the tag is not of this packet.
 */
bool fanin_tagger_open(struct fanin_tagger *tagger, enum fanin_tag_direction direction,
		       uint64_t instance, struct fanin_hdr *hdr, const void *payload,
		       uint32_t payload_len, const uint8_t *tag);

/*
 * The same of a whole frame, whose payload lies behind its headers with FANIN_TAG_LEN bytes of room
 * behind it. The lengths of IPv4 and UDP grow, and shrink, by as much. Of a frame that is opened
 * they have been compared with its length, and the header is all there.
 */
bool fanin_tagger_seal_frame(struct fanin_tagger *tagger, enum fanin_tag_direction direction,
			     uint64_t instance, struct fanin_headers *headers);
bool fanin_tagger_open_frame(struct fanin_tagger *tagger, enum fanin_tag_direction direction,
			     uint64_t instance, struct fanin_headers *headers);

#endif
