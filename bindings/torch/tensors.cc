/* SPDX-License-Identifier: BSD-3-Clause */
/* Torch's tensors, types and operators as the library's. See tensors.hh. */
#include "bindings/torch/tensors.hh"

#include <ATen/MemoryOverlap.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace fanin_torch {

using c10d::ReduceOp;

/* A bool is stored as 0 or 1. */
int
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

/* Sums and products of bool are "or" and "and", as with NCCL. */
int
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
	case ReduceOp::PREMUL_SUM: /* of scaled_of */
		return FANIN_SUM;
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

/* Returns the tensor with the factor, undefined if the factor is a number. */
static at::Tensor
tensor_factor_of(const c10d::NCCLPreMulSumSupplement &factor)
{
#if TORCH_VERSION_MAJOR >= 2
	return factor.tensor_factor;
#else
	return factor.tensor_factors.empty() ? at::Tensor() : factor.tensor_factors[0];
#endif
}

at::Tensor
scaled_of(const at::Tensor &tensor, const ReduceOp &op)
{
	if (!tensor.defined() || static_cast<ReduceOp::RedOpType>(op) != ReduceOp::PREMUL_SUM)
		return tensor;
	TORCH_CHECK(tensor.is_floating_point(), "PREMUL_SUM: found a tensor of ",
		    tensor.scalar_type(), ", expected floating-point numbers");
	const auto *factor =
		dynamic_cast<const c10d::NCCLPreMulSumSupplement *>(op.supplement_.get());
	TORCH_CHECK(factor != nullptr, "PREMUL_SUM: found no factor");
	const at::Tensor number = tensor_factor_of(*factor);
	if (!number.defined())
		return tensor.mul(factor->double_factor);
	TORCH_CHECK(number.numel() == 1, "PREMUL_SUM: found a factor of ", number.numel(),
		    " elements, expected one");
	return tensor.mul(number.to(tensor.device(), tensor.scalar_type()).reshape({}));
}

c10::IValue
list_of(const Tensors &tensors)
{
	return c10::IValue(c10::List<at::Tensor>(tensors));
}

c10::IValue
lists_of(const std::vector<Tensors> &lists)
{
	c10::List<c10::List<at::Tensor>> value;

	for (const Tensors &tensors : lists)
		value.push_back(c10::List<at::Tensor>(tensors));
	return c10::IValue(value);
}

bool
has_bytes(const at::Tensor &tensor)
{
	return tensor.layout() == at::kStrided && tensor.device().is_cpu() &&
	       !tensor.is_quantized();
}

at::Tensor
bytes_view(const at::Tensor &tensor)
{
	return at::from_blob(
		tensor.data_ptr(), { static_cast<int64_t>(tensor.nbytes()) }, [tensor](void *) {},
		at::TensorOptions(at::kByte));
}

uint64_t
bytes_of(const Tensors &tensors)
{
	uint64_t bytes = 0;

	for (const at::Tensor &tensor : tensors)
		bytes += tensor.defined() ? tensor.numel() * tensor.element_size() : 0;
	return bytes;
}

bool
overlap(const at::Tensor &a, const at::Tensor &b)
{
	const char *first = static_cast<const char *>(a.data_ptr()),
		   *second = static_cast<const char *>(b.data_ptr());

	return first < second + b.nbytes() && second < first + a.nbytes();
}

void
expect_single(const char *collective, size_t n)
{
	TORCH_CHECK(n == 1, collective, ": found ", n, " tensors, expected one");
}

void
expect_pairs(const char *collective, const Tensors &outputs, const Tensors &inputs)
{
	TORCH_CHECK(!inputs.empty() && outputs.size() == inputs.size(), collective, ": found ",
		    outputs.size(), " outputs and ", inputs.size(),
		    " inputs, expected one or more, and as many of both");
}

void
expect_alike(const char *collective, const at::Tensor &found, const at::Tensor &expected)
{
	TORCH_CHECK(found.scalar_type() == expected.scalar_type() &&
			    found.sizes() == expected.sizes(),
		    collective, ": found a tensor of ", found.scalar_type(), " and size ",
		    found.sizes(), ", expected ", expected.scalar_type(), " and size ",
		    expected.sizes());
}

bool
is_plain(const at::Tensor &tensor)
{
	return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

at::Tensor
flat_of(const at::Tensor &tensor)
{
	return is_plain(tensor) ? tensor.detach()
				: tensor.detach().resolve_conj().resolve_neg().contiguous();
}

/*
 * True if each dimension's step is larger than the extent of all dimensions with smaller steps, as
 * in a slice: no two elements share memory then.
 */
static bool
is_nested(const at::Tensor &tensor)
{
	std::vector<std::pair<int64_t, int64_t>> steps;
	int64_t reach = 0;

	for (int64_t d = 0; d < tensor.dim(); d++) {
		if (tensor.size(d) > 1)
			steps.emplace_back(tensor.stride(d), tensor.size(d));
	}
	std::sort(steps.begin(), steps.end());
	for (const auto &[stride, size] : steps) {
		if (stride <= reach)
			return false;
		reach += (size - 1) * stride;
	}
	return true;
}

/* True if two elements share memory. If strides don't tell, all places are compared. */
static bool
overlaps(const at::Tensor &tensor)
{
	const at::MemOverlap found = at::has_internal_overlap(tensor);

	if (tensor.numel() == 0 || found == at::MemOverlap::No || is_nested(tensor))
		return false;
	if (found == at::MemOverlap::Yes)
		return true;
	int64_t span = 1;
	for (int64_t d = 0; d < tensor.dim(); d++)
		span += (tensor.size(d) - 1) * tensor.stride(d);
	if (tensor.numel() > span)
		return true;
	std::vector<int64_t> places = { 0 };
	for (int64_t d = 0; d < tensor.dim(); d++) {
		std::vector<int64_t> more;

		more.reserve(places.size() * (size_t)tensor.size(d));
		for (int64_t i = 0; i < tensor.size(d); i++) {
			for (int64_t place : places)
				more.push_back(place + i * tensor.stride(d));
		}
		places = std::move(more);
	}
	std::sort(places.begin(), places.end());
	return std::adjacent_find(places.begin(), places.end()) != places.end();
}

void
expect_writable(const char *collective, const at::Tensor &tensor)
{
	TORCH_CHECK(!overlaps(tensor), collective, ": found a tensor of size ", tensor.sizes(),
		    " and strides ", tensor.strides(),
		    " for results, expected one whose elements do not share memory");
}

at::Tensor
target_of(const char *collective, const at::Tensor &tensor, Moves *moves)
{
	expect_writable(collective, tensor);
	if (is_plain(tensor))
		return tensor.detach();
	at::Tensor staging = at::empty(tensor.sizes(), tensor.options().memory_format(
							       at::MemoryFormat::Contiguous));
	at::Tensor there = tensor.detach();
	moves->push_back([there, staging] { there.copy_(staging); });
	return staging;
}

Tensors
targets_of(const char *collective, const Tensors &tensors, Moves *moves)
{
	Tensors targets;

	for (const at::Tensor &tensor : tensors)
		targets.push_back(target_of(collective, tensor, moves));
	return targets;
}

std::function<void()>
all_of(Moves moves)
{
	if (moves.empty())
		return {};
	return [moves = std::move(moves)] {
		for (const std::function<void()> &move : moves)
			move();
	};
}

} // namespace fanin_torch
