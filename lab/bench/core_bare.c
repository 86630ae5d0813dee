/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The bare loop that the pipeline is compared with, see core_rig.h: the necessary work on the
 * packets' elements, and nothing else.
 */
#include <string.h>

#include <rte_cycles.h>

#include "lab/bench/core_rig.h"

/* Returns the bytes of the accumulators that one worker uses. */
static size_t
accumulators_size(const struct rig *rig)
{
	return (size_t)rig->n_blocks / rig->options.n_workers * rig->options.payload;
}

size_t
rig_bare_size(const struct rig *rig)
{
	return rig->options.n_workers * accumulators_size(rig);
}

/*
 * Returns a worker's accumulators, which are contiguous: with another worker's in between,
 * prefetching would make the cores compete for cache lines.
 */
static uint8_t *
own_accumulators(const struct rig *rig, unsigned int worker, uint8_t *accumulators)
{
	return accumulators + worker * accumulators_size(rig);
}

/* Runs the bare loop over a worker's share of the batch. */
static uint64_t
roofline(struct rig *rig, unsigned int worker, void *argument)
{
	const struct rig_options *options = &rig->options;
	const fanin_kernel_fn combine = fanin_kernel(options->isa, options->dtype, options->op);
	const size_t count = options->payload / fanin_dtype_size(options->dtype);
	struct rte_mbuf **const mbufs = rig_mbufs(rig, worker);
	const uint32_t n = rig_share(rig);
	uint8_t *accumulators = own_accumulators(rig, worker, argument);
	uint64_t start = rte_rdtsc();

	for (uint32_t i = 0; i < n; i++) {
		const struct fanin_headers *headers =
			rte_pktmbuf_mtod(mbufs[i], const struct fanin_headers *);
		uint32_t block = rig_block_index(rig, &headers->fanin);

		combine(accumulators + (size_t)block * options->payload, headers + 1, count);
	}
	return rte_rdtsc() - start;
}

uint64_t
rig_bare(struct rig *rig, uint8_t *accumulators)
{
	return rig_on_workers(rig, roofline, accumulators);
}

static uint64_t
clear_accumulators(struct rig *rig, unsigned int worker, void *argument)
{
	memset(own_accumulators(rig, worker, argument), 0, accumulators_size(rig));
	return 0;
}

void
rig_bare_clear(struct rig *rig, uint8_t *accumulators)
{
	rig_on_workers(rig, clear_accumulators, accumulators);
}
