/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Checks the messages of a host on a memif connection. DPDK's driver maps and follows whatever a
 * host sends, so each message is checked against the earlier ones and against the memory that comes
 * with it. No state of its own, any thread.
 */
#ifndef FANIN_SWITCH_MEMIF_CHECK_H
#define FANIN_SWITCH_MEMIF_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/memif.h"

#define MEMIF_CHECK_REGIONS 16
#define MEMIF_CHECK_REASON_LEN sizeof(((struct memif_disconnect *)NULL)->reason)

/* The content of a host's messages so far; zeros at the beginning. */
struct memif_layout {
	bool named; /* INIT has come and named the interface */
	bool to_server;
	bool to_client;
	uint16_t n_regions;
	uint64_t region_bytes[MEMIF_CHECK_REGIONS];
};

/*
 * Checks the next message of a host that is not connected yet. fd: the descriptor that came with
 * the message, or -1; stays the caller's. layout: updated with the message, on success only.
 * reason: MEMIF_CHECK_REASON_LEN bytes, filled on failure. Returns 0 or -EPROTO.
 */
int memif_check(struct memif_layout *layout, const struct memif_message *message, int fd,
		char *reason);

#endif
