/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Who of a job is gone, where that can't be told from a block: a rank that holds back its
 * contribution keeps its switch from sending the block up, and one that has contributed may still
 * owe packets that no switch knows of. So the root of the tree is asked about a block that nobody
 * may have contributed to, 2W ahead of the oldest one: switches take none so far ahead before that
 * is done. All of its ranks are missing then, each switch probes them, and the answer says which
 * have ended or are silent (protocols/broadcast/README.md). For engines whose handler passes such
 * queries up.
 */
#ifndef FANIN_HOSTLIB_ENGINE_LIVE_H
#define FANIN_HOSTLIB_ENGINE_LIVE_H

#include "engine_internal.h"

struct fanin_live {
	uint64_t ask_ns;          /* when to ask */
	uint32_t block;           /* that was asked about */
	struct fanin_ranks gone;  /* as told since there was progress last */
	struct fanin_ranks ended; /* of these, those whose processes have ended */
	uint64_t gone_ns;         /* since when answers say that some are; 0: they do not */
};

/* There was progress: nobody that is needed is known to be gone. */
static inline void
fanin_live_clear(struct fanin_live *live)
{
	live->gone_ns = 0;
}

/*
 * Asks, while nothing comes: a fifth of the timeout after this time at first. Returns when to look
 * again.
 */
uint64_t fanin_live_check(struct fanin_live *live, struct fanin_engine *engine, uint64_t since_ns);

/*
 * An answer about any block has come: takes it if it is about the one that was asked about. Returns
 * true if it says that the block lacks all others, and that none of them is gone: all are merely
 * late. One that lists fewer proves nothing of the rest.
 */
bool fanin_live_told(struct fanin_live *live, const struct fanin_engine *engine, uint32_t block,
		     const struct fanin_answer_ranks *ranks);

/*
 * True if ranks have ended, or have been silent for long enough: a link may be away for a moment.
 */
bool fanin_live_is_sure(const struct fanin_live *live, const struct fanin_engine *engine);

/* Writes "rank 2 (of 8), which has ended" about the ranks that are gone. There are some. */
void fanin_live_format(const struct fanin_live *live, const struct fanin_engine *engine, char *text,
		       size_t len);

#endif
