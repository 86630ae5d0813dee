/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ring that takes over where there is no switch: results are exact in the documented order, whoever dies, stalls or stays
 * away is named by everyone, and strangers get nowhere.
 */
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/unit/kernel_reference.h"
#include "tests/unit/random.h"
#include "tests/unit/ring_rig.h"
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

/* The segment that an element lies in. */
static uint16_t
segment_of(uint64_t index, uint64_t count, uint16_t n_ranks)
{
	uint64_t rest = count % n_ranks;
	uint64_t long_len = count / n_ranks + 1;

	if (index < rest * long_len)
		return (uint16_t)(index / long_len);
	return (uint16_t)(rest + (index - rest * long_len) / (long_len - 1));
}

/* What the ring has to make of an element: from the rank of its segment on, from left to right. */
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
					    ? element_expect_wide(&collective, sent, j, rig->n_ranks)
					    : element_expect(&collective, sent, j, rig->n_ranks);

		for (uint16_t i = 0; i < rig->n_ranks; i++) {
			uint64_t found = element_get(collective.recv[i], j, size);

			ck_assert_msg(reference_same(dtype, op, found, expected),
				      "%s of %s, %u ranks, element %llu of %llu on rank %u: found %#llx, "
				      "expected %#llx",
				      fanin_op_name(op), fanin_dtype_name(dtype), rig->n_ranks,
				      (unsigned long long)j, (unsigned long long)count, i,
				      (unsigned long long)found, (unsigned long long)expected);
			ck_assert_uint_eq(found, element_get(collective.recv[0], j, size));
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
		/* One rank is ahead by all of them. */
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

START_TEST(what_poll_waits_for_wakes_a_sleeping_rank)
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

/* -------------------------------------------------------------- failures */

#define LARGE 2000000

/* Everyone but that rank fails and names it, with these words. */
static void
expect_blamed(const struct rig *rig, const struct collective *collective, uint16_t blamed,
	      const char *words)
{
	char name[32];

	snprintf(name, sizeof(name), "rank %u ", blamed);
	for (uint16_t i = 0; i < rig->n_ranks; i++) {
		const struct fanin_error *error;

		if (rig->rings[i] == NULL || i == blamed)
			continue;
		error = fanin_ring_error(rig->rings[i]);
		ck_assert_int_eq(collective->requests[i].status, FANIN_ERR_TIMEOUT);
		ck_assert_msg(fanin_ring_missing(rig->rings[i]) == 1ull << blamed,
			      "rank %u says: %s", i, error->text);
		ck_assert_msg(strncmp(error->text, name, strlen(name)) == 0 &&
				      strstr(error->text, words) != NULL,
			      "%u is blamed, rank %u says: %s", blamed, i, error->text);
	}
}

START_TEST(a_killed_rank_is_named_by_all_at_once)
{
	struct collective collective;
	struct rig rig;

	for (uint16_t dead = 0; dead < 8; dead += 3) {
		rig_create(&rig, 8, false);
		collective_make(&collective, &rig, LARGE, FANIN_WIRE_F32, FANIN_WIRE_SUM, false);
		collective_post_all(&collective, &rig);
		for (int i = 0; i < 3; i++)
			rig_step(&rig);
		fanin_ring_destroy(rig.rings[dead]);
		rig.rings[dead] = NULL;
		ck_assert_uint_lt(collective_run(&collective, &rig), TIMEOUT_NS / 2);
		expect_blamed(&rig, &collective, dead, "its process has ended");
		collective_free(&collective, &rig);
		rig_destroy(&rig);
	}
}
END_TEST

START_TEST(a_rank_that_hangs_is_named_by_all)
{
	struct collective collective;
	uint64_t elapsed_ns;
	struct rig rig;

	for (uint16_t hung = 0; hung < 8; hung += 3) {
		rig_create(&rig, 8, false);
		collective_make(&collective, &rig, LARGE, FANIN_WIRE_F32, FANIN_WIRE_SUM, false);
		collective_post_all(&collective, &rig);
		for (int i = 0; i < 3; i++)
			rig_step(&rig);
		rig.paused[hung] = true;
		elapsed_ns = collective_run(&collective, &rig);
		ck_assert_uint_ge(elapsed_ns, TIMEOUT_NS);
		ck_assert_uint_lt(elapsed_ns, 2 * TIMEOUT_NS);
		expect_blamed(&rig, &collective, hung, "has not answered for 2.0 s");
		collective_free(&collective, &rig);
		rig_destroy(&rig);
	}
}
END_TEST

START_TEST(a_rank_that_has_not_posted_is_named_by_all)
{
	struct collective collective;
	struct rig rig;

	for (uint16_t late = 0; late < 8; late += 3) {
		rig_create(&rig, 8, false);
		collective_make(&collective, &rig, 1000, FANIN_WIRE_F32, FANIN_WIRE_SUM, false);
		for (uint16_t i = 0; i < 8; i++) {
			if (i != late)
				collective_post(&collective, &rig, i);
		}
		for (uint64_t i = 0; i < TIMEOUT_NS / 2 / STEP_NS; i++)
			rig_step(&rig);
		/* While they wait they know already. */
		ck_assert_uint_eq(fanin_ring_missing(rig.rings[(late + 4) % 8]), 1ull << late);
		collective_run(&collective, &rig);
		expect_blamed(&rig, &collective, late, "has not posted the collective for 2.0 s");
		collective_free(&collective, &rig);
		rig_destroy(&rig);
	}
}
END_TEST

START_TEST(whoever_leaves_after_the_last_collective_harms_nobody)
{
	struct collective collective;
	struct rig rig;

	rig_create(&rig, 8, false);
	collective_make(&collective, &rig, LARGE / 40, FANIN_WIRE_F32, FANIN_WIRE_SUM, false);
	collective_post_all(&collective, &rig);
	for (unsigned int done = 0; done < 8;) {
		rig_step(&rig);
		for (uint16_t i = 0; i < 8; i++) {
			if (rig.rings[i] == NULL || collective.requests[i].status == FANIN_IN_PROGRESS)
				continue;
			ck_assert_msg(collective.requests[i].status == FANIN_OK, "rank %u: %s", i,
				      fanin_ring_error(rig.rings[i])->text);
			fanin_ring_leave(rig.rings[i]);
			fanin_ring_destroy(rig.rings[i]);
			rig.rings[i] = NULL;
			done++;
		}
	}
	collective_free(&collective, &rig);
	rig_destroy(&rig);
}
END_TEST

START_TEST(a_rank_that_has_left_is_named_by_who_still_wants_it)
{
	struct collective collective;
	struct rig rig;

	rig_create(&rig, 3, false);
	fanin_ring_leave(rig.rings[1]);
	fanin_ring_destroy(rig.rings[1]);
	rig.rings[1] = NULL;
	for (int i = 0; i < 10; i++)
		rig_step(&rig);
	collective_make(&collective, &rig, 10, FANIN_WIRE_F32, FANIN_WIRE_SUM, false);
	collective_post(&collective, &rig, 0);
	collective_post(&collective, &rig, 2);
	ck_assert_uint_lt(collective_run(&collective, &rig), TIMEOUT_NS / 2);
	expect_blamed(&rig, &collective, 1, "has left the job");
	collective_free(&collective, &rig);
	rig_destroy(&rig);
}
END_TEST

START_TEST(leaving_in_the_middle_is_told_to_all)
{
	struct collective collective;
	struct rig rig;

	rig_create(&rig, 8, false);
	collective_make(&collective, &rig, LARGE, FANIN_WIRE_F32, FANIN_WIRE_SUM, false);
	collective_post_all(&collective, &rig);
	rig_step(&rig);
	fanin_ring_leave(rig.rings[5]);
	fanin_ring_destroy(rig.rings[5]);
	rig.rings[5] = NULL;
	ck_assert_uint_lt(collective_run(&collective, &rig), TIMEOUT_NS / 2);
	expect_blamed(&rig, &collective, 5, "has left the job");
	collective_free(&collective, &rig);
	rig_destroy(&rig);
}
END_TEST

START_TEST(different_collectives_are_told_apart)
{
	struct collective collective;
	struct collective other;
	const char *text;
	struct rig rig;

	rig_create(&rig, 3, false);
	collective_make(&collective, &rig, 100, FANIN_WIRE_F32, FANIN_WIRE_SUM, false);
	collective_make(&other, &rig, 99, FANIN_WIRE_F32, FANIN_WIRE_MAX, false);
	collective_post(&collective, &rig, 0);
	collective_post(&other, &rig, 1);
	collective_post(&collective, &rig, 2);
	for (uint64_t i = 0; i < TIMEOUT_NS / STEP_NS; i++)
		rig_step(&rig);
	ck_assert_int_eq(other.requests[1].status, FANIN_ERR_REFUSED);
	ck_assert_int_ne(collective.requests[0].status, FANIN_OK);
	ck_assert_int_ne(collective.requests[2].status, FANIN_OK);
	text = fanin_ring_error(rig.rings[1])->text;
	ck_assert_str_eq(text,
			 "collective 0: rank 0 posted the sum of 100 f32, rank 1 the max of 99 f32");
	collective_free(&collective, &rig);
	collective_free(&other, &rig);
	rig_destroy(&rig);
}
END_TEST

START_TEST(a_failed_ring_takes_no_more_requests)
{
	struct fanin_request request = { .dtype = FANIN_WIRE_U8, .op = FANIN_WIRE_SUM };
	struct rig rig;

	rig_create(&rig, 2, false);
	fanin_ring_destroy(rig.rings[1]);
	rig.rings[1] = NULL;
	for (int i = 0; i < 100; i++)
		rig_step(&rig);
	ck_assert_int_eq(fanin_ring_post(rig.rings[0], &request, 0), FANIN_ERR_TIMEOUT);
	ck_assert_uint_eq(fanin_ring_missing(rig.rings[0]), 2);
	rig_destroy(&rig);
}
END_TEST

/* ---------------------------------------------------------------- wiring */

static int
stranger_call(const struct rig *rig, uint16_t rank, const void *message, size_t len)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	ck_assert_int_eq(connect(fd, (const struct sockaddr *)&rig->addresses[rank],
				 sizeof(rig->addresses[rank])),
			 0);
	if (len != 0)
		ck_assert_int_eq(send(fd, message, len, 0), (ssize_t)len);
	return fd;
}

START_TEST(strangers_are_closed_and_counted)
{
	static const char garbage[] = "GET / HTTP/1.1\r\nHost: of a different protocol\r\n\r\n";
	struct random random = random_seed(4);
	struct rig rig;
	int fds[3];

	rig_listen(&rig, 3);
	rig_create_rank(&rig, 0, KEY);
	fds[0] = stranger_call(&rig, 0, garbage, sizeof(garbage));
	fds[1] = stranger_call(&rig, 0, NULL, 0);
	fds[2] = stranger_call(&rig, 0, garbage, 3);
	close(fds[2]);
	for (uint64_t i = 0; fanin_ring_stats(rig.rings[0])->rejected < 3; i++) {
		ck_assert_uint_lt(i, 3 * TIMEOUT_NS / STEP_NS);
		rig_step(&rig);
	}
	rig_create_rank(&rig, 1, KEY);
	rig_create_rank(&rig, 2, KEY);
	rig_wire(&rig);
	ck_assert_uint_eq(fanin_ring_stats(rig.rings[0])->rejected, 3);
	allreduce_expect(&rig, 100, FANIN_WIRE_I32, FANIN_WIRE_SUM, false, &random);
	close(fds[0]);
	close(fds[1]);
	rig_destroy(&rig);
}
END_TEST

START_TEST(another_key_does_not_get_in)
{
	char text[FANIN_TEXT_LEN];
	struct rig rig;

	rig_listen(&rig, 2);
	rig_create_rank(&rig, 0, KEY);
	rig_create_rank(&rig, 1, KEY + 1);
	for (uint64_t i = 0; i < TIMEOUT_NS / STEP_NS; i++)
		rig_step(&rig);
	for (uint16_t i = 0; i < 2; i++) {
		ck_assert(!fanin_ring_wired(rig.rings[i]));
		ck_assert_uint_ge(fanin_ring_stats(rig.rings[i])->rejected, 1);
	}
	fanin_ring_wiring_text(rig.rings[0], text, sizeof(text));
	ck_assert_msg(strstr(text, "rank 1 at 127.0.0.1:") != NULL &&
			      strstr(text, "has not been reached: ") != NULL,
		      "%s", text);
	rig_destroy(&rig);
}
END_TEST

START_TEST(many_silent_strangers_do_not_keep_a_neighbour_out)
{
	struct rig rig;
	int fds[20];

	rig_listen(&rig, 2);
	rig_create_rank(&rig, 0, KEY);
	for (int i = 0; i < 20; i++) {
		fds[i] = stranger_call(&rig, 0, NULL, 0);
		rig_step(&rig);
	}
	rig_create_rank(&rig, 1, KEY);
	rig_wire(&rig);
	ck_assert_uint_eq(fanin_ring_stats(rig.rings[0])->rejected, 20);
	for (int i = 0; i < 20; i++)
		close(fds[i]);
	rig_destroy(&rig);
}
END_TEST

START_TEST(who_is_not_there_is_named_while_the_ring_is_wired)
{
	char text[FANIN_TEXT_LEN];
	struct rig rig;

	rig_listen(&rig, 3);
	close(rig.listeners[1]);
	rig_create_rank(&rig, 0, KEY);
	for (int i = 0; i < 10; i++)
		rig_step(&rig);
	fanin_ring_wiring_text(rig.rings[0], text, sizeof(text));
	ck_assert_msg(strstr(text, "Connection refused") != NULL, "%s", text);
	ck_assert_uint_eq(fanin_ring_wiring_missing(rig.rings[0]), 1 << 1);
	rig_create_rank(&rig, 2, KEY);
	for (int i = 0; i < 10; i++)
		rig_step(&rig);
	fanin_ring_wiring_text(rig.rings[2], text, sizeof(text));
	ck_assert_str_eq(text, "rank 1 has not called");
	rig_destroy(&rig);
}
END_TEST

Suite *
suite_ring(void)
{
	Suite *suite = suite_create("ring");
	TCase *results = tcase_create("results");
	TCase *failures = tcase_create("failures");
	TCase *wiring = tcase_create("wiring");

	tcase_set_timeout(results, 120);
	tcase_add_loop_test(results, every_type_and_operator_is_exact_in_odd_sizes, 0, N_RANK_COUNTS);
	tcase_add_loop_test(results, jobs_that_accumulate_in_f32_round_once, 0, N_RANK_COUNTS);
	tcase_add_loop_test(results, long_vectors_flow_in_a_pipeline_and_are_exact, 0, N_RANK_COUNTS);
	tcase_add_test(results, requests_are_worked_on_in_the_order_of_posting);
	tcase_add_test(results, an_empty_collective_waits_for_every_rank);
	tcase_add_test(results, what_poll_waits_for_wakes_a_sleeping_rank);
	suite_add_tcase(suite, results);
	tcase_set_timeout(failures, 60);
	tcase_add_test(failures, a_killed_rank_is_named_by_all_at_once);
	tcase_add_test(failures, a_rank_that_hangs_is_named_by_all);
	tcase_add_test(failures, a_rank_that_has_not_posted_is_named_by_all);
	tcase_add_test(failures, whoever_leaves_after_the_last_collective_harms_nobody);
	tcase_add_test(failures, a_rank_that_has_left_is_named_by_who_still_wants_it);
	tcase_add_test(failures, leaving_in_the_middle_is_told_to_all);
	tcase_add_test(failures, different_collectives_are_told_apart);
	tcase_add_test(failures, a_failed_ring_takes_no_more_requests);
	suite_add_tcase(suite, failures);
	tcase_set_timeout(wiring, 60);
	tcase_add_test(wiring, strangers_are_closed_and_counted);
	tcase_add_test(wiring, another_key_does_not_get_in);
	tcase_add_test(wiring, many_silent_strangers_do_not_keep_a_neighbour_out);
	tcase_add_test(wiring, who_is_not_there_is_named_while_the_ring_is_wired);
	suite_add_tcase(suite, wiring);
	return suite;
}
