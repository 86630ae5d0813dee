/* SPDX-License-Identifier: BSD-3-Clause */
/* See ports_pool.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_errno.h>
#include <rte_ether.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_mbuf_pool_ops.h>

#include "handlers/handler.h"
#include "pipeline/base/egress.h"
#include "switch/ports_pool.h"
#include "wire/wire.h"

/*
 * A UMEM chunk is a page. The frame's room is what is left after the object header, the mbuf, its
 * private area and the headrooms, the last of which is XDP's own.
 */
#define AF_XDP_CHUNK 4096
#define AF_XDP_OBJECT_HEADER RTE_ALIGN_CEIL(sizeof(struct rte_mempool_objhdr), RTE_MEMPOOL_ALIGN)
#define AF_XDP_DATA_ROOM                                                                           \
	(AF_XDP_CHUNK - AF_XDP_OBJECT_HEADER - sizeof(struct rte_mbuf) - PIPELINE_MBUF_PRIV_SIZE)
#define AF_XDP_HEADROOM 256

#define POOL_AF_XDP 0
#define POOL_OTHER 1

static_assert(INTERFACE_XDP_MAX_MTU ==
		      AF_XDP_DATA_ROOM - RTE_PKTMBUF_HEADROOM - AF_XDP_HEADROOM - RTE_ETHER_HDR_LEN,
	      "what a page has room for");
static_assert(sizeof(struct rte_mbuf) % 64 + RTE_PKTMBUF_HEADROOM % 64 == 0,
	      "only the private area shifts a frame's alignment");
static_assert((PIPELINE_MBUF_PRIV_SIZE + FANIN_PAYLOAD_OFFSET) % FANIN_PAYLOAD_ALIGN == 0,
	      "payload alignment");

/*
 * Returns the data room that all non-AF_XDP ports need. Drivers that copy whole frames of a ring
 * need room for these frames.
 */
static uint32_t
other_data_room(const struct config *config)
{
	uint32_t room = 2048;

	for (uint16_t i = 0; i < config->n_ports; i++) {
		const struct config_port *port = &config->ports[i];
		const char *frame = port->pci || config_port_is_packet(port)
					    ? NULL
					    : strstr(port->device, "framesz=");
		uint32_t need = port->mtu + 256u;

		if (config_port_is_af_xdp(port))
			continue;
		if (frame != NULL)
			need = RTE_MAX(need,
				       (uint32_t)strtoul(frame + strlen("framesz="), NULL, 10));
		room = RTE_MAX(room, RTE_ALIGN_CEIL(need, 2048u));
	}
	return room + RTE_PKTMBUF_HEADROOM;
}

/*
 * Like rte_pktmbuf_pool_create, but without the padding that spreads packets over memory channels:
 * AF_XDP packets would no longer fit into a page.
 */
static struct rte_mempool *
pool_allocate(const char *name, uint32_t n, uint32_t cache, uint32_t room)
{
	struct rte_pktmbuf_pool_private private = {
		.mbuf_data_room_size = (uint16_t)room,
		.mbuf_priv_size = PIPELINE_MBUF_PRIV_SIZE,
	};
	uint32_t element = (uint32_t)sizeof(struct rte_mbuf) + PIPELINE_MBUF_PRIV_SIZE + room;
	struct rte_mempool *pool = rte_mempool_create_empty(name, n, element, cache,
							    sizeof(private), SOCKET_ID_ANY,
							    RTE_MEMPOOL_F_NO_SPREAD);

	if (pool == NULL)
		return NULL;
	if (rte_mempool_set_ops_byname(pool, rte_mbuf_best_mempool_ops(), NULL) != 0)
		goto fail;
	rte_pktmbuf_pool_init(pool, &private);
	if (rte_mempool_populate_default(pool) < 0)
		goto fail;
	rte_mempool_obj_iter(pool, rte_pktmbuf_init, NULL);
	return pool;

fail:
	rte_mempool_free(pool);
	return NULL;
}

/*
 * Returns the packets that a queue of a port can hold at once. AF_XDP keeps packets in its fill
 * ring (twice the ring size) and its receive ring; a packet socket allocates some in advance; memif
 * copies and keeps none.
 */
static uint32_t
mbufs_per_queue(const struct config_port *port)
{
	if (config_port_is_af_xdp(port))
		return 3 * PORTS_RING_SIZE;
	if (port->memif || config_port_is_packet(port))
		return 4 * FANIN_BURST;
	return 2 * PORTS_RING_SIZE;
}

/*
 * Returns the number of receive queues of an AF_XDP port, each of which keeps packets; 1 for other
 * ports.
 */
static uint32_t
queues_of(const struct config_port *port)
{
	static const char key[] = ",queue_count=";
	const char *value = config_port_is_af_xdp(port) ? strstr(port->device, key) : NULL;
	const int n = value == NULL ? 1 : atoi(value + strlen(key));

	return n < 1 ? 1 : (uint32_t)n;
}

/*
 * Returns the packets that slots may hold: slots of single jobs, and slots that the jobs of a
 * handler share.
 */
static uint32_t
mbufs_in_slots(const struct config *config)
{
	return config->slots + config->shared_slots * fanin_handlers_that_share();
}

/* Returns the packets that a pool needs to never run dry. */
static uint32_t
mbufs_needed(const struct config *config, int which)
{
	uint32_t n = mbufs_in_slots(config) +
		     config->n_workers * (2 * config->mbuf_cache + 4 * FANIN_BURST +
					  PIPELINE_TX_WAITING + FANIN_STOCK);

	for (uint16_t i = 0; i < config->n_ports; i++) {
		const struct pipeline_egress egress = ports_egress(&config->ports[i]);

		/*
		 * Frames of any pool may wait for any port. With several workers, each has a share
		 * of its own.
		 */
		n += egress_frames(&egress, config->ports[i].mtu) * (config->n_workers > 1 ? 2 : 1);
		if (which == (config_port_is_af_xdp(&config->ports[i]) ? POOL_AF_XDP : POOL_OTHER))
			n += mbufs_per_queue(&config->ports[i]) * queues_of(&config->ports[i]);
	}
	return n;
}

static int
pool_create(const struct config *config, struct ports *ports, int which, char *error)
{
	static const char *const names[] = { "mbufs_af_xdp", "mbufs" };
	uint32_t room = which == POOL_AF_XDP ? (uint32_t)AF_XDP_DATA_ROOM : other_data_room(config);
	uint32_t n = config->mbufs != 0 ? config->mbufs : mbufs_needed(config, which);
	uint64_t needed_megabytes;

	if (room > UINT16_MAX) {
		snprintf(
			error, CONFIG_ERROR_LEN,
			"a port's framesz or MTU asks for packets of %u bytes, expected at most %u",
			room - RTE_PKTMBUF_HEADROOM, UINT16_MAX - RTE_PKTMBUF_HEADROOM);
		return -EINVAL;
	}
	needed_megabytes = ((uint64_t)n * (room + 256) >> 20) + 32;
	ports->pools[which] = pool_allocate(names[which], n, config->mbuf_cache, room);
	if (ports->pools[which] != NULL)
		return 0;
	snprintf(
		error, CONFIG_ERROR_LEN,
		"memory.megabytes: found %u, expected about %lu for %u packets of %u bytes, or fewer mempool.mbufs (%s)",
		config->memory_megabytes, (unsigned long)needed_megabytes, n, room,
		rte_strerror(rte_errno));
	return -ENOMEM;
}

struct rte_mempool *
ports_pool_for(const struct config *config, struct ports *ports, const struct config_port *port,
	       char *error)
{
	int which = config_port_is_af_xdp(port) ? POOL_AF_XDP : POOL_OTHER;

	if (ports->pools[which] == NULL && pool_create(config, ports, which, error) != 0)
		return NULL;
	return ports->pools[which];
}

struct rte_mempool *
ports_pool_of_longest(const struct ports *ports)
{
	struct rte_mempool *longest = NULL;

	for (size_t i = 0; i < RTE_DIM(ports->pools); i++) {
		struct rte_mempool *pool = ports->pools[i];

		if (pool != NULL &&
		    (longest == NULL ||
		     rte_pktmbuf_data_room_size(pool) > rte_pktmbuf_data_room_size(longest)))
			longest = pool;
	}
	return longest;
}

void
ports_pool_usage(const struct ports *ports, uint32_t *size, uint32_t *available)
{
	*size = 0;
	*available = 0;
	for (size_t i = 0; i < RTE_DIM(ports->pools); i++) {
		if (ports->pools[i] == NULL)
			continue;
		*size += ports->pools[i]->size;
		*available += rte_mempool_avail_count(ports->pools[i]);
	}
}
