/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tags of the jobs that have them (wire/tag.h): taken off at ingress, before anything else looks at
 * a packet, and put on where a packet is complete. Between the two all packets are alike.
 */
#ifndef FANIN_PIPELINE_TAGS_H
#define FANIN_PIPELINE_TAGS_H

#include "pipeline/job.h"
#include "pipeline/base/worker.h"
#include "wire/tag.h"

/* job_tags.c: makes a tagger for each worker. Returns 0, -ENOMEM or -EIO. Main thread. */
int tags_create(struct job *job, uint16_t n_workers);

/* job_tags.c: there may be none. Main thread. */
void tags_free(struct job *job);

/* Is there a job with tags? Then each frame has to pass tags_admit first. */
static inline bool
tags_in_use(const struct pipeline *pipeline)
{
	return __atomic_load_n(&pipeline->n_authenticated, __ATOMIC_RELAXED) != 0;
}

/*
 * Of what is exchanged with the parent, its instance; of what is exchanged with children, this
 * switch's.
 */
static inline uint64_t
tags_instance(const struct pipeline *pipeline, const struct job *job, bool with_parent)
{
	return with_parent ? __atomic_load_n(&job->parent_instance, __ATOMIC_RELAXED)
			   : pipeline->instance;
}

/*
 * A frame that has just come in. If it is for a job with tags, its tag is checked and taken off.
 *
 * Returns false if it ends here: the tag is missing or wrong. Counted, and whoever joins,
 * contributes or asks is refused.
 */
bool tags_admit(struct worker *worker, struct rte_mbuf *mbuf);

/*
 * A frame that validation has found to have an unknown flag: it may be a host's with a tag, to a
 * job that has none or is gone. Its sender is told. Returns false if it is anything else, which
 * stays the caller's.
 */
bool tags_refuse_unexpected(struct worker *worker, struct rte_mbuf *mbuf);

/*
 * seal.c: puts a tag on a complete frame, if the job has tags. The frame has room for it, and
 * nobody else looks at it yet. Should libcrypto fail, the tag is none, and nobody takes the packet.
 */
void tags_seal(struct worker *worker, const struct job *job, enum fanin_tag_direction direction,
	       struct rte_mbuf *mbuf);

#endif
