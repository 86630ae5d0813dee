/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The window protocol's functions, for the tables of protocols whose engine is the window protocol's with other rules (see struct
 * fanin_engine_rules).
 */
#ifndef FANIN_HOSTLIB_WINDOW_H
#define FANIN_HOSTLIB_WINDOW_H

#include "hostlib/src/engine/engine.h"
#include "hostlib/src/protocol/protocol.h"

#define FANIN_WINDOW_COLLECTIVES                                                                   \
	(1 << FANIN_COLLECTIVE_ALLREDUCE | 1 << FANIN_COLLECTIVE_REDUCE |                          \
	 1 << FANIN_COLLECTIVE_REDUCE_SCATTER | 1 << FANIN_COLLECTIVE_BROADCAST |                  \
	 1 << FANIN_COLLECTIVE_ALLGATHER)

/* All of a protocol's functions but `open` and `report`, and those that protocols with other ways to send may replace: `post` and `idle_ns`. */
#define FANIN_WINDOW_FUNCTIONS                                                                     \
	.on_switch = &fanin_window_on_switch, .close = fanin_window_close,                         \
	.poll = fanin_window_poll, .poll_fds = fanin_window_poll_fds, .error = fanin_window_error, \
	.missing = fanin_window_missing
#define FANIN_WINDOW_SENDING .post = fanin_window_post, .idle_ns = fanin_window_idle_ns

extern const struct fanin_engine_rules fanin_window_rules;
extern const struct fanin_switch_ops fanin_window_on_switch;

/* Fills in an engine's configuration as the window protocol's `open` does. */
void fanin_window_config(const struct fanin_protocol_config *config,
			 struct fanin_engine_config *engine_config);

/* Creates the engine of a protocol's `open`, which returns what this does. */
int fanin_window_create(const struct fanin_engine_rules *rules,
			const struct fanin_engine_config *config, struct fanin_transport *transport,
			void **engine, struct fanin_error *error);

/* As struct fanin_protocol has them. */
void fanin_window_close(void *engine);
int fanin_window_post(void *engine, struct fanin_request *request, uint64_t count);
int fanin_window_poll(void *engine);
uint64_t fanin_window_idle_ns(const void *engine);
unsigned int fanin_window_poll_fds(void *engine, struct pollfd *fds);
const struct fanin_error *fanin_window_error(const void *engine);
void fanin_window_missing(const void *engine, struct fanin_ranks *ranks);
void fanin_window_report(const void *engine, struct fanin_report *report);

#endif
