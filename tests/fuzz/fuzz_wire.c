/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libFuzzer target for the packet format and the handlers. The input is a list of frames, each
 * behind two bytes of length (little-endian). Every frame is validated; valid contributions go to
 * the slots of one small job as the pipeline would bring them, and after each the counters,
 * references and emissions must fit together. Each handler runs with both kinds of accumulation.
 * Every frame is also taken for one to be routed: its header must stay right. seeds.py makes the
 * seeds.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "handlers/handler.h"
#include "protocols/push/push.h"
#include "pipeline/base/ipv4.h"
#include "tests/unit/fake_mbuf.h"
#include "protocols/region/region.h"
#include "wire/shard.h"
#include "wire/version.h"
#include "wire/wire.h"

#define LEADERS_PORTS 4
#define N_CHILDREN 3
#define WINDOW 2
#define SLOTS (2 * WINDOW)
#define REGION_BASE 0x1000 /* of a region, as the seeds have it */
#define REGION_BYTES 0x1000
#define POOL 512     /* a sparse handler's slots and its stock */
#define FREES_MAX 80 /* that a call gives up: a whole slot and a few more */
#define TIMERS 16
#define TIMEOUT_NS 1000

#define REQUIRE(condition)                                                                         \
	do {                                                                                       \
		if (!(condition))                                                                  \
			abort();                                                                   \
	} while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct fanin_job_params job = {
	.id = 1,
	.window = WINDOW,
	.payload_bytes = 256,
	.keys = { .up = 1, .down = 2 },
	.buffers = 2,
	.isa = FANIN_ISA_PORTABLE,
};

static struct fake_pool pool;
static struct fanin_handler_stats stats;
static struct fanin_handler_ctx ctx = {
	.job = &job, .epoch = 1, .parent_epoch = 1, .stats = &stats
};
static uint8_t *slots[SLOTS];
static uint8_t common[FANIN_SLOTS_COMMON] __attribute__((aligned(8)));
static struct fanin_timer_fifo *timers;
static uint64_t earliest_ns;

/* An ANSWER: of this switch to a child that asks, or of the parent to one. */
static void
check_answer(const struct fanin_headers *headers, bool passed_on)
{
	const struct fanin_hdr *hdr = &headers->fanin;
	struct fanin_answer_ranks ranks;
	struct fanin_answer_body body;

	memcpy(&body, headers + 1, sizeof(body));
	fanin_answer_read_ranks((const uint8_t *)(headers + 1) + sizeof(body), job.n_ranks, &ranks);
	REQUIRE(hdr->type == FANIN_TYPE_ANSWER && hdr->epoch == ctx.epoch && hdr->flags == 0);
	REQUIRE(body.n_blocks <= WINDOW);
	/* Behind it there may be 8 bytes about the shards of a sparse block. */
	REQUIRE(!passed_on || (body.n_blocks == 0 && hdr->number != 0));
	if (passed_on)
		return;
	REQUIRE((hdr->number == 0) == (body.n_blocks == 0));
	REQUIRE(hdr->count <= FANIN_BLOCK_DONE);
	REQUIRE(body.n_blocks == 0 || fanin_answer_state(&body, 0) == hdr->count);
	REQUIRE(hdr->count != FANIN_BLOCK_OPEN || !fanin_ranks_is_empty(&ranks.missing));
}

/*
 * One emission of a handler whose results a server makes: it is a valid packet, and says of which
 * ranks its data is.
 */
static void
check_server_emission(const struct fanin_emission *emission)
{
	const struct rte_mbuf *mbuf = emission->mbuf;
	const struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, const struct fanin_headers *);
	const struct fanin_hdr *hdr = &headers->fanin;
	const uint16_t receivers = (uint16_t)__builtin_popcountll(emission->children);
	const uint64_t all = UINT64_MAX >> (64 - job.n_ranks);

	switch (emission->kind) {
	case FANIN_EMIT_PARENT:
		REQUIRE(job.has_parent && receivers == 0 && hdr->epoch == ctx.parent_epoch);
		REQUIRE(rte_mbuf_refcnt_read(mbuf) >= 1);
		REQUIRE(hdr->type != FANIN_TYPE_CONTRIBUTION ||
			(job.parent_is_server && hdr->contributions == job.n_ranks));
		REQUIRE(hdr->type != FANIN_TYPE_PARTIAL ||
			(hdr->members != 0 && (hdr->members & ~all) == 0 &&
			 hdr->contributions == __builtin_popcountll(hdr->members)));
		REQUIRE(hdr->type == FANIN_TYPE_CONTRIBUTION || hdr->type == FANIN_TYPE_PARTIAL ||
			hdr->type == FANIN_TYPE_KNOWN || hdr->type == FANIN_TYPE_QUERY);
		break;
	case FANIN_EMIT_CHILDREN:
		REQUIRE(receivers > 0 && (emission->children & ~job.children) == 0);
		REQUIRE(rte_mbuf_refcnt_read(mbuf) == receivers && hdr->epoch == ctx.epoch);
		REQUIRE(emission->payload_len == mbuf->data_len - (uint32_t)FANIN_PAYLOAD_OFFSET);
		REQUIRE(fanin_type_direction(hdr->type) == FANIN_DOWN);
		break;
	default:
		/* The pipeline completes it. */
		REQUIRE(emission->kind == FANIN_EMIT_REPLY && hdr->type == FANIN_TYPE_GACK &&
			receivers == 1 && emission->payload_len == 0 &&
			rte_mbuf_refcnt_read(mbuf) == 1 && hdr->count < job.n_ranks);
		return;
	}
	REQUIRE(fanin_wire_validate(headers, mbuf->data_len) == FANIN_REASON_NONE);
}

/*
 * One emission of a handler that sends on what its table has no room for: nothing that has been
 * sent is kept.
 */
static void
check_push_emission(const struct fanin_emission *emission)
{
	const struct rte_mbuf *mbuf = emission->mbuf;
	const struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, const struct fanin_headers *);
	const struct fanin_hdr *hdr = &headers->fanin;
	const uint16_t receivers = (uint16_t)__builtin_popcountll(emission->children);
	const uint64_t all = UINT64_MAX >> (64 - job.n_ranks);

	if (emission->kind == FANIN_EMIT_REPLY) {
		REQUIRE(hdr->type == FANIN_TYPE_ANSWER && receivers == 1 && !job.has_parent &&
			emission->payload_len == fanin_answer_len(job.n_ranks) &&
			rte_mbuf_refcnt_read(mbuf) == 1);
		return;
	}
	REQUIRE(fanin_wire_validate(headers, mbuf->data_len) == FANIN_REASON_NONE);
	REQUIRE(mbuf->data_len <= FANIN_PAYLOAD_OFFSET + job.payload_bytes);
	if (emission->kind == FANIN_EMIT_PARENT) {
		REQUIRE(job.has_parent && hdr->epoch == ctx.parent_epoch &&
			rte_mbuf_refcnt_read(mbuf) == 1 &&
			fanin_type_direction(hdr->type) == FANIN_UP);
		REQUIRE(hdr->type != FANIN_TYPE_PARTIAL ||
			(hdr->members != 0 && (hdr->members & ~all) == 0 &&
			 hdr->contributions == __builtin_popcountll(hdr->members)));
		return;
	}
	REQUIRE(emission->kind == FANIN_EMIT_CHILDREN && receivers > 0 &&
		(emission->children & ~job.children) == 0 && hdr->epoch == ctx.epoch &&
		rte_mbuf_refcnt_read(mbuf) == receivers &&
		fanin_type_direction(hdr->type) == FANIN_DOWN);
	REQUIRE(hdr->type != FANIN_TYPE_EVICTED || receivers == 1);
	REQUIRE(hdr->type != FANIN_TYPE_RESULT || receivers == N_CHILDREN);
}

static void
send_push_emission(const struct fanin_emission *emission)
{
	check_push_emission(emission);
	if (emission->kind == FANIN_EMIT_PARENT)
		fake_put(&pool, emission->mbuf);
	for (uint64_t left = emission->children; left != 0; left &= left - 1)
		fake_put(&pool, emission->mbuf);
}

/* One emission against what the handler promises, then sent: its references are given up. */
static void
send_server_emission(const struct fanin_emission *emission)
{
	check_server_emission(emission);
	if (emission->kind == FANIN_EMIT_PARENT)
		fake_put(&pool, emission->mbuf);
	for (uint64_t left = emission->children; left != 0; left &= left - 1)
		fake_put(&pool, emission->mbuf);
}

/* A packet of a member to others, or to one: nobody keeps it. Returns false if it is none. */
static bool
check_passed(const struct fanin_emission *emission)
{
	const struct rte_mbuf *mbuf = emission->mbuf;
	const struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, const struct fanin_headers *);
	const struct fanin_hdr *hdr = &headers->fanin;
	const bool up = emission->kind == FANIN_EMIT_PARENT;
	const uint64_t owner = UINT64_C(1) << hdr->block % job.n_ranks;

	switch (hdr->type) {
	case FANIN_TYPE_UNICAST:
	case FANIN_TYPE_UNICAST_DELIVERY:
	case FANIN_TYPE_PULL:
	case FANIN_TYPE_PULL_DELIVERY:
		break;
	case FANIN_TYPE_RESPONSE:
	case FANIN_TYPE_RESPONSE_DELIVERY:
		REQUIRE(hdr->members != 0 && (hdr->members & owner) == 0);
		REQUIRE(hdr->contributions == __builtin_popcountll(hdr->members));
		break;
	case FANIN_TYPE_WRITE:
	case FANIN_TYPE_WRITE_DELIVERY:
	case FANIN_TYPE_REWRITE:
	case FANIN_TYPE_REWRITE_DELIVERY:
		REQUIRE(fanin_region_holds(REGION_BASE, REGION_BYTES, fanin_region_address(hdr),
					   fanin_wire_payload_len(headers)));
		break;
	default:
		return false;
	}
	REQUIRE(fanin_type_direction(hdr->type) == (up ? FANIN_UP : FANIN_DOWN));
	REQUIRE(hdr->epoch == (up ? ctx.parent_epoch : ctx.epoch));
	REQUIRE(rte_mbuf_refcnt_read(mbuf) == (up ? 1 : __builtin_popcountll(emission->children)));
	REQUIRE(fanin_wire_payload_len(headers) <= job.payload_bytes);
	REQUIRE(fanin_wire_validate(headers, mbuf->data_len) == FANIN_REASON_NONE);
	return true;
}

/* The same of other handlers. */
static void
send_emission(const struct fanin_emission *emission)
{
	const struct fanin_headers *headers = rte_pktmbuf_mtod(emission->mbuf,
							       struct fanin_headers *);
	const struct fanin_hdr *hdr = &headers->fanin;
	uint16_t references = rte_mbuf_refcnt_read(emission->mbuf);
	uint16_t receivers = (uint16_t)__builtin_popcountll(emission->children);

	REQUIRE((receivers > 0) == (emission->kind != FANIN_EMIT_PARENT) &&
		(emission->children & ~job.children) == 0);
	switch (emission->kind) {
	case FANIN_EMIT_PARENT:
		receivers = 1;
		REQUIRE(job.has_parent && hdr->epoch == ctx.parent_epoch);
		if (check_passed(emission))
			break;
		if (hdr->type == FANIN_TYPE_QUERY) {
			REQUIRE(references == 1 && hdr->number != 0 && hdr->members != 0);
			break;
		}
		if (hdr->type == FANIN_TYPE_SPARSE || hdr->type == FANIN_TYPE_MULTICAST ||
		    hdr->type == FANIN_TYPE_UNICAST) {
			/* Nobody keeps it. */
			REQUIRE(references == 1 && hdr->contributions == N_CHILDREN);
			break;
		}
		REQUIRE(references >= 2);
		REQUIRE(hdr->type == FANIN_TYPE_CONTRIBUTION || hdr->type == FANIN_TYPE_KNOWN ||
			hdr->type == FANIN_TYPE_SPARSE_KNOWN);
		REQUIRE(hdr->contributions == N_CHILDREN);
		break;
	case FANIN_EMIT_CHILDREN:
		if (check_passed(emission))
			break;
		if (hdr->type == FANIN_TYPE_ANSWER) {
			REQUIRE(receivers == 1 && references == 1);
			check_answer(headers, true);
			break;
		}
		if (hdr->type == FANIN_TYPE_DELIVERY || hdr->type == FANIN_TYPE_UNICAST_DELIVERY) {
			/* Nobody keeps it. */
			REQUIRE(references == receivers && hdr->epoch == ctx.epoch);
			REQUIRE(emission->payload_len <= job.payload_bytes);
			break;
		}
		if (hdr->type == FANIN_TYPE_RESULT && references == receivers) {
			/* For children that do not have the block's owner: nobody keeps it. */
			REQUIRE(hdr->flags == FANIN_FLAG_EMPTY && emission->payload_len == 0);
			break;
		}
		REQUIRE(receivers == 1 || receivers == N_CHILDREN);
		if (hdr->type == FANIN_TYPE_SPARSE_RESULT) {
			/* Kept below the root, and if a child knew it. */
			REQUIRE(job.has_parent ? references > receivers : references >= receivers);
			REQUIRE(hdr->contributions == N_CHILDREN);
			break;
		}
		REQUIRE(hdr->type == FANIN_TYPE_RESULT);
		REQUIRE(references > receivers);
		break;
	case FANIN_EMIT_REPLY:
		REQUIRE(receivers == 1 && references == 1 &&
			(emission->payload_len == fanin_answer_len(job.n_ranks) ||
			 emission->payload_len ==
				 fanin_answer_len(job.n_ranks) + sizeof(uint64_t)));
		check_answer(headers, false);
		break;
	case FANIN_EMIT_PORTS: /* no handler of a tree does */
	case FANIN_EMIT_ROUTE:
		REQUIRE(false);
		break;
	}
	if (hdr->type == FANIN_TYPE_RESULT) {
		REQUIRE(hdr->contributions == N_CHILDREN);
		REQUIRE(fanin_wire_count_fits(hdr, fanin_dtype_size(hdr->dtype),
					      emission->payload_len));
		REQUIRE(emission->payload_len <= job.payload_bytes);
	}
	if (hdr->type == FANIN_TYPE_SPARSE || hdr->type == FANIN_TYPE_SPARSE_RESULT ||
	    hdr->type == FANIN_TYPE_SPARSE_KNOWN) {
		const uint32_t payload_len = emission->mbuf->data_len - FANIN_PAYLOAD_OFFSET;

		REQUIRE(payload_len <= job.payload_bytes);
		REQUIRE(fanin_shard_fits(hdr, payload_len));
		/* What the parent says is passed on as it is. */
		REQUIRE((hdr->type == FANIN_TYPE_SPARSE_RESULT && job.has_parent) ||
			fanin_shard_check(hdr, headers + 1, payload_len));
	}
	while (receivers-- > 0)
		fake_put(&pool, emission->mbuf);
}

/*
 * Likewise, of a handler whose blocks have leaders: everything goes to ports of the job, or on its
 * way.
 */
static void
send_leaders_emission(const struct fanin_emission *emission)
{
	const struct fanin_headers *headers = rte_pktmbuf_mtod(emission->mbuf,
							       const struct fanin_headers *);
	unsigned int references = rte_mbuf_refcnt_read(emission->mbuf);

	REQUIRE(fanin_wire_validate(headers, emission->mbuf->data_len) == FANIN_REASON_NONE);
	if (emission->kind == FANIN_EMIT_PORTS) {
		REQUIRE(emission->ports != 0 && (emission->ports & ~job.ports) == 0);
		REQUIRE(references == (unsigned int)__builtin_popcountll(emission->ports));
		REQUIRE(headers->fanin.type == FANIN_TYPE_RESULT);
	} else {
		REQUIRE(emission->kind == FANIN_EMIT_ROUTE && references == 1);
		REQUIRE(headers->fanin.type != FANIN_TYPE_RESULT);
	}
	while (references-- > 0)
		fake_put(&pool, emission->mbuf);
}

/* Of the handler that runs. */
static enum fanin_shape shape;
static bool is_push;

static void
flush(void)
{
	for (unsigned int i = 0; i < ctx.n_emissions; i++) {
		if (shape == FANIN_SHAPE_SERVER)
			send_server_emission(&ctx.emissions[i]);
		else if (shape == FANIN_SHAPE_LEADERS)
			send_leaders_emission(&ctx.emissions[i]);
		else if (is_push)
			send_push_emission(&ctx.emissions[i]);
		else
			send_emission(&ctx.emissions[i]);
	}
	for (unsigned int i = 0; i < ctx.n_frees; i++)
		fake_put(&pool, ctx.frees[i]);
	ctx.n_emissions = 0;
	ctx.n_frees = 0;
}

static void
drain(struct fanin_handler_ctx *full)
{
	(void)full;
	flush();
}

static enum fanin_verdict
call(const struct fanin_handler *handler, struct fanin_packet *packet, enum fanin_reason *reason)
{
	const bool has_slots = handler->slots_of != FANIN_SLOTS_NONE;
	const uint32_t index = has_slots ? packet->headers->fanin.block % SLOTS : 0;
	void *slot = has_slots ? slots[index] : NULL;

	if (packet->headers->fanin.type == FANIN_TYPE_CONTRIBUTION)
		return handler->contribution(&ctx, slot, index, packet, reason);
	if (fanin_handler_takes(handler, packet->headers->fanin.type))
		return handler->other(&ctx, slot, index, packet, reason);
	/* The pipeline's matter. */
	*reason = FANIN_REASON_TYPE;
	return FANIN_VERDICT_DROP;
}

/* A child's contribution, query, or result that it knew; or the parent's result or answer. */
static void
handle(const struct fanin_handler *handler, const struct fanin_headers *frame)
{
	uint32_t payload_len = fanin_wire_payload_len(frame);
	struct rte_mbuf *mbuf;
	struct fanin_packet packet;
	enum fanin_reason reason = FANIN_REASON_NONE;
	enum fanin_verdict verdict;

	if (payload_len > FAKE_PAYLOAD_MAX)
		return;
	while (handler->makes_packets && ctx.n_stock < FANIN_STOCK)
		ctx.stock[ctx.n_stock++] = fake_get(&pool, 0);
	mbuf = fake_get(&pool, payload_len);
	memcpy(rte_pktmbuf_mtod(mbuf, void *), frame, FANIN_PAYLOAD_OFFSET + payload_len);
	packet = (struct fanin_packet){
		.mbuf = mbuf,
		.headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *),
		.payload = rte_pktmbuf_mtod_offset(mbuf, void *, FANIN_PAYLOAD_OFFSET),
		.payload_len = payload_len,
		.child = frame->fanin.rank,
	};
	/* A port, which says nothing of the rank. */
	if (shape == FANIN_SHAPE_LEADERS)
		packet.child %= LEADERS_PORTS;
	verdict = call(handler, &packet, &reason);
	REQUIRE(ctx.n_emissions <= (handler->makes_packets ? FANIN_SHARDS_MAX + 1 : 2) &&
		ctx.n_frees <= FREES_MAX);
	REQUIRE(verdict != FANIN_VERDICT_RETRY);
	REQUIRE((verdict == FANIN_VERDICT_DROP) == (reason != FANIN_REASON_NONE));
	if (verdict != FANIN_VERDICT_HELD)
		fake_put(&pool, mbuf);
	flush();
	/* What a slot may hold, and its result. */
	REQUIRE(fake_pool_in_use(&pool) - ctx.n_stock <=
		SLOTS * (fanin_slot_mbufs(handler, job.n_children, job.n_children, job.buffers) +
			 1));
	/*
	 * Contributions may come again by way of the server, and results may be of blocks of which
	 * none came.
	 */
	if (handler->shape == FANIN_SHAPE_SERVER || handler->shape == FANIN_SHAPE_LEADERS ||
	    is_push)
		return;
	REQUIRE(stats.contributions + stats.known * N_CHILDREN >= stats.results * N_CHILDREN);
	REQUIRE(stats.contributions <= (stats.results + SLOTS) * N_CHILDREN);
	REQUIRE(stats.duplicates + stats.queries >= stats.repeats + stats.pendings);
}

/* Timers expire, now and then early. */
static void
expire(const struct fanin_handler *handler)
{
	ctx.now_ns += TIMEOUT_NS / 4;
	while (fanin_timer_fifo_count(timers) > TIMERS / 2 ||
	       (!fanin_timer_fifo_is_empty(timers) &&
		fanin_timer_fifo_first(timers)->due_ns <= ctx.now_ns)) {
		const struct fanin_timer timer = *fanin_timer_fifo_first(timers);

		timers->head++;
		REQUIRE(timer.job == job.id && timer.epoch == ctx.epoch && timer.index < SLOTS);
		REQUIRE(handler->expired(&ctx, slots[timer.index], timer.index, timer.block));
		flush();
	}
}

/* Do the headers fit what some host's contributions to some job look like? */
static bool
fits_some_template(const struct fanin_headers *headers)
{
	const struct fanin_hdr *hdr = &headers->fanin;
	struct fanin_flow flow = { .dst_ip_be = headers->ip.dst_be,
				   .src_ip_be = headers->ip.src_be,
				   .dst_port = __builtin_bswap16(headers->udp.dst_be) };
	struct fanin_template template;
	struct fanin_headers example;

	memcpy(flow.dst_mac, headers->eth.dst, sizeof(flow.dst_mac));
	fanin_wire_encode_l4(&example, &flow, 0);
	fanin_wire_encode_header(&example.fanin, FANIN_TYPE_CONTRIBUTION, hdr->job, 0, hdr->key);
	example.fanin.rank = hdr->rank;
	fanin_wire_make_template(&example, &template);
	return fanin_wire_fits(headers, &template);
}

/*
 * What a router does to the frame; it is changed. wire: what validation as a Fanin packet has
 * found.
 */
static void
route_frame(struct fanin_headers *headers, size_t len, enum fanin_reason wire)
{
	enum fanin_reason reason = ipv4_check(headers, (uint16_t)len);
	uint32_t hash;

	REQUIRE(reason < FANIN_REASON_COUNT);
	REQUIRE(wire != FANIN_REASON_NONE || reason == FANIN_REASON_NONE ||
		reason == FANIN_REASON_IP_ADDRESS);
	if (reason != FANIN_REASON_NONE)
		return;
	REQUIRE(__builtin_bswap16(headers->ip.total_len_be) <= len - FANIN_ETH_LEN);
	hash = ipv4_flow_hash(headers, 1);
	if (headers->ip.ttl == 0)
		return;
	ipv4_decrement_ttl(&headers->ip);
	REQUIRE(ipv4_check(headers, (uint16_t)len) == FANIN_REASON_NONE);
	REQUIRE(ipv4_flow_hash(headers, 1) == hash);
}

/* Is it for a handler, from the parent or a child? The others are the pipeline's own. */
static bool
is_handler_s(const struct fanin_hdr *hdr)
{
	return fanin_type_class(hdr->type) == FANIN_CLASS_BLOCK &&
	       (fanin_type_direction(hdr->type) == FANIN_DOWN || hdr->rank < N_CHILDREN);
}

static void
take_frame(const struct fanin_handler *handler, const uint8_t *data, size_t len)
{
	/* In its very size, at an odd address: the sanitizer sees every read past the end. */
	uint8_t *copy = malloc(len + 1);
	/* From one input to the next, as in a burst. */
	static struct fanin_sizes sizes = { .payload_len = UINT32_MAX };
	enum fanin_reason reason;

	REQUIRE(copy != NULL);
	memcpy(copy + 1, data, len);
	reason = fanin_wire_validate(copy + 1, len);
	/* No packet is of two versions. */
	REQUIRE(reason != FANIN_REASON_NONE ||
		fanin_version_validate(copy + 1, len) != FANIN_REASON_NONE);
	REQUIRE(reason < FANIN_REASON_COUNT);
	if (len >= FANIN_PAYLOAD_OFFSET && fits_some_template((const void *)(copy + 1)) &&
	    fanin_wire_elements_fit((const void *)(copy + 1), len, &sizes))
		REQUIRE(reason == FANIN_REASON_NONE);
	if (reason == FANIN_REASON_NONE) {
		const struct fanin_headers *headers = (const void *)(copy + 1);

		REQUIRE(FANIN_PAYLOAD_OFFSET + fanin_wire_payload_len(headers) <= len);
		if (is_handler_s(&headers->fanin)) {
			handle(handler, headers);
			expire(handler);
		}
	}
	if (len >= FANIN_ETH_LEN + FANIN_IP_LEN)
		route_frame((void *)(copy + 1), len, reason);
	free(copy);
}

static void
run(const struct fanin_handler *handler, const uint8_t *data, size_t size)
{
	const bool has_slots = handler->slots_of != FANIN_SLOTS_NONE;

	/* In their very size: the sanitizer sees what is beside them. */
	for (uint32_t i = 0; has_slots && i < SLOTS; i++) {
		const size_t len = RTE_CACHE_LINE_ROUNDUP(fanin_slot_size(handler, &job));

		slots[i] = aligned_alloc(RTE_CACHE_LINE_SIZE, len);
		REQUIRE(slots[i] != NULL);
		memset(slots[i], 0, len);
	}
	is_push = fanin_handler_takes(handler, FANIN_TYPE_EVICTED);
	if (handler->parameters != NULL && handler->shape != FANIN_SHAPE_SERVER) {
		for (size_t i = 0; handler->parameters[i].name != NULL; i++)
			job.parameters[i] = handler->parameters[i].usual;
	} else {
		memset(job.parameters, 0, sizeof(job.parameters));
	}
	if (is_push)
		job.parameters[FANIN_PUSH_ENTRIES] = 2;
	if (strcmp(handler->name, "region") == 0) {
		job.parameters[FANIN_REGION_BASE] = REGION_BASE;
		job.parameters[FANIN_REGION_BYTES] = REGION_BYTES;
	}
	memset(&stats, 0, sizeof(stats));
	memset(common, 0, sizeof(common));
	shape = handler->shape;
	timers->head = timers->tail = 0;
	ctx.state = NULL;
	if (fanin_state_size(handler, &job) != 0) {
		const size_t len = RTE_CACHE_LINE_ROUNDUP(fanin_state_size(handler, &job));

		ctx.state = aligned_alloc(RTE_CACHE_LINE_SIZE, len);
		REQUIRE(ctx.state != NULL);
		memset(ctx.state, 0, len);
	}
	while (size >= 2) {
		size_t len = data[0] | (size_t)data[1] << 8;

		data += 2;
		size -= 2;
		if (len > size)
			len = size;
		take_frame(handler, data, len);
		data += len;
		size -= len;
	}
	for (uint32_t i = 0; has_slots && i < SLOTS; i++)
		handler->slot_release(&ctx, slots[i]);
	flush();
	if (handler->state_release != NULL)
		handler->state_release(&job, ctx.state);
	/* Nothing is in use any more. */
	for (size_t i = 0; i < sizeof(common); i++)
		REQUIRE(common[i] == 0);
	free(ctx.state);
	for (uint32_t i = 0; has_slots && i < SLOTS; i++)
		free(slots[i]);
	while (ctx.n_stock != 0)
		fake_put(&pool, ctx.stock[--ctx.n_stock]);
	REQUIRE(fake_pool_in_use(&pool) == 0);
}

static void
init(void)
{
	const struct fanin_flow flow = { .dst_port = FANIN_WIRE_DEFAULT_UDP_PORT };

	fake_pool_init(&pool, POOL);
	fanin_job_params_hosts(&job, N_CHILDREN);
	job.payload_bytes = FAKE_PAYLOAD_MAX;
	fanin_wire_encode_l4(&job.parent_headers, &flow, job.payload_bytes);
	fanin_wire_encode_l4(&job.result_headers, &flow, job.payload_bytes);
	/* Of blocks with leaders: ranks 0 and 1 are here, the others behind other switches. */
	job.ports = (UINT64_C(1) << LEADERS_PORTS) - 1;
	job.links = job.ports & ~UINT64_C(3);
	job.port_ranks[0] = 1;
	job.port_ranks[1] = 2;
	job.ranks_here = 3;
	ctx.drain = drain;
	job.slots = (struct fanin_slots){ .by_index = slots, .mask = SLOTS - 1, .common = common };
	timers = calloc(1, sizeof(*timers) + TIMERS * sizeof(timers->timers[0]));
	REQUIRE(timers != NULL);
	timers->timeout_ns = TIMEOUT_NS;
	timers->earliest_ns = &earliest_ns;
	timers->most = TIMERS - 1;
	timers->mask = TIMERS - 1;
	ctx.timers = timers;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (pool.mbufs == NULL)
		init();
	for (const struct fanin_handler *handler = fanin_handler_first(); handler != NULL;
	     handler = handler->next) {
		job.in_order = handler->in_order;
		job.wide = false;
		run(handler, data, size);
		job.wide = true;
		run(handler, data, size);
		job.wide = false;
		job.has_parent = true;
		run(handler, data, size);
		job.parent_is_server = handler->shape == FANIN_SHAPE_SERVER;
		if (job.parent_is_server)
			run(handler, data, size);
		job.parent_is_server = false;
		job.has_parent = false;
	}
	return 0;
}
