/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Answers to one host: the packet that asked is turned around and goes back through the port that
 * it came in on.
 */
#include <string.h>

#include "handlers/frame.h"
#include "pipeline/mismatch.h"
#include "pipeline/reply.h"
#include "pipeline/tags.h"
#include "pipeline/base/tx.h"

#include "pipeline/base/fastpath.h"

void
worker_reply(struct worker *worker, struct rte_mbuf *mbuf, const struct job *job,
	     uint32_t payload_len)
{
	const struct pipeline *pipeline = worker->pipeline;
	struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *);
	struct fanin_flow flow = {
		.dst_ip_be = headers->ip.src_be,
		.src_ip_be = pipeline->ip_be,
		.dst_port = rte_be_to_cpu_16(headers->udp.src_be != 0 ? headers->udp.src_be
								      : pipeline->udp_port_be),
		.src_port = rte_be_to_cpu_16(pipeline->udp_port_be),
	};

	memcpy(flow.dst_mac, headers->eth.src, sizeof(flow.dst_mac));
	memcpy(flow.src_mac, pipeline->mac, sizeof(flow.src_mac));
	fanin_wire_encode_l4(headers, &flow, payload_len);
	mbuf->data_len = (uint16_t)(FANIN_PAYLOAD_OFFSET + payload_len);
	mbuf->pkt_len = mbuf->data_len;
	mbuf->ol_flags = 0;
	if (job != NULL)
		tags_seal(worker, job, FANIN_TAG_DOWN, mbuf);
	worker_send_fanin(worker, ingress_port(pipeline, mbuf), mbuf);
}

/*
 * The version in a REFUSED: this switch's, for a sender that has another one; or the parent's, if
 * that is the reason.
 */
static uint16_t
told_version(const struct job *job, const struct fanin_hdr *hdr, enum fanin_reason reason)
{
	if (hdr->version != FANIN_WIRE_VERSION)
		return FANIN_WIRE_VERSION;
	return job != NULL && reason == FANIN_REASON_VERSION
		       ? __atomic_load_n(&job->parent_version, __ATOMIC_RELAXED)
		       : 0;
}

void
worker_refuse(struct worker *worker, struct rte_mbuf *mbuf, struct job *job,
	      enum fanin_reason reason)
{
	struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *);
	const bool is_join = headers->fanin.type == FANIN_TYPE_JOIN;
	struct fanin_mismatch mismatch;
	uint64_t nonce = 0;

	worker->counters.drops[reason]++;
	/* Tells the host that its own JOIN is refused. */
	if (is_join && mbuf->data_len >= FANIN_PAYLOAD_OFFSET + FANIN_JOIN_BODY_BEFORE)
		memcpy(&nonce,
		       (const uint8_t *)(headers + 1) + offsetof(struct fanin_join_body, nonce),
		       sizeof(nonce));
	/*
	 * A packet of version 2 has no port in its header. Only its JOINs are answered, and they
	 * contain the port that they came from.
	 */
	if (headers->fanin.version == FANIN_WIRE_VERSION) {
		fanin_frame_answer_to(headers);
		headers->fanin.port = 0;
	}
	headers->fanin.type = FANIN_TYPE_REFUSED;
	headers->fanin.flags = 0;
	headers->fanin.dtype = FANIN_WIRE_DTYPE_NONE;
	headers->fanin.op = FANIN_WIRE_OP_NONE;
	headers->fanin.root = 0;
	headers->fanin.count = (uint16_t)reason;
	headers->fanin.contributions = told_version(job, &headers->fanin, reason);
	/* The sender of a JOIN may not know the address that it has here. */
	if (is_join && reason == FANIN_REASON_SOURCE)
		headers->fanin.progress = headers->ip.src_be;
	headers->fanin.members = nonce;
	headers->fanin.number = 0;
	if (job != NULL && reason == FANIN_REASON_MISMATCH &&
	    mismatch_read(job, headers->fanin.epoch, &mismatch))
		fanin_mismatch_encode(&headers->fanin, &mismatch);
	/* An answer to a stranger reveals nothing that it did not send. */
	if (job != NULL)
		headers->fanin.key = job->params.keys.down;
	worker_reply(worker, mbuf, job, 0);
}
