/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/unit/handler_rig.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

void
handler_rig_start(struct handler_rig *rig, const char *handler, const struct fanin_job_params *job,
		  uint32_t index)
{
	size_t slot_size;

	memset(rig, 0, sizeof(*rig));
	rig->handler = fanin_handler_find(handler);
	ck_assert_ptr_nonnull(rig->handler);
	rig->job = *job;
	fanin_job_params_hosts(&rig->job, job->n_children);
	rig->job.isa = fanin_isa_detect();
	rig->job.in_order = rig->handler->in_order;
	rig->ctx.job = &rig->job;
	rig->ctx.epoch = 1;
	rig->ctx.stats = &rig->stats;
	rig->index = index;
	fake_pool_init(&rig->pool, 2 * FANIN_WIRE_MAX_CHILDREN);
	slot_size = RTE_CACHE_LINE_ROUNDUP(fanin_slot_size(rig->handler, &rig->job));
	rig->slot = aligned_alloc(RTE_CACHE_LINE_SIZE, slot_size);
	ck_assert_ptr_nonnull(rig->slot);
	memset(rig->slot, 0, slot_size);
}

void
handler_rig_stock(struct handler_rig *rig, uint16_t n)
{
	struct fanin_handler_ctx *ctx = &rig->ctx;

	while (ctx->n_stock > n)
		fake_put(&rig->pool, ctx->stock[--ctx->n_stock]);
	while (ctx->n_stock < n)
		ctx->stock[ctx->n_stock++] = fake_get(&rig->pool, 0);
}

void
handler_rig_flush(struct handler_rig *rig)
{
	for (unsigned int i = 0; i < rig->ctx.n_emissions; i++) {
		const struct fanin_emission *emission = &rig->ctx.emissions[i];

		for (uint64_t left = emission->children; left != 0; left &= left - 1)
			fake_put(&rig->pool, emission->mbuf);
		if (emission->kind == FANIN_EMIT_PARENT)
			fake_put(&rig->pool, emission->mbuf);
	}
	for (unsigned int i = 0; i < rig->ctx.n_frees; i++)
		fake_put(&rig->pool, rig->ctx.frees[i]);
	rig->ctx.n_emissions = 0;
	rig->ctx.n_frees = 0;
}

void
handler_rig_stop(struct handler_rig *rig)
{
	handler_rig_flush(rig);
	rig->handler->slot_release(&rig->ctx, rig->slot);
	handler_rig_flush(rig);
	handler_rig_stock(rig, 0);
	ck_assert_uint_eq(fake_pool_in_use(&rig->pool), 0);
	fake_pool_fini(&rig->pool);
	free(rig->slot);
}

struct rte_mbuf *
handler_rig_make(struct handler_rig *rig, uint16_t child, uint32_t block, uint16_t flags,
		 const struct shape *shape, const void *elements)
{
	uint32_t payload_len = (flags & FANIN_FLAG_EMPTY) != 0
				       ? 0
				       : shape->count * fanin_dtype_size(shape->dtype);
	struct rte_mbuf *mbuf = fake_get(&rig->pool, payload_len);
	struct fanin_hdr *hdr = &headers_of(mbuf)->fanin;

	fanin_wire_encode_header(hdr, FANIN_TYPE_CONTRIBUTION, rig->job.id, rig->ctx.epoch,
				 rig->job.keys.up);
	hdr->flags = flags;
	hdr->rank = child;
	hdr->contributions = 1;
	hdr->block = block;
	hdr->dtype = (uint8_t)shape->dtype;
	hdr->op = (uint8_t)shape->op;
	hdr->count = shape->count;
	hdr->root = (uint16_t)(shape->op >> 8);
	if (payload_len != 0)
		memcpy(elements_of(mbuf), elements, payload_len);
	return mbuf;
}

struct answer
handler_rig_offer(struct handler_rig *rig, struct rte_mbuf *mbuf)
{
	struct fanin_headers *headers = headers_of(mbuf);
	struct fanin_packet packet = {
		.mbuf = mbuf,
		.headers = headers,
		.payload = elements_of(mbuf),
		.payload_len = rte_pktmbuf_data_len(mbuf) - FANIN_PAYLOAD_OFFSET,
		.child = headers->fanin.rank,
	};
	struct answer answer = { .mbuf = mbuf };

	answer.verdict = rig->handler->contribution(&rig->ctx, rig->slot, rig->index, &packet,
						    &answer.reason);
	if (answer.verdict == FANIN_VERDICT_FREE || answer.verdict == FANIN_VERDICT_DROP)
		fake_put(&rig->pool, mbuf);
	return answer;
}

struct answer
handler_rig_contribute(struct handler_rig *rig, uint16_t child, uint32_t block, uint16_t flags,
		       const struct shape *shape, const void *elements)
{
	return handler_rig_offer(rig, handler_rig_make(rig, child, block, flags, shape, elements));
}

const struct fanin_emission *
handler_rig_emission(const struct handler_rig *rig, enum fanin_emission_kind kind,
		     uint64_t children)
{
	ck_assert_uint_eq(rig->ctx.n_emissions, 1);
	ck_assert_int_eq(rig->ctx.emissions[0].kind, kind);
	ck_assert_uint_eq(rig->ctx.emissions[0].children, children);
	return &rig->ctx.emissions[0];
}
