/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Counters of the kernel of IPv4 packets that came to this thread's network namespace: evidence of
 * why some don't come to a socket. No rights are needed.
 */
#ifndef FANIN_HOSTLIB_INFLOW_H
#define FANIN_HOSTLIB_INFLOW_H

#include <stdint.h>

struct fanin_inflow {
	uint64_t multicasts; /* for groups that somebody here is in, before the firewall's INPUT */
	uint64_t sources_refused; /* by rp_filter */
};

/* Counters that the kernel does not have are 0. */
void fanin_inflow_read(struct fanin_inflow *inflow);

#endif
