/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs of a job: members join, the run becomes active when all have, and it ends when all have
 * left. A process that died without leaving is replaced by its successor's JOIN, which carries
 * another nonce; the successor has to wait until the others have left the old run too. Each run has
 * an epoch of its own, so packets of an old run never reach a new one.
 *
 * A JOIN may be late, from a process that is long gone. So one changes nothing unless it gives back a
 * cookie that the switch made for this very process and takes only once.
 */
#include <string.h>

#include <rte_random.h>

#include "pipeline/job.h"

/* Under the lock. */
static void
member_remove(struct job *job, uint16_t rank)
{
	job->members[rank].joined = false;
	job->joined &= ~(UINT64_C(1) << rank);
	if (job->joined == 0)
		__atomic_store_n(&job->epoch, 0, __ATOMIC_RELEASE);
}

/* Is the JOIN the answer to this member's last challenge? If not, it is challenged. */
static bool
is_fresh(struct job_member *member, const struct fanin_join_body *body)
{
	if (member->cookie != 0 && member->asked_nonce == body->nonce)
		return member->cookie == body->cookie;
	member->asked_nonce = body->nonce;
	member->cookie = rte_rand() | 1;
	return false;
}

static enum fanin_reason
member_add(struct job_table *table, struct job *job, uint16_t rank, const uint8_t mac[6],
	   const struct fanin_join_body *body)
{
	struct job_member *member = &job->members[rank];

	if (member->joined)
		member_remove(job, rank);
	if (job->epoch != 0)
		return FANIN_REASON_MEMBER_BUSY;
	member->cookie = 0;
	member->joined = true;
	member->nonce = body->nonce;
	memcpy(member->mac, mac, sizeof(member->mac));
	job->joined |= UINT64_C(1) << rank;
	if (job->joined == job->params.children) {
		uint32_t epoch = __atomic_fetch_add(&table->next_epoch, 1, __ATOMIC_RELAXED);

		/* 0 stands for "no run": the counter steps over it when it wraps. */
		if (epoch == 0)
			epoch = __atomic_fetch_add(&table->next_epoch, 1, __ATOMIC_RELAXED);
		/* Blocks begin at 0 again, so what the last run left there would look current. */
		memset(job->slot_clusters, 0, (job->slot_mask + 1) * sizeof(*job->slot_clusters));
		__atomic_store_n(&job->epoch, epoch, __ATOMIC_RELEASE);
	}
	return FANIN_REASON_NONE;
}

enum fanin_reason
job_join(struct job_table *table, struct job *job, uint16_t rank, const uint8_t mac[6],
	 const struct fanin_join_body *body, struct job_join_answer *answer)
{
	struct job_member *member = &job->members[rank];
	enum fanin_reason reason = FANIN_REASON_NONE;
	bool challenge = false;

	if (body->size != job->params.n_children)
		return FANIN_REASON_SIZE;
	if (body->mtu < job->params.payload_bytes + (uint32_t)FANIN_MTU_OVERHEAD)
		return FANIN_REASON_MTU;
	rte_spinlock_lock(&job->lock);
	/* A repeated JOIN of the process that has joined gets the same answer again. */
	if (!member->joined || member->nonce != body->nonce) {
		challenge = !is_fresh(member, body);
		if (!challenge)
			reason = member_add(table, job, rank, mac, body);
	}
	*answer = (struct job_join_answer){
		.state = challenge         ? FANIN_JOIN_CHALLENGE
			 : job->epoch != 0 ? FANIN_JOIN_ACTIVE
					   : FANIN_JOIN_WAITING,
		.joined = job->joined,
		.cookie = challenge ? member->cookie : 0,
		.epoch = challenge ? 0 : job->epoch,
	};
	rte_spinlock_unlock(&job->lock);
	return reason;
}

void
job_leave(struct job *job, uint16_t rank, uint32_t epoch)
{
	rte_spinlock_lock(&job->lock);
	/* The LEAVE of an earlier run may arrive late. Before a run, LEAVE and JOIN carry epoch 0. */
	if (job->members[rank].joined && job->epoch == epoch)
		member_remove(job, rank);
	rte_spinlock_unlock(&job->lock);
}
