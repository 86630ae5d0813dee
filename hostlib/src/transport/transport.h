/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The interface by which the engine sends and receives whole Ethernet frames. A transport is one
 * table of functions; frames are built and read in the transport's own memory. One thread at a
 * time; none of the functions blocks.
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
	uint32_t queue;    /* the transport's */
	uint64_t handle;   /* the transport's */
};

/* Numbers of super-frames, and of the packets in them. */
struct fanin_super_frames {
	uint64_t sent;
	uint64_t sent_packets;
	uint64_t received;
	uint64_t received_packets;
};

/* Calls, copies and super-frames of a transport since it was opened. */
struct fanin_transport_counts {
	struct fanin_super_frames super_frames;
	uint64_t send_calls;    /* system calls that send */
	uint64_t receive_calls; /* system calls that receive, or find nothing */
	uint64_t other_calls;   /* system calls that query, such as what waits to be sent */
	uint64_t copied_out;    /* bytes of payload that the library itself copied into packets */
	uint64_t copied_in;     /* the same, out of packets */
};

struct fanin_transport_ops {
	const char *name;
	bool shares_memory; /* with the switch: frames arrive without the kernel's work */
	bool has_port; /* its own sockets receive on the host's UDP port and in the job's group */

	/*
	 * Returns a buffer for a frame of len bytes, or NULL if there is no room now. Reserving
	 * twice returns the same one.
	 */
	void *(*tx_reserve)(struct fanin_transport *transport, uint32_t len);

	/* The reserved frame is complete; it leaves at the next flush. */
	void (*tx_commit)(struct fanin_transport *transport, uint32_t len);

	/*
	 * Replaces these two functions where the kernel copies sent data in any case. Sends a frame
	 * from the caller's headers and payload, at the next flush at the latest. The payload must
	 * not change until then; the headers may. Returns false if there is no room now. A frame
	 * that the link refuses is lost, and the next flush returns the reason. NULL: frames are
	 * built in the transport's memory.
	 */
	bool (*tx_gather)(struct fanin_transport *transport, const struct fanin_headers *headers,
			  const void *payload, uint32_t payload_len);

	/*
	 * The same, but the payload may change at once. NULL: as after tx_gather, or if there is no
	 * tx_gather.
	 */
	bool (*tx_copy)(struct fanin_transport *transport, const struct fanin_headers *headers,
			const void *payload, uint32_t payload_len);

	/*
	 * Hands committed frames to the kernel. Returns 0, or -errno if the link refuses them; they
	 * are lost then.
	 */
	int (*tx_flush)(struct fanin_transport *transport);

	/*
	 * Returns approximately how many frames of the job's length have been sent and wait to
	 * leave this host. NULL: none wait.
	 */
	uint32_t (*tx_waiting)(struct fanin_transport *transport);

	/*
	 * Tells the transport whether super-frames pass on the way to the switch. why: if they
	 * don't, what is known of the reason. NULL: none are sent.
	 */
	void (*path)(struct fanin_transport *transport, bool super_frames, const char *why);

	/*
	 * From now on packets leave one by one, as they replace lost ones, or no longer do.
	 * lost_twice: they may have been lost because they were in super-frames. NULL: packets
	 * always leave one by one.
	 */
	void (*tx_alone)(struct fanin_transport *transport, bool alone, bool lost_twice);

	/*
	 * Receives at most max frames; returns their number. Each must be released before the next
	 * call.
	 */
	unsigned int (*rx_burst)(struct fanin_transport *transport, struct fanin_frame *frames,
				 unsigned int max);
	void (*rx_release)(struct fanin_transport *transport, const struct fanin_frame *frames,
			   unsigned int n);

	/*
	 * Copies len bytes, from an offset on, of a frame that has headers_only; once for each
	 * frame. Returns false if this fails: the frame is lost. NULL if there are no such frames.
	 */
	bool (*rx_copy)(struct fanin_transport *transport, const struct fanin_frame *frame,
			uint32_t offset, void *to, uint32_t len);

	/*
	 * Returns how many frames of the job may wait to be received without loss. NULL: as many as
	 * a window has.
	 */
	uint32_t (*rx_room)(struct fanin_transport *transport);

	/*
	 * Fills in the descriptors and events for poll(); returns how many of the
	 * FANIN_TRANSPORT_MAX_FDS entries are used.
	 */
	unsigned int (*poll_fds)(struct fanin_transport *transport, struct pollfd *fds);

	/*
	 * Returns how many frames the kernel dropped since the transport was opened, for lack of
	 * room to receive them.
	 */
	uint64_t (*ring_drops)(struct fanin_transport *transport);

	/* Adds counts that are kept outside of the transport's own. NULL: there are none. */
	void (*counts)(struct fanin_transport *transport, struct fanin_transport_counts *sum);

	/*
	 * Returns why packets may not be received, for the text of an error; may make system calls.
	 * NULL, or returns NULL: nothing is known.
	 */
	const char *(*rx_trouble)(struct fanin_transport *transport);

	void (*close)(struct fanin_transport *transport);
};

/* First member of each transport's own struct. */
struct fanin_transport {
	const struct fanin_transport_ops *ops;
	struct fanin_transport_counts counts;
	char reason[FANIN_TEXT_LEN]; /* why this transport was chosen, for the report */
};

/*
 * Sends a frame, at the next flush at the latest. The payload must not change until then. Returns
 * false if there is no room now.
 */
static inline bool
fanin_transport_send_held(struct fanin_transport *transport, const struct fanin_headers *headers,
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
	transport->counts.copied_out += payload_len;
	transport->ops->tx_commit(transport, FANIN_PAYLOAD_OFFSET + payload_len);
	return true;
}

/* The same, but the payload may change at once. */
static inline bool
fanin_transport_send(struct fanin_transport *transport, const struct fanin_headers *headers,
		     const void *payload, uint32_t payload_len)
{
	if (transport->ops->tx_copy != NULL)
		return transport->ops->tx_copy(transport, headers, payload, payload_len);
	return fanin_transport_send_held(transport, headers, payload, payload_len);
}

static inline void
fanin_super_frames_add(struct fanin_super_frames *sum, const struct fanin_super_frames *more)
{
	sum->sent += more->sent;
	sum->sent_packets += more->sent_packets;
	sum->received += more->received;
	sum->received_packets += more->received_packets;
}

/* Adds all counts of a transport. */
static inline void
fanin_transport_counts_add(struct fanin_transport *transport, struct fanin_transport_counts *sum)
{
	const struct fanin_transport_counts *counts = &transport->counts;

	fanin_super_frames_add(&sum->super_frames, &counts->super_frames);
	sum->send_calls += counts->send_calls;
	sum->receive_calls += counts->receive_calls;
	sum->other_calls += counts->other_calls;
	sum->copied_out += counts->copied_out;
	sum->copied_in += counts->copied_in;
	if (transport->ops->counts != NULL)
		transport->ops->counts(transport, sum);
}

/* See tx_alone. */
static inline void
fanin_transport_alone(struct fanin_transport *transport, bool alone, bool lost_twice)
{
	if (transport->ops->tx_alone != NULL)
		transport->ops->tx_alone(transport, alone, lost_twice);
}

/*
 * Copies len bytes of a received frame, from an offset on; once for each frame. Returns false if
 * the frame is lost.
 */
static inline bool
fanin_frame_copy(struct fanin_transport *transport, const struct fanin_frame *frame,
		 uint32_t offset, void *to, uint32_t len)
{
	if (frame->headers_only)
		return transport->ops->rx_copy(transport, frame, offset, to, len);
	memcpy(to, (const uint8_t *)frame->data + offset, len);
	transport->counts.copied_in += len;
	return true;
}

/* Size of the receive buffer that a UDP socket requests by default, bytes. */
#define FANIN_UDP_RECEIVE_BUFFER (8u << 20)

/* Configuration of a transport. Constant while it is being opened. */
struct fanin_transport_config {
	const char *interface;
	int ifindex;
	const uint8_t *local_mac; /* 6 bytes */
	unsigned int rx_queues;   /* of the interface */
	uint32_t local_ip_be;
	uint32_t switch_ip_be;     /* or the first hop's, if data_fd is -1 */
	const uint8_t *switch_mac; /* of the switch, or the first hop; 6 bytes that exist, and may
				      change, while the transport is open */
	uint32_t group_be;         /* destination of results */
	uint32_t mtu;
	uint32_t job;
	uint16_t udp_port;  /* of switches and groups, host order */
	uint16_t data_port; /* port of answers to this host alone, data_fd's; 0: they come to
			       udp_port */
	int data_fd; /* UDP socket for packets to this host alone, connected to the switch; the
			transport's once it is open. -1: there is none */
	bool shares_interface;   /* with other jobs of this process */
	uint16_t window;         /* maximum of blocks in flight */
	uint32_t frame_len;      /* maximum of a frame, bytes */
	uint32_t receive_buffer; /* requested by each UDP socket, bytes */
	const struct fanin_log *log;
};

/*
 * Opens the transport of this name, or with "auto" the first one that works.
 *
 * transport: set on success only; close with its ops. error: on failure the reasons of every
 * transport tried. Returns FANIN_OK, FANIN_ERR_TRANSPORT, FANIN_ERR_PERMISSION, FANIN_ERR_NO_MEMORY
 * or FANIN_ERR_INVALID.
 */
int fanin_transport_open(const struct fanin_transport_config *config, const char *name,
			 struct fanin_transport **transport, struct fanin_error *error);

/*
 * Opens a transport over two others, of different interfaces: frames leave by the interface whose
 * MAC address is their source, and arrive by both. Frames that one link refuses are lost as on any
 * link; a flush fails if both links refuse frames.
 *
 * parts: the bundle's from now on, also on failure. second_mac: of the second one's interface.
 * bundle: set on success only. Returns FANIN_OK or FANIN_ERR_NO_MEMORY.
 */
int fanin_bundle_open(struct fanin_transport *const parts[2], const uint8_t second_mac[6],
		      struct fanin_transport **bundle, struct fanin_error *error);

/* True for "auto" and the transports' names. */
bool fanin_transport_known(const char *name);

/*
 * The transports. Return FANIN_OK with the transport's reason filled in, or a negative status with
 * what was found in `error`.
 */
int fanin_af_xdp_open(const struct fanin_transport_config *config,
		      struct fanin_transport **transport, struct fanin_error *error);
int fanin_af_packet_open(const struct fanin_transport_config *config,
			 struct fanin_transport **transport, struct fanin_error *error);
int fanin_udp_open(const struct fanin_transport_config *config, struct fanin_transport **transport,
		   struct fanin_error *error);

#endif
