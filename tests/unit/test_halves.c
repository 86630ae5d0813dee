/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * f16 and bf16 in full: all 65536 values through the conversions of the reference, which are
 * themselves compared with the CPU's f32, and then through every instruction set's kernels.
 */
#include <math.h>
#include <string.h>

#include "handlers/kernels/kernels.h"
#include "lab/reference/kernel_reference.h"
#include "tests/unit/suites.h"
#include "wire/types.h"

#define N_VALUES 65536
#define GUARD 0xee

static const unsigned int dtypes[] = { FANIN_WIRE_F16, FANIN_WIRE_BF16 };

#define N_DTYPES 2

/* Half of the tests loop over these: a type and an instruction set. _i is one of N_CASES. */
#define N_CASES (N_DTYPES * FANIN_ISA_COUNT)

struct half_case {
	unsigned int dtype;
	const struct float_format *format;
	enum fanin_isa isa;
	const struct fanin_wide_kernels *wide;
	bool skip; /* the CPU lacks the instruction set */
};

static struct half_case
case_of(int number)
{
	unsigned int dtype = dtypes[number % N_DTYPES];
	enum fanin_isa isa = (enum fanin_isa)(number / N_DTYPES);

	return (struct half_case){
		.dtype = dtype,
		.format = reference_format(dtype),
		.isa = isa,
		.wide = fanin_kernel_wide(isa, dtype),
		.skip = isa > fanin_isa_detect(),
	};
}

static float
float_of(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static uint32_t
bits_of(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

/* Returns the next number away from zero. */
static double
next_value(const struct float_format *format, uint64_t bits)
{
	return reference_decode(format, bits + 1);
}

START_TEST(the_reference_knows_some_numbers)
{
	ck_assert_double_eq(reference_decode(&format_f16, 0x3c00), 1);
	ck_assert_double_eq(reference_decode(&format_f16, 0xc000), -2);
	ck_assert_double_eq(reference_decode(&format_f16, 0x7bff), 65504);
	ck_assert_double_eq(reference_decode(&format_f16, 0x0001), 0x1p-24);
	ck_assert_double_eq(reference_decode(&format_f16, 0x0400), 0x1p-14);
	ck_assert_double_eq(reference_decode(&format_f16, 0x3555), 0x1.554p-2);
	ck_assert(isinf(reference_decode(&format_f16, 0x7c00)));
	ck_assert(isnan(reference_decode(&format_f16, 0x7c01)));
	ck_assert_double_eq(reference_decode(&format_bf16, 0x3f80), 1);
	ck_assert_double_eq(reference_decode(&format_bf16, 0x7f7f), 0x1.fep127);
	ck_assert_double_eq(reference_decode(&format_bf16, 0x8001), -0x1p-133);
	ck_assert_uint_eq(reference_encode(&format_f16, 65519.996), 0x7bff);
	ck_assert_uint_eq(reference_encode(&format_f16, 65520), 0x7c00);
	ck_assert_uint_eq(reference_encode(&format_f16, 0x1p-25), 0);
	ck_assert_uint_eq(reference_encode(&format_f16, -0x1.8p-24), 0x8002);
	ck_assert_uint_eq(reference_canonical_nan(&format_f16), 0x7e00);
	ck_assert_uint_eq(reference_canonical_nan(&format_bf16), 0x7fc0);
	ck_assert_uint_eq(reference_canonical_nan(&format_f32), 0x7fc00000);
	ck_assert_uint_eq(reference_canonical_nan(&format_f64), 0x7ff8000000000000);
}
END_TEST

/* The code is the same for all formats; for f32 the CPU can check it. */
START_TEST(the_reference_converts_f32_as_the_cpu_does)
{
	struct random random = random_seed(1);

	for (int i = 0; i < 200000; i++) {
		uint32_t bits = (uint32_t)reference_random(&random, FANIN_WIRE_F32);
		uint64_t wide = reference_random(&random, FANIN_WIRE_F64);
		double value;

		memcpy(&value, &wide, sizeof(value));
		/* The value is exactly an f32 now and then. */
		if (i % 2 == 0)
			value = (double)float_of(bits) * (1 + ldexp(random_u32(&random), -56));
		if (!isnan(float_of(bits)) &&
		    reference_decode(&format_f32, bits) != (double)float_of(bits))
			ck_abort_msg("decode of %#x", bits);
		if (!isnan(value) && reference_encode(&format_f32, value) != bits_of((float)value))
			ck_abort_msg("encode of %a", value);
	}
}
END_TEST

START_TEST(the_reference_gives_every_value_back)
{
	const struct float_format *format = reference_format(dtypes[_i]);

	for (uint32_t bits = 0; bits < N_VALUES; bits++) {
		double value = reference_decode(format, bits);

		ck_assert(isnan(value) == reference_is_nan(format, bits));
		if (!isnan(value) && reference_encode(format, value) != bits)
			ck_abort_msg("%#x comes back as %#llx", bits,
				     (unsigned long long)reference_encode(format, value));
	}
}
END_TEST

START_TEST(the_reference_rounds_to_nearest_even)
{
	const struct float_format *format = reference_format(dtypes[_i]);
	uint64_t infinity = reference_encode(format, INFINITY);

	for (uint64_t bits = 0; bits + 1 < infinity; bits++) {
		double middle = (reference_decode(format, bits) + next_value(format, bits)) / 2;
		uint64_t even = bits + bits % 2;

		if (reference_encode(format, middle) != even ||
		    reference_encode(format, nextafter(middle, 0)) != bits ||
		    reference_encode(format, nextafter(middle, INFINITY)) != bits + 1)
			ck_abort_msg("around %#llx", (unsigned long long)bits);
	}
}
END_TEST

START_TEST(every_value_is_widened_exactly)
{
	static uint16_t in[N_VALUES];
	static float found[N_VALUES], portable[N_VALUES];
	struct half_case test = case_of(_i);

	if (test.skip)
		return;
	for (uint32_t bits = 0; bits < N_VALUES; bits++)
		in[bits] = (uint16_t)bits;
	test.wide->widen(found, in, N_VALUES);
	fanin_kernel_wide(FANIN_ISA_PORTABLE, test.dtype)->widen(portable, in, N_VALUES);
	/* NaNs keep their payloads, so these are the same, too. */
	ck_assert_mem_eq(found, portable, sizeof(found));
	for (uint32_t bits = 0; bits < N_VALUES; bits++) {
		if (reference_is_nan(test.format, bits)) {
			ck_assert(isnan(found[bits]));
			continue;
		}
		if (bits_of(found[bits]) !=
		    reference_encode(&format_f32, reference_decode(test.format, bits)))
			ck_abort_msg("%#x becomes %a", bits, (double)found[bits]);
	}
}
END_TEST

/*
 * Makes a value, the middle between it and the next one away from zero, and the f32 before and
 * after the middle.
 */
#define N_AROUND 4

static void
around(const struct float_format *format, uint32_t bits, float to[N_AROUND])
{
	double value = reference_decode(format, bits);
	double next = next_value(format, bits);
	/* Infinity begins where the next number would be nearer, if it existed. */
	double step = isfinite(next) ? next - value : value - reference_decode(format, bits - 1);
	float middle = (float)(value + step / 2);

	to[0] = (float)value;
	to[1] = middle;
	to[2] = nextafterf(middle, 0);
	to[3] = nextafterf(middle, (float)copysign(INFINITY, value));
}

START_TEST(everything_around_every_value_is_narrowed_to_nearest_even)
{
	static float in[N_VALUES * N_AROUND];
	static uint16_t found[N_VALUES * N_AROUND], portable[N_VALUES * N_AROUND];
	struct half_case test = case_of(_i);
	struct random random = random_seed(8);

	if (test.skip)
		return;
	for (uint32_t bits = 0; bits < N_VALUES; bits++) {
		if (isfinite(reference_decode(test.format, bits))) {
			around(test.format, bits, in + bits * N_AROUND);
			continue;
		}
		for (uint32_t i = 0; i < N_AROUND; i++)
			in[bits * N_AROUND + i] =
				float_of((uint32_t)reference_random(&random, FANIN_WIRE_F32));
	}
	test.wide->narrow(found, in, N_VALUES * N_AROUND);
	fanin_kernel_wide(FANIN_ISA_PORTABLE, test.dtype)
		->narrow(portable, in, N_VALUES * N_AROUND);
	ck_assert_mem_eq(found, portable, sizeof(found));
	for (uint32_t i = 0; i < N_VALUES * N_AROUND; i++) {
		uint64_t expected = reference_encode(test.format, (double)in[i]);

		if (isnan(in[i]) ? reference_is_nan(test.format, found[i]) : found[i] == expected)
			continue;
		ck_abort_msg("%a becomes %#x, expected %#llx", (double)in[i], found[i],
			     (unsigned long long)expected);
	}
}
END_TEST

START_TEST(every_value_is_combined_right_with_some_others)
{
	static uint16_t acc[N_VALUES], in[N_VALUES];
	static const unsigned int ops[] = { FANIN_WIRE_SUM, FANIN_WIRE_PROD, FANIN_WIRE_MIN,
					    FANIN_WIRE_MAX };
	struct half_case test = case_of(_i);
	struct random random = random_seed(9);

	if (test.skip)
		return;
	for (int round = 0; round < 12; round++) {
		unsigned int op = ops[round % 4];

		for (uint32_t bits = 0; bits < N_VALUES; bits++) {
			acc[bits] = (uint16_t)bits;
			in[bits] = (uint16_t)reference_random(&random, test.dtype);
		}
		fanin_kernel(test.isa, test.dtype, op)(acc, in, N_VALUES);
		for (uint32_t bits = 0; bits < N_VALUES; bits++) {
			uint64_t expected = reference_combine(test.dtype, op, bits, in[bits]);

			if (!reference_same(test.dtype, op, acc[bits], expected))
				ck_abort_msg("%s of %#x and %#x is %#x, expected %#llx",
					     fanin_op_name(op), bits, in[bits], acc[bits],
					     (unsigned long long)expected);
		}
	}
}
END_TEST

START_TEST(every_value_is_divided_right)
{
	static uint16_t acc[N_VALUES];
	static const uint32_t contributions[] = { 2, 3, 16, 63 };
	struct half_case test = case_of(_i);

	if (test.skip)
		return;
	for (size_t i = 0; i < sizeof(contributions) / sizeof(contributions[0]); i++) {
		uint32_t n = contributions[i];

		for (uint32_t bits = 0; bits < N_VALUES; bits++)
			acc[bits] = (uint16_t)bits;
		fanin_kernel_finish(test.isa, test.dtype, FANIN_WIRE_AVG)(acc, n, N_VALUES);
		for (uint32_t bits = 0; bits < N_VALUES; bits++) {
			double quotient = reference_decode(test.format, bits) / n;
			uint64_t expected = reference_encode(test.format, quotient);

			if (!reference_same(test.dtype, FANIN_WIRE_AVG, acc[bits], expected))
				ck_abort_msg("%#x / %u is %#x, expected %#llx", bits, n, acc[bits],
					     (unsigned long long)expected);
		}
	}
}
END_TEST

#define WIDE_MAX 80

START_TEST(sums_in_f32_are_rounded_once_at_every_length)
{
	struct half_case test = case_of(_i);
	struct random random = random_seed(10);

	if (test.skip)
		return;
	for (size_t count = 0; count <= WIDE_MAX; count++) {
		uint8_t in[2 * WIDE_MAX + 1];
		uint8_t out[2 * WIDE_MAX + 2];
		float acc[WIDE_MAX + 1], expected[WIDE_MAX];

		acc[count] = -1;
		memset(out, GUARD, sizeof(out));
		for (int vector = 0; vector < 5; vector++) {
			for (size_t i = 0; i < count; i++) {
				uint16_t bits = (uint16_t)reference_random(&random, test.dtype);
				float value = (float)reference_decode(test.format, bits);

				/* The vector is at an odd address. */
				memcpy(in + 1 + 2 * i, &bits, 2);
				expected[i] = vector == 0 ? value : expected[i] + value;
			}
			if (vector == 0)
				test.wide->widen(acc, in + 1, count);
			else
				test.wide->accumulate(acc, in + 1, count);
		}
		test.wide->narrow(out + 1, acc, count);
		ck_assert(acc[count] == -1);
		ck_assert_uint_eq(out[2 * count + 1], GUARD);
		for (size_t i = 0; i < count; i++) {
			uint16_t found;

			memcpy(&found, out + 1 + 2 * i, 2);
			if (isnan(expected[i])
				    ? !isnan(acc[i]) || !reference_is_nan(test.format, found)
				    : acc[i] != expected[i] ||
					      found != reference_encode(test.format,
									(double)expected[i]))
				ck_abort_msg("%zu elements: element %zu is %a, %#x, expected %a",
					     count, i, (double)acc[i], found, (double)expected[i]);
		}
	}
}
END_TEST

#define IN_PLACE_MAX 300 /* more than the kernels convert at a time */

/* Widens and narrows one vector in place, between bytes that must not change. */
static void
check_in_place(const struct half_case *test, struct random *random, size_t count, size_t address)
{
	static uint16_t before[IN_PLACE_MAX], separate_halves[IN_PLACE_MAX];
	static float separate[IN_PLACE_MAX];
	static uint8_t room[64 + 4 * IN_PLACE_MAX + 64] __attribute__((aligned(64)));
	uint8_t *elements = room + address;
	uint8_t *end = elements + 4 * count;

	memset(room, GUARD, sizeof(room));
	for (size_t i = 0; i < count; i++)
		before[i] = (uint16_t)reference_random(random, test->dtype);
	memcpy(elements, before, 2 * count);

	test->wide->widen(separate, before, count);
	test->wide->widen(elements, elements, count);
	ck_assert_mem_eq(elements, separate, 4 * count);
	for (size_t i = 0; i < count; i++)
		separate[i] *= 1.001f; /* so that there is something to round */
	memcpy(elements, separate, 4 * count);
	test->wide->narrow(separate_halves, separate, count);
	test->wide->narrow(elements, elements, count);
	ck_assert_mem_eq(elements, separate_halves, 2 * count);

	for (const uint8_t *byte = room; byte < elements; byte++)
		ck_assert_uint_eq(*byte, GUARD);
	for (const uint8_t *byte = end; byte < room + sizeof(room); byte++)
		ck_assert_uint_eq(*byte, GUARD);
}

START_TEST(vectors_are_widened_and_narrowed_in_place)
{
	struct half_case test = case_of(_i);
	struct random random = random_seed(11);

	if (test.skip)
		return;
	for (size_t count = 0; count <= IN_PLACE_MAX; count++) {
		for (size_t address = 0; address < 8; address++)
			check_in_place(&test, &random, count, address);
		check_in_place(&test, &random, count, 33);
	}
}
END_TEST

Suite *
suite_halves(void)
{
	Suite *suite = suite_create("halves");
	TCase *reference = tcase_create("reference");
	TCase *kernels = tcase_create("kernels");

	tcase_add_test(reference, the_reference_knows_some_numbers);
	tcase_add_test(reference, the_reference_converts_f32_as_the_cpu_does);
	tcase_add_loop_test(reference, the_reference_gives_every_value_back, 0, N_DTYPES);
	tcase_add_loop_test(reference, the_reference_rounds_to_nearest_even, 0, N_DTYPES);
	suite_add_tcase(suite, reference);

	tcase_set_timeout(kernels, 300);
	tcase_add_loop_test(kernels, every_value_is_widened_exactly, 0, N_CASES);
	tcase_add_loop_test(kernels, everything_around_every_value_is_narrowed_to_nearest_even, 0,
			    N_CASES);
	tcase_add_loop_test(kernels, every_value_is_combined_right_with_some_others, 0, N_CASES);
	tcase_add_loop_test(kernels, every_value_is_divided_right, 0, N_CASES);
	tcase_add_loop_test(kernels, sums_in_f32_are_rounded_once_at_every_length, 0, N_CASES);
	tcase_add_loop_test(kernels, vectors_are_widened_and_narrowed_in_place, 0, N_CASES);
	suite_add_tcase(suite, kernels);
	return suite;
}
