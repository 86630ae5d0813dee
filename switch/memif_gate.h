/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The way of hosts to the memif ports. DPDK's driver takes a port's memory away as soon as its host
 * is gone, from a thread of its own and whatever a worker does with it. So hosts connect here, not
 * to the driver: the gate passes their messages on when a host has said all (switch/memif_check.c
 * looks at each), takes the port up when both agree, and when the host goes first takes the port
 * down, waits until no worker is inside, and only then lets the driver know. Main thread.
 */
#ifndef FANIN_SWITCH_MEMIF_GATE_H
#define FANIN_SWITCH_MEMIF_GATE_H

#include "pipeline/pipeline.h"
#include "switch/config/config.h"

struct memif_gate;

/*
 * Where the driver itself listens, for its arguments and for the gate alone. path: CONFIG_PATH_LEN
 * bytes.
 */
void memif_driver_socket(const struct config *config, char *path);

/*
 * Opens the socket that the configuration names, before DPDK starts. Hosts wait there until they
 * are served.
 *
 * gate: NULL if the configuration has no memif port. error: CONFIG_ERROR_LEN bytes.
 * Returns 0, or -errno with the error filled.
 */
int memif_gate_open(const struct config *config, struct memif_gate **gate, char *error);

/* A descriptor that is readable when memif_gate_serve has something to do; -1 without a gate. */
int memif_gate_fd(const struct memif_gate *gate);

/*
 * Does what there is to do, without waiting for anyone but workers; to be called about once a
 * second as well, for hosts that connect and say nothing. gate may be NULL.
 */
void memif_gate_serve(struct memif_gate *gate, struct pipeline *pipeline);

/*
 * Lets all hosts go, before the ports are stopped and once the workers have ended. gate may be
 * NULL.
 */
void memif_gate_stop(struct memif_gate *gate, struct pipeline *pipeline);

/* Removes the sockets' files. gate may be NULL. */
void memif_gate_close(struct memif_gate *gate);

#endif
