/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Checks what a configuration needs from this machine: CPUs, interfaces with their MTU, drivers,
 * files, addresses. Opens nothing that a running switch could hold, so that its configuration can
 * be checked beside it.
 */
#include <errno.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "control/metrics/metrics.h"
#include "switch/config/config.h"
#include "switch/config/config_keys.h"

/* Writes the CPUs of a set, such as "0-1,4", as taskset and the kernel do. */
static void
print_cpus(const cpu_set_t *cpus, char *buffer, size_t size)
{
	size_t used = 0;

	buffer[0] = '\0';
	for (int cpu = 0; cpu < CPU_SETSIZE && used < size; cpu++) {
		int last = cpu;

		if (!CPU_ISSET(cpu, cpus))
			continue;
		while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, cpus))
			last++;
		used += (size_t)snprintf(buffer + used, size - used, "%s%d", used == 0 ? "" : ",",
					 cpu);
		if (last > cpu && used < size)
			used += (size_t)snprintf(buffer + used, size - used, "-%d", last);
		cpu = last;
	}
}

static int
check_cpus(const struct config_reader *reader, const struct config *config)
{
	char path[CONFIG_KEY_PATH_LEN];
	char available[128];
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	if (sched_getaffinity(0, sizeof(cpus), &cpus) != 0)
		return 0; /* more CPUs than a cpu_set_t has: DPDK checks them itself */
	for (unsigned int i = 0; i < config->n_workers; i++) {
		if (CPU_ISSET(config->workers[i].cpu, &cpus))
			continue;
		print_cpus(&cpus, available, sizeof(available));
		snprintf(path, sizeof(path), "workers[%u]", i);
		return config_fail(reader, path,
				   "CPU %u is not available, expected one of %s as lcore or as cpu",
				   config->workers[i].cpu, available);
	}
	return 0;
}

static bool
attaches(const struct config_port *port, char *interface)
{
	return !port->pci && strncmp(port->device, "net_tap", strlen("net_tap")) != 0 &&
	       config_vdev_interface(port->device, interface, CONFIG_DEVICE_LEN);
}

bool
config_port_attaches(const struct config_port *port)
{
	char interface[CONFIG_DEVICE_LEN];

	return attaches(port, interface);
}

static int
check_exists(const struct config_reader *reader, const struct config_port *port, unsigned int index)
{
	char interface[CONFIG_DEVICE_LEN];
	char path[CONFIG_DEVICE_LEN + 32];

	if (port->pci) {
		snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s", port->device);
		if (access(path, F_OK) == 0)
			return 0;
		config_fail(reader, "",
			    "PCI device \"%s\" does not exist: see lspci -D, or mend ports[%u].pci",
			    port->device, index);
		return -ENODEV;
	}
	if (!attaches(port, interface) || if_nametoindex(interface) != 0)
		return 0;
	config_fail(reader, "", "interface \"%s\" does not exist: create it, or mend ports[%u].%s",
		    interface, index, config_port_key(port));
	return -ENODEV;
}

static int
check_driver(const struct config_reader *reader, const struct config_port *port, unsigned int index)
{
	char interface[CONFIG_DEVICE_LEN];
	char path[CONFIG_KEY_PATH_LEN];

	if (port->pci || port->memif)
		return 0;
	snprintf(path, sizeof(path), "ports[%u].%s", index, config_port_key(port));
	if (!config_driver_exists(port->device)) {
		config_fail(
			reader, path,
			"found the driver \"%.*s\" of port \"%s\", expected one of DPDK's in %s",
			(int)strcspn(port->device, ","), port->device, port->name,
			config_driver_directory());
		return -ENODEV;
	}
	if ((config_port_is_af_xdp(port) || config_port_is_packet(port)) &&
	    !config_vdev_interface(port->device, interface, sizeof(interface)))
		return config_fail(
			reader, path,
			"found \"%s\" for port \"%s\", expected iface= with the name of an interface",
			port->device, port->name);
	return 0;
}

int
config_check_mtu(const struct config_port *port, unsigned int index, const char *source,
		 char *error)
{
	const struct config_reader reader = { .source = source, .error = error };
	char interface[CONFIG_DEVICE_LEN];
	char path[CONFIG_KEY_PATH_LEN];
	struct ifreq request = { 0 };
	bool known;
	int fd;

	snprintf(path, sizeof(path), "ports[%u].mtu", index);
	if (config_port_is_af_xdp(port) && port->mtu > INTERFACE_XDP_MAX_MTU)
		return config_fail(
			&reader, path,
			"found %u for port \"%s\", expected at most %u with net_af_xdp, whose packets have a page each",
			port->mtu, port->name, INTERFACE_XDP_MAX_MTU);
	if (!attaches(port, interface))
		return 0;
	snprintf(request.ifr_name, sizeof(request.ifr_name), "%.*s", IFNAMSIZ - 1, interface);
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	known = fd >= 0 && ioctl(fd, SIOCGIFMTU, &request) == 0;
	if (fd >= 0)
		close(fd);
	if (!known || request.ifr_mtu >= port->mtu)
		return 0;
	return config_fail(
		&reader, path,
		"found %u for port \"%s\", but interface \"%s\" has MTU %d: lower the one or raise the other",
		port->mtu, port->name, interface, request.ifr_mtu);
}

/*
 * Checks that no two ports attach to one interface by different names, which only the machine
 * knows.
 */
static int
check_shared(const struct config_reader *reader, const struct config *config, unsigned int second)
{
	char interface[CONFIG_DEVICE_LEN];
	char other[CONFIG_DEVICE_LEN];

	if (!attaches(&config->ports[second], interface))
		return 0;
	for (unsigned int first = 0; first < second; first++) {
		if (attaches(&config->ports[first], other) &&
		    if_nametoindex(other) == if_nametoindex(interface))
			return config_fail(
				reader, "",
				"interface \"%s\" is \"%s\", that of ports[%u] already: mend ports[%u].%s",
				interface, other, first, second,
				config_port_key(&config->ports[second]));
	}
	return 0;
}

static int
check_services(const struct config_reader *reader, const struct config *config)
{
	const struct control_tcp tcp = config_control_tcp(config);
	char error[CONTROL_MESSAGE_LEN];

	if (control_tcp_check_machine(&tcp, error) != 0)
		return config_fail(reader, "control", "%s", error);
	if (metrics_check_machine(config->metrics_listen, error) != 0)
		return config_fail(reader, "metrics.listen", "%s", error);
	return 0;
}

int
config_check_machine(const struct config *config, const char *source, char *error)
{
	const struct config_reader reader = { .source = source, .error = error };
	int ret = check_cpus(&reader, config);

	for (unsigned int i = 0; i < config->n_ports && ret == 0; i++) {
		const struct config_port *port = &config->ports[i];

		ret = check_driver(&reader, port, i);
		if (ret == 0)
			ret = check_exists(&reader, port, i);
		if (ret == 0)
			ret = check_shared(&reader, config, i);
		if (ret == 0)
			ret = config_check_mtu(port, i, source, error);
	}
	return ret != 0 ? ret : check_services(&reader, config);
}
