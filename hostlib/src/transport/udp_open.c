/* SPDX-License-Identifier: BSD-3-Clause */
/* Opens the transport over UDP sockets. See udp.c. */
#include "udp_internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <netinet/udp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Size of the send buffer that a socket requests, bytes; without rights the kernel grants less. */
#define SEND_BUFFER (8 * 1024 * 1024)

/* Approximate memory that the kernel takes for a packet beside its bytes. */
#define PACKET_OVERHEAD 1024u

void
fanin_udp_free(struct fanin_sockets *udp)
{
	for (unsigned int i = 0; i < udp->n_tx_fds; i++) {
		if (udp->tx_fds[i] != udp->data_fd)
			close(udp->tx_fds[i]);
	}
	if (udp->data_fd >= 0)
		close(udp->data_fd);
	if (udp->group_fd >= 0)
		close(udp->group_fd);
	free(udp->of_group);
	free(udp->of_host);
	free(udp);
}

/* Gives a socket as much memory as it may have. Returns the bytes for received packets. */
static uint32_t
buffers_set(int fd, uint32_t receive_buffer)
{
	const int received = (int)receive_buffer, sent = SEND_BUFFER;
	int granted = 0;
	socklen_t len = sizeof(granted);

	if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &received, sizeof(received)) < 0)
		(void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &received, sizeof(received));
	if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &sent, sizeof(sent)) < 0)
		(void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &sent, sizeof(sent));
	(void)getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &granted, &len);
	return granted > 0 ? (uint32_t)granted : 0;
}

/* Sets the options of a socket that receives the job's packets. Returns 0 or an errno. */
static int
receiver_configure(int fd)
{
	const int on = 1;

	/* Without this option the kernel hands over single packets. */
	(void)setsockopt(fd, SOL_UDP, UDP_GRO, &on, sizeof(on));
	return setsockopt(fd, IPPROTO_IP, IP_RECVTOS, &on, sizeof(on)) == 0 ? 0 : errno;
}

/*
 * Sets the options of a socket that sends: no packet is fragmented, and only the link's MTU counts.
 * Returns 0 or an errno.
 */
static int
sender_configure(int fd)
{
	const int probe = IP_PMTUDISC_PROBE;

	return setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &probe, sizeof(probe)) == 0 ? 0 : errno;
}

/*
 * Binds a socket to the interface, so that it accepts nothing from other interfaces. Returns 0 or
 * an errno.
 */
static int
device_bind(int fd, const struct fanin_transport_config *config)
{
	int bound = 0;
	socklen_t len = sizeof(bound);

	/* Binding it again would need rights. */
	if (getsockopt(fd, SOL_SOCKET, SO_BINDTOIFINDEX, &bound, &len) == 0 &&
	    bound == config->ifindex)
		return 0;
	return setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, config->interface,
			  (socklen_t)strlen(config->interface)) == 0
		       ? 0
		       : errno;
}

static int
system_error(struct fanin_error *error, int errnum, const char *what)
{
	return fanin_error_set(error, fanin_status_from_errno(errnum, FANIN_ERR_TRANSPORT),
			       "cannot %s: %s", what, strerror(errnum));
}

/*
 * Opens the socket of the job's group. The socket joins the group last: until then it receives
 * nothing, so everything that it receives comes from the switch.
 */
static int
group_open(struct fanin_sockets *udp, const struct fanin_transport_config *config,
	   struct fanin_error *error)
{
	const struct sockaddr_in group = {
		.sin_family = AF_INET,
		.sin_port = htons(config->udp_port),
		.sin_addr = { .s_addr = config->group_be },
	};
	const struct sockaddr_in to_switch = {
		.sin_family = AF_INET,
		.sin_port = htons(config->udp_port),
		.sin_addr = { .s_addr = udp->switch_ip_be },
	};
	const struct ip_mreqn membership = {
		.imr_multiaddr = { .s_addr = config->group_be },
		.imr_ifindex = config->ifindex,
	};
	const int on = 1, off = 0;
	char address[INET_ADDRSTRLEN];
	int errnum;

	udp->group_fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (udp->group_fd < 0)
		return system_error(error, errno, "make a UDP socket");
	if (setsockopt(udp->group_fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
	    setsockopt(udp->group_fd, IPPROTO_IP, IP_MULTICAST_ALL, &off, sizeof(off)) < 0)
		return system_error(error, errno, "configure the group's socket");
	errnum = device_bind(udp->group_fd, config);
	if (errnum == 0)
		errnum = receiver_configure(udp->group_fd);
	if (errnum != 0)
		return system_error(error, errnum, "configure the group's socket");
	if (bind(udp->group_fd, (const struct sockaddr *)&group, sizeof(group)) < 0)
		return fanin_error_set(error, FANIN_ERR_TRANSPORT,
				       "cannot take UDP port %u of the group %s: %s",
				       config->udp_port,
				       inet_ntop(AF_INET, &config->group_be, address,
						 sizeof(address)),
				       strerror(errno));
	if (udp->switch_ip_be != 0 &&
	    connect(udp->group_fd, (const struct sockaddr *)&to_switch, sizeof(to_switch)) < 0)
		return system_error(error, errno, "connect the group's socket to the switch");
	if (setsockopt(udp->group_fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &membership,
		       sizeof(membership)) < 0)
		return fanin_error_set(error, FANIN_ERR_TRANSPORT,
				       "cannot join the multicast group %s on %s: %s",
				       inet_ntop(AF_INET, &config->group_be, address,
						 sizeof(address)),
				       config->interface, strerror(errno));
	return FANIN_OK;
}

/* Opens a socket with an address of this host. Returns it, or -errno. */
static int
own_socket(const struct fanin_transport_config *config, uint16_t port)
{
	const struct sockaddr_in own = {
		.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr = { .s_addr = config->local_ip_be },
	};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int errnum;

	if (fd < 0)
		return -errno;
	errnum = device_bind(fd, config);
	if (errnum == 0 && bind(fd, (const struct sockaddr *)&own, sizeof(own)) < 0)
		errnum = errno;
	if (errnum == 0)
		errnum = sender_configure(fd);
	if (errnum == 0)
		return fd;
	close(fd);
	return -errnum;
}

/*
 * Opens the sockets of a host that joins no switch. One has the address and port by which others
 * know the host. The others send, and their ports choose paths.
 */
static int
peers_open(struct fanin_sockets *udp, const struct fanin_transport_config *config,
	   struct fanin_error *error)
{
	struct sock_filter nothing = BPF_STMT(BPF_RET | BPF_K, 0);
	const struct sock_fprog filter = { 1, &nothing };
	char address[INET_ADDRSTRLEN];

	udp->data_fd = own_socket(config, config->udp_port);
	if (udp->data_fd < 0)
		return fanin_error_set(
			error, fanin_status_from_errno(-udp->data_fd, FANIN_ERR_TRANSPORT),
			"cannot take UDP port %u of %s: %s%s", config->udp_port,
			inet_ntop(AF_INET, &config->local_ip_be, address, sizeof(address)),
			strerror(-udp->data_fd),
			udp->data_fd == -EADDRINUSE
				? "; over udp one process of an address takes part in a job whose hosts lead blocks"
				: "");
	while (udp->n_tx_fds < FANIN_UDP_PATHS) {
		const int fd = own_socket(config, 0);

		if (fd < 0)
			return system_error(error, -fd, "make a UDP socket");
		udp->tx_fds[udp->n_tx_fds++] = fd;
		if (setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof(filter)) < 0)
			return system_error(error, errno, "close a UDP socket to others");
	}
	return FANIN_OK;
}

/* Takes over the socket that the channel to the switch was opened with. */
static int
data_take(struct fanin_sockets *udp, const struct fanin_transport_config *config,
	  struct fanin_error *error)
{
	int errnum = device_bind(config->data_fd, config);

	if (errnum != 0)
		return fanin_error_set(
			error, fanin_status_from_errno(errnum, FANIN_ERR_TRANSPORT),
			"cannot bind a UDP socket to %s, which takes Linux 5.7 or CAP_NET_RAW: %s",
			config->interface, strerror(errnum));
	errnum = sender_configure(config->data_fd);
	if (errnum != 0)
		return system_error(error, errnum, "keep UDP packets whole");
	udp->data_fd = config->data_fd;
	udp->tx_fds[0] = config->data_fd;
	udp->n_tx_fds = 1;
	return FANIN_OK;
}

/* Makes the headers that received packets get, for callers that want to see all headers. */
static void
headers_make(struct fanin_sockets *udp, const struct fanin_transport_config *config)
{
	struct fanin_flow flow = {
		.dst_ip_be = config->local_ip_be,
		.src_ip_be = udp->switch_ip_be,
		.dst_port = config->udp_port,
		.src_port = config->udp_port,
	};

	memcpy(flow.dst_mac, config->local_mac, sizeof(flow.dst_mac));
	fanin_wire_encode_l4(&udp->data_like, &flow, 0);
	flow.dst_ip_be = config->group_be;
	fanin_wire_encode_l4(&udp->group_like, &flow, 0);
}

static int
open_sockets(struct fanin_sockets *udp, const struct fanin_transport_config *config,
	     struct fanin_error *error)
{
	int status = config->data_fd >= 0 ? data_take(udp, config, error)
					  : peers_open(udp, config, error);
	uint32_t room, group_room;
	int errnum;

	if (status != FANIN_OK)
		return status;
	errnum = receiver_configure(udp->data_fd);
	if (errnum != 0)
		return system_error(error, errnum, "configure a UDP socket");
	status = group_open(udp, config, error);
	if (status != FANIN_OK)
		return status;
	room = buffers_set(udp->data_fd, config->receive_buffer);
	group_room = buffers_set(udp->group_fd, config->receive_buffer);
	if (group_room < room)
		room = group_room;
	for (unsigned int i = 0; i < udp->n_tx_fds; i++)
		(void)buffers_set(udp->tx_fds[i], config->receive_buffer);
	udp->frame_memory = config->frame_len + PACKET_OVERHEAD;
	udp->rx_room = room / (config->frame_len + config->frame_len / 4 + PACKET_OVERHEAD);
	if (udp->rx_room == 0)
		udp->rx_room = 1;
	return FANIN_OK;
}

int
fanin_udp_open(const struct fanin_transport_config *config, struct fanin_transport **transport,
	       struct fanin_error *error)
{
	struct fanin_sockets *udp = calloc(1, sizeof(*udp));
	int status;

	if (udp == NULL)
		return fanin_error_set(error, FANIN_ERR_NO_MEMORY, "out of memory");
	udp->transport.ops = &fanin_udp_ops;
	udp->data_fd = -1;
	udp->group_fd = -1;
	udp->log = *config->log;
	udp->switch_ip_be = config->data_fd >= 0 ? config->switch_ip_be : 0;
	udp->switch_mac = config->switch_mac;
	udp->of_group = calloc(1, sizeof(*udp->of_group));
	udp->of_host = calloc(1, sizeof(*udp->of_host));
	status = udp->of_group == NULL || udp->of_host == NULL
			 ? fanin_error_set(error, FANIN_ERR_NO_MEMORY, "out of memory")
			 : open_sockets(udp, config, error);
	if (status != FANIN_OK) {
		/* The data socket stays the caller's. */
		if (udp->data_fd == config->data_fd) {
			udp->data_fd = -1;
			udp->n_tx_fds = 0;
		}
		fanin_udp_free(udp);
		return status;
	}
	headers_make(udp, config);
	fanin_inflow_read(&udp->at_open);
	snprintf(udp->transport.reason, sizeof(udp->transport.reason),
		 "udp: sockets with room for %u packets on %s", udp->rx_room, config->interface);
	*transport = &udp->transport;
	return FANIN_OK;
}
