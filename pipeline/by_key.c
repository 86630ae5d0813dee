/* SPDX-License-Identifier: BSD-3-Clause */
/* See by_key.h. */
#include "pipeline/by_key.h"

#include "pipeline/net/net.h"
#include "pipeline/net/source.h"
#include "pipeline/schedule.h"

#include "pipeline/base/fastpath.h"

bool
by_key_is_within_rate(struct worker *worker, uint16_t port)
{
	const struct pipeline *pipeline = worker->pipeline;
	const uint64_t due_ns = RTE_MAX(worker->key_due_ns[port], worker->now_ns);

	if (due_ns - worker->now_ns > pipeline->key_burst_ns)
		return false;
	worker->key_due_ns[port] = due_ns + pipeline->key_interval_ns;
	return true;
}

static struct job *
find_job(const struct pipeline *pipeline, const struct batch *batch, const struct fanin_hdr *hdr)
{
	struct job *job = batch->job;

	if (unlikely(job == NULL || job->params.id != hdr->job))
		job = job_lookup(pipeline->jobs, hdr->job);
	return admission_is_key_only(job) ? job : NULL;
}

/* Adds a packet that was admitted. */
static void
add(struct batch *batch, struct job *job, struct rte_mbuf *mbuf, uint16_t port)
{
	struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *);
	struct work *work = &batch->works[batch->n++];

	batch->job = job;
	work_set(work, job, mbuf, headers, fanin_wire_payload_len(headers), port);
	/* A descriptor may have two lines. */
	rte_prefetch0(work->slot + RTE_CACHE_LINE_SIZE);
}

bool
by_key_take(struct worker *worker, struct batch *batch, struct rte_mbuf *mbuf)
{
	const struct pipeline *pipeline = worker->pipeline;
	const struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, const struct fanin_headers *);
	const uint16_t port = ingress_port(pipeline, mbuf);
	const mac_key source = mac_key_make(headers->eth.src, 0);
	struct job *job;

	if (mbuf->data_len < FANIN_PAYLOAD_OFFSET)
		return false;
	job = find_job(pipeline, batch, &headers->fanin);
	if (job == NULL || source_is_own(pipeline, mbuf) ||
	    !admission_fits_key(pipeline, mbuf, job) || mac_key_is_invalid(source) ||
	    !by_key_is_within_rate(worker, port))
		return false;
	if (!pipeline->ports[port].routed)
		worker_learn(worker, source, port);
	if (!worker_dispatch(worker, job, mbuf))
		add(batch, job, mbuf, port);
	return true;
}
