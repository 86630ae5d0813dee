/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every data type and operator end to end, by the hosts and the switch of host_rig.h, for every
 * handler and several numbers of hosts and elements. Each element of each host's result is compared
 * with the one that lab/reference/perf_data.c computes without a switch; its data makes the result
 * exact in any order. Odd ranks reduce in place.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/unit/host_rig.h"
#include "tests/unit/suites.h"
#include "lab/reference/perf_data.h"

#define LARGE_BYTES (1u << 20)
#define LARGE_MORE 3 /* elements */
#define GUARD UINT64_C(0xdeadbeefdeadbeef)
#define BUFFER_BYTES (LARGE_BYTES + (LARGE_MORE + 1) * 8u) /* including the guard */

static const uint16_t host_counts[] = { 1, 2, 3, 8, 16 };

#define N_HOST_COUNTS (int)(sizeof(host_counts) / sizeof(host_counts[0]))

enum size {
	SIZE_EMPTY,
	SIZE_ONE,
	SIZE_PACKET_LESS, /* whole elements in one byte less than a packet holds */
	SIZE_PACKET_MORE, /* one element more than a packet holds */
	SIZE_LARGE,
	N_SIZES,
};

/* The vectors of a host. */
struct buffers {
	uint8_t *send;
	uint8_t *recv; /* at odd ranks the same as send */
	struct fanin_request request;
};

static struct buffers buffers[HOST_RIG_HOSTS];
static uint8_t *expected;
static uint32_t n_collectives;

/* ------------------------------------------------------------------ world */

static void
world_open_with(const struct host_rig_options *options)
{
	n_collectives = 0;
	expected = malloc(BUFFER_BYTES);
	ck_assert_ptr_nonnull(expected);
	host_rig_open(options);
	for (uint16_t rank = 0; rank < options->n_hosts; rank++) {
		buffers[rank].send = calloc(1, BUFFER_BYTES);
		buffers[rank].recv = rank % 2 != 0 ? buffers[rank].send : calloc(1, BUFFER_BYTES);
		ck_assert_ptr_nonnull(buffers[rank].send);
		ck_assert_ptr_nonnull(buffers[rank].recv);
	}
}

static void
world_open_as(const struct fanin_handler *handler, uint16_t size, int layout,
	      const struct pipeline_faults *faults, bool is_wide)
{
	const struct host_rig_options options = { .handler = handler,
						  .n_hosts = size,
						  .layout = layout,
						  .faults = faults,
						  .wide = is_wide };

	world_open_with(&options);
}

static void
world_open(const struct fanin_handler *handler, uint16_t size, int layout,
	   const struct pipeline_faults *faults)
{
	world_open_as(handler, size, layout, faults, false);
}

static void
world_close(void)
{
	ck_assert_uint_ge(fanin_engine_stats(host_rig.hosts[0][0].engine)->blocks, n_collectives);
	host_rig_close();
	for (uint16_t rank = 0; rank < host_rig.n_hosts; rank++) {
		if (buffers[rank].recv != buffers[rank].send)
			free(buffers[rank].recv);
		free(buffers[rank].send);
	}
	free(expected);
}

/* ------------------------------------------------------------ collectives */

static uint64_t
elements_of(enum size size, enum fanin_dtype dtype, enum fanin_op op)
{
	uint32_t element_bytes = (uint32_t)fanin_dtype_size_of(dtype);
	uint32_t payload_bytes = fanin_payload_limit(host_rig.jobs[0]->params.payload_bytes,
						     host_rig.wide, dtype, op);

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
host_post(uint16_t rank, const struct perf_data *data, uint64_t count)
{
	struct buffers *own = &buffers[rank];
	uint64_t bytes = count * fanin_dtype_size_of(data->dtype);
	const uint64_t guard = GUARD;

	if (own->recv != own->send)
		memset(own->recv, 0xa5, bytes);
	perf_data_fill(data, rank, 0, 0, count, own->send);
	memcpy(own->recv + bytes, &guard, sizeof(guard));
	own->request = (struct fanin_request){
		.send = own->send,
		.recv = own->recv,
		.dtype = (uint8_t)data->dtype,
		.op = (uint8_t)data->op,
	};
	ck_assert_int_eq(fanin_engine_post(host_rig.hosts[0][rank].engine, &own->request, count),
			 FANIN_OK);
}

static bool
all_done(void)
{
	for (uint16_t h = 0; h < host_rig.n_hosts; h++) {
		if (buffers[h].request.status == FANIN_IN_PROGRESS)
			return false;
	}
	return true;
}

/* Returns the error in a host's result, or NULL. */
static const char *
result_fault(uint16_t rank, uint64_t bytes)
{
	const struct buffers *own = &buffers[rank];
	const uint64_t guard = GUARD;

	if (own->request.status != FANIN_OK)
		return fanin_engine_error(host_rig.hosts[0][rank].engine)->text;
	if (own->request.done_bytes != bytes)
		return "not all bytes are done";
	if (memcmp(own->recv, expected, bytes) != 0)
		return "the result differs";
	if (memcmp(own->recv + bytes, &guard, sizeof(guard)) != 0)
		return "bytes behind the result are overwritten";
	return NULL;
}

/* Returns the number of bytes before the first difference. */
static uint64_t
bytes_right(const struct buffers *own, uint64_t bytes)
{
	uint64_t i = 0;

	while (i < bytes && own->recv[i] == expected[i])
		i++;
	return i;
}

static void
allreduce(enum fanin_dtype dtype, enum fanin_op op, enum size size)
{
	const struct perf_data data = {
		.dtype = dtype,
		.op = op,
		.seed = ++n_collectives,
		.size = host_rig.n_hosts,
		.wide = host_rig.wide,
	};
	uint64_t element_bytes = fanin_dtype_size_of(dtype);
	uint64_t count = elements_of(size, dtype, op);

	for (uint16_t h = 0; h < host_rig.n_hosts; h++)
		host_post(h, &data, count);
	/* If nothing comes the engines time out. */
	while (!all_done())
		host_rig_step();
	perf_data_expect(&data, 0, 0, count, expected);
	for (uint16_t h = 0; h < host_rig.n_hosts; h++) {
		const char *fault = result_fault(h, count * element_bytes);

		if (fault != NULL)
			ck_abort_msg(
				"%s, %u hosts, %s of %ju elements %s: rank %u: %s; right up to element %ju",
				host_rig.jobs[0]->handler->name, host_rig.n_hosts,
				fanin_op_name_of(op), (uintmax_t)count, fanin_dtype_name_of(dtype),
				h, fault,
				(uintmax_t)(bytes_right(&buffers[h], count * element_bytes) /
					    element_bytes));
	}
}

/* Reduces every data type with each of its operators, at the sizes from first to last. */
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

START_TEST(every_type_and_operator_is_exact_for_any_number_of_hosts)
{
	world_open(host_rig_handler(_i / N_HOST_COUNTS), host_counts[_i % N_HOST_COUNTS], 0, NULL);
	sweep(SIZE_EMPTY, SIZE_PACKET_MORE);
	world_close();
}
END_TEST

START_TEST(large_vectors_are_exact_for_any_number_of_hosts)
{
	world_open(host_rig_handler(_i / N_HOST_COUNTS), host_counts[_i % N_HOST_COUNTS], 0, NULL);
	allreduce(FANIN_F32, FANIN_SUM, SIZE_LARGE);
	world_close();
}
END_TEST

START_TEST(large_vectors_are_exact_for_every_type_and_operator)
{
	world_open(host_rig_handler(_i), 3, 0, NULL);
	sweep(SIZE_LARGE, SIZE_LARGE);
	world_close();
}
END_TEST

START_TEST(two_workers_change_nothing)
{
	world_open(host_rig_handler(_i / 2), 8, 1 + _i % 2, NULL);
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

	world_open(host_rig_handler(_i / HOST_RIG_LAYOUTS), 8, _i % HOST_RIG_LAYOUTS, &faults);
	sweep(SIZE_EMPTY, SIZE_PACKET_MORE);
	allreduce(FANIN_F32, FANIN_SUM, SIZE_LARGE);
	world_close();
}
END_TEST

START_TEST(wide_jobs_are_exact_for_any_number_of_hosts)
{
	world_open_as(host_rig_handler(_i / N_HOST_COUNTS), host_counts[_i % N_HOST_COUNTS], 0,
		      NULL, true);
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

	world_open_as(host_rig_handler(_i / HOST_RIG_LAYOUTS), 8, _i % HOST_RIG_LAYOUTS, &faults,
		      true);
	allreduce(FANIN_F16, FANIN_SUM, SIZE_LARGE);
	allreduce(FANIN_F16, FANIN_MAX, SIZE_LARGE);
	allreduce(FANIN_BF16, FANIN_AVG, SIZE_LARGE);
	world_close();
}
END_TEST

START_TEST(tags_change_nothing)
{
	const struct pipeline_faults faults = {
		.drop = 0.05, .duplicate = 0.05, .reorder = 0.05, .seed = 1 + (uint64_t)_i
	};
	const struct host_rig_options options = {
		.handler = host_rig_handler(_i / (2 * HOST_RIG_LAYOUTS)),
		.n_hosts = 3,
		.layout = _i / 2 % HOST_RIG_LAYOUTS,
		.faults = _i % 2 != 0 ? &faults : NULL,
		.authenticate = true,
	};

	world_open_with(&options);
	sweep(SIZE_EMPTY, SIZE_PACKET_MORE);
	allreduce(FANIN_F32, FANIN_SUM, SIZE_LARGE);
	world_close();
}
END_TEST

Suite *
suite_sweep(void)
{
	Suite *suite = suite_create("sweep");
	TCase *all = tcase_create("all");
	int handlers = host_rig_handlers();

	tcase_set_timeout(all, 300);
	tcase_add_loop_test(all, every_type_and_operator_is_exact_for_any_number_of_hosts, 0,
			    handlers * N_HOST_COUNTS);
	tcase_add_loop_test(all, large_vectors_are_exact_for_any_number_of_hosts, 0,
			    handlers * N_HOST_COUNTS);
	tcase_add_loop_test(all, large_vectors_are_exact_for_every_type_and_operator, 0, handlers);
	tcase_add_loop_test(all, two_workers_change_nothing, 0, handlers * 2);
	tcase_add_loop_test(all, injected_faults_change_nothing, 0, handlers * HOST_RIG_LAYOUTS);
	tcase_add_loop_test(all, wide_jobs_are_exact_for_any_number_of_hosts, 0,
			    handlers * N_HOST_COUNTS);
	tcase_add_loop_test(all, injected_faults_change_nothing_in_wide_jobs, 0,
			    handlers * HOST_RIG_LAYOUTS);
	tcase_add_loop_test(all, tags_change_nothing, 0, handlers * HOST_RIG_LAYOUTS * 2);
	suite_add_tcase(suite, all);
	return suite;
}
