/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A worker's counters. Each worker has a struct of its own, cache line aligned: the worker writes
 * it; the control thread reads it without synchronisation (each counter is a naturally aligned
 * 64-bit word) and adds the workers up.
 */
#ifndef FANIN_PIPELINE_COUNTERS_H
#define FANIN_PIPELINE_COUNTERS_H

#include <stdint.h>

#include <rte_common.h>

#include "wire/reasons.h"

#define PIPELINE_MAX_PORTS 64

/* Buckets of a histogram: 0, 1, 2-3, 4-7, ..., 4096 and more. */
#define COUNTERS_HISTOGRAM 14

static inline unsigned int
histogram_bucket(uint32_t value)
{
	unsigned int bucket = value == 0 ? 0 : 32 - (unsigned int)__builtin_clz(value);

	return bucket < COUNTERS_HISTOGRAM ? bucket : COUNTERS_HISTOGRAM - 1;
}

struct port_counters {
	uint64_t rx_frames;
	uint64_t rx_bytes;
	uint64_t tx_frames;
	uint64_t tx_bytes;
	uint64_t tx_dropped;
	uint64_t tx_delayed; /* waited because the device did not take them at once, or the rate was
				reached */
	uint64_t ecn_marked; /* frames in which congestion was marked */
};

struct counters {
	uint64_t bursts;      /* polls that brought packets */
	uint64_t empty_polls; /* rounds over all queues that brought none */
	uint64_t packets;
	uint64_t busy_cycles;   /* TSC, rounds that brought packets */
	uint64_t yields;        /* of the core, after rounds without */
	uint64_t sleeps;        /* after more of them */
	uint64_t wakes;         /* of these, ended by a frame */
	uint64_t long_rounds;   /* of WORKER_LONG_ROUND_NS and more; see longest_round_ns */
	uint64_t forwarded;     /* foreign frames to a known port */
	uint64_t flooded;       /* foreign frames to all other ports */
	uint64_t routed;        /* IPv4 packets to a next hop or to a host */
	uint64_t local;         /* ARP, ICMP, JOIN and LEAVE for the switch itself */
	uint64_t handed_over;   /* packets passed to another cluster's queue, or through the own one
				 */
	uint64_t retries;       /* handler calls that found another worker in the way */
	uint64_t retry_wait_ns; /* from a packet's first such call to the one that went through */
	/* Length of the cluster's queue when it was polled: 0, 1, 2-3, 4-7, ... */
	uint64_t queue_lengths[COUNTERS_HISTOGRAM];
	uint64_t queue_sum; /* of all that the histogram counts */
	/*
	 * Packets that wait for a handler, including those of the burst that is about to be
	 * handled.
	 */
	uint64_t input_occupancy[COUNTERS_HISTOGRAM];
	uint64_t input_sum;    /* likewise */
	uint64_t learn_failed; /* source addresses that the full MAC table could not take */
	uint64_t timers;       /* that have expired */
	uint64_t timers_early; /* of these, early, because there were too many */
	uint64_t fault_duplicates;
	uint64_t fault_reorders;
	uint64_t drops[FANIN_REASON_COUNT];
	struct port_counters ports[PIPELINE_MAX_PORTS];
} __rte_cache_aligned;

#endif
