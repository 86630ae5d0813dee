/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ports on packet sockets: frames that leave one end of a link and come in at the other, what is counted, and what stays the
 * caller's. Each test has a network namespace of its own, whose loopback interface brings back what is sent.
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

#include "pipeline/pipeline.h"
#include "switch/packet_port.h"
#include "tests/unit/ring_switch.h"
#include "tests/unit/suites.h"

#define NUMBER (PORT_DRIVER_FIRST + 3)
#define MTU 1500
#define POOL_SIZE 1023
#define RING 64

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

/* A frame whose bytes tell its number and their place. */
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

/* Waits for frames, which another CPU may still be bringing. Returns their number. */
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
	/* Round the ring some times. */
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

START_TEST(what_a_full_ring_does_not_take_is_counted_by_the_kernel)
{
	send_frames(0, RING + 30, 100);
	for (unsigned int i = 0; i < 100000 && stats().rx_missed < 20; i++)
		;
	ck_assert_uint_eq(stats().rx_missed + receive(RING + 30), RING + 30);
	/* The first ones are there, as they came. */
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
	/* The socket says once more that the interface was down. */
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

START_TEST(what_is_wrong_with_a_port_is_told)
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

/* A frame to port 1 of a switch, whose MAC table knows its destination. */
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
 * How many frames of this length, up to max, come out of the link's other end within a time. What else comes out is the kernel's.
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

	/* The first one holds others up for 15 ms, those of its length that come after it for no time. */
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
	tcase_add_test(tcase, what_a_full_ring_does_not_take_is_counted_by_the_kernel);
	tcase_add_test(tcase, without_packets_frames_wait_in_the_ring);
	tcase_add_test(tcase, frames_longer_than_the_port_takes_are_counted);
	tcase_add_test(tcase, frames_that_the_interface_never_takes_do_not_hold_up_others);
	tcase_add_test(tcase, frames_longer_than_the_other_ends_mtu_do_not_hold_up_others);
	tcase_add_test(tcase, frames_that_may_leave_later_stay_the_callers);
	tcase_add_test(tcase, a_port_that_is_opened_anew_goes_on_with_its_counters);
	tcase_add_test(tcase, several_queues_get_each_frame_once);
	tcase_add_test(tcase, what_is_wrong_with_a_port_is_told);
	suite_add_tcase(suite, tcase);
	return suite;
}
