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
	default:
		return op;
	}
}

/* Reduces by Gloo. root: -1 if all ranks get the result. */
WorkPtr
Group::reduce_by_gloo(const char *collective, OpType type, const std::string &reason,
		      const Tensors &tensors, const ReduceOp &op, int root)
{
	const bool averages = op == ReduceOp::AVG;
	GlooTask task;
	Moves moves;

	count_gloo(collective, reason, bytes_of(tensors));
	for (const at::Tensor &tensor : tensors) {
		if (!has_bytes(tensor)) {
			Tensors all = tensors;
			c10d::AllreduceOptions options;
			options.reduceOp = op;
			TORCH_CHECK(root < 0, collective,
				    ": sparse tensors and devices are not supported");
			return follow(type, list_of(tensors), gloo_->allreduce(all, options));
		}
		if (root < 0 || root == getRank())
			expect_writable(collective, tensor);
	}
	for (const at::Tensor &tensor : tensors) {
		const at::ScalarType original = tensor.scalar_type();
		Tensors staging = { tensor.detach() };
		const bool is_other = reduced_as(original) != original || averages || root >= 0 ||
				      !is_plain(tensor);
		if (tensor.numel() == 0)
			continue;
		if (is_other)
			staging[0] = at::empty(tensor.sizes(),
					       tensor.options()
						       .dtype(reduced_as(original))
						       .memory_format(at::MemoryFormat::Contiguous))
					     .copy_(tensor.detach());
		c10d::AllreduceOptions options;
		c10d::ReduceOptions reduce_options;
		options.reduceOp = reduce_options.reduceOp = operator_of(op, original);
		reduce_options.rootRank = root;
		task.before.push_back(root < 0 ? gloo_->allreduce(staging, options)
					       : gloo_->reduce(staging, reduce_options));
		if (!is_other || (root >= 0 && root != getRank()))
			continue;
		at::Tensor there = tensor.detach(), result = staging[0];
		moves.push_back([there, result, averages, size = getSize()] {
			at::Tensor sum = result;
			if (averages && sum.is_floating_point())
				sum.div_(size);
			else if (averages)
				sum.div_(size, "trunc");
			there.copy_(sum);
		});
	}
	if (task.before.empty()) {
		task.gloo = gloo_->barrier();
	} else {
		task.gloo = task.before.back();
		task.before.pop_back();
	}
	task.finish = all_of(std::move(moves));
	task.work = make_work(type, tensors, list_of(tensors));
	return follow(std::move(task));
}

/* Gloo has no reduce_scatter: this makes an allreduce, of which this rank takes its part. */
WorkPtr
Group::scatter_by_gloo(const char *collective, OpType type, const std::string &reason,
		       const Tensors &inputs, const at::Tensor &flat, const at::Tensor &output,
		       const ReduceOp &op)
{
	const at::ScalarType original = flat.scalar_type();
	const bool averages = op == ReduceOp::AVG;
	Tensors all = { flat.reshape({ -1 }).to(reduced_as(original)).clone() };
	c10d::AllreduceOptions options;
	at::Tensor there = output.detach();
	GlooTask task;

	expect_writable(collective, output);
	options.reduceOp = operator_of(op, original);
	count_gloo(collective, reason, bytes_of({ flat }));
	task.gloo = flat.numel() == 0 ? gloo_->barrier() : gloo_->allreduce(all, options);
	task.finish = [there, sum = all[0], averages, size = getSize(), rank = getRank()] {
		at::Tensor own = sum.view({ size, there.numel() })[rank];
		if (averages && own.is_floating_point())
			own.div_(size);
		else if (averages)
			own.div_(size, "trunc");
		there.copy_(own.view(there.sizes()));
	};
	task.work = make_work(type, inputs, list_of({ output }));
	return follow(std::move(task));
}

/*
 * Makes an allgather of bytes. rows: plain tensors that receive each rank's data. moves: copies
 * from these to the outputs.
 */
WorkPtr
Group::gather_by_gloo(const char *collective, OpType type, const std::string &reason,
		      const at::Tensor &input, const Tensors &rows, c10::IValue value, Moves moves)
{
	at::Tensor send = flat_of(input);
	Tensors inputs = { bytes_view(send) };
	std::vector<Tensors> outputs(1);
	GlooTask task;

	for (const at::Tensor &row : rows)
		outputs[0].push_back(bytes_view(row));
	count_gloo(collective, reason, bytes_of({ input }));
	task.gloo = input.numel() == 0 ? gloo_->barrier() : gloo_->allgather(outputs, inputs);
	task.finish = all_of(std::move(moves));
	task.buffers = rows;
	task.buffers.push_back(send);
	task.work = make_work(type, { input }, std::move(value));
	return follow(std::move(task));
}

/*
 * Makes an allgather of all inputs, one behind the other, as bytes. outputs: a list for each rank.
 */
WorkPtr
Group::gather_lists_by_gloo(const std::string &reason, const std::vector<Tensors> &outputs,
			    const Tensors &inputs)
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
	return gather_by_gloo(collective, OpType::ALLGATHER_COALESCED, reason, send, rows,
			      lists_of(outputs), std::move(moves));
}

} // namespace fanin_torch
