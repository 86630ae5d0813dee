/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the benchmarks' hosts send: the data of all hosts of a job with the results that must come
 * back, and the headers of their contributions.
 */
#ifndef FANIN_LAB_REFERENCE_HOSTS_H
#define FANIN_LAB_REFERENCE_HOSTS_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/wire.h"

#define HOSTS_MAX FANIN_WIRE_MAX_CHILDREN
/*
 * Patterns that take turns by block number. No power of two, so that two blocks of one slot differ.
 */
#define HOSTS_PATTERNS 7

/* Data of HOSTS_PATTERNS patterns; exact in any order of the hosts. */
struct hosts_data {
	uint8_t *contributions; /* pattern by pattern, in each of them host by host */
	uint8_t *results;       /* pattern by pattern */
	uint32_t bytes;         /* of one contribution, and of one result */
	uint16_t n_hosts;
};

/*
 * Makes the data of a job's hosts.
 *
 * dtype, op: wire codes of a predefined pair. bytes: whole elements. wide: the job accumulates in
 * f32. seed: jobs with different ones have different data. Returns 0 or -ENOMEM; hosts_data_free
 * undoes it.
 */
int hosts_data_make(struct hosts_data *data, unsigned int dtype, unsigned int op, bool wide,
		    uint16_t n_hosts, uint32_t bytes, uint32_t seed);

void hosts_data_free(struct hosts_data *data);

/* The payload of a host's contribution to a block, and of the block's result; data->bytes long. */
static inline const uint8_t *
hosts_contribution(const struct hosts_data *data, uint16_t host, uint32_t block)
{
	return data->contributions +
	       ((size_t)(block % HOSTS_PATTERNS) * data->n_hosts + host) * data->bytes;
}

static inline const uint8_t *
hosts_result(const struct hosts_data *data, uint32_t block)
{
	return data->results + (size_t)(block % HOSTS_PATTERNS) * data->bytes;
}

/* What the headers of one host's contributions are made of, besides the flow. */
struct hosts_member {
	uint64_t key; /* of what hosts send */
	uint32_t job;
	uint32_t epoch;
	uint32_t bytes; /* of payload */
	uint16_t rank;
	uint8_t dtype; /* wire codes */
	uint8_t op;
};

/* All headers of a contribution to block 0; hosts_headers_set_block makes them those of another. */
void hosts_headers(struct fanin_headers *headers, const struct fanin_flow *flow,
		   const struct hosts_member *member);

/* The UDP source port follows the block, so that RSS spreads blocks and never a block's packets. */
static inline void
hosts_headers_set_block(struct fanin_headers *headers, uint32_t block)
{
	headers->fanin.block = block;
	headers->udp.src_be = __builtin_bswap16((uint16_t)(49152 + block % 1024));
}

#endif
