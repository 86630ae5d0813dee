/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A collective of a host with several ranks, as steps of memory: each rank lays out what it gives;
 * the leader combines that and has collectives of hosts; each rank takes what it gets from the
 * result. The result's place for a part depends only on what is the same at all ranks.
 * accumulate_f32: sums of half and bfloat16 are float until each rank takes them, rounded once.
 */
#ifndef FANIN_TORCH_STEPS_HH
#define FANIN_TORCH_STEPS_HH

#include "bindings/torch/layout.hh"
#include "bindings/torch/part.hh"

#include <string>
#include <vector>

namespace fanin_torch {

/* What must be the same at all ranks, in words. */
std::string signature_of(const std::vector<Part> &parts);

/* Bytes of what this rank gives, and how it is laid out. */
size_t given_bytes(const std::vector<Part> &parts);
void give(const std::vector<Part> &parts, char *to);

/* Bytes of the result, the same at all ranks of a host. */
size_t result_bytes(const Layout &layout, const std::vector<Part> &parts, bool accumulate_f32);

/*
 * The leader: combines what the ranks of its host give into the result. own: its parts. given: of
 * each place, as laid out; NULL for its own. Returns the parts of its host, which end in the
 * result.
 */
std::vector<Part> combine(const Layout &layout, const std::vector<Part> &own,
			  const std::vector<const char *> &given, char *result,
			  bool accumulate_f32);
/* The leader, once they are done: averages, which hosts have as sums. */
void conclude(const Layout &layout, const std::vector<Part> &own, char *result,
	      bool accumulate_f32);

/* Takes what this rank gets. Returns how many bytes. */
size_t take(const Layout &layout, const std::vector<Part> &parts, const char *result,
	    bool accumulate_f32);

} // namespace fanin_torch

#endif
