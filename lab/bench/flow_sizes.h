/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Background traffic of `./dev bench stragglers`: flows with sizes as in a Hadoop cluster, Poisson
 * arrivals, and the same schedule for the same seed, whatever runs beside it.
 *
 * Sizes: Roy, Zeng, Bagga, Porter and Snoeren, "Inside the Social Network's (Datacenter) Network"
 * (SIGCOMM 2015), describe those of Hadoop hosts in words: the median flow sends less than 1 KB,
 * 70 % send less than 10 KB, and less than 5 % more than 1 MB. flow_size_points has these three;
 * the lower end and the two points between 10 KB and 1 MB are ours. Between points the logarithm of
 * the size is distributed uniformly. Flows are cut at 1 MB.
 */
#ifndef FANIN_LAB_BENCH_FLOW_SIZES_H
#define FANIN_LAB_BENCH_FLOW_SIZES_H

#include <stddef.h>
#include <stdint.h>

/* Data of a flow's packets, and the overhead of a packet on the link. */
#define FLOW_SEGMENT 1024u
#define FLOW_OVERHEAD 58u

struct flow_size_point {
	uint32_t bytes;
	double share; /* share of the flows that are no larger */
};

#define FLOW_SIZE_POINTS 7
#define FLOW_SIZE_CAP 1000000u

extern const struct flow_size_point flow_size_points[FLOW_SIZE_POINTS];

/* Returns the size of the flow at this quantile, 0 to 1. */
uint32_t flow_size_at(double quantile);

/* Returns the mean size, bytes. */
double flow_size_mean(void);

/* Returns the bytes that a flow takes on a link. */
uint64_t flow_link_bytes(uint32_t bytes);

struct flow_arrival {
	uint64_t at_ns; /* since the beginning of the schedule */
	uint32_t bytes;
	uint16_t path;
};

struct flow_schedule {
	struct flow_arrival *flows; /* in order of time */
	size_t n;
};

struct flow_schedule_options {
	uint64_t seed;
	double load;        /* share of the paths' rate that the flows take together */
	uint32_t rate_mbit; /* of a path */
	uint16_t n_paths;
	uint32_t seconds;
};

/*
 * Makes a schedule. In each second arrivals are a Poisson process whose flows add up to the load:
 * the last one is cut to fit. So the load is exact over any whole seconds, even with heavy tails.
 * Each flow takes a random path.
 *
 * Returns 0 or -ENOMEM.
 */
int flow_schedule_make(struct flow_schedule *schedule, const struct flow_schedule_options *options);

void flow_schedule_free(struct flow_schedule *schedule);

/* Returns the link bytes of the flows that begin before this time. */
uint64_t flow_schedule_offered(const struct flow_schedule *schedule, uint64_t until_ns);

#endif
