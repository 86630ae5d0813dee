/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Progress in the background (hostlib/src/comm/progress.h): two ranks of a ring in one process. One
 * of them computes while its library's thread does its part, and calls everything that may be
 * called meanwhile. Runs under the thread sanitizer, too (./dev test --all).
 */
#include <arpa/inet.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <check.h>

#include "hostlib/src/comm/comm.h"
#include "protocols/ring/host/ring.h"
#include "tests/unit/suites.h"

#define KEY 0x1234567890abcdefull
#define LARGE 300000 /* elements: more than sockets hold */
#define ROUNDS 200
/* Limit for events that must happen. */
#define LIMIT_NS (60 * 1000000000ull)

/* ------------------------------------------------------------------ world */

/* A rank: a context with one communicator. */
struct rank {
	fanin_ctx *ctx;
	struct fanin_comm *comm;
	struct fanin_endpoint *ring;
	uint32_t *vector;
};

static struct rank ranks[2];
static struct fanin_log silent;
static struct fanin_protocol dutiful;

static void
ring_make(struct rank *rank, uint16_t number, int listener, const struct sockaddr_in *addresses)
{
	const struct fanin_protocol_config config = {
		.keys.ring = KEY,
		.timeout_ns = 5000 * 1000000ull,
		.rank = number,
		.size = 2,
		.listener = listener,
		.peers = addresses,
		.log = &silent,
	};

	struct fanin_error error = { 0 };

	ck_assert_int_eq(fanin_ring_open(&fanin_protocol_ring, &config, &rank->ring, &error),
			 FANIN_OK);
}

static void
rank_open(struct rank *rank, uint16_t number, bool background,
	  const struct fanin_protocol *protocol)
{
	const struct fanin_init_opts options = { .sz = sizeof(options),
						 .background_progress = background };
	struct fanin_error error;

	ck_assert_int_eq(fanin_init(&options, &rank->ctx), FANIN_OK);
	rank->comm = calloc(1, sizeof(*rank->comm));
	rank->vector = calloc(LARGE, sizeof(*rank->vector));
	ck_assert(rank->comm != NULL && rank->vector != NULL);
	rank->comm->ops = &fanin_comm_single_ops;
	rank->comm->ctx = rank->ctx;
	rank->comm->protocol = protocol;
	rank->comm->endpoint = rank->ring;
	rank->comm->member.config.rank = number;
	rank->comm->member.config.size = 2;
	rank->comm->texts = calloc(1, sizeof(*rank->comm->texts));
	ck_assert_ptr_nonnull(rank->comm->texts);
	ck_assert_int_eq(fanin_ctx_attach(rank->ctx, rank->comm, &error), FANIN_OK);
}

/* background: for rank 1; rank 0 has no thread. */
static void
world_open(bool background, const struct fanin_protocol *protocol)
{
	struct sockaddr_in addresses[2];
	struct fanin_error error;
	int listeners[2];

	unsetenv("FANIN_BACKGROUND_PROGRESS");
	for (int i = 0; i < 2; i++) {
		listeners[i] = fanin_ring_listen(htonl(INADDR_LOOPBACK), &addresses[i], &error);
		ck_assert_int_ge(listeners[i], 0);
	}
	for (uint16_t i = 0; i < 2; i++)
		ring_make(&ranks[i], i, listeners[i], addresses);
	while (!fanin_ring_ready(ranks[0].ring, &error) ||
	       !fanin_ring_ready(ranks[1].ring, &error)) {
		fanin_ring_poll(ranks[0].ring);
		fanin_ring_poll(ranks[1].ring);
	}
	rank_open(&ranks[0], 0, false, &fanin_protocol_ring);
	rank_open(&ranks[1], 1, background, protocol);
}

static void
world_close(void)
{
	for (int i = 0; i < 2; i++) {
		fanin_finalize(ranks[i].ctx);
		free(ranks[i].vector);
	}
}

static void
vectors_fill(uint32_t seed)
{
	for (uint32_t r = 0; r < 2; r++) {
		for (uint32_t i = 0; i < LARGE; i++)
			ranks[r].vector[i] = (r + 1) * (seed + i);
	}
}

static void
vector_expect(const struct rank *rank, uint32_t seed)
{
	for (uint32_t i = 0; i < LARGE; i++)
		ck_assert_uint_eq(rank->vector[i], 3 * (seed + i));
}

/* ---------------------------------------------------------- who computes */

/* Rank 0's half: a blocking allreduce, and a flag that is set when it is done. */
struct caller {
	pthread_t thread;
	int status;
	bool done; /* atomic */
};

static void *
caller_run(void *arg)
{
	struct caller *caller = arg;

	caller->status = fanin_allreduce(ranks[0].vector, ranks[0].vector, LARGE, FANIN_U32,
					 FANIN_SUM, ranks[0].comm);
	__atomic_store_n(&caller->done, true, __ATOMIC_RELEASE);
	return NULL;
}

/*
 * Calls no function of the library until the other rank is done. Returns false if it is not done
 * within the limit.
 */
static bool
compute_until_done(const struct caller *caller, uint64_t limit_ns)
{
	const struct timespec moment = { .tv_nsec = 1000000 };
	const uint64_t began_ns = fanin_now_ns(NULL);

	while (!__atomic_load_n(&caller->done, __ATOMIC_ACQUIRE)) {
		if (fanin_now_ns(NULL) - began_ns >= limit_ns)
			return false;
		nanosleep(&moment, NULL);
	}
	return true;
}

static void
expect_done_while_computing(bool background, const struct fanin_protocol *protocol)
{
	struct caller caller = { 0 };
	fanin_request *request;
	uint64_t total_bytes;

	world_open(background, protocol);
	ck_assert_ptr_nonnull(ranks[1].ctx->progress);
	ck_assert_ptr_null(ranks[0].ctx->progress);
	vectors_fill(7);
	ck_assert_int_eq(fanin_iallreduce(ranks[1].vector, ranks[1].vector, LARGE, FANIN_U32,
					  FANIN_SUM, ranks[1].comm, &request),
			 FANIN_OK);
	ck_assert_int_eq(pthread_create(&caller.thread, NULL, caller_run, &caller), 0);
	ck_assert(compute_until_done(&caller, LIMIT_NS));
	pthread_join(caller.thread, NULL);
	ck_assert_int_eq(caller.status, FANIN_OK);
	vector_expect(&ranks[0], 7);
	/* This call makes no progress. */
	while (fanin_request_progress(request, &total_bytes) != total_bytes)
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	ck_assert_int_eq(fanin_wait(&request), FANIN_OK);
	vector_expect(&ranks[1], 7);
	world_close();
}

START_TEST(a_rank_that_computes_does_its_part_in_the_background)
{
	expect_done_while_computing(true, &fanin_protocol_ring);
}
END_TEST

START_TEST(a_protocol_with_duties_has_a_thread_without_being_asked)
{
	dutiful = fanin_protocol_ring;
	dutiful.has_duties = true;
	expect_done_while_computing(false, &dutiful);
}
END_TEST

/* Shows that the tests above would fail without the thread. */
START_TEST(without_a_thread_who_computes_is_waited_for)
{
	struct caller caller = { 0 };
	fanin_request *request;

	world_open(false, &fanin_protocol_ring);
	ck_assert_ptr_null(ranks[1].ctx->progress);
	vectors_fill(9);
	ck_assert_int_eq(fanin_iallreduce(ranks[1].vector, ranks[1].vector, LARGE, FANIN_U32,
					  FANIN_SUM, ranks[1].comm, &request),
			 FANIN_OK);
	ck_assert_int_eq(pthread_create(&caller.thread, NULL, caller_run, &caller), 0);
	ck_assert(!compute_until_done(&caller, 300 * 1000000ull));
	ck_assert_int_eq(fanin_wait(&request), FANIN_OK);
	pthread_join(caller.thread, NULL);
	ck_assert_int_eq(caller.status, FANIN_OK);
	vector_expect(&ranks[0], 9);
	vector_expect(&ranks[1], 9);
	world_close();
}
END_TEST

/* -------------------------------------------------------- calls meanwhile */

static void *
peer_run(void *arg)
{
	uint32_t sum = 0;

	(void)arg;
	for (uint32_t i = 0; i < ROUNDS; i++)
		ck_assert_int_eq(fanin_allreduce(&i, &sum, 1, FANIN_U32, FANIN_SUM, ranks[0].comm),
				 FANIN_OK);
	return NULL;
}

START_TEST(calls_and_the_thread_do_not_disturb_each_other)
{
	struct fanin_report report = { .sz = sizeof(report) };
	fanin_request *request;
	pthread_t peer;
	uint32_t sum;

	world_open(true, &fanin_protocol_ring);
	ck_assert_int_eq(pthread_create(&peer, NULL, peer_run, NULL), 0);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		ck_assert_int_eq(fanin_iallreduce(&i, &sum, 1, FANIN_U32, FANIN_SUM, ranks[1].comm,
						  &request),
				 FANIN_OK);
		ck_assert_int_eq(fanin_comm_report(ranks[1].comm, &report), FANIN_OK);
		ck_assert_str_eq(report.protocol, "ring");
		ck_assert_str_eq(fanin_comm_error(ranks[1].comm), "");
		fanin_comm_missing(ranks[1].comm);
		if (i % 4 == 0) {
			while (fanin_test(request) == FANIN_IN_PROGRESS)
				fanin_request_progress(request, NULL);
		} else if (i % 4 == 1) {
			ck_assert_int_ge(fanin_progress(ranks[1].ctx), 0);
		}
		ck_assert_int_eq(fanin_wait(&request), FANIN_OK);
		ck_assert_uint_eq(sum, 2 * i);
	}
	pthread_join(peer, NULL);
	world_close();
}
END_TEST

/*
 * A communicator that moves to another link has another interface and transport, at any moment of
 * the thread's.
 */
START_TEST(reported_strings_stay_until_the_next_report)
{
	struct fanin_report report = { .sz = sizeof(report) };

	world_open(true, &fanin_protocol_ring);
	fanin_ctx_lock(ranks[1].ctx);
	strcpy(ranks[1].comm->route.interface, "before");
	strcpy(ranks[1].comm->mode_reason, "there is no tree");
	fanin_ctx_unlock(ranks[1].ctx);
	ck_assert_int_eq(fanin_comm_report(ranks[1].comm, &report), FANIN_OK);
	fanin_ctx_lock(ranks[1].ctx);
	strcpy(ranks[1].comm->route.interface, "after");
	strcpy(ranks[1].comm->mode_reason, "");
	fanin_ctx_unlock(ranks[1].ctx);
	ck_assert_str_eq(report.interface, "before");
	ck_assert_str_eq(report.transport_reason, "there is no tree");
	world_close();
}
END_TEST

START_TEST(a_failure_that_the_thread_finds_is_told_by_the_next_call)
{
	fanin_request *request;
	const uint64_t began_ns = fanin_now_ns(NULL);
	uint32_t one = 1;

	world_open(true, &fanin_protocol_ring);
	ck_assert_int_eq(fanin_iallreduce(&one, &one, 1, FANIN_U32, FANIN_SUM, ranks[1].comm,
					  &request),
			 FANIN_OK);
	/* The other process ends. */
	fanin_ring_destroy(ranks[0].ring);
	ranks[0].comm->endpoint = NULL;
	while (fanin_comm_error(ranks[1].comm)[0] == '\0') {
		ck_assert_uint_lt(fanin_now_ns(NULL) - began_ns, LIMIT_NS);
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	}
	ck_assert_int_eq(fanin_wait(&request), FANIN_ERR_TIMEOUT);
	ck_assert_uint_eq(fanin_ctx_missing(ranks[1].ctx), 1);
	ck_assert_ptr_nonnull(strstr(fanin_ctx_error(ranks[1].ctx), "rank 0"));
	world_close();
}
END_TEST

/* ------------------------------------------------------ the thread itself */

/* Processor time of this process' threads, ns. */
static uint64_t
process_ns(void)
{
	struct timespec used;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
	return (uint64_t)used.tv_sec * 1000000000 + (uint64_t)used.tv_nsec;
}

START_TEST(with_nothing_to_do_the_thread_sleeps)
{
	const struct timespec second = { .tv_sec = 1 };
	fanin_request *request;
	uint32_t one = 1;
	uint64_t used_ns;

	world_open(true, &fanin_protocol_ring);
	/* First a request waits for a late rank, then there is none. */
	ck_assert_int_eq(fanin_iallreduce(&one, &one, 1, FANIN_U32, FANIN_SUM, ranks[1].comm,
					  &request),
			 FANIN_OK);
	used_ns = process_ns();
	nanosleep(&second, NULL);
	ck_assert_uint_lt(process_ns() - used_ns, 300 * 1000000ull);

	/* The other process ends; its sockets must not wake the thread for ever. */
	fanin_ring_destroy(ranks[0].ring);
	ranks[0].comm->endpoint = NULL;
	ck_assert_int_eq(fanin_wait(&request), FANIN_ERR_TIMEOUT);
	used_ns = process_ns();
	nanosleep(&second, NULL);
	ck_assert_uint_lt(process_ns() - used_ns, 300 * 1000000ull);
	world_close();
}
END_TEST

START_TEST(the_thread_takes_no_signals)
{
	sigset_t blocked;
	sigset_t mine;

	world_open(true, &fanin_protocol_ring);
	ck_assert_int_eq(pthread_sigmask(SIG_SETMASK, NULL, &mine), 0);
	ck_assert_int_eq(sigismember(&mine, SIGALRM), 0);
	/* The signal is blocked everywhere else, so it stays pending. */
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGALRM);
	pthread_sigmask(SIG_BLOCK, &blocked, NULL);
	kill(getpid(), SIGALRM);
	nanosleep(&(struct timespec){ .tv_nsec = 100 * 1000000 }, NULL);
	sigpending(&mine);
	ck_assert_int_eq(sigismember(&mine, SIGALRM), 1);
	ck_assert_int_eq(sigwaitinfo(&blocked, NULL), SIGALRM);
	world_close();
}
END_TEST

START_TEST(a_context_without_communicators_has_no_thread)
{
	world_open(true, &fanin_protocol_ring);
	ck_assert_ptr_nonnull(ranks[1].ctx->progress);
	ck_assert_int_eq(fanin_leave(ranks[1].comm), FANIN_OK);
	ck_assert_ptr_null(ranks[1].ctx->progress);
	world_close();
}
END_TEST

START_TEST(the_environment_may_ask_for_it)
{
	const struct fanin_init_opts silence = { .sz = sizeof(silence) };
	static const struct {
		const char *value;
		int status;
		bool background;
	} values[] = { { "1", FANIN_OK, true },
		       { "0", FANIN_OK, false },
		       { "", FANIN_OK, false },
		       { "yes", FANIN_ERR_INVALID, false } };

	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		fanin_ctx *ctx = NULL;

		setenv("FANIN_BACKGROUND_PROGRESS", values[i].value, 1);
		ck_assert_int_eq(fanin_init(i % 2 == 0 ? NULL : &silence, &ctx), values[i].status);
		if (ctx != NULL)
			ck_assert_int_eq(ctx->background, values[i].background);
		fanin_finalize(ctx);
	}
}
END_TEST

Suite *
suite_background(void)
{
	Suite *suite = suite_create("background");
	TCase *computing = tcase_create("computing");
	TCase *calls = tcase_create("calls");
	TCase *thread = tcase_create("thread");

	tcase_set_timeout(computing, 300);
	tcase_add_test(computing, a_rank_that_computes_does_its_part_in_the_background);
	tcase_add_test(computing, a_protocol_with_duties_has_a_thread_without_being_asked);
	tcase_add_test(computing, without_a_thread_who_computes_is_waited_for);
	suite_add_tcase(suite, computing);
	tcase_set_timeout(calls, 300);
	tcase_add_test(calls, calls_and_the_thread_do_not_disturb_each_other);
	tcase_add_test(calls, reported_strings_stay_until_the_next_report);
	tcase_add_test(calls, a_failure_that_the_thread_finds_is_told_by_the_next_call);
	suite_add_tcase(suite, calls);
	tcase_add_test(thread, with_nothing_to_do_the_thread_sleeps);
	tcase_add_test(thread, the_thread_takes_no_signals);
	tcase_add_test(thread, a_context_without_communicators_has_no_thread);
	tcase_add_test(thread, the_environment_may_ask_for_it);
	suite_add_tcase(suite, thread);
	return suite;
}
