/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fanin-perf's trace of the windows of jobs with a parameter server, made by polling reports. See
 * perf.h.
 */
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "tools/perf.h"

/* Reads the monotonic clock, by which the traces of all processes of a machine fit together. */
static double
now_seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

int
trace_open(struct run *run)
{
	struct trace *trace = &run->trace;

	if (run->options->trace_file == NULL)
		return FANIN_OK;
	if (run->report.congestion[0] == '\0') {
		snprintf(
			run->message, sizeof(run->message),
			"--trace has the windows of jobs with a parameter server: found the handler %s",
			run->report.handler);
		return FANIN_ERR_UNSUPPORTED;
	}
	trace->file = fopen(run->options->trace_file, "w");
	if (trace->file == NULL) {
		snprintf(run->message, sizeof(run->message), "--trace %s: %s",
			 run->options->trace_file, strerror(errno));
		return FANIN_ERR_SYSTEM;
	}
	return FANIN_OK;
}

/* Writes one line. Goodput is measured since the line before. */
static void
sample_write(struct run *run, double now)
{
	struct trace *trace = &run->trace;
	struct fanin_report report = { .sz = sizeof(report) };
	const double seconds = now - trace->sampled;
	double goodput_gbps = 0;

	fanin_comm_report(run->comm, &report);
	if (trace->sampled != 0 && seconds > 0)
		goodput_gbps = (double)(report.bytes_reduced - trace->bytes) * 8e-9 / seconds;
	fprintf(trace->file,
		"{\"time\": %.6f, \"rank\": %u, \"iteration\": %" PRIu64
		", \"cwd\": %.3f, \"awd\": %.3f, \"in_flight\": %" PRIu64
		", \"alpha\": %.6f, \"beta\": %.6f, \"p\": %.6f, \"goodput_gbps\": %.6f}\n",
		now, report.rank, run->iteration, report.cwd, report.awd, report.in_flight,
		report.alpha, report.beta, report.progress_degree, goodput_gbps);
	trace->sampled = now;
	trace->bytes = report.bytes_reduced;
}

int
trace_wait(struct run *run, bool (*should_stop)(void *arg))
{
	const double interval = (double)run->options->trace_us * 1e-6;
	int status = fanin_test(run->request);

	while (status == FANIN_IN_PROGRESS) {
		const double now = now_seconds();

		if (now - run->trace.sampled < interval) {
			sched_yield();
		} else {
			sample_write(run, now);
			if (should_stop(run))
				return FANIN_ERR_INTERRUPTED;
		}
		status = fanin_test(run->request);
	}
	/* Frees the finished request. */
	return fanin_wait(&run->request);
}

int
trace_close(struct run *run)
{
	struct trace *trace = &run->trace;
	int failed;

	if (trace->file == NULL)
		return 0;
	sample_write(run, now_seconds());
	failed = ferror(trace->file);
	failed |= fclose(trace->file);
	trace->file = NULL;
	if (failed != 0)
		fprintf(stderr, "fanin-perf: --trace %s: %s\n", run->options->trace_file,
			strerror(errno));
	return failed != 0 ? -1 : 0;
}
