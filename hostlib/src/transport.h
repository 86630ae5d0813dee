/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How the engine sends and receives whole Ethernet frames. A transport is one table of functions; frames are built and
 * read in the transport's own memory. One thread at a time, none of the functions blocks.
 */
#ifndef FANIN_HOSTLIB_TRANSPORT_H
#define FANIN_HOSTLIB_TRANSPORT_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"

#define FANIN_TRANSPORT_MAX_FDS 16

struct fanin_transport;

/* A received frame, in the transport's memory until it is released. */
struct fanin_frame {
	void *data;
	uint32_t len;    /* bytes */
	uint32_t queue;  /* transport's */
	uint64_t handle; /* transport's */
};

struct fanin_transport_ops {
	const char *name;

	/* A buffer for a frame of len bytes, or NULL if there is no room now. Reserving twice gives the same one. */
	void *(*tx_reserve)(struct fanin_transport *transport, uint32_t len);

	/* The reserved frame is complete; it leaves at the next flush. */
	void (*tx_commit)(struct fanin_transport *transport, uint32_t len);

	/* Hands committed frames to the kernel. Returns 0, or -errno if the link refuses them; they are then lost. */
	int (*tx_flush)(struct fanin_transport *transport);

	/* At most max frames; returns their number. Every one of them must be released before the next call. */
	unsigned int (*rx_burst)(struct fanin_transport *transport, struct fanin_frame *frames,
				 unsigned int max);
	void (*rx_release)(struct fanin_transport *transport, const struct fanin_frame *frames,
			   unsigned int n);

	/* Fills in what poll() has to wait for; returns how many of the FANIN_TRANSPORT_MAX_FDS places are used. */
	unsigned int (*poll_fds)(struct fanin_transport *transport, struct pollfd *fds);

	/* Frames that the kernel dropped since the transport was opened, because there was no room to receive them. */
	uint64_t (*ring_drops)(struct fanin_transport *transport);

	void (*close)(struct fanin_transport *transport);
};

/* First member of each transport's own struct. */
struct fanin_transport {
	const struct fanin_transport_ops *ops;
	char reason[FANIN_TEXT_LEN]; /* why this transport, for the report */
};

/* What a transport has to know. Constant while it is being opened. */
struct fanin_transport_config {
	const char *interface;
	int ifindex;
	unsigned int rx_queues; /* of the interface */
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
