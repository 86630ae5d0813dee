/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One host at the gate of the memif ports: its connection, and the connection to the driver on its
 * behalf. The driver gives a port to the first host that names it. So the driver hears of a host
 * only when the host has sent all its messages, and the first host with a complete handshake gets
 * the port. Internal to the gate. Main thread.
 */
#ifndef FANIN_SWITCH_MEMIF_SESSION_H
#define FANIN_SWITCH_MEMIF_SESSION_H

#include <stdbool.h>

#include "pipeline/pipeline.h"
#include "switch/config/config.h"
#include "switch/memif_check.h"

#define MEMIF_NO_PORT UINT16_MAX

/* INIT, regions, two rings, CONNECT */
#define MEMIF_MAX_WORDS (MEMIF_CHECK_REGIONS + 4)
/*
 * Maximum number of descriptors that hosts in their handshakes may have sent together. Otherwise
 * hosts could use up all descriptors of the process.
 */
#define MEMIF_MAX_HELD 256u

enum memif_state {
	MEMIF_UNUSED,
	MEMIF_TALKING, /* messages go both ways */
	MEMIF_UP,      /* frames go both ways */
	MEMIF_CLOSING, /* the host is gone; the driver has been notified and has not disconnected
			  yet */
};

struct memif_session {
	enum memif_state state;
	int host_fd;
	int driver_fd;
	uint16_t port; /* index, once the host has named it */
	bool claimed;  /* the host has sent all messages and owns the port */
	char name[32]; /* the host's own name */
	struct memif_layout layout;
	uint64_t since_ms; /* when the host connected */
	unsigned int n_words;
	/* A message of the host, kept for the driver, which gets all of them at once. */
	struct memif_word {
		struct memif_message message;
		int fd; /* the session's; -1: none */
	} words[MEMIF_MAX_WORDS];
};

/* The switch and all sessions, which a session depends on. */
struct memif_world {
	const struct config *config;
	struct pipeline *pipeline;
	struct memif_session *sessions;
	unsigned int n_sessions;
};

/* Handles a message or the end of the host's connection. */
void memif_session_host(const struct memif_world *world, struct memif_session *session);

/* Handles a message or the end of the driver's connection. */
void memif_session_driver(const struct memif_world *world, struct memif_session *session);

/* Tells the host why it can't be served, and disconnects it. reason: for the host and the log. */
void memif_session_refuse(const struct memif_world *world, struct memif_session *session,
			  const char *reason);

/* Disconnects the host. The session is unused once the driver has disconnected, too. */
void memif_session_end(const struct memif_world *world, struct memif_session *session);

#endif
