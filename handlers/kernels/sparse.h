/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Loops over sparse data (Flare section 7): values are combined into an array by their indices, taken out of it again, and indices find
 * their places in a hash table. As in kernels.h, each is compiled for several instruction sets, and all give the same bits.
 *
 * An array is `values`, an element for each index, and `occupied`, a bit for each: index i is bit i mod 64 of word i / 64. What a value without its
 * bit is, is of no meaning. So a value of 0 is a value, and a sum that cancels stays.
 */
#ifndef FANIN_HANDLERS_KERNELS_SPARSE_H
#define FANIN_HANDLERS_KERNELS_SPARSE_H

#include "handlers/kernels/kernels.h"

/* Lanes of a bucket of a hash table: their tags fill one cache line. */
#define FANIN_BUCKET_LANES 16
/* Instead of a place in a hash table: the index's bucket is full. */
#define FANIN_NO_LANE UINT32_MAX

/*
 * Combines values into an array, each at the place that an index says. An index may come several times. Where the array has no value yet, the
 * bits of the first one are taken as they are.
 *
 * values, occupied: the array; aligned. in, indices: count of each, any alignment. All indices lie in the array. Thread-safe for distinct arrays.
 */
typedef void (*fanin_scatter_fn)(void *values, uint64_t *occupied, const void *in,
				 const void *indices, size_t count);

/* The loops of one data type and operator. */
struct fanin_sparse_combine {
	fanin_scatter_fn list16; /* indices of 2 bytes */
	fanin_scatter_fn list32; /* of 4 bytes */
	/*
	 * `count` values in the order of the bits of n_words words, which are as many; any alignment.
	 *
	 * values, occupied: from the index of the first bit on.
	 */
	void (*bitmap)(void *values, uint64_t *occupied, const void *in, const void *words,
		       size_t n_words, size_t count);
};

/* The loops that take values out of an array, for one size of elements. Nothing of the array is changed. */
struct fanin_sparse_take {
	/*
	 * Writes the next `count` values from the index `from` on, of which there are as many, and their indices, of 2 or 4 bytes. Returns the index
	 * behind the last one.
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
	 * tags: of all lanes.
	 */
	uint32_t (*table16)(void *out, void *indices, const void *values, const uint64_t *occupied,
			    const uint32_t *tags, uint32_t from, size_t count);
	uint32_t (*table32)(void *out, void *indices, const void *values, const uint64_t *occupied,
			    const uint32_t *tags, uint32_t from, size_t count);
	/* Writes the `count` values of n_words words, in their order. values, occupied: from the index of the first bit on. */
	void (*bitmap)(void *out, const void *values, const uint64_t *occupied, size_t n_words,
		       size_t count);
};

/* Lookup of indices in a hash table; independent of the values' type. */
struct fanin_sparse_table {
	/*
	 * Finds the lane of each index, which it takes if the index is new: one look at one bucket. A tag is an index + 1; 0 is an empty lane.
	 *
	 * tags: 16 << (32 - shift) lanes, aligned to 64 bytes. indices: any alignment. lanes: count; FANIN_NO_LANE where the bucket is full of others.
	 * Returns how many lanes were taken.
	 */
	size_t (*locate16)(uint32_t *tags, unsigned int shift, const void *indices, size_t count,
			   uint32_t *lanes);
	size_t (*locate32)(uint32_t *tags, unsigned int shift, const void *indices, size_t count,
			   uint32_t *lanes);
};

/*
 * The loops of a data type and an operator (wire codes), of the size of a data type, and of tables, in an instruction set that the CPU has.
 * Return NULL if there are none: averages, copies and custom operators are never sparse. Thread-safe.
 */
const struct fanin_sparse_combine *fanin_kernel_sparse(enum fanin_isa isa, unsigned int dtype,
						       unsigned int op);
const struct fanin_sparse_take *fanin_kernel_sparse_take(enum fanin_isa isa, unsigned int dtype);
const struct fanin_sparse_table *fanin_kernel_sparse_table(enum fanin_isa isa);

#endif
