/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What happens when a switch loses a run and hosts take it up again in another one. README.md says
 * which step stands for which function of the code; run.sh gives the sizes, and sees to it that
 * every MUTANT_ is caught.
 *
 * HOSTS hosts with BLOCKS blocks and a window of W at one switch, which loses its run at most
 * LOSSES times, at any moment, also before the next one has begun. The network is the unbounded one
 * of window.pml: what was sent once can be delivered at any time, any number of times, or never, as
 * long as somebody is in its run. After any such history all that is in flight vanishes and the
 * network is perfect from then on; the hosts' timers and JOINs must do the rest.
 *
 * Blocks are counted from 0 through all runs. Packets and slots have the run's numbers, from 0 at
 * its first block.
 *
 * With OWNERS each block has an owner, who alone gets the result; what others get is empty. Hosts
 * take turns. Results that are in flight come as either, since hosts may share a port.
 */
#define SLOTS (2 * W)
#define RUNS (LOSSES + 1)
#define ALL_HOSTS ((1 << HOSTS) - 1)

#ifdef OWNERS
#define needs_result(host, block) ((block) % HOSTS == host)
#else
#define needs_result(host, block) true
#endif

/* Hosts. What lane l holds belongs to host l / W. */
byte lane[HOSTS * W];   /* the block in work, BLOCKS or more when there is none left */
bool known[HOSTS * W];  /* ... whose result is known, and told to those who lack it */
byte epoch[HOSTS];      /* run that the host is in */
byte base[HOSTS];       /* what that run calls 0 */
bool joining[HOSTS];    /* has noticed that the run is lost */
byte announced[HOSTS];  /* its progress then */

/* The switch. */
mtype = { OPEN, DONE };
typedef Slot {
	byte next;     /* the current number, plus SLOTS: what a fresh slot holds has none */
	byte present;  /* hosts whose packet is in */
	mtype state;
	byte sum;      /* hosts whose data is in */
	bool spoiled;  /* ... with any of it twice, changed, or of another block */
};
Slot slot[SLOTS];
byte current;          /* the current or, if it is not running, the next one */
bool running = true;
byte joined;       /* hosts that wait for it */
byte first;        /* its first block: the least of what they announced */
byte first_of[RUNS]; /* of all runs so far */
byte losses = LOSSES;

/* In flight, by number: what hosts sent in the current run, and results of each run. */
short contributed[HOSTS];
short told[HOSTS];
short published[RUNS];
short computed[RUNS]; /* by this run; others were known from an earlier one */
short wrong[RUNS];    /* hold anything else than each host's contribution once */

/* The run that computed the result that somebody has of a block, plus 1. */
byte value[BLOCKS];

/* The packet that this step is about: its host, number and flag, and of a result the run. */
byte h;
byte n;
byte e;
bool retransmit;
bool recovering;

/* Set in the step that reads them. */
hidden byte is_empty; /* the result is */
hidden byte i, b, l, g, from, to;
hidden short inbox[HOSTS];
hidden byte moved;

/* The properties, so that the verifier tells which one fails. */
hidden byte sum_is_exact, same_everywhere, skew_is_below_window, result_is_kept,
	slot_is_free, never_refused,
	everybody_finishes;

#define lane_of(host, block) (host * W + ((block) & (W - 1)))
#define has(host, block) (lane[lane_of(host, block)] > block || known[lane_of(host, block)])
#define lost(host) (!running || epoch[host] != current)

#if W == 1
#define oldest(host) lane[host]
#elif W == 2
#define oldest(host) (lane[host * W] < lane[host * W + 1] -> lane[host * W] : lane[host * W + 1])
#endif

/* ---- switch */

/* To one host; while nothing is lost, it is on its way to all of them for ever anyway. */
inline send_result(host)
{
	if
	:: recovering -> inbox[host] = inbox[host] | 1 << n
	:: else
	fi
}

inline publish()
{
	slot[i].state = DONE;
	published[current] = published[current] | 1 << n;
	for (g : 0 .. HOSTS - 1) {
		send_result(g)
	}
}

/*
 * Of a block that is finished the host has overwritten the buffer; if the block is another host's,
 * not before the one that follows in the lane is finished, too.
 */
#if defined(MUTANT_CONTRIBUTES_UNCHANGED)
#define is_changed(block) false
#elif defined(OWNERS) && !defined(MUTANT_GIVEN_UP_EARLY)
#define is_changed(block) \
	(needs_result(h, block) -> has(h, block) : lane[lane_of(h, block)] > (block) + W)
#else
#define is_changed(block) has(h, block)
#endif

/* The slot's sum takes this host's data. */
inline merge()
{
	slot[i].spoiled = slot[i].spoiled || slot[i].sum >> h & 1 || base[h] != first ||
		is_changed(base[h] + n);
	slot[i].sum = slot[i].sum | 1 << h;
	slot[i].present = slot[i].present | 1 << h;
	if
	:: slot[i].present == ALL_HOSTS ->
		printf("switch: block %d is done\n", first + n);
		computed[current] = computed[current] | 1 << n;
		if
		:: slot[i].spoiled || slot[i].sum != ALL_HOSTS ->
			wrong[current] = wrong[current] | 1 << n
		:: else
		fi;
		publish()
	:: else
	fi
}

inline take_known()
{
	printf("switch: block %d is known by host %d\n", first + n, h);
	slot[i].present = slot[i].present | 1 << h;
	slot[i].sum = 0;
	slot[i].spoiled = false;
	if
	:: base[h] != first || !needs_result(h, base[h] + n) ->
		wrong[current] = wrong[current] | 1 << n
	:: else
	fi;
	publish()
}

/* No host waits for the result in the slot. */
inline check_slot_is_free()
{
	for (g : 0 .. HOSTS - 1) {
		slot_is_free = slot[i].next < SLOTS || has(g, first + slot[i].next - SLOTS);
		assert(slot_is_free)
	}
}

inline slot_reset(index)
{
	slot[index].next = index;
	slot[index].state = DONE;
	slot[index].present = 0;
	slot[index].sum = 0;
	slot[index].spoiled = false
}

/* Is the packet the first of its slot's next block? */
inline begin_block()
{
	never_refused = slot[i].state == DONE && n == slot[i].next;
	assert(never_refused);
	check_slot_is_free();
	slot_reset(i);
	slot[i].next = n + SLOTS;
	slot[i].state = OPEN
}

inline repeat_result()
{
	if
	:: retransmit || !(slot[i].present >> h & 1) ->
		slot[i].present = slot[i].present | 1 << h;
		send_result(h)
	:: else
	fi
}

inline receive_contribution()
{
	i = n & (SLOTS - 1);
	if
	:: n + SLOTS < slot[i].next -> skip /* stale */
	:: n + SLOTS > slot[i].next -> begin_block(); merge()
	:: n + SLOTS == slot[i].next && slot[i].state == DONE -> repeat_result()
	:: n + SLOTS == slot[i].next && slot[i].state == OPEN ->
		if
		:: slot[i].present >> h & 1 -> skip /* answered by an ANSWER */
		:: else -> merge()
		fi
	fi
}

inline receive_known()
{
	i = n & (SLOTS - 1);
	if
	:: n + SLOTS < slot[i].next -> skip
#if defined(MUTANT_EMPTY_TOLD)
	:: n + SLOTS >= slot[i].next && !needs_result(h, base[h] + n) -> skip /* refused */
	:: n + SLOTS > slot[i].next && needs_result(h, base[h] + n) -> begin_block(); take_known()
#else
	:: n + SLOTS > slot[i].next -> begin_block(); take_known()
#endif
	:: n + SLOTS == slot[i].next && slot[i].state == DONE -> repeat_result()
	:: n + SLOTS == slot[i].next && slot[i].state == OPEN ->
#if defined(MUTANT_KNOWN_IGNORED)
		skip
#elif defined(MUTANT_KNOWN_ADDED)
		if
		:: slot[i].present >> h & 1 -> skip
		:: else -> merge()
		fi
#else
		take_known()
#endif
	fi
}

/* All have joined. */
inline run_begin()
{
	running = true;
	joined = 0;
#ifndef MUTANT_SLOTS_STAY
	for (i : 0 .. SLOTS - 1) {
		slot_reset(i)
	}
#endif
	first_of[current] = first;
	printf("switch: run %d begins at block %d\n", current, first)
}

inline lose_run()
{
	printf("switch: run %d is lost, running: %d\n", current, running);
	losses--;
	if
	:: running -> current++
	:: else
	fi;
	running = false;
	joined = 0;
	first = 0;
	for (g : 0 .. HOSTS - 1) {
		contributed[g] = 0;
		told[g] = 0
	}
#ifndef MUTANT_SLOTS_STAY
	for (i : 0 .. SLOTS - 1) {
		slot_reset(i)
	}
#endif
}

/* ---- hosts */

/* Nobody else can tell a result than who needed it. */
#if defined(MUTANT_EMPTY_TOLD) || defined(MUTANT_EMPTY_TAKEN)
#define tells(host, block) true
#else
#define tells(host, block) needs_result(host, block)
#endif

/* The lane's block goes to the switch, which refuses it if the run is lost. */
inline send(which)
{
	if
	:: lost(which / W) || lane[which] >= BLOCKS
#if !defined(MUTANT_CONTRIBUTES_CHANGED) && !defined(MUTANT_CONTRIBUTES_UNCHANGED)
#ifdef MUTANT_SENDS_NOTHING
	:: !lost(which / W) && lane[which] < BLOCKS && known[which] &&
		!needs_result(which / W, lane[which])
#endif
	:: !lost(which / W) && lane[which] < BLOCKS && known[which] &&
		tells(which / W, lane[which]) ->
		told[which / W] = told[which / W] | 1 << (lane[which] - base[which / W])
#endif
	:: else ->
		contributed[which / W] = contributed[which / W] |
			1 << (lane[which] - base[which / W])
	fi
}

/* The lane l has its result. */
inline lane_advance()
{
	from = oldest(h);
	lane[l] = lane[l] + W;
	known[l] = false;
	to = oldest(h);
#ifdef MUTANT_NOT_STRICT
	send(l)
#else
	for (l : h * W .. h * W + W - 1) {
		if
		:: lane[l] >= from + W && lane[l] < to + W -> send(l)
		:: else
		fi
	}
#endif
}

/* All hosts are less than a window behind a result that this one gets. */
inline check_skew()
{
#ifndef WITHOUT_SKEW_CHECK
	for (g : 0 .. HOSTS - 1) {
		skew_is_below_window = b < oldest(g) + W;
		assert(skew_is_below_window)
	}
#else
	skip
#endif
}

/* Of run e. */
inline receive_result()
{
	b = base[h] + n;
	l = lane_of(h, b);
	if
#if defined(OWNERS) && !defined(MUTANT_OWNER_TAKES_EMPTY)
	:: lane[l] == b && is_empty && needs_result(h, b) && !known[l] -> skip /* another host's */
	:: lane[l] == b && !(is_empty && needs_result(h, b) && !known[l]) ->
#else
	:: lane[l] == b ->
#endif
		printf("host %d: has the result of block %d, known: %d\n", h, b, known[l]);
		sum_is_exact = !needs_result(h, b) ||
			(!(wrong[e] >> n & 1) && first_of[e] + n == b && !(is_empty && !known[l]));
		assert(sum_is_exact);
		if
		:: computed[e] >> n & 1 && b < BLOCKS && needs_result(h, b) ->
			same_everywhere = value[b] == 0 || value[b] == e + 1;
			assert(same_everywhere);
			value[b] = e + 1
		:: else
		fi;
		check_skew();
		moved = true;
		lane_advance()
	:: else
	fi
}

/* A packet was refused, or the host is called. */
inline notice()
{
	printf("host %d: has lost run %d at block %d\n", h, epoch[h], oldest(h));
	joining[h] = true;
	announced[h] = oldest(h)
}

inline join()
{
	if
	:: joined == 0 || announced[h] < first -> first = announced[h]
	:: else
	fi;
	joined = joined | 1 << h;
	if
	:: joined == ALL_HOSTS -> run_begin()
	:: else
	fi
}

#ifdef MUTANT_KEEPS_LESS
#define is_kept(block) (((block) & (W - 1)) != W - 1)
#else
#define is_kept(block) true
#endif

/* The lane for block b begins the new run. */
inline lane_resume()
{
	l = lane_of(h, b);
	result_is_kept = lane[l] == b || (lane[l] == b + W && !known[l] && is_kept(b));
	assert(result_is_kept);
	if
	:: lane[l] == b + W ->
		lane[l] = b;
		known[l] = true
	:: else
	fi;
	send(l);
#ifdef MUTANT_TOLD_ONCE
	if
	:: known[l] ->
		lane[l] = b + W;
		known[l] = false
	:: else
	fi
#endif
}

/* Results of a run that nobody is in any more are nothing to anyone. */
inline forget_runs()
{
	for (e : 0 .. RUNS - 1) {
		to = 0;
		for (g : 0 .. HOSTS - 1) {
			to = to + (epoch[g] <= e)
		}
		if
		:: to == 0 ->
			published[e] = 0;
			computed[e] = 0;
			wrong[e] = 0
		:: else
		fi
	}
}

inline begin_run(which, block)
{
	epoch[h] = which;
#ifdef MUTANT_OWN_PROGRESS
	base[h] = oldest(h);
#else
	base[h] = block;
#endif
	printf("host %d: goes on at block %d, its oldest is %d\n", h, base[h], oldest(h));
	for (b : base[h] .. base[h] + W - 1) {
		lane_resume()
	}
#ifndef MUTANT_ANY_RUN
	forget_runs()
#endif
}

/* Is told that the current run is active. */
inline resume()
{
	joining[h] = false;
	announced[h] = 0;
	moved = true;
	begin_run(current, first)
}

/* ... that run e is, by a JOIN_ACK that has lain unread since. */
inline resume_late()
{
	printf("host %d: a JOIN_ACK of run %d comes late\n", h, e);
	joining[h] = false;
	announced[h] = 0;
	if
	:: e != epoch[h] -> begin_run(e, first_of[e])
	:: else
	fi
}

/* ---- start and end */

inline start()
{
	for (i : 0 .. SLOTS - 1) {
		slot_reset(i)
	}
	for (h : 0 .. HOSTS - 1) {
		for (l : h * W .. h * W + W - 1) {
			lane[l] = l - h * W;
			send(l)
		}
	}
}

/* Nothing of a step is left to tell states apart. */
inline step_end()
{
	h = 0;
	n = 0;
	e = 0;
	is_empty = false
}

inline deliver_all()
{
	for (h : 0 .. HOSTS - 1) {
		for (n : 0 .. BLOCKS - 1) {
			if
			:: contributed[h] >> n & 1 ->
				contributed[h] = contributed[h] & ~(1 << n);
				receive_contribution()
			:: else
			fi;
			if
			:: told[h] >> n & 1 ->
				told[h] = told[h] & ~(1 << n);
				receive_known()
			:: else
			fi
		}
	}
	for (h : 0 .. HOSTS - 1) {
		for (n : 0 .. BLOCKS - 1) {
			if
			:: inbox[h] >> n & 1 ->
				inbox[h] = inbox[h] & ~(1 << n);
				e = epoch[h];
				receive_result()
			:: else
			fi
		}
	}
}

/* Every host asks again for its oldest block. */
inline timers_fire()
{
	retransmit = true;
	for (h : 0 .. HOSTS - 1) {
		if
		:: oldest(h) < BLOCKS ->
			n = oldest(h) - base[h];
			l = lane_of(h, oldest(h));
			send(l);
			if
			:: told[h] >> n & 1 ->
				told[h] = 0;
				receive_known()
			:: contributed[h] >> n & 1 ->
				contributed[h] = 0;
				receive_contribution()
			:: else
			fi
		:: else
		fi
	}
	retransmit = false
}

/* Everybody joins who has to, in one order. */
inline rejoin()
{
	for (h : 0 .. HOSTS - 1) {
		if
		:: lost(h) && !joining[h] -> notice()
		:: else
		fi
	}
	for (h : 0 .. HOSTS - 1) {
		if
		:: !running && !(joined >> h & 1) -> join()
		:: else
		fi
	}
	for (h : 0 .. HOSTS - 1) {
		if
		:: joining[h] -> resume()
		:: else
		fi
	}
}

#define IN_FLIGHT (contributed[0] | told[0] | inbox[0] | contributed[1] | told[1] | inbox[1] | \
		   contributed[HOSTS - 1] | told[HOSTS - 1] | inbox[HOSTS - 1])
#define FINISHED (oldest(0) >= BLOCKS && oldest(1) >= BLOCKS && oldest(HOSTS - 1) >= BLOCKS)

inline recover()
{
	printf("all packets are lost, and no further ones\n");
	recovering = true;
	for (h : 0 .. HOSTS - 1) {
		contributed[h] = 0;
		told[h] = 0;
		inbox[h] = 0
	}
	do
	:: FINISHED -> break
	:: else ->
		moved = false;
		rejoin();
		timers_fire();
		do
		:: IN_FLIGHT != 0 -> deliver_all()
		:: else -> break
		od;
		everybody_finishes = moved;
		assert(everybody_finishes)
	od;
	recovering = false;
	step_end()
}

/* ---- the network */

#define pick_block(set) \
	if \
	:: set >> 0 & 1 -> n = 0 :: set >> 1 & 1 -> n = 1 \
	:: set >> 2 & 1 -> n = 2 :: set >> 3 & 1 -> n = 3 \
	:: set >> 4 & 1 -> n = 4 :: set >> 5 & 1 -> n = 5 \
	:: set >> 6 & 1 -> n = 6 :: set >> 7 & 1 -> n = 7 \
	fi

/* A host of which something can be said; can't be executed if there is none. */
#define pick_host(can) \
	if \
	:: can(0) -> h = 0 :: can(1) -> h = 1 :: HOSTS > 2 && can(HOSTS - 1) -> h = HOSTS - 1 \
	fi

#define has_contributed(host) (contributed[host] != 0)
#define has_told(host) (told[host] != 0)
#define has_results(host) (published[epoch[host]] != 0)
#define true_of(host) true
#define can_notice(host) (lost(host) && !joining[host])
#define can_join(host) (joining[host] && !running && !(joined >> host & 1))
#define can_resume(host) (joining[host] && running)
#ifdef MUTANT_ACKS_OVERTAKE
#define can_take_late(host) joining[host]
#define can_be_late(which) (which < current)
#else
#define can_take_late(host) (joining[host] && !(joined >> host & 1) && !running)
#define can_be_late(which) (which < current && which >= epoch[h])
#endif
#define pick_run(can) \
	if \
	:: can(0) -> e = 0 :: LOSSES > 0 && can(1) -> e = 1 :: LOSSES > 1 && can(2) -> e = 2 \
	fi

active proctype network()
{
	d_step { start(); step_end() }
	do
	:: atomic { pick_host(has_contributed); pick_block(contributed[h]);
		d_step { receive_contribution(); step_end() } }
	:: atomic { pick_host(has_told); pick_block(told[h]); d_step { receive_known(); step_end() } }
#ifdef MUTANT_ANY_RUN
	:: atomic {
		if
		:: published[0] != 0 -> e = 0
		:: published[LOSSES] != 0 -> e = LOSSES
		fi;
		pick_host(true_of); pick_block(published[e]); d_step { receive_result(); step_end() }
	}
#else
	:: atomic {
		pick_host(has_results); pick_block(published[epoch[h]]);
		d_step { e = epoch[h]; receive_result(); step_end() }
	}
#ifdef OWNERS
	:: atomic {
		pick_host(has_results); pick_block(published[epoch[h]]);
		d_step { is_empty = true; e = epoch[h]; receive_result(); step_end() }
	}
#endif
#endif
	:: atomic { pick_host(can_notice); d_step { notice(); step_end() } }
	:: atomic { pick_host(can_join); d_step { join(); step_end() } }
	:: atomic { pick_host(can_resume); d_step { resume(); step_end() } }
	:: atomic {
		pick_host(can_take_late); pick_run(can_be_late);
		d_step { resume_late(); step_end() }
	}
	:: d_step { losses > 0 && (running || joined != 0) -> lose_run(); step_end() }
	:: d_step { recover(); skip } -> break
	od
}
