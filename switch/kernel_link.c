/* SPDX-License-Identifier: BSD-3-Clause */
/* See kernel_link.h: one request of rtnetlink(7). */
#include "switch/kernel_link.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/netlink.h>
#include <linux/rtnetlink.h>

#define ANSWER_BYTES (32u * 1024)

struct request {
	struct nlmsghdr header;
	struct ifinfomsg info;
	struct rtattr mask;
	uint32_t mask_value;
};

static uint32_t
number_of(struct rtattr *attribute)
{
	uint32_t number = 0;

	if (RTA_PAYLOAD(attribute) >= sizeof(number))
		memcpy(&number, RTA_DATA(attribute), sizeof(number));
	return number;
}

/* Returns the id of the interface's program: the one in IFLA_XDP_PROG_ID, or else the driver's. */
static uint32_t
program_of(struct rtattr *xdp)
{
	uint32_t any = 0;
	uint32_t driver = 0;
	int left = (int)RTA_PAYLOAD(xdp);

	for (struct rtattr *attribute = RTA_DATA(xdp); RTA_OK(attribute, left);
	     attribute = RTA_NEXT(attribute, left)) {
		if (attribute->rta_type == IFLA_XDP_PROG_ID)
			any = number_of(attribute);
		else if (attribute->rta_type == IFLA_XDP_DRV_PROG_ID)
			driver = number_of(attribute);
	}
	return any != 0 ? any : driver;
}

static void
attribute_read(struct rtattr *attribute, struct kernel_link *link)
{
	switch (attribute->rta_type) {
	case IFLA_IFNAME:
		snprintf(link->name, sizeof(link->name), "%.*s", (int)RTA_PAYLOAD(attribute),
			 (const char *)RTA_DATA(attribute));
		break;
	case IFLA_MTU:
		link->mtu = number_of(attribute);
		break;
	case IFLA_MASTER:
		link->master = number_of(attribute);
		break;
	case IFLA_PROMISCUITY:
		link->promiscuity = number_of(attribute);
		break;
	case IFLA_XDP:
		link->program = program_of(attribute);
		break;
	default:
		break;
	}
}

static int
answer_read(struct nlmsghdr *answer, size_t len, struct kernel_link *link)
{
	struct kernel_link found = { 0 };
	const struct ifinfomsg *info;
	int left;

	if (!NLMSG_OK(answer, len))
		return -EBADMSG;
	if (answer->nlmsg_type == NLMSG_ERROR)
		return ((const struct nlmsgerr *)NLMSG_DATA(answer))->error;
	if (answer->nlmsg_type != RTM_NEWLINK)
		return -EBADMSG;
	info = NLMSG_DATA(answer);
	found.flags = info->ifi_flags;
	left = (int)IFLA_PAYLOAD(answer);
	for (struct rtattr *attribute = IFLA_RTA(info); RTA_OK(attribute, left);
	     attribute = RTA_NEXT(attribute, left))
		attribute_read(attribute, &found);
	*link = found;
	return 0;
}

int
kernel_link_read(unsigned int index, struct kernel_link *link)
{
	const struct request request = {
		.header = { .nlmsg_len = sizeof(request),
			    .nlmsg_type = RTM_GETLINK,
			    .nlmsg_flags = NLM_F_REQUEST },
		.info = { .ifi_family = AF_UNSPEC, .ifi_index = (int)index },
		.mask = { .rta_len = RTA_LENGTH(sizeof(uint32_t)), .rta_type = IFLA_EXT_MASK },
		.mask_value = RTEXT_FILTER_SKIP_STATS,
	};
	/* The request is answered before send returns. */
	union {
		struct nlmsghdr header;
		uint8_t bytes[ANSWER_BYTES];
	} answer;
	ssize_t len;
	int ret;
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

	if (fd < 0)
		return -errno;
	len = send(fd, &request, sizeof(request), 0);
	if (len >= 0)
		len = recv(fd, &answer, sizeof(answer), MSG_DONTWAIT);
	ret = len < 0 ? -errno : answer_read(&answer.header, (size_t)len, link);
	close(fd);
	return ret;
}
