/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fences: the ranks tell each other how many packets each has written. Then they tell each other,
 * in rounds, how many packets they lack, until no rank lacks any (protocols/region/README.md).
 * Blocks of the window protocol carry both. The fence's own request follows these blocks' request
 * in the engine's list, so an error of the engine fails the fence, too.
 */
#include <string.h>

#include "region_internal.h"
#include "hostlib/src/engine/times.h"

#define HOLD_FIRST_NS UINT64_C(20000000)
#define HOLD_MAX_NS UINT64_C(100000000)
/*
 * A timeout without a new packet is an error only after this many rounds without one: every rank
 * has taken part in each of these rounds.
 */
#define STALLED_ROUNDS 2u

/* Posts an allreduce of the first n values. Returns what fanin_engine_post_small does. */
static int
values_post(struct fanin_region_engine *region, uint32_t n)
{
	struct fanin_region_fence *fence = &region->fence;
	const uint32_t room = region->engine.config.payload_bytes / (uint32_t)sizeof(uint64_t);
	const uint32_t each = n < room ? n : room;

	fence->control = (struct fanin_request){
		.send = (const uint8_t *)fence->said,
		.recv = (uint8_t *)fence->heard,
		.collective = FANIN_COLLECTIVE_ALLREDUCE,
		.dtype = FANIN_U64,
		.op = FANIN_MAX,
	};
	return fanin_engine_post_small(&region->engine, &fence->control, (n + each - 1) / each,
				       each * (uint32_t)sizeof(uint64_t));
}

int
fanin_region_post_fence(struct fanin_endpoint *endpoint, struct fanin_request *request)
{
	struct fanin_region_engine *region = fanin_region_of(fanin_engine_of(endpoint));
	struct fanin_region_fence *fence = &region->fence;
	int status;

	if (region->engine.loop.status != FANIN_OK)
		return region->engine.loop.status;
	if (region->memory == NULL || fence->stage != FANIN_REGION_NO_FENCE)
		return FANIN_ERR_INVALID;
	memset(fence->said, 0, sizeof(fence->said));
	memset(fence->heard, 0, sizeof(fence->heard));
	fence->said[region->engine.config.rank] = region->n_written;
	status = values_post(region, FANIN_REGION_RANKS_MAX);
	if (status != FANIN_OK)
		return status;
	request->n_blocks = 0;
	request->first_block = region->engine.end;
	fanin_request_list_append(&region->engine.loop.requests, request);
	fence->request = request;
	fence->stage = FANIN_REGION_COUNTS;
	fence->n_rounds = 0;
	return FANIN_OK;
}

static void
fail(struct fanin_region_engine *region, int status)
{
	fanin_engine_fail(&region->engine, status);
	region->fence.stage = FANIN_REGION_NO_FENCE;
}

/* Returns a rank whose packets this rank lacks. */
static uint16_t
source_that_lacks(const struct fanin_region_engine *region)
{
	uint16_t rank = 0;

	while (rank == region->engine.config.rank ||
	       region->sources[rank].gaps.whole == region->sources[rank].gaps.end)
		rank++;
	return rank;
}

/* Holds the next round back until no packet is missing, or for a while. */
static void
wait_begin(struct fanin_region_engine *region, uint64_t wait_ns)
{
	struct fanin_region_fence *fence = &region->fence;

	fence->stage = FANIN_REGION_WAIT;
	fence->hold_wait_ns = fanin_earlier(wait_ns, HOLD_MAX_NS);
	fence->hold_ns = region->engine.loop.now_ns + fence->hold_wait_ns;
}

void
fanin_region_note_progress(struct fanin_region_engine *region)
{
	region->fence.packet_ns = region->engine.loop.now_ns;
	region->fence.stalled_rounds = 0;
	fanin_live_clear(&region->live);
}

/* Takes the counts of packets that all ranks have written. */
static void
counts_take(struct fanin_region_engine *region)
{
	struct fanin_region_fence *fence = &region->fence;
	const uint64_t now_ns = region->engine.loop.now_ns;

	for (uint16_t rank = 0; rank < region->engine.config.size; rank++) {
		struct fanin_region_source *source = &region->sources[rank];

		if (rank == region->engine.config.rank)
			continue;
		if (fence->heard[rank] < source->gaps.passed ||
		    fence->heard[rank] > UINT32_MAX / 2) {
			fanin_error_set(
				&region->engine.loop.error, 0,
				"rank %u says that it has written %llu packets before fence %u, but has sent packet %u",
				rank, (unsigned long long)fence->heard[rank], region->number,
				source->gaps.passed - 1);
			fail(region, FANIN_ERR_REFUSED);
			return;
		}
		source->gaps.end = (uint32_t)fence->heard[rank];
		source->last_ns = now_ns;
	}
	fanin_region_note_progress(region);
	wait_begin(region, HOLD_FIRST_NS);
}

/*
 * Posts the next round with the number of missing packets, once none is missing or the round was
 * held back long enough.
 */
static void
round_post(struct fanin_region_engine *region)
{
	struct fanin_region_fence *fence = &region->fence;
	const uint64_t lacks = fanin_region_lacks(region);
	int status;

	if (lacks != 0 && region->engine.loop.now_ns < fence->hold_ns) {
		fanin_region_wake_by(region, fence->hold_ns);
		return;
	}
	fence->said[0] = lacks;
	status = values_post(region, 1);
	if (status != FANIN_OK) {
		fanin_error_set(&region->engine.loop.error, 0,
				"fence %u has no block number for its next round", region->number);
		fail(region, status);
		return;
	}
	fence->stage = FANIN_REGION_ROUND;
}

/* No rank lacks a packet: ends the fence and begins the next one. */
static void
fence_end(struct fanin_region_engine *region)
{
	struct fanin_region_fence *fence = &region->fence;

	fanin_region_writes_forget(region);
	fanin_region_sources_begin(region);
	region->number++;
	region->stats.fences++;
	region->stats.rounds += fence->n_rounds - 1;
	fence->stage = FANIN_REGION_NO_FENCE;
	fanin_request_list_finish(&region->engine.loop.requests, fence->request);
}

/*
 * Fails because ranks are gone. They may have contributed to later rounds ahead of time, but
 * confirm and send nothing.
 */
static void
gone_fail(struct fanin_region_engine *region, uint64_t silent_ns)
{
	char gone[320];

	fanin_live_format(&region->live, &region->engine, gone, sizeof(gone));
	fanin_error_set(&region->engine.loop.error, 0,
			"no packet for %.1f s: fence %u waits for %s", (double)silent_ns / 1e9,
			region->number, gone);
	region->engine.loop.error.missing = region->live.gone;
	fail(region, FANIN_ERR_TIMEOUT);
}

/*
 * True if the fence has failed because some rank lacks packets and none has arrived or been
 * confirmed here for a timeout, although all ranks take part in rounds: ranks are gone, or packets
 * do not get through.
 */
static bool
has_stalled(struct fanin_region_engine *region)
{
	struct fanin_region_fence *fence = &region->fence;
	const uint64_t silent_ns = region->engine.loop.now_ns - fence->packet_ns;
	uint16_t rank;

	if (fence->stalled_rounds <= STALLED_ROUNDS || silent_ns < region->engine.config.timeout_ns)
		return false;
	if (fanin_live_is_sure(&region->live, &region->engine)) {
		gone_fail(region, silent_ns);
		return true;
	}
	if (region->live.gone_ns != 0 || fanin_region_lacks(region) == 0)
		return false;
	rank = source_that_lacks(region);
	fanin_error_set(
		&region->engine.loop.error, 0,
		"no packet for %.1f s: fence %u lacks %llu packets, packet %u of rank %u among them, which answers: do packets of this size pass?",
		(double)silent_ns / 1e9, region->number,
		(unsigned long long)fanin_region_lacks(region), region->sources[rank].gaps.whole,
		rank);
	region->engine.loop.error.missing = fanin_ranks_one(rank);
	fail(region, FANIN_ERR_TIMEOUT);
	return true;
}

/* Takes the result of a round. */
static void
round_take(struct fanin_region_engine *region)
{
	struct fanin_region_fence *fence = &region->fence;

	fence->n_rounds++;
	fence->stalled_rounds++;
	if (fence->heard[0] == 0)
		fence_end(region);
	else if (!has_stalled(region))
		wait_begin(region, 2 * fence->hold_wait_ns);
}

void
fanin_region_fence_step(struct fanin_region_engine *region)
{
	struct fanin_region_fence *fence = &region->fence;

	if (fence->stage == FANIN_REGION_COUNTS && fence->control.status == FANIN_OK)
		counts_take(region);
	if (fence->stage == FANIN_REGION_ROUND && fence->control.status == FANIN_OK)
		round_take(region);
	if (fence->stage == FANIN_REGION_WAIT)
		round_post(region);
}
