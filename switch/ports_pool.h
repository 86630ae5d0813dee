/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The packet pools of the switch's ports: one for AF_XDP ports, whose packets each fill a page, and
 * one for all others. Main thread.
 */
#ifndef FANIN_SWITCH_PORTS_POOL_H
#define FANIN_SWITCH_PORTS_POOL_H

#include <rte_mempool.h>

#include "pipeline/pipeline.h"
#include "switch/config/config.h"
#include "switch/ports.h"

/* Descriptors of a device's queue. */
#define PORTS_RING_SIZE 1024

/*
 * Returns the pool for a port's packets. It is made when the first port needs it; ports_stop frees
 * it. Returns NULL with error (CONFIG_ERROR_LEN bytes) filled if the pool does not fit.
 */
struct rte_mempool *ports_pool_for(const struct config *config, struct ports *ports,
				   const struct config_port *port, char *error);

#endif
