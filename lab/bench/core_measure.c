/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Measures one combination, see core.h: batches through the pipeline and through the bare loop in
 * turns, and their medians.
 */
#include <stdio.h>
#include <stdlib.h>

#include <rte_cycles.h>
#include <rte_malloc.h>

#include "lab/bench/core.h"
#include "lab/bench/core_batches.h"

/* Maximum of batches for one combination, if too few are undisturbed. */
#define MAX_BATCHES_DISTURBED (4 * MAX_BATCHES)

/* Runs a batch through the bare loop and one through the pipeline. */
static struct batch
take_batch(struct rig *rig, uint8_t *accumulators)
{
	struct batch batch;

	rig_bare_clear(rig, accumulators);
	rig_prepare(rig);
	batch.calibration = rig_calibrate(rig);
	batch.bare = rig_bare(rig, accumulators);
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

/*
 * Takes batches until enough are undisturbed, and moves these to the front. Returns their number,
 * and sets *n to the number of all batches.
 */
static unsigned int
take_batches(struct settings *settings, struct rig *rig, uint8_t *accumulators,
	     struct batch *batches, unsigned int *n)
{
	const uint64_t end = rte_rdtsc() + settings->seconds * rte_get_tsc_hz();
	unsigned int undisturbed;

	/* Two batches to warm up do not count. */
	for (unsigned int i = 0; i < 2; i++)
		take_batch(rig, accumulators);
	for (*n = 0; *n < settings->batches; (*n)++)
		batches[*n] = take_batch(rig, accumulators);
	for (;;) {
		undisturbed = batches_undisturbed(batches, *n, &settings->fastest);
		if (undisturbed >= batches_enough(settings->batches) ||
		    *n == MAX_BATCHES_DISTURBED || rte_rdtsc() >= end)
			return undisturbed;
		batches[(*n)++] = take_batch(rig, accumulators);
	}
}

void
measure(struct settings *settings, struct row *row)
{
	static struct batch batches[MAX_BATCHES_DISTURBED];
	const struct rig_options *options = &settings->rig;
	struct batch chosen, all;
	struct rig rig;
	uint8_t *accumulators;
	unsigned int undisturbed;

	rig_open(&rig, options);
	accumulators = rte_zmalloc("accumulators", rig_bare_size(&rig), 64);
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
	row->roofline_packets_per_s = (double)rte_get_tsc_hz() * options->mbufs /
				      (double)chosen.bare;
	row->ratio_all = (double)all.bare / (double)all.pipeline;
	row->disturbed_share = 1 - (double)undisturbed / row->batches;
	rte_free(accumulators);
	rig_close(&rig);
}
