/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Several ranks of a ring in one process, over loopback TCP, with a clock of the test's. Test
 * suites include it once.
 */
#ifndef FANIN_PROTOCOLS_RING_TESTS_RING_RIG_H
#define FANIN_PROTOCOLS_RING_TESTS_RING_RIG_H

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include <check.h>

#include "protocols/ring/host/ring.h"
#include "wire/types.h"

#define MAX_RANKS 64
#define KEY 0x1234567890abcdefull
#define TIMEOUT_NS (2000 * 1000000ull)
#define STEP_NS (100 * 1000ull)

struct rig {
	uint64_t now_ns;
	uint16_t n_ranks;
	uint64_t wait_limit_ns; /* before the ranks are created */
	bool wide;
	bool paused[MAX_RANKS]; /* makes no progress calls */
	int listeners[MAX_RANKS];
	struct sockaddr_in addresses[MAX_RANKS];
	struct fanin_endpoint *rings[MAX_RANKS];
	struct fanin_log log;
};

static uint64_t
rig_now(void *arg)
{
	return ((struct rig *)arg)->now_ns;
}

static void
rig_create_rank(struct rig *rig, uint16_t rank, uint64_t key)
{
	const struct fanin_protocol_config config = {
		.keys.ring = key,
		.timeout_ns = TIMEOUT_NS,
		.rank = rank,
		.size = rig->n_ranks,
		.wide = rig->wide,
		.listener = rig->listeners[rank],
		.peers = rig->addresses,
		.wait_limit_ns = rig->wait_limit_ns,
		.now_ns = rig_now,
		.now_arg = rig,
		.log = &rig->log,
	};

	struct fanin_error error = { 0 };

	ck_assert_int_eq(fanin_ring_open(&fanin_protocol_ring, &config, &rig->rings[rank], &error),
			 FANIN_OK);
}

static void
rig_listen(struct rig *rig, uint16_t n_ranks)
{
	struct fanin_error error;

	*rig = (struct rig){ .now_ns = 1000000000, .n_ranks = n_ranks };
	for (uint16_t i = 0; i < n_ranks; i++) {
		rig->listeners[i] = fanin_ring_listen(htonl(INADDR_LOOPBACK), &rig->addresses[i],
						      &error);
		ck_assert_int_ge(rig->listeners[i], 0);
	}
}

static void
rig_step(struct rig *rig)
{
	rig->now_ns += STEP_NS;
	for (uint16_t i = 0; i < rig->n_ranks; i++) {
		if (rig->rings[i] != NULL && !rig->paused[i])
			fanin_ring_poll(rig->rings[i]);
	}
}

/*
 * Lets this time pass. What ranks send arrives within the first polls; afterwards nothing but time
 * passes, in larger steps.
 */
static inline void
rig_wait(struct rig *rig, uint64_t for_ns)
{
	const uint64_t end_ns = rig->now_ns + for_ns;

	for (int i = 0; i < 1000 && rig->now_ns < end_ns; i++)
		rig_step(rig);
	while (rig->now_ns < end_ns) {
		rig->now_ns += 9 * STEP_NS;
		rig_step(rig);
	}
}

static bool
rig_wired(const struct rig *rig)
{
	struct fanin_error problem;

	for (uint16_t i = 0; i < rig->n_ranks; i++) {
		if (rig->rings[i] != NULL && !fanin_ring_ready(rig->rings[i], &problem))
			return false;
	}
	return true;
}

static void
rig_wire(struct rig *rig)
{
	for (uint64_t steps = 0; !rig_wired(rig); steps++) {
		ck_assert_uint_lt(steps, 5 * TIMEOUT_NS / STEP_NS);
		rig_step(rig);
	}
}

static void
rig_create(struct rig *rig, uint16_t n_ranks, bool wide)
{
	rig_listen(rig, n_ranks);
	rig->wide = wide;
	for (uint16_t i = 0; i < n_ranks; i++)
		rig_create_rank(rig, i, KEY);
	rig_wire(rig);
}

static void
rig_destroy(struct rig *rig)
{
	for (uint16_t i = 0; i < rig->n_ranks; i++)
		fanin_ring_destroy(rig->rings[i]);
}

/* An allreduce of all ranks; the test fills in what they send. */
struct collective {
	uint64_t count;
	uint8_t dtype;
	uint8_t op;
	uint8_t *send[MAX_RANKS];
	uint8_t *recv[MAX_RANKS];
	struct fanin_request requests[MAX_RANKS];
};

static void
collective_make(struct collective *collective, const struct rig *rig, uint64_t count,
		unsigned int dtype, unsigned int op, bool in_place)
{
	size_t len = count * fanin_dtype_size(dtype);

	*collective = (struct collective){
		.count = count,
		.dtype = (uint8_t)dtype,
		.op = (uint8_t)op,
	};
	for (uint16_t i = 0; i < rig->n_ranks; i++) {
		collective->send[i] = calloc(1, len + 1);
		collective->recv[i] = in_place ? collective->send[i] : calloc(1, len + 1);
		ck_assert(collective->send[i] != NULL && collective->recv[i] != NULL);
		collective->recv[i][len] = 0x5a;
	}
}

static void
collective_post(struct collective *collective, struct rig *rig, uint16_t rank)
{
	struct fanin_request *request = &collective->requests[rank];

	*request = (struct fanin_request){
		.send = collective->send[rank],
		.recv = collective->recv[rank],
		.dtype = collective->dtype,
		.op = collective->op,
	};
	ck_assert_int_eq(fanin_ring_post(rig->rings[rank], request, collective->count), FANIN_OK);
}

static void
collective_post_all(struct collective *collective, struct rig *rig)
{
	for (uint16_t i = 0; i < rig->n_ranks; i++)
		collective_post(collective, rig, i);
}

/*
 * Steps until no rank that is polled has it in progress; returns how long that took on the rig's
 * clock.
 */
static uint64_t
collective_run(const struct collective *collective, struct rig *rig)
{
	const uint64_t started_ns = rig->now_ns;
	bool done = false;

	while (!done) {
		ck_assert_uint_lt(rig->now_ns - started_ns, 50 * TIMEOUT_NS);
		rig_step(rig);
		done = true;
		for (uint16_t i = 0; i < rig->n_ranks; i++) {
			if (rig->rings[i] != NULL && !rig->paused[i] &&
			    collective->requests[i].status == FANIN_IN_PROGRESS)
				done = false;
		}
	}
	return rig->now_ns - started_ns;
}

static void
collective_expect_ok(const struct collective *collective, const struct rig *rig)
{
	size_t len = collective->count * fanin_dtype_size(collective->dtype);

	for (uint16_t i = 0; i < rig->n_ranks; i++) {
		if (rig->rings[i] == NULL)
			continue;
		ck_assert_msg(collective->requests[i].status == FANIN_OK, "rank %u of %u: %s", i,
			      rig->n_ranks, fanin_ring_error(rig->rings[i])->text);
		ck_assert_uint_eq(collective->requests[i].done_bytes, len);
		ck_assert_uint_eq(collective->recv[i][len], 0x5a);
	}
}

static void
collective_free(struct collective *collective, const struct rig *rig)
{
	for (uint16_t i = 0; i < rig->n_ranks; i++) {
		if (collective->recv[i] != collective->send[i])
			free(collective->recv[i]);
		free(collective->send[i]);
	}
}

#endif
