/* SPDX-License-Identifier: BSD-3-Clause */
/* See ports.h. */
#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <rte_ethdev.h>
#include <rte_malloc.h>
#include <rte_mbuf.h>

#include "control/interface/interface.h"
#include "switch/eal.h"
#include "switch/packet_port.h"
#include "switch/kernel_counters.h"
#include "switch/log.h"
#include "switch/ports.h"
#include "switch/ports_packet.h"
#include "switch/ports_pool.h"

unsigned int
ports_receive_queues(const struct ports *ports, uint16_t index)
{
	return interface_receive_queues(ports->interfaces[index]);
}

static int
find_ethdev(const struct config_port *port, uint16_t index, uint16_t *ethdev, char *error)
{
	char name[CONFIG_DEVICE_LEN];

	if (port->pci)
		snprintf(name, sizeof(name), "%s", port->device);
	else
		eal_vdev_name(port, name, sizeof(name));
	if (rte_eth_dev_get_port_by_name(name, ethdev) == 0)
		return 0;
	snprintf(error, CONFIG_ERROR_LEN, "ports[%u]: device \"%s\" was not found or did not open",
		 index, port->device);
	return -ENODEV;
}

static int
setup_queues(uint16_t ethdev, uint16_t n_queues, struct rte_mempool *pool)
{
	uint16_t rx_size = PORTS_RING_SIZE;
	uint16_t tx_size = PORTS_RING_SIZE;
	int ret = rte_eth_dev_adjust_nb_rx_tx_desc(ethdev, &rx_size, &tx_size);

	for (uint16_t queue = 0; ret == 0 && queue < n_queues; queue++) {
		ret = rte_eth_rx_queue_setup(ethdev, queue, rx_size, SOCKET_ID_ANY, NULL, pool);
		if (ret == 0)
			ret = rte_eth_tx_queue_setup(ethdev, queue, tx_size, SOCKET_ID_ANY, NULL);
	}
	return ret;
}

static bool
is_known_socket(const struct ports *ports, int fd)
{
	for (size_t i = 0; i < ports->n_xdp_sockets; i++) {
		if (ports->xdp_sockets[i].fd == fd)
			return true;
	}
	return false;
}

/* Remembers the AF_XDP sockets that the driver has just opened for a port. */
static void
note_xdp_sockets(struct ports *ports, uint16_t index)
{
	int fds[PORTS_MAX_XDP_SOCKETS];
	size_t n = kernel_xdp_sockets(fds, RTE_DIM(fds));

	for (size_t i = 0; i < n && ports->n_xdp_sockets < RTE_DIM(ports->xdp_sockets); i++) {
		if (!is_known_socket(ports, fds[i]))
			ports->xdp_sockets[ports->n_xdp_sockets++] =
				(struct ports_xdp_socket){ .fd = fds[i], .port = index };
	}
}

/*
 * Returns the number of queues of a device. The AF_XDP driver has as many as its arguments say; for
 * other devices, one for each worker is enough.
 */
static uint16_t
queue_count(const struct config *config, const struct config_port *port,
	    const struct rte_eth_dev_info *info)
{
	uint16_t most = RTE_MIN(info->max_rx_queues, info->max_tx_queues);

	if (config_port_is_af_xdp(port))
		return most;
	/*
	 * The driver assumes that a connected host serves as many queues as are set up here; a host
	 * has one.
	 */
	if (port->memif)
		return 1;
	return RTE_MIN(most, config->n_workers);
}

/* Returns the smaller of the two limits that devices report: of packets, and of frames. */
static uint16_t
device_max_mtu(const struct rte_eth_dev_info *info)
{
	const uint32_t overhead = RTE_ETHER_HDR_LEN + RTE_ETHER_CRC_LEN;

	if (info->max_rx_pktlen > overhead && info->max_rx_pktlen - overhead < info->max_mtu)
		return (uint16_t)(info->max_rx_pktlen - overhead);
	return info->max_mtu;
}

/*
 * Sets a device's MTU, and checks that the device took it. A device on an existing interface has
 * the interface's MTU, which config_check_mtu compares. Returns 0, or -errno with error filled.
 */
static int
device_set_mtu(const struct config_port *port, uint16_t index, uint16_t ethdev,
	       const struct rte_eth_dev_info *info, char *error)
{
	uint16_t found = 0;
	int ret = 0;

	/* A host at a memif port provides the buffers, as long as the gate requires. */
	if (config_port_attaches(port) || port->memif)
		return 0;
	if (!port->pci)
		ret = rte_eth_dev_set_mtu(ethdev, port->mtu);
	/* Devices without a limit do not support setting one. */
	if (ret == -ENOTSUP && info->max_rx_pktlen >= port->mtu + (uint32_t)RTE_ETHER_HDR_LEN)
		return 0;
	if (ret == 0)
		ret = rte_eth_dev_get_mtu(ethdev, &found);
	if (ret == 0 && found >= port->mtu)
		return 0;
	if (ret != 0)
		found = device_max_mtu(info);
	snprintf(
		error, CONFIG_ERROR_LEN,
		"ports[%u].mtu: found %u for port \"%s\", expected at most %u, which its device \"%s\" takes%s%s",
		index, port->mtu, port->name, found, port->device, ret == 0 ? "" : ": ",
		ret == 0 ? "" : rte_strerror(-ret));
	return ret == 0 ? -EINVAL : ret;
}

/* Notes the interface, the sockets and the XDP program of a port whose device has just started. */
static void
note_interface(const struct config *config, struct ports *ports, uint16_t index,
	       const struct rte_eth_dev_info *info)
{
	const struct config_port *port = &config->ports[index];
	struct pipeline_port *out = &ports->ports[index];
	char why[PORT_PROGRAM_TEXT_LEN];

	if (port->pci)
		return;
	if (!config_vdev_interface(port->device, ports->interfaces[index], IF_NAMESIZE) &&
	    (info->if_index == 0 ||
	     if_indextoname(info->if_index, ports->interfaces[index]) == NULL))
		return;
	out->ifindex = if_nametoindex(ports->interfaces[index]);
	if (!config_port_is_af_xdp(port))
		return;
	note_xdp_sockets(ports, index);
	if (port_program_find(out->ifindex, &ports->programs[index], why) != 0)
		log_warning("port \"%s\": interface \"%s\": %s: nobody notices if it is taken off",
			    port->name, ports->interfaces[index], why);
}

static int
device_start(const struct config *config, struct ports *ports, uint16_t index, char *error)
{
	const struct config_port *port = &config->ports[index];
	struct pipeline_port *out = &ports->ports[index];
	struct rte_eth_conf conf = { 0 };
	struct rte_eth_dev_info info;
	struct rte_mempool *pool;
	int ret;

	ret = find_ethdev(port, index, &out->ethdev, error);
	if (ret != 0)
		return ret;
	pool = ports_pool_for(config, ports, port, error);
	if (pool == NULL)
		return -ENOMEM;
	ret = rte_eth_dev_info_get(out->ethdev, &info);
	if (ret != 0)
		goto fail;
	out->n_queues = queue_count(config, port, &info);
	/* device_set_mtu sets the MTU of vdevs. */
	if (port->pci)
		conf.rxmode.mtu = port->mtu;
	if (out->n_queues > 1 && port->pci) {
		conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		conf.rx_adv_conf.rss_conf.rss_hf = info.flow_type_rss_offloads &
						   (RTE_ETH_RSS_IP | RTE_ETH_RSS_UDP);
	}
	out->udp_checksums = (info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_UDP_CKSUM) != 0;
	if (out->udp_checksums)
		conf.txmode.offloads = info.tx_offload_capa & (RTE_ETH_TX_OFFLOAD_UDP_CKSUM |
							       RTE_ETH_TX_OFFLOAD_IPV4_CKSUM);
	ret = rte_eth_dev_configure(out->ethdev, out->n_queues, out->n_queues, &conf);
	if (ret != 0)
		goto fail;
	ret = device_set_mtu(port, index, out->ethdev, &info, error);
	if (ret != 0)
		return ret;
	ret = setup_queues(out->ethdev, out->n_queues, pool);
	if (ret == 0)
		ret = rte_eth_dev_start(out->ethdev);
	if (ret != 0)
		goto fail;
	note_interface(config, ports, index, &info);
	ret = rte_eth_promiscuous_enable(out->ethdev);
	ports->promiscuous[index] = ret == 0;
	if (ret != 0 && ret != -ENOTSUP)
		log_warning(
			"port \"%s\": promiscuous mode is refused (%s): only frames to its own address arrive",
			port->name, rte_strerror(-ret));
	return 0;

fail:
	/*
	 * EINVAL means that the kernel refuses the MTU of the other end, which may be in a
	 * namespace that is not visible here.
	 */
	snprintf(error, CONFIG_ERROR_LEN,
		 "ports[%u]: device \"%s\" of port \"%s\" does not start: %s%s", index,
		 port->device, port->name, rte_strerror(-ret),
		 ret == -EINVAL && config_port_is_af_xdp(port)
			 ? ": with XDP the other end of a veth may have an MTU of at most 3506"
			 : "");
	return ret;
}

struct pipeline_egress
ports_egress(const struct config_port *config)
{
	return (struct pipeline_egress){ .rate_mbit = config->rate_mbit,
					 .bucket_bytes = config->bucket_bytes,
					 .queue_bytes = config->queue_bytes,
					 .ecn_bytes = config->ecn_bytes,
					 .detour_bytes = config->detour_bytes };
}

static int
port_start(const struct config *config, struct ports *ports, uint16_t index, char *error)
{
	const struct config_port *port = &config->ports[index];
	struct pipeline_port *out = &ports->ports[index];
	struct rte_mempool *pool;
	int ret;

	snprintf(out->name, sizeof(out->name), "%s", port->name);
	out->mtu = port->mtu;
	out->routed = port->routed;
	out->egress = ports_egress(port);
	out->shared = port->memif;
	out->down = port->memif; /* until a host connects */
	/* Checked before memory is allocated: a wrong MTU needs too much of it. */
	ret = config_check_mtu(port, index, NULL, error);
	if (ret != 0)
		return ret;
	if (!config_port_is_packet(port))
		return device_start(config, ports, index, error);
	pool = ports_pool_for(config, ports, port, error);
	if (pool == NULL)
		return -ENOMEM;
	config_vdev_interface(port->device, ports->interfaces[index], IF_NAMESIZE);
	out->ifindex = ports_interface_index(ports, index);
	return ports_open_packet(config, index, pool, out, error);
}

/*
 * A packet may leave by several ports: either all devices complete its checksum, or none does. The
 * switch's own drivers take both.
 */
static void
agree_on_checksums(struct ports *ports)
{
	bool all = true;

	for (uint16_t i = 0; i < ports->n_ports; i++)
		all = all && (ports->ports[i].driver != NULL || ports->ports[i].udp_checksums);
	for (uint16_t i = 0; i < ports->n_ports; i++)
		ports->ports[i].udp_checksums = all && ports->ports[i].driver == NULL;
}

int
ports_start(const struct config *config, struct ports *ports, char *error)
{
	memset(ports, 0, sizeof(*ports));
	for (size_t i = 0; i < RTE_DIM(ports->programs); i++)
		ports->programs[i] = PORT_PROGRAM_NONE;
	for (uint16_t i = 0; i < config->n_ports; i++) {
		int ret = port_start(config, ports, i, error);

		if (ret != 0) {
			ports_stop(ports);
			return ret;
		}
		ports->n_ports++;
	}
	agree_on_checksums(ports);
	return 0;
}

void
ports_stop(struct ports *ports)
{
	for (uint16_t i = 0; i < ports->n_ports; i++) {
		const struct pipeline_port *port = &ports->ports[i];

		if (port->driver != NULL) {
			port->driver->close(port->handle);
			continue;
		}
		/*
		 * Released before the driver is closed, so that no frame goes to a socket that is
		 * being closed.
		 */
		port_program_release(&ports->programs[i]);
		rte_eth_dev_stop(port->ethdev);
		rte_eth_dev_close(port->ethdev);
	}
	ports->n_ports = 0;
	ports->n_xdp_sockets = 0;
	for (size_t i = 0; i < RTE_DIM(ports->pools); i++) {
		rte_mempool_free(ports->pools[i]);
		ports->pools[i] = NULL;
	}
}

unsigned int
ports_interface_index(const struct ports *ports, uint16_t index)
{
	const char *interface = ports->interfaces[index];

	return interface[0] == '\0' ? 0 : if_nametoindex(interface);
}

bool
ports_socket_is_bound(struct ports *ports, uint16_t index)
{
	const struct pipeline_port *port = &ports->ports[index];

	if (port->driver != NULL)
		return packet_port_is_bound(port->handle, port->ifindex);
	for (size_t i = 0; i < ports->n_xdp_sockets; i++) {
		struct ports_xdp_socket *socket = &ports->xdp_sockets[i];

		if (socket->port == index && kernel_xdp_is_lost(socket->fd))
			socket->lost = true;
		if (socket->port == index && socket->lost)
			return false;
	}
	return true;
}

void
ports_set_promiscuous(const struct ports *ports, uint16_t index)
{
	/* DPDK ignores a request for a mode that it has set already. */
	rte_eth_promiscuous_disable(ports->ports[index].ethdev);
	rte_eth_promiscuous_enable(ports->ports[index].ethdev);
}

/*
 * The AF_XDP driver would keep the packets in the old socket's rings, some thousands of the pool.
 */
bool
ports_can_reopen(const struct config_port *config)
{
	return config_port_is_packet(config);
}

int
ports_reopen(const struct config *config, struct ports *ports, uint16_t index, char *error)
{
	const struct config_port *port = &config->ports[index];
	struct pipeline_port *opened = &ports->ports[index];
	const unsigned int ifindex = ports_interface_index(ports, index);
	char problem[PACKET_PORT_ERROR_LEN];
	int ret = config_check_mtu(port, index, NULL, error);

	if (ret != 0)
		return ret;
	ret = packet_port_reopen(opened->handle, problem);
	if (ret != 0) {
		snprintf(error, CONFIG_ERROR_LEN, "ports[%u]: %s", index, problem);
		return ret;
	}
	opened->ifindex = ifindex;
	return 0;
}

static void
device_stats(const struct ports *ports, uint16_t index, struct port_driver_stats *stats)
{
	struct rte_eth_stats device = { 0 };
	uint64_t missed = 0;
	bool xdp = false;

	rte_eth_stats_get(ports->ports[index].ethdev, &device);
	/* The AF_XDP driver counts only a part of its sockets' drops. */
	for (size_t i = 0; i < ports->n_xdp_sockets; i++) {
		if (ports->xdp_sockets[i].port == index) {
			missed += kernel_xdp_drops(ports->xdp_sockets[i].fd);
			xdp = true;
		}
	}
	*stats = (struct port_driver_stats){
		.rx_missed = xdp ? missed : device.imissed,
		.rx_errors = device.ierrors,
	};
}

void
ports_stats(const struct ports *ports, uint16_t index, struct port_driver_stats *stats)
{
	const struct pipeline_port *port = &ports->ports[index];

	if (port->driver != NULL)
		port->driver->stats(port->handle, stats);
	else
		device_stats(ports, index, stats);
}

void
ports_describe(const struct ports *ports, uint16_t index, const char **driver,
	       struct rte_ether_addr *mac)
{
	const struct pipeline_port *port = &ports->ports[index];
	struct rte_eth_dev_info info;

	memset(mac, 0, sizeof(*mac));
	if (port->driver != NULL) {
		*driver = port->driver->name;
		port->driver->mac(port->handle, mac);
		return;
	}
	*driver = "";
	if (rte_eth_dev_info_get(port->ethdev, &info) == 0 && info.driver_name != NULL)
		*driver = info.driver_name;
	if (rte_eth_macaddr_get(port->ethdev, mac) != 0)
		memset(mac, 0, sizeof(*mac));
}

/* Returns true if a device says that its link is up: one that does not answer passes no frames. */
static bool
device_link_is_up(uint16_t ethdev)
{
	struct rte_eth_link link;

	return rte_eth_link_get_nowait(ethdev, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
}

bool
ports_link_is_up(const struct ports *ports, const struct config_port *config,
		 const struct pipeline_port *port, uint16_t index)
{
	struct ifreq request = { 0 };
	bool up = true;
	int fd;

	if ((port->driver == NULL && !device_link_is_up(port->ethdev)) || port->down ||
	    ports->program_is_off[index])
		return false;
	if (port->ifindex == 0 || config->pci)
		return true;
	/* An interface that was created again is another one, and the port is not on it. */
	if (ports_interface_index(ports, index) != port->ifindex)
		return false;
	memcpy(request.ifr_name, ports->interfaces[index], sizeof(request.ifr_name));
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return true;
	if (ioctl(fd, SIOCGIFFLAGS, &request) == 0)
		up = (request.ifr_flags & (IFF_UP | IFF_RUNNING)) == (IFF_UP | IFF_RUNNING);
	else
		up = errno != ENODEV;
	close(fd);
	return up;
}
