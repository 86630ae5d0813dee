/* SPDX-License-Identifier: BSD-3-Clause */
/* What the handler `broadcast` and its hosts share: the positions of the job's parameters. */
#ifndef FANIN_PROTOCOLS_BROADCAST_BROADCAST_H
#define FANIN_PROTOCOLS_BROADCAST_BROADCAST_H

enum fanin_broadcast_parameter {
	/* number of an allgather's roots that send at once; 0: chosen by the library */
	FANIN_BROADCAST_CHAINS,
};

#endif
