/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Packets from the switch: results and refusals; query.c handles answers. A result counts
 * only for the lane that has its block, so duplicates and late ones change nothing. Called by the
 * poll loop only.
 */
#include "engine_internal.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "wire/shard.h"

void
fanin_engine_note_progress(struct fanin_engine *engine)
{
	engine->progress_ns = engine->loop.now_ns;
	engine->heard_ns = engine->loop.now_ns;
	/* The next query is for another block, or for the same one with the shortest interval. */
	engine->ask_wait_ns = 0;
	engine->retry_ns = 0;
	if (engine->ask_ns > engine->loop.now_ns + fanin_engine_query_wait_ns(engine))
		engine->ask_ns = engine->loop.now_ns + fanin_engine_query_wait_ns(engine);
	fanin_loop_wake_by(&engine->loop, engine->loop.now_ns + fanin_engine_query_wait_ns(engine));
	engine->stale_reason = FANIN_REASON_NONE;
	engine->loop.tx_errnum = 0;
}

/*
 * Handles a second result of a block. It shows that sending the block again was unnecessary, unless
 * a query asked for the result.
 */
static void
receive_duplicate(struct fanin_engine *engine, struct fanin_lane *lane, uint32_t block)
{
	engine->stats.duplicates++;
	if (block + engine->config.window != lane->block || !lane->resent_before)
		return;
	lane->resent_before = false;
	fanin_engine_note_spurious(engine);
}

/*
 * Passes a block's delay to the congestion control, and learns how long blocks take. The delay of a
 * block that was sent again is unknown; time that the caller was away does not count.
 */
static void
window_note_result(struct fanin_engine *engine, const struct fanin_lane *lane)
{
	const struct fanin_cc_sample sample = {
		.now_ns = engine->loop.now_ns,
		.delay_ns = engine->loop.now_ns - lane->sent_ns,
		.block = lane->block - engine->base,
		.generation = lane->generation,
	};

	if (lane->transmissions != 1 || lane->sent_ns < engine->loop.resumed_ns)
		return;
	if (lane->asked && !engine->rules->samples_asked)
		return;
	engine->cc.type->on_delay(&engine->cc, &sample);
	fanin_rtt_sample(&engine->block_time, sample.delay_ns);
}

void
fanin_engine_lane_finish(struct fanin_engine *engine, struct fanin_lane *lane)
{
	const uint32_t generation = engine->cc.generation;
	const uint32_t block = lane->block;

	if (engine->rules->learn != NULL) {
		engine->progress_ns = engine->loop.now_ns;
		engine->loop.tx_errnum = 0;
		engine->rules->learn(engine, lane);
	} else {
		if (lane->transmissions == 1 && lane->sent_ns > engine->overtaken_ns)
			engine->overtaken_ns = lane->sent_ns;
		fanin_engine_note_progress(engine);
		window_note_result(engine, lane);
	}
	lane->resent_before = lane->transmissions > 1 && !lane->asked;
	fanin_engine_advance(engine, lane);
	if (engine->rules->finish != NULL)
		engine->rules->finish(engine, block);
	if (engine->cc.generation != generation)
		fanin_engine_release_all(engine);
}

/* Writes a block in words: "10 elements f32 sum" or "10 elements f32 of rank 3". */
static const char *
shape_format(unsigned int dtype, unsigned int op, unsigned int root, uint32_t count, char *text,
	     size_t text_len)
{
	if (fanin_root_is_owner(root))
		snprintf(text, text_len, "%u elements %s %s for rank %u", count,
			 fanin_dtype_name(dtype), fanin_op_name(op), fanin_root_rank(root));
	else if (fanin_op_is_copy(op))
		snprintf(text, text_len, "%u elements %s of rank %u", count,
			 fanin_dtype_name(dtype), root);
	else
		snprintf(text, text_len, "%u elements %s %s", count, fanin_dtype_name(dtype),
			 fanin_op_name(op));
	return text;
}

static const char *
block_format(const struct fanin_request *request, const struct fanin_extent *extent, char *text,
	     size_t text_len)
{
	if (request->sparse != NULL) {
		fanin_engine_shards_format(request,
					   (uint32_t)(extent->offset / request->block_bytes), text,
					   text_len);
		return text;
	}
	return shape_format(request->dtype, extent->op, extent->root,
			    extent->len / request->element_bytes, text, text_len);
}

/*
 * Fails because the result does not fit the block that this rank posted, or no rank has sent data
 * for it.
 */
static void
result_misfit(struct fanin_engine *engine, const struct fanin_request *request,
	      const struct fanin_extent *extent, const struct fanin_hdr *hdr, uint32_t block)
{
	char found[64], posted[64];

	block_format(request, extent, posted, sizeof(posted));
	if (fanin_wire_is_empty(hdr))
		fanin_error_set(&engine->loop.error, 0, "no rank brought data for block %u (%s)",
				block, posted);
	else
		fanin_error_set(&engine->loop.error, 0,
				"the result of block %u holds %s, but this rank posted %s", block,
				shape_format(hdr->dtype, hdr->op, hdr->root, hdr->count, found,
					     sizeof(found)),
				posted);
	fanin_engine_fail(engine, FANIN_ERR_REFUSED);
}

/*
 * Copies the part of a block's result that this rank keeps, or may have to send to others (kept).
 * Returns false if the frame is lost: it is then treated as never received.
 */
static bool
result_keep(struct fanin_engine *engine, const struct fanin_request *request,
	    const struct fanin_extent *extent, uint32_t block, const struct fanin_frame *frame)
{
	const struct fanin_kept part = fanin_request_kept(request, extent);
	const uint8_t *kept = NULL;

	if (engine->kept != NULL && !fanin_request_keeps(request, extent) &&
	    !fanin_request_is_others(extent, engine->config.rank)) {
		kept = fanin_engine_keep_result(engine, block, frame);
		if (kept == NULL)
			return false;
	}
	if (part.len == 0)
		return true;
	if (kept == NULL)
		return fanin_frame_copy(engine->loop.transport, frame,
					FANIN_PAYLOAD_OFFSET + part.skip, part.to, part.len);
	memcpy(part.to, kept + part.skip, part.len);
	return true;
}

/* For a result that came back: all ranks have it now. */
void
fanin_engine_known_finish(struct fanin_engine *engine, struct fanin_lane *lane)
{
	lane->role = FANIN_LANE_DENSE;
	engine->n_known--;
	fanin_engine_lane_finish(engine, lane);
}

/* Handles the result of a lane that tells a result or sends shards. */
static void
receive_other(struct fanin_engine *engine, struct fanin_lane *lane, const struct fanin_hdr *hdr,
	      uint32_t block)
{
	struct fanin_extent extent;

	if (lane->role == FANIN_LANE_KNOWN) {
		fanin_engine_known_finish(engine, lane);
		return;
	}
	if (lane->role == FANIN_LANE_SPARSE_KNOWN) {
		engine->stats.invalid++;
		return;
	}
	extent = fanin_request_extent(lane->request, lane->block);
	result_misfit(engine, lane->request, &extent, hdr, block);
}

/*
 * True if the lane's block may get its result. If the rules allow it, one of the first blocks of a
 * resumed run may get its result before this rank has sent anything: another rank knew the result
 * and has told it. The result is not multicast again.
 */
static bool
awaits_result(const struct fanin_engine *engine, const struct fanin_lane *lane, uint32_t block)
{
	if (lane->block != block)
		return false;
	return lane->state == FANIN_LANE_SENT ||
	       (lane->state == FANIN_LANE_READY && engine->rules->takes_unsent &&
		engine->stats.resumed != 0 && block - engine->base < engine->config.window);
}

/*
 * True if a result has as many elements as the lane's block, or none if only its owner needs them.
 *
 * is_others: fanin_request_is_others.
 */
static bool
result_fits(const struct fanin_request *request, const struct fanin_extent *extent, bool is_others,
	    const struct fanin_headers *result)
{
	const struct fanin_hdr *hdr = &result->fanin;
	const uint32_t len = is_others && fanin_wire_is_empty(hdr)
				     ? (uint32_t)hdr->count * request->element_bytes
				     : fanin_wire_payload_len(result);

	return hdr->dtype == request->dtype && hdr->op == extent->op && hdr->root == extent->root &&
	       len == extent->len;
}

void
fanin_engine_receive_result(struct fanin_engine *engine, const struct fanin_frame *frame,
			    uint32_t block)
{
	const struct fanin_headers *headers = frame->data;
	const struct fanin_hdr *hdr = &headers->fanin;
	struct fanin_lane *lane = fanin_engine_lane(engine, block);
	struct fanin_request *request = lane->request;
	struct fanin_extent extent;
	bool is_others;

	if (hdr->contributions != engine->config.size) {
		engine->stats.invalid++;
		return;
	}
	if (!awaits_result(engine, lane, block)) {
		if (fanin_block_before(block, lane->block))
			receive_duplicate(engine, lane, block);
		else
			engine->stats.invalid++;
		return;
	}
	engine->result_flags = hdr->flags;
	if (__builtin_expect(lane->role != FANIN_LANE_DENSE, 0)) {
		receive_other(engine, lane, hdr, block);
		return;
	}
	/*
	 * The lane's number is used, not the packet's, whose memory may be shared with the sender.
	 */
	extent = fanin_request_extent(request, lane->block);
	is_others = fanin_request_is_others(&extent, engine->config.rank);
	/* The result is for another host behind the same port, which does not own the block. */
	if (fanin_root_is_owner(extent.root) && !is_others && hdr->root == extent.root &&
	    fanin_wire_is_empty(hdr))
		return;
	if (!result_fits(request, &extent, is_others, headers)) {
		result_misfit(engine, request, &extent, hdr, block);
		return;
	}

	if (!result_keep(engine, request, &extent, lane->block, frame)) {
		engine->stats.invalid++;
		return;
	}
	request->done_blocks++;
	request->done_bytes += extent.len;
	engine->stats.blocks++;
	if (fanin_request_brings(request, &extent))
		engine->stats.bytes_reduced += extent.len;
	fanin_engine_lane_finish(engine, lane);
}

void
fanin_engine_take_result(struct fanin_engine *engine, uint32_t block, struct fanin_headers *headers,
			 uint32_t payload_len)
{
	const struct fanin_protocol_config *config = &engine->config;
	const struct fanin_hdr shape = headers->fanin;
	const struct fanin_frame frame = { .data = headers,
					   .len = FANIN_PAYLOAD_OFFSET + payload_len };

	fanin_wire_encode_l4(headers, &config->flow, payload_len);
	fanin_wire_encode_header(&headers->fanin, FANIN_TYPE_RESULT, config->job, config->epoch,
				 config->keys.down);
	headers->fanin.flags = shape.flags & FANIN_FLAG_EMPTY;
	headers->fanin.contributions = config->size;
	headers->fanin.block = block - engine->base;
	fanin_wire_set_shape(&headers->fanin, fanin_wire_shape(&shape));
	fanin_engine_receive_result(engine, &frame, block);
}

void
fanin_engine_make_result(struct fanin_engine *engine, uint32_t block, const struct fanin_sums *sums,
			 struct fanin_sum *sum, struct fanin_headers *frame)
{
	const uint64_t self = UINT64_C(1) << engine->config.rank;
	struct fanin_hdr hdr = { 0 };
	uint32_t len;
	const struct fanin_sum_part own = {
		.ranks = &self,
		.hdr = &hdr,
		.payload = fanin_engine_contribution(fanin_engine_lane(engine, block), &hdr, &len),
	};

	assert(sums->n_words == 1);
	(void)fanin_sum_add(sums, sum, &own);
	fanin_sum_finish(sums, sum);
	frame->fanin = hdr;
	frame->fanin.flags = sum->empty ? FANIN_FLAG_EMPTY : 0;
}

/*
 * True if the switch's refusal means that the run is over: the switch was restarted, so that tags
 * are of its previous instance, or the job was created again.
 */
static bool
says_run_is_lost(unsigned int reason)
{
	return reason == FANIN_REASON_JOB || reason == FANIN_REASON_EPOCH ||
	       reason == FANIN_REASON_NOT_ACTIVE || reason == FANIN_REASON_TAG;
}

void
fanin_engine_refused(struct fanin_engine *engine, unsigned int reason, uint32_t block)
{
	struct fanin_lane *lane = fanin_engine_lane(engine, block);
	struct fanin_extent extent;
	char posted[64];

	if (engine->config.recover && says_run_is_lost(reason)) {
		engine->run_lost = true;
		return;
	}
	/*
	 * This rank has sent no such block: another host has sent one in its name, or the network
	 * keeps packets for longer than numbers last.
	 */
	if (reason == FANIN_REASON_BLOCK_WINDOW &&
	    (lane->block != block || lane->state != FANIN_LANE_SENT)) {
		engine->stats.invalid++;
		return;
	}
	/* The usual refusal of late duplicates of finished blocks or of an earlier run. */
	if (reason == FANIN_REASON_BLOCK_STALE || reason == FANIN_REASON_EPOCH) {
		engine->stats.stale++;
		engine->stale_reason = reason;
		return;
	}
	if (lane->block == block && lane->request != NULL) {
		extent = fanin_request_extent(lane->request, lane->block);
		fanin_error_set(&engine->loop.error, 0, "the switch refused block %u (%s): %s",
				block, block_format(lane->request, &extent, posted, sizeof(posted)),
				fanin_reason_text(reason));
	} else {
		fanin_error_set(&engine->loop.error, 0, "the switch refused block %u: %s", block,
				fanin_reason_text(reason));
	}
	fanin_engine_fail(engine, FANIN_ERR_REFUSED);
}

/* Writes a shape on the wire in words. Returns "" if the shape is unknown. */
static const char *
wire_shape_format(uint64_t shape, char *text, size_t text_len)
{
	struct fanin_hdr hdr = { 0 };

	text[0] = '\0';
	if (fanin_shape_is_sparse(shape)) {
		snprintf(text, text_len, "%u indices %s %s", fanin_shape_span(shape),
			 fanin_dtype_name(shape & UINT8_MAX),
			 fanin_op_name(shape >> 8 & UINT8_MAX));
	} else if (shape != 0) {
		fanin_wire_set_shape(&hdr, shape);
		shape_format(hdr.dtype, hdr.op, hdr.root, hdr.count, text, text_len);
	}
	return text;
}

/*
 * Handles a mismatch: ranks disagree about a collective. The switch that found it tells all of
 * them, whichever rank's packet did not fit: the first packet to come decides what a block holds.
 */
static void
ranks_disagree(struct fanin_engine *engine, const struct fanin_mismatch *mismatch, uint32_t block)
{
	const struct fanin_lane *lane = fanin_engine_lane(engine, block);
	struct fanin_extent extent;
	char found[64], expected[64], posted[64];
	char whose[32] = "";
	char own[96] = "";

	wire_shape_format(mismatch->found, found, sizeof(found));
	wire_shape_format(mismatch->expected, expected, sizeof(expected));
	if (mismatch->rank != engine->config.rank && lane->block == block &&
	    lane->request != NULL) {
		extent = fanin_request_extent(lane->request, lane->block);
		snprintf(own, sizeof(own), "; this rank posted %s",
			 block_format(lane->request, &extent, posted, sizeof(posted)));
	}
	if (mismatch->rank != engine->config.rank)
		snprintf(whose, sizeof(whose), " of rank %u", mismatch->rank);
	fanin_error_set(&engine->loop.error, 0, "the switch refused block %u%s (%s): %s%s%s%s",
			block, whose, found, fanin_reason_text(FANIN_REASON_MISMATCH),
			expected[0] != '\0' ? ", which another rank began with " : "", expected,
			own);
	fanin_engine_fail(engine, FANIN_ERR_REFUSED);
}

/*
 * True if the frame is a valid packet of this job, from the switch that contributions are sent to.
 */
static bool
is_from_switch(const struct fanin_engine *engine, const struct fanin_frame *frame)
{
	const struct fanin_headers *headers = frame->data;

	return fanin_wire_validate(headers, frame->len) == FANIN_REASON_NONE &&
	       fanin_wire_comes_from(headers, engine->headers.eth.dst, engine->headers.ip.dst_be) &&
	       headers->fanin.job == engine->config.job &&
	       fanin_keys_fit_answer(&engine->config.keys, &headers->fanin);
}

void
fanin_engine_receive(struct fanin_loop *loop, const struct fanin_frame *frame)
{
	struct fanin_engine *engine = fanin_engine_of_loop(loop);
	struct fanin_frame opened;
	struct fanin_mismatch mismatch;
	const struct fanin_hdr *hdr;
	uint32_t block;

	if (engine->loop.status != FANIN_OK)
		return;
	engine->stats.frames_received++;
	if (engine->rules->take_frame != NULL) {
		engine->rules->take_frame(engine, frame);
		return;
	}
	if (__builtin_expect(engine->config.tagger != NULL, 0)) {
		/*
		 * Late packets of a switch's previous instance fail here, too, so not every failure
		 * is an attack.
		 */
		if (!fanin_engine_open_frame(engine, frame, &opened)) {
			engine->stats.invalid++;
			return;
		}
		frame = &opened;
	}
	hdr = &((const struct fanin_headers *)frame->data)->fanin;
	if (!is_from_switch(engine, frame)) {
		engine->stats.invalid++;
		return;
	}
	if (engine->config.tagger != NULL) {
		/* A refusal of the sender has no tag. */
		if (fanin_wire_refuses_sender(hdr)) {
			fanin_engine_refusal_suspect(engine, hdr->count);
			return;
		}
		fanin_engine_refusal_clear(engine, hdr);
	}
	/*
	 * Other ranks have noticed that the run is lost; this rank may have nothing to send that
	 * would show it.
	 */
	if (engine->config.recover && hdr->type == FANIN_TYPE_REFUSED && hdr->epoch == 0) {
		engine->run_lost = true;
		return;
	}
	if (hdr->epoch != engine->config.epoch) {
		engine->stats.invalid++;
		return;
	}

	block = hdr->block + engine->base;
	switch (hdr->type) {
	case FANIN_TYPE_RESULT:
		if (engine->rules->accepts_result == NULL ||
		    engine->rules->accepts_result(engine, block))
			fanin_engine_receive_result(engine, frame, block);
		break;
	case FANIN_TYPE_SPARSE_RESULT:
		fanin_engine_shards_receive(engine, frame, block);
		break;
	case FANIN_TYPE_ANSWER:
		engine->heard_ns = engine->loop.now_ns;
		fanin_engine_receive_answer(engine, frame, block);
		break;
	case FANIN_TYPE_REFUSED:
		if (hdr->count == FANIN_REASON_MISMATCH && fanin_mismatch_decode(hdr, &mismatch))
			ranks_disagree(engine, &mismatch, block);
		else
			fanin_engine_refused(engine, hdr->count, block);
		break;
	default:
		if (engine->rules->receive != NULL)
			engine->rules->receive(engine, frame, block);
		else
			engine->stats.invalid++;
		break;
	}
}

uint32_t
fanin_engine_copy_words(const struct fanin_engine *engine, const struct fanin_frame *frame,
			uint64_t *words, uint32_t n_max)
{
	const uint32_t len = fanin_wire_payload_len(frame->data);
	const uint32_t n = len / (uint32_t)sizeof(*words);

	if (len % sizeof(*words) != 0 || n > n_max ||
	    !fanin_frame_copy(engine->loop.transport, frame, FANIN_PAYLOAD_OFFSET, words, len))
		return 0;
	return n;
}
