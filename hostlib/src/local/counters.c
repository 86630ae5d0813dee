/* SPDX-License-Identifier: BSD-3-Clause */
/* Counters in memory, and the ranks that wait for them. See local_internal.h. */
#include "local_internal.h"

/*
 * Wakes the ranks that wait for one of these steps, at the leader. Either this rank sees that
 * another one waits, or that one sees, when it looks again, what this one has stored before.
 */
void
fanin_local_wake_waiting(struct fanin_local *local, unsigned int steps)
{
	struct fanin_local_meeting *meeting = &local->config.meeting;

	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	for (unsigned int place = 1; place < meeting->n; place++) {
		uint32_t *waits = &meeting->memory.members[place].waits;

		if ((__atomic_load_n(waits, __ATOMIC_RELAXED) & steps) != 0 &&
		    __atomic_exchange_n(waits, 0, __ATOMIC_ACQ_REL) != 0)
			fanin_local_wake(meeting, place);
	}
}

/* Returns the number of a step's counter. */
static unsigned int
number_of(enum fanin_local_step step)
{
	return (unsigned int)step / 2;
}

static uint64_t *
counter_of(struct fanin_local_member *member, enum fanin_local_step step)
{
	uint64_t *const counters[] = {
		[FANIN_LOCAL_FILLED / 2] = &member->filled,
		[FANIN_LOCAL_REDUCED / 2] = &member->reduced,
		[FANIN_LOCAL_TAKEN / 2] = &member->taken,
	};

	return counters[number_of(step)];
}

/* Returns the least of a counter over all ranks of the host. */
static uint64_t
least(const struct fanin_local *local, enum fanin_local_step step)
{
	const struct fanin_local_meeting *meeting = &local->config.meeting;
	uint64_t min = UINT64_MAX;

	for (unsigned int place = 0; place < meeting->n; place++) {
		const uint64_t count =
			__atomic_load_n(counter_of(&meeting->memory.members[place], step),
					__ATOMIC_ACQUIRE);

		if (count < min)
			min = count;
	}
	return min;
}

/*
 * True if all ranks have done this many chunks in a step. If more have than before, the leader
 * wakes the ranks that wait for it: they have no connections among themselves.
 */
bool
fanin_local_all_have(struct fanin_local *local, enum fanin_local_step step, uint64_t chunks)
{
	uint64_t *seen = &local->seen[number_of(step)];
	uint64_t now;

	if (*seen >= chunks)
		return true;
	now = least(local, step);
	if (now > *seen) {
		*seen = now;
		if (fanin_local_leads(local))
			fanin_local_wake_waiting(local, step);
	}
	return now >= chunks;
}

/* True if the place of a chunk is free, as far as all ranks are done with it in a step. */
bool
fanin_local_is_free(struct fanin_local *local, enum fanin_local_step step, uint64_t chunk)
{
	return chunk < FANIN_LOCAL_DEPTH ||
	       fanin_local_all_have(local, step, chunk - FANIN_LOCAL_DEPTH + 1);
}

/*
 * Tells that this rank has done so many chunks in a step. The last of all ranks wakes the leader if
 * it sleeps: of two that are last at the same time one sees the other's counter, as both have a
 * fence between their store and their loads.
 */
void
fanin_local_publish(struct fanin_local *local, enum fanin_local_step step, uint64_t chunks)
{
	struct fanin_local_member *leader = &local->config.meeting.memory.members[0];

	__atomic_store_n(counter_of(fanin_local_own(local), step), chunks, __ATOMIC_RELEASE);
	if (fanin_local_leads(local)) {
		fanin_local_all_have(local, step, chunks);
		return;
	}
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if ((__atomic_load_n(&leader->waits, __ATOMIC_RELAXED) & step) != 0 &&
	    least(local, step) >= chunks &&
	    __atomic_exchange_n(&leader->waits, 0, __ATOMIC_ACQ_REL) != 0)
		fanin_local_wake(&local->config.meeting, 0);
}
