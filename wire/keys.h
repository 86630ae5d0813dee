/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The keys that a job's packets carry, one for each direction. They are derived from the job's own
 * key by a one-way function, so that a reader of the packets of one direction can't send in the
 * other. See docs/protocol.md, Keys.
 */
#ifndef FANIN_WIRE_KEYS_H
#define FANIN_WIRE_KEYS_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/wire.h"

struct fanin_keys {
	uint64_t up;   /* packets whose type goes up */
	uint64_t down; /* packets whose type goes down, except PROBE to hosts and REFUSED to
			  non-members */
	uint64_t ring; /* between the hosts of a ring */
};

/*
 * Derives the keys of a job: the first eight bytes of HMAC-SHA256 (RFC 2104) with the secret, in
 * the byte order of packets, over "fanin up", "fanin down" and "fanin ring". Allocates, so use it
 * only when a job is made or joined.
 *
 * keys: set on success only. Returns 0 or -ENOMEM. Thread-safe.
 */
int fanin_keys_derive(uint64_t secret, struct fanin_keys *keys);

/*
 * Returns true if an answer of the switch, a valid packet, carries the expected key: the down key,
 * or if it refuses its receiver as a sender, the key that the receiver sent.
 */
static inline bool
fanin_keys_fit_answer(const struct fanin_keys *keys, const struct fanin_hdr *hdr)
{
	return hdr->key == keys->down || (hdr->key == keys->up && fanin_wire_refuses_sender(hdr));
}

#endif
