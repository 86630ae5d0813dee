/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Resumes a run that the switch has lost, as a new run. All ranks begin it with the first block
 * whose result any of them lacks. Because of the window, the other ranks may have the results of
 * fewer than W blocks from there on: the last block of each lane. Results that are still in the
 * application's buffers are not kept twice. This rank has no result of a block that another rank
 * owns: it keeps its contribution, and sends it again (protocols/dense/README.md, "Lost runs of
 * blocks with owners").
 */
#include "engine_internal.h"

#include <stdlib.h>
#include <string.h>

int
fanin_engine_keep_init(struct fanin_engine *engine)
{
	const struct fanin_protocol_config *config = &engine->config;

	if (!config->recover && !engine->rules->keeps)
		return FANIN_OK;
	engine->kept = calloc(config->window, sizeof(*engine->kept));
	engine->kept_payloads = malloc((size_t)config->window * config->payload_bytes);
	return engine->kept != NULL && engine->kept_payloads != NULL ? FANIN_OK
								     : FANIN_ERR_NO_MEMORY;
}

static uint8_t *
kept_payload(const struct fanin_engine *engine, uint32_t block)
{
	return engine->kept_payloads +
	       (size_t)(block & (engine->config.window - 1u)) * engine->config.payload_bytes;
}

static struct fanin_kept_result *
kept_of(const struct fanin_engine *engine, uint32_t block)
{
	return &engine->kept[block & (engine->config.window - 1u)];
}

const uint8_t *
fanin_engine_keep_result(struct fanin_engine *engine, uint32_t block,
			 const struct fanin_frame *frame)
{
	const struct fanin_headers *result = frame->data;
	struct fanin_kept_result *kept = kept_of(engine, block);
	uint8_t *payload = kept_payload(engine, block);
	uint32_t len = fanin_wire_payload_len(result);

	kept->valid = false;
	if (len != 0 &&
	    !fanin_frame_copy(engine->loop.transport, frame, FANIN_PAYLOAD_OFFSET, payload, len))
		return NULL;
	*kept = (struct fanin_kept_result){
		.block = block,
		.count = result->fanin.count,
		.dtype = result->fanin.dtype,
		.op = result->fanin.op,
		.root = result->fanin.root,
		.valid = true,
		.empty = fanin_wire_is_empty(&result->fanin),
	};
	return payload;
}

/*
 * Finds a block in the request's buffers, for a run that is resumed. Returns false if the buffers
 * don't have it.
 *
 * payload: the result or, if *is_contribution, this rank's contribution to a block that another
 * rank owns.
 */
static bool
request_has(const struct fanin_engine *engine, const struct fanin_request *request,
	    const struct fanin_extent *extent, const uint8_t **payload, bool *is_contribution)
{
	*is_contribution = fanin_request_is_others(extent, engine->config.rank);
	if (*is_contribution) {
		*payload = request->send + (extent->offset - request->send_offset);
		return true;
	}
	*payload = request->recv + (extent->offset - request->recv_offset);
	return fanin_request_keeps(request, extent);
}

void
fanin_engine_keep_request(struct fanin_engine *engine, const struct fanin_request *request)
{
	uint32_t n = request->n_blocks < engine->config.window ? request->n_blocks
							       : engine->config.window;

	/* Results of sparse blocks are kept as they come. */
	if (request->sparse != NULL)
		return;
	for (uint32_t block = request->first_block + request->n_blocks - n; n > 0; n--, block++) {
		struct fanin_extent extent = fanin_request_extent(request, block);
		const uint8_t *payload;
		bool is_contribution;

		/* A request that was posted later may have finished before this one. */
		if (!request_has(engine, request, &extent, &payload, &is_contribution) ||
		    (kept_of(engine, block)->valid &&
		     fanin_block_before(block, kept_of(engine, block)->block)))
			continue;
		*kept_of(engine, block) = (struct fanin_kept_result){
			.block = block,
			.count = (uint16_t)(extent.len / request->element_bytes),
			.dtype = request->dtype,
			.op = extent.op,
			.root = extent.root,
			.valid = true,
			.is_contribution = is_contribution,
		};
		if (extent.len != 0)
			memcpy(kept_payload(engine, block), payload, extent.len);
	}
}

/*
 * Returns the request in progress that a block belongs to, if its buffers have the block's result
 * or this rank's contribution (request_has); else NULL.
 */
static const struct fanin_request *
request_holding(const struct fanin_engine *engine, uint32_t block, struct fanin_extent *extent,
		const uint8_t **payload, bool *is_contribution)
{
	for (const struct fanin_request *request = engine->loop.requests.first; request != NULL;
	     request = request->next) {
		if (block - request->first_block >= request->n_blocks)
			continue;
		if (request->sparse != NULL)
			return NULL;
		*extent = fanin_request_extent(request, block);
		return request_has(engine, request, extent, payload, is_contribution) ? request
										      : NULL;
	}
	return NULL;
}

const void *
fanin_engine_known(const struct fanin_engine *engine, const struct fanin_lane *lane,
		   struct fanin_hdr *hdr, uint32_t *payload_len)
{
	const struct fanin_kept_result *kept = kept_of(engine, lane->block);
	struct fanin_extent extent;
	const uint8_t *payload;
	bool is_contribution;
	const struct fanin_request *request = request_holding(engine, lane->block, &extent,
							      &payload, &is_contribution);

	if (request == NULL)
		is_contribution = kept->is_contribution;
	hdr->type = is_contribution ? FANIN_TYPE_CONTRIBUTION : FANIN_TYPE_KNOWN;
	hdr->contributions = is_contribution ? 1 : engine->config.size;
	if (request != NULL) {
		hdr->flags = 0;
		hdr->dtype = request->dtype;
		hdr->op = extent.op;
		hdr->root = extent.root;
		hdr->count = (uint16_t)(extent.len / request->element_bytes);
		*payload_len = extent.len;
		return payload;
	}
	hdr->flags = kept->empty ? FANIN_FLAG_EMPTY : 0;
	hdr->dtype = kept->dtype;
	hdr->op = kept->op;
	hdr->root = kept->root;
	hdr->count = kept->count;
	*payload_len = kept->empty ? 0 : kept->count * fanin_dtype_size(kept->dtype);
	return kept_payload(engine, lane->block);
}

void
fanin_engine_hint(struct fanin_endpoint *endpoint, const char *hint)
{
	struct fanin_engine *engine = fanin_engine_of(endpoint);

	engine->hint = hint;
}

void
fanin_engine_move(struct fanin_endpoint *endpoint, struct fanin_transport *transport)
{
	struct fanin_engine *engine = fanin_engine_of(endpoint);

	engine->loop.transport = transport;
	engine->run_lost = true;
	engine->moved = true;
}

void
fanin_engine_redirect(struct fanin_endpoint *endpoint, const struct fanin_flow *flow)
{
	struct fanin_engine *engine = fanin_engine_of(endpoint);

	engine->config.flow = *flow;
	fanin_engine_headers(engine, engine->header_payload_len);
}

bool
fanin_engine_run_lost(struct fanin_endpoint *endpoint)
{
	struct fanin_engine *engine = fanin_engine_of(endpoint);

	return engine->run_lost && engine->loop.status == FANIN_OK;
}

void
fanin_engine_suspect_run(struct fanin_endpoint *endpoint)
{
	struct fanin_engine *engine = fanin_engine_of(endpoint);

	engine->run_lost = engine->run_lost || engine->config.recover;
}

void
fanin_engine_note_rejoin(struct fanin_endpoint *endpoint, const struct fanin_rejoin *rejoin)
{
	struct fanin_engine *engine = fanin_engine_of(endpoint);

	engine->rejoin = *rejoin;
	if (!fanin_ranks_is_empty(&rejoin->late) &&
	    fanin_ranks_equal(&rejoin->late, &rejoin->missing) &&
	    rejoin->told_ns > engine->late_answer_ns)
		engine->late_answer_ns = rejoin->told_ns;
}

uint32_t
fanin_engine_progress(struct fanin_endpoint *endpoint)
{
	struct fanin_engine *engine = fanin_engine_of(endpoint);

	return engine->oldest;
}

/*
 * True if this rank can tell the result of a block before the lane's or, if another rank owns the
 * block, contribute again.
 */
static bool
is_kept(const struct fanin_engine *engine, uint32_t block)
{
	const struct fanin_kept_result *kept = kept_of(engine, block);
	struct fanin_extent extent;
	const uint8_t *payload;
	bool is_contribution;

	return request_holding(engine, block, &extent, &payload, &is_contribution) != NULL ||
	       (kept->valid && kept->block == block) || fanin_engine_shards_keep(engine, block);
}

bool
fanin_engine_result(const struct fanin_engine *engine, uint32_t block, struct fanin_hdr *hdr,
		    const void **payload, uint32_t *payload_len)
{
	const struct fanin_lane lane = { .block = block };

	if (!is_kept(engine, block) || fanin_engine_shards_keep(engine, block))
		return false;
	*payload = fanin_engine_known(engine, &lane, hdr, payload_len);
	return true;
}

/*
 * Makes the lane tell its block's result, which this rank has, or contribute again if another rank
 * owns the block.
 */
static void
lane_tell(const struct fanin_engine *engine, struct fanin_lane *lane)
{
	fanin_engine_ready(lane, NULL);
	if (fanin_engine_shards_keep(engine, lane->block))
		lane->role = FANIN_LANE_SPARSE_KNOWN;
}

/*
 * Starts the lane with this block in the new run. Returns false if this rank no longer has the
 * block's result.
 */
static bool
lane_resume(struct fanin_engine *engine, struct fanin_lane *lane, uint32_t block)
{
	lane->resent_before = false;
	if (lane->role == FANIN_LANE_KNOWN || lane->role == FANIN_LANE_SPARSE_KNOWN) {
		/* The run was lost again before all ranks had the result. */
		lane_tell(engine, lane);
		return lane->block == block;
	}
	if (lane->block == block) {
		if (lane->request != NULL)
			fanin_engine_ready(lane, lane->request);
		return true;
	}
	if (lane->block != block + engine->config.window || !is_kept(engine, block))
		return false;
	lane->block = block;
	engine->n_known++;
	lane_tell(engine, lane);
	return true;
}

int
fanin_engine_resume(struct fanin_endpoint *endpoint, uint32_t epoch, uint64_t instance,
		    uint32_t first_block)
{
	struct fanin_engine *engine = fanin_engine_of(endpoint);

	engine->run_lost = false;
	engine->suspected = FANIN_REASON_NONE;
	engine->rejoin = (struct fanin_rejoin){ 0 };
	if (epoch == engine->config.epoch && instance == engine->config.instance && !engine->moved)
		return FANIN_OK;
	engine->moved = false;
	fanin_engine_shards_resume(engine);
	engine->queue_head = engine->queue_tail;
	for (uint32_t i = 0; i < engine->config.window; i++) {
		uint32_t block = first_block + i;

		if (lane_resume(engine, fanin_engine_lane(engine, block), block))
			continue;
		fanin_error_set(
			&engine->loop.error, 0,
			"the ranks begin again with block %u, of which this one, at block %u, has no result any more: a rank was started anew",
			block, engine->oldest);
		fanin_engine_fail(engine, FANIN_ERR_REFUSED);
		return FANIN_ERR_REFUSED;
	}
	engine->config.epoch = epoch;
	engine->config.instance = instance;
	engine->headers.fanin.epoch = epoch;
	engine->base = first_block;
	engine->oldest = first_block;
	engine->overtaken_ns = 0;
	engine->loop.next_timer_ns = 0;
	engine->ask_ns = 0;
	engine->ask_wait_ns = 0;
	engine->retry_ns = 0;
	engine->probe_number = 0;
	engine->probe_order = engine->order;
	memset(engine->asked, 0, sizeof(engine->asked));
	engine->told = (struct fanin_last_answer){ 0 };
	engine->newest = first_block - 1;
	/*
	 * The switch may be another one: wrongly assuming several workers costs one round trip per
	 * loss.
	 */
	engine->config.spread = true;
	engine->late_answer_ns = 0;
	engine->progress_ns = fanin_loop_clock_ns(&engine->loop);
	engine->heard_ns = engine->progress_ns;
	engine->loop.resumed_ns = engine->progress_ns;
	engine->stats.resumed++;
	if (engine->rules->resume != NULL)
		engine->rules->resume(engine);
	fanin_engine_release_all(engine);
	return FANIN_OK;
}
