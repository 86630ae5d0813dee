/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The host protocol of the handler `pull` as a table (protocol/protocol.h): reliable multicast, in
 * which owners make the packets of operations that combine. Operations without elements run as
 * blocks.
 */
#include "pull.h"

#include <stdlib.h>

#include "pull_internal.h"
#include "hostlib/src/engine/times.h"

#define WANTED_MAX 4096u
/* Open pulls at a time, limited so that few ASKs cover them. */
#define PULLS_MAX FANIN_QUESTION_SPAN

void
fanin_pull_headers(const struct fanin_pull *pull, enum fanin_type type, uint32_t operation,
		   uint32_t place, uint32_t payload_len, struct fanin_headers *headers)
{
	fanin_engine_begin(&pull->mc.engine, type, place, payload_len, headers);
	headers->fanin.progress = operation;
}

/* ------------------------------------------------------------------ the rules */

/* Allocates the rings. Returns FANIN_OK or FANIN_ERR_NO_MEMORY. */
static int
memory_make(struct fanin_pull *pull)
{
	const struct fanin_protocol_config *config = &pull->mc.engine.config;
	uint32_t n_wanted = 64;

	/* Twice what all owners may ask for, because questions are repeated. */
	while (n_wanted < 2u * config->size * config->window && n_wanted < WANTED_MAX)
		n_wanted *= 2;
	pull->span = config->window < PULLS_MAX ? config->window : PULLS_MAX;
	pull->slots = calloc(pull->span, sizeof(*pull->slots));
	pull->payloads = malloc((size_t)pull->span * config->payload_bytes);
	pull->scratch = malloc(config->payload_bytes);
	pull->wanted = calloc(n_wanted, sizeof(*pull->wanted));
	pull->wanted_mask = n_wanted - 1;
	return pull->slots == NULL || pull->payloads == NULL || pull->scratch == NULL ||
			       pull->wanted == NULL
		       ? FANIN_ERR_NO_MEMORY
		       : FANIN_OK;
}

static int
rules_open(struct fanin_engine *engine, struct fanin_error *error)
{
	const uint64_t *parameters = engine->config.parameters;
	struct fanin_pull *pull = fanin_pull_of(engine);
	int status = fanin_broadcast_begin(&pull->mc, (uint32_t)parameters[FANIN_PULL_CHAINS]);

	(void)error;
	pull->mc.makes = true;
	pull->timeout_ns = parameters[FANIN_PULL_TIMEOUT] * 1000;
	if (status != FANIN_OK)
		return status;
	pull->sums = (struct fanin_sums){ .isa = fanin_isa_detect(),
					  .n_ranks = engine->config.size,
					  .n_words = 1 };
	pull->all = fanin_ranks_all_word(engine->config.size, 0);
	pull->own = UINT64_C(1) << engine->config.rank;
	fanin_rtt_init(&pull->time);
	status = memory_make(pull);
	if (status != FANIN_OK)
		return status;
	fanin_pull_waves_open(pull);
	fanin_pull_allow(pull);
	return FANIN_OK;
}

static void
rules_close(struct fanin_engine *engine)
{
	struct fanin_pull *pull = fanin_pull_of(engine);

	fanin_broadcast_end(engine);
	free(pull->slots);
	free(pull->payloads);
	free(pull->scratch);
	free(pull->wanted);
}

static void
rules_send(struct fanin_engine *engine)
{
	struct fanin_pull *pull = fanin_pull_of(engine);

	/* Answers go first, as other ranks wait for them. */
	pull->is_blocked = !fanin_pull_answer(pull);
	if (!pull->is_blocked)
		fanin_pull_begin(pull);
	fanin_broadcast_send(engine);
}

/* Receives a UNICAST to this rank. Returns false if the message is not one of pull reductions. */
static bool
receive_unicast(struct fanin_pull *pull, const struct fanin_frame *frame)
{
	const struct fanin_hdr *hdr = &((const struct fanin_headers *)frame->data)->fanin;
	const bool is_of_pulls = pull->op != NULL && hdr->progress == pull->op->number &&
				 hdr->block >= pull->op->own_first &&
				 hdr->block < pull->op->own_end;

	switch (hdr->number) {
	case FANIN_BROADCAST_ASK:
		fanin_pull_receive_ask(pull, frame);
		return true;
	case FANIN_BROADCAST_GIVE:
		fanin_pull_receive_give(pull, frame);
		return true;
	case FANIN_BROADCAST_TELL:
		/*
		 * A TELL about an own packet is for the pull; a TELL about another owner's packet
		 * answers a FETCH.
		 */
		if (is_of_pulls)
			fanin_pull_receive_tell(pull, frame);
		return is_of_pulls;
	default:
		return false;
	}
}

static void
rules_receive(struct fanin_engine *engine, const struct fanin_frame *frame, uint32_t block)
{
	const struct fanin_hdr *hdr = &((const struct fanin_headers *)frame->data)->fanin;
	const struct fanin_protocol_config *config = &engine->config;
	struct fanin_pull *pull = fanin_pull_of(engine);
	const bool is_mine = fanin_pull_owner(hdr->block, config->size) == config->rank;

	switch (hdr->type) {
	case FANIN_TYPE_PULL_DELIVERY:
		/*
		 * A PULL that came back is for its owner only; other ranks share the owner's port.
		 */
		if (hdr->members != fanin_pull_owner(hdr->block, config->size))
			engine->stats.invalid++;
		else if (is_mine && hdr->count == FANIN_PULL_BUSY)
			fanin_pull_receive_busy(pull, hdr);
		else if (!is_mine && hdr->count == 0)
			fanin_pull_receive_request(pull, hdr);
		break;
	case FANIN_TYPE_RESPONSE_DELIVERY:
		if (is_mine)
			fanin_pull_receive_response(pull, frame);
		break;
	case FANIN_TYPE_UNICAST_DELIVERY:
		if (hdr->members >= config->size || hdr->members == config->rank ||
		    hdr->count != config->rank || !receive_unicast(pull, frame))
			fanin_broadcast_receive(engine, frame, block);
		break;
	default:
		fanin_broadcast_receive(engine, frame, block);
		break;
	}
}

/* Drops the operation if it has ended. */
static void
rules_finish(struct fanin_engine *engine, uint32_t block)
{
	struct fanin_pull *pull = fanin_pull_of(engine);
	const uint32_t number = pull->op == NULL ? 0 : pull->op->number;

	fanin_broadcast_finish(engine, block);
	if (pull->op != NULL && fanin_broadcast_find(&pull->mc, number) == NULL)
		pull->op = NULL;
}

static void
rules_scan(struct fanin_engine *engine)
{
	struct fanin_pull *pull = fanin_pull_of(engine);

	fanin_broadcast_scan(engine);
	if (engine->loop.status == FANIN_OK)
		fanin_loop_wake_by(&engine->loop, fanin_pull_ask_late(pull));
}

/* Packets of the old run are lost: all open pulls are overdue at once. */
static void
rules_resume(struct fanin_engine *engine)
{
	struct fanin_pull *pull = fanin_pull_of(engine);

	fanin_broadcast_resume(engine);
	for (uint32_t i = 0; i < pull->span; i++) {
		if (pull->slots[i].state != FANIN_PULL_DONE)
			pull->slots[i].again_ns = 0;
	}
	fanin_loop_wake_by(&engine->loop, 0);
}

static uint64_t
rules_idle_most_ns(struct fanin_engine *engine)
{
	const uint64_t max_ns = fanin_broadcast_idle_max_ns(engine);

	return fanin_pull_of(engine)->is_blocked ? fanin_earlier(max_ns, FANIN_BROADCAST_NO_ROOM_NS)
						 : max_ns;
}

const struct fanin_engine_rules fanin_pull_rules = {
	.waits_for_ranks = true,
	.samples_asked = true,
	.takes_unsent = true,
	.bounds_flight = true, /* pulls, waves and credits bound it */
	.ranks_max = FANIN_PULL_RANKS_MAX,
	.in_parts = true,
	.size = sizeof(struct fanin_pull),
	.open = rules_open,
	.close = rules_close,
	.send = rules_send,
	.on_answer = fanin_broadcast_on_answer,
	.receive = rules_receive,
	.finish = rules_finish,
	.scan = rules_scan,
	.time_out = fanin_broadcast_time_out,
	.resume = rules_resume,
	.idle_max_ns = rules_idle_most_ns,
};

/* ------------------------------------------------------------------ the protocol */

const struct fanin_pull_stats *
fanin_pull_stats(struct fanin_endpoint *endpoint)
{
	return &fanin_pull_of(fanin_engine_of(endpoint))->stats;
}

static const char *const handlers[] = { "pull", NULL };

struct fanin_protocol fanin_protocol_pull = {
	.name = "pull",
	.handlers = handlers,
	.has_tags = true,
	.multicasts = true,
	.beside = FANIN_BESIDE_PULL,
	.rules = &fanin_pull_rules,
	.collectives = FANIN_ENGINE_COLLECTIVES,
	.in_flight = fanin_broadcast_in_flight,
	.on_switch = &fanin_engine_on_switch,
	FANIN_ENGINE_FUNCTIONS,
	.post = fanin_broadcast_post_any,
	.report = fanin_broadcast_report,
};

FANIN_PROTOCOL_REGISTER(fanin_protocol_pull)
