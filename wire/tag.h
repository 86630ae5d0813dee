/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tags: message authentication codes over header and payload of a job's packets, for jobs in
 * networks with untrusted hosts. The code is Poly1305-AES (Bernstein, FSE 2005) with libcrypto's
 * Poly1305 and AES-128. See docs/protocol.md, "Tags".
 *
 * A tagged packet has FANIN_FLAG_TAGGED, and FANIN_TAG_LEN bytes behind its payload: a nonce and
 * the code. The lengths of IPv4 and UDP count them. Taggers add and remove tags; all other code
 * sees packets as if they had none.
 */
#ifndef FANIN_WIRE_TAG_H
#define FANIN_WIRE_TAG_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/wire.h"

#define FANIN_TAG_NONCE_LEN 16
#define FANIN_TAG_CODE_LEN 16

/* Selects the key: for packets to a parent, or from it. */
enum fanin_tag_direction {
	FANIN_TAG_UP = FANIN_UP,
	FANIN_TAG_DOWN = FANIN_DOWN,
	FANIN_TAG_DIRECTIONS
};

/* Returns a type's direction; UP for an unknown code. */
static inline enum fanin_tag_direction
fanin_tag_direction_of(uint8_t type)
{
	return (enum fanin_tag_direction)fanin_type_direction(type);
}

/*
 * Makes and checks the tags of one job. For one thread at a time, in one process: after a fork two
 * processes would use the same nonces.
 */
struct fanin_tagger;

/*
 * Derives the keys of both directions from the job's secret, and draws a random number that no
 * other tagger has, so that nonces are never used twice. Allocates.
 *
 * tagger: set on success only. Returns 0, -ENOMEM, or -EIO if libcrypto lacks the algorithms or
 * there is no random number.
 */
int fanin_tagger_create(uint64_t secret, struct fanin_tagger **tagger);

/* tagger may be NULL. */
void fanin_tagger_destroy(struct fanin_tagger *tagger);

/*
 * Returns true if packets of this type are bound to one start of a switch: see `instance` below.
 * Packets by which a run is joined and left are not, as the host does not know the instance yet.
 */
bool fanin_tag_has_instance(uint8_t type);

/*
 * Tags a packet: sets the flag in the header and writes the tag.
 *
 * instance: of the switch that receives the packet or, downwards, sends it, from JOIN_ACK. Not used
 * for types without an instance. payload: payload_len bytes, any alignment; NULL if there are none.
 * tag: FANIN_TAG_LEN bytes are written. Returns false if libcrypto failed: the packet must not be
 * sent.
 */
bool fanin_tagger_seal(struct fanin_tagger *tagger, enum fanin_tag_direction direction,
		       uint64_t instance, struct fanin_hdr *hdr, const void *payload,
		       uint32_t payload_len, uint8_t *tag);

/*
 * Checks a packet that has the flag, and clears it. Arguments as above; tag: FANIN_TAG_LEN bytes.
 * Returns false, with nothing changed, if the tag does not belong to this packet.
 */
bool fanin_tagger_open(struct fanin_tagger *tagger, enum fanin_tag_direction direction,
		       uint64_t instance, struct fanin_hdr *hdr, const void *payload,
		       uint32_t payload_len, const uint8_t *tag);

/*
 * The same for a whole frame, whose payload follows its headers, with FANIN_TAG_LEN bytes of room
 * after it. The lengths of IPv4 and UDP grow or shrink by FANIN_TAG_LEN. Before a frame is opened,
 * the caller has checked these lengths against the frame's, and that the frame has the whole
 * header.
 */
bool fanin_tagger_seal_frame(struct fanin_tagger *tagger, enum fanin_tag_direction direction,
			     uint64_t instance, struct fanin_headers *headers);
bool fanin_tagger_open_frame(struct fanin_tagger *tagger, enum fanin_tag_direction direction,
			     uint64_t instance, struct fanin_headers *headers);

#endif
