/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The limits of a port's egress queue: a rate (token bucket), bytes and frames that may wait, and
 * the backlog from which on frames that allow it are marked (ECN, RFC 3168; the step marking of
 * DCTCP, RFC 8257). The queue itself, one per worker, is in tx.c; limits apply to the sum over all
 * workers.
 */
#ifndef FANIN_PIPELINE_EGRESS_H
#define FANIN_PIPELINE_EGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include <rte_mbuf.h>

#include "pipeline/base/worker.h"

/* Default limits of a port's queue: frames, and a time at the port's rate. */
#define EGRESS_FRAMES 256u
#define EGRESS_BUCKET_US 4000u

/*
 * Frames that may wait for a port which has a rate or `queue_bytes`. Half of a queue's bytes in
 * frames of full length fill it, so that small frames can't take all buffers there are. 0: the port
 * has none, and shares PIPELINE_TX_WAITING of each worker with others.
 *
 * Any thread.
 */
uint16_t egress_frames(const struct pipeline_egress *options, uint16_t mtu);

/* Fills in what the configuration of a port leaves open. Before the workers start. */
void egress_init(struct egress *egress, const struct pipeline_egress *options, uint16_t mtu);

/*
 * Returns how many of n frames may leave now by the port's rate; their bytes are taken from the
 * bucket. A frame leaves if the bucket is not empty; the rest of its bytes becomes a debt of the
 * bucket. The port's lock is held if workers share it.
 */
uint16_t egress_take(struct egress *egress, uint64_t now_ns, struct rte_mbuf *const *mbufs,
		     uint16_t n);

/*
 * Returns the time from which on the bucket is not empty, by its state at credit_ns. The lock is
 * held as for egress_take.
 */
uint64_t egress_due_ns(const struct egress *egress);

/* Gives back the bytes of n frames that the device did not take. The lock as above. */
void egress_give_back(struct egress *egress, struct rte_mbuf *const *mbufs, uint16_t n);

/*
 * Sets "congestion experienced" in a frame of IPv4 or IPv6, in a VLAN or not, if its sender allows
 * that. A frame that others also use is first copied into mbufs of the pool: then *mbuf is set to
 * the copy. Worker.
 *
 * Returns true if the frame is marked now and was not before; false also if there is no mbuf for
 * the copy.
 */
bool egress_mark(struct rte_mbuf **mbuf, struct rte_mempool *pool);

/*
 * Returns the bytes that wait for a port in all workers, and their frames in *frames unless that is
 * NULL. Any thread.
 */
uint64_t egress_backlog(const struct pipeline *pipeline, uint16_t port, uint32_t *frames);

/*
 * Returns true if a port's backlog is so large that a frame which may choose its route takes
 * another one (Canary section 3.1: the default next hop as long as it is not congested). Any
 * thread.
 */
bool egress_is_congested(const struct pipeline *pipeline, uint16_t port, uint64_t backlog);

#endif
