/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The keys of the configuration file: name, type, range and default of each, and the field it
 * fills. A new key is one line here, one in packaging/examples/schema.json and one in the manual
 * page; a test compares the first two.
 */
#include "switch/config/config_keys.h"

#include <net/if.h>
#include <stdio.h>
#include <string.h>

#include "control/interface/interface.h"

#define FIELD(type, member)                                                                        \
	.offset = offsetof(struct type, member), .size = sizeof(((struct type *)NULL)->member)
#define RANGE(low, high) .minimum = (low), .maximum = (high)
#define TABLE_END                                                                                  \
	{                                                                                          \
		.name = NULL                                                                       \
	}

static const char *const log_levels[] = {
	[LOG_LEVEL_ERROR] = "error",
	[LOG_LEVEL_WARNING] = "warning",
	[LOG_LEVEL_INFO] = "info",
	[LOG_LEVEL_DEBUG] = "debug",
	NULL,
};

static const char *const hugepages[] = {
	[CONFIG_HUGEPAGES_AUTO] = "auto",
	[CONFIG_HUGEPAGES_ALWAYS] = "always",
	[CONFIG_HUGEPAGES_NEVER] = "never",
	NULL,
};

static const char *const idle_policies[] = {
	[CONFIG_IDLE_YIELD] = "yield",
	[CONFIG_IDLE_SPIN] = "spin",
	[CONFIG_IDLE_SLEEP] = "sleep",
	NULL,
};

static const char *const policies[] = {
	[CONFIG_POLICY_DISPATCH] = "dispatch",
	[CONFIG_POLICY_RSS] = "rss",
	NULL,
};

static const char memif_driver[] = "net_memif";

/*
 * Chooses the device for the interface that the file names. A missing interface is reported later,
 * with the other checks of the machine.
 */
static void
choose_driver(struct config_port *port)
{
	char interface[IF_NAMESIZE];

	memcpy(interface, port->device, sizeof(interface)); /* names are shorter: is_interface */
	interface[sizeof(interface) - 1] = '\0';
	if (interface_wants_xdp(interface, port->mtu, port->why)) {
		const unsigned int queues = interface_receive_queues(interface);

		snprintf(port->device, sizeof(port->device), "net_af_xdp,iface=%s,queue_count=%u",
			 interface, queues == 0 ? 1 : queues);
	} else {
		snprintf(port->device, sizeof(port->device), "net_af_packet,iface=%s", interface);
	}
}

static int
finish_port(const struct config_reader *reader, const char *path, const json_t *item, void *fields)
{
	struct config_port *port = fields;
	bool vdev = json_object_get(item, "vdev") != NULL;
	int n;

	port->by_rule = json_object_get(item, "interface") != NULL;
	port->pci = json_object_get(item, "pci") != NULL;
	port->memif = json_object_get(item, "memif") != NULL;
	n = port->by_rule + vdev + port->pci + port->memif;
	if (n != 1)
		return config_fail(
			reader, path,
			"found %s of interface, vdev, pci and memif, expected one of them",
			n == 0 ? "none" : "several");
	if (port->by_rule)
		choose_driver(port);
	if (vdev && strncmp(port->device, memif_driver, strlen(memif_driver)) == 0)
		return config_fail(reader, path,
				   "found the vdev %s, expected \"memif\": ID instead of vdev",
				   memif_driver);
	if (port->memif)
		memcpy(port->device, memif_driver, sizeof(memif_driver));
	return 0;
}

static int
finish_worker(const struct config_reader *reader, const char *path, const json_t *item,
	      void *fields)
{
	struct config_worker *worker = fields;

	(void)reader;
	(void)path;
	(void)item;
	if (worker->cpu == CONFIG_CPU_OF_LCORE)
		worker->cpu = worker->lcore;
	return 0;
}

static const struct config_key address_keys[] = {
	{ "ip", CONFIG_TYPE_IPV4, .required = true, FIELD(config, ip_be) },
	{ "prefix_len", CONFIG_TYPE_INTEGER, FIELD(config, prefix_len), RANGE(8, 32),
	  .fallback = 24 },
	{ "mac", CONFIG_TYPE_MAC, FIELD(config, mac), .fallback_text = "02:fa:00:00:00:fe" },
	{ "udp_port", CONFIG_TYPE_INTEGER, FIELD(config, udp_port), RANGE(1024, 65535),
	  .fallback = 21930 },
	TABLE_END,
};

static const struct config_key tls_keys[] = {
	{ "certificate", CONFIG_TYPE_TEXT, FIELD(config, tls_certificate), .derived = true },
	{ "key", CONFIG_TYPE_TEXT, FIELD(config, tls_key), .derived = true },
	{ "ca", CONFIG_TYPE_TEXT, FIELD(config, tls_ca), .derived = true },
	TABLE_END,
};

static const struct config_key control_keys[] = {
	{ "socket", CONFIG_TYPE_TEXT, FIELD(config, control_socket),
	  .fallback_text = "/run/fanin/switch.sock" },
	{ "listen", CONFIG_TYPE_TEXT, FIELD(config, control_listen), .derived = true },
	{ "token_file", CONFIG_TYPE_TEXT, FIELD(config, control_token_file), .derived = true },
	{ "tls", CONFIG_TYPE_OBJECT, .keys = tls_keys },
	TABLE_END,
};

static const struct config_key metrics_keys[] = {
	{ "listen", CONFIG_TYPE_ENDPOINT, FIELD(config, metrics_listen), .derived = true },
	TABLE_END,
};

static const struct config_key memory_keys[] = {
	{ "hugepages", CONFIG_TYPE_CHOICE, FIELD(config, hugepages), .choices = hugepages,
	  .fallback = CONFIG_HUGEPAGES_AUTO },
	{ "megabytes", CONFIG_TYPE_INTEGER, FIELD(config, memory_megabytes), RANGE(64, 1048576),
	  .fallback = 512 },
	TABLE_END,
};

static const struct config_key mempool_keys[] = {
	/* 0: as many as ports and slots need, see switch/ports_pool.c. */
	{ "mbufs", CONFIG_TYPE_INTEGER, FIELD(config, mbufs), RANGE(512, 4194303), .fallback = 0,
	  .derived = true },
	{ "cache", CONFIG_TYPE_INTEGER, FIELD(config, mbuf_cache), RANGE(0, 512), .fallback = 256 },
	TABLE_END,
};

static const struct config_key worker_keys[] = {
	{ "lcore", CONFIG_TYPE_INTEGER, .required = true, FIELD(config_worker, lcore),
	  RANGE(0, 127) },
	{ "cpu", CONFIG_TYPE_INTEGER, FIELD(config_worker, cpu), RANGE(0, 1023),
	  .fallback = CONFIG_CPU_OF_LCORE, .derived = true },
	TABLE_END,
};

static const struct config_key scheduling_keys[] = {
	{ "policy", CONFIG_TYPE_CHOICE, FIELD(config, policy), .choices = policies,
	  .fallback = CONFIG_POLICY_DISPATCH },
	{ "cluster_size", CONFIG_TYPE_INTEGER, FIELD(config, cluster_size),
	  RANGE(1, CONFIG_MAX_WORKERS), .fallback = 1 },
	TABLE_END,
};

/* Flare section 6.4: message sizes up to which each handler is the best. */
static const struct config_key auto_handler_keys[] = {
	{ "tree_up_to", CONFIG_TYPE_INTEGER, FIELD(config, tree_up_to), RANGE(0, INT64_MAX),
	  .fallback = 128 << 10 },
	{ "multi2_up_to", CONFIG_TYPE_INTEGER, FIELD(config, multi2_up_to), RANGE(0, INT64_MAX),
	  .fallback = 256 << 10 },
	{ "multi4_up_to", CONFIG_TYPE_INTEGER, FIELD(config, multi4_up_to), RANGE(0, INT64_MAX),
	  .fallback = 512 << 10 },
	TABLE_END,
};

static const struct config_key idle_keys[] = {
	{ "policy", CONFIG_TYPE_CHOICE, FIELD(config, idle_policy), .choices = idle_policies,
	  .fallback = CONFIG_IDLE_SLEEP },
	{ "empty_polls", CONFIG_TYPE_INTEGER, FIELD(config, idle_empty_polls), RANGE(1, 1000000),
	  .fallback = 64 },
	{ "sleep_us", CONFIG_TYPE_INTEGER, FIELD(config, idle_sleep_us), RANGE(1, 100000),
	  .fallback = 50 },
	TABLE_END,
};

static const struct config_key limits_keys[] = {
	{ "max_jobs", CONFIG_TYPE_INTEGER, FIELD(config, max_jobs), RANGE(1, 4096), .fallback = 8 },
	{ "slots", CONFIG_TYPE_INTEGER, FIELD(config, slots), RANGE(2, 1048576), .fallback = 4096 },
	{ "shared_slots", CONFIG_TYPE_INTEGER, FIELD(config, shared_slots), RANGE(2, 1048576),
	  .fallback = 1024 },
	{ "key_rate", CONFIG_TYPE_INTEGER, FIELD(config, key_rate), RANGE(1000, 100000000),
	  .fallback = 10000000 },
	TABLE_END,
};

static const struct config_key mac_table_keys[] = {
	{ "entries", CONFIG_TYPE_INTEGER, FIELD(config, mac_entries), RANGE(64, 1048576),
	  .fallback = 8192 },
	{ "age_seconds", CONFIG_TYPE_INTEGER, FIELD(config, mac_age_seconds), RANGE(1, 1000000),
	  .fallback = 300 },
	TABLE_END,
};

static const struct config_key routing_keys[] = {
	{ "probe_ms", CONFIG_TYPE_INTEGER, FIELD(config, probe_ms), RANGE(10, 1000),
	  .fallback = 50 },
	{ "probe_misses", CONFIG_TYPE_INTEGER, FIELD(config, probe_misses), RANGE(2, 20),
	  .fallback = 4 },
	TABLE_END,
};

static const struct config_key memif_keys[] = {
	{ "socket", CONFIG_TYPE_PATH, FIELD(config, memif_socket),
	  .fallback_text = "/run/fanin/memif.sock" },
	TABLE_END,
};

static const struct config_key port_keys[] = {
	{ "name", CONFIG_TYPE_NAME, .required = true, FIELD(config_port, name) },
	{ "interface", CONFIG_TYPE_INTERFACE, FIELD(config_port, device), .derived = true },
	{ "vdev", CONFIG_TYPE_VDEV, FIELD(config_port, device), .derived = true },
	{ "pci", CONFIG_TYPE_PCI, FIELD(config_port, device), .derived = true },
	{ "memif", CONFIG_TYPE_INTEGER, FIELD(config_port, memif_id), RANGE(0, 65535),
	  .derived = true },
	{ "mtu", CONFIG_TYPE_INTEGER, FIELD(config_port, mtu), RANGE(576, CONFIG_MAX_MTU),
	  .fallback = 1500 },
	{ "routed", CONFIG_TYPE_BOOLEAN, FIELD(config_port, routed) },
	/* 0: none, or the default of pipeline/base/egress.h. */
	{ "rate_mbit", CONFIG_TYPE_INTEGER, FIELD(config_port, rate_mbit), RANGE(1, 400000),
	  .derived = true },
	{ "bucket_bytes", CONFIG_TYPE_INTEGER, FIELD(config_port, bucket_bytes),
	  RANGE(1, CONFIG_MAX_QUEUE), .derived = true },
	{ "queue_bytes", CONFIG_TYPE_INTEGER, FIELD(config_port, queue_bytes),
	  RANGE(1, CONFIG_MAX_QUEUE), .derived = true },
	{ "ecn_bytes", CONFIG_TYPE_INTEGER, FIELD(config_port, ecn_bytes),
	  RANGE(1, CONFIG_MAX_QUEUE), .derived = true },
	{ "detour_bytes", CONFIG_TYPE_INTEGER, FIELD(config_port, detour_bytes),
	  RANGE(1, CONFIG_MAX_QUEUE), .derived = true },
	TABLE_END,
};

static const struct config_key via_keys[] = {
	{ "port", CONFIG_TYPE_NAME, .required = true, FIELD(config_next_hop, port_name) },
	{ "ip", CONFIG_TYPE_IPV4, .required = true, FIELD(config_next_hop, ip_be) },
	TABLE_END,
};

static const struct config_key route_keys[] = {
	{ "prefix", CONFIG_TYPE_PREFIX, .required = true, FIELD(config_route, prefix) },
	{ "via", CONFIG_TYPE_ARRAY, .required = true, FIELD(config_route, via),
	  RANGE(1, CONFIG_MAX_NEXT_HOPS), .keys = via_keys,
	  .item_size = sizeof(struct config_next_hop),
	  .count_offset = offsetof(struct config_route, n_via) },
	TABLE_END,
};

static const struct config_key fault_keys[] = {
	{ "drop", CONFIG_TYPE_SHARE, FIELD(config, fault_drop) },
	{ "duplicate", CONFIG_TYPE_SHARE, FIELD(config, fault_duplicate) },
	{ "reorder", CONFIG_TYPE_SHARE, FIELD(config, fault_reorder) },
	{ "seed", CONFIG_TYPE_INTEGER, FIELD(config, fault_seed), RANGE(0, INT64_MAX),
	  .fallback = 1 },
	TABLE_END,
};

const struct config_key config_keys[] = {
	{ "name", CONFIG_TYPE_NAME, FIELD(config, name), .fallback_text = "fanin" },
	{ "address", CONFIG_TYPE_OBJECT, .required = true, .keys = address_keys },
	{ "control", CONFIG_TYPE_OBJECT, .keys = control_keys },
	{ "metrics", CONFIG_TYPE_OBJECT, .keys = metrics_keys },
	{ "log_level", CONFIG_TYPE_CHOICE, FIELD(config, log_level), .choices = log_levels,
	  .fallback = LOG_LEVEL_INFO },
	{ "memory", CONFIG_TYPE_OBJECT, .keys = memory_keys },
	{ "mempool", CONFIG_TYPE_OBJECT, .keys = mempool_keys },
	{ "workers", CONFIG_TYPE_ARRAY, FIELD(config, workers), RANGE(1, CONFIG_MAX_WORKERS),
	  .keys = worker_keys, .item_size = sizeof(struct config_worker),
	  .count_offset = offsetof(struct config, n_workers), .derived = true,
	  .finish_item = finish_worker },
	{ "scheduling", CONFIG_TYPE_OBJECT, .keys = scheduling_keys },
	{ "auto_handler", CONFIG_TYPE_OBJECT, .keys = auto_handler_keys },
	{ "idle", CONFIG_TYPE_OBJECT, .keys = idle_keys },
	{ "limits", CONFIG_TYPE_OBJECT, .keys = limits_keys },
	{ "mac_table", CONFIG_TYPE_OBJECT, .keys = mac_table_keys },
	{ "routing", CONFIG_TYPE_OBJECT, .keys = routing_keys },
	{ "memif", CONFIG_TYPE_OBJECT, .keys = memif_keys },
	{ "ports", CONFIG_TYPE_ARRAY, .required = true, FIELD(config, ports),
	  RANGE(1, CONFIG_MAX_PORTS), .keys = port_keys, .item_size = sizeof(struct config_port),
	  .count_offset = offsetof(struct config, n_ports), .finish_item = finish_port },
	{ "routes", CONFIG_TYPE_ARRAY, FIELD(config, routes), RANGE(0, CONFIG_MAX_ROUTES),
	  .keys = route_keys, .item_size = sizeof(struct config_route),
	  .count_offset = offsetof(struct config, n_routes) },
	{ "faults", CONFIG_TYPE_OBJECT, .keys = fault_keys },
	TABLE_END,
};
