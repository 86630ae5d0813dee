/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * From dense to sparse: the elements that are large enough, of each bucket only the largest if that is asked for. Magnitudes are compared as
 * keys, 64-bit numbers in the same order; that of any NaN is the largest.
 */
#include "sparse.h"

#include <stdlib.h>

#define KEY_NAN UINT64_MAX

/* Bits of a magnitude, without the sign, in a floating-point format. */
struct format {
	unsigned int bits;
	unsigned int mantissa_bits;
};

static const struct format *
format_of(unsigned int dtype)
{
	static const struct format f16 = { 16, 10 }, bf16 = { 16, 7 }, f32 = { 32, 23 },
				   f64 = { 64, 52 };

	switch (dtype) {
	case FANIN_WIRE_F16:
		return &f16;
	case FANIN_WIRE_BF16:
		return &bf16;
	case FANIN_WIRE_F32:
		return &f32;
	case FANIN_WIRE_F64:
		return &f64;
	default:
		return NULL;
	}
}

static bool
is_signed(unsigned int dtype)
{
	return dtype >= FANIN_WIRE_I8 && dtype <= FANIN_WIRE_I64;
}

/* The magnitude's key: its bits if it is a float, else its value. */
static uint64_t
key_of(const uint8_t *element, unsigned int dtype, uint32_t element_bytes, const struct format *format)
{
	const unsigned int bits = 8 * element_bytes;
	const uint64_t sign = UINT64_C(1) << (bits - 1);
	uint64_t key = 0;

	memcpy(&key, element, element_bytes);
	if (format != NULL) {
		const uint64_t infinity = (sign - 1) >> format->mantissa_bits
								<< format->mantissa_bits;

		key &= sign - 1;
		return key > infinity ? KEY_NAN : key;
	}
	if (!is_signed(dtype) || (key & sign) == 0)
		return key;
	return (0 - key) & (sign | (sign - 1));
}

/* The value of a key of this type that is no NaN. Exact but for integers beyond 2^53. */
static double
magnitude_of(uint64_t key, const struct format *format)
{
	const unsigned int mantissa_bits = format == NULL ? 0 : format->mantissa_bits;
	unsigned int exponent_bits;
	uint64_t exponent, mantissa;
	int scale;
	double value;

	if (format == NULL)
		return (double)key;
	exponent_bits = format->bits - 1 - mantissa_bits;
	exponent = key >> mantissa_bits;
	mantissa = key & ((UINT64_C(1) << mantissa_bits) - 1);
	if (exponent == (UINT64_C(1) << exponent_bits) - 1)
		return __builtin_inf();
	/* Denormal numbers have the least exponent, and no leading one. */
	scale = (int)(exponent == 0 ? 1 : exponent) - ((1 << (exponent_bits - 1)) - 1) -
		(int)mantissa_bits;
	value = (double)(exponent == 0 ? mantissa : mantissa | UINT64_C(1) << mantissa_bits);
	return __builtin_ldexp(value, scale);
}

/* The least key whose magnitude is larger than the threshold. */
static uint64_t
key_limit(double threshold, unsigned int dtype, uint32_t element_bytes)
{
	const struct format *format = format_of(dtype);
	const unsigned int bits = 8 * element_bytes;
	uint64_t low = 0;
	uint64_t high;

	/* Of floats infinity, of integers the largest magnitude. */
	if (format != NULL)
		high = ((UINT64_C(1) << (bits - 1)) - 1) >> format->mantissa_bits
								    << format->mantissa_bits;
	else if (is_signed(dtype))
		high = UINT64_C(1) << (bits - 1);
	else
		high = UINT64_MAX >> (64 - bits);
	if (magnitude_of(high, format) <= threshold)
		return KEY_NAN;
	while (low < high) {
		const uint64_t middle = low + (high - low) / 2;

		if (magnitude_of(middle, format) > threshold)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

struct compaction {
	const uint8_t *dense;
	const struct format *format;
	uint64_t limit; /* keys from here on are taken */
	uint64_t count; /* taken */
	uint64_t capacity;
	uint8_t *indices;
	uint8_t *values;
	uint32_t element_bytes;
	uint8_t index_bytes;
	uint8_t dtype;
};

static uint64_t
key_at(const struct compaction *work, uint64_t index)
{
	return key_of(work->dense + index * work->element_bytes, work->dtype, work->element_bytes,
		      work->format);
}

/* An element is taken, if there is room. */
static void
element_take(struct compaction *work, uint64_t index)
{
	const uint64_t n = work->count++;

	if (n >= work->capacity)
		return;
	fanin_sparse_vector_index_set(work->indices, work->index_bytes, n, index);
	memcpy(work->values + n * work->element_bytes, work->dense + index * work->element_bytes,
	       work->element_bytes);
}

/* Moves down what is no heap at its root: the least is on top. */
static void
heap_sift(uint64_t *heap, uint64_t n, uint64_t at)
{
	for (;;) {
		uint64_t least = at;
		uint64_t key;

		for (uint64_t child = 2 * at + 1; child <= 2 * at + 2 && child < n; child++)
			least = heap[child] < heap[least] ? child : least;
		if (least == at)
			return;
		key = heap[at];
		heap[at] = heap[least];
		heap[least] = key;
		at = least;
	}
}

/*
 * Takes the `top` largest elements of a bucket, of equal ones the first. heap: room for `top` keys, of which those that stay are found in one
 * pass; a second one takes what is larger than the least of them, and as many as are left of those that equal it.
 */
static void
bucket_take(struct compaction *work, uint64_t begin, uint64_t end, uint64_t top, uint64_t *heap)
{
	uint64_t n = 0;
	uint64_t ties = 0;

	for (uint64_t i = begin; i < end; i++) {
		const uint64_t key = key_at(work, i);

		if (key < work->limit)
			continue;
		if (n < top) {
			heap[n++] = key;
			for (uint64_t at = n / 2; n == top && at-- > 0;)
				heap_sift(heap, n, at);
		} else if (key > heap[0]) {
			heap[0] = key;
			heap_sift(heap, n, 0);
		}
	}
	if (n < top) {
		for (uint64_t i = begin; i < end && n != 0; i++) {
			if (key_at(work, i) >= work->limit)
				element_take(work, i);
		}
		return;
	}
	for (uint64_t i = 0; i < n; i++)
		ties += heap[i] == heap[0];
	for (uint64_t i = begin; i < end; i++) {
		const uint64_t key = key_at(work, i);

		if (key > heap[0] || (key == heap[0] && ties != 0)) {
			ties -= key == heap[0];
			element_take(work, i);
		}
	}
}

int
fanin_sparse_vector_compact(const void *dense, uint64_t n, unsigned int dtype,
			    const struct fanin_compact_opts *options, void *indices, void *values,
			    uint64_t capacity, uint64_t *count)
{
	const uint64_t bucket = options->bucket == 0 || options->bucket > n ? n : options->bucket;
	struct compaction work;
	uint64_t *heap = NULL;

	work = (struct compaction){
		.dense = dense,
		.format = format_of(dtype),
		.limit = key_limit(options->threshold, dtype, fanin_dtype_size(dtype)),
		.capacity = capacity,
		.indices = indices,
		.values = values,
		.element_bytes = fanin_dtype_size(dtype),
		.index_bytes = options->index_bytes,
		.dtype = (uint8_t)dtype,
	};
	if (options->top != 0 && options->top < bucket) {
		heap = malloc(options->top * sizeof(*heap));
		if (heap == NULL)
			return FANIN_ERR_NO_MEMORY;
	}
	for (uint64_t i = 0; heap == NULL && i < n; i++) {
		if (key_at(&work, i) >= work.limit)
			element_take(&work, i);
	}
	for (uint64_t begin = 0; heap != NULL && begin < n; begin += bucket)
		bucket_take(&work, begin, n - begin < bucket ? n : begin + bucket, options->top,
			    heap);
	free(heap);
	*count = work.count;
	return work.count > capacity ? FANIN_ERR_CAPACITY : FANIN_OK;
}
