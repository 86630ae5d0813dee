/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Finds ranks that are gone where no block shows it: a rank that holds back its contribution keeps
 * its switch from sending the block up, and a rank that has contributed may still owe packets that
 * no switch knows of. So this queries the root of the tree about a block that no rank may have
 * contributed to, 2W ahead of the oldest one: switches accept no block so far ahead before the
 * oldest one is done. All ranks of that block are missing, so each switch probes its ranks, and the
 * answer says which have ended or are silent (protocols/broadcast/README.md). For engines whose
 * handler passes such queries up.
 */
#ifndef FANIN_HOSTLIB_ENGINE_LIVE_H
#define FANIN_HOSTLIB_ENGINE_LIVE_H

#include "engine_internal.h"

struct fanin_live {
	uint64_t ask_ns;          /* when to query next */
	uint32_t block;           /* the last query's */
	struct fanin_ranks gone;  /* ranks that are gone, as told since the last progress */
	struct fanin_ranks ended; /* those of them whose processes have ended */
	uint64_t gone_ns;         /* when answers first said that ranks are gone; 0: none are */
};

/* There was progress: forgets what was told. */
static inline void
fanin_live_clear(struct fanin_live *live)
{
	live->gone_ns = 0;
}

/*
 * Queries while nothing comes, for the first time a fifth of the timeout after since_ns. Returns
 * when to call it again.
 */
uint64_t fanin_live_check(struct fanin_live *live, struct fanin_engine *engine, uint64_t since_ns);

/*
 * Handles an answer, which counts only if its block is the one that was queried. Returns true if it
 * says that the block lacks all others and that none of them is gone: all are merely late. An
 * answer that lists fewer ranks proves nothing about the others.
 */
bool fanin_live_told(struct fanin_live *live, const struct fanin_engine *engine, uint32_t block,
		     const struct fanin_answer_ranks *ranks);

/*
 * True if ranks have ended, or have been silent for long enough: a link may be down for a moment.
 */
bool fanin_live_is_sure(const struct fanin_live *live, const struct fanin_engine *engine);

/* Writes the ranks that are gone, at least one: "rank 2 (of 8), which has ended". */
void fanin_live_format(const struct fanin_live *live, const struct fanin_engine *engine, char *text,
		       size_t len);

#endif
