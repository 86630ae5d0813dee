/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fanin-perf: runs collectives as one rank of a job, measures them, and can check every element
 * against a result that it computes itself (lab/reference/perf_data.c), without the switch. Uses
 * the public library only. Exit status: 0 success, 1 a wrong element or a failed run, 2 wrong
 * usage, 130 and 143 after SIGINT and SIGTERM.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lab/reference/mark.h"
#include "lab/reference/perf_compare.h"
#include "lab/reference/perf_custom.h"
#include "tools/perf.h"
#include "lab/reference/perf_data.h"

#define BAR_WIDTH 30

static volatile sig_atomic_t got_signal;

static void
on_signal(int number)
{
	got_signal = number;
}

static double
now_seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* ----------------------------------------------------------------- check */

static struct perf_collective
collective_of(const struct run *run)
{
	const struct options *options = run->options;

	return (struct perf_collective){
		.kind = options->collective,
		.root = options->root,
		.rank = run->report.rank,
		.count = options->bytes / fanin_dtype_size_of(options->dtype),
		.data = {
			.dtype = options->dtype,
			.op = options->op,
			.seed = options->seed,
			.size = options->join.size,
			.wide = run->wide,
			.random = options->random_data,
		},
	};
}

static struct perf_sparse
sparse_of(const struct run *run)
{
	return (struct perf_sparse){
		.data = run->collective.data,
		.pattern = run->options->pattern,
		.density = run->options->density,
		.places = run->options->pattern_file != NULL ? &run->options->places : NULL,
	};
}

/* Computes what this rank must have received: n elements from `first` on. */
static void
result_expect(const void *user, uint64_t first, uint64_t n, void *elements)
{
	const struct run *run = user;
	const struct perf_sparse sparse = sparse_of(run);

	if (options_has_zeros(run->options))
		perf_sparse_expect(&sparse, run->iteration, first, n, elements);
	else
		perf_collective_expect(&run->collective, run->iteration, first, n, elements);
}

/* Counts the elements of this rank's result that differ in any bit from the reference. */
static uint64_t
result_check(const struct run *run)
{
	const struct perf_range range = perf_collective_receives(&run->collective);
	const struct perf_comparison comparison = {
		.element_bytes = fanin_dtype_size_of(run->options->dtype),
		.expect = result_expect,
		.user = run,
		.stop = &got_signal,
	};
	struct perf_difference difference;
	const uint64_t mismatches = perf_compare(&comparison,
						 run->recv + range.first * comparison.element_bytes,
						 range.first, range.n, &difference);

	if (mismatches > 0)
		fprintf(stderr,
			"fanin-perf: iteration %" PRIu64 ", element %" PRIu64
			": found %s, expected %s\n",
			run->iteration, difference.index, difference.found, difference.expected);
	return mismatches;
}

/* FNV-1a, 64 bits, over all results in sequence: equal digests mean equal bits. */
#define DIGEST_START UINT64_C(0xcbf29ce484222325)
#define DIGEST_PRIME UINT64_C(0x100000001b3)

static uint64_t
digest_add(uint64_t digest, const uint8_t *bytes, uint64_t len)
{
	for (uint64_t i = 0; i < len; i++)
		digest = (digest ^ bytes[i]) * DIGEST_PRIME;
	return digest;
}

/*
 * Checks that the job combines in the order of ranks, as the reference for random data does. A job
 * of one switch does with the handler tree; a job of several, if it is reproducible.
 */
static int
order_check(struct run *run)
{
	if (!run->options->check || !run->options->random_data ||
	    !perf_collective_combines(run->collective.kind))
		return FANIN_OK;
	if (strcmp(run->report.handler, "tree") != 0)
		snprintf(
			run->message, sizeof(run->message),
			"--check with --data random needs a reproducible job: found the handler %s, expected tree",
			run->report.handler);
	else if (run->options->join.job_name != NULL && !run->options->join.reproducible)
		snprintf(
			run->message, sizeof(run->message),
			"--check with --data random needs a reproducible job: found --job-name without --reproducible");
	else
		return FANIN_OK;
	return FANIN_ERR_UNSUPPORTED;
}

/* -------------------------------------------------------------- progress */

static void
bar_draw(const struct run *run)
{
	uint64_t total_bytes;
	uint64_t done_bytes = fanin_request_progress(run->request, &total_bytes);
	double share = total_bytes == 0 ? 0 : (double)done_bytes / (double)total_bytes;
	double elapsed = now_seconds() - run->started;
	double rate = elapsed > 0 ? (double)done_bytes / elapsed : 0;
	char bar[BAR_WIDTH + 1];

	for (int i = 0; i < BAR_WIDTH; i++)
		bar[i] = i < (int)(share * BAR_WIDTH) ? '#' : '.';
	bar[BAR_WIDTH] = '\0';
	fprintf(stderr,
		"\rrank %u  %" PRIu64 "/%" PRIu64 "  [%s] %3.0f %%  %7.1f MB/s  ETA %.1f s   ",
		run->report.rank, run->iteration + 1, run->options->warmup + run->options->iters,
		bar, share * 100, rate / 1e6,
		rate > 0 ? (double)(total_bytes - done_bytes) / rate : 0);
}

static bool
on_wait(void *arg)
{
	const struct run *run = arg;

	if (run->options->progress && run->request != NULL)
		bar_draw(run);
	return got_signal != 0;
}

/* ------------------------------------------------------------------- run */

/* Makes a dense vector of this rank's values at its indices, and zeros. */
static void
zeros_fill(struct run *run)
{
	const struct perf_collective *collective = &run->collective;
	const struct perf_sparse sparse = sparse_of(run);
	const size_t size = fanin_dtype_size_of(run->options->dtype);
	const unsigned int index_bytes = run_index_bytes(run);

	run->nnz = perf_sparse_fill(&sparse, collective->rank, run->iteration, collective->count,
				    index_bytes, run->indices, run->values);
	memset(run->send, 0, collective->count * size);
	for (uint64_t i = 0; i < run->nnz; i++) {
		uint64_t index = 0;

		memcpy(&index, run->indices + i * index_bytes, index_bytes);
		memcpy(run->send + index * size, run->values + i * size, size);
	}
}

/*
 * Writes new data to the send buffer, and marks the receive buffer to detect elements that are not
 * written.
 */
static void
vectors_fill(struct run *run)
{
	const struct perf_collective *collective = &run->collective;
	size_t size = fanin_dtype_size_of(run->options->dtype);
	struct perf_range sends = perf_collective_sends(collective);
	struct perf_range receives = perf_collective_receives(collective);

	const struct perf_sparse sparse = sparse_of(run);

	memset(run->recv + receives.first * size, 0xa5, receives.n * size);
	if (run->options->sparse) {
		run->nnz = perf_sparse_fill(&sparse, collective->rank, run->iteration,
					    collective->count, run_index_bytes(run), run->indices,
					    run->send);
		return;
	}
	if (run->options->maybe_sparse) {
		zeros_fill(run);
		return;
	}
	perf_data_fill(&collective->data, collective->rank, run->iteration, sends.first, sends.n,
		       run->send + sends.first * size);
}

/* Sleeps, or computes, for as long as the options say. Signals end it. */
static void
pause_for(const struct run *run)
{
	const double end = now_seconds() + (double)run->options->pause_seconds;
	const struct timespec nap = { .tv_nsec = 50000000 };

	while (got_signal == 0 && now_seconds() < end) {
		if (!run->options->pause_busy)
			nanosleep(&nap, NULL);
	}
}

static bool
pauses_now(const struct run *run, bool busy)
{
	return run->options->pause_seconds != 0 && run->options->pause_busy == busy &&
	       run->iteration == run->options->pause_at;
}

/*
 * Makes every rank silent before a measured collective, as between the steps of a program that
 * computes. Signals end it.
 */
static void
pause_before(const struct run *run)
{
	const uint64_t ms = run->iteration < run->options->warmup ? 0 : run->options->pause_ms;
	const struct timespec pause = { .tv_sec = (time_t)(ms / 1000),
					.tv_nsec = (long)(ms % 1000 * 1000000) };

	if (ms != 0)
		nanosleep(&pause, NULL);
}

static int
sparse_post(struct run *run)
{
	const struct fanin_sparse_opts options = {
		.sz = sizeof(options),
		.density = run->options->density,
		.index_bytes = run_index_bytes(run),
	};

	run->result = (struct fanin_sparse_result){ .sz = sizeof(run->result), .dense = run->recv };
	return fanin_iallreduce_sparse(run->collective.count, run->nnz, run->indices, run->send,
				       &run->result, run->options->dtype, run->options->op,
				       &options, run->comm, &run->request);
}

static int
collective_post(struct run *run)
{
	const struct options *options = run->options;

	if (options->sparse)
		return sparse_post(run);
	if (options->maybe_sparse)
		return fanin_iallreduce_hinted(run->send, run->recv, run->collective.count,
					       options->dtype, options->op, FANIN_MAYBE_SPARSE,
					       run->comm, &run->request);
	return perf_collective_post(&run->collective, run->send, run->recv, run->comm,
				    &run->request);
}

static int
collective_run(struct run *run)
{
	int status = collective_post(run);

	if (status == FANIN_OK && pauses_now(run, true))
		pause_for(run);
	if (status != FANIN_OK)
		return status;
	return run->trace.file != NULL ? trace_wait(run, on_wait) : fanin_wait(&run->request);
}

/* Adds this rank's result to the digest. */
static void
result_digest(struct run *run)
{
	struct perf_range range = perf_collective_receives(&run->collective);
	size_t size = fanin_dtype_size_of(run->options->dtype);

	run->digest = digest_add(run->digest, run->recv + range.first * size, range.n * size);
}

/* True if the result of the current iteration is checked. */
static bool
is_checked(const struct run *run)
{
	const struct options *options = run->options;

	if (!options->check_ends)
		return options->check;
	return run->iteration == 0 || run->iteration + 1 == options->warmup + options->iters;
}

/*
 * Lets an observer take the times of processes, while all ranks wait: before the first measured
 * collective, and before the last one, whose data may be new.
 */
static int
mark(struct run *run)
{
	const struct options *options = run->options;
	int errnum;

	if (options->mark == NULL || (run->iteration != options->warmup &&
				      run->iteration + 1 != options->warmup + options->iters))
		return FANIN_OK;
	errnum = run->report.rank == 0 ? mark_moment(options->mark) : 0;
	if (errnum != 0) {
		snprintf(run->message, sizeof(run->message), "--mark %s: %s", options->mark,
			 strerror(errnum));
		return FANIN_ERR_INVALID;
	}
	return fanin_barrier(run->comm);
}

static int
iterate(struct run *run)
{
	const struct options *options = run->options;
	const bool profiled = options->profile && run->iteration >= options->warmup;
	double seconds;
	int status;

	status = mark(run);
	if (status != FANIN_OK)
		return status;
	if (pauses_now(run, false))
		pause_for(run);
	/* In place, each iteration overwrites the data that were sent. */
	if (!options->check_ends || is_checked(run))
		vectors_fill(run);

	/* The barrier keeps the other ranks' preparation of data out of the time. */
	status = fanin_barrier(run->comm);
	if (status != FANIN_OK)
		return status;
	pause_before(run);
	if (profiled)
		profile_begin(&run->profile, run->comm);
	run->started = now_seconds();
	status = collective_run(run);
	seconds = now_seconds() - run->started;
	if (status != FANIN_OK)
		return status;
	if (profiled)
		profile_end(&run->profile, run->comm, options->bytes);
	if (options->progress)
		fputs("\r\033[K", stderr);
	if (run->iteration >= options->warmup) {
		run->seconds += seconds;
		if (run->times != NULL) {
			run->times[run->measured] = seconds;
			run->begins[run->measured] = run->started;
		}
		run->measured++;
	}
	if (run_has_digest(run))
		result_digest(run);
	if (is_checked(run))
		run->mismatches += result_check(run);
	return got_signal == 0 ? FANIN_OK : FANIN_ERR_INTERRUPTED;
}

/* Does everything between fanin_init and fanin_leave. */
static int
run_all(struct run *run)
{
	const struct options *options = run->options;
	size_t len = options->bytes != 0 ? options->bytes : 1;
	int status = FANIN_ERR_NO_MEMORY;

	run->send = malloc(len);
	run->recv = options->in_place ? run->send : malloc(len);
	if (options_has_zeros(options))
		run->indices = malloc(len / fanin_dtype_size_of(options->dtype) * 8 + 1);
	if (options->maybe_sparse)
		run->values = malloc(len);
	if (options->times) {
		run->times = calloc(options->iters, sizeof(*run->times));
		run->begins = calloc(options->iters, sizeof(*run->begins));
	}
	if (run->send != NULL && run->recv != NULL &&
	    (run->indices != NULL || !options_has_zeros(options)) &&
	    (run->values != NULL || !options->maybe_sparse) &&
	    ((run->times != NULL && run->begins != NULL) || !options->times))
		status = fanin_join(run->ctx, &options->join, &run->comm);
	if (status == FANIN_OK) {
		fanin_comm_report(run->comm, &run->report);
		run->wide = run->report.accumulates_f32 &&
			    perf_collective_combines(options->collective) &&
			    perf_data_widens(options->dtype, options->op);
		run->collective = collective_of(run);
		status = order_check(run);
		/* Measured collectives are posted without blocking, and do not try multicast. */
		if (status == FANIN_OK && options->finds_multicast) {
			vectors_fill(run);
			status = perf_collective_call(&run->collective, run->send, run->recv,
						      run->comm);
		}
		if (status == FANIN_OK)
			status = trace_open(run);
	}
	for (run->iteration = 0;
	     status == FANIN_OK && run->iteration < options->warmup + options->iters;
	     run->iteration++)
		status = iterate(run);

	if (run->message[0] == '\0')
		snprintf(run->message, sizeof(run->message), "%s", fanin_ctx_error(run->ctx));
	if (status != FANIN_OK && run->message[0] == '\0')
		snprintf(run->message, sizeof(run->message), "%s", fanin_strerror(status));
	run->n_missing = fanin_ctx_missing_ranks(run->ctx, run->missing,
						 sizeof(run->missing) / sizeof(run->missing[0]));
	run->status = status;
	return status;
}

/* Reports that fanin_init refused one of these settings, without saying which. */
static void __attribute__((noreturn)) init_error(const char *transport)
{
	const char *buffer = getenv("FANIN_RECEIVE_BUFFER");
	const char *background = getenv("FANIN_BACKGROUND_PROGRESS");

	if (buffer == NULL && background == NULL)
		usage_error("--transport is '%s', expected auto, af_xdp, af_packet, udp or memif",
			    transport);
	usage_error(
		"found --transport '%s', FANIN_RECEIVE_BUFFER '%s' and FANIN_BACKGROUND_PROGRESS '%s', expected auto, af_xdp, af_packet, "
		"udp or memif; 4096 to 1073741824 bytes; 0 or 1",
		transport, buffer == NULL ? "" : buffer, background == NULL ? "" : background);
}

int
main(int argc, char **argv)
{
	struct sigaction action = { .sa_handler = on_signal };
	struct options options;
	struct run run = {
		.options = &options,
		.digest = DIGEST_START,
		.report = { .sz = sizeof(run.report) },
	};
	bool trace_failed;
	int status;

	options_parse(&options, argc, argv);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);

	options.init.interrupt = on_wait;
	options.init.interrupt_arg = &run;
	status = fanin_init(&options.init, &run.ctx);
	if (status == FANIN_ERR_INVALID)
		init_error(options.init.transport);
	if (status != FANIN_OK) {
		fprintf(stderr, "fanin-perf: %s\n", fanin_strerror(status));
		return EXIT_FAILURE;
	}
	run_all(&run);
	trace_failed = trace_close(&run) != 0;
	if (run.comm != NULL)
		fanin_comm_report(run.comm, &run.report);
	if (options.json)
		json_print(&run);
	else
		line_print(&run);
	fflush(stdout);
	fanin_finalize(run.ctx);
	if (run.recv != run.send)
		free(run.recv);
	free(run.send);
	free(run.indices);
	free(run.values);
	free(run.times);
	free(run.begins);
	perf_places_free(&options.places);
	if (got_signal != 0)
		return 128 + got_signal;
	return run.status == FANIN_OK && run.mismatches == 0 && !trace_failed ? 0 : 1;
}
