/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Egress: frames are queued per port and leave together. Worker only.
 */
#ifndef FANIN_PIPELINE_TX_H
#define FANIN_PIPELINE_TX_H

#include "pipeline/base/worker.h"

/* Sends what is queued for a port (index). */
void worker_flush_port(struct worker *worker, uint16_t port);

/* Queues one reference of an mbuf for a port (index); flushes when the buffer is full. */
static inline void
worker_send(struct worker *worker, uint16_t port, struct rte_mbuf *mbuf)
{
	struct tx_buffer *buffer = &worker->tx[port];

	buffer->bytes += mbuf->pkt_len;
	buffer->mbufs[buffer->n++] = mbuf;
	if (unlikely(buffer->n == buffer->full))
		worker_flush_port(worker, port);
}

/* Like worker_send, through the fault injector. */
void worker_send_faulty(struct worker *worker, uint16_t port, struct rte_mbuf *mbuf);

/* Like worker_send, for Fanin packets: through the fault injector if it is enabled. */
static inline void
worker_send_fanin(struct worker *worker, uint16_t port, struct rte_mbuf *mbuf)
{
	if (likely(!worker->faults.enabled))
		worker_send(worker, port, mbuf);
	else
		worker_send_faulty(worker, port, mbuf);
}

/* Sends what is queued. */
void worker_flush(struct worker *worker);

/* Frees what waits for devices to take it, as the worker ends. */
void worker_release_unsent(struct worker *worker);

#endif
