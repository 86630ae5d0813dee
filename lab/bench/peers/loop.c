/* SPDX-License-Identifier: BSD-3-Clause */
/* The measured loop. See loop.h. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lab/bench/peers/loop.h"
#include "lab/reference/mark.h"

/* Small whole numbers: their sum is exact in any order. */
#define DATA_PERIOD 1021u

static float
element(size_t index, size_t iteration)
{
	return (float)((index + 7 * iteration) % DATA_PERIOD + 1);
}

/* Elements first to first + n of a vector. */
struct range {
	size_t first;
	size_t n;
};

static struct range
part_of(const struct peer *peer, size_t count)
{
	const size_t n = count / (size_t)peer->size;

	return (struct range){ n * (size_t)peer->rank, n };
}

static struct range
sends(const struct peer *peer, size_t count)
{
	if (peer->kind == PEER_ALLGATHER)
		return part_of(peer, count);
	if (peer->kind == PEER_BROADCAST && peer->rank != 0)
		return (struct range){ 0, 0 };
	return (struct range){ 0, count };
}

static struct range
receives(const struct peer *peer, size_t count)
{
	return peer->kind == PEER_REDUCE_SCATTER ? part_of(peer, count)
						 : (struct range){ 0, count };
}

static void
fill(const struct peer *peer, size_t iteration, float *send, float *recv, size_t count)
{
	const struct range range = sends(peer, count);

	memset(recv, 0xa5, count * sizeof(*recv));
	for (size_t i = range.first; i < range.first + range.n; i++)
		send[i] = (float)(peer->rank + 1) * element(i, iteration);
}

/*
 * Returns the factor of an element in a result: the sum of rank + 1 over the ranks that contribute
 * it.
 */
static int
factor(const struct peer *peer, size_t i, size_t count)
{
	if (peer->kind == PEER_BROADCAST)
		return 1;
	if (peer->kind == PEER_ALLGATHER)
		return (int)(i / (count / (size_t)peer->size)) + 1;
	return peer->size * (peer->size + 1) / 2;
}

static size_t
mismatches(const struct peer *peer, size_t iteration, const float *recv, size_t count,
	   bool in_place)
{
	const struct range range = receives(peer, count);
	const float *result = in_place && peer->kind == PEER_REDUCE_SCATTER ? recv
									    : recv + range.first;
	size_t found = 0;

	for (size_t k = 0; k < range.n; k++) {
		const size_t i = range.first + k;

		found += result[k] != (float)factor(peer, i, count) * element(i, iteration);
	}
	return found;
}

static double
now_seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static size_t
parse(const char *name, const char *text, size_t least)
{
	unsigned long long value;
	char *end;

	errno = 0;
	value = strtoull(text, &end, 10);
	if (errno != 0 || end == text || *end != '\0' || text[0] == '-' || value < least ||
	    value > UINT32_MAX) {
		fprintf(stderr, "%s is '%s', expected %zu to %u\n", name, text, least, UINT32_MAX);
		exit(2);
	}
	return (size_t)value;
}

enum peer_collective
peer_collective_parse(const char *name)
{
	static const char *const names[PEER_COLLECTIVES] = {
		[PEER_ALLREDUCE] = "allreduce", [PEER_REDUCE_SCATTER] = "reduce_scatter",
		[PEER_BROADCAST] = "broadcast", [PEER_ALLGATHER] = "allgather",
		[PEER_BARRIER] = "barrier",
	};

	for (int kind = 0; kind < PEER_COLLECTIVES; kind++) {
		if (strcmp(name, names[kind]) == 0)
			return (enum peer_collective)kind;
	}
	fprintf(stderr,
		"found '%s', expected allreduce, reduce_scatter, broadcast, allgather or barrier\n",
		name);
	exit(2);
}

void
peer_task_parse(struct peer_task *task, const char *const *arguments)
{
	task->bytes = parse("BYTES", arguments[0], 0);
	task->iters = parse("ITERS", arguments[1], 1);
	task->warmup = parse("WARMUP", arguments[2], 0);
}

void
peer_task_more(struct peer_task *task, const char *const *arguments)
{
	for (; *arguments != NULL; arguments++) {
		if (strcmp(*arguments, "in-place") == 0) {
			task->in_place = true;
		} else if (strncmp(*arguments, "mark=", 5) == 0) {
			task->mark = *arguments + 5;
		} else {
			fprintf(stderr, "found '%s', expected in-place or mark=SOCKET\n",
				*arguments);
			exit(2);
		}
	}
}

/*
 * Sends the mark at the beginning of the measured loop, and before its last round, which has new
 * data: the other ranks wait.
 */
static void
mark(struct peer *peer, const struct peer_task *task, size_t i)
{
	int errnum;

	if (task->mark == NULL || (i != task->warmup && i + 1 != task->warmup + task->iters))
		return;
	errnum = peer->rank == 0 ? mark_moment(task->mark) : 0;
	if (errnum != 0) {
		fprintf(stderr, "%s: %s\n", task->mark, strerror(errnum));
		exit(1);
	}
	peer->barrier(peer);
}

static void
print(const double *times, size_t iters, double wrong)
{
	printf("{\"mismatches\": %.0f, \"times\": [", wrong);
	for (size_t i = 0; i < iters; i++)
		printf("%s%.9f", i == 0 ? "" : ", ", times[i]);
	printf("]}\n");
	fflush(stdout);
}

int
peer_run(struct peer *peer, const struct peer_task *task)
{
	size_t count = peer->kind == PEER_BARRIER ? 0 : task->bytes / sizeof(float);
	size_t total = task->warmup + task->iters;
	float *send = malloc((count + 1) * sizeof(*send));
	float *recv = task->in_place ? send : malloc((count + 1) * sizeof(*recv));
	/* The last value is the number of wrong elements. */
	double *times = calloc(task->iters + 1, sizeof(*times));
	size_t wrong = 0;
	int status = 1;

	if (send == NULL || recv == NULL || times == NULL) {
		fprintf(stderr, "out of memory for %zu bytes\n", task->bytes);
		goto free_all;
	}
	if ((peer->kind == PEER_REDUCE_SCATTER || peer->kind == PEER_ALLGATHER) &&
	    count % (size_t)peer->size != 0) {
		fprintf(stderr, "found %zu elements, expected a multiple of %d ranks\n", count,
			peer->size);
		status = 2;
		goto free_all;
	}
	for (size_t i = 0; i < total; i++) {
		double started;

		mark(peer, task, i);
		if (i == 0 || i + 1 == total)
			fill(peer, i, send, recv, count);
		peer->barrier(peer);
		started = now_seconds();
		peer->collective(peer, send, recv, count);
		if (i >= task->warmup)
			times[i - task->warmup] = now_seconds() - started;
		if (i == 0 || i + 1 == total)
			wrong += mismatches(peer, i, recv, count, task->in_place);
	}
	times[task->iters] = (double)wrong;
	peer->maximum(peer, times, task->iters + 1);
	if (peer->rank == 0)
		print(times, task->iters, times[task->iters]);
	status = wrong != 0;

free_all:
	if (recv != send)
		free(recv);
	free(send);
	free(times);
	return status;
}
