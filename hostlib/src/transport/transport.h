/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How the engine sends and receives whole Ethernet frames. A transport is one table of functions;
 * frames are built and read in the transport's own memory. One thread at a time; none of the
 * functions blocks.
 */
#ifndef FANIN_HOSTLIB_TRANSPORT_H
#define FANIN_HOSTLIB_TRANSPORT_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "hostlib/src/base/error.h"
#include "wire/wire.h"

#define FANIN_TRANSPORT_MAX_FDS 16

struct fanin_transport;

/* A received frame, in the transport's memory until it is released. */
struct fanin_frame {
	void *data;
	uint32_t len;      /* bytes */
	bool headers_only; /* only its struct fanin_headers is at data; rx_copy gets the rest */
	uint32_t queue;    /* transport's */
	uint64_t handle;   /* transport's */
};

struct fanin_transport_ops {
	const char *name;
	bool shares_memory; /* with the switch: frames arrive without the kernel running */

	/*
	 * Returns a buffer for a frame of len bytes, or NULL if there is no room now. Reserving
	 * twice gives the same one.
	 */
	void *(*tx_reserve)(struct fanin_transport *transport, uint32_t len);

	/* The reserved frame is complete; it leaves at the next flush. */
	void (*tx_commit)(struct fanin_transport *transport, uint32_t len);

	/*
	 * Replaces these two where the kernel copies sent data in any case: sends a frame from
	 * where its parts are. Returns false if there is no room now. A frame that the link refuses
	 * is lost, and the next flush says why. NULL: frames are built in the transport's memory.
	 */
	bool (*tx_gather)(struct fanin_transport *transport, const struct fanin_headers *headers,
			  const void *payload, uint32_t payload_len);

	/*
	 * Hands committed frames to the kernel. Returns 0, or -errno if the link refuses them; they
	 * are lost then.
	 */
	int (*tx_flush)(struct fanin_transport *transport);

	/*
	 * Returns about how many frames of the job's length have been sent and wait to leave this host. NULL: none wait.
	 */
	uint32_t (*tx_waiting)(struct fanin_transport *transport);

	/*
	 * Receives at most max frames; returns their number. Each must be released before the next
	 * call.
	 */
	unsigned int (*rx_burst)(struct fanin_transport *transport, struct fanin_frame *frames,
				 unsigned int max);
	void (*rx_release)(struct fanin_transport *transport, const struct fanin_frame *frames,
			   unsigned int n);

	/*
	 * Copies len bytes from offset on of a frame that has headers_only; once for each frame.
	 * Returns false if that fails: the frame is lost. NULL if there are no such frames.
	 */
	bool (*rx_copy)(struct fanin_transport *transport, const struct fanin_frame *frame,
			uint32_t offset, void *to, uint32_t len);

	/*
	 * Fills in what poll() has to wait for; returns how many of the FANIN_TRANSPORT_MAX_FDS
	 * entries are used.
	 */
	unsigned int (*poll_fds)(struct fanin_transport *transport, struct pollfd *fds);

	/*
	 * Returns how many frames the kernel dropped since the transport was opened, for lack of
	 * room to receive them.
	 */
	uint64_t (*ring_drops)(struct fanin_transport *transport);

	/*
	 * Why nothing is received any more, for an error that is about to be told: it may call the system. NULL, or returns NULL: nothing is
	 * known.
	 */
	const char *(*rx_trouble)(struct fanin_transport *transport);

	void (*close)(struct fanin_transport *transport);
};

/* First member of each transport's own struct. */
struct fanin_transport {
	const struct fanin_transport_ops *ops;
	char reason[FANIN_TEXT_LEN]; /* why this transport, for the report */
};

/* Sends a frame, at the next flush at the latest. Returns false if there is no room now. */
static inline bool
fanin_transport_send(struct fanin_transport *transport, const struct fanin_headers *headers,
		     const void *payload, uint32_t payload_len)
{
	uint8_t *frame;

	if (transport->ops->tx_gather != NULL)
		return transport->ops->tx_gather(transport, headers, payload, payload_len);
	frame = transport->ops->tx_reserve(transport, FANIN_PAYLOAD_OFFSET + payload_len);
	if (frame == NULL)
		return false;
	memcpy(frame, headers, sizeof(*headers));
	if (payload_len != 0)
		memcpy(frame + FANIN_PAYLOAD_OFFSET, payload, payload_len);
	transport->ops->tx_commit(transport, FANIN_PAYLOAD_OFFSET + payload_len);
	return true;
}

/* Copies len bytes of a received frame from offset on; once for each frame. Returns false if the frame is lost. */
static inline bool
fanin_frame_copy(struct fanin_transport *transport, const struct fanin_frame *frame,
		 uint32_t offset, void *to, uint32_t len)
{
	if (frame->headers_only)
		return transport->ops->rx_copy(transport, frame, offset, to, len);
	memcpy(to, (const uint8_t *)frame->data + offset, len);
	return true;
}

/* Configuration of a transport. Constant while it is being opened. */
struct fanin_transport_config {
	const char *interface;
	int ifindex;
	const uint8_t *local_mac; /* 6 bytes */
	unsigned int rx_queues;   /* of the interface */
	uint32_t local_ip_be;
	uint32_t mtu;
	uint32_t job;
	uint16_t udp_port;  /* host order */
	uint16_t window;    /* most blocks in flight */
	uint32_t frame_len; /* longest frame, bytes */
	const struct fanin_log *log;
};

/*
 * Opens the transport of a name, or with "auto" the first one that works.
 *
 * transport: set on success only; close with its ops. error: on failure the reasons of every transport tried.
 * Returns FANIN_OK, FANIN_ERR_TRANSPORT, FANIN_ERR_PERMISSION, FANIN_ERR_NO_MEMORY or FANIN_ERR_INVALID.
 */
int fanin_transport_open(const struct fanin_transport_config *config, const char *name,
			 struct fanin_transport **transport, struct fanin_error *error);

/*
 * Two transports of different interfaces as one: frames leave by the interface whose MAC address they have as source, and come in by both. What one link refuses is
 * lost as on any link; a flush fails if both do.
 *
 * parts: are the bundle's from now on, also on failure. second_mac: of the second one's interface. bundle: set on success only. Returns FANIN_OK or FANIN_ERR_NO_MEMORY.
 */
int fanin_bundle_open(struct fanin_transport *const parts[2], const uint8_t second_mac[6],
		      struct fanin_transport **bundle, struct fanin_error *error);

/* True for "auto" and the transports' names. */
bool fanin_transport_known(const char *name);

/*
 * The transports. Return FANIN_OK with the transport's reason filled in, or a negative status with what was found in
 * `error`.
 */
int fanin_af_xdp_open(const struct fanin_transport_config *config,
		      struct fanin_transport **transport, struct fanin_error *error);
int fanin_af_packet_open(const struct fanin_transport_config *config,
			 struct fanin_transport **transport, struct fanin_error *error);

#endif
