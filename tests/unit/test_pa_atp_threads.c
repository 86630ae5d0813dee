/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Aggregators of PA-ATP that several workers share, on threads of their own: with fewer slots than the window, duplicates, retransmissions, questions, flushes and expiring
 * timers every sum is exact, every gradient is acknowledged, and every mbuf returns. Run under ThreadSanitizer, too.
 */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "handlers/pa_atp.h"
#include "reference/random.h"
#include "tests/unit/fake_mbuf.h"
#include "tests/unit/suites.h"

#define WORKERS 3
#define RANKS 6 /* two for each worker */
#define ALL ((UINT64_C(1) << RANKS) - 1)
#define WINDOW 8u
#define SLOTS_MAX 16u
#define BLOCKS 4000u
#define FIRST (UINT32_MAX - BLOCKS / 2) /* of the blocks, which wrap around */
#define COUNT 16u
#define EPOCH 3
#define PARENT_EPOCH 4
#define TIMERS 64u
/* Turns of a worker without a block that finishes: far more than a run without a fault has. */
#define MOST_IDLE 2000000u

/* What the server has of a block. */
struct part {
	uint64_t members;
	uint32_t sums[COUNT];
	uint64_t asked; /* ranks whose gradients have to come by themselves */
	bool published;
};

/* By _i. */
static const uint32_t slots_of_variant[] = { 4, SLOTS_MAX };

static struct {
	const struct fanin_handler *handler;
	struct fanin_job_params job;
	struct pa_atp_state *state;
	struct pa_atp_common common;
	uint8_t *slots[SLOTS_MAX];
	struct fake_pool pool;
	pthread_spinlock_t pool_lock;
	pthread_mutex_t server; /* guards parts, results, wrong */
	struct part parts[BLOCKS];
	uint32_t results[BLOCKS]; /* complete blocks whose RESULT is to be handed to a worker */
	unsigned int n_results;
	const char *wrong;
	uint8_t done[BLOCKS]; /* hosts have the result; atomic */
	bool stop;            /* atomic */
} world;

struct worker {
	struct fanin_handler_ctx ctx;
	struct fanin_handler_stats stats;
	struct fanin_timer_fifo *timers;
	uint64_t earliest_ns;
	unsigned int index;
	struct random random;
	uint32_t next[2]; /* of each of its ranks: the block to send, from 0 on */
	uint32_t oldest;  /* without a result; all ranks get it at once */
	uint64_t gacks;
	pthread_t thread;
};

static struct worker workers[WORKERS];

static struct rte_mbuf *
get(uint32_t payload_len)
{
	struct rte_mbuf *mbuf;

	pthread_spin_lock(&world.pool_lock);
	mbuf = fake_get(&world.pool, payload_len);
	pthread_spin_unlock(&world.pool_lock);
	return mbuf;
}

static void
put(struct rte_mbuf *mbuf)
{
	pthread_spin_lock(&world.pool_lock);
	fake_put(&world.pool, mbuf);
	pthread_spin_unlock(&world.pool_lock);
}

/* Under the lock: the rules for sets, and what is right. */
static void
server_takes(const struct fanin_headers *headers)
{
	const struct fanin_hdr *hdr = &headers->fanin;
	const uint32_t number = hdr->block - FIRST;
	struct part *part = &world.parts[number];
	const uint64_t members = hdr->type == FANIN_TYPE_CONTRIBUTION ? ALL : hdr->members;
	const uint32_t *values = (const void *)(headers + 1);

	if (number >= BLOCKS || members == 0 || (members & ~ALL) != 0 ||
	    hdr->contributions != __builtin_popcountll(members))
		world.wrong = "a part of no block, or of no ranks";
	for (uint32_t i = 0; i < COUNT && world.wrong == NULL; i++) {
		uint32_t expected = 0;

		for (unsigned int rank = 0; rank < RANKS; rank++)
			expected += (members >> rank & 1) != 0 ? (rank + 1) * (number + i) : 0;
		if (values[i] != expected)
			world.wrong = "a sum is not that of its ranks";
	}
	if (world.wrong != NULL || part->published || (members & ~part->members) == 0)
		return;
	if ((part->members & ~members) != 0 && (part->members & members) != 0) {
		part->asked |= ALL & ~part->members;
		return;
	}
	for (uint32_t i = 0; i < COUNT; i++)
		part->sums[i] = values[i] + ((part->members & members) == 0 ? part->sums[i] : 0);
	part->members |= members;
	if (part->members != ALL)
		return;
	part->published = true;
	for (uint32_t i = 0; i < COUNT; i++) {
		if (part->sums[i] != RANKS * (RANKS + 1) / 2 * (number + i))
			world.wrong = "a result is wrong";
	}
	world.results[world.n_results++] = hdr->block;
}

static void
drain(struct fanin_handler_ctx *ctx)
{
	struct worker *worker = container_of(ctx, struct worker, ctx);

	for (unsigned int i = 0; i < ctx->n_emissions; i++) {
		const struct fanin_emission *emission = &ctx->emissions[i];
		const struct fanin_headers *headers =
			rte_pktmbuf_mtod(emission->mbuf, const struct fanin_headers *);

		if (emission->kind == FANIN_EMIT_PARENT && headers->fanin.type != FANIN_TYPE_QUERY) {
			pthread_mutex_lock(&world.server);
			server_takes(headers);
			pthread_mutex_unlock(&world.server);
		} else if (headers->fanin.type == FANIN_TYPE_RESULT) {
			__atomic_store_n(&world.done[headers->fanin.block - FIRST], 1,
					 __ATOMIC_RELEASE);
		} else if (headers->fanin.type == FANIN_TYPE_GACK) {
			worker->gacks++;
		}
		if (emission->kind == FANIN_EMIT_PARENT)
			put(emission->mbuf);
		for (uint64_t left = emission->children; left != 0; left &= left - 1)
			put(emission->mbuf);
	}
	for (unsigned int i = 0; i < ctx->n_frees; i++)
		put(ctx->frees[i]);
	ctx->n_emissions = 0;
	ctx->n_frees = 0;
}

/* Hands a packet over until nobody is in the way. */
static void
call(struct worker *worker, struct rte_mbuf *mbuf)
{
	struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *);
	const uint32_t index = fanin_slot_index(&world.job.slots, headers->fanin.block);
	struct fanin_packet packet = {
		.mbuf = mbuf,
		.headers = headers,
		.payload = headers + 1,
		.payload_len = fanin_wire_payload_len(headers),
		.child = headers->fanin.rank,
	};
	const bool is_gradient = headers->fanin.type == FANIN_TYPE_CONTRIBUTION;
	enum fanin_reason reason = FANIN_REASON_NONE;
	enum fanin_verdict verdict;

	while (worker->ctx.n_stock < FANIN_STOCK)
		worker->ctx.stock[worker->ctx.n_stock++] = get(0);
	do {
		verdict = (is_gradient ? world.handler->contribution
				       : world.handler->other)(&worker->ctx, world.slots[index],
							       index, &packet, &reason);
		if (verdict == FANIN_VERDICT_RETRY)
			sched_yield();
	} while (verdict == FANIN_VERDICT_RETRY);
	ck_assert_msg(verdict != FANIN_VERDICT_DROP, "%s", fanin_reason_name(reason));
	if (verdict != FANIN_VERDICT_HELD)
		put(mbuf);
	drain(&worker->ctx);
}

static struct rte_mbuf *
make(enum fanin_type type, uint32_t block, uint32_t payload_len)
{
	const struct fanin_flow flow = { .dst_port = FANIN_WIRE_DEFAULT_UDP_PORT };
	struct rte_mbuf *mbuf = get(payload_len);
	struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *);

	fanin_wire_encode_l4(headers, &flow, payload_len);
	fanin_wire_encode_header(&headers->fanin, type, 1, EPOCH, 0);
	headers->fanin.block = block;
	return mbuf;
}

/* A rank's gradient of a block, which counts from 0 here. */
static void
send_gradient(struct worker *worker, unsigned int rank, uint32_t number, uint16_t flags)
{
	struct rte_mbuf *mbuf = make(FANIN_TYPE_CONTRIBUTION, FIRST + number, COUNT * 4);
	struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *);
	uint32_t *values = (void *)(headers + 1);

	headers->fanin.flags = flags;
	headers->fanin.rank = (uint16_t)rank;
	headers->fanin.dtype = FANIN_WIRE_U32;
	headers->fanin.op = FANIN_WIRE_SUM;
	headers->fanin.count = COUNT;
	headers->fanin.progress = FIRST + RTE_MIN(worker->oldest, number);
	for (uint32_t i = 0; i < COUNT; i++)
		values[i] = (rank + 1) * (number + i);
	call(worker, mbuf);
}

/* The server has results for its children; one of them passes through this worker. */
static void
pass_result(struct worker *worker)
{
	uint32_t block = 0;
	bool any;
	struct rte_mbuf *mbuf;
	struct fanin_hdr *hdr;

	pthread_mutex_lock(&world.server);
	any = world.n_results != 0;
	if (any)
		block = world.results[--world.n_results];
	pthread_mutex_unlock(&world.server);
	if (!any)
		return;
	mbuf = make(FANIN_TYPE_RESULT, block, COUNT * 4);
	hdr = &rte_pktmbuf_mtod(mbuf, struct fanin_headers *)->fanin;
	hdr->dtype = FANIN_WIRE_U32;
	hdr->op = FANIN_WIRE_SUM;
	hdr->count = COUNT;
	call(worker, mbuf);
}

/* The oldest timers expire; there are never many. */
static void
expire_some(struct worker *worker)
{
	struct fanin_timer_fifo *fifo = worker->timers;

	while (fanin_timer_fifo_count(fifo) > TIMERS / 2) {
		const struct fanin_timer timer = *fanin_timer_fifo_first(fifo);

		fifo->head++;
		while (!world.handler->expired(&worker->ctx, world.slots[timer.index], timer.index,
					       timer.block))
			sched_yield();
		drain(&worker->ctx);
	}
}

/* Somebody asks for the oldest block: its host, or the server. */
static void
ask(struct worker *worker)
{
	const bool is_query = random_chance(&worker->random, 0.5);
	struct rte_mbuf *mbuf = make(is_query ? FANIN_TYPE_QUERY : FANIN_TYPE_FLUSH,
				     FIRST + worker->oldest, 0);
	struct fanin_hdr *hdr = &rte_pktmbuf_mtod(mbuf, struct fanin_headers *)->fanin;

	hdr->rank = is_query ? (uint16_t)(worker->index * 2) : 0;
	hdr->flags = is_query ? FANIN_FLAG_RETRANSMIT : 0;
	hdr->number = is_query ? 1 : 0;
	call(worker, mbuf);
}

/* Answers what the server asks this worker's ranks for. */
static void
answer_server(struct worker *worker)
{
	for (unsigned int i = 0; i < 2; i++) {
		const unsigned int rank = worker->index * 2 + i;
		const uint32_t number = worker->oldest;
		bool asked;

		if (number >= worker->next[i])
			continue;
		pthread_mutex_lock(&world.server);
		asked = (world.parts[number].asked >> rank & 1) != 0;
		pthread_mutex_unlock(&world.server);
		if (asked)
			send_gradient(worker, rank, number, FANIN_FLAG_DIRECT);
	}
}

/* One turn. Returns false if nothing was to do but to wait. */
static bool
turn(struct worker *worker)
{
	bool any = false;

	while (worker->oldest < BLOCKS &&
	       __atomic_load_n(&world.done[worker->oldest], __ATOMIC_ACQUIRE) != 0) {
		worker->oldest++;
		any = true;
	}
	pass_result(worker);
	for (unsigned int i = 0; i < 2; i++) {
		const unsigned int rank = worker->index * 2 + i;
		const uint32_t number = worker->next[i];

		if (number >= BLOCKS || number - worker->oldest >= WINDOW ||
		    random_chance(&worker->random, 0.3))
			continue;
		worker->next[i]++;
		any = true;
		send_gradient(worker, rank, number, 0);
		/* Twins, and what is sent again though it has come. */
		if (random_chance(&worker->random, 0.1))
			send_gradient(worker, rank, number, 0);
		if (random_chance(&worker->random, 0.05))
			send_gradient(worker, rank, number, FANIN_FLAG_RETRANSMIT);
		/* One that comes very late. */
		if (number > 2 * WINDOW && random_chance(&worker->random, 0.05))
			send_gradient(worker, rank, number - 2 * WINDOW, 0);
	}
	expire_some(worker);
	if (!any && worker->oldest < BLOCKS) {
		if (random_chance(&worker->random, 0.2))
			ask(worker);
		answer_server(worker);
	}
	return any;
}

static void *
work(void *arg)
{
	struct worker *worker = arg;
	uint32_t idle = 0;

	while (worker->oldest < BLOCKS && idle < MOST_IDLE) {
		idle = turn(worker) ? 0 : idle + 1;
		if (idle != 0)
			sched_yield();
	}
	return NULL;
}

/* A thread that is no worker: what it sees belongs together. */
static void *
look(void *arg)
{
	uint64_t *seen = arg;

	while (!__atomic_load_n(&world.stop, __ATOMIC_ACQUIRE)) {
		struct fanin_rank_progress progress;
		struct fanin_peek peek;

		for (uint32_t i = 0; i <= world.job.slots.mask; i++) {
			if (!world.handler->peek(&world.job, EPOCH, world.slots[i], &peek))
				continue;
			(*seen)++;
			if (peek.sent == (peek.missing != 0) || peek.block - FIRST >= BLOCKS)
				world.wrong = "an onlooker sees half of a change";
		}
		if (world.handler->rank_progress(&world.job, world.state, EPOCH, &progress) &&
		    progress.slots_used > world.job.slots.mask + 1)
			world.wrong = "more slots are used than there are";
		sched_yield();
	}
	return NULL;
}

static void
open_world(uint32_t n_slots)
{
	memset(&world, 0, sizeof(world));
	memset(workers, 0, sizeof(workers));
	world.handler = fanin_handler_find("pa-atp");
	fanin_job_params_hosts(&world.job, RANKS);
	world.job.id = 1;
	world.job.window = WINDOW;
	world.job.has_parent = true;
	world.job.parent_is_server = true;
	world.job.payload_bytes = COUNT * 4;
	world.job.shared = true;
	world.job.isa = fanin_isa_detect();
	world.job.slots = (struct fanin_slots){
		.by_index = world.slots, .mask = n_slots - 1, .salt = 77, .common = &world.common
	};
	world.job.parameters[FANIN_PA_ATP_ETA] = 50;
	world.state = calloc(1, fanin_state_size(world.handler, &world.job));
	ck_assert_ptr_nonnull(world.state);
	pa_atp_begin_run(&world.job, world.state, FIRST);
	((struct pa_atp_state *)world.state)->epoch = EPOCH;
	pthread_spin_init(&world.pool_lock, PTHREAD_PROCESS_PRIVATE);
	pthread_mutex_init(&world.server, NULL);
	fake_pool_init(&world.pool, WORKERS * (FANIN_STOCK + 8) + SLOTS_MAX);
	for (uint32_t i = 0; i < n_slots; i++) {
		world.slots[i] = aligned_alloc(RTE_CACHE_LINE_SIZE, sizeof(struct pa_atp_slot));
		ck_assert_ptr_nonnull(world.slots[i]);
		memset(world.slots[i], 0, sizeof(struct pa_atp_slot));
	}
}

static void
start_worker(unsigned int index)
{
	struct worker *worker = &workers[index];

	worker->index = index;
	worker->random.state = 4711 + index;
	worker->timers = calloc(1, sizeof(*worker->timers) + TIMERS * sizeof(struct fanin_timer));
	ck_assert_ptr_nonnull(worker->timers);
	worker->timers->earliest_ns = &worker->earliest_ns;
	worker->timers->most = TIMERS - 1;
	worker->timers->mask = TIMERS - 1;
	worker->ctx.job = &world.job;
	worker->ctx.state = world.state;
	worker->ctx.epoch = EPOCH;
	worker->ctx.parent_epoch = PARENT_EPOCH;
	worker->ctx.stats = &worker->stats;
	worker->ctx.timers = worker->timers;
	worker->ctx.drain = drain;
	ck_assert_int_eq(pthread_create(&worker->thread, NULL, work, worker), 0);
}

static void
close_world(void)
{
	struct fanin_handler_ctx ctx = { .job = NULL };

	for (uint32_t i = 0; i <= world.job.slots.mask; i++) {
		world.handler->slot_release(&ctx, world.slots[i]);
		for (unsigned int k = 0; k < ctx.n_frees; k++)
			put(ctx.frees[k]);
		ctx.n_frees = 0;
		free(world.slots[i]);
	}
	world.handler->state_release(&world.job, world.state);
	ck_assert_uint_eq(world.common.used, 0);
	ck_assert_uint_eq(world.common.overflowed, 0);
	for (unsigned int w = 0; w < WORKERS; w++) {
		while (workers[w].ctx.n_stock != 0)
			put(workers[w].ctx.stock[--workers[w].ctx.n_stock]);
		free(workers[w].timers);
	}
	ck_assert_uint_eq(fake_pool_in_use(&world.pool), 0);
	fake_pool_fini(&world.pool);
	free(world.state);
	pthread_mutex_destroy(&world.server);
	pthread_spin_destroy(&world.pool_lock);
}

START_TEST(workers_that_share_aggregators_make_exact_sums)
{
	uint64_t gradients = 0, gacks = 0, overflows = 0, flushes = 0, results = 0, seen = 0;
	pthread_t onlooker;

	open_world(slots_of_variant[_i]);
	for (unsigned int w = 0; w < WORKERS; w++)
		start_worker(w);
	ck_assert_int_eq(pthread_create(&onlooker, NULL, look, &seen), 0);
	for (unsigned int w = 0; w < WORKERS; w++)
		pthread_join(workers[w].thread, NULL);
	__atomic_store_n(&world.stop, true, __ATOMIC_RELEASE);
	pthread_join(onlooker, NULL);
	ck_assert_msg(world.wrong == NULL, "%s", world.wrong);
	for (unsigned int w = 0; w < WORKERS; w++) {
		ck_assert_uint_eq(workers[w].oldest, BLOCKS);
		ck_assert_uint_eq(workers[w].stats.own[PA_ATP_GACKS], workers[w].gacks);
		gradients += workers[w].stats.own[PA_ATP_GRADIENTS];
		gacks += workers[w].gacks;
		overflows += workers[w].stats.own[PA_ATP_OVERFLOWS];
		flushes += workers[w].stats.own[PA_ATP_FLUSHES];
		results += workers[w].stats.results;
	}
	ck_assert_uint_ge(gradients, (uint64_t)RANKS * BLOCKS);
	ck_assert_uint_eq(gacks, gradients);
	ck_assert_uint_eq(results, BLOCKS);
	ck_assert_uint_gt(flushes, 0);
	ck_assert_uint_gt(seen, 0);
	/* With as many slots as a window has places a block never meets another one of its job that is not finished. */
	ck_assert_int_eq(overflows != 0, slots_of_variant[_i] < WINDOW);
	/* Every rank has sent all blocks, and the deltas have met none twice. */
	ck_assert_uint_eq(world.state->sum, RANKS * ((uint64_t)FIRST + BLOCKS));
	close_world();
}
END_TEST

Suite *
suite_pa_atp_threads(void)
{
	Suite *suite = suite_create("pa_atp_threads");
	TCase *tcase = tcase_create("threads");

	tcase_set_timeout(tcase, 120);
	tcase_add_loop_test(tcase, workers_that_share_aggregators_make_exact_sums, 0,
			    RTE_DIM(slots_of_variant));
	suite_add_tcase(suite, tcase);
	return suite;
}
