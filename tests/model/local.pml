/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks of one host (docs/local.md): RANKS ranks, of which rank 0 leads, take CHUNKS chunks through
 * memory that holds DEPTH of them. README.md says which step stands for which rule; run.sh gives
 * the sizes, and sees to it that every MUTANT_ is caught.
 *
 * Bits for each chunk say what it is. PLAIN: nothing is combined, and ranks write their data to the
 * result. SMALL: the leader combines all of it. EMPTY: there is nothing to combine, as in a
 * barrier.
 *
 * A rank that can move may do so at any time. One that can't may sleep: it says what it waits for,
 * looks again, and sleeps until it is woken. The network is done with a posted chunk at any time,
 * which wakes the leader. There is no limit on a sleep: a wake-up that is lost is found.
 */
#define FILLED 1
#define REDUCED 2
#define TAKEN 4
#define READY 8

#define AWAKE 0
#define TELLS 1   /* has stored a counter, and is to look whether the leader waits for it */
#define TIRED 2   /* has found what it waits for, and is to say so */
#define DROWSY 3  /* has said it, and is to look again */
#define ASLEEP 4

#define is_plain(c) (PLAIN >> (c) & 1)
#define is_small(c) (SMALL >> (c) & 1)
#define is_empty(c) (EMPTY >> (c) & 1)
#define combines_here(r, c) (!is_plain(c) && !is_empty(c) && (!is_small(c) || (r) == 0))

/* Counters of each rank, which are its cursors, too: filled at 0, reduced and taken behind it. */
#define counter(step, r) count[((step) / 2) * RANKS + (r)]
byte count[3 * RANKS];
byte posted, network_done, ready;
byte seen[3]; /* by the leader: the least of each counter */
#define seen_of(step) seen[(step) / 2]

byte state[RANKS];
byte told[RANKS];  /* the counter that was stored, or what the rank waits for */
byte waits[RANKS]; /* in memory */

/* What is in memory: chunk + 1. */
byte in[RANKS * DEPTH];
byte out[DEPTH];
byte parts[DEPTH]; /* ranks that have written their part of the result */

hidden byte r, i, least, need, steps;
hidden byte can;
bit right_data = 1, everybody_ends = 1, place_is_free = 1;

inline find_least(which)
{
	least = counter(which, 0);
	i = 1;
	do
	:: i < RANKS ->
		if
		:: counter(which, i) < least -> least = counter(which, i)
		:: else
		fi;
		i++
	:: else -> break
	od
}

inline wake(who)
{
	waits[who] = 0;
	if
	:: state[who] == ASLEEP -> state[who] = AWAKE
	:: else /* what was sent ends its sleep at once */
	fi
}

/* The leader wakes those that wait for a step. */
inline wake_waiting(which)
{
	i = 1;
	do
	:: i < RANKS ->
		if
		:: waits[i] & which -> wake(i)
		:: else
		fi;
		i++
	:: else -> break
	od
}

/* Sets can to whether all ranks have done `chunks` in a step, as rank r sees it. */
inline all_have(which, chunks)
{
	if
	:: r == 0 && seen_of(which) >= (chunks) -> can = 1
	:: else ->
		find_least(which);
		can = least >= (chunks);
		if
		:: r == 0 && least > seen_of(which) ->
			seen_of(which) = least;
#ifndef MUTANT_LEADER_MUTE
			wake_waiting(which)
#endif
		:: else
		fi
	fi
}

inline is_free(which, chunk)
{
	if
	:: (chunk) < DEPTH -> can = 1
	:: else -> all_have(which, (chunk) - DEPTH + 1)
	fi
}

/* Each sets can, and need to the step that is waited for, for rank r's next chunk there. */

inline fill_looks()
{
	need = (is_plain(counter(FILLED, r)) -> TAKEN : REDUCED);
#ifdef MUTANT_FILLS_EARLY
	can = 1
#else
	is_free(need, counter(FILLED, r))
#endif
}

inline reduce_looks()
{
	need = FILLED;
	can = 1;
	if
	:: r == 0 || combines_here(r, counter(REDUCED, r)) ->
		all_have(FILLED, counter(REDUCED, r) + 1)
	:: else
	fi;
#ifndef MUTANT_REDUCES_EARLY
	if
	:: can && combines_here(r, counter(REDUCED, r)) ->
		need = TAKEN;
		is_free(TAKEN, counter(REDUCED, r))
	:: else
	fi
#endif
}

inline post_looks()
{
	need = REDUCED;
#ifdef MUTANT_POSTS_EARLY
	can = 1
#else
	all_have(REDUCED, posted + 1)
#endif
}

inline take_looks()
{
	need = READY;
	can = ready > counter(TAKEN, r)
}

#define may_fill (counter(FILLED, r) < CHUNKS)
#define may_reduce (counter(REDUCED, r) < counter(FILLED, r))
#ifdef MUTANT_POSTS_ON
#define may_post (r == 0 && posted < counter(REDUCED, 0))
#else
/* There is a request of hosts for each place. */
#define may_post (r == 0 && posted < counter(REDUCED, 0) && posted - ready < DEPTH)
#endif
#define may_finish (r == 0 && ready < network_done)
#define may_take (counter(TAKEN, r) < CHUNKS)

/* Stores a counter. The leader sees at once whether it was the last; the others look later. */
inline publish(which)
{
	counter(which, r)++;
	if
	:: r == 0 -> all_have(which, counter(which, 0))
	:: else ->
		state[r] = TELLS;
		told[r] = which
	fi
}

inline begin_result(c)
{
	if
	:: out[(c) % DEPTH] != (c) + 1 ->
		out[(c) % DEPTH] = (c) + 1;
		parts[(c) % DEPTH] = 0
	:: else
	fi
}

inline fill()
{
	if
	:: is_plain(counter(FILLED, r)) ->
		begin_result(counter(FILLED, r));
		parts[counter(FILLED, r) % DEPTH]++
	:: else -> in[r * DEPTH + counter(FILLED, r) % DEPTH] = counter(FILLED, r) + 1
	fi;
	publish(FILLED)
}

inline reduce()
{
	if
	:: combines_here(r, counter(REDUCED, r)) ->
		i = 0;
		do
		:: i < RANKS ->
			right_data = right_data && in[i * DEPTH + counter(REDUCED, r) % DEPTH] ==
							    counter(REDUCED, r) + 1;
			i++
		:: else -> break
		od;
		assert(right_data);
		begin_result(counter(REDUCED, r));
		parts[counter(REDUCED, r) % DEPTH] =
			parts[counter(REDUCED, r) % DEPTH] +
			(is_small(counter(REDUCED, r)) -> RANKS : 1)
	:: else
	fi;
	publish(REDUCED)
}

inline take()
{
	right_data = is_empty(counter(TAKEN, r)) ||
		     (out[counter(TAKEN, r) % DEPTH] == counter(TAKEN, r) + 1 &&
		      parts[counter(TAKEN, r) % DEPTH] == RANKS);
	assert(right_data);
	publish(TAKEN)
}

/* Sets steps to the steps that rank r waits for, and can to whether it can move. */
inline look_at_all()
{
	steps = 0;
	can = may_finish;
	if
	:: !can && may_take -> take_looks(); steps = steps | need
	:: else
	fi;
	if
	:: !can && may_fill -> fill_looks(); steps = steps | need
	:: else
	fi;
	if
	:: !can && may_reduce -> reduce_looks(); steps = steps | need
	:: else
	fi;
	if
	:: !can && may_post -> post_looks(); steps = steps | need
	:: else
	fi
}

#define has_ended(x) (counter(TAKEN, x) == CHUNKS)
#define is_stuck(x) (state[x] == ASLEEP || has_ended(x))

inline choose_rank()
{
	r = 0;
	do
	:: r < RANKS - 1 -> r++
	:: break
	od
}

active proctype host()
{
	do
	:: atomic {
		posted > network_done ->
		network_done++;
		if
		:: state[0] == ASLEEP -> waits[0] = 0; state[0] = AWAKE
		:: else
		fi
	}
	:: atomic {
		choose_rank();
		if
		:: state[r] == AWAKE && !has_ended(r) ->
			if
			:: may_finish ->
				ready++;
				wake_waiting(READY)
			:: may_take -> take_looks();
				if
				:: can -> take()
				:: else
				fi
			:: may_fill -> fill_looks();
				if
				:: can -> fill()
				:: else
				fi
			:: may_reduce -> reduce_looks();
				if
				:: can -> reduce()
				:: else
				fi
			:: may_post -> post_looks();
				if
				:: can ->
					place_is_free = posted - ready < DEPTH;
					assert(place_is_free);
					posted++
				:: else
				fi
			:: look_at_all();
				if
				:: !can -> told[r] = steps; state[r] = TIRED
				:: else
				fi
			fi
		:: state[r] == TELLS ->
			state[r] = AWAKE;
#ifdef MUTANT_LAST_SAYS_NOTHING
			if
			:: 0
#else
			find_least(told[r]);
			if
			:: (waits[0] & told[r]) && least >= counter(told[r], r) -> wake(0)
#endif
			:: else
			fi
		:: state[r] == TIRED ->
			waits[r] = told[r];
#ifdef MUTANT_SLEEPS_BLIND
			state[r] = ASLEEP
#else
			state[r] = DROWSY
#endif
		:: state[r] == DROWSY ->
			look_at_all();
			if
			/* Whoever has cleared what it waits for has sent something, too. */
			:: can || waits[r] == 0 -> state[r] = AWAKE; waits[r] = 0
#ifndef MUTANT_SAYS_ONCE
			:: !can && waits[r] != 0 && steps != told[r] ->
				told[r] = steps;
				state[r] = TIRED
#endif
			:: else -> state[r] = ASLEEP
			fi
		:: else
		fi
	}
	:: atomic {
		posted == network_done && is_stuck(0) && is_stuck(1) && is_stuck(RANKS - 1) ->
		everybody_ends = has_ended(0) && has_ended(1) && has_ended(RANKS - 1);
		assert(everybody_ends);
		break
	}
	od
}
