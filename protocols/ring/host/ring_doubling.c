/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sparse allreduces by recursive doubling (Renggli et al., "SparCML: High-performance sparse
 * communication for machine learning", section 5, SSAR_Recursive_double): in round k a rank and the
 * one 2^k places away exchange all that they have, and both combine it. A vector is a list of
 * indices and values until it is shorter without (sparse_union.h). Where the number of ranks is no
 * power of two, ranks that are too many give their vector to a neighbour before, and get the result
 * after.
 *
 * What lies behind a place is a range of ranks. The lower range is the first operand at both
 * partners, so that all ranks get the same bits. Nobody needs to know how many values another rank
 * brings: the head of each vector tells.
 */
#include "ring_internal.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "wire/types.h"

/* Chunks per poll in each direction, and their bytes. */
#define CHUNKS_PER_POLL 16
#define CHUNK_BYTES (4ull * FANIN_RING_CHUNK)

/* A vector of so many values is refused, so that no length overflows. */
#define MAX_VALUES (UINT64_MAX / 32)

static const struct fanin_vector *
sparse_of(const struct fanin_ring *ring)
{
	return ring->work.request->sparse;
}

static const struct fanin_ring_stage *
stage_of(const struct fanin_ring *ring)
{
	return &ring->stages[ring->doubling.stage];
}

static struct fanin_ring_link *
link_of(struct fanin_ring *ring)
{
	return &ring->links[stage_of(ring)->link];
}

/* True if ranks have said different lengths. */
static bool
has_other_n(const struct fanin_ring_doubling *work)
{
	return work->n_min != work->n_max;
}

static uint64_t
parts_len(const struct fanin_vector_union *all)
{
	struct fanin_vector_parts parts;

	fanin_vector_union_parts(all, &parts);
	return parts.len[0] + parts.len[1];
}

/*
 * Returns where a vector goes on after `done` bytes. len: receives how many lie there one after the
 * other, CHUNK_BYTES at most.
 */
static uint8_t *
parts_at(const struct fanin_vector_union *all, uint64_t done, size_t *len)
{
	struct fanin_vector_parts parts;
	unsigned int part = 0;

	fanin_vector_union_parts(all, &parts);
	if (done >= parts.len[0]) {
		done -= parts.len[0];
		part = 1;
	}
	*len = parts.len[part] - done < CHUNK_BYTES ? parts.len[part] - done : CHUNK_BYTES;
	return parts.bytes[part] + done;
}

static void
memory_lacks(struct fanin_ring *ring)
{
	fanin_ring_fail(ring, fanin_error_set(&ring->error, FANIN_ERR_NO_MEMORY,
					      "out of memory for sparse vectors of %llu indices",
					      (unsigned long long)sparse_of(ring)->n));
}

static void
stage_begin(struct fanin_ring *ring, uint32_t stage)
{
	struct fanin_ring_doubling *work = &ring->doubling;

	work->stage = stage;
	work->moved_ns = ring->now_ns;
	work->tx_begun = false;
	work->rx_begun = false;
	work->tx_bytes = 0;
	work->rx_bytes = 0;
	work->tx_len = 0;
	work->rx_len = 0;
	work->rx_ignored = false;
}

void
fanin_ring_doubling_begin(struct fanin_ring *ring)
{
	struct fanin_ring_doubling *work = &ring->doubling;
	const struct fanin_vector *sparse = sparse_of(ring);

	*work = (struct fanin_ring_doubling){ .n_min = sparse->n, .n_max = sparse->n };
	if (fanin_vector_union_begin(&work->own, sparse) != FANIN_OK) {
		memory_lacks(ring);
		return;
	}
	stage_begin(ring, 0);
}

void
fanin_ring_doubling_end(struct fanin_ring *ring)
{
	fanin_vector_union_free(&ring->doubling.own);
	fanin_vector_union_free(&ring->doubling.in);
}

/* ------------------------------------------------------------------ send */

static void
tx_begin(struct fanin_ring *ring, struct fanin_ring_link *link)
{
	struct fanin_ring_doubling *work = &ring->doubling;
	struct fanin_ring_vector head;

	/* The partner may already have told another length. */
	if (has_other_n(work))
		fanin_vector_union_free(&work->own);
	head = (struct fanin_ring_vector){
		.type = FANIN_RING_VECTOR,
		.seq = ring->seq,
		.n_min = work->n_min,
		.n_max = work->n_max,
		.nnz = work->own.nnz,
		.form = work->own.form,
		.dtype = ring->work.request->dtype,
		.op = ring->work.request->op,
	};

	fanin_ring_piece_set(&link->tx, &head, sizeof(head));
	link->has_sent = true;
	link->sent_seq = ring->seq;
	work->tx_begun = true;
	work->tx_len = parts_len(&work->own);
	ring->stats.vectors_sent++;
}

/* Returns how often something was sent. */
static unsigned int
stage_send(struct fanin_ring *ring)
{
	struct fanin_ring_doubling *work = &ring->doubling;
	struct fanin_ring_link *link = link_of(ring);
	unsigned int chunks = 0;

	if (!stage_of(ring)->sends || link->ended)
		return 0;
	link->tx_blocked = false;
	if (!work->tx_begun) {
		/* Part of a notice may be left to be sent. */
		if (fanin_ring_link_flush(ring, link))
			tx_begin(ring, link);
		chunks++;
	}
	if (!fanin_ring_link_flush(ring, link)) {
		link->tx_blocked = true;
		return 0;
	}
	while (work->tx_bytes < work->tx_len && chunks < CHUNKS_PER_POLL) {
		size_t len;
		const uint8_t *bytes = parts_at(&work->own, work->tx_bytes, &len);
		ssize_t sent = send(link->call.fd, bytes, len, MSG_NOSIGNAL | MSG_DONTWAIT);

		ring->stats.send_calls++;
		if (sent < 0) {
			if (errno != EAGAIN && errno != EINTR)
				fanin_ring_link_end(ring, link);
			link->tx_blocked = true;
			break;
		}
		work->tx_bytes += (uint64_t)sent;
		ring->stats.bytes_sent += (uint64_t)sent;
		ring->stats.sparse_bytes_sent += (uint64_t)sent;
		work->moved_ns = ring->now_ns;
		chunks++;
	}
	return chunks;
}

static bool
tx_done(struct fanin_ring *ring)
{
	const struct fanin_ring_doubling *work = &ring->doubling;

	return !stage_of(ring)->sends ||
	       (work->tx_begun && link_of(ring)->tx.len == 0 && work->tx_bytes == work->tx_len);
}

/* --------------------------------------------------------------- receive */

/* Returns what is wrong with the head of a vector; NULL if nothing is. */
static const char *
head_problem(const struct fanin_ring *ring, const struct fanin_ring_vector *head)
{
	const struct fanin_request *request = ring->work.request;

	if (head->seq != ring->seq)
		return "it is of another collective";
	if (head->dtype != request->dtype || head->op != request->op)
		return "its data type or operator is another one";
	if (head->n_min != head->n_max)
		return head->form == FANIN_VECTOR_NOTHING ? NULL : "it has more than one length";
	if (head->form == FANIN_VECTOR_NOTHING || head->form > FANIN_VECTOR_FULL)
		return "its form is unknown";
	if (head->nnz > head->n_max || head->nnz > MAX_VALUES ||
	    head->n_max > SIZE_MAX / 2 / request->element_bytes)
		return "it has too many values";
	if (head->form !=
	    (uint8_t)fanin_vector_union_form(head->n_max, head->nnz, request->element_bytes))
		return "its form is not the shortest one";
	return NULL;
}

/* Returns the bytes of a vector of another length, which are only counted. */
static uint64_t
ignored_len(const struct fanin_ring *ring, const struct fanin_ring_vector *head)
{
	const struct fanin_vector_union all = {
		.n = head->n_max,
		.nnz = head->nnz,
		.form = head->form,
		.index_bytes = fanin_vector_union_index_bytes(head->n_max),
		.element_bytes = ring->work.request->element_bytes,
	};

	return parts_len(&all);
}

/* Makes room for the partner's vector, which is coming. */
static void
rx_begin(struct fanin_ring *ring, struct fanin_ring_link *link)
{
	struct fanin_ring_doubling *work = &ring->doubling;
	struct fanin_ring_vector head;
	const char *problem;

	memcpy(&head, link->rx.bytes, sizeof(head));
	link->rx = (struct fanin_ring_piece){ 0 };
	problem = head_problem(ring, &head);
	if (problem != NULL) {
		fanin_ring_fail(
			ring,
			fanin_error_set(
				&ring->error, FANIN_ERR_REFUSED,
				"collective %u: rank %u sent a sparse vector that is refused: %s",
				ring->seq, link->call.rank, problem));
		return;
	}
	work->rx_begun = true;
	work->rx_ignored = has_other_n(work) || head.n_min != work->n_min ||
			   head.n_max != work->n_max;
	if (head.n_min < work->n_min)
		work->n_min = head.n_min;
	if (head.n_max > work->n_max)
		work->n_max = head.n_max;
	if (work->rx_ignored) {
		work->rx_len = ignored_len(ring, &head);
	} else if (fanin_vector_union_room(&work->in, head.n_max, head.nnz,
					   (enum fanin_vector_form)head.form,
					   ring->work.request->element_bytes) != FANIN_OK) {
		memory_lacks(ring);
	} else {
		work->rx_len = parts_len(&work->in);
	}
	ring->stats.vectors_received++;
}

/* Returns how often something was received. The ring may have failed. */
static unsigned int
stage_receive(struct fanin_ring *ring)
{
	struct fanin_ring_doubling *work = &ring->doubling;
	struct fanin_ring_link *link = link_of(ring);
	unsigned int chunks = 0;

	if (!stage_of(ring)->receives)
		return 0;
	if (!work->rx_begun) {
		fanin_ring_link_receive(ring, link);
		if (ring->status != FANIN_OK || !fanin_ring_link_has_head(link))
			return 0;
		rx_begin(ring, link);
		chunks++;
	}
	while (ring->status == FANIN_OK && !link->ended && work->rx_bytes < work->rx_len &&
	       chunks < CHUNKS_PER_POLL) {
		size_t len = sizeof(ring->scratch);
		uint8_t *into = ring->scratch;
		ssize_t got;

		if (!work->rx_ignored)
			into = parts_at(&work->in, work->rx_bytes, &len);
		else if (work->rx_len - work->rx_bytes < len)
			len = work->rx_len - work->rx_bytes;
		got = recv(link->call.fd, into, len, MSG_DONTWAIT);
		ring->stats.receive_calls++;
		if (got <= 0) {
			if (got == 0 || (errno != EAGAIN && errno != EINTR))
				fanin_ring_link_end(ring, link);
			break;
		}
		work->rx_bytes += (uint64_t)got;
		ring->stats.bytes_received += (uint64_t)got;
		chunks++;
	}
	if (chunks != 0) {
		ring->received_ns = ring->now_ns;
		work->moved_ns = ring->now_ns;
	}
	return chunks;
}

static bool
rx_done(const struct fanin_ring *ring)
{
	const struct fanin_ring_doubling *work = &ring->doubling;

	return !stage_of(ring)->receives || (work->rx_begun && work->rx_bytes == work->rx_len);
}

/* ---------------------------------------------------------------- rounds */

/* Combines both vectors of a round, which are in place. The ring may have failed. */
static void
stage_finish(struct fanin_ring *ring)
{
	struct fanin_ring_doubling *work = &ring->doubling;
	const uint16_t partner = link_of(ring)->call.rank;
	struct fanin_vector_union *lower = &work->own;
	struct fanin_vector_union *upper = &work->in;

	if (has_other_n(work)) {
		fanin_ring_doubling_end(ring);
	} else if (stage_of(ring)->receives && !fanin_vector_union_is_valid(&work->in)) {
		fanin_ring_fail(
			ring,
			fanin_error_set(
				&ring->error, FANIN_ERR_REFUSED,
				"collective %u: rank %u sent a sparse vector that is refused: its indices do not ascend, or are more than it has",
				ring->seq, partner));
		return;
	} else if (stage_of(ring)->takes_over) {
		fanin_vector_union_free(&work->own);
		work->own = work->in;
		work->in = (struct fanin_vector_union){ 0 };
	} else if (stage_of(ring)->receives) {
		if (partner < ring->config.rank) {
			lower = &work->in;
			upper = &work->own;
		}
		if (fanin_vector_union_combine(lower, upper, sparse_of(ring)->combine) !=
		    FANIN_OK) {
			memory_lacks(ring);
			return;
		}
		if (lower == &work->in) {
			work->own = work->in;
			work->in = (struct fanin_vector_union){ 0 };
		}
	}
	stage_begin(ring, work->stage + 1);
}

unsigned int
fanin_ring_doubling_work(struct fanin_ring *ring)
{
	struct fanin_ring_doubling *work = &ring->doubling;
	unsigned int moved = 0;

	while (ring->status == FANIN_OK && work->stage < ring->n_stages) {
		moved += stage_send(ring);
		moved += stage_receive(ring);
		if (ring->status != FANIN_OK || !tx_done(ring) || !rx_done(ring))
			break;
		stage_finish(ring);
		moved++;
	}
	return moved;
}

/* Returns what a rank sends in the ring's allreduce of as many elements. */
static uint64_t
dense_bytes(const struct fanin_ring *ring, const struct fanin_vector *sparse)
{
	const uint64_t size = ring->config.size;
	const uint64_t rest = sparse->n % size;
	uint64_t elements = 2 * (size - 1) * (sparse->n / size);

	/*
	 * All segments but that of the next rank, then all but that of the one after it. The first
	 * ones may be longer by one.
	 */
	for (uint64_t i = 1; size > 1 && i <= 2; i++)
		elements += rest - ((ring->config.rank + i) % size < rest);
	return elements * sparse->element_bytes;
}

int
fanin_ring_doubling_finish(struct fanin_ring *ring)
{
	const struct fanin_ring_doubling *work = &ring->doubling;
	struct fanin_vector *sparse = ring->work.request->sparse;

	if (has_other_n(work))
		return fanin_error_set(
			&sparse->error, FANIN_ERR_INVALID,
			"n is %llu here, and %llu to %llu at all ranks, expected the same at all",
			(unsigned long long)sparse->n, (unsigned long long)work->n_min,
			(unsigned long long)work->n_max);
	ring->stats.sparse_collectives++;
	ring->stats.sparse_elements += sparse->n;
	ring->stats.sparse_values_sent += sparse->nnz;
	ring->stats.sparse_values_received += work->own.nnz;
	ring->stats.sparse_dense_bytes += dense_bytes(ring, sparse);
	return fanin_vector_union_finish(&work->own, sparse);
}

/* --------------------------------------------------------------- waiting */

short
fanin_ring_doubling_events(const struct fanin_ring *ring)
{
	const struct fanin_ring_link *link = fanin_ring_doubling_link(ring);

	if (link == NULL || link->ended)
		return 0;
	return (short)((rx_done(ring) || fanin_ring_link_has_head(link) ? 0 : POLLIN) |
		       (link->tx_blocked ? POLLOUT : 0));
}

uint64_t
fanin_ring_doubling_missing(const struct fanin_ring *ring)
{
	const struct fanin_ring_doubling *work = &ring->doubling;
	const struct fanin_ring_link *link = fanin_ring_doubling_link(ring);
	const uint64_t limit_ns = ring->config.timeout_ns / 2;
	uint64_t partner;

	if (link == NULL)
		return 0;
	partner = UINT64_C(1) << link->call.rank;
	/* Nothing has come from the partner for long: its process is not in the library. */
	if (ring->now_ns - work->moved_ns >= limit_ns && ring->now_ns - link->heard_ns >= limit_ns)
		return partner;
	if (work->rx_begun || link->heard.type != FANIN_RING_STATUS ||
	    ring->now_ns - link->heard_ns >= limit_ns ||
	    fanin_ring_seq_before(ring->seq, link->heard.seq))
		return 0;
	if (link->heard.seq == ring->seq && !fanin_ring_link_has_posted(link))
		return partner;
	return link->heard.silent & ~(UINT64_C(1) << ring->config.rank);
}
