/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Canary: what comes in. A result counts only for the lane that has its block and waits, so duplicates and late ones change nothing. Called by the poll loop
 * only.
 */
#include "canary_internal.h"

/* ------------------------------------------------------------------ results */

/*
 * Copies what this rank keeps of a result. Returns false if the frame is lost: it is then treated as never received.
 */
static bool
result_keep(struct fanin_canary *engine, const struct canary_lane *lane,
	    const struct fanin_extent *extent, const struct fanin_frame *frame, const uint8_t *data)
{
	const struct fanin_kept kept = fanin_request_kept(lane->request, extent);

	if (kept.len == 0)
		return true;
	if (data == NULL)
		return fanin_frame_copy(engine->loop.transport, frame,
					FANIN_PAYLOAD_OFFSET + kept.skip, kept.to, kept.len);
	memcpy(kept.to, data + kept.skip, kept.len);
	return true;
}

/* A block has a result: those before it that have none are overtaken, from the first time on. */
static void
note_overtaken(struct fanin_canary *engine, uint32_t block)
{
	if (!fanin_block_before(engine->newest, block))
		return;
	for (uint32_t i = engine->newest + 1; i != block; i++) {
		struct canary_lane *lane = canary_lane(engine, i);

		if (!fanin_block_before(i, engine->oldest) && lane->state == CANARY_LANE_SENT) {
			lane->overtaken_ns = engine->loop.now_ns;
			fanin_loop_wake_by(&engine->loop,
					   engine->loop.now_ns + fanin_canary_usual_ns(engine));
		}
	}
	engine->newest = block;
}

/*
 * Has a block taken longer than others? Before there is a sample nothing says how much longer it may take, nor do others if switches wait for long.
 */
static bool
may_be_lost(const struct fanin_canary *engine, const struct canary_lane *lane)
{
	const struct fanin_rtt *times = &engine->block_time;

	return times->smoothed_ns != 0 &&
	       engine->loop.now_ns - lane->sent_ns >=
		       times->smoothed_ns + 4 * times->variance_ns + engine->fixed_ns;
}

void
fanin_canary_note_duplicate(struct fanin_canary *engine, uint32_t block)
{
	engine->stats.duplicates++;
	for (unsigned int i = 0; i < CANARY_GAP_BLOCKS; i++) {
		struct canary_gap *gap = &engine->gap_blocks[i];

		if (gap->is_open && gap->block == block) {
			gap->is_open = false;
			engine->gap_vain++;
		}
	}
}

static void
gap_note_asked(struct fanin_canary *engine, uint32_t block)
{
	engine->gap_blocks[engine->gap_next++ % CANARY_GAP_BLOCKS] =
		(struct canary_gap){ .block = block, .is_open = true };
	engine->gap_asked++;
}

/* A window has passed. */
static void
gap_adapt(struct fanin_canary *engine)
{
	if (engine->oldest - engine->gap_block < engine->config.window)
		return;
	if (engine->gap_vain * CANARY_GAP_VAIN > engine->gap_asked) {
		engine->gap = 2 * engine->gap < CANARY_GAP_MOST ? 2 * engine->gap : CANARY_GAP_MOST;
		engine->gap_windows = 0;
	} else if (++engine->gap_windows == CANARY_GAP_WINDOWS) {
		engine->gap = engine->gap / 2 > CANARY_GAP ? engine->gap / 2 : CANARY_GAP;
		engine->gap_windows = 0;
	}
	engine->gap_block = engine->oldest;
	engine->gap_asked = 0;
	engine->gap_vain = 0;
}

/* Counts the later results of the same leader for blocks that lack theirs: after some of them one is lost rather than late. */
static void
check_gaps(struct fanin_canary *engine, uint32_t block)
{
	const uint32_t n = engine->config.size;

	/* None if it was the oldest one itself. */
	if (fanin_block_before(block, engine->oldest))
		return;
	for (uint32_t k = 1; k <= (block - engine->oldest) / n; k++) {
		const uint32_t before = block - k * n;
		struct canary_lane *lane = canary_lane(engine, before);

		if (lane->state != CANARY_LANE_SENT || ++lane->n_later < engine->gap ||
		    lane->asked || !may_be_lost(engine, lane))
			continue;
		gap_note_asked(engine, before);
		fanin_canary_lane_ask(engine, lane);
	}
}

/*
 * Learns how long blocks take, but for those whose time is unknown, or that others are known to have been late for. What others had lost may have taken the time, or
 * their windows may have been full for that: a block does not count for more than a round trip and all timers on the way, or losses would make all ranks wait
 * longer and longer before they ask.
 */
static void
note_time(struct fanin_canary *engine, const struct canary_lane *lane)
{
	const uint64_t most_ns = engine->rtt.rto_ns + engine->timers_ns;
	struct fanin_cc_sample sample = {
		.now_ns = engine->loop.now_ns,
		.delay_ns = engine->loop.now_ns - lane->sent_ns,
		.block = lane->block,
		.generation = lane->generation,
	};

	if (lane->resent || lane->sent_ns < engine->loop.resumed_ns ||
	    lane->sent_ns <= engine->late_ns || canary_leads(engine, lane->block))
		return;
	if (sample.delay_ns > most_ns)
		sample.delay_ns = most_ns;
	fanin_rtt_sample(&engine->block_time, sample.delay_ns);
	if (!lane->asked)
		engine->cc.type->on_delay(&engine->cc, &sample);
}

static void
advance(struct fanin_canary *engine)
{
	const uint32_t before = engine->oldest;

	while (engine->oldest != engine->next &&
	       canary_lane(engine, engine->oldest)->state == CANARY_LANE_DONE)
		engine->oldest++;
	if (engine->oldest == before)
		return;
	gap_adapt(engine);
	engine->oldest_ns = engine->loop.now_ns;
	fanin_loop_wake_by(&engine->loop, engine->loop.now_ns + fanin_canary_usual_ns(engine));
}

/* The result does not fit what this rank posted. */
static void
result_misfit(struct fanin_canary *engine, uint32_t block, const struct fanin_hdr *hdr)
{
	if (fanin_wire_is_empty(hdr))
		fanin_error_set(&engine->loop.error, 0, "no rank brought data for block %u", block);
	else
		fanin_error_set(
			&engine->loop.error, 0,
			"the result of block %u holds %u elements %s %s, which is not what this rank posted",
			block, hdr->count, fanin_dtype_name(hdr->dtype), fanin_op_name(hdr->op));
	fanin_canary_fail(engine, FANIN_ERR_REFUSED);
}

void
fanin_canary_take_result(struct fanin_canary *engine, struct canary_lane *lane,
			 const struct fanin_hdr *hdr, const struct fanin_frame *frame,
			 const uint8_t *data)
{
	struct fanin_request *request = lane->request;
	const struct fanin_extent extent = fanin_request_extent(request, lane->block);
	const uint32_t block = lane->block;
	struct fanin_hdr posted = { 0 };
	uint32_t len;

	(void)fanin_canary_data(lane, &posted, &len);
	if (fanin_wire_shape(hdr) != fanin_wire_shape(&posted) || fanin_wire_is_empty(hdr)) {
		result_misfit(engine, block, hdr);
		return;
	}
	if (!result_keep(engine, lane, &extent, frame, data)) {
		engine->stats.invalid++;
		return;
	}
	lane->state = CANARY_LANE_DONE;
	engine->in_flight--;
	engine->progress_ns = engine->loop.now_ns;
	engine->loop.tx_errnum = 0;
	engine->stats.blocks++;
	engine->stats.bytes_reduced += extent.len;
	note_time(engine, lane);
	note_overtaken(engine, block);
	advance(engine);
	check_gaps(engine, block);
	if (!engine->started && block == 0)
		engine->started = true;
	request->done_bytes += extent.len;
	if (++request->done_blocks == request->n_blocks)
		fanin_request_list_finish(&engine->loop.requests, request);
}

/* The answer to a QUERY of this number has come: a round trip. 0: to none. */
static void
note_answer(struct fanin_canary *engine, uint64_t number)
{
	struct canary_question *question = &engine->questions[number % CANARY_QUESTIONS];

	if (number == 0 || question->number != number)
		return;
	if (question->sent_ns >= engine->loop.resumed_ns)
		fanin_rtt_sample(&engine->rtt, engine->loop.now_ns - question->sent_ns);
	question->number = 0;
}

static void
receive_result(struct fanin_canary *engine, const struct fanin_frame *frame)
{
	const struct fanin_hdr *hdr = &((const struct fanin_headers *)frame->data)->fanin;
	struct canary_lane *lane = canary_lane(engine, hdr->block);
	const uint16_t leader = canary_leader_of(engine, hdr->block);

	if (leader == engine->config.rank) {
		engine->stats.invalid++;
		return;
	}
	/* A RESULT is its leaf's. */
	fanin_canary_hear_from(engine, leader, frame->data);
	if (hdr->type == FANIN_TYPE_REPEAT)
		note_answer(engine, hdr->members);
	if (lane->block != hdr->block || lane->state != CANARY_LANE_SENT) {
		fanin_canary_note_duplicate(engine, hdr->block);
		return;
	}
	if (hdr->type == FANIN_TYPE_REPEAT) {
		lane->resent = true;
		engine->cc.type->on_loss(&engine->cc, engine->loop.now_ns);
	}
	fanin_canary_take_result(engine, lane, hdr, frame, NULL);
}

/* ------------------------------------------------------------------ what leaders say */

/*
 * A leader lacks this rank's data: sends it past all descriptors, if it was sent longer ago than blocks usually take, and not again since. Returns false if it
 * was not.
 */
static bool
data_resend(struct fanin_canary *engine, struct canary_lane *lane)
{
	uint64_t usual_ns = engine->block_time.smoothed_ns;

	if (usual_ns < engine->rtt.smoothed_ns)
		usual_ns = engine->rtt.smoothed_ns;
	if (engine->loop.now_ns - lane->sent_ns < usual_ns)
		return false;
	if (lane->direct_ns != 0 && engine->loop.now_ns - lane->direct_ns < usual_ns / 2)
		return true;
	if (!lane->resent)
		engine->cc.type->on_loss(&engine->cc, engine->loop.now_ns);
	lane->resent = true;
	if (fanin_canary_send_data(engine, lane, true)) {
		lane->direct_ns = engine->loop.now_ns;
		engine->stats.retransmits++;
	}
	return true;
}

static void
receive_ask(struct fanin_canary *engine, const struct fanin_headers *asked)
{
	const struct canary_packet packet = { .flow = (uint32_t)engine->stats.frames_sent,
					      .is_reply = true };
	const struct fanin_hdr *hdr = &asked->fanin;
	const uint16_t leader = canary_leader_of(engine, hdr->block);
	struct canary_lane *lane = canary_lane(engine, hdr->block);
	struct fanin_headers headers;

	if (leader == engine->config.rank || (hdr->members >> engine->config.rank & 1) == 0) {
		engine->stats.invalid++;
		return;
	}
	fanin_canary_hear_from(engine, leader, asked);
	if (lane->block == hdr->block && lane->state == CANARY_LANE_SENT && data_resend(engine, lane))
		return;
	fanin_canary_begin(engine, FANIN_TYPE_HERE, hdr->block, &headers);
	(void)fanin_canary_send_to(engine, &headers, leader, &packet);
}

static void
end_by_gone(struct fanin_canary *engine, uint32_t block, uint64_t gone)
{
	const struct fanin_ranks set = fanin_ranks_of_word(gone);
	char text[FANIN_ABSENCE_LEN];

	fanin_canary_note_end(engine, FANIN_RUN_GONE, gone);
	fanin_error_set(&engine->loop.error, 0, "block %u waits for %s, as another rank says", block,
			fanin_format_absence(&set, engine->config.size, &set, FANIN_RANKS_SILENT,
					     text));
	engine->loop.error.missing = set;
	fanin_canary_fail(engine, FANIN_ERR_TIMEOUT);
}

static void
receive_answer(struct fanin_canary *engine, const struct fanin_frame *frame)
{
	const struct fanin_hdr *hdr = &((const struct fanin_headers *)frame->data)->fanin;
	const uint16_t leader = canary_leader_of(engine, hdr->block);
	struct canary_lane *lane = canary_lane(engine, hdr->block);
	uint64_t sets[2], missing, ended, silent;

	if (leader == engine->config.rank ||
	    frame->len < FANIN_PAYLOAD_OFFSET + sizeof(struct fanin_answer_body) + sizeof(sets) ||
	    !fanin_frame_copy(engine->loop.transport, frame,
			      FANIN_PAYLOAD_OFFSET + sizeof(struct fanin_answer_body), sets,
			      sizeof(sets))) {
		engine->stats.invalid++;
		return;
	}
	fanin_canary_hear_from(engine, leader, frame->data);
	note_answer(engine, hdr->number);
	fanin_answer_decode_word(sets[0] & engine->all, sets[1] & engine->all, &missing, &ended,
				 &silent);
	if ((ended | silent) != 0) {
		end_by_gone(engine, hdr->block, ended | silent);
		return;
	}
	if (hdr->count == FANIN_BLOCK_ABSENT) {
		fanin_canary_note_end(engine, FANIN_RUN_MISMATCH, missing);
		fanin_canary_end_mismatch(engine, hdr->block, missing);
		return;
	}
	if (lane->block != hdr->block || lane->state != CANARY_LANE_SENT)
		return;
	if (hdr->count == FANIN_BLOCK_DONE) {
		/* The result is on its way to all ranks: a round trip from now it should be here. */
		lane->ask_ns = engine->loop.now_ns + engine->rtt.rto_ns;
		lane->ask_wait_ns = 0;
		fanin_loop_wake_by(&engine->loop, lane->ask_ns);
		return;
	}
	engine->told_block = hdr->block;
	engine->told = missing;
	/* That this rank's own data is missing does not mean that others are late. */
	if ((missing & engine->others) != 0)
		engine->late_ns = engine->loop.now_ns;
	/* As if the leader had asked for it: that may be lost. */
	if ((missing & ~engine->others) != 0)
		(void)data_resend(engine, lane);
}

/* A rank is there, but has not sent a block that this one leads. */
static void
receive_here(struct fanin_canary *engine, const struct fanin_headers *headers)
{
	const struct fanin_hdr *hdr = &headers->fanin;

	if (hdr->rank >= engine->config.size || !canary_leads(engine, hdr->block)) {
		engine->stats.invalid++;
		return;
	}
	fanin_canary_hear_from(engine, hdr->rank, headers);
	if (canary_lane(engine, hdr->block)->block == hdr->block &&
	    canary_lane(engine, hdr->block)->state == CANARY_LANE_SENT &&
	    (fanin_canary_lacks(engine, hdr->block) >> hdr->rank & 1) != 0)
		engine->late_ns = engine->loop.now_ns;
}

/* ------------------------------------------------------------------ receiving */

bool
fanin_canary_admits(const struct fanin_canary *engine, const struct fanin_frame *frame)
{
	const struct fanin_headers *headers = frame->data;
	const struct fanin_hdr *hdr = &headers->fanin;
	const struct fanin_keys *keys = &engine->config.keys;

	return fanin_wire_validate(headers, frame->len) == FANIN_REASON_NONE &&
	       hdr->job == engine->config.job &&
	       hdr->key == (fanin_type_direction(hdr->type) == FANIN_UP ? keys->up : keys->down);
}

static void
receive_in_run(struct fanin_canary *engine, const struct fanin_frame *frame)
{
	const struct fanin_hdr *hdr = &((const struct fanin_headers *)frame->data)->fanin;

	switch (hdr->type) {
	case FANIN_TYPE_RESULT:
	case FANIN_TYPE_REPEAT:
		receive_result(engine, frame);
		break;
	case FANIN_TYPE_REDUCE:
		fanin_canary_receive_data(engine, frame);
		break;
	case FANIN_TYPE_ASK:
		receive_ask(engine, frame->data);
		break;
	case FANIN_TYPE_HERE:
		receive_here(engine, frame->data);
		break;
	case FANIN_TYPE_QUERY:
		fanin_canary_receive_query(engine, frame->data);
		break;
	case FANIN_TYPE_ANSWER:
		receive_answer(engine, frame);
		break;
	case FANIN_TYPE_BYE:
		fanin_canary_receive_bye(engine, hdr);
		break;
	default:
		engine->stats.invalid++;
		break;
	}
}

void
fanin_canary_receive(struct fanin_loop *loop, const struct fanin_frame *frame)
{
	struct fanin_canary *engine = canary_of_loop(loop);
	const struct fanin_hdr *hdr = &((const struct fanin_headers *)frame->data)->fanin;

	if (loop->status != FANIN_OK)
		return;
	engine->stats.frames_received++;
	if (!fanin_canary_admits(engine, frame)) {
		engine->stats.invalid++;
		return;
	}
	fanin_canary_hear_way(engine, frame->data);
	if (hdr->type == FANIN_TYPE_CALL)
		fanin_canary_receive_call(engine, frame);
	else if (hdr->type == FANIN_TYPE_ROLL)
		fanin_canary_receive_roll(engine, frame);
	else if (engine->begun && hdr->epoch == engine->run)
		receive_in_run(engine, frame);
	else if (!engine->begun && engine->config.rank != 0)
		/* Others have begun: the ROLL that said so is lost. */
		fanin_canary_call_soon(engine);
	else
		engine->stats.invalid++;
}
