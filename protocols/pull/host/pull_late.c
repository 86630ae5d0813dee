/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Overdue packets of an owner: it asks each missing rank directly, past all tables, and repeatedly
 * (protocols/pull/README.md). Called by the poll loop only.
 */
#include "pull_internal.h"
#include "hostlib/src/engine/times.h"

#define PATIENCE_MAX_NS UINT64_C(100000000)
#define ASK_MAX_NS UINT64_C(100000000)
/* The initial limit of packets in flight, and the lowest one. */
#define ALLOWED_FIRST 16u
#define ALLOWED_MIN 4u

uint64_t
fanin_pull_patience(const struct fanin_pull *pull)
{
	return fanin_later(fanin_earlier(pull->time.rto_ns, PATIENCE_MAX_NS), pull->timeout_ns);
}

void
fanin_pull_note_time(struct fanin_pull *pull, const struct fanin_pull_slot *slot)
{
	const uint64_t ns = pull->mc.engine.loop.now_ns - slot->sent_ns;

	/* A rank that was away does not show how long others take, so a sample is bounded. */
	fanin_rtt_sample(&pull->time, fanin_earlier(ns, PATIENCE_MAX_NS));
}

/* ------------------------------------------------------------------ how many at a time */

/*
 * Queues of switches may be shorter than the tables are long, and all ranks answer each request at
 * once. So the limit of packets in flight is halved when packets are lost, once for all that were
 * requested before, and grows by one each time as many packets were made. If the job gives `waves`
 * or `wave_blocks`, the limit does not adapt.
 */
static bool
is_adaptive(const struct fanin_pull *pull)
{
	const uint64_t *parameters = pull->mc.engine.config.parameters;

	return parameters[FANIN_PULL_WAVES] == 0 && parameters[FANIN_PULL_WAVE_BLOCKS] == 0;
}

void
fanin_pull_allow(struct fanin_pull *pull)
{
	const uint32_t span = fanin_waves_span(&pull->waves);

	pull->allowed = is_adaptive(pull) && span > ALLOWED_FIRST ? ALLOWED_FIRST : span;
}

void
fanin_pull_note_made(struct fanin_pull *pull)
{
	if (++pull->n_clean < pull->allowed)
		return;
	pull->n_clean = 0;
	if (pull->allowed < fanin_waves_span(&pull->waves))
		pull->allowed++;
}

static void
note_lost(struct fanin_pull *pull, const struct fanin_pull_slot *slot)
{
	if (!is_adaptive(pull) || slot->generation != pull->generation)
		return;
	pull->generation++;
	pull->n_clean = 0;
	if (pull->allowed / 2 >= ALLOWED_MIN)
		pull->allowed /= 2;
}

/* ------------------------------------------------------------------ asking directly */

/* Packets to ask for, as the range of a bitmap, and the ranks to ask. */
struct ask {
	uint32_t first; /* index of the first packet */
	uint32_t end;   /* index after the last packet */
	uint64_t ranks; /* ranks that any of the packets lacks */
	bool some;
};

static bool
is_late(const struct fanin_pull *pull, const struct fanin_pull_slot *slot)
{
	/*
	 * A packet that was asked for before and is nearly due again is asked for along with the
	 * overdue ones, so that they stay together.
	 */
	return slot->state == FANIN_PULL_ASKED &&
	       slot->again_ns <= pull->mc.engine.loop.timers_ns + slot->wait_ns / 2;
}

/* True if a pull is overdue. */
static bool
is_due(const struct fanin_pull *pull)
{
	for (uint32_t i = 0; i < pull->span; i++) {
		const struct fanin_pull_slot *slot = &pull->slots[i];

		if (slot->state == FANIN_PULL_ASKED &&
		    slot->again_ns <= pull->mc.engine.loop.timers_ns)
			return true;
	}
	return false;
}

/* Finds the packets to ask for and the ranks that they lack. */
static void
find_late(const struct fanin_pull *pull, struct ask *ask)
{
	for (uint32_t i = 0; i < pull->span; i++) {
		const struct fanin_pull_slot *slot = &pull->slots[i];

		if (!is_late(pull, slot))
			continue;
		if (!ask->some || slot->index < ask->first)
			ask->first = slot->index;
		if (!ask->some || slot->index >= ask->end)
			ask->end = slot->index + 1;
		ask->ranks |= pull->all & ~slot->in;
		ask->some = true;
	}
}

/*
 * Asks one rank for the packets from index `first` on whose data it has not given, as many as fit
 * into one ASK. Returns false if the transport has no room.
 */
static bool
ask_send(struct fanin_pull *pull, uint32_t first, uint32_t span, uint16_t rank)
{
	struct fanin_question question = { .first = first, .span = span, .left = span };

	for (uint32_t i = 0; i < pull->span; i++) {
		const struct fanin_pull_slot *slot = &pull->slots[i];

		if (is_late(pull, slot) && (slot->in >> rank & 1) == 0)
			(void)fanin_question_add(&question, slot->index);
	}
	if (question.n == 0)
		return true;
	if (!fanin_broadcast_send_to(&pull->mc, pull->op, rank, FANIN_BROADCAST_ASK,
				     pull->op->own_first + first, question.words,
				     fanin_question_len(&question)))
		return false;
	pull->stats.asks++;
	return true;
}

/* Asks one rank, with as many ASKs as needed. Returns false if the transport has no room. */
static bool
ask_rank(struct fanin_pull *pull, const struct ask *ask, uint16_t rank)
{
	const uint32_t span = fanin_broadcast_fetch_span(&pull->mc.engine);

	for (uint32_t first = ask->first; first < ask->end; first += span) {
		if (!ask_send(pull, first, span, rank))
			return false;
	}
	return true;
}

/* Schedules the next ASK for a packet that was just asked for. */
static void
asked_note(struct fanin_pull *pull, struct fanin_pull_slot *slot)
{
	if (slot->wait_ns == 0)
		note_lost(pull, slot);
	slot->wait_ns =
		fanin_question_wait(slot->wait_ns,
				    fanin_earlier(2 * fanin_pull_patience(pull), ASK_MAX_NS));
	slot->again_ns = pull->mc.engine.loop.now_ns + slot->wait_ns;
}

uint64_t
fanin_pull_ask_late(struct fanin_pull *pull)
{
	uint64_t next_ns = UINT64_MAX;
	struct ask ask = { 0 };

	if (pull->op == NULL)
		return UINT64_MAX;
	if (is_due(pull))
		find_late(pull, &ask);
	for (uint64_t left = ask.ranks; left != 0; left &= left - 1) {
		/* Ranks that were not asked now are asked the next time. */
		if (!ask_rank(pull, &ask, (uint16_t)__builtin_ctzll(left)))
			break;
	}
	for (uint32_t i = 0; i < pull->span; i++) {
		struct fanin_pull_slot *slot = &pull->slots[i];

		if (ask.some && is_late(pull, slot))
			asked_note(pull, slot);
		if (slot->state != FANIN_PULL_DONE && slot->again_ns < next_ns)
			next_ns = slot->again_ns;
	}
	return next_ns;
}

void
fanin_pull_receive_tell(struct fanin_pull *pull, const struct fanin_frame *frame)
{
	const struct fanin_hdr *hdr = &((const struct fanin_headers *)frame->data)->fanin;
	struct fanin_broadcast_op *op = pull->op;
	const struct fanin_pull_slot *slot;
	struct fanin_broadcast_tell tell;
	uint32_t index;

	if (op == NULL || hdr->progress != op->number)
		return;
	if (fanin_wire_payload_len(frame->data) < sizeof(tell) ||
	    !fanin_frame_copy(pull->mc.engine.loop.transport, frame, FANIN_PAYLOAD_OFFSET, &tell,
			      sizeof(tell))) {
		pull->mc.engine.stats.invalid++;
		return;
	}
	pull->mc.engine.heard_ns = pull->mc.engine.loop.now_ns;
	index = tell.packet - op->own_first;
	if (tell.packet < op->own_first || index >= pull->n_begun)
		return;
	/*
	 * Data arrives before the TELL about it, or is lost. A TELL for a packet that was never
	 * asked for directly is ignored.
	 */
	slot = fanin_pull_slot(pull, index);
	if (slot->index != index || slot->state == FANIN_PULL_DONE || slot->wait_ns == 0 ||
	    (slot->in >> hdr->members & 1) != 0)
		return;
	fanin_broadcast_note_sent(&pull->mc, op, (uint16_t)hdr->members, tell.packet);
}
