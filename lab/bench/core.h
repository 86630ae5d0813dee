/* SPDX-License-Identifier: BSD-3-Clause */
/* The options and the findings of core-bench. */
#ifndef FANIN_LAB_BENCH_CORE_H
#define FANIN_LAB_BENCH_CORE_H

#include "lab/bench/core_rig.h"

#define MAX_BATCHES 4096

/* The options. */
struct settings {
	struct rig_options rig;
	unsigned int batches;
	uint32_t seconds; /* maximum time while there are too few undisturbed batches */
	uint64_t fastest; /* calibration so far; see batches_undisturbed */
	bool all;         /* every combination of the table */
	bool scale;
	uint16_t max_workers; /* for which the EAL was started */
	bool json;
	bool huge;
};

/* The findings of one combination. */
struct row {
	struct rig_options rig;
	double packets_per_s;
	double roofline_packets_per_s;
	double cycles_per_packet;
	double ratio_all;       /* of the medians of all batches */
	double disturbed_share; /* share of the batches that were disturbed */
	unsigned int batches;
	bool undisturbed; /* the medians are those of undisturbed batches; else of all, as too few
			     were undisturbed */
};

/*
 * core_measure.c: measures the combination settings->rig. Main thread, after rig_eal. Exits with an
 * explanation if it can't.
 *
 * settings->fastest: lowered if a calibration was faster.
 */
void measure(struct settings *settings, struct row *row);

#endif
