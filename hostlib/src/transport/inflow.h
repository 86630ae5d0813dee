/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Kernel counters of IPv4 packets that came to this thread's network namespace: evidence of why
 * packets don't reach a socket. No rights are needed.
 */
#ifndef FANIN_HOSTLIB_INFLOW_H
#define FANIN_HOSTLIB_INFLOW_H

#include <stdint.h>

struct fanin_inflow {
	uint64_t multicasts; /* for groups that some socket here is in, before the firewall's INPUT
			      */
	uint64_t sources_refused; /* refused by rp_filter */
};

/* Reads the counters; those that the kernel does not have are 0. */
void fanin_inflow_read(struct fanin_inflow *inflow);

#endif
