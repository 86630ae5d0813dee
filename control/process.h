/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads and sets the kernel's state of this process. Any thread. */
#ifndef FANIN_CONTROL_PROCESS_H
#define FANIN_CONTROL_PROCESS_H

#include <stdint.h>

/*
 * Returns a line of /proc/self/status in bytes; 0 if there is none. format: of the line, which ends
 * in kB: "VmRSS: %lu kB".
 */
uint64_t process_status_bytes(const char *format);

/*
 * From now on the kernel writes no core dump of this process, which would contain keys, and lets no
 * other process of its user inspect it. Programs that it executes are not affected.
 */
void process_hide_memory(void);

#endif
