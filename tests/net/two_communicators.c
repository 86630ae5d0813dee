/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One rank of two jobs at once, by one context: posts collectives of all kinds on both before it
 * waits for any, in an order of its own, and checks every element it gets. Then passes a barrier
 * and tells when it came and when it went on, for the test to hold against the other ranks. Prints
 * one JSON object; the exit status is 0 if all is right.
 *
 * usage: two-communicators SWITCH TRANSPORT RANK SIZE JOB KEY JOB KEY
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lab/reference/perf_collective.h"

#define JOBS 2
#define POSTED 18 /* per job */
#define ELEMENTS 20000

struct posted {
	struct perf_collective collective;
	int32_t *send;
	int32_t *recv;
	fanin_request *request;
};

static fanin_ctx *ctx;
static fanin_comm *comms[JOBS];
static struct posted all[JOBS][POSTED];

static void __attribute__((noreturn)) fail(const char *what)
{
	printf("{\"ok\": false, \"error\": \"%s: %s\"}\n", what,
	       ctx == NULL ? "" : fanin_ctx_error(ctx));
	exit(1);
}

static uint64_t
now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void
join(char **arguments, uint16_t rank, uint16_t size)
{
	const struct fanin_init_opts init = { .sz = sizeof(init), .transport = arguments[1] };

	if (fanin_init(&init, &ctx) != FANIN_OK)
		fail("init");
	for (int j = 0; j < JOBS; j++) {
		const struct fanin_join_opts options = {
			.sz = sizeof(options),
			.switch_address = arguments[0],
			.job = (uint32_t)strtoul(arguments[4 + 2 * j], NULL, 0),
			.key = strtoull(arguments[5 + 2 * j], NULL, 0),
			.rank = rank,
			.size = size,
		};

		if (fanin_join(ctx, &options, &comms[j]) != FANIN_OK)
			fail("join");
	}
}

/* The same on every rank: another kind, root and size each time. */
static void
post(int j, int i, uint16_t rank, uint16_t size)
{
	struct posted *posted = &all[j][i];
	uint64_t part = (uint64_t)(ELEMENTS / size - 13 * i);
	struct perf_range range;

	posted->collective = (struct perf_collective){
		.kind = (enum perf_collective_kind)((i + j) % PERF_COLLECTIVES),
		.root = (uint16_t)((i + j) % size),
		.rank = rank,
		.count = (i + j) % PERF_COLLECTIVES == PERF_BARRIER ? 0 : part * size,
		.data = { .dtype = FANIN_I32,
			  .op = FANIN_SUM,
			  .seed = (uint32_t)(100 * j + i),
			  .size = size },
	};
	posted->send = calloc(ELEMENTS, sizeof(int32_t));
	posted->recv = (rank + i) % 2 != 0 ? posted->send : calloc(ELEMENTS, sizeof(int32_t));
	if (posted->send == NULL || posted->recv == NULL)
		fail("memory");
	range = perf_collective_sends(&posted->collective);
	perf_data_fill(&posted->collective.data, rank, 0, range.first, range.n,
		       posted->send + range.first);
	if (perf_collective_post(&posted->collective, posted->send, posted->recv, comms[j],
				 &posted->request) != FANIN_OK)
		fail(perf_collective_name(posted->collective.kind));
}

/* Waits for it; returns how many elements are wrong. */
static uint64_t
finish(struct posted *posted)
{
	struct perf_range range = perf_collective_receives(&posted->collective);
	int32_t *expected = calloc(ELEMENTS, sizeof(*expected));
	uint64_t wrong = 0;

	if (expected == NULL)
		fail("memory");
	if (fanin_wait(&posted->request) != FANIN_OK)
		fail(perf_collective_name(posted->collective.kind));
	perf_collective_expect(&posted->collective, 0, range.first, range.n, expected);
	for (uint64_t i = 0; i < range.n; i++)
		wrong += posted->recv[range.first + i] != expected[i];
	free(expected);
	if (posted->recv != posted->send)
		free(posted->recv);
	free(posted->send);
	return wrong;
}

int
main(int argc, char **argv)
{
	uint64_t mismatches = 0;
	uint64_t came_ns, went_ns;
	uint16_t rank, size;

	if (argc != 5 + 2 * JOBS) {
		fprintf(stderr,
			"usage: two-communicators SWITCH TRANSPORT RANK SIZE JOB KEY JOB KEY\n");
		return 2;
	}
	rank = (uint16_t)strtoul(argv[3], NULL, 0);
	size = (uint16_t)strtoul(argv[4], NULL, 0);
	join(argv + 1, rank, size);
	/* Odd ranks begin with the other job; within a job the order is everybody's. */
	for (int i = 0; i < POSTED; i++) {
		post(rank % JOBS, i, rank, size);
		post(1 - rank % JOBS, i, rank, size);
	}
	for (int i = 0; i < POSTED; i++) {
		int k = rank % 3 == 0 ? i : POSTED - 1 - i;

		mismatches += finish(&all[rank % JOBS][k]);
		mismatches += finish(&all[1 - rank % JOBS][k]);
	}
	came_ns = now_ns();
	if (fanin_barrier(comms[0]) != FANIN_OK)
		fail("barrier");
	went_ns = now_ns();
	for (int j = 0; j < JOBS; j++) {
		if (fanin_leave(comms[j]) != FANIN_OK)
			fail("leave");
	}
	fanin_finalize(ctx);
	printf("{\"ok\": %s, \"mismatches\": %" PRIu64 ", \"came_ns\": %" PRIu64
	       ", \"went_ns\": %" PRIu64 "}\n",
	       mismatches == 0 ? "true" : "false", mismatches, came_ns, went_ns);
	return mismatches == 0 ? 0 : 1;
}
