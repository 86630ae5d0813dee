/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Definitions that the handler `region` shares with its hosts (protocols/region/README.md): the
 * parameters of its jobs, by position, the fields of its packets, and which bytes belong to a
 * region.
 */
#ifndef FANIN_PROTOCOLS_REGION_REGION_H
#define FANIN_PROTOCOLS_REGION_REGION_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/wire.h"

/* Limit of a region's ranks. */
#define FANIN_REGION_RANKS_MAX 64u

enum fanin_region_parameter {
	FANIN_REGION_BASE,  /* first address of the region */
	FANIN_REGION_BYTES, /* length in bytes */
};

/* Kinds of UNICASTs between hosts of a region, in the header's `number`. */
enum fanin_region_kind {
	FANIN_REGION_HAVE = 1,
	FANIN_REGION_FETCH = 2,
	FANIN_REGION_ASK = 3,
};

/* `number` of a WRITE whose sender wants HAVE. */
#define FANIN_REGION_WANTS_HAVE 1u

/* Return the rank that a WRITE or REWRITE is from, and the address of its first byte. */
static inline uint16_t
fanin_region_origin(const struct fanin_hdr *hdr)
{
	return hdr->count;
}

static inline uint64_t
fanin_region_address(const struct fanin_hdr *hdr)
{
	return hdr->members;
}

/* True if all `len` bytes from an address on belong to a region. len: at least one. */
static inline bool
fanin_region_holds(uint64_t base, uint64_t bytes, uint64_t address, uint64_t len)
{
	return len != 0 && address >= base && len <= bytes && address - base <= bytes - len;
}

#endif
