/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Answers to one host: the packet that asked is turned around and goes back through the port that it came in on.
 */
#include <string.h>

#include "pipeline/mismatch.h"
#include "pipeline/reply.h"
#include "pipeline/tags.h"
#include "pipeline/base/tx.h"

#include "pipeline/base/fastpath.h"

void
worker_reply(struct worker *worker, struct rte_mbuf *mbuf, const struct job *job,
	     uint32_t payload_len, uint16_t dst_port_be)
{
	const struct pipeline *pipeline = worker->pipeline;
	struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *);
	struct fanin_flow flow = {
		.dst_ip_be = headers->ip.src_be,
		.src_ip_be = pipeline->ip_be,
		.dst_port = rte_be_to_cpu_16(dst_port_be),
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

void
worker_refuse(struct worker *worker, struct rte_mbuf *mbuf, struct job *job, enum fanin_reason reason)
{
	struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *);
	uint16_t dst_port_be = worker->pipeline->udp_port_be;
	struct fanin_mismatch mismatch;
	uint64_t nonce = 0;

	worker->counters.drops[reason]++;
	/* So that the host knows that it is its own JOIN which is refused. */
	if (headers->fanin.type == FANIN_TYPE_JOIN &&
	    mbuf->data_len >= FANIN_PAYLOAD_OFFSET + sizeof(struct fanin_join_body))
		memcpy(&nonce,
		       (const uint8_t *)(headers + 1) + offsetof(struct fanin_join_body, nonce),
		       sizeof(nonce));
	/* JOIN and LEAVE come from an ordinary socket, which waits for the answer. */
	if (headers->fanin.type == FANIN_TYPE_JOIN || headers->fanin.type == FANIN_TYPE_LEAVE)
		dst_port_be = headers->udp.src_be;
	headers->fanin.type = FANIN_TYPE_REFUSED;
	headers->fanin.flags = 0;
	headers->fanin.dtype = FANIN_WIRE_DTYPE_NONE;
	headers->fanin.op = FANIN_WIRE_OP_NONE;
	headers->fanin.root = 0;
	headers->fanin.count = (uint16_t)reason;
	headers->fanin.contributions = 0;
	headers->fanin.members = nonce;
	headers->fanin.number = 0;
	if (job != NULL && reason == FANIN_REASON_MISMATCH &&
	    mismatch_read(job, headers->fanin.epoch, &mismatch))
		fanin_mismatch_encode(&headers->fanin, &mismatch);
	/* An answer to a stranger reveals nothing that it did not send. */
	if (job != NULL)
		headers->fanin.key = job->params.keys.down;
	worker_reply(worker, mbuf, job, 0, dst_port_be);
}
