/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One rank of a job of which rank 1 gives up after a sum: the others' barrier must fail, and not
 * take its leave for its part. Prints one JSON object; the exit status is 0 unless it could not
 * come so far.
 *
 * usage: giving-up JOB-NAME TRANSPORT INTERFACE RANK SIZE
 */
#include <fanin/fanin.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define COUNT 10000

static double
now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

int
main(int argc, char **argv)
{
	static float vector[COUNT];
	struct fanin_init_opts init = { .sz = sizeof(init) };
	struct fanin_join_opts join = { .sz = sizeof(join),
					.fixed_rank = true,
					.no_fallback = true };
	fanin_ctx *ctx = NULL;
	fanin_comm *comm = NULL;
	double began;
	int status;

	if (argc != 6) {
		fputs("usage: giving-up JOB-NAME TRANSPORT INTERFACE RANK SIZE\n", stderr);
		return 2;
	}
	init.transport = argv[2];
	join.job_name = argv[1];
	join.interface = argv[3];
	join.rank = (uint16_t)atoi(argv[4]);
	join.size = (uint16_t)atoi(argv[5]);
	status = fanin_init(&init, &ctx);
	if (status == FANIN_OK)
		status = fanin_join(ctx, &join, &comm);
	if (status == FANIN_OK)
		status = fanin_allreduce(vector, vector, COUNT, FANIN_F32, FANIN_SUM, comm);
	if (status != FANIN_OK) {
		fprintf(stderr, "giving-up: %s: %s\n", fanin_strerror(status),
			ctx == NULL ? "" : fanin_ctx_error(ctx));
		return 1;
	}
	began = now();
	if (join.rank == 1) {
		status = fanin_abort(comm);
	} else {
		status = fanin_barrier(comm);
		fanin_leave(comm);
	}
	printf("{\"status\": %d, \"seconds\": %.3f}\n", status, now() - began);
	fanin_finalize(ctx);
	return 0;
}
