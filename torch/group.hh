/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A process group of torch whose collectives run in the network, by the public host library. What the library can't do goes to
 * a Gloo group that it holds, and is counted with the reason. Each group has a context of the library and a thread that all
 * calls on the context come from: it posts what callers have queued, in that order, and completes their Work objects.
 */
#ifndef FANIN_TORCH_GROUP_HH
#define FANIN_TORCH_GROUP_HH

#include "torch/part.hh"
#include "torch/tensors.hh"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <sys/types.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace fanin_torch {

/* How a group joins its job; see fanin_join_opts. */
struct JoinOptions {
	std::string job_name;
	std::string manager;
	std::string interface;
	std::string handler; /* the job's */
	std::chrono::milliseconds join_timeout;
	std::chrono::milliseconds timeout; /* torch's: the longest wait for ranks that are late */
	bool accumulate_f32;
	bool authenticate;
	bool reproducible;
};

/* What went one way. bytes: of this rank's data. */
struct Count {
	uint64_t calls = 0;
	uint64_t bytes = 0;
};

/* What a group has done: it outlives the group. */
struct Stats {
	std::mutex mutex; /* of all below */
	std::string name;
	int rank;
	int size;
	bool in_network = false;
	bool failed = false;
	std::string reason; /* why the group is in the network or not */
	std::string job_name, transport, handler, mode_reason;
	uint64_t blocks = 0, bytes_reduced = 0, retransmits = 0;
	uint64_t sparse_bytes = 0,
		 sparse_dense_bytes = 0; /* payload sent, and what dense vectors would have taken */
	bool accumulates_f32 = false;
	std::map<std::string, Count> network;                     /* by collective */
	std::map<std::string, std::map<std::string, Count>> gloo; /* by collective and reason */
};

/* Those of all groups that this process has made, in that order. */
std::vector<std::shared_ptr<Stats>> all_stats();

/* The result of a collective: owns its tensors, and is completed by its group's thread. */
class GroupWork : public c10d::Work {
      public:
	GroupWork(int rank, c10d::OpType type, std::vector<at::Tensor> inputs, c10::IValue outputs);
	c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
	std::vector<at::Tensor> result() override;
	void complete(std::exception_ptr error);

      private:
	std::vector<at::Tensor> inputs_;
	c10::IValue outputs_;
	c10::intrusive_ptr<c10::ivalue::Future> future_;
};

struct Task {
	c10::intrusive_ptr<GroupWork> work;
	std::vector<Part> parts;
	c10::intrusive_ptr<c10d::Work> gloo; /* instead of parts */
	std::function<void()> finish;        /* moves results to where they belong; may be empty */
};

class Group : public c10d::ProcessGroup {
      public:
	using WorkPtr = c10::intrusive_ptr<c10d::Work>;

	Group(c10::intrusive_ptr<c10d::ProcessGroup> gloo, int rank, int size,
	      const std::string &name);
	~Group() override;

	/* Joins the job. Returns "" or why that failed. Before use_network or use_gloo. */
	std::string join(const JoinOptions &options);
	/* Ends the choice that all ranks have made together. raises: what can't run in the network fails where it could run elsewhere. */
	void use_network(bool raises);
	void use_gloo(const std::string &reason);
	/* True also if the group is not in the network, where there is nothing to ask for. */
	bool accumulates_f32() const;
	std::string why_not_sparse(at::ScalarType type) const;
	WorkPtr allreduce_sparse(const at::Tensor &dense, const at::Tensor &indices,
				 const at::Tensor &values, int64_t most);
	/* Runs what is queued to its end and leaves the job. May be called again. */
	void close();

	const std::string
	getBackendName() const override
	{
		return "fanin";
	}
	WorkPtr broadcast(Tensors &tensors, const c10d::BroadcastOptions &options) override;
	WorkPtr allreduce(Tensors &tensors, const c10d::AllreduceOptions &options) override;
	WorkPtr allreduce_coalesced(Tensors &tensors,
				    const c10d::AllreduceCoalescedOptions &options) override;
	WorkPtr reduce(Tensors &tensors, const c10d::ReduceOptions &options) override;
	WorkPtr allgather(std::vector<Tensors> &outputs, Tensors &inputs,
			  const c10d::AllgatherOptions &options) override;
	WorkPtr _allgather_base(at::Tensor &output, at::Tensor &input,
				const c10d::AllgatherOptions &options) override;
	WorkPtr allgather_coalesced(std::vector<Tensors> &outputs, Tensors &inputs,
				    const c10d::AllgatherOptions &options) override;
	WorkPtr reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs,
			       const c10d::ReduceScatterOptions &options) override;
	WorkPtr _reduce_scatter_base(at::Tensor &output, at::Tensor &input,
				     const c10d::ReduceScatterOptions &options) override;
	WorkPtr barrier(const c10d::BarrierOptions &options) override;

	WorkPtr gather(std::vector<Tensors> &outputs, Tensors &inputs,
		       const c10d::GatherOptions &options) override;
	WorkPtr scatter(Tensors &outputs, std::vector<Tensors> &inputs,
			const c10d::ScatterOptions &options) override;
	WorkPtr alltoall_base(at::Tensor &output, at::Tensor &input,
			      std::vector<int64_t> &output_sizes, std::vector<int64_t> &input_sizes,
			      const c10d::AllToAllOptions &options) override;
	WorkPtr alltoall(Tensors &outputs, Tensors &inputs,
			 const c10d::AllToAllOptions &options) override;
	WorkPtr send(Tensors &tensors, int to, int tag) override;
	WorkPtr recv(Tensors &tensors, int from, int tag) override;
	WorkPtr recvAnysource(Tensors &tensors, int tag) override;
	void monitoredBarrier(const c10d::BarrierOptions &options, bool wait_all_ranks) override;
	void setSequenceNumberForGroup() override;
	uint64_t getSequenceNumberForGroup() override;

      private:
	std::string why_gloo(const at::Tensor &tensor, const c10d::ReduceOp *op) const;
	void count_network(const char *collective, uint64_t bytes);
	void count_gloo(const char *collective, const std::string &reason, uint64_t bytes);
	WorkPtr reduce_all(const char *collective, c10d::OpType type, Tensors &tensors,
			   const c10d::ReduceOp &op);
	WorkPtr scatter_by_gloo(const char *collective, c10d::OpType type,
				const std::string &reason, const Tensors &inputs, at::Tensor flat,
				const at::Tensor &output, const c10d::ReduceOp &op);
	WorkPtr gather_by_gloo(const std::string &reason, at::Tensor &output, at::Tensor &input,
			       const c10d::AllgatherOptions &options);
	WorkPtr sparse_by_gloo(Task task, const at::Tensor &dense, const at::Tensor &indices,
			       const at::Tensor &values, int64_t most);
	WorkPtr start(const char *collective, c10d::OpType type, const Tensors &inputs,
		      c10::IValue outputs, std::vector<Part> parts, Moves moves);
	WorkPtr submit(Task task);

	void run();
	void post(Task &task);
	void follow_gloo(Task task);
	void finish(Task &task);
	std::string failure(int status);
	void refresh_stats();

	c10::intrusive_ptr<c10d::ProcessGroup> gloo_;
	std::shared_ptr<Stats> stats_;
	std::string gloo_reason_;    /* why the group is not in the network; "" if it is */
	std::string handler_;        /* the job's */
	bool raises_ = false;        /* see use_network */
	fanin_ctx *ctx_ = nullptr;   /* the group's thread, while there is one */
	fanin_comm *comm_ = nullptr; /* likewise */
	std::string broken_;         /* the group's thread: why nothing can be posted any more */
	pid_t pid_; /* of the process that has made the group: its thread is not in a forked one */

	std::mutex mutex_; /* of all below */
	std::condition_variable cv_;
	std::deque<Task> queue_;
	size_t n_gloo_ = 0; /* tasks that Gloo has not done yet */
	bool closing_ = false;
	bool closed_ = false;
	std::thread thread_;
};

} // namespace fanin_torch

#endif
