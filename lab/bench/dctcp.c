/* SPDX-License-Identifier: BSD-3-Clause */
/* See dctcp.h. */
#include "lab/bench/dctcp.h"

#define INITIAL_CWND 10
#define INITIAL_RTO_NS UINT64_C(100000000)
/* The estimation gain g of RFC 8257. */
#define GAIN (1.0 / 16)
/* A segment is lost when a transmission this many after its own has been acknowledged. */
#define REORDERING 3
#define MIN_RTO_NS UINT64_C(10000000)
#define MAX_RTO_NS UINT64_C(1000000000)

static struct dctcp_segment *
segment_of(struct dctcp *flow, uint32_t number)
{
	return &flow->segments[number % DCTCP_WINDOW];
}

void
dctcp_init(struct dctcp *flow, uint32_t n)
{
	*flow = (struct dctcp){ .n = n,
				.cwnd = INITIAL_CWND,
				.ssthresh = DCTCP_WINDOW,
				.alpha = 1,
				.rto_ns = INITIAL_RTO_NS };
}

static void
transmit(struct dctcp *flow, uint32_t number, uint64_t now_ns)
{
	struct dctcp_segment *segment = segment_of(flow, number);

	segment->again = segment->state == DCTCP_LOST;
	segment->state = DCTCP_SENT;
	segment->sent_ns = now_ns;
	segment->order = flow->order++;
	flow->in_flight++;
}

bool
dctcp_send(struct dctcp *flow, uint64_t now_ns, uint32_t *number)
{
	if (flow->in_flight >= (uint32_t)flow->cwnd)
		return false;
	for (uint32_t i = flow->first; flow->n_lost != 0 && i != flow->next; i++) {
		if (segment_of(flow, i)->state != DCTCP_LOST)
			continue;
		flow->n_lost--;
		transmit(flow, i, now_ns);
		*number = i;
		return true;
	}
	if (flow->next == flow->n || flow->next - flow->first == DCTCP_WINDOW)
		return false;
	*segment_of(flow, flow->next) = (struct dctcp_segment){ 0 };
	transmit(flow, flow->next, now_ns);
	*number = flow->next++;
	return true;
}

/* RFC 6298, with a shorter minimum of the timeout. */
static void
measure(struct dctcp *flow, uint64_t rtt_ns)
{
	if (flow->srtt_ns == 0) {
		flow->srtt_ns = rtt_ns;
		flow->rttvar_ns = rtt_ns / 2;
	} else {
		const uint64_t off_ns = rtt_ns > flow->srtt_ns ? rtt_ns - flow->srtt_ns
							       : flow->srtt_ns - rtt_ns;

		flow->rttvar_ns = (3 * flow->rttvar_ns + off_ns) / 4;
		flow->srtt_ns = (7 * flow->srtt_ns + rtt_ns) / 8;
	}
	flow->rto_ns = flow->srtt_ns + 4 * flow->rttvar_ns;
	if (flow->rto_ns < MIN_RTO_NS)
		flow->rto_ns = MIN_RTO_NS;
}

static void
reduce(struct dctcp *flow, double factor)
{
	flow->cwnd *= factor;
	if (flow->cwnd < 1)
		flow->cwnd = 1;
	flow->ssthresh = flow->cwnd < 2 ? 2 : flow->cwnd;
	flow->reduced_to = flow->next;
}

/*
 * Counts an acknowledgment. Segments that were first sent before the last reduction neither shrink
 * nor grow the window. Updates alpha at the end of each round trip.
 */
static void
window_on_ack(struct dctcp *flow, uint32_t number, bool ce)
{
	const bool may_change = number >= flow->reduced_to;

	flow->acks++;
	flow->marks += ce;
	if (ce && may_change)
		reduce(flow, 1 - flow->alpha / 2);
	else if (may_change && flow->cwnd < DCTCP_WINDOW)
		flow->cwnd += flow->cwnd < flow->ssthresh ? 1 : 1 / flow->cwnd;
	if (number < flow->round_end)
		return;
	flow->alpha = (1 - GAIN) * flow->alpha + GAIN * flow->marks / flow->acks;
	flow->acks = 0;
	flow->marks = 0;
	flow->round_end = flow->next;
}

static void
find_losses(struct dctcp *flow)
{
	for (uint32_t i = flow->first; i != flow->next; i++) {
		struct dctcp_segment *segment = segment_of(flow, i);

		if (segment->state != DCTCP_SENT || segment->order + REORDERING >= flow->newest)
			continue;
		segment->state = DCTCP_LOST;
		flow->in_flight--;
		flow->n_lost++;
		if (i >= flow->reduced_to)
			reduce(flow, 0.5);
	}
}

void
dctcp_on_ack(struct dctcp *flow, uint32_t number, bool ce, uint64_t now_ns)
{
	struct dctcp_segment *segment = segment_of(flow, number);

	if (number < flow->first || number >= flow->next || segment->state == DCTCP_ACKED)
		return;
	if (segment->state == DCTCP_SENT)
		flow->in_flight--;
	else
		flow->n_lost--;
	segment->state = DCTCP_ACKED;
	if (!segment->again)
		measure(flow, now_ns - segment->sent_ns);
	if (segment->order + 1 > flow->newest)
		flow->newest = segment->order + 1;
	window_on_ack(flow, number, ce);
	while (flow->first != flow->next && segment_of(flow, flow->first)->state == DCTCP_ACKED)
		flow->first++;
	find_losses(flow);
}

void
dctcp_on_time(struct dctcp *flow, uint64_t now_ns)
{
	uint32_t oldest = flow->first;

	if (flow->in_flight == 0)
		return;
	/* Those before it may be lost and wait for room in the window, which only this gives. */
	while (segment_of(flow, oldest)->state != DCTCP_SENT)
		oldest++;
	if (now_ns - segment_of(flow, oldest)->sent_ns < flow->rto_ns)
		return;
	for (uint32_t i = oldest; i != flow->next; i++) {
		if (segment_of(flow, i)->state != DCTCP_SENT)
			continue;
		segment_of(flow, i)->state = DCTCP_LOST;
		flow->n_lost++;
	}
	flow->in_flight = 0;
	flow->timeouts++;
	reduce(flow, 0.5);
	flow->cwnd = 1;
	flow->rto_ns = flow->rto_ns * 2 < MAX_RTO_NS ? flow->rto_ns * 2 : MAX_RTO_NS;
}
