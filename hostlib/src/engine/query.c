/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Queries to the switch about the state of blocks, and their answers: the round trip, losses in
 * either direction, and the ranks that a block waits for (protocols/dense/README.md, "Asking").
 * Only this file sends payload again. Called by the poll loop only.
 */
#include "engine_internal.h"
#include "times.h"

#include <string.h>

/* Minimum of contributions between two probes; after a recent loss it is FANIN_ENGINE_PROBE_MIN. */
#define PROBE_MIN 16
#define LOSSY_NS (1000 * 1000000ull)

/*
 * Transmissions of a block up to which it is sent again as soon as it is known to be lost. At 10 %
 * loss, one block in 10,000 needs more.
 */
#define RESEND_AT_ONCE_MAX 4

/* How long a spurious retransmission keeps the host more careful. */
#define SPURIOUS_NS (10 * 1000000000ull)

/*
 * Sends a query. flags: of the header. The other arguments and the result are as for
 * fanin_engine_query.
 */
static uint32_t
query_send(struct fanin_engine *engine, uint32_t block, bool all, uint16_t flags)
{
	const bool overdue = (flags & FANIN_FLAG_RETRANSMIT) != 0;
	struct fanin_headers headers;
	struct fanin_hdr *hdr = &headers.fanin;
	uint32_t number = engine->n_queries + 1;
	uint64_t have = 0;
	const uint32_t body_len = overdue && fanin_engine_shards_have(engine, block, &have)
					  ? sizeof(have)
					  : 0;

	/* 0 means no query. */
	number += number == 0;
	fanin_engine_begin(engine, FANIN_TYPE_QUERY, block - engine->base, body_len, &headers);
	hdr->contributions = 0;
	hdr->flags = flags;
	hdr->progress = engine->oldest - engine->base;
	hdr->number = number;
	hdr->count = !all || fanin_block_before(engine->newest, block)
			     ? 1
			     : (uint16_t)(engine->newest - block < FANIN_ANSWER_BLOCKS
						  ? engine->newest - block + 1
						  : FANIN_ANSWER_BLOCKS);
	if (!fanin_engine_transmit(engine, &headers, body_len != 0 ? &have : NULL, body_len))
		return 0;

	engine->n_queries = number;
	engine->asked[number % FANIN_ENGINE_QUERIES] = (struct fanin_pending_query){
		.number = number,
		.block = block,
		.order = engine->order,
		.sent_ns = engine->loop.now_ns,
	};
	engine->stats.queries++;
	engine->stats.frames_sent++;
	return number;
}

uint32_t
fanin_engine_query(struct fanin_engine *engine, uint32_t block, bool all, bool overdue)
{
	return query_send(engine, block, all, overdue ? FANIN_FLAG_RETRANSMIT : 0);
}

uint32_t
fanin_engine_query_root(struct fanin_engine *engine, uint32_t block)
{
	return query_send(engine, block, false, FANIN_FLAG_RETRANSMIT | FANIN_FLAG_DIRECT);
}

void
fanin_engine_probe(struct fanin_engine *engine)
{
	const uint32_t sent = engine->order - engine->probe_order;
	const bool lossy = engine->lossy_ns != 0 &&
			   engine->loop.now_ns - engine->lossy_ns < LOSSY_NS;
	const uint32_t least = lossy ? FANIN_ENGINE_PROBE_MIN : PROBE_MIN;
	const uint32_t round = lossy ? engine->cc.window / 4 : engine->cc.window;

	if (sent < least || sent < round || engine->queue_head != engine->queue_tail ||
	    engine->oldest == engine->end)
		return;
	if (engine->probe_number != 0 &&
	    engine->loop.now_ns -
			    engine->asked[engine->probe_number % FANIN_ENGINE_QUERIES].sent_ns <
		    engine->rtt.rto_ns)
		return;
	engine->probe_number = fanin_engine_query(engine, engine->oldest, true, false);
	if (engine->probe_number == 0)
		return;
	engine->probe_order = engine->order;
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

/*
 * True if the lane's last transmission was so long before the query that reordering can't explain
 * why the answer lacks it.
 */
static bool
is_long_before(const struct fanin_engine *engine, const struct fanin_lane *lane,
	       const struct fanin_pending_query *asked)
{
	return asked->order - lane->order >= engine->reordering ||
	       asked->sent_ns - lane->sent_ns >= fanin_engine_query_wait_ns(engine);
}

static void
loss_note(struct fanin_engine *engine)
{
	engine->lossy_ns = engine->loop.now_ns;
	engine->cc.type->on_loss(&engine->cc, engine->loop.now_ns);
}

/*
 * Returns when a lost block may be sent again. If it was lost several times in a row, its packets
 * may be dropped whenever they are sent, as by a link with a smaller MTU: the interval then doubles
 * each time.
 */
static uint64_t
resend_due_ns(const struct fanin_engine *engine, const struct fanin_lane *lane)
{
	const uint64_t max_ns = fanin_engine_retry_max_ns(engine);
	uint64_t wait_ns = fanin_engine_query_wait_ns(engine);

	if (lane->transmissions < RESEND_AT_ONCE_MAX)
		return lane->sent_ns;
	for (unsigned int n = RESEND_AT_ONCE_MAX; n < lane->transmissions && wait_ns < max_ns; n++)
		wait_ns *= 2;
	return lane->sent_ns + fanin_earlier(wait_ns, max_ns);
}

/*
 * Delays sending the lane's block again until due_ns. The switch is queried about it then: the
 * block may have come by another path.
 */
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

/* Ends the delay: the lane's block may be sent again, with queries as for any other block. */
static void
lane_unhold(struct fanin_lane *lane)
{
	lane->held = false;
	lane->ask_ns = 0;
	lane->ask_wait_ns = 0;
}

/*
 * Handles an answer that lacks a block which was sent long before the query. The block may wait for
 * another worker of the switch than the one that answered. In that case only the answer to a later
 * query about this block counts, after some time.
 */
static void
absent_learn(struct fanin_engine *engine, struct fanin_lane *lane,
	     const struct fanin_pending_query *asked, const uint64_t *shards)
{
	const uint64_t patience_ns = fanin_engine_query_wait_ns(engine);
	const uint64_t due_ns = resend_due_ns(engine, lane);

	if (engine->loop.now_ns < due_ns) {
		lane_hold(engine, lane, due_ns);
		return;
	}
	if (fanin_engine_may_reorder(engine) &&
	    (lane->block != asked->block || asked->sent_ns - lane->sent_ns < patience_ns)) {
		if (engine->loop.now_ns - lane->sent_ns >= patience_ns &&
		    engine->loop.now_ns >= lane->ask_ns &&
		    fanin_engine_query(engine, lane->block, false, false) != 0)
			lane->ask_ns = engine->loop.now_ns + patience_ns;
		return;
	}
	if (fanin_engine_has_shards(lane) &&
	    !fanin_engine_shards_lost(engine, lane, lane->block == asked->block ? shards : NULL))
		return;
	loss_note(engine);
	if (!fanin_engine_send(engine, lane))
		return;
	engine->stats.retransmits++;
	/*
	 * The next query for this block is due when it may be sent again, independently of the
	 * oldest block's timer.
	 */
	if (lane->transmissions > RESEND_AT_ONCE_MAX)
		lane_hold(engine, lane, resend_due_ns(engine, lane));
}

/* Applies the answer to a query to a block that was sent before the query. */
static void
lane_learn(struct fanin_engine *engine, struct fanin_lane *lane,
	   const struct fanin_pending_query *asked, enum fanin_block_state state,
	   const uint64_t *shards)
{
	lane->told = (uint8_t)state;
	if (lane->held && state != FANIN_BLOCK_ABSENT)
		lane_unhold(lane);
	if (!is_long_before(engine, lane, asked))
		return;
	if (state == FANIN_BLOCK_ABSENT) {
		absent_learn(engine, lane, asked, shards);
	} else if (state == FANIN_BLOCK_DONE && engine->loop.now_ns >= lane->ask_ns &&
		   (!fanin_engine_may_reorder(engine) ||
		    asked->sent_ns - lane->sent_ns >= fanin_engine_query_wait_ns(engine)) &&
		   fanin_engine_query(engine, lane->block, false, true) != 0) {
		/* Its result was sent before the answer, and has not come. */
		loss_note(engine);
		lane->asked = true;
		lane->ask_ns = engine->loop.now_ns + engine->rtt.rto_ns;
	}
}

/*
 * Applies an answer to all blocks that it covers. shards: the shards that have arrived of the block
 * that was queried; NULL: the answer does not say.
 */
static void
states_learn(struct fanin_engine *engine, const struct fanin_pending_query *asked, uint32_t first,
	     const struct fanin_answer_body *body, const uint64_t *shards)
{
	const uint32_t n = body->n_blocks < FANIN_ANSWER_BLOCKS ? body->n_blocks
								: FANIN_ANSWER_BLOCKS;

	for (uint32_t i = 0; i < n && i < engine->config.window; i++) {
		struct fanin_lane *lane = fanin_engine_lane(engine, first + i);

		/* The answer does not cover a block that was sent again since the query. */
		if (lane->block == first + i && lane->state == FANIN_LANE_SENT &&
		    fanin_block_before(lane->order, asked->order))
			lane_learn(engine, lane, asked, fanin_answer_state(body, i), shards);
	}
}

/*
 * Returns the time until the next query about the oldest block, which waits for other ranks. Around
 * the timeout queries are about as frequent as a switch's probes: with longer intervals the host
 * would learn too late what a switch finds just before the timeout, and a rank must be silent for a
 * while before it counts as gone. Before that, no interval extends past one or two fifths of the
 * timeout, however long round trips were: switches probe only after an overdue query, and take 2 s
 * to find that a rank is silent.
 */
static uint64_t
next_ask_wait_ns(const struct fanin_engine *engine, bool ended, bool silent)
{
	const uint64_t fifth_ns = engine->config.timeout_ns / 5;
	const uint64_t waited_ns = engine->loop.now_ns - engine->progress_ns;
	const uint64_t query_wait_ns = fanin_engine_query_wait_ns(engine);
	uint64_t max_ns = fanin_engine_ask_max_ns(engine);

	if (silent)
		return fanin_earlier(query_wait_ns, max_ns);
	if (ended || waited_ns >= 6 * fifth_ns)
		return engine->ask_wait_ns;
	if (waited_ns < fifth_ns && fifth_ns - waited_ns > max_ns)
		max_ns = fifth_ns - waited_ns;
	else if (waited_ns >= fifth_ns && waited_ns < 2 * fifth_ns &&
		 2 * fifth_ns - waited_ns > max_ns)
		max_ns = 2 * fifth_ns - waited_ns;
	return fanin_earlier(engine->ask_wait_ns, max_ns);
}

/*
 * Stores what the oldest block waits for. While it waits for other ranks the queries become less
 * frequent. Once it no longer waits for them, its contribution or result may be lost, and the
 * intervals start anew.
 */
void
fanin_engine_note_answer(struct fanin_engine *engine, enum fanin_block_state state,
			 const struct fanin_answer_ranks *ranks)
{
	const bool ended = !fanin_ranks_is_empty(&ranks->ended);
	const bool silent = !fanin_ranks_is_empty(&ranks->silent);
	const bool same = engine->told.time_ns != 0 && engine->told.block == engine->oldest;
	const uint64_t silent_ns = same ? engine->told.silent_ns : 0;
	const bool was_lost = same && engine->told.lost;
	const bool lost = state == FANIN_BLOCK_ABSENT || state == FANIN_BLOCK_DONE;

	if (lost && !was_lost)
		engine->ask_wait_ns = fanin_engine_query_wait_ns(engine);
	engine->told = (struct fanin_last_answer){
		.block = engine->oldest,
		.time_ns = engine->loop.now_ns,
		.state = state,
		/*
		 * SENT is the state at the nearest switch; switches further up may have another
		 * one.
		 */
		.lost = lost || (state == FANIN_BLOCK_SENT && was_lost),
		.ended = ended,
		.ranks = *ranks,
	};
	/* This rank is not late: its contribution was lost. */
	fanin_ranks_remove(&engine->told.ranks.missing, engine->config.rank);
	if (silent)
		engine->told.silent_ns = silent_ns != 0 ? silent_ns : engine->loop.now_ns;
	/* An earlier query would get the same answer. */
	engine->retry_ns = 0;
	engine->ask_ns = engine->loop.now_ns + next_ask_wait_ns(engine, ended, silent);
	/*
	 * The timers may be set to the time at which an unanswered query was due again, which is
	 * late after long round trips.
	 */
	if (engine->loop.now_ns - engine->progress_ns >= fanin_engine_ask_max_ns(engine))
		fanin_loop_wake_by(&engine->loop, engine->ask_ns);
	if (state == FANIN_BLOCK_OPEN && !fanin_ranks_is_empty(&engine->told.ranks.missing) &&
	    !ended && !silent)
		engine->late_answer_ns = engine->loop.now_ns;
}

void
fanin_engine_receive_answer(struct fanin_engine *engine, const struct fanin_frame *frame,
			    uint32_t block)
{
	const struct fanin_hdr *hdr = &((const struct fanin_headers *)frame->data)->fanin;
	struct fanin_pending_query *asked = &engine->asked[hdr->number % FANIN_ENGINE_QUERIES];
	const uint32_t generation = engine->cc.generation;
	const uint32_t sets_len = 2 * fanin_ranks_bytes(engine->config.size);
	uint8_t sets[2 * sizeof(struct fanin_ranks) + sizeof(uint64_t)];
	struct fanin_answer_ranks ranks;
	struct fanin_pending_query query;
	struct fanin_answer_body body;
	/* A set of the block's shards follows the sets of ranks. */
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
	/*
	 * The answer is for another host behind the same port: answers that are passed down go to
	 * the multicast group.
	 */
	if (hdr->rank != engine->config.rank)
		return;
	if (hdr->number == 0) {
		fanin_engine_note_spurious(engine);
		return;
	}
	fanin_answer_read_ranks(sets, engine->config.size, &ranks);
	if (engine->rules->on_answer != NULL)
		engine->rules->on_answer(engine, block, &ranks);
	if (block == engine->oldest && fanin_engine_lane(engine, block)->block == block) {
		if (engine->rules->filter_missing != NULL)
			engine->rules->filter_missing(engine, &ranks);
		fanin_engine_note_answer(engine, (enum fanin_block_state)hdr->count, &ranks);
	}
	/*
	 * The answer was passed down from further up, or is a duplicate: it says nothing of this
	 * hop.
	 */
	if (body.n_blocks == 0 || asked->number != hdr->number)
		return;
	query = *asked;
	asked->number = 0;
	if (engine->probe_number == hdr->number)
		engine->probe_number = 0;
	if (engine->loop.now_ns - engine->spurious_ns > SPURIOUS_NS)
		engine->reordering = FANIN_ENGINE_REORDERING_MIN;
	if (has_shards)
		memcpy(&shards, sets + sets_len, sizeof(shards));
	states_learn(engine, &query, block, &body, has_shards ? &shards : NULL);
	/* Time during which the caller was away is not the network's. */
	if (query.sent_ns >= engine->loop.resumed_ns)
		fanin_rtt_sample(&engine->rtt, engine->loop.now_ns - query.sent_ns);
	if (engine->cc.generation != generation)
		fanin_engine_release_all(engine);
}
