/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Who may speak for a job: the checks that every Fanin packet passes.
 */
#include <string.h>

#include "pipeline/admission.h"
#include "pipeline/worker.h"

#include "pipeline/fastpath.h"

enum fanin_reason
admission_member(const struct pipeline *pipeline, const struct rte_mbuf *mbuf, struct job **found)
{
	const struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, const struct fanin_headers *);
	const struct fanin_hdr *hdr = &headers->fanin;
	struct job *job = job_lookup(pipeline->jobs, hdr->job);
	unsigned int child;

	*found = job;
	if (unlikely(job == NULL))
		return FANIN_REASON_JOB;
	if (unlikely(hdr->key != job->params.keys.up))
		return FANIN_REASON_KEY;
	child = job_child_of(job, hdr->rank);
	if (unlikely(child == JOB_NO_CHILD))
		return FANIN_REASON_RANK;
	if (unlikely(ingress_port(pipeline, mbuf) != job->child_ports[child]))
		return FANIN_REASON_PORT;
	if (unlikely(headers->ip.src_be != job->members[child].ip_be))
		return FANIN_REASON_SOURCE;
	return FANIN_REASON_NONE;
}

enum fanin_reason
admission_parent(const struct pipeline *pipeline, const struct rte_mbuf *mbuf, struct job **found)
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
admission_fits_result(const struct job *job, const struct rte_mbuf *mbuf, struct fanin_sizes *sizes)
{
	const struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, const struct fanin_headers *);
	uint32_t epoch;

	return job->params.has_parent && fanin_wire_fits(headers, &job->parent_template) &&
	       fanin_wire_elements_fit(headers, mbuf->data_len, sizes) &&
	       mbuf->port == job->parent_ethdev &&
	       memcmp(headers->eth.src, job->parent_mac, sizeof(job->parent_mac)) == 0 &&
	       admission_is_of_run(job, headers, &epoch);
}

/* What the parent sends about a block, of the current run. */
static enum fanin_reason
find_result(const struct pipeline *pipeline, const struct rte_mbuf *mbuf, struct job **job)
{
	const struct fanin_hdr *hdr = &rte_pktmbuf_mtod(mbuf, const struct fanin_headers *)->fanin;
	enum fanin_reason reason = admission_parent(pipeline, mbuf, job);

	if (reason != FANIN_REASON_NONE)
		return reason;
	if (__atomic_load_n(&(*job)->epoch, __ATOMIC_ACQUIRE) == 0 ||
	    hdr->epoch != __atomic_load_n(&(*job)->parent_epoch, __ATOMIC_RELAXED))
		return FANIN_REASON_EPOCH;
	return FANIN_REASON_NONE;
}

enum fanin_reason
admission_block(const struct pipeline *pipeline, const struct rte_mbuf *mbuf, struct job **job)
{
	const struct fanin_hdr *hdr = &rte_pktmbuf_mtod(mbuf, const struct fanin_headers *)->fanin;
	enum fanin_reason reason;

	if (fanin_type_direction(hdr->type) == FANIN_DOWN)
		return find_result(pipeline, mbuf, job);
	reason = admission_member(pipeline, mbuf, job);
	if (reason == FANIN_REASON_NONE &&
	    (hdr->epoch == 0 || hdr->epoch != __atomic_load_n(&(*job)->epoch, __ATOMIC_ACQUIRE)))
		return FANIN_REASON_EPOCH;
	return reason;
}

/* May a parent send packets of this type to all its children at once? Of blocks all that go down, those of handlers from outside, too. */
static bool
goes_to_group(uint8_t type)
{
	return type == FANIN_TYPE_REFUSED || (fanin_type_class(type) == FANIN_CLASS_BLOCK &&
					      fanin_type_direction(type) == FANIN_DOWN);
}

bool
admission_is_result(const struct pipeline *pipeline, const struct rte_mbuf *mbuf)
{
	const struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, const struct fanin_headers *);
	const struct job *job;

	if ((rte_be_to_cpu_32(headers->ip.dst_be) & ~FANIN_WIRE_MAX_JOB) != FANIN_WIRE_GROUPS ||
	    headers->udp.dst_be != pipeline->udp_port_be ||
	    fanin_wire_validate(headers, mbuf->data_len) != FANIN_REASON_NONE ||
	    !goes_to_group(headers->fanin.type))
		return false;
	job = job_lookup(pipeline->jobs, headers->fanin.job);
	/* Tags are looked for in what goes to the job's own group. */
	return job != NULL && job->params.has_parent && headers->ip.dst_be == job->group_be &&
	       ingress_port(pipeline, mbuf) == job->parent_port;
}
