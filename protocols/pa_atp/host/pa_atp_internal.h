/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The state shared by pa_atp_engine.c (windows and receiving) and pa_atp_timer.c (losses). No other
 * file includes this header. Blocks have the engine's numbers; the congestion control uses the
 * packets' numbers.
 */
#ifndef FANIN_PROTOCOLS_PA_ATP_HOST_PA_ATP_INTERNAL_H
#define FANIN_PROTOCOLS_PA_ATP_HOST_PA_ATP_INTERNAL_H

#include "hostlib/src/engine/engine_internal.h"
#include "pa_atp.h"

/*
 * Number of later results, or GACKs, that show a block's to be lost rather than late (RFC 9002,
 * section 6.1.1).
 */
#define FANIN_PA_ATP_GAP 3
/* Maximum number of doublings of the time that a GACK may take. */
#define FANIN_PA_ATP_MAX_DOUBLINGS 8

/* A lane's block, as last sent. */
struct fanin_pa_atp_lane {
	uint64_t direct_ns; /* when the block was last sent because the server asked; 0: never */
	bool gacked;        /* the switch has the block, or its result has come */
	bool asked;         /* this rank has asked for the result */
	/*
	 * the block was sent again, or its result repeated, so its time does not measure the
	 * network
	 */
	bool disturbed;
};

struct fanin_pa_atp {
	/* first member, so that a pointer to it is a pointer to this struct */
	struct fanin_engine engine;
	struct fanin_dual dual;
	const struct fanin_dual_type *type;
	struct fanin_dual_settings settings;
	struct fanin_pa_atp_lane *lanes; /* one for each of the engine's */
	uint32_t next;   /* first block that has not been sent or queued (snd_nxt) */
	uint32_t gacked; /* first block without GACK (last_GACK + 1); an AACK implies the GACK */
	/* number of blocks from the queue until the acknowledgment that clocks CWD */
	uint32_t in_flight;
	uint32_t newest; /* latest block with a result */
	/* blocks before this one have a result, or were asked for because of a gap */
	uint32_t gap_end;
	/* latest acknowledged transmission, in the order of the lanes' transmissions */
	uint32_t gacked_order;
	/* the largest sum of the run's GACKs, which may overtake each other */
	uint64_t sum;
	uint64_t gack_ns; /* time of the last GACK; 0: none yet */
	/* doublings of the time that a GACK may take, since a GACK last measured a round trip */
	uint32_t gack_doublings;
	uint64_t doubled_ns; /* when the time was last doubled */
	uint64_t probe_ns;   /* the switch is not probed before this time */
	/* last block of which the server said that it lacks this rank's data */
	uint32_t lacked;
	bool is_lacked; /* `lacked` is valid in this run */
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

/* pa_atp_timer.c: a result has overtaken others: asks for those that are lost. */
void fanin_pa_atp_gap_check(struct fanin_pa_atp *pa);

/* pa_atp_timer.c: handles an ASK of the server to the ranks in hdr->members. */
void fanin_pa_atp_receive_ask(struct fanin_pa_atp *pa, const struct fanin_hdr *hdr, uint32_t block);

#endif
