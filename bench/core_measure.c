/* SPDX-License-Identifier: BSD-3-Clause */
/* One combination, see core.h: batches through the pipeline and through the bare loop in turns, and their medians. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_malloc.h>

#include "bench/core.h"
#include "bench/core_batches.h"

/* Of one combination, until enough of them are undisturbed. */
#define MOST_BATCHES (4 * MAX_BATCHES)

/* Bytes of the accumulators that one worker uses. */
static size_t
accumulators_size(const struct rig *rig)
{
	return (size_t)rig->n_blocks / rig->options.n_workers * rig->options.payload;
}

/* A worker's lie together: with others' in between, prefetching would make the cores fight for them. */
static uint8_t *
own_accumulators(const struct rig *rig, unsigned int worker, uint8_t *accumulators)
{
	return accumulators + worker * accumulators_size(rig);
}

/* The bare loop over a worker's share of a prepared batch. */
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

/* Each worker touches the accumulators that it will use. */
static uint64_t
clear_accumulators(struct rig *rig, unsigned int worker, void *argument)
{
	memset(own_accumulators(rig, worker, argument), 0, accumulators_size(rig));
	return 0;
}

/* A batch through the bare loop and one through the pipeline. */
static struct batch
take_batch(struct rig *rig, uint8_t *accumulators)
{
	struct batch batch;

	rig_on_workers(rig, clear_accumulators, accumulators);
	rig_prepare(rig);
	batch.calibration = rig_calibrate(rig);
	batch.bare = rig_on_workers(rig, roofline, accumulators);
	batch.calibration = RTE_MAX(batch.calibration, rig_calibrate(rig));
	rig_discard(rig);
	rig_prepare(rig);
	rig_offer(rig);
	batch.calibration = RTE_MAX(batch.calibration, rig_calibrate(rig));
	batch.pipeline = rig_run(rig);
	batch.calibration = RTE_MAX(batch.calibration, rig_calibrate(rig));
	rig_collect(rig);
	return batch;
}

/* Takes batches until enough are undisturbed, which are brought to the front. Returns their number, and that of all in *n. */
static unsigned int
take_batches(struct settings *settings, struct rig *rig, uint8_t *accumulators,
	     struct batch *batches, unsigned int *n)
{
	const uint64_t end = rte_rdtsc() + settings->seconds * rte_get_tsc_hz();
	unsigned int undisturbed;

	/* Two batches, not counted, to warm up. */
	for (unsigned int i = 0; i < 2; i++)
		take_batch(rig, accumulators);
	for (*n = 0; *n < settings->batches; (*n)++)
		batches[*n] = take_batch(rig, accumulators);
	for (;;) {
		undisturbed = batches_undisturbed(batches, *n, &settings->fastest);
		if (undisturbed >= batches_enough(settings->batches) || *n == MOST_BATCHES ||
		    rte_rdtsc() >= end)
			return undisturbed;
		batches[(*n)++] = take_batch(rig, accumulators);
	}
}

void
measure(struct settings *settings, struct row *row)
{
	static struct batch batches[MOST_BATCHES];
	const struct rig_options *options = &settings->rig;
	struct batch chosen, all;
	struct rig rig;
	uint8_t *accumulators;
	unsigned int undisturbed;

	rig_open(&rig, options);
	accumulators = rte_zmalloc("accumulators", options->n_workers * accumulators_size(&rig), 64);
	if (accumulators == NULL) {
		fputs("core-bench: no memory for the accumulators\n", stderr);
		exit(1);
	}
	undisturbed = take_batches(settings, &rig, accumulators, batches, &row->batches);
	row->undisturbed = undisturbed >= batches_enough(settings->batches);
	chosen = batches_median(batches, row->undisturbed ? undisturbed : row->batches);
	all = batches_median(batches, row->batches);
	row->rig = *options;
	row->cycles_per_packet = (double)chosen.pipeline / options->mbufs;
	row->packets_per_s = (double)rte_get_tsc_hz() / row->cycles_per_packet;
	row->roofline_packets_per_s = (double)rte_get_tsc_hz() * options->mbufs / (double)chosen.bare;
	row->ratio_all = (double)all.bare / (double)all.pipeline;
	row->disturbed_share = 1 - (double)undisturbed / row->batches;
	rte_free(accumulators);
	rig_close(&rig);
}
