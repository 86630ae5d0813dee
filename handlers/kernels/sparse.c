/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All loops of sparse.h in one instruction set. This file is compiled once for each instruction
 * set, and then defines the tables that FANIN_KERNEL_SPARSE_TABLES names. The dense kernels define
 * the operators' effect on an element.
 */
#include <stdbool.h>
#include <string.h>

#ifdef __AVX2__
#include <immintrin.h>
#endif

/* Only the element operations of the dense kernels are used here. */
#pragma GCC diagnostic ignored "-Wunused-function"

#include "handlers/kernels/bf16.h"
#include "handlers/kernels/f16.h"
#include "handlers/kernels/float.h"
#include "handlers/kernels/integer.h"
#include "handlers/kernels/table.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* Sums and products of one element: the dense kernels of these types combine several at a time. */
ALWAYS_INLINE uint16_t
combine_bf16_sum(uint16_t x, uint16_t y)
{
	return (uint16_t)(bf16_round(bf16_low(x) + bf16_low(y)) >> 16);
}

ALWAYS_INLINE uint16_t
combine_bf16_prod(uint16_t x, uint16_t y)
{
	return (uint16_t)(bf16_round(bf16_low(x) * bf16_low(y)) >> 16);
}

#ifndef __AVX512FP16__
#ifdef __F16C__
ALWAYS_INLINE float
f16_to_single(uint16_t bits)
{
	return _cvtsh_ss(bits);
}

ALWAYS_INLINE uint16_t
f16_from_single(float value)
{
	return (uint16_t)_cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT);
}
#else
#define f16_to_single f16_widen
#define f16_from_single f16_narrow
#endif

ALWAYS_INLINE uint16_t
combine_f16_sum(uint16_t x, uint16_t y)
{
	return f16_from_single(f16_to_single(x) + f16_to_single(y));
}

ALWAYS_INLINE uint16_t
combine_f16_prod(uint16_t x, uint16_t y)
{
	return f16_from_single(f16_to_single(x) * f16_to_single(y));
}
#endif

typedef uint8_t any_8 ANY_ADDRESS;
typedef uint16_t any_16 ANY_ADDRESS;
typedef uint32_t any_32 ANY_ADDRESS;
typedef uint64_t any_64 ANY_ADDRESS;

#ifdef __AVX512F__
/*
 * Vectors of elements of one size. The masked lanes of a vector are read from consecutive elements
 * in memory, and written there likewise.
 */
#define LANES_32 16
#define LANES_64 8

#define SPARSE_LANES(size, mask_type)                                                              \
	/* Reads a whole vector. The asm keeps the compiler from making one instruction of both    \
	 * steps, which would be slower. */                                                        \
	ALWAYS_INLINE __m512i expand_##size(uint64_t mask, const void *from)                       \
	{                                                                                          \
		__m512i lanes = _mm512_loadu_si512(from);                                          \
                                                                                                   \
		__asm__("" : "+v"(lanes));                                                         \
		return _mm512_maskz_expand_epi##size((mask_type)mask, lanes);                      \
	}                                                                                          \
	/* Reads only the elements that are expanded. */                                           \
	ALWAYS_INLINE __m512i expand_last_##size(uint64_t mask, const void *from)                  \
	{                                                                                          \
		return _mm512_maskz_expandloadu_epi##size((mask_type)mask, from);                  \
	}                                                                                          \
	ALWAYS_INLINE __m512i compress_##size(uint64_t mask, __m512i lanes)                        \
	{                                                                                          \
		return _mm512_maskz_compress_epi##size((mask_type)mask, lanes);                    \
	}                                                                                          \
	ALWAYS_INLINE __m512i select_##size(__m512i otherwise, uint64_t mask, __m512i lanes)       \
	{                                                                                          \
		return _mm512_mask_mov_epi##size(otherwise, (mask_type)mask, lanes);               \
	}

SPARSE_LANES(32, __mmask16)
SPARSE_LANES(64, __mmask8)
#endif

/*
 * Returns the first lane of a bucket that holds the tag or is empty; FANIN_BUCKET_LANES if there is
 * none. Lanes are taken in order and never given back, so this is the tag's own lane, or if the tag
 * has none the first empty lane.
 */
ALWAYS_INLINE uint32_t
bucket_lane_16(const uint16_t *bucket, uint16_t tag)
{
#ifdef __AVX2__
	const __m256i tags = _mm256_load_si256((const void *)bucket);
	const __m256i match =
		_mm256_or_si256(_mm256_cmpeq_epi16(tags, _mm256_set1_epi16((short)tag)),
				_mm256_cmpeq_epi16(tags, _mm256_setzero_si256()));
	const uint64_t bytes = (uint32_t)_mm256_movemask_epi8(match);

	return (uint32_t)__builtin_ctzll(bytes | UINT64_C(1) << 32) / 2;
#else
	uint32_t i = 0;

	while (i < FANIN_BUCKET_LANES && bucket[i] != tag && bucket[i] != 0)
		i++;
	return i;
#endif
}

ALWAYS_INLINE uint32_t
bucket_lane_32(const uint32_t *bucket, uint32_t tag)
{
#ifdef __AVX2__
	const __m256i wanted = _mm256_set1_epi32((int)tag);
	const __m256i low = _mm256_load_si256((const void *)bucket);
	const __m256i high = _mm256_load_si256((const void *)(bucket + 8));
	const __m256i none = _mm256_setzero_si256();
	const __m256i in_low = _mm256_or_si256(_mm256_cmpeq_epi32(low, wanted),
					       _mm256_cmpeq_epi32(low, none));
	const __m256i in_high = _mm256_or_si256(_mm256_cmpeq_epi32(high, wanted),
						_mm256_cmpeq_epi32(high, none));
	const uint32_t lanes = (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(in_low)) |
			       (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(in_high)) << 8;

	return (uint32_t)__builtin_ctz(lanes | UINT32_C(1) << FANIN_BUCKET_LANES);
#else
	uint32_t i = 0;

	while (i < FANIN_BUCKET_LANES && bucket[i] != tag && bucket[i] != 0)
		i++;
	return i;
#endif
}

/*
 * Prefetch distance in values: an array is as large as its block, a table twice as large, and
 * seldom in a nearby cache.
 */
#define FETCH_AHEAD 24

#define SPARSE_SCATTER(name, bits, width)                                                          \
	static void scatter##width##_##name(void *values, uint64_t *occupied, const void *in,      \
					    const void *indices, size_t count)                     \
	{                                                                                          \
		const any_##bits *from = in;                                                       \
		const any_##width *at = indices;                                                   \
		any_##bits *to = values;                                                           \
		size_t i = 0;                                                                      \
                                                                                                   \
		for (; i + FETCH_AHEAD < count; i++) {                                             \
			__builtin_prefetch(&to[at[i + FETCH_AHEAD]], 1);                           \
			put_##name(to, (uint8_t *)occupied, from[i], at[i]);                       \
		}                                                                                  \
		for (; i < count; i++)                                                             \
			put_##name(to, (uint8_t *)occupied, from[i], at[i]);                       \
	}

/*
 * Returns the first lane of an index's bucket: Knuth's multiplicative hash, scaled to the number of
 * buckets. The scaling uses the upper bits, which depend on all bits of the index.
 */
ALWAYS_INLINE uint32_t
bucket_of(uint32_t index, uint32_t n_buckets)
{
	return (uint32_t)((uint64_t)(index * UINT32_C(2654435769)) * n_buckets >> 32) *
	       FANIN_BUCKET_LANES;
}

/*
 * Number of indices whose buckets are computed together, and prefetched while the values before
 * them are combined.
 */
#define TOGETHER 32

/* buckets_WIDTH is a call for each group, as inlined it was half the code of each table's loop. */
#define SPARSE_BUCKETS(width)                                                                      \
	static __attribute__((noinline)) void buckets_##width(uint32_t *restrict buckets,          \
							      const any_##width *at,               \
							      uint32_t n_buckets)                  \
	{                                                                                          \
		for (unsigned int i = 0; i < TOGETHER; i++)                                        \
			buckets[i] = bucket_of(at[i], n_buckets);                                  \
	}                                                                                          \
	ALWAYS_INLINE void fetch_##width(const uint##width##_t *tags, const void *values,          \
					 size_t element_bytes, const uint32_t *buckets)            \
	{                                                                                          \
		for (unsigned int i = 0; i < TOGETHER; i++) {                                      \
			const uint8_t *lanes = (const uint8_t *)values +                           \
					       buckets[i] * element_bytes;                         \
                                                                                                   \
			__builtin_prefetch(&tags[buckets[i]], 1);                                  \
			__builtin_prefetch(lanes, 1);                                              \
			if (FANIN_BUCKET_LANES * element_bytes > 64)                               \
				__builtin_prefetch(lanes + 64, 1);                                 \
		}                                                                                  \
	}

SPARSE_BUCKETS(16)
SPARSE_BUCKETS(32)

/* Defines the loop into a hash table: one value after the other, until a value finds no lane. */
#define SPARSE_TABLE(name, bits, width)                                                            \
	/* Returns false if the bucket is full of other indices. The last 2-byte index has no tag  \
	 * and never a lane. */                                                                    \
	ALWAYS_INLINE bool table_put##width##_##name(any_##bits *values, uint##width##_t *tags,    \
						     uint32_t first, uint##bits##_t in,            \
						     uint##width##_t tag, size_t *taken)           \
	{                                                                                          \
		const uint32_t at = bucket_lane_##width(tags + first, tag);                        \
		const uint32_t lane = first + at;                                                  \
		uint32_t there;                                                                    \
                                                                                                   \
		if (__builtin_expect(at == FANIN_BUCKET_LANES || tag == 0, 0))                     \
			return false;                                                              \
		there = tags[lane] != 0;                                                           \
		*taken += 1 - there;                                                               \
		tags[lane] = tag;                                                                  \
		values[lane] = selected_##name(values[lane], in, there);                           \
		return true;                                                                       \
	}                                                                                          \
	static size_t table##width##_##name(void *values, void *tags, uint32_t n_buckets,          \
					    const void *in, const void *indices, size_t count,     \
					    size_t *taken)                                         \
	{                                                                                          \
		const any_##bits *from = in;                                                       \
		const any_##width *at = indices;                                                   \
		uint32_t buckets[2][TOGETHER];                                                     \
		size_t i = 0;                                                                      \
                                                                                                   \
		if (count >= TOGETHER)                                                             \
			buckets_##width(buckets[0], at, n_buckets);                                \
		while (count - i >= TOGETHER) {                                                    \
			const uint32_t *now = buckets[i / TOGETHER % 2];                           \
			uint32_t *next = buckets[(i / TOGETHER + 1) % 2];                          \
                                                                                                   \
			if (count - i >= 2 * TOGETHER) {                                           \
				buckets_##width(next, at + i + TOGETHER, n_buckets);               \
				fetch_##width(tags, values, sizeof(*from), next);                  \
			}                                                                          \
			for (unsigned int k = 0; k < TOGETHER; k++, i++) {                         \
				if (!table_put##width##_##name(values, tags, now[k], from[i],      \
							       (uint##width##_t)(at[i] + 1),       \
							       taken))                             \
					return i;                                                  \
			}                                                                          \
		}                                                                                  \
		for (; i < count; i++) {                                                           \
			if (!table_put##width##_##name(values, tags, bucket_of(at[i], n_buckets),  \
						       from[i], (uint##width##_t)(at[i] + 1),      \
						       taken))                                     \
				return i;                                                          \
		}                                                                                  \
		return count;                                                                      \
	}

/*
 * Applies combine_NAME to an element of an array, of `bits` bits. A branch on an existing value
 * would be unpredictable, so the result is selected without one. With 10 % of the indices, a third
 * of which have a value already, an index takes 1.3 ns; a sum into an array with all values takes
 * 0.5 ns.
 */
#define SPARSE_PUT(name, bits)                                                                     \
	/* there: 0 or 1 */                                                                        \
	ALWAYS_INLINE uint##bits##_t selected_##name(uint##bits##_t old, uint##bits##_t in,        \
						     uint32_t there)                               \
	{                                                                                          \
		const uint##bits##_t mask = (uint##bits##_t) - (uint##bits##_t)there;              \
		__typeof__(combine_##name(0, 0)) x, y, both;                                       \
		uint##bits##_t combined;                                                           \
                                                                                                   \
		memcpy(&x, &old, sizeof(x));                                                       \
		memcpy(&y, &in, sizeof(y));                                                        \
		both = combine_##name(x, y);                                                       \
		memcpy(&combined, &both, sizeof(combined));                                        \
		return in ^ ((in ^ combined) & mask);                                              \
	}                                                                                          \
	ALWAYS_INLINE void put_##name(any_##bits *values, uint8_t *occupied, uint##bits##_t in,    \
				      uint32_t index)                                              \
	{                                                                                          \
		const uint8_t byte = occupied[index / 8];                                          \
                                                                                                   \
		values[index] = selected_##name(values[index], in, byte >> index % 8 & 1);         \
		occupied[index / 8] = (uint8_t)(byte | 1u << index % 8);                           \
	}                                                                                          \
	SPARSE_TABLE(name, bits, 16)                                                               \
	SPARSE_TABLE(name, bits, 32)                                                               \
	SPARSE_SCATTER(name, bits, 16)                                                             \
	SPARSE_SCATTER(name, bits, 32)

/* Puts the values of a word, one after the other, and advances `from` past them. */
#define PUT_BITS(name, values, occupied, from, word, first)                                        \
	do {                                                                                       \
		for (uint64_t left_bits = (word); left_bits != 0; left_bits &= left_bits - 1)      \
			put_##name(values, (uint8_t *)occupied, *(from)++,                         \
				   (first) + (uint32_t)__builtin_ctzll(left_bits));                \
	} while (0)

#define SPARSE_BITMAP_8(name, bits)                                                                \
	static void bitmap_##name(void *values, uint64_t *occupied, const void *in,                \
				  const void *words, size_t n_words, size_t count)                 \
	{                                                                                          \
		const any_##bits *from = in;                                                       \
		const any_64 *bit_words = words;                                                   \
                                                                                                   \
		(void)count;                                                                       \
		for (size_t i = 0; i < n_words; i++)                                               \
			PUT_BITS(name, values, occupied, from, bit_words[i], (uint32_t)(i * 64));  \
	}
#define SPARSE_BITMAP_16 SPARSE_BITMAP_8

#ifdef __AVX512F__
/*
 * Bitmaps are used for many values: all lanes of a vector are computed, and the lanes that change
 * are selected.
 */
#define SPARSE_BITMAP_32(name, bits)                                                               \
	ALWAYS_INLINE void put_lanes_##name(any_##bits *to, uint64_t there, uint64_t mask,         \
					    __m512i new)                                           \
	{                                                                                          \
		uint##bits##_t in[LANES_##bits] __attribute__((aligned(64)));                      \
		uint##bits##_t both[LANES_##bits] __attribute__((aligned(64)));                    \
		const __m512i old = _mm512_loadu_si512(to);                                        \
                                                                                                   \
		_mm512_store_si512(in, new);                                                       \
		_mm512_store_si512(both, old);                                                     \
		kernel_##name(both, in, LANES_##bits);                                             \
		_mm512_storeu_si512(to, select_##bits(select_##bits(old, mask, new), mask &there,  \
						      _mm512_load_si512(both)));                   \
	}                                                                                          \
	/* Puts the values of a word. last: nothing may be read behind them. Returns the address   \
	 * behind them. */                                                                         \
	ALWAYS_INLINE const any_##bits *put_word_##name(any_##bits *to, uint64_t there,            \
							uint64_t word, const any_##bits *from,     \
							const bool last)                           \
	{                                                                                          \
		const uint64_t all = UINT64_MAX >> (64 - LANES_##bits);                            \
                                                                                                   \
		for (unsigned int g = 0; g < 64; g += LANES_##bits) {                              \
			const uint64_t mask = word >> g & all;                                     \
                                                                                                   \
			put_lanes_##name(to + g, there >> g, mask,                                 \
					 last ? expand_last_##bits(mask, from)                     \
					      : expand_##bits(mask, from));                        \
			from += __builtin_popcountll(mask);                                        \
		}                                                                                  \
		return from;                                                                       \
	}                                                                                          \
	static void bitmap_##name(void *values, uint64_t *occupied, const void *in,                \
				  const void *words, size_t n_words, size_t count)                 \
	{                                                                                          \
		const any_##bits *from = in;                                                       \
		const any_##bits *end = from + count;                                              \
		const any_64 *bit_words = words;                                                   \
		any_##bits *to = values;                                                           \
		size_t i = 0;                                                                      \
                                                                                                   \
		for (; i < n_words && end - from >= 64; i++, to += 64) {                           \
			from = put_word_##name(to, occupied[i], bit_words[i], from, false);        \
			occupied[i] |= bit_words[i];                                               \
		}                                                                                  \
		for (; i < n_words; i++, to += 64) {                                               \
			from = put_word_##name(to, occupied[i], bit_words[i], from, true);         \
			occupied[i] |= bit_words[i];                                               \
		}                                                                                  \
	}
#define SPARSE_BITMAP_64 SPARSE_BITMAP_32
#else
#define SPARSE_BITMAP_32 SPARSE_BITMAP_8
#define SPARSE_BITMAP_64 SPARSE_BITMAP_8
#endif

/* Defines sparse_NAME, the entry of the table, by the loops of a type and operator. */
#define SPARSE_ENTRY(name, loops)                                                                  \
	static const struct fanin_kernel_sparse_combine sparse_##name = {                          \
		.list16 = scatter16_##loops,                                                       \
		.list32 = scatter32_##loops,                                                       \
		.table16 = table16_##loops,                                                        \
		.table32 = table32_##loops,                                                        \
		.bitmap = bitmap_##loops,                                                          \
	};

#define SPARSE_COMBINE(name, bits)                                                                 \
	SPARSE_PUT(name, bits)                                                                     \
	SPARSE_BITMAP_##bits(name, bits) SPARSE_ENTRY(name, name)

#define SPARSE_FLOAT(name, bits)                                                                   \
	SPARSE_COMBINE(name##_sum, bits)                                                           \
	SPARSE_COMBINE(name##_prod, bits)                                                          \
	SPARSE_COMBINE(name##_min, bits)                                                           \
	SPARSE_COMBINE(name##_max, bits)

#define SPARSE_SIGNED(name, bits)                                                                  \
	SPARSE_FLOAT(name, bits)                                                                   \
	SPARSE_COMBINE(name##_land, bits)                                                          \
	SPARSE_COMBINE(name##_lor, bits)                                                           \
	SPARSE_COMBINE(name##_lxor, bits)                                                          \
	SPARSE_COMBINE(name##_band, bits)                                                          \
	SPARSE_COMBINE(name##_bor, bits)                                                           \
	SPARSE_COMBINE(name##_bxor, bits)

/* Minima and maxima depend on the sign: all other loops are those of the signed type. */
#define SPARSE_UNSIGNED(name, bits, signed_name)                                                   \
	SPARSE_COMBINE(name##_min, bits)                                                           \
	SPARSE_COMBINE(name##_max, bits)                                                           \
	SPARSE_ENTRY(name##_sum, signed_name##_sum)                                                \
	SPARSE_ENTRY(name##_prod, signed_name##_prod)                                              \
	SPARSE_ENTRY(name##_land, signed_name##_land)                                              \
	SPARSE_ENTRY(name##_lor, signed_name##_lor)                                                \
	SPARSE_ENTRY(name##_lxor, signed_name##_lxor)                                              \
	SPARSE_ENTRY(name##_band, signed_name##_band)                                              \
	SPARSE_ENTRY(name##_bor, signed_name##_bor)                                                \
	SPARSE_ENTRY(name##_bxor, signed_name##_bxor)

SPARSE_FLOAT(f16, 16)
#ifndef KERNELS_OF_F16_ONLY
SPARSE_SIGNED(i8, 8)
SPARSE_SIGNED(i16, 16)
SPARSE_SIGNED(i32, 32)
SPARSE_SIGNED(i64, 64)
SPARSE_UNSIGNED(u8, 8, i8)
SPARSE_UNSIGNED(u16, 16, i16)
SPARSE_UNSIGNED(u32, 32, i32)
SPARSE_UNSIGNED(u64, 64, i64)
SPARSE_FLOAT(bf16, 16)
SPARSE_FLOAT(f32, 32)
SPARSE_FLOAT(f64, 64)

/*
 * Takes `count` values from the bit `from` on; `statements` write each one: `place` is its index, n
 * the number of values before it. Returns the index after the last one.
 */
#define TAKE_LOOP(statements)                                                                      \
	uint32_t word_at = from / 64;                                                              \
	uint32_t place = from;                                                                     \
	uint64_t left = n == count ? 0 : occupied[word_at] & UINT64_MAX << from % 64;              \
                                                                                                   \
	if (n == count)                                                                            \
		return from;                                                                       \
	for (; n < count; n++) {                                                                   \
		while (left == 0)                                                                  \
			left = occupied[++word_at];                                                \
		place = word_at * 64 + (uint32_t)__builtin_ctzll(left);                            \
		left &= left - 1;                                                                  \
		statements                                                                         \
	}                                                                                          \
	return place + 1;

/*
 * Vector part of TAKE_LOOP: runs as long as a whole vector can be written, and advances n and from.
 */
#define NO_TAKE_LANES(size, width, source)

#ifdef __AVX512F__
#define INDEX_LANES_PLACE_16(at, n)                                                                \
	_mm512_add_epi32(_mm512_set1_epi32((int)(at)),                                             \
			 _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15))
#define INDEX_LANES_PLACE_32 INDEX_LANES_PLACE_16
#define INDEX_LANES_TAG_16(at, n)                                                                  \
	_mm512_sub_epi32(_mm512_cvtepu16_epi32(                                                    \
				 _mm256_maskz_loadu_epi16((__mmask16)(UINT32_MAX >> (32 - (n))),   \
							  tags + (at))),                           \
			 _mm512_set1_epi32(1))
#define INDEX_LANES_TAG_32(at, n)                                                                  \
	_mm512_sub_epi32(_mm512_maskz_loadu_epi32((__mmask16)(UINT32_MAX >> (32 - (n))),           \
						  tags + (at)),                                    \
			 _mm512_set1_epi32(1))
#define STORE_INDICES_16(to, lanes) _mm256_storeu_si256((void *)(to), _mm512_cvtepi32_epi16(lanes))
#define STORE_INDICES_32(to, lanes) _mm512_storeu_si512(to, lanes)

#define INDEX_PLACE(place) (place)
#define INDEX_TAG(place) (tags[place] - 1)

/* Up to this many values per word, single elements are faster than vectors. */
#define FEW_VALUES 5

/* A vector of indices has 16 lanes for values of any size: so at least 16 values must be left. */
#define TAKE_LANES(size, width, source)                                                            \
	const uint64_t all_lanes = UINT64_MAX >> (64 - LANES_##size);                              \
                                                                                                   \
	for (uint64_t some = UINT64_MAX << from % 64; count - n >= LANES_32; some = UINT64_MAX) {  \
		const uint32_t at = from / 64 * 64;                                                \
		uint64_t word = occupied[at / 64] & some;                                          \
		unsigned int g = 0;                                                                \
                                                                                                   \
		if (__builtin_popcountll(word) <= FEW_VALUES) {                                    \
			for (; word != 0; word &= word - 1, n++) {                                 \
				const uint32_t place = at + (uint32_t)__builtin_ctzll(word);       \
                                                                                                   \
				to[n] = in[place];                                                 \
				place_at[n] = (uint##width##_t)INDEX_##source(place);              \
			}                                                                          \
			from = at + 64;                                                            \
			continue;                                                                  \
		}                                                                                  \
		for (; g < 64 && count - n >= LANES_32; g += LANES_##size) {                       \
			const uint64_t mask = word >> g & all_lanes;                               \
                                                                                                   \
			_mm512_storeu_si512(to + n, compress_##size(mask, _mm512_loadu_si512(      \
										  in + at + g)));  \
			STORE_INDICES_##width(                                                     \
				place_at + n,                                                      \
				_mm512_maskz_compress_epi32(                                       \
					(__mmask16)mask,                                           \
					INDEX_LANES_##source##_##width(at + g, LANES_##size)));    \
			n += (size_t)__builtin_popcountll(mask);                                   \
		}                                                                                  \
		/* If the loop has left a word early, its remaining bits are still to be taken. */ \
		from = from > at + g ? from : at + g;                                              \
	}
#define TAKE_LANES_32 TAKE_LANES
#define TAKE_LANES_64 TAKE_LANES
#else
#define TAKE_LANES_32 NO_TAKE_LANES
#define TAKE_LANES_64 NO_TAKE_LANES
#endif
#define TAKE_LANES_8 NO_TAKE_LANES
#define TAKE_LANES_16 NO_TAKE_LANES

#define SPARSE_TAKE_LIST(size, width)                                                              \
	static uint32_t list##width##_of_##size(void *out, void *indices, const void *values,      \
						const uint64_t *occupied, uint32_t from,           \
						size_t count)                                      \
	{                                                                                          \
		const any_##size *in = values;                                                     \
		any_##size *to = out;                                                              \
		any_##width *place_at = indices;                                                   \
		size_t n = 0;                                                                      \
                                                                                                   \
		TAKE_LANES_##size(size, width, PLACE)                                              \
			TAKE_LOOP(to[n] = in[place]; place_at[n] = (uint##width##_t)place;)        \
	}                                                                                          \
	static uint32_t table##width##_of_##size(void *out, void *indices, const void *values,     \
						 const uint64_t *occupied, const void *lane_tags,  \
						 uint32_t from, size_t count)                      \
	{                                                                                          \
		const uint##width##_t *tags = lane_tags;                                           \
		const any_##size *in = values;                                                     \
		any_##size *to = out;                                                              \
		any_##width *place_at = indices;                                                   \
		size_t n = 0;                                                                      \
                                                                                                   \
		TAKE_LANES_##size(size, width, TAG) TAKE_LOOP(                                     \
			to[n] = in[place]; place_at[n] = (uint##width##_t)(tags[place] - 1);)      \
	}

#define TAKE_WORD(in, to, word)                                                                    \
	do {                                                                                       \
		for (uint64_t left_bits = (word); left_bits != 0; left_bits &= left_bits - 1)      \
			*(to)++ = (in)[__builtin_ctzll(left_bits)];                                \
	} while (0)

#define SPARSE_TAKE_BITMAP_8(size)                                                                 \
	static void bitmap_of_##size(void *out, const void *values, const uint64_t *occupied,      \
				     size_t n_words, size_t count)                                 \
	{                                                                                          \
		const any_##size *in = values;                                                     \
		any_##size *to = out;                                                              \
                                                                                                   \
		(void)count;                                                                       \
		for (size_t i = 0; i < n_words; i++, in += 64)                                     \
			TAKE_WORD(in, to, occupied[i]);                                            \
	}
#define SPARSE_TAKE_BITMAP_16 SPARSE_TAKE_BITMAP_8

#ifdef __AVX512F__
#define SPARSE_TAKE_BITMAP_32(size)                                                                \
	static void bitmap_of_##size(void *out, const void *values, const uint64_t *occupied,      \
				     size_t n_words, size_t count)                                 \
	{                                                                                          \
		const uint64_t all = UINT64_MAX >> (64 - LANES_##size);                            \
		const any_##size *in = values;                                                     \
		any_##size *to = out;                                                              \
		const any_##size *end = to + count;                                                \
                                                                                                   \
		for (size_t i = 0; i < n_words; i++, in += 64) {                                   \
			const uint64_t word = occupied[i];                                         \
                                                                                                   \
			if (end - to < 64) {                                                       \
				TAKE_WORD(in, to, word);                                           \
				continue;                                                          \
			}                                                                          \
			for (unsigned int g = 0; g < 64; g += LANES_##size) {                      \
				_mm512_storeu_si512(to,                                            \
						    compress_##size(word >> g & all,               \
								    _mm512_loadu_si512(in + g)));  \
				to += __builtin_popcountll(word >> g & all);                       \
			}                                                                          \
		}                                                                                  \
	}
#define SPARSE_TAKE_BITMAP_64 SPARSE_TAKE_BITMAP_32
#else
#define SPARSE_TAKE_BITMAP_32 SPARSE_TAKE_BITMAP_8
#define SPARSE_TAKE_BITMAP_64 SPARSE_TAKE_BITMAP_8
#endif

#define SPARSE_TAKE(size)                                                                          \
	SPARSE_TAKE_LIST(size, 16)                                                                 \
	SPARSE_TAKE_LIST(size, 32)                                                                 \
	SPARSE_TAKE_BITMAP_##size(size)

SPARSE_TAKE(8)
SPARSE_TAKE(16)
SPARSE_TAKE(32)
SPARSE_TAKE(64)

#define SPARSE_TABLE_LOOPS(width)                                                                  \
	static void occupied##width(uint64_t *occupied, const void *lane_tags, size_t n_lanes)     \
	{                                                                                          \
		const uint##width##_t *tags = lane_tags;                                           \
                                                                                                   \
		for (size_t i = 0; i < n_lanes; i += 64, tags += 64) {                             \
			uint64_t word = 0;                                                         \
                                                                                                   \
			for (size_t g = 0; g < 64; g += 16)                                        \
				word |= (uint64_t)taken_lanes_##width(tags + g) << g;              \
			occupied[i / 64] = word;                                                   \
		}                                                                                  \
	}                                                                                          \
	static size_t indices##width(void *indices, const void *words, size_t n_words,             \
				     uint32_t first)                                               \
	{                                                                                          \
		const any_64 *from = words;                                                        \
		uint##width##_t *to = indices;                                                     \
                                                                                                   \
		for (size_t i = 0; i < n_words; i++, first += 64) {                                \
			for (uint64_t word = from[i]; word != 0; word &= word - 1)                 \
				*to++ = (uint##width##_t)(first +                                  \
							  (uint32_t)__builtin_ctzll(word));        \
		}                                                                                  \
		return (size_t)(to - (uint##width##_t *)indices);                                  \
	}

/* Return the taken ones of 16 lanes, as bits. */
ALWAYS_INLINE uint32_t
taken_lanes_16(const uint16_t *tags)
{
	uint32_t taken = 0;

#ifdef __AVX512BW__
	const __m256i lanes = _mm256_load_si256((const void *)tags);

	taken = _mm256_test_epi16_mask(lanes, lanes);
#else
	for (unsigned int i = 0; i < 16; i++)
		taken |= (uint32_t)(tags[i] != 0) << i;
#endif
	return taken;
}

ALWAYS_INLINE uint32_t
taken_lanes_32(const uint32_t *tags)
{
	uint32_t taken = 0;

#ifdef __AVX512F__
	const __m512i lanes = _mm512_load_si512(tags);

	taken = _mm512_test_epi32_mask(lanes, lanes);
#else
	for (unsigned int i = 0; i < 16; i++)
		taken |= (uint32_t)(tags[i] != 0) << i;
#endif
	return taken;
}

SPARSE_TABLE_LOOPS(16)
SPARSE_TABLE_LOOPS(32)
#endif

#define FLOAT_ROW(name)                                                                            \
	[FANIN_WIRE_SUM] = &sparse_##name##_sum, [FANIN_WIRE_PROD] = &sparse_##name##_prod,        \
	[FANIN_WIRE_MIN] = &sparse_##name##_min, [FANIN_WIRE_MAX] = &sparse_##name##_max

#define INTEGER_ROW(name)                                                                          \
	FLOAT_ROW(name), [FANIN_WIRE_LAND] = &sparse_##name##_land,                                \
			 [FANIN_WIRE_LOR] = &sparse_##name##_lor,                                  \
			 [FANIN_WIRE_LXOR] = &sparse_##name##_lxor,                                \
			 [FANIN_WIRE_BAND] = &sparse_##name##_band,                                \
			 [FANIN_WIRE_BOR] = &sparse_##name##_bor,                                  \
			 [FANIN_WIRE_BXOR] = &sparse_##name##_bxor

#define ROW(DTYPE, name, code, size, KIND) [FANIN_WIRE_##DTYPE] = { KIND##_ROW(name) },

#define TAKE(size)                                                                                 \
	{                                                                                          \
		.list16 = list16_of_##size, .list32 = list32_of_##size,                            \
		.table16 = table16_of_##size, .table32 = table32_of_##size,                        \
		.bitmap = bitmap_of_##size,                                                        \
	}

const struct fanin_kernel_sparse_tables FANIN_KERNEL_SPARSE_TABLES = {
	.combine = { KERNELS_DTYPES(ROW) },
#ifndef KERNELS_OF_F16_ONLY
	.take = { TAKE(8), TAKE(16), TAKE(32), TAKE(64) },
	.table = { .occupied16 = occupied16,
		   .occupied32 = occupied32,
		   .indices16 = indices16,
		   .indices32 = indices32 },
#endif
};
