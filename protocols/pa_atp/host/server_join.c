/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How the aggregating switch joins and leaves, as a child does at its parent in
 * pipeline/membership.c and pipeline/job_run.c. The switch joins once all its own children have.
 * The run begins with that, and ends when the switch leaves. A JOIN changes nothing unless it
 * returns a cookie that was made for its nonce; each cookie is accepted once.
 */
#include "server_internal.h"

#include <string.h>

static void
run_begin(struct fanin_server_core *core, struct fanin_server_job *job, uint32_t first_block)
{
	job->epoch = core->next_epoch++;
	/* 0 stands for "no run". */
	if (job->epoch == 0)
		job->epoch = core->next_epoch++;
	job->first_block = first_block;
	job->stats.runs++;
	server_blocks_reset(job);
}

static void
run_end(struct fanin_server_job *job)
{
	job->member.joined = false;
	job->epoch = 0;
	server_blocks_reset(job);
}

/*
 * True if the JOIN answers the last challenge. The time between the two is then a round trip,
 * unless the challenge was sent more than once. Otherwise the JOIN is challenged.
 */
static bool
is_fresh(const struct fanin_server_core *core, struct fanin_server_job *job,
	 const struct fanin_join_body *body, uint64_t now_ns)
{
	struct server_member *member = &job->member;
	uint64_t round_trip_ns;

	if (member->cookie == 0 || member->asked_nonce != body->nonce) {
		member->asked_nonce = body->nonce;
		member->cookie = core->options.random(core->options.arg) | 1;
		member->challenged_ns = now_ns;
		member->challenged_twice = false;
		return false;
	}
	if (member->cookie != body->cookie) {
		member->challenged_twice = true;
		return false;
	}
	if (core->options.round_trip_ns == 0 && !member->challenged_twice) {
		round_trip_ns = now_ns - member->challenged_ns;
		if (round_trip_ns < FANIN_SERVER_MIN_ROUND_TRIP_NS)
			round_trip_ns = FANIN_SERVER_MIN_ROUND_TRIP_NS;
		if (round_trip_ns > FANIN_SERVER_MAX_ROUND_TRIP_NS)
			round_trip_ns = FANIN_SERVER_MAX_ROUND_TRIP_NS;
		job->round_trip_ns = round_trip_ns;
	}
	return true;
}

/* Returns false if it is challenged. */
static bool
join(struct fanin_server_core *core, struct fanin_server_job *job,
     const struct server_packet *packet, const struct fanin_join_body *body)
{
	struct server_member *member = &job->member;

	/* A repeated JOIN of the joined run gets the same answer again. */
	if (member->joined && member->nonce == body->nonce)
		return true;
	if (!is_fresh(core, job, body, packet->now_ns))
		return false;
	if (member->joined)
		run_end(job);
	member->cookie = 0;
	member->taken = body->cookie;
	member->joined = true;
	member->nonce = body->nonce;
	run_begin(core, job, packet->headers->fanin.progress);
	return true;
}

static enum fanin_reason
check_join(const struct fanin_server_job *job, const struct fanin_headers *headers,
	   const struct fanin_join_body *body)
{
	if (body->size != job->spec.n_ranks || headers->fanin.contributions != job->spec.n_ranks)
		return FANIN_REASON_SIZE;
	/*
	 * The switch may take shorter payloads than the server: results are as long as
	 * contributions.
	 */
	if (body->mtu < FANIN_MTU_OVERHEAD + FANIN_PAYLOAD_ALIGN)
		return FANIN_REASON_MTU;
	return FANIN_REASON_NONE;
}

static void
answer_join(struct fanin_server_core *core, struct fanin_server_job *job,
	    const struct server_packet *packet)
{
	const struct fanin_server_spec *spec = &job->spec;
	const struct fanin_headers *headers = packet->headers;
	struct fanin_join_ack_body ack = {
		.size = spec->n_ranks,
		.window = (uint16_t)(spec->slots / 2),
		.payload_bytes = spec->payload_bytes,
		.group_be = job->group_be,
		.instance = core->instance,
		.slots = spec->slots,
		.sharing = 1,
		.port_blocks = fanin_wire_port_blocks(spec->payload_bytes, UINT32_MAX),
	};
	uint8_t body[sizeof(ack) + sizeof(uint64_t)];
	struct fanin_join_body asked;
	enum fanin_reason reason;
	struct fanin_hdr hdr;
	uint64_t joined;
	bool taken;

	memcpy(&asked, packet->payload, sizeof(asked));
	if (asked.path == FANIN_PATH_FIRST)
		return;
	if (asked.address_be != 0 && asked.address_be != headers->ip.src_be) {
		server_refuse(core, NULL, headers, packet->payload, packet->payload_len,
			      FANIN_REASON_SOURCE);
		return;
	}
	reason = check_join(job, headers, &asked);
	if (reason != FANIN_REASON_NONE) {
		server_refuse(core, job, headers, packet->payload, packet->payload_len, reason);
		return;
	}
	taken = join(core, job, packet, &asked);
	ack.nonce = asked.nonce;
	ack.path = asked.path;
	ack.state = taken ? FANIN_JOIN_ACTIVE : FANIN_JOIN_CHALLENGE;
	ack.cookie = taken ? job->member.taken : job->member.cookie;
	memcpy(ack.handler, spec->handler, sizeof(ack.handler));
	memcpy(ack.parameters, spec->parameters, sizeof(ack.parameters));
	joined = job->member.joined ? job->all : 0;
	server_begin(job, FANIN_TYPE_JOIN_ACK, &hdr);
	if (!taken)
		hdr.epoch = 0;
	hdr.rank = headers->fanin.rank;
	hdr.progress = job->first_block;
	memcpy(body, &ack, sizeof(ack));
	memcpy(body + sizeof(ack), &joined, sizeof(joined));
	server_reply(core, headers, &hdr, body, sizeof(body));
}

static void
answer_leave(struct fanin_server_core *core, struct fanin_server_job *job,
	     const struct server_packet *packet)
{
	const struct fanin_headers *headers = packet->headers;
	struct fanin_hdr hdr;

	/* The LEAVE of an earlier run may arrive late. */
	if (job->member.joined && job->epoch == headers->fanin.epoch)
		run_end(job);
	server_begin(job, FANIN_TYPE_LEAVE_ACK, &hdr);
	hdr.epoch = headers->fanin.epoch;
	hdr.rank = headers->fanin.rank;
	server_reply(core, headers, &hdr, NULL, 0);
}

void
server_membership(struct fanin_server_core *core, struct fanin_server_job *job,
		  const struct server_packet *packet)
{
	if (packet->headers->fanin.type == FANIN_TYPE_JOIN)
		answer_join(core, job, packet);
	else
		answer_leave(core, job, packet);
}
