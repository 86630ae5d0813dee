/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A process group of torch whose collectives run in the network, by the public host library.
 * Collectives that the library can't do go to a Gloo group inside, and are counted with the reason.
 * A thread of the group (network.hh) carries out queued collectives, in the callers' order, and
 * completes their Work objects.
 */
#ifndef FANIN_TORCH_GROUP_HH
#define FANIN_TORCH_GROUP_HH

#include "bindings/torch/base.hh"
#include "bindings/torch/callbacks.hh"
#include "bindings/torch/network.hh"
#include "bindings/torch/part.hh"
#include "bindings/torch/stats.hh"
#include "bindings/torch/tensors.hh"

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <sys/types.h>

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace fanin_torch {

/*
 * The result of a collective: owns its tensors; its group's thread completes it. Its future
 * completes with it, but on another thread if the caller has asked for it, as its callbacks run
 * there.
 */
class GroupWork : public c10d::Work {
      public:
	/* sequence: of the callbacks of its group. */
	GroupWork(int rank, c10d::OpType type, std::vector<at::Tensor> inputs, c10::IValue outputs,
		  std::shared_ptr<Sequence> sequence);
	c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
	std::vector<at::Tensor> result() override;
	bool isCompleted() override;
	bool wait(std::chrono::milliseconds timeout) override;
	void complete(std::exception_ptr error);
	const std::shared_ptr<Sequence> sequence;

      private:
	std::vector<at::Tensor> inputs_;
	c10::IValue outputs_;
	c10::intrusive_ptr<c10::ivalue::Future> future_;
	std::mutex future_mutex_;
	bool future_is_shared_ = false; /* protected by the mutex */
};

/*
 * A collective that Gloo carries out. Its steps, at least one, begin operations of Gloo, once all
 * is prepared: other ranks wait for an operation that has begun.
 */
struct GlooTask {
	c10::intrusive_ptr<GroupWork> work;
	std::vector<std::function<c10::intrusive_ptr<c10d::Work>()>> steps;
	std::function<void()> finish; /* copies results to their destination; may be empty */
};

/* Tasks that Gloo has not done yet. */
struct GlooPending {
	std::mutex mutex; /* protects the fields below */
	std::condition_variable cv;
	size_t n = 0;
};

class Group : public Base {
      public:
	using WorkPtr = c10::intrusive_ptr<c10d::Work>;

	/* store: for this group alone. timeout: torch's. */
	Group(c10::intrusive_ptr<Base> gloo, c10::intrusive_ptr<c10d::Store> store, int rank,
	      int size, const std::string &name, std::chrono::milliseconds timeout);
	~Group() override;

	/*
	 * Joins the job; hosts: the host of each rank. Returns "", or why joining failed. To be
	 * called before use_network or use_gloo.
	 */
	std::string join(const JoinOptions &options, const std::vector<uint16_t> &hosts);
	/* Whether the job accumulates in float; true without a job. */
	bool accumulates_f32() const;
	/*
	 * Applies the choice that all ranks have made together. raises: collectives that can't run
	 * in the network fail, even if they could run elsewhere.
	 */
	void use_network(bool raises);
	void use_gloo(const std::string &reason);
	std::string why_not_sparse(at::ScalarType type) const;
	WorkPtr allreduce_vectors(const at::Tensor &dense, const at::Tensor &indices,
				  const at::Tensor &values, int64_t most);
	/*
	 * Carries out all queued collectives and leaves the job. May be called again. Without the
	 * GIL, which callbacks need.
	 */
	void close();
	/*
	 * Closes the group, and releases Gloo, whose threads may need the GIL until they end. The
	 * last call.
	 */
	void end();
	/*
	 * The parts of closing, for several groups, which ranks need not close in the same order:
	 * no collectives come any more; the queued ones are done, and others may know that this
	 * rank leaves. Both may be called again.
	 */
	void close_begin();
	void close_done();
	/*
	 * As torch's backends have them from 2.7 on. `abort` fails what the network has not done,
	 * leaves the job at once, and waits no more for Gloo, which can't be aborted; `shutdown`
	 * closes.
	 */
	void abort();
	void shutdown();

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
	/* Of torch's backends, from 2.1 on. */
	WorkPtr allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
						const c10d::AllgatherOptions &options);
	WorkPtr reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
						const c10d::ReduceScatterOptions &options);

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
	bool has_failed() const;
	bool is_aborted();
	std::string handler_of_job() const;
	void await_callbacks();
	void count_network(const char *collective, uint64_t bytes);
	void count_gloo(const char *collective, const std::string &reason, uint64_t bytes);
	WorkPtr reduce_all(const char *collective, c10d::OpType type, Tensors &tensors,
			   const c10d::AllreduceOptions &options);
	WorkPtr gather_rows(const char *collective, c10d::OpType type, Tensors &outputs,
			    Tensors &inputs, const c10d::AllgatherOptions &options);
	WorkPtr scatter_rows(const char *collective, c10d::OpType type, Tensors &outputs,
			     Tensors &inputs, const c10d::ReduceScatterOptions &options);
	WorkPtr reduce_by_gloo(const char *collective, c10d::OpType type, const std::string &reason,
			       const Tensors &tensors, const c10d::ReduceOptions &options);
	void scatter_by_gloo(GlooTask *task, Moves *moves, const at::Tensor &flat,
			     const at::Tensor &output, const c10d::ReduceScatterOptions &options);
	void gather_by_gloo(GlooTask *task, const at::Tensor &input, const Tensors &rows,
			    const c10d::AllgatherOptions &options);
	std::function<WorkPtr()> barrier_of_gloo();
	WorkPtr gather_lists_by_gloo(const std::string &reason, const std::vector<Tensors> &outputs,
				     const Tensors &inputs, const c10d::AllgatherOptions &options);
	WorkPtr recv_by_gloo(Tensors &tensors, const std::function<WorkPtr(Tensors &)> &receive);
	WorkPtr sparse_by_gloo(GlooTask task, const at::Tensor &dense, const at::Tensor &indices,
			       const at::Tensor &values, int64_t most);
	WorkPtr start(const char *collective, c10d::OpType type, const Tensors &inputs,
		      c10::IValue outputs, std::vector<Part> parts, Moves moves,
		      std::chrono::milliseconds timeout);
	WorkPtr follow(GlooTask task);
	WorkPtr follow(GlooTask task, c10d::OpType type, const Tensors &inputs, c10::IValue value,
		       Moves moves);
	WorkPtr follow(c10d::OpType type, c10::IValue value, std::function<WorkPtr()> step);
	c10::intrusive_ptr<GroupWork> make_work(c10d::OpType type, const Tensors &inputs,
						c10::IValue value);

	c10::intrusive_ptr<Base> gloo_;
	std::shared_ptr<Stats> stats_;
	std::shared_ptr<Notes> notes_;
	std::string gloo_reason_; /* why the group is not in the network; "" if it is */
	bool raises_ = false;     /* see use_network */
	const std::chrono::milliseconds timeout_;
	std::shared_ptr<Network> network_;
	const std::shared_ptr<Sequence> sequence_ = std::make_shared<Sequence>();
	pid_t pid_; /* process that has made the group; its threads do not exist in a forked one */

	const std::shared_ptr<GlooPending> pending_ = std::make_shared<GlooPending>();
	std::mutex mutex_; /* protects all fields below */
	bool closing_ = false, closed_ = false, aborted_ = false;
};

} // namespace fanin_torch

#endif
