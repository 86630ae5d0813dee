/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Route discovery by rtnetlink (RFC 3549), so that gateways and several interfaces are handled as
 * the kernel would, and neighbour look-up by the ARP ioctl. See route.h for how to call it.
 */
#include "route.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/rtnetlink.h>
#include <net/if_arp.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "control/interface/interface.h"

/* The port of the discard service (RFC 863). */
#define DISCARD_PORT 9

struct route_request {
	struct nlmsghdr header;
	struct rtmsg message;
	uint8_t attributes[64];
};

static void
attribute_add(struct route_request *request, unsigned short type, const void *data,
	      unsigned short len)
{
	struct rtattr *attribute =
		(struct rtattr *)((uint8_t *)request + NLMSG_ALIGN(request->header.nlmsg_len));

	attribute->rta_type = type;
	attribute->rta_len = RTA_LENGTH(len);
	memcpy(RTA_DATA(attribute), data, len);
	request->header.nlmsg_len = NLMSG_ALIGN(request->header.nlmsg_len) + RTA_LENGTH(len);
}

static const char *
ip_text(uint32_t ip_be, char *text)
{
	return inet_ntop(AF_INET, &ip_be, text, INET_ADDRSTRLEN);
}

/* Sends the request and receives one answer. Returns its length or -errno. */
static ssize_t
route_ask(struct route_request *request, void *answer, size_t answer_len)
{
	struct timeval limit = { .tv_sec = 1 };
	ssize_t len;
	int fd;

	fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	len = send(fd, request, request->header.nlmsg_len, 0);
	if (len >= 0)
		len = recv(fd, answer, answer_len, 0);
	if (len < 0)
		len = -errno;
	close(fd);
	return len;
}

static int
route_parse(const struct nlmsghdr *header, ssize_t len, struct fanin_route *route)
{
	const struct rtmsg *message = NLMSG_DATA(header);
	const struct rtattr *attribute;
	size_t left;

	if (!NLMSG_OK(header, (size_t)len))
		return -EPROTO;
	if (header->nlmsg_type == NLMSG_ERROR) {
		const struct nlmsgerr *failure = NLMSG_DATA(header);

		return failure->error != 0 ? failure->error : -EPROTO;
	}
	if (header->nlmsg_type != RTM_NEWROUTE)
		return -EPROTO;
	if (message->rtm_type == RTN_LOCAL)
		return -ELOOP;
	if (message->rtm_type != RTN_UNICAST)
		return -ENETUNREACH;

	left = RTM_PAYLOAD(header);
	for (attribute = RTM_RTA(message); RTA_OK(attribute, left);
	     attribute = RTA_NEXT(attribute, left)) {
		switch (attribute->rta_type) {
		case RTA_OIF:
			memcpy(&route->ifindex, RTA_DATA(attribute), sizeof(route->ifindex));
			break;
		case RTA_PREFSRC:
			memcpy(&route->local_ip_be, RTA_DATA(attribute),
			       sizeof(route->local_ip_be));
			break;
		case RTA_GATEWAY:
			memcpy(&route->next_hop_be, RTA_DATA(attribute),
			       sizeof(route->next_hop_be));
			break;
		default:
			break;
		}
	}
	return route->ifindex != 0 && route->local_ip_be != 0 ? 0 : -ENETUNREACH;
}

static int
interface_query(struct fanin_route *route, struct fanin_error *error)
{
	struct ifreq query = { 0 };
	int status = FANIN_OK;
	int fd;

	if (if_indextoname((unsigned int)route->ifindex, route->interface) == NULL)
		return fanin_error_set(error, FANIN_ERR_SYSTEM,
				       "interface number %d has no name: %s", route->ifindex,
				       strerror(errno));
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return fanin_error_set(error, FANIN_ERR_SYSTEM, "socket: %s", strerror(errno));

	snprintf(query.ifr_name, sizeof(query.ifr_name), "%s", route->interface);
	if (ioctl(fd, SIOCGIFMTU, &query) < 0) {
		status = fanin_error_set(error, FANIN_ERR_SYSTEM, "cannot read the MTU of %s: %s",
					 route->interface, strerror(errno));
		goto close_fd;
	}
	route->mtu = (uint32_t)query.ifr_mtu;
	if (ioctl(fd, SIOCGIFHWADDR, &query) < 0) {
		status = fanin_error_set(error, FANIN_ERR_SYSTEM,
					 "cannot read the MAC address of %s: %s", route->interface,
					 strerror(errno));
		goto close_fd;
	}
	if (query.ifr_hwaddr.sa_family != ARPHRD_ETHER)
		status = fanin_error_set(
			error, FANIN_ERR_NO_ROUTE,
			"the switch is reached over %s, which is not an Ethernet interface",
			route->interface);
	else
		memcpy(route->local_mac, query.ifr_hwaddr.sa_data, sizeof(route->local_mac));
	route->rx_queues = interface_receive_queues(route->interface);
	if (route->rx_queues == 0)
		route->rx_queues = 1;
close_fd:
	close(fd);
	return status;
}

int
fanin_route_find(uint32_t switch_ip_be, const char *interface, struct fanin_route *route,
		 struct fanin_error *error)
{
	struct fanin_route found = { .switch_ip_be = switch_ip_be, .next_hop_be = switch_ip_be };
	struct route_request request = {
		.header = { .nlmsg_len = NLMSG_LENGTH(sizeof(struct rtmsg)),
			    .nlmsg_type = RTM_GETROUTE,
			    .nlmsg_flags = NLM_F_REQUEST },
		.message = { .rtm_family = AF_INET, .rtm_dst_len = 32 },
	};
	char address[INET_ADDRSTRLEN];
	union {
		struct nlmsghdr header;
		uint8_t bytes[4096];
	} answer;
	ssize_t len;
	int status;

	ip_text(switch_ip_be, address);
	attribute_add(&request, RTA_DST, &switch_ip_be, sizeof(switch_ip_be));
	if (interface != NULL) {
		int ifindex = (int)if_nametoindex(interface);

		if (ifindex == 0)
			return fanin_error_set(error, FANIN_ERR_INVALID,
					       "there is no interface named '%s'", interface);
		attribute_add(&request, RTA_OIF, &ifindex, sizeof(ifindex));
	}

	len = route_ask(&request, &answer, sizeof(answer));
	if (len < 0)
		return fanin_error_set(error, FANIN_ERR_SYSTEM,
				       "cannot ask the kernel for a route: %s",
				       strerror((int)-len));
	status = route_parse(&answer.header, len, &found);
	if (status == -ELOOP)
		return fanin_error_set(error, FANIN_ERR_NO_ROUTE,
				       "%s is this host's own address, not the switch's", address);
	if (status < 0)
		return fanin_error_set(error, FANIN_ERR_NO_ROUTE,
				       "no route to the switch %s%s%s: %s", address,
				       interface == NULL ? "" : " over ",
				       interface == NULL ? "" : interface, strerror(-status));
	status = interface_query(&found, error);
	if (status == FANIN_OK)
		*route = found;
	return status;
}

int
fanin_route_resolve(const struct fanin_route *route, uint8_t *mac, struct fanin_error *error)
{
	struct sockaddr_in *hop;
	struct arpreq query = { 0 };
	char address[INET_ADDRSTRLEN];
	bool known;
	int errnum;
	int fd;

	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return fanin_error_set(error, FANIN_ERR_SYSTEM, "socket: %s", strerror(errno));
	hop = (struct sockaddr_in *)&query.arp_pa;
	hop->sin_family = AF_INET;
	hop->sin_addr.s_addr = route->next_hop_be;
	memcpy(query.arp_dev, route->interface, sizeof(query.arp_dev));
	known = ioctl(fd, SIOCGARP, &query) == 0 && (query.arp_flags & ATF_COM) != 0;
	errnum = errno;
	close(fd);
	if (!known)
		return fanin_error_set(error, FANIN_ERR_NO_ROUTE, "no MAC address of %s on %s: %s",
				       ip_text(route->next_hop_be, address), route->interface,
				       strerror(errnum));
	memcpy(mac, query.arp_ha.sa_data, 6);
	return FANIN_OK;
}

void
fanin_route_ping(const struct fanin_route *route)
{
	const struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_port = htons(DISCARD_PORT),
		.sin_addr = { .s_addr = route->switch_ip_be },
	};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return;
	if (setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, route->interface,
		       (socklen_t)strlen(route->interface)) == 0)
		(void)sendto(fd, "", 0, MSG_NOSIGNAL, (const struct sockaddr *)&address,
			     sizeof(address));
	close(fd);
}
