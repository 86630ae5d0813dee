/* SPDX-License-Identifier: BSD-3-Clause */
/* See interface.h. */
#include "control/interface/interface.h"

#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/ethtool.h>
#include <linux/sockios.h>

/* Drivers with native XDP. zero_copy: drivers that also have it for AF_XDP in Linux 6.1. */
static const struct {
	const char *name;
	bool zero_copy;
} xdp_drivers[] = {
	{ "atlantic", false }, { "bnxt_en", false },   { "ena", false },
	{ "gve", false },      { "hv_netvsc", false }, { "i40e", true },
	{ "iavf", false },     { "ice", true },        { "igb", false },
	{ "igc", true },       { "ixgbe", true },      { "ixgbevf", false },
	{ "mana", false },     { "mlx4_en", false },   { "mlx5_core", true },
	{ "nfp", true },       { "qede", false },      { "sfc", false },
	{ "st_gmac", true },   { "stmmaceth", true },  { "thunder-nicvf", false },
	{ "tun", false },      { "veth", false },      { "virtio_net", false },
	{ "vmxnet3", false },
};

bool
interface_ethtool(const char *interface, void *command)
{
	struct ifreq request = { .ifr_data = command };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool done;

	if (fd < 0)
		return false;
	snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", interface);
	done = ioctl(fd, SIOCETHTOOL, &request) == 0;
	close(fd);
	return done;
}

void
interface_driver(const char *interface, char *driver)
{
	struct ethtool_drvinfo info = { .cmd = ETHTOOL_GDRVINFO };

	snprintf(driver, INTERFACE_DRIVER_LEN, "%s",
		 interface_ethtool(interface, &info) ? info.driver : "unknown");
}

/* Reads the queues in use; none if the driver doesn't say. */
static void
read_channels(const char *interface, struct ethtool_channels *channels)
{
	*channels = (struct ethtool_channels){ .cmd = ETHTOOL_GCHANNELS };
	if (!interface_ethtool(interface, channels))
		channels->rx_count = channels->combined_count = 0;
}

unsigned int
interface_receive_queues(const char *interface)
{
	struct ethtool_channels channels;

	read_channels(interface, &channels);
	return channels.rx_count + channels.combined_count;
}

bool
interface_driver_has_xdp(const char *driver)
{
	for (size_t i = 0; i < sizeof(xdp_drivers) / sizeof(xdp_drivers[0]); i++) {
		if (strcmp(driver, xdp_drivers[i].name) == 0)
			return true;
	}
	return false;
}

bool
interface_driver_has_zero_copy(const char *driver)
{
	for (size_t i = 0; i < sizeof(xdp_drivers) / sizeof(xdp_drivers[0]); i++) {
		if (strcmp(driver, xdp_drivers[i].name) == 0)
			return xdp_drivers[i].zero_copy;
	}
	return false;
}

bool
interface_rule(const char *interface, const char *driver, unsigned int queues,
	       unsigned int combined, uint32_t mtu, char *why)
{
	const unsigned int served = combined == 0 ? 1 : combined;

	if (!interface_driver_has_zero_copy(driver)) {
		snprintf(why, INTERFACE_WHY_LEN, "%s's driver %s has no zero-copy AF_XDP",
			 interface, driver);
		return false;
	}
	if (mtu > INTERFACE_XDP_MAX_MTU) {
		snprintf(why, INTERFACE_WHY_LEN, "%s's MTU of %u is more than AF_XDP's %u",
			 interface, mtu, INTERFACE_XDP_MAX_MTU);
		return false;
	}
	if (queues > INTERFACE_XDP_MAX_QUEUES) {
		snprintf(why, INTERFACE_WHY_LEN,
			 "%s has %u receive queues, more than AF_XDP's %u here (ethtool -L)",
			 interface, queues, INTERFACE_XDP_MAX_QUEUES);
		return false;
	}
	if (queues > served) {
		snprintf(why, INTERFACE_WHY_LEN,
			 "%s has %u receive queues, of which AF_XDP serves %u (ethtool -l)",
			 interface, queues, served);
		return false;
	}
	snprintf(why, INTERFACE_WHY_LEN, "%s's driver %s has zero-copy AF_XDP", interface, driver);
	return true;
}

bool
interface_wants_xdp(const char *interface, uint32_t mtu, char *why)
{
	char driver[INTERFACE_DRIVER_LEN];
	struct ethtool_channels channels;

	interface_driver(interface, driver);
	read_channels(interface, &channels);
	return interface_rule(interface, driver, channels.rx_count + channels.combined_count,
			      channels.combined_count, mtu, why);
}
