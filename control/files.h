/* SPDX-License-Identifier: BSD-3-Clause */
/* Limit of open files and connections of a process. Any thread. */
#ifndef FANIN_CONTROL_FILES_H
#define FANIN_CONTROL_FILES_H

/*
 * Raises the limit of open files to `wanted` if it is lower and the kernel allows it.
 * Returns the limit: less than wanted if the hard limit is lower.
 */
unsigned int files_allow(unsigned int wanted);

#endif
