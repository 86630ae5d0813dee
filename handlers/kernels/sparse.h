/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Loops over sparse data (Flare section 7): they combine values into an array or a hash table by
 * their indices, and take them out again. As in kernels.h, each loop is compiled for several
 * instruction sets, and all give the same bits.
 *
 * An array consists of `values`, an element for each index, and `occupied`, a bit for each index:
 * index i is bit i mod 64 of word i / 64. A value whose bit is 0 has no meaning. So a value of 0 is
 * a value, and a sum that cancels to 0 stays.
 */
#ifndef FANIN_HANDLERS_KERNELS_SPARSE_H
#define FANIN_HANDLERS_KERNELS_SPARSE_H

#include "handlers/kernels/kernels.h"

/* Lanes per bucket of a hash table: their tags lie in one cache line. */
#define FANIN_BUCKET_LANES 16

/*
 * Combines values into an array, each at its index. An index may occur several times. If the array
 * has no value at an index, the bits of the first value are stored unchanged.
 *
 * values, occupied: the array; aligned. in, indices: count elements each, any alignment. All
 * indices must lie in the array. Thread-safe for distinct arrays.
 */
typedef void (*fanin_scatter_fn)(void *values, uint64_t *occupied, const void *in,
				 const void *indices, size_t count);

/*
 * Combines values into a hash table, each in the lane that has its index, or in an empty lane,
 * which it takes; only the index's own bucket is searched. As above, if the lane was empty, the
 * bits of the value are stored unchanged. A tag has the size of an index and is the index + 1; 0
 * marks an empty lane. So the 2-byte index 65535 has no tag: for this index, all buckets are full.
 *
 * values: the lanes' values. tags: tags of n_buckets * FANIN_BUCKET_LANES lanes, aligned to 64
 * bytes. in, indices: count elements each, any alignment. taken: increased by the number of lanes
 * that were empty. Returns the number of values combined; if it is less than count, the bucket of
 * the next value is full of other indices.
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
	 * Combines `count` values in the order of the bits that are set in n_words words, whose
	 * number is count; any alignment.
	 *
	 * values, occupied: from the index of the first bit on.
	 */
	void (*bitmap)(void *values, uint64_t *occupied, const void *in, const void *words,
		       size_t n_words, size_t count);
};

/*
 * The loops that copy values out of an array, for one size of elements. They do not change the
 * array.
 */
struct fanin_kernel_sparse_take {
	/*
	 * Write the next `count` values from the index `from` on, of which there must be that many,
	 * and their indices, of 2 or 4 bytes. Return the index after the last one.
	 *
	 * out, indices: any alignment.
	 */
	uint32_t (*list16)(void *out, void *indices, const void *values, const uint64_t *occupied,
			   uint32_t from, size_t count);
	uint32_t (*list32)(void *out, void *indices, const void *values, const uint64_t *occupied,
			   uint32_t from, size_t count);
	/*
	 * The same for a hash table, whose lanes are the array: the tags give the indices.
	 *
	 * tags: tags of all lanes, of the indices' size; aligned.
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
	 * Write a bit for each lane, 1 if it is taken. n_lanes: a multiple of 64. tags: aligned to
	 * 64 bytes.
	 */
	void (*occupied16)(uint64_t *occupied, const void *tags, size_t n_lanes);
	void (*occupied32)(uint64_t *occupied, const void *tags, size_t n_lanes);
	/*
	 * Write the indices of the bits that are set in n_words words, in their order. words: any
	 * alignment. first: index of the first bit. indices: aligned. Return the number of indices.
	 */
	size_t (*indices16)(void *indices, const void *words, size_t n_words, uint32_t first);
	size_t (*indices32)(void *indices, const void *words, size_t n_words, uint32_t first);
};

/*
 * Return the loops for a data type and an operator (wire codes), for the size of a data type, and
 * for tables, in an instruction set that the CPU has; NULL if there are none. Averages, copies and
 * custom operators are never sparse. Thread-safe.
 */
const struct fanin_kernel_sparse_combine *fanin_kernel_sparse(enum fanin_isa isa,
							      unsigned int dtype, unsigned int op);
const struct fanin_kernel_sparse_take *fanin_kernel_sparse_take(enum fanin_isa isa,
								unsigned int dtype);
const struct fanin_kernel_sparse_table *fanin_kernel_sparse_table(enum fanin_isa isa);

#endif
