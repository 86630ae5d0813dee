/* SPDX-License-Identifier: BSD-3-Clause */
/* Collectives of the library: the data that a rank gives to each, and the result that it gets. */
#ifndef FANIN_TORCH_PART_HH
#define FANIN_TORCH_PART_HH

#include <fanin/fanin.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>

namespace fanin_torch {

using Clock = std::chrono::steady_clock;

enum class Call {
	ALLREDUCE,
	REDUCE,
	BROADCAST,
	ALLGATHER,
	REDUCE_SCATTER,
	SPARSE,
	BARRIER
};

/* A collective; owns its buffers, plain tensors, which may be the same one. */
struct Part {
	Call call = Call::BARRIER;
	at::Tensor send;                   /* undefined: this rank gives nothing */
	at::Tensor recv;                   /* undefined: this rank gets nothing */
	enum fanin_dtype dtype = FANIN_U8; /* of bytes, if nothing is reduced */
	enum fanin_op op = FANIN_SUM;
	int root = 0;
	at::Tensor indices; /* SPARSE: ascending int64, of the values in send; recv is dense */
	int64_t most = 0;   /* SPARSE: most values of any rank, the same number at all ranks */

	fanin_request *request = nullptr;
	int status = FANIN_OK; /* the result of posting it, then of waiting for it */
	bool done = false;     /* its request has been waited for */
	std::unique_ptr<fanin_sparse_result> result;
};

/*
 * Collectives that belong together. done: called by the thread that has carried them out. error:
 * "", or why they have failed. timeout: they fail if no task has been done for that long; 0: the
 * job's.
 */
struct Task {
	std::vector<Part> parts;
	std::function<void(const std::string &error)> done;
	Clock::time_point began = Clock::now();
	std::chrono::milliseconds timeout{ 0 };

	/* Returns when they fail. last_done: when a task was last done. */
	Clock::time_point
	until(Clock::time_point last_done) const
	{
		return timeout.count() == 0 ? Clock::time_point::max()
					    : std::max(began, last_done) + timeout;
	}
};

/*
 * Posts the part; its buffers are in use until its request has been waited for. Returns a
 * fanin_status, and stores it in the part.
 */
int part_post(Part *part, fanin_comm *comm);

} // namespace fanin_torch

#endif
