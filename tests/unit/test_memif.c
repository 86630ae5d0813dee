/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The host library's memif transport against a switch that a test plays: frames in both directions,
 * sleeping, finding the switch, and a peer that sends invalid data or leaves.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <check.h>

#include "hostlib/src/base/clock.h"
#include "tests/unit/memif_peer.h"
#include "lab/reference/random.h"
#include "tests/unit/suites.h"
#include "wire/wire.h"

#define JOB 7
#define UDP_PORT 21930
#define HOST_IP 0x0100004du   /* 77.0.0.1 */
#define SWITCH_IP 0xfe00004du /* 77.0.0.254 */

static const struct fanin_memif_options options = {
	.socket = "test",
	.id = 3,
	.local_ip_be = HOST_IP,
	.local_mac = { 2, 0xfb, 77, 0, 0, 1 },
};

static struct peer peer;
static struct fanin_memif *memif;
static struct fanin_transport *transport;
static uint8_t taken[65536];

static void
attach(void)
{
	memif = peer_attach(&peer, &options);
	transport = &memif->transport;
}

static void
detach(void)
{
	transport->ops->close(transport);
	peer_close(&peer);
}

/* Sends one frame of len bytes, beginning with a number. Returns false if there is no room. */
static bool
host_send(uint32_t number, uint32_t len)
{
	uint8_t *frame = transport->ops->tx_reserve(transport, len);

	if (frame == NULL)
		return false;
	memset(frame, (int)number, len);
	memcpy(frame, &number, sizeof(number));
	transport->ops->tx_commit(transport, len);
	return true;
}

/* Returns how many buffers the peer may fill. */
static uint16_t
posted(void)
{
	return (uint16_t)(peer.to_client->head - peer.to_client->tail);
}

/* -------------------------------------------------------------- frames */

START_TEST(frames_pass_to_the_switch_in_order_and_whole)
{
	uint32_t received = 0;
	uint32_t sent = 0;

	attach();
	/* The frames go round the ring several times. */
	while (received < 5 * FANIN_MEMIF_SLOTS) {
		uint32_t len;

		for (uint32_t i = 0; i < 1 + sent % 40; i++, sent++)
			ck_assert(host_send(sent, 60 + sent % 9000));
		ck_assert_int_eq(transport->ops->tx_flush(transport), 0);
		while ((len = peer_take(&peer, taken)) != 0) {
			ck_assert_uint_eq(len, 60 + received % 9000);
			ck_assert_mem_eq(taken, &received, sizeof(received));
			ck_assert_uint_eq(taken[len - 1], received & 0xff);
			received++;
		}
		ck_assert_uint_eq(received, sent);
	}
	detach();
}
END_TEST

START_TEST(a_full_ring_has_room_again_once_the_switch_has_taken_frames)
{
	uint32_t sent = 0;

	attach();
	while (sent <= FANIN_MEMIF_SLOTS && host_send(sent, 100))
		sent++;
	ck_assert_uint_eq(sent, FANIN_MEMIF_SLOTS);
	ck_assert_ptr_null(transport->ops->tx_reserve(transport, 100));
	transport->ops->tx_flush(transport);
	ck_assert_ptr_null(transport->ops->tx_reserve(transport, 100));
	for (uint32_t i = 0; i < 3; i++)
		ck_assert_uint_eq(peer_take(&peer, taken), 100);
	for (uint32_t i = 0; i < 3; i++)
		ck_assert(host_send(sent + i, 100));
	ck_assert(!host_send(0, 100));
	detach();
}
END_TEST

START_TEST(frames_longer_than_a_buffer_are_not_sent)
{
	attach();
	ck_assert_ptr_nonnull(transport->ops->tx_reserve(transport, FANIN_MEMIF_FRAME_BYTES));
	ck_assert_ptr_null(transport->ops->tx_reserve(transport, FANIN_MEMIF_FRAME_BYTES + 1));
	detach();
}
END_TEST

START_TEST(frames_come_from_the_switch_in_order_and_every_buffer_returns)
{
	struct fanin_frame frames[32];
	uint8_t frame[9100];
	uint32_t received = 0;
	uint32_t sent = 0;
	uint16_t buffers;

	attach();
	fanin_memif_expect(transport, 256);
	buffers = posted();
	ck_assert_uint_eq(buffers, 512);
	while (received < 5 * FANIN_MEMIF_SLOTS) {
		unsigned int n;

		for (uint32_t i = 0; i < 1 + sent % 60; i++, sent++) {
			memset(frame, (int)sent, sizeof(frame));
			memcpy(frame, &sent, sizeof(sent));
			peer_send(&peer, frame, 60 + sent % 9000);
		}
		while ((n = transport->ops->rx_burst(transport, frames, 32)) != 0) {
			for (unsigned int i = 0; i < n; i++, received++) {
				const uint8_t *data = frames[i].data;

				ck_assert_uint_eq(frames[i].len, 60 + received % 9000);
				ck_assert_uint_eq((uintptr_t)data % 64, 32);
				ck_assert_mem_eq(data, &received, sizeof(received));
				ck_assert_uint_eq(data[frames[i].len - 1], received & 0xff);
			}
			transport->ops->rx_release(transport, frames, n);
		}
		ck_assert_uint_eq(received, sent);
		ck_assert_uint_eq(posted(), buffers);
	}
	detach();
}
END_TEST

START_TEST(a_window_that_is_too_large_takes_the_whole_ring)
{
	attach();
	fanin_memif_expect(transport, 32768);
	ck_assert_uint_eq(posted(), FANIN_MEMIF_SLOTS);
	detach();
}
END_TEST

START_TEST(only_packets_of_the_job_are_handed_up)
{
	const struct fanin_flow flow = { .dst_port = UDP_PORT };
	const struct fanin_flow other_flow = { .dst_port = UDP_PORT + 1 };
	struct fanin_headers headers = { 0 };
	struct fanin_headers foreign;
	struct fanin_frame frame;
	uint16_t buffers;

	attach();
	buffers = posted();
	fanin_memif_filter(transport, JOB, UDP_PORT);
	fanin_wire_encode_l4(&headers, &flow, 0);
	fanin_wire_encode_header(&headers.fanin, FANIN_TYPE_ANSWER, JOB, 1, 1);

	foreign = headers;
	foreign.fanin.job = JOB + 1;
	peer_send(&peer, &foreign, sizeof(foreign));
	foreign = headers;
	fanin_wire_encode_l4(&foreign, &other_flow, 0);
	peer_send(&peer, &foreign, sizeof(foreign));
	foreign = headers;
	foreign.eth.type_be = htons(0x0806);
	peer_send(&peer, &foreign, sizeof(foreign));
	foreign = headers;
	foreign.ip.fragment_be = htons(0x2000);
	peer_send(&peer, &foreign, sizeof(foreign));
	peer_send(&peer, &headers, sizeof(headers) - 1);
	ck_assert_uint_eq(transport->ops->rx_burst(transport, &frame, 1), 0);
	ck_assert_uint_eq(posted(), buffers);

	peer_send(&peer, &headers, sizeof(headers));
	ck_assert_uint_eq(transport->ops->rx_burst(transport, &frame, 1), 1);
	ck_assert_mem_eq(frame.data, &headers, sizeof(headers));
	transport->ops->rx_release(transport, &frame, 1);
	detach();
}
END_TEST

/* ------------------------------------------------------- a hostile peer */

START_TEST(indices_beyond_the_ring_end_the_transport)
{
	static const uint16_t lies[] = { 11, 1000, 1024, 32768, 65000 };
	struct fanin_frame frame;

	attach();
	for (uint32_t i = 0; i < 10; i++)
		ck_assert(host_send(i, 100));
	transport->ops->tx_flush(transport);
	if (_i < 5) {
		peer.to_server->tail = lies[_i];
		while (host_send(0, 100))
			;
	} else {
		peer.to_client->tail = (uint16_t)(peer.to_client->head + lies[_i - 5] - 10);
		ck_assert_uint_eq(transport->ops->rx_burst(transport, &frame, 1), 0);
	}
	ck_assert_int_eq(transport->ops->tx_flush(transport), -EPROTO);
	ck_assert_ptr_null(transport->ops->tx_reserve(transport, 100));
	ck_assert_uint_eq(transport->ops->rx_burst(transport, &frame, 1), 0);
	detach();
}
END_TEST

START_TEST(descriptors_that_lie_cost_their_frame_and_nothing_else)
{
	struct memif_descriptor *descriptors;
	struct fanin_frame frame;
	uint8_t good[200];
	uint16_t buffers;

	attach();
	descriptors = peer.to_client->descriptors;
	buffers = posted();
	memset(good, 0x77, sizeof(good));
	for (int i = 0; i < 4; i++)
		peer_send(&peer, good, sizeof(good));
	descriptors[0].length = FANIN_MEMIF_FRAME_BYTES + 1;
	descriptors[1].length = UINT32_MAX;
	descriptors[2].flags = MEMIF_DESCRIPTOR_NEXT;
	/* The peer can't choose a frame's place. */
	descriptors[3].offset = UINT32_MAX;
	descriptors[3].region = 9;
	ck_assert_uint_eq(transport->ops->rx_burst(transport, &frame, 1), 1);
	ck_assert_uint_eq(frame.len, sizeof(good));
	ck_assert_mem_eq(frame.data, good, sizeof(good));
	transport->ops->rx_release(transport, &frame, 1);
	ck_assert_uint_eq(posted(), buffers);
	/* Each buffer is offered again unchanged. */
	for (uint32_t i = 0; i < 4u * buffers; i++) {
		peer_send(&peer, good, sizeof(good));
		ck_assert_uint_eq(transport->ops->rx_burst(transport, &frame, 1), 1);
		transport->ops->rx_release(transport, &frame, 1);
	}
	ck_assert_int_eq(transport->ops->tx_flush(transport), 0);
	detach();
}
END_TEST

/*
 * Writes random data all over both rings: nothing outside of the memory may be touched, which ASan
 * and the guard detect.
 */
START_TEST(random_rings_never_lead_out_of_the_memory)
{
	struct random random = random_seed((uint64_t)_i);
	struct fanin_frame frames[32];

	attach();
	for (int round = 0; round < 2000; round++) {
		struct memif_ring *ring = random_below(&random, 2) ? peer.to_client
								   : peer.to_server;
		struct memif_descriptor *descriptor =
			&ring->descriptors[random_below(&random, FANIN_MEMIF_SLOTS)];
		unsigned int n;

		descriptor->length = (uint32_t)random_u32(&random);
		descriptor->offset = (uint32_t)random_u32(&random);
		descriptor->flags = (uint16_t)random_u32(&random);
		ring->head = (uint16_t)random_u32(&random);
		/* Values are mostly valid, so that the connection lasts for a while. */
		peer.to_client->tail =
			(uint16_t)(memif->rx.tail +
				   random_below(&random,
						(uint16_t)(memif->rx.published - memif->rx.tail) +
							1u));
		n = transport->ops->rx_burst(transport, frames, 32);
		for (unsigned int i = 0; i < n; i++) {
			const uint8_t *data = frames[i].data;

			ck_assert(data >= memif->area + FANIN_MEMIF_RINGS_BYTES);
			ck_assert(data + frames[i].len <= memif->area + memif->area_len);
		}
		transport->ops->rx_release(transport, frames, n);
		host_send((uint32_t)round, 64);
		peer.to_server->tail = memif->tx.head;
		transport->ops->tx_flush(transport);
	}
	detach();
}
END_TEST

/* ------------------------------------------------- sleeping and leaving */

static int
ready(struct pollfd *fds, unsigned int n)
{
	return poll(fds, n, 0);
}

START_TEST(a_sleeper_is_woken_by_an_interrupt_and_polls_without)
{
	struct pollfd fds[FANIN_TRANSPORT_MAX_FDS];
	struct fanin_frame frame;
	uint8_t bytes[64] = { 0 };
	unsigned int n;

	attach();
	ck_assert_uint_eq(peer.to_client->flags, MEMIF_RING_NO_INTERRUPT);
	n = transport->ops->poll_fds(transport, fds);
	ck_assert_uint_eq(peer.to_client->flags, 0);
	ck_assert_int_eq(ready(fds, n), 0);
	peer_send(&peer, bytes, sizeof(bytes));
	eventfd_write(peer.event_fds[1], 1);
	ck_assert_int_eq(ready(fds, n), 1);
	ck_assert_uint_eq(transport->ops->rx_burst(transport, &frame, 1), 1);
	transport->ops->rx_release(transport, &frame, 1);
	ck_assert_uint_eq(peer.to_client->flags, MEMIF_RING_NO_INTERRUPT);
	ck_assert_int_eq(ready(fds, n), 0);

	/* A frame that came before the peer saw the flag. */
	peer_send(&peer, bytes, sizeof(bytes));
	n = transport->ops->poll_fds(transport, fds);
	ck_assert_int_eq(ready(fds, n), 1);
	detach();
}
END_TEST

START_TEST(a_switch_that_polls_is_not_interrupted)
{
	struct pollfd kick;

	attach();
	kick = (struct pollfd){ .fd = peer.event_fds[0], .events = POLLIN };
	ck_assert(host_send(1, 64));
	transport->ops->tx_flush(transport);
	ck_assert_int_eq(ready(&kick, 1), 0);
	peer.to_server->flags = 0;
	/* There is nothing new, and no interrupt. */
	transport->ops->tx_flush(transport);
	ck_assert_int_eq(ready(&kick, 1), 0);
	ck_assert(host_send(2, 64));
	transport->ops->tx_flush(transport);
	ck_assert_int_eq(ready(&kick, 1), 1);
	detach();
}
END_TEST

START_TEST(a_switch_that_leaves_is_noticed_before_sleeping)
{
	const struct memif_message message = { .type = MEMIF_TYPE_DISCONNECT };
	struct pollfd fds[FANIN_TRANSPORT_MAX_FDS];

	attach();
	ck_assert_uint_eq(transport->ops->poll_fds(transport, fds), 2);
	if (_i == 0)
		ck_assert_int_eq(shutdown(peer.fd, SHUT_RDWR), 0);
	else
		ck_assert_int_eq(send(peer.fd, &message, sizeof(message), 0), sizeof(message));
	ck_assert_int_eq(ready(fds, 2), 1);
	/* A descriptor that is ready for ever would keep it from sleeping. */
	ck_assert_uint_eq(transport->ops->poll_fds(transport, fds), 0);
	ck_assert_int_eq(transport->ops->tx_flush(transport), -ECONNRESET);
	ck_assert_ptr_null(transport->ops->tx_reserve(transport, 64));
	detach();
}
END_TEST

/* ----------------------------------------------------------------- ARP */

/*
 * Answers each request with two replies: one of another station and, unless _i is 1, the switch's.
 */
static bool
arp_interrupt(void *arg)
{
	const int *mode = arg;
	uint8_t reply[42];

	while (peer_take(&peer, taken) == sizeof(reply)) {
		ck_assert_uint_eq(taken[0], 0xff);
		ck_assert_mem_eq(taken + 6, options.local_mac, 6);
		memcpy(reply, taken, sizeof(reply));
		reply[21] = 2;
		memset(reply + 22, 0xee, 6);
		memcpy(reply + 28, "\x01\x02\x03\x04", 4);
		memcpy(reply + 38, &options.local_ip_be, 4);
		peer_send(&peer, reply, sizeof(reply));
		memcpy(reply + 22, "\x02\xfa\x00\x00\x00\xfe", 6);
		memcpy(reply + 28, taken + 38, 4);
		if (*mode == 0)
			peer_send(&peer, reply, sizeof(reply));
	}
	return *mode == 2;
}

START_TEST(the_switch_is_found_by_arp)
{
	static const int statuses[] = { FANIN_OK, FANIN_ERR_NO_ROUTE, FANIN_ERR_INTERRUPTED };
	uint64_t deadline_ns = fanin_now_ns(NULL) + (_i == 1 ? 150 : PEER_ANSWER_MS) * 1000000ull;
	static const uint8_t expected[6] = { 2, 0xfa, 0, 0, 0, 0xfe };
	struct fanin_error error = { 0 };
	uint8_t mac[6] = { 0 };

	attach();
	ck_assert_int_eq(fanin_memif_resolve(transport, SWITCH_IP, deadline_ns, arp_interrupt, &_i,
					     mac, &error),
			 statuses[_i]);
	if (_i == 0)
		ck_assert_mem_eq(mac, expected, 6);
	if (_i == 1)
		ck_assert_str_eq(error.text,
				 "the switch on test has no answer for the address 77.0.0.254: "
				 "is that its own? (ARP timed out)");
	detach();
}
END_TEST

Suite *
suite_memif(void)
{
	Suite *suite = suite_create("memif");
	TCase *frames = tcase_create("frames");
	TCase *hostile = tcase_create("hostile peer");
	TCase *waiting = tcase_create("waiting");

	tcase_add_test(frames, frames_pass_to_the_switch_in_order_and_whole);
	tcase_add_test(frames, a_full_ring_has_room_again_once_the_switch_has_taken_frames);
	tcase_add_test(frames, frames_longer_than_a_buffer_are_not_sent);
	tcase_add_test(frames, frames_come_from_the_switch_in_order_and_every_buffer_returns);
	tcase_add_test(frames, a_window_that_is_too_large_takes_the_whole_ring);
	tcase_add_test(frames, only_packets_of_the_job_are_handed_up);
	suite_add_tcase(suite, frames);

	tcase_add_loop_test(hostile, indices_beyond_the_ring_end_the_transport, 0, 10);
	tcase_add_test(hostile, descriptors_that_lie_cost_their_frame_and_nothing_else);
	tcase_add_loop_test(hostile, random_rings_never_lead_out_of_the_memory, 0, 5);
	suite_add_tcase(suite, hostile);

	tcase_add_test(waiting, a_sleeper_is_woken_by_an_interrupt_and_polls_without);
	tcase_add_test(waiting, a_switch_that_polls_is_not_interrupted);
	tcase_add_loop_test(waiting, a_switch_that_leaves_is_noticed_before_sleeping, 0, 2);
	tcase_add_loop_test(waiting, the_switch_is_found_by_arp, 0, 3);
	suite_add_tcase(suite, waiting);
	return suite;
}
