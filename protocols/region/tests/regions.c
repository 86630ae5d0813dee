/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One rank that writes into two regions of its communicator, fences them, and reduces one, by the
 * public calls. The job comes from the network manager. Prints one JSON object: what was wrong, or
 * which call failed and why.
 *
 * usage: regions MANAGER JOB-NAME ADDRESS RANK SIZE MODE
 * MODE: a number of rounds; "tags": two, in jobs whose packets have tags; "endless": rounds until a
 * call fails; "lengths": rank 0 gives another length than the others; "memory": one, and before it
 * rank 1 has no memory for a region; "agreement": rank 1 has none for its part of the agreement on
 * one, of a job with two trees; "silent": as one round, but after creating the regions the ranks
 * other than 0 compute until they see what rank 0 has written, without a call.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fanin/fanin.h"
#include "hostlib/src/comm/comm.h"

#define RANKS 16
#define REGIONS 2
#define SLICE 50021 /* bytes of each rank, aligned to nothing */
#define BYTES (RANKS * SLICE + 13)
#define ELEMENTS 3001
#define SILENT_SECONDS 20

static fanin_ctx *ctx;
static fanin_region *regions[REGIONS];
static uint8_t memory[REGIONS][BYTES], data[SLICE];
static unsigned int round_now;

/* The size of the next allocation that finds no memory; 0: all find some. */
static size_t lacking;

/* The linker has the library call these. */
void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);

void *
__wrap_calloc(size_t n, size_t size)
{
	if (lacking == 0 || n * size != lacking)
		return __real_calloc(n, size);
	lacking = 0;
	return NULL;
}

/* The context's last error, as a string of JSON may have it. */
static void
error_copy(char *text, size_t text_len)
{
	snprintf(text, text_len, "%s", fanin_ctx_error(ctx));
	for (; *text != '\0'; text++) {
		if (*text == '"' || *text == '\\')
			*text = '\'';
	}
}

/* Prints why a call failed, and ends the process. */
static void
check(const char *what, int status)
{
	uint16_t missing[RANKS];
	char error[512];
	size_t n;

	if (status == FANIN_OK)
		return;
	error_copy(error, sizeof(error));
	n = fanin_ctx_missing_ranks(ctx, missing, RANKS);
	printf("{\"ok\": false, \"what\": \"%s\", \"status\": %d, \"round\": %u, \"error\": \"%s\", \"missing\": [",
	       what, status, round_now, error);
	for (size_t i = 0; i < n && i < RANKS; i++)
		printf("%s%u", i == 0 ? "" : ", ", missing[i]);
	printf("]}\n");
	exit(1);
}

static uint8_t
byte_of(unsigned int region, unsigned int rank, unsigned int round, size_t i)
{
	return (uint8_t)(i * 7 + i / 251 + rank * 31 + round * 101 + region * 53 + 1);
}

/* Writes this rank's slice, in pieces of different lengths. */
static void
slice_write(unsigned int region, unsigned int rank, unsigned int round)
{
	size_t done = 0;

	for (size_t piece = 1; done < SLICE; piece = piece * 3 + 1) {
		const size_t n = piece < SLICE - done ? piece : SLICE - done;

		for (size_t i = 0; i < n; i++)
			data[i] = byte_of(region, rank, round, done + i);
		check("write",
		      fanin_region_write(regions[region], 5 + rank * SLICE + done, data, n));
		memset(data, 0x55, n);
		done += n;
	}
}

/* Returns how many bytes of a region are not what all have written. */
static size_t
wrong_in(unsigned int region, unsigned int size, unsigned int round)
{
	size_t wrong = 0;

	for (unsigned int rank = 0; rank < size; rank++) {
		for (size_t i = 0; i < SLICE; i++)
			wrong += memory[region][5 + rank * SLICE + i] !=
				 byte_of(region, rank, round, i);
	}
	for (size_t i = 0; i < 5; i++)
		wrong += memory[region][i] != 0;
	for (size_t i = 5 + size * (size_t)SLICE; i < BYTES; i++)
		wrong += memory[region][i] != 0;
	return wrong;
}

static size_t
round_run(unsigned int rank, unsigned int size, unsigned int round)
{
	size_t wrong = 0;

	for (unsigned int r = 0; r < REGIONS; r++)
		slice_write(r, rank, round);
	/* Each has fences of its own. */
	for (unsigned int r = 0; r < REGIONS; r++)
		check("fence", fanin_region_fence(regions[r]));
	for (unsigned int r = 0; r < REGIONS; r++) {
		wrong += wrong_in(r, size, round);
		/*
		 * The region is the application's until others write again: they wait for this
		 * fence.
		 */
		memset(memory[r], 0, BYTES);
	}
	for (unsigned int r = 0; r < REGIONS; r++)
		check("fence", fanin_region_fence(regions[r]));
	return wrong;
}

#define REDUCED_AT 9 /* aligned to nothing */

static void
elements_fill(unsigned int rank)
{
	for (int32_t i = 0; i < ELEMENTS; i++) {
		const int32_t value = i * 3 + (int32_t)rank;

		memcpy(memory[0] + REDUCED_AT + (size_t)i * sizeof(value), &value, sizeof(value));
	}
}

static size_t
wrong_sums(unsigned int size)
{
	size_t wrong = 0;

	for (int32_t i = 0; i < ELEMENTS; i++) {
		int32_t value;

		memcpy(&value, memory[0] + REDUCED_AT + (size_t)i * sizeof(value), sizeof(value));
		wrong += value != (int32_t)size * i * 3 + (int32_t)(size * (size - 1) / 2);
	}
	return wrong;
}

/* A way to sum a range of all ranks' regions in place. */
struct way {
	const char *name;
	enum fanin_beside_use use;
	int (*reduce)(fanin_region *region, size_t offset, size_t count, enum fanin_dtype dtype,
		      enum fanin_op op);
};

static const struct way pushes = { "push", FANIN_BESIDE_PUSH, fanin_region_push };
static const struct way pulls = { "pull", FANIN_BESIDE_PULL, fanin_region_pull };

/*
 * Sums by a way, twice: the second time in the job of the first. Returns how many sums are wrong:
 * in a library that was built without the way's protocol, how many calls say anything else than
 * that.
 */
static size_t
reduce_run(const struct way *way, unsigned int rank, unsigned int size)
{
	const bool is_here = fanin_protocol_beside(way->use) != NULL;
	size_t wrong = 0;

	for (unsigned int i = 0; i < 2; i++) {
		int status;

		elements_fill(rank);
		status = way->reduce(regions[0], REDUCED_AT, ELEMENTS, FANIN_I32, FANIN_SUM);
		if (is_here) {
			check(way->name, status);
			wrong += wrong_sums(size);
		} else if (status != FANIN_ERR_UNSUPPORTED ||
			   strstr(fanin_ctx_error(ctx), "was built without") == NULL) {
			wrong++;
		}
	}
	return wrong;
}

/*
 * Rank 0 writes; the others see it without calling anything. Returns how many seconds that took, at
 * most SILENT_SECONDS.
 */
static double
silent_run(unsigned int rank)
{
	const volatile uint8_t *seen = memory[0] + SLICE - 1;
	const uint8_t last = 0xa7;
	struct timespec begin, now;
	double seconds = 0;

	clock_gettime(CLOCK_MONOTONIC, &begin);
	if (rank == 0)
		check("write", fanin_region_write(regions[0], SLICE - 1, &last, 1));
	while (*seen != last && seconds < SILENT_SECONDS) {
		clock_gettime(CLOCK_MONOTONIC, &now);
		seconds = (double)(now.tv_sec - begin.tv_sec) +
			  (double)(now.tv_nsec - begin.tv_nsec) / 1e9;
	}
	check("fence", fanin_region_fence(regions[0]));
	return seconds;
}

static size_t
rounds_run(const struct fanin_join_opts *options, const char *mode, double *silent_s)
{
	const bool endless = strcmp(mode, "endless") == 0;
	const unsigned int rounds = options->authenticate         ? 2
				    : strcmp(mode, "memory") == 0 ? 1
								  : (unsigned int)atoi(mode);
	size_t wrong = 0;

	if (strcmp(mode, "silent") == 0) {
		*silent_s = silent_run(options->rank);
		return 0;
	}
	for (; endless || round_now < rounds; round_now++)
		wrong += round_run(options->rank, options->size, round_now);
	return wrong;
}

/* What the calls say of arguments that are no good. */
static bool
refusals_are_right(void)
{
	return fanin_region_write(regions[0], BYTES, data, 1) == FANIN_ERR_INVALID &&
	       fanin_region_write(regions[0], 0, NULL, 1) == FANIN_ERR_INVALID &&
	       fanin_region_write(NULL, 0, data, 1) == FANIN_ERR_INVALID &&
	       fanin_region_write(regions[0], SIZE_MAX, data, 2) == FANIN_ERR_INVALID &&
	       fanin_region_write(regions[0], BYTES, NULL, 0) == FANIN_OK &&
	       fanin_region_fence(NULL) == FANIN_ERR_INVALID &&
	       fanin_region_push(regions[0], BYTES - 7, 2, FANIN_I32, FANIN_SUM) ==
		       FANIN_ERR_INVALID &&
	       fanin_region_pull(regions[0], 0, SIZE_MAX / 2, FANIN_I32, FANIN_SUM) ==
		       FANIN_ERR_INVALID &&
	       fanin_region_push(regions[0], 0, 1, (enum fanin_dtype)99, FANIN_SUM) ==
		       FANIN_ERR_INVALID &&
	       fanin_region_free(NULL) == FANIN_OK && fanin_region_network_address(NULL) == 0 &&
	       fanin_region_network_address(regions[0]) < fanin_region_network_address(regions[1]);
}

/* Creates a region for which a rank has no memory. Returns the status, with the error in `why`. */
static int
create_without_memory(fanin_comm *comm, char *why, size_t why_len)
{
	const int status = fanin_region_create(comm, memory[0], BYTES, NULL, &regions[0]);

	error_copy(why, why_len);
	if (lacking != 0)
		snprintf(why, why_len, "nothing was allocated");
	lacking = 0;
	return status;
}

int
main(int argc, char **argv)
{
	struct fanin_join_opts options = { .sz = sizeof(options), .fixed_rank = true };
	struct fanin_report report = { .sz = sizeof(report) };
	size_t wrong, n_wrong_sums;
	double silent_s = 0;
	char why[512] = "";
	int first = FANIN_OK;
	bool refuses;
	fanin_comm *comm;

	if (argc != 7)
		return 2;
	options.manager = argv[1];
	options.job_name = argv[2];
	options.address = argv[3];
	options.rank = (uint16_t)atoi(argv[4]);
	options.size = (uint16_t)atoi(argv[5]);
	options.authenticate = strcmp(argv[6], "tags") == 0;
	if (options.size > RANKS)
		return 2;
	if (strcmp(argv[6], "agreement") == 0)
		options.trees = 2;
	check("init", fanin_init(NULL, &ctx));
	check("join", fanin_join(ctx, &options, &comm));
	if (strcmp(argv[6], "lengths") == 0) {
		check("create", fanin_region_create(comm, memory[0], BYTES - (options.rank == 0),
						    NULL, &regions[0]));
		return 1;
	}
	if (strcmp(argv[6], "agreement") == 0) {
		lacking = options.rank == 1 ? sizeof(struct fanin_request) : 0;
		check("create", create_without_memory(comm, why, sizeof(why)));
		return 1;
	}
	if (strcmp(argv[6], "memory") == 0) {
		lacking = options.rank == 1 ? sizeof(struct fanin_region) : 0;
		first = create_without_memory(comm, why, sizeof(why));
	}
	for (unsigned int r = 0; r < REGIONS; r++)
		check("create", fanin_region_create(comm, memory[r], BYTES, NULL, &regions[r]));
	refuses = refusals_are_right();
	wrong = rounds_run(&options, argv[6], &silent_s);
	n_wrong_sums = reduce_run(&pushes, options.rank, options.size) +
		       reduce_run(&pulls, options.rank, options.size);
	check("report", fanin_comm_report(regions[0]->comm, &report));
	printf("{\"ok\": true, \"wrong\": %zu, \"wrong_sums\": %zu, \"refuses\": %s, \"silent_s\": %.3f, \"resumed\": %" PRIu64
	       ", \"tags\": %s, \"addresses\": [%" PRIu64 ", %" PRIu64
	       "], \"first\": %d, \"why\": \"%s\"}\n",
	       wrong, n_wrong_sums, refuses ? "true" : "false", silent_s, report.resumed,
	       report.authenticated ? "true" : "false", fanin_region_network_address(regions[0]),
	       fanin_region_network_address(regions[1]), first, why);
	fflush(stdout);
	/* One by itself, the other with its communicator. */
	check("free", fanin_region_free(regions[0]));
	check("leave", fanin_leave(comm));
	fanin_finalize(ctx);
	return 0;
}
