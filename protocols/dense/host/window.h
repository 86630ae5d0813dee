/* SPDX-License-Identifier: BSD-3-Clause */
/* The window protocol: the block engine's smallest table of rules. */
#ifndef FANIN_PROTOCOLS_DENSE_HOST_WINDOW_H
#define FANIN_PROTOCOLS_DENSE_HOST_WINDOW_H

#include "hostlib/src/engine/engine_internal.h"

/* For protocols that release blocks as this one does. */
extern const struct fanin_engine_rules fanin_window_rules;

/* Members of the tables of such protocols. */
#define FANIN_WINDOW_FUNCTIONS                                                                     \
	.rules = &fanin_window_rules, .on_switch = &fanin_engine_on_switch,                        \
	.report = fanin_engine_report, .post = fanin_engine_post, FANIN_ENGINE_FUNCTIONS

extern struct fanin_protocol fanin_protocol_window;

#endif
