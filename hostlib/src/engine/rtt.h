/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Round-trip time to the switch and how long to wait before repeating a query, after RFC 6298.
 * Samples are the times from queries to their answers: they exclude the time that blocks wait for
 * other ranks, and no retransmission makes them ambiguous. The estimate has no upper limit: where
 * cores are short a round trip takes 200 ms. Pure arithmetic.
 */
#ifndef FANIN_HOSTLIB_RTT_H
#define FANIN_HOSTLIB_RTT_H

#include <stdint.h>

#define FANIN_RTO_INITIAL_NS (20 * 1000000ull) /* before the first sample */
#define FANIN_RTO_MIN_NS (2 * 1000000ull) /* shorter times are within the scheduling of cores */

struct fanin_rtt {
	uint64_t smoothed_ns; /* 0: no sample yet */
	uint64_t variance_ns;
	uint64_t rto_ns;
};

static inline void
fanin_rtt_init(struct fanin_rtt *rtt)
{
	*rtt = (struct fanin_rtt){ .rto_ns = FANIN_RTO_INITIAL_NS };
}

/* Seeds or updates the estimate with one round trip. */
static inline void
fanin_rtt_sample(struct fanin_rtt *rtt, uint64_t sample_ns)
{
	uint64_t error_ns;

	if (rtt->smoothed_ns == 0) {
		rtt->smoothed_ns = sample_ns + (sample_ns == 0);
		rtt->variance_ns = sample_ns / 2;
	} else {
		error_ns = sample_ns > rtt->smoothed_ns ? sample_ns - rtt->smoothed_ns
							: rtt->smoothed_ns - sample_ns;
		rtt->variance_ns = (3 * rtt->variance_ns + error_ns) / 4;
		rtt->smoothed_ns = (7 * rtt->smoothed_ns + sample_ns) / 8;
	}
	rtt->rto_ns = rtt->smoothed_ns + 4 * rtt->variance_ns;
	if (rtt->rto_ns < FANIN_RTO_MIN_NS)
		rtt->rto_ns = FANIN_RTO_MIN_NS;
}

#endif
