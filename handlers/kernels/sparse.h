/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Loops over sparse data (Flare section 7): values are combined into an array by their indices,
 * taken out of it again, and indices find their places in a hash table. As in kernels.h, each is
 * compiled for several instruction sets, and all give the same bits.
 *
 * An array is `values`, an element for each index, and `occupied`, a bit for each: index i is bit i
 * mod 64 of word i / 64. What a value without its bit is, is of no meaning. So a value of 0 is a
 * value, and a sum that cancels stays.
 */
#ifndef FANIN_HANDLERS_KERNELS_SPARSE_H
#define FANIN_HANDLERS_KERNELS_SPARSE_H

#include "handlers/kernels/kernels.h"

/* Lanes of a bucket of a hash table: their tags lie in one cache line. */
#define FANIN_BUCKET_LANES 16

/*
 * Combines values into an array, each at the place that an index says. An index may come several
 * times. Where the array has no value yet, the bits of the first one are taken as they are.
 *
 * values, occupied: the array; aligned. in, indices: count of each, any alignment. All indices lie
 * in the array. Thread-safe for distinct arrays.
 */
typedef void (*fanin_scatter_fn)(void *values, uint64_t *occupied, const void *in,
				 const void *indices, size_t count);

/*
 * Combines values into a hash table, each in the lane that has its index, or in an empty one, which
 * it takes; one bucket is looked at. As above, where a lane was empty, the bits of the value are
 * taken as they are. A tag, as long as an index, is the index + 1; 0 is an empty lane. So the index
 * 65535 of 2 bytes has none: to it, all buckets are full.
 *
 * values: of the lanes. tags: of n_buckets * FANIN_BUCKET_LANES lanes, aligned to 64 bytes. in,
 * indices: count of each, any alignment. taken: raised by the number of lanes that were empty.
 * Returns how many values were combined: the next one, if there is one, finds its bucket full of
 * others.
 */
typedef size_t (*fanin_table_fn)(void *values, void *tags, uint32_t n_buckets, const void *in,
				 const void *indices, size_t count, size_t *taken);

/* The loops of one data type and operator. */
struct fanin_kernel_sparse_combine {
	fanin_scatter_fn list16; /* indices of 2 bytes */
	fanin_scatter_fn list32; /* of 4 bytes */
	fanin_table_fn table16;  /* indices and tags of 2 bytes */
	fanin_table_fn table32;  /* of 4 bytes */
	/*
	 * `count` values in the order of the bits of n_words words, which are as many; any
	 * alignment.
	 *
	 * values, occupied: from the index of the first bit on.
	 */
	void (*bitmap)(void *values, uint64_t *occupied, const void *in, const void *words,
		       size_t n_words, size_t count);
};

/*
 * The loops that take values out of an array, for one size of elements. Nothing of the array is
 * changed.
 */
struct fanin_kernel_sparse_take {
	/*
	 * Writes the next `count` values from the index `from` on, of which there are as many, and
	 * their indices, of 2 or 4 bytes. Returns the index behind the last one.
	 *
	 * out, indices: any alignment.
	 */
	uint32_t (*list16)(void *out, void *indices, const void *values, const uint64_t *occupied,
			   uint32_t from, size_t count);
	uint32_t (*list32)(void *out, void *indices, const void *values, const uint64_t *occupied,
			   uint32_t from, size_t count);
	/*
	 * The same of a hash table, whose lanes are the array: the indices are those of the tags.
	 *
	 * tags: of all lanes, as long as the indices; aligned.
	 */
	uint32_t (*table16)(void *out, void *indices, const void *values, const uint64_t *occupied,
			    const void *tags, uint32_t from, size_t count);
	uint32_t (*table32)(void *out, void *indices, const void *values, const uint64_t *occupied,
			    const void *tags, uint32_t from, size_t count);
	/*
	 * Writes the `count` values of n_words words, in their order. values, occupied: from the
	 * index of the first bit on.
	 */
	void (*bitmap)(void *out, const void *values, const uint64_t *occupied, size_t n_words,
		       size_t count);
};

/* Loops over tags and bitmaps, independent of the values' type; for indices of 2 and of 4 bytes. */
struct fanin_kernel_sparse_table {
	/*
	 * Writes which lanes are taken, a bit for each. n_lanes: a multiple of 64. tags: aligned to
	 * 64 bytes.
	 */
	void (*occupied16)(uint64_t *occupied, const void *tags, size_t n_lanes);
	void (*occupied32)(uint64_t *occupied, const void *tags, size_t n_lanes);
	/*
	 * Writes the indices of the bits of n_words words, in their order. words: any alignment.
	 * first: index of the first bit. indices: aligned. Returns how many there are.
	 */
	size_t (*indices16)(void *indices, const void *words, size_t n_words, uint32_t first);
	size_t (*indices32)(void *indices, const void *words, size_t n_words, uint32_t first);
};

/*
 * The loops of a data type and an operator (wire codes), of the size of a data type, and of tables,
 * in an instruction set that the CPU has. Return NULL if there are none: averages, copies and
 * custom operators are never sparse. Thread-safe.
 */
const struct fanin_kernel_sparse_combine *fanin_kernel_sparse(enum fanin_isa isa,
							      unsigned int dtype, unsigned int op);
const struct fanin_kernel_sparse_take *fanin_kernel_sparse_take(enum fanin_isa isa,
								unsigned int dtype);
const struct fanin_kernel_sparse_table *fanin_kernel_sparse_table(enum fanin_isa isa);

#endif
