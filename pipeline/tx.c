/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Egress: packets are batched per port and leave at the end of the round or when a buffer is full.
 * What a device does not take waits in order for later rounds. When too much waits, or a device takes nothing for long, frames
 * are dropped and counted: hosts recover by retransmission, as from any other loss.
 *
 * A driver may refuse one frame always and take others: the kernel has the same error for a full queue and for a frame that is longer
 * than the MTU of a veth's other end. Now and then a frame from behind is let by. If several leave while the first one is refused before
 * and after each of them, that one is dropped, too, and others of its length no longer wait.
 */
#include <string.h>

#include <rte_ethdev.h>

#include "pipeline/tx.h"

#include "pipeline/fastpath.h"

/* Each try kicks the kernel, which makes room unless the link itself is stuck. Drivers of our own need no kick. */
#define TX_TRIES 8

/* A link that takes nothing for so long is stuck; what would leave it later is of no use to anybody. */
#define TX_STUCK_NS 1000000000u

/*
 * Frames that are let by before the first one is dropped, and how far apart. A queue may count bytes: it has room for a short frame long
 * before it has room for a long one. On a link of 1 Mbit/s the first one's room comes in such an interval, in which it is offered each
 * round and nothing else is; so links that are only slow keep the order. Frames of more than 12.5 KB have no more time.
 */
#define TX_PASS_MAX 4
#define TX_PASS_NS 1000000u
#define TX_PASS_NS_PER_BYTE 8000u
#define TX_PASS_MOST_NS 100000000u

/* Gives a driver n frames, from this one on. Frames that are known to be refused no longer are as soon as one of them is taken. */
static uint16_t
driver_transmit(struct tx_buffer *buffer, uint16_t first, uint16_t n)
{
	struct rte_mbuf **mbufs = buffer->mbufs + first;
	uint16_t n_short = 0;
	uint16_t sent;

	if (likely(buffer->refusal.never_len == 0))
		return buffer->driver->tx_burst(buffer->handle, mbufs, n);
	while (n_short < n && mbufs[n_short]->pkt_len < buffer->refusal.never_len)
		n_short++;
	sent = buffer->driver->tx_burst(buffer->handle, mbufs, n);
	if (sent > n_short)
		buffer->refusal.never_len = 0;
	return sent;
}

static uint16_t
transmit(struct tx_buffer *buffer)
{
	uint16_t sent = 0;

	if (buffer->driver != NULL)
		return driver_transmit(buffer, 0, buffer->n);
	for (unsigned int try = 0; sent < buffer->n && try < TX_TRIES; try++)
		sent = (uint16_t)(sent + rte_eth_tx_burst(buffer->ethdev, buffer->queue,
							  buffer->mbufs + sent,
							  (uint16_t)(buffer->n - sent)));
	return sent;
}

/* Takes n frames, from this one on, out of the buffer and of what waits. Their mbufs have another owner now. */
static void
remove_frames(struct worker *worker, struct tx_buffer *buffer, uint16_t first, uint16_t n)
{
	const uint16_t after = (uint16_t)(first + n);
	uint16_t waited = 0;

	if (first < buffer->n_waiting)
		waited = (uint16_t)(RTE_MIN(after, buffer->n_waiting) - first);
	buffer->n_waiting = (uint16_t)(buffer->n_waiting - waited);
	worker->n_tx_waiting = (uint16_t)(worker->n_tx_waiting - waited);
	memmove(buffer->mbufs + first, buffer->mbufs + after,
		(buffer->n - after) * sizeof(buffer->mbufs[0]));
	buffer->n = (uint16_t)(buffer->n - n);
}

/* Offers n frames, from this one on, to the driver again. Returns how many it took. */
static uint16_t
offer_again(struct worker *worker, uint16_t port, uint16_t first, uint16_t n)
{
	struct tx_buffer *buffer = &worker->tx[port];
	uint16_t sent;

	if (buffer->lock != NULL)
		rte_spinlock_lock(buffer->lock);
	sent = driver_transmit(buffer, first, n);
	if (buffer->lock != NULL)
		rte_spinlock_unlock(buffer->lock);
	worker->counters.ports[port].tx_frames += sent;
	remove_frames(worker, buffer, first, sent);
	return sent;
}

/* The first frame is not passed by another for as long as its room takes, from the next round on. */
static void
refusal_wait(const struct worker *worker, struct tx_refusal *refusal)
{
	refusal->since_ns = worker->now_ns;
	refusal->next_ns = 0;
}

/* Another frame is the first one from now on. */
static void
refusal_begin(const struct worker *worker, struct tx_buffer *buffer)
{
	refusal_wait(worker, &buffer->refusal);
	buffer->refusal.n_passed = 0;
	buffer->refusal.longer = false;
}

/*
 * Is it time for another frame to pass the first one? A round's time is that of its beginning, and the core may have been taken away
 * since: so the time that the room takes begins in a later round than the wait for it.
 */
static bool
may_pass(const struct worker *worker, struct tx_buffer *buffer)
{
	const uint64_t room_ns = (uint64_t)buffer->mbufs[0]->pkt_len * TX_PASS_NS_PER_BYTE;
	struct tx_refusal *refusal = &buffer->refusal;

	if (refusal->next_ns != 0)
		return worker->now_ns >= refusal->next_ns;
	if (worker->now_ns != refusal->since_ns)
		refusal->next_ns = worker->now_ns +
				   RTE_MIN(RTE_MAX(room_ns, TX_PASS_NS), TX_PASS_MOST_NS);
	return false;
}

static void
drop_frame(struct worker *worker, uint16_t port, uint16_t index, enum fanin_reason reason)
{
	struct tx_buffer *buffer = &worker->tx[port];
	struct rte_mbuf *mbuf = buffer->mbufs[index];

	remove_frames(worker, buffer, index, 1);
	buffer->bytes -= mbuf->pkt_len;
	worker->counters.ports[port].tx_dropped++;
	worker_drop(worker, mbuf, reason);
}

static void
drop_refused(struct worker *worker, uint16_t port)
{
	drop_frame(worker, port, 0, FANIN_REASON_TX_REFUSED);
	refusal_begin(worker, &worker->tx[port]);
}

/*
 * Drops a frame for want of room: the last one. A driver may take none as long as the first one: then the last one that waits with that,
 * and if all others are shorter the first one itself, for which they wait.
 */
static void
drop_waiting(struct worker *worker, uint16_t port, enum fanin_reason reason)
{
	struct tx_buffer *buffer = &worker->tx[port];
	uint16_t index = (uint16_t)(buffer->n - 1);

	if (buffer->driver != NULL) {
		while (index > 0 && buffer->mbufs[index]->pkt_len < buffer->mbufs[0]->pkt_len)
			index--;
	}
	drop_frame(worker, port, index, reason);
	if (index == 0 && buffer->n != 0)
		refusal_begin(worker, buffer);
}

/* The first of the shortest frames behind the first one: others that are shorter than that may be too long, too. */
static uint16_t
shortest_behind(const struct tx_buffer *buffer)
{
	uint16_t found = 1;

	for (uint16_t i = 2; i < buffer->n; i++) {
		if (buffer->mbufs[i]->pkt_len < buffer->mbufs[found]->pkt_len)
			found = i;
	}
	return found;
}

/*
 * The first frame has been refused: lets another one by, if it is time to, and drops the first one if that was the last that it took.
 * Returns true if the first frame is another one then, which was not offered yet.
 */
static bool
let_by(struct worker *worker, uint16_t port)
{
	struct tx_buffer *buffer = &worker->tx[port];
	struct tx_refusal *refusal = &buffer->refusal;
	const uint32_t len = buffer->mbufs[0]->pkt_len;
	uint16_t other;
	bool shorter;

	if (buffer->n < 2 || !may_pass(worker, buffer))
		return false;
	other = shortest_behind(buffer);
	shorter = buffer->mbufs[other]->pkt_len < len;
	if (offer_again(worker, port, other, 1) == 0) {
		refusal->next_ns = worker->now_ns + TX_PASS_NS;
		return false;
	}
	refusal->longer = refusal->longer || !shorter;
	refusal_wait(worker, refusal);
	refusal->n_passed++;
	if (offer_again(worker, port, 0, 1) != 0) {
		refusal_begin(worker, buffer);
		return true;
	}
	if (refusal->n_passed < TX_PASS_MAX)
		return false;
	if (!refusal->longer && (refusal->never_len == 0 || len < refusal->never_len))
		refusal->never_len = len;
	drop_refused(worker, port);
	return true;
}

/* The first frame has been refused: goes on behind it if the driver will never take it. Returns true if any frame was taken. */
static bool
pass_refused(struct worker *worker, uint16_t port)
{
	struct tx_buffer *buffer = &worker->tx[port];
	const struct tx_refusal *refusal = &buffer->refusal;
	const uint64_t *tx_frames = &worker->counters.ports[port].tx_frames;
	const uint64_t before = *tx_frames;

	while (buffer->n != 0) {
		if (refusal->never_len != 0 && buffer->mbufs[0]->pkt_len >= refusal->never_len)
			drop_refused(worker, port);
		else if (!let_by(worker, port))
			break;
		if (offer_again(worker, port, 0, buffer->n) != 0)
			refusal_begin(worker, buffer);
	}
	return *tx_frames != before;
}

/* Drops what has waited while the device took nothing for too long. What has come just now waits in its place. moves: some have just left. */
static void
drop_stuck(struct worker *worker, uint16_t port, bool moves)
{
	struct tx_buffer *buffer = &worker->tx[port];

	if (!moves && buffer->n_waiting != 0 &&
	    worker->now_ns - buffer->waiting_since_ns > TX_STUCK_NS) {
		while (buffer->n_waiting != 0)
			drop_frame(worker, port, 0, FANIN_REASON_TX_FULL);
		refusal_begin(worker, buffer);
	}
	if (moves || buffer->n_waiting == 0)
		buffer->waiting_since_ns = worker->now_ns;
}

/* How many frames may wait for a port. */
static uint16_t
waiting_room(const struct worker *worker, uint16_t port)
{
	const unsigned int others = worker->n_tx_waiting - worker->tx[port].n_waiting;

	if (port_is_down(worker->pipeline, port))
		return 0;
	return (uint16_t)RTE_MIN(WORKER_TX_WAITING, PIPELINE_TX_WAITING - others);
}

/* What the device has not taken waits for the next round, as far as there is room. */
static __rte_noinline void
keep_unsent(struct worker *worker, uint16_t port, uint16_t sent)
{
	struct tx_buffer *buffer = &worker->tx[port];
	const bool is_down = port_is_down(worker->pipeline, port);
	const bool is_other = sent != 0 || buffer->n_waiting == 0;
	bool moves = sent != 0;
	uint64_t bytes = 0;
	uint16_t room;

	remove_frames(worker, buffer, 0, sent);
	if (is_other)
		refusal_begin(worker, buffer);
	if (buffer->driver != NULL && buffer->n != 0 && !is_down)
		moves = pass_refused(worker, port) || moves;
	drop_stuck(worker, port, moves);
	room = waiting_room(worker, port);
	for (uint16_t i = 0; i < buffer->n; i++)
		bytes += buffer->mbufs[i]->pkt_len;
	worker->counters.ports[port].tx_bytes += buffer->bytes - bytes;
	buffer->bytes = bytes;
	while (buffer->n > room)
		drop_waiting(worker, port, is_down ? FANIN_REASON_PORT_DOWN : FANIN_REASON_TX_FULL);
	if (buffer->n > buffer->n_waiting)
		worker->counters.ports[port].tx_delayed += buffer->n - buffer->n_waiting;
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
