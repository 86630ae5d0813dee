/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The window protocol between hosts and one switch (LEVELS 1), or a root switch with two leaf switches (LEVELS 2). README.md
 * says which step stands for which function of the code; run.sh gives the sizes, and sees to it that every MUTANT_ is caught.
 *
 * A block is counted from BASE without end; what travels is number(block), which wraps around in the middle of a run. Only
 * the properties and the sums know the count, the protocol decides by numbers alone.
 *
 * The network is one of two:
 * UNBOUNDED  What was sent once can be delivered at any time, any number of times, or never. After any such history all that
 *            is in flight may vanish and the network be perfect from then on; the hosts' timers must do the rest.
 * else       A link is a bag. LOSSES packets vanish, DUPLICATES are delivered and stay, PREMATURE ones are sent again while
 *            the first is still on its way, in any combination; timers fire when no packet is left.
 */
#define BASE (2 * W)
#define END (BASE + BLOCKS)

/* Of two numbers less than half of them apart it can be told which is later: more than any packet lives. */
#ifdef MUTANT_FEW_NUMBERS
#define NUMBERS (8 * W)
#else
#define NUMBERS 32
#endif
#define number(block) ((block + 4 * NUMBERS - 4 * W) & (NUMBERS - 1))
#define distance(to, from) ((number(to) - number(from)) & (NUMBERS - 1))
#ifdef MUTANT_PLAIN_COMPARISON
#define before(a, b) (number(a) < number(b))
#else
#define before(a, b) (distance(a, b) >= NUMBERS / 2)
#endif

#ifdef MUTANT_HALF_SLOTS
#define SLOTS W
#else
#define SLOTS (2 * W)
#endif

/* A host may use a smaller window than the job's: host 0 does. */
#ifndef WINDOW_0
#define WINDOW_0 W
#endif
#ifdef MUTANT_EARLY_SEND
#define window(host) (2 * W)
#else
#define window(host) (host == 0 -> WINDOW_0 : W)
#endif
#define MAX_LANES (2 * W)

/* A link has the name of the child at its lower end: the hosts, then leaf switch 1 with the hosts below LEFT, and leaf 2. */
#define ROOT 0
#define LEFT ((HOSTS + 1) / 2)
#define leaf_link(s) (HOSTS + s - 1)
#if LEVELS == 1
#define LINKS HOSTS
#define SWITCHES 1
#else
#define LINKS (HOSTS + 2)
#define SWITCHES 3
#endif

/* Sets of hosts, links and blocks are bitmaps. */
#define bit_of(block) (1 << (block - BASE))
#define ALL_HOSTS ((1 << HOSTS) - 1)

/* Hosts: each lane's block in work, END or more when there is none left. */
byte lane[HOSTS * MAX_LANES];
short finished[HOSTS];
byte left = HOSTS * BLOCKS;

/* Switches. */
mtype = { OPEN, SENT_UP, DONE };
typedef Slot {
	byte block;   /* the current one */
	byte present; /* links whose contribution is in */
	mtype state;
	byte sum;     /* hosts whose data is in */
	bool spoiled; /* ... with any of it twice, or of another block */
};
Slot slot[SWITCHES * SLOTS];

/* Packets on each link, by block: contributions without and with RETRANSMIT, and results. */
short sent[LINKS];
short resent[LINKS];
short result[LINKS];
/* Those whose data is wrong. Once there is one on a link, all of this block and link count as wrong. */
short spoiled_up[LINKS];
short spoiled_result[LINKS];

/* The packet that this step is about: its link, block (counted from 0), flag, and whether it is a duplicate. */
byte link;
byte at;
bool retransmit;
bool stays;

/* The timers have fired, and no host got a result and no packet was lost since. */
bool rested;

#ifdef UNBOUNDED
hidden byte recovering;
#else
#define recovering true
byte losses = LOSSES;
byte duplicates = DUPLICATES;
byte premature = PREMATURE;
#endif

/* No part of a state: constant from the start on ... */
hidden byte parent[LINKS];      /* switch at the upper end */
hidden byte hosts_below[LINKS]; /* whose data comes up */
hidden byte children[SWITCHES]; /* links */

/* ... or set in the step that reads them. */
hidden byte s, i, b, h, l, c, oldest;

/* The properties, so that the verifier tells which one fails. */
hidden byte sum_is_exact, result_is_in_order, slot_is_free, never_refused, timers_help, slots_are_finished;

/* ---- what a switch sends */

inline send_up(from, which, again, spoilt)
{
	if
	:: again && recovering -> resent[from] = resent[from] | bit_of(which)
	:: else -> sent[from] = sent[from] | bit_of(which)
	fi;
	if
	:: spoilt -> spoiled_up[from] = spoiled_up[from] | bit_of(which)
	:: else
	fi
}

inline send_result(to)
{
	result[to] = result[to] | bit_of(slot[i].block);
	if
	:: slot[i].spoiled || slot[i].sum != ALL_HOSTS ->
		spoiled_result[to] = spoiled_result[to] | bit_of(slot[i].block)
	:: else
	fi
}

inline finish_block()
{
	printf("switch %d: block %d is done\n", s, slot[i].block);
	slot[i].state = DONE;
	for (c : 0 .. LINKS - 1) {
		if
		:: children[s] >> c & 1 -> send_result(c)
		:: else
		fi
	}
}

inline pass_up(repeat)
{
	printf("leaf %d: block %d goes up, repeated: %d\n", s, slot[i].block, repeat);
	send_up(leaf_link(s), slot[i].block, repeat,
		(slot[i].spoiled || slot[i].sum != hosts_below[leaf_link(s)]))
}

/* ---- what a switch receives */

inline merge(spoilt)
{
	slot[i].spoiled = slot[i].spoiled || spoilt || slot[i].block != b || slot[i].sum & hosts_below[link];
	slot[i].sum = slot[i].sum | hosts_below[link];
	slot[i].present = slot[i].present | 1 << link;
	if
	:: slot[i].present != children[s]
	:: slot[i].present == children[s] && s == ROOT -> finish_block()
	:: slot[i].present == children[s] && s != ROOT ->
		slot[i].state = SENT_UP;
		pass_up(false)
	fi
}

/* No host that this switch serves waits for the result in the slot. */
inline check_slot_is_free()
{
#ifndef WITHOUT_SLOT_CHECK
	for (h : 0 .. HOSTS - 1) {
		slot_is_free = slot[i].block < BASE || finished[h] & bit_of(slot[i].block) ||
			(s != ROOT && parent[h] != s);
		assert(slot_is_free)
	}
#else
	skip
#endif
}

inline begin_block(spoilt)
{
	check_slot_is_free();
	printf("switch %d: block %d takes the slot of block %d\n", s, b, slot[i].block);
	slot[i].block = b;
	slot[i].state = OPEN;
#ifndef MUTANT_PRESENT_STAYS
	slot[i].present = 0;
#endif
	slot[i].sum = 0;
	slot[i].spoiled = false;
	merge(spoilt)
}

inline contribution_to_current(spoilt)
{
	if
	:: slot[i].state == OPEN ->
		if
#ifndef MUTANT_NO_BITMAP
		:: slot[i].present >> link & 1 -> skip /* PENDING */
#endif
		:: else -> merge(spoilt)
		fi
	:: slot[i].state == SENT_UP && retransmit ->
#ifdef MUTANT_LEAF_ANSWERS
		send_result(link)
#endif
#ifndef MUTANT_NO_REPEAT_UP
		pass_up(true)
#else
		skip
#endif
	:: slot[i].state == DONE && retransmit && slot[i].present != 0 ->
#ifndef MUTANT_NO_REPEAT
		send_result(link)
#else
		skip
#endif
	:: else
	fi
}

inline contribution_to_other(spoilt)
{
	if
#if !defined(MUTANT_ANY_BLOCK) && !defined(MUTANT_NO_STALE_CHECK)
	:: before(b, slot[i].block) -> skip
#endif
	:: else ->
#if !defined(MUTANT_ANY_BLOCK) && !defined(MUTANT_ANY_NEWER)
		never_refused = slot[i].state == DONE && distance(b, slot[i].block) == SLOTS;
		assert(never_refused);
#endif
		begin_block(spoilt)
	fi
}

inline switch_receive(spoilt)
{
	s = parent[link];
	b = BASE + at;
	i = s * SLOTS + (number(b) & (SLOTS - 1));
	if
	:: number(b) == number(slot[i].block) -> contribution_to_current(spoilt)
	:: else -> contribution_to_other(spoilt)
	fi
}

inline leaf_receive_result(spoilt)
{
	s = link - HOSTS + 1;
	b = BASE + at;
	i = s * SLOTS + (number(b) & (SLOTS - 1));
	if
#ifdef MUTANT_LEAF_TAKES_ANY
	:: slot[i].state == SENT_UP ->
#else
	:: slot[i].state == SENT_UP && number(b) == number(slot[i].block) ->
#endif
		slot[i].sum = ALL_HOSTS;
		slot[i].spoiled = spoilt || slot[i].block != b;
		finish_block()
	:: else
	fi
}

/* ---- hosts */

inline host_receive(spoilt)
{
	b = BASE + at;
	l = link * MAX_LANES + (number(b) & (window(link) - 1));
	if
#ifdef MUTANT_ANY_RESULT
	:: lane[l] < END ->
#else
	:: lane[l] < END && number(b) == number(lane[l]) ->
#endif
		printf("host %d: has the result of block %d\n", link, b);
		sum_is_exact = !spoilt && lane[l] == b;
		assert(sum_is_exact);
#ifndef WITHOUT_ORDER_CHECK
		result_is_in_order = (finished[link] & bit_of(b)) == 0 &&
			(b - BASE < W || finished[link] & bit_of(b - W));
		assert(result_is_in_order);
#endif
		finished[link] = finished[link] | bit_of(b);
		left--;
		rested = false;
		lane[l] = lane[l] + window(link);
		if
		:: lane[l] < END -> send_up(link, lane[l], false, false)
		:: else
		fi
	:: else
	fi
}

/* Silence: every host asks for its oldest block again, and that must bring a result to one of them at least. */
inline timers_fire()
{
	timers_help = !rested;
	assert(timers_help);
	rested = true;
	for (h : 0 .. HOSTS - 1) {
		oldest = END;
		for (l : h * MAX_LANES .. h * MAX_LANES + window(h) - 1) {
			if
#ifdef MUTANT_PROBES_NEWEST
			:: lane[l] < END && (oldest == END || lane[l] > oldest) -> oldest = lane[l]
#else
			:: lane[l] < oldest -> oldest = lane[l]
#endif
			:: else
			fi
		}
		if
		:: oldest < END ->
			printf("host %d: asks again for block %d\n", h, oldest);
#ifdef MUTANT_NO_FLAG
			sent[h] = sent[h] | bit_of(oldest)
#else
			resent[h] = resent[h] | bit_of(oldest)
#endif
		:: else
		fi
	}
}

/* ---- start and end */

inline connect(child, to, hosts)
{
	parent[child] = to;
	hosts_below[child] = hosts;
	children[to] = children[to] | 1 << child
}

inline topology_make()
{
#if LEVELS == 1
	for (h : 0 .. HOSTS - 1) {
		connect(h, ROOT, 1 << h)
	}
#else
	for (h : 0 .. HOSTS - 1) {
		connect(h, (h < LEFT -> 1 : 2), 1 << h)
	}
	connect(leaf_link(1), ROOT, children[1]);
	connect(leaf_link(2), ROOT, children[2])
#endif
}

/* What a slot holds is the block before its first one: done, and nobody's. */
inline slots_reset()
{
	for (s : 0 .. SWITCHES - 1) {
		for (b : BASE - SLOTS .. BASE - 1) {
			i = s * SLOTS + (number(b) & (SLOTS - 1));
			slot[i].block = b;
			slot[i].state = DONE
		}
	}
}

inline hosts_start()
{
	for (h : 0 .. HOSTS - 1) {
		for (b : BASE .. BASE + window(h) - 1) {
			lane[h * MAX_LANES + (number(b) & (window(h) - 1))] = b;
			if
			:: b < END -> send_up(h, b, false, false)
			:: else
			fi
		}
	}
}

inline start()
{
	topology_make();
	slots_reset();
	hosts_start()
}

inline check_slots_are_finished()
{
	for (i : 0 .. SWITCHES * SLOTS - 1) {
		slots_are_finished = slot[i].state == DONE && slot[i].block >= END - SLOTS;
		assert(slots_are_finished)
	}
}

/* ---- the network; a set is sent, resent or result */

#if LINKS == 2
#define in_flight(set) (set[0] != 0 || set[1] != 0)
#define pick_link(set) if :: set[0] != 0 -> link = 0 :: set[1] != 0 -> link = 1 fi
#elif LINKS == 3
#define in_flight(set) (set[0] != 0 || set[1] != 0 || set[2] != 0)
#define pick_link(set) \
	if :: set[0] != 0 -> link = 0 :: set[1] != 0 -> link = 1 :: set[2] != 0 -> link = 2 fi
#elif LINKS == 4
#define in_flight(set) (set[0] != 0 || set[1] != 0 || set[2] != 0 || set[3] != 0)
#define pick_link(set) \
	if :: set[0] != 0 -> link = 0 :: set[1] != 0 -> link = 1 :: set[2] != 0 -> link = 2 \
	:: set[3] != 0 -> link = 3 fi
#elif LINKS == 5
#define in_flight(set) (set[0] != 0 || set[1] != 0 || set[2] != 0 || set[3] != 0 || set[4] != 0)
#define pick_link(set) \
	if :: set[0] != 0 -> link = 0 :: set[1] != 0 -> link = 1 :: set[2] != 0 -> link = 2 \
	:: set[3] != 0 -> link = 3 :: set[4] != 0 -> link = 4 fi
#endif

#define pick_block(set) \
	if \
	:: set[link] >> 0 & 1 -> at = 0 :: set[link] >> 1 & 1 -> at = 1 \
	:: set[link] >> 2 & 1 -> at = 2 :: set[link] >> 3 & 1 -> at = 3 \
	:: set[link] >> 4 & 1 -> at = 4 :: set[link] >> 5 & 1 -> at = 5 \
	:: set[link] >> 6 & 1 -> at = 6 :: set[link] >> 7 & 1 -> at = 7 \
	:: set[link] >> 8 & 1 -> at = 8 :: set[link] >> 9 & 1 -> at = 9 \
	:: set[link] >> 10 & 1 -> at = 10 :: set[link] >> 11 & 1 -> at = 11 \
	fi

/* Any packet of a set; can't be executed if there is none. */
#define pick(set) in_flight(set) -> pick_link(set); pick_block(set)

#define take(set) if :: stays :: else -> set[link] = set[link] & ~(1 << at) fi

/* A d_step must not end with a loop, hence the `skip` behind some below. */
#define QUIET (!(in_flight(sent) || in_flight(resent) || in_flight(result)))

/* Nothing of a step is left to tell states apart. */
inline step_end()
{
	link = 0;
	at = 0;
	retransmit = false;
	stays = false
}

inline deliver_contribution()
{
	if
	:: retransmit -> take(resent)
	:: else -> take(sent)
	fi;
	switch_receive((spoiled_up[link] >> at & 1));
	step_end()
}

inline deliver_result()
{
	take(result);
	if
	:: link < HOSTS -> host_receive((spoiled_result[link] >> at & 1))
	:: else -> leaf_receive_result((spoiled_result[link] >> at & 1))
	fi;
	step_end()
}

#ifdef UNBOUNDED

/* In flight are all packets that were sent so far, each also as a retransmission: a timer may fire at any time. */
inline lose_everything()
{
	printf("all packets are lost\n");
	for (c : 0 .. LINKS - 1) {
		sent[c] = 0;
		result[c] = 0
	}
}

inline recover()
{
	lose_everything();
	recovering = true;
	do
	:: pick(sent); deliver_contribution()
	:: pick(resent); retransmit = true; deliver_contribution()
	:: pick(result); deliver_result()
	:: QUIET && left > 0 -> timers_fire()
	:: QUIET && left == 0 -> break
	od;
	recovering = false;
	check_slots_are_finished()
}

active proctype network()
{
	d_step { start(); skip }
	do
	:: atomic { pick(sent); d_step { stays = true; retransmit = true; deliver_contribution() } }
	:: atomic { pick(result); d_step { stays = true; deliver_result() } }
	:: d_step { recover(); skip } -> break
	od
}

#else

inline may_stay()
{
	if
	:: true
	:: duplicates > 0 -> duplicates--; stays = true
	fi
}

#define lose(set) d_step { printf("a packet is lost\n"); take(set); losses--; rested = false; step_end() }

#define working(host, n) lane[host * MAX_LANES + n] >= BASE && lane[host * MAX_LANES + n] < END

/* Any block that a host waits for. */
inline pick_lane()
{
	if
	:: working(0, 0) -> link = 0; at = lane[0] - BASE
	:: working(1, 0) -> link = 1; at = lane[MAX_LANES] - BASE
#if HOSTS > 2
	:: working(2, 0) -> link = 2; at = lane[2 * MAX_LANES] - BASE
#endif
#if W > 1
	:: working(0, 1) -> link = 0; at = lane[1] - BASE
	:: working(1, 1) -> link = 1; at = lane[MAX_LANES + 1] - BASE
#if HOSTS > 2
	:: working(2, 1) -> link = 2; at = lane[2 * MAX_LANES + 1] - BASE
#endif
#endif
	fi
}

active proctype network()
{
	d_step { start(); skip }
	do
	:: atomic { pick(sent); may_stay(); d_step { deliver_contribution() } }
	:: atomic { pick(resent); retransmit = true; may_stay(); d_step { deliver_contribution() } }
	:: atomic { pick(result); may_stay(); d_step { deliver_result() } }
	:: atomic {
		losses > 0 && !QUIET ->
		if
		:: pick(sent); lose(sent)
		:: pick(resent); lose(resent)
		:: pick(result); lose(result)
		fi
	}
	:: atomic {
		premature > 0 && left > 0 -> pick_lane();
		d_step { resent[link] = resent[link] | 1 << at; premature--; step_end() }
	}
	:: d_step { QUIET && left > 0 -> timers_fire(); skip }
	:: d_step { QUIET && left == 0 -> check_slots_are_finished(); skip } -> break
	od
}

#endif
