/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Packets of jobs that admit by key, a burst at a time. Each packet is checked once. Packets that
 * pass wait for their handler together, so that the memory which it needs can be prefetched. All
 * others take the slow path, where each fault has its own reason. Worker only.
 */
#ifndef FANIN_PIPELINE_BY_KEY_H
#define FANIN_PIPELINE_BY_KEY_H

#include "pipeline/aggregate.h"

/*
 * Takes a valid frame for a job that admits by key: adds it to the batch, or hands it to the worker
 * that its block belongs to.
 *
 * batch: of such packets only, with room for one more. Returns false if the frame is something
 * else, or invalid: then the caller keeps it.
 */
bool by_key_take(struct worker *worker, struct batch *batch, struct rte_mbuf *mbuf);

/*
 * Returns true, and counts the packet, if the port may deliver another packet for jobs that admit
 * by key now. The rate is constant, and bursts may deviate from it (the virtual scheduling
 * algorithm of ITU-T I.371).
 */
bool by_key_is_within_rate(struct worker *worker, uint16_t port);

#endif
