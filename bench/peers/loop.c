/* SPDX-License-Identifier: BSD-3-Clause */
/* The measured loop. See loop.h. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/peers/loop.h"

/* Small whole numbers: their sum is exact in whatever order a library adds. */
#define DATA_PERIOD 1021u

static float
element(size_t index, size_t iteration)
{
	return (float)((index + 7 * iteration) % DATA_PERIOD + 1);
}

static void
fill(const struct peer *peer, size_t iteration, float *send, float *recv, size_t count)
{
	for (size_t i = 0; i < count; i++)
		send[i] = (float)(peer->rank + 1) * element(i, iteration);
	memset(recv, 0xa5, count * sizeof(*recv));
}

static size_t
mismatches(const struct peer *peer, size_t iteration, const float *recv, size_t count)
{
	int ranks = peer->size * (peer->size + 1) / 2;
	size_t found = 0;

	for (size_t i = 0; i < count; i++)
		found += recv[i] != (float)ranks * element(i, iteration);
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

void
peer_task_parse(struct peer_task *task, const char *const *arguments)
{
	task->bytes = parse("BYTES", arguments[0], sizeof(float));
	task->iters = parse("ITERS", arguments[1], 1);
	task->warmup = parse("WARMUP", arguments[2], 0);
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
	size_t count = task->bytes / sizeof(float);
	size_t total = task->warmup + task->iters;
	float *send = malloc(count * sizeof(*send));
	float *recv = malloc(count * sizeof(*recv));
	/* The last one is the number of wrong elements. */
	double *times = calloc(task->iters + 1, sizeof(*times));
	size_t wrong = 0;
	int status = 1;

	if (send == NULL || recv == NULL || times == NULL) {
		fprintf(stderr, "out of memory for %zu bytes\n", task->bytes);
		goto free_all;
	}
	for (size_t i = 0; i < total; i++) {
		double started;

		if (i == 0 || i + 1 == total)
			fill(peer, i, send, recv, count);
		peer->barrier(peer);
		started = now_seconds();
		peer->allreduce(peer, send, recv, count);
		if (i >= task->warmup)
			times[i - task->warmup] = now_seconds() - started;
		if (i == 0 || i + 1 == total)
			wrong += mismatches(peer, i, recv, count);
	}
	times[task->iters] = (double)wrong;
	peer->maximum(peer, times, task->iters + 1);
	if (peer->rank == 0)
		print(times, task->iters, times[task->iters]);
	status = wrong != 0;

free_all:
	free(send);
	free(recv);
	free(times);
	return status;
}
