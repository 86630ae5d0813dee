/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a configuration must be as a whole: no two ports alike, workers on different lcores, sizes that fit each other; and
 * what it needs from this machine. Called by the configuration's parser and, for the machine, by its users.
 */
#include <errno.h>
#include <inttypes.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "switch/config.h"
#include "switch/config_keys.h"

bool
config_port_is_packet(const struct config_port *port)
{
	return !port->pci && strncmp(port->device, "net_af_packet", strlen("net_af_packet")) == 0;
}

bool
config_vdev_interface(const char *devargs, char *interface, size_t size)
{
	static const char key[] = ",iface=";
	const char *value = strstr(devargs, key);

	if (value == NULL)
		return false;
	value += strlen(key);
	snprintf(interface, size, "%.*s", (int)strcspn(value, ","), value);
	return true;
}

bool
config_has_memif(const struct config *config)
{
	for (unsigned int i = 0; i < config->n_ports; i++) {
		if (config->ports[i].memif)
			return true;
	}
	return false;
}

/* Two vdevs are one device if they are attached to the same interface, or have the same number of the same driver. */
static int
check_vdev_pair(const struct config_reader *reader, const struct config *config, unsigned int first,
		unsigned int second)
{
	const char *a = config->ports[first].device;
	const char *b = config->ports[second].device;
	char interface_a[CONFIG_DEVICE_LEN];
	char interface_b[CONFIG_DEVICE_LEN];
	char path[CONFIG_KEY_PATH_LEN];
	size_t len = strcspn(a, ",");

	snprintf(path, sizeof(path), "ports[%u].vdev", second);
	if (config_vdev_interface(a, interface_a, sizeof(interface_a)) &&
	    config_vdev_interface(b, interface_b, sizeof(interface_b)) &&
	    strcmp(interface_a, interface_b) == 0)
		return config_fail(reader, path, "interface \"%s\" is that of ports[%u] already",
				   interface_b, first);
	if (strcmp(a, b) == 0)
		return config_fail(reader, path,
				   "\"%s\" is the device of ports[%u] already: number them, like \"%.*s0\"",
				   b, first, (int)len, a);
	if (len == strcspn(b, ",") && strncmp(a, b, len) == 0 &&
	    strchr("0123456789", a[len - 1]) != NULL)
		return config_fail(reader, path, "\"%.*s\" is the device of ports[%u] already",
				   (int)len, b, first);
	return 0;
}

static int
check_port_pair(const struct config_reader *reader, const struct config *config, unsigned int first,
		unsigned int second)
{
	const struct config_port *a = &config->ports[first];
	const struct config_port *b = &config->ports[second];
	char path[CONFIG_KEY_PATH_LEN];

	if (strcmp(a->name, b->name) == 0) {
		snprintf(path, sizeof(path), "ports[%u].name", second);
		return config_fail(reader, path, "\"%s\" is the name of ports[%u] already", b->name,
				   first);
	}
	if (a->memif && b->memif) {
		if (a->memif_id != b->memif_id)
			return 0;
		snprintf(path, sizeof(path), "ports[%u].memif", second);
		return config_fail(reader, path, "%u is the id of ports[%u] already", b->memif_id,
				   first);
	}
	if (a->pci != b->pci)
		return 0;
	if (!a->pci)
		return check_vdev_pair(reader, config, first, second);
	if (strcasecmp(a->device, b->device) == 0) {
		snprintf(path, sizeof(path), "ports[%u].pci", second);
		return config_fail(reader, path, "\"%s\" is the device of ports[%u] already",
				   b->device, first);
	}
	return 0;
}

struct control_tcp
config_control_tcp(const struct config *config)
{
	return (struct control_tcp){ .listen = config->control_listen,
				     .token_file = config->control_token_file,
				     .certificate = config->tls_certificate,
				     .key = config->tls_key,
				     .ca = config->tls_ca };
}

static int
check_control(const struct config_reader *reader, const struct config *config)
{
	const struct control_tcp tcp = config_control_tcp(config);
	char error[CONTROL_MESSAGE_LEN];

	if (control_tcp_check(&tcp, error) != 0)
		return config_fail(reader, "control", "%s", error);
	return 0;
}

static int
check_workers(const struct config_reader *reader, const struct config *config)
{
	char path[CONFIG_KEY_PATH_LEN];

	for (unsigned int second = 1; second < config->n_workers; second++) {
		for (unsigned int first = 0; first < second; first++) {
			if (config->workers[first].lcore != config->workers[second].lcore)
				continue;
			snprintf(path, sizeof(path), "workers[%u].lcore", second);
			return config_fail(reader, path, "%u is the lcore of workers[%u] already",
					   config->workers[second].lcore, first);
		}
	}
	return 0;
}

static int
check_scheduling(const struct config_reader *reader, const struct config *config)
{
	if (config->n_workers % config->cluster_size != 0)
		return config_fail(reader, "scheduling.cluster_size",
				   "found %u, expected a divisor of the number of workers, %u",
				   config->cluster_size, config->n_workers);
	if (config->policy == CONFIG_POLICY_RSS && config->cluster_size != 1)
		return config_fail(reader, "scheduling.cluster_size",
				   "found %u, expected 1 with the policy rss", config->cluster_size);
	if (config->tree_up_to > config->multi2_up_to || config->multi2_up_to > config->multi4_up_to)
		return config_fail(
			reader, "auto_handler",
			"found sizes that fall, expected tree_up_to <= multi2_up_to <= multi4_up_to");
	return 0;
}

static int
check_sizes(const struct config_reader *reader, const struct config *config)
{
	/* DPDK's rule: the cache may overflow by a half. */
	uint32_t cache_limit = config->mbufs * 2 / 3;

	if (config->slots % 2 != 0)
		return config_fail(reader, "limits.slots",
				   "found %" PRIu32 ", expected an even number", config->slots);
	if (config->slots / config->max_jobs < 2)
		return config_fail(reader, "limits.slots",
				   "found %" PRIu32 ", which is less than 2 for each of %u jobs: "
				   "expected at least %u, or a lower limits.max_jobs",
				   config->slots, config->max_jobs, config->max_jobs * 2);
	if (config->mbufs != 0 && config->mbuf_cache > cache_limit)
		return config_fail(reader, "mempool.cache",
				   "found %" PRIu32 ", expected at most %" PRIu32
				   ", two thirds of mempool.mbufs",
				   config->mbuf_cache, cache_limit);
	return 0;
}

int
config_check_together(const struct config_reader *reader, const struct config *config)
{
	int ret;

	for (unsigned int second = 1; second < config->n_ports; second++) {
		for (unsigned int first = 0; first < second; first++) {
			ret = check_port_pair(reader, config, first, second);
			if (ret != 0)
				return ret;
		}
	}
	ret = check_workers(reader, config);
	if (ret == 0)
		ret = check_control(reader, config);
	if (ret == 0)
		ret = check_scheduling(reader, config);
	return ret != 0 ? ret : check_sizes(reader, config);
}

/* "0-1,4": the CPUs of a set, as taskset and the kernel write them. */
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

static int
check_device(const struct config_reader *reader, const struct config_port *port, unsigned int index)
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
	/* A tap device creates its interface; all others attach to one that is there. */
	if (strncmp(port->device, "net_tap", strlen("net_tap")) == 0 ||
	    !config_vdev_interface(port->device, interface, sizeof(interface)))
		return 0;
	if (if_nametoindex(interface) != 0)
		return 0;
	config_fail(reader, "", "interface \"%s\" does not exist: create it, or mend ports[%u].vdev",
		    interface, index);
	return -ENODEV;
}

int
config_check_machine(const struct config *config, const char *source, char *error)
{
	const struct config_reader reader = { .source = source, .error = error };
	int ret = check_cpus(&reader, config);

	for (unsigned int i = 0; i < config->n_ports && ret == 0; i++)
		ret = check_device(&reader, &config->ports[i], i);
	return ret;
}
