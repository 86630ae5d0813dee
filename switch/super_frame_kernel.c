/* SPDX-License-Identifier: BSD-3-Clause */
/* See super_frame_kernel.h. */
#include "switch/super_frame_kernel.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <linux/ethtool.h>
#include <linux/if_packet.h>
#include <linux/sockios.h>

#include "pipeline/base/ipv4.h"
#include "switch/super_frame.h"

/* Payload of each segment of the test frame, bytes. */
#define PROBE_BYTES 8

/* True for Linux 6.2 and later. */
static bool
is_new_enough(void)
{
	struct utsname name;
	unsigned int major = 0, minor = 0;

	return uname(&name) == 0 && sscanf(name.release, "%u.%u", &major, &minor) == 2 &&
	       (major > 6 || (major == 6 && minor >= 2));
}

/*
 * Sends two segments as one to a MAC address that the loopback interface does not have, so that no
 * program receives them. Returns 0 or errno.
 */
static int
send_probe(int fd)
{
	const struct sockaddr_ll to = { .sll_family = AF_PACKET,
					.sll_protocol = htons(RTE_ETHER_TYPE_IPV4),
					.sll_ifindex = (int)if_nametoindex("lo") };
	const int on = 1;
	struct {
		struct virtio_net_hdr vnet;
		uint8_t frame[FANIN_L4_LEN + 2 * PROBE_BYTES];
	} probe = { .vnet = { .flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
			      .gso_type = VIRTIO_NET_HDR_GSO_UDP_L4,
			      .hdr_len = FANIN_L4_LEN,
			      .gso_size = PROBE_BYTES,
			      .csum_start = FANIN_ETH_LEN + FANIN_IP_LEN,
			      .csum_offset = offsetof(struct fanin_udp, checksum_be) } };
	const struct fanin_flow flow = { .dst_mac = { 0x02 },
					 .src_mac = { 0x02 },
					 .src_ip_be = htonl(INADDR_LOOPBACK),
					 .dst_ip_be = htonl(INADDR_LOOPBACK),
					 .src_port = 9,
					 .dst_port = 9 };
	struct fanin_headers headers;

	fanin_wire_encode_l4(&headers, &flow, 0);
	headers.ip.total_len_be = htons(FANIN_IP_LEN + FANIN_UDP_LEN + 2 * PROBE_BYTES);
	headers.ip.checksum_be = 0;
	headers.ip.checksum_be = fanin_ip_checksum(&headers.ip);
	headers.udp.len_be = htons(FANIN_UDP_LEN + 2 * PROBE_BYTES);
	headers.udp.checksum_be = ipv4_pseudo_checksum(&headers.ip, 0);
	memcpy(probe.frame, &headers, FANIN_L4_LEN);
	if (setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof(on)) != 0 ||
	    sendto(fd, &probe, sizeof(probe), MSG_DONTWAIT, (const struct sockaddr *)&to,
		   sizeof(to)) < 0)
		return errno;
	return 0;
}

enum super_frame_kernel
super_frame_kernel_probe(void)
{
	const int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
	const int errnum = fd < 0 ? errno : send_probe(fd);

	if (fd >= 0)
		close(fd);
	if (errnum == 0)
		return SUPER_FRAME_KERNEL_TAKES;
	if (errnum == EINVAL || errnum == EOPNOTSUPP)
		return SUPER_FRAME_KERNEL_REFUSES;
	/* Other errors, such as ENETDOWN, tell nothing about the kernel. */
	return is_new_enough() ? SUPER_FRAME_KERNEL_TAKES : SUPER_FRAME_KERNEL_OLD;
}

static bool
ethtool(const char *interface, int fd, void *command)
{
	struct ifreq request = { .ifr_data = command };

	snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", interface);
	return ioctl(fd, SIOCETHTOOL, &request) == 0;
}

/* Returns the number of the feature "tx-udp-segmentation" in this kernel's list, or -1. */
static int
find_feature(const char *interface, int fd)
{
	struct {
		struct ethtool_sset_info info;
		uint32_t n;
	} set = { .info = { .cmd = ETHTOOL_GSSET_INFO,
			    .sset_mask = UINT64_C(1) << ETH_SS_FEATURES } };
	struct ethtool_gstrings *names;
	int found = -1;

	if (!ethtool(interface, fd, &set) || set.n == 0)
		return -1;
	names = calloc(1, sizeof(*names) + (size_t)set.n * ETH_GSTRING_LEN);
	if (names == NULL)
		return -1;
	names->cmd = ETHTOOL_GSTRINGS;
	names->string_set = ETH_SS_FEATURES;
	names->len = set.n;
	if (ethtool(interface, fd, names)) {
		for (uint32_t i = 0; i < names->len && found < 0; i++) {
			if (strncmp((const char *)names->data + (size_t)i * ETH_GSTRING_LEN,
				    "tx-udp-segmentation", ETH_GSTRING_LEN) == 0)
				found = (int)i;
		}
	}
	free(names);
	return found;
}

static bool
has_feature(const char *interface, int fd, int feature)
{
	const uint32_t words = (uint32_t)feature / 32 + 1;
	struct ethtool_gfeatures *features =
		calloc(1, sizeof(*features) + words * sizeof(features->features[0]));
	bool has = false;

	if (features == NULL)
		return false;
	features->cmd = ETHTOOL_GFEATURES;
	features->size = words;
	if (ethtool(interface, fd, features))
		has = (features->features[feature / 32].active >> feature % 32 & 1) != 0;
	free(features);
	return has;
}

bool
super_frame_interface_takes(const char *interface)
{
	/* The number is the same for all interfaces, so it is looked up once. */
	static int known = -1;
	const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int feature = __atomic_load_n(&known, __ATOMIC_RELAXED);
	bool takes;

	if (fd < 0)
		return false;
	if (feature < 0) {
		feature = find_feature(interface, fd);
		__atomic_store_n(&known, feature, __ATOMIC_RELAXED);
	}
	takes = feature >= 0 && has_feature(interface, fd, feature);
	close(fd);
	return takes;
}
