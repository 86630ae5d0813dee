/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Egress: packets are batched per port and leave at the end of the round or when a buffer is full.
 * What a device does not take waits in order for later rounds. When too much waits, or a device takes nothing for long, frames
 * are dropped and counted: hosts recover by retransmission, as from any other loss.
 */
#include <string.h>

#include <rte_ethdev.h>

#include "pipeline/tx.h"

#include "pipeline/fastpath.h"

/* Each try kicks the kernel, which makes room unless the link itself is stuck. Drivers of our own need no kick. */
#define TX_TRIES 8

/* A link that takes nothing for so long is stuck; what would leave it later is of no use to anybody. */
#define TX_STUCK_NS 1000000000u

static uint16_t
transmit(struct tx_buffer *buffer)
{
	uint16_t sent = 0;

	if (buffer->driver != NULL)
		return buffer->driver->tx_burst(buffer->handle, buffer->mbufs, buffer->n);
	for (unsigned int try = 0; sent < buffer->n && try < TX_TRIES; try++)
		sent = (uint16_t)(sent + rte_eth_tx_burst(buffer->ethdev, buffer->queue,
							  buffer->mbufs + sent,
							  (uint16_t)(buffer->n - sent)));
	return sent;
}

/* Drops the last frames of a buffer. */
static void
drop_last(struct worker *worker, uint16_t port, uint16_t n, enum fanin_reason reason)
{
	struct tx_buffer *buffer = &worker->tx[port];

	worker->counters.ports[port].tx_dropped += n;
	for (; n != 0; n--) {
		struct rte_mbuf *mbuf = buffer->mbufs[--buffer->n];

		buffer->bytes -= mbuf->pkt_len;
		worker_drop(worker, mbuf, reason);
	}
}

/* How many frames may wait for a port, of which n have been sent just now. */
static uint16_t
waiting_room(struct worker *worker, uint16_t port, uint16_t sent)
{
	struct tx_buffer *buffer = &worker->tx[port];
	const unsigned int others = worker->n_tx_waiting - buffer->n_waiting;

	if (port_is_down(worker->pipeline, port))
		return 0;
	if (sent != 0 || buffer->n_waiting == 0)
		buffer->waiting_since_ns = worker->now_ns;
	else if (worker->now_ns - buffer->waiting_since_ns > TX_STUCK_NS)
		return 0;
	return (uint16_t)RTE_MIN(WORKER_TX_WAITING, PIPELINE_TX_WAITING - others);
}

/* What the device has not taken waits for the next round, as far as there is room. */
static __rte_noinline void
keep_unsent(struct worker *worker, uint16_t port, uint16_t sent)
{
	struct tx_buffer *buffer = &worker->tx[port];
	const uint16_t room = waiting_room(worker, port, sent);
	const uint16_t waited = sent < buffer->n_waiting ? (uint16_t)(buffer->n_waiting - sent) : 0;
	uint64_t bytes = 0;

	buffer->n = (uint16_t)(buffer->n - sent);
	memmove(buffer->mbufs, buffer->mbufs + sent, buffer->n * sizeof(buffer->mbufs[0]));
	for (uint16_t i = 0; i < buffer->n; i++)
		bytes += buffer->mbufs[i]->pkt_len;
	worker->counters.ports[port].tx_bytes += buffer->bytes - bytes;
	buffer->bytes = bytes;
	if (buffer->n > room)
		drop_last(worker, port, (uint16_t)(buffer->n - room),
			  port_is_down(worker->pipeline, port) ? FANIN_REASON_PORT_DOWN
							       : FANIN_REASON_TX_FULL);
	if (buffer->n > waited)
		worker->counters.ports[port].tx_delayed += buffer->n - waited;
	worker->n_tx_waiting = (uint16_t)(worker->n_tx_waiting - buffer->n_waiting + buffer->n);
	buffer->n_waiting = buffer->n;
	buffer->full = (uint16_t)(buffer->n + WORKER_TX_BUFFER);
}

void
worker_flush_port(struct worker *worker, uint16_t port)
{
	struct tx_buffer *buffer = &worker->tx[port];
	struct port_counters *counters = &worker->counters.ports[port];
	uint16_t sent = 0;

	if (likely(!port_is_down(worker->pipeline, port))) {
		if (buffer->lock != NULL)
			rte_spinlock_lock(buffer->lock);
		sent = transmit(buffer);
		if (buffer->lock != NULL)
			rte_spinlock_unlock(buffer->lock);
	}
	counters->tx_frames += sent;
	if (unlikely(sent != buffer->n || buffer->n_waiting != 0)) {
		keep_unsent(worker, port, sent);
		return;
	}
	counters->tx_bytes += buffer->bytes;
	buffer->bytes = 0;
	buffer->n = 0;
}

void
worker_release_unsent(struct worker *worker)
{
	for (uint16_t port = 0; port < worker->pipeline->n_ports; port++) {
		struct tx_buffer *buffer = &worker->tx[port];

		rte_pktmbuf_free_bulk(buffer->mbufs, buffer->n);
		buffer->n = buffer->n_waiting = 0;
		buffer->bytes = 0;
		buffer->full = WORKER_TX_BUFFER;
	}
	worker->n_tx_waiting = 0;
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
