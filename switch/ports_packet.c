/* SPDX-License-Identifier: BSD-3-Clause */
/* See ports_packet.h. */
#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_kvargs.h>

#include "switch/log.h"
#include "switch/packet_port.h"
#include "switch/ports_packet.h"

#define MAX_FRAMES (1u << 20)

/* The argument names of DPDK's driver, so that configurations for it stay valid. */
static const char *const argument_names[] = { "iface",   "qpairs",       "framesz", "framecnt",
					      "blocksz", "qdisc_bypass", NULL };

/*
 * Reads a number from low to high; without such an argument, *value is unchanged. Returns false if
 * the number is wrong.
 */
static bool
read_number(const struct rte_kvargs *arguments, const char *name, uint32_t low, uint32_t high,
	    uint32_t *value)
{
	const char *text = rte_kvargs_get(arguments, name);
	unsigned long number;
	char *end;

	if (text == NULL)
		return true;
	errno = 0;
	number = strtoul(text, &end, 10);
	if (errno != 0 || text[0] < '0' || text[0] > '9' || *end != '\0' || number < low ||
	    number > high)
		return false;
	*value = (uint32_t)number;
	return true;
}

static int
read_arguments(const struct rte_kvargs *arguments, struct packet_port_options *options, char *error)
{
	uint32_t queues = 1;
	uint32_t bypass = 0;
	uint32_t block = 0;
	const struct {
		const char *name;
		uint32_t low;
		uint32_t high;
		uint32_t *value;
	} numbers[] = {
		{ "qpairs", 1, PACKET_PORT_MAX_QUEUES, &queues },
		{ "framesz", 256, UINT16_MAX, &options->frame_bytes },
		{ "framecnt", 1, MAX_FRAMES, &options->n_frames },
		{ "blocksz", 0, UINT32_MAX, &block }, /* chosen by the frames' size */
		{ "qdisc_bypass", 0, 1, &bypass },
	};

	for (size_t i = 0; i < RTE_DIM(numbers); i++) {
		if (!read_number(arguments, numbers[i].name, numbers[i].low, numbers[i].high,
				 numbers[i].value)) {
			snprintf(error, PACKET_PORT_ERROR_LEN,
				 "found %s=%s, expected a number from %u to %u", numbers[i].name,
				 rte_kvargs_get(arguments, numbers[i].name), numbers[i].low,
				 numbers[i].high);
			return -EINVAL;
		}
	}
	options->n_queues = (uint16_t)queues;
	options->qdisc_bypass = bypass != 0;
	options->interface = rte_kvargs_get(arguments, "iface");
	if (options->interface == NULL || if_nametoindex(options->interface) == 0) {
		snprintf(error, PACKET_PORT_ERROR_LEN,
			 "expected iface= with the name of an interface");
		return -ENODEV;
	}
	return 0;
}

/*
 * Reads a port's arguments into the options. Returns the arguments, which the options point into,
 * to be freed with rte_kvargs_free; or NULL with *ret and why (PACKET_PORT_ERROR_LEN bytes) set.
 */
static struct rte_kvargs *
parse_arguments(const struct config_port *config, struct packet_port_options *options, int *ret,
		char *why)
{
	const char *text = config->device + strcspn(config->device, ",");
	struct rte_kvargs *arguments = rte_kvargs_parse(text[0] == ',' ? text + 1 : text,
							argument_names);

	if (arguments == NULL) {
		snprintf(
			why, PACKET_PORT_ERROR_LEN,
			"expected arguments among iface, qpairs, framesz, framecnt, blocksz and qdisc_bypass");
		*ret = -EINVAL;
		return NULL;
	}
	*ret = read_arguments(arguments, options, why);
	if (*ret == 0)
		return arguments;
	rte_kvargs_free(arguments);
	return NULL;
}

static int
does_not_start(const struct config_port *config, uint16_t index, int ret, const char *why,
	       char *error)
{
	snprintf(error, CONFIG_ERROR_LEN,
		 "ports[%u]: device \"%.128s\" of port \"%s\" does not start: %s", index,
		 config->device, config->name, why);
	return ret;
}

int
ports_check_packet(const struct config *config, char *error)
{
	char why[PACKET_PORT_ERROR_LEN];

	for (uint16_t i = 0; i < config->n_ports; i++) {
		struct packet_port_options options = { 0 };
		struct rte_kvargs *arguments;
		int ret;

		if (!config_port_is_packet(&config->ports[i]))
			continue;
		arguments = parse_arguments(&config->ports[i], &options, &ret, why);
		if (arguments == NULL)
			return does_not_start(&config->ports[i], i, ret, why, error);
		rte_kvargs_free(arguments);
	}
	return 0;
}

/* Logs whether frames can leave as super-frames, which depends on the interface. */
static void
tell_super_frames(const struct config_port *config, const struct pipeline_port *port)
{
	char interface[IF_NAMESIZE];

	config_vdev_interface(config->device, interface, sizeof(interface));
	if (packet_port_is_whole(port->handle))
		log_info("port \"%s\": the interface \"%s\" takes super-frames of UDP now",
			 config->name, interface);
	else
		log_info(
			"port \"%s\": the interface \"%s\" takes no super-frames of UDP (tx-udp-segmentation is off, see ethtool -k %s): "
			"frames leave one by one",
			config->name, interface, interface);
}

int
ports_open_packet(const struct config *config, uint16_t index, struct rte_mempool *pool,
		  struct pipeline_port *port, char *error)
{
	struct packet_port_options options = { .mtu = port->mtu,
					       .udp_port = config->udp_port,
					       .pool = pool };
	struct rte_kvargs *arguments;
	struct packet_port *packet;
	char why[PACKET_PORT_ERROR_LEN];
	int ret;

	options.number = (uint16_t)(PORT_DRIVER_FIRST + index);
	arguments = parse_arguments(&config->ports[index], &options, &ret, why);
	if (arguments != NULL)
		ret = packet_port_open(&options, &packet, why);
	rte_kvargs_free(arguments);
	if (ret != 0)
		return does_not_start(&config->ports[index], index, ret, why, error);
	port->ethdev = options.number;
	port->n_queues = options.n_queues;
	port->driver = &packet_port_driver;
	port->handle = packet;
	if (packet_port_kernel(packet) != SUPER_FRAME_KERNEL_TAKES)
		log_warning(
			"port \"%s\": this kernel's packet sockets take no super-frames of UDP%s (Linux 6.2 is the first one whose do): "
			"frames leave one by one, and super-frames that hosts send are lost",
			config->ports[index].name,
			packet_port_kernel(packet) == SUPER_FRAME_KERNEL_OLD
				? ", as its release says"
				: "");
	else if (!packet_port_is_whole(packet))
		tell_super_frames(&config->ports[index], port);
	return 0;
}

bool
ports_make_super_frames(const struct pipeline_port *port)
{
	return port->driver == &packet_port_driver && packet_port_is_whole(port->handle);
}

void
ports_set_super_frames(const struct config_port *config, const struct pipeline_port *port,
		       bool interface_takes)
{
	if (packet_port_set_whole(port->handle, interface_takes))
		tell_super_frames(config, port);
}
