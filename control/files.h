/* SPDX-License-Identifier: BSD-3-Clause */
/* How many files and connections a process may have open. Any thread. */
#ifndef FANIN_CONTROL_FILES_H
#define FANIN_CONTROL_FILES_H

/*
 * Raises the limit of open files to `wanted` if it is lower and the kernel allows it.
 * Returns how many may be open: fewer than wanted if the hard limit is lower.
 */
unsigned int files_allow(unsigned int wanted);

#endif
