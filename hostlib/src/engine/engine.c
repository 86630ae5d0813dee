/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine's life, its requests and its transmissions. Blocks are staggered as in Flare's section
 * 5: ranks start at different blocks, so that the packets of one block reach the switch spread out;
 * afterwards each lane is clocked by its results (lanes.c).
 */
#include "engine_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "hostlib/src/base/absence.h"
#include "hostlib/src/vector/vector.h"

/* Interval of checks while a run is lost. */
#define LOST_RUN_IDLE_NS (2 * 1000000ull)

/* Serial arithmetic requires all block numbers to lie within half of the number space. */
#define MAX_BLOCKS_OUTSTANDING (UINT32_MAX / 2)

/*
 * Transmissions of a block after which its packets leave alone: packets that carry several blocks
 * may be too large to pass.
 */
#define LOST_TWICE 2

void
fanin_engine_headers(struct fanin_engine *engine, uint32_t payload_len)
{
	struct fanin_ip *ip = &engine->headers.ip;

	fanin_wire_encode_l4(&engine->headers, &engine->config.flow, payload_len);
	engine->headers.fanin.port = engine->config.flow.src_port;
	engine->header_payload_len = payload_len;
	if (engine->rules->tos == 0)
		return;
	ip->tos = engine->rules->tos;
	ip->checksum_be = 0;
	ip->checksum_be = fanin_ip_checksum(ip);
}

void
fanin_engine_begin(const struct fanin_engine *engine, enum fanin_type type, uint32_t block,
		   uint32_t payload_len, struct fanin_headers *headers)
{
	const struct fanin_protocol_config *config = &engine->config;

	fanin_wire_encode_l4(headers, &config->flow, payload_len);
	fanin_wire_encode_header(&headers->fanin, type, config->job, config->epoch,
				 config->keys.up);
	headers->udp.src_be = fanin_wire_source_port_be(block, config->port_shift);
	headers->fanin.rank = config->rank;
	headers->fanin.contributions = 1;
	headers->fanin.block = block;
	headers->fanin.port = config->flow.src_port;
}

/*
 * Returns the number of blocks of a sparse request, whose vector is laid out. It has no part that
 * is sent or kept.
 */
static uint64_t
sparse_cut(struct fanin_request *request)
{
	request->send_bytes = 0;
	request->recv_bytes = 0;
	request->block_bytes = request->sparse->span * request->element_bytes;
	request->part_blocks = request->sparse->n_blocks;
	return request->sparse->n_blocks;
}

uint64_t
fanin_engine_cut(struct fanin_endpoint *endpoint, struct fanin_request *request, uint64_t count)
{
	struct fanin_engine *engine = fanin_engine_of(endpoint);

	fanin_request_layout(request, engine->config.rank, engine->config.size, count);
	if (request->sparse != NULL)
		return sparse_cut(request);
	if (engine->rules->has_owners)
		return fanin_request_cut_owned(request, engine->config.size,
					       engine->config.payload_bytes, engine->config.wide);
	if (engine->rules->in_parts && request->collective == FANIN_COLLECTIVE_REDUCE_SCATTER)
		request->part_bytes = request->recv_bytes;
	return fanin_request_cut(request, engine->config.payload_bytes, engine->config.wide);
}

int
fanin_engine_accepts(struct fanin_endpoint *endpoint, uint64_t n_blocks)
{
	struct fanin_engine *engine = fanin_engine_of(endpoint);

	if (engine->loop.status != FANIN_OK)
		return engine->loop.status;
	return n_blocks > MAX_BLOCKS_OUTSTANDING - (engine->end - engine->oldest)
		       ? FANIN_ERR_INVALID
		       : FANIN_OK;
}

/* Appends a request, which is cut and accepted, with its blocks. */
static void
request_append(struct fanin_engine *engine, struct fanin_request *request, uint32_t n_blocks)
{
	if (engine->loop.requests.first == NULL && engine->n_known == 0) {
		engine->progress_ns = fanin_loop_clock_ns(&engine->loop);
		engine->heard_ns = engine->progress_ns;
		engine->late_answer_ns = 0;
		engine->stale_reason = FANIN_REASON_NONE;
		engine->loop.next_timer_ns = 0;
	}
	request->n_blocks = n_blocks;
	request->first_block = engine->end;
	fanin_request_list_append(&engine->loop.requests, request);
	engine->end += request->n_blocks;
	fanin_engine_start(engine, request);
}

int
fanin_engine_post_small(struct fanin_engine *engine, struct fanin_request *request,
			uint32_t n_blocks, uint32_t block_bytes)
{
	const int status = fanin_engine_accepts(&engine->endpoint, n_blocks);

	assert(block_bytes <= engine->config.payload_bytes);
	if (status != FANIN_OK)
		return status;
	fanin_request_layout(request, engine->config.rank, engine->config.size,
			     (uint64_t)n_blocks * block_bytes / fanin_dtype_size(request->dtype));
	request->block_bytes = block_bytes;
	request->part_blocks = n_blocks;
	request->stride = 1;
	request->start = 0;
	request_append(engine, request, n_blocks);
	return FANIN_OK;
}

int
fanin_engine_post(struct fanin_endpoint *endpoint, struct fanin_request *request, uint64_t count)
{
	struct fanin_engine *engine = fanin_engine_of(endpoint);
	uint64_t n_blocks;
	int status = FANIN_OK;

	if (request->sparse != NULL) {
		/*
		 * The engine of the first of several parts has laid it out already, or the caller
		 * has.
		 */
		if (request->sparse->n_blocks == 0)
			status = fanin_vector_layout(request->sparse, engine->config.payload_bytes);
		if (status == FANIN_OK)
			status = fanin_engine_shards_init(engine);
		if (status != FANIN_OK)
			return status;
	}
	n_blocks = fanin_engine_cut(&engine->endpoint, request, count);
	status = fanin_engine_accepts(&engine->endpoint, n_blocks);
	if (status != FANIN_OK)
		return status;
	if (request->stride == 0)
		request->stride = 1;
	assert(request->start < n_blocks);
	n_blocks = (n_blocks - request->start - 1) / request->stride + 1;

	request_append(engine, request, (uint32_t)n_blocks);
	return FANIN_OK;
}

const void *
fanin_engine_contribution(const struct fanin_lane *lane, struct fanin_hdr *hdr,
			  uint32_t *payload_len)
{
	const struct fanin_request *request = lane->request;
	struct fanin_extent extent = fanin_request_extent(request, lane->block);
	bool brings = fanin_request_brings(request, &extent);

	hdr->contributions = 1;
	hdr->flags = brings || extent.len == 0 ? 0 : FANIN_FLAG_EMPTY;
	hdr->dtype = request->dtype;
	hdr->op = extent.op;
	hdr->root = extent.root;
	hdr->count = (uint16_t)(extent.len / request->element_bytes);
	*payload_len = brings ? extent.len : 0;
	return brings ? request->send + (extent.offset - request->send_offset) : NULL;
}

bool
fanin_engine_send_elements(struct fanin_engine *engine, const struct fanin_lane *lane,
			   const void *payload, uint32_t payload_len)
{
	struct fanin_headers *headers = &engine->headers;
	struct fanin_hdr *hdr = &headers->fanin;

	if (payload_len != engine->header_payload_len)
		fanin_engine_headers(engine, payload_len);
	hdr->block = lane->block - engine->base;
	headers->udp.src_be = fanin_wire_source_port_be(hdr->block, engine->config.port_shift);
	hdr->progress = engine->oldest - engine->base;
	return fanin_engine_transmit_held(engine, headers, payload, payload_len);
}

bool
fanin_engine_send(struct fanin_engine *engine, struct fanin_lane *lane)
{
	struct fanin_hdr *hdr = &engine->headers.fanin;
	uint32_t payload_len;
	const void *payload;
	bool is_sent;

	if (__builtin_expect(lane->role != FANIN_LANE_DENSE, 0)) {
		if (fanin_engine_has_shards(lane))
			return fanin_engine_shards_send(engine, lane);
		payload = fanin_engine_known(engine, lane, hdr, &payload_len);
	} else {
		hdr->type = FANIN_TYPE_CONTRIBUTION;
		payload = fanin_engine_contribution(lane, hdr, &payload_len);
	}
	if (lane->transmissions != 0)
		hdr->flags |= FANIN_FLAG_RETRANSMIT;
	if (__builtin_expect(lane->transmissions >= LOST_TWICE, 0)) {
		fanin_transport_alone(engine->loop.transport, true, true);
		is_sent = fanin_engine_send_elements(engine, lane, payload, payload_len);
		fanin_transport_alone(engine->loop.transport, false, false);
	} else {
		is_sent = fanin_engine_send_elements(engine, lane, payload, payload_len);
	}
	if (!is_sent)
		return false;

	fanin_engine_note_sent(engine, lane);
	return true;
}

void
fanin_engine_send_queued(struct fanin_engine *engine)
{
	while (engine->queue_head != engine->queue_tail) {
		uint16_t lane = engine->queue[engine->queue_head & (engine->config.window - 1u)];

		if (!fanin_engine_send(engine, &engine->lanes[lane]))
			break;
		engine->queue_head++;
	}
}

/* As in fanin_loop_ops. */
static void
loop_send(struct fanin_loop *loop)
{
	struct fanin_engine *engine = fanin_engine_of_loop(loop);

	if (!engine->run_lost)
		engine->rules->send(engine);
}

/* As in fanin_loop_ops. An absence counts neither as the peers' silence nor as round-trip time. */
static void
away_forgive(struct fanin_loop *loop, uint64_t by_ns, bool received)
{
	struct fanin_engine *engine = fanin_engine_of_loop(loop);
	const uint64_t now_ns = loop->now_ns;

	engine->progress_ns = fanin_absence_move(engine->progress_ns, by_ns, now_ns);
	engine->late_answer_ns = fanin_absence_move(engine->late_answer_ns, by_ns, now_ns);
	engine->heard_ns = fanin_absence_move(engine->heard_ns, by_ns, now_ns);
	if (engine->rules->away != NULL)
		engine->rules->away(engine, by_ns);
	/*
	 * If the ring is empty there is nothing to read first: a caller that is always away sends
	 * queries, too.
	 */
	if (received && loop->next_timer_ns < now_ns + engine->rtt.rto_ns)
		loop->next_timer_ns = now_ns + engine->rtt.rto_ns;
}

static const struct fanin_loop_ops loop_ops = {
	.receive = fanin_engine_receive,
	.send = loop_send,
	.timers = fanin_engine_check_timers,
	.away = away_forgive,
};

/* Allocates the memory that all engines need. Returns FANIN_OK or FANIN_ERR_NO_MEMORY. */
static int
memory_make(struct fanin_engine *engine)
{
	engine->lanes = calloc(engine->config.window, sizeof(*engine->lanes));
	engine->queue = calloc(engine->config.window, sizeof(*engine->queue));
	if (engine->lanes == NULL || engine->queue == NULL ||
	    fanin_engine_keep_init(engine) != FANIN_OK || fanin_engine_tag_init(engine) != FANIN_OK)
		return FANIN_ERR_NO_MEMORY;
	return FANIN_OK;
}

/* Returns an engine's congestion control: over shared memory the only queue is the switch's own. */
static const struct fanin_cc_type *
cc_of(const struct fanin_engine_rules *rules, const struct fanin_protocol_config *config)
{
	if (rules->bounds_flight)
		return &fanin_cc_fixed;
	if (config->cc != NULL)
		return config->cc;
	return config->transport->ops->shares_memory ? &fanin_cc_fixed : &fanin_cc_delay;
}

/* Initialises an engine whose configuration is set; the rules' own state follows later. */
static void
state_begin(struct fanin_engine *engine)
{
	const struct fanin_protocol_config *config = &engine->config;
	const struct fanin_clock clock = fanin_clock_of(config->now_ns, config->now_arg);
	const uint32_t first = config->first_block;

	fanin_loop_init(&engine->loop, &loop_ops, config->transport, &clock, config->timeout_ns,
			2u * config->window);
	engine->oldest = first;
	engine->end = first;
	engine->newest = first - 1;
	for (uint32_t i = 0; i < config->window; i++)
		fanin_engine_lane(engine, first + i)->block = first + i;

	fanin_rtt_init(&engine->rtt);
	fanin_rtt_init(&engine->block_time);
	fanin_cc_init(&engine->cc, cc_of(engine->rules, config), config->window);
	engine->reordering = FANIN_ENGINE_REORDERING_MIN;

	fanin_engine_begin(engine, FANIN_TYPE_CONTRIBUTION, 0, config->payload_bytes,
			   &engine->headers);
	fanin_engine_headers(engine, config->payload_bytes);
}

/* Returns FANIN_OK, or FANIN_ERR_UNSUPPORTED if the protocol can't run the job. */
static int
job_check(const struct fanin_protocol *protocol, const struct fanin_protocol_config *config,
	  struct fanin_error *error)
{
	const struct fanin_engine_rules *rules = protocol->rules;

	if (rules->ranks_max != 0 && config->size > rules->ranks_max)
		return fanin_error_set(
			error, FANIN_ERR_UNSUPPORTED,
			"the job has %u ranks, jobs of the handler %s have %u at most",
			config->size, protocol->handlers[0], rules->ranks_max);
	if (rules->no_wide && config->wide)
		return fanin_error_set(
			error, FANIN_ERR_UNSUPPORTED,
			"the job accumulates sums in f32, which the protocol %s does not",
			protocol->name);
	return FANIN_OK;
}

static int
out_of_memory(const struct fanin_protocol_config *config, struct fanin_error *error)
{
	return fanin_error_set(error, FANIN_ERR_NO_MEMORY, "out of memory for %u blocks in flight",
			       config->window);
}

int
fanin_engine_open(const struct fanin_protocol *protocol, const struct fanin_protocol_config *config,
		  struct fanin_endpoint **endpoint, struct fanin_error *error)
{
	const struct fanin_engine_rules *rules = protocol->rules;
	struct fanin_engine *engine;
	int status = job_check(protocol, config, error);

	assert(config->window != 0 && (config->window & (config->window - 1)) == 0);
	assert(rules->size >= sizeof(*engine));
	if (status != FANIN_OK)
		return status;
	engine = calloc(1, rules->size);
	if (engine == NULL)
		return out_of_memory(config, error);
	engine->endpoint.protocol = protocol;
	engine->rules = rules;
	engine->config = *config;
	status = memory_make(engine);
	if (status == FANIN_OK) {
		state_begin(engine);
		if (rules->open != NULL)
			status = rules->open(engine, error);
	}
	if (status != FANIN_OK) {
		fanin_engine_close(&engine->endpoint);
		return status == FANIN_ERR_NO_MEMORY ? out_of_memory(config, error) : status;
	}
	engine->config.hosts = NULL;     /* valid in `open` only */
	engine->config.transport = NULL; /* the loop has it, and may get another one */
	*endpoint = &engine->endpoint;
	return FANIN_OK;
}

void
fanin_engine_close(struct fanin_endpoint *endpoint)
{
	struct fanin_engine *engine;

	if (endpoint == NULL)
		return;
	engine = fanin_engine_of(endpoint);
	if (engine->rules->close != NULL)
		engine->rules->close(engine);
	fanin_engine_shards_free(engine);
	free(engine->lanes);
	free(engine->queue);
	free(engine->kept);
	free(engine->kept_payloads);
	free(engine->tag_memory);
	free(engine);
}

void
fanin_engine_leave(struct fanin_endpoint *endpoint)
{
	if (endpoint != NULL && endpoint->protocol->rules->say_bye != NULL)
		fanin_run_end_goodbye(fanin_engine_of(endpoint));
	fanin_engine_close(endpoint);
}

int
fanin_engine_poll(struct fanin_endpoint *endpoint)
{
	struct fanin_engine *engine = fanin_engine_of(endpoint);
	const int ret = fanin_loop_poll(&engine->loop);

	return engine->loop.status == FANIN_OK ? ret : fanin_run_end_poll(engine);
}

void
fanin_engine_fail(struct fanin_engine *engine, int status)
{
	fanin_loop_fail(&engine->loop, status);
	engine->queue_head = engine->queue_tail;
}

void
fanin_engine_abort(struct fanin_endpoint *endpoint, int status, const struct fanin_error *error)
{
	struct fanin_engine *engine = fanin_engine_of(endpoint);

	if (engine->loop.status != FANIN_OK)
		return;
	engine->loop.error = *error;
	fanin_engine_fail(engine, status);
}

bool
fanin_engine_peers_may_need_results(struct fanin_endpoint *endpoint)
{
	struct fanin_engine *engine = fanin_engine_of(endpoint);

	return engine->kept != NULL && engine->loop.status == FANIN_OK &&
	       engine->loop.requests.first == NULL && engine->end != engine->config.first_block;
}

unsigned int
fanin_engine_poll_fds(struct fanin_endpoint *endpoint, struct pollfd *fds)
{
	struct fanin_engine *engine = fanin_engine_of(endpoint);

	/* Nothing is received any more, so descriptors would stay ready for ever. */
	if (engine->loop.status != FANIN_OK && fanin_run_end_idle_ns(engine) == UINT64_MAX)
		return 0;
	return engine->loop.transport->ops->poll_fds(engine->loop.transport, fds);
}

/*
 * Returns how long an engine that has not failed may idle, as far as it knows without its protocol.
 */
static uint64_t
posted_idle_ns(const struct fanin_engine *engine)
{
	const uint64_t now_ns = fanin_loop_clock_ns(&engine->loop);
	uint64_t next_ns = engine->loop.next_timer_ns;

	if (engine->loop.requests.first == NULL && engine->n_known == 0)
		return UINT64_MAX;
	if (engine->queue_head != engine->queue_tail)
		return FANIN_ENGINE_NO_ROOM_NS;
	/* No query may be due while nothing is in flight; the switch's deadline remains. */
	if (next_ns > now_ns + engine->config.timeout_ns / 5)
		next_ns = now_ns + engine->config.timeout_ns / 5;
	return next_ns > now_ns ? next_ns - now_ns : 0;
}

uint64_t
fanin_engine_idle_ns(struct fanin_endpoint *endpoint)
{
	struct fanin_engine *engine = fanin_engine_of(endpoint);

	if (engine->loop.status != FANIN_OK)
		return fanin_run_end_idle_ns(engine);
	/* Resuming a run waits for answers, and nothing is sent meanwhile. */
	if (engine->run_lost)
		return LOST_RUN_IDLE_NS;
	if (engine->rules->idle_max_ns == NULL)
		return posted_idle_ns(engine);
	return fanin_earlier(posted_idle_ns(engine), engine->rules->idle_max_ns(engine));
}

const struct fanin_error *
fanin_engine_error(struct fanin_endpoint *endpoint)
{
	struct fanin_engine *engine = fanin_engine_of(endpoint);

	return &engine->loop.error;
}
