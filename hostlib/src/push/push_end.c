/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Push: how a run ends (engine/run_end.h). The home host of the last block, which has no elements,
 * is the one that waits for all goodbyes.
 */
#include "push_internal.h"

/* All of them may be lost, which costs the home host a wait. */
#define GOODBYES 3
/* There was no room for a result, and nothing signals when there is. */
#define NO_ROOM_NS (100 * UINT64_C(1000))

/* ------------------------------------------------------------------ failing */

static void
note_end(struct fanin_push *push, enum fanin_run_why why, uint64_t whom)
{
	fanin_run_end_note(&push->end, why, whom, fanin_loop_clock_ns(&push->engine.loop),
			   push->engine.config.timeout_ns);
}

static struct fanin_push_end
body_make(const struct fanin_push *push)
{
	return (struct fanin_push_end){
		.whom = push->end.whom,
		.why = push->end.why == FANIN_RUN_MISMATCH ? FANIN_PUSH_MISMATCH : FANIN_PUSH_GONE,
	};
}

static void
tell_all(struct fanin_push *push)
{
	const struct fanin_push_end end = body_make(push);
	const struct push_elements elements = { .payload = &end, .len = sizeof(end) };

	(void)fanin_push_send_all(push, FANIN_PUSH_END, push->engine.oldest, &elements);
	/* A poll that fails does not come to it, and there may be no other. */
	(void)push->engine.loop.transport->ops->tx_flush(push->engine.loop.transport);
}

static void
fail_mismatch(struct fanin_push *push, uint32_t block, uint64_t whom)
{
	fanin_run_end_mismatch(&push->engine.loop.error, block, whom);
	fanin_engine_fail(&push->engine, FANIN_ERR_REFUSED);
}

void
fanin_push_mismatch(struct fanin_push *push, uint32_t block, uint64_t some, uint64_t others)
{
	const uint64_t whom = fanin_run_end_blame(some, others);

	note_end(push, FANIN_RUN_MISMATCH, whom);
	tell_all(push);
	fail_mismatch(push, block, whom);
}

void
fanin_push_receive_end(struct fanin_push *push, const struct fanin_push_end *end)
{
	struct fanin_error *error = &push->engine.loop.error;
	const uint64_t whom = end->whom & push->all;
	const struct fanin_ranks set = fanin_ranks_of_word(whom);
	char text[FANIN_ABSENCE_LEN];

	/* One that waits for nothing may have all that it wanted. */
	if (push->engine.loop.requests.first == NULL || whom == 0)
		return;
	note_end(push, end->why == FANIN_PUSH_MISMATCH ? FANIN_RUN_MISMATCH : FANIN_RUN_GONE, whom);
	if (push->end.why == FANIN_RUN_MISMATCH) {
		fail_mismatch(push, push->engine.oldest, whom);
		return;
	}
	fanin_error_set(error, 0, "block %u waits for %s, as another rank says", push->engine.oldest,
			fanin_format_absence(&set, push->engine.config.size, &set,
					     FANIN_RANKS_SILENT, text));
	error->missing = set;
	fanin_engine_fail(&push->engine, FANIN_ERR_TIMEOUT);
}

/* The engine has failed: the ranks that it names are gone, or this one goes. */
static void
end_begin(struct fanin_push *push)
{
	const uint64_t named = push->engine.loop.error.missing.words[0] & push->all;
	const bool gone = push->engine.loop.status == FANIN_ERR_TIMEOUT && named != 0;

	note_end(push, FANIN_RUN_GONE, gone ? named : push->self);
	tell_all(push);
}

/* True for a question of another rank. */
static bool
is_question(const struct fanin_push *push, const struct fanin_frame *frame)
{
	const struct fanin_protocol_config *config = &push->engine.config;
	const struct fanin_headers *headers = frame->data;
	const struct fanin_hdr *hdr = &headers->fanin;

	return fanin_wire_validate(headers, frame->len) == FANIN_REASON_NONE &&
	       hdr->type == FANIN_TYPE_UNICAST_DELIVERY && hdr->job == config->job &&
	       hdr->epoch == config->epoch && hdr->key == config->keys.down &&
	       hdr->members < config->size && hdr->members != config->rank &&
	       hdr->count == config->rank &&
	       ((hdr->number & 0xff) == FANIN_PUSH_QUERY || (hdr->number & 0xff) == FANIN_PUSH_ASK);
}

/* Tells a rank that asks why the run has ended. */
static void
answer(void *user, const struct fanin_frame *frame)
{
	struct fanin_push *push = user;
	const struct fanin_push_end end = body_make(push);
	const struct push_elements elements = { .payload = &end, .len = sizeof(end) };
	struct fanin_engine *engine = &push->engine;
	struct fanin_frame opened;

	if (engine->config.tagger != NULL) {
		if (!fanin_engine_open_frame(engine, frame, &opened))
			return;
		frame = &opened;
	}
	if (is_question(push, frame))
		(void)fanin_push_send(
			push,
			(unsigned int)((const struct fanin_headers *)frame->data)->fanin.members,
			FANIN_PUSH_END, engine->oldest, &elements);
}

int
fanin_push_poll(struct fanin_endpoint *endpoint)
{
	struct fanin_engine *engine = fanin_engine_of(endpoint);
	struct fanin_push *push = push_of(engine);
	int ret = engine->loop.status;

	if (ret == FANIN_OK)
		ret = fanin_engine_poll(endpoint);
	if (engine->loop.status == FANIN_OK)
		return ret;
	if (push->end.why == FANIN_RUN_GOES_ON)
		end_begin(push);
	return fanin_run_end_linger(&push->end, &engine->loop, answer, push);
}

uint64_t
fanin_push_idle_ns(struct fanin_endpoint *endpoint)
{
	struct fanin_engine *engine = fanin_engine_of(endpoint);
	const struct fanin_push *push = push_of(engine);
	const uint64_t now_ns = fanin_loop_clock_ns(&engine->loop);
	uint64_t idle_ns;

	if (engine->loop.status != FANIN_OK)
		return push->end.why == FANIN_RUN_GOES_ON
			       ? 0
			       : fanin_run_end_idle_ns(&push->end, now_ns);
	idle_ns = fanin_engine_idle_ns(endpoint);
	return push->n_unsent != 0 && idle_ns > NO_ROOM_NS ? NO_ROOM_NS : idle_ns;
}

unsigned int
fanin_push_poll_fds(struct fanin_endpoint *endpoint, struct pollfd *fds)
{
	struct fanin_engine *engine = fanin_engine_of(endpoint);
	const struct fanin_push *push = push_of(engine);

	/* Nothing is received any more, and descriptors would stay ready for ever. */
	if (engine->loop.status != FANIN_OK && push->end.why != FANIN_RUN_GOES_ON &&
	    !fanin_run_end_lingers(&push->end, fanin_loop_clock_ns(&engine->loop)))
		return 0;
	return engine->loop.transport->ops->poll_fds(engine->loop.transport, fds);
}

/* ------------------------------------------------------------------ the end of a run */

bool
fanin_push_say_bye(struct fanin_endpoint *endpoint)
{
	struct fanin_engine *engine = fanin_engine_of(endpoint);
	struct fanin_push *push = push_of(engine);
	const uint32_t last = engine->end - 1;
	struct fanin_hdr hdr = { 0 };
	const void *payload;
	uint32_t len;

	if (engine->loop.status != FANIN_OK || engine->loop.requests.first != NULL ||
	    engine->config.size == 1 || engine->end == engine->config.first_block ||
	    !fanin_engine_result(engine, last, &hdr, &payload, &len) || hdr.count != 0)
		return true;
	if (push_is_home(push, last))
		return fanin_run_end_has_byes(&push->end, last, push->all & ~push->self);
	for (unsigned int i = 0; i < GOODBYES; i++)
		(void)fanin_push_repeat(push, push_home_of(push, last), last);
	(void)engine->loop.transport->ops->tx_flush(engine->loop.transport);
	return true;
}

void
fanin_push_close(struct fanin_endpoint *endpoint)
{
	if (endpoint != NULL)
		fanin_run_end_goodbye(endpoint, fanin_push_say_bye);
	fanin_engine_close(endpoint);
}
