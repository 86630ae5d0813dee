/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The packet pools of the switch's ports: one for those on AF_XDP, whose packets each fill a page, and one for all others. Main
 * thread.
 */
#ifndef FANIN_SWITCH_PORTS_POOL_H
#define FANIN_SWITCH_PORTS_POOL_H

#include <rte_common.h>
#include <rte_ether.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>

#include "pipeline/pipeline.h"
#include "switch/config.h"
#include "switch/ports.h"

/* Descriptors of a device's queue. */
#define PORTS_RING_SIZE 1024

/* A UMEM chunk is a page; what stands in it before the frame is taken off (the last is XDP's own headroom). */
#define PORTS_AF_XDP_CHUNK 4096
#define PORTS_AF_XDP_OBJECT_HEADER                                                                 \
	RTE_ALIGN_CEIL(sizeof(struct rte_mempool_objhdr), RTE_MEMPOOL_ALIGN)
#define PORTS_AF_XDP_DATA_ROOM                                                                     \
	(PORTS_AF_XDP_CHUNK - PORTS_AF_XDP_OBJECT_HEADER - sizeof(struct rte_mbuf) -               \
	 PIPELINE_MBUF_PRIV_SIZE)
#define PORTS_AF_XDP_HEADROOM 256
#define PORTS_AF_XDP_MAX_MTU                                                                       \
	(PORTS_AF_XDP_DATA_ROOM - RTE_PKTMBUF_HEADROOM - PORTS_AF_XDP_HEADROOM - RTE_ETHER_HDR_LEN)

/* True if a port is one of AF_XDP's driver. */
bool ports_is_af_xdp(const struct config_port *port);

/*
 * The pool for a port's packets, which is made when the first port wants it; ports_stop frees it. Returns NULL with error
 * (CONFIG_ERROR_LEN bytes) filled if it does not fit.
 */
struct rte_mempool *ports_pool_for(const struct config *config, struct ports *ports,
				   const struct config_port *port, char *error);

#endif
