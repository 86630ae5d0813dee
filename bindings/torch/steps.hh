/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A collective of a host with several ranks, as steps in memory: each rank lays out the data that
 * it gives; the leader combines all of it and makes collectives of hosts; each rank takes its part
 * of the result. The place of a part in the result depends only on values that are the same at all
 * ranks. accumulate_f32: sums of half and bfloat16 are float until each rank takes them, rounded
 * once.
 */
#ifndef FANIN_TORCH_STEPS_HH
#define FANIN_TORCH_STEPS_HH

#include "bindings/torch/layout.hh"
#include "bindings/torch/part.hh"

#include <string>
#include <vector>

namespace fanin_torch {

/* Returns in words what must be the same at all ranks. */
std::string signature_of(const std::vector<Part> &parts);

/* The size of the data that this rank gives, and the function that lays it out. */
size_t given_bytes(const std::vector<Part> &parts);
void give(const std::vector<Part> &parts, char *to);

/* Returns the size of the result in bytes, the same at all ranks of a host. */
size_t result_bytes(const Layout &layout, const std::vector<Part> &parts, bool accumulate_f32);

/*
 * The leader combines the data that the ranks of its host give into the result. own: its parts.
 * given: of each place, as laid out; NULL for its own. Returns the parts of its host, which receive
 * into the result.
 */
std::vector<Part> combine(const Layout &layout, const std::vector<Part> &own,
			  const std::vector<const char *> &given, char *result,
			  bool accumulate_f32);
/* To be called by the leader once these are done: divides averages, which hosts reduce as sums. */
void conclude(const Layout &layout, const std::vector<Part> &own, char *result,
	      bool accumulate_f32);

/* Copies this rank's part of the result. Returns its bytes. */
size_t take(const Layout &layout, const std::vector<Part> &parts, const char *result,
	    bool accumulate_f32);

} // namespace fanin_torch

#endif
