/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The protocol "acked": sums are exact whatever links lose, duplicate and reorder, on one switch
 * and on several, its timer repeats unacknowledged results, and it names the ranks that it waits
 * for. In a build that does not have it, the copy that is compiled into this file is registered
 * when a test needs it.
 */
#include <stdlib.h>
#include <string.h>

#include "hostlib/src/protocol/protocol.h"
#include "lab/rig/leaf_spine.h"
#include "tests/unit/ring_switch.h"
#include "tests/unit/suites.h"

#undef FANIN_HANDLER_REGISTER
#undef FANIN_PROTOCOL_REGISTER
#define FANIN_HANDLER_REGISTER(handler)
#define FANIN_PROTOCOL_REGISTER(protocol)
#include "../switch/acked.c" // NOLINT(bugprone-suspicious-include)
#include "../host/acked.c"   // NOLINT(bugprone-suspicious-include)

#define SECOND_NS UINT64_C(1000000000)
#define MAX_RANKS 8

/* The build's protocol, or the one in this file. */
static const struct fanin_protocol *protocol;

static void
acked_register(void)
{
	char reason[FANIN_TEXT_LEN];

	if (fanin_handler_find("acked") == NULL) {
		fanin_handler_register(&acked_handler);
		fanin_protocol_register(&acked_protocol);
	}
	protocol = fanin_protocol_of("acked", reason, sizeof(reason));
}

START_TEST(both_sides_are_found_by_their_name)
{
	acked_register();
	ck_assert_str_eq(fanin_handler_find("acked")->name, "acked");
	ck_assert_str_eq(protocol->name, "acked");
	/* Both have declared them. */
	ck_assert_str_eq(fanin_packet_types[ACKED_TYPE_ACK].name, "ACKED_ACK");
	ck_assert_int_eq(fanin_type_direction(ACKED_TYPE_WAITING), FANIN_DOWN);
}
END_TEST

/* ------------------------------------------------------------------ in virtual time */

struct member {
	struct fanin_endpoint *engine;
	struct fanin_request request;
	int32_t *send;
	int32_t *recv;
	bool away; /* nobody polls it */
};

static struct {
	struct rig *rig;
	struct rig_leaf_spine network;
	struct rig_job job;
	struct member members[MAX_RANKS];
} world;

/* Two leaves, whose ranks meet in a spine if there are more than four. */
static const struct rig_leaf_spine_options usual = {
	.n_leaves = 2,
	.hosts_per_leaf = 4,
	.n_spines = 1,
	.host_end = { .egress = { .rate_mbit = 10000 }, .delay_ns = 1000 },
	.up_end = { .egress = { .rate_mbit = 10000 }, .delay_ns = 2000 },
	.max_jobs = 2,
	.slots = 64,
};

static void
poll_member(struct rig_host *host, void *user)
{
	struct member *member = user;

	if (member->away)
		return;
	protocol->poll(member->engine);
	if (member->request.status == FANIN_IN_PROGRESS)
		rig_host_wake(host, rig_now_ns(world.rig) +
					    RTE_MAX(protocol->idle_ns(member->engine), 1u));
}

static void
member_open(uint16_t rank)
{
	struct fanin_protocol_config known = { 0 };
	struct fanin_protocol_config config = { .timeout_ns = 5 * SECOND_NS, .listener = -1 };
	struct rig_host *host = world.network.hosts[rank];
	struct fanin_error error;

	rig_protocol_config(&world.job, rank, &known);
	config.flow = known.flow;
	config.keys = known.keys;
	config.transport = rig_host_transport(host);
	config.job = known.job;
	config.epoch = known.epoch;
	config.rank = rank;
	config.size = known.size;
	config.payload_bytes = known.payload_bytes;
	config.now_ns = known.now_ns;
	config.now_arg = known.now_arg;
	ck_assert_int_eq(protocol->open(protocol, &config, &world.members[rank].engine, &error),
			 FANIN_OK);
	rig_host_set_poll(host, poll_member, &world.members[rank]);
}

static void
open_world(const struct pipeline_faults *faults, uint64_t seed, uint16_t n_ranks, bool wide)
{
	const struct rig_options rig_options = { .seed = seed, .n_packets = 8191, .mtu = 1500 };
	const struct job_spec spec = { .handler = "acked",
				       .slots = 4,
				       .wide = wide,
				       .n_parameters = 1,
				       .parameters = { { "repeat_us", 100 } } };
	struct rig_leaf_spine_options options = usual;
	char error[PIPELINE_ERROR_LEN] = "";

	acked_register();
	ring_switch_eal();
	if (faults != NULL)
		options.faults = *faults;
	world.rig = rig_create(&rig_options, error);
	ck_assert_msg(world.rig != NULL, "%s", error);
	ck_assert_msg(rig_leaf_spine_build(world.rig, &options, &world.network, error) == 0, "%s",
		      error);
	rig_run(world.rig, rig_now_ns(world.rig) + SECOND_NS, NULL, NULL);
	ck_assert_msg(rig_job_create(&world.network, &spec, n_ranks, 0, &world.job, error) == 0,
		      "%s", error);
	ck_assert_int_eq(rig_job_join(&world.job, 60 * SECOND_NS), 0);
	for (uint16_t rank = 0; rank < n_ranks; rank++)
		member_open(rank);
}

static void
close_world(void)
{
	for (uint16_t rank = 0; rank < world.job.n_ranks; rank++) {
		protocol->close(world.members[rank].engine);
		free(world.members[rank].send);
		free(world.members[rank].recv);
	}
	rig_leaf_spine_free(&world.network);
	free(world.job.joining);
	/* No packet is lost to a leak. */
	ck_assert_uint_eq(rig_destroy(world.rig), 0);
}

/* Of the handler's own counters, over all switches. */
static uint64_t
count(unsigned int counter)
{
	const unsigned int n_switches = world.job.n_leaves > 1 ? world.job.n_leaves + 1u : 1u;
	uint64_t sum = 0;

	for (unsigned int i = 0; i < n_switches; i++) {
		struct fanin_handler_stats stats;

		job_stats(world.job.jobs[i], &stats);
		sum += stats.own[counter];
	}
	return sum;
}

static bool
all_done(void *user)
{
	(void)user;
	for (uint16_t rank = 0; rank < world.job.n_ranks; rank++) {
		if (world.members[rank].request.status == FANIN_IN_PROGRESS &&
		    !world.members[rank].away)
			return false;
	}
	return true;
}

static void
post(uint16_t rank, uint32_t n, unsigned int dtype, unsigned int op)
{
	struct member *member = &world.members[rank];

	member->send = realloc(member->send, (n + 1) * sizeof(int32_t));
	member->recv = realloc(member->recv, (n + 1) * sizeof(int32_t));
	for (uint32_t i = 0; i < n; i++)
		member->send[i] = (int32_t)((rank + 1) * i);
	memset(member->recv, 0xee, (n + 1) * sizeof(int32_t));
	member->request = (struct fanin_request){ .send = (const uint8_t *)member->send,
						  .recv = (uint8_t *)member->recv,
						  .dtype = (uint8_t)dtype,
						  .op = (uint8_t)op };
	ck_assert_int_eq(protocol->post(member->engine, &member->request, n), FANIN_OK);
	rig_host_wake(world.network.hosts[rank], rig_now_ns(world.rig));
}

/* factor: of i in the result's element i. */
static void
allreduce(uint32_t n, unsigned int op, uint32_t factor)
{
	const uint16_t n_ranks = world.job.n_ranks;

	for (uint16_t rank = 0; rank < n_ranks; rank++)
		post(rank, n, FANIN_WIRE_I32, op);
	ck_assert(rig_run(world.rig, rig_now_ns(world.rig) + 60 * SECOND_NS, all_done, NULL));
	for (uint16_t rank = 0; rank < n_ranks; rank++) {
		const struct member *member = &world.members[rank];
		uint32_t right = 0;

		ck_assert_msg(member->request.status == FANIN_OK, "%s",
			      protocol->error(member->engine)->text);
		while (right < n && member->recv[right] == (int32_t)(factor * right))
			right++;
		ck_assert_uint_eq(right, n);
		/* And nothing behind it. */
		ck_assert_int_eq(member->recv[n], (int32_t)0xeeeeeeee);
	}
}

static const uint16_t sizes[] = { 1, 3, 8 };

START_TEST(sums_are_exact_on_one_switch_and_on_several)
{
	const uint32_t n = sizes[_i];

	open_world(NULL, 1, sizes[_i], false);
	for (uint32_t length = 1; length < 20000; length = length * 5 + 3)
		allreduce(length, FANIN_WIRE_SUM, n * (n + 1) / 2);
	allreduce(1000, FANIN_WIRE_MAX, n);
	/* Whole numbers, so the division leaves nothing. */
	allreduce(n % 2 == 1 ? 1000 : 1, FANIN_WIRE_AVG, (n + 1) / 2);
	/* A barrier. */
	allreduce(0, FANIN_WIRE_SUM, 0);
	/*
	 * What is on its way when the last rank goes on comes, too; nothing was lost, and nothing
	 * was repeated.
	 */
	rig_run(world.rig, rig_now_ns(world.rig) + SECOND_NS, NULL, NULL);
	ck_assert_uint_gt(count(ACKED_ACKNOWLEDGED), 0);
	ck_assert_uint_eq(count(ACKED_REPEATED), 0);
	ck_assert_uint_eq(count(ACKED_NO_PACKET), 0);
	close_world();
}
END_TEST

START_TEST(sums_are_exact_whatever_is_lost)
{
	const struct pipeline_faults faults = { .drop = 0.1, .duplicate = 0.05, .reorder = 0.05 };
	struct fanin_report report = { 0 };

	open_world(&faults, (uint64_t)_i, _i % 2 == 0 ? 8 : 3, false);
	for (unsigned int i = 0; i < 20; i++)
		allreduce(1 + i * 97, FANIN_WIRE_SUM, _i % 2 == 0 ? 36 : 6);
	ck_assert_uint_gt(count(ACKED_REPEATED), 0);
	ck_assert_uint_gt(count(ACKED_ACKNOWLEDGED), 0);
	protocol->report(world.members[0].engine, &report);
	ck_assert_uint_gt(report.retransmits, 0);
	ck_assert_uint_gt(report.duplicates, 0);
	ck_assert_uint_gt(report.blocks, 20);
	close_world();
}
END_TEST

START_TEST(a_rank_that_is_missing_is_named)
{
	open_world(NULL, 1, 8, false);
	allreduce(10, FANIN_WIRE_SUM, 36);
	world.members[2].away = true;
	for (uint16_t rank = 0; rank < 8; rank++) {
		if (rank != 2)
			post(rank, 10, FANIN_WIRE_I32, FANIN_WIRE_SUM);
	}
	ck_assert(rig_run(world.rig, rig_now_ns(world.rig) + 10 * SECOND_NS, all_done, NULL));
	for (uint16_t rank = 0; rank < 8; rank++) {
		const struct fanin_error *error = protocol->error(world.members[rank].engine);
		struct fanin_ranks expected, missing;

		if (rank == 2)
			continue;
		ck_assert_int_eq(world.members[rank].request.status, FANIN_ERR_TIMEOUT);
		/*
		 * Ranks 0 to 3 are behind the same leaf as the one that is missing; of the others
		 * the spine knows the leaf.
		 */
		ck_assert_str_eq(
			error->text,
			rank < 4
				? "no result of block 1 for 5.0 s: the switch waits for rank 2"
				: "no result of block 1 for 5.0 s: the switch waits for ranks 0, 1, 2, 3");
		expected = fanin_ranks_of_word(rank < 4 ? 1u << 2 : 0xfu);
		protocol->missing(world.members[rank].engine, &missing);
		ck_assert(fanin_ranks_equal(&error->missing, &expected));
		ck_assert(fanin_ranks_equal(&missing, &expected));
	}
	close_world();
}
END_TEST

/* What the handler has no kernel for. */
static const struct {
	bool wide;
	unsigned int dtype, op;
	const char *text;
} refused[] = {
	{ true, FANIN_WIRE_F16, FANIN_WIRE_SUM,
	  "the switch refused block 0: this job has no kernel for this operator on this data type" },
	{ false, FANIN_WIRE_I32, FANIN_WIRE_COPY,
	  "the switch refused block 0: this job has no kernel for this operator on this data type" },
	{ false, FANIN_WIRE_F32, FANIN_WIRE_BXOR,
	  "the switch refused block 0: this job has no kernel for this operator on this data type" },
};

START_TEST(what_it_cannot_reduce_is_refused)
{
	open_world(NULL, 1, 1, refused[_i].wide);
	post(0, 10, refused[_i].dtype, refused[_i].op);
	ck_assert(rig_run(world.rig, rig_now_ns(world.rig) + SECOND_NS, all_done, NULL));
	ck_assert_int_eq(world.members[0].request.status, FANIN_ERR_REFUSED);
	ck_assert_str_eq(protocol->error(world.members[0].engine)->text, refused[_i].text);
	ck_assert_int_eq(protocol->post(world.members[0].engine, &world.members[0].request, 1),
			 FANIN_ERR_REFUSED);
	close_world();
}
END_TEST

/* ------------------------------------------------------------------ packet by packet */

#define REPEAT_NS 250000u

static struct ring_switch sw;
static struct job *job;
static uint64_t clock_ns;
static uint32_t epoch;
static uint8_t frame[4096] __attribute__((aligned(8)));

static uint64_t
clock_read(void *user)
{
	return *(uint64_t *)user;
}

static void
setup(void)
{
	struct job_spec spec = { .key = RING_SWITCH_KEY,
				 .handler = "acked",
				 .n_members = 3,
				 .slots = 2,
				 .n_parameters = 1,
				 .parameters = { { "repeat_us", REPEAT_NS / 1000 } } };
	char error[PIPELINE_ERROR_LEN] = "";
	const char *code;

	acked_register();
	ring_switch_eal();
	ring_switch_open(&sw, 4, 1, NULL);
	clock_ns = UINT64_C(1000000000000);
	sw.pipeline->clock = clock_read;
	sw.pipeline->clock_user = &clock_ns;
	for (uint16_t i = 0; i < 3; i++) {
		spec.members[i].port = i;
		spec.members[i].ip_be = host_ip_be(i);
	}
	ck_assert_msg(job_create(sw.pipeline, &spec, &job, &code, error) == 0, "%s", error);
	epoch = host_join_all(&sw, job, 3, 1);
}

static void
teardown(void)
{
	ring_switch_close(&sw);
}

static void
contribute(unsigned int host, uint32_t block, bool again)
{
	host_contribute(&sw, job, host, epoch, block, again);
}

static void
send_ack(unsigned int host, uint32_t block)
{
	struct fanin_headers *headers = (struct fanin_headers *)frame;
	const size_t len = host_packet(&sw, host, (enum fanin_type)ACKED_TYPE_ACK, job->params.id,
				       epoch, NULL, 0, headers);

	headers->fanin.key = job->params.keys.up;
	headers->fanin.block = block;
	ring_switch_put(&sw, (uint16_t)host, frame, len);
}

/*
 * Takes a block's result, which is the next frame, from each of these hosts' ports, and nothing
 * from the others'. hosts: bitmap.
 */
static void
expect_results(unsigned int hosts, uint32_t block)
{
	for (uint16_t host = 0; host < 3; host++) {
		const size_t len = ring_switch_take(&sw, host, frame);

		if ((hosts >> host & 1) != 0)
			host_result_check(job, 3, block, frame, len);
		else
			ck_assert_uint_eq(len, 0);
	}
}

static void
round_after(uint64_t ns)
{
	clock_ns += ns;
	ring_switch_rounds(&sw, 1);
}

/* Whatever has left, refusals, too. */
static void
drain(void)
{
	for (uint16_t host = 0; host < 3; host++) {
		while (ring_switch_take(&sw, host, frame) != 0)
			;
	}
}

static void
make_block(uint32_t block)
{
	for (unsigned int host = 0; host < 3; host++)
		contribute(host, block, false);
	expect_results(7, block);
}

START_TEST(a_result_goes_again_to_those_who_have_not_acknowledged_it)
{
	struct fanin_handler_stats stats;

	make_block(0);
	send_ack(1, 0);
	round_after(REPEAT_NS - 1);
	expect_results(0, 0);
	round_after(1);
	expect_results(5, 0);
	/* Of another block, or twice, it says nothing. */
	send_ack(0, 1);
	send_ack(1, 0);
	round_after(REPEAT_NS);
	expect_results(5, 0);
	send_ack(0, 0);
	round_after(REPEAT_NS);
	expect_results(4, 0);
	send_ack(2, 0);
	round_after(REPEAT_NS);
	expect_results(0, 0);
	round_after(100 * REPEAT_NS);
	expect_results(0, 0);
	job_stats(job, &stats);
	ck_assert_uint_eq(stats.own[ACKED_ACKNOWLEDGED], 3);
	ck_assert_uint_eq(stats.own[ACKED_REPEATED], 5);
	ck_assert_uint_eq(stats.repeats, 5);
	/* All have it: who says that it has not is late. */
	contribute(0, 0, true);
	expect_results(0, 0);
}
END_TEST

START_TEST(a_result_that_all_have_holds_no_buffer)
{
	unsigned int in_use;

	/* The first block fills the worker's stock. */
	for (uint32_t block = 0; block < 2; block++) {
		make_block(block);
		in_use = rte_mempool_in_use_count(sw.pool);
		for (unsigned int host = 0; host < 3; host++) {
			ck_assert_uint_eq(rte_mempool_in_use_count(sw.pool), in_use);
			send_ack(host, block);
		}
		ck_assert_uint_eq(rte_mempool_in_use_count(sw.pool), in_use - 1);
	}
}
END_TEST

START_TEST(who_is_silent_is_not_sent_results_for_ever)
{
	make_block(0);
	send_ack(0, 0);
	send_ack(1, 0);
	for (unsigned int i = 0; i < MAX_REPEATS; i++) {
		round_after(REPEAT_NS);
		expect_results(4, 0);
	}
	for (unsigned int i = 0; i < 10; i++) {
		round_after(REPEAT_NS);
		expect_results(0, 0);
	}
	/* It was only slow. */
	contribute(2, 0, true);
	expect_results(4, 0);
}
END_TEST

START_TEST(a_block_has_its_turn_and_no_other)
{
	struct fanin_headers *headers = (struct fanin_headers *)frame;

	make_block(0);
	make_block(1);
	/* Of slot 0: block 2 is next. */
	contribute(0, 0, false);
	contribute(0, 4, false);
	ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_BLOCK_WINDOW), 1);
	drain();
	make_block(2);
	contribute(0, 0, true);
	ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_BLOCK_STALE), 1);
	drain();
	/* A timer of a block that is over says nothing of the one that has its slot. */
	contribute(0, 3, false);
	round_after(REPEAT_NS);
	expect_results(7, 2);
	/* Other data than the first one's, or none. */
	host_contribution(&sw, job, 1, epoch, 3, false, frame);
	headers->fanin.op = FANIN_WIRE_MAX;
	ring_switch_put(&sw, 1, frame, FANIN_PAYLOAD_OFFSET + fanin_wire_payload_len(headers));
	ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_MISMATCH), 1);
	host_contribution(&sw, job, 1, epoch, 3, false, frame);
	headers->fanin.flags = FANIN_FLAG_EMPTY;
	fanin_wire_set_payload_len(headers, 0);
	ring_switch_put(&sw, 1, frame, FANIN_PAYLOAD_OFFSET);
	ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_FLAGS), 1);
}
END_TEST

START_TEST(who_repeats_a_contribution_is_told_whom_the_block_waits_for)
{
	const struct fanin_headers *headers = (const struct fanin_headers *)frame;
	uint64_t missing;
	size_t len;

	contribute(0, 0, false);
	/* The network's duplicates get no answer. */
	contribute(0, 0, false);
	ck_assert_uint_eq(ring_switch_take(&sw, 0, frame), 0);
	contribute(2, 0, false);
	contribute(0, 0, true);
	len = ring_switch_take(&sw, 0, frame);
	ck_assert_uint_eq(len, FANIN_PAYLOAD_OFFSET + sizeof(missing));
	memcpy(&missing, headers + 1, sizeof(missing));
	ck_assert_uint_eq(fanin_wire_validate(frame, len), FANIN_REASON_NONE);
	ck_assert_uint_eq(headers->fanin.type, ACKED_TYPE_WAITING);
	ck_assert_uint_eq(headers->fanin.block, 0);
	ck_assert_uint_eq(headers->fanin.key, job->params.keys.down);
	ck_assert_uint_eq(missing, 1 << 1);
	contribute(1, 0, false);
	expect_results(7, 0);
}
END_TEST

/* A parameter out of its bounds, by the command that makes a job. */
START_TEST(its_parameter_has_bounds)
{
	struct job_spec spec = { .key = RING_SWITCH_KEY,
				 .handler = "acked",
				 .n_members = 2,
				 .n_parameters = 1,
				 .parameters = { { "repeat_us", 9 } } };
	char error[PIPELINE_ERROR_LEN];
	const char *code;
	struct job *other;

	ck_assert_int_eq(job_create(sw.pipeline, &spec, &other, &code, error), -EINVAL);
	ck_assert_str_eq(
		error,
		"parameter repeat_us: found 9, expected 10 to 1000000 (us until a result goes again to those who have not "
		"acknowledged it)");
}
END_TEST

Suite *
suite_acked(void)
{
	Suite *suite = suite_create("acked");
	TCase *network = tcase_create("network");
	TCase *packets = tcase_create("packets");

	tcase_set_timeout(network, 300);
	tcase_add_test(network, both_sides_are_found_by_their_name);
	tcase_add_loop_test(network, sums_are_exact_on_one_switch_and_on_several, 0,
			    (int)(sizeof(sizes) / sizeof(sizes[0])));
	tcase_add_loop_test(network, sums_are_exact_whatever_is_lost, 0, 10);
	tcase_add_test(network, a_rank_that_is_missing_is_named);
	tcase_add_loop_test(network, what_it_cannot_reduce_is_refused, 0,
			    (int)(sizeof(refused) / sizeof(refused[0])));
	suite_add_tcase(suite, network);

	tcase_add_checked_fixture(packets, setup, teardown);
	tcase_add_test(packets, a_result_goes_again_to_those_who_have_not_acknowledged_it);
	tcase_add_test(packets, a_result_that_all_have_holds_no_buffer);
	tcase_add_test(packets, who_is_silent_is_not_sent_results_for_ever);
	tcase_add_test(packets, a_block_has_its_turn_and_no_other);
	tcase_add_test(packets, who_repeats_a_contribution_is_told_whom_the_block_waits_for);
	tcase_add_test(packets, its_parameter_has_bounds);
	suite_add_tcase(suite, packets);
	return suite;
}
