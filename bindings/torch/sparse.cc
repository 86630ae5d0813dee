/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A sum of vectors of which each rank has values at some indices only. torch.distributed has no
 * such call; hooks.py makes it. A sum that can't run in the network fails, or is gathered by Gloo
 * and summed by each rank, as the group's fallback says.
 */
#include "bindings/torch/group.hh"

namespace fanin_torch {

using WorkPtr = Group::WorkPtr;

/*
 * Returns why a sparse sum of this type can't run in the network, "" if it can. The same at all
 * ranks.
 */
std::string
Group::why_not_sparse(at::ScalarType type) const
{
	if (!gloo_reason_.empty())
		return gloo_reason_;
	if (type != at::kFloat && type != at::kDouble)
		return std::string("sparse sums of ") + c10::toString(type);
	const std::string handler = handler_of_job();
	if (handler.rfind("sparse", 0) != 0)
		return "sparse vectors in a job of the handler " + handler +
		       ": Options(handler=\"sparse\") asks for one that has them";
	return "";
}

/* Pads each rank's values with zeros at index n, so that all have the same length. */
static at::Tensor
padded(const at::Tensor &tensor, int64_t length, int64_t value)
{
	return at::constant_pad_nd(tensor, { 0, length - tensor.numel() }, value);
}

/* All ranks add in the order of ranks, and so get the same bits. */
WorkPtr
Group::sparse_by_gloo(GlooTask task, const at::Tensor &dense, const at::Tensor &indices,
		      const at::Tensor &values, int64_t most)
{
	const int64_t n = dense.numel();
	std::vector<Tensors> outputs(2);

	if (most == 0) { /* Gloo divides by the length of what it gathers. */
		task.steps = { barrier_of_gloo() };
		task.finish = [dense] { dense.zero_(); };
		return follow(std::move(task));
	}
	Tensors places = { padded(indices, most, n) }, found = { padded(values, most, 0) };

	for (int i = 0; i < getSize(); i++) {
		outputs[0].push_back(at::empty_like(places[0]));
		outputs[1].push_back(at::empty_like(found[0]));
	}
	std::vector<Tensors> to_places = { outputs[0] }, to_values = { outputs[1] };
	task.steps = { [&] { return gloo_->allgather(to_places, places); },
		       [&] { return gloo_->allgather(to_values, found); } };
	task.finish = [outputs, dense, n] {
		dense.zero_();
		for (size_t i = 0; i < outputs[0].size(); i++) {
			at::Tensor real = outputs[0][i] < n;
			dense.index_add_(0, outputs[0][i].masked_select(real),
					 outputs[1][i].masked_select(real));
		}
	};
	return follow(std::move(task));
}

/*
 * dense: receives the sum. indices: ascending. most: most values of any rank, the same at all
 * ranks. values and indices must not change until the work is done.
 */
WorkPtr
Group::allreduce_vectors(const at::Tensor &dense, const at::Tensor &indices,
			 const at::Tensor &values, int64_t most)
{
	await_callbacks();
	const char *name = "allreduce_sparse";
	const int64_t count = values.numel();

	TORCH_CHECK(dense.dim() == 1 && is_plain(dense) && dense.device().is_cpu(), name,
		    ": expected a contiguous result of one dimension on the CPU");
	TORCH_CHECK(values.scalar_type() == dense.scalar_type() &&
			    indices.scalar_type() == at::kLong && indices.numel() == count &&
			    count <= most && most <= dense.numel(),
		    name, ": found ", count, " values of ", values.scalar_type(), " and ",
		    indices.numel(), " indices of ", indices.scalar_type(), ", expected at most ",
		    most, " of ", dense.scalar_type(), " and as many of Long");
	at::Tensor places = flat_of(indices), found = flat_of(values), result = dense.detach();
	const int64_t *index = places.data_ptr<int64_t>();
	for (int64_t i = 0; i < count; i++)
		TORCH_CHECK(index[i] > (i == 0 ? -1 : index[i - 1]) && index[i] < dense.numel(),
			    name, ": found the index ", index[i],
			    ", expected ascending ones below ", dense.numel());
	std::string reason = why_not_sparse(dense.scalar_type());
	if (!reason.empty()) {
		TORCH_CHECK(!raises_, "fanin: not in the network: ", reason);
		GlooTask task;
		count_gloo(name, reason, bytes_of({ places, found }));
		task.work = make_work(c10d::OpType::ALLREDUCE, { places, found },
				      list_of({ dense }));
		return sparse_by_gloo(std::move(task), result, places, found, most);
	}
	std::vector<Part> parts(1);
	parts[0].call = Call::SPARSE;
	parts[0].dtype = static_cast<enum fanin_dtype>(dtype_of(dense.scalar_type()));
	parts[0].op = FANIN_SUM;
	parts[0].send = found;
	parts[0].indices = places;
	parts[0].recv = result;
	parts[0].most = most;
	return start(name, c10d::OpType::ALLREDUCE, { places, found }, list_of({ dense }),
		     std::move(parts), {}, c10d::kUnsetTimeout);
}

} // namespace fanin_torch
