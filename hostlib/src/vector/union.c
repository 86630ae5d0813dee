/* SPDX-License-Identifier: BSD-3-Clause */
/* See union.h. */
#include "union.h"

#include <stdlib.h>

#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define ALIGNMENT 64

enum fanin_vector_form
fanin_vector_union_form(uint64_t n, uint64_t nnz, uint8_t element_bytes)
{
	const uint64_t list_bytes = nnz * (fanin_vector_union_index_bytes(n) + element_bytes);
	const uint64_t bits_bytes = fanin_vector_union_words(n) * sizeof(uint64_t);

	/* Written so that nothing overflows: n elements fit into the address space. */
	if (list_bytes < bits_bytes || list_bytes - bits_bytes <= n * element_bytes)
		return FANIN_VECTOR_INDICES;
	return nnz == n ? FANIN_VECTOR_FULL : FANIN_VECTOR_BITS;
}

/* Returns the size of the part before the values, which aligns them. */
static uint64_t
front_bytes(uint64_t bytes)
{
	return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

int
fanin_vector_union_room(struct fanin_vector_union *all, uint64_t n, uint64_t nnz,
			enum fanin_vector_form form, uint8_t element_bytes)
{
	const uint8_t index_bytes = fanin_vector_union_index_bytes(n);
	const bool is_list = form == FANIN_VECTOR_INDICES;
	const uint64_t front = front_bytes(
		is_list ? nnz * index_bytes : fanin_vector_union_words(n) * sizeof(uint64_t));
	const uint64_t behind = (is_list ? nnz : n) * element_bytes;
	uint8_t *memory;

	if (behind > SIZE_MAX - front - ALIGNMENT)
		return FANIN_ERR_NO_MEMORY;
	/*
	 * Values without their bit are sent, too, and must not reveal earlier contents of the
	 * memory.
	 */
	memory = is_list ? malloc(front + behind + 1) : calloc(1, front + behind + 1);
	if (memory == NULL)
		return FANIN_ERR_NO_MEMORY;
	*all = (struct fanin_vector_union){
		.n = n,
		.nnz = nnz,
		.memory = memory,
		.indices = is_list ? memory : NULL,
		.bits = is_list ? NULL : (uint64_t *)(void *)memory,
		.values = memory + front,
		.form = (uint8_t)form,
		.index_bytes = index_bytes,
		.element_bytes = element_bytes,
	};
	return FANIN_OK;
}

void
fanin_vector_union_free(struct fanin_vector_union *all)
{
	free(all->memory);
	*all = (struct fanin_vector_union){ 0 };
}

void
fanin_vector_union_parts(const struct fanin_vector_union *all, struct fanin_vector_parts *parts)
{
	*parts = (struct fanin_vector_parts){ { NULL, NULL }, { 0, 0 } };
	switch ((enum fanin_vector_form)all->form) {
	case FANIN_VECTOR_NOTHING:
		return;
	case FANIN_VECTOR_INDICES:
		parts->bytes[0] = all->indices;
		parts->len[0] = all->nnz * all->index_bytes;
		parts->len[1] = all->nnz * all->element_bytes;
		break;
	case FANIN_VECTOR_BITS:
		parts->bytes[0] = (uint8_t *)all->bits;
		parts->len[0] = fanin_vector_union_words(all->n) * sizeof(uint64_t);
		parts->len[1] = all->n * all->element_bytes;
		break;
	case FANIN_VECTOR_FULL:
		parts->len[1] = all->n * all->element_bytes;
		break;
	}
	parts->bytes[1] = all->values;
}

/* -------------------------------------------------------------- this rank's */

/*
 * Copies the values of a list to their places in the whole vector, and sets their bits unless bits
 * is NULL. With constant sizes it makes no calls, which would take longer than everything else.
 */
ALWAYS_INLINE void
values_scatter(uint8_t *all, uint64_t *bits, const uint8_t *indices, const uint8_t *values,
	       uint64_t nnz, const uint8_t index_bytes, const uint8_t element_bytes)
{
	for (uint64_t i = 0; i < nnz; i++) {
		const uint64_t index = fanin_vector_index(indices, index_bytes, i);

		if (bits != NULL)
			bits[index / 64] |= UINT64_C(1) << index % 64;
		memcpy(all + index * element_bytes, values + i * element_bytes, element_bytes);
	}
}

/* Calls values_scatter for sizes that are known only at run time. */
static void
values_scatter_any(uint8_t *all, uint64_t *bits, const uint8_t *indices, const uint8_t *values,
		   uint64_t nnz, uint8_t index_bytes, uint8_t element_bytes)
{
	if (index_bytes == 4 && element_bytes == 1)
		values_scatter(all, bits, indices, values, nnz, 4, 1);
	else if (index_bytes == 4 && element_bytes == 2)
		values_scatter(all, bits, indices, values, nnz, 4, 2);
	else if (index_bytes == 4 && element_bytes == 4)
		values_scatter(all, bits, indices, values, nnz, 4, 4);
	else if (index_bytes == 4 && element_bytes == 8)
		values_scatter(all, bits, indices, values, nnz, 4, 8);
	else
		values_scatter(all, bits, indices, values, nnz, index_bytes, element_bytes);
}

/* Copies a list into a vector with bits. */
static void
list_scatter(struct fanin_vector_union *to, const uint8_t *indices, uint8_t index_bytes,
	     const uint8_t *values, uint64_t nnz)
{
	values_scatter_any(to->values, to->bits, indices, values, nnz, index_bytes,
			   to->element_bytes);
}

int
fanin_vector_union_begin(struct fanin_vector_union *all, const struct fanin_vector *sparse)
{
	const enum fanin_vector_form form = fanin_vector_union_form(sparse->n, sparse->nnz,
								    sparse->element_bytes);
	int status;

	if (form == FANIN_VECTOR_INDICES &&
	    sparse->index_bytes == fanin_vector_union_index_bytes(sparse->n)) {
		/* A list that is not owned is only read. */
		*all = (struct fanin_vector_union){
			.n = sparse->n,
			.nnz = sparse->nnz,
			.indices = (uint8_t *)(uintptr_t)sparse->indices,
			.values = (uint8_t *)(uintptr_t)sparse->values,
			.form = FANIN_VECTOR_INDICES,
			.index_bytes = sparse->index_bytes,
			.element_bytes = sparse->element_bytes,
		};
		return FANIN_OK;
	}
	status = fanin_vector_union_room(all, sparse->n, sparse->nnz, form, sparse->element_bytes);
	if (status != FANIN_OK)
		return status;
	if (form != FANIN_VECTOR_INDICES) {
		list_scatter(all, sparse->indices, sparse->index_bytes, sparse->values,
			     sparse->nnz);
		return FANIN_OK;
	}
	for (uint64_t i = 0; i < sparse->nnz; i++)
		fanin_vector_index_set(all->indices, all->index_bytes, i,
				       fanin_vector_index(sparse->indices, sparse->index_bytes, i));
	if (sparse->nnz != 0)
		memcpy(all->values, sparse->values, sparse->nnz * sparse->element_bytes);
	return FANIN_OK;
}

/* ------------------------------------------------------------------ received */

ALWAYS_INLINE bool
indices_are_valid(const struct fanin_vector_union *all, const uint8_t index_bytes)
{
	uint64_t least = 0; /* minimum of the next index */

	for (uint64_t i = 0; i < all->nnz; i++) {
		const uint64_t index = fanin_vector_index(all->indices, index_bytes, i);

		if (index < least || index >= all->n)
			return false;
		least = index + 1;
	}
	return true;
}

bool
fanin_vector_union_is_valid(const struct fanin_vector_union *all)
{
	const uint64_t n_words = fanin_vector_union_words(all->n);
	uint64_t count = 0;

	if (all->form == FANIN_VECTOR_INDICES)
		return all->index_bytes == 4 ? indices_are_valid(all, 4)
					     : indices_are_valid(all, 8);
	if (all->form == FANIN_VECTOR_FULL)
		return all->nnz == all->n;
	for (uint64_t i = 0; i < n_words; i++)
		count += (uint64_t)__builtin_popcountll(all->bits[i]);
	return count == all->nnz &&
	       (all->n % 64 == 0 || all->bits[n_words - 1] >> all->n % 64 == 0);
}

/* ------------------------------------------------------------------- combining */

/* Combines two lists in a loop. With constant sizes its only calls are to the kernel. */
ALWAYS_INLINE uint64_t
lists_combine(const struct fanin_vector_union *out, const struct fanin_vector_union *lower,
	      const struct fanin_vector_union *upper, fanin_kernel_fn combine,
	      const uint8_t index_bytes, const uint8_t element_bytes)
{
	uint64_t n = 0;
	uint64_t i = 0;
	uint64_t j = 0;
	uint64_t left;

	while (i < lower->nnz && j < upper->nnz) {
		const uint64_t a = fanin_vector_index(lower->indices, index_bytes, i);
		const uint64_t b = fanin_vector_index(upper->indices, index_bytes, j);
		uint64_t run = 1;

		fanin_vector_index_set(out->indices, index_bytes, n, a < b ? a : b);
		if (a < b) {
			memcpy(out->values + n++ * element_bytes,
			       lower->values + i++ * element_bytes, element_bytes);
			continue;
		}
		if (b < a) {
			memcpy(out->values + n++ * element_bytes,
			       upper->values + j++ * element_bytes, element_bytes);
			continue;
		}
		while (i + run < lower->nnz && j + run < upper->nnz &&
		       fanin_vector_index(lower->indices, index_bytes, i + run) ==
			       fanin_vector_index(upper->indices, index_bytes, j + run))
			run++;
		memcpy(out->indices + n * index_bytes, lower->indices + i * index_bytes,
		       run * index_bytes);
		memcpy(out->values + n * element_bytes, lower->values + i * element_bytes,
		       run * element_bytes);
		combine(out->values + n * element_bytes, upper->values + j * element_bytes, run);
		n += run;
		i += run;
		j += run;
	}
	left = lower->nnz - i;
	if (left == 0) {
		lower = upper;
		left = upper->nnz - j;
		i = j;
	}
	if (left != 0) {
		memcpy(out->indices + n * index_bytes, lower->indices + i * index_bytes,
		       left * index_bytes);
		memcpy(out->values + n * element_bytes, lower->values + i * element_bytes,
		       left * element_bytes);
	}
	return n + left;
}

/* Calls lists_combine for sizes that are known only at run time. */
static uint64_t
lists_combine_any(const struct fanin_vector_union *out, const struct fanin_vector_union *lower,
		  const struct fanin_vector_union *upper, fanin_kernel_fn combine)
{
	if (out->index_bytes == 8)
		return lists_combine(out, lower, upper, combine, 8, out->element_bytes);
	switch (out->element_bytes) {
	case 1:
		return lists_combine(out, lower, upper, combine, 4, 1);
	case 2:
		return lists_combine(out, lower, upper, combine, 4, 2);
	case 4:
		return lists_combine(out, lower, upper, combine, 4, 4);
	default:
		return lists_combine(out, lower, upper, combine, 4, 8);
	}
}

/* Combines `run` elements that both vectors have, from an index on. */
static void
run_combine(const struct fanin_vector_union *lower, const struct fanin_vector_union *upper,
	    fanin_kernel_fn combine, uint64_t index, uint64_t run)
{
	const uint64_t at = index * lower->element_bytes;

	combine(lower->values + at, upper->values + at, run);
}

/* Combines the values of one word of indices, which are in both vectors, in one, or in none. */
static void
word_combine(const struct fanin_vector_union *lower, const struct fanin_vector_union *upper,
	     fanin_kernel_fn combine, uint64_t word)
{
	const uint64_t both = lower->bits[word] & upper->bits[word];

	for (uint64_t left = upper->bits[word] & ~both; left != 0; left &= left - 1) {
		const uint64_t at = (word * 64 + (uint64_t)__builtin_ctzll(left)) *
				    lower->element_bytes;

		memcpy(lower->values + at, upper->values + at, lower->element_bytes);
	}
	for (uint64_t left = both; left != 0;) {
		const unsigned int first = (unsigned int)__builtin_ctzll(left);
		/* Not all bits are set, so the inverse has one. */
		const unsigned int run = (unsigned int)__builtin_ctzll(~(left >> first));

		run_combine(lower, upper, combine, word * 64 + first, run);
		left &= ~(((UINT64_C(1) << run) - 1) << first);
	}
	lower->bits[word] |= upper->bits[word];
}

/* Combines two vectors with bits. Returns how many indices have a value. */
static uint64_t
bits_combine(const struct fanin_vector_union *lower, const struct fanin_vector_union *upper,
	     fanin_kernel_fn combine)
{
	const uint64_t n_words = fanin_vector_union_words(lower->n);
	uint64_t count = 0;

	for (uint64_t word = 0; word < n_words; word++) {
		uint64_t run = 0;

		while (word + run < n_words &&
		       (lower->bits[word + run] & upper->bits[word + run]) == UINT64_MAX)
			run++;
		if (run != 0) {
			run_combine(lower, upper, combine, word * 64, run * 64);
			count += run * 64;
			word += run - 1;
			continue;
		}
		word_combine(lower, upper, combine, word);
		count += (uint64_t)__builtin_popcountll(lower->bits[word]);
	}
	return count;
}

/* Gives a vector bits, if it has none. */
static int
bits_give(struct fanin_vector_union *all)
{
	struct fanin_vector_union with;
	int status;

	if (all->form == FANIN_VECTOR_FULL) {
		memset(all->bits, 0xff, all->n / 64 * sizeof(uint64_t));
		if (all->n % 64 != 0)
			all->bits[all->n / 64] = (UINT64_C(1) << all->n % 64) - 1;
	}
	if (all->form != FANIN_VECTOR_INDICES)
		return FANIN_OK;
	status = fanin_vector_union_room(&with, all->n, all->nnz, FANIN_VECTOR_BITS,
					 all->element_bytes);
	if (status != FANIN_OK)
		return status;
	list_scatter(&with, all->indices, all->index_bytes, all->values, all->nnz);
	fanin_vector_union_free(all);
	*all = with;
	return FANIN_OK;
}

static int
combine_lists(struct fanin_vector_union *lower, struct fanin_vector_union *upper,
	      fanin_kernel_fn combine)
{
	struct fanin_vector_union out;
	int status = fanin_vector_union_room(&out, lower->n, lower->nnz + upper->nnz,
					     FANIN_VECTOR_INDICES, lower->element_bytes);

	if (status != FANIN_OK)
		return status;
	out.nnz = lists_combine_any(&out, lower, upper, combine);
	fanin_vector_union_free(lower);
	fanin_vector_union_free(upper);
	*lower = out;
	if (fanin_vector_union_form(out.n, out.nnz, out.element_bytes) == FANIN_VECTOR_INDICES)
		return FANIN_OK;
	status = bits_give(lower);
	if (status == FANIN_OK && lower->nnz == lower->n)
		lower->form = FANIN_VECTOR_FULL;
	return status;
}

int
fanin_vector_union_combine(struct fanin_vector_union *lower, struct fanin_vector_union *upper,
			   fanin_kernel_fn combine)
{
	int status;

	if (lower->form == FANIN_VECTOR_INDICES && upper->form == FANIN_VECTOR_INDICES)
		return combine_lists(lower, upper, combine);
	status = bits_give(lower);
	if (status == FANIN_OK)
		status = bits_give(upper);
	if (status != FANIN_OK)
		return status;
	lower->nnz = bits_combine(lower, upper, combine);
	lower->form = lower->nnz == lower->n ? FANIN_VECTOR_FULL : FANIN_VECTOR_BITS;
	fanin_vector_union_free(upper);
	return FANIN_OK;
}

/* ---------------------------------------------------------------------- result */

/* Writes a result without indices, with zeros where it has no value. */
static void
dense_fill(const struct fanin_vector_union *all, uint8_t *dense)
{
	const uint32_t element_bytes = all->element_bytes;

	if (all->n == 0)
		return;
	if (all->form != FANIN_VECTOR_INDICES) {
		memcpy(dense, all->values, all->n * element_bytes);
		for (uint64_t i = 0; all->form == FANIN_VECTOR_BITS && i < all->n; i++) {
			/* Ignore bytes that another rank left at an index without a value. */
			if (all->bits[i / 64] == UINT64_MAX)
				i |= 63;
			else if ((all->bits[i / 64] >> i % 64 & 1) == 0)
				memset(dense + i * element_bytes, 0, element_bytes);
		}
		return;
	}
	memset(dense, 0, all->n * element_bytes);
	values_scatter_any(dense, NULL, all->indices, all->values, all->nnz, all->index_bytes,
			   all->element_bytes);
}

/* Writes indices and values, possibly over this rank's own. */
static void
list_fill(const struct fanin_vector_union *all, void *indices, uint8_t index_bytes, uint8_t *values)
{
	const uint32_t element_bytes = all->element_bytes;
	uint64_t at = 0;

	if (all->nnz == 0)
		return;
	if (all->form == FANIN_VECTOR_INDICES) {
		if (all->index_bytes == index_bytes)
			memmove(indices, all->indices, all->nnz * index_bytes);
		for (uint64_t i = 0; all->index_bytes != index_bytes && i < all->nnz; i++)
			fanin_vector_index_set(indices, index_bytes, i,
					       fanin_vector_index(all->indices, all->index_bytes,
								  i));
		memmove(values, all->values, all->nnz * element_bytes);
		return;
	}
	for (uint64_t i = 0; i < all->n; i++) {
		if (all->form == FANIN_VECTOR_BITS && (all->bits[i / 64] >> i % 64 & 1) == 0)
			continue;
		fanin_vector_index_set(indices, index_bytes, at, i);
		memcpy(values + at * element_bytes, all->values + i * element_bytes, element_bytes);
		at++;
	}
}

int
fanin_vector_union_finish(const struct fanin_vector_union *all, struct fanin_vector *sparse)
{
	struct fanin_sparse_result *result = sparse->result;
	int status;

	sparse->n_out = all->nnz;
	if (result->dense != NULL) {
		result->count = all->nnz;
		dense_fill(all, result->dense);
		return FANIN_OK;
	}
	status = fanin_vector_room(sparse);
	if (status == FANIN_OK)
		list_fill(all, result->indices, sparse->index_bytes, result->values);
	return status;
}
