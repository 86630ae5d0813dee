/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sparse blocks (protocols/sparse/README.md) between hosts and one switch (LEVELS 1), or a root
 * switch with two leaf switches (LEVELS 2). README.md says which rule stands where; run.sh gives
 * the sizes, and sees to it that every MUTANT_ is caught.
 *
 * For a block a host brings one shard or SHARDS, as host and block say. A switch sends as many as
 * it likes, from one to SHARDS: it may spill what a shard brings it, and what is left in the end,
 * or nothing, goes into its last one.
 *
 * The network is the unbounded one of window.pml: what was sent once can be delivered at any
 * time, any number of times, or never. After any such history all that is in flight may vanish
 * and the network be perfect from then on; the hosts' queries must do the rest. Block numbers
 * don't wrap around here.
 *
 * With LOSSES the switches lose the run so often at most, at any moment, and it is taken up again
 * at once: what is left of the old run then reaches nobody. Here blocks have their numbers from one
 * run to the next.
 */
#ifndef LOSSES
#define LOSSES 0
#endif
#define BASE (2 * W)
#define END (BASE + BLOCKS)

#ifdef MUTANT_HALF_SLOTS
#define SLOTS W
#else
#define SLOTS (2 * W)
#endif

/* Links, by the child at the lower end: the hosts, then the leaf switches 1, with the hosts below
 * LEFT, and 2. */
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

/* Sets of blocks, and of shards of blocks, are bitmaps. */
#ifndef SHARDS
#define SHARDS 2
#endif
#define bit_of(block) (1 << (block - BASE))
#define place(block, number) ((block - BASE) * SHARDS + number)
#define numbers(total) ((1 << (total)) - 1)

/* What a shard holds: of which hosts which shards. */
#define shards_of(host, block) (1 + ((block) >> (host) & 1) * (SHARDS - 1))
#define data_of(host, number) (1 << ((host) * SHARDS + number))
#define data_of_host(host, block) (numbers(shards_of(host, block)) << ((host) * SHARDS))
#if HOSTS == 2
#define all_data(block) (data_of_host(0, block) | data_of_host(1, block))
#else
#define all_data(block) (data_of_host(0, block) | data_of_host(1, block) | data_of_host(2, block))
#endif
#define SPOILED 64 /* any of it twice, or of a buffer that was overwritten */
#define WAS_SENT 128

/* Hosts: each lane's block in work, END or more when there is none left, and what has come
 * of its result. */
byte lane[HOSTS * W];
byte got[HOSTS * W];       /* shards of the result, a bitmap */
byte got_total[HOSTS * W]; /* as the last one says, else 0 */
byte got_data[HOSTS * W];
short finished[HOSTS];
byte left = HOSTS * BLOCKS;

#if LOSSES
/* Runs that were lost. */
byte losses;
byte first = BASE; /* the run's first block */
short known[HOSTS];     /* blocks in work whose results were there when the run began */
short computed[LOSSES + 1]; /* by each run: of these blocks somebody has the result */
#if defined(MUTANT_CONTRIBUTES_CHANGED) || defined(MUTANT_CONTRIBUTES_UNCHANGED)
/* Blocks that are contributed to again, from a buffer that was overwritten. */
short changed[HOSTS];
#endif
#define is_known(host, block) (known[host] >> ((block) - BASE) & 1)
#define known_somewhere(block) (is_known(0, block) || is_known(1, block) || \
	is_known(HOSTS - 1, block))
#define is_whole(block) (losses > 0 && (block) < first + W)
/* A result that is known is cut into shards as a host's contribution is: here the shard has the
 * shards of this number of all hosts. */
#define known_shards(block) SHARDS
#if HOSTS == 2
#define known_data(block, number) ((data_of(0, number) | data_of(1, number)) & all_data(block))
#else
#define known_data(block, number) \
	((data_of(0, number) | data_of(1, number) | data_of(2, number)) & all_data(block))
#endif
#else
#define is_known(host, block) false
#define known_somewhere(block) false
#define is_whole(block) false
#endif

/* Switches. */
mtype = { OPEN, SENT_UP, DONE };
typedef Slot {
	byte block;   /* the current one */
	mtype state;
	short in;     /* shards of each link that are in */
	short total;  /* as the last ones say, else 0 */
#ifdef MUTANT_DUPLICATES_COUNTED
	short come;   /* how many */
#endif
	byte data;    /* combined, and not sent yet */
	byte n_sent;  /* own shards */
	byte passed;  /* shards of the parent's result that have come, and are kept: a bitmap */
	byte passed_total;
#if LOSSES
	bool is_told; /* a child knows the result */
	/* Shards of it that are in, and kept: a bitmap. At the root they are in passed. */
	byte told;
	byte told_total;
#endif
};
Slot slot[SWITCHES * SLOTS];

/* Packets on each link, by block and shard. */
int sent[LINKS];
int result[LINKS];
#if LOSSES
int told[LINKS];
#endif
/* What is in the shards that a switch has sent, and which are the last ones. A host's are
 * always the same. */
byte content[SWITCHES * BLOCKS * SHARDS];
int last[SWITCHES];

/* The packet that this step is about: its link and place; and whether the switch that
 * gets it spills. */
byte link;
byte at;
bool spill;

/* In recovery, which is one step: blocks asked for, blocks that are absent, what the sender of
 * either has, and how it goes. */
hidden short query[LINKS];
hidden short absent[LINKS];
hidden byte query_has[LINKS * BLOCKS];
hidden byte absent_has[LINKS * BLOCKS];
hidden byte way[LINKS * BLOCKS];       /* the child whose query was passed on */
/* Children that have asked since the block went up last; before recovery anybody may have. */
hidden byte asked[SWITCHES * SLOTS];
hidden byte recovering;
/* Switches spill whatever they can, and drop result shards that come before all children are in. */
hidden byte spilling;
hidden byte rested;   /* the timers have fired, and no shard was taken since */

/* Constant from the start on ... */
hidden byte parent[LINKS];
hidden byte hosts_below[SWITCHES];
hidden byte children[SWITCHES];

/* ... or set in the step that reads them. */
hidden byte s, i, b, k, h, l, c, n, x, data, oldest, has, complete;
hidden byte is_last;

/* The properties, so that the verifier tells which one fails. */
hidden byte sum_is_exact, result_is_in_order, slot_is_free, never_refused,
	same_content, timers_help, slots_are_finished;
#if LOSSES
hidden byte same_everywhere, result_is_kept;
hidden byte from, to;
#endif

#if HOSTS == 2
#define all_finished(block) (finished[0] & finished[1] & bit_of(block))
#else
#define all_finished(block) (finished[0] & finished[1] & finished[2] & bit_of(block))
#endif

/* ---- what a switch sends */

inline send_shard(number)
{
	x = place(slot[i].block, number);
	if
	:: s == ROOT ->
		for (c : 0 .. LINKS - 1) {
			if
			:: children[s] >> c & 1 -> result[c] = result[c] | 1 << x
			:: else
			fi
		}
	:: else -> sent[uplink(s)] = sent[uplink(s)] | 1 << x
	fi
}

/* A shard of its own, for the first time, unless a mutant gives the number twice. */
inline make_shard(number, what, is_the_last)
{
	printf("switch %d: block %d shard %d has %d, last: %d\n", s,
		slot[i].block, number, what, is_the_last);
	x = s * BLOCKS * SHARDS + place(slot[i].block, number);
#ifndef WITHOUT_CONTENT_CHECK
	same_content = content[x] == 0 || content[x] == (what | WAS_SENT);
	assert(same_content);
#endif
	content[x] = what | WAS_SENT;
	if
	:: is_the_last -> last[s] = last[s] | 1 << place(slot[i].block, number)
	:: else
	fi;
	send_shard(number)
}

inline finish_block()
{
#ifdef MUTANT_RENUMBERED
	slot[i].n_sent = 0;
#endif
	make_shard(slot[i].n_sent, slot[i].data, true);
	slot[i].n_sent++;
	slot[i].data = 0;
	slot[i].state = (s == ROOT -> DONE : SENT_UP);
	asked[i] = 0
}

/* Result shards that the child at a link lacks, in a block that is done. */
inline repeat_results(to)
{
#ifndef MUTANT_NO_REPEAT
	if
#if LOSSES
	:: s == ROOT && slot[i].is_told -> n = slot[i].passed
	:: s == ROOT && !slot[i].is_told -> n = numbers(slot[i].n_sent)
#else
	:: s == ROOT -> n = numbers(slot[i].n_sent)
#endif
	:: else -> n = slot[i].passed
	fi;
#ifdef MUTANT_REPEATS_LAST
	n = n & ~(n >> 1);
#endif
	result[to] = result[to] | (n & ~has) << place(slot[i].block, 0)
#else
	skip
#endif
}

/* ---- what a switch receives */

/* No host that this switch serves waits for the result in the slot. */
inline check_slot_is_free()
{
#ifndef WITHOUT_SLOT_CHECK
	for (h : 0 .. HOSTS - 1) {
#if LOSSES
		slot_is_free = slot[i].block < first ||
			lane[h * W + (slot[i].block & (W - 1))] > slot[i].block ||
			(hosts_below[s] >> h & 1) == 0;
#else
		slot_is_free = slot[i].block < BASE || finished[h] & bit_of(slot[i].block) ||
			(hosts_below[s] >> h & 1) == 0;
#endif
		assert(slot_is_free)
	}
#else
	skip
#endif
}

inline begin_block()
{
	never_refused = slot[i].state == DONE && b == slot[i].block + SLOTS;
	assert(never_refused);
	check_slot_is_free();
	printf("switch %d: block %d takes the slot of block %d\n", s, b, slot[i].block);
	slot[i].block = b;
	slot[i].state = OPEN;
#ifndef MUTANT_BITS_STAY
	slot[i].in = 0;
	slot[i].total = 0;
#endif
#ifdef MUTANT_DUPLICATES_COUNTED
	slot[i].come = 0;
#endif
	slot[i].data = 0;
	slot[i].n_sent = 0;
	slot[i].passed = 0;
	slot[i].passed_total = 0;
#if LOSSES
	slot[i].is_told = false;
	slot[i].told = 0;
	slot[i].told_total = 0
#endif
}

#define field(set, which) ((set) >> ((which) * SHARDS) & numbers(SHARDS))

/* Are all shards of a link in? */
#if defined(MUTANT_DUPLICATES_COUNTED)
#define is_in(which) (field(slot[i].total, which) != 0 && \
	field(slot[i].come, which) >= field(slot[i].total, which))
#elif defined(MUTANT_COUNTS)
#define is_in(which) (field(slot[i].total, which) != 0 && \
	field(slot[i].in, which) >= field(slot[i].total, which))
#elif defined(MUTANT_LAST_ENDS)
#define is_in(which) (field(slot[i].total, which) != 0)
#else
#define is_in(which) (field(slot[i].total, which) != 0 && \
	field(slot[i].in, which) == numbers(field(slot[i].total, which)))
#endif

#define is_there(which, number) (slot[i].in >> ((which) * SHARDS + number) & 1)

inline merge()
{
	rested = false;
#ifdef MUTANT_COUNTS
	if
	:: field(slot[i].in, link) < numbers(SHARDS) ->
		slot[i].in = slot[i].in + (1 << (link * SHARDS))
	:: else
	fi;
#else
	slot[i].in = slot[i].in | 1 << (link * SHARDS + k);
#endif
	if
	:: is_last ->
		slot[i].total = slot[i].total & ~(numbers(SHARDS) << (link * SHARDS)) |
		(k + 1) << (link * SHARDS)
	:: else
	fi;
	if
#ifdef MUTANT_NO_BUFFER
	:: spill -> skip
#endif
#ifdef MUTANT_SPILLS_WHOLE
	:: spill && slot[i].n_sent < SHARDS - 1 ->
#else
	:: spill && slot[i].n_sent < SHARDS - 1 && !is_whole(b) ->
#endif
#ifdef MUTANT_KEEPS_SPILLED
		slot[i].data = slot[i].data | data;
#endif
		make_shard(slot[i].n_sent, data, false);
		slot[i].n_sent++
	:: else -> slot[i].data = slot[i].data | data | (slot[i].data & data -> SPOILED : 0)
	fi
}

inline finish_if_complete()
{
	complete = true;
	for (c : 0 .. LINKS - 1) {
		complete = complete && ((children[s] >> c & 1) == 0 || is_in(c))
	}
	if
	:: complete && slot[i].state == OPEN -> finish_block()
	:: else
	fi
}

inline shard_of_current()
{
	if
	:: slot[i].state == OPEN ->
#ifdef MUTANT_DUPLICATES_COUNTED
		if
		:: field(slot[i].come, link) < numbers(SHARDS) ->
			slot[i].come = slot[i].come + (1 << (link * SHARDS))
		:: else
		fi;
#endif
		if
#ifndef MUTANT_COUNTS
		/* a duplicate with RETRANSMIT is answered by an ANSWER */
		:: is_there(link, k) -> skip
#endif
		:: else -> merge()
		fi;
		finish_if_complete()
	:: else
	fi
}

/* The shard's sender, slot and content. */
inline shard_look()
{
	s = parent[link];
	b = BASE + at / SHARDS;
	k = at % SHARDS;
	i = s * SLOTS + (b & (SLOTS - 1));
	if
	:: link < HOSTS ->
		data = data_of(link, k);
#if defined(MUTANT_CONTRIBUTES_CHANGED)
		data = data | (changed[link] & bit_of(b) -> SPOILED : 0);
#endif
		is_last = k + 1 == shards_of(link, b)
	:: else ->
		data = content[(link - HOSTS + 1) * BLOCKS * SHARDS + at] & ~WAS_SENT;
		is_last = last[link - HOSTS + 1] >> at & 1
	fi
}

inline switch_receive()
{
	shard_look();
	if
	:: b < slot[i].block -> skip
	:: b == slot[i].block -> shard_of_current()
	:: else ->
		begin_block();
		shard_of_current()
	fi
}

inline pass_on()
{
	for (c : 0 .. LINKS - 1) {
		if
		:: children[s] >> c & 1 -> result[c] = result[c] | 1 << at
		:: else
		fi
	}
}

#if LOSSES
/* ---- results that are known */

/* At the root a shard of these is one of the result. */
inline root_take_told()
{
	slot[i].passed = slot[i].passed | 1 << k;
	if
	:: k + 1 == known_shards(b) -> slot[i].passed_total = k + 1
	:: else
	fi;
	make_shard(k, known_data(b, k), k + 1 == known_shards(b));
	if
	:: slot[i].passed == numbers(slot[i].passed_total) && slot[i].passed_total != 0 ->
		printf("root: block %d is done, its result was known\n", b);
		slot[i].state = DONE
	:: else
	fi
}

inline leaf_take_told()
{
	slot[i].told = slot[i].told | 1 << k;
	if
	:: k + 1 == known_shards(b) -> slot[i].told_total = k + 1
	:: else
	fi;
	told[uplink(s)] = told[uplink(s)] | 1 << at;
#ifdef MUTANT_TOLD_AT_ONCE
	slot[i].state = SENT_UP;
	asked[i] = 0;
#else
	if
	:: slot[i].told == numbers(slot[i].told_total) && slot[i].told_total != 0 ->
		slot[i].state = SENT_UP;
		asked[i] = 0
	:: else
	fi
#endif
}

/* In an open block; after that it is a duplicate. */
inline told_of_current()
{
	if
	:: is_there(link, k) -> skip
	:: else ->
		rested = false;
		slot[i].is_told = true;
		slot[i].in = slot[i].in | 1 << (link * SHARDS + k);
		if
		:: k + 1 == known_shards(b) ->
			slot[i].total = slot[i].total & ~(numbers(SHARDS) << (link * SHARDS)) |
				(k + 1) << (link * SHARDS)
		:: else
		fi;
		if
		:: s == ROOT && !(slot[i].passed >> k & 1) -> root_take_told()
		:: s != ROOT && !(slot[i].told >> k & 1) -> leaf_take_told()
		:: else
		fi
	fi
}

inline switch_receive_told()
{
	s = parent[link];
	b = BASE + at / SHARDS;
	k = at % SHARDS;
	i = s * SLOTS + (b & (SLOTS - 1));
	if
	:: b > slot[i].block -> begin_block()
	:: else
	fi;
	if
#if defined(MUTANT_TOLD_ADDED)
	:: b == slot[i].block ->
		data = known_data(b, k);
		is_last = k + 1 == known_shards(b);
		shard_of_current()
#elif defined(MUTANT_TOLD_IGNORED)
	:: b == slot[i].block && slot[i].state == OPEN &&
		(slot[i].in == 0 || slot[i].is_told) -> told_of_current()
#else
	:: b == slot[i].block && slot[i].state == OPEN -> told_of_current()
#endif
	:: else
	fi
}
#endif

/* The block is open or sent up. */
inline leaf_take_shard()
{
	rested = false;
#ifdef MUTANT_PASSES_UNKEPT
	if
	:: slot[i].state == SENT_UP -> slot[i].passed = slot[i].passed | 1 << k
	:: else
	fi;
#else
	slot[i].passed = slot[i].passed | 1 << k;
#endif
	if
	:: last[ROOT] >> at & 1 -> slot[i].passed_total = k + 1
	:: else
	fi;
	pass_on();
	if
#ifdef MUTANT_LEAF_DONE_AT_ONCE
	:: slot[i].state == SENT_UP ->
#else
#ifdef MUTANT_LEAF_WAITS
	:: slot[i].state == SENT_UP && slot[i].passed_total != 0 &&
		slot[i].passed == numbers(slot[i].passed_total) ->
#else
	:: (slot[i].state == SENT_UP || is_whole(b)) && slot[i].passed_total != 0 &&
		slot[i].passed == numbers(slot[i].passed_total) ->
#endif
#endif
		printf("leaf %d: block %d is done\n", s, b);
		slot[i].state = DONE
	:: else
	fi
}

/* A shard of the result may come before any of this switch's own. */
inline leaf_receive_result()
{
	s = link - HOSTS + 1;
	b = BASE + at / SHARDS;
	k = at % SHARDS;
	i = s * SLOTS + (b & (SLOTS - 1));
	if
	:: b > slot[i].block && !spilling -> begin_block()
	:: else
	fi;
	if
	:: b == slot[i].block && (slot[i].passed >> k & 1) == 0 &&
	   (slot[i].state == SENT_UP || slot[i].state == OPEN && !spilling) -> leaf_take_shard()
	:: else
	fi
}

/* ---- queries; they change no slot */

inline ask(which, has_what)
{
	query[which] = query[which] | bit_of(b);
	query_has[which * BLOCKS + b - BASE] = has_what
}

inline answer_absent(in_what)
{
	absent[link] = absent[link] | bit_of(b);
	absent_has[link * BLOCKS + b - BASE] = in_what
}

/* Of the children's queries the first goes on, and that of a child that asks again. */
inline pass_query()
{
	if
	:: asked[i] == 0 -> ask(uplink(s), slot[i].passed); way[uplink(s) * BLOCKS + at] = link
#ifndef MUTANT_PASSES_ONE
	:: asked[i] >> link & 1 ->
		ask(uplink(s), slot[i].passed);
		way[uplink(s) * BLOCKS + at] = link
#endif
	:: else
	fi;
	asked[i] = asked[i] | 1 << link
}

inline query_of_current()
{
	if
#ifdef MUTANT_COUNTS
	:: slot[i].state == OPEN && !is_in(link) -> answer_absent(0)
#else
	:: slot[i].state == OPEN && !is_in(link) -> answer_absent(field(slot[i].in, link))
#endif
#ifndef MUTANT_NO_PASS
	:: slot[i].state == SENT_UP -> pass_query()
#endif
	:: slot[i].state == DONE -> repeat_results(link)
	:: else
	fi
}

/* The query for block `at`. */
inline switch_receive_query()
{
	s = parent[link];
	b = BASE + at;
	i = s * SLOTS + (b & (SLOTS - 1));
	has = query_has[link * BLOCKS + at];
	if
	:: b < slot[i].block -> skip
	:: b == slot[i].block -> query_of_current()
#ifdef MUTANT_STALE_BITMAP
	:: b > slot[i].block -> answer_absent((slot[i].block < BASE -> 0 : field(slot[i].in, link)))
#else
	:: b > slot[i].block -> answer_absent(0)
#endif
	fi
}

/* The parent has the shards in `has` of what went up. */
inline switch_receive_absent()
{
	s = link - HOSTS + 1;
	i = s * SLOTS + (b & (SLOTS - 1));
	if
#if defined(MUTANT_ABSENT_DOWN)
	:: slot[i].state == SENT_UP && b == slot[i].block ->
		for (c : 0 .. LINKS - 1) {
			if
			:: children[s] >> c & 1 ->
				absent[c] = absent[c] | bit_of(b);
				absent_has[c * BLOCKS + b - BASE] = has
			:: else
			fi
		}
#elif defined(MUTANT_STALE_ABSENT)
	:: slot[i].state == OPEN && slot[i].data != 0 && slot[i].block >= BASE -> finish_block()
#endif
#if !defined(MUTANT_ABSENT_DOWN) && !defined(MUTANT_NO_RESEND_UP)
	:: slot[i].state == SENT_UP && b == slot[i].block &&
	   (!recovering || asked[i] >> way[link * BLOCKS + at] & 1) ->
		asked[i] = 0;
#if LOSSES
		if
#ifdef MUTANT_TOLD_UP_ONCE
		:: slot[i].is_told -> skip
#else
		:: slot[i].is_told ->
			told[link] = told[link] |
				(slot[i].told & ~slot[i].passed & ~has) << place(b, 0)
#endif
		:: else ->
			for (n : 0 .. SHARDS - 1) {
				if
				:: n < slot[i].n_sent && (has >> n & 1) == 0 -> send_shard(n)
				:: else
				fi
			}
		fi
#elif defined(MUTANT_RESENDS_LAST)
		if
		:: (has >> (slot[i].n_sent - 1) & 1) == 0 -> send_shard(slot[i].n_sent - 1)
		:: else
		fi
#else
		for (n : 0 .. SHARDS - 1) {
			if
			:: n < slot[i].n_sent && (has >> n & 1) == 0 -> send_shard(n)
			:: else
			fi
		}
#endif
#endif
	:: else
	fi
}

/* ---- hosts */

#if LOSSES
inline host_send(host, block)
{
	if
	:: is_known(host, block) ->
		told[host] = told[host] | numbers(known_shards(block)) << place(block, 0)
	:: else -> sent[host] = sent[host] | numbers(shards_of(host, block)) << place(block, 0)
	fi
}

#if W == 1
#define oldest_of(host) lane[host]
#else
#define oldest_of(host) (lane[host * W] < lane[host * W + 1] -> lane[host * W] : lane[host * W + 1])
#endif

/* Whether blocks may be sent that lie a window ahead of the oldest one. */
inline host_send_next()
{
	for (x : link * W .. link * W + W - 1) {
		if
		:: lane[x] >= from + W && lane[x] < to + W && lane[x] < END ->
			host_send(link, lane[x])
		:: else
		fi
	}
}
#else
inline host_send(host, block)
{
	sent[host] = sent[host] | numbers(shards_of(host, block)) << place(block, 0)
}
#endif

/* All hosts have the result. What is left of the block can change nothing, and is made the same
 * in all states. */
inline forget_block()
{
	for (n : 0 .. LINKS - 1) {
		result[n] = result[n] | numbers(SHARDS) << place(b, 0);
#if LOSSES
		told[n] = told[n] & ~(numbers(SHARDS) << place(b, 0));
#endif
		if
		:: n >= HOSTS -> sent[n] = sent[n] | numbers(SHARDS) << place(b, 0)
		:: else
		fi
	}
	for (s : 0 .. SWITCHES - 1) {
		for (n : 0 .. SHARDS - 1) {
			content[s * BLOCKS * SHARDS + place(b, n)] = 0
		}
		last[s] = last[s] & ~(numbers(SHARDS) << place(b, 0));
		i = s * SLOTS + (b & (SLOTS - 1));
		if
		:: slot[i].block == b ->
			slot[i].data = 0;
			slot[i].n_sent = 0;
			slot[i].passed = 0;
			slot[i].passed_total = 0;
#if LOSSES
			slot[i].is_told = false;
			slot[i].told = 0;
			slot[i].told_total = 0;
#endif
#if !defined(MUTANT_BITS_STAY) && !defined(MUTANT_STALE_BITMAP)
			slot[i].in = 0;
			slot[i].total = 0;
#endif
		:: else
		fi
	}
}

#if LOSSES
/* Which run has computed it. */
inline check_run()
{
	from = losses;
	i = ROOT * SLOTS + (b & (SLOTS - 1));
	if
	:: slot[i].block == b && !slot[i].is_told ->
		for (n : 0 .. LOSSES) {
			same_everywhere = n == losses || !(computed[n] & bit_of(b));
			assert(same_everywhere)
		}
		computed[losses] = computed[losses] | bit_of(b)
	:: else
	fi
}
#endif

inline host_has_result()
{
	printf("host %d: has the result of block %d\n", link, b);
	sum_is_exact = got_data[l] == all_data(b);
	assert(sum_is_exact);
#if LOSSES
	check_run();
	result_is_in_order = is_known(link, b) ||
		(finished[link] & bit_of(b)) == 0 &&
		(b - BASE < W || finished[link] & bit_of(b - W));
#else
	result_is_in_order = (finished[link] & bit_of(b)) == 0 &&
		(b - BASE < W || finished[link] & bit_of(b - W));
#endif
	assert(result_is_in_order);
	finished[link] = finished[link] | bit_of(b);
	left--;
#if LOSSES
	known[link] = known[link] & ~bit_of(b);
	from = oldest_of(link);
	lane[l] = lane[l] + W;
	to = oldest_of(link);
#else
	lane[l] = lane[l] + W;
#endif
	got[l] = 0;
	got_total[l] = 0;
	got_data[l] = 0;
#if LOSSES
	host_send_next();
#else
	if
	:: lane[l] < END -> host_send(link, lane[l])
	:: else
	fi;
#endif
	if
	:: all_finished(b) && !recovering && !known_somewhere(b) -> forget_block()
	:: else
	fi
}

#ifdef MUTANT_HOST_COUNTS
#define has_shard(l, number) false
#define has_all(l) (got_total[l] != 0 && got[l] >= got_total[l])
#else
#define has_shard(l, number) (got[l] >> number & 1)
#define has_all(l) (got_total[l] != 0 && got[l] == numbers(got_total[l]))
#endif

/* Of a block that is not the lane's: it may come again, or never. */
inline host_receive()
{
	b = BASE + at / SHARDS;
	k = at % SHARDS;
	l = link * W + (b & (W - 1));
#ifdef MUTANT_FIRST_SHARD
	if
	:: b >= lane[l] && b + W < END -> host_send(link, b + W)
	:: else
	fi;
#endif
	if
	:: lane[l] == b && !has_shard(l, k) ->
		rested = false;
		data = content[at] & ~WAS_SENT;
#ifdef MUTANT_HOST_COUNTS
		got[l] = (got[l] < SHARDS -> got[l] + 1 : SHARDS);
		got_data[l] = got_data[l] | data;
#else
		got[l] = got[l] | 1 << k;
		got_data[l] = got_data[l] | data | (got_data[l] & data -> SPOILED : 0);
#endif
		if
		:: last[ROOT] >> at & 1 -> got_total[l] = k + 1
		:: else
		fi;
		if
		:: has_all(l) -> host_has_result()
		:: else
		fi
	:: else
	fi
}

inline host_receive_absent()
{
	l = link * W + (b & (W - 1));
	if
#ifndef MUTANT_NO_RESEND
	:: lane[l] == b ->
#ifdef MUTANT_RESENDS_LAST
		has = has | 1;
#endif
#if LOSSES
		if
		:: is_known(link, b) ->
#ifndef MUTANT_TOLD_ONCE
			told[link] = told[link] | (numbers(known_shards(b)) & ~has) << place(b, 0)
#else
			skip
#endif
		:: else ->
			sent[link] = sent[link] |
				(numbers(shards_of(link, b)) & ~has) << place(b, 0)
		fi
#else
		sent[link] = sent[link] | (numbers(shards_of(link, b)) & ~has) << place(b, 0)
#endif
#endif
	:: else
	fi
}

/* Silence: every host asks for its oldest block, and that must bring a shard to somebody
 * who lacks it. */
inline timers_fire()
{
	timers_help = !rested;
	assert(timers_help);
	rested = true;
	for (h : 0 .. HOSTS - 1) {
		oldest = END;
		for (l : h * W .. h * W + W - 1) {
			if
			:: lane[l] < oldest ->
				oldest = lane[l];
#ifdef MUTANT_HOST_COUNTS
				has = 0
#else
				has = got[l]
#endif
			:: else
			fi
		}
		b = oldest;
		if
		:: b < END ->
			printf("host %d: asks for block %d, has %d of its result\n", h, b, has);
			ask(h, has)
		:: else
		fi
	}
}

#if LOSSES
/* ---- another run */

inline lane_resume()
{
	l = h * W + (b & (W - 1));
	result_is_kept = b >= END || lane[l] == b || lane[l] == b + W && !is_known(h, b);
	assert(result_is_kept);
#ifndef MUTANT_PARTS_STAY
	got[l] = 0;
	got_total[l] = 0;
	got_data[l] = 0;
#endif
	if
	:: b < END && lane[l] == b + W ->
		left++;
		lane[l] = b;
		got[l] = 0;
		got_total[l] = 0;
		got_data[l] = 0;
#if defined(MUTANT_CONTRIBUTES_CHANGED) || defined(MUTANT_CONTRIBUTES_UNCHANGED)
		changed[h] = changed[h] | bit_of(b);
		finished[h] = finished[h] & ~bit_of(b);
#else
		known[h] = known[h] | bit_of(b);
#endif
	:: else
	fi;
	if
	:: b < END -> host_send(h, b)
	:: else
	fi
}

/* All switches lose it, and all hosts go on at the least of their oldest blocks. */
inline lose_run()
{
	losses++;
	first = END;
	for (h : 0 .. HOSTS - 1) {
		if
		:: oldest_of(h) < first -> first = oldest_of(h)
		:: else
		fi
	}
	printf("the run is lost, and goes on at block %d\n", first);
	for (c : 0 .. LINKS - 1) {
		sent[c] = 0;
		result[c] = 0;
		told[c] = 0
	}
	for (n : 0 .. SWITCHES * BLOCKS * SHARDS - 1) {
		content[n] = 0
	}
	for (s : 0 .. SWITCHES - 1) {
		last[s] = 0;
		for (n : 0 .. SLOTS - 1) {
			i = s * SLOTS + (first + n & (SLOTS - 1));
			slot[i].block = first + n - SLOTS;
			slot[i].state = DONE;
			slot[i].in = 0;
			slot[i].total = 0;
			slot[i].data = 0;
			slot[i].n_sent = 0;
			slot[i].passed = 0;
			slot[i].passed_total = 0;
			slot[i].is_told = false;
			slot[i].told = 0;
			slot[i].told_total = 0
		}
	}
	for (h : 0 .. HOSTS - 1) {
		for (b : first .. first + W - 1) {
			lane_resume()
		}
	}
	step_end()
}
#endif

/* ---- start and end */

inline connect(child, to, hosts)
{
	parent[child] = to;
	children[to] = children[to] | 1 << child;
	hosts_below[to] = hosts_below[to] | hosts
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
	connect(uplink(1), ROOT, hosts_below[1]);
	connect(uplink(2), ROOT, hosts_below[2])
#endif
}

/* What a slot holds is the block before its first one: done, and nobody's. */
inline start()
{
	topology_make();
	for (s : 0 .. SWITCHES - 1) {
		for (b : BASE - SLOTS .. BASE - 1) {
			i = s * SLOTS + (b & (SLOTS - 1));
			slot[i].block = b;
			slot[i].state = DONE
		}
	}
	for (h : 0 .. HOSTS - 1) {
		for (b : BASE .. BASE + W - 1) {
			lane[h * W + (b & (W - 1))] = b;
			host_send(h, b)
		}
	}
}

inline check_slots_are_finished()
{
	for (i : 0 .. SWITCHES * SLOTS - 1) {
		slots_are_finished = slot[i].state == DONE && slot[i].block >= END - SLOTS;
		assert(slots_are_finished)
	}
}

/* ---- the network; a set is sent, result, query or absent */

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

#define pick_place(set) \
	if \
	:: set[link] >> 0 & 1 -> at = 0 :: set[link] >> 1 & 1 -> at = 1 \
	:: set[link] >> 2 & 1 -> at = 2 :: set[link] >> 3 & 1 -> at = 3 \
	:: set[link] >> 4 & 1 -> at = 4 :: set[link] >> 5 & 1 -> at = 5 \
	:: set[link] >> 6 & 1 -> at = 6 :: set[link] >> 7 & 1 -> at = 7 \
	:: set[link] >> 8 & 1 -> at = 8 :: set[link] >> 9 & 1 -> at = 9 \
	:: set[link] >> 10 & 1 -> at = 10 :: set[link] >> 11 & 1 -> at = 11 \
	:: set[link] >> 12 & 1 -> at = 12 :: set[link] >> 13 & 1 -> at = 13 \
	:: set[link] >> 14 & 1 -> at = 14 \
	fi

/* Any packet of a set; can't be executed if there is none. */
#define pick(set) in_flight(set) -> pick_link(set); pick_place(set)

#if LOSSES
#define TOLD in_flight(told)
#else
#define TOLD false
#endif
#define QUIET (!(in_flight(sent) || in_flight(result) || in_flight(query) || \
	in_flight(absent) || TOLD))

/* Nothing of a step is left to tell states apart. */
inline step_end()
{
	link = 0;
	at = 0;
	spill = false
}

inline deliver_shard()
{
	switch_receive();
	step_end()
}

inline deliver_result()
{
	if
	:: link < HOSTS -> host_receive()
	:: else -> leaf_receive_result()
	fi;
	step_end()
}

inline deliver_absent()
{
	b = BASE + at;
	has = (recovering -> absent_has[link * BLOCKS + at] : 0);
	if
	:: link < HOSTS -> host_receive_absent()
	:: else -> switch_receive_absent()
	fi;
	step_end()
}

#define taken(set) set[link] = set[link] & ~(1 << at)

/*
 * In flight are all packets that were sent so far, and answers to switches that their block
 * was absent: it was, before it arrived. Other queries and answers bring nothing that is
 * not in flight already.
 */
inline lose_everything()
{
	printf("all packets are lost\n");
	for (c : 0 .. LINKS - 1) {
		sent[c] = 0;
#if LOSSES
		told[c] = 0;
#endif
		result[c] = 0
	}
}

inline recover(with_spills)
{
	lose_everything();
	recovering = true;
	spilling = with_spills;
	rested = false;
	for (i : 0 .. SWITCHES * SLOTS - 1) {
		asked[i] = (with_spills -> children[i / SLOTS] & ~1 : 0)
	}
	do
	:: pick(sent); taken(sent); spill = spilling; deliver_shard()
	:: pick(query); taken(query); switch_receive_query(); step_end()
	:: pick(absent); taken(absent); deliver_absent()
	:: pick(result); taken(result); deliver_result()
#if LOSSES
	:: pick(told); taken(told); switch_receive_told(); step_end()
#endif
	:: QUIET && left > 0 -> timers_fire()
	:: QUIET && left == 0 -> break
	od;
	recovering = false;
	spilling = false;
	check_slots_are_finished()
}

active proctype network()
{
	d_step { start(); skip }
	do
	:: atomic {
		pick(sent);
		if
		:: true
		:: slot[parent[link] * SLOTS + ((at / SHARDS) & (SLOTS - 1))].n_sent < SHARDS - 1 ->
			spill = true
		fi;
		d_step { deliver_shard() }
	}
	:: atomic { pick(result); d_step { deliver_result() } }
#if LOSSES
	:: atomic { pick(told); d_step { switch_receive_told(); step_end() } }
	:: d_step { losses < LOSSES && left > 0 -> lose_run(); skip }
#endif
#if LEVELS > 1
	:: atomic {
		pick(sent);
		d_step {
			at = at / SHARDS;
			if
			:: link >= HOSTS -> deliver_absent()
			:: else -> step_end()
			fi
		}
	}
#endif
	:: d_step { recover(false); skip } -> break
	:: d_step { recover(true); skip } -> break
	od
}
