/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Absences of the caller: time between two looks at what has come, which it spent elsewhere or without a core. It does not count as the
 * others' silence, but for a little. If it counted for nothing, a caller who is always away would never be told that somebody is gone; if
 * all of it did, one that was stopped would blame those who are there. What they said meanwhile is to be read before timers are
 * looked at. Pure functions.
 */
#ifndef FANIN_HOSTLIB_ABSENCE_H
#define FANIN_HOSTLIB_ABSENCE_H

#include <stdint.h>

/* A caller that did not come back for this long was away. */
#define FANIN_ABSENCE_NS (100 * UINT64_C(1000000))

/*
 * Of an absence this part counts as silence, and no more than that part of the timeout: so often at least has a caller looked in such a
 * time when it fails.
 */
#define FANIN_ABSENCE_SHARE 4
#define FANIN_ABSENCE_LEAST_LOOKS 20

/*
 * How far times of the past move towards now for it.
 *
 * away_ns: since the last look. Returns 0 if that is no absence.
 */
static inline uint64_t
fanin_absence_forgiven_ns(uint64_t away_ns, uint64_t timeout_ns)
{
	const uint64_t most_ns = timeout_ns / FANIN_ABSENCE_LEAST_LOOKS;
	const uint64_t counts_ns = away_ns / FANIN_ABSENCE_SHARE;

	if (away_ns < FANIN_ABSENCE_NS)
		return 0;
	return away_ns - (counts_ns < most_ns ? counts_ns : most_ns);
}

/* Moves a time of the past towards now, up to now. */
static inline uint64_t
fanin_absence_move(uint64_t time_ns, uint64_t by_ns, uint64_t now_ns)
{
	return now_ns - time_ns > by_ns ? time_ns + by_ns : now_ns;
}

#endif
