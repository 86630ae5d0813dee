/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Asking the switch how far blocks are, and what its answers say: the round trip, what was lost on the way there or back, and whom
 * a block waits for (docs/protocol.md, "Asking"). Payload is sent again only from here. Called by the poll loop only.
 */
#include "engine_internal.h"

#include <string.h>

/* Contributions that a query goes with, at least, unless something was lost lately: then it is FANIN_ENGINE_SOUND_LEAST. */
#define SOUND_MIN 16
#define LOSSY_NS (1000 * 1000000ull)

/* How often a block is sent as soon as it is known to be lost. With a loss of 10 %, one block in 10,000 needs more. */
#define SOON_MAX 4

/* How long a needless retransmission makes a host more careful. */
#define SPURIOUS_NS (10 * 1000000000ull)

uint32_t
fanin_engine_ask(struct fanin_engine *engine, uint32_t block, bool all, bool overdue)
{
	struct fanin_headers headers;
	struct fanin_hdr *hdr = &headers.fanin;
	uint32_t number = engine->n_queries + 1;
	uint64_t have = 0;
	const uint32_t body_len = overdue && fanin_engine_shards_have(engine, block, &have)
					  ? sizeof(have)
					  : 0;

	/* 0 answers no query. */
	number += number == 0;
	fanin_wire_encode_l4(&headers, &engine->config.flow, body_len);
	fanin_wire_encode_header(hdr, FANIN_TYPE_QUERY, engine->config.job, engine->config.epoch,
				 engine->config.keys.up);
	hdr->rank = engine->config.rank;
	hdr->flags = overdue ? FANIN_FLAG_RETRANSMIT : 0;
	hdr->block = block - engine->base;
	hdr->progress = engine->oldest - engine->base;
	hdr->number = number;
	hdr->count = !all || fanin_block_before(engine->newest, block)
			     ? 1
			     : (uint16_t)(engine->newest - block < FANIN_ANSWER_BLOCKS
						  ? engine->newest - block + 1
						  : FANIN_ANSWER_BLOCKS);
	headers.udp.src_be = fanin_wire_source_port_be(hdr->block);
	if (!fanin_engine_transmit(engine, &headers, body_len != 0 ? &have : NULL, body_len))
		return 0;

	engine->n_queries = number;
	engine->asked[number % FANIN_ENGINE_QUERIES] = (struct fanin_asked){
		.number = number,
		.block = block,
		.order = engine->order,
		.sent_ns = engine->loop.now_ns,
	};
	engine->stats.queries++;
	engine->stats.frames_sent++;
	return number;
}

void
fanin_engine_sound(struct fanin_engine *engine)
{
	const uint32_t sent = engine->order - engine->sounded;
	const bool lossy = engine->lossy_ns != 0 && engine->loop.now_ns - engine->lossy_ns < LOSSY_NS;
	const uint32_t least = lossy ? FANIN_ENGINE_SOUND_LEAST : SOUND_MIN;
	const uint32_t round = lossy ? engine->cc.window / 4 : engine->cc.window;

	if (sent < least || sent < round || engine->queue_head != engine->queue_tail ||
	    engine->oldest == engine->end)
		return;
	if (engine->sounding != 0 &&
	    engine->loop.now_ns - engine->asked[engine->sounding % FANIN_ENGINE_QUERIES].sent_ns <
		    engine->rtt.rto_ns)
		return;
	engine->sounding = fanin_engine_ask(engine, engine->oldest, true, false);
	if (engine->sounding == 0)
		return;
	engine->sounded = engine->order;
}

void
fanin_engine_note_spurious(struct fanin_engine *engine)
{
	engine->stats.spurious++;
	engine->spurious_ns = engine->loop.now_ns;
	engine->reordering *= 2;
	if (engine->reordering > engine->config.window)
		engine->reordering = engine->config.window;
	if (engine->reordering < FANIN_ENGINE_REORDERING_MIN)
		engine->reordering = FANIN_ENGINE_REORDERING_MIN;
}

/* Was the lane's last transmission so long before the query that its place in the answer is no matter of order? */
static bool
is_long_before(const struct fanin_engine *engine, const struct fanin_lane *lane,
	       const struct fanin_asked *asked)
{
	return asked->order - lane->order >= engine->reordering ||
	       asked->sent_ns - lane->sent_ns >= fanin_engine_patience_ns(engine);
}

static void
loss_note(struct fanin_engine *engine)
{
	engine->lossy_ns = engine->loop.now_ns;
	engine->cc.type->on_loss(&engine->cc, engine->loop.now_ns);
}

/*
 * When a block that is lost may be sent again. If it was lost several times in a row, its packets may be refused on the way whenever
 * they come, as by a link with a smaller MTU: then the interval doubles each time.
 */
static uint64_t
resend_due_ns(const struct fanin_engine *engine, const struct fanin_lane *lane)
{
	const uint64_t most_ns = fanin_engine_retry_most_ns(engine);
	uint64_t wait_ns = fanin_engine_patience_ns(engine);

	if (lane->transmissions < SOON_MAX)
		return lane->sent_ns;
	for (unsigned int n = SOON_MAX; n < lane->transmissions && wait_ns < most_ns; n++)
		wait_ns *= 2;
	return lane->sent_ns + (wait_ns < most_ns ? wait_ns : most_ns);
}

/* The lane's block is not sent again before due_ns. The switch is asked for it then: it may have come by another way. */
static void
lane_hold(struct fanin_engine *engine, struct fanin_lane *lane, uint64_t due_ns)
{
	lane->held = true;
	lane->ask_ns = due_ns;
	lane->ask_wait_ns = 0;
	if (lane->block == engine->oldest && engine->ask_ns > due_ns)
		engine->ask_ns = due_ns;
	fanin_loop_wake_by(&engine->loop, due_ns);
}

/* It may be sent again, and is asked for as any other. */
static void
lane_let_go(struct fanin_lane *lane)
{
	lane->held = false;
	lane->ask_ns = 0;
	lane->ask_wait_ns = 0;
}

/*
 * The switch lacks a block that was sent long before the query. It may wait for another worker there than the one that answered, as
 * others did. Then only an answer about the block itself counts, of a query that came behind it, and some time later.
 */
static void
absent_learn(struct fanin_engine *engine, struct fanin_lane *lane, const struct fanin_asked *asked,
	     const uint64_t *shards)
{
	const uint64_t patience_ns = fanin_engine_patience_ns(engine);
	const uint64_t due_ns = resend_due_ns(engine, lane);

	if (engine->loop.now_ns < due_ns) {
		lane_hold(engine, lane, due_ns);
		return;
	}
	if (fanin_engine_is_careful(engine) &&
	    (lane->block != asked->block || asked->sent_ns - lane->sent_ns < patience_ns)) {
		if (engine->loop.now_ns - lane->sent_ns >= patience_ns &&
		    engine->loop.now_ns >= lane->ask_ns &&
		    fanin_engine_ask(engine, lane->block, false, false) != 0)
			lane->ask_ns = engine->loop.now_ns + patience_ns;
		return;
	}
	if (lane->role == FANIN_LANE_SPARSE &&
	    !fanin_engine_shards_lost(engine, lane, lane->block == asked->block ? shards : NULL))
		return;
	loss_note(engine);
	if (!fanin_engine_send(engine, lane))
		return;
	engine->stats.retransmits++;
	/* The next query for this block is due when it may be sent again, independently of the oldest block's timer. */
	if (lane->transmissions > SOON_MAX)
		lane_hold(engine, lane, resend_due_ns(engine, lane));
}

/* What the answer to a query says of a block that was sent before it. shards: see states_learn. */
static void
lane_learn(struct fanin_engine *engine, struct fanin_lane *lane, const struct fanin_asked *asked,
	   enum fanin_block_state state, const uint64_t *shards)
{
	lane->told = (uint8_t)state;
	if (lane->held && state != FANIN_BLOCK_ABSENT)
		lane_let_go(lane);
	if (!is_long_before(engine, lane, asked))
		return;
	if (state == FANIN_BLOCK_ABSENT) {
		absent_learn(engine, lane, asked, shards);
	} else if (state == FANIN_BLOCK_DONE && engine->loop.now_ns >= lane->ask_ns &&
		   (!fanin_engine_is_careful(engine) ||
		    asked->sent_ns - lane->sent_ns >= fanin_engine_patience_ns(engine)) &&
		   fanin_engine_ask(engine, lane->block, false, true) != 0) {
		/* Its result was sent before the answer, and has not come. */
		loss_note(engine);
		lane->asked = true;
		lane->ask_ns = engine->loop.now_ns + engine->rtt.rto_ns;
	}
}

/* shards: those of the block that was asked for which are there; NULL: the answer says nothing of any. */
static void
states_learn(struct fanin_engine *engine, const struct fanin_asked *asked, uint32_t first,
	     const struct fanin_answer_body *body, const uint64_t *shards)
{
	const uint32_t n = body->n_blocks < FANIN_ANSWER_BLOCKS ? body->n_blocks
								: FANIN_ANSWER_BLOCKS;

	for (uint32_t i = 0; i < n && i < engine->config.window; i++) {
		struct fanin_lane *lane = fanin_engine_lane(engine, first + i);

		/* One that was sent again since is another matter. */
		if (lane->block == first + i && lane->state == FANIN_LANE_SENT &&
		    fanin_block_before(lane->order, asked->order))
			lane_learn(engine, lane, asked, fanin_answer_state(body, i), shards);
	}
}

/*
 * What the oldest block waits for. While it waits for others it is asked for less and less often. As soon as it no longer does, what
 * was sent for it, there or back, may be lost again: from then on the intervals grow anew.
 */
static void
told_note(struct fanin_engine *engine, enum fanin_block_state state,
	  const struct fanin_answer_ranks *ranks)
{
	const bool ended = !fanin_ranks_is_empty(&ranks->ended);
	const bool silent = !fanin_ranks_is_empty(&ranks->silent);
	const bool same = engine->told.time_ns != 0 && engine->told.block == engine->oldest;
	const uint64_t silent_ns = same ? engine->told.silent_ns : 0;
	const bool was_lost = same && engine->told.lost;
	const bool lost = state == FANIN_BLOCK_ABSENT || state == FANIN_BLOCK_DONE;

	if (lost && !was_lost)
		engine->ask_wait_ns = fanin_engine_patience_ns(engine);
	engine->told = (struct fanin_told){
		.block = engine->oldest,
		.time_ns = engine->loop.now_ns,
		.state = state,
		/* "Sent" is what the nearest switch says, whatever those further up do. */
		.lost = lost || (state == FANIN_BLOCK_SENT && was_lost),
		.ended = ended,
		.ranks = *ranks,
	};
	if (silent)
		engine->told.silent_ns = silent_ns != 0 ? silent_ns : engine->loop.now_ns;
	/* The switch knows no more before long. */
	engine->retry_ns = 0;
	engine->ask_ns = engine->loop.now_ns +
			 (silent ? fanin_engine_patience_ns(engine) : engine->ask_wait_ns);
	if (state == FANIN_BLOCK_OPEN && !fanin_ranks_is_empty(&ranks->missing) && !ended && !silent)
		engine->excused_ns = engine->loop.now_ns;
}

void
fanin_engine_receive_answer(struct fanin_engine *engine, const struct fanin_frame *frame,
			    uint32_t block)
{
	const struct fanin_hdr *hdr = &((const struct fanin_headers *)frame->data)->fanin;
	struct fanin_asked *asked = &engine->asked[hdr->number % FANIN_ENGINE_QUERIES];
	const uint32_t generation = engine->cc.generation;
	const uint32_t sets_len = 2 * fanin_ranks_bytes(engine->config.size);
	uint8_t sets[2 * sizeof(struct fanin_ranks) + sizeof(uint64_t)];
	struct fanin_answer_ranks ranks;
	struct fanin_asked query;
	struct fanin_answer_body body;
	/* Behind the sets: which shards are there. */
	const bool has_shards = frame->len >=
				FANIN_PAYLOAD_OFFSET + sizeof(body) + sets_len + sizeof(uint64_t);
	uint64_t shards = 0;

	if (frame->len < FANIN_PAYLOAD_OFFSET + sizeof(body) + sets_len ||
	    !fanin_frame_copy(engine->loop.transport, frame, FANIN_PAYLOAD_OFFSET, &body,
			      sizeof(body)) ||
	    !fanin_frame_copy(engine->loop.transport, frame, FANIN_PAYLOAD_OFFSET + sizeof(body),
			      sets, sets_len + (has_shards ? sizeof(shards) : 0))) {
		engine->stats.invalid++;
		return;
	}
	engine->stats.answers++;
	/* Of another host behind the same port, since answers that are passed down go to the group's address. */
	if (hdr->rank != engine->config.rank)
		return;
	if (hdr->number == 0) {
		fanin_engine_note_spurious(engine);
		return;
	}
	if (block == engine->oldest && fanin_engine_lane(engine, block)->block == block) {
		fanin_answer_read_ranks(sets, engine->config.size, &ranks);
		told_note(engine, (enum fanin_block_state)hdr->count, &ranks);
	}
	/* Passed down from further up, or a second time: it says nothing of this hop. */
	if (body.n_blocks == 0 || asked->number != hdr->number)
		return;
	query = *asked;
	asked->number = 0;
	if (engine->sounding == hdr->number)
		engine->sounding = 0;
	if (engine->loop.now_ns - engine->spurious_ns > SPURIOUS_NS)
		engine->reordering = FANIN_ENGINE_REORDERING_MIN;
	if (has_shards)
		memcpy(&shards, sets + sets_len, sizeof(shards));
	states_learn(engine, &query, block, &body, has_shards ? &shards : NULL);
	/* Time that the caller spent elsewhere is not the network's. */
	if (query.sent_ns >= engine->loop.resumed_ns)
		fanin_rtt_sample(&engine->rtt, engine->loop.now_ns - query.sent_ns);
	if (engine->cc.generation != generation)
		fanin_engine_release_all(engine);
}
