/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two workers that share the slots of a sparse job, on threads of their own: every value is in the
 * result once, whichever worker combines it, even while hosts send queries.
 */
#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "protocols/sparse/tests/sparse_rig.h"
#include "tests/unit/suites.h"

#define WORKERS 2
#define CHILDREN 4 /* two for each worker */
#define WINDOW 2
#define SLOTS (2 * WINDOW)
#define BLOCKS 20000u
#define SPAN 900u
#define VALUES 40u /* values of a shard; each child sends two shards */
#define PAYLOAD 512

static const char *const handlers[] = { "sparse-array", "sparse-hash" };

static struct {
	const struct fanin_handler *handler;
	struct fanin_job_params job;
	uint8_t *slots[SLOTS];
	struct fake_pool pool;
	pthread_spinlock_t lock; /* of the pool */
	uint32_t n_done; /* number of blocks whose results have been sent, in their order; atomic */
	uint32_t sums[BLOCKS]; /* of all sent values; atomic */
} world;

struct worker {
	struct fanin_handler_ctx ctx;
	struct fanin_handler_stats stats;
	uint16_t index;
	uint64_t retries;
	pthread_t thread;
};

static struct worker workers[WORKERS];

static struct rte_mbuf *
take(uint32_t payload_len)
{
	struct rte_mbuf *mbuf;

	pthread_spin_lock(&world.lock);
	mbuf = fake_get(&world.pool, payload_len);
	pthread_spin_unlock(&world.lock);
	return mbuf;
}

static void
put(struct rte_mbuf *mbuf)
{
	pthread_spin_lock(&world.lock);
	fake_put(&world.pool, mbuf);
	pthread_spin_unlock(&world.lock);
}

/*
 * Adds a result's values, which are small integers. All results go to all children, except
 * repetitions.
 */
static void
hear(const struct fanin_emission *emission)
{
	const struct fanin_headers *headers = rte_pktmbuf_mtod(emission->mbuf,
							       struct fanin_headers *);
	const uint32_t *values = (const void *)(headers + 1);
	uint32_t sum = 0;

	if (headers->fanin.type != FANIN_TYPE_SPARSE_RESULT ||
	    emission->children != world.job.children)
		return;
	for (uint16_t i = 0; i < headers->fanin.count; i++)
		sum += values[i];
	__atomic_add_fetch(&world.sums[headers->fanin.block], sum, __ATOMIC_RELAXED);
	/* A host has a result when its last shard has come. */
	if (fanin_shard_decode(headers->fanin.members).total != 0)
		__atomic_add_fetch(&world.n_done, 1, __ATOMIC_RELEASE);
}

static void
drain(struct fanin_handler_ctx *ctx)
{
	for (unsigned int i = 0; i < ctx->n_emissions; i++) {
		hear(&ctx->emissions[i]);
		for (uint64_t left = ctx->emissions[i].children; left != 0; left &= left - 1)
			put(ctx->emissions[i].mbuf);
	}
	for (unsigned int i = 0; i < ctx->n_frees; i++)
		put(ctx->frees[i]);
	ctx->n_emissions = 0;
	ctx->n_frees = 0;
}

/* Passes a packet to the handler until no other worker is in the way. */
static void
call(struct worker *worker, struct rte_mbuf *mbuf, uint16_t child)
{
	struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *);
	const uint32_t index = headers->fanin.block % SLOTS;
	struct fanin_packet packet = {
		.mbuf = mbuf,
		.headers = headers,
		.payload = headers + 1,
		.payload_len = mbuf->data_len - FANIN_PAYLOAD_OFFSET,
		.child = child,
	};
	enum fanin_reason reason = FANIN_REASON_NONE;
	enum fanin_verdict verdict;

	while (worker->ctx.n_stock < FANIN_STOCK)
		worker->ctx.stock[worker->ctx.n_stock++] = take(0);
	while ((verdict = world.handler->other(&worker->ctx, world.slots[index], index, &packet,
					       &reason)) == FANIN_VERDICT_RETRY) {
		worker->retries++;
		sched_yield();
	}
	if (verdict != FANIN_VERDICT_HELD)
		put(mbuf);
	/* A query may come too late to be of use. */
	ck_assert_msg(verdict != FANIN_VERDICT_DROP || reason == FANIN_REASON_BLOCK_STALE, "%s",
		      fanin_reason_name(reason));
	drain(&worker->ctx);
}

static struct rte_mbuf *
make(enum fanin_type type, uint16_t child, uint32_t block, uint32_t payload_len)
{
	struct rte_mbuf *mbuf = take(payload_len);
	struct fanin_hdr *hdr = &rte_pktmbuf_mtod(mbuf, struct fanin_headers *)->fanin;

	fanin_wire_encode_header(hdr, type, 1, 1, 0);
	hdr->rank = child;
	hdr->block = block;
	return mbuf;
}

static void
send_shard(struct worker *worker, uint16_t child, uint32_t block, uint8_t number)
{
	const struct fanin_shard shard = { .span = SPAN,
					   .number = number,
					   .total = number == 1 ? 2 : 0 };
	struct rte_mbuf *mbuf = make(FANIN_TYPE_SPARSE, child, block, 6 * VALUES);
	struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *);
	uint32_t *values = (uint32_t *)(headers + 1);
	uint16_t *indices = (uint16_t *)(values + VALUES);

	headers->fanin.dtype = FANIN_WIRE_U32;
	headers->fanin.op = FANIN_WIRE_SUM;
	headers->fanin.count = VALUES;
	headers->fanin.members = fanin_shard_encode(&shard);
	for (uint32_t i = 0; i < VALUES; i++) {
		values[i] = child + 1u;
		indices[i] = (uint16_t)((i * 7 + block * 13 + child * 3 + number * 331) % SPAN);
	}
	call(worker, mbuf, child);
}

static void *
work(void *arg)
{
	struct worker *worker = arg;

	for (uint32_t block = 0; block < BLOCKS; block++) {
		while (block >= WINDOW &&
		       __atomic_load_n(&world.n_done, __ATOMIC_ACQUIRE) + WINDOW <= block)
			sched_yield();
		for (uint16_t i = 0; i < CHILDREN; i++) {
			const uint16_t child = worker->index * 2 + i / 2;

			send_shard(worker, child, block, (uint8_t)(1 - i % 2));
			if ((block + i) % 5 == 0) {
				struct rte_mbuf *query = make(FANIN_TYPE_QUERY, child, block, 0);
				struct fanin_hdr *hdr =
					&rte_pktmbuf_mtod(query, struct fanin_headers *)->fanin;

				hdr->flags = FANIN_FLAG_RETRANSMIT;
				hdr->number = 1;
				hdr->count = WINDOW;
				call(worker, query, child);
			}
		}
	}
	return NULL;
}

START_TEST(workers_that_share_slots_combine_each_value_once)
{
	uint64_t blocks = 0, contributions = 0;

	memset(&world, 0, sizeof(world));
	memset(workers, 0, sizeof(workers));
	world.handler = fanin_handler_find(handlers[_i]);
	fanin_job_params_hosts(&world.job, CHILDREN);
	world.job.id = 1;
	world.job.window = WINDOW;
	world.job.payload_bytes = PAYLOAD;
	world.job.shared = true;
	world.job.isa = fanin_isa_detect();
	world.job.slots = (struct fanin_slots){ .by_index = world.slots, .mask = SLOTS - 1 };
	pthread_spin_init(&world.lock, PTHREAD_PROCESS_PRIVATE);
	fake_pool_init(&world.pool, WORKERS * (FANIN_STOCK + 8) + SLOTS * FANIN_SPARSE_MBUFS);
	for (unsigned int i = 0; i < SLOTS; i++) {
		const size_t size =
			RTE_CACHE_LINE_ROUNDUP(fanin_slot_size(world.handler, &world.job));

		world.slots[i] = aligned_alloc(RTE_CACHE_LINE_SIZE, size);
		ck_assert_ptr_nonnull(world.slots[i]);
		memset(world.slots[i], 0, size);
	}
	for (uint16_t w = 0; w < WORKERS; w++) {
		workers[w].index = w;
		workers[w].ctx.job = &world.job;
		workers[w].ctx.epoch = 1;
		workers[w].ctx.stats = &workers[w].stats;
		workers[w].ctx.drain = drain;
		ck_assert_int_eq(pthread_create(&workers[w].thread, NULL, work, &workers[w]), 0);
	}
	for (unsigned int w = 0; w < WORKERS; w++) {
		pthread_join(workers[w].thread, NULL);
		blocks += workers[w].stats.results;
		contributions += workers[w].stats.contributions;
	}
	ck_assert_uint_eq(blocks, BLOCKS);
	ck_assert_uint_eq(contributions, (uint64_t)BLOCKS * CHILDREN);
	for (uint32_t block = 0; block < BLOCKS; block++)
		ck_assert_uint_eq(world.sums[block], 2 * VALUES * (1 + 2 + 3 + 4));
	for (unsigned int i = 0; i < SLOTS; i++) {
		world.handler->slot_release(&workers[0].ctx, world.slots[i]);
		drain(&workers[0].ctx);
		free(world.slots[i]);
	}
	for (unsigned int w = 0; w < WORKERS; w++) {
		while (workers[w].ctx.n_stock != 0)
			put(workers[w].ctx.stock[--workers[w].ctx.n_stock]);
	}
	ck_assert_uint_eq(fake_pool_in_use(&world.pool), 0);
	fake_pool_fini(&world.pool);
	pthread_spin_destroy(&world.lock);
}
END_TEST

Suite *
suite_sparse_threads(void)
{
	Suite *suite = suite_create("sparse_threads");
	TCase *tcase = tcase_create("threads");

	tcase_set_timeout(tcase, 60);
	tcase_add_loop_test(tcase, workers_that_share_slots_combine_each_value_once, 0, 2);
	suite_add_tcase(suite, tcase);
	return suite;
}
