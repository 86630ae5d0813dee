/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The slots of a job, as its handler declares: a pool of its own, a part of a pool that jobs share,
 * or none. The contents that a run leaves in shared slots are released here after the run. Main
 * thread only.
 */
#include <errno.h>
#include <sched.h>

#include <rte_malloc.h>
#include <rte_mbuf.h>

#include "pipeline/job.h"
#include "pipeline/pipeline.h"

/* The slot for packets of a job without slots. */
static uint8_t *const no_slot[1];

static void
free_released(struct fanin_handler_ctx *ctx)
{
	for (uint16_t i = 0; i < ctx->n_frees; i++)
		rte_pktmbuf_free(ctx->frees[i]);
	ctx->n_frees = 0;
}

/* Returns the number of mbufs that a slot of the handler may hold, for any jobs that share it. */
static uint32_t
max_mbufs(const struct fanin_handler *handler)
{
	return fanin_slot_mbufs(handler, FANIN_WIRE_MAX_CHILDREN, FANIN_WIRE_MAX_CHILDREN - 1,
				FANIN_MAX_BUFFERS);
}

uint32_t
job_slots_shared(const struct job_table *table, const struct fanin_handler *handler)
{
	const uint32_t n = table->shared_mbufs / max_mbufs(handler);

	return n == 0 ? 0 : 1u << (31 - (unsigned int)__builtin_clz(n));
}

/* The mbuf pools have room for one shared pool of each handler that uses shared slots. */
static bool
has_room(const struct job_table *table, uint32_t mbufs)
{
	uint64_t left = (uint64_t)table->shared_mbufs * fanin_handlers_that_share();

	for (const struct slot_pool *pool = table->shared_pools; pool != NULL; pool = pool->next)
		left -= pool->mbufs;
	return mbufs <= left;
}

static int
find_or_create(const struct pipeline *pipeline, const struct fanin_handler *handler,
	       size_t slot_size, struct slot_pool **found)
{
	struct job_table *table = pipeline->jobs;
	const uint32_t n = job_slots_shared(table, handler);
	struct slot_pool *pool = table->shared_pools;

	while (pool != NULL && (pool->handler != handler ||
				pool->slot_size != RTE_ALIGN_CEIL(slot_size, RTE_CACHE_LINE_SIZE)))
		pool = pool->next;
	if (pool == NULL) {
		if (!has_room(table, n * max_mbufs(handler)))
			return -ENOSPC;
		pool = slot_pool_create(pipeline, handler, slot_size, n);
		if (pool == NULL)
			return -ENOMEM;
		pool->mbufs = n * max_mbufs(handler);
		pool->next = table->shared_pools;
		table->shared_pools = pool;
	}
	*found = pool;
	return 0;
}

/* Returns the largest number of jobs that a switch can have. */
#define MAX_PARTS 4096u

/*
 * Spreads blocks with the same number in different jobs over the slots (Knuth's multiplicative
 * hash).
 */
static uint32_t
hash_of(const struct job *job)
{
	return job->params.id * UINT32_C(2654435769) >> 7;
}

/* Sets the slots that a job's blocks use. */
static void
set_part(struct job *job)
{
	const uint32_t n = (job->pool->mask + 1) / job->pool->n_parts;
	/* Blocks that are 2W apart never need a slot at the same time. */
	const uint32_t used = RTE_MIN(n, 2u * job->params.window);

	__atomic_store_n(&job->params.slots.by_index, job->pool->slots + (size_t)job->part * n,
			 __ATOMIC_RELAXED);
	__atomic_store_n(&job->params.slots.mask, used - 1, __ATOMIC_RELAXED);
}

/*
 * Returns the next other job that uses the same pool, or NULL after the last one. id: 0 at first.
 */
static struct job *
next_sharer(const struct job_table *table, const struct job *job, uint32_t *id)
{
	while (++*id <= FANIN_WIRE_MAX_JOB) {
		struct job *other = table->jobs[*id];

		if (other != NULL && other != job && other->pool == job->pool)
			return other;
	}
	return NULL;
}

/* Divides a job's pool into n_parts for all jobs that use it, except the job itself. */
static void
divide(const struct job_table *table, const struct job *job, uint32_t n_parts)
{
	struct job *other;

	if (n_parts == job->pool->n_parts)
		return;
	job->pool->n_parts = n_parts;
	for (uint32_t id = 0; (other = next_sharer(table, job, &id)) != NULL;)
		set_part(other);
}

/*
 * Returns the first part that no other job has. If there are more jobs than parts, jobs share the
 * last part.
 */
static uint32_t
find_part(const struct job_table *table, const struct job *job)
{
	const uint32_t most = RTE_MIN(job->pool->mask + 1, MAX_PARTS);
	uint64_t taken[MAX_PARTS / 64] = { 0 };
	const struct job *other;
	uint32_t part = 0;

	for (uint32_t id = 0; (other = next_sharer(table, job, &id)) != NULL;)
		taken[other->part / 64] |= UINT64_C(1) << other->part % 64;
	while (part + 1 < most && (taken[part / 64] >> part % 64 & 1) != 0)
		part++;
	return part;
}

/* Gives the job a part of its own; the other jobs' parts may become smaller. */
static void
part_take(const struct job_table *table, struct job *job)
{
	uint32_t n_parts = job->pool->n_parts;

	job->part = find_part(table, job);
	while (n_parts <= job->part)
		n_parts *= 2;
	divide(table, job, n_parts);
	set_part(job);
}

/* Frees the job's part; the other jobs' parts may become larger. */
static void
part_give_back(const struct job_table *table, const struct job *job)
{
	const struct job *other;
	uint32_t n_parts = 1;

	for (uint32_t id = 0; (other = next_sharer(table, job, &id)) != NULL;) {
		while (n_parts <= other->part)
			n_parts *= 2;
	}
	divide(table, job, n_parts);
}

int
job_slots_take(struct pipeline *pipeline, struct job *job, uint32_t n)
{
	const struct fanin_handler *handler = job->handler;
	int ret = 0;

	if (handler->slots_of == FANIN_SLOTS_NONE) {
		job->params.slots = (struct fanin_slots){ .by_index = no_slot };
		return 0;
	}
	if (handler->slots_of == FANIN_SLOTS_SHARED) {
		ret = find_or_create(pipeline, handler, fanin_slot_size(handler, &job->params),
				     &job->pool);
	} else {
		job->pool = slot_pool_create(pipeline, NULL, fanin_slot_size(handler, &job->params),
					     n);
		ret = job->pool == NULL ? -ENOMEM : 0;
	}
	if (ret != 0)
		return ret;
	__atomic_fetch_add(&job->pool->n_jobs, 1, __ATOMIC_RELAXED);
	job->params.slots = (struct fanin_slots){
		.by_index = job->pool->slots,
		.mask = job->pool->mask,
		.common = job->pool->common,
		.salt = handler->slots_of == FANIN_SLOTS_SHARED ? hash_of(job) : 0,
	};
	if (handler->slots_apart)
		part_take(pipeline->jobs, job);
	return 0;
}

/*
 * Returns true if the run that took the slot has ended, or if the slot is now outside of its job's
 * part, where neither packets nor timers find it.
 */
static bool
is_over(const struct job_table *table, const struct slot_pool *pool, uint32_t index,
	const struct fanin_slot_tag *tag)
{
	const struct job *job = job_lookup(table, tag->job);

	if (job == NULL || job_epoch(job) != tag->epoch)
		return true;
	return pool->handler->slots_apart && job->pool == pool &&
	       index - job->part * ((pool->mask + 1) / pool->n_parts) > job->params.slots.mask;
}

/* Waits for a slot. A worker holds it only during a call, unless the worker has lost its core. */
static void
enter(struct fanin_slot_tag *tag)
{
	while (!fanin_slot_enter(tag))
		sched_yield();
}

/* Releases the contents of slots of runs that are over. */
static void
sweep(const struct job_table *table, const struct slot_pool *pool)
{
	struct fanin_handler_ctx ctx = { .drain = free_released };

	for (uint32_t i = 0; i <= pool->mask; i++) {
		struct fanin_slot_tag *tag = (void *)pool->slots[i];

		if (__atomic_load_n(&tag->job, __ATOMIC_RELAXED) == 0)
			continue;
		enter(tag);
		if (tag->job != 0 && is_over(table, pool, i, tag)) {
			pool->handler->slot_release(&ctx, tag);
			fanin_slot_empty(tag);
		}
		fanin_slot_leave(tag);
	}
	free_released(&ctx);
}

/* Removes the entries of jobs without a run from the memory that their slots have in common. */
static void
release_states(const struct job_table *table)
{
	for (uint32_t id = 1; id <= FANIN_WIRE_MAX_JOB; id++) {
		const struct job *job = job_lookup(table, id);

		if (job != NULL && job->handler->state_release != NULL && job_epoch(job) == 0)
			job->handler->state_release(&job->params, job->state);
	}
}

void
job_slots_sweep(struct job_table *table)
{
	if (table->shared_pools == NULL)
		return;
	release_states(table);
	for (const struct slot_pool *pool = table->shared_pools; pool != NULL; pool = pool->next)
		sweep(table, pool);
}

/* Releases the contents of a job's own slots, which no other thread sees. */
static void
release_own(struct job *job)
{
	struct fanin_handler_ctx ctx = { .job = &job->params, .drain = free_released };

	for (uint32_t i = 0; i <= job->pool->mask; i++)
		job->handler->slot_release(&ctx, job->pool->slots[i]);
	free_released(&ctx);
}

void
job_slots_give_back(struct pipeline *pipeline, struct job *job)
{
	struct slot_pool *pool = job->pool;
	struct slot_pool **link = &pipeline->jobs->shared_pools;

	if (pool == NULL)
		return;
	if (pool->handler == NULL) {
		release_own(job);
		slot_pool_free(pool);
		return;
	}
	sweep(pipeline->jobs, pool);
	if (job->handler->state_release != NULL && job->state != NULL)
		job->handler->state_release(&job->params, job->state);
	if (job->handler->slots_apart)
		part_give_back(pipeline->jobs, job);
	if (__atomic_sub_fetch(&pool->n_jobs, 1, __ATOMIC_RELAXED) != 0)
		return;
	while (*link != pool)
		link = &(*link)->next;
	*link = pool->next;
	slot_pool_free(pool);
}

uint64_t
job_slots_bytes(const struct job_table *table)
{
	uint64_t sum = 0;

	for (uint32_t id = 1; id <= FANIN_WIRE_MAX_JOB; id++) {
		const struct job *job = table->jobs[id];

		if (job != NULL && job->pool != NULL && job->pool->handler == NULL)
			sum += slot_pool_bytes(job->pool);
	}
	for (const struct slot_pool *pool = table->shared_pools; pool != NULL; pool = pool->next)
		sum += slot_pool_bytes(pool);
	return sum;
}
