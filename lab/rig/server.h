/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A parameter server in the rig's network: the real one without its socket, as a host behind a switch's port.
 */
#ifndef FANIN_LAB_RIG_SERVER_H
#define FANIN_LAB_RIG_SERVER_H

#include "protocols/pa_atp/host/server.h"
#include "lab/rig/network.h"

struct rig_server;

struct rig_server_options {
	uint32_t ip_be;
	uint32_t max_jobs;
	uint64_t memory_bytes;
	uint64_t round_trip_ns; /* 0: measured */
	uint64_t seed;          /* of cookies and numbers of runs */
	struct rig_end end;     /* of its link */
};

/* A server behind a switch's port, without jobs. Returns NULL without memory; free it before the rig. */
struct rig_server *rig_server_attach(struct rig_switch *sw, uint16_t port,
				     const struct rig_server_options *options);

void rig_server_free(struct rig_server *server);

/* To its jobs and counters. */
struct fanin_server_core *rig_server_core(const struct rig_server *server);

uint32_t rig_server_ip_be(const struct rig_server *server);
const uint8_t *rig_server_mac(const struct rig_server *server);

/* It is dead from now on: whatever comes is lost. Or, without any of its jobs and with another instance, there again. */
void rig_server_kill(struct rig_server *server);
void rig_server_restart(struct rig_server *server);

#endif
