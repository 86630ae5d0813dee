/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Packets that are missing of other ranks' writes, and FETCHes for them
 * (protocols/region/README.md). Called by the poll loop only.
 */
#include <string.h>

#include "region_internal.h"

/*
 * After this time without a new packet, this rank fetches the remaining packets that the fence has
 * counted.
 */
#define SILENCE_NS UINT64_C(10000000)

void
fanin_region_sources_begin(struct fanin_region_engine *region)
{
	memset(region->sources, 0, sizeof(region->sources));
	for (uint16_t rank = 0; rank < FANIN_REGION_RANKS_MAX; rank++) {
		struct fanin_region_source *source = &region->sources[rank];

		source->gaps = (struct fanin_gaps){ .have = source->have,
						    .asked = source->asked,
						    .ring = FANIN_REGION_SPAN,
						    .end = UINT32_MAX };
	}
}

/* A question was sent or answered: the intervals start again at the shortest. */
static void
again_begin(struct fanin_region_engine *region, struct fanin_region_source *source)
{
	source->again_wait_ns = 0;
	source->again_ns = region->engine.loop.now_ns + fanin_region_answer_ns(region);
}

/* A question was repeated: the next interval is longer. */
static void
again_later(struct fanin_region_engine *region, struct fanin_region_source *source)
{
	source->again_wait_ns = fanin_question_wait(source->again_wait_ns,
						    fanin_region_answer_ns(region));
	source->again_ns = region->engine.loop.now_ns + source->again_wait_ns;
}

void
fanin_region_note_packet(struct fanin_region_engine *region, uint16_t rank, uint32_t packet,
			 bool written)
{
	struct fanin_region_source *source = &region->sources[rank];
	const bool asked = fanin_gaps_take(&source->gaps, packet);

	fanin_gaps_pass(&source->gaps, packet + 1);
	if (!written) {
		fanin_patience_was_lost(&region->reordering);
	} else if (asked) {
		region->stats.late++;
		fanin_patience_was_late(&region->reordering);
	}
	if (asked)
		again_begin(region, source);
	source->last_ns = region->engine.loop.now_ns;
	fanin_region_note_progress(region);
}

/*
 * Asks a writer for missing packets before a packet. again: also for packets that were already
 * asked for. Returns whether a FETCH was sent.
 */
static bool
fetch(struct fanin_region_engine *region, uint16_t rank, uint32_t before, bool again)
{
	struct fanin_gaps *gaps = &region->sources[rank].gaps;
	struct fanin_question question = { .first = gaps->whole,
					   .span = FANIN_REGION_SPAN,
					   .left = FANIN_REGION_FETCH_MAX };

	(void)fanin_gaps_ask(gaps, gaps->whole, before, again, &question);
	if (question.n == 0 || !fanin_region_tell(region, rank, FANIN_REGION_FETCH, question.first,
						  question.words, fanin_question_len(&question)))
		return false;
	region->stats.fetches++;
	/*
	 * Packets from `passed` on may not have been sent yet, so they do not count as late when
	 * they come.
	 */
	(void)fanin_gaps_asked(gaps, &question, gaps->passed);
	return true;
}

/* Asks a writer for gaps, and repeats questions that are due. Returns when to look again. */
static uint64_t
gaps_check(struct fanin_region_engine *region, uint16_t rank)
{
	struct fanin_region_source *source = &region->sources[rank];
	const uint64_t now_ns = region->engine.loop.now_ns;

	if (source->gaps.check_ns == 0) {
		source->again_ns = 0;
		source->again_wait_ns = 0;
	}
	if (fanin_gaps_is_due(&source->gaps, now_ns)) {
		const bool again = source->again_ns != 0 && now_ns >= source->again_ns;

		if (fetch(region, rank, source->gaps.checked, again)) {
			if (again)
				again_later(region, source);
			else if (source->again_ns == 0)
				again_begin(region, source);
		}
		fanin_gaps_checked(&source->gaps, now_ns, region->reordering.ns);
	}
	return source->gaps.check_ns;
}

/*
 * The fence has told how many packets there are: asks for the last ones, after which nothing came.
 * Returns when to look again.
 */
static uint64_t
silence_check(struct fanin_region_engine *region, uint16_t rank)
{
	struct fanin_region_source *source = &region->sources[rank];
	const uint64_t now_ns = region->engine.loop.now_ns;

	if (now_ns < source->last_ns + SILENCE_NS)
		return source->last_ns + SILENCE_NS;
	if (now_ns >= source->again_ns) {
		(void)fetch(region, rank, source->gaps.end, true);
		again_later(region, source);
	}
	return source->again_ns;
}

void
fanin_region_fetch(struct fanin_region_engine *region)
{
	const bool counted = region->fence.stage >= FANIN_REGION_WAIT;

	for (uint16_t rank = 0; rank < region->engine.config.size; rank++) {
		struct fanin_gaps *gaps = &region->sources[rank].gaps;

		if (rank == region->engine.config.rank)
			continue;
		if (gaps->whole < gaps->passed)
			fanin_region_wake_by(region, gaps_check(region, rank));
		else
			gaps->check_ns = 0;
		if (counted && gaps->whole == gaps->passed && gaps->whole < gaps->end)
			fanin_region_wake_by(region, silence_check(region, rank));
	}
}

void
fanin_region_note_sent(struct fanin_region_engine *region, uint16_t rank, uint32_t packets)
{
	struct fanin_gaps *gaps = &region->sources[rank].gaps;

	if (packets > gaps->end || packets > gaps->whole + gaps->ring) {
		region->stats.out_of_range++;
		return;
	}
	fanin_gaps_pass(gaps, packets);
	if (gaps->whole == gaps->passed) {
		if (fanin_region_tell(region, rank, FANIN_REGION_HAVE, gaps->whole, NULL, 0))
			region->stats.haves++;
		return;
	}
	/* The writer waited before it asked, so missing packets are lost rather than late. */
	if (gaps->check_ns == 0 || gaps->checked < gaps->passed) {
		gaps_check(region, rank);
		fanin_gaps_checked(gaps, region->engine.loop.now_ns, 0);
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
		lacks += source->gaps.end - source->gaps.whole;
		for (uint32_t i = 0; i < FANIN_REGION_WORDS; i++)
			lacks -= (uint64_t)__builtin_popcountll(source->have[i]);
	}
	return lacks;
}
