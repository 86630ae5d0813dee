/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The memif protocol, version 2.0, by which two processes on one machine share rings of Ethernet
 * frames. The client (a host) owns the memory and hands it to the server (the switch) over a Unix
 * socket, SOCK_SEQPACKET, as file descriptors beside messages of 128 bytes. All fields are in the
 * machine's byte order.
 *
 * The server sends HELLO. The client sends INIT, ADD_REGION, and ADD_RING for each ring, and the
 * server acknowledges each of them by ACK. The client then sends CONNECT, and the server answers
 * CONNECTED. Either side may send DISCONNECT at any time; the end of the connection means the same.
 */
#ifndef FANIN_WIRE_MEMIF_H
#define FANIN_WIRE_MEMIF_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#define MEMIF_COOKIE 0x3e31f20u
#define MEMIF_VERSION 0x0200u
#define MEMIF_MODE_ETHERNET 0
#define MEMIF_MAX_LOG2_RING 14

/*
 * Start of the reason in a DISCONNECT if another client has the interface; the client may try
 * again.
 */
#define MEMIF_BUSY_REASON "already connected"

enum memif_type {
	MEMIF_TYPE_NONE,
	MEMIF_TYPE_ACK,
	MEMIF_TYPE_HELLO,
	MEMIF_TYPE_INIT,
	MEMIF_TYPE_ADD_REGION, /* with the memory's descriptor */
	MEMIF_TYPE_ADD_RING,   /* with the eventfd of the ring */
	MEMIF_TYPE_CONNECT,
	MEMIF_TYPE_CONNECTED,
	MEMIF_TYPE_DISCONNECT,
};

struct memif_hello {
	char name[32];
	uint16_t min_version;
	uint16_t max_version;
	uint16_t max_region;         /* highest index */
	uint16_t max_ring_to_client; /* highest index */
	uint16_t max_ring_to_server; /* highest index */
	uint8_t max_log2_ring;
} __attribute__((packed));

struct memif_init {
	uint16_t version;
	uint32_t id; /* number of the server's interface */
	uint8_t mode;
	uint8_t secret[24];
	char name[32];
} __attribute__((packed));

struct memif_add_region {
	uint16_t index; /* in order from 0 */
	uint64_t size;  /* bytes */
} __attribute__((packed));

#define MEMIF_RING_TO_SERVER 1u

struct memif_add_ring {
	uint16_t flags; /* MEMIF_RING_TO_SERVER, or 0: the server sends on it */
	uint16_t index; /* among the rings of its direction */
	uint16_t region;
	uint32_t offset; /* of struct memif_ring in the region */
	uint8_t log2_slots;
	uint16_t private_header; /* bytes before each frame: 0 */
} __attribute__((packed));

struct memif_connect {
	char interface[32];
} __attribute__((packed));

struct memif_disconnect {
	uint32_t code;
	char reason[96];
} __attribute__((packed));

struct memif_message {
	uint16_t type; /* enum memif_type */
	union {
		struct memif_hello hello;
		struct memif_init init;
		struct memif_add_region add_region;
		struct memif_add_ring add_ring;
		struct memif_connect connect; /* CONNECT and CONNECTED */
		struct memif_disconnect disconnect;
		uint8_t bytes[126];
	};
} __attribute__((packed, aligned(2)));

/* A buffer of a ring; its position relative to head and tail says which side owns it. */
struct memif_descriptor {
	uint16_t flags;
	uint16_t region;
	uint32_t length; /* bytes of the frame, or of the room for one */
	uint32_t offset; /* in the region */
	uint32_t metadata;
};

#define MEMIF_DESCRIPTOR_NEXT 1u /* the frame continues in the next slot */
/* Set by a receiver that polls: the sender does not write to the ring's eventfd. */
#define MEMIF_RING_NO_INTERRUPT 1u

/*
 * Indices wrap freely; a slot is an index modulo the number of slots. On a ring to the server, the
 * client advances head over frames and the server advances tail over frames that it has taken. On a
 * ring to the client, the client advances head over empty buffers and the server advances tail over
 * buffers that it has filled.
 */
struct memif_ring {
	uint32_t cookie; /* MEMIF_COOKIE */
	uint16_t flags;
	uint16_t head;
	uint8_t pad0[56];
	uint16_t tail;
	uint8_t pad1[62];
	struct memif_descriptor descriptors[];
};

static_assert(sizeof(struct memif_hello) == 43, "HELLO");
static_assert(sizeof(struct memif_init) == 63, "INIT");
static_assert(sizeof(struct memif_add_region) == 10, "ADD_REGION");
static_assert(sizeof(struct memif_add_ring) == 13, "ADD_RING");
static_assert(sizeof(struct memif_disconnect) == 100, "DISCONNECT");
static_assert(sizeof(struct memif_message) == 128, "message");
static_assert(offsetof(struct memif_message, init.id) == 4, "identifier");
static_assert(offsetof(struct memif_message, add_ring.offset) == 8, "ring offset");
static_assert(sizeof(struct memif_descriptor) == 16, "descriptor");
static_assert(offsetof(struct memif_ring, head) == 6, "head");
static_assert(offsetof(struct memif_ring, tail) == 64, "tail");
static_assert(offsetof(struct memif_ring, descriptors) == 128, "descriptors");

/* Returns the bytes of a ring. */
static inline uint64_t
memif_ring_bytes(unsigned int log2_slots)
{
	return sizeof(struct memif_ring) +
	       ((uint64_t)sizeof(struct memif_descriptor) << log2_slots);
}

#endif
