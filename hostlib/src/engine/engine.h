/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The block engine of one rank of a job: decides which block may be sent, which result is new, what
 * is sent again and when to give up. It depends on a transport and a clock only, so that tests can
 * run many ranks in one process. One thread at a time.
 *
 * Block b goes to lane b mod W and is sent when that lane has the result of b - W, which lets the
 * switch reuse slots without asking (docs/protocol.md). Block numbers run on across requests.
 *
 * Every rank contributes to every block and gets every result, whatever the collective. A rank
 * without data for a block sends an empty contribution, and drops a result that it does not need.
 * The result of a block with an owner has elements for that rank only.
 *
 * Blocks of sparse requests take several packets, shards, each way.
 */
#ifndef FANIN_HOSTLIB_ENGINE_H
#define FANIN_HOSTLIB_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hostlib/src/base/error.h"
#include "hostlib/src/protocol/protocol.h"
#include "hostlib/src/request/request.h"
#include "hostlib/src/transport/transport.h"
#include "wire/keys.h"
#include "wire/tag.h"
#include "wire/wire.h"

/*
 * Bits of the collectives that the engine carries out. Endpoints that are given to functions of
 * this file belong to a protocol with rules. The functions of struct fanin_protocol and struct
 * fanin_switch_ops are documented there.
 */
#define FANIN_ENGINE_COLLECTIVES                                                                   \
	(1 << FANIN_COLLECTIVE_ALLREDUCE | 1 << FANIN_COLLECTIVE_REDUCE |                          \
	 1 << FANIN_COLLECTIVE_REDUCE_SCATTER | 1 << FANIN_COLLECTIVE_BROADCAST |                  \
	 1 << FANIN_COLLECTIVE_ALLGATHER)

/* The functions of a protocol on the engine. Some have a `post` and a `report` of their own. */
#define FANIN_ENGINE_FUNCTIONS                                                                     \
	.open = fanin_engine_open, .close = fanin_engine_leave, .poll = fanin_engine_poll,         \
	.idle_ns = fanin_engine_idle_ns, .poll_fds = fanin_engine_poll_fds,                        \
	.error = fanin_engine_error, .missing = fanin_engine_missing

extern const struct fanin_switch_ops fanin_engine_on_switch;

struct fanin_engine_stats {
	uint64_t blocks; /* results, duplicates not counted */
	uint64_t bytes_reduced;
	uint64_t frames_sent;
	uint64_t frames_received;
	uint64_t retransmits;
	uint64_t duplicates; /* results that had already been received */
	uint64_t spurious;   /* blocks that were sent again unnecessarily */
	uint64_t queries;    /* headers that query the state of blocks at the switch */
	uint64_t answers;    /* to these queries and to repeated contributions */
	uint64_t stale;      /* refusals of late duplicates */
	uint64_t invalid; /* frames that are not valid packets of this run, or fail the tag check */
	uint64_t resumed; /* runs that were lost and resumed */
	/* Of sparse blocks, as in struct fanin_report. */
	uint64_t sparse_blocks;
	uint64_t sparse_elements;
	uint64_t sparse_values_sent;
	uint64_t sparse_values_received;
	uint64_t shards_sent;
	uint64_t shards_received;
	uint64_t shard_bytes_sent;
	uint64_t sparse_dense_bytes;
};

/* As in struct fanin_protocol. */
int fanin_engine_open(const struct fanin_protocol *protocol,
		      const struct fanin_protocol_config *config, struct fanin_endpoint **endpoint,
		      struct fanin_error *error);
void fanin_engine_leave(struct fanin_endpoint *endpoint);
void fanin_engine_close(struct fanin_endpoint *endpoint); /* closes the endpoint without a goodbye
							   */
int fanin_engine_post(struct fanin_endpoint *endpoint, struct fanin_request *request,
		      uint64_t count);
int fanin_engine_poll(struct fanin_endpoint *endpoint);
uint64_t fanin_engine_idle_ns(struct fanin_endpoint *endpoint);
unsigned int fanin_engine_poll_fds(struct fanin_endpoint *endpoint, struct pollfd *fds);
const struct fanin_error *fanin_engine_error(struct fanin_endpoint *endpoint);
void fanin_engine_missing(struct fanin_endpoint *endpoint, struct fanin_ranks *ranks);
void fanin_engine_report(struct fanin_endpoint *endpoint, struct fanin_report *report);

/* As in struct fanin_switch_ops. */
uint64_t fanin_engine_cut(struct fanin_endpoint *endpoint, struct fanin_request *request,
			  uint64_t count);
int fanin_engine_accepts(struct fanin_endpoint *endpoint, uint64_t n_blocks);
void fanin_engine_abort(struct fanin_endpoint *endpoint, int status,
			const struct fanin_error *error);
bool fanin_engine_run_lost(struct fanin_endpoint *endpoint);
void fanin_engine_suspect_run(struct fanin_endpoint *endpoint);
void fanin_engine_note_rejoin(struct fanin_endpoint *endpoint, const struct fanin_rejoin *rejoin);
uint32_t fanin_engine_progress(struct fanin_endpoint *endpoint);
int fanin_engine_resume(struct fanin_endpoint *endpoint, uint32_t epoch, uint64_t instance,
			uint32_t first_block);
void fanin_engine_move(struct fanin_endpoint *endpoint, struct fanin_transport *transport);
void fanin_engine_redirect(struct fanin_endpoint *endpoint, const struct fanin_flow *flow);
void fanin_engine_hint(struct fanin_endpoint *endpoint, const char *hint);
bool fanin_engine_peers_may_need_results(struct fanin_endpoint *endpoint);

/*
 * Fills in the ranks that the oldest unfinished block waits for and that are merely late: ranks
 * that have ended or do not answer are left out. Empty once the engine has failed.
 */
void fanin_engine_late(struct fanin_endpoint *endpoint, struct fanin_ranks *ranks);

const struct fanin_engine_stats *fanin_engine_stats(struct fanin_endpoint *endpoint);

#endif
