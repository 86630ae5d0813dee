/* SPDX-License-Identifier: BSD-3-Clause */
/* See sparse_world.h. */
#include "protocols/sparse/tests/sparse_world.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "lab/reference/kernel_reference.h"
#include "tests/unit/answer_words.h"
#include "hostlib/src/cc/cc.h"
#include "protocols/sparse/host/sparse.h"

#define JOB 7
#define UP_KEY 0xfeedu
#define DOWN_KEY 0xbeefu
#define SWITCH_IP_BE 0xfe00000au
#define STEP_NS 50000
#define TIMEOUT_NS (5 * 1000000000ull)

static const uint8_t switch_mac[6] = { 2, 0, 0, 0, 0, 0xfe };

struct sparse_world sparse_world;

/* ---------------------------------------------------------------- switch */

void
sparse_world_deliver(struct sparse_link *link, const struct sparse_frame *frame)
{
	if (random_chance(&sparse_world.random, sparse_world.loss))
		return;
	for (int copies = random_chance(&sparse_world.random, sparse_world.duplication) ? 2 : 1;
	     copies > 0; copies--) {
		struct sparse_frame *last = &link->queue[link->tail % SPARSE_WORLD_QUEUE];

		ck_assert_uint_lt(link->tail - link->head, SPARSE_WORLD_QUEUE);
		*last = *frame;
		if (link->tail != link->head &&
		    random_chance(&sparse_world.random, sparse_world.reordering)) {
			struct sparse_frame *before =
				&link->queue[(link->tail - 1) % SPARSE_WORLD_QUEUE];
			struct sparse_frame swapped = *before;

			*before = *last;
			*last = swapped;
		}
		link->tail++;
	}
}

struct fanin_hdr *
sparse_world_frame(struct sparse_frame *frame, enum fanin_type type, uint32_t block,
		   uint32_t payload_len)
{
	struct fanin_headers *headers = (struct fanin_headers *)frame->data;
	struct fanin_flow flow = {
		.src_ip_be = SWITCH_IP_BE,
		.dst_port = FANIN_WIRE_DEFAULT_UDP_PORT,
	};

	memcpy(flow.src_mac, switch_mac, sizeof(flow.src_mac));
	frame->len = FANIN_PAYLOAD_OFFSET + payload_len;
	fanin_wire_encode_l4(headers, &flow, payload_len);
	fanin_wire_encode_header(&headers->fanin, type, JOB, SPARSE_WORLD_EPOCH, DOWN_KEY);
	headers->fanin.block = block;
	return &headers->fanin;
}

/* Sends the next shard of the slot's result: a list. The shard is kept, to be sent again. */
static void
out_send(struct sparse_slot *slot, const void *values, const uint32_t *indices, uint32_t count,
	 bool last)
{
	const uint32_t element_bytes = fanin_dtype_size(slot->dtype);
	const uint32_t index_bytes = fanin_shard_index_bytes(slot->span);
	struct sparse_frame *frame = &slot->out[slot->n_out];
	const struct fanin_shard shard = { .span = slot->span,
					   .number = (uint8_t)slot->n_out,
					   .total = last ? (uint8_t)(slot->n_out + 1) : 0 };
	struct fanin_hdr *hdr;

	ck_assert_uint_lt(slot->n_out, FANIN_SHARDS_MAX);
	hdr = sparse_world_frame(frame, FANIN_TYPE_SPARSE_RESULT, slot->block,
				 fanin_shard_list_len(slot->span, element_bytes, count));
	hdr->contributions = sparse_world.n_ranks;
	hdr->dtype = slot->dtype;
	hdr->op = slot->op;
	hdr->count = (uint16_t)count;
	hdr->members = fanin_shard_encode(&shard);
	if (count != 0)
		memcpy(frame->data + FANIN_PAYLOAD_OFFSET, values, count * element_bytes);
	for (uint32_t i = 0; i < count; i++)
		memcpy(frame->data + FANIN_PAYLOAD_OFFSET + count * element_bytes + i * index_bytes,
		       &indices[i], index_bytes);
	slot->n_out++;
	ck_assert_int_eq(fanin_wire_validate((struct fanin_headers *)frame->data, frame->len),
			 FANIN_REASON_NONE);
	for (uint16_t rank = 0; rank < sparse_world.n_ranks; rank++) {
		if (sparse_world.drop_results != 0)
			sparse_world.drop_results--;
		else
			sparse_world_deliver(&sparse_world.links[rank], frame);
	}
}

/* Makes the result, as all shards of all ranks have come. */
static void
slot_finish(struct sparse_slot *slot)
{
	const uint32_t element_bytes = fanin_dtype_size(slot->dtype);
	const uint32_t most = fanin_shard_list_max(slot->span, element_bytes, SPARSE_WORLD_PAYLOAD);
	uint8_t values[SPARSE_WORLD_PAYLOAD];
	uint32_t indices[SPARSE_WORLD_PAYLOAD];
	uint32_t count = 0;

	slot->done = true;
	for (uint32_t i = 0; i < slot->span && !sparse_world.spills; i++) {
		if (!slot->has[i])
			continue;
		if (count == most) {
			out_send(slot, values, indices, count, false);
			count = 0;
		}
		memcpy(values + count * element_bytes, &slot->value[i], element_bytes);
		indices[count++] = i;
	}
	out_send(slot, values, indices, count, true);
}

/* Reads the values of a shard, with their indices. */
static void
shard_read(const struct fanin_hdr *hdr, const uint8_t *payload, uint32_t payload_len,
	   uint32_t *indices)
{
	const struct fanin_shard shard = fanin_shard_decode(hdr->members);
	const uint32_t element_bytes = fanin_dtype_size(hdr->dtype);
	const uint8_t *behind = payload + hdr->count * element_bytes;
	uint32_t n = 0;

	if (shard.form == FANIN_SHARD_LIST) {
		const uint32_t index_bytes = fanin_shard_index_bytes(shard.span);

		for (; n < hdr->count; n++) {
			indices[n] = 0;
			memcpy(&indices[n], behind + n * index_bytes, index_bytes);
		}
		return;
	}
	for (uint32_t bit = 0; bit < 64 * fanin_shard_words(element_bytes, hdr->count, payload_len);
	     bit++) {
		if ((behind[bit / 8] >> bit % 8 & 1) != 0)
			indices[n++] = fanin_shard_first(payload, payload_len) + bit;
	}
	ck_assert_uint_eq(n, hdr->count);
}

static void
slot_add(struct sparse_slot *slot, const struct fanin_hdr *hdr, const uint8_t *payload,
	 uint32_t payload_len)
{
	const uint32_t element_bytes = fanin_dtype_size(hdr->dtype);
	uint32_t indices[SPARSE_WORLD_PAYLOAD];

	shard_read(hdr, payload, payload_len, indices);
	for (uint32_t at = 0, n; sparse_world.spills && at < hdr->count; at += n) {
		/* A list takes more bytes than a bitmap. */
		n = fanin_shard_list_max(slot->span, element_bytes, SPARSE_WORLD_PAYLOAD);
		n = hdr->count - at < n ? hdr->count - at : n;
		out_send(slot, payload + at * element_bytes, &indices[at], n, false);
	}
	if (sparse_world.spills)
		return;
	for (uint32_t i = 0; i < hdr->count; i++) {
		uint64_t bits = 0;

		memcpy(&bits, payload + i * element_bytes, element_bytes);
		ck_assert_uint_lt(indices[i], slot->span);
		slot->value[indices[i]] = slot->has[indices[i]]
						  ? reference_combine(hdr->dtype, hdr->op,
								      slot->value[indices[i]], bits)
						  : bits;
		slot->has[indices[i]] = true;
	}
}

static bool
is_in(const struct sparse_slot *slot, uint16_t rank)
{
	return slot->total[rank] != 0 && slot->in[rank] == UINT64_MAX >> (64 - slot->total[rank]);
}

static enum fanin_block_state
block_state(uint16_t rank, uint32_t block)
{
	const struct sparse_slot *slot = &sparse_world.slots[block % (2 * SPARSE_WORLD_WINDOW)];

	if (!slot->used || fanin_block_before(slot->block, block))
		return FANIN_BLOCK_ABSENT;
	if (slot->block != block || slot->done)
		return FANIN_BLOCK_DONE;
	return is_in(slot, rank) ? FANIN_BLOCK_OPEN : FANIN_BLOCK_ABSENT;
}

static void
answer(struct sparse_link *link, const struct fanin_hdr *hdr)
{
	const struct sparse_slot *slot =
		&sparse_world.slots[hdr->block % (2 * SPARSE_WORLD_WINDOW)];
	const bool is_there = slot->used && slot->block == hdr->block;
	const uint64_t in = is_there ? slot->in[link->rank] : 0;
	struct answer_words said;
	struct sparse_frame frame;
	struct fanin_hdr *reply;
	uint64_t missing = 0;

	for (uint16_t rank = 0; is_there && !slot->done && rank < sparse_world.n_ranks; rank++)
		missing |= (uint64_t)!is_in(slot, rank) << rank;
	said = answer_words_make(missing, 0, 0);
	reply = sparse_world_frame(&frame, FANIN_TYPE_ANSWER, hdr->block,
				   sizeof(said) + sizeof(in));
	reply->count = (uint16_t)block_state(link->rank, hdr->block);
	reply->number = hdr->number;
	reply->rank = link->rank;
	if (hdr->type == FANIN_TYPE_QUERY) {
		said.body.n_blocks = hdr->count;
		for (uint32_t i = 0; i < hdr->count; i++)
			fanin_answer_set_state(&said.body, i,
					       block_state(link->rank, hdr->block + i));
	}
	memcpy(frame.data + FANIN_PAYLOAD_OFFSET, &said, sizeof(said));
	memcpy(frame.data + FANIN_PAYLOAD_OFFSET + sizeof(said), &in, sizeof(in));
	sparse_world_deliver(link, &frame);
}

static void
receive_query(struct sparse_link *link, const struct fanin_hdr *hdr, const uint8_t *payload,
	      uint32_t payload_len)
{
	const struct sparse_slot *slot =
		&sparse_world.slots[hdr->block % (2 * SPARSE_WORLD_WINDOW)];
	uint64_t have = 0;

	if (payload_len == sizeof(have)) {
		memcpy(&have, payload, sizeof(have));
		link->bodies++;
	}
	if ((hdr->flags & FANIN_FLAG_RETRANSMIT) != 0 && slot->used && slot->done &&
	    slot->block == hdr->block) {
		for (uint32_t i = 0; i < slot->n_out; i++) {
			if ((have >> i & 1) == 0)
				sparse_world_deliver(link, &slot->out[i]);
		}
	}
	answer(link, hdr);
}

static void
receive_shard(struct sparse_link *link, const struct fanin_hdr *hdr, const uint8_t *payload,
	      uint32_t payload_len)
{
	const struct fanin_shard shard = fanin_shard_decode(hdr->members);
	struct sparse_slot *slot = &sparse_world.slots[hdr->block % (2 * SPARSE_WORLD_WINDOW)];

	ck_assert(fanin_shard_check(hdr, payload, payload_len));
	link->again += (hdr->flags & FANIN_FLAG_RETRANSMIT) != 0;
	link->known += hdr->type == FANIN_TYPE_SPARSE_KNOWN;
	link->whole += shard.whole;
	if (!slot->used || fanin_block_before(slot->block, hdr->block)) {
		/* The reliability contract: a slot is only reused once no rank needs it. */
		ck_assert(!slot->used || slot->done);
		memset(slot, 0, offsetof(struct sparse_slot, out));
		slot->used = true;
		slot->block = hdr->block;
		slot->span = shard.span;
		slot->dtype = hdr->dtype;
		slot->op = hdr->op;
	}
	if (slot->block != hdr->block)
		return;
	ck_assert_uint_eq(slot->span, shard.span);
	if ((slot->in[link->rank] >> shard.number & 1) != 0) {
		if ((hdr->flags & FANIN_FLAG_RETRANSMIT) != 0)
			answer(link, hdr);
		return;
	}
	slot->in[link->rank] |= UINT64_C(1) << shard.number;
	if (shard.total != 0)
		slot->total[link->rank] = shard.total;
	slot_add(slot, hdr, payload, payload_len);
	for (uint16_t rank = 0; rank < sparse_world.n_ranks; rank++) {
		if (!is_in(slot, rank))
			return;
	}
	slot_finish(slot);
}

/* Combines a dense block in the slot's first frame. */
static void
receive_dense(struct sparse_link *link, const struct fanin_hdr *hdr, const uint8_t *payload,
	      uint32_t payload_len)
{
	struct sparse_slot *slot = &sparse_world.slots[hdr->block % (2 * SPARSE_WORLD_WINDOW)];
	const uint32_t element_bytes = fanin_dtype_size(hdr->dtype);
	uint8_t *out = slot->out[0].data + FANIN_PAYLOAD_OFFSET;
	struct fanin_hdr *result;

	if (!slot->used || fanin_block_before(slot->block, hdr->block)) {
		ck_assert(!slot->used || slot->done);
		memset(slot, 0, offsetof(struct sparse_slot, out));
		slot->used = true;
		slot->block = hdr->block;
		memset(out, 0, payload_len);
	}
	if (slot->block != hdr->block || slot->total[link->rank] != 0) {
		if ((hdr->flags & FANIN_FLAG_RETRANSMIT) != 0)
			answer(link, hdr);
		return;
	}
	for (uint32_t i = 0; i < hdr->count; i++) {
		uint64_t sum = 0, bits = 0;

		memcpy(&sum, out + i * element_bytes, element_bytes);
		memcpy(&bits, payload + i * element_bytes, element_bytes);
		/* The initial 0 changes neither a maximum of unsigned values nor a sum. */
		sum = reference_combine(hdr->dtype, hdr->op, sum, bits);
		memcpy(out + i * element_bytes, &sum, element_bytes);
	}
	slot->in[link->rank] = 1;
	slot->total[link->rank] = 1;
	for (uint16_t rank = 0; rank < sparse_world.n_ranks; rank++) {
		if (!is_in(slot, rank))
			return;
	}
	slot->done = true;
	slot->n_out = 1;
	result = sparse_world_frame(&slot->out[0], FANIN_TYPE_RESULT, hdr->block, payload_len);
	result->contributions = sparse_world.n_ranks;
	result->dtype = hdr->dtype;
	result->op = hdr->op;
	result->count = hdr->count;
	for (uint16_t rank = 0; rank < sparse_world.n_ranks; rank++)
		sparse_world_deliver(&sparse_world.links[rank], &slot->out[0]);
}

/* ----------------------------------------------------------------- links */

static void
link_put(struct memory_link *memory, const void *data, uint32_t len)
{
	struct sparse_link *link = (struct sparse_link *)memory;
	const struct fanin_headers *headers = data;
	const struct fanin_hdr *hdr = &headers->fanin;
	const uint8_t *payload = (const uint8_t *)(headers + 1);

	ck_assert_int_eq(fanin_wire_validate(headers, len), FANIN_REASON_NONE);
	if (link->is_short && --link->room == 0)
		memory->full = true;
	if (random_chance(&sparse_world.random, sparse_world.loss))
		return;
	if (sparse_world.lost != 0 && hdr->type == FANIN_TYPE_SPARSE &&
	    (hdr->flags & FANIN_FLAG_RETRANSMIT) == 0 &&
	    fanin_shard_decode(hdr->members).number == sparse_world.lost)
		return;
	for (int copies = random_chance(&sparse_world.random, sparse_world.duplication) ? 2 : 1;
	     copies > 0; copies--) {
		if (hdr->type == FANIN_TYPE_QUERY)
			receive_query(link, hdr, payload, fanin_wire_payload_len(headers));
		else if (hdr->type == FANIN_TYPE_CONTRIBUTION)
			receive_dense(link, hdr, payload, fanin_wire_payload_len(headers));
		else
			receive_shard(link, hdr, payload, fanin_wire_payload_len(headers));
	}
}

static size_t
link_take(struct memory_link *memory, void *frame)
{
	struct sparse_link *link = (struct sparse_link *)memory;
	const struct sparse_frame *next = &link->queue[link->head % SPARSE_WORLD_QUEUE];

	if (link->head == link->tail)
		return 0;
	link->head++;
	memcpy(frame, next->data, next->len);
	return next->len;
}

/* ----------------------------------------------------------------- world */

static uint64_t
world_now(void *arg)
{
	(void)arg;
	return sparse_world.now_ns;
}

void
sparse_world_open_at(uint16_t n_ranks, uint32_t first_block, bool recover)
{
	memset(&sparse_world, 0, sizeof(sparse_world));
	sparse_world.n_ranks = n_ranks;
	sparse_world.now_ns = 1000000000;
	sparse_world.random = random_seed(1);
	for (uint16_t i = 0; i < n_ranks; i++) {
		struct fanin_protocol_config config = {
			.flow = { .dst_ip_be = SWITCH_IP_BE,
				  .dst_port = FANIN_WIRE_DEFAULT_UDP_PORT },
			.keys = { .up = UP_KEY, .down = DOWN_KEY },
			.timeout_ns = TIMEOUT_NS,
			.job = JOB,
			.epoch = SPARSE_WORLD_EPOCH,
			.first_block = first_block,
			.cc = &fanin_cc_fixed,
			.rank = i,
			.size = n_ranks,
			.window = SPARSE_WORLD_WINDOW,
			.payload_bytes = SPARSE_WORLD_PAYLOAD,
			.stagger = true,
			.recover = recover,
			.now_ns = world_now,
		};

		struct fanin_error error = { 0 };

		memcpy(config.flow.dst_mac, switch_mac, sizeof(switch_mac));
		memory_link_init(&sparse_world.links[i].memory, link_put, link_take);
		sparse_world.links[i].rank = i;
		config.transport = &sparse_world.links[i].memory.transport;
		ck_assert_int_eq(fanin_engine_open(&fanin_protocol_sparse, &config,
						   &sparse_world.engines[i], &error),
				 0);
	}
}

void
sparse_world_open(uint16_t n_ranks)
{
	sparse_world_open_at(n_ranks, 0, false);
}

void
sparse_world_close(void)
{
	for (uint16_t i = 0; i < sparse_world.n_ranks; i++)
		fanin_engine_close(sparse_world.engines[i]);
}

void
sparse_world_step(void)
{
	sparse_world.now_ns += STEP_NS;
	for (uint16_t i = 0; i < sparse_world.n_ranks; i++) {
		sparse_world.links[i].room = 3;
		sparse_world.links[i].memory.full = false;
		fanin_engine_poll(sparse_world.engines[i]);
	}
}
