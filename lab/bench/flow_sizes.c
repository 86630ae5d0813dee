/* SPDX-License-Identifier: BSD-3-Clause */
/* See flow_sizes.h. */
#include "lab/bench/flow_sizes.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "lab/reference/random.h"

#define SECOND_NS UINT64_C(1000000000)

const struct flow_size_point flow_size_points[FLOW_SIZE_POINTS] = {
	{ 100, 0 },       { 300, 0.25 },    { 1000, 0.5 },           { 10000, 0.7 },
	{ 100000, 0.85 }, { 300000, 0.91 }, { FLOW_SIZE_CAP, 0.95 },
};

uint32_t
flow_size_at(double quantile)
{
	for (size_t i = 1; i < FLOW_SIZE_POINTS; i++) {
		const struct flow_size_point *from = &flow_size_points[i - 1];
		const struct flow_size_point *to = &flow_size_points[i];

		if (quantile < to->share)
			return (uint32_t)(from->bytes * pow((double)to->bytes / from->bytes,
							    (quantile - from->share) /
								    (to->share - from->share)));
	}
	return FLOW_SIZE_CAP;
}

double
flow_size_mean(void)
{
	double mean = (1 - flow_size_points[FLOW_SIZE_POINTS - 1].share) * FLOW_SIZE_CAP;

	/* The mean of a log-uniform distribution from a to b is (b - a) / ln(b / a). */
	for (size_t i = 1; i < FLOW_SIZE_POINTS; i++) {
		const struct flow_size_point *from = &flow_size_points[i - 1];
		const struct flow_size_point *to = &flow_size_points[i];

		mean += (to->share - from->share) * (to->bytes - from->bytes) /
			log((double)to->bytes / from->bytes);
	}
	return mean;
}

uint64_t
flow_link_bytes(uint32_t bytes)
{
	return bytes + (uint64_t)FLOW_OVERHEAD * ((bytes + FLOW_SEGMENT - 1) / FLOW_SEGMENT);
}

static int
by_time(const void *a, const void *b)
{
	const struct flow_arrival *one = a;
	const struct flow_arrival *other = b;

	return (one->at_ns > other->at_ns) - (one->at_ns < other->at_ns);
}

static int
append(struct flow_schedule *schedule, size_t *room, const struct flow_arrival *flow)
{
	if (schedule->n == *room) {
		struct flow_arrival *flows = realloc(schedule->flows,
						     (2 * *room + 1024) * sizeof(*flows));

		if (flows == NULL)
			return -ENOMEM;
		schedule->flows = flows;
		*room = 2 * *room + 1024;
	}
	schedule->flows[schedule->n++] = *flow;
	return 0;
}

/*
 * Returns the size, or the largest size that takes at most these bytes on a link, at least a packet
 * of one byte.
 */
static uint32_t
size_within(uint32_t bytes, uint64_t link_bytes)
{
	const uint64_t packets = (link_bytes + FLOW_SEGMENT + FLOW_OVERHEAD - 1) /
				 (FLOW_SEGMENT + FLOW_OVERHEAD);

	if (flow_link_bytes(bytes) <= link_bytes)
		return bytes;
	return (uint32_t)(link_bytes - packets * FLOW_OVERHEAD);
}

int
flow_schedule_make(struct flow_schedule *schedule, const struct flow_schedule_options *options)
{
	const uint64_t in_a_second =
		(uint64_t)(options->load * options->rate_mbit * options->n_paths * 1e6 / 8);
	struct random random = random_seed(options->seed);
	size_t room = 0;

	*schedule = (struct flow_schedule){ 0 };
	for (uint32_t second = 0; second < options->seconds; second++) {
		uint64_t left = in_a_second;

		/*
		 * Given the number of arrivals of a Poisson process, each one's time is uniform. A
		 * rest of less than a small packet is left out.
		 */
		while (left > flow_link_bytes(100)) {
			const double quantile = random_u32(&random) / 4294967296.0;
			const struct flow_arrival flow = {
				.bytes = size_within(flow_size_at(quantile), left),
				.path = (uint16_t)random_below(&random, options->n_paths),
				.at_ns = second * SECOND_NS +
					 random_below(&random, (uint32_t)SECOND_NS),
			};

			left -= flow_link_bytes(flow.bytes);
			if (append(schedule, &room, &flow) != 0) {
				flow_schedule_free(schedule);
				return -ENOMEM;
			}
		}
	}
	if (schedule->n != 0)
		qsort(schedule->flows, schedule->n, sizeof(schedule->flows[0]), by_time);
	return 0;
}

void
flow_schedule_free(struct flow_schedule *schedule)
{
	free(schedule->flows);
	*schedule = (struct flow_schedule){ 0 };
}

uint64_t
flow_schedule_offered(const struct flow_schedule *schedule, uint64_t until_ns)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < schedule->n && schedule->flows[i].at_ns < until_ns; i++)
		bytes += flow_link_bytes(schedule->flows[i].bytes);
	return bytes;
}
