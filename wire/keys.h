/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The keys that a job's packets carry, one for each direction. They are derived from the job's own key by a one-way
 * function, so that whoever reads the packets of one direction can't speak in the other. See docs/protocol.md, Keys.
 */
#ifndef FANIN_WIRE_KEYS_H
#define FANIN_WIRE_KEYS_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/wire.h"

struct fanin_keys {
	uint64_t up;   /* JOIN, LEAVE, CONTRIBUTION, KNOWN, QUERY and PROBE_ACK */
	uint64_t down; /* JOIN_ACK, LEAVE_ACK, RESULT, ANSWER, PROBE and REFUSED to members */
	uint64_t ring; /* between the hosts of a ring */
};

/*
 * Derives the keys of a job: the first eight bytes of HMAC-SHA256 (RFC 2104) with the secret, in the byte order of packets,
 * over "fanin up", "fanin down" and "fanin ring". For when a job is made or joined: it allocates.
 *
 * keys: set on success only. Returns 0 or -ENOMEM. Thread-safe.
 */
int fanin_keys_derive(uint64_t secret, struct fanin_keys *keys);

/*
 * True if an answer of the switch, a valid packet, carries the key that it has to. A switch that does not take the sender
 * for a member, or that does not have the job, knows no key to answer with: such a REFUSED gives back the one that came.
 */
static inline bool
fanin_keys_fit_answer(const struct fanin_keys *keys, const struct fanin_hdr *hdr)
{
	return hdr->key == keys->down || (hdr->key == keys->up && hdr->type == FANIN_TYPE_REFUSED &&
					  fanin_reason_is_of_sender(hdr->count));
}

#endif
