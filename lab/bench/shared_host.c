/* SPDX-License-Identifier: BSD-3-Clause */
/* See shared_host.h. */
#include "lab/bench/shared_host.h"

static struct fanin_transport *
below(const struct fanin_transport *transport)
{
	return rig_host_transport(((const struct shared_host_lane *)transport)->shared->host);
}

static void *
lane_reserve(struct fanin_transport *transport, uint32_t len)
{
	const struct shared_host *shared = ((struct shared_host_lane *)transport)->shared;

	if (shared->queue_ns != 0 && rig_host_backlog_ns(shared->host) > shared->queue_ns)
		return NULL;
	return below(transport)->ops->tx_reserve(below(transport), len);
}

static void
lane_commit(struct fanin_transport *transport, uint32_t len)
{
	struct shared_host *shared = ((struct shared_host_lane *)transport)->shared;

	if (random_chance(&shared->random, shared->busy_share))
		rig_host_pause(shared->host, shared->busy_ns);
	below(transport)->ops->tx_commit(below(transport), len);
}

static int
lane_flush(struct fanin_transport *transport)
{
	return below(transport)->ops->tx_flush(below(transport));
}

static uint32_t
lane_waiting(struct fanin_transport *transport)
{
	return below(transport)->ops->tx_waiting(below(transport));
}

static unsigned int
lane_burst(struct fanin_transport *transport, struct fanin_frame *frames, unsigned int max)
{
	struct shared_host_lane *lane = (struct shared_host_lane *)transport;
	unsigned int n = 0;

	while (n < max && lane->n != 0) {
		frames[n++] = lane->frames[lane->first++];
		lane->n--;
	}
	return n;
}

static void
lane_release(struct fanin_transport *transport, const struct fanin_frame *frames, unsigned int n)
{
	below(transport)->ops->rx_release(below(transport), frames, n);
}

static uint64_t
lane_drops(struct fanin_transport *transport)
{
	return below(transport)->ops->ring_drops(below(transport));
}

static const struct fanin_transport_ops lane_ops = {
	.name = "shared host",
	.tx_reserve = lane_reserve,
	.tx_commit = lane_commit,
	.tx_flush = lane_flush,
	.tx_waiting = lane_waiting,
	.rx_burst = lane_burst,
	.rx_release = lane_release,
	.ring_drops = lane_drops,
};

void
shared_host_init(struct shared_host *shared, struct rig_host *host)
{
	*shared = (struct shared_host){ .host = host };
}

struct fanin_transport *
shared_host_add(struct shared_host *shared, uint32_t job)
{
	struct shared_host_lane *lane = &shared->lanes[shared->n_lanes++];

	*lane = (struct shared_host_lane){ .transport = { .ops = &lane_ops },
					   .shared = shared,
					   .job = job };
	return &lane->transport;
}

static void
dispatch(struct shared_host *shared, const struct fanin_frame *frame)
{
	const struct fanin_headers *headers = frame->data;
	struct fanin_transport *transport = rig_host_transport(shared->host);

	for (unsigned int i = 0; i < shared->n_lanes; i++) {
		struct shared_host_lane *lane = &shared->lanes[i];

		if (lane->job != headers->fanin.job || lane->first + lane->n == SHARED_HOST_BURST)
			continue;
		lane->frames[lane->first + lane->n++] = *frame;
		return;
	}
	transport->ops->rx_release(transport, frame, 1);
}

unsigned int
shared_host_receive(struct shared_host *shared)
{
	struct fanin_transport *transport = rig_host_transport(shared->host);
	struct fanin_frame frames[SHARED_HOST_BURST];
	const unsigned int n = transport->ops->rx_burst(transport, frames, SHARED_HOST_BURST);

	for (unsigned int i = 0; i < shared->n_lanes; i++) {
		if (shared->lanes[i].n == 0)
			shared->lanes[i].first = 0;
	}
	for (unsigned int i = 0; i < n; i++)
		dispatch(shared, &frames[i]);
	return n;
}

bool
shared_host_is_away(struct shared_host *shared, uint64_t now_ns, uint64_t *until_ns)
{
	const uint64_t every_ns = shared->away_every_ns;

	if (every_ns == 0)
		return false;
	if (now_ns >= shared->away_since_ns + shared->away_ns || shared->away_since_ns == 0)
		shared->away_since_ns = now_ns + (uint64_t)random_u32(&shared->random) * every_ns /
							 (UINT32_MAX / 2);
	*until_ns = shared->away_since_ns + shared->away_ns;
	return now_ns >= shared->away_since_ns;
}

bool
shared_host_has_frames(const struct fanin_transport *transport)
{
	return ((const struct shared_host_lane *)transport)->n != 0;
}
