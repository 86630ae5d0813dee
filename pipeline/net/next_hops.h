/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Watches which next hops are alive. Each next hop is asked by ARP again and again, by unicast to
 * its MAC address. After some requests in a row without an answer it is dead: workers use the
 * others until it answers. The main thread has the timers and judges; workers send requests and
 * note answers. Time in which the switch's own threads did not run does not count: a request is
 * missed only if it left, and if each worker has since emptied the port's queues in a round that
 * began late enough.
 */
#ifndef FANIN_PIPELINE_NET_NEXT_HOPS_H
#define FANIN_PIPELINE_NET_NEXT_HOPS_H

#include <stdbool.h>
#include <stdint.h>

#include "pipeline/base/state.h"
#include "pipeline/net/mac_table.h"

#define NEXT_HOPS_PROBE_NS UINT64_C(50000000) /* between requests to one next hop */
#define NEXT_HOPS_PROBE_MISSES 4u
/*
 * A next hop is dead after this long without an answer, even if no request could be judged. Time in
 * which the main thread was away does not count.
 */
#define NEXT_HOPS_SILENCE_NS UINT64_C(4000000000)

struct next_hops;

/* A next hop, as next_hops_each reports it. */
struct next_hop_info {
	unsigned int index; /* among all; does not change */
	uint32_t ip_be;
	uint16_t port;     /* index */
	mac_key mac;       /* 0: unknown */
	bool link;         /* of its port */
	uint64_t since_ns; /* when `mac` became known or unknown */
	uint64_t lost;     /* how often it was found dead */
	uint64_t changes;  /* of whether the MAC address is known */
	uint64_t requests; /* that were sent to it */
	uint64_t missed;   /* of these, without an answer in time */
};

/*
 * interval_ns: between requests to one next hop. misses: in a row, after which it is dead.
 * pipeline: with its routes; borrowed. Returns NULL without memory. Main thread, before the workers
 * start.
 */
struct next_hops *next_hops_create(struct pipeline *pipeline, uint64_t interval_ns,
				   unsigned int misses);

/* May be NULL. */
void next_hops_free(struct next_hops *hops);

/*
 * Judges and asks all next hops if it is time.
 *
 * Returns when it is time again; UINT64_MAX: there are no next hops. Main thread.
 */
uint64_t next_hops_watch(struct next_hops *hops, uint64_t now_ns);

/* Returns the number of next hops, which does not change. Main thread. */
unsigned int next_hops_count(const struct next_hops *hops);

/* Calls visit for each next hop, each once, in the order of their indices. Main thread. */
void next_hops_each(const struct next_hops *hops,
		    void (*visit)(void *user, const struct next_hop_info *info), void *user);

#endif
