/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Push: a home host (protocols/push/README.md, "What the home host does"). It merges the data and
 * sums of a block (engine/sums.h). Its own data counts once it has sent the block, and stays
 * separate until all other ranks are in the sum. An entry is reused by the block 2W later: a rank
 * that sends that block has all results up to W before it, so every rank has the result of the old
 * block.
 */
#include "push_internal.h"

#include <string.h>

static uint64_t
others(const struct fanin_push *push)
{
	return push->all & ~push->self;
}

struct push_entry *
fanin_push_home_open(struct fanin_push *push, uint32_t block, uint64_t shape)
{
	const struct fanin_engine *engine = &push->engine;
	struct push_entry *entry = push_entry(push, block);

	/*
	 * No rank has results a window past this rank's oldest missing one, so none has sent a
	 * block two windows past it.
	 */
	if (fanin_block_before(block, engine->oldest) ||
	    block - engine->oldest >= 2u * engine->config.window)
		return NULL;
	if (entry->is_open && entry->block == block)
		return entry;
	push->n_unsent -= entry->is_unsent;
	*entry = (struct push_entry){
		.block = block,
		.is_open = true,
	};
	fanin_sum_begin(&push->sums, &entry->sum, &entry->members, push_frame(push, entry) + 1,
			shape);
	return entry;
}

static bool
is_done(const struct fanin_push *push, uint32_t block)
{
	return fanin_block_before(block, push->engine.oldest) ||
	       fanin_engine_is_done(&push->engine, block);
}

/* ------------------------------------------------------------------ results */

/* Sends the result of a block to all other ranks. This rank has it. */
static void
result_send(struct fanin_push *push, struct push_entry *entry)
{
	struct push_elements elements = { 0 };
	const bool was_unsent = entry->is_unsent;

	if (push->engine.config.size == 1 ||
	    !fanin_engine_result(&push->engine, entry->block, &elements.shape, &elements.payload,
				 &elements.len))
		entry->is_unsent = false;
	else
		entry->is_unsent = !fanin_push_send_all(push, FANIN_PUSH_RESULT, entry->block,
							&elements);
	push->n_unsent += entry->is_unsent;
	push->n_unsent -= was_unsent;
}

void
fanin_push_home_unsent(struct fanin_push *push)
{
	const uint32_t n = 2u * push->engine.config.window;

	for (uint32_t i = 0; i < n && push->n_unsent != 0; i++) {
		if (!push->entries[i].is_unsent)
			continue;
		result_send(push, &push->entries[i]);
		if (push->entries[i].is_unsent)
			return;
	}
}

void
fanin_push_home_finish(struct fanin_push *push, uint32_t block)
{
	struct push_entry *entry = push_entry(push, block);

	if (entry->is_open && entry->block == block && entry->has_asked)
		result_send(push, entry);
}

/* All ranks are in the sum: makes the result, which never changes afterwards. */
static void
make(struct fanin_push *push, struct push_entry *entry)
{
	struct fanin_headers *frame = push_frame(push, entry);

	fanin_engine_make_result(&push->engine, entry->block, &push->sums, &entry->sum, frame);
	push->stats.made++;
	/* Now finishing the block multicasts the result: the other ranks accept no other. */
	entry->has_asked = true;
	fanin_engine_take_result(&push->engine, entry->block, frame, fanin_sum_len(&entry->sum));
}

static void
check(struct fanin_push *push, struct push_entry *entry)
{
	struct fanin_hdr own = { 0 };
	uint32_t len;

	if (!push_is_sent(push, entry->block))
		return;
	(void)fanin_engine_contribution(fanin_engine_lane(&push->engine, entry->block), &own, &len);
	if (entry->sum.shape != 0 && entry->sum.shape != fanin_wire_shape(&own)) {
		fanin_push_mismatch(push, entry->block, push->self, entry->members & ~push->self);
		return;
	}
	if (fanin_sum_is_whole(&push->sums, &entry->sum, &push->self))
		make(push, entry);
}

/* ------------------------------------------------------------------ data */

/* The sum overlaps with ranks that are already in: asks its other ranks for their own data. */
static void
ask_overlapping(struct fanin_push *push, struct push_entry *entry, uint64_t ranks)
{
	const uint64_t now_ns = push->engine.loop.now_ns;

	push->stats.overlaps++;
	if (!push_is_sent(push, entry->block) ||
	    (entry->overlap_ns != 0 && now_ns - entry->overlap_ns < push->engine.rtt.rto_ns))
		return;
	entry->overlap_ns = now_ns;
	entry->has_asked = true;
	for (uint64_t left = ranks & others(push); left != 0; left &= left - 1) {
		(void)fanin_push_question(push, (unsigned int)__builtin_ctzll(left), FANIN_PUSH_ASK,
					  entry->block);
		push->stats.asks++;
	}
}

static bool
is_sound(const struct fanin_push *push, const struct fanin_hdr *shape)
{
	return shape->count * fanin_dtype_size(shape->dtype) <= push->engine.config.payload_bytes &&
	       (fanin_op_is_copy(shape->op) ||
		fanin_kernel(push->sums.isa, shape->dtype, shape->op) != NULL);
}

/* Copies the elements to this rank's scratch memory. Returns NULL if the frame is lost. */
static const void *
elements_of(struct fanin_push *push, const struct fanin_hdr *shape, const struct fanin_frame *frame,
	    uint32_t *len)
{
	void *scratch = push_scratch(push) + 1;

	*len = fanin_wire_is_empty(shape) ? 0 : shape->count * fanin_dtype_size(shape->dtype);
	if (*len == 0 || fanin_frame_copy(push->engine.loop.transport, frame, FANIN_PAYLOAD_OFFSET,
					  scratch, *len))
		return scratch;
	return NULL;
}

void
fanin_push_home_data(struct fanin_push *push, uint32_t block, uint64_t members,
		     const struct fanin_hdr *shape, const struct fanin_frame *frame)
{
	struct fanin_sum_part part = { .ranks = &members, .hdr = shape };
	struct push_entry *entry;
	const void *payload;
	uint32_t len;

	if (members == 0 || (members & ~push->all) != 0 || !is_sound(push, shape)) {
		push->engine.stats.invalid++;
		return;
	}
	if (is_done(push, block)) {
		push->engine.stats.duplicates++;
		return;
	}
	entry = fanin_push_home_open(push, block, fanin_wire_shape(shape));
	payload = elements_of(push, shape, frame, &len);
	if (entry == NULL || payload == NULL) {
		push->engine.stats.invalid++;
		return;
	}
	part.payload = fanin_wire_is_empty(shape) ? NULL : payload;
	switch (fanin_sum_add(&push->sums, &entry->sum, &part)) {
	case FANIN_SUM_MERGED:
		push->stats.merged++;
		break;
	case FANIN_SUM_REPLACED:
		push->stats.replaced++;
		break;
	case FANIN_SUM_DUPLICATE:
		push->engine.stats.duplicates++;
		return;
	case FANIN_SUM_OVERLAP:
		ask_overlapping(push, entry, members & ~entry->members);
		return;
	case FANIN_SUM_MISMATCH:
		fanin_push_mismatch(push, block, members, entry->members);
		return;
	}
	check(push, entry);
}

/* ------------------------------------------------------------------ questions */

void
fanin_push_home_lacks(const struct fanin_push *push, uint32_t block, struct fanin_push_here *here)
{
	const struct push_entry *entry = push_entry(push, block);
	const uint64_t timeout_ns = push->engine.config.timeout_ns;
	uint64_t lacks = others(push);

	*here = (struct fanin_push_here){ 0 };
	if (!entry->is_open || entry->block != block)
		return;
	lacks &= ~entry->members;
	here->missing = lacks & (entry->unseen | entry->here);
	here->ended = here->missing & entry->ended;
	/* A rank may be gone after it has sent the block. */
	here->silent = lacks & ~here->ended &
		       (entry->silent | fanin_push_unanswered(push, timeout_ns * 3 / 5));
	here->missing |= here->silent;
}

/*
 * Queries the root first, which sends the sum that it has. A round trip later, and repeatedly after
 * that, also asks the missing ranks for their data.
 */
void
fanin_push_home_ask(struct fanin_push *push, uint32_t block, uint32_t n_asked)
{
	struct push_entry *entry = fanin_push_home_open(push, block, 0);

	if (entry == NULL)
		return;
	check(push, entry);
	if (!push_is_sent(push, block) || push->engine.loop.status != FANIN_OK)
		return;
	(void)fanin_engine_query_root(&push->engine, block);
	if (n_asked == 0)
		return;
	entry->here = 0;
	entry->has_asked = true;
	for (uint64_t left = others(push) & ~entry->members & ~push->waited_for; left != 0;
	     left &= left - 1) {
		if (!fanin_push_question(push, (unsigned int)__builtin_ctzll(left), FANIN_PUSH_ASK,
					 block))
			return;
		push->stats.asks++;
	}
}

void
fanin_push_home_query(struct fanin_push *push, unsigned int rank, uint32_t block)
{
	struct fanin_push_here here = { .missing = push->self };
	const struct push_elements elements = { .payload = &here, .len = sizeof(here) };
	struct push_entry *entry;

	if (is_done(push, block)) {
		push->stats.repeats += fanin_push_repeat(push, rank, block);
		return;
	}
	entry = fanin_push_home_open(push, block, 0);
	if (entry == NULL) {
		push->engine.stats.invalid++;
		return;
	}
	/* A home host that has not sent the block itself asks nobody. */
	if (push_is_sent(push, block)) {
		entry->is_wanted = true;
		fanin_loop_wake_by(&push->engine.loop, push->engine.loop.now_ns);
		fanin_push_home_lacks(push, block, &here);
	}
	(void)fanin_push_send(push, rank, FANIN_PUSH_HERE, block, &elements);
}

void
fanin_push_home_here(struct fanin_push *push, unsigned int rank, uint32_t block)
{
	struct push_entry *entry = push_entry(push, block);
	struct fanin_push_here here;

	if (!entry->is_open || entry->block != block || is_done(push, block))
		return;
	entry->here |= UINT64_C(1) << rank;
	if (block != push->engine.oldest)
		return;
	fanin_push_home_lacks(push, block, &here);
	fanin_push_receive_here(push, block, &here);
}
