/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Points in time of programs that measure, at which whoever started them takes the times of
 * processes.
 */
#ifndef FANIN_LAB_REFERENCE_MARK_H
#define FANIN_LAB_REFERENCE_MARK_H

/* Connects to a UNIX socket and waits until it hangs up. Returns 0, or an errno. */
int mark_moment(const char *path);

#endif
