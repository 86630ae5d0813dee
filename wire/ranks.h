/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sets of a job's ranks: words of 64 bits; the lowest bit of the first word is rank 0. On the wire
 * a set has as many words as the job's ranks need, little-endian like all fields. Pure functions on
 * the caller's memory, for any thread.
 */
#ifndef FANIN_WIRE_RANKS_H
#define FANIN_WIRE_RANKS_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define FANIN_WIRE_MAX_RANKS 4096
#define FANIN_RANKS_WORD_BITS 64u
/*
 * Maximum ranks of jobs whose packets carry sets of ranks in one word, such as jobs with a
 * parameter server.
 */
#define FANIN_SERVER_RANKS_MAX 64
#define FANIN_RANKS_WORDS (FANIN_WIRE_MAX_RANKS / FANIN_RANKS_WORD_BITS)

/* A job's sets contain no ranks above the job's last one. */
struct fanin_ranks {
	uint64_t words[FANIN_RANKS_WORDS];
};

static_assert(FANIN_WIRE_MAX_RANKS % FANIN_RANKS_WORD_BITS == 0, "whole words");

/* Returns the words of a set on the wire. n_ranks: of the job, 1 to FANIN_WIRE_MAX_RANKS. */
static inline unsigned int
fanin_ranks_words(unsigned int n_ranks)
{
	return (n_ranks + FANIN_RANKS_WORD_BITS - 1) / FANIN_RANKS_WORD_BITS;
}

/* Returns the bytes of a set on the wire. */
static inline uint32_t
fanin_ranks_bytes(unsigned int n_ranks)
{
	return (uint32_t)(fanin_ranks_words(n_ranks) * sizeof(uint64_t));
}

/*
 * Returns one word of the set of all ranks of a job. n_ranks: of the job. word: index of the word.
 */
static inline uint64_t
fanin_ranks_all_word(unsigned int n_ranks, unsigned int word)
{
	const unsigned int first = word * FANIN_RANKS_WORD_BITS;

	if (n_ranks <= first)
		return 0;
	if (n_ranks - first >= FANIN_RANKS_WORD_BITS)
		return UINT64_MAX;
	return (UINT64_C(1) << (n_ranks - first)) - 1;
}

/* Returns the ranks from 0 to n_ranks - 1. */
static inline struct fanin_ranks
fanin_ranks_all(unsigned int n_ranks)
{
	struct fanin_ranks set;

	for (unsigned int i = 0; i < FANIN_RANKS_WORDS; i++)
		set.words[i] = fanin_ranks_all_word(n_ranks, i);
	return set;
}

/* rank: below FANIN_WIRE_MAX_RANKS, as for fanin_ranks_remove. */
static inline void
fanin_ranks_add(struct fanin_ranks *set, unsigned int rank)
{
	set->words[rank / FANIN_RANKS_WORD_BITS] |= UINT64_C(1) << rank % FANIN_RANKS_WORD_BITS;
}

static inline void
fanin_ranks_remove(struct fanin_ranks *set, unsigned int rank)
{
	set->words[rank / FANIN_RANKS_WORD_BITS] &= ~(UINT64_C(1) << rank % FANIN_RANKS_WORD_BITS);
}

/* rank: any number; returns false for FANIN_WIRE_MAX_RANKS and above. */
static inline bool
fanin_ranks_has(const struct fanin_ranks *set, uint64_t rank)
{
	return rank < FANIN_WIRE_MAX_RANKS &&
	       (set->words[rank / FANIN_RANKS_WORD_BITS] >> rank % FANIN_RANKS_WORD_BITS & 1) != 0;
}

static inline bool
fanin_ranks_is_empty(const struct fanin_ranks *set)
{
	uint64_t any = 0;

	for (unsigned int i = 0; i < FANIN_RANKS_WORDS; i++)
		any |= set->words[i];
	return any == 0;
}

/* Returns the number of ranks in a set. */
static inline unsigned int
fanin_ranks_count(const struct fanin_ranks *set)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < FANIN_RANKS_WORDS; i++)
		n += (unsigned int)__builtin_popcountll(set->words[i]);
	return n;
}

/* Returns the lowest rank of a set from `from` on; FANIN_WIRE_MAX_RANKS if there is none. */
static inline unsigned int
fanin_ranks_next(const struct fanin_ranks *set, unsigned int from)
{
	unsigned int i = from / FANIN_RANKS_WORD_BITS;
	uint64_t word;

	if (from >= FANIN_WIRE_MAX_RANKS)
		return FANIN_WIRE_MAX_RANKS;
	word = set->words[i] & UINT64_MAX << from % FANIN_RANKS_WORD_BITS;
	while (word == 0 && ++i < FANIN_RANKS_WORDS)
		word = set->words[i];
	return word == 0 ? FANIN_WIRE_MAX_RANKS
			 : i * FANIN_RANKS_WORD_BITS + (unsigned int)__builtin_ctzll(word);
}

/* Returns the lowest rank of a set; FANIN_WIRE_MAX_RANKS if it is empty. */
static inline unsigned int
fanin_ranks_lowest(const struct fanin_ranks *set)
{
	return fanin_ranks_next(set, 0);
}

/*
 * Loops over the ranks of a set, in ascending order. rank: an unsigned int variable of the caller.
 * set: the loop's body may remove the rank.
 */
#define FANIN_RANKS_EACH(rank, set)                                                                \
	for ((rank) = fanin_ranks_next((set), 0); (rank) < FANIN_WIRE_MAX_RANKS;                   \
	     (rank) = fanin_ranks_next((set), (rank) + 1))

/* Returns the set of one rank. */
static inline struct fanin_ranks
fanin_ranks_one(unsigned int rank)
{
	struct fanin_ranks set = { 0 };

	fanin_ranks_add(&set, rank);
	return set;
}

/* Returns the set of the ranks below 64 whose bits are set in a word. */
static inline struct fanin_ranks
fanin_ranks_of_word(uint64_t word)
{
	return (struct fanin_ranks){ .words = { word } };
}

/* Sets `into` to the union. */
static inline void
fanin_ranks_merge(struct fanin_ranks *into, const struct fanin_ranks *from)
{
	for (unsigned int i = 0; i < FANIN_RANKS_WORDS; i++)
		into->words[i] |= from->words[i];
}

static inline void
fanin_ranks_subtract(struct fanin_ranks *from, const struct fanin_ranks *what)
{
	for (unsigned int i = 0; i < FANIN_RANKS_WORDS; i++)
		from->words[i] &= ~what->words[i];
}

/* Sets `of` to the intersection. */
static inline void
fanin_ranks_keep(struct fanin_ranks *of, const struct fanin_ranks *with)
{
	for (unsigned int i = 0; i < FANIN_RANKS_WORDS; i++)
		of->words[i] &= with->words[i];
}

/* Returns true if a rank is in both sets. */
static inline bool
fanin_ranks_meet(const struct fanin_ranks *a, const struct fanin_ranks *b)
{
	uint64_t both = 0;

	for (unsigned int i = 0; i < FANIN_RANKS_WORDS; i++)
		both |= a->words[i] & b->words[i];
	return both != 0;
}

static inline bool
fanin_ranks_equal(const struct fanin_ranks *a, const struct fanin_ranks *b)
{
	return memcmp(a, b, sizeof(*a)) == 0;
}

/* Writes a set in wire format. bytes: fanin_ranks_bytes(n_ranks) bytes, any alignment. */
static inline void
fanin_ranks_write(void *bytes, const struct fanin_ranks *set, unsigned int n_ranks)
{
	memcpy(bytes, set->words, fanin_ranks_bytes(n_ranks));
}

/* Reads a set in wire format, without bits that are no rank of the job. */
static inline void
fanin_ranks_read(struct fanin_ranks *set, const void *bytes, unsigned int n_ranks)
{
	const unsigned int n_words = fanin_ranks_words(n_ranks);

	memset(set, 0, sizeof(*set));
	memcpy(set->words, bytes, n_words * sizeof(uint64_t));
	set->words[n_words - 1] &= fanin_ranks_all_word(n_ranks, n_words - 1);
}

#endif
