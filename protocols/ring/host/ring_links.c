/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Links: connections with the partners of recursive doubling, and the notices on them. A partner
 * may wait for a rank that waits for another one, and so on. So each rank tells the partners that
 * have not been sent its vector which rank it waits for itself, and for how long nothing has moved.
 */
#include "ring_internal.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "hostlib/src/base/absence.h"

/* --------------------------------------------------------------------- plan */

/*
 * The ranks' places in recursive doubling: as many as the largest power of two up to the number of
 * ranks. Each remaining rank is folded in.
 */
struct shape {
	uint16_t places;
	uint16_t folded;
};

static struct shape
shape_of(uint16_t size)
{
	struct shape shape = { .places = 1 };

	while (2 * shape.places <= size)
		shape.places *= 2;
	shape.folded = size - shape.places;
	return shape;
}

/*
 * Returns the rank at a place. Of the first 2 * folded ranks only the even ones have a place, so
 * that the ranks behind places are in order.
 */
static uint16_t
rank_at(const struct shape *shape, uint16_t place)
{
	return place < shape->folded ? 2 * place : place + shape->folded;
}

static void
stage_add(struct fanin_ring *ring, uint32_t link, bool sends, bool receives, bool takes_over)
{
	ring->stages[ring->n_stages++] = (struct fanin_ring_stage){
		.link = (uint8_t)link,
		.sends = sends,
		.receives = receives,
		.takes_over = takes_over,
	};
}

/* Returns the number of the new link. */
static uint32_t
link_add(struct fanin_ring *ring, uint16_t rank, const struct sockaddr_in *peers)
{
	struct fanin_ring_link *link = &ring->links[ring->n_links];

	*link = (struct fanin_ring_link){
		.call = { .address = peers[rank],
			  .rank = rank,
			  .purpose = FANIN_RING_LINK,
			  .fd = -1 },
	};
	fanin_ring_watch_init(&link->watch, &peers[rank]);
	return ring->n_links++;
}

void
fanin_ring_links_plan(struct fanin_ring *ring, const struct sockaddr_in *peers)
{
	const uint16_t rank = ring->config.rank;
	const struct shape shape = shape_of(ring->config.size);
	const bool is_paired = rank < 2 * shape.folded;
	const uint16_t place = is_paired ? rank / 2 : rank - shape.folded;
	uint32_t folded = 0;

	if (is_paired)
		folded = link_add(ring, rank ^ 1, peers);
	if (is_paired && rank % 2 != 0) {
		stage_add(ring, folded, true, false, false);
		stage_add(ring, folded, false, true, true);
		return;
	}
	if (is_paired)
		stage_add(ring, folded, false, true, false);
	for (uint16_t distance = 1; distance < shape.places; distance *= 2)
		stage_add(ring, link_add(ring, rank_at(&shape, place ^ distance), peers), true,
			  true, false);
	if (is_paired)
		stage_add(ring, folded, true, false, false);
}

/* ------------------------------------------------------------------ messages */

void
fanin_ring_link_end(struct fanin_ring *ring, struct fanin_ring_link *link)
{
	if (link->ended)
		return;
	link->ended = true;
	link->ended_ns = ring->now_ns;
}

bool
fanin_ring_link_flush(struct fanin_ring *ring, struct fanin_ring_link *link)
{
	int ret = 1;

	if (link->tx.len != 0 && !link->ended)
		ret = fanin_ring_piece_send(link->call.fd, &link->tx, &ring->stats.send_calls);
	if (ret < 0)
		fanin_ring_link_end(ring, link);
	return ret == 1;
}

/* Notes that the partner of the current round has seen progress. */
static void
progress_hear(struct fanin_ring *ring, const struct fanin_ring_link *link)
{
	const uint64_t ago_ns = link->heard.waited_ms * UINT64_C(1000000);

	if (link != fanin_ring_doubling_link(ring) || !fanin_ring_link_has_posted(link) ||
	    ago_ns >= ring->now_ns)
		return;
	if (ring->now_ns - ago_ns > ring->progress_ns)
		ring->progress_ns = ring->now_ns - ago_ns;
}

static void
message_take(struct fanin_ring *ring, struct fanin_ring_link *link)
{
	memcpy(&link->heard, link->rx.bytes, sizeof(link->heard));
	link->rx = (struct fanin_ring_piece){ 0 };
	link->heard_ns = ring->now_ns;
	switch (link->heard.type) {
	case FANIN_RING_STATUS:
		progress_hear(ring, link);
		break;
	case FANIN_RING_BYE:
		link->left = true;
		break;
	case FANIN_RING_FAILED:
		if (ring->status == FANIN_OK)
			fanin_ring_fail_after(ring, link->heard.blamed & fanin_ring_all(ring),
					      (enum fanin_ring_blame)link->heard.blame,
					      link->heard.waited_ms);
		break;
	default:
		if (ring->status == FANIN_OK)
			fanin_ring_fail(
				ring,
				fanin_error_set(
					&ring->error, FANIN_ERR_REFUSED,
					"rank %u sent a message of type %u on its link, expected %u to %u",
					link->call.rank, link->heard.type, FANIN_RING_BYE,
					FANIN_RING_VECTOR));
	}
}

unsigned int
fanin_ring_link_receive(struct fanin_ring *ring, struct fanin_ring_link *link)
{
	unsigned int n = 0;

	while (!link->ended && ring->status == FANIN_OK && !fanin_ring_link_has_head(link)) {
		uint32_t type;
		int ret = fanin_ring_piece_receive(link->call.fd, &link->rx,
						   sizeof(struct fanin_ring_notice),
						   &ring->stats.receive_calls);

		if (ret < 0)
			fanin_ring_link_end(ring, link);
		if (ret != 1)
			break;
		n++;
		memcpy(&type, link->rx.bytes, sizeof(type));
		if (type != FANIN_RING_VECTOR)
			message_take(ring, link);
	}
	return n;
}

/* True if this rank has begun to send the partner its vector of the collective in progress. */
static bool
has_begun(const struct fanin_ring *ring, const struct fanin_ring_link *link)
{
	return link->has_sent && link->sent_seq == ring->seq;
}

/* Returns true if a vector is being sent to the partner: then no message can be sent. */
static bool
is_sending_to(const struct fanin_ring *ring, const struct fanin_ring_link *link)
{
	const struct fanin_ring_doubling *work = &ring->doubling;

	return link == fanin_ring_doubling_link(ring) && work->tx_begun &&
	       (link->tx.len != 0 || work->tx_bytes < work->tx_len);
}

/* Returns true if bytes of a vector are coming from the partner: they are no messages. */
static bool
is_receiving_from(const struct fanin_ring *ring, const struct fanin_ring_link *link)
{
	const struct fanin_ring_doubling *work = &ring->doubling;

	return link == fanin_ring_doubling_link(ring) && work->rx_begun &&
	       work->rx_bytes < work->rx_len;
}

/* Returns true if the partner waits for this rank, by its last notice. */
static bool
is_asked(const struct fanin_ring *ring, const struct fanin_ring_link *link)
{
	return fanin_ring_link_has_head(link) ||
	       (link->heard.type == FANIN_RING_STATUS && fanin_ring_link_has_posted(link) &&
		!fanin_ring_seq_before(link->heard.seq, ring->seq));
}

static void
link_notify(struct fanin_ring *ring, struct fanin_ring_link *link)
{
	const struct fanin_ring_notice notice = fanin_ring_notice_make(ring, FANIN_RING_STATUS);

	if (link->ended || has_begun(ring, link) || !fanin_ring_link_flush(ring, link))
		return;
	if (!fanin_ring_is_doubling(ring) && !is_asked(ring, link))
		return;
	fanin_ring_piece_set(&link->tx, &notice, sizeof(notice));
	fanin_ring_link_flush(ring, link);
	link->notified_ns = ring->now_ns;
}

void
fanin_ring_links_poll(struct fanin_ring *ring)
{
	if (ring->now_ns - ring->links_ns < fanin_ring_notice_ns(ring))
		return;
	ring->links_ns = ring->now_ns;
	for (unsigned int i = 0; i < ring->n_links && ring->status == FANIN_OK; i++) {
		if (!is_receiving_from(ring, &ring->links[i]))
			fanin_ring_link_receive(ring, &ring->links[i]);
		if (ring->status == FANIN_OK)
			link_notify(ring, &ring->links[i]);
	}
}

void
fanin_ring_links_tell(struct fanin_ring *ring, enum fanin_ring_type type)
{
	const struct fanin_ring_notice notice = fanin_ring_notice_make(ring, type);

	for (unsigned int i = 0; i < ring->n_links; i++) {
		struct fanin_ring_link *link = &ring->links[i];

		if (link->call.fd < 0 || link->ended)
			continue;
		if (is_sending_to(ring, link) ||
		    (link->tx.done != 0 && !fanin_ring_link_flush(ring, link))) {
			if (type == FANIN_RING_FAILED)
				shutdown(link->call.fd, SHUT_WR);
			link->tx = (struct fanin_ring_piece){ 0 };
			continue;
		}
		fanin_ring_piece_set(&link->tx, &notice, sizeof(notice));
		fanin_ring_link_flush(ring, link);
	}
}

bool
fanin_ring_links_flush(struct fanin_ring *ring)
{
	bool done = true;

	for (unsigned int i = 0; i < ring->n_links; i++) {
		if (!fanin_ring_link_flush(ring, &ring->links[i]))
			done = false;
	}
	return done;
}

void
fanin_ring_links_away(struct fanin_ring *ring, uint64_t by_ns)
{
	const uint64_t now_ns = ring->now_ns;

	for (unsigned int i = 0; i < ring->n_links; i++) {
		struct fanin_ring_link *link = &ring->links[i];

		fanin_ring_watch_away(ring, &link->watch, by_ns);
		link->heard_ns = fanin_absence_move(link->heard_ns, by_ns, now_ns);
	}
	ring->doubling.moved_ns = fanin_absence_move(ring->doubling.moved_ns, by_ns, now_ns);
}
