/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The data of fanin-perf: its expected result of an allreduce is that of the kernels, bit by bit,
 * in any order of the ranks' contributions; for random data only in the defined order.
 */
#include <stdlib.h>
#include <string.h>

#include "handlers/operator.h"
#include "lab/reference/random.h"
#include "tests/unit/suites.h"
#include "lab/reference/perf_custom.h"
#include "lab/reference/perf_data.h"
#include "lab/reference/perf_sparse.h"
#include "lab/reference/perf_random.h"

#define COUNT 5003 /* more than the reference computes at a time */
#define ITERATION 7
#define RANKS_MAX 64

static const uint16_t sizes[] = { 1, 2, 3, 8, 11, 16, 64 };

#define N_SIZES (int)(sizeof(sizes) / sizeof(sizes[0]))

static uint64_t expected[COUNT], found[COUNT], sent[COUNT];

static void
shuffle(struct random *random, uint16_t *order, uint16_t n)
{
	for (uint16_t i = 0; i < n; i++) {
		uint16_t other = (uint16_t)random_below(random, i + 1u);

		order[i] = order[other];
		order[other] = i;
	}
}

/* Reduces all ranks' data as a switch does, in some order, accumulating natively or in f32. */
static void
reduce_as(const struct perf_data *data, bool in_f32, struct random *random)
{
	enum fanin_isa isa = fanin_isa_detect();
	const struct fanin_operator *custom = fanin_operator_find(data->op);
	fanin_kernel_fn kernel = custom != NULL ? custom->combine
						: fanin_kernel(isa, data->dtype, data->op);
	fanin_finish_fn finish = fanin_kernel_finish(isa, data->dtype, data->op);
	const struct fanin_wide_kernels *wide = NULL;
	uint16_t order[RANKS_MAX] = { 0 };

	if (in_f32 && fanin_operation_widens(data->dtype, data->op)) {
		wide = fanin_kernel_wide(isa, data->dtype);
		kernel = wide->accumulate;
		finish = fanin_kernel_finish(isa, FANIN_WIRE_F32, data->op);
	}

	shuffle(random, order, data->size);
	perf_data_fill(data, order[0], ITERATION, 0, COUNT, found);
	if (wide != NULL)
		wide->widen(found, found, COUNT);
	for (uint16_t i = 1; i < data->size; i++) {
		perf_data_fill(data, order[i], ITERATION, 0, COUNT, sent);
		kernel(found, sent, COUNT);
	}
	if (finish != NULL)
		finish(found, data->size, COUNT);
	if (wide != NULL)
		wide->narrow(found, found, COUNT);
}

static void
check_pair(const struct perf_data *data, struct random *random)
{
	size_t size = fanin_dtype_size_of(data->dtype);

	perf_data_expect(data, ITERATION, 0, COUNT, expected);
	for (int round = 0; round < 3; round++) {
		reduce_as(data, data->wide, random);
		if (memcmp(expected, found, COUNT * size) != 0)
			ck_abort_msg("%s of %s on %u ranks differs", fanin_op_name_of(data->op),
				     fanin_dtype_name_of(data->dtype), data->size);
	}
	/* A result that is the same for all elements would prove little. */
	if (memcmp(expected, (uint8_t *)expected + size, (COUNT - 1) * size) == 0)
		ck_abort_msg("%s of %s on %u ranks is the same for all elements",
			     fanin_op_name_of(data->op), fanin_dtype_name_of(data->dtype),
			     data->size);
}

START_TEST(every_result_is_exact_in_any_order)
{
	struct random random = random_seed((uint64_t)_i);

	for (int dtype = FANIN_I8; dtype <= FANIN_F64; dtype++) {
		for (int op = FANIN_SUM; op <= FANIN_AVG; op++) {
			struct perf_data data = {
				.dtype = (enum fanin_dtype)dtype,
				.op = (enum fanin_op)op,
				.seed = random_u32(&random),
				.size = sizes[_i % N_SIZES],
				.wide = _i >= N_SIZES,
			};

			if (fanin_supports(data.dtype, data.op))
				check_pair(&data, &random);
		}
	}
}
END_TEST

/* Native accumulation of the data that checks wide jobs gives another result. */
START_TEST(native_accumulation_does_not_pass_for_f32)
{
	static const enum fanin_dtype dtypes[] = { FANIN_F16, FANIN_BF16 };
	static const enum fanin_op ops[] = { FANIN_SUM, FANIN_AVG };
	struct random random = random_seed((uint64_t)_i);
	const uint16_t *other = (const uint16_t *)found;
	const uint16_t *right = (const uint16_t *)expected;

	for (int i = 0; i < 4; i++) {
		struct perf_data data = { .dtype = dtypes[i % 2],
					  .op = ops[i / 2],
					  .size = sizes[_i] };
		/* A single rounding of a single sum is the same in both. */
		bool can_differ = data.size > 2 || (data.size == 2 && data.dtype == FANIN_F16 &&
						    data.op == FANIN_AVG);

		for (data.seed = 0; data.seed < 10; data.seed++) {
			unsigned int wrong = 0;

			data.wide = true;
			perf_data_expect(&data, ITERATION, 0, COUNT, expected);
			reduce_as(&data, false, &random);
			for (int k = 0; k < COUNT; k++)
				wrong += other[k] != right[k];
			if (can_differ ? wrong < COUNT / 20 : wrong != 0)
				ck_abort_msg("%s of %s on %u ranks: %u of %u elements differ",
					     fanin_op_name_of(data.op),
					     fanin_dtype_name_of(data.dtype), data.size, wrong,
					     COUNT);
		}
	}
}
END_TEST

START_TEST(results_of_custom_operators_are_exact_in_any_order)
{
	struct random random = random_seed((uint64_t)_i);

	for (size_t i = 0; perf_custom_at(i) != NULL; i++) {
		struct perf_data data = {
			.dtype = perf_custom_at(i)->dtype,
			.op = perf_custom_at(i)->op,
			.seed = random_u32(&random),
			.size = sizes[_i],
		};
		const struct fanin_operator *registered = fanin_operator_find(data.op);

		ck_assert_ptr_nonnull(registered);
		ck_assert_uint_eq(registered->dtype, data.dtype);
		ck_assert_str_eq(registered->dtype_name, perf_custom_at(i)->dtype_name);
		ck_assert_str_eq(registered->name, perf_custom_at(i)->op_name);
		check_pair(&data, &random);
	}
}
END_TEST

/* Reduces random data of ranks first to first + width - 1 by the kernel, in the defined order. */
static void
reduce_in_order(const struct perf_data *data, fanin_kernel_fn kernel, uint16_t first,
		uint16_t width, uint64_t *sum)
{
	uint16_t half = width / 2;
	uint64_t *right;

	if (width == 1) {
		perf_data_fill(data, first, ITERATION, 0, COUNT, sum);
		return;
	}
	reduce_in_order(data, kernel, first, half, sum);
	if (first + half >= data->size)
		return;
	right = malloc(sizeof(found));
	ck_assert_ptr_nonnull(right);
	reduce_in_order(data, kernel, (uint16_t)(first + half), half, right);
	kernel(sum, right, COUNT);
	free(right);
}

START_TEST(random_data_have_the_bits_of_the_written_order)
{
	struct random random = random_seed((uint64_t)_i);

	for (int dtype = FANIN_F16; dtype <= FANIN_F64; dtype++) {
		struct perf_data data = {
			.dtype = (enum fanin_dtype)dtype,
			.op = FANIN_SUM,
			.seed = random_u32(&random),
			.size = sizes[_i],
			.random = true,
		};
		size_t bytes = COUNT * fanin_dtype_size_of(data.dtype);

		perf_data_expect(&data, ITERATION, 0, COUNT, expected);
		for (int isa = 0; isa <= (int)fanin_isa_detect(); isa++) {
			reduce_in_order(&data,
					fanin_kernel((enum fanin_isa)isa, (unsigned int)dtype,
						     FANIN_WIRE_SUM),
					0, RANKS_MAX, found);
			ck_assert_mem_eq(expected, found, bytes);
		}
	}
}
END_TEST

/* The defined order of three ranks is (0 + 1) + 2. */
START_TEST(random_data_have_other_bits_in_any_other_order)
{
	static const uint16_t orders[][3] = { { 0, 2, 1 }, { 1, 2, 0 } };
	static uint64_t other[COUNT];

	for (int dtype = FANIN_F16; dtype <= FANIN_F64; dtype++) {
		struct perf_data data = { .dtype = (enum fanin_dtype)dtype,
					  .op = FANIN_SUM,
					  .seed = 3,
					  .size = 3,
					  .random = true };
		size_t bytes = COUNT * fanin_dtype_size_of(data.dtype);
		fanin_kernel_fn kernel = fanin_kernel(FANIN_ISA_PORTABLE, (unsigned int)dtype,
						      FANIN_WIRE_SUM);

		perf_data_expect(&data, ITERATION, 0, COUNT, expected);
		for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++) {
			perf_data_fill(&data, orders[i][0], ITERATION, 0, COUNT, found);
			for (int k = 1; k < 3; k++) {
				perf_data_fill(&data, orders[i][k], ITERATION, 0, COUNT, other);
				kernel(found, other, COUNT);
			}
			ck_assert_mem_ne(expected, found, bytes);
		}
	}
}
END_TEST

START_TEST(random_data_are_for_floating_point_sums)
{
	for (int dtype = FANIN_I8; dtype <= FANIN_F64; dtype++) {
		for (int op = FANIN_SUM; op <= FANIN_AVG; op++)
			ck_assert(
				perf_random_supports((enum fanin_dtype)dtype, (enum fanin_op)op) ==
				(dtype >= FANIN_F16 && op == FANIN_SUM));
	}
}
END_TEST

START_TEST(any_part_of_the_data_is_the_same_as_in_the_whole)
{
	static const uint64_t parts[][2] = { { 0, 1 }, { 1, 2047 }, { 2047, 2 }, { 2500, 2503 } };
	static uint16_t part[COUNT];
	const struct perf_data data = {
		.dtype = FANIN_F16, .op = FANIN_SUM, .seed = 3, .size = 3, .random = _i != 0
	};

	perf_data_expect(&data, ITERATION, 0, COUNT, expected);
	perf_data_fill(&data, 2, ITERATION, 0, COUNT, sent);
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		perf_data_expect(&data, ITERATION, parts[i][0], parts[i][1], part);
		ck_assert_mem_eq(part, (uint16_t *)expected + parts[i][0], parts[i][1] * 2);
		perf_data_fill(&data, 2, ITERATION, parts[i][0], parts[i][1], part);
		ck_assert_mem_eq(part, (uint16_t *)sent + parts[i][0], parts[i][1] * 2);
	}
}
END_TEST

START_TEST(ranks_iterations_and_seeds_have_data_of_their_own)
{
	struct perf_data data = { .dtype = FANIN_U32, .op = FANIN_SUM, .seed = 3, .size = 2 };

	perf_data_fill(&data, 0, 0, 0, COUNT, sent);
	perf_data_fill(&data, 1, 0, 0, COUNT, found);
	ck_assert_mem_ne(sent, found, COUNT * 4);
	perf_data_fill(&data, 0, 1, 0, COUNT, found);
	ck_assert_mem_ne(sent, found, COUNT * 4);
	data.seed++;
	perf_data_fill(&data, 0, 0, 0, COUNT, found);
	ck_assert_mem_ne(sent, found, COUNT * 4);
}
END_TEST

/* Ranks have values at the indices of their pattern, and the result has values only there. */
START_TEST(sparse_vectors_have_their_pattern)
{
	struct perf_sparse sparse = {
		.data = { .dtype = FANIN_U32, .op = FANIN_SUM, .seed = 3, .size = 3 },
		.pattern = (enum perf_pattern)_i,
		.density = 0.2
	};
	static uint32_t indices[3][COUNT], values[3][COUNT], sums[COUNT], found_sums[COUNT];
	uint64_t counts[3];
	unsigned int common = 0, runs = 0;

	memset(sums, 0, sizeof(sums));
	for (uint16_t rank = 0; rank < 3; rank++) {
		counts[rank] = perf_sparse_fill(&sparse, rank, ITERATION, COUNT, 4, indices[rank],
						values[rank]);
		ck_assert_uint_gt(counts[rank], COUNT / 8);
		ck_assert_uint_lt(counts[rank], COUNT / 3);
		for (uint64_t i = 0; i < counts[rank]; i++) {
			ck_assert_uint_lt(indices[rank][i], COUNT);
			ck_assert(i == 0 || indices[rank][i] > indices[rank][i - 1]);
			runs += i != 0 && indices[rank][i] == indices[rank][i - 1] + 1;
			common += sums[indices[rank][i]] != 0;
			sums[indices[rank][i]] += values[rank][i];
		}
	}
	perf_sparse_expect(&sparse, ITERATION, 0, COUNT, found_sums);
	ck_assert_mem_eq(sums, found_sums, sizeof(sums));
	ck_assert_uint_eq(common == 0, sparse.pattern == PERF_DISJOINT);
	if (sparse.pattern == PERF_SAME)
		ck_assert_mem_eq(indices[0], indices[2], counts[0] * 4);
	ck_assert_uint_eq(runs > (counts[0] + counts[1] + counts[2]) * 9 / 10,
			  sparse.pattern == PERF_CLUSTERED);
}
END_TEST

Suite *
suite_perf_data(void)
{
	Suite *suite = suite_create("perf_data");
	TCase *data = tcase_create("data");

	tcase_add_loop_test(data, every_result_is_exact_in_any_order, 0, 2 * N_SIZES);
	tcase_add_loop_test(data, native_accumulation_does_not_pass_for_f32, 0, N_SIZES);
	tcase_add_loop_test(data, results_of_custom_operators_are_exact_in_any_order, 0, N_SIZES);
	tcase_add_loop_test(data, random_data_have_the_bits_of_the_written_order, 0, N_SIZES);
	tcase_add_test(data, random_data_have_other_bits_in_any_other_order);
	tcase_add_test(data, random_data_are_for_floating_point_sums);
	tcase_add_loop_test(data, any_part_of_the_data_is_the_same_as_in_the_whole, 0, 2);
	tcase_add_test(data, ranks_iterations_and_seeds_have_data_of_their_own);
	tcase_add_loop_test(data, sparse_vectors_have_their_pattern, 0, PERF_PATTERNS);
	suite_add_tcase(suite, data);
	return suite;
}
