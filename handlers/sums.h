/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The common part of handlers whose sums carry the set of the ranks in them, so that no rank is
 * counted twice ("Sets" in the README.md of protocols/push, pa_atp and canary).
 */
#ifndef FANIN_HANDLERS_SUMS_H
#define FANIN_HANDLERS_SUMS_H

#include "handlers/handler.h"

/*
 * Returns the kernel that combines a packet's elements with others of its block. For a copy, which
 * has one rank's data, the kernel changes nothing.
 *
 * Returns NULL, with *reason set, if the job can't combine them: there is no such kernel, the sum
 * needs a longer type, the block has an owner, or the payload is too long. Thread-safe.
 */
fanin_kernel_fn fanin_sums_kernel(const struct fanin_job_params *job,
				  const struct fanin_packet *packet, enum fanin_reason *reason);

#endif
