/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Foreign frames and the switch as a station: which frames leave by which port, and what is
 * counted.
 */
#include <arpa/inet.h>
#include <string.h>

#include <rte_arp.h>
#include <rte_ether.h>
#include <rte_icmp.h>

#include "pipeline/net/mac_table.h"
#include "pipeline/base/dpdk_names.h"
#include "pipeline/base/egress.h"
#include "tests/unit/ring_switch.h"
#include "tests/unit/suites.h"

#define FRAME_LEN 100

static struct ring_switch sw;
static uint8_t out[4096];

static void
setup(void)
{
	ring_switch_eal();
	ring_switch_open(&sw, 4, 1, NULL);
}

static void
teardown(void)
{
	ring_switch_close(&sw);
}

/* Makes an IPv4 frame between hosts; dst 0xff: broadcast. */
static void
host_frame(unsigned int src, unsigned int dst, uint8_t *frame)
{
	memset(frame, 0x5a, FRAME_LEN);
	host_mac(dst, frame);
	if (dst == 0xff)
		memset(frame, 0xff, 6);
	host_mac(src, frame + 6);
	frame[12] = 0x08;
	frame[13] = 0x00;
}

static void
expect_frame(uint16_t port, const uint8_t *frame, size_t len)
{
	ck_assert_uint_eq(ring_switch_take(&sw, port, out), len);
	ck_assert_mem_eq(out, frame, len);
}

static void
expect_silence(void)
{
	for (uint16_t p = 0; p < sw.n_ports; p++)
		ck_assert_uint_eq(ring_switch_take(&sw, p, out), 0);
}

START_TEST(unknown_destination_is_flooded_to_all_others)
{
	uint8_t frame[FRAME_LEN];

	host_frame(0, 1, frame);
	ring_switch_put(&sw, 0, frame, sizeof(frame));
	for (uint16_t p = 1; p < 4; p++)
		expect_frame(p, frame, sizeof(frame));
	expect_silence();
}
END_TEST

START_TEST(a_port_that_is_down_is_left_alone_and_its_frames_are_counted)
{
	uint8_t frame[FRAME_LEN];

	/* This waits for the worker, which is this thread. */
	rte_rcu_qsbr_thread_offline(sw.pipeline->qsbr, 0);
	pipeline_port_set_down(sw.pipeline, 1, true);
	rte_rcu_qsbr_thread_online(sw.pipeline->qsbr, 0);
	host_frame(0, 1, frame);
	ring_switch_put(&sw, 0, frame, sizeof(frame));
	expect_frame(2, frame, sizeof(frame));
	expect_frame(3, frame, sizeof(frame));
	expect_silence();
	ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_PORT_DOWN), 1);
	ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_TX_FULL), 0);

	host_frame(1, 0, frame);
	ring_switch_put(&sw, 1, frame, sizeof(frame));
	expect_silence();
	pipeline_port_set_down(sw.pipeline, 1, false);
	ring_switch_rounds(&sw, 1);
	expect_frame(0, frame, sizeof(frame));
	expect_silence();
}
END_TEST

#define DEVICE_ROOM 1023u /* of a ring port */

static void
number_frame(uint8_t *frame, uint32_t number)
{
	memcpy(frame + 20, &number, sizeof(number));
}

/*
 * Sends numbered frames to host 1, which is known: as many as its device takes, and n more. The
 * device is not emptied.
 */
static void
overfill_port_1(uint32_t n)
{
	uint8_t frame[FRAME_LEN];

	host_frame(1, 0xff, frame);
	ring_switch_put(&sw, 1, frame, sizeof(frame));
	for (uint16_t p = 0; p < 4; p++)
		ring_switch_take(&sw, p, out);
	host_frame(0, 1, frame);
	for (uint32_t i = 0; i < DEVICE_ROOM + n; i++) {
		number_frame(frame, i);
		ring_switch_enqueue(&sw, 0, frame, sizeof(frame));
		if (i % 32 == 31)
			ring_switch_rounds(&sw, 1);
	}
	ring_switch_rounds(&sw, 2);
}

static void
expect_numbers(uint32_t from, uint32_t to)
{
	uint8_t frame[FRAME_LEN];

	host_frame(0, 1, frame);
	for (uint32_t i = from; i < to; i++) {
		number_frame(frame, i);
		expect_frame(1, frame, sizeof(frame));
	}
}

START_TEST(frames_that_a_device_does_not_take_wait_and_leave_in_order)
{
	const struct port_counters *counters = &sw.pipeline->workers[0]->counters.ports[1];
	uint64_t frames, bytes;

	overfill_port_1(100);
	frames = counters->tx_frames;
	bytes = counters->tx_bytes;
	ck_assert_uint_eq(counters->tx_delayed, 100);
	expect_numbers(0, 30);
	ring_switch_rounds(&sw, 1);
	ck_assert_uint_eq(counters->tx_frames, frames + 30);
	ck_assert_uint_eq(counters->tx_bytes, bytes + 30 * FRAME_LEN);
	expect_numbers(30, DEVICE_ROOM + 30);
	ring_switch_rounds(&sw, 1);
	expect_numbers(DEVICE_ROOM + 30, DEVICE_ROOM + 100);
	expect_silence();
	ck_assert_uint_eq(counters->tx_frames, frames + 100);
	ck_assert_uint_eq(counters->tx_bytes, bytes + 100 * FRAME_LEN);
	ck_assert_uint_eq(counters->tx_delayed, 100);
	ck_assert_uint_eq(counters->tx_dropped, 0);
	ck_assert_uint_eq(sw.pipeline->workers[0]->n_tx_waiting, 0);
}
END_TEST

START_TEST(more_frames_than_may_wait_are_dropped_and_counted_once)
{
	const struct port_counters *counters = &sw.pipeline->workers[0]->counters.ports[1];

	overfill_port_1(EGRESS_FRAMES + 70);
	ck_assert_uint_eq(counters->tx_dropped, 70);
	ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_TX_FULL), 70);
	expect_numbers(0, DEVICE_ROOM);
	ring_switch_rounds(&sw, 1);
	expect_numbers(DEVICE_ROOM, DEVICE_ROOM + EGRESS_FRAMES);
	expect_silence();
	ck_assert_uint_eq(counters->tx_dropped, 70);
}
END_TEST

START_TEST(a_device_that_takes_nothing_for_long_makes_nobody_wait)
{
	overfill_port_1(100);
	sw.pipeline->workers[0]->tx[1].waiting_since_ns = 0;
	ring_switch_rounds(&sw, 1);
	ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_TX_FULL), 100);
	ck_assert_uint_eq(sw.pipeline->workers[0]->n_tx_waiting, 0);
	expect_numbers(0, DEVICE_ROOM);
	expect_silence();
}
END_TEST

START_TEST(frames_that_wait_for_a_port_that_goes_down_are_dropped)
{
	overfill_port_1(100);
	rte_rcu_qsbr_thread_offline(sw.pipeline->qsbr, 0);
	pipeline_port_set_down(sw.pipeline, 1, true);
	rte_rcu_qsbr_thread_online(sw.pipeline->qsbr, 0);
	ring_switch_rounds(&sw, 1);
	ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_PORT_DOWN), 100);
	ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_TX_FULL), 0);
	expect_numbers(0, DEVICE_ROOM);
	expect_silence();
}
END_TEST

/*
 * A port's driver that the test plays. It takes no frame longer than `never_len`, and no more bytes
 * than it was granted.
 */
static struct {
	uint32_t never_len;
	uint64_t granted; /* bytes */
	uint64_t per_ms;  /* bytes granted in addition per ms, up to a maximum, even while the
			     process is held up */
	uint64_t most;
	uint64_t last_ns; /* end of the time for which they have been granted */
	uint32_t lens[512];
	uint16_t n_taken;
} device;

static uint16_t
device_tx_burst(void *handle, struct rte_mbuf **mbufs, uint16_t n)
{
	uint16_t sent = 0;

	(void)handle;
	if (device.per_ms != 0) {
		const uint64_t bytes = (pipeline_now_ns() - device.last_ns) * device.per_ms /
				       1000000;

		device.granted = RTE_MIN(device.granted + bytes, device.most);
		device.last_ns += bytes * 1000000 / device.per_ms;
	}
	while (sent < n && mbufs[sent]->pkt_len < device.never_len &&
	       mbufs[sent]->pkt_len <= device.granted) {
		ck_assert_uint_lt(device.n_taken, RTE_DIM(device.lens));
		device.granted -= mbufs[sent]->pkt_len;
		device.lens[device.n_taken++] = mbufs[sent++]->pkt_len;
	}
	rte_pktmbuf_free_bulk(mbufs, sent);
	return sent;
}

static const struct port_driver device_driver = { .name = "test", .tx_burst = device_tx_burst };

/* Makes port 1 lead to host 1, through the device above. */
static void
play_device(uint32_t never_len, uint64_t granted)
{
	uint8_t frame[FRAME_LEN];

	host_frame(1, 0xff, frame);
	ring_switch_put(&sw, 1, frame, sizeof(frame));
	for (uint16_t p = 0; p < 4; p++)
		ring_switch_take(&sw, p, out);
	device.never_len = never_len;
	device.granted = granted;
	device.per_ms = 0;
	device.n_taken = 0;
	sw.pipeline->workers[0]->tx[1].driver = &device_driver;
}

/* Puts in a frame of this length for host 1; the worker finds it in its next round. */
static void
enqueue_len(size_t len)
{
	static uint8_t frame[4096];

	host_frame(0, 1, frame);
	ring_switch_enqueue(&sw, 0, frame, len);
}

/* Runs rounds for this time, the last one after it. */
static void
pass_ms(unsigned int ms)
{
	const uint64_t end_ns = pipeline_now_ns() + ms * 1000000ull;
	bool over;

	do {
		over = pipeline_now_ns() >= end_ns;
		ring_switch_rounds(&sw, 1);
	} while (!over);
}

/* Runs rounds until this many frames were given up, which takes 45 ms with 1400 bytes. */
static void
wait_for_refused(uint64_t n)
{
	for (unsigned int ms = 0; ms < 5000 && ring_switch_drops(&sw, FANIN_REASON_TX_REFUSED) < n;
	     ms++)
		pass_ms(1);
	ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_TX_REFUSED), n);
}

static uint16_t
taken_of(uint32_t len)
{
	uint16_t n = 0;

	for (uint16_t i = 0; i < device.n_taken; i++)
		n += device.lens[i] == len;
	return n;
}

START_TEST(a_frame_that_a_driver_always_refuses_holds_up_no_others)
{
	const struct port_counters *counters = &sw.pipeline->workers[0]->counters.ports[1];
	uint64_t frames, bytes;

	play_device(1000, UINT64_MAX);
	frames = counters->tx_frames;
	bytes = counters->tx_bytes;
	enqueue_len(1400);
	for (unsigned int i = 0; i < 20; i++)
		enqueue_len(100);
	wait_for_refused(1);
	ck_assert_uint_eq(device.n_taken, 20);

	/* Once their length is known, the port does not wait for them. */
	for (unsigned int i = 0; i < 20; i++) {
		enqueue_len(1400 + i);
		enqueue_len(101);
	}
	ring_switch_rounds(&sw, 2);
	ck_assert_uint_eq(taken_of(101), 20);
	ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_TX_REFUSED), 21);
	ck_assert_uint_eq(sw.pipeline->workers[0]->n_tx_waiting, 0);

	ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_TX_FULL), 0);
	ck_assert_uint_eq(counters->tx_dropped, 21);
	ck_assert_uint_eq(counters->tx_frames, frames + 40);
	ck_assert_uint_eq(counters->tx_bytes, bytes + 20 * 100 + 20 * 101);
}
END_TEST

START_TEST(many_frames_that_a_driver_always_refuses_make_way_for_others)
{
	play_device(1000, UINT64_MAX);
	for (unsigned int i = 0; i < 200; i++)
		enqueue_len(1400);
	pass_ms(20);
	ck_assert_uint_eq(sw.pipeline->workers[0]->n_tx_waiting, 200);
	/* A packet waits for 11 ms at most, and the fourth one removes them. */
	for (uint16_t i = 0; i < 4; i++) {
		enqueue_len(100);
		pass_ms(2);
		ck_assert_uint_eq(device.n_taken, i + 1);
		pass_ms(20);
	}
	ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_TX_REFUSED), 200);
	ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_TX_FULL), 0);
	ck_assert_uint_eq(sw.pipeline->workers[0]->n_tx_waiting, 0);
}
END_TEST

START_TEST(frames_that_a_driver_always_refuses_take_no_others_room)
{
	play_device(1000, UINT64_MAX);
	/* Before anything is known of these frames. */
	for (unsigned int i = 0; i < EGRESS_FRAMES + 100; i++) {
		enqueue_len(1400);
		if (i % 32 == 31)
			ring_switch_rounds(&sw, 1);
	}
	ring_switch_rounds(&sw, 2);
	for (uint16_t i = 0; i < 40; i++) {
		enqueue_len(100);
		ring_switch_rounds(&sw, 1);
	}
	for (unsigned int ms = 0; ms < 5000 && sw.pipeline->workers[0]->n_tx_waiting != 0; ms++)
		pass_ms(1);
	ck_assert_uint_eq(taken_of(100), 40);
	ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_TX_REFUSED) +
				  ring_switch_drops(&sw, FANIN_REASON_TX_FULL),
			  EGRESS_FRAMES + 100);
	ck_assert_uint_eq(sw.pipeline->workers[0]->n_tx_waiting, 0);
}
END_TEST

START_TEST(a_frame_that_is_shorter_and_too_long_as_well_holds_up_nobody)
{
	play_device(1000, UINT64_MAX);
	enqueue_len(1400);
	for (unsigned int i = 0; i < 4; i++) {
		enqueue_len(1300);
		enqueue_len(100);
	}
	wait_for_refused(1);
	ck_assert_uint_eq(taken_of(100), 4);
	/* The frames that overtake are evidence, too. */
	for (unsigned int i = 0; i < 4; i++)
		enqueue_len(100);
	wait_for_refused(5);
	ck_assert_uint_eq(taken_of(100), 8);
	ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_TX_FULL), 0);
}
END_TEST

START_TEST(a_length_that_a_driver_takes_again_is_waited_for_again)
{
	play_device(1000, UINT64_MAX);
	enqueue_len(1400);
	for (unsigned int i = 0; i < 4; i++)
		enqueue_len(100);
	wait_for_refused(1);
	device.never_len = UINT32_MAX;
	enqueue_len(1400);
	ring_switch_rounds(&sw, 2);
	ck_assert_uint_eq(taken_of(1400), 1);
	/* The device is full for a moment. */
	device.granted = 0;
	enqueue_len(1400);
	pass_ms(20);
	device.granted = UINT64_MAX;
	ring_switch_rounds(&sw, 1);
	ck_assert_uint_eq(taken_of(1400), 2);
	ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_TX_REFUSED), 1);
}
END_TEST

/*
 * _i: bytes that leave the queue per ms. A queue that counts bytes has room for short frames when
 * it has none for long ones.
 */
START_TEST(frames_that_a_driver_takes_later_are_not_lost)
{
	const uint64_t end_ns = pipeline_now_ns() + UINT64_C(60000000000);

	play_device(UINT32_MAX, 3000);
	device.per_ms = (uint64_t)_i;
	device.most = 3000;
	device.last_ns = pipeline_now_ns();
	for (unsigned int i = 0; i < 120; i++)
		enqueue_len(i % 3 == 0 ? 1400 : 100);
	while (device.n_taken < 120 && pipeline_now_ns() < end_ns)
		ring_switch_rounds(&sw, 1);
	ck_assert_uint_eq(taken_of(100), 80);
	ck_assert_uint_eq(taken_of(1400), 40);
	ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_TX_REFUSED), 0);
	ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_TX_FULL), 0);
}
END_TEST

/*
 * A TCP connection needs the order, and so do results and an answer that says they were sent. _i:
 * bytes per ms.
 */
START_TEST(a_slow_link_keeps_the_order)
{
	const uint64_t end_ns = pipeline_now_ns() + UINT64_C(60000000000);

	play_device(UINT32_MAX, 3000);
	device.per_ms = (uint64_t)_i;
	device.most = 3000;
	device.last_ns = pipeline_now_ns();
	for (unsigned int i = 0; i < 60; i++)
		enqueue_len(i % 6 == 5 ? 100 + i : 1400);
	while (device.n_taken < 60 && pipeline_now_ns() < end_ns)
		ring_switch_rounds(&sw, 1);
	ck_assert_uint_eq(device.n_taken, 60);
	for (unsigned int i = 0; i < 60; i++)
		ck_assert_uint_eq(device.lens[i], i % 6 == 5 ? 100 + i : 1400);
}
END_TEST

/*
 * A queue that counts bytes, on a link of 2 Mbit/s that is only slow: the longer a frame, the
 * longer it takes until there is room for it, while there is room for shorter ones.
 */
START_TEST(a_long_frame_is_waited_for_on_a_slow_link)
{
	const uint64_t end_ns = pipeline_now_ns() + UINT64_C(60000000000);

	sw.pipeline->ports[1].mtu = 4000;
	play_device(UINT32_MAX, 1000);
	device.per_ms = 250;
	device.most = 8000;
	device.last_ns = pipeline_now_ns();
	for (unsigned int i = 0; i < 60; i++)
		enqueue_len(i % 12 == 0 ? 3900 : 1100);
	while (device.n_taken < 60 && pipeline_now_ns() < end_ns &&
	       ring_switch_drops(&sw, FANIN_REASON_TX_REFUSED) == 0)
		ring_switch_rounds(&sw, 1);
	ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_TX_REFUSED), 0);
	ck_assert_uint_eq(taken_of(1100), 55);
	ck_assert_uint_eq(taken_of(3900), 5);
}
END_TEST

START_TEST(known_destination_gets_the_frame_alone)
{
	uint8_t frame[FRAME_LEN];

	host_frame(1, 0xff, frame);
	ring_switch_put(&sw, 1, frame, sizeof(frame));
	for (uint16_t p = 0; p < 4; p++)
		ring_switch_take(&sw, p, out);
	host_frame(0, 1, frame);
	ring_switch_put(&sw, 0, frame, sizeof(frame));
	expect_frame(1, frame, sizeof(frame));
	expect_silence();
	/* Host 0 moves: its next frame from another port changes its place. */
	host_frame(1, 0, frame);
	ring_switch_put(&sw, 3, frame, sizeof(frame));
	expect_frame(0, frame, sizeof(frame));
	host_frame(0, 1, frame);
	ring_switch_put(&sw, 0, frame, sizeof(frame));
	expect_frame(3, frame, sizeof(frame));
	expect_silence();
}
END_TEST

START_TEST(a_station_that_moves_within_a_round_is_found_where_it_spoke_last)
{
	uint8_t from_moving[FRAME_LEN];
	uint8_t to_moving[FRAME_LEN];

	host_frame(1, 0, from_moving);
	host_frame(0, 1, to_moving);
	ring_switch_enqueue(&sw, 0, to_moving, FRAME_LEN); /* flooded; teaches the switch where host
							      0 is */
	ring_switch_enqueue(&sw, 1, from_moving, FRAME_LEN);
	ring_switch_enqueue(&sw, 1, from_moving, FRAME_LEN);
	ring_switch_enqueue(&sw, 2, from_moving, FRAME_LEN);
	ring_switch_enqueue(&sw, 3, to_moving, FRAME_LEN); /* host 0 has moved, too */
	ring_switch_enqueue(&sw, 3, to_moving, FRAME_LEN);
	ring_switch_rounds(&sw, 1);
	expect_frame(1, to_moving, FRAME_LEN);
	expect_frame(3, to_moving, FRAME_LEN);
	for (unsigned int i = 0; i < 3; i++)
		expect_frame(0, from_moving, FRAME_LEN);
	for (unsigned int i = 0; i < 3; i++)
		expect_frame(2, to_moving, FRAME_LEN);
	expect_silence();
	/* Another worker sees the same in the table. */
	ck_assert_int_eq(mac_table_lookup(sw.pipeline->macs, mac_key_make(from_moving + 6, 0)), 2);
	ck_assert_int_eq(mac_table_lookup(sw.pipeline->macs, mac_key_make(to_moving + 6, 0)), 3);
}
END_TEST

START_TEST(each_round_looks_up_learned_stations_anew)
{
	uint8_t frame[FRAME_LEN];

	host_frame(1, 0, frame);
	ring_switch_enqueue(&sw, 1, frame, FRAME_LEN);
	ring_switch_rounds(&sw, 1);
	for (uint16_t p = 0; p < 4; p++)
		ring_switch_take(&sw, p, out);
	/* Another worker sees host 1 move. */
	ck_assert_int_eq(mac_table_learn(sw.pipeline->macs, mac_key_make(frame + 6, 0), 2, 0), 0);
	host_frame(0, 1, frame);
	ring_switch_enqueue(&sw, 0, frame, FRAME_LEN);
	ring_switch_rounds(&sw, 1);
	expect_frame(2, frame, FRAME_LEN);
	expect_silence();
}
END_TEST

START_TEST(destination_on_the_same_port_is_dropped)
{
	uint8_t frame[FRAME_LEN];

	host_frame(1, 2, frame);
	ring_switch_put(&sw, 0, frame, sizeof(frame));
	for (uint16_t p = 0; p < 4; p++)
		ring_switch_take(&sw, p, out);
	host_frame(2, 1, frame);
	ring_switch_put(&sw, 0, frame, sizeof(frame));
	expect_silence();
	ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_SAME_PORT), 1);
}
END_TEST

START_TEST(vlans_are_transparent_and_learned_apart)
{
	uint8_t frame[FRAME_LEN];

	host_frame(1, 0xff, frame);
	ring_switch_put(&sw, 1, frame, sizeof(frame));
	for (uint16_t p = 0; p < 4; p++)
		ring_switch_take(&sw, p, out);
	host_frame(0, 1, frame);
	memcpy(frame + 12, (const uint8_t[]){ 0x81, 0x00, 0x20, 0x07 }, 4);
	ring_switch_put(&sw, 0, frame, sizeof(frame));
	/*
	 * Host 1 is known only without a tag: in VLAN 7 its frames are flooded, with tag and
	 * priority unchanged.
	 */
	for (uint16_t p = 1; p < 4; p++)
		expect_frame(p, frame, sizeof(frame));
	expect_silence();
}
END_TEST

START_TEST(stripped_vlan_tag_goes_back_into_the_frame)
{
	struct rte_mbuf *mbuf = rte_pktmbuf_alloc(sw.pool);
	uint8_t frame[FRAME_LEN];

	host_frame(0, 1, frame);
	memcpy(rte_pktmbuf_append(mbuf, sizeof(frame)), frame, sizeof(frame));
	mbuf->port = sw.pipeline->ports[0].ethdev;
	mbuf->ol_flags = RTE_MBUF_F_RX_VLAN | RTE_MBUF_F_RX_VLAN_STRIPPED;
	mbuf->vlan_tci = 7;
	rte_ring_enqueue(sw.rx[0], mbuf);
	ring_switch_rounds(&sw, 1);
	ck_assert_uint_eq(ring_switch_take(&sw, 1, out), sizeof(frame) + 4);
	ck_assert_mem_eq(out, frame, 12);
	ck_assert_mem_eq(out + 12, ((const uint8_t[]){ 0x81, 0x00, 0x00, 0x07, 0x08, 0x00 }), 6);
	ck_assert_mem_eq(out + 18, frame + 14, sizeof(frame) - 14);
}
END_TEST

START_TEST(impossible_source_addresses_are_dropped)
{
	uint8_t frame[FRAME_LEN];

	host_frame(0, 1, frame);
	frame[6] |= 1;
	ring_switch_put(&sw, 0, frame, sizeof(frame));
	memset(frame + 6, 0, 6);
	ring_switch_put(&sw, 0, frame, sizeof(frame));
	expect_silence();
	ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_SOURCE_MAC), 2);
}
END_TEST

START_TEST(link_local_groups_are_not_forwarded)
{
	uint8_t frame[FRAME_LEN];

	host_frame(0, 0xff, frame);
	memcpy(frame, (const uint8_t[]){ 0x01, 0x80, 0xc2, 0x00, 0x00, 0x0e }, 6);
	ring_switch_put(&sw, 0, frame, sizeof(frame));
	expect_silence();
	ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_RESERVED_MAC), 1);
	frame[5] = 0x10;
	ring_switch_put(&sw, 0, frame, sizeof(frame));
	expect_frame(1, frame, sizeof(frame));
}
END_TEST

START_TEST(frames_above_the_egress_mtu_are_dropped)
{
	uint8_t frame[1515] = { 0 };

	host_frame(0, 1, frame);
	ring_switch_put(&sw, 0, frame, 1514);
	expect_frame(1, frame, 1514);
	for (uint16_t p = 0; p < 4; p++)
		ring_switch_take(&sw, p, out);
	ring_switch_put(&sw, 0, frame, 1515);
	expect_silence();
	ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_MTU), 3);
}
END_TEST

START_TEST(runts_are_dropped)
{
	uint8_t frame[FRAME_LEN];

	host_frame(0, 1, frame);
	for (size_t len = 1; len < RTE_ETHER_HDR_LEN; len++)
		ring_switch_put(&sw, 0, frame, len);
	expect_silence();
	ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_FRAME_SHORT), RTE_ETHER_HDR_LEN - 1);
}
END_TEST

START_TEST(arp_for_the_switch_is_answered_and_others_pass)
{
	uint8_t frame[60] = { 0 };
	struct rte_ether_hdr *eth = (struct rte_ether_hdr *)frame;
	struct rte_arp_hdr *arp = (struct rte_arp_hdr *)(eth + 1);
	const struct rte_arp_hdr *answer = (const struct rte_arp_hdr *)(out + sizeof(*eth));

	memset(&eth->dst_addr, 0xff, 6);
	host_mac(2, eth->src_addr.addr_bytes);
	eth->ether_type = htons(RTE_ETHER_TYPE_ARP);
	arp->arp_opcode = htons(RTE_ARP_OP_REQUEST);
	host_mac(2, arp->arp_data.arp_sha.addr_bytes);
	arp->arp_data.arp_sip = host_ip_be(2);
	arp->arp_data.arp_tip = inet_addr(RING_SWITCH_IP);
	ring_switch_put(&sw, 2, frame, sizeof(frame));
	ck_assert_uint_eq(ring_switch_take(&sw, 2, out), sizeof(frame));
	ck_assert_int_eq(answer->arp_opcode, htons(RTE_ARP_OP_REPLY));
	ck_assert_mem_eq(&answer->arp_data.arp_sha, sw.pipeline->mac, 6);
	ck_assert_uint_eq(answer->arp_data.arp_sip, inet_addr(RING_SWITCH_IP));
	ck_assert_uint_eq(answer->arp_data.arp_tip, host_ip_be(2));
	expect_silence();

	arp->arp_data.arp_tip = host_ip_be(1);
	ring_switch_put(&sw, 2, frame, sizeof(frame));
	expect_frame(0, frame, sizeof(frame));
}
END_TEST

/* Makes an echo request of host 1 with 32 bytes of data. Returns its length. */
static size_t
echo_request(struct fanin_headers *frame)
{
	struct rte_icmp_hdr *icmp = (struct rte_icmp_hdr *)&frame->udp;
	size_t len = host_packet(&sw, 1, FANIN_TYPE_JOIN, 1, 0, NULL, 0, frame);

	frame->ip.protocol = IPPROTO_ICMP;
	frame->ip.checksum_be = 0;
	frame->ip.checksum_be = fanin_ip_checksum(&frame->ip);
	icmp->icmp_type = RTE_ICMP_TYPE_ECHO_REQUEST;
	icmp->icmp_code = 0;
	return len;
}

START_TEST(ping_to_the_switch_is_answered)
{
	uint8_t frame[4096];
	struct fanin_headers answer;
	size_t len = echo_request((struct fanin_headers *)frame);

	ring_switch_put(&sw, 1, frame, len);
	ck_assert_uint_eq(ring_switch_take(&sw, 1, out), len);
	memcpy(&answer, out, sizeof(answer));
	ck_assert_uint_eq(answer.ip.dst_be, host_ip_be(1));
	ck_assert_uint_eq(fanin_ip_checksum(&answer.ip), 0);
	ck_assert_uint_eq(out[FANIN_ETH_LEN + FANIN_IP_LEN], RTE_ICMP_TYPE_ECHO_REPLY);
	expect_silence();
}
END_TEST

START_TEST(unknown_protocols_to_the_switch_are_counted)
{
	uint8_t frame[4096];
	struct fanin_headers *headers = (struct fanin_headers *)frame;
	size_t len = host_packet(&sw, 1, FANIN_TYPE_JOIN, 1, 0, NULL, 0, headers);

	headers->udp.dst_be = htons(53);
	ring_switch_put(&sw, 1, frame, len);
	headers->ip.protocol = IPPROTO_TCP;
	ring_switch_put(&sw, 1, frame, len);
	expect_silence();
	ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_LOCAL), 2);
}
END_TEST

START_TEST(full_mac_table_floods_and_counts)
{
	uint8_t frame[FRAME_LEN];
	struct counters sum;

	for (unsigned int h = 0; h < 200; h++) {
		host_frame(h, 0xff, frame);
		frame[10] = 9;
		ring_switch_put(&sw, 0, frame, sizeof(frame));
		for (uint16_t p = 1; p < 4; p++)
			expect_frame(p, frame, sizeof(frame));
	}
	pipeline_counters(sw.pipeline, &sum);
	ck_assert_uint_gt(sum.learn_failed, 0);
	ck_assert_uint_eq(sum.learn_failed + mac_table_count(sw.pipeline->macs), 200);
}
END_TEST

START_TEST(stations_age_out_and_room_returns)
{
	struct mac_table *table = sw.pipeline->macs;
	mac_key key = mac_key_make((const uint8_t[]){ 2, 0, 0, 0, 0, 1 }, 5);

	ck_assert_int_eq(mac_table_learn(table, key, 3, 1000), 0);
	ck_assert_int_eq(mac_table_lookup(table, key), 3);
	ck_assert_uint_eq(mac_table_age(table, 1299, 300), 0);
	/* The host was seen again: its age starts at 0. */
	ck_assert_int_eq(mac_table_learn(table, key, 2, 1290), 0);
	ck_assert_uint_eq(mac_table_age(table, 1301, 300), 0);
	ck_assert_int_eq(mac_table_lookup(table, key), 2);
	ck_assert_uint_eq(mac_table_age(table, 1590, 300), 1);
	ck_assert_int_lt(mac_table_lookup(table, key), 0);
	ck_assert_uint_eq(mac_table_count(table), 0);
	for (unsigned int round = 0; round < 50; round++) {
		for (uint64_t i = 0; i < 40; i++)
			ck_assert_int_eq(mac_table_learn(table, (round * 40 + i + 1) << 16, 1,
							 round * 400),
					 0);
		ck_assert_uint_eq(mac_table_age(table, round * 400 + 300, 300), 40);
		ring_switch_rounds(&sw, 1);
	}
}
END_TEST

Suite *
suite_pipeline(void)
{
	Suite *suite = suite_create("pipeline");
	TCase *tcase = tcase_create("switching");
	TCase *slow = tcase_create("slow");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 300);
	tcase_add_checked_fixture(slow, setup, teardown);
	tcase_set_timeout(slow, 300);
	tcase_add_test(tcase, unknown_destination_is_flooded_to_all_others);
	tcase_add_test(tcase, a_port_that_is_down_is_left_alone_and_its_frames_are_counted);
	tcase_add_test(tcase, frames_that_a_device_does_not_take_wait_and_leave_in_order);
	tcase_add_test(tcase, more_frames_than_may_wait_are_dropped_and_counted_once);
	tcase_add_test(tcase, a_device_that_takes_nothing_for_long_makes_nobody_wait);
	tcase_add_test(tcase, frames_that_wait_for_a_port_that_goes_down_are_dropped);
	tcase_add_test(tcase, a_frame_that_a_driver_always_refuses_holds_up_no_others);
	tcase_add_test(tcase, many_frames_that_a_driver_always_refuses_make_way_for_others);
	tcase_add_test(tcase, frames_that_a_driver_always_refuses_take_no_others_room);
	tcase_add_test(tcase, a_frame_that_is_shorter_and_too_long_as_well_holds_up_nobody);
	tcase_add_test(tcase, a_length_that_a_driver_takes_again_is_waited_for_again);
	/* The two links have 2.4 and 16 Mbit/s. */
	tcase_add_loop_test(tcase, frames_that_a_driver_takes_later_are_not_lost, 300, 301);
	tcase_add_loop_test(tcase, frames_that_a_driver_takes_later_are_not_lost, 2000, 2001);
	tcase_add_test(tcase, known_destination_gets_the_frame_alone);
	tcase_add_test(tcase, a_station_that_moves_within_a_round_is_found_where_it_spoke_last);
	tcase_add_test(tcase, each_round_looks_up_learned_stations_anew);
	tcase_add_test(tcase, destination_on_the_same_port_is_dropped);
	tcase_add_test(tcase, vlans_are_transparent_and_learned_apart);
	tcase_add_test(tcase, stripped_vlan_tag_goes_back_into_the_frame);
	tcase_add_test(tcase, impossible_source_addresses_are_dropped);
	tcase_add_test(tcase, link_local_groups_are_not_forwarded);
	tcase_add_test(tcase, frames_above_the_egress_mtu_are_dropped);
	tcase_add_test(tcase, runts_are_dropped);
	tcase_add_test(tcase, arp_for_the_switch_is_answered_and_others_pass);
	tcase_add_test(tcase, ping_to_the_switch_is_answered);
	tcase_add_test(tcase, unknown_protocols_to_the_switch_are_counted);
	tcase_add_test(tcase, full_mac_table_floods_and_counts);
	tcase_add_test(tcase, stations_age_out_and_room_returns);
	tcase_add_test(slow, a_long_frame_is_waited_for_on_a_slow_link);
	tcase_add_loop_test(slow, a_slow_link_keeps_the_order, 300, 301);
	suite_add_tcase(suite, slow);
	suite_add_tcase(suite, tcase);
	return suite;
}
