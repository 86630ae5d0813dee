/* SPDX-License-Identifier: BSD-3-Clause */
/* See thread_world.h. */
#include "tests/unit/thread_world.h"

#include <check.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* Turns of a worker in which no block finishes: far more than a run without a fault has. */
#define MAX_IDLE 2000000u

struct thread_world thread_world;

static struct rte_mbuf *
get(uint32_t payload_len)
{
	struct rte_mbuf *mbuf;

	pthread_spin_lock(&thread_world.pool_lock);
	mbuf = fake_get(&thread_world.pool, payload_len);
	pthread_spin_unlock(&thread_world.pool_lock);
	return mbuf;
}

static void
put(struct rte_mbuf *mbuf)
{
	pthread_spin_lock(&thread_world.pool_lock);
	fake_put(&thread_world.pool, mbuf);
	pthread_spin_unlock(&thread_world.pool_lock);
}

struct thread_part *
thread_world_part(const struct fanin_headers *headers, uint64_t members, uint64_t others)
{
	const uint32_t number = headers->fanin.block - FIRST;
	struct thread_part *part = &thread_world.parts[number];
	const uint32_t *values = (const void *)(headers + 1);

	if (number >= BLOCKS || members == 0 || (members & ~others) != 0)
		thread_world.wrong = "a part of no block, or of no ranks";
	for (uint32_t i = 0; i < COUNT && thread_world.wrong == NULL; i++) {
		uint32_t expected = 0;

		for (unsigned int rank = 0; rank < RANKS; rank++)
			expected += (members >> rank & 1) != 0 ? (rank + 1) * (number + i) : 0;
		if (values[i] != expected)
			thread_world.wrong = "a sum is not that of its ranks";
	}
	if (thread_world.wrong != NULL || part->published || (members & ~part->members) == 0)
		return NULL;
	if ((part->members & ~members) != 0 && (part->members & members) != 0) {
		part->asked |= others & ~part->members;
		return NULL;
	}
	return part;
}

void
thread_world_publish(uint32_t block)
{
	thread_world.parts[block - FIRST].published = true;
	thread_world.results[thread_world.n_results++] = block;
}

void
thread_world_done(uint32_t block, uint64_t ranks)
{
	__atomic_fetch_or(&thread_world.done[block - FIRST], (uint8_t)ranks, __ATOMIC_RELEASE);
}

static void
drain(struct fanin_handler_ctx *ctx)
{
	struct thread_worker *worker = container_of(ctx, struct thread_worker, ctx);

	for (unsigned int i = 0; i < ctx->n_emissions; i++) {
		unsigned int references = thread_world.rules->leaves(worker, &ctx->emissions[i]);

		while (references-- != 0)
			put(ctx->emissions[i].mbuf);
	}
	for (unsigned int i = 0; i < ctx->n_frees; i++)
		put(ctx->frees[i]);
	ctx->n_emissions = 0;
	ctx->n_frees = 0;
}

void
thread_world_call(struct thread_worker *worker, struct rte_mbuf *mbuf)
{
	const struct fanin_handler *handler = thread_world.handler;
	struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *);
	const uint32_t index = fanin_slot_index(&thread_world.job.slots, headers->fanin.block);
	struct fanin_packet packet = {
		.mbuf = mbuf,
		.headers = headers,
		.payload = headers + 1,
		.payload_len = fanin_wire_payload_len(headers),
		.child = headers->fanin.rank,
	};
	const bool is_contribution = headers->fanin.type == FANIN_TYPE_CONTRIBUTION;
	enum fanin_reason reason = FANIN_REASON_NONE;
	enum fanin_verdict verdict;

	while (worker->ctx.n_stock < FANIN_STOCK)
		worker->ctx.stock[worker->ctx.n_stock++] = get(0);
	worker->ctx.now_ns = __atomic_load_n(&thread_world.now_ns, __ATOMIC_RELAXED);
	do {
		verdict = (is_contribution ? handler->contribution
					   : handler->other)(&worker->ctx,
							     thread_world.slots[index], index,
							     &packet, &reason);
		if (verdict == FANIN_VERDICT_RETRY)
			sched_yield();
	} while (verdict == FANIN_VERDICT_RETRY);
	ck_assert_msg(verdict != FANIN_VERDICT_DROP, "%s", fanin_reason_name(reason));
	if (verdict != FANIN_VERDICT_HELD)
		put(mbuf);
	drain(&worker->ctx);
}

struct rte_mbuf *
thread_world_make(enum fanin_type type, uint32_t block, uint32_t payload_len)
{
	const struct fanin_flow flow = { .dst_port = FANIN_WIRE_DEFAULT_UDP_PORT };
	struct rte_mbuf *mbuf = get(payload_len);
	struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *);

	fanin_wire_encode_l4(headers, &flow, payload_len);
	fanin_wire_encode_header(&headers->fanin, type, 1, thread_world.rules->epoch, 0);
	headers->fanin.block = block;
	return mbuf;
}

struct rte_mbuf *
thread_world_vector(enum fanin_type type, unsigned int rank, uint32_t number)
{
	struct rte_mbuf *mbuf = thread_world_make(type, FIRST + number, COUNT * 4);
	struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *);
	uint32_t *values = (void *)(headers + 1);

	headers->fanin.rank = (uint16_t)rank;
	headers->fanin.dtype = FANIN_WIRE_U32;
	headers->fanin.op = FANIN_WIRE_SUM;
	headers->fanin.count = COUNT;
	for (uint32_t i = 0; i < COUNT; i++)
		values[i] = (rank + 1) * (number + i);
	return mbuf;
}

static void
pass_result(struct thread_worker *worker)
{
	uint32_t block = 0;
	bool any;

	pthread_mutex_lock(&thread_world.lock);
	any = thread_world.n_results != 0;
	if (any)
		block = thread_world.results[--thread_world.n_results];
	pthread_mutex_unlock(&thread_world.lock);
	if (any)
		thread_world.rules->pass_result(worker, block);
}

static void
clock_reach(uint64_t ns)
{
	uint64_t now_ns = __atomic_load_n(&thread_world.now_ns, __ATOMIC_RELAXED);

	while (now_ns < ns && !__atomic_compare_exchange_n(&thread_world.now_ns, &now_ns, ns, false,
							   __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}

/* Lets the oldest timers expire, until this many are left. */
static void
expire_but(struct thread_worker *worker, uint32_t left)
{
	struct fanin_timer_fifo *fifo = worker->timers;

	while (fanin_timer_fifo_count(fifo) > left) {
		const struct fanin_timer timer = *fanin_timer_fifo_first(fifo);

		fifo->head++;
		clock_reach(timer.due_ns);
		worker->ctx.now_ns = __atomic_load_n(&thread_world.now_ns, __ATOMIC_RELAXED);
		while (!thread_world.handler->expired(&worker->ctx, thread_world.slots[timer.index],
						      timer.index, timer.block))
			sched_yield();
		drain(&worker->ctx);
	}
}

/* Sends the packets that this worker's ranks are asked for. */
static void
answer(struct thread_worker *worker)
{
	for (unsigned int i = 0; i < 2; i++) {
		const unsigned int rank = worker->index * 2 + i;
		const uint32_t number = worker->oldest;
		bool asked;

		if (number >= worker->next[i])
			continue;
		pthread_mutex_lock(&thread_world.lock);
		asked = (thread_world.parts[number].asked >> rank & 1) != 0;
		pthread_mutex_unlock(&thread_world.lock);
		if (asked)
			thread_world.rules->send(worker, rank, number, FANIN_FLAG_DIRECT);
	}
}

/* True if both of its ranks have the result. */
static bool
has_result(const struct thread_worker *worker, uint32_t number)
{
	const unsigned int both = 3u << worker->index * 2;

	return (__atomic_load_n(&thread_world.done[number], __ATOMIC_ACQUIRE) & both) == both;
}

/* Makes one turn. Returns false if there was nothing to do but wait. */
static bool
turn(struct thread_worker *worker)
{
	const struct thread_rules *rules = thread_world.rules;
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
		rules->send(worker, rank, number, 0);
		/* Duplicates, and packets that are sent again although they have come. */
		if (random_chance(&worker->random, 0.1))
			rules->send(worker, rank, number, 0);
		if (rules->sends_again && random_chance(&worker->random, 0.05))
			rules->send(worker, rank, number, FANIN_FLAG_RETRANSMIT);
		/* A very late packet. */
		if (number > 2 * WINDOW && random_chance(&worker->random, 0.05))
			rules->send(worker, rank, number - 2 * WINDOW, 0);
	}
	/* Time goes on while there is nothing to do. */
	expire_but(worker, any ? TIMERS / 2 : rules->timers_idle);
	if (!any && worker->oldest < BLOCKS) {
		if (rules->wait != NULL)
			rules->wait(worker);
		answer(worker);
	}
	return any;
}

static void *
work(void *arg)
{
	struct thread_worker *worker = arg;
	uint32_t idle = 0;

	while (worker->oldest < BLOCKS && idle < MAX_IDLE) {
		idle = turn(worker) ? 0 : idle + 1;
		if (idle != 0)
			sched_yield();
	}
	return NULL;
}

/* Runs in a thread that is not a worker: checks that the values that it reads are consistent. */
static void *
look(void *arg)
{
	(void)arg;
	while (!__atomic_load_n(&thread_world.stop, __ATOMIC_ACQUIRE)) {
		struct fanin_peek peek;

		for (uint32_t i = 0; i <= thread_world.job.slots.mask; i++) {
			if (!thread_world.handler->peek(&thread_world.job, EPOCH,
							thread_world.slots[i], &peek))
				continue;
			thread_world.seen++;
			if (peek.block - FIRST >= BLOCKS || (peek.missing & ~ALL) != 0 ||
			    !thread_world.rules->is_sound(&peek))
				thread_world.wrong = "an onlooker sees half of a change";
		}
		sched_yield();
	}
	return NULL;
}

static void
open_world(const struct thread_rules *rules, uint32_t n_slots)
{
	struct fanin_job_params *job = &thread_world.job;

	memset(&thread_world, 0, sizeof(thread_world));
	thread_world.rules = rules;
	thread_world.handler = fanin_handler_find(rules->handler);
	fanin_job_params_hosts(job, RANKS);
	job->id = 1;
	job->window = WINDOW;
	job->payload_bytes = COUNT * 4;
	job->shared = true;
	job->isa = fanin_isa_detect();
	job->slots = (struct fanin_slots){ .by_index = thread_world.slots,
					   .mask = n_slots - 1,
					   .salt = 77 };
	rules->open();
	thread_world.state = calloc(1, fanin_state_size(thread_world.handler, job));
	ck_assert_ptr_nonnull(thread_world.state);
	if (rules->begin != NULL)
		rules->begin();
	pthread_spin_init(&thread_world.pool_lock, PTHREAD_PROCESS_PRIVATE);
	pthread_mutex_init(&thread_world.lock, NULL);
	fake_pool_init(&thread_world.pool, WORKERS * (FANIN_STOCK + 8) + SLOTS_MAX);
	for (uint32_t i = 0; i < n_slots; i++) {
		thread_world.slots[i] = aligned_alloc(RTE_CACHE_LINE_SIZE, rules->slot_size);
		ck_assert_ptr_nonnull(thread_world.slots[i]);
		memset(thread_world.slots[i], 0, rules->slot_size);
	}
}

static void
start_worker(unsigned int index)
{
	struct thread_worker *worker = &thread_world.workers[index];
	struct fanin_timer_fifo *timers =
		calloc(1, sizeof(*timers) + TIMERS * sizeof(struct fanin_timer));

	ck_assert_ptr_nonnull(timers);
	if (thread_world.handler->timeout_ns != NULL)
		timers->timeout_ns = thread_world.handler->timeout_ns(&thread_world.job);
	timers->earliest_ns = &worker->earliest_ns;
	timers->most = TIMERS - 1;
	timers->mask = TIMERS - 1;
	worker->index = index;
	worker->random.state = 4711 + index;
	worker->timers = timers;
	worker->ctx.job = &thread_world.job;
	worker->ctx.state = thread_world.state;
	worker->ctx.epoch = EPOCH;
	worker->ctx.parent_epoch = EPOCH + 1;
	worker->ctx.stats = &worker->stats;
	worker->ctx.timers = timers;
	worker->ctx.drain = drain;
	ck_assert_int_eq(pthread_create(&worker->thread, NULL, work, worker), 0);
}

void
thread_world_run(const struct thread_rules *rules, uint32_t n_slots)
{
	pthread_t onlooker;

	open_world(rules, n_slots);
	for (unsigned int w = 0; w < WORKERS; w++)
		start_worker(w);
	ck_assert_int_eq(pthread_create(&onlooker, NULL, look, NULL), 0);
	for (unsigned int w = 0; w < WORKERS; w++)
		pthread_join(thread_world.workers[w].thread, NULL);
	__atomic_store_n(&thread_world.stop, true, __ATOMIC_RELEASE);
	pthread_join(onlooker, NULL);
	ck_assert_msg(thread_world.wrong == NULL, "%s", thread_world.wrong);
	for (unsigned int w = 0; w < WORKERS; w++)
		ck_assert_uint_eq(thread_world.workers[w].oldest, BLOCKS);
	ck_assert_uint_gt(thread_world.seen, 0);
}

uint64_t
thread_world_counter(unsigned int counter)
{
	uint64_t sum = 0;

	for (unsigned int w = 0; w < WORKERS; w++)
		sum += thread_world.workers[w].stats.own[counter];
	return sum;
}

void
thread_world_close(void)
{
	struct fanin_handler_ctx ctx = { .job = NULL };

	for (uint32_t i = 0; i <= thread_world.job.slots.mask; i++) {
		thread_world.handler->slot_release(&ctx, thread_world.slots[i]);
		for (unsigned int k = 0; k < ctx.n_frees; k++)
			put(ctx.frees[k]);
		ctx.n_frees = 0;
		free(thread_world.slots[i]);
	}
	for (unsigned int w = 0; w < WORKERS; w++) {
		struct thread_worker *worker = &thread_world.workers[w];

		while (worker->ctx.n_stock != 0)
			put(worker->ctx.stock[--worker->ctx.n_stock]);
		free(worker->timers);
	}
	ck_assert_uint_eq(fake_pool_in_use(&thread_world.pool), 0);
	fake_pool_fini(&thread_world.pool);
	pthread_mutex_destroy(&thread_world.lock);
	pthread_spin_destroy(&thread_world.pool_lock);
}
