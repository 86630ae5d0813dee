/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which ranks are missing. A rank that waits notifies the previous one, against the stream, which
 * ranks have posted the collective, which are gone and which do not answer, as it has heard from
 * the next one. So all ranks can name the one that holds them up, and hear of a death at once.
 */
#include "ring_internal.h"

#include <stdio.h>
#include <string.h>

static bool
is_waiting(const struct fanin_ring *ring)
{
	return ring->requests.first != NULL &&
	       ring->now_ns - ring->received_ns >= fanin_ring_notice_ns(ring);
}

/*
 * Returns the ranks that are silent as far as this one knows: their processes are not in the
 * library.
 */
static uint64_t
silent_ranks(const struct fanin_ring *ring)
{
	const uint64_t limit_ns = ring->config.timeout_ns / 2;
	const uint64_t since_ns = ring->heard_ns > ring->received_ns ? ring->heard_ns
								     : ring->received_ns;
	uint64_t silent;

	if (ring->requests.first == NULL)
		return 0;
	if (fanin_ring_is_doubling(ring)) {
		/*
		 * This rank waits for a partner, not for its neighbour. But the partner may still
		 * be in the previous collective, which is not sparse, and wait for ranks behind the
		 * neighbour. Nobody else tells the partner.
		 */
		silent = fanin_ring_doubling_missing(ring);
		if (silent != 0 || ring->now_ns - ring->doubling.moved_ns < limit_ns)
			return silent;
	}
	if (ring->now_ns - since_ns >= limit_ns)
		return UINT64_C(1) << fanin_ring_next_rank(ring);
	/* What the next rank says of others is as recent as its notice. */
	return ring->heard_ns > ring->received_ns
		       ? ring->heard.silent & ~(UINT64_C(1) << ring->config.rank)
		       : 0;
}

struct fanin_ring_notice
fanin_ring_notice_make(const struct fanin_ring *ring, enum fanin_ring_type type)
{
	const uint64_t own = UINT64_C(1) << ring->config.rank;
	const uint64_t waited_ms = (ring->now_ns - ring->progress_ns) / 1000000;

	return (struct fanin_ring_notice){
		.type = type,
		.seq = ring->seq,
		.posted = ring->posted | (ring->requests.first != NULL ? own : 0),
		.silent = silent_ranks(ring),
		.blamed = ring->blamed != 0 ? ring->blamed : own,
		.blame = ring->blamed != 0 ? ring->blame : FANIN_RING_GAVE_UP,
		.waited_ms = type == FANIN_RING_FAILED ? ring->waited_ms
			     : waited_ms < UINT32_MAX  ? (uint32_t)waited_ms
						       : UINT32_MAX,
	};
}

void
fanin_ring_notice_now(struct fanin_ring *ring, enum fanin_ring_type type)
{
	const struct fanin_ring_notice notice = fanin_ring_notice_make(ring, type);

	if (ring->prev < 0)
		return;
	/*
	 * A partly sent notice must be finished first. One that doesn't fit is retried at the next
	 * poll.
	 */
	if (ring->tx_notice.done == 0 ||
	    fanin_ring_piece_send(ring->prev, &ring->tx_notice, &ring->stats.send_calls) == 1) {
		fanin_ring_piece_set(&ring->tx_notice, &notice, sizeof(notice));
		fanin_ring_piece_send(ring->prev, &ring->tx_notice, &ring->stats.send_calls);
	}
	ring->notified_ns = ring->now_ns;
	ring->notice_due = false;
}

void
fanin_ring_notice_send(struct fanin_ring *ring)
{
	if (ring->tx_notice.len != 0)
		fanin_ring_piece_send(ring->prev, &ring->tx_notice, &ring->stats.send_calls);
	/* A rank with a sparse vector on the way may hear from its partner only. */
	if (ring->notice_due ||
	    ((is_waiting(ring) || fanin_ring_is_doubling(ring)) &&
	     ring->now_ns - ring->notified_ns >= fanin_ring_notice_interval_ns(ring, ring->now_ns)))
		fanin_ring_notice_now(ring, FANIN_RING_STATUS);
}

static void
notice_take(struct fanin_ring *ring, const struct fanin_ring_notice *notice)
{
	const uint64_t silent = ring->heard.silent;
	const uint64_t posted = ring->posted;

	ring->heard = *notice;
	ring->heard_ns = ring->now_ns;
	if (notice->type == FANIN_RING_BYE) {
		ring->next_left = true;
		ring->next_left_seq = notice->seq;
	}
	if (notice->seq == ring->seq)
		ring->posted |= notice->posted;
	else if (fanin_ring_seq_before(ring->seq, notice->seq))
		ring->posted = fanin_ring_all(ring);
	/* A rank without a request of its own only passes on what others ask. */
	if (ring->requests.first == NULL || ring->posted != posted || notice->silent != silent)
		ring->notice_due = true;
}

void
fanin_ring_notice_receive(struct fanin_ring *ring)
{
	struct fanin_ring_notice notice;
	int ret = 1;

	while (!ring->next_ended && ret == 1) {
		ret = fanin_ring_piece_receive(ring->next.fd, &ring->rx_notice, sizeof(notice),
					       &ring->stats.receive_calls);
		if (ret < 0)
			ring->next_ended = true;
		if (ret != 1)
			return;
		memcpy(&notice, ring->rx_notice.bytes, sizeof(notice));
		ring->rx_notice = (struct fanin_ring_piece){ 0 };
		if (ring->status == FANIN_OK)
			notice_take(ring, &notice);
		else
			ring->heard = notice;
	}
}

/* ---------------------------------------------------------------- failing */

void
fanin_ring_fail_after(struct fanin_ring *ring, uint64_t ranks, enum fanin_ring_blame blame,
		      uint32_t waited_ms)
{
	static const char *const deeds[] = {
		[FANIN_RING_DIED] = "closed its connection without leaving: its process has ended",
		[FANIN_RING_LEFT] = "left the job",
		[FANIN_RING_GAVE_UP] = "given up",
		[FANIN_RING_SILENT] = "not answered",
		[FANIN_RING_NOT_POSTED] = "not posted the collective",
		[FANIN_RING_STALLED] = "sent nothing, though every rank has posted the collective",
		[FANIN_RING_LATE] = "been late",
	};
	const struct fanin_ranks set = fanin_ranks_of_word(ranks);
	const char *deed = "failed";
	char text[FANIN_TEXT_LEN / 2];

	if (blame < sizeof(deeds) / sizeof(deeds[0]) && deeds[blame] != NULL)
		deed = deeds[blame];
	fanin_error_set(&ring->error, 0, "%s (of %u) %s %s",
			fanin_format_ranks(&set, text, sizeof(text)), ring->config.size,
			__builtin_popcountll(ranks) == 1 ? "has" : "have", deed);
	if (blame >= FANIN_RING_SILENT) {
		size_t used = strlen(ring->error.text);

		snprintf(ring->error.text + used, sizeof(ring->error.text) - used, " for %.1f s",
			 waited_ms / 1e3);
	}
	ring->error.missing = set;
	ring->blamed = ranks;
	ring->blame = blame;
	ring->waited_ms = waited_ms;
	fanin_ring_fail(ring, FANIN_ERR_TIMEOUT);
}

static void
fail_by(struct fanin_ring *ring, uint64_t ranks, enum fanin_ring_blame blame)
{
	fanin_ring_fail_after(ring, ranks, blame,
			      (uint32_t)((ring->now_ns - ring->progress_ns) / 1000000));
}

/* True if a neighbour has said goodbye along the ring. */
static bool
has_left(const struct fanin_ring *ring, uint16_t rank)
{
	return (ring->next_left && rank == fanin_ring_next_rank(ring)) ||
	       (ring->prev_left && rank == fanin_ring_prev_rank(ring));
}

/* Looks for ranks that will never send the data that this rank waits for. */
static void
check_gone(struct fanin_ring *ring)
{
	/*
	 * The rank before a dead one tells all others. The rank after it waits a while for that
	 * before it draws its own conclusion.
	 */
	const uint64_t grace_ns = ring->config.timeout_ns / 8 < 200 * 1000000ull
					  ? ring->config.timeout_ns / 8
					  : 200 * 1000000ull;
	const uint64_t next = UINT64_C(1) << fanin_ring_next_rank(ring);
	const uint64_t prev = UINT64_C(1) << fanin_ring_prev_rank(ring);
	const struct fanin_ring_link *link = fanin_ring_doubling_link(ring);

	if (ring->heard.type == FANIN_RING_FAILED)
		fanin_ring_fail_after(ring, ring->heard.blamed & fanin_ring_all(ring),
				      (enum fanin_ring_blame)ring->heard.blame,
				      ring->heard.waited_ms);
	else if (ring->next_ended && !ring->next_left)
		fail_by(ring, next, FANIN_RING_DIED);
	else if (ring->prev_ended && !ring->prev_left &&
		 ring->now_ns - ring->prev_ended_ns >= grace_ns)
		fail_by(ring, prev, FANIN_RING_DIED);
	else if (ring->requests.first != NULL && ring->next_left &&
		 !fanin_ring_seq_before(ring->seq, ring->next_left_seq))
		fail_by(ring, next, FANIN_RING_LEFT);
	else if (ring->requests.first != NULL && ring->prev_left && !ring->work.rx_matched)
		fail_by(ring, prev, FANIN_RING_LEFT);
	else if (link != NULL && link->left)
		fail_by(ring, UINT64_C(1) << link->call.rank, FANIN_RING_LEFT);
	else if (link != NULL && link->ended && ring->now_ns - link->ended_ns >= grace_ns)
		fail_by(ring, UINT64_C(1) << link->call.rank,
			has_left(ring, link->call.rank) ? FANIN_RING_LEFT : FANIN_RING_DIED);
}

/* Looks at the machines of partners. */
static void
links_watch(struct fanin_ring *ring)
{
	const struct fanin_ring_link *waited = fanin_ring_doubling_link(ring);

	for (unsigned int i = 0; i < ring->n_links; i++) {
		struct fanin_ring_link *link = &ring->links[i];

		if (link == waited && is_waiting(ring))
			fanin_ring_watch_check(ring, &link->watch, link->call.fd);
		else
			fanin_ring_watch_idle(ring, &link->watch);
	}
}

/*
 * Looks for a machine that does not answer. The rank after it leaves the report to the rank before
 * it for a while, as above; so does a partner. That time begins when the rank's own timeout ends,
 * or, if it has waited longer (for a rank that was late before), when the silence has lasted long
 * enough.
 */
static void
check_silent(struct fanin_ring *ring, uint64_t waited_ns)
{
	const uint64_t timeout_ns = ring->config.timeout_ns;
	const uint64_t grace_ns = timeout_ns / 4;
	const struct fanin_ring_link *link = fanin_ring_doubling_link(ring);

	/* In the same polls in which their notices are received. */
	if (ring->links_ns == ring->now_ns)
		links_watch(ring);
	if (!is_waiting(ring)) {
		fanin_ring_watch_idle(ring, &ring->prev_watch);
		fanin_ring_watch_idle(ring, &ring->next_watch);
		return;
	}
	fanin_ring_watch_check(ring, &ring->prev_watch, ring->prev);
	fanin_ring_watch_check(ring, &ring->next_watch, ring->next.fd);
	if (waited_ns >= timeout_ns && fanin_ring_watch_is_silent(ring, &ring->next_watch, 0))
		fail_by(ring, UINT64_C(1) << fanin_ring_next_rank(ring), FANIN_RING_SILENT);
	else if (waited_ns >= timeout_ns + grace_ns &&
		 fanin_ring_watch_is_silent(ring, &ring->prev_watch, grace_ns))
		fail_by(ring, UINT64_C(1) << fanin_ring_prev_rank(ring), FANIN_RING_SILENT);
	else if (link != NULL && waited_ns >= timeout_ns + grace_ns &&
		 fanin_ring_watch_is_silent(ring, &link->watch, grace_ns))
		fail_by(ring, UINT64_C(1) << link->call.rank, FANIN_RING_SILENT);
}

void
fanin_ring_check_timers(struct fanin_ring *ring)
{
	const uint64_t limit_ns = ring->config.wait_limit_ns;
	const uint64_t waited_ns = ring->now_ns - ring->progress_ns;
	const struct fanin_ring_link *link = fanin_ring_doubling_link(ring);
	uint64_t late;

	check_gone(ring);
	if (ring->status == FANIN_OK)
		check_silent(ring, waited_ns);
	if (ring->status != FANIN_OK || ring->requests.first == NULL)
		return;
	late = fanin_ring_missing(&ring->endpoint);
	if (late != 0)
		ring->late_ns = ring->now_ns;
	if (late != 0 && limit_ns != 0 && waited_ns >= limit_ns)
		fail_by(ring, late, FANIN_RING_LATE);
	else if (waited_ns >= ring->config.timeout_ns &&
		 ring->now_ns - ring->late_ns >= ring->config.timeout_ns)
		fail_by(ring,
			UINT64_C(1)
				<< (link != NULL ? link->call.rank : fanin_ring_prev_rank(ring)),
			FANIN_RING_STALLED);
}

uint64_t
fanin_ring_missing(struct fanin_endpoint *endpoint)
{
	struct fanin_ring *ring = fanin_ring_of(endpoint);
	uint64_t silent = silent_ranks(ring);

	if (ring->status != FANIN_OK)
		return ring->error.missing.words[0];
	if (ring->requests.first == NULL || ring->config.size == 1)
		return 0;
	if (silent != 0 || fanin_ring_is_doubling(ring))
		return silent;
	/* Nothing has been heard, so nothing is known. */
	if (ring->posted == 0)
		return 0;
	return fanin_ring_all(ring) & ~ring->posted & ~(UINT64_C(1) << ring->config.rank);
}

uint64_t
fanin_ring_late(struct fanin_endpoint *endpoint)
{
	struct fanin_ring *ring = fanin_ring_of(endpoint);

	return ring->status == FANIN_OK ? fanin_ring_missing(&ring->endpoint) : 0;
}
