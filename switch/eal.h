/* SPDX-License-Identifier: BSD-3-Clause */
/* Starts DPDK's environment as configured: lcores, memory, devices. */
#ifndef FANIN_SWITCH_EAL_H
#define FANIN_SWITCH_EAL_H

#include "switch/config/config.h"

/*
 * Initialises the EAL and probes the configured devices. With hugepages "auto", falls back to
 * normal pages and logs that: at once if too few hugepages are free, or by executing this program
 * again (execve(2)) if another program takes them at the same moment. argv: this program's, ended
 * by NULL. Returns 0, or -errno with error (CONFIG_ERROR_LEN bytes) filled.
 */
int eal_start(const struct config *config, char *const argv[], char *error);

/* Releases the EAL's resources; devices must be closed. */
void eal_stop(void);

/* Writes the name of the vdev that was made for a port, such as "net_af_xdp_h0". */
void eal_vdev_name(const struct config_port *port, char *name, size_t len);

#endif
