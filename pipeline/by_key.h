/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Packets of jobs that admit by key, a burst at a time: each is looked at once, and those that all
 * is right about wait for their handler together, so that what it needs can be fetched. All others
 * take the long way, where each fault has its reason. Worker only.
 */
#ifndef FANIN_PIPELINE_BY_KEY_H
#define FANIN_PIPELINE_BY_KEY_H

#include "pipeline/aggregate.h"

/*
 * Takes a frame that is all right, for a job that admits by key: it joins the batch, or goes to the
 * worker that its block belongs to.
 *
 * batch: of such packets alone, with room for one. Returns false if the frame is something else, or
 * wrong: it stays the caller's.
 */
bool by_key_take(struct worker *worker, struct batch *batch, struct rte_mbuf *mbuf);

/*
 * May the port bring another packet for jobs that admit by key now? They have a constant rate, from
 * which bursts may deviate (the virtual scheduling algorithm of ITU-T I.371). One that may is
 * counted.
 */
bool by_key_is_within_rate(struct worker *worker, uint16_t port);

#endif
