/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * This switch as a child of its parent in a job's reduction tree: it joins and leaves as a host
 * would, and takes the parent's refusals. Nothing here waits or has a timer: a lost packet is sent
 * again when a child repeats itself.
 */
#include <string.h>

#include "pipeline/emission.h"
#include "pipeline/mismatch.h"
#include "pipeline/parent.h"
#include "pipeline/tags.h"
#include "pipeline/base/tx.h"

#include "pipeline/base/fastpath.h"

/*
 * Returns a packet without a body for the parent or the children, or NULL if there is no free mbuf:
 * then the packet counts as lost.
 */
static struct rte_mbuf *
make_control(struct worker *worker, const struct job *job, const struct fanin_headers *template,
	     enum fanin_type type, uint32_t body_len)
{
	struct rte_mbuf *mbuf = rte_pktmbuf_alloc(worker->pipeline->pool);
	struct fanin_headers *headers;

	if (mbuf == NULL) {
		worker->counters.drops[FANIN_REASON_TX_FULL]++;
		return NULL;
	}
	headers = (struct fanin_headers *)rte_pktmbuf_append(mbuf, (uint16_t)(FANIN_PAYLOAD_OFFSET +
									      body_len));
	*headers = *template;
	fanin_wire_set_payload_len(headers, body_len);
	fanin_wire_encode_header(&headers->fanin, type, job->params.id, 0,
				 type == FANIN_TYPE_REFUSED ? job->params.keys.down
							    : job->params.keys.up);
	return mbuf;
}

void
worker_ask_parent(struct worker *worker, struct job *job)
{
	const bool before = job_parent_may_be_older(job);
	struct fanin_join_body body;
	const uint32_t body_len = before ? FANIN_JOIN_BODY_BEFORE : sizeof(body);
	struct rte_mbuf *mbuf = make_control(worker, job, &job->params.parent_headers,
					     FANIN_TYPE_JOIN, body_len);
	struct fanin_headers *headers;

	if (mbuf == NULL)
		return;
	headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *);
	job_parent_join(job, &headers->fanin, &body);
	headers->fanin.rank = job->params.parent_rank;
	if (before) {
		headers->fanin.version = FANIN_WIRE_VERSION_BEFORE;
		body.cookie = 0;
		body.udp_port = rte_be_to_cpu_16(worker->pipeline->udp_port_be);
	}
	memcpy(headers + 1, &body, body_len);
	tags_seal(worker, job, FANIN_TAG_UP, mbuf);
	worker_send_fanin(worker, job->parent_port, mbuf);
}

void
worker_leave_parent(struct worker *worker, const struct job *job, uint32_t epoch)
{
	struct rte_mbuf *mbuf = make_control(worker, job, &job->params.parent_headers,
					     FANIN_TYPE_LEAVE, 0);
	struct fanin_hdr *hdr;

	if (mbuf == NULL)
		return;
	hdr = &rte_pktmbuf_mtod(mbuf, struct fanin_headers *)->fanin;
	hdr->epoch = epoch;
	hdr->rank = job->params.parent_rank;
	tags_seal(worker, job, FANIN_TAG_UP, mbuf);
	worker_send_fanin(worker, job->parent_port, mbuf);
}

void
worker_call_children(struct worker *worker, const struct job *job, uint64_t children)
{
	struct rte_mbuf *mbuf;

	if (children == 0)
		return;
	mbuf = make_control(worker, job, &job->params.result_headers, FANIN_TYPE_REFUSED, 0);
	if (mbuf == NULL)
		return;
	rte_pktmbuf_mtod(mbuf, struct fanin_headers *)->fanin.count = FANIN_REASON_NOT_ACTIVE;
	tags_seal(worker, job, FANIN_TAG_DOWN, mbuf);
	rte_mbuf_refcnt_set(mbuf, (uint16_t)__builtin_popcountll(children));
	emission_to_children(worker, job, children, mbuf);
}

/*
 * The parent refuses a block, which does not match what ranks behind other switches contributed.
 * All children are told, not only the one that asked.
 */
static void
pass_on(struct worker *worker, struct job *job, struct rte_mbuf *mbuf)
{
	struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *);
	const struct fanin_hdr hdr = headers->fanin;
	const uint32_t epoch = __atomic_load_n(&job->epoch, __ATOMIC_ACQUIRE);
	struct fanin_mismatch mismatch;

	if (epoch == 0 || hdr.epoch != __atomic_load_n(&job->parent_epoch, __ATOMIC_RELAXED)) {
		worker_drop(worker, mbuf, FANIN_REASON_EPOCH);
		return;
	}
	/*
	 * No rank that keeps to the window has sent such a block: its sender is unknown, and no
	 * other rank may fail because of it.
	 */
	if (hdr.count == FANIN_REASON_BLOCK_WINDOW) {
		worker_drop(worker, mbuf, FANIN_REASON_BLOCK_WINDOW);
		return;
	}
	if (hdr.count == FANIN_REASON_MISMATCH && fanin_mismatch_decode(&hdr, &mismatch)) {
		/* Children that ask later are told, too. */
		mismatch_take(worker, job, epoch, &mismatch, false);
		worker_free(worker, mbuf);
		return;
	}
	*headers = job->params.result_headers;
	fanin_wire_set_payload_len(headers, 0);
	fanin_wire_encode_header(&headers->fanin, hdr.type, job->params.id, epoch,
				 job->params.keys.down);
	headers->fanin.block = hdr.block;
	headers->fanin.count = hdr.count;
	mbuf->data_len = FANIN_PAYLOAD_OFFSET;
	mbuf->pkt_len = mbuf->data_len;
	mbuf->ol_flags = 0;
	tags_seal(worker, job, FANIN_TAG_DOWN, mbuf);
	rte_mbuf_refcnt_set(mbuf, job->params.n_children);
	emission_to_children(worker, job, job->params.children, mbuf);
}

static void
take_ack(struct worker *worker, struct job *job, struct rte_mbuf *mbuf)
{
	const struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, const struct fanin_headers *);
	const uint8_t *body = (const uint8_t *)(headers + 1);
	struct fanin_join_ack_body ack;
	struct fanin_ranks joined = { 0 };

	memcpy(&ack, body, sizeof(ack));
	/* A JOIN_ACK of another size is refused for its size. */
	if (fanin_wire_payload_len(headers) >= fanin_join_ack_len(job->params.n_ranks))
		fanin_ranks_read(&joined, body + sizeof(ack), job->params.n_ranks);
	if (job_parent_ack(worker->pipeline->jobs, job, &headers->fanin, &ack, &joined))
		worker_ask_parent(worker, job);
	worker_free(worker, mbuf);
}

void
worker_from_parent(struct worker *worker, struct job *job, struct rte_mbuf *mbuf)
{
	const struct fanin_hdr *hdr = &rte_pktmbuf_mtod(mbuf, const struct fanin_headers *)->fanin;

	switch (hdr->type) {
	case FANIN_TYPE_JOIN_ACK:
		take_ack(worker, job, mbuf);
		break;
	case FANIN_TYPE_LEAVE_ACK:
		worker_free(worker, mbuf);
		break;
	default:
		/* Only JOIN and LEAVE carry no epoch of a run. */
		if (hdr->epoch != 0) {
			pass_on(worker, job, mbuf);
			break;
		}
		if (hdr->count == FANIN_REASON_NOT_ACTIVE)
			worker_call_children(worker, job, job_missing(job));
		job_parent_refused(job, hdr);
		worker_free(worker, mbuf);
		break;
	}
}
