/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reports what a dense handler's block waits for to threads that are not workers and never enter a
 * slot. They read the state first and last. If both name the same block in the same phase, the slot
 * was not reused in between, and all fields are consistent. Workers store state, run, children and
 * time in this order, each with release, so a thread that sees one of these stores also sees the
 * earlier ones.
 */
#include "protocols/dense/switch/dense.h"

/* A worker prepares a slot faster than a thread takes this many looks. */
#define MAX_LOOKS 16

/* Takes one look. Returns false if the slot changed meanwhile. *waits: whether the block waits. */
static bool
look(const struct fanin_job_params *job, uint32_t epoch, const struct fanin_dense *dense,
     struct fanin_peek *peek, bool *waits)
{
	const struct fanin_dense_state *state = &dense->state;
	const uint64_t word = __atomic_load_n(&state->word, __ATOMIC_ACQUIRE);
	const enum fanin_dense_phase phase = word >> FANIN_STATE_PHASE_SHIFT &
					     FANIN_STATE_PHASE_MASK;
	const uint32_t run = __atomic_load_n(&state->epoch, __ATOMIC_ACQUIRE);
	const uint64_t present = __atomic_load_n(&state->present, __ATOMIC_ACQUIRE);

	*waits = false;
	if (phase == FANIN_PHASE_SETUP)
		return false;
	*peek = (struct fanin_peek){
		.block = (uint32_t)(word >> 32),
		.sent = phase == FANIN_PHASE_SENT,
		.missing = phase == FANIN_PHASE_OPEN ? job->children & ~present : 0,
		.begun_ns = __atomic_load_n(&dense->begun_ns, __ATOMIC_ACQUIRE),
	};
	*waits = run == epoch && (peek->sent || peek->missing != 0);
	return (__atomic_load_n(&state->word, __ATOMIC_ACQUIRE) & ~FANIN_STATE_USERS) ==
		       (word & ~FANIN_STATE_USERS) &&
	       __atomic_load_n(&state->epoch, __ATOMIC_RELAXED) == run;
}

bool
fanin_dense_peek(const struct fanin_job_params *job, uint32_t epoch, const void *slot,
		 struct fanin_peek *peek)
{
	struct fanin_peek seen;
	bool waits;

	for (unsigned int i = 0; i < MAX_LOOKS; i++) {
		if (!look(job, epoch, slot, &seen, &waits))
			continue;
		if (waits)
			*peek = seen;
		return waits;
	}
	return false;
}
