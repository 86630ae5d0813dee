/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A parameter server in the rig's network: the real server without its socket, as a host behind a
 * switch's port.
 */
#ifndef FANIN_PROTOCOLS_PA_ATP_TESTS_RIG_SERVER_H
#define FANIN_PROTOCOLS_PA_ATP_TESTS_RIG_SERVER_H

#include "lab/rig/server.h"
#include "protocols/pa_atp/host/server.h"

extern const struct rig_server_ops rig_parameter_server;

/* To its jobs and counters; NULL: it is dead. */
struct fanin_server_core *rig_server_core(const struct rig_server *server);

#endif
