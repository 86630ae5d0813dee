/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Canary: requests, blocks on their way to their leaders, and results. Block b is sent once all results up to b - W are there. A result counts only for
 * the lane that has its block and waits, so duplicates and late ones change nothing.
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

/* As fanin_loop_ops has it. */
static void
engine_send(struct fanin_loop *loop)
{
	struct fanin_canary *engine = canary_of(loop);

	engine->was_full = false;
	fanin_canary_send_unsent(engine);
	while (loop->status == FANIN_OK && !engine->was_full && may_send(engine) && send_next(engine))
		;
}

/* ------------------------------------------------------------------ results */

void
fanin_canary_fail(struct fanin_canary *engine, int status)
{
	engine->sending = NULL;
	fanin_loop_fail(&engine->loop, status);
}

void
fanin_canary_abort(struct fanin_canary *engine, int status, const struct fanin_error *error)
{
	if (engine->loop.status != FANIN_OK)
		return;
	engine->loop.error = *error;
	fanin_canary_fail(engine, status);
}

/*
 * Copies what this rank keeps of a result. Returns false if the frame is lost: it is then treated as never received.
 */
static bool
result_keep(struct fanin_canary *engine, const struct canary_lane *lane,
	    const struct fanin_extent *extent, const struct fanin_frame *frame, const uint8_t *data)
{
	const struct fanin_request *request = lane->request;
	uint64_t first = extent->offset;
	uint64_t end = extent->offset + extent->len;
	uint8_t *to;

	if (first < request->recv_offset)
		first = request->recv_offset;
	if (end > request->recv_offset + request->recv_bytes)
		end = request->recv_offset + request->recv_bytes;
	if (first >= end)
		return true;
	to = request->recv + (first - request->recv_offset);
	if (data == NULL)
		return fanin_frame_copy(engine->loop.transport, frame,
					FANIN_PAYLOAD_OFFSET + (uint32_t)(first - extent->offset),
					to, (uint32_t)(end - first));
	memcpy(to, data + (first - extent->offset), end - first);
	return true;
}

/* A block has a result: those before it that have none are overtaken, from the first time on. */
static void
note_overtaken(struct fanin_canary *engine, uint32_t block)
{
	if (!fanin_block_before(engine->newest, block))
		return;
	for (uint32_t i = engine->newest + 1; i != block; i++) {
		struct canary_lane *lane = canary_lane(engine, i);

		if (!fanin_block_before(i, engine->oldest) && lane->state == CANARY_LANE_SENT) {
			lane->overtaken_ns = engine->loop.now_ns;
			fanin_loop_wake_by(&engine->loop,
					   engine->loop.now_ns + fanin_canary_usual_ns(engine));
		}
	}
	engine->newest = block;
}

/*
 * Has a block taken longer than others? Before there is a sample nothing says how much longer it may take, nor do others if switches wait for long.
 */
static bool
may_be_lost(const struct fanin_canary *engine, const struct canary_lane *lane)
{
	const struct fanin_rtt *times = &engine->block_time;

	return times->smoothed_ns != 0 &&
	       engine->loop.now_ns - lane->sent_ns >=
		       times->smoothed_ns + 4 * times->variance_ns + engine->fixed_ns;
}

/* Counts the later results of the same leader for blocks that lack theirs: after some of them one is lost rather than late. */
static void
check_gaps(struct fanin_canary *engine, uint32_t block)
{
	const uint32_t n = engine->config.size;

	/* None if it was the oldest one itself. */
	if (fanin_block_before(block, engine->oldest))
		return;
	for (uint32_t k = 1; k <= (block - engine->oldest) / n; k++) {
		const uint32_t before = block - k * n;
		struct canary_lane *lane = canary_lane(engine, before);

		if (lane->state == CANARY_LANE_SENT && ++lane->n_later >= CANARY_GAP &&
		    !lane->asked && may_be_lost(engine, lane))
			fanin_canary_lane_ask(engine, lane);
	}
}

/*
 * Learns how long blocks take, but for those whose time is unknown, or that others are known to have been late for. What others had lost may have taken the time, or
 * their windows may have been full for that: a block does not count for more than a round trip and all timers on the way, or losses would make all ranks wait
 * longer and longer before they ask.
 */
static void
note_time(struct fanin_canary *engine, const struct canary_lane *lane)
{
	const uint64_t most_ns = engine->rtt.rto_ns + engine->timers_ns;
	struct fanin_cc_sample sample = {
		.now_ns = engine->loop.now_ns,
		.delay_ns = engine->loop.now_ns - lane->sent_ns,
		.block = lane->block,
		.generation = lane->generation,
	};

	if (lane->resent || lane->sent_ns < engine->loop.resumed_ns ||
	    lane->sent_ns <= engine->late_ns || canary_leads(engine, lane->block))
		return;
	if (sample.delay_ns > most_ns)
		sample.delay_ns = most_ns;
	fanin_rtt_sample(&engine->block_time, sample.delay_ns);
	if (!lane->asked)
		engine->cc.type->on_delay(&engine->cc, &sample);
}

static void
advance(struct fanin_canary *engine)
{
	const uint32_t before = engine->oldest;

	while (engine->oldest != engine->next &&
	       canary_lane(engine, engine->oldest)->state == CANARY_LANE_DONE)
		engine->oldest++;
	if (engine->oldest == before)
		return;
	engine->oldest_ns = engine->loop.now_ns;
	fanin_loop_wake_by(&engine->loop, engine->loop.now_ns + fanin_canary_usual_ns(engine));
}

/* The result does not fit what this rank posted. */
static void
result_misfit(struct fanin_canary *engine, uint32_t block, const struct fanin_hdr *hdr)
{
	if (fanin_wire_is_empty(hdr))
		fanin_error_set(&engine->loop.error, 0, "no rank brought data for block %u", block);
	else
		fanin_error_set(
			&engine->loop.error, 0,
			"the result of block %u holds %u elements %s %s, which is not what this rank posted",
			block, hdr->count, fanin_dtype_name(hdr->dtype), fanin_op_name(hdr->op));
	fanin_canary_fail(engine, FANIN_ERR_REFUSED);
}

void
fanin_canary_take_result(struct fanin_canary *engine, struct canary_lane *lane,
			 const struct fanin_hdr *hdr, const struct fanin_frame *frame,
			 const uint8_t *data)
{
	struct fanin_request *request = lane->request;
	const struct fanin_extent extent = fanin_request_extent(request, lane->block);
	const uint32_t block = lane->block;
	struct fanin_hdr posted = { 0 };
	uint32_t len;

	(void)fanin_canary_data(lane, &posted, &len);
	if (fanin_wire_shape(hdr) != fanin_wire_shape(&posted) || fanin_wire_is_empty(hdr)) {
		result_misfit(engine, block, hdr);
		return;
	}
	if (!result_keep(engine, lane, &extent, frame, data)) {
		engine->stats.invalid++;
		return;
	}
	lane->state = CANARY_LANE_DONE;
	engine->in_flight--;
	engine->progress_ns = engine->loop.now_ns;
	engine->loop.tx_errnum = 0;
	engine->stats.blocks++;
	engine->stats.bytes_reduced += extent.len;
	note_time(engine, lane);
	note_overtaken(engine, block);
	advance(engine);
	check_gaps(engine, block);
	if (!engine->started && block == 0)
		engine->started = true;
	request->done_bytes += extent.len;
	if (++request->done_blocks == request->n_blocks)
		fanin_request_list_finish(&engine->loop.requests, request);
}

/* The answer to a QUERY of this number has come: a round trip. 0: to none. */
static void
note_answer(struct fanin_canary *engine, uint64_t number)
{
	struct canary_question *question = &engine->questions[number % CANARY_QUESTIONS];

	if (number == 0 || question->number != number)
		return;
	if (question->sent_ns >= engine->loop.resumed_ns)
		fanin_rtt_sample(&engine->rtt, engine->loop.now_ns - question->sent_ns);
	question->number = 0;
}

static void
receive_result(struct fanin_canary *engine, const struct fanin_frame *frame)
{
	const struct fanin_hdr *hdr = &((const struct fanin_headers *)frame->data)->fanin;
	struct canary_lane *lane = canary_lane(engine, hdr->block);
	const uint16_t leader = canary_leader_of(engine, hdr->block);

	if (leader == engine->config.rank) {
		engine->stats.invalid++;
		return;
	}
	/* A RESULT is its leaf's. */
	fanin_canary_hear_from(engine, leader, frame->data);
	if (hdr->type == FANIN_TYPE_REPEAT)
		note_answer(engine, hdr->members);
	if (lane->block != hdr->block || lane->state != CANARY_LANE_SENT) {
		engine->stats.duplicates++;
		return;
	}
	if (hdr->type == FANIN_TYPE_REPEAT) {
		lane->resent = true;
		engine->cc.type->on_loss(&engine->cc, engine->loop.now_ns);
	}
	fanin_canary_take_result(engine, lane, hdr, frame, NULL);
}

/* ------------------------------------------------------------------ what leaders say */

/*
 * A leader lacks this rank's data: sends it past all descriptors, if it was sent longer ago than blocks usually take, and not again since. Returns false if it
 * was not.
 */
static bool
data_resend(struct fanin_canary *engine, struct canary_lane *lane)
{
	uint64_t usual_ns = engine->block_time.smoothed_ns;

	if (usual_ns < engine->rtt.smoothed_ns)
		usual_ns = engine->rtt.smoothed_ns;
	if (engine->loop.now_ns - lane->sent_ns < usual_ns)
		return false;
	if (lane->direct_ns != 0 && engine->loop.now_ns - lane->direct_ns < usual_ns / 2)
		return true;
	if (!lane->resent)
		engine->cc.type->on_loss(&engine->cc, engine->loop.now_ns);
	lane->resent = true;
	if (fanin_canary_send_data(engine, lane, true)) {
		lane->direct_ns = engine->loop.now_ns;
		engine->stats.retransmits++;
	}
	return true;
}

static void
receive_ask(struct fanin_canary *engine, const struct fanin_headers *asked)
{
	const struct canary_packet packet = { .flow = (uint32_t)engine->stats.frames_sent,
					      .is_reply = true };
	const struct fanin_hdr *hdr = &asked->fanin;
	const uint16_t leader = canary_leader_of(engine, hdr->block);
	struct canary_lane *lane = canary_lane(engine, hdr->block);
	struct fanin_headers headers;

	if (leader == engine->config.rank || (hdr->members >> engine->config.rank & 1) == 0) {
		engine->stats.invalid++;
		return;
	}
	fanin_canary_hear_from(engine, leader, asked);
	if (lane->block == hdr->block && lane->state == CANARY_LANE_SENT && data_resend(engine, lane))
		return;
	fanin_canary_begin(engine, FANIN_TYPE_HERE, hdr->block, &headers);
	(void)fanin_canary_send_to(engine, &headers, leader, &packet);
}

static void
end_by_gone(struct fanin_canary *engine, uint32_t block, uint64_t gone)
{
	char ranks[128];

	fanin_canary_note_end(engine, CANARY_END_GONE, gone);
	engine->loop.error.missing = fanin_ranks_of_word(gone);
	fanin_error_set(&engine->loop.error, 0,
			"block %u waits for %s (of %u), which %s not answer, as another rank says",
			block, fanin_format_ranks(&engine->loop.error.missing, ranks, sizeof(ranks)),
			engine->config.size, (gone & (gone - 1)) == 0 ? "does" : "do");
	engine->loop.error.missing = fanin_ranks_of_word(gone);
	fanin_canary_fail(engine, FANIN_ERR_TIMEOUT);
}

static void
receive_answer(struct fanin_canary *engine, const struct fanin_frame *frame)
{
	const struct fanin_hdr *hdr = &((const struct fanin_headers *)frame->data)->fanin;
	const uint16_t leader = canary_leader_of(engine, hdr->block);
	struct canary_lane *lane = canary_lane(engine, hdr->block);
	uint64_t sets[2], missing, ended, silent;

	if (leader == engine->config.rank ||
	    frame->len < FANIN_PAYLOAD_OFFSET + sizeof(struct fanin_answer_body) + sizeof(sets) ||
	    !fanin_frame_copy(engine->loop.transport, frame,
			      FANIN_PAYLOAD_OFFSET + sizeof(struct fanin_answer_body), sets,
			      sizeof(sets))) {
		engine->stats.invalid++;
		return;
	}
	fanin_canary_hear_from(engine, leader, frame->data);
	note_answer(engine, hdr->number);
	fanin_answer_decode_word(sets[0] & engine->all, sets[1] & engine->all, &missing, &ended,
				 &silent);
	if ((ended | silent) != 0) {
		end_by_gone(engine, hdr->block, ended | silent);
		return;
	}
	if (hdr->count == FANIN_BLOCK_ABSENT) {
		fanin_canary_note_end(engine, CANARY_END_MISMATCH, missing);
		fanin_canary_end_mismatch(engine, hdr->block, missing);
		return;
	}
	if (lane->block != hdr->block || lane->state != CANARY_LANE_SENT)
		return;
	if (hdr->count == FANIN_BLOCK_DONE) {
		/* What has been sent to all by now should be here within a round trip. */
		lane->ask_ns = engine->loop.now_ns + engine->rtt.rto_ns;
		lane->ask_wait_ns = 0;
		fanin_loop_wake_by(&engine->loop, lane->ask_ns);
		return;
	}
	engine->told_block = hdr->block;
	engine->told = missing;
	/* That this rank's own data is missing does not mean that others are late. */
	if ((missing & engine->others) != 0)
		engine->late_ns = engine->loop.now_ns;
	/* As if the leader had asked for it: that may be lost. */
	if ((missing & ~engine->others) != 0)
		(void)data_resend(engine, lane);
}

/* A rank is there, but has not sent a block that this one leads. */
static void
receive_here(struct fanin_canary *engine, const struct fanin_headers *headers)
{
	const struct fanin_hdr *hdr = &headers->fanin;

	if (hdr->rank >= engine->config.size || !canary_leads(engine, hdr->block)) {
		engine->stats.invalid++;
		return;
	}
	fanin_canary_hear_from(engine, hdr->rank, headers);
	if (canary_lane(engine, hdr->block)->block == hdr->block &&
	    canary_lane(engine, hdr->block)->state == CANARY_LANE_SENT &&
	    (fanin_canary_lacks(engine, hdr->block) >> hdr->rank & 1) != 0)
		engine->late_ns = engine->loop.now_ns;
}

/* ------------------------------------------------------------------ receiving */

/* A valid packet of the job, of whichever run. */
static bool
admits(const struct fanin_canary *engine, const struct fanin_frame *frame)
{
	const struct fanin_headers *headers = frame->data;
	const struct fanin_hdr *hdr = &headers->fanin;
	const struct fanin_keys *keys = &engine->config.keys;

	return fanin_wire_validate(headers, frame->len) == FANIN_REASON_NONE &&
	       hdr->job == engine->config.job &&
	       hdr->key == (fanin_type_direction(hdr->type) == FANIN_UP ? keys->up : keys->down);
}

static void
receive_in_run(struct fanin_canary *engine, const struct fanin_frame *frame)
{
	const struct fanin_hdr *hdr = &((const struct fanin_headers *)frame->data)->fanin;

	switch (hdr->type) {
	case FANIN_TYPE_RESULT:
	case FANIN_TYPE_REPEAT:
		receive_result(engine, frame);
		break;
	case FANIN_TYPE_REDUCE:
		fanin_canary_receive_data(engine, frame);
		break;
	case FANIN_TYPE_ASK:
		receive_ask(engine, frame->data);
		break;
	case FANIN_TYPE_HERE:
		receive_here(engine, frame->data);
		break;
	case FANIN_TYPE_QUERY:
		fanin_canary_receive_query(engine, frame->data);
		break;
	case FANIN_TYPE_ANSWER:
		receive_answer(engine, frame);
		break;
	case FANIN_TYPE_BYE:
		fanin_canary_receive_bye(engine, hdr);
		break;
	default:
		engine->stats.invalid++;
		break;
	}
}

/* As fanin_loop_ops has it. */
static void
engine_receive(struct fanin_loop *loop, const struct fanin_frame *frame)
{
	struct fanin_canary *engine = canary_of(loop);
	const struct fanin_hdr *hdr = &((const struct fanin_headers *)frame->data)->fanin;

	if (loop->status != FANIN_OK)
		return;
	engine->stats.frames_received++;
	if (!admits(engine, frame)) {
		engine->stats.invalid++;
		return;
	}
	fanin_canary_hear_way(engine, frame->data);
	if (hdr->type == FANIN_TYPE_CALL)
		fanin_canary_receive_call(engine, frame);
	else if (hdr->type == FANIN_TYPE_ROLL)
		fanin_canary_receive_roll(engine, frame);
	else if (engine->begun && hdr->epoch == engine->run)
		receive_in_run(engine, frame);
	else if (!engine->begun && engine->config.rank != 0)
		/* Others have begun: the ROLL that said so is lost. */
		fanin_loop_wake_by(loop, engine->call_ns = loop->now_ns);
	else
		engine->stats.invalid++;
}

/* As fanin_loop_ops has it. */
static void
engine_away(struct fanin_loop *loop, uint64_t by_ns, bool received)
{
	struct fanin_canary *engine = canary_of(loop);

	engine->progress_ns = fanin_absence_move(engine->progress_ns, by_ns, loop->now_ns);
	if (engine->late_ns != 0)
		engine->late_ns = fanin_absence_move(engine->late_ns, by_ns, loop->now_ns);
	for (unsigned int i = 0; i < engine->config.size; i++) {
		uint64_t *asked_ns = &engine->peers[i].asked_ns;

		if (*asked_ns != 0)
			*asked_ns = fanin_absence_move(*asked_ns, by_ns, loop->now_ns);
	}
	if (received && loop->next_timer_ns < loop->now_ns + engine->rtt.rto_ns)
		loop->next_timer_ns = loop->now_ns + engine->rtt.rto_ns;
}

static const struct fanin_loop_ops loop_ops = {
	.receive = engine_receive,
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
fanin_canary_create(const struct fanin_protocol_config *config, const struct fanin_canary_seed *seed,
		    struct fanin_canary **engine, struct fanin_error *error)
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
		fanin_canary_destroy(created);
		return fanin_error_set(error, FANIN_ERR_NO_MEMORY,
				       "out of memory for %u blocks in flight", config->window);
	}
	fanin_loop_init(&created->loop, &loop_ops, config->transport, &clock, config->timeout_ns,
			2u * config->window);
	created->isa = fanin_isa_detect();
	created->fixed_ns = timers_together_ns(config->parameters[FANIN_CANARY_TIMEOUT]);
	created->timers_ns = created->fixed_ns != 0
				     ? created->fixed_ns
				     : timers_together_ns(config->parameters[FANIN_CANARY_MOST]);
	created->all = fanin_ranks_all_word(config->size, 0);
	created->others = created->all & ~(UINT64_C(1) << config->rank);
	created->newest = UINT32_MAX;
	fanin_rtt_init(&created->rtt);
	fanin_rtt_init(&created->block_time);
	fanin_cc_init(&created->cc,
		      config->transport->ops->shares_memory ? &fanin_cc_fixed : &fanin_cc_delay,
		      config->window);
	append_start(created);
	created->loop.now_ns = fanin_loop_clock_ns(&created->loop);
	created->progress_ns = created->loop.now_ns;
	fanin_canary_roll_begin(created);
	*engine = created;
	return FANIN_OK;
}

void
fanin_canary_destroy(struct fanin_canary *engine)
{
	if (engine == NULL)
		return;
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
	       fanin_kernel(engine->isa, request->dtype, request->op) != NULL;
}

int
fanin_canary_post(struct fanin_canary *engine, struct fanin_request *request, uint64_t count)
{
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

/* The run has ended for all: who asks is told so, for a while. */
static int
linger(struct fanin_canary *engine)
{
	struct fanin_transport *transport = engine->loop.transport;
	struct fanin_frame frames[32];
	unsigned int n;

	if (engine->why == CANARY_END_NONE)
		return engine->loop.status;
	engine->loop.now_ns = fanin_loop_clock_ns(&engine->loop);
	if (engine->loop.now_ns >= engine->until_ns) {
		engine->why = CANARY_END_NONE;
		return engine->loop.status;
	}
	n = transport->ops->rx_burst(transport, frames, 32);
	for (unsigned int i = 0; i < n; i++) {
		const struct fanin_hdr *hdr = &((const struct fanin_headers *)frames[i].data)->fanin;

		if (admits(engine, &frames[i]) &&
		    (hdr->type == FANIN_TYPE_QUERY || hdr->type == FANIN_TYPE_ASK) &&
		    hdr->epoch == engine->run && hdr->rank < engine->config.size)
			fanin_canary_tell_end(engine, hdr->rank);
	}
	if (n != 0)
		transport->ops->rx_release(transport, frames, n);
	(void)transport->ops->tx_flush(transport);
	return engine->loop.status;
}

int
fanin_canary_poll(struct fanin_canary *engine)
{
	return engine->loop.status != FANIN_OK ? linger(engine) : fanin_loop_poll(&engine->loop);
}

uint64_t
fanin_canary_idle_ns(const struct fanin_canary *engine)
{
	const uint64_t now_ns = fanin_loop_clock_ns(&engine->loop);
	uint64_t next_ns = engine->loop.next_timer_ns;

	if (engine->loop.status != FANIN_OK)
		return engine->why != CANARY_END_NONE && engine->until_ns > now_ns
			       ? engine->until_ns - now_ns
			       : UINT64_MAX;
	if (engine->loop.requests.first == NULL)
		return UINT64_MAX;
	if (engine->was_full)
		return CANARY_NO_ROOM_NS;
	/* There may be no question due while nothing is in flight; others have a deadline all the same. */
	if (next_ns > now_ns + engine->config.timeout_ns / 5)
		next_ns = now_ns + engine->config.timeout_ns / 5;
	return next_ns > now_ns ? next_ns - now_ns : 0;
}

unsigned int
fanin_canary_poll_fds(struct fanin_canary *engine, struct pollfd *fds)
{
	/* Nothing is received any more, and descriptors would stay ready for ever. */
	if (engine->loop.status != FANIN_OK && engine->why == CANARY_END_NONE)
		return 0;
	return engine->loop.transport->ops->poll_fds(engine->loop.transport, fds);
}

const struct fanin_error *
fanin_canary_error(const struct fanin_canary *engine)
{
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
fanin_canary_missing(const struct fanin_canary *engine, struct fanin_ranks *ranks)
{
	*ranks = engine->loop.status != FANIN_OK ? engine->loop.error.missing
						 : fanin_ranks_of_word(waits_for(engine));
}

uint64_t
fanin_canary_late(const struct fanin_canary *engine)
{
	uint64_t late = engine->loop.status != FANIN_OK ? 0 : waits_for(engine);

	for (unsigned int i = 0; i < engine->config.size; i++) {
		if (engine->peers[i].asked_ns != 0)
			late &= ~(UINT64_C(1) << i);
	}
	return late;
}

bool
fanin_canary_is_needed(const struct fanin_canary *engine)
{
	return engine->loop.status == FANIN_OK && engine->started &&
	       engine->loop.requests.first == NULL && engine->config.size > 1;
}

const struct fanin_canary_stats *
fanin_canary_stats(const struct fanin_canary *engine)
{
	return &engine->stats;
}
