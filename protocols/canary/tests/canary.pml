/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Canary (protocols/canary/README.md): HOSTS ranks at two leaf switches with two spines between
 * them; the first LEADERS ranks lead blocks in turn. Each switch has a table of one place.
 * README.md says which step stands for which rule; run.sh gives the sizes, and sees to it that
 * every MUTANT_ is caught.
 *
 * There are two networks, as in window.pml. UNBOUNDED: what was sent once can be delivered at any
 * time, any number of times, or never, and not only to the next switch: to any. Switches lose what
 * they have at any time, so SWITCHES of them stand for networks of any shape. From every state,
 * everything in flight is then lost, and queries and asks must do the rest.
 * Otherwise the packets in flight are in a bag, of which LOSSES vanish and DUPLICATES are delivered
 * and stay; FORGETS times a switch loses what it has, COLLISIONS times it finds a free place taken,
 * and PREMATURE packets are sent by ranks' timers that fire early. When nothing moves any more, all
 * those timers fire.
 * QUIET: nothing is lost, and no rank asks for a result. Leaders send REPEAT unasked only there.
 */
#ifdef MUTANT_HALF_ENTRIES
#define ENTRIES W
#else
#define ENTRIES (2 * W)
#endif
#ifdef MUTANT_EARLY_SEND
#define MAY_BE_AHEAD (2 * W)
#else
#define MAY_BE_AHEAD W
#endif
#define NONE 15
#define ALL_RANKS ((1 << HOSTS) - 1)

/* Nodes: hosts are 0 to 3, switches 4 to 7: the leaves of ranks 0 and 3, and of 1 and 2, and two
 * spines. Tables have switches' numbers less 4. */
#define SPINE 6
#define SPINE_2 7
#define leaf_of(host) (4 + ((host) == 1 || (host) == 2))
#define leader(block) ((block) % LEADERS)
#ifndef UNBOUNDED
#define SWITCHES 4
#endif

#define EMPTY 0
#define OPEN 1
#define SENT 2
typedef Descriptor {
	unsigned state : 2;
	unsigned block : 3;
	/* Of an open one what is in its sum; of a sent one what has been seen. */
	unsigned set : 4;
	/* Data of a rank is in it twice, or not in it but in the set, or not this rank's. */
	unsigned spoiled : 1;
#ifndef UNBOUNDED
	byte ports; /* the nodes behind them */
#endif
};
Descriptor descriptor[SWITCHES];

/* Hosts. Sets of blocks are bitmaps. */
byte sent[HOSTS]; /* blocks before this one were sent; to oneself, by a leader */
byte done[HOSTS]; /* blocks whose result has come */

/* Leaders. */
typedef Entry {
	unsigned block : 4;
	unsigned set : 4;
	unsigned spoiled : 1;
	unsigned made : 2; /* the result's bits: which time the block's result was made */
#ifndef UNBOUNDED
	unsigned direct : 4; /* ranks whose data came with DIRECT, and without a collision */
	byte told[SWITCHES]; /* ports at which switches had a collision */
#endif
};
Entry entry[LEADERS * ENTRIES];
#define entry_of(block) (leader(block) * ENTRIES + (block) % ENTRIES)

byte computed[BLOCKS]; /* results that were made of this block */
byte bits[BLOCKS];     /* that some rank has accepted */

#ifdef UNBOUNDED
/* In flight: data by block and set, of ranks and of switches. All results that were made. */
short flight[BLOCKS];
byte spoiled_flight; /* blocks */
bool recovering, generous;
#else
/* The bag: its packets in ascending order, so that each has one representation. A packet has room
 * for the numbers of 4 blocks. */
#if BLOCKS > 4
#error "the bag has at most 4 blocks"
#endif
#define REDUCE 1
#define DIRECT 2
#define RESULT 3
#define RESTORE 4
#define REPEAT 5
#define QUERY 6
#define ASK 7
#define packet(type, block, destination, source, set, spoilt)                                                                  \
	((type) | (block) << 3 | (destination) << 5 | (source) << 8 | (set) << 11 | (spoilt) << 15)
#ifndef PLACES
#define PLACES 20
#endif
short bag[PLACES];
byte count;
byte losses, duplicates, forgets, premature, collisions;
bool second_spine; /* until the first one was used, both are the same */
bool helped;
bool finished;
#endif

/* What a step is about. */
byte event, h, b, j, c, r;

/* Set in the step that reads them. */
hidden byte g, k, e, v, s, f, n, m, w, x, y, o;
hidden byte spoilt, data, past, where, moved;
hidden int q, z;

/* The properties, so that the verifier tells which one fails. */
hidden byte sum_is_exact, one_result, entry_is_free, data_is_own, timers_help,
	needs_no_query, descriptors_end, bag_suffices;

#define is_in(bitmap, member) ((bitmap) >> (member) & 1)
#define contains(set, part) (((set) & (part)) == (part))
/* The last block ends the run: who has its result has gone, but its leader, who waits for all. */
#ifdef MUTANT_LEADER_LEAVES
#define has_gone(host) is_in(done[host], BLOCKS - 1)
#else
#define has_gone(host) (is_in(done[host], BLOCKS - 1) && leader(BLOCKS - 1) != (host))
#endif

/* The oldest block that a host has no result of, in w. */
inline find_oldest(host)
{
	w = 0;
	do
	:: w < BLOCKS && is_in(done[host], w) -> w++
	:: else -> break
	od
}

/* ---- packets */

#ifndef UNBOUNDED
/* Two packets that are the same are one. */
inline send(what)
{
	q = what;
	z = 0;
	do
	:: z < count && bag[z] < q -> z++
	:: else -> break
	od;
	if
	:: z < count && bag[z] == q -> skip
	:: else ->
		bag_suffices = count < PLACES;
		assert(bag_suffices);
		m = count;
		do
		:: m > z ->
			bag[m] = bag[m - 1];
			m--
		:: else -> break
		od;
		bag[z] = q;
		count++
	fi
}

inline take(index)
{
	m = index;
	do
	:: m + 1 < count ->
		bag[m] = bag[m + 1];
		m++
	:: else -> break
	od;
	count--;
	bag[count] = 0
}
#endif

/* ---- switches. n is the switch, v the block, s and spoilt what comes, f the node that
 * it comes from. */

inline free_descriptor(index)
{
	descriptor[index].state = EMPTY;
	descriptor[index].block = 0;
	descriptor[index].set = 0;
	descriptor[index].spoiled = 0;
#ifndef UNBOUNDED
	descriptor[index].ports = 0
#endif
}

/* s goes on towards the leader; from a leaf that is not the leader's by the spine r. */
inline send_on()
{
#ifdef UNBOUNDED
	flight[v] = flight[v] | 1 << s;
	spoiled_flight = spoiled_flight | spoilt << v
#else
	if
	:: n >= SPINE - 4 -> o = leaf_of(leader(v))
	:: n + 4 == leaf_of(leader(v)) -> o = leader(v)
	:: else ->
		o = r;
		second_spine = true
	fi;
	send(packet(REDUCE, v, o, n + 4, s, spoilt))
#endif
}

/* Combines s with the descriptor's sum, or takes its place, and says that the ranks
 * `claimed` are in. */
inline combine(claimed)
{
	descriptor[n].spoiled =
		descriptor[n].spoiled || spoilt || (descriptor[n].set & s) != 0 ||
		(descriptor[n].set | s) != (claimed);
	descriptor[n].set = claimed
}

inline receive_open()
{
	if
#ifdef MUTANT_SWITCH_COUNTS
	:: true -> combine(descriptor[n].set | s)
#else
	:: (descriptor[n].set & s) == 0 -> combine(descriptor[n].set | s)
	:: contains(descriptor[n].set, s) -> skip
	:: contains(s, descriptor[n].set) && s != descriptor[n].set ->
#ifdef MUTANT_SUPERSET_ADDED
		combine(s)
#else
		descriptor[n].set = s;
		descriptor[n].spoiled = spoilt
#endif
	:: else ->
#ifdef MUTANT_PASSED_ON_IN_SUM
		descriptor[n].set = descriptor[n].set | s;
		descriptor[n].spoiled = 1;
#endif
		send_on()
#endif
	fi
}

inline receive_sent()
{
	if
	:: contains(descriptor[n].set, s) -> skip
	:: else ->
		descriptor[n].set = descriptor[n].set | s;
#ifndef MUTANT_STRAGGLERS_DROPPED
		send_on()
#endif
	fi
}

inline collide()
{
#if defined(UNBOUNDED)
	send_on()
#elif defined(MUTANT_COLLISION_UNTOLD)
	send_on()
#else
	send(packet(DIRECT, v, n + 4, f, s, spoilt))
#endif
}

inline switch_receive()
{
	if
	:: descriptor[n].state != EMPTY && descriptor[n].block == v ->
#ifndef UNBOUNDED
#ifdef MUTANT_STRAGGLERS_PORT
		if
		:: descriptor[n].state == OPEN -> descriptor[n].ports = descriptor[n].ports | 1 << f
		:: else
		fi;
#else
		descriptor[n].ports = descriptor[n].ports | 1 << f;
#endif
#endif
		if
		:: descriptor[n].state == OPEN -> receive_open()
		:: else -> receive_sent()
		fi
	:: else ->
		if
		:: (descriptor[n].state == EMPTY || descriptor[n].block + 2 * W <= v) && c == 0 ->
			descriptor[n].state = OPEN;
			descriptor[n].block = v;
			descriptor[n].set = s;
			descriptor[n].spoiled = spoilt;
#ifndef UNBOUNDED
			descriptor[n].ports = 1 << f
#endif
		:: else ->
#ifndef UNBOUNDED
			if
			:: descriptor[n].state == EMPTY || descriptor[n].block + 2 * W <= v ->
				collisions--
			:: else
			fi;
#endif
			collide()
		fi
	fi
}

inline timer_fires()
{
	v = descriptor[n].block;
	s = descriptor[n].set;
	spoilt = descriptor[n].spoiled;
	descriptor[n].state = SENT;
	descriptor[n].spoiled = 0;
	send_on()
}

#ifndef UNBOUNDED
/* The result `version` of block v to the nodes of a bitmap. */
inline send_results(nodes, version)
{
	y = nodes;
	for (g : 0 .. 7) {
		if
		:: is_in(y, g) && g != f -> send(packet(RESULT, v, g, n + 4, version, 0))
		:: else
		fi
	}
}

inline switch_receive_result()
{
	if
	:: descriptor[n].state != EMPTY && descriptor[n].block == v ->
		send_results(descriptor[n].ports, s);
#ifndef MUTANT_DESCRIPTORS_STAY
		free_descriptor(n)
#endif
	:: else
	fi
}
#endif

/* ---- leaders */

inline host_accepts(host, version)
{
	one_result = bits[v] == 0 || bits[v] == version;
	assert(one_result);
	bits[v] = version;
	done[host] = done[host] | 1 << v
}

inline make_result()
{
	computed[v]++;
	sum_is_exact = !entry[e].spoiled;
	assert(sum_is_exact);
	entry[e].made = computed[v];
	host_accepts(leader(v), computed[v]);
#ifdef UNBOUNDED
	if
	:: recovering ->
		moved = true;
		if
		:: generous ->
			for (g : 0 .. HOSTS - 1) {
				host_accepts(g, computed[v])
			}
		:: else
		fi
	:: else
	fi
#else
	helped = true;
	send(packet(RESULT, v, leaf_of(leader(v)), leader(v), computed[v], 0));
	for (g : 0 .. SWITCHES - 1) {
		if
		:: entry[e].told[g] != 0 ->
#ifndef MUTANT_NO_RESTORE
			send(packet(RESTORE, v, g + 4, 0, 0, 0) | entry[e].told[g] << 8);
#endif
			entry[e].told[g] = 0
		:: else
		fi
	}
	for (g : 0 .. HOSTS - 1) {
		if
#if defined(QUIET) && !defined(MUTANT_NO_REPEAT_TO_DIRECT)
		:: is_in(entry[e].direct, g) -> send(packet(REPEAT, v, g, 0, computed[v], 0))
#endif
		:: else
		fi
	}
	entry[e].direct = 0
#endif
}

/* Opens the entry of block v, if that is free for it. Leaves its number in e. */
inline open_entry()
{
	e = entry_of(v);
	if
	:: entry[e].block == NONE ||
#ifdef MUTANT_OLDER_OPENS
		entry[e].block != v ->
#else
		entry[e].block < v ->
#endif
		if
		:: entry[e].block != NONE ->
#ifndef WITHOUT_ENTRY_CHECK
			entry_is_free = entry[e].made != 0 && entry[e].block < v;
			assert(entry_is_free);
			for (g : 0 .. HOSTS - 1) {
				entry_is_free = is_in(done[g], entry[e].block);
				assert(entry_is_free)
			}
#endif
			skip
		:: else
		fi;
		if
		:: entry[e].block == NONE || entry[e].made != 0 ->
			entry[e].block = v;
			entry[e].set = 0;
			entry[e].spoiled = 0;
			entry[e].made = 0
		:: else
		fi
	:: else
	fi
}

#ifndef UNBOUNDED
/* Data that came past all descriptors was taken. */
inline note_way()
{
	if
	:: past && where == 0 -> entry[e].direct = entry[e].direct | s
	:: past && where != 0 -> entry[e].told[where - 4] = entry[e].told[where - 4] | 1 << f
	:: else
	fi
}
#else
#define note_way() skip
#endif

/* Data of block v of the ranks in s, spoilt or not; `past` all descriptors, with the port f of the
 * switch `where` if that is not 0. The leader's own data is in the entry's set, but not in what s
 * is compared with. */
#define others(set) ((set) & ~(1 << leader(v)))
inline leader_receive()
{
	open_entry();
	if
#ifdef MUTANT_MADE_TWICE
	:: entry[e].block != v -> skip
#else
	:: entry[e].block != v || entry[e].made != 0 -> skip
#endif
	:: else ->
		if
		:: (entry[e].set & s) == 0 ->
			entry[e].set = entry[e].set | s;
			entry[e].spoiled = entry[e].spoiled || spoilt;
			note_way()
#ifdef MUTANT_LEADER_COUNTS
		:: (entry[e].set & s) != 0 ->
			entry[e].set = entry[e].set | s;
			entry[e].spoiled = 1
#else
		:: contains(entry[e].set, s) -> skip
		:: (entry[e].set & s) != 0 && !contains(entry[e].set, s) &&
			contains(s, others(entry[e].set)) ->
#ifdef MUTANT_OWN_REPLACED
			entry[e].spoiled = spoilt || is_in(entry[e].set, leader(v));
#else
			entry[e].spoiled = spoilt;
#endif
			entry[e].set = entry[e].set | s;
			note_way()
		:: (entry[e].set & s) != 0 && !contains(entry[e].set, s) &&
			!contains(s, others(entry[e].set)) ->
#ifndef UNBOUNDED
			for (g : 0 .. HOSTS - 1) {
				if
				:: is_in(s & ~entry[e].set, g) -> send(packet(ASK, v, g, 0, 0, 0))
				:: else
				fi
			}
#endif
			skip
#endif
		fi;
		if
#ifdef MUTANT_NOT_COMPLETE
		:: others(entry[e].set) != 0 && is_in(entry[e].set, leader(v)) ->
			entry[e].spoiled = entry[e].spoiled || entry[e].set != ALL_RANKS;
#else
		:: entry[e].set == ALL_RANKS ->
#endif
#ifdef MUTANT_MADE_TWICE
			if
			:: entry[e].made < 2 -> make_result()
			:: else
			fi
#else
			make_result()
#endif
		:: else
		fi
	fi
}

/* ---- ranks */

/* Rank x is asked for block v. */
#ifdef MUTANT_ANSWERS_ALWAYS
#define answers_ask (v < sent[x] && !has_gone(x))
#else
#define answers_ask (v < sent[x] && !has_gone(x) && !is_in(done[x], v))
#endif
inline host_asked()
{
	data_is_own = !is_in(done[x], v);
	assert(data_is_own);
	s = 1 << x;
#ifdef UNBOUNDED
	flight[v] = flight[v] | 1 << s
#elif defined(MUTANT_ASKED_COMBINED)
	send(packet(REDUCE, v, leaf_of(x), x, s, 0))
#else
	send(packet(DIRECT, v, 0, 0, s, 0))
#endif
}

/* What has come to a leader is taken, and ranks send what they may. */
inline settle()
{
	do
	:: data ->
		data = false;
		leader_receive()
	:: else ->
		x = 0;
		do
		:: x < HOSTS ->
			find_oldest(x);
			if
			:: sent[x] < BLOCKS && sent[x] < w + MAY_BE_AHEAD &&
#ifdef MUTANT_ENDS_EARLY
				true -> break
#else
				(sent[x] < BLOCKS - 1 || w == BLOCKS - 1) -> break
#endif
			:: else -> x++
			fi
		:: else -> break
		od;
		if
		:: x == HOSTS -> break
		:: else ->
			v = sent[x];
			sent[x] = v + 1;
			s = 1 << x;
			past = false;
			spoilt = false;
			if
			:: leader(v) == x -> data = true
			:: else ->
#ifdef UNBOUNDED
				flight[v] = flight[v] | 1 << s;
				data = recovering && generous
#else
				send(packet(REDUCE, v, leaf_of(x), x, s, 0))
#endif
			fi
		fi
	od
}

/* ---- steps of the unbounded network */

#ifdef UNBOUNDED
#define DELIVER 1
#define TIMER 2
#define FORGET 3
#define ARRIVE 4
#define ACCEPT 5
#define ASKED 6
#define OTHER_RUN 7

/* Something of block b for the switch j, with the ranks of the set h. */
inline deliver()
{
	n = j;
	v = b;
	s = h;
	spoilt = is_in(spoiled_flight, v);
	switch_receive()
}

inline other_run()
{
#ifdef MUTANT_ANY_RUN
	n = j;
	v = b;
	if
	:: descriptor[n].state == OPEN && descriptor[n].block == v &&
		(descriptor[n].set & h) == 0 ->
		s = h;
		spoilt = true;
		combine(descriptor[n].set | s)
	:: else
	fi
#else
	skip
#endif
}

/* Nothing is lost any more. */
inline recover()
{
	recovering = true;
	do
	:: true ->
		moved = false;
		data = false;
		settle();
		for (k : 0 .. HOSTS - 1) {
			find_oldest(k);
			if
			:: w < BLOCKS && leader(w) != k && !has_gone(leader(w)) ->
				e = entry_of(w);
				if
#ifndef MUTANT_NO_REPEAT
				:: entry[e].block == w && entry[e].made != 0 ->
					v = w;
					host_accepts(k, entry[e].made);
					moved = true
#endif
				:: else
				fi
			:: else
			fi
		}
		settle();
#ifndef MUTANT_NO_ASK
		k = 0;
		do
		:: k < BLOCKS * HOSTS ->
			v = k / HOSTS;
			x = k % HOSTS;
			e = entry_of(v);
			if
			:: sent[leader(v)] > v && !has_gone(leader(v)) &&
				entry[e].block == v && entry[e].made == 0 &&
				!is_in(entry[e].set, x) && answers_ask ->
				s = 1 << x;
				spoilt = false;
				data = true;
				settle()
			:: else
			fi;
			k++
		:: else -> break
		od;
#endif
		y = 0;
		for (k : 0 .. HOSTS - 1) {
			find_oldest(k);
			y = y + (w == BLOCKS)
		}
		if
		:: y == HOSTS -> break
		:: else ->
			timers_help = moved;
			assert(timers_help)
		fi
	od
}

#else
/* ---- steps of the bag */

#define DELIVER 1
#define KEEP 2
#define LOSE 3
#define TIMER 4
#define FORGET 5
#define ASK_EARLY 6
#define QUERY_EARLY 7
#define SILENCE 8

inline deliver()
{
	q = bag[j];
	k = q & 7;
	v = q >> 3 & 3;
	o = q >> 5 & 7;
	f = q >> 8 & 7;
	s = q >> 11 & 15;
	y = q >> 8 & 255;
	spoilt = q >> 15 & 1;
	if
	:: event == DELIVER -> take(j)
	:: else -> duplicates--
	fi;
	n = o - 4;
	x = o;
	if
	:: k == REDUCE && o >= 4 -> switch_receive()
	:: k == REDUCE && o < 4 ->
		past = false;
		data = true
	:: k == DIRECT && !has_gone(leader(v)) ->
		past = true;
		where = o;
		data = true
	:: k == RESULT && o >= 4 -> switch_receive_result()
	:: k == RESTORE ->
		w = y;
		f = NONE;
		send_results(w, 1)
	:: (k == RESULT && o < 4) || k == REPEAT ->
		helped = helped || !is_in(done[x], v);
		host_accepts(x, s)
	:: k == QUERY && !has_gone(leader(v)) ->
		e = entry_of(v);
		if
		:: entry[e].block == v && entry[e].made != 0 ->
			send(packet(REPEAT, v, f, 0, entry[e].made, 0))
		:: else
		fi
	:: k == ASK ->
		if
		:: answers_ask -> host_asked()
		:: else
		fi
	:: else
	fi
}

inline query(host)
{
	find_oldest(host);
	if
	:: w < BLOCKS && leader(w) != host -> send(packet(QUERY, w, leader(w), host, 0, 0))
	:: else
	fi
}

/* Of rank x, for block v. */
inline ask()
{
	e = entry_of(v);
	if
	:: v < sent[leader(v)] && entry[e].block == v && entry[e].made == 0 &&
		!is_in(entry[e].set, x) ->
		send(packet(ASK, v, x, 0, 0, 0))
	:: else
	fi
}

inline silence()
{
	y = 0;
	for (k : 0 .. HOSTS - 1) {
		find_oldest(k);
		y = y + (w == BLOCKS)
	}
	if
	:: y == HOSTS ->
		finished = true;
#ifdef QUIET
		for (k : 0 .. SWITCHES - 1) {
			descriptors_end = PREMATURE + DUPLICATES > 0 || descriptor[k].state == EMPTY;
			assert(descriptors_end)
		}
#endif
	:: else ->
#ifdef QUIET
		needs_no_query = false;
		assert(needs_no_query);
#endif
		timers_help = helped;
		assert(timers_help);
		helped = false;
		for (k : 0 .. HOSTS - 1) {
			query(k)
		}
		for (k : 0 .. BLOCKS * HOSTS - 1) {
			v = k / HOSTS;
			x = k % HOSTS;
			ask()
		}
	fi
}
#endif

/* ---- what a step is about */

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
		for (k : 0 .. LEADERS * ENTRIES - 1) {
			entry[k].block = NONE
		}
#ifndef UNBOUNDED
		losses = LOSSES;
		duplicates = DUPLICATES;
		forgets = FORGETS;
		premature = PREMATURE;
		collisions = COLLISIONS;
		helped = true;
#endif
		data = false;
		settle();
		k = 0
	}
#ifdef UNBOUNDED
	do
	:: atomic {
		if
		:: event = DELIVER; pick(j, SWITCHES); pick(b, BLOCKS);
			pick(h, ALL_RANKS); h++; pick(c, 2)
		:: event = TIMER; pick(j, SWITCHES)
		:: event = FORGET; pick(j, SWITCHES)
		:: event = ARRIVE; pick(b, BLOCKS); pick(h, ALL_RANKS); h++
		:: event = ACCEPT; pick(b, BLOCKS); pick(h, HOSTS); pick(c, 2)
		:: event = ASKED; pick(b, BLOCKS); pick(h, HOSTS)
#ifdef MUTANT_ANY_RUN
		:: event = OTHER_RUN; pick(j, SWITCHES); pick(b, BLOCKS); pick(h, ALL_RANKS); h++
#endif
		fi;
		d_step {
			data = false;
			if
			:: event == DELIVER && is_in(flight[b], h) -> deliver()
			:: event == TIMER && descriptor[j].state == OPEN ->
				n = j;
				timer_fires()
			:: event == FORGET -> free_descriptor(j)
			:: event == ARRIVE && is_in(flight[b], h) ->
				v = b;
				s = h;
				spoilt = is_in(spoiled_flight, v);
				data = !has_gone(leader(v))
			:: event == ACCEPT && c < computed[b] && !is_in(done[h], b) ->
				v = b;
				host_accepts(h, c + 1)
			:: event == ASKED && h != leader(b) && b < sent[leader(b)] ->
				v = b;
				x = h;
				if
				:: answers_ask -> host_asked()
				:: else
				fi
			:: event == OTHER_RUN -> other_run()
			:: else
			fi;
			settle();
			event = 0; h = 0; b = 0; j = 0; c = 0
		}
	   }
	:: break
	od;
	if
	:: generous = true
	:: skip
	fi;
	d_step {
		recover();
		k = 0
	}
#else
	do
	:: finished -> break
	:: else ->
	   atomic {
		if
		:: count > 0 ->
			if
			:: event = DELIVER
			:: duplicates > 0 -> event = KEEP
			fi;
			pick(j, count);
			if
			:: (bag[j] & 7) == REDUCE ->
				if
				:: r = SPINE
				:: second_spine -> r = SPINE_2
				fi;
				if
				:: c = 0
				:: collisions > 0 && (bag[j] >> 5 & 7) >= 4 -> c = 1
				fi
			:: else
			fi
		:: count > 0 && losses > 0 -> event = LOSE; pick(j, count)
		:: event = TIMER;
			pick(j, SWITCHES);
			if
			:: r = SPINE
			:: second_spine -> r = SPINE_2
			fi
		:: forgets > 0 -> event = FORGET; pick(j, SWITCHES)
		:: premature > 0 -> event = ASK_EARLY; pick(b, BLOCKS); pick(h, HOSTS)
#ifndef QUIET
		:: premature > 0 -> event = QUERY_EARLY; pick(h, HOSTS)
#endif
		:: count == 0 && descriptor[0].state != OPEN && descriptor[1].state != OPEN &&
			descriptor[2].state != OPEN && descriptor[3].state != OPEN ->
				event = SILENCE
		fi;
		d_step {
			data = false;
			if
			:: event == DELIVER || event == KEEP -> deliver()
			:: event == LOSE ->
				take(j);
				helped = true;
				losses--
			:: event == TIMER && descriptor[j].state == OPEN ->
				n = j;
				timer_fires()
			:: event == FORGET && descriptor[j].state != EMPTY ->
				free_descriptor(j);
				helped = true;
				forgets--
			:: event == ASK_EARLY ->
				v = b;
				x = h;
				ask();
				premature--
			:: event == QUERY_EARLY ->
				query(h);
				premature--
			:: event == SILENCE -> silence()
			:: else
			fi;
			settle();
			event = 0; h = 0; b = 0; j = 0; c = 0; r = 0
		}
	   }
	od
#endif
}
