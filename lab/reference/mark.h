/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Marks of programs that measure: points in time at which the program's parent takes the times of
 * processes.
 */
#ifndef FANIN_LAB_REFERENCE_MARK_H
#define FANIN_LAB_REFERENCE_MARK_H

/* Connects to a UNIX socket and waits until it hangs up. Returns 0, or an errno. */
int mark_moment(const char *path);

#endif
