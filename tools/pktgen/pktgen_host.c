/* SPDX-License-Identifier: BSD-3-Clause */
/* A member's entry into the job and exit: ARP, JOIN, LEAVE and their answers. See pktgen_host.h. */
#include <arpa/inet.h>
#include <string.h>

#include "tools/pktgen/pktgen_internal.h"
#include "wire/arp.h"

#define CONTROL_REPEAT_NS (100 * UINT64_C(1000000))

static_assert(sizeof(struct fanin_arp) <= PKTGEN_ARP_LEN && PKTGEN_ARP_LEN <= PKTGEN_CONTROL_LEN,
	      "an ARP request fits");

void
pktgen_member_init(struct pktgen_member *member, struct pktgen_host *host, struct pktgen_job *job,
		   uint16_t rank, uint64_t nonce)
{
	*member = (struct pktgen_member){ .host = host, .job = job, .rank = rank, .nonce = nonce };
}

void
pktgen_member_leave(struct pktgen_member *member)
{
	if (!member->joined)
		member->state = PKTGEN_LEFT;
	if (member->state == PKTGEN_LEFT)
		return;
	member->state = PKTGEN_LEAVE;
	member->next_send_ns = 0;
}

bool
pktgen_member_control_due(const struct pktgen_member *member, uint64_t now_ns)
{
	if (member->state == PKTGEN_RESOLVE && member->host->resolved)
		return true;
	return member->state != PKTGEN_RUN && member->state != PKTGEN_LEFT &&
	       now_ns >= member->next_send_ns;
}

static size_t
arp_request(const struct pktgen_host *host, void *frame)
{
	struct fanin_arp arp;

	fanin_arp_encode(&arp, FANIN_ARP_REQUEST_BE, host->mac, host->ip_be, host->switch_ip_be);
	memset(arp.eth.dst, 0xff, sizeof(arp.eth.dst));
	memset(frame, 0, PKTGEN_ARP_LEN);
	memcpy(frame, &arp, sizeof(arp));
	return PKTGEN_ARP_LEN;
}

void
pktgen_host_arp(struct pktgen_host *host, const void *frame, size_t len)
{
	struct fanin_arp arp;

	if (!fanin_arp_decode(frame, len, &arp) || arp.operation_be != FANIN_ARP_REPLY_BE ||
	    arp.sender_ip_be != host->switch_ip_be || arp.target_ip_be != host->ip_be)
		return;
	memcpy(host->switch_mac, arp.sender_mac, sizeof(host->switch_mac));
	host->resolved = true;
}

void
pktgen_member_flow(const struct pktgen_member *member, struct fanin_flow *flow)
{
	const struct pktgen_host *host = member->host;

	*flow = (struct fanin_flow){
		.dst_ip_be = host->switch_ip_be,
		.src_ip_be = host->ip_be,
		.dst_port = host->udp_port,
		.src_port = host->udp_port,
	};
	memcpy(flow->dst_mac, host->switch_mac, sizeof(flow->dst_mac));
	memcpy(flow->src_mac, host->mac, sizeof(flow->src_mac));
}

size_t
pktgen_member_control(struct pktgen_member *member, uint64_t now_ns, void *frame)
{
	const struct pktgen_host *host = member->host;
	const struct pktgen_job *job = member->job;
	const bool join = member->state != PKTGEN_LEAVE;
	const struct fanin_join_body body = {
		.nonce = member->nonce,
		.size = job->size,
		.udp_port = host->udp_port,
		.mtu = host->mtu,
		.cookie = member->cookie,
	};
	const uint32_t body_len = join ? sizeof(body) : 0;
	struct fanin_headers headers;
	struct fanin_flow flow;

	member->next_send_ns = now_ns + CONTROL_REPEAT_NS;
	if (!host->resolved)
		return arp_request(host, frame);
	if (member->state == PKTGEN_RESOLVE)
		member->state = PKTGEN_JOIN;
	pktgen_member_flow(member, &flow);
	fanin_wire_encode_l4(&headers, &flow, body_len);
	fanin_wire_encode_header(&headers.fanin, join ? FANIN_TYPE_JOIN : FANIN_TYPE_LEAVE, job->id,
				 join ? 0 : job->epoch, job->keys.up);
	headers.fanin.rank = member->rank;
	memcpy(frame, &headers, sizeof(headers));
	memcpy((uint8_t *)frame + sizeof(headers), &body, body_len);
	return sizeof(headers) + body_len;
}

static void
job_fail_tagged(struct pktgen_job *job)
{
	pktgen_job_fail(
		job,
		"job %u has authentication, which the generator has not: expected one created without --authenticate",
		job->id);
}

/*
 * Takes the job's properties from the switch. They have to be valid, and the same for all members.
 */
static void
job_take(struct pktgen_job *job, const struct fanin_hdr *hdr, const struct fanin_join_ack_body *ack)
{
	uint16_t window = ack->window;

	if (ack->size != job->size) {
		pktgen_job_fail(job, "job %u has %u hosts, expected %u", job->id, ack->size,
				job->size);
		return;
	}
	if ((ack->flags & FANIN_JOB_TAGGED) != 0) {
		job_fail_tagged(job);
		return;
	}
	if ((ack->flags & FANIN_JOB_LEADERS) != 0) {
		pktgen_job_fail(
			job,
			"job %u has leaders of blocks, whose part this program does not play: expected a handler whose switches make results",
			job->id);
		return;
	}
	if ((ack->flags & FANIN_JOB_MULTICAST) != 0) {
		pktgen_job_fail(
			job,
			"job %u is a multicast job, which reduces nothing: expected one whose handler does",
			job->id);
		return;
	}
	if (window == 0 || window > FANIN_WIRE_MAX_WINDOW || (window & (window - 1)) != 0 ||
	    ack->payload_bytes < FANIN_PAYLOAD_ALIGN ||
	    (ack->flags & ~(uint32_t)FANIN_JOB_FLAGS_ALL) != 0) {
		pktgen_job_fail(
			job,
			"the switch's answer makes no sense: window %u, %u payload bytes, flags 0x%x",
			window, ack->payload_bytes, ack->flags);
		return;
	}
	while (job->max_window != 0 && window > job->max_window)
		window /= 2;
	if (ack->state == FANIN_JOIN_ACTIVE && job->epoch != 0 && job->epoch != hdr->epoch) {
		pktgen_job_fail(job, "job %u: members were told the epochs %u and %u", job->id,
				job->epoch, hdr->epoch);
		return;
	}
	job->window = window;
	job->payload_limit = ack->payload_bytes;
	job->group_be = ack->group_be;
	job->wide = (ack->flags & FANIN_JOB_WIDE) != 0;
	if (ack->state == FANIN_JOIN_ACTIVE)
		job->epoch = hdr->epoch;
}

static void
receive_join_ack(struct pktgen_member *member, const struct fanin_headers *headers)
{
	struct fanin_join_ack_body ack;

	memcpy(&ack, headers + 1, sizeof(ack));
	if (member->state != PKTGEN_JOIN || ack.nonce != member->nonce)
		return;
	member->refusal = FANIN_REASON_NONE;
	if (ack.state == FANIN_JOIN_CHALLENGE) {
		member->cookie = ack.cookie;
		member->next_send_ns = 0;
		return;
	}
	job_take(member->job, &headers->fanin, &ack);
	member->joined = true;
	if (ack.state == FANIN_JOIN_ACTIVE)
		member->state = PKTGEN_RUN;
}

static void
receive_refused(struct pktgen_member *member, const struct fanin_hdr *hdr)
{
	struct pktgen_job *job = member->job;
	const unsigned int reason = hdr->count;

	if (member->state == PKTGEN_LEAVE) {
		/* The switch does not know the member: nothing is left to leave. */
		member->state = PKTGEN_LEFT;
	} else if (member->state == PKTGEN_JOIN && reason == FANIN_REASON_MEMBER_BUSY) {
		member->refusal = reason;
	} else if (member->state == PKTGEN_RUN &&
		   (reason == FANIN_REASON_BLOCK_STALE || reason == FANIN_REASON_BLOCK_WINDOW)) {
		/* A retransmitted contribution that was overtaken by the result. */
		job->stats->stale++;
	} else if (member->state == PKTGEN_JOIN && reason == FANIN_REASON_TAG) {
		job_fail_tagged(job);
	} else if (member->state != PKTGEN_LEFT) {
		pktgen_job_fail(job, "the switch refused host %u of job %u: %s (%s)", member->rank,
				job->id, fanin_reason_text(reason), fanin_reason_name(reason));
	}
}

void
pktgen_member_receive(struct pktgen_member *member, const struct fanin_headers *headers)
{
	const struct fanin_hdr *hdr = &headers->fanin;

	if (!fanin_keys_fit_answer(&member->job->keys, hdr)) {
		member->job->stats->foreign++;
		return;
	}
	switch (hdr->type) {
	case FANIN_TYPE_JOIN_ACK:
		receive_join_ack(member, headers);
		break;
	case FANIN_TYPE_LEAVE_ACK:
		if (member->state == PKTGEN_LEAVE)
			member->state = PKTGEN_LEFT;
		break;
	case FANIN_TYPE_REFUSED:
		receive_refused(member, hdr);
		break;
	case FANIN_TYPE_ANSWER:
		member->job->stats->answers++;
		break;
	default:
		member->job->stats->foreign++;
		break;
	}
}
