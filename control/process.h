/* SPDX-License-Identifier: BSD-3-Clause */
/* Figures of this process, from the kernel. Any thread. */
#ifndef FANIN_CONTROL_PROCESS_H
#define FANIN_CONTROL_PROCESS_H

#include <stdint.h>

/* Returns a line of /proc/self/status in bytes; 0 if there is none. format: of the line, which ends in kB: "VmRSS: %lu kB". */
uint64_t process_status_bytes(const char *format);

#endif
