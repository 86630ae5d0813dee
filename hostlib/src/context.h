/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The library's objects behind the public handles, and what context.c, comm.c and request.c need of each other.
 */
#ifndef FANIN_HOSTLIB_CONTEXT_H
#define FANIN_HOSTLIB_CONTEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine.h"
#include "error.h"
#include "join.h"
#include "route.h"
#include "transport.h"

struct fanin_ctx {
	struct fanin_log log;
	char transport[16]; /* as asked for */
	fanin_interrupt_fn interrupt;
	void *interrupt_arg;
	uint64_t interrupt_next_ns;
	struct fanin_error error;
	struct fanin_comm *comms;
};

struct fanin_comm {
	struct fanin_ctx *ctx;
	struct fanin_comm *next;
	struct fanin_route route;
	uint8_t switch_mac[6]; /* with memif; else the kernel knows it */
	struct fanin_member member;
	struct fanin_transport *transport;
	struct fanin_engine *engine;
	struct fanin_request *requests; /* not freed yet, linked by sibling */
	uint16_t window;                /* lanes of the engine */
	uint16_t payload_bytes;
	bool rejoining; /* the run was lost, and the member joins again */
};

/*
 * Copies an options struct of any age: what the caller's lacks is zero, and what this library doesn't know must be.
 *
 * copy: copy_len zeroed bytes. options: starts with its size_t sz. Returns false if it can't be understood.
 */
bool fanin_options_copy(void *copy, size_t copy_len, const void *options);

/*
 * comm_memif.c: true if the options ask for shared memory with the switch.
 */
bool fanin_comm_wants_memif(const struct fanin_ctx *ctx, const struct fanin_join_opts *options);

/*
 * Connects to the switch by memif: fills in route and switch_mac and opens the transport, which is a channel for control
 * packets, too.
 *
 * deadline_ns: for the switch's answers. channel: set on success only. Returns FANIN_OK or a negative status.
 */
int fanin_comm_memif(struct fanin_comm *comm, const struct fanin_join_opts *options,
		     uint32_t switch_ip_be, uint64_t deadline_ns, struct fanin_channel *channel,
		     struct fanin_error *error);

/* comm_recover.c: polls the engine, and takes up a lost run again. Returns the frames received or a negative status. */
int fanin_comm_poll(struct fanin_comm *comm);

/*
 * Polls every communicator once.
 *
 * status: if not NULL, receives the last failure, or FANIN_OK. Returns the frames received.
 */
unsigned int fanin_ctx_poll(struct fanin_ctx *ctx, int *status);

/* Polls until the request is no longer in progress. Returns its status, or FANIN_ERR_INTERRUPTED. */
int fanin_ctx_wait(struct fanin_ctx *ctx, const struct fanin_request *request);

#endif
