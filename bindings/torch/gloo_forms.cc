/* SPDX-License-Identifier: BSD-3-Clause */
/* Collectives that Gloo lacks in this form, and that use other types or other collectives. */
#include "bindings/torch/group.hh"

namespace fanin_torch {

using c10d::OpType;
using c10d::ReduceOp;
using WorkPtr = Group::WorkPtr;

/* Returns the type in which Gloo reduces this type, with the same result. */
static at::ScalarType
reduced_as(at::ScalarType type)
{
	switch (type) {
	case at::kBool:
		return at::kByte;
	case at::kShort:
		return at::kInt;
	case at::kBFloat16:
		return at::kFloat;
	default:
		return type;
	}
}

static ReduceOp
operator_of(const ReduceOp &op, at::ScalarType type)
{
	switch (static_cast<ReduceOp::RedOpType>(op)) {
	case ReduceOp::SUM:
		return type == at::kBool ? ReduceOp::MAX : ReduceOp::SUM;
	case ReduceOp::PRODUCT:
		return type == at::kBool ? ReduceOp::MIN : ReduceOp::PRODUCT;
	case ReduceOp::AVG:
		TORCH_CHECK(type != at::kBool, "averages of bool are not defined");
		return ReduceOp::SUM;
	case ReduceOp::PREMUL_SUM:
		return ReduceOp::SUM;
	default:
		return op;
	}
}

std::function<WorkPtr()>
Group::barrier_of_gloo()
{
	return [this] { return gloo_->barrier(); };
}

/* Returns a function that copies a sum, or the average of it, to where it belongs. */
static std::function<void()>
result_to(const at::Tensor &there, const at::Tensor &sum, bool averages, int size)
{
	return [there, sum, averages, size] {
		at::Tensor result = sum;
		if (averages && result.is_floating_point())
			result.div_(size);
		else if (averages)
			result.div_(size, "trunc");
		there.copy_(result.view(there.sizes()));
	};
}

/* Reduces by Gloo. options: their root is -1 if all ranks get the result. */
WorkPtr
Group::reduce_by_gloo(const char *collective, OpType type, const std::string &reason,
		      const Tensors &tensors, const c10d::ReduceOptions &options)
{
	const auto root = static_cast<int>(options.rootRank);
	const ReduceOp &op = options.reduceOp;
	const bool averages = op == ReduceOp::AVG;
	GlooTask task;
	Moves moves;

	count_gloo(collective, reason, bytes_of(tensors));
	for (const at::Tensor &tensor : tensors) {
		if (!has_bytes(tensor)) {
			Tensors all = tensors;
			c10d::AllreduceOptions others;
			others.reduceOp = op;
			others.timeout = options.timeout;
			TORCH_CHECK(root < 0, collective,
				    ": sparse tensors and devices are not supported");
			return follow(type, list_of(tensors),
				      [&] { return gloo_->allreduce(all, others); });
		}
		if (root < 0 || root == getRank())
			expect_writable(collective, tensor);
	}
	for (const at::Tensor &tensor : tensors) {
		const at::ScalarType original = tensor.scalar_type();
		Tensors staging = { tensor.detach() };
		const bool is_other = reduced_as(original) != original || averages ||
				      op == ReduceOp::PREMUL_SUM || root >= 0 || !is_plain(tensor);
		if (tensor.numel() == 0)
			continue;
		if (is_other)
			staging[0] = at::empty(tensor.sizes(),
					       tensor.options()
						       .dtype(reduced_as(original))
						       .memory_format(at::MemoryFormat::Contiguous))
					     .copy_(scaled_of(tensor.detach(), op));
		c10d::ReduceOptions reduce = options;
		c10d::AllreduceOptions all;
		reduce.reduceOp = all.reduceOp = operator_of(op, original);
		all.timeout = options.timeout;
		task.steps.push_back([this, staging, reduce, all]() mutable {
			return reduce.rootRank < 0 ? gloo_->allreduce(staging, all)
						   : gloo_->reduce(staging, reduce);
		});
		if (is_other && (root < 0 || root == getRank()))
			moves.push_back(
				result_to(tensor.detach(), staging[0], averages, getSize()));
	}
	if (task.steps.empty())
		task.steps = { barrier_of_gloo() };
	return follow(std::move(task), type, tensors, list_of(tensors), std::move(moves));
}

/* Gloo has no reduce_scatter: this makes an allreduce, of which this rank takes its part. */
void
Group::scatter_by_gloo(GlooTask *task, Moves *moves, const at::Tensor &flat,
		       const at::Tensor &output, const c10d::ReduceScatterOptions &options)
{
	const at::ScalarType original = flat.scalar_type();
	const ReduceOp &op = options.reduceOp;
	Tensors sum = { scaled_of(flat, op).reshape({ -1 }).to(reduced_as(original)).clone() };
	c10d::AllreduceOptions all;

	expect_writable("reduce_scatter", output);
	all.reduceOp = operator_of(op, original);
	all.timeout = options.timeout;
	if (flat.numel() == 0)
		task->steps.push_back(barrier_of_gloo());
	else
		task->steps.push_back(
			[this, sum, all]() mutable { return gloo_->allreduce(sum, all); });
	moves->push_back(result_to(output.detach(),
				   sum[0].view({ getSize(), output.numel() })[getRank()],
				   op == ReduceOp::AVG, getSize()));
}

/* Makes an allgather of bytes. rows: plain tensors that receive each rank's data. */
void
Group::gather_by_gloo(GlooTask *task, const at::Tensor &input, const Tensors &rows,
		      const c10d::AllgatherOptions &options)
{
	Tensors inputs = { bytes_view(flat_of(input)) };
	std::vector<Tensors> outputs(1);

	for (const at::Tensor &row : rows)
		outputs[0].push_back(bytes_view(row));
	if (input.numel() == 0)
		task->steps.push_back(barrier_of_gloo());
	else
		task->steps.push_back([this, outputs, inputs, options]() mutable {
			return gloo_->allgather(outputs, inputs, options);
		});
}

/*
 * Makes an allgather of all inputs, one behind the other, as bytes. outputs: a list for each rank.
 */
WorkPtr
Group::gather_lists_by_gloo(const std::string &reason, const std::vector<Tensors> &outputs,
			    const Tensors &inputs, const c10d::AllgatherOptions &options)
{
	const char *collective = "allgather_coalesced";
	Tensors flat, bytes, rows;
	Moves moves;

	for (const at::Tensor &input : inputs)
		flat.push_back(flat_of(input));
	for (const at::Tensor &tensor : flat)
		bytes.push_back(bytes_view(tensor));
	at::Tensor send = bytes.empty() ? at::empty({ 0 }, at::kByte) : at::cat(bytes);
	for (const Tensors &list : outputs) {
		at::Tensor row = at::empty_like(send);
		int64_t from = 0;
		for (const at::Tensor &output : list) {
			at::Tensor target = target_of(collective, output, &moves);
			const auto length = static_cast<int64_t>(target.nbytes());
			at::Tensor piece = row.narrow(0, from, length);
			moves.insert(moves.begin(),
				     [target, piece] { bytes_view(target).copy_(piece); });
			from += length;
		}
		rows.push_back(row);
	}
	GlooTask task;
	count_gloo(collective, reason, bytes_of({ send }));
	gather_by_gloo(&task, send, rows, options);
	return follow(std::move(task), OpType::ALLGATHER_COALESCED, { send }, lists_of(outputs),
		      std::move(moves));
}

} // namespace fanin_torch
