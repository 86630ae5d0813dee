/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives that the library lacks: they go to the Gloo group inside, and are counted with the
 * reason.
 */
#include "bindings/torch/group.hh"

namespace fanin_torch {

using c10d::OpType;
using WorkPtr = Group::WorkPtr;

static const char point_to_point[] = "point-to-point is not in the library";
static const char no_such[] = "no such collective in the library";

/*
 * Returns why a collective goes to Gloo; "": it runs in the network. op: NULL if nothing is
 * reduced: bytes of any type are copied then.
 */
std::string
Group::why_gloo(const at::Tensor &tensor, const c10d::ReduceOp *op) const
{
	if (!gloo_reason_.empty())
		return gloo_reason_;
	if (!tensor.device().is_cpu())
		return "tensors on " + c10::DeviceTypeName(tensor.device().type(), true);
	if (tensor.layout() != at::kStrided)
		return "sparse tensors";
	if (tensor.is_quantized())
		return "quantized tensors";
	if (op == nullptr)
		return "";
	int dtype = dtype_of(tensor.scalar_type());
	if (dtype == 0)
		return std::string("the type ") + c10::toString(tensor.scalar_type());
	int code = op_of(*op, tensor.scalar_type());
	if (code == 0 ||
	    !fanin_supports(static_cast<enum fanin_dtype>(dtype), static_cast<enum fanin_op>(code)))
		return std::string("an operator that the library does not have on ") +
		       c10::toString(tensor.scalar_type());
	return "";
}

/*
 * Returns the bytes of each part that a tensor is cut into along its first dimension. splits: the
 * parts' lengths in that dimension; empty: all the same.
 */
static std::vector<int64_t>
bytes_of_splits(const at::Tensor &tensor, const std::vector<int64_t> &splits, int size)
{
	TORCH_CHECK(tensor.dim() > 0, "alltoall_base: found a tensor without dimensions");
	const int64_t rows = tensor.size(0), row = rows == 0 ? 0 : tensor.nbytes() / rows;
	std::vector<int64_t> lengths = splits;

	if (splits.empty()) {
		TORCH_CHECK(rows % size == 0, "alltoall_base: found a first dimension of ", rows,
			    ", expected a multiple of the group's size ", size);
		lengths.assign(size, rows / size);
	}
	TORCH_CHECK(lengths.size() == static_cast<size_t>(size), "alltoall_base: found ",
		    lengths.size(), " splits, expected ", size);
	int64_t sum = 0;
	for (int64_t &length : lengths) {
		TORCH_CHECK(length >= 0, "alltoall_base: found a split of ", length);
		sum += length;
		length *= row;
	}
	TORCH_CHECK(sum == rows, "alltoall_base: found splits of ", sum,
		    " in all, expected the first dimension, ", rows);
	return lengths;
}

WorkPtr
Group::gather(std::vector<Tensors> &outputs, Tensors &inputs, const c10d::GatherOptions &options)
{
	await_callbacks();
	const char *name = "gather";
	const bool is_root = options.rootRank == getRank();

	expect_single(name, inputs.size());
	TORCH_CHECK(options.rootRank >= 0 && options.rootRank < getSize(), name,
		    ": found the root ", options.rootRank, ", expected a rank of the group");
	TORCH_CHECK(outputs.size() == (is_root ? 1 : 0), name, ": found ", outputs.size(),
		    " lists of outputs, expected one at the root, none at others");
	count_gloo(name, no_such, bytes_of(inputs));
	if (!has_bytes(inputs[0]))
		return follow(OpType::GATHER, lists_of(outputs),
			      [&] { return gloo_->gather(outputs, inputs, options); });
	GlooTask task;
	Moves moves;
	std::vector<Tensors> rows(outputs.size());
	Tensors bytes = { bytes_view(flat_of(inputs[0])) };
	if (is_root) {
		TORCH_CHECK(outputs[0].size() == static_cast<size_t>(getSize()), name, ": found ",
			    outputs[0].size(), " outputs, expected ", getSize());
		for (const at::Tensor &output : outputs[0]) {
			expect_alike(name, output, inputs[0]);
			rows[0].push_back(bytes_view(target_of(name, output, &moves)));
		}
	}
	task.steps = { inputs[0].numel() == 0 ? barrier_of_gloo() : [&] {
		return gloo_->gather(rows, bytes, options);
	} };
	return follow(std::move(task), OpType::GATHER, inputs, lists_of(outputs), std::move(moves));
}

WorkPtr
Group::scatter(Tensors &outputs, std::vector<Tensors> &inputs, const c10d::ScatterOptions &options)
{
	await_callbacks();
	const char *name = "scatter";
	const bool is_root = options.rootRank == getRank();

	expect_single(name, outputs.size());
	TORCH_CHECK(options.rootRank >= 0 && options.rootRank < getSize(), name,
		    ": found the root ", options.rootRank, ", expected a rank of the group");
	TORCH_CHECK(inputs.size() == (is_root ? 1 : 0), name, ": found ", inputs.size(),
		    " lists of inputs, expected one at the root, none at others");
	count_gloo(name, no_such, bytes_of(outputs));
	if (!has_bytes(outputs[0]))
		return follow(OpType::SCATTER, list_of(outputs),
			      [&] { return gloo_->scatter(outputs, inputs, options); });
	GlooTask task;
	Moves moves;
	std::vector<Tensors> rows(inputs.size());
	Tensors bytes = { bytes_view(target_of(name, outputs[0], &moves)) };
	if (is_root) {
		TORCH_CHECK(inputs[0].size() == static_cast<size_t>(getSize()), name, ": found ",
			    inputs[0].size(), " inputs, expected ", getSize());
		for (const at::Tensor &input : inputs[0]) {
			expect_alike(name, input, outputs[0]);
			rows[0].push_back(bytes_view(flat_of(input)));
		}
	}
	task.steps = { outputs[0].numel() == 0 ? barrier_of_gloo() : [&] {
		return gloo_->scatter(bytes, rows, options);
	} };
	return follow(std::move(task), OpType::SCATTER, outputs, list_of(outputs),
		      std::move(moves));
}

WorkPtr
Group::alltoall_base(at::Tensor &output, at::Tensor &input, std::vector<int64_t> &output_sizes,
		     std::vector<int64_t> &input_sizes, const c10d::AllToAllOptions &options)
{
	await_callbacks();
	const char *name = "alltoall_base";

	TORCH_CHECK(output.scalar_type() == input.scalar_type(), name, ": found outputs of ",
		    output.scalar_type(), " and inputs of ", input.scalar_type(),
		    ", expected one type");
	count_gloo(name, no_such, bytes_of({ input }));
	if (!has_bytes(input) || !has_bytes(output))
		return follow(OpType::ALLTOALL_BASE, list_of({ output }), [&] {
			return gloo_->alltoall_base(output, input, output_sizes, input_sizes,
						    options);
		});
	std::vector<int64_t> sent = bytes_of_splits(input, input_sizes, getSize()),
			     received = bytes_of_splits(output, output_sizes, getSize());
	GlooTask task;
	Moves moves;
	at::Tensor recv = bytes_view(target_of(name, output, &moves)),
		   send = bytes_view(flat_of(input));
	task.steps = { [&] { return gloo_->alltoall_base(recv, send, received, sent, options); } };
	return follow(std::move(task), OpType::ALLTOALL_BASE, { input }, list_of({ output }),
		      std::move(moves));
}

/* Gloo has this collective only for one tensor, cut into parts of any length. */
WorkPtr
Group::alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &options)
{
	await_callbacks();
	const char *name = "alltoall";

	TORCH_CHECK(inputs.size() == static_cast<size_t>(getSize()) &&
			    outputs.size() == inputs.size(),
		    name, ": found ", inputs.size(), " inputs and ", outputs.size(),
		    " outputs, expected ", getSize());
	std::vector<int64_t> sent, received;
	Tensors flat;
	int64_t n_received = 0;
	for (size_t i = 0; i < inputs.size(); i++) {
		TORCH_CHECK(inputs[i].scalar_type() == inputs[0].scalar_type() &&
				    outputs[i].scalar_type() == inputs[0].scalar_type(),
			    name, ": found several types of tensors, expected one");
		TORCH_CHECK(has_bytes(inputs[i]) && has_bytes(outputs[i]), name,
			    ": sparse and quantized tensors and devices are not supported");
		expect_writable(name, outputs[i]);
		flat.push_back(flat_of(inputs[i]).view({ -1 }));
		sent.push_back(static_cast<int64_t>(inputs[i].nbytes()));
		received.push_back(static_cast<int64_t>(outputs[i].nbytes()));
		n_received += outputs[i].numel();
	}
	at::Tensor from = at::cat(flat), to = at::empty({ n_received }, from.options());
	at::Tensor send = bytes_view(from), recv = bytes_view(to);
	GlooTask task;
	count_gloo(name, no_such, bytes_of(inputs));
	task.steps = { [&] { return gloo_->alltoall_base(recv, send, received, sent, options); } };
	task.work = make_work(OpType::ALLTOALL, inputs, list_of(outputs));
	task.finish = [outputs, to] {
		int64_t next = 0;
		for (const at::Tensor &output : outputs) {
			output.detach().copy_(
				to.narrow(0, next, output.numel()).view(output.sizes()));
			next += output.numel();
		}
	};
	return follow(std::move(task));
}

/*
 * Data that Gloo receives for a tensor that is not plain: the thread that waits for it copies it to
 * the tensor.
 */
class Receipt : public c10d::Work {
      public:
	Receipt(WorkPtr gloo, Moves moves)
	    : c10d::Work(-1, OpType::RECV), gloo_(std::move(gloo)), moves_(std::move(moves))
	{
	}
	bool
	isCompleted() override
	{
		return gloo_->isCompleted();
	}
	bool
	isSuccess() const override
	{
		return gloo_->isSuccess();
	}
	std::exception_ptr
	exception() const override
	{
		return gloo_->exception();
	}
	int
	sourceRank() const override
	{
		return gloo_->sourceRank();
	}
	void
	abort() override
	{
		gloo_->abort();
	}
	bool
	wait(std::chrono::milliseconds timeout) override
	{
		if (!gloo_->wait(timeout))
			return false;
		std::lock_guard<std::mutex> lock(mutex_);
		c10::InferenceMode guard;
		for (const std::function<void()> &move : moves_)
			move();
		moves_.clear();
		return true;
	}

      private:
	const WorkPtr gloo_;
	Moves moves_;
};

WorkPtr
Group::send(Tensors &tensors, int to, int tag)
{
	expect_single("send", tensors.size());
	count_gloo("send", point_to_point, bytes_of(tensors));
	if (!has_bytes(tensors[0]))
		return gloo_->send(tensors, to, tag);
	Tensors flat = { flat_of(tensors[0]) };
	return gloo_->send(flat, to, tag);
}

/* receive: makes Gloo receive into a tensor. */
WorkPtr
Group::recv_by_gloo(Tensors &tensors, const std::function<WorkPtr(Tensors &)> &receive)
{
	Moves moves;

	expect_single("recv", tensors.size());
	count_gloo("recv", point_to_point, bytes_of(tensors));
	if (!has_bytes(tensors[0]))
		return receive(tensors);
	Tensors target = { target_of("recv", tensors[0], &moves) };
	WorkPtr work = receive(target);
	if (moves.empty())
		return work;
	return c10::make_intrusive<Receipt>(std::move(work), std::move(moves));
}

WorkPtr
Group::recv(Tensors &tensors, int from, int tag)
{
	return recv_by_gloo(tensors,
			    [&](Tensors &target) { return gloo_->recv(target, from, tag); });
}

WorkPtr
Group::recvAnysource(Tensors &tensors, int tag)
{
	return recv_by_gloo(tensors,
			    [&](Tensors &target) { return gloo_->recvAnysource(target, tag); });
}

void
Group::monitoredBarrier(const c10d::BarrierOptions &options, bool wait_all_ranks)
{
	count_gloo("monitored_barrier", no_such, 0);
	gloo_->monitoredBarrier(options, wait_all_ranks);
}

void
Group::setSequenceNumberForGroup()
{
	gloo_->setSequenceNumberForGroup();
}

uint64_t
Group::getSequenceNumberForGroup()
{
	return gloo_->getSequenceNumberForGroup();
}

} // namespace fanin_torch
