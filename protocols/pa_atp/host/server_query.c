/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Queries of ranks whose result is overdue; all switches on the way pass them on. If the block is
 * done, its result goes to the rank that has asked. Otherwise the missing ranks are asked for their
 * contributions, and the asking rank is told which ranks are missing.
 */
#include "server_internal.h"

#include <string.h>

void
server_ask(struct fanin_server_core *core, struct fanin_server_job *job, struct server_entry *entry,
	   uint32_t block, uint64_t missing, uint64_t now_ns)
{
	struct fanin_hdr hdr;

	if (entry->asked && entry->asked_block == block &&
	    now_ns - entry->asked_ns < job->round_trip_ns)
		return;
	entry->asked = true;
	entry->asked_block = block;
	entry->asked_ns = now_ns;
	server_begin(job, FANIN_TYPE_ASK, &hdr);
	hdr.block = block;
	hdr.members = missing;
	server_send(core, job, &hdr, NULL, 0, false);
	job->stats.asks++;
}

/* Answers that the block waits for these ranks. */
static void
answer(struct fanin_server_core *core, struct fanin_server_job *job,
       const struct server_packet *packet, uint64_t missing)
{
	const struct fanin_hdr *asked = &packet->headers->fanin;
	const struct fanin_answer_body body = { .n_blocks = 0 };
	uint8_t payload[sizeof(body) + 2 * sizeof(uint64_t)];
	struct fanin_hdr hdr;
	uint64_t first, second;

	/* This server can't tell late ranks from ranks that have ended. */
	fanin_answer_encode_word(missing, 0, 0, &first, &second);
	memcpy(payload, &body, sizeof(body));
	memcpy(payload + sizeof(body), &first, sizeof(first));
	memcpy(payload + sizeof(body) + sizeof(first), &second, sizeof(second));
	server_begin(job, FANIN_TYPE_ANSWER, &hdr);
	hdr.rank = asked->rank;
	hdr.block = asked->block;
	hdr.count = FANIN_BLOCK_OPEN;
	hdr.members = asked->members;
	hdr.number = asked->number;
	server_send(core, job, &hdr, payload, sizeof(payload), false);
	job->stats.answers++;
}

static void
repeat(struct fanin_server_core *core, struct fanin_server_job *job,
       const struct server_packet *packet, const struct server_entry *entry)
{
	struct fanin_hdr hdr;

	server_begin_result(job, entry, FANIN_TYPE_REPEAT, &hdr);
	hdr.rank = packet->headers->fanin.rank;
	hdr.members = packet->headers->fanin.members;
	server_send(core, job, &hdr, server_payload(job, entry), fanin_sum_len(&entry->sum), true);
	job->stats.repeats++;
}

enum fanin_reason
server_query(struct fanin_server_core *core, struct fanin_server_job *job,
	     const struct server_packet *packet)
{
	const uint32_t block = packet->headers->fanin.block;
	struct server_entry *entry;
	uint64_t missing = job->all;

	switch (server_place(job, block, &entry)) {
	case SERVER_AHEAD:
		/*
		 * No rank that keeps to the window asks for this block. REFUSED would go to all
		 * ranks, so the packet is dropped.
		 */
		core->drops[FANIN_REASON_BLOCK_WINDOW]++;
		return FANIN_REASON_NONE;
	case SERVER_STALE:
		/*
		 * No rank that keeps to the window can lack this result: the query was on its way
		 * for long.
		 */
		job->stats.stale++;
		core->drops[FANIN_REASON_BLOCK_STALE]++;
		return FANIN_REASON_NONE;
	case SERVER_CURRENT:
		if (entry->phase == SERVER_DONE) {
			job->stats.queries++;
			repeat(core, job, packet, entry);
			return FANIN_REASON_NONE;
		}
		missing = job->all & ~entry->members;
		break;
	case SERVER_NEXT: /* nothing of the block has come: the slot stays at its block */
		break;
	}
	job->stats.queries++;
	server_ask(core, job, entry, block, missing, packet->now_ns);
	answer(core, job, packet, missing);
	return FANIN_REASON_NONE;
}
