/* SPDX-License-Identifier: BSD-3-Clause */
/* Push: packets from this rank to others, along the job's tree. Called by the poll loop only. */
#include "push_internal.h"

static bool
transmit(struct fanin_push *push, enum fanin_type type, unsigned int to, enum fanin_push_kind kind,
	 uint32_t block, const struct push_elements *elements)
{
	static const struct push_elements none;
	const struct fanin_protocol_config *config = &push->engine.config;
	const struct push_elements *what = elements != NULL ? elements : &none;
	struct fanin_headers headers;
	struct fanin_hdr *hdr = &headers.fanin;

	fanin_engine_begin(&push->engine, type, block - push->engine.base, what->len, &headers);
	hdr->members = config->rank;
	hdr->count = (uint16_t)to;
	hdr->number = fanin_push_number(kind, fanin_wire_is_empty(&what->shape), what->shape.dtype,
					what->shape.op);
	hdr->progress = fanin_push_progress(what->shape.count, what->shape.root);
	if (!fanin_engine_transmit(&push->engine, &headers, what->payload, what->len))
		return false;
	push->engine.stats.frames_sent++;
	return true;
}

bool
fanin_push_send(struct fanin_push *push, unsigned int rank, enum fanin_push_kind kind,
		uint32_t block, const struct push_elements *elements)
{
	return transmit(push, FANIN_TYPE_UNICAST, rank, kind, block, elements);
}

bool
fanin_push_send_all(struct fanin_push *push, enum fanin_push_kind kind, uint32_t block,
		    const struct push_elements *elements)
{
	return transmit(push, FANIN_TYPE_MULTICAST, 0, kind, block, elements);
}

bool
fanin_push_repeat(struct fanin_push *push, unsigned int rank, uint32_t block)
{
	struct push_elements elements = { 0 };

	return fanin_engine_result(&push->engine, block, &elements.shape, &elements.payload,
				   &elements.len) &&
	       fanin_push_send(push, rank, FANIN_PUSH_REPEAT, block, &elements);
}

bool
fanin_push_question(struct fanin_push *push, unsigned int rank, enum fanin_push_kind kind,
		    uint32_t block)
{
	if (!fanin_push_send(push, rank, kind, block, NULL))
		return false;
	if (push->unanswered_ns[rank] == 0)
		push->unanswered_ns[rank] = push->engine.loop.now_ns;
	return true;
}
