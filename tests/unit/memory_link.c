/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/unit/memory_link.h"

#include <check.h>

static void *
link_reserve(struct fanin_transport *transport, uint32_t len)
{
	struct memory_link *link = (struct memory_link *)transport;

	ck_assert_uint_le(len, sizeof(link->building));
	return link->full ? NULL : link->building;
}

static void
link_commit(struct fanin_transport *transport, uint32_t len)
{
	struct memory_link *link = (struct memory_link *)transport;

	if (link->refuses != 0)
		link->refused = link->refuses;
	else
		link->put(link, link->building, len);
}

static int
link_flush(struct fanin_transport *transport)
{
	struct memory_link *link = (struct memory_link *)transport;
	int errnum = link->refused;

	link->refused = 0;
	return -errnum;
}

static unsigned int
link_burst(struct fanin_transport *transport, struct fanin_frame *frames, unsigned int max)
{
	struct memory_link *link = (struct memory_link *)transport;
	unsigned int n;

	for (n = 0; n < max && n < MEMORY_LINK_BURST; n++) {
		size_t len = link->take(link, link->received[n]);

		if (len == 0)
			break;
		frames[n] = (struct fanin_frame){ .data = link->received[n], .len = (uint32_t)len };
	}
	return n;
}

static void
link_release(struct fanin_transport *transport, const struct fanin_frame *frames, unsigned int n)
{
	(void)transport;
	(void)frames;
	(void)n;
}

static const struct fanin_transport_ops link_ops = {
	.name = "memory",
	.tx_reserve = link_reserve,
	.tx_commit = link_commit,
	.tx_flush = link_flush,
	.rx_burst = link_burst,
	.rx_release = link_release,
};

void
memory_link_init(struct memory_link *link,
		 void (*put)(struct memory_link *link, const void *frame, uint32_t len),
		 size_t (*take)(struct memory_link *link, void *frame))
{
	link->transport.ops = &link_ops;
	link->put = put;
	link->take = take;
}
