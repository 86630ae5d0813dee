/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The switch's ports: packet pools, ethdev configuration, start and stop.
 */
#ifndef FANIN_SWITCH_PORTS_H
#define FANIN_SWITCH_PORTS_H

#include <net/if.h>

#include <rte_mempool.h>

#include "pipeline/pipeline.h"
#include "switch/config/config.h"
#include "switch/port_program.h"

/* AF_XDP sockets of all ports */
#define PORTS_MAX_XDP_SOCKETS (CONFIG_MAX_PORTS * 4)

struct ports {
	struct pipeline_port ports[CONFIG_MAX_PORTS];
	uint16_t n_ports;
	/*
	 * In the order in which their ports were started; the driver's own, which tells nothing of
	 * them.
	 */
	struct ports_xdp_socket {
		int fd;
		uint16_t port; /* index in ports */
		bool lost;     /* its interface is gone, whatever has the name now */
	} xdp_sockets[PORTS_MAX_XDP_SOCKETS];
	size_t n_xdp_sockets;
	char interfaces[CONFIG_MAX_PORTS][IF_NAMESIZE]; /* of the kernel, by port; empty: none */
	struct port_program programs[CONFIG_MAX_PORTS]; /* of AF_XDP ports; of the port watch's
							   thread alone, once it runs.
							   PORT_PROGRAM_NONE: none is known */
	bool program_is_off[CONFIG_MAX_PORTS];          /* when port_watch.h last looked */
	bool promiscuous[CONFIG_MAX_PORTS];             /* the port's driver took it */
	struct rte_mempool *pools[2]; /* for AF_XDP ports, for all others; NULL where there are none
				       */
};

/*
 * Configures and starts every port after eal_start.
 *
 * Returns 0, or -errno with error (CONFIG_ERROR_LEN bytes) filled and everything undone.
 */
int ports_start(const struct config *config, struct ports *ports, char *error);

/* The limits of a port's egress queue, as the configuration has them. */
struct pipeline_egress ports_egress(const struct config_port *config);

/* Stops and closes the ports and frees the pools. Nothing may hold packets. */
void ports_stop(struct ports *ports);

/*
 * True if frames can leave a port and come in: its driver sees a link, a memif client is connected,
 * and a kernel interface, of which AF_XDP's driver and packet sockets tell nothing, is the one that
 * the port was opened on, is up, has a carrier and had its XDP program when port_watch.h last
 * looked. Cheap: it waits for none of the kernel's locks. config, port: of that index. Main thread.
 */
bool ports_link_is_up(const struct ports *ports, const struct config_port *config,
		      const struct pipeline_port *port, uint16_t index);

/*
 * The number of the kernel interface that has the name of a port's interface now; 0: there is none,
 * or the port has no kernel interface. Main thread.
 */
unsigned int ports_interface_index(const struct ports *ports, uint16_t index);

/*
 * False if a port's socket has lost its interface, also if that has come back since. Main thread.
 */
bool ports_socket_is_bound(struct ports *ports, uint16_t index);

/*
 * Receive queues of a port's interface; 0: unknown. Any thread; waits for the kernel's lock on
 * interfaces.
 */
unsigned int ports_receive_queues(const struct ports *ports, uint16_t index);

/*
 * Asks a port's device for promiscuous mode once more. One thread; waits for the kernel's lock on
 * interfaces.
 */
void ports_set_promiscuous(const struct ports *ports, uint16_t index);

/* True if ports_reopen can be had for a port. */
bool ports_can_reopen(const struct config_port *config);

/*
 * Opens a port anew whose interface was removed, on the one that has the name now. The port must be
 * down in the pipeline. index: in config->ports. Returns 0, or -errno with error (CONFIG_ERROR_LEN
 * bytes) filled; it can be tried again then.
 */
int ports_reopen(const struct config *config, struct ports *ports, uint16_t index, char *error);

/* What a port's (index) device and socket count besides the workers. Main thread. */
void ports_stats(const struct ports *ports, uint16_t index, struct port_driver_stats *stats);

/* A port's (index) driver by name, valid as long as the port, and its MAC address. Main thread. */
void ports_describe(const struct ports *ports, uint16_t index, const char **driver,
		    struct rte_ether_addr *mac);

/*
 * The pool whose packets have the most room: what the switch makes itself may be as long as a
 * packet of any port. NULL: there is none.
 */
struct rte_mempool *ports_pool_of_longest(const struct ports *ports);

/* Packets that the pools hold and that are free, summed. */
void ports_pool_usage(const struct ports *ports, uint32_t *size, uint32_t *available);

#endif
