/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sparse blocks: lanes that send shards, and make results of received shards
 * (protocols/sparse/README.md; Flare section 7). Sent shards can be made again from the caller's
 * vectors, so only results take memory: each shard has a buffer from its arrival until its block is
 * complete. Where runs can be resumed each lane keeps the result of its last block, and tells it to
 * ranks that lack it, as if it were this rank's data. Called by the poll loop only.
 */
#include "engine_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hostlib/src/vector/vector.h"

/* A lane's block, if it is sparse and a shard of it was sent or received. */
struct lane_shards {
	uint32_t block;
	bool is_begun;
	bool is_cut;
	uint8_t total;    /* number of the result's shards; 0: not known yet */
	uint64_t to_send; /* set of shards of the cut */
	uint64_t have;    /* set of shards of the result */
	struct fanin_vector_cut cut;
	struct fanin_vector_shard *received[FANIN_SHARDS_MAX]; /* NULL: the result is known, and has
								  no buffers */
	uint32_t kept_block;            /* the sparse block before, if its result is kept */
	struct fanin_vector_part *kept; /* this result; NULL: none is kept */
	struct fanin_vector known; /* the same as a vector, to be told; unused if it is not kept */
};

struct fanin_engine_shards {
	struct fanin_vector_shard *spare; /* buffers of payload_bytes */
	uint32_t n_spare;
	uint8_t *payload; /* of the shard that is being sent */
	struct lane_shards lanes[];
};

int
fanin_engine_shards_init(struct fanin_engine *engine)
{
	struct fanin_engine_shards *shards;

	if (engine->shards != NULL)
		return FANIN_OK;
	shards = calloc(1, sizeof(*shards) + engine->config.window * sizeof(shards->lanes[0]));
	if (shards == NULL)
		return FANIN_ERR_NO_MEMORY;
	shards->payload = malloc(engine->config.payload_bytes);
	if (shards->payload == NULL) {
		free(shards);
		return FANIN_ERR_NO_MEMORY;
	}
	engine->shards = shards;
	return FANIN_OK;
}

/* Returns a buffer for a shard, or NULL without memory. */
static struct fanin_vector_shard *
buffer_take(struct fanin_engine *engine)
{
	struct fanin_engine_shards *shards = engine->shards;
	struct fanin_vector_shard *buffer = shards->spare;

	if (buffer == NULL)
		return malloc(sizeof(*buffer) + engine->config.payload_bytes);
	shards->spare = buffer->next;
	shards->n_spare--;
	return buffer;
}

/*
 * Returns a buffer to the spare ones, or frees it if there is a window of them already. Spare ones
 * are for the next block, which may need as many shards.
 */
static void
buffer_release(struct fanin_engine *engine, struct fanin_vector_shard *buffer)
{
	struct fanin_engine_shards *shards = engine->shards;

	if (shards->n_spare >= engine->config.window) {
		free(buffer);
		return;
	}
	buffer->next = shards->spare;
	shards->spare = buffer;
	shards->n_spare++;
}

/* Releases the received shards of a lane's block. */
static void
lane_release(struct fanin_engine *engine, struct lane_shards *own)
{
	for (uint64_t have = own->have; have != 0; have &= have - 1) {
		if (own->received[__builtin_ctzll(have)] != NULL)
			buffer_release(engine, own->received[__builtin_ctzll(have)]);
	}
	own->have = 0;
	own->is_begun = false;
}

void
fanin_engine_shards_free(struct fanin_engine *engine)
{
	struct fanin_engine_shards *shards = engine->shards;

	if (shards == NULL)
		return;
	for (uint32_t i = 0; i < engine->config.window; i++) {
		lane_release(engine, &shards->lanes[i]);
		free(shards->lanes[i].kept);
	}
	while (shards->spare != NULL) {
		struct fanin_vector_shard *buffer = shards->spare;

		shards->spare = buffer->next;
		free(buffer);
	}
	free(shards->payload);
	free(shards);
	engine->shards = NULL;
}

static struct lane_shards *
shards_of(const struct fanin_engine *engine, const struct fanin_lane *lane)
{
	return &engine->shards->lanes[lane - engine->lanes];
}

/* Returns the shards of the lane's block, which is sparse and posted. */
static struct lane_shards *
lane_begin(struct fanin_engine *engine, const struct fanin_lane *lane)
{
	struct lane_shards *own = shards_of(engine, lane);

	if (own->is_begun && own->block == lane->block)
		return own;
	lane_release(engine, own);
	own->block = lane->block;
	own->is_begun = true;
	own->is_cut = false;
	own->total = 0;
	own->to_send = 0;
	return own;
}

/* Returns the vector that the lane sends: this rank's, or a result that it knows. */
static const struct fanin_vector *
vector_of(const struct fanin_engine *engine, const struct fanin_lane *lane)
{
	return lane->role == FANIN_LANE_SPARSE_KNOWN ? &shards_of(engine, lane)->known
						     : lane->request->sparse;
}

/* Returns the index of the lane's block in that vector. */
static uint32_t
index_of(const struct fanin_lane *lane)
{
	const struct fanin_request *request = lane->request;

	if (lane->role == FANIN_LANE_SPARSE_KNOWN)
		return 0;
	return (lane->block - request->first_block) * request->stride + request->start;
}

/* Returns the set of the first n shards. n: 1 to 64. */
static uint64_t
first_shards(unsigned int n)
{
	return UINT64_MAX >> (64 - n);
}

/* True if a rank may know the block's result from an earlier run. */
static bool
is_whole(const struct fanin_engine *engine, const struct fanin_lane *lane)
{
	return engine->stats.resumed != 0 && lane->block - engine->base < engine->config.window;
}

static bool
shard_send(struct fanin_engine *engine, const struct fanin_lane *lane, unsigned int number)
{
	const struct fanin_vector *sparse = vector_of(engine, lane);
	const bool is_known = lane->role == FANIN_LANE_SPARSE_KNOWN;
	const struct lane_shards *own = shards_of(engine, lane);
	struct fanin_headers headers = engine->headers;
	struct fanin_hdr *hdr = &headers.fanin;
	uint32_t payload_len;

	hdr->type = is_known ? FANIN_TYPE_SPARSE_KNOWN : FANIN_TYPE_SPARSE;
	hdr->flags = lane->transmissions != 0 ? FANIN_FLAG_RETRANSMIT : 0;
	hdr->contributions = is_known ? engine->config.size : 1;
	hdr->dtype = sparse->dtype;
	hdr->op = sparse->op;
	hdr->root = 0;
	hdr->block = lane->block - engine->base;
	hdr->progress = engine->oldest - engine->base;
	payload_len = fanin_vector_make(sparse, index_of(lane), &own->cut, number, hdr,
					engine->shards->payload);
	if (is_whole(engine, lane))
		hdr->members |= FANIN_SHARD_WHOLE;
	fanin_wire_encode_l4(&headers, &engine->config.flow, payload_len);
	/* All shards of a block go to the same worker, in their order. */
	headers.udp.src_be = fanin_wire_source_port_be(hdr->block, engine->config.port_shift);
	hdr->port = engine->config.flow.src_port;
	if (!fanin_engine_transmit(engine, &headers, engine->shards->payload, payload_len))
		return false;
	engine->stats.shards_sent++;
	engine->stats.shard_bytes_sent += payload_len;
	return true;
}

bool
fanin_engine_shards_send(struct fanin_engine *engine, struct fanin_lane *lane)
{
	struct lane_shards *own = lane_begin(engine, lane);
	bool some = false;

	if (!own->is_cut) {
		fanin_vector_cut(vector_of(engine, lane), index_of(lane),
				 engine->config.payload_bytes, &own->cut);
		own->is_cut = true;
		own->to_send = first_shards(own->cut.n_shards);
	}
	while (own->to_send != 0) {
		if (!shard_send(engine, lane, (unsigned int)__builtin_ctzll(own->to_send))) {
			/*
			 * Repeated shards are not queued: the next answer tells which ones are
			 * still lost.
			 */
			if (some && lane->state == FANIN_LANE_SENT)
				fanin_engine_note_sent(engine, lane);
			return false;
		}
		own->to_send &= own->to_send - 1;
		some = true;
		if (own->to_send == 0)
			break;
		engine->order++;
		engine->stats.frames_sent++;
	}
	fanin_engine_note_sent(engine, lane);
	return true;
}

bool
fanin_engine_shards_lost(struct fanin_engine *engine, struct fanin_lane *lane, const uint64_t *in)
{
	struct lane_shards *own = lane_begin(engine, lane);
	uint64_t all;

	assert(own->is_cut);
	all = first_shards(own->cut.n_shards);
	own->to_send = in != NULL ? all & ~*in : all;
	if (in != NULL || own->cut.n_shards == 1)
		return own->to_send != 0;
	/* An answer tells lost shards only of the block that was queried. */
	if (engine->loop.now_ns >= lane->ask_ns &&
	    fanin_engine_query(engine, lane->block, false, false) != 0)
		lane->ask_ns = engine->loop.now_ns + fanin_engine_query_wait_ns(engine);
	own->to_send = 0;
	return false;
}

bool
fanin_engine_shards_have(const struct fanin_engine *engine, uint32_t block, uint64_t *have)
{
	const struct fanin_lane *lane = fanin_engine_lane(engine, block);
	const struct lane_shards *own;

	if (lane->block != block || lane->state == FANIN_LANE_IDLE ||
	    !fanin_engine_has_shards(lane))
		return false;
	own = shards_of(engine, lane);
	*have = own->is_begun && own->block == block ? own->have : 0;
	return true;
}

bool
fanin_engine_shards_keep(const struct fanin_engine *engine, uint32_t block)
{
	const struct lane_shards *own;

	if (engine->shards == NULL)
		return false;
	own = shards_of(engine, fanin_engine_lane(engine, block));
	return own->kept != NULL && own->kept_block == block;
}

void
fanin_engine_shards_resume(struct fanin_engine *engine)
{
	for (uint32_t i = 0; engine->shards != NULL && i < engine->config.window; i++)
		lane_release(engine, &engine->shards->lanes[i]);
}

void
fanin_engine_shards_format(const struct fanin_request *request, uint32_t block, char *text,
			   size_t text_len)
{
	const struct fanin_vector *sparse = request->sparse;

	snprintf(text, text_len, "%u indices %s %s", fanin_vector_block_span(sparse, block),
		 fanin_dtype_name(sparse->dtype), fanin_op_name(sparse->op));
}

/* Fails because the result does not fit the block that this rank posted. */
static void
result_misfit(struct fanin_engine *engine, const struct fanin_lane *lane,
	      const struct fanin_hdr *hdr)
{
	const struct fanin_request *request = lane->request;
	char posted[64];

	if (request->sparse != NULL)
		fanin_engine_shards_format(request, index_of(lane), posted, sizeof(posted));
	else
		snprintf(posted, sizeof(posted), "a dense one of %s",
			 fanin_dtype_name(request->dtype));
	fanin_error_set(&engine->loop.error, 0,
			"the result of block %u holds %u indices %s %s, but this rank posted %s",
			lane->block, fanin_shard_decode(hdr->members).span,
			fanin_dtype_name(hdr->dtype), fanin_op_name(hdr->op), posted);
	fanin_engine_fail(engine, FANIN_ERR_REFUSED);
}

/* Makes the block's result, whose shards are all there. */
static void
lane_complete(struct fanin_engine *engine, struct fanin_lane *lane)
{
	struct fanin_request *request = lane->request;
	struct fanin_vector *sparse = request->sparse;
	struct lane_shards *own = shards_of(engine, lane);
	const uint32_t span = own->cut.span;
	struct fanin_vector_part *known = NULL;
	uint32_t n_values;

	if (fanin_vector_merge(sparse, index_of(lane), own->received, own->total, &n_values,
			       engine->config.recover ? &known : NULL) != FANIN_OK) {
		fanin_error_set(&engine->loop.error, 0, "out of memory for the result of block %u",
				lane->block);
		fanin_engine_fail(engine, FANIN_ERR_NO_MEMORY);
		return;
	}
	lane_release(engine, own);
	if (known != NULL) {
		free(own->kept);
		own->kept = known;
		own->kept_block = lane->block;
		own->known = fanin_vector_part_vector(known, sparse, index_of(lane));
	}
	request->done_blocks++;
	/* An empty vector has one block, of one index. */
	if (sparse->n != 0)
		request->done_bytes += (uint64_t)span * sparse->element_bytes;
	engine->stats.blocks++;
	engine->stats.bytes_reduced += (uint64_t)own->cut.count * sparse->element_bytes;
	engine->stats.sparse_blocks++;
	engine->stats.sparse_elements += sparse->n != 0 ? span : 0;
	engine->stats.sparse_dense_bytes += (uint64_t)(sparse->n != 0 ? span : 0) *
					    sparse->element_bytes;
	engine->stats.sparse_values_sent += own->cut.count;
	engine->stats.sparse_values_received += n_values;
	fanin_engine_lane_finish(engine, lane);
}

/*
 * True if a shard belongs to the same sequence as the received ones. The last shard of a result
 * can't come before this rank has sent all of its own.
 */
static bool
belongs(const struct fanin_lane *lane, const struct lane_shards *own,
	const struct fanin_shard *shard)
{
	const uint8_t total = shard->total != 0 ? shard->total : own->total;
	const uint64_t have = own->have | UINT64_C(1) << shard->number;

	if (total == 0)
		return true;
	if ((own->total != 0 && total != own->total) || (have & ~first_shards(total)) != 0)
		return false;
	return have != first_shards(total) || lane->state == FANIN_LANE_SENT;
}

/*
 * Ends a lane that tells a result: the result came back with all its shards, so all ranks have it,
 * or can ask for it.
 */
static void
known_complete(struct fanin_engine *engine, struct fanin_lane *lane)
{
	lane_release(engine, shards_of(engine, lane));
	lane->role = FANIN_LANE_DENSE;
	engine->n_known--;
	fanin_engine_lane_finish(engine, lane);
}

/*
 * Copies a shard, since others may write the frame's memory, and checks the copy. Returns NULL if
 * it is invalid, or there is no memory.
 */
static struct fanin_vector_shard *
shard_copy(struct fanin_engine *engine, const struct fanin_frame *frame,
	   const struct fanin_headers *headers)
{
	const uint32_t payload_len = fanin_wire_payload_len(headers);
	struct fanin_vector_shard *buffer;

	if (payload_len > engine->config.payload_bytes ||
	    payload_len > frame->len - FANIN_PAYLOAD_OFFSET)
		return NULL;
	buffer = buffer_take(engine);
	if (buffer == NULL)
		return NULL;
	buffer->head = fanin_shard_decode(headers->fanin.members);
	buffer->payload_len = payload_len;
	buffer->count = headers->fanin.count;
	if ((payload_len == 0 ||
	     fanin_frame_copy(engine->loop.transport, frame, FANIN_PAYLOAD_OFFSET, buffer->payload,
			      payload_len)) &&
	    fanin_shard_check(&headers->fanin, buffer->payload, payload_len))
		return buffer;
	buffer_release(engine, buffer);
	return NULL;
}

/* Handles a shard of the result of a sparse block that is posted. */
static void
lane_receive(struct fanin_engine *engine, struct fanin_lane *lane, const struct fanin_frame *frame,
	     const struct fanin_headers *headers)
{
	const struct fanin_shard shard = fanin_shard_decode(headers->fanin.members);
	const bool is_known = lane->role == FANIN_LANE_SPARSE_KNOWN;
	struct lane_shards *own = lane_begin(engine, lane);
	struct fanin_vector_shard *buffer = NULL;
	bool belonging;

	if ((own->have >> shard.number & 1) != 0) {
		engine->stats.duplicates++;
		return;
	}
	belonging = belongs(lane, own, &shard);
	if (belonging && !is_known)
		buffer = shard_copy(engine, frame, headers);
	if (!belonging || (buffer == NULL && !is_known)) {
		engine->stats.invalid++;
		return;
	}
	own->received[shard.number] = buffer;
	own->have |= UINT64_C(1) << shard.number;
	if (shard.total != 0)
		own->total = shard.total;
	engine->stats.shards_received++;
	if (own->total != 0 && own->have == first_shards(own->total)) {
		if (is_known)
			known_complete(engine, lane);
		else
			lane_complete(engine, lane);
		return;
	}
	/* More shards may be under way. */
	fanin_engine_note_progress(engine);
	if (lane->block == engine->oldest &&
	    engine->ask_ns < engine->loop.now_ns + fanin_engine_query_wait_ns(engine))
		engine->ask_ns = engine->loop.now_ns + fanin_engine_query_wait_ns(engine);
}

void
fanin_engine_shards_receive(struct fanin_engine *engine, const struct fanin_frame *frame,
			    uint32_t block)
{
	const struct fanin_headers headers = *(const struct fanin_headers *)frame->data;
	const struct fanin_hdr *hdr = &headers.fanin;
	struct fanin_lane *lane = fanin_engine_lane(engine, block);
	const struct fanin_vector *sparse;

	/*
	 * Spills may come before this rank has posted the block: a rank that has not posted it yet
	 * asks for them later.
	 */
	if (lane->block != block || lane->state == FANIN_LANE_IDLE) {
		if (fanin_block_before(block, lane->block))
			engine->stats.duplicates++;
		return;
	}
	if (lane->role == FANIN_LANE_KNOWN) {
		engine->stats.invalid++;
		return;
	}
	sparse = vector_of(engine, lane);
	/*
	 * A vector without indices has a block of one index, which is empty, unless another rank
	 * has a longer vector.
	 */
	if (sparse == NULL || hdr->dtype != sparse->dtype || hdr->op != sparse->op ||
	    (sparse->n == 0 && hdr->count != 0) ||
	    fanin_shard_decode(hdr->members).span !=
		    fanin_vector_block_span(sparse, index_of(lane))) {
		if (lane->role == FANIN_LANE_SPARSE_KNOWN)
			engine->stats.invalid++;
		else
			result_misfit(engine, lane, hdr);
		return;
	}
	/*
	 * Checks the copy of the headers again: a switch on this machine may still write the
	 * original.
	 */
	if (!fanin_shard_fits(hdr, fanin_wire_payload_len(&headers))) {
		engine->stats.invalid++;
		return;
	}
	lane_receive(engine, lane, frame, &headers);
}
