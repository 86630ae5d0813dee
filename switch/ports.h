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
	 * In the order in which the ports were started. The driver owns the sockets and reports
	 * nothing about them.
	 */
	struct ports_xdp_socket {
		int fd;
		uint16_t port; /* index in ports */
		bool lost;     /* its interface is gone, whichever interface has the name now */
	} xdp_sockets[PORTS_MAX_XDP_SOCKETS];
	size_t n_xdp_sockets;
	/* names of kernel interfaces, by port; empty: none */
	char interfaces[CONFIG_MAX_PORTS][IF_NAMESIZE];
	/*
	 * of AF_XDP ports; used by the port watch's thread alone, once it runs. PORT_PROGRAM_NONE:
	 * none is known
	 */
	struct port_program programs[CONFIG_MAX_PORTS];
	bool program_is_off[CONFIG_MAX_PORTS]; /* as of the last check of port_watch.h */
	/* the port's driver has set promiscuous mode */
	bool promiscuous[CONFIG_MAX_PORTS];
	/* for AF_XDP ports, and for all others; NULL if there are no such ports */
	struct rte_mempool *pools[2];
};

/*
 * Configures and starts every port after eal_start.
 *
 * Returns 0, or -errno with error (CONFIG_ERROR_LEN bytes) filled and everything undone.
 */
int ports_start(const struct config *config, struct ports *ports, char *error);

/* Returns the configured limits of a port's egress queue. */
struct pipeline_egress ports_egress(const struct config_port *config);

/* Stops and closes the ports and frees the pools. Nothing may hold packets. */
void ports_stop(struct ports *ports);

/*
 * True if frames can leave and enter by a port: its driver sees a link; a memif client is
 * connected; and a kernel interface, whose state AF_XDP's driver and packet sockets do not report,
 * is the one that the port was opened on, is up, has a carrier and had its XDP program at
 * port_watch.h's last check. Cheap: it waits for none of the kernel's locks. config, port: of that
 * index. Main thread.
 */
bool ports_link_is_up(const struct ports *ports, const struct config_port *config,
		      const struct pipeline_port *port, uint16_t index);

/*
 * Returns the number of the kernel interface that has the name of a port's interface now; 0: there
 * is none, or the port has no kernel interface. Main thread.
 */
unsigned int ports_interface_index(const struct ports *ports, uint16_t index);

/*
 * False if a port's socket has lost its interface, even if the interface has come back since. Main
 * thread.
 */
bool ports_socket_is_bound(struct ports *ports, uint16_t index);

/*
 * Returns the number of receive queues of a port's interface; 0: unknown. Any thread; waits for the
 * kernel's lock on interfaces.
 */
unsigned int ports_receive_queues(const struct ports *ports, uint16_t index);

/*
 * Sets promiscuous mode on a port's device again. One thread; waits for the kernel's lock on
 * interfaces.
 */
void ports_set_promiscuous(const struct ports *ports, uint16_t index);

/* True if a port supports ports_reopen. */
bool ports_can_reopen(const struct config_port *config);

/*
 * Opens a port again whose interface was removed, on the interface that has the name now. The port
 * must be down in the pipeline. index: in config->ports. Returns 0, or -errno with error
 * (CONFIG_ERROR_LEN bytes) filled; the call may be repeated then.
 */
int ports_reopen(const struct config *config, struct ports *ports, uint16_t index, char *error);

/*
 * Reads the counters of a port's (index) device and socket, which are not the workers'. Main
 * thread.
 */
void ports_stats(const struct ports *ports, uint16_t index, struct port_driver_stats *stats);

/*
 * Returns the name of a port's (index) driver, valid as long as the port, and its MAC address; ""
 * and all zeroes if the device does not tell them. Main thread.
 */
void ports_describe(const struct ports *ports, uint16_t index, const char **driver,
		    struct rte_ether_addr *mac);

/*
 * Returns the pool whose packets have the most room: packets that the switch makes itself may be as
 * long as those of any port. NULL: there is none.
 */
struct rte_mempool *ports_pool_of_longest(const struct ports *ports);

/* Sums up the packets that the pools hold and that are free. */
void ports_pool_usage(const struct ports *ports, uint32_t *size, uint32_t *available);

#endif
