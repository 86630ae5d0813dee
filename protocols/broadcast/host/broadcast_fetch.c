/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Missing packets and gone ranks: the cutoff timer, the ring of neighbors from which packets are
 * fetched (Khalilov et al., section III.C), and queries for ranks that have ended
 * (protocols/broadcast/README.md). Called by the poll loop only.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broadcast_internal.h"
#include "hostlib/src/engine/times.h"

#define MS UINT64_C(1000000)
/* Unanswered FETCHes before another rank is asked. */
#define MAX_UNANSWERED 3u
/* Time for which neighbors may lack the requested packets before the root is asked. */
#define MAX_LACKS_NS (200 * MS)

/* ------------------------------------------------------------------ what others ask for */

/* Begins a rank's standing request. Returns false if there is no memory. */
static bool
standing_begin(struct fanin_broadcast_op *op, uint16_t rank)
{
	struct fanin_broadcast_standing *standing = &op->standing;
	const size_t bytes = (op->n_packets + 63) / 64 * sizeof(uint64_t);

	if (standing->wanted == NULL)
		standing->wanted = malloc(bytes);
	if (standing->wanted == NULL)
		return false;
	memset(standing->wanted, 0, bytes);
	standing->rank = rank;
	standing->n = 0;
	return true;
}

/*
 * Notes the packets that a rank asks for and this one lacks. They replace the rank's earlier
 * request for the same packets, and the standing request of any other rank.
 */
static void
standing_set(struct fanin_broadcast_op *op, uint16_t rank, uint32_t first, const uint64_t *words,
	     uint32_t n_words)
{
	struct fanin_broadcast_standing *standing = &op->standing;

	/* If there is no memory, the neighbor asks again. */
	if ((standing->wanted == NULL || standing->rank != rank) && !standing_begin(op, rank))
		return;
	for (uint32_t i = 0; i < n_words * 64 && i < op->n_packets - first; i++) {
		const uint32_t packet = first + i;

		standing->n -= fanin_bit(standing->wanted, packet);
		fanin_clear_bit(standing->wanted, packet);
		if (!fanin_bit(words, i) || fanin_broadcast_may_give(op, packet))
			continue;
		fanin_set_bit(standing->wanted, packet);
		standing->n++;
	}
}

void
fanin_broadcast_serve(struct fanin_broadcast_engine *mc, struct fanin_broadcast_op *op,
		      uint16_t rank, uint32_t first, const uint64_t *words, uint32_t n_words)
{
	struct fanin_broadcast_tell tell = { .packet = FANIN_BROADCAST_NO_PACKET };
	bool room = true;

	for (uint32_t i = 0; i < n_words * 64 && i < op->n_packets - first; i++) {
		if (!fanin_bit(words, i))
			continue;
		if (!fanin_broadcast_may_give(op, first + i)) {
			tell.lacks++;
		} else if (tell.has < FANIN_BROADCAST_FETCH_MAX) {
			tell.has++;
			room = room && fanin_broadcast_give(mc, op, rank, first + i);
			if (room)
				tell.packet = first + i;
		}
	}
	standing_set(op, rank, first, words, n_words);
	fanin_broadcast_send_to(mc, op, rank, FANIN_BROADCAST_TELL, first, &tell, sizeof(tell));
}

/*
 * Passes a packet that has arrived on to the neighbor that has asked for it, unless the packet came
 * by multicast: then the neighbor has it, too.
 */
static void
standing_strike(struct fanin_broadcast_engine *mc, struct fanin_broadcast_op *op, uint32_t packet,
		bool multicast)
{
	struct fanin_broadcast_standing *standing = &op->standing;

	if (standing->n == 0 || !fanin_bit(standing->wanted, packet))
		return;
	fanin_clear_bit(standing->wanted, packet);
	standing->n--;
	if (!multicast)
		fanin_broadcast_give(mc, op, standing->rank, packet);
}

/* ------------------------------------------------------------------ what has come */

void
fanin_broadcast_note_progress(struct fanin_broadcast_engine *mc, struct fanin_broadcast_op *op)
{
	const uint64_t now_ns = mc->engine.loop.now_ns;
	const uint64_t pause_ns = now_ns - op->last_ns;

	op->busy_ns += fanin_earlier(pause_ns, mc->alpha.max_ns);
	op->last_ns = now_ns;
	op->n_unanswered = 0;
	op->lacks_ns = 0;
	op->has_ns = 0;
	if (op->is_asking) {
		op->is_asking = false;
		op->asked_ranks = (struct fanin_ranks){ 0 };
	}
	fanin_live_clear(&mc->live);
	mc->engine.progress_ns = now_ns;
	mc->engine.heard_ns = now_ns;
	fanin_loop_wake_by(&mc->engine.loop, now_ns + mc->reordering.ns);
}

void
fanin_broadcast_note_packet(struct fanin_broadcast_engine *mc, struct fanin_broadcast_op *op,
			    uint32_t packet, bool multicast)
{
	struct fanin_broadcast_chain *chain = fanin_broadcast_chain_of(op, packet);
	const bool asked = fanin_gaps_take(&chain->gaps, packet);

	chain->seen = packet >= chain->seen ? packet + 1 : chain->seen;
	if (multicast)
		fanin_gaps_pass(&chain->gaps, packet + 1);
	if (!multicast) {
		mc->stats.fetched++;
		fanin_patience_was_lost(&mc->alpha);
		fanin_patience_was_lost(&mc->reordering);
		/* A requested packet has arrived: the answer is on its way. */
		op->ask_ns = mc->engine.loop.now_ns + op->ask_wait_ns;
	} else if (asked) {
		mc->stats.late++;
	}
	/* A packet that its root had to make may have been sent late. */
	if (multicast && asked && !fanin_request_combines(op->request)) {
		fanin_patience_was_late(&mc->alpha);
		fanin_patience_was_late(&mc->reordering);
	}
	fanin_broadcast_note_progress(mc, op);
	standing_strike(mc, op, packet, multicast);
}

/*
 * Returns how long a rank's TELL counts. A late rank sends no more TELLs, and must not be blamed
 * for an old one.
 */
static uint64_t
told_max_ns(const struct fanin_broadcast_engine *mc)
{
	return mc->engine.config.timeout_ns / 2;
}

void
fanin_broadcast_note_sent(struct fanin_broadcast_engine *mc, struct fanin_broadcast_op *op,
			  uint16_t rank, uint32_t packet)
{
	const uint64_t now_ns = mc->engine.loop.now_ns;

	if (op->has_ns == 0 || now_ns - op->told_ns > told_max_ns(mc)) {
		op->has_ns = now_ns;
		op->has_packet = packet;
		op->has_rank = rank;
	}
	op->told_ns = now_ns;
}

void
fanin_broadcast_note_tell(struct fanin_broadcast_engine *mc, struct fanin_broadcast_op *op,
			  uint16_t rank, const struct fanin_broadcast_tell *tell)
{
	const uint64_t now_ns = mc->engine.loop.now_ns;

	/*
	 * This TELL answers no open FETCH: a packet has answered it already, or nothing was asked.
	 */
	if (!op->is_asking || !fanin_ranks_has(&op->asked_ranks, rank))
		return;
	mc->engine.heard_ns = now_ns;
	op->n_unanswered = 0;
	if (tell->has == 0) {
		if (op->lacks_ns == 0)
			op->lacks_ns = now_ns;
		return;
	}
	op->lacks_ns = 0;
	/* The packet that the neighbor says it has sent arrives before its TELL, or is lost. */
	if (tell->packet < op->n_packets && !fanin_bit(op->have, tell->packet))
		fanin_broadcast_note_sent(mc, op, rank, tell->packet);
}

/* ------------------------------------------------------------------ asking */

/*
 * The position of a scan for missing packets. Chains are scanned in order, one FETCH after the
 * other.
 */
struct lacking {
	uint16_t chain;
	uint32_t packet; /* within the chain, or before it */
	/* true: all packets that may have been sent are scanned; false: gaps only */
	bool silence;
	struct fanin_question fetch;
};

/*
 * Makes the next FETCH of missing packets, as long as the job's packets may be. Returns false if no
 * more packets are missing.
 */
static bool
fetch_make(const struct fanin_broadcast_engine *mc, const struct fanin_broadcast_op *op,
	   struct lacking *lacking)
{
	fanin_question_clear(&lacking->fetch);
	for (; lacking->chain < op->n_chains; lacking->chain++) {
		const struct fanin_broadcast_chain *chain = &op->chains[lacking->chain];
		const uint32_t end = lacking->silence ? fanin_broadcast_limit(mc, op, chain)
						      : chain->gaps.checked;

		lacking->packet = fanin_gaps_ask(&chain->gaps, lacking->packet, end, true,
						 &lacking->fetch);
		if (lacking->packet < end)
			break;
	}
	return lacking->fetch.n != 0;
}

/* A FETCH was sent: the packets that it asks for are lost or late. */
static void
asked_note(struct fanin_broadcast_op *op, const struct fanin_question *fetch)
{
	const bool combines = fanin_request_combines(op->request);

	for (uint16_t c = 0; c < op->n_chains; c++) {
		struct fanin_broadcast_chain *chain = &op->chains[c];

		/* A packet that its root makes may not have been sent yet: not counted as lost. */
		op->n_lost += fanin_gaps_asked(&chain->gaps, fetch,
					       combines ? chain->seen : chain->end);
		(void)fanin_gaps_asked(&chain->gaps, fetch, chain->end);
	}
}

/* Returns the rank to ask. */
static uint16_t
whom_to_ask(struct fanin_broadcast_engine *mc, struct fanin_broadcast_op *op,
	    const struct fanin_question *fetch)
{
	const uint16_t size = mc->engine.config.size;
	const uint16_t rank = mc->engine.config.rank;
	const uint64_t now_ns = mc->engine.loop.now_ns;

	if (op->lacks_ns != 0 && now_ns - op->lacks_ns >= MAX_LACKS_NS)
		return fanin_broadcast_root(mc, op, fetch->first);
	return (uint16_t)((rank + size - op->step) % size);
}

/* Returns how long the answer to a FETCH may take. */
static uint64_t
answer_ns(const struct fanin_broadcast_engine *mc)
{
	const uint64_t rto_ns = mc->engine.rtt.smoothed_ns == 0 ? 10 * MS : mc->engine.rtt.rto_ns;

	return fanin_later(rto_ns, mc->alpha.ns);
}

/* Sends a FETCH to the rank that is to answer it. Returns false if the transport has no room. */
static bool
fetch_send(struct fanin_broadcast_engine *mc, struct fanin_broadcast_op *op,
	   const struct fanin_question *fetch)
{
	const uint16_t rank = whom_to_ask(mc, op, fetch);

	if (!fanin_broadcast_send_to(mc, op, rank, FANIN_BROADCAST_FETCH, fetch->first,
				     fetch->words, fanin_question_len(fetch)))
		return false;
	fanin_ranks_add(&op->asked_ranks, rank);
	op->is_asking = true;
	mc->stats.fetches++;
	asked_note(op, fetch);
	return true;
}

/* Asks for missing packets: those in gaps, or after silence all that may have been sent. */
static void
op_ask(struct fanin_broadcast_engine *mc, struct fanin_broadcast_op *op, bool silence)
{
	struct lacking lacking = {
		.silence = silence,
		.fetch = { .span = fanin_broadcast_fetch_span(&mc->engine),
			   .left = FANIN_BROADCAST_FETCH_MAX },
	};

	if (!fetch_make(mc, op, &lacking))
		return;
	if (op->n_unanswered >= MAX_UNANSWERED) {
		op->n_unanswered = 0;
		op->step = op->step % (mc->engine.config.size - 1u) + 1;
	}
	if (!fetch_send(mc, op, &lacking.fetch))
		return;
	while (fetch_make(mc, op, &lacking) && fetch_send(mc, op, &lacking.fetch))
		continue;
	op->n_unanswered++;
	op->ask_wait_ns = fanin_question_wait(op->ask_wait_ns, answer_ns(mc));
	op->ask_ns = mc->engine.loop.now_ns + op->ask_wait_ns;
}

/* Returns how many packets may be on their way to this rank. */
static uint32_t
n_on_the_way(const struct fanin_broadcast_engine *mc, const struct fanin_broadcast_op *op)
{
	uint32_t n = 0;

	for (uint16_t c = 0; c < op->n_chains; c++) {
		const struct fanin_broadcast_chain *chain = &op->chains[c];
		const uint32_t limit = fanin_broadcast_limit(mc, op, chain);

		n += limit > chain->seen ? limit - chain->seen : 0;
	}
	return n;
}

/* Returns when the cutoff timer expires. Each new packet restarts the timer. */
static uint64_t
cutoff_ns(const struct fanin_broadcast_engine *mc, const struct fanin_broadcast_op *op)
{
	const double bytes = (double)n_on_the_way(mc, op) * op->request->block_bytes;
	uint64_t ns = mc->alpha.ns;

	if (mc->bytes_per_ns > 0)
		ns += (uint64_t)(bytes / mc->bytes_per_ns);
	return op->last_ns + fanin_earlier(ns, mc->alpha.max_ns);
}

/* Looks for missing packets of an operation. Returns when to look again. */
static uint64_t
op_check(struct fanin_broadcast_engine *mc, struct fanin_broadcast_op *op)
{
	const uint64_t due_ns = mc->engine.loop.timers_ns;
	const uint64_t silent_ns = cutoff_ns(mc, op);

	if (due_ns >= silent_ns) {
		if (due_ns >= op->ask_ns)
			op_ask(mc, op, true);
		return op->ask_ns > due_ns ? op->ask_ns : due_ns + mc->alpha.ns;
	}
	op->ask_wait_ns = 0;
	if (fanin_gaps_is_due(&op->chains[0].gaps, due_ns)) {
		if (due_ns >= op->ask_ns)
			op_ask(mc, op, false);
		op->ask_wait_ns = 0;
		for (uint16_t c = 0; c < op->n_chains; c++)
			fanin_gaps_checked(&op->chains[c].gaps, due_ns, mc->reordering.ns);
	}
	return fanin_earlier(op->chains[0].gaps.check_ns, silent_ns);
}

/* ------------------------------------------------------------------ who is gone */

void
fanin_broadcast_on_answer(struct fanin_engine *engine, uint32_t block,
			  const struct fanin_answer_ranks *ranks)
{
	if (fanin_live_told(&fanin_broadcast_of(engine)->live, engine, block, ranks))
		engine->late_answer_ns = engine->loop.now_ns;
}

/*
 * Fails the communicator because no packets arrive, and ranks are gone or a neighbor's packets do
 * not get through.
 */
static void
fail(struct fanin_broadcast_engine *mc, const struct fanin_broadcast_op *op)
{
	struct fanin_engine *engine = &mc->engine;
	const double silent_s = (double)(engine->loop.now_ns - engine->progress_ns) / 1e9;
	char gone[320];

	if (mc->live.gone_ns != 0) {
		fanin_live_format(&mc->live, engine, gone, sizeof(gone));
		fanin_error_set(&engine->loop.error, 0,
				"no packet for %.1f s: operation %u waits for %s", silent_s,
				op->number, gone);
		engine->loop.error.missing = mc->live.gone;
	} else if (op->has_ns != 0) {
		fanin_error_set(
			&engine->loop.error, 0,
			"no packet for %.1f s: rank %u has sent packet %u of operation %u, and it never came: do packets of this size pass?",
			silent_s, op->has_rank, op->has_packet, op->number);
	} else {
		fanin_error_set(
			&engine->loop.error, 0,
			"no packet for %.1f s: operation %u lacks %u of %u, and nobody answers",
			silent_s, op->number, op->n_lacking, op->n_packets);
	}
	fanin_engine_fail(engine, FANIN_ERR_TIMEOUT);
}

bool
fanin_broadcast_time_out(struct fanin_engine *engine)
{
	struct fanin_broadcast_engine *mc = fanin_broadcast_of(engine);
	const struct fanin_lane *oldest = fanin_engine_lane(engine, engine->oldest);

	/*
	 * If this rank has contributed, the engine explains the timeout, unless ranks are gone that
	 * the engine does not know of.
	 */
	if (mc->ops == NULL || (mc->live.gone_ns == 0 && oldest->state == FANIN_LANE_SENT))
		return false;
	fail(mc, mc->ops);
	return true;
}

/*
 * True if a neighbor has claimed for a whole timeout that it sends packets, and none has arrived.
 */
static bool
passes_nothing(const struct fanin_broadcast_engine *mc)
{
	const struct fanin_broadcast_op *op = mc->ops;
	const uint64_t now_ns = mc->engine.loop.timers_ns;

	return op->has_ns != 0 && now_ns >= op->has_ns + mc->engine.config.timeout_ns &&
	       now_ns - op->told_ns <= told_max_ns(mc);
}

/*
 * After a while without packets, asks the switches which ranks are gone. Returns when to look
 * again.
 */
static uint64_t
live_check(struct fanin_broadcast_engine *mc)
{
	struct fanin_engine *engine = &mc->engine;

	if (mc->ops == NULL)
		return UINT64_MAX;
	if (engine->loop.timers_ns >= engine->progress_ns + engine->config.timeout_ns &&
	    (fanin_live_is_sure(&mc->live, engine) || passes_nothing(mc))) {
		fail(mc, mc->ops);
		return UINT64_MAX;
	}
	return fanin_live_check(&mc->live, engine, engine->progress_ns);
}

void
fanin_broadcast_scan(struct fanin_engine *engine)
{
	struct fanin_broadcast_engine *mc = fanin_broadcast_of(engine);
	uint64_t next_ns;

	fanin_engine_scan(engine);
	next_ns = live_check(mc);
	if (engine->loop.status != FANIN_OK)
		return;
	fanin_loop_wake_by(&engine->loop, next_ns);
	for (struct fanin_broadcast_op *op = mc->ops; op != NULL; op = op->next) {
		if (op->begun_ns != 0 && op->n_lacking != 0)
			fanin_loop_wake_by(&engine->loop, op_check(mc, op));
	}
}
