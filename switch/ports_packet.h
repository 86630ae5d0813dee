/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ports whose device is net_af_packet: maps their configuration to the switch's own packet sockets
 * (packet_port.h).
 */
#ifndef FANIN_SWITCH_PORTS_PACKET_H
#define FANIN_SWITCH_PORTS_PACKET_H

#include "pipeline/pipeline.h"
#include "switch/config/config.h"

/*
 * Checks the arguments of all packet ports without opening one; DPDK need not have been started.
 * Returns 0, or -errno with error (CONFIG_ERROR_LEN bytes) filled.
 */
int ports_check_packet(const struct config *config, char *error);

/*
 * Opens a port by its device's arguments and enters it into *port, whose MTU is set. Main thread.
 *
 * index: of the port in the configuration, for the error. Returns 0, or -errno with error
 * (CONFIG_ERROR_LEN bytes) filled.
 */
int ports_open_packet(const struct config *config, uint16_t index, struct rte_mempool *pool,
		      struct pipeline_port *port, char *error);

/* True if Fanin's frames leave the port, of any kind, in super-frames. Main thread. */
bool ports_make_super_frames(const struct pipeline_port *port);

/* Sets whether a packet port's interface takes super-frames of UDP; logs a change. Main thread. */
void ports_set_super_frames(const struct config_port *config, const struct pipeline_port *port,
			    bool interface_takes);

#endif
