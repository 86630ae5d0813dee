/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every collective of the host library, by its public calls, between the hosts of host_rig.h
 * through the real pipeline. Each byte of each host's memory is compared with the result of
 * lab/reference/perf_collective.c, including bytes that the collective must not touch. Odd ranks
 * work in place.
 */
#include <stdlib.h>
#include <string.h>

#include "protocols/dense/host/window.h"
#include "hostlib/src/comm/comm.h"
#include "tests/unit/host_rig.h"
#include "lab/reference/random.h"
#include "tests/unit/suites.h"
#include "lab/reference/perf_collective.h"

#define LARGE_BYTES (200u << 10)
#define MANY 24 /* outstanding requests */

static const uint16_t host_counts[] = { 1, 2, 3, 8, 16 };

#define N_HOST_COUNTS (int)(sizeof(host_counts) / sizeof(host_counts[0]))

/* A host's part in one collective. */
struct call {
	struct perf_collective collective;
	uint8_t *send; /* vectors; both the same if in place */
	uint8_t *recv;
	uint8_t *expected; /* expected content of recv */
	fanin_request *request;
};

/* A collective on all hosts. */
struct calls {
	struct call of[HOST_RIG_HOSTS];
};

static struct fanin_ctx contexts[HOST_RIG_HOSTS];
static struct fanin_comm comms[HOST_RIG_JOBS][HOST_RIG_HOSTS];
static uint32_t n_collectives;

/* ------------------------------------------------------------------ world */

static void
world_open(const struct host_rig_options *options)
{
	n_collectives = 0;
	host_rig_open(options);
	for (uint16_t h = 0; h < host_rig.n_hosts; h++) {
		contexts[h] = (struct fanin_ctx){ 0 };
		for (uint16_t j = 0; j < host_rig.n_jobs; j++) {
			comms[j][h] = (struct fanin_comm){
				.ops = &fanin_comm_single_ops,
				.protocol = &fanin_protocol_window,
				.ctx = &contexts[h],
				.next = contexts[h].comms,
				.endpoint = host_rig.hosts[j][h].engine,
				.recovery.next_follow_ns = UINT64_MAX, /* there is no kernel with a
									  neighbour table */
				.member.config = { .rank = h, .size = host_rig.n_hosts },
			};
			contexts[h].comms = &comms[j][h];
		}
	}
}

/* Used after a collective that failed: counts of blocks differ then. */
static void
world_abandon(void)
{
	host_rig.failed = true;
	host_rig_close();
}

static void
world_close(void)
{
	for (uint16_t j = 0; j < host_rig.n_jobs; j++) {
		for (uint16_t h = 0; h < host_rig.n_hosts; h++)
			ck_assert_ptr_null(comms[j][h].requests);
	}
	host_rig_close();
}

/* ------------------------------------------------------------------ calls */

/* Prepares the same collective on all hosts; count: elements of the vector. */
static void
calls_prepare(struct calls *calls, enum perf_collective_kind kind, uint16_t root, uint64_t count,
	      enum fanin_dtype dtype, enum fanin_op op)
{
	size_t size = fanin_dtype_size_of(dtype);

	n_collectives++;
	for (uint16_t h = 0; h < host_rig.n_hosts; h++) {
		struct call *call = &calls->of[h];
		struct perf_range sends, receives;

		call->collective = (struct perf_collective){
			.kind = kind,
			.root = root,
			.rank = h,
			.count = count,
			.data = { .dtype = dtype,
				  .op = op,
				  .seed = n_collectives,
				  .size = host_rig.n_hosts,
				  .wide = host_rig.wide && perf_collective_combines(kind) },
		};
		call->request = NULL;
		call->send = malloc(count * size + 1);
		call->recv = h % 2 != 0 ? call->send : malloc(count * size + 1);
		call->expected = malloc(count * size + 1);
		ck_assert(call->send != NULL && call->recv != NULL && call->expected != NULL);
		memset(call->send, 0x5a, count * size + 1);
		memset(call->recv, 0xa5, count * size + 1);
		sends = perf_collective_sends(&call->collective);
		receives = perf_collective_receives(&call->collective);
		perf_data_fill(&call->collective.data, h, 0, sends.first, sends.n,
			       call->send + sends.first * size);
		memcpy(call->expected, call->recv, count * size + 1);
		perf_collective_expect(&call->collective, 0, receives.first, receives.n,
				       call->expected + receives.first * size);
	}
}

static void
call_post(struct call *call, uint16_t job)
{
	int status = perf_collective_post(&call->collective, call->send, call->recv,
					  &comms[job][call->collective.rank], &call->request);

	ck_assert_msg(status == FANIN_OK, "%s: %s", fanin_strerror(status),
		      fanin_ctx_error(&contexts[call->collective.rank]));
}

static bool
calls_done(const struct calls *calls)
{
	for (uint16_t h = 0; h < host_rig.n_hosts; h++) {
		if (calls->of[h].request->status == FANIN_IN_PROGRESS)
			return false;
	}
	return true;
}

/* Checks a request that is done: its result, and that all other memory is unchanged. */
static void
call_finish(struct call *call)
{
	const struct perf_collective *collective = &call->collective;
	size_t size = fanin_dtype_size_of(collective->data.dtype);
	uint64_t total_bytes;
	uint64_t right = 0;
	int status;

	ck_assert_uint_eq(fanin_request_progress(call->request, &total_bytes), total_bytes);
	ck_assert_uint_eq(total_bytes, collective->count * size);
	status = fanin_wait(&call->request);
	ck_assert_msg(status == FANIN_OK, "%s", fanin_ctx_error(&contexts[collective->rank]));
	ck_assert_ptr_null(call->request);
	while (right <= collective->count * size && call->recv[right] == call->expected[right])
		right++;
	ck_assert_msg(
		right > collective->count * size,
		"%s, %u hosts, %s %s of %lu elements %s, root %u: rank %u: right up to element %lu",
		host_rig.jobs[0]->handler->name, host_rig.n_hosts,
		fanin_op_name_of(collective->data.op), perf_collective_name(collective->kind),
		(unsigned long)collective->count, fanin_dtype_name_of(collective->data.dtype),
		collective->root, collective->rank, (unsigned long)(right / size));
	if (call->recv != call->send)
		free(call->recv);
	free(call->send);
	free(call->expected);
}

static void
calls_finish(struct calls *calls)
{
	for (uint16_t h = 0; h < host_rig.n_hosts; h++)
		call_finish(&calls->of[h]);
}

static void
run(enum perf_collective_kind kind, uint16_t root, uint64_t count, enum fanin_dtype dtype,
    enum fanin_op op)
{
	struct calls calls;

	calls_prepare(&calls, kind, root, count, dtype, op);
	for (uint16_t h = 0; h < host_rig.n_hosts; h++)
		call_post(&calls.of[h], 0);
	/* If nothing comes the engines time out. */
	while (!calls_done(&calls))
		host_rig_step();
	calls_finish(&calls);
}

/* Returns another operator for each data type; all types together use all operators. */
static enum fanin_op
op_of(enum fanin_dtype dtype)
{
	static const enum fanin_op ops[] = { FANIN_SUM, FANIN_MAX, FANIN_AVG, FANIN_PROD,
					     FANIN_MIN };

	return ops[(unsigned int)dtype % (sizeof(ops) / sizeof(ops[0]))];
}

/*
 * Returns the elements of the vector if each rank has `count`, for collectives in which each has a
 * part of its own.
 */
static uint64_t
vector_of(enum perf_collective_kind kind, uint64_t count)
{
	if (kind == PERF_BARRIER)
		return 0;
	return perf_collective_has_parts(kind) ? count * host_rig.n_hosts : count;
}

/* Runs every collective with every data type, in sizes around the packet's. */
static void
run_all(void)
{
	for (int dtype = FANIN_I8; dtype <= FANIN_F64; dtype++) {
		uint64_t packet = host_rig.jobs[0]->params.payload_bytes /
				  fanin_dtype_size_of((enum fanin_dtype)dtype);
		const uint64_t counts[] = { 0, 1, packet - 1, packet + 1 };

		for (int kind = 0; kind < PERF_COLLECTIVES; kind++) {
			for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
				run((enum perf_collective_kind)kind,
				    (uint16_t)(n_collectives % host_rig.n_hosts),
				    vector_of((enum perf_collective_kind)kind, counts[i]),
				    (enum fanin_dtype)dtype, op_of((enum fanin_dtype)dtype));
		}
	}
}

static void
run_large(enum fanin_dtype dtype, enum fanin_op op)
{
	uint64_t count = LARGE_BYTES / fanin_dtype_size_of(dtype) / host_rig.n_hosts + 3;

	for (int kind = 0; kind < PERF_BARRIER; kind++)
		run((enum perf_collective_kind)kind, (uint16_t)(host_rig.n_hosts - 1),
		    count * host_rig.n_hosts, dtype, op);
}

/* ------------------------------------------------------------------ exact */

START_TEST(every_collective_is_exact_for_any_number_of_hosts)
{
	const struct host_rig_options options = {
		.handler = host_rig_handler(_i / N_HOST_COUNTS),
		.n_hosts = host_counts[_i % N_HOST_COUNTS],
	};

	world_open(&options);
	run_all();
	run_large(FANIN_F32, FANIN_SUM);
	world_close();
}
END_TEST

START_TEST(large_vectors_are_exact_for_every_type)
{
	const struct host_rig_options options = { .handler = host_rig_handler(_i), .n_hosts = 3 };

	world_open(&options);
	for (int dtype = FANIN_I8; dtype <= FANIN_F64; dtype++)
		run_large((enum fanin_dtype)dtype, op_of((enum fanin_dtype)dtype));
	world_close();
}
END_TEST

START_TEST(faults_change_nothing)
{
	const struct pipeline_faults faults = {
		.drop = 0.05, .duplicate = 0.05, .reorder = 0.05, .seed = 1 + (uint64_t)_i
	};
	const struct host_rig_options options = {
		.handler = host_rig_handler(_i / HOST_RIG_LAYOUTS),
		.n_hosts = 8,
		.layout = _i % HOST_RIG_LAYOUTS,
		.faults = &faults,
	};

	world_open(&options);
	run_all();
	run_large(FANIN_F32, FANIN_SUM);
	world_close();
}
END_TEST

START_TEST(jobs_that_accumulate_in_f32_copy_bits_as_others_do)
{
	const struct host_rig_options options = { .handler = host_rig_handler(_i),
						  .n_hosts = 3,
						  .wide = true };

	world_open(&options);
	run_large(FANIN_F16, FANIN_SUM);
	run_large(FANIN_BF16, FANIN_AVG);
	run_large(FANIN_F16, FANIN_MAX);
	world_close();
}
END_TEST

/* Bit patterns that arithmetic would change: every f16, including signalling NaNs. */
START_TEST(broadcast_and_allgather_keep_every_bit)
{
	static uint16_t vectors[HOST_RIG_HOSTS][1 << 16];
	const struct host_rig_options options = { .handler = host_rig_handler(_i), .n_hosts = 4 };
	const size_t part = (1 << 16) / 4;
	fanin_request *requests[4];
	bool done = false;

	world_open(&options);
	for (uint16_t h = 0; h < 4; h++) {
		for (size_t i = 0; i < 1 << 16; i++)
			vectors[h][i] = i / part == h ? (uint16_t)i : 0;
		ck_assert_int_eq(fanin_iallgather(vectors[h] + h * part, vectors[h], part,
						  FANIN_F16, &comms[0][h], &requests[h]),
				 FANIN_OK);
	}
	while (!done) {
		host_rig_step();
		done = true;
		for (uint16_t h = 0; h < 4; h++)
			done = done && fanin_test(requests[h]) == FANIN_OK;
	}
	for (uint16_t h = 0; h < 4; h++) {
		for (size_t i = 0; i < 1 << 16; i++)
			ck_assert_uint_eq(vectors[h][i], i);
		ck_assert_int_eq(fanin_wait(&requests[h]), FANIN_OK);
	}
	world_close();
}
END_TEST

/* ------------------------------------------------------------------ order */

START_TEST(nothing_is_done_before_every_rank_has_posted_it)
{
	const struct host_rig_options options = { .handler = host_rig_handler(_i),
						  .n_hosts = 3,
						  .late = true };

	world_open(&options);
	for (int kind = 0; kind < PERF_COLLECTIVES; kind++) {
		for (uint16_t last = 0; last < 3; last++) {
			struct calls calls;

			calls_prepare(&calls, (enum perf_collective_kind)kind, last == 0 ? 1 : 0,
				      kind == PERF_BARRIER ? 0 : 3000, FANIN_I32, FANIN_SUM);
			for (uint16_t h = 0; h < 3; h++) {
				if (h != last)
					call_post(&calls.of[h], 0);
			}
			for (int step = 0; step < 200; step++)
				host_rig_step();
			for (uint16_t h = 0; h < 3; h++) {
				if (h != last)
					ck_assert_int_eq(fanin_test(calls.of[h].request),
							 FANIN_IN_PROGRESS);
			}
			call_post(&calls.of[last], 0);
			while (!calls_done(&calls))
				host_rig_step();
			calls_finish(&calls);
		}
	}
	world_close();
}
END_TEST

/*
 * Posts MANY collectives of all kinds on a job, each rank in its own time, and finishes them in any
 * order.
 */
static void
run_mixed(uint16_t n_jobs, uint64_t seed)
{
	static struct calls calls[HOST_RIG_JOBS][MANY];
	struct random random = random_seed(seed);
	uint32_t posted[HOST_RIG_JOBS][HOST_RIG_HOSTS] = { { 0 } };
	uint32_t left = n_jobs * MANY * host_rig.n_hosts;

	for (uint16_t j = 0; j < n_jobs; j++) {
		for (uint32_t i = 0; i < MANY; i++) {
			enum perf_collective_kind kind =
				(enum perf_collective_kind)random_below(&random, PERF_COLLECTIVES);
			enum fanin_dtype dtype =
				(enum fanin_dtype)(FANIN_I8 + random_below(&random, FANIN_F64));

			calls_prepare(&calls[j][i], kind,
				      (uint16_t)random_below(&random, host_rig.n_hosts),
				      vector_of(kind, random_below(&random, 3000)), dtype,
				      op_of(dtype));
		}
	}
	while (left > 0) {
		uint16_t h = (uint16_t)random_below(&random, host_rig.n_hosts);
		uint16_t j = (uint16_t)random_below(&random, n_jobs);

		if (posted[j][h] < MANY && random_chance(&random, 0.5)) {
			call_post(&calls[j][posted[j][h]++].of[h], j);
			left--;
		} else {
			host_rig_step();
		}
	}
	for (uint32_t i = MANY; i-- > 0;) {
		for (uint16_t j = 0; j < n_jobs; j++) {
			while (!calls_done(&calls[j][i]))
				host_rig_step();
			calls_finish(&calls[j][i]);
		}
	}
}

START_TEST(many_collectives_may_be_outstanding)
{
	const struct pipeline_faults faults = {
		.drop = 0.03, .duplicate = 0.03, .reorder = 0.03, .seed = 7 + (uint64_t)_i
	};
	const struct host_rig_options options = {
		.handler = host_rig_handler(_i), .n_hosts = 5, .layout = 2, .faults = &faults
	};

	world_open(&options);
	run_mixed(1, (uint64_t)_i);
	world_close();
}
END_TEST

START_TEST(communicators_of_one_context_are_independent)
{
	const struct pipeline_faults faults = {
		.drop = 0.03, .duplicate = 0.03, .reorder = 0.03, .seed = 70 + (uint64_t)_i
	};
	const struct host_rig_options options = {
		.handler = host_rig_handler(_i), .n_hosts = 4, .n_jobs = 2, .faults = &faults
	};

	world_open(&options);
	run_mixed(2, 10 + (uint64_t)_i);
	world_close();
}
END_TEST

/*
 * Two ranks wait in opposite orders. This ends, because each of them also drives the requests that
 * it does not wait for.
 */
START_TEST(requests_of_several_communicators_may_be_waited_for_in_any_order)
{
	const struct host_rig_options options = {
		.handler = host_rig_handler(0), .n_hosts = 2, .n_jobs = 2, .late = true
	};
	struct calls calls[2];

	world_open(&options);
	for (uint16_t j = 0; j < 2; j++) {
		calls_prepare(&calls[j], PERF_ALLREDUCE, 0, 50000, FANIN_I64, FANIN_SUM);
		for (uint16_t h = 0; h < 2; h++)
			call_post(&calls[j].of[h], j);
	}
	while (!calls_done(&calls[0]) || !calls_done(&calls[1])) {
		host_rig.now_ns += 50000;
		for (uint16_t h = 0; h < 2; h++) {
			fanin_request *first = calls[h].of[h].request;
			fanin_request *second = calls[1 - h].of[h].request;

			ck_assert_int_ge(fanin_test(first), FANIN_OK);
			if (first->status == FANIN_OK)
				ck_assert_int_ge(fanin_test(second), FANIN_OK);
		}
		ring_switch_rounds(&host_rig.sw, 1);
	}
	calls_finish(&calls[0]);
	calls_finish(&calls[1]);
	world_close();
}
END_TEST

/* ------------------------------------------------------------------ errors */

/* Steps until a rank's request has failed, and frees it. */
static void
expect_failure(fanin_request **request, uint16_t rank, int status, const char *text)
{
	while ((*request)->status == FANIN_IN_PROGRESS)
		host_rig_step();
	ck_assert_int_eq(fanin_wait(request), status);
	ck_assert_str_eq(fanin_ctx_error(&contexts[rank]), text);
}

START_TEST(ranks_that_disagree_about_the_root_are_told_so)
{
	const struct host_rig_options options = {
		.handler = host_rig_handler(_i), .n_hosts = 2, .late = true, .impatient = true
	};
	int32_t vectors[2][10] = { { 0 } };
	fanin_request *requests[2];

	world_open(&options);
	for (uint16_t h = 0; h < 2; h++) {
		ck_assert_int_eq(fanin_ibroadcast(vectors[h], 10, FANIN_I32, h, &comms[0][h],
						  &requests[h]),
				 FANIN_OK);
		host_rig_step();
	}
	expect_failure(
		&requests[1], 1, FANIN_ERR_REFUSED,
		"the switch refused block 0 (10 elements i32 of rank 1): type, operator or count "
		"differ from the block's, which another rank began with 10 elements i32 of rank 0");
	expect_failure(
		&requests[0], 0, FANIN_ERR_REFUSED,
		"the switch refused block 0 of rank 1 (10 elements i32 of rank 1): type, operator or count "
		"differ from the block's, which another rank began with 10 elements i32 of rank 0; this "
		"rank posted 10 elements i32 of rank 0");
	world_abandon();
}
END_TEST

START_TEST(ranks_that_disagree_about_the_collective_are_told_so)
{
	const struct host_rig_options options = {
		.handler = host_rig_handler(_i), .n_hosts = 2, .late = true, .impatient = true
	};
	int32_t vectors[2][10] = { { 0 } };
	fanin_request *requests[2];

	world_open(&options);
	ck_assert_int_eq(fanin_ireduce(vectors[0], vectors[0], 10, FANIN_I32, FANIN_SUM, 0,
				       &comms[0][0], &requests[0]),
			 FANIN_OK);
	host_rig_step();
	ck_assert_int_eq(fanin_iallgather(vectors[1] + 5, vectors[1], 5, FANIN_I32, &comms[0][1],
					  &requests[1]),
			 FANIN_OK);
	expect_failure(
		&requests[1], 1, FANIN_ERR_REFUSED,
		"the switch refused block 0 (5 elements i32 of rank 0): type, operator or count "
		"differ from the block's, which another rank began with 10 elements i32 sum for rank 0");
	expect_failure(
		&requests[0], 0, FANIN_ERR_REFUSED,
		"the switch refused block 0 of rank 1 (5 elements i32 of rank 0): type, operator or count "
		"differ from the block's, which another rank began with 10 elements i32 sum for rank 0; "
		"this rank posted 10 elements i32 sum for rank 0");
	world_abandon();
}
END_TEST

#define EXPECT_INVALID(call, text)                                                                 \
	do {                                                                                       \
		ck_assert_int_eq(call, FANIN_ERR_INVALID);                                         \
		ck_assert_str_eq(fanin_ctx_error(&contexts[1]), text);                             \
		ck_assert_ptr_null(request);                                                       \
	} while (0)

START_TEST(arguments_are_checked)
{
	const struct host_rig_options options = { .handler = host_rig_handler(0), .n_hosts = 3 };
	const char *overlap = "send and recv overlap, but not as they do in place";
	fanin_comm *comm = &comms[0][1];
	fanin_request *request = NULL;
	int32_t vector[30] = { 0 };

	world_open(&options);
	EXPECT_INVALID(fanin_ibroadcast(vector, 3, FANIN_I32, 3, comm, &request),
		       "root is 3, expected 0 to 2");
	EXPECT_INVALID(fanin_ireduce(vector, vector, 3, FANIN_I32, FANIN_SUM, 9, comm, &request),
		       "root is 9, expected 0 to 2");
	EXPECT_INVALID(fanin_ibroadcast(NULL, 3, FANIN_I32, 0, comm, &request),
		       "buffer is NULL, but count is 3");
	EXPECT_INVALID(fanin_iallgather(vector, NULL, 3, FANIN_I32, comm, &request),
		       "recv is NULL, but count is 3");
	EXPECT_INVALID(fanin_ireduce_scatter(NULL, vector, 3, FANIN_I32, FANIN_SUM, comm, &request),
		       "send is NULL, but count is 3");
	EXPECT_INVALID(fanin_ireduce(vector, NULL, 3, FANIN_I32, FANIN_SUM, 1, comm, &request),
		       "recv is NULL, but count is 3");
	EXPECT_INVALID(
		fanin_iallgather(vector, vector, SIZE_MAX / 8, FANIN_I32, comm, &request),
		"2305843009213693951 elements of i32 for each rank exceed the address space");
	EXPECT_INVALID(fanin_ibroadcast(vector, 3, (enum fanin_dtype)99, 0, comm, &request),
		       "99 is not a data type");
	EXPECT_INVALID(fanin_iallreduce(vector, vector + 1, 3, FANIN_I32, FANIN_SUM, comm,
					&request),
		       overlap);
	/* Buffers that are in place for one rank are not in place for another. */
	EXPECT_INVALID(fanin_iallgather(vector, vector, 3, FANIN_I32, comm, &request), overlap);
	EXPECT_INVALID(fanin_ireduce_scatter(vector, vector, 3, FANIN_I32, FANIN_SUM, comm,
					     &request),
		       overlap);
	ck_assert_int_eq(fanin_ireduce(vector, vector, 3, FANIN_F32, FANIN_BXOR, 1, comm, &request),
			 FANIN_ERR_UNSUPPORTED);
	ck_assert_int_eq(fanin_ibarrier(comm, NULL), FANIN_ERR_INVALID);
	ck_assert_int_eq(fanin_barrier(NULL), FANIN_ERR_INVALID);
	ck_assert_int_eq(fanin_broadcast(vector, 3, FANIN_I32, 3, comm), FANIN_ERR_INVALID);
	ck_assert_int_eq(fanin_reduce(vector, vector, 3, FANIN_I32, FANIN_SUM, 3, comm),
			 FANIN_ERR_INVALID);
	ck_assert_int_eq(fanin_allgather(vector, vector, 3, FANIN_I32, comm), FANIN_ERR_INVALID);
	ck_assert_int_eq(fanin_reduce_scatter(vector, vector, 3, FANIN_I32, FANIN_SUM, comm),
			 FANIN_ERR_INVALID);
	/* None of these calls has posted anything. */
	run(PERF_REDUCE, 1, 100, FANIN_I32, FANIN_SUM);
	world_close();
}
END_TEST

Suite *
suite_collectives(void)
{
	Suite *suite = suite_create("collectives");
	TCase *exact = tcase_create("exact");
	TCase *order = tcase_create("order");
	TCase *errors = tcase_create("errors");
	int handlers = host_rig_handlers();

	tcase_set_timeout(exact, 300);
	tcase_add_loop_test(exact, every_collective_is_exact_for_any_number_of_hosts, 0,
			    handlers * N_HOST_COUNTS);
	tcase_add_loop_test(exact, large_vectors_are_exact_for_every_type, 0, handlers);
	tcase_add_loop_test(exact, faults_change_nothing, 0, handlers * HOST_RIG_LAYOUTS);
	tcase_add_loop_test(exact, jobs_that_accumulate_in_f32_copy_bits_as_others_do, 0, handlers);
	tcase_add_loop_test(exact, broadcast_and_allgather_keep_every_bit, 0, handlers);
	suite_add_tcase(suite, exact);

	tcase_set_timeout(order, 300);
	tcase_add_loop_test(order, nothing_is_done_before_every_rank_has_posted_it, 0, handlers);
	tcase_add_loop_test(order, many_collectives_may_be_outstanding, 0, handlers);
	tcase_add_loop_test(order, communicators_of_one_context_are_independent, 0, handlers);
	tcase_add_test(order, requests_of_several_communicators_may_be_waited_for_in_any_order);
	suite_add_tcase(suite, order);

	tcase_set_timeout(errors, 300);
	tcase_add_loop_test(errors, ranks_that_disagree_about_the_root_are_told_so, 0, handlers);
	tcase_add_loop_test(errors, ranks_that_disagree_about_the_collective_are_told_so, 0,
			    handlers);
	tcase_add_test(errors, arguments_are_checked);
	suite_add_tcase(suite, errors);
	return suite;
}
