/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The loops over sparse data: every operator on every data type in every instruction set of this
 * CPU, compared with the naive reference; none of them may write elsewhere. Sanitizers find reads
 * beyond their arguments.
 */
#include <stdlib.h>
#include <string.h>

#include "handlers/kernels/sparse.h"
#include "lab/reference/kernel_reference.h"
#include "tests/unit/suites.h"
#include "wire/types.h"

#define SPAN 640u
#define WORDS (SPAN / 64)
#define COUNT_MAX 1000u
#define GUARD 0xee
#define MARGIN 128u

#define N_ELEMENTS(array) (sizeof(array) / sizeof((array)[0]))

/* The expected content of an array. */
static struct {
	uint64_t values[SPAN];
	bool has[SPAN];
} expected;

static struct random seed;
static uint8_t values[SPAN * 8 + MARGIN] __attribute__((aligned(64)));
static uint64_t occupied[WORDS + MARGIN / 8] __attribute__((aligned(64)));

static void
clear(void)
{
	memset(&expected, 0, sizeof(expected));
	memset(values, GUARD, sizeof(values));
	memset(occupied, GUARD, sizeof(occupied));
	memset(occupied, 0, WORDS * sizeof(uint64_t));
}

static void
expect(unsigned int dtype, unsigned int op, uint32_t index, uint64_t value)
{
	expected.values[index] =
		expected.has[index] ? reference_combine(dtype, op, expected.values[index], value)
				    : value;
	expected.has[index] = true;
}

static void
check_array(enum fanin_isa isa, unsigned int dtype, unsigned int op)
{
	const unsigned int size = fanin_dtype_size(dtype);

	for (uint32_t i = 0; i < SPAN; i++) {
		uint64_t found = 0;

		memcpy(&found, values + i * size, size);
		if ((occupied[i / 64] >> i % 64 & 1) == expected.has[i] &&
		    (!expected.has[i] || reference_same(dtype, op, found, expected.values[i])))
			continue;
		ck_abort_msg("%s %s %s: index %u is %#llx, expected %#llx (%d)",
			     fanin_isa_name(isa), fanin_dtype_name(dtype), fanin_op_name(op), i,
			     (unsigned long long)found, (unsigned long long)expected.values[i],
			     expected.has[i]);
	}
	for (uint32_t i = SPAN * size; i < SPAN * size + MARGIN; i++)
		ck_assert_uint_eq(values[i], GUARD);
	for (uint32_t i = 0; i < MARGIN; i++)
		ck_assert_uint_eq(((uint8_t *)(occupied + WORDS))[i], GUARD);
}

/*
 * Returns a copy of exactly this size at an odd address, so that reads behind it are found. The
 * caller frees the pointer minus one byte.
 */
static uint8_t *
odd_copy(const void *from, size_t len)
{
	uint8_t *copy = calloc(1, len + 1);

	ck_assert_ptr_nonnull(copy);
	memcpy(copy + 1, from, len);
	return copy + 1;
}

static void
add_list(const struct fanin_kernel_sparse_combine *combine, unsigned int dtype, unsigned int op,
	 uint32_t count, bool is_short)
{
	const unsigned int size = fanin_dtype_size(dtype);
	static uint8_t in[COUNT_MAX * 8], indices[COUNT_MAX * 4];
	uint8_t *odd_in, *odd_indices;

	for (uint32_t i = 0; i < count; i++) {
		const uint64_t value = reference_random(&seed, dtype);
		const uint32_t index = random_below(&seed, SPAN); /* often the same index */

		memcpy(in + i * size, &value, size);
		memcpy(indices + i * (is_short ? 2 : 4), &index, is_short ? 2 : 4);
		expect(dtype, op, index, value);
	}
	odd_in = odd_copy(in, count * size);
	odd_indices = odd_copy(indices, count * (is_short ? 2 : 4));
	(is_short ? combine->list16 : combine->list32)(values, occupied, odd_in, odd_indices,
						       count);
	free(odd_in - 1);
	free(odd_indices - 1);
}

static void
add_bitmap(const struct fanin_kernel_sparse_combine *combine, unsigned int dtype, unsigned int op,
	   unsigned int density)
{
	const unsigned int size = fanin_dtype_size(dtype);
	static uint8_t in[SPAN * 8];
	uint64_t words[WORDS] = { 0 };
	uint8_t *odd_in, *odd_words;
	uint32_t count = 0;

	for (uint32_t i = 0; i < SPAN; i++) {
		const uint64_t value = reference_random(&seed, dtype);

		if (random_below(&seed, 100) >= density)
			continue;
		memcpy(in + count++ * size, &value, size);
		words[i / 64] |= UINT64_C(1) << i % 64;
		expect(dtype, op, i, value);
	}
	odd_in = odd_copy(in, count * size);
	odd_words = odd_copy(words, sizeof(words));
	combine->bitmap(values, occupied, odd_in, odd_words, WORDS, count);
	free(odd_in - 1);
	free(odd_words - 1);
}

START_TEST(values_are_combined_at_their_indices)
{
	static const unsigned int densities[] = { 0, 1, 30, 90, 100 };
	const enum fanin_isa isa = (enum fanin_isa)_i;

	if (isa > fanin_isa_detect())
		return;
	seed = random_seed(5);
	for (unsigned int dtype = 1; dtype < FANIN_WIRE_DTYPE_COUNT; dtype++) {
		for (unsigned int op = 1; op < FANIN_WIRE_OP_COUNT; op++) {
			const struct fanin_kernel_sparse_combine *combine =
				fanin_kernel_sparse(isa, dtype, op);

			ck_assert_int_eq(combine != NULL, fanin_operation_defined(dtype, op) &&
								  op != FANIN_WIRE_AVG);
			if (combine == NULL)
				continue;
			for (size_t d = 0; d < N_ELEMENTS(densities); d++) {
				clear();
				add_bitmap(combine, dtype, op, densities[d]);
				add_list(combine, dtype, op, 0, true);
				add_list(combine, dtype, op, 1 + random_below(&seed, 200), true);
				add_bitmap(combine, dtype, op, densities[d]);
				add_list(combine, dtype, op, 1 + random_below(&seed, 200), false);
				check_array(isa, dtype, op);
			}
		}
	}
}
END_TEST

/*
 * Checks that the values taken from the array from an index on are its next values, and that
 * nothing is written behind them.
 */
static void
check_taken(enum fanin_isa isa, unsigned int dtype, uint32_t from, uint32_t count, bool is_short,
	    const uint32_t *tags)
{
	const struct fanin_kernel_sparse_take *take = fanin_kernel_sparse_take(isa, dtype);
	const unsigned int size = fanin_dtype_size(dtype), width = is_short ? 2 : 4;
	uint8_t out[SPAN * 8 + MARGIN], indices[SPAN * 4 + MARGIN];
	uint32_t next = from, end;
	uint16_t short_tags[SPAN];

	for (uint32_t i = 0; tags != NULL && i < SPAN; i++)
		short_tags[i] = (uint16_t)tags[i];
	memset(out, GUARD, sizeof(out));
	memset(indices, GUARD, sizeof(indices));
	if (tags == NULL)
		end = (is_short ? take->list16 : take->list32)(out, indices, values, occupied, from,
							       count);
	else
		end = (is_short ? take->table16
				: take->table32)(out, indices, values, occupied,
						 is_short ? (const void *)short_tags : tags, from,
						 count);
	for (uint32_t n = 0; n < count; n++, next++) {
		uint32_t index = 0;

		while (!expected.has[next])
			next++;
		memcpy(&index, indices + n * width, width);
		ck_assert_mem_eq(out + n * size, values + next * size, size);
		ck_assert_uint_eq(index, tags == NULL ? next : tags[next] - 1);
	}
	/* Any place up to the next value is valid. */
	ck_assert_uint_ge(end, next);
	while (next < SPAN && !expected.has[next])
		next++;
	ck_assert_uint_le(end, next);
	for (uint32_t i = 0; i < MARGIN; i++) {
		ck_assert_uint_eq(out[count * size + i], GUARD);
		ck_assert_uint_eq(indices[count * width + i], GUARD);
	}
}

START_TEST(values_are_taken_in_their_order)
{
	static const unsigned int dtypes[] = { FANIN_WIRE_U8, FANIN_WIRE_U16, FANIN_WIRE_U32,
					       FANIN_WIRE_U64 };
	static const unsigned int densities[] = { 1, 5, 30, 100 };
	const enum fanin_isa isa = (enum fanin_isa)_i;
	uint32_t tags[SPAN];

	if (isa > fanin_isa_detect())
		return;
	seed = random_seed(6);
	for (size_t t = 0; t < N_ELEMENTS(dtypes) * N_ELEMENTS(densities) * 8; t++) {
		const unsigned int dtype = dtypes[t % 4];
		const unsigned int size = fanin_dtype_size(dtype);
		const struct fanin_kernel_sparse_take *take = fanin_kernel_sparse_take(isa, dtype);
		uint32_t from = random_below(&seed, SPAN), left = 0, count = 0;
		uint8_t out[SPAN * 8 + MARGIN];

		clear();
		add_bitmap(fanin_kernel_sparse(isa, dtype, FANIN_WIRE_SUM), dtype, FANIN_WIRE_SUM,
			   densities[t / 4 % 4]);
		for (uint32_t i = 0; i < SPAN; i++) {
			tags[i] = expected.has[i] ? 60000 - i : 0;
			count += expected.has[i];
			left += i >= from && expected.has[i];
		}
		memset(out, GUARD, sizeof(out));
		take->bitmap(out, values, occupied, WORDS, count);
		for (uint32_t i = 0, n = 0; i < SPAN; i++) {
			if (expected.has[i])
				ck_assert_mem_eq(out + n++ * size, values + i * size, size);
		}
		for (uint32_t i = 0; i < MARGIN; i++)
			ck_assert_uint_eq(out[count * size + i], GUARD);
		for (unsigned int form = 0; form < 4; form++) {
			check_taken(isa, dtype, from, left, form % 2 == 0, form < 2 ? NULL : tags);
			check_taken(isa, dtype, from, random_below(&seed, left + 1), form % 2 == 0,
				    form < 2 ? NULL : tags);
		}
	}
}
END_TEST

#define BUCKETS 61
#define LANES (64 * FANIN_BUCKET_LANES)

/* Returns the tag of a lane, for indices of this length. */
static uint32_t
tag_of(const void *tags, unsigned int index_bytes, uint32_t lane)
{
	uint32_t tag = 0;

	memcpy(&tag, (const uint8_t *)tags + (size_t)lane * index_bytes, index_bytes);
	return tag;
}

/*
 * Combines 50 values at a time, until the table has no room for many of them; the lanes must then
 * have the values that were reported as combined.
 */
static void
fill_table(enum fanin_isa isa, unsigned int dtype, unsigned int op, unsigned int index_bytes)
{
	const struct fanin_kernel_sparse_combine *combine = fanin_kernel_sparse(isa, dtype, op);
	const struct fanin_kernel_sparse_table *table = fanin_kernel_sparse_table(isa);
	const unsigned int size = fanin_dtype_size(dtype);
	const uint32_t limit = index_bytes == 2 ? 65536 : 1u << 20;
	static uint32_t tags[LANES] __attribute__((aligned(64)));
	static uint64_t lanes[LANES] __attribute__((aligned(64)));
	static uint64_t sums[1u << 20];
	static bool has[1u << 20];
	uint64_t taken_bits[LANES / 64];
	size_t taken = 0, n_has = 0, full = 0, found = 0;

	memset(tags, 0, sizeof(tags));
	memset(has, 0, sizeof(has));
	memset(lanes, GUARD, sizeof(lanes));
	for (unsigned int round = 0; round < 60; round++) {
		uint8_t indices[100 * 4 + 1], from[100 * 8 + 1];
		uint32_t at[100];

		for (unsigned int i = 0; i < 100; i++) {
			const uint64_t value = 1 + random_below(&seed, 9);

			at[i] = random_below(&seed, 2000) * (limit / 2048) + random_below(&seed, 2);
			if (i == 7)
				at[i] = limit - 1;
			memcpy(indices + 1 + (size_t)i * index_bytes, &at[i], index_bytes);
			memcpy(from + 1 + (size_t)i * size, &value, size);
		}
		for (size_t i = 0; i < 100; i++) {
			const size_t n = (index_bytes == 2 ? combine->table16 : combine->table32)(
				lanes, tags, BUCKETS, from + 1 + i * size,
				indices + 1 + i * index_bytes, 100 - i, &taken);

			ck_assert_uint_le(n, 100 - i);
			for (size_t end = i + n; i < end; i++) {
				uint64_t value = 0;

				/* The last index of 2 bytes has no tag. */
				ck_assert(index_bytes == 4 || at[i] != 65535);
				memcpy(&value, from + 1 + i * size, size);
				if (has[at[i]])
					fanin_kernel(isa, dtype, op)(&sums[at[i]], &value, 1);
				else
					sums[at[i]] = value;
				n_has += !has[at[i]];
				has[at[i]] = true;
			}
			/* The bucket stays full, and the index never had a lane. */
			if (i < 100) {
				ck_assert(!has[at[i]]);
				full++;
			}
		}
	}
	ck_assert_uint_gt(full, 60);
	ck_assert_uint_eq(taken, n_has);
	(index_bytes == 2 ? table->occupied16 : table->occupied32)(taken_bits, tags, LANES);
	for (uint32_t lane = 0; lane < LANES; lane++) {
		const uint32_t tag = tag_of(tags, index_bytes, lane);

		ck_assert_int_eq(tag != 0, (int)(taken_bits[lane / 64] >> lane % 64 & 1));
		if (tag == 0)
			continue;
		ck_assert_uint_lt(lane, BUCKETS * FANIN_BUCKET_LANES);
		ck_assert(has[tag - 1]);
		ck_assert_mem_eq((uint8_t *)lanes + (size_t)lane * size, &sums[tag - 1], size);
		found++;
	}
	ck_assert_uint_eq(found, n_has);
}

START_TEST(a_table_has_each_index_once)
{
	static const struct {
		unsigned int dtype, op;
	} pairs[] = { { FANIN_WIRE_U8, FANIN_WIRE_SUM },  { FANIN_WIRE_I16, FANIN_WIRE_MIN },
		      { FANIN_WIRE_F16, FANIN_WIRE_SUM }, { FANIN_WIRE_F32, FANIN_WIRE_SUM },
		      { FANIN_WIRE_F32, FANIN_WIRE_MAX }, { FANIN_WIRE_I32, FANIN_WIRE_BXOR },
		      { FANIN_WIRE_F64, FANIN_WIRE_SUM }, { FANIN_WIRE_U64, FANIN_WIRE_PROD } };
	const enum fanin_isa isa = (enum fanin_isa)_i;

	if (isa > fanin_isa_detect())
		return;
	seed = random_seed(7);
	for (size_t i = 0; i < N_ELEMENTS(pairs); i++) {
		fill_table(isa, pairs[i].dtype, pairs[i].op, 2);
		fill_table(isa, pairs[i].dtype, pairs[i].op, 4);
	}
}
END_TEST

START_TEST(bits_become_indices)
{
	const enum fanin_isa isa = (enum fanin_isa)_i;
	uint8_t words[1 + 8 * 20];
	uint16_t shorts[20 * 64];
	uint32_t longs[20 * 64];

	if (isa > fanin_isa_detect())
		return;
	seed = random_seed(8);
	for (unsigned int round = 0; round < 100; round++) {
		const uint32_t first = random_below(&seed, 100) * 64;
		size_t n = 0;

		for (size_t i = 0; i < sizeof(words); i++)
			words[i] = (uint8_t)(random_u32(&seed) & random_u32(&seed));
		ck_assert_uint_eq(fanin_kernel_sparse_table(isa)->indices16(shorts, words + 1, 20,
									    first),
				  fanin_kernel_sparse_table(isa)->indices32(longs, words + 1, 20,
									    first));
		for (uint32_t i = 0; i < 20 * 64; i++) {
			if ((words[1 + i / 8] >> i % 8 & 1) == 0)
				continue;
			ck_assert_uint_eq(shorts[n], first + i);
			ck_assert_uint_eq(longs[n++], first + i);
		}
		ck_assert_uint_eq(fanin_kernel_sparse_table(isa)->indices16(shorts, words + 1, 20,
									    first),
				  n);
	}
}
END_TEST

Suite *
suite_sparse_kernels(void)
{
	Suite *suite = suite_create("sparse_kernels");
	TCase *tcase = tcase_create("loops");

	tcase_set_timeout(tcase, 60);
	tcase_add_loop_test(tcase, values_are_combined_at_their_indices, 0, FANIN_ISA_COUNT);
	tcase_add_loop_test(tcase, values_are_taken_in_their_order, 0, FANIN_ISA_COUNT);
	tcase_add_loop_test(tcase, a_table_has_each_index_once, 0, FANIN_ISA_COUNT);
	tcase_add_loop_test(tcase, bits_become_indices, 0, FANIN_ISA_COUNT);
	suite_add_tcase(suite, tcase);
	return suite;
}
