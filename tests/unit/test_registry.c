/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The registry of handlers: one that this file adds is there without a line elsewhere, and a job that names none gets exactly one.
 */
#include <string.h>

#include "tests/unit/ring_switch.h"
#include "tests/unit/suites.h"

static struct ring_switch sw;

static size_t
spare_slot_size(const struct fanin_job_params *job)
{
	(void)job;
	return 8;
}

static enum fanin_verdict
spare_contribution(struct fanin_handler_ctx *ctx, void *slot, uint32_t index,
		   struct fanin_packet *packet, enum fanin_reason *reason)
{
	(void)ctx;
	(void)slot;
	(void)index;
	(void)packet;
	*reason = FANIN_REASON_OPERATION;
	return FANIN_VERDICT_DROP;
}

static void
spare_release(struct fanin_handler_ctx *ctx, void *slot)
{
	(void)ctx;
	(void)slot;
}

/* It reduces nothing, and its slots hold much. */
static struct fanin_handler spare = {
	.name = "spare",
	.description = "refuses all contributions",
	.slot_mbufs = { .fixed = 1, .per_buffer = 2, .per_pair = 3 },
	.slot_size = spare_slot_size,
	.contribution = spare_contribution,
	.slot_release = spare_release,
};

FANIN_HANDLER_REGISTER(spare)

START_TEST(handlers_are_listed_once_each_by_name)
{
	const struct fanin_handler *last = NULL;
	bool found = false;

	for (const struct fanin_handler *handler = fanin_handler_first(); handler != NULL;
	     handler = handler->next) {
		ck_assert(last == NULL || strcmp(last->name, handler->name) < 0);
		ck_assert_ptr_eq(fanin_handler_find(handler->name), handler);
		ck_assert_uint_ge(fanin_slot_mbufs(handler, 1, 1), 1);
		found = found || handler == &spare;
		last = handler;
	}
	ck_assert(found);
	ck_assert_ptr_null(fanin_handler_find("spar"));
}
END_TEST

START_TEST(buffers_count_as_far_as_there_are_children)
{
	ck_assert_uint_eq(fanin_slot_mbufs(&spare, 1, 4), 1 + 2 + 3);
	ck_assert_uint_eq(fanin_slot_mbufs(&spare, 4, 4), 1 + 2 * 4 + 3 * 2);
	ck_assert_uint_eq(fanin_slot_mbufs(&spare, 5, 4), 1 + 2 * 4 + 3 * 3);
}
END_TEST

START_TEST(one_handler_suits_each_size_of_message)
{
	for (uint64_t bytes = 0; bytes < UINT64_C(1) << 40; bytes = bytes * 2 + 1) {
		const struct fanin_choice choice = {
			.message_bytes = bytes,
			.tree_up_to = 4095,
			.multi2_up_to = 65535,
			.multi4_up_to = 1048575,
		};
		uint32_t buffers = 3;
		unsigned int n = 0;

		for (const struct fanin_handler *handler = fanin_handler_first(); handler != NULL;
		     handler = handler->next)
			n += handler->suits != NULL && handler->suits(&choice, &buffers);
		ck_assert_uint_eq(n, 1);
		buffers = 3;
		ck_assert_str_eq(fanin_handler_choose(&choice, false, &buffers)->name,
				 bytes == 0         ? "single"
				 : bytes <= 4095    ? "tree"
				 : bytes <= 1048575 ? "multi"
						    : "single");
		ck_assert_uint_eq(buffers, bytes <= 4095 || bytes > 1048575 ? 3
					   : bytes <= 65535                 ? 2
									    : 4);
		ck_assert(fanin_handler_choose(&choice, true, &buffers)->in_order);
	}
}
END_TEST

START_TEST(a_job_has_the_handler_that_it_names)
{
	struct job_spec spec = { .key = 1, .handler = "spare", .n_members = 4, .reproducible = true };
	char error[PIPELINE_ERROR_LEN];
	const char *code;
	struct job *job;
	uint32_t epoch;

	ring_switch_eal();
	ring_switch_open(&sw, 4, 1, NULL);
	ck_assert_int_eq(job_create(sw.pipeline, &spec, &job, &code, error), -EINVAL);
	ck_assert_ptr_nonnull(strstr(error, "\"spare\""));
	ck_assert_ptr_nonnull(strstr(error, "expected \"tree\" or \"auto\""));
	job = ring_switch_job_of(&sw, "spare", 4, 0);
	ck_assert_ptr_eq(job->handler, &spare);
	/* 1 + 2 * 2 + 3 * 2 packets in each slot. */
	ck_assert_uint_le((job->slot_mask + 1) * 11, sw.pipeline->jobs->mbufs_per_job);
	epoch = host_join_all(&sw, job, 4, 1);
	host_contribute(&sw, job, 0, epoch, 0, false);
	ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_OPERATION), 1);
	ring_switch_close(&sw);
}
END_TEST

/* The parent of the job that the test plays: host 3's port. */
static void
put_from_parent(const struct job *job, enum fanin_type type, uint32_t epoch, const void *body,
		uint32_t body_len)
{
	uint8_t frame[4096];
	struct fanin_headers *headers = (struct fanin_headers *)frame;
	size_t len = host_packet(&sw, 3, type, job->params.id, epoch, body, body_len, headers);

	memcpy(headers->eth.src, job->parent_mac, sizeof(job->parent_mac));
	if (type == FANIN_TYPE_RESULT) {
		memcpy(headers->eth.dst, job->params.result_headers.eth.dst, sizeof(headers->eth.dst));
		headers->ip.dst_be = job->group_be;
		headers->ip.checksum_be = 0;
		headers->ip.checksum_be = fanin_ip_checksum(&headers->ip);
		headers->udp.src_be = sw.pipeline->udp_port_be;
		headers->fanin.rank = 0;
		headers->fanin.contributions = 6;
		headers->fanin.dtype = FANIN_WIRE_F32;
		headers->fanin.op = FANIN_WIRE_SUM;
		headers->fanin.count = (uint16_t)(body_len / sizeof(float));
	}
	ring_switch_put(&sw, 3, frame, len);
}

/* One that takes nothing but contributions, in which nothing ever waits, below another switch. */
START_TEST(a_handler_that_takes_contributions_only_may_have_a_parent)
{
	static const uint8_t parent_mac[6] = { 2, 0, 0, 0, 2, 9 };
	struct job_spec spec = { .key = RING_SWITCH_KEY,
				 .handler = "spare",
				 .slots = 2,
				 .n_ranks = 6,
				 .n_members = 3,
				 .has_parent = true,
				 .parent = { .port = 3, .ip_be = host_ip_be(3) } };
	struct fanin_join_body body = { .size = 6, .mtu = 1500 };
	struct fanin_join_ack_body ack = { .state = FANIN_JOIN_ACTIVE, .size = 6, .window = 1 };
	float elements[RING_SWITCH_COUNT] = { 0 };
	char error[PIPELINE_ERROR_LEN];
	uint8_t out[4096];
	struct fanin_headers *got = (struct fanin_headers *)out;
	const char *code;
	struct job *job;

	ring_switch_eal();
	ring_switch_open(&sw, 4, 1, NULL);
	for (uint16_t i = 0; i < 3; i++) {
		spec.members[i].port = i;
		spec.members[i].ip_be = host_ip_be(i);
		spec.members[i].ranks = UINT64_C(1) << i;
	}
	memcpy(spec.parent.mac, parent_mac, sizeof(parent_mac));
	ck_assert_msg(job_create(sw.pipeline, &spec, &job, &code, error) == 0, "%s", error);
	for (unsigned int i = 0; i < 3; i++) {
		body.nonce = 7 + i;
		body.cookie = 0;
		for (int again = 0; again < 2; again++) {
			uint8_t frame[4096];
			size_t len = host_packet(&sw, i, FANIN_TYPE_JOIN, job->params.id, 0, &body,
						 sizeof(body), (struct fanin_headers *)frame);

			ring_switch_put(&sw, (uint16_t)i, frame, len);
			ck_assert_uint_gt(ring_switch_take(&sw, (uint16_t)i, out), 0);
			body.cookie = ((const struct fanin_join_ack_body *)(got + 1))->cookie;
		}
	}
	ck_assert_uint_gt(ring_switch_take(&sw, 3, out), 0);
	ck_assert_uint_eq(got->fanin.type, FANIN_TYPE_JOIN);
	memcpy(&ack.nonce, got + 1, sizeof(ack.nonce));
	ack.payload_bytes = job->params.payload_bytes;
	put_from_parent(job, FANIN_TYPE_JOIN_ACK, 77, &ack, sizeof(ack));
	ck_assert_uint_ne(job->epoch, 0);
	while (ring_switch_take(&sw, 3, out) != 0)
		;

	if (_i == 0) {
		put_from_parent(job, FANIN_TYPE_PROBE, 77, NULL, 0);
		ck_assert_uint_gt(ring_switch_take(&sw, 3, out), 0);
		ck_assert_uint_eq(got->fanin.type, FANIN_TYPE_PROBE_ACK);
	} else {
		put_from_parent(job, FANIN_TYPE_RESULT, 77, elements, sizeof(elements));
		ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_TYPE), 1);
	}
	for (uint16_t p = 0; p < 4; p++) {
		while (ring_switch_take(&sw, p, out) != 0)
			;
	}
	ring_switch_close(&sw);
}
END_TEST

Suite *
suite_registry(void)
{
	Suite *suite = suite_create("registry");
	TCase *tcase = tcase_create("registry");

	tcase_add_test(tcase, handlers_are_listed_once_each_by_name);
	tcase_add_test(tcase, buffers_count_as_far_as_there_are_children);
	tcase_add_test(tcase, one_handler_suits_each_size_of_message);
	tcase_add_test(tcase, a_job_has_the_handler_that_it_names);
	tcase_add_loop_test(tcase, a_handler_that_takes_contributions_only_may_have_a_parent, 0, 2);
	suite_add_tcase(suite, tcase);
	return suite;
}
