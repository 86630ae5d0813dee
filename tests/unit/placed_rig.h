/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One block of a job of the handler "tree" over two levels of switches, for tests of the order in
 * which ranks are combined: leaves sum up their hosts, and a root sums up the leaves and hosts of
 * its own.
 */
#ifndef FANIN_TESTS_UNIT_PLACED_RIG_H
#define FANIN_TESTS_UNIT_PLACED_RIG_H

#include "lab/reference/random.h"
#include "tests/unit/handler_rig.h"

#define PLACED_RANKS_MAX 64

/*
 * Reduces a block, whose contributions arrive in a random order.
 *
 * at: a letter for each rank: that of its leaf, "*" for the root. elements: shape->count of each
 * rank, one rank after the other. result: set if no switch refuses the operation. Returns false if
 * one does; any other failure ends the test.
 */
bool placed_reduce(const char *at, const struct shape *shape, const void *elements,
		   struct random *random, void *result);

#endif
