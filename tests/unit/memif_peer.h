/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The switch's half of a memif connection, played by a test: its messages are a script, and its
 * rings can be read and written at will. The script runs in a thread of its own, because the
 * library waits for each answer.
 */
#ifndef FANIN_TESTS_UNIT_MEMIF_PEER_H
#define FANIN_TESTS_UNIT_MEMIF_PEER_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hostlib/src/transport/memif_internal.h"
#include "wire/memif.h"

#define PEER_ANSWER_MS 10000
#define PEER_STEPS 6 /* HELLO, the answers to INIT, ADD_REGION, two times ADD_RING, CONNECT */

/* A mistake of the peer at one step. */
struct peer_slip {
	int step; /* -1: there is no mistake */
	enum {
		PEER_SAYS,
		PEER_CUTS,
		PEER_ADDS,
		PEER_HANGS_UP,
		PEER_KEEPS_SILENT
	} how;
	struct memif_message message; /* for PEER_SAYS; PEER_CUTS and PEER_ADDS change its length */
};

struct peer {
	int fd;
	struct peer_slip slip;
	pthread_t thread;
	struct memif_message heard[PEER_STEPS]; /* [0] is not used */
	int area_fd;
	int event_fds[2]; /* to the server, to the client */
	uint8_t *area;    /* mapped by peer_map */
	struct memif_ring *to_server;
	struct memif_ring *to_client;
};

/*
 * Starts a peer with a mistake, or without one if NULL; returns the library's end of the
 * connection.
 */
int peer_start(struct peer *peer, const struct peer_slip *slip);

/* Waits for the script's end. */
void peer_join(struct peer *peer);

/* Maps the memory that the library has shared. */
void peer_map(struct peer *peer);

/* Puts a frame into the next empty buffer of the library's receive ring. */
void peer_send(struct peer *peer, const void *frame, uint32_t len);

/*
 * Takes the next frame that the library has sent; returns its length, 0 if there is none. frame:
 * 65536 bytes.
 */
uint32_t peer_take(struct peer *peer, void *frame);

/* Starts a peer without mistakes, attached and mapped. Aborts the test on failure. */
struct fanin_memif *peer_attach(struct peer *peer, const struct fanin_memif_options *options);

/* Closes and unmaps everything that exists. */
void peer_close(struct peer *peer);

#endif
