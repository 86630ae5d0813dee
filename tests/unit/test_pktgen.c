/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The traffic generator's hosts against the real pipeline: joining, windows, loss and duplication
 * in both directions, their errors when the switch is silent or wrong; and the generator's
 * histogram and search. Only the test moves the hosts' clock.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "tools/pktgen/pktgen.h"
#include "tests/unit/ring_switch.h"
#include "tests/unit/suites.h"

#define MAX_HOSTS 8
#define STEP_NS UINT64_C(100000)
#define TIMEOUT_NS UINT64_C(20000000)
#define STALL_NS UINT64_C(500000000)
#define FRAME_LEN 4096
#define MAX_ROUNDS 200000

static struct ring_switch sw;
static struct pktgen_host hosts[MAX_HOSTS];
static struct pktgen_member members[MAX_HOSTS];
static struct pktgen_stats stats;
static struct pktgen_job job;
static uint64_t now_ns;
/* Changes a result before a host sees it; NULL: no change. Returns false to lose it. */
static bool (*tamper)(uint16_t host, struct fanin_headers *headers);
/* Maximum of a host's contributions in flight. */
static uint16_t max_in_flight;

static void
open_with(const struct pipeline_faults *faults)
{
	ring_switch_eal();
	ring_switch_open(&sw, MAX_HOSTS, 1, faults);
	memset(&stats, 0, sizeof(stats));
	now_ns = 1;
	tamper = NULL;
	max_in_flight = 0;
}

static void
setup(void)
{
	open_with(NULL);
}

static void
setup_lossy(void)
{
	const struct pipeline_faults faults = {
		.drop = 0.05, .duplicate = 0.05, .reorder = 0.05, .seed = 3
	};

	open_with(&faults);
}

static void
teardown(void)
{
	for (uint16_t h = 0; h < job.size; h++)
		pktgen_member_free(&members[h]);
	pktgen_job_free(&job);
	ring_switch_close(&sw);
}

static void
make_hosts(const struct job *made, uint16_t n)
{
	job = (struct pktgen_job){
		.id = made->params.id,
		.keys = made->params.keys,
		.size = n,
		.dtype = FANIN_WIRE_I32,
		.op = FANIN_WIRE_SUM,
		.payload = 256,
		.stagger = true,
		.timeout_ns = TIMEOUT_NS,
		.stall_ns = STALL_NS,
		.stats = &stats,
	};
	for (uint16_t h = 0; h < n; h++) {
		hosts[h] = (struct pktgen_host){
			.port = h,
			.ip_be = host_ip_be(h),
			.switch_ip_be = sw.pipeline->ip_be,
			.mtu = 1500,
			.udp_port = FANIN_WIRE_DEFAULT_UDP_PORT,
		};
		host_mac(h, hosts[h].mac);
		pktgen_member_init(&members[h], &hosts[h], &job, h, 100 + h);
	}
}

static void
take(uint16_t h)
{
	uint8_t frame[FRAME_LEN] __attribute__((aligned(8)));
	struct fanin_headers *headers = (struct fanin_headers *)frame;
	size_t len;

	while ((len = ring_switch_take(&sw, h, frame)) != 0) {
		if (headers->eth.type_be == htons(0x0806)) {
			pktgen_host_arp(&hosts[h], frame, len);
			continue;
		}
		ck_assert_uint_eq(fanin_wire_validate(frame, len), FANIN_REASON_NONE);
		if (headers->fanin.type != FANIN_TYPE_RESULT)
			pktgen_member_receive(&members[h], headers);
		else if ((tamper == NULL || tamper(h, headers)) &&
			 !pktgen_member_result(&members[h], headers, now_ns))
			pktgen_job_unclaimed(&job, &members[h], headers);
	}
}

/* Runs a round: each host takes its frames and sends one frame if it has one. */
static void
step(void)
{
	uint8_t frame[FRAME_LEN];

	now_ns += STEP_NS;
	ring_switch_rounds(&sw, 1);
	for (uint16_t h = 0; h < job.size; h++) {
		size_t len = 0;

		take(h);
		pktgen_member_scan(&members[h], now_ns);
		if (pktgen_member_control_due(&members[h], now_ns))
			len = pktgen_member_control(&members[h], now_ns, frame);
		else if (pktgen_member_ready(&members[h]))
			len = pktgen_member_contribution(&members[h], now_ns, frame);
		if (len != 0)
			ring_switch_put(&sw, h, frame, len);
		max_in_flight = RTE_MAX(max_in_flight, members[h].in_flight);
	}
}

static bool
all_in(enum pktgen_state state)
{
	for (uint16_t h = 0; h < job.size; h++) {
		if (members[h].state != state)
			return false;
	}
	return true;
}

static bool
all_done(void)
{
	for (uint16_t h = 0; h < job.size; h++) {
		if (!pktgen_member_done(&members[h]))
			return false;
	}
	return true;
}

static void
join(void)
{
	for (int i = 0; i < MAX_ROUNDS && !all_in(PKTGEN_RUN); i++)
		step();
	ck_assert_msg(all_in(PKTGEN_RUN), "not all hosts have joined: %s", job.error);
	ck_assert_msg(pktgen_job_start(&job) == 0, "%s", job.error);
	for (uint16_t h = 0; h < job.size; h++)
		ck_assert_int_eq(pktgen_member_start(&members[h]), 0);
}

static void
run_to(uint64_t limit)
{
	pktgen_job_limit(&job, limit, now_ns);
	for (uint16_t h = 0; h < job.size; h++)
		pktgen_member_resume(&members[h]);
	for (int i = 0; i < MAX_ROUNDS && !all_done() && job.error[0] == '\0'; i++)
		step();
}

static void
leave(void)
{
	for (uint16_t h = 0; h < job.size; h++)
		pktgen_member_leave(&members[h]);
	for (int i = 0; i < MAX_ROUNDS && !all_in(PKTGEN_LEFT); i++)
		step();
	ck_assert(all_in(PKTGEN_LEFT));
}

static void
expect_nothing_refused(void)
{
	for (unsigned int reason = 1; reason < FANIN_REASON_COUNT; reason++)
		ck_assert_msg(ring_switch_drops(&sw, (enum fanin_reason)reason) == 0,
			      "the switch has counted %s", fanin_reason_name(reason));
}

START_TEST(hosts_join_sum_and_leave)
{
	const uint16_t n = (uint16_t)_i;
	struct job *made = ring_switch_job(&sw, n, 16);

	make_hosts(made, n);
	join();
	ck_assert_uint_eq(job.window, 8);
	ck_assert_uint_eq(job.epoch, made->epoch);
	run_to(1000);
	ck_assert_str_eq(job.error, "");
	ck_assert_uint_eq(stats.contributions, 1000u * n);
	ck_assert_uint_eq(stats.results, 1000u * n);
	ck_assert_uint_eq(stats.wrong + stats.lost + stats.retransmits + stats.duplicates, 0);
	ck_assert_uint_eq(stats.own.n, 1000u * n);
	ck_assert_uint_le(max_in_flight, 8);
	expect_nothing_refused();
	leave();
	ck_assert_uint_eq(made->joined, 0);
}
END_TEST

START_TEST(a_run_goes_on_where_the_last_one_ended)
{
	make_hosts(ring_switch_job(&sw, 3, 8), 3);
	job.max_window = 2;
	join();
	ck_assert_uint_eq(job.window, 2);
	for (uint64_t limit = 1; limit < 40; limit += 3) {
		run_to(limit);
		ck_assert_uint_eq(stats.results, 3 * limit);
		ck_assert_uint_eq(job.next_block, limit);
	}
	ck_assert_uint_le(max_in_flight, 2);
	ck_assert_uint_eq(stats.wrong + stats.retransmits, 0);
	expect_nothing_refused();
	leave();
}
END_TEST

START_TEST(loss_and_duplication_are_counted_and_repaired)
{
	make_hosts(ring_switch_job(&sw, 4, 32), 4);
	join();
	run_to(3000);
	ck_assert_str_eq(job.error, "");
	ck_assert_uint_eq(stats.contributions, 12000);
	ck_assert_uint_eq(stats.results, 12000);
	ck_assert_uint_eq(stats.wrong, 0);
	ck_assert_uint_gt(stats.lost, 0);
	ck_assert_uint_gt(stats.retransmits, 0);
	ck_assert_uint_gt(stats.duplicates, 0);
	/*
	 * A host that repeats a contribution gets an answer if another host's contribution was
	 * lost.
	 */
	ck_assert_uint_gt(stats.answers, 0);
	ck_assert_uint_eq(stats.foreign, 0);
	leave();
}
END_TEST

static uint32_t lost_block;

static bool
lose_one(uint16_t host, struct fanin_headers *headers)
{
	if (host != 1 || headers->fanin.block != 5 || lost_block != 0)
		return true;
	lost_block = headers->fanin.block;
	return false;
}

START_TEST(one_lost_result_is_one_loss)
{
	make_hosts(ring_switch_job(&sw, 3, 16), 3);
	join();
	lost_block = 0;
	tamper = lose_one;
	run_to(100);
	ck_assert_uint_eq(lost_block, 5);
	ck_assert_uint_eq(stats.lost, 1);
	ck_assert_uint_eq(stats.retransmits, 1);
	ck_assert_uint_eq(stats.results, 300);
	ck_assert_uint_ge(stats.block.max_ns, TIMEOUT_NS);
	leave();
}
END_TEST

START_TEST(packets_that_await_an_absent_generator_are_kept)
{
	make_hosts(ring_switch_job(&sw, 2, 16), 2);
	join();
	pktgen_job_limit(&job, 1, now_ns);
	for (uint16_t h = 0; h < job.size; h++)
		pktgen_member_resume(&members[h]);
	step();
	ck_assert_uint_eq(stats.contributions, 2);
	ck_assert_uint_eq(stats.results, 0);
	now_ns += 10 * TIMEOUT_NS;
	step();
	ck_assert_uint_eq(stats.results, 2);
	ck_assert_uint_eq(stats.lost + stats.retransmits, 0);
	leave();
}
END_TEST

static bool
flip_last_bit(uint16_t host, struct fanin_headers *headers)
{
	uint8_t *payload = (uint8_t *)(headers + 1);

	if (host == 2 && headers->fanin.block == 7)
		payload[255] ^= 0x80;
	return true;
}

static bool
miss_a_contribution(uint16_t host, struct fanin_headers *headers)
{
	if (host == 2 && headers->fanin.block == 7)
		headers->fanin.contributions--;
	return true;
}

/* Gives the result of the same slot's last block this block's number. */
static bool
mix_up_blocks(uint16_t host, struct fanin_headers *headers)
{
	static uint8_t kept[256];

	if (host == 2 && headers->fanin.block == 7)
		memcpy(kept, headers + 1, sizeof(kept));
	if (host == 2 && headers->fanin.block == 7 + 16)
		memcpy(headers + 1, kept, sizeof(kept));
	return true;
}

static bool
foretell(uint16_t host, struct fanin_headers *headers)
{
	if (host == 2 && headers->fanin.block == 99)
		headers->fanin.block = 3000;
	return true;
}

static bool (*const tampers[])(uint16_t, struct fanin_headers *) = {
	flip_last_bit,
	miss_a_contribution,
	mix_up_blocks,
	foretell,
};

START_TEST(a_result_that_is_not_right_is_wrong)
{
	make_hosts(ring_switch_job(&sw, 3, 16), 3);
	join();
	tamper = tampers[_i];
	run_to(100);
	ck_assert_uint_ge(stats.wrong, 1);
	leave();
}
END_TEST

static bool
lose_all(uint16_t host, struct fanin_headers *headers)
{
	(void)host;
	(void)headers;
	return false;
}

START_TEST(a_silent_switch_is_given_up)
{
	make_hosts(ring_switch_job(&sw, 2, 16), 2);
	join();
	tamper = lose_all;
	run_to(100);
	ck_assert_ptr_nonnull(strstr(job.error, "no result of job 1 for 0.5 s"));
	ck_assert_ptr_nonnull(strstr(job.error, "all 2 hosts have contributed"));
	ck_assert_uint_eq(stats.results, 0);
	leave();
}
END_TEST

START_TEST(a_wrong_key_is_told)
{
	make_hosts(ring_switch_job(&sw, 2, 16), 2);
	job.keys.up ^= 1;
	for (int i = 0; i < 100 && job.error[0] == '\0'; i++)
		step();
	ck_assert_str_eq(job.error,
			 "the switch refused host 0 of job 1: the job key is wrong (key_wrong)");
	leave();
}
END_TEST

/*
 * The switch's answers about a job that the generator can't load. _i: 0 and 1 a job with tags, by
 * REFUSED and by JOIN_ACK; 2 a job of multicast.
 */
START_TEST(a_job_that_is_not_to_be_loaded_is_told)
{
	struct {
		struct fanin_headers headers;
		struct fanin_join_ack_body body;
	} __attribute__((packed))
	ack = { .body = { .state = FANIN_JOIN_WAITING,
			  .size = 2,
			  .window = 16,
			  .payload_bytes = 1344,
			  .flags = _i == 2 ? FANIN_JOB_MULTICAST : FANIN_JOB_TAGGED } };
	struct fanin_headers *headers = &ack.headers;

	make_hosts(ring_switch_job(&sw, 2, 16), 2);
	members[0].state = PKTGEN_JOIN;
	ack.body.nonce = members[0].nonce;
	fanin_wire_encode_header(&headers->fanin,
				 _i == 0 ? FANIN_TYPE_REFUSED : FANIN_TYPE_JOIN_ACK, job.id, 0,
				 _i == 0 ? job.keys.up : job.keys.down);
	if (_i == 0)
		headers->fanin.count = FANIN_REASON_TAG;
	pktgen_member_receive(&members[0], headers);
	ck_assert_str_eq(
		job.error,
		_i == 2 ? "job 1 is a multicast job, which reduces nothing: expected one whose handler does"
			: "job 1 has authentication, which the generator has not: expected one created without --authenticate");
	leave();
}
END_TEST

START_TEST(a_payload_that_does_not_fit_is_told)
{
	make_hosts(ring_switch_job(&sw, 1, 16), 1);
	job.payload = 4096;
	for (int i = 0; i < 100 && !all_in(PKTGEN_RUN); i++)
		step();
	ck_assert_int_lt(pktgen_job_start(&job), 0);
	ck_assert_str_eq(job.error,
			 "found a payload of 4096 bytes, expected whole i32 up to 1408 (job 1)");
	leave();
}
END_TEST

START_TEST(percentiles_are_within_the_resolution)
{
	static struct histogram histogram;

	memset(&histogram, 0, sizeof(histogram));
	ck_assert_uint_eq(histogram_percentile(&histogram, 50), 0);
	for (uint64_t i = 1; i <= 100000; i++)
		histogram_add(&histogram, i * 17);
	for (unsigned int percent = 1; percent <= 100; percent++) {
		const double exact = 17000.0 * percent;
		const double found = (double)histogram_percentile(&histogram, percent);

		ck_assert_double_ge(found, exact - 17);
		ck_assert_double_le(found, exact * 33 / 32 + 1);
	}
	ck_assert_uint_eq(histogram_percentile(&histogram, 100), 1700000);
	histogram_add(&histogram, UINT64_MAX);
	ck_assert_uint_eq(histogram_percentile(&histogram, 100), UINT64_MAX);
}
END_TEST

static unsigned int tries;

static int
try_capacity(void *argument, double rate)
{
	tries++;
	return rate <= *(double *)argument;
}

static int
try_failing(void *argument, double rate)
{
	(void)argument;
	(void)rate;
	return -EIO;
}

START_TEST(the_search_ends_within_one_percent)
{
	double best = -1;
	double capacity;

	for (unsigned int thousands = 5; thousands < 1200; thousands += 23) {
		capacity = 1e3 * thousands;
		tries = 0;
		ck_assert_int_eq(pktgen_search(1e6, 0.01, try_capacity, &capacity, &best), 0);
		ck_assert_double_le(best, capacity);
		ck_assert_double_ge(best, (capacity < 1e6 ? capacity : 1e6) - 1e4);
		ck_assert_uint_le(tries, 8);
	}
	ck_assert_int_eq(pktgen_search(1e6, 0.01, try_failing, NULL, &best), -EIO);
}
END_TEST

Suite *
suite_pktgen(void)
{
	Suite *suite = suite_create("pktgen");
	TCase *tcase = tcase_create("hosts");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 300);
	tcase_add_loop_test(tcase, hosts_join_sum_and_leave, 1, MAX_HOSTS + 1);
	tcase_add_test(tcase, a_run_goes_on_where_the_last_one_ended);
	tcase_add_test(tcase, one_lost_result_is_one_loss);
	tcase_add_test(tcase, packets_that_await_an_absent_generator_are_kept);
	tcase_add_loop_test(tcase, a_result_that_is_not_right_is_wrong, 0, (int)RTE_DIM(tampers));
	tcase_add_test(tcase, a_silent_switch_is_given_up);
	tcase_add_test(tcase, a_wrong_key_is_told);
	tcase_add_loop_test(tcase, a_job_that_is_not_to_be_loaded_is_told, 0, 3);
	tcase_add_test(tcase, a_payload_that_does_not_fit_is_told);
	suite_add_tcase(suite, tcase);
	tcase = tcase_create("faults");
	tcase_add_checked_fixture(tcase, setup_lossy, teardown);
	tcase_set_timeout(tcase, 300);
	tcase_add_test(tcase, loss_and_duplication_are_counted_and_repaired);
	suite_add_tcase(suite, tcase);
	tcase = tcase_create("figures");
	tcase_add_test(tcase, percentiles_are_within_the_resolution);
	tcase_add_test(tcase, the_search_ends_within_one_percent);
	suite_add_tcase(suite, tcase);
	return suite;
}
