/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The host protocol of jobs with a parameter server (PA-ATP, section III;
 * protocols/pa_atp/README.md): the block engine with its own rules. Blocks are sent in order,
 * within two windows: CWD bounds the blocks that the switch has not acknowledged (GACK); AWD bounds
 * how far this rank runs ahead of results (AACK). Gaps in the results and timers detect losses; the
 * server then asks for the data that it lacks.
 */
#ifndef FANIN_PROTOCOLS_PA_ATP_HOST_PA_ATP_H
#define FANIN_PROTOCOLS_PA_ATP_HOST_PA_ATP_H

#include "protocols/pa_atp/host/dual.h"
#include "hostlib/src/protocol/protocol.h"

extern struct fanin_protocol fanin_protocol_pa_atp;

struct fanin_pa_atp_stats {
	uint64_t gacks;
	uint64_t aacks;         /* first AACKs of blocks */
	uint64_t marks;         /* GACKs with CE, or AACKs with CE if AACKs clock CWD */
	uint64_t aecns;         /* AACKs with AECN */
	uint64_t asks_answered; /* gradients that were sent to the server because it asked */
};

/* endpoint: of this protocol, as in all functions here. */
const struct fanin_dual *fanin_pa_atp_dual(struct fanin_endpoint *endpoint);
const struct fanin_pa_atp_stats *fanin_pa_atp_stats(struct fanin_endpoint *endpoint);

/* Returns the number of blocks in flight, as CWD counts them. */
uint32_t fanin_pa_atp_in_flight(struct fanin_endpoint *endpoint);

#endif
