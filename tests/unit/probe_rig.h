/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A switch in the test's own process that probes children of one job, by a clock that the test
 * moves. The test opens the switch and starts the job's run.
 */
#ifndef FANIN_TESTS_UNIT_PROBE_RIG_H
#define FANIN_TESTS_UNIT_PROBE_RIG_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/unit/answer_words.h"
#include "tests/unit/ring_switch.h"

struct probe_rig {
	struct ring_switch sw;
	struct job *job;
	uint32_t epoch; /* of its run */
	uint64_t clock_ns;
	uint8_t buffer[4096] __attribute__((aligned(8))); /* the frame that was taken last */
};

extern struct probe_rig probe_rig;

/* Begins after the start of the run: takes all frames sent so far, and sets the clock. */
void probe_rig_begin(void);

/* Takes all frames that the ports have sent. */
void probe_rig_take_all(void);

/* Moves the clock by half a second. */
void probe_rig_tick(void);

/*
 * Sends a query about a block as host h at the time of the clock; the answer is left to be taken.
 */
void probe_rig_ask(unsigned int h, uint32_t block, bool overdue);

/* Returns the answer to an overdue query of host 0 about block 0. */
struct answer_words probe_rig_answer(void);

/*
 * Aborts the test unless this answer says that these ranks, given as bitmaps, have ended or are
 * silent.
 */
void probe_rig_expect_finding(uint64_t ended, uint64_t silent);

#endif
