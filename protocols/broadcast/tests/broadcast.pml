/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reliable multicast (protocols/broadcast/README.md): rank 0 multicasts PACKETS packets of each of
 * OPERATIONS operations to RANKS - 1 others, which fetch what they lack from the rank to their
 * left. Data is the number of its operation, from 1 on; buffers are used for something else as soon
 * as a rank has left an operation. README.md says which step stands for which rule; run.sh gives
 * the sizes, and sees to it that every MUTANT_ is caught.
 *
 * What is in flight is a bit for each receiver, operation and packet, so that anything may
 * overtake anything. LOSSES of them vanish, DUPLICATES are delivered and stay, and PREMATURE
 * times a rank asks while something may still come. When nothing moves any more, the timers fire:
 * who lacks something asks.
 */
#define PLACES (RANKS * OPERATIONS * PACKETS)
#define AT(r, o, p) (((r) * OPERATIONS + (o)) * PACKETS + (p))
#define OWN(r, p) ((r) * PACKETS + (p))
#define OVERWRITTEN 99

#ifdef MUTANT_NUMBERLESS
#define IS_OF(r, o) (operation[r] < OPERATIONS)
#else
#define IS_OF(r, o) (operation[r] == (o))
#endif

bit by_root[PLACES];     /* DATA by multicast, to the rank */
bit by_neighbor[PLACES]; /* DATA from its left neighbor */
byte content[PLACES];    /* of that */
bit asks[PLACES];        /* FETCH, to the rank from its right neighbor */
bit has[RANKS * PACKETS];
/* Packets that the right neighbor has asked for, and that the rank lacks. */
bit standing[RANKS * PACKETS];
byte buffer[RANKS * PACKETS];
bit posted[RANKS];
bit contributed[RANKS]; /* to the end of its operation */
byte operation[RANKS];  /* that the rank is in, or posts next */
byte n_posted[OPERATIONS];
byte n_ended[OPERATIONS];
byte sent; /* packets that the root has multicast of its operation */
byte losses, duplicates, premature;
byte fruitless; /* times that the timers have fired since something came or was lost */
bit data_is_the_operations = 1, all_have_all = 1, timers_help = 1, gives_what_it_sent = 1;
byte r, o, p, i, value;
byte flying; /* bits in flight */
bit lost, moved;

inline put(flag)
{
	if
	:: !flag -> flag = 1; flying++
	:: else
	fi
}

/* Something in flight comes, comes and stays, or is lost. */
inline take(flag)
{
	lost = 0;
	if
	:: flag = 0; flying--
	:: duplicates < DUPLICATES -> duplicates++
	:: losses < LOSSES -> losses++; flag = 0; flying--; lost = 1; fruitless = 0
	fi
}

/* The rank sends a packet that it has to its right neighbor. */
inline give()
{
	if
	:: r + 1 < RANKS ->
		if
		:: r == 0 && p >= sent -> gives_what_it_sent = 0; assert(gives_what_it_sent)
		:: else
		fi;
		put(by_neighbor[AT(r + 1, operation[r], p)]);
		content[AT(r + 1, operation[r], p)] = buffer[OWN(r, p)]
	:: else
	fi
}

/* Data has come to the rank. */
inline accept(data, multicast)
{
	if
	:: posted[r] && IS_OF(r, o) && !has[OWN(r, p)] ->
		buffer[OWN(r, p)] = data;
		has[OWN(r, p)] = 1;
		fruitless = 0;
		data_is_the_operations = (data == operation[r] + 1);
		assert(data_is_the_operations);
		if
		:: standing[OWN(r, p)] ->
			standing[OWN(r, p)] = 0;
			if
			:: !multicast -> give()
			:: else
			fi
		:: else
		fi
	:: else
	fi
}

/* A FETCH has come to the rank. */
inline serve()
{
	if
#ifdef MUTANT_GIVES_UNSENT
	:: posted[r] && operation[r] == o && has[OWN(r, p)] -> give()
#else
	:: posted[r] && operation[r] == o && has[OWN(r, p)] && (r != 0 || p < sent) -> give()
#endif
	:: posted[r] && operation[r] == o && !has[OWN(r, p)] -> standing[OWN(r, p)] = 1
	:: else
	fi
}

/* The rank asks for all that it lacks. */
inline ask()
{
	i = 0;
	do
	:: i < PACKETS ->
		if
		:: !has[OWN(r, i)] -> put(asks[AT(r - 1, operation[r], i)]); moved = 1
		:: else
		fi;
		i++
	:: else -> break
	od;
	i = 0
}

/* The rank posts its next operation: a root with its data, all others with a buffer that
 * holds something else. */
inline post()
{
	posted[r] = 1;
	n_posted[operation[r]]++;
	i = 0;
	do
	:: i < PACKETS ->
		has[OWN(r, i)] = (r == 0);
		buffer[OWN(r, i)] = (r == 0 -> operation[r] + 1 : OVERWRITTEN);
		standing[OWN(r, i)] = 0;
		i++
	:: else -> break
	od;
	i = 0;
	if
	:: r == 0 -> sent = 0
	:: else
	fi
}

inline check_all()
{
	i = 0;
	do
	:: i < PACKETS ->
		all_have_all = all_have_all && buffer[OWN(r, i)] == operation[r] + 1;
		i++
	:: else -> break
	od;
	i = 0;
	assert(all_have_all)
}

/* The rank returns from its operation, and uses the buffer for something else. */
inline leave()
{
	check_all();
	i = 0;
	do
	:: i < PACKETS -> buffer[OWN(r, i)] = OVERWRITTEN; has[OWN(r, i)] = 0;
		standing[OWN(r, i)] = 0; i++
	:: else -> break
	od;
	i = 0;
	operation[r]++;
	posted[r] = 0;
	contributed[r] = 0
}

#define HAS_ALL(x) (has[OWN(x, 0)] && has[OWN(x, PACKETS - 1)])
#ifdef MUTANT_HASTY
#define MAY_END(x) (posted[x] && (x != 0 || sent == PACKETS) && has[OWN(x, 0)])
#else
#define MAY_END(x) (posted[x] && (x != 0 || sent == PACKETS) && HAS_ALL(x))
#endif
#ifdef MUTANT_UNFAITHFUL
#define MAY_LEAVE(x) (posted[x] && contributed[x])
#else
#define MAY_LEAVE(x) (posted[x] && contributed[x] && n_ended[operation[x]] == RANKS)
#endif

#define MAY_POST(x) (operation[x] < OPERATIONS && !posted[x])
#define MAY_CONTRIBUTE(x) (MAY_END(x) && !contributed[x])
#define MAY_SEND (posted[0] && n_posted[operation[0]] == RANKS && sent < PACKETS)
#define MAY_STEP(x) (MAY_POST(x) || MAY_CONTRIBUTE(x) || MAY_LEAVE(x))
#define LACKS(x) ((x) > 0 && posted[x] && n_posted[operation[x]] == RANKS && !HAS_ALL(x))

/* Nothing moves: all who lack something ask. Somebody does, or nothing would ever move again. */
inline fire_timers()
{
	moved = 0;
	r = 1;
	do
	:: r < RANKS ->
		if
#ifdef MUTANT_NEVER_ASKS
		:: 0
#else
		:: LACKS(r) -> ask()
#endif
		:: else
		fi;
		r++
	:: else -> break
	od;
	r = 0;
	fruitless++;
	timers_help = moved && fruitless == 1;
	assert(timers_help);
	moved = 0
}

active proctype network()
{
	do
	:: d_step { operation[0] == OPERATIONS && operation[1] == OPERATIONS &&
		operation[RANKS - 2] == OPERATIONS && operation[RANKS - 1] == OPERATIONS } -> break
	:: atomic {
		flying == 0 && !MAY_SEND && !MAY_STEP(0) && !MAY_STEP(1) &&
		!MAY_STEP(RANKS - 2) && !MAY_STEP(RANKS - 1) &&
		!(operation[0] == OPERATIONS && operation[1] == OPERATIONS &&
		  operation[RANKS - 2] == OPERATIONS &&
		operation[RANKS - 1] == OPERATIONS) -> fire_timers()
	   }
	:: atomic {
		MAY_SEND ->
			i = 1;
			do
			:: i < RANKS -> put(by_root[AT(i, operation[0], sent)]); i++
			:: else -> break
			od;
			i = 0;
			standing[OWN(0, sent)] = 0;
			sent++
	   }
	:: atomic {
		select(r : 0 .. RANKS - 1);
		if
		:: MAY_POST(r) -> post()
		:: MAY_CONTRIBUTE(r) -> contributed[r] = 1; n_ended[operation[r]]++
		:: MAY_LEAVE(r) -> leave()
		:: LACKS(r) && premature < PREMATURE -> premature++; ask(); moved = 0
		:: else
		fi;
		r = 0
	   }
	:: atomic {
		flying > 0 ->
		select(r : 0 .. RANKS - 1);
		select(o : 0 .. OPERATIONS - 1);
		select(p : 0 .. PACKETS - 1);
		if
		:: by_root[AT(r, o, p)] ->
			take(by_root[AT(r, o, p)]);
			if
			:: !lost -> accept(o + 1, 1)
			:: else
			fi
		:: by_neighbor[AT(r, o, p)] ->
			value = content[AT(r, o, p)];
			take(by_neighbor[AT(r, o, p)]);
			if
			:: !lost -> accept(value, 0)
			:: else
			fi;
			value = 0
		:: asks[AT(r, o, p)] ->
			take(asks[AT(r, o, p)]);
			if
			:: !lost -> serve()
			:: else
			fi
		:: else
		fi;
		r = 0; o = 0; p = 0; lost = 0
	   }
	od
}
