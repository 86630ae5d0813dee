/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The host's side of sparse blocks (hostlib/src/window/engine_shards.c) around a small model of a switch: engines of all ranks in one
 * process, on links that lose, duplicate and reorder, and a switch that either reduces, or passes every shard on as a spill.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "hostlib/src/window/engine.h"
#include "reference/kernel_reference.h"
#include "tests/unit/answer_words.h"
#include "tests/unit/memory_link.h"
#include "tests/unit/sparse_vectors.h"
#include "tests/unit/suites.h"

#define WINDOW 16
#define PAYLOAD 640
#define FRAME_LEN (FANIN_PAYLOAD_OFFSET + PAYLOAD)
#define QUEUE_LEN 8192
#define MOST_RANKS 4
#define MOST_SPAN 32768
#define JOB 7
#define EPOCH 3u
#define UP_KEY 0xfeedu
#define DOWN_KEY 0xbeefu
#define SWITCH_IP_BE 0xfe00000au
#define STEP_NS 50000
#define TIMEOUT_NS (5 * 1000000000ull)

static const uint8_t switch_mac[6] = { 2, 0, 0, 0, 0, 0xfe };

struct frame {
	uint32_t len;
	uint8_t data[FRAME_LEN] __attribute__((aligned(8)));
};

struct link {
	struct memory_link memory; /* the first: a pointer to it is one to the link */
	uint16_t rank;
	uint32_t head, tail;
	uint32_t room;   /* frames that are taken until it is full; counts down */
	bool is_short;   /* of room, which a step renews */
	uint32_t bodies; /* queries with a bitmap */
	uint32_t again;  /* shards with RETRANSMIT */
	struct frame queue[QUEUE_LEN];
};

/* A block at the switch. */
struct slot {
	bool used, done;
	uint32_t block, span;
	uint8_t dtype, op;
	uint64_t in[MOST_RANKS];
	uint8_t total[MOST_RANKS];
	bool has[MOST_SPAN];
	uint64_t value[MOST_SPAN];
	uint32_t n_out;
	struct frame out[FANIN_SHARDS_MAX];
};

static struct {
	uint64_t now_ns;
	uint16_t n_ranks;
	bool spills; /* every shard is passed on as it comes, and nothing is combined */
	double loss, duplication, reordering;
	uint64_t drop_results; /* of the next results, so many */
	struct random random;
	struct slot slots[2 * WINDOW];
	struct link links[MOST_RANKS];
	struct fanin_engine *engines[MOST_RANKS];
	uint32_t refused;
} world;

/* ---------------------------------------------------------------- switch */

static void
deliver(struct link *link, const struct frame *frame)
{
	if (random_chance(&world.random, world.loss))
		return;
	for (int copies = random_chance(&world.random, world.duplication) ? 2 : 1; copies > 0;
	     copies--) {
		struct frame *last = &link->queue[link->tail % QUEUE_LEN];

		ck_assert_uint_lt(link->tail - link->head, QUEUE_LEN);
		*last = *frame;
		if (link->tail != link->head && random_chance(&world.random, world.reordering)) {
			struct frame *before = &link->queue[(link->tail - 1) % QUEUE_LEN];
			struct frame swapped = *before;

			*before = *last;
			*last = swapped;
		}
		link->tail++;
	}
}

static struct fanin_hdr *
frame_make(struct frame *frame, enum fanin_type type, uint32_t block, uint32_t payload_len)
{
	struct fanin_headers *headers = (struct fanin_headers *)frame->data;
	struct fanin_flow flow = {
		.src_ip_be = SWITCH_IP_BE,
		.dst_port = FANIN_WIRE_DEFAULT_UDP_PORT,
	};

	memcpy(flow.src_mac, switch_mac, sizeof(flow.src_mac));
	frame->len = FANIN_PAYLOAD_OFFSET + payload_len;
	fanin_wire_encode_l4(headers, &flow, payload_len);
	fanin_wire_encode_header(&headers->fanin, type, JOB, EPOCH, DOWN_KEY);
	headers->fanin.block = block;
	return &headers->fanin;
}

/* Sends the next shard of the slot's result: a list. It stays, to be sent again. */
static void
out_send(struct slot *slot, const void *values, const uint32_t *indices, uint32_t count, bool last)
{
	const uint32_t element_bytes = fanin_dtype_size(slot->dtype);
	const uint32_t index_bytes = fanin_shard_index_bytes(slot->span);
	struct frame *frame = &slot->out[slot->n_out];
	const struct fanin_shard shard = { .span = slot->span,
					   .number = (uint8_t)slot->n_out,
					   .total = last ? (uint8_t)(slot->n_out + 1) : 0 };
	struct fanin_hdr *hdr;

	ck_assert_uint_lt(slot->n_out, FANIN_SHARDS_MAX);
	hdr = frame_make(frame, FANIN_TYPE_SPARSE_RESULT, slot->block,
			 fanin_shard_list_len(slot->span, element_bytes, count));
	hdr->contributions = world.n_ranks;
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
	for (uint16_t rank = 0; rank < world.n_ranks; rank++) {
		if (world.drop_results != 0)
			world.drop_results--;
		else
			deliver(&world.links[rank], frame);
	}
}

/* All shards of all ranks are in. */
static void
slot_finish(struct slot *slot)
{
	const uint32_t element_bytes = fanin_dtype_size(slot->dtype);
	const uint32_t most = fanin_shard_list_most(slot->span, element_bytes, PAYLOAD);
	uint8_t values[PAYLOAD];
	uint32_t indices[PAYLOAD];
	uint32_t count = 0;

	slot->done = true;
	for (uint32_t i = 0; i < slot->span && !world.spills; i++) {
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

/* The values of a shard, with their indices. */
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
slot_add(struct slot *slot, const struct fanin_hdr *hdr, const uint8_t *payload, uint32_t payload_len)
{
	const uint32_t element_bytes = fanin_dtype_size(hdr->dtype);
	uint32_t indices[PAYLOAD];

	shard_read(hdr, payload, payload_len, indices);
	for (uint32_t at = 0, n; world.spills && at < hdr->count; at += n) {
		/* A list takes more bytes than a bitmap. */
		n = fanin_shard_list_most(slot->span, element_bytes, PAYLOAD);
		n = hdr->count - at < n ? hdr->count - at : n;
		out_send(slot, payload + at * element_bytes, &indices[at], n, false);
	}
	if (world.spills)
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
is_in(const struct slot *slot, uint16_t rank)
{
	return slot->total[rank] != 0 && slot->in[rank] == UINT64_MAX >> (64 - slot->total[rank]);
}

static enum fanin_block_state
block_state(uint16_t rank, uint32_t block)
{
	const struct slot *slot = &world.slots[block % (2 * WINDOW)];

	if (!slot->used || fanin_block_before(slot->block, block))
		return FANIN_BLOCK_ABSENT;
	if (slot->block != block || slot->done)
		return FANIN_BLOCK_DONE;
	return is_in(slot, rank) ? FANIN_BLOCK_OPEN : FANIN_BLOCK_ABSENT;
}

static void
answer(struct link *link, const struct fanin_hdr *hdr)
{
	const struct slot *slot = &world.slots[hdr->block % (2 * WINDOW)];
	const bool is_there = slot->used && slot->block == hdr->block;
	const uint64_t in = is_there ? slot->in[link->rank] : 0;
	struct answer_words said;
	struct frame frame;
	struct fanin_hdr *reply;
	uint64_t missing = 0;

	for (uint16_t rank = 0; is_there && !slot->done && rank < world.n_ranks; rank++)
		missing |= (uint64_t)!is_in(slot, rank) << rank;
	said = answer_words_make(missing, 0, 0);
	reply = frame_make(&frame, FANIN_TYPE_ANSWER, hdr->block, sizeof(said) + sizeof(in));
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
	deliver(link, &frame);
}

static void
receive_query(struct link *link, const struct fanin_hdr *hdr, const uint8_t *payload,
	      uint32_t payload_len)
{
	const struct slot *slot = &world.slots[hdr->block % (2 * WINDOW)];
	uint64_t have = 0;

	if (payload_len == sizeof(have)) {
		memcpy(&have, payload, sizeof(have));
		link->bodies++;
	}
	if ((hdr->flags & FANIN_FLAG_RETRANSMIT) != 0 && slot->used && slot->done &&
	    slot->block == hdr->block) {
		for (uint32_t i = 0; i < slot->n_out; i++) {
			if ((have >> i & 1) == 0)
				deliver(link, &slot->out[i]);
		}
	}
	answer(link, hdr);
}

static void
receive_shard(struct link *link, const struct fanin_hdr *hdr, const uint8_t *payload,
	      uint32_t payload_len)
{
	const struct fanin_shard shard = fanin_shard_decode(hdr->members);
	struct slot *slot = &world.slots[hdr->block % (2 * WINDOW)];

	ck_assert(fanin_shard_check(hdr, payload, payload_len));
	link->again += (hdr->flags & FANIN_FLAG_RETRANSMIT) != 0;
	if (!slot->used || fanin_block_before(slot->block, hdr->block)) {
		/* The reliability contract: a slot is only reused once nobody needs it. */
		ck_assert(!slot->used || slot->done);
		memset(slot, 0, offsetof(struct slot, out));
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
	for (uint16_t rank = 0; rank < world.n_ranks; rank++) {
		if (!is_in(slot, rank))
			return;
	}
	slot_finish(slot);
}

/* ----------------------------------------------------------------- links */

static void
link_put(struct memory_link *memory, const void *data, uint32_t len)
{
	struct link *link = (struct link *)memory;
	const struct fanin_headers *headers = data;
	const struct fanin_hdr *hdr = &headers->fanin;
	const uint8_t *payload = (const uint8_t *)(headers + 1);

	ck_assert_int_eq(fanin_wire_validate(headers, len), FANIN_REASON_NONE);
	if (link->is_short && --link->room == 0)
		memory->full = true;
	if (random_chance(&world.random, world.loss))
		return;
	for (int copies = random_chance(&world.random, world.duplication) ? 2 : 1; copies > 0;
	     copies--) {
		if (hdr->type == FANIN_TYPE_QUERY)
			receive_query(link, hdr, payload, fanin_wire_payload_len(headers));
		else
			receive_shard(link, hdr, payload, fanin_wire_payload_len(headers));
	}
}

static size_t
link_take(struct memory_link *memory, void *frame)
{
	struct link *link = (struct link *)memory;
	const struct frame *next = &link->queue[link->head % QUEUE_LEN];

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
	return world.now_ns;
}

static void
world_open_at(uint16_t n_ranks, uint32_t first_block, bool recover)
{
	memset(&world, 0, sizeof(world));
	world.n_ranks = n_ranks;
	world.now_ns = 1000000000;
	world.random = random_seed(1);
	for (uint16_t i = 0; i < n_ranks; i++) {
		struct fanin_engine_config config = {
			.flow = { .dst_ip_be = SWITCH_IP_BE, .dst_port = FANIN_WIRE_DEFAULT_UDP_PORT },
			.keys = { .up = UP_KEY, .down = DOWN_KEY },
			.timeout_ns = TIMEOUT_NS,
			.job = JOB,
			.epoch = EPOCH,
			.first_block = first_block,
			.rank = i,
			.size = n_ranks,
			.window = WINDOW,
			.payload_bytes = PAYLOAD,
			.stagger = true,
			.recover = recover,
			.now_ns = world_now,
		};

		memcpy(config.flow.dst_mac, switch_mac, sizeof(switch_mac));
		memory_link_init(&world.links[i].memory, link_put, link_take);
		world.links[i].rank = i;
		ck_assert_int_eq(fanin_engine_create(&config, &world.links[i].memory.transport,
						     &world.engines[i]),
				 0);
	}
}

static void
world_open(uint16_t n_ranks)
{
	world_open_at(n_ranks, 0, false);
}

static void
world_close(void)
{
	for (uint16_t i = 0; i < world.n_ranks; i++)
		fanin_engine_destroy(world.engines[i]);
}

static void
world_step(void)
{
	world.now_ns += STEP_NS;
	for (uint16_t i = 0; i < world.n_ranks; i++) {
		world.links[i].room = 3;
		world.links[i].memory.full = false;
		fanin_engine_poll(world.engines[i]);
	}
}

static void
post(struct sparse_vectors *vectors, uint16_t rank)
{
	sparse_vectors_request(vectors, rank);
	ck_assert_int_eq(fanin_engine_post(world.engines[rank], &vectors->requests[rank],
					   vectors->options.n),
			 FANIN_OK);
}

static void
run(struct sparse_vectors *vectors)
{
	for (uint16_t rank = 0; rank < world.n_ranks; rank++) {
		for (uint32_t step = 0; vectors->requests[rank].status == FANIN_IN_PROGRESS; step++) {
			ck_assert_uint_lt(step, 1000000);
			world_step();
		}
		ck_assert_msg(vectors->requests[rank].status == FANIN_OK, "rank %u: %s", rank,
			      fanin_engine_error(world.engines[rank])->text);
	}
}

static void
allreduce(const struct sparse_vectors_options *options)
{
	struct sparse_vectors *vectors = sparse_vectors_make(options);

	for (uint16_t rank = 0; rank < world.n_ranks; rank++)
		post(vectors, rank);
	run(vectors);
	sparse_vectors_expect(vectors);
	sparse_vectors_free(vectors);
}

static struct sparse_vectors_options
options_of(uint64_t n, double density)
{
	return (struct sparse_vectors_options){
		.n = n,
		.density = density,
		.n_ranks = world.n_ranks,
		.dtype = FANIN_WIRE_I32,
		.op = FANIN_WIRE_SUM,
		.index_bytes = 4,
	};
}

static const double densities[] = { 0, 1e-9, 0.001, 0.01, 0.1, 0.2, 1 };
#define N_DENSITIES ((int)(sizeof(densities) / sizeof(densities[0])))

START_TEST(every_rank_gets_the_sum_of_all)
{
	struct sparse_vectors_options options;

	world_open((uint16_t)(1 + _i % MOST_RANKS));
	for (int density = 0; density < N_DENSITIES; density++) {
		options = options_of(10000, densities[density]);
		options.pattern = (enum sparse_pattern)(density % SPARSE_PATTERNS);
		options.dense = (_i + density) % 2 != 0;
		options.index_bytes = _i % 3 == 0 ? 8 : 4;
		options.seed = (uint64_t)_i;
		allreduce(&options);
	}
	for (uint16_t rank = 0; rank < world.n_ranks; rank++) {
		ck_assert_uint_eq(fanin_engine_stats(world.engines[rank])->retransmits, 0);
		ck_assert_uint_eq(fanin_engine_stats(world.engines[rank])->duplicates, 0);
		ck_assert_uint_eq(fanin_engine_stats(world.engines[rank])->invalid, 0);
	}
	world_close();
}
END_TEST

START_TEST(results_are_exact_under_loss_duplication_and_reordering)
{
	struct sparse_vectors_options options;

	world_open((uint16_t)(2 + _i % 3));
	world.random = random_seed((uint64_t)_i);
	world.loss = 0.1;
	world.duplication = 0.1;
	world.reordering = 0.2;
	for (int density = 0; density < N_DENSITIES; density++) {
		options = options_of(20000, densities[density]);
		options.pattern = (enum sparse_pattern)(_i % SPARSE_PATTERNS);
		options.dense = (_i + density) % 3 == 0;
		options.in_place = (_i + density) % 3 == 1;
		options.seed = (uint64_t)_i;
		allreduce(&options);
	}
	world_close();
}
END_TEST

/* Shards come before the rank has sent its own, and what they hold is combined in the order of their numbers at all ranks. */
START_TEST(spills_are_combined)
{
	struct sparse_vectors_options options;

	world_open(3);
	world.spills = true;
	if (_i != 0)
		world.loss = world.duplication = 0.1;
	world.reordering = 0.3;
	for (int density = 0; density < N_DENSITIES; density++) {
		options = options_of(3000, densities[density] < 0.3 ? densities[density] : 0.3);
		options.pattern = SPARSE_SAME;
		options.dtype = FANIN_WIRE_F32;
		options.op = density % 2 == 0 ? FANIN_WIRE_SUM : FANIN_WIRE_MAX;
		options.dense = density % 3 == 0;
		allreduce(&options);
	}
	world_close();
}
END_TEST

START_TEST(vectors_of_any_length)
{
	static const uint64_t lengths[] = { 0, 1, 63, 64, 65, 1000, 1024, 17919, 17920, 40001 };
	struct sparse_vectors_options options;

	world_open(2);
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		options = options_of(lengths[i], _i == 0 ? 0.05 : 1);
		options.dense = _i == 0;
		allreduce(&options);
	}
	world_close();
}
END_TEST

START_TEST(block_numbers_wrap_around)
{
	struct sparse_vectors_options options;

	world_open_at(3, UINT32_MAX - 20, false);
	world.loss = 0.05;
	options = options_of(60000, 0.2);
	for (int i = 0; i < 3; i++)
		allreduce(&options);
	world_close();
}
END_TEST

/* A lane keeps its place when there is room for some of its shards only. */
START_TEST(a_transport_without_room_is_waited_for)
{
	struct sparse_vectors_options options;

	world_open(2);
	world.links[0].is_short = true;
	world.links[1].is_short = true;
	options = options_of(20000, 1);
	allreduce(&options);
	ck_assert_uint_eq(fanin_engine_stats(world.engines[0])->retransmits, 0);
	world.loss = 0.1;
	allreduce(&options);
	world_close();
}
END_TEST

START_TEST(several_requests_may_be_outstanding)
{
	struct sparse_vectors *vectors[8];

	world_open(3);
	world.loss = 0.02;
	for (uint32_t i = 0; i < 8; i++) {
		struct sparse_vectors_options options = options_of(5000 * i, 0.02 * i);

		options.seed = i;
		vectors[i] = sparse_vectors_make(&options);
		/* Ranks post at different times, but all in the same order: spills and results may come before. */
		for (uint16_t rank = 0; rank < 3; rank++) {
			post(vectors[i], rank);
			world_step();
		}
	}
	for (uint32_t i = 8; i-- > 0;)
		run(vectors[i]);
	for (uint32_t i = 0; i < 8; i++) {
		sparse_vectors_expect(vectors[i]);
		sparse_vectors_free(vectors[i]);
	}
	world_close();
}
END_TEST

/* Of a block of many shards one is lost: it alone is sent again, and of a result as well. */
START_TEST(only_lost_shards_are_sent_again)
{
	struct sparse_vectors_options options;
	uint64_t sent, received;

	world_open(2);
	/* One block with a full span, whose shards are many. */
	options = options_of(fanin_shard_span_most(4, PAYLOAD), 1);
	options.pattern = SPARSE_UNIFORM;
	allreduce(&options);
	sent = fanin_engine_stats(world.engines[0])->shards_sent;
	received = fanin_engine_stats(world.engines[0])->shards_received;
	ck_assert_uint_gt(sent, 20);
	world.drop_results = 2;
	allreduce(&options);
	ck_assert_uint_eq(fanin_engine_stats(world.engines[0])->shards_sent, 2 * sent);
	ck_assert_uint_eq(fanin_engine_stats(world.engines[0])->shards_received, 2 * received);
	ck_assert_uint_eq(fanin_engine_stats(world.engines[0])->duplicates, 0);
	ck_assert_uint_ge(world.links[0].bodies, 1);
	/* Some are lost on the way there. */
	world.random = random_seed(5);
	world.loss = 0.1;
	allreduce(&options);
	ck_assert_uint_gt(world.links[0].again, 0);
	ck_assert_uint_lt(world.links[0].again, sent / 2);
	world_close();
}
END_TEST

START_TEST(the_request_that_has_no_room_fails_alone)
{
	struct sparse_vectors_options options;
	struct sparse_vectors *vectors;

	world_open(2);
	options = options_of(10000, 0.1);
	options.in_place = true;
	vectors = sparse_vectors_make(&options);
	vectors->results[0].capacity = vectors->n_expected - 1;
	for (uint16_t rank = 0; rank < 2; rank++)
		post(vectors, rank);
	for (uint32_t step = 0; step < 1000; step++)
		world_step();
	ck_assert_int_eq(vectors->requests[0].status, FANIN_ERR_CAPACITY);
	ck_assert_uint_eq(vectors->results[0].count, vectors->n_expected);
	ck_assert_ptr_nonnull(strstr(vectors->requests[0].sparse->error.text, "capacity is"));
	ck_assert_int_eq(vectors->requests[1].status, FANIN_OK);
	sparse_vectors_expect_result(vectors, &vectors->results[1]);
	sparse_vectors_free(vectors);
	allreduce(&options);
	world_close();
}
END_TEST

/* A shard that the network has damaged past its checks, or somebody has made, is not taken. */
static void
shard_play(uint16_t rank, uint32_t block, struct fanin_shard shard, uint32_t index)
{
	struct frame frame;
	struct fanin_hdr *hdr = frame_make(&frame, FANIN_TYPE_SPARSE_RESULT, block,
					   fanin_shard_list_len(shard.span, 4, 1));
	const uint32_t value = 1;

	hdr->contributions = world.n_ranks;
	hdr->dtype = FANIN_WIRE_I32;
	hdr->op = FANIN_WIRE_SUM;
	hdr->count = 1;
	hdr->members = fanin_shard_encode(&shard);
	memcpy(frame.data + FANIN_PAYLOAD_OFFSET, &value, sizeof(value));
	memcpy(frame.data + FANIN_PAYLOAD_OFFSET + sizeof(value), &index,
	       fanin_shard_index_bytes(shard.span));
	deliver(&world.links[rank], &frame);
}

START_TEST(shards_that_do_not_fit_are_not_taken)
{
	struct sparse_vectors_options options;
	struct sparse_vectors *vectors;
	uint32_t span;

	world_open(2);
	options = options_of(1000, 0.01);
	vectors = sparse_vectors_make(&options);
	post(vectors, 0);
	span = vectors->requests[0].sparse->span;
	ck_assert_uint_gt(span, 999);
	/* An index beyond the block; then the only one, before this rank has sent its own; then one beyond the last. */
	shard_play(0, 0, (struct fanin_shard){ .span = 1000, .number = 1 }, 1000);
	shard_play(0, 0, (struct fanin_shard){ .span = 1000, .number = 0, .total = 1 }, 3);
	fanin_engine_poll(world.engines[0]);
	ck_assert_uint_eq(fanin_engine_stats(world.engines[0])->invalid, 2);
	ck_assert_int_eq(vectors->requests[0].status, FANIN_IN_PROGRESS);
	post(vectors, 1);
	run(vectors);
	sparse_vectors_expect(vectors);
	sparse_vectors_free(vectors);
	world_close();
}
END_TEST

START_TEST(a_result_of_another_span_is_an_error)
{
	struct sparse_vectors_options options;
	struct sparse_vectors *vectors;

	world_open(2);
	options = options_of(1000, 0.01);
	vectors = sparse_vectors_make(&options);
	post(vectors, 0);
	fanin_engine_poll(world.engines[0]);
	shard_play(0, 0, (struct fanin_shard){ .span = 999, .number = 0 }, 3);
	fanin_engine_poll(world.engines[0]);
	ck_assert_int_eq(vectors->requests[0].status, FANIN_ERR_REFUSED);
	ck_assert_str_eq(fanin_engine_error(world.engines[0])->text,
			 "the result of block 0 holds 999 indices i32 sum, but this rank posted 1000 "
			 "indices i32 sum");
	sparse_vectors_free(vectors);
	world_close();
}
END_TEST

/* Results that this rank has of sparse blocks can't be told to others. */
START_TEST(a_run_that_is_lost_ends_sparse_requests)
{
	struct sparse_vectors_options options;
	struct sparse_vectors *vectors;

	world_open_at(2, 0, true);
	options = options_of(40000, 0.1);
	allreduce(&options);
	vectors = sparse_vectors_make(&options);
	post(vectors, 0);
	world_step();
	fanin_engine_doubt_run(world.engines[0]);
	ck_assert_int_eq(fanin_engine_resume(world.engines[0], EPOCH + 1, 0,
					     fanin_engine_progress(world.engines[0])),
			 FANIN_ERR_REFUSED);
	ck_assert_int_eq(vectors->requests[0].status, FANIN_ERR_REFUSED);
	ck_assert_ptr_nonnull(
		strstr(fanin_engine_error(world.engines[0])->text, "in a sparse allreduce"));
	/* One that has all results, of which another lacks some. */
	fanin_engine_doubt_run(world.engines[1]);
	ck_assert_int_eq(fanin_engine_resume(world.engines[1], EPOCH + 1, 0,
					     fanin_engine_progress(world.engines[1]) - 1),
			 FANIN_ERR_REFUSED);
	sparse_vectors_free(vectors);
	world_close();
}
END_TEST

/* Once all have all results, nothing is in the way. */
START_TEST(a_run_that_is_lost_after_sparse_requests_is_taken_up_again)
{
	struct sparse_vectors_options options;

	world_open_at(2, 0, true);
	options = options_of(40000, 0.1);
	allreduce(&options);
	for (uint16_t rank = 0; rank < 2; rank++) {
		fanin_engine_doubt_run(world.engines[rank]);
		ck_assert_int_eq(fanin_engine_resume(world.engines[rank], EPOCH + 1, 0,
						     fanin_engine_progress(world.engines[rank])),
				 FANIN_OK);
	}
	world_close();
}
END_TEST

START_TEST(the_numbers_are_right)
{
	struct sparse_vectors_options options;
	const struct fanin_engine_stats *stats;
	struct sparse_vectors *vectors;

	world_open(2);
	options = options_of(30000, 0.05);
	options.pattern = SPARSE_DISJOINT;
	vectors = sparse_vectors_make(&options);
	for (uint16_t rank = 0; rank < 2; rank++)
		post(vectors, rank);
	run(vectors);
	stats = fanin_engine_stats(world.engines[0]);
	ck_assert_uint_eq(stats->sparse_blocks, vectors->requests[0].sparse->n_blocks);
	ck_assert_uint_eq(stats->sparse_elements, 30000);
	ck_assert_uint_eq(stats->sparse_values_sent, 1500);
	ck_assert_uint_eq(stats->sparse_values_received, 3000);
	ck_assert_uint_eq(stats->sparse_dense_bytes, 120000);
	ck_assert_uint_ge(stats->shard_bytes_sent, 1500 * 4);
	ck_assert_uint_le(stats->shard_bytes_sent, 1500 * 6);
	ck_assert_uint_eq(stats->bytes_reduced, 1500 * 4);
	sparse_vectors_free(vectors);
	world_close();
}
END_TEST

Suite *
suite_sparse_engine(void)
{
	Suite *suite = suite_create("sparse_engine");
	TCase *tcase = tcase_create("sparse_engine");

	tcase_set_timeout(tcase, 60);
	tcase_add_loop_test(tcase, every_rank_gets_the_sum_of_all, 0, 8);
	tcase_add_loop_test(tcase, results_are_exact_under_loss_duplication_and_reordering, 0, 24);
	tcase_add_loop_test(tcase, spills_are_combined, 0, 2);
	tcase_add_loop_test(tcase, vectors_of_any_length, 0, 2);
	tcase_add_test(tcase, block_numbers_wrap_around);
	tcase_add_test(tcase, a_transport_without_room_is_waited_for);
	tcase_add_test(tcase, several_requests_may_be_outstanding);
	tcase_add_test(tcase, only_lost_shards_are_sent_again);
	tcase_add_test(tcase, the_request_that_has_no_room_fails_alone);
	tcase_add_test(tcase, shards_that_do_not_fit_are_not_taken);
	tcase_add_test(tcase, a_result_of_another_span_is_an_error);
	tcase_add_test(tcase, a_run_that_is_lost_ends_sparse_requests);
	tcase_add_test(tcase, a_run_that_is_lost_after_sparse_requests_is_taken_up_again);
	tcase_add_test(tcase, the_numbers_are_right);
	suite_add_tcase(suite, tcase);
	return suite;
}
