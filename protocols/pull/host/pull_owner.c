/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What an owner does (protocols/pull/README.md): requests its packets in waves, merges the answers
 * by their sets of ranks, and makes each result once. Called by the poll loop only.
 */
#include "pull_internal.h"

#include <string.h>

#define US UINT64_C(1000)
/*
 * The wait after the first BUSY; and the number of BUSYs of a packet after which the owner asks
 * ranks directly.
 */
#define BUSY_FIRST_NS (100 * US)
#define BUSY_MAX 8u

static struct fanin_extent
extent_of(const struct fanin_pull *pull, uint32_t index)
{
	return fanin_request_extent(pull->op->request, pull->op->own_first + index);
}

static uint8_t *
sum_of(const struct fanin_pull *pull, uint32_t index)
{
	return pull->payloads + (size_t)(index % pull->span) * pull->mc.engine.config.payload_bytes;
}

/* ------------------------------------------------------------------ operations */

/* Returns the operation that is ready and has packets for this rank to make; NULL: none. */
static struct fanin_broadcast_op *
op_to_make(struct fanin_pull *pull)
{
	struct fanin_broadcast_op *op = pull->mc.ops;

	while (op != NULL && (!fanin_request_combines(op->request) || op->begun_ns == 0 ||
			      op->own_ready == op->own_end))
		op = op->next;
	return op;
}

/* Returns how many pulls of this rank fit into the tables if all ranks have as many. */
static uint32_t
capacity_of(const struct fanin_pull *pull)
{
	const uint32_t slots = 2u * pull->mc.engine.config.window;
	const uint32_t all = (uint32_t)pull->mc.engine.config.parameters[FANIN_PULL_ENTRIES];
	const uint32_t entries = all < slots ? all : slots;
	const uint32_t share = entries / fanin_pull_size(pull);

	return share == 0 ? 1 : share;
}

void
fanin_pull_waves_open(struct fanin_pull *pull)
{
	const uint64_t *parameters = pull->mc.engine.config.parameters;
	const struct fanin_waves_config config = {
		.capacity = capacity_of(pull),
		.limit = pull->span,
		.wave_blocks = (uint32_t)parameters[FANIN_PULL_WAVE_BLOCKS],
		.n_waves = (uint32_t)parameters[FANIN_PULL_WAVES],
	};

	fanin_waves_open(&pull->waves, &config, 0);
}

static void
op_begin(struct fanin_pull *pull, struct fanin_broadcast_op *op)
{
	const struct fanin_request *request = op->request;

	pull->op = op;
	pull->n_own = op->own_end - op->own_first;
	pull->n_begun = 0;
	pull->n_waiting = 0;
	pull->n_flying = 0;
	pull->dtype = fanin_pull_widens(pull, request) ? (uint8_t)FANIN_WIRE_F32 : request->dtype;
	pull->element_bytes = (uint8_t)fanin_dtype_size(pull->dtype);
	memset(pull->slots, 0, pull->span * sizeof(*pull->slots));
	fanin_pull_waves_open(pull);
}

/* ------------------------------------------------------------------ requests */

/* Sends a request to all other ranks. Returns false if the transport has no room. */
static bool
request_send(struct fanin_pull *pull, struct fanin_pull_slot *slot)
{
	const uint32_t place = fanin_pull_place(pull->mc.engine.config.rank, slot->index,
						fanin_pull_size(pull));
	struct fanin_headers headers;

	fanin_pull_headers(pull, FANIN_TYPE_PULL, pull->op->number, place, 0, &headers);
	headers.fanin.members = pull->mc.engine.config.rank;
	headers.fanin.number = fanin_pull_number(fanin_pull_patience(pull));
	if (!fanin_engine_transmit(&pull->mc.engine, &headers, NULL, 0)) {
		pull->is_blocked = true;
		return false;
	}
	pull->mc.engine.stats.frames_sent++;
	pull->stats.requests++;
	pull->n_waiting -= slot->state == FANIN_PULL_WAITING;
	slot->state = FANIN_PULL_ASKED;
	slot->sent_ns = pull->mc.engine.loop.now_ns;
	slot->generation = pull->generation;
	slot->again_ns = slot->sent_ns + 2 * fanin_pull_patience(pull);
	fanin_loop_wake_by(&pull->mc.engine.loop, slot->again_ns);
	return true;
}

/* Returns the shape of the data that ranks send for an own packet. */
static struct fanin_hdr
shape_of(const struct fanin_pull *pull, const struct fanin_extent *extent)
{
	return (struct fanin_hdr){
		.dtype = pull->dtype,
		.op = pull->op->request->op,
		.count = (uint16_t)(fanin_pull_data_len(pull, pull->op->request, extent) /
				    pull->element_bytes),
	};
}

/* Begins the sum of a packet with this rank's own data. */
static void
sum_begin(struct fanin_pull *pull, struct fanin_pull_slot *slot)
{
	const struct fanin_extent extent = extent_of(pull, slot->index);
	const struct fanin_hdr hdr = shape_of(pull, &extent);
	const struct fanin_sum_part own = {
		.ranks = &pull->own,
		.hdr = &hdr,
		.payload = fanin_pull_own_data(pull, pull->op->request, &extent),
	};

	fanin_sum_begin(&pull->sums, &slot->sum, &slot->in, sum_of(pull, slot->index), 0);
	(void)fanin_sum_add(&pull->sums, &slot->sum, &own);
}

static bool
packet_begin(struct fanin_pull *pull, uint32_t index)
{
	struct fanin_pull_slot *slot = fanin_pull_slot(pull, index);

	*slot = (struct fanin_pull_slot){ .index = index };
	if (!request_send(pull, slot))
		return false;
	sum_begin(pull, slot);
	return true;
}

/* Repeats the requests that came back and are due. */
static void
requests_repeat(struct fanin_pull *pull)
{
	for (uint32_t i = 0; i < pull->span && pull->n_waiting != 0; i++) {
		struct fanin_pull_slot *slot = &pull->slots[i];

		if (slot->state == FANIN_PULL_WAITING &&
		    slot->again_ns <= pull->mc.engine.loop.now_ns && !request_send(pull, slot))
			return;
	}
}

void
fanin_pull_begin(struct fanin_pull *pull)
{
	struct fanin_broadcast_op *op = op_to_make(pull);
	uint32_t room = FANIN_PULL_BURST;

	if (op == NULL) {
		pull->op = NULL;
		return;
	}
	if (pull->op != op)
		op_begin(pull, op);
	requests_repeat(pull);
	for (; room > 0 && !pull->is_blocked && pull->n_begun < pull->n_own &&
	       pull->n_flying < pull->allowed && fanin_waves_may_start(&pull->waves, pull->n_begun);
	     room--) {
		if (!packet_begin(pull, pull->n_begun))
			return;
		pull->n_begun++;
		pull->n_flying++;
	}
	if (room == 0)
		pull->is_blocked = true;
}

void
fanin_pull_receive_busy(struct fanin_pull *pull, const struct fanin_hdr *hdr)
{
	const uint32_t index = fanin_pull_index(hdr->block, fanin_pull_size(pull));
	const uint64_t now_ns = pull->mc.engine.loop.now_ns;
	struct fanin_pull_slot *slot;

	if (pull->op == NULL || hdr->progress != pull->op->number || index >= pull->n_begun)
		return;
	slot = fanin_pull_slot(pull, index);
	/* Ignore BUSY of a duplicate, or of a packet that was asked for directly. */
	if (slot->index != index || slot->state != FANIN_PULL_ASKED || slot->wait_ns != 0)
		return;
	pull->stats.busy++;
	if (++slot->n_busy == BUSY_MAX) {
		slot->again_ns = now_ns;
	} else {
		slot->state = FANIN_PULL_WAITING;
		pull->n_waiting++;
		slot->again_ns = now_ns + (BUSY_FIRST_NS << (slot->n_busy - 1));
	}
	fanin_loop_wake_by(&pull->mc.engine.loop, slot->again_ns);
}

/* ------------------------------------------------------------------ results */

/* A packet is made, which may free an entry in switches: the oldest waiting request is due now. */
static void
wake_waiting(struct fanin_pull *pull)
{
	struct fanin_pull_slot *oldest = NULL;

	for (uint32_t i = 0; i < pull->span && pull->n_waiting != 0; i++) {
		struct fanin_pull_slot *slot = &pull->slots[i];

		if (slot->state == FANIN_PULL_WAITING &&
		    (oldest == NULL || slot->index < oldest->index))
			oldest = slot;
	}
	if (oldest != NULL)
		oldest->again_ns = pull->mc.engine.loop.now_ns;
}

/*
 * Finishes the sum of all ranks, that is, divides and narrows it as the operation asks, and copies
 * it to its place.
 */
static void
result_put(struct fanin_pull *pull, struct fanin_pull_slot *slot)
{
	const struct fanin_request *request = pull->op->request;
	const struct fanin_extent extent = extent_of(pull, slot->index);
	uint8_t *sum = sum_of(pull, slot->index);

	fanin_sum_finish(&pull->sums, &slot->sum);
	if (fanin_pull_widens(pull, request))
		fanin_kernel_wide(pull->sums.isa, request->dtype)
			->narrow(sum, sum, extent.len / request->element_bytes);
	memcpy(fanin_broadcast_place(pull->op, &extent), sum, extent.len);
}

/* Makes the result of a packet: all ranks are in its sum. */
static void
packet_finish(struct fanin_pull *pull, struct fanin_pull_slot *slot)
{
	struct fanin_broadcast_op *op = pull->op;
	const struct fanin_extent extent = extent_of(pull, slot->index);

	result_put(pull, slot);
	pull->n_waiting -= slot->state == FANIN_PULL_WAITING;
	slot->state = FANIN_PULL_DONE;
	pull->stats.pulls++;
	pull->n_flying--;
	fanin_pull_note_made(pull);
	op->request->done_bytes += extent.len;
	pull->mc.engine.stats.bytes_reduced += extent.len;
	/* Packets are sent in order: the first one that is not made holds back those after it. */
	while (op->own_ready - op->own_first < pull->n_begun &&
	       fanin_pull_slot(pull, op->own_ready - op->own_first)->state == FANIN_PULL_DONE)
		op->own_ready++;
	if (op->n_chains == 0)
		op->own_next = op->own_ready;
	(void)fanin_waves_completed(&pull->waves, slot->index);
	wake_waiting(pull);
}

/* A sum of other ranks, as received. */
struct sum {
	uint64_t members;
	uint32_t index;
	uint32_t len; /* bytes of elements */
};

/* Returns the elements of a frame, in place or copied to scratch; NULL if the frame is lost. */
static const void *
elements_of(struct fanin_pull *pull, const struct fanin_frame *frame, uint32_t len)
{
	if (!frame->headers_only)
		return (const uint8_t *)frame->data + FANIN_PAYLOAD_OFFSET;
	return fanin_frame_copy(pull->mc.engine.loop.transport, frame, FANIN_PAYLOAD_OFFSET,
				pull->scratch, len)
		       ? pull->scratch
		       : NULL;
}

/*
 * Makes room for a received sum. If it overlaps with the sum here, the one with more ranks wins, so
 * that fewer ranks are asked. Returns false if the received sum is dropped.
 */
static bool
sum_admit(struct fanin_pull *pull, struct fanin_pull_slot *slot, uint64_t members)
{
	const enum fanin_sum_outcome outcome = fanin_sum_compare(&pull->sums, &slot->sum, &members);

	if (outcome == FANIN_SUM_MERGED)
		return true;
	if (outcome == FANIN_SUM_DUPLICATE) {
		pull->stats.duplicates++;
		return false;
	}
	if (__builtin_popcountll(members) <= __builtin_popcountll(slot->in & ~pull->own)) {
		pull->stats.overlaps++;
		return false;
	}
	pull->stats.replaced++;
	sum_begin(pull, slot);
	return true;
}

static void
sum_take(struct fanin_pull *pull, const struct sum *sum, const struct fanin_frame *frame)
{
	struct fanin_pull_slot *slot = fanin_pull_slot(pull, sum->index);
	const struct fanin_extent extent = extent_of(pull, sum->index);
	const struct fanin_hdr hdr = shape_of(pull, &extent);
	struct fanin_sum_part part = { .ranks = &sum->members, .hdr = &hdr };

	if (sum->members == 0 || (sum->members & ~(pull->all & ~pull->own)) != 0 ||
	    sum->len != fanin_pull_data_len(pull, pull->op->request, &extent)) {
		pull->mc.engine.stats.invalid++;
		return;
	}
	if (slot->index != sum->index || slot->state == FANIN_PULL_DONE) {
		pull->stats.duplicates++;
		return;
	}
	if (!sum_admit(pull, slot, sum->members))
		return;
	part.payload = elements_of(pull, frame, sum->len);
	if (part.payload == NULL) {
		pull->mc.engine.stats.invalid++;
		return;
	}
	(void)fanin_sum_add(&pull->sums, &slot->sum, &part);
	pull->stats.merged++;
	pull->stats.ranks_merged += (uint64_t)__builtin_popcountll(sum->members);
	fanin_broadcast_note_progress(&pull->mc, pull->op);
	if (fanin_sum_is_whole(&pull->sums, &slot->sum, NULL))
		packet_finish(pull, slot);
}

/* True if the index-th own packet of this operation has begun. */
static bool
is_begun(struct fanin_pull *pull, uint32_t operation, uint32_t index)
{
	if (pull->op != NULL && operation == pull->op->number && index < pull->n_begun)
		return true;
	pull->stats.duplicates++;
	return false;
}

void
fanin_pull_receive_response(struct fanin_pull *pull, const struct fanin_frame *frame)
{
	const struct fanin_headers *headers = frame->data;
	const struct fanin_hdr *hdr = &headers->fanin;
	const struct sum sum = {
		.members = hdr->members,
		.index = fanin_pull_index(hdr->block, fanin_pull_size(pull)),
		.len = fanin_wire_payload_len(headers),
	};
	const struct fanin_pull_slot *slot;

	if (!is_begun(pull, hdr->progress, sum.index))
		return;
	if (hdr->dtype != pull->dtype || hdr->op != pull->op->request->op ||
	    fanin_wire_is_empty(hdr)) {
		pull->mc.engine.stats.invalid++;
		return;
	}
	slot = fanin_pull_slot(pull, sum.index);
	if (slot->index == sum.index && slot->state == FANIN_PULL_ASKED && slot->wait_ns == 0 &&
	    (slot->in | sum.members) == pull->all)
		fanin_pull_note_time(pull, slot);
	else if (slot->index == sum.index && slot->wait_ns != 0)
		fanin_pull_note_time(pull, slot);
	sum_take(pull, &sum, frame);
}

void
fanin_pull_receive_give(struct fanin_pull *pull, const struct fanin_frame *frame)
{
	const struct fanin_headers *headers = frame->data;
	const struct fanin_hdr *hdr = &headers->fanin;
	struct sum sum = {
		.members = UINT64_C(1) << hdr->members,
		.len = fanin_wire_payload_len(headers),
	};

	if (pull->op != NULL && hdr->block >= pull->op->own_first)
		sum.index = hdr->block - pull->op->own_first;
	else
		sum.index = UINT32_MAX;
	if (!is_begun(pull, hdr->progress, sum.index))
		return;
	pull->stats.given++;
	sum_take(pull, &sum, frame);
}
