/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What goes wrong in a ring: whoever dies, hangs, leaves or stays away is named by everyone else in time, and strangers get
 * nowhere.
 */
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/unit/ring_rig.h"
#include "tests/unit/suites.h"

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
		ck_assert_uint_lt(elapsed_ns, 3 * TIMEOUT_NS);
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
			 "collective 0: rank 0 posted an allreduce of 100 f32 (sum, root 0), rank 1 an "
			 "allreduce of 99 f32 (max, root 0)");
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
	struct collective collective;
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
	collective_make(&collective, &rig, 100, FANIN_WIRE_I32, FANIN_WIRE_SUM, false);
	collective_post_all(&collective, &rig);
	collective_run(&collective, &rig);
	collective_expect_ok(&collective, &rig);
	collective_free(&collective, &rig);
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
suite_ring_failures(void)
{
	Suite *suite = suite_create("ring_failures");
	TCase *failures = tcase_create("failures");
	TCase *wiring = tcase_create("wiring");

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
