/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a rank answers owners: with its own data of a packet, while it has that
 * (protocols/pull/README.md, "What the other ranks do"). Answers wait in a ring until the transport
 * has room. Called by the poll loop only.
 */
#include "pull_internal.h"

static bool
has_room(const struct fanin_pull *pull)
{
	return pull->wanted_tail - pull->wanted_head <= pull->wanted_mask;
}

static void
want(struct fanin_pull *pull, const struct fanin_pull_wanted *wanted)
{
	pull->wanted[pull->wanted_tail++ & pull->wanted_mask] = *wanted;
}

/*
 * Queues an answer to an owner's question about a packet. Drops the question if the same one came
 * just before: duplicates, and questions that have queued up here, are answered once. Returns
 * whether the answer was queued.
 */
static bool
want_data(struct fanin_pull *pull, const struct fanin_pull_wanted *wanted)
{
	struct fanin_pull_heard *heard =
		&pull->heard[wanted->answer][wanted->packet % FANIN_PULL_HEARD];
	const uint64_t now_ns = pull->mc.engine.loop.now_ns;

	if (heard->time_ns != 0 && heard->operation == wanted->operation &&
	    heard->packet == wanted->packet && now_ns < heard->time_ns + pull->timeout_ns) {
		pull->stats.again++;
		return false;
	}
	if (!has_room(pull)) {
		pull->stats.forgotten++;
		return false;
	}
	*heard = (struct fanin_pull_heard){ .time_ns = now_ns,
					    .operation = wanted->operation,
					    .packet = wanted->packet };
	want(pull, wanted);
	return true;
}

/*
 * Finds the packets of an owner in an operation that is in progress. Returns false if there is no
 * such operation, or if it does not combine.
 */
static bool
owned_by(struct fanin_pull *pull, uint32_t operation, uint16_t owner, uint32_t *first,
	 uint32_t *end)
{
	const struct fanin_broadcast_op *op = fanin_broadcast_find(&pull->mc, operation);

	if (op == NULL) {
		pull->stats.closed++;
		return false;
	}
	if (!fanin_request_combines(op->request)) {
		pull->mc.engine.stats.invalid++;
		return false;
	}
	fanin_broadcast_root_range(&pull->mc, op, owner, first, end);
	return true;
}

void
fanin_pull_receive_request(struct fanin_pull *pull, const struct fanin_hdr *hdr)
{
	const uint16_t size = fanin_pull_size(pull);
	const uint16_t owner = fanin_pull_owner(hdr->block, size);
	const uint32_t index = fanin_pull_index(hdr->block, size);
	uint32_t first, end;

	if (!owned_by(pull, hdr->progress, owner, &first, &end))
		return;
	if (index >= end - first) {
		pull->mc.engine.stats.invalid++;
		return;
	}
	(void)want_data(pull, &(struct fanin_pull_wanted){ .operation = hdr->progress,
							   .packet = first + index,
							   .owner = owner,
							   .answer = FANIN_PULL_RESPONSE });
}

void
fanin_pull_receive_ask(struct fanin_pull *pull, const struct fanin_frame *frame)
{
	const struct fanin_headers *headers = frame->data;
	const struct fanin_hdr *hdr = &headers->fanin;
	const uint16_t owner = (uint16_t)hdr->members;
	uint64_t words[FANIN_QUESTION_SPAN / 64];
	const uint32_t n = fanin_engine_copy_words(&pull->mc.engine, frame, words,
						   FANIN_QUESTION_SPAN / 64);
	struct fanin_pull_wanted wanted, last = { 0 };
	uint32_t first, end;

	if (!owned_by(pull, hdr->progress, owner, &first, &end))
		return;
	if (n == 0 || hdr->block < first || hdr->block >= end) {
		pull->mc.engine.stats.invalid++;
		return;
	}
	wanted = (struct fanin_pull_wanted){ .operation = hdr->progress,
					     .owner = owner,
					     .answer = FANIN_PULL_GIVE };
	for (uint32_t i = 0; i < n * 64 && i < end - hdr->block; i++) {
		wanted.packet = hdr->block + i;
		if (fanin_bit(words, i) && want_data(pull, &wanted)) {
			last = wanted;
			last.answer = FANIN_PULL_TELL;
		}
	}
	/* The TELL follows the data, and is about the last packet. */
	if (last.answer == FANIN_PULL_TELL && has_room(pull))
		want(pull, &last);
}

/*
 * Sends this rank's own data of a packet as a RESPONSE, which switches combine. Returns false if
 * the transport has no room.
 */
static bool
response_send(struct fanin_pull *pull, const struct fanin_broadcast_op *op,
	      const struct fanin_pull_wanted *wanted, const struct fanin_extent *extent)
{
	const struct fanin_request *request = op->request;
	const uint32_t len = fanin_pull_data_len(pull, request, extent);
	struct fanin_headers headers;
	uint32_t first, end;

	fanin_broadcast_root_range(&pull->mc, op, wanted->owner, &first, &end);
	fanin_pull_headers(pull, FANIN_TYPE_RESPONSE, op->number,
			   fanin_pull_place(wanted->owner, wanted->packet - first,
					    fanin_pull_size(pull)),
			   len, &headers);
	headers.fanin.members = pull->own;
	headers.fanin.dtype = fanin_pull_widens(pull, request) ? (uint8_t)FANIN_WIRE_F32
							       : request->dtype;
	headers.fanin.op = request->op;
	headers.fanin.count = (uint16_t)(extent->len / request->element_bytes);
	if (!fanin_engine_transmit(&pull->mc.engine, &headers,
				   fanin_pull_own_data(pull, request, extent), len))
		return false;
	pull->mc.engine.stats.frames_sent++;
	return true;
}

/* Tells the owner that this rank has given it the packet. */
static bool
tell_send(struct fanin_pull *pull, const struct fanin_broadcast_op *op,
	  const struct fanin_pull_wanted *wanted)
{
	const struct fanin_broadcast_tell tell = { .has = 1, .packet = wanted->packet };

	return fanin_broadcast_send_to(&pull->mc, op, wanted->owner, FANIN_BROADCAST_TELL,
				       wanted->packet, &tell, sizeof(tell));
}

static bool
answer_send(struct fanin_pull *pull, const struct fanin_broadcast_op *op,
	    const struct fanin_pull_wanted *wanted)
{
	const struct fanin_extent extent = fanin_request_extent(op->request, wanted->packet);

	switch ((enum fanin_pull_answer)wanted->answer) {
	case FANIN_PULL_RESPONSE:
		return response_send(pull, op, wanted, &extent);
	case FANIN_PULL_GIVE:
		return fanin_broadcast_send_to(&pull->mc, op, wanted->owner, FANIN_BROADCAST_GIVE,
					       wanted->packet,
					       fanin_pull_own_data(pull, op->request, &extent),
					       fanin_pull_data_len(pull, op->request, &extent));
	case FANIN_PULL_TELL:
		return tell_send(pull, op, wanted);
	}
	return true;
}

/*
 * Sends an answer, if this rank still has its own data. Returns false if the transport has no room.
 */
static bool
answer(struct fanin_pull *pull, const struct fanin_pull_wanted *wanted)
{
	const struct fanin_broadcast_op *op = fanin_broadcast_find(&pull->mc, wanted->operation);

	/*
	 * If this rank has the result, it may have overwritten the data (in place). The owner has
	 * made the packet, so it needs no answer.
	 */
	if (op == NULL || fanin_bit(op->have, wanted->packet)) {
		pull->stats.closed++;
		return true;
	}
	if (!answer_send(pull, op, wanted))
		return false;
	pull->stats.answers += wanted->answer != FANIN_PULL_TELL;
	return true;
}

bool
fanin_pull_answer(struct fanin_pull *pull)
{
	for (uint32_t room = FANIN_PULL_BURST; pull->wanted_head != pull->wanted_tail; room--) {
		if (room == 0 ||
		    !answer(pull, &pull->wanted[pull->wanted_head & pull->wanted_mask]))
			return false;
		pull->wanted_head++;
	}
	return true;
}
