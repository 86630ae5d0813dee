/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The readings of fanin-perf --profile. Clocks are read closest to the collective, then files, and
 * last the library's counters, which only its own calls change. See perf_profile.h.
 */
#include "tools/perf_profile.h"

#include <dirent.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static uint64_t
clock_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/*
 * Reads CPU times by clocks, which are current: schedstat's value for a running thread is up to one
 * tick old, which is longer than most collectives.
 */
static void
clocks_read(struct profile_moment *moment)
{
	moment->caller_cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	moment->cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
	getrusage(RUSAGE_SELF, &moment->usage);
}

/*
 * Sums up all threads that exist now; none of fanin-perf's ends between two readings. Returns false
 * if the kernel does not count.
 */
static bool
threads_read(struct profile_moment *moment)
{
	DIR *threads = opendir("/proc/self/task");
	const pid_t caller = gettid();
	const struct dirent *entry;
	bool known = false;

	moment->all = (struct schedstat){ 0 };
	while (threads != NULL && (entry = readdir(threads)) != NULL) {
		const pid_t thread = (pid_t)strtol(entry->d_name, NULL, 10);
		struct schedstat stat;

		if (thread == 0 || schedstat_read(thread, &stat) != 0)
			continue;
		moment->all.wait_ns += stat.wait_ns;
		moment->all.slices += stat.slices;
		if (thread != caller)
			continue;
		moment->caller = stat;
		known = true;
	}
	if (threads != NULL)
		closedir(threads);
	return known;
}

void
profile_begin(struct profile *profile, const fanin_comm *comm)
{
	struct profile_moment *begun = &profile->begun;

	begun->report.sz = sizeof(begun->report);
	fanin_comm_report(comm, &begun->report);
	profile->knows_run_queue = threads_read(begun);
	clocks_read(begun);
	begun->wall_ns = clock_ns(CLOCK_MONOTONIC);
}

static double
seconds_between(uint64_t begin_ns, uint64_t end_ns)
{
	return (double)(end_ns - begin_ns) / 1e9;
}

static double
seconds_from(const struct timeval *begin, const struct timeval *end)
{
	return (double)(end->tv_sec - begin->tv_sec) +
	       (double)(end->tv_usec - begin->tv_usec) / 1e6;
}

static void
values_add(struct profile_values *sum, const struct profile_moment *begun,
	   const struct profile_moment *ended)
{
	sum->cpu_seconds += seconds_between(begun->cpu_ns, ended->cpu_ns);
	sum->user_seconds += seconds_from(&begun->usage.ru_utime, &ended->usage.ru_utime);
	sum->system_seconds += seconds_from(&begun->usage.ru_stime, &ended->usage.ru_stime);
	sum->run_queue_seconds += seconds_between(begun->all.wait_ns, ended->all.wait_ns);
	sum->slices += (double)(ended->all.slices - begun->all.slices);
	sum->voluntary_switches += (double)(ended->usage.ru_nvcsw - begun->usage.ru_nvcsw);
	sum->involuntary_switches += (double)(ended->usage.ru_nivcsw - begun->usage.ru_nivcsw);
#define ADD(field, text) sum->field += (double)(ended->report.field - begun->report.field);
	PROFILE_REPORT(ADD)
#undef ADD
	sum->system_calls = sum->send_calls + sum->receive_calls + sum->other_calls + sum->sleeps +
			    sum->yields;
}

void
profile_end(struct profile *profile, const fanin_comm *comm, uint64_t bytes)
{
	struct profile_moment ended = { .wall_ns = clock_ns(CLOCK_MONOTONIC),
					.report = { .sz = sizeof(ended.report) } };
	const struct profile_moment *begun = &profile->begun;

	clocks_read(&ended);
	profile->knows_run_queue = threads_read(&ended) && profile->knows_run_queue;
	fanin_comm_report(comm, &ended.report);
	profile->collectives++;
	profile->mib += (double)bytes / (1 << 20);
	profile->seconds += seconds_between(begun->wall_ns, ended.wall_ns);
	profile->caller_cpu_seconds += seconds_between(begun->caller_cpu_ns, ended.caller_cpu_ns);
	if (profile->knows_run_queue)
		profile->caller_run_queue_seconds += seconds_between(begun->caller.wait_ns,
								     ended.caller.wait_ns);
	values_add(&profile->values, begun, &ended);
}

struct profile_shares
profile_shares(const struct profile *profile)
{
	struct profile_shares shares = { 0 };

	if (profile->seconds <= 0)
		return shares;
	shares.computing = profile->caller_cpu_seconds / profile->seconds;
	shares.run_queue = profile->caller_run_queue_seconds / profile->seconds;
	/* The readings are not taken at exactly the same time. */
	if (shares.computing > 1)
		shares.computing = 1;
	if (shares.run_queue > 1 - shares.computing)
		shares.run_queue = 1 - shares.computing;
	shares.asleep = 1 - shares.computing - shares.run_queue;
	return shares;
}
