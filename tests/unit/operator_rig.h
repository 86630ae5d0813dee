/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One slot of one job for tests of what handlers compute: random contributions of any data type and operator, and the naive
 * reference's result of all of them in the handler's order. For a test file to include.
 */
#ifndef FANIN_TESTS_UNIT_OPERATOR_RIG_H
#define FANIN_TESTS_UNIT_OPERATOR_RIG_H

#include <stdlib.h>
#include <string.h>

#include <check.h>

#include "handlers/window.h"
#include "tests/unit/fake_mbuf.h"
#include "tests/unit/kernel_reference.h"

#define COUNT 37 /* most elements */
#define EPOCH 1
#define WINDOW 1

static const uint16_t sizes[] = { 1, 2, 3, 8, 16, 64 };

static const char *const handlers[] = { "single", "multi", "tree" };

#define N_SIZES (int)(sizeof(sizes) / sizeof(sizes[0]))
#define N_HANDLERS (int)(sizeof(handlers) / sizeof(handlers[0]))

/* One slot of one job, whose blocks come one after the other. */
static struct rig {
	const struct fanin_handler *handler;
	struct fanin_job_params job;
	struct fanin_handler_ctx ctx;
	struct fanin_handler_stats stats;
	struct fake_pool pool;
	struct random random;
	uint32_t block;
	uint16_t count; /* elements of the block */
	uint64_t sent[FANIN_WIRE_MAX_CHILDREN][COUNT];
	void *slot;
} rig;

static inline void
rig_start(const char *handler, uint16_t n_children)
{
	memset(&rig, 0, sizeof(rig));
	rig.handler = fanin_handler_find(handler);
	ck_assert_ptr_nonnull(rig.handler);
	rig.job = (struct fanin_job_params){
		.id = 1,
		.n_children = n_children,
		.window = WINDOW,
		.payload_bytes = COUNT * 8,
		.children = UINT64_MAX >> (FANIN_WIRE_MAX_CHILDREN - n_children),
		.isa = fanin_isa_detect(),
		.buffers = 3,
	};
	rig.count = COUNT;
	rig.ctx.job = &rig.job;
	rig.ctx.epoch = EPOCH;
	rig.ctx.stats = &rig.stats;
	rig.random = random_seed(n_children);
	fake_pool_init(&rig.pool, 2 * FANIN_WIRE_MAX_CHILDREN);
	rig.slot = aligned_alloc(64, RTE_CACHE_LINE_ROUNDUP(rig.handler->slot_size(&rig.job)));
	ck_assert_ptr_nonnull(rig.slot);
	memset(rig.slot, 0, rig.handler->slot_size(&rig.job));
}

/* As if every packet had been sent. */
static inline void
rig_flush(void)
{
	for (unsigned int i = 0; i < rig.ctx.n_emissions; i++) {
		const struct fanin_emission *emission = &rig.ctx.emissions[i];

		for (uint64_t left = emission->children; left != 0; left &= left - 1)
			fake_put(&rig.pool, emission->mbuf);
	}
	for (unsigned int i = 0; i < rig.ctx.n_frees; i++)
		fake_put(&rig.pool, rig.ctx.frees[i]);
	rig.ctx.n_emissions = 0;
	rig.ctx.n_frees = 0;
}

static inline void
rig_stop(void)
{
	rig_flush();
	rig.handler->slot_release(&rig.ctx, rig.slot);
	rig_flush();
	ck_assert_uint_eq(fake_pool_in_use(&rig.pool), 0);
	fake_pool_fini(&rig.pool);
	free(rig.slot);
}

static inline uint8_t *
payload_of(struct rte_mbuf *mbuf)
{
	return rte_pktmbuf_mtod_offset(mbuf, uint8_t *, FANIN_PAYLOAD_OFFSET);
}

/* A contribution of random elements, which are noted in rig.sent. */
static inline struct rte_mbuf *
contribution_make(uint16_t child, unsigned int dtype, unsigned int op, uint16_t flags)
{
	unsigned int size = fanin_dtype_size(dtype);
	struct rte_mbuf *mbuf = fake_get(&rig.pool, rig.count * size);
	struct fanin_hdr *hdr = &rte_pktmbuf_mtod(mbuf, struct fanin_headers *)->fanin;

	fanin_wire_encode_header(hdr, FANIN_TYPE_CONTRIBUTION, rig.job.id, EPOCH, 0);
	hdr->flags = flags;
	hdr->rank = child;
	hdr->contributions = 1;
	hdr->block = rig.block;
	hdr->dtype = (uint8_t)dtype;
	hdr->op = (uint8_t)op;
	hdr->count = rig.count;
	for (unsigned int i = 0; i < rig.count; i++) {
		uint64_t element = reference_random(&rig.random, dtype);

		memcpy(payload_of(mbuf) + i * size, &element, size);
		rig.sent[child][i] = element;
	}
	return mbuf;
}

/* To the handler; the mbuf stays the test's if it is to be tried again. */
static inline enum fanin_verdict
offer(struct rte_mbuf *mbuf, enum fanin_reason *reason)
{
	struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *);
	struct fanin_packet packet = {
		.mbuf = mbuf,
		.headers = headers,
		.payload = payload_of(mbuf),
		.payload_len = headers->fanin.count * fanin_dtype_size(headers->fanin.dtype),
		.child = headers->fanin.rank,
	};
	enum fanin_verdict verdict;

	verdict = rig.handler->contribution(&rig.ctx, rig.slot, rig.block % (2 * WINDOW), &packet,
					    reason);
	if (verdict == FANIN_VERDICT_FREE || verdict == FANIN_VERDICT_DROP)
		fake_put(&rig.pool, mbuf);
	return verdict;
}

static inline enum fanin_verdict
contribute(uint16_t child, unsigned int dtype, unsigned int op, uint16_t flags,
	   enum fanin_reason *reason)
{
	return offer(contribution_make(child, dtype, op, flags), reason);
}

/* What handlers compute with: a wide job's f16 and bf16 are f32 as soon as they have come. */
static inline unsigned int
accumulator_of(unsigned int dtype, unsigned int op)
{
	bool is_half = dtype == FANIN_WIRE_F16 || dtype == FANIN_WIRE_BF16;
	bool is_sum = op == FANIN_WIRE_SUM || op == FANIN_WIRE_AVG;

	return rig.job.wide && is_half && is_sum ? FANIN_WIRE_F32 : dtype;
}

/* An element that a child sent, as the handler has it. */
static inline uint64_t
element_of(unsigned int dtype, unsigned int op, uint16_t child, unsigned int i)
{
	uint64_t sent = rig.sent[child][i];

	if (accumulator_of(dtype, op) == dtype)
		return sent;
	return reference_encode(&format_f32, reference_decode(reference_format(dtype), sent));
}

/* What the tree makes of element i of children first to first + width - 1: the halves of a power of two. */
static inline uint64_t
tree_reference(unsigned int dtype, unsigned int op, unsigned int i, uint16_t first, uint16_t width)
{
	uint16_t half = width / 2;

	if (width == 1)
		return element_of(dtype, op, first, i);
	if (first + half >= rig.job.n_children)
		return tree_reference(dtype, op, i, first, half);
	return reference_combine(accumulator_of(dtype, op), op,
				 tree_reference(dtype, op, i, first, half),
				 tree_reference(dtype, op, i, (uint16_t)(first + half), half));
}

/* The result's element i; children contributed in the order of their numbers. */
static inline uint64_t
reference(unsigned int dtype, unsigned int op, unsigned int i)
{
	unsigned int accumulator = accumulator_of(dtype, op);
	uint64_t result = element_of(dtype, op, 0, i);

	for (uint16_t child = 1; child < rig.job.n_children; child++)
		result = reference_combine(accumulator, op, result, element_of(dtype, op, child, i));
	if (strcmp(rig.handler->name, "tree") == 0)
		result = tree_reference(dtype, op, i, 0, FANIN_WIRE_MAX_CHILDREN);
	if (op == FANIN_WIRE_AVG)
		result = reference_divide(accumulator, result, rig.job.n_children);
	if (accumulator == dtype)
		return result;
	return reference_encode(reference_format(dtype), reference_decode(&format_f32, result));
}

/* The one emission that the last call made, which has to be the right result. */
static inline void
check_result(unsigned int dtype, unsigned int op, const uint64_t *expected)
{
	unsigned int size = fanin_dtype_size(dtype);
	const struct fanin_hdr *hdr;
	struct rte_mbuf *mbuf;

	ck_assert_uint_eq(rig.ctx.n_emissions, 1);
	ck_assert_int_eq(rig.ctx.emissions[0].kind, FANIN_EMIT_CHILDREN);
	mbuf = rig.ctx.emissions[0].mbuf;
	hdr = &rte_pktmbuf_mtod(mbuf, struct fanin_headers *)->fanin;
	ck_assert_uint_eq(hdr->dtype, dtype);
	ck_assert_uint_eq(hdr->op, op);
	ck_assert_uint_eq(hdr->contributions, rig.job.n_children);
	ck_assert_uint_eq(hdr->count, rig.count);
	ck_assert_uint_eq(mbuf->data_len, FANIN_PAYLOAD_OFFSET + rig.count * size);
	for (unsigned int i = 0; i < rig.count; i++) {
		uint64_t found = 0;

		memcpy(&found, payload_of(mbuf) + i * size, size);
		if (!reference_same(dtype, op, found, expected[i]))
			ck_abort_msg("%s: %s of %s on %u children: element %u is %#llx, expected %#llx",
				     rig.handler->name, fanin_op_name(op), fanin_dtype_name(dtype),
				     rig.job.n_children, i, (unsigned long long)found,
				     (unsigned long long)expected[i]);
	}
}

/* A whole block, whose result is left to be looked at. */
static inline void
reduce(unsigned int dtype, unsigned int op, uint64_t *expected)
{
	enum fanin_reason reason;

	for (uint16_t child = 0; child < rig.job.n_children; child++)
		contribute(child, dtype, op, 0, &reason);
	for (unsigned int i = 0; i < rig.count; i++)
		expected[i] = reference(dtype, op, i);
}

#endif
