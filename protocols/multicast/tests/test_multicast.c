/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Multicast over leaves and spines, in virtual time: packets of each host reach every other host
 * once, and cross each link of the tree once; packets of non-members go nowhere.
 */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lab/rig/leaf_spine.h"
#include "tests/unit/ring_switch.h"
#include "tests/unit/suites.h"

#define SECOND_NS UINT64_C(1000000000)
#define N_RANKS 8u
#define N_PACKETS 50u
#define LEN 512u

static struct {
	struct rig *rig;
	struct rig_leaf_spine network;
	struct rig_job job;
	/* How often each rank has each packet of each other one. */
	unsigned int times[N_RANKS][N_RANKS][N_PACKETS];
	unsigned int others;
} world;

static const struct rig_leaf_spine_options usual = {
	.n_leaves = 2,
	.hosts_per_leaf = 5,
	.n_spines = 2,
	.host_end = { .egress = { .rate_mbit = 10000, .queue_bytes = 1 << 21 }, .delay_ns = 1000 },
	.up_end = { .egress = { .rate_mbit = 10000, .queue_bytes = 1 << 21 }, .delay_ns = 2000 },
	.max_jobs = 2,
	.slots = 64,
};

static uint8_t
byte_of(uint32_t origin, uint32_t number, uint32_t i)
{
	return (uint8_t)(origin * 31 + number * 7 + i);
}

/* Which rank is it? */
static uint16_t
rank_of(const struct rig_host *host)
{
	for (uint16_t rank = 0; rank < N_RANKS; rank++) {
		if (world.network.hosts[rank] == host)
			return rank;
	}
	return N_RANKS;
}

static void
hear(uint16_t rank, const struct fanin_frame *frame)
{
	const struct fanin_headers *headers = frame->data;
	const uint8_t *data = (const uint8_t *)(headers + 1);

	if (headers->fanin.type != FANIN_TYPE_DELIVERY) {
		world.others++;
		return;
	}
	ck_assert_uint_eq(fanin_wire_validate(headers, frame->len), FANIN_REASON_NONE);
	ck_assert_uint_eq(headers->ip.dst_be, world.job.jobs[0]->group_be);
	ck_assert_uint_eq(headers->ip.src_be,
			  rig_switch_pipeline(rig_leaf_of(&world.network, rank))->ip_be);
	ck_assert_uint_eq(headers->fanin.key, world.job.jobs[0]->params.keys.down);
	ck_assert_uint_eq(headers->fanin.epoch, world.job.joining[rank].headers.fanin.epoch);
	ck_assert_uint_eq(headers->fanin.count, LEN);
	ck_assert_uint_eq(headers->fanin.number, headers->fanin.block * 3);
	ck_assert_uint_eq(frame->len, FANIN_PAYLOAD_OFFSET + LEN);
	ck_assert_uint_lt(headers->fanin.members, N_RANKS);
	ck_assert_uint_lt(headers->fanin.block, N_PACKETS);
	for (uint32_t i = 0; i < LEN; i += 37)
		ck_assert_uint_eq(data[i], byte_of((uint32_t)headers->fanin.members,
						   headers->fanin.block, i));
	world.times[rank][headers->fanin.members][headers->fanin.block]++;
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
open_world(const struct pipeline_faults *faults)
{
	const struct rig_options rig_options = { .seed = 1, .n_packets = 16383, .mtu = 1500 };
	const struct job_spec spec = { .handler = "multicast" };
	struct rig_leaf_spine_options options = usual;
	char error[PIPELINE_ERROR_LEN] = "";

	ring_switch_eal();
	if (faults != NULL)
		options.faults = *faults;
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

/* The packet of a rank, with its addresses. Returns its length. frame: 2048 bytes. */
static uint32_t
make_packet(uint16_t rank, uint32_t number, struct fanin_headers *frame)
{
	struct fanin_protocol_config config = { 0 };
	uint8_t *data = (uint8_t *)(frame + 1);

	rig_protocol_config(&world.job, rank, &config);
	fanin_wire_encode_l4(frame, &config.flow, LEN);
	fanin_wire_encode_header(&frame->fanin, FANIN_TYPE_MULTICAST, world.job.id, config.epoch,
				 config.keys.up);
	frame->fanin.rank = rank;
	frame->fanin.contributions = 1;
	frame->fanin.members = rank;
	frame->fanin.block = number;
	frame->fanin.count = LEN;
	frame->fanin.number = number * 3;
	for (uint32_t i = 0; i < LEN; i++)
		data[i] = byte_of(rank, number, i);
	return FANIN_PAYLOAD_OFFSET + LEN;
}

/* Each rank sends all its packets, at the same time as the others. */
static void
all_send(void)
{
	uint8_t frame[2048] __attribute__((aligned(8)));

	for (uint32_t number = 0; number < N_PACKETS; number++) {
		for (uint16_t rank = 0; rank < N_RANKS; rank++) {
			const uint32_t len = make_packet(rank, number,
							 (struct fanin_headers *)frame);

			ck_assert(rig_host_send(world.network.hosts[rank], frame, len));
		}
	}
	rig_run(world.rig, rig_now_ns(world.rig) + SECOND_NS / 10, NULL, NULL);
}

static uint64_t
drops_of_leaf(uint16_t leaf, enum fanin_reason reason)
{
	struct counters sum;

	pipeline_counters(rig_switch_pipeline(world.network.leaves[leaf]), &sum);
	return sum.drops[reason];
}

START_TEST(each_packet_comes_to_each_other_rank_once_over_each_link_once)
{
	const uint16_t up = usual.hosts_per_leaf + 1;
	uint64_t hosts[N_RANKS], ups[2], downs[2];

	open_world(NULL);
	for (uint16_t rank = 0; rank < N_RANKS; rank++)
		hosts[rank] =
			rig_switch_traffic(rig_leaf_of(&world.network, rank), rank % 5).frames;
	for (uint16_t leaf = 0; leaf < 2; leaf++) {
		ups[leaf] = rig_switch_traffic(world.network.leaves[leaf], up).frames;
		downs[leaf] = rig_switch_traffic(world.network.spines[1], leaf).frames;
	}
	all_send();
	for (uint16_t to = 0; to < N_RANKS; to++) {
		for (uint16_t from = 0; from < N_RANKS; from++) {
			for (uint32_t i = 0; i < N_PACKETS; i++)
				ck_assert_uint_eq(world.times[to][from][i], to != from);
		}
		ck_assert_uint_eq(
			rig_switch_traffic(rig_leaf_of(&world.network, to), to % 5).frames -
				hosts[to],
			(N_RANKS - 1) * N_PACKETS);
	}
	/* Five ranks are behind the first leaf, three behind the second one. */
	for (uint16_t leaf = 0; leaf < 2; leaf++) {
		ck_assert_uint_eq(rig_switch_traffic(world.network.leaves[leaf], up).frames -
					  ups[leaf],
				  (leaf == 0 ? 5 : 3) * N_PACKETS);
		ck_assert_uint_eq(rig_switch_traffic(world.network.spines[1], leaf).frames -
					  downs[leaf],
				  (leaf == 0 ? 3 : 5) * N_PACKETS);
	}
	ck_assert_uint_eq(world.others, 0);
	close_world();
}
END_TEST

START_TEST(packets_of_non_members_go_nowhere)
{
	uint8_t bytes[2048] __attribute__((aligned(8)));
	struct fanin_headers *frame = (struct fanin_headers *)bytes;
	struct rig_host *stranger;
	uint32_t len;

	open_world(NULL);
	/* Host 9 is at the second leaf, and no rank. */
	stranger = world.network.hosts[9];
	len = make_packet(5, 0, frame);
	ck_assert(rig_host_send(stranger, frame, len));
	memcpy(frame->eth.src, rig_host_mac(stranger), 6);
	ck_assert(rig_host_send(stranger, frame, len));
	/* A member with another one's rank, key, run or origin, and one that speaks as a switch. */
	len = make_packet(5, 0, frame);
	frame->fanin.rank = 6;
	ck_assert(rig_host_send(world.network.hosts[5], frame, len));
	len = make_packet(5, 0, frame);
	frame->fanin.key++;
	ck_assert(rig_host_send(world.network.hosts[5], frame, len));
	len = make_packet(5, 0, frame);
	frame->fanin.epoch++;
	ck_assert(rig_host_send(world.network.hosts[5], frame, len));
	for (uint64_t origin = 0; origin < 100; origin++) {
		len = make_packet(5, 0, frame);
		frame->fanin.members = origin == 5 ? UINT64_MAX : origin;
		ck_assert(rig_host_send(world.network.hosts[5], frame, len));
	}
	len = make_packet(5, 0, frame);
	frame->fanin.type = FANIN_TYPE_DELIVERY;
	ck_assert(rig_host_send(world.network.hosts[5], frame, len));
	/* Nothing is reduced in such a job. */
	len = make_packet(5, 0, frame);
	frame->fanin.type = FANIN_TYPE_CONTRIBUTION;
	frame->fanin.members = 0;
	frame->fanin.number = 0;
	frame->fanin.dtype = FANIN_WIRE_U8;
	frame->fanin.op = FANIN_WIRE_SUM;
	ck_assert(rig_host_send(world.network.hosts[5], frame, len));
	rig_run(world.rig, rig_now_ns(world.rig) + SECOND_NS, NULL, NULL);
	for (uint16_t to = 0; to < N_RANKS; to++) {
		for (uint16_t from = 0; from < N_RANKS; from++)
			ck_assert_uint_eq(world.times[to][from][0], 0);
	}
	ck_assert_uint_eq(drops_of_leaf(1, FANIN_REASON_PORT), 3);
	ck_assert_uint_eq(drops_of_leaf(1, FANIN_REASON_KEY), 1);
	ck_assert_uint_eq(drops_of_leaf(1, FANIN_REASON_RANK), 100);
	ck_assert_uint_eq(drops_of_leaf(1, FANIN_REASON_DIRECTION), 1);
	ck_assert_uint_eq(drops_of_leaf(1, FANIN_REASON_TYPE), 1);
	/* A member is told what is wrong. */
	ck_assert_uint_ge(world.others, 100);
	close_world();
}
END_TEST

/* Links lose and duplicate packets, and nothing else happens to packets. */
START_TEST(with_faults_what_comes_is_right)
{
	const struct pipeline_faults faults = { .drop = 0.05, .duplicate = 0.05, .reorder = 0.05 };
	unsigned int missing = 0, doubled = 0;

	open_world(&faults);
	all_send();
	for (uint16_t to = 0; to < N_RANKS; to++) {
		for (uint16_t from = 0; from < N_RANKS; from++) {
			for (uint32_t i = 0; i < N_PACKETS; i++) {
				ck_assert(to != from || world.times[to][from][i] == 0);
				missing += to != from && world.times[to][from][i] == 0;
				doubled += world.times[to][from][i] > 1;
			}
		}
	}
	ck_assert_uint_gt(missing, 0);
	ck_assert_uint_gt(doubled, 0);
	ck_assert_uint_lt(missing, N_RANKS * N_RANKS * N_PACKETS / 2);
	close_world();
}
END_TEST

/* A copy for the parent has to fit into what the switch takes packets from. */
START_TEST(a_payload_that_the_switch_has_no_packets_for_is_refused)
{
	struct job_spec spec = { .key = RING_SWITCH_KEY, .handler = "multicast", .n_members = 2 };
	char error[PIPELINE_ERROR_LEN] = "";
	struct ring_switch sw;
	struct job *job;
	const char *code;

	ring_switch_eal();
	ring_switch_open(&sw, 2, 1, NULL);
	for (uint16_t i = 0; i < 2; i++) {
		sw.pipeline->ports[i].mtu = 9000;
		spec.members[i].port = i;
		spec.members[i].ip_be = host_ip_be(i);
	}
	ck_assert_int_eq(job_create(sw.pipeline, &spec, &job, &code, error), -EINVAL);
	ck_assert_ptr_nonnull(strstr(error, "expected at most "));
	spec.payload_bytes = 4032;
	ck_assert_int_eq(job_create(sw.pipeline, &spec, &job, &code, error), -EINVAL);
	spec.payload_bytes = 3840;
	ck_assert_msg(job_create(sw.pipeline, &spec, &job, &code, error) == 0, "%s", error);
	/* A handler that makes no results may have more ranks. */
	spec.handler = "single";
	spec.payload_bytes = 0;
	ck_assert_msg(job_create(sw.pipeline, &spec, &job, &code, error) == 0, "%s", error);
	ring_switch_close(&sw);
}
END_TEST

START_TEST(a_job_ends_in_virtual_time)
{
	open_world(NULL);
	rig_job_destroy(&world.job);
	for (uint16_t leaf = 0; leaf < 2; leaf++)
		ck_assert_ptr_null(job_lookup(rig_switch_pipeline(world.network.leaves[leaf])->jobs,
					      world.job.id));
	rig_run(world.rig, rig_now_ns(world.rig) + SECOND_NS, NULL, NULL);
	close_world();
}
END_TEST

Suite *
suite_multicast(void)
{
	Suite *suite = suite_create("multicast");
	TCase *tests = tcase_create("multicast");

	suite_add_tcase(suite, tests);
	tcase_set_timeout(tests, 300);
	tcase_add_test(tests, each_packet_comes_to_each_other_rank_once_over_each_link_once);
	tcase_add_test(tests, packets_of_non_members_go_nowhere);
	tcase_add_test(tests, with_faults_what_comes_is_right);
	tcase_add_test(tests, a_payload_that_the_switch_has_no_packets_for_is_refused);
	tcase_add_test(tests, a_job_ends_in_virtual_time);
	return suite;
}
