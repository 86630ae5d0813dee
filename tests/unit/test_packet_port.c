/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ports on packet sockets: frames that leave one end of a link and arrive at the other, counters,
 * and packets that stay the caller's. Each test has a network namespace of its own, whose loopback
 * interface returns sent frames.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/if_packet.h>
#include <netinet/udp.h>

#include "pipeline/base/offload.h"
#include "pipeline/pipeline.h"
#include "lab/reference/random.h"
#include "switch/packet_port_internal.h"
#include "tests/unit/ring_switch.h"
#include "tests/unit/suites.h"

#define NUMBER (PORT_DRIVER_FIRST + 3)
#define MTU 1500
#define POOL_SIZE 1023
#define RING 64
#define UDP_PORT 21930

static struct rte_mempool *pool;
static struct packet_port *port;
static void *queue;
static struct rte_mbuf *mbufs[256];

static void
set_interface(const char *name, bool up, int mtu)
{
	struct ifreq request = { .ifr_flags = up ? IFF_UP : 0 };
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", name);
	ck_assert_int_eq(ioctl(fd, SIOCSIFFLAGS, &request), 0);
	request.ifr_mtu = mtu;
	ck_assert_int_eq(ioctl(fd, SIOCSIFMTU, &request), 0);
	close(fd);
}

static void
setup(void)
{
	const struct packet_port_options options = {
		.interface = "lo",
		.number = NUMBER,
		.mtu = MTU,
		.udp_port = UDP_PORT,
		.n_queues = 1,
		.n_frames = RING,
		.qdisc_bypass = true,
		.pool = NULL,
	};
	struct packet_port_options own = options;
	char error[PACKET_PORT_ERROR_LEN] = "";

	ring_switch_eal();
	ck_assert_msg(unshare(CLONE_NEWNET) == 0, "needs root: %s", strerror(errno));
	set_interface("lo", true, 9000);
	pool = rte_pktmbuf_pool_create("packets", POOL_SIZE, 0, PIPELINE_MBUF_PRIV_SIZE, 2048 + 128,
				       SOCKET_ID_ANY);
	ck_assert_ptr_nonnull(pool);
	own.pool = pool;
	ck_assert_msg(packet_port_open(&own, &port, error) == 0, "%s", error);
	queue = packet_port_driver.queue(port, 0);
}

static void
teardown(void)
{
	packet_port_driver.close(port);
	ck_assert_uint_eq(rte_mempool_avail_count(pool), POOL_SIZE);
}

/* Makes a frame whose bytes show its number and their position. */
static struct rte_mbuf *
make_frame(uint8_t number, uint16_t len)
{
	struct rte_mbuf *mbuf = rte_pktmbuf_alloc(pool);
	uint8_t *data;

	ck_assert_ptr_nonnull(mbuf);
	data = (uint8_t *)rte_pktmbuf_append(mbuf, len);
	ck_assert_ptr_nonnull(data);
	for (uint16_t i = 0; i < len; i++)
		data[i] = (uint8_t)(number + i);
	memset(data, 0xff, 6);
	data[12] = 0x88;
	data[13] = 0xb5;
	return mbuf;
}

static void
check_frame(struct rte_mbuf *mbuf, uint8_t number, uint16_t len)
{
	const uint8_t *data = rte_pktmbuf_mtod(mbuf, const uint8_t *);
	bool same = true;

	ck_assert_uint_eq(mbuf->pkt_len, len);
	ck_assert_uint_eq(mbuf->data_len, len);
	ck_assert_uint_eq(mbuf->nb_segs, 1);
	ck_assert_uint_eq(mbuf->port, NUMBER);
	ck_assert_uint_eq((uintptr_t)data % 64, 32);
	for (uint16_t i = 14; i < len; i++)
		same = same && data[i] == (uint8_t)(number + i);
	ck_assert_msg(same, "the frame is not number %u", number);
	rte_pktmbuf_free(mbuf);
}

static void
send_frames(uint8_t first, uint16_t n, uint16_t len)
{
	for (uint16_t i = 0; i < n; i++)
		mbufs[i] = make_frame((uint8_t)(first + i), len);
	ck_assert_uint_eq(packet_port_driver.tx_burst(queue, mbufs, n), n);
}

/* Waits for frames, which another CPU may still deliver. Returns their number. */
static uint16_t
receive(uint16_t n)
{
	uint16_t got = 0;

	for (unsigned int i = 0; i < 100000 && got < n; i++)
		got = (uint16_t)(got + packet_port_driver.rx_burst(queue, mbufs + got,
								   (uint16_t)(n - got)));
	return got;
}

static struct port_driver_stats
stats(void)
{
	struct port_driver_stats stats;

	packet_port_driver.stats(port, &stats);
	return stats;
}

START_TEST(frames_arrive_whole_in_order_and_aligned)
{
	/* The frames go round the ring several times. */
	for (uint8_t round = 0; round < 8; round++) {
		send_frames(round, 40, (uint16_t)(60 + 180 * round));
		ck_assert_uint_eq(receive(40), 40);
		for (uint8_t i = 0; i < 40; i++)
			check_frame(mbufs[i], (uint8_t)(round + i), (uint16_t)(60 + 180 * round));
	}
	ck_assert_uint_eq(packet_port_driver.rx_burst(queue, mbufs, 32), 0);
	ck_assert_uint_eq(stats().rx_missed, 0);
}
END_TEST

START_TEST(a_frame_in_segments_leaves_as_one)
{
	struct rte_mbuf *first = make_frame(7, 500);

	first->next = make_frame(0, 100);
	for (unsigned int i = 0; i < 100; i++)
		rte_pktmbuf_mtod(first->next, uint8_t *)[i] = (uint8_t)(7 + 500 + i);
	first->nb_segs = 2;
	first->pkt_len = 600;
	ck_assert_uint_eq(packet_port_driver.tx_burst(queue, &first, 1), 1);
	ck_assert_uint_eq(receive(1), 1);
	check_frame(mbufs[0], 7, 600);
}
END_TEST

START_TEST(the_kernel_counts_frames_that_a_full_ring_drops)
{
	send_frames(0, RING + 30, 100);
	for (unsigned int i = 0; i < 100000 && stats().rx_missed < 20; i++)
		;
	ck_assert_uint_eq(stats().rx_missed + receive(RING + 30), RING + 30);
	/* The first ones have arrived, unchanged. */
	check_frame(mbufs[0], 0, 100);
	for (unsigned int i = 1; i < RING + 30 - stats().rx_missed; i++)
		check_frame(mbufs[i], (uint8_t)i, 100);
}
END_TEST

START_TEST(without_packets_frames_wait_in_the_ring)
{
	struct rte_mbuf *held[POOL_SIZE];
	unsigned int n;

	send_frames(0, 20, 100);
	for (n = 0; rte_mempool_avail_count(pool) > 0; n++)
		held[n] = rte_pktmbuf_alloc(pool);
	ck_assert_uint_eq(receive(20), 0);
	rte_pktmbuf_free_bulk(held, n);
	ck_assert_uint_eq(receive(20), 20);
	for (uint8_t i = 0; i < 20; i++)
		check_frame(mbufs[i], i, 100);
	ck_assert_uint_eq(stats().rx_missed, 0);
}
END_TEST

START_TEST(frames_longer_than_the_port_takes_are_counted)
{
	struct rte_mbuf *first = make_frame(0, 2000);

	first->next = make_frame(0, 2000);
	first->nb_segs = 2;
	first->pkt_len = 4000;
	ck_assert_uint_eq(packet_port_driver.tx_burst(queue, &first, 1), 1);
	send_frames(1, 1, 100);
	ck_assert_uint_eq(receive(1), 1);
	check_frame(mbufs[0], 1, 100);
	ck_assert_uint_eq(stats().rx_errors, 1);
}
END_TEST

START_TEST(frames_that_the_interface_never_takes_do_not_hold_up_others)
{
	set_interface("lo", true, MTU);
	mbufs[0] = make_frame(0, 100);
	mbufs[1] = make_frame(1, 1900);
	mbufs[2] = make_frame(2, 100);
	ck_assert_uint_eq(packet_port_driver.tx_burst(queue, mbufs, 3), 3);
	ck_assert_uint_eq(stats().tx_errors, 1);
	ck_assert_uint_eq(receive(2), 2);
	check_frame(mbufs[0], 0, 100);
	check_frame(mbufs[1], 2, 100);
}
END_TEST

START_TEST(frames_that_may_leave_later_stay_the_callers)
{
	set_interface("lo", false, 9000);
	for (uint8_t i = 0; i < 3; i++)
		mbufs[i] = make_frame(i, 100);
	ck_assert_uint_eq(packet_port_driver.tx_burst(queue, mbufs, 3), 0);
	set_interface("lo", true, 9000);
	/* The socket reports once more that the interface was down. */
	ck_assert_uint_eq(packet_port_driver.tx_burst(queue, mbufs, 3), 0);
	ck_assert_uint_eq(packet_port_driver.tx_burst(queue, mbufs, 3), 3);
	ck_assert_uint_eq(receive(3), 3);
	for (uint8_t i = 0; i < 3; i++)
		check_frame(mbufs[i], i, 100);
	ck_assert_uint_eq(stats().tx_errors, 0);
}
END_TEST

START_TEST(a_port_that_is_opened_anew_goes_on_with_its_counters)
{
	char error[PACKET_PORT_ERROR_LEN] = "";
	uint64_t missed;

	send_frames(0, RING + 30, 100);
	for (unsigned int i = 0; i < 100000 && stats().rx_missed < 20; i++)
		;
	missed = stats().rx_missed;
	ck_assert_uint_gt(missed, 0);
	ck_assert_msg(packet_port_reopen(port, error) == 0, "%s", error);
	ck_assert_uint_eq(stats().rx_missed, missed);
	send_frames(5, 3, 100);
	ck_assert_uint_eq(receive(3), 3);
	for (uint8_t i = 0; i < 3; i++)
		check_frame(mbufs[i], (uint8_t)(5 + i), 100);
}
END_TEST

START_TEST(several_queues_get_each_frame_once)
{
	struct packet_port_options options = {
		.interface = "lo", .number = NUMBER, .mtu = MTU, .n_queues = 4, .pool = pool
	};
	struct packet_port *other;
	char error[PACKET_PORT_ERROR_LEN] = "";
	uint16_t got = 0;

	ck_assert_msg(packet_port_open(&options, &other, error) == 0, "%s", error);
	send_frames(0, 40, 100);
	for (unsigned int i = 0; i < 100000 && got < 40; i++)
		got = (uint16_t)(got +
				 packet_port_driver.rx_burst(packet_port_driver.queue(other, i % 4),
							     mbufs + got, 32));
	ck_assert_uint_eq(got, 40);
	for (uint16_t q = 0; q < 4; q++)
		ck_assert_uint_eq(packet_port_driver.rx_burst(packet_port_driver.queue(other, q),
							      mbufs + got, 32),
				  0);
	rte_pktmbuf_free_bulk(mbufs, got);
	packet_port_driver.close(other);
	/* The first port is on the same interface. */
	ck_assert_uint_eq(receive(40), 40);
	rte_pktmbuf_free_bulk(mbufs, 40);
}
END_TEST

START_TEST(port_faults_are_told)
{
	struct packet_port_options options = {
		.interface = "nowhere", .number = NUMBER, .mtu = MTU, .n_queues = 1, .pool = pool
	};
	struct packet_port *other = NULL;
	char error[PACKET_PORT_ERROR_LEN] = "";

	ck_assert_int_eq(packet_port_open(&options, &other, error), -ENODEV);
	ck_assert_str_eq(error, "no MAC address: No such device");
	options.interface = "lo";
	options.n_frames = 1u << 30;
	ck_assert_int_lt(packet_port_open(&options, &other, error), 0);
	ck_assert_ptr_nonnull(strstr(error, "receive ring"));
	ck_assert_ptr_null(other);
}
END_TEST

/* Returns a byte of a message. All packets of 1000 bytes have the same job. */
static uint8_t
message_byte(uint32_t i)
{
	return i % 1000 < FANIN_HDR_LEN ? 5 : (uint8_t)(i * 7 + (i >> 8));
}

/* Opens a UDP socket that receives packets to a port of this host. */
static int
open_receiver(uint16_t port_number)
{
	const struct sockaddr_in address = { .sin_family = AF_INET,
					     .sin_port = htons(port_number) };
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
	return fd;
}

/*
 * Opens a UDP socket that sends to a port of this host in segments of this length. There must be a
 * receiver, or the kernel would report errors.
 */
static int
open_sender(uint16_t port_number, int segment)
{
	const struct sockaddr_in to = { .sin_family = AF_INET,
					.sin_port = htons(port_number),
					.sin_addr = { .s_addr = htonl(INADDR_LOOPBACK) } };
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(setsockopt(fd, SOL_UDP, UDP_SEGMENT, &segment, sizeof(segment)), 0);
	ck_assert_int_eq(connect(fd, (const struct sockaddr *)&to, sizeof(to)), 0);
	return fd;
}

static void
send_bytes(int fd, size_t len)
{
	static uint8_t bytes[UINT16_MAX];

	for (size_t i = 0; i < len; i++)
		bytes[i] = message_byte((uint32_t)i);
	ck_assert_int_eq(send(fd, bytes, len, 0), (ssize_t)len);
}

/* Checks that `len` bytes of a frame from `at` on are those of a message from `offset` on. */
static void
check_bytes(const struct rte_mbuf *mbuf, uint32_t at, uint32_t offset, uint32_t len)
{
	static uint8_t room[UINT16_MAX];
	const uint8_t *bytes = rte_pktmbuf_read(mbuf, at, len, room);
	bool same = bytes != NULL;

	for (uint32_t i = 0; i < len && same; i++)
		same = bytes[i] == message_byte(offset + i);
	ck_assert_msg(same, "other bytes than were sent");
}

/*
 * Data that a plain UDP socket sends at once arrives as separate packets, each with headers of its
 * own.
 */
START_TEST(super_frames_to_fanins_port_come_in_as_frames)
{
	static const uint16_t segments[] = { 1408, 600, 1458 };
	const uint16_t segment = segments[_i];
	const uint32_t len = 40000;
	const uint16_t n = (uint16_t)((len + segment - 1) / segment);
	int receiver = open_receiver(UDP_PORT);
	int fd = open_sender(UDP_PORT, segment);

	for (unsigned int round = 0; round < 20; round++) {
		send_bytes(fd, len);
		ck_assert_uint_eq(receive(n), n);
		for (uint16_t i = 0; i < n; i++) {
			const struct fanin_headers *headers =
				rte_pktmbuf_mtod(mbufs[i], const struct fanin_headers *);
			const uint32_t part = RTE_MIN(len - i * segment, (uint32_t)segment);

			ck_assert_uint_eq(mbufs[i]->nb_segs, 1);
			ck_assert_uint_eq(mbufs[i]->port, NUMBER);
			ck_assert_uint_eq(mbufs[i]->ol_flags, 0);
			ck_assert_uint_eq(mbufs[i]->pkt_len, FANIN_L4_LEN + part);
			ck_assert_uint_eq((uintptr_t)headers % 64, 32);
			ck_assert_uint_eq(rte_be_to_cpu_16(headers->ip.total_len_be),
					  FANIN_IP_LEN + FANIN_UDP_LEN + part);
			ck_assert_uint_eq(rte_be_to_cpu_16(headers->udp.len_be),
					  FANIN_UDP_LEN + part);
			ck_assert_uint_eq(headers->udp.checksum_be, 0);
			ck_assert_uint_eq(rte_raw_cksum(&headers->ip, FANIN_IP_LEN), UINT16_MAX);
			check_bytes(mbufs[i], FANIN_L4_LEN, i * segment, part);
		}
		rte_pktmbuf_free_bulk(mbufs, n);
	}
	ck_assert_uint_eq(stats().rx_super_frames, 20);
	ck_assert_uint_eq(stats().rx_super_segments, 20u * n);
	ck_assert_uint_eq(stats().rx_missed + stats().rx_errors, 0);
	close(fd);
	close(receiver);
}
END_TEST

/*
 * Makes a packet with any job, rank, epoch, key and type, valid or invalid, of len bytes after
 * UDP's header.
 */
static void
make_any(struct random *random, uint8_t *at, uint32_t len)
{
	struct fanin_hdr hdr;

	memset(&hdr, 0, sizeof(hdr));
	fanin_wire_encode_header(&hdr, FANIN_TYPE_CONTRIBUTION, (uint32_t)random_below(random, 4),
				 (uint32_t)random_below(random, 3), random_below(random, 5));
	hdr.rank = (uint16_t)random_below(random, 8);
	hdr.block = (uint32_t)random_below(random, 100);
	hdr.contributions = 1;
	hdr.dtype = FANIN_WIRE_U8;
	hdr.op = FANIN_WIRE_SUM;
	hdr.count = (uint16_t)(len - FANIN_HDR_LEN);
	memcpy(at, &hdr, FANIN_HDR_LEN);
	for (uint32_t i = FANIN_HDR_LEN; i < len; i++)
		at[i] = (uint8_t)random_below(random, 256);
	if (random_chance(random, 0.4))
		at[random_below(random, FANIN_HDR_LEN)] ^= (uint8_t)(1 + random_below(random, 255));
}

/*
 * Segments of a super-frame with any packets arrive like the same packets sent one by one, so all
 * checks have the same result.
 */
START_TEST(each_segment_of_a_super_frame_is_judged_by_its_own_header)
{
	static struct rte_mbuf *alone[64];
	static uint8_t message[UINT16_MAX];
	struct random random = { .state = 4711 };
	int receiver = open_receiver(UDP_PORT);
	unsigned int good = 0, bad = 0;

	for (unsigned int round = 0; round < 60; round++) {
		const uint32_t size = (uint32_t)(FANIN_HDR_LEN + random_below(&random, 1400));
		const uint32_t most = 65000 / size < 60 ? 65000 / size : 60;
		const uint16_t n = (uint16_t)(1 + random_below(&random, most));
		/* A last segment that is shorter than Fanin's header is not Fanin's. */
		const uint32_t last = (uint32_t)(1 + random_below(&random, size));
		const uint32_t len = (n - 1) * size + last;
		int together = open_sender(UDP_PORT, (int)size);
		int apart = open_sender(UDP_PORT, 0);

		for (uint16_t i = 0; i < n; i++)
			make_any(&random, message + i * size, size);
		ck_assert_int_eq(send(together, message, len, 0), (ssize_t)len);
		ck_assert_uint_eq(receive(n), n);
		memcpy(alone, mbufs, n * sizeof(alone[0]));
		for (uint16_t i = 0; i < n; i++)
			ck_assert_int_gt(send(apart, message + i * size, i + 1 < n ? size : last,
					      0),
					 0);
		ck_assert_uint_eq(receive(n), n);
		for (uint16_t i = 0; i < n; i++) {
			const struct fanin_headers *one =
				rte_pktmbuf_mtod(alone[i], const struct fanin_headers *);
			const struct fanin_headers *other =
				rte_pktmbuf_mtod(mbufs[i], const struct fanin_headers *);
			const enum fanin_reason reason = fanin_wire_validate(other,
									     mbufs[i]->data_len);

			ck_assert_uint_eq(alone[i]->pkt_len, mbufs[i]->pkt_len);
			ck_assert_int_eq(fanin_wire_validate(one, alone[i]->data_len), reason);
			ck_assert_uint_eq(one->ip.total_len_be, other->ip.total_len_be);
			ck_assert_uint_eq(one->udp.len_be, other->udp.len_be);
			ck_assert_uint_eq(one->udp.checksum_be, other->udp.checksum_be);
			ck_assert_int_eq(memcmp(&one->fanin, &other->fanin,
						mbufs[i]->data_len - FANIN_L4_LEN),
					 0);
			good += reason == FANIN_REASON_NONE;
			bad += reason != FANIN_REASON_NONE;
		}
		rte_pktmbuf_free_bulk(alone, n);
		rte_pktmbuf_free_bulk(mbufs, n);
		close(together);
		close(apart);
	}
	ck_assert_uint_gt(good, 200);
	ck_assert_uint_gt(bad, 200);
	close(receiver);
}
END_TEST

/*
 * A burst takes a limited number of frames; the others of a super-frame come with the next bursts.
 */
START_TEST(a_burst_may_end_within_a_super_frame)
{
	int receiver = open_receiver(UDP_PORT);
	int fd = open_sender(UDP_PORT, 500);
	uint16_t got = 0;

	send_bytes(fd, 10000);
	send_frames(3, 2, 100);
	send_bytes(fd, 1000);
	for (unsigned int i = 0; i < 100000 && got < 24; i++)
		got = (uint16_t)(got + packet_port_driver.rx_burst(queue, mbufs + got, 7));
	ck_assert_uint_eq(got, 24);
	for (uint16_t i = 0; i < 20; i++)
		check_bytes(mbufs[i], FANIN_L4_LEN, i * 500, 500);
	check_bytes(mbufs[22], FANIN_L4_LEN, 0, 500);
	check_bytes(mbufs[23], FANIN_L4_LEN, 500, 500);
	rte_pktmbuf_free_bulk(mbufs, 20);
	check_frame(mbufs[20], 3, 100);
	check_frame(mbufs[21], 4, 100);
	rte_pktmbuf_free_bulk(mbufs + 22, 2);
	/* A super-frame that is left over when the port is closed is freed, too. */
	send_bytes(fd, 10000);
	for (unsigned int i = 0; i < 100000 && packet_port_driver.rx_burst(queue, mbufs, 1) == 0;
	     i++)
		;
	rte_pktmbuf_free(mbufs[0]);
	close(fd);
	close(receiver);
}
END_TEST

/*
 * Of several super-frames, none is cut because earlier ones have left less room. Later frames wait
 * with it.
 */
START_TEST(a_super_frame_comes_in_one_burst_if_it_can)
{
	int receiver = open_receiver(UDP_PORT);
	int fd = open_sender(UDP_PORT, 500);

	send_bytes(fd, 20000);
	send_frames(3, 2, 100);
	send_bytes(fd, 20000);
	send_frames(5, 1, 100);
	ck_assert_uint_eq(packet_port_driver.rx_burst(queue, mbufs, 64), 42);
	ck_assert_uint_eq(packet_port_driver.rx_left(queue), 22);
	check_bytes(mbufs[39], FANIN_L4_LEN, 39 * 500, 500);
	rte_pktmbuf_free_bulk(mbufs, 40);
	check_frame(mbufs[40], 3, 100);
	check_frame(mbufs[41], 4, 100);
	ck_assert_uint_eq(packet_port_driver.rx_burst(queue, mbufs, 64), 41);
	ck_assert_uint_eq(packet_port_driver.rx_left(queue), 22);
	check_bytes(mbufs[0], FANIN_L4_LEN, 0, 500);
	rte_pktmbuf_free_bulk(mbufs, 40);
	check_frame(mbufs[40], 5, 100);
	close(fd);
	close(receiver);
}
END_TEST

/* Super-frames of others stay whole, are marked as such, and leave whole. */
START_TEST(super_frames_of_others_pass_whole)
{
	int receiver = open_receiver(UDP_PORT + 1);
	int fd = open_sender(UDP_PORT + 1, 1000);
	struct rte_mbuf *first;

	send_bytes(fd, 30000);
	ck_assert_uint_eq(receive(1), 1);
	first = mbufs[0];
	ck_assert_uint_eq(first->nb_segs, 1);
	ck_assert_uint_eq(first->pkt_len, FANIN_L4_LEN + 30000);
	ck_assert_uint_eq(offload_segments(first), 30);
	check_bytes(first, FANIN_L4_LEN, 0, 30000);
	ck_assert_uint_eq(packet_port_driver.tx_burst(queue, &first, 1), 1);
	ck_assert_uint_eq(receive(1), 1);
	ck_assert_uint_eq(mbufs[0]->pkt_len, FANIN_L4_LEN + 30000);
	ck_assert_uint_eq(offload_segments(mbufs[0]), 30);
	check_bytes(mbufs[0], FANIN_L4_LEN, 0, 30000);
	rte_pktmbuf_free(mbufs[0]);
	ck_assert_uint_eq(stats().rx_super_frames, 2);
	ck_assert_uint_eq(stats().rx_super_segments, 60);
	ck_assert_uint_eq(stats().tx_super_frames, 1);
	ck_assert_uint_eq(stats().tx_super_segments, 30);
	close(fd);
	close(receiver);
}
END_TEST

/* While all earlier buffers are in use, a super-frame comes in a chain; it is whole, too. */
START_TEST(super_frames_of_others_come_in_chains_where_large_packets_are_in_use)
{
	int receiver = open_receiver(UDP_PORT + 1);
	int fd = open_sender(UDP_PORT + 1, 1000);
	struct rte_mbuf *held[PACKET_PORT_LARGE + 1];

	for (unsigned int round = 0; round < 2; round++) {
		for (unsigned int i = 0; i < RTE_DIM(held); i++) {
			send_bytes(fd, 30000);
			ck_assert_uint_eq(receive(1), 1);
			held[i] = mbufs[0];
		}
		for (unsigned int i = 0; i < PACKET_PORT_LARGE; i++)
			ck_assert_uint_eq(held[i]->nb_segs, 1);
		ck_assert_uint_gt(held[PACKET_PORT_LARGE]->nb_segs, 14);
		for (unsigned int i = 0; i < RTE_DIM(held); i++)
			check_bytes(held[i], FANIN_L4_LEN, 0, 30000);
		rte_pktmbuf_free_bulk(held, RTE_DIM(held));
	}
	close(fd);
	close(receiver);
}
END_TEST

/*
 * If the interface does not take a super-frame, the kernel segments it, but only after the queueing
 * discipline.
 */
START_TEST(super_frames_of_others_leave_by_interfaces_that_take_none)
{
	int receiver = open_receiver(UDP_PORT + 1);
	int fd = open_sender(UDP_PORT + 1, 1000);
	struct rte_mbuf *first;

	send_bytes(fd, 30000);
	ck_assert_uint_eq(receive(1), 1);
	first = mbufs[0];
	ck_assert_int_eq(system("ethtool -K lo tx-udp-segmentation off"), 0);
	ck_assert_uint_eq(packet_port_driver.tx_burst(queue, &first, 1), 1);
	ck_assert_uint_eq(receive(30), 30);
	for (uint16_t i = 0; i < 30; i++)
		check_bytes(mbufs[i], FANIN_L4_LEN, i * 1000u, 1000);
	rte_pktmbuf_free_bulk(mbufs, 30);
	ck_assert_uint_eq(stats().rx_super_frames, 1);
	close(fd);
	close(receiver);
}
END_TEST

/* Makes a packet of Fanin, as a switch sends it to hosts. */
static struct rte_mbuf *
make_packet(uint32_t offset, uint16_t len)
{
	const struct fanin_flow flow = { .dst_mac = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff },
					 .dst_ip_be = inet_addr("10.0.0.1"),
					 .src_ip_be = inet_addr("10.0.0.2"),
					 .src_port = UDP_PORT,
					 .dst_port = UDP_PORT };
	struct rte_mbuf *mbuf = rte_pktmbuf_alloc(pool);
	struct fanin_headers *headers;

	ck_assert_ptr_nonnull(mbuf);
	headers = (struct fanin_headers *)rte_pktmbuf_append(mbuf, (uint16_t)(FANIN_L4_LEN + len));
	ck_assert_ptr_nonnull(headers);
	fanin_wire_encode_l4(headers, &flow, len - FANIN_HDR_LEN);
	for (uint32_t i = 0; i < len; i++)
		((uint8_t *)headers)[FANIN_L4_LEN + i] = message_byte(offset + i);
	return mbuf;
}

/*
 * Fanin's packets of one kind leave as one super-frame, which a plain UDP socket receives at once.
 */
START_TEST(packets_of_fanins_leave_as_super_frames)
{
	static uint8_t message[UINT16_MAX];
	int fd = open_receiver(UDP_PORT);
	int on = 1;

	ck_assert_int_eq(system("ip address add 10.0.0.1/32 dev lo && ip route add default dev lo"),
			 0);
	ck_assert_int_eq(setsockopt(fd, SOL_UDP, UDP_GRO, &on, sizeof(on)), 0);
	for (uint16_t i = 0; i < 40; i++)
		mbufs[i] = make_packet(i * 1000u, 1000);
	mbufs[40] = make_packet(40000, 300);
	ck_assert_uint_eq(packet_port_driver.tx_burst(queue, mbufs, 41), 41);
	ck_assert_uint_eq(stats().tx_super_frames, 1);
	ck_assert_uint_eq(stats().tx_super_segments, 41);
	ck_assert_int_eq(recv(fd, message, sizeof(message), 0), 40300);
	for (uint32_t i = 0; i < 40300; i++)
		ck_assert_uint_eq(message[i], message_byte(i));
	/* The port receives them itself, segmented again. */
	ck_assert_uint_eq(receive(41), 41);
	for (uint16_t i = 0; i < 41; i++)
		check_bytes(mbufs[i], FANIN_L4_LEN, i * 1000u, i == 40 ? 300 : 1000);
	rte_pktmbuf_free_bulk(mbufs, 41);
	ck_assert_uint_eq(stats().rx_super_frames, 1);
	close(fd);
}
END_TEST

/*
 * If the interface takes no super-frames of UDP, packets leave one by one, and as one again once it
 * does.
 */
START_TEST(frames_leave_one_by_one_where_no_super_frames_may)
{
	ck_assert(packet_port_is_whole(port));
	for (unsigned int round = 0; round < 2; round++) {
		ck_assert(packet_port_set_whole(port, round != 0));
		ck_assert(!packet_port_set_whole(port, round != 0));
		ck_assert_uint_eq(packet_port_is_whole(port), round);
		for (uint16_t i = 0; i < 20; i++)
			mbufs[i] = make_packet(i * 1000u, 1000);
		ck_assert_uint_eq(packet_port_driver.tx_burst(queue, mbufs, 20), 20);
		ck_assert_uint_eq(stats().tx_super_frames, round);
		ck_assert_uint_eq(receive(20), 20);
		for (uint16_t i = 0; i < 20; i++)
			check_bytes(mbufs[i], FANIN_L4_LEN, i * 1000u, 1000);
		rte_pktmbuf_free_bulk(mbufs, 20);
	}
}
END_TEST

START_TEST(an_interface_and_the_kernel_say_whether_super_frames_may_leave)
{
	ck_assert_int_eq(super_frame_kernel_probe(), SUPER_FRAME_KERNEL_TAKES);
	/* The probe is for no receiver. */
	ck_assert_uint_eq(receive(1), 1);
	ck_assert_uint_eq(offload_segments(mbufs[0]), 2);
	rte_pktmbuf_free(mbufs[0]);
	set_interface("lo", false, 9000);
	ck_assert_int_eq(super_frame_kernel_probe(), SUPER_FRAME_KERNEL_TAKES);
	ck_assert_int_eq(system("ip link add near type veth peer name far"), 0);
	ck_assert(super_frame_interface_takes("near"));
	ck_assert_int_eq(system("ethtool -K near tx off >/dev/null"), 0);
	ck_assert(!super_frame_interface_takes("near"));
	ck_assert(super_frame_interface_takes("far"));
	ck_assert(!super_frame_interface_takes("none"));
	set_interface("lo", true, 9000);
}
END_TEST

/*
 * A checksum that the kernel has left to be completed: packets of others pass with it, Fanin's
 * packets need none.
 */
START_TEST(checksums_may_be_left_to_the_next_link)
{
	for (uint16_t others = 0; others < 2; others++) {
		int receiver = open_receiver((uint16_t)(UDP_PORT + others));
		int fd = open_sender((uint16_t)(UDP_PORT + others), 1000);

		send_bytes(fd, 900);
		ck_assert_uint_eq(receive(1), 1);
		ck_assert_uint_eq(mbufs[0]->pkt_len, FANIN_L4_LEN + 900);
		ck_assert_uint_eq(offload_is_needed(mbufs[0]), others);
		if (others == 0)
			ck_assert_uint_eq(rte_pktmbuf_mtod(mbufs[0], const struct fanin_headers *)
						  ->udp.checksum_be,
					  0);
		rte_pktmbuf_free(mbufs[0]);
		close(fd);
		close(receiver);
	}
}
END_TEST

START_TEST(super_frames_wait_for_packets_and_are_counted_if_there_is_no_room)
{
	struct rte_mbuf *held[POOL_SIZE];
	int receiver = open_receiver(UDP_PORT);
	int fd = open_sender(UDP_PORT, 1400);
	unsigned int n;
	uint64_t sent = 40;
	uint16_t got = 0;

	for (n = 0; rte_mempool_avail_count(pool) > 0; n++)
		held[n] = rte_pktmbuf_alloc(pool);
	/*
	 * 40 super-frames of 64 KB are behind a ring of 64 frames: more than a socket of this test
	 * may hold with the default limit.
	 */
	for (unsigned int i = 0; i < sent; i++)
		send_bytes(fd, 64400);
	ck_assert_uint_eq(receive(1), 0);
	rte_pktmbuf_free_bulk(held, n);
	for (unsigned int i = 0; i < sent; i++) {
		const uint16_t some = receive(46);

		for (uint16_t k = 0; k < some; k++)
			check_bytes(mbufs[k], FANIN_L4_LEN, k * 1400u, 1400);
		rte_pktmbuf_free_bulk(mbufs, some);
		got = (uint16_t)(got + some);
	}
	ck_assert_uint_eq(got, 46 * stats().rx_super_frames);
	ck_assert_uint_eq(stats().rx_super_frames + stats().rx_missed, sent);
	ck_assert_uint_gt(stats().rx_super_frames, 2);
	close(fd);
	close(receiver);
}
END_TEST

/* Makes a link of two interfaces, "near" and "far", whose MTUs are these. */
static void
make_link(int near_mtu, int far_mtu)
{
	ck_assert_int_eq(system("ip link add near type veth peer name far"), 0);
	set_interface("near", true, near_mtu);
	set_interface("far", true, far_mtu);
}

static void
open_port_on(const char *interface, struct packet_port **opened)
{
	const struct packet_port_options options = {
		.interface = interface,
		.number = NUMBER,
		.mtu = MTU,
		.n_queues = 1,
		.qdisc_bypass = true,
		.pool = pool,
	};
	char error[PACKET_PORT_ERROR_LEN] = "";

	ck_assert_msg(packet_port_open(&options, opened, error) == 0, "%s", error);
}

/* Puts in a frame to port 1 of a switch, whose MAC table knows its destination. */
static void
enqueue_for_port_1(struct ring_switch *sw, size_t len)
{
	uint8_t frame[MTU + 14] = { 0 };

	host_mac(1, frame);
	host_mac(0, frame + 6);
	frame[12] = 0x88;
	frame[13] = 0xb5;
	ring_switch_enqueue(sw, 0, frame, len);
}

/*
 * Returns how many frames of this length, up to max, come out of the link's other end within a
 * time. Other frames there are the kernel's.
 */
static unsigned int
count_received(struct ring_switch *sw, struct packet_port *far, uint32_t len, unsigned int max,
	       unsigned int ms)
{
	const uint64_t end_ns = pipeline_now_ns() + ms * UINT64_C(1000000);
	unsigned int found = 0;

	while (found < max && pipeline_now_ns() < end_ns) {
		uint16_t n;

		ring_switch_rounds(sw, 1);
		n = packet_port_driver.rx_burst(packet_port_driver.queue(far, 0), mbufs, 32);
		for (uint16_t i = 0; i < n; i++)
			found += mbufs[i]->pkt_len == len;
		rte_pktmbuf_free_bulk(mbufs, n);
	}
	return found;
}

START_TEST(frames_longer_than_the_other_ends_mtu_do_not_hold_up_others)
{
	static struct ring_switch sw;
	struct packet_port *near, *far;
	const struct port_counters *counters;
	uint8_t hello[100] = { 0 };
	uint64_t frames;

	make_link(MTU, 600);
	open_port_on("near", &near);
	open_port_on("far", &far);
	ring_switch_open(&sw, 2, 1, NULL);
	counters = &sw.pipeline->workers[0]->counters.ports[1];
	host_mac(0, hello);
	host_mac(1, hello + 6);
	ring_switch_put(&sw, 1, hello, sizeof(hello));
	sw.pipeline->workers[0]->tx[1].driver = &packet_port_driver;
	sw.pipeline->workers[0]->tx[1].handle = packet_port_driver.queue(near, 0);
	frames = counters->tx_frames;

	/* The first frame delays others by 15 ms, and later ones of its length do not. */
	enqueue_for_port_1(&sw, 1400);
	for (unsigned int i = 0; i < 10; i++)
		enqueue_for_port_1(&sw, 200);
	ck_assert_uint_eq(count_received(&sw, far, 200, 10, 5000), 10);
	for (unsigned int i = 0; i < 10; i++) {
		enqueue_for_port_1(&sw, 1400);
		enqueue_for_port_1(&sw, 300);
	}
	ring_switch_rounds(&sw, 2);
	ck_assert_uint_eq(sw.pipeline->workers[0]->n_tx_waiting, 0);
	ck_assert_uint_eq(count_received(&sw, far, 300, 10, 5000), 10);
	ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_TX_REFUSED), 11);
	ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_TX_FULL), 0);
	ck_assert_uint_eq(counters->tx_dropped, 11);
	ck_assert_uint_eq(counters->tx_frames, frames + 20);

	/* Once the other end takes them, they pass. */
	set_interface("far", true, MTU);
	for (unsigned int i = 0; i < 10; i++)
		enqueue_for_port_1(&sw, 1400);
	ck_assert_uint_eq(count_received(&sw, far, 1400, 10, 5000), 10);
	ck_assert_uint_eq(counters->tx_dropped, 11);

	packet_port_driver.close(near);
	packet_port_driver.close(far);
	ring_switch_close(&sw);
}
END_TEST

Suite *
suite_packet_port(void)
{
	Suite *suite = suite_create("packet_port");
	TCase *tcase = tcase_create("loopback");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, frames_arrive_whole_in_order_and_aligned);
	tcase_add_test(tcase, a_frame_in_segments_leaves_as_one);
	tcase_add_test(tcase, the_kernel_counts_frames_that_a_full_ring_drops);
	tcase_add_test(tcase, without_packets_frames_wait_in_the_ring);
	tcase_add_test(tcase, frames_longer_than_the_port_takes_are_counted);
	tcase_add_test(tcase, frames_that_the_interface_never_takes_do_not_hold_up_others);
	tcase_add_test(tcase, frames_longer_than_the_other_ends_mtu_do_not_hold_up_others);
	tcase_add_test(tcase, frames_that_may_leave_later_stay_the_callers);
	tcase_add_test(tcase, a_port_that_is_opened_anew_goes_on_with_its_counters);
	tcase_add_loop_test(tcase, super_frames_to_fanins_port_come_in_as_frames, 0, 3);
	tcase_add_test(tcase, each_segment_of_a_super_frame_is_judged_by_its_own_header);
	tcase_add_test(tcase, a_burst_may_end_within_a_super_frame);
	tcase_add_test(tcase, a_super_frame_comes_in_one_burst_if_it_can);
	tcase_add_test(tcase, super_frames_of_others_pass_whole);
	tcase_add_test(tcase, super_frames_of_others_come_in_chains_where_large_packets_are_in_use);
	tcase_add_test(tcase, super_frames_of_others_leave_by_interfaces_that_take_none);
	tcase_add_test(tcase, packets_of_fanins_leave_as_super_frames);
	tcase_add_test(tcase, frames_leave_one_by_one_where_no_super_frames_may);
	tcase_add_test(tcase, an_interface_and_the_kernel_say_whether_super_frames_may_leave);
	tcase_add_test(tcase, checksums_may_be_left_to_the_next_link);
	tcase_add_test(tcase, super_frames_wait_for_packets_and_are_counted_if_there_is_no_room);
	tcase_add_test(tcase, several_queues_get_each_frame_once);
	tcase_add_test(tcase, port_faults_are_told);
	suite_add_tcase(suite, tcase);
	return suite;
}
