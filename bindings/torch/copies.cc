/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Torch's collectives that reduce nothing, by collectives of the library: they copy bytes of any
 * type, or only synchronise.
 */
#include "bindings/torch/group.hh"

namespace fanin_torch {

using c10d::OpType;
using WorkPtr = Group::WorkPtr;

WorkPtr
Group::broadcast(Tensors &tensors, const c10d::BroadcastOptions &options)
{
	await_callbacks();
	expect_single("broadcast", tensors.size());
	TORCH_CHECK(options.rootRank >= 0 && options.rootRank < getSize(),
		    "broadcast: found the root ", options.rootRank,
		    ", expected a rank of the group");
	std::string reason = why_gloo(tensors[0], nullptr);
	Moves moves;
	if (!reason.empty()) {
		count_gloo("broadcast", reason, bytes_of(tensors));
		if (!has_bytes(tensors[0]))
			return follow(OpType::BROADCAST, list_of(tensors),
				      [&] { return gloo_->broadcast(tensors, options); });
		GlooTask task;
		Tensors bytes = { bytes_view(
			options.rootRank == getRank()
				? flat_of(tensors[0])
				: target_of("broadcast", tensors[0], &moves)) };
		task.steps = { [&] { return gloo_->broadcast(bytes, options); } };
		return follow(std::move(task), OpType::BROADCAST, tensors, list_of(tensors),
			      std::move(moves));
	}
	std::vector<Part> parts(1);
	parts[0].call = Call::BROADCAST;
	parts[0].root = static_cast<int>(options.rootRank);
	if (options.rootRank == getRank())
		parts[0].send = flat_of(tensors[0]);
	else
		parts[0].recv = target_of("broadcast", tensors[0], &moves);
	return start("broadcast", OpType::BROADCAST, tensors, list_of(tensors), std::move(parts),
		     std::move(moves), options.timeout);
}

/*
 * Makes a part that gathers bytes of `send` into `recv`, both plain. A `send` that overlaps `recv`,
 * except in place, is copied first.
 */
static Part
gather_part(at::Tensor send, const at::Tensor &recv, int rank)
{
	const char *place = static_cast<const char *>(recv.data_ptr()) + rank * send.nbytes();
	Part part;

	if (send.data_ptr() != place && overlap(send, recv))
		send = send.clone();
	part.call = Call::ALLGATHER;
	part.send = std::move(send);
	part.recv = recv;
	return part;
}

/* Makes a part that gathers into one tensor, from which the outputs are filled. */
static Part
gather_into(const char *collective, Moves *moves, const Tensors &outputs, const at::Tensor &input,
	    int rank)
{
	auto size = static_cast<int64_t>(outputs.size());
	at::Tensor all = at::empty({ size, input.numel() },
				   input.options().memory_format(at::MemoryFormat::Contiguous));

	for (int64_t i = 0; i < size; i++) {
		at::Tensor there = outputs[i].detach();
		expect_writable(collective, there);
		moves->push_back([there, all, i] { there.copy_(all[i].view(there.sizes())); });
	}
	return gather_part(flat_of(input), all, rank);
}

WorkPtr
Group::allgather(std::vector<Tensors> &outputs, Tensors &inputs,
		 const c10d::AllgatherOptions &options)
{
	await_callbacks();
	expect_single("allgather", inputs.size());
	expect_single("allgather", outputs.size());
	TORCH_CHECK(outputs[0].size() == static_cast<size_t>(getSize()), "allgather: found ",
		    outputs[0].size(), " outputs, expected ", getSize());
	for (const at::Tensor &output : outputs[0])
		expect_alike("allgather", output, inputs[0]);
	std::string reason = why_gloo(inputs[0], nullptr);
	if (!reason.empty() && !has_bytes(inputs[0])) {
		count_gloo("allgather", reason, bytes_of(inputs));
		return follow(OpType::ALLGATHER, lists_of(outputs),
			      [&] { return gloo_->allgather(outputs, inputs, options); });
	}
	std::vector<Part> parts;
	Moves moves;
	if (!reason.empty()) {
		GlooTask task;
		count_gloo("allgather", reason, bytes_of(inputs));
		gather_by_gloo(&task, inputs[0], targets_of("allgather", outputs[0], &moves),
			       options);
		return follow(std::move(task), OpType::ALLGATHER, inputs, lists_of(outputs),
			      std::move(moves));
	}
	parts.push_back(gather_into("allgather", &moves, outputs[0], inputs[0], getRank()));
	return start("allgather", OpType::ALLGATHER, inputs, lists_of(outputs), std::move(parts),
		     std::move(moves), options.timeout);
}

WorkPtr
Group::allgather_coalesced(std::vector<Tensors> &outputs, Tensors &inputs,
			   const c10d::AllgatherOptions &options)
{
	await_callbacks();
	TORCH_CHECK(outputs.size() == static_cast<size_t>(getSize()), "allgather_coalesced: found ",
		    outputs.size(), " lists of outputs, expected ", getSize());
	std::string reason;
	bool all_bytes = true;
	for (const at::Tensor &input : inputs) {
		reason = reason.empty() ? why_gloo(input, nullptr) : reason;
		all_bytes = all_bytes && has_bytes(input);
	}
	if (!all_bytes) {
		count_gloo("allgather_coalesced", reason, bytes_of(inputs));
		return follow(OpType::ALLGATHER_COALESCED, lists_of(outputs),
			      [&] { return gloo_->allgather_coalesced(outputs, inputs, options); });
	}
	for (const Tensors &list : outputs) {
		TORCH_CHECK(list.size() == inputs.size(), "allgather_coalesced: found ",
			    list.size(), " outputs, expected ", inputs.size());
		for (size_t i = 0; i < inputs.size(); i++)
			expect_alike("allgather_coalesced", list[i], inputs[i]);
	}
	if (!reason.empty())
		return gather_lists_by_gloo(reason, outputs, inputs, options);
	std::vector<Part> parts;
	Moves moves;
	for (size_t i = 0; i < inputs.size(); i++) {
		Tensors of_ranks;
		for (const Tensors &list : outputs)
			of_ranks.push_back(list[i]);
		parts.push_back(
			gather_into("allgather_coalesced", &moves, of_ranks, inputs[i], getRank()));
	}
	return start("allgather_coalesced", OpType::ALLGATHER_COALESCED, inputs, lists_of(outputs),
		     std::move(parts), std::move(moves), options.timeout);
}

static void
expect_rows(const char *collective, const at::Tensor &output, const at::Tensor &input, int size)
{
	TORCH_CHECK(output.scalar_type() == input.scalar_type() &&
			    output.numel() == input.numel() * size,
		    collective, ": found ", output.numel(), " elements of ", output.scalar_type(),
		    " for the output, expected ", input.numel() * size, " of ",
		    input.scalar_type());
}

/* Gathers each input into the output of the same index, which has a row for each rank. */
WorkPtr
Group::gather_rows(const char *collective, OpType type, Tensors &outputs, Tensors &inputs,
		   const c10d::AllgatherOptions &options)
{
	std::string reason;
	std::vector<Part> parts;
	Moves moves;
	GlooTask task;

	for (size_t i = 0; i < inputs.size(); i++) {
		expect_rows(collective, outputs[i], inputs[i], getSize());
		reason = reason.empty() ? why_gloo(inputs[i], nullptr) : reason;
	}
	for (size_t i = 0; i < inputs.size(); i++) {
		at::Tensor recv = target_of(collective, outputs[i], &moves);
		if (reason.empty())
			parts.push_back(gather_part(flat_of(inputs[i]), recv, getRank()));
		else
			gather_by_gloo(&task, inputs[i],
				       recv.view({ getSize(), inputs[i].numel() }).unbind(),
				       options);
	}
	if (reason.empty())
		return start(collective, type, inputs, list_of(outputs), std::move(parts),
			     std::move(moves), options.timeout);
	count_gloo(collective, reason, bytes_of(inputs));
	return follow(std::move(task), type, inputs, list_of(outputs), std::move(moves));
}

WorkPtr
Group::_allgather_base(at::Tensor &output, at::Tensor &input, const c10d::AllgatherOptions &options)
{
	Tensors outputs = { output }, inputs = { input };

	await_callbacks();
	if (!has_bytes(input)) {
		expect_rows("_allgather_base", output, input, getSize());
		count_gloo("_allgather_base", why_gloo(input, nullptr), bytes_of(inputs));
		return follow(OpType::_ALLGATHER_BASE, list_of(outputs),
			      [&] { return gloo_->_allgather_base(output, input, options); });
	}
	return gather_rows("_allgather_base", OpType::_ALLGATHER_BASE, outputs, inputs, options);
}

WorkPtr
Group::allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
				       const c10d::AllgatherOptions &options)
{
	const char *name = "allgather_into_tensor_coalesced";

	await_callbacks();
	expect_pairs(name, outputs, inputs);
	return gather_rows(name, OpType::_ALLGATHER_BASE, outputs, inputs, options);
}

WorkPtr
Group::barrier(const c10d::BarrierOptions &options)
{
	await_callbacks();
	if (!gloo_reason_.empty()) {
		count_gloo("barrier", gloo_reason_, 0);
		return follow(OpType::BARRIER, list_of({}),
			      [&] { return gloo_->barrier(options); });
	}
	return start("barrier", OpType::BARRIER, {}, list_of({}), std::vector<Part>(1), {},
		     options.timeout);
}

} // namespace fanin_torch
