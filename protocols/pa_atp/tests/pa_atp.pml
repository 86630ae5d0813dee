/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * PA-ATP (protocols/pa_atp/README.md): HOSTS hosts, an aggregating switch with AGGREGATORS
 * aggregators, which another job uses, too, and a server with 2W entries. README.md says which step
 * stands for which function of the code; run.sh gives the sizes, and sees to it that every MUTANT_
 * is caught.
 *
 * The network is the unbounded one of window.pml: what was sent once can be delivered at any time,
 * any number of times, or never, as long as its run lasts. Packets without data are not there: what
 * they cause may happen at any time. A QUERY, a FLUSH, a contribution with RETRANSMIT and the end
 * of an aggregator's time flush it, and split the block, also if no aggregator has it; an ASK makes
 * a host send its data again. A sum that was sent is given up at any time.
 * After any such history all that is in flight vanishes and the network is perfect from then on;
 * the hosts' queries must do the rest.
 *
 * The run is lost at most LOSSES times, with all that the switch and the server have. How hosts
 * agree on the next one is in recovery.pml.
 */
#ifdef MUTANT_HALF_ENTRIES
#define ENTRIES W
#else
#define ENTRIES (2 * W)
#endif
#define NONE 255
#define ALL_HOSTS ((1 << HOSTS) - 1)
#define SETS (1 << HOSTS)

#ifdef MUTANT_EARLY_SEND
#define MAY_BE_AHEAD (2 * W)
#else
#define MAY_BE_AHEAD W
#endif

/* Hosts. Sets of blocks are bitmaps. */
byte sent[HOSTS];  /* blocks before this one were sent in this run */
short done[HOSTS]; /* blocks whose result has come in this run, or that were before it */
short old[HOSTS];  /* ... in an earlier one */

/* The aggregating switch. */
mtype = { EMPTY, OTHERS, MERGING, SENT };
typedef Aggregator {
	mtype state;
	byte block;
	byte set;
	bool spoiled; /* data of a host is in it twice, or changed */
};
Aggregator aggregator[AGGREGATORS];
byte progress; /* of the job, as far as the switch knows */
short split;   /* blocks of which data of some hosts went to the server */

/* The server. */
typedef Entry {
	byte block;
	byte set;
	bool spoiled;
	bool finished;
};
Entry entry[ENTRIES];

/* In flight: hosts' contributions by block, PARTIALs to the server by block and set,
 * KNOWN, RESULT. */
short contributed[HOSTS];
byte part[BLOCKS];
short spoiled_part;
short told;
short published;

/* Runs. A result's bits are those of the run in which it was computed, plus 1. */
byte epoch;
byte bits[BLOCKS];     /* that some host has accepted */
byte computed[BLOCKS]; /* of what is published */

byte h, b, a;
bool recovering;

/* Set in the step that reads them. */
hidden byte g, i, k, v, w, s, x, y, e, least;
hidden byte moved, changed;

/* The properties, so that the verifier tells which one fails. */
hidden byte sum_is_exact, same_everywhere, entry_is_free, timers_help;

#define is_in(bitmap, block) (bitmap >> (block) & 1)
#define contains(set, part) ((set & (part)) == (part))

/* The oldest block that a host has no result of in this run, in w. */
inline find_oldest(host)
{
	w = 0;
	do
	:: w < BLOCKS && is_in(done[host], w) -> w++
	:: else -> break
	od
}

inline free_aggregator(index)
{
	aggregator[index].state = EMPTY;
	aggregator[index].block = 0;
	aggregator[index].set = 0;
	aggregator[index].spoiled = false
}

/* ---- the server */

inline host_accepts(host, block)
{
	same_everywhere = bits[block] == 0 || bits[block] == computed[block];
	assert(same_everywhere);
	bits[block] = computed[block];
	done[host] = done[host] | 1 << block
}

/* The block v is done. With a perfect network everybody gets its result, and it frees
 * the aggregator. */
inline publish()
{
	entry[e].finished = true;
	published = published | 1 << v;
	if
	:: recovering ->
		moved = true;
		for (g : 0 .. HOSTS - 1) {
			host_accepts(g, v)
		}
		if
		:: aggregator[v % AGGREGATORS].block == v &&
			aggregator[v % AGGREGATORS].state != OTHERS ->
			free_aggregator(v % AGGREGATORS)
		:: else
		fi
	:: else
	fi
}

/* Opens the entry of block v, if it is not at that or a later one. Leaves the entry's
 * index in e. */
inline open_entry()
{
	e = v % ENTRIES;
	if
	:: entry[e].block == NONE || entry[e].block < v ->
		if
		:: entry[e].block != NONE ->
			for (g : 0 .. HOSTS - 1) {
				entry_is_free = is_in(done[g], entry[e].block);
				assert(entry_is_free)
			}
		:: else
		fi;
		entry[e].block = v;
		entry[e].set = 0;
		entry[e].spoiled = false;
		entry[e].finished = false
	:: else
	fi
}

/* Data of block v of the hosts in s. */
inline server_receive()
{
	open_entry();
	if
	:: entry[e].block != v || entry[e].finished -> skip
	:: else ->
		if
#ifdef MUTANT_DUPLICATES_MERGED
		:: (entry[e].set & s) != 0 ->
			entry[e].spoiled = true;
			entry[e].set = entry[e].set | s
#else
		:: contains(entry[e].set, s) -> skip
#ifdef MUTANT_OVERLAP_MERGED
		:: (entry[e].set & s) != 0 && !contains(entry[e].set, s) ->
			entry[e].spoiled = true;
			entry[e].set = entry[e].set | s
#else
		:: !contains(entry[e].set, s) && contains(s, entry[e].set) && entry[e].set != 0 ->
			entry[e].set = s;
			entry[e].spoiled = is_in(spoiled_part, v)
		:: (entry[e].set & s) != 0 && !contains(entry[e].set, s) &&
			!contains(s, entry[e].set) -> skip
#endif
#endif
		:: (entry[e].set & s) == 0 ->
			entry[e].set = entry[e].set | s;
			entry[e].spoiled = entry[e].spoiled || is_in(spoiled_part, v)
		fi;
		if
		:: entry[e].set == ALL_HOSTS ->
			sum_is_exact = !entry[e].spoiled;
			assert(sum_is_exact);
			computed[v] = epoch + 1;
			publish()
		:: else
		fi
	fi
}

/* KNOWN of block v. */
inline server_receive_known()
{
#ifdef MUTANT_KNOWN_IGNORED
	skip
#else
	open_entry();
	if
	:: entry[e].block == v && !entry[e].finished ->
		computed[v] = bits[v];
		publish()
	:: else
	fi
#endif
}

/* ---- the aggregating switch */

/* A PARTIAL or a sum of block v, with the data of s, goes to the server. */
inline send_up(spoilt)
{
	if
	:: spoilt -> spoiled_part = spoiled_part | 1 << v
	:: else
	fi;
	if
	:: recovering -> server_receive()
	:: else -> part[v] = part[v] | 1 << s
	fi
}

/* Of the aggregator i. */
inline flush()
{
	v = aggregator[i].block;
	s = aggregator[i].set;
	split = split | 1 << v;
	changed = aggregator[i].spoiled;
	free_aggregator(i);
	send_up(changed)
}

/* A contribution of the host x to block v, whose data is what it was if `changed` is false. */
inline switch_receive()
{
	i = v % AGGREGATORS;
	s = 1 << x;
	if
	:: v < progress -> skip
	:: v >= progress && is_in(split, v) -> send_up(changed)
	:: v >= progress && !is_in(split, v) && aggregator[i].state == MERGING &&
		aggregator[i].block == v ->
		if
#ifdef MUTANT_SWITCH_COUNTS
		:: is_in(aggregator[i].set, x) -> aggregator[i].spoiled = true
#else
		:: is_in(aggregator[i].set, x) -> skip
#endif
		:: else ->
			aggregator[i].set = aggregator[i].set | s;
			aggregator[i].spoiled = aggregator[i].spoiled || changed;
			if
			:: aggregator[i].set == ALL_HOSTS ->
				aggregator[i].state = SENT;
				s = ALL_HOSTS;
				changed = aggregator[i].spoiled;
				send_up(changed)
			:: else
			fi
		fi
	:: v >= progress && !is_in(split, v) && aggregator[i].state == SENT &&
		aggregator[i].block == v -> skip
	:: v >= progress && !is_in(split, v) && aggregator[i].state == EMPTY ->
		aggregator[i].state = MERGING;
		aggregator[i].block = v;
		aggregator[i].set = s;
		aggregator[i].spoiled = changed
	:: v >= progress && !is_in(split, v) &&
		(aggregator[i].state == OTHERS ||
		 (aggregator[i].state != EMPTY && aggregator[i].block != v)) ->
		split = split | 1 << v;
		send_up(changed)
	fi
}

/* ---- hosts */

/* Host x sends block v for the first time in this run. */
inline host_sends()
{
	sent[x] = v + 1;
	changed = false;
	if
#if defined(MUTANT_OWN_DATA)
	:: is_in(old[x], v) ->
		changed = true;
		contributed[x] = contributed[x] | 1 << v;
		spoiled_part = spoiled_part | 1 << v
#elif !defined(MUTANT_COMPUTED_AGAIN)
	:: is_in(old[x], v) ->
		told = told | 1 << v;
		if
		:: recovering -> server_receive_known()
		:: else
		fi
#endif
	:: else ->
		contributed[x] = contributed[x] | 1 << v;
		if
		:: recovering -> switch_receive()
		:: else
		fi
	fi
}

/* The server asks host x for block v. */
inline host_asked()
{
	if
	:: v >= sent[x] || is_in(done[x], v) -> skip
#ifndef MUTANT_COMPUTED_AGAIN
	:: v < sent[x] && !is_in(done[x], v) && is_in(old[x], v) -> server_receive_known()
	:: v < sent[x] && !is_in(done[x], v) && !is_in(old[x], v) ->
#else
	:: v < sent[x] && !is_in(done[x], v) ->
#endif
		s = 1 << x;
		changed = false;
		send_up(changed)
	fi
}

/* Host k asks for block v. */
inline query()
{
	i = v % AGGREGATORS;
	if
	:: aggregator[i].state == MERGING && aggregator[i].block == v -> flush()
	:: aggregator[i].state == SENT && aggregator[i].block == v ->
		s = ALL_HOSTS;
		changed = aggregator[i].spoiled;
		send_up(changed)
	:: else -> split = split | 1 << v
	fi;
	e = v % ENTRIES;
	if
#ifndef MUTANT_NO_REPEAT
	:: entry[e].block == v && entry[e].finished ->
		if
		:: !is_in(done[k], v) ->
			host_accepts(k, v);
			moved = true
		:: else
		fi
#endif
	:: !(entry[e].block == v && entry[e].finished) ->
		x = 0;
#ifndef MUTANT_NO_ASK
		do
		:: x < HOSTS ->
			/* With each answer the block may be done, and with it the others'
			 * need to answer. */
			e = v % ENTRIES;
			if
			:: entry[e].block == v &&
				(entry[e].finished || is_in(entry[e].set, x)) -> skip
			:: else -> host_asked()
			fi;
			x++
		:: else -> break
		od;
#endif
		x = 0
#ifdef MUTANT_NO_REPEAT
	:: else
#endif
	fi
}

/* ---- the ends of histories */

inline forget_flight()
{
	for (k : 0 .. HOSTS - 1) {
		contributed[k] = 0
	}
	for (k : 0 .. BLOCKS - 1) {
		part[k] = 0
	}
	told = 0;
	published = 0
}

/* All goes on from the oldest block that a host has no result of, at another switch
 * and another server. */
inline lose_run()
{
	epoch++;
	least = BLOCKS;
	for (k : 0 .. HOSTS - 1) {
		old[k] = old[k] | done[k];
		v = 0;
		do
		:: v < BLOCKS && is_in(old[k], v) -> v++
		:: else -> break
		od;
		if
		:: v < least -> least = v
		:: else
		fi
	}
	for (k : 0 .. HOSTS - 1) {
		done[k] = (1 << least) - 1;
		sent[k] = least
	}
	forget_flight();
	spoiled_part = 0;
	split = 0;
	for (k : 0 .. AGGREGATORS - 1) {
		free_aggregator(k)
	}
	for (k : 0 .. ENTRIES - 1) {
		entry[k].block = NONE;
		entry[k].set = 0;
		entry[k].spoiled = false;
		entry[k].finished = false
	}
	progress = least;
	k = 0; v = 0; least = 0
}

/* Nothing is lost any more. */
inline recover()
{
	recovering = true;
	forget_flight();
	do
	:: true ->
		moved = false;
		for (k : 0 .. HOSTS - 1) {
			x = k;
			do
			:: true ->
				find_oldest(x);
				v = sent[x];
				if
				:: v < BLOCKS && v < w + W -> host_sends()
				:: else -> break
				fi
			od
		}
		for (k : 0 .. HOSTS - 1) {
			find_oldest(k);
			v = w;
			if
			:: v < BLOCKS -> query()
			:: else
			fi
		}
		/* A host that has all its results no longer asks. */
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

/* ---- what a step is about */

inline pick_host()
{
	if
	:: h = 0
	:: h = 1
#if HOSTS > 2
	:: h = 2
#endif
	fi
}

inline pick_block()
{
	if
	:: b = 0
#if BLOCKS > 1
	:: b = 1
#endif
#if BLOCKS > 2
	:: b = 2
#endif
#if BLOCKS > 3
	:: b = 3
#endif
#if BLOCKS > 4
	:: b = 4
#endif
	fi
}

inline pick_set()
{
	if
	:: a = 1
	:: a = 2
	:: a = 3
#if HOSTS > 2
	:: a = 4
	:: a = 5
	:: a = 6
	:: a = 7
#endif
	fi
}

inline pick_aggregator()
{
	if
	:: a = 0
#if AGGREGATORS > 1
	:: a = 1
#endif
	fi
}

init
{
	d_step {
		for (k : 0 .. ENTRIES - 1) {
			entry[k].block = NONE
		}
		for (k : 0 .. AGGREGATORS - 1) {
			free_aggregator(k)
		}
		k = 0
	}
	do
	/* A host sends the next block. */
	:: atomic {
	   pick_host();
	   d_step {
		find_oldest(h);
		if
		:: sent[h] < BLOCKS && sent[h] < w + MAY_BE_AHEAD ->
			x = h;
			v = sent[h];
			host_sends()
		:: else
		fi;
		h = 0; x = 0; v = 0; w = 0
	   }
	   }
	/* A contribution comes to the switch. */
	:: atomic {
	   pick_block();
	   pick_host();
	   d_step {
		if
		:: is_in(contributed[h], b) ->
			x = h;
			v = b;
#ifdef MUTANT_OWN_DATA
			changed = is_in(old[h], b);
#else
			changed = false;
#endif
			switch_receive()
		:: else
		fi;
		h = 0; b = 0; x = 0; v = 0; i = 0; s = 0
	   }
	   }
	/* A part of a block comes to the server. */
	:: atomic {
	   pick_block();
	   pick_set();
	   d_step {
		if
		:: is_in(part[b], a) ->
			v = b;
			s = a;
			server_receive()
		:: else
		fi;
		b = 0; a = 0; v = 0; s = 0; e = 0
	   }
	   }
	/* A host has its result, or the switch sees it pass. */
	:: atomic {
	   pick_block();
	   if
	   :: pick_host()
	   :: h = HOSTS
	   fi;
	   d_step {
		if
		:: is_in(published, b) && h < HOSTS -> host_accepts(h, b)
		:: is_in(published, b) && h == HOSTS && aggregator[b % AGGREGATORS].block == b &&
			aggregator[b % AGGREGATORS].state != OTHERS ->
			free_aggregator(b % AGGREGATORS)
		:: else
		fi;
		h = 0; b = 0
	   }
	   }
	/* The server asks a host. */
	:: atomic {
	   pick_block();
	   pick_host();
	   d_step {
		if
		:: b < sent[h] && !is_in(done[h], b) && !is_in(old[h], b) ->
			part[b] = part[b] | 1 << (1 << h)
		:: else
		fi;
		h = 0; b = 0
	   }
	   }
	/* A flush, a sum that is given up, a block that is split, and what another job does. */
	:: atomic {
	   pick_aggregator();
	   pick_block();
	   if
	   :: d_step {
		if
		:: aggregator[a].state == MERGING ->
			i = a;
			flush()
		:: aggregator[a].state == SENT -> free_aggregator(a)
		:: aggregator[a].state == EMPTY && b % AGGREGATORS == a -> split = split | 1 << b
		:: else
		fi;
		a = 0; b = 0; i = 0; v = 0; s = 0
	      }
	   :: d_step {
		if
		:: aggregator[a].state == EMPTY -> aggregator[a].state = OTHERS
		:: aggregator[a].state == OTHERS -> free_aggregator(a)
		:: else
		fi;
		a = 0; b = 0
	      }
	   fi
	   }
	/* The switch learns of a host's progress. */
	:: atomic {
	   pick_host();
	   d_step {
		find_oldest(h);
		if
		:: w > progress ->
			progress = w;
			for (k : 0 .. AGGREGATORS - 1) {
				if
				:: aggregator[k].state != EMPTY && aggregator[k].state != OTHERS &&
					aggregator[k].block < progress ->
					free_aggregator(k)
				:: else
				fi
			}
		:: else
		fi;
		h = 0; w = 0; k = 0
	   }
	   }
	/* A KNOWN comes to the server. */
	:: atomic {
	   pick_block();
	   d_step {
		if
		:: is_in(told, b) ->
			v = b;
			server_receive_known()
		:: else
		fi;
		b = 0; v = 0; e = 0
	   }
	   }
	:: d_step { epoch < LOSSES -> lose_run() }
	:: break
	od;
	skip;
	d_step {
		recover();
		k = 0
	}
}
