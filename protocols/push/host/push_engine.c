/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Push: sends each block once, in order, as far as the window and the waves allow. Receives results
 * and sums from switches, and messages from other ranks (protocols/push/README.md, "What the other
 * ranks do"). Called by the poll loop only, unless said otherwise.
 */
#include <stdlib.h>
#include <string.h>

#include "push_internal.h"

/* ------------------------------------------------------------------ runs */

/*
 * Begins a run with the engine's oldest block. Everything learned from other ranks in the previous
 * run is forgotten.
 */
static void
run_begin(struct fanin_push *push)
{
	const struct fanin_engine *engine = &push->engine;
	const uint32_t window = engine->config.window;
	const struct fanin_waves_config waves = {
		.capacity = (uint32_t)engine->config.parameters[FANIN_PUSH_ENTRIES],
		.limit = window,
		.wave_blocks = (uint32_t)engine->config.parameters[FANIN_PUSH_WAVE_BLOCKS],
		.n_waves = (uint32_t)engine->config.parameters[FANIN_PUSH_WAVES],
	};

	memset(push->lanes, 0, window * sizeof(*push->lanes));
	memset(push->entries, 0, 2 * window * sizeof(*push->entries));
	memset(push->unanswered_ns, 0, sizeof(push->unanswered_ns));
	fanin_waves_open(&push->waves, &waves, engine->oldest);
	fanin_push_flight_begin(push);
	push->next = engine->oldest;
	push->oldest = engine->oldest;
	push->overtaking = engine->oldest;
	push->oldest_ns = fanin_loop_clock_ns(&engine->loop);
	push->n_unsent = 0;
	push->engine.run_end.byes = 0;
}

static int
rules_open(struct fanin_engine *engine, struct fanin_error *error)
{
	struct fanin_push *push = push_of(engine);
	const struct fanin_protocol_config *config = &engine->config;
	const size_t n_entries = 2u * config->window;

	(void)error;
	push->lanes = calloc(config->window, sizeof(*push->lanes));
	push->entries = calloc(n_entries, sizeof(*push->entries));
	if (push->lanes == NULL || push->entries == NULL ||
	    !fanin_sum_frames_open(&push->frames, n_entries + 1, config->payload_bytes))
		return FANIN_ERR_NO_MEMORY;
	push->all = fanin_ranks_all_word(config->size, 0);
	push->self = UINT64_C(1) << config->rank;
	push->sums = (struct fanin_sums){ .isa = fanin_isa_detect(),
					  .n_ranks = config->size,
					  .n_words = 1 };
	run_begin(push);
	return FANIN_OK;
}

static void
rules_close(struct fanin_engine *engine)
{
	struct fanin_push *push = push_of(engine);

	free(push->lanes);
	free(push->entries);
	free(push->frames.memory);
}

/*
 * Not called from the poll loop. Nobody needs to be told about results: ranks that have one answer
 * questions with it.
 */
static void
rules_resume(struct fanin_engine *engine)
{
	const uint32_t first = engine->oldest;

	run_begin(push_of(engine));
	for (uint32_t i = 0; i < engine->config.window; i++) {
		struct fanin_lane *lane = fanin_engine_lane(engine, first + i);

		if (lane->block == first + i && lane->role == FANIN_LANE_KNOWN &&
		    lane->state == FANIN_LANE_READY)
			fanin_engine_known_finish(engine, lane);
	}
}

/* ------------------------------------------------------------------ sending */

static bool
may_send(struct fanin_engine *engine, const struct fanin_lane *lane)
{
	struct fanin_push *push = push_of(engine);

	if (lane->block - engine->oldest >= push->allowed ||
	    !fanin_waves_may_start(&push->waves, lane->block))
		return false;
	*push_lane(push, lane->block) = (struct push_lane){ 0 };
	return true;
}

static void
rules_send(struct fanin_engine *engine)
{
	struct fanin_push *push = push_of(engine);

	fanin_push_home_unsent(push);
	fanin_engine_queue_in_order(engine, &push->next, may_send);
	fanin_engine_send_queued(engine);
}

/* ------------------------------------------------------------------ results */

/*
 * A rank that has given its data to the home host accepts only the home host's result; otherwise
 * two results could exist.
 */
static bool
rules_accepts_result(struct fanin_engine *engine, uint32_t block)
{
	struct fanin_push *push = push_of(engine);

	if (fanin_engine_lane(engine, block)->block != block || !push_lane(push, block)->committed)
		return true;
	push->stats.ignored++;
	return false;
}

/* This block is done, so all ranks have sent it and every block before it. */
static void
note_overtaken(struct fanin_push *push, uint32_t block)
{
	if (fanin_block_before(push->overtaking, push->engine.oldest))
		push->overtaking = push->engine.oldest;
	for (; fanin_block_before(push->overtaking, block); push->overtaking++)
		push_lane(push, push->overtaking)->overtaken_ns = push->engine.loop.now_ns;
}

static void
rules_finish(struct fanin_engine *engine, uint32_t block)
{
	struct fanin_push *push = push_of(engine);

	(void)fanin_waves_completed(&push->waves, block);
	note_overtaken(push, block);
	/*
	 * The finished block did not depend on unanswered questions. Ranks that are gone are asked
	 * again.
	 */
	memset(push->unanswered_ns, 0, sizeof(push->unanswered_ns));
	if (push->oldest != engine->oldest) {
		push->oldest = engine->oldest;
		push->oldest_ns = engine->loop.now_ns;
		fanin_push_flight_advance(push);
	}
	if (push_is_home(push, block))
		fanin_push_home_finish(push, block);
}

/* ------------------------------------------------------------------ what other ranks say */

/* A UNICAST or MULTICAST of another rank. */
struct message {
	const struct fanin_frame *frame;
	uint32_t block;
	unsigned int from;
	uint32_t len;           /* bytes of payload */
	struct fanin_hdr shape; /* data type, operator, count, root and flags, from `number` and
				   `progress` */
};

/* Takes the home host's result; or, at the home host, a result repeated by any rank. */
static void
receive_result(struct fanin_push *push, const struct message *message, bool is_repeat)
{
	struct fanin_headers *headers = push_scratch(push);
	const bool is_home = push_is_home(push, message->block);

	if (is_home ? !is_repeat : message->from != push_home_of(push, message->block)) {
		push->engine.stats.invalid++;
		return;
	}
	if (is_home)
		fanin_run_end_note_bye(&push->engine.run_end, message->block, message->from);
	else if (is_repeat)
		fanin_push_note_answered(push, message->block);
	if (message->len != 0 &&
	    !fanin_frame_copy(push->engine.loop.transport, message->frame, FANIN_PAYLOAD_OFFSET,
			      headers + 1, message->len)) {
		push->engine.stats.invalid++;
		return;
	}
	headers->fanin = message->shape;
	fanin_engine_take_result(&push->engine, message->block, headers, message->len);
}

/* The home host asks for this rank's data. */
static void
receive_ask(struct fanin_push *push, const struct message *message)
{
	const uint32_t block = message->block;
	struct push_elements elements = { 0 };

	if (message->from != push_home_of(push, block)) {
		push->engine.stats.invalid++;
		return;
	}
	if (fanin_block_before(block, push->engine.oldest) ||
	    fanin_engine_is_done(&push->engine, block)) {
		push->stats.repeats += fanin_push_repeat(push, message->from, block);
		return;
	}
	if (!push_is_sent(push, block)) {
		(void)fanin_push_send(push, message->from, FANIN_PUSH_HERE, block, NULL);
		return;
	}
	if (!push_lane(push, block)->committed)
		fanin_push_flight_asked(push);
	/* Set before the data leaves. */
	push_lane(push, block)->committed = true;
	elements.payload = fanin_engine_contribution(fanin_engine_lane(&push->engine, block),
						     &elements.shape, &elements.len);
	if (fanin_push_send(push, message->from, FANIN_PUSH_DATA, block, &elements)) {
		push->stats.answered++;
		push->engine.stats.retransmits++;
	}
}

static void
receive_here(struct fanin_push *push, const struct message *message)
{
	struct fanin_push_here here;

	if (push_is_home(push, message->block)) {
		fanin_push_home_here(push, message->from, message->block);
	} else if (message->from == push_home_of(push, message->block) &&
		   message->len >= sizeof(here) &&
		   fanin_frame_copy(push->engine.loop.transport, message->frame,
				    FANIN_PAYLOAD_OFFSET, &here, sizeof(here))) {
		here.missing &= push->all;
		here.ended &= here.missing;
		here.silent &= here.missing & ~here.ended;
		fanin_push_receive_here(push, message->block, &here);
	} else {
		push->engine.stats.invalid++;
	}
}

static void
receive_end(struct fanin_push *push, const struct message *message)
{
	struct fanin_push_end end;

	if (message->len < sizeof(end) ||
	    !fanin_frame_copy(push->engine.loop.transport, message->frame, FANIN_PAYLOAD_OFFSET,
			      &end, sizeof(end))) {
		push->engine.stats.invalid++;
		return;
	}
	fanin_push_receive_end(push, &end);
}

/* True if the payload has the length that the message's shape implies. */
static bool
has_elements(const struct message *message)
{
	const struct fanin_hdr *shape = &message->shape;
	const uint32_t len = shape->count * fanin_dtype_size(shape->dtype);

	return fanin_dtype_size(shape->dtype) != 0 && fanin_op_is_known(shape->op) &&
	       fanin_wire_root_fits(shape) &&
	       (fanin_wire_is_empty(shape) ? len != 0 && message->len == 0 : message->len == len);
}

static void
receive_message(struct fanin_push *push, const struct message *message, enum fanin_push_kind kind,
		bool is_to_all)
{
	const bool elements = kind == FANIN_PUSH_DATA || kind == FANIN_PUSH_REPEAT ||
			      kind == FANIN_PUSH_RESULT;

	if ((elements && !has_elements(message)) ||
	    (is_to_all && kind != FANIN_PUSH_RESULT && kind != FANIN_PUSH_END)) {
		push->engine.stats.invalid++;
		return;
	}
	switch (kind) {
	case FANIN_PUSH_ASK:
		receive_ask(push, message);
		break;
	case FANIN_PUSH_DATA:
		if (push_is_home(push, message->block))
			fanin_push_home_data(push, message->block, UINT64_C(1) << message->from,
					     &message->shape, message->frame);
		break;
	case FANIN_PUSH_HERE:
		receive_here(push, message);
		break;
	case FANIN_PUSH_REPEAT:
	case FANIN_PUSH_RESULT:
		receive_result(push, message, kind == FANIN_PUSH_REPEAT);
		break;
	case FANIN_PUSH_QUERY:
		if (push_is_home(push, message->block))
			fanin_push_home_query(push, message->from, message->block);
		break;
	case FANIN_PUSH_END:
		receive_end(push, message);
		break;
	default:
		push->engine.stats.invalid++;
		break;
	}
}

/* Receives a sum that a switch evicted from its table. */
static void
receive_evicted(struct fanin_push *push, const struct fanin_frame *frame, uint32_t block)
{
	const struct fanin_hdr *hdr = &((const struct fanin_headers *)frame->data)->fanin;

	/* Addressed to another host behind the same port. */
	if (hdr->number != push->engine.config.rank)
		return;
	if (!push_is_home(push, block) ||
	    hdr->contributions != (unsigned int)__builtin_popcountll(hdr->members)) {
		push->engine.stats.invalid++;
		return;
	}
	fanin_push_home_data(push, block, hdr->members, hdr, frame);
}

static void
rules_receive(struct fanin_engine *engine, const struct fanin_frame *frame, uint32_t block)
{
	const struct fanin_headers *headers = frame->data;
	const struct fanin_hdr *hdr = &headers->fanin;
	const bool is_to_all = hdr->type == FANIN_TYPE_DELIVERY;
	struct fanin_push *push = push_of(engine);
	struct message message = {
		.frame = frame,
		.block = block,
		.from = (unsigned int)hdr->members,
		.len = fanin_wire_payload_len(headers),
		.shape = {
			.flags = (hdr->number >> 8 & 1) != 0 ? FANIN_FLAG_EMPTY : 0,
			.dtype = (uint8_t)(hdr->number >> 16),
			.op = (uint8_t)(hdr->number >> 24),
			.count = (uint16_t)hdr->progress,
			.root = (uint16_t)(hdr->progress >> 16),
		},
	};

	if (hdr->type == FANIN_TYPE_EVICTED) {
		receive_evicted(push, frame, block);
		return;
	}
	if ((!is_to_all && hdr->type != FANIN_TYPE_UNICAST_DELIVERY) ||
	    hdr->members >= engine->config.size) {
		engine->stats.invalid++;
		return;
	}
	/* This rank's own message, or one to another host behind the same port. */
	if (hdr->members == engine->config.rank ||
	    (!is_to_all && hdr->count != engine->config.rank))
		return;
	engine->heard_ns = engine->loop.now_ns;
	push_hear(push, message.from);
	receive_message(push, &message, (enum fanin_push_kind)(hdr->number & 0xff), is_to_all);
}

static uint64_t
rules_idle_most_ns(struct fanin_engine *engine)
{
	return push_of(engine)->n_unsent != 0 ? FANIN_ENGINE_NO_ROOM_NS : UINT64_MAX;
}

const struct fanin_engine_rules fanin_push_rules = {
	.size = sizeof(struct fanin_push),
	.takes_unsent = true,
	.bounds_flight = true, /* waves bound it */
	.keeps = true,
	.no_wide = true,
	.ranks_max = PUSH_RANKS_MAX,
	.open = rules_open,
	.close = rules_close,
	.send = rules_send,
	.filter_missing = fanin_push_filter_missing,
	.on_answer = fanin_push_on_answer,
	.accepts_result = rules_accepts_result,
	.receive = rules_receive,
	.finish = rules_finish,
	.scan = fanin_push_scan,
	.resume = rules_resume,
	.idle_max_ns = rules_idle_most_ns,
	.answer = fanin_push_answer,
	.end = fanin_push_end_begin,
	.say_bye = fanin_push_say_bye,
};

const struct fanin_push_stats *
fanin_push_stats(struct fanin_endpoint *endpoint)
{
	return &push_of(fanin_engine_of(endpoint))->stats;
}
