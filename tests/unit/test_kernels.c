/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The kernels: a plain definition of each operator, and every instruction set that this CPU has against it.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "handlers/kernels/kernels.h"
#include "tests/unit/random.h"
#include "tests/unit/suites.h"
#include "wire/types.h"

#define CANONICAL_NAN 0x7fc00000u
#define SHORT_MAX 200
#define BUFFER_BYTES (16384 * 4 + 128)
#define GUARD 0xee

static const unsigned int dtypes[] = { FANIN_WIRE_I32, FANIN_WIRE_F32 };
static const unsigned int ops[] = { FANIN_WIRE_SUM, FANIN_WIRE_MIN, FANIN_WIRE_MAX };
static const size_t long_counts[] = { 255, 256, 257, 352, 1000, 2224, 4096, 16381 };

/* Bit patterns of f32 where minimum and maximum go wrong easily. */
static const uint32_t f32_special[] = {
	0x00000000,             /* 0 */
	0x80000000,             /* -0 */
	0x00000001,             /* least denormal */
	0x80000001, 0x007fffff, /* greatest denormal */
	0x807fffff, 0x00800000, /* least normal */
	0x80800000, 0x3f800000, /* 1 */
	0xbf800000, 0x7f7fffff, /* greatest finite */
	0xff7fffff, 0x7f800000, /* infinity */
	0xff800000, 0x7fc00000, /* quiet NaN */
	0xffc00001,             /* another, negative */
	0x7f800001,             /* signalling NaN */
	0xffbfffff,
};

#define N_SPECIAL (sizeof(f32_special) / sizeof(f32_special[0]))

static float
to_float(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static uint32_t
to_bits(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

/* IEEE 754-2019 minimum and maximum, told by cases. */
static uint32_t
reference_f32_extreme(uint32_t a, uint32_t b, bool want_max)
{
	float x = to_float(a), y = to_float(b);

	if (isnan(x) || isnan(y))
		return CANONICAL_NAN;
	if (x == 0 && y == 0)
		return (signbit(x) != 0) == want_max ? b : a;
	return (x < y) == want_max ? b : a;
}

static uint32_t
reference(unsigned int dtype, unsigned int op, uint32_t a, uint32_t b)
{
	if (dtype == FANIN_WIRE_F32) {
		if (op == FANIN_WIRE_SUM)
			return to_bits(to_float(a) + to_float(b));
		return reference_f32_extreme(a, b, op == FANIN_WIRE_MAX);
	}
	if (op == FANIN_WIRE_SUM)
		return a + b;
	return ((int32_t)a < (int32_t)b) == (op == FANIN_WIRE_MAX) ? b : a;
}

/* Sums of NaN are some NaN: which one IEEE 754 leaves open. */
static bool
same(unsigned int dtype, unsigned int op, uint32_t found, uint32_t expected)
{
	if (dtype == FANIN_WIRE_F32 && op == FANIN_WIRE_SUM && isnan(to_float(expected)))
		return isnan(to_float(found));
	return found == expected;
}

static uint32_t
random_element(struct random *random, unsigned int dtype)
{
	if (dtype == FANIN_WIRE_F32 && random_below(random, 4) == 0)
		return f32_special[random_below(random, N_SPECIAL)];
	return random_u32(random);
}

/* One run of a kernel at given addresses; bytes around acc must stay. */
static void
check_kernel(enum fanin_isa isa, unsigned int dtype, unsigned int op, uint8_t *acc, uint8_t *in,
	     size_t count, struct random *random)
{
	static uint32_t expected[BUFFER_BYTES / 4];
	fanin_kernel_fn kernel = fanin_kernel(isa, dtype, op);

	ck_assert_ptr_nonnull(kernel);
	for (size_t i = 0; i < count; i++) {
		uint32_t a = random_element(random, dtype);
		uint32_t b = random_below(random, 8) == 0 ? a : random_element(random, dtype);

		memcpy(acc + 4 * i, &a, 4);
		memcpy(in + 4 * i, &b, 4);
		expected[i] = reference(dtype, op, a, b);
	}
	memset(acc + 4 * count, GUARD, 4);
	kernel(acc, in, count);
	for (size_t i = 0; i < count; i++) {
		uint32_t found;

		memcpy(&found, acc + 4 * i, 4);
		/* Not by ck_assert, which writes to a pipe each time. */
		if (same(dtype, op, found, expected[i]))
			continue;
		ck_abort_msg("%s %s %s, %zu elements: element %zu is %08x, expected %08x",
			     fanin_isa_name(isa), fanin_dtype_name(dtype), fanin_op_name(op), count,
			     i, found, expected[i]);
	}
	for (size_t i = 0; i < 4; i++)
		ck_assert_uint_eq(acc[4 * count + i], GUARD);
}

/* Calls check_kernel for all kernels of an instruction set; those that the CPU lacks are skipped. */
static void
check_all(int isa, uint8_t *acc, uint8_t *in, size_t count, struct random *random)
{
	if (isa > (int)fanin_isa_detect())
		return;
	for (size_t d = 0; d < sizeof(dtypes) / sizeof(dtypes[0]); d++) {
		for (size_t o = 0; o < sizeof(ops) / sizeof(ops[0]); o++)
			check_kernel((enum fanin_isa)isa, dtypes[d], ops[o], acc, in, count, random);
	}
}

static uint8_t acc_buffer[BUFFER_BYTES] __attribute__((aligned(64)));
static uint8_t in_buffer[BUFFER_BYTES] __attribute__((aligned(64)));

START_TEST(every_short_length_is_right)
{
	struct random random = random_seed(2);

	for (size_t count = 0; count <= SHORT_MAX; count++)
		check_all(_i, acc_buffer, in_buffer, count, &random);
}
END_TEST

START_TEST(long_vectors_are_right)
{
	struct random random = random_seed(3);

	for (size_t i = 0; i < sizeof(long_counts) / sizeof(long_counts[0]); i++)
		check_all(_i, acc_buffer, in_buffer, long_counts[i], &random);
}
END_TEST

START_TEST(every_alignment_is_right)
{
	struct random random = random_seed(4);

	for (size_t a = 0; a < 64; a += 4) {
		for (size_t b = 0; b < 64; b += 4)
			check_all(_i, acc_buffer + a, in_buffer + b, 83, &random);
	}
	/* Not even aligned to an element. */
	check_all(_i, acc_buffer + 1, in_buffer + 2, 83, &random);
	check_all(_i, acc_buffer + 3, in_buffer + 7, 83, &random);
}
END_TEST

START_TEST(extremes_of_special_values_dont_depend_on_the_order)
{
	enum fanin_isa isa = (enum fanin_isa)_i;

	if (isa > fanin_isa_detect())
		return;
	for (size_t o = 1; o < sizeof(ops) / sizeof(ops[0]); o++) {
		fanin_kernel_fn kernel = fanin_kernel(isa, FANIN_WIRE_F32, ops[o]);

		for (size_t i = 0; i < N_SPECIAL; i++) {
			uint32_t ab[N_SPECIAL], ba[N_SPECIAL], all[N_SPECIAL];

			for (size_t j = 0; j < N_SPECIAL; j++) {
				ab[j] = f32_special[i];
				ba[j] = all[j] = f32_special[j];
			}
			kernel(ab, all, N_SPECIAL);
			for (size_t j = 0; j < N_SPECIAL; j++)
				all[j] = f32_special[i];
			kernel(ba, all, N_SPECIAL);
			for (size_t j = 0; j < N_SPECIAL; j++) {
				ck_assert_uint_eq(ab[j], ba[j]);
				ck_assert_uint_eq(ab[j], reference(FANIN_WIRE_F32, ops[o],
								   f32_special[i], f32_special[j]));
			}
		}
	}
}
END_TEST

START_TEST(integer_sums_wrap)
{
	int32_t acc[3] = { INT32_MAX, INT32_MIN, INT32_MIN };
	int32_t in[3] = { 1, -1, INT32_MIN };

	if (_i > (int)fanin_isa_detect())
		return;
	fanin_kernel((enum fanin_isa)_i, FANIN_WIRE_I32, FANIN_WIRE_SUM)(acc, in, 3);
	ck_assert_int_eq(acc[0], INT32_MIN);
	ck_assert_int_eq(acc[1], INT32_MAX);
	ck_assert_int_eq(acc[2], 0);
}
END_TEST

#define SUM_VECTORS 64
#define SUM_ELEMENTS 100

START_TEST(float_sums_in_any_order_stay_within_the_error_bound)
{
	static float vectors[SUM_VECTORS][SUM_ELEMENTS];
	struct random random = random_seed(5);
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

START_TEST(pairs_without_a_kernel_are_not_supported)
{
	ck_assert_ptr_null(fanin_kernel(FANIN_ISA_PORTABLE, FANIN_WIRE_F64, FANIN_WIRE_SUM));
	ck_assert_ptr_null(fanin_kernel(FANIN_ISA_PORTABLE, FANIN_WIRE_F32, FANIN_WIRE_BXOR));
	ck_assert_ptr_null(fanin_kernel(FANIN_ISA_PORTABLE, 0, 0));
	ck_assert_ptr_null(fanin_kernel(FANIN_ISA_PORTABLE, 255, FANIN_WIRE_SUM));
	ck_assert_ptr_null(fanin_kernel(FANIN_ISA_PORTABLE, FANIN_WIRE_F32, 255));
	ck_assert_ptr_null(fanin_kernel(FANIN_ISA_COUNT, FANIN_WIRE_F32, FANIN_WIRE_SUM));
}
END_TEST

START_TEST(every_instruction_set_has_the_same_kernels)
{
	for (int isa = 0; isa <= (int)fanin_isa_detect(); isa++) {
		ck_assert_str_ne(fanin_isa_name((enum fanin_isa)isa), "unknown");
		for (unsigned int dtype = 0; dtype < FANIN_WIRE_DTYPE_COUNT; dtype++) {
			for (unsigned int op = 0; op < FANIN_WIRE_OP_COUNT; op++)
				ck_assert((fanin_kernel((enum fanin_isa)isa, dtype, op) == NULL) ==
					  (fanin_kernel(FANIN_ISA_PORTABLE, dtype, op) == NULL));
		}
	}
	ck_assert_str_eq(fanin_isa_name(FANIN_ISA_COUNT), "unknown");
}
END_TEST

Suite *
suite_kernels(void)
{
	Suite *suite = suite_create("kernels");
	TCase *values = tcase_create("values");
	TCase *table = tcase_create("table");

	/* Each as a loop over the instruction sets. */
	tcase_set_timeout(values, 60);
	tcase_add_loop_test(values, every_short_length_is_right, 0, FANIN_ISA_COUNT);
	tcase_add_loop_test(values, long_vectors_are_right, 0, FANIN_ISA_COUNT);
	tcase_add_loop_test(values, every_alignment_is_right, 0, FANIN_ISA_COUNT);
	tcase_add_loop_test(values, extremes_of_special_values_dont_depend_on_the_order, 0,
			    FANIN_ISA_COUNT);
	tcase_add_loop_test(values, integer_sums_wrap, 0, FANIN_ISA_COUNT);
	tcase_add_loop_test(values, float_sums_in_any_order_stay_within_the_error_bound, 0,
			    FANIN_ISA_COUNT);
	suite_add_tcase(suite, values);

	tcase_add_test(table, pairs_without_a_kernel_are_not_supported);
	tcase_add_test(table, every_instruction_set_has_the_same_kernels);
	suite_add_tcase(suite, table);
	return suite;
}
