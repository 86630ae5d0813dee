/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a run ends for all, where ranks tell each other and no switch does: why, whom it is about, who
 * is told, and who answers meanwhile. A rank that has failed tells all others, and answers questions
 * with the reason for one timeout; otherwise they would count it as gone. A run that ends well ends
 * with a block without elements, whose result ranks acknowledge to the rank that makes it before they
 * leave. One thread at a time.
 */
#ifndef FANIN_HOSTLIB_RUN_END_H
#define FANIN_HOSTLIB_RUN_END_H

#include <stdbool.h>
#include <stdint.h>

#include "hostlib/src/base/error.h"
#include "hostlib/src/loop/loop.h"
#include "hostlib/src/protocol/protocol.h"

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

/* Answers a frame with the reason, if it is a question of another rank. user: the protocol's. */
typedef void (*fanin_run_answer_fn)(void *user, const struct fanin_frame *frame);

/* The run has ended, and questions are answered from now_ns on for timeout_ns. */
void fanin_run_end_note(struct fanin_run_end *end, enum fanin_run_why why, uint64_t whom,
			uint64_t now_ns, uint64_t timeout_ns);

/* Whom a mismatch is about: the smaller one of two groups that posted differently, or both on a tie. */
uint64_t fanin_run_end_blame(uint64_t some, uint64_t others);

/* Writes that these ranks posted another collective than the others; error->missing has them. */
void fanin_run_end_mismatch(struct fanin_error *error, uint32_t block, uint64_t whom);

/*
 * Instead of fanin_loop_poll once the loop has failed: gives what is received to `answer` as long as
 * questions are answered. Returns the loop's status.
 */
int fanin_run_end_linger(struct fanin_run_end *end, struct fanin_loop *loop,
			 fanin_run_answer_fn answer, void *user);

/* True while a loop that has failed still answers. */
bool fanin_run_end_lingers(const struct fanin_run_end *end, uint64_t now_ns);

/* Returns for how long it does, as `idle_ns` of a protocol; UINT64_MAX: it does not. */
uint64_t fanin_run_end_idle_ns(const struct fanin_run_end *end, uint64_t now_ns);

/* A rank has the result of this block, the run's last one as far as it knows. */
void fanin_run_end_note_bye(struct fanin_run_end *end, uint32_t block, unsigned int rank);

/* True if all these ranks have acknowledged the block. */
bool fanin_run_end_has_byes(const struct fanin_run_end *end, uint32_t block, uint64_t others);

/*
 * Polls an endpoint of the protocol until say_bye returns true or the endpoint fails, for a second
 * at most. say_bye: tells the rank that makes the last result, or as that rank waits for all others.
 */
void fanin_run_end_goodbye(struct fanin_endpoint *endpoint,
			   bool (*say_bye)(struct fanin_endpoint *endpoint));

#endif
