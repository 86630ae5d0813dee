/* SPDX-License-Identifier: BSD-3-Clause */
/* The net tests beside the unit tests (test_net.c). */
#ifndef FANIN_TESTS_UNIT_NET_CASES_H
#define FANIN_TESTS_UNIT_NET_CASES_H

/* If it is in the environment, the cases that only fanin-check --all runs are tests, too. */
#define NET_CASES_ALL "FANIN_NET_CASES_ALL"

/*
 * Starts the cases of suite_net, some at a time; the suite's tests wait for their ends. Once, after
 * suite_net, in the process that runs the suites. Without it the first of them starts them. At this
 * process's end what is left of them is ended, too.
 */
void net_cases_start(void);

/* Prints the times of the cases that have ended and hold, if any were started, the longest first.
 */
void net_cases_print_times(void);

#endif
