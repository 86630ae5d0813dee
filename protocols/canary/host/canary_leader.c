/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Canary's leader (sections 3.1.4 and 3.3; protocols/canary/README.md, "What the leader does"). It
 * merges the data of a block by the sets of ranks in it and makes the result once. It sends the
 * result back to where data came from: to the ports that switches noted, to the ports that
 * collisions reported, and to single ranks. A block takes over the entry of the block 2W before it.
 * A rank that sends the later block has all results of the earlier block's window, so all ranks
 * have the earlier block's result.
 */
#include "canary_internal.h"

#include <arpa/inet.h>

/* A block's position relative to its entry. */
enum place {
	PLACE_STALE,   /* the block had its result long ago */
	PLACE_CURRENT, /* the entry is the block's: OPEN or DONE */
	PLACE_NEXT,    /* nothing of the block has come, and it may take the entry */
	PLACE_AHEAD,   /* no rank that keeps to the window can send the block */
};

static struct canary_entry *
entry_of(const struct fanin_canary *canary, uint32_t block)
{
	return &canary->entries[block & (2u * canary->engine.config.window - 1)];
}

static enum place
place_of(const struct fanin_canary *canary, uint32_t block)
{
	const struct canary_entry *entry = entry_of(canary, block);

	if (entry->phase != CANARY_ENTRY_FREE && entry->block == block)
		return PLACE_CURRENT;
	if (fanin_block_before(block, canary_next(canary)))
		return PLACE_STALE;
	return block - canary_next(canary) >= canary->engine.config.window ||
			       entry->phase == CANARY_ENTRY_OPEN
		       ? PLACE_AHEAD
		       : PLACE_NEXT;
}

/* Returns the headers; the payload follows them. */
static struct fanin_headers *
frame_of(const struct fanin_canary *canary, const struct canary_entry *entry)
{
	return fanin_sum_frame(&canary->frames, (size_t)(entry - canary->entries));
}

static void
entry_open(struct fanin_canary *canary, struct canary_entry *entry, uint32_t block, uint64_t shape)
{
	/* By now all ranks have the earlier block's result. */
	canary->n_unsent -= entry->unsent;
	*entry = (struct canary_entry){
		.block = block,
		.phase = CANARY_ENTRY_OPEN,
	};
	fanin_sum_begin(&canary->sums, &entry->sum, &entry->members, frame_of(canary, entry) + 1,
			shape);
}

/* ------------------------------------------------------------------ questions, and the end */

void
fanin_canary_ask(struct fanin_canary *canary, uint32_t block, uint64_t ranks, uint32_t attempt)
{
	const struct canary_packet packet = { .flow = block + attempt, .attempt = attempt };

	for (uint64_t left = ranks; left != 0; left &= left - 1) {
		const unsigned int rank = (unsigned int)__builtin_ctzll(left);
		struct fanin_headers headers;

		fanin_canary_begin(canary, FANIN_TYPE_ASK, block, &headers);
		headers.fanin.members = UINT64_C(1) << rank;
		if (!fanin_canary_send_to(canary, &headers, rank, &packet))
			return;
		canary_note_asked(canary, rank);
		canary->stats.asks++;
	}
}

/* The content of an ANSWER to a rank. */
struct answer {
	uint32_t block;
	uint32_t number; /* number of the QUERY */
	uint16_t state;  /* enum fanin_block_state */
	uint64_t missing;
	uint64_t gone;
};

static void
answer_send(struct fanin_canary *canary, unsigned int rank, const struct answer *answer)
{
	uint8_t payload[sizeof(struct fanin_answer_body) + 2 * sizeof(uint64_t)] = { 0 };
	const struct canary_packet packet = { .payload = payload,
					      .len = sizeof(payload),
					      .flow = (uint32_t)canary->engine.stats.frames_sent,
					      .is_reply = true };
	struct fanin_headers headers;
	uint64_t sets[2];

	fanin_answer_encode_word(answer->missing | answer->gone, 0, answer->gone, &sets[0],
				 &sets[1]);
	memcpy(payload + sizeof(struct fanin_answer_body), sets, sizeof(sets));
	fanin_canary_begin(canary, FANIN_TYPE_ANSWER, answer->block, &headers);
	headers.fanin.count = answer->state;
	headers.fanin.number = answer->number;
	(void)fanin_canary_send_to(canary, &headers, rank, &packet);
}

/*
 * Switches accept an ANSWER from a block's leader only. Returns the first block that this rank
 * leads and that is not done.
 */
static uint32_t
first_led(const struct fanin_canary *canary)
{
	uint32_t block = canary->engine.oldest;

	while (!canary_leads(canary, block))
		block++;
	return block;
}

void
fanin_canary_tell_end(struct fanin_canary *canary, unsigned int rank)
{
	const struct answer answer = {
		.block = first_led(canary),
		.state = canary->engine.run_end.why == FANIN_RUN_GONE ? FANIN_BLOCK_OPEN
								      : FANIN_BLOCK_ABSENT,
		.missing = canary->engine.run_end.whom,
		.gone = canary->engine.run_end.why == FANIN_RUN_GONE ? canary->engine.run_end.whom
								     : 0,
	};

	answer_send(canary, rank, &answer);
}

void
fanin_canary_tell_all(struct fanin_canary *canary)
{
	for (uint64_t left = canary->others; left != 0; left &= left - 1)
		fanin_canary_tell_end(canary, (unsigned int)__builtin_ctzll(left));
}

/* Ends the run because data of these ranks has different shapes. */
static void
mismatch(struct fanin_canary *canary, uint32_t block, uint64_t some, uint64_t others)
{
	fanin_run_end_fail(&canary->engine, block, FANIN_RUN_MISMATCH,
			   fanin_run_end_blame(some, others));
	fanin_canary_tell_all(canary);
}

/* ------------------------------------------------------------------ results */

static void
result_begin(const struct fanin_canary *canary, const struct canary_entry *entry,
	     enum fanin_type type, struct fanin_headers *headers)
{
	fanin_canary_begin(canary, type, entry->block, headers);
	headers->fanin.flags = entry->sum.empty ? FANIN_FLAG_EMPTY : 0;
	headers->fanin.contributions = canary->engine.config.size;
	fanin_wire_set_shape(&headers->fanin, entry->sum.shape);
}

static struct canary_packet
result_packet(const struct fanin_canary *canary, const struct canary_entry *entry)
{
	return (struct canary_packet){ .payload = frame_of(canary, entry) + 1,
				       .len = fanin_sum_len(&entry->sum),
				       .flow = entry->block };
}

/* number: of the QUERY that asked for the result; 0: none did. */
static void
result_repeat(struct fanin_canary *canary, const struct canary_entry *entry, unsigned int rank,
	      uint32_t number)
{
	struct canary_packet packet = result_packet(canary, entry);
	struct fanin_headers headers;

	packet.flow = (uint32_t)canary->engine.stats.frames_sent;
	packet.is_reply = true;
	result_begin(canary, entry, FANIN_TYPE_REPEAT, &headers);
	headers.fanin.rank = (uint16_t)rank;
	headers.fanin.members = number;
	if (fanin_canary_send_to(canary, &headers, rank, &packet))
		canary->stats.repeats++;
}

/*
 * Sends the result to the ports that switches have noted, by way of the leaves that data came from.
 * Returns false if there is no room for all of it now.
 */
static bool
result_send(struct fanin_canary *canary, const struct canary_entry *entry)
{
	const struct canary_packet packet = result_packet(canary, entry);
	const uint32_t group_be = htonl(FANIN_WIRE_GROUPS | canary->engine.config.job);
	const unsigned int ways = entry->ways != 0 ? entry->ways : 1u << canary->way;
	struct fanin_headers headers;

	for (unsigned int way = 0; way < canary->n_ways; way++) {
		result_begin(canary, entry, FANIN_TYPE_RESULT, &headers);
		if ((ways >> way & 1) != 0 &&
		    !fanin_canary_send_by(canary, &headers, way, group_be, &packet))
			return false;
	}
	for (unsigned int i = 0; i < entry->n_restores; i++) {
		result_begin(canary, entry, FANIN_TYPE_RESTORE, &headers);
		headers.fanin.members = entry->restores[i].ports;
		if (!fanin_canary_send_by(canary, &headers, canary->way, entry->restores[i].ip_be,
					  &packet))
			return false;
		canary->stats.restores++;
	}
	return true;
}

void
fanin_canary_send_unsent(struct fanin_canary *canary)
{
	const uint32_t mask = 2u * canary->engine.config.window - 1;

	for (; canary->n_unsent != 0; canary->unsent = (canary->unsent + 1) & mask) {
		struct canary_entry *entry = &canary->entries[canary->unsent];

		if (!entry->unsent)
			continue;
		if (!result_send(canary, entry))
			return;
		entry->unsent = false;
		canary->n_unsent--;
	}
}

/*
 * Sends the result to ranks that no noted port leads to, if they are few. If they are many, other
 * ranks may have lost their results, too, and will ask.
 */
static void
result_send_single(struct fanin_canary *canary, struct canary_entry *entry)
{
	const struct answer done = { .block = entry->block, .state = FANIN_BLOCK_DONE };
	const unsigned int n = (unsigned int)__builtin_popcountll(entry->direct);

	if (n == 1 || n <= canary->engine.config.size / 8u) {
		for (uint64_t left = entry->direct; left != 0; left &= left - 1)
			result_repeat(canary, entry, (unsigned int)__builtin_ctzll(left), 0);
		entry->askers &= ~entry->direct;
	}
	for (uint64_t left = entry->askers; left != 0; left &= left - 1)
		answer_send(canary, (unsigned int)__builtin_ctzll(left), &done);
}

/* All ranks are in: adds this rank's own data last. From now on the result stays the same. */
static void
entry_finish(struct fanin_canary *canary, struct canary_entry *entry)
{
	struct fanin_headers *frame = frame_of(canary, entry);

	fanin_engine_make_result(&canary->engine, entry->block, &canary->sums, &entry->sum, frame);
	entry->phase = CANARY_ENTRY_DONE;
	canary->stats.led++;
	if (canary->others != 0) {
		entry->unsent = !result_send(canary, entry);
		canary->n_unsent += entry->unsent;
		result_send_single(canary, entry);
	}
	fanin_engine_take_result(&canary->engine, entry->block, frame, fanin_sum_len(&entry->sum));
}

static void
entry_check(struct fanin_canary *canary, struct canary_entry *entry)
{
	const uint64_t self = canary->all & ~canary->others;

	if (entry->own && fanin_sum_is_whole(&canary->sums, &entry->sum, &self))
		entry_finish(canary, entry);
}

void
fanin_canary_lead(struct fanin_canary *canary, uint32_t block)
{
	struct canary_entry *entry = entry_of(canary, block);
	struct fanin_hdr hdr = { 0 };
	uint64_t shape;
	uint32_t len;

	(void)fanin_engine_contribution(fanin_engine_lane(&canary->engine, block), &hdr, &len);
	shape = fanin_wire_shape(&hdr);
	if (entry->phase == CANARY_ENTRY_FREE || entry->block != block)
		entry_open(canary, entry, block, shape);
	if (entry->sum.shape != shape) {
		mismatch(canary, block, UINT64_C(1) << canary->engine.config.rank, entry->members);
		return;
	}
	entry->own = true;
	entry_check(canary, entry);
}

uint64_t
fanin_canary_lacks(const struct fanin_canary *canary, uint32_t block)
{
	const struct canary_entry *entry = entry_of(canary, block);

	return entry->phase == CANARY_ENTRY_OPEN && entry->block == block
		       ? canary->others & ~entry->members
		       : 0;
}

/* ------------------------------------------------------------------ data */

/* A sum of other ranks, as received. */
struct data {
	const struct fanin_hdr *hdr;
	const uint8_t *payload; /* NULL: no data */
	uint32_t len;
};

/* Finds the elements. Returns false if the frame is lost, or is longer than the job's packets. */
static bool
data_read(struct fanin_canary *canary, const struct fanin_frame *frame, struct data *data)
{
	const struct fanin_headers *headers = frame->data;
	void *scratch;

	data->hdr = &headers->fanin;
	data->len = fanin_wire_payload_len(headers);
	data->payload = NULL;
	if (data->hdr->count * fanin_dtype_size(data->hdr->dtype) >
	    canary->engine.config.payload_bytes)
		return false;
	if (!fanin_op_is_copy(data->hdr->op) &&
	    fanin_kernel(canary->sums.isa, data->hdr->dtype, data->hdr->op) == NULL)
		return false;
	if (fanin_wire_is_empty(data->hdr))
		return true;
	data->payload = (const uint8_t *)frame->data + FANIN_PAYLOAD_OFFSET;
	if (!frame->headers_only || data->len == 0)
		return true;
	scratch = fanin_sum_frame(&canary->frames, 2u * canary->engine.config.window) + 1;
	data->payload = scratch;
	return fanin_frame_copy(canary->engine.loop.transport, frame, FANIN_PAYLOAD_OFFSET, scratch,
				data->len);
}

/* Notes the return path to ranks whose data no switch has kept. */
static void
note_way(struct canary_entry *entry, const struct fanin_hdr *hdr)
{
	unsigned int i = 0;

	if ((hdr->flags & FANIN_FLAG_DIRECT) == 0)
		return;
	if (hdr->number == 0 || hdr->rank >= 64) {
		entry->direct |= hdr->members;
		return;
	}
	while (i < entry->n_restores && entry->restores[i].ip_be != hdr->number)
		i++;
	if (i == CANARY_RESTORES) {
		entry->direct |= hdr->members;
		return;
	}
	if (i == entry->n_restores)
		entry->restores[entry->n_restores++] =
			(struct canary_restore){ .ip_be = hdr->number };
	entry->restores[i].ports |= UINT64_C(1) << hdr->rank;
}

/* Some of the sum's ranks are already there: asks the others for their own data. */
static void
ask_overlapping(struct fanin_canary *canary, struct canary_entry *entry, uint64_t ranks)
{
	canary->stats.overlaps++;
	if (entry->asked_ns != 0 &&
	    canary->engine.loop.now_ns - entry->asked_ns < canary->engine.rtt.rto_ns)
		return;
	entry->asked_ns = canary->engine.loop.now_ns;
	fanin_canary_ask(canary, entry->block, ranks, 0);
}

/* Handles data for an open block. Returns false if the data changes nothing. */
static bool
data_take(struct fanin_canary *canary, struct canary_entry *entry, const struct data *data)
{
	const uint64_t members = data->hdr->members;
	const struct fanin_sum_part part = { .ranks = &members,
					     .hdr = data->hdr,
					     .payload = data->payload };

	switch (fanin_sum_add(&canary->sums, &entry->sum, &part)) {
	case FANIN_SUM_MERGED:
		canary->stats.merged++;
		return true;
	case FANIN_SUM_REPLACED:
		canary->stats.replaced++;
		return true;
	case FANIN_SUM_DUPLICATE:
		fanin_canary_note_duplicate(canary, entry->block);
		return false;
	case FANIN_SUM_OVERLAP:
	case FANIN_SUM_MISMATCH: /* the mismatch has already ended the run */
		ask_overlapping(canary, entry, members & ~entry->members);
		return false;
	}
	return false;
}

/* True if the packet is one that a member of this job can send. */
static bool
members_fit(const struct fanin_canary *canary, const struct fanin_hdr *hdr)
{
	return canary_leads(canary, hdr->block) && hdr->members != 0 &&
	       (hdr->members & ~canary->others) == 0 &&
	       hdr->contributions == (unsigned int)__builtin_popcountll(hdr->members);
}

void
fanin_canary_receive_data(struct fanin_canary *canary, const struct fanin_frame *frame)
{
	const struct fanin_hdr *hdr = &((const struct fanin_headers *)frame->data)->fanin;
	struct canary_entry *entry = entry_of(canary, hdr->block);
	struct data data;
	enum place place;

	if (!members_fit(canary, hdr) || !data_read(canary, frame, &data)) {
		canary->engine.stats.invalid++;
		return;
	}
	/* Data in a sum answers the leader's question to the rank, too. */
	for (uint64_t left = hdr->members; left != 0; left &= left - 1)
		canary_hear(canary, (unsigned int)__builtin_ctzll(left));
	place = place_of(canary, hdr->block);
	if (place == PLACE_AHEAD) {
		canary->engine.stats.invalid++;
		return;
	}
	if (place == PLACE_STALE || (place == PLACE_CURRENT && entry->phase == CANARY_ENTRY_DONE)) {
		fanin_canary_note_duplicate(canary, hdr->block);
		return;
	}
	if (place == PLACE_NEXT)
		entry_open(canary, entry, hdr->block, fanin_wire_shape(hdr));
	if (entry->sum.shape != fanin_wire_shape(hdr)) {
		mismatch(canary, hdr->block, hdr->members,
			 entry->members | (entry->own ? canary->all & ~canary->others : 0));
		return;
	}
	canary->stats.direct += (hdr->flags & FANIN_FLAG_DIRECT) != 0;
	if (!data_take(canary, entry, &data))
		return;
	note_way(entry, hdr);
	if ((hdr->flags & FANIN_FLAG_DIRECT) == 0)
		entry->ways |= (uint8_t)(1u << fanin_canary_way_of(canary, frame->data));
	entry_check(canary, entry);
}

void
fanin_canary_receive_query(struct fanin_canary *canary, const struct fanin_headers *headers)
{
	const struct fanin_hdr *hdr = &headers->fanin;
	const uint32_t block = hdr->block;
	struct canary_entry *entry = entry_of(canary, block);
	const uint64_t self = UINT64_C(1) << canary->engine.config.rank;
	struct answer answer = {
		.block = block,
		.number = hdr->number,
		.state = FANIN_BLOCK_OPEN,
		.missing = canary->all,
	};

	if (!canary_leads(canary, block) || hdr->rank >= canary->engine.config.size ||
	    hdr->rank == canary->engine.config.rank) {
		canary->engine.stats.invalid++;
		return;
	}
	fanin_canary_hear_from(canary, hdr->rank, headers);
	switch (place_of(canary, block)) {
	case PLACE_STALE:
	case PLACE_AHEAD:
		canary->engine.stats.invalid++;
		return;
	case PLACE_CURRENT:
		if (entry->phase == CANARY_ENTRY_DONE) {
			result_repeat(canary, entry, hdr->rank, hdr->number);
			return;
		}
		entry->askers |= UINT64_C(1) << hdr->rank;
		answer.missing = (canary->others & ~entry->members) | (entry->own ? 0 : self);
		break;
	case PLACE_NEXT:
		break;
	}
	answer_send(canary, hdr->rank, &answer);
}
