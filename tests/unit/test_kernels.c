/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The kernels: every operator on every data type in every instruction set of this CPU, compared
 * with the naive reference. The reference is exact to the bit, so all instruction sets give the
 * same.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "handlers/kernels/kernels.h"
#include "lab/reference/kernel_reference.h"
#include "tests/unit/suites.h"
#include "wire/types.h"

#define SHORT_MAX 140
#define COUNT_MAX 9000
#define MARGIN 64
#define GUARD 0xee

static const size_t long_counts[] = { 255, 256, 257, 1000, 4111, 8999 };
/* Contributions to an average; f16 and bf16 can't represent the last two exactly. */
static const uint32_t contributions[] = { 1, 2, 3, 7, 8, 10, 61, 64, 1000, 4097, 65535 };

#define N_ELEMENTS(array) (sizeof(array) / sizeof((array)[0]))

static uint8_t acc_buffer[COUNT_MAX * 8 + 2 * MARGIN] __attribute__((aligned(64)));
static uint8_t in_buffer[COUNT_MAX * 8 + 2 * MARGIN] __attribute__((aligned(64)));
static uint64_t expected[COUNT_MAX];

static void
store(uint8_t *to, unsigned int dtype, size_t i, uint64_t element)
{
	unsigned int size = fanin_dtype_size(dtype);

	memcpy(to + i * size, &element, size);
}

static uint64_t
load(const uint8_t *from, unsigned int dtype, size_t i)
{
	unsigned int size = fanin_dtype_size(dtype);
	uint64_t element = 0;

	memcpy(&element, from + i * size, size);
	return element;
}

/* Checks acc after a kernel, and that the bytes behind it are unchanged. */
static void
check_result(enum fanin_isa isa, unsigned int dtype, unsigned int op, const uint8_t *acc,
	     size_t count)
{
	size_t len = count * fanin_dtype_size(dtype);

	for (size_t i = 0; i < count; i++) {
		uint64_t found = load(acc, dtype, i);

		/* Not with ck_assert, which writes to a pipe each time. */
		if (reference_same(dtype, op, found, expected[i]))
			continue;
		ck_abort_msg("%s %s %s, %zu elements: element %zu is %#llx, expected %#llx",
			     fanin_isa_name(isa), fanin_dtype_name(dtype), fanin_op_name(op), count,
			     i, (unsigned long long)found, (unsigned long long)expected[i]);
	}
	for (size_t i = 0; i < 8; i++) {
		if (acc[len + i] != GUARD)
			ck_abort_msg("%s %s %s wrote behind %zu elements", fanin_isa_name(isa),
				     fanin_dtype_name(dtype), fanin_op_name(op), count);
	}
}

static void
check_combine(enum fanin_isa isa, unsigned int dtype, unsigned int op, uint8_t *acc, uint8_t *in,
	      size_t count, struct random *random)
{
	for (size_t i = 0; i < count; i++) {
		uint64_t a = reference_random(random, dtype);
		uint64_t b = random_below(random, 8) == 0 ? a : reference_random(random, dtype);

		store(acc, dtype, i, a);
		store(in, dtype, i, b);
		expected[i] = reference_combine(dtype, op, a, b);
	}
	memset(acc + count * fanin_dtype_size(dtype), GUARD, 8);
	fanin_kernel(isa, dtype, op)(acc, in, count);
	check_result(isa, dtype, op, acc, count);
}

static void
check_finish(enum fanin_isa isa, unsigned int dtype, uint8_t *acc, size_t count,
	     struct random *random)
{
	uint32_t n = contributions[random_below(random, N_ELEMENTS(contributions))];

	for (size_t i = 0; i < count; i++) {
		uint64_t a = reference_random(random, dtype);

		store(acc, dtype, i, a);
		expected[i] = reference_divide(dtype, a, n);
	}
	memset(acc + count * fanin_dtype_size(dtype), GUARD, 8);
	fanin_kernel_finish(isa, dtype, FANIN_WIRE_AVG)(acc, n, count);
	check_result(isa, dtype, FANIN_WIRE_AVG, acc, count);
}

/*
 * Checks all kernels of an instruction set, with acc and in this many elements away from a cache
 * line. Does nothing if the CPU lacks the instruction set.
 */
static void
check_all(int isa, size_t acc_offset, size_t in_offset, size_t count, struct random *random)
{
	if (isa > (int)fanin_isa_detect())
		return;
	for (unsigned int dtype = 1; dtype < FANIN_WIRE_DTYPE_COUNT; dtype++) {
		uint8_t *acc = acc_buffer + acc_offset * fanin_dtype_size(dtype) % MARGIN;
		uint8_t *in = in_buffer + in_offset * fanin_dtype_size(dtype) % MARGIN;

		for (unsigned int op = 1; op < FANIN_WIRE_OP_COUNT; op++) {
			if (fanin_operation_defined(dtype, op))
				check_combine((enum fanin_isa)isa, dtype, op, acc, in, count,
					      random);
		}
		check_finish((enum fanin_isa)isa, dtype, acc, count, random);
	}
}

START_TEST(every_short_length_is_right)
{
	struct random random = random_seed(2);

	for (size_t count = 0; count <= SHORT_MAX; count++)
		check_all(_i, 0, 0, count, &random);
}
END_TEST

START_TEST(long_vectors_are_right)
{
	struct random random = random_seed(3);

	for (size_t i = 0; i < N_ELEMENTS(long_counts); i++)
		check_all(_i, 0, 0, long_counts[i], &random);
}
END_TEST

START_TEST(every_alignment_is_right)
{
	struct random random = random_seed(4);

	for (size_t offset = 0; offset < MARGIN; offset++) {
		check_all(_i, offset, 0, 83, &random);
		check_all(_i, 0, offset, 83, &random);
		check_all(_i, offset, offset * 11 + 5, 83, &random);
	}
}
END_TEST

/* Frames from other hosts may have their payload at any address. */
START_TEST(elements_need_not_be_aligned)
{
	struct random random = random_seed(5);

	if (_i > (int)fanin_isa_detect())
		return;
	for (unsigned int dtype = 1; dtype < FANIN_WIRE_DTYPE_COUNT; dtype++) {
		for (unsigned int op = 1; op < FANIN_WIRE_OP_COUNT; op++) {
			if (fanin_operation_defined(dtype, op))
				check_combine((enum fanin_isa)_i, dtype, op, acc_buffer + 1,
					      in_buffer + 3, 83, &random);
		}
		check_finish((enum fanin_isa)_i, dtype, acc_buffer + 5, 83, &random);
	}
}
END_TEST

START_TEST(extremes_of_floats_dont_depend_on_the_order)
{
	static const unsigned int dtypes[] = { FANIN_WIRE_F16, FANIN_WIRE_BF16, FANIN_WIRE_F32,
					       FANIN_WIRE_F64 };
	struct random random = random_seed(6);
	enum fanin_isa isa = (enum fanin_isa)_i;

	if (isa > fanin_isa_detect())
		return;
	for (unsigned int op = FANIN_WIRE_MIN; op <= FANIN_WIRE_MAX; op++) {
		for (size_t d = 0; d < N_ELEMENTS(dtypes); d++) {
			uint8_t *copy = acc_buffer + COUNT_MAX * 4;
			size_t len = 2000 * fanin_dtype_size(dtypes[d]);

			for (size_t i = 0; i < 2000; i++) {
				store(acc_buffer, dtypes[d], i,
				      reference_random(&random, dtypes[d]));
				store(in_buffer, dtypes[d], i,
				      reference_random(&random, dtypes[d]));
			}
			memcpy(copy, acc_buffer, len);
			fanin_kernel(isa, dtypes[d], op)(acc_buffer, in_buffer, 2000);
			fanin_kernel(isa, dtypes[d], op)(in_buffer, copy, 2000);
			ck_assert_mem_eq(acc_buffer, in_buffer, len);
		}
	}
}
END_TEST

START_TEST(integer_sums_and_products_wrap)
{
	int32_t acc[3] = { INT32_MAX, INT32_MIN, INT32_MIN };
	int32_t in[3] = { 1, -1, INT32_MIN };
	uint16_t factor[2] = { 65535, 256 };
	uint16_t other[2] = { 65535, 257 };

	if (_i > (int)fanin_isa_detect())
		return;
	fanin_kernel((enum fanin_isa)_i, FANIN_WIRE_I32, FANIN_WIRE_SUM)(acc, in, 3);
	ck_assert_int_eq(acc[0], INT32_MIN);
	ck_assert_int_eq(acc[1], INT32_MAX);
	ck_assert_int_eq(acc[2], 0);
	fanin_kernel((enum fanin_isa)_i, FANIN_WIRE_U16, FANIN_WIRE_PROD)(factor, other, 2);
	ck_assert_uint_eq(factor[0], 1);
	ck_assert_uint_eq(factor[1], 256);
}
END_TEST

START_TEST(integer_averages_are_truncated_toward_zero)
{
	int8_t small[6] = { -128, -7, -1, 1, 7, 127 };
	uint64_t large[2] = { UINT64_MAX, 2 };
	enum fanin_isa isa = (enum fanin_isa)_i;

	if (isa > fanin_isa_detect())
		return;
	fanin_kernel_finish(isa, FANIN_WIRE_I8, FANIN_WIRE_AVG)(small, 4, 6);
	ck_assert_int_eq(small[0], -32);
	ck_assert_int_eq(small[1], -1);
	ck_assert_int_eq(small[2], 0);
	ck_assert_int_eq(small[3], 0);
	ck_assert_int_eq(small[4], 1);
	ck_assert_int_eq(small[5], 31);
	fanin_kernel_finish(isa, FANIN_WIRE_U64, FANIN_WIRE_AVG)(large, 3, 2);
	ck_assert_uint_eq(large[0], UINT64_MAX / 3);
	ck_assert_uint_eq(large[1], 0);
}
END_TEST

#define SUM_VECTORS 64
#define SUM_ELEMENTS 100

START_TEST(float_sums_in_any_order_stay_within_the_error_bound)
{
	static float vectors[SUM_VECTORS][SUM_ELEMENTS];
	struct random random = random_seed(7);
	unsigned int order[SUM_VECTORS];
	double exact[SUM_ELEMENTS] = { 0 }, magnitude[SUM_ELEMENTS] = { 0 };

	if (_i > (int)fanin_isa_detect())
		return;
	for (unsigned int v = 0; v < SUM_VECTORS; v++) {
		order[v] = v;
		for (size_t i = 0; i < SUM_ELEMENTS; i++) {
			double x = (double)random_u32(&random) / 4294967296.0 - 0.5;

			vectors[v][i] = ldexpf((float)x, (int)random_below(&random, 40) - 20);
			exact[i] += (double)vectors[v][i];
			magnitude[i] += fabs((double)vectors[v][i]);
		}
	}
	for (int round = 0; round < 50; round++) {
		float sum[SUM_ELEMENTS];

		for (unsigned int v = SUM_VECTORS - 1; v > 0; v--) {
			unsigned int other = random_below(&random, v + 1);
			unsigned int swap = order[v];

			order[v] = order[other];
			order[other] = swap;
		}
		memcpy(sum, vectors[order[0]], sizeof(sum));
		for (unsigned int v = 1; v < SUM_VECTORS; v++)
			fanin_kernel((enum fanin_isa)_i, FANIN_WIRE_F32,
				     FANIN_WIRE_SUM)(sum, vectors[order[v]], SUM_ELEMENTS);
		for (size_t i = 0; i < SUM_ELEMENTS; i++)
			ck_assert_double_le(fabs((double)sum[i] - exact[i]),
					    (SUM_VECTORS - 1) * (double)FLT_EPSILON * magnitude[i]);
	}
}
END_TEST

START_TEST(there_is_a_kernel_for_each_defined_pair_and_no_other)
{
	for (int isa = 0; isa <= (int)fanin_isa_detect(); isa++) {
		ck_assert_str_ne(fanin_isa_name((enum fanin_isa)isa), "unknown");
		for (unsigned int dtype = 0; dtype <= FANIN_WIRE_DTYPE_COUNT; dtype++) {
			for (unsigned int op = 0; op <= FANIN_WIRE_OP_COUNT; op++) {
				bool defined = fanin_operation_defined(dtype, op);

				ck_assert((fanin_kernel((enum fanin_isa)isa, dtype, op) != NULL) ==
					  defined);
				ck_assert((fanin_kernel_finish((enum fanin_isa)isa, dtype, op) !=
					   NULL) == (defined && op == FANIN_WIRE_AVG));
			}
			ck_assert((fanin_kernel_wide((enum fanin_isa)isa, dtype) != NULL) ==
				  (dtype == FANIN_WIRE_F16 || dtype == FANIN_WIRE_BF16));
		}
	}
}
END_TEST

START_TEST(codes_out_of_range_have_no_kernel)
{
	ck_assert_ptr_null(fanin_kernel(FANIN_ISA_PORTABLE, 255, FANIN_WIRE_SUM));
	ck_assert_ptr_null(fanin_kernel(FANIN_ISA_PORTABLE, FANIN_WIRE_F32, 255));
	ck_assert_ptr_null(fanin_kernel(FANIN_ISA_COUNT, FANIN_WIRE_F32, FANIN_WIRE_SUM));
	ck_assert_ptr_null(fanin_kernel_finish(FANIN_ISA_PORTABLE, 255, FANIN_WIRE_AVG));
	ck_assert_ptr_null(fanin_kernel_finish(FANIN_ISA_COUNT, FANIN_WIRE_F32, FANIN_WIRE_AVG));
	ck_assert_ptr_null(fanin_kernel_wide(FANIN_ISA_PORTABLE, 255));
	ck_assert_ptr_null(fanin_kernel_wide(FANIN_ISA_COUNT, FANIN_WIRE_F16));
	ck_assert_str_eq(fanin_isa_name(FANIN_ISA_COUNT), "unknown");
}
END_TEST

Suite *
suite_kernels(void)
{
	Suite *suite = suite_create("kernels");
	TCase *values = tcase_create("values");
	TCase *table = tcase_create("table");

	/* Each test is a loop over the instruction sets. */
	tcase_set_timeout(values, 300);
	tcase_add_loop_test(values, every_short_length_is_right, 0, FANIN_ISA_COUNT);
	tcase_add_loop_test(values, long_vectors_are_right, 0, FANIN_ISA_COUNT);
	tcase_add_loop_test(values, every_alignment_is_right, 0, FANIN_ISA_COUNT);
	tcase_add_loop_test(values, elements_need_not_be_aligned, 0, FANIN_ISA_COUNT);
	tcase_add_loop_test(values, extremes_of_floats_dont_depend_on_the_order, 0,
			    FANIN_ISA_COUNT);
	tcase_add_loop_test(values, integer_sums_and_products_wrap, 0, FANIN_ISA_COUNT);
	tcase_add_loop_test(values, integer_averages_are_truncated_toward_zero, 0, FANIN_ISA_COUNT);
	tcase_add_loop_test(values, float_sums_in_any_order_stay_within_the_error_bound, 0,
			    FANIN_ISA_COUNT);
	suite_add_tcase(suite, values);

	tcase_add_test(table, there_is_a_kernel_for_each_defined_pair_and_no_other);
	tcase_add_test(table, codes_out_of_range_have_no_kernel);
	suite_add_tcase(suite, table);
	return suite;
}
