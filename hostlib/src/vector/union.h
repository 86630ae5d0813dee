/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The whole sparse vector of some ranks, for allreduces among hosts (Renggli et al., "SparCML:
 * High-performance sparse communication for machine learning", section 5): a list of indices and
 * values as long as that is shorter, then all values with a bit for each index. Combining two of
 * them makes the union of their indices. Pure except for the struct and its memory; one thread at a
 * time.
 */
#ifndef FANIN_HOSTLIB_VECTOR_UNION_H
#define FANIN_HOSTLIB_VECTOR_UNION_H

#include "hostlib/src/vector/vector.h"

/* Used on the wire, too. */
enum fanin_vector_form {
	FANIN_VECTOR_NOTHING, /* no vector */
	FANIN_VECTOR_INDICES, /* nnz ascending indices of index_bytes, then as many values */
	FANIN_VECTOR_BITS,    /* a bit for each index in words of 64, then n values; values without
				 their bit are 0 */
	FANIN_VECTOR_FULL,    /* n values: every index has one */
};

struct fanin_vector_union {
	uint64_t n;
	uint64_t nnz;
	void *memory;     /* owned; NULL: indices and values are the caller's, or there are none */
	uint8_t *indices; /* of a list; else NULL */
	uint64_t *bits;   /* of a vector with bits, even if all are set; else NULL */
	uint8_t *values;  /* of a list's indices, or of all */
	uint8_t form;     /* enum fanin_vector_form */
	uint8_t index_bytes;
	uint8_t element_bytes;
};

/* The parts of a vector in its form, in their order. */
struct fanin_vector_parts {
	uint8_t *bytes[2];
	uint64_t len[2]; /* may be 0 */
};

/* Returns the bytes of an index: 4 if all indices of a vector fit. */
static inline uint8_t
fanin_vector_union_index_bytes(uint64_t n)
{
	return n <= UINT64_C(1) << 32 ? 4 : 8;
}

/* Returns the number of words of bits for n indices. */
static inline uint64_t
fanin_vector_union_words(uint64_t n)
{
	return n / 64 + (n % 64 != 0);
}

/*
 * Returns the shortest form of a vector: a list, unless all values with a bit for each index take
 * fewer bytes. This is SparCML's threshold, except for the bits.
 */
enum fanin_vector_form fanin_vector_union_form(uint64_t n, uint64_t nnz, uint8_t element_bytes);

/*
 * Makes the vector of this rank. The rank's data is copied only into another form; otherwise it
 * must not change.
 *
 * sparse: checked. Returns FANIN_OK, or FANIN_ERR_NO_MEMORY with nothing to be freed.
 */
int fanin_vector_union_begin(struct fanin_vector_union *all, const struct fanin_vector *sparse);

/*
 * Makes room for receiving a vector in a form other than FANIN_VECTOR_NOTHING. n * element_bytes
 * must fit into the address space, nnz is n at most. Returns as fanin_vector_union_begin does.
 */
int fanin_vector_union_room(struct fanin_vector_union *all, uint64_t n, uint64_t nnz,
			    enum fanin_vector_form form, uint8_t element_bytes);

/* Fills in the addresses of the parts, for sending and receiving. */
void fanin_vector_union_parts(const struct fanin_vector_union *all,
			      struct fanin_vector_parts *parts);

/*
 * True if received bytes are a vector: its indices ascend and are below n, or nnz bits are set, at
 * indices below n.
 */
bool fanin_vector_union_is_valid(const struct fanin_vector_union *all);

/*
 * Combines two vectors of the same n: lower op upper where both have a value, else the value that
 * is there. The result depends on the two vectors only, not on which of them is this rank's.
 *
 * lower: of the lower ranks; becomes the result. upper: freed. Returns FANIN_OK, or
 * FANIN_ERR_NO_MEMORY with both left to be freed.
 */
int fanin_vector_union_combine(struct fanin_vector_union *lower, struct fanin_vector_union *upper,
			       fanin_kernel_fn combine);

/*
 * Passes the result to the caller. Returns FANIN_OK, or FANIN_ERR_CAPACITY or FANIN_ERR_NO_MEMORY
 * with the request's error set.
 */
int fanin_vector_union_finish(const struct fanin_vector_union *all, struct fanin_vector *sparse);

/* Frees the memory that it owns. It is FANIN_VECTOR_NOTHING then. */
void fanin_vector_union_free(struct fanin_vector_union *all);

#endif
