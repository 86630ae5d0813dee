/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The public role of a parameter server over a real UDP socket on the loopback interface. The
 * test's socket at another address plays the switch. A packet socket checks the fields that a
 * switch checks in its parent's frames.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netpacket/packet.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fanin/server.h>

#include "tests/unit/suites.h"
#include "wire/keys.h"
#include "wire/wire.h"

#define JOB 77u
#define KEY UINT64_C(0x0123456789abcdef)
#define SERVER "127.0.0.1"
#define SWITCH "127.0.0.2"
#define WAIT_MS 5000
#define PAYLOAD 1024
#define ETHERTYPE_IPV4 0x0800
#define DONT_FRAGMENT 0x4000

static fanin_server *server;
static int switch_fd = -1; /* the switch's own address */
static int group_fd = -1;  /* the job's group */
static int frames_fd = -1; /* frames to the job's group; -1 without the privilege */
static uint16_t port;
static struct fanin_keys keys;
static uint32_t epoch;

struct received {
	struct fanin_hdr hdr;
	uint8_t payload[PAYLOAD];
	size_t payload_len;
};

static struct sockaddr_in
address(const char *text, uint16_t udp_port)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(udp_port) };

	ck_assert_int_eq(inet_pton(AF_INET, text, &address.sin_addr), 1);
	return address;
}

/* A socket at an address; port 0: any, which is found. */
static int
bound(const char *text, uint16_t *udp_port)
{
	struct sockaddr_in own = address(text, *udp_port);
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	socklen_t len = sizeof(own);

	ck_assert_int_ge(fd, 0);
	ck_assert_msg(bind(fd, (struct sockaddr *)&own, sizeof(own)) == 0, "%s", strerror(errno));
	ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&own, &len), 0);
	*udp_port = ntohs(own.sin_port);
	return fd;
}

static void
listen_to_frames(void)
{
	struct sockaddr_ll loopback = {
		.sll_family = AF_PACKET,
		.sll_protocol = htons(ETHERTYPE_IPV4),
		.sll_ifindex = (int)if_nametoindex("lo"),
	};

	/* Only those to the job's group: others use the interface, too. */
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct fanin_headers, ip.dst_be)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, FANIN_WIRE_GROUPS | JOB, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, UINT16_MAX),
		BPF_STMT(BPF_RET | BPF_K, 0),
	};
	const struct sock_fprog filter = { .len = 4, .filter = code };

	frames_fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (frames_fd < 0)
		return;
	ck_assert_int_eq(setsockopt(frames_fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter,
				    sizeof(filter)),
			 0);
	ck_assert_int_eq(bind(frames_fd, (struct sockaddr *)&loopback, sizeof(loopback)), 0);
}

static void
open_server(void)
{
	const struct ip_mreqn group = {
		.imr_multiaddr = { .s_addr = htonl(FANIN_WIRE_GROUPS | JOB) },
		.imr_ifindex = (int)if_nametoindex("lo"),
	};
	struct fanin_server_opts opts = { .sz = sizeof(opts), .address = SERVER };
	char error[256];
	char group_text[INET_ADDRSTRLEN];

	port = 0;
	switch_fd = bound(SWITCH, &port);
	opts.udp_port = port;
	ck_assert_msg(fanin_server_open(&opts, &server, error, sizeof(error)) == FANIN_OK, "%s",
		      error);
	inet_ntop(AF_INET, &group.imr_multiaddr, group_text, sizeof(group_text));
	group_fd = bound(group_text, &port);
	ck_assert_int_eq(setsockopt(group_fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof(group)),
			 0);
	ck_assert_int_eq(fanin_keys_derive(KEY, &keys), 0);
	listen_to_frames();
}

static void
close_server(void)
{
	fanin_server_close(server);
	server = NULL;
	close(switch_fd);
	close(group_fd);
	if (frames_fd >= 0)
		close(frames_fd);
}

static void
add_job(uint16_t n_ranks)
{
	const struct fanin_server_job_opts opts = {
		.sz = sizeof(opts),
		.job = JOB,
		.size = n_ranks,
		.payload_bytes = PAYLOAD,
		.key = KEY,
		.switch_address = SWITCH,
		.slots = 64,
	};

	ck_assert_msg(fanin_server_add_job(server, &opts) == FANIN_OK, "%s",
		      fanin_server_error(server));
}

static void
send_up(struct fanin_hdr *hdr, const void *payload, size_t payload_len)
{
	struct sockaddr_in to = address(SERVER, port);
	struct iovec parts[2] = { { hdr, sizeof(*hdr) },
				  { (void *)(uintptr_t)payload, payload_len } };
	const struct msghdr message = {
		.msg_name = &to, .msg_namelen = sizeof(to), .msg_iov = parts, .msg_iovlen = 2
	};

	ck_assert_int_eq(sendmsg(switch_fd, &message, 0), (ssize_t)(sizeof(*hdr) + payload_len));
}

/* Waits for a packet as the program around the server does. */
static void
receive(int fd, struct received *received)
{
	struct iovec parts[2] = { { &received->hdr, sizeof(received->hdr) },
				  { received->payload, sizeof(received->payload) } };
	struct sockaddr_in from;
	struct msghdr message = {
		.msg_name = &from, .msg_namelen = sizeof(from), .msg_iov = parts, .msg_iovlen = 2
	};
	struct pollfd fds[2] = { { .fd = fd, .events = POLLIN },
				 { .fd = fanin_server_fd(server), .events = POLLIN } };
	ssize_t len;

	for (;;) {
		ck_assert_msg(poll(fds, 2, WAIT_MS) > 0, "nothing came");
		if ((fds[0].revents & POLLIN) != 0)
			break;
		while (fanin_serve(server) > 0)
			;
	}
	len = recvmsg(fd, &message, 0);
	ck_assert_int_ge(len, (ssize_t)sizeof(received->hdr));
	received->payload_len = (size_t)len - sizeof(received->hdr);
	ck_assert_uint_eq(from.sin_port, htons(port));
	ck_assert_uint_eq(from.sin_addr.s_addr, inet_addr(SERVER));
}

static void
join(uint16_t n_ranks)
{
	struct fanin_join_body body = { .nonce = 3, .size = n_ranks, .mtu = 1500 };
	struct fanin_join_ack_body ack;
	struct received received;
	struct fanin_hdr hdr;

	for (int i = 0; i < 2; i++) {
		fanin_wire_encode_header(&hdr, FANIN_TYPE_JOIN, JOB, 0, keys.up);
		hdr.contributions = n_ranks;
		send_up(&hdr, &body, sizeof(body));
		receive(switch_fd, &received);
		ck_assert_uint_eq(received.hdr.type, FANIN_TYPE_JOIN_ACK);
		memcpy(&ack, received.payload, sizeof(ack));
		body.cookie = ack.cookie;
	}
	ck_assert_uint_eq(ack.state, FANIN_JOIN_ACTIVE);
	epoch = received.hdr.epoch;
}

static void
send_partial(uint32_t block, uint64_t members, int32_t value, size_t len)
{
	static int32_t data[PAYLOAD / 4];
	struct fanin_hdr hdr;

	for (size_t i = 0; i < len / 4; i++)
		data[i] = value;
	fanin_wire_encode_header(&hdr, FANIN_TYPE_PARTIAL, JOB, epoch, keys.up);
	hdr.block = block;
	hdr.members = members;
	hdr.contributions = (uint16_t)__builtin_popcountll(members);
	hdr.dtype = FANIN_WIRE_I32;
	hdr.op = FANIN_WIRE_SUM;
	hdr.count = (uint16_t)(len / 4);
	send_up(&hdr, data, len);
}

static struct fanin_server_job_stats
job_stats(void)
{
	struct fanin_server_job_stats stats = { .sz = sizeof(stats) };

	ck_assert_int_eq(fanin_server_job_stats(server, JOB, &stats), FANIN_OK);
	return stats;
}

START_TEST(a_job_runs_over_udp)
{
	struct fanin_server_stats stats = { .sz = sizeof(stats) };
	struct received received;
	int32_t values[PAYLOAD / 4];

	add_job(3);
	join(3);
	for (uint32_t block = 0; block < 200; block++) {
		send_partial(block, 0x5, (int32_t)block, PAYLOAD);
		send_partial(block, 0x2, 1000, PAYLOAD);
		receive(group_fd, &received);
		ck_assert_uint_eq(received.hdr.type, FANIN_TYPE_RESULT);
		ck_assert_uint_eq(received.hdr.block, block);
		ck_assert_uint_eq(received.payload_len, PAYLOAD);
		memcpy(values, received.payload, sizeof(values));
		ck_assert_int_eq(values[0], (int32_t)block + 1000);
		ck_assert_int_eq(values[PAYLOAD / 4 - 1], (int32_t)block + 1000);
	}
	ck_assert_uint_eq(job_stats().results, 200);
	ck_assert_int_eq(fanin_server_stats(server, &stats), FANIN_OK);
	ck_assert_uint_eq(stats.rx_packets, 402);
	ck_assert_uint_eq(stats.tx_packets, 202);
	ck_assert_uint_eq(stats.tx_dropped, 0);
	ck_assert_uint_eq(stats.rx_missed, 0);
	ck_assert_str_eq(stats.interface, "lo");
	ck_assert(stats.link);
	ck_assert_uint_eq(stats.udp_port, port);
	ck_assert_uint_ge(stats.receive_buffer_bytes, 100000);
	ck_assert_uint_eq(stats.jobs, 1);
	ck_assert_uint_gt(stats.memory_bytes, 64 * PAYLOAD);
}
END_TEST

START_TEST(flushes_come_when_they_are_due)
{
	struct received received;

	add_job(2);
	join(2);
	send_partial(0, 1, 5, 64);
	/* Nothing but the timer wakes the server. */
	receive(switch_fd, &received);
	ck_assert_uint_eq(received.hdr.type, FANIN_TYPE_FLUSH);
	receive(switch_fd, &received);
	ck_assert_uint_eq(received.hdr.type, FANIN_TYPE_FLUSH);
	send_partial(0, 2, 5, 64);
	receive(group_fd, &received);
	ck_assert_uint_eq(received.hdr.type, FANIN_TYPE_RESULT);
	/* Then it sleeps. */
	while (fanin_serve(server) > 0)
		;
	ck_assert_int_eq(poll(&(struct pollfd){ .fd = fanin_server_fd(server), .events = POLLIN },
			      1, 0),
			 0);
}
END_TEST

START_TEST(results_are_frames_that_a_switch_takes)
{
	uint8_t frame[FANIN_PAYLOAD_OFFSET + PAYLOAD];
	const struct fanin_headers *headers = (const void *)frame;
	const uint32_t group = htonl(FANIN_WIRE_GROUPS | JOB);
	struct received received;
	struct fanin_template template;
	struct fanin_headers expected;
	struct fanin_flow flow = { .dst_ip_be = group, .dst_port = port, .src_port = port };
	bool found = false;

	if (frames_fd < 0)
		return; /* no privilege for packet sockets: the net tests look, too */
	add_job(2);
	join(2);
	send_partial(0, 3, 5, PAYLOAD);
	receive(group_fd, &received);
	for (;;) {
		ssize_t len = recv(frames_fd, frame, sizeof(frame), 0);

		if (len < 0)
			break;
		/* Another run of this test uses another port. */
		if ((size_t)len < sizeof(*headers) || headers->udp.dst_be != htons(port))
			continue;
		found = true;
		ck_assert_uint_eq((size_t)len, sizeof(frame));
		ck_assert_uint_eq(ntohs(headers->ip.fragment_be), DONT_FRAGMENT);
		ck_assert_uint_eq(headers->ip.ttl, 64);
		ck_assert_uint_eq(headers->udp.checksum_be, 0);
		ck_assert_int_eq(fanin_wire_validate(frame, (size_t)len), FANIN_REASON_NONE);
		/*
		 * As pipeline/job_tree.c makes the template of a parent's results, but for the
		 * loopback's Ethernet addresses.
		 */
		flow.src_ip_be = inet_addr(SERVER);
		memcpy(flow.dst_mac, headers->eth.dst, sizeof(flow.dst_mac));
		fanin_wire_encode_l4(&expected, &flow, PAYLOAD);
		fanin_wire_encode_header(&expected.fanin, FANIN_TYPE_RESULT, JOB, 0, keys.down);
		fanin_wire_make_template(&expected, &template);
		ck_assert(fanin_wire_fits(headers, &template));
	}
	ck_assert(found);
}
END_TEST

START_TEST(marks_of_congestion_are_read_from_the_packet)
{
	const int ecn_ce = 3;
	struct received received;

	add_job(2);
	join(2);
	ck_assert_int_eq(setsockopt(switch_fd, IPPROTO_IP, IP_TOS, &ecn_ce, sizeof(ecn_ce)), 0);
	send_partial(0, 3, 5, 64);
	receive(group_fd, &received);
	ck_assert_uint_eq(received.hdr.flags, FANIN_FLAG_CE);
	ck_assert_uint_eq(job_stats().ce, 1);
}
END_TEST

START_TEST(packets_that_are_too_short_or_too_long_are_dropped)
{
	struct fanin_server_drop drop;
	struct received received;
	struct sockaddr_in to = address(SERVER, port);
	static const uint8_t junk[65000];
	uint64_t dropped = 0;

	add_job(2);
	join(2);
	for (size_t len = 0; len < 54; len += 9)
		ck_assert_int_eq(sendto(switch_fd, junk, len, 0, (struct sockaddr *)&to,
					sizeof(to)),
				 (ssize_t)len);
	ck_assert_int_eq(sendto(switch_fd, junk, sizeof(junk), 0, (struct sockaddr *)&to,
				sizeof(to)),
			 sizeof(junk));
	send_partial(0, 3, 5, 64);
	receive(group_fd, &received);
	for (unsigned int i = 0; fanin_server_drops(server, i, &drop) == FANIN_OK; i++) {
		ck_assert_uint_gt(strlen(drop.text), 0);
		if (strcmp(drop.name, "header_truncated") == 0)
			ck_assert_uint_eq(drop.count, 6);
		dropped += drop.count;
	}
	ck_assert_uint_eq(dropped, 7);
}
END_TEST

START_TEST(a_removed_job_is_refused_and_another_may_come)
{
	struct received received;

	add_job(2);
	join(2);
	ck_assert_uint_eq(fanin_server_next_job(server, 0), JOB);
	ck_assert_int_eq(fanin_server_remove_job(server, JOB), FANIN_OK);
	ck_assert_int_eq(fanin_server_remove_job(server, JOB), FANIN_ERR_INVALID);
	ck_assert_uint_eq(fanin_server_next_job(server, 0), 0);
	send_partial(0, 1, 5, 64);
	receive(switch_fd, &received);
	ck_assert_uint_eq(received.hdr.type, FANIN_TYPE_REFUSED);
	ck_assert_uint_eq(received.hdr.count, FANIN_REASON_JOB);
	add_job(2);
	join(2);
	ck_assert_uint_eq(job_stats().runs, 1);
}
END_TEST

START_TEST(waits_are_listed)
{
	struct fanin_server_wait waits[2];
	struct received received;

	add_job(3);
	join(3);
	send_partial(4, 0x1, 5, 64);
	send_partial(2, 0x6, 5, 64);
	send_partial(1, 0x3, 5, 64);
	receive(switch_fd, &received); /* a FLUSH: all have come */
	ck_assert_uint_eq(fanin_server_waits(server, JOB, waits, 2), 3);
	ck_assert_uint_eq(waits[0].block, 4);
	ck_assert_uint_eq(waits[0].missing, 0x6);
	ck_assert_uint_eq(waits[1].block, 2);
	ck_assert_uint_eq(waits[1].missing, 0x1);
	ck_assert_uint_gt(waits[0].since_ns, 0);
	ck_assert_uint_eq(fanin_server_waits(server, JOB + 1, waits, 2), 0);
}
END_TEST

START_TEST(wrong_options_are_named)
{
	struct fanin_server_opts opts = { .sz = sizeof(opts),
					  .address = "127.0.0.1",
					  .udp_port = port };
	struct fanin_server_job_opts job = { .sz = sizeof(job), .job = 1, .size = 2, .key = 1 };
	fanin_server *other = NULL;
	char error[256];

	ck_assert_int_eq(fanin_server_open(NULL, &other, error, sizeof(error)), FANIN_ERR_INVALID);
	ck_assert_int_eq(fanin_server_open(&opts, &other, error, sizeof(error)), FANIN_ERR_SYSTEM);
	ck_assert_ptr_nonnull(strstr(error, "cannot take UDP port"));
	opts.address = "192.0.2.77";
	ck_assert_int_eq(fanin_server_open(&opts, &other, error, sizeof(error)),
			 FANIN_ERR_NO_ROUTE);
	ck_assert_ptr_nonnull(strstr(error, "no interface with the address 192.0.2.77"));
	opts.address = "here";
	ck_assert_int_eq(fanin_server_open(&opts, &other, NULL, 0), FANIN_ERR_INVALID);
	opts.address = NULL;
	ck_assert_int_eq(fanin_server_open(&opts, &other, error, sizeof(error)), FANIN_ERR_INVALID);
	opts = (struct fanin_server_opts){ .sz = 3 };
	ck_assert_int_eq(fanin_server_open(&opts, &other, error, sizeof(error)), FANIN_ERR_INVALID);
	opts = (struct fanin_server_opts){ .sz = sizeof(opts),
					   .address = SERVER,
					   .max_jobs = 5000 };
	ck_assert_int_eq(fanin_server_open(&opts, &other, error, sizeof(error)), FANIN_ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(error, "max_jobs: found 5000"));
	ck_assert_int_eq(fanin_server_open_from(FANIN_HEADER_NUMBER + 1, &opts, &other, error,
						sizeof(error)),
			 FANIN_ERR_VERSION);
	ck_assert_ptr_nonnull(strstr(error, "found libfanin " FANIN_HEADER_VERSION ", expected"));
	ck_assert_int_eq(fanin_server_open_from(FANIN_HEADER_NUMBER + 1, &opts, &other, NULL, 0),
			 FANIN_ERR_VERSION);
	ck_assert_ptr_null(other);

	ck_assert_int_eq(fanin_server_add_job(server, &job), FANIN_ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(fanin_server_error(server), "switch_address"));
	job.switch_address = SERVER;
	ck_assert_int_eq(fanin_server_add_job(server, &job), FANIN_ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(fanin_server_error(server), "own address"));
	job.switch_address = SWITCH;
	job.payload_bytes = 65472;
	ck_assert_int_eq(fanin_server_add_job(server, &job), FANIN_ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(fanin_server_error(server), "the MTU of lo is"));
	job.payload_bytes = 0;
	job.size = 65;
	ck_assert_int_eq(fanin_server_add_job(server, &job), FANIN_ERR_UNSUPPORTED);
	job.size = 2;
	job.slots = 8192;
	ck_assert_int_eq(fanin_server_add_job(server, &job), FANIN_ERR_CAPACITY);
	job.slots = 0;
	ck_assert_int_eq(fanin_server_add_job(server, &job), FANIN_OK);
	ck_assert_int_eq(fanin_server_job_stats(server, 1, &(struct fanin_server_job_stats){ 0 }),
			 FANIN_ERR_INVALID);
}
END_TEST

Suite *
suite_server_socket(void)
{
	Suite *suite = suite_create("server_socket");
	TCase *udp = tcase_create("udp");

	tcase_add_checked_fixture(udp, open_server, close_server);
	tcase_add_test(udp, a_job_runs_over_udp);
	tcase_add_test(udp, flushes_come_when_they_are_due);
	tcase_add_test(udp, results_are_frames_that_a_switch_takes);
	tcase_add_test(udp, marks_of_congestion_are_read_from_the_packet);
	tcase_add_test(udp, packets_that_are_too_short_or_too_long_are_dropped);
	tcase_add_test(udp, a_removed_job_is_refused_and_another_may_come);
	tcase_add_test(udp, waits_are_listed);
	tcase_add_test(udp, wrong_options_are_named);
	suite_add_tcase(suite, udp);
	return suite;
}
