/* SPDX-License-Identifier: BSD-3-Clause */
/* Torch's tensors, types and operators as the library's. */
#ifndef FANIN_TORCH_TENSORS_HH
#define FANIN_TORCH_TENSORS_HH

#include <fanin/fanin.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

namespace fanin_torch {

using Tensors = std::vector<at::Tensor>;
using Moves = std::vector<std::function<void()>>;

/* 0: the library has no such type, or no such operator. */
int dtype_of(at::ScalarType type);
int op_of(c10d::ReduceOp op, at::ScalarType type);

/* Values of torch's futures. */
c10::IValue list_of(const Tensors &tensors);
c10::IValue lists_of(const std::vector<Tensors> &lists);

/*
 * Whether Gloo is handed the bytes of its elements: Gloo lacks some types, and takes memory for
 * elements without looking at strides. Other tensors (devices, sparse, quantized) it gets as they
 * are, and says itself what it lacks. The same at all ranks.
 */
bool has_bytes(const at::Tensor &tensor);
/* The bytes of a plain tensor, which must live as long. */
at::Tensor bytes_view(const at::Tensor &tensor);

uint64_t bytes_of(const Tensors &tensors);
bool overlap(const at::Tensor &a, const at::Tensor &b);

void expect_single(const char *collective, size_t n);
/* What one rank gives and what it gets of each, of the same type and size. */
void expect_alike(const char *collective, const at::Tensor &found, const at::Tensor &expected);

/*
 * Whether the elements lie in memory one after the other, as they are. Views that stand for
 * conjugates or negatives don't; one rank may have such a view where others don't.
 */
bool is_plain(const at::Tensor &tensor);
/* A plain tensor with the same elements: itself, or a copy. */
at::Tensor flat_of(const at::Tensor &tensor);
/*
 * Throws if elements of the tensor share memory, as those of an expanded one do: it can't hold
 * results.
 */
void expect_writable(const char *collective, const at::Tensor &tensor);
/*
 * Where results are to be received, and how they come from there to the tensor: not at all if it is
 * itself.
 */
at::Tensor target_of(const char *collective, const at::Tensor &tensor, Moves *moves);
Tensors targets_of(const char *collective, const Tensors &tensors, Moves *moves);
/* One function that does them all; empty if there are none. */
std::function<void()> all_of(Moves moves);

} // namespace fanin_torch

#endif
