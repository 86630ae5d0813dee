/* SPDX-License-Identifier: BSD-3-Clause */
/* A worker's loop. Each stage that a packet passes has a header of its own. */
#ifndef FANIN_PIPELINE_WORKER_LOOP_H
#define FANIN_PIPELINE_WORKER_LOOP_H

#include "pipeline/base/worker.h"

/*
 * One round: polls every queue once, processes to completion, and flushes. The calling thread is
 * the worker's for RCU. Returns the number of packets.
 */
uint16_t worker_round(struct worker *worker);

/*
 * Returns when the worker has something to do without a new frame: a timer, or frames that wait to
 * be sent. UINT64_MAX: nothing. For callers that run rounds in virtual time; probes belong to the
 * pipeline.
 */
uint64_t worker_due_ns(const struct worker *worker);

/* Frees all packets that the worker still has. It makes no more rounds. */
void worker_release(struct worker *worker);

/* An lcore's main function: runs rounds until the pipeline stops. */
int worker_main(void *worker);

#endif
