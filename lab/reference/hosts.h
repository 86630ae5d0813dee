/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The data that the benchmarks' hosts send: the data of all hosts of a job with the expected
 * results, and the headers of their contributions.
 */
#ifndef FANIN_LAB_REFERENCE_HOSTS_H
#define FANIN_LAB_REFERENCE_HOSTS_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/wire.h"

#define HOSTS_MAX FANIN_WIRE_MAX_CHILDREN
/*
 * Number of patterns, which take turns by block number. It is not a power of two, so that two
 * blocks of one slot differ.
 */
#define HOSTS_PATTERNS 7

/* Data of HOSTS_PATTERNS patterns; exact in any order of the hosts. */
struct hosts_data {
	uint8_t *contributions; /* by pattern, and within a pattern by host */
	uint8_t *results;       /* by pattern */
	uint32_t bytes;         /* of one contribution, and of one result */
	uint16_t n_hosts;
};

/*
 * Makes the data of a job's hosts.
 *
 * dtype, op: wire codes of a predefined pair. bytes: whole elements. wide: the job accumulates in
 * f32. seed: different seeds give different data. Returns 0 or -ENOMEM; hosts_data_free undoes it.
 */
int hosts_data_make(struct hosts_data *data, unsigned int dtype, unsigned int op, bool wide,
		    uint16_t n_hosts, uint32_t bytes, uint32_t seed);

void hosts_data_free(struct hosts_data *data);

/*
 * Return the payload of a host's contribution to a block, and that of the block's result;
 * data->bytes long.
 */
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

/* The fields of the headers of one host's contributions, besides the flow. */
struct hosts_member {
	uint64_t key; /* of packets that hosts send */
	uint32_t job;
	uint32_t epoch;
	uint32_t bytes; /* of payload */
	uint16_t rank;
	uint8_t dtype; /* wire codes */
	uint8_t op;
};

/* Writes all headers of a contribution to block 0; hosts_headers_set_block changes the block. */
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
