/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Failures in a ring. A rank that dies, leaves or has a silent machine is named by all others in
 * time. A late rank is waited for. Strangers are not admitted.
 */
#include <linux/filter.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "hostlib/src/base/clock.h"
#include "hostlib/src/comm/comm.h"
#include "protocols/ring/host/ring_internal.h"
#include "protocols/ring/tests/ring_rig.h"
#include "tests/unit/suites.h"

/* -------------------------------------------------------------- failures */

#define LARGE 2000000

/* Expects all ranks but that one to fail and to name it, with these words. */
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

/*
 * Steps for this long. At the end all ranks that are polled still wait, and the others know for
 * whom.
 */
static void
expect_waiting(const struct collective *collective, struct rig *rig, uint16_t late, uint64_t for_ns)
{
	for (uint64_t i = 0; i < for_ns / STEP_NS; i++)
		rig_step(rig);
	for (uint16_t i = 0; i < rig->n_ranks; i++) {
		if (i == late)
			continue;
		ck_assert_msg(collective->requests[i].status == FANIN_IN_PROGRESS, "rank %u: %s", i,
			      fanin_ring_error(rig->rings[i])->text);
		ck_assert_uint_eq(fanin_ring_missing(rig->rings[i]), 1ull << late);
		ck_assert_uint_eq(fanin_ring_late(rig->rings[i]), 1ull << late);
	}
}

START_TEST(a_rank_that_hangs_is_waited_for)
{
	struct collective collective;
	struct rig rig;

	for (uint16_t hung = 0; hung < 8; hung += 3) {
		rig_create(&rig, 8, false);
		collective_make(&collective, &rig, LARGE, FANIN_WIRE_F32, FANIN_WIRE_SUM, false);
		collective_post_all(&collective, &rig);
		for (int i = 0; i < 3; i++)
			rig_step(&rig);
		rig.paused[hung] = true;
		expect_waiting(&collective, &rig, hung, 3 * TIMEOUT_NS);
		rig.paused[hung] = false;
		collective_run(&collective, &rig);
		collective_expect_ok(&collective, &rig);
		for (uint16_t i = 0; i < 8; i++)
			ck_assert_uint_eq(fanin_ring_stats(rig.rings[i])->rejected, 0);
		collective_free(&collective, &rig);
		rig_destroy(&rig);
	}
}
END_TEST

START_TEST(a_rank_that_has_not_posted_is_waited_for)
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
		expect_waiting(&collective, &rig, late, TIMEOUT_NS / 2);
		expect_waiting(&collective, &rig, late, 3 * TIMEOUT_NS);
		collective_post(&collective, &rig, late);
		collective_run(&collective, &rig);
		collective_expect_ok(&collective, &rig);
		collective_free(&collective, &rig);
		rig_destroy(&rig);
	}
}
END_TEST

START_TEST(a_rank_that_is_killed_while_it_is_late_is_named)
{
	struct collective collective;
	struct rig rig;

	rig_create(&rig, 4, false);
	collective_make(&collective, &rig, LARGE, FANIN_WIRE_F32, FANIN_WIRE_SUM, false);
	collective_post_all(&collective, &rig);
	rig.paused[2] = true;
	expect_waiting(&collective, &rig, 2, 3 * TIMEOUT_NS);
	fanin_ring_destroy(rig.rings[2]);
	rig.rings[2] = NULL;
	ck_assert_uint_lt(collective_run(&collective, &rig), TIMEOUT_NS / 2);
	expect_blamed(&rig, &collective, 2, "its process has ended");
	collective_free(&collective, &rig);
	rig_destroy(&rig);
}
END_TEST

START_TEST(the_wait_for_a_late_rank_may_have_a_limit)
{
	struct collective collective;
	uint64_t elapsed_ns;
	struct rig rig;

	for (int posted = 0; posted < 2; posted++) {
		rig_listen(&rig, 4);
		rig.wait_limit_ns = 3 * TIMEOUT_NS;
		for (uint16_t i = 0; i < 4; i++)
			rig_create_rank(&rig, i, KEY);
		rig_wire(&rig);
		collective_make(&collective, &rig, LARGE, FANIN_WIRE_F32, FANIN_WIRE_SUM, false);
		for (uint16_t i = 0; i < 4; i++) {
			if (i != 1 || posted != 0)
				collective_post(&collective, &rig, i);
		}
		rig.paused[1] = posted != 0;
		elapsed_ns = collective_run(&collective, &rig);
		ck_assert_uint_ge(elapsed_ns, 3 * TIMEOUT_NS);
		ck_assert_uint_lt(elapsed_ns, 4 * TIMEOUT_NS);
		expect_blamed(&rig, &collective, 1, "has been late for 6.0 s");
		ck_assert_uint_eq(fanin_ring_late(rig.rings[0]), 0);
		collective_free(&collective, &rig);
		rig_destroy(&rig);
	}
}
END_TEST

/* A listener whose queue is full: the kernel does not answer connection attempts. */
struct hole {
	struct sockaddr_in address;
	int fds[8];
};

static void
hole_make(struct hole *hole)
{
	socklen_t len = sizeof(hole->address);

	hole->address = (struct sockaddr_in){ .sin_family = AF_INET,
					      .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	hole->fds[0] = socket(AF_INET, SOCK_STREAM, 0);
	ck_assert_int_eq(bind(hole->fds[0], (struct sockaddr *)&hole->address, len), 0);
	ck_assert_int_eq(listen(hole->fds[0], 0), 0);
	ck_assert_int_eq(getsockname(hole->fds[0], (struct sockaddr *)&hole->address, &len), 0);
	for (int i = 1; i < 8; i++) {
		hole->fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
		connect(hole->fds[i], (struct sockaddr *)&hole->address, len);
	}
}

static void
hole_close(const struct hole *hole)
{
	for (int i = 0; i < 8; i++)
		close(hole->fds[i]);
}

/*
 * The machine of a paused rank is dead: connections to the rank get no acknowledgement any more.
 * The kernel would go on sending them in its own time, not in the simulated one.
 */
static void
machine_dies(const struct rig *rig, uint16_t rank)
{
	struct sock_filter nothing = BPF_STMT(BPF_RET | BPF_K, 0);
	const struct sock_fprog filter = { .len = 1, .filter = &nothing };
	const struct fanin_ring *ring = fanin_ring_of(rig->rings[rank]);
	const int fds[] = { ring->prev, ring->next.fd };

	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(setsockopt(fds[i], SOL_SOCKET, SO_ATTACH_FILTER, &filter,
					    sizeof(filter)),
				 0);
}

START_TEST(a_machine_that_does_not_answer_is_named_by_all)
{
	struct collective collective;
	struct hole hole;
	uint64_t elapsed_ns;
	struct rig rig;

	hole_make(&hole);
	for (uint16_t dead = 0; dead < 4; dead++) {
		rig_create(&rig, 4, false);
		collective_make(&collective, &rig, LARGE, FANIN_WIRE_F32, FANIN_WIRE_SUM, false);
		collective_post_all(&collective, &rig);
		rig.paused[dead] = true;
		expect_waiting(&collective, &rig, dead, 2 * TIMEOUT_NS);
		machine_dies(&rig, dead);
		fanin_ring_of(rig.rings[(dead + 3) % 4])->next_watch.address = hole.address;
		elapsed_ns = collective_run(&collective, &rig);
		ck_assert_uint_lt(elapsed_ns, TIMEOUT_NS);
		expect_blamed(&rig, &collective, dead, "has not answered for ");
		collective_free(&collective, &rig);
		rig_destroy(&rig);
	}
	hole_close(&hole);
}
END_TEST

/*
 * Also if the rank has been late for long, and the rank behind it is the first to find its machine
 * silent.
 */
START_TEST(the_rank_before_a_machine_that_does_not_answer_is_the_first_to_say_so)
{
	struct collective collective;
	struct hole hole;
	struct rig rig;

	hole_make(&hole);
	rig_create(&rig, 4, false);
	for (uint64_t i = 0; !fanin_ring_of(rig.rings[0])->next_watch.refuses ||
			     !fanin_ring_of(rig.rings[2])->prev_watch.refuses;
	     i++) {
		ck_assert_uint_lt(i, TIMEOUT_NS / STEP_NS);
		rig_step(&rig);
	}
	collective_make(&collective, &rig, LARGE, FANIN_WIRE_F32, FANIN_WIRE_SUM, false);
	collective_post_all(&collective, &rig);
	rig.paused[1] = true;
	expect_waiting(&collective, &rig, 1, 3 * TIMEOUT_NS);
	fanin_ring_of(rig.rings[2])->prev_watch.address = hole.address;
	for (uint64_t i = 0; i < TIMEOUT_NS / 8 / STEP_NS; i++)
		rig_step(&rig);
	fanin_ring_of(rig.rings[0])->next_watch.address = hole.address;
	for (uint64_t i = 0; fanin_ring_of(rig.rings[0])->status == FANIN_OK; i++) {
		ck_assert_uint_lt(i, 2 * TIMEOUT_NS / STEP_NS);
		rig_step(&rig);
		ck_assert(fanin_ring_of(rig.rings[0])->status != FANIN_OK ||
			  fanin_ring_of(rig.rings[2])->status == FANIN_OK);
	}
	collective_run(&collective, &rig);
	expect_blamed(&rig, &collective, 1, "has not answered for ");
	collective_free(&collective, &rig);
	rig_destroy(&rig);
	hole_close(&hole);
}
END_TEST

/*
 * A caller that is busy elsewhere, or has no core, more often than not. _i / 3: has it waited for
 * long before the machine dies?
 */
START_TEST(a_rank_that_polls_rarely_learns_of_a_silent_machine)
{
	static const uint64_t away_ms[] = { 110, 400, 3000 };
	const uint64_t away_ns = away_ms[_i % 3] * 1000000;
	struct collective collective;
	unsigned int answered = 0;
	uint32_t segments = 0;
	unsigned int looks;
	struct hole hole;
	struct rig rig;

	hole_make(&hole);
	rig_create(&rig, 4, false);
	for (uint64_t i = 0; !fanin_ring_of(rig.rings[0])->next_watch.refuses; i++) {
		ck_assert_uint_lt(i, TIMEOUT_NS / STEP_NS);
		rig_step(&rig);
	}
	collective_make(&collective, &rig, LARGE, FANIN_WIRE_F32, FANIN_WIRE_SUM, false);
	collective_post_all(&collective, &rig);
	rig.paused[1] = true;
	for (int i = 0; i < 100; i++)
		rig_step(&rig);
	if (_i >= 3)
		expect_waiting(&collective, &rig, 1, 2 * TIMEOUT_NS);
	fanin_ring_of(rig.rings[0])->next_watch.address = hole.address;
	for (looks = 0; collective.requests[0].status == FANIN_IN_PROGRESS; looks++) {
		/*
		 * The test's clock is simulated, the kernel's is real: each answer that the kernel
		 * gives for the paused rank starts a new silence.
		 */
		if (fanin_ring_of(rig.rings[0])->next_watch.segments != segments)
			answered = looks;
		segments = fanin_ring_of(rig.rings[0])->next_watch.segments;
		ck_assert_uint_lt(looks - answered, 25 + 4 * TIMEOUT_NS / away_ns);
		rig.now_ns += away_ns;
		rig_step(&rig);
	}
	/* Each look may bring an answer, so that there have to be several. */
	ck_assert_uint_ge(looks, _i >= 3 ? 10 : 20);
	collective_run(&collective, &rig);
	expect_blamed(&rig, &collective, 1, "has not answered for ");
	collective_free(&collective, &rig);
	rig_destroy(&rig);
	hole_close(&hole);
}
END_TEST

/* A rank waits and knows for whom. */
static void
expect_only_late(const struct collective *collective, const struct rig *rig, uint16_t rank,
		 uint16_t late)
{
	ck_assert_msg(collective->requests[rank].status == FANIN_IN_PROGRESS, "rank %u: %s", rank,
		      fanin_ring_error(rig->rings[rank])->text);
	ck_assert_uint_eq(fanin_ring_missing(rig->rings[rank]), 1ull << late);
}

/* Rank 0, and _i / 3: all others, too, are stopped for a while, in which rank 2 is late. */
START_TEST(a_stopped_rank_blames_nobody_when_it_resumes)
{
	static const uint64_t away_ms[] = { 1000, 5000, 30000 };
	struct collective collective;
	struct rig rig;

	rig_create(&rig, 4, false);
	collective_make(&collective, &rig, LARGE, FANIN_WIRE_F32, FANIN_WIRE_SUM, false);
	collective_post_all(&collective, &rig);
	rig.paused[2] = true;
	expect_waiting(&collective, &rig, 2, 2 * TIMEOUT_NS);
	for (int stops = 0; stops < 3; stops++) {
		rig.paused[0] = true;
		if (_i >= 3)
			rig.now_ns += away_ms[_i % 3] * 1000000;
		for (uint64_t ms = 0; _i < 3 && ms < away_ms[_i % 3]; ms += 50) {
			rig.now_ns += 50 * 1000000;
			rig_step(&rig);
		}
		rig.paused[0] = false;
		fanin_ring_poll(rig.rings[0]);
		expect_only_late(&collective, &rig, 0, 2);
		expect_waiting(&collective, &rig, 2, TIMEOUT_NS / 10);
	}
	rig.paused[2] = false;
	collective_run(&collective, &rig);
	collective_expect_ok(&collective, &rig);
	collective_free(&collective, &rig);
	rig_destroy(&rig);
}
END_TEST

/* The rank learns of the post before the rank behind it has passed on any data. */
START_TEST(a_rank_stopped_while_a_late_rank_posted_blames_nobody)
{
	struct collective collective;
	struct rig rig;

	rig_create(&rig, 4, false);
	collective_make(&collective, &rig, LARGE, FANIN_WIRE_F32, FANIN_WIRE_SUM, false);
	for (uint16_t i = 0; i < 4; i++) {
		if (i != 2)
			collective_post(&collective, &rig, i);
	}
	expect_waiting(&collective, &rig, 2, 2 * TIMEOUT_NS);
	rig.paused[0] = true;
	for (int i = 0; i < 100; i++) {
		rig.now_ns += 50 * 1000000;
		rig_step(&rig);
	}
	rig.paused[3] = true;
	collective_post(&collective, &rig, 2);
	for (uint64_t i = 0; i < TIMEOUT_NS / 8 / STEP_NS; i++)
		rig_step(&rig);
	fanin_ring_poll(rig.rings[0]);
	ck_assert_msg(collective.requests[0].status == FANIN_IN_PROGRESS, "%s",
		      fanin_ring_error(rig.rings[0])->text);
	ck_assert_uint_eq(fanin_ring_missing(rig.rings[0]), 0);
	rig.paused[0] = false;
	rig.paused[3] = false;
	collective_run(&collective, &rig);
	collective_expect_ok(&collective, &rig);
	collective_free(&collective, &rig);
	rig_destroy(&rig);
}
END_TEST

START_TEST(an_answer_that_came_during_an_absence_is_read_before_anybody_is_blamed)
{
	struct fanin_ring_watch *watch;
	struct collective collective;
	struct pollfd answer;
	struct hole hole;
	struct rig rig;

	hole_make(&hole);
	rig_create(&rig, 4, false);
	watch = &fanin_ring_of(rig.rings[0])->next_watch;
	/* Little enough for all of it to be sent: nothing moves on the connection. */
	collective_make(&collective, &rig, 1000, FANIN_WIRE_F32, FANIN_WIRE_SUM, false);
	for (uint16_t i = 0; i < 4; i++) {
		if (i != 1)
			collective_post(&collective, &rig, i);
	}
	rig.paused[1] = true;
	expect_waiting(&collective, &rig, 1, 2 * TIMEOUT_NS);
	ck_assert(watch->refuses);
	watch->address = hole.address;
	/* One more attempt without an answer, and a little more time, and the machine is blamed. */
	while (watch->fd < 0 || watch->unanswered < 2 ||
	       rig.now_ns - watch->answered_ns < TIMEOUT_NS / 2 - TIMEOUT_NS / 40) {
		rig_step(&rig);
		expect_only_late(&collective, &rig, 0, 1);
	}
	/* The kernel tries again after a second, and is refused. */
	hole_close(&hole);
	answer = (struct pollfd){ .fd = watch->fd, .events = POLLOUT };
	ck_assert_int_eq(poll(&answer, 1, 20000), 1);
	rig.now_ns += 30000 * 1000000ull;
	rig_step(&rig);
	expect_only_late(&collective, &rig, 0, 1);
	ck_assert_uint_eq(watch->unanswered, 0);
	rig.paused[1] = false;
	collective_post(&collective, &rig, 1);
	collective_run(&collective, &rig);
	collective_expect_ok(&collective, &rig);
	collective_free(&collective, &rig);
	rig_destroy(&rig);
}
END_TEST

/*
 * Fills the connection to the previous rank, which is paused and reads nothing, and leaves; returns
 * how long that took.
 */
static uint64_t
leave_unread(struct rig *rig, uint16_t rank)
{
	static const uint8_t bytes[65536];
	uint64_t started_ns;

	while (send(fanin_ring_of(rig->rings[rank])->prev, bytes, sizeof(bytes),
		    MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
		;
	started_ns = fanin_now_ns(NULL);
	fanin_ring_leave(rig->rings[rank]);
	return fanin_now_ns(NULL) - started_ns;
}

START_TEST(leaving_waits_for_a_late_rank_but_not_for_a_dead_host)
{
	uint64_t leave_ns[2];
	struct hole hole;

	hole_make(&hole);
	for (int dead = 0; dead < 2; dead++) {
		struct collective collective;
		struct rig rig;

		rig_listen(&rig, 4);
		rig.wait_limit_ns = dead != 0 ? 0 : 3 * TIMEOUT_NS;
		for (uint16_t i = 0; i < 4; i++)
			rig_create_rank(&rig, i, KEY);
		rig_wire(&rig);
		collective_make(&collective, &rig, LARGE, FANIN_WIRE_F32, FANIN_WIRE_SUM, false);
		collective_post_all(&collective, &rig);
		rig.paused[1] = true;
		expect_waiting(&collective, &rig, 1, 2 * TIMEOUT_NS);
		if (dead != 0) {
			machine_dies(&rig, 1);
			fanin_ring_of(rig.rings[0])->next_watch.address = hole.address;
		}
		collective_run(&collective, &rig);
		expect_blamed(&rig, &collective, 1,
			      dead != 0 ? "has not answered" : "has been late");
		leave_ns[dead] = leave_unread(&rig, 2);
		collective_free(&collective, &rig);
		rig_destroy(&rig);
	}
	ck_assert_uint_lt(leave_ns[1], leave_ns[0] / 2);
	hole_close(&hole);
}
END_TEST

START_TEST(finder_of_a_dead_machine_stays_until_the_next_rank_knows)
{
	uint64_t leave_ns[2];
	struct hole hole;

	hole_make(&hole);
	for (int heard = 0; heard < 2; heard++) {
		struct collective collective;
		struct rig rig;

		rig_create(&rig, 4, false);
		collective_make(&collective, &rig, LARGE, FANIN_WIRE_F32, FANIN_WIRE_SUM, false);
		collective_post_all(&collective, &rig);
		rig.paused[1] = true;
		expect_waiting(&collective, &rig, 1, 2 * TIMEOUT_NS);
		/* Rank 0, which is to tell rank 3, has no time to. */
		rig.paused[0] = true;
		machine_dies(&rig, 1);
		fanin_ring_of(rig.rings[2])->prev_watch.address = hole.address;
		while (collective.requests[2].status == FANIN_IN_PROGRESS)
			rig_step(&rig);
		ck_assert_uint_eq(fanin_ring_missing(rig.rings[2]), 1 << 1);
		if (heard != 0) {
			rig.paused[0] = false;
			fanin_ring_of(rig.rings[0])->next_watch.address = hole.address;
			while (collective.requests[3].status == FANIN_IN_PROGRESS)
				rig_step(&rig);
			ck_assert_uint_eq(fanin_ring_missing(rig.rings[3]), 1 << 1);
		}
		leave_ns[heard] = leave_unread(&rig, 2);
		collective_free(&collective, &rig);
		rig_destroy(&rig);
	}
	ck_assert_uint_lt(leave_ns[1], leave_ns[0] / 2);
	hole_close(&hole);
}
END_TEST

START_TEST(a_firewall_before_a_late_rank_does_not_make_it_dead)
{
	struct collective collective;
	struct hole hole;
	struct rig rig;

	hole_make(&hole);
	rig_create(&rig, 4, false);
	fanin_ring_of(rig.rings[0])->next_watch.address = hole.address;
	fanin_ring_of(rig.rings[2])->prev_watch.address = hole.address;
	collective_make(&collective, &rig, LARGE, FANIN_WIRE_F32, FANIN_WIRE_SUM, false);
	collective_post_all(&collective, &rig);
	rig.paused[1] = true;
	expect_waiting(&collective, &rig, 1, 3 * TIMEOUT_NS);
	rig.paused[1] = false;
	collective_run(&collective, &rig);
	collective_expect_ok(&collective, &rig);
	collective_free(&collective, &rig);
	rig_destroy(&rig);
	hole_close(&hole);
}
END_TEST

START_TEST(waiting_long_costs_few_calls)
{
	struct collective collective;
	uint64_t idle_ns;
	struct rig rig;

	rig_create(&rig, 4, false);
	collective_make(&collective, &rig, LARGE, FANIN_WIRE_F32, FANIN_WIRE_SUM, false);
	collective_post_all(&collective, &rig);
	rig.paused[3] = true;
	expect_waiting(&collective, &rig, 3, 3 * TIMEOUT_NS);
	for (int i = 0; i < 1000; i++)
		rig_step(&rig);
	/* Right after it has told the others again there is nothing to do for a while. */
	for (idle_ns = 0; idle_ns < TIMEOUT_NS / 10; idle_ns = fanin_ring_idle_ns(rig.rings[0]))
		rig_step(&rig);
	ck_assert_uint_le(idle_ns, TIMEOUT_NS / 2);
	collective_free(&collective, &rig);
	rig_destroy(&rig);
}
END_TEST

START_TEST(leaving_after_the_last_collective_harms_nobody)
{
	struct collective collective;
	struct rig rig;

	rig_create(&rig, 8, false);
	collective_make(&collective, &rig, LARGE / 40, FANIN_WIRE_F32, FANIN_WIRE_SUM, false);
	collective_post_all(&collective, &rig);
	for (unsigned int done = 0; done < 8;) {
		rig_step(&rig);
		for (uint16_t i = 0; i < 8; i++) {
			if (rig.rings[i] == NULL ||
			    collective.requests[i].status == FANIN_IN_PROGRESS)
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
	ck_assert_str_eq(
		text,
		"collective 0: rank 0 posted an allreduce of 100 f32 (sum, root 0), rank 1 an "
		"allreduce of 99 f32 (max, root 0)");
	collective_free(&collective, &rig);
	collective_free(&other, &rig);
	rig_destroy(&rig);
}
END_TEST

/* The failure may be found between two collectives. */
START_TEST(a_failed_ring_takes_no_more_requests)
{
	struct fanin_request request = { .dtype = FANIN_WIRE_U8, .op = FANIN_WIRE_SUM };
	struct fanin_comm comm = { .ops = &fanin_comm_single_ops,
				   .protocol = &fanin_protocol_ring,
				   .member.config.size = 2 };
	fanin_request *posted;
	struct fanin_ctx ctx = { 0 };
	struct rig rig;

	rig_create(&rig, 2, false);
	fanin_ring_destroy(rig.rings[1]);
	rig.rings[1] = NULL;
	for (int i = 0; i < 100; i++)
		rig_step(&rig);
	ck_assert_int_eq(fanin_ring_post(rig.rings[0], &request, 0), FANIN_ERR_TIMEOUT);
	ck_assert_uint_eq(fanin_ring_missing(rig.rings[0]), 2);
	comm.ctx = &ctx;
	comm.endpoint = rig.rings[0];
	ck_assert_int_eq(fanin_ibarrier(&comm, &posted), FANIN_ERR_TIMEOUT);
	ck_assert_str_eq(fanin_ctx_error(&ctx), fanin_ring_error(rig.rings[0])->text);
	ck_assert_uint_eq(fanin_ctx_missing(&ctx), 2);
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
	struct fanin_error problem;
	struct rig rig;

	rig_listen(&rig, 2);
	rig_create_rank(&rig, 0, KEY);
	rig_create_rank(&rig, 1, KEY + 1);
	for (uint64_t i = 0; i < TIMEOUT_NS / STEP_NS; i++)
		rig_step(&rig);
	for (uint16_t i = 0; i < 2; i++) {
		ck_assert(!fanin_ring_wired(fanin_ring_of(rig.rings[i])));
		ck_assert_uint_ge(fanin_ring_stats(rig.rings[i])->rejected, 1);
	}
	ck_assert(!fanin_ring_ready(rig.rings[0], &problem));
	ck_assert_msg(strstr(problem.text, "rank 1 at 127.0.0.1:") != NULL &&
			      strstr(problem.text, "has not been reached: ") != NULL,
		      "%s", problem.text);
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

START_TEST(missing_ranks_are_named_while_the_ring_is_wired)
{
	struct fanin_error problem;
	struct rig rig;

	rig_listen(&rig, 3);
	close(rig.listeners[1]);
	rig_create_rank(&rig, 0, KEY);
	for (int i = 0; i < 10; i++)
		rig_step(&rig);
	ck_assert(!fanin_ring_ready(rig.rings[0], &problem));
	ck_assert_msg(strstr(problem.text, "Connection refused") != NULL, "%s", problem.text);
	ck_assert_uint_eq(problem.missing.words[0], 1 << 1);
	rig_create_rank(&rig, 2, KEY);
	for (int i = 0; i < 10; i++)
		rig_step(&rig);
	ck_assert(!fanin_ring_ready(rig.rings[2], &problem));
	ck_assert_str_eq(problem.text, "rank 1 has not called");
	rig_destroy(&rig);
}
END_TEST

Suite *
suite_ring_failures(void)
{
	Suite *suite = suite_create("ring_failures");
	TCase *failures = tcase_create("failures");
	TCase *wiring = tcase_create("wiring");

	tcase_set_timeout(failures, 300);
	tcase_add_test(failures, a_killed_rank_is_named_by_all_at_once);
	tcase_add_test(failures, a_rank_that_hangs_is_waited_for);
	tcase_add_test(failures, a_rank_that_has_not_posted_is_waited_for);
	tcase_add_test(failures, a_rank_that_is_killed_while_it_is_late_is_named);
	tcase_add_test(failures, the_wait_for_a_late_rank_may_have_a_limit);
	tcase_add_test(failures, a_machine_that_does_not_answer_is_named_by_all);
	tcase_add_test(failures,
		       the_rank_before_a_machine_that_does_not_answer_is_the_first_to_say_so);
	tcase_add_loop_test(failures, a_rank_that_polls_rarely_learns_of_a_silent_machine, 0, 6);
	tcase_add_loop_test(failures, a_stopped_rank_blames_nobody_when_it_resumes, 0, 6);
	tcase_add_test(failures, a_rank_stopped_while_a_late_rank_posted_blames_nobody);
	tcase_add_test(failures,
		       an_answer_that_came_during_an_absence_is_read_before_anybody_is_blamed);
	tcase_add_test(failures, leaving_waits_for_a_late_rank_but_not_for_a_dead_host);
	tcase_add_test(failures, finder_of_a_dead_machine_stays_until_the_next_rank_knows);
	tcase_add_test(failures, a_firewall_before_a_late_rank_does_not_make_it_dead);
	tcase_add_test(failures, waiting_long_costs_few_calls);
	tcase_add_test(failures, leaving_after_the_last_collective_harms_nobody);
	tcase_add_test(failures, a_rank_that_has_left_is_named_by_who_still_wants_it);
	tcase_add_test(failures, leaving_in_the_middle_is_told_to_all);
	tcase_add_test(failures, different_collectives_are_told_apart);
	tcase_add_test(failures, a_failed_ring_takes_no_more_requests);
	suite_add_tcase(suite, failures);
	tcase_set_timeout(wiring, 300);
	tcase_add_test(wiring, strangers_are_closed_and_counted);
	tcase_add_test(wiring, another_key_does_not_get_in);
	tcase_add_test(wiring, many_silent_strangers_do_not_keep_a_neighbour_out);
	tcase_add_test(wiring, missing_ranks_are_named_while_the_ring_is_wired);
	suite_add_tcase(suite, wiring);
	return suite;
}
