/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Descriptors of Canary that several workers share, on threads of their own: with fewer slots than the window, duplicates and expiring timers every sum is exact, every
 * rank's port is noted or told, and every mbuf returns. Run under ThreadSanitizer, too.
 */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "handlers/canary.h"
#include "reference/random.h"
#include "tests/unit/fake_mbuf.h"
#include "tests/unit/suites.h"

#define WORKERS 3
#define RANKS 6 /* two for each worker */
#define ALL ((UINT64_C(1) << RANKS) - 1)
#define RUN 12u
#define WINDOW 8u
#define SLOTS_MAX 16u
#define BLOCKS 4000u
#define FIRST (UINT32_MAX - BLOCKS / 2) /* of the blocks, which wrap around */
#define COUNT 16u
#define EPOCH 3
#define TIMERS 64u
/* Turns of a worker without a block that finishes: far more than a run without a fault has. */
#define MOST_IDLE 2000000u

/* A block at its leader. */
struct part {
	uint64_t members;
	uint32_t sums[COUNT];
	uint64_t asked; /* ranks whose data has to come by itself */
	uint64_t told;  /* ports at which data collided */
	bool own;       /* the leader's data is there, too */
	bool published;
};

/* By _i. */
static const uint32_t slots_of_variant[] = { 4, SLOTS_MAX };

static struct {
	const struct fanin_handler *handler;
	struct fanin_job_params job;
	struct canary_state *state;
	uint8_t *slots[SLOTS_MAX];
	struct fake_pool pool;
	pthread_spinlock_t pool_lock;
	pthread_mutex_t leaders; /* guards parts, results, wrong */
	struct part parts[BLOCKS];
	uint32_t results[BLOCKS]; /* complete blocks whose RESULT is to be handed to a worker */
	unsigned int n_results;
	const char *wrong;
	uint8_t done[BLOCKS]; /* the ranks that have the result; atomic */
	bool stop;            /* atomic */
	uint64_t now_ns;      /* the workers' clock; atomic */
} world;

struct worker {
	struct fanin_handler_ctx ctx;
	struct fanin_handler_stats stats;
	struct fanin_timer_fifo *timers;
	uint64_t earliest_ns;
	unsigned int index;
	struct random random;
	uint32_t next[2]; /* of each of its ranks: the block to send, from 0 on */
	uint32_t oldest;  /* that one of its ranks has no result of */
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

static unsigned int
leader_of(uint32_t block)
{
	return fanin_canary_leader(block, RANKS);
}

/* Under the lock. */
static void
publish_if_complete(uint32_t block)
{
	struct part *part = &world.parts[block - FIRST];

	if (!part->own || part->published ||
	    part->members != (ALL & ~(UINT64_C(1) << leader_of(block))))
		return;
	part->published = true;
	world.results[world.n_results++] = block;
}

/* Under the lock: the rules for sets, and what is right. */
static void
leader_takes(const struct fanin_headers *headers)
{
	const struct fanin_hdr *hdr = &headers->fanin;
	const uint32_t number = hdr->block - FIRST;
	struct part *part = &world.parts[number];
	const uint64_t members = hdr->members;
	const uint64_t others = ALL & ~(UINT64_C(1) << leader_of(hdr->block));
	const uint32_t *values = (const void *)(headers + 1);

	if (number >= BLOCKS || members == 0 || (members & ~others) != 0 || hdr->epoch != RUN)
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
		part->asked |= others & ~part->members;
		return;
	}
	if (hdr->number != 0)
		part->told |= UINT64_C(1) << hdr->rank;
	else if ((hdr->flags & FANIN_FLAG_DIRECT) != 0)
		part->told |= members; /* each rank is at the port of its number */
	part->members |= members;
	publish_if_complete(hdr->block);
}

/* Under no lock: the result leaves at these ports. */
static void
results_leave(uint32_t block, uint64_t ports)
{
	__atomic_fetch_or(&world.done[block - FIRST], (uint8_t)ports, __ATOMIC_RELEASE);
}

static void
drain(struct fanin_handler_ctx *ctx)
{
	for (unsigned int i = 0; i < ctx->n_emissions; i++) {
		const struct fanin_emission *emission = &ctx->emissions[i];
		const struct fanin_headers *headers =
			rte_pktmbuf_mtod(emission->mbuf, const struct fanin_headers *);
		unsigned int references = 1;

		if (emission->kind == FANIN_EMIT_ROUTE) {
			pthread_mutex_lock(&world.leaders);
			leader_takes(headers);
			pthread_mutex_unlock(&world.leaders);
		} else {
			references = (unsigned int)__builtin_popcountll(emission->ports);
			results_leave(headers->fanin.block, emission->ports);
		}
		while (references-- != 0)
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
	enum fanin_reason reason = FANIN_REASON_NONE;
	enum fanin_verdict verdict;

	worker->ctx.now_ns = __atomic_load_n(&world.now_ns, __ATOMIC_RELAXED);
	do {
		verdict = world.handler->other(&worker->ctx, world.slots[index], index, &packet,
					       &reason);
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
	fanin_wire_encode_header(&headers->fanin, type, 1, RUN, 0);
	headers->fanin.block = block;
	return mbuf;
}

/* A rank's data of a block, which counts from 0 here. Its leader keeps it back. */
static void
send_data(struct worker *worker, unsigned int rank, uint32_t number, uint16_t flags)
{
	struct rte_mbuf *mbuf;
	struct fanin_headers *headers;
	uint32_t *values;

	if (leader_of(FIRST + number) == rank) {
		pthread_mutex_lock(&world.leaders);
		world.parts[number].own = true;
		publish_if_complete(FIRST + number);
		pthread_mutex_unlock(&world.leaders);
		return;
	}
	mbuf = make(FANIN_TYPE_REDUCE, FIRST + number, COUNT * 4);
	headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *);
	values = (void *)(headers + 1);
	headers->fanin.flags = flags;
	headers->fanin.rank = (uint16_t)rank;
	headers->fanin.members = UINT64_C(1) << rank;
	headers->fanin.dtype = FANIN_WIRE_U32;
	headers->fanin.op = FANIN_WIRE_SUM;
	headers->fanin.count = COUNT;
	for (uint32_t i = 0; i < COUNT; i++)
		values[i] = (rank + 1) * (number + i);
	call(worker, mbuf);
}

/* A leader sends its result to the switch, which it reaches by this worker. It has it itself, and so have those that it answers. */
static void
pass_result(struct worker *worker)
{
	uint64_t told = 0;
	uint32_t block = 0;
	bool any;
	struct rte_mbuf *mbuf;
	struct fanin_hdr *hdr;

	pthread_mutex_lock(&world.leaders);
	any = world.n_results != 0;
	if (any) {
		block = world.results[--world.n_results];
		told = world.parts[block - FIRST].told;
	}
	pthread_mutex_unlock(&world.leaders);
	if (!any)
		return;
	results_leave(block, told | UINT64_C(1) << leader_of(block));
	mbuf = make(FANIN_TYPE_RESULT, block, COUNT * 4);
	hdr = &rte_pktmbuf_mtod(mbuf, struct fanin_headers *)->fanin;
	hdr->rank = (uint16_t)leader_of(block);
	hdr->dtype = FANIN_WIRE_U32;
	hdr->op = FANIN_WIRE_SUM;
	hdr->count = COUNT;
	call(worker, mbuf);
}

static void
clock_reach(uint64_t ns)
{
	uint64_t now_ns = __atomic_load_n(&world.now_ns, __ATOMIC_RELAXED);

	while (now_ns < ns && !__atomic_compare_exchange_n(&world.now_ns, &now_ns, ns, false,
							   __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}

/* The oldest timers expire, until so many are left. */
static void
expire_but(struct worker *worker, uint32_t left)
{
	struct fanin_timer_fifo *fifo = worker->timers;

	while (fanin_timer_fifo_count(fifo) > left) {
		const struct fanin_timer timer = *fanin_timer_fifo_first(fifo);

		fifo->head++;
		clock_reach(timer.due_ns);
		worker->ctx.now_ns = __atomic_load_n(&world.now_ns, __ATOMIC_RELAXED);
		while (!world.handler->expired(&worker->ctx, world.slots[timer.index], timer.index,
					       timer.block))
			sched_yield();
		drain(&worker->ctx);
	}
}

/* Answers what the leader asks this worker's ranks for. */
static void
answer_leader(struct worker *worker)
{
	for (unsigned int i = 0; i < 2; i++) {
		const unsigned int rank = worker->index * 2 + i;
		const uint32_t number = worker->oldest;
		bool asked;

		if (number >= worker->next[i])
			continue;
		pthread_mutex_lock(&world.leaders);
		asked = (world.parts[number].asked >> rank & 1) != 0;
		pthread_mutex_unlock(&world.leaders);
		if (asked)
			send_data(worker, rank, number, FANIN_FLAG_DIRECT);
	}
}

/* Do both of its ranks have the result? */
static bool
has_result(const struct worker *worker, uint32_t number)
{
	const unsigned int both = 3u << worker->index * 2;

	return (__atomic_load_n(&world.done[number], __ATOMIC_ACQUIRE) & both) == both;
}

/* One turn. Returns false if nothing was to do but to wait. */
static bool
turn(struct worker *worker)
{
	bool any = false;

	while (worker->oldest < BLOCKS && has_result(worker, worker->oldest)) {
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
		send_data(worker, rank, number, 0);
		/* Twins. */
		if (random_chance(&worker->random, 0.1))
			send_data(worker, rank, number, 0);
		/* One that comes very late. */
		if (number > 2 * WINDOW && random_chance(&worker->random, 0.05))
			send_data(worker, rank, number - 2 * WINDOW, 0);
	}
	/* Time goes on while nothing is to do. */
	expire_but(worker, any ? TIMERS / 2 : 0);
	if (!any && worker->oldest < BLOCKS)
		answer_leader(worker);
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
		struct fanin_peek peek;

		for (uint32_t i = 0; i <= world.job.slots.mask; i++) {
			if (!world.handler->peek(&world.job, EPOCH, world.slots[i], &peek))
				continue;
			(*seen)++;
			if (peek.block - FIRST >= BLOCKS || (peek.missing & ~ALL) != 0)
				world.wrong = "an onlooker sees half of a change";
		}
		if (__atomic_load_n(&world.state->used, __ATOMIC_RELAXED) > world.job.slots.mask + 1)
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
	world.handler = fanin_handler_find("canary");
	fanin_job_params_hosts(&world.job, RANKS);
	world.job.id = 1;
	world.job.window = WINDOW;
	for (unsigned int rank = 0; rank < RANKS; rank++) {
		world.job.ports |= UINT64_C(1) << rank;
		world.job.port_ranks[rank] = UINT64_C(1) << rank;
		world.job.ranks_here |= UINT64_C(1) << rank;
	}
	world.job.payload_bytes = COUNT * 4;
	world.job.shared = true;
	world.job.isa = fanin_isa_detect();
	world.job.slots =
		(struct fanin_slots){ .by_index = world.slots, .mask = n_slots - 1, .salt = 77 };
	for (size_t i = 0; world.handler->parameters[i].name != NULL; i++)
		world.job.parameters[i] = world.handler->parameters[i].usual;
	/* As long as it takes: time goes by leaps. */
	world.job.parameters[FANIN_CANARY_HOLD] = 60000000;
	world.state = calloc(1, fanin_state_size(world.handler, &world.job));
	ck_assert_ptr_nonnull(world.state);
	pthread_spin_init(&world.pool_lock, PTHREAD_PROCESS_PRIVATE);
	pthread_mutex_init(&world.leaders, NULL);
	fake_pool_init(&world.pool, WORKERS * (FANIN_STOCK + 8) + SLOTS_MAX);
	for (uint32_t i = 0; i < n_slots; i++) {
		world.slots[i] = aligned_alloc(RTE_CACHE_LINE_SIZE, sizeof(struct canary_slot));
		ck_assert_ptr_nonnull(world.slots[i]);
		memset(world.slots[i], 0, sizeof(struct canary_slot));
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
	worker->timers->timeout_ns = world.handler->timeout_ns(&world.job);
	worker->timers->earliest_ns = &worker->earliest_ns;
	worker->timers->most = TIMERS - 1;
	worker->timers->mask = TIMERS - 1;
	worker->ctx.job = &world.job;
	worker->ctx.state = world.state;
	worker->ctx.epoch = EPOCH;
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
	ck_assert_uint_eq(world.state->used, 0);
	for (unsigned int w = 0; w < WORKERS; w++)
		free(workers[w].timers);
	ck_assert_uint_eq(fake_pool_in_use(&world.pool), 0);
	fake_pool_fini(&world.pool);
	free(world.state);
	pthread_mutex_destroy(&world.leaders);
	pthread_spin_destroy(&world.pool_lock);
}

START_TEST(workers_that_share_descriptors_make_exact_sums)
{
	uint64_t collisions = 0, merged = 0, sums = 0, seen = 0;
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
		collisions += workers[w].stats.own[CANARY_COLLISIONS];
		merged += workers[w].stats.own[CANARY_MERGED];
		sums += workers[w].stats.own[CANARY_SUMS];
	}
	ck_assert_uint_gt(merged, 0);
	ck_assert_uint_gt(sums, 0);
	ck_assert_uint_gt(seen, 0);
	if (slots_of_variant[_i] < WINDOW)
		ck_assert_uint_gt(collisions, 0);
	close_world();
}
END_TEST

Suite *
suite_canary_threads(void)
{
	Suite *suite = suite_create("canary_threads");
	TCase *tcase = tcase_create("threads");

	tcase_set_timeout(tcase, 120);
	tcase_add_loop_test(tcase, workers_that_share_descriptors_make_exact_sums, 0,
			    RTE_DIM(slots_of_variant));
	suite_add_tcase(suite, tcase);
	return suite;
}
