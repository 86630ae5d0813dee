/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A host's link for tests of the engine: a transport whose frames are plain memory. Two functions
 * of the test send and receive them.
 */
#ifndef FANIN_TESTS_UNIT_MEMORY_LINK_H
#define FANIN_TESTS_UNIT_MEMORY_LINK_H

#include "hostlib/src/transport/transport.h"

#define MEMORY_LINK_FRAME 4096
#define MEMORY_LINK_BURST 32

struct memory_link {
	struct fanin_transport transport; /* first: a pointer to it is one to the link */

	/* Takes a frame that the engine sends; the link reuses its memory afterwards. */
	void (*put)(struct memory_link *link, const void *frame, uint32_t len);

	/*
	 * Copies the next frame for the engine to `frame` and returns its length, or 0 if there is
	 * none.
	 */
	size_t (*take)(struct memory_link *link, void *frame);

	bool full;   /* has no room */
	int refuses; /* errno for frames that it takes and does not send; 0: it sends them */
	int refused; /* errno that the next flush returns */
	uint8_t building[MEMORY_LINK_FRAME] __attribute__((aligned(64)));
	uint8_t received[MEMORY_LINK_BURST][MEMORY_LINK_FRAME] __attribute__((aligned(64)));
};

void memory_link_init(struct memory_link *link,
		      void (*put)(struct memory_link *link, const void *frame, uint32_t len),
		      size_t (*take)(struct memory_link *link, void *frame));

#endif
