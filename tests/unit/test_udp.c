/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The transport over UDP sockets, on the real kernel: a socket on the loopback interface acts as
 * the switch.
 */
#include <arpa/inet.h>
#include <check.h>
#include <net/if.h>
#include <netinet/udp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "hostlib/src/comm/context.h"
#include "hostlib/src/transport/segments.h"
#include "hostlib/src/transport/transport.h"
#include "tests/unit/suites.h"
#include "wire/wire.h"

#define JOB 7
#define PAYLOAD 1024u
#define ROOM (64u * 1024)
#define WAIT_MS 2000

static const uint8_t switch_mac[6] = { 2, 0, 0, 0, 0, 1 };
static int switch_fd, stranger_fd;
static uint16_t switch_port;
static uint16_t host_port;
static struct fanin_transport *transport;
static uint8_t vector[ROOM];
static uint8_t found[ROOM + 1];

static uint16_t
port_of(int fd)
{
	struct sockaddr_in own = { 0 };
	socklen_t len = sizeof(own);

	ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&own, &len), 0);
	return ntohs(own.sin_port);
}

/* Opens a socket with an address of the loopback network. */
static int
socket_at(uint32_t ip)
{
	const struct sockaddr_in own = { .sin_family = AF_INET, .sin_addr = { htonl(ip) } };
	const int on = 1;
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(bind(fd, (const struct sockaddr *)&own, sizeof(own)), 0);
	ck_assert_int_eq(setsockopt(fd, SOL_UDP, UDP_GRO, &on, sizeof(on)), 0);
	return fd;
}

static struct sockaddr_in
address_of(uint32_t ip_be, uint16_t port)
{
	return (struct sockaddr_in){
		.sin_family = AF_INET,
		.sin_addr = { ip_be },
		.sin_port = htons(port),
	};
}

static uint32_t
group_be(void)
{
	return htonl(FANIN_WIRE_GROUPS | JOB);
}

static void
transport_open(uint32_t receive_buffer)
{
	static const struct fanin_log log;
	struct fanin_error error = { 0 };
	struct sockaddr_in to;
	struct fanin_transport_config config = {
		.interface = "lo",
		.ifindex = (int)if_nametoindex("lo"),
		.local_mac = switch_mac,
		.local_ip_be = htonl(INADDR_LOOPBACK),
		.switch_ip_be = htonl(INADDR_LOOPBACK),
		.switch_mac = switch_mac,
		.group_be = group_be(),
		.mtu = 65536,
		.job = JOB,
		.window = 64,
		.frame_len = FANIN_PAYLOAD_OFFSET + PAYLOAD,
		.receive_buffer = receive_buffer,
		.log = &log,
	};

	switch_fd = socket_at(INADDR_LOOPBACK);
	stranger_fd = socket_at(INADDR_LOOPBACK);
	switch_port = port_of(switch_fd);
	config.udp_port = switch_port;
	config.data_fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	to = address_of(config.switch_ip_be, switch_port);
	ck_assert_int_eq(connect(config.data_fd, (struct sockaddr *)&to, sizeof(to)), 0);
	host_port = port_of(config.data_fd);
	config.data_port = host_port;
	ck_assert_int_eq(fanin_udp_open(&config, &transport, &error), FANIN_OK);
	transport->ops->path(transport, true, "");
	for (size_t i = 0; i < sizeof(vector); i++)
		vector[i] = (uint8_t)(i * 7 + i / 256);
}

static void
transport_make(void)
{
	transport_open(FANIN_UDP_RECEIVE_BUFFER);
}

static void
transport_end(void)
{
	transport->ops->close(transport);
	close(switch_fd);
	close(stranger_fd);
}

/* ------------------------------------------------------------------ sending */

static struct fanin_headers
headers_of(uint32_t block, uint32_t payload_len)
{
	const struct fanin_flow flow = {
		.dst_ip_be = htonl(INADDR_LOOPBACK),
		.src_ip_be = htonl(INADDR_LOOPBACK),
		.dst_port = switch_port,
	};
	struct fanin_headers headers;

	fanin_wire_encode_l4(&headers, &flow, payload_len);
	fanin_wire_encode_header(&headers.fanin, FANIN_TYPE_CONTRIBUTION, JOB, 1, 2);
	headers.fanin.block = block;
	return headers;
}

static void
send_block(uint32_t block, uint32_t payload_len)
{
	const struct fanin_headers headers = headers_of(block, payload_len);

	ck_assert(fanin_transport_send_held(transport, &headers, vector + block * PAYLOAD % ROOM,
					    payload_len));
}

static void
flush(void)
{
	ck_assert_int_eq(transport->ops->tx_flush(transport), 0);
}

/*
 * Receives packets at the switch that left together. size: of each packet. Returns the bytes of
 * all; 0: there are no more.
 */
static size_t
switch_receive(uint32_t *size)
{
	struct pollfd waiting = { .fd = switch_fd, .events = POLLIN };
	uint8_t control[64];
	struct iovec part = { found, sizeof(found) };
	struct msghdr message = { .msg_iov = &part,
				  .msg_iovlen = 1,
				  .msg_control = control,
				  .msg_controllen = sizeof(control) };
	const struct cmsghdr *told;
	ssize_t len;
	int value = 0;

	if (poll(&waiting, 1, 0) != 1)
		return 0;
	len = recvmsg(switch_fd, &message, 0);
	ck_assert_int_gt(len, 0);
	told = CMSG_FIRSTHDR(&message);
	if (told != NULL && told->cmsg_level == SOL_UDP && told->cmsg_type == UDP_GRO)
		memcpy(&value, CMSG_DATA(told), sizeof(value));
	*size = value > 0 ? (uint32_t)value : (uint32_t)len;
	return (size_t)len;
}

/*
 * Checks that the blocks from first on came together, each with its own payload. last_len: of the
 * last one's payload.
 */
static void
expect_together(uint32_t first, uint32_t n, uint32_t payload_len, uint32_t last_len)
{
	const uint32_t each = FANIN_HDR_LEN + payload_len;
	uint32_t size;
	const size_t len = switch_receive(&size);

	ck_assert_uint_eq(len, (n - 1) * each + FANIN_HDR_LEN + last_len);
	ck_assert_uint_eq(size, n == 1 ? FANIN_HDR_LEN + last_len : each);
	for (uint32_t i = 0; i < n; i++) {
		const struct fanin_hdr *hdr = (const void *)(found + i * each);
		const uint32_t own_len = i + 1 == n ? last_len : payload_len;

		ck_assert_uint_eq(hdr->block, first + i);
		ck_assert_mem_eq(hdr + 1, vector + (first + i) * PAYLOAD % ROOM, own_len);
	}
}

static void
expect_nothing_more(void)
{
	uint32_t size;

	ck_assert_uint_eq(switch_receive(&size), 0);
}

/* Checks the counts of super-frames, and of the packets in them. */
static void
expect_counted(uint64_t sent, uint64_t sent_packets, uint64_t received, uint64_t received_packets)
{
	struct fanin_transport_counts sum = { 0 };

	fanin_transport_counts_add(transport, &sum);
	ck_assert_uint_eq(sum.super_frames.sent, sent);
	ck_assert_uint_eq(sum.super_frames.sent_packets, sent_packets);
	ck_assert_uint_eq(sum.super_frames.received, received);
	ck_assert_uint_eq(sum.super_frames.received_packets, received_packets);
}

/*
 * Checks the system calls, and the bytes that the library has copied, since the transport was
 * opened.
 */
static void
expect_work(uint64_t send_calls, uint64_t receive_calls, uint64_t copied_out, uint64_t copied_in)
{
	struct fanin_transport_counts sum = { 0 };

	fanin_transport_counts_add(transport, &sum);
	ck_assert_uint_eq(sum.send_calls, send_calls);
	ck_assert_uint_eq(sum.receive_calls, receive_calls);
	ck_assert_uint_eq(sum.copied_out, copied_out);
	ck_assert_uint_eq(sum.copied_in, copied_in);
}

START_TEST(packets_that_are_alike_leave_together_at_a_flush)
{
	for (uint32_t block = 0; block < 10; block++)
		send_block(block, PAYLOAD);
	expect_nothing_more();
	flush();
	expect_together(0, 10, PAYLOAD, PAYLOAD);
	flush();
	expect_nothing_more();
}
END_TEST

START_TEST(a_super_frame_has_64_packets_and_65507_bytes_at_most)
{
	for (uint32_t block = 0; block < 130; block++)
		send_block(block, 512);
	flush();
	expect_together(0, 64, 512, 512);
	expect_together(64, 64, 512, 512);
	expect_together(128, 2, 512, 512);
	for (uint32_t block = 0; block < 10; block++)
		send_block(block, 8192);
	flush();
	expect_together(0, 7, 8192, 8192);
	expect_together(7, 3, 8192, 8192);
	expect_nothing_more();
}
END_TEST

START_TEST(only_the_last_packet_is_shorter)
{
	static const uint32_t lens[] = { PAYLOAD, PAYLOAD, 64, PAYLOAD, 0, 64, 128 };

	for (uint32_t block = 0; block < 7; block++)
		send_block(block, lens[block]);
	flush();
	expect_together(0, 3, PAYLOAD, 64);
	expect_together(3, 2, PAYLOAD, 0);
	expect_together(5, 1, 64, 64);
	expect_together(6, 1, 128, 128);
	expect_nothing_more();
	/* A single packet is not a super-frame. */
	expect_counted(2, 5, 0, 0);
}
END_TEST

START_TEST(headers_and_what_is_copied_may_change_before_the_flush)
{
	struct fanin_headers headers = headers_of(0, PAYLOAD);
	uint8_t *payload = malloc(PAYLOAD);

	memcpy(payload, vector, PAYLOAD);
	ck_assert(fanin_transport_send(transport, &headers, payload, PAYLOAD));
	memset(payload, 0xff, PAYLOAD);
	memset(&headers, 0xff, sizeof(headers));
	free(payload);
	send_block(1, PAYLOAD);
	flush();
	expect_together(0, 2, PAYLOAD, PAYLOAD);
}
END_TEST

START_TEST(each_call_and_copy_is_counted_when_sending)
{
	const struct fanin_headers headers = headers_of(70, PAYLOAD);

	/*
	 * Two super-frames, of 64 packets and of the rest, with payload from the caller's memory.
	 */
	for (uint32_t block = 0; block < 70; block++)
		send_block(block, PAYLOAD);
	flush();
	expect_work(2, 0, 0, 0);
	/* The payload is copied if its memory may change at once, or it is short. */
	ck_assert(fanin_transport_send(transport, &headers, vector, PAYLOAD));
	flush();
	expect_work(3, 0, PAYLOAD, 0);
	send_block(71, 64);
	flush();
	expect_work(4, 0, PAYLOAD + 64, 0);
	/* Nothing waits, so there is no system call. */
	flush();
	expect_work(4, 0, PAYLOAD + 64, 0);
	transport->ops->path(transport, false, "nobody answered");
	for (uint32_t block = 0; block < 3; block++)
		send_block(block, PAYLOAD);
	flush();
	expect_work(7, 0, PAYLOAD + 64, 0);
}
END_TEST

START_TEST(where_none_pass_packets_leave_one_by_one)
{
	ck_assert_ptr_null(strstr(transport->reason, "one by one"));
	transport->ops->path(transport, false, "nobody answered");
	ck_assert_ptr_nonnull(
		strstr(transport->reason, "; packets leave one by one: nobody answered"));
	for (uint32_t block = 0; block < 3; block++)
		send_block(block, PAYLOAD);
	flush();
	for (uint32_t block = 0; block < 3; block++)
		expect_together(block, 1, PAYLOAD, PAYLOAD);
	expect_nothing_more();
	expect_counted(0, 0, 0, 0);
	transport->ops->path(transport, true, "");
	ck_assert_ptr_null(strstr(transport->reason, "one by one"));
}
END_TEST

START_TEST(retransmissions_leave_alone)
{
	send_block(0, PAYLOAD);
	fanin_transport_alone(transport, true, false);
	send_block(1, PAYLOAD);
	send_block(2, PAYLOAD);
	fanin_transport_alone(transport, false, false);
	send_block(3, PAYLOAD);
	send_block(4, PAYLOAD);
	flush();
	for (uint32_t block = 0; block < 3; block++)
		expect_together(block, 1, PAYLOAD, PAYLOAD);
	expect_together(3, 2, PAYLOAD, PAYLOAD);
	expect_nothing_more();
}
END_TEST

static void
lose_twice(unsigned int n)
{
	for (unsigned int i = 0; i < n; i++) {
		fanin_transport_alone(transport, true, true);
		fanin_transport_alone(transport, false, false);
	}
}

START_TEST(super_frames_end_where_what_is_in_them_is_lost)
{
	uint32_t size;

	/* Losses are as frequent as random loss: packets that pass compensate for them. */
	for (unsigned int turn = 0; turn < 20; turn++) {
		lose_twice(1);
		for (uint32_t block = 0; block < 64; block++)
			send_block(block, 64);
		flush();
		ck_assert_uint_eq(switch_receive(&size), 64 * (FANIN_HDR_LEN + 64));
	}
	lose_twice(16);
	send_block(0, PAYLOAD);
	send_block(1, PAYLOAD);
	flush();
	expect_together(0, 1, PAYLOAD, PAYLOAD);
	expect_together(1, 1, PAYLOAD, PAYLOAD);
	ck_assert_ptr_nonnull(strstr(transport->reason, "passes by itself"));
	expect_counted(20, 20 * 64, 0, 0);
}
END_TEST

/* ---------------------------------------------------------------- receiving */

/*
 * Sends n packets to the host as one super-frame, each with payload_len bytes after the Fanin
 * header.
 */
static void
give(int fd, struct sockaddr_in to, uint32_t n, uint32_t payload_len)
{
	const uint32_t each = FANIN_HDR_LEN + payload_len;
	union fanin_segment_control control;
	struct iovec part = { .iov_base = found, .iov_len = (size_t)n * each };
	struct msghdr message = {
		.msg_name = &to, .msg_namelen = sizeof(to), .msg_iov = &part, .msg_iovlen = 1
	};

	memset(&control, 0, sizeof(control));
	for (uint32_t i = 0; i < n; i++) {
		struct fanin_hdr *hdr = (void *)(found + i * each);

		fanin_wire_encode_header(hdr, FANIN_TYPE_RESULT, JOB, 1, 3);
		hdr->dtype = FANIN_WIRE_U8;
		hdr->op = FANIN_WIRE_SUM;
		hdr->block = i;
		hdr->count = (uint16_t)payload_len;
		memcpy(hdr + 1, vector + i * PAYLOAD % ROOM, payload_len);
	}
	if (n > 1)
		fanin_segment_control_set(&message, &control, (uint16_t)each);
	ck_assert_int_eq(sendmsg(fd, &message, 0), (int)(n * each));
}

/* Receives n results, from block 0 on, in bursts of at most `burst`. */
static void
expect_results(uint32_t n, uint32_t payload_len, unsigned int burst)
{
	uint8_t payload[PAYLOAD];
	uint32_t block = 0;

	while (block < n) {
		struct fanin_frame frames[64];
		struct pollfd fds[FANIN_TRANSPORT_MAX_FDS];
		unsigned int got = transport->ops->rx_burst(transport, frames, burst);

		if (got == 0) {
			const unsigned int n_fds = transport->ops->poll_fds(transport, fds);

			ck_assert_int_gt(poll(fds, n_fds, WAIT_MS), 0);
			continue;
		}
		for (unsigned int i = 0; i < got; i++, block++) {
			const struct fanin_headers *headers = frames[i].data;

			ck_assert_int_eq(fanin_wire_validate(headers, frames[i].len),
					 FANIN_REASON_NONE);
			ck_assert(
				fanin_wire_comes_from(headers, switch_mac, htonl(INADDR_LOOPBACK)));
			ck_assert_uint_eq(headers->fanin.block, block);
			ck_assert_uint_eq(fanin_wire_payload_len(headers), payload_len);
			ck_assert(fanin_frame_copy(transport, &frames[i], FANIN_PAYLOAD_OFFSET,
						   payload, payload_len));
			ck_assert_mem_eq(payload, vector + block * PAYLOAD % ROOM, payload_len);
		}
		transport->ops->rx_release(transport, frames, got);
	}
}

static void
expect_nothing_received(void)
{
	struct fanin_frame frame;

	ck_assert_uint_eq(transport->ops->rx_burst(transport, &frame, 1), 0);
}

START_TEST(super_frames_are_taken_apart_into_packets)
{
	give(switch_fd, address_of(htonl(INADDR_LOOPBACK), host_port), 40, PAYLOAD);
	expect_results(40, PAYLOAD, 32);
	expect_nothing_received();
	expect_counted(0, 0, 1, 40);
}
END_TEST

START_TEST(each_call_and_copy_is_counted_when_receiving)
{
	expect_nothing_received();
	/* Neither the group's socket nor this host's has anything. */
	expect_work(0, 2, 0, 0);
	give(switch_fd, address_of(htonl(INADDR_LOOPBACK), host_port), 40, PAYLOAD);
	expect_results(40, PAYLOAD, 40);
	/*
	 * The group's socket has nothing; then comes the super-frame, and nothing of the group
	 * before it.
	 */
	expect_work(0, 5, 0, 40 * PAYLOAD);
}
END_TEST

START_TEST(packets_that_are_single_are_received_too)
{
	give(switch_fd, address_of(htonl(INADDR_LOOPBACK), host_port), 1, PAYLOAD);
	expect_results(1, PAYLOAD, 32);
}
END_TEST

START_TEST(the_groups_packets_are_received)
{
	const struct ip_mreqn out = { .imr_ifindex = (int)if_nametoindex("lo") };

	ck_assert_int_eq(setsockopt(switch_fd, IPPROTO_IP, IP_MULTICAST_IF, &out, sizeof(out)), 0);
	give(switch_fd, address_of(group_be(), switch_port), 20, PAYLOAD);
	expect_results(20, PAYLOAD, 7);
	expect_nothing_received();
}
END_TEST

START_TEST(a_group_that_nothing_comes_from_is_told)
{
	const struct ip_mreqn out = { .imr_ifindex = (int)if_nametoindex("lo") };

	ck_assert_ptr_null(transport->ops->rx_trouble(transport));
	give(switch_fd, address_of(htonl(INADDR_LOOPBACK), host_port), 1, PAYLOAD);
	expect_results(1, PAYLOAD, 32);
	ck_assert_ptr_nonnull(strstr(transport->ops->rx_trouble(transport),
				     "the job's multicast group is received"));
	ck_assert_int_eq(setsockopt(switch_fd, IPPROTO_IP, IP_MULTICAST_IF, &out, sizeof(out)), 0);
	give(switch_fd, address_of(group_be(), switch_port), 1, PAYLOAD);
	expect_results(1, PAYLOAD, 32);
	ck_assert_ptr_null(transport->ops->rx_trouble(transport));
}
END_TEST

/* Packets from another port of the same address; the kernel checks both. */
START_TEST(strangers_packets_are_not_received)
{
	const struct ip_mreqn out = { .imr_ifindex = (int)if_nametoindex("lo") };

	ck_assert_int_eq(setsockopt(stranger_fd, IPPROTO_IP, IP_MULTICAST_IF, &out, sizeof(out)),
			 0);
	give(stranger_fd, address_of(htonl(INADDR_LOOPBACK), host_port), 1, PAYLOAD);
	give(stranger_fd, address_of(group_be(), switch_port), 1, PAYLOAD);
	give(switch_fd, address_of(htonl(INADDR_LOOPBACK), host_port), 1, PAYLOAD);
	expect_results(1, PAYLOAD, 32);
	expect_nothing_received();
}
END_TEST

/*
 * Each socket is bound, whatever the user named: a packet from another interface may have the
 * switch's address, but it has not come by the switch's path.
 */
START_TEST(sockets_are_bound_to_the_interface)
{
	struct pollfd fds[FANIN_TRANSPORT_MAX_FDS];
	const unsigned int n = transport->ops->poll_fds(transport, fds);

	ck_assert_uint_eq(n, 2);
	for (unsigned int i = 0; i < n; i++) {
		int bound = 0;
		socklen_t len = sizeof(bound);

		ck_assert_int_eq(getsockopt(fds[i].fd, SOL_SOCKET, SO_BINDTOIFINDEX, &bound, &len),
				 0);
		ck_assert_int_eq(bound, (int)if_nametoindex("lo"));
	}
}
END_TEST

START_TEST(runts_are_passed_over)
{
	struct sockaddr_in to = address_of(htonl(INADDR_LOOPBACK), host_port);

	ck_assert_int_eq(sendto(switch_fd, "x", 1, 0, (struct sockaddr *)&to, sizeof(to)), 1);
	ck_assert_int_eq(sendto(switch_fd, "", 0, 0, (struct sockaddr *)&to, sizeof(to)), 0);
	give(switch_fd, to, 2, PAYLOAD);
	expect_results(2, PAYLOAD, 32);
}
END_TEST

START_TEST(packets_beyond_the_socket_buffer_are_counted)
{
	const uint64_t before = transport->ops->ring_drops(transport);

	for (unsigned int i = 0; i < 4000 && transport->ops->ring_drops(transport) == before; i++)
		give(switch_fd, address_of(htonl(INADDR_LOOPBACK), host_port), 60, PAYLOAD);
	ck_assert_uint_gt(transport->ops->ring_drops(transport), before);
}
END_TEST

/* Returns the size of a socket's receive buffer, from the kernel. */
static int
receive_buffer(int fd)
{
	int granted = 0;
	socklen_t len = sizeof(granted);

	ck_assert_int_eq(getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &granted, &len), 0);
	return granted;
}

START_TEST(a_smaller_buffer_has_room_for_fewer_packets)
{
	const int asked = 100000;
	const uint32_t room = transport->ops->rx_room(transport);
	struct pollfd fds[FANIN_TRANSPORT_MAX_FDS];
	unsigned int n;

	transport_end();
	transport_open((uint32_t)asked);
	ck_assert_uint_lt(transport->ops->rx_room(transport), room);
	n = transport->ops->poll_fds(transport, fds);
	for (unsigned int i = 0; i < n; i++)
		ck_assert_int_eq(receive_buffer(fds[i].fd), 2 * asked);
}
END_TEST

START_TEST(the_environment_says_how_large_buffers_are)
{
	static const struct {
		const char *value;
		int status;
		uint32_t bytes;
	} values[] = { { "212992", FANIN_OK, 212992 },
		       { "", FANIN_OK, FANIN_UDP_RECEIVE_BUFFER },
		       { "4096", FANIN_OK, 4096 },
		       { "1073741824", FANIN_OK, 1073741824 },
		       { "4095", FANIN_ERR_INVALID, 0 },
		       { "1073741825", FANIN_ERR_INVALID, 0 },
		       { "1MiB", FANIN_ERR_INVALID, 0 },
		       { "-8192", FANIN_ERR_INVALID, 0 },
		       { "99999999999999999999", FANIN_ERR_INVALID, 0 } };

	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		fanin_ctx *ctx = NULL;

		setenv("FANIN_RECEIVE_BUFFER", values[i].value, 1);
		ck_assert_int_eq(fanin_init(NULL, &ctx), values[i].status);
		if (ctx != NULL)
			ck_assert_uint_eq(ctx->receive_buffer, values[i].bytes);
		fanin_finalize(ctx);
	}
	unsetenv("FANIN_RECEIVE_BUFFER");
}
END_TEST

Suite *
suite_udp(void)
{
	Suite *suite = suite_create("udp");
	TCase *sending = tcase_create("sending");
	TCase *receiving = tcase_create("receiving");

	tcase_add_checked_fixture(sending, transport_make, transport_end);
	tcase_add_test(sending, packets_that_are_alike_leave_together_at_a_flush);
	tcase_add_test(sending, a_super_frame_has_64_packets_and_65507_bytes_at_most);
	tcase_add_test(sending, only_the_last_packet_is_shorter);
	tcase_add_test(sending, headers_and_what_is_copied_may_change_before_the_flush);
	tcase_add_test(sending, each_call_and_copy_is_counted_when_sending);
	tcase_add_test(sending, where_none_pass_packets_leave_one_by_one);
	tcase_add_test(sending, retransmissions_leave_alone);
	tcase_add_test(sending, super_frames_end_where_what_is_in_them_is_lost);
	suite_add_tcase(suite, sending);
	tcase_add_checked_fixture(receiving, transport_make, transport_end);
	tcase_add_test(receiving, super_frames_are_taken_apart_into_packets);
	tcase_add_test(receiving, each_call_and_copy_is_counted_when_receiving);
	tcase_add_test(receiving, packets_that_are_single_are_received_too);
	tcase_add_test(receiving, the_groups_packets_are_received);
	tcase_add_test(receiving, a_group_that_nothing_comes_from_is_told);
	tcase_add_test(receiving, strangers_packets_are_not_received);
	tcase_add_test(receiving, sockets_are_bound_to_the_interface);
	tcase_add_test(receiving, runts_are_passed_over);
	tcase_add_test(receiving, packets_beyond_the_socket_buffer_are_counted);
	tcase_add_test(receiving, a_smaller_buffer_has_room_for_fewer_packets);
	tcase_add_test(receiving, the_environment_says_how_large_buffers_are);
	suite_add_tcase(suite, receiving);
	return suite;
}
