/* SPDX-License-Identifier: BSD-3-Clause */
/* See canary_rig.h. */
#include "protocols/canary/tests/canary_rig.h"

#include <arpa/inet.h>
#include <check.h>
#include <stdlib.h>
#include <string.h>

#define TIMERS 1024
#define PAYLOAD 256
#define MBUFS 4096

/* The rig that ctx->drain belongs to. */
static struct canary_rig *rig_of_drain;

static void
carry_out(struct canary_rig *rig, unsigned int number, struct fanin_handler_ctx *ctx)
{
	for (unsigned int i = 0; i < ctx->n_emissions; i++) {
		const struct fanin_emission *emission = &ctx->emissions[i];
		unsigned int references = 1;

		ck_assert(emission->kind == FANIN_EMIT_PORTS || emission->kind == FANIN_EMIT_ROUTE);
		ck_assert_uint_eq(fanin_wire_validate(rte_pktmbuf_mtod(emission->mbuf,
								       const void *),
						      emission->mbuf->data_len),
				  FANIN_REASON_NONE);
		if (emission->kind == FANIN_EMIT_PORTS)
			references = (unsigned int)__builtin_popcountll(emission->ports);
		rig->emit(rig->user, number, emission);
		while (references-- != 0)
			fake_put(&rig->pool, emission->mbuf);
	}
	for (unsigned int i = 0; i < ctx->n_frees; i++)
		fake_put(&rig->pool, ctx->frees[i]);
	ctx->n_emissions = 0;
	ctx->n_frees = 0;
}

static void
drain(struct fanin_handler_ctx *ctx)
{
	struct canary_rig *rig = rig_of_drain;

	for (unsigned int i = 0; i < rig->n_switches; i++) {
		if (ctx == &rig->switches[i].ctx)
			carry_out(rig, i, ctx);
	}
}

static void
make_job(struct canary_rig *rig, unsigned int number, uint16_t window, uint32_t slots)
{
	struct canary_rig_switch *which = &rig->switches[number];
	struct fanin_job_params *job = &which->job;
	const struct fanin_flow flow = {
		.src_ip_be = htonl(CANARY_RIG_SWITCH_IP(number)),
		.dst_port = FANIN_WIRE_DEFAULT_UDP_PORT,
	};

	job->id = 1;
	job->n_ranks = rig->n_ranks;
	job->window = window;
	job->payload_bytes = PAYLOAD;
	job->isa = fanin_isa_detect();
	job->shared = true;
	job->keys = (struct fanin_keys){ .up = 11, .down = 21 };
	fanin_wire_encode_l4(&job->result_headers, &flow, PAYLOAD);
	job->slots = (struct fanin_slots){ .by_index = which->slots, .mask = slots - 1 };
	fake_usual(rig->handler, job);
}

void
canary_rig_start(struct canary_rig *rig, unsigned int n_switches, uint16_t n_ranks, uint16_t window,
		 uint32_t slots)
{
	memset(rig, 0, sizeof(*rig));
	rig_of_drain = rig;
	rig->handler = fanin_handler_find("canary");
	ck_assert_ptr_nonnull(rig->handler);
	rig->n_switches = n_switches;
	rig->n_ranks = n_ranks;
	rig->now_ns = 1000;
	fake_pool_init(&rig->pool, MBUFS);
	for (unsigned int number = 0; number < n_switches; number++) {
		struct canary_rig_switch *which = &rig->switches[number];

		make_job(rig, number, window, slots);
		fake_slots(rig->handler, &which->job, which->slots, slots);
		which->state = calloc(1, fanin_state_size(rig->handler, &which->job));
		ck_assert_ptr_nonnull(which->state);
		which->timers = fake_timers(rig->handler, &which->job, TIMERS, &which->earliest_ns);
		which->ctx = (struct fanin_handler_ctx){
			.job = &which->job,
			.epoch = CANARY_RIG_EPOCH,
			.state = which->state,
			.stats = &which->stats,
			.timers = which->timers,
			.drain = drain,
		};
	}
}

static void
sweep(struct canary_rig *rig, unsigned int number)
{
	struct canary_rig_switch *which = &rig->switches[number];

	for (uint32_t i = 0; i <= which->job.slots.mask; i++) {
		struct fanin_slot_tag *tag = (void *)which->slots[i];

		ck_assert(fanin_slot_enter(tag));
		rig->handler->slot_release(&which->ctx, tag);
		fanin_slot_empty(tag);
		fanin_slot_leave(tag);
	}
	carry_out(rig, number, &which->ctx);
	ck_assert_uint_eq(which->state->used, 0);
}

void
canary_rig_stop(struct canary_rig *rig)
{
	for (unsigned int number = 0; number < rig->n_switches; number++) {
		struct canary_rig_switch *which = &rig->switches[number];

		sweep(rig, number);
		for (uint32_t i = 0; i <= which->job.slots.mask; i++)
			free(which->slots[i]);
		free(which->state);
		free(which->timers);
	}
	ck_assert_uint_eq(fake_pool_in_use(&rig->pool), 0);
	fake_pool_fini(&rig->pool);
}

void
canary_rig_host(struct canary_rig *rig, unsigned int number, unsigned int port, unsigned int rank)
{
	struct fanin_job_params *job = &rig->switches[number].job;

	job->ports |= UINT64_C(1) << port;
	job->port_ranks[port] = UINT64_C(1) << rank;
	job->ranks_here |= UINT64_C(1) << rank;
	job->child_ranks[job->n_children] = fanin_ranks_one((uint16_t)rank);
	job->children |= UINT64_C(1) << job->n_children;
	job->n_children++;
}

void
canary_rig_link(struct canary_rig *rig, unsigned int number, unsigned int port)
{
	rig->switches[number].job.ports |= UINT64_C(1) << port;
	rig->switches[number].job.links |= UINT64_C(1) << port;
}

void
canary_rig_restart(struct canary_rig *rig, unsigned int number)
{
	struct canary_rig_switch *which = &rig->switches[number];

	sweep(rig, number);
	memset(which->state, 0, fanin_state_size(rig->handler, &which->job));
	which->timers->head = which->timers->tail;
}

static struct rte_mbuf *
make(struct canary_rig *rig, enum fanin_type type, uint32_t block, uint32_t dst_ip, uint16_t flags)
{
	const struct fanin_flow flow = {
		.dst_ip_be = htonl(dst_ip),
		.dst_port = FANIN_WIRE_DEFAULT_UDP_PORT,
	};
	const uint32_t len = (flags & FANIN_FLAG_EMPTY) != 0 ? 0
							     : CANARY_RIG_COUNT * sizeof(uint32_t);
	struct rte_mbuf *mbuf = fake_get(&rig->pool, len);
	struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *);

	fanin_wire_encode_l4(headers, &flow, len);
	fanin_wire_encode_header(&headers->fanin, type, 1, CANARY_RIG_RUN,
				 fanin_type_direction((uint8_t)type) == FANIN_UP ? 11 : 21);
	headers->fanin.block = block;
	headers->fanin.flags = flags;
	headers->fanin.dtype = FANIN_WIRE_I32;
	headers->fanin.op = FANIN_WIRE_SUM;
	headers->fanin.count = CANARY_RIG_COUNT;
	return mbuf;
}

static void
sum_of(uint32_t block, uint64_t members, uint32_t values[CANARY_RIG_COUNT])
{
	for (unsigned int i = 0; i < CANARY_RIG_COUNT; i++) {
		values[i] = 0;
		for (uint64_t left = members; left != 0; left &= left - 1)
			values[i] += canary_rig_value((unsigned int)__builtin_ctzll(left), block,
						      i);
	}
}

static void
put_sum(struct rte_mbuf *mbuf, uint32_t block, uint64_t members)
{
	uint32_t values[CANARY_RIG_COUNT];

	sum_of(block, members, values);
	memcpy(rte_pktmbuf_mtod_offset(mbuf, void *, FANIN_PAYLOAD_OFFSET), values, sizeof(values));
}

struct rte_mbuf *
canary_rig_reduce(struct canary_rig *rig, uint32_t block, uint64_t members, uint16_t flags)
{
	const unsigned int leader = fanin_canary_leader(block, rig->n_ranks);
	struct rte_mbuf *mbuf = make(rig, FANIN_TYPE_REDUCE, block, CANARY_RIG_LEADER_IP(leader),
				     flags);
	struct fanin_hdr *hdr = &rte_pktmbuf_mtod(mbuf, struct fanin_headers *)->fanin;

	hdr->members = members;
	hdr->rank = (uint16_t)__builtin_ctzll(members | UINT64_C(1) << 63);
	hdr->contributions = (uint16_t)__builtin_popcountll(members);
	if ((flags & FANIN_FLAG_EMPTY) == 0)
		put_sum(mbuf, block, members);
	return mbuf;
}

struct rte_mbuf *
canary_rig_result(struct canary_rig *rig, uint32_t block)
{
	struct rte_mbuf *mbuf = make(rig, FANIN_TYPE_RESULT, block, FANIN_WIRE_GROUPS | 1, 0);

	put_sum(mbuf, block, fanin_ranks_all_word(rig->n_ranks, 0));
	return mbuf;
}

struct rte_mbuf *
canary_rig_restore(struct canary_rig *rig, uint32_t block, unsigned int number, uint64_t ports)
{
	struct rte_mbuf *mbuf = make(rig, FANIN_TYPE_RESTORE, block, CANARY_RIG_SWITCH_IP(number),
				     0);

	put_sum(mbuf, block, fanin_ranks_all_word(rig->n_ranks, 0));
	rte_pktmbuf_mtod(mbuf, struct fanin_headers *)->fanin.members = ports;
	return mbuf;
}

bool
canary_rig_is_sum(const struct rte_mbuf *mbuf, uint32_t block, uint64_t members)
{
	uint32_t values[CANARY_RIG_COUNT];

	sum_of(block, members, values);
	return memcmp(rte_pktmbuf_mtod_offset(mbuf, const void *, FANIN_PAYLOAD_OFFSET), values,
		      sizeof(values)) == 0;
}

enum fanin_verdict
canary_rig_offer(struct canary_rig *rig, unsigned int number, unsigned int port,
		 struct rte_mbuf *mbuf)
{
	struct canary_rig_switch *which = &rig->switches[number];
	struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *);
	const uint32_t index = fanin_slot_index(&which->job.slots, headers->fanin.block);
	struct fanin_packet packet = {
		.mbuf = mbuf,
		.headers = headers,
		.payload = headers + 1,
		.payload_len = fanin_wire_payload_len(headers),
		.child = (uint16_t)port,
	};
	enum fanin_verdict verdict;

	ck_assert(fanin_handler_takes(rig->handler, headers->fanin.type));
	which->ctx.now_ns = rig->now_ns;
	rig->reason = FANIN_REASON_NONE;
	verdict = rig->handler->other(&which->ctx, which->slots[index], index, &packet,
				      &rig->reason);
	ck_assert_int_eq(verdict == FANIN_VERDICT_DROP, rig->reason != FANIN_REASON_NONE);
	if (verdict == FANIN_VERDICT_FREE || verdict == FANIN_VERDICT_DROP)
		fake_put(&rig->pool, mbuf);
	carry_out(rig, number, &which->ctx);
	return verdict;
}

void
canary_rig_pass_time(struct canary_rig *rig, uint64_t ns)
{
	rig->now_ns += ns;
	for (unsigned int number = 0; number < rig->n_switches; number++) {
		struct canary_rig_switch *which = &rig->switches[number];

		which->ctx.now_ns = rig->now_ns;
		while (!fanin_timer_fifo_is_empty(which->timers) &&
		       fanin_timer_fifo_first(which->timers)->due_ns <= rig->now_ns) {
			const struct fanin_timer timer = *fanin_timer_fifo_first(which->timers);

			which->timers->head++;
			ck_assert(rig->handler->expired(&which->ctx, which->slots[timer.index],
							timer.index, timer.block));
			carry_out(rig, number, &which->ctx);
		}
	}
}
