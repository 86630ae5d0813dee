/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The handler `region` over leaves and spines, in virtual time: what a member writes comes to each
 * other one once, at the address that it has named, and nobody writes outside of the region or in
 * another one's name.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "lab/rig/leaf_spine.h"
#include "tests/unit/ring_switch.h"
#include "tests/unit/suites.h"
#include "protocols/region/region.h"

#define SECOND_NS UINT64_C(1000000000)
#define N_RANKS 8u
#define LEN 512u
#define BASE UINT64_C(0x100000000000)
#define BYTES 4096u
#define N_PLACES (BYTES / LEN)

static struct {
	struct rig *rig;
	struct rig_leaf_spine network;
	struct rig_job job;
	/*
	 * How often each rank has what each other one has written to each place, and what was sent
	 * once more.
	 */
	unsigned int writes[N_RANKS][N_RANKS][N_PLACES];
	unsigned int rewrites[N_RANKS][N_RANKS];
	unsigned int refused[N_RANKS];
	unsigned int reason;
} world;

static uint8_t
byte_of(uint32_t origin, uint64_t address, uint32_t i)
{
	return (uint8_t)(origin * 31 + address / LEN * 7 + i);
}

static uint16_t
rank_of(const struct rig_host *host)
{
	uint16_t rank = 0;

	while (world.network.hosts[rank] != host)
		rank++;
	return rank;
}

static void
hear(uint16_t rank, const struct fanin_frame *frame)
{
	const struct fanin_headers *headers = frame->data;
	const struct fanin_hdr *hdr = &headers->fanin;
	const uint8_t *data = (const uint8_t *)(headers + 1);
	const uint64_t address = fanin_region_address(hdr);
	const uint16_t origin = fanin_region_origin(hdr);

	if (hdr->type == FANIN_TYPE_REFUSED) {
		world.refused[rank]++;
		world.reason = hdr->count;
		return;
	}
	ck_assert_uint_eq(fanin_wire_validate(headers, frame->len), FANIN_REASON_NONE);
	ck_assert_uint_eq(hdr->key, world.job.jobs[0]->params.keys.down);
	ck_assert_uint_eq(hdr->epoch, world.job.joining[rank].headers.fanin.epoch);
	ck_assert_uint_lt(origin, N_RANKS);
	ck_assert_uint_eq(hdr->block, origin + 1u);
	ck_assert_uint_eq(hdr->progress, 77);
	ck_assert_uint_eq(frame->len, FANIN_PAYLOAD_OFFSET + LEN);
	ck_assert(fanin_region_holds(BASE, BYTES, address, LEN));
	for (uint32_t i = 0; i < LEN; i++)
		ck_assert_uint_eq(data[i], byte_of(origin, address, i));
	if (hdr->type == FANIN_TYPE_WRITE_DELIVERY) {
		world.writes[rank][origin][(address - BASE) / LEN]++;
		return;
	}
	ck_assert_uint_eq(hdr->type, FANIN_TYPE_REWRITE_DELIVERY);
	ck_assert_uint_eq(hdr->number, rank);
	world.rewrites[rank][origin]++;
}

static void
poll_host(struct rig_host *host, void *user)
{
	struct fanin_transport *transport = rig_host_transport(host);
	struct fanin_frame frames[16];
	unsigned int n;

	(void)user;
	while ((n = transport->ops->rx_burst(transport, frames, RTE_DIM(frames))) != 0) {
		for (unsigned int i = 0; i < n; i++)
			hear(rank_of(host), &frames[i]);
		transport->ops->rx_release(transport, frames, n);
	}
}

static void
open_world(void)
{
	static const struct rig_leaf_spine_options options = {
		.n_leaves = 2,
		.hosts_per_leaf = 5,
		.n_spines = 2,
		.host_end = { .egress = { .rate_mbit = 10000, .queue_bytes = 1 << 21 },
			      .delay_ns = 1000 },
		.up_end = { .egress = { .rate_mbit = 10000, .queue_bytes = 1 << 21 },
			    .delay_ns = 2000 },
		.max_jobs = 2,
		.slots = 64,
	};
	const struct rig_options rig_options = { .seed = 1, .n_packets = 16383, .mtu = 1500 };
	const struct job_spec spec = {
		.handler = "region",
		.slots = 32,
		.n_parameters = 2,
		.parameters = { { "base", BASE }, { "bytes", BYTES } },
	};
	char error[PIPELINE_ERROR_LEN] = "";

	ring_switch_eal();
	memset(&world, 0, sizeof(world));
	world.rig = rig_create(&rig_options, error);
	ck_assert_msg(world.rig != NULL, "%s", error);
	ck_assert_msg(rig_leaf_spine_build(world.rig, &options, &world.network, error) == 0, "%s",
		      error);
	rig_run(world.rig, rig_now_ns(world.rig) + SECOND_NS, NULL, NULL);
	ck_assert_msg(rig_job_create(&world.network, &spec, N_RANKS, 1, &world.job, error) == 0,
		      "%s", error);
	ck_assert_int_eq(rig_job_join(&world.job, 60 * SECOND_NS), 0);
	for (uint16_t rank = 0; rank < N_RANKS; rank++)
		rig_host_set_poll(world.network.hosts[rank], poll_host, NULL);
}

static void
close_world(void)
{
	rig_leaf_spine_free(&world.network);
	free(world.job.joining);
	ck_assert_uint_eq(rig_destroy(world.rig), 0);
}

/* A rank's packet for an address. Returns its length. frame: 2048 bytes. */
static uint32_t
make_packet(uint16_t rank, enum fanin_type type, uint64_t address, uint32_t len,
	    struct fanin_headers *frame)
{
	struct fanin_protocol_config config = { 0 };
	uint8_t *data = (uint8_t *)(frame + 1);

	rig_protocol_config(&world.job, rank, &config);
	fanin_wire_encode_l4(frame, &config.flow, len);
	fanin_wire_encode_header(&frame->fanin, type, world.job.id, config.epoch, config.keys.up);
	frame->fanin.rank = rank;
	frame->fanin.contributions = 1;
	frame->fanin.block = rank + 1u;
	frame->fanin.progress = 77;
	frame->fanin.members = address;
	frame->fanin.count = rank;
	for (uint32_t i = 0; i < len; i++)
		data[i] = byte_of(rank, address, i);
	return FANIN_PAYLOAD_OFFSET + len;
}

static void
send_from(uint16_t rank, const struct fanin_headers *frame, uint32_t len)
{
	ck_assert(rig_host_send(world.network.hosts[rank], frame, len));
}

static void
settle(void)
{
	rig_run(world.rig, rig_now_ns(world.rig) + SECOND_NS / 10, NULL, NULL);
}

static uint64_t
drops_of_leaf(uint16_t leaf, enum fanin_reason reason)
{
	struct counters sum;

	pipeline_counters(rig_switch_pipeline(world.network.leaves[leaf]), &sum);
	return sum.drops[reason];
}

/* A counter of the handler's own on the i-th of the job's switches: its leaves and the spine. */
static uint64_t
own_of(unsigned int i, const char *name)
{
	const struct job *job = world.job.jobs[i];
	struct fanin_handler_stats stats;
	unsigned int counter = 0;

	job_stats(job, &stats);
	while (strcmp(job->handler->counters[counter].name, name) != 0)
		counter++;
	return stats.own[counter];
}

START_TEST(each_write_comes_to_each_other_rank_once)
{
	uint8_t bytes[2048] __attribute__((aligned(8)));
	struct fanin_headers *frame = (struct fanin_headers *)bytes;

	open_world();
	for (uint16_t rank = 0; rank < N_RANKS; rank++)
		send_from(rank, frame,
			  make_packet(rank, FANIN_TYPE_WRITE, BASE + rank * LEN, LEN, frame));
	settle();
	for (uint16_t to = 0; to < N_RANKS; to++) {
		for (uint16_t from = 0; from < N_RANKS; from++) {
			for (uint32_t place = 0; place < N_PLACES; place++)
				ck_assert_uint_eq(world.writes[to][from][place],
						  to != from && place == from);
			ck_assert_uint_eq(world.rewrites[to][from], 0);
		}
	}
	/* Five ranks are behind the first leaf, three behind the second one. */
	ck_assert_uint_eq(own_of(0, "writes"), 5);
	ck_assert_uint_eq(own_of(1, "writes"), 3);
	ck_assert_uint_eq(own_of(2, "writes"), 8);
	ck_assert_uint_eq(own_of(0, "passed_up"), 5);
	close_world();
}
END_TEST

START_TEST(a_rewrite_comes_to_the_rank_that_it_is_for_and_to_no_other)
{
	uint8_t bytes[2048] __attribute__((aligned(8)));
	struct fanin_headers *frame = (struct fanin_headers *)bytes;

	open_world();
	for (uint16_t to = 0; to < N_RANKS; to++) {
		const uint32_t len = make_packet(2, FANIN_TYPE_REWRITE, BASE + 3 * LEN, LEN, frame);

		frame->fanin.number = to;
		if (to != 2)
			send_from(2, frame, len);
	}
	settle();
	for (uint16_t to = 0; to < N_RANKS; to++) {
		for (uint16_t from = 0; from < N_RANKS; from++)
			ck_assert_uint_eq(world.rewrites[to][from], from == 2 && to != 2);
	}
	ck_assert_uint_eq(own_of(0, "rewrites"), 7);
	ck_assert_uint_eq(own_of(1, "rewrites"), 0);
	close_world();
}
END_TEST

/* Address and length of what is refused, in turn. */
static const struct {
	uint64_t address;
	uint32_t len;
} outside[] = {
	{ 0, LEN },
	{ BASE - 1, LEN },
	{ BASE - LEN, LEN },
	{ BASE + BYTES - LEN + 1, LEN },
	{ BASE + BYTES, LEN },
	{ BASE + BYTES, 1 },
	{ UINT64_MAX, LEN },
	{ UINT64_MAX - LEN + 1, LEN },
	{ INT64_MAX, LEN },
	{ BASE, 0 },
};

/* Down from a parent as well, whatever that has let through. */
START_TEST(packets_outside_the_region_are_dropped_and_counted)
{
	uint8_t bytes[2048] __attribute__((aligned(8)));
	struct fanin_headers *frame = (struct fanin_headers *)bytes;
	uint32_t n = 0;

	open_world();
	for (size_t i = 0; i < RTE_DIM(outside); i++) {
		for (unsigned int again = 0; again < 2; again++) {
			const uint32_t len =
				make_packet(5, again ? FANIN_TYPE_REWRITE : FANIN_TYPE_WRITE,
					    outside[i].address, outside[i].len, frame);

			send_from(5, frame, len);
			n++;
		}
	}
	settle();
	ck_assert_uint_eq(drops_of_leaf(1, FANIN_REASON_REGION), n);
	ck_assert_uint_eq(own_of(1, "out_of_range"), n);
	ck_assert_uint_eq(own_of(1, "writes"), 0);
	ck_assert_uint_eq(own_of(1, "rewrites"), 0);
	ck_assert_uint_eq(own_of(1, "passed_up"), 0);
	/* Who is a member is told what is wrong. */
	ck_assert_uint_eq(world.refused[5], n);
	ck_assert_uint_eq(world.reason, FANIN_REASON_REGION);
	/* The last bytes are within. */
	send_from(5, frame, make_packet(5, FANIN_TYPE_WRITE, BASE + BYTES - LEN, LEN, frame));
	settle();
	ck_assert_uint_eq(world.writes[0][5][N_PLACES - 1], 1);
	close_world();
}
END_TEST

START_TEST(only_members_write_and_only_in_their_own_name)
{
	uint8_t bytes[2048] __attribute__((aligned(8)));
	struct fanin_headers *frame = (struct fanin_headers *)bytes;
	struct rig_host *stranger;
	uint32_t len;

	open_world();
	/* Host 9 is at the second leaf, and no rank. */
	stranger = world.network.hosts[9];
	len = make_packet(5, FANIN_TYPE_WRITE, BASE, LEN, frame);
	ck_assert(rig_host_send(stranger, frame, len));
	memcpy(frame->eth.src, rig_host_mac(stranger), 6);
	ck_assert(rig_host_send(stranger, frame, len));
	len = make_packet(5, FANIN_TYPE_WRITE, BASE, LEN, frame);
	frame->fanin.rank = 6;
	send_from(5, frame, len);
	len = make_packet(5, FANIN_TYPE_WRITE, BASE, LEN, frame);
	frame->fanin.key++;
	send_from(5, frame, len);
	len = make_packet(5, FANIN_TYPE_WRITE, BASE, LEN, frame);
	frame->fanin.epoch++;
	send_from(5, frame, len);
	for (uint16_t origin = 0; origin < 100; origin++) {
		len = make_packet(5, FANIN_TYPE_WRITE, BASE, LEN, frame);
		frame->fanin.count = origin == 5 ? UINT16_MAX : origin;
		send_from(5, frame, len);
	}
	len = make_packet(5, FANIN_TYPE_REWRITE, BASE, LEN, frame);
	frame->fanin.number = N_RANKS;
	send_from(5, frame, len);
	len = make_packet(5, FANIN_TYPE_WRITE_DELIVERY, BASE, LEN, frame);
	send_from(5, frame, len);
	len = make_packet(5, FANIN_TYPE_REWRITE_DELIVERY, BASE, LEN, frame);
	send_from(5, frame, len);
	settle();
	for (uint16_t to = 0; to < N_RANKS; to++) {
		for (uint16_t from = 0; from < N_RANKS; from++) {
			ck_assert_uint_eq(world.writes[to][from][0], 0);
			ck_assert_uint_eq(world.rewrites[to][from], 0);
		}
	}
	ck_assert_uint_eq(drops_of_leaf(1, FANIN_REASON_PORT), 3);
	ck_assert_uint_eq(drops_of_leaf(1, FANIN_REASON_KEY), 1);
	ck_assert_uint_eq(drops_of_leaf(1, FANIN_REASON_EPOCH), 1);
	ck_assert_uint_eq(drops_of_leaf(1, FANIN_REASON_RANK), 101);
	ck_assert_uint_eq(drops_of_leaf(1, FANIN_REASON_DIRECTION), 2);
	ck_assert_uint_eq(drops_of_leaf(1, FANIN_REASON_REGION), 0);
	close_world();
}
END_TEST

START_TEST(a_packet_longer_than_the_jobs_is_dropped)
{
	uint8_t bytes[2048] __attribute__((aligned(8)));
	struct fanin_headers *frame = (struct fanin_headers *)bytes;
	uint32_t most;

	open_world();
	most = world.job.jobs[1]->params.payload_bytes;
	ck_assert_uint_lt(most, 1500);
	send_from(5, frame, make_packet(5, FANIN_TYPE_WRITE, BASE, most + 1, frame));
	settle();
	ck_assert_uint_eq(drops_of_leaf(1, FANIN_REASON_PAYLOAD), 1);
	ck_assert_uint_eq(own_of(1, "delivered"), 0);
	close_world();
}
END_TEST

START_TEST(a_region_holds_exactly_its_bytes)
{
	ck_assert(fanin_region_holds(BASE, BYTES, BASE, 1));
	ck_assert(fanin_region_holds(BASE, BYTES, BASE, BYTES));
	ck_assert(fanin_region_holds(BASE, BYTES, BASE + BYTES - 1, 1));
	ck_assert(!fanin_region_holds(BASE, BYTES, BASE, BYTES + 1));
	ck_assert(!fanin_region_holds(BASE, BYTES, BASE + 1, BYTES));
	ck_assert(!fanin_region_holds(BASE, BYTES, BASE - 1, 1));
	ck_assert(!fanin_region_holds(BASE, BYTES, BASE + BYTES, 1));
	ck_assert(!fanin_region_holds(BASE, BYTES, BASE, 0));
	ck_assert(!fanin_region_holds(BASE, BYTES, UINT64_MAX, 2));
	ck_assert(!fanin_region_holds(0, 0, 0, 1));
	ck_assert(fanin_region_holds(INT64_MAX, INT64_MAX, 2 * (uint64_t)INT64_MAX - 1, 1));
	ck_assert(!fanin_region_holds(INT64_MAX, INT64_MAX, 2 * (uint64_t)INT64_MAX, 1));
}
END_TEST

Suite *
suite_region(void)
{
	Suite *suite = suite_create("region");
	TCase *tests = tcase_create("region");

	suite_add_tcase(suite, tests);
	tcase_set_timeout(tests, 300);
	tcase_add_test(tests, each_write_comes_to_each_other_rank_once);
	tcase_add_test(tests, a_rewrite_comes_to_the_rank_that_it_is_for_and_to_no_other);
	tcase_add_test(tests, packets_outside_the_region_are_dropped_and_counted);
	tcase_add_test(tests, only_members_write_and_only_in_their_own_name);
	tcase_add_test(tests, a_packet_longer_than_the_jobs_is_dropped);
	tcase_add_test(tests, a_region_holds_exactly_its_bytes);
	return suite;
}
