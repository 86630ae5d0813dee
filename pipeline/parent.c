/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * This switch and its parent in the reduction tree of a job: it joins and leaves there as a host would, and takes results,
 * news of missing ranks and refusals from there. Nothing here waits or has a timer. Whatever is lost is asked for once
 * more when a child repeats itself.
 */
#include <string.h>

#include "pipeline/batch.h"
#include "pipeline/probe.h"
#include "pipeline/tags.h"

#include "pipeline/fastpath.h"

/*
 * A packet for the parent or the children, without body yet. Without a free packet it is as good as lost on the way: NULL.
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
	struct fanin_join_body body;
	struct rte_mbuf *mbuf = make_control(worker, job, &job->params.parent_headers,
					     FANIN_TYPE_JOIN, sizeof(body));
	struct fanin_headers *headers;

	if (mbuf == NULL)
		return;
	headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *);
	job_parent_join(job, &headers->fanin, &body);
	headers->fanin.rank = job->params.parent_rank;
	memcpy(headers + 1, &body, sizeof(body));
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
	worker_send_to_children(worker, job, children, mbuf);
}

/* Finds the job and checks that its parent sent the packet. */
static enum fanin_reason
check_parent(const struct pipeline *pipeline, const struct rte_mbuf *mbuf, struct job **found)
{
	const struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, const struct fanin_headers *);
	struct job *job = job_lookup(pipeline->jobs, headers->fanin.job);

	*found = job;
	if (job == NULL)
		return FANIN_REASON_JOB;
	if (!job->params.has_parent || ingress_port(pipeline, mbuf) != job->parent_port ||
	    !fanin_wire_comes_from(headers, job->parent_mac, job->parent_ip_be))
		return FANIN_REASON_DIRECTION;
	if (!fanin_keys_fit_answer(&job->params.keys, &headers->fanin))
		return FANIN_REASON_KEY;
	return FANIN_REASON_NONE;
}

bool
worker_is_result(const struct worker *worker, const struct rte_mbuf *mbuf)
{
	const struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, const struct fanin_headers *);
	const struct job *job;

	if ((rte_be_to_cpu_32(headers->ip.dst_be) & ~FANIN_WIRE_MAX_JOB) != FANIN_WIRE_GROUPS ||
	    headers->udp.dst_be != worker->pipeline->udp_port_be ||
	    fanin_wire_validate(headers, mbuf->data_len) != FANIN_REASON_NONE ||
	    (headers->fanin.type != FANIN_TYPE_RESULT && headers->fanin.type != FANIN_TYPE_ANSWER &&
	     headers->fanin.type != FANIN_TYPE_REFUSED))
		return false;
	job = job_lookup(worker->pipeline->jobs, headers->fanin.job);
	/* Tags are looked for in what goes to the job's own group. */
	return job != NULL && job->params.has_parent && headers->ip.dst_be == job->group_be &&
	       ingress_port(worker->pipeline, mbuf) == job->parent_port;
}

/*
 * The parent refuses a block: it doesn't go together with what ranks behind other switches brought. All children may know,
 * whichever of them had asked.
 */
static void
pass_on(struct worker *worker, struct job *job, struct rte_mbuf *mbuf)
{
	struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *);
	const struct fanin_hdr hdr = headers->fanin;
	const uint32_t epoch = __atomic_load_n(&job->epoch, __ATOMIC_ACQUIRE);

	if (epoch == 0 || hdr.epoch != __atomic_load_n(&job->parent_epoch, __ATOMIC_RELAXED)) {
		worker_drop(worker, mbuf, FANIN_REASON_EPOCH);
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
	worker_send_to_children(worker, job, job->params.children, mbuf);
}

static void
take_ack(struct worker *worker, struct job *job, struct rte_mbuf *mbuf)
{
	const struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, const struct fanin_headers *);
	struct fanin_join_ack_body ack;

	memcpy(&ack, headers + 1, sizeof(ack));
	if (job_parent_ack(worker->pipeline->jobs, job, &headers->fanin, &ack))
		worker_ask_parent(worker, job);
	worker_free(worker, mbuf);
}

void
worker_from_parent(struct worker *worker, struct rte_mbuf *mbuf)
{
	const struct fanin_hdr *hdr = &rte_pktmbuf_mtod(mbuf, const struct fanin_headers *)->fanin;
	struct job *job;
	enum fanin_reason reason = check_parent(worker->pipeline, mbuf, &job);

	if (reason != FANIN_REASON_NONE) {
		worker_drop(worker, mbuf, reason);
		return;
	}
	switch (hdr->type) {
	case FANIN_TYPE_RESULT:
	case FANIN_TYPE_ANSWER:
		if (!worker_dispatch(worker, job, mbuf))
			worker_aggregate(worker, &mbuf, 1);
		break;
	case FANIN_TYPE_JOIN_ACK:
		take_ack(worker, job, mbuf);
		break;
	case FANIN_TYPE_LEAVE_ACK:
		worker_free(worker, mbuf);
		break;
	case FANIN_TYPE_PROBE:
		probe_answer(worker, job, mbuf);
		break;
	default:
		/* Only JOIN and LEAVE go without the number of a run. */
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

enum fanin_reason
worker_find_result(const struct worker *worker, const struct rte_mbuf *mbuf, struct job **job)
{
	const struct fanin_hdr *hdr = &rte_pktmbuf_mtod(mbuf, const struct fanin_headers *)->fanin;
	enum fanin_reason reason = check_parent(worker->pipeline, mbuf, job);

	if (reason != FANIN_REASON_NONE)
		return reason;
	if (__atomic_load_n(&(*job)->epoch, __ATOMIC_ACQUIRE) == 0 ||
	    hdr->epoch != __atomic_load_n(&(*job)->parent_epoch, __ATOMIC_RELAXED))
		return FANIN_REASON_EPOCH;
	return FANIN_REASON_NONE;
}
