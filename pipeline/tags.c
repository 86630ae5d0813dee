/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks the tags of packets that come in. See tags.h. */
#include <rte_ether.h>

#include "pipeline/admission.h"
#include "pipeline/reply.h"
#include "pipeline/tags.h"
#include "wire/version.h"

#include "pipeline/base/fastpath.h"

/*
 * Returns the job with tags that a frame is for: the frame goes to this switch, or comes from the
 * job's parent and goes to the job's group. NULL: the frame is neither, and may be anything.
 */
static struct job *
find_job(const struct pipeline *pipeline, const struct rte_mbuf *mbuf)
{
	const struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, const struct fanin_headers *);
	struct job *job;

	if (mbuf->data_len < FANIN_PAYLOAD_OFFSET ||
	    headers->eth.type_be != rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4) ||
	    headers->ip.version_ihl != 0x45 || headers->ip.protocol != IPPROTO_UDP ||
	    headers->udp.dst_be != pipeline->udp_port_be)
		return NULL;
	job = job_lookup(pipeline->jobs, headers->fanin.job);
	if (job == NULL || job->taggers == NULL)
		return NULL;
	if (headers->ip.dst_be == pipeline->ip_be)
		return memcmp(headers->eth.dst, pipeline->mac, sizeof(pipeline->mac)) == 0 ? job
											   : NULL;
	return (headers->ip.dst_be & rte_cpu_to_be_32(~(uint32_t)FANIN_WIRE_MAX_JOB)) ==
				       rte_cpu_to_be_32(FANIN_WIRE_GROUPS) &&
			       job->params.has_parent &&
			       ingress_port(pipeline, mbuf) == job->parent_port
		       ? job
		       : NULL;
}

/* Returns true for a type that members send to the handler during a run. */
static bool
is_of_run(uint8_t type)
{
	return fanin_type_class(type) == FANIN_CLASS_BLOCK &&
	       fanin_type_direction(type) == FANIN_UP;
}

/*
 * Refuses a packet without a valid tag. If the member's key, port or address is wrong, too, that
 * reason is given.
 */
static void
refuse(struct worker *worker, struct rte_mbuf *mbuf)
{
	const struct fanin_hdr *hdr = &rte_pktmbuf_mtod(mbuf, const struct fanin_headers *)->fanin;
	enum fanin_reason reason = FANIN_REASON_NONE;

	if (fanin_type_direction(hdr->type) == FANIN_UP)
		reason = admission_member(worker->pipeline, mbuf,
					  admission_job(worker->pipeline, mbuf));
	if (reason == FANIN_REASON_NONE)
		reason = FANIN_REASON_TAG;
	/*
	 * A member with tags for an earlier start of this switch does not know of the restart yet.
	 */
	if (hdr->type == FANIN_TYPE_JOIN || (reason == FANIN_REASON_TAG && is_of_run(hdr->type)))
		worker_refuse(worker, mbuf, NULL, reason);
	else
		worker_drop(worker, mbuf, reason);
}

/*
 * Returns true if the packet is valid in this version, or in the previous one if that is
 * understood.
 */
static bool
is_valid(const struct fanin_headers *headers, uint32_t len)
{
	enum fanin_reason reason = fanin_wire_validate(headers, len);

	if (reason == FANIN_REASON_VERSION)
		reason = fanin_version_validate(headers, len);
	return reason == FANIN_REASON_NONE;
}

bool
tags_admit(struct worker *worker, struct rte_mbuf *mbuf)
{
	const struct pipeline *pipeline = worker->pipeline;
	struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *);
	struct job *job = find_job(pipeline, mbuf);
	enum fanin_tag_direction direction;

	if (likely(job == NULL))
		return true;
	if ((headers->fanin.flags & FANIN_FLAG_TAGGED) == 0) {
		/* A packet that is invalid anyway gets a more precise reason elsewhere. */
		if (fanin_wire_refuses_sender(&headers->fanin) ||
		    !is_valid(headers, mbuf->data_len))
			return true;
		refuse(worker, mbuf);
		return false;
	}
	/*
	 * From here on lengths must be valid. If they are not, a later check finds and names that.
	 */
	if (fanin_wire_validate_l4(headers, mbuf->data_len) != FANIN_REASON_NONE)
		return true;
	direction = fanin_tag_direction_of(headers->fanin.type);
	if (unlikely(!fanin_tagger_open_frame(
		    job->taggers[worker->index], direction,
		    tags_instance(pipeline, job, direction == FANIN_TAG_DOWN), headers))) {
		refuse(worker, mbuf);
		return false;
	}
	mbuf->data_len = (uint16_t)(FANIN_PAYLOAD_OFFSET + fanin_wire_payload_len(headers));
	mbuf->pkt_len = mbuf->data_len;
	return true;
}

bool
tags_refuse_unexpected(struct worker *worker, struct rte_mbuf *mbuf)
{
	const struct fanin_hdr *hdr = &rte_pktmbuf_mtod(mbuf, const struct fanin_headers *)->fanin;
	const bool is_join = hdr->type == FANIN_TYPE_JOIN;
	enum fanin_reason reason;

	if ((hdr->flags & FANIN_FLAG_TAGGED) == 0 || !(is_join || is_of_run(hdr->type)) ||
	    (is_join && mbuf->data_len < FANIN_PAYLOAD_OFFSET + FANIN_JOIN_BODY_BEFORE))
		return false;
	reason = admission_member(worker->pipeline, mbuf, admission_job(worker->pipeline, mbuf));
	if (reason == FANIN_REASON_NONE)
		reason = FANIN_REASON_TAG;
	if (is_join || reason == FANIN_REASON_TAG || reason == FANIN_REASON_JOB)
		worker_refuse(worker, mbuf, NULL, reason);
	else
		worker_drop(worker, mbuf, reason);
	return true;
}
