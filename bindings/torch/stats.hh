/* SPDX-License-Identifier: BSD-3-Clause */
/* What a group has done, for the report. */
#ifndef FANIN_TORCH_STATS_HH
#define FANIN_TORCH_STATS_HH

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace fanin_torch {

/* What went one way. bytes: of this rank's data. */
struct Count {
	uint64_t calls = 0;
	uint64_t bytes = 0;
};

/* Of a group; outlives it. */
struct Stats {
	std::mutex mutex; /* of all below */
	std::string name;
	int rank;
	int size;
	bool in_network = false;
	bool failed = false;
	std::string reason; /* why the group is in the network or not */
	std::string job_name, transport, handler, mode_reason;
	std::vector<std::vector<int>> hosts; /* their ranks; the first of each is its leader */
	uint64_t shared_bytes = 0; /* that this rank has written to its host's shared memory, and
				      read */
	uint64_t blocks = 0, bytes_reduced = 0, retransmits = 0;
	uint64_t sparse_bytes = 0, sparse_dense_bytes = 0; /* payload sent, and what dense vectors
							      would have taken */
	bool accumulates_f32 = false, authenticated = false;
	std::map<std::string, Count> network;                     /* by collective */
	std::map<std::string, std::map<std::string, Count>> gloo; /* by collective and reason */
};

/* Those of all groups that this process has made, in that order. */
std::vector<std::shared_ptr<Stats>> all_stats();

} // namespace fanin_torch

#endif
