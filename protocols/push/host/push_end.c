/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Push: how a run ends (engine/run_end.h). The last block has no elements; its home host waits for
 * the goodbyes of all other ranks.
 */
#include "push_internal.h"

/* If all copies are lost, the home host waits for nothing until it gives up. */
#define GOODBYES 3

/* ------------------------------------------------------------------ failing */

static struct fanin_push_end
body_make(const struct fanin_push *push)
{
	return (struct fanin_push_end){
		.whom = push->engine.run_end.whom,
		.why = push->engine.run_end.why == FANIN_RUN_MISMATCH ? FANIN_PUSH_MISMATCH
								      : FANIN_PUSH_GONE,
	};
}

static void
tell_all(struct fanin_push *push)
{
	const struct fanin_push_end end = body_make(push);
	const struct push_elements elements = { .payload = &end, .len = sizeof(end) };

	(void)fanin_push_send_all(push, FANIN_PUSH_END, push->engine.oldest, &elements);
}

void
fanin_push_mismatch(struct fanin_push *push, uint32_t block, uint64_t some, uint64_t others)
{
	fanin_run_end_fail(&push->engine, block, FANIN_RUN_MISMATCH,
			   fanin_run_end_blame(some, others));
	tell_all(push);
}

void
fanin_push_receive_end(struct fanin_push *push, const struct fanin_push_end *end)
{
	const uint64_t whom = end->whom & push->all;
	const bool mismatch = end->why == FANIN_PUSH_MISMATCH;

	/* A rank without requests may have all results already: it ignores END. */
	if (push->engine.loop.requests.first == NULL || whom == 0)
		return;
	fanin_run_end_fail(&push->engine, push->engine.oldest,
			   mismatch ? FANIN_RUN_MISMATCH : FANIN_RUN_GONE, whom);
}

/* Called when the engine has failed: names the ranks that are gone, or this rank if none are. */
void
fanin_push_end_begin(struct fanin_engine *engine)
{
	struct fanin_push *push = push_of(engine);
	const uint64_t named = engine->loop.error.missing.words[0] & push->all;
	const bool gone = engine->loop.status == FANIN_ERR_TIMEOUT && named != 0;

	fanin_run_end_note(engine, FANIN_RUN_GONE, gone ? named : push->self);
	tell_all(push);
}

/* True if the frame is another rank's ASK or QUERY to this rank. */
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

/* Tells a rank that asks this one why the run has ended. */
void
fanin_push_answer(struct fanin_engine *engine, const struct fanin_frame *frame)
{
	struct fanin_push *push = push_of(engine);
	const struct fanin_push_end end = body_make(push);
	const struct push_elements elements = { .payload = &end, .len = sizeof(end) };
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

/* ------------------------------------------------------------------ the end of a run */

bool
fanin_push_say_bye(struct fanin_engine *engine)
{
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
		return fanin_run_end_has_byes(&push->engine.run_end, last, push->all & ~push->self);
	for (unsigned int i = 0; i < GOODBYES; i++)
		(void)fanin_push_repeat(push, push_home_of(push, last), last);
	(void)engine->loop.transport->ops->tx_flush(engine->loop.transport);
	return true;
}
