/* SPDX-License-Identifier: BSD-3-Clause */
/* See pa_atp_rig.h. */
#include "protocols/pa_atp/tests/pa_atp_rig.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define TIMERS 256

/* The rig that ctx->drain belongs to. */
static struct pa_atp_rig *rig_of_drain;

static void
keep_output(struct pa_atp_rig *rig, const struct fanin_emission *emission)
{
	struct pa_atp_output *output = &rig->outputs[rig->n_outputs++];
	const struct rte_mbuf *mbuf = emission->mbuf;

	ck_assert_uint_le(rig->n_outputs, PA_ATP_RIG_OUTPUTS);
	output->kind = emission->kind;
	output->children = emission->children;
	/* The pipeline completes replies. */
	output->payload_len = emission->kind == FANIN_EMIT_REPLY
				      ? emission->payload_len
				      : mbuf->data_len - (uint32_t)FANIN_PAYLOAD_OFFSET;
	ck_assert_uint_le(output->payload_len, PA_ATP_RIG_PAYLOAD);
	memcpy(&output->headers, rte_pktmbuf_mtod(mbuf, const void *), sizeof(output->headers));
	memcpy(output->payload, rte_pktmbuf_mtod_offset(mbuf, const void *, FANIN_PAYLOAD_OFFSET),
	       output->payload_len);
	if (emission->kind != FANIN_EMIT_REPLY)
		ck_assert_uint_eq(fanin_wire_validate(rte_pktmbuf_mtod(mbuf, const void *),
						      mbuf->data_len),
				  FANIN_REASON_NONE);
}

static void
carry_out(struct pa_atp_rig *rig)
{
	for (unsigned int i = 0; i < rig->ctx.n_emissions; i++) {
		const struct fanin_emission *emission = &rig->ctx.emissions[i];

		keep_output(rig, emission);
		if (emission->kind == FANIN_EMIT_PARENT)
			fake_put(&rig->pool, emission->mbuf);
		for (uint64_t left = emission->children; left != 0; left &= left - 1)
			fake_put(&rig->pool, emission->mbuf);
	}
	for (unsigned int i = 0; i < rig->ctx.n_frees; i++)
		fake_put(&rig->pool, rig->ctx.frees[i]);
	rig->ctx.n_emissions = 0;
	rig->ctx.n_frees = 0;
}

static void
drain(struct fanin_handler_ctx *ctx)
{
	(void)ctx;
	carry_out(rig_of_drain);
}

static void
make_job(struct pa_atp_rig *rig, unsigned int j, const struct pa_atp_rig_options *options)
{
	struct fanin_job_params *job = &rig->jobs[j];
	const struct fanin_flow flow = { .dst_port = FANIN_WIRE_DEFAULT_UDP_PORT };
	const uint16_t n_ranks = options->n_ranks == 0 ? 3 : options->n_ranks;

	job->id = j + 1;
	fanin_job_params_hosts(job, n_ranks);
	job->has_parent = true;
	job->parent_is_server = !options->leaf;
	if (options->leaf) {
		/* Its last child is a switch with two ranks more; two others are elsewhere. */
		job->child_ranks[n_ranks - 1] = fanin_ranks_of_word(UINT64_C(3) << (n_ranks - 1));
		job->n_below = n_ranks + 1;
		job->n_ranks = n_ranks + 3;
	}
	job->window = options->window == 0 ? 8 : options->window;
	job->payload_bytes = PA_ATP_RIG_PAYLOAD;
	job->isa = fanin_isa_detect();
	job->shared = true;
	job->keys = (struct fanin_keys){ .up = 11 + j, .down = 21 + j };
	fanin_wire_encode_l4(&job->parent_headers, &flow, PA_ATP_RIG_PAYLOAD);
	fanin_wire_encode_l4(&job->result_headers, &flow, PA_ATP_RIG_PAYLOAD);
	job->slots = (struct fanin_slots){
		.by_index = rig->slots,
		.mask = (options->n_slots == 0 ? 8 : options->n_slots) - 1,
		.salt = j * 5,
		.common = &rig->common,
	};
	fake_usual(rig->handler, job);
	rig->states[j] = calloc(1, fanin_state_size(rig->handler, job));
	ck_assert_ptr_nonnull(rig->states[j]);
}

void
pa_atp_rig_start(struct pa_atp_rig *rig, const struct pa_atp_rig_options *options)
{
	memset(rig, 0, sizeof(*rig));
	rig_of_drain = rig;
	rig->handler = fanin_handler_find("pa-atp");
	ck_assert_ptr_nonnull(rig->handler);
	fake_pool_init(&rig->pool, FANIN_STOCK + PA_ATP_RIG_SLOTS_MAX + 8);
	for (unsigned int j = 0; j < PA_ATP_RIG_JOBS; j++)
		make_job(rig, j, options);
	fake_slots(rig->handler, &rig->jobs[0], rig->slots, rig->jobs[0].slots.mask + 1);
	rig->timers = fake_timers(rig->handler, &rig->jobs[0], TIMERS, &rig->earliest_ns);
	rig->ctx.drain = drain;
	rig->ctx.now_ns = 1000;
	rig->ctx.timers = rig->timers;
	pa_atp_rig_select(rig, 0);
}

void
pa_atp_rig_select(struct pa_atp_rig *rig, unsigned int job)
{
	rig->ctx.job = &rig->jobs[job];
	rig->ctx.state = rig->states[job];
	rig->ctx.stats = &rig->stats[job];
	rig->ctx.epoch = PA_ATP_RIG_EPOCH + job;
	rig->ctx.parent_epoch = PA_ATP_RIG_PARENT_EPOCH + job;
}

/* As the main thread does when runs are over. */
static void
sweep(struct pa_atp_rig *rig)
{
	struct fanin_handler_ctx ctx = { .drain = drain };

	for (uint32_t i = 0; i <= rig->jobs[0].slots.mask; i++) {
		struct fanin_slot_tag *tag = (void *)rig->slots[i];

		ck_assert(fanin_slot_enter(tag));
		rig->handler->slot_release(&ctx, tag);
		fanin_slot_empty(tag);
		fanin_slot_leave(tag);
	}
	for (unsigned int i = 0; i < ctx.n_frees; i++)
		fake_put(&rig->pool, ctx.frees[i]);
	for (unsigned int j = 0; j < PA_ATP_RIG_JOBS; j++)
		rig->handler->state_release(&rig->jobs[j], rig->states[j]);
}

void
pa_atp_rig_stop(struct pa_atp_rig *rig)
{
	sweep(rig);
	while (rig->ctx.n_stock != 0)
		fake_put(&rig->pool, rig->ctx.stock[--rig->ctx.n_stock]);
	ck_assert_uint_eq(rig->common.used, 0);
	ck_assert_uint_eq(rig->common.overflowed, 0);
	ck_assert_uint_eq(fake_pool_in_use(&rig->pool), 0);
	for (uint32_t i = 0; i <= rig->jobs[0].slots.mask; i++)
		free(rig->slots[i]);
	for (unsigned int j = 0; j < PA_ATP_RIG_JOBS; j++) {
		ck_assert_uint_eq(rig->states[j]->used, 0);
		free(rig->states[j]);
	}
	free(rig->timers);
	fake_pool_fini(&rig->pool);
}

struct rte_mbuf *
pa_atp_rig_make(struct pa_atp_rig *rig, enum fanin_type type, uint32_t block, const void *payload,
		uint32_t payload_len)
{
	const bool up = fanin_type_direction((uint8_t)type) == FANIN_UP;
	const struct fanin_flow flow = { .dst_port = FANIN_WIRE_DEFAULT_UDP_PORT };
	struct rte_mbuf *mbuf = fake_get(&rig->pool, payload_len);
	struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *);

	fanin_wire_encode_l4(headers, &flow, payload_len);
	fanin_wire_encode_header(&headers->fanin, type, rig->ctx.job->id,
				 up ? rig->ctx.epoch : rig->ctx.parent_epoch,
				 up ? rig->ctx.job->keys.up : rig->ctx.job->keys.down);
	headers->fanin.block = block;
	if (payload != NULL)
		memcpy(headers + 1, payload, payload_len);
	mbuf->port = 5;
	return mbuf;
}

struct rte_mbuf *
pa_atp_rig_make_gradient(struct pa_atp_rig *rig, unsigned int rank, uint32_t block,
			 uint32_t progress, uint16_t flags)
{
	const bool empty = (flags & FANIN_FLAG_EMPTY) != 0;
	uint32_t values[PA_ATP_RIG_COUNT];
	struct rte_mbuf *mbuf;
	struct fanin_hdr *hdr;

	for (uint32_t i = 0; i < PA_ATP_RIG_COUNT; i++)
		values[i] = (rank + 1) * (block + i);
	mbuf = pa_atp_rig_make(rig, FANIN_TYPE_CONTRIBUTION, block, empty ? NULL : values,
			       empty ? 0 : sizeof(values));
	hdr = &rte_pktmbuf_mtod(mbuf, struct fanin_headers *)->fanin;
	hdr->flags = flags;
	hdr->rank = (uint16_t)rank;
	hdr->contributions = 1;
	hdr->progress = progress;
	hdr->dtype = FANIN_WIRE_I32;
	hdr->op = FANIN_WIRE_SUM;
	hdr->count = PA_ATP_RIG_COUNT;
	return mbuf;
}

enum fanin_verdict
pa_atp_rig_offer(struct pa_atp_rig *rig, unsigned int child, struct rte_mbuf *mbuf)
{
	struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *);
	const uint32_t index = fanin_slot_index(&rig->ctx.job->slots, headers->fanin.block);
	struct fanin_packet packet = {
		.mbuf = mbuf,
		.headers = headers,
		.payload = headers + 1,
		.payload_len = fanin_wire_payload_len(headers),
		.child = (uint16_t)child,
	};
	enum fanin_reason reason = FANIN_REASON_NONE;
	enum fanin_verdict verdict;

	while (rig->dry && rig->ctx.n_stock != 0)
		fake_put(&rig->pool, rig->ctx.stock[--rig->ctx.n_stock]);
	while (!rig->dry && rig->ctx.n_stock < FANIN_STOCK)
		rig->ctx.stock[rig->ctx.n_stock++] = fake_get(&rig->pool, 0);
	rig->ctx.missing = 0;
	if (headers->fanin.type == FANIN_TYPE_CONTRIBUTION)
		verdict = rig->handler->contribution(&rig->ctx, rig->slots[index], index, &packet,
						     &reason);
	else
		verdict = rig->handler->other(&rig->ctx, rig->slots[index], index, &packet,
					      &reason);
	ck_assert_int_eq(verdict == FANIN_VERDICT_DROP, reason != FANIN_REASON_NONE);
	rig->reason = reason;
	if (verdict == FANIN_VERDICT_FREE || verdict == FANIN_VERDICT_DROP)
		fake_put(&rig->pool, mbuf);
	carry_out(rig);
	return verdict;
}

void
pa_atp_rig_gradient(struct pa_atp_rig *rig, unsigned int rank, uint32_t block, uint16_t flags)
{
	ck_assert_int_eq(pa_atp_rig_offer(rig, rank,
					  pa_atp_rig_make_gradient(rig, rank, block, 0, flags)),
			 FANIN_VERDICT_HELD);
}

void
pa_atp_rig_query(struct pa_atp_rig *rig, unsigned int child, uint32_t block)
{
	struct rte_mbuf *mbuf = pa_atp_rig_make(rig, FANIN_TYPE_QUERY, block, NULL, 0);
	struct fanin_hdr *hdr = &rte_pktmbuf_mtod(mbuf, struct fanin_headers *)->fanin;

	hdr->rank = (uint16_t)child;
	hdr->flags = FANIN_FLAG_RETRANSMIT;
	hdr->number = 4;
	ck_assert_int_eq(pa_atp_rig_offer(rig, child, mbuf), FANIN_VERDICT_HELD);
}

void
pa_atp_rig_flush(struct pa_atp_rig *rig, uint32_t block)
{
	struct rte_mbuf *mbuf = pa_atp_rig_make(rig, FANIN_TYPE_FLUSH, block, NULL, 0);

	ck_assert_int_eq(pa_atp_rig_offer(rig, 0, mbuf), FANIN_VERDICT_FREE);
}

void
pa_atp_rig_result(struct pa_atp_rig *rig, uint32_t block)
{
	struct rte_mbuf *mbuf = pa_atp_rig_make_gradient(rig, 0, block, 0, 0);
	struct fanin_hdr *hdr = &rte_pktmbuf_mtod(mbuf, struct fanin_headers *)->fanin;

	hdr->type = FANIN_TYPE_RESULT;
	hdr->epoch = rig->ctx.parent_epoch;
	hdr->key = rig->ctx.job->keys.down;
	hdr->contributions = rig->ctx.job->n_ranks;
	ck_assert_int_eq(pa_atp_rig_offer(rig, 0, mbuf), FANIN_VERDICT_HELD);
}

void
pa_atp_rig_pass_time(struct pa_atp_rig *rig, uint64_t ns)
{
	rig->ctx.now_ns += ns;
	while (!fanin_timer_fifo_is_empty(rig->timers) &&
	       fanin_timer_fifo_first(rig->timers)->due_ns <= rig->ctx.now_ns) {
		const struct fanin_timer timer = *fanin_timer_fifo_first(rig->timers);

		rig->timers->head++;
		pa_atp_rig_select(rig, timer.job - 1);
		if (timer.epoch == rig->ctx.epoch)
			ck_assert(rig->handler->expired(&rig->ctx, rig->slots[timer.index],
							timer.index, timer.block));
		carry_out(rig);
	}
}

struct pa_atp_slot *
pa_atp_rig_slot(struct pa_atp_rig *rig, uint32_t block)
{
	return (void *)rig->slots[fanin_slot_index(&rig->ctx.job->slots, block)];
}

const struct pa_atp_output *
pa_atp_rig_take(struct pa_atp_rig *rig, enum fanin_emission_kind kind, enum fanin_type type)
{
	const struct pa_atp_output *output = &rig->outputs[rig->next];
	const bool up = kind == FANIN_EMIT_PARENT;

	ck_assert_uint_lt(rig->next, rig->n_outputs);
	rig->next++;
	ck_assert_int_eq(output->kind, kind);
	ck_assert_uint_eq(output->headers.fanin.type, type);
	ck_assert_uint_eq(output->headers.fanin.job, rig->ctx.job->id);
	ck_assert_uint_eq(output->headers.fanin.epoch, up ? rig->ctx.parent_epoch : rig->ctx.epoch);
	ck_assert_uint_eq(output->headers.fanin.key,
			  up ? rig->ctx.job->keys.up : rig->ctx.job->keys.down);
	/* The room that outputs take is used again. */
	if (rig->next == rig->n_outputs && rig->n_outputs > PA_ATP_RIG_OUTPUTS / 2) {
		rig->outputs[0] = *output;
		rig->n_outputs = rig->next = 1;
		return &rig->outputs[0];
	}
	return output;
}

uint64_t
pa_atp_rig_take_gack(struct pa_atp_rig *rig, unsigned int rank, uint32_t block, bool ce)
{
	const struct pa_atp_output *gack = pa_atp_rig_take(rig, FANIN_EMIT_REPLY, FANIN_TYPE_GACK);

	ck_assert_uint_eq(gack->payload_len, 0);
	ck_assert_uint_eq(gack->headers.fanin.block, block);
	ck_assert_uint_eq(gack->headers.fanin.count, rank);
	ck_assert_uint_eq(gack->headers.fanin.flags, ce ? FANIN_FLAG_CE : 0);
	ck_assert_uint_eq(__builtin_popcountll(gack->children), 1);
	return gack->headers.fanin.members;
}

const struct pa_atp_output *
pa_atp_rig_take_sum(struct pa_atp_rig *rig, uint64_t members, uint32_t block)
{
	const bool complete = members == pa_atp_all_ranks(rig->ctx.job);
	const struct pa_atp_output *sum = pa_atp_rig_take(rig, FANIN_EMIT_PARENT,
							  complete ? FANIN_TYPE_CONTRIBUTION
								   : FANIN_TYPE_PARTIAL);
	const struct fanin_hdr *hdr = &sum->headers.fanin;
	uint32_t values[PA_ATP_RIG_COUNT];

	ck_assert_uint_eq(hdr->block, block);
	ck_assert_uint_eq(hdr->members, complete ? 0 : members);
	ck_assert_uint_eq(hdr->contributions, __builtin_popcountll(members));
	ck_assert_uint_eq(hdr->rank, rig->ctx.job->parent_rank);
	ck_assert_uint_eq(hdr->dtype, FANIN_WIRE_I32);
	ck_assert_uint_eq(hdr->op, FANIN_WIRE_SUM);
	ck_assert_uint_eq(hdr->count, PA_ATP_RIG_COUNT);
	if ((hdr->flags & FANIN_FLAG_EMPTY) != 0) {
		ck_assert_uint_eq(sum->payload_len, 0);
		return sum;
	}
	ck_assert_uint_eq(sum->payload_len, sizeof(values));
	memcpy(values, sum->payload, sizeof(values));
	for (uint32_t i = 0; i < PA_ATP_RIG_COUNT; i++) {
		uint32_t expected = 0;

		for (unsigned int rank = 0; rank < 64; rank++)
			expected += (members >> rank & 1) != 0 ? (rank + 1) * (block + i) : 0;
		ck_assert_uint_eq(values[i], expected);
	}
	return sum;
}

void
pa_atp_rig_expect_nothing(struct pa_atp_rig *rig)
{
	ck_assert_uint_eq(rig->next, rig->n_outputs);
}

uint64_t
pa_atp_rig_count(const struct pa_atp_rig *rig, enum pa_atp_counter counter)
{
	return rig->ctx.stats->own[counter];
}
