/* SPDX-License-Identifier: BSD-3-Clause */
/* See sums.h. */
#include "handlers/sums.h"

/*
 * Kernel of operators that copy: only one contribution of a block has data. If a host sent a second
 * one, the first would stay unchanged.
 */
static void
keep_first(void *acc, const void *in, size_t count)
{
	(void)acc;
	(void)in;
	(void)count;
}

fanin_kernel_fn
fanin_sums_kernel(const struct fanin_job_params *job, const struct fanin_packet *packet,
		  enum fanin_reason *reason)
{
	const struct fanin_hdr *hdr = &packet->headers->fanin;
	fanin_kernel_fn add = keep_first;

	/* An EMPTY contribution counts with the length of its elements, which other ranks send. */
	if (hdr->count * fanin_dtype_size(hdr->dtype) > job->payload_bytes) {
		*reason = FANIN_REASON_PAYLOAD;
		return NULL;
	}
	if (!fanin_op_is_copy(hdr->op))
		add = fanin_kernel(job->isa, hdr->dtype, hdr->op);
	/*
	 * Jobs that accumulate in a longer type are refused when they are made. Results of these
	 * handlers go to all ranks, so blocks have no owner.
	 */
	if (add == NULL || (job->wide && fanin_operation_widens(hdr->dtype, hdr->op)) ||
	    fanin_root_is_owner(hdr->root)) {
		*reason = FANIN_REASON_OPERATION;
		return NULL;
	}
	return add;
}
