/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The hosts' side of "acked": sends one block after the other to the switch, repeated until its
 * result comes, and acknowledges each result. Old results are acknowledged again: their
 * acknowledgement was lost.
 */
#include <stddef.h>
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "../acked.h"
#include "hostlib/src/base/absence.h"
#include "hostlib/src/loop/loop.h"
#include "hostlib/src/protocol/protocol.h"

/*
 * Interval until a contribution is sent again; it doubles each time, but stays below an absence of
 * the caller.
 */
#define RETRY_FIRST_NS (2 * UINT64_C(1000000))
#define RETRY_MAX_NS (50 * UINT64_C(1000000))
#define NO_ROOM_NS (100 * UINT64_C(1000))
#define MAX_BLOCKS (UINT64_C(1) << 31)

struct acked_engine {
	struct fanin_endpoint endpoint; /* first, so that a pointer to it is one to the engine */
	struct fanin_loop loop;
	struct fanin_protocol_config config;
	uint32_t block;             /* the one whose result is awaited; all before it are done */
	uint32_t end;               /* after the last posted block */
	bool sent;                  /* its contribution has been sent at least once */
	uint64_t retry_ns;          /* when it is sent again */
	uint64_t wait_ns;           /* current interval */
	uint64_t progress_ns;       /* of the last result, or of the post that ended an idle time */
	struct fanin_ranks missing; /* as far as the switch has told */
	uint64_t blocks;
	uint64_t bytes;
	uint64_t sent_frames;
	uint64_t received_frames;
	uint64_t retransmits;
	uint64_t duplicates;
	uint64_t invalid;
};

static struct fanin_protocol acked_protocol;

static struct acked_engine *
engine_of(struct fanin_endpoint *endpoint)
{
	assert(endpoint->protocol == &acked_protocol);
	return (struct acked_engine *)endpoint;
}

static struct acked_engine *
engine_of_loop(struct fanin_loop *loop)
{
	return (struct acked_engine *)((char *)loop - offsetof(struct acked_engine, loop));
}

/* ------------------------------------------------------------------ sending */

/*
 * Sends a packet whose header has what only its caller knows. Returns false if there is no room
 * now.
 */
static bool
engine_transmit(struct acked_engine *engine, unsigned int type, const struct fanin_hdr *fields,
		const void *payload, uint32_t payload_len)
{
	const struct fanin_protocol_config *config = &engine->config;
	struct fanin_headers headers;

	fanin_wire_encode_l4(&headers, &config->flow, payload_len);
	headers.udp.src_be = fanin_wire_source_port_be(fields->block, config->port_shift);
	fanin_wire_encode_header(&headers.fanin, (enum fanin_type)type, config->job, config->epoch,
				 config->keys.up);
	headers.fanin.port = config->flow.src_port;
	headers.fanin.rank = config->rank;
	headers.fanin.contributions = fields->contributions;
	headers.fanin.flags = fields->flags;
	headers.fanin.block = fields->block;
	headers.fanin.dtype = fields->dtype;
	headers.fanin.op = fields->op;
	headers.fanin.count = fields->count;
	headers.fanin.root = fields->root;
	if (!fanin_transport_send(config->transport, &headers, payload, payload_len))
		return false;
	engine->sent_frames++;
	return true;
}

/*
 * If the acknowledgement is lost or can't be sent, the switch repeats the result, and this is
 * called again.
 */
static void
engine_acknowledge(struct acked_engine *engine, uint32_t block)
{
	const struct fanin_hdr fields = { .block = block };

	(void)engine_transmit(engine, ACKED_TYPE_ACK, &fields, NULL, 0);
}

static void
engine_contribute(struct acked_engine *engine)
{
	const struct fanin_request *request = engine->loop.requests.first;
	const struct fanin_extent extent = fanin_request_extent(request, engine->block);
	const struct fanin_hdr fields = {
		.block = engine->block,
		.flags = engine->sent ? FANIN_FLAG_RETRANSMIT : 0,
		.contributions = 1,
		.dtype = request->dtype,
		.op = extent.op,
		.root = extent.root,
		.count = (uint16_t)(extent.len / request->element_bytes),
	};
	const uint8_t *payload = extent.len == 0 ? NULL : request->send + extent.offset;

	if (!engine_transmit(engine, FANIN_TYPE_CONTRIBUTION, &fields, payload, extent.len)) {
		engine->retry_ns = engine->loop.now_ns + NO_ROOM_NS;
	} else if (!engine->sent) {
		engine->sent = true;
		engine->wait_ns = RETRY_FIRST_NS;
		engine->retry_ns = engine->loop.now_ns + engine->wait_ns;
	} else {
		engine->retransmits++;
		engine->wait_ns *= 2;
		if (engine->wait_ns > RETRY_MAX_NS)
			engine->wait_ns = RETRY_MAX_NS;
		engine->retry_ns = engine->loop.now_ns + engine->wait_ns;
	}
	fanin_loop_wake_by(&engine->loop, engine->retry_ns);
}

/* As fanin_loop_ops has it. */
static void
engine_send(struct fanin_loop *loop)
{
	struct acked_engine *engine = engine_of_loop(loop);

	if (!engine->sent && loop->requests.first != NULL && engine->retry_ns <= loop->now_ns)
		engine_contribute(engine);
}

/* ------------------------------------------------------------------ receiving */

static void
engine_fail(struct acked_engine *engine, int status)
{
	engine->loop.error.missing = engine->missing;
	fanin_loop_fail(&engine->loop, status);
}

/* Moves on to the next block. */
static void
engine_advance(struct acked_engine *engine)
{
	engine->block++;
	engine->sent = false;
	engine->retry_ns = 0;
	engine->missing = (struct fanin_ranks){ 0 };
	engine->progress_ns = engine->loop.now_ns;
	engine->loop.tx_errnum = 0;
}

static void
engine_receive_result(struct acked_engine *engine, const struct fanin_frame *frame)
{
	const struct fanin_headers *headers = frame->data;
	const struct fanin_hdr hdr = headers->fanin;
	struct fanin_request *request = engine->loop.requests.first;
	struct fanin_extent extent;

	if (fanin_block_before(hdr.block, engine->block)) {
		engine->duplicates++;
		engine_acknowledge(engine, hdr.block);
		return;
	}
	if (request == NULL || !engine->sent || hdr.block != engine->block ||
	    hdr.contributions != engine->config.size) {
		engine->invalid++;
		return;
	}
	extent = fanin_request_extent(request, engine->block);
	if (hdr.dtype != request->dtype || hdr.op != extent.op || hdr.root != extent.root ||
	    hdr.count * request->element_bytes != extent.len ||
	    fanin_wire_payload_len(headers) != extent.len) {
		fanin_error_set(
			&engine->loop.error, 0,
			"the result of block %u holds %u elements %s %s, but this rank posted %u %s %s",
			engine->block, hdr.count, fanin_dtype_name(hdr.dtype),
			fanin_op_name(hdr.op), extent.len / request->element_bytes,
			fanin_dtype_name(request->dtype), fanin_op_name(extent.op));
		engine_fail(engine, FANIN_ERR_REFUSED);
		return;
	}
	if (extent.len != 0 &&
	    !fanin_frame_copy(engine->loop.transport, frame, FANIN_PAYLOAD_OFFSET,
			      request->recv + extent.offset, extent.len)) {
		engine->invalid++;
		return;
	}
	engine_acknowledge(engine, engine->block);
	engine_advance(engine);
	engine->blocks++;
	engine->bytes += extent.len;
	request->done_bytes += extent.len;
	if (++request->done_blocks == request->n_blocks)
		fanin_request_list_finish(&engine->loop.requests, request);
}

/* Late duplicates are refused, too; that is no error. */
static void
engine_receive_refused(struct acked_engine *engine, const struct fanin_hdr *hdr)
{
	if (hdr->count == FANIN_REASON_BLOCK_STALE || hdr->count == FANIN_REASON_EPOCH)
		return;
	fanin_error_set(&engine->loop.error, 0, "the switch refused block %u: %s", hdr->block,
			fanin_reason_text(hdr->count));
	engine_fail(engine, FANIN_ERR_REFUSED);
}

static void
engine_receive_waiting(struct acked_engine *engine, const struct fanin_frame *frame)
{
	const uint32_t len = fanin_ranks_bytes(engine->config.size);
	uint8_t missing[sizeof(struct fanin_ranks)];

	if (frame->len < FANIN_PAYLOAD_OFFSET + len ||
	    !fanin_frame_copy(engine->loop.transport, frame, FANIN_PAYLOAD_OFFSET, missing, len))
		engine->invalid++;
	else
		fanin_ranks_read(&engine->missing, missing, engine->config.size);
}

/* As fanin_loop_ops has it. */
static void
engine_receive(struct fanin_loop *loop, const struct fanin_frame *frame)
{
	struct acked_engine *engine = engine_of_loop(loop);
	const struct fanin_hdr *hdr = &((const struct fanin_headers *)frame->data)->fanin;

	if (loop->status != FANIN_OK)
		return;
	engine->received_frames++;
	if (!fanin_protocol_admits(&engine->config, frame)) {
		engine->invalid++;
		return;
	}
	switch (hdr->type) {
	case FANIN_TYPE_RESULT:
		engine_receive_result(engine, frame);
		break;
	case ACKED_TYPE_WAITING:
		if (hdr->block == engine->block)
			engine_receive_waiting(engine, frame);
		break;
	case FANIN_TYPE_REFUSED:
		engine_receive_refused(engine, hdr);
		break;
	default:
		engine->invalid++;
		break;
	}
}

/* ------------------------------------------------------------------ time */

static void
engine_missing(struct fanin_endpoint *endpoint, struct fanin_ranks *ranks)
{
	const struct acked_engine *engine = engine_of(endpoint);

	*ranks = engine->loop.status != FANIN_OK ? engine->loop.error.missing : engine->missing;
}

static void
engine_time_out(struct acked_engine *engine)
{
	const double timeout_s = (double)engine->config.timeout_ns / 1e9;
	char ranks[256];

	if (engine->loop.tx_errnum != 0)
		fanin_error_set(&engine->loop.error, 0,
				"no result of block %u for %.1f s: sending fails: %s",
				engine->block, timeout_s, strerror(engine->loop.tx_errnum));
	else if (!fanin_ranks_is_empty(&engine->missing))
		fanin_error_set(&engine->loop.error, 0,
				"no result of block %u for %.1f s: the switch waits for %s",
				engine->block, timeout_s,
				fanin_format_ranks(&engine->missing, ranks, sizeof(ranks)));
	else
		fanin_error_set(&engine->loop.error, 0,
				"no result of block %u for %.1f s, and the switch does not say why",
				engine->block, timeout_s);
	engine_fail(engine, FANIN_ERR_TIMEOUT);
}

/* As fanin_loop_ops has it. */
static void
engine_timers(struct fanin_loop *loop)
{
	struct acked_engine *engine = engine_of_loop(loop);

	if (loop->requests.first == NULL || loop->timers_ns < loop->next_timer_ns)
		return;
	if (loop->timers_ns >= engine->progress_ns + engine->config.timeout_ns) {
		engine_time_out(engine);
		return;
	}
	loop->next_timer_ns = engine->progress_ns + engine->config.timeout_ns;
	if (loop->timers_ns >= engine->retry_ns)
		engine_contribute(engine);
	else
		fanin_loop_wake_by(loop, engine->retry_ns);
}

/* As fanin_loop_ops has it. */
static void
engine_away(struct fanin_loop *loop, uint64_t by_ns, bool received)
{
	struct acked_engine *engine = engine_of_loop(loop);

	(void)received;
	engine->progress_ns = fanin_absence_move(engine->progress_ns, by_ns, loop->now_ns);
}

static const struct fanin_loop_ops engine_loop_ops = {
	.receive = engine_receive,
	.send = engine_send,
	.timers = engine_timers,
	.away = engine_away,
};

/* ------------------------------------------------------------------ the table */

static int
engine_open(const struct fanin_protocol *protocol, const struct fanin_protocol_config *config,
	    struct fanin_endpoint **endpoint, struct fanin_error *error)
{
	const struct fanin_clock clock = fanin_clock_of(config->now_ns, config->now_arg);
	struct acked_engine *opened = calloc(1, sizeof(*opened));

	if (opened == NULL)
		return fanin_error_set(error, FANIN_ERR_NO_MEMORY, "out of memory");
	opened->endpoint.protocol = protocol;
	opened->config = *config;
	opened->config.hosts = NULL; /* only valid in open */
	fanin_loop_init(&opened->loop, &engine_loop_ops, config->transport, &clock,
			config->timeout_ns, 2);
	*endpoint = &opened->endpoint;
	return FANIN_OK;
}

static void
engine_close(struct fanin_endpoint *endpoint)
{
	free(endpoint);
}

static int
engine_post(struct fanin_endpoint *endpoint, struct fanin_request *request, uint64_t count)
{
	struct acked_engine *engine = engine_of(endpoint);
	const struct fanin_protocol_config *config = &engine->config;
	uint64_t n_blocks;

	if (engine->loop.status != FANIN_OK)
		return engine->loop.status;
	fanin_request_layout(request, config->rank, config->size, count);
	n_blocks = fanin_request_cut(request, config->payload_bytes, config->wide);
	if (n_blocks > MAX_BLOCKS - (engine->end - engine->block))
		return FANIN_ERR_INVALID;
	if (engine->loop.requests.first == NULL) {
		engine->progress_ns = fanin_loop_clock_ns(&engine->loop);
		engine->loop.next_timer_ns = 0;
	}
	request->stride = 1;
	request->first_block = engine->end;
	request->n_blocks = (uint32_t)n_blocks;
	engine->end += request->n_blocks;
	fanin_request_list_append(&engine->loop.requests, request);
	return FANIN_OK;
}

static int
engine_poll(struct fanin_endpoint *endpoint)
{
	return fanin_loop_poll(&engine_of(endpoint)->loop);
}

static uint64_t
engine_idle_ns(struct fanin_endpoint *endpoint)
{
	const struct acked_engine *engine = engine_of(endpoint);
	const uint64_t now_ns = fanin_loop_clock_ns(&engine->loop);

	if (engine->loop.status != FANIN_OK || engine->loop.requests.first == NULL)
		return UINT64_MAX;
	return engine->loop.next_timer_ns > now_ns ? engine->loop.next_timer_ns - now_ns : 0;
}

static unsigned int
engine_poll_fds(struct fanin_endpoint *endpoint, struct pollfd *fds)
{
	struct fanin_loop *loop = &engine_of(endpoint)->loop;

	return loop->status != FANIN_OK ? 0 : loop->transport->ops->poll_fds(loop->transport, fds);
}

static const struct fanin_error *
engine_error(struct fanin_endpoint *endpoint)
{
	return &engine_of(endpoint)->loop.error;
}

static void
engine_report(struct fanin_endpoint *endpoint, struct fanin_report *report)
{
	const struct acked_engine *engine = engine_of(endpoint);

	report->blocks = engine->blocks;
	report->bytes_reduced = engine->bytes;
	report->frames_sent = engine->sent_frames;
	report->frames_received = engine->received_frames;
	report->retransmits = engine->retransmits;
	report->duplicates = engine->duplicates;
	report->invalid = engine->invalid;
}

static const char *const acked_handlers[] = { "acked", NULL };

/* Its jobs have one tree, and a run that its switch has lost is an error. */
static const struct fanin_switch_ops acked_on_switch = { 0 };

static struct fanin_protocol acked_protocol = {
	.name = "acked",
	.handlers = acked_handlers,
	.packets = acked_packets,
	.collectives = 1 << FANIN_COLLECTIVE_ALLREDUCE,
	.on_switch = &acked_on_switch,
	.open = engine_open,
	.close = engine_close,
	.post = engine_post,
	.poll = engine_poll,
	.idle_ns = engine_idle_ns,
	.poll_fds = engine_poll_fds,
	.error = engine_error,
	.missing = engine_missing,
	.report = engine_report,
};

FANIN_PROTOCOL_REGISTER(acked_protocol)
