/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Push: how many blocks may be in flight, within the waves. Without losses the waves alone say it.
 * Blocks that find no place in a table go to their home hosts as they are, whose links then carry
 * the packets of all ranks: if these are too many, they are lost or late, home hosts ask for them,
 * and what is sent twice makes it worse. So a round in which they ask for many halves what is in
 * flight. A few are lost by chance. Called by the poll loop only.
 */
#include "push_internal.h"

/* At least, and at first: so many bytes, or blocks if they are long. */
#define LEAST_BYTES 65536u
#define LEAST_BLOCKS 32u
/* One block of so many may be asked for. */
#define FEW 8u

static uint32_t
least(const struct fanin_push *push)
{
	const uint32_t blocks = LEAST_BYTES / push->engine.config.payload_bytes;
	const uint32_t span = fanin_waves_span(&push->waves);
	const uint32_t wanted = blocks < LEAST_BLOCKS ? LEAST_BLOCKS : blocks;

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
