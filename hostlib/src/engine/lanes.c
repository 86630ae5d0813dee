/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Decides which block may be sent (docs/protocol.md, "Windows of hosts"). Each of the W lanes has
 * one block, done or in progress. Block b is sent once the result of b - W is there, and the
 * protocol's rules allow it. Called by the engine only.
 */
#include "engine_internal.h"
#include "hostlib/src/vector/vector.h"

/* Parts of the window, in each of which ranks begin at different blocks. */
#define STAGGER_TURNS 8

void
fanin_engine_queue(struct fanin_engine *engine, struct fanin_lane *lane)
{
	lane->state = FANIN_LANE_QUEUED;
	engine->queue[engine->queue_tail++ & (engine->config.window - 1u)] =
		(uint16_t)(lane - engine->lanes);
}

void
fanin_engine_queue_in_order(struct fanin_engine *engine, uint32_t *next,
			    bool (*may_send)(struct fanin_engine *engine,
					     const struct fanin_lane *lane))
{
	for (; *next != engine->end; ++*next) {
		struct fanin_lane *lane = fanin_engine_lane(engine, *next);

		if (fanin_engine_is_done(engine, *next))
			continue;
		if (lane->block != *next || lane->state != FANIN_LANE_READY ||
		    *next - engine->oldest >= engine->config.window ||
		    (may_send != NULL && !may_send(engine, lane)))
			return;
		fanin_engine_queue(engine, lane);
	}
}

void
fanin_engine_release(struct fanin_engine *engine, struct fanin_lane *lane)
{
	if (lane->state == FANIN_LANE_READY && engine->rules->ready != NULL)
		engine->rules->ready(engine, lane);
}

void
fanin_engine_release_all(struct fanin_engine *engine)
{
	for (uint32_t i = 0; i < engine->config.window; i++)
		fanin_engine_release(engine, fanin_engine_lane(engine, engine->oldest + i));
}

void
fanin_engine_ready(struct fanin_lane *lane, struct fanin_request *request)
{
	lane->request = request;
	lane->state = FANIN_LANE_READY;
	lane->role = request == NULL           ? FANIN_LANE_KNOWN
		     : request->sparse != NULL ? FANIN_LANE_SPARSE
					       : FANIN_LANE_DENSE;
	lane->told = FANIN_BLOCK_ABSENT;
	lane->asked = false;
	lane->held = false;
	lane->transmissions = 0;
	lane->ask_ns = 0;
	lane->ask_wait_ns = 0;
}

/*
 * Returns which of the first `reach` blocks is sent i-th. Ranks start at different offsets within
 * each eighth of these blocks (Flare, section 5). Staggering over all of them at once would keep
 * each block waiting for the last rank until nearly all are sent: results would come in one burst,
 * after a time without any.
 */
static uint32_t
staggered_place(const struct fanin_protocol_config *config, uint32_t reach, uint32_t i)
{
	const uint32_t turn = (reach + STAGGER_TURNS - 1) / STAGGER_TURNS;
	const uint32_t first = i - i % turn;
	const uint32_t size = reach - first < turn ? reach - first : turn;

	return first + (i - first + (uint32_t)config->rank * size / config->size) % size;
}

void
fanin_engine_start(struct fanin_engine *engine, struct fanin_request *request)
{
	const struct fanin_protocol_config *config = &engine->config;
	uint32_t reach = request->n_blocks < config->window ? request->n_blocks : config->window;

	for (uint32_t i = 0; i < reach; i++) {
		struct fanin_lane *lane = fanin_engine_lane(engine, request->first_block + i);

		if (lane->state == FANIN_LANE_IDLE && lane->block == request->first_block + i)
			fanin_engine_ready(lane, request);
	}
	if (reach > engine->cc.window)
		reach = engine->cc.window;
	for (uint32_t i = 0; i < reach; i++) {
		const uint32_t index = config->stagger ? staggered_place(config, reach, i) : i;

		fanin_engine_release(engine,
				     fanin_engine_lane(engine, request->first_block + index));
	}
}

/*
 * Returns the request that a block belongs to, searching from an earlier one; NULL if it is not
 * posted.
 */
static struct fanin_request *
request_of(struct fanin_request *request, uint32_t block)
{
	while (request != NULL && block - request->first_block >= request->n_blocks)
		request = request->next;
	return request;
}

static void
request_finish(struct fanin_engine *engine, struct fanin_request *request)
{
	struct fanin_request *whole = request->whole != NULL ? request->whole : request;

	if (engine->kept != NULL)
		fanin_engine_keep_request(engine, request);
	fanin_request_list_finish(&engine->loop.requests, request);
	/* The result of several parts is complete with the last one. */
	if (request->sparse != NULL && whole->status == FANIN_OK)
		whole->status = fanin_vector_finish(request->sparse);
}

/* Gives the lane its next block if that is posted. from: a request before it. */
static void
lane_take_next(struct fanin_engine *engine, struct fanin_lane *lane, struct fanin_request *from)
{
	struct fanin_request *request = request_of(from, lane->block);

	if (request == NULL)
		return;
	fanin_engine_ready(lane, request);
	fanin_engine_release(engine, lane);
}

void
fanin_engine_advance(struct fanin_engine *engine, struct fanin_lane *lane)
{
	const uint32_t done = lane->block;
	struct fanin_request *request = lane->request;

	lane->block += engine->config.window;
	lane->state = FANIN_LANE_IDLE;
	lane->request = NULL;
	lane_take_next(engine, lane, request != NULL ? request : engine->loop.requests.first);
	if (engine->cc.window < engine->config.window)
		fanin_engine_release(engine, fanin_engine_lane(engine, done + engine->cc.window));

	while (engine->oldest != engine->end) {
		struct fanin_lane *oldest = fanin_engine_lane(engine, engine->oldest);

		if (oldest->block == engine->oldest)
			break;
		engine->oldest++;
		if (engine->config.recover)
			fanin_engine_release(engine, oldest);
	}
	if (request != NULL && request->done_blocks == request->n_blocks)
		request_finish(engine, request);
}
