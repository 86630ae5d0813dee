/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a run of Canary begins and ends (protocols/canary/README.md, "Beginning and ending a run").
 * Rank 0 calls the roll. The other ranks send CALL until rank 0 tells them the run's number.
 */
#include "canary_internal.h"

/* At least two for each pair of links. */
#define BYES 4

/* Copies a packet's body. Returns false if the frame is lost, or the body is shorter. */
static bool
body_read(struct fanin_canary *canary, const struct fanin_frame *frame, void *body, uint32_t len)
{
	return frame->len >= FANIN_PAYLOAD_OFFSET + len &&
	       fanin_frame_copy(canary->engine.loop.transport, frame, FANIN_PAYLOAD_OFFSET, body,
				len);
}

static void
begin(struct fanin_canary *canary, uint32_t run)
{
	canary->begun = true;
	canary->run = run;
	canary->called = canary->all;
	canary->engine.progress_ns = canary->engine.loop.now_ns;
	canary->oldest_ns = canary->engine.loop.now_ns;
}

/* ------------------------------------------------------------------ rank 0 */

static void
roll_send(struct fanin_canary *canary, unsigned int rank)
{
	const struct fanin_roll_body body = {
		.nonce = canary->peers[rank].nonce,
		.roll = canary->roll,
		.called = canary->called,
		.run = canary->run,
		.is_begun = canary->begun,
	};
	const struct canary_packet packet = { .payload = &body,
					      .len = sizeof(body),
					      .flow = (uint32_t)canary->engine.stats.frames_sent };
	struct fanin_headers headers;

	fanin_canary_begin(canary, FANIN_TYPE_ROLL, 0, &headers);
	headers.fanin.epoch = 0;
	headers.fanin.progress = 0;
	(void)fanin_canary_send_to(canary, &headers, rank, &packet);
}

static void
roll_check(struct fanin_canary *canary)
{
	if (canary->called != canary->all)
		return;
	begin(canary, canary->seed.run);
	for (unsigned int rank = 1; rank < canary->engine.config.size; rank++)
		roll_send(canary, rank);
}

void
fanin_canary_receive_call(struct fanin_canary *canary, const struct fanin_frame *frame)
{
	const struct fanin_hdr *hdr = &((const struct fanin_headers *)frame->data)->fanin;
	const unsigned int rank = hdr->rank;
	struct fanin_call_body body;

	if (canary->engine.config.rank != 0 || rank == 0 || rank >= canary->engine.config.size ||
	    !body_read(canary, frame, &body, sizeof(body))) {
		canary->engine.stats.invalid++;
		return;
	}
	fanin_canary_hear_from(canary, rank, frame->data);
	if (canary->begun) {
		/* A restarted process of the rank is not in the run, and gets no answer. */
		if (canary->peers[rank].nonce == body.nonce)
			roll_send(canary, rank);
		return;
	}
	if (canary->peers[rank].nonce != body.nonce) {
		canary->peers[rank].nonce = body.nonce;
		canary->called &= ~(UINT64_C(1) << rank);
	}
	/* A late packet of a gone process does not have this roll's number. */
	if (body.roll != canary->roll) {
		roll_send(canary, rank);
		return;
	}
	canary->called |= UINT64_C(1) << rank;
	roll_check(canary);
	if (!canary->begun)
		roll_send(canary, rank);
}

/* ------------------------------------------------------------------ the others */

void
fanin_canary_call(struct fanin_canary *canary)
{
	const struct fanin_call_body body = { .nonce = canary->seed.nonce, .roll = canary->roll };
	const struct canary_packet packet = { .payload = &body,
					      .len = sizeof(body),
					      .flow = (uint32_t)canary->engine.stats.frames_sent,
					      .attempt = canary->n_calls++ };
	struct fanin_headers headers;

	fanin_canary_begin(canary, FANIN_TYPE_CALL, 0, &headers);
	headers.fanin.epoch = 0;
	headers.fanin.progress = 0;
	if (!fanin_canary_send_to(canary, &headers, 0, &packet)) {
		canary->call_ns = canary->engine.loop.now_ns + CANARY_CALL_MIN_NS;
		return;
	}
	/* After two CALLs it is unknown which one an answer belongs to. */
	canary->called_ns = canary->unanswered++ == 0 ? canary->engine.loop.now_ns : 0;
	canary->call_ns = canary->engine.loop.now_ns + canary->call_wait_ns;
	canary->call_wait_ns *= 2;
	if (canary->call_wait_ns > CANARY_CALL_MAX_NS)
		canary->call_wait_ns = CANARY_CALL_MAX_NS;
}

/*
 * At most one CALL in the shortest interval, even if a run that goes on without this rank sends
 * many packets.
 */
void
fanin_canary_call_soon(struct fanin_canary *canary)
{
	const uint64_t soon_ns = canary->engine.loop.now_ns + CANARY_CALL_MIN_NS;

	if (canary->call_ns <= soon_ns)
		return;
	canary->call_ns = soon_ns;
	fanin_loop_wake_by(&canary->engine.loop, soon_ns);
}

void
fanin_canary_receive_roll(struct fanin_canary *canary, const struct fanin_frame *frame)
{
	const bool is_first = !canary->roll_heard;
	struct fanin_roll_body body;

	if (canary->engine.config.rank == 0 || !body_read(canary, frame, &body, sizeof(body))) {
		canary->engine.stats.invalid++;
		return;
	}
	if (canary->begun || body.nonce != canary->seed.nonce)
		return;
	canary->n_calls = 0;
	fanin_canary_hear_from(canary, 0, frame->data);
	if (canary->called_ns != 0 && canary->called_ns >= canary->engine.loop.resumed_ns)
		fanin_rtt_sample(&canary->engine.rtt,
				 canary->engine.loop.now_ns - canary->called_ns);
	canary->called_ns = 0;
	canary->unanswered -= canary->unanswered != 0;
	canary->roll_heard = true;
	canary->called = body.called & canary->all;
	if (body.is_begun != 0 && body.roll == canary->roll && canary->roll != 0) {
		begin(canary, body.run);
		return;
	}
	/* The number has changed: rank 0 has started again. */
	if (body.roll != canary->roll || is_first) {
		canary->roll = body.roll;
		fanin_canary_call(canary);
		fanin_loop_wake_by(&canary->engine.loop, canary->call_ns);
	}
}

void
fanin_canary_roll_begin(struct fanin_canary *canary)
{
	canary->call_wait_ns = CANARY_CALL_MIN_NS;
	canary->called = UINT64_C(1) << canary->engine.config.rank;
	if (canary->engine.config.rank != 0)
		return;
	canary->roll = canary->seed.roll;
	roll_check(canary);
}

bool
fanin_canary_ready(struct fanin_endpoint *endpoint, struct fanin_error *problem)
{
	struct fanin_canary *canary = canary_of(fanin_engine_of(endpoint));
	char ranks[128];

	if (canary->started)
		return true;
	fanin_engine_missing(&canary->engine.endpoint, &problem->missing);
	if (canary->begun)
		fanin_error_set(problem, 0, "not all ranks have begun the run");
	else if (canary->engine.config.rank != 0 && !canary->roll_heard)
		fanin_error_set(problem, 0, "rank 0, which calls the roll, does not answer");
	else
		fanin_error_set(problem, 0, "%s did not answer rank 0's roll",
				fanin_format_ranks(&problem->missing, ranks, sizeof(ranks)));
	return false;
}

/* ------------------------------------------------------------------ the end */

void
fanin_canary_receive_bye(struct fanin_canary *canary, const struct fanin_hdr *hdr)
{
	if (hdr->rank >= canary->engine.config.size || !canary_leads(canary, hdr->block)) {
		canary->engine.stats.invalid++;
		return;
	}
	fanin_run_end_note_bye(&canary->engine.run_end, hdr->block, hdr->rank);
}

bool
fanin_canary_say_bye(struct fanin_engine *engine)
{
	struct fanin_canary *canary = canary_of(engine);
	const uint32_t last = canary->engine.end - 1;
	struct fanin_headers headers;

	if (canary->engine.loop.status != FANIN_OK || !canary->started || !canary->is_closing ||
	    canary->engine.oldest != canary->engine.end)
		return true;
	if (canary_leads(canary, last))
		return fanin_run_end_has_byes(&canary->engine.run_end, last, canary->others);
	for (unsigned int i = 0; i < BYES; i++) {
		const struct canary_packet packet = { .flow = last + i, .attempt = i };

		fanin_canary_begin(canary, FANIN_TYPE_BYE, last, &headers);
		(void)fanin_canary_send_to(canary, &headers, canary_leader_of(canary, last),
					   &packet);
	}
	(void)canary->engine.loop.transport->ops->tx_flush(canary->engine.loop.transport);
	return true;
}
