/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pull (protocols/pull/README.md): RANKS ranks reduce PACKETS packets of each of OPERATIONS
 * operations in place; rank p owns packet p. Ranks 1 and 2 are at one switch, the others at another
 * one, and each has a table of one entry. With SCATTER results stay with their owners. README.md
 * says which step stands for which rule; run.sh gives the sizes, and sees to it that every MUTANT_
 * is caught.
 *
 * The network is the unbounded one of window.pml: what was sent once can be delivered at any time,
 * any number of times, or never; and to any switch, or to the owner, as if entries had been
 * bypassed. An entry is made or not for each PULL that comes, replaces another one or not, and
 * expires at any time. ASK may come to a rank whenever PULL may.
 * From every state everything in flight then vanishes and the network is perfect from then on:
 * owners ask for what they lack. Results reach all ranks by reliable multicast, which broadcast.pml
 * is about: at any time once they are made. Ready and end are barriers of the window protocol.
 */
#define AT(o, p) ((o) * PACKETS + (p))
#define OWN(r, p) ((r) * PACKETS + (p))
#define ALL_RANKS ((1 << RANKS) - 1)
#define SWITCHES 2
#define FREE 7

/* The ranks whose answers pass the switch on their way to the owner: all but those on the owner's
 * side of it. */
#if RANKS == 3
#define expected(at, p) ((at) == 0 -> ((p) == 0 -> 6 : 1) : ((p) == 0 -> 6 : 5))
#else
#define expected(at, p) ((at) == 0 -> ((p) == 0 -> 14 : 9) : ((p) == 0 -> 6 : 13))
#endif
/* One rank needs no entry. */
#define is_wanted(at, p) ((expected(at, p) & (expected(at, p) - 1)) != 0)

typedef Entry {
	unsigned op : 3; /* operation, or FREE */
	unsigned packet : 1;
	unsigned set : 4;
	unsigned spoiled : 1; /* data of a rank is in it twice, or is not this operation's */
};
Entry entry[SWITCHES];

/* In flight: PULL or ASK, and answers and sums by set. */
bit pulled[OPERATIONS * PACKETS];
short answers[OPERATIONS * PACKETS];
bit spoiled_answers[OPERATIONS * PACKETS];

/* Owners, in the operation that they are in: the ranks that their sum has, without themselves. */
byte sum[PACKETS];
bit spoiled_sum[PACKETS];
bit made[OPERATIONS * PACKETS];

/* Ranks. A buffer has the rank's data, the result, or, once the rank has left, something else. */
bit posted[RANKS];
byte operation[RANKS]; /* that the rank is in, or posts next */
bit has[RANKS * PACKETS];
bit contributed[RANKS]; /* to the end of its operation */
byte n_posted[OPERATIONS];
byte n_ended[OPERATIONS];
bit recovering;

/* What a step is about. */
byte event, r, o, p, a, n;

/* Set in the step that reads them. */
hidden byte i, j, s, spoilt, moved, y;

/* The properties, so that the verifier tells which one fails. */
hidden byte sum_is_exact, timers_help, table_is_empty;

#define is_in(bitmap, member) ((bitmap) >> (member) & 1)
#define contains(set, part) (((set) & (part)) == (part))

#ifdef MUTANT_NUMBERLESS
#define is_of(number, other) true
#else
#define is_of(number, other) ((number) == (other))
#endif

/* ---- owners */

/* The owner of packet p makes the result, in the place of its data. */
inline make_result()
{
	sum_is_exact = !spoiled_sum[p] && (sum[p] | 1 << p) == ALL_RANKS;
	assert(sum_is_exact);
	made[AT(operation[p], p)] = 1;
	has[OWN(p, p)] = 1;
	sum[p] = 0;
	moved = 1
}

/* Data of the ranks s of operation o comes to the owner of packet p. */
inline owner_receive()
{
	if
	:: posted[p] && is_of(operation[p], o) && !has[OWN(p, p)] && pulled[AT(operation[p], p)] ->
		if
		:: operation[p] != o -> spoilt = 1
		:: else
		fi;
		if
		:: (sum[p] & s) == 0 ->
			sum[p] = sum[p] | s;
			spoiled_sum[p] = spoiled_sum[p] || spoilt
#ifdef MUTANT_OVERLAP_COMBINED
		:: (sum[p] & s) != 0 && !contains(sum[p], s) ->
			sum[p] = sum[p] | s;
			spoiled_sum[p] = 1
#else
		/* As the set with more ranks is the better one. Of three others, two are
		 * more than one. */
		:: (sum[p] & s) != 0 && !contains(sum[p], s) &&
			(is_in(s, 0) + is_in(s, 1) + is_in(s, 2) + is_in(s, 3) >
			 is_in(sum[p], 0) + is_in(sum[p], 1) + is_in(sum[p], 2) +
			 is_in(sum[p], 3)) ->
			sum[p] = s;
			spoiled_sum[p] = spoilt
#endif
		:: else
		fi;
#ifdef MUTANT_NOT_COMPLETE
		if
		:: true -> make_result()
		fi
#else
		if
		:: (sum[p] | 1 << p) == ALL_RANKS -> make_result()
		:: else
		fi
#endif
	:: else
	fi
}

/* ---- switches */

inline put(number, index)
{
	answers[AT(number, index)] = answers[AT(number, index)] | 1 << s;
	if
	:: spoilt -> spoiled_answers[AT(number, index)] = 1
	:: else
	fi
}

inline free_entry(at)
{
	entry[at].op = FREE;
	entry[at].packet = 0;
	entry[at].set = 0;
	entry[at].spoiled = 0
}

/* The sum of the entry goes on, if it has anything. */
inline go_on(at)
{
	if
	:: entry[at].set != 0 ->
		s = entry[at].set;
		spoilt = entry[at].spoiled;
#ifdef MUTANT_EXPIRED_OF_ANY_RUN
		/* As if each operation were the first one of its run. */
		if
		:: operation[entry[at].packet] < OPERATIONS &&
			operation[entry[at].packet] != entry[at].op ->
			spoilt = 1;
			put(operation[entry[at].packet], entry[at].packet)
		:: else -> put(entry[at].op, entry[at].packet)
		fi
#else
		put(entry[at].op, entry[at].packet)
#endif
	:: else
	fi;
	free_entry(at)
}

/* PULL comes to the switch n, which has room for an entry. */
inline pull_at_switch()
{
	if
	:: !is_wanted(n, p) || (entry[n].op == o && entry[n].packet == p) -> skip
	:: else ->
		if
		:: entry[n].op != FREE -> go_on(n)
		:: else
		fi;
		entry[n].op = o;
		entry[n].packet = p
	fi
}

/* Data of the ranks s comes to the switch n. Without an entry for it, it goes on as it is, and
 * stays in flight. */
inline switch_receive()
{
	if
	:: entry[n].op != FREE && is_of(entry[n].op, o) && entry[n].packet == p &&
		contains(expected(n, p), s) ->
		if
		:: entry[n].op != o -> spoilt = 1
		:: else
		fi;
		if
		:: (entry[n].set & s) == 0 ->
			entry[n].set = entry[n].set | s;
			entry[n].spoiled = entry[n].spoiled || spoilt
		:: contains(s, entry[n].set) && !contains(entry[n].set, s) && entry[n].set != 0 ->
			entry[n].set = s;
			entry[n].spoiled = spoilt
#ifdef MUTANT_SWITCH_COUNTS
		:: (entry[n].set & s) != 0 && contains(entry[n].set, s) -> entry[n].spoiled = 1
#endif
		:: else
		fi;
		if
		:: entry[n].set == expected(n, p) -> go_on(n)
		:: else
		fi
	:: else
	fi
}

/* ---- ranks */

#ifdef MUTANT_ANSWERS_ANY
#define answers_to(x) ((x) != p)
#else
#define answers_to(x) ((x) != p && posted[x] && operation[x] == o && !has[OWN(x, p)])
#endif

/* The rank r gets PULL, or ASK. */
inline answer()
{
	s = 1 << r;
	spoilt = !(posted[r] && operation[r] == o && !has[OWN(r, p)]);
	if
	:: recovering -> owner_receive()
	:: else -> put(o, p)
	fi
}

inline post()
{
	posted[r] = 1;
	n_posted[operation[r]]++;
	i = 0;
	do
	:: i < PACKETS -> has[OWN(r, i)] = 0; i++
	:: else -> break
	od;
	if
	:: r < PACKETS -> sum[r] = 0; spoiled_sum[r] = 0
	:: else
	fi
}

inline leave()
{
	i = 0;
	do
	:: i < PACKETS -> has[OWN(r, i)] = 0; i++
	:: else -> break
	od;
	operation[r]++;
	posted[r] = 0;
	contributed[r] = 0
}

#ifdef SCATTER
#define HAS_ALL(x) ((x) >= PACKETS || has[OWN(x, (x) % PACKETS)])
#else
#define HAS_ALL(x) (has[OWN(x, 0)] && has[OWN(x, PACKETS - 1)])
#endif
#define MAY_POST(x) (operation[x] < OPERATIONS && !posted[x])
#define MAY_CONTRIBUTE(x) (posted[x] && HAS_ALL(x) && n_posted[operation[x]] == RANKS && \
	!contributed[x])
#ifdef MUTANT_UNFAITHFUL
#define MAY_LEAVE(x) (posted[x] && contributed[x])
#else
#define MAY_LEAVE(x) (posted[x] && contributed[x] && n_ended[operation[x]] == RANKS)
#endif
#ifdef MUTANT_HASTY
#define MAY_PULL(x) ((x) < PACKETS && posted[x] && !pulled[AT(operation[x], x)])
#else
#define MAY_PULL(x) ((x) < PACKETS && posted[x] && n_posted[operation[x]] == RANKS && \
	!pulled[AT(operation[x], x)])
#endif
#ifdef SCATTER
#define MAY_TAKE(x) false
#else
#define MAY_TAKE(x) (posted[x] && operation[x] == o && made[AT(o, p)] && !has[OWN(x, p)])
#endif

/* The rank r does what it may. */
inline step()
{
	if
	:: MAY_POST(r) -> post(); moved = 1
	:: MAY_PULL(r) -> pulled[AT(operation[r], r)] = 1; moved = 1
	:: MAY_CONTRIBUTE(r) -> contributed[r] = 1; n_ended[operation[r]]++; moved = 1
	:: MAY_LEAVE(r) -> leave(); moved = 1
	:: else
	fi
}

/* Nothing is lost any more. What a rank has of an operation's results is fetched. */
inline recover()
{
	recovering = 1;
	for (j : 0 .. OPERATIONS * PACKETS - 1) {
		answers[j] = 0
	}
	do
	:: true ->
		moved = 0;
		for (r : 0 .. RANKS - 1) {
			step()
		}
		for (j : 0 .. PACKETS * RANKS - 1) {
			p = j % PACKETS;
			r = j / PACKETS;
			if
			:: operation[r] < OPERATIONS ->
				o = operation[r];
				if
				:: MAY_TAKE(r) -> has[OWN(r, p)] = 1; moved = 1
				:: else
				fi
			:: else
			fi
		}
		/* Owners ask the ranks that they lack. */
#ifndef MUTANT_NO_ASK
		for (j : 0 .. PACKETS * RANKS - 1) {
			p = j % PACKETS;
			r = j / PACKETS;
			o = operation[p];
			if
			:: o < OPERATIONS && posted[p] && pulled[AT(o, p)] && !has[OWN(p, p)] &&
				!is_in(sum[p], r) && answers_to(r) ->
				moved = 1;
				answer()
			:: else
			fi
		}
#endif
		y = 0;
		for (j : 0 .. RANKS - 1) {
			y = y + (operation[j] == OPERATIONS)
		}
		if
		:: y == RANKS -> break
		:: else ->
			timers_help = moved;
			assert(timers_help)
		fi
	od;
	for (j : 0 .. SWITCHES - 1) {
		go_on(j);
		table_is_empty = entry[j].op == FREE;
		assert(table_is_empty)
	}
}

#define STEP 1
#define PULL 2
#define ANSWER 3
#define TO_SWITCH 4
#define TO_OWNER 5
#define EXPIRE 6
#define TAKE 7

inline pick(variable, end)
{
	variable = 0;
	do
	:: variable + 1 < end -> variable++
	:: break
	od
}

init
{
	d_step {
		for (j : 0 .. SWITCHES - 1) {
			free_entry(j)
		}
		j = 0
	}
	do
	:: atomic {
		if
		:: event = STEP; pick(r, RANKS)
		:: event = EXPIRE; pick(n, SWITCHES)
		:: pick(o, OPERATIONS);
			pick(p, PACKETS);
			if
			:: event = PULL; pick(n, SWITCHES)
			:: event = ANSWER; pick(r, RANKS)
			:: event = TO_SWITCH; pick(a, ALL_RANKS); pick(n, SWITCHES)
			:: event = TO_OWNER; pick(a, ALL_RANKS)
			:: event = TAKE; pick(r, RANKS)
			fi
		fi;
		d_step {
			s = a;
			spoilt = spoiled_answers[AT(o, p)];
			if
			:: event == STEP -> step()
			:: event == EXPIRE -> go_on(n)
			:: event == PULL && pulled[AT(o, p)] -> pull_at_switch()
			:: event == ANSWER && pulled[AT(o, p)] && answers_to(r) -> answer()
			:: event == TO_SWITCH && is_in(answers[AT(o, p)], s) -> switch_receive()
			:: event == TO_OWNER && is_in(answers[AT(o, p)], s) -> owner_receive()
			:: event == TAKE && MAY_TAKE(r) -> has[OWN(r, p)] = 1
			:: else
			fi;
			event = 0; r = 0; o = 0; p = 0; a = 0; n = 0
		}
	   }
	:: break
	od;
	skip;
	d_step { recover(); skip }
}
