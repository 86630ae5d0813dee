/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A switch of a Canary job: descriptors and data that meets them, learned timeouts, collisions,
 * results and restoration, and which senders are believed (protocols/canary/README.md, "What a
 * switch does"). Ranks 0 and 1 are at ports 0 and 1, the other four behind ports 4 and 5.
 */
#include <arpa/inet.h>
#include <string.h>

#include <check.h>

#include "protocols/canary/tests/canary_rig.h"
#include "tests/unit/suites.h"

#define RANKS 6
#define WINDOW 8
#define MIN_NS 20000u
#define UPLINKS (UINT64_C(1) << 4 | UINT64_C(1) << 5)

/* An emission. */
struct output {
	enum fanin_emission_kind kind;
	uint64_t ports;
	bool has_flow;
	uint32_t flow;
	struct fanin_headers headers;
	bool is_sum; /* of the ranks in members; of RESULT of all */
};

static struct canary_rig rig;
static struct output outputs[64];
static unsigned int n_outputs, next_output;

static void
keep(void *user, unsigned int number, const struct fanin_emission *emission)
{
	struct output *output = &outputs[n_outputs++];

	(void)user;
	(void)number;
	ck_assert_uint_le(n_outputs, 64);
	*output = (struct output){ .kind = emission->kind };
	memcpy(&output->headers, rte_pktmbuf_mtod(emission->mbuf, const void *),
	       sizeof(output->headers));
	if (emission->kind == FANIN_EMIT_PORTS) {
		output->ports = emission->ports;
		output->is_sum = canary_rig_is_sum(emission->mbuf, output->headers.fanin.block,
						   fanin_ranks_all_word(RANKS, 0));
		return;
	}
	output->has_flow = emission->route.has_flow;
	output->flow = emission->route.flow;
	ck_assert(emission->route.by_backlog);
	output->is_sum = canary_rig_is_sum(emission->mbuf, output->headers.fanin.block,
					   output->headers.fanin.members);
}

static void
start_with(uint32_t slots)
{
	canary_rig_start(&rig, 1, RANKS, WINDOW, slots);
	rig.emit = keep;
	canary_rig_host(&rig, 0, 0, 0);
	canary_rig_host(&rig, 0, 1, 1);
	canary_rig_link(&rig, 0, 4);
	canary_rig_link(&rig, 0, 5);
	n_outputs = next_output = 0;
}

static void
setup(void)
{
	start_with(32);
}

static void
teardown(void)
{
	canary_rig_stop(&rig);
}

static const struct output *
take(enum fanin_emission_kind kind, enum fanin_type type)
{
	const struct output *output = &outputs[next_output++];

	ck_assert_uint_le(next_output, n_outputs);
	ck_assert_int_eq(output->kind, kind);
	ck_assert_uint_eq(output->headers.fanin.type, type);
	return output;
}

static void
expect_nothing(void)
{
	ck_assert_uint_eq(next_output, n_outputs);
}

static uint64_t
count(enum canary_counter counter)
{
	return rig.switches[0].stats.own[counter];
}

static void
reduce(unsigned int port, uint32_t block, uint64_t members)
{
	ck_assert_int_ne(canary_rig_offer(&rig, 0, port,
					  canary_rig_reduce(&rig, block, members, 0)),
			 FANIN_VERDICT_DROP);
}

/* The sum of these ranks goes on towards the leader, where it may meet others. */
static void
expect_sum(uint32_t block, uint64_t members)
{
	const struct output *sum = take(FANIN_EMIT_ROUTE, FANIN_TYPE_REDUCE);
	const struct fanin_hdr *hdr = &sum->headers.fanin;

	ck_assert_uint_eq(hdr->block, block);
	ck_assert_uint_eq(hdr->members, members);
	ck_assert_uint_eq(hdr->contributions, __builtin_popcountll(members));
	ck_assert_uint_eq(hdr->flags, 0);
	ck_assert_uint_eq(hdr->epoch, CANARY_RIG_RUN);
	ck_assert_uint_eq(ntohl(sum->headers.ip.dst_be), CANARY_RIG_LEADER_IP(block % RANKS));
	ck_assert(sum->is_sum);
	ck_assert(sum->has_flow);
}

static void
expect_result(uint32_t block, uint64_t ports)
{
	const struct output *result = take(FANIN_EMIT_PORTS, FANIN_TYPE_RESULT);

	ck_assert_uint_eq(result->ports, ports);
	ck_assert_uint_eq(result->headers.fanin.block, block);
	ck_assert_uint_eq(result->headers.fanin.epoch, CANARY_RIG_RUN);
	ck_assert_uint_eq(result->headers.fanin.key, 21);
	ck_assert_uint_eq(ntohl(result->headers.ip.src_be), CANARY_RIG_SWITCH_IP(0));
	ck_assert(result->is_sum);
}

static void
set_parameter(enum fanin_canary_parameter parameter, uint64_t value)
{
	rig.switches[0].job.parameters[parameter] = value;
	rig.switches[0].timers->timeout_ns = rig.handler->timeout_ns(&rig.switches[0].job);
}

/* ------------------------------------------------------------- descriptors */

START_TEST(all_hosts_of_a_leaf_leave_at_once)
{
	reduce(0, 5, 1);
	expect_nothing();
	reduce(1, 5, 2);
	expect_sum(5, 3);
	canary_rig_pass_time(&rig, 10 * MIN_NS);
	expect_nothing();
	ck_assert_uint_eq(count(CANARY_COMPLETE), 1);
	ck_assert_uint_eq(count(CANARY_MERGED), 1);
	ck_assert_int_eq(canary_rig_slot(&rig, 0, 5)->phase, CANARY_SENT);
}
END_TEST

START_TEST(late_data_goes_on_as_a_straggler)
{
	reduce(0, 5, 1);
	canary_rig_pass_time(&rig, MIN_NS - 1);
	expect_nothing();
	canary_rig_pass_time(&rig, 1);
	expect_sum(5, 1);
	reduce(1, 5, 2);
	expect_sum(5, 2);
	ck_assert_uint_eq(count(CANARY_STRAGGLERS), 1);
	/*
	 * Both ranks have been seen: further copies are duplicates, or the sum is lost further up.
	 */
	reduce(0, 5, 1);
	reduce(1, 5, 2);
	expect_nothing();
	ck_assert_uint_eq(rig.switches[0].stats.duplicates, 2);
	ck_assert_int_eq(canary_rig_offer(&rig, 0, 4, canary_rig_result(&rig, 5)),
			 FANIN_VERDICT_HELD);
	expect_result(5, 3);
}
END_TEST

START_TEST(the_root_waits_for_timers_of_others)
{
	/* Rank 0 leads block 6. */
	reduce(1, 6, 2);
	canary_rig_pass_time(&rig, 3 * MIN_NS - MIN_NS / 4 - 1);
	expect_nothing();
	reduce(4, 6, 4 | 8);
	reduce(5, 6, 16);
	expect_nothing();
	reduce(4, 6, 32);
	expect_sum(6, 62);
	/* Without the last ones it waits no longer. */
	reduce(1, 12, 2);
	canary_rig_pass_time(&rig, 3 * MIN_NS);
	expect_sum(12, 2);
	/* For a part of the least timeout there is no further timer. */
	reduce(1, 18, 2);
	canary_rig_pass_time(&rig, 3 * MIN_NS - MIN_NS / 4);
	expect_sum(18, 2);
}
END_TEST

START_TEST(a_timeout_may_be_fixed)
{
	set_parameter(FANIN_CANARY_TIMEOUT, 300);
	reduce(0, 5, 1);
	canary_rig_pass_time(&rig, 299999);
	expect_nothing();
	canary_rig_pass_time(&rig, 1);
	expect_sum(5, 1);
	reduce(1, 6, 2);
	canary_rig_pass_time(&rig, 600000);
	expect_nothing();
	canary_rig_pass_time(&rig, 300000);
	expect_sum(6, 2);
}
END_TEST

START_TEST(a_rank_is_in_a_sum_once)
{
	reduce(4, 5, 4 | 8);
	/* There already. */
	reduce(5, 5, 8);
	reduce(4, 5, 4 | 8);
	ck_assert_uint_eq(rig.switches[0].stats.duplicates, 2);
	expect_nothing();
	/* Some of it is there: as it is. */
	reduce(4, 5, 8 | 16);
	expect_sum(5, 8 | 16);
	ck_assert_uint_eq(count(CANARY_OVERLAPS), 1);
	/* All that is there, and more. */
	reduce(5, 5, 4 | 8 | 16);
	expect_nothing();
	canary_rig_pass_time(&rig, MIN_NS);
	expect_sum(5, 4 | 8 | 16);
	ck_assert_uint_eq(canary_rig_slot(&rig, 0, 5)->ports, UPLINKS);
}
END_TEST

START_TEST(data_of_another_shape_goes_on)
{
	struct rte_mbuf *other = canary_rig_reduce(&rig, 5, 2, 0);

	reduce(0, 5, 1);
	rte_pktmbuf_mtod(other, struct fanin_headers *)->fanin.op = FANIN_WIRE_MAX;
	ck_assert_int_eq(canary_rig_offer(&rig, 0, 1, other), FANIN_VERDICT_HELD);
	ck_assert_uint_eq(take(FANIN_EMIT_ROUTE, FANIN_TYPE_REDUCE)->headers.fanin.op,
			  FANIN_WIRE_MAX);
	canary_rig_pass_time(&rig, MIN_NS);
	expect_sum(5, 1);
}
END_TEST

START_TEST(empty_packets_bring_their_ranks)
{
	ck_assert_int_eq(canary_rig_offer(&rig, 0, 0,
					  canary_rig_reduce(&rig, 5, 1, FANIN_FLAG_EMPTY)),
			 FANIN_VERDICT_HELD);
	ck_assert_int_eq(canary_rig_offer(&rig, 0, 4,
					  canary_rig_reduce(&rig, 5, 4, FANIN_FLAG_EMPTY)),
			 FANIN_VERDICT_FREE);
	reduce(1, 5, 2);
	{
		const struct output *sum = take(FANIN_EMIT_ROUTE, FANIN_TYPE_REDUCE);

		/* Of three ranks, with the data of one. */
		ck_assert_uint_eq(sum->headers.fanin.members, 7);
		ck_assert_uint_eq(sum->headers.fanin.flags, 0);
	}
	/* Nothing but empty ones stays empty. */
	canary_rig_offer(&rig, 0, 0, canary_rig_reduce(&rig, 11, 1, FANIN_FLAG_EMPTY));
	canary_rig_offer(&rig, 0, 1, canary_rig_reduce(&rig, 11, 2, FANIN_FLAG_EMPTY));
	ck_assert_uint_eq(take(FANIN_EMIT_ROUTE, FANIN_TYPE_REDUCE)->headers.fanin.flags,
			  FANIN_FLAG_EMPTY);
}
END_TEST

START_TEST(sums_of_a_block_go_the_same_way)
{
	uint32_t flows[4];

	for (unsigned int i = 0; i < 4; i++) {
		reduce(0, 5 + 6 * i, 1);
		reduce(1, 5 + 6 * i, 2);
		flows[i] = take(FANIN_EMIT_ROUTE, FANIN_TYPE_REDUCE)->flow;
	}
	ck_assert(flows[0] != flows[1] || flows[1] != flows[2]);
	reduce(4, 5, 4);
	ck_assert_uint_eq(take(FANIN_EMIT_ROUTE, FANIN_TYPE_REDUCE)->flow, flows[0]);
}
END_TEST

/* --------------------------------------------------------------- collisions */

static void
expect_collision(uint32_t block, uint64_t members, unsigned int port)
{
	const struct output *output = take(FANIN_EMIT_ROUTE, FANIN_TYPE_REDUCE);

	ck_assert_uint_eq(output->headers.fanin.block, block);
	ck_assert_uint_eq(output->headers.fanin.members, members);
	ck_assert_uint_eq(output->headers.fanin.flags, FANIN_FLAG_DIRECT);
	ck_assert_uint_eq(ntohl(output->headers.fanin.number), CANARY_RIG_SWITCH_IP(0));
	ck_assert_uint_eq(output->headers.fanin.rank, port);
	ck_assert(!output->has_flow && output->is_sum);
}

START_TEST(a_descriptor_keeps_its_place)
{
	teardown();
	start_with(2);
	reduce(0, 5, 1);
	reduce(0, 7, 1);
	expect_collision(7, 1, 0);
	canary_rig_pass_time(&rig, MIN_NS);
	expect_sum(5, 1);
	/* The descriptor's ports wait for the result, unless the result seems to be lost. */
	canary_rig_pass_time(&rig, 2000000000);
	reduce(0, 7, 1);
	expect_collision(7, 1, 0);
	canary_rig_pass_time(&rig, 1);
	reduce(0, 7, 1);
	expect_nothing();
	ck_assert_uint_eq(count(CANARY_COLLISIONS), 2);
	ck_assert_uint_eq(count(CANARY_GIVEN_UP), 1);
	ck_assert_uint_eq(rig.switches[0].state->used, 1);
}
END_TEST

START_TEST(a_block_two_windows_later_has_the_place)
{
	teardown();
	start_with(2);
	reduce(0, 5, 1);
	reduce(0, 5 + 2 * WINDOW - 2, 1);
	expect_collision(5 + 2 * WINDOW - 2, 1, 0);
	reduce(0, 5 + 2 * WINDOW, 1);
	expect_nothing();
	ck_assert_uint_eq(canary_rig_slot(&rig, 0, 5)->tag.block, 5 + 2 * WINDOW);
	/* Late packets of the block before collide. */
	reduce(1, 5, 2);
	expect_collision(5, 2, 1);
}
END_TEST

START_TEST(a_later_run_has_the_place)
{
	struct rte_mbuf *later = canary_rig_reduce(&rig, 5, 1, 0);

	reduce(0, 5, 1);
	rte_pktmbuf_mtod(later, struct fanin_headers *)->fanin.epoch++;
	ck_assert_int_eq(canary_rig_offer(&rig, 0, 0, later), FANIN_VERDICT_HELD);
	expect_nothing();
	ck_assert_uint_eq(canary_rig_slot(&rig, 0, 5)->run, CANARY_RIG_RUN + 1);
	reduce(1, 5, 2);
	expect_collision(5, 2, 1);
	/* Results of the earlier run are for nobody. */
	ck_assert_int_eq(canary_rig_offer(&rig, 0, 4, canary_rig_result(&rig, 5)),
			 FANIN_VERDICT_FREE);
	ck_assert_uint_eq(count(CANARY_UNKNOWN), 1);
}
END_TEST

START_TEST(another_jobs_descriptor_is_kept_whatever_a_packet_claims)
{
	struct canary_slot *slot;
	struct rte_mbuf *later;

	teardown();
	start_with(2);
	slot = canary_rig_slot(&rig, 0, 5);
	later = canary_rig_reduce(&rig, 5, 1, 0);
	reduce(0, 5, 1);
	slot->tag.job = 2;
	rte_pktmbuf_mtod(later, struct fanin_headers *)->fanin.epoch++;
	ck_assert_int_eq(canary_rig_offer(&rig, 0, 0, later), FANIN_VERDICT_HELD);
	expect_collision(5, 1, 0);
	reduce(0, 5 + 4 * WINDOW, 1);
	expect_collision(5 + 4 * WINDOW, 1, 0);
	ck_assert_uint_eq(slot->tag.job, 2);
	ck_assert_uint_eq(count(CANARY_GIVEN_UP), 0);
}
END_TEST

START_TEST(a_job_has_its_share_of_slots)
{
	set_parameter(FANIN_CANARY_SHARE, 5);
	reduce(0, 5, 1);
	reduce(0, 8, 1);
	expect_nothing();
	reduce(0, 7, 1);
	expect_collision(7, 1, 0);
	ck_assert_int_eq(canary_rig_offer(&rig, 0, 4, canary_rig_result(&rig, 5)),
			 FANIN_VERDICT_HELD);
	expect_result(5, 1);
	reduce(0, 7, 1);
	expect_nothing();
}
END_TEST

/* ------------------------------------------------------------------ results */

START_TEST(a_result_goes_back_by_the_ports)
{
	reduce(0, 5, 1);
	reduce(4, 5, 4);
	ck_assert_int_eq(canary_rig_offer(&rig, 0, 5, canary_rig_result(&rig, 5)),
			 FANIN_VERDICT_HELD);
	expect_result(5, 1 | 1 << 4);
	/* Also of a descriptor that was open still: its sum is not needed any more. */
	canary_rig_pass_time(&rig, 10 * MIN_NS);
	expect_nothing();
	ck_assert_int_eq(canary_rig_offer(&rig, 0, 5, canary_rig_result(&rig, 5)),
			 FANIN_VERDICT_FREE);
	ck_assert_uint_eq(count(CANARY_UNKNOWN), 1);
	/* Not where it came in. */
	reduce(4, 11, 4);
	reduce(5, 11, 8);
	ck_assert_int_eq(canary_rig_offer(&rig, 0, 5, canary_rig_result(&rig, 11)),
			 FANIN_VERDICT_HELD);
	expect_result(11, 1 << 4);
}
END_TEST

START_TEST(a_leader_restores_what_collided)
{
	ck_assert_int_eq(canary_rig_offer(&rig, 0, 4,
					  canary_rig_restore(&rig, 5, 0, 3 | UINT64_C(1) << 40)),
			 FANIN_VERDICT_HELD);
	expect_result(5, 3);
	ck_assert_int_eq(canary_rig_offer(&rig, 0, 4,
					  canary_rig_restore(&rig, 5, 0, UINT64_C(1) << 40)),
			 FANIN_VERDICT_FREE);
	expect_nothing();
	ck_assert_uint_eq(count(CANARY_RESTORED), 2);
	/* One for another switch. */
	ck_assert_int_eq(canary_rig_offer(&rig, 0, 4, canary_rig_restore(&rig, 5, 1, 3)),
			 FANIN_VERDICT_HELD);
	ck_assert_uint_eq(take(FANIN_EMIT_ROUTE, FANIN_TYPE_RESTORE)->headers.fanin.members, 3);
}
END_TEST

START_TEST(at_the_port_of_a_host_only_the_leader_is_believed)
{
	reduce(1, 6, 2);
	reduce(1, 5, 2);
	/* Rank 0 leads block 6, and not block 5. */
	ck_assert_int_eq(canary_rig_offer(&rig, 0, 0, canary_rig_result(&rig, 5)),
			 FANIN_VERDICT_DROP);
	ck_assert_int_eq(rig.reason, FANIN_REASON_RANK);
	ck_assert_int_eq(canary_rig_offer(&rig, 0, 1, canary_rig_restore(&rig, 6, 0, 1)),
			 FANIN_VERDICT_DROP);
	ck_assert_int_eq(canary_rig_offer(&rig, 0, 0, canary_rig_result(&rig, 6)),
			 FANIN_VERDICT_HELD);
	expect_result(6, 2);
	expect_nothing();
}
END_TEST

START_TEST(a_host_brings_its_own_data_only)
{
	static const struct {
		unsigned int port;
		uint32_t block;
		uint64_t members;
	} wrong[] = {
		{ 0, 5, 2 },  { 0, 5, 3 },      { 0, 5, 0 },
		{ 0, 6, 1 }, /* of the leader, which keeps it back */
		{ 4, 5, 32 }, { 4, 5, 64 | 4 }, { 4, 5, UINT64_C(1) << 63 },
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		for (uint16_t flags = 0; flags <= FANIN_FLAG_DIRECT; flags += FANIN_FLAG_DIRECT) {
			struct rte_mbuf *mbuf = canary_rig_reduce(&rig, wrong[i].block,
								  wrong[i].members, flags);

			ck_assert_int_eq(canary_rig_offer(&rig, 0, wrong[i].port, mbuf),
					 FANIN_VERDICT_DROP);
			ck_assert_int_eq(rig.reason, FANIN_REASON_RANK);
		}
	}
	ck_assert_uint_eq(rig.switches[0].state->used, 0);
	expect_nothing();
}
END_TEST

START_TEST(data_to_another_address_is_not_combined)
{
	struct rte_mbuf *astray = canary_rig_reduce(&rig, 5, 1, 0);
	struct fanin_ip *ip = &rte_pktmbuf_mtod(astray, struct fanin_headers *)->ip;

	ip->dst_be = htonl(0x0a0000fe);
	ip->checksum_be = 0;
	ip->checksum_be = fanin_ip_checksum(ip);
	ck_assert_int_eq(canary_rig_offer(&rig, 0, 0, astray), FANIN_VERDICT_HELD);
	reduce(1, 5, 2);
	expect_sum(5, 2);
	canary_rig_pass_time(&rig, MIN_NS);
	ck_assert_uint_eq(ntohl(take(FANIN_EMIT_ROUTE, FANIN_TYPE_REDUCE)->headers.ip.dst_be),
			  0x0a0000fe);
}
END_TEST

/* A host may not report collisions, either: only switches do. */
START_TEST(a_host_answers_for_no_other_leader)
{
	struct rte_mbuf *mbuf = canary_rig_result(&rig, 5);

	rte_pktmbuf_mtod(mbuf, struct fanin_headers *)->fanin.type = FANIN_TYPE_REPEAT;
	ck_assert_int_eq(canary_rig_offer(&rig, 0, 0, mbuf), FANIN_VERDICT_DROP);
	ck_assert_int_eq(rig.reason, FANIN_REASON_RANK);
	/* Rank 0 leads block 6. */
	mbuf = canary_rig_result(&rig, 6);
	rte_pktmbuf_mtod(mbuf, struct fanin_headers *)->fanin.type = FANIN_TYPE_REPEAT;
	ck_assert_int_eq(canary_rig_offer(&rig, 0, 0, mbuf), FANIN_VERDICT_HELD);
	take(FANIN_EMIT_ROUTE, FANIN_TYPE_REPEAT);
	mbuf = canary_rig_reduce(&rig, 5, 1, FANIN_FLAG_DIRECT);
	rte_pktmbuf_mtod(mbuf, struct fanin_headers *)->fanin.number = 4711;
	ck_assert_int_eq(canary_rig_offer(&rig, 0, 0, mbuf), FANIN_VERDICT_HELD);
	ck_assert_uint_eq(take(FANIN_EMIT_ROUTE, FANIN_TYPE_REDUCE)->headers.fanin.number, 0);
}
END_TEST

/* A packet of this type that a rank says it has sent. */
static struct rte_mbuf *
word_of(uint8_t type, uint16_t rank)
{
	/* A CALL's body is as long as the elements. */
	const uint16_t flags = type == FANIN_TYPE_CALL ? 0 : FANIN_FLAG_EMPTY;
	struct rte_mbuf *mbuf = canary_rig_reduce(&rig, 5, 2, flags);
	struct fanin_hdr *hdr = &rte_pktmbuf_mtod(mbuf, struct fanin_headers *)->fanin;

	hdr->type = type;
	hdr->rank = rank;
	hdr->flags = 0;
	hdr->number = type == FANIN_TYPE_QUERY;
	hdr->dtype = hdr->op = 0;
	hdr->count = 0;
	return mbuf;
}

START_TEST(a_host_speaks_for_no_other_rank)
{
	static const uint8_t types[] = { FANIN_TYPE_HERE, FANIN_TYPE_QUERY, FANIN_TYPE_CALL,
					 FANIN_TYPE_BYE };
	static const uint16_t others[] = { 0, 2, RANKS, 63, 64, 65, UINT16_MAX };

	for (size_t i = 0; i < sizeof(types); i++) {
		for (size_t k = 0; k < sizeof(others) / sizeof(others[0]); k++) {
			ck_assert_int_eq(canary_rig_offer(&rig, 0, 1, word_of(types[i], others[k])),
					 FANIN_VERDICT_DROP);
			ck_assert_int_eq(rig.reason, FANIN_REASON_RANK);
		}
		ck_assert_int_eq(canary_rig_offer(&rig, 0, 1, word_of(types[i], 1)),
				 FANIN_VERDICT_HELD);
		take(FANIN_EMIT_ROUTE, types[i]);
		/* Another switch has looked at it. */
		ck_assert_int_eq(canary_rig_offer(&rig, 0, 4, word_of(types[i], 3)),
				 FANIN_VERDICT_HELD);
		take(FANIN_EMIT_ROUTE, types[i]);
	}
	expect_nothing();
}
END_TEST

START_TEST(direct_packets_change_nothing)
{
	reduce(0, 5, 1);
	ck_assert_int_eq(canary_rig_offer(&rig, 0, 1,
					  canary_rig_reduce(&rig, 5, 2, FANIN_FLAG_DIRECT)),
			 FANIN_VERDICT_HELD);
	ck_assert_uint_eq(take(FANIN_EMIT_ROUTE, FANIN_TYPE_REDUCE)->headers.fanin.members, 2);
	ck_assert_uint_eq(canary_rig_slot(&rig, 0, 5)->seen, 1);
	ck_assert_uint_eq(count(CANARY_DIRECT), 1);
}
END_TEST

/* ------------------------------------------------------------------ lessons */

START_TEST(a_spine_learns_whom_it_sees)
{
	/* All ports lead to switches. */
	rig.switches[0].job.links = rig.switches[0].job.ports;
	rig.switches[0].job.ranks_here = 0;
	reduce(0, 5, 1);
	reduce(1, 5, 2);
	expect_nothing();
	canary_rig_pass_time(&rig, MIN_NS);
	expect_sum(5, 3);
	reduce(4, 5, 4);
	expect_sum(5, 4);
	canary_rig_offer(&rig, 0, 5, canary_rig_result(&rig, 5));
	expect_result(5, 3 | 1 << 4);
	/* From now on the straggler's rank is expected, too. */
	reduce(0, 11, 1);
	reduce(1, 11, 2);
	expect_nothing();
	reduce(4, 11, 4);
	expect_sum(11, 7);
	/* Another leader's blocks are another lesson. */
	reduce(0, 9, 1);
	reduce(1, 9, 2);
	reduce(4, 9, 4);
	expect_nothing();
}
END_TEST

START_TEST(the_job_tells_its_timeouts_and_slots)
{
	const struct fanin_job_params *job = &rig.switches[0].job;
	const struct fanin_handler *handler = rig.handler;
	uint64_t values[FANIN_VALUES_EACH_MAX];

	canary_learn(job, rig.switches[0].state, 5, 3, 80000);
	reduce(0, 5, 1);
	ck_assert_uint_eq(handler->tell(job, rig.switches[0].state, 0, values), RANKS);
	for (unsigned int leader = 0; leader < RANKS; leader++)
		ck_assert_uint_eq(values[leader],
				  canary_timeout_ns(job, rig.switches[0].state, leader) / 1000);
	ck_assert_uint_eq(values[5], 240);
	ck_assert_str_eq(handler->values[1].name, "slots_used");
	ck_assert_uint_eq(handler->tell(job, rig.switches[0].state, 1, values), 1);
	ck_assert_uint_eq(values[0], 1);
	ck_assert_uint_eq(handler->tell(job, rig.switches[0].state, 2, values), 1);
	ck_assert_uint_eq(values[0], 100 / (job->slots.mask + 1));
}
END_TEST

START_TEST(a_timeout_follows_how_far_packets_are_apart)
{
	const struct fanin_job_params *job = &rig.switches[0].job;
	struct canary_state *state = rig.switches[0].state;

	ck_assert_uint_eq(canary_timeout_ns(job, state, 5), MIN_NS);
	canary_learn(job, state, 5, 3, 80000);
	/* 80 us, and four times half of that. */
	ck_assert_uint_eq(canary_timeout_ns(job, state, 5), 240000);
	for (int i = 0; i < 100; i++)
		canary_learn(job, state, 5, 3, 80000);
	ck_assert_uint_ge(canary_timeout_ns(job, state, 5), 79000);
	ck_assert_uint_le(canary_timeout_ns(job, state, 5), 81000);
	/* A late application teaches nothing about the network, but which ranks came. */
	canary_learn(job, state, 5, 7, 1000001);
	ck_assert_uint_le(canary_timeout_ns(job, state, 5), 81000);
	ck_assert_uint_eq(canary_expected(job, state, 5), 7);
	for (int i = 0; i < 100; i++)
		canary_learn(job, state, 5, 3, i % 2 == 0 ? 0 : 1000000);
	ck_assert_uint_eq(canary_timeout_ns(job, state, 5), 1000000);
	for (int i = 0; i < 200; i++)
		canary_learn(job, state, 5, 3, 5);
	ck_assert_uint_eq(canary_timeout_ns(job, state, 5), MIN_NS);
	/* Nothing is known of other leaders. */
	ck_assert_uint_eq(canary_timeout_ns(job, state, 4), MIN_NS);
	ck_assert_uint_eq(canary_timeout_ns(job, state, 0), 3 * MIN_NS);
}
END_TEST

Suite *
suite_canary(void)
{
	Suite *suite = suite_create("canary");
	TCase *tcase = tcase_create("switch");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, all_hosts_of_a_leaf_leave_at_once);
	tcase_add_test(tcase, late_data_goes_on_as_a_straggler);
	tcase_add_test(tcase, the_root_waits_for_timers_of_others);
	tcase_add_test(tcase, a_timeout_may_be_fixed);
	tcase_add_test(tcase, a_rank_is_in_a_sum_once);
	tcase_add_test(tcase, data_of_another_shape_goes_on);
	tcase_add_test(tcase, empty_packets_bring_their_ranks);
	tcase_add_test(tcase, sums_of_a_block_go_the_same_way);
	tcase_add_test(tcase, a_descriptor_keeps_its_place);
	tcase_add_test(tcase, a_block_two_windows_later_has_the_place);
	tcase_add_test(tcase, a_later_run_has_the_place);
	tcase_add_test(tcase, another_jobs_descriptor_is_kept_whatever_a_packet_claims);
	tcase_add_test(tcase, a_job_has_its_share_of_slots);
	tcase_add_test(tcase, a_result_goes_back_by_the_ports);
	tcase_add_test(tcase, a_leader_restores_what_collided);
	tcase_add_test(tcase, at_the_port_of_a_host_only_the_leader_is_believed);
	tcase_add_test(tcase, a_host_brings_its_own_data_only);
	tcase_add_test(tcase, data_to_another_address_is_not_combined);
	tcase_add_test(tcase, a_host_answers_for_no_other_leader);
	tcase_add_test(tcase, a_host_speaks_for_no_other_rank);
	tcase_add_test(tcase, direct_packets_change_nothing);
	tcase_add_test(tcase, a_spine_learns_whom_it_sees);
	tcase_add_test(tcase, the_job_tells_its_timeouts_and_slots);
	tcase_add_test(tcase, a_timeout_follows_how_far_packets_are_apart);
	suite_add_tcase(suite, tcase);
	return suite;
}
