/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What PA-ATP's aggregating switch knows of a job's run besides its slots: each rank's progress,
 * which blocks are split or finished, and how many aggregators are in use (section III.B, "progress
 * degree" and "AECN feedback"). Workers share this state, so everything is atomic.
 */
#include "protocols/pa_atp/switch/pa_atp.h"

static uint32_t
load(const uint32_t *word)
{
	return __atomic_load_n(word, __ATOMIC_RELAXED);
}

static void
store(uint32_t *word, uint32_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELAXED);
}

static uint64_t
load64(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_RELAXED);
}

static void
store64(uint64_t *word, uint64_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELAXED);
}

static uint32_t
block_mask(const struct fanin_job_params *job)
{
	return 2u * job->window - 1;
}

static struct pa_atp_block *
entry_of(const struct fanin_handler_ctx *ctx, uint32_t block)
{
	struct pa_atp_state *state = ctx->state;

	return &state->blocks[block & block_mask(ctx->job)];
}

size_t
pa_atp_state_size(const struct fanin_job_params *job)
{
	return sizeof(struct pa_atp_state) + 2 * job->window * sizeof(struct pa_atp_block);
}

/* Subtracts overflowed gradients from the jobs' common count, and from this job's share. */
static void
forget_overflows(struct pa_atp_state *state, uint32_t n)
{
	if (n == 0)
		return;
	__atomic_fetch_sub(&state->overflowed, n, __ATOMIC_RELAXED);
	__atomic_fetch_sub(&state->common->overflowed, n, __ATOMIC_RELAXED);
}

void
pa_atp_state_release(const struct fanin_job_params *job, void *memory)
{
	struct pa_atp_state *state = memory;

	(void)job;
	forget_overflows(state, load(&state->overflowed));
}

void
pa_atp_begin_run(const struct fanin_job_params *job, struct pa_atp_state *state, uint32_t first)
{
	/* The value is always the same, but slots of an earlier run may still point here. */
	if (state->common == NULL)
		state->common = job->slots.common;
	forget_overflows(state, load(&state->overflowed));
	store(&state->first, first);
	store(&state->progress, first);
	store(&state->pressure, 0);
	store64(&state->sum, 0);
	for (unsigned int rank = 0; rank < job->n_ranks; rank++)
		store64(&state->sent[rank], 0);
	for (uint32_t i = 0; i <= block_mask(job); i++) {
		/* One before all blocks of the run, so finished in any case. */
		store(&state->blocks[i].begun, first - 1);
		store(&state->blocks[i].finished, first - 1);
		store64(&state->blocks[i].overflowed, 0);
	}
}

enum fanin_verdict
pa_atp_enter_run(const struct fanin_handler_ctx *ctx, enum fanin_reason *reason)
{
	struct pa_atp_state *state = ctx->state;
	enum fanin_verdict verdict = FANIN_VERDICT_HELD;
	uint32_t epoch;

	if (__builtin_expect(pa_atp_is_run(ctx), 1))
		return FANIN_VERDICT_HELD;
	if (__atomic_exchange_n(&state->busy, 1, __ATOMIC_ACQUIRE) != 0)
		return FANIN_VERDICT_RETRY;
	epoch = load(&state->epoch);
	if (epoch == 0 || fanin_block_before(epoch, ctx->epoch)) {
		pa_atp_begin_run(ctx->job, state, 0);
		__atomic_store_n(&state->epoch, ctx->epoch, __ATOMIC_RELEASE);
	} else if (epoch != ctx->epoch) {
		verdict = fanin_drop(reason, FANIN_REASON_EPOCH);
	}
	__atomic_store_n(&state->busy, 0, __ATOMIC_RELEASE);
	return verdict;
}

bool
pa_atp_is_run(const struct fanin_handler_ctx *ctx)
{
	const struct pa_atp_state *state = ctx->state;

	return __atomic_load_n(&state->epoch, __ATOMIC_ACQUIRE) == ctx->epoch;
}

bool
pa_atp_is_finished(const struct fanin_job_params *job, const struct pa_atp_state *state,
		   uint32_t block)
{
	return fanin_block_before(block, load(&state->progress)) ||
	       load(&state->blocks[block & block_mask(job)].finished) == block;
}

static void
take_off_overflows(const struct fanin_handler_ctx *ctx, struct pa_atp_block *entry)
{
	if (load64(&entry->overflowed) != 0)
		forget_overflows(ctx->state, (uint32_t)__builtin_popcountll(
						     __atomic_exchange_n(&entry->overflowed, 0,
									 __ATOMIC_RELAXED)));
}

struct pa_atp_block *
pa_atp_open_block(const struct fanin_handler_ctx *ctx, uint32_t block)
{
	struct pa_atp_block *entry = entry_of(ctx, block);

	if (__builtin_expect(load(&entry->begun) != block, 0)) {
		take_off_overflows(ctx, entry);
		store(&entry->split, 0);
		store64(&entry->passed, 0);
		store(&entry->begun, block);
		ctx->stats->blocks++;
	}
	return entry;
}

/*
 * A worker that was interrupted while it finished blocks may come here with an old block, whose
 * record another block has by now.
 */
static void
finish_entry(const struct fanin_handler_ctx *ctx, struct pa_atp_block *entry, uint32_t block)
{
	if (fanin_block_before(block, load(&entry->begun)))
		return;
	/* A result known from an earlier run may be the only packet of its block. */
	pa_atp_open_block(ctx, block);
	take_off_overflows(ctx, entry);
	if (__atomic_exchange_n(&entry->finished, block, __ATOMIC_RELAXED) != block)
		ctx->stats->results++;
}

void
pa_atp_finish_block(const struct fanin_handler_ctx *ctx, uint32_t block)
{
	finish_entry(ctx, entry_of(ctx, block), block);
}

/*
 * A block whose result did not pass here is finished. If another worker has entered its slot, the
 * slot stays in use until a block of the job finds it, or its timer expires.
 */
static void
give_up_block(struct fanin_handler_ctx *ctx, uint32_t block)
{
	const struct fanin_slots *slots = &ctx->job->slots;
	struct pa_atp_slot *slot = (void *)slots->by_index[fanin_slot_index(slots, block)];

	if (!fanin_slot_enter(&slot->tag))
		return;
	pa_atp_finish_slot(ctx, slot, block);
	fanin_slot_leave(&slot->tag);
}

/*
 * Returns the first block at or after this one, and before `end`, whose result no rank can have: it
 * has not passed here, and is not from an earlier run.
 */
static uint32_t
first_without_result(const struct fanin_job_params *job, const struct pa_atp_state *state,
		     uint32_t block, uint32_t end)
{
	const uint32_t first = load(&state->first);

	while (block != end && (block - first < job->window ||
				load(&state->blocks[block & block_mask(job)].finished) == block))
		block++;
	return block;
}

bool
pa_atp_may_ask(const struct fanin_handler_ctx *ctx, uint32_t block)
{
	const struct pa_atp_state *state = ctx->state;
	const uint32_t window = ctx->job->window, begin = load(&state->progress);

	return fanin_block_before(block, begin + window) ||
	       fanin_block_before(block,
				  first_without_result(ctx->job, state, begin, begin + 2 * window) +
					  window);
}

bool
pa_atp_may_know(const struct fanin_handler_ctx *ctx, uint32_t block)
{
	const struct pa_atp_state *state = ctx->state;

	return block - load(&state->first) < ctx->job->window;
}

bool
pa_atp_note_progress(struct fanin_handler_ctx *ctx, uint32_t progress)
{
	struct pa_atp_state *state = ctx->state;
	const uint32_t mask = block_mask(ctx->job);
	uint32_t block = load(&state->progress);

	do {
		if (__builtin_expect(!fanin_block_before(block, progress), 1))
			return true;
		if (progress - block > mask + 1 ||
		    first_without_result(ctx->job, state, block, progress) != progress)
			return false;
	} while (!__atomic_compare_exchange_n(&state->progress, &block, progress, false,
					      __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	for (; block != progress; block++) {
		if (__builtin_expect(load(&state->blocks[block & mask].finished) != block, 0))
			give_up_block(ctx, block);
	}
	return true;
}

void
pa_atp_note_gradient(const struct fanin_handler_ctx *ctx, unsigned int rank, uint32_t block)
{
	struct pa_atp_state *state = ctx->state;
	uint64_t sent = load64(&state->sent[rank]);
	uint64_t now;

	do {
		/* All ranks count from the run's first block, even if block numbers wrap around. */
		const uint64_t from = sent == 0 ? load(&state->first) : sent;
		const int32_t ahead = (int32_t)(block + 1 - (uint32_t)from);

		now = from + (uint64_t)(int64_t)ahead;
		/* The count only grows, so copies and late packets don't change it. */
		if (ahead < 0 || now == sent)
			return;
	} while (!__atomic_compare_exchange_n(&state->sent[rank], &sent, now, false,
					      __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	__atomic_fetch_add(&state->sum, now - sent, __ATOMIC_RELAXED);
}

bool
pa_atp_is_short(const struct fanin_handler_ctx *ctx)
{
	const struct pa_atp_state *state = ctx->state;
	const struct fanin_job_params *job = ctx->job;
	/*
	 * A run that ends takes its overflows back at once, while its last result takes back those
	 * of a block. So the count may be negative for a moment.
	 */
	const int32_t overflowed = (int32_t)load(&state->common->overflowed);
	const uint64_t busy = load(&state->common->used) + (uint64_t)RTE_MAX(overflowed, 0);
	const uint64_t all = (uint64_t)job->slots.mask + 1 + job->parameters[FANIN_PA_ATP_BDP];

	return busy * 100 > job->parameters[FANIN_PA_ATP_ETA] * all;
}

/* Records that more is in use than before. */
static void
look_at_threshold(const struct fanin_handler_ctx *ctx)
{
	struct pa_atp_state *state = ctx->state;

	if (__builtin_expect(pa_atp_is_short(ctx), 0) && load(&state->pressure) == 0)
		store(&state->pressure, 1);
}

void
pa_atp_note_overflow(const struct fanin_handler_ctx *ctx, struct pa_atp_block *entry,
		     uint64_t members)
{
	struct pa_atp_state *state = ctx->state;
	const uint64_t before = __atomic_fetch_or(&entry->overflowed, members, __ATOMIC_RELAXED);
	const uint32_t n = (uint32_t)__builtin_popcountll(members & ~before);

	__atomic_fetch_add(&state->overflowed, n, __ATOMIC_RELAXED);
	__atomic_fetch_add(&state->common->overflowed, n, __ATOMIC_RELAXED);
	look_at_threshold(ctx);
}

void
pa_atp_use_slot(const struct fanin_handler_ctx *ctx, struct pa_atp_slot *slot)
{
	struct pa_atp_state *state = ctx->state;

	slot->state = state;
	__atomic_fetch_add(&state->used, 1, __ATOMIC_RELAXED);
	__atomic_fetch_add(&state->common->used, 1, __ATOMIC_RELAXED);
	look_at_threshold(ctx);
}

void
pa_atp_unuse_slot(struct pa_atp_slot *slot)
{
	__atomic_fetch_sub(&slot->state->used, 1, __ATOMIC_RELAXED);
	__atomic_fetch_sub(&slot->state->common->used, 1, __ATOMIC_RELAXED);
	slot->state = NULL;
}

bool
pa_atp_take_pressure(const struct fanin_handler_ctx *ctx)
{
	struct pa_atp_state *state = ctx->state;

	return load(&state->pressure) != 0 &&
	       __atomic_exchange_n(&state->pressure, 0, __ATOMIC_RELAXED) != 0;
}

void
pa_atp_note_round_trip(const struct fanin_handler_ctx *ctx, uint64_t ns)
{
	struct pa_atp_state *state = ctx->state;
	const uint64_t smoothed = load64(&state->round_trip_ns);

	/* Workers may overwrite each other's samples; the result is an estimate. */
	store64(&state->round_trip_ns, smoothed == 0 ? ns : smoothed - smoothed / 8 + ns / 8);
}

bool
pa_atp_rank_progress(const struct fanin_job_params *job, const void *memory, uint32_t epoch,
		     struct fanin_rank_progress *progress)
{
	const struct pa_atp_state *state = memory;

	if (epoch == 0 || __atomic_load_n(&state->epoch, __ATOMIC_ACQUIRE) != epoch)
		return false;
	progress->n_ranks = job->n_ranks;
	for (unsigned int rank = 0; rank < job->n_ranks; rank++) {
		const uint64_t sent = load64(&state->sent[rank]);

		progress->blocks[rank] = sent == 0 ? load(&state->first) : (uint32_t)sent;
	}
	progress->slots_used = load(&state->used);
	progress->overflowed = (uint32_t)RTE_MAX((int32_t)load(&state->overflowed), 0);
	return true;
}
