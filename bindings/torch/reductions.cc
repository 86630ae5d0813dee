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
	part.send = scaled_of(send, op);
	part.recv = std::move(recv);
	return part;
}

/* Returns the options of a reduction whose result all ranks get: without a root. */
static c10d::ReduceOptions
to_all(const c10d::AllreduceOptions &options)
{
	c10d::ReduceOptions all;

	all.reduceOp = options.reduceOp;
	all.rootRank = -1;
	all.timeout = options.timeout;
	return all;
}

WorkPtr
Group::reduce_all(const char *collective, OpType type, Tensors &tensors,
		  const c10d::AllreduceOptions &options)
{
	std::vector<Part> parts;
	Moves moves;

	for (const at::Tensor &tensor : tensors) {
		at::Tensor recv = target_of(collective, tensor, &moves);
		parts.push_back(
			reduction(Call::ALLREDUCE, flat_of(tensor), recv, options.reduceOp));
	}
	return start(collective, type, tensors, list_of(tensors), std::move(parts),
		     std::move(moves), options.timeout);
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
				      to_all(options));
	return reduce_all("allreduce", OpType::ALLREDUCE, tensors, options);
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
				      tensors, to_all(options));
	return reduce_all("allreduce_coalesced", OpType::ALLREDUCE_COALESCED, tensors, options);
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
		return reduce_by_gloo("reduce", OpType::REDUCE, reason, tensors, options);
	std::vector<Part> parts;
	Moves moves;
	at::Tensor recv;
	if (options.rootRank == getRank())
		recv = target_of("reduce", tensors[0], &moves);
	parts.push_back(reduction(Call::REDUCE, flat_of(tensors[0]), recv, options.reduceOp));
	parts[0].root = static_cast<int>(options.rootRank);
	return start("reduce", OpType::REDUCE, tensors, list_of(tensors), std::move(parts),
		     std::move(moves), options.timeout);
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
	std::vector<Part> parts;
	Moves moves;
	if (!reason.empty()) {
		GlooTask task;
		count_gloo("reduce_scatter", reason, bytes_of(inputs[0]));
		scatter_by_gloo(&task, &moves, at::cat(flat), outputs[0], options);
		return follow(std::move(task), OpType::REDUCE_SCATTER, inputs[0], list_of(outputs),
			      std::move(moves));
	}
	at::Tensor recv = target_of("reduce_scatter", outputs[0], &moves);
	parts.push_back(reduction(Call::REDUCE_SCATTER, at::cat(flat), recv, options.reduceOp));
	return start("reduce_scatter", OpType::REDUCE_SCATTER, inputs[0], list_of(outputs),
		     std::move(parts), std::move(moves), options.timeout);
}

/* Of each input, which has a row for each rank, this rank's output of the same index gets its row.
 */
WorkPtr
Group::scatter_rows(const char *collective, OpType type, Tensors &outputs, Tensors &inputs,
		    const c10d::ReduceScatterOptions &options)
{
	std::string reason;
	std::vector<Part> parts;
	Moves moves;
	GlooTask task;

	for (size_t i = 0; i < inputs.size(); i++) {
		TORCH_CHECK(outputs[i].scalar_type() == inputs[i].scalar_type() &&
				    inputs[i].numel() == outputs[i].numel() * getSize(),
			    collective, ": found ", inputs[i].numel(), " elements of ",
			    inputs[i].scalar_type(), " for the input, expected ",
			    outputs[i].numel() * getSize(), " of ", outputs[i].scalar_type());
		reason = reason.empty() ? why_gloo(inputs[i], &options.reduceOp) : reason;
	}
	for (size_t i = 0; i < inputs.size(); i++) {
		at::Tensor send = flat_of(inputs[i]);
		if (!reason.empty()) {
			scatter_by_gloo(&task, &moves, send, outputs[i], options);
			continue;
		}
		at::Tensor recv = target_of(collective, outputs[i], &moves);
		const char *place = static_cast<const char *>(send.data_ptr()) +
				    getRank() * recv.nbytes();
		if (recv.data_ptr() != place && overlap(send, recv))
			send = send.clone();
		parts.push_back(reduction(Call::REDUCE_SCATTER, send, recv, options.reduceOp));
	}
	if (reason.empty())
		return start(collective, type, inputs, list_of(outputs), std::move(parts),
			     std::move(moves), options.timeout);
	count_gloo(collective, reason, bytes_of(inputs));
	return follow(std::move(task), type, inputs, list_of(outputs), std::move(moves));
}

WorkPtr
Group::_reduce_scatter_base(at::Tensor &output, at::Tensor &input,
			    const c10d::ReduceScatterOptions &options)
{
	Tensors outputs = { output }, inputs = { input };

	await_callbacks();
	return scatter_rows("_reduce_scatter_base", OpType::_REDUCE_SCATTER_BASE, outputs, inputs,
			    options);
}

WorkPtr
Group::reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
				       const c10d::ReduceScatterOptions &options)
{
	const char *name = "reduce_scatter_tensor_coalesced";

	await_callbacks();
	expect_pairs(name, outputs, inputs);
	return scatter_rows(name, OpType::_REDUCE_SCATTER_BASE, outputs, inputs, options);
}

} // namespace fanin_torch
