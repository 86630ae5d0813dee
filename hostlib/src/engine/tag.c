/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tags of the engine's packets, in jobs that have them (wire/tag.h). They are added and removed in
 * the engine's own memory: a received frame may be in memory shared with a peer, or be present as
 * headers only, and nothing of it may reach the caller's memory before its tag is verified, as the
 * caller may send from the same buffer. Called by the poll loop only.
 */
#include "hostlib/src/base/answer_tag.h"
#include "engine_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Room for bodies that are longer than in this version: later versions append fields. */
#define BODY_ROOM_LATER 160u

/* The payload starts after 96 bytes of headers. */
#define ALIGN_OFFSET (FANIN_PAYLOAD_ALIGN - FANIN_PAYLOAD_OFFSET % FANIN_PAYLOAD_ALIGN)

int
fanin_engine_tag_init(struct fanin_engine *engine)
{
	const uint32_t body_room = fanin_answer_len(engine->config.size) + BODY_ROOM_LATER;
	uint32_t most = engine->config.payload_bytes;
	size_t each;

	if (engine->config.tagger == NULL)
		return FANIN_OK;
	if (most < body_room)
		most = body_room;
	engine->tagged_room = FANIN_PAYLOAD_OFFSET + most + FANIN_TAG_LEN;
	each = (ALIGN_OFFSET + engine->tagged_room + FANIN_PAYLOAD_ALIGN - 1) /
	       FANIN_PAYLOAD_ALIGN * FANIN_PAYLOAD_ALIGN;
	engine->tag_memory = aligned_alloc(FANIN_PAYLOAD_ALIGN, 2 * each);
	if (engine->tag_memory == NULL)
		return FANIN_ERR_NO_MEMORY;
	engine->sealed = (struct fanin_headers *)(engine->tag_memory + ALIGN_OFFSET);
	engine->opened = (struct fanin_headers *)(engine->tag_memory + each + ALIGN_OFFSET);
	return FANIN_OK;
}

bool
fanin_engine_transmit_tagged(struct fanin_engine *engine, const struct fanin_headers *headers,
			     const void *payload, uint32_t payload_len)
{
	struct fanin_headers *sealed = engine->sealed;

	*sealed = *headers;
	if (payload_len != 0)
		memcpy(sealed + 1, payload, payload_len);
	if (!fanin_tagger_seal_frame(engine->config.tagger, FANIN_TAG_UP, engine->config.instance,
				     sealed)) {
		engine->loop.tx_errnum = EIO;
		return false;
	}
	return fanin_transport_send(engine->loop.transport, sealed, sealed + 1,
				    payload_len + FANIN_TAG_LEN);
}

bool
fanin_engine_open_frame(struct fanin_engine *engine, const struct fanin_frame *frame,
			struct fanin_frame *opened)
{
	if (frame->len < FANIN_PAYLOAD_OFFSET || frame->len > engine->tagged_room ||
	    !fanin_frame_copy(engine->loop.transport, frame, 0, engine->opened, frame->len) ||
	    !fanin_answer_open(engine->config.tagger, engine->config.instance, engine->opened,
			       frame->len))
		return false;
	*opened = (struct fanin_frame){ .data = engine->opened, .len = frame->len };
	return true;
}

/* True if there is a block that a query can be about. */
static bool
has_open_block(const struct fanin_engine *engine)
{
	return engine->loop.requests.first != NULL || engine->n_known != 0;
}

void
fanin_engine_refusal_suspect(struct fanin_engine *engine, unsigned int reason)
{
	if (engine->suspected != FANIN_REASON_NONE || engine->run_lost || !has_open_block(engine))
		return;
	engine->suspected = reason;
	engine->suspected_ns = 0;
	engine->suspected_ask_ns = engine->loop.now_ns;
	fanin_loop_wake_by(&engine->loop, engine->loop.now_ns);
}

void
fanin_engine_refusal_check(struct fanin_engine *engine)
{
	const unsigned int reason = engine->suspected;

	if (reason == FANIN_REASON_NONE)
		return;
	if (engine->run_lost || !has_open_block(engine)) {
		engine->suspected = FANIN_REASON_NONE;
		return;
	}
	if (engine->suspected_ns != 0 && engine->loop.timers_ns > engine->suspected_ns &&
	    engine->loop.timers_ns - engine->suspected_ns >= fanin_engine_retry_max_ns(engine)) {
		engine->suspected = FANIN_REASON_NONE;
		fanin_engine_refused(engine, reason, engine->oldest);
		return;
	}
	/*
	 * The query is overdue: a switch that has sent its sum up passes it on, and the refusal may
	 * have come from another switch.
	 */
	if (engine->loop.now_ns >= engine->suspected_ask_ns &&
	    fanin_engine_query(engine, engine->oldest, false, true) != 0) {
		if (engine->suspected_ns == 0)
			engine->suspected_ns = engine->loop.now_ns;
		engine->suspected_ask_ns = engine->loop.now_ns +
					   fanin_engine_retry_max_ns(engine) / 8;
	}
	fanin_loop_wake_by(&engine->loop, engine->suspected_ask_ns);
}

void
fanin_engine_refusal_clear(struct fanin_engine *engine, const struct fanin_hdr *hdr)
{
	/* SENT is the state at the nearest switch, and the refusal may come from one further up. */
	if (hdr->type != FANIN_TYPE_ANSWER || hdr->count != FANIN_BLOCK_SENT)
		engine->suspected = FANIN_REASON_NONE;
}
