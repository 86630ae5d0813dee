/* SPDX-License-Identifier: BSD-3-Clause */
/* See live.h. Called by the poll loop only. */
#include "live.h"

#include <stdio.h>

uint64_t
fanin_live_check(struct fanin_live *live, struct fanin_engine *engine, uint64_t since_ns)
{
	const uint64_t now_ns = engine->loop.timers_ns;
	const uint64_t timeout_ns = engine->config.timeout_ns;
	const uint64_t begin_ns = since_ns + timeout_ns / 5;

	if (now_ns < begin_ns)
		return begin_ns;
	if (now_ns >= live->ask_ns) {
		live->block = engine->oldest + 2u * engine->config.window;
		fanin_engine_query_root(engine, live->block);
		live->ask_ns = now_ns + timeout_ns / 10;
	}
	return live->ask_ns;
}

/* True if the set has all ranks but this one. */
static bool
has_all_others(const struct fanin_ranks *set, const struct fanin_protocol_config *config)
{
	struct fanin_ranks others = fanin_ranks_all(config->size);

	fanin_ranks_remove(&others, config->rank);
	fanin_ranks_subtract(&others, set);
	return fanin_ranks_is_empty(&others);
}

bool
fanin_live_told(struct fanin_live *live, const struct fanin_engine *engine, uint32_t block,
		const struct fanin_answer_ranks *ranks)
{
	if (block != live->block)
		return false;
	live->ended = ranks->ended;
	live->gone = ranks->ended;
	fanin_ranks_merge(&live->gone, &ranks->silent);
	if (!fanin_ranks_is_empty(&live->gone)) {
		if (live->gone_ns == 0)
			live->gone_ns = engine->loop.now_ns;
		return false;
	}
	live->gone_ns = 0;
	return has_all_others(&ranks->missing, &engine->config);
}

bool
fanin_live_is_sure(const struct fanin_live *live, const struct fanin_engine *engine)
{
	return live->gone_ns != 0 &&
	       (!fanin_ranks_is_empty(&live->ended) ||
		engine->loop.timers_ns >= live->gone_ns + engine->config.timeout_ns / 5);
}

void
fanin_live_format(const struct fanin_live *live, const struct fanin_engine *engine, char *text,
		  size_t len)
{
	const bool ended = !fanin_ranks_is_empty(&live->ended);
	char absence[FANIN_ABSENCE_LEN];

	fanin_format_absence(&live->gone, engine->config.size, ended ? &live->ended : &live->gone,
			     ended ? FANIN_RANKS_ENDED : FANIN_RANKS_SILENT, absence);
	snprintf(text, len, "%s%s", absence,
		 ended && !fanin_ranks_equal(&live->ended, &live->gone)
			 ? ", and nobody else answers"
			 : "");
}
