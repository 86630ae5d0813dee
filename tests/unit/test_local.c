/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks of one host (hostlib/src/local/): all collectives, types and operators beside a reference,
 * with ranks as threads, and ranks that are late, differ, leave or are killed, as processes. With
 * one host there is no network; tests/net has several.
 */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <check.h>

#include "handlers/kernels/kernels.h"
#include "hostlib/src/comm/comm.h"
#include "hostlib/src/local/local.h"
#include "tests/unit/suites.h"

#define MAX_RANKS 5

/* ------------------------------------------------------------------ ranks */

/* What a rank does, in a thread of its own. */
struct rank {
	pthread_t thread;
	uint16_t number, size;
	fanin_ctx *ctx;
	fanin_comm *comm;
	void (*body)(struct rank *rank);
	const void *arg;
	bool wide;
};

static char job_name[40];

static void
job_begin(void)
{
	static unsigned int n;

	snprintf(job_name, sizeof(job_name), "local-%d-%u", getpid(), n++);
}

static struct fanin_join_opts
options_of(uint16_t rank, uint16_t size)
{
	static const uint16_t one_host[FANIN_LOCAL_MAX];

	return (struct fanin_join_opts){ .sz = sizeof(struct fanin_join_opts),
					 .job_name = job_name,
					 .rank = rank,
					 .size = size,
					 .fixed_rank = true,
					 .hosts = one_host,
					 .join_timeout_ms = 20000 };
}

static void *
rank_run(void *arg)
{
	struct rank *rank = arg;
	struct fanin_join_opts options = options_of(rank->number, rank->size);

	options.accumulate_f32 = rank->wide;
	ck_assert_int_eq(fanin_init(NULL, &rank->ctx), FANIN_OK);
	ck_assert_msg(fanin_join(rank->ctx, &options, &rank->comm) == FANIN_OK, "%s",
		      fanin_ctx_error(rank->ctx));
	rank->body(rank);
	fanin_leave(rank->comm);
	fanin_finalize(rank->ctx);
	return NULL;
}

/* Runs a body on all ranks of one host. */
static void
ranks_run(uint16_t size, bool wide, void (*body)(struct rank *rank), const void *arg)
{
	struct rank ranks[MAX_RANKS];

	job_begin();
	for (uint16_t i = 0; i < size; i++) {
		ranks[i] = (struct rank){
			.number = i, .size = size, .body = body, .arg = arg, .wide = wide
		};
		ck_assert_int_eq(pthread_create(&ranks[i].thread, NULL, rank_run, &ranks[i]), 0);
	}
	for (uint16_t i = 0; i < size; i++)
		ck_assert_int_eq(pthread_join(ranks[i].thread, NULL), 0);
}

/* ---------------------------------------------------------------- results */

struct kind {
	enum fanin_dtype dtype;
	enum fanin_op op;
	size_t count; /* elements of a rank's part */
};

/* Fills in a rank's data: small numbers, so that no operator overflows or loses bits. */
static void
data_fill(uint8_t *data, enum fanin_dtype dtype, size_t count, uint16_t rank, size_t first)
{
	const size_t element = fanin_dtype_size_of(dtype);

	for (size_t i = 0; i < count; i++) {
		const int value = (int)((first + i) * 7 + rank * 3) % 4 + 1;
		const float number = (float)value;
		const double wide = value;
		uint64_t bits = (uint64_t)value;

		if (dtype == FANIN_F32)
			memcpy(&bits, &number, sizeof(number));
		else if (dtype == FANIN_F64)
			memcpy(&bits, &wide, sizeof(wide));
		else if (dtype == FANIN_BF16)
			memcpy(&bits, (const uint8_t *)&number + 2, 2);
		else if (dtype == FANIN_F16)
			bits = value == 1   ? 0x3c00
			       : value == 2 ? 0x4000
			       : value == 3 ? 0x4200
					    : 0x4400;
		memcpy(data + i * element, &bits, element);
	}
}

/* Computes what the sum over all ranks is, in their order. */
static void
result_expect(uint8_t *result, const struct kind *kind, size_t count, uint16_t size)
{
	const enum fanin_isa isa = fanin_isa_detect();
	const fanin_finish_fn finish = fanin_kernel_finish(isa, kind->dtype, kind->op);
	uint8_t *other = malloc(count * 8 + 1);

	ck_assert_ptr_nonnull(other);
	data_fill(result, kind->dtype, count, 0, 0);
	for (uint16_t rank = 1; rank < size; rank++) {
		data_fill(other, kind->dtype, count, rank, 0);
		fanin_kernel(isa, kind->dtype, kind->op)(result, other, count);
	}
	if (finish != NULL && count != 0)
		finish(result, size, count);
	free(other);
}

static void
all_collectives(struct rank *rank)
{
	const struct kind *kind = rank->arg;
	const size_t element = fanin_dtype_size_of(kind->dtype), part = kind->count * element;
	const size_t count = kind->count * rank->size, whole = count * element;
	const uint16_t root = rank->size - 1;
	uint8_t *send = malloc(whole + 1), *recv = malloc(whole + 1), *wanted = malloc(whole + 1);

	data_fill(send, kind->dtype, count, rank->number, 0);
	result_expect(wanted, kind, count, rank->size);
	ck_assert_int_eq(fanin_allreduce(send, recv, count, kind->dtype, kind->op, rank->comm),
			 FANIN_OK);
	ck_assert_mem_eq(recv, wanted, whole);
	memset(recv, 0xa5, whole);
	ck_assert_int_eq(fanin_reduce(send, recv, count, kind->dtype, kind->op, root, rank->comm),
			 FANIN_OK);
	if (rank->number == root)
		ck_assert_mem_eq(recv, wanted, whole);
	ck_assert_int_eq(fanin_reduce_scatter(send, recv, kind->count, kind->dtype, kind->op,
					      rank->comm),
			 FANIN_OK);
	ck_assert_mem_eq(recv, wanted + rank->number * part, part);
	for (uint16_t other = 0; other < rank->size; other++)
		data_fill(wanted + other * part, kind->dtype, kind->count, other, 0);
	ck_assert_int_eq(fanin_allgather(send, recv, kind->count, kind->dtype, rank->comm),
			 FANIN_OK);
	ck_assert_mem_eq(recv, wanted, whole);
	memcpy(recv, send, whole);
	data_fill(wanted, kind->dtype, count, root, 0);
	ck_assert_int_eq(fanin_broadcast(recv, count, kind->dtype, root, rank->comm), FANIN_OK);
	ck_assert_mem_eq(recv, wanted, whole);
	/* In place. */
	result_expect(wanted, kind, count, rank->size);
	ck_assert_int_eq(fanin_allreduce(send, send, count, kind->dtype, kind->op, rank->comm),
			 FANIN_OK);
	ck_assert_mem_eq(send, wanted, whole);
	ck_assert_int_eq(fanin_barrier(rank->comm), FANIN_OK);
	free(send);
	free(recv);
	free(wanted);
}

static const enum fanin_dtype dtypes[] = { FANIN_I8,  FANIN_I16,  FANIN_I32, FANIN_I64,
					   FANIN_U8,  FANIN_U16,  FANIN_U32, FANIN_U64,
					   FANIN_F16, FANIN_BF16, FANIN_F32, FANIN_F64 };
static const enum fanin_op ops[] = { FANIN_SUM,  FANIN_PROD, FANIN_MIN, FANIN_MAX,
				     FANIN_AVG,  FANIN_LAND, FANIN_LOR, FANIN_LXOR,
				     FANIN_BAND, FANIN_BOR,  FANIN_BXOR };

START_TEST(all_types_and_operators_are_right)
{
	for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++) {
		for (size_t k = 0; k < sizeof(ops) / sizeof(ops[0]); k++) {
			const struct kind kind = { dtypes[i], ops[k], 37 };

			if (fanin_supports(dtypes[i], ops[k]))
				ranks_run(3, false, all_collectives, &kind);
		}
	}
}
END_TEST

START_TEST(all_lengths_are_right)
{
	static const size_t counts[] = { 0, 1, 15, 4095, 8193, 32768, 32769, 100003, 300000 };

	for (uint16_t size = 2; size <= MAX_RANKS; size++) {
		for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
			const struct kind kind = { FANIN_I32, FANIN_SUM, counts[i] };

			ranks_run(size, false, all_collectives, &kind);
		}
	}
}
END_TEST

/* Sums whose bits in bf16 depend on how often they are rounded. */
static void
wide_sum(struct rank *rank)
{
	uint16_t send[100], recv[100];

	for (size_t i = 0; i < 100; i++)
		send[i] = rank->number == 0 ? 0x4380 : 0x3f00; /* 256 and 0.5 */
	ck_assert_int_eq(fanin_allreduce(send, recv, 100, FANIN_BF16, FANIN_SUM, rank->comm),
			 FANIN_OK);
	for (size_t i = 0; i < 100; i++)
		ck_assert_uint_eq(recv[i], rank->wide ? 0x4381 : 0x4380); /* 258 and 256 */
}

START_TEST(sums_in_f32_are_rounded_once)
{
	ranks_run(5, true, wide_sum, NULL);
	ranks_run(5, false, wide_sum, NULL);
}
END_TEST

/* Posts many requests before it waits for the first, and waits in another order. */
static void
many_requests(struct rank *rank)
{
	enum {
		N = 40,
		LEN = 20000
	};
	static uint32_t vectors[MAX_RANKS][N][LEN];
	fanin_request *requests[N];

	for (int i = 0; i < N; i++) {
		for (int k = 0; k < LEN; k++)
			vectors[rank->number][i][k] = (uint32_t)(i + k + rank->number);
		ck_assert_int_eq(fanin_iallreduce(vectors[rank->number][i],
						  vectors[rank->number][i],
						  i % 3 == 0 ? LEN : (size_t)i, FANIN_U32,
						  FANIN_SUM, rank->comm, &requests[i]),
				 FANIN_OK);
	}
	for (int i = 0; i < N; i++)
		ck_assert_int_eq(fanin_wait(&requests[rank->number % 2 == 0 ? i : N - 1 - i]),
				 FANIN_OK);
	for (int i = 0; i < N; i++)
		for (int k = 0; k < (i % 3 == 0 ? LEN : i); k++)
			ck_assert_uint_eq(vectors[rank->number][i][k],
					  (uint32_t)(rank->size * (i + k) +
						     rank->size * (rank->size - 1) / 2));
}

START_TEST(many_requests_are_under_way_at_the_same_time)
{
	ranks_run(4, false, many_requests, NULL);
}
END_TEST

/* --------------------------------------------------------- sparse vectors */

struct sparse_kind {
	uint64_t n;
	unsigned int every; /* of so many indices a rank has one */
	bool dense;         /* the result */
	uint8_t index_bytes;
};

static uint64_t
value_at(uint16_t rank, uint64_t index, unsigned int every)
{
	return (index * 2654435761u + rank * 97u) % every == 0 ? index % 50 + rank + 1 : 0;
}

/* Sums sparse vectors, with a dense collective before and behind. */
static void
sparse_sums(struct rank *rank)
{
	const struct sparse_kind *kind = rank->arg;
	uint32_t *values = malloc((kind->n + 1) * sizeof(*values));
	uint8_t *indices = malloc((kind->n + 1) * 8);
	uint32_t *dense = malloc((kind->n + 1) * sizeof(*dense));
	struct fanin_sparse_result result = { .sz = sizeof(result),
					      .dense = kind->dense ? dense : NULL };
	const struct fanin_sparse_opts options = { .sz = sizeof(options),
						   .index_bytes = kind->index_bytes };
	uint64_t nnz = 0, n_wanted = 0;
	uint32_t one = 1;

	for (uint64_t i = 0; i < kind->n; i++) {
		const uint64_t value = value_at(rank->number, i, kind->every);

		if (value == 0)
			continue;
		memcpy(indices + nnz * kind->index_bytes, &i, kind->index_bytes);
		values[nnz++] = (uint32_t)value;
	}
	ck_assert_int_eq(fanin_allreduce(&one, &one, 1, FANIN_U32, FANIN_SUM, rank->comm),
			 FANIN_OK);
	for (int again = 0; again < 3; again++) {
		ck_assert_msg(fanin_allreduce_sparse(kind->n, nnz, indices, values, &result,
						     FANIN_U32, FANIN_SUM, &options,
						     rank->comm) == FANIN_OK,
			      "%s", fanin_ctx_error(rank->ctx));
		ck_assert_int_eq(fanin_barrier(rank->comm), FANIN_OK);
		n_wanted = 0;
		for (uint64_t i = 0; i < kind->n; i++) {
			uint64_t sum = 0, at = 0;

			for (uint16_t other = 0; other < rank->size; other++)
				sum += value_at(other, i, kind->every);
			if (kind->dense)
				ck_assert_uint_eq(dense[i], sum);
			if (sum == 0)
				continue;
			if (!kind->dense) {
				ck_assert_uint_lt(n_wanted, result.count);
				memcpy(&at,
				       (uint8_t *)result.indices + n_wanted * kind->index_bytes,
				       kind->index_bytes);
				ck_assert_uint_eq(at, i);
				ck_assert_uint_eq(((uint32_t *)result.values)[n_wanted], sum);
			}
			n_wanted++;
		}
		ck_assert_uint_eq(result.count, n_wanted);
		fanin_sparse_result_free(&result);
	}
	free(values);
	free(indices);
	free(dense);
}

START_TEST(sparse_vectors_are_summed)
{
	static const struct sparse_kind kinds[] = {
		{ 0, 1, true, 4 },       { 1, 1, false, 8 },          { 1000, 7, true, 4 },
		{ 1000, 7, false, 8 },   { 200000, 3, true, 8 },      { 200000, 3, false, 4 },
		{ 200000, 1, false, 4 }, { 30000, 1000000, true, 4 },
	};

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		for (uint16_t size = 2; size <= MAX_RANKS; size++)
			ranks_run(size, false, sparse_sums, &kinds[i]);
}
END_TEST

/* -------------------------------------------------------------- processes */

/* What a rank does as a process. Returns its exit status. */
typedef int (*process_body)(uint16_t rank, fanin_ctx *ctx, fanin_comm *comm);

/* Starts a rank as a process; patch: changes its options. */
static pid_t
process_start(uint16_t rank, uint16_t size, void (*patch)(struct fanin_join_opts *),
	      process_body body)
{
	const pid_t pid = fork();
	struct fanin_join_opts options = options_of(rank, size);
	fanin_ctx *ctx;
	fanin_comm *comm;

	ck_assert_int_ge(pid, 0);
	if (pid != 0)
		return pid;
	alarm(60);
	if (patch != NULL)
		patch(&options);
	if (fanin_init(NULL, &ctx) != FANIN_OK)
		_exit(100);
	if (fanin_join(ctx, &options, &comm) != FANIN_OK)
		comm = NULL;
	_exit(body(rank, ctx, comm));
}

/* Waits for a process. Returns its exit status, or minus the signal that has ended it. */
static int
process_wait(pid_t pid)
{
	int status;

	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* Checks the error of a failed call: its status, and that it is about a rank. Returns 0. */
static int
failure_check(fanin_ctx *ctx, int found, int expected, uint16_t about, const char *words)
{
	uint16_t missing[4];

	if (found != expected || strstr(fanin_ctx_error(ctx), words) == NULL) {
		fprintf(stderr, "found %d: %s; expected %d: %s\n", found, fanin_ctx_error(ctx),
			expected, words);
		return 1;
	}
	if (about != UINT16_MAX &&
	    (fanin_ctx_missing_ranks(ctx, missing, 4) != 1 || missing[0] != about)) {
		fprintf(stderr, "%s: not about rank %u alone\n", fanin_ctx_error(ctx), about);
		return 2;
	}
	return 0;
}

static int
sum_some(fanin_comm *comm)
{
	uint32_t data[1000] = { 1 };

	return fanin_allreduce(data, data, 1000, FANIN_U32, FANIN_SUM, comm);
}

/* Rank 2 is killed after a sum; a process that it has started lives on. */
static int
loses_rank_2(uint16_t rank, fanin_ctx *ctx, fanin_comm *comm)
{
	if (comm == NULL || sum_some(comm) != FANIN_OK)
		return 10;
	if (rank == 2) {
		if (fork() == 0) {
			sleep(3);
			_exit(0);
		}
		raise(SIGKILL);
	}
	return failure_check(ctx, sum_some(comm), FANIN_ERR_TIMEOUT, 2,
			     "rank 2 of this host has ended");
}

static int
loses_rank_0(uint16_t rank, fanin_ctx *ctx, fanin_comm *comm)
{
	if (comm == NULL || sum_some(comm) != FANIN_OK)
		return 10;
	if (rank == 0)
		raise(SIGKILL);
	return failure_check(ctx, sum_some(comm), FANIN_ERR_TIMEOUT, 0,
			     "rank 0 of this host has ended");
}

static double
seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void
killed_rank_check(process_body body, int killed)
{
	const double began = seconds();
	pid_t pids[4];

	job_begin();
	for (uint16_t i = 0; i < 4; i++)
		pids[i] = process_start(i, 4, NULL, body);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(process_wait(pids[i]), i == killed ? -SIGKILL : 0);
	ck_assert_double_lt(seconds() - began, 20);
}

START_TEST(a_killed_rank_is_named_by_all_others)
{
	killed_rank_check(loses_rank_2, 2);
}
END_TEST

START_TEST(a_killed_leader_is_named_by_all_others)
{
	killed_rank_check(loses_rank_0, 0);
}
END_TEST

static int
rank_1_leaves(uint16_t rank, fanin_ctx *ctx, fanin_comm *comm)
{
	if (comm == NULL || sum_some(comm) != FANIN_OK)
		return 10;
	if (rank == 1)
		return fanin_leave(comm) == FANIN_OK ? 0 : 11;
	return failure_check(ctx, sum_some(comm), FANIN_ERR_TIMEOUT, 1,
			     "rank 1 of this host has left the job");
}

START_TEST(a_rank_that_has_left_is_named)
{
	pid_t pids[3];

	job_begin();
	for (uint16_t i = 0; i < 3; i++)
		pids[i] = process_start(i, 3, NULL, rank_1_leaves);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(process_wait(pids[i]), 0);
}
END_TEST

/* A process that it has started lives on, and so does it. */
static int
rank_1_leaves_and_stays(uint16_t rank, fanin_ctx *ctx, fanin_comm *comm)
{
	if (comm == NULL || sum_some(comm) != FANIN_OK)
		return 10;
	if (rank == 1) {
		if (fork() == 0) {
			sleep(5);
			_exit(0);
		}
		fanin_leave(comm);
		sleep(2);
		return 0;
	}
	return failure_check(ctx, sum_some(comm), FANIN_ERR_TIMEOUT, 1,
			     "rank 1 of this host has left the job");
}

static double seconds(void);

START_TEST(a_rank_that_has_left_is_named_while_its_children_live)
{
	const double began = seconds();
	pid_t pids[2];

	job_begin();
	for (uint16_t i = 0; i < 2; i++)
		pids[i] = process_start(i, 2, NULL, rank_1_leaves_and_stays);
	ck_assert_int_eq(process_wait(pids[0]), 0);
	ck_assert_double_lt(seconds() - began, 2);
	ck_assert_int_eq(process_wait(pids[1]), 0);
}
END_TEST

static int
calls_differ(uint16_t rank, fanin_ctx *ctx, fanin_comm *comm)
{
	uint32_t data[10] = { 0 };
	int status;

	if (comm == NULL)
		return 10;
	status = rank == 1 ? fanin_broadcast(data, 10, FANIN_U32, 0, comm)
			   : fanin_allreduce(data, data, 10, FANIN_U32, FANIN_SUM, comm);
	return failure_check(ctx, status, FANIN_ERR_REFUSED, UINT16_MAX,
			     "rank 0 allreduce of 40 bytes of u32, sum, root 0, rank 1 broadcast "
			     "of 40 bytes of u32, root 0");
}

START_TEST(ranks_that_make_different_calls_are_told_so)
{
	pid_t pids[3];

	job_begin();
	for (uint16_t i = 0; i < 3; i++)
		pids[i] = process_start(i, 3, NULL, calls_differ);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(process_wait(pids[i]), 0);
}
END_TEST

static void
waits_briefly(struct fanin_join_opts *options)
{
	options->wait_limit_ms = 300;
}

static int
rank_2_is_late(uint16_t rank, fanin_ctx *ctx, fanin_comm *comm)
{
	if (comm == NULL)
		return 10;
	if (rank == 2) {
		sleep(1);
		return 0;
	}
	return failure_check(ctx, sum_some(comm), FANIN_ERR_TIMEOUT, 2,
			     "no result within 300 ms: waiting for rank 2 (of 3), which is late");
}

START_TEST(a_late_rank_is_waited_for_as_long_as_the_limit_says)
{
	pid_t pids[3];

	job_begin();
	for (uint16_t i = 0; i < 3; i++)
		pids[i] = process_start(i, 3, waits_briefly, rank_2_is_late);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(process_wait(pids[i]), 0);
}
END_TEST

/* Both compute for longer than the limit, one a little longer. */
static int
both_compute(uint16_t rank, fanin_ctx *ctx, fanin_comm *comm)
{
	uint32_t data[10] = { 1 };
	fanin_request *request;

	if (comm == NULL ||
	    fanin_iallreduce(data, data, 10, FANIN_U32, FANIN_SUM, comm, &request) != FANIN_OK)
		return 10;
	usleep(rank == 0 ? 1100000 : 1000000);
	if (fanin_wait(&request) == FANIN_OK)
		return 0;
	fprintf(stderr, "rank %u: %s\n", rank, fanin_ctx_error(ctx));
	return 11;
}

START_TEST(time_in_which_a_rank_computes_is_no_wait)
{
	pid_t pids[2];

	job_begin();
	for (uint16_t i = 0; i < 2; i++)
		pids[i] = process_start(i, 2, waits_briefly, both_compute);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(process_wait(pids[i]), 0);
}
END_TEST

static void
joins_briefly(struct fanin_join_opts *options)
{
	options->join_timeout_ms = 500;
}

static int
misses_rank_1(uint16_t rank, fanin_ctx *ctx, fanin_comm *comm)
{
	/* The other rank's own limit may end first. */
	if (rank == 2 && comm == NULL && strstr(fanin_ctx_error(ctx), "has not met all") != NULL)
		return 0;
	return failure_check(ctx, comm == NULL ? FANIN_ERR_JOIN_TIMEOUT : FANIN_OK,
			     FANIN_ERR_JOIN_TIMEOUT, 1,
			     "rank 1 of this host has not come to rank 0 within 500 ms");
}

static int
misses_rank_0(uint16_t rank, fanin_ctx *ctx, fanin_comm *comm)
{
	(void)rank;
	return failure_check(ctx, comm == NULL ? FANIN_ERR_JOIN_TIMEOUT : FANIN_OK,
			     FANIN_ERR_JOIN_TIMEOUT, 0,
			     "rank 0, which leads this host, has not come within 500 ms");
}

START_TEST(ranks_that_do_not_come_are_named)
{
	pid_t leader, other;

	job_begin();
	leader = process_start(0, 3, joins_briefly, misses_rank_1);
	other = process_start(2, 3, joins_briefly, misses_rank_1);
	ck_assert_int_eq(process_wait(leader), 0);
	ck_assert_int_eq(process_wait(other), 0);
	job_begin();
	other = process_start(2, 3, joins_briefly, misses_rank_0);
	ck_assert_int_eq(process_wait(other), 0);
}
END_TEST

static void
becomes_another_user(struct fanin_join_opts *options)
{
	if (setgid(65534) != 0 || setuid(65534) != 0)
		_exit(101);
	options->join_timeout_ms = 1000;
}

static int
is_refused(uint16_t rank, fanin_ctx *ctx, fanin_comm *comm)
{
	(void)rank;
	return failure_check(ctx, comm == NULL ? FANIN_ERR_PERMISSION : FANIN_OK,
			     FANIN_ERR_PERMISSION, UINT16_MAX, "found user 0, expected 65534");
}

static int
waits_in_vain(uint16_t rank, fanin_ctx *ctx, fanin_comm *comm)
{
	(void)rank;
	return failure_check(ctx, comm == NULL ? FANIN_ERR_JOIN_TIMEOUT : FANIN_OK,
			     FANIN_ERR_JOIN_TIMEOUT, 1, "rank 1 of this host");
}

/* Another user neither gets the memory nor takes a rank's place. */
START_TEST(ranks_of_another_user_are_refused)
{
	pid_t leader, other;

	ck_assert_uint_eq(geteuid(), 0);
	job_begin();
	leader = process_start(0, 2, joins_briefly, waits_in_vain);
	other = process_start(1, 2, becomes_another_user, is_refused);
	ck_assert_int_eq(process_wait(other), 0);
	ck_assert_int_eq(process_wait(leader), 0);
}
END_TEST

static void
is_reproducible(struct fanin_join_opts *options)
{
	options->reproducible = true;
	options->join_timeout_ms = 2000;
}

static int
differs(uint16_t rank, fanin_ctx *ctx, fanin_comm *comm)
{
	(void)rank;
	return failure_check(ctx, comm == NULL ? FANIN_ERR_JOIN_REFUSED : FANIN_OK,
			     FANIN_ERR_JOIN_REFUSED, UINT16_MAX,
			     "other hosts, another size or other options of the join than rank 1");
}

START_TEST(ranks_with_other_options_are_refused)
{
	pid_t leader, other;

	job_begin();
	leader = process_start(0, 2, joins_briefly, waits_in_vain);
	other = process_start(1, 2, is_reproducible, differs);
	ck_assert_int_eq(process_wait(other), 0);
	ck_assert_int_eq(process_wait(leader), 0);
}
END_TEST

/* ---------------------------------------------------------------- network */

#define MAX_POSTED 64

/* A network that is done with the requests of hosts when the test says so. */
struct network {
	struct fanin_request *posted[MAX_POSTED];
	unsigned int n_posted, n_done;
};

static int
network_post(void *arg, struct fanin_request *request, uint64_t count)
{
	struct network *network = arg;

	(void)count;
	for (unsigned int i = network->n_done; i < network->n_posted; i++)
		ck_assert_ptr_ne(network->posted[i], request);
	ck_assert_uint_lt(network->n_posted, MAX_POSTED);
	request->status = FANIN_IN_PROGRESS;
	network->posted[network->n_posted++] = request;
	return FANIN_OK;
}

static void
network_abort(void *arg, int status, const struct fanin_error *error)
{
	struct network *network = arg;

	(void)error;
	for (; network->n_done < network->n_posted; network->n_done++)
		network->posted[network->n_done]->status = status;
}

static void
network_missing(void *arg, struct fanin_ranks *hosts)
{
	(void)arg;
	*hosts = (struct fanin_ranks){ 0 };
}

/* The rank is alone on its host, and leads it. */
START_TEST(a_request_of_hosts_is_kept_until_the_network_is_done_with_it)
{
	static const uint16_t hosts[] = { 0, 1 };
	const uint16_t ranks[] = { 0 };
	struct network network = { .n_posted = 0 };
	struct fanin_local_config config = { .network = { .post = network_post,
							  .abort = network_abort,
							  .missing = network_missing,
							  .arg = &network } };
	const struct fanin_local_meeting_config meeting = {
		.secret = "alone", .ranks = ranks, .n = 1, .deadline_ns = UINT64_MAX
	};
	struct fanin_request requests[20];
	struct fanin_endpoint *endpoint;
	struct fanin_error error = { 0 };
	uint32_t data[20000] = { 0 };

	ck_assert_int_eq(fanin_local_layout_make(&config.layout, hosts, 0, 2, &error), FANIN_OK);
	ck_assert_int_eq(fanin_local_meet(&meeting, &config.meeting, &error), FANIN_OK);
	ck_assert_int_eq(fanin_local_open(&config, &endpoint, &error), FANIN_OK);
	for (int i = 0; i < 20; i++) {
		requests[i] = (struct fanin_request){ .collective = FANIN_COLLECTIVE_ALLREDUCE,
						      .dtype = FANIN_U32,
						      .op = FANIN_SUM,
						      .send = (const uint8_t *)data,
						      .recv = (uint8_t *)data };
		/* Barriers, and vectors of two chunks. */
		ck_assert_int_eq(endpoint->protocol->post(endpoint, &requests[i],
							  i % 5 == 4 ? 20000 : 0),
				 FANIN_OK);
	}
	for (int i = 0; i < 100; i++) {
		ck_assert_int_ge(endpoint->protocol->poll(endpoint), 0);
		ck_assert_uint_le(network.n_posted - network.n_done, FANIN_LOCAL_DEPTH);
		if (network.n_done < network.n_posted)
			network.posted[network.n_done++]->status = FANIN_OK;
	}
	ck_assert_uint_eq(network.n_done, 24);
	for (int i = 0; i < 20; i++)
		ck_assert_int_eq(requests[i].status, FANIN_OK);
	/* What is under way when it leaves fails, in the network too. */
	ck_assert_int_eq(endpoint->protocol->post(endpoint, &requests[0], 10), FANIN_OK);
	ck_assert_int_ge(endpoint->protocol->poll(endpoint), 0);
	fanin_local_end(endpoint);
	ck_assert_int_eq(requests[0].status, FANIN_ERR_TIMEOUT);
	ck_assert_uint_eq(network.n_done, network.n_posted);
	endpoint->protocol->close(endpoint);
}
END_TEST

/* ----------------------------------------------------------------- layout */

START_TEST(placements_are_checked)
{
	static const struct {
		uint16_t hosts[4];
		const char *error; /* NULL: right */
		bool in_row;
		uint16_t n_hosts, most;
	} cases[] = {
		{ { 0, 0, 1, 1 }, NULL, true, 2, 2 },
		{ { 0, 1, 0, 1 }, NULL, false, 2, 2 },
		{ { 0, 0, 0, 1 }, NULL, true, 2, 3 },
		{ { 0, 1, 1, 0 }, NULL, false, 2, 2 },
		{ { 1, 0, 1, 0 }, "found host 1 for rank 0, expected 0 to 0", false, 0, 0 },
		{ { 0, 2, 1, 1 }, "found host 2 for rank 1, expected 0 to 1", false, 0, 0 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct fanin_local_layout layout;
		struct fanin_error error = { 0 };
		const int status = fanin_local_layout_make(&layout, cases[i].hosts, 3, 4, &error);

		if (cases[i].error != NULL) {
			ck_assert_int_eq(status, FANIN_ERR_INVALID);
			ck_assert_ptr_nonnull(strstr(error.text, cases[i].error));
			continue;
		}
		ck_assert_int_eq(status, FANIN_OK);
		ck_assert_int_eq(layout.in_row, cases[i].in_row);
		ck_assert_uint_eq(layout.n_hosts, cases[i].n_hosts);
		ck_assert_uint_eq(layout.most, cases[i].most);
		fanin_local_layout_free(&layout);
	}
}
END_TEST

START_TEST(a_reproducible_job_wants_the_ranks_of_a_host_in_a_row)
{
	static const uint16_t hosts[] = { 0, 1, 0, 1 };
	struct fanin_join_opts options = options_of(0, 4);
	fanin_comm *comm;
	fanin_ctx *ctx;

	options.hosts = hosts;
	options.reproducible = true;
	ck_assert_int_eq(fanin_init(NULL, &ctx), FANIN_OK);
	ck_assert_int_eq(fanin_join(ctx, &options, &comm), FANIN_ERR_UNSUPPORTED);
	ck_assert_ptr_nonnull(
		strstr(fanin_ctx_error(ctx), "expected the ranks of each host in a row"));
	fanin_finalize(ctx);
}
END_TEST

START_TEST(processes_of_one_host_have_one_id)
{
	char here[FANIN_HOST_ID_LEN], there[FANIN_HOST_ID_LEN] = "";
	int ends[2];
	pid_t pid;

	ck_assert_int_eq(fanin_host_id(here), FANIN_OK);
	ck_assert_int_eq(pipe(ends), 0);
	for (int apart = 0; apart <= 1; apart++) {
		pid = fork();
		if (pid == 0) {
			char own[FANIN_HOST_ID_LEN] = "";

			if (apart && unshare(CLONE_NEWNET) != 0)
				_exit(1);
			_exit(fanin_host_id(own) != FANIN_OK ||
			      write(ends[1], own, sizeof(own)) != (ssize_t)sizeof(own));
		}
		ck_assert_int_eq(process_wait(pid), 0);
		ck_assert_int_eq(read(ends[0], there, sizeof(there)), (ssize_t)sizeof(there));
		ck_assert_int_eq(strcmp(here, there) == 0, !apart);
	}
	close(ends[0]);
	close(ends[1]);
}
END_TEST

Suite *
suite_local(void)
{
	Suite *suite = suite_create("local");
	TCase *results = tcase_create("results");
	TCase *ranks = tcase_create("ranks");
	TCase *placements = tcase_create("placements");

	tcase_set_timeout(results, 300);
	tcase_add_test(results, all_types_and_operators_are_right);
	tcase_add_test(results, all_lengths_are_right);
	tcase_add_test(results, sums_in_f32_are_rounded_once);
	tcase_add_test(results, sparse_vectors_are_summed);
	tcase_add_test(results, many_requests_are_under_way_at_the_same_time);
	suite_add_tcase(suite, results);
	tcase_set_timeout(ranks, 120);
	tcase_add_test(ranks, a_killed_rank_is_named_by_all_others);
	tcase_add_test(ranks, a_killed_leader_is_named_by_all_others);
	tcase_add_test(ranks, a_rank_that_has_left_is_named);
	tcase_add_test(ranks, a_rank_that_has_left_is_named_while_its_children_live);
	tcase_add_test(ranks, ranks_that_make_different_calls_are_told_so);
	tcase_add_test(ranks, a_late_rank_is_waited_for_as_long_as_the_limit_says);
	tcase_add_test(ranks, time_in_which_a_rank_computes_is_no_wait);
	tcase_add_test(ranks, ranks_that_do_not_come_are_named);
	tcase_add_test(ranks, ranks_of_another_user_are_refused);
	tcase_add_test(ranks, ranks_with_other_options_are_refused);
	suite_add_tcase(suite, ranks);
	tcase_add_test(placements, a_request_of_hosts_is_kept_until_the_network_is_done_with_it);
	tcase_add_test(placements, placements_are_checked);
	tcase_add_test(placements, a_reproducible_job_wants_the_ranks_of_a_host_in_a_row);
	tcase_add_test(placements, processes_of_one_host_have_one_id);
	suite_add_tcase(suite, placements);
	return suite;
}
