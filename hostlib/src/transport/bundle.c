/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two transports as one, for hosts with two links. See transport.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "transport.h"

/* Bit in `queue` of the second part's frames. */
#define OF_SECOND (UINT32_C(1) << 31)

struct bundle {
	struct fanin_transport transport;
	struct fanin_transport *parts[2];
	uint8_t second_mac[6];
};

static bool
bundle_tx_gather(struct fanin_transport *transport, const struct fanin_headers *headers,
		 const void *payload, uint32_t payload_len)
{
	const struct bundle *bundle = (const struct bundle *)transport;
	const bool second = memcmp(headers->eth.src, bundle->second_mac,
				   sizeof(headers->eth.src)) == 0;

	return fanin_transport_send_held(bundle->parts[second], headers, payload, payload_len);
}

static bool
bundle_tx_copy(struct fanin_transport *transport, const struct fanin_headers *headers,
	       const void *payload, uint32_t payload_len)
{
	const struct bundle *bundle = (const struct bundle *)transport;
	const bool second = memcmp(headers->eth.src, bundle->second_mac,
				   sizeof(headers->eth.src)) == 0;

	return fanin_transport_send(bundle->parts[second], headers, payload, payload_len);
}

static void
bundle_tx_alone(struct fanin_transport *transport, bool alone, bool lost_twice)
{
	const struct bundle *bundle = (const struct bundle *)transport;

	fanin_transport_alone(bundle->parts[0], alone, lost_twice);
	fanin_transport_alone(bundle->parts[1], alone, lost_twice);
}

static int
bundle_tx_flush(struct fanin_transport *transport)
{
	struct bundle *bundle = (struct bundle *)transport;
	const int first = bundle->parts[0]->ops->tx_flush(bundle->parts[0]);
	const int second = bundle->parts[1]->ops->tx_flush(bundle->parts[1]);

	return second == 0 ? 0 : first;
}

static uint32_t
part_waiting(struct fanin_transport *part)
{
	return part->ops->tx_waiting != NULL ? part->ops->tx_waiting(part) : 0;
}

/* The longer queue of the two counts, as the next packet may be for either link. */
static uint32_t
bundle_tx_waiting(struct fanin_transport *transport)
{
	const struct bundle *bundle = (const struct bundle *)transport;
	const uint32_t first = part_waiting(bundle->parts[0]);
	const uint32_t second = part_waiting(bundle->parts[1]);

	return first > second ? first : second;
}

static unsigned int
bundle_rx_burst(struct fanin_transport *transport, struct fanin_frame *frames, unsigned int max)
{
	struct bundle *bundle = (struct bundle *)transport;
	/* The burst is shared, so that neither link keeps the other one waiting. */
	const unsigned int n_first = bundle->parts[0]->ops->rx_burst(bundle->parts[0], frames,
								     (max + 1) / 2);
	const unsigned int n_second =
		bundle->parts[1]->ops->rx_burst(bundle->parts[1], frames + n_first, max - n_first);

	for (unsigned int i = 0; i < n_second; i++)
		frames[n_first + i].queue |= OF_SECOND;
	return n_first + n_second;
}

static void
bundle_rx_release(struct fanin_transport *transport, const struct fanin_frame *frames,
		  unsigned int n)
{
	struct bundle *bundle = (struct bundle *)transport;
	unsigned int done = 0;

	while (done < n) {
		const bool second = (frames[done].queue & OF_SECOND) != 0;
		struct fanin_frame own[32];
		unsigned int count = 0;

		while (done < n && count < 32 &&
		       ((frames[done].queue & OF_SECOND) != 0) == second) {
			own[count] = frames[done++];
			own[count++].queue &= ~OF_SECOND;
		}
		bundle->parts[second]->ops->rx_release(bundle->parts[second], own, count);
	}
}

static bool
bundle_rx_copy(struct fanin_transport *transport, const struct fanin_frame *frame, uint32_t offset,
	       void *to, uint32_t len)
{
	struct bundle *bundle = (struct bundle *)transport;
	struct fanin_transport *part = bundle->parts[(frame->queue & OF_SECOND) != 0];
	struct fanin_frame own = *frame;

	own.queue &= ~OF_SECOND;
	return part->ops->rx_copy(part, &own, offset, to, len);
}

static unsigned int
bundle_poll_fds(struct fanin_transport *transport, struct pollfd *fds)
{
	struct bundle *bundle = (struct bundle *)transport;
	struct pollfd second[FANIN_TRANSPORT_MAX_FDS];
	unsigned int n = bundle->parts[0]->ops->poll_fds(bundle->parts[0], fds);
	const unsigned int n_second = bundle->parts[1]->ops->poll_fds(bundle->parts[1], second);

	for (unsigned int i = 0; i < n_second && n < FANIN_TRANSPORT_MAX_FDS; i++)
		fds[n++] = second[i];
	return n;
}

static uint64_t
bundle_ring_drops(struct fanin_transport *transport)
{
	struct bundle *bundle = (struct bundle *)transport;

	return bundle->parts[0]->ops->ring_drops(bundle->parts[0]) +
	       bundle->parts[1]->ops->ring_drops(bundle->parts[1]);
}

static void
bundle_counts(struct fanin_transport *transport, struct fanin_transport_counts *sum)
{
	const struct bundle *bundle = (const struct bundle *)transport;

	fanin_transport_counts_add(bundle->parts[0], sum);
	fanin_transport_counts_add(bundle->parts[1], sum);
}

static const char *
part_trouble(struct fanin_transport *part)
{
	return part->ops->rx_trouble != NULL ? part->ops->rx_trouble(part) : NULL;
}

static const char *
bundle_rx_trouble(struct fanin_transport *transport)
{
	const struct bundle *bundle = (const struct bundle *)transport;
	const char *first = part_trouble(bundle->parts[0]);

	return first != NULL ? first : part_trouble(bundle->parts[1]);
}

static void
bundle_close(struct fanin_transport *transport)
{
	struct bundle *bundle = (struct bundle *)transport;

	for (unsigned int i = 0; i < 2; i++)
		bundle->parts[i]->ops->close(bundle->parts[i]);
	/* The bundle owns its table of functions: see fanin_bundle_open. */
	free((void *)(uintptr_t)bundle->transport.ops);
	free(bundle);
}

int
fanin_bundle_open(struct fanin_transport *const parts[2], const uint8_t second_mac[6],
		  struct fanin_transport **bundle, struct fanin_error *error)
{
	struct bundle *made = calloc(1, sizeof(*made));
	/* The table is a copy with the first part's name, for reports. */
	struct fanin_transport_ops *ops = calloc(1, sizeof(*ops));

	if (made == NULL || ops == NULL) {
		free(made);
		free(ops);
		parts[0]->ops->close(parts[0]);
		parts[1]->ops->close(parts[1]);
		return fanin_error_set(error, FANIN_ERR_NO_MEMORY, "out of memory");
	}
	*ops = (struct fanin_transport_ops){
		.name = parts[0]->ops->name,
		.tx_gather = bundle_tx_gather,
		.tx_copy = bundle_tx_copy,
		.tx_alone = bundle_tx_alone,
		.tx_flush = bundle_tx_flush,
		.tx_waiting = bundle_tx_waiting,
		.rx_burst = bundle_rx_burst,
		.rx_release = bundle_rx_release,
		.rx_copy = bundle_rx_copy,
		.poll_fds = bundle_poll_fds,
		.ring_drops = bundle_ring_drops,
		.counts = bundle_counts,
		.rx_trouble = bundle_rx_trouble,
		.close = bundle_close,
	};
	made->transport.ops = ops;
	memcpy(made->transport.reason, parts[0]->reason, sizeof(made->transport.reason));
	made->parts[0] = parts[0];
	made->parts[1] = parts[1];
	memcpy(made->second_mac, second_mac, sizeof(made->second_mac));
	*bundle = &made->transport;
	return FANIN_OK;
}
