/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The public role of a parameter server (fanin/server.h): the server of server.h around a kernel
 * UDP socket. One descriptor, an epoll set of the socket and a timer, becomes readable when there
 * is work.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "hostlib/src/base/caller.h"
#include "hostlib/src/base/clock.h"
#include "hostlib/src/base/options.h"
#include "protocols/pa_atp/host/server.h"
#include "protocols/pa_atp/host/server_socket.h"

#define DEFAULT_JOBS 16
#define MAX_JOBS 1024
#define DEFAULT_MEMORY (UINT64_C(256) << 20)
#define DEFAULT_BUFFER (UINT32_C(8) << 20)
#define DEFAULT_SLOTS 1024
#define RX_BATCH 32
#define RX_BATCHES 8 /* in one round */
#define TX_BATCH 64
#define CONTROL_LEN 64 /* of a received packet: TOS and the count of lost ones */
#define NS_PER_S 1000000000u

#define ENDS_WITH(type, field)                                                                     \
	(offsetof(struct type, field) + sizeof(((struct type *)NULL)->field) == sizeof(struct type))
static_assert(ENDS_WITH(fanin_server_opts, round_trip_us), "padding in fanin_server_opts");
static_assert(ENDS_WITH(fanin_server_job_opts, parameters), "padding in fanin_server_job_opts");
static_assert(ENDS_WITH(fanin_server_job_stats, block_ns), "padding in fanin_server_job_stats");
static_assert(ENDS_WITH(fanin_server_stats, rounds), "padding in fanin_server_stats");
static_assert(sizeof(((struct fanin_server_job_opts *)NULL)->parameters) ==
		      sizeof(((struct fanin_server_spec *)NULL)->parameters),
	      "parameters");

struct rx_packet {
	struct fanin_headers headers; /* the socket delivers what follows the UDP header */
	struct sockaddr_in from;
	struct iovec parts[2];
	union {
		struct cmsghdr align;
		uint8_t bytes[CONTROL_LEN];
	} control;
};

struct tx_packet {
	struct fanin_hdr hdr;
	uint8_t body[FANIN_SERVER_BODY_MAX];
	struct sockaddr_in to;
	struct iovec parts[2];
};

struct fanin_server {
	struct fanin_server_core *core;
	struct server_interface interface;
	struct fanin_error error;
	int socket_fd;
	int timer_fd;
	int epoll_fd;
	uint16_t udp_port;
	uint32_t buffer_bytes;
	uint32_t max_jobs;
	uint32_t max_payload;  /* the longest payload that the interface's MTU carries */
	uint32_t kernel_drops; /* the socket's own count, modulo 2^32 */
	uint64_t memory_bytes;
	uint64_t armed_ns;               /* when the timer expires; UINT64_MAX: it is not armed */
	struct fanin_server_stats stats; /* counters only */
	uint8_t *rx_payloads;
	struct rx_packet rx[RX_BATCH];
	struct mmsghdr rx_messages[RX_BATCH];
	struct tx_packet tx[TX_BATCH];
	struct mmsghdr tx_messages[TX_BATCH];
	unsigned int n_tx;
};

/*
 * Sends the queued packets. A packet that the kernel does not take counts as lost in the network.
 */
static void
tx_flush(struct fanin_server *server)
{
	unsigned int done = 0;

	while (done < server->n_tx) {
		int n = sendmmsg(server->socket_fd, server->tx_messages + done, server->n_tx - done,
				 MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			fanin_server_core_note_drop(server->core,
						    errno == EAGAIN || errno == ENOBUFS
							    ? FANIN_REASON_TX_FULL
							    : FANIN_REASON_TX_REFUSED);
			server->stats.tx_dropped++;
			done++;
			continue;
		}
		for (unsigned int i = done; i < done + (unsigned int)n; i++)
			server->stats.tx_bytes += FANIN_L4_LEN + server->tx_messages[i].msg_len;
		server->stats.tx_packets += (unsigned int)n;
		done += (unsigned int)n;
	}
	server->n_tx = 0;
}

static void
send_packet(void *arg, const struct fanin_server_emission *emission)
{
	struct fanin_server *server = arg;
	struct msghdr *message;
	struct tx_packet *packet;

	if (server->n_tx == TX_BATCH)
		tx_flush(server);
	packet = &server->tx[server->n_tx];
	message = &server->tx_messages[server->n_tx++].msg_hdr;
	packet->hdr = *emission->hdr;
	packet->to = (struct sockaddr_in){
		.sin_family = AF_INET,
		.sin_port = htons(emission->dst_port),
		.sin_addr = { .s_addr = emission->dst_ip_be },
	};
	packet->parts[0] = (struct iovec){ &packet->hdr, sizeof(packet->hdr) };
	packet->parts[1].iov_len = emission->payload_len;
	/* The kernel only reads it. */
	packet->parts[1].iov_base = (void *)(uintptr_t)emission->payload;
	if (!emission->lasting && emission->payload_len != 0) {
		memcpy(packet->body, emission->payload, emission->payload_len);
		packet->parts[1].iov_base = packet->body;
	}
	*message = (struct msghdr){
		.msg_name = &packet->to,
		.msg_namelen = sizeof(packet->to),
		.msg_iov = packet->parts,
		.msg_iovlen = emission->payload_len != 0 ? 2 : 1,
	};
}

static uint64_t
random_number(void *arg)
{
	uint64_t number = 0;

	(void)arg;
	while (getrandom(&number, sizeof(number), 0) != sizeof(number))
		;
	return number;
}

static void
rx_prepare(struct fanin_server *server)
{
	for (unsigned int i = 0; i < RX_BATCH; i++) {
		struct rx_packet *packet = &server->rx[i];

		packet->parts[0] = (struct iovec){ &packet->headers.fanin, FANIN_HDR_LEN };
		packet->parts[1] = (struct iovec){
			server->rx_payloads + (size_t)i * server->max_payload, server->max_payload
		};
		server->rx_messages[i].msg_hdr = (struct msghdr){
			.msg_name = &packet->from,
			.msg_namelen = sizeof(packet->from),
			.msg_iov = packet->parts,
			.msg_iovlen = 2,
			.msg_control = packet->control.bytes,
			.msg_controllen = sizeof(packet->control.bytes),
		};
	}
}

/* Reads the control data that the kernel delivers with a packet. Returns the packet's TOS. */
static uint8_t
rx_read_control(struct fanin_server *server, struct msghdr *message)
{
	uint8_t tos = 0;
	uint32_t lost;

	for (struct cmsghdr *item = CMSG_FIRSTHDR(message); item != NULL;
	     item = CMSG_NXTHDR(message, item)) {
		if (item->cmsg_level == IPPROTO_IP && item->cmsg_type == IP_TOS) {
			memcpy(&tos, CMSG_DATA(item), sizeof(tos));
		} else if (item->cmsg_level == SOL_SOCKET && item->cmsg_type == SO_RXQ_OVFL) {
			memcpy(&lost, CMSG_DATA(item), sizeof(lost));
			server->stats.rx_missed += lost - server->kernel_drops;
			server->kernel_drops = lost;
		}
	}
	return tos;
}

static void
rx_packet(struct fanin_server *server, unsigned int i, uint64_t now_ns)
{
	struct msghdr *message = &server->rx_messages[i].msg_hdr;
	const uint32_t len = server->rx_messages[i].msg_len;
	struct rx_packet *packet = &server->rx[i];
	struct fanin_flow flow = {
		.src_ip_be = packet->from.sin_addr.s_addr,
		.dst_ip_be = server->interface.ip_be,
		.src_port = ntohs(packet->from.sin_port),
		.dst_port = server->udp_port,
	};
	const uint8_t tos = rx_read_control(server, message);

	server->stats.rx_packets++;
	server->stats.rx_bytes += FANIN_L4_LEN + len;
	if (len < FANIN_HDR_LEN) {
		fanin_server_core_note_drop(server->core, FANIN_REASON_HEADER_TRUNCATED);
		return;
	}
	if ((message->msg_flags & MSG_TRUNC) != 0) {
		fanin_server_core_note_drop(server->core, FANIN_REASON_PAYLOAD);
		return;
	}
	/*
	 * Restores the headers that the kernel removed, so that the same checks apply everywhere.
	 */
	fanin_wire_encode_l4(&packet->headers, &flow, len - FANIN_HDR_LEN);
	packet->headers.ip.tos = tos;
	fanin_wire_set_payload_len(&packet->headers, len - FANIN_HDR_LEN);
	fanin_server_core_receive(server->core, &packet->headers, FANIN_L4_LEN + len,
				  packet->parts[1].iov_base, now_ns);
}

/* Returns the number of packets received, or an error. */
static int
rx_batch(struct fanin_server *server)
{
	uint64_t now_ns;
	int n;

	for (unsigned int i = 0; i < RX_BATCH; i++) {
		server->rx_messages[i].msg_hdr.msg_namelen = sizeof(server->rx[i].from);
		server->rx_messages[i].msg_hdr.msg_controllen = sizeof(server->rx[i].control.bytes);
	}
	n = recvmmsg(server->socket_fd, server->rx_messages, RX_BATCH, MSG_DONTWAIT, NULL);
	/* If memory is short for a moment, the kernel keeps the packets. */
	if (n < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOMEM || errno == ENOBUFS))
		return 0;
	if (n < 0)
		return fanin_error_set(&server->error, FANIN_ERR_SYSTEM, "the socket failed: %s",
				       strerror(errno));
	now_ns = fanin_now_ns(NULL);
	for (int i = 0; i < n; i++)
		rx_packet(server, (unsigned int)i, now_ns);
	return n;
}

/* Makes the descriptor readable at this time. */
static void
timer_arm(struct fanin_server *server, uint64_t due_ns)
{
	struct itimerspec timer = { 0 };

	if (due_ns == server->armed_ns)
		return;
	server->armed_ns = due_ns;
	if (due_ns != UINT64_MAX) {
		timer.it_value.tv_sec = (time_t)(due_ns / NS_PER_S);
		timer.it_value.tv_nsec = (long)(due_ns % NS_PER_S);
	}
	timerfd_settime(server->timer_fd, TFD_TIMER_ABSTIME, &timer, NULL);
}

int
fanin_serve(fanin_server *server)
{
	int total = 0;
	int n = RX_BATCH;

	server->stats.rounds++;
	for (unsigned int i = 0; i < RX_BATCHES && n == RX_BATCH; i++) {
		n = rx_batch(server);
		total += n > 0 ? n : 0;
		tx_flush(server);
	}
	if (fanin_server_core_due(server->core) != UINT64_MAX)
		fanin_server_core_timers(server->core, fanin_now_ns(NULL));
	tx_flush(server);
	timer_arm(server, fanin_server_core_due(server->core));
	return n < 0 ? n : total;
}

static int
check_options(const struct fanin_server_opts *options, uint32_t *ip_be, struct fanin_error *error)
{
	if (options->address == NULL || inet_pton(AF_INET, options->address, ip_be) != 1)
		return fanin_error_set(
			error, FANIN_ERR_INVALID,
			"address: found \"%.40s\", expected an IPv4 address of this host",
			options->address == NULL ? "" : options->address);
	if (options->max_jobs > MAX_JOBS)
		return fanin_error_set(error, FANIN_ERR_INVALID,
				       "max_jobs: found %u, expected at most %u", options->max_jobs,
				       MAX_JOBS);
	return FANIN_OK;
}

static int
poll_set_open(struct fanin_server *server)
{
	struct epoll_event event = { .events = EPOLLIN };

	server->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	server->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (server->epoll_fd < 0 || server->timer_fd < 0 ||
	    epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, server->socket_fd, &event) != 0 ||
	    epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, server->timer_fd, &event) != 0)
		return fanin_error_set(&server->error, FANIN_ERR_SYSTEM,
				       "cannot make a poll set: %s", strerror(errno));
	return FANIN_OK;
}

/* Does everything that may fail. fanin_server_close frees what was opened. */
static int
open_parts(struct fanin_server *server, const struct fanin_server_opts *options)
{
	struct fanin_server_core_options core = {
		.send = send_packet,
		.random = random_number,
		.arg = server,
		.udp_port = server->udp_port,
		.isa = fanin_isa_detect(),
		.max_jobs = server->max_jobs,
		.memory_bytes = server->memory_bytes,
		.round_trip_ns = (uint64_t)options->round_trip_us * 1000,
	};
	uint32_t ip_be = 0;
	int status = check_options(options, &ip_be, &server->error);

	if (status == FANIN_OK)
		status = server_interface_find(ip_be, &server->interface, &server->error);
	if (status != FANIN_OK)
		return status;
	server->max_payload = fanin_payload_for_mtu(server->interface.mtu, false);
	if (server->max_payload == 0)
		return fanin_error_set(&server->error, FANIN_ERR_INVALID,
				       "interface %s has an MTU of %u, expected at least %lu",
				       server->interface.name, server->interface.mtu,
				       (unsigned long)(FANIN_MTU_OVERHEAD + FANIN_PAYLOAD_ALIGN));
	status = server_socket_open(&server->interface, server->udp_port, &server->buffer_bytes,
				    &server->error);
	if (status < 0)
		return status;
	server->socket_fd = status;
	status = poll_set_open(server);
	if (status != FANIN_OK)
		return status;
	server->rx_payloads = aligned_alloc(FANIN_PAYLOAD_ALIGN,
					    (size_t)RX_BATCH * server->max_payload);
	if (server->rx_payloads == NULL ||
	    fanin_server_core_create(&core, &server->core) != FANIN_OK)
		return fanin_error_set(&server->error, FANIN_ERR_NO_MEMORY,
				       "no memory for packets");
	rx_prepare(server);
	return FANIN_OK;
}

/* For callers that were compiled before the header had a number. */
#undef fanin_server_open
int
fanin_server_open(const struct fanin_server_opts *opts, fanin_server **server, char *error,
		  size_t error_len)
{
	return fanin_server_open_from(0, opts, server, error, error_len);
}

int
fanin_server_open_from(unsigned int header, const struct fanin_server_opts *opts,
		       fanin_server **server, char *error, size_t error_len)
{
	struct fanin_server_opts options = { 0 };
	struct fanin_server *created;
	int status;

	if (error != NULL && error_len != 0)
		error[0] = '\0';
	status = fanin_caller_check(header, error, error != NULL ? error_len : 0);
	if (status != FANIN_OK)
		return status;
	if (opts == NULL || server == NULL || !fanin_options_copy(&options, sizeof(options), opts))
		return FANIN_ERR_INVALID;
	created = calloc(1, sizeof(*created));
	if (created == NULL)
		return FANIN_ERR_NO_MEMORY;
	created->socket_fd = -1;
	created->timer_fd = -1;
	created->epoll_fd = -1;
	created->armed_ns = UINT64_MAX;
	created->udp_port = options.udp_port != 0 ? options.udp_port : FANIN_WIRE_DEFAULT_UDP_PORT;
	created->max_jobs = options.max_jobs != 0 ? options.max_jobs : DEFAULT_JOBS;
	created->memory_bytes = options.memory_bytes != 0 ? options.memory_bytes : DEFAULT_MEMORY;
	created->buffer_bytes = options.receive_buffer_bytes != 0 ? options.receive_buffer_bytes
								  : DEFAULT_BUFFER;
	status = open_parts(created, &options);
	if (status == FANIN_OK) {
		*server = created;
		return FANIN_OK;
	}
	if (error != NULL && error_len != 0) {
		strncpy(error, created->error.text, error_len - 1);
		error[error_len - 1] = '\0';
	}
	fanin_server_close(created);
	return status;
}

static void
close_fd(int fd)
{
	if (fd >= 0)
		close(fd);
}

void
fanin_server_close(fanin_server *server)
{
	if (server == NULL)
		return;
	fanin_server_core_free(server->core);
	free(server->rx_payloads);
	close_fd(server->epoll_fd);
	close_fd(server->timer_fd);
	close_fd(server->socket_fd);
	free(server);
}

const char *
fanin_server_error(const fanin_server *server)
{
	return server->error.text;
}

int
fanin_server_add_job(fanin_server *server, const struct fanin_server_job_opts *opts)
{
	struct fanin_server_job_opts options = { 0 };
	struct fanin_server_spec spec;

	fanin_error_clear(&server->error);
	if (opts == NULL || !fanin_options_copy(&options, sizeof(options), opts))
		return fanin_error_set(&server->error, FANIN_ERR_INVALID,
				       "the options are of another version of the library");
	spec = (struct fanin_server_spec){
		.id = options.job,
		.key = options.key,
		.n_ranks = options.size,
		.payload_bytes = options.payload_bytes != 0 ? options.payload_bytes
							    : (uint16_t)server->max_payload,
		.slots = options.slots,
	};
	memcpy(spec.parameters, options.parameters, sizeof(spec.parameters));
	strncpy(spec.handler, options.handler != NULL ? options.handler : "pa-atp",
		sizeof(spec.handler) - 1);
	if (options.switch_address == NULL ||
	    inet_pton(AF_INET, options.switch_address, &spec.member_ip_be) != 1)
		return fanin_error_set(
			&server->error, FANIN_ERR_INVALID,
			"switch_address: found \"%.40s\", expected the IPv4 address of the job's switch",
			options.switch_address == NULL ? "" : options.switch_address);
	if (spec.member_ip_be == server->interface.ip_be)
		return fanin_error_set(&server->error, FANIN_ERR_INVALID,
				       "switch_address: found this server's own address");
	if (spec.payload_bytes > server->max_payload)
		return fanin_error_set(
			&server->error, FANIN_ERR_INVALID,
			"payload_bytes: found %u, expected a multiple of %u up to %u (the MTU of %s is %u)",
			spec.payload_bytes, FANIN_PAYLOAD_ALIGN, server->max_payload,
			server->interface.name, server->interface.mtu);
	if (spec.slots == 0) {
		spec.slots = fanin_server_max_slots(server->core, spec.payload_bytes);
		if (spec.slots > DEFAULT_SLOTS)
			spec.slots = DEFAULT_SLOTS;
		/* The check says what two take. */
		if (spec.slots == 0)
			spec.slots = 2;
	}
	return fanin_server_core_add(server->core, &spec, &server->error);
}

int
fanin_server_remove_job(fanin_server *server, uint32_t job)
{
	fanin_error_clear(&server->error);
	if (fanin_server_core_remove(server->core, job))
		return FANIN_OK;
	return fanin_error_set(&server->error, FANIN_ERR_INVALID, "job %u does not exist", job);
}

int
fanin_server_fd(const fanin_server *server)
{
	return server->epoll_fd;
}

/* Memory of the existing jobs. */
static uint64_t
memory_in_use(const struct fanin_server *server)
{
	struct fanin_server_job_stats stats = { .sz = sizeof(stats) };
	uint64_t bytes = 0;

	for (uint32_t id = fanin_server_core_next(server->core, 0); id != 0;
	     id = fanin_server_core_next(server->core, id)) {
		fanin_server_job_describe(fanin_server_core_job(server->core, id), &stats);
		bytes += stats.memory_bytes;
	}
	return bytes;
}

int
fanin_server_stats(const fanin_server *server, struct fanin_server_stats *stats)
{
	struct fanin_server_stats full = server->stats;

	full.instance = fanin_server_core_instance(server->core);
	memcpy(full.mac, server->interface.mac, sizeof(full.mac));
	full.udp_port = server->udp_port;
	memcpy(full.interface, server->interface.name, sizeof(full.interface));
	full.mtu = server->interface.mtu;
	full.link = server_interface_has_link(server->socket_fd, &server->interface);
	full.receive_buffer_bytes = server->buffer_bytes;
	full.jobs = fanin_server_core_n_jobs(server->core);
	full.max_jobs = server->max_jobs;
	full.slots_per_job = fanin_server_max_slots(server->core, server->max_payload);
	full.memory_bytes = memory_in_use(server);
	full.memory_limit_bytes = server->memory_bytes;
	full.job_memory_bytes = fanin_server_job_share(server->core);
	return fanin_report_copy(stats, &full, sizeof(full)) ? FANIN_OK : FANIN_ERR_INVALID;
}

uint32_t
fanin_server_next_job(const fanin_server *server, uint32_t after)
{
	return fanin_server_core_next(server->core, after);
}

int
fanin_server_job_stats(const fanin_server *server, uint32_t job,
		       struct fanin_server_job_stats *stats)
{
	const struct fanin_server_job *found = fanin_server_core_job(server->core, job);
	struct fanin_server_job_stats full = { .sz = sizeof(full) };

	if (found == NULL)
		return FANIN_ERR_INVALID;
	fanin_server_job_describe(found, &full);
	return fanin_report_copy(stats, &full, sizeof(full)) ? FANIN_OK : FANIN_ERR_INVALID;
}

size_t
fanin_server_waits(const fanin_server *server, uint32_t job, struct fanin_server_wait *waits,
		   size_t n)
{
	const struct fanin_server_job *found = fanin_server_core_job(server->core, job);

	return found == NULL ? 0 : fanin_server_job_waits(found, fanin_now_ns(NULL), waits, n);
}

int
fanin_server_drops(const fanin_server *server, unsigned int i, struct fanin_server_drop *drop)
{
	/* The table's first entry is "none". */
	const unsigned int reason = i + 1;

	if (i >= FANIN_REASON_COUNT - 1)
		return FANIN_ERR_INVALID;
	drop->name = fanin_reason_name(reason);
	drop->text = fanin_reason_text(reason);
	drop->count = fanin_server_core_drops(server->core, (enum fanin_reason)reason);
	return FANIN_OK;
}
