/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Torch's collectives as those of the library. Whether one runs in the network depends only on what is the same on all ranks: the
 * call, the data type, the operator and how many tensors there are. Tensors that are not contiguous are copied.
 */
#include "torch/group.hh"

#include <algorithm>
#include <stdexcept>

#include <c10/util/intrusive_ptr.h>

namespace fanin_torch {

using c10d::OpType;
using c10d::ReduceOp;
using WorkPtr = Group::WorkPtr;
using Tensors = Group::Tensors;

/* 0: the library has no such type. bool holds 0 or 1. */
static int
dtype_of(at::ScalarType type)
{
	switch (type) {
	case at::kBool:
	case at::kByte:
		return FANIN_U8;
	case at::kChar:
		return FANIN_I8;
	case at::kShort:
		return FANIN_I16;
	case at::kInt:
		return FANIN_I32;
	case at::kLong:
		return FANIN_I64;
	case at::kHalf:
		return FANIN_F16;
	case at::kBFloat16:
		return FANIN_BF16;
	case at::kFloat:
		return FANIN_F32;
	case at::kDouble:
		return FANIN_F64;
	default:
		return 0;
	}
}

/* 0: the library has no such operator. Sums and products of bool are "or" and "and", as with NCCL. */
static int
op_of(ReduceOp op, at::ScalarType type)
{
	bool truth = type == at::kBool;

	switch (static_cast<ReduceOp::RedOpType>(op)) {
	case ReduceOp::SUM:
		return truth ? FANIN_MAX : FANIN_SUM;
	case ReduceOp::PRODUCT:
		return truth ? FANIN_MIN : FANIN_PROD;
	case ReduceOp::AVG:
		return truth ? 0 : FANIN_AVG;
	case ReduceOp::MIN:
		return FANIN_MIN;
	case ReduceOp::MAX:
		return FANIN_MAX;
	case ReduceOp::BAND:
		return FANIN_BAND;
	case ReduceOp::BOR:
		return FANIN_BOR;
	case ReduceOp::BXOR:
		return FANIN_BXOR;
	default:
		return 0;
	}
}

static c10::IValue
list_of(const Tensors &tensors)
{
	return c10::IValue(c10::List<at::Tensor>(tensors));
}

static c10::IValue
lists_of(const std::vector<Tensors> &lists)
{
	c10::List<c10::List<at::Tensor>> value;

	for (const Tensors &tensors : lists)
		value.push_back(c10::List<at::Tensor>(tensors));
	return c10::IValue(value);
}

static uint64_t
bytes_of(const Tensors &tensors)
{
	uint64_t bytes = 0;

	for (const at::Tensor &tensor : tensors)
		bytes += tensor.defined() ? tensor.numel() * tensor.element_size() : 0;
	return bytes;
}

static bool
overlap(const at::Tensor &a, const at::Tensor &b)
{
	const char *first = static_cast<const char *>(a.data_ptr()),
		   *second = static_cast<const char *>(b.data_ptr());

	return first < second + b.nbytes() && second < first + a.nbytes();
}

static void
expect_single(const char *collective, size_t n)
{
	TORCH_CHECK(n == 1, collective, ": found ", n, " tensors, expected one");
}

/* What one rank gives and what it gets of each, of the same type and size. */
static void
expect_alike(const char *collective, const at::Tensor &found, const at::Tensor &expected)
{
	TORCH_CHECK(found.scalar_type() == expected.scalar_type() && found.sizes() == expected.sizes(),
		    collective, ": found a tensor of ", found.scalar_type(), " and size ",
		    found.sizes(), ", expected ", expected.scalar_type(), " and size ",
		    expected.sizes());
}

/* "" if it runs in the network. op: NULL where nothing is reduced: bytes are copied then, of any type. */
std::string
Group::why_gloo(const at::Tensor &tensor, const ReduceOp *op) const
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
 * Whether the elements lie in memory one after the other, as they are. Views that stand for
 * conjugates or negatives don't; one rank may have such a view where others don't.
 */
static bool
is_plain(const at::Tensor &tensor)
{
	return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

/* A plain tensor with the same elements: itself, or a copy. */
static at::Tensor
flat_of(const at::Tensor &tensor)
{
	return is_plain(tensor) ? tensor.detach()
				: tensor.detach().resolve_conj().resolve_neg().contiguous();
}

/* Where results are to be received, and how they come from there to the tensor: not at all if it is itself. */
static at::Tensor
target_of(const at::Tensor &tensor, std::vector<std::function<void()>> *moves)
{
	if (is_plain(tensor))
		return tensor.detach();
	at::Tensor staging = at::empty(tensor.sizes(),
				       tensor.options().memory_format(at::MemoryFormat::Contiguous));
	at::Tensor there = tensor.detach();
	moves->push_back([there, staging] { there.copy_(staging); });
	return staging;
}

static std::function<void()>
all_of(std::vector<std::function<void()>> moves)
{
	if (moves.empty())
		return {};
	return [moves = std::move(moves)] {
		for (const std::function<void()> &move : moves)
			move();
	};
}

WorkPtr
Group::reduce_all(const char *collective, OpType type, Tensors &tensors, const ReduceOp &op)
{
	Task task;
	std::vector<std::function<void()>> moves;

	for (const at::Tensor &tensor : tensors) {
		at::Tensor send = flat_of(tensor), recv = target_of(tensor, &moves);
		auto dtype = static_cast<enum fanin_dtype>(dtype_of(tensor.scalar_type()));
		auto code = static_cast<enum fanin_op>(op_of(op, tensor.scalar_type()));
		Part part;
		part.buffers = { send, recv };
		part.post = [=](fanin_comm *comm, fanin_request **request) {
			return fanin_iallreduce(send.data_ptr(), recv.data_ptr(), send.numel(),
						dtype, code, comm, request);
		};
		task.parts.push_back(std::move(part));
	}
	count_network(collective, bytes_of(tensors));
	task.work = c10::make_intrusive<GroupWork>(getRank(), type, tensors, list_of(tensors));
	task.finish = all_of(std::move(moves));
	return submit(std::move(task));
}

WorkPtr
Group::allreduce(Tensors &tensors, const c10d::AllreduceOptions &options)
{
	TORCH_CHECK(!tensors.empty(), "allreduce: found no tensor, expected one");
	std::string reason = tensors.size() == 1 ? why_gloo(tensors[0], &options.reduceOp)
						 : "several tensors that are one per device";
	if (!reason.empty()) {
		count_gloo("allreduce", reason, bytes_of(tensors));
		return gloo_->allreduce(tensors, options);
	}
	return reduce_all("allreduce", OpType::ALLREDUCE, tensors, options.reduceOp);
}

WorkPtr
Group::allreduce_coalesced(Tensors &tensors, const c10d::AllreduceCoalescedOptions &options)
{
	TORCH_CHECK(!tensors.empty(), "allreduce_coalesced: found no tensor, expected some");
	std::string reason;
	for (const at::Tensor &tensor : tensors)
		reason = reason.empty() ? why_gloo(tensor, &options.reduceOp) : reason;
	if (!reason.empty()) {
		count_gloo("allreduce_coalesced", reason, bytes_of(tensors));
		return gloo_->allreduce_coalesced(tensors, options);
	}
	return reduce_all("allreduce_coalesced", OpType::ALLREDUCE_COALESCED, tensors,
			  options.reduceOp);
}

WorkPtr
Group::broadcast(Tensors &tensors, const c10d::BroadcastOptions &options)
{
	expect_single("broadcast", tensors.size());
	TORCH_CHECK(options.rootRank >= 0 && options.rootRank < getSize(),
		    "broadcast: found the root ", options.rootRank, ", expected a rank of the group");
	std::string reason = why_gloo(tensors[0], nullptr);
	if (!reason.empty()) {
		count_gloo("broadcast", reason, bytes_of(tensors));
		return gloo_->broadcast(tensors, options);
	}
	Task task;
	std::vector<std::function<void()>> moves;
	auto root = static_cast<uint16_t>(options.rootRank);
	at::Tensor buffer = root == getRank() ? flat_of(tensors[0]) : target_of(tensors[0], &moves);
	Part part;
	part.buffers = { buffer };
	part.post = [=](fanin_comm *comm, fanin_request **request) {
		return fanin_ibroadcast(buffer.data_ptr(), buffer.nbytes(), FANIN_U8, root, comm,
					request);
	};
	task.parts.push_back(std::move(part));
	count_network("broadcast", bytes_of(tensors));
	task.work = c10::make_intrusive<GroupWork>(getRank(), OpType::BROADCAST, tensors,
						   list_of(tensors));
	task.finish = all_of(std::move(moves));
	return submit(std::move(task));
}

WorkPtr
Group::reduce(Tensors &tensors, const c10d::ReduceOptions &options)
{
	expect_single("reduce", tensors.size());
	TORCH_CHECK(options.rootRank >= 0 && options.rootRank < getSize(),
		    "reduce: found the root ", options.rootRank, ", expected a rank of the group");
	std::string reason = why_gloo(tensors[0], &options.reduceOp);
	if (!reason.empty()) {
		count_gloo("reduce", reason, bytes_of(tensors));
		return gloo_->reduce(tensors, options);
	}
	Task task;
	std::vector<std::function<void()>> moves;
	auto root = static_cast<uint16_t>(options.rootRank);
	at::Tensor send = flat_of(tensors[0]), recv;
	if (root == getRank())
		recv = target_of(tensors[0], &moves);
	auto dtype = static_cast<enum fanin_dtype>(dtype_of(send.scalar_type()));
	auto code = static_cast<enum fanin_op>(op_of(options.reduceOp, send.scalar_type()));
	Part part;
	part.buffers = { send, recv };
	part.post = [=](fanin_comm *comm, fanin_request **request) {
		return fanin_ireduce(send.data_ptr(), recv.defined() ? recv.data_ptr() : nullptr,
				     send.numel(), dtype, code, root, comm, request);
	};
	task.parts.push_back(std::move(part));
	count_network("reduce", bytes_of(tensors));
	task.work = c10::make_intrusive<GroupWork>(getRank(), OpType::REDUCE, tensors,
						   list_of(tensors));
	task.finish = all_of(std::move(moves));
	return submit(std::move(task));
}

/* A part that gathers bytes of `send` into `recv`, both contiguous. What overlaps in another way than in place is copied before. */
static Part
gather_part(at::Tensor send, const at::Tensor &recv, int rank)
{
	const char *place = static_cast<const char *>(recv.data_ptr()) + rank * send.nbytes();
	Part part;

	if (send.data_ptr() != place && overlap(send, recv))
		send = send.clone();
	part.buffers = { send, recv };
	part.post = [=](fanin_comm *comm, fanin_request **request) {
		return fanin_iallgather(send.data_ptr(), recv.data_ptr(), send.nbytes(), FANIN_U8,
					comm, request);
	};
	return part;
}

/* Gathers into one tensor, from which the outputs are filled. */
static void
gather_into(Task *task, std::vector<std::function<void()>> *moves, const Tensors &outputs,
	    const at::Tensor &input, int rank)
{
	auto size = static_cast<int64_t>(outputs.size());
	at::Tensor send = flat_of(input);
	at::Tensor all = at::empty({ size, input.numel() },
				   input.options().memory_format(at::MemoryFormat::Contiguous));

	for (int64_t i = 0; i < size; i++) {
		at::Tensor there = outputs[i].detach();
		moves->push_back([there, all, i] { there.copy_(all[i].view(there.sizes())); });
	}
	task->parts.push_back(gather_part(send, all, rank));
}

WorkPtr
Group::allgather(std::vector<Tensors> &outputs, Tensors &inputs, const c10d::AllgatherOptions &options)
{
	expect_single("allgather", inputs.size());
	expect_single("allgather", outputs.size());
	TORCH_CHECK(outputs[0].size() == static_cast<size_t>(getSize()), "allgather: found ",
		    outputs[0].size(), " outputs, expected ", getSize());
	for (const at::Tensor &output : outputs[0])
		expect_alike("allgather", output, inputs[0]);
	std::string reason = why_gloo(inputs[0], nullptr);
	if (!reason.empty()) {
		count_gloo("allgather", reason, bytes_of(inputs));
		return gloo_->allgather(outputs, inputs, options);
	}
	Task task;
	std::vector<std::function<void()>> moves;
	gather_into(&task, &moves, outputs[0], inputs[0], getRank());
	count_network("allgather", bytes_of(inputs));
	task.work = c10::make_intrusive<GroupWork>(getRank(), OpType::ALLGATHER, inputs,
						   lists_of(outputs));
	task.finish = all_of(std::move(moves));
	return submit(std::move(task));
}

WorkPtr
Group::allgather_coalesced(std::vector<Tensors> &outputs, Tensors &inputs,
			   const c10d::AllgatherOptions &options)
{
	TORCH_CHECK(outputs.size() == static_cast<size_t>(getSize()), "allgather_coalesced: found ",
		    outputs.size(), " lists of outputs, expected ", getSize());
	std::string reason;
	for (const at::Tensor &input : inputs)
		reason = reason.empty() ? why_gloo(input, nullptr) : reason;
	if (!reason.empty()) {
		count_gloo("allgather_coalesced", reason, bytes_of(inputs));
		return gloo_->allgather_coalesced(outputs, inputs, options);
	}
	Task task;
	std::vector<std::function<void()>> moves;
	for (size_t i = 0; i < inputs.size(); i++) {
		Tensors of_ranks;
		for (const Tensors &list : outputs) {
			TORCH_CHECK(list.size() == inputs.size(), "allgather_coalesced: found ",
				    list.size(), " outputs, expected ", inputs.size());
			expect_alike("allgather_coalesced", list[i], inputs[i]);
			of_ranks.push_back(list[i]);
		}
		gather_into(&task, &moves, of_ranks, inputs[i], getRank());
	}
	count_network("allgather_coalesced", bytes_of(inputs));
	task.work = c10::make_intrusive<GroupWork>(getRank(), OpType::ALLGATHER_COALESCED, inputs,
						   lists_of(outputs));
	task.finish = all_of(std::move(moves));
	return submit(std::move(task));
}

WorkPtr
Group::_allgather_base(at::Tensor &output, at::Tensor &input, const c10d::AllgatherOptions &options)
{
	TORCH_CHECK(output.scalar_type() == input.scalar_type() &&
			    output.numel() == input.numel() * getSize(),
		    "_allgather_base: found ", output.numel(), " elements of ",
		    output.scalar_type(), " for the output, expected ", input.numel() * getSize(),
		    " of ", input.scalar_type());
	std::string reason = why_gloo(input, nullptr);
	if (!reason.empty()) {
		/* Gloo has it for lists only. */
		Tensors inputs = { flat_of(input) }, outputs;
		Task task;
		at::Tensor all = at::empty({ getSize(), input.numel() }, input.options());
		for (int i = 0; i < getSize(); i++)
			outputs.push_back(all[i].view(input.sizes()));
		std::vector<Tensors> lists = { outputs };
		count_gloo("_allgather_base", reason, bytes_of(inputs));
		task.gloo = gloo_->allgather(lists, inputs, options);
		task.work = c10::make_intrusive<GroupWork>(getRank(), OpType::_ALLGATHER_BASE,
							   inputs, list_of({ output }));
		at::Tensor there = output.detach();
		task.finish = [there, all] { there.copy_(all.view(there.sizes())); };
		return submit(std::move(task));
	}
	Task task;
	std::vector<std::function<void()>> moves;
	at::Tensor recv = target_of(output, &moves);
	task.parts.push_back(gather_part(flat_of(input), recv, getRank()));
	count_network("_allgather_base", bytes_of({ input }));
	task.work = c10::make_intrusive<GroupWork>(getRank(), OpType::_ALLGATHER_BASE,
						   Tensors{ input }, list_of({ output }));
	task.finish = all_of(std::move(moves));
	return submit(std::move(task));
}

/* Gloo has no reduce_scatter: its allreduce, of which this rank takes its part. */
WorkPtr
Group::scatter_by_gloo(const char *collective, const std::string &reason, at::Tensor flat,
		       at::Tensor output, const ReduceOp &op, Task task)
{
	Tensors all = { std::move(flat) };
	c10d::AllreduceOptions options;
	at::Tensor there = output.detach();

	options.reduceOp = op;
	count_gloo(collective, reason, bytes_of(all));
	task.gloo = gloo_->allreduce(all, options);
	at::Tensor own = all[0].view({ getSize(), output.numel() })[getRank()];
	task.finish = [there, own] { there.copy_(own.view(there.sizes())); };
	return submit(std::move(task));
}

static Part
scatter_part(const at::Tensor &send, const at::Tensor &recv, const ReduceOp &op)
{
	auto dtype = static_cast<enum fanin_dtype>(dtype_of(send.scalar_type()));
	auto code = static_cast<enum fanin_op>(op_of(op, send.scalar_type()));
	Part part;

	part.buffers = { send, recv };
	part.post = [=](fanin_comm *comm, fanin_request **request) {
		return fanin_ireduce_scatter(send.data_ptr(), recv.data_ptr(), recv.numel(), dtype,
					     code, comm, request);
	};
	return part;
}

WorkPtr
Group::reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs,
		      const c10d::ReduceScatterOptions &options)
{
	expect_single("reduce_scatter", outputs.size());
	expect_single("reduce_scatter", inputs.size());
	TORCH_CHECK(inputs[0].size() == static_cast<size_t>(getSize()), "reduce_scatter: found ",
		    inputs[0].size(), " inputs, expected ", getSize());
	Tensors flat;
	for (const at::Tensor &input : inputs[0]) {
		expect_alike("reduce_scatter", input, outputs[0]);
		flat.push_back(input.detach().reshape({ -1 }));
	}
	Task task;
	task.work = c10::make_intrusive<GroupWork>(getRank(), OpType::REDUCE_SCATTER, inputs[0],
						   list_of(outputs));
	std::string reason = why_gloo(outputs[0], &options.reduceOp);
	if (!reason.empty())
		return scatter_by_gloo("reduce_scatter", reason, at::cat(flat), outputs[0],
				       options.reduceOp, std::move(task));
	std::vector<std::function<void()>> moves;
	task.parts.push_back(
		scatter_part(at::cat(flat), target_of(outputs[0], &moves), options.reduceOp));
	count_network("reduce_scatter", bytes_of(inputs[0]));
	task.finish = all_of(std::move(moves));
	return submit(std::move(task));
}

WorkPtr
Group::_reduce_scatter_base(at::Tensor &output, at::Tensor &input,
			    const c10d::ReduceScatterOptions &options)
{
	TORCH_CHECK(output.scalar_type() == input.scalar_type() &&
			    input.numel() == output.numel() * getSize(),
		    "_reduce_scatter_base: found ", input.numel(), " elements of ",
		    input.scalar_type(), " for the input, expected ", output.numel() * getSize(),
		    " of ", output.scalar_type());
	Task task;
	task.work = c10::make_intrusive<GroupWork>(getRank(), OpType::_REDUCE_SCATTER_BASE,
						   Tensors{ input }, list_of({ output }));
	std::string reason = why_gloo(input, &options.reduceOp);
	if (!reason.empty())
		return scatter_by_gloo("_reduce_scatter_base", reason, flat_of(input).clone(),
				       output, options.reduceOp, std::move(task));
	std::vector<std::function<void()>> moves;
	at::Tensor send = flat_of(input), recv = target_of(output, &moves);
	const char *place = static_cast<const char *>(send.data_ptr()) + getRank() * recv.nbytes();
	if (recv.data_ptr() != place && overlap(send, recv))
		send = send.clone();
	task.parts.push_back(scatter_part(send, recv, options.reduceOp));
	count_network("_reduce_scatter_base", bytes_of({ input }));
	task.finish = all_of(std::move(moves));
	return submit(std::move(task));
}

WorkPtr
Group::barrier(const c10d::BarrierOptions &options)
{
	if (!gloo_reason_.empty()) {
		count_gloo("barrier", gloo_reason_, 0);
		return gloo_->barrier(options);
	}
	Task task;
	Part part;
	part.post = [](fanin_comm *comm, fanin_request **request) {
		return fanin_ibarrier(comm, request);
	};
	task.parts.push_back(std::move(part));
	count_network("barrier", 0);
	task.work = c10::make_intrusive<GroupWork>(getRank(), OpType::BARRIER, Tensors{},
						   list_of({}));
	return submit(std::move(task));
}

} // namespace fanin_torch
