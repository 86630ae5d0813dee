/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads and sets the kernel's state of this process. Any thread. */
#ifndef FANIN_CONTROL_PROCESS_H
#define FANIN_CONTROL_PROCESS_H

#include <stdint.h>

/*
 * Returns the value of a line of /proc/self/status in bytes; 0 if there is no such line. format: of
 * the line, which ends in kB: "VmRSS: %lu kB".
 */
uint64_t process_status_bytes(const char *format);

/*
 * Stops the kernel from writing core dumps of this process, which would contain keys, and other
 * processes of its user from inspecting it. Programs that it executes are not affected.
 */
void process_hide_memory(void);

#endif
