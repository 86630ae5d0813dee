/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ports in the answers to control commands: their state and counters, and frames dropped there that
 * no worker has seen. Main thread.
 */
#include <net/if.h>
#include <stdlib.h>

#include "pipeline/base/egress.h"
#include "control/args.h"
#include "switch/commands.h"
#include "switch/kernel_counters.h"
#include "switch/ports.h"
#include "switch/ports_packet.h"

static json_t *
describe_egress(const struct daemon *daemon, uint16_t index, const struct port_counters *counters)
{
	const struct egress *egress = &daemon->pipeline->egress[index];
	uint32_t frames;
	const uint64_t bytes = egress_backlog(daemon->pipeline, index, &frames);

	return json_pack("{s:I,s:I,s:I,s:I,s:I,s:i,s:I,s:i,s:I}", "rate_mbit",
			 (json_int_t)egress->options.rate_mbit, "bucket_bytes",
			 (json_int_t)egress->options.bucket_bytes, "queue_bytes",
			 (json_int_t)egress->options.queue_bytes, "ecn_bytes",
			 (json_int_t)egress->options.ecn_bytes, "detour_bytes",
			 (json_int_t)egress->options.detour_bytes, "queue_frames", egress->frames,
			 "backlog_bytes", (json_int_t)bytes, "backlog_frames", (int)frames,
			 "ecn_marked", (json_int_t)counters->ecn_marked);
}

/* Lists all kinds, so that the metrics have zeroes before anything happens. */
static json_t *
describe_troubles(const struct daemon *daemon, uint16_t index)
{
	json_t *list = json_array();

	for (unsigned int kind = 0; kind < PORT_TROUBLE_COUNT; kind++) {
		const struct port_trouble *trouble = &daemon->watch.each[index].troubles[kind];

		json_array_append_new(list, json_pack("{s:s,s:b,s:I,s:s}", "name",
						      port_trouble_name(kind), "now", trouble->now,
						      "count", (json_int_t)trouble->count, "text",
						      trouble->text));
	}
	return list;
}

static json_t *
describe_super_frames(const struct daemon *daemon, uint16_t index,
		      const struct port_driver_stats *stats)
{
	return json_pack("{s:b,s:I,s:I,s:I,s:I}", "made",
			 ports_make_super_frames(&daemon->ports.ports[index]), "rx",
			 (json_int_t)stats->rx_super_frames, "rx_segments",
			 (json_int_t)stats->rx_super_segments, "tx",
			 (json_int_t)stats->tx_super_frames, "tx_segments",
			 (json_int_t)stats->tx_super_segments);
}

/* interfaces: the result of kernel_interfaces_read. */
static json_t *
describe_port(const struct daemon *daemon, uint16_t index, const struct port_counters *counters,
	      const char *interfaces)
{
	const struct pipeline_port *port = &daemon->pipeline->ports[index];
	const struct config_port *config = &daemon->config->ports[index];
	const char *device = config->device;
	struct port_driver_stats stats;
	struct kernel_drops drops = { 0 };
	struct rte_ether_addr mac;
	const char *driver;
	char interface[IFNAMSIZ];

	if (!config->pci && config_vdev_interface(device, interface, sizeof(interface)))
		drops = kernel_interface_drops(interfaces, interface);
	ports_describe(&daemon->ports, index, &driver, &mac);
	ports_stats(&daemon->ports, index, &stats);
	return json_pack(
		"{s:s,s:s,s:s,s:i,s:o,s:b,s:b,s:i,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:o,s:o,s:o,s:s*}",
		"name", port->name, "device", device, "driver", driver, "mtu", port->mtu, "mac",
		json_mac(mac.addr_bytes), "link",
		ports_link_is_up(&daemon->ports, config, port, index), "routed", port->routed,
		"queues", port->n_queues, "rx_frames", (json_int_t)counters->rx_frames, "rx_bytes",
		(json_int_t)counters->rx_bytes, "rx_missed", (json_int_t)stats.rx_missed,
		"rx_errors", (json_int_t)stats.rx_errors, "rx_refused",
		(json_int_t)stats.rx_refused, "tx_frames",
		(json_int_t)(counters->tx_frames - stats.tx_errors), "tx_bytes",
		(json_int_t)counters->tx_bytes, "tx_dropped",
		(json_int_t)(counters->tx_dropped + stats.tx_errors), "tx_errors",
		(json_int_t)stats.tx_errors, "tx_delayed", (json_int_t)counters->tx_delayed,
		"link_rx_dropped", (json_int_t)drops.rx, "link_tx_dropped", (json_int_t)drops.tx,
		"super_frames", describe_super_frames(daemon, index, &stats), "egress",
		describe_egress(daemon, index, counters), "troubles",
		describe_troubles(daemon, index), "why", config->by_rule ? config->why : NULL);
}

static json_t *
list_ports(const struct daemon *daemon)
{
	char *interfaces = kernel_interfaces_read();
	json_t *list = json_array();
	struct counters sum;

	pipeline_counters(daemon->pipeline, &sum);
	for (uint16_t i = 0; i < daemon->pipeline->n_ports; i++)
		json_array_append_new(list, describe_port(daemon, i, &sum.ports[i], interfaces));
	free(interfaces);
	return list;
}

json_t *
command_ports_list(void *user, const json_t *args, struct control_error *error)
{
	return args_check_known(args, error) != 0 ? NULL
						  : json_pack("{s:o}", "ports", list_ports(user));
}

/* Places where frames are lost before a worker has seen them or after a worker has sent them. */
static const struct place {
	const char *counter; /* as in a port's object */
	const char *text;
} places[] = {
	{ "rx_missed", "the port's device or socket was full: no worker took frames in time" },
	{ "rx_errors", "received at the port: damaged, or longer than it takes" },
	{ "rx_refused", "received at the port: a super-frame or checksum that can't be passed on" },
	{ "tx_errors", "the port's device will never take these frames" },
	{ "link_rx_dropped", "the kernel dropped them at the port's interface on the way in" },
	{ "link_tx_dropped",
	  "the kernel dropped them at the port's interface on the way out; packet sockets send these again" },
};

static json_t *
lost_at(const char *port, const struct place *place, json_int_t count)
{
	return json_pack("{s:s*,s:s,s:I,s:s}", "port", port, "name", place->counter, "count", count,
			 "text", place->text);
}

json_t *
command_drops_elsewhere(const struct daemon *daemon)
{
	static const struct place backlog = {
		"backlog_dropped",
		"the kernel's backlog was full: of the whole machine, not of the switch alone",
	};
	json_t *ports = list_ports(daemon);
	json_t *list = json_array();
	json_t *port;
	size_t i;

	json_array_foreach(ports, i, port) {
		for (size_t k = 0; k < RTE_DIM(places); k++)
			json_array_append_new(
				list, lost_at(json_string_value(json_object_get(port, "name")),
					      &places[k],
					      json_integer_value(
						      json_object_get(port, places[k].counter))));
	}
	json_array_append_new(list, lost_at(NULL, &backlog, (json_int_t)kernel_backlog_drops()));
	json_decref(ports);
	return list;
}
