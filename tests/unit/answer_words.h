/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bodies of ANSWERs and JOIN_ACKs in jobs of up to 64 ranks, whose sets are a word each.
 */
#ifndef FANIN_TESTS_UNIT_ANSWER_WORDS_H
#define FANIN_TESTS_UNIT_ANSWER_WORDS_H

#include <stdint.h>

#include "wire/wire.h"

struct answer_words {
	struct fanin_answer_body body;
	uint64_t first; /* as in fanin_answer_encode_word */
	uint64_t second;
};

static_assert(sizeof(struct answer_words) == sizeof(struct fanin_answer_body) + 16,
	      "as on the wire");

struct join_ack_words {
	struct fanin_join_ack_body body;
	uint64_t joined;
} __attribute__((packed));

static inline struct answer_words
answer_words_make(uint64_t missing, uint64_t ended, uint64_t silent)
{
	struct answer_words answer = { 0 };

	fanin_answer_encode_word(missing, ended, silent, &answer.first, &answer.second);
	return answer;
}

static inline uint64_t
answer_missing(const struct answer_words *answer)
{
	return answer->first | answer->second;
}

static inline uint64_t
answer_ended(const struct answer_words *answer)
{
	return answer->first & answer->second;
}

static inline uint64_t
answer_silent(const struct answer_words *answer)
{
	return answer->second & ~answer->first;
}

#endif
