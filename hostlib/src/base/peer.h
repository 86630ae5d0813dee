/* SPDX-License-Identifier: BSD-3-Clause */
/* Where another rank of a job is, as told by the network manager. */
#ifndef FANIN_HOSTLIB_PEER_H
#define FANIN_HOSTLIB_PEER_H

#include <stdint.h>

struct fanin_peer {
	uint32_t ip_be;        /* of the rank's host, on the link that the job uses */
	uint32_t second_ip_be; /* if it has a second link; 0: it has none, or it is not known */
	uint32_t switch_ip_be; /* of the switch that the host is attached to */
};

#endif
