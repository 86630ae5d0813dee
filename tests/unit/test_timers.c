/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Timers of handlers, on a clock that the test moves: they expire in the first round whose clock
 * has reached them, once each, and only in the run in which they were armed.
 */
#include <string.h>

#include "pipeline/timers.h"
#include "tests/unit/ring_switch.h"
#include "tests/unit/suites.h"

#define TIMEOUT_NS UINT64_C(5000)
#define SLOTS 64 /* and timers that may stay in a FIFO */

static struct ring_switch sw;
static uint64_t clock_ns;

/* The calls of the handler below. */
static struct {
	uint32_t blocks[4096];
	uint32_t indexes[4096];
	uint32_t jobs[4096];
	uint32_t epochs[4096];
	unsigned int n;
	unsigned int busy; /* number of calls that find another worker in the way */
	bool rearms;
	uint64_t wait_until_ns; /* 0: contributions arm timers of one timeout */
	uint64_t at_ns[4096];
} told;

static uint64_t longest_ns;

static uint64_t
clock_read(void *user)
{
	return *(uint64_t *)user;
}

static uint64_t
timing_timeout_ns(const struct fanin_job_params *job)
{
	return job->parameters[0];
}

static uint64_t
timing_longest_wait_ns(const struct fanin_job_params *job)
{
	(void)job;
	return longest_ns;
}

static void
wait_on(struct fanin_handler_ctx *ctx, uint32_t index, uint32_t block)
{
	if (ctx->now_ns < told.wait_until_ns)
		ck_assert(fanin_timer_arm_within(ctx, told.wait_until_ns - ctx->now_ns, index,
						 block));
}

/* The handler's parameter is the number of timers that each contribution arms. */
static enum fanin_verdict
timing_contribution(struct fanin_handler_ctx *ctx, void *slot, uint32_t index,
		    struct fanin_packet *packet, enum fanin_reason *reason)
{
	(void)slot;
	(void)reason;
	for (uint64_t i = 0; i < ctx->job->parameters[1]; i++)
		ck_assert(fanin_timer_arm(ctx, index, packet->headers->fanin.block));
	wait_on(ctx, index, packet->headers->fanin.block);
	return FANIN_VERDICT_FREE;
}

static bool
timing_expired(struct fanin_handler_ctx *ctx, void *slot, uint32_t index, uint32_t block)
{
	(void)slot;
	ck_assert_uint_eq(ctx->now_ns, clock_ns);
	if (told.busy != 0) {
		told.busy--;
		return false;
	}
	ck_assert_uint_lt(told.n, RTE_DIM(told.blocks));
	told.blocks[told.n] = block;
	told.at_ns[told.n] = ctx->now_ns;
	told.jobs[told.n] = ctx->job->id;
	told.epochs[told.n] = ctx->epoch;
	told.indexes[told.n++] = index;
	if (told.rearms)
		ck_assert(fanin_timer_arm(ctx, index, block));
	wait_on(ctx, index, block);
	return true;
}

static void
timing_release(struct fanin_handler_ctx *ctx, void *slot)
{
	(void)ctx;
	(void)slot;
}

static const struct fanin_parameter timing_parameters[] = {
	{ "timeout", "ns", 1, 1000000000, TIMEOUT_NS },
	{ "arms", "timers that a contribution arms", 0, FANIN_MAX_ARMS_PER_CALL, 1 },
	{ 0 },
};

static struct fanin_handler timing = {
	.name = "timing",
	.description = "arms timers",
	.slot_mbufs = { .fixed = 1 },
	.parameters = timing_parameters,
	.slot_bytes = 8,
	.contribution = timing_contribution,
	.timeout_ns = timing_timeout_ns,
	.longest_wait_ns = timing_longest_wait_ns,
	.expired = timing_expired,
	.slot_release = timing_release,
};

static void
setup(void)
{
	/*
	 * Registered here, not before main: other suites of this program use all registered
	 * handlers that reduce.
	 */
	if (fanin_handler_find(timing.name) == NULL)
		fanin_handler_register(&timing);
	ring_switch_eal();
	ring_switch_open(&sw, 4, 1, NULL);
	clock_ns = UINT64_C(1000000000000);
	sw.pipeline->clock = clock_read;
	sw.pipeline->clock_user = &clock_ns;
	memset(&told, 0, sizeof(told));
	longest_ns = 0;
}

static void
teardown(void)
{
	ring_switch_close(&sw);
}

/* Creates a job with a run. Returns the run's epoch. */
static uint32_t
run_job(struct job **job, uint64_t timeout_ns, uint64_t arms)
{
	struct job_spec spec = {
		.key = RING_SWITCH_KEY,
		.handler = "timing",
		.n_members = 2,
		.slots = 32,
		.n_parameters = 2,
		.parameters = { { "timeout", timeout_ns }, { "arms", arms } },
	};
	char error[PIPELINE_ERROR_LEN] = "";
	const char *code;

	for (uint16_t i = 0; i < 2; i++) {
		spec.members[i].port = i;
		spec.members[i].ip_be = host_ip_be(i);
	}
	ck_assert_msg(job_create(sw.pipeline, &spec, job, &code, error) == 0, "%s", error);
	return host_join_all(&sw, *job, 2, 1);
}

static void
leave(const struct job *job, unsigned int host, uint32_t epoch)
{
	uint8_t frame[256];
	size_t len = host_packet(&sw, host, FANIN_TYPE_LEAVE, job->params.id, epoch, NULL, 0,
				 (struct fanin_headers *)frame);

	ring_switch_put(&sw, (uint16_t)host, frame, len);
	ck_assert_uint_ne(ring_switch_take(&sw, (uint16_t)host, frame), 0);
}

/* The one thread here is also the worker's: it must not wait for itself. */
static void
destroy(const struct job *job)
{
	rte_rcu_qsbr_thread_offline(sw.pipeline->qsbr, 0);
	ck_assert_int_eq(job_destroy(sw.pipeline, job->params.id), 0);
	rte_rcu_qsbr_thread_online(sw.pipeline->qsbr, 0);
}

/* Runs a round at a time of the clock. */
static void
round_at(uint64_t ns)
{
	clock_ns = ns;
	ring_switch_rounds(&sw, 1);
}

START_TEST(timers_expire_in_the_first_round_that_reaches_them)
{
	struct job *job;
	const uint32_t epoch = run_job(&job, TIMEOUT_NS, 1);
	const uint64_t start_ns = clock_ns;

	host_contribute(&sw, job, 0, epoch, 3, false);
	clock_ns = start_ns + 10;
	host_contribute(&sw, job, 0, epoch, 40, false);
	round_at(start_ns + TIMEOUT_NS - 1);
	ck_assert_uint_eq(told.n, 0);
	round_at(start_ns + TIMEOUT_NS);
	ck_assert_uint_eq(told.n, 1);
	ck_assert_uint_eq(told.blocks[0], 3);
	ck_assert_uint_eq(told.indexes[0], 3);
	round_at(start_ns + TIMEOUT_NS + 9);
	ck_assert_uint_eq(told.n, 1);
	round_at(start_ns + TIMEOUT_NS + 10);
	ck_assert_uint_eq(told.n, 2);
	ck_assert_uint_eq(told.blocks[1], 40);
	ck_assert_uint_eq(told.indexes[1], 40 % 32);
	round_at(start_ns + 100 * TIMEOUT_NS);
	ck_assert_uint_eq(told.n, 2);
	ck_assert_uint_eq(sw.pipeline->workers[0]->timers_due_ns, UINT64_MAX);
	ck_assert_uint_eq(sw.pipeline->workers[0]->counters.timers, 2);
	ck_assert_uint_eq(sw.pipeline->workers[0]->counters.timers_early, 0);
}
END_TEST

START_TEST(jobs_with_different_timeouts_do_not_wait_for_each_other)
{
	struct job *slow, *fast;
	const uint32_t slow_epoch = run_job(&slow, 100 * TIMEOUT_NS, 1);
	const uint32_t fast_epoch = run_job(&fast, TIMEOUT_NS, 1);
	const uint64_t start_ns = clock_ns;

	ck_assert_int_ne(slow->timeout, fast->timeout);
	host_contribute(&sw, slow, 0, slow_epoch, 1, false);
	host_contribute(&sw, fast, 0, fast_epoch, 2, false);
	round_at(start_ns + TIMEOUT_NS);
	ck_assert_uint_eq(told.n, 1);
	ck_assert_uint_eq(told.blocks[0], 2);
	ck_assert_uint_eq(sw.pipeline->workers[0]->timers_due_ns, start_ns + 100 * TIMEOUT_NS);
	round_at(start_ns + 100 * TIMEOUT_NS);
	ck_assert_uint_eq(told.n, 2);
	ck_assert_uint_eq(told.blocks[1], 1);
}
END_TEST

START_TEST(a_busy_slot_is_given_another_timeout)
{
	struct job *job;
	const uint32_t epoch = run_job(&job, TIMEOUT_NS, 1);
	const uint64_t start_ns = clock_ns;

	host_contribute(&sw, job, 0, epoch, 3, false);
	told.busy = 1;
	round_at(start_ns + TIMEOUT_NS);
	ck_assert_uint_eq(told.n, 0);
	round_at(start_ns + 2 * TIMEOUT_NS - 1);
	ck_assert_uint_eq(told.n, 0);
	round_at(start_ns + 2 * TIMEOUT_NS);
	ck_assert_uint_eq(told.n, 1);
	ck_assert_uint_eq(told.blocks[0], 3);
}
END_TEST

START_TEST(timers_that_are_too_many_expire_in_order_before_their_time)
{
	struct job *job;
	const uint32_t epoch = run_job(&job, TIMEOUT_NS, 2);
	const struct counters *counters = &sw.pipeline->workers[0]->counters;

	ck_assert_uint_eq(sw.pipeline->timers_max, SLOTS);
	for (uint32_t block = 0; block < SLOTS; block++)
		host_contribute(&sw, job, 0, epoch, block % 32, false);
	/* Twice as many timers as there is room for were armed: the first half expires. */
	ck_assert_uint_eq(told.n, SLOTS);
	ck_assert_uint_eq(counters->timers_early, SLOTS);
	for (unsigned int i = 0; i < SLOTS; i++)
		ck_assert_uint_eq(told.blocks[i], i / 2 % 32);
	round_at(clock_ns + TIMEOUT_NS);
	ck_assert_uint_eq(told.n, 2 * SLOTS);
	ck_assert_uint_eq(counters->timers, 2 * SLOTS);
	ck_assert_uint_eq(counters->timers_early, SLOTS);
}
END_TEST

START_TEST(timers_that_are_armed_anew_while_there_are_too_many_end_no_round_late)
{
	struct job *job;
	const uint32_t epoch = run_job(&job, TIMEOUT_NS, 2);
	unsigned int before;

	told.rearms = true;
	for (uint32_t block = 0; block < SLOTS / 2; block++)
		host_contribute(&sw, job, 0, epoch, block % 32, false);
	ck_assert_uint_eq(told.n, 0);
	host_contribute(&sw, job, 0, epoch, 0, false);
	before = told.n;
	/*
	 * Each timer that expires early and is armed again makes another one expire early, but in a
	 * round no more than there were.
	 */
	ring_switch_rounds(&sw, 10);
	ck_assert_uint_le(told.n - before, 10 * 4);
	told.rearms = false;
	round_at(clock_ns + TIMEOUT_NS);
	round_at(clock_ns + TIMEOUT_NS);
	ck_assert_uint_eq(sw.pipeline->workers[0]->timers_due_ns, UINT64_MAX);
}
END_TEST

START_TEST(a_round_of_full_bursts_at_all_ports_loses_no_timer)
{
	struct job_spec spec = {
		.key = RING_SWITCH_KEY,
		.handler = "timing",
		.n_members = 4,
		.slots = 32,
		.n_parameters = 1,
		.parameters = { { "arms", 2 } },
	};
	const struct counters *counters = &sw.pipeline->workers[0]->counters;
	const unsigned int armed = 4 * FANIN_BURST * 2;
	char error[PIPELINE_ERROR_LEN] = "";
	uint8_t frame[4096];
	const char *code;
	struct job *job;
	uint32_t epoch;

	for (uint16_t i = 0; i < 4; i++) {
		spec.members[i].port = i;
		spec.members[i].ip_be = host_ip_be(i);
	}
	ck_assert_msg(job_create(sw.pipeline, &spec, &job, &code, error) == 0, "%s", error);
	epoch = host_join_all(&sw, job, 4, 1);
	/* Twice: the timers that are left of the first time must expire early. */
	for (unsigned int round = 1; round <= 2; round++) {
		for (uint16_t port = 0; port < 4; port++) {
			for (uint32_t block = 0; block < FANIN_BURST; block++)
				ring_switch_enqueue(&sw, port, frame,
						    host_contribution(&sw, job, port, epoch, block,
								      false, frame));
		}
		ring_switch_rounds(&sw, 1);
		ck_assert_uint_eq(told.n, round * armed - SLOTS);
	}
	ck_assert_uint_eq(counters->timers_early, 2 * armed - SLOTS);
	round_at(clock_ns + TIMEOUT_NS);
	ck_assert_uint_eq(told.n, 2 * armed);
	ck_assert_uint_eq(counters->timers, 2 * armed);
	ck_assert_uint_eq(counters->timers_early, 2 * armed - SLOTS);
}
END_TEST

START_TEST(timers_of_a_run_that_is_over_expire_for_nobody)
{
	struct job *job;
	uint32_t epoch = run_job(&job, TIMEOUT_NS, 1);
	const uint64_t start_ns = clock_ns;
	const uint32_t id = job->params.id;

	host_contribute(&sw, job, 0, epoch, 3, false);
	leave(job, 0, epoch);
	leave(job, 1, epoch);
	epoch = host_join_all(&sw, job, 2, 2);
	round_at(start_ns + TIMEOUT_NS);
	ck_assert_uint_eq(told.n, 0);
	ck_assert_uint_eq(sw.pipeline->workers[0]->counters.timers, 1);
	/* Nor does it expire for another job with the same number. */
	host_contribute(&sw, job, 0, epoch, 3, false);
	destroy(job);
	ck_assert_ptr_null(sw.pipeline->workers[0]->timers[0]);
	run_job(&job, TIMEOUT_NS, 1);
	ck_assert_uint_eq(job->params.id, id);
	round_at(start_ns + 10 * TIMEOUT_NS);
	ck_assert_uint_eq(told.n, 0);
}
END_TEST

START_TEST(jobs_of_one_timeout_share_their_timers)
{
	struct job *first, *second;
	uint32_t epochs[2];
	const uint64_t start_ns = clock_ns;

	epochs[0] = run_job(&first, TIMEOUT_NS, 1);
	epochs[1] = run_job(&second, TIMEOUT_NS, 1);
	ck_assert_int_eq(first->timeout, second->timeout);
	ck_assert_uint_eq(sw.pipeline->timeouts[first->timeout].n_jobs, 2);
	host_contribute(&sw, first, 0, epochs[0], 1, false);
	host_contribute(&sw, second, 0, epochs[1], 2, false);
	destroy(first);
	round_at(start_ns + TIMEOUT_NS);
	ck_assert_uint_eq(told.n, 1);
	ck_assert_uint_eq(told.blocks[0], 2);
	destroy(second);
	ck_assert_uint_eq(sw.pipeline->timeouts[0].n_jobs, 0);
}
END_TEST

/*
 * All expire in one round. _i: in odd cases the second job's run is over by then; half of it and 1:
 * number of successive timers of a job.
 */
START_TEST(timers_of_jobs_that_take_turns_are_each_jobs_own)
{
	const uint64_t start_ns = clock_ns;
	const unsigned int row = (unsigned int)_i / 2 + 1;
	const bool ends = _i % 2 != 0;
	const unsigned int n = 24;
	struct job *jobs[2];
	uint32_t epochs[2];
	unsigned int k = 0;

	for (unsigned int i = 0; i < 2; i++)
		epochs[i] = run_job(&jobs[i], TIMEOUT_NS, 1);
	for (unsigned int i = 0; i < n; i++)
		host_contribute(&sw, jobs[i / row % 2], 0, epochs[i / row % 2], i, false);
	for (unsigned int host = 0; ends && host < 2; host++)
		leave(jobs[1], host, epochs[1]);
	round_at(start_ns + TIMEOUT_NS);
	ck_assert_uint_eq(sw.pipeline->workers[0]->counters.timers, n);
	for (unsigned int i = 0; i < n; i++) {
		const unsigned int of = i / row % 2;

		if (ends && of == 1)
			continue;
		ck_assert_uint_lt(k, told.n);
		ck_assert_uint_eq(told.blocks[k], i);
		ck_assert_uint_eq(told.jobs[k], jobs[of]->params.id);
		ck_assert_uint_eq(told.epochs[k++], epochs[of]);
	}
	ck_assert_uint_eq(told.n, ends ? n / 2 : n);
}
END_TEST

START_TEST(more_timeouts_than_there_is_room_for_are_refused)
{
	int timeouts[PIPELINE_TIMEOUTS];

	for (unsigned int i = 0; i < PIPELINE_TIMEOUTS; i++) {
		timeouts[i] = timers_use(sw.pipeline, 1000 + i, -1);
		ck_assert_int_ge(timeouts[i], 0);
		ck_assert_int_eq(timers_use(sw.pipeline, 1000 + i, -1), timeouts[i]);
	}
	ck_assert_int_eq(timers_use(sw.pipeline, 7, -1), -ENOSPC);
	rte_rcu_qsbr_thread_offline(sw.pipeline->qsbr, 0);
	timers_unuse(sw.pipeline, timeouts[3]);
	ck_assert_int_eq(timers_use(sw.pipeline, 7, -1), -ENOSPC);
	timers_unuse(sw.pipeline, timeouts[3]);
	rte_rcu_qsbr_thread_online(sw.pipeline->qsbr, 0);
	ck_assert_int_eq(timers_use(sw.pipeline, 7, -1), timeouts[3]);
}
END_TEST

START_TEST(a_wait_is_divided_into_timers_as_long_as_they_fit)
{
	struct job *job, *other;
	uint32_t epoch;
	uint64_t start_ns;

	longest_ns = 70 * TIMEOUT_NS;
	epoch = run_job(&job, TIMEOUT_NS, 0);
	ck_assert_uint_eq(job->n_longer, 3);
	longest_ns = 0;
	run_job(&other, 4 * TIMEOUT_NS, 0);
	ck_assert_uint_eq(other->n_longer, 0);
	ck_assert_int_eq(other->timeout, job->longer[0]);
	start_ns = clock_ns;
	/* 16 + 4 + 1 + 1 + 1 */
	told.wait_until_ns = start_ns + 23 * TIMEOUT_NS;
	host_contribute(&sw, job, 0, epoch, 1, false);
	for (unsigned int i = 0; i <= 30; i++)
		round_at(start_ns + i * TIMEOUT_NS);
	ck_assert_uint_eq(told.n, 5);
	ck_assert_uint_eq(told.at_ns[0], start_ns + 16 * TIMEOUT_NS);
	ck_assert_uint_eq(told.at_ns[1], start_ns + 20 * TIMEOUT_NS);
	ck_assert_uint_eq(told.at_ns[4], start_ns + 23 * TIMEOUT_NS);
	/* Timers of a job that is gone do nothing, and those of another job stay. */
	destroy(other);
	leave(job, 0, epoch);
	leave(job, 1, epoch);
	destroy(job);
	for (unsigned int i = 0; i < PIPELINE_TIMERS; i++)
		ck_assert_ptr_null(sw.pipeline->workers[0]->timers[i]);
}
END_TEST

START_TEST(longer_timers_take_no_jobs_place)
{
	struct job *job;
	uint32_t epoch;

	for (unsigned int i = 0; i < PIPELINE_TIMEOUTS - 1; i++)
		ck_assert_int_ge(timers_use(sw.pipeline, 1000 + i, -1), 0);
	for (unsigned int i = 1; i < PIPELINE_TIMEOUTS; i++)
		ck_assert_int_ge(timers_use(sw.pipeline, 2000 + i, 0), PIPELINE_TIMEOUTS);
	longest_ns = 70 * TIMEOUT_NS;
	epoch = run_job(&job, TIMEOUT_NS, 0);
	ck_assert_uint_eq(job->n_longer, 1);
	/* The same with more timers. */
	told.wait_until_ns = clock_ns + 23 * TIMEOUT_NS;
	host_contribute(&sw, job, 0, epoch, 1, false);
	for (unsigned int i = 0; i <= 30; i++)
		round_at(clock_ns + TIMEOUT_NS);
	ck_assert_uint_eq(told.n, 5 + 3);
}
END_TEST

Suite *
suite_timers(void)
{
	Suite *suite = suite_create("timers");
	TCase *tcase = tcase_create("timers");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, timers_expire_in_the_first_round_that_reaches_them);
	tcase_add_test(tcase, jobs_with_different_timeouts_do_not_wait_for_each_other);
	tcase_add_test(tcase, a_busy_slot_is_given_another_timeout);
	tcase_add_test(tcase, timers_that_are_too_many_expire_in_order_before_their_time);
	tcase_add_test(tcase,
		       timers_that_are_armed_anew_while_there_are_too_many_end_no_round_late);
	tcase_add_test(tcase, a_round_of_full_bursts_at_all_ports_loses_no_timer);
	tcase_add_test(tcase, timers_of_a_run_that_is_over_expire_for_nobody);
	tcase_add_test(tcase, jobs_of_one_timeout_share_their_timers);
	tcase_add_loop_test(tcase, timers_of_jobs_that_take_turns_are_each_jobs_own, 0, 6);
	tcase_add_test(tcase, a_wait_is_divided_into_timers_as_long_as_they_fit);
	tcase_add_test(tcase, longer_timers_take_no_jobs_place);
	tcase_add_test(tcase, more_timeouts_than_there_is_room_for_are_refused);
	suite_add_tcase(suite, tcase);
	return suite;
}
