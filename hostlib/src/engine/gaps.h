/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Finds which packets of a sender are missing, and decides when to ask for which; learns from
 * reordering. The sender numbers its packets in the order in which it sends them. They come in any
 * order, and some never come. Pure: takes times and packet numbers, makes questions. One thread at
 * a time.
 *
 * Overtaken packets. A packet is overtaken once a later one has come as the sender sent it
 * (`passed`). A packet that came only because it was asked for overtakes nothing. Checks are at
 * least a reordering interval R apart. Each check takes the packets that are missing before
 * `checked` for lost, and moves `checked` up to `passed`.
 *
 * Why no packet is asked for too early. A packet that a check asks for was overtaken before the
 * check before it, R or more ago. So a packet that comes less than R behind the first one that
 * overtook it is never asked for. R is learned: a packet that was asked for and then comes as it
 * was sent has proved R too short, and doubles it; a packet that had to be sent again makes R an
 * eighth shorter, within bounds. Reordering of a constant degree below the upper bound costs a few
 * needless questions, and then none as long as nothing is lost.
 *
 * Why each lost packet is asked for. From the second check after it was overtaken, a packet is
 * before `checked`, which never falls. A question has the first missing packets, as many as it has
 * room for. It repeats packets that were asked for before if their time to be repeated has come.
 * Missing packets before a packet are asked for, too, and so arrive, until the packet is among the
 * first ones. No packet overtakes the last ones that were sent: the owner asks for them after a
 * silence, by the same question, up to any packet that may have been sent.
 *
 * Intervals: the first repetition of a question follows after the time that an answer
 * takes; each further interval is twice as long as the one before, up to 100 ms. The owner sets the
 * interval back to 0 when something comes.
 */
#ifndef FANIN_HOSTLIB_GAPS_H
#define FANIN_HOSTLIB_GAPS_H

#include <stdbool.h>
#include <stdint.h>

/* Maximum of packets that a question covers. */
#define FANIN_QUESTION_SPAN 2048u
/* `first` of an empty question: the first packet that is added sets it. */
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

/* Empties a question, to continue it at another packet; what is left of it stays. */
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
 * Returns the time from a question to its repetition. wait_ns: the time before; 0: something has
 * come since. answer_ns: the time that an answer takes.
 */
uint64_t fanin_question_wait(uint64_t wait_ns, uint64_t answer_ns);

/* ------------------------------------------------------------------ what is missing */

/*
 * One sender's packets. `whole`, `passed` and `checked` begin at its first packet. Senders with
 * different packet numbers may share bitmaps that are not rings.
 */
struct fanin_gaps {
	uint64_t *have;  /* bitmap of the packets that are there, by number; the owner's, like the
			    next one */
	uint64_t *asked; /* bitmap of the missing ones that were asked for */
	uint32_t ring;  /* packets in a bitmap that is a ring, a power of two; 0: the bitmap has all
			 */
	uint32_t end;   /* all packets have smaller numbers */
	uint32_t whole; /* all packets before it are there, and maybe later ones */
	uint32_t passed;   /* missing packets before it were overtaken */
	uint32_t checked;  /* `passed` at the last check: missing packets before it are lost */
	uint64_t check_ns; /* when to check; 0: at once */
};

/* Returns a packet's place in the bitmaps. A ring has the packets up to `ring` behind `whole`. */
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

/* True if a packet, which fits, has come. */
static inline bool
fanin_gaps_has(const struct fanin_gaps *gaps, uint32_t packet)
{
	return packet < gaps->whole || fanin_bit(gaps->have, fanin_gaps_place(gaps, packet));
}

/* Records that the sender has sent all packets before `end`: the missing ones are overtaken. */
static inline void
fanin_gaps_pass(struct fanin_gaps *gaps, uint32_t end)
{
	if (end > gaps->passed)
		gaps->passed = end;
}

/* Adds a packet that was missing, and fits. Returns true if it was asked for. */
bool fanin_gaps_take(struct fanin_gaps *gaps, uint32_t packet);

/*
 * Adds the missing packets of `from` to `end` - 1 to a question. again: also those that were asked
 * for before. Returns the first packet that was not looked at: `end`, or one that does not fit the
 * question or the ring.
 */
uint32_t fanin_gaps_ask(const struct fanin_gaps *gaps, uint32_t from, uint32_t end, bool again,
			struct fanin_question *question);

/*
 * Marks the question's packets that are this sender's and before `end` as asked for, after the
 * question was sent. Returns how many were not asked for before.
 */
uint32_t fanin_gaps_asked(struct fanin_gaps *gaps, const struct fanin_question *question,
			  uint32_t end);

/* True if it is time for a check, which asks for the packets missing before `checked`. */
static inline bool
fanin_gaps_is_due(const struct fanin_gaps *gaps, uint64_t now_ns)
{
	return now_ns >= gaps->check_ns;
}

/* Ends a check. reorder_ns: time until the next one; 0: no overtaken packet comes any more. */
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

/* Initial patience for packets that overtake each other. */
#define FANIN_PATIENCE_REORDERING                                                                  \
	((struct fanin_patience){ .ns = 2000000, .min_ns = 1000000, .max_ns = 50000000 })

/* A packet that was asked for has come as it was sent first: it was late. Doubles the patience. */
void fanin_patience_was_late(struct fanin_patience *patience);

/*
 * A packet that was asked for has come because it was sent again: it was lost. Shortens the
 * patience.
 */
void fanin_patience_was_lost(struct fanin_patience *patience);

#endif
