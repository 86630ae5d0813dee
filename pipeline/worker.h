/* SPDX-License-Identifier: BSD-3-Clause */
/* A worker's loop: what a packet passes on its way has a header for each stage. */
#ifndef FANIN_PIPELINE_WORKER_LOOP_H
#define FANIN_PIPELINE_WORKER_LOOP_H

#include "pipeline/base/worker.h"

/*
 * one round: polls every queue once, processes to completion, and flushes.
 * The caller's thread is the worker's for RCU. Returns how many packets there were.
 */
uint16_t worker_round(struct worker *worker);

/*
 * when the worker has something to do although no frame has come: timers, frames that wait to be
 * sent. UINT64_MAX: nothing. For who makes its rounds in virtual time; probes are the pipeline's.
 */
uint64_t worker_due_ns(const struct worker *worker);

/* frees all packets that the worker still has. It makes no more rounds. */
void worker_release(struct worker *worker);

/* an lcore's main function: rounds until the pipeline stops. */
int worker_main(void *worker);

#endif
