/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * PA-ATP between hosts and server: leaves turn hosts' packets into PARTIALs and keep nothing; sets
 * of other leaves' ranks are dropped; packets of the server and the aggregating switch go down to
 * their receivers.
 */
#include <string.h>

#include "tests/unit/answer_words.h"
#include "protocols/pa_atp/tests/pa_atp_rig.h"
#include "tests/unit/suites.h"

/*
 * Children 0 and 1 are hosts, child 2 is a switch with the ranks 2 and 3; the ranks 4 and 5 are
 * elsewhere.
 */
#define CHILDREN 3
#define RANKS 6
#define SWITCH 2

static struct pa_atp_rig rig;
static struct fanin_ranks ended, silent;

static void
start_leaf(void)
{
	const struct pa_atp_rig_options options = { .leaf = true };

	pa_atp_rig_start(&rig, &options);
	rig.jobs[0].parent_rank = 0;
}

/* The topmost switch: all ranks are below it, 2 to 5 behind the leaf. */
static void
start_top(void)
{
	start_leaf();
	rig.jobs[0].parent_is_server = true;
	rig.jobs[0].child_ranks[SWITCH] = fanin_ranks_of_word(0x3c);
	rig.jobs[0].n_below = RANKS;
}

static struct fanin_headers *
headers_of_mbuf(struct rte_mbuf *mbuf)
{
	return rte_pktmbuf_mtod(mbuf, struct fanin_headers *);
}

/* The gradient of a rank behind the child that is a switch. */
static struct rte_mbuf *
make_partial(uint64_t members, uint16_t flags)
{
	struct rte_mbuf *mbuf =
		pa_atp_rig_make_gradient(&rig, (unsigned int)__builtin_ctzll(members | 1ull << 63),
					 1, 0, flags);
	struct fanin_hdr *hdr = &headers_of_mbuf(mbuf)->fanin;

	hdr->type = FANIN_TYPE_PARTIAL;
	hdr->rank = 2;
	hdr->members = members;
	return mbuf;
}

/* ------------------------------------------------------------------ up */

START_TEST(leaf_makes_a_host_s_gradient_a_set_of_one)
{
	static const uint16_t flags[] = { 0, FANIN_FLAG_RETRANSMIT, FANIN_FLAG_EMPTY,
					  FANIN_FLAG_CE | FANIN_FLAG_RETRANSMIT };

	start_leaf();
	for (unsigned int i = 0; i < RTE_DIM(flags); i++) {
		struct rte_mbuf *mbuf = pa_atp_rig_make_gradient(&rig, 1, 6, 4, flags[i]);
		const struct pa_atp_output *up;

		headers_of_mbuf(mbuf)->ip.tos = i == 0 ? PA_ATP_ECN_ECT0 : PA_ATP_ECN_CE;
		ck_assert_int_eq(pa_atp_rig_offer(&rig, 1, mbuf), FANIN_VERDICT_HELD);
		up = pa_atp_rig_take_sum(&rig, 2, 6);
		ck_assert_uint_eq(up->headers.fanin.flags, flags[i]);
		ck_assert_uint_eq(up->headers.fanin.progress, 4);
		/*
		 * So that the queues further up can mark it, and the aggregating switch sees a
		 * mark.
		 */
		ck_assert_uint_eq(up->headers.ip.tos, i == 0 ? PA_ATP_ECN_ECT0 : PA_ATP_ECN_CE);
		ck_assert_uint_eq(up->headers.udp.src_be, fanin_wire_source_port_be(6, 0));
	}
	pa_atp_rig_expect_nothing(&rig);
	ck_assert_uint_eq(rig.common.used, 0);
	ck_assert_uint_eq(rig.stats[0].upward, RTE_DIM(flags));
	ck_assert_uint_eq(pa_atp_rig_count(&rig, PA_ATP_GRADIENTS), RTE_DIM(flags));
	ck_assert_uint_eq(pa_atp_rig_count(&rig, PA_ATP_GACKS), 0);
	pa_atp_rig_stop(&rig);
}
END_TEST

START_TEST(leaf_passes_on_sets_of_switches_below)
{
	start_leaf();
	ck_assert_int_eq(pa_atp_rig_offer(&rig, SWITCH, make_partial(1u << 3, FANIN_FLAG_DIRECT)),
			 FANIN_VERDICT_HELD);
	ck_assert_uint_eq(pa_atp_rig_take_sum(&rig, 1u << 3, 1)->headers.fanin.flags,
			  FANIN_FLAG_DIRECT);
	pa_atp_rig_stop(&rig);
}
END_TEST

static void
expect_dropped(unsigned int child, struct rte_mbuf *mbuf, enum fanin_reason reason)
{
	ck_assert_int_eq(pa_atp_rig_offer(&rig, child, mbuf), FANIN_VERDICT_DROP);
	ck_assert_int_eq(rig.reason, reason);
	pa_atp_rig_expect_nothing(&rig);
}

START_TEST(sets_that_are_not_the_sender_s_are_dropped)
{
	for (int top = 0; top < 2; top++) {
		if (top == 0)
			start_leaf();
		else
			start_top();
		/* None, one of another child, one that no rank is, and one too many. */
		expect_dropped(SWITCH, make_partial(0, 0), FANIN_REASON_RANK);
		expect_dropped(SWITCH, make_partial(2, 0), FANIN_REASON_RANK);
		expect_dropped(SWITCH, make_partial(UINT64_C(1) << 63, 0), FANIN_REASON_RANK);
		expect_dropped(SWITCH, make_partial(0xd, 0), FANIN_REASON_RANK);
		/* A switch makes no contribution that is not all of the job's. */
		expect_dropped(SWITCH, pa_atp_rig_make_gradient(&rig, 2, 1, 0, 0),
			       FANIN_REASON_TYPE);
		pa_atp_rig_stop(&rig);
	}
}
END_TEST

START_TEST(gradients_of_a_leaf_and_of_hosts_meet_in_one_sum)
{
	start_top();
	for (unsigned int rank = 2; rank < RANKS; rank++) {
		ck_assert_int_eq(pa_atp_rig_offer(&rig, SWITCH, make_partial(1u << rank, 0)),
				 FANIN_VERDICT_HELD);
		pa_atp_rig_take_gack(&rig, rank, 1, false);
	}
	pa_atp_rig_gradient(&rig, 0, 1, 0);
	pa_atp_rig_take_gack(&rig, 0, 1, false);
	/* A copy by way of the leaf. */
	ck_assert_int_eq(pa_atp_rig_offer(&rig, SWITCH, make_partial(1u << 4, 0)),
			 FANIN_VERDICT_HELD);
	pa_atp_rig_take_gack(&rig, 4, 1, false);
	pa_atp_rig_gradient(&rig, 1, 1, 0);
	pa_atp_rig_take_gack(&rig, 1, 1, false);
	pa_atp_rig_take_sum(&rig, 0x3f, 1);
	pa_atp_rig_stop(&rig);
}
END_TEST

START_TEST(sum_of_several_ranks_goes_on_to_the_server_as_it_is)
{
	start_top();
	pa_atp_rig_gradient(&rig, 0, 1, 0);
	pa_atp_rig_take_gack(&rig, 0, 1, false);
	ck_assert_int_eq(pa_atp_rig_offer(&rig, SWITCH, make_partial(0xc, 0)), FANIN_VERDICT_HELD);
	pa_atp_rig_take_sum(&rig, 1, 1);
	pa_atp_rig_take_gack(&rig, 2, 1, false);
	ck_assert_uint_eq(
		pa_atp_rig_take(&rig, FANIN_EMIT_PARENT, FANIN_TYPE_PARTIAL)->headers.fanin.members,
		0xc);
	pa_atp_rig_stop(&rig);
}
END_TEST

START_TEST(questions_and_known_results_go_up)
{
	for (int top = 0; top < 2; top++) {
		struct rte_mbuf *mbuf;
		const struct fanin_hdr *hdr;
		unsigned int child;
		uint64_t way;

		if (top == 0)
			start_leaf();
		else
			start_top();
		pa_atp_rig_query(&rig, 1, 3);
		hdr = &pa_atp_rig_take(&rig, FANIN_EMIT_PARENT, FANIN_TYPE_QUERY)->headers.fanin;
		way = hdr->members;
		ck_assert(fanin_way_pop(&way, &child));
		ck_assert_uint_eq(child, 1);
		mbuf = pa_atp_rig_make_gradient(&rig, 0, 3, 0, FANIN_FLAG_RETRANSMIT);
		headers_of_mbuf(mbuf)->fanin.type = FANIN_TYPE_KNOWN;
		ck_assert_int_eq(pa_atp_rig_offer(&rig, 0, mbuf), FANIN_VERDICT_HELD);
		hdr = &pa_atp_rig_take(&rig, FANIN_EMIT_PARENT, FANIN_TYPE_KNOWN)->headers.fanin;
		ck_assert_uint_eq(hdr->block, 3);
		ck_assert_uint_eq(hdr->contributions, RANKS);
		ck_assert_uint_eq(hdr->count, PA_ATP_RIG_COUNT);
		ck_assert_uint_eq(hdr->members, 0);
		ck_assert_uint_eq(rig.stats[0].known, 1);
		ck_assert_uint_eq(rig.stats[0].queries, 1);
		pa_atp_rig_expect_nothing(&rig);
		pa_atp_rig_stop(&rig);
	}
}
END_TEST

/* ------------------------------------------------------------------ down */

/* A packet of the parent, to this switch as its child of rank 0. */
static struct rte_mbuf *
make_down(enum fanin_type type, uint64_t members, const void *payload, uint32_t payload_len)
{
	struct rte_mbuf *mbuf = pa_atp_rig_make(&rig, type, 1, payload, payload_len);

	headers_of_mbuf(mbuf)->fanin.members = members;
	return mbuf;
}

START_TEST(results_go_to_all_children)
{
	for (int top = 0; top < 2; top++) {
		const struct pa_atp_output *result;

		if (top == 0)
			start_leaf();
		else
			start_top();
		pa_atp_rig_result(&rig, 1);
		result = pa_atp_rig_take(&rig, FANIN_EMIT_CHILDREN, FANIN_TYPE_RESULT);
		ck_assert_uint_eq(result->children, 7);
		ck_assert_uint_eq(result->headers.fanin.contributions, RANKS);
		ck_assert_uint_eq(result->headers.fanin.rank, 0);
		ck_assert_uint_eq(result->payload_len, 4 * PA_ATP_RIG_COUNT);
		ck_assert_uint_eq(pa_atp_rig_count(&rig, PA_ATP_AACKS), (uint64_t)top);
		pa_atp_rig_stop(&rig);
	}
}
END_TEST

START_TEST(marks_of_results_pass_leaves)
{
	struct rte_mbuf *mbuf;

	start_leaf();
	mbuf = pa_atp_rig_make_gradient(&rig, 0, 1, 0,
					FANIN_FLAG_CE | FANIN_FLAG_AECN | FANIN_FLAG_EMPTY);
	headers_of_mbuf(mbuf)->fanin.type = FANIN_TYPE_RESULT;
	ck_assert_int_eq(pa_atp_rig_offer(&rig, 0, mbuf), FANIN_VERDICT_HELD);
	ck_assert_uint_eq(
		pa_atp_rig_take(&rig, FANIN_EMIT_CHILDREN, FANIN_TYPE_RESULT)->headers.fanin.flags,
		FANIN_FLAG_CE | FANIN_FLAG_AECN | FANIN_FLAG_EMPTY);
	pa_atp_rig_stop(&rig);
}
END_TEST

START_TEST(repeated_result_goes_the_way_of_the_question)
{
	const uint64_t way = fanin_way_push(fanin_way_push(0, 1), SWITCH);
	struct rte_mbuf *mbuf;

	start_leaf();
	for (int i = 0; i < 4; i++) {
		mbuf = pa_atp_rig_make_gradient(&rig, 0, 1, 0, FANIN_FLAG_CE);
		headers_of_mbuf(mbuf)->fanin.type = FANIN_TYPE_REPEAT;
		/*
		 * To the child; to a switch at the same port; to nobody; to a child that there is
		 * not.
		 */
		headers_of_mbuf(mbuf)->fanin.rank = i == 1 ? 4 : 0;
		headers_of_mbuf(mbuf)->fanin.members = i == 2   ? 0
						       : i == 3 ? fanin_way_push(0, 40)
								: way;
		ck_assert_int_eq(pa_atp_rig_offer(&rig, 0, mbuf),
				 i == 0 ? FANIN_VERDICT_HELD : FANIN_VERDICT_FREE);
		if (i == 0) {
			const struct pa_atp_output *repeat =
				pa_atp_rig_take(&rig, FANIN_EMIT_CHILDREN, FANIN_TYPE_REPEAT);

			ck_assert_uint_eq(repeat->children, 1u << SWITCH);
			ck_assert_uint_eq(repeat->headers.fanin.rank, 2);
			ck_assert_uint_eq(repeat->headers.fanin.members, fanin_way_push(0, 1));
			ck_assert_uint_eq(repeat->headers.fanin.flags, FANIN_FLAG_CE);
		}
	}
	pa_atp_rig_expect_nothing(&rig);
	pa_atp_rig_stop(&rig);
}
END_TEST

START_TEST(acknowledgement_goes_to_the_child_with_the_rank)
{
	start_leaf();
	for (unsigned int rank = 0; rank < RANKS + 1; rank++) {
		struct rte_mbuf *mbuf = make_down(FANIN_TYPE_GACK, 4711, NULL, 0);
		const struct pa_atp_output *gack;
		const unsigned int child = RTE_MIN(rank, (unsigned int)SWITCH);

		headers_of_mbuf(mbuf)->fanin.count = (uint16_t)rank;
		headers_of_mbuf(mbuf)->fanin.flags = FANIN_FLAG_CE;
		if (rank > 3) {
			ck_assert_int_eq(pa_atp_rig_offer(&rig, 0, mbuf), FANIN_VERDICT_FREE);
			continue;
		}
		ck_assert_int_eq(pa_atp_rig_offer(&rig, 0, mbuf), FANIN_VERDICT_HELD);
		gack = pa_atp_rig_take(&rig, FANIN_EMIT_CHILDREN, FANIN_TYPE_GACK);
		ck_assert_uint_eq(gack->children, UINT64_C(1) << child);
		ck_assert_uint_eq(gack->headers.fanin.count, rank);
		ck_assert_uint_eq(gack->headers.fanin.rank, child);
		ck_assert_uint_eq(gack->headers.fanin.members, 4711);
		ck_assert_uint_eq(gack->headers.fanin.flags, FANIN_FLAG_CE);
	}
	pa_atp_rig_expect_nothing(&rig);
	pa_atp_rig_stop(&rig);
}
END_TEST

START_TEST(server_s_request_goes_to_children_with_such_ranks)
{
	const struct pa_atp_output *ask;

	start_top();
	ck_assert_int_eq(pa_atp_rig_offer(&rig, 0, make_down(FANIN_TYPE_ASK, 0xffffff1a, NULL, 0)),
			 FANIN_VERDICT_HELD);
	ask = pa_atp_rig_take(&rig, FANIN_EMIT_CHILDREN, FANIN_TYPE_ASK);
	ck_assert_uint_eq(ask->children, 6);
	ck_assert_uint_eq(ask->headers.fanin.members, 0x1a);
	ck_assert_uint_eq(ask->headers.fanin.block, 1);
	ck_assert_int_eq(pa_atp_rig_offer(&rig, 0, make_down(FANIN_TYPE_ASK, 0x40, NULL, 0)),
			 FANIN_VERDICT_FREE);
	ck_assert_uint_eq(pa_atp_rig_count(&rig, PA_ATP_ASKS), 1);
	pa_atp_rig_stop(&rig);
}
END_TEST

START_TEST(flush_is_for_the_aggregating_switch_alone)
{
	start_leaf();
	ck_assert_int_eq(pa_atp_rig_offer(&rig, 1, pa_atp_rig_make_gradient(&rig, 1, 1, 0, 0)),
			 FANIN_VERDICT_HELD);
	pa_atp_rig_take_sum(&rig, 2, 1);
	pa_atp_rig_flush(&rig, 1);
	pa_atp_rig_expect_nothing(&rig);
	pa_atp_rig_stop(&rig);
}
END_TEST

START_TEST(answer_names_who_is_gone_and_has_the_missing_probed)
{
	struct answer_words words = { .body = { .level = 0 } };
	const struct pa_atp_output *answer;
	struct fanin_answer_ranks ranks = { .missing = fanin_ranks_of_word(0x16) };
	struct rte_mbuf *mbuf;

	start_top();
	ended = fanin_ranks_one(1);
	silent = fanin_ranks_of_word(0x28);
	rig.ctx.ended = &ended;
	rig.ctx.silent = &silent;
	ranks.silent = fanin_ranks_one(2);
	fanin_answer_write_ranks((uint8_t *)&words + sizeof(words.body), RANKS, &ranks);
	mbuf = make_down(FANIN_TYPE_ANSWER, fanin_way_push(0, 0), &words, fanin_answer_len(RANKS));
	headers_of_mbuf(mbuf)->fanin.count = FANIN_BLOCK_OPEN;
	headers_of_mbuf(mbuf)->fanin.number = 8;
	ck_assert_int_eq(pa_atp_rig_offer(&rig, 0, mbuf), FANIN_VERDICT_HELD);
	/* Ranks 1, 2 and 4 are missing: a host, and two behind the leaf. */
	ck_assert_uint_eq(rig.ctx.missing, 6);
	answer = pa_atp_rig_take(&rig, FANIN_EMIT_CHILDREN, FANIN_TYPE_ANSWER);
	ck_assert_uint_eq(answer->children, 1);
	ck_assert_uint_eq(answer->headers.fanin.rank, 0);
	ck_assert_uint_eq(answer->headers.fanin.count, FANIN_BLOCK_OPEN);
	ck_assert_uint_eq(answer->headers.fanin.number, 8);
	ck_assert_uint_eq(answer->headers.fanin.members, 0);
	ck_assert_uint_eq(answer->payload_len, fanin_answer_len(RANKS));
	memcpy(&words, answer->payload, fanin_answer_len(RANKS));
	ck_assert_uint_eq(words.body.level, 1);
	ck_assert_uint_eq(words.body.n_blocks, 0);
	fanin_answer_read_ranks((const uint8_t *)&words + sizeof(words.body), RANKS, &ranks);
	ck_assert_uint_eq(ranks.missing.words[0], 0x16);
	ck_assert_uint_eq(ranks.ended.words[0], 2);
	ck_assert_uint_eq(ranks.silent.words[0], 4);
	/* One that is too short says nothing. */
	ck_assert_int_eq(pa_atp_rig_offer(&rig, 0,
					  make_down(FANIN_TYPE_ANSWER, fanin_way_push(0, 0), &words,
						    sizeof(words.body))),
			 FANIN_VERDICT_FREE);
	pa_atp_rig_stop(&rig);
}
END_TEST

START_TEST(too_long_for_the_job_is_dropped)
{
	static const uint8_t zeros[PA_ATP_RIG_PAYLOAD];
	static const enum fanin_type types[] = { FANIN_TYPE_RESULT, FANIN_TYPE_REPEAT,
						 FANIN_TYPE_KNOWN };

	start_top();
	rig.jobs[0].payload_bytes = 64;
	for (unsigned int i = 0; i < RTE_DIM(types); i++) {
		struct rte_mbuf *mbuf = make_down(types[i], fanin_way_push(0, 0), zeros, 128);

		headers_of_mbuf(mbuf)->fanin.dtype = FANIN_WIRE_I8;
		headers_of_mbuf(mbuf)->fanin.op = FANIN_WIRE_SUM;
		headers_of_mbuf(mbuf)->fanin.count = 128;
		expect_dropped(0, mbuf, FANIN_REASON_PAYLOAD);
	}
	pa_atp_rig_stop(&rig);
}
END_TEST

Suite *
suite_pa_atp_leaf(void)
{
	Suite *suite = suite_create("pa_atp_leaf");
	TCase *tcase = tcase_create("up");

	tcase_add_test(tcase, leaf_makes_a_host_s_gradient_a_set_of_one);
	tcase_add_test(tcase, leaf_passes_on_sets_of_switches_below);
	tcase_add_test(tcase, sets_that_are_not_the_sender_s_are_dropped);
	tcase_add_test(tcase, gradients_of_a_leaf_and_of_hosts_meet_in_one_sum);
	tcase_add_test(tcase, sum_of_several_ranks_goes_on_to_the_server_as_it_is);
	tcase_add_test(tcase, questions_and_known_results_go_up);
	suite_add_tcase(suite, tcase);
	tcase = tcase_create("down");
	tcase_add_test(tcase, results_go_to_all_children);
	tcase_add_test(tcase, marks_of_results_pass_leaves);
	tcase_add_test(tcase, repeated_result_goes_the_way_of_the_question);
	tcase_add_test(tcase, acknowledgement_goes_to_the_child_with_the_rank);
	tcase_add_test(tcase, server_s_request_goes_to_children_with_such_ranks);
	tcase_add_test(tcase, flush_is_for_the_aggregating_switch_alone);
	tcase_add_test(tcase, answer_names_who_is_gone_and_has_the_missing_probed);
	tcase_add_test(tcase, too_long_for_the_job_is_dropped);
	suite_add_tcase(suite, tcase);
	return suite;
}
