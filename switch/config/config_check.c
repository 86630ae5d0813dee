/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Checks a configuration as a whole: no two ports alike, workers on different lcores, sizes that
 * fit each other. Called by the configuration's parser.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "switch/config/config.h"
#include "switch/config/config_keys.h"

#define CONFIG_FRAME_HEADER 14 /* Ethernet's, bytes */

bool
config_port_is_packet(const struct config_port *port)
{
	return !port->pci && strncmp(port->device, "net_af_packet", strlen("net_af_packet")) == 0;
}

bool
config_port_is_af_xdp(const struct config_port *port)
{
	return !port->pci && strncmp(port->device, "net_af_xdp", strlen("net_af_xdp")) == 0;
}

const char *
config_port_key(const struct config_port *port)
{
	return port->by_rule ? "interface" : port->pci ? "pci" : port->memif ? "memif" : "vdev";
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

/*
 * Checks two vdevs, which are the same device if they attach to the same interface, or have the
 * same driver and number.
 */
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

	snprintf(path, sizeof(path), "ports[%u].%s", second,
		 config_port_key(&config->ports[second]));
	if (config_vdev_interface(a, interface_a, sizeof(interface_a)) &&
	    config_vdev_interface(b, interface_b, sizeof(interface_b)) &&
	    strcmp(interface_a, interface_b) == 0)
		return config_fail(reader, path, "interface \"%s\" is that of ports[%u] already",
				   interface_b, first);
	if (strcmp(a, b) == 0)
		return config_fail(
			reader, path,
			"\"%s\" is the device of ports[%u] already: number them, like \"%.*s0\"", b,
			first, (int)len, a);
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

/*
 * Returns the length of a frame with the port's MTU, bytes: a queue without room for one never
 * sends it.
 */
static uint32_t
frame_bytes(const struct config_port *port)
{
	return port->mtu + CONFIG_FRAME_HEADER;
}

static int
check_below_queue(const struct config_reader *reader, unsigned int index, const char *key,
		  uint32_t found, uint32_t queue_bytes)
{
	char path[CONFIG_KEY_PATH_LEN];

	if (found < queue_bytes)
		return 0;
	snprintf(path, sizeof(path), "ports[%u].%s", index, key);
	return config_fail(reader, path,
			   "found %" PRIu32 ", expected less than queue_bytes, %" PRIu32, found,
			   queue_bytes);
}

static int
check_queue(const struct config_reader *reader, const struct config *config, unsigned int index)
{
	const struct config_port *port = &config->ports[index];
	const uint32_t queue_bytes = port->queue_bytes != 0
					     ? port->queue_bytes
					     : CONFIG_QUEUE_FRAMES * frame_bytes(port);
	char path[CONFIG_KEY_PATH_LEN];
	int ret;

	if (port->queue_bytes != 0 && port->queue_bytes < frame_bytes(port)) {
		snprintf(path, sizeof(path), "ports[%u].queue_bytes", index);
		return config_fail(reader, path,
				   "found %" PRIu32
				   ", expected room for a frame of the port's MTU, %" PRIu32,
				   port->queue_bytes, frame_bytes(port));
	}
	if (port->bucket_bytes != 0 && port->rate_mbit == 0) {
		snprintf(path, sizeof(path), "ports[%u].bucket_bytes", index);
		return config_fail(reader, path, "found without rate_mbit, which it belongs to");
	}
	ret = check_below_queue(reader, index, "ecn_bytes", port->ecn_bytes, queue_bytes);
	if (ret == 0)
		ret = check_below_queue(reader, index, "detour_bytes", port->detour_bytes,
					queue_bytes);
	return ret;
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
				   "found %u, expected 1 with the policy rss",
				   config->cluster_size);
	if (config->tree_up_to > config->multi2_up_to ||
	    config->multi2_up_to > config->multi4_up_to)
		return config_fail(
			reader, "auto_handler",
			"found sizes that fall, expected tree_up_to <= multi2_up_to <= multi4_up_to");
	return 0;
}

static int
check_sizes(const struct config_reader *reader, const struct config *config)
{
	/* DPDK's rule: the cache may exceed its size by a half. */
	uint32_t cache_limit = config->mbufs * 2 / 3;

	if (config->slots % 2 != 0)
		return config_fail(reader, "limits.slots",
				   "found %" PRIu32 ", expected an even number", config->slots);
	if (config->slots / config->max_jobs < 2)
		return config_fail(reader, "limits.slots",
				   "found %" PRIu32 ", which is less than 2 for each of %u jobs: "
				   "expected at least %u, or a lower limits.max_jobs",
				   config->slots, config->max_jobs, config->max_jobs * 2);
	if ((config->shared_slots & (config->shared_slots - 1)) != 0)
		return config_fail(reader, "limits.shared_slots",
				   "found %" PRIu32 ", expected a power of two",
				   config->shared_slots);
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
	for (unsigned int i = 0; i < config->n_ports; i++) {
		ret = check_queue(reader, config, i);
		if (ret != 0)
			return ret;
	}
	ret = check_workers(reader, config);
	if (ret == 0)
		ret = check_control(reader, config);
	if (ret == 0)
		ret = check_scheduling(reader, config);
	return ret != 0 ? ret : check_sizes(reader, config);
}
