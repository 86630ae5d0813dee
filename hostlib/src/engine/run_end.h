/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a run ends for all, where ranks tell each other and no switch does: why, whom it is about,
 * who is told, and who answers meanwhile. A rank that has failed tells all others, and answers
 * questions with the reason for one timeout; otherwise they would count it as gone. A run that ends
 * well ends with a block without elements, whose result ranks acknowledge to the rank that makes it
 * before they leave. The engine's rules `answer`, `end` and `say_bye` say how. One thread at a
 * time.
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
	uint64_t whom;     /* ranks */
	uint64_t until_ns; /* questions are answered until then */
	uint64_t byes;     /* ranks that have the result of the block: */
	uint32_t bye_block;
};

/* The run has ended because of these ranks: from now on questions are answered with that. */
void fanin_run_end_note(struct fanin_engine *engine, enum fanin_run_why why, uint64_t whom);

/*
 * Whom a mismatch is about: the smaller one of two groups that posted differently, or both on a
 * tie.
 */
uint64_t fanin_run_end_blame(uint64_t some, uint64_t others);

/*
 * The run has ended at this block because of these ranks: notes it, and fails the engine. A
 * mismatch is this rank's own finding or another one's; that ranks are gone is what another one
 * says.
 */
void fanin_run_end_fail(struct fanin_engine *engine, uint32_t block, enum fanin_run_why why,
			uint64_t whom);

/*
 * Instead of fanin_loop_poll once the engine has failed: tells the others if they have not been
 * told, and answers what is received as long as questions are answered. Returns the loop's status.
 */
int fanin_run_end_poll(struct fanin_engine *engine);

/* As `idle_ns` of a protocol, for an engine that has failed; UINT64_MAX: it answers no more. */
uint64_t fanin_run_end_idle_ns(const struct fanin_engine *engine);

/* A rank has the result of this block, the run's last one as far as it knows. */
void fanin_run_end_note_bye(struct fanin_run_end *end, uint32_t block, unsigned int rank);

/* True if all these ranks have acknowledged the block. */
bool fanin_run_end_has_byes(const struct fanin_run_end *end, uint32_t block, uint64_t others);

/* Polls the endpoint until `say_bye` returns true or the engine fails, for a second at most. */
void fanin_run_end_goodbye(struct fanin_engine *engine);

#endif
