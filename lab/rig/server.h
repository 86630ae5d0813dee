/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The operations that the rig's networks need from a host that makes the results of jobs behind a
 * switch's port. The protocol with such servers provides them.
 */
#ifndef FANIN_LAB_RIG_SERVER_H
#define FANIN_LAB_RIG_SERVER_H

#include <stdbool.h>

#include "lab/rig/network.h"

struct rig_server; /* the protocol's */

struct rig_server_options {
	uint32_t ip_be;
	uint32_t max_jobs;
	uint64_t memory_bytes;
	uint64_t round_trip_ns; /* 0: measured */
	uint64_t seed;          /* of cookies and numbers of runs */
	struct rig_end end;     /* of its link */
};

/* A job for a server. */
struct rig_service {
	uint32_t id;
	uint64_t key;
	uint32_t member_ip_be; /* of the switch below it */
	uint16_t n_ranks;
	const struct job *root; /* the job at that switch */
};

struct rig_server_ops {
	/* Attaches a server without jobs to a switch's port. Returns NULL without memory. */
	struct rig_server *(*attach)(struct rig_switch *sw, uint16_t port,
				     const struct rig_server_options *options);

	/* Called before the rig is destroyed. server: may be NULL. */
	void (*free)(struct rig_server *server);

	uint32_t (*ip_be)(const struct rig_server *server);
	const uint8_t *(*mac)(const struct rig_server *server);

	/* Returns FANIN_OK or a negative status. */
	int (*serve)(struct rig_server *server, const struct rig_service *service);

	/*
	 * Kills the server: all frames to it are lost. Or restarts it without any jobs and with
	 * another instance.
	 */
	void (*kill)(struct rig_server *server);
	void (*restart)(struct rig_server *server);
	bool (*is_alive)(const struct rig_server *server);
};

#endif
