/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One rank of an allreduce that posts it and then computes, which is to say that it calls nothing
 * of the library until it gets SIGUSR1, or that waits for it. Whether the library makes progress
 * meanwhile, FANIN_BACKGROUND_PROGRESS says. Checks every element and prints one JSON object; the
 * exit status is 0 if all is right.
 *
 * usage: computing SWITCH TRANSPORT RANK SIZE JOB KEY compute|wait
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fanin/fanin.h"

#define ELEMENTS (1u << 18) /* many windows */

static fanin_ctx *ctx;

static void __attribute__((noreturn)) fail(const char *what)
{
	printf("{\"ok\": false, \"error\": \"%s: %s\"}\n", what,
	       ctx == NULL ? "" : fanin_ctx_error(ctx));
	exit(1);
}

static fanin_comm *
join(char **arguments, uint16_t rank, uint16_t size)
{
	const struct fanin_init_opts init = { .sz = sizeof(init), .transport = arguments[1] };
	const struct fanin_join_opts options = {
		.sz = sizeof(options),
		.switch_address = arguments[0],
		.job = (uint32_t)strtoul(arguments[4], NULL, 0),
		.key = strtoull(arguments[5], NULL, 0),
		.rank = rank,
		.size = size,
	};
	fanin_comm *comm;

	if (fanin_init(&init, &ctx) != FANIN_OK)
		fail("init");
	if (fanin_join(ctx, &options, &comm) != FANIN_OK)
		fail("join");
	return comm;
}

int
main(int argc, char **argv)
{
	const uint16_t rank = argc == 8 ? (uint16_t)strtoul(argv[3], NULL, 0) : 0;
	const uint16_t size = argc == 8 ? (uint16_t)strtoul(argv[4], NULL, 0) : 0;
	static uint32_t vector[ELEMENTS];
	fanin_request *request;
	uint64_t total_bytes, done_bytes = 0;
	fanin_comm *comm;
	sigset_t awaited;
	int number;

	if (argc != 8)
		return 2;
	sigemptyset(&awaited);
	sigaddset(&awaited, SIGUSR1);
	sigprocmask(SIG_BLOCK, &awaited, NULL);
	comm = join(argv + 1, rank, size);
	for (uint32_t i = 0; i < ELEMENTS; i++)
		vector[i] = (rank + 1u) * i;
	if (fanin_iallreduce(vector, vector, ELEMENTS, FANIN_U32, FANIN_SUM, comm, &request) !=
	    FANIN_OK)
		fail("post");
	if (strcmp(argv[7], "compute") == 0) {
		sigwait(&awaited, &number);
		done_bytes = fanin_request_progress(request, &total_bytes);
	}
	if (fanin_wait(&request) != FANIN_OK)
		fail("wait");
	for (uint32_t i = 0; i < ELEMENTS; i++) {
		if (vector[i] != size * (size + 1u) / 2 * i)
			fail("an element is wrong");
	}
	if (fanin_leave(comm) != FANIN_OK)
		fail("leave");
	fanin_finalize(ctx);
	printf("{\"ok\": true, \"bytes\": %zu, \"computed\": %" PRIu64 "}\n", sizeof(vector),
	       done_bytes);
	return 0;
}
