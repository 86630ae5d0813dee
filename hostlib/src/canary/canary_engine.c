/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Canary: requests, and blocks on their way to their leaders. Block b is sent once all results up to b - W are there.
 */
#include "canary_internal.h"

#include <arpa/inet.h>
#include <stdlib.h>

#include "hostlib/src/base/absence.h"

#define MOST_BLOCKS (UINT64_C(1) << 31)
/* That a block's data waits in, at most, one after the other: three levels of a fat tree, up and down. */
#define SWITCHES_ON_WAY 5

/* ------------------------------------------------------------------ packets */

const uint8_t *
fanin_canary_data(const struct canary_lane *lane, struct fanin_hdr *hdr, uint32_t *len)
{
	const struct fanin_request *request = lane->request;
	const struct fanin_extent extent = fanin_request_extent(request, lane->block);
	const bool brings = extent.len != 0 && fanin_request_brings(request, &extent);

	if (!brings && extent.len != 0)
		hdr->flags |= FANIN_FLAG_EMPTY;
	hdr->dtype = request->dtype;
	hdr->op = extent.op;
	hdr->root = extent.root;
	hdr->count = (uint16_t)(extent.len / request->element_bytes);
	*len = brings ? extent.len : 0;
	return brings ? request->send + (extent.offset - request->send_offset) : NULL;
}

bool
fanin_canary_send_data(struct fanin_canary *engine, struct canary_lane *lane, bool direct)
{
	const uint16_t leader = canary_leader_of(engine, lane->block);
	struct fanin_headers headers;
	struct canary_packet packet = { .is_reply = direct };

	fanin_canary_begin(engine, FANIN_TYPE_REDUCE, lane->block, &headers);
	headers.fanin.contributions = 1;
	headers.fanin.members = UINT64_C(1) << engine->config.rank;
	if (direct)
		headers.fanin.flags = FANIN_FLAG_DIRECT | FANIN_FLAG_RETRANSMIT;
	packet.payload = fanin_canary_data(lane, &headers.fanin, &packet.len);
	packet.flow = lane->block + lane->n_sent;
	if (!fanin_canary_send_to(engine, &headers, leader, &packet))
		return false;
	lane->n_sent++;
	return true;
}

/* ------------------------------------------------------------------ sending */

/* Block 0 is the barrier at which a run begins. */
static bool
may_send(const struct fanin_canary *engine)
{
	if (!engine->begun || engine->next == engine->end)
		return false;
	if (!engine->started)
		return engine->next == 0;
	return engine->next - engine->oldest < engine->config.window &&
	       engine->in_flight < engine->cc.window;
}

/* Sends the next block, or takes it to those that this rank leads. Returns false if there is no room now. */
static bool
send_next(struct fanin_canary *engine)
{
	const uint32_t block = engine->next;
	struct fanin_request *request = engine->sending;
	struct fanin_request *following = request->next;
	struct canary_lane *lane = canary_lane(engine, block);
	const bool is_last = block + 1 == request->first_block + request->n_blocks;

	*lane = (struct canary_lane){
		.request = request,
		.block = block,
		.generation = engine->cc.generation,
		.state = CANARY_LANE_SENT,
		.sent_ns = engine->loop.now_ns,
	};
	if (!canary_leads(engine, block) && !fanin_canary_send_data(engine, lane, false)) {
		lane->state = CANARY_LANE_IDLE;
		return false;
	}
	/* From here on the request may be done, and its owner's again. */
	engine->next++;
	engine->in_flight++;
	if (is_last)
		engine->sending = following;
	if (block == engine->oldest || engine->loop.next_timer_ns == UINT64_MAX)
		fanin_loop_wake_by(&engine->loop,
				   engine->loop.now_ns + fanin_canary_usual_ns(engine));
	if (canary_leads(engine, block))
		fanin_canary_lead(engine, lane);
	return true;
}

/* True if data has to wait. The transport is asked only if enough may wait. */
static bool
must_hold(struct fanin_canary *engine)
{
	struct fanin_transport *transport = engine->loop.transport;

	if (engine->n_ahead < CANARY_AHEAD)
		return false;
	engine->n_ahead = transport->ops->tx_waiting != NULL ? transport->ops->tx_waiting(transport)
							     : 0;
	return engine->n_ahead >= CANARY_AHEAD;
}

/* As fanin_loop_ops has it. */
static void
engine_send(struct fanin_loop *loop)
{
	struct fanin_canary *engine = canary_of_loop(loop);

	engine->was_full = false;
	fanin_canary_send_unsent(engine);
	engine->is_held = false;
	while (loop->status == FANIN_OK && !engine->was_full && may_send(engine)) {
		engine->is_held = must_hold(engine);
		if (engine->is_held || !send_next(engine))
			break;
	}
}

/* ------------------------------------------------------------------ failing */

void
fanin_canary_fail(struct fanin_canary *engine, int status)
{
	engine->sending = NULL;
	fanin_loop_fail(&engine->loop, status);
}

void
fanin_canary_abort(struct fanin_endpoint *endpoint, int status, const struct fanin_error *error)
{
	struct fanin_canary *engine = canary_of(endpoint);

	if (engine->loop.status != FANIN_OK)
		return;
	engine->loop.error = *error;
	fanin_canary_fail(engine, status);
}

/* As fanin_loop_ops has it. */
static void
engine_away(struct fanin_loop *loop, uint64_t by_ns, bool received)
{
	struct fanin_canary *engine = canary_of_loop(loop);

	engine->progress_ns = fanin_absence_move(engine->progress_ns, by_ns, loop->now_ns);
	if (engine->late_ns != 0)
		engine->late_ns = fanin_absence_move(engine->late_ns, by_ns, loop->now_ns);
	for (unsigned int i = 0; i < engine->n_ways; i++)
		engine->ways[i].heard_ns = fanin_absence_move(engine->ways[i].heard_ns, by_ns,
							      loop->now_ns);
	for (unsigned int i = 0; i < engine->config.size; i++) {
		uint64_t *asked_ns = &engine->peers[i].asked_ns;

		if (*asked_ns != 0)
			*asked_ns = fanin_absence_move(*asked_ns, by_ns, loop->now_ns);
	}
	if (received && loop->next_timer_ns < loop->now_ns + engine->rtt.rto_ns)
		loop->next_timer_ns = loop->now_ns + engine->rtt.rto_ns;
}

static const struct fanin_loop_ops loop_ops = {
	.receive = fanin_canary_receive,
	.send = engine_send,
	.timers = fanin_canary_timers,
	.away = engine_away,
};

/* ------------------------------------------------------------------ as a protocol has them */

static void
append(struct fanin_canary *engine, struct fanin_request *request, uint32_t n_blocks)
{
	request->first_block = engine->end;
	request->n_blocks = n_blocks;
	fanin_request_list_append(&engine->loop.requests, request);
	if (engine->sending == NULL)
		engine->sending = request;
	engine->end += n_blocks;
}

/* Block 0, which has no elements. */
static void
append_start(struct fanin_canary *engine)
{
	engine->start = (struct fanin_request){
		.collective = FANIN_COLLECTIVE_ALLREDUCE,
		.dtype = FANIN_U8,
		.op = FANIN_BOR,
		.stride = 1,
	};
	fanin_request_layout(&engine->start, engine->config.rank, engine->config.size, 0);
	(void)fanin_request_cut(&engine->start, engine->config.payload_bytes, false);
	append(engine, &engine->start, 1);
}

static int
memory_take(struct fanin_canary *engine)
{
	const size_t n_entries = 2u * engine->config.window;
	const size_t payload_bytes = engine->config.payload_bytes;

	engine->lanes = calloc(engine->config.window, sizeof(*engine->lanes));
	engine->entries = calloc(n_entries, sizeof(*engine->entries));
	engine->payloads = aligned_alloc(FANIN_PAYLOAD_ALIGN, (n_entries + 1) * payload_bytes);
	if (engine->lanes == NULL || engine->entries == NULL || engine->payloads == NULL)
		return FANIN_ERR_NO_MEMORY;
	engine->scratch = engine->payloads + n_entries * payload_bytes;
	return FANIN_OK;
}

static uint64_t
timers_together_ns(uint64_t timer_us)
{
	return SWITCHES_ON_WAY * 1000 * timer_us;
}

int
fanin_canary_create(const struct fanin_protocol *protocol,
		    const struct fanin_protocol_config *config, const struct fanin_canary_seed *seed,
		    struct fanin_endpoint **endpoint, struct fanin_error *error)
{
	const struct fanin_clock clock = fanin_clock_of(config->now_ns, config->now_arg);
	struct fanin_canary *created;

	if (config->size > CANARY_RANKS_MAX)
		return fanin_error_set(error, FANIN_ERR_UNSUPPORTED,
				       "the job has %u ranks, jobs of the handler canary have %u at most",
				       config->size, CANARY_RANKS_MAX);
	created = calloc(1, sizeof(*created));
	if (created == NULL)
		return fanin_error_set(error, FANIN_ERR_NO_MEMORY, "out of memory");
	created->endpoint.protocol = protocol;
	created->config = *config;
	created->seed = *seed;
	created->config.hosts = NULL; /* only valid in open */
	for (unsigned int i = 0; i < config->size; i++) {
		created->peers[i].ips_be[0] = config->hosts[i].ip_be;
		created->peers[i].ips_be[1] = config->hosts[i].second_ip_be;
	}
	created->ways[0].flow = config->flow;
	created->ways[1].flow = config->second_flow;
	created->n_ways = config->second_flow.src_ip_be == 0 ? 1 : 2;
	if (memory_take(created) != FANIN_OK) {
		fanin_canary_destroy(&created->endpoint);
		return fanin_error_set(error, FANIN_ERR_NO_MEMORY,
				       "out of memory for %u blocks in flight", config->window);
	}
	fanin_loop_init(&created->loop, &loop_ops, config->transport, &clock, config->timeout_ns,
			2u * config->window);
	created->sums = (struct fanin_sums){ .isa = fanin_isa_detect(),
					     .n_ranks = config->size,
					     .n_words = 1 };
	created->fixed_ns = timers_together_ns(config->parameters[FANIN_CANARY_TIMEOUT]);
	created->timers_ns = created->fixed_ns != 0
				     ? created->fixed_ns
				     : timers_together_ns(config->parameters[FANIN_CANARY_MOST]);
	created->all = fanin_ranks_all_word(config->size, 0);
	created->others = created->all & ~(UINT64_C(1) << config->rank);
	created->newest = UINT32_MAX;
	created->gap = CANARY_GAP;
	fanin_rtt_init(&created->rtt);
	fanin_rtt_init(&created->block_time);
	fanin_cc_init(&created->cc,
		      config->transport->ops->shares_memory ? &fanin_cc_fixed : &fanin_cc_delay,
		      config->window);
	append_start(created);
	created->loop.now_ns = fanin_loop_clock_ns(&created->loop);
	created->progress_ns = created->loop.now_ns;
	fanin_canary_roll_begin(created);
	*endpoint = &created->endpoint;
	return FANIN_OK;
}

void
fanin_canary_destroy(struct fanin_endpoint *endpoint)
{
	struct fanin_canary *engine;

	if (endpoint == NULL)
		return;
	engine = canary_of(endpoint);
	free(engine->lanes);
	free(engine->entries);
	free(engine->payloads);
	free(engine);
}

/* A pair that no kernel combines is refused here: the leader of a block could not make its result. */
static bool
is_supported(const struct fanin_canary *engine, const struct fanin_request *request)
{
	return !fanin_request_combines(request) ||
	       fanin_kernel(engine->sums.isa, request->dtype, request->op) != NULL;
}

int
fanin_canary_post(struct fanin_endpoint *endpoint, struct fanin_request *request, uint64_t count)
{
	struct fanin_canary *engine = canary_of(endpoint);
	const struct fanin_protocol_config *config = &engine->config;
	uint64_t n_blocks;

	if (engine->loop.status != FANIN_OK)
		return engine->loop.status;
	if (!is_supported(engine, request))
		return FANIN_ERR_UNSUPPORTED;
	fanin_request_layout(request, config->rank, config->size, count);
	n_blocks = fanin_request_cut(request, config->payload_bytes, false);
	if (n_blocks > MOST_BLOCKS - (engine->end - engine->oldest))
		return FANIN_ERR_INVALID;
	if (engine->loop.requests.first == NULL) {
		engine->progress_ns = fanin_loop_clock_ns(&engine->loop);
		engine->oldest_ns = engine->progress_ns;
		engine->loop.next_timer_ns = 0;
	}
	request->stride = 1;
	engine->is_closing = request->total_bytes == 0;
	append(engine, request, (uint32_t)n_blocks);
	return FANIN_OK;
}

/* Tells a rank that asks why the run has ended. */
static void
answer(void *user, const struct fanin_frame *frame)
{
	struct fanin_canary *engine = user;
	const struct fanin_hdr *hdr = &((const struct fanin_headers *)frame->data)->fanin;

	if (fanin_canary_admits(engine, frame) &&
	    (hdr->type == FANIN_TYPE_QUERY || hdr->type == FANIN_TYPE_ASK) &&
	    hdr->epoch == engine->run && hdr->rank < engine->config.size)
		fanin_canary_tell_end(engine, hdr->rank);
}

int
fanin_canary_poll(struct fanin_endpoint *endpoint)
{
	struct fanin_canary *engine = canary_of(endpoint);

	return engine->loop.status != FANIN_OK
		       ? fanin_run_end_linger(&engine->end_of_run, &engine->loop, answer, engine)
		       : fanin_loop_poll(&engine->loop);
}

uint64_t
fanin_canary_idle_ns(struct fanin_endpoint *endpoint)
{
	struct fanin_canary *engine = canary_of(endpoint);
	const uint64_t now_ns = fanin_loop_clock_ns(&engine->loop);
	uint64_t next_ns = engine->loop.next_timer_ns;

	if (engine->loop.status != FANIN_OK)
		return fanin_run_end_idle_ns(&engine->end_of_run, now_ns);
	/* Others wait for a result that there was no room for, also when this rank waits for nothing. */
	if (engine->n_unsent != 0)
		return CANARY_NO_ROOM_NS;
	if (engine->loop.requests.first == NULL)
		return UINT64_MAX;
	if (engine->was_full || engine->is_held)
		return CANARY_NO_ROOM_NS;
	/* There may be no question due while nothing is in flight; others have a deadline all the same. */
	if (next_ns > now_ns + engine->config.timeout_ns / 5)
		next_ns = now_ns + engine->config.timeout_ns / 5;
	return next_ns > now_ns ? next_ns - now_ns : 0;
}

unsigned int
fanin_canary_poll_fds(struct fanin_endpoint *endpoint, struct pollfd *fds)
{
	struct fanin_canary *engine = canary_of(endpoint);

	/* Nothing is received any more, and descriptors would stay ready for ever. */
	if (engine->loop.status != FANIN_OK &&
	    !fanin_run_end_lingers(&engine->end_of_run, fanin_loop_clock_ns(&engine->loop)))
		return 0;
	return engine->loop.transport->ops->poll_fds(engine->loop.transport, fds);
}

const struct fanin_error *
fanin_canary_error(struct fanin_endpoint *endpoint)
{
	struct fanin_canary *engine = canary_of(endpoint);

	return &engine->loop.error;
}

static uint64_t
waits_for(const struct fanin_canary *engine)
{
	if (!engine->begun)
		return engine->config.rank == 0 ? engine->all & ~engine->called
		       : engine->roll_heard     ? engine->others & ~engine->called
						: UINT64_C(1);
	if (engine->oldest == engine->next)
		return 0;
	if (canary_leads(engine, engine->oldest))
		return fanin_canary_lacks(engine, engine->oldest);
	return engine->told_block == engine->oldest ? engine->told & engine->others : 0;
}

void
fanin_canary_missing(struct fanin_endpoint *endpoint, struct fanin_ranks *ranks)
{
	struct fanin_canary *engine = canary_of(endpoint);

	*ranks = engine->loop.status != FANIN_OK ? engine->loop.error.missing
						 : fanin_ranks_of_word(waits_for(engine));
}

uint64_t
fanin_canary_late(struct fanin_endpoint *endpoint)
{
	struct fanin_canary *engine = canary_of(endpoint);
	uint64_t late = engine->loop.status != FANIN_OK ? 0 : waits_for(engine);

	for (unsigned int i = 0; i < engine->config.size; i++) {
		if (engine->peers[i].asked_ns != 0)
			late &= ~(UINT64_C(1) << i);
	}
	return late;
}

bool
fanin_canary_peers_may_need_results(struct fanin_endpoint *endpoint)
{
	struct fanin_canary *engine = canary_of(endpoint);

	return engine->loop.status == FANIN_OK && engine->started &&
	       engine->loop.requests.first == NULL && engine->config.size > 1;
}

const struct fanin_canary_stats *
fanin_canary_stats(struct fanin_endpoint *endpoint)
{
	struct fanin_canary *engine = canary_of(endpoint);

	return &engine->stats;
}
