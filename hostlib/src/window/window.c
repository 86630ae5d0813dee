/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The window protocol as a table (protocol/protocol.h): for all dense handlers, whose blocks get a
 * contribution from every rank, and once more for the handlers that
 * also take sparse blocks.
 */
#include "window.h"

#include "hostlib/src/cc/cc.h"
#include "hostlib/src/engine/engine_internal.h"

/* ------------------------------------------------------------------ the rules */

/* Block b is sent once the result of b - w is there, too, where w is the window of the congestion control. */
static void
window_ready(struct fanin_engine *engine, struct fanin_lane *lane)
{
	const uint32_t window = engine->config.window;

	/*
	 * Where runs can be resumed, lanes that run ahead would leave more results to be kept than
	 * one window.
	 */
	if (engine->config.recover && lane->block - engine->oldest >= window)
		return;
	/* A lane is at its block only once the one W before it is done. */
	if (engine->cc.window < window &&
	    !fanin_engine_is_done(engine, lane->block - engine->cc.window))
		return;
	fanin_engine_queue(engine, lane);
}

static void
window_send(struct fanin_engine *engine)
{
	fanin_engine_send_queued(engine);
	/* Most polls send nothing. */
	if (engine->order - engine->probe_order >= FANIN_ENGINE_PROBE_LEAST)
		fanin_engine_probe(engine);
}

const struct fanin_engine_rules fanin_window_rules = {
	.size = sizeof(struct fanin_engine),
	.has_owners = true,
	.samples_asked = true,
	.ready = window_ready,
	.send = window_send,
	.scan = fanin_engine_scan,
};

/* ------------------------------------------------------------------ the protocol */

void
fanin_window_config(const struct fanin_protocol_config *config,
		    struct fanin_engine_config *engine_config)
{
	*engine_config = (struct fanin_engine_config){
		.flow = config->flow,
		.keys = config->keys,
		.tagger = config->tagger,
		.instance = config->instance,
		.timeout_ns = config->timeout_ns,
		.wait_limit_ns = config->wait_limit_ns,
		.job = config->job,
		.epoch = config->epoch,
		.rank = config->rank,
		.size = config->size,
		.window = config->window,
		.payload_bytes = config->payload_bytes,
		/* Over shared memory the only queue is the switch's own. */
		.cc = config->transport->ops->shares_memory ? &fanin_cc_fixed : &fanin_cc_delay,
		.wide = config->wide,
		.spread = config->spread,
		.stagger = config->stagger,
		.recover = config->recover,
		.now_ns = config->now_ns,
		.now_arg = config->now_arg,
	};
}

int
fanin_window_create(const struct fanin_engine_rules *rules, const struct fanin_engine_config *config,
		    struct fanin_transport *transport, void **engine, struct fanin_error *error)
{
	struct fanin_engine *created;

	if (fanin_engine_create(rules, config, transport, &created) != FANIN_OK)
		return fanin_error_set(error, FANIN_ERR_NO_MEMORY,
				       "out of memory for %u blocks in flight", config->window);
	*engine = created;
	return FANIN_OK;
}

static int
window_open(const struct fanin_protocol_config *config, void **engine, struct fanin_error *error)
{
	struct fanin_engine_config engine_config;

	fanin_window_config(config, &engine_config);
	return fanin_window_create(&fanin_window_rules, &engine_config, config->transport, engine,
				   error);
}

void
fanin_window_close(void *engine)
{
	fanin_engine_destroy(engine);
}

int
fanin_window_post(void *engine, struct fanin_request *request, uint64_t count)
{
	return fanin_engine_post(engine, request, count);
}

int
fanin_window_poll(void *engine)
{
	return fanin_engine_poll(engine);
}

uint64_t
fanin_window_idle_ns(const void *engine)
{
	return fanin_engine_idle_ns(engine);
}

unsigned int
fanin_window_poll_fds(void *engine, struct pollfd *fds)
{
	return fanin_engine_poll_fds(engine, fds);
}

const struct fanin_error *
fanin_window_error(const void *engine)
{
	return fanin_engine_error(engine);
}

void
fanin_window_missing(const void *engine, struct fanin_ranks *ranks)
{
	fanin_engine_missing(engine, ranks);
}

void
fanin_window_report(const void *engine, struct fanin_report *report)
{
	const struct fanin_engine_stats *stats = fanin_engine_stats(engine);
	struct fanin_ranks late;

	fanin_engine_late(engine, &late);
	report->blocks = stats->blocks;
	report->bytes_reduced = stats->bytes_reduced;
	report->frames_sent = stats->frames_sent;
	report->frames_received = stats->frames_received;
	report->retransmits = stats->retransmits;
	report->duplicates = stats->duplicates;
	report->invalid = stats->invalid;
	report->spurious = stats->spurious;
	report->resumed = stats->resumed;
	report->queries = stats->queries;
	report->sparse_blocks = stats->sparse_blocks;
	report->sparse_elements = stats->sparse_elements;
	report->sparse_values_sent = stats->sparse_values_sent;
	report->sparse_values_received = stats->sparse_values_received;
	report->shards_sent = stats->shards_sent;
	report->shards_received = stats->shards_received;
	report->shard_bytes_sent = stats->shard_bytes_sent;
	report->sparse_dense_bytes = stats->sparse_dense_bytes;
	report->late = late.words[0];
	report->n_late = fanin_ranks_count(&late);
}

static uint64_t
window_cut(const void *engine, struct fanin_request *request, uint64_t count)
{
	return fanin_engine_cut(engine, request, count);
}

static int
window_accepts(const void *engine, uint64_t n_blocks)
{
	return fanin_engine_accepts(engine, n_blocks);
}

static void
window_abort(void *engine, int status, const struct fanin_error *error)
{
	fanin_engine_abort(engine, status, error);
}

static bool
window_run_lost(const void *engine)
{
	return fanin_engine_run_lost(engine);
}

static void
window_suspect_run(void *engine)
{
	fanin_engine_suspect_run(engine);
}

static void
window_note_rejoin(void *engine, const struct fanin_rejoin *rejoin)
{
	fanin_engine_note_rejoin(engine, rejoin);
}

static uint32_t
window_progress(const void *engine)
{
	return fanin_engine_progress(engine);
}

static int
window_resume(void *engine, uint32_t epoch, uint64_t instance, uint32_t first_block)
{
	return fanin_engine_resume(engine, epoch, instance, first_block);
}

static void
window_move(void *engine, struct fanin_transport *transport)
{
	fanin_engine_move(engine, transport);
}

static void
window_redirect(void *engine, const struct fanin_flow *flow)
{
	fanin_engine_redirect(engine, flow);
}

static void
window_hint(void *engine, const char *hint)
{
	fanin_engine_hint(engine, hint);
}

static bool
window_peers_may_need_results(const void *engine)
{
	return fanin_engine_peers_may_need_results(engine);
}

const struct fanin_switch_ops fanin_window_on_switch = {
	.cut = window_cut,
	.accepts = window_accepts,
	.abort = window_abort,
	.run_lost = window_run_lost,
	.suspect_run = window_suspect_run,
	.note_rejoin = window_note_rejoin,
	.progress = window_progress,
	.resume = window_resume,
	.move = window_move,
	.redirect = window_redirect,
	.hint = window_hint,
	.peers_may_need_results = window_peers_may_need_results,
};

/* What both tables have: blocks of both kinds are those of one engine. */
#define WINDOW_FUNCTIONS                                                                           \
	.open = window_open, .report = fanin_window_report, FANIN_WINDOW_FUNCTIONS,                \
	FANIN_WINDOW_SENDING

static const char *const handlers[] = { "single", "multi", "tree", NULL };

struct fanin_protocol fanin_protocol_window = {
	.name = "window",
	.handlers = handlers,
	/* A dense handler needs no fields of its own here. */
	.is_usual = true,
	.has_custom = true,
	.has_tags = true,
	.collectives = FANIN_WINDOW_COLLECTIVES,
	WINDOW_FUNCTIONS,
};

FANIN_PROTOCOL_REGISTER(fanin_protocol_window)

static const char *const sparse_handlers[] = { "sparse-array", "sparse-hash", "sparse", NULL };

struct fanin_protocol fanin_protocol_sparse = {
	.name = "sparse window",
	.handlers = sparse_handlers,
	.has_custom = true,
	.has_tags = true,
	.collectives = FANIN_WINDOW_COLLECTIVES | 1 << FANIN_COLLECTIVE_ALLREDUCE_SPARSE,
	WINDOW_FUNCTIONS,
};

FANIN_PROTOCOL_REGISTER(fanin_protocol_sparse)
