/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A host's link for tests of the engine: a transport whose frames are plain memory. Where they go
 * to and come from is two functions of the test's.
 */
#ifndef FANIN_TESTS_UNIT_MEMORY_LINK_H
#define FANIN_TESTS_UNIT_MEMORY_LINK_H

#include "hostlib/src/transport/transport.h"

#define MEMORY_LINK_FRAME 4096
#define MEMORY_LINK_BURST 32

struct memory_link {
	struct fanin_transport transport; /* the first: a pointer to it is one to the link */

	/* Takes a frame that the engine sends; its memory is the link's again afterwards. */
	void (*put)(struct memory_link *link, const void *frame, uint32_t len);

	/*
	 * Copies the next frame for the engine to `frame` and returns its length, or 0 if there is
	 * none.
	 */
	size_t (*take)(struct memory_link *link, void *frame);

	bool full;   /* takes nothing */
	int refuses; /* takes frames and does not send them: why, an errno; 0: it sends */
	int refused; /* what the next flush tells */
	uint8_t building[MEMORY_LINK_FRAME] __attribute__((aligned(64)));
	uint8_t received[MEMORY_LINK_BURST][MEMORY_LINK_FRAME] __attribute__((aligned(64)));
};

void memory_link_init(struct memory_link *link,
		      void (*put)(struct memory_link *link, const void *frame, uint32_t len),
		      size_t (*take)(struct memory_link *link, void *frame));

#endif
