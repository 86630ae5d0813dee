/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs of a job. Members join; the run becomes active when all have joined, and ends when all have
 * left. A process that died without leaving is replaced by its successor's JOIN, which carries
 * another nonce; the successor has to wait until the others have left the old run, too. Each run
 * has an epoch of its own, so packets of an old run never reach a new one.
 *
 * In a job of several switches, a switch joins at its parent as soon as all its children have
 * joined, and its run is active when the parent's is. The switch has no timers for this: it asks
 * again whenever a child repeats its JOIN.
 *
 * A JOIN may be late and come from a process that ended long ago. It therefore changes nothing
 * unless it returns a cookie, which the switch made for this process and accepts only once.
 */
#include <string.h>

#include <rte_random.h>

#include "pipeline/job.h"

/*
 * JOINs per child that a switch passes on without an answer before the parent counts as silent;
 * this takes some seconds.
 */
#define PARENT_PATIENCE 5u

/*
 * Under the lock: removes a member. When the last one is removed the run is over, here and, for
 * this switch, at the parent. Returns true if this switch has to leave the parent's run
 * *parent_epoch.
 */
static bool
member_remove(struct job *job, unsigned int child, uint32_t *parent_epoch)
{
	job->members[child].joined = false;
	job->joined &= ~(UINT64_C(1) << child);
	if (job->joined != 0)
		return false;
	__atomic_store_n(&job->epoch, 0, __ATOMIC_RELEASE);
	if (!job->parent.asked)
		return false;
	*parent_epoch = job->parent.epoch;
	job->parent = (struct job_parent){ .nonce = rte_rand() | 1 };
	return true;
}

/*
 * Under the lock, with all children joined: returns the first block that any of them has still to
 * run.
 */
static uint32_t
min_progress(const struct job *job)
{
	uint32_t least = job->members[0].progress;

	for (uint16_t i = 1; i < job->params.n_children; i++) {
		if (fanin_block_before(job->members[i].progress, least))
			least = job->members[i].progress;
	}
	return least;
}

/* Under the lock: forgets what probes found about a child. */
static void
probe_forget(struct job *job, unsigned int child)
{
	const struct fanin_ranks *ranks = &job->params.child_ranks[child];

	job->members[child].probe = (struct job_probe){ 0 };
	job_ranks_set(&job->ended, ranks, NULL);
	job_ranks_set(&job->silent, ranks, NULL);
}

uint32_t
job_next_epoch(struct job_table *table)
{
	uint32_t epoch = __atomic_fetch_add(&table->next_epoch, 1, __ATOMIC_RELAXED);

	/* 0 means "no run", so the counter skips it when it wraps. */
	if (epoch == 0)
		epoch = __atomic_fetch_add(&table->next_epoch, 1, __ATOMIC_RELAXED);
	return epoch;
}

/* Under the lock: begins a run, as all members have joined. */
static void
run_begin(struct job_table *table, struct job *job)
{
	const uint32_t epoch = job_next_epoch(table);

	for (uint16_t i = 0; i < job->params.n_children; i++)
		probe_forget(job, i);
	job->first_block = job->params.has_parent ? job->parent.progress : min_progress(job);
	__atomic_store_n(&job->parent_epoch, job->parent.epoch, __ATOMIC_RELEASE);
	__atomic_store_n(&job->epoch, epoch, __ATOMIC_RELEASE);
}

/* Returns true if the JOIN answers the member's last challenge. If not, makes a new challenge. */
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
member_add(struct job_table *table, struct job *job, unsigned int child,
	   const struct fanin_headers *headers, const struct fanin_join_body *body)
{
	struct job_member *member = &job->members[child];
	uint32_t parent_epoch;

	/* If this ends the run, the parent learns it by the nonce of the next one. */
	if (member->joined)
		member_remove(job, child, &parent_epoch);
	if (job->epoch != 0)
		return FANIN_REASON_MEMBER_BUSY;
	member->cookie = 0;
	job->parent.in_vain &= ~(UINT64_C(1) << child);
	member->taken = body->cookie;
	member->joined = true;
	member->nonce = body->nonce;
	member->progress = headers->fanin.progress;
	member->again = (headers->fanin.flags & FANIN_FLAG_RETRANSMIT) != 0;
	memcpy(member->mac, headers->eth.src, sizeof(member->mac));
	member->udp_port_be = headers->udp.src_be;
	probe_forget(job, child);
	job->joined |= UINT64_C(1) << child;
	if (job->joined == job->params.children &&
	    (!job->params.has_parent || job->parent.epoch != 0))
		run_begin(table, job);
	return FANIN_REASON_NONE;
}

/* Under the lock: returns the ranks of the whole job that are known to have joined. */
static void
ranks_joined(const struct job *job, struct fanin_ranks *ranks)
{
	*ranks = job->parent.joined;
	for (uint64_t left = job->joined; left != 0; left &= left - 1)
		fanin_ranks_merge(ranks, &job->params.child_ranks[__builtin_ctzll(left)]);
}

/* Returns the MTU that the job's packets need, including answers about many ranks. */
static uint32_t
min_mtu(const struct job *job)
{
	const uint32_t answer_len = fanin_ranks_words(job->params.n_ranks) == 1
					    ? 0
					    : fanin_answer_len_max(job->params.n_ranks);

	return RTE_MAX(job->params.payload_bytes, answer_len) + (uint32_t)FANIN_MTU_OVERHEAD +
	       (job->taggers != NULL ? FANIN_TAG_LEN : 0);
}

/*
 * Under the lock, for a member that waits, after all other members of this switch have joined. The
 * parent's refusal is passed on once, so that the next JOIN tries again. A member that was in a run
 * before is also told if the parent does not answer at all: otherwise it would regard the ranks
 * behind other switches as late.
 */
static enum fanin_reason
consult_parent(struct job *job, struct job_member *member, bool *ask)
{
	enum fanin_reason refusal = job->parent.refusal;

	if (refusal == FANIN_REASON_NONE && member->again &&
	    job->parent.unanswered >= PARENT_PATIENCE * job->params.n_children) {
		member->told_silent = !member->told_silent;
		refusal = member->told_silent ? FANIN_REASON_NOT_ACTIVE : FANIN_REASON_NONE;
	}
	/* A process that joins for the first time treats any refusal as final. */
	if (refusal == FANIN_REASON_NOT_ACTIVE && !member->again)
		refusal = FANIN_REASON_NONE;
	job->parent.refusal = FANIN_REASON_NONE;
	*ask = refusal == FANIN_REASON_NONE;
	return refusal;
}

/*
 * Under the lock, for a member that waits. Returns the reason to refuse it, if any, and sets *ask
 * if the parent has to be asked.
 */
static enum fanin_reason
parent_is_against(struct job *job, unsigned int child, bool *ask)
{
	const bool all = job->joined == job->params.children;

	/*
	 * Other members that were refused for this reason may have left, and this member would wait
	 * for them. The parent still gets JOINs: another one may replace it.
	 */
	if ((job->parent.in_vain >> child & 1) != 0) {
		*ask = all;
		return FANIN_REASON_VERSION;
	}
	return all ? consult_parent(job, &job->members[child], ask) : FANIN_REASON_NONE;
}

enum fanin_reason
job_join(struct job_table *table, struct job *job, unsigned int child,
	 const struct fanin_headers *headers, const struct fanin_join_body *body,
	 struct job_join_answer *answer)
{
	struct job_member *member = &job->members[child];
	enum fanin_reason reason = FANIN_REASON_NONE;
	bool challenge = false;
	bool ask = false;

	if (body->size != job->params.n_ranks)
		return FANIN_REASON_SIZE;
	if (body->mtu < min_mtu(job))
		return FANIN_REASON_MTU;
	rte_spinlock_lock(&job->lock);
	/* A repeated JOIN of the process that has joined gets the same answer. */
	if (!member->joined || member->nonce != body->nonce) {
		challenge = !is_fresh(member, body);
		if (!challenge)
			reason = member_add(table, job, child, headers, body);
	}
	/* A JOIN that only tests a path is no reason to ask the parent. */
	if (!challenge && reason == FANIN_REASON_NONE && job->epoch == 0 &&
	    body->path != FANIN_PATH_SECOND)
		reason = parent_is_against(job, child, &ask);
	*answer = (struct job_join_answer){
		.state = challenge         ? FANIN_JOIN_CHALLENGE
			 : job->epoch != 0 ? FANIN_JOIN_ACTIVE
					   : FANIN_JOIN_WAITING,
		.ask_parent = ask,
		.call = member->again && job->epoch == 0 ? job->params.children & ~job->joined : 0,
		.cookie = challenge ? member->cookie : member->taken,
		.epoch = challenge ? 0 : job->epoch,
		.first_block = job->first_block,
	};
	ranks_joined(job, &answer->joined);
	rte_spinlock_unlock(&job->lock);
	return reason;
}

bool
job_leave(struct job *job, unsigned int child, uint32_t epoch, uint32_t *parent_epoch)
{
	bool left = false;

	rte_spinlock_lock(&job->lock);
	/*
	 * The LEAVE of an earlier run may arrive late. Before a run, LEAVE and JOIN carry epoch 0.
	 */
	if (job->members[child].joined && job->epoch == epoch)
		left = member_remove(job, child, parent_epoch);
	rte_spinlock_unlock(&job->lock);
	return left;
}

void
job_parent_join(struct job *job, struct fanin_hdr *hdr, struct fanin_join_body *body)
{
	bool again = false;

	rte_spinlock_lock(&job->lock);
	for (uint16_t i = 0; i < job->params.n_children; i++)
		again |= job->members[i].again;
	job->parent.asked = true;
	job->parent.unanswered++;
	*body = (struct fanin_join_body){
		.nonce = job->parent.nonce,
		.size = job->params.n_ranks,
		.mtu = min_mtu(job),
		.cookie = job->parent.cookie,
		.address_be = job->params.parent_headers.ip.src_be,
	};
	hdr->flags = again ? FANIN_FLAG_RETRANSMIT : 0;
	hdr->progress = min_progress(job);
	hdr->contributions = job->params.n_below;
	rte_spinlock_unlock(&job->lock);
}

/*
 * Under the lock: returns true if the parent has never answered in this version, or has not
 * answered for long.
 */
static bool
parent_is_unknown(const struct job *job)
{
	return !job->parent.known ||
	       job->parent.unanswered >= PARENT_PATIENCE * job->params.n_children;
}

/* Under the lock: notes that the parent has answered in this version. */
static void
parent_is_known(struct job *job)
{
	job->parent.unanswered = 0;
	job->parent.known = true;
	job->parent.in_vain = 0;
}

bool
job_parent_may_be_older(struct job *job)
{
	bool may_be;

	rte_spinlock_lock(&job->lock);
	may_be = job->parent.unanswered % 2 == 1 && parent_is_unknown(job);
	rte_spinlock_unlock(&job->lock);
	return may_be;
}

void
job_parent_has_version(struct job *job, uint64_t nonce, uint16_t version)
{
	rte_spinlock_lock(&job->lock);
	if (job->parent.epoch == 0 && job->parent.asked && nonce == job->parent.nonce &&
	    parent_is_unknown(job)) {
		if (version == FANIN_WIRE_VERSION) {
			parent_is_known(job);
		} else {
			job->parent.unanswered = 0;
			job->parent.in_vain = job->joined;
			__atomic_store_n(&job->parent_version, version, __ATOMIC_RELAXED);
		}
	}
	rte_spinlock_unlock(&job->lock);
}

void
job_note_version(struct job *job, unsigned int child, uint64_t nonce, uint8_t version)
{
	struct job_member *member = &job->members[child];

	rte_spinlock_lock(&job->lock);
	if (member->nonce != nonce && member->asked_nonce != nonce)
		__atomic_store_n(&member->other_version, version, __ATOMIC_RELAXED);
	rte_spinlock_unlock(&job->lock);
}

uint64_t
job_missing(struct job *job)
{
	uint64_t missing;

	rte_spinlock_lock(&job->lock);
	missing = job->epoch == 0 ? job->params.children & ~job->joined : 0;
	rte_spinlock_unlock(&job->lock);
	return missing;
}

/*
 * Returns true if this switch and its parent can run the job together. The parent may accept more
 * than this switch sends: with slots for a larger window it keeps each result longer. Without
 * slots, windows need not match.
 */
static bool
parent_agrees(const struct job *job, const struct fanin_join_ack_body *ack)
{
	const bool has_slots = job->handler->slots_of != FANIN_SLOTS_NONE;
	const uint32_t flags = (job->taggers != NULL ? FANIN_JOB_TAGGED : 0u) |
			       (job->handler->shape == FANIN_SHAPE_MULTICAST ? FANIN_JOB_MULTICAST
									     : 0u);

	return ack->size == job->params.n_ranks &&
	       (!has_slots || ack->window >= job->params.window) &&
	       ack->payload_bytes >= job->params.payload_bytes &&
	       (ack->flags & ~(uint32_t)FANIN_JOB_SPREAD) == flags;
}

bool
job_parent_ack(struct job_table *table, struct job *job, const struct fanin_hdr *hdr,
	       const struct fanin_join_ack_body *ack, const struct fanin_ranks *joined)
{
	bool again = false;

	rte_spinlock_lock(&job->lock);
	if (ack->nonce == job->parent.nonce)
		parent_is_known(job);
	if (ack->nonce != job->parent.nonce || job->parent.epoch != 0) {
		/* Late, or a duplicate. */
	} else if (ack->state == FANIN_JOIN_CHALLENGE) {
		again = job->parent.cookie != ack->cookie;
		job->parent.cookie = ack->cookie;
	} else if (!parent_agrees(job, ack)) {
		job->parent.refusal = FANIN_REASON_PARENT_MISMATCH;
	} else {
		job->parent.joined = *joined;
		/* Set before the run, too, as the parent may probe this switch before the run. */
		__atomic_store_n(&job->parent_instance, ack->instance, __ATOMIC_RELAXED);
		__atomic_store_n(&job->parent_port_shift,
				 (uint8_t)fanin_wire_port_shift(ack->port_blocks),
				 __ATOMIC_RELAXED);
		__atomic_store_n(&job->parent.slots, ack->slots, __ATOMIC_RELAXED);
		__atomic_store_n(&job->parent.sharing, ack->sharing, __ATOMIC_RELAXED);
		if (ack->state == FANIN_JOIN_ACTIVE)
			job->parent.epoch = hdr->epoch;
		job->parent.progress = hdr->progress;
		if (job->parent.epoch != 0 && job->joined == job->params.children)
			run_begin(table, job);
	}
	rte_spinlock_unlock(&job->lock);
	return again;
}

void
job_parent_refused(struct job *job, const struct fanin_hdr *hdr)
{
	rte_spinlock_lock(&job->lock);
	if (job->parent.epoch == 0 && job->parent.asked && hdr->members == job->parent.nonce) {
		job->parent.refusal = hdr->count;
		parent_is_known(job);
	}
	rte_spinlock_unlock(&job->lock);
}
