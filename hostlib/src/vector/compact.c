/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Makes a sparse vector of a dense one: takes the elements that are large enough, or only the
 * largest of each bucket. Magnitudes are compared as keys, 64-bit numbers in the same order; the
 * key of any NaN is the largest.
 */
#include "vector.h"

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

static uint64_t
key_infinity(const struct format *format)
{
	return ((UINT64_C(1) << (format->bits - 1)) - 1) >> format->mantissa_bits
								    << format->mantissa_bits;
}

/* Returns the magnitude's key: its bits if it is a float, else its value. */
static uint64_t
key_of(const uint8_t *element, unsigned int dtype, uint32_t element_bytes,
       const struct format *format)
{
	const unsigned int bits = 8 * element_bytes;
	const uint64_t sign = UINT64_C(1) << (bits - 1);
	uint64_t key = 0;

	memcpy(&key, element, element_bytes);
	if (format != NULL) {
		key &= sign - 1;
		return key > key_infinity(format) ? KEY_NAN : key;
	}
	if (!is_signed(dtype) || (key & sign) == 0)
		return key;
	return (0 - key) & (sign | (sign - 1));
}

/*
 * Returns the magnitude of a key of this type, which is not NaN. Exact except for integers beyond
 * 2^53.
 */
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
	/* Denormal numbers have the smallest exponent, and no leading one. */
	scale = (int)(exponent == 0 ? 1 : exponent) - ((1 << (exponent_bits - 1)) - 1) -
		(int)mantissa_bits;
	value = (double)(exponent == 0 ? mantissa : mantissa | UINT64_C(1) << mantissa_bits);
	return __builtin_ldexp(value, scale);
}

/* Returns the smallest key whose magnitude is larger than the threshold. */
static uint64_t
key_limit(double threshold, unsigned int dtype, uint32_t element_bytes)
{
	const struct format *format = format_of(dtype);
	const unsigned int bits = 8 * element_bytes;
	uint64_t low = 0;
	uint64_t high;

	/* The search ends at infinity for floats, and at the largest magnitude for integers. */
	if (format != NULL)
		high = key_infinity(format);
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
	uint64_t n;
	uint64_t limit; /* elements with this key or a larger one are taken */
	uint64_t count; /* number of elements taken */
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

/* Takes an element, if there is room. */
static void
element_take(struct compaction *work, uint64_t index)
{
	const uint64_t n = work->count++;

	if (n >= work->capacity)
		return;
	fanin_vector_index_set(work->indices, work->index_bytes, n, index);
	memcpy(work->values + n * work->element_bytes, work->dense + index * work->element_bytes,
	       work->element_bytes);
}

/*
 * Sets one byte for each of 64 elements: 1 if its magnitude's bits are `limit` or more. Compilers
 * vectorise these loops.
 */
#define FLAGS(name, type, magnitude)                                                               \
	static void name(const uint8_t *elements, uint64_t limit, uint64_t sign, uint8_t *flags)   \
	{                                                                                          \
		const type least = (type)limit;                                                    \
                                                                                                   \
		for (unsigned int i = 0; i < 64; i++) {                                            \
			type bits;                                                                 \
                                                                                                   \
			memcpy(&bits, elements + i * sizeof(bits), sizeof(bits));                  \
			flags[i] = (type)(magnitude) >= least;                                     \
		}                                                                                  \
	}

#define WITHOUT_SIGN (bits & ~sign)
#define OF_SIGNED ((bits & sign) != 0 ? 0 - bits : bits)

FLAGS(flags_1, uint8_t, WITHOUT_SIGN)
FLAGS(flags_2, uint16_t, WITHOUT_SIGN)
FLAGS(flags_4, uint32_t, WITHOUT_SIGN)
FLAGS(flags_8, uint64_t, WITHOUT_SIGN)
FLAGS(flags_signed_1, uint8_t, OF_SIGNED)
FLAGS(flags_signed_2, uint16_t, OF_SIGNED)
FLAGS(flags_signed_4, uint32_t, OF_SIGNED)
FLAGS(flags_signed_8, uint64_t, OF_SIGNED)

typedef void (*flags_fn)(const uint8_t *elements, uint64_t limit, uint64_t sign, uint8_t *flags);

static flags_fn
flags_of(const struct compaction *work)
{
	static const flags_fn of_signed[] = { flags_signed_1, flags_signed_2, flags_signed_4,
					      flags_signed_8 };
	static const flags_fn without_sign[] = { flags_1, flags_2, flags_4, flags_8 };
	const int by_size = __builtin_ctz(work->element_bytes);

	return is_signed(work->dtype) ? of_signed[by_size] : without_sign[by_size];
}

/*
 * Packs 64 bytes that are 0 or 1 into a word. The multiplication moves the bits of 8 bytes to the
 * upper byte.
 */
static uint64_t
flags_pack(const uint8_t *flags)
{
	uint64_t packed = 0;

	for (unsigned int i = 0; i < 8; i++) {
		uint64_t eight;

		memcpy(&eight, flags + i * sizeof(eight), sizeof(eight));
		packed |= eight * UINT64_C(0x0102040810204080) >> 56 << 8 * i;
	}
	return packed;
}

/* Takes those of 64 elements whose bits are set. */
static void
word_take(struct compaction *work, uint64_t first, uint64_t bits)
{
	if (work->count + 64 > work->capacity) {
		for (; bits != 0; bits &= bits - 1)
			element_take(work, first + (unsigned int)__builtin_ctzll(bits));
		return;
	}
	for (; bits != 0; bits &= bits - 1) {
		const uint64_t index = first + (unsigned int)__builtin_ctzll(bits);

		/* Copies of a constant size are single instructions. */
		if (work->index_bytes == 4)
			fanin_vector_index_set(work->indices, 4, work->count, index);
		else
			fanin_vector_index_set(work->indices, 8, work->count, index);
		if (work->element_bytes == 4)
			memcpy(work->values + work->count * 4, work->dense + index * 4, 4);
		else
			memcpy(work->values + work->count * work->element_bytes,
			       work->dense + index * work->element_bytes, work->element_bytes);
		work->count++;
	}
}

/* Takes all elements that are large enough, or counts them if there is no room for any. */
static void
all_take(struct compaction *work)
{
	const unsigned int bits = 8 * work->element_bytes;
	const bool has_sign = work->format != NULL || is_signed(work->dtype);
	const uint64_t sign = has_sign ? UINT64_C(1) << (bits - 1) : 0;
	const flags_fn flags_make = flags_of(work);
	uint64_t limit = work->limit;
	uint8_t flags[64];
	uint8_t last[64 * sizeof(uint64_t)] = { 0 };

	/* Only NaN passes, whose bits are beyond those of infinity. */
	if (limit == KEY_NAN && work->format == NULL)
		return;
	if (limit == KEY_NAN)
		limit = key_infinity(work->format) + 1;
	for (uint64_t first = 0; first < work->n; first += 64) {
		const uint8_t *elements = work->dense + first * work->element_bytes;
		uint64_t packed;

		/* Zeros are never taken. */
		if (work->n - first < 64)
			elements = memcpy(last, elements, (work->n - first) * work->element_bytes);
		flags_make(elements, limit, sign, flags);
		packed = flags_pack(flags);
		if (work->capacity == 0)
			work->count += (unsigned int)__builtin_popcountll(packed);
		else
			word_take(work, first, packed);
	}
}

/* Restores the heap below a place that may break it. The smallest key is at the root. */
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
 * Takes the `top` largest elements of a bucket, and the first ones of equal elements. heap: room
 * for `top` keys. One pass finds the largest keys. A second one takes all elements that are larger
 * than the smallest of these keys, and as many equal to it as there is room for.
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
fanin_vector_compact(const void *dense, uint64_t n, unsigned int dtype,
		     const struct fanin_compact_opts *options, void *indices, void *values,
		     uint64_t capacity, uint64_t *count)
{
	const uint64_t bucket = options->bucket == 0 || options->bucket > n ? n : options->bucket;
	struct compaction work;
	uint64_t *heap = NULL;

	work = (struct compaction){
		.dense = dense,
		.format = format_of(dtype),
		.n = n,
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
	if (heap == NULL)
		all_take(&work);
	for (uint64_t begin = 0; heap != NULL && begin < n; begin += bucket)
		bucket_take(&work, begin, n - begin < bucket ? n : begin + bucket, options->top,
			    heap);
	free(heap);
	*count = work.count;
	return work.count > capacity ? FANIN_ERR_CAPACITY : FANIN_OK;
}
