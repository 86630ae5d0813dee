/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The gate between hosts and the memif ports. When a host is gone, DPDK's driver unmaps the port's
 * memory at once, from its own thread, even while a worker uses it. So hosts connect to the gate,
 * not to the driver. The gate passes a host's messages on when the host has sent all of them
 * (switch/memif_check.c checks each), and takes the port up when both sides agree. When the host
 * goes first, the gate takes the port down, waits until no worker is inside, and only then lets the
 * driver know. Main thread.
 */
#ifndef FANIN_SWITCH_MEMIF_GATE_H
#define FANIN_SWITCH_MEMIF_GATE_H

#include "pipeline/pipeline.h"
#include "switch/config/config.h"

struct memif_gate;

/*
 * Writes the path of the driver's own socket, which only the driver's arguments and the gate use.
 * path: CONFIG_PATH_LEN bytes.
 */
void memif_driver_socket(const struct config *config, char *path);

/*
 * Opens the configured socket before DPDK starts. Hosts wait there until they are served. gate:
 * NULL if the configuration has no memif port. error: CONFIG_ERROR_LEN bytes. Returns 0, or -errno
 * with the error filled.
 */
int memif_gate_open(const struct config *config, struct memif_gate **gate, char *error);

/* Returns a descriptor that is readable when memif_gate_serve has work; -1 without a gate. */
int memif_gate_fd(const struct memif_gate *gate);

/*
 * Does all pending work, and waits only for workers. Call this about once a second, too, because of
 * hosts that connect and send nothing. gate may be NULL.
 */
void memif_gate_serve(struct memif_gate *gate, struct pipeline *pipeline);

/*
 * Disconnects all hosts. Call this after the workers have ended and before the ports are stopped.
 * gate may be NULL.
 */
void memif_gate_stop(struct memif_gate *gate, struct pipeline *pipeline);

/* Removes the sockets' files. gate may be NULL. */
void memif_gate_close(struct memif_gate *gate);

#endif
