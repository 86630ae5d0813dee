/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * See packet_port.h: how sockets are set up. Each queue is a socket with a ring. The sockets of a
 * port with several queues are a fanout group, in which the kernel spreads frames by a hash of
 * addresses and ports; all fragments of a packet have the same hash, so nothing is reassembled.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>

#include "switch/packet_port_internal.h"

/* Size of a ring's blocks; a longer frame gets a block of its own. */
#define BLOCK_BYTES (64u * 1024)

/*
 * A ring must hold the frames that come in while its worker does not run: some ten milliseconds on
 * a machine whose processes share cores. The worker goes through the whole ring, so a ring that
 * exceeds the cache costs a little.
 */
#define RING_BYTES (8u << 20)
#define RING_MIN_FRAMES 128u
#define RING_MAX_FRAMES 4096u

/* The Ethernet header and two VLAN tags. */
#define FRAME_EXTRA (ETH_HLEN + 8u)

/* Frames count against the send buffer until the receiver's kernel has taken them. */
#define SEND_BUFFER_BYTES (4 << 20)

/* The receive buffer holds waiting super-frames, with the kernel's overhead for each. */
#define RECEIVE_BUFFER_BYTES (8 << 20)

static_assert(TPACKET_ALIGN(TPACKET2_HDRLEN + 16) - ETH_HLEN + PACKET_PORT_RESERVE +
			      sizeof(struct virtio_net_hdr) ==
		      PACKET_PORT_OFFSET,
	      "frame offset");

static int __attribute__((format(printf, 2, 3))) fail(char *error, const char *format, ...)
{
	const int errnum = errno;
	char what[PACKET_PORT_ERROR_LEN / 2];
	va_list list;

	va_start(list, format);
	vsnprintf(what, sizeof(what), format, list);
	va_end(list);
	snprintf(error, PACKET_PORT_ERROR_LEN, "%s: %s", what, strerror(errnum));
	return errnum == 0 ? -EIO : -errnum;
}

/* Computes the layout of a queue's ring. */
static void
ring_describe(const struct packet_port_options *options, struct tpacket_req *request)
{
	const uint32_t page = (uint32_t)sysconf(_SC_PAGESIZE);
	const uint32_t least = RTE_ALIGN_CEIL(PACKET_PORT_OFFSET + options->mtu + FRAME_EXTRA, 64u);
	const uint32_t frame = options->frame_bytes == 0
				       ? least
				       : RTE_ALIGN_CEIL(options->frame_bytes, 64u);
	const uint32_t block = frame > BLOCK_BYTES ? RTE_ALIGN_CEIL(frame, page) : BLOCK_BYTES;
	const uint32_t per_block = block / frame;
	uint32_t n = options->n_frames;

	if (n == 0)
		n = RTE_MIN(RTE_MAX(RING_BYTES / frame, RING_MIN_FRAMES), RING_MAX_FRAMES);
	request->tp_frame_size = frame;
	request->tp_block_size = block;
	request->tp_block_nr = (n + per_block - 1) / per_block;
	request->tp_frame_nr = request->tp_block_nr * per_block;
}

static int
ring_open(struct packet_queue *queue, const struct packet_port_options *options, char *error)
{
	struct tpacket_req request;
	uint32_t per_block;

	ring_describe(options, &request);
	if (setsockopt(queue->fd, SOL_PACKET, PACKET_RX_RING, &request, sizeof(request)) != 0)
		return fail(error, "no receive ring of %u frames of %u bytes", request.tp_frame_nr,
			    request.tp_frame_size);
	queue->map_len = (size_t)request.tp_block_size * request.tp_block_nr;
	queue->map = mmap(NULL, queue->map_len, PROT_READ | PROT_WRITE, MAP_SHARED, queue->fd, 0);
	if (queue->map == MAP_FAILED) {
		queue->map = NULL;
		return fail(error, "cannot map a receive ring of %zu bytes", queue->map_len);
	}
	queue->frames = calloc(request.tp_frame_nr, sizeof(*queue->frames));
	if (queue->frames == NULL)
		return fail(error, "no memory for a ring of %u frames", request.tp_frame_nr);
	per_block = request.tp_block_size / request.tp_frame_size;
	queue->n_frames = request.tp_frame_nr;
	queue->head = 0;
	for (uint32_t i = 0; i < queue->n_frames; i++)
		queue->frames[i] = (uint8_t *)queue->map +
				   (size_t)(i / per_block) * request.tp_block_size +
				   (size_t)(i % per_block) * request.tp_frame_size;
	return 0;
}

/* Sets the options of a socket, which receives no frame until it is bound. */
static int
socket_configure(const struct packet_queue *queue, const struct packet_port_options *options,
		 char *error)
{
	const struct {
		int option;
		int value;
		const char *name;
	} settings[] = {
		{ PACKET_VERSION, TPACKET_V2, "TPACKET_V2" },
		{ PACKET_RESERVE, PACKET_PORT_RESERVE, "PACKET_RESERVE" },
		{ PACKET_VNET_HDR, 1, "PACKET_VNET_HDR" },
		/*
		 * The whole of a frame that is longer than the ring's waits in the socket's queue,
		 * too.
		 */
		{ PACKET_COPY_THRESH, 1, "PACKET_COPY_THRESH" },
		{ PACKET_IGNORE_OUTGOING, 1, "PACKET_IGNORE_OUTGOING" },
		{ PACKET_QDISC_BYPASS, options->qdisc_bypass, "PACKET_QDISC_BYPASS" },
	};
	const struct {
		int option;
		int forced;
		int bytes;
	} buffers[] = {
		{ SO_SNDBUF, SO_SNDBUFFORCE, SEND_BUFFER_BYTES },
		{ SO_RCVBUF, SO_RCVBUFFORCE, RECEIVE_BUFFER_BYTES },
	};

	for (size_t i = 0; i < RTE_DIM(settings); i++) {
		if (setsockopt(queue->fd, SOL_PACKET, settings[i].option, &settings[i].value,
			       sizeof(settings[i].value)) != 0)
			return fail(error, "no %s", settings[i].name);
	}
	/*
	 * Without CAP_NET_ADMIN the usual limits stay: frames are refused and retried more often,
	 * and fewer super-frames wait.
	 */
	for (size_t i = 0; i < RTE_DIM(buffers); i++) {
		if (setsockopt(queue->fd, SOL_SOCKET, buffers[i].forced, &buffers[i].bytes,
			       sizeof(buffers[i].bytes)) != 0)
			setsockopt(queue->fd, SOL_SOCKET, buffers[i].option, &buffers[i].bytes,
				   sizeof(buffers[i].bytes));
	}
	return 0;
}

/*
 * Binds a socket. Several sockets of a port receive frames only once all are in the group, so that
 * no frame comes twice.
 */
static int
queue_bind(const struct packet_queue *queue, int ifindex, bool several, char *error)
{
	static struct sock_filter nothing[] = { BPF_STMT(BPF_RET | BPF_K, 0) };
	static const struct sock_fprog program = { .len = 1, .filter = nothing };
	const struct sockaddr_ll address = {
		.sll_family = AF_PACKET,
		.sll_protocol = htons(ETH_P_ALL),
		.sll_ifindex = ifindex,
	};
	const struct packet_mreq promiscuous = { .mr_ifindex = ifindex,
						 .mr_type = PACKET_MR_PROMISC };

	if (several &&
	    setsockopt(queue->fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) != 0)
		return fail(error, "no filter");
	if (bind(queue->fd, (const struct sockaddr *)&address, sizeof(address)) != 0)
		return fail(error, "cannot bind a packet socket");
	if (setsockopt(queue->fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &promiscuous,
		       sizeof(promiscuous)) != 0)
		return fail(error, "no promiscuous mode");
	return 0;
}

/*
 * Joins all sockets in one group. Groups are numbered in each network namespace: the kernel chooses
 * a free number.
 */
static int
queues_join(struct packet_port *port, char *error)
{
	int argument = PACKET_FANOUT_HASH << 16 | PACKET_FANOUT_FLAG_UNIQUEID << 16;
	socklen_t len = sizeof(argument);
	int none = 0;

	for (uint16_t i = 0; i < port->options.n_queues; i++) {
		const int fd = port->queues[i].fd;

		if (setsockopt(fd, SOL_PACKET, PACKET_FANOUT, &argument, sizeof(argument)) != 0)
			return fail(error, "queue %u cannot join the others", i);
		if (i == 0 && getsockopt(fd, SOL_PACKET, PACKET_FANOUT, &argument, &len) != 0)
			return fail(error, "the group of sockets has no number");
		if (i == 0)
			argument = (argument & 0xffff) | PACKET_FANOUT_HASH << 16;
	}
	for (uint16_t i = 0; i < port->options.n_queues; i++) {
		if (setsockopt(port->queues[i].fd, SOL_SOCKET, SO_DETACH_FILTER, &none,
			       sizeof(none)) != 0)
			return fail(error, "the filter stays");
	}
	return 0;
}

static int
read_interface(struct packet_port *port, int fd, int *ifindex, char *error)
{
	struct ifreq request = { 0 };

	memcpy(request.ifr_name, port->interface, sizeof(request.ifr_name));
	if (ioctl(fd, SIOCGIFHWADDR, &request) != 0)
		return fail(error, "no MAC address");
	memcpy(port->mac.addr_bytes, request.ifr_hwaddr.sa_data, sizeof(port->mac.addr_bytes));
	if (ioctl(fd, SIOCGIFINDEX, &request) != 0)
		return fail(error, "no index");
	*ifindex = request.ifr_ifindex;
	return 0;
}

static int
queue_open(struct packet_port *port, uint16_t index, char *error)
{
	struct packet_queue *queue = &port->queues[index];
	int ifindex = 0;
	int ret;

	/* Protocol 0: the socket receives nothing of other interfaces before it is bound. */
	queue->fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
	queue->bypasses = port->options.qdisc_bypass;
	if (queue->fd < 0)
		return fail(error, "no packet socket");
	ret = read_interface(port, queue->fd, &ifindex, error);
	if (ret == 0)
		ret = socket_configure(queue, &port->options, error);
	if (ret == 0)
		ret = ring_open(queue, &port->options, error);
	if (ret == 0)
		ret = queue_bind(queue, ifindex, port->options.n_queues > 1, error);
	return ret;
}

void
packet_port_close_queues(struct packet_port *port)
{
	for (uint16_t i = 0; i < port->options.n_queues; i++) {
		struct packet_queue *queue = &port->queues[i];

		if (queue->map != NULL)
			munmap(queue->map, queue->map_len);
		queue->map = NULL;
		if (queue->fd >= 0)
			close(queue->fd);
		queue->fd = -1;
		free(queue->frames);
		queue->frames = NULL;
		queue->n_frames = 0;
		rte_pktmbuf_free_bulk(queue->segments + queue->next_segment,
				      (unsigned int)(queue->n_segments - queue->next_segment));
		queue->n_segments = 0;
		queue->next_segment = 0;
	}
}

bool
packet_port_is_bound(const struct packet_port *port, unsigned int ifindex)
{
	for (uint16_t i = 0; i < port->options.n_queues; i++) {
		struct sockaddr_ll address;
		socklen_t len = sizeof(address);

		if (port->queues[i].fd < 0 ||
		    getsockname(port->queues[i].fd, (struct sockaddr *)&address, &len) != 0 ||
		    address.sll_ifindex != (int)ifindex)
			return false;
	}
	return true;
}

bool
packet_port_set_whole(struct packet_port *port, bool interface_takes)
{
	const bool whole = interface_takes && port->kernel == SUPER_FRAME_KERNEL_TAKES;
	const bool changed = whole != port->whole;

	port->whole = whole;
	for (uint16_t i = 0; i < port->options.n_queues; i++)
		__atomic_store_n(&port->queues[i].apart, !whole, __ATOMIC_RELAXED);
	return changed;
}

bool
packet_port_is_whole(const struct packet_port *port)
{
	return port->whole;
}

enum super_frame_kernel
packet_port_kernel(const struct packet_port *port)
{
	return port->kernel;
}

int
packet_port_reopen(struct packet_port *port, char *error)
{
	int ret = 0;

	for (uint16_t i = 0; i < port->options.n_queues; i++) {
		if (port->queues[i].fd >= 0)
			packet_queue_count_missed(&port->queues[i]);
	}
	packet_port_close_queues(port);
	packet_port_set_whole(port, super_frame_interface_takes(port->interface));
	for (uint16_t i = 0; i < port->options.n_queues && ret == 0; i++)
		ret = queue_open(port, i, error);
	if (ret == 0 && port->options.n_queues > 1)
		ret = queues_join(port, error);
	if (ret != 0)
		packet_port_close_queues(port);
	return ret;
}

static void
large_free(struct rte_mempool_memhdr *chunk, void *memory)
{
	(void)chunk;
	free(memory);
}

/*
 * Allocates the large packets of a queue, not from DPDK's memory: pages that no frame has used stay
 * free for the machine. Returns NULL if there is not enough memory: super-frames are then received
 * into chains.
 */
static struct rte_mempool *
large_open(const struct packet_queue *queue)
{
	struct rte_pktmbuf_pool_private private = {
		.mbuf_data_room_size = UINT16_MAX,
		.mbuf_priv_size = rte_pktmbuf_priv_size(queue->pool),
	};
	const uint32_t element = (uint32_t)sizeof(struct rte_mbuf) + private.mbuf_priv_size +
				 UINT16_MAX;
	/* No device sees this memory, whose pages may lie anywhere. */
	const unsigned int flags = RTE_MEMPOOL_F_NO_SPREAD | RTE_MEMPOOL_F_NO_IOVA_CONTIG;
	const size_t bytes = (size_t)PACKET_PORT_LARGE *
			     rte_mempool_calc_obj_size(element, flags, NULL);
	char name[RTE_MEMPOOL_NAMESIZE];
	struct rte_mempool *pool;
	void *memory;

	snprintf(name, sizeof(name), "large_%p", (const void *)queue);
	pool = rte_mempool_create_empty(name, PACKET_PORT_LARGE, element, 0, sizeof(private),
					SOCKET_ID_ANY, flags);
	if (pool == NULL)
		return NULL;
	rte_pktmbuf_pool_init(pool, &private);
	memory = aligned_alloc(RTE_MEMPOOL_ALIGN, RTE_ALIGN_CEIL(bytes, (size_t)RTE_MEMPOOL_ALIGN));
	if (memory == NULL ||
	    rte_mempool_populate_iova(pool, memory, RTE_BAD_IOVA, bytes, large_free, memory) <= 0) {
		/* The pool has no chunk yet, so it does not free the memory. */
		free(memory);
		rte_mempool_free(pool);
		return NULL;
	}
	rte_mempool_obj_iter(pool, rte_pktmbuf_init, NULL);
	return pool;
}

int
packet_port_open(const struct packet_port_options *options, struct packet_port **opened,
		 char *error)
{
	const size_t size = sizeof(struct packet_port) +
			    options->n_queues * sizeof(struct packet_queue);
	struct packet_port *port = aligned_alloc(RTE_CACHE_LINE_SIZE,
						 RTE_ALIGN_CEIL(size, (size_t)RTE_CACHE_LINE_SIZE));
	int ret;

	if (port == NULL)
		return fail(error, "no memory for %u queues", options->n_queues);
	memset(port, 0, size);
	port->options = *options;
	snprintf(port->interface, sizeof(port->interface), "%s", options->interface);
	port->options.interface = port->interface;
	for (uint16_t i = 0; i < options->n_queues; i++) {
		port->queues[i].fd = -1;
		port->queues[i].number = options->number;
		port->queues[i].pool = options->pool;
		port->queues[i].udp_port_be = rte_cpu_to_be_16(options->udp_port);
		port->queues[i].large = large_open(&port->queues[i]);
	}
	port->kernel = super_frame_kernel_probe();
	ret = packet_port_reopen(port, error);
	if (ret != 0) {
		packet_port_driver.close(port);
		return ret;
	}
	*opened = port;
	return 0;
}
