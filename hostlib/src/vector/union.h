/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The whole sparse vector of some ranks, for allreduces among hosts (Renggli et al., "SparCML:
 * High-performance sparse communication for machine learning", section 5): a list of indices and
 * values until the vector itself is shorter, then that with a bit for each index. Two of them are
 * combined to the union of their indices. Pure but for the struct and its memory; one thread at a
 * time.
 */
#ifndef FANIN_HOSTLIB_VECTOR_UNION_H
#define FANIN_HOSTLIB_VECTOR_UNION_H

#include "hostlib/src/vector/vector.h"

/* On the wire, too. */
enum fanin_vector_form {
	FANIN_VECTOR_NOTHING, /* no vector */
	FANIN_VECTOR_INDICES, /* nnz ascending indices of index_bytes, then as many values */
	FANIN_VECTOR_BITS,    /* a bit for each index in words of 64, then n values; those without
				 their bit are 0 */
	FANIN_VECTOR_FULL,    /* n values: every index has one */
};

struct fanin_vector_union {
	uint64_t n;
	uint64_t nnz;
	void *memory;     /* owned; NULL: indices and values are the caller's, or there are none */
	uint8_t *indices; /* of a list; else NULL */
	uint64_t *bits;   /* of a vector with bits, also while all are set; else NULL */
	uint8_t *values;  /* at the indices of a list, or all */
	uint8_t form;     /* enum fanin_vector_form */
	uint8_t index_bytes;
	uint8_t element_bytes;
};

/* What a vector consists of in its form, one part after the other. */
struct fanin_vector_parts {
	uint8_t *bytes[2];
	uint64_t len[2]; /* may be 0 */
};

/* Returns the bytes of an index: 4 as long as all of a vector fit. */
static inline uint8_t
fanin_vector_union_index_bytes(uint64_t n)
{
	return n <= UINT64_C(1) << 32 ? 4 : 8;
}

/* Returns the words of bits for n indices. */
static inline uint64_t
fanin_vector_union_words(uint64_t n)
{
	return n / 64 + (n % 64 != 0);
}

/*
 * Returns the form in which a vector is shortest: a list, unless the values of all indices with a
 * bit for each take fewer bytes. That is SparCML's threshold, but for the bits.
 */
enum fanin_vector_form fanin_vector_union_form(uint64_t n, uint64_t nnz, uint8_t element_bytes);

/*
 * Makes the vector of this rank. What it brings is copied only where it has another form, and must
 * stay unchanged.
 *
 * sparse: checked. Returns FANIN_OK or FANIN_ERR_NO_MEMORY; then there is nothing to be freed.
 */
int fanin_vector_union_begin(struct fanin_vector_union *all, const struct fanin_vector *sparse);

/*
 * Makes room for a vector that is to be received in a form other than FANIN_VECTOR_NOTHING. n *
 * element_bytes must fit into an address, nnz is n at most. Returns likewise.
 */
int fanin_vector_union_room(struct fanin_vector_union *all, uint64_t n, uint64_t nnz,
			    enum fanin_vector_form form, uint8_t element_bytes);

/* Fills in where the parts lie, for sending and receiving. */
void fanin_vector_union_parts(const struct fanin_vector_union *all,
			      struct fanin_vector_parts *parts);

/*
 * Finds whether what was received is a vector: indices ascend and are below n, bits are as many as
 * nnz and of indices below n.
 */
bool fanin_vector_union_is_valid(const struct fanin_vector_union *all);

/*
 * Combines two vectors of the same n: lower op upper where both have a value, and what is there
 * elsewhere. The result depends on both only, not on which of them is this rank's.
 *
 * lower: of the lower ranks; becomes the result. upper: freed. Returns FANIN_OK, or
 * FANIN_ERR_NO_MEMORY with both left to be freed.
 */
int fanin_vector_union_combine(struct fanin_vector_union *lower, struct fanin_vector_union *upper,
			       fanin_kernel_fn combine);

/*
 * The caller gets the result. Returns FANIN_OK, or FANIN_ERR_CAPACITY or FANIN_ERR_NO_MEMORY with
 * the request's error set.
 */
int fanin_vector_union_finish(const struct fanin_vector_union *all, struct fanin_vector *sparse);

/* Frees what it owns. It is nothing then. */
void fanin_vector_union_free(struct fanin_vector_union *all);

#endif
