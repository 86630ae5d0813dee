/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the switch sent: results, who is missing, refusals. A result counts for the lane whose block it is and for no other,
 * so duplicates and late ones change nothing. Called by the poll loop only.
 */
#include "engine_internal.h"

#include <stdio.h>
#include <string.h>

/* The request that a block belongs to, searched from one that lies before it; NULL if it is not posted. */
static struct fanin_request *
request_of(struct fanin_request *request, uint32_t block)
{
	while (request != NULL && block - request->first_block >= request->n_blocks)
		request = request->next;
	return request;
}

static void
request_finish(struct fanin_engine *engine, struct fanin_request *request)
{
	struct fanin_request **link = &engine->requests;

	while (*link != request)
		link = &(*link)->next;
	*link = request->next;
	if (request->next == NULL)
		engine->requests_tail = link;
	if (engine->kept != NULL)
		fanin_engine_keep_request(engine, request);
	request->next = NULL;
	request->status = FANIN_OK;
	if (request->whole != NULL && --request->whole->parts_left == 0)
		request->whole->status = FANIN_OK;
}

/* The lane waits for a block, which may be sent now if it is posted. */
static void
lane_go_on(struct fanin_engine *engine, struct fanin_lane *lane, struct fanin_request *from)
{
	struct fanin_request *request = request_of(from, lane->block);

	if (request != NULL)
		fanin_engine_queue(engine, lane, request);
}

/*
 * The lane's block is done: the lane goes on to the block one window further. Where runs can be taken up again, it does so
 * once all blocks before are done, too: that leaves fewer than W results beyond the oldest block, wherever it is.
 */
static void
lane_advance(struct fanin_engine *engine, struct fanin_lane *lane)
{
	struct fanin_request *request = lane->request;

	lane->block += engine->config.window;
	lane->state = FANIN_LANE_IDLE;
	lane->request = NULL;
	if (!engine->config.recover)
		lane_go_on(engine, lane, request);

	while (engine->oldest != engine->end) {
		struct fanin_lane *oldest = fanin_engine_lane(engine, engine->oldest);

		if (oldest->block == engine->oldest)
			break;
		engine->oldest++;
		if (engine->config.recover)
			lane_go_on(engine, oldest, engine->requests);
	}
	if (request != NULL && request->done_blocks == request->n_blocks)
		request_finish(engine, request);
}

static void
timers_note_result(struct fanin_engine *engine, const struct fanin_lane *lane)
{
	if (lane->transmissions == 1 && lane->sent_ns >= engine->resumed_ns &&
	    lane->sent_ns >= engine->overtaken_ns && lane->sent_ns >= engine->probed_ns)
		fanin_rtt_sample(&engine->rtt, lane->sent_ns, engine->now_ns);
	if (lane->transmissions == 1 && lane->sent_ns > engine->overtaken_ns)
		engine->overtaken_ns = lane->sent_ns;
	if (lane->transmissions > 1 && lane->sent_ns > engine->probed_ns)
		engine->probed_ns = lane->sent_ns;
	engine->progress_ns = engine->now_ns;
	engine->stale_reason = FANIN_REASON_NONE;
	engine->tx_errnum = 0;
	if (engine->overdue) {
		engine->overdue = false;
		engine->next_scan_ns = engine->now_ns;
	}
}

/*
 * A second result of a block: the switch repeats it for a contribution that it had already. If the block was sent again,
 * that was not needed, and its first result proves nothing about other blocks.
 */
static void
receive_duplicate(struct fanin_engine *engine, struct fanin_lane *lane, uint32_t block)
{
	engine->stats.duplicates++;
	if (block + engine->config.window != lane->block || !lane->resent_before)
		return;
	lane->resent_before = false;
	engine->probed_ns = 0;
	engine->stats.spurious++;
}

/* "10 elements f32 sum" or "10 elements f32 of rank 3": a block in words. */
static const char *
shape_format(unsigned int dtype, unsigned int op, uint32_t count, char *text, size_t text_len)
{
	if (fanin_op_is_copy(op))
		snprintf(text, text_len, "%u elements %s of rank %u", count,
			 fanin_dtype_name(dtype), op - FANIN_WIRE_COPY);
	else
		snprintf(text, text_len, "%u elements %s %s", count, fanin_dtype_name(dtype),
			 fanin_op_name(op));
	return text;
}

static const char *
block_format(const struct fanin_request *request, const struct fanin_extent *extent, char *text,
	     size_t text_len)
{
	return shape_format(request->dtype, extent->op, extent->len / request->element_bytes, text,
			    text_len);
}

/* The result is not that of the block which this rank posted, or nobody has brought data for it. */
static void
result_misfit(struct fanin_engine *engine, const struct fanin_request *request,
	      const struct fanin_extent *extent, const struct fanin_hdr *hdr, uint32_t block)
{
	char found[64], posted[64];

	block_format(request, extent, posted, sizeof(posted));
	if (fanin_wire_is_empty(hdr))
		fanin_error_set(&engine->error, 0, "no rank brought data for block %u (%s)", block,
				posted);
	else
		fanin_error_set(&engine->error, 0,
				"the result of block %u holds %s, but this rank posted %s", block,
				shape_format(hdr->dtype, hdr->op, hdr->count, found, sizeof(found)),
				posted);
	fanin_engine_fail(engine, FANIN_ERR_REFUSED);
}

/*
 * Takes what this rank keeps of a block's result, or may have to tell others (kept). Returns false if the frame is lost:
 * then it was as good as never received.
 */
static bool
result_keep(struct fanin_engine *engine, const struct fanin_request *request,
	    const struct fanin_extent *extent, uint32_t block, const struct fanin_frame *frame)
{
	const uint8_t *kept = NULL;
	uint64_t first = extent->offset;
	uint64_t end = extent->offset + extent->len;
	uint8_t *to;

	if (engine->kept != NULL && !fanin_request_keeps(request, extent)) {
		kept = fanin_engine_keep_result(engine, block, frame);
		if (kept == NULL)
			return false;
	}
	if (first < request->recv_offset)
		first = request->recv_offset;
	if (end > request->recv_offset + request->recv_bytes)
		end = request->recv_offset + request->recv_bytes;
	if (first >= end)
		return true;
	to = request->recv + (first - request->recv_offset);
	if (kept == NULL)
		return fanin_frame_copy(engine->transport, frame,
					FANIN_PAYLOAD_OFFSET + (uint32_t)(first - extent->offset),
					to, (uint32_t)(end - first));
	memcpy(to, kept + (first - extent->offset), end - first);
	return true;
}

/* A result that this rank knows has come back, so that all have it now. */
static void
receive_known(struct fanin_engine *engine, struct fanin_lane *lane)
{
	lane->known = false;
	engine->n_known--;
	timers_note_result(engine, lane);
	lane->resent_before = lane->transmissions > 1;
	lane_advance(engine, lane);
}

static void
receive_result(struct fanin_engine *engine, const struct fanin_frame *frame, uint32_t block)
{
	const struct fanin_headers *headers = frame->data;
	const struct fanin_hdr *hdr = &headers->fanin;
	struct fanin_lane *lane = fanin_engine_lane(engine, block);
	struct fanin_request *request = lane->request;
	struct fanin_extent extent;

	if (hdr->contributions != engine->config.size) {
		engine->stats.invalid++;
		return;
	}
	if (lane->block != block || lane->state != FANIN_LANE_SENT) {
		if (fanin_block_before(block, lane->block))
			receive_duplicate(engine, lane, block);
		else
			engine->stats.invalid++;
		return;
	}
	if (lane->known) {
		receive_known(engine, lane);
		return;
	}
	/* Not by the packet's number: that memory may be shared with whoever sent it. */
	extent = fanin_request_extent(request, lane->block);
	if (hdr->dtype != request->dtype || hdr->op != extent.op ||
	    fanin_wire_payload_len(headers) != extent.len) {
		result_misfit(engine, request, &extent, hdr, block);
		return;
	}

	if (!result_keep(engine, request, &extent, lane->block, frame)) {
		engine->stats.invalid++;
		return;
	}
	/* It comes a second time, and the first one never came. */
	if ((hdr->flags & FANIN_FLAG_REPEAT) != 0)
		fanin_rtt_note_loss(&engine->rtt, engine->now_ns);
	request->done_blocks++;
	request->done_bytes += extent.len;
	engine->stats.blocks++;
	if (fanin_request_brings(request, &extent))
		engine->stats.bytes_reduced += extent.len;
	timers_note_result(engine, lane);
	lane->resent_before = lane->transmissions > 1;
	lane_advance(engine, lane);
}

/* The contribution has arrived and others are missing: no hurry to send it again. */
static void
receive_pending(struct fanin_engine *engine, const struct fanin_hdr *hdr, uint32_t block)
{
	struct fanin_lane *lane = fanin_engine_lane(engine, block);
	uint64_t wait_ns;

	engine->stats.pendings++;
	if (lane->block != block || lane->state != FANIN_LANE_SENT)
		return;
	lane->members = hdr->members;
	lane->pending_ns = engine->now_ns;
	lane->suspect = false;
	/* However many of them come: others' repetitions bring them, too. */
	wait_ns = 2 * fanin_engine_patience_ns(engine, lane);
	lane->deadline_ns = engine->now_ns +
			    (wait_ns < engine->rtt.rto_max_ns ? wait_ns : engine->rtt.rto_max_ns);
}

/* Is the run over for the switch: it was restarted, or the job was made anew? */
static bool
says_run_is_lost(unsigned int reason)
{
	return reason == FANIN_REASON_JOB || reason == FANIN_REASON_EPOCH ||
	       reason == FANIN_REASON_NOT_ACTIVE;
}

static void
receive_refused(struct fanin_engine *engine, const struct fanin_hdr *hdr, uint32_t block)
{
	struct fanin_lane *lane = fanin_engine_lane(engine, block);
	unsigned int reason = hdr->count;
	struct fanin_extent extent;
	char posted[64];

	if (engine->config.recover && says_run_is_lost(reason)) {
		engine->run_lost = true;
		return;
	}
	/* Late duplicates of finished blocks or of an earlier run are answered like this. */
	if (reason == FANIN_REASON_BLOCK_STALE || reason == FANIN_REASON_EPOCH) {
		engine->stats.stale++;
		engine->stale_reason = reason;
		return;
	}
	if (lane->block == block && lane->request != NULL) {
		extent = fanin_request_extent(lane->request, lane->block);
		fanin_error_set(&engine->error, 0, "the switch refused block %u (%s): %s", block,
				block_format(lane->request, &extent, posted, sizeof(posted)),
				fanin_reason_text(reason));
	} else {
		fanin_error_set(&engine->error, 0, "the switch refused block %u: %s", block,
				fanin_reason_text(reason));
	}
	fanin_engine_fail(engine, FANIN_ERR_REFUSED);
}

void
fanin_engine_receive(struct fanin_engine *engine, const struct fanin_frame *frame)
{
	const struct fanin_headers *headers = frame->data;
	const struct fanin_hdr *hdr = &headers->fanin;
	uint32_t block;

	if (engine->status != FANIN_OK)
		return;
	engine->stats.frames_received++;
	if (fanin_wire_validate(headers, frame->len) != FANIN_REASON_NONE ||
	    hdr->job != engine->config.job || hdr->key != engine->config.key) {
		engine->stats.invalid++;
		return;
	}
	/* Others have noticed that the run is lost, and this rank has nothing to send that would show it. */
	if (engine->config.recover && hdr->type == FANIN_TYPE_REFUSED && hdr->epoch == 0) {
		engine->run_lost = true;
		return;
	}
	if (hdr->epoch != engine->config.epoch) {
		engine->stats.invalid++;
		return;
	}

	engine->heard_ns = engine->now_ns;
	block = hdr->block + engine->base;
	switch (hdr->type) {
	case FANIN_TYPE_RESULT:
		receive_result(engine, frame, block);
		break;
	case FANIN_TYPE_PENDING:
		receive_pending(engine, hdr, block);
		break;
	case FANIN_TYPE_REFUSED:
		receive_refused(engine, hdr, block);
		break;
	default:
		engine->stats.invalid++;
		break;
	}
}
