/* SPDX-License-Identifier: BSD-3-Clause */
/* faninctl doctor: a network interface as the kernel describes it; each look is a few ioctls on a socket of its own. */
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/ethtool.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>

#include "tools/doctor.h"

#define LEAST_MTU 576 /* of a port */
#define USUAL_MTU 1500

/* Drivers with native XDP: AF_XDP is much slower with others. */
static const char *const xdp_drivers[] = {
	"atlantic",  "bnxt_en",       "ena",       "gve",  "hv_netvsc",  "i40e",
	"iavf",      "ice",           "igb",       "igc",  "ixgbe",      "ixgbevf",
	"mana",      "mlx4_en",       "mlx5_core", "nfp",  "qede",       "sfc",
	"stmmaceth", "thunder-nicvf", "tun",       "veth", "virtio_net", "vmxnet3",
};

static bool
request(const char *interface, unsigned long number, struct ifreq *ifr)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool done;

	if (fd < 0)
		return false;
	snprintf(ifr->ifr_name, sizeof(ifr->ifr_name), "%s", interface);
	done = ioctl(fd, number, ifr) == 0;
	close(fd);
	return done;
}

static bool
ethtool(const char *interface, void *command)
{
	struct ifreq ifr = { .ifr_data = command };

	return request(interface, SIOCETHTOOL, &ifr);
}

/* Returns a value, or 0 if it is absent. */
static uint32_t
ethtool_value(const char *interface, uint32_t command)
{
	struct ethtool_value value = { .cmd = command };

	return ethtool(interface, &value) ? value.data : 0;
}

static void
driver_of(const char *interface, char *driver, size_t size)
{
	struct ethtool_drvinfo info = { .cmd = ETHTOOL_GDRVINFO };

	snprintf(driver, size, "%s", ethtool(interface, &info) ? info.driver : "unknown");
}

static bool
is_veth(const char *interface)
{
	char driver[32];

	driver_of(interface, driver, sizeof(driver));
	return strcmp(driver, "veth") == 0;
}

/* Receive queues; 1 if the driver does not say. */
static unsigned int
count_queues(const char *interface)
{
	struct ethtool_channels channels = { .cmd = ETHTOOL_GCHANNELS };
	unsigned int n;

	if (!ethtool(interface, &channels))
		return 1;
	n = channels.rx_count + channels.combined_count;
	return n == 0 ? 1 : n;
}

/* Appends a word to a list in the finding. */
static void
add_word(char *found, const char *word)
{
	size_t used = strlen(found);

	snprintf(found + used, DOCTOR_FOUND_LEN - used, "%s%s", used == 0 ? "" : ", ", word);
}

DOCTOR_LOOK(doctor_exists)
{
	unsigned int number = if_nametoindex(interface);

	(void)doctor;
	(void)check;
	if (number == 0) {
		snprintf(found, DOCTOR_FOUND_LEN, "there is none");
		return DOCTOR_PROBLEM;
	}
	snprintf(found, DOCTOR_FOUND_LEN, "number %u", number);
	return DOCTOR_OK;
}

DOCTOR_LOOK(doctor_link)
{
	struct ethtool_value carrier = { .cmd = ETHTOOL_GLINK };
	struct ifreq ifr = { 0 };
	bool up;

	(void)doctor;
	(void)check;
	up = request(interface, SIOCGIFFLAGS, &ifr) && (ifr.ifr_flags & IFF_UP) != 0;
	/* The flag IFF_RUNNING follows the carrier late; devices without a carrier have only that. */
	if (!ethtool(interface, &carrier))
		carrier.data = (ifr.ifr_flags & IFF_RUNNING) != 0;
	snprintf(found, DOCTOR_FOUND_LEN,
		 !up                 ? "set down"
		 : carrier.data != 0 ? "up"
				     : "no carrier");
	return up && carrier.data != 0 ? DOCTOR_OK : DOCTOR_PROBLEM;
}

DOCTOR_LOOK(doctor_mtu)
{
	struct ifreq ifr = { 0 };

	(void)doctor;
	(void)check;
	request(interface, SIOCGIFMTU, &ifr);
	snprintf(found, DOCTOR_FOUND_LEN, "%d bytes", ifr.ifr_mtu);
	if (ifr.ifr_mtu < LEAST_MTU)
		return DOCTOR_PROBLEM;
	return ifr.ifr_mtu < USUAL_MTU ? DOCTOR_WARNING : DOCTOR_OK;
}

DOCTOR_LOOK(doctor_driver)
{
	char driver[32];

	(void)doctor;
	(void)check;
	driver_of(interface, driver, sizeof(driver));
	snprintf(found, DOCTOR_FOUND_LEN, "%s", driver);
	for (size_t i = 0; i < sizeof(xdp_drivers) / sizeof(xdp_drivers[0]); i++) {
		if (strcmp(driver, xdp_drivers[i]) == 0)
			return DOCTOR_OK;
	}
	return DOCTOR_WARNING;
}

/* True for a part of a bridge or the like, which forwards frames made by others. */
static bool
has_master(const char *interface)
{
	struct {
		struct nlmsghdr header;
		struct ifinfomsg link;
	} ask = {
		.header = { .nlmsg_len = sizeof(ask),
			    .nlmsg_type = RTM_GETLINK,
			    .nlmsg_flags = NLM_F_REQUEST },
		.link = { .ifi_index = (int)if_nametoindex(interface) },
	};
	union {
		struct nlmsghdr header;
		char bytes[16384];
	} answer;
	const struct rtattr *attribute;
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	ssize_t got = -1;
	int left;

	if (fd < 0)
		return false;
	if (send(fd, &ask, sizeof(ask), 0) == (ssize_t)sizeof(ask))
		got = recv(fd, &answer, sizeof(answer), 0);
	close(fd);
	if (got < (ssize_t)sizeof(ask) || answer.header.nlmsg_type != RTM_NEWLINK)
		return false;
	attribute = IFLA_RTA(NLMSG_DATA(&answer.header));
	left = (int)IFLA_PAYLOAD(&answer.header);
	for (; RTA_OK(attribute, left); attribute = RTA_NEXT(attribute, left)) {
		if (attribute->rta_type == IFLA_MASTER)
			return true;
	}
	return false;
}

/*
 * True if the kernel's offloads can do harm on frames that leave an interface. Only veth passes
 * frames on as they are, without the checksums, segmentation and tags that a wire would need. The
 * switch's own end has no address and sends complete frames.
 */
static bool
needs_whole_frames(const char *interface)
{
	struct ifreq ifr = { 0 };

	return is_veth(interface) && (request(interface, SIOCGIFADDR, &ifr) || has_master(interface));
}

/* Returns the finding if no offload is on, or none matters. */
static const char *
without_offloads(const char *interface)
{
	if (!is_veth(interface))
		return "the device's own";
	return needs_whole_frames(interface) ? "off"
					     : "of no matter: no address, the switch's own end";
}

DOCTOR_LOOK(doctor_tx_offloads)
{
	(void)doctor;
	(void)check;
	found[0] = '\0';
	if (needs_whole_frames(interface)) {
		if (ethtool_value(interface, ETHTOOL_GTXCSUM) != 0)
			add_word(found, "tx-checksumming on");
		if (ethtool_value(interface, ETHTOOL_GTSO) != 0)
			add_word(found, "tcp-segmentation-offload on");
	}
	if (found[0] != '\0')
		return DOCTOR_PROBLEM;
	snprintf(found, DOCTOR_FOUND_LEN, "%s", without_offloads(interface));
	return DOCTOR_OK;
}

DOCTOR_LOOK(doctor_vlan_offload)
{
	(void)doctor;
	(void)check;
	if (needs_whole_frames(interface) &&
	    (ethtool_value(interface, ETHTOOL_GFLAGS) & ETH_FLAG_TXVLAN) != 0) {
		snprintf(found, DOCTOR_FOUND_LEN, "tx-vlan-offload on");
		return DOCTOR_WARNING;
	}
	snprintf(found, DOCTOR_FOUND_LEN, "%s", without_offloads(interface));
	return DOCTOR_OK;
}

DOCTOR_LOOK(doctor_rx_offloads)
{
	(void)doctor;
	(void)check;
	found[0] = '\0';
	if (ethtool_value(interface, ETHTOOL_GGRO) != 0)
		add_word(found, "generic-receive-offload on");
	if ((ethtool_value(interface, ETHTOOL_GFLAGS) & ETH_FLAG_LRO) != 0)
		add_word(found, "large-receive-offload on");
	if (found[0] != '\0')
		return DOCTOR_WARNING;
	snprintf(found, DOCTOR_FOUND_LEN, "off");
	return DOCTOR_OK;
}

DOCTOR_LOOK(doctor_queues)
{
	unsigned int n = count_queues(interface);

	(void)doctor;
	(void)check;
	snprintf(found, DOCTOR_FOUND_LEN, "%u", n);
	return n == 1 ? DOCTOR_OK : DOCTOR_WARNING;
}

DOCTOR_LOOK(doctor_rss)
{
	struct ethtool_rxnfc hash = { .cmd = ETHTOOL_GRXFH, .flow_type = UDP_V4_FLOW };
	const uint64_t ports = RXH_L4_B_0_1 | RXH_L4_B_2_3;

	(void)doctor;
	(void)check;
	if (count_queues(interface) == 1) {
		snprintf(found, DOCTOR_FOUND_LEN, "one queue, nothing to spread");
		return DOCTOR_OK;
	}
	if (!ethtool(interface, &hash)) {
		snprintf(found, DOCTOR_FOUND_LEN, "the driver does not say");
		return DOCTOR_WARNING;
	}
	snprintf(found, DOCTOR_FOUND_LEN, "UDP over IPv4 is spread by addresses%s",
		 (hash.data & ports) == ports ? " and ports" : " only");
	return (hash.data & ports) == ports ? DOCTOR_OK : DOCTOR_WARNING;
}
