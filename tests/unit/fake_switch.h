/* SPDX-License-Identifier: BSD-3-Clause */
/* The pipeline's services for rigs of one handler: slots, timers, parameters, sending. */
#ifndef FANIN_TESTS_UNIT_FAKE_SWITCH_H
#define FANIN_TESTS_UNIT_FAKE_SWITCH_H

#include <check.h>

#include "handlers/handler.h"
#include "tests/unit/fake_mbuf.h"

/* Sets a job's parameters to its handler's defaults. */
static inline void
fake_usual(const struct fanin_handler *handler, struct fanin_job_params *job)
{
	for (size_t i = 0; handler->parameters[i].name != NULL; i++)
		job->parameters[i] = handler->parameters[i].usual;
}

/* Allocates this many bytes, in whole cache lines, zeroed. The caller frees them. */
static inline void *
fake_memory(size_t size)
{
	void *memory = aligned_alloc(RTE_CACHE_LINE_SIZE, RTE_CACHE_LINE_ROUNDUP(size));

	ck_assert_ptr_nonnull(memory);
	return memset(memory, 0, RTE_CACHE_LINE_ROUNDUP(size));
}

/* Makes slots for a job. The caller frees each. */
static inline void
fake_slots(const struct fanin_handler *handler, const struct fanin_job_params *job, uint8_t **slots,
	   uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		slots[i] = fake_memory(fanin_slot_size(handler, job));
}

/*
 * Makes the timers of a job, of which all but one may be armed. The caller frees them.
 *
 * n: a power of two. earliest_ns: set; must live as long as the timers.
 */
static inline struct fanin_timer_fifo *
fake_timers(const struct fanin_handler *handler, const struct fanin_job_params *job, uint32_t n,
	    uint64_t *earliest_ns)
{
	struct fanin_timer_fifo *timers = calloc(1,
						 sizeof(*timers) + n * sizeof(timers->timers[0]));

	ck_assert_ptr_nonnull(timers);
	*earliest_ns = UINT64_MAX;
	timers->timeout_ns = handler->timeout_ns(job);
	timers->earliest_ns = earliest_ns;
	timers->most = n - 2;
	timers->mask = n - 1;
	return timers;
}

/* Carries out the handler's emissions: passes each to `keep`, and then returns every mbuf. */
static inline void
fake_carry_out(struct fanin_handler_ctx *ctx, struct fake_pool *pool,
	       void (*keep)(const struct fanin_emission *emission))
{
	for (unsigned int i = 0; i < ctx->n_emissions; i++) {
		const struct fanin_emission *emission = &ctx->emissions[i];
		const bool to_one = emission->kind == FANIN_EMIT_PARENT ||
				    emission->kind == FANIN_EMIT_ROUTE;

		keep(emission);
		for (uint64_t left = to_one ? 1 : emission->children; left != 0; left &= left - 1)
			fake_put(pool, emission->mbuf);
	}
	for (unsigned int i = 0; i < ctx->n_frees; i++)
		fake_put(pool, ctx->frees[i]);
	ctx->n_emissions = 0;
	ctx->n_frees = 0;
}

#endif
