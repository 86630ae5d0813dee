/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Egress: packets are batched per port and leave at the end of the round or when a buffer is full.
 * What a transmit ring does not take after a few tries is dropped and counted: hosts recover by
 * retransmission, as from any other loss.
 */
#include <rte_ethdev.h>

#include "pipeline/worker.h"

#include "pipeline/fastpath.h"

/* Each try kicks the kernel, which makes room unless the link itself is stuck. */
#define TX_TRIES 8

void
worker_flush_port(struct worker *worker, uint16_t port)
{
	struct tx_buffer *buffer = &worker->tx[port];
	struct port_counters *counters = &worker->counters.ports[port];
	bool down = port_is_down(worker->pipeline, port);
	unsigned int tries = down ? 0 : TX_TRIES;
	uint16_t sent = 0;

	if (buffer->lock != NULL)
		rte_spinlock_lock(buffer->lock);
	for (unsigned int try = 0; sent < buffer->n && try < tries; try++) {
		sent = (uint16_t)(sent + rte_eth_tx_burst(buffer->ethdev, buffer->queue,
							  buffer->mbufs + sent,
							  (uint16_t)(buffer->n - sent)));
	}
	if (buffer->lock != NULL)
		rte_spinlock_unlock(buffer->lock);
	counters->tx_frames += sent;
	for (uint16_t i = sent; i < buffer->n; i++) {
		buffer->bytes -= buffer->mbufs[i]->pkt_len;
		counters->tx_dropped++;
		worker_drop(worker, buffer->mbufs[i],
			    down ? FANIN_REASON_PORT_DOWN : FANIN_REASON_TX_FULL);
	}
	counters->tx_bytes += buffer->bytes;
	buffer->bytes = 0;
	buffer->n = 0;
}

void
worker_free_garbage(struct worker *worker)
{
	if (worker->n_garbage == 0)
		return;
	rte_mempool_put_bulk(worker->garbage_pool, (void **)worker->garbage, worker->n_garbage);
	worker->n_garbage = 0;
}

void
worker_send_faulty(struct worker *worker, uint16_t port, struct rte_mbuf *mbuf)
{
	switch (faults_draw(&worker->faults)) {
	case FAULT_DROP:
		worker_drop(worker, mbuf, FANIN_REASON_FAULT_DROP);
		return;
	case FAULT_DUPLICATE:
		worker->counters.fault_duplicates++;
		rte_pktmbuf_refcnt_update(mbuf, 1);
		worker_send(worker, port, mbuf);
		break;
	case FAULT_REORDER:
		if (faults_hold(&worker->faults, mbuf, port)) {
			worker->counters.fault_reorders++;
			return;
		}
		break;
	case FAULT_NONE:
		break;
	}
	worker_send(worker, port, mbuf);
}

void
worker_flush(struct worker *worker)
{
	for (uint16_t port = 0; port < worker->pipeline->n_ports; port++) {
		if (worker->tx[port].n != 0)
			worker_flush_port(worker, port);
	}
}
