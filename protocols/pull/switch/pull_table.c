/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pull reductions: the entries of a switch's table, and how responses are combined in them (Klenk
 * et al., sections IV.B and IV.D; protocols/pull/README.md, "What a switch does"). A sum carries
 * the set of its ranks, so duplicates and late packets never count a rank twice. A response that
 * does not fit an entry passes uncombined.
 */
#include "protocols/pull/switch/pull.h"

static bool
enter(const struct fanin_handler_ctx *ctx, struct pull_entry *entry)
{
	return !ctx->job->shared || __atomic_exchange_n(&entry->entered, 1, __ATOMIC_ACQUIRE) == 0;
}

static void
leave(const struct fanin_handler_ctx *ctx, struct pull_entry *entry)
{
	if (ctx->job->shared)
		__atomic_store_n(&entry->entered, 0, __ATOMIC_RELEASE);
}

/* ------------------------------------------------------------------ how many there are */

/*
 * Counts one more entry in use in this run. Returns false if the table is full or the run is over.
 */
static bool
use(const struct fanin_handler_ctx *ctx)
{
	struct pull_state *state = ctx->state;
	uint64_t old = __atomic_load_n(&state->used, __ATOMIC_RELAXED);
	uint64_t new;

	do {
		const uint32_t epoch = (uint32_t)(old >> 32);
		const uint64_t n = epoch == ctx->epoch ? old & UINT32_MAX : 0;

		if (n >= ctx->job->parameters[FANIN_PULL_ENTRIES] ||
		    (epoch != 0 && fanin_block_before(ctx->epoch, epoch)))
			return false;
		new = (uint64_t)ctx->epoch << 32 | (n + 1);
	} while (!__atomic_compare_exchange_n(&state->used, &old, new, true, __ATOMIC_RELAXED,
					      __ATOMIC_RELAXED));
	return true;
}

/* Frees the entry. It is no longer counted, if the count is of its run. */
static void
unuse(const struct fanin_handler_ctx *ctx, struct pull_entry *entry)
{
	struct pull_state *state = ctx->state;
	uint64_t old = __atomic_load_n(&state->used, __ATOMIC_RELAXED);
	const uint32_t epoch = entry->epoch;

	entry->epoch = 0;
	entry->sum = NULL;
	while (old >> 32 == epoch &&
	       !__atomic_compare_exchange_n(&state->used, &old, old - 1, true, __ATOMIC_RELAXED,
					    __ATOMIC_RELAXED))
		;
}

/* ------------------------------------------------------------------ sums on their way */

/*
 * Sends a RESPONSE with the sum of these ranks on towards the packet's owner. Takes over the mbuf's
 * only reference.
 */
static void
send_on(struct fanin_handler_ctx *ctx, struct rte_mbuf *mbuf, uint64_t members)
{
	const struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, const struct fanin_headers *);
	const struct fanin_hdr said = headers->fanin;
	const uint16_t owner = fanin_pull_owner(said.block, ctx->job->n_ranks);
	const uint64_t child = fanin_child_with(ctx->job, owner);
	const uint8_t tos = headers->ip.tos;
	struct fanin_hdr *hdr =
		fanin_frame_make(ctx,
				 child != 0 ? FANIN_TYPE_RESPONSE_DELIVERY : FANIN_TYPE_RESPONSE,
				 said.block, said.count * fanin_dtype_size(said.dtype), mbuf);

	fanin_frame_mark(mbuf, tos);
	hdr->contributions = (uint16_t)__builtin_popcountll(members);
	hdr->progress = said.progress;
	hdr->members = members;
	fanin_wire_set_shape(hdr, fanin_wire_shape(&said));
	if (child != 0)
		fanin_frame_send_down(ctx, mbuf, child);
	else
		fanin_frame_send_up(ctx, mbuf);
}

/* Sends the entry's sum on, if there is one, and frees the entry. */
static void
flush(struct fanin_handler_ctx *ctx, struct pull_entry *entry)
{
	if (entry->sum != NULL)
		send_on(ctx, entry->sum, entry->in);
	unuse(ctx, entry);
}

/* ------------------------------------------------------------------ entries */

static bool
is_of(const struct fanin_handler_ctx *ctx, const struct pull_entry *entry,
      const struct fanin_hdr *hdr)
{
	return entry->epoch == ctx->epoch && entry->operation == hdr->progress &&
	       entry->place == hdr->block;
}

/* Frees a slot's entry for a packet of this place. Returns false if the entry must stay. */
static bool
make_room(struct fanin_handler_ctx *ctx, struct pull_entry *entry, uint32_t place)
{
	const uint16_t n_ranks = ctx->job->n_ranks;

	if (entry->epoch == 0)
		return true;
	if (entry->epoch != ctx->epoch) {
		/* The entry's run is over. */
		if (entry->sum != NULL)
			fanin_release(ctx, entry->sum);
		unuse(ctx, entry);
		return true;
	}
	/* Usually an owner has no two open pulls for one slot, so the older pull is over. */
	if (fanin_pull_owner(entry->place, n_ranks) != fanin_pull_owner(place, n_ranks))
		return false;
	flush(ctx, entry);
	return true;
}

/*
 * Arms the slot's timer. A slot has at most one timer: if it expires too early for the current
 * entry, it is armed again. Returns false if no timer is free.
 */
static bool
arm(struct fanin_handler_ctx *ctx, struct pull_entry *entry, uint32_t index, uint32_t place)
{
	if (entry->timer_epoch == ctx->epoch)
		return true;
	if (!fanin_timer_arm(ctx, index, place))
		return false;
	entry->timer_epoch = ctx->epoch;
	return true;
}

static enum pull_made
make(struct fanin_handler_ctx *ctx, struct pull_entry *entry, uint32_t index,
     const struct fanin_hdr *hdr, uint64_t expected)
{
	if (is_of(ctx, entry, hdr))
		return PULL_MADE;
	if (!make_room(ctx, entry, hdr->block) || !arm(ctx, entry, index, hdr->block) || !use(ctx))
		return PULL_FULL;
	entry->epoch = ctx->epoch;
	entry->operation = hdr->progress;
	entry->place = hdr->block;
	entry->expected = expected;
	entry->in = 0;
	entry->due_ns = ctx->now_ns +
			RTE_MAX(ctx->timers->timeout_ns, fanin_pull_patience_ns(hdr->number));
	ctx->stats->own[PULL_ENTRIES]++;
	return PULL_MADE;
}

enum pull_made
pull_entry_make(struct fanin_handler_ctx *ctx, struct pull_slot *slot, uint32_t index,
		const struct fanin_hdr *hdr, uint64_t expected)
{
	struct pull_entry *entry = &slot->entry;
	enum pull_made made;

	if (!enter(ctx, entry))
		return PULL_RETRY;
	made = make(ctx, entry, index, hdr, expected);
	leave(ctx, entry);
	return made;
}

bool
pull_entry_expire(struct fanin_handler_ctx *ctx, struct pull_slot *slot, uint32_t index)
{
	struct pull_entry *entry = &slot->entry;

	if (!enter(ctx, entry))
		return false;
	entry->timer_epoch = 0;
	if (entry->epoch == ctx->epoch &&
	    (entry->due_ns <= ctx->now_ns || !arm(ctx, entry, index, entry->place))) {
		flush(ctx, entry);
		ctx->stats->own[PULL_TIMED_OUT]++;
	}
	leave(ctx, entry);
	return true;
}

void
pull_entry_release(struct fanin_handler_ctx *ctx, struct pull_slot *slot)
{
	struct pull_entry *entry = &slot->entry;

	if (entry->sum != NULL)
		fanin_release(ctx, entry->sum);
	entry->sum = NULL;
	entry->epoch = 0;
}

/* ------------------------------------------------------------------ responses */

/* Returns whether the response belongs to the entry and can be combined there. */
static bool
fits(const struct fanin_handler_ctx *ctx, const struct pull_entry *entry,
     const struct fanin_hdr *hdr)
{
	return is_of(ctx, entry, hdr) && (hdr->members & ~entry->expected) == 0 &&
	       (entry->sum == NULL ||
		fanin_wire_shape(&rte_pktmbuf_mtod(entry->sum, struct fanin_headers *)->fanin) ==
			fanin_wire_shape(hdr));
}

static enum fanin_verdict
pass(struct fanin_handler_ctx *ctx, const struct fanin_packet *packet, unsigned int counter)
{
	send_on(ctx, packet->mbuf, packet->headers->fanin.members);
	ctx->stats->own[counter]++;
	return FANIN_VERDICT_HELD;
}

/* Sets the ranks of the sum. The sum goes on once it is complete. */
static void
note_in(struct fanin_handler_ctx *ctx, struct pull_entry *entry, uint64_t in)
{
	entry->in = in;
	ctx->stats->own[PULL_HITS]++;
	if (in != entry->expected)
		return;
	flush(ctx, entry);
	ctx->stats->own[PULL_COMPLETED]++;
}

static enum fanin_verdict
combine(struct fanin_handler_ctx *ctx, struct pull_entry *entry, const struct fanin_packet *packet,
	fanin_kernel_fn add)
{
	const struct fanin_hdr *hdr = &packet->headers->fanin;
	const uint64_t members = hdr->members;
	enum fanin_verdict verdict = FANIN_VERDICT_HELD;

	if ((members & ~entry->in) == 0) {
		ctx->stats->duplicates++;
		return FANIN_VERDICT_FREE;
	}
	if ((members & entry->in) != 0 && (entry->in & ~members) != 0)
		return pass(ctx, packet, PULL_OVERLAPS);
	if ((members & entry->in) == 0 && entry->sum != NULL) {
		add(fanin_dense_payload(entry->sum), packet->payload, hdr->count);
		verdict = FANIN_VERDICT_FREE;
	} else {
		/* The packet is the first one, or has all ranks of the sum and more. */
		if (entry->sum != NULL)
			fanin_release(ctx, entry->sum);
		entry->sum = packet->mbuf;
	}
	note_in(ctx, entry, entry->in | members);
	return verdict;
}

enum fanin_verdict
pull_response_take(struct fanin_handler_ctx *ctx, struct pull_slot *slot,
		   const struct fanin_packet *packet, fanin_kernel_fn add)
{
	struct pull_entry *entry = &slot->entry;
	enum fanin_verdict verdict;

	if (!enter(ctx, entry))
		return FANIN_VERDICT_RETRY;
	verdict = fits(ctx, entry, &packet->headers->fanin) ? combine(ctx, entry, packet, add)
							    : pass(ctx, packet, PULL_BYPASSED);
	leave(ctx, entry);
	return verdict;
}
