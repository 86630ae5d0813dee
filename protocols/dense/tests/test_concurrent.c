/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Slots that several workers share: threads call the handlers for the same blocks at the same time,
 * with duplicates, retransmissions and queries among the contributions. Every result is exact,
 * every block finishes once, and every mbuf returns. Run under ThreadSanitizer, too.
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "handlers/handler.h"
#include "protocols/dense/switch/state.h"
#include "tests/unit/answer_words.h"
#include "tests/unit/fake_mbuf.h"
#include "lab/reference/random.h"
#include "tests/unit/suites.h"

#define THREADS 4
#define WINDOW 4
#define SLOTS (2 * WINDOW)
#define BLOCKS 600
#define COUNT 64
#define CHILDREN_MAX 16
#define PACKETS_MAX 4096
#define EPOCH 9
#define KEY 10
#define ONLOOKER_TURNS 64

/* The network and the hosts; all of it under the lock. */
static struct world {
	pthread_mutex_t lock;
	const struct fanin_handler *handler;
	struct fanin_job_params job;
	struct fake_pool pool;
	struct rte_mbuf *packets[PACKETS_MAX]; /* contributions on their way */
	unsigned int n_packets;
	uint32_t got[CHILDREN_MAX][WINDOW]; /* blocks that each lane of each host has the result of
					     */
	unsigned int lanes_left;
	uint64_t repeats;
	uint64_t pendings;
	uint64_t queries;
	uint64_t upward_queries;
	uint64_t retries;
	uint64_t results;
	uint64_t contributions;
	const char *failure;
	struct random random;
	uint8_t *slots;
	uint8_t *slot_of[SLOTS];
	size_t slot_bytes;
	uint64_t peeks;  /* blocks that an onlooker saw waiting */
	uint64_t rounds; /* of the onlooker's through all slots */
} world;

static int32_t
value_of(unsigned int child, uint32_t block, unsigned int i)
{
	return (int32_t)((child + 1) * 1000 + block * 3 + i);
}

/* In a wide job: bf16 has all of its digits, but not all of a sum's. */
static float
wide_value_of(unsigned int child, uint32_t block, unsigned int i)
{
	return (float)((child * 31 + block * 7 + i) % 256);
}

/* Of a number that is neither infinite nor none. */
static uint16_t
bf16_of(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Two of three children do, but nobody in some blocks. */
static bool
brings_data(unsigned int child, uint32_t block)
{
	return block % 16 != 5 && (child + block) % 3 != 0;
}

/*
 * Is the element the sum of the children's that bring data? Sums in f32 are exact, and rounded
 * once.
 */
static bool
sum_is_right(const struct fanin_headers *headers, uint32_t block, unsigned int i)
{
	const int32_t *elements = (const int32_t *)(headers + 1);
	const uint16_t *halves = (const uint16_t *)(headers + 1);
	float wide_sum = 0;
	int32_t sum = 0;

	for (unsigned int child = 0; child < world.job.n_children; child++) {
		if (!brings_data(child, block))
			continue;
		sum += value_of(child, block, i);
		wide_sum += wide_value_of(child, block, i);
	}
	return world.job.wide ? halves[i] == bf16_of(wide_sum) : elements[i] == sum;
}

/* Onto the network; under the lock. */
static void
packet_put(struct rte_mbuf *mbuf)
{
	if (world.n_packets == PACKETS_MAX)
		world.failure = "too many packets";
	else
		world.packets[world.n_packets++] = mbuf;
}

static void
send_contribution(uint16_t child, uint32_t block, bool again)
{
	bool empty = !brings_data(child, block);
	struct rte_mbuf *mbuf = fake_get(&world.pool,
					 empty ? 0u : COUNT * (world.job.wide ? 2u : 4u));
	struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *);
	int32_t *elements = (int32_t *)(headers + 1);
	uint16_t *halves = (uint16_t *)(headers + 1);

	fanin_wire_encode_header(&headers->fanin, FANIN_TYPE_CONTRIBUTION, 1, EPOCH, KEY);
	headers->fanin.flags = (uint16_t)((again ? FANIN_FLAG_RETRANSMIT : 0) |
					  (empty ? FANIN_FLAG_EMPTY : 0));
	headers->fanin.rank = child;
	headers->fanin.block = block;
	headers->fanin.dtype = world.job.wide ? FANIN_WIRE_BF16 : FANIN_WIRE_I32;
	headers->fanin.op = FANIN_WIRE_SUM;
	headers->fanin.count = COUNT;
	for (unsigned int i = 0; i < COUNT && !empty; i++) {
		if (world.job.wide)
			halves[i] = bf16_of(wide_value_of(child, block, i));
		else
			elements[i] = value_of(child, block, i);
	}
	packet_put(mbuf);
}

/* Asks for a block, and for as many after it as an answer of this job can tell about. */
static void
send_query(uint16_t child, uint32_t block, bool overdue)
{
	struct rte_mbuf *mbuf = fake_get(&world.pool, 0);
	struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *);

	fanin_wire_encode_header(&headers->fanin, FANIN_TYPE_QUERY, 1, EPOCH, KEY);
	headers->fanin.flags = overdue ? FANIN_FLAG_RETRANSMIT : 0;
	headers->fanin.rank = child;
	headers->fanin.block = block;
	headers->fanin.count = WINDOW;
	headers->fanin.number = 1 + block;
	packet_put(mbuf);
}

/* A contribution, now and then with a twin of either kind, or a query. */
static void
host_send(uint16_t child, uint32_t block)
{
	send_contribution(child, block, false);
	if (random_chance(&world.random, 0.1))
		send_contribution(child, block, false);
	if (random_chance(&world.random, 0.1))
		send_contribution(child, block, true);
	if (random_chance(&world.random, 0.2))
		send_query(child, block, random_chance(&world.random, 0.5));
}

static bool
was_sent(uint16_t child, uint32_t block)
{
	return block / WINDOW <= world.got[child][block % WINDOW];
}

/* What the answer says, the child must have sent by now: it may have sent more since. */
static void
host_take_answer(uint16_t child, const struct fanin_headers *headers)
{
	const uint32_t block = headers->fanin.block;
	struct fanin_answer_body body;
	struct answer_words said;
	uint64_t missing;

	memcpy(&said, headers + 1, sizeof(said));
	body = said.body;
	missing = answer_missing(&said);
	if (headers->fanin.rank != child || body.n_blocks > WINDOW)
		world.failure = "an answer is another child's, or too long";
	if (headers->fanin.number == 0 || body.n_blocks == 0)
		return;
	if (headers->fanin.number != 1 + block ||
	    headers->fanin.count != fanin_answer_state(&body, 0))
		world.failure = "an answer is not that of its query";
	if (headers->fanin.count == FANIN_BLOCK_OPEN && (missing >> child & 1) != 0)
		world.failure = "a block is open and lacks the child that brought its part";
	/* Where slots are shared, another worker may be combining the last contribution. */
	if (headers->fanin.count == FANIN_BLOCK_OPEN && !world.job.shared &&
	    (missing & world.job.children) == 0)
		world.failure = "a block is open and lacks nobody";
	for (uint32_t i = 0; i < body.n_blocks; i++) {
		/* A slot that kept changing counts as open. */
		if (fanin_answer_state(&body, i) >= FANIN_BLOCK_SENT && !was_sent(child, block + i))
			world.failure = "a block is done to which the child brought nothing yet";
	}
}

static void
host_take_result(uint16_t child, const struct fanin_headers *headers)
{
	uint32_t block = headers->fanin.block;
	uint32_t lane = block % WINDOW;

	bool empty = true;

	for (uint16_t other = 0; other < world.job.n_children; other++)
		empty = empty && !brings_data(other, block);
	if (fanin_wire_is_empty(&headers->fanin) != empty)
		world.failure = "a result is empty, or is not";
	for (unsigned int i = 0; i < COUNT && !empty; i++) {
		if (!sum_is_right(headers, block, i))
			world.failure = "a sum is wrong";
	}
	if (block / WINDOW != world.got[child][lane])
		return;
	world.got[child][lane]++;
	if (block + WINDOW < BLOCKS)
		host_send(child, block + WINDOW);
	else
		world.lanes_left--;
}

/* The parent lacks what it is asked for, or has it and is about to send the result. */
static void
parent_answer_query(const struct rte_mbuf *query)
{
	struct rte_mbuf *mbuf = fake_get(&world.pool, sizeof(struct answer_words));
	struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *);

	memcpy(headers, rte_pktmbuf_mtod(query, const void *), sizeof(*headers));
	memset(headers + 1, 0, sizeof(struct answer_words));
	headers->fanin.type = FANIN_TYPE_ANSWER;
	headers->fanin.flags = 0;
	headers->fanin.count = random_chance(&world.random, 0.5) ? FANIN_BLOCK_ABSENT
								 : FANIN_BLOCK_DONE;
	packet_put(mbuf);
}

/* The parent has no other children: what went up to it comes back as it is, now and then twice. */
static void
parent_answer(const struct rte_mbuf *sum)
{
	unsigned int copies = random_chance(&world.random, 0.2) ? 2 : 1;

	while (copies-- > 0) {
		struct rte_mbuf *mbuf = fake_get(&world.pool, COUNT * 4);
		struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *);

		memcpy(headers, rte_pktmbuf_mtod(sum, const void *),
		       FANIN_PAYLOAD_OFFSET + COUNT * 4);
		headers->fanin.type = FANIN_TYPE_RESULT;
		packet_put(mbuf);
	}
}

/* What a handler call asked for; under the lock. */
static void
carry_out(struct fanin_handler_ctx *ctx)
{
	for (unsigned int i = 0; i < ctx->n_emissions; i++) {
		const struct fanin_emission *emission = &ctx->emissions[i];
		const struct fanin_headers *headers =
			rte_pktmbuf_mtod(emission->mbuf, const struct fanin_headers *);

		for (uint64_t left = emission->children; left != 0; left &= left - 1) {
			if (headers->fanin.type == FANIN_TYPE_RESULT)
				host_take_result((uint16_t)__builtin_ctzll(left), headers);
			else
				host_take_answer((uint16_t)__builtin_ctzll(left), headers);
			fake_put(&world.pool, emission->mbuf);
		}
		if (emission->kind == FANIN_EMIT_PARENT) {
			if (headers->fanin.type == FANIN_TYPE_QUERY)
				parent_answer_query(emission->mbuf);
			else
				parent_answer(emission->mbuf);
			fake_put(&world.pool, emission->mbuf);
		}
	}
	for (unsigned int i = 0; i < ctx->n_frees; i++)
		fake_put(&world.pool, ctx->frees[i]);
	ctx->n_emissions = 0;
	ctx->n_frees = 0;
}

static void
finish_call(struct fanin_handler_ctx *ctx, struct rte_mbuf *mbuf, enum fanin_verdict verdict,
	    enum fanin_reason reason)
{
	switch (verdict) {
	case FANIN_VERDICT_HELD:
		break;
	case FANIN_VERDICT_FREE:
		fake_put(&world.pool, mbuf);
		break;
	case FANIN_VERDICT_DROP:
		if (reason != FANIN_REASON_BLOCK_STALE)
			world.failure = fanin_reason_name(reason);
		fake_put(&world.pool, mbuf);
		break;
	case FANIN_VERDICT_RETRY:
		world.retries++;
		packet_put(mbuf);
		break;
	}
	carry_out(ctx);
}

static struct rte_mbuf *
take_packet(void)
{
	struct rte_mbuf *mbuf;
	unsigned int which;

	if (world.n_packets == 0)
		return NULL;
	which = (unsigned int)random_below(&world.random, world.n_packets);
	mbuf = world.packets[which];
	world.packets[which] = world.packets[--world.n_packets];
	return mbuf;
}

/*
 * What an onlooker must find for the time of a block: of another block, or half of two, it would be
 * wrong.
 */
static uint64_t
begun_ns_of(uint32_t block)
{
	return UINT64_C(0x100000001) * (block + 1);
}

/* One look into a slot, without the lock. Returns what is wrong, NULL if nothing is. */
static const char *
look_into(uint32_t index, uint64_t *peeks)
{
	struct fanin_peek peek;

	if (!world.handler->peek(&world.job, EPOCH, world.slots + index * world.slot_bytes, &peek))
		return NULL;
	(*peeks)++;
	if (peek.block % SLOTS != index || peek.block >= BLOCKS)
		return "an onlooker saw a block in another one's slot";
	if (peek.begun_ns != begun_ns_of(peek.block))
		return "an onlooker saw the time of another block";
	if (peek.sent ? peek.missing != 0 || !world.job.has_parent
		      : peek.missing == 0 || (peek.missing & ~world.job.children) != 0)
		return "an onlooker saw children missing that can't be";
	return NULL;
}

/* Looks into all slots as long as the workers use them. */
static void *
onlooker(void *unused)
{
	const char *failure = NULL;
	uint64_t peeks = 0;

	pthread_mutex_lock(&world.lock);
	while (world.failure == NULL && world.lanes_left > 0) {
		pthread_mutex_unlock(&world.lock);
		for (uint32_t i = 0; i < SLOTS && failure == NULL; i++)
			failure = look_into(i, &peeks);
		sched_yield();
		pthread_mutex_lock(&world.lock);
		world.rounds++;
		if (failure != NULL)
			world.failure = failure;
	}
	world.peeks = peeks;
	pthread_mutex_unlock(&world.lock);
	return unused;
}

/* Lets the onlooker have its turn, however the threads are scheduled; under the lock. */
static void
await_onlooker(uint64_t *seen_rounds)
{
	while (world.rounds == *seen_rounds && world.failure == NULL && world.lanes_left > 0) {
		pthread_mutex_unlock(&world.lock);
		sched_yield();
		pthread_mutex_lock(&world.lock);
	}
	*seen_rounds = world.rounds;
}

static enum fanin_verdict
handler_call(struct fanin_handler_ctx *ctx, struct fanin_packet *packet, enum fanin_reason *reason)
{
	const uint32_t index = packet->headers->fanin.block % SLOTS;
	uint8_t *slot = world.slot_of[index];

	if (packet->headers->fanin.type == FANIN_TYPE_CONTRIBUTION)
		return world.handler->contribution(ctx, slot, index, packet, reason);
	return world.handler->other(ctx, slot, index, packet, reason);
}

static void *
worker(void *unused)
{
	struct fanin_handler_stats stats = { 0 };
	struct fanin_handler_ctx ctx = {
		.job = &world.job,
		.epoch = EPOCH,
		.parent_epoch = EPOCH,
		.stats = &stats,
	};
	uint64_t seen_rounds = 0;

	pthread_mutex_lock(&world.lock);
	for (unsigned int turn = 0; world.failure == NULL && world.lanes_left > 0; turn++) {
		struct rte_mbuf *mbuf = take_packet();
		enum fanin_reason reason = FANIN_REASON_NONE;
		enum fanin_verdict verdict;
		struct fanin_packet packet;

		pthread_mutex_unlock(&world.lock);
		if (mbuf == NULL) {
			sched_yield();
			pthread_mutex_lock(&world.lock);
			continue;
		}
		packet = (struct fanin_packet){
			.mbuf = mbuf,
			.headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *),
			.payload_len = mbuf->data_len - FANIN_PAYLOAD_OFFSET,
		};
		packet.payload = packet.headers + 1;
		packet.child = packet.headers->fanin.rank;
		ctx.now_ns = begun_ns_of(packet.headers->fanin.block);
		verdict = handler_call(&ctx, &packet, &reason);
		pthread_mutex_lock(&world.lock);
		finish_call(&ctx, mbuf, verdict, reason);
		if (turn % ONLOOKER_TURNS == 0 && world.lanes_left > 0)
			await_onlooker(&seen_rounds);
	}
	world.results += stats.results;
	world.contributions += stats.contributions;
	world.repeats += stats.repeats + stats.upward_repeats;
	world.pendings += stats.pendings;
	world.queries += stats.queries;
	world.upward_queries += stats.upward_queries;
	pthread_mutex_unlock(&world.lock);
	return unused;
}

static void
world_open(const char *handler, uint16_t n_children, bool wide, bool has_parent)
{
	memset(&world, 0, sizeof(world));
	pthread_mutex_init(&world.lock, NULL);
	world.random = random_seed(n_children);
	world.handler = fanin_handler_find(handler);
	ck_assert_ptr_nonnull(world.handler);
	world.job = (struct fanin_job_params){
		.id = 1,
		.window = WINDOW,
		.payload_bytes = COUNT * 4,
		.keys = { .up = KEY, .down = KEY + 1 },
		.shared = true,
		.in_order = world.handler->in_order,
		.wide = wide,
		.buffers = 3,
		.isa = FANIN_ISA_PORTABLE,
	};
	fanin_job_params_hosts(&world.job, n_children);
	world.job.has_parent = has_parent;
	fake_pool_init(&world.pool, PACKETS_MAX + SLOTS * (CHILDREN_MAX + 2));
	world.slot_bytes = RTE_CACHE_LINE_ROUNDUP(fanin_slot_size(world.handler, &world.job));
	world.slots = aligned_alloc(64, SLOTS * world.slot_bytes);
	memset(world.slots, 0, SLOTS * world.slot_bytes);
	for (uint32_t i = 0; i < SLOTS; i++)
		world.slot_of[i] = world.slots + i * world.slot_bytes;
	world.job.slots = (struct fanin_slots){ .by_index = world.slot_of, .mask = SLOTS - 1 };
	world.lanes_left = WINDOW * n_children;
	for (uint16_t child = 0; child < n_children; child++) {
		for (uint32_t block = 0; block < WINDOW; block++)
			host_send(child, block);
	}
}

static void
world_close(void)
{
	struct fanin_handler_stats stats = { 0 };
	struct fanin_handler_ctx ctx = {
		.job = &world.job, .epoch = EPOCH, .parent_epoch = EPOCH, .stats = &stats
	};

	while (world.n_packets > 0)
		fake_put(&world.pool, world.packets[--world.n_packets]);
	for (uint32_t i = 0; i < SLOTS; i++) {
		world.handler->slot_release(&ctx, world.slots + i * world.slot_bytes);
		carry_out(&ctx);
	}
	ck_assert_uint_eq(fake_pool_in_use(&world.pool), 0);
	fake_pool_fini(&world.pool);
	free(world.slots);
}

static const char *const handlers[] = { "single", "multi", "tree" };
static const uint16_t sizes[] = { 2, 3, 8, 16 };

/* Lets workers, and an onlooker beside them, run until all hosts have all results. */
static void
world_run(int n_workers)
{
	pthread_t threads[THREADS + 1];

	ck_assert_int_eq(pthread_create(&threads[0], NULL, onlooker, NULL), 0);
	for (int i = 1; i <= n_workers; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, worker, NULL), 0);
	for (int i = 0; i <= n_workers; i++)
		pthread_join(threads[i], NULL);
	ck_assert_msg(world.failure == NULL, "%s", world.failure);
	ck_assert_uint_eq(world.results, BLOCKS);
}

START_TEST(shared_slots_give_exact_sums)
{
	uint16_t n_children = sizes[_i % 4];

	world_open(handlers[_i / 4 % 3], n_children, _i / 12 == 1, _i / 12 == 2);
	world_run(THREADS);
	ck_assert_uint_eq(world.contributions, (uint64_t)BLOCKS * n_children);
	ck_assert_uint_gt(world.repeats + world.pendings, 0);
	ck_assert_uint_gt(world.queries, 0);
	ck_assert(world.job.has_parent == (world.upward_queries != 0));
	world_close();
}
END_TEST

/* Nobody but its worker changes a slot then, by plain stores. */
START_TEST(a_slot_can_be_looked_into_while_its_only_worker_uses_it)
{
	world_open(handlers[_i % 3], 8, false, _i / 3 == 1);
	world.job.shared = false;
	world_run(1);
	ck_assert_uint_gt(world.peeks, 0);
	world_close();
}
END_TEST

/*
 * A slot across two pages: its first word, the state, can be read, and the first touch of what
 * comes behind, the epoch, faults. The signal's handler is the other worker that does its work
 * between these two reads.
 */
static struct torn {
	struct fanin_dense_state *slot;
	uint8_t *pages;
	size_t page_size;
	struct fanin_handler_ctx ctx;
	struct fanin_headers packet;
	bool interrupted;
} torn;

static void
reset_and_open(int signal_number)
{
	(void)signal_number;
	torn.interrupted = true;
	if (mprotect(torn.pages + torn.page_size, torn.page_size, PROT_READ | PROT_WRITE) != 0)
		_exit(1);
	fanin_dense_state_reset(torn.slot, &torn.ctx, torn.packet.fanin.block);
	fanin_dense_state_open(torn.slot, &torn.packet.fanin, 0);
	fanin_dense_state_leave(torn.slot, true);
}

START_TEST(a_slot_that_another_worker_resets_meanwhile_is_seen_as_it_is_then)
{
	static const struct fanin_job_params job = { .n_children = 2,
						     .window = WINDOW,
						     .shared = true };
	const struct sigaction action = { .sa_handler = reset_and_open };
	const uint32_t block = SLOTS - 1;

	torn.page_size = (size_t)sysconf(_SC_PAGESIZE);
	torn.pages = mmap(NULL, 2 * torn.page_size, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(torn.pages, MAP_FAILED);
	torn.slot = (struct fanin_dense_state *)(torn.pages + torn.page_size - sizeof(uint64_t));
	torn.ctx.job = &job;
	torn.ctx.epoch = EPOCH;
	torn.packet.fanin.block = block;
	ck_assert_int_eq(sigaction(SIGSEGV, &action, NULL), 0);
	ck_assert_int_eq(mprotect(torn.pages + torn.page_size, torn.page_size, PROT_NONE), 0);

	ck_assert_int_eq(fanin_dense_state_enter(torn.slot, &torn.ctx, block, true),
			 FANIN_DENSE_CURRENT);
	ck_assert(torn.interrupted);
	ck_assert_uint_eq(torn.slot->word, fanin_state_make(block, FANIN_PHASE_OPEN, 1));
	munmap(torn.pages, 2 * torn.page_size);
}
END_TEST

Suite *
suite_concurrent(void)
{
	Suite *suite = suite_create("concurrent");
	TCase *torn_reads = tcase_create("torn reads");
	TCase *tcase = tcase_create("threads");

	tcase_set_timeout(tcase, 300);
	tcase_add_loop_test(tcase, shared_slots_give_exact_sums, 0, 36);
	tcase_add_loop_test(tcase, a_slot_can_be_looked_into_while_its_only_worker_uses_it, 0, 6);
	suite_add_tcase(suite, tcase);
	tcase_add_test(torn_reads,
		       a_slot_that_another_worker_resets_meanwhile_is_seen_as_it_is_then);
	suite_add_tcase(suite, torn_reads);
	return suite;
}
