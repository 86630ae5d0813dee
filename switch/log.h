/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The switch's log: control/log.h, and the lines of the libraries in it. Never called by workers.
 */
#ifndef FANIN_SWITCH_LOG_H
#define FANIN_SWITCH_LOG_H

#include "control/log.h"

/* Routes the messages of libbpf and libxdp to the log as debug lines. */
void log_libraries(void);

#endif
