/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Canary: how a run begins and ends (docs/protocol.md, "Beginning and ending a run"). Rank 0 calls the roll; the others call until it tells
 * the number of the run.
 */
#include "canary_internal.h"

/* Two for each pair of links at least. */
#define BYES 4

/* Copies a body behind the headers. Returns false if the frame is lost, or shorter. */
static bool
body_read(struct fanin_canary *engine, const struct fanin_frame *frame, void *body, uint32_t len)
{
	return frame->len >= FANIN_PAYLOAD_OFFSET + len &&
	       fanin_frame_copy(engine->loop.transport, frame, FANIN_PAYLOAD_OFFSET, body, len);
}

static void
begin(struct fanin_canary *engine, uint32_t run)
{
	engine->begun = true;
	engine->run = run;
	engine->called = engine->all;
	engine->progress_ns = engine->loop.now_ns;
	engine->oldest_ns = engine->loop.now_ns;
}

/* ------------------------------------------------------------------ rank 0 */

static void
roll_send(struct fanin_canary *engine, unsigned int rank)
{
	const struct fanin_roll_body body = {
		.nonce = engine->peers[rank].nonce,
		.roll = engine->roll,
		.called = engine->called,
		.run = engine->run,
		.is_begun = engine->begun,
	};
	const struct canary_packet packet = { .payload = &body,
					      .len = sizeof(body),
					      .flow = (uint32_t)engine->stats.frames_sent };
	struct fanin_headers headers;

	fanin_canary_begin(engine, FANIN_TYPE_ROLL, 0, &headers);
	headers.fanin.epoch = 0;
	headers.fanin.progress = 0;
	(void)fanin_canary_send_to(engine, &headers, rank, &packet);
}

static void
roll_check(struct fanin_canary *engine)
{
	if (engine->called != engine->all)
		return;
	begin(engine, engine->seed.run);
	for (unsigned int rank = 1; rank < engine->config.size; rank++)
		roll_send(engine, rank);
}

void
fanin_canary_receive_call(struct fanin_canary *engine, const struct fanin_frame *frame)
{
	const struct fanin_hdr *hdr = &((const struct fanin_headers *)frame->data)->fanin;
	const unsigned int rank = hdr->rank;
	struct fanin_call_body body;

	if (engine->config.rank != 0 || rank == 0 || rank >= engine->config.size ||
	    !body_read(engine, frame, &body, sizeof(body))) {
		engine->stats.invalid++;
		return;
	}
	fanin_canary_hear_from(engine, rank, frame->data);
	if (engine->begun) {
		/* Another start of the rank's process is not in the run, and silent in it. */
		if (engine->peers[rank].nonce == body.nonce)
			roll_send(engine, rank);
		return;
	}
	if (engine->peers[rank].nonce != body.nonce) {
		engine->peers[rank].nonce = body.nonce;
		engine->called &= ~(UINT64_C(1) << rank);
	}
	/* A late packet of a process that is gone does not know this roll's number. */
	if (body.roll != engine->roll) {
		roll_send(engine, rank);
		return;
	}
	engine->called |= UINT64_C(1) << rank;
	roll_check(engine);
	if (!engine->begun)
		roll_send(engine, rank);
}

/* ------------------------------------------------------------------ the others */

void
fanin_canary_call(struct fanin_canary *engine)
{
	const struct fanin_call_body body = { .nonce = engine->seed.nonce, .roll = engine->roll };
	const struct canary_packet packet = { .payload = &body,
					      .len = sizeof(body),
					      .flow = (uint32_t)engine->stats.frames_sent,
					      .attempt = engine->n_calls++ };
	struct fanin_headers headers;

	fanin_canary_begin(engine, FANIN_TYPE_CALL, 0, &headers);
	headers.fanin.epoch = 0;
	headers.fanin.progress = 0;
	if (!fanin_canary_send_to(engine, &headers, 0, &packet)) {
		engine->call_ns = engine->loop.now_ns + CANARY_CALL_LEAST_NS;
		return;
	}
	/* Of two calls it is unknown which one is answered, and which one after that. */
	engine->called_ns = engine->unanswered++ == 0 ? engine->loop.now_ns : 0;
	engine->call_ns = engine->loop.now_ns + engine->call_wait_ns;
	engine->call_wait_ns *= 2;
	if (engine->call_wait_ns > CANARY_CALL_MOST_NS)
		engine->call_wait_ns = CANARY_CALL_MOST_NS;
}

/* Not for each packet of a run that goes on without this rank: once in the least interval. */
void
fanin_canary_call_soon(struct fanin_canary *engine)
{
	const uint64_t soon_ns = engine->loop.now_ns + CANARY_CALL_LEAST_NS;

	if (engine->call_ns <= soon_ns)
		return;
	engine->call_ns = soon_ns;
	fanin_loop_wake_by(&engine->loop, soon_ns);
}

void
fanin_canary_receive_roll(struct fanin_canary *engine, const struct fanin_frame *frame)
{
	const bool is_first = !engine->roll_heard;
	struct fanin_roll_body body;

	if (engine->config.rank == 0 || !body_read(engine, frame, &body, sizeof(body))) {
		engine->stats.invalid++;
		return;
	}
	if (engine->begun || body.nonce != engine->seed.nonce)
		return;
	engine->n_calls = 0;
	fanin_canary_hear_from(engine, 0, frame->data);
	if (engine->called_ns != 0 && engine->called_ns >= engine->loop.resumed_ns)
		fanin_rtt_sample(&engine->rtt, engine->loop.now_ns - engine->called_ns);
	engine->called_ns = 0;
	engine->unanswered -= engine->unanswered != 0;
	engine->roll_heard = true;
	engine->called = body.called & engine->all;
	if (body.is_begun != 0 && body.roll == engine->roll && engine->roll != 0) {
		begin(engine, body.run);
		return;
	}
	/* Another number: rank 0 has started again. */
	if (body.roll != engine->roll || is_first) {
		engine->roll = body.roll;
		fanin_canary_call(engine);
		fanin_loop_wake_by(&engine->loop, engine->call_ns);
	}
}

void
fanin_canary_roll_begin(struct fanin_canary *engine)
{
	engine->call_wait_ns = CANARY_CALL_LEAST_NS;
	engine->called = UINT64_C(1) << engine->config.rank;
	if (engine->config.rank != 0)
		return;
	engine->roll = engine->seed.roll;
	roll_check(engine);
}

bool
fanin_canary_ready(struct fanin_endpoint *endpoint, struct fanin_error *problem)
{
	struct fanin_canary *engine = canary_of(endpoint);
	char ranks[128];

	if (engine->started)
		return true;
	fanin_canary_missing(&engine->endpoint, &problem->missing);
	if (engine->begun)
		fanin_error_set(problem, 0, "not all ranks have begun the run");
	else if (engine->config.rank != 0 && !engine->roll_heard)
		fanin_error_set(problem, 0, "rank 0, which calls the roll, does not answer");
	else
		fanin_error_set(problem, 0, "%s did not answer rank 0's roll",
				fanin_format_ranks(&problem->missing, ranks, sizeof(ranks)));
	return false;
}

/* ------------------------------------------------------------------ the end */

void
fanin_canary_receive_bye(struct fanin_canary *engine, const struct fanin_hdr *hdr)
{
	if (hdr->rank >= engine->config.size || !canary_leads(engine, hdr->block)) {
		engine->stats.invalid++;
		return;
	}
	fanin_run_end_note_bye(&engine->end_of_run, hdr->block, hdr->rank);
}

bool
fanin_canary_say_bye(struct fanin_endpoint *endpoint)
{
	struct fanin_canary *engine = canary_of(endpoint);
	const uint32_t last = engine->end - 1;
	struct fanin_headers headers;

	if (engine->loop.status != FANIN_OK || !engine->started || !engine->is_closing ||
	    engine->oldest != engine->end)
		return true;
	if (canary_leads(engine, last))
		return fanin_run_end_has_byes(&engine->end_of_run, last, engine->others);
	for (unsigned int i = 0; i < BYES; i++) {
		const struct canary_packet packet = { .flow = last + i, .attempt = i };

		fanin_canary_begin(engine, FANIN_TYPE_BYE, last, &headers);
		(void)fanin_canary_send_to(engine, &headers, canary_leader_of(engine, last), &packet);
	}
	(void)engine->loop.transport->ops->tx_flush(engine->loop.transport);
	return true;
}
