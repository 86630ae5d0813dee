/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Push: decides when to ask for a block. A block that a later one has overtaken is lost, as all
 * ranks have sent it; this rank asks for it after a round trip. So it does for a block whose result
 * another rank lacks. The oldest block may merely wait for a late rank: the intervals between
 * questions about it double. Called by the poll loop only.
 */
#include "push_internal.h"
#include "hostlib/src/engine/times.h"

/*
 * The interval between questions about a lost block doubles up to this many round trips: the answer
 * may be lost as well, and a loss is noticed after one interval.
 */
#define MAX_DOUBLED 4u
/* A rank without an answer for this many round trips is away, or questions or answers were lost. */
#define SILENT_AFTER 4u
/*
 * This rank first asks for the oldest block after this many round trips, whether the block is lost
 * or a rank is late: no block overtakes the last ones of a vector.
 */
#define FIRST_AFTER 2u
/* Questions to a rank that does not answer, per timeout. */
#define MIN_QUESTIONS 64

/* True if the block is lost: a later block is done, so all ranks have sent this one. */
static bool
is_overtaken(const struct fanin_push *push, uint32_t block)
{
	return fanin_block_before(block, push->overtaking);
}

/* Reports the ranks that the oldest block waits for to the engine, as an ANSWER would. */
static void
note(struct fanin_push *push, const struct fanin_push_here *here)
{
	const struct fanin_answer_ranks ranks = {
		.missing = fanin_ranks_of_word(here->missing),
		.ended = fanin_ranks_of_word(here->ended),
		.silent = fanin_ranks_of_word(here->silent),
	};

	fanin_engine_note_answer(&push->engine, FANIN_BLOCK_OPEN, &ranks);
}

/* The only question about this block is answered: takes a sample of the round trip time. */
void
fanin_push_note_answered(struct fanin_push *push, uint32_t block)
{
	struct push_lane *lane = push_lane(push, block);

	if (!push_is_sent(push, block) || lane->asked_ns == 0)
		return;
	if (lane->asked_ns >= push->engine.loop.resumed_ns)
		fanin_rtt_sample(&push->engine.rtt, push->engine.loop.now_ns - lane->asked_ns);
	lane->asked_ns = 0;
}

void
fanin_push_receive_here(struct fanin_push *push, uint32_t block, const struct fanin_push_here *here)
{
	if (!push_is_home(push, block))
		fanin_push_note_answered(push, block);
	if (block == push->engine.oldest && push_is_sent(push, block))
		note(push, here);
}

void
fanin_push_on_answer(struct fanin_engine *engine, uint32_t block,
		     const struct fanin_answer_ranks *ranks)
{
	struct fanin_push *push = push_of(engine);
	struct push_entry *entry = push_entry(push, block);

	if (!push_is_home(push, block) || !entry->is_open || entry->block != block)
		return;
	fanin_push_note_answered(push, block);
	entry->is_answered = true;
	entry->unseen = ranks->missing.words[0];
	entry->ended = ranks->ended.words[0];
	entry->silent = ranks->silent.words[0];
	/* The root's sum, if there was one, has arrived before this ANSWER. */
	if (is_overtaken(push, block) && push_lane(push, block)->n_asked == 1) {
		push_lane(push, block)->ask_ns = engine->loop.now_ns;
		fanin_loop_wake_by(&engine->loop, engine->loop.now_ns);
	}
}

/*
 * Filters an ANSWER about the oldest block: a rank that the switch has not seen may have sent its
 * data to this rank directly.
 */
void
fanin_push_filter_missing(struct fanin_engine *engine, struct fanin_answer_ranks *ranks)
{
	struct fanin_push *push = push_of(engine);
	struct fanin_push_here here;

	if (!push_is_home(push, engine->oldest))
		return;
	fanin_push_home_lacks(push, engine->oldest, &here);
	*ranks = (struct fanin_answer_ranks){
		.missing = fanin_ranks_of_word(here.missing),
		.ended = fanin_ranks_of_word(here.ended),
		.silent = fanin_ranks_of_word(here.silent),
	};
}

uint64_t
fanin_push_unanswered(const struct fanin_push *push, uint64_t ns)
{
	const struct fanin_loop *loop = &push->engine.loop;
	uint64_t ranks = 0;

	for (unsigned int rank = 0; rank < push->engine.config.size; rank++) {
		const uint64_t since_ns = push->unanswered_ns[rank];

		/* Packets that arrived while the caller was away have been read by now. */
		if (since_ns != 0 && loop->now_ns - fanin_later(since_ns, loop->resumed_ns) >= ns)
			ranks |= UINT64_C(1) << rank;
	}
	return ranks;
}

/*
 * Reports ranks that have not answered for most of the timeout and that the oldest block waits for.
 */
static void
silence_check(struct fanin_push *push)
{
	const struct fanin_engine *engine = &push->engine;
	const uint32_t oldest = engine->oldest;
	struct fanin_push_here here;

	if (!push_is_sent(push, oldest))
		return;
	if (push_is_home(push, oldest)) {
		fanin_push_home_lacks(push, oldest, &here);
	} else {
		here.silent = fanin_push_unanswered(push, engine->config.timeout_ns * 3 / 5) &
			      UINT64_C(1) << push_home_of(push, oldest);
		here.missing = here.silent;
		here.ended = 0;
	}
	if (here.silent != 0)
		note(push, &here);
}

/* Returns the ranks that a question about the block goes to. */
static uint64_t
asked_ranks(const struct fanin_push *push, uint32_t block)
{
	const struct push_entry *entry = push_entry(push, block);

	if (!push_is_home(push, block))
		return UINT64_C(1) << push_home_of(push, block);
	return push->all & ~push->self &
	       ~(entry->is_open && entry->block == block ? entry->members : 0);
}

/*
 * Returns the interval after this question. It doubles as long as answers arrive, and is bounded
 * tightly if one is missing.
 */
static uint64_t
next_wait_ns(const struct fanin_push *push, const struct push_lane *lane, uint32_t block)
{
	const struct fanin_engine *engine = &push->engine;
	const uint64_t min_ns = fanin_engine_query_wait_ns(engine);
	const uint64_t wait_ns = lane->ask_wait_ns == 0 ? min_ns : 2 * lane->ask_wait_ns;
	uint64_t max_ns = fanin_engine_ask_max_ns(engine);

	if ((push->unanswered & asked_ranks(push, block)) != 0)
		max_ns = fanin_earlier(max_ns, fanin_later(min_ns, engine->config.timeout_ns /
									   MIN_QUESTIONS));
	else if (is_overtaken(push, block))
		max_ns = fanin_earlier(max_ns, MAX_DOUBLED * min_ns);
	return fanin_earlier(wait_ns, max_ns);
}

static void
ask(struct fanin_push *push, struct push_lane *lane, uint32_t block)
{
	const uint64_t now_ns = push->engine.loop.now_ns;

	lane->ask_wait_ns = next_wait_ns(push, lane, block);
	lane->ask_ns = now_ns + lane->ask_wait_ns;
	lane->asked_ns = lane->n_asked == 0 ? now_ns : 0;
	fanin_engine_lane(&push->engine, block)->asked = true;
	if (push_is_home(push, block)) {
		/* The question may finish the block, so the lane's counter is incremented first. */
		fanin_push_home_ask(push, block, lane->n_asked++);
		return;
	}
	lane->n_asked++;
	if (fanin_push_question(push, push_home_of(push, block), FANIN_PUSH_QUERY, block))
		push->engine.stats.queries++;
}

static bool
is_wanted(const struct fanin_push *push, uint32_t block)
{
	const struct push_entry *entry = push_entry(push, block);

	return push_is_home(push, block) && entry->is_open && entry->block == block &&
	       entry->is_wanted;
}

/*
 * Asks about the block if that is due. Returns when the next question is due, or UINT64_MAX if
 * nothing is due until a packet arrives. Ranks that do not answer are asked about their first block
 * only; the other blocks follow once the rank is heard again.
 */
static uint64_t
block_check(struct fanin_push *push, uint32_t block)
{
	const struct fanin_engine *engine = &push->engine;
	const struct fanin_lane *sent = fanin_engine_lane(engine, block);
	struct push_lane *lane = push_lane(push, block);
	const uint64_t query_wait_ns = fanin_engine_query_wait_ns(engine);
	uint64_t due_ns, ranks;

	if (!push_is_sent(push, block))
		return UINT64_MAX;
	if (is_wanted(push, block))
		due_ns = sent->sent_ns + query_wait_ns;
	else if (is_overtaken(push, block))
		due_ns = fanin_later(lane->overtaken_ns, sent->sent_ns) + query_wait_ns;
	else if (block == engine->oldest)
		due_ns = fanin_later(push->oldest_ns, sent->sent_ns) + FIRST_AFTER * query_wait_ns;
	else
		return UINT64_MAX;
	due_ns = fanin_later(due_ns, lane->ask_ns);
	ranks = asked_ranks(push, block);
	if (ranks != 0 && (ranks & ~push->waited_for) == 0)
		return fanin_later(due_ns, engine->loop.timers_ns + query_wait_ns);
	if (due_ns <= engine->loop.timers_ns) {
		ask(push, lane, block);
		due_ns = lane->ask_ns;
	}
	push->waited_for |= ranks & push->unanswered;
	return due_ns;
}

void
fanin_push_scan(struct fanin_engine *engine)
{
	struct fanin_push *push = push_of(engine);
	uint64_t next_ns = UINT64_MAX;

	silence_check(push);
	push->unanswered = fanin_push_unanswered(push,
						 SILENT_AFTER * fanin_engine_query_wait_ns(engine));
	push->waited_for = 0;
	for (uint32_t block = engine->oldest;
	     block != push->next && engine->loop.status == FANIN_OK; block++)
		next_ns = fanin_earlier(next_ns, block_check(push, block));
	engine->loop.next_timer_ns = next_ns;
}
