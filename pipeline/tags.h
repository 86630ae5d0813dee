/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tags of jobs that have them (wire/tag.h). Ingress removes a packet's tag before anything else
 * looks at the packet; egress adds one when a packet is complete. In between, packets with and
 * without tags are alike.
 */
#ifndef FANIN_PIPELINE_TAGS_H
#define FANIN_PIPELINE_TAGS_H

#include "pipeline/job.h"
#include "pipeline/base/worker.h"
#include "wire/tag.h"

/* job_tags.c: makes a tagger for each worker. Returns 0, -ENOMEM or -EIO. Main thread. */
int tags_create(struct job *job, uint16_t n_workers);

/* job_tags.c: destroys the taggers, if there are any. Main thread. */
void tags_free(struct job *job);

/* Returns true if any job has tags. Then each frame has to pass tags_admit first. */
static inline bool
tags_in_use(const struct pipeline *pipeline)
{
	return __atomic_load_n(&pipeline->n_authenticated, __ATOMIC_RELAXED) != 0;
}

/*
 * Returns the instance for tags: the parent's for packets to and from the parent, this switch's for
 * packets to and from children.
 */
static inline uint64_t
tags_instance(const struct pipeline *pipeline, const struct job *job, bool with_parent)
{
	return with_parent ? __atomic_load_n(&job->parent_instance, __ATOMIC_RELAXED)
			   : pipeline->instance;
}

/*
 * Takes a frame that has just come in. If it is for a job with tags, its tag is checked and
 * removed.
 *
 * Returns false if the tag is missing or wrong: then the frame is counted and dropped, and a sender
 * that joins, contributes or asks is refused.
 */
bool tags_admit(struct worker *worker, struct rte_mbuf *mbuf);

/*
 * Takes a frame that validation found to have an unknown flag: it may be a host's packet with a
 * tag, to a job that has no tags or is gone. Informs the sender. Returns false if it is anything
 * else: then the caller keeps it.
 */
bool tags_refuse_unexpected(struct worker *worker, struct rte_mbuf *mbuf);

/*
 * seal.c: adds a tag to a complete frame if the job has tags. The frame has room for it, and nobody
 * else uses it yet. If libcrypto fails, the tag is invalid and no receiver accepts the packet.
 */
void tags_seal(struct worker *worker, const struct job *job, enum fanin_tag_direction direction,
	       struct rte_mbuf *mbuf);

#endif
