/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The two windows, and what GACKs and AACKs do to them (PA-ATP section III.B.1). Called by the poll
 * loop only, unless said otherwise.
 */
#include "pa_atp_internal.h"

#include <stdlib.h>
#include <string.h>

#include "protocols/pa_atp/pa_atp.h"

/* The ECN codepoint of packets that may be marked (RFC 3168). */
#define ECT_0 2

/* Begins a run; its first block is the engine's oldest. */
static void
run_begin(struct fanin_pa_atp *pa)
{
	const uint32_t first = pa->engine.oldest;

	memset(pa->lanes, 0, pa->engine.config.window * sizeof(*pa->lanes));
	pa->next = first;
	pa->gacked = first;
	pa->newest = first - 1;
	pa->gap_end = first;
	pa->in_flight = 0;
	pa->sum = 0;
	pa->is_lacked = false;
	pa->gacked_order = pa->engine.order - 1;
	fanin_dual_init(&pa->dual, pa->type, &pa->settings);
}

/* Reads the job's parameters. Returns FANIN_OK or FANIN_ERR_UNSUPPORTED. */
static int
settings_make(struct fanin_pa_atp *pa, struct fanin_error *error)
{
	const struct fanin_protocol_config *config = &pa->engine.config;
	const uint64_t *parameters = config->parameters;
	const uint64_t congestion = parameters[FANIN_PA_ATP_CONGESTION];

	if (congestion >= FANIN_DUAL_TYPES)
		return fanin_error_set(
			error, FANIN_ERR_UNSUPPORTED,
			"the job's congestion control has the number %llu, this library knows 0 to %u",
			(unsigned long long)congestion, FANIN_DUAL_TYPES - 1);
	pa->type = &fanin_dual_types[congestion];
	pa->settings = (struct fanin_dual_settings){
		.limit = config->window,
		.aggregators = config->slots,
		.sharing_jobs = config->sharing_jobs,
		.n_ranks = config->size,
		.fixed_window = (uint32_t)parameters[FANIN_PA_ATP_FIXED_WINDOW],
		.p_max = (double)parameters[FANIN_PA_ATP_P_MAX] / 100,
	};
	return FANIN_OK;
}

static int
pa_open(struct fanin_engine *engine, struct fanin_error *error)
{
	struct fanin_pa_atp *pa = fanin_pa_atp_of(engine);
	const int status = settings_make(pa, error);

	if (status != FANIN_OK)
		return status;
	pa->lanes = calloc(engine->config.window, sizeof(*pa->lanes));
	if (pa->lanes == NULL)
		return FANIN_ERR_NO_MEMORY;
	run_begin(pa);
	return FANIN_OK;
}

static void
pa_close(struct fanin_engine *engine)
{
	free(fanin_pa_atp_of(engine)->lanes);
}

static void
pa_resume(struct fanin_engine *engine)
{
	run_begin(fanin_pa_atp_of(engine));
}

static bool
may_send(struct fanin_engine *engine, const struct fanin_lane *lane)
{
	struct fanin_pa_atp *pa = fanin_pa_atp_of(engine);

	if (!fanin_dual_may_send(&pa->dual, pa->in_flight, lane->block - engine->oldest))
		return false;
	*fanin_pa_atp_lane(pa, lane->block) = (struct fanin_pa_atp_lane){ 0 };
	pa->in_flight++;
	return true;
}

static void
pa_send(struct fanin_engine *engine)
{
	fanin_engine_queue_in_order(engine, &fanin_pa_atp_of(engine)->next, may_send);
	fanin_engine_send_queued(engine);
}

static struct fanin_dual_sample
sample_make(const struct fanin_pa_atp *pa, uint32_t block, bool ce)
{
	const uint32_t base = pa->engine.base;

	return (struct fanin_dual_sample){
		.block = block - base,
		.next = pa->next - base,
		.gacked = pa->gacked - base,
		.aacked = pa->engine.oldest - base,
		.ce = ce,
	};
}

/* Advances the first block without GACK. */
static void
gacked_advance(struct fanin_pa_atp *pa)
{
	if (fanin_block_before(pa->gacked, pa->engine.oldest))
		pa->gacked = pa->engine.oldest;
	while (pa->gacked != pa->next && fanin_pa_atp_lane(pa, pa->gacked)->gacked)
		pa->gacked++;
}

/* The switch has acknowledged the lane's block. */
static void
lane_acknowledge(struct fanin_pa_atp *pa, const struct fanin_lane *lane)
{
	struct fanin_engine *engine = &pa->engine;
	struct fanin_pa_atp_lane *own = fanin_pa_atp_lane(pa, lane->block);

	own->gacked = true;
	if (pa->dual.type->clock == FANIN_DUAL_GACK)
		pa->in_flight--;
	/*
	 * If a block was sent twice, it is unknown which copy was acknowledged. Time during which
	 * the caller was away does not measure the network.
	 */
	if (lane->transmissions == 1 && own->direct_ns == 0 &&
	    lane->sent_ns >= engine->loop.resumed_ns) {
		fanin_rtt_sample(&engine->rtt, engine->loop.now_ns - lane->sent_ns);
		pa->gack_doublings = 0;
	}
	/*
	 * A GACK that comes this soon after the second copy belongs to the first one, and has
	 * overtaken nothing.
	 */
	if (fanin_block_before(pa->gacked_order, lane->order) &&
	    (lane->transmissions == 1 ||
	     engine->loop.now_ns - lane->sent_ns >= engine->rtt.smoothed_ns / 2))
		pa->gacked_order = lane->order;
	gacked_advance(pa);
	/* All earlier transmissions without GACK may be due now: see pa_atp_timer.c. */
	fanin_loop_wake_by(&engine->loop,
			   engine->loop.now_ns + (lane->transmissions != 1
							  ? 0
							  : fanin_engine_query_wait_ns(engine)));
}

static void
receive_gack(struct fanin_pa_atp *pa, const struct fanin_hdr *hdr, uint32_t block)
{
	struct fanin_engine *engine = &pa->engine;
	const struct fanin_lane *lane = fanin_engine_lane(engine, block);
	const bool ce = (hdr->flags & FANIN_FLAG_CE) != 0;
	struct fanin_dual_sample sample;

	/* The GACK is for another host behind the same port. */
	if (hdr->count != engine->config.rank)
		return;
	pa->stats.gacks++;
	pa->stats.marks += ce && pa->dual.type->clock == FANIN_DUAL_GACK;
	pa->gack_ns = engine->loop.now_ns;
	/* A duplicate, or later than the result. */
	if (lane->block != block || lane->state != FANIN_LANE_SENT ||
	    lane->role != FANIN_LANE_DENSE || fanin_pa_atp_lane(pa, block)->gacked)
		return;
	lane_acknowledge(pa, lane);
	sample = sample_make(pa, block, ce);
	if (hdr->members > pa->sum)
		pa->sum = hdr->members;
	sample.sum = pa->sum;
	fanin_dual_on_gack(&pa->dual, &sample);
}

static void
pa_receive(struct fanin_engine *engine, const struct fanin_frame *frame, uint32_t block)
{
	struct fanin_pa_atp *pa = fanin_pa_atp_of(engine);
	const struct fanin_hdr *hdr = &((const struct fanin_headers *)frame->data)->fanin;

	switch (hdr->type) {
	case FANIN_TYPE_GACK:
		receive_gack(pa, hdr, block);
		break;
	case FANIN_TYPE_REPEAT:
		engine->heard_ns = engine->loop.now_ns;
		if (fanin_engine_lane(engine, block)->block == block)
			fanin_pa_atp_lane(pa, block)->disturbed = true;
		fanin_engine_receive_result(engine, frame, block);
		break;
	case FANIN_TYPE_ASK:
		engine->heard_ns = engine->loop.now_ns;
		fanin_pa_atp_receive_ask(pa, hdr, block);
		break;
	default:
		engine->stats.invalid++;
		break;
	}
}

/* Another rank has told the result of a block that this rank has not sent, and never will. */
static void
finish_unsent(struct fanin_pa_atp *pa, uint32_t block)
{
	struct fanin_engine *engine = &pa->engine;

	*fanin_pa_atp_lane(pa, block) = (struct fanin_pa_atp_lane){ .gacked = true };
	while (pa->next != engine->end && fanin_engine_is_done(engine, pa->next))
		pa->next++;
	gacked_advance(pa);
}

/* Updates the windows with the result of a block that was sent. */
static void
finish_sent(struct fanin_pa_atp *pa, uint32_t block)
{
	struct fanin_engine *engine = &pa->engine;
	struct fanin_pa_atp_lane *own = fanin_pa_atp_lane(pa, block);
	const uint64_t sent_ns = fanin_engine_lane(engine, block)->sent_ns; /* its next block waits
									     */
	const bool ce = (engine->result_flags & FANIN_FLAG_CE) != 0;
	struct fanin_dual_sample sample;

	if (pa->dual.type->clock == FANIN_DUAL_AACK || !own->gacked)
		pa->in_flight--;
	own->gacked = true;
	/* The result was late rather than lost, so results may take this long. */
	if (own->asked && !own->disturbed && sent_ns >= engine->loop.resumed_ns)
		fanin_rtt_sample(&engine->block_time, engine->loop.now_ns - sent_ns);
	gacked_advance(pa);
	sample = sample_make(pa, block, ce);
	sample.aecn = (engine->result_flags & FANIN_FLAG_AECN) != 0;
	pa->stats.aecns += sample.aecn;
	pa->stats.marks += ce && pa->dual.type->clock == FANIN_DUAL_AACK;
	fanin_dual_on_aack(&pa->dual, &sample);
}

static void
pa_finish(struct fanin_engine *engine, uint32_t block)
{
	struct fanin_pa_atp *pa = fanin_pa_atp_of(engine);

	pa->stats.aacks++;
	if (fanin_block_before(block, pa->next))
		finish_sent(pa, block);
	else
		finish_unsent(pa, block);
	if (fanin_block_before(pa->newest, block))
		pa->newest = block;
	if (fanin_block_before(engine->oldest, block))
		fanin_pa_atp_gap_check(pa);
}

const struct fanin_engine_rules fanin_pa_atp_rules = {
	.size = sizeof(struct fanin_pa_atp),
	.takes_unsent = true,
	.bounds_flight = true, /* by CWD and AWD */
	.no_wide = true,
	.ranks_max = FANIN_SERVER_RANKS_MAX,
	.tos = ECT_0,
	.open = pa_open,
	.close = pa_close,
	.send = pa_send,
	.filter_missing = fanin_pa_atp_filter_missing,
	.receive = pa_receive,
	.finish = pa_finish,
	.scan = fanin_pa_atp_scan,
	.resume = pa_resume,
	.explain = fanin_pa_atp_explain,
};

const struct fanin_dual *
fanin_pa_atp_dual(struct fanin_endpoint *endpoint)
{
	return &fanin_pa_atp_of(fanin_engine_of(endpoint))->dual;
}

const struct fanin_pa_atp_stats *
fanin_pa_atp_stats(struct fanin_endpoint *endpoint)
{
	return &fanin_pa_atp_of(fanin_engine_of(endpoint))->stats;
}

uint32_t
fanin_pa_atp_in_flight(struct fanin_endpoint *endpoint)
{
	return fanin_pa_atp_of(fanin_engine_of(endpoint))->in_flight;
}
