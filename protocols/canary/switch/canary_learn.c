/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How long a descriptor waits, learned from earlier blocks (the paper leaves adaptive timeouts to
 * future work). Blocks of one leader come by the same ports unless the network is congested. So the
 * statistics are kept per leader: the time between a block's packets, and the ranks that they
 * bring. They affect time only. Pure functions on a state that workers share.
 */
#include "protocols/canary/switch/canary.h"

/* Smoothing factor, as in RFC 6298. */
#define GAP_SHARE 8
#define DEVIATION_SHARE 4
#define DEVIATIONS 4
/*
 * Number of other switches' timeouts that pass before all data may have come to the root, with two
 * levels.
 */
#define ROOT_WAITS 3

static uint64_t
parameter_ns(const struct fanin_job_params *job, enum fanin_canary_parameter parameter)
{
	return job->parameters[parameter] * 1000;
}

/* True if this switch is the leader's leaf. */
static bool
is_root(const struct fanin_job_params *job, unsigned int leader)
{
	return (job->ranks_here >> leader & 1) != 0;
}

/*
 * Scales a parameter's bound for this switch. The root's own hosts come first, and the root also
 * waits for the timers of other switches.
 */
static uint64_t
bound_ns(const struct fanin_job_params *job, enum fanin_canary_parameter parameter,
	 unsigned int leader)
{
	return parameter_ns(job, parameter) * (is_root(job, leader) ? ROOT_WAITS : 1);
}

static uint64_t
max_ns(const struct fanin_job_params *job, unsigned int leader)
{
	const uint64_t least = bound_ns(job, FANIN_CANARY_MIN_TIMEOUT, leader);
	const uint64_t most = bound_ns(job, FANIN_CANARY_MAX_TIMEOUT, leader);

	return most > least ? most : least;
}

uint64_t
canary_longest_ns(const struct fanin_job_params *job, unsigned int leader)
{
	if (job->parameters[FANIN_CANARY_TIMEOUT] != 0)
		return bound_ns(job, FANIN_CANARY_TIMEOUT, leader);
	return max_ns(job, leader);
}

uint64_t
canary_timeout_ns(const struct fanin_job_params *job, const struct canary_state *state,
		  unsigned int leader)
{
	const struct canary_lesson *lesson = &state->lessons[leader];
	const uint64_t gap_ns = __atomic_load_n(&lesson->gap_ns, __ATOMIC_RELAXED);
	const uint64_t deviation_ns = __atomic_load_n(&lesson->deviation_ns, __ATOMIC_RELAXED);
	const uint64_t least = bound_ns(job, FANIN_CANARY_MIN_TIMEOUT, leader);
	uint64_t timeout_ns = gap_ns + DEVIATIONS * deviation_ns;

	if (job->parameters[FANIN_CANARY_TIMEOUT] != 0)
		return bound_ns(job, FANIN_CANARY_TIMEOUT, leader);
	if (timeout_ns < least)
		timeout_ns = least;
	return timeout_ns < max_ns(job, leader) ? timeout_ns : max_ns(job, leader);
}

uint64_t
canary_expected(const struct fanin_job_params *job, const struct canary_state *state,
		unsigned int leader)
{
	if (is_root(job, leader))
		return fanin_ranks_all_word(job->n_ranks, 0) & ~(UINT64_C(1) << leader);
	/* All hosts here, and all other ranks whose data has passed here before. */
	return job->ranks_here |
	       __atomic_load_n(&state->lessons[leader].expected, __ATOMIC_RELAXED);
}

void
canary_learn(const struct fanin_job_params *job, struct canary_state *state, unsigned int leader,
	     uint64_t seen, uint64_t gap_ns)
{
	struct canary_lesson *lesson = &state->lessons[leader];
	uint32_t mean = __atomic_load_n(&lesson->gap_ns, __ATOMIC_RELAXED);
	uint32_t deviation = __atomic_load_n(&lesson->deviation_ns, __ATOMIC_RELAXED);
	uint32_t difference;

	__atomic_store_n(&lesson->expected, seen, __ATOMIC_RELAXED);
	/* A late application, not the network, causes such a gap. */
	if (gap_ns > max_ns(job, leader))
		return;
	difference = (uint32_t)gap_ns > mean ? (uint32_t)gap_ns - mean : mean - (uint32_t)gap_ns;
	if (mean == 0) {
		mean = (uint32_t)gap_ns;
		deviation = (uint32_t)gap_ns / 2;
	} else {
		deviation = deviation - deviation / DEVIATION_SHARE + difference / DEVIATION_SHARE;
		mean = mean - mean / GAP_SHARE + (uint32_t)gap_ns / GAP_SHARE;
	}
	__atomic_store_n(&lesson->gap_ns, mean, __ATOMIC_RELAXED);
	__atomic_store_n(&lesson->deviation_ns, deviation, __ATOMIC_RELAXED);
}
