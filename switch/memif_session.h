/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One host at the gate of the memif ports: its connection, and the one to the driver that stands
 * for it. The driver gives a port to the first one who names it, so it hears of a host that has
 * said all only: a port is the first one's whose handshake is complete. Internal to the gate. Main
 * thread.
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
 * Descriptors that hosts in their handshake may have sent in all: hosts could take all that the
 * process may have.
 */
#define MEMIF_MAX_HELD 256u

enum memif_state {
	MEMIF_UNUSED,
	MEMIF_TALKING, /* messages go both ways */
	MEMIF_UP,      /* frames do */
	MEMIF_CLOSING, /* the host is gone; the driver has been told and not let go yet */
};

struct memif_session {
	enum memif_state state;
	int host_fd;
	int driver_fd;
	uint16_t port; /* index, once the host has named it */
	bool claimed;  /* the host has said all, and the port is its own */
	char name[32]; /* that the host gives itself */
	struct memif_layout layout;
	uint64_t since_ms; /* when the host connected */
	unsigned int n_words;
	/* What the host has said, for the driver, which hears it all at once. */
	struct memif_word {
		struct memif_message message;
		int fd; /* the session's; -1: none */
	} words[MEMIF_MAX_WORDS];
};

/* What a session needs to know of the others and of the switch. */
struct memif_world {
	const struct config *config;
	struct pipeline *pipeline;
	struct memif_session *sessions;
	unsigned int n_sessions;
};

/* A message of the host has come, or its end. */
void memif_session_host(const struct memif_world *world, struct memif_session *session);

/* The same of the driver. */
void memif_session_driver(const struct memif_world *world, struct memif_session *session);

/* Tells the host why it can't be served, and lets it go. reason: for the host and the log. */
void memif_session_refuse(const struct memif_world *world, struct memif_session *session,
			  const char *reason);

/* Lets the host go. The session is unused once the driver has let go, too. */
void memif_session_end(const struct memif_world *world, struct memif_session *session);

#endif
