/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The owners of slots: a job, all jobs of a handler, or none. A run's remains in shared slots are
 * freed when it is over, and nothing else is.
 */
#include <pthread.h>
#include <string.h>

#include "tests/unit/ring_switch.h"
#include "tests/unit/suites.h"

#define SHARED_SLOTS 64

static struct ring_switch sw;

enum {
	SHARING_TAKEN,
	SHARING_MERGED,
	SHARING_COLLISIONS,
};

struct sharing_slot {
	struct fanin_slot_tag tag;
	struct rte_mbuf *held;
};

/* The arguments of the last calls of the handlers below. */
static struct {
	const struct fanin_handler_ctx *ctx;
	void *slot;
	uint32_t index;
	unsigned int n;
} called;

static size_t
sharing_slot_size(const struct fanin_job_params *job)
{
	return job->parameters[0];
}

/*
 * The first contribution of a block is held, and the second one ends the block; a contribution of
 * another block finds the slot taken.
 */
static enum fanin_verdict
sharing_take(struct fanin_handler_ctx *ctx, struct sharing_slot *slot, struct fanin_packet *packet)
{
	const uint32_t block = packet->headers->fanin.block;

	if (slot->tag.job == 0) {
		fanin_slot_take(&slot->tag, ctx, block);
		slot->held = packet->mbuf;
		ctx->stats->own[SHARING_TAKEN]++;
		return FANIN_VERDICT_HELD;
	}
	if (fanin_slot_holds(&slot->tag, ctx, block)) {
		fanin_release(ctx, slot->held);
		slot->held = NULL;
		fanin_slot_empty(&slot->tag);
		ctx->stats->own[SHARING_MERGED]++;
	} else {
		ctx->stats->own[SHARING_COLLISIONS]++;
	}
	return FANIN_VERDICT_FREE;
}

static enum fanin_verdict
sharing_contribution(struct fanin_handler_ctx *ctx, void *memory, uint32_t index,
		     struct fanin_packet *packet, enum fanin_reason *reason)
{
	struct sharing_slot *slot = memory;
	enum fanin_verdict verdict;

	(void)reason;
	called.ctx = ctx;
	called.slot = memory;
	called.index = index;
	called.n++;
	if (!fanin_slot_enter(&slot->tag))
		return FANIN_VERDICT_RETRY;
	verdict = sharing_take(ctx, slot, packet);
	fanin_slot_leave(&slot->tag);
	return verdict;
}

static void
sharing_release(struct fanin_handler_ctx *ctx, void *memory)
{
	struct sharing_slot *slot = memory;

	ck_assert_ptr_null(ctx->job);
	ck_assert_uint_eq(slot->tag.busy, 1);
	fanin_release(ctx, slot->held);
	slot->held = NULL;
}

static const struct fanin_counter sharing_counters[] = {
	[SHARING_TAKEN] = { "taken", "slots taken" },
	[SHARING_MERGED] = { "merged", "blocks with two contributions" },
	[SHARING_COLLISIONS] = { "collisions", "contributions that found another block's slot" },
	{ 0 },
};

static const struct fanin_parameter sharing_parameters[] = {
	{ "slot_bytes", "of a slot", sizeof(struct sharing_slot), 4096, 60 },
	{ 0 },
};

static struct fanin_handler sharing = {
	.name = "sharing",
	.description = "holds a packet in a shared slot",
	.slots_of = FANIN_SLOTS_SHARED,
	.slot_mbufs = { .fixed = 1 },
	.counters = sharing_counters,
	.parameters = sharing_parameters,
	.slot_size = sharing_slot_size,
	.contribution = sharing_contribution,
	.slot_release = sharing_release,
};

static enum fanin_verdict
slotless_contribution(struct fanin_handler_ctx *ctx, void *slot, uint32_t index,
		      struct fanin_packet *packet, enum fanin_reason *reason)
{
	(void)packet;
	(void)reason;
	called.ctx = ctx;
	called.slot = slot;
	called.index = index;
	called.n++;
	return FANIN_VERDICT_FREE;
}

static struct fanin_handler slotless = {
	.name = "slotless",
	.description = "has no slots",
	.slots_of = FANIN_SLOTS_NONE,
	.contribution = slotless_contribution,
};

static void
open_with(uint16_t n_workers)
{
	/*
	 * Registered here, not before main: other suites of this program use all registered
	 * handlers that reduce.
	 */
	if (fanin_handler_find(sharing.name) == NULL) {
		fanin_handler_register(&sharing);
		fanin_handler_register(&slotless);
	}
	ring_switch_eal();
	ring_switch_open(&sw, 4, n_workers, NULL);
	sw.pipeline->jobs->shared_mbufs = SHARED_SLOTS;
	memset(&called, 0, sizeof(called));
}

static void
setup(void)
{
	open_with(1);
}

static void
setup_two(void)
{
	open_with(2);
}

static void
teardown(void)
{
	ring_switch_close(&sw);
}

static uint64_t
count(const struct job *job, unsigned int counter)
{
	struct fanin_handler_stats stats;

	job_stats(job, &stats);
	return stats.own[counter];
}

/* Returns a block of one job that shares the slot of a block of another job. */
static uint32_t
block_that_meets(const struct job *job, const struct job *other, uint32_t others_block)
{
	return fanin_slot_index(&other->params.slots, others_block) ^
	       (job->params.slots.salt & job->params.slots.mask);
}

/* The one thread here is also the workers': it must not wait for itself. */
static void
destroy(const struct job *job)
{
	for (uint16_t w = 0; w < sw.pipeline->n_workers; w++)
		rte_rcu_qsbr_thread_offline(sw.pipeline->qsbr, w);
	ck_assert_int_eq(job_destroy(sw.pipeline, job->params.id), 0);
	for (uint16_t w = 0; w < sw.pipeline->n_workers; w++)
		rte_rcu_qsbr_thread_online(sw.pipeline->qsbr, w);
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

static unsigned int
packets_held(void)
{
	return rte_mempool_in_use_count(sw.pool);
}

START_TEST(jobs_of_a_handler_share_its_slots)
{
	struct job *a = ring_switch_job_of(&sw, "sharing", 2, 0);
	struct job *b = ring_switch_job_of(&sw, "sharing", 2, 0);
	bool seen[SHARED_SLOTS] = { false };

	ck_assert_ptr_eq(a->pool, b->pool);
	ck_assert_uint_eq(a->pool->mask + 1, SHARED_SLOTS);
	ck_assert_uint_eq(a->pool->n_jobs, 2);
	/* Blocks with the same number don't share a slot, nor do those of a window. */
	ck_assert_uint_ne(fanin_slot_index(&a->params.slots, 0),
			  fanin_slot_index(&b->params.slots, 0));
	ck_assert_uint_eq(2u * a->params.window, SHARED_SLOTS);
	for (uint32_t block = 1000; block < 1000 + SHARED_SLOTS; block++) {
		const uint32_t index = fanin_slot_index(&b->params.slots, block);

		ck_assert_uint_lt(index, SHARED_SLOTS);
		ck_assert(!seen[index]);
		seen[index] = true;
	}
	/* The pool is counted once, and is freed with the last of them. */
	ck_assert_uint_eq(job_slots_bytes(sw.pipeline->jobs), slot_pool_bytes(a->pool));
	destroy(a);
	ck_assert_ptr_nonnull(sw.pipeline->jobs->shared_pools);
	destroy(b);
	ck_assert_ptr_null(sw.pipeline->jobs->shared_pools);
	ck_assert_uint_eq(job_slots_bytes(sw.pipeline->jobs), 0);
}
END_TEST

START_TEST(a_job_with_slots_of_its_own_shares_them_with_nobody)
{
	struct job *a = ring_switch_job(&sw, 2, 8);
	struct job *b = ring_switch_job(&sw, 2, 8);

	ck_assert_ptr_ne(a->pool, b->pool);
	ck_assert_uint_eq(a->params.slots.salt, 0);
	ck_assert_uint_eq(b->params.slots.salt, 0);
	ck_assert_uint_eq(fanin_slot_index(&b->params.slots, 21), 21 % 8);
	ck_assert_uint_eq(job_slots_bytes(sw.pipeline->jobs),
			  slot_pool_bytes(a->pool) + slot_pool_bytes(b->pool));
	ck_assert_ptr_null(sw.pipeline->jobs->shared_pools);
}
END_TEST

START_TEST(a_slot_that_another_job_has_is_seen_as_such)
{
	struct job *a = ring_switch_job_of(&sw, "sharing", 2, 0);
	struct job *b = ring_switch_job_of(&sw, "sharing", 2, 0);
	const uint32_t epoch_a = host_join_all(&sw, a, 2, 1);
	const uint32_t epoch_b = host_join_all(&sw, b, 2, 10);
	const uint32_t meets = block_that_meets(b, a, 5);

	host_contribute(&sw, a, 0, epoch_a, 5, false);
	ck_assert_uint_eq(called.index, fanin_slot_index(&a->params.slots, 5));
	ck_assert_ptr_eq(called.slot, a->pool->slots[called.index]);
	host_contribute(&sw, b, 0, epoch_b, meets, false);
	ck_assert_uint_eq(called.index, fanin_slot_index(&a->params.slots, 5));
	ck_assert_uint_eq(count(b, SHARING_COLLISIONS), 1);
	ck_assert_uint_eq(slot_pool_used(a->pool), 1);
	/* The owner's block continues, and then the slot is the other job's. */
	host_contribute(&sw, a, 1, epoch_a, 5, false);
	ck_assert_uint_eq(count(a, SHARING_MERGED), 1);
	host_contribute(&sw, b, 0, epoch_b, meets, true);
	ck_assert_uint_eq(count(b, SHARING_TAKEN), 1);
	ck_assert_uint_eq(slot_pool_used(a->pool), 1);
}
END_TEST

START_TEST(a_destroyed_jobs_packets_alone_are_given_back)
{
	struct job *a = ring_switch_job_of(&sw, "sharing", 2, 0);
	struct job *b = ring_switch_job_of(&sw, "sharing", 2, 0);
	const uint32_t epoch_a = host_join_all(&sw, a, 2, 1);
	const uint32_t epoch_b = host_join_all(&sw, b, 2, 10);
	const unsigned int before = packets_held();
	const uint32_t meets = block_that_meets(b, a, 5);

	for (uint32_t block = 0; block < 8; block++) {
		host_contribute(&sw, a, 0, epoch_a, block, false);
		host_contribute(&sw, b, 0, epoch_b, 1000 + block, false);
	}
	ck_assert_uint_eq(packets_held(), before + slot_pool_used(a->pool));
	ck_assert_uint_gt(count(b, SHARING_TAKEN), 0);
	destroy(a);
	ck_assert_uint_eq(slot_pool_used(b->pool), count(b, SHARING_TAKEN));
	ck_assert_uint_eq(packets_held(), before + count(b, SHARING_TAKEN));
	/* The other job's slot is free. */
	host_contribute(&sw, b, 0, epoch_b, meets, false);
	ck_assert_uint_eq(count(b, SHARING_TAKEN), slot_pool_used(b->pool));
	destroy(b);
	ck_assert_uint_eq(packets_held(), before);
}
END_TEST

START_TEST(an_old_runs_packets_are_given_back_in_the_next_run)
{
	struct job *a = ring_switch_job_of(&sw, "sharing", 2, 0);
	struct job *b = ring_switch_job_of(&sw, "sharing", 2, 0);
	const uint32_t epoch_b = host_join_all(&sw, b, 2, 10);
	uint32_t epoch = host_join_all(&sw, a, 2, 1);
	const unsigned int before = packets_held();

	host_contribute(&sw, a, 0, epoch, 3, false);
	host_contribute(&sw, b, 0, epoch_b, 9, false);
	job_slots_sweep(sw.pipeline->jobs);
	ck_assert_uint_eq(packets_held(), before + 2);
	leave(a, 0, epoch);
	leave(a, 1, epoch);
	epoch = host_join_all(&sw, a, 2, 2);
	host_contribute(&sw, a, 0, epoch, 4, false);
	ck_assert_uint_eq(packets_held(), before + 3);
	pipeline_housekeep(sw.pipeline);
	ck_assert_uint_eq(packets_held(), before + 2);
	/* The new run's block is still there. */
	host_contribute(&sw, a, 1, epoch, 4, false);
	ck_assert_uint_eq(count(a, SHARING_MERGED), 1);
	host_contribute(&sw, b, 1, epoch_b, 9, false);
	ck_assert_uint_eq(count(b, SHARING_MERGED), 1);
	ck_assert_uint_eq(packets_held(), before);
}
END_TEST

START_TEST(a_worker_that_finds_a_shared_slot_held_retries)
{
	struct job *job = ring_switch_job_of(&sw, "sharing", 2, 0);
	const uint32_t epoch = host_join_all(&sw, job, 2, 1);
	struct fanin_slot_tag *tag =
		(void *)job->pool->slots[fanin_slot_index(&job->params.slots, 5)];

	ck_assert(fanin_slot_enter(tag));
	host_contribute(&sw, job, 0, epoch, 5, false);
	ck_assert_uint_eq(count(job, SHARING_TAKEN), 0);
	ck_assert_uint_gt(sw.pipeline->workers[0]->counters.retries, 0);
	fanin_slot_leave(tag);
	ring_switch_rounds(&sw, 1);
	ck_assert_uint_eq(count(job, SHARING_TAKEN), 1);
}
END_TEST

START_TEST(too_many_that_come_again_are_dropped_by_their_own_name)
{
	struct job *job = ring_switch_job_of(&sw, "sharing", 2, 0);
	const uint32_t epoch = host_join_all(&sw, job, 2, 1);
	struct fanin_slot_tag *tag =
		(void *)job->pool->slots[fanin_slot_index(&job->params.slots, 5)];

	ck_assert(fanin_slot_enter(tag));
	for (unsigned int i = 0; i < WORKER_RETRIES + 3; i++)
		host_contribute(&sw, job, 0, epoch, 5, false);
	ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_RETRIES_FULL), 3);
	ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_WORKER_RING_FULL), 0);
	fanin_slot_leave(tag);
	ring_switch_rounds(&sw, 1);
	ck_assert_uint_gt(count(job, SHARING_TAKEN), 0);
	ck_assert_uint_eq(sw.pipeline->workers[0]->n_retries, 0);
}
END_TEST

static void *
sweep_thread(void *unused)
{
	job_slots_sweep(sw.pipeline->jobs);
	return unused;
}

START_TEST(a_slot_that_is_in_use_is_not_swept_before_it_is_left)
{
	struct job *job = ring_switch_job_of(&sw, "sharing", 2, 0);
	const uint32_t epoch = host_join_all(&sw, job, 2, 1);
	const uint32_t index = fanin_slot_index(&job->params.slots, 5);
	struct sharing_slot *slot = (void *)job->pool->slots[index];
	pthread_t thread;

	host_contribute(&sw, job, 0, epoch, 5, false);
	leave(job, 0, epoch);
	leave(job, 1, epoch);
	ck_assert(fanin_slot_enter(&slot->tag));
	ck_assert_int_eq(pthread_create(&thread, NULL, sweep_thread, NULL), 0);
	/* Only the worker that has entered the slot may free what it takes out. */
	for (unsigned int i = 0; i < 1000; i++)
		ck_assert_ptr_nonnull(__atomic_load_n(&slot->held, __ATOMIC_RELAXED));
	rte_pktmbuf_free(slot->held);
	slot->held = NULL;
	fanin_slot_empty(&slot->tag);
	fanin_slot_leave(&slot->tag);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_uint_eq(slot->tag.busy, 0);
}
END_TEST

static int
create(uint32_t slots, uint64_t slot_bytes, struct job **job, char *error)
{
	struct job_spec spec = {
		.key = 1,
		.handler = "sharing",
		.n_members = 2,
		.slots = slots,
		.n_parameters = 1,
		.parameters = { { "slot_bytes", slot_bytes } },
	};
	const char *code;
	int ret;

	for (uint16_t i = 0; i < 2; i++) {
		spec.members[i].port = i;
		spec.members[i].ip_be = host_ip_be(i);
	}
	ret = job_create(sw.pipeline, &spec, job, &code, error);
	if (ret == -ENOSPC)
		ck_assert_str_eq(code, "no_room");
	return ret;
}

START_TEST(shared_slots_are_no_more_than_packets_were_reserved_for)
{
	char error[PIPELINE_ERROR_LEN] = "";
	struct job *job, *other, *another, *others[8];

	ck_assert_uint_le(fanin_handlers_that_share(), RTE_DIM(others));
	sw.pipeline->jobs->max_jobs = 16;
	ck_assert_int_eq(create(2 * SHARED_SLOTS, 64, &job, error), -ENOSPC);
	ck_assert_ptr_nonnull(
		strstr(error,
		       "asked for 128 slots, 64 are available to each job (limits.shared_slots"));
	ck_assert_int_eq(create(16, 64, &job, error), 0);
	ck_assert_uint_eq(job->params.window, 8);
	ck_assert_uint_eq(job->pool->mask + 1, SHARED_SLOTS);
	/*
	 * 60 and 64 bytes take one cache line; 65 need another pool, for which there is no room
	 * once each sharing handler has one.
	 */
	ck_assert_int_eq(create(0, 60, &other, error), 0);
	ck_assert_ptr_eq(other->pool, job->pool);
	for (unsigned int i = 1; i < fanin_handlers_that_share(); i++)
		ck_assert_int_eq(create(0, 64 + 64 * i, &others[i], error), 0);
	ck_assert_int_eq(create(0, 2049, &another, error), -ENOSPC);
	ck_assert_ptr_nonnull(strstr(error, "limits.shared_slots"));
	destroy(job);
	destroy(job_lookup(sw.pipeline->jobs, other->params.id));
	ck_assert_int_eq(create(0, 2049, &another, error), 0);
	/* Handlers whose slots may hold more have fewer slots. */
	sharing.slot_mbufs.fixed = 3;
	ck_assert_uint_eq(job_slots_shared(sw.pipeline->jobs, &sharing), 16);
	sharing.slot_mbufs.fixed = 1;
	sw.pipeline->jobs->shared_mbufs = 0;
	ck_assert_int_eq(create(0, 64, &job, error), -ENOSPC);
}
END_TEST

START_TEST(the_size_of_shared_pools_is_an_option)
{
	static const unsigned int lcores[] = { 0 };
	const struct pipeline_options options = {
		.max_jobs = 2,
		.slots = 64,
		.shared_slots = 128,
		.mac_entries = 64,
		.pool = sw.pool,
		.lcores = lcores,
		.n_workers = 1,
		.cluster_size = 1,
	};
	static struct fanin_handler another;
	char error[PIPELINE_ERROR_LEN] = "";
	struct pipeline *pipeline;
	unsigned int sharers = 0;

	if (another.name == NULL) {
		another = sharing;
		another.name = "sharing_too";
		/* The handler is not for suites that use handlers that reduce. */
		another.shape = FANIN_SHAPE_MULTICAST;
		fanin_handler_register(&another);
	}
	ck_assert_msg(pipeline_create(&options, &pipeline, error) == 0, "%s", error);
	ck_assert_uint_eq(job_slots_shared(pipeline->jobs, &sharing), 128);
	for (const struct fanin_handler *handler = fanin_handler_first(); handler != NULL;
	     handler = handler->next)
		sharers += handler->slots_of == FANIN_SLOTS_SHARED;
	ck_assert_uint_ge(sharers, 2);
	/* There are as many timers as slots. */
	ck_assert_uint_eq(pipeline->timers_max, 64 + 128 * sharers);
	pipeline_free(pipeline);
	ck_assert_uint_eq(job_slots_shared(sw.pipeline->jobs, &sharing), SHARED_SLOTS);
}
END_TEST

START_TEST(a_job_may_have_no_slots)
{
	struct job *job = ring_switch_job_of(&sw, "slotless", 2, 0);
	const uint32_t epoch = host_join_all(&sw, job, 2, 1);

	for (uint32_t block = 0; block < 3; block++)
		host_contribute(&sw, job, 0, epoch, block, false);
	ck_assert_uint_eq(called.n, 3);
	ck_assert_ptr_null(called.slot);
	ck_assert_uint_eq(called.index, 0);
	ck_assert_uint_eq(job_slots_bytes(sw.pipeline->jobs), 0);
	ck_assert_uint_eq(2u * job->params.window, sw.pipeline->jobs->slots_per_job);
	destroy(job);
}
END_TEST

START_TEST(a_shared_slot_is_always_the_same_cluster_s)
{
	struct job *jobs[2];
	uint32_t epochs[2];

	for (unsigned int i = 0; i < 2; i++) {
		jobs[i] = ring_switch_job_of(&sw, "sharing", 4, 0);
		epochs[i] = host_join_all(&sw, jobs[i], 4, 10 * (i + 1));
	}
	for (uint32_t block = 0; block < 200; block++) {
		const unsigned int which = block % 2;

		host_contribute(&sw, jobs[which], block % 4, epochs[which], block, false);
		ck_assert_uint_eq(called.n, block + 1);
		ck_assert_uint_eq(called.index,
				  fanin_slot_index(&jobs[which]->params.slots, block));
		ck_assert_ptr_eq(called.ctx, &sw.pipeline->workers[called.index % 2]->handler_ctx);
	}
	job_slots_sweep(sw.pipeline->jobs);
	ck_assert_uint_gt(slot_pool_used(jobs[0]->pool), 0);
}
END_TEST

START_TEST(a_packet_on_its_way_is_taken_by_its_slots_cluster)
{
	uint8_t frame[4096];
	struct fanin_headers *headers = (struct fanin_headers *)frame;
	struct counters sum;
	struct job *job;

	sharing.admission = FANIN_ADMIT_KEY;
	job = ring_switch_job_of(&sw, "sharing", 4, 0);
	for (uint32_t block = 0; block < 64; block++) {
		const uint16_t host = (uint16_t)(block / 2 % 4);
		const size_t len = host_contribution(&sw, job, host, 0, block, false, frame);

		host_mac(7, headers->eth.dst);
		headers->ip.dst_be = host_ip_be(7);
		headers->ip.checksum_be = 0;
		headers->ip.checksum_be = fanin_ip_checksum(&headers->ip);
		ring_switch_put(&sw, host, frame, len);
		ck_assert_uint_eq(called.n, block + 1);
		ck_assert_uint_eq(called.index, fanin_slot_index(&job->params.slots, block));
		ck_assert_ptr_eq(called.ctx, &sw.pipeline->workers[called.index % 2]->handler_ctx);
	}
	pipeline_counters(sw.pipeline, &sum);
	ck_assert_uint_gt(sum.handed_over, 0);
	ck_assert_uint_eq(sum.forwarded + sum.flooded, 0);
	destroy(job);
	sharing.admission = FANIN_ADMIT_MEMBERS;
}
END_TEST

START_TEST(a_packet_that_needs_no_slot_stays_where_it_came_in)
{
	struct job *job = ring_switch_job_of(&sw, "slotless", 4, 0);
	const uint32_t epoch = host_join_all(&sw, job, 4, 1);

	for (uint32_t block = 0; block < 16; block++) {
		host_contribute(&sw, job, block % 4, epoch, block, false);
		ck_assert_ptr_eq(called.ctx, &sw.pipeline->workers[block % 2]->handler_ctx);
	}
	ck_assert_uint_eq(called.n, 16);
}
END_TEST

Suite *
suite_slots(void)
{
	Suite *suite = suite_create("slots");
	TCase *one = tcase_create("one worker");
	TCase *two = tcase_create("two workers");

	tcase_add_checked_fixture(one, setup, teardown);
	tcase_add_test(one, jobs_of_a_handler_share_its_slots);
	tcase_add_test(one, a_job_with_slots_of_its_own_shares_them_with_nobody);
	tcase_add_test(one, a_slot_that_another_job_has_is_seen_as_such);
	tcase_add_test(one, a_destroyed_jobs_packets_alone_are_given_back);
	tcase_add_test(one, an_old_runs_packets_are_given_back_in_the_next_run);
	tcase_add_test(one, a_worker_that_finds_a_shared_slot_held_retries);
	tcase_add_test(one, too_many_that_come_again_are_dropped_by_their_own_name);
	tcase_add_test(one, a_slot_that_is_in_use_is_not_swept_before_it_is_left);
	tcase_add_test(one, shared_slots_are_no_more_than_packets_were_reserved_for);
	tcase_add_test(one, the_size_of_shared_pools_is_an_option);
	tcase_add_test(one, a_job_may_have_no_slots);
	suite_add_tcase(suite, one);
	tcase_add_checked_fixture(two, setup_two, teardown);
	tcase_add_test(two, a_shared_slot_is_always_the_same_cluster_s);
	tcase_add_test(two, a_packet_on_its_way_is_taken_by_its_slots_cluster);
	tcase_add_test(two, a_packet_that_needs_no_slot_stays_where_it_came_in);
	suite_add_tcase(suite, two);
	return suite;
}
