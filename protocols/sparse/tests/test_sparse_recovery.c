/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sparse allreduces whose tree is lost at any moment, in virtual time: real engines around real
 * pipelines on leaves below two spines. All ranks get the same bits, even of requests that some of
 * them had finished, whose callers reuse all their memory at once.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/rig/leaf_spine.h"
#include "tests/unit/ring_switch.h"
#include "tests/unit/sparse_vectors.h"
#include "tests/unit/suites.h"
#include "hostlib/src/cc/cc.h"
#include "hostlib/src/engine/engine.h"
#include "protocols/dense/host/window.h"

#define SECOND_NS UINT64_C(1000000000)
#define N_INDICES 9000
#define N_REQUESTS 4
#define SLOTS 32 /* of a job; each slot keeps a result of this many packets */
#define N_SETTINGS 20
#define N_POINTS 11
#define N_DENSE 3000
#define OVERWRITTEN 0x55

struct setting {
	struct sparse_vectors_options vectors;
	const char *handler;
	uint16_t per_leaf;
	bool faults;
	bool rough; /* values whose sum depends on the order */
};

/* A rank's result of a request, from before its memory was reused. */
struct taken {
	bool is_taken;
	struct fanin_sparse_result result;
	uint64_t done_bytes;
};

static struct {
	const struct setting *setting;
	struct rig *rig;
	struct rig_leaf_spine network;
	struct rig_job job;
	uint16_t spine;
	uint32_t first_block;
	struct fanin_endpoint *engines[SPARSE_MAX_RANKS];
	struct sparse_vectors *vectors[N_REQUESTS];
	struct taken taken[N_REQUESTS][SPARSE_MAX_RANKS];
	/* A dense request among them, in place. */
	struct fanin_request dense[SPARSE_MAX_RANKS];
	uint32_t *elements[SPARSE_MAX_RANKS];
	bool dense_taken[SPARSE_MAX_RANKS];
	struct random random;
	unsigned int n_lost;
	uint64_t known; /* blocks told as known, at all switches that no longer exist */
	uint64_t duration_ns;
} world;

static void *
copy_of(const void *data, size_t len)
{
	void *copy = malloc(len + 1);

	ck_assert_ptr_nonnull(copy);
	memcpy(copy, data, len);
	return copy;
}

/*
 * Reads the result of a request that is done at a rank, and then overwrites all memory that the
 * request had.
 */
static void
take(unsigned int r, uint16_t rank)
{
	struct sparse_vectors *vectors = world.vectors[r];
	const struct sparse_vectors_options *options = &vectors->options;
	const size_t values_len = (options->n + 1) * vectors->element_bytes;
	struct fanin_sparse_result *result = &vectors->results[rank];
	struct taken *taken = &world.taken[r][rank];

	ck_assert_msg(vectors->requests[rank].status == FANIN_OK, "rank %u: %s", rank,
		      fanin_engine_error(world.engines[rank])->text);
	taken->is_taken = true;
	taken->done_bytes = vectors->requests[rank].done_bytes;
	taken->result = *result;
	if (result->dense != NULL) {
		taken->result.dense = copy_of(result->dense,
					      options->n * vectors->element_bytes + 1);
		memset(result->dense, OVERWRITTEN, options->n * vectors->element_bytes + 1);
	} else {
		taken->result.indices = copy_of(result->indices,
						result->count * options->index_bytes);
		taken->result.values = copy_of(result->values,
					       result->count * vectors->element_bytes);
		memset(result->indices, OVERWRITTEN, result->count * options->index_bytes);
		memset(result->values, OVERWRITTEN, result->count * vectors->element_bytes);
	}
	memset(vectors->indices[rank], OVERWRITTEN, (options->n + 1) * options->index_bytes);
	memset(vectors->values[rank], OVERWRITTEN, values_len);
	fanin_vector_free(vectors->requests[rank].sparse);
	vectors->requests[rank].sparse = NULL;
}

static void
post_dense(uint16_t rank)
{
	world.elements[rank] = malloc(N_DENSE * sizeof(uint32_t));
	ck_assert_ptr_nonnull(world.elements[rank]);
	for (uint32_t i = 0; i < N_DENSE; i++)
		world.elements[rank][i] = (rank + 1u) * i;
	world.dense[rank] = (struct fanin_request){
		.collective = FANIN_COLLECTIVE_ALLREDUCE,
		.dtype = FANIN_WIRE_U32,
		.op = FANIN_WIRE_SUM,
		.send = (uint8_t *)world.elements[rank],
		.recv = (uint8_t *)world.elements[rank],
	};
	ck_assert_int_eq(fanin_engine_post(world.engines[rank], &world.dense[rank], N_DENSE),
			 FANIN_OK);
}

static void
take_dense(uint16_t rank)
{
	const uint32_t n_ranks = world.setting->vectors.n_ranks;

	ck_assert_int_eq(world.dense[rank].status, FANIN_OK);
	for (uint32_t i = 0; i < N_DENSE; i++)
		ck_assert_uint_eq(world.elements[rank][i], n_ranks * (n_ranks + 1) / 2 * i);
	memset(world.elements[rank], OVERWRITTEN, N_DENSE * sizeof(uint32_t));
	world.dense_taken[rank] = true;
}

static void
poll_rank(struct rig_host *host, void *user)
{
	const uint16_t rank = (uint16_t)(uintptr_t)user;
	struct fanin_endpoint *engine = world.engines[rank];
	uint64_t idle_ns;

	fanin_engine_poll(engine);
	for (unsigned int r = 0; r < N_REQUESTS; r++) {
		if (!world.taken[r][rank].is_taken &&
		    world.vectors[r]->requests[rank].status != FANIN_IN_PROGRESS)
			take(r, rank);
	}
	if (!world.dense_taken[rank] && world.dense[rank].status != FANIN_IN_PROGRESS)
		take_dense(rank);
	idle_ns = fanin_engine_idle_ns(engine);
	if (idle_ns != UINT64_MAX)
		rig_host_wake(host, rig_now_ns(world.rig) + RTE_MAX(idle_ns, 1u));
}

static void
join(void)
{
	const struct job_spec spec = { .handler = world.setting->handler, .id = world.job.id };
	char error[PIPELINE_ERROR_LEN] = "";
	int ret = rig_job_create(&world.network, &spec, world.setting->vectors.n_ranks, world.spine,
				 &world.job, error);

	ck_assert_msg(ret == 0, "%s", error);
	ck_assert_int_eq(rig_job_join(&world.job, 600 * SECOND_NS), 0);
	for (uint16_t rank = 0; rank < world.job.n_ranks; rank++)
		rig_host_set_poll(world.network.hosts[rank], poll_rank, (void *)(uintptr_t)rank);
}

/* Replaces all values by numbers between 1 and 2, times random powers of two. */
static void
roughen(struct sparse_vectors *vectors)
{
	ck_assert_uint_eq(vectors->options.dtype, FANIN_WIRE_F32);
	for (uint16_t rank = 0; rank < vectors->options.n_ranks; rank++) {
		for (uint64_t i = 0; i < vectors->nnz[rank]; i++) {
			const float value =
				(1 + (float)random_below(&world.random, 1 << 20) / (1 << 20)) *
				(float)(1 << random_below(&world.random, 20));

			memcpy(vectors->values[rank] + i * sizeof(value), &value, sizeof(value));
		}
	}
}

static void
open_world(const struct setting *setting, uint64_t seed)
{
	const uint16_t n_ranks = setting->vectors.n_ranks;
	const struct rig_options rig_options = { .seed = seed, .n_packets = 32767, .mtu = 1500 };
	const struct rig_leaf_spine_options options = {
		.n_leaves = (uint16_t)(n_ranks / setting->per_leaf),
		.hosts_per_leaf = setting->per_leaf,
		.n_spines = 2,
		.host_end = { .egress = { .rate_mbit = 10000 }, .delay_ns = 1000 },
		.up_end = { .egress = { .rate_mbit = 10000 }, .delay_ns = 2000 },
		.faults = { .drop = setting->faults ? 0.05 : 0,
			    .duplicate = setting->faults ? 0.05 : 0,
			    .reorder = setting->faults ? 0.05 : 0,
			    .seed = seed },
		.max_jobs = 1,
		.slots = SLOTS * (FANIN_SHARDS_MAX + 1),
	};
	char error[PIPELINE_ERROR_LEN] = "";
	int ret;

	memset(&world, 0, sizeof(world));
	world.setting = setting;
	world.random = random_seed(seed);
	world.rig = rig_create(&rig_options, error);
	ck_assert_msg(world.rig != NULL, "%s", error);
	ret = rig_leaf_spine_build(world.rig, &options, &world.network, error);
	ck_assert_msg(ret == 0, "%s", error);
	rig_run(world.rig, rig_now_ns(world.rig) + SECOND_NS, NULL, NULL);
	join();
	for (uint16_t rank = 0; rank < n_ranks; rank++) {
		struct fanin_protocol_config config = { .timeout_ns = 5 * SECOND_NS,
							.cc = &fanin_cc_fixed,
							.recover = true };
		struct fanin_error why = { 0 };

		rig_protocol_config(&world.job, rank, &config);
		ck_assert_int_eq(fanin_engine_open(&fanin_protocol_window, &config,
						   &world.engines[rank], &why),
				 FANIN_OK);
	}
	for (unsigned int r = 0; r < N_REQUESTS; r++) {
		struct sparse_vectors_options made = setting->vectors;

		made.seed += 1000 * r;
		/* Vectors without indices have a block, too. */
		if (r == 2 && made.seed % 4 == 0) {
			made.n = 0;
			made.hint = 0;
		}
		world.vectors[r] = sparse_vectors_make(&made);
		if (setting->rough)
			roughen(world.vectors[r]);
		for (uint16_t rank = 0; rank < n_ranks; rank++) {
			sparse_vectors_request(world.vectors[r], rank);
			ck_assert_int_eq(fanin_engine_post(world.engines[rank],
							   &world.vectors[r]->requests[rank],
							   made.n),
					 FANIN_OK);
			if (r == 1)
				post_dense(rank);
		}
	}
	for (uint16_t rank = 0; rank < n_ranks; rank++)
		rig_host_wake(world.network.hosts[rank], rig_now_ns(world.rig));
}

static void
count_known(void)
{
	for (uint16_t i = 0; i <= world.job.n_leaves; i++) {
		struct fanin_handler_stats stats;

		job_stats(world.job.jobs[i], &stats);
		world.known += stats.known;
	}
}

static void
close_world(void)
{
	for (uint16_t rank = 0; rank < world.job.n_ranks; rank++) {
		fanin_engine_close(world.engines[rank]);
		free(world.elements[rank]);
	}
	for (unsigned int r = 0; r < N_REQUESTS; r++) {
		for (uint16_t rank = 0; rank < world.job.n_ranks; rank++) {
			free(world.taken[r][rank].result.dense);
			free(world.taken[r][rank].result.indices);
			free(world.taken[r][rank].result.values);
		}
		sparse_vectors_free(world.vectors[r]);
	}
	rig_leaf_spine_free(&world.network);
	free(world.job.joining);
	ck_assert_uint_eq(rig_destroy(world.rig), 0);
}

/* Removes the spine. Packets in flight reach hosts, until they join over the other spine. */
static void
lose_tree(void)
{
	const uint64_t late_ns = random_below(&world.random, 20000);

	count_known();
	rig_job_destroy(&world.job);
	rig_run(world.rig, rig_now_ns(world.rig) + late_ns, NULL, NULL);
	world.first_block = fanin_engine_progress(world.engines[0]);
	for (uint16_t rank = 1; rank < world.job.n_ranks; rank++)
		world.first_block = RTE_MIN(world.first_block,
					    fanin_engine_progress(world.engines[rank]));
	world.spine = 1 - world.spine;
	join();
	for (uint16_t rank = 0; rank < world.job.n_ranks; rank++) {
		struct fanin_transport *transport = rig_host_transport(world.network.hosts[rank]);
		const struct rig_joining *joining = &world.job.joining[rank];

		fanin_engine_move(world.engines[rank], transport);
		ck_assert_msg(fanin_engine_resume(world.engines[rank], joining->headers.fanin.epoch,
						  joining->ack.instance,
						  world.first_block) == FANIN_OK,
			      "rank %u: %s", rank, fanin_engine_error(world.engines[rank])->text);
		rig_host_wake(world.network.hosts[rank], rig_now_ns(world.rig));
	}
	world.n_lost++;
}

static unsigned int
n_taken(unsigned int r)
{
	unsigned int n = 0;

	for (uint16_t rank = 0; rank < world.job.n_ranks; rank++)
		n += world.taken[r][rank].is_taken;
	return n;
}

static bool
all_done(void *user)
{
	(void)user;
	for (unsigned int r = 0; r < N_REQUESTS; r++) {
		if (n_taken(r) != world.job.n_ranks)
			return false;
	}
	for (uint16_t rank = 0; rank < world.job.n_ranks; rank++) {
		if (!world.dense_taken[rank])
			return false;
	}
	return true;
}

/* True if some ranks have finished a request, and others have not. */
static bool
some_done(void *user)
{
	const unsigned int r = *(const unsigned int *)user;

	return n_taken(r) != 0 && n_taken(r) != world.job.n_ranks;
}

static void
expect_alike(const struct taken *taken, const struct sparse_vectors *vectors)
{
	const struct fanin_sparse_result *first = &taken[0].result;
	const struct sparse_vectors_options *options = &vectors->options;

	for (uint16_t rank = 0; rank < options->n_ranks; rank++) {
		const struct fanin_sparse_result *result = &taken[rank].result;

		ck_assert_uint_eq(taken[rank].done_bytes, options->n * vectors->element_bytes);
		ck_assert_uint_eq(result->count, vectors->n_expected);
		if (first->dense != NULL) {
			ck_assert_mem_eq(first->dense, result->dense,
					 options->n * vectors->element_bytes);
			continue;
		}
		ck_assert_mem_eq(first->indices, result->indices,
				 first->count * options->index_bytes);
		ck_assert_mem_eq(first->values, result->values,
				 first->count * vectors->element_bytes);
	}
}

/* Runs until all ranks are done, and checks all results. */
static void
finish(void)
{
	const uint64_t begin_ns = rig_now_ns(world.rig);

	ck_assert(rig_run(world.rig, begin_ns + 600 * SECOND_NS, all_done, NULL));
	world.duration_ns = rig_now_ns(world.rig) - begin_ns;
	count_known();
	for (unsigned int r = 0; r < N_REQUESTS; r++) {
		expect_alike(world.taken[r], world.vectors[r]);
		for (uint16_t rank = 0; rank < world.job.n_ranks && !world.setting->rough; rank++)
			sparse_vectors_expect_result(world.vectors[r],
						     &world.taken[r][rank].result);
	}
}

static struct setting
setting_of(unsigned int i)
{
	static const uint16_t ranks[] = { 4, 3, 8, 2, 16 };
	static const uint16_t per_leaf[] = { 2, 1, 2, 1, 4 };
	static const double densities[] = { 0.01, 0.1, 0.2, 0.001, 1, 0 };
	static const char *const handlers[] = { "sparse", "sparse-hash", "sparse-array" };
	const double density = densities[i % 6];
	const bool rough = i % 2 == 0 && density != 0;
	static const uint8_t dtypes[] = { FANIN_WIRE_I32, FANIN_WIRE_F64, FANIN_WIRE_U8 };

	return (struct setting){
		.vectors = { .n = N_INDICES,
			     .seed = i,
			     .density = density,
			     /* A hint that is too small makes blocks of many shards. */
			     .hint = i % 4 < 2 ? density / 20 : 0,
			     .pattern = (enum sparse_pattern)(i % SPARSE_PATTERNS),
			     .n_ranks = ranks[i % 5],
			     .dtype = rough ? FANIN_WIRE_F32 : dtypes[i % 3],
			     .op = i % 7 == 3 ? FANIN_WIRE_MAX : FANIN_WIRE_SUM,
			     .index_bytes = i % 3 == 0 ? 8 : 4,
			     .dense = i % 3 == 0,
			     .in_place = i % 3 == 1 },
		.handler = handlers[i / 2 % 3],
		.per_leaf = per_leaf[i % 5],
		.faults = i % 4 >= 1,
		.rough = rough,
	};
}

START_TEST(a_tree_may_be_lost_at_any_moment)
{
	const struct setting setting = setting_of((unsigned int)_i);
	uint64_t duration_ns;

	ring_switch_eal();
	open_world(&setting, (uint64_t)_i);
	finish();
	ck_assert_uint_eq(world.known, 0);
	duration_ns = world.duration_ns;
	close_world();
	for (unsigned int point = 0; point < N_POINTS; point++) {
		open_world(&setting, (uint64_t)_i * N_POINTS + point + 100);
		for (unsigned int loss = 0; loss <= point % 3; loss++) {
			const uint64_t after_ns = random_below(&world.random,
							       (uint32_t)duration_ns) *
						  (point + 1) / N_POINTS;

			rig_run(world.rig, rig_now_ns(world.rig) + after_ns, all_done, NULL);
			lose_tree();
		}
		finish();
		close_world();
	}
}
END_TEST

START_TEST(results_that_others_lack_are_told_although_their_memory_was_overwritten)
{
	const struct setting setting = setting_of((unsigned int)_i);
	unsigned int met = 0;

	ring_switch_eal();
	for (unsigned int r = 0; r < N_REQUESTS; r++) {
		open_world(&setting, (uint64_t)_i + 5000);
		if (!rig_run(world.rig, rig_now_ns(world.rig) + 600 * SECOND_NS, some_done, &r)) {
			close_world();
			continue;
		}
		met++;
		lose_tree();
		/* Meanwhile the others may have finished. */
		if (some_done(&r)) {
			finish();
			ck_assert_uint_gt(world.known, 0);
		} else {
			finish();
		}
		close_world();
	}
	ck_assert_uint_gt(met, 0);
}
END_TEST

Suite *
suite_sparse_recovery(void)
{
	Suite *suite = suite_create("sparse_recovery");
	TCase *tcase = tcase_create("sparse_recovery");

	tcase_set_timeout(tcase, 120);
	tcase_add_loop_test(tcase, a_tree_may_be_lost_at_any_moment, 0, N_SETTINGS);
	tcase_add_loop_test(tcase,
			    results_that_others_lack_are_told_although_their_memory_was_overwritten,
			    0, N_SETTINGS);
	suite_add_tcase(suite, tcase);
	return suite;
}
