/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A port's egress queue on a clock that the test moves: its rate, its limits, which frames are
 * dropped, and which are marked.
 */
#include <arpa/inet.h>
#include <string.h>

#include <rte_ether.h>
#include <rte_ip.h>
#include <rte_ring.h>

#include "pipeline/base/egress.h"
#include "pipeline/base/tx.h"
#include "pipeline/worker.h"
#include "tests/unit/ring_switch.h"
#include "tests/unit/suites.h"

#define LEN 1000u       /* of a frame */
#define FRAME_NS 40000u /* time that it takes at 200 Mbit/s */
#define BUCKET 3000u
#define NOT_ECT 0
#define ECT_1 1
#define ECT_0 2
#define CE 3

static struct ring_switch sw;
static uint64_t clock_ns;
static uint8_t out[4096];

static uint64_t
clock_read(void *user)
{
	return *(uint64_t *)user;
}

/* Opens a switch with four ports, whose hosts it knows. Port 1 has these limits. */
static void
open_with(uint16_t n_workers, const struct pipeline_egress *limits)
{
	struct pipeline_egress all[4] = { { 0 } };
	uint8_t frame[64] = { 0 };

	all[1] = *limits;
	ring_switch_eal();
	ring_switch_open_limited(&sw, 4, n_workers, all);
	clock_ns = UINT64_C(1000000000000);
	sw.pipeline->clock = clock_read;
	sw.pipeline->clock_user = &clock_ns;
	for (uint16_t p = 0; p < 4; p++) {
		memset(frame, 0xff, 6);
		host_mac(p, frame + 6);
		frame[12] = 0x88;
		frame[13] = 0xb5;
		ring_switch_put(&sw, p, frame, sizeof(frame));
	}
	/* All frames leave, and the bucket is full again. */
	for (unsigned int i = 0; i < 10; i++) {
		clock_ns += 1000000000;
		ring_switch_rounds(&sw, 1);
	}
	for (uint16_t p = 0; p < 4; p++) {
		while (ring_switch_take(&sw, p, out) != 0)
			;
	}
}

static void
teardown(void)
{
	for (uint16_t w = 0; w < sw.pipeline->n_workers; w++)
		worker_release_unsent(sw.pipeline->workers[w]);
	ring_switch_close(&sw);
}

/* Makes a numbered frame with an IPv4 packet for the host at a port. Returns its IP header. */
static struct rte_ipv4_hdr *
make_frame(uint8_t *frame, uint16_t from, uint16_t to, uint32_t number, uint8_t ecn)
{
	struct rte_ipv4_hdr *ip = (struct rte_ipv4_hdr *)(frame + RTE_ETHER_HDR_LEN);

	memset(frame, 0, LEN);
	host_mac(to, frame);
	host_mac(from, frame + 6);
	frame[12] = 0x08;
	ip->version_ihl = 0x45;
	ip->type_of_service = (uint8_t)(0xb8 | ecn);
	ip->total_length = htons(LEN - RTE_ETHER_HDR_LEN);
	ip->time_to_live = 64;
	ip->next_proto_id = 253;
	ip->src_addr = host_ip_be(from);
	ip->dst_addr = host_ip_be(to);
	ip->hdr_checksum = rte_ipv4_cksum(ip);
	memcpy(frame + 60, &number, sizeof(number));
	return ip;
}

static void
enqueue(uint16_t from, uint32_t first, uint32_t n, uint8_t ecn)
{
	uint8_t frame[LEN];

	for (uint32_t i = 0; i < n; i++) {
		make_frame(frame, from, 1, first + i, ecn);
		ring_switch_enqueue(&sw, from, frame, sizeof(frame));
	}
}

/*
 * Takes all frames that have left through port 1, which must be in order from this number on.
 * Returns how many there were.
 */
static uint32_t
take_in_order(uint32_t first)
{
	uint32_t number, n;

	for (n = 0; ring_switch_take(&sw, 1, out) != 0; n++) {
		memcpy(&number, out + 60, sizeof(number));
		ck_assert_uint_eq(number, first + n);
	}
	return n;
}

static const struct port_counters *
counters(void)
{
	static struct counters sum;

	pipeline_counters(sw.pipeline, &sum);
	return &sum.ports[1];
}

static const struct pipeline_egress rated = { .rate_mbit = 200, .bucket_bytes = BUCKET };

START_TEST(a_port_sends_at_its_rate_and_a_bucket_at_once)
{
	uint32_t sent;

	open_with(1, &rated);
	enqueue(0, 0, 100, NOT_ECT);
	ring_switch_rounds(&sw, 5);
	ck_assert_uint_eq(take_in_order(0), BUCKET / LEN);
	ck_assert_uint_eq(egress_backlog(sw.pipeline, 1, NULL), (100 - BUCKET / LEN) * LEN);
	sent = BUCKET / LEN;
	for (uint32_t i = 1; i <= 30; i++) {
		/* The clock moves in uneven steps, with rounds that find nothing new. */
		clock_ns += FRAME_NS / 4;
		ring_switch_rounds(&sw, 2);
		clock_ns += FRAME_NS * 3 / 4;
		ring_switch_rounds(&sw, 2);
		sent += take_in_order(sent);
		/* A frame leaves as soon as there is anything in the bucket. */
		ck_assert_uint_ge(sent, BUCKET / LEN + i);
		ck_assert_uint_le(sent, BUCKET / LEN + i + 1);
	}
	ck_assert_uint_eq(counters()->tx_dropped, 0);
	ck_assert_uint_eq(counters()->tx_delayed, 100 - BUCKET / LEN);
	/* A pause fills the bucket, and no more than that. */
	clock_ns += UINT64_C(1000000000);
	ring_switch_rounds(&sw, 1);
	ck_assert_uint_le(take_in_order(sent), BUCKET / LEN + 1);
}
END_TEST

/*
 * Rates that are not a whole number of bytes per nanosecond, over an hour, with frames of all
 * lengths.
 */
START_TEST(no_rate_is_rounded)
{
	static const uint32_t rates[] = { 1, 7, 333, 30000, 399999 };
	struct pipeline_egress options = { .rate_mbit = rates[_i], .bucket_bytes = 10000 };
	struct rte_mbuf frame, *frames[] = { &frame };
	struct egress egress = { .credit_ns = 0 };
	uint64_t now_ns = 0, bytes = 0, expected;
	uint32_t seed = 1;

	egress_init(&egress, &options, 1500);
	for (unsigned int i = 0; i < 1000000; i++) {
		seed = seed * 1103515245 + 12345;
		now_ns += 1 + (seed >> 8) % (2 * 8000 * 1000 / options.rate_mbit);
		frame.pkt_len = 64 + (seed >> 16) % 1450;
		while (egress_take(&egress, now_ns, frames, 1) == 1)
			bytes += frame.pkt_len;
	}
	expected = (uint64_t)((double)now_ns * options.rate_mbit / 8000);
	ck_assert_uint_le(bytes, expected + 10000 + 1514);
	ck_assert_uint_ge(bytes + 10000, expected);
}
END_TEST

START_TEST(packets_beyond_the_queue_are_dropped_and_counted)
{
	const struct pipeline_egress limits = { .rate_mbit = 200,
						.bucket_bytes = BUCKET,
						.queue_bytes = 20 * LEN + 500 };

	open_with(1, &limits);
	enqueue(0, 0, BUCKET / LEN + 30, NOT_ECT);
	ring_switch_rounds(&sw, 3);
	ck_assert_uint_eq(egress_backlog(sw.pipeline, 1, NULL), 20 * LEN);
	ck_assert_uint_eq(counters()->tx_dropped, 10);
	ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_TX_FULL), 10);
	/* The first frames stay. */
	clock_ns += UINT64_C(1000000000);
	for (unsigned int i = 0; i < 20; i++, clock_ns += UINT64_C(1000000))
		ring_switch_rounds(&sw, 1);
	ck_assert_uint_eq(take_in_order(0), BUCKET / LEN + 20);
}
END_TEST

START_TEST(small_frames_are_bounded_in_number)
{
	const struct pipeline_egress limits = { .rate_mbit = 1,
						.bucket_bytes = 1,
						.queue_bytes = 10000000 };
	const uint16_t most = egress_frames(&limits, 1500);
	uint8_t frame[LEN];
	uint32_t frames;

	/* The maximum is twice the number of frames of full length. */
	ck_assert_uint_eq(most, 10000000 / 1514 * 2);
	ck_assert_uint_eq(egress_frames(&(struct pipeline_egress){ .queue_bytes = 2000 }, 1500),
			  EGRESS_FRAMES);
	ck_assert_uint_eq(egress_frames(&(struct pipeline_egress){ .ecn_bytes = 2000 }, 1500), 0);

	open_with(1, &(struct pipeline_egress){
			     .rate_mbit = 1, .bucket_bytes = 1, .queue_bytes = 300000 });
	make_frame(frame, 0, 1, 0, NOT_ECT);
	for (unsigned int i = 0; i < 600; i++)
		ring_switch_enqueue(&sw, 0, frame, 60);
	ring_switch_rounds(&sw, 25);
	egress_backlog(sw.pipeline, 1, &frames);
	ck_assert_uint_eq(frames, 300000 / 1514 * 2);
	ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_TX_FULL), 600 - 1 - frames);
}
END_TEST

/* A queue with limits of its own takes no room from ports without limits. */
START_TEST(a_long_queue_leaves_others_their_room)
{
	uint8_t frame[LEN];
	uint32_t frames;

	open_with(1, &(struct pipeline_egress){
			     .rate_mbit = 1, .bucket_bytes = 1, .queue_bytes = 1000000 });
	enqueue(0, 0, 600, NOT_ECT);
	ring_switch_rounds(&sw, 40);
	egress_backlog(sw.pipeline, 1, &frames);
	ck_assert_uint_eq(frames, 599);
	ck_assert_uint_eq(sw.pipeline->workers[0]->n_tx_waiting, 0);
	/* Port 2's device takes 1023; the others are as many as may ever wait. */
	for (unsigned int i = 0; i < 1023 + EGRESS_FRAMES; i++) {
		make_frame(frame, 0, 2, i, NOT_ECT);
		ring_switch_enqueue(&sw, 0, frame, 60);
		if (i % 32 == 31)
			ring_switch_rounds(&sw, 1);
	}
	ring_switch_rounds(&sw, 1);
	ck_assert_uint_eq(sw.pipeline->workers[0]->n_tx_waiting, EGRESS_FRAMES);
	ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_TX_FULL), 0);
}
END_TEST

/* Sends a super-frame of 30 packets to a port. */
static void
send_super_frame(uint16_t port)
{
	struct rte_mbuf *head = NULL, **end = &head;

	for (unsigned int i = 0; i < 30; i++) {
		*end = rte_pktmbuf_alloc(sw.pool);
		ck_assert_ptr_nonnull(*end);
		(*end)->data_len = 2000;
		end = &(*end)->next;
	}
	head->nb_segs = 30;
	head->pkt_len = 60000;
	worker_send(sw.pipeline->workers[0], port, head);
}

/* All ports together hold no more bytes of super-frames than one port may hold of frames. */
START_TEST(super_frames_that_wait_are_bounded_over_all_ports)
{
	static const struct pipeline_egress none = { 0 };
	uint64_t bytes = 0;
	uint32_t frames;

	open_with(1, &none);
	/* The devices are full. */
	for (uint16_t p = 0; p < 4; p++) {
		struct rte_mbuf *mbuf = rte_pktmbuf_alloc(sw.pool);

		ck_assert_ptr_nonnull(mbuf);
		while (rte_ring_enqueue(sw.tx[p], mbuf) == 0)
			rte_mbuf_refcnt_update(mbuf, 1);
		rte_pktmbuf_free(mbuf);
	}
	for (unsigned int i = 0; i < 3; i++) {
		for (uint16_t p = 0; p < 4; p++)
			send_super_frame(p);
		ring_switch_rounds(&sw, 1);
	}
	for (uint16_t p = 0; p < 4; p++)
		bytes += egress_backlog(sw.pipeline, p, &frames);
	ck_assert_uint_eq(bytes, EGRESS_FRAMES * 1514 / 60000 * 60000);
	ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_TX_FULL), 3 * 4 - bytes / 60000);
	for (uint16_t p = 0; p < 4; p++) {
		void *mbuf;

		while (rte_ring_dequeue(sw.tx[p], &mbuf) == 0)
			rte_pktmbuf_free(mbuf);
	}
}
END_TEST

/* Frames pass through the queue's memory many times, in order, whatever the backlog. */
START_TEST(order_is_kept_for_long)
{
	uint32_t in = 0, sent = 0;
	uint32_t seed = 7;

	open_with(1, &(struct pipeline_egress){
			     .rate_mbit = 200, .bucket_bytes = BUCKET, .queue_bytes = 400000 });
	for (unsigned int i = 0; i < 3000; i++) {
		uint32_t frames;

		seed = seed * 1103515245 + 12345;
		egress_backlog(sw.pipeline, 1, &frames);
		if (frames < 300) {
			enqueue(0, in, (seed >> 16) % 8, NOT_ECT);
			in += (seed >> 16) % 8;
		}
		clock_ns += (seed >> 8) % (6 * FRAME_NS);
		ring_switch_rounds(&sw, 1);
		sent += take_in_order(sent);
	}
	ck_assert_uint_gt(sent, 5000);
	ck_assert_uint_eq(counters()->tx_dropped, 0);
}
END_TEST

static const struct pipeline_egress marking = {
	.rate_mbit = 200, .bucket_bytes = 1, .queue_bytes = 100 * LEN, .ecn_bytes = 5 * LEN
};

/* Lets all waiting frames leave. */
static void
let_out(void)
{
	for (unsigned int i = 0; i < 200; i++, clock_ns += FRAME_NS)
		ring_switch_rounds(&sw, 1);
}

START_TEST(frames_behind_a_backlog_are_marked_if_they_may_be)
{
	static const uint8_t after[] = {
		[NOT_ECT] = NOT_ECT, [ECT_1] = CE, [ECT_0] = CE, [CE] = CE
	};
	const struct rte_ipv4_hdr *ip = (const struct rte_ipv4_hdr *)(out + RTE_ETHER_HDR_LEN);
	const uint8_t ecn = (uint8_t)_i;

	open_with(1, &marking);
	enqueue(0, 0, 20, ecn);
	let_out();
	for (unsigned int i = 0; i < 20; i++) {
		ck_assert_uint_eq(ring_switch_take(&sw, 1, out), LEN);
		ck_assert_uint_eq(rte_ipv4_cksum(ip), 0);
		/* The first frame leaves at once; six have at most five before them. */
		ck_assert_uint_eq(ip->type_of_service & 3, i < 7 ? ecn : after[ecn]);
		ck_assert_uint_eq(ip->type_of_service >> 2, 0xb8 >> 2);
	}
	ck_assert_uint_eq(counters()->ecn_marked, ecn == ECT_0 || ecn == ECT_1 ? 13 : 0);
}
END_TEST

/* Frames of IPv6, of VLANs, and of neither. */
START_TEST(marks_are_found_in_every_frame_of_ip)
{
	static const struct {
		uint8_t type[12];
		uint8_t len;
		uint8_t ip[2];
		uint8_t marked[2];
	} frames[] = {
		{ { 0x86, 0xdd }, 2, { 0x6b, 0xa5 }, { 0x6b, 0xb5 } },
		{ { 0x86, 0xdd }, 2, { 0x6b, 0x85 }, { 0x6b, 0x85 } },
		{ { 0x81, 0x00, 0, 5, 0x86, 0xdd }, 6, { 0x6b, 0x95 }, { 0x6b, 0xb5 } },
		{ { 0x81, 0x00, 0, 5, 0x08, 0x00 }, 6, { 0x45, 0x02 }, { 0x45, 0x03 } },
		{ { 0x88, 0xa8, 0, 6, 0x81, 0x00, 0, 5, 0x08, 0x00 },
		  10,
		  { 0x45, 0x01 },
		  { 0x45, 0x03 } },
		{ { 0x88, 0xb5 }, 2, { 0x45, 0x02 }, { 0x45, 0x02 } },
		{ { 0x08, 0x00 }, 2, { 0x25, 0x02 }, { 0x25, 0x02 } },
	};
	uint8_t bytes[200] = { 0 };
	struct rte_mbuf *mbuf;
	uint8_t *frame;

	open_with(1, &marking);
	mbuf = rte_pktmbuf_alloc(sw.pool);
	memcpy(bytes + 12, frames[_i].type, frames[_i].len);
	memcpy(bytes + 12 + frames[_i].len, frames[_i].ip, 2);
	frame = (uint8_t *)rte_pktmbuf_append(mbuf, sizeof(bytes));
	memcpy(frame, bytes, sizeof(bytes));
	ck_assert_int_eq(egress_mark(&mbuf, sw.pool),
			 memcmp(frames[_i].ip, frames[_i].marked, 2) != 0);
	ck_assert_mem_eq(frame + 12 + frames[_i].len, frames[_i].marked, 2);
	ck_assert(!egress_mark(&mbuf, sw.pool));
	/* A frame that ends before its header. */
	memcpy(frame + 12 + frames[_i].len, frames[_i].ip, 2);
	for (uint16_t len = 0; len < 12 + frames[_i].len + 20; len++) {
		mbuf->data_len = len;
		mbuf->pkt_len = len;
		ck_assert(!egress_mark(&mbuf, sw.pool));
	}
	rte_pktmbuf_free(mbuf);
}
END_TEST

/* A frame to several ports is marked only at the congested one. */
START_TEST(a_mark_is_of_one_port_only)
{
	const struct rte_ipv4_hdr *ip = (const struct rte_ipv4_hdr *)(out + RTE_ETHER_HDR_LEN);
	uint8_t frame[LEN];

	open_with(1, &marking);
	for (uint32_t i = 0; i < 20; i++) {
		make_frame(frame, 0, 1, i, ECT_0);
		memset(frame, 0xff, 6);
		ring_switch_enqueue(&sw, 0, frame, sizeof(frame));
	}
	let_out();
	for (unsigned int i = 0; i < 20; i++) {
		ck_assert_uint_eq(ring_switch_take(&sw, 2, out), LEN);
		ck_assert_uint_eq(ip->type_of_service & 3, ECT_0);
		ck_assert_uint_eq(ring_switch_take(&sw, 1, out), LEN);
		ck_assert_uint_eq(ip->type_of_service & 3, i < 7 ? ECT_0 : CE);
		ck_assert_uint_eq(rte_ipv4_cksum(ip), 0);
	}
	ck_assert_uint_eq(counters()->ecn_marked, 13);
}
END_TEST

/* Workers share the port's rate and room. */
START_TEST(two_workers_share_a_ports_limits)
{
	const struct pipeline_egress limits = { .rate_mbit = 200,
						.bucket_bytes = BUCKET,
						.queue_bytes = 20 * LEN,
						.ecn_bytes = 10 * LEN };
	uint64_t bytes = 0;

	open_with(2, &limits);
	/* One worker has ports 0 and 2, another one has port 3. */
	for (unsigned int i = 0; i < 400; i++) {
		enqueue(0, 0, 1, ECT_0);
		enqueue(3, 0, 1, ECT_0);
		/* The worker that runs first gets the bucket's content. */
		worker_round(sw.pipeline->workers[i % 2]);
		worker_round(sw.pipeline->workers[1 - i % 2]);
		/* Each worker has half of it at least. */
		ck_assert_uint_le(egress_backlog(sw.pipeline, 1, NULL), 30 * LEN);
		clock_ns += FRAME_NS;
		while (ring_switch_take(&sw, 1, out) != 0)
			bytes += LEN;
		ck_assert_uint_le(bytes, (i + 1) * LEN + BUCKET + LEN);
	}
	ck_assert_uint_ge(bytes, 399 * LEN);
	ck_assert_uint_ge(counters()->tx_dropped, 350);
	ck_assert_uint_ge(counters()->ecn_marked, 350);
	for (unsigned int w = 0; w < 2; w++)
		ck_assert_uint_ge(pipeline_worker_counters(sw.pipeline, w)->ports[1].tx_frames, 20);
}
END_TEST

/* One worker's overload leaves the other worker its share, whichever reaches the bucket first. */
START_TEST(a_queue_that_one_worker_has_filled_has_room_for_the_other)
{
	const struct pipeline_egress limits = { .rate_mbit = 200,
						.bucket_bytes = 1,
						.queue_bytes = 20 * LEN };
	uint64_t before;

	open_with(2, &limits);
	enqueue(0, 0, 100, NOT_ECT);
	worker_round(sw.pipeline->workers[0]);
	worker_round(sw.pipeline->workers[0]);
	worker_round(sw.pipeline->workers[0]);
	worker_round(sw.pipeline->workers[0]);
	ck_assert_uint_eq(egress_backlog(sw.pipeline, 1, NULL), 20 * LEN);
	before = ring_switch_drops(&sw, FANIN_REASON_TX_FULL);
	enqueue(3, 1000, 10, NOT_ECT);
	worker_round(sw.pipeline->workers[1]);
	ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_TX_FULL), before);
	ck_assert_uint_eq(egress_backlog(sw.pipeline, 1, NULL), 30 * LEN);
}
END_TEST

/*
 * A round in which nothing may leave and nothing has come does not touch the queue, however long it
 * is.
 */
START_TEST(a_long_queue_costs_rounds_nothing)
{
	uint64_t drops;

	open_with(1, &(struct pipeline_egress){
			     .rate_mbit = 1, .bucket_bytes = 1, .queue_bytes = 2000000 });
	enqueue(0, 0, 700, NOT_ECT);
	ring_switch_rounds(&sw, 30);
	ck_assert_uint_eq(egress_backlog(sw.pipeline, 1, NULL), 699 * LEN);
	drops = ring_switch_drops(&sw, FANIN_REASON_TX_FULL);
	/* Meanwhile its frames can't even be read. */
	for (uint16_t i = 1; i < 699; i++)
		sw.pipeline->workers[0]->tx[1].mbufs[i] =
			(struct rte_mbuf
				 *)(uintptr_t)((uintptr_t)sw.pipeline->workers[0]->tx[1].mbufs[i] ^
					       UINT64_C(1) << 62);
	ring_switch_rounds(&sw, 100);
	clock_ns += 8 * UINT64_C(1000000);
	for (uint16_t i = 1; i < 699; i++)
		sw.pipeline->workers[0]->tx[1].mbufs[i] =
			(struct rte_mbuf
				 *)(uintptr_t)((uintptr_t)sw.pipeline->workers[0]->tx[1].mbufs[i] ^
					       UINT64_C(1) << 62);
	ring_switch_rounds(&sw, 1);
	ck_assert_uint_eq(egress_backlog(sw.pipeline, 1, NULL), 698 * LEN);
	ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_TX_FULL), drops);
}
END_TEST

static uint32_t driver_lens[64];
static unsigned int n_driver_lens;

static uint16_t
driver_tx_burst(void *handle, struct rte_mbuf **mbufs, uint16_t n)
{
	(void)handle;
	for (uint16_t i = 0; i < n; i++) {
		ck_assert_uint_lt(n_driver_lens, RTE_DIM(driver_lens));
		driver_lens[n_driver_lens++] = mbufs[i]->pkt_len;
	}
	rte_pktmbuf_free_bulk(mbufs, n);
	return n;
}

/* Shorter frames overtake one that a driver refuses, but not one that the rate holds back. */
START_TEST(a_frame_that_the_rate_holds_back_is_not_passed)
{
	static const struct port_driver driver = { .name = "test", .tx_burst = driver_tx_burst };
	uint8_t frame[LEN];

	open_with(1, &(struct pipeline_egress){
			     .rate_mbit = 1, .bucket_bytes = 1, .queue_bytes = 100 * LEN });
	sw.pipeline->workers[0]->tx[1].driver = &driver;
	enqueue(0, 0, 20, NOT_ECT);
	make_frame(frame, 0, 1, 0, NOT_ECT);
	for (unsigned int i = 0; i < 20; i++)
		ring_switch_enqueue(&sw, 0, frame, 100);
	for (unsigned int i = 0; i < 200; i++) {
		ring_switch_rounds(&sw, 1);
		clock_ns += 1000000;
	}
	ck_assert_uint_eq(n_driver_lens, 40);
	for (unsigned int i = 0; i < 40; i++)
		ck_assert_uint_eq(driver_lens[i], i < 20 ? LEN : 100);
	ck_assert_uint_eq(counters()->tx_dropped, 0);
}
END_TEST

START_TEST(backlog_tells_when_to_choose_another_way)
{
	open_with(1, &marking);
	ck_assert_uint_eq(sw.pipeline->egress[1].options.detour_bytes, 5 * LEN);
	ck_assert_uint_eq(sw.pipeline->egress[0].options.detour_bytes, EGRESS_FRAMES * 1514 / 2);
	enqueue(0, 0, 6, NOT_ECT);
	ring_switch_rounds(&sw, 1);
	ck_assert(!egress_is_congested(sw.pipeline, 1, egress_backlog(sw.pipeline, 1, NULL)));
	enqueue(0, 6, 1, NOT_ECT);
	ring_switch_rounds(&sw, 1);
	ck_assert(egress_is_congested(sw.pipeline, 1, egress_backlog(sw.pipeline, 1, NULL)));
}
END_TEST

Suite *
suite_egress(void)
{
	Suite *suite = suite_create("egress");
	TCase *tests = tcase_create("egress");
	TCase *sums = tcase_create("sums");

	suite_add_tcase(suite, tests);
	suite_add_tcase(suite, sums);
	tcase_set_timeout(tests, 300);
	tcase_set_timeout(sums, 300);
	tcase_add_checked_fixture(tests, NULL, teardown);
	tcase_add_test(tests, a_port_sends_at_its_rate_and_a_bucket_at_once);
	tcase_add_loop_test(sums, no_rate_is_rounded, 0, 5);
	tcase_add_test(tests, packets_beyond_the_queue_are_dropped_and_counted);
	tcase_add_test(tests, small_frames_are_bounded_in_number);
	tcase_add_test(tests, a_long_queue_leaves_others_their_room);
	tcase_add_test(tests, super_frames_that_wait_are_bounded_over_all_ports);
	tcase_add_test(tests, order_is_kept_for_long);
	tcase_add_loop_test(tests, frames_behind_a_backlog_are_marked_if_they_may_be, 0, 4);
	tcase_add_loop_test(tests, marks_are_found_in_every_frame_of_ip, 0, 7);
	tcase_add_test(tests, a_mark_is_of_one_port_only);
	tcase_add_test(tests, two_workers_share_a_ports_limits);
	tcase_add_test(tests, a_queue_that_one_worker_has_filled_has_room_for_the_other);
	tcase_add_test(tests, a_long_queue_costs_rounds_nothing);
	tcase_add_test(tests, a_frame_that_the_rate_holds_back_is_not_passed);
	tcase_add_test(tests, backlog_tells_when_to_choose_another_way);
	return suite;
}
