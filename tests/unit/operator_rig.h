/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One slot of one job for tests of the results that handlers compute: random contributions of any
 * data type and operator, and the naive reference's result of all of them in the handler's order.
 * To be included by one test file.
 */
#ifndef FANIN_TESTS_UNIT_OPERATOR_RIG_H
#define FANIN_TESTS_UNIT_OPERATOR_RIG_H

#include <string.h>

#include <check.h>

#include "tests/unit/handler_rig.h"
#include "tests/unit/handlers_here.h"
#include "lab/reference/kernel_reference.h"

#define COUNT 37 /* maximum of elements */
#define WINDOW 1

static const uint16_t sizes[] = { 1, 2, 3, 8, 16, 64 };
#define N_SIZES (int)(sizeof(sizes) / sizeof(sizes[0]))

static const char *handlers[] = { "single", "multi", "tree", "sparse-array" };
static int n_handlers; /* that this build has: set by handlers_here */

/* The rig's blocks come one after the other. */
static struct handler_rig rig;

static struct {
	struct random random;
	uint32_t block;
	uint16_t count; /* elements of the block */
	uint64_t sent[FANIN_WIRE_MAX_CHILDREN][COUNT];
} operands;

static inline void
rig_start(const char *handler, uint16_t n_children)
{
	const struct fanin_job_params job = {
		.id = 1,
		.n_children = n_children,
		.window = WINDOW,
		.payload_bytes = COUNT * 8,
		.buffers = 3,
	};

	handler_rig_start(&rig, handler, &job, 0);
	memset(&operands, 0, sizeof(operands));
	operands.random = random_seed(n_children);
	operands.count = COUNT;
}

/* Makes a contribution of random elements, and stores them in operands.sent. */
static inline struct rte_mbuf *
contribution_make(uint16_t child, unsigned int dtype, unsigned int op, uint16_t flags)
{
	const struct shape shape = { dtype, op, operands.count };
	unsigned int size = fanin_dtype_size(dtype);
	uint8_t elements[COUNT * 8];

	for (unsigned int i = 0; i < operands.count; i++) {
		operands.sent[child][i] = reference_random(&operands.random, dtype);
		memcpy(elements + i * size, &operands.sent[child][i], size);
	}
	return handler_rig_make(&rig, child, operands.block, flags, &shape, elements);
}

static inline struct answer
contribute(uint16_t child, unsigned int dtype, unsigned int op, uint16_t flags)
{
	return handler_rig_offer(&rig, contribution_make(child, dtype, op, flags));
}

/* Returns the type that handlers compute with: f16 and bf16 of a wide job are f32 on arrival. */
static inline unsigned int
accumulator_of(unsigned int dtype, unsigned int op)
{
	bool is_half = dtype == FANIN_WIRE_F16 || dtype == FANIN_WIRE_BF16;
	bool is_sum = op == FANIN_WIRE_SUM || op == FANIN_WIRE_AVG;

	return rig.job.wide && is_half && is_sum ? FANIN_WIRE_F32 : dtype;
}

/* Returns an element that a child sent, as the handler has it. */
static inline uint64_t
element_of(unsigned int dtype, unsigned int op, uint16_t child, unsigned int i)
{
	uint64_t sent = operands.sent[child][i];

	if (accumulator_of(dtype, op) == dtype)
		return sent;
	return reference_encode(&format_f32, reference_decode(reference_format(dtype), sent));
}

/*
 * Returns the tree's sum of element i of children first to first + width - 1: the halves of a power
 * of two.
 */
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

/* Returns the result's element i; children contributed in the order of their numbers. */
static inline uint64_t
reference(unsigned int dtype, unsigned int op, unsigned int i)
{
	unsigned int accumulator = accumulator_of(dtype, op);
	uint64_t result = element_of(dtype, op, 0, i);

	for (uint16_t child = 1; child < rig.job.n_children; child++)
		result = reference_combine(accumulator, op, result,
					   element_of(dtype, op, child, i));
	if (strcmp(rig.handler->name, "tree") == 0)
		result = tree_reference(dtype, op, i, 0, FANIN_WIRE_MAX_CHILDREN);
	if (op == FANIN_WIRE_AVG)
		result = reference_divide(accumulator, result, rig.job.n_children);
	if (accumulator == dtype)
		return result;
	return reference_encode(reference_format(dtype), reference_decode(&format_f32, result));
}

/* Checks that the last call made one emission, with the expected result of these children. */
static inline void
check_result(unsigned int dtype, unsigned int op, uint64_t children, const uint64_t *expected)
{
	unsigned int size = fanin_dtype_size(dtype);
	struct rte_mbuf *mbuf = handler_rig_emission(&rig, FANIN_EMIT_CHILDREN, children)->mbuf;
	const struct fanin_hdr *hdr = &headers_of(mbuf)->fanin;
	const uint8_t *elements = elements_of(mbuf);

	ck_assert_uint_eq(hdr->dtype, dtype);
	ck_assert_uint_eq(hdr->op, op);
	ck_assert_uint_eq(hdr->contributions, rig.job.n_children);
	ck_assert_uint_eq(hdr->count, operands.count);
	ck_assert_uint_eq(mbuf->data_len, FANIN_PAYLOAD_OFFSET + operands.count * size);
	for (unsigned int i = 0; i < operands.count; i++) {
		uint64_t found = 0;

		memcpy(&found, elements + i * size, size);
		if (!reference_same(dtype, op, found, expected[i]))
			ck_abort_msg(
				"%s: %s of %s on %u children: element %u is %#llx, expected %#llx",
				rig.handler->name, fanin_op_name(op), fanin_dtype_name(dtype),
				rig.job.n_children, i, (unsigned long long)found,
				(unsigned long long)expected[i]);
	}
}

/* Reduces a whole block, and leaves the result to be checked. */
static inline void
reduce(unsigned int dtype, unsigned int op, uint64_t *expected)
{
	for (uint16_t child = 0; child < rig.job.n_children; child++)
		contribute(child, dtype, op, 0);
	for (unsigned int i = 0; i < operands.count; i++)
		expected[i] = reference(dtype, op, i);
}

#endif
