/* SPDX-License-Identifier: BSD-3-Clause */
/* Counters of a group, for the report. */
#ifndef FANIN_TORCH_STATS_HH
#define FANIN_TORCH_STATS_HH

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace fanin_torch {

/* Number of calls, and bytes of this rank's data. */
struct Count {
	uint64_t calls = 0;
	uint64_t bytes = 0;
};

/* What is known of one group. */
struct GroupStats {
	std::string name;
	int rank = 0;
	int size = 0;
	bool in_network = false;
	bool failed = false;
	std::string reason; /* why the group is in the network or not, or why it has failed */
	std::string job_name, transport, handler;
	std::string mode_reason;             /* the library's: why a switch or a ring */
	std::vector<std::vector<int>> hosts; /* ranks of each host; the first one is its leader */
	uint64_t shared_bytes = 0; /* this rank's data that went into the memory that it shares with
				      its host's other ranks, and results taken from there */
	uint64_t blocks = 0, bytes_reduced = 0, retransmits = 0;
	uint64_t sparse_bytes = 0;       /* payload sent in sparse allreduces */
	uint64_t sparse_dense_bytes = 0; /* payload that dense ones would have sent instead */
	bool accumulates_f32 = false, authenticated = false;
	std::map<std::string, Count> network;                     /* by collective */
	std::map<std::string, std::map<std::string, Count>> gloo; /* by collective and reason */
};

/* The same, where the group's threads count. It outlives the group. */
struct Stats : GroupStats {
	std::mutex mutex; /* protects all other fields */
};

/*
 * Returns the counters of all groups that this process has made, in the order in which they were
 * made; closed groups are among them.
 */
std::vector<std::shared_ptr<Stats>> all_stats();

} // namespace fanin_torch

#endif
