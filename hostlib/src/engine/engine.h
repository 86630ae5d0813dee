/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The window protocol of one communicator: which block may be sent, which result is new, what is
 * sent again and when to give up. It depends on a transport and a clock only, so that tests can run
 * many ranks in one process. One thread at a time.
 *
 * Block b goes to lane b mod W and is sent when that lane has the result of b - W, which is what lets the switch reuse
 * slots without asking (docs/protocol.md). Block numbers run on across requests.
 *
 * Every rank contributes to every block and gets every result, whatever the collective. A rank
 * without data for a block sends an empty contribution, and drops a result that it does not need. The
 * result of a block with an owner has elements for that rank only.
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

struct fanin_engine;
struct fanin_engine_rules;
struct fanin_cc_type;

extern struct fanin_protocol fanin_protocol_window;
extern struct fanin_protocol fanin_protocol_sparse;

struct fanin_engine_config {
	struct fanin_flow flow; /* to the switch; src_port is overwritten */
	struct fanin_keys keys;
	struct fanin_tagger *tagger; /* makes and checks tags, the owner's; NULL: packets have none */
	uint64_t instance;           /* of the switch; tags are bound to it */
	uint64_t timeout_ns; /* longest time without a result while one is waited for, unless ranks are only late */
	uint64_t wait_limit_ns; /* the same while ranks are merely late; 0: none */
	uint32_t job;
	uint32_t epoch;
	uint32_t first_block; /* 0; tests start elsewhere */
	uint16_t rank;
	uint16_t size;
	uint16_t window;                /* W, a power of two */
	uint16_t payload_bytes;         /* most per packet */
	const struct fanin_cc_type *cc; /* congestion control; NULL: always W blocks in flight */
	const void *rules_arg;          /* for the rules' `open` */
	uint8_t tos; /* IPv4's field of what carries elements: 0, or with a codepoint of ECN (RFC 3168) */
	bool wide;   /* sums and averages of f16 and bf16 are accumulated in f32 */
	bool spread; /* the switch has several workers, one of which may be behind the others */
	bool stagger;
	bool keeps; /* results of a window are kept for other ranks, also if no run can be resumed */
	bool recover; /* a run that the switch has lost can be resumed: results of a window are kept, and no block is sent
		       * before all those a window before it are done */
	uint64_t (*now_ns)(void *arg); /* NULL: the monotonic clock */
	void *now_arg;
};

struct fanin_engine_stats {
	uint64_t blocks; /* results, duplicates not counted */
	uint64_t bytes_reduced;
	uint64_t frames_sent;
	uint64_t frames_received;
	uint64_t retransmits;
	uint64_t duplicates; /* results that had already been received */
	uint64_t spurious;   /* blocks that were sent again unnecessarily */
	uint64_t queries;    /* headers that query the state of blocks at the switch */
	uint64_t answers;    /* to these queries, and to repeated contributions */
	uint64_t stale;      /* refusals of late duplicates */
	uint64_t invalid; /* frames that are not valid packets of this run, or fail the tag check */
	uint64_t resumed; /* runs that were lost and resumed */
	/* Of sparse blocks, as struct fanin_report has them. */
	uint64_t sparse_blocks;
	uint64_t sparse_elements;
	uint64_t sparse_values_sent;
	uint64_t sparse_values_received;
	uint64_t shards_sent;
	uint64_t shards_received;
	uint64_t shard_bytes_sent;
	uint64_t sparse_dense_bytes;
};

/*
 * Creates an engine. engine: set on success only. rules: the protocol's. config is copied; transport stays the caller's.
 * Returns FANIN_OK or FANIN_ERR_NO_MEMORY.
 */
int fanin_engine_create(const struct fanin_engine_rules *rules,
			const struct fanin_engine_config *config, struct fanin_transport *transport,
			struct fanin_engine **engine);

/* Frees an engine; requests that are not done are dropped. engine may be NULL. */
void fanin_engine_destroy(struct fanin_engine *engine);

/*
 * Cuts a request that its owner has filled in into blocks, after fanin_request_layout. Returns the
 * number of blocks of its vector; posts nothing. fanin_engine_post does the same.
 */
uint64_t fanin_engine_cut(const struct fanin_engine *engine, struct fanin_request *request,
			  uint64_t count);

/*
 * Checks whether the engine can take this many more blocks. Returns FANIN_OK, FANIN_ERR_INVALID if
 * they do not fit into the block numbers, or the engine's earlier error.
 */
int fanin_engine_accepts(const struct fanin_engine *engine, uint64_t n_blocks);

/*
 * Takes a request that its owner has filled in and gives it its block numbers. Nothing is sent before the next
 * fanin_engine_poll.
 *
 * count: elements of the vector; with REDUCE_SCATTER and ALLGATHER of one rank's part.
 * Returns FANIN_OK, FANIN_ERR_INVALID if it does not fit into the block numbers, or the engine's earlier error.
 */
int fanin_engine_post(struct fanin_engine *engine, struct fanin_request *request, uint64_t count);

/*
 * The same for an allreduce of blocks that are shorter than packets may be, all alike: of values that ranks tell each other.
 *
 * block_bytes: whole elements.
 */
int fanin_engine_post_small(struct fanin_engine *engine, struct fanin_request *request,
			    uint32_t n_blocks, uint32_t block_bytes);

/*
 * Receives, sends and checks the timers once, without blocking.
 *
 * Returns the number of frames received, or a negative status once the engine has failed; every
 * request then has it.
 */
int fanin_engine_poll(struct fanin_engine *engine);

/*
 * Sets another hint why nothing comes back, for the end of a timeout's text; borrowed. NULL or "":
 * none.
 */
void fanin_engine_hint(struct fanin_engine *engine, const char *hint);

/*
 * True once the switch says that it does not have the run, if the run can be resumed. The engine
 * then sends nothing until fanin_engine_resume, and fails at its timeout.
 */
bool fanin_engine_run_lost(const struct fanin_engine *engine);

/*
 * Others than the switch say that the run is lost. A rank with nothing to send would not hear of
 * it: it joins again, and fanin_engine_resume ends that.
 */
void fanin_engine_suspect_run(struct fanin_engine *engine);

/*
 * While the run is lost: stores which ranks a new run waits for. Late ranks are waited for without
 * the timeout, if all missing ranks are merely late.
 */
void fanin_engine_note_rejoin(struct fanin_engine *engine, const struct fanin_rejoin *rejoin);

/* Returns the first block that this rank has no result of. */
uint32_t fanin_engine_progress(const struct fanin_engine *engine);

/*
 * Resumes in another run (docs/protocol.md, "Going on with another tree"), or in the same one if it
 * was not lost after all.
 *
 * instance: of the switch that has the run; a restarted switch has another one, whatever its
 * epochs. first_block: the least of all ranks' progress, which the new run counts as block 0.
 * Returns FANIN_OK, or FANIN_ERR_REFUSED if that is further back than a window: a rank has started
 * anew; the engine has failed.
 */
int fanin_engine_resume(struct fanin_engine *engine, uint32_t epoch, uint64_t instance,
			uint32_t first_block);

/*
 * The run is lost because the path to it is: continues over another transport, which stays the
 * caller's. Nothing is sent until fanin_engine_redirect and fanin_engine_resume have been called.
 */
void fanin_engine_move(struct fanin_engine *engine, struct fanin_transport *transport);

/* Sets where contributions go from now on. flow: as in the configuration; copied. */
void fanin_engine_redirect(struct fanin_engine *engine, const struct fanin_flow *flow);

/*
 * True if another rank may still need this one's results: a run that the switch loses can be
 * resumed, there have been blocks, and none is in progress here.
 */
bool fanin_engine_peers_may_need_results(const struct fanin_engine *engine);

/* Fails all requests with another engine's error, unless the engine has failed already. */
void fanin_engine_abort(struct fanin_engine *engine, int status, const struct fanin_error *error);

/*
 * Fills in what poll() has to wait for; returns how many of the FANIN_TRANSPORT_MAX_FDS entries are
 * used.
 */
unsigned int fanin_engine_poll_fds(struct fanin_engine *engine, struct pollfd *fds);

/*
 * Returns how long from now the engine has nothing to do unless a frame comes in, in nanoseconds.
 */
uint64_t fanin_engine_idle_ns(const struct fanin_engine *engine);

/* Returns why it failed; an empty text if it has not. */
const struct fanin_error *fanin_engine_error(const struct fanin_engine *engine);

/*
 * Fills in the ranks that the oldest unfinished block waits for, as the switch last told; empty if
 * unknown.
 */
void fanin_engine_missing(const struct fanin_engine *engine, struct fanin_ranks *ranks);

/*
 * The same for ranks that are merely late: those that have ended or do not answer are left out;
 * empty once the engine has failed.
 */
void fanin_engine_late(const struct fanin_engine *engine, struct fanin_ranks *ranks);

const struct fanin_engine_stats *fanin_engine_stats(const struct fanin_engine *engine);

#endif
