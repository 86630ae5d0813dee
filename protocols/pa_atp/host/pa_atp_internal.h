/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The state shared by pa_atp_engine.c (windows and what is received) and pa_atp_timer.c (loss).
 * Nobody else includes this. Blocks are numbered as the engine numbers them; the congestion control
 * gets the packets' numbers.
 */
#ifndef FANIN_PROTOCOLS_PA_ATP_HOST_PA_ATP_INTERNAL_H
#define FANIN_PROTOCOLS_PA_ATP_HOST_PA_ATP_INTERNAL_H

#include "hostlib/src/engine/engine_internal.h"
#include "pa_atp.h"

/*
 * Later results, or GACKs, that show a block's to be lost rather than late (RFC 9002, section
 * 6.1.1).
 */
#define FANIN_PA_ATP_GAP 3
/* Of the time that a GACK may take. */
#define FANIN_PA_ATP_MOST_DOUBLINGS 8

/* A lane's block, as it was last sent. */
struct fanin_pa_atp_lane {
	uint64_t direct_ns; /* when it was last sent because the server asked; 0: never */
	bool gacked;        /* the switch has it, or its result has come */
	bool asked;         /* its result was asked for */
	bool disturbed;     /* it was sent again, or repeated: its time is not the network's */
};

struct fanin_pa_atp {
	struct fanin_engine engine; /* first, so that a pointer to it is one to this */
	struct fanin_dual dual;
	const struct fanin_dual_type *type;
	struct fanin_dual_settings settings;
	struct fanin_pa_atp_lane *lanes; /* one for each of the engine's */
	uint32_t next;      /* first block that has not been sent or queued (snd_nxt) */
	uint32_t gacked;    /* first block without GACK (last_GACK + 1); an AACK implies the GACK */
	uint32_t in_flight; /* blocks from the queue on, up to what clocks CWD */
	uint32_t newest;    /* latest block with a result */
	uint32_t gap_end;   /* blocks before it have a result, or were asked for because of a gap */
	uint32_t gacked_order;   /* latest transmission with a GACK, as lanes count them */
	uint64_t sum;            /* the largest of the run's GACKs: they may overtake each other */
	uint64_t gack_ns;        /* time of the last GACK; 0: none yet */
	uint32_t gack_doublings; /* of the time that a GACK may take, since one measured a round
				    trip */
	uint64_t doubled_ns;     /* when that was last doubled */
	uint64_t probe_ns;       /* no probe of the switch before this time */
	uint32_t lacked;         /* block that the server last said to lack of this rank */
	bool is_lacked;          /* there is one in this run */
	struct fanin_pa_atp_stats stats;
};

static_assert(offsetof(struct fanin_pa_atp, engine) == 0, "a pointer to the engine is one to this");

extern const struct fanin_engine_rules fanin_pa_atp_rules;

static inline struct fanin_pa_atp *
fanin_pa_atp_of(struct fanin_engine *engine)
{
	return fanin_engine_own(engine, &fanin_pa_atp_rules);
}

static inline struct fanin_pa_atp_lane *
fanin_pa_atp_lane(const struct fanin_pa_atp *pa, uint32_t block)
{
	return &pa->lanes[block & (pa->engine.config.window - 1u)];
}

/* pa_atp_timer.c: see fanin_engine_rules. */
void fanin_pa_atp_filter_missing(struct fanin_engine *engine, struct fanin_answer_ranks *ranks);
void fanin_pa_atp_scan(struct fanin_engine *engine);
bool fanin_pa_atp_explain(struct fanin_engine *engine, char *text, size_t text_len);

/*
 * pa_atp_timer.c: a result has come after which others are missing: asks for those that are lost.
 */
void fanin_pa_atp_gap_check(struct fanin_pa_atp *pa);

/* pa_atp_timer.c: the server asks for a block of the ranks in hdr->members. */
void fanin_pa_atp_receive_ask(struct fanin_pa_atp *pa, const struct fanin_hdr *hdr, uint32_t block);

#endif
