/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Finds other stations by the addresses that devices on top of an interface have registered with
 * it. rtnetlink lists them as the interface's own forwarding entries (as `bridge fdb show` does).
 * The devices may be in another namespace, where nothing else shows them. See stations.h.
 */
#include "stations.h"

#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define MAC_LEN 6
#define MULTICAST 1 /* bit in the first byte of a MAC address */

/* Stores the address of an entry if it is another station's. */
static bool
entry_read(const struct nlmsghdr *header, int ifindex, const uint8_t *mac, uint8_t *other)
{
	const struct ndmsg *entry = NLMSG_DATA(header);
	const struct rtattr *attribute = (const struct rtattr *)(entry + 1);
	int left = (int)header->nlmsg_len - (int)NLMSG_LENGTH(sizeof(*entry));

	if (header->nlmsg_type != RTM_NEWNEIGH || left < 0 || entry->ndm_ifindex != ifindex ||
	    (entry->ndm_flags & NTF_SELF) == 0)
		return false;
	for (; RTA_OK(attribute, left); attribute = RTA_NEXT(attribute, left)) {
		const uint8_t *address = RTA_DATA(attribute);

		if (attribute->rta_type != NDA_LLADDR || RTA_PAYLOAD(attribute) != MAC_LEN ||
		    (address[0] & MULTICAST) != 0 || memcmp(address, mac, MAC_LEN) == 0)
			continue;
		memcpy(other, address, MAC_LEN);
		return true;
	}
	return false;
}

/* Reads the kernel's list. Returns true if there is another station. */
static bool
list_read(int fd, int ifindex, const uint8_t *mac, uint8_t *other)
{
	union {
		struct nlmsghdr header;
		uint8_t bytes[16384];
	} answer;
	const struct nlmsghdr *header;
	ssize_t received;

	while ((received = recv(fd, &answer, sizeof(answer), 0)) > 0) {
		size_t left = (size_t)received;

		for (header = &answer.header; NLMSG_OK(header, left);
		     header = NLMSG_NEXT(header, left)) {
			if (header->nlmsg_type == NLMSG_DONE || header->nlmsg_type == NLMSG_ERROR)
				return false;
			if (entry_read(header, ifindex, mac, other))
				return true;
		}
	}
	return false;
}

bool
fanin_station_behind(int ifindex, const uint8_t *mac, uint8_t *other)
{
	const struct timeval limit = { .tv_sec = 1 };
	/* The kernel knows by the request's length that it is about one interface. */
	const struct {
		struct nlmsghdr header;
		struct ifinfomsg message;
	} request = {
		.header = { .nlmsg_len = sizeof(request),
			    .nlmsg_type = RTM_GETNEIGH,
			    .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP },
		.message = { .ifi_family = PF_BRIDGE, .ifi_index = ifindex },
	};
	bool found = false;
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

	if (fd < 0)
		return false;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	if (send(fd, &request, sizeof(request), 0) == (ssize_t)sizeof(request))
		found = list_read(fd, ifindex, mac, other);
	close(fd);
	return found;
}
