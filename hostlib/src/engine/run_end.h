/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The end of a run for all ranks, where ranks tell each other and no switch does: the reason, the
 * ranks to blame, the telling, and the answering afterwards. A rank that has failed tells all
 * others, and answers questions with the reason for one timeout; otherwise they would count it as
 * gone. A run that ends well ends with a block without elements; ranks acknowledge its result to
 * the rank that makes it before they leave. The engine's rules `answer`, `end` and `say_bye` send
 * the packets. One thread at a time.
 */
#ifndef FANIN_HOSTLIB_RUN_END_H
#define FANIN_HOSTLIB_RUN_END_H

#include <stdbool.h>
#include <stdint.h>

struct fanin_engine;

enum fanin_run_why {
	FANIN_RUN_GOES_ON,
	FANIN_RUN_MISMATCH, /* these ranks have posted another collective */
	FANIN_RUN_GONE,     /* these ranks do not answer, or have ended */
};

/* Zeroed: the run goes on. */
struct fanin_run_end {
	enum fanin_run_why why;
	uint64_t whom;     /* the ranks to blame */
	uint64_t until_ns; /* when answering ends */
	uint64_t byes;     /* ranks that have acknowledged the result of the block: */
	uint32_t bye_block;
};

/*
 * Records that the run has ended because of these ranks: from now on questions are answered with
 * this reason.
 */
void fanin_run_end_note(struct fanin_engine *engine, enum fanin_run_why why, uint64_t whom);

/*
 * Returns the ranks to blame for a mismatch: the smaller one of two groups that posted differently,
 * or both on a tie.
 */
uint64_t fanin_run_end_blame(uint64_t some, uint64_t others);

/*
 * Ends the run at this block because of these ranks: records the reason, and fails the engine. A
 * mismatch may be found by this rank or another one; only another rank says that ranks are gone.
 */
void fanin_run_end_fail(struct fanin_engine *engine, uint32_t block, enum fanin_run_why why,
			uint64_t whom);

/*
 * Replaces fanin_loop_poll once the engine has failed: tells the others if they have not been told,
 * and answers received questions until that time is over. Returns the loop's status.
 */
int fanin_run_end_poll(struct fanin_engine *engine);

/*
 * Implements a protocol's `idle_ns` for an engine that has failed; UINT64_MAX: it answers no more.
 */
uint64_t fanin_run_end_idle_ns(const struct fanin_engine *engine);

/*
 * Records that a rank has the result of this block, the run's last one as far as that rank knows.
 */
void fanin_run_end_note_bye(struct fanin_run_end *end, uint32_t block, unsigned int rank);

/* True if all these ranks have acknowledged the block. */
bool fanin_run_end_has_byes(const struct fanin_run_end *end, uint32_t block, uint64_t others);

/* Polls the endpoint until `say_bye` returns true or the engine fails, for a second at most. */
void fanin_run_end_goodbye(struct fanin_engine *engine);

#endif
