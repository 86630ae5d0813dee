/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Late or gone in a tree of switches. The one under test is in the middle: hosts 0 and 1 are its children, and as number 2 a
 * switch with the ranks 2 and 3 behind it; behind its parent are the ranks 4 and 5. The test plays all of them.
 */
#include <arpa/inet.h>
#include <string.h>

#include "pipeline/probe.h"
#include "tests/unit/ring_switch.h"
#include "tests/unit/suites.h"

#define CHILDREN 3
#define SWITCH 2u /* the child that is one */
#define RANKS 6
#define PARENT_PORT 3
#define PARENT_EPOCH 77
#define BELOW UINT64_C(0xc)

static const uint8_t parent_mac[6] = { 0x02, 0, 0, 0, 2, 9 };

static struct ring_switch sw;
static struct job *job;
static uint32_t epoch;
static uint64_t clock_ns;
static uint8_t buffer[4096] __attribute__((aligned(8)));
static struct fanin_headers *const got = (struct fanin_headers *)buffer;

static void
take_all(void)
{
	for (uint16_t p = 0; p < sw.n_ports; p++) {
		while (ring_switch_take(&sw, p, buffer) != 0)
			;
	}
}

static void
make_job(void)
{
	struct job_spec spec = {
		.key = RING_SWITCH_KEY,
		.handler = "single",
		.slots = 8,
		.n_ranks = RANKS,
		.n_members = CHILDREN,
		.has_parent = true,
		.parent = { .port = PARENT_PORT, .ip_be = host_ip_be(PARENT_PORT) },
	};
	char error[PIPELINE_ERROR_LEN];
	const char *code;

	for (uint16_t i = 0; i < CHILDREN; i++) {
		spec.members[i].port = i;
		spec.members[i].ip_be = host_ip_be(i);
		spec.members[i].ranks = i == SWITCH ? BELOW : UINT64_C(1) << i;
	}
	memcpy(spec.parent.mac, parent_mac, sizeof(parent_mac));
	ck_assert_msg(job_create(sw.pipeline, &spec, &job, &code, error) == 0, "%s", error);
}

/* A child joins: a host from a port of its own, a switch from Fanin's. */
static void
join(unsigned int child, uint64_t nonce)
{
	const struct fanin_join_ack_body *ack = (const struct fanin_join_ack_body *)(got + 1);
	struct fanin_join_body body = { .nonce = nonce, .size = RANKS, .mtu = 1500 };
	uint8_t frame[4096];

	for (int i = 0; i < 2; i++) {
		size_t len = host_packet(&sw, child, FANIN_TYPE_JOIN, job->params.id, 0, &body,
					 sizeof(body), (struct fanin_headers *)frame);

		if (child == SWITCH)
			((struct fanin_headers *)frame)->udp.src_be = sw.pipeline->udp_port_be;
		ring_switch_put(&sw, (uint16_t)child, frame, len);
		ck_assert_uint_gt(ring_switch_take(&sw, (uint16_t)child, buffer), 0);
		ck_assert_uint_eq(got->fanin.type, FANIN_TYPE_JOIN_ACK);
		body.cookie = ack->cookie;
	}
}

/* A Fanin packet of the parent. */
static void
put_from_parent(enum fanin_type type, uint32_t its_epoch, uint32_t block, const void *body,
		uint32_t body_len)
{
	uint8_t frame[4096];
	size_t len = host_packet(&sw, PARENT_PORT, type, job->params.id, its_epoch, body, body_len,
				 (struct fanin_headers *)frame);

	memcpy(((struct fanin_headers *)frame)->eth.src, parent_mac, sizeof(parent_mac));
	((struct fanin_headers *)frame)->fanin.block = block;
	ring_switch_put(&sw, PARENT_PORT, frame, len);
}

static void
start_run(uint64_t nonce)
{
	struct fanin_join_ack_body ack = { .state = FANIN_JOIN_ACTIVE, .size = RANKS, .window = 4 };

	for (unsigned int i = 0; i < CHILDREN; i++)
		join(i, nonce + i);
	ck_assert_uint_gt(ring_switch_take(&sw, PARENT_PORT, buffer), 0);
	ck_assert_uint_eq(got->fanin.type, FANIN_TYPE_JOIN);
	memcpy(&ack.nonce, got + 1, sizeof(ack.nonce));
	ack.payload_bytes = job->params.payload_bytes;
	put_from_parent(FANIN_TYPE_JOIN_ACK, PARENT_EPOCH, 0, &ack, sizeof(ack));
	epoch = job->epoch;
	ck_assert_uint_ne(epoch, 0);
	take_all();
}

static void
open_tree(void)
{
	ring_switch_eal();
	ring_switch_open(&sw, 4, 1, NULL);
	make_job();
	start_run(7);
	/* Far ahead, so that nothing is due in the rounds that the test needs to put frames in. */
	clock_ns = pipeline_now_ns() + UINT64_C(3600000000000);
}

static void
tick(void)
{
	struct worker *worker = sw.pipeline->workers[0];

	clock_ns += PROBE_INTERVAL_NS;
	worker->now_ns = clock_ns;
	if (probes_are_due(sw.pipeline, clock_ns))
		probe_due(worker);
	worker_flush(worker);
}

/* Frames that a port has sent, all of which are taken; the first is left in `got`. */
static unsigned int
count_sent(uint16_t port)
{
	uint8_t rest[4096];
	unsigned int n = ring_switch_take(&sw, port, buffer) != 0;

	while (n != 0 && ring_switch_take(&sw, port, rest) != 0)
		n++;
	return n;
}

/* What an overdue query of host 0 about block 0 is answered, at the time of the test's clock. */
static struct fanin_answer_body
answer(void)
{
	struct worker *worker = sw.pipeline->workers[0];
	struct rte_mbuf *mbuf = rte_pktmbuf_alloc(sw.pool);
	struct fanin_answer_body body;
	uint8_t frame[4096];

	host_packet(&sw, 0, FANIN_TYPE_QUERY, job->params.id, epoch, NULL, 0,
		    (struct fanin_headers *)frame);
	((struct fanin_headers *)frame)->fanin.flags = FANIN_FLAG_RETRANSMIT;
	((struct fanin_headers *)frame)->fanin.number = 1;
	memcpy(rte_pktmbuf_append(mbuf, FANIN_PAYLOAD_OFFSET), frame, FANIN_PAYLOAD_OFFSET);
	mbuf->port = sw.pipeline->ports[0].ethdev;
	worker->now_ns = clock_ns;
	worker_aggregate(worker, &mbuf, 1);
	worker_flush(worker);
	ck_assert_uint_eq(ring_switch_take(&sw, 0, buffer), FANIN_PAYLOAD_OFFSET + sizeof(body));
	ck_assert_uint_eq(got->fanin.type, FANIN_TYPE_ANSWER);
	memcpy(&body, got + 1, sizeof(body));
	return body;
}

static void
expect_finding(uint64_t ended, uint64_t silent)
{
	const struct fanin_answer_body body = answer();

	ck_assert_uint_eq(body.ended, ended);
	ck_assert_uint_eq(body.silent, silent);
}

/* The child that is a switch says what it knows of the ranks behind it. */
static void
acknowledge(uint16_t port, uint32_t its_epoch, uint64_t ended, uint64_t silent)
{
	const struct fanin_probe_ack_body body = { .ended = ended, .silent = silent };
	uint8_t frame[4096];

	ring_switch_put(&sw, port, frame,
			host_packet(&sw, SWITCH, FANIN_TYPE_PROBE_ACK, job->params.id, its_epoch,
				    &body, sizeof(body), (struct fanin_headers *)frame));
}

/* What the parent's PROBE about a block is answered. */
static struct fanin_probe_ack_body
parent_probes(uint32_t its_epoch, uint32_t block)
{
	struct fanin_probe_ack_body body;

	put_from_parent(FANIN_TYPE_PROBE, its_epoch, block, NULL, 0);
	ck_assert_uint_eq(ring_switch_take(&sw, PARENT_PORT, buffer),
			  FANIN_PAYLOAD_OFFSET + sizeof(body));
	ck_assert_uint_eq(fanin_wire_validate(buffer, FANIN_PAYLOAD_OFFSET + sizeof(body)),
			  FANIN_REASON_NONE);
	ck_assert_uint_eq(got->fanin.type, FANIN_TYPE_PROBE_ACK);
	ck_assert_uint_eq(got->fanin.epoch, its_epoch);
	ck_assert_uint_eq(got->fanin.rank, 0);
	ck_assert_uint_eq(got->ip.dst_be, host_ip_be(PARENT_PORT));
	memcpy(&body, got + 1, sizeof(body));
	return body;
}

/* All but the switch have contributed. */
static void
wait_for_the_switch(void)
{
	host_contribute(&sw, job, 0, epoch, 0, false);
	host_contribute(&sw, job, 1, epoch, 0, false);
	expect_finding(0, 0);
}

START_TEST(a_switch_is_asked_for_what_is_behind_it)
{
	open_tree();
	wait_for_the_switch();
	tick();
	ck_assert_uint_eq(count_sent(SWITCH), 1);
	ck_assert_uint_eq(got->fanin.type, FANIN_TYPE_PROBE);
	ck_assert_uint_eq(got->fanin.epoch, epoch);
	ck_assert_uint_eq(got->fanin.key, job->params.keys.down);
	ck_assert_uint_eq(got->fanin.rank, 2);
	ck_assert_uint_eq(got->udp.dst_be, sw.pipeline->udp_port_be);

	acknowledge(SWITCH, epoch, 0x8, 0x4);
	expect_finding(0x8, 0x4);
	/* It is asked on: who is silent may come back, and who has ended be named late. */
	tick();
	ck_assert_uint_eq(count_sent(SWITCH), 1);
	acknowledge(SWITCH, epoch, 0x8, 0);
	expect_finding(0x8, 0);
	ring_switch_close(&sw);
}
END_TEST

START_TEST(a_switch_speaks_for_its_ranks_only)
{
	open_tree();
	wait_for_the_switch();
	tick();
	acknowledge(SWITCH, epoch, 0x33, 0xf3);
	expect_finding(0, 0);
	ck_assert_uint_eq(job->ended, 0);
	ck_assert_uint_eq(job->silent, 0);
	/* Of another run, or by somebody else. */
	acknowledge(SWITCH, epoch + 1, BELOW, 0);
	acknowledge(1, epoch, BELOW, 0);
	expect_finding(0, 0);
	ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_EPOCH), 1);
	ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_PORT), 1);
	ring_switch_close(&sw);
}
END_TEST

START_TEST(behind_a_silent_switch_all_are_silent)
{
	open_tree();
	wait_for_the_switch();
	for (unsigned int i = 0; i < PROBE_PATIENCE; i++) {
		tick();
		expect_finding(0, 0);
	}
	tick();
	expect_finding(0, BELOW);
	/* That it can be reached by other means is of no use. */
	probe_heard(sw.pipeline->workers[0], SWITCH, host_ip_be(SWITCH));
	expect_finding(0, BELOW);
	acknowledge(SWITCH, epoch, 0, 0);
	expect_finding(0, 0);
	take_all();
	ring_switch_close(&sw);
}
END_TEST

START_TEST(a_parent_s_probe_is_answered_and_goes_on_to_the_missing)
{
	struct fanin_probe_ack_body body;

	open_tree();
	host_contribute(&sw, job, 0, epoch, 0, false);
	body = parent_probes(PARENT_EPOCH, 0);
	ck_assert_uint_eq(body.ended | body.silent, 0);
	take_all();
	for (unsigned int i = 0; i < PROBE_PATIENCE + 1; i++) {
		sw.pipeline->workers[0]->now_ns = clock_ns;
		probe_watch(sw.pipeline->workers[0], job, 0x6, 0);
		tick();
		ck_assert_uint_eq(count_sent(0), 0);
		ck_assert_uint_eq(count_sent(1), 3);
		ck_assert_uint_eq(count_sent(SWITCH), 1);
	}
	body = parent_probes(PARENT_EPOCH, 0);
	ck_assert_uint_eq(body.ended, 0);
	ck_assert_uint_eq(body.silent, 0x2 | BELOW);
	ring_switch_close(&sw);
}
END_TEST

START_TEST(children_are_probed_that_the_parent_s_block_misses)
{
	open_tree();
	for (unsigned int i = 0; i < CHILDREN; i++)
		host_contribute(&sw, job, i, epoch, 0, false);
	take_all();
	/* It has been sent up: none. */
	parent_probes(PARENT_EPOCH, 0);
	for (uint16_t i = 0; i < CHILDREN; i++)
		ck_assert_uint_eq(job->members[i].probe.until_ns, 0);
	/* Nothing of the next block has come: all of them. */
	parent_probes(PARENT_EPOCH, 1);
	for (uint16_t i = 0; i < CHILDREN; i++)
		ck_assert_uint_ne(job->members[i].probe.until_ns, 0);
	ring_switch_close(&sw);
}
END_TEST

START_TEST(a_run_that_is_over_here_has_ended_for_the_parent)
{
	uint8_t frame[4096];

	open_tree();
	/* It may be about to begin. */
	ck_assert_uint_eq(parent_probes(PARENT_EPOCH + 1, 0).ended, 0);
	for (unsigned int i = 0; i < CHILDREN; i++)
		ring_switch_put(&sw, (uint16_t)i, frame,
				host_packet(&sw, i, FANIN_TYPE_LEAVE, job->params.id, epoch, NULL,
					    0, (struct fanin_headers *)frame));
	take_all();
	ck_assert_uint_eq(parent_probes(PARENT_EPOCH, 0).ended, UINT64_MAX);
	ring_switch_close(&sw);
}
END_TEST

Suite *
suite_probe_levels(void)
{
	Suite *suite = suite_create("probe_levels");
	TCase *tree = tcase_create("a switch in the middle");

	tcase_add_test(tree, a_switch_is_asked_for_what_is_behind_it);
	tcase_add_test(tree, a_switch_speaks_for_its_ranks_only);
	tcase_add_test(tree, behind_a_silent_switch_all_are_silent);
	tcase_add_test(tree, a_parent_s_probe_is_answered_and_goes_on_to_the_missing);
	tcase_add_test(tree, children_are_probed_that_the_parent_s_block_misses);
	tcase_add_test(tree, a_run_that_is_over_here_has_ended_for_the_parent);
	suite_add_tcase(suite, tree);
	return suite;
}
