/* SPDX-License-Identifier: BSD-3-Clause */
/* What the handler `broadcast` and its hosts share: the parameters of its jobs, by their places. */
#ifndef FANIN_PROTOCOLS_BROADCAST_BROADCAST_H
#define FANIN_PROTOCOLS_BROADCAST_BROADCAST_H

enum fanin_broadcast_parameter {
	FANIN_BROADCAST_CHAINS, /* roots of an allgather that send at once; 0: as many as suit */
};

#endif
