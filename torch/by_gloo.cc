/* SPDX-License-Identifier: BSD-3-Clause */
/* What the library has not: it goes to the Gloo group inside, and is counted, with the reason. */
#include "torch/group.hh"

namespace fanin_torch {

using WorkPtr = Group::WorkPtr;

static const char point_to_point[] = "point-to-point is not in the library";
static const char no_such[] = "no such collective in the library";

/* "" if it runs in the network. op: NULL where nothing is reduced: bytes are copied then, of any type. */
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

WorkPtr
Group::gather(std::vector<Tensors> &outputs, Tensors &inputs, const c10d::GatherOptions &options)
{
	count_gloo("gather", no_such, bytes_of(inputs));
	return gloo_->gather(outputs, inputs, options);
}

WorkPtr
Group::scatter(Tensors &outputs, std::vector<Tensors> &inputs, const c10d::ScatterOptions &options)
{
	count_gloo("scatter", no_such, bytes_of(outputs));
	return gloo_->scatter(outputs, inputs, options);
}

WorkPtr
Group::alltoall_base(at::Tensor &output, at::Tensor &input, std::vector<int64_t> &output_sizes,
		     std::vector<int64_t> &input_sizes, const c10d::AllToAllOptions &options)
{
	count_gloo("alltoall_base", no_such, bytes_of({ input }));
	return gloo_->alltoall_base(output, input, output_sizes, input_sizes, options);
}

/* Gloo has it for one tensor only, cut into parts of any length. */
WorkPtr
Group::alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &options)
{
	TORCH_CHECK(inputs.size() == static_cast<size_t>(getSize()) && outputs.size() == inputs.size(),
		    "alltoall: found ", inputs.size(), " inputs and ", outputs.size(),
		    " outputs, expected ", getSize());
	std::vector<int64_t> sent, received;
	Tensors flat;
	int64_t n_received = 0;
	for (size_t i = 0; i < inputs.size(); i++) {
		TORCH_CHECK(inputs[i].scalar_type() == inputs[0].scalar_type() &&
				    outputs[i].scalar_type() == inputs[0].scalar_type(),
			    "alltoall: found several types of tensors, expected one");
		sent.push_back(inputs[i].numel());
		received.push_back(outputs[i].numel());
		n_received += outputs[i].numel();
		flat.push_back(inputs[i].detach().reshape({ -1 }));
	}
	at::Tensor send = at::cat(flat), recv = at::empty({ n_received }, send.options());
	GlooTask task;
	count_gloo("alltoall", no_such, bytes_of(inputs));
	task.gloo = gloo_->alltoall_base(recv, send, received, sent, options);
	task.work = c10::make_intrusive<GroupWork>(getRank(), c10d::OpType::ALLTOALL, inputs,
						   c10::IValue(c10::List<at::Tensor>(outputs)));
	task.finish = [outputs, recv] {
		int64_t from = 0;
		for (const at::Tensor &output : outputs) {
			output.detach().copy_(
				recv.narrow(0, from, output.numel()).view(output.sizes()));
			from += output.numel();
		}
	};
	return follow(std::move(task));
}

WorkPtr
Group::send(Tensors &tensors, int to, int tag)
{
	count_gloo("send", point_to_point, bytes_of(tensors));
	return gloo_->send(tensors, to, tag);
}

WorkPtr
Group::recv(Tensors &tensors, int from, int tag)
{
	count_gloo("recv", point_to_point, bytes_of(tensors));
	return gloo_->recv(tensors, from, tag);
}

WorkPtr
Group::recvAnysource(Tensors &tensors, int tag)
{
	count_gloo("recv", point_to_point, bytes_of(tensors));
	return gloo_->recvAnysource(tensors, tag);
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
