/* SPDX-License-Identifier: BSD-3-Clause */
/* The window protocol: the block engine's smallest table of rules. */
#ifndef FANIN_HOSTLIB_WINDOW_H
#define FANIN_HOSTLIB_WINDOW_H

#include "hostlib/src/protocol/protocol.h"

extern struct fanin_protocol fanin_protocol_window;
extern struct fanin_protocol fanin_protocol_sparse;

#endif
