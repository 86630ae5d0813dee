/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which packets of a sender are missing, what to ask for, when, and what reordering has taught. The
 * sender numbers its packets in the order in which it sends them; they come in any order, some of
 * them never. Pure: times and packet numbers come in, questions come out. One thread at a time.
 *
 * Overtaken packets. A packet is overtaken once one behind it has come as the sender sent it
 * (`passed`). One that only came because it was asked for overtakes nothing. Checks are at least a
 * reordering interval R apart; each one takes what is missing before `checked` for lost, and moves
 * `checked` up to `passed`.
 *
 * Why no packet is asked for too early. What is asked for at a check was overtaken before the check
 * before it, R or more ago. So a packet that comes less than R behind the first one that overtook
 * it is never asked for. R is learned: each packet that was asked for and then comes as it was sent
 * has proved R too short and doubles it, and each one that had to be sent again makes it an eighth
 * shorter, within bounds. Reordering of a constant degree below the upper bound costs a few
 * needless questions, and then none as long as nothing is lost.
 *
 * Why each lost packet is asked for. From the second check after it was overtaken on it is before
 * `checked`, which never falls. A question has the first missing packets that it has room for,
 * those that were asked for before included if the time to repeat them has come; what is before
 * them comes in, as it is asked for, too, and then they are the first ones. What nothing overtakes,
 * as it is the last that was sent, is the owner's to ask for after a silence: up to any packet that
 * may have been sent, by the same question.
 *
 * How intervals grow. From a question to its repetition it takes the time that an answer needs;
 * each further repetition takes twice as long as the one before, up to 100 ms. The owner sets the
 * interval back to 0 as something comes.
 */
#ifndef FANIN_HOSTLIB_GAPS_H
#define FANIN_HOSTLIB_GAPS_H

#include <stdbool.h>
#include <stdint.h>

/* Packets that a question covers at most. */
#define FANIN_QUESTION_SPAN 2048u
/* As `first` of a question: the first packet that is added. */
#define FANIN_QUESTION_ANYWHERE UINT32_MAX

/* ------------------------------------------------------------------ bitmaps */

static inline bool
fanin_bit(const uint64_t *bitmap, uint32_t i)
{
	return (bitmap[i / 64] >> (i % 64) & 1) != 0;
}

static inline void
fanin_set_bit(uint64_t *bitmap, uint32_t i)
{
	bitmap[i / 64] |= UINT64_C(1) << (i % 64);
}

static inline void
fanin_clear_bit(uint64_t *bitmap, uint32_t i)
{
	bitmap[i / 64] &= ~(UINT64_C(1) << (i % 64));
}

/* ------------------------------------------------------------------ questions */

/* A request for packets: a bitmap of their numbers. */
struct fanin_question {
	uint32_t first; /* packet of the first bit, or FANIN_QUESTION_ANYWHERE */
	uint32_t span;  /* packets that it may cover, FANIN_QUESTION_SPAN at most */
	uint32_t left;  /* packets that may still be added */
	uint32_t n;     /* packets in it */
	uint32_t n_words;
	uint64_t words[FANIN_QUESTION_SPAN / 64];
};

/* Empties a question, to go on elsewhere with what is left. */
void fanin_question_clear(struct fanin_question *question);

/* Adds a packet that is not in it. Returns false if it does not fit. */
bool fanin_question_add(struct fanin_question *question, uint32_t packet);

/* Returns the length of its bitmap in bytes. */
static inline uint32_t
fanin_question_len(const struct fanin_question *question)
{
	return question->n_words * (uint32_t)sizeof(question->words[0]);
}

/*
 * Returns the time from a question to its repetition. wait_ns: the one before; 0: something has
 * come since. answer_ns: that an answer takes.
 */
uint64_t fanin_question_wait(uint64_t wait_ns, uint64_t answer_ns);

/* ------------------------------------------------------------------ what is missing */

/*
 * One sender's packets. Begin with `whole`, `passed` and `checked` at the first one. Senders whose
 * packets have different numbers may share bitmaps that are no rings.
 */
struct fanin_gaps {
	uint64_t *have;    /* bitmap by number; the owner's, as the next one */
	uint64_t *asked;   /* likewise, of what is missing and was asked for */
	uint32_t ring;     /* packets in a bitmap that is a ring, a power of two; 0: it has all */
	uint32_t end;      /* no packet has this number */
	uint32_t whole;    /* all before it are there; maybe more */
	uint32_t passed;   /* what is missing before it was overtaken */
	uint32_t checked;  /* `passed` at the last check: what is missing before it is lost */
	uint64_t check_ns; /* when to check; 0: at once */
};

/* Returns where the bitmaps have a packet: of a ring, those up to `ring` behind `whole`. */
static inline uint32_t
fanin_gaps_place(const struct fanin_gaps *gaps, uint32_t packet)
{
	return gaps->ring == 0 ? packet : packet & (gaps->ring - 1);
}

/* True if the bitmaps have room for a packet. */
static inline bool
fanin_gaps_fits(const struct fanin_gaps *gaps, uint32_t packet)
{
	return packet < gaps->end &&
	       (gaps->ring == 0 || packet < gaps->whole || packet - gaps->whole < gaps->ring);
}

/* True if a packet, which fits, is there. */
static inline bool
fanin_gaps_has(const struct fanin_gaps *gaps, uint32_t packet)
{
	return packet < gaps->whole || fanin_bit(gaps->have, fanin_gaps_place(gaps, packet));
}

/* The sender has sent all packets before `end`: those that are missing are overtaken. */
static inline void
fanin_gaps_pass(struct fanin_gaps *gaps, uint32_t end)
{
	if (end > gaps->passed)
		gaps->passed = end;
}

/* A packet is there that was missing, and fits. Returns whether it was asked for. */
bool fanin_gaps_take(struct fanin_gaps *gaps, uint32_t packet);

/*
 * Adds what is missing of the packets `from` to `end` - 1. again: also what was asked for. Returns
 * the first packet that was not looked at: `end`, or one that does not fit the question or the
 * ring.
 */
uint32_t fanin_gaps_ask(const struct fanin_gaps *gaps, uint32_t from, uint32_t end, bool again,
			struct fanin_question *question);

/*
 * The question was sent: notes those of its packets that are the sender's and before `end`. Returns
 * how many were not asked for before.
 */
uint32_t fanin_gaps_asked(struct fanin_gaps *gaps, const struct fanin_question *question,
			  uint32_t end);

/* True if it is time for a check: to ask for what is missing before `checked`. */
static inline bool
fanin_gaps_is_due(const struct fanin_gaps *gaps, uint64_t now_ns)
{
	return now_ns >= gaps->check_ns;
}

/* A check is done. reorder_ns: until the next one; 0: nothing that is overtaken comes any more. */
static inline void
fanin_gaps_checked(struct fanin_gaps *gaps, uint64_t now_ns, uint64_t reorder_ns)
{
	gaps->checked = gaps->passed;
	gaps->check_ns = now_ns + reorder_ns;
}

/* ------------------------------------------------------------------ what is learned */

/* How long a packet may be missing before it counts as lost. */
struct fanin_patience {
	uint64_t ns;
	uint64_t min_ns;
	uint64_t max_ns;
};

/* That of packets that overtake each other, at first. */
#define FANIN_PATIENCE_REORDERING                                                                  \
	((struct fanin_patience){ .ns = 2000000, .min_ns = 1000000, .max_ns = 50000000 })

/* A packet that was asked for has come as it was sent: it was late. */
void fanin_patience_was_late(struct fanin_patience *patience);

/* A packet that was asked for has come because of that: it was lost. */
void fanin_patience_was_lost(struct fanin_patience *patience);

#endif
