/* SPDX-License-Identifier: BSD-3-Clause */
/* The net tests that run beside the unit tests (test_net.c). */
#ifndef FANIN_TESTS_UNIT_NET_CASES_H
#define FANIN_TESTS_UNIT_NET_CASES_H

/*
 * If this variable is set, the suite's tests are the cases that tests/net/cases.py --list prints
 * with this argument, instead of those without one.
 */
#define NET_CASES_LISTED "FANIN_NET_CASES_LISTED"

/*
 * Starts the cases of suite_net, some at a time; the suite's tests wait for their ends. To be
 * called once, after suite_net, in the process that runs the suites; otherwise the first test
 * starts the cases. The end of this process ends cases that still run.
 */
void net_cases_start(void);

/* Prints the times of the cases that have ended and hold, if any were started, the longest first.
 */
void net_cases_print_times(void);

#endif
