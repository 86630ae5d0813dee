/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One rank that broadcasts, gathers, and does an allgather and a reduce_scatter at the same time,
 * by the public calls; its buffers get other contents as soon as a call returns. The job comes from
 * the network manager. Prints one JSON object: what was wrong, and what the report says of
 * multicast.
 *
 * usage: gathering MANAGER JOB-NAME ADDRESS RANK SIZE ROUNDS
 * ROUNDS "killed": broadcasts that are tested for, until one fails; "disagree": one, of which rank
 * 2 takes another rank for the root. What the calls say of that is printed. With 0 rounds the first
 * broadcast is interrupted in its first wait, which is the one for the second job, and a second
 * broadcast is tried.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fanin/fanin.h"

#define RANKS 16
#define ELEMENTS 40000 /* of each rank, and of a broadcast */

static fanin_ctx *ctx;
static int32_t vector[RANKS * ELEMENTS], parts[RANKS * ELEMENTS], sums[ELEMENTS];

static void
check(const char *what, int status)
{
	if (status == FANIN_OK)
		return;
	printf("{\"ok\": false, \"what\": \"%s\", \"error\": \"%s\"}\n", what,
	       fanin_ctx_error(ctx));
	exit(1);
}

static int32_t
element(unsigned int rank, unsigned int round, unsigned int i)
{
	return (int32_t)(rank * 1000003u + round * 7919u + i);
}

static void
fill(int32_t *elements, unsigned int rank, unsigned int round, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++)
		elements[i] = element(rank, round, i);
}

static unsigned int
wrong_in(const int32_t *elements, unsigned int rank, unsigned int round, unsigned int n)
{
	unsigned int wrong = 0;

	for (unsigned int i = 0; i < n; i++)
		wrong += elements[i] != element(rank, round, i);
	return wrong;
}

static unsigned int
broadcast_run(fanin_comm *comm, unsigned int rank, unsigned int size, unsigned int round)
{
	const unsigned int root = round % size;
	unsigned int wrong;

	fill(vector, rank, round, ELEMENTS);
	check("broadcast", fanin_broadcast(vector, ELEMENTS, FANIN_I32, (uint16_t)root, comm));
	wrong = wrong_in(vector, root, round, ELEMENTS);
	memset(vector, 0x55, sizeof(vector));
	return wrong;
}

/* An allgather and a reduce_scatter side by side. */
static unsigned int
pair_run(fanin_comm *comm, unsigned int rank, unsigned int size, unsigned int round)
{
	fanin_request *gather, *scatter;
	unsigned int wrong = 0;

	fill(vector + rank * ELEMENTS, rank, round, ELEMENTS);
	for (unsigned int i = 0; i < size * ELEMENTS; i++)
		parts[i] = (int32_t)(i + rank);
	check("iallgather", fanin_iallgather(vector + rank * ELEMENTS, vector, ELEMENTS, FANIN_I32,
					     comm, &gather));
	check("ireduce_scatter",
	      fanin_ireduce_scatter(parts, sums, ELEMENTS, FANIN_I32, FANIN_SUM, comm, &scatter));
	check("wait", fanin_wait(&gather));
	check("wait", fanin_wait(&scatter));
	for (unsigned int r = 0; r < size; r++)
		wrong += wrong_in(vector + r * ELEMENTS, r, round, ELEMENTS);
	for (unsigned int i = 0; i < ELEMENTS; i++)
		wrong += sums[i] != (int32_t)(size * (rank * ELEMENTS + i) + size * (size - 1) / 2);
	memset(vector, 0x55, sizeof(vector));
	return wrong;
}

static bool
interrupt(void *armed)
{
	return *(const bool *)armed;
}

/* Prints what two broadcasts return, of which the first is interrupted. */
static void
interrupted_run(fanin_comm *comm, bool *armed)
{
	int first, second;

	*armed = true;
	first = fanin_broadcast(vector, ELEMENTS, FANIN_I32, 0, comm);
	*armed = false;
	second = fanin_broadcast(vector, ELEMENTS, FANIN_I32, 0, comm);
	printf("{\"ok\": true, \"first\": %d, \"second\": %d, \"error\": \"%s\"}\n", first, second,
	       fanin_ctx_error(ctx));
	fanin_leave(comm);
	fanin_finalize(ctx);
}

static void
list_print(const char *name, const uint16_t *ranks, size_t n)
{
	printf(", \"%s\": [", name);
	for (size_t i = 0; i < n && i < RANKS; i++)
		printf("%s%u", i == 0 ? "" : ", ", ranks[i]);
	printf("]");
}

/*
 * Broadcasts go by the second job, which fails: prints what the first communicator says of it, and
 * then of a sum.
 */
static void
failing_run(fanin_comm *comm, unsigned int rank, const char *mode)
{
	const bool disagrees = strcmp(mode, "disagree") == 0 && rank == 2;
	uint16_t missing[RANKS];
	int status = FANIN_OK;
	fanin_request *request;

	check("broadcast", fanin_broadcast(vector, ELEMENTS, FANIN_I32, 0, comm));
	fputs("running\n", stderr);
	while (status == FANIN_OK) {
		check("ibroadcast",
		      fanin_ibroadcast(vector, ELEMENTS, FANIN_I32, disagrees, comm, &request));
		do
			status = fanin_test(request);
		while (status == FANIN_IN_PROGRESS);
		if (status == FANIN_OK)
			check("wait", fanin_wait(&request));
	}
	printf("{\"status\": %d, \"ctx\": \"%s\"", status, fanin_ctx_error(ctx));
	list_print("ctx_missing", missing, fanin_ctx_missing_ranks(ctx, missing, RANKS));
	printf(", \"comm\": \"%s\"", fanin_comm_error(comm));
	list_print("comm_missing", missing, fanin_comm_missing_ranks(comm, missing, RANKS));
	status = fanin_allreduce(vector, vector, 1, FANIN_I32, FANIN_SUM, comm);
	printf(", \"next\": %d, \"why\": \"%s\"}\n", status, fanin_ctx_error(ctx));
	fanin_leave(comm);
	fanin_finalize(ctx);
}

int
main(int argc, char **argv)
{
	bool armed = false;
	const struct fanin_init_opts init = { .sz = sizeof(init),
					      .interrupt = interrupt,
					      .interrupt_arg = &armed };
	struct fanin_report report = { .sz = sizeof(report) };
	struct fanin_join_opts options = { .sz = sizeof(options), .fixed_rank = true };
	unsigned int wrong = 0;
	fanin_comm *comm;

	if (argc != 7)
		return 2;
	options.manager = argv[1];
	options.job_name = argv[2];
	options.address = argv[3];
	options.rank = (uint16_t)atoi(argv[4]);
	options.size = (uint16_t)atoi(argv[5]);
	options.timeout_ms = strcmp(argv[6], "killed") == 0 ? 3000 : 0;
	if (options.size > RANKS)
		return 2;
	check("init", fanin_init(&init, &ctx));
	check("join", fanin_join(ctx, &options, &comm));
	if (strcmp(argv[6], "killed") == 0 || strcmp(argv[6], "disagree") == 0) {
		failing_run(comm, options.rank, argv[6]);
		return 0;
	}
	if (atoi(argv[6]) == 0) {
		interrupted_run(comm, &armed);
		return 0;
	}
	for (unsigned int round = 0; round < (unsigned int)atoi(argv[6]); round++) {
		wrong += broadcast_run(comm, options.rank, options.size, round);
		wrong += pair_run(comm, options.rank, options.size, round);
	}
	check("report", fanin_comm_report(comm, &report));
	printf("{\"ok\": true, \"wrong\": %u, \"reason\": \"%s\", \"operations\": %llu, \"fetched\": %llu}\n",
	       wrong, report.multicast_reason, (unsigned long long)report.multicast_operations,
	       (unsigned long long)report.multicast_fetched);
	check("leave", fanin_leave(comm));
	fanin_finalize(ctx);
	return 0;
}
