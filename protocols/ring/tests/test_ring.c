/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ring that takes over where there is no switch: results are exact in the documented order.
 */
#include <poll.h>

#include "lab/reference/kernel_reference.h"
#include "lab/reference/random.h"
#include "hostlib/src/transport/transport.h"
#include "protocols/ring/tests/ring_rig.h"
#include "tests/unit/suites.h"

static const uint16_t rank_counts[] = { 1, 2, 3, 8, 16 };

#define N_RANK_COUNTS (sizeof(rank_counts) / sizeof(rank_counts[0]))

static uint64_t
element_get(const uint8_t *elements, uint64_t index, size_t size)
{
	uint64_t bits = 0;

	memcpy(&bits, elements + index * size, size);
	return bits;
}

/* Returns the segment that contains an element. */
static uint16_t
segment_of(uint64_t index, uint64_t count, uint16_t n_ranks)
{
	uint64_t rest = count % n_ranks;
	uint64_t long_len = count / n_ranks + 1;

	if (index < rest * long_len)
		return (uint16_t)(index / long_len);
	return (uint16_t)(rest + (index - rest * long_len) / (long_len - 1));
}

/* Returns the expected element: combined from the rank of its segment on, from left to right. */
static uint64_t
element_expect(const struct collective *collective, uint8_t *const *sent, uint64_t index,
	       uint16_t n_ranks)
{
	const size_t size = fanin_dtype_size(collective->dtype);
	const uint16_t first = segment_of(index, collective->count, n_ranks);
	uint64_t acc = element_get(sent[first], index, size);

	for (uint16_t i = 1; i < n_ranks; i++)
		acc = reference_combine(collective->dtype, collective->op, acc,
					element_get(sent[(first + i) % n_ranks], index, size));
	if (collective->op == FANIN_WIRE_AVG && n_ranks > 1)
		acc = reference_divide(collective->dtype, acc, n_ranks);
	return acc;
}

/* The same for sums in f32 that are rounded once. */
static uint64_t
element_expect_wide(const struct collective *collective, uint8_t *const *sent, uint64_t index,
		    uint16_t n_ranks)
{
	const struct float_format *format = reference_format(collective->dtype);
	const uint16_t first = segment_of(index, collective->count, n_ranks);
	float acc = (float)reference_decode(format, element_get(sent[first], index, 2));

	for (uint16_t i = 1; i < n_ranks; i++)
		acc += (float)reference_decode(format,
					       element_get(sent[(first + i) % n_ranks], index, 2));
	if (collective->op == FANIN_WIRE_AVG)
		acc /= (float)n_ranks;
	return reference_encode(format, acc);
}

/* Runs one allreduce of random elements and compares every one on every rank. */
static void
allreduce_expect(struct rig *rig, uint64_t count, unsigned int dtype, unsigned int op,
		 bool in_place, struct random *random)
{
	const size_t size = fanin_dtype_size(dtype);
	struct collective collective;
	uint8_t *sent[MAX_RANKS];

	collective_make(&collective, rig, count, dtype, op, in_place);
	for (uint16_t i = 0; i < rig->n_ranks; i++) {
		for (uint64_t j = 0; j < count; j++) {
			uint64_t bits = reference_random(random, dtype);

			memcpy(collective.send[i] + j * size, &bits, size);
		}
		sent[i] = malloc(count * size + 1);
		memcpy(sent[i], collective.send[i], count * size);
	}
	collective_post_all(&collective, rig);
	collective_run(&collective, rig);
	collective_expect_ok(&collective, rig);
	for (uint64_t j = 0; j < count; j++) {
		uint64_t expected = rig->wide && fanin_operation_widens(dtype, op)
					    ? element_expect_wide(&collective, sent, j,
								  rig->n_ranks)
					    : element_expect(&collective, sent, j, rig->n_ranks);

		for (uint16_t i = 0; i < rig->n_ranks; i++) {
			uint64_t found = element_get(collective.recv[i], j, size);

			/* Every ck_assert is a system call. */
			if (reference_same(dtype, op, found, expected) &&
			    found == element_get(collective.recv[0], j, size))
				continue;
			ck_abort_msg(
				"%s of %s, %u ranks, element %llu of %llu on rank %u: found %#llx, "
				"expected %#llx",
				fanin_op_name(op), fanin_dtype_name(dtype), rig->n_ranks,
				(unsigned long long)j, (unsigned long long)count, i,
				(unsigned long long)found, (unsigned long long)expected);
		}
	}
	for (uint16_t i = 0; i < rig->n_ranks; i++)
		free(sent[i]);
	collective_free(&collective, rig);
}

/* --------------------------------------------------------------- results */

START_TEST(every_type_and_operator_is_exact_in_odd_sizes)
{
	static const uint64_t counts[] = { 0, 1, 2, 15, 17, 515 };
	struct random random = random_seed(1);
	struct rig rig;

	rig_create(&rig, rank_counts[_i], false);
	for (unsigned int dtype = 1; dtype < FANIN_WIRE_DTYPE_COUNT; dtype++) {
		for (unsigned int op = 1; op < FANIN_WIRE_OP_COUNT; op++) {
			for (size_t i = 0; fanin_operation_defined(dtype, op) &&
					   i < sizeof(counts) / sizeof(counts[0]);
			     i++)
				allreduce_expect(&rig, counts[i], dtype, op, (i & 1) != 0, &random);
		}
	}
	rig_destroy(&rig);
}
END_TEST

START_TEST(jobs_that_accumulate_in_f32_round_once)
{
	static const uint64_t counts[] = { 0, 1, 17, 515, 40001 };
	struct random random = random_seed(2);
	struct rig rig;

	rig_create(&rig, rank_counts[_i], true);
	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		allreduce_expect(&rig, counts[i], FANIN_WIRE_F16, FANIN_WIRE_SUM, false, &random);
		allreduce_expect(&rig, counts[i], FANIN_WIRE_BF16, FANIN_WIRE_AVG, true, &random);
		allreduce_expect(&rig, counts[i], FANIN_WIRE_F16, FANIN_WIRE_MAX, true, &random);
	}
	rig_destroy(&rig);
}
END_TEST

START_TEST(long_vectors_flow_in_a_pipeline_and_are_exact)
{
	struct random random = random_seed(3);
	struct rig rig;

	rig_create(&rig, rank_counts[_i], false);
	allreduce_expect(&rig, 300007, FANIN_WIRE_F32, FANIN_WIRE_SUM, false, &random);
	allreduce_expect(&rig, 200003, FANIN_WIRE_F64, FANIN_WIRE_SUM, true, &random);
	allreduce_expect(&rig, 1000003, FANIN_WIRE_U8, FANIN_WIRE_SUM, true, &random);
	rig_destroy(&rig);
}
END_TEST

START_TEST(requests_are_worked_on_in_the_order_of_posting)
{
	struct collective collectives[8];
	struct rig rig;

	rig_create(&rig, 3, false);
	for (unsigned int i = 0; i < 8; i++) {
		collective_make(&collectives[i], &rig, i * 1000, FANIN_WIRE_U32, FANIN_WIRE_SUM,
				false);
		for (uint16_t rank = 0; rank < 3; rank++) {
			for (uint64_t j = 0; j < i * 1000ull; j++)
				((uint32_t *)collectives[i].send[rank])[j] = i + rank;
		}
		/* One rank posts all of them first. */
		collective_post(&collectives[i], &rig, 0);
		rig_step(&rig);
	}
	for (unsigned int i = 0; i < 8; i++) {
		collective_post(&collectives[i], &rig, 1);
		collective_post(&collectives[i], &rig, 2);
	}
	collective_run(&collectives[7], &rig);
	for (unsigned int i = 0; i < 8; i++) {
		collective_expect_ok(&collectives[i], &rig);
		for (uint64_t j = 0; j < i * 1000ull; j++)
			ck_assert_uint_eq(((uint32_t *)collectives[i].recv[1])[j], 3 * i + 3);
		collective_free(&collectives[i], &rig);
	}
	ck_assert_uint_eq(fanin_ring_stats(rig.rings[1])->collectives, 8);
	rig_destroy(&rig);
}
END_TEST

START_TEST(an_empty_collective_waits_for_every_rank)
{
	struct collective collective;
	struct rig rig;

	rig_create(&rig, 8, false);
	for (uint16_t late = 0; late < 8; late++) {
		collective_make(&collective, &rig, 0, FANIN_WIRE_F32, FANIN_WIRE_SUM, false);
		for (uint16_t i = 0; i < 8; i++) {
			if (i != late)
				collective_post(&collective, &rig, i);
		}
		for (int i = 0; i < 100; i++)
			rig_step(&rig);
		for (uint16_t i = 0; i < 8; i++)
			ck_assert(i == late || collective.requests[i].status == FANIN_IN_PROGRESS);
		collective_post(&collective, &rig, late);
		collective_run(&collective, &rig);
		collective_expect_ok(&collective, &rig);
		collective_free(&collective, &rig);
	}
	rig_destroy(&rig);
}
END_TEST

/* Returns element i of rank r's part of a vector. */
static uint32_t
brought(uint16_t rank, uint64_t i)
{
	return (uint32_t)((rank + 1u) * 1000003u + i * 7u);
}

/* Returns the expected element i of the whole vector; n is the number of elements of a part. */
static uint32_t
becomes(const struct rig *rig, enum fanin_collective collective, uint16_t root, uint64_t i,
	uint64_t n)
{
	uint32_t sum = 0;

	if (collective == FANIN_COLLECTIVE_BROADCAST)
		return brought(root, i);
	if (collective == FANIN_COLLECTIVE_ALLGATHER)
		return brought((uint16_t)(i / n), i);
	for (uint16_t rank = 0; rank < rig->n_ranks; rank++)
		sum += brought(rank, i);
	return sum;
}

/*
 * Every rank has the whole vector in memory; the request's layout says which part of it the rank
 * contributes and keeps.
 */
static void
collective_expect(struct rig *rig, enum fanin_collective kind, uint16_t root, uint64_t n,
		  bool in_place)
{
	const bool in_parts = kind == FANIN_COLLECTIVE_REDUCE_SCATTER ||
			      kind == FANIN_COLLECTIVE_ALLGATHER;
	const uint64_t total = in_parts ? n * rig->n_ranks : n;
	struct collective collective;
	struct fanin_request layout = {
		.collective = (uint8_t)kind,
		.root = root,
		.dtype = FANIN_WIRE_U32,
	};

	collective_make(&collective, rig, total, FANIN_WIRE_U32, FANIN_WIRE_SUM, in_place);
	for (uint16_t rank = 0; rank < rig->n_ranks; rank++) {
		struct fanin_request *request = &collective.requests[rank];
		uint32_t *send = (uint32_t *)collective.send[rank];

		fanin_request_layout(&layout, rank, rig->n_ranks, n);
		for (uint64_t i = layout.send_offset / 4;
		     i < (layout.send_offset + layout.send_bytes) / 4; i++)
			send[i] = brought(rank, i);
		*request = (struct fanin_request){
			.send = collective.send[rank] + layout.send_offset,
			.recv = collective.recv[rank] + layout.recv_offset,
			.collective = (uint8_t)kind,
			.dtype = FANIN_WIRE_U32,
			.op = FANIN_WIRE_SUM,
			.root = root,
		};
		ck_assert_int_eq(fanin_ring_post(rig->rings[rank], request, n), FANIN_OK);
	}
	collective_run(&collective, rig);
	collective_expect_ok(&collective, rig);
	for (uint16_t rank = 0; rank < rig->n_ranks; rank++) {
		const uint32_t *recv = (const uint32_t *)collective.recv[rank];
		uint64_t first, end;

		fanin_request_layout(&layout, rank, rig->n_ranks, n);
		first = layout.recv_offset / 4;
		end = first + layout.recv_bytes / 4;
		for (uint64_t i = 0; i < total; i++) {
			if (i >= first && i < end ? recv[i] != becomes(rig, kind, root, i, n)
						  : (!in_place && recv[i] != 0))
				ck_abort_msg(
					"collective %d, %u ranks, root %u, element %llu of %llu on rank %u: "
					"found %u",
					kind, rig->n_ranks, root, (unsigned long long)i,
					(unsigned long long)total, rank, recv[i]);
		}
	}
	collective_free(&collective, rig);
}

START_TEST(every_collective_is_exact_in_odd_sizes)
{
	static const uint64_t counts[] = { 0, 1, 17, 5003, 150001 };
	const uint16_t n_ranks = rank_counts[_i];
	struct rig rig;

	rig_create(&rig, n_ranks, false);
	for (int kind = FANIN_COLLECTIVE_ALLREDUCE; kind <= FANIN_COLLECTIVE_ALLGATHER; kind++) {
		for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
			for (int in_place = 0; in_place <= 1; in_place++) {
				uint16_t root = (uint16_t)((i + (size_t)kind) % n_ranks);

				if (kind != FANIN_COLLECTIVE_REDUCE &&
				    kind != FANIN_COLLECTIVE_BROADCAST)
					root = 0;
				collective_expect(&rig, (enum fanin_collective)kind, root,
						  counts[i], in_place != 0);
			}
		}
	}
	rig_destroy(&rig);
}
END_TEST

START_TEST(polled_descriptors_wake_a_sleeping_rank)
{
	struct pollfd fds[FANIN_TRANSPORT_MAX_FDS];
	struct collective collective;
	unsigned int n;
	struct rig rig;

	rig_create(&rig, 2, false);
	collective_make(&collective, &rig, 1000, FANIN_WIRE_F32, FANIN_WIRE_SUM, false);
	n = fanin_ring_poll_fds(rig.rings[0], fds);
	ck_assert_int_eq(poll(fds, n, 0), 0);
	ck_assert_uint_eq(fanin_ring_idle_ns(rig.rings[0]), UINT64_MAX);
	collective_post(&collective, &rig, 1);
	fanin_ring_poll(rig.rings[1]);
	ck_assert_int_eq(poll(fds, n, 1000), 1);
	ck_assert_uint_lt(fanin_ring_idle_ns(rig.rings[1]), TIMEOUT_NS);
	collective_post(&collective, &rig, 0);
	collective_run(&collective, &rig);
	collective_expect_ok(&collective, &rig);
	collective_free(&collective, &rig);
	rig_destroy(&rig);
}
END_TEST

Suite *
suite_ring(void)
{
	Suite *suite = suite_create("ring");
	TCase *results = tcase_create("results");

	tcase_set_timeout(results, 300);
	tcase_add_loop_test(results, every_type_and_operator_is_exact_in_odd_sizes, 0,
			    N_RANK_COUNTS);
	tcase_add_loop_test(results, jobs_that_accumulate_in_f32_round_once, 0, N_RANK_COUNTS);
	tcase_add_loop_test(results, long_vectors_flow_in_a_pipeline_and_are_exact, 0,
			    N_RANK_COUNTS);
	tcase_add_loop_test(results, every_collective_is_exact_in_odd_sizes, 0, N_RANK_COUNTS);
	tcase_add_test(results, requests_are_worked_on_in_the_order_of_posting);
	tcase_add_test(results, an_empty_collective_waits_for_every_rank);
	tcase_add_test(results, polled_descriptors_wake_a_sleeping_rank);
	suite_add_tcase(suite, results);
	return suite;
}
