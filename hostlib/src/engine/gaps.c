/* SPDX-License-Identifier: BSD-3-Clause */
/* Missing packets: see gaps.h. */
#include "gaps.h"

#include <string.h>

#include "times.h"

#define WAIT_MAX_NS UINT64_C(100000000)

void
fanin_question_clear(struct fanin_question *question)
{
	memset(question->words, 0, fanin_question_len(question));
	question->first = FANIN_QUESTION_ANYWHERE;
	question->n = 0;
	question->n_words = 0;
}

bool
fanin_question_add(struct fanin_question *question, uint32_t packet)
{
	const uint32_t first = question->first == FANIN_QUESTION_ANYWHERE ? packet
									  : question->first;
	const uint32_t i = packet - first;

	if (question->left == 0 || i >= question->span)
		return false;
	question->first = first;
	fanin_set_bit(question->words, i);
	if (question->n_words < i / 64 + 1)
		question->n_words = i / 64 + 1;
	question->n++;
	question->left--;
	return true;
}

uint64_t
fanin_question_wait(uint64_t wait_ns, uint64_t answer_ns)
{
	return wait_ns == 0 ? answer_ns : fanin_doubled(wait_ns, WAIT_MAX_NS);
}

bool
fanin_gaps_take(struct fanin_gaps *gaps, uint32_t packet)
{
	const uint32_t place = fanin_gaps_place(gaps, packet);
	const bool asked = fanin_bit(gaps->asked, place);

	fanin_set_bit(gaps->have, place);
	fanin_clear_bit(gaps->asked, place);
	for (; gaps->whole < gaps->end && fanin_gaps_has(gaps, gaps->whole); gaps->whole++) {
		if (gaps->ring != 0)
			fanin_clear_bit(gaps->have, fanin_gaps_place(gaps, gaps->whole));
	}
	return asked;
}

uint32_t
fanin_gaps_ask(const struct fanin_gaps *gaps, uint32_t from, uint32_t end, bool again,
	       struct fanin_question *question)
{
	uint32_t packet = from < gaps->whole ? gaps->whole : from;

	for (; packet < end && fanin_gaps_fits(gaps, packet); packet++) {
		if (!fanin_gaps_has(gaps, packet) &&
		    (again || !fanin_bit(gaps->asked, fanin_gaps_place(gaps, packet))) &&
		    !fanin_question_add(question, packet))
			break;
	}
	return packet;
}

uint32_t
fanin_gaps_asked(struct fanin_gaps *gaps, const struct fanin_question *question, uint32_t end)
{
	uint32_t packet = question->first < gaps->whole ? gaps->whole : question->first;
	uint32_t n = 0;

	for (; packet < end && packet - question->first < question->n_words * 64; packet++) {
		const uint32_t place = fanin_gaps_place(gaps, packet);

		if (!fanin_bit(question->words, packet - question->first) ||
		    fanin_bit(gaps->asked, place))
			continue;
		fanin_set_bit(gaps->asked, place);
		n++;
	}
	return n;
}

void
fanin_patience_was_late(struct fanin_patience *patience)
{
	patience->ns = fanin_doubled(patience->ns, patience->max_ns);
}

void
fanin_patience_was_lost(struct fanin_patience *patience)
{
	patience->ns = fanin_later(patience->ns - patience->ns / 8, patience->min_ns);
}
