/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every data type and operator end to end: the hosts' engines, in one process, exchange frames with the real pipeline, for
 * every handler and several numbers of hosts and elements. Each element of each host's result is compared with what
 * tools/perf_data.c computes without a switch; its data make the result exact in any order.
 *
 * An engine lives as long as its test, so that one collective follows another in the same slots. Only the test moves the
 * hosts' clock. Odd ranks reduce in place.
 */
#include <stdlib.h>
#include <string.h>

#include "hostlib/src/engine.h"
#include "tests/unit/memory_link.h"
#include "tests/unit/ring_switch.h"
#include "tests/unit/suites.h"
#include "tools/perf_data.h"

#define MAX_HOSTS RING_SWITCH_MAX_PORTS
#define LARGE_BYTES (1u << 20)
#define LARGE_MORE 3 /* elements */
#define GUARD UINT64_C(0xdeadbeefdeadbeef)
#define BUFFER_BYTES (LARGE_BYTES + (LARGE_MORE + 1) * 8u) /* with the guard */
#define STEP_NS 50000
#define TIMEOUT_NS (5 * UINT64_C(1000000000))

static const uint16_t host_counts[] = { 1, 2, 3, 8, 16 };

#define N_HOST_COUNTS (int)(sizeof(host_counts) / sizeof(host_counts[0]))

static const struct {
	uint16_t n_workers;
	uint16_t cluster_size;
} layouts[] = { { 1, 1 }, { 2, 1 }, { 2, 2 } };

#define N_LAYOUTS (int)(sizeof(layouts) / sizeof(layouts[0]))

enum size {
	SIZE_EMPTY,
	SIZE_ONE,
	SIZE_PACKET_LESS, /* whole elements in one byte less than a packet holds */
	SIZE_PACKET_MORE, /* one element more than a packet holds */
	SIZE_LARGE,
	N_SIZES,
};

/* A host: its engine, and the link to its port of the switch. */
struct host {
	struct memory_link link; /* the first: a pointer to it is one to the host */
	uint16_t rank;
	struct fanin_engine *engine;
	struct fanin_request request;
	uint8_t *send;
	uint8_t *recv; /* odd ranks: send */
};

static struct ring_switch sw;
static struct host hosts[MAX_HOSTS];
static uint16_t n_hosts;
static struct job *job;
static bool wide; /* the job accumulates in f32 what fanin_operation_widens names */
static bool lossy;
static uint8_t *expected;
static uint64_t now_ns;
static uint32_t n_collectives;

/* ------------------------------------------------------------------ links */

static void
host_put(struct memory_link *link, const void *frame, uint32_t len)
{
	ring_switch_enqueue(&sw, ((const struct host *)link)->rank, frame, len);
}

static size_t
host_take(struct memory_link *link, void *frame)
{
	return ring_switch_take(&sw, ((const struct host *)link)->rank, frame);
}

/* ------------------------------------------------------------------ world */

static uint64_t
clock_now(void *arg)
{
	(void)arg;
	return now_ns;
}

/* Joins until the run has begun, whatever the injector does; returns its epoch. The switch tells whether the job is wide. */
static uint32_t
join_all(void)
{
	static uint8_t answer[4096] __attribute__((aligned(8)));
	const struct fanin_headers *headers = (const struct fanin_headers *)answer;
	const struct fanin_join_ack_body *ack = (const struct fanin_join_ack_body *)(headers + 1);

	for (unsigned int attempt = 0; job->epoch == 0; attempt++) {
		ck_assert_uint_lt(attempt, 1000);
		for (uint16_t h = 0; h < n_hosts; h++) {
			if (host_join(&sw, h, job->params.id, 1u + h, n_hosts,
				      (struct fanin_headers *)answer) != NULL &&
			    headers->fanin.type == FANIN_TYPE_JOIN_ACK)
				wide = (ack->flags & FANIN_JOB_WIDE) != 0;
		}
	}
	/* Answers that the injector held back or doubled are not for the engines. */
	ring_switch_rounds(&sw, 4 * FAULTS_MAX_DELAY);
	for (uint16_t h = 0; h < n_hosts; h++) {
		while (ring_switch_take(&sw, h, answer) != 0)
			;
	}
	return job->epoch;
}

static void
host_open(struct host *host, uint16_t rank, uint32_t epoch)
{
	struct fanin_engine_config config = {
		.flow = {
			.dst_ip_be = sw.pipeline->ip_be,
			.src_ip_be = host_ip_be(rank),
			.dst_port = FANIN_WIRE_DEFAULT_UDP_PORT,
		},
		.key = RING_SWITCH_KEY,
		.timeout_ns = TIMEOUT_NS,
		.job = job->params.id,
		.epoch = epoch,
		.rank = rank,
		.size = n_hosts,
		.window = job->params.window,
		.payload_bytes = job->params.payload_bytes,
		.wide = wide,
		.stagger = true,
		.now_ns = clock_now,
	};

	memcpy(config.flow.dst_mac, sw.pipeline->mac, sizeof(config.flow.dst_mac));
	host_mac(rank, config.flow.src_mac);
	memset(host, 0, sizeof(*host));
	host->rank = rank;
	memory_link_init(&host->link, host_put, host_take);
	host->send = calloc(1, BUFFER_BYTES);
	host->recv = rank % 2 != 0 ? host->send : calloc(1, BUFFER_BYTES);
	ck_assert_ptr_nonnull(host->send);
	ck_assert_ptr_nonnull(host->recv);
	ck_assert_int_eq(fanin_engine_create(&config, &host->link.transport, &host->engine),
			 FANIN_OK);
}

static void
host_close(struct host *host)
{
	fanin_engine_destroy(host->engine);
	if (host->recv != host->send)
		free(host->recv);
	free(host->send);
}

static void
world_open_as(const struct fanin_handler *handler, uint16_t size, int layout,
	      const struct pipeline_faults *faults, bool is_wide)
{
	uint32_t epoch;

	n_hosts = size;
	now_ns = 1000000000;
	n_collectives = 0;
	lossy = faults != NULL;
	expected = malloc(BUFFER_BYTES);
	ck_assert_ptr_nonnull(expected);
	ring_switch_eal();
	ring_switch_open_clusters(&sw, n_hosts, layouts[layout].n_workers,
				  layouts[layout].cluster_size, faults);
	job = ring_switch_job_of(&sw, handler->name, n_hosts, 0);
	job->params.wide = is_wide;
	epoch = join_all();
	ck_assert(wide == is_wide);
	for (uint16_t h = 0; h < n_hosts; h++)
		host_open(&hosts[h], h, epoch);
}

static void
world_open(const struct fanin_handler *handler, uint16_t size, int layout,
	   const struct pipeline_faults *faults)
{
	world_open_as(handler, size, layout, faults, false);
}

/* Each block was reduced once; what was sent again was so because of the injector. */
static void
world_check(void)
{
	uint64_t blocks = fanin_engine_stats(hosts[0].engine)->blocks;
	struct fanin_handler_stats stats;
	struct counters sum;

	ck_assert_uint_ge(blocks, n_collectives);
	job_stats(job, &stats);
	ck_assert_uint_eq(stats.results, blocks);
	ck_assert_uint_eq(stats.contributions, blocks * n_hosts);
	for (uint16_t h = 0; h < n_hosts; h++) {
		const struct fanin_engine_stats *engine = fanin_engine_stats(hosts[h].engine);

		ck_assert_uint_eq(engine->blocks, blocks);
		ck_assert_uint_eq(engine->invalid, 0);
		if (!lossy)
			ck_assert_uint_eq(engine->frames_sent, blocks);
	}
	pipeline_counters(sw.pipeline, &sum);
	ck_assert(lossy == (sum.drops[FANIN_REASON_FAULT_DROP] != 0));
	ck_assert(lossy == (sum.fault_duplicates != 0));
	ck_assert(lossy == (sum.fault_reorders != 0));
}

static void
world_close(void)
{
	ring_switch_rounds(&sw, 4 * FAULTS_MAX_DELAY);
	world_check();
	for (uint16_t h = 0; h < n_hosts; h++)
		host_close(&hosts[h]);
	free(expected);
	ring_switch_close(&sw);
}

/* ------------------------------------------------------------ collectives */

static uint64_t
elements_of(enum size size, enum fanin_dtype dtype, enum fanin_op op)
{
	uint32_t element_bytes = (uint32_t)fanin_dtype_size_of(dtype);
	uint32_t payload_bytes = fanin_payload_limit(job->params.payload_bytes, wide, dtype, op);

	switch (size) {
	case SIZE_ONE:
		return 1;
	case SIZE_PACKET_LESS:
		return (payload_bytes - 1) / element_bytes;
	case SIZE_PACKET_MORE:
		return payload_bytes / element_bytes + 1;
	case SIZE_LARGE:
		return LARGE_BYTES / element_bytes + LARGE_MORE;
	default:
		return 0;
	}
}

static void
host_post(struct host *host, const struct perf_data *data, uint64_t count)
{
	uint64_t bytes = count * fanin_dtype_size_of(data->dtype);
	const uint64_t guard = GUARD;

	if (host->recv != host->send)
		memset(host->recv, 0xa5, bytes);
	perf_data_fill(data, host->rank, 0, 0, count, host->send);
	memcpy(host->recv + bytes, &guard, sizeof(guard));
	host->request = (struct fanin_request){
		.send = host->send,
		.recv = host->recv,
		.dtype = (uint8_t)data->dtype,
		.op = (uint8_t)data->op,
	};
	ck_assert_int_eq(fanin_engine_post(host->engine, &host->request, count), FANIN_OK);
}

static bool
all_done(void)
{
	for (uint16_t h = 0; h < n_hosts; h++) {
		if (hosts[h].request.status == FANIN_IN_PROGRESS)
			return false;
	}
	return true;
}

/* Until all hosts are done; their engines give up if nothing comes. Every host is the first one at times. */
static void
run(void)
{
	for (uint32_t step = n_collectives; !all_done(); step++) {
		now_ns += STEP_NS;
		for (uint16_t i = 0; i < n_hosts; i++)
			fanin_engine_poll(hosts[(step + i) % n_hosts].engine);
		ring_switch_rounds(&sw, 1);
	}
}

/* Why a host's result is wrong, or NULL. */
static const char *
result_fault(const struct host *host, uint64_t bytes)
{
	const uint64_t guard = GUARD;

	if (host->request.status != FANIN_OK)
		return fanin_engine_error(host->engine)->text;
	if (host->request.done_bytes != bytes)
		return "not all bytes are done";
	if (memcmp(host->recv, expected, bytes) != 0)
		return "the result differs";
	if (memcmp(host->recv + bytes, &guard, sizeof(guard)) != 0)
		return "bytes behind the result are overwritten";
	return NULL;
}

/* Bytes before the first one that differs. */
static uint64_t
bytes_right(const struct host *host, uint64_t bytes)
{
	uint64_t i = 0;

	while (i < bytes && host->recv[i] == expected[i])
		i++;
	return i;
}

static void
allreduce(enum fanin_dtype dtype, enum fanin_op op, enum size size)
{
	const struct perf_data data = {
		.dtype = dtype, .op = op, .seed = ++n_collectives, .size = n_hosts, .wide = wide
	};
	uint64_t element_bytes = fanin_dtype_size_of(dtype);
	uint64_t count = elements_of(size, dtype, op);

	for (uint16_t h = 0; h < n_hosts; h++)
		host_post(&hosts[h], &data, count);
	run();
	perf_data_expect(&data, 0, 0, count, expected);
	for (uint16_t h = 0; h < n_hosts; h++) {
		const char *fault = result_fault(&hosts[h], count * element_bytes);

		if (fault != NULL)
			ck_abort_msg("%s, %u hosts, %s of %ju elements %s: rank %u: %s; right up to element %ju",
				     job->handler->name, n_hosts, fanin_op_name_of(op),
				     (uintmax_t)count, fanin_dtype_name_of(dtype), h, fault,
				     (uintmax_t)(bytes_right(&hosts[h], count * element_bytes) /
						 element_bytes));
	}
}

/* Every data type with every operator that it has, at the sizes from first to last. */
static void
sweep(enum size first, enum size last)
{
	for (int dtype = FANIN_I8; dtype <= FANIN_F64; dtype++) {
		for (int op = FANIN_SUM; op <= FANIN_AVG; op++) {
			if (!fanin_supports((enum fanin_dtype)dtype, (enum fanin_op)op))
				continue;
			for (int size = (int)first; size <= (int)last; size++)
				allreduce((enum fanin_dtype)dtype, (enum fanin_op)op,
					  (enum size)size);
		}
	}
}

/* ------------------------------------------------------------------ tests */

static int
n_handlers(void)
{
	int n = 0;

	for (const struct fanin_handler *h = fanin_handler_first(); h != NULL; h = h->next)
		n++;
	return n;
}

static const struct fanin_handler *
handler_at(int index)
{
	const struct fanin_handler *handler = fanin_handler_first();

	while (index-- > 0)
		handler = handler->next;
	return handler;
}

START_TEST(every_type_and_operator_is_exact_for_any_number_of_hosts)
{
	world_open(handler_at(_i / N_HOST_COUNTS), host_counts[_i % N_HOST_COUNTS], 0, NULL);
	sweep(SIZE_EMPTY, SIZE_PACKET_MORE);
	world_close();
}
END_TEST

START_TEST(large_vectors_are_exact_for_any_number_of_hosts)
{
	world_open(handler_at(_i / N_HOST_COUNTS), host_counts[_i % N_HOST_COUNTS], 0, NULL);
	allreduce(FANIN_F32, FANIN_SUM, SIZE_LARGE);
	world_close();
}
END_TEST

START_TEST(large_vectors_are_exact_for_every_type_and_operator)
{
	world_open(handler_at(_i), 3, 0, NULL);
	sweep(SIZE_LARGE, SIZE_LARGE);
	world_close();
}
END_TEST

START_TEST(two_workers_change_nothing)
{
	world_open(handler_at(_i / 2), 8, 1 + _i % 2, NULL);
	sweep(SIZE_EMPTY, SIZE_PACKET_MORE);
	allreduce(FANIN_F32, FANIN_SUM, SIZE_LARGE);
	world_close();
}
END_TEST

START_TEST(injected_faults_change_nothing)
{
	const struct pipeline_faults faults = {
		.drop = 0.05, .duplicate = 0.05, .reorder = 0.05, .seed = 1 + (uint64_t)_i
	};

	world_open(handler_at(_i / N_LAYOUTS), 8, _i % N_LAYOUTS, &faults);
	sweep(SIZE_EMPTY, SIZE_PACKET_MORE);
	allreduce(FANIN_F32, FANIN_SUM, SIZE_LARGE);
	world_close();
}
END_TEST

START_TEST(wide_jobs_are_exact_for_any_number_of_hosts)
{
	world_open_as(handler_at(_i / N_HOST_COUNTS), host_counts[_i % N_HOST_COUNTS], 0, NULL, true);
	sweep(SIZE_ONE, SIZE_PACKET_MORE);
	allreduce(FANIN_F16, FANIN_SUM, SIZE_LARGE);
	allreduce(FANIN_BF16, FANIN_AVG, SIZE_LARGE);
	world_close();
}
END_TEST

START_TEST(injected_faults_change_nothing_in_wide_jobs)
{
	const struct pipeline_faults faults = {
		.drop = 0.05, .duplicate = 0.05, .reorder = 0.05, .seed = 1 + (uint64_t)_i
	};

	world_open_as(handler_at(_i / N_LAYOUTS), 8, _i % N_LAYOUTS, &faults, true);
	allreduce(FANIN_F16, FANIN_SUM, SIZE_LARGE);
	allreduce(FANIN_F16, FANIN_MAX, SIZE_LARGE);
	allreduce(FANIN_BF16, FANIN_AVG, SIZE_LARGE);
	world_close();
}
END_TEST

Suite *
suite_sweep(void)
{
	Suite *suite = suite_create("sweep");
	TCase *all = tcase_create("all");
	int handlers = n_handlers();

	tcase_set_timeout(all, 120);
	tcase_add_loop_test(all, every_type_and_operator_is_exact_for_any_number_of_hosts, 0,
			    handlers * N_HOST_COUNTS);
	tcase_add_loop_test(all, large_vectors_are_exact_for_any_number_of_hosts, 0,
			    handlers * N_HOST_COUNTS);
	tcase_add_loop_test(all, large_vectors_are_exact_for_every_type_and_operator, 0, handlers);
	tcase_add_loop_test(all, two_workers_change_nothing, 0, handlers * 2);
	tcase_add_loop_test(all, injected_faults_change_nothing, 0, handlers * N_LAYOUTS);
	tcase_add_loop_test(all, wide_jobs_are_exact_for_any_number_of_hosts, 0,
			    handlers * N_HOST_COUNTS);
	tcase_add_loop_test(all, injected_faults_change_nothing_in_wide_jobs, 0,
			    handlers * N_LAYOUTS);
	suite_add_tcase(suite, all);
	return suite;
}
