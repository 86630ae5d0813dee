/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sums that carry the set of the ranks in them, so that nothing is counted twice ("Sets" in the
 * README.md of protocols/push, pa_atp and canary): the part that their handlers have in common.
 */
#ifndef FANIN_HANDLERS_SUMS_H
#define FANIN_HANDLERS_SUMS_H

#include "handlers/handler.h"

/*
 * The kernel that combines a packet's elements with others of its block. For a copy, which has one
 * rank's data, it is one that changes nothing.
 *
 * Returns NULL, with *reason set, if the job can't combine them: no such kernel, sums in a longer
 * type, or a payload that is too long. Thread-safe.
 */
fanin_kernel_fn fanin_sums_kernel(const struct fanin_job_params *job,
				  const struct fanin_packet *packet, enum fanin_reason *reason);

#endif
