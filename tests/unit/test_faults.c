/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Whole jobs over the handler "single" and a network that loses, duplicates and reorders packets in
 * both directions: every host gets every exact result, nothing hangs, and every mbuf comes back.
 * The hosts here only follow the window protocol: they query at random, and send blocks again that
 * the switch calls absent. Seeds are fixed.
 */
#include <stdlib.h>
#include <string.h>

#include "handlers/handler.h"
#include "tests/unit/answer_words.h"
#include "tests/unit/fake_mbuf.h"
#include "lab/reference/random.h"
#include "tests/unit/suites.h"

#define JOB 1
#define EPOCH 2
#define KEY 3
#define COUNT_MAX 19
#define BLOCKS_MAX 256
#define SLOTS_MAX 32
#define FLIGHTS_MAX 65536
#define FLIGHTS_HIGH 4096   /* from here on the network only delivers */
#define UPWARD_HIGH 512     /* from here on the hosts wait */
#define STEPS_MAX 20000000L /* a larger number is a hang */

struct host {
	bool silent;
	bool sent[BLOCKS_MAX];
	bool got[BLOCKS_MAX];
	uint32_t n_queries;
	uint64_t seen_members; /* all bitmaps of ANSWER packets about blocks that are open */
};

/* A packet on the network. */
struct flight {
	struct rte_mbuf *mbuf;
	uint16_t host;
	bool upward;
};

/* One job on one switch, with its hosts and the network between them. */
static struct simulation {
	struct random random;
	double loss;
	double duplication;
	uint32_t first_block;
	uint32_t n_blocks;
	uint64_t results_left;

	const struct fanin_handler *handler;
	struct fanin_job_params job;
	struct fanin_handler_ctx ctx;
	struct fanin_handler_stats stats;
	uint8_t *slots;
	uint8_t *slot_of[SLOTS_MAX];
	size_t slot_bytes;
	struct fake_pool pool;

	struct host hosts[FANIN_WIRE_MAX_CHILDREN];
	struct flight flights[FLIGHTS_MAX];
	uint32_t n_flights;
	uint32_t n_upward;
} sim;

/* The shape of a block, which every host knows. */
struct shape {
	uint8_t dtype;
	uint8_t op;
	uint16_t count;
};

static struct shape
shape_of(uint32_t block)
{
	static const uint8_t ops[] = { FANIN_WIRE_SUM, FANIN_WIRE_MIN, FANIN_WIRE_MAX };

	return (struct shape){
		.dtype = block % 2 == 0 ? FANIN_WIRE_I32 : FANIN_WIRE_F32,
		.op = ops[block % 3],
		.count = (uint16_t)(block * 7 % (COUNT_MAX + 1)),
	};
}

/* Returns small integers, whose sums are exact in f32, too. */
static int32_t
value_of(uint16_t host, uint32_t block, unsigned int i)
{
	return (int32_t)((host * 7919u + block * 104729u + i * 31u) % 20001u) - 10000;
}

static int32_t
expected_of(uint32_t block, unsigned int i)
{
	struct shape shape = shape_of(block);
	int32_t result = value_of(0, block, i);

	for (uint16_t host = 1; host < sim.job.n_children; host++) {
		int32_t value = value_of(host, block, i);

		if (shape.op == FANIN_WIRE_SUM)
			result += value;
		else if ((shape.op == FANIN_WIRE_MIN) == (value < result))
			result = value;
	}
	return result;
}

static void *
payload_of(struct rte_mbuf *mbuf)
{
	return rte_pktmbuf_mtod_offset(mbuf, void *, FANIN_PAYLOAD_OFFSET);
}

static struct fanin_hdr *
header_of(struct rte_mbuf *mbuf)
{
	return &rte_pktmbuf_mtod(mbuf, struct fanin_headers *)->fanin;
}

static void
simulation_start(const char *handler, uint16_t n_hosts, uint16_t window, uint32_t first_block,
		 uint32_t n_blocks, uint64_t seed)
{
	memset(&sim, 0, sizeof(sim));
	sim.random = random_seed(seed);
	sim.first_block = first_block;
	sim.n_blocks = n_blocks;
	sim.results_left = (uint64_t)n_hosts * n_blocks;
	sim.handler = fanin_handler_find(handler);
	sim.job = (struct fanin_job_params){
		.id = JOB,
		.window = window,
		.payload_bytes = 128,
		.keys = { .up = KEY, .down = KEY + 1 },
		.isa = fanin_isa_detect(),
		.buffers = 3,
	};
	fanin_job_params_hosts(&sim.job, n_hosts);
	sim.ctx.job = &sim.job;
	sim.ctx.epoch = EPOCH;
	sim.ctx.stats = &sim.stats;
	fake_pool_init(&sim.pool, 8192);
	sim.slot_bytes = RTE_CACHE_LINE_ROUNDUP(fanin_slot_size(sim.handler, &sim.job));
	sim.slots = aligned_alloc(64, 2 * window * sim.slot_bytes);
	ck_assert_ptr_nonnull(sim.slots);
	memset(sim.slots, 0, 2 * window * sim.slot_bytes);
	for (uint32_t i = 0; i < 2u * window; i++)
		sim.slot_of[i] = sim.slots + i * sim.slot_bytes;
	sim.job.slots = (struct fanin_slots){ .by_index = sim.slot_of, .mask = 2u * window - 1 };
}

static void
launch_one(struct rte_mbuf *mbuf, uint16_t host, bool upward)
{
	if (sim.n_flights == FLIGHTS_MAX)
		ck_abort_msg("more than %d packets on the network", FLIGHTS_MAX);
	sim.flights[sim.n_flights++] = (struct flight){ mbuf, host, upward };
	sim.n_upward += upward;
}

/* Passes a reference to the network, which may lose or duplicate it. */
static void
launch(struct rte_mbuf *mbuf, uint16_t host, bool upward)
{
	if (random_chance(&sim.random, sim.loss)) {
		fake_put(&sim.pool, mbuf);
		return;
	}
	if (random_chance(&sim.random, sim.duplication)) {
		const uint32_t payload_len = mbuf->data_len - FANIN_PAYLOAD_OFFSET;
		struct rte_mbuf *copy = fake_get(&sim.pool, payload_len);

		memcpy(header_of(copy), header_of(mbuf), FANIN_HDR_LEN + payload_len);
		launch_one(copy, host, upward);
	}
	launch_one(mbuf, host, upward);
}

static void
host_send(uint16_t host, uint32_t block)
{
	struct host *self = &sim.hosts[host];
	uint32_t serial = block - sim.first_block;
	struct shape shape = shape_of(block);
	struct rte_mbuf *mbuf = fake_get(&sim.pool, shape.count * 4u);
	struct fanin_hdr *hdr = header_of(mbuf);

	fanin_wire_encode_header(hdr, FANIN_TYPE_CONTRIBUTION, JOB, EPOCH, KEY);
	hdr->flags = self->sent[serial] ? FANIN_FLAG_RETRANSMIT : 0;
	hdr->rank = host;
	hdr->contributions = 1;
	hdr->block = block;
	hdr->dtype = shape.dtype;
	hdr->op = shape.op;
	hdr->count = shape.count;
	for (unsigned int i = 0; i < shape.count; i++) {
		int32_t value = value_of(host, block, i);

		if (shape.dtype == FANIN_WIRE_I32)
			((int32_t *)payload_of(mbuf))[i] = value;
		else
			((float *)payload_of(mbuf))[i] = (float)value;
	}
	self->sent[serial] = true;
	launch(mbuf, host, true);
}

/* Sends a query of a host about a block and those after it. */
static void
host_ask(uint16_t host, uint32_t block, bool overdue)
{
	struct rte_mbuf *mbuf = fake_get(&sim.pool, 0);
	struct fanin_hdr *hdr = header_of(mbuf);

	fanin_wire_encode_header(hdr, FANIN_TYPE_QUERY, JOB, EPOCH, KEY);
	hdr->flags = overdue ? FANIN_FLAG_RETRANSMIT : 0;
	hdr->rank = host;
	hdr->block = block;
	hdr->count = (uint16_t)(1 + random_below(&sim.random, 2u * sim.job.window));
	hdr->number = ++sim.hosts[host].n_queries;
	launch(mbuf, host, true);
}

/* Lets a host run: it sends a block that it may send, or queries one without a result. */
static void
host_act(uint16_t host)
{
	struct host *self = &sim.hosts[host];
	uint32_t start = random_below(&sim.random, sim.n_blocks);

	if (self->silent)
		return;
	for (uint32_t i = 0; i < sim.n_blocks; i++) {
		uint32_t serial = (start + i) % sim.n_blocks;

		if (self->got[serial])
			continue;
		if (serial >= sim.job.window && !self->got[serial - sim.job.window])
			continue;
		/* Now and then a timer expires too early. */
		if (self->sent[serial] && !random_chance(&sim.random, 0.1))
			continue;
		if (self->sent[serial])
			host_ask(host, sim.first_block + serial, random_chance(&sim.random, 0.5));
		else
			host_send(host, sim.first_block + serial);
		return;
	}
}

/* The switch can't have a block that the host has never sent. */
static void
host_learn(uint16_t host, uint32_t serial, enum fanin_block_state state)
{
	struct host *self = &sim.hosts[host];

	if (serial >= sim.n_blocks || !self->sent[serial]) {
		if (state != FANIN_BLOCK_ABSENT)
			ck_abort_msg("block %u is in state %d before it was sent", serial, state);
		return;
	}
	if (self->got[serial])
		return;
	if (state == FANIN_BLOCK_ABSENT)
		host_send(host, sim.first_block + serial);
	else if (state == FANIN_BLOCK_DONE)
		host_ask(host, sim.first_block + serial, true);
}

static void
host_receive_answer(uint16_t host, struct rte_mbuf *mbuf)
{
	struct host *self = &sim.hosts[host];
	const struct fanin_hdr *hdr = header_of(mbuf);
	const uint32_t serial = hdr->block - sim.first_block;
	struct fanin_answer_body body;
	struct answer_words said;
	uint64_t missing;

	ck_assert_uint_eq(mbuf->data_len, FANIN_PAYLOAD_OFFSET + sizeof(said));
	ck_assert_uint_eq(hdr->rank, host);
	ck_assert_uint_le(hdr->number, self->n_queries);
	memcpy(&said, payload_of(mbuf), sizeof(said));
	body = said.body;
	missing = answer_missing(&said);
	ck_assert_uint_le(body.n_blocks, sim.job.window);
	if (hdr->count == FANIN_BLOCK_OPEN) {
		ck_assert_uint_eq(missing >> host & 1, 0);
		ck_assert_uint_ne(missing, 0);
		self->seen_members |= sim.job.children & ~missing;
	}
	/* The packet answers a contribution that was sent again unnecessarily. */
	if (hdr->number == 0) {
		ck_assert_uint_eq(body.n_blocks, 0);
		return;
	}
	ck_assert_uint_ge(body.n_blocks, 1);
	ck_assert_uint_eq(fanin_answer_state(&body, 0), hdr->count);
	for (unsigned int i = 0; i < body.n_blocks; i++)
		host_learn(host, serial + i, fanin_answer_state(&body, i));
}

static void
host_receive(uint16_t host, struct rte_mbuf *mbuf)
{
	struct host *self = &sim.hosts[host];
	const struct fanin_hdr *hdr = header_of(mbuf);
	uint32_t serial = hdr->block - sim.first_block;
	struct shape shape = shape_of(hdr->block);

	ck_assert_uint_lt(serial, sim.n_blocks);
	ck_assert(self->sent[serial]);
	if (hdr->type == FANIN_TYPE_ANSWER) {
		host_receive_answer(host, mbuf);
		return;
	}

	ck_assert_uint_eq(hdr->type, FANIN_TYPE_RESULT);
	ck_assert_uint_eq(hdr->contributions, sim.job.n_children);
	ck_assert(hdr->dtype == shape.dtype && hdr->op == shape.op && hdr->count == shape.count);
	for (unsigned int i = 0; i < shape.count; i++) {
		int32_t expected = expected_of(hdr->block, i);

		bool same = shape.dtype == FANIN_WIRE_I32
				    ? ((int32_t *)payload_of(mbuf))[i] == expected
				    : ((float *)payload_of(mbuf))[i] == (float)expected;

		/* Not with ck_assert, which writes to a pipe each time. */
		if (!same)
			ck_abort_msg("block %u, element %u is not %d", hdr->block, i, expected);
	}
	sim.results_left -= !self->got[serial];
	self->got[serial] = true;
}

/* Does the pipeline's work after a burst. */
static void
switch_flush(void)
{
	for (unsigned int i = 0; i < sim.ctx.n_emissions; i++) {
		const struct fanin_emission *emission = &sim.ctx.emissions[i];

		if (emission->kind == FANIN_EMIT_REPLY)
			emission->mbuf->data_len =
				(uint16_t)(FANIN_PAYLOAD_OFFSET + emission->payload_len);
		for (uint16_t host = 0; host < sim.job.n_children; host++) {
			if (emission->children >> host & 1)
				launch(emission->mbuf, host, false);
		}
	}
	for (unsigned int i = 0; i < sim.ctx.n_frees; i++)
		fake_put(&sim.pool, sim.ctx.frees[i]);
	sim.ctx.n_emissions = 0;
	sim.ctx.n_frees = 0;
}

static void
switch_receive(uint16_t host, struct rte_mbuf *mbuf)
{
	const struct fanin_hdr *hdr = header_of(mbuf);
	uint32_t index = hdr->block % (2u * sim.job.window);
	enum fanin_reason reason = FANIN_REASON_NONE;
	struct fanin_packet packet = {
		.mbuf = mbuf,
		.headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *),
		.payload = payload_of(mbuf),
		.payload_len = hdr->count * 4u,
		.child = host,
	};

	/* A slot's first block, wherever block numbers begin. */
	uint32_t first = sim.first_block + (hdr->block - sim.first_block) % (2u * sim.job.window);
	enum fanin_verdict verdict;

	if (hdr->type == FANIN_TYPE_QUERY)
		verdict = sim.handler->other(&sim.ctx, sim.slot_of[index], first, &packet, &reason);
	else
		verdict = sim.handler->contribution(&sim.ctx, sim.slot_of[index], first, &packet,
						    &reason);
	switch (verdict) {
	case FANIN_VERDICT_HELD:
		break;
	case FANIN_VERDICT_DROP:
		/*
		 * Hosts that follow the protocol can't cause any other reason; this one has the
		 * result.
		 */
		ck_assert(sim.hosts[host].got[hdr->block - sim.first_block]);
		ck_assert_str_eq(fanin_reason_name(reason),
				 fanin_reason_name(FANIN_REASON_BLOCK_STALE));
		fake_put(&sim.pool, mbuf);
		break;
	case FANIN_VERDICT_FREE:
		fake_put(&sim.pool, mbuf);
		break;
	case FANIN_VERDICT_RETRY:
		ck_abort_msg("another worker is in the way, but there is none");
	}
	switch_flush();
}

/* Delivers a random packet of the network. */
static void
deliver(void)
{
	uint32_t which = random_below(&sim.random, sim.n_flights);
	struct flight flight = sim.flights[which];

	sim.flights[which] = sim.flights[--sim.n_flights];
	sim.n_upward -= flight.upward;
	if (flight.upward) {
		switch_receive(flight.host, flight.mbuf);
	} else {
		host_receive(flight.host, flight.mbuf);
		fake_put(&sim.pool, flight.mbuf);
	}
}

static void
simulation_step(void)
{
	bool must_deliver = sim.n_flights >= FLIGHTS_HIGH || sim.n_upward >= UPWARD_HIGH;

	if (sim.n_flights > 0 && (must_deliver || random_chance(&sim.random, 0.6)))
		deliver();
	else
		host_act((uint16_t)random_below(&sim.random, sim.job.n_children));
}

/* Empties the network and releases the slots: no mbuf may be left. */
static void
simulation_stop(void)
{
	while (sim.n_flights > 0)
		deliver();
	for (uint32_t i = 0; i < 2u * sim.job.window; i++) {
		sim.handler->slot_release(&sim.ctx, sim.slot_of[i]);
		switch_flush();
	}
	ck_assert_uint_eq(fake_pool_in_use(&sim.pool), 0);
	fake_pool_fini(&sim.pool);
	free(sim.slots);
}

static const uint16_t sizes[] = { 1, 2, 3, 8, 16, 64 };
static const uint16_t windows[] = { 1, 2, 4, 8, 16 };
static const double shares[] = { 0, 0.01, 0.1, 0.3 };

#define N_SIZES (int)(sizeof(sizes) / sizeof(sizes[0]))
#define SEEDS_PER_SIZE 20

static const char *const handlers[] = { "single", "multi", "tree" };

#define RUNS (N_SIZES * SEEDS_PER_SIZE)

START_TEST(every_result_is_exact_and_every_mbuf_returns)
{
	const char *handler = handlers[_i / RUNS];
	uint16_t n_hosts = sizes[_i % RUNS / SEEDS_PER_SIZE];
	uint16_t window = windows[_i % 5];
	uint32_t n_blocks = window * 8u + 5u;
	/* Half of the runs cross the end of the block numbers. */
	uint32_t first_block = _i / 5 % 2 == 0 ? 0 : 0u - n_blocks / 2;
	long steps = 0;

	simulation_start(handler, n_hosts, window, first_block, n_blocks, (uint64_t)_i);
	sim.loss = shares[_i / 5 % 4];
	sim.duplication = shares[(_i + 1) % 4];
	while (sim.results_left > 0) {
		if (steps++ == STEPS_MAX)
			ck_abort_msg("%llu results are missing",
				     (unsigned long long)sim.results_left);
		simulation_step();
	}
	simulation_stop();
	ck_assert_uint_eq(sim.stats.contributions, (uint64_t)n_hosts * n_blocks);
	ck_assert_uint_eq(sim.stats.results, n_blocks);
	ck_assert(sim.loss == 0 || sim.stats.queries != 0);
}
END_TEST

START_TEST(a_silent_host_is_named_to_all_others)
{
	simulation_start(handlers[_i], 4, 4, 0, 64, 77);
	sim.loss = 0.1;
	sim.hosts[2].silent = true;
	for (int i = 0; i < 20000; i++)
		simulation_step();
	simulation_stop();
	ck_assert_uint_eq(sim.stats.results, 0);
	ck_assert_uint_eq(sim.hosts[0].seen_members, 0xb);
	ck_assert_uint_eq(sim.hosts[1].seen_members, 0xb);
	ck_assert_uint_eq(sim.hosts[3].seen_members, 0xb);
}
END_TEST

Suite *
suite_faults(void)
{
	Suite *suite = suite_create("faults");
	TCase *jobs = tcase_create("jobs");

	tcase_set_timeout(jobs, 300);
	tcase_add_loop_test(jobs, every_result_is_exact_and_every_mbuf_returns, 0, 3 * RUNS);
	tcase_add_loop_test(jobs, a_silent_host_is_named_to_all_others, 0, 3);
	suite_add_tcase(suite, jobs);
	return suite;
}
