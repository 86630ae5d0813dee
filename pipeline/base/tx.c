/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Egress: packets are batched per port and leave at the end of the round or when a buffer is full.
 * Frames that a device does not take, or that the port's rate holds back, wait in order for later
 * rounds. When too many wait, or a device takes nothing for long, frames are dropped and counted:
 * hosts recover by retransmission, as from any other loss.
 *
 * A driver may refuse one frame always and take others: the kernel has the same error for a full
 * queue and for a frame that is longer than the MTU of a veth's other end. Now and then a later
 * frame may pass the first one. If several later frames leave while the first one is refused before
 * and after each of them, the first one is dropped, and other frames of its length no longer wait.
 */
#include <string.h>

#include <rte_ethdev.h>

#include "pipeline/base/egress.h"
#include "pipeline/base/ipv4.h"
#include "pipeline/base/offload.h"
#include "pipeline/base/tx.h"

#include "pipeline/base/fastpath.h"

/*
 * Each try kicks the kernel, which makes room unless the link itself is stuck. Drivers of our own
 * need no kick.
 */
#define TX_TRIES 8

/* Frames of a long queue that are offered to a device at a time. */
#define TX_OFFER_MAX 256

/*
 * A link that takes nothing for this long is stuck; frames that it would send later are useless by
 * then.
 */
#define TX_STUCK_NS 1000000000u

/*
 * The number of frames that may pass before the first one is dropped, and the time between them. A
 * queue may count bytes: it has room for a short frame long before it has room for a long one. A
 * link of 1 Mbit/s makes room for the first frame within such an interval, in which it alone is
 * offered each round; so links that are only slow keep the order. The interval does not grow for
 * frames of more than 12.5 KB.
 */
#define TX_PASS_MAX 4
#define TX_PASS_NS 1000000u
#define TX_PASS_NS_PER_BYTE 8000u
#define TX_PASS_MAX_NS 100000000u

/*
 * Gives a driver n frames, from `first` on. When a frame of a length that is known to be refused is
 * accepted, that length is forgotten.
 */
static uint16_t
driver_transmit(struct tx_buffer *buffer, uint16_t first, uint16_t n)
{
	struct rte_mbuf **mbufs = buffer->mbufs + first;
	uint16_t n_short = 0;
	uint16_t sent;

	if (likely(buffer->refusal.never_len == 0))
		return buffer->driver->tx_burst(buffer->handle, mbufs, n);
	while (n_short < n && offload_link_len(mbufs[n_short]) < buffer->refusal.never_len)
		n_short++;
	sent = buffer->driver->tx_burst(buffer->handle, mbufs, n);
	if (sent > n_short)
		buffer->refusal.never_len = 0;
	return sent;
}

/*
 * Has the device complete the checksums of Fanin's packets: kernels of hosts merge only such
 * packets. A repeated packet has passed here before, and a device may still be reading it.
 */
static __rte_noinline void
want_checksums(struct rte_mbuf **mbufs, uint16_t n, rte_be16_t udp_port_be)
{
	for (uint16_t i = 0; i < n; i++) {
		struct fanin_headers *headers = rte_pktmbuf_mtod(mbufs[i], struct fanin_headers *);

		if (mbufs[i]->data_len < FANIN_PAYLOAD_OFFSET || offload_is_needed(mbufs[i]) ||
		    headers->eth.type_be != rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4) ||
		    headers->ip.version_ihl != 0x45 || headers->ip.protocol != IPPROTO_UDP ||
		    headers->udp.checksum_be != 0 ||
		    (headers->udp.dst_be != udp_port_be && headers->udp.src_be != udp_port_be))
			continue;
		mbufs[i]->l2_len = FANIN_ETH_LEN;
		mbufs[i]->l3_len = FANIN_IP_LEN;
		mbufs[i]->ol_flags |= RTE_MBUF_F_TX_IPV4 | RTE_MBUF_F_TX_UDP_CKSUM;
		headers->udp.checksum_be = ipv4_pseudo_checksum(&headers->ip, mbufs[i]->ol_flags);
	}
}

static inline uint16_t
transmit(struct tx_buffer *buffer, uint16_t first, uint16_t n)
{
	uint16_t sent = 0;

	if (buffer->driver != NULL)
		return driver_transmit(buffer, first, n);
	if (unlikely(buffer->checksum_port_be != 0))
		want_checksums(buffer->mbufs + first, n, buffer->checksum_port_be);
	for (unsigned int try = 0; sent < n && try < TX_TRIES; try++)
		sent = (uint16_t)(sent + rte_eth_tx_burst(buffer->ethdev, buffer->queue,
							  buffer->mbufs + first + sent,
							  (uint16_t)(n - sent)));
	return sent;
}

static uint64_t
bytes_of(struct rte_mbuf *const *mbufs, uint16_t n)
{
	uint64_t bytes = 0;

	for (uint16_t i = 0; i < n; i++)
		bytes += mbufs[i]->pkt_len;
	return bytes;
}

/*
 * Offers n frames, from `first` on, to the device, as many as the rate allows and a device accepts,
 * and counts their bytes. Reads only frames that may leave, even if many wait. Returns how many
 * were accepted.
 */
static __rte_noinline uint16_t
transmit_counted(struct worker *worker, struct tx_buffer *buffer, uint16_t first, uint16_t n)
{
	struct rte_mbuf **mbufs = buffer->mbufs + first;
	uint16_t allowed = RTE_MIN(n, (uint16_t)TX_OFFER_MAX);
	uint64_t bytes;
	uint16_t sent;

	if (buffer->rated)
		allowed = egress_take(buffer->egress, worker->now_ns, mbufs, allowed);
	bytes = bytes_of(mbufs, allowed);
	sent = transmit(buffer, first, allowed);
	bytes -= bytes_of(mbufs + sent, (uint16_t)(allowed - sent));
	if (buffer->rated)
		egress_give_back(buffer->egress, mbufs + sent, (uint16_t)(allowed - sent));
	buffer->n_held = (uint16_t)(n - allowed);
	buffer->bytes -= bytes;
	worker->counters.ports[buffer->port].tx_bytes += bytes;
	return sent;
}

/*
 * Offers n frames, from `first` on. Returns how many left. If bytes are counted, the last n_held of
 * the others were not offered to the device.
 */
static inline uint16_t
offer(struct worker *worker, struct tx_buffer *buffer, uint16_t first, uint16_t n)
{
	uint16_t sent;

	if (buffer->lock != NULL)
		rte_spinlock_lock(buffer->lock);
	sent = likely(!buffer->counts) ? transmit(buffer, first, n)
				       : transmit_counted(worker, buffer, first, n);
	if (buffer->lock != NULL)
		rte_spinlock_unlock(buffer->lock);
	return sent;
}

/* Adds n to the frames that wait for the port. */
static void
count_waiting(struct worker *worker, struct tx_buffer *buffer, int32_t n)
{
	__atomic_store_n(&buffer->n_waiting, (uint16_t)(buffer->n_waiting + n), __ATOMIC_RELAXED);
	if (buffer->egress->own_frames != 0)
		worker->n_tx_reserved = (uint32_t)((int64_t)worker->n_tx_reserved + n);
	else
		worker->n_tx_waiting = (uint16_t)(worker->n_tx_waiting + n);
}

/*
 * Removes n frames, from `first` on, from the buffer and from the counts of waiting frames. Their
 * mbufs have another owner now.
 */
static void
remove_frames(struct worker *worker, struct tx_buffer *buffer, uint16_t first, uint16_t n)
{
	const uint16_t after = (uint16_t)(first + n);
	uint16_t waited = 0;

	if (first < buffer->n_waiting)
		waited = (uint16_t)(RTE_MIN(after, buffer->n_waiting) - first);
	count_waiting(worker, buffer, -(int32_t)waited);
	if (first == 0)
		buffer->mbufs += n;
	else
		memmove(buffer->mbufs + first, buffer->mbufs + after,
			(buffer->n - after) * sizeof(buffer->mbufs[0]));
	buffer->n = (uint16_t)(buffer->n - n);
}

/* Offers n frames, from `first` on, again. Returns how many were accepted. */
static uint16_t
offer_again(struct worker *worker, uint16_t port, uint16_t first, uint16_t n)
{
	struct tx_buffer *buffer = &worker->tx[port];
	const uint16_t sent = offer(worker, buffer, first, n);

	worker->counters.ports[port].tx_frames += sent;
	remove_frames(worker, buffer, first, sent);
	return sent;
}

/* Starts, in the next round, the interval in which no frame may pass the first one. */
static void
refusal_wait(const struct worker *worker, struct tx_refusal *refusal)
{
	refusal->since_ns = worker->now_ns;
	refusal->next_ns = 0;
}

/* Resets the refusal state, as another frame is now the first one. */
static void
refusal_begin(const struct worker *worker, struct tx_buffer *buffer)
{
	refusal_wait(worker, &buffer->refusal);
	buffer->refusal.n_passed = 0;
	buffer->refusal.longer = false;
}

/*
 * Returns true if another frame may pass the first one. A round's time is that of its beginning,
 * and the worker may have lost its core since. So the interval counts from a later round than the
 * one in which the wait began.
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
				   RTE_MIN(RTE_MAX(room_ns, TX_PASS_NS), TX_PASS_MAX_NS);
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
 * Drops a frame because there is no room, usually the last one. If the driver has refused the first
 * frame, it may accept none of that length: then the last waiting frame that is as long is dropped,
 * or, if all others are shorter, the first frame itself.
 */
static void
drop_waiting(struct worker *worker, uint16_t port, bool refused, enum fanin_reason reason)
{
	struct tx_buffer *buffer = &worker->tx[port];
	uint16_t index = (uint16_t)(buffer->n - 1);

	if (buffer->driver != NULL && refused) {
		while (index > 0 &&
		       offload_link_len(buffer->mbufs[index]) < offload_link_len(buffer->mbufs[0]))
			index--;
	}
	drop_frame(worker, port, index, reason);
	if (index == 0 && buffer->n != 0)
		refusal_begin(worker, buffer);
}

/*
 * Returns the first of the shortest frames behind the first one. A frame that is only somewhat
 * shorter than the first one may be too long, too.
 */
static uint16_t
shortest_behind(const struct tx_buffer *buffer)
{
	uint16_t found = 1;

	for (uint16_t i = 2; i < buffer->n; i++) {
		if (offload_link_len(buffer->mbufs[i]) < offload_link_len(buffer->mbufs[found]))
			found = i;
	}
	return found;
}

/*
 * Called when the first frame was refused. Lets another frame pass if it is time, and drops the
 * first frame if it has been passed often enough. Returns true if the first frame is now another
 * one, which was not offered yet.
 */
static bool
let_by(struct worker *worker, uint16_t port)
{
	struct tx_buffer *buffer = &worker->tx[port];
	struct tx_refusal *refusal = &buffer->refusal;
	const uint32_t len = offload_link_len(buffer->mbufs[0]);
	uint16_t other;
	bool shorter;

	if (buffer->n < 2 || !may_pass(worker, buffer))
		return false;
	other = shortest_behind(buffer);
	shorter = offload_link_len(buffer->mbufs[other]) < len;
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
	/*
	 * The frame that passed used up the rate: the first frame was not offered, and so not
	 * refused again.
	 */
	if (buffer->counts && buffer->n_held != 0) {
		refusal->n_passed--;
		return false;
	}
	if (refusal->n_passed < TX_PASS_MAX)
		return false;
	if (!refusal->longer && (refusal->never_len == 0 || len < refusal->never_len))
		refusal->never_len = len;
	drop_refused(worker, port);
	return true;
}

/*
 * The first frame was refused: continues with the next one if the driver will never accept it.
 * Returns true if a frame was taken.
 */
static bool
pass_refused(struct worker *worker, uint16_t port)
{
	struct tx_buffer *buffer = &worker->tx[port];
	const struct tx_refusal *refusal = &buffer->refusal;
	const uint64_t *tx_frames = &worker->counters.ports[port].tx_frames;
	const uint64_t before = *tx_frames;

	while (buffer->n != 0) {
		if (refusal->never_len != 0 &&
		    offload_link_len(buffer->mbufs[0]) >= refusal->never_len)
			drop_refused(worker, port);
		else if (!let_by(worker, port))
			break;
		if (offer_again(worker, port, 0, buffer->n) != 0)
			refusal_begin(worker, buffer);
	}
	return *tx_frames != before;
}

/*
 * Drops the frames that have waited while the device accepted nothing for too long. The frames of
 * this round wait in their place. moves: some frames have just left.
 */
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

/* The part of a port's queue that a worker may fill. */
struct waiting_room {
	uint16_t frames;
	uint64_t bytes;
	uint64_t others_bytes; /* waiting for the port in other workers */
};

/*
 * Returns the unused part of a limit, but at least an equal share: otherwise the first worker to
 * fill the queue would keep it.
 */
static uint64_t
what_is_left(const struct pipeline *pipeline, uint64_t limit, uint64_t taken)
{
	return RTE_MAX(limit - RTE_MIN(taken, limit), limit / pipeline->n_workers);
}

/*
 * Returns the bytes that ports without room of their own have left for this port in the worker: as
 * many as full-length frames would have, however long super-frames are. The pool has no more mbufs
 * for them.
 */
static uint64_t
common_bytes(const struct worker *worker, uint16_t port)
{
	const struct pipeline *pipeline = worker->pipeline;
	uint64_t most = 0, taken = 0;

	for (uint16_t i = 0; i < pipeline->n_ports; i++) {
		const struct tx_buffer *buffer = &worker->tx[i];

		if (buffer->egress->own_frames != 0)
			continue;
		most = RTE_MAX(most, (uint64_t)buffer->egress->options.queue_bytes);
		taken += i == port ? 0 : buffer->waiting_bytes;
	}
	return most - RTE_MIN(most, taken);
}

/*
 * A port either has its own room for frames, which all workers share, or uses the worker's room,
 * which other ports share.
 */
static struct waiting_room
waiting_room(const struct worker *worker, uint16_t port)
{
	const struct pipeline *pipeline = worker->pipeline;
	const struct tx_buffer *buffer = &worker->tx[port];
	const struct egress *egress = buffer->egress;
	struct waiting_room room = { 0 };
	uint32_t frames;

	room.others_bytes = egress_backlog(pipeline, port, &frames) - buffer->waiting_bytes;
	if (port_is_down(pipeline, port))
		return room;
	room.frames = egress->frames;
	room.bytes = egress->options.queue_bytes;
	if (egress->own_frames == 0) {
		room.frames = RTE_MIN(room.frames,
				      (uint16_t)(PIPELINE_TX_WAITING - worker->n_tx_waiting +
						 buffer->n_waiting));
		room.bytes = RTE_MIN(room.bytes, common_bytes(worker, port));
	} else {
		room.frames = (uint16_t)what_is_left(pipeline, room.frames,
						     frames - buffer->n_waiting);
		room.bytes = what_is_left(pipeline, room.bytes, room.others_bytes);
	}
	return room;
}

/*
 * Marks frames behind a backlog of so many bytes that senders should slow down. others_bytes:
 * waiting in other workers.
 */
static void
mark_congestion(struct worker *worker, uint16_t port, uint64_t others_bytes)
{
	struct tx_buffer *buffer = &worker->tx[port];
	struct rte_mbuf **come = buffer->mbufs + buffer->n_waiting;
	const uint16_t n = (uint16_t)(buffer->n - buffer->n_waiting);
	uint64_t ahead_bytes = others_bytes + buffer->bytes - bytes_of(come, n);

	for (uint16_t i = 0; i < n; i++) {
		if (ahead_bytes > buffer->egress->options.ecn_bytes)
			worker->counters.ports[port].ecn_marked +=
				egress_mark(&come[i], worker->pipeline->pool);
		ahead_bytes += come[i]->pkt_len;
	}
}

/* Moves the frames back to the beginning of their room when they are near its end. */
static void
move_to_beginning(struct tx_buffer *buffer)
{
	const size_t most = buffer->egress->frames + WORKER_TX_BUFFER;

	if (buffer->n == 0) {
		buffer->mbufs = buffer->room;
	} else if ((size_t)(buffer->mbufs - buffer->room) > most) {
		memmove(buffer->room, buffer->mbufs, buffer->n * sizeof(buffer->mbufs[0]));
		buffer->mbufs = buffer->room;
	}
}

/*
 * Keeps frames that the device did not accept for the next round, as far as there is room. refused:
 * the device did not accept all frames offered.
 */
static __rte_noinline void
keep_unsent(struct worker *worker, uint16_t port, uint16_t sent, bool refused)
{
	struct tx_buffer *buffer = &worker->tx[port];
	const bool is_down = port_is_down(worker->pipeline, port);
	const bool is_other = sent != 0 || buffer->n_waiting == 0;
	bool moves = sent != 0 || (!refused && !is_down);
	struct waiting_room room;
	uint64_t bytes;

	/* The rate holds back the same frames as before: the usual case of a long queue. */
	if (sent == 0 && buffer->n == buffer->n_waiting && !refused && !is_down) {
		buffer->waiting_since_ns = worker->now_ns;
		return;
	}
	remove_frames(worker, buffer, 0, sent);
	if (is_other)
		refusal_begin(worker, buffer);
	if (buffer->driver != NULL && buffer->n != 0 && refused)
		moves = pass_refused(worker, port) || moves;
	drop_stuck(worker, port, moves);
	room = waiting_room(worker, port);
	if (!buffer->counts) {
		/* No frames have waited: there are few. */
		bytes = bytes_of(buffer->mbufs, buffer->n);
		worker->counters.ports[port].tx_bytes += buffer->bytes - bytes;
		buffer->bytes = bytes;
	}
	while (buffer->n > room.frames || buffer->bytes > room.bytes)
		drop_waiting(worker, port, refused,
			     is_down ? FANIN_REASON_PORT_DOWN : FANIN_REASON_TX_FULL);
	if (buffer->egress->options.ecn_bytes != 0)
		mark_congestion(worker, port, room.others_bytes);
	if (buffer->n > buffer->n_waiting)
		worker->counters.ports[port].tx_delayed += buffer->n - buffer->n_waiting;
	count_waiting(worker, buffer, buffer->n - buffer->n_waiting);
	__atomic_store_n(&buffer->waiting_bytes, buffer->bytes, __ATOMIC_RELAXED);
	move_to_beginning(buffer);
	buffer->full = (uint16_t)(buffer->n + WORKER_TX_BUFFER);
}

void
worker_flush_port(struct worker *worker, uint16_t port)
{
	struct tx_buffer *buffer = &worker->tx[port];
	struct port_counters *counters = &worker->counters.ports[port];
	const bool is_down = port_is_down(worker->pipeline, port);
	uint16_t sent = 0;

	buffer->counts = buffer->rated || buffer->n_waiting != 0;
	if (likely(!is_down))
		sent = offer(worker, buffer, 0, buffer->n);
	counters->tx_frames += sent;
	if (unlikely(sent != buffer->n || buffer->n_waiting != 0)) {
		keep_unsent(worker, port, sent,
			    !is_down && sent != buffer->n - (buffer->counts ? buffer->n_held : 0));
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
		count_waiting(worker, buffer, -(int32_t)buffer->n_waiting);
		buffer->n = 0;
		buffer->bytes = 0;
		buffer->waiting_bytes = 0;
		buffer->mbufs = buffer->room;
		buffer->full = WORKER_TX_BUFFER;
	}
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
