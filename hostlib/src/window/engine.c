/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine's life, its requests and the poll loop. How blocks are staggered is Flare's section 5: rank r of P starts r/P
 * of the window further on, so that the packets of one block reach the switch spread out; afterwards every lane clocks
 * itself by its results (engine_lanes.c).
 */
#include "engine_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "hostlib/src/base/absence.h"

/* How often a lost run is looked after. */
#define LOST_RUN_IDLE_NS (2 * 1000000ull)

/* Serial arithmetic on block numbers needs them all to lie within half of the number space. */
#define MAX_BLOCKS_OUTSTANDING (UINT32_MAX / 2)

static void
headers_prepare(struct fanin_engine *engine, uint32_t payload_len)
{
	fanin_wire_encode_l4(&engine->headers, &engine->config.flow, payload_len);
	engine->header_payload_len = payload_len;
}

int
fanin_engine_create(const struct fanin_engine_config *config, struct fanin_transport *transport,
		    struct fanin_engine **engine)
{
	struct fanin_engine *created;

	assert(config->window != 0 && (config->window & (config->window - 1)) == 0);
	created = calloc(1, sizeof(*created));
	if (created == NULL)
		return FANIN_ERR_NO_MEMORY;
	created->lanes = calloc(config->window, sizeof(*created->lanes));
	created->queue = calloc(config->window, sizeof(*created->queue));
	created->config = *config;
	if (created->lanes == NULL || created->queue == NULL ||
	    fanin_engine_keep_init(created) != FANIN_OK ||
	    fanin_engine_tag_init(created) != FANIN_OK) {
		fanin_engine_destroy(created);
		return FANIN_ERR_NO_MEMORY;
	}
	created->transport = transport;
	fanin_request_list_init(&created->requests);
	created->oldest = config->first_block;
	created->end = config->first_block;
	created->newest = config->first_block - 1;
	for (uint32_t i = 0; i < config->window; i++)
		fanin_engine_lane(created, config->first_block + i)->block = config->first_block + i;

	fanin_rtt_init(&created->rtt);
	fanin_cc_init(&created->cc, config->cc != NULL ? config->cc : &fanin_cc_fixed,
		      config->window);
	created->reordering = FANIN_ENGINE_REORDERING_MIN;
	created->last_poll_ns = config->now_ns(config->now_arg);

	headers_prepare(created, config->payload_bytes);
	fanin_wire_encode_header(&created->headers.fanin, FANIN_TYPE_CONTRIBUTION, config->job,
				 config->epoch, config->keys.up);
	created->headers.fanin.rank = config->rank;
	created->headers.fanin.contributions = 1;
	*engine = created;
	return FANIN_OK;
}

void
fanin_engine_destroy(struct fanin_engine *engine)
{
	if (engine == NULL)
		return;
	free(engine->lanes);
	free(engine->queue);
	free(engine->kept);
	free(engine->kept_payloads);
	free(engine->tag_memory);
	free(engine);
}

uint64_t
fanin_engine_cut(const struct fanin_engine *engine, struct fanin_request *request, uint64_t count)
{
	fanin_request_layout(request, engine->config.rank, engine->config.size, count);
	return fanin_request_cut(request, engine->config.payload_bytes, engine->config.wide);
}

int
fanin_engine_accepts(const struct fanin_engine *engine, uint64_t n_blocks)
{
	if (engine->status != FANIN_OK)
		return engine->status;
	return n_blocks > MAX_BLOCKS_OUTSTANDING - (engine->end - engine->oldest) ? FANIN_ERR_INVALID
										  : FANIN_OK;
}

int
fanin_engine_post(struct fanin_engine *engine, struct fanin_request *request, uint64_t count)
{
	const struct fanin_engine_config *config = &engine->config;
	uint64_t n_blocks = fanin_engine_cut(engine, request, count);
	int status = fanin_engine_accepts(engine, n_blocks);

	if (status != FANIN_OK)
		return status;
	if (request->stride == 0)
		request->stride = 1;
	assert(request->start < n_blocks);
	n_blocks = (n_blocks - request->start - 1) / request->stride + 1;

	if (engine->requests.first == NULL && engine->n_known == 0) {
		engine->progress_ns = config->now_ns(config->now_arg);
		engine->heard_ns = engine->progress_ns;
		engine->excused_ns = 0;
		engine->stale_reason = FANIN_REASON_NONE;
		engine->next_timer_ns = 0;
	}
	request->n_blocks = (uint32_t)n_blocks;
	request->first_block = engine->end;
	fanin_request_list_append(&engine->requests, request);
	engine->end += request->n_blocks;
	fanin_engine_start(engine, request);
	return FANIN_OK;
}

/* What a lane's contribution brings: fills in the header and returns the payload, of *payload_len bytes. */
static const void *
contribution_make(const struct fanin_lane *lane, struct fanin_hdr *hdr, uint32_t *payload_len)
{
	const struct fanin_request *request = lane->request;
	struct fanin_extent extent = fanin_request_extent(request, lane->block);
	bool brings = fanin_request_brings(request, &extent);

	hdr->type = FANIN_TYPE_CONTRIBUTION;
	hdr->contributions = 1;
	hdr->flags = brings || extent.len == 0 ? 0 : FANIN_FLAG_EMPTY;
	hdr->dtype = request->dtype;
	hdr->op = extent.op;
	hdr->count = (uint16_t)(extent.len / request->element_bytes);
	*payload_len = brings ? extent.len : 0;
	return brings ? request->send + (extent.offset - request->send_offset) : NULL;
}

bool
fanin_engine_send(struct fanin_engine *engine, struct fanin_lane *lane)
{
	struct fanin_headers *headers = &engine->headers;
	struct fanin_hdr *hdr = &headers->fanin;
	uint32_t payload_len;
	const void *payload;

	if (__builtin_expect(lane->known, 0))
		payload = fanin_engine_known(engine, lane, hdr, &payload_len);
	else
		payload = contribution_make(lane, hdr, &payload_len);
	if (payload_len != engine->header_payload_len)
		headers_prepare(engine, payload_len);
	hdr->block = lane->block - engine->base;
	headers->udp.src_be = fanin_wire_source_port_be(hdr->block);
	if (lane->transmissions != 0)
		hdr->flags |= FANIN_FLAG_RETRANSMIT;
	hdr->progress = engine->oldest - engine->base;
	if (!fanin_engine_transmit(engine, headers, payload, payload_len))
		return false;

	lane->state = FANIN_LANE_SENT;
	lane->told = FANIN_BLOCK_ABSENT;
	lane->sent_ns = engine->now_ns;
	lane->order = engine->order++;
	lane->generation = engine->cc.generation;
	if (fanin_block_before(engine->newest, lane->block))
		engine->newest = lane->block;
	if (lane->transmissions < UINT16_MAX)
		lane->transmissions++;
	engine->stats.frames_sent++;
	fanin_engine_wake_by(engine, engine->now_ns + fanin_engine_patience_ns(engine));
	return true;
}

static void
queue_send(struct fanin_engine *engine)
{
	while (engine->queue_head != engine->queue_tail) {
		uint16_t lane = engine->queue[engine->queue_head & (engine->config.window - 1u)];

		if (!fanin_engine_send(engine, &engine->lanes[lane]))
			break;
		engine->queue_head++;
	}
}

/* An absence of the caller counts neither as the peers' silence (base/absence.h) nor as round-trip time. */
static void
absence_forgive(struct fanin_engine *engine, unsigned int n)
{
	const uint64_t now_ns = engine->now_ns;
	const uint64_t by_ns = fanin_absence_forgiven_ns(now_ns - engine->last_poll_ns,
							 engine->config.timeout_ns);

	engine->last_poll_ns = now_ns;
	if (by_ns == 0 || engine->requests.first == NULL)
		return;
	engine->progress_ns = fanin_absence_move(engine->progress_ns, by_ns, now_ns);
	engine->excused_ns = fanin_absence_move(engine->excused_ns, by_ns, now_ns);
	engine->heard_ns = fanin_absence_move(engine->heard_ns, by_ns, now_ns);
	engine->resumed_ns = engine->now_ns;
	/* With nothing in the ring there is nothing to be gone through first: a caller that is always away asks, too. */
	if (n != 0 && engine->next_timer_ns < engine->now_ns + engine->rtt.rto_ns)
		engine->next_timer_ns = engine->now_ns + engine->rtt.rto_ns;
}

int
fanin_engine_poll(struct fanin_engine *engine)
{
	const struct fanin_transport_ops *ops = engine->transport->ops;
	struct fanin_frame frames[FANIN_ENGINE_BURST];
	unsigned int n;
	int tx_errnum;

	if (engine->status != FANIN_OK)
		return engine->status;

	engine->timers_ns = engine->last_poll_ns;
	n = ops->rx_burst(engine->transport, frames, FANIN_ENGINE_BURST);
	engine->now_ns = engine->config.now_ns(engine->config.now_arg);
	absence_forgive(engine, n);
	for (unsigned int i = 0; i < n; i++)
		fanin_engine_receive(engine, &frames[i]);
	if (n != 0)
		ops->rx_release(engine->transport, frames, n);
	if (engine->status != FANIN_OK)
		return engine->status;

	if (!engine->run_lost) {
		queue_send(engine);
		fanin_engine_sound(engine);
	}
	/*
	 * Results may still lie in the ring, most of all when this process has just got its core back: timers are only
	 * looked at once it is empty, or has been gone through. It may have lost its core since it looked into the ring,
	 * so that what counts is the time before that.
	 */
	engine->unchecked_frames += n;
	if (n == 0 || engine->unchecked_frames >= 2u * engine->config.window) {
		engine->unchecked_frames = 0;
		fanin_engine_check_timers(engine);
	}
	/* Until there is progress: a flush that has nothing to send succeeds. */
	tx_errnum = -ops->tx_flush(engine->transport);
	if (tx_errnum != 0)
		engine->tx_errnum = tx_errnum;
	return engine->status != FANIN_OK ? engine->status : (int)n;
}

void
fanin_engine_fail(struct fanin_engine *engine, int status)
{
	engine->status = status;
	fanin_request_list_fail(&engine->requests, status);
	engine->queue_head = engine->queue_tail;
}

void
fanin_engine_abort(struct fanin_engine *engine, int status, const struct fanin_error *error)
{
	if (engine->status != FANIN_OK)
		return;
	engine->error = *error;
	fanin_engine_fail(engine, status);
}

bool
fanin_engine_owes(const struct fanin_engine *engine)
{
	return engine->config.recover && engine->status == FANIN_OK &&
	       engine->requests.first == NULL && engine->end != engine->config.first_block;
}

uint64_t
fanin_engine_idle_ns(const struct fanin_engine *engine)
{
	uint64_t now_ns = engine->config.now_ns(engine->config.now_arg);
	uint64_t next_ns = engine->next_timer_ns;

	/* Whoever takes the run up again has answers to wait for. */
	if (engine->run_lost)
		return LOST_RUN_IDLE_NS;
	if (engine->requests.first == NULL && engine->n_known == 0)
		return UINT64_MAX;
	/* The send ring was full: nothing tells when it is not. */
	if (engine->queue_head != engine->queue_tail)
		return 100 * 1000;
	/* The switch may not be asked while nothing of it is in flight; it has a deadline all the same. */
	if (next_ns > now_ns + engine->config.timeout_ns / 5)
		next_ns = now_ns + engine->config.timeout_ns / 5;
	return next_ns > now_ns ? next_ns - now_ns : 0;
}

const struct fanin_error *
fanin_engine_error(const struct fanin_engine *engine)
{
	return &engine->error;
}

uint64_t
fanin_engine_missing(const struct fanin_engine *engine)
{
	uint64_t all = UINT64_MAX >> (64 - engine->config.size);

	if (engine->status != FANIN_OK)
		return engine->error.missing;
	if (engine->run_lost)
		return engine->rejoin.missing;
	if (engine->told.time_ns == 0 || engine->told.block != engine->oldest ||
	    engine->oldest == engine->end)
		return 0;
	return all & ~engine->told.members;
}

uint64_t
fanin_engine_late(const struct fanin_engine *engine)
{
	if (engine->status != FANIN_OK)
		return 0;
	if (engine->run_lost)
		return engine->rejoin.late;
	return fanin_engine_missing(engine) & ~(engine->told.ended | engine->told.silent);
}

const struct fanin_engine_stats *
fanin_engine_stats(const struct fanin_engine *engine)
{
	return &engine->stats;
}
