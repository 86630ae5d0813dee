/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two leaves and two spines with the handler `canary`, four ranks, and links that lose, duplicate
 * and delay packets, in virtual time. The test plays hosts and leaders by the main rules of
 * protocols/canary/README.md. Each sum that a leader gets is exact for the ranks that it names,
 * every rank gets each block's result, and no rank has to ask if nothing is lost, duplicated or
 * late and no switch restarts.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include <check.h>

#include "lab/reference/random.h"
#include "protocols/canary/tests/canary_rig.h"
#include "tests/unit/suites.h"

#define RANKS 4
#define BLOCKS 40
#define MAX_EVENTS 4096
#define HOP_NS 5000u
#define TICK_NS 20000u /* the shortest timer of a descriptor: least_us */
#define OVERDUE_NS 20000000u
#define MAX_NS 20000000000ull /* of a run */
/* Ports of a leaf: 0 and 1 hosts, 2 and 3 spines; of a spine 0 and 1 leaves. */
#define FIRST_UPLINK 2

enum {
	LEAF0,
	LEAF1,
	SPINE0,
	SPINE1
};

struct options {
	unsigned int loss;  /* of 1000 packets on each link */
	unsigned int twice; /* likewise */
	unsigned int late;  /* likewise: those that take a hundred times as long */
	unsigned int restarts;
	uint32_t slots;
	uint16_t window;
	bool adaptive; /* next hops are chosen by chance */
};

struct event {
	uint64_t due_ns;
	int target; /* a switch; or -1 - rank */
	unsigned int port;
	struct rte_mbuf *mbuf;
};

/* A block at its leader. */
struct entry {
	uint64_t members; /* ranks but the leader whose data is here */
	uint64_t direct;  /* those of them whose data came with DIRECT, but not from a collision */
	uint64_t collided[CANARY_RIG_SWITCHES]; /* of each switch the ports whose data collided */
	uint64_t asked_ns;
	bool done;
};

struct rank {
	uint32_t next;   /* block to be sent */
	uint32_t oldest; /* without a result */
	bool has_result[BLOCKS];
	uint64_t sent_ns[BLOCKS];
	uint64_t late_until_ns; /* its application computes */
};

static struct canary_rig rig;
static struct options options;
static struct random random_state;
static struct event events[MAX_EVENTS];
static unsigned int n_events;
static struct entry entries[BLOCKS];
static struct rank ranks[RANKS];
static unsigned int n_questions; /* of ranks for results, and of leaders for data */

static unsigned int
below(unsigned int n)
{
	return random_below(&random_state, n);
}

static bool
happens(unsigned int of_1000)
{
	return below(1000) < of_1000;
}

static void
post(struct rte_mbuf *mbuf, int target, unsigned int port)
{
	ck_assert_uint_lt(n_events, MAX_EVENTS);
	events[n_events++] = (struct event){
		.due_ns = rig.now_ns + HOP_NS / 2 + below(HOP_NS) +
			  (happens(options.late) ? 100 * HOP_NS : 0),
		.target = target,
		.port = port,
		.mbuf = mbuf,
	};
}

static struct rte_mbuf *
copy_of(const struct rte_mbuf *mbuf)
{
	struct rte_mbuf *copy = fake_get(&rig.pool,
					 mbuf->data_len - (uint32_t)FANIN_PAYLOAD_OFFSET);

	memcpy(rte_pktmbuf_mtod(copy, void *), rte_pktmbuf_mtod(mbuf, const void *),
	       mbuf->data_len);
	return copy;
}

/* A packet on a link: a copy, so that every receiver has its own. */
static void
transmit(const struct rte_mbuf *mbuf, int target, unsigned int port)
{
	if (!happens(options.loss))
		post(copy_of(mbuf), target, port);
	if (happens(options.twice))
		post(copy_of(mbuf), target, port);
}

static unsigned int
leaf_of(unsigned int rank)
{
	return rank / 2;
}

/* Sends a packet out of a port of a switch, to the switch or rank at its other end. */
static void
transmit_by_port(const struct rte_mbuf *mbuf, unsigned int number, unsigned int port)
{
	if (number >= SPINE0)
		transmit(mbuf, (int)port, FIRST_UPLINK + number - SPINE0);
	else if (port >= FIRST_UPLINK)
		transmit(mbuf, (int)(SPINE0 + port - FIRST_UPLINK), number);
	else
		transmit(mbuf, -1 - (int)(2 * number + port), 0);
}

/*
 * Carries out an emission of a switch: sends the packet out of the ports that it names or, of kind
 * ROUTE, towards the packet's destination address.
 */
static void
carry(void *user, unsigned int number, const struct fanin_emission *emission)
{
	const struct fanin_headers *headers = rte_pktmbuf_mtod(emission->mbuf,
							       const struct fanin_headers *);
	const uint32_t ip = ntohl(headers->ip.dst_be);
	unsigned int leaf;

	(void)user;
	if (emission->kind == FANIN_EMIT_PORTS) {
		for (uint64_t left = emission->ports; left != 0; left &= left - 1)
			transmit_by_port(emission->mbuf, number,
					 (unsigned int)__builtin_ctzll(left));
		return;
	}
	if (ip >= CANARY_RIG_SWITCH_IP(0)) {
		const unsigned int to = ip - CANARY_RIG_SWITCH_IP(0);

		ck_assert_uint_lt(to, CANARY_RIG_SWITCHES);
		ck_assert_uint_ne(to, number);
		/* From a leaf up, or from a spine down; to another leaf by a spine. */
		if (number >= SPINE0)
			transmit_by_port(emission->mbuf, number, to);
		else
			transmit_by_port(emission->mbuf, number,
					 FIRST_UPLINK + (to >= SPINE0 ? to - SPINE0 : below(2)));
		return;
	}
	leaf = leaf_of(ip - CANARY_RIG_LEADER_IP(0));
	if (number >= SPINE0)
		transmit_by_port(emission->mbuf, number, leaf);
	else if (number == leaf)
		transmit_by_port(emission->mbuf, number, (ip - CANARY_RIG_LEADER_IP(0)) % 2);
	else
		transmit_by_port(emission->mbuf, number,
				 FIRST_UPLINK + (emission->route.has_flow && !options.adaptive
							 ? emission->route.flow % 2
							 : below(2)));
}

/* A host sends to its leaf. Gives the mbuf up. */
static void
send_from(unsigned int rank, struct rte_mbuf *mbuf)
{
	transmit(mbuf, (int)leaf_of(rank), rank % 2);
	fake_put(&rig.pool, mbuf);
}

static void
result_arrives(unsigned int rank, uint32_t block)
{
	struct rank *who = &ranks[rank];

	who->has_result[block] = true;
	while (who->oldest < BLOCKS && who->has_result[who->oldest])
		who->oldest++;
}

static uint64_t
others(uint32_t block)
{
	return fanin_ranks_all_word(RANKS, 0) & ~(UINT64_C(1) << fanin_canary_leader(block, RANKS));
}

/*
 * Plays REPEAT, which switches only pass on: it arrives at once, or is lost with the chance of
 * three links (it would pass two or four).
 */
static void
repeat(unsigned int rank, uint32_t block)
{
	if (!happens(options.loss) && !happens(options.loss) && !happens(options.loss))
		result_arrives(rank, block);
}

/* The leader has all: makes the result, if it has sent its own data. */
static void
finish_if_complete(uint32_t block)
{
	const unsigned int leader = fanin_canary_leader(block, RANKS);
	struct entry *entry = &entries[block];

	if (entry->done || entry->members != others(block) || ranks[leader].next <= block)
		return;
	entry->done = true;
	result_arrives(leader, block);
	send_from(leader, canary_rig_result(&rig, block));
	for (unsigned int number = 0; number < CANARY_RIG_SWITCHES; number++) {
		if (entry->collided[number] != 0)
			send_from(leader,
				  canary_rig_restore(&rig, block, number, entry->collided[number]));
	}
	for (uint64_t left = entry->direct; left != 0; left &= left - 1)
		repeat((unsigned int)__builtin_ctzll(left), block);
}

static void
leader_takes(unsigned int rank, const struct rte_mbuf *mbuf)
{
	const struct fanin_hdr *hdr = &rte_pktmbuf_mtod(mbuf, const struct fanin_headers *)->fanin;
	const uint64_t members = hdr->members;
	struct entry *entry = &entries[hdr->block];

	ck_assert_uint_eq(rank, fanin_canary_leader(hdr->block, RANKS));
	/* The main claim: each sum is exact for its members. */
	ck_assert_msg(canary_rig_is_sum(mbuf, hdr->block, members),
		      "block %u: the elements are not the sum of the ranks %llx", hdr->block,
		      (unsigned long long)members);
	ck_assert_uint_eq(members & ~others(hdr->block), 0);
	if (entry->done || (members & ~entry->members) == 0 ||
	    ((members & entry->members) != 0 && (entry->members & ~members) != 0))
		return;
	entry->members |= members;
	/* After a collision `number` is the switch's address and `rank` its ingress port. */
	if (hdr->number != 0)
		entry->collided[ntohl(hdr->number) - CANARY_RIG_SWITCH_IP(0)] |= UINT64_C(1)
										 << hdr->rank;
	else if ((hdr->flags & FANIN_FLAG_DIRECT) != 0)
		entry->direct |= members;
	finish_if_complete(hdr->block);
}

static void
host_takes(unsigned int rank, const struct rte_mbuf *mbuf)
{
	const struct fanin_hdr *hdr = &rte_pktmbuf_mtod(mbuf, const struct fanin_headers *)->fanin;

	if (hdr->type == FANIN_TYPE_REDUCE) {
		leader_takes(rank, mbuf);
		return;
	}
	ck_assert_int_eq(hdr->type, FANIN_TYPE_RESULT);
	ck_assert(canary_rig_is_sum(mbuf, hdr->block, fanin_ranks_all_word(RANKS, 0)));
	result_arrives(rank, hdr->block);
}

/* A rank sends what its window allows. */
static void
rank_sends(unsigned int rank)
{
	struct rank *who = &ranks[rank];

	while (rig.now_ns >= who->late_until_ns && who->next < BLOCKS &&
	       who->next < who->oldest + options.window) {
		const uint32_t block = who->next++;

		who->sent_ns[block] = rig.now_ns;
		if (fanin_canary_leader(block, RANKS) == rank)
			finish_if_complete(block);
		else
			send_from(rank, canary_rig_reduce(&rig, block, UINT64_C(1) << rank, 0));
		if (below(10) == 0)
			who->late_until_ns = rig.now_ns + below(400000);
	}
}

/*
 * Asks if this rank's oldest block without a result is overdue: the leader repeats the result or,
 * if there is none yet, the ranks that the leader lacks send their data again, with DIRECT. The
 * first rank that finds the block overdue causes that.
 */
static void
rank_asks(unsigned int rank)
{
	struct rank *who = &ranks[rank];
	const uint32_t block = who->oldest;
	struct entry *entry = &entries[block];

	if (block >= who->next || rig.now_ns < who->sent_ns[block] + OVERDUE_NS ||
	    rig.now_ns < entry->asked_ns + OVERDUE_NS)
		return;
	if (entry->done) {
		n_questions++;
		repeat(rank, block);
		return;
	}
	entry->asked_ns = rig.now_ns;
	for (uint64_t left = others(block) & ~entry->members; left != 0; left &= left - 1) {
		const unsigned int lacking = (unsigned int)__builtin_ctzll(left);

		if (ranks[lacking].next <= block || happens(options.loss))
			continue;
		n_questions++;
		ck_assert(!ranks[lacking].has_result[block]);
		send_from(lacking, canary_rig_reduce(&rig, block, UINT64_C(1) << lacking,
						     FANIN_FLAG_DIRECT));
	}
}

/* Delivers what is due until then, earliest first. The clock ends at the last of these events. */
static void
deliver_until(uint64_t until_ns)
{
	for (;;) {
		unsigned int first = 0;
		struct event event;

		for (unsigned int i = 1; i < n_events; i++) {
			if (events[i].due_ns < events[first].due_ns)
				first = i;
		}
		if (n_events == 0 || events[first].due_ns > until_ns)
			return;
		event = events[first];
		events[first] = events[--n_events];
		if (event.due_ns > rig.now_ns)
			canary_rig_pass_time(&rig, event.due_ns - rig.now_ns);
		if (event.target >= 0) {
			ck_assert_int_ne(canary_rig_offer(&rig, (unsigned int)event.target,
							  event.port, event.mbuf),
					 FANIN_VERDICT_DROP);
		} else {
			host_takes((unsigned int)(-1 - event.target), event.mbuf);
			fake_put(&rig.pool, event.mbuf);
		}
	}
}

static bool
all_done(void)
{
	for (unsigned int rank = 0; rank < RANKS; rank++) {
		if (ranks[rank].oldest < BLOCKS)
			return false;
	}
	return true;
}

static void
build(void)
{
	canary_rig_start(&rig, CANARY_RIG_SWITCHES, RANKS, options.window, options.slots);
	rig.emit = carry;
	for (unsigned int leaf = LEAF0; leaf <= LEAF1; leaf++) {
		canary_rig_host(&rig, leaf, 0, 2 * leaf);
		canary_rig_host(&rig, leaf, 1, 2 * leaf + 1);
		canary_rig_link(&rig, leaf, FIRST_UPLINK);
		canary_rig_link(&rig, leaf, FIRST_UPLINK + 1);
		canary_rig_link(&rig, SPINE0, leaf);
		canary_rig_link(&rig, SPINE1, leaf);
	}
}

static void
run(uint64_t seed)
{
	random_state = random_seed(seed);
	n_events = 0;
	n_questions = 0;
	memset(entries, 0, sizeof(entries));
	memset(ranks, 0, sizeof(ranks));
	build();
	for (unsigned int restarts = options.restarts; !all_done();) {
		ck_assert_msg(rig.now_ns < MAX_NS, "seed %llu: no end", (unsigned long long)seed);
		for (unsigned int rank = 0; rank < RANKS; rank++) {
			rank_sends(rank);
			rank_asks(rank);
		}
		deliver_until(rig.now_ns + TICK_NS / 2);
		canary_rig_pass_time(&rig, TICK_NS / 2);
		if (restarts != 0 && below(40) == 0) {
			canary_rig_restart(&rig, below(CANARY_RIG_SWITCHES));
			restarts--;
		}
	}
	while (n_events != 0)
		fake_put(&rig.pool, events[--n_events].mbuf);
}

static uint64_t
count(enum canary_counter counter)
{
	uint64_t n = 0;

	for (unsigned int number = 0; number < CANARY_RIG_SWITCHES; number++)
		n += rig.switches[number].stats.own[counter];
	return n;
}

START_TEST(without_loss_nobody_asks)
{
	static const uint32_t slots[] = { 1, 2, 4, 64 };
	uint64_t collisions = 0, stragglers = 0;

	options = (struct options){
		.slots = slots[_i % 4],
		.window = (uint16_t)(1 << _i / 4 % 4),
		.adaptive = _i % 3 == 0,
	};
	for (uint64_t seed = 0; seed < 20; seed++) {
		run(seed * 64 + (uint64_t)_i);
		ck_assert_uint_eq(n_questions, 0);
		/* A switch with 2W slots gives up no descriptor. */
		if (options.slots >= 2u * options.window)
			ck_assert_uint_eq(count(CANARY_GIVEN_UP), 0);
		collisions += count(CANARY_COLLISIONS);
		stragglers += count(CANARY_STRAGGLERS);
		canary_rig_stop(&rig);
	}
	/* There were stragglers and, with less than W slots, collisions. */
	ck_assert(options.slots >= options.window || collisions != 0);
	ck_assert_uint_ne(stragglers, 0);
}
END_TEST

START_TEST(sums_are_exact_whatever_is_lost)
{
	unsigned int asked = 0;

	for (uint64_t seed = 0; seed < 60; seed++) {
		options = (struct options){
			.loss = (unsigned int)(seed % 3) * 40,
			.twice = (unsigned int)(seed % 4) * 30,
			.late = (unsigned int)(seed % 5) * 20,
			.restarts = seed % 2 == 0 ? 0 : 8,
			.slots = 1u << seed % 5,
			.window = (uint16_t)(1 << seed % 3),
			.adaptive = seed % 7 < 3,
		};
		run(1000 + seed * 100 + (uint64_t)_i);
		asked += n_questions;
		canary_rig_stop(&rig);
	}
	ck_assert_uint_ne(asked, 0);
}
END_TEST

Suite *
suite_canary_network(void)
{
	Suite *suite = suite_create("canary_network");
	TCase *tcase = tcase_create("network");

	tcase_add_loop_test(tcase, without_loss_nobody_asks, 0, 16);
	tcase_add_loop_test(tcase, sums_are_exact_whatever_is_lost, 0, 8);
	suite_add_tcase(suite, tcase);
	return suite;
}
