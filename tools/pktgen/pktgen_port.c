/* SPDX-License-Identifier: BSD-3-Clause */
/* The generator's ports: any ethdev, one queue each way, no offloads. See pktgen.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <bpf/libbpf.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_mempool.h>
#include <xdp/libxdp.h>

#include "tools/measure/machine.h"
#include "tools/pktgen/pktgen.h"

#define RING_SIZE 512
/*
 * Packets that a port can hold: AF_XDP keeps twice its ring in the fill ring, and the rest in
 * others.
 */
#define MBUFS_PER_PORT (4 * RING_SIZE)
#define MBUFS_SPARE 2047
#define POOL_CACHE 256
/*
 * Bytes in addition to the MTU: the Ethernet header, and XDP's headroom or a packet socket's own
 * header.
 */
#define FRAME_OVERHEAD (256 + RTE_ETHER_HDR_LEN)
#define MAX_ARGS 256
#define ARG_LEN 512

struct eal_args {
	char *argv[MAX_ARGS + 1];
	int argc;
};

static void __attribute__((format(printf, 2, 3)))
add(struct eal_args *args, const char *format, ...)
{
	char text[ARG_LEN];
	va_list list;

	va_start(list, format);
	vsnprintf(text, sizeof(text), format, list);
	va_end(list);
	if (args->argc < MAX_ARGS)
		args->argv[args->argc++] = strdup(text);
}

static bool
is_pci(const char *device)
{
	unsigned int domain, bus, slot, function;

	return sscanf(device, "%x:%x:%x.%x", &domain, &bus, &slot, &function) == 4;
}

/* Writes the vdev's name, which must be unique in DPDK: a name without a number gets the port's. */
static void
device_name(const char *device, uint16_t port, char *name, size_t len)
{
	const size_t driver_len = strcspn(device, ",");
	const char last = driver_len == 0 ? '\0' : device[driver_len - 1];

	if (is_pci(device) || (last >= '0' && last <= '9'))
		snprintf(name, len, "%.*s", (int)driver_len, device);
	else
		snprintf(name, len, "%.*s_%u", (int)driver_len, device, port);
}

/*
 * Returns the size of AF_PACKET's ring frames, which have to hold the port's frames; 0 for other
 * devices.
 */
static uint32_t
packet_frame(const char *device, uint32_t mtu)
{
	const char *given = strstr(device, "framesz=");
	uint32_t frame = 2048;

	if (strncmp(device, "net_af_packet", strlen("net_af_packet")) != 0)
		return 0;
	if (given != NULL)
		return (uint32_t)strtoul(given + strlen("framesz="), NULL, 10);
	while (frame < mtu + FRAME_OVERHEAD)
		frame *= 2;
	return frame;
}

static void
add_device(struct eal_args *args, const struct pktgen_options *options, uint16_t port)
{
	const char *device = options->ports[port];
	const uint32_t frame = packet_frame(device, options->mtu);
	char name[PKTGEN_NAME_LEN];

	if (is_pci(device)) {
		add(args, "-a");
		add(args, "%s", device);
		return;
	}
	device_name(device, port, name, sizeof(name));
	add(args, "--vdev");
	if (frame != 0 && strstr(device, "framesz=") == NULL && strstr(device, "blocksz=") == NULL)
		add(args, "%s%s,framesz=%u,blocksz=%u", name, device + strcspn(device, ","), frame,
		    RTE_MAX(frame, 4096u));
	else
		add(args, "%s%s", name, device + strcspn(device, ","));
}

/* Returns the bytes of a packet buffer after its headroom. */
static uint32_t
data_room(const struct pktgen_options *options)
{
	uint32_t room = 2048;

	room = RTE_MAX(room, options->mtu + FRAME_OVERHEAD);
	for (uint16_t p = 0; p < options->n_ports; p++)
		room = RTE_MAX(room, packet_frame(options->ports[p], options->mtu));
	return RTE_ALIGN_CEIL(room, RTE_CACHE_LINE_SIZE);
}

static uint32_t
mbufs(const struct pktgen_options *options)
{
	return options->n_ports * MBUFS_PER_PORT + MBUFS_SPARE;
}

/*
 * Runs this program again without hugepages, which others have taken since they were counted.
 * Returns if that is not possible.
 */
static void
start_again(const struct pktgen *gen)
{
	static char no_huge[] = "--no-huge";
	int argc = 0;
	char **argv;

	while (gen->argv[argc] != NULL)
		argc++;
	argv = calloc((size_t)argc + 2, sizeof(*argv));
	if (argv == NULL)
		return;
	memcpy(argv, gen->argv, (size_t)argc * sizeof(*argv));
	argv[argc] = no_huge;
	fprintf(stderr,
		"fanin-pktgen: hugepages that were free can't be had: starting again with normal pages\n");
	execv("/proc/self/exe", argv);
	free(argv);
}

static int
eal_open(struct pktgen *gen)
{
	const struct pktgen_options *options = gen->options;
	const unsigned int megabytes =
		64 + (unsigned int)((uint64_t)mbufs(options) * (data_room(options) + 512) >> 20);
	const bool huge = options->huge && machine_free_hugepages() >= megabytes / 2 + 1;
	const long last_cpu = sysconf(_SC_NPROCESSORS_CONF) - 1;
	struct eal_args args = { 0 };
	char *argv[MAX_ARGS + 1];
	char *words = options->eal == NULL ? NULL : strdup(options->eal);
	char *rest = words;
	bool pci = false;
	int ret;

	add(&args, "fanin-pktgen");
	add(&args, "--no-telemetry");
	add(&args, "--log-level=error");
	add(&args, "-m");
	add(&args, "%u", megabytes);
	add(&args, "--lcores");
	if (options->cpu >= 0)
		add(&args, "0@%d", options->cpu);
	else
		add(&args, "0@(0-%ld)", last_cpu);
	if (huge) {
		add(&args, "--in-memory");
	} else {
		add(&args, "--no-huge");
		add(&args, "--no-shconf");
	}
	for (uint16_t p = 0; p < options->n_ports; p++) {
		pci = pci || is_pci(options->ports[p]);
		add_device(&args, options, p);
	}
	if (!pci) {
		add(&args, "--no-pci");
		/* AF_XDP needs a pool without gaps, which only virtual addresses give. */
		add(&args, "--iova-mode=va");
	}
	for (char *word = strsep(&rest, " "); word != NULL; word = strsep(&rest, " ")) {
		if (word[0] != '\0')
			add(&args, "%s", word);
	}
	free(words);
	/* The EAL permutes the array that it is given. */
	memcpy(argv, args.argv, sizeof(argv));
	ret = rte_eal_init(args.argc, argv);
	for (int i = 0; i < args.argc; i++)
		free(args.argv[i]);
	/* EACCES: they were gone when the EAL counted them. */
	if (ret < 0 && huge && (rte_errno == ENOMEM || rte_errno == EACCES))
		start_again(gen);
	if (ret < 0)
		return pktgen_fail(gen, -EIO,
				   "DPDK's environment or a device of --port does not start: %s",
				   rte_strerror(rte_errno));
	return 0;
}

static int
port_open(struct pktgen *gen, uint16_t index)
{
	const struct pktgen_options *options = gen->options;
	struct pktgen_port *port = &gen->ports[index];
	struct rte_eth_conf conf = { 0 };
	uint16_t rx_size = RING_SIZE;
	uint16_t tx_size = RING_SIZE;
	char name[PKTGEN_NAME_LEN];
	int ret;

	device_name(options->ports[index], index, name, sizeof(name));
	if (rte_eth_dev_get_port_by_name(name, &port->ethdev) != 0)
		return pktgen_fail(gen, -ENODEV,
				   "--port: device \"%s\" was not found or did not open",
				   options->ports[index]);
	/* vdevs on kernel interfaces have the interface's MTU. */
	if (is_pci(options->ports[index]))
		conf.rxmode.mtu = options->mtu;
	ret = rte_eth_dev_configure(port->ethdev, 1, 1, &conf);
	if (ret == 0)
		ret = rte_eth_dev_adjust_nb_rx_tx_desc(port->ethdev, &rx_size, &tx_size);
	if (ret == 0)
		ret = rte_eth_rx_queue_setup(port->ethdev, 0, rx_size, SOCKET_ID_ANY, NULL,
					     gen->pool);
	if (ret == 0)
		ret = rte_eth_tx_queue_setup(port->ethdev, 0, tx_size, SOCKET_ID_ANY, NULL);
	if (ret == 0)
		ret = rte_eth_dev_start(port->ethdev);
	if (ret != 0)
		return pktgen_fail(gen, ret, "--port: device \"%s\" does not start: %s",
				   options->ports[index], rte_strerror(-ret));
	port->open = true;
	/*
	 * Hosts have their own addresses. A device without promiscuous mode delivers everything
	 * anyway.
	 */
	rte_eth_promiscuous_enable(port->ethdev);
	return 0;
}

int
pktgen_ports_open(struct pktgen *gen)
{
	const struct pktgen_options *options = gen->options;
	const uint32_t room = data_room(options) + RTE_PKTMBUF_HEADROOM;
	int ret;

	/* These libraries log every failed attempt before they succeed. */
	libbpf_set_print(NULL);
	libxdp_set_print(NULL);
	ret = eal_open(gen);
	if (ret != 0)
		return ret;
	gen->pool = rte_pktmbuf_pool_create("pktgen", mbufs(options), POOL_CACHE, 0, (uint16_t)room,
					    SOCKET_ID_ANY);
	if (gen->pool == NULL)
		return pktgen_fail(gen, -ENOMEM, "no memory for %u packets of %u bytes: %s",
				   mbufs(options), room, rte_strerror(rte_errno));
	for (uint16_t p = 0; p < options->n_ports; p++) {
		ret = port_open(gen, p);
		if (ret != 0)
			return ret;
	}
	return 0;
}

void
pktgen_port_flush(struct pktgen_port *port)
{
	uint16_t sent;

	if (port->n_tx == 0)
		return;
	sent = rte_eth_tx_burst(port->ethdev, 0, port->tx, port->n_tx);
	if (sent < port->n_tx)
		port->tx_full++;
	port->n_tx = (uint16_t)(port->n_tx - sent);
	memmove(port->tx, port->tx + sent, port->n_tx * sizeof(port->tx[0]));
}

uint64_t
pktgen_ports_missed(const struct pktgen *gen)
{
	uint64_t sum = 0;

	for (uint16_t p = 0; p < gen->options->n_ports; p++) {
		struct rte_eth_stats stats;

		if (rte_eth_stats_get(gen->ports[p].ethdev, &stats) == 0)
			sum += stats.imissed + stats.ierrors + stats.rx_nombuf + stats.oerrors;
	}
	return sum;
}

void
pktgen_ports_close(struct pktgen *gen)
{
	for (uint16_t p = 0; p < gen->options->n_ports; p++) {
		struct pktgen_port *port = &gen->ports[p];

		if (!port->open)
			continue;
		pktgen_port_flush(port);
		rte_pktmbuf_free_bulk(port->tx, port->n_tx);
		port->n_tx = 0;
		rte_eth_dev_stop(port->ethdev);
		rte_eth_dev_close(port->ethdev);
		port->open = false;
	}
	rte_mempool_free(gen->pool);
	gen->pool = NULL;
	rte_eal_cleanup();
}
