/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Torch's collectives that reduce, by collectives of the library. The decision whether one runs in
 * the network depends only on values that are the same on all ranks: the call, the data type, the
 * operator and the number of tensors. Tensors that are not contiguous are copied.
 */
#include "bindings/torch/group.hh"

namespace fanin_torch {

using c10d::OpType;
using c10d::ReduceOp;
using WorkPtr = Group::WorkPtr;

static Part
reduction(Call call, at::Tensor send, at::Tensor recv, const ReduceOp &op)
{
	Part part;

	part.call = call;
	part.dtype = static_cast<enum fanin_dtype>(dtype_of(send.scalar_type()));
	part.op = static_cast<enum fanin_op>(op_of(op, send.scalar_type()));
	part.send = std::move(send);
	part.recv = std::move(recv);
	return part;
}

WorkPtr
Group::reduce_all(const char *collective, OpType type, Tensors &tensors, const ReduceOp &op)
{
	std::vector<Part> parts;
	Moves moves;

	for (const at::Tensor &tensor : tensors) {
		at::Tensor recv = target_of(collective, tensor, &moves);
		parts.push_back(reduction(Call::ALLREDUCE, flat_of(tensor), recv, op));
	}
	return start(collective, type, tensors, list_of(tensors), std::move(parts),
		     std::move(moves));
}

WorkPtr
Group::allreduce(Tensors &tensors, const c10d::AllreduceOptions &options)
{
	await_callbacks();
	TORCH_CHECK(!tensors.empty(), "allreduce: found no tensor, expected one");
	std::string reason = tensors.size() == 1 ? why_gloo(tensors[0], &options.reduceOp)
						 : "several tensors that are one per device";
	if (!reason.empty())
		return reduce_by_gloo("allreduce", OpType::ALLREDUCE, reason, tensors,
				      options.reduceOp, -1);
	return reduce_all("allreduce", OpType::ALLREDUCE, tensors, options.reduceOp);
}

WorkPtr
Group::allreduce_coalesced(Tensors &tensors, const c10d::AllreduceCoalescedOptions &options)
{
	await_callbacks();
	TORCH_CHECK(!tensors.empty(), "allreduce_coalesced: found no tensor, expected some");
	std::string reason;
	for (const at::Tensor &tensor : tensors)
		reason = reason.empty() ? why_gloo(tensor, &options.reduceOp) : reason;
	if (!reason.empty())
		return reduce_by_gloo("allreduce_coalesced", OpType::ALLREDUCE_COALESCED, reason,
				      tensors, options.reduceOp, -1);
	return reduce_all("allreduce_coalesced", OpType::ALLREDUCE_COALESCED, tensors,
			  options.reduceOp);
}

WorkPtr
Group::reduce(Tensors &tensors, const c10d::ReduceOptions &options)
{
	await_callbacks();
	expect_single("reduce", tensors.size());
	TORCH_CHECK(options.rootRank >= 0 && options.rootRank < getSize(),
		    "reduce: found the root ", options.rootRank, ", expected a rank of the group");
	std::string reason = why_gloo(tensors[0], &options.reduceOp);
	if (!reason.empty())
		return reduce_by_gloo("reduce", OpType::REDUCE, reason, tensors, options.reduceOp,
				      static_cast<int>(options.rootRank));
	std::vector<Part> parts;
	Moves moves;
	at::Tensor recv;
	if (options.rootRank == getRank())
		recv = target_of("reduce", tensors[0], &moves);
	parts.push_back(reduction(Call::REDUCE, flat_of(tensors[0]), recv, options.reduceOp));
	parts[0].root = static_cast<int>(options.rootRank);
	return start("reduce", OpType::REDUCE, tensors, list_of(tensors), std::move(parts),
		     std::move(moves));
}

WorkPtr
Group::reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs,
		      const c10d::ReduceScatterOptions &options)
{
	await_callbacks();
	expect_single("reduce_scatter", outputs.size());
	expect_single("reduce_scatter", inputs.size());
	TORCH_CHECK(inputs[0].size() == static_cast<size_t>(getSize()), "reduce_scatter: found ",
		    inputs[0].size(), " inputs, expected ", getSize());
	Tensors flat;
	for (const at::Tensor &input : inputs[0]) {
		expect_alike("reduce_scatter", input, outputs[0]);
		flat.push_back(input.detach().reshape({ -1 }));
	}
	std::string reason = why_gloo(outputs[0], &options.reduceOp);
	if (!reason.empty())
		return scatter_by_gloo("reduce_scatter", OpType::REDUCE_SCATTER, reason, inputs[0],
				       at::cat(flat), outputs[0], options.reduceOp);
	std::vector<Part> parts;
	Moves moves;
	at::Tensor recv = target_of("reduce_scatter", outputs[0], &moves);
	parts.push_back(reduction(Call::REDUCE_SCATTER, at::cat(flat), recv, options.reduceOp));
	return start("reduce_scatter", OpType::REDUCE_SCATTER, inputs[0], list_of(outputs),
		     std::move(parts), std::move(moves));
}

WorkPtr
Group::_reduce_scatter_base(at::Tensor &output, at::Tensor &input,
			    const c10d::ReduceScatterOptions &options)
{
	await_callbacks();
	TORCH_CHECK(output.scalar_type() == input.scalar_type() &&
			    input.numel() == output.numel() * getSize(),
		    "_reduce_scatter_base: found ", input.numel(), " elements of ",
		    input.scalar_type(), " for the input, expected ", output.numel() * getSize(),
		    " of ", output.scalar_type());
	std::string reason = why_gloo(input, &options.reduceOp);
	if (!reason.empty())
		return scatter_by_gloo("_reduce_scatter_base", OpType::_REDUCE_SCATTER_BASE, reason,
				       { input }, flat_of(input), output, options.reduceOp);
	std::vector<Part> parts;
	Moves moves;
	at::Tensor send = flat_of(input), recv = target_of("_reduce_scatter_base", output, &moves);
	const char *place = static_cast<const char *>(send.data_ptr()) + getRank() * recv.nbytes();
	if (recv.data_ptr() != place && overlap(send, recv))
		send = send.clone();
	parts.push_back(reduction(Call::REDUCE_SCATTER, send, recv, options.reduceOp));
	return start("_reduce_scatter_base", OpType::_REDUCE_SCATTER_BASE, { input },
		     list_of({ output }), std::move(parts), std::move(moves));
}

} // namespace fanin_torch
