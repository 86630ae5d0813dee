/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Packets from other ranks. Bytes of the current fence are stored once, at the address in their
 * header (protocols/region/README.md). Called by the poll loop only.
 */
#include "region_internal.h"

/* True for a packet that names another fence than the next one. The packet is counted. */
static bool
is_of_other_fence(struct fanin_region_engine *region, const struct fanin_hdr *hdr)
{
	if (hdr->progress == region->number)
		return false;
	if (hdr->progress == region->number + 1)
		region->stats.early++;
	else
		region->stats.old++;
	return true;
}

/*
 * True if a packet of another rank's data may be stored; otherwise the packet is counted. len:
 * bytes of data.
 */
static bool
is_right(struct fanin_region_engine *region, const struct fanin_hdr *hdr, uint32_t len)
{
	const struct fanin_gaps *gaps = &region->sources[fanin_region_origin(hdr)].gaps;

	if (region->memory == NULL ||
	    !fanin_region_holds(region->first, region->bytes, fanin_region_address(hdr), len)) {
		region->stats.out_of_range++;
		return false;
	}
	if (is_of_other_fence(region, hdr))
		return false;
	if (!fanin_gaps_fits(gaps, hdr->block)) {
		region->stats.out_of_range++;
		return false;
	}
	if (fanin_gaps_has(gaps, hdr->block)) {
		region->stats.duplicates++;
		return false;
	}
	return true;
}

/*
 * Stores a packet's data at its address, if the data is missing. headers: a copy that cannot
 * change.
 */
static void
data_store(struct fanin_region_engine *region, const struct fanin_headers *headers,
	   const struct fanin_frame *frame)
{
	const struct fanin_hdr *hdr = &headers->fanin;
	const uint32_t len = fanin_wire_payload_len(headers);
	const bool written = hdr->type == FANIN_TYPE_WRITE_DELIVERY;

	if (!is_right(region, hdr, len))
		return;
	if (len > frame->len - FANIN_PAYLOAD_OFFSET ||
	    !fanin_frame_copy(region->engine.loop.transport, frame, FANIN_PAYLOAD_OFFSET,
			      region->memory + (fanin_region_address(hdr) - region->first), len)) {
		region->engine.stats.invalid++;
		return;
	}
	region->stats.packets++;
	region->stats.fetched += !written;
	fanin_region_note_packet(region, fanin_region_origin(hdr), hdr->block, written);
}

static void
receive_data(struct fanin_region_engine *region, const struct fanin_frame *frame)
{
	/* A copy: the sender may share the frame's memory and change it. */
	const struct fanin_headers headers = *(const struct fanin_headers *)frame->data;
	const struct fanin_hdr *hdr = &headers.fanin;
	const bool written = hdr->type == FANIN_TYPE_WRITE_DELIVERY;
	const uint16_t origin = fanin_region_origin(hdr);

	if (origin >= region->engine.config.size) {
		region->engine.stats.invalid++;
		return;
	}
	/* This rank's own packet, or one to another host behind the same port. */
	if (origin == region->engine.config.rank ||
	    (!written && hdr->number != region->engine.config.rank))
		return;
	data_store(region, &headers, frame);
	if (written && hdr->number == FANIN_REGION_WANTS_HAVE && hdr->progress == region->number &&
	    fanin_region_tell(region, origin, FANIN_REGION_HAVE, region->sources[origin].gaps.whole,
			      NULL, 0))
		region->stats.haves++;
}

static void
receive_fetch(struct fanin_region_engine *region, const struct fanin_frame *frame)
{
	const struct fanin_headers headers = *(const struct fanin_headers *)frame->data;
	uint64_t words[FANIN_REGION_WORDS];
	const uint32_t n = fanin_engine_copy_words(&region->engine, frame, words,
						   FANIN_REGION_WORDS);

	if (n == 0 || headers.fanin.members >= region->engine.config.size) {
		region->engine.stats.invalid++;
		return;
	}
	fanin_region_serve(region, (uint16_t)headers.fanin.members, headers.fanin.block, words, n);
}

/* Receives HAVE, FETCH and ASK. */
static void
receive_unicast(struct fanin_region_engine *region, const struct fanin_frame *frame)
{
	const struct fanin_hdr hdr = ((const struct fanin_headers *)frame->data)->fanin;

	if (hdr.members >= region->engine.config.size) {
		region->engine.stats.invalid++;
		return;
	}
	if (hdr.members == region->engine.config.rank || hdr.count != region->engine.config.rank ||
	    is_of_other_fence(region, &hdr))
		return;
	switch (hdr.number) {
	case FANIN_REGION_HAVE:
		fanin_region_note_have(region, (uint16_t)hdr.members, hdr.block);
		break;
	case FANIN_REGION_FETCH:
		receive_fetch(region, frame);
		break;
	case FANIN_REGION_ASK:
		fanin_region_note_sent(region, (uint16_t)hdr.members, hdr.block);
		break;
	default:
		region->engine.stats.invalid++;
		break;
	}
}

void
fanin_region_receive(struct fanin_engine *engine, const struct fanin_frame *frame, uint32_t block)
{
	struct fanin_region_engine *region = fanin_region_of(engine);
	const struct fanin_hdr *hdr = &((const struct fanin_headers *)frame->data)->fanin;

	(void)block;
	switch (hdr->type) {
	case FANIN_TYPE_WRITE_DELIVERY:
	case FANIN_TYPE_REWRITE_DELIVERY:
		receive_data(region, frame);
		break;
	case FANIN_TYPE_UNICAST_DELIVERY:
		receive_unicast(region, frame);
		break;
	default:
		engine->stats.invalid++;
		break;
	}
}
