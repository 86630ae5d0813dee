/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What torch.distributed makes of a group. From 2.0 on a process group has a backend for each type
 * of device, which does the work; before, it did the work itself. Both have the same collectives.
 */
#ifndef FANIN_TORCH_BASE_HH
#define FANIN_TORCH_BASE_HH

#include <torch/csrc/api/include/torch/version.h>

#if TORCH_VERSION_MAJOR >= 2
#include <torch/csrc/distributed/c10d/Backend.hpp>
#else
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#endif

namespace fanin_torch {

#if TORCH_VERSION_MAJOR >= 2
using Base = c10d::Backend;
#else
using Base = c10d::ProcessGroup;
#endif

} // namespace fanin_torch

#endif
