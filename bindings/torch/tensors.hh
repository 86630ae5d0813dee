/* SPDX-License-Identifier: BSD-3-Clause */
/* Torch's tensors, types and operators in terms of the library. */
#ifndef FANIN_TORCH_TENSORS_HH
#define FANIN_TORCH_TENSORS_HH

#include <fanin/fanin.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/api/include/torch/version.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

namespace fanin_torch {

using Tensors = std::vector<at::Tensor>;
using Moves = std::vector<std::function<void()>>;

/* Return the library's code; 0: the library has no such type or operator. */
int dtype_of(at::ScalarType type);
int op_of(c10d::ReduceOp op, at::ScalarType type);

/*
 * Returns the elements multiplied by the operator's factor if it is PREMUL_SUM, else the tensor.
 * Throws unless such elements are floating-point numbers.
 */
at::Tensor scaled_of(const at::Tensor &tensor, const c10d::ReduceOp &op);

/* Make values of torch's futures. */
c10::IValue list_of(const Tensors &tensors);
c10::IValue lists_of(const std::vector<Tensors> &lists);

/*
 * True if Gloo is given the bytes of the tensor's elements: Gloo lacks some types, and treats
 * memory as elements without regard to strides. Other tensors (devices, sparse, quantized) are
 * given to Gloo unchanged, which reports what it lacks. The same at all ranks.
 */
bool has_bytes(const at::Tensor &tensor);
/* Returns the bytes of a plain tensor, which lives as long as the view. */
at::Tensor bytes_view(const at::Tensor &tensor);

uint64_t bytes_of(const Tensors &tensors);
bool overlap(const at::Tensor &a, const at::Tensor &b);

void expect_single(const char *collective, size_t n);
/* Throws unless there is an output for each input. */
void expect_pairs(const char *collective, const Tensors &outputs, const Tensors &inputs);
/*
 * Throws unless both tensors have the same type and size, as a rank's data and results must have.
 */
void expect_alike(const char *collective, const at::Tensor &found, const at::Tensor &expected);

/*
 * True if the elements are contiguous in memory, with their actual values. Views that stand for
 * conjugates or negatives don't have these; one rank may have such a view where others don't.
 */
bool is_plain(const at::Tensor &tensor);
/* Returns a plain tensor with the same elements: the tensor itself, or a copy. */
at::Tensor flat_of(const at::Tensor &tensor);
/*
 * Throws if elements of the tensor share memory, as those of an expanded one do: it can't hold
 * results.
 */
void expect_writable(const char *collective, const at::Tensor &tensor);
/*
 * Returns a tensor to receive results in, and adds the copy from there to `moves`, unless it is the
 * tensor itself.
 */
at::Tensor target_of(const char *collective, const at::Tensor &tensor, Moves *moves);
Tensors targets_of(const char *collective, const Tensors &tensors, Moves *moves);
/* Returns one function that makes all copies; empty if there are none. */
std::function<void()> all_of(Moves moves);

} // namespace fanin_torch

#endif
