/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Push: limits the blocks in flight further than the waves do. Without losses only the waves limit
 * them. Blocks that do not fit into a table go to their home hosts uncombined, so a home host's
 * link carries the packets of all ranks. If these are too many, packets are lost or late, home
 * hosts ask for them, and the retransmissions add to the load. A round in which home hosts ask for
 * many blocks therefore halves the limit. A few questions are tolerated, because some packets are
 * lost by chance. Called by the poll loop only.
 */
#include "push_internal.h"

/* The initial and the lowest limit: this many bytes, or this many blocks if that is more. */
#define MIN_BYTES 65536u
#define MIN_BLOCKS 32u
/* A round is fine if home hosts ask for at most one block in this many. */
#define FEW 8u

static uint32_t
least(const struct fanin_push *push)
{
	const uint32_t blocks = MIN_BYTES / push->engine.config.payload_bytes;
	const uint32_t span = fanin_waves_span(&push->waves);
	const uint32_t wanted = blocks < MIN_BLOCKS ? MIN_BLOCKS : blocks;

	return wanted < span ? wanted : span;
}

void
fanin_push_flight_begin(struct fanin_push *push)
{
	push->allowed = least(push);
	push->is_slow = false;
	push->round_first = push->engine.oldest;
	push->n_asked = 0;
}

void
fanin_push_flight_asked(struct fanin_push *push)
{
	push->n_asked++;
}

void
fanin_push_flight_advance(struct fanin_push *push)
{
	const uint32_t span = fanin_waves_span(&push->waves);

	if (push->engine.oldest - push->round_first < push->allowed)
		return;
	if (push->n_asked * FEW > push->allowed) {
		push->allowed /= 2;
		push->is_slow = true;
	} else {
		push->allowed += push->is_slow ? push->allowed / FEW + 1 : push->allowed;
	}
	if (push->allowed < least(push))
		push->allowed = least(push);
	if (push->allowed > span)
		push->allowed = span;
	push->round_first = push->engine.oldest;
	push->n_asked = 0;
}
