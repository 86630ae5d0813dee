/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations: how their packets are divided into chains, which control blocks they have, and how
 * they end (protocols/broadcast/README.md).
 */
#include <stdlib.h>
#include <string.h>

#include "broadcast_internal.h"

/*
 * Number of an Allgather's roots that send at once, unless the job says. More roots share links
 * that one root fills; fewer wait for each other's activation.
 */
#define CHAINS_USUAL 2u

/* An operation's memory behind its chains: bitmaps and values. */
struct memory {
	size_t bitmap; /* words */
	size_t values; /* likewise */
};

/* Returns the first of the request's packets at or after this position in the vector's blocks. */
static uint32_t
packet_at(const struct fanin_request *request, uint32_t n_packets, uint64_t block)
{
	uint64_t packet;

	if (block <= request->start)
		return 0;
	packet = (block - request->start + request->stride - 1) / request->stride;
	return packet < n_packets ? (uint32_t)packet : n_packets;
}

static uint16_t
chains_of(const struct fanin_broadcast_engine *mc, const struct fanin_request *request)
{
	const uint16_t size = mc->engine.config.size;
	const uint32_t wanted = mc->chains != 0 ? mc->chains : CHAINS_USUAL;

	switch ((enum fanin_collective)request->collective) {
	case FANIN_COLLECTIVE_BROADCAST:
		return 1;
	case FANIN_COLLECTIVE_ALLREDUCE:
		return size;
	case FANIN_COLLECTIVE_REDUCE:
	case FANIN_COLLECTIVE_REDUCE_SCATTER:
		return 0;
	default:
		return wanted < size ? (uint16_t)wanted : size;
	}
}

void
fanin_broadcast_part(const struct fanin_broadcast_engine *mc, const struct fanin_broadcast_op *op,
		     uint16_t rank, uint32_t *first, uint32_t *end)
{
	const struct fanin_request *request = op->request;
	const uint16_t size = mc->engine.config.size;

	switch ((enum fanin_collective)request->collective) {
	case FANIN_COLLECTIVE_BROADCAST:
	case FANIN_COLLECTIVE_REDUCE:
		*first = 0;
		*end = rank == request->root ? op->n_packets : 0;
		break;
	case FANIN_COLLECTIVE_ALLREDUCE:
		*first = (uint32_t)((uint64_t)rank * op->n_packets / size);
		*end = (uint32_t)((rank + UINT64_C(1)) * op->n_packets / size);
		break;
	default:
		*first = packet_at(request, op->n_packets, (uint64_t)rank * request->part_blocks);
		*end = packet_at(request, op->n_packets,
				 (rank + UINT64_C(1)) * request->part_blocks);
		break;
	}
}

uint16_t
fanin_broadcast_root(const struct fanin_broadcast_engine *mc, struct fanin_broadcast_op *op,
		     uint32_t packet)
{
	if (fanin_request_combines(op->request))
		return (uint16_t)(fanin_broadcast_chain_of(op, packet) - op->chains);
	return fanin_broadcast_extent(mc, op, packet).root;
}

/* Lays out the chains, and finds this rank's own packets. */
static void
chains_make(const struct fanin_broadcast_engine *mc, struct fanin_broadcast_op *op)
{
	const uint16_t size = mc->engine.config.size;
	const uint16_t rank = mc->engine.config.rank;
	const uint16_t turn = fanin_broadcast_turn_of_rank(op, rank);
	const bool is_broadcast = op->request->collective == FANIN_COLLECTIVE_BROADCAST;
	uint32_t unused;

	for (uint16_t c = 0; c < op->n_chains; c++) {
		const uint16_t from = (uint16_t)((uint32_t)c * size / op->n_chains);
		const uint16_t to = (uint16_t)((c + 1u) * size / op->n_chains);
		struct fanin_broadcast_chain *chain = &op->chains[c];

		if (is_broadcast) {
			chain->end = op->n_packets;
		} else {
			fanin_broadcast_root_range(mc, op, fanin_broadcast_rank_of_turn(op, from),
						   &chain->first, &unused);
			fanin_broadcast_root_range(mc, op, fanin_broadcast_rank_of_turn(op, to - 1),
						   &unused, &chain->end);
		}
		chain->seen = chain->first;
		chain->gaps = (struct fanin_gaps){ .end = chain->end,
						   .whole = chain->first,
						   .passed = chain->first,
						   .checked = chain->first };
		if (turn >= from && turn < to)
			op->own_chain = c;
	}
	fanin_broadcast_root_range(mc, op, rank, &op->own_first, &op->own_end);
	op->own_next = op->own_first;
	op->own_ready = fanin_request_combines(op->request) ? op->own_first : op->own_end;
}

/*
 * Returns the number of control blocks of an operation whose longest chain has this many packets.
 */
static uint32_t
n_control_blocks(uint32_t longest, uint32_t credit)
{
	return 2 + (longest - 1) / credit;
}

static uint64_t
hash_mix(uint64_t hash, uint64_t part)
{
	hash = (hash ^ part) * UINT64_C(0x9e3779b97f4a7c15);
	return hash ^ hash >> 29;
}

/*
 * Hashes the shape of an operation. Ranks that disagree about the operation get different hashes.
 */
static uint64_t
shape_hash(const struct fanin_broadcast_engine *mc, const struct fanin_broadcast_op *op)
{
	const struct fanin_request *request = op->request;
	const bool combines = fanin_request_combines(request);
	const uint64_t parts[] = { request->collective,
				   request->root,
				   request->total_bytes,
				   request->stride,
				   request->start,
				   op->n_packets,
				   op->n_chains,
				   op->credit,
				   op->control.n_blocks,
				   op->number,
				   combines ? request->dtype : 0u,
				   combines ? request->op : 0u };
	uint64_t hash = UINT64_C(0xcbf29ce484222325);

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		hash = hash_mix(hash, parts[i]);
	for (uint16_t t = 0; op->turns != NULL && t < mc->engine.config.size; t++)
		hash = hash_mix(hash, op->turns[t].rank);
	return hash;
}

static struct fanin_broadcast_op *
op_create(struct fanin_broadcast_engine *mc, struct fanin_request *request, uint32_t n_packets)
{
	const size_t words = (n_packets + 63) / 64;
	const uint16_t n_chains = chains_of(mc, request);
	struct fanin_broadcast_op *op = calloc(1, sizeof(*op) + n_chains * sizeof(op->chains[0]));
	uint32_t longest = 1;
	size_t n_values;

	if (op == NULL)
		return NULL;
	op->request = request;
	op->number = mc->n_ops;
	op->n_packets = n_packets;
	op->n_chains = n_chains;
	op->credit = n_chains == 0 ? mc->credit : mc->credit / n_chains + (mc->credit < n_chains);
	if (fanin_broadcast_turns_make(mc, op) != FANIN_OK) {
		free(op);
		return NULL;
	}
	chains_make(mc, op);
	for (uint16_t c = 0; c < n_chains; c++) {
		const uint32_t n = op->chains[c].end - op->chains[c].first;

		longest = n > longest ? n : longest;
	}
	op->control.n_blocks = n_control_blocks(longest, op->credit);
	n_values = (size_t)op->control.n_blocks * FANIN_BROADCAST_VALUES;
	op->have = calloc(2 * words + 2 * n_values, sizeof(*op->have));
	if (op->have == NULL) {
		fanin_broadcast_op_free(op);
		return NULL;
	}
	op->asked = op->have + words;
	for (uint16_t c = 0; c < n_chains; c++) {
		op->chains[c].gaps.have = op->have;
		op->chains[c].gaps.asked = op->asked;
	}
	op->said = op->asked + words;
	op->heard = op->said + n_values;
	op->step = 1;
	op->n_lacking = n_chains == 0 ? 0 : n_packets - (op->own_end - op->own_first);
	for (uint32_t i = op->own_first; i < op->own_end; i++)
		fanin_set_bit(op->have, i);
	op->said[0] = shape_hash(mc, op);
	op->said[1] = ~op->said[0];
	return op;
}

void
fanin_broadcast_op_free(struct fanin_broadcast_op *op)
{
	free(op->standing.wanted);
	free(op->turns);
	free(op->have);
	free(op);
}

/* Copies this rank's own part of an Allgather to its position in the vector. */
static void
own_part_copy(const struct fanin_request *request)
{
	uint8_t *to = request->recv + (request->send_offset - request->recv_offset);

	if (request->collective == FANIN_COLLECTIVE_ALLGATHER && request->send_bytes != 0 &&
	    to != request->send)
		memcpy(to, request->send, request->send_bytes);
}

int
fanin_broadcast_post(struct fanin_engine *engine, struct fanin_request *request, uint32_t n_packets)
{
	struct fanin_broadcast_engine *mc = fanin_broadcast_of(engine);
	struct fanin_broadcast_op *op;
	int status;

	if (request->stride == 0)
		request->stride = 1;
	request->first_block = 0;
	op = op_create(mc, request, n_packets);
	if (op == NULL)
		return FANIN_ERR_NO_MEMORY;
	op->control.send = (const uint8_t *)op->said;
	op->control.recv = (uint8_t *)op->heard;
	op->control.collective = FANIN_COLLECTIVE_ALLREDUCE;
	op->control.dtype = FANIN_U64;
	op->control.op = FANIN_MAX;
	op->control.whole = request;
	status = fanin_engine_post_small(engine, &op->control, op->control.n_blocks,
					 FANIN_BROADCAST_VALUES * sizeof(uint64_t));
	if (status != FANIN_OK) {
		fanin_broadcast_op_free(op);
		return status;
	}
	own_part_copy(request);
	request->parts_left = 1;
	request->done_blocks = 0;
	request->done_bytes = 0;
	request->status = FANIN_IN_PROGRESS;
	*mc->ops_tail = op;
	mc->ops_tail = &op->next;
	mc->n_ops++;
	return FANIN_OK;
}

struct fanin_broadcast_op *
fanin_broadcast_find(struct fanin_broadcast_engine *mc, uint32_t number)
{
	struct fanin_broadcast_op *op = mc->ops;

	while (op != NULL && op->number != number)
		op = op->next;
	return op;
}

uint8_t *
fanin_broadcast_place(const struct fanin_broadcast_op *op, const struct fanin_extent *extent)
{
	const struct fanin_request *request = op->request;

	if (!fanin_request_combines(request) && fanin_request_brings(request, extent))
		return (uint8_t *)(uintptr_t)request->send +
		       (extent->offset - request->send_offset);
	return request->recv + (extent->offset - request->recv_offset);
}

/* The ready block is done: all ranks have posted the operation. */
static void
ready_note(struct fanin_broadcast_engine *mc, struct fanin_broadcast_op *op)
{
	const uint8_t collective = op->request->collective;
	struct fanin_engine *engine = &mc->engine;

	if (op->heard[0] != op->said[0] || op->heard[1] != op->said[1]) {
		fanin_error_set(
			&engine->loop.error, 0,
			"the ranks disagree about the collective: not all have posted %s %s of %llu bytes%s here",
			collective == FANIN_COLLECTIVE_ALLREDUCE ||
					collective == FANIN_COLLECTIVE_ALLGATHER
				? "an"
				: "a",
			fanin_collective_name(collective),
			(unsigned long long)op->request->total_bytes,
			collective == FANIN_COLLECTIVE_BROADCAST ? " from the same root"
			: collective == FANIN_COLLECTIVE_REDUCE  ? " to the same root"
								 : "");
		fanin_engine_fail(engine, FANIN_ERR_REFUSED);
		return;
	}
	op->begun_ns = engine->loop.now_ns;
	op->last_ns = engine->loop.now_ns;
	op->busy_ns = 0;
}

/* A credit is done: losses and marks lower the rate, their absence raises it. */
static void
credit_note(struct fanin_broadcast_engine *mc, const struct fanin_broadcast_op *op, uint32_t index)
{
	const uint64_t worst = op->heard[(size_t)index * FANIN_BROADCAST_VALUES];

	if (worst > mc->credit / 32)
		mc->depth = mc->depth > 1 ? mc->depth / 2 : 1;
	else if (mc->depth < FANIN_BROADCAST_DEPTH_MAX)
		mc->depth++;
}

/* Measures the rate at which an operation's packets came. */
static void
rate_learn(struct fanin_broadcast_engine *mc, const struct fanin_broadcast_op *op)
{
	const uint64_t ns = op->busy_ns;
	const uint64_t bytes = op->request->total_bytes / op->request->stride;
	double rate;

	if (op->begun_ns == 0 || ns == 0)
		return;
	rate = (double)bytes / (double)ns;
	mc->bytes_per_ns = mc->bytes_per_ns == 0 ? rate : (7 * mc->bytes_per_ns + rate) / 8;
}

static void
op_close(struct fanin_broadcast_engine *mc, struct fanin_broadcast_op *op)
{
	struct fanin_broadcast_op **link = &mc->ops;

	while (*link != op)
		link = &(*link)->next;
	*link = op->next;
	if (op->next == NULL)
		mc->ops_tail = link;
	rate_learn(mc, op);
	mc->stats.operations++;
	fanin_broadcast_op_free(op);
}

static bool
has_block(const struct fanin_broadcast_op *op, uint32_t block)
{
	return block - op->control.first_block < op->control.n_blocks;
}

void
fanin_broadcast_finish(struct fanin_engine *engine, uint32_t block)
{
	struct fanin_broadcast_engine *mc = fanin_broadcast_of(engine);
	struct fanin_broadcast_op *op = mc->ops;

	while (op != NULL && !has_block(op, block))
		op = op->next;
	if (op == NULL)
		return;
	/* Results may come out of order. */
	while (op->n_done < op->control.n_blocks &&
	       fanin_engine_is_done(engine, op->control.first_block + op->n_done)) {
		if (op->n_done == 0)
			ready_note(mc, op);
		else
			credit_note(mc, op, op->n_done);
		op->n_done++;
	}
	if (op->n_done == op->control.n_blocks)
		op_close(mc, op);
}

const struct fanin_broadcast_stats *
fanin_broadcast_stats(struct fanin_endpoint *endpoint)
{
	return &fanin_broadcast_of(fanin_engine_of(endpoint))->stats;
}
