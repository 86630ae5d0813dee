/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Canary's receiving side. A result counts only for a lane that holds its block and waits for it,
 * so duplicates and late results change nothing. Called by the poll loop only.
 */
#include "canary_internal.h"

/* ------------------------------------------------------------------ results */

/* A block has a result: notes when earlier blocks without one were first overtaken. */
static void
note_overtaken(struct fanin_canary *canary, uint32_t block)
{
	if (!fanin_block_before(canary->newest_done, block))
		return;
	for (uint32_t i = canary->newest_done + 1; i != block; i++) {
		if (!fanin_block_before(i, canary->engine.oldest) && canary_waits(canary, i)) {
			canary_lane(canary, i)->overtaken_ns = canary->engine.loop.now_ns;
			fanin_loop_wake_by(&canary->engine.loop,
					   canary->engine.loop.now_ns +
						   fanin_canary_usual_ns(canary));
		}
	}
	canary->newest_done = block;
}

/*
 * True if a block has taken longer than others. Without a sample, or if switches wait for long,
 * there is nothing to compare with.
 */
static bool
may_be_lost(const struct fanin_canary *canary, uint32_t block)
{
	const struct fanin_rtt *times = &canary->engine.block_time;

	return times->smoothed_ns != 0 &&
	       canary->engine.loop.now_ns - fanin_engine_lane(&canary->engine, block)->sent_ns >=
		       times->smoothed_ns + 4 * times->variance_ns + canary->fixed_ns;
}

void
fanin_canary_note_duplicate(struct fanin_canary *canary, uint32_t block)
{
	canary->engine.stats.duplicates++;
	for (unsigned int i = 0; i < CANARY_GAP_BLOCKS; i++) {
		struct canary_gap *gap = &canary->gap_blocks[i];

		if (gap->is_open && gap->block == block) {
			gap->is_open = false;
			canary->gap_vain++;
		}
	}
}

static void
gap_note_asked(struct fanin_canary *canary, uint32_t block)
{
	canary->gap_blocks[canary->gap_next++ % CANARY_GAP_BLOCKS] =
		(struct canary_gap){ .block = block, .is_open = true };
	canary->gap_asked++;
}

/* Ends a window. */
static void
gap_adapt(struct fanin_canary *canary)
{
	if (canary->engine.oldest - canary->gap_block < canary->engine.config.window)
		return;
	if (canary->gap_vain * CANARY_GAP_VAIN > canary->gap_asked) {
		canary->gap = 2 * canary->gap < CANARY_GAP_MAX ? 2 * canary->gap : CANARY_GAP_MAX;
		canary->gap_windows = 0;
	} else if (++canary->gap_windows == CANARY_GAP_WINDOWS) {
		canary->gap = canary->gap / 2 > CANARY_GAP ? canary->gap / 2 : CANARY_GAP;
		canary->gap_windows = 0;
	}
	canary->gap_block = canary->engine.oldest;
	canary->gap_asked = 0;
	canary->gap_vain = 0;
}

/*
 * Counts later results of the same leader for blocks that lack theirs. After enough of them a
 * result counts as lost rather than late.
 */
static void
check_gaps(struct fanin_canary *canary, uint32_t block)
{
	const uint32_t n = canary->engine.config.size;

	/* None, if it was the oldest block itself. */
	if (fanin_block_before(block, canary->engine.oldest))
		return;
	for (uint32_t k = 1; k <= (block - canary->engine.oldest) / n; k++) {
		const uint32_t before = block - k * n;

		if (!canary_waits(canary, before) ||
		    ++canary_lane(canary, before)->n_later < canary->gap ||
		    fanin_engine_lane(&canary->engine, before)->asked ||
		    !may_be_lost(canary, before))
			continue;
		gap_note_asked(canary, before);
		fanin_canary_block_ask(canary, before);
	}
}

/*
 * Learns how long blocks take, except blocks whose time is unknown or for which others were late.
 * Losses or full windows of other ranks may have lengthened a block's time, so it counts up to a
 * round trip and all timers on the way. Otherwise losses would make all ranks wait longer and
 * longer before they ask.
 */
static void
note_time(struct fanin_canary *canary, const struct fanin_lane *lane)
{
	const uint64_t max_ns = canary->engine.rtt.rto_ns + canary->timers_ns;
	struct fanin_cc_sample sample = {
		.now_ns = canary->engine.loop.now_ns,
		.delay_ns = canary->engine.loop.now_ns - lane->sent_ns,
		.block = lane->block,
		.generation = lane->generation,
	};

	if (canary_lane(canary, lane->block)->resent ||
	    lane->sent_ns < canary->engine.loop.resumed_ns ||
	    lane->sent_ns <= canary->engine.late_answer_ns || canary_leads(canary, lane->block))
		return;
	if (sample.delay_ns > max_ns)
		sample.delay_ns = max_ns;
	fanin_rtt_sample(&canary->engine.block_time, sample.delay_ns);
	if (!lane->asked)
		canary->engine.cc.type->on_delay(&canary->engine.cc, &sample);
}

void
fanin_canary_learn(struct fanin_engine *engine, const struct fanin_lane *lane)
{
	struct fanin_canary *canary = canary_of(engine);

	canary->in_flight--;
	note_time(canary, lane);
	note_overtaken(canary, lane->block);
}

void
fanin_canary_finish(struct fanin_engine *engine, uint32_t block)
{
	struct fanin_canary *canary = canary_of(engine);

	if (canary->oldest != engine->oldest) {
		canary->oldest = engine->oldest;
		gap_adapt(canary);
		canary->oldest_ns = engine->loop.now_ns;
		fanin_loop_wake_by(&engine->loop,
				   engine->loop.now_ns + fanin_canary_usual_ns(canary));
	}
	check_gaps(canary, block);
	/* Block 0 is sent first, so all ranks have begun. */
	canary->started = true;
}

/* The answer to the QUERY of this number has come: measures the round trip. 0: no QUERY. */
static void
note_answer(struct fanin_canary *canary, uint64_t number)
{
	struct canary_question *question = &canary->questions[number % CANARY_QUESTIONS];

	if (number == 0 || question->number != number)
		return;
	if (question->sent_ns >= canary->engine.loop.resumed_ns)
		fanin_rtt_sample(&canary->engine.rtt,
				 canary->engine.loop.now_ns - question->sent_ns);
	question->number = 0;
}

static void
receive_result(struct fanin_canary *canary, const struct fanin_frame *frame)
{
	struct fanin_engine *engine = &canary->engine;
	const struct fanin_hdr *hdr = &((const struct fanin_headers *)frame->data)->fanin;
	const uint32_t block = hdr->block;
	const uint16_t leader = canary_leader_of(canary, block);

	if (leader == engine->config.rank) {
		engine->stats.invalid++;
		return;
	}
	/* A RESULT comes from its leaf. */
	fanin_canary_hear_from(canary, leader, frame->data);
	if (hdr->type == FANIN_TYPE_REPEAT)
		note_answer(canary, hdr->members);
	if (!canary_waits(canary, block)) {
		fanin_canary_note_duplicate(canary, block);
		return;
	}
	if (hdr->type == FANIN_TYPE_REPEAT) {
		canary_lane(canary, block)->resent = true;
		engine->cc.type->on_loss(&engine->cc, engine->loop.now_ns);
	}
	fanin_engine_receive_result(engine, frame, block);
}

/* ------------------------------------------------------------------ what leaders say */

/*
 * The leader lacks this rank's data: sends it past all descriptors. Sends only if the data was last
 * sent longer ago than blocks usually take. Returns false if it did not send.
 */
static bool
data_resend(struct fanin_canary *canary, uint32_t block)
{
	const uint64_t sent_ns = fanin_engine_lane(&canary->engine, block)->sent_ns;
	struct canary_lane *own = canary_lane(canary, block);
	uint64_t usual_ns = canary->engine.block_time.smoothed_ns;

	if (usual_ns < canary->engine.rtt.smoothed_ns)
		usual_ns = canary->engine.rtt.smoothed_ns;
	if (canary->engine.loop.now_ns - sent_ns < usual_ns)
		return false;
	if (own->direct_ns != 0 && canary->engine.loop.now_ns - own->direct_ns < usual_ns / 2)
		return true;
	if (!own->resent)
		canary->engine.cc.type->on_loss(&canary->engine.cc, canary->engine.loop.now_ns);
	own->resent = true;
	if (fanin_canary_send_data(canary, block, true)) {
		own->direct_ns = canary->engine.loop.now_ns;
		canary->engine.stats.retransmits++;
	}
	return true;
}

static void
receive_ask(struct fanin_canary *canary, const struct fanin_headers *asked)
{
	const struct canary_packet packet = { .flow = (uint32_t)canary->engine.stats.frames_sent,
					      .is_reply = true };
	const struct fanin_hdr *hdr = &asked->fanin;
	const uint32_t block = hdr->block;
	const uint16_t leader = canary_leader_of(canary, block);
	struct fanin_headers headers;

	if (leader == canary->engine.config.rank ||
	    (hdr->members >> canary->engine.config.rank & 1) == 0) {
		canary->engine.stats.invalid++;
		return;
	}
	fanin_canary_hear_from(canary, leader, asked);
	if (canary_waits(canary, block) && data_resend(canary, block))
		return;
	fanin_canary_begin(canary, FANIN_TYPE_HERE, block, &headers);
	(void)fanin_canary_send_to(canary, &headers, leader, &packet);
}

static void
receive_answer(struct fanin_canary *canary, const struct fanin_frame *frame)
{
	const struct fanin_hdr *hdr = &((const struct fanin_headers *)frame->data)->fanin;
	const uint32_t block = hdr->block;
	const uint16_t leader = canary_leader_of(canary, block);
	struct fanin_lane *lane = fanin_engine_lane(&canary->engine, block);
	uint64_t sets[2], missing, ended, silent;

	if (leader == canary->engine.config.rank ||
	    frame->len < FANIN_PAYLOAD_OFFSET + sizeof(struct fanin_answer_body) + sizeof(sets) ||
	    !fanin_frame_copy(canary->engine.loop.transport, frame,
			      FANIN_PAYLOAD_OFFSET + sizeof(struct fanin_answer_body), sets,
			      sizeof(sets))) {
		canary->engine.stats.invalid++;
		return;
	}
	fanin_canary_hear_from(canary, leader, frame->data);
	note_answer(canary, hdr->number);
	fanin_answer_decode_word(sets[0] & canary->all, sets[1] & canary->all, &missing, &ended,
				 &silent);
	if ((ended | silent) != 0) {
		fanin_run_end_fail(&canary->engine, block, FANIN_RUN_GONE, ended | silent);
		return;
	}
	if (hdr->count == FANIN_BLOCK_ABSENT) {
		fanin_run_end_fail(&canary->engine, block, FANIN_RUN_MISMATCH, missing);
		return;
	}
	if (!canary_waits(canary, block))
		return;
	if (hdr->count == FANIN_BLOCK_DONE) {
		/* The result is on its way to all ranks and should arrive within a round trip. */
		lane->ask_ns = canary->engine.loop.now_ns + canary->engine.rtt.rto_ns;
		lane->ask_wait_ns = 0;
		fanin_loop_wake_by(&canary->engine.loop, lane->ask_ns);
		return;
	}
	canary->told_block = block;
	canary->told = missing;
	/* If only this rank's own data is missing, the others are not known to be late. */
	if ((missing & canary->others) != 0)
		canary->engine.late_answer_ns = canary->engine.loop.now_ns;
	/* Sends the data as if the leader's ASK had arrived, because the ASK may be lost. */
	if ((missing & ~canary->others) != 0)
		(void)data_resend(canary, block);
}

/* Handles HERE: the rank is alive, but has not sent a block that this rank leads. */
static void
receive_here(struct fanin_canary *canary, const struct fanin_headers *headers)
{
	const struct fanin_hdr *hdr = &headers->fanin;
	const uint32_t block = hdr->block;

	if (hdr->rank >= canary->engine.config.size || !canary_leads(canary, block)) {
		canary->engine.stats.invalid++;
		return;
	}
	fanin_canary_hear_from(canary, hdr->rank, headers);
	if (canary_waits(canary, block) &&
	    (fanin_canary_lacks(canary, block) >> hdr->rank & 1) != 0)
		canary->engine.late_answer_ns = canary->engine.loop.now_ns;
}

/* ------------------------------------------------------------------ receiving */

/* Handles a valid packet of the job, of any run. */
static bool
admits(const struct fanin_canary *canary, const struct fanin_frame *frame)
{
	const struct fanin_headers *headers = frame->data;
	const struct fanin_hdr *hdr = &headers->fanin;
	const struct fanin_keys *keys = &canary->engine.config.keys;

	return fanin_wire_validate(headers, frame->len) == FANIN_REASON_NONE &&
	       hdr->job == canary->engine.config.job &&
	       hdr->key == (fanin_type_direction(hdr->type) == FANIN_UP ? keys->up : keys->down);
}

static void
receive_in_run(struct fanin_canary *canary, const struct fanin_frame *frame)
{
	const struct fanin_hdr *hdr = &((const struct fanin_headers *)frame->data)->fanin;

	switch (hdr->type) {
	case FANIN_TYPE_RESULT:
	case FANIN_TYPE_REPEAT:
		receive_result(canary, frame);
		break;
	case FANIN_TYPE_REDUCE:
		fanin_canary_receive_data(canary, frame);
		break;
	case FANIN_TYPE_ASK:
		receive_ask(canary, frame->data);
		break;
	case FANIN_TYPE_HERE:
		receive_here(canary, frame->data);
		break;
	case FANIN_TYPE_QUERY:
		fanin_canary_receive_query(canary, frame->data);
		break;
	case FANIN_TYPE_ANSWER:
		receive_answer(canary, frame);
		break;
	case FANIN_TYPE_BYE:
		fanin_canary_receive_bye(canary, hdr);
		break;
	default:
		canary->engine.stats.invalid++;
		break;
	}
}

void
fanin_canary_receive(struct fanin_engine *engine, const struct fanin_frame *frame)
{
	struct fanin_canary *canary = canary_of(engine);
	const struct fanin_hdr *hdr = &((const struct fanin_headers *)frame->data)->fanin;

	if (!admits(canary, frame)) {
		canary->engine.stats.invalid++;
		return;
	}
	fanin_canary_hear_way(canary, frame->data);
	if (hdr->type == FANIN_TYPE_CALL)
		fanin_canary_receive_call(canary, frame);
	else if (hdr->type == FANIN_TYPE_ROLL)
		fanin_canary_receive_roll(canary, frame);
	else if (canary->begun && hdr->epoch == canary->run)
		receive_in_run(canary, frame);
	else if (!canary->begun && canary->engine.config.rank != 0)
		/* Others have begun the run, so the ROLL that announced it is lost. */
		fanin_canary_call_soon(canary);
	else
		canary->engine.stats.invalid++;
}

/* Tells a rank that asks why the run has ended. */
void
fanin_canary_answer(struct fanin_engine *engine, const struct fanin_frame *frame)
{
	struct fanin_canary *canary = canary_of(engine);
	const struct fanin_hdr *hdr = &((const struct fanin_headers *)frame->data)->fanin;

	if (admits(canary, frame) &&
	    (hdr->type == FANIN_TYPE_QUERY || hdr->type == FANIN_TYPE_ASK) &&
	    hdr->epoch == canary->run && hdr->rank < engine->config.size)
		fanin_canary_tell_end(canary, hdr->rank);
}
