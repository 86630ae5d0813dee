/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * faninctl doctor: checks a network interface as the kernel describes it; each check makes a few
 * ioctls on its own socket.
 */
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/ethtool.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>

#include "control/interface/interface.h"
#include "tools/doctor.h"

#define MIN_MTU 576 /* of a port */
#define USUAL_MTU 1500

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

/* Returns a value, or 0 if it is absent. */
static uint32_t
ethtool_value(const char *interface, uint32_t command)
{
	struct ethtool_value value = { .cmd = command };

	return interface_ethtool(interface, &value) ? value.data : 0;
}

static bool
is_veth(const char *interface)
{
	char driver[INTERFACE_DRIVER_LEN];

	interface_driver(interface, driver);
	return strcmp(driver, "veth") == 0;
}

/* Returns the number of receive queues; 1 if the driver does not say. */
static unsigned int
count_queues(const char *interface)
{
	const unsigned int n = interface_receive_queues(interface);

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
	/*
	 * IFF_RUNNING follows the carrier late, but devices without a carrier have only this flag.
	 */
	if (!interface_ethtool(interface, &carrier))
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
	if (ifr.ifr_mtu < MIN_MTU)
		return DOCTOR_PROBLEM;
	return ifr.ifr_mtu < USUAL_MTU ? DOCTOR_WARNING : DOCTOR_OK;
}

/*
 * Returns the driver of the switch's port that an interface is, or leads to: the one that was
 * named, or else the one by the rule.
 */
static enum doctor_driver
port_driver(const struct doctor *doctor, const char *interface, char *why)
{
	struct ifreq ifr = { .ifr_mtu = USUAL_MTU };

	why[0] = '\0';
	if (doctor->driver != DOCTOR_DRIVER_UNKNOWN)
		return doctor->driver;
	request(interface, SIOCGIFMTU, &ifr);
	return interface_wants_xdp(interface, (uint32_t)ifr.ifr_mtu, why) ? DOCTOR_DRIVER_AF_XDP
									  : DOCTOR_DRIVER_AF_PACKET;
}

/*
 * True if this machine itself uses AF_XDP on an interface: a host by its transport, a switch by its
 * port's driver.
 */
static bool
has_xdp(const struct doctor *doctor, const char *interface, char *why)
{
	why[0] = '\0';
	if (doctor->roles == DOCTOR_HOST_AF_XDP)
		return true;
	if (doctor->roles == DOCTOR_HOST_AF_PACKET)
		return false;
	return port_driver(doctor, interface, why) == DOCTOR_DRIVER_AF_XDP;
}

DOCTOR_LOOK(doctor_driver)
{
	char driver[INTERFACE_DRIVER_LEN];
	char why[INTERFACE_WHY_LEN];
	const bool xdp = has_xdp(doctor, interface, why);

	(void)check;
	interface_driver(interface, driver);
	if (why[0] != '\0')
		snprintf(found, DOCTOR_FOUND_LEN, "%s by default: %s",
			 xdp ? "AF_XDP" : "packet sockets, hosts on udp,", why);
	else
		snprintf(found, DOCTOR_FOUND_LEN, "%s, and %s is asked for", driver,
			 xdp ? "AF_XDP" : "af_packet");
	return xdp && !interface_driver_has_xdp(driver) ? DOCTOR_WARNING : DOCTOR_OK;
}

/* True if the interface is a port of a bridge or the like, which forwards others' frames. */
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
 * True if the kernel sends by a veth. Only veth passes frames on unfinished, without the checksums,
 * segmentation and tags that a wire would need. The switch's own end has no address and sends
 * complete frames.
 */
static bool
kernel_sends_by(const char *interface)
{
	struct ifreq ifr = { 0 };

	return request(interface, SIOCGIFADDR, &ifr) || has_master(interface);
}

/*
 * Ports on packet sockets know what is left to be done on a frame; AF_XDP ports do not. So offloads
 * give super-frames to the former, and wrong checksums to the latter.
 */
DOCTOR_LOOK(doctor_tx_offloads)
{
	const bool checksums = ethtool_value(interface, ETHTOOL_GTXCSUM) != 0;
	const bool segments = ethtool_value(interface, ETHTOOL_GTSO) != 0;
	char why[INTERFACE_WHY_LEN];
	const bool packet = port_driver(doctor, interface, why) == DOCTOR_DRIVER_AF_PACKET;

	(void)check;
	if (!is_veth(interface)) {
		snprintf(found, DOCTOR_FOUND_LEN, "the device's own");
		return DOCTOR_OK;
	}
	if (!packet && !kernel_sends_by(interface)) {
		snprintf(found, DOCTOR_FOUND_LEN, "of no matter: no address, the switch's own end");
		return DOCTOR_OK;
	}
	found[0] = '\0';
	if (checksums)
		add_word(found, "tx-checksumming on");
	if (segments)
		add_word(found, "tcp-segmentation-offload on");
	if (found[0] == '\0')
		snprintf(found, DOCTOR_FOUND_LEN, "off");
	if (packet)
		return checksums ? DOCTOR_OK : DOCTOR_WARNING;
	return checksums || segments ? DOCTOR_PROBLEM : DOCTOR_OK;
}

DOCTOR_LOOK(doctor_vlan_offload)
{
	const bool on = (ethtool_value(interface, ETHTOOL_GFLAGS) & ETH_FLAG_TXVLAN) != 0;
	char why[INTERFACE_WHY_LEN];

	(void)check;
	if (!on || !is_veth(interface)) {
		snprintf(found, DOCTOR_FOUND_LEN, on ? "the device's own" : "off");
		return DOCTOR_OK;
	}
	snprintf(found, DOCTOR_FOUND_LEN, "tx-vlan-offload on");
	return port_driver(doctor, interface, why) == DOCTOR_DRIVER_AF_PACKET ||
			       !kernel_sends_by(interface)
		       ? DOCTOR_OK
		       : DOCTOR_WARNING;
}

DOCTOR_LOOK(doctor_rx_offloads)
{
	const bool on = (ethtool_value(interface, ETHTOOL_GFLAGS) & ETH_FLAG_LRO) != 0;

	(void)doctor;
	(void)check;
	snprintf(found, DOCTOR_FOUND_LEN, "large-receive-offload %s", on ? "on" : "off");
	return on ? DOCTOR_WARNING : DOCTOR_OK;
}

DOCTOR_LOOK(doctor_queues)
{
	const unsigned int n = count_queues(interface);
	char why[INTERFACE_WHY_LEN];
	const bool packet = !has_xdp(doctor, interface, why);

	(void)check;
	/* The rule chooses AF_XDP only if it serves all queues. */
	snprintf(found, DOCTOR_FOUND_LEN, "%u%s", n,
		 packet           ? ", all of them seen by packet sockets"
		 : why[0] != '\0' ? ", each with an AF_XDP socket by default"
				  : "");
	return packet || why[0] != '\0' || n == 1 ? DOCTOR_OK : DOCTOR_WARNING;
}

DOCTOR_LOOK(doctor_rss)
{
	struct ethtool_rxnfc hash = { .cmd = ETHTOOL_GRXFH, .flow_type = UDP_V4_FLOW };
	const uint64_t ports = RXH_L4_B_0_1 | RXH_L4_B_2_3;
	char why[INTERFACE_WHY_LEN];

	(void)check;
	if (!has_xdp(doctor, interface, why)) {
		snprintf(found, DOCTOR_FOUND_LEN, "of no matter to packet sockets");
		return DOCTOR_OK;
	}
	if (count_queues(interface) == 1) {
		snprintf(found, DOCTOR_FOUND_LEN, "one queue, nothing to spread");
		return DOCTOR_OK;
	}
	if (!interface_ethtool(interface, &hash)) {
		snprintf(found, DOCTOR_FOUND_LEN, "the driver does not say");
		return DOCTOR_WARNING;
	}
	snprintf(found, DOCTOR_FOUND_LEN, "UDP over IPv4 is spread by addresses%s",
		 (hash.data & ports) == ports ? " and ports" : " only");
	return (hash.data & ports) == ports ? DOCTOR_OK : DOCTOR_WARNING;
}
