/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fanin-perf --profile: shows where the time of the measured collectives went, and the work that
 * was done in them. A profile sums up readings before and after each collective (perf_profile.c),
 * is judged by rules (perf_verdict.c) and printed (perf_profile_print.c). One thread.
 */
#ifndef FANIN_TOOLS_PERF_PROFILE_H
#define FANIN_TOOLS_PERF_PROFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>

#include <fanin/fanin.h>

#include "control/schedstat.h"

/* clang-format off */
/* Fields of struct fanin_report whose growth is profiled: X(field, text). */
#define PROFILE_PACKETS(X) \
	X(frames_sent, "packets sent") \
	X(super_frame_packets_sent, "  in super-frames") \
	X(super_frames_sent, "  super-frames") \
	X(retransmits, "  sent again") \
	X(spurious, "  of these needlessly") \
	X(frames_received, "packets received") \
	X(super_frame_packets_received, "  in super-frames") \
	X(super_frames_received, "  super-frames") \
	X(ring_drops, "  dropped for lack of room")
#define PROFILE_CALLS(X) \
	X(send_calls, "  that send") \
	X(receive_calls, "  that receive, or find nothing") \
	X(other_calls, "  that ask what waits") \
	X(sleeps, "  that sleep") \
	X(yields, "  that yield the core") \
	X(bytes_copied_out, "bytes copied into packets") \
	X(bytes_copied_in, "bytes copied out of packets")
#define PROFILE_REPORT(X) PROFILE_PACKETS(X) PROFILE_CALLS(X)

/* CPU time, waits and switches of all threads of the process, by the kernel. */
#define PROFILE_KERNEL(X) \
	X(cpu_seconds, "CPU time, ms") \
	X(user_seconds, "  in the program") \
	X(system_seconds, "  in the kernel") \
	X(run_queue_seconds, "  waited for a core, ms") \
	X(slices, "times on a core") \
	X(voluntary_switches, "  ended by sleep") \
	X(involuntary_switches, "  ended by a yield, or by others")

#define PROFILE_VALUES(X) \
	PROFILE_KERNEL(X) PROFILE_PACKETS(X) X(system_calls, "system calls") PROFILE_CALLS(X)
/* clang-format on */

struct profile_values {
#define PROFILE_MEMBER(name, text) double name;
	PROFILE_VALUES(PROFILE_MEMBER)
#undef PROFILE_MEMBER
};

/* One reading. */
struct profile_moment {
	uint64_t wall_ns;
	uint64_t cpu_ns;        /* of the process */
	uint64_t caller_cpu_ns; /* of the thread that waits for results */
	struct schedstat all;   /* of all threads */
	struct schedstat caller;
	struct rusage usage;
	struct fanin_report report;
};

struct profile {
	uint64_t collectives;
	double mib; /* of all vectors; 0: there are none */
	double seconds;
	double caller_cpu_seconds;
	double caller_run_queue_seconds;
	bool knows_run_queue; /* the kernel counts waits for a core */
	struct profile_values values;
	struct profile_moment begun; /* start of the current collective */
};

/* How a rank's time was spent; the sum is 1. */
struct profile_shares {
	double computing;
	double run_queue;
	double asleep;
};

#define PROFILE_VERDICT_LEN 384
#define PROFILE_MAX_VERDICTS 8

struct profile_verdict {
	const char *name;
	char text[PROFILE_VERDICT_LEN];
};

/*
 * Call them right before a collective is posted and right after it is done. bytes: of its vector.
 */
void profile_begin(struct profile *profile, const fanin_comm *comm);
void profile_end(struct profile *profile, const fanin_comm *comm, uint64_t bytes);

struct profile_shares profile_shares(const struct profile *profile);

/*
 * Judges a profile by the rules in fanin-perf(1), in words.
 *
 * report: of the communicator. verdicts: PROFILE_MAX_VERDICTS of them, the first of which are set.
 * Returns the number of verdicts, at least one.
 */
size_t profile_judge(const struct profile *profile, const struct fanin_report *report,
		     struct profile_verdict *verdicts);

/*
 * Print the profile: as a member of a JSON object, followed by a comma, or as a table for people.
 */
void profile_json(const struct profile *profile, const struct fanin_report *report);
void profile_print(const struct profile *profile, const struct fanin_report *report);

#endif
