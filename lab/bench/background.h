/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Background traffic in a network of rig/: hosts that send flows of a schedule by DCTCP, or UDP at
 * a fixed rate, whatever else is sent. Every packet is a UDP datagram of FLOW_SEGMENT bytes at
 * most; a sink acknowledges each packet of DCTCP separately. One thread.
 */
#ifndef FANIN_LAB_BENCH_BACKGROUND_H
#define FANIN_LAB_BENCH_BACKGROUND_H

#include "lab/bench/flow_sizes.h"
#include "lab/rig/network.h"

#define BACKGROUND_MAX_PATHS 16

struct background;

/* The two ends of a path's traffic. */
struct background_path {
	struct rig_host *source;
	struct rig_host *sink;
	uint32_t source_ip_be;
	uint32_t sink_ip_be;
};

struct background_stats {
	uint64_t offered;   /* link bytes of the flows that have begun */
	uint64_t delivered; /* link bytes that sinks received, including duplicates */
	uint64_t flows;
	uint64_t done;           /* flows whose segments have all been acknowledged */
	double done_ns;          /* sum of their durations */
	uint64_t received;       /* packets at sinks, including UDP's */
	uint64_t received_flows; /* the same without UDP's */
	uint64_t marked;         /* those of them with CE */
	uint64_t timeouts;
};

/*
 * Creates sources and sinks on these paths. The background owns their hosts from now on. Returns
 * NULL without memory.
 */
struct background *background_create(struct rig *rig, const struct background_path *paths,
				     uint16_t n_paths);

/* Frees it. May be NULL. The rig keeps the hosts, which must not be called any more. */
void background_destroy(struct background *background);

/*
 * Begins the flows of a schedule at this time. rate_mbit: 0: by DCTCP; else by UDP, each path's
 * flows one after the other at this rate, whatever is lost. schedule: borrowed until the end; in
 * the order of flow_schedule_make. May be called once.
 *
 * Returns 0 or -ENOMEM.
 */
int background_flows(struct background *background, const struct flow_schedule *schedule,
		     uint64_t begin_ns, uint32_t rate_mbit);

/* Sends UDP on a path, at this rate in Mbit/s on the link, between two times. */
void background_udp(struct background *background, uint16_t path, uint32_t rate_mbit,
		    uint64_t begin_ns, uint64_t end_ns);

const struct background_stats *background_stats(const struct background *background);

/* Returns the link bytes that the sink of a path has received. */
uint64_t background_delivered(const struct background *background, uint16_t path);

#endif
