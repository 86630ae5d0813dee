/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What is missing of other ranks' writes, and asking them for it (docs/protocol.md, "Regions"). Called by the poll loop only.
 */
#include "region_internal.h"
#include "hostlib/src/engine/times.h"

#define MS UINT64_C(1000000)
/* Bounds of what is learned. */
#define REORDER_LEAST_NS (1 * MS)
#define REORDER_MOST_NS (50 * MS)
#define AGAIN_MOST_NS (100 * MS)
/* After so long without a new packet the fence's count is taken for what was sent. */
#define SILENCE_NS (10 * MS)

/* Packets of a writer that may be missing are before this one: `count`, and what the bitmaps have room for. */
static uint32_t
bounded(const struct fanin_region_source *source, uint32_t packet)
{
	const uint32_t behind = source->whole + FANIN_REGION_SPAN;

	return packet < behind ? packet : behind;
}

/* The packet is there. Packets before it may be missing. */
static void
source_add(struct fanin_region_source *source, uint32_t packet)
{
	fanin_region_set_bit(source->have, packet);
	if (packet >= source->seen)
		source->seen = packet + 1;
	while (fanin_region_has(source, source->whole)) {
		fanin_region_clear_bit(source->have, source->whole);
		fanin_region_clear_bit(source->asked, source->whole);
		source->whole++;
	}
}

void
fanin_region_note_packet(struct fanin_region_engine *region, uint16_t rank, uint32_t packet,
			 bool written)
{
	struct fanin_region_source *source = &region->sources[rank];
	const uint64_t now_ns = region->engine.loop.now_ns;
	const bool asked = fanin_region_bit(source->asked, packet);

	if (!written) {
		/* It was lost. */
		region->reorder_ns -= region->reorder_ns / 8;
		if (region->reorder_ns < REORDER_LEAST_NS)
			region->reorder_ns = REORDER_LEAST_NS;
	} else if (asked) {
		/* It was late, or overtaken. */
		region->stats.late++;
		region->reorder_ns = fanin_doubled(region->reorder_ns, REORDER_MOST_NS);
	}
	if (asked) {
		/* What was asked for is coming. */
		fanin_region_clear_bit(source->asked, packet);
		source->again_wait_ns = fanin_region_answer_ns(region);
		source->again_ns = now_ns + source->again_wait_ns;
	}
	source->last_ns = now_ns;
	fanin_region_note_progress(region);
	source_add(source, packet);
}

/* Asks for packets that lack before a packet. again: also for those that were asked for. Returns how many that are. */
static uint32_t
fetch(struct fanin_region_engine *region, uint16_t rank, uint32_t before, bool again)
{
	struct fanin_region_source *source = &region->sources[rank];
	uint64_t words[FANIN_REGION_WORDS] = { 0 };
	uint32_t n_words = 0;
	uint32_t n = 0;

	for (uint32_t packet = source->whole; packet < before && n < FANIN_REGION_FETCH_MOST;
	     packet++) {
		const uint32_t i = packet - source->whole;

		if (fanin_region_has(source, packet) ||
		    (!again && fanin_region_bit(source->asked, packet)))
			continue;
		words[i / 64] |= UINT64_C(1) << (i % 64);
		n_words = i / 64 + 1;
		n++;
	}
	if (n == 0 || !fanin_region_tell(region, rank, FANIN_REGION_FETCH, source->whole, words,
					 n_words * (uint32_t)sizeof(words[0])))
		return 0;
	region->stats.fetches++;
	/* One that was perhaps not sent yet is not late if it comes. */
	for (uint32_t i = 0; i < n_words * 64 && source->whole + i < source->seen; i++) {
		if ((words[i / 64] >> (i % 64) & 1) != 0)
			fanin_region_set_bit(source->asked, source->whole + i);
	}
	return n;
}

/* Asks a writer for gaps, and again for what it was asked for. Returns when to look again. */
static uint64_t
gaps_check(struct fanin_region_engine *region, uint16_t rank)
{
	struct fanin_region_source *source = &region->sources[rank];
	const uint64_t now_ns = region->engine.loop.now_ns;

	if (source->check_ns == 0) {
		source->checked = source->seen;
		source->check_ns = now_ns + region->reorder_ns;
		source->again_ns = 0;
		source->again_wait_ns = fanin_region_answer_ns(region);
	}
	if (now_ns >= source->check_ns) {
		const bool again = source->again_ns != 0 && now_ns >= source->again_ns;

		if (fetch(region, rank, bounded(source, source->checked), again) != 0 &&
		    (again || source->again_ns == 0))
			source->again_ns = now_ns + source->again_wait_ns;
		if (again)
			source->again_wait_ns = fanin_doubled(source->again_wait_ns, AGAIN_MOST_NS);
		source->checked = source->seen;
		source->check_ns = now_ns + region->reorder_ns;
	}
	return source->check_ns;
}

/* Once the fence has told how many packets there are: asks for those of which nothing is known. Returns when to look again. */
static uint64_t
silence_check(struct fanin_region_engine *region, uint16_t rank)
{
	struct fanin_region_source *source = &region->sources[rank];
	const uint64_t now_ns = region->engine.loop.now_ns;

	if (now_ns < source->last_ns + SILENCE_NS)
		return source->last_ns + SILENCE_NS;
	if (source->again_wait_ns < fanin_region_answer_ns(region))
		source->again_wait_ns = fanin_region_answer_ns(region);
	if (now_ns >= source->again_ns) {
		fetch(region, rank, bounded(source, source->count), true);
		source->again_ns = now_ns + source->again_wait_ns;
		source->again_wait_ns = fanin_doubled(source->again_wait_ns, AGAIN_MOST_NS);
	}
	return source->again_ns;
}

void
fanin_region_fetch(struct fanin_region_engine *region)
{
	const bool counted = region->fence.stage >= FANIN_REGION_WAIT;

	for (uint16_t rank = 0; rank < region->engine.config.size; rank++) {
		struct fanin_region_source *source = &region->sources[rank];

		if (rank == region->engine.config.rank)
			continue;
		if (source->whole < source->seen)
			fanin_region_wake_by(region, gaps_check(region, rank));
		else
			source->check_ns = 0;
		if (counted && source->whole == source->seen && source->whole < source->count)
			fanin_region_wake_by(region, silence_check(region, rank));
	}
}

void
fanin_region_note_sent(struct fanin_region_engine *region, uint16_t rank, uint32_t packets)
{
	struct fanin_region_source *source = &region->sources[rank];
	const uint64_t now_ns = region->engine.loop.now_ns;

	if (packets > source->count || packets > source->whole + FANIN_REGION_SPAN) {
		region->stats.out_of_range++;
		return;
	}
	if (packets > source->seen)
		source->seen = packets;
	if (source->whole == source->seen) {
		if (fanin_region_tell(region, rank, FANIN_REGION_HAVE, source->whole, NULL, 0))
			region->stats.haves++;
		return;
	}
	/* The writer has waited: what is not there does not come any more. */
	if (source->check_ns == 0 || source->checked < source->seen) {
		gaps_check(region, rank);
		source->checked = source->seen;
		source->check_ns = now_ns;
	}
}

uint64_t
fanin_region_lacks(const struct fanin_region_engine *region)
{
	uint64_t lacks = 0;

	for (uint16_t rank = 0; rank < region->engine.config.size; rank++) {
		const struct fanin_region_source *source = &region->sources[rank];

		if (rank == region->engine.config.rank)
			continue;
		lacks += source->count - source->whole;
		for (uint32_t i = 0; i < FANIN_REGION_WORDS; i++)
			lacks -= (uint64_t)__builtin_popcountll(source->have[i]);
	}
	return lacks;
}
