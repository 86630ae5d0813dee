/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Queries about blocks of dense handlers, and the parent's answers to queries that were passed on
 * (protocols/dense/README.md, "Asking"). A query never moves a slot to another block. It enters
 * only the slot of the queried block, to use its result; other slots are only read.
 */
#include <string.h>

#include <rte_common.h>

#include "protocols/dense/switch/dense.h"

/* A worker changes a slot faster than a thread takes this many looks. */
#define MAX_LOOKS 4

/* Takes one look. Returns false if the slot changed meanwhile. */
static bool
look(const struct fanin_dense_state *state, uint32_t epoch, uint32_t block, unsigned int child,
     enum fanin_block_state *found)
{
	const uint64_t word = __atomic_load_n(&state->word, __ATOMIC_ACQUIRE);
	const enum fanin_dense_phase phase = word >> FANIN_STATE_PHASE_SHIFT &
					     FANIN_STATE_PHASE_MASK;
	const uint32_t current = (uint32_t)(word >> 32);
	const uint32_t run = __atomic_load_n(&state->epoch, __ATOMIC_ACQUIRE);
	const uint64_t present = __atomic_load_n(&state->present, __ATOMIC_ACQUIRE);

	if (phase == FANIN_PHASE_SETUP)
		return false;
	if (run != epoch || fanin_block_before(current, block))
		*found = FANIN_BLOCK_ABSENT;
	else if (current != block || phase == FANIN_PHASE_DONE || phase == FANIN_PHASE_FRESH)
		*found = FANIN_BLOCK_DONE;
	else if (phase == FANIN_PHASE_SENT)
		*found = FANIN_BLOCK_SENT;
	else
		*found = (present >> child & 1) != 0 ? FANIN_BLOCK_OPEN : FANIN_BLOCK_ABSENT;
	return (__atomic_load_n(&state->word, __ATOMIC_ACQUIRE) & ~FANIN_STATE_USERS) ==
		       (word & ~FANIN_STATE_USERS) &&
	       __atomic_load_n(&state->epoch, __ATOMIC_RELAXED) == run;
}

static const struct fanin_dense *
dense_of(const struct fanin_job_params *job, uint32_t block)
{
	return (const void *)job->slots.by_index[fanin_slot_index(&job->slots, block)];
}

/*
 * Returns a block's state. A block whose slot keeps changing counts as OPEN, about which the child
 * does nothing.
 */
static enum fanin_block_state
block_state(const struct fanin_handler_ctx *ctx, uint32_t block, unsigned int child)
{
	const struct fanin_dense *dense = dense_of(ctx->job, block);
	enum fanin_block_state found;

	for (unsigned int i = 0; i < MAX_LOOKS; i++) {
		if (look(&dense->state, ctx->epoch, block, child, &found))
			return found;
	}
	return FANIN_BLOCK_OPEN;
}

/*
 * Writes the set of ranks behind these missing children, and whether they have ended or are silent.
 * About ranks elsewhere nothing is known here.
 */
static void
write_ranks(const struct fanin_handler_ctx *ctx, uint64_t children, uint8_t *sets)
{
	const struct fanin_job_params *job = ctx->job;
	const uint32_t len = fanin_ranks_bytes(job->n_ranks);

	for (uint32_t at = 0; at < len; at += (uint32_t)sizeof(uint64_t)) {
		const uint32_t i = at / (uint32_t)sizeof(uint64_t);
		uint64_t missing = 0, ended = 0, silent = 0, first, second;

		for (uint64_t left = children; left != 0; left &= left - 1)
			missing |= job->child_ranks[__builtin_ctzll(left)].words[i];
		if (ctx->ended != NULL)
			ended = __atomic_load_n(&ctx->ended->words[i], __ATOMIC_RELAXED);
		if (ctx->silent != NULL)
			silent = __atomic_load_n(&ctx->silent->words[i], __ATOMIC_RELAXED);
		fanin_answer_encode_word(missing, ended, silent, &first, &second);
		memcpy(sets + at, &first, sizeof(first));
		memcpy(sets + len + at, &second, sizeof(second));
	}
}

void
fanin_dense_make_answer(struct fanin_handler_ctx *ctx, const struct fanin_packet *packet,
			enum fanin_block_state state, uint64_t missing,
			const struct fanin_answer_body *body, const uint64_t *shards)
{
	uint32_t len = fanin_answer_len(ctx->job->n_ranks);
	struct fanin_hdr *hdr = &packet->headers->fanin;
	const struct fanin_hdr asked = *hdr;

	fanin_frame_answer_to(packet->headers);
	fanin_wire_encode_header(hdr, FANIN_TYPE_ANSWER, ctx->job->id, ctx->epoch,
				 ctx->job->keys.down);
	hdr->rank = asked.rank;
	hdr->block = asked.block;
	hdr->count = (uint16_t)state;
	hdr->members = asked.type == FANIN_TYPE_QUERY ? asked.members : 0;
	hdr->number = asked.number;
	memcpy(packet->headers + 1, body, sizeof(*body));
	write_ranks(ctx, missing, (uint8_t *)(packet->headers + 1) + sizeof(*body));
	if (shards != NULL) {
		memcpy((uint8_t *)(packet->headers + 1) + len, shards, sizeof(*shards));
		len += (uint32_t)sizeof(*shards);
	}
	fanin_emit(ctx, FANIN_EMIT_REPLY, packet->mbuf, UINT64_C(1) << packet->child, len);
}

void
fanin_dense_fill_states(const struct fanin_handler_ctx *ctx, const struct fanin_packet *packet,
			enum fanin_block_state state, struct fanin_answer_body *body)
{
	const uint32_t block = packet->headers->fanin.block;

	const uint16_t most = RTE_MIN(ctx->job->window, FANIN_ANSWER_BLOCKS);

	body->n_blocks = (uint16_t)RTE_MAX(RTE_MIN(packet->headers->fanin.count, most), 1);
	for (uint32_t i = 1; i < body->n_blocks; i++)
		rte_prefetch0(dense_of(ctx->job, block + i));
	fanin_answer_set_state(body, 0, state);
	for (uint32_t i = 1; i < body->n_blocks; i++)
		fanin_answer_set_state(body, i, block_state(ctx, block + i, packet->child));
}

enum fanin_verdict
fanin_dense_pass_up(struct fanin_handler_ctx *ctx, const struct fanin_packet *packet,
		    const uint64_t *shards)
{
	const uint32_t len = shards == NULL ? 0 : (uint32_t)sizeof(*shards);
	const struct fanin_hdr asked = packet->headers->fanin;
	struct fanin_hdr *hdr = fanin_frame_make(ctx, FANIN_TYPE_QUERY, asked.block, len,
						 packet->mbuf);

	hdr->flags = FANIN_FLAG_RETRANSMIT | (asked.flags & FANIN_FLAG_DIRECT);
	hdr->number = asked.number;
	hdr->members = fanin_way_push(asked.members, packet->child);
	if (shards != NULL)
		memcpy(hdr + 1, shards, sizeof(*shards));
	fanin_frame_send_up(ctx, packet->mbuf);
	ctx->stats->upward_queries++;
	return FANIN_VERDICT_HELD;
}

void
fanin_dense_answer_duplicate(struct fanin_handler_ctx *ctx, const struct fanin_dense *dense,
			     const struct fanin_packet *packet, enum fanin_block_state state)
{
	const uint64_t present = __atomic_load_n(&dense->state.present, __ATOMIC_RELAXED);
	const bool open = state == FANIN_BLOCK_OPEN;
	struct fanin_answer_body body = { 0 };

	fanin_dense_make_answer(ctx, packet, state, open ? ctx->job->children & ~present : 0, &body,
				NULL);
	ctx->stats->pendings += open;
}

/*
 * Several children may ask for a block that was sent up. Only the first query is passed on, and
 * that of a child that asks again, so a loss further up causes one repetition rather than one for
 * each child. Once a block is sent, `present` is free to record this: it has the bits of children
 * that have asked since the last sending cleared. The caller has entered.
 */
bool
fanin_dense_may_pass_up(const struct fanin_handler_ctx *ctx, struct fanin_dense *dense,
			unsigned int child)
{
	const uint64_t bit = UINT64_C(1) << child;
	const uint64_t present = __atomic_fetch_and(&dense->state.present, ~bit, __ATOMIC_RELAXED);
	const uint64_t asked = ctx->job->children & ~present;

	return asked == 0 || (asked & bit) != 0;
}

static bool
is_open(const struct fanin_dense_state *state)
{
	const uint64_t word = __atomic_load_n(&state->word, __ATOMIC_ACQUIRE);

	return (word >> FANIN_STATE_PHASE_SHIFT & FANIN_STATE_PHASE_MASK) == FANIN_PHASE_OPEN;
}

enum fanin_verdict
fanin_dense_query(struct fanin_handler_ctx *ctx, void *slot, struct fanin_packet *packet,
		  enum fanin_reason *reason)
{
	struct fanin_dense *dense = slot;
	const struct fanin_hdr *hdr = &packet->headers->fanin;
	const bool overdue = (hdr->flags & FANIN_FLAG_RETRANSMIT) != 0;
	const bool shared = ctx->job->shared;
	enum fanin_block_state state = FANIN_BLOCK_ABSENT;
	bool pass = false;
	struct fanin_answer_body body = { 0 };
	uint64_t missing = 0;

	switch (fanin_dense_state_visit(&dense->state, ctx, hdr->block)) {
	case FANIN_DENSE_BUSY:
		return FANIN_VERDICT_RETRY;
	case FANIN_DENSE_OLD_RUN:
		return fanin_drop(reason, FANIN_REASON_EPOCH);
	case FANIN_DENSE_STALE:
		/* No child that keeps to the window can lack this result. */
		if (overdue)
			return fanin_drop(reason, FANIN_REASON_BLOCK_STALE);
		state = FANIN_BLOCK_DONE;
		break;
	case FANIN_DENSE_CURRENT:
		missing = ctx->job->children &
			  ~__atomic_load_n(&dense->state.present, __ATOMIC_ACQUIRE);
		if ((missing >> packet->child & 1) == 0)
			state = FANIN_BLOCK_OPEN;
		/*
		 * Another worker may have added the last contribution meanwhile: then no child is
		 * missing.
		 */
		if (shared && (missing == 0 || !is_open(&dense->state))) {
			missing = 0;
			state = FANIN_BLOCK_OPEN;
		}
		fanin_dense_state_leave(&dense->state, shared);
		break;
	case FANIN_DENSE_SENT:
		state = FANIN_BLOCK_SENT;
		pass = overdue && fanin_dense_may_pass_up(ctx, dense, packet->child);
		fanin_dense_state_leave(&dense->state, shared);
		break;
	case FANIN_DENSE_FINISHED:
		state = FANIN_BLOCK_DONE;
		if (overdue)
			fanin_dense_repeat_result(ctx, dense, packet->child);
		fanin_dense_state_leave(&dense->state, shared);
		break;
	default: /* nothing of this block has come yet */
		missing = ctx->job->children;
		break;
	}
	ctx->stats->queries++;
	if (pass)
		return fanin_dense_pass_up(ctx, packet, NULL);
	if (state == FANIN_BLOCK_OPEN)
		ctx->stats->pendings++;
	if (overdue)
		ctx->missing |= missing & ~(UINT64_C(1) << packet->child);
	fanin_dense_fill_states(ctx, packet, state, &body);
	fanin_dense_make_answer(ctx, packet, state, missing, &body, NULL);
	return FANIN_VERDICT_HELD;
}

/*
 * The parent lacks this switch's packet: sends it again, unless it was sent after the child asked
 * whose query the parent answers.
 */
enum fanin_verdict
fanin_dense_send_again(struct fanin_handler_ctx *ctx, void *slot, const struct fanin_packet *packet,
		       unsigned int child)
{
	struct fanin_dense *dense = slot;
	const uint32_t block = packet->headers->fanin.block;
	const enum fanin_dense_class class = fanin_dense_state_visit(&dense->state, ctx, block);

	if (class == FANIN_DENSE_BUSY)
		return FANIN_VERDICT_RETRY;
	if (class == FANIN_DENSE_SENT &&
	    (__atomic_load_n(&dense->state.present, __ATOMIC_RELAXED) >> child & 1) == 0) {
		__atomic_fetch_or(&dense->state.present, ctx->job->children, __ATOMIC_RELAXED);
		fanin_dense_repeat_upward(ctx, dense);
	}
	if (class == FANIN_DENSE_SENT || class == FANIN_DENSE_CURRENT ||
	    class == FANIN_DENSE_FINISHED)
		fanin_dense_state_leave(&dense->state, ctx->job->shared);
	return FANIN_VERDICT_FREE;
}

enum fanin_verdict
fanin_dense_answer_or(struct fanin_handler_ctx *ctx, void *slot, struct fanin_packet *packet,
		      fanin_dense_again_fn again)
{
	const struct fanin_hdr *hdr = &packet->headers->fanin;
	unsigned int child;
	uint64_t way;

	/*
	 * Too short for a job of this size, so not from the parent. Number 0 answers a contribution
	 * that the parent had already.
	 */
	if (packet->payload_len < fanin_answer_len(ctx->job->n_ranks) || hdr->number == 0 ||
	    !fanin_answer_asker(ctx->job, hdr, &way, &child))
		return FANIN_VERDICT_FREE;
	if (hdr->count == FANIN_BLOCK_ABSENT)
		return again(ctx, slot, packet, child);
	return fanin_answer_down(ctx, packet, way, child);
}

enum fanin_verdict
fanin_dense_answer(struct fanin_handler_ctx *ctx, void *slot, struct fanin_packet *packet,
		   enum fanin_reason *reason)
{
	(void)reason;
	return fanin_dense_answer_or(ctx, slot, packet, fanin_dense_send_again);
}
