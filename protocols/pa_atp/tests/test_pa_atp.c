/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * PA-ATP on the aggregating switch: each gradient is acknowledged; sums are exact even if gradients
 * are duplicated, reordered or late; no slot is held for ever; the server gets gradients that find
 * no slot. On leaves: packets pass up and down.
 */
#include <string.h>

#include "tests/unit/answer_words.h"
#include "protocols/pa_atp/tests/pa_atp_rig.h"
#include "tests/unit/suites.h"

#define RANKS 3
#define ALL 7u
#define AGAIN FANIN_FLAG_RETRANSMIT

static struct pa_atp_rig rig;

static void
start_with(uint32_t n_slots, uint16_t window)
{
	const struct pa_atp_rig_options options = { .n_slots = n_slots, .window = window };

	pa_atp_rig_start(&rig, &options);
}

/* Three ranks, 8 slots, a window of 8. */
static void
start(void)
{
	start_with(8, 8);
}

static void
begin_run_at(uint32_t first)
{
	struct pa_atp_state *state = rig.states[0];

	pa_atp_begin_run(&rig.jobs[0], state, first);
	state->epoch = PA_ATP_RIG_EPOCH;
}

/* A gradient that goes to the slot, or is dropped, and nothing else happens. */
static void
merge_one(unsigned int rank, uint32_t block)
{
	pa_atp_rig_gradient(&rig, rank, block, 0);
	pa_atp_rig_take_gack(&rig, rank, block, false);
}

/* All ranks' gradients of a block, of which the server gets the sum. */
static void
merge_all(uint32_t block)
{
	for (unsigned int rank = 0; rank < RANKS; rank++)
		merge_one(rank, block);
	pa_atp_rig_take_sum(&rig, ALL, block);
}

/* The block's result passes. Returns whether it has AECN. */
static bool
pass_result(uint32_t block)
{
	const struct fanin_hdr *hdr;

	pa_atp_rig_result(&rig, block);
	hdr = &pa_atp_rig_take(&rig, FANIN_EMIT_CHILDREN, FANIN_TYPE_RESULT)->headers.fanin;
	ck_assert_uint_eq(hdr->block, block);
	ck_assert_uint_eq(hdr->contributions, RANKS);
	ck_assert_uint_eq(hdr->count, PA_ATP_RIG_COUNT);
	return (hdr->flags & FANIN_FLAG_AECN) != 0;
}

static enum pa_atp_phase
phase_of(uint32_t block)
{
	const struct pa_atp_slot *slot = pa_atp_rig_slot(&rig, block);

	ck_assert_int_eq(slot->tag.job == 0, slot->phase == PA_ATP_EMPTY);
	return slot->phase;
}

/* ------------------------------------------------------------------ sums */

START_TEST(sum_of_all_ranks_goes_to_the_server_and_stays_until_the_result_passes)
{
	const struct pa_atp_output *sum;

	start();
	merge_one(2, 5);
	merge_one(0, 5);
	ck_assert_int_eq(phase_of(5), PA_ATP_MERGING);
	pa_atp_rig_gradient(&rig, 1, 5, 0);
	pa_atp_rig_take_gack(&rig, 1, 5, false);
	sum = pa_atp_rig_take_sum(&rig, ALL, 5);
	ck_assert_uint_eq(sum->headers.fanin.flags, 0);
	ck_assert_uint_eq(sum->headers.udp.src_be, fanin_wire_source_port_be(5, 0));
	ck_assert_int_eq(phase_of(5), PA_ATP_SENT);
	ck_assert_uint_eq(rig.common.used, 1);
	ck_assert(!pass_result(5));
	ck_assert_uint_eq(pa_atp_rig_slot(&rig, 5)->tag.job, 0);
	ck_assert_uint_eq(rig.common.used, 0);
	ck_assert_uint_eq(rig.stats[0].blocks, 1);
	ck_assert_uint_eq(rig.stats[0].results, 1);
	ck_assert_uint_eq(rig.stats[0].contributions, 3);
	ck_assert_uint_eq(pa_atp_rig_count(&rig, PA_ATP_GRADIENTS), 3);
	ck_assert_uint_eq(pa_atp_rig_count(&rig, PA_ATP_GACKS), 3);
	ck_assert_uint_eq(pa_atp_rig_count(&rig, PA_ATP_AACKS), 1);
	pa_atp_rig_stop(&rig);
}
END_TEST

START_TEST(job_of_one_rank_needs_no_other)
{
	const struct pa_atp_rig_options options = { .n_ranks = 1 };

	pa_atp_rig_start(&rig, &options);
	merge_one(0, 3);
	pa_atp_rig_take_sum(&rig, 1, 3);
	pa_atp_rig_stop(&rig);
}
END_TEST

/* A gradient of any type and operator, with these bytes. */
static void
offer_operation(unsigned int rank, unsigned int dtype, unsigned int op, const void *elements,
		uint32_t len)
{
	struct rte_mbuf *mbuf = pa_atp_rig_make(&rig, FANIN_TYPE_CONTRIBUTION, 1, elements, len);
	struct fanin_hdr *hdr = &rte_pktmbuf_mtod(mbuf, struct fanin_headers *)->fanin;

	hdr->rank = (uint16_t)rank;
	hdr->dtype = (uint8_t)dtype;
	hdr->op = (uint8_t)op;
	hdr->count = (uint16_t)(len / fanin_dtype_size(dtype));
	ck_assert_int_eq(pa_atp_rig_offer(&rig, rank, mbuf), FANIN_VERDICT_HELD);
	pa_atp_rig_take_gack(&rig, rank, 1, false);
}

START_TEST(every_data_type_and_operator_is_reduced_by_its_kernel)
{
	uint8_t elements[RANKS][64], expected[64];
	unsigned int n = 0;

	for (unsigned int dtype = 1; dtype < FANIN_WIRE_DTYPE_COUNT; dtype++) {
		for (unsigned int op = 1; op < FANIN_WIRE_OP_COUNT; op++) {
			fanin_kernel_fn combine = fanin_kernel(FANIN_ISA_PORTABLE, dtype, op);

			if (!fanin_operation_defined(dtype, op))
				continue;
			ck_assert_ptr_nonnull(combine);
			/*
			 * Small numbers of every type: the highest bits of all elements are alike.
			 */
			for (unsigned int i = 0; i < sizeof(elements); i++)
				elements[i / 64][i % 64] =
					i % fanin_dtype_size(dtype) == fanin_dtype_size(dtype) - 1
						? 0x3e
						: (uint8_t)(i * 37 + op);
			memcpy(expected, elements[0], sizeof(expected));
			for (unsigned int rank = 1; rank < RANKS; rank++)
				combine(expected, elements[rank], 64 / fanin_dtype_size(dtype));
			start();
			for (unsigned int rank = 0; rank < RANKS; rank++)
				offer_operation(rank, dtype, op, elements[rank], 64);
			/* Also of an average: the server divides. */
			ck_assert_mem_eq(pa_atp_rig_take(&rig, FANIN_EMIT_PARENT,
							 FANIN_TYPE_CONTRIBUTION)
						 ->payload,
					 expected, 64);
			pa_atp_rig_stop(&rig);
			n++;
		}
	}
	ck_assert_uint_gt(n, 90);
}
END_TEST

START_TEST(empty_gradients_take_part_without_data)
{
	const struct pa_atp_output *sum;

	start();
	/* Data comes first, in between, last, or not at all. */
	for (uint32_t block = 0; block < 4; block++) {
		for (unsigned int rank = 0; rank < RANKS; rank++) {
			pa_atp_rig_gradient(&rig, rank, block,
					    rank == block ? 0 : FANIN_FLAG_EMPTY);
			pa_atp_rig_take_gack(&rig, rank, block, false);
		}
		sum = pa_atp_rig_take(&rig, FANIN_EMIT_PARENT, FANIN_TYPE_CONTRIBUTION);
		ck_assert_uint_eq(sum->headers.fanin.flags, block < RANKS ? 0 : FANIN_FLAG_EMPTY);
		ck_assert_uint_eq(sum->headers.fanin.contributions, RANKS);
		ck_assert_uint_eq(sum->headers.fanin.count, PA_ATP_RIG_COUNT);
		ck_assert_uint_eq(sum->payload_len, block < RANKS ? 4 * PA_ATP_RIG_COUNT : 0);
		for (uint32_t i = 0; i < PA_ATP_RIG_COUNT && block < RANKS; i++)
			ck_assert_uint_eq(((const uint32_t *)(const void *)sum->payload)[i],
					  (block + 1) * (block + i));
	}
	/* Flushed, too. */
	pa_atp_rig_gradient(&rig, 1, 4, FANIN_FLAG_EMPTY);
	pa_atp_rig_take_gack(&rig, 1, 4, false);
	pa_atp_rig_flush(&rig, 4);
	ck_assert_uint_eq(pa_atp_rig_take_sum(&rig, 2, 4)->headers.fanin.flags, FANIN_FLAG_EMPTY);
	pa_atp_rig_stop(&rig);
}
END_TEST

START_TEST(copies_have_the_data_of_their_root)
{
	static const uint8_t elements[64] = { 1, 2, 3, 4, 5, 6, 7 };

	start();
	offer_operation(0, FANIN_WIRE_U8, FANIN_WIRE_COPY, elements, 64);
	for (unsigned int rank = 1; rank < RANKS; rank++) {
		struct rte_mbuf *mbuf = pa_atp_rig_make_gradient(&rig, rank, 1, 0,
								 FANIN_FLAG_EMPTY);
		struct fanin_hdr *hdr = &rte_pktmbuf_mtod(mbuf, struct fanin_headers *)->fanin;

		hdr->dtype = FANIN_WIRE_U8;
		hdr->op = FANIN_WIRE_COPY;
		hdr->count = 64;
		ck_assert_int_eq(pa_atp_rig_offer(&rig, rank, mbuf), FANIN_VERDICT_HELD);
		pa_atp_rig_take_gack(&rig, rank, 1, false);
	}
	ck_assert_mem_eq(pa_atp_rig_take(&rig, FANIN_EMIT_PARENT, FANIN_TYPE_CONTRIBUTION)->payload,
			 elements, 64);
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

static struct fanin_hdr *
header_of(struct rte_mbuf *mbuf)
{
	return &rte_pktmbuf_mtod(mbuf, struct fanin_headers *)->fanin;
}

START_TEST(irreducible_packets_are_dropped_by_name)
{
	struct rte_mbuf *mbuf;

	start();
	merge_one(0, 1);
	mbuf = pa_atp_rig_make_gradient(&rig, 1, 1, 0, 0);
	header_of(mbuf)->op = FANIN_WIRE_MAX;
	expect_dropped(1, mbuf, FANIN_REASON_MISMATCH);
	mbuf = pa_atp_rig_make_gradient(&rig, 1, 2, 0, 0);
	header_of(mbuf)->op = FANIN_WIRE_CUSTOM;
	expect_dropped(1, mbuf, FANIN_REASON_OPERATION);
	mbuf = pa_atp_rig_make_gradient(&rig, 1, 2, 0, FANIN_FLAG_EMPTY);
	header_of(mbuf)->count = PA_ATP_RIG_PAYLOAD;
	expect_dropped(1, mbuf, FANIN_REASON_PAYLOAD);
	/* A window of 8: block 8 can't be sent before block 0 is done. */
	expect_dropped(1, pa_atp_rig_make_gradient(&rig, 1, 8, 0, 0), FANIN_REASON_BLOCK_WINDOW);
	mbuf = pa_atp_rig_make_gradient(&rig, 1, 8, 1, 0);
	ck_assert_int_eq(pa_atp_rig_offer(&rig, 1, mbuf), FANIN_VERDICT_HELD);
	pa_atp_rig_take_gack(&rig, 1, 8, false);
	pa_atp_rig_stop(&rig);
}
END_TEST

/* ------------------------------------------------------------------ acknowledgements */

START_TEST(every_gradient_and_every_copy_is_acknowledged)
{
	start_with(4, 8);
	merge_one(0, 1);
	/* A copy of one that is merged, ... */
	merge_one(0, 1);
	/* ... of one in a sum that was sent, ... */
	merge_one(1, 1);
	pa_atp_rig_gradient(&rig, 2, 1, 0);
	pa_atp_rig_take_gack(&rig, 2, 1, false);
	pa_atp_rig_take_sum(&rig, ALL, 1);
	merge_one(1, 1);
	/* ... an overflow and its copy, ... */
	pa_atp_rig_gradient(&rig, 0, 5, 0);
	pa_atp_rig_take_gack(&rig, 0, 5, false);
	pa_atp_rig_take_sum(&rig, 1, 5);
	merge_one(0, 5);
	/* ... one that a server asked for, ... */
	pa_atp_rig_gradient(&rig, 0, 2, FANIN_FLAG_DIRECT);
	pa_atp_rig_take_gack(&rig, 0, 2, false);
	ck_assert_uint_eq(pa_atp_rig_take_sum(&rig, 1, 2)->headers.fanin.flags, FANIN_FLAG_DIRECT);
	/* ... and one of a block whose result has passed. */
	pass_result(1);
	merge_one(2, 1);
	ck_assert_uint_eq(pa_atp_rig_count(&rig, PA_ATP_GRADIENTS), 9);
	ck_assert_uint_eq(pa_atp_rig_count(&rig, PA_ATP_GACKS), 9);
	ck_assert_uint_eq(rig.stats[0].duplicates, 4);
	ck_assert_uint_eq(rig.stats[0].contributions, 5);
	pa_atp_rig_expect_nothing(&rig);
	pa_atp_rig_stop(&rig);
}
END_TEST

START_TEST(acknowledgement_is_the_header_turned_around)
{
	struct rte_mbuf *mbuf;

	start();
	for (unsigned int rank = 0; rank < 2; rank++) {
		const struct pa_atp_output *gack;
		struct fanin_headers *headers;

		mbuf = pa_atp_rig_make_gradient(&rig, rank, 1, 0, 0);
		headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *);
		memcpy(headers->eth.src, "\2host", 6);
		headers->ip.src_be = 0x04030201;
		ck_assert_int_eq(pa_atp_rig_offer(&rig, rank, mbuf), FANIN_VERDICT_HELD);
		/* The first one is kept, and answered in a packet of its own. */
		gack = pa_atp_rig_take(&rig, FANIN_EMIT_REPLY, FANIN_TYPE_GACK);
		ck_assert_mem_eq(gack->headers.eth.src, "\2host", 6);
		ck_assert_uint_eq(gack->headers.ip.src_be, 0x04030201);
		ck_assert_uint_eq(gack->headers.fanin.rank, rank);
		ck_assert_uint_eq(gack->headers.fanin.dtype, FANIN_WIRE_DTYPE_NONE);
		ck_assert_uint_eq(gack->headers.fanin.op, FANIN_WIRE_OP_NONE);
		ck_assert_uint_eq(gack->children, UINT64_C(1) << rank);
	}
	pa_atp_rig_stop(&rig);
}
END_TEST

START_TEST(without_a_buffer_the_acknowledgement_is_lost_and_the_gradient_is_not)
{
	start();
	rig.dry = true;
	pa_atp_rig_gradient(&rig, 0, 1, 0);
	pa_atp_rig_expect_nothing(&rig);
	ck_assert_uint_eq(pa_atp_rig_count(&rig, PA_ATP_NO_PACKET), 1);
	merge_one(1, 1);
	pa_atp_rig_gradient(&rig, 2, 1, 0);
	pa_atp_rig_take_gack(&rig, 2, 1, false);
	pa_atp_rig_take_sum(&rig, ALL, 1);
	pa_atp_rig_stop(&rig);
}
END_TEST

/* Sends a gradient to the slot, from a host with this progress, and returns the sum in its GACK. */
static uint64_t
sum_after(unsigned int rank, uint32_t block, uint32_t progress)
{
	ck_assert_int_eq(pa_atp_rig_offer(&rig, rank,
					  pa_atp_rig_make_gradient(&rig, rank, block, progress, 0)),
			 FANIN_VERDICT_HELD);
	return pa_atp_rig_take_gack(&rig, rank, block, false);
}

START_TEST(sum_of_sequence_numbers_only_grows)
{
	start();
	ck_assert_uint_eq(sum_after(0, 0, 0), 1);
	ck_assert_uint_eq(sum_after(0, 3, 0), 4);
	/* Reordered, and copies: no step back. */
	ck_assert_uint_eq(sum_after(0, 1, 0), 4);
	ck_assert_uint_eq(sum_after(0, 3, 0), 4);
	ck_assert_uint_eq(sum_after(2, 0, 0), 5);
	ck_assert_uint_eq(sum_after(2, 1, 0), 6);
	ck_assert_uint_eq(sum_after(0, 2, 0), 6);
	ck_assert_uint_eq(sum_after(0, 4, 0), 7);
	pa_atp_rig_stop(&rig);
}
END_TEST

START_TEST(sum_of_sequence_numbers_does_not_wrap_around_with_the_blocks)
{
	const uint32_t first = UINT32_MAX - 1;
	const uint64_t begin = first;

	start();
	begin_run_at(first);
	/* Each rank's number after its last block, 0 before its first. */
	ck_assert_uint_eq(sum_after(0, first, first), begin + 1);
	ck_assert_uint_eq(sum_after(0, first + 1, first), begin + 2);
	ck_assert_uint_eq(sum_after(0, first + 3, first), begin + 4);
	ck_assert_uint_eq(sum_after(0, first + 2, first), begin + 4);
	ck_assert_uint_eq(sum_after(1, first + 1, first), 2 * begin + 6);
	ck_assert_uint_eq(sum_after(1, first + 4, first), 2 * begin + 9);
	ck_assert_uint_eq(sum_after(1, first, first), 2 * begin + 9);
	ck_assert_uint_eq(sum_after(2, first + 2, first), 3 * begin + 12);
	ck_assert_uint_eq(sum_after(2, first + 4, first), 3 * begin + 14);
	/* The average is 4 and two thirds after block UINT32_MAX - 1, modulo 2^32. */
	ck_assert_uint_eq((uint32_t)((3 * begin + 14) / 3), 2);
	/*
	 * Progress passes the seam: what is before it is dropped, what is behind it is not. Of the
	 * first blocks a rank may have had the results.
	 */
	ck_assert_uint_eq(sum_after(1, 1, 1), 3 * begin + 14);
	ck_assert_uint_eq(rig.stats[0].duplicates, 0);
	ck_assert_uint_eq(sum_after(1, UINT32_MAX, 1), 3 * begin + 14);
	ck_assert_uint_eq(rig.stats[0].duplicates, 1);
	pa_atp_rig_stop(&rig);
}
END_TEST

START_TEST(congestion_is_told_to_the_rank_that_met_it_and_in_the_sum)
{
	struct rte_mbuf *mbuf;
	const struct pa_atp_output *sum;

	start();
	/* By the mark in IPv4, in the first gradient and in a later one; by the flag of a leaf. */
	for (uint32_t block = 0; block < 3; block++) {
		for (unsigned int rank = 0; rank < RANKS; rank++) {
			struct fanin_headers *headers;

			mbuf = pa_atp_rig_make_gradient(&rig, rank, block, 0, 0);
			headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *);
			headers->ip.tos = PA_ATP_ECN_ECT0;
			if (rank == block && block < 2)
				headers->ip.tos = PA_ATP_ECN_CE;
			else if (rank == block)
				headers->fanin.flags = FANIN_FLAG_CE;
			ck_assert_int_eq(pa_atp_rig_offer(&rig, rank, mbuf), FANIN_VERDICT_HELD);
			pa_atp_rig_take_gack(&rig, rank, block, rank == block);
		}
		sum = pa_atp_rig_take_sum(&rig, ALL, block);
		ck_assert_uint_eq(sum->headers.fanin.flags, FANIN_FLAG_CE);
		/* The way to the server may set a mark of its own. */
		ck_assert_uint_eq(sum->headers.ip.tos, PA_ATP_ECN_ECT0);
	}
	ck_assert_uint_eq(pa_atp_rig_count(&rig, PA_ATP_CE), 3);
	/* A block without a mark has none, one that is passed on keeps its own. */
	merge_all(3);
	ck_assert_uint_eq(rig.outputs[rig.next - 1].headers.fanin.flags, 0);
	mbuf = pa_atp_rig_make_gradient(&rig, 1, 4, 0, FANIN_FLAG_DIRECT);
	rte_pktmbuf_mtod(mbuf, struct fanin_headers *)->ip.tos = PA_ATP_ECN_CE;
	ck_assert_int_eq(pa_atp_rig_offer(&rig, 1, mbuf), FANIN_VERDICT_HELD);
	pa_atp_rig_take_gack(&rig, 1, 4, true);
	ck_assert_uint_eq(pa_atp_rig_take_sum(&rig, 2, 4)->headers.fanin.flags,
			  FANIN_FLAG_DIRECT | FANIN_FLAG_CE);
	pa_atp_rig_stop(&rig);
}
END_TEST

/* ------------------------------------------------------------------ slots */

START_TEST(gradient_whose_slot_is_taken_goes_to_the_server)
{
	start_with(4, 8);
	merge_one(0, 1);
	for (unsigned int rank = 0; rank < RANKS; rank++) {
		pa_atp_rig_gradient(&rig, rank, 5, 0);
		pa_atp_rig_take_gack(&rig, rank, 5, false);
		pa_atp_rig_take_sum(&rig, UINT64_C(1) << rank, 5);
		ck_assert_uint_eq(rig.common.overflowed, rank + 1);
	}
	ck_assert_uint_eq(pa_atp_rig_count(&rig, PA_ATP_OVERFLOWS), 3);
	/* The other block goes on where it is. */
	merge_one(1, 1);
	pa_atp_rig_gradient(&rig, 2, 1, 0);
	pa_atp_rig_take_gack(&rig, 2, 1, false);
	pa_atp_rig_take_sum(&rig, ALL, 1);
	ck_assert_uint_eq(rig.states[0]->overflowed, 3);
	pass_result(5);
	ck_assert_uint_eq(rig.common.overflowed, 0);
	ck_assert_int_eq(phase_of(1), PA_ATP_SENT);
	pass_result(1);
	pa_atp_rig_expect_nothing(&rig);
	pa_atp_rig_stop(&rig);
}
END_TEST

START_TEST(retransmission_of_an_absent_rank_is_merged_of_a_present_one_flushes)
{
	start();
	merge_one(0, 1);
	pa_atp_rig_gradient(&rig, 1, 1, AGAIN);
	pa_atp_rig_take_gack(&rig, 1, 1, false);
	ck_assert_int_eq(phase_of(1), PA_ATP_MERGING);
	pa_atp_rig_gradient(&rig, 0, 1, AGAIN);
	pa_atp_rig_take_gack(&rig, 0, 1, false);
	pa_atp_rig_take_sum(&rig, 3, 1);
	ck_assert_int_eq(phase_of(1), PA_ATP_EMPTY);
	ck_assert_uint_eq(rig.common.used, 0);
	/* Later gradients of the block follow the sum. */
	pa_atp_rig_gradient(&rig, 2, 1, 0);
	pa_atp_rig_take_gack(&rig, 2, 1, false);
	pa_atp_rig_take_sum(&rig, 4, 1);
	ck_assert_uint_eq(pa_atp_rig_count(&rig, PA_ATP_FLUSHES), 1);
	ck_assert_uint_eq(pa_atp_rig_count(&rig, PA_ATP_PASSED), 1);
	ck_assert_uint_eq(pa_atp_rig_count(&rig, PA_ATP_OVERFLOWS), 0);
	pa_atp_rig_stop(&rig);
}
END_TEST

START_TEST(copies_of_what_went_to_the_server_follow_only_if_sent_again)
{
	start_with(4, 8);
	merge_one(0, 1);
	merge_one(1, 1);
	pa_atp_rig_flush(&rig, 1);
	pa_atp_rig_take_sum(&rig, 3, 1);
	/* The network's copies, of one that was in the sum; the host's. */
	merge_one(0, 1);
	pa_atp_rig_expect_nothing(&rig);
	pa_atp_rig_gradient(&rig, 0, 1, AGAIN);
	pa_atp_rig_take_gack(&rig, 0, 1, false);
	ck_assert_uint_eq(pa_atp_rig_take_sum(&rig, 1, 1)->headers.fanin.flags, AGAIN);
	ck_assert_uint_eq(rig.stats[0].duplicates, 1);
	ck_assert_uint_eq(rig.stats[0].contributions, 2);
	/* Also of one that overflowed, which counts once. */
	merge_one(0, 2);
	for (int i = 0; i < 2; i++) {
		pa_atp_rig_gradient(&rig, 1, 6, i == 0 ? 0 : AGAIN);
		pa_atp_rig_take_gack(&rig, 1, 6, false);
		pa_atp_rig_take_sum(&rig, 2, 6);
		merge_one(1, 6);
		ck_assert_uint_eq(rig.common.overflowed, 1);
	}
	/* A block of the same place later on is not split. */
	pass_result(1);
	pass_result(8);
	pass_result(9);
	ck_assert_int_eq(pa_atp_rig_offer(&rig, 0, pa_atp_rig_make_gradient(&rig, 0, 17, 10, 0)),
			 FANIN_VERDICT_HELD);
	pa_atp_rig_take_gack(&rig, 0, 17, false);
	ck_assert_int_eq(phase_of(17), PA_ATP_MERGING);
	pa_atp_rig_stop(&rig);
}
END_TEST

START_TEST(direct_gradients_flush_the_merged_sum)
{
	start();
	merge_one(0, 1);
	pa_atp_rig_gradient(&rig, 1, 1, FANIN_FLAG_DIRECT);
	pa_atp_rig_take_sum(&rig, 1, 1);
	pa_atp_rig_take_gack(&rig, 1, 1, false);
	pa_atp_rig_take_sum(&rig, 2, 1);
	ck_assert_int_eq(phase_of(1), PA_ATP_EMPTY);
	/* A sum that is complete stays, until its result has passed. */
	merge_all(2);
	pa_atp_rig_gradient(&rig, 1, 2, FANIN_FLAG_DIRECT);
	pa_atp_rig_take_gack(&rig, 1, 2, false);
	pa_atp_rig_take_sum(&rig, 2, 2);
	ck_assert_int_eq(phase_of(2), PA_ATP_SENT);
	pa_atp_rig_expect_nothing(&rig);
	pa_atp_rig_stop(&rig);
}
END_TEST

START_TEST(retransmission_has_a_sum_that_was_sent_sent_again)
{
	start();
	merge_all(1);
	merge_one(2, 1);
	pa_atp_rig_gradient(&rig, 0, 1, AGAIN);
	pa_atp_rig_take_gack(&rig, 0, 1, false);
	pa_atp_rig_take_sum(&rig, ALL, 1);
	ck_assert_uint_eq(rig.stats[0].upward_repeats, 1);
	pa_atp_rig_expect_nothing(&rig);
	pa_atp_rig_stop(&rig);
}
END_TEST

START_TEST(server_s_flush_takes_what_there_is)
{
	start_with(4, 8);
	merge_one(0, 1);
	merge_one(2, 1);
	pa_atp_rig_flush(&rig, 1);
	pa_atp_rig_take_sum(&rig, 5, 1);
	/* Once more, there is nothing; and nothing of a block of which nothing has come. */
	pa_atp_rig_flush(&rig, 1);
	pa_atp_rig_flush(&rig, 2);
	pa_atp_rig_expect_nothing(&rig);
	/* From now on gradients are passed on: the server has parts of the block. */
	pa_atp_rig_gradient(&rig, 1, 2, 0);
	pa_atp_rig_take_gack(&rig, 1, 2, false);
	pa_atp_rig_take_sum(&rig, 2, 2);
	ck_assert_uint_eq(rig.common.used, 0);
	/* A sum that was sent comes again. */
	merge_all(3);
	pa_atp_rig_flush(&rig, 3);
	pa_atp_rig_take_sum(&rig, ALL, 3);
	/* A slot that another block has is left alone. */
	pa_atp_rig_flush(&rig, 7);
	ck_assert_int_eq(phase_of(3), PA_ATP_SENT);
	/* So is one of a block that is finished. */
	pass_result(3);
	pa_atp_rig_flush(&rig, 3);
	pa_atp_rig_expect_nothing(&rig);
	pa_atp_rig_stop(&rig);
}
END_TEST

START_TEST(sum_is_sent_again_once_in_a_round_trip)
{
	start();
	/* 800 ns from a sum to its result. */
	merge_all(0);
	pa_atp_rig_pass_time(&rig, 800);
	pass_result(0);
	merge_all(1);
	pa_atp_rig_pass_time(&rig, 799);
	pa_atp_rig_flush(&rig, 1);
	pa_atp_rig_query(&rig, 0, 1);
	pa_atp_rig_take(&rig, FANIN_EMIT_PARENT, FANIN_TYPE_QUERY);
	pa_atp_rig_pass_time(&rig, 1);
	pa_atp_rig_flush(&rig, 1);
	pa_atp_rig_take_sum(&rig, ALL, 1);
	pa_atp_rig_flush(&rig, 1);
	pa_atp_rig_expect_nothing(&rig);
	/* The time to the result of one that was sent twice says nothing. */
	pa_atp_rig_pass_time(&rig, 100000);
	pass_result(1);
	ck_assert_uint_eq(rig.states[0]->round_trip_ns, 800);
	merge_all(2);
	pa_atp_rig_pass_time(&rig, 1600);
	pass_result(2);
	ck_assert_uint_eq(rig.states[0]->round_trip_ns, 900);
	pa_atp_rig_stop(&rig);
}
END_TEST

START_TEST(slot_of_a_split_block_is_free_for_any_other)
{
	start_with(4, 8);
	merge_one(0, 1);
	pa_atp_rig_flush(&rig, 1);
	pa_atp_rig_take_sum(&rig, 1, 1);
	merge_one(0, 5);
	ck_assert_int_eq(phase_of(5), PA_ATP_MERGING);
	/* Now block 1 would find none, and its result leaves block 5 alone. */
	pa_atp_rig_gradient(&rig, 1, 1, 0);
	pa_atp_rig_take_gack(&rig, 1, 1, false);
	pa_atp_rig_take_sum(&rig, 2, 1);
	ck_assert_uint_eq(pa_atp_rig_count(&rig, PA_ATP_OVERFLOWS), 1);
	ck_assert_uint_eq(rig.common.overflowed, 1);
	pass_result(1);
	ck_assert_int_eq(phase_of(5), PA_ATP_MERGING);
	ck_assert_uint_eq(rig.common.used, 1);
	ck_assert_uint_eq(rig.common.overflowed, 0);
	pa_atp_rig_stop(&rig);
}
END_TEST

START_TEST(query_flushes_and_then_goes_to_the_server)
{
	const struct fanin_hdr *hdr;
	unsigned int child;
	uint64_t way;

	start();
	merge_one(0, 1);
	pa_atp_rig_query(&rig, 2, 1);
	pa_atp_rig_take_sum(&rig, 1, 1);
	hdr = &pa_atp_rig_take(&rig, FANIN_EMIT_PARENT, FANIN_TYPE_QUERY)->headers.fanin;
	ck_assert_uint_eq(hdr->block, 1);
	ck_assert_uint_eq(hdr->number, 4);
	way = hdr->members;
	ck_assert(fanin_way_pop(&way, &child));
	ck_assert_uint_eq(child, 2);
	ck_assert_uint_eq(way, 0);
	/* Before anything of the run has come, too. */
	pa_atp_rig_select(&rig, 1);
	pa_atp_rig_query(&rig, 0, 7);
	pa_atp_rig_take(&rig, FANIN_EMIT_PARENT, FANIN_TYPE_QUERY);
	pa_atp_rig_expect_nothing(&rig);
	pa_atp_rig_stop(&rig);
}
END_TEST

START_TEST(late_duplicates_hold_no_slot)
{
	struct rte_mbuf *mbuf;

	start();
	merge_all(1);
	pass_result(1);
	for (int i = 0; i < 2; i++) {
		pa_atp_rig_gradient(&rig, 1, 1, i == 0 ? 0 : AGAIN);
		pa_atp_rig_take_gack(&rig, 1, 1, false);
		ck_assert_uint_eq(pa_atp_rig_slot(&rig, 1)->tag.job, 0);
	}
	/* A rank has the results of 0 to 4; only that of 1 has passed here. */
	mbuf = pa_atp_rig_make_gradient(&rig, 2, 6, 5, 0);
	ck_assert_int_eq(pa_atp_rig_offer(&rig, 2, mbuf), FANIN_VERDICT_HELD);
	pa_atp_rig_take_gack(&rig, 2, 6, false);
	for (uint32_t block = 0; block < 5; block++) {
		merge_one(0, block);
		ck_assert_uint_eq(pa_atp_rig_slot(&rig, block)->tag.job, 0);
	}
	ck_assert_uint_eq(rig.common.used, 1);
	ck_assert_uint_eq(rig.stats[0].duplicates, 7);
	pa_atp_rig_expect_nothing(&rig);
	pa_atp_rig_stop(&rig);
}
END_TEST

START_TEST(late_copy_of_a_result_changes_nothing)
{
	start_with(32, 4);
	merge_all(1);
	pass_result(1);
	for (uint32_t block = 4; block < 7; block++)
		pass_result(block);
	/* Block 9 has the place of block 1, 2W before it. */
	ck_assert_int_eq(pa_atp_rig_offer(&rig, 0, pa_atp_rig_make_gradient(&rig, 0, 9, 7, 0)),
			 FANIN_VERDICT_HELD);
	pa_atp_rig_take_gack(&rig, 0, 9, false);
	pass_result(9);
	pass_result(1);
	ck_assert_int_eq(pa_atp_rig_offer(&rig, 0, pa_atp_rig_make_gradient(&rig, 0, 9, 7, AGAIN)),
			 FANIN_VERDICT_HELD);
	pa_atp_rig_take_gack(&rig, 0, 9, false);
	ck_assert_uint_eq(rig.stats[0].duplicates, 1);
	ck_assert_uint_eq(rig.common.used, 0);
	pa_atp_rig_expect_nothing(&rig);
	pa_atp_rig_stop(&rig);
}
END_TEST

START_TEST(result_of_one_asker_tells_that_the_block_is_finished)
{
	struct rte_mbuf *mbuf;
	struct fanin_hdr *hdr;

	start();
	merge_all(1);
	mbuf = pa_atp_rig_make_gradient(&rig, 0, 1, 0, 0);
	hdr = header_of(mbuf);
	hdr->type = FANIN_TYPE_REPEAT;
	hdr->members = fanin_way_push(0, 2);
	ck_assert_int_eq(pa_atp_rig_offer(&rig, 0, mbuf), FANIN_VERDICT_HELD);
	ck_assert_uint_eq(pa_atp_rig_take(&rig, FANIN_EMIT_CHILDREN, FANIN_TYPE_REPEAT)->children,
			  4);
	ck_assert_uint_eq(pa_atp_rig_slot(&rig, 1)->tag.job, 0);
	ck_assert_uint_eq(pa_atp_rig_count(&rig, PA_ATP_REPEATS), 1);
	ck_assert_uint_eq(pa_atp_rig_count(&rig, PA_ATP_AACKS), 0);
	pa_atp_rig_stop(&rig);
}
END_TEST

START_TEST(progress_frees_slots_whose_results_did_not_pass)
{
	struct rte_mbuf *mbuf;

	start_with(8, 4);
	merge_one(0, 0);
	merge_all(1);
	merge_one(0, 2);
	merge_one(1, 2);
	ck_assert_uint_eq(rig.common.used, 3);
	mbuf = pa_atp_rig_make_gradient(&rig, 2, 3, 2, 0);
	ck_assert_int_eq(pa_atp_rig_offer(&rig, 2, mbuf), FANIN_VERDICT_HELD);
	pa_atp_rig_take_gack(&rig, 2, 3, false);
	ck_assert_uint_eq(pa_atp_rig_slot(&rig, 0)->tag.job, 0);
	ck_assert_uint_eq(pa_atp_rig_slot(&rig, 1)->tag.job, 0);
	ck_assert_int_eq(phase_of(2), PA_ATP_MERGING);
	ck_assert_uint_eq(rig.common.used, 2);
	ck_assert_uint_eq(rig.stats[0].results, 2);
	/* As far as that can be, and a progress that is behind: nothing comes back. */
	mbuf = pa_atp_rig_make_gradient(&rig, 2, 4, 4, 0);
	ck_assert_int_eq(pa_atp_rig_offer(&rig, 2, mbuf), FANIN_VERDICT_HELD);
	pa_atp_rig_take_gack(&rig, 2, 4, false);
	merge_one(1, 2);
	ck_assert_uint_eq(rig.stats[0].duplicates, 1);
	pa_atp_rig_stop(&rig);
}
END_TEST

static void
expect_out_of_window(enum fanin_type type, uint32_t block)
{
	struct rte_mbuf *mbuf = pa_atp_rig_make(&rig, type, block, NULL, 0);

	header_of(mbuf)->flags = type == FANIN_TYPE_KNOWN ? FANIN_FLAG_EMPTY
							  : FANIN_FLAG_RETRANSMIT;
	header_of(mbuf)->number = type == FANIN_TYPE_KNOWN ? 0 : 7;
	expect_dropped(0, mbuf, FANIN_REASON_BLOCK_WINDOW);
	pa_atp_rig_expect_nothing(&rig);
}

/*
 * By _i: whether the run has gone on for 40 blocks. A rank has only results that have passed here.
 * So it can't have more progress, ask for a block that it can't have sent, or know the result of a
 * block that is not among the run's first ones.
 */
START_TEST(impossible_progress_and_queries_are_refused)
{
	const uint32_t oldest = _i == 0 ? 0 : 40;
	struct rte_mbuf *mbuf;

	start();
	/* A first packet that lies begins the run as any other. */
	expect_dropped(0, pa_atp_rig_make_gradient(&rig, 0, 1u << 20, 1u << 20, 0),
		       FANIN_REASON_BLOCK_WINDOW);
	for (uint32_t block = 0; block < oldest; block++) {
		for (unsigned int rank = 0; rank < RANKS; rank++) {
			ck_assert_int_eq(pa_atp_rig_offer(&rig, rank,
							  pa_atp_rig_make_gradient(&rig, rank,
										   block, block,
										   0)),
					 FANIN_VERDICT_HELD);
			pa_atp_rig_take_gack(&rig, rank, block, false);
		}
		pa_atp_rig_take_sum(&rig, ALL, block);
		pass_result(block);
	}
	for (uint32_t ahead = 8; ahead != 1u << 31; ahead *= 2) {
		const uint32_t progress = oldest + (ahead == 8 ? 9 : ahead);

		expect_dropped(0, pa_atp_rig_make_gradient(&rig, 0, progress, progress, 0),
			       FANIN_REASON_BLOCK_WINDOW);
		expect_dropped(0, pa_atp_rig_make_gradient(&rig, 0, oldest, progress, 0),
			       FANIN_REASON_BLOCK_WINDOW);
		expect_out_of_window(FANIN_TYPE_KNOWN, oldest + ahead);
		expect_out_of_window(FANIN_TYPE_QUERY, oldest + (ahead == 8 ? 16 : ahead));
	}
	if (oldest != 0)
		expect_out_of_window(FANIN_TYPE_KNOWN, oldest);
	/* Valid progress and queries still work. */
	for (unsigned int rank = 0; rank < RANKS; rank++) {
		mbuf = pa_atp_rig_make_gradient(&rig, rank, oldest + 7, oldest, 0);
		ck_assert_int_eq(pa_atp_rig_offer(&rig, rank, mbuf), FANIN_VERDICT_HELD);
		pa_atp_rig_take_gack(&rig, rank, oldest + 7, false);
	}
	pa_atp_rig_take_sum(&rig, ALL, oldest + 7);
	pa_atp_rig_query(&rig, 1, oldest + 7);
	pa_atp_rig_stop(&rig);
}
END_TEST

START_TEST(block_takes_the_slot_of_a_finished_one)
{
	struct pa_atp_slot *slot;

	start_with(4, 8);
	merge_one(0, 1);
	slot = pa_atp_rig_slot(&rig, 1);
	/* A worker was in the slot when progress passed it. */
	ck_assert(fanin_slot_enter(&slot->tag));
	ck_assert_int_eq(pa_atp_rig_offer(&rig, 2, pa_atp_rig_make_gradient(&rig, 2, 2, 2, 0)),
			 FANIN_VERDICT_HELD);
	pa_atp_rig_take_gack(&rig, 2, 2, false);
	fanin_slot_leave(&slot->tag);
	ck_assert_uint_eq(slot->tag.block, 1);
	ck_assert_int_eq(pa_atp_rig_offer(&rig, 1, pa_atp_rig_make_gradient(&rig, 1, 5, 2, 0)),
			 FANIN_VERDICT_HELD);
	pa_atp_rig_take_gack(&rig, 1, 5, false);
	ck_assert_uint_eq(slot->tag.block, 5);
	ck_assert_int_eq(phase_of(5), PA_ATP_MERGING);
	ck_assert_uint_eq(rig.common.used, 2);
	ck_assert_uint_eq(pa_atp_rig_count(&rig, PA_ATP_OVERFLOWS), 0);
	pa_atp_rig_stop(&rig);
}
END_TEST

START_TEST(slot_that_waits_too_long_is_flushed)
{
	start();
	merge_one(0, 1);
	merge_all(2);
	pa_atp_rig_pass_time(&rig, 19999999);
	pa_atp_rig_expect_nothing(&rig);
	/* 20 ms, as the parameter says; the sum that was sent may wait for as long again. */
	pa_atp_rig_pass_time(&rig, 1);
	pa_atp_rig_take_sum(&rig, 1, 1);
	pa_atp_rig_expect_nothing(&rig);
	ck_assert_int_eq(phase_of(1), PA_ATP_EMPTY);
	ck_assert_int_eq(phase_of(2), PA_ATP_SENT);
	ck_assert_uint_eq(pa_atp_rig_count(&rig, PA_ATP_EXPIRED), 1);
	ck_assert_uint_eq(pa_atp_rig_count(&rig, PA_ATP_FLUSHES), 1);
	/* One that has ended meanwhile is no one's matter. */
	merge_one(0, 3);
	pass_result(3);
	pa_atp_rig_pass_time(&rig, 20000000);
	pa_atp_rig_expect_nothing(&rig);
	pa_atp_rig_stop(&rig);
}
END_TEST

START_TEST(sum_without_a_result_is_given_up)
{
	start();
	merge_all(1);
	pa_atp_rig_pass_time(&rig, 39999999);
	ck_assert_int_eq(phase_of(1), PA_ATP_SENT);
	pa_atp_rig_flush(&rig, 1);
	pa_atp_rig_take_sum(&rig, ALL, 1);
	/* The time of the sum begins again when the sum is sent again. */
	pa_atp_rig_pass_time(&rig, 20000001);
	pa_atp_rig_pass_time(&rig, 19999999);
	ck_assert_int_eq(phase_of(1), PA_ATP_SENT);
	pa_atp_rig_pass_time(&rig, 20000000);
	ck_assert_int_eq(phase_of(1), PA_ATP_EMPTY);
	ck_assert_uint_eq(rig.common.used, 0);
	ck_assert_uint_eq(pa_atp_rig_count(&rig, PA_ATP_EXPIRED), 1);
	pa_atp_rig_expect_nothing(&rig);
	/* The server asks the ranks, and a late copy collects nothing. */
	merge_one(0, 1);
	pa_atp_rig_gradient(&rig, 0, 1, FANIN_FLAG_DIRECT);
	pa_atp_rig_take_gack(&rig, 0, 1, false);
	pa_atp_rig_take_sum(&rig, 1, 1);
	ck_assert_uint_eq(rig.common.used, 0);
	pa_atp_rig_stop(&rig);
}
END_TEST

START_TEST(busy_slot_is_tried_again)
{
	struct pa_atp_slot *slot;
	struct rte_mbuf *mbuf;

	start();
	merge_one(0, 1);
	slot = pa_atp_rig_slot(&rig, 1);
	ck_assert(fanin_slot_enter(&slot->tag));
	mbuf = pa_atp_rig_make_gradient(&rig, 1, 1, 0, 0);
	ck_assert_int_eq(pa_atp_rig_offer(&rig, 1, mbuf), FANIN_VERDICT_RETRY);
	ck_assert(!rig.handler->expired(&rig.ctx, slot, 1, 1));
	pa_atp_rig_expect_nothing(&rig);
	fanin_slot_leave(&slot->tag);
	ck_assert_int_eq(pa_atp_rig_offer(&rig, 1, mbuf), FANIN_VERDICT_HELD);
	pa_atp_rig_take_gack(&rig, 1, 1, false);
	/* While another worker begins a run, too. */
	pa_atp_rig_select(&rig, 1);
	rig.states[1]->busy = 1;
	mbuf = pa_atp_rig_make_gradient(&rig, 1, 1, 0, 0);
	ck_assert_int_eq(pa_atp_rig_offer(&rig, 1, mbuf), FANIN_VERDICT_RETRY);
	rig.states[1]->busy = 0;
	ck_assert_int_eq(pa_atp_rig_offer(&rig, 1, mbuf), FANIN_VERDICT_HELD);
	pa_atp_rig_take_gack(&rig, 1, 1, false);
	pa_atp_rig_stop(&rig);
}
END_TEST

/* ------------------------------------------------------------------ threshold */

/*
 * 8 slots and a bdp of 2, of which half may be in use: 5, and with the 6th the next result says so.
 */
static void
start_with_threshold(void)
{
	start_with(8, 16);
	for (unsigned int j = 0; j < PA_ATP_RIG_JOBS; j++) {
		rig.jobs[j].parameters[FANIN_PA_ATP_ETA] = 50;
		rig.jobs[j].parameters[FANIN_PA_ATP_BDP] = 2;
	}
}

START_TEST(result_says_that_more_is_in_use_than_the_threshold)
{
	start_with_threshold();
	for (uint32_t block = 0; block < 5; block++)
		merge_one(0, block);
	/* 5 are not more than 5; 4 are left. */
	ck_assert(!pass_result(0));
	/* Blocks 9 and 10 find the slots of 1 and 2 taken: 4 in use and 2 overflowed are 6. */
	for (uint32_t block = 9; block < 11; block++) {
		pa_atp_rig_gradient(&rig, 0, block, 0);
		pa_atp_rig_take_gack(&rig, 0, block, false);
		pa_atp_rig_take_sum(&rig, 1, block);
	}
	/* Down to 5 by this result, but it has been 6. */
	ck_assert(pass_result(1));
	ck_assert(!pass_result(2));
	ck_assert_uint_eq(pa_atp_rig_count(&rig, PA_ATP_AECN), 1);
	/* 2 in use and 2 overflowed; the results of 9 and 10 take the latter off. */
	ck_assert(!pass_result(9));
	ck_assert_uint_eq(rig.common.overflowed, 1);
	pass_result(10);
	ck_assert_uint_eq(rig.common.overflowed, 0);
	ck_assert_uint_eq(rig.common.used, 2);
	pa_atp_rig_stop(&rig);
}
END_TEST

START_TEST(results_say_so_as_long_as_it_is)
{
	start_with_threshold();
	for (uint32_t block = 0; block < 8; block++)
		merge_one(0, block);
	/*
	 * 8 in use before the first result, 7 before the second, 6 before the third, 5 before the
	 * fourth.
	 */
	ck_assert(pass_result(0));
	ck_assert(pass_result(1));
	ck_assert(pass_result(2));
	ck_assert(!pass_result(3));
	pa_atp_rig_stop(&rig);
}
END_TEST

START_TEST(jobs_of_one_pool_count_together)
{
	start_with_threshold();
	for (uint32_t block = 0; block < 3; block++)
		merge_one(0, block);
	pa_atp_rig_select(&rig, 1);
	/*
	 * The salt of the second job is 5: its blocks 0 to 2 have the slots 5, 4 and 7, its block 7
	 * that of block 2 of the first one.
	 */
	for (uint32_t block = 0; block < 3; block++)
		merge_one(1, block);
	pa_atp_rig_gradient(&rig, 1, 7, 0);
	pa_atp_rig_take_gack(&rig, 1, 7, false);
	pa_atp_rig_take_sum(&rig, 2, 7);
	ck_assert_uint_eq(rig.common.used, 6);
	ck_assert_uint_eq(rig.common.overflowed, 1);
	ck_assert(pass_result(0));
	/*
	 * The first job did not exceed it, but it is exceeded before its result: 5 in use, 1
	 * overflowed; 5 in all after that.
	 */
	pa_atp_rig_select(&rig, 0);
	ck_assert_uint_eq(rig.states[0]->used, 3);
	ck_assert_uint_eq(rig.states[1]->used, 2);
	ck_assert(pass_result(0));
	ck_assert(!pass_result(1));
	pa_atp_rig_stop(&rig);
}
END_TEST

/* ------------------------------------------------------------------ runs */

START_TEST(job_leaves_the_blocks_of_others_alone)
{
	start_with(4, 8);
	merge_one(0, 1);
	pa_atp_rig_select(&rig, 1);
	/* Block 4 of this job, by its salt of 5. */
	ck_assert_ptr_eq(pa_atp_rig_slot(&rig, 4), rig.slots[1]);
	pa_atp_rig_gradient(&rig, 2, 4, 0);
	pa_atp_rig_take_gack(&rig, 2, 4, false);
	pa_atp_rig_take_sum(&rig, 4, 4);
	/* The same number and index in the other job is another block. */
	pass_result(4);
	pa_atp_rig_flush(&rig, 4);
	pa_atp_rig_expect_nothing(&rig);
	pa_atp_rig_select(&rig, 0);
	merge_one(1, 1);
	pa_atp_rig_gradient(&rig, 2, 1, 0);
	pa_atp_rig_take_gack(&rig, 2, 1, false);
	pa_atp_rig_take_sum(&rig, ALL, 1);
	pa_atp_rig_stop(&rig);
}
END_TEST

START_TEST(new_run_begins_anew_at_block_0)
{
	struct rte_mbuf *late;

	start_with(4, 8);
	merge_one(0, 1);
	merge_one(0, 2);
	pa_atp_rig_gradient(&rig, 0, 5, 0);
	pa_atp_rig_take_gack(&rig, 0, 5, false);
	pa_atp_rig_take_sum(&rig, 1, 5);
	late = pa_atp_rig_make_gradient(&rig, 1, 2, 0, 0);

	rig.ctx.epoch += 10;
	ck_assert_uint_eq(sum_after(1, 1, 0), 2);
	/*
	 * The slot of the earlier run's block was free for it; that of block 2 stays until another
	 * block finds it.
	 */
	ck_assert_int_eq(phase_of(1), PA_ATP_MERGING);
	ck_assert_uint_eq(rig.common.used, 2);
	ck_assert_uint_eq(rig.common.overflowed, 0);
	ck_assert_uint_eq(sum_after(2, 2, 0), 5);
	ck_assert_uint_eq(rig.common.used, 2);
	/* Blocks before its beginning are finished. */
	ck_assert_uint_eq(sum_after(0, UINT32_MAX, UINT32_MAX), 5);
	ck_assert_uint_eq(rig.stats[0].duplicates, 1);

	rig.ctx.epoch -= 10;
	expect_dropped(1, late, FANIN_REASON_EPOCH);
	rig.ctx.epoch += 10;
	pa_atp_rig_stop(&rig);
}
END_TEST

START_TEST(job_that_goes_takes_its_share_with_it)
{
	start_with(4, 8);
	merge_one(0, 1);
	pa_atp_rig_select(&rig, 1);
	merge_one(0, 1);
	pa_atp_rig_gradient(&rig, 0, 5, 0);
	pa_atp_rig_take_gack(&rig, 0, 5, false);
	pa_atp_rig_take_sum(&rig, 1, 5);
	ck_assert_uint_eq(rig.common.overflowed, 1);
	rig.handler->state_release(&rig.jobs[0], rig.states[0]);
	ck_assert_uint_eq(rig.common.overflowed, 1);
	rig.handler->state_release(&rig.jobs[1], rig.states[1]);
	rig.handler->state_release(&rig.jobs[1], rig.states[1]);
	ck_assert_uint_eq(rig.common.overflowed, 0);
	/* The result that comes yet takes nothing off a second time, for more than a moment. */
	pass_result(5);
	ck_assert(!pa_atp_is_short(&rig.ctx));
	pa_atp_rig_stop(&rig);
}
END_TEST

START_TEST(slot_tells_what_its_block_waits_for)
{
	struct fanin_peek peek;
	const struct pa_atp_slot *slot;

	start();
	slot = pa_atp_rig_slot(&rig, 1);
	ck_assert(!rig.handler->peek(&rig.jobs[0], PA_ATP_RIG_EPOCH, slot, &peek));
	merge_one(1, 1);
	ck_assert(rig.handler->peek(&rig.jobs[0], PA_ATP_RIG_EPOCH, slot, &peek));
	ck_assert_uint_eq(peek.block, 1);
	ck_assert_uint_eq(peek.missing, 5);
	ck_assert(!peek.sent);
	ck_assert_uint_eq(peek.begun_ns, 1000);
	/* Of another run, and of another job. */
	ck_assert(!rig.handler->peek(&rig.jobs[0], PA_ATP_RIG_EPOCH + 1, slot, &peek));
	ck_assert(!rig.handler->peek(&rig.jobs[1], PA_ATP_RIG_EPOCH, slot, &peek));
	merge_one(0, 1);
	pa_atp_rig_gradient(&rig, 2, 1, 0);
	ck_assert(rig.handler->peek(&rig.jobs[0], PA_ATP_RIG_EPOCH, slot, &peek));
	ck_assert(peek.sent);
	ck_assert_uint_eq(peek.missing, 0);
	/* A block that went to the server waits there. */
	pa_atp_rig_query(&rig, 0, 2);
	ck_assert(!rig.handler->peek(&rig.jobs[0], PA_ATP_RIG_EPOCH, pa_atp_rig_slot(&rig, 2),
				     &peek));
	pa_atp_rig_stop(&rig);
}
END_TEST

START_TEST(progress_tells_who_is_behind_and_what_is_in_use)
{
	struct fanin_rank_progress progress;

	start_with(4, 8);
	ck_assert(!rig.handler->rank_progress(&rig.jobs[0], rig.states[0], PA_ATP_RIG_EPOCH,
					      &progress));
	merge_one(0, 1);
	merge_one(0, 2);
	pa_atp_rig_gradient(&rig, 0, 5, 0);
	pa_atp_rig_take_gack(&rig, 0, 5, false);
	pa_atp_rig_take_sum(&rig, 1, 5);
	merge_one(2, 0);
	ck_assert(rig.handler->rank_progress(&rig.jobs[0], rig.states[0], PA_ATP_RIG_EPOCH,
					     &progress));
	ck_assert_uint_eq(progress.n_ranks, RANKS);
	ck_assert_uint_eq(progress.blocks[0], 6);
	ck_assert_uint_eq(progress.blocks[1], 0);
	ck_assert_uint_eq(progress.blocks[2], 1);
	ck_assert_uint_eq(progress.slots_used, 3);
	ck_assert_uint_eq(progress.overflowed, 1);
	ck_assert(!rig.handler->rank_progress(&rig.jobs[0], rig.states[0], PA_ATP_RIG_EPOCH + 1,
					      &progress));
	ck_assert(!rig.handler->rank_progress(&rig.jobs[0], rig.states[0], 0, &progress));
	pa_atp_rig_stop(&rig);
}
END_TEST

Suite *
suite_pa_atp(void)
{
	Suite *suite = suite_create("pa_atp");
	TCase *tcase = tcase_create("sums");

	tcase_add_test(tcase,
		       sum_of_all_ranks_goes_to_the_server_and_stays_until_the_result_passes);
	tcase_add_test(tcase, job_of_one_rank_needs_no_other);
	tcase_add_test(tcase, every_data_type_and_operator_is_reduced_by_its_kernel);
	tcase_add_test(tcase, empty_gradients_take_part_without_data);
	tcase_add_test(tcase, copies_have_the_data_of_their_root);
	tcase_add_test(tcase, irreducible_packets_are_dropped_by_name);
	suite_add_tcase(suite, tcase);
	tcase = tcase_create("acknowledgements");
	tcase_add_test(tcase, every_gradient_and_every_copy_is_acknowledged);
	tcase_add_test(tcase, acknowledgement_is_the_header_turned_around);
	tcase_add_test(tcase, without_a_buffer_the_acknowledgement_is_lost_and_the_gradient_is_not);
	tcase_add_test(tcase, sum_of_sequence_numbers_only_grows);
	tcase_add_test(tcase, sum_of_sequence_numbers_does_not_wrap_around_with_the_blocks);
	tcase_add_test(tcase, congestion_is_told_to_the_rank_that_met_it_and_in_the_sum);
	suite_add_tcase(suite, tcase);
	tcase = tcase_create("slots");
	tcase_add_test(tcase, gradient_whose_slot_is_taken_goes_to_the_server);
	tcase_add_test(tcase, retransmission_of_an_absent_rank_is_merged_of_a_present_one_flushes);
	tcase_add_test(tcase, copies_of_what_went_to_the_server_follow_only_if_sent_again);
	tcase_add_test(tcase, direct_gradients_flush_the_merged_sum);
	tcase_add_test(tcase, retransmission_has_a_sum_that_was_sent_sent_again);
	tcase_add_test(tcase, server_s_flush_takes_what_there_is);
	tcase_add_test(tcase, sum_is_sent_again_once_in_a_round_trip);
	tcase_add_test(tcase, slot_of_a_split_block_is_free_for_any_other);
	tcase_add_test(tcase, query_flushes_and_then_goes_to_the_server);
	tcase_add_test(tcase, late_duplicates_hold_no_slot);
	tcase_add_test(tcase, late_copy_of_a_result_changes_nothing);
	tcase_add_test(tcase, result_of_one_asker_tells_that_the_block_is_finished);
	tcase_add_test(tcase, progress_frees_slots_whose_results_did_not_pass);
	tcase_add_loop_test(tcase, impossible_progress_and_queries_are_refused, 0, 2);
	tcase_add_test(tcase, block_takes_the_slot_of_a_finished_one);
	tcase_add_test(tcase, slot_that_waits_too_long_is_flushed);
	tcase_add_test(tcase, sum_without_a_result_is_given_up);
	tcase_add_test(tcase, busy_slot_is_tried_again);
	suite_add_tcase(suite, tcase);
	tcase = tcase_create("threshold");
	tcase_add_test(tcase, result_says_that_more_is_in_use_than_the_threshold);
	tcase_add_test(tcase, results_say_so_as_long_as_it_is);
	tcase_add_test(tcase, jobs_of_one_pool_count_together);
	suite_add_tcase(suite, tcase);
	tcase = tcase_create("runs");
	tcase_add_test(tcase, job_leaves_the_blocks_of_others_alone);
	tcase_add_test(tcase, new_run_begins_anew_at_block_0);
	tcase_add_test(tcase, job_that_goes_takes_its_share_with_it);
	tcase_add_test(tcase, slot_tells_what_its_block_waits_for);
	tcase_add_test(tcase, progress_tells_who_is_behind_and_what_is_in_use);
	suite_add_tcase(suite, tcase);
	return suite;
}
