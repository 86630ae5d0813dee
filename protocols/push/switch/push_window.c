/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Push: notes how far a job's neighbors are, and derives which blocks none of them can have sent
 * yet (protocols/push/README.md, "How new a block may be"). Without this, a single packet with a
 * number far ahead would block its slot for all true blocks until their numbers have come that far.
 *
 * A slot alone does not tell: its last block may be long ago, if packets were lost and the home
 * host has completed the blocks in between. But data and results of any block travel over the
 * tree's links only. Let rank p behind neighbor c send block b. Then p has the result of b - W,
 * which has data of the ranks behind every other neighbor d. That data has come from d through this
 * switch, as a CONTRIBUTION or PARTIAL, as DATA, or in a result. Workers note it before they
 * forward the packet, so every consequence of the packet arrives after the note.
 */
#include "protocols/push/switch/push.h"

/*
 * The note of every neighbor when a run begins: block W - 1, because results of blocks before W may
 * be known from an earlier run.
 */
static uint32_t
begun(const struct fanin_job_params *job)
{
	return job->window - push_slack(job);
}

static uint64_t
word(uint32_t epoch, uint32_t block)
{
	return (uint64_t)epoch << 32 | block;
}

static uint32_t
noted_of(const struct fanin_handler_ctx *ctx, unsigned int neighbor)
{
	const struct push_state *state = ctx->state;
	const uint64_t noted = __atomic_load_n(&state->newest[neighbor], __ATOMIC_RELAXED);

	return (uint32_t)(noted >> 32) == ctx->epoch ? (uint32_t)noted : begun(ctx->job);
}

/* Compares a block with the newest one noted of a neighbor. */
static enum fanin_reason
compare(const struct fanin_handler_ctx *ctx, unsigned int neighbor, uint32_t block)
{
	const int32_t window = ctx->job->window;
	const int32_t ahead = (int32_t)(block - noted_of(ctx, neighbor));

	if (ahead >= window + (int32_t)push_slack(ctx->job))
		return FANIN_REASON_BLOCK_WINDOW;
	/*
	 * A rank behind that neighbor has sent a newer block, which it could do only when all ranks
	 * had the result of this one.
	 */
	return ahead <= -2 * window ? FANIN_REASON_BLOCK_STALE : FANIN_REASON_NONE;
}

enum fanin_reason
push_check_block(const struct fanin_handler_ctx *ctx, unsigned int neighbor, uint32_t block)
{
	const struct fanin_job_params *job = ctx->job;
	enum fanin_reason reason = FANIN_REASON_NONE;

	for (unsigned int child = 0; child < job->n_children && reason == FANIN_REASON_NONE;
	     child++) {
		if (child != neighbor)
			reason = compare(ctx, child, block);
	}
	/* Compare with the parent only if it leads to ranks that are not below this switch. */
	if (reason == FANIN_REASON_NONE && neighbor != PUSH_PARENT && job->has_parent &&
	    job->n_below != job->n_ranks)
		reason = compare(ctx, PUSH_PARENT, block);
	return reason;
}

void
push_note_newer(const struct fanin_handler_ctx *ctx, unsigned int neighbor, uint32_t block)
{
	struct push_state *state = ctx->state;
	uint64_t noted = __atomic_load_n(&state->newest[neighbor], __ATOMIC_RELAXED);
	uint32_t newest;

	/*
	 * Do not note a number that no rank can have sent. It would let others get as far ahead, or
	 * shut them out if it is past half of the number space.
	 */
	if (push_check_block(ctx, neighbor, block) != FANIN_REASON_NONE)
		return;
	do {
		newest = begun(ctx->job);
		if ((uint32_t)(noted >> 32) == ctx->epoch)
			newest = (uint32_t)noted;
		else if (noted != 0 && fanin_block_before(ctx->epoch, (uint32_t)(noted >> 32)))
			return;
		if (fanin_block_before(newest, block))
			newest = block;
		if (noted == word(ctx->epoch, newest))
			return;
	} while (!__atomic_compare_exchange_n(&state->newest[neighbor], &noted,
					      word(ctx->epoch, newest), false, __ATOMIC_RELAXED,
					      __ATOMIC_RELAXED));
}

void
push_note_message(const struct fanin_handler_ctx *ctx, const struct fanin_packet *packet)
{
	const struct fanin_hdr *hdr = &packet->headers->fanin;
	const bool is_down = fanin_type_direction(hdr->type) == FANIN_DOWN;

	switch (hdr->number & 0xff) {
	case FANIN_PUSH_DATA:
	case FANIN_PUSH_REPEAT:
	case FANIN_PUSH_RESULT:
		push_note(ctx, is_down ? PUSH_PARENT : packet->child, hdr->block);
		break;
	default:
		/* HERE is about a block that its sender has not sent. */
		break;
	}
}
