/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks of a run that disagree about a collective. The rank whose packet does not fit its block is
 * refused and fails. Without further steps the other ranks would wait, and would learn in the end
 * only that it has left. So a switch remembers the first such packet of a run, tells all children
 * about it, and from then on refuses queries for its block and later ones. A switch further up
 * learns of the mismatch when it probes this one. Worker only.
 */
#ifndef FANIN_PIPELINE_MISMATCH_H
#define FANIN_PIPELINE_MISMATCH_H

#include "pipeline/base/worker.h"
#include "pipeline/job.h"

/*
 * Notes that a member's packet did not fit its block. The first such packet of a run is told to all
 * children. hdr: the packet's. expected: the block's shape; 0: unknown.
 */
void mismatch_note(struct worker *worker, struct job *job, const struct fanin_hdr *hdr,
		   uint64_t expected);

/*
 * Notes a mismatch that another switch has found in the run with this epoch here. from_below: a
 * child has reported it, otherwise the parent.
 */
void mismatch_take(struct worker *worker, struct job *job, uint32_t epoch,
		   const struct fanin_mismatch *mismatch, bool from_below);

/*
 * Sends the parent, unasked, the answer that it would get to a probe: at once, and again before the
 * run ends here. Sends nothing if there is no parent, or no mismatch in the parent's run of this
 * epoch.
 */
void mismatch_tell_parent(struct worker *worker, struct job *job, uint32_t parent_epoch);

/*
 * Returns true if the run of this epoch has a mismatch. The run may be over when the caller looks
 * again.
 */
static inline bool
mismatch_is_of(const struct job *job, uint32_t epoch)
{
	return __atomic_load_n(&job->mismatch.epoch, __ATOMIC_ACQUIRE) == epoch && epoch != 0;
}

/*
 * Copies the mismatch as a whole. Returns false if all packets of the run of this epoch have fit so
 * far. Takes the job's lock if a packet did not fit.
 */
bool mismatch_read(struct job *job, uint32_t epoch, struct fanin_mismatch *mismatch);

/*
 * Like mismatch_read, by the parent's epoch of the run, which may have ended here because of the
 * mismatch.
 */
bool mismatch_read_for_parent(struct job *job, uint32_t parent_epoch,
			      struct fanin_mismatch *mismatch);

/*
 * Returns true if a query for a block of a run is refused. Takes no lock in a run without a
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
