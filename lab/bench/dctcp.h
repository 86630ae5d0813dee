/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A sender of DCTCP (RFC 8257), as background traffic of `./dev bench stragglers`: each segment is
 * acknowledged separately with its CE mark, as with SACK. Pure: time is passed in. A segment is
 * lost if another one that was sent three later has been acknowledged, or after a timeout.
 */
#ifndef FANIN_LAB_BENCH_DCTCP_H
#define FANIN_LAB_BENCH_DCTCP_H

#include <stdbool.h>
#include <stdint.h>

/* Maximum of segments between the first unacknowledged and the last sent one. */
#define DCTCP_WINDOW 1024u

enum dctcp_state {
	DCTCP_IDLE,
	DCTCP_SENT,
	DCTCP_LOST,
	DCTCP_ACKED,
};

struct dctcp_segment {
	uint64_t sent_ns;
	uint32_t order; /* of transmissions; this segment's last one */
	uint8_t state;  /* enum dctcp_state */
	bool again; /* it was sent more than once: its acknowledgment does not measure a round trip
		     */
};

struct dctcp {
	uint32_t n;     /* segments of the flow */
	uint32_t first; /* first segment without acknowledgment */
	uint32_t next;  /* first segment that was never sent */
	uint32_t in_flight;
	uint32_t n_lost; /* segments that have to be sent again */
	uint32_t order;  /* of the next transmission */
	uint32_t newest; /* `order` of the latest acknowledged transmission plus 1; 0: none was */
	double cwnd;
	double ssthresh;
	double alpha;
	uint32_t round_end;  /* alpha is updated when this segment is acknowledged */
	uint32_t reduced_to; /* segments before this one were sent before the last reduction */
	uint32_t acks;       /* of this round trip */
	uint32_t marks;
	uint64_t srtt_ns;
	uint64_t rttvar_ns;
	uint64_t rto_ns;
	uint64_t timeouts;
	struct dctcp_segment segments[DCTCP_WINDOW]; /* by number modulo DCTCP_WINDOW */
};

/* n: segments; 1 at least. */
void dctcp_init(struct dctcp *flow, uint32_t n);

/* Returns true and the number of the segment to be sent now, or false if none may be sent. */
bool dctcp_send(struct dctcp *flow, uint64_t now_ns, uint32_t *number);

/*
 * Handles an acknowledgment of segment `number`; ce: its mark. Acknowledgments of one segment may
 * come twice.
 */
void dctcp_on_ack(struct dctcp *flow, uint32_t number, bool ce, uint64_t now_ns);

/* Marks segments that have not been acknowledged for a timeout as lost, to be sent again. */
void dctcp_on_time(struct dctcp *flow, uint64_t now_ns);

static inline bool
dctcp_is_done(const struct dctcp *flow)
{
	return flow->first == flow->n;
}

#endif
