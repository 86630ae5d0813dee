/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The host protocol of the handler `pull` as a table (protocol/protocol.h): an engine of reliable multicast whose operations that combine are made by owners. What has
 * no elements runs as in the window protocol.
 */
#include "pull.h"

#include <stdlib.h>

#include "hostlib/src/window/window.h"
#include "pull_internal.h"

#define FULL_IDLE_NS UINT64_C(50000)
#define WANTED_MOST 4096u
/* Pulls at a time: few ASKs cover them. */
#define PULLS_MOST FANIN_MULTICAST_FETCH_SPAN

void
fanin_pull_headers(const struct fanin_pull *pull, enum fanin_type type, uint32_t operation,
		   uint32_t place, uint32_t payload_len, struct fanin_headers *headers)
{
	const struct fanin_engine_config *config = &pull->mc.engine.config;

	fanin_wire_encode_l4(headers, &config->flow, payload_len);
	fanin_wire_encode_header(&headers->fanin, type, config->job, config->epoch, config->keys.up);
	headers->udp.src_be = fanin_wire_source_port_be(place);
	headers->fanin.rank = config->rank;
	headers->fanin.contributions = 1;
	headers->fanin.block = place;
	headers->fanin.progress = operation;
}

/* ------------------------------------------------------------------ the rules */

/* Makes the rings. Returns FANIN_OK or FANIN_ERR_NO_MEMORY. */
static int
memory_make(struct fanin_pull *pull)
{
	const struct fanin_engine_config *config = &pull->mc.engine.config;
	uint32_t n_wanted = 64;

	/* Twice what all owners may ask for, as questions may come again. */
	while (n_wanted < 2u * config->size * config->window && n_wanted < WANTED_MOST)
		n_wanted *= 2;
	pull->span = config->window < PULLS_MOST ? config->window : PULLS_MOST;
	pull->slots = calloc(pull->span, sizeof(*pull->slots));
	pull->sums = malloc((size_t)pull->span * config->payload_bytes);
	pull->scratch = malloc(config->payload_bytes);
	pull->wanted = calloc(n_wanted, sizeof(*pull->wanted));
	pull->wanted_mask = n_wanted - 1;
	return pull->slots == NULL || pull->sums == NULL || pull->scratch == NULL ||
			       pull->wanted == NULL
		       ? FANIN_ERR_NO_MEMORY
		       : FANIN_OK;
}

static int
rules_open(struct fanin_engine *engine)
{
	struct fanin_pull *pull = fanin_pull_of(engine);
	int status;

	pull->config = *(const struct fanin_pull_config *)engine->config.rules_arg;
	status = fanin_multicast_rules.open(engine);
	if (status != FANIN_OK)
		return status;
	pull->isa = fanin_isa_detect();
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

	fanin_multicast_rules.close(engine);
	free(pull->slots);
	free(pull->sums);
	free(pull->scratch);
	free(pull->wanted);
}

static void
rules_send(struct fanin_engine *engine)
{
	struct fanin_pull *pull = fanin_pull_of(engine);

	/* Answers first: others wait for them. */
	pull->is_blocked = !fanin_pull_answer(pull);
	if (!pull->is_blocked)
		fanin_pull_begin(pull);
	fanin_multicast_send(engine);
}

/* A packet for this rank alone. Returns false if it is none of pull reductions. */
static bool
receive_unicast(struct fanin_pull *pull, const struct fanin_frame *frame)
{
	const struct fanin_hdr *hdr = &((const struct fanin_headers *)frame->data)->fanin;
	const bool is_of_pulls = pull->op != NULL && hdr->progress == pull->op->number &&
				 hdr->block >= pull->op->own_first && hdr->block < pull->op->own_end;

	switch (hdr->number) {
	case FANIN_MULTICAST_ASK:
		fanin_pull_receive_ask(pull, frame);
		return true;
	case FANIN_MULTICAST_GIVE:
		fanin_pull_receive_give(pull, frame);
		return true;
	case FANIN_MULTICAST_TELL:
		/* About own packets; those about others' answer a FETCH. */
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
	const struct fanin_engine_config *config = &engine->config;
	struct fanin_pull *pull = fanin_pull_of(engine);
	const bool is_mine = fanin_pull_owner(hdr->block, config->size) == config->rank;

	switch (hdr->type) {
	case FANIN_TYPE_PULL_DELIVERY:
		/* Those that came back are for their owner alone, whoever shares its port. */
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
			fanin_multicast_receive(engine, frame, block);
		break;
	default:
		fanin_multicast_receive(engine, frame, block);
		break;
	}
}

/* An operation may have ended. */
static void
rules_finish(struct fanin_engine *engine, uint32_t block)
{
	struct fanin_pull *pull = fanin_pull_of(engine);
	const uint32_t number = pull->op == NULL ? 0 : pull->op->number;

	fanin_multicast_finish(engine, block);
	if (pull->op != NULL && fanin_multicast_find(&pull->mc, number) == NULL)
		pull->op = NULL;
}

static void
rules_scan(struct fanin_engine *engine)
{
	struct fanin_pull *pull = fanin_pull_of(engine);

	fanin_multicast_scan(engine);
	if (engine->loop.status == FANIN_OK)
		fanin_loop_wake_by(&engine->loop, fanin_pull_ask_late(pull));
}

/* What was on its way in the old run is lost: it is asked for. */
static void
rules_resume(struct fanin_engine *engine)
{
	struct fanin_pull *pull = fanin_pull_of(engine);

	fanin_multicast_rules.resume(engine);
	for (uint32_t i = 0; i < pull->span; i++) {
		if (pull->slots[i].state != FANIN_PULL_DONE)
			pull->slots[i].again_ns = 0;
	}
	fanin_loop_wake_by(&engine->loop, 0);
}

const struct fanin_engine_rules fanin_pull_rules = {
	.waits_for_ranks = true,
	.samples_asked = true,
	.takes_unsent = true,
	.in_parts = true,
	.size = sizeof(struct fanin_pull),
	.open = rules_open,
	.close = rules_close,
	.send = rules_send,
	.on_answer = fanin_multicast_on_answer,
	.receive = rules_receive,
	.finish = rules_finish,
	.scan = rules_scan,
	.time_out = fanin_multicast_time_out,
	.resume = rules_resume,
};

/* ------------------------------------------------------------------ the protocol */

static int
pull_open(const struct fanin_protocol_config *config, void **engine, struct fanin_error *error)
{
	struct fanin_engine_config engine_config;
	const struct fanin_pull_config own = {
		.multicast = { .chains = (uint32_t)config->parameters[FANIN_PULL_CHAINS],
			       .hosts = config->hosts },
		.entries = (uint32_t)config->parameters[FANIN_PULL_ENTRIES],
		.waves = (uint32_t)config->parameters[FANIN_PULL_WAVES],
		.wave_blocks = (uint32_t)config->parameters[FANIN_PULL_WAVE_BLOCKS],
		.timeout_ns = config->parameters[FANIN_PULL_TIMEOUT] * 1000,
	};

	if (config->size > FANIN_PULL_RANKS_MAX)
		return fanin_error_set(error, FANIN_ERR_UNSUPPORTED,
				       "the job has %u ranks, expected at most %u of the handler pull",
				       config->size, FANIN_PULL_RANKS_MAX);
	fanin_window_config(config, &engine_config);
	engine_config.rules_arg = &own;
	/* Those of pulls, waves, and credits bound what is on its way. */
	engine_config.cc = NULL;
	return fanin_window_create(&fanin_pull_rules, &engine_config, config->transport, engine,
				   error);
}

int
fanin_pull_post(struct fanin_engine *engine, struct fanin_request *request, uint32_t n_packets)
{
	/* Places are numbers of 32 bits; see fanin_pull_place. */
	if (((uint64_t)n_packets + 1) * engine->config.size > UINT32_MAX)
		return FANIN_ERR_INVALID;
	return fanin_multicast_post(engine, request, n_packets);
}

int
fanin_pull_post_any(void *memory, struct fanin_request *request, uint64_t count)
{
	struct fanin_engine *engine = memory;
	uint64_t n_packets;

	if (engine->config.size < 2 || count == 0)
		return fanin_window_post(engine, request, count);
	n_packets = fanin_engine_cut(engine, request, count);
	if (n_packets > UINT32_MAX / 2)
		return FANIN_ERR_INVALID;
	if (request->stride != 0)
		n_packets = (n_packets - request->start - 1) / request->stride + 1;
	return fanin_request_combines(request)
		       ? fanin_pull_post(engine, request, (uint32_t)n_packets)
		       : fanin_multicast_post(engine, request, (uint32_t)n_packets);
}

static void
pull_report(const void *engine, struct fanin_report *report)
{
	const struct fanin_multicast_stats *stats = fanin_multicast_stats(engine);

	fanin_window_report(engine, report);
	report->multicast_operations = stats->operations;
	report->multicast_packets = stats->packets;
	report->multicast_fetched = stats->fetched;
	report->multicast_late = stats->late;
}

uint64_t
fanin_pull_idle_ns(const struct fanin_engine *engine)
{
	const struct fanin_pull *pull = (const struct fanin_pull *)engine;
	const uint64_t idle_ns = fanin_multicast_idle_ns(engine);

	if (!pull->is_blocked || engine->loop.status != FANIN_OK || engine->run_lost)
		return idle_ns;
	/* Nothing signals when there is room again. */
	return idle_ns < FULL_IDLE_NS ? idle_ns : FULL_IDLE_NS;
}

static uint64_t
pull_idle_ns(const void *engine)
{
	return fanin_pull_idle_ns(engine);
}

const struct fanin_pull_stats *
fanin_pull_stats(const struct fanin_engine *engine)
{
	return &((const struct fanin_pull *)engine)->stats;
}

static const char *const handlers[] = { "pull", NULL };

static struct fanin_protocol fanin_protocol_pull = {
	.name = "pull",
	.handlers = handlers,
	.collectives = FANIN_WINDOW_COLLECTIVES,
	FANIN_WINDOW_FUNCTIONS,
	.has_tags = true,
	.in_flight = fanin_multicast_in_flight,
	.open = pull_open,
	.post = fanin_pull_post_any,
	.idle_ns = pull_idle_ns,
	.report = pull_report,
};

FANIN_PROTOCOL_REGISTER(fanin_protocol_pull)
