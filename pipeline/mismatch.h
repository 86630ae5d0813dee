/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks of a run that disagree about a collective. The one whose packet does not fit its block is
 * refused, and fails; without more the others would wait, and be told in the end that it has left.
 * So a switch remembers the first such packet of a run, tells all children of it, and refuses
 * queries for its block and later ones from then on. A switch further up learns of it when it
 * probes this one. Worker only.
 */
#ifndef FANIN_PIPELINE_MISMATCH_H
#define FANIN_PIPELINE_MISMATCH_H

#include "pipeline/base/worker.h"
#include "pipeline/job.h"

/*
 * A packet of a member did not fit its block. Told to all children if it is the first one in the
 * run. hdr: the packet's. expected: the block's shape; 0: unknown.
 */
void mismatch_note(struct worker *worker, struct job *job, const struct fanin_hdr *hdr,
		   uint64_t expected);

/*
 * The same, which another switch has found in the run of this epoch here. from_below: a child has
 * told it, else the parent.
 */
void mismatch_take(struct worker *worker, struct job *job, uint32_t epoch,
		   const struct fanin_mismatch *mismatch, bool from_below);

/*
 * Tells the parent what it would find by a probe, in the same packet: at once, and again before the
 * run ends here. Without a parent, or a mismatch in its run of this number, nothing is sent.
 */
void mismatch_tell_parent(struct worker *worker, struct job *job, uint32_t parent_epoch);

/* Is there one in the run of this number? It may be over when the caller looks again. */
static inline bool
mismatch_is_of(const struct job *job, uint32_t epoch)
{
	return __atomic_load_n(&job->mismatch.epoch, __ATOMIC_ACQUIRE) == epoch && epoch != 0;
}

/*
 * Copies what is known, whole. Returns false if all packets of the run with this number fit so far.
 * Takes the job's lock if some did not.
 */
bool mismatch_read(struct job *job, uint32_t epoch, struct fanin_mismatch *mismatch);

/* The same by the parent's number of the run, which may have ended here because of the mismatch. */
bool mismatch_read_for_parent(struct job *job, uint32_t parent_epoch,
			      struct fanin_mismatch *mismatch);

/*
 * Is a block of a run such that a query for it is refused? Takes no lock in a run without a
 * mismatch.
 */
static inline bool
mismatch_stops(struct job *job, uint32_t epoch, uint32_t block)
{
	struct fanin_mismatch mismatch;

	return unlikely(mismatch_is_of(job, epoch)) && mismatch_read(job, epoch, &mismatch) &&
	       !fanin_block_before(block, mismatch.block);
}

#endif
