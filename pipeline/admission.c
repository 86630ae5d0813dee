/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Checks of every Fanin packet's sender: a job accepts packets of its members and its parent only,
 * or by key.
 */
#include <string.h>

#include <rte_ether.h>

#include "pipeline/admission.h"
#include "pipeline/base/worker.h"
#include "pipeline/net/source.h"

#include "pipeline/base/fastpath.h"

enum fanin_reason
admission_member(const struct pipeline *pipeline, const struct rte_mbuf *mbuf,
		 const struct job *job)
{
	const struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, const struct fanin_headers *);
	const struct fanin_hdr *hdr = &headers->fanin;
	unsigned int child;

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
admission_parent(const struct pipeline *pipeline, const struct rte_mbuf *mbuf,
		 const struct job *job)
{
	const struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, const struct fanin_headers *);

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

/*
 * Returns the job that admits by key and that a valid packet about a block names, or NULL. headers:
 * of a frame with this many bytes.
 */
static const struct job *
transit_job(const struct pipeline *pipeline, const struct fanin_headers *headers, uint32_t len)
{
	const struct job *job;

	if (len < FANIN_PAYLOAD_OFFSET || headers->udp.dst_be != pipeline->udp_port_be ||
	    headers->eth.type_be != rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4))
		return NULL;
	job = job_lookup(pipeline->jobs, headers->fanin.job);
	return admission_is_key_only(job) &&
			       fanin_wire_validate(headers, len) == FANIN_REASON_NONE &&
			       fanin_type_class(headers->fanin.type) == FANIN_CLASS_BLOCK
		       ? job
		       : NULL;
}

static bool
has_key(const struct job *job, const struct fanin_hdr *hdr)
{
	const struct fanin_keys *keys = &job->params.keys;

	return hdr->key == (fanin_type_direction(hdr->type) == FANIN_UP ? keys->up : keys->down);
}

bool
admission_is_transit(const struct pipeline *pipeline, const struct rte_mbuf *mbuf)
{
	/* A VLAN tag that the driver removed means that the frame is from another network. */
	return (mbuf->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED) == 0 &&
	       transit_job(pipeline, rte_pktmbuf_mtod(mbuf, const struct fanin_headers *),
			   mbuf->data_len) != NULL;
}

bool
admission_is_behind_tag(const struct pipeline *pipeline, const struct rte_mbuf *mbuf)
{
	const uint8_t *frame = rte_pktmbuf_mtod(mbuf, const uint8_t *);
	const struct fanin_headers *headers = (const void *)frame;
	bool is_tagged = (mbuf->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED) != 0;
	uint32_t len = mbuf->data_len;
	const struct job *job;

	while (source_is_tag(headers->eth.type_be) && len >= FANIN_ETH_LEN + RTE_VLAN_HLEN) {
		frame += RTE_VLAN_HLEN;
		len -= RTE_VLAN_HLEN;
		headers = (const void *)frame;
		is_tagged = true;
	}
	if (!is_tagged)
		return false;
	job = transit_job(pipeline, headers, len);
	return job != NULL && has_key(job, &headers->fanin);
}

/* Checks a packet by its job's key. */
static enum fanin_reason
by_key(const struct pipeline *pipeline, const struct rte_mbuf *mbuf, const struct job *job)
{
	const struct fanin_hdr *hdr = &rte_pktmbuf_mtod(mbuf, const struct fanin_headers *)->fanin;

	if ((job->params.ports >> ingress_port(pipeline, mbuf) & 1) == 0)
		return FANIN_REASON_PORT;
	if (!has_key(job, hdr))
		return FANIN_REASON_KEY;
	if (hdr->type != FANIN_TYPE_CONTRIBUTION && !fanin_handler_takes(job->handler, hdr->type))
		return FANIN_REASON_TYPE;
	return FANIN_REASON_NONE;
}

bool
admission_fits_key(const struct pipeline *pipeline, const struct rte_mbuf *mbuf,
		   const struct job *job)
{
	const struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, const struct fanin_headers *);

	return headers->udp.dst_be == pipeline->udp_port_be &&
	       headers->eth.type_be == rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4) &&
	       (mbuf->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED) == 0 &&
	       by_key(pipeline, mbuf, job) == FANIN_REASON_NONE &&
	       fanin_wire_validate(headers, mbuf->data_len) == FANIN_REASON_NONE &&
	       fanin_type_class(headers->fanin.type) == FANIN_CLASS_BLOCK;
}

enum fanin_reason
admission_sender(const struct pipeline *pipeline, const struct rte_mbuf *mbuf,
		 const struct job *job)
{
	const struct fanin_hdr *hdr = &rte_pktmbuf_mtod(mbuf, const struct fanin_headers *)->fanin;

	if (unlikely(admission_is_key_only(job)))
		return by_key(pipeline, mbuf, job);
	if (fanin_type_direction(hdr->type) == FANIN_DOWN)
		return admission_parent(pipeline, mbuf, job);
	return admission_member(pipeline, mbuf, job);
}

enum fanin_reason
admission_block(const struct pipeline *pipeline, const struct rte_mbuf *mbuf, const struct job *job)
{
	const struct fanin_hdr *hdr = &rte_pktmbuf_mtod(mbuf, const struct fanin_headers *)->fanin;
	enum fanin_reason reason = admission_sender(pipeline, mbuf, job);
	uint32_t run, epoch;

	if (reason != FANIN_REASON_NONE || admission_is_key_only(job))
		return reason;
	run = epoch = __atomic_load_n(&job->epoch, __ATOMIC_ACQUIRE);
	if (fanin_type_direction(hdr->type) == FANIN_DOWN)
		epoch = __atomic_load_n(&job->parent_epoch, __ATOMIC_RELAXED);
	return run == 0 || hdr->epoch != epoch ? FANIN_REASON_EPOCH : FANIN_REASON_NONE;
}

/*
 * Returns true if a parent may send packets of this type to all its children at once: REFUSED, and
 * all packets about blocks that go down, including those of handlers from outside of the source
 * tree.
 */
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
	/* Packets to the job's own group are checked for tags. */
	return job != NULL && job->params.has_parent && headers->ip.dst_be == job->group_be &&
	       ingress_port(pipeline, mbuf) == job->parent_port;
}
