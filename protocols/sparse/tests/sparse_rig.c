/* SPDX-License-Identifier: BSD-3-Clause */
/* See sparse_rig.h. */
#include "protocols/sparse/tests/sparse_rig.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "lab/reference/kernel_reference.h"

#define MAX_ROUNDS 2000
#define EPOCH 10

static void
enqueue(struct sparse_rig *rig, struct sparse_frame *frame)
{
	if (rig->n_queue == rig->queue_room) {
		rig->queue_room = rig->queue_room == 0 ? 256 : 2 * rig->queue_room;
		rig->queue = realloc(rig->queue, rig->queue_room * sizeof(*rig->queue));
		ck_assert_ptr_nonnull(rig->queue);
	}
	rig->queue[rig->n_queue++] = frame;
}

static struct sparse_frame *
copy_of(const struct sparse_frame *frame)
{
	struct sparse_frame *copy = aligned_alloc(64, RTE_CACHE_LINE_ROUNDUP(sizeof(*copy)));

	ck_assert_ptr_nonnull(copy);
	memcpy(copy, frame, sizeof(*copy));
	return copy;
}

void
sparse_rig_send(struct sparse_rig *rig, struct sparse_frame *frame)
{
	if (random_below(&rig->random, 100) < rig->double_percent)
		enqueue(rig, copy_of(frame));
	if (random_below(&rig->random, 100) < rig->lose_percent)
		free(frame);
	else
		enqueue(rig, frame);
}

static bool
is_leaf(const struct sparse_node *node)
{
	return node != &node->rig->nodes[0];
}

/* Returns the node or host that is this child of a switch, in the form of sparse_frame.to. */
static int
child_of(const struct sparse_node *node, unsigned int child)
{
	const struct sparse_rig *rig = node->rig;

	if (rig->per_leaf == 0)
		return -1 - (int)child;
	if (!is_leaf(node))
		return 1 + (int)child;
	return -1 - (int)((node - rig->nodes - 1) * rig->per_leaf + (int)child);
}

/* Puts a packet that a switch has sent into the queue. */
static void
send_from(struct sparse_node *node, const struct rte_mbuf *mbuf, uint32_t len, int to)
{
	struct sparse_frame frame = { .to = to, .len = (uint16_t)len };

	ck_assert_uint_le(len, sizeof(frame.data));
	memcpy(frame.data, rte_pktmbuf_mtod(mbuf, void *), len);
	frame.child = is_leaf(node) ? (uint16_t)(node - node->rig->nodes - 1) : 0;
	sparse_rig_send(node->rig, copy_of(&frame));
}

static void
drain(struct fanin_handler_ctx *ctx)
{
	struct sparse_node *node = container_of(ctx, struct sparse_node, ctx);
	struct fake_pool *pool = &node->rig->pool;

	for (unsigned int i = 0; i < ctx->n_emissions; i++) {
		const struct fanin_emission *emission = &ctx->emissions[i];
		struct rte_mbuf *mbuf = emission->mbuf;
		uint64_t left = emission->children;

		if (emission->kind == FANIN_EMIT_PARENT) {
			send_from(node, mbuf, mbuf->data_len, 0);
			fake_put(pool, mbuf);
			continue;
		}
		for (; left != 0; left &= left - 1) {
			send_from(node, mbuf, FANIN_PAYLOAD_OFFSET + emission->payload_len,
				  child_of(node, (unsigned int)__builtin_ctzll(left)));
			fake_put(pool, mbuf);
		}
	}
	for (unsigned int i = 0; i < ctx->n_frees; i++)
		fake_put(pool, ctx->frees[i]);
	ctx->n_emissions = 0;
	ctx->n_frees = 0;
}

static void
restock(struct sparse_node *node)
{
	struct fanin_handler_ctx *ctx = &node->ctx;

	while (!node->rig->no_stock && ctx->n_stock < FANIN_STOCK)
		ctx->stock[ctx->n_stock++] = fake_get(&node->rig->pool, 0);
	while (node->rig->no_stock && ctx->n_stock != 0)
		fake_put(&node->rig->pool, ctx->stock[--ctx->n_stock]);
}

enum fanin_verdict
sparse_rig_hand_over(struct sparse_rig *rig, struct sparse_frame *frame, enum fanin_reason *reason)
{
	struct sparse_node *node = &rig->nodes[frame->to];
	const struct fanin_hdr *hdr = sparse_hdr(frame);
	const uint32_t payload_len = frame->len - FANIN_PAYLOAD_OFFSET;
	const uint32_t index = fanin_slot_index(&node->job.slots, hdr->block);
	struct rte_mbuf *mbuf = fake_get(&rig->pool, payload_len);
	struct fanin_packet packet = {
		.mbuf = mbuf,
		.headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *),
		.payload = rte_pktmbuf_mtod_offset(mbuf, void *, FANIN_PAYLOAD_OFFSET),
		.payload_len = payload_len,
		.child = frame->child,
	};
	enum fanin_verdict verdict;

	*reason = FANIN_REASON_NONE;
	restock(node);
	node->ctx.now_ns++;
	memcpy(packet.headers, frame->data, frame->len);
	verdict = hdr->type == FANIN_TYPE_CONTRIBUTION
			  ? node->handler->contribution(&node->ctx, node->slots[index], index,
							&packet, reason)
			  : node->handler->other(&node->ctx, node->slots[index], index, &packet,
						 reason);
	if (verdict == FANIN_VERDICT_DROP)
		rig->drops[*reason]++;
	if (verdict != FANIN_VERDICT_HELD)
		fake_put(&rig->pool, mbuf);
	drain(&node->ctx);
	if (verdict == FANIN_VERDICT_RETRY)
		enqueue(rig, frame);
	else
		free(frame);
	return verdict;
}

struct sparse_node *
sparse_rig_node_of(struct sparse_rig *rig, uint16_t h)
{
	return &rig->nodes[rig->per_leaf == 0 ? 0 : 1 + h / rig->per_leaf];
}

struct fanin_sparse *
sparse_rig_slot(struct sparse_node *node, uint32_t block)
{
	return (void *)node->slots[fanin_slot_index(&node->job.slots, block)];
}

struct sparse_frame *
sparse_rig_frame(struct sparse_rig *rig, uint16_t h, uint32_t block, enum fanin_type type)
{
	const struct sparse_node *node = sparse_rig_node_of(rig, h);
	struct sparse_frame frame = {
		.to = (int)(node - rig->nodes),
		.child = rig->per_leaf == 0 ? h : h % rig->per_leaf,
		.len = FANIN_PAYLOAD_OFFSET,
	};
	struct fanin_hdr *hdr = sparse_hdr(&frame);

	fanin_wire_encode_header(hdr, type, node->job.id, node->ctx.epoch, SPARSE_RIG_KEY_UP);
	hdr->rank = h;
	hdr->contributions = 1;
	hdr->block = block;
	return copy_of(&frame);
}

struct sparse_frame *
sparse_rig_shard(struct sparse_rig *rig, uint16_t h, uint32_t block,
		 const struct fanin_shard *shard, const uint64_t *values, const uint32_t *indices,
		 uint16_t count)
{
	const uint32_t size = fanin_dtype_size(rig->dtype);
	struct sparse_frame *frame = sparse_rig_frame(rig, h, block, FANIN_TYPE_SPARSE);
	struct fanin_hdr *hdr = sparse_hdr(frame);
	uint8_t *at = frame->data + FANIN_PAYLOAD_OFFSET;

	hdr->dtype = (uint8_t)rig->dtype;
	hdr->op = (uint8_t)rig->op;
	hdr->count = count;
	hdr->members = fanin_shard_encode(shard);
	for (uint16_t i = 0; i < count; i++, at += size)
		memcpy(at, &values[i], size);
	if (shard->form == FANIN_SHARD_LIST) {
		for (uint16_t i = 0; i < count; i++, at += fanin_shard_index_bytes(shard->span))
			memcpy(at, &indices[i], fanin_shard_index_bytes(shard->span));
	} else {
		const uint32_t first = indices[0] / 64 * 64;
		const uint32_t n_words = (indices[count - 1] - first) / 64 + 1;
		uint64_t words[1024] = { 0 };

		ck_assert_uint_le(n_words, 1024);
		for (uint16_t i = 0; i < count; i++)
			words[(indices[i] - first) / 64] |= UINT64_C(1)
							    << (indices[i] - first) % 64;
		memcpy(at, words, n_words * sizeof(words[0]));
		at += n_words * sizeof(words[0]);
		memcpy(at, &first, sizeof(first));
		at += sizeof(first);
	}
	frame->len = (uint16_t)(at - frame->data);
	return frame;
}

/* Finds the next shard's values from an index on. Returns their number; *at: after the last one. */
static uint16_t
next_values(const struct sparse_rig *rig, const struct sparse_vector *brings, uint64_t *values,
	    uint32_t *indices, uint32_t *at)
{
	const uint32_t size = fanin_dtype_size(rig->dtype);
	const uint32_t payload = rig->nodes[0].job.payload_bytes;
	uint32_t most = rig->bitmaps ? FAKE_PAYLOAD_MAX
				     : fanin_shard_list_max(rig->span, size, payload);
	uint16_t count = 0;

	if (rig->per_shard != 0)
		most = RTE_MIN(most, rig->per_shard);
	for (; *at < rig->span && count < most; ++*at) {
		if (!brings->has[*at])
			continue;
		if (rig->bitmaps && count != 0 &&
		    fanin_shard_bitmap_len(size, count + 1u,
					   (*at - indices[0] / 64 * 64) / 64 + 1) > payload)
			break;
		values[count] = brings->values[*at];
		indices[count++] = *at;
	}
	while (*at < rig->span && !brings->has[*at])
		++*at;
	return count;
}

/* Makes host h send its shards of a block, except those in `without`. */
static void
send_block(struct sparse_rig *rig, uint16_t h, uint32_t block, uint64_t without, uint16_t flags)
{
	const struct sparse_vector *brings = &rig->hosts[h].brings[block];
	struct fanin_shard shard = { .span = rig->span };
	uint64_t values[FAKE_PAYLOAD_MAX];
	uint32_t indices[FAKE_PAYLOAD_MAX];
	uint32_t at = 0;

	do {
		const uint16_t count = next_values(rig, brings, values, indices, &at);
		struct sparse_frame *frame;

		ck_assert_uint_lt(shard.number, FANIN_SHARDS_MAX);
		shard.total = at == rig->span ? (uint8_t)(shard.number + 1) : 0;
		shard.form = rig->bitmaps && count != 0 ? FANIN_SHARD_BITMAP : FANIN_SHARD_LIST;
		frame = sparse_rig_shard(rig, h, block, &shard, values, indices, count);
		sparse_hdr(frame)->flags = flags;
		if ((without >> shard.number & 1) == 0)
			sparse_rig_send(rig, frame);
		else
			free(frame);
		shard.number++;
	} while (at != rig->span);
}

bool
sparse_rig_has(const struct sparse_rig *rig, uint16_t h, uint32_t block)
{
	return fanin_shards_complete(&rig->hosts[h].received[block].shards);
}

void
sparse_rig_post(struct sparse_rig *rig)
{
	for (uint16_t h = 0; h < rig->n_hosts; h++) {
		struct sparse_host *host = &rig->hosts[h];

		while (host->n_sent < rig->n_blocks &&
		       (host->n_sent < SPARSE_RIG_WINDOW ||
			sparse_rig_has(rig, h, host->n_sent - SPARSE_RIG_WINDOW)))
			send_block(rig, h, host->n_sent++, 0, 0);
	}
}

static void
hear_result(struct sparse_rig *rig, struct sparse_host *host, struct sparse_frame *frame)
{
	const struct fanin_hdr *hdr = sparse_hdr(frame);
	const struct fanin_shard shard = fanin_shard_decode(hdr->members);
	const uint32_t payload_len = frame->len - FANIN_PAYLOAD_OFFSET;
	struct sparse_received *received = &host->received[hdr->block];

	ck_assert_uint_lt(hdr->block, SPARSE_RIG_BLOCKS);
	ck_assert_uint_le(payload_len, rig->nodes[0].job.payload_bytes);
	ck_assert(fanin_shard_fits(hdr, payload_len));
	ck_assert(fanin_shard_check(hdr, frame->data + FANIN_PAYLOAD_OFFSET, payload_len));
	ck_assert_uint_eq(shard.span, rig->span);
	ck_assert_uint_eq(hdr->contributions, rig->n_hosts);
	if ((received->shards.in >> shard.number & 1) != 0) {
		/* A repeated shard must be the same in every bit. */
		ck_assert_uint_eq(received->frames[shard.number]->len, frame->len);
		ck_assert_mem_eq(received->frames[shard.number]->data, frame->data, frame->len);
		free(frame);
		return;
	}
	ck_assert(fanin_shards_fit(&received->shards, &shard));
	fanin_shards_add(&received->shards, &shard);
	received->frames[shard.number] = frame;
}

static void
hear_answer(struct sparse_rig *rig, uint16_t h, const struct sparse_frame *frame)
{
	const struct fanin_hdr *hdr = sparse_hdr((struct sparse_frame *)frame);
	const uint32_t len = fanin_answer_len(rig->n_hosts);
	struct sparse_host *host = &rig->hosts[h];
	uint64_t in;

	ck_assert_uint_lt(hdr->count, 4);
	if (hdr->number == 0) {
		host->unneeded++;
		return;
	}
	host->answers[hdr->count]++;
	if (hdr->count != FANIN_BLOCK_ABSENT)
		return;
	ck_assert_uint_eq(frame->len, FANIN_PAYLOAD_OFFSET + len + sizeof(in));
	memcpy(&in, frame->data + FANIN_PAYLOAD_OFFSET + len, sizeof(in));
	send_block(rig, h, hdr->block, in, FANIN_FLAG_RETRANSMIT);
}

static void
hear(struct sparse_rig *rig, struct sparse_frame *frame)
{
	const uint16_t h = (uint16_t)(-1 - frame->to);
	const struct fanin_hdr *hdr = sparse_hdr(frame);

	ck_assert_uint_lt(h, rig->n_hosts);
	ck_assert_uint_eq(hdr->epoch, sparse_rig_node_of(rig, h)->ctx.epoch);
	ck_assert_uint_eq(hdr->key, SPARSE_RIG_KEY_DOWN);
	if (hdr->type == FANIN_TYPE_SPARSE_RESULT) {
		hear_result(rig, &rig->hosts[h], frame);
		return;
	}
	/* On a shared port other hosts receive it, too. */
	if (hdr->type == FANIN_TYPE_ANSWER && hdr->rank == h)
		hear_answer(rig, h, frame);
	free(frame);
}

/* Checks that a switch's shard is like a host's. */
static void
check_upward(const struct sparse_rig *rig, struct sparse_frame *frame)
{
	const struct fanin_hdr *hdr = sparse_hdr(frame);
	const uint32_t payload_len = frame->len - FANIN_PAYLOAD_OFFSET;

	if (rig->per_leaf == 0 || frame->to != 0 || hdr->type != FANIN_TYPE_SPARSE)
		return;
	ck_assert_uint_le(payload_len, rig->nodes[0].job.payload_bytes);
	ck_assert(fanin_shard_fits(hdr, payload_len));
	ck_assert(fanin_shard_check(hdr, frame->data + FANIN_PAYLOAD_OFFSET, payload_len));
	ck_assert_uint_eq(hdr->epoch, rig->nodes[0].ctx.epoch);
	ck_assert_uint_eq(hdr->rank, frame->child * rig->per_leaf);
	ck_assert_uint_eq(hdr->contributions, rig->per_leaf);
}

void
sparse_rig_deliver(struct sparse_rig *rig)
{
	while (rig->n_queue != 0) {
		const size_t i = rig->reorder ? random_below(&rig->random, (uint32_t)rig->n_queue)
					      : 0;
		struct sparse_frame *frame = rig->queue[i];
		enum fanin_reason reason;

		if (rig->reorder)
			rig->queue[i] = rig->queue[--rig->n_queue];
		else
			memmove(rig->queue, rig->queue + 1, --rig->n_queue * sizeof(*rig->queue));
		check_upward(rig, frame);
		if (frame->to < 0)
			hear(rig, frame);
		else
			sparse_rig_hand_over(rig, frame, &reason);
		sparse_rig_post(rig);
	}
}

void
sparse_rig_ask(struct sparse_rig *rig)
{
	for (uint16_t h = 0; h < rig->n_hosts; h++) {
		uint32_t block = 0;
		struct sparse_frame *query;

		while (block < rig->hosts[h].n_sent && sparse_rig_has(rig, h, block))
			block++;
		if (block == rig->hosts[h].n_sent)
			continue;
		query = sparse_rig_frame(rig, h, block, FANIN_TYPE_QUERY);
		sparse_hdr(query)->flags = FANIN_FLAG_RETRANSMIT;
		sparse_hdr(query)->count = SPARSE_RIG_WINDOW;
		sparse_hdr(query)->number = ++rig->next_number;
		memcpy(query->data + query->len, &rig->hosts[h].received[block].shards.in,
		       sizeof(uint64_t));
		query->len += sizeof(uint64_t);
		sparse_rig_send(rig, query);
	}
	rig->asked++;
}

/* Combines all hosts' vectors in their order. */
static void
expect(const struct sparse_rig *rig, uint32_t block, struct sparse_vector *expected)
{
	for (uint16_t h = 0; h < rig->n_hosts; h++) {
		const struct sparse_vector *brings = &rig->hosts[h].brings[block];

		for (uint32_t i = 0; i < rig->span; i++) {
			if (!brings->has[i])
				continue;
			expected->values[i] = expected->has[i]
						      ? reference_combine(rig->dtype, rig->op,
									  expected->values[i],
									  brings->values[i])
						      : brings->values[i];
			expected->has[i] = true;
		}
	}
}

/* Combines the received shards in the order of their numbers. */
static void
combine(const struct sparse_rig *rig, const struct sparse_received *received,
	struct sparse_vector *sum)
{
	const uint32_t size = fanin_dtype_size(rig->dtype);
	const uint32_t width = fanin_shard_index_bytes(rig->span);

	for (unsigned int s = 0; s < received->shards.total; s++) {
		const struct fanin_hdr *hdr = sparse_hdr(received->frames[s]);
		const uint8_t *values = received->frames[s]->data + FANIN_PAYLOAD_OFFSET;
		const uint8_t *behind = values + hdr->count * size;
		const uint32_t payload_len = received->frames[s]->len - FANIN_PAYLOAD_OFFSET;
		uint32_t bit = 0;

		for (uint16_t i = 0; i < hdr->count; i++) {
			uint32_t index = 0;
			uint64_t value = 0;

			memcpy(&value, values + i * size, size);
			if (fanin_shard_decode(hdr->members).form == FANIN_SHARD_LIST) {
				memcpy(&index, behind + i * width, width);
			} else {
				while ((behind[bit / 8] >> bit % 8 & 1) == 0)
					bit++;
				index = fanin_shard_first(values, payload_len) + bit++;
			}
			sum->values[index] = sum->has[index]
						     ? reference_combine(rig->dtype, rig->op,
									 sum->values[index], value)
						     : value;
			sum->has[index] = true;
		}
	}
}

static struct sparse_vector
vector_make(uint32_t span)
{
	struct sparse_vector vector = {
		.values = calloc(span, sizeof(uint64_t)),
		.has = calloc(span, sizeof(bool)),
	};

	ck_assert(vector.values != NULL && vector.has != NULL);
	return vector;
}

static void
vector_free(struct sparse_vector *vector)
{
	free(vector->values);
	free(vector->has);
	*vector = (struct sparse_vector){ 0 };
}

void
sparse_rig_check(struct sparse_rig *rig, uint32_t block)
{
	struct sparse_vector expected = vector_make(rig->span);

	expect(rig, block, &expected);
	for (uint16_t h = 0; h < rig->n_hosts; h++) {
		struct sparse_vector found = vector_make(rig->span);

		ck_assert(sparse_rig_has(rig, h, block));
		combine(rig, &rig->hosts[h].received[block], &found);
		for (uint32_t i = 0; i < rig->span; i++) {
			ck_assert_msg(
				found.has[i] == expected.has[i] &&
					(!found.has[i] ||
					 reference_same(rig->dtype, rig->op, found.values[i],
							expected.values[i])),
				"%s, %s of %s, block %u, host %u, index %u: found %d %#llx, expected %d %#llx",
				rig->nodes[0].handler->name, fanin_op_name(rig->op),
				fanin_dtype_name(rig->dtype), block, h, i, found.has[i],
				(unsigned long long)found.values[i], expected.has[i],
				(unsigned long long)expected.values[i]);
		}
		vector_free(&found);
	}
	vector_free(&expected);
}

void
sparse_rig_bring(struct sparse_rig *rig, uint16_t h, uint32_t block, uint32_t index, uint64_t value)
{
	struct sparse_vector *brings = &rig->hosts[h].brings[block];

	ck_assert_uint_lt(index, rig->span);
	if (brings->has == NULL)
		*brings = vector_make(rig->span);
	brings->values[index] = value;
	brings->has[index] = true;
}

/*
 * Returns small numbers for sums and minima, ones with either sign for products: nothing is ever
 * rounded.
 */
static uint64_t
exact_value(struct sparse_rig *rig)
{
	const struct float_format *format = reference_format(rig->dtype);
	const uint32_t bytes = fanin_dtype_size(rig->dtype);
	int64_t value = (int64_t)random_below(&rig->random, 17) - 8;

	if (format == NULL)
		return ((uint64_t)random_u32(&rig->random) << 32 | random_u32(&rig->random)) &
		       (UINT64_MAX >> (64 - 8 * bytes));
	if (rig->op == FANIN_WIRE_PROD)
		value = value < 0 ? -1 : 2;
	return reference_encode(format, (double)value);
}

void
sparse_rig_fill(struct sparse_rig *rig, uint32_t block, unsigned int density)
{
	for (uint16_t h = 0; h < rig->n_hosts; h++) {
		for (uint32_t i = 0; i < rig->span; i++) {
			if (random_below(&rig->random, 1000) < density)
				sparse_rig_bring(rig, h, block, i, exact_value(rig));
		}
	}
}

void
sparse_rig_run(struct sparse_rig *rig, uint32_t n_blocks)
{
	unsigned int rounds = 0;
	bool all;

	rig->n_blocks = n_blocks;
	for (uint32_t block = 0; block < n_blocks; block++) {
		for (uint16_t h = 0; h < rig->n_hosts; h++) {
			if (rig->hosts[h].brings[block].has == NULL)
				rig->hosts[h].brings[block] = vector_make(rig->span);
		}
	}
	sparse_rig_post(rig);
	for (;;) {
		sparse_rig_deliver(rig);
		all = true;
		for (uint16_t h = 0; h < rig->n_hosts; h++)
			all = all && rig->hosts[h].n_sent == n_blocks &&
			      sparse_rig_has(rig, h, n_blocks - 1) &&
			      (n_blocks < 2 || sparse_rig_has(rig, h, n_blocks - 2));
		if (all)
			break;
		ck_assert_uint_lt(rounds++, MAX_ROUNDS);
		sparse_rig_ask(rig);
	}
	for (uint32_t block = 0; block < n_blocks; block++)
		sparse_rig_check(rig, block);
}

static void
start_node(struct sparse_rig *rig, struct sparse_node *node, uint16_t n_children,
	   uint16_t payload_bytes)
{
	const uint16_t at = (uint16_t)(node - rig->nodes);

	node->rig = rig;
	fanin_job_params_hosts(&node->job, n_children);
	node->job.id = 1;
	node->job.n_ranks = rig->n_hosts;
	node->job.window = SPARSE_RIG_WINDOW;
	node->job.payload_bytes = payload_bytes;
	node->job.keys.up = SPARSE_RIG_KEY_UP;
	node->job.keys.down = SPARSE_RIG_KEY_DOWN;
	node->job.isa = fanin_isa_detect();
	node->job.slots = (struct fanin_slots){ .by_index = node->slots,
						.mask = SPARSE_RIG_SLOTS - 1 };
	if (at != 0) {
		node->job.has_parent = true;
		node->job.n_below = n_children;
		node->job.parent_rank = (uint16_t)((at - 1) * rig->per_leaf);
		for (uint16_t child = 0; child < n_children; child++)
			node->job.child_ranks[child] =
				fanin_ranks_one((uint16_t)(node->job.parent_rank + child));
	} else if (rig->per_leaf != 0) {
		node->job.n_below = rig->n_hosts;
		for (uint16_t child = 0; child < n_children; child++) {
			node->job.child_ranks[child] = (struct fanin_ranks){ 0 };
			for (uint16_t i = 0; i < rig->per_leaf; i++) {
				const struct fanin_ranks one =
					fanin_ranks_one((uint16_t)(child * rig->per_leaf + i));

				fanin_ranks_merge(&node->job.child_ranks[child], &one);
			}
		}
	}
	node->ctx.job = &node->job;
	node->ctx.epoch = EPOCH + at;
	node->ctx.parent_epoch = EPOCH;
	node->ctx.stats = &node->stats;
	node->ctx.drain = drain;
	for (unsigned int i = 0; i < SPARSE_RIG_SLOTS; i++) {
		const size_t size =
			RTE_CACHE_LINE_ROUNDUP(fanin_slot_size(node->handler, &node->job));

		node->slots[i] = aligned_alloc(RTE_CACHE_LINE_SIZE, size);
		ck_assert_ptr_nonnull(node->slots[i]);
		memset(node->slots[i], 0, size);
	}
}

void
sparse_rig_start(struct sparse_rig *rig, const char *handler, uint16_t n_hosts, uint16_t n_leaves,
		 uint16_t payload_bytes)
{
	memset(rig, 0, sizeof(*rig));
	rig->random = random_seed(1);
	rig->n_hosts = n_hosts;
	rig->n_nodes = 1 + n_leaves;
	rig->per_leaf = n_leaves == 0 ? 0 : n_hosts / n_leaves;
	rig->dtype = FANIN_WIRE_F32;
	rig->op = FANIN_WIRE_SUM;
	rig->span = 1000;
	fake_pool_init(&rig->pool,
		       (1u + n_leaves) * (FANIN_STOCK + SPARSE_RIG_SLOTS * FANIN_SPARSE_MBUFS + 8));
	for (uint16_t i = 0; i < rig->n_nodes; i++) {
		rig->nodes[i].handler = fanin_handler_find(handler);
		ck_assert_ptr_nonnull(rig->nodes[i].handler);
		start_node(rig, &rig->nodes[i],
			   i != 0          ? rig->per_leaf
			   : n_leaves == 0 ? n_hosts
					   : n_leaves,
			   payload_bytes);
	}
}

void
sparse_rig_stop(struct sparse_rig *rig)
{
	for (uint16_t i = 0; i < rig->n_nodes; i++) {
		struct sparse_node *node = &rig->nodes[i];

		for (unsigned int s = 0; s < SPARSE_RIG_SLOTS; s++) {
			node->handler->slot_release(&node->ctx, node->slots[s]);
			drain(&node->ctx);
			free(node->slots[s]);
		}
		rig->no_stock = true;
		restock(node);
	}
	ck_assert_uint_eq(fake_pool_in_use(&rig->pool), 0);
	fake_pool_fini(&rig->pool);
	for (size_t i = 0; i < rig->n_queue; i++)
		free(rig->queue[i]);
	free(rig->queue);
	for (uint16_t h = 0; h < rig->n_hosts; h++) {
		for (uint32_t block = 0; block < SPARSE_RIG_BLOCKS; block++) {
			vector_free(&rig->hosts[h].brings[block]);
			for (unsigned int s = 0; s < FANIN_SHARDS_MAX; s++)
				free(rig->hosts[h].received[block].frames[s]);
		}
	}
}

uint64_t
sparse_rig_counter(const struct sparse_rig *rig, enum fanin_sparse_counter counter)
{
	uint64_t sum = 0;

	for (uint16_t i = 0; i < rig->n_nodes; i++)
		sum += rig->nodes[i].stats.own[counter];
	return sum;
}
