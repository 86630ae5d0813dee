/* SPDX-License-Identifier: BSD-3-Clause */
/* See loop.h. */
#include "loop.h"

#include "hostlib/src/base/absence.h"

#define BURST 64

void
fanin_loop_init(struct fanin_loop *loop, const struct fanin_loop_ops *ops,
		struct fanin_transport *transport, const struct fanin_clock *clock,
		uint64_t timeout_ns, uint32_t max_unchecked)
{
	*loop = (struct fanin_loop){
		.ops = ops,
		.transport = transport,
		.clock = *clock,
		.timeout_ns = timeout_ns,
		.max_unchecked = max_unchecked,
	};
	fanin_request_list_init(&loop->requests);
	loop->last_poll_ns = fanin_loop_clock_ns(loop);
}

/*
 * An absence of the caller counts neither as the peers' silence (base/absence.h) nor as round-trip
 * time.
 */
static void
absence_forgive(struct fanin_loop *loop, unsigned int n)
{
	const uint64_t by_ns = fanin_absence_forgiven_ns(loop->now_ns - loop->last_poll_ns,
							 loop->timeout_ns);

	loop->last_poll_ns = loop->now_ns;
	if (by_ns == 0 || loop->requests.first == NULL)
		return;
	loop->resumed_ns = loop->now_ns;
	loop->ops->away(loop, by_ns, n != 0);
}

int
fanin_loop_poll(struct fanin_loop *loop)
{
	const struct fanin_transport_ops *transport_ops = loop->transport->ops;
	struct fanin_frame frames[BURST];
	unsigned int n;
	int tx_errnum;

	if (loop->status != FANIN_OK)
		return loop->status;

	loop->timers_ns = loop->last_poll_ns;
	n = transport_ops->rx_burst(loop->transport, frames, BURST);
	loop->now_ns = fanin_loop_clock_ns(loop);
	absence_forgive(loop, n);
	for (unsigned int i = 0; i < n; i++)
		loop->ops->receive(loop, &frames[i]);
	if (n != 0)
		transport_ops->rx_release(loop->transport, frames, n);
	if (loop->status != FANIN_OK) {
		/* Frames that this burst has added before the failure leave, too. */
		(void)transport_ops->tx_flush(loop->transport);
		return loop->status;
	}

	loop->ops->send(loop);
	/*
	 * The ring may still hold results, above all when this process has just got its core back:
	 * timers are checked only once the ring is empty or has been gone through. The process may
	 * have lost its core after it looked into the ring, so the time before that look counts.
	 */
	loop->unchecked_frames += n;
	if (n == 0 || loop->unchecked_frames >= loop->max_unchecked) {
		loop->unchecked_frames = 0;
		loop->ops->timers(loop);
	}
	/* tx_errnum is cleared by progress only: a flush with nothing to send succeeds. */
	tx_errnum = -transport_ops->tx_flush(loop->transport);
	if (tx_errnum != 0)
		loop->tx_errnum = tx_errnum;
	return loop->status != FANIN_OK ? loop->status : (int)n;
}

void
fanin_loop_fail(struct fanin_loop *loop, int status)
{
	loop->status = status;
	fanin_request_list_fail(&loop->requests, status);
}
