/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Push (protocols/push/README.md): HOSTS ranks, the first HOMES of which are home hosts of blocks
 * in turn; a root, and with LEAVES a leaf with ranks 1 and 2, if any, below it. Each switch has a
 * table of one entry. README.md says which step stands for which rule; run.sh gives the sizes, and
 * sees to it that every MUTANT_ is caught.
 *
 * The network is the unbounded one of window.pml: what was sent once can be delivered at any time,
 * any number of times, or never, as long as its run lasts. Packets without data are not there: what
 * they cause may happen at any time. So an entry may be evicted, QUERY may mark a block, and ASK
 * may come to a rank, after any step.
 * From every state all that is in flight then vanishes and the network is perfect from then on, or
 * loses all but QUERY, ASK, DATA and REPEAT.
 *
 * With BOUND, which has no leaf, the root notes how far each rank is, and no packet that a rank may
 * send is too new, or old for nothing (protocols/push/README.md, "How new a block may be").
 *
 * The last block ends the run: a rank goes as soon as it has its result. The run is lost at most
 * LOSSES times, with all that switches have.
 */
#ifdef MUTANT_HALF_SLOTS
#define SLOTS W
#else
#define SLOTS (2 * W)
#endif
#ifdef MUTANT_EARLY_SEND
#define MAY_BE_AHEAD (2 * W)
#else
#define MAY_BE_AHEAD W
#endif
#define NONE 15
#define ALL_RANKS ((1 << HOSTS) - 1)
#define ROOT 0
#define LEAF 1
#if LEAVES
#define SWITCHES 2
#if HOSTS == 2
#define LEAF_RANKS 2
#else
#define LEAF_RANKS 6
#endif
#define leaf_has(rank) is_in(LEAF_RANKS, rank)
#else
#define SWITCHES 1
#define leaf_has(rank) false
#endif
#define home(block) ((block) % HOMES)
#define slot_of(at, block) ((at) * SLOTS + (block) % SLOTS)
#define entry_of(block) (home(block) * SLOTS + (block) % SLOTS)

/* Switches. */
typedef Slot {
	unsigned block : 4;
	unsigned seen : 4;
	unsigned evicted : 1;
	unsigned over : 1; /* done */
};
Slot slot[SWITCHES * SLOTS];
typedef Place {
	unsigned block : 4;
	unsigned set : 4;
	unsigned spoiled : 1; /* data of a rank is in it twice, or of another block */
};
Place place[SWITCHES];

/* Ranks. Sets of blocks are bitmaps. */
byte sent[HOSTS];      /* blocks before this one were sent in this run, or were known before it */
byte given[HOSTS];     /* blocks whose data went to the tree in this run */
byte committed[HOSTS]; /* blocks whose data the rank has sent to the home host in this run */
byte has[HOSTS];       /* blocks whose result the rank has */

/* Home hosts. Their own data is apart. */
Place entry[HOMES * SLOTS];

/* In flight, by block and set: sums of the leaf, sums of the root. Their block or their data is not
 * what they say: a bit for each block. */
short up[BLOCKS];
short down[BLOCKS];
byte spoiled_up, spoiled_down;

/* Results. Bits: 0, or which run's, by the table or by the home host. */
byte by_table; /* blocks whose RESULT is in flight */
byte bits[BLOCKS];
byte table_bits[BLOCKS];
byte epoch;
bool recovering, generous;
#ifdef BOUND
byte newest[HOSTS]; /* of what has come from each rank to the root in this run */
#endif

/* What a step is about. */
byte event, h, b, a;

/* Set in the step that reads them. */
hidden byte g, k, i, e, w, x, y, moved;
hidden byte v, s, spoilt;    /* at the root */
hidden byte lv, ls, lspoilt; /* at the leaf */
hidden byte hv, hs, hspoilt; /* at the home host */

/* The properties, so that the verifier tells which one fails. */
hidden byte sum_is_exact, one_result, entry_is_free, timers_help, table_is_empty;
#ifdef BOUND
hidden byte n, nd, nb, not_too_new, stale_is_over;
#endif

#define is_in(bitmap, member) ((bitmap) >> (member) & 1)
#define contains(set, part) (((set) & (part)) == (part))
#define has_gone(rank) is_in(has[rank], BLOCKS - 1)

#define somebody_has_gone (bits[BLOCKS - 1] != 0)

/* The oldest block that a rank has no result of, in w. */
inline find_oldest(rank)
{
	w = 0;
	do
	:: w < BLOCKS && is_in(has[rank], w) -> w++
	:: else -> break
	od
}

/* ---- how new a block may be */

#ifdef BOUND
#ifdef MUTANT_BOUND_TIGHT
#define AHEAD (W - 1)
#else
#define AHEAD W
#endif
#ifdef MUTANT_STALE_TIGHT
#define BEHIND W
#else
#define BEHIND (2 * W)
#endif

#if HOSTS == 2
#define all_have(block) (is_in(has[0], block) && is_in(has[1], block))
#else
#define all_have(block) (is_in(has[0], block) && is_in(has[1], block) && is_in(has[2], block))
#endif

/* All notes when a run begins whose first block is `first`. */
inline begin_notes(first)
{
	for (n : 0 .. HOSTS - 1) {
#ifdef MUTANT_NOTES_BEGIN_EARLY
		newest[n] = (first)
#else
		newest[n] = (first) + W - 1
#endif
	}
	n = 0
}

/* The block nb comes from the rank nd, as data, as a result or in a QUERY. */
inline check_block()
{
	for (n : 0 .. HOSTS - 1) {
		if
		:: n != nd ->
			not_too_new = nb <= newest[n] + AHEAD;
			assert(not_too_new);
			stale_is_over = nb + BEHIND > newest[n] || all_have(nb);
			assert(stale_is_over)
		:: else
		fi
	}
	n = 0
}

inline note(rank, number)
{
	nd = rank;
	nb = number;
	check_block();
	if
	:: newest[nd] < nb -> newest[nd] = nb
	:: else
	fi;
	nd = 0; nb = 0
}

/* QUERY may come from any rank that has sent the block. */
inline check_query(number)
{
	for (nd : 0 .. HOSTS - 1) {
		nb = number;
		if
		:: sent[nd] > nb -> check_block()
		:: else
		fi
	}
	nd = 0; nb = 0
}
#else
#define begin_notes(first) skip
#define note(rank, number) skip
#define check_query(number) skip
#endif

#ifdef MUTANT_DATA_UNNOTED
#define note_data(rank, number) skip
#else
#define note_data(rank, number) note(rank, number)
#endif
#ifdef MUTANT_RESULT_UNNOTED
#define note_result(rank, number) skip
#else
#define note_result(rank, number) note(rank, number)
#endif

/* ---- ranks take results */

/* A rank that has none takes a result of these bits. */
inline take(rank, number, which)
{
	if
	:: is_in(has[rank], number) -> skip
	:: else ->
		moved = true;
		one_result = bits[number] == 0 || bits[number] == (which);
		assert(one_result);
		bits[number] = (which);
		has[rank] = has[rank] | 1 << (number)
	fi
}

/* RESULT of the table. */
inline take_of_table(rank, number)
{
	if
#ifndef MUTANT_COMMITTED_TAKES
	:: is_in(committed[rank], number) -> skip
#endif
	:: else -> take(rank, number, table_bits[number])
	fi
}

/* ---- the home host of block hv */

inline multicast_result()
{
	if
	:: recovering && generous ->
		note_result(home(hv), hv);
		for (g : 0 .. HOSTS - 1) {
			take(g, hv, bits[hv])
		}
	:: else
	fi
}

#ifdef MUTANT_OWN_AT_POST
#define own_is_there true
#else
#define own_is_there (sent[home(hv)] > hv)
#endif

/* All ranks are there, or all but the home host, which is ready. */
inline make_result()
{
	e = entry_of(hv);
	if
	:: entry[e].block == hv && !is_in(has[home(hv)], hv) && own_is_there &&
		(entry[e].set | 1 << home(hv)) == ALL_RANKS ->
		sum_is_exact = !entry[e].spoiled;
		assert(sum_is_exact);
		take(home(hv), hv, 2 * epoch + 2);
		entry[e].set = 0;
		multicast_result()
	:: else
	fi
}

/* Data of the ranks hs comes. */
inline home_receive()
{
	e = entry_of(hv);
	if
	:: entry[e].block == NONE || entry[e].block < hv ->
		if
		:: entry[e].block != NONE ->
			for (g : 0 .. HOSTS - 1) {
				entry_is_free = is_in(has[g], entry[e].block);
				assert(entry_is_free)
			}
		:: else
		fi;
		entry[e].block = hv;
		entry[e].set = 0;
		entry[e].spoiled = false
	:: else
	fi;
	if
	:: entry[e].block != hv || is_in(has[home(hv)], hv) -> skip
	:: else ->
		if
		:: (entry[e].set & hs) == 0 ->
			entry[e].set = entry[e].set | hs;
			entry[e].spoiled = entry[e].spoiled || hspoilt
		:: contains(entry[e].set, hs) -> skip
		:: contains(hs, entry[e].set) && !contains(entry[e].set, hs) && entry[e].set != 0 ->
			entry[e].set = hs;
			entry[e].spoiled = hspoilt
#ifdef MUTANT_OVERLAP_COMBINED
		:: else ->
			entry[e].set = entry[e].set | hs;
			entry[e].spoiled = true
#else
		:: else
#endif
		fi;
		make_result()
	fi
}

/* The rank x, which has sent the block hv, gets ASK. */
inline asked()
{
	if
#ifdef MUTANT_DATA_WITH_RESULT
	:: false -> skip
#else
	:: is_in(has[x], hv) ->
		note_result(x, hv);
		take(home(hv), hv, bits[hv]);
		multicast_result()
#endif
	:: else ->
		committed[x] = committed[x] | 1 << hv;
		if
		:: recovering ->
			note_data(x, hv);
			hs = 1 << x;
			hspoilt = false;
			home_receive()
		:: else
		fi
	fi
}

/* ---- the root */

inline free_place(at)
{
	place[at].block = NONE;
	place[at].set = 0;
	place[at].spoiled = false
}

/* The root's entry goes to its block's home host. */
inline send_home()
{
	hv = place[ROOT].block;
	hs = place[ROOT].set;
	hspoilt = place[ROOT].spoiled;
	if
	:: recovering && !has_gone(home(hv)) -> home_receive()
	:: recovering && has_gone(home(hv)) -> skip
	:: else ->
		down[hv] = down[hv] | 1 << hs;
		spoiled_down = spoiled_down | hspoilt << hv
	fi
}

inline mark(number)
{
	if
	:: slot[slot_of(ROOT, number)].block == (number) ->
		slot[slot_of(ROOT, number)].evicted = 1;
#ifdef MUTANT_SEEN_CLEARED
		slot[slot_of(ROOT, number)].seen = 0
#endif
	:: else
	fi
}

inline evict_at_root()
{
#ifndef MUTANT_EVICTED_UNMARKED
	mark(place[ROOT].block);
#endif
	send_home();
	free_place(ROOT)
}

/* The slot of a block at a switch, left in i, goes on to that block if it is at an older one. */
inline advance(at, number)
{
	i = slot_of(at, number);
	if
#ifdef MUTANT_OLDER_OPENS
	:: slot[i].block != (number) ->
#else
	:: slot[i].block == NONE || slot[i].block < (number) ->
#endif
		if
		:: slot[i].block != NONE && place[at].block == slot[i].block -> free_place(at)
		:: else
		fi;
		slot[i].block = (number);
		slot[i].seen = 0;
		slot[i].evicted = 0;
		slot[i].over = 0
	:: else
	fi
}

/* Data of `ranks` is combined with the entry of the block `number`, which is there, or the
 * place is free. */
inline combine(at, number, ranks, bad)
{
	if
	:: place[at].block == (number) ->
		place[at].spoiled = place[at].spoiled || (bad) || (place[at].set & (ranks)) != 0;
		place[at].set = place[at].set | (ranks)
	:: else ->
		place[at].block = (number);
		place[at].set = (ranks);
		place[at].spoiled = (bad)
	fi
}

inline complete()
{
	sum_is_exact = place[ROOT].block == v && place[ROOT].set == ALL_RANKS &&
		!place[ROOT].spoiled;
	assert(sum_is_exact);
	table_bits[v] = 2 * epoch + 1;
	by_table = by_table | 1 << v;
	free_place(ROOT);
#ifdef MUTANT_DONE_FORGOTTEN
	slot[i].seen = 0;
#else
	slot[i].over = 1;
#endif
	if
	:: recovering && generous ->
		for (g : 0 .. HOSTS - 1) {
			take_of_table(g, v)
		}
	:: else
	fi
}

/* Data of the ranks s of the block v comes to the root. */
inline root_receive()
{
	advance(ROOT, v);
	if
	:: slot[i].block != v || slot[i].over || contains(slot[i].seen, s) -> skip
#ifndef MUTANT_PARTLY_SEEN
	:: !contains(slot[i].seen, s) && (slot[i].seen & s) != 0 -> skip
#endif
	:: else ->
		if
		:: place[ROOT].block != NONE && place[ROOT].block != v -> evict_at_root()
		:: else
		fi;
		i = slot_of(ROOT, v);
		slot[i].seen = slot[i].seen | s;
		combine(ROOT, v, s, spoilt);
		if
		:: slot[i].seen == ALL_RANKS && slot[i].evicted ->
			send_home();
			free_place(ROOT)
		:: slot[i].seen == ALL_RANKS && !slot[i].evicted -> complete()
		:: else
		fi
	fi
}

/* QUERY of the block v. */
inline query_at_root()
{
	check_query(v);
	advance(ROOT, v);
	if
	:: slot[i].block == v && !slot[i].over ->
#ifdef MUTANT_QUERY_COPIES
		if
		:: place[ROOT].block == v -> send_home()
		:: else
		fi
#else
		mark(v);
		if
		:: place[ROOT].block == v ->
			send_home();
			free_place(ROOT)
		:: else
		fi
#endif
	:: else
	fi
}

/* ---- the leaf */

#if LEAVES
inline send_up()
{
	v = place[LEAF].block;
	s = place[LEAF].set;
	spoilt = place[LEAF].spoiled;
	free_place(LEAF);
	if
	:: recovering -> root_receive()
	:: else ->
		up[v] = up[v] | 1 << s;
		spoiled_up = spoiled_up | spoilt << v
	fi
#ifdef MUTANT_SEEN_CLEARED
	;
	slot[slot_of(LEAF, v)].seen = 0
#endif
}

/* Data of the ranks ls of the block lv comes to the leaf. */
inline leaf_receive()
{
	advance(LEAF, lv);
	if
	:: slot[i].block != lv || contains(slot[i].seen, ls) -> skip
	:: else ->
		if
		:: place[LEAF].block != NONE && place[LEAF].block != lv -> send_up()
		:: else
		fi;
		i = slot_of(LEAF, lv);
		slot[i].seen = slot[i].seen | ls;
		combine(LEAF, lv, ls, lspoilt);
		if
		:: slot[i].seen == LEAF_RANKS -> send_up()
		:: else
		fi
	fi
}
#endif

/* The data of rank x of the block b comes to its switch. */
inline tree_receive()
{
	if
#if LEAVES
	:: leaf_has(x) ->
		lv = b;
		ls = 1 << x;
		lspoilt = false;
		leaf_receive()
#endif
	:: !leaf_has(x) ->
		note(x, b);
		v = b;
		s = 1 << x;
		spoilt = false;
		root_receive()
	fi
}

/* The entry of the switch a is evicted, or times out. */
inline evict()
{
	if
	:: a == ROOT && place[ROOT].block != NONE -> evict_at_root()
#if LEAVES
	:: a == LEAF && place[LEAF].block != NONE -> send_up()
#endif
	:: else
	fi
}

/* ---- sending */

/* A rank sends the last block with all other results only. */
#ifdef MUTANT_ENDS_EARLY
#define may_send(rank) (sent[rank] < BLOCKS && sent[rank] < w + MAY_BE_AHEAD)
#else
#define may_send(rank) (sent[rank] < BLOCKS && sent[rank] < w + MAY_BE_AHEAD && \
	(sent[rank] < BLOCKS - 1 || w >= BLOCKS - 1))
#endif

/* Rank x sends its next block, b, if it has no result of it from an earlier run. Then the home host
 * may be ready. */
inline send()
{
	b = sent[x];
	sent[x] = b + 1;
	if
#ifndef MUTANT_SENDS_KNOWN
	:: is_in(has[x], b) -> skip
#endif
	:: else ->
		given[x] = given[x] | 1 << b;
		if
		:: recovering && generous -> tree_receive()
		:: else
		fi;
		if
		:: home(b) == x ->
			hv = b;
			make_result()
		:: else
		fi
	fi
}

/* ---- the ends of histories */

inline forget_flight()
{
	for (k : 0 .. HOSTS - 1) {
		given[k] = 0
	}
	for (k : 0 .. BLOCKS - 1) {
		up[k] = 0;
		down[k] = 0
	}
	by_table = 0;
	k = 0
}

/* Every rank goes on from the oldest block that it has no result of. */
inline lose_run()
{
	epoch++;
#ifndef MUTANT_ANY_RUN
	forget_flight();
#endif
	spoiled_up = 0;
	spoiled_down = 0;
	for (k : 0 .. SWITCHES * SLOTS - 1) {
		slot[k].block = NONE;
		slot[k].seen = 0;
		slot[k].evicted = 0;
		slot[k].over = 0
	}
#ifndef MUTANT_ENTRY_SURVIVES
	for (k : 0 .. SWITCHES - 1) {
		free_place(k)
	}
#endif
	for (k : 0 .. HOSTS - 1) {
		find_oldest(k);
		sent[k] = w;
		committed[k] = 0
	}
#ifndef MUTANT_SUM_SURVIVES
	for (k : 0 .. HOMES * SLOTS - 1) {
		entry[k].block = NONE;
		entry[k].set = 0;
		entry[k].spoiled = false
	}
#endif
	e = BLOCKS;
	for (k : 0 .. HOSTS - 1) {
		find_oldest(k);
		if
		:: w < e -> e = w
		:: else
		fi
	}
	begin_notes(e);
	k = 0; w = 0
}

/* Rank k asks for its oldest block w; if that is its own it asks for itself. What follows
 * is not lost. */
inline overdue()
{
	hv = w;
	if
#ifdef MUTANT_NO_REPEAT
	:: is_in(has[home(hv)], hv) -> skip
#else
	:: is_in(has[home(hv)], hv) ->
		note_result(home(hv), hv);
		take(k, hv, bits[hv])
#endif
	:: !is_in(has[home(hv)], hv) && sent[home(hv)] > hv ->
		v = w;
		query_at_root();
#ifndef MUTANT_NO_ASK
		x = 0;
		do
		:: x < HOSTS ->
			hv = w;
			e = entry_of(hv);
			if
			:: x != home(hv) && sent[x] > hv && !has_gone(x) &&
				!is_in(has[home(hv)], hv) &&
				!(entry[e].block == hv && is_in(entry[e].set, x)) -> asked()
			:: else
			fi;
			x++
		:: else -> break
		od;
		x = 0
#else
		skip
#endif
	:: else
	fi
}

inline fire_timers()
{
	for (a : 0 .. SWITCHES - 1) {
		if
#if LEAVES
		:: a == 0 && place[LEAF].block != NONE -> send_up()
		:: a == 1 && place[ROOT].block != NONE -> evict_at_root()
#else
		:: place[ROOT].block != NONE -> evict_at_root()
#endif
		:: else
		fi
	}
	a = 0
}

/* Nothing is lost any more. */
inline recover()
{
	d_step { recovering = true; forget_flight() }
	do
	:: true ->
		d_step {
			moved = false;
			x = 0;
			do
			:: x < HOSTS ->
				find_oldest(x);
				if
				:: may_send(x) ->
					moved = true;
					send()
				:: else -> x++
				fi
			:: else -> break
			od;
			x = 0
		}
		d_step { fire_timers() }
		d_step {
			for (k : 0 .. HOSTS - 1) {
				find_oldest(k);
				if
				:: w < BLOCKS && !has_gone(home(w)) -> overdue()
				:: else
				fi
			}
		}
		/* Who lacks only the last result goes, if those who have it have gone. */
		d_step {
			y = 0;
			for (k : 0 .. HOSTS - 1) {
				find_oldest(k);
				y = y + (w == BLOCKS ||
					(w == BLOCKS - 1 && !moved && somebody_has_gone))
			}
			timers_help = moved || y == HOSTS;
			assert(timers_help)
		}
		if
		:: y == HOSTS -> break
		:: else
		fi
	od;
	skip;
	d_step {
		fire_timers();
		for (k : 0 .. SWITCHES - 1) {
			table_is_empty = place[k].block == NONE;
			assert(table_is_empty)
		}
		k = 0
	}
}

/* ---- what a step is about */

#define SEND 1
#define TO_SWITCH 2
#define TO_ROOT 3
#define TO_HOME 4
#define EVICT 5
#define QUERY 6
#define ASK 7
#define DATA 8
#define RESULT 9
#define HOME_RESULT 10
#define LOSE_RUN 11

inline pick(variable, end)
{
	variable = 0;
	do
	:: variable + 1 < end -> variable++
	:: break
	od
}

/* A rank has sent the block: its home host may ask for it. */
#if HOSTS == 2
#define is_sent(block) (sent[0] > (block) || sent[1] > (block))
#else
#define is_sent(block) (sent[0] > (block) || sent[1] > (block) || sent[2] > (block) || \
	sent[HOSTS - 1] > (block))
#endif

init
{
	d_step {
		for (k : 0 .. SWITCHES * SLOTS - 1) {
			slot[k].block = NONE
		}
		for (k : 0 .. SWITCHES - 1) {
			free_place(k)
		}
		for (k : 0 .. HOMES * SLOTS - 1) {
			entry[k].block = NONE
		}
		begin_notes(0);
		k = 0
	}
	do
	:: atomic {
		if
		:: event = SEND; pick(h, HOSTS)
		:: event = TO_SWITCH; pick(b, BLOCKS); pick(h, HOSTS)
#if LEAVES
		:: event = TO_ROOT; pick(b, BLOCKS); pick(a, ALL_RANKS); a++
#endif
		:: event = TO_HOME; pick(b, BLOCKS); pick(a, ALL_RANKS); a++
		:: event = EVICT; pick(a, SWITCHES)
		:: event = QUERY; pick(b, BLOCKS)
		:: event = ASK; pick(b, BLOCKS); pick(h, HOSTS)
		:: event = DATA; pick(b, BLOCKS); pick(h, HOSTS)
		:: event = RESULT; pick(b, BLOCKS); pick(h, HOSTS)
		:: event = HOME_RESULT; pick(b, BLOCKS); pick(h, HOSTS)
		:: epoch < LOSSES -> event = LOSE_RUN
		fi;
		if
		:: event == SEND ->
			d_step {
				find_oldest(h);
				x = h;
				if
				:: may_send(x) -> send()
				:: else
				fi
			}
		:: event == TO_SWITCH && is_in(given[h], b) -> d_step { x = h; tree_receive() }
#if LEAVES
		:: event == TO_ROOT && is_in(up[b], a) ->
			d_step { v = b; s = a; spoilt = is_in(spoiled_up, b); root_receive() }
#endif
		:: event == TO_HOME && is_in(down[b], a) ->
			d_step { hv = b; hs = a; hspoilt = is_in(spoiled_down, b); home_receive() }
		:: event == EVICT -> d_step { evict() }
		:: event == QUERY && is_sent(b) -> d_step { v = b; query_at_root() }
		:: event == ASK && h != home(b) && sent[h] > b -> d_step { x = h; hv = b; asked() }
		:: event == DATA && is_in(committed[h], b) ->
			d_step { note_data(h, b); hv = b; hs = 1 << h; hspoilt = false; home_receive() }
		:: event == RESULT && is_in(by_table, b) -> d_step { take_of_table(h, b) }
		:: event == HOME_RESULT && is_in(has[home(b)], b) ->
			d_step { note_result(home(b), b); take(h, b, bits[b]) }
		:: event == LOSE_RUN -> d_step { lose_run() }
		:: else
		fi;
		event = 0; h = 0; b = 0; a = 0
	   }
	:: break
	od;
	if
	:: generous = true
	:: skip
	fi;
	atomic { recover() }
}
