/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Control packets as frames of a transport that has no kernel interface beside it. See channel.h.
 */
#include "channel.h"

#include <errno.h>
#include <poll.h>

static int
frames_send(struct fanin_channel *channel, struct fanin_control *control, size_t body_len)
{
	const struct fanin_transport_ops *ops = channel->transport->ops;

	fanin_wire_encode_l4(&control->headers, &channel->flow, (uint32_t)body_len);
	fanin_transport_send(channel->transport, &control->headers, &control->body,
			     (uint32_t)body_len);
	return -ops->tx_flush(channel->transport);
}

static size_t
frames_receive(struct fanin_channel *channel, struct fanin_control *control, int *errnum)
{
	const struct fanin_transport_ops *ops = channel->transport->ops;
	struct fanin_frame frame;
	size_t len = 0;

	(void)errnum; /* the transport reports errors when sending */
	while (len == 0 && ops->rx_burst(channel->transport, &frame, 1) != 0) {
		/* Longer frames are not control packets but results of a run that has ended. */
		if (frame.len >= sizeof(control->headers) && frame.len <= sizeof(*control) &&
		    fanin_frame_copy(channel->transport, &frame, 0, control, frame.len) &&
		    fanin_wire_comes_from(&control->headers, channel->flow.dst_mac,
					  channel->flow.dst_ip_be))
			len = frame.len;
		ops->rx_release(channel->transport, &frame, 1);
	}
	return len;
}

static void
frames_wait(struct fanin_channel *channel, int timeout_ms)
{
	struct pollfd fds[FANIN_TRANSPORT_MAX_FDS];
	unsigned int n = channel->transport->ops->poll_fds(channel->transport, fds);

	poll(fds, n, timeout_ms);
}

static void
frames_close(struct fanin_channel *channel)
{
	channel->ops = NULL;
}

static const struct fanin_channel_ops frames_ops = {
	.send = frames_send,
	.receive = frames_receive,
	.wait = frames_wait,
	.close = frames_close,
};

void
fanin_channel_frames(struct fanin_channel *channel, struct fanin_transport *transport,
		     const struct fanin_flow *flow)
{
	*channel = (struct fanin_channel){
		.ops = &frames_ops,
		.data_fd = -1,
		.data_port = flow->dst_port,
		.join_port = flow->dst_port,
		.udp_port = flow->dst_port,
		.transport = transport,
		.flow = *flow,
	};
}
