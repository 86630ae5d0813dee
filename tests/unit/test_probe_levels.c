/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Late or gone in a tree of switches. The switch under test is in the middle: hosts 0 and 1 are its
 * children and, as number 2, a switch with the ranks 2 and 3 behind it; behind its parent are the
 * ranks 4 and 5. The test acts as all of them.
 */
#include <arpa/inet.h>
#include <string.h>

#include "pipeline/probe.h"
#include "tests/unit/answer_words.h"
#include "tests/unit/probe_rig.h"
#include "tests/unit/suites.h"

#define CHILDREN 3
#define SWITCH 2u /* the child that is a switch */
#define RANKS 6
#define PARENT_PORT 3
#define PARENT_EPOCH 77
#define BELOW UINT64_C(0xc)

static const uint8_t parent_mac[6] = { 0x02, 0, 0, 0, 2, 9 };

static struct fanin_headers *const got = (struct fanin_headers *)probe_rig.buffer;

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
		.authenticate = probe_rig.sw.tagger != NULL,
		.parent = { .port = PARENT_PORT, .ip_be = host_ip_be(PARENT_PORT) },
	};
	char error[PIPELINE_ERROR_LEN];
	const char *code;

	for (uint16_t i = 0; i < CHILDREN; i++) {
		spec.members[i].port = i;
		spec.members[i].ip_be = host_ip_be(i);
		spec.members[i].ranks = fanin_ranks_of_word(i == SWITCH ? BELOW : UINT64_C(1) << i);
	}
	memcpy(spec.parent.mac, parent_mac, sizeof(parent_mac));
	ck_assert_msg(job_create(probe_rig.sw.pipeline, &spec, &probe_rig.job, &code, error) == 0,
		      "%s", error);
}

/* Makes a child join: a host from a port of its own, a switch from Fanin's port. */
static void
join(unsigned int child, uint64_t nonce)
{
	const struct fanin_join_ack_body *ack = (const struct fanin_join_ack_body *)(got + 1);
	struct fanin_join_body body = { .nonce = nonce, .size = RANKS, .mtu = 1500 };
	uint8_t frame[4096];

	for (int i = 0; i < 2; i++) {
		size_t len = host_packet(&probe_rig.sw, child, FANIN_TYPE_JOIN,
					 probe_rig.job->params.id, 0, &body, sizeof(body),
					 (struct fanin_headers *)frame);

		if (child == SWITCH)
			((struct fanin_headers *)frame)->udp.src_be =
				probe_rig.sw.pipeline->udp_port_be;
		ring_switch_put(&probe_rig.sw, (uint16_t)child, frame, len);
		ck_assert_uint_gt(ring_switch_take(&probe_rig.sw, (uint16_t)child,
						   probe_rig.buffer),
				  0);
		ck_assert_uint_eq(got->fanin.type, FANIN_TYPE_JOIN_ACK);
		body.cookie = ack->cookie;
	}
}

/* Puts in a Fanin packet of the parent. */
static void
put_from_parent(enum fanin_type type, uint32_t its_epoch, uint32_t block, const void *body,
		uint32_t body_len)
{
	uint8_t frame[4096];
	size_t len = host_packet(&probe_rig.sw, PARENT_PORT, type, probe_rig.job->params.id,
				 its_epoch, body, body_len, (struct fanin_headers *)frame);

	memcpy(((struct fanin_headers *)frame)->eth.src, parent_mac, sizeof(parent_mac));
	((struct fanin_headers *)frame)->fanin.block = block;
	ring_switch_put(&probe_rig.sw, PARENT_PORT, frame, len);
}

/* The children wait, and have not heard yet that the run has begun; late ones may never hear it. */
static void
parent_probes_before_the_run(struct join_ack_words ack)
{
	ack.body.state = FANIN_JOIN_WAITING;
	put_from_parent(FANIN_TYPE_JOIN_ACK, 0, 0, &ack, sizeof(ack));
	probe_rig_take_all();
	put_from_parent(FANIN_TYPE_PROBE, PARENT_EPOCH, 0, NULL, 0);
	ck_assert_uint_gt(ring_switch_take(&probe_rig.sw, PARENT_PORT, probe_rig.buffer), 0);
	ck_assert_uint_eq(got->fanin.type, FANIN_TYPE_PROBE_ACK);
	ck_assert_uint_eq(((const struct fanin_probe_ack_body *)(got + 1))->ended, 0);
}

static void
start_run(uint64_t nonce)
{
	struct join_ack_words ack = { .body = {
					      .state = FANIN_JOIN_ACTIVE,
					      .size = RANKS,
					      .window = 4,
					      .flags = probe_rig.sw.tagger != NULL
							       ? FANIN_JOB_TAGGED
							       : 0,
					      .instance = RING_SWITCH_PARENT_INSTANCE,
				      } };

	for (unsigned int i = 0; i < CHILDREN; i++)
		join(i, nonce + i);
	ck_assert_uint_gt(ring_switch_take(&probe_rig.sw, PARENT_PORT, probe_rig.buffer), 0);
	ck_assert_uint_eq(got->fanin.type, FANIN_TYPE_JOIN);
	memcpy(&ack.body.nonce, got + 1, sizeof(ack.body.nonce));
	ack.body.payload_bytes = probe_rig.job->params.payload_bytes;
	parent_probes_before_the_run(ack);
	put_from_parent(FANIN_TYPE_JOIN_ACK, PARENT_EPOCH, 0, &ack, sizeof(ack));
	probe_rig.epoch = probe_rig.job->epoch;
	ck_assert_uint_ne(probe_rig.epoch, 0);
	probe_rig_take_all();
}

static void
open_tree(bool authenticate)
{
	ring_switch_eal();
	ring_switch_open(&probe_rig.sw, 4, 1, NULL);
	if (authenticate)
		ring_switch_authenticate(&probe_rig.sw);
	make_job();
	start_run(7);
	probe_rig_begin();
}

/*
 * Returns the number of frames that a port has sent, all of which are taken; the first one is left
 * in `got`.
 */
static unsigned int
count_sent(uint16_t port)
{
	uint8_t rest[4096];
	unsigned int n = ring_switch_take(&probe_rig.sw, port, probe_rig.buffer) != 0;

	while (n != 0 && ring_switch_take(&probe_rig.sw, port, rest) != 0)
		n++;
	return n;
}

/* Makes the child that is a switch report on the ranks behind it. */
static void
acknowledge(uint16_t port, uint32_t its_epoch, uint64_t ended, uint64_t silent)
{
	const struct fanin_probe_ack_body body = { .ended = ended, .silent = silent };
	uint8_t frame[4096];

	ring_switch_put(&probe_rig.sw, port, frame,
			host_packet(&probe_rig.sw, SWITCH, FANIN_TYPE_PROBE_ACK,
				    probe_rig.job->params.id, its_epoch, &body, sizeof(body),
				    (struct fanin_headers *)frame));
}

/* Returns the answer to the parent's PROBE about a block. */
static struct fanin_probe_ack_body
parent_probes(uint32_t its_epoch, uint32_t block)
{
	struct fanin_probe_ack_body body;

	put_from_parent(FANIN_TYPE_PROBE, its_epoch, block, NULL, 0);
	ck_assert_uint_eq(ring_switch_take(&probe_rig.sw, PARENT_PORT, probe_rig.buffer),
			  FANIN_PAYLOAD_OFFSET + sizeof(body));
	ck_assert_uint_eq(fanin_wire_validate(probe_rig.buffer,
					      FANIN_PAYLOAD_OFFSET + sizeof(body)),
			  FANIN_REASON_NONE);
	ck_assert_uint_eq(got->fanin.type, FANIN_TYPE_PROBE_ACK);
	ck_assert_uint_eq(got->fanin.epoch, its_epoch);
	ck_assert_uint_eq(got->fanin.rank, 0);
	ck_assert_uint_eq(got->ip.dst_be, host_ip_be(PARENT_PORT));
	memcpy(&body, got + 1, sizeof(body));
	return body;
}

/* All children but the switch contribute. */
static void
wait_for_the_switch(void)
{
	host_contribute(&probe_rig.sw, probe_rig.job, 0, probe_rig.epoch, 0, false);
	host_contribute(&probe_rig.sw, probe_rig.job, 1, probe_rig.epoch, 0, false);
	probe_rig_expect_finding(0, 0);
}

START_TEST(a_switch_is_asked_for_what_is_behind_it)
{
	open_tree(_i != 0);
	wait_for_the_switch();
	probe_rig_tick();
	ck_assert_uint_eq(count_sent(SWITCH), 1);
	ck_assert_uint_eq(got->fanin.type, FANIN_TYPE_PROBE);
	ck_assert_uint_eq(got->fanin.epoch, probe_rig.epoch);
	ck_assert_uint_eq(got->fanin.key, probe_rig.job->params.keys.down);
	ck_assert_uint_eq(got->fanin.rank, 2);
	ck_assert_uint_eq(got->udp.dst_be, probe_rig.sw.pipeline->udp_port_be);

	acknowledge(SWITCH, probe_rig.epoch, 0x8, 0x4);
	probe_rig_expect_finding(0x8, 0x4);
	/*
	 * The switch keeps asking: a silent rank may come back, and an ended one may be reported
	 * late.
	 */
	probe_rig_tick();
	ck_assert_uint_eq(count_sent(SWITCH), 1);
	acknowledge(SWITCH, probe_rig.epoch, 0x8, 0);
	probe_rig_expect_finding(0x8, 0);
	ring_switch_close(&probe_rig.sw);
}
END_TEST

START_TEST(a_switch_speaks_for_its_ranks_only)
{
	open_tree(_i != 0);
	wait_for_the_switch();
	probe_rig_tick();
	acknowledge(SWITCH, probe_rig.epoch, 0x33, 0xf3);
	probe_rig_expect_finding(0, 0);
	ck_assert(fanin_ranks_is_empty(&probe_rig.job->ended));
	ck_assert(fanin_ranks_is_empty(&probe_rig.job->silent));
	/* Reports of another run, or from another child. */
	acknowledge(SWITCH, probe_rig.epoch + 1, BELOW, 0);
	acknowledge(1, probe_rig.epoch, BELOW, 0);
	probe_rig_expect_finding(0, 0);
	ck_assert_uint_eq(ring_switch_drops(&probe_rig.sw, FANIN_REASON_EPOCH), 1);
	ck_assert_uint_eq(ring_switch_drops(&probe_rig.sw, FANIN_REASON_PORT), 1);
	ring_switch_close(&probe_rig.sw);
}
END_TEST

START_TEST(behind_a_silent_switch_all_are_silent)
{
	open_tree(_i != 0);
	wait_for_the_switch();
	for (unsigned int i = 0; i < PROBE_PATIENCE; i++) {
		probe_rig_tick();
		probe_rig_expect_finding(0, 0);
	}
	probe_rig_tick();
	probe_rig_expect_finding(0, BELOW);
	/* Its answers to other probes don't count. */
	probe_heard(probe_rig.sw.pipeline->workers[0], SWITCH, host_ip_be(SWITCH));
	probe_rig_expect_finding(0, BELOW);
	acknowledge(SWITCH, probe_rig.epoch, 0, 0);
	probe_rig_expect_finding(0, 0);
	probe_rig_take_all();
	ring_switch_close(&probe_rig.sw);
}
END_TEST

START_TEST(a_parent_s_probe_is_answered_and_goes_on_to_the_missing)
{
	struct fanin_probe_ack_body body;

	open_tree(_i != 0);
	host_contribute(&probe_rig.sw, probe_rig.job, 0, probe_rig.epoch, 0, false);
	body = parent_probes(PARENT_EPOCH, 0);
	ck_assert_uint_eq(body.ended | body.silent, 0);
	probe_rig_take_all();
	for (unsigned int i = 0; i < PROBE_PATIENCE + 1; i++) {
		probe_rig.sw.pipeline->workers[0]->now_ns = probe_rig.clock_ns;
		probe_watch(probe_rig.sw.pipeline->workers[0], probe_rig.job, 0x6, 0);
		probe_rig_tick();
		ck_assert_uint_eq(count_sent(0), 0);
		ck_assert_uint_eq(count_sent(1), 3);
		ck_assert_uint_eq(count_sent(SWITCH), 1);
	}
	body = parent_probes(PARENT_EPOCH, 0);
	ck_assert_uint_eq(body.ended, 0);
	ck_assert_uint_eq(body.silent, 0x2 | BELOW);
	ring_switch_close(&probe_rig.sw);
}
END_TEST

START_TEST(children_are_probed_that_the_parent_s_block_misses)
{
	open_tree(_i != 0);
	for (unsigned int i = 0; i < CHILDREN; i++)
		host_contribute(&probe_rig.sw, probe_rig.job, i, probe_rig.epoch, 0, false);
	probe_rig_take_all();
	/* The block has been sent up: no child is probed. */
	parent_probes(PARENT_EPOCH, 0);
	for (uint16_t i = 0; i < CHILDREN; i++)
		ck_assert_uint_eq(probe_rig.job->members[i].probe.until_ns, 0);
	/* Nothing of the next block has come: all children are probed. */
	parent_probes(PARENT_EPOCH, 1);
	for (uint16_t i = 0; i < CHILDREN; i++)
		ck_assert_uint_ne(probe_rig.job->members[i].probe.until_ns, 0);
	ring_switch_close(&probe_rig.sw);
}
END_TEST

START_TEST(a_run_that_is_over_here_has_ended_for_the_parent)
{
	uint8_t frame[4096];

	open_tree(_i != 0);
	/* The run may be about to begin. */
	ck_assert_uint_eq(parent_probes(PARENT_EPOCH + 1, 0).ended, 0);
	for (unsigned int i = 0; i < CHILDREN; i++)
		ring_switch_put(&probe_rig.sw, (uint16_t)i, frame,
				host_packet(&probe_rig.sw, i, FANIN_TYPE_LEAVE,
					    probe_rig.job->params.id, probe_rig.epoch, NULL, 0,
					    (struct fanin_headers *)frame));
	probe_rig_take_all();
	ck_assert_uint_eq(parent_probes(PARENT_EPOCH, 0).ended, UINT64_MAX >> (64 - RANKS));
	ring_switch_close(&probe_rig.sw);
}
END_TEST

Suite *
suite_probe_levels(void)
{
	Suite *suite = suite_create("probe_levels");
	TCase *tree = tcase_create("a switch in the middle");

	tcase_add_loop_test(tree, a_switch_is_asked_for_what_is_behind_it, 0, 2);
	tcase_add_loop_test(tree, a_switch_speaks_for_its_ranks_only, 0, 2);
	tcase_add_loop_test(tree, behind_a_silent_switch_all_are_silent, 0, 2);
	tcase_add_loop_test(tree, a_parent_s_probe_is_answered_and_goes_on_to_the_missing, 0, 2);
	tcase_add_loop_test(tree, children_are_probed_that_the_parent_s_block_misses, 0, 2);
	tcase_add_loop_test(tree, a_run_that_is_over_here_has_ended_for_the_parent, 0, 2);
	suite_add_tcase(suite, tree);
	return suite;
}
