/* SPDX-License-Identifier: BSD-3-Clause */
/* For suites that go over handlers of several protocols: builds may leave protocols out. */
#ifndef FANIN_TESTS_UNIT_HANDLERS_HERE_H
#define FANIN_TESTS_UNIT_HANDLERS_HERE_H

/*
 * Keeps those of n handlers that this build has, in their order at the beginning, and returns their
 * number. A build with all protocols has them all: there a handler that is not found is kept, and
 * fails the tests that start it.
 */
int handlers_here(const char **handlers, int n);

#endif
