/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The window protocol and queries between hosts and one switch (LEVELS 1), a root switch with
 * two leaf switches (LEVELS 2), or a chain of three switches (LEVELS 3). README.md says which
 * step stands for which function of the code; run.sh gives the sizes, and sees to it that
 * every MUTANT_ is caught.
 *
 * A block is counted from BASE without end; what travels is number(block), which wraps around
 * in the middle of a run. Only the properties and the sums know the count, the protocol
 * decides by numbers alone.
 *
 * The network is one of two:
 * UNBOUNDED  What was sent once can be delivered at any time, any number of times, or never. After
 *            any such history all that is in flight may vanish and the network be perfect from
 *            then on; the hosts' queries must do the rest.
 * else       A link is a bag. LOSSES packets vanish, DUPLICATES are delivered and stay, PREMATURE
 *            queries are sent while their block is still on its way, in any combination; timers
 *            fire when no packet is left. With WINDOWS a host sends what it may send at any time
 *            or never, but for its oldest block.
 *
 * All queries say that their block is overdue, and of answers only `absent` makes anyone do
 * anything: others aren't sent.
 */
#define BASE (2 * W)
#define END (BASE + BLOCKS)

/* Of two numbers less than half of them apart it can be told which is later: more than
 * any packet lives. */
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

/* A host has a lane for each block of a window. */
#ifdef MUTANT_EARLY_SEND
#define LANES (2 * W)
#else
#define LANES W
#endif

/*
 * A link has the name of the child at its lower end: the hosts, then switches 1 and 2. With two
 * levels these are leaves, the first with the hosts below LEFT. With three, host 0 is at switch 2,
 * which is at switch 1 with host 2, if there is one.
 */
#define ROOT 0
#define LEFT ((HOSTS + 1) / 2)
#define uplink(s) (HOSTS + s - 1)
#if LEVELS == 1
#define LINKS HOSTS
#define SWITCHES 1
#else
#define LINKS (HOSTS + 2)
#define SWITCHES 3
#endif

/* Sets of hosts, links and blocks are bitmaps. */
#define bit_of(block) (1 << (block - BASE))
#define first_of_not(set) ((set + 1) & ~set)
#define ALL_HOSTS ((1 << HOSTS) - 1)

/* With the unbounded network there are queries, and smaller windows, in recovery only, which
 * is one step. */
#ifdef UNBOUNDED
#define QUERIES hidden
#else
#define QUERIES
#endif

/* Hosts: each lane's block in work, END or more when there is none left. */
byte lane[HOSTS * LANES];
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
/* Queries, and answers that the block is absent. Blocks of lanes that their hosts have
 * not sent yet. */
QUERIES short query[LINKS];
QUERIES short absent[LINKS];
QUERIES short unsent[LINKS];
/* Those whose data is wrong. Once there is one on a link, all of this block and link
 * count as wrong. */
short spoiled_up[LINKS];
short spoiled_result[LINKS];

/* The packet that this step is about: its link, block (counted from 0), flag, and whether it
 * is a duplicate. */
byte link;
byte at;
bool retransmit;
bool stays;

/* The timers have fired, and no host got a result and no packet was lost since. */
bool rested;

#ifdef UNBOUNDED
hidden byte recovering;
hidden byte narrow; /* hosts have windows that change all the time */
hidden byte turn;
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
hidden byte sum_is_exact, result_is_in_order, slot_is_free, never_refused,
	timers_help, slots_are_finished;

/* ---- what a switch sends */

inline send_up(from, which, again, spoilt)
{
	if
	:: (again || from >= HOSTS) && recovering -> resent[from] = resent[from] | bit_of(which)
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
	send_up(uplink(s), slot[i].block, repeat,
		(slot[i].spoiled || slot[i].sum != hosts_below[uplink(s)]))
}

/* ---- what a switch receives */

inline merge(spoilt)
{
	slot[i].spoiled = slot[i].spoiled || spoilt || slot[i].block != b ||
		slot[i].sum & hosts_below[link];
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
			(s != ROOT && (hosts_below[uplink(s)] >> h & 1) == 0);
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
		:: slot[i].present >> link & 1 -> skip /* answered by an ANSWER */
#endif
		:: else -> merge(spoilt)
		fi
#ifdef MUTANT_LEAF_ANSWERS
	:: slot[i].state == SENT_UP && retransmit -> send_result(link)
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

/* A query changes no slot. */
inline answer_absent()
{
	if
	:: recovering -> absent[link] = absent[link] | bit_of(b)
	:: else
	fi
}

inline query_of_current()
{
	if
	:: slot[i].state == OPEN && (slot[i].present >> link & 1) == 0 ->
#ifdef MUTANT_QUERY_OPENS
		slot[i].present = slot[i].present | 1 << link;
#endif
		answer_absent()
#ifndef MUTANT_NO_FLAG
#ifndef MUTANT_NO_PASS
	:: slot[i].state == SENT_UP ->
		if
		:: recovering -> query[uplink(s)] = query[uplink(s)] | bit_of(b)
		:: else
		fi
#endif
#ifndef MUTANT_NO_REPEAT
	:: slot[i].state == DONE && slot[i].present != 0 -> send_result(link)
#endif
#endif
	:: else
	fi
}

inline query_begins_block(claimed)
{
	slot[i].block = b;
	slot[i].state = OPEN;
	slot[i].present = claimed;
	slot[i].sum = 0;
	slot[i].spoiled = false;
	answer_absent()
}

inline switch_receive_query()
{
	s = parent[link];
	b = BASE + at;
	i = s * SLOTS + (number(b) & (SLOTS - 1));
	if
	:: number(b) == number(slot[i].block) -> query_of_current()
#ifdef MUTANT_QUERY_RESETS
	:: number(b) != number(slot[i].block) -> query_begins_block(0)
#endif
	:: else ->
		if
		:: before(b, slot[i].block) -> skip /* done */
#ifdef MUTANT_QUERY_OPENS
		:: else -> query_begins_block(1 << link)
#else
		:: else -> answer_absent()
#endif
		fi
	fi
}

/* The parent lacks the block that went up. */
inline switch_receive_absent()
{
	s = link - HOSTS + 1;
	b = BASE + at;
	i = s * SLOTS + (number(b) & (SLOTS - 1));
	if
#ifdef MUTANT_STALE_ABSENT
	:: slot[i].state != DONE -> pass_up(true)
#endif
	:: slot[i].state == SENT_UP && number(b) == number(slot[i].block) ->
#if defined(MUTANT_ABSENT_DOWN)
		for (c : 0 .. LINKS - 1) {
			if
			:: children[s] >> c & 1 -> absent[c] = absent[c] | bit_of(b)
			:: else
			fi
		}
#elif defined(MUTANT_NO_REPEAT_UP)
		skip
#else
		pass_up(true)
#endif
	:: else
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

/* A lane goes on to a block, which is sent now or when the host's window admits it. */
inline host_begin(host, which)
{
#if defined(WINDOWS)
	unsent[host] = unsent[host] | bit_of(which)
#elif defined(UNBOUNDED)
	if
	:: narrow -> unsent[host] = unsent[host] | bit_of(which)
	:: else -> send_up(host, which, false, false)
	fi
#else
	send_up(host, which, false, false)
#endif
}

inline host_receive(spoilt)
{
	b = BASE + at;
	l = link * LANES + (number(b) & (LANES - 1));
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
		lane[l] = lane[l] + LANES;
		if
		:: lane[l] < END -> host_begin(link, lane[l])
		:: else
		fi
	:: else
	fi
}

/* Also if that block is not overdue any more: the answer is of any age. */
inline host_receive_absent()
{
	b = BASE + at;
	l = link * LANES + (number(b) & (LANES - 1));
	if
#ifndef MUTANT_NO_RESEND
	:: lane[l] < END && number(b) == number(lane[l]) ->
		resent[link] = resent[link] | bit_of(lane[l])
#endif
	:: else
	fi
}

/* A lane's block is in flight, or was. */
#define was_sent(host, l) (lane[l] < END && (unsent[host] & bit_of(lane[l])) == 0)

/* Silence: every host asks for its oldest block, and that must bring a result to one of
 * them at least. */
inline timers_fire()
{
	timers_help = !rested;
	assert(timers_help);
	rested = true;
	for (h : 0 .. HOSTS - 1) {
		oldest = END;
		for (l : h * LANES .. h * LANES + LANES - 1) {
			if
#ifdef MUTANT_PROBES_NEWEST
			:: was_sent(h, l) && (oldest == END || lane[l] > oldest) -> oldest = lane[l]
#else
			:: was_sent(h, l) && lane[l] < oldest -> oldest = lane[l]
#endif
			:: else
			fi
		}
		if
		:: oldest < END ->
			printf("host %d: asks for block %d\n", h, oldest);
			query[h] = query[h] | bit_of(oldest)
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
#elif LEVELS == 2
	for (h : 0 .. HOSTS - 1) {
		connect(h, (h < LEFT -> 1 : 2), 1 << h)
	}
	connect(uplink(1), ROOT, children[1]);
	connect(uplink(2), ROOT, children[2])
#else
	for (h : 0 .. HOSTS - 1) {
		connect(h, (h == 0 -> 2 : (h == 1 -> ROOT : 1)), 1 << h)
	}
	connect(uplink(2), 1, 1);
	connect(uplink(1), ROOT, ALL_HOSTS & ~2)
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
		for (b : BASE .. BASE + LANES - 1) {
			lane[h * LANES + (number(b) & (LANES - 1))] = b;
			if
			:: b < END -> host_begin(h, b)
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

/* ---- the network; a set is sent, resent, result, query or absent */

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
#define QUIET (!(in_flight(sent) || in_flight(resent) || in_flight(result) || in_flight(query) || \
	in_flight(absent)))

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

inline deliver_query()
{
	take(query);
	switch_receive_query();
	step_end()
}

inline deliver_absent()
{
	take(absent);
	if
	:: link < HOSTS -> host_receive_absent()
	:: else -> switch_receive_absent()
	fi;
	step_end()
}

#ifdef UNBOUNDED

/*
 * In flight are all packets that were sent so far, each also as a retransmission, and queries for
 * them: a timer may fire at any time. So are answers to switches that their block was absent: it
 * was, before it arrived.
 */
inline lose_everything()
{
	printf("all packets are lost\n");
	for (c : 0 .. LINKS - 1) {
		sent[c] = 0;
		result[c] = 0
	}
}

/* Each host's window is a range of 1 to W blocks from its oldest one, another one each time. */
inline windows_open()
{
	for (h : 0 .. HOSTS - 1) {
		turn++;
		for (b : BASE .. END - 1) {
			if
			:: unsent[h] & bit_of(b) &&
			   bit_of(b) < first_of_not(finished[h]) << (1 + turn % W) ->
				unsent[h] = unsent[h] & ~bit_of(b);
				send_up(h, b, false, false)
			:: else
			fi
		}
	}
}

inline recover(windows)
{
	lose_everything();
	recovering = true;
	narrow = windows;
	turn = 0;
	do
	:: pick(sent); deliver_contribution()
	:: pick(resent); retransmit = true; deliver_contribution()
	:: pick(query); deliver_query()
	:: pick(absent); deliver_absent()
	:: pick(result); deliver_result(); windows_open()
	:: QUIET && left > 0 -> timers_fire()
	:: QUIET && left == 0 -> break
	od;
	recovering = false;
	narrow = false;
	check_slots_are_finished()
}

active proctype network()
{
	d_step { start(); skip }
	do
	:: atomic { pick(sent); d_step { stays = true; retransmit = true; deliver_contribution() } }
	:: atomic { pick(sent); d_step { stays = true; deliver_query() } }
#if LEVELS > 1
	:: atomic {
		pick(sent);
		d_step {
			stays = true;
			if
			:: link >= HOSTS -> deliver_absent()
			:: else -> step_end()
			fi
		}
	}
#endif
	:: atomic { pick(result); d_step { stays = true; deliver_result() } }
	:: d_step { recover(false); skip } -> break
#if W > 1
	:: d_step { recover(true); skip } -> break
#endif
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

#define lose(set) d_step { \
	printf("a packet is lost\n"); take(set); losses--; rested = false; step_end() }

#define working(host, n) was_sent(host, host * LANES + n)

#if defined(MUTANT_IN_FLIGHT)
/* A window of one block, whichever, in flight. */
#define in_lanes(host, n) (lane[host * LANES + n] < END -> bit_of(lane[host * LANES + n]) : 0)
#define may_send(host) (unsent[host] != 0 && \
	unsent[host] == (in_lanes(host, 0) | in_lanes(host, 1)))
#define has_to_send(host) may_send(host)
#else
/* Any window, from one block to all that have the result of their lane's last one. */
#define may_send(host) (unsent[host] != 0)
#define has_to_send(host) (unsent[host] & first_of_not(finished[host]))
#endif
#if HOSTS == 2
#define ALL_SENT (!(has_to_send(0) || has_to_send(1)))
#else
#define ALL_SENT (!(has_to_send(0) || has_to_send(1) || has_to_send(2)))
#endif

inline host_send()
{
	if
	:: may_send(link) ->
		unsent[link] = unsent[link] & ~(1 << at);
		send_up(link, BASE + at, false, false)
	:: else
	fi;
	step_end()
}

/* Any block that a host waits for. */
inline pick_lane()
{
	if
	:: working(0, 0) -> link = 0; at = lane[0] - BASE
	:: working(1, 0) -> link = 1; at = lane[LANES] - BASE
#if HOSTS > 2
	:: working(2, 0) -> link = 2; at = lane[2 * LANES] - BASE
#endif
#if W > 1
	:: working(0, 1) -> link = 0; at = lane[1] - BASE
	:: working(1, 1) -> link = 1; at = lane[LANES + 1] - BASE
#if HOSTS > 2
	:: working(2, 1) -> link = 2; at = lane[2 * LANES + 1] - BASE
#endif
#endif
	:: else -> at = BLOCKS
	fi
}

active proctype network()
{
	d_step { start(); skip }
	do
	:: atomic { pick(sent); may_stay(); d_step { deliver_contribution() } }
	:: atomic { pick(resent); retransmit = true; may_stay(); d_step { deliver_contribution() } }
	:: atomic { pick(result); may_stay(); d_step { deliver_result() } }
	:: atomic { pick(query); may_stay(); d_step { deliver_query() } }
	:: atomic { pick(absent); may_stay(); d_step { deliver_absent() } }
#ifdef WINDOWS
	:: atomic { pick(unsent); d_step { host_send() } }
#endif
	:: atomic {
		losses > 0 && !QUIET ->
		if
		:: pick(sent); lose(sent)
		:: pick(resent); lose(resent)
		:: pick(result); lose(result)
		:: pick(query); lose(query)
		:: pick(absent); lose(absent)
		fi
	}
	:: atomic {
		premature > 0 && left > 0 -> pick_lane();
		d_step {
			if
			:: at < BLOCKS -> query[link] = query[link] | 1 << at; premature--
			:: else
			fi;
			step_end()
		}
	}
	:: d_step { QUIET && left > 0 && ALL_SENT -> timers_fire(); skip }
	:: d_step { QUIET && left == 0 -> check_slots_are_finished(); skip } -> break
	od
}

#endif
