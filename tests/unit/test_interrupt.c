/* SPDX-License-Identifier: BSD-3-Clause */
/* The interrupt callback: fanin_ctx_interrupt makes a call that waits call it at once. */
#include <pthread.h>
#include <unistd.h>

#include <check.h>

#include "fanin/fanin.h"
#include "hostlib/src/base/clock.h"
#include "tests/unit/suites.h"

/* Time between two calls of the callback that come by themselves. */
#define BY_ITSELF_NS (100 * 1000000ull)
#define TRIES 10

struct waiter {
	fanin_ctx *ctx;
	uint64_t asked_ns;    /* atomic; 0: not yet */
	uint64_t ends;        /* atomic: the callback ends the wait once it is asked to */
	unsigned int n_calls; /* of the callback */
};

static bool
interrupt(void *arg)
{
	struct waiter *waiter = arg;

	waiter->n_calls++;
	return __atomic_load_n(&waiter->ends, __ATOMIC_ACQUIRE) != 0;
}

/* Ends the wait of the other thread, which has gone to sleep by then. */
static void *
ask(void *arg)
{
	struct waiter *waiter = arg;

	usleep(5000);
	__atomic_store_n(&waiter->ends, 1, __ATOMIC_RELEASE);
	__atomic_store_n(&waiter->asked_ns, fanin_now_ns(NULL), __ATOMIC_RELEASE);
	fanin_ctx_interrupt(waiter->ctx);
	return NULL;
}

static void *
ask_late(void *arg)
{
	usleep(300000);
	return ask(arg);
}

static uint64_t
sleeps_of(const fanin_comm *comm)
{
	struct fanin_report report = { .sz = sizeof(report) };

	ck_assert_int_eq(fanin_comm_report(comm, &report), FANIN_OK);
	return report.sleeps;
}

static fanin_comm *
join(fanin_ctx *ctx, uint16_t rank)
{
	static const uint16_t one_host[2];
	const struct fanin_join_opts options = { .sz = sizeof(options),
						 .job_name = "interrupt-test",
						 .rank = rank,
						 .size = 2,
						 .fixed_rank = true,
						 .hosts = one_host };
	fanin_comm *comm;

	ck_assert_msg(fanin_join(ctx, &options, &comm) == FANIN_OK, "%s", fanin_ctx_error(ctx));
	return comm;
}

/* The other rank, whose part of the collective comes once the first has been interrupted. */
static void *
other_run(void *arg)
{
	const int *may_come = arg;
	uint32_t value = 1;
	fanin_ctx *ctx;
	fanin_comm *comm;

	ck_assert_int_eq(fanin_init(NULL, &ctx), FANIN_OK);
	comm = join(ctx, 1);
	while (__atomic_load_n(may_come, __ATOMIC_ACQUIRE) == 0)
		usleep(1000);
	ck_assert_int_eq(fanin_allreduce(&value, &value, 1, FANIN_U32, FANIN_SUM, comm), FANIN_OK);
	ck_assert_uint_eq(value, 2);
	fanin_finalize(ctx);
	return NULL;
}

START_TEST(a_wait_is_interrupted_at_once_and_goes_on)
{
	struct waiter waiter = { 0 };
	const struct fanin_init_opts options = { .sz = sizeof(options),
						 .interrupt = interrupt,
						 .interrupt_arg = &waiter };
	uint64_t fastest_ns = UINT64_MAX, before;
	fanin_request *request;
	pthread_t other, asker;
	uint32_t value = 1;
	int may_come = 0;
	fanin_comm *comm;

	ck_assert_int_eq(fanin_init(&options, &waiter.ctx), FANIN_OK);
	ck_assert_int_eq(pthread_create(&other, NULL, other_run, &may_come), 0);
	comm = join(waiter.ctx, 0);
	ck_assert_int_eq(fanin_iallreduce(&value, &value, 1, FANIN_U32, FANIN_SUM, comm, &request),
			 FANIN_OK);
	for (int i = 0; i < TRIES; i++) {
		uint64_t took_ns;

		__atomic_store_n(&waiter.ends, 0, __ATOMIC_RELEASE);
		ck_assert_int_eq(pthread_create(&asker, NULL, ask, &waiter), 0);
		ck_assert_int_eq(fanin_wait(&request), FANIN_ERR_INTERRUPTED);
		ck_assert_ptr_nonnull(request);
		took_ns = fanin_now_ns(NULL) - waiter.asked_ns;
		ck_assert_int_eq(pthread_join(asker, NULL), 0);
		if (took_ns < fastest_ns)
			fastest_ns = took_ns;
	}
	/* Each wait begins after a call: the next one would come by itself when it was due again.
	 */
	ck_assert_uint_lt(fastest_ns, BY_ITSELF_NS / 2);
	/* Whatever came before, a wait sleeps: it is not woken again and again. */
	before = sleeps_of(comm);
	__atomic_store_n(&waiter.ends, 0, __ATOMIC_RELEASE);
	ck_assert_int_eq(pthread_create(&asker, NULL, ask_late, &waiter), 0);
	ck_assert_int_eq(fanin_wait(&request), FANIN_ERR_INTERRUPTED);
	ck_assert_int_eq(pthread_join(asker, NULL), 0);
	ck_assert_uint_lt(sleeps_of(comm) - before, 100);
	/* Asked before, the next wait calls it first of all. */
	waiter.n_calls = 0;
	fanin_ctx_interrupt(waiter.ctx);
	ck_assert_int_eq(fanin_wait(&request), FANIN_ERR_INTERRUPTED);
	ck_assert_uint_eq(waiter.n_calls, 1);
	/* A callback that does not end the wait is called once for each time that it was asked. */
	__atomic_store_n(&waiter.ends, 0, __ATOMIC_RELEASE);
	__atomic_store_n(&may_come, 1, __ATOMIC_RELEASE);
	fanin_ctx_interrupt(waiter.ctx);
	ck_assert_int_eq(fanin_wait(&request), FANIN_OK);
	ck_assert_uint_ge(waiter.n_calls, 2);
	ck_assert_uint_eq(value, 2);
	ck_assert_int_eq(pthread_join(other, NULL), 0);
	fanin_finalize(waiter.ctx);
}
END_TEST

START_TEST(nothing_happens_without_a_callback)
{
	fanin_ctx *ctx;

	fanin_ctx_interrupt(NULL);
	ck_assert_int_eq(fanin_init(NULL, &ctx), FANIN_OK);
	fanin_ctx_interrupt(ctx);
	fanin_finalize(ctx);
}
END_TEST

Suite *
suite_interrupt(void)
{
	Suite *suite = suite_create("interrupt");
	TCase *tcase = tcase_create("interrupt");

	tcase_add_test(tcase, a_wait_is_interrupted_at_once_and_goes_on);
	tcase_add_test(tcase, nothing_happens_without_a_callback);
	suite_add_tcase(suite, tcase);
	return suite;
}
