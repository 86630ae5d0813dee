/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The state of a region, shared by region.c (the tables), region_write.c (what this rank writes,
 * and what others have of it), region_receive.c (what comes in), region_fetch.c (what is missing)
 * and region_fence.c.
 */
#ifndef FANIN_PROTOCOLS_REGION_HOST_REGION_INTERNAL_H
#define FANIN_PROTOCOLS_REGION_HOST_REGION_INTERNAL_H

#include "hostlib/src/engine/engine_internal.h"
#include "hostlib/src/engine/gaps.h"
#include "hostlib/src/engine/live.h"
#include "region.h"
#include "protocols/region/region.h"
#include "hostlib/src/engine/times.h"

/* Packets behind a writer's oldest missing one that are told apart: no writer is further ahead. */
#define FANIN_REGION_SPAN FANIN_REGION_WINDOW_MOST
#define FANIN_REGION_WORDS (FANIN_REGION_SPAN / 64)
static_assert(FANIN_REGION_SPAN / 8 <= FANIN_PAYLOAD_ALIGN,
	      "a FETCH fits into the shortest packets of a job");
/* Packets that one FETCH asks for. */
#define FANIN_REGION_FETCH_MOST 64u

/* What this rank has of another one's packets since the last fence, whose bitmaps are rings. */
struct fanin_region_source {
	struct fanin_gaps gaps; /* `end`: all of them, once the fence has told */
	uint64_t last_ns;       /* the last new packet, or when `end` was told */
	uint64_t again_ns;      /* when to ask again for what was asked for */
	uint64_t again_wait_ns;
	uint64_t have[FANIN_REGION_WORDS];
	uint64_t asked[FANIN_REGION_WORDS];
};

/* One write since the last fence. */
struct fanin_region_entry {
	uint32_t first; /* its first packet */
	uint32_t n;     /* packets */
	uint64_t offset;
	uint64_t bytes;
};

/* Writes that some rank may still ask for, the oldest first: entries `head` to `n` - 1. */
struct fanin_region_log {
	struct fanin_region_entry *entries;
	size_t head;
	size_t n;
	size_t room;
};

enum fanin_region_stage {
	FANIN_REGION_NO_FENCE,
	FANIN_REGION_COUNTS, /* the ranks tell how much they have written */
	FANIN_REGION_WAIT,   /* this rank lacks packets, and does not say so yet */
	FANIN_REGION_ROUND,  /* the ranks tell whether they lack any */
};

struct fanin_region_fence {
	enum fanin_region_stage stage;
	struct fanin_request *request; /* the owner's */
	struct fanin_request control;  /* the engine's, an allreduce */
	uint64_t said[FANIN_REGION_RANKS_MAX];
	uint64_t heard[FANIN_REGION_RANKS_MAX];
	uint64_t hold_ns; /* when to say that packets lack */
	uint64_t hold_wait_ns;
	uint32_t n_rounds;       /* done */
	uint32_t stalled_rounds; /* of them, those since which no packet has come */
	uint64_t packet_ns; /* the last new packet, or confirmation of an own one; or the counts */
};

struct fanin_region_engine {
	struct fanin_engine engine; /* first: a pointer to it is one to this */
	uint64_t first;             /* the region's first address, as the job has it */
	uint64_t bytes;
	struct fanin_region_stats stats;
	uint8_t *memory; /* bytes, the owner's; NULL: not attached */
	uint32_t number; /* of the next fence */
	struct fanin_region_fence fence;
	uint32_t next_lane;     /* first block that was not released yet */
	struct fanin_live live; /* who is gone, while a fence waits */

	/* What this rank writes. */
	struct fanin_region_log log;
	uint32_t n_written; /* packets since the last fence */
	uint32_t next;      /* to be sent */
	uint32_t base;      /* all ranks have all before it, as far as they have told */
	uint32_t window;    /* packets that may be on their way */
	uint32_t window_most;
	uint32_t n_good;    /* confirmed since the window last changed */
	uint32_t slowed_at; /* `next` when it was last halved */
	uint64_t ask_ns;    /* when to ask ranks that have not confirmed */
	uint64_t ask_wait_ns;
	bool has_more; /* the last poll did not send all that it may: others had to be read, or the
			  transport had no room */
	bool is_full;  /* of these, the latter */
	uint32_t confirmed[FANIN_REGION_RANKS_MAX]; /* by rank: it has all packets before this one
						     */

	/* What others write. */
	struct fanin_patience reordering; /* before a gap counts as lost */
	uint64_t wake_ns;                 /* when something is due */
	struct fanin_region_source sources[FANIN_REGION_RANKS_MAX];
};

extern const struct fanin_engine_rules fanin_region_rules;

static inline struct fanin_region_engine *
fanin_region_of(struct fanin_engine *engine)
{
	return fanin_engine_own(engine, &fanin_region_rules);
}

/* region_write.c, region_fence.c: as struct fanin_protocol_region_ops has them. */
int fanin_region_store(struct fanin_endpoint *endpoint, uint64_t offset, const void *data,
		       uint64_t bytes);
int fanin_region_post_fence(struct fanin_endpoint *endpoint, struct fanin_request *request);

/* region_write.c: as struct fanin_engine_rules has it. */
uint64_t fanin_region_idle_most_ns(struct fanin_engine *engine);

/* Something is to be done at this time. */
static inline void
fanin_region_wake_by(struct fanin_region_engine *region, uint64_t time_ns)
{
	if (time_ns < region->wake_ns)
		region->wake_ns = time_ns;
}

/* Returns how long an answer may take before a question comes again, at first. */
static inline uint64_t
fanin_region_answer_ns(const struct fanin_region_engine *region)
{
	const uint64_t least_ns = UINT64_C(4000000);
	const uint64_t most_ns = UINT64_C(50000000);
	const uint64_t rto_ns = region->engine.rtt.rto_ns;

	if (region->engine.rtt.smoothed_ns == 0)
		return UINT64_C(10000000);
	return rto_ns < least_ns ? least_ns : fanin_earlier(rto_ns, most_ns);
}

/* region_write.c: sends what may be sent, and asks ranks that have not confirmed for long. */
void fanin_region_send(struct fanin_region_engine *region);

/*
 * region_write.c: sends a packet of no data to a rank.
 *
 * Returns false if the transport has no room.
 */
bool fanin_region_tell(struct fanin_region_engine *region, uint16_t rank,
		       enum fanin_region_kind kind, uint32_t packet, const void *payload,
		       uint32_t payload_len);

/* region_write.c: a rank has all packets before this one. */
void fanin_region_note_have(struct fanin_region_engine *region, uint16_t rank, uint32_t packet);

/*
 * region_write.c: a rank asks for packets. words: bitmap of n words, from the packet `first` on,
 * before which it has all.
 */
void fanin_region_serve(struct fanin_region_engine *region, uint16_t rank, uint32_t first,
			const uint64_t *words, uint32_t n_words);

/* region_write.c: all ranks have all that was written. */
void fanin_region_writes_forget(struct fanin_region_engine *region);

/* region_receive.c: as struct fanin_engine_rules has it. */
void fanin_region_receive(struct fanin_engine *engine, const struct fanin_frame *frame,
			  uint32_t block);

/* region_fetch.c: begins with nothing of any writer, at the first fence and after each one. */
void fanin_region_sources_begin(struct fanin_region_engine *region);

/*
 * region_fetch.c: the writer has sent all packets before this one, and they can't come any more if
 * they are not there.
 */
void fanin_region_note_sent(struct fanin_region_engine *region, uint16_t rank, uint32_t packets);

/* region_fetch.c: a packet is there that lacked. written: by WRITE. */
void fanin_region_note_packet(struct fanin_region_engine *region, uint16_t rank, uint32_t packet,
			      bool written);

/* region_fetch.c: asks writers for what is missing. */
void fanin_region_fetch(struct fanin_region_engine *region);

/* region_fetch.c: returns how many packets this rank lacks, of those that the fence has told of. */
uint64_t fanin_region_lacks(const struct fanin_region_engine *region);

/* region_fence.c: something of the fence's packets has moved: nobody is known to be gone. */
void fanin_region_note_progress(struct fanin_region_engine *region);

/* region_fence.c: goes on with the fence, if there is one. May fail the engine. */
void fanin_region_fence_step(struct fanin_region_engine *region);

#endif
