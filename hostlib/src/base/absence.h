/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Absences of the caller: time between two polls that the caller spent elsewhere or without a core.
 * Only a small part of an absence counts as silence of the peers. If no part counted, a caller that
 * is always away would never learn that a rank is gone; if all of it counted, a caller that was
 * stopped would blame ranks that are there. Frames that came meanwhile must be read before timers
 * are checked. Pure functions.
 */
#ifndef FANIN_HOSTLIB_ABSENCE_H
#define FANIN_HOSTLIB_ABSENCE_H

#include <stdint.h>

/* A longer gap between two polls is an absence. */
#define FANIN_ABSENCE_NS (100 * UINT64_C(1000000))

/*
 * This fraction of an absence counts as silence, but at most one MIN_LOOKS-th of the timeout: a
 * caller that fails with a timeout has polled at least that often.
 */
#define FANIN_ABSENCE_SHARE 4
#define FANIN_ABSENCE_MIN_LOOKS 20

/*
 * Returns by how much past timestamps move towards now because of an absence.
 *
 * away_ns: since the last poll. Returns 0 if this is too short for an absence.
 */
static inline uint64_t
fanin_absence_forgiven_ns(uint64_t away_ns, uint64_t timeout_ns)
{
	const uint64_t max_ns = timeout_ns / FANIN_ABSENCE_MIN_LOOKS;
	const uint64_t counts_ns = away_ns / FANIN_ABSENCE_SHARE;

	if (away_ns < FANIN_ABSENCE_NS)
		return 0;
	return away_ns - (counts_ns < max_ns ? counts_ns : max_ns);
}

/* Moves a past timestamp towards now, at most up to now. */
static inline uint64_t
fanin_absence_move(uint64_t time_ns, uint64_t by_ns, uint64_t now_ns)
{
	return now_ns - time_ns > by_ns ? time_ns + by_ns : now_ns;
}

#endif
