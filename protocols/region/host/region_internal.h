/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The state of a region, shared by region.c (the tables), region_write.c (writes of this rank, and
 * which ranks have them), region_receive.c (received packets), region_fetch.c (missing packets) and
 * region_fence.c.
 */
#ifndef FANIN_PROTOCOLS_REGION_HOST_REGION_INTERNAL_H
#define FANIN_PROTOCOLS_REGION_HOST_REGION_INTERNAL_H

#include "hostlib/src/engine/engine_internal.h"
#include "hostlib/src/engine/gaps.h"
#include "hostlib/src/engine/live.h"
#include "region.h"
#include "protocols/region/region.h"
#include "hostlib/src/engine/times.h"

/* Packets tracked from a writer's oldest missing one on: no writer is further ahead. */
#define FANIN_REGION_SPAN FANIN_REGION_WINDOW_MAX
#define FANIN_REGION_WORDS (FANIN_REGION_SPAN / 64)
static_assert(FANIN_REGION_SPAN / 8 <= FANIN_PAYLOAD_ALIGN,
	      "a FETCH fits into the shortest packets of a job");
/* Packets that one FETCH asks for. */
#define FANIN_REGION_FETCH_MAX 64u

/* Packets of another rank that are here, since the last fence. The bitmaps are rings. */
struct fanin_region_source {
	struct fanin_gaps gaps; /* `end`: the number of packets, once the fence has told */
	uint64_t last_ns;       /* when the last new packet came, or `end` was told */
	uint64_t again_ns;      /* when to repeat a question */
	uint64_t again_wait_ns;
	uint64_t have[FANIN_REGION_WORDS];
	uint64_t asked[FANIN_REGION_WORDS];
};

/* One write since the last fence. */
struct fanin_region_entry {
	uint32_t first; /* first packet */
	uint32_t n;     /* number of packets */
	uint64_t offset;
	uint64_t bytes;
};

/* Writes that some rank may still ask for, oldest first: entries `head` to `n` - 1. */
struct fanin_region_log {
	struct fanin_region_entry *entries;
	size_t head;
	size_t n;
	size_t room;
};

enum fanin_region_stage {
	FANIN_REGION_NO_FENCE,
	FANIN_REGION_COUNTS, /* the ranks exchange how many packets they have written */
	FANIN_REGION_WAIT,   /* this rank lacks packets and holds the round back */
	FANIN_REGION_ROUND,  /* the ranks exchange how many packets they lack */
};

struct fanin_region_fence {
	enum fanin_region_stage stage;
	struct fanin_request *request; /* the caller's request */
	struct fanin_request control;  /* the request of the engine's allreduce */
	uint64_t said[FANIN_REGION_RANKS_MAX];
	uint64_t heard[FANIN_REGION_RANKS_MAX];
	uint64_t hold_ns; /* end of holding the round back */
	uint64_t hold_wait_ns;
	uint32_t n_rounds;       /* rounds that are done */
	uint32_t stalled_rounds; /* rounds since the last packet came */
	uint64_t packet_ns; /* when a new packet, a confirmation of an own one, or the counts came
			       last */
};

struct fanin_region_engine {
	struct fanin_engine engine; /* must be first: fanin_region_of() casts a pointer to it */
	uint64_t first;             /* first address of the region, as in the job */
	uint64_t bytes;
	struct fanin_region_stats stats;
	uint8_t *memory; /* the region's bytes, owned by the caller; NULL: not attached */
	uint32_t number; /* number of the next fence */
	struct fanin_region_fence fence;
	uint32_t next_lane;     /* first block whose lane was not released yet */
	struct fanin_live live; /* which ranks are gone, while a fence waits */

	/* Writes of this rank. */
	struct fanin_region_log log;
	uint32_t n_written; /* packets written since the last fence */
	uint32_t next;      /* next packet to send */
	uint32_t base;      /* all ranks have confirmed the packets before it */
	uint32_t window;    /* packets that may be in flight */
	uint32_t window_max;
	uint32_t n_good;    /* packets confirmed since the window last changed */
	uint32_t slowed_at; /* `next` when the window was last halved */
	uint64_t ask_ns;    /* when to send ASK to ranks that have not confirmed */
	uint64_t ask_wait_ns;
	bool has_more; /* the last poll left packets unsent: it had to read, or had no room */
	bool is_full;  /* it had no room */
	uint32_t confirmed[FANIN_REGION_RANKS_MAX]; /* by rank: the rank has all packets before this
						       one */

	/* Writes of other ranks. */
	struct fanin_patience reordering; /* before a gap counts as lost */
	uint64_t wake_ns;                 /* when the next action is due */
	struct fanin_region_source sources[FANIN_REGION_RANKS_MAX];
};

extern const struct fanin_engine_rules fanin_region_rules;

static inline struct fanin_region_engine *
fanin_region_of(struct fanin_engine *engine)
{
	return fanin_engine_own(engine, &fanin_region_rules);
}

/* region_write.c, region_fence.c: functions of struct fanin_protocol_region_ops. */
int fanin_region_store(struct fanin_endpoint *endpoint, uint64_t offset, const void *data,
		       uint64_t bytes);
int fanin_region_post_fence(struct fanin_endpoint *endpoint, struct fanin_request *request);

/* region_write.c: function of struct fanin_engine_rules. */
uint64_t fanin_region_idle_max_ns(struct fanin_engine *engine);

/* An action is due at this time. */
static inline void
fanin_region_wake_by(struct fanin_region_engine *region, uint64_t time_ns)
{
	if (time_ns < region->wake_ns)
		region->wake_ns = time_ns;
}

/* Returns how long to wait for an answer before the first repetition of a question. */
static inline uint64_t
fanin_region_answer_ns(const struct fanin_region_engine *region)
{
	const uint64_t min_ns = UINT64_C(4000000);
	const uint64_t max_ns = UINT64_C(50000000);
	const uint64_t rto_ns = region->engine.rtt.rto_ns;

	if (region->engine.rtt.smoothed_ns == 0)
		return UINT64_C(10000000);
	return rto_ns < min_ns ? min_ns : fanin_earlier(rto_ns, max_ns);
}

/*
 * region_write.c: sends packets as far as the window allows, and ASKs ranks that have not confirmed
 * for long.
 */
void fanin_region_send(struct fanin_region_engine *region);

/*
 * region_write.c: sends a message (HAVE, FETCH or ASK) to a rank. Returns false if the transport
 * has no room.
 */
bool fanin_region_tell(struct fanin_region_engine *region, uint16_t rank,
		       enum fanin_region_kind kind, uint32_t packet, const void *payload,
		       uint32_t payload_len);

/* region_write.c: takes a HAVE: a rank has all packets before this one. */
void fanin_region_note_have(struct fanin_region_engine *region, uint16_t rank, uint32_t packet);

/*
 * region_write.c: answers a FETCH. The rank has all packets before `first`. words: bitmap of n
 * words, of the packets from `first` on that it asks for.
 */
void fanin_region_serve(struct fanin_region_engine *region, uint16_t rank, uint32_t first,
			const uint64_t *words, uint32_t n_words);

/* region_write.c: forgets the writes of the last fence, which all ranks have. */
void fanin_region_writes_forget(struct fanin_region_engine *region);

/* region_receive.c: function of struct fanin_engine_rules. */
void fanin_region_receive(struct fanin_engine *engine, const struct fanin_frame *frame,
			  uint32_t block);

/*
 * region_fetch.c: forgets the packets of all writers: called before the first fence and after each.
 */
void fanin_region_sources_begin(struct fanin_region_engine *region);

/*
 * region_fetch.c: takes an ASK: the writer has sent all packets before this one, so missing ones
 * are lost.
 */
void fanin_region_note_sent(struct fanin_region_engine *region, uint16_t rank, uint32_t packets);

/* region_fetch.c: a missing packet has arrived. written: by WRITE. */
void fanin_region_note_packet(struct fanin_region_engine *region, uint16_t rank, uint32_t packet,
			      bool written);

/* region_fetch.c: asks writers for missing packets. */
void fanin_region_fetch(struct fanin_region_engine *region);

/* region_fetch.c: returns how many packets this rank lacks of those that the fence has counted. */
uint64_t fanin_region_lacks(const struct fanin_region_engine *region);

/* region_fence.c: a packet of the fence has come or was confirmed: no rank is known to be gone. */
void fanin_region_note_progress(struct fanin_region_engine *region);

/* region_fence.c: advances the fence, if there is one. May fail the engine. */
void fanin_region_fence_step(struct fanin_region_engine *region);

#endif
