/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Admission: finds a packet's job and checks that its sender is allowed to send it. Most packets
 * pass one comparison with a template; the others are checked field by field, so that each fault
 * has its own reason. Any thread that reads jobs by RCU.
 */
#ifndef FANIN_PIPELINE_ADMISSION_H
#define FANIN_PIPELINE_ADMISSION_H

#include <stdbool.h>

#include <rte_mbuf.h>

#include "pipeline/job.h"

/*
 * Returns true if a parent's packet belongs to the current run. *epoch: its number at this switch.
 */
static inline bool
admission_is_of_run(const struct job *job, const struct fanin_headers *headers, uint32_t *epoch)
{
	/* Read before the parent's epoch: while there is a run here, that one belongs to it. */
	*epoch = __atomic_load_n(&job->epoch, __ATOMIC_ACQUIRE);
	return *epoch != 0 &&
	       headers->fanin.epoch == __atomic_load_n(&job->parent_epoch, __ATOMIC_RELAXED);
}

/*
 * Returns true if the frame is a valid contribution from a member of the job, in the job's current
 * run. Any other frame may be valid for another job.
 *
 * sizes: of the last frame that fit, or FANIN_SIZES_NONE; set to this frame's.
 */
static inline bool
admission_fits(const struct job *job, const struct rte_mbuf *mbuf, struct fanin_sizes *sizes)
{
	const struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, const struct fanin_headers *);
	const struct fanin_hdr *hdr = &headers->fanin;
	const unsigned int child = job_likely_child_of(job, hdr->rank);

	/* The template contains the child's rank. */
	return fanin_wire_fits(headers, &job->child_templates[child]) &&
	       fanin_wire_elements_fit(headers, mbuf->data_len, sizes) &&
	       mbuf->port == job->child_ethdevs[child] && hdr->epoch != 0 &&
	       hdr->epoch == __atomic_load_n(&job->epoch, __ATOMIC_ACQUIRE);
}

/* Like admission_fits, for a result from the job's parent. */
bool admission_fits_result(const struct job *job, const struct rte_mbuf *mbuf,
			   struct fanin_sizes *sizes);

/*
 * Returns the job that the frame fits, as a contribution or a result, or NULL.
 *
 * last: job of the frame before; NULL: none. sizes: as for admission_fits.
 */
static inline struct job *
admission_find_job(const struct pipeline *pipeline, struct job *last, const struct rte_mbuf *mbuf,
		   struct fanin_sizes *sizes)
{
	struct job *job = last;
	uint32_t id;

	if (unlikely(mbuf->data_len < FANIN_PAYLOAD_OFFSET))
		return NULL;
	id = rte_pktmbuf_mtod(mbuf, const struct fanin_headers *)->fanin.job;
	if (unlikely(job == NULL || job->params.id != id)) {
		job = job_lookup(pipeline->jobs, id);
		if (job == NULL)
			return NULL;
	}
	if (likely(admission_fits(job, mbuf, sizes)) || admission_fits_result(job, mbuf, sizes))
		return job;
	return NULL;
}

/* Returns the job that a packet names, or NULL. mbuf: at least FANIN_PAYLOAD_OFFSET bytes. */
static inline struct job *
admission_job(const struct pipeline *pipeline, const struct rte_mbuf *mbuf)
{
	return job_lookup(pipeline->jobs,
			  rte_pktmbuf_mtod(mbuf, const struct fanin_headers *)->fanin.job);
}

/*
 * Checks that a valid packet comes from the member that it names.
 *
 * job: the one that the packet names, or NULL. Returns FANIN_REASON_NONE, or the reason to refuse.
 */
enum fanin_reason admission_member(const struct pipeline *pipeline, const struct rte_mbuf *mbuf,
				   const struct job *job);

/* Like admission_member, for a packet of a type that parents send. */
enum fanin_reason admission_parent(const struct pipeline *pipeline, const struct rte_mbuf *mbuf,
				   const struct job *job);

/* Returns true if the job admits packets by their key alone. job: may be NULL. */
static inline bool
admission_is_key_only(const struct job *job)
{
	return job != NULL && job->handler->admission == FANIN_ADMIT_KEY;
}

/*
 * Returns true if any job admits packets by their key alone. If so, packets to other destinations
 * may be for this switch, too.
 */
static inline bool
admission_is_transit_watched(const struct pipeline *pipeline)
{
	return __atomic_load_n(&pipeline->n_by_key, __ATOMIC_RELAXED) != 0;
}

/*
 * Returns true if the frame is, by its headers, a valid packet about a block of a job that admits
 * by key. Its destination may be any address. mbuf: at least FANIN_ETH_LEN bytes.
 */
bool admission_is_transit(const struct pipeline *pipeline, const struct rte_mbuf *mbuf);

/*
 * Returns true if the frame is such a packet behind VLAN tags, with the job's key. Hosts may accept
 * it as an untagged packet, because their kernels remove tags of VLAN 0 and of VLANs that they are
 * not in. The switch would not have checked such a packet. A packet with another key belongs to
 * another network. mbuf: as above.
 */
bool admission_is_behind_tag(const struct pipeline *pipeline, const struct rte_mbuf *mbuf);

/*
 * Returns true if the frame is a valid packet about a block of this job, which admits by key, has
 * the right key, and came in at one of the job's ports. mbuf: at least FANIN_PAYLOAD_OFFSET bytes.
 */
bool admission_fits_key(const struct pipeline *pipeline, const struct rte_mbuf *mbuf,
			const struct job *job);

/*
 * Checks that the sender of a valid packet about a block may send it: by the job's key if the job
 * admits by key; otherwise as the member or the parent, by the direction of the packet's type.
 * Arguments and results are those of admission_member.
 */
enum fanin_reason admission_sender(const struct pipeline *pipeline, const struct rte_mbuf *mbuf,
				   const struct job *job);

/*
 * Like admission_sender. The packet must also be of the current run, except in jobs that admit by
 * key.
 */
enum fanin_reason admission_block(const struct pipeline *pipeline, const struct rte_mbuf *mbuf,
				  const struct job *job);

/*
 * Returns true if an IPv4 frame to a group address is one that the parent of a job on this switch
 * sends to all its children. Such a frame is a valid Fanin packet. mbuf: at least FANIN_L4_LEN
 * bytes.
 */
bool admission_is_result(const struct pipeline *pipeline, const struct rte_mbuf *mbuf);

#endif
