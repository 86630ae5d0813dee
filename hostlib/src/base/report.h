/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fields of struct fanin_report, grouped by the code that fills them in. A new field is added here
 * and where it is counted; the suite `abi` names the other places that need it.
 *
 * X(field, trees), trees: how the value of a job with several trees follows from its trees' values.
 * SUM: their sum. MAX: the largest. ANY: their bitwise OR. SAME: one that is not 0. OWN: not at
 * all, it is the job's.
 */
#ifndef FANIN_HOSTLIB_REPORT_H
#define FANIN_HOSTLIB_REPORT_H

#include <assert.h>
#include <stddef.h>

#include "fanin/fanin.h"

/* clang-format off */
/* All block engines, from their struct fanin_engine_stats. */
#define FANIN_REPORT_ENGINE(X) \
	X(blocks, SUM) X(bytes_reduced, SUM) X(frames_sent, SUM) X(frames_received, SUM) \
	X(retransmits, SUM) X(duplicates, SUM) X(invalid, SUM) X(spurious, SUM) \
	X(resumed, SUM) X(queries, SUM) X(sparse_blocks, SUM) X(sparse_elements, SUM) \
	X(sparse_values_sent, SUM) X(sparse_values_received, SUM) X(shards_sent, SUM) \
	X(shards_received, SUM) X(shard_bytes_sent, SUM) X(sparse_dense_bytes, SUM)

/* Jobs with a parameter server. */
#define FANIN_REPORT_PA_ATP(X) \
	X(gacks, SUM) X(aacks, SUM) X(marks, SUM) X(aecns, SUM) X(asks_answered, SUM)

/*
 * Jobs that multicast, including those beside a communicator's own. Each operation has a part in
 * each tree.
 */
#define FANIN_REPORT_MULTICAST(X) \
	X(multicast_operations, MAX) X(multicast_packets, SUM) X(multicast_fetched, SUM) \
	X(multicast_late, SUM)

/* Others. */
#define FANIN_REPORT_OTHERS(X) \
	X(sz, OWN) X(transport, SAME) X(transport_reason, OWN) X(handler, SAME) \
	X(interface, SAME) X(in_network, SAME) X(window, SUM) X(payload_bytes, SAME) \
	X(accumulates_f32, SAME) X(ring_drops, SUM) X(rank, OWN) X(size, OWN) X(mode, OWN) \
	X(mode_reason, OWN) X(manager, OWN) X(job_name, OWN) X(manager_problem, OWN) \
	X(manager_reconnects, OWN) X(trees, OWN) X(trees_asked, OWN) X(trees_reason, OWN) \
	X(late, ANY) X(authenticated, SAME) X(reserved, OWN) X(protocol, OWN) \
	X(protocol_reason, OWN) X(n_late, MAX) X(sparse_algorithm, OWN) \
	X(tcp_bytes_sent, SUM) X(tcp_bytes_received, SUM) X(maybe_sparse, OWN) \
	X(maybe_sparse_taken, OWN) X(congestion, SAME) X(cwd, SUM) X(awd, SUM) \
	X(alpha, MAX) X(beta, MAX) X(progress_degree, MAX) X(in_flight, SUM) \
	X(led_blocks, SUM) X(led_direct, SUM) X(asks, SUM) X(restores, SUM) X(repeats, SUM) \
	X(multicast_reason, OWN) X(super_frames_sent, SUM) X(super_frame_packets_sent, SUM) \
	X(super_frames_received, SUM) X(super_frame_packets_received, SUM) \
	X(send_calls, SUM) X(receive_calls, SUM) X(other_calls, SUM) X(bytes_copied_out, SUM) \
	X(bytes_copied_in, SUM) X(sleeps, OWN) X(yields, OWN) \
	X(hosts, OWN) X(local_ranks, OWN) X(local_bytes, OWN)

#define FANIN_REPORT_FIELDS(X) \
	FANIN_REPORT_ENGINE(X) FANIN_REPORT_PA_ATP(X) FANIN_REPORT_MULTICAST(X) \
	FANIN_REPORT_OTHERS(X)
/* clang-format on */

/*
 * Checks that each field is listed: the listed fields and 14 bytes of padding are the whole struct.
 */
#define FANIN_REPORT_MEMBER(field, trees) __typeof__(((struct fanin_report *)NULL)->field) field;
struct fanin_report_listed {
	FANIN_REPORT_FIELDS(FANIN_REPORT_MEMBER)
} __attribute__((packed));
static_assert(sizeof(struct fanin_report_listed) + 14 == sizeof(struct fanin_report),
	      "a field of fanin_report is not in FANIN_REPORT_FIELDS");
#undef FANIN_REPORT_MEMBER

#endif
