/* SPDX-License-Identifier: BSD-3-Clause */
/* See server_socket.h. */
#include "server_socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <netpacket/packet.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define MULTICAST_TTL 64

static bool
has_address(const struct ifaddrs *entry, uint32_t ip_be)
{
	struct sockaddr_in address;

	if (entry->ifa_addr == NULL || entry->ifa_addr->sa_family != AF_INET)
		return false;
	memcpy(&address, entry->ifa_addr, sizeof(address));
	return address.sin_addr.s_addr == ip_be;
}

/* The interface's MAC address; zeros if it has none. */
static void
find_mac(const struct ifaddrs *list, const char *name, uint8_t mac[6])
{
	struct sockaddr_ll link;

	for (const struct ifaddrs *entry = list; entry != NULL; entry = entry->ifa_next) {
		if (entry->ifa_addr == NULL || entry->ifa_addr->sa_family != AF_PACKET ||
		    strcmp(entry->ifa_name, name) != 0)
			continue;
		memcpy(&link, entry->ifa_addr, sizeof(link));
		if (link.sll_halen == 6)
			memcpy(mac, link.sll_addr, 6);
	}
}

static uint32_t
find_mtu(const char name[IF_NAMESIZE])
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq request = { 0 };
	uint32_t mtu = 0;

	if (fd < 0)
		return 0;
	memcpy(request.ifr_name, name, IF_NAMESIZE);
	if (ioctl(fd, SIOCGIFMTU, &request) == 0 && request.ifr_mtu > 0)
		mtu = request.ifr_mtu > UINT16_MAX ? UINT16_MAX : (uint32_t)request.ifr_mtu;
	close(fd);
	return mtu;
}

int
server_interface_find(uint32_t ip_be, struct server_interface *interface, struct fanin_error *error)
{
	struct server_interface found = { .ip_be = ip_be };
	char text[INET_ADDRSTRLEN];
	struct ifaddrs *list;

	if (getifaddrs(&list) != 0)
		return fanin_error_set(error, FANIN_ERR_SYSTEM, "cannot list interfaces: %s",
				       strerror(errno));
	for (const struct ifaddrs *entry = list; entry != NULL && found.name[0] == '\0';
	     entry = entry->ifa_next) {
		if (has_address(entry, ip_be))
			snprintf(found.name, sizeof(found.name), "%s", entry->ifa_name);
	}
	find_mac(list, found.name, found.mac);
	freeifaddrs(list);
	inet_ntop(AF_INET, &ip_be, text, sizeof(text));
	if (found.name[0] == '\0')
		return fanin_error_set(error, FANIN_ERR_NO_ROUTE,
				       "found no interface with the address %s", text);
	found.index = (int)if_nametoindex(found.name);
	found.mtu = find_mtu(found.name);
	if (found.index == 0 || found.mtu == 0)
		return fanin_error_set(error, FANIN_ERR_SYSTEM, "interface %s of %s is gone",
				       found.name, text);
	*interface = found;
	return FANIN_OK;
}

bool
server_interface_has_link(int fd, const struct server_interface *interface)
{
	struct ifreq request = { 0 };

	memcpy(request.ifr_name, interface->name, sizeof(request.ifr_name));
	return ioctl(fd, SIOCGIFFLAGS, &request) == 0 && (request.ifr_flags & IFF_UP) != 0 &&
	       (request.ifr_flags & IFF_RUNNING) != 0;
}

static bool
set_option(int fd, int level, int option, int value)
{
	return setsockopt(fd, level, option, &value, sizeof(value)) == 0;
}

/* Exceeds the system's limit only with CAP_NET_ADMIN. */
static void
set_buffers(int fd, uint32_t *bytes)
{
	const int wanted = *bytes > INT32_MAX / 2 ? INT32_MAX / 2 : (int)*bytes;
	socklen_t len = sizeof(int);
	int granted = 0;

	if (!set_option(fd, SOL_SOCKET, SO_RCVBUFFORCE, wanted))
		set_option(fd, SOL_SOCKET, SO_RCVBUF, wanted);
	if (!set_option(fd, SOL_SOCKET, SO_SNDBUFFORCE, wanted))
		set_option(fd, SOL_SOCKET, SO_SNDBUF, wanted);
	/* The kernel doubles the value for its bookkeeping, and reports the doubled value. */
	if (getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &granted, &len) == 0)
		*bytes = (uint32_t)granted / 2;
}

/*
 * The switch accepts any UDP checksum, and the links' CRC detects damage. Each packet comes with
 * its ECN mark, and with the number of packets that did not fit.
 */
static bool
set_options(int fd, const struct server_interface *interface)
{
	const struct ip_mreqn group = {
		.imr_address = { .s_addr = interface->ip_be },
		.imr_ifindex = interface->index,
	};

	return set_option(fd, SOL_SOCKET, SO_NO_CHECK, 1) &&
	       set_option(fd, SOL_SOCKET, SO_RXQ_OVFL, 1) &&
	       set_option(fd, IPPROTO_IP, IP_RECVTOS, 1) &&
	       set_option(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO) &&
	       set_option(fd, IPPROTO_IP, IP_MULTICAST_TTL, MULTICAST_TTL) &&
	       set_option(fd, IPPROTO_IP, IP_MULTICAST_LOOP, 0) &&
	       setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &group, sizeof(group)) == 0;
}

int
server_socket_open(const struct server_interface *interface, uint16_t udp_port,
		   uint32_t *buffer_bytes, struct fanin_error *error)
{
	const struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_port = htons(udp_port),
		.sin_addr = { .s_addr = interface->ip_be },
	};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	char text[INET_ADDRSTRLEN];
	int status;

	if (fd < 0)
		return fanin_error_set(error, FANIN_ERR_SYSTEM, "cannot make a UDP socket: %s",
				       strerror(errno));
	if (!set_options(fd, interface)) {
		status = fanin_error_set(error, FANIN_ERR_SYSTEM,
					 "cannot set up a UDP socket on %s: %s", interface->name,
					 strerror(errno));
		goto close_fd;
	}
	set_buffers(fd, buffer_bytes);
	if (bind(fd, (const struct sockaddr *)&address, sizeof(address)) != 0) {
		inet_ntop(AF_INET, &interface->ip_be, text, sizeof(text));
		status = fanin_error_set(error, fanin_status_from_errno(errno, FANIN_ERR_SYSTEM),
					 "cannot take UDP port %u of %s: %s", udp_port, text,
					 strerror(errno));
		goto close_fd;
	}
	return fd;

close_fd:
	close(fd);
	return status;
}
