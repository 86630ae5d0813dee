/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Round-trip time and retransmission timeout, after RFC 6298. A window full of blocks gives hundreds of samples per round
 * trip, which would wear the variance term down to nothing (RFC 7323, appendix G); so only the longest sample of each
 * round counts. A peer that loses its core now and then is rare among quick rounds, but not gone: the longest recent
 * sample is forgotten slowly. Pure arithmetic.
 *
 * Samples also hold how long peers waited before they sent again what they had lost, so with losses the estimate climbs to
 * the most that it may be. That is less for a while after a loss: of 8 hosts and 4 switches on two cores, 2 % lost at every
 * hop, 10 instead of 50 ms make 1.7 to 2.2 times the goodput. Without losses 10 ms are too few where cores are short.
 */
#ifndef FANIN_HOSTLIB_RTT_H
#define FANIN_HOSTLIB_RTT_H

#include <stdint.h>

#define FANIN_RTO_INITIAL_NS (20 * 1000000ull)
#define FANIN_RTO_MIN_NS (2 * 1000000ull)
#define FANIN_RTO_MAX_NS (500 * 1000000ull)         /* with backoff */
#define FANIN_RTO_ESTIMATE_MAX_NS (50 * 1000000ull) /* without */
#define FANIN_RTO_LOSSY_MAX_NS (10 * 1000000ull)    /* the same, FANIN_RTO_LOSSY_NS after a loss */
#define FANIN_RTO_LOSSY_NS (1000 * 1000000ull)
#define FANIN_RTT_PEAK_DECAY 64 /* rounds */

struct fanin_rtt {
	uint64_t smoothed_ns; /* 0: no sample yet */
	uint64_t variance_ns;
	uint64_t peak_ns; /* longest sample, fading */
	uint64_t rto_ns;
	uint64_t rto_max_ns; /* what backoff may reach */
	uint64_t round_start_ns;
	uint64_t round_max_ns; /* longest sample of this round */
	uint64_t lossy_ns;     /* the path counts as lossy until then; 0: it never has */
};

static inline void
fanin_rtt_init(struct fanin_rtt *rtt, uint64_t rto_max_ns)
{
	*rtt = (struct fanin_rtt){ .rto_max_ns = rto_max_ns };
	rtt->rto_ns = FANIN_RTO_INITIAL_NS < rto_max_ns ? FANIN_RTO_INITIAL_NS : rto_max_ns;
}

static inline void
fanin_rtt_limit(struct fanin_rtt *rtt, uint64_t most_ns)
{
	if (rtt->rto_ns > most_ns)
		rtt->rto_ns = most_ns;
	if (rtt->rto_ns > rtt->rto_max_ns)
		rtt->rto_ns = rtt->rto_max_ns;
}

/*
 * A block that was sent once, at sent_ns, has its result at now_ns. Blocks that later ones have overtaken are no samples: a
 * peer has lost those, and timeouts that grow with the peers' timeouts would never end growing.
 */
static inline void
fanin_rtt_sample(struct fanin_rtt *rtt, uint64_t sent_ns, uint64_t now_ns)
{
	uint64_t sample_ns = now_ns - sent_ns;
	uint64_t error_ns;

	if (sample_ns > rtt->round_max_ns)
		rtt->round_max_ns = sample_ns;
	if (sent_ns < rtt->round_start_ns)
		return;

	/* The first block sent in this round has come back: the round is over. */
	sample_ns = rtt->round_max_ns;
	rtt->round_start_ns = now_ns;
	rtt->round_max_ns = 0;
	if (rtt->smoothed_ns == 0) {
		rtt->smoothed_ns = sample_ns;
		rtt->variance_ns = sample_ns / 2;
	} else {
		error_ns = sample_ns > rtt->smoothed_ns ? sample_ns - rtt->smoothed_ns
							: rtt->smoothed_ns - sample_ns;
		rtt->variance_ns = (3 * rtt->variance_ns + error_ns) / 4;
		rtt->smoothed_ns = (7 * rtt->smoothed_ns + sample_ns) / 8;
	}
	rtt->peak_ns -= rtt->peak_ns / FANIN_RTT_PEAK_DECAY;
	if (sample_ns > rtt->peak_ns)
		rtt->peak_ns = sample_ns;
	rtt->rto_ns = rtt->smoothed_ns + 4 * rtt->variance_ns;
	if (rtt->rto_ns < rtt->peak_ns)
		rtt->rto_ns = rtt->peak_ns;
	if (rtt->rto_ns < FANIN_RTO_MIN_NS)
		rtt->rto_ns = FANIN_RTO_MIN_NS;
	fanin_rtt_limit(rtt, now_ns < rtt->lossy_ns ? FANIN_RTO_LOSSY_MAX_NS
						    : FANIN_RTO_ESTIMATE_MAX_NS);
}

/* A packet was lost, as far as a host can tell. */
static inline void
fanin_rtt_note_loss(struct fanin_rtt *rtt, uint64_t now_ns)
{
	rtt->lossy_ns = now_ns + FANIN_RTO_LOSSY_NS;
	fanin_rtt_limit(rtt, FANIN_RTO_LOSSY_MAX_NS);
}

#endif
