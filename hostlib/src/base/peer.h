/* SPDX-License-Identifier: BSD-3-Clause */
/* The addresses of another rank of a job, as told by the network manager. */
#ifndef FANIN_HOSTLIB_PEER_H
#define FANIN_HOSTLIB_PEER_H

#include <stdint.h>

struct fanin_peer {
	uint32_t ip_be;        /* of the rank's host, on the link that the job uses */
	uint32_t switch_ip_be; /* of the switch that the host is attached to */
	/* The same for another link that the job uses as well; 0: there is none. */
	uint32_t second_ip_be;
	uint32_t second_switch_ip_be;
};

#endif
