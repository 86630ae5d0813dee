/* SPDX-License-Identifier: BSD-3-Clause */
/* Control packets over a UDP socket. See channel.h. */
#include "channel.h"
#include "hostlib/src/transport/segments.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int
udp_send(struct fanin_channel *channel, struct fanin_control *control, size_t body_len)
{
	return send(channel->fd, &control->headers.fanin, FANIN_HDR_LEN + body_len, MSG_NOSIGNAL) <
			       0
		       ? errno
		       : 0;
}

/* The kernel delivers only packets from the address that the socket is connected to. */
static bool
is_switch(const struct fanin_channel *channel, const struct sockaddr_in *from)
{
	return from->sin_family == AF_INET && from->sin_addr.s_addr == channel->flow.dst_ip_be &&
	       from->sin_port == htons(channel->udp_port);
}

/*
 * Puts link headers before a received packet, so that wire's validation sees it like any other
 * packet.
 */
static size_t
udp_receive(struct fanin_channel *channel, struct fanin_control *control, int *errnum)
{
	const struct fanin_flow flow = { .dst_port = channel->udp_port };
	struct sockaddr_in from = { 0 };
	ssize_t len;

	do {
		socklen_t from_len = sizeof(from);

		len = recvfrom(channel->fd, &control->headers.fanin,
			       FANIN_HDR_LEN + sizeof(control->body), MSG_TRUNC,
			       (struct sockaddr *)&from, &from_len);
		if (len < 0) {
			if (errno != EAGAIN && errno != EINTR)
				*errnum = errno;
			return 0;
		}
	} while (len < FANIN_HDR_LEN || (size_t)len > FANIN_HDR_LEN + sizeof(control->body) ||
		 !is_switch(channel, &from));
	fanin_wire_encode_l4(&control->headers, &flow, (uint32_t)len - FANIN_HDR_LEN);
	return FANIN_L4_LEN + (size_t)len;
}

static int
udp_send_pair(struct fanin_channel *channel, struct fanin_control pair[2], size_t body_len)
{
	const size_t len = FANIN_HDR_LEN + body_len;
	struct iovec parts[] = {
		{ .iov_base = &pair[0].headers.fanin, .iov_len = len },
		{ .iov_base = &pair[1].headers.fanin, .iov_len = len },
	};
	union fanin_segment_control control;
	struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };

	fanin_segment_control_set(&message, &control, (uint16_t)len);
	return sendmsg(channel->fd, &message, MSG_NOSIGNAL) < 0 ? errno : 0;
}

static void
udp_wait(struct fanin_channel *channel, int timeout_ms)
{
	struct pollfd fd = { .fd = channel->fd, .events = POLLIN };

	poll(&fd, 1, timeout_ms);
}

static void
udp_close(struct fanin_channel *channel)
{
	close(channel->fd);
	if (channel->data_fd >= 0)
		close(channel->data_fd);
	channel->ops = NULL;
}

static const struct fanin_channel_ops udp_ops = {
	.send = udp_send,
	.receive = udp_receive,
	.send_pair = udp_send_pair,
	.wait = udp_wait,
	.close = udp_close,
};

/*
 * Makes a UDP socket that is connected to the switch. fd, port: the socket and its port; set on
 * success only.
 */
static int
socket_make(const struct fanin_route *route, uint16_t udp_port, bool bind_interface, int *fd,
	    uint16_t *port, struct fanin_error *error)
{
	struct sockaddr_in own = { 0 };
	socklen_t own_len = sizeof(own);
	struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_port = htons(udp_port),
		.sin_addr = { .s_addr = route->switch_ip_be },
	};
	int made = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int status;

	if (made < 0)
		return fanin_error_set(error, FANIN_ERR_SYSTEM, "cannot make a UDP socket: %s",
				       strerror(errno));
	if (bind_interface && setsockopt(made, SOL_SOCKET, SO_BINDTODEVICE, route->interface,
					 (socklen_t)strlen(route->interface)) < 0) {
		status = fanin_error_set(error, fanin_status_from_errno(errno, FANIN_ERR_SYSTEM),
					 "cannot bind to interface %s: %s", route->interface,
					 strerror(errno));
		goto close_made;
	}
	if (connect(made, (struct sockaddr *)&address, sizeof(address)) < 0) {
		status =
			errno == EAGAIN
				? fanin_error_set(
					  error, FANIN_ERR_SYSTEM,
					  "this host has no UDP port left (net.ipv4.ip_local_port_range)")
				: fanin_error_set(error, FANIN_ERR_NO_ROUTE,
						  "no route to the switch: %s", strerror(errno));
		goto close_made;
	}
	getsockname(made, (struct sockaddr *)&own, &own_len);
	*port = ntohs(own.sin_port);
	*fd = made;
	return FANIN_OK;

close_made:
	close(made);
	return status;
}

/*
 * Makes a socket as socket_make does, but never with the port of switches: other hosts would take
 * this host for a switch.
 */
static int
socket_to_switch(const struct fanin_route *route, uint16_t udp_port, bool bind_interface, int *fd,
		 uint16_t *port, struct fanin_error *error)
{
	int unwanted;
	int status = socket_make(route, udp_port, bind_interface, fd, port, error);

	if (status != FANIN_OK || *port != udp_port)
		return status;
	/* The unwanted port stays in use until there is another one. */
	unwanted = *fd;
	status = socket_make(route, udp_port, bind_interface, fd, port, error);
	close(unwanted);
	return status;
}

int
fanin_channel_udp(struct fanin_channel *channel, const struct fanin_route *route, uint16_t udp_port,
		  bool bind_interface, struct fanin_error *error)
{
	struct fanin_channel opened = { .ops = &udp_ops, .udp_port = udp_port };
	int status = socket_to_switch(route, udp_port, bind_interface, &opened.fd,
				      &opened.join_port, error);

	if (status != FANIN_OK)
		return status;
	status = socket_to_switch(route, udp_port, bind_interface, &opened.data_fd,
				  &opened.data_port, error);
	if (status != FANIN_OK) {
		close(opened.fd);
		return status;
	}
	opened.flow.dst_ip_be = route->switch_ip_be;
	fanin_inflow_read(&opened.at_open);
	*channel = opened;
	return FANIN_OK;
}

int
fanin_channel_udp_group(struct fanin_channel *channel, uint32_t group_be,
			const struct fanin_route *route, struct fanin_error *error)
{
	struct ip_mreqn group = {
		.imr_multiaddr = { .s_addr = group_be },
		.imr_ifindex = route->ifindex,
	};
	char address[INET_ADDRSTRLEN];

	if (setsockopt(channel->fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof(group)) == 0)
		return FANIN_OK;
	return fanin_error_set(error, FANIN_ERR_SYSTEM,
			       "cannot join the multicast group %s on %s: %s",
			       inet_ntop(AF_INET, &group_be, address, sizeof(address)),
			       route->interface, strerror(errno));
}

int
fanin_channel_udp_port(struct fanin_channel *channel, const struct fanin_route *route,
		       uint16_t udp_port, struct fanin_error *error)
{
	struct sock_filter nothing = BPF_STMT(BPF_RET | BPF_K, 0);
	const struct sock_fprog filter = { 1, &nothing };
	const struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_port = htons(udp_port),
		.sin_addr = { .s_addr = route->local_ip_be },
	};
	const int yes = 1;
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int errnum;

	if (fd < 0)
		return fanin_error_set(error, FANIN_ERR_SYSTEM, "cannot make a UDP socket: %s",
				       strerror(errno));
	/* If another program has the port, the kernel sends no ICMP errors either. */
	if (setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof(filter)) == 0 &&
	    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) == 0 &&
	    (bind(fd, (const struct sockaddr *)&address, sizeof(address)) == 0 ||
	     errno == EADDRINUSE)) {
		*channel = (struct fanin_channel){
			.ops = &udp_ops,
			.fd = fd,
			.data_fd = -1,
			.udp_port = udp_port,
		};
		channel->flow.dst_ip_be = route->switch_ip_be;
		return FANIN_OK;
	}
	errnum = errno;
	close(fd);
	return fanin_error_set(error, fanin_status_from_errno(errnum, FANIN_ERR_SYSTEM),
			       "cannot take UDP port %u: %s", udp_port, strerror(errnum));
}
