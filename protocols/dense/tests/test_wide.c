/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Jobs that accumulate in f32: sums and averages of f16 and bf16 through each handler are those of
 * f32 in the handler's order, rounded once, and whatever else happens to a contribution happens to
 * it as in any job.
 */
#include "protocols/dense/switch/state.h"
#include "tests/unit/operator_rig.h"
#include "tests/unit/suites.h"

/* Those that a wide job accumulates in f32. */
static const unsigned int wide_dtypes[] = { FANIN_WIRE_F16, FANIN_WIRE_BF16 };
static const unsigned int wide_ops[] = { FANIN_WIRE_SUM, FANIN_WIRE_AVG };

/* The mbuf of a wide job's result has room for f32 and is not written beyond that. */
static void
check_room(unsigned int isa, unsigned int dtype, unsigned int op)
{
	const uint8_t *payload = elements_of(rig.ctx.emissions[0].mbuf);

	for (unsigned int i = operands.count * 4u; i < FAKE_PAYLOAD_MAX; i++)
		ck_assert_msg(payload[i] == 0xa5,
			      "%s: %s of %u %s wrote byte %u of a payload of at most %u",
			      fanin_isa_name((enum fanin_isa)isa), fanin_op_name(op),
			      operands.count, fanin_dtype_name(dtype), i, rig.job.payload_bytes);
}

/* Elements, around those of vectors. */
static const uint16_t lengths[] = { 1, 7, 8, 15, 16, 33, COUNT };

#define N_LENGTHS (sizeof(lengths) / sizeof(lengths[0]))

START_TEST(halves_are_accumulated_in_f32)
{
	uint64_t expected[COUNT];

	for (unsigned int isa = 0; isa <= (unsigned int)fanin_isa_detect(); isa++) {
		rig_start(handlers[_i / N_SIZES], sizes[_i % N_SIZES]);
		rig.job.wide = true;
		rig.job.isa = (enum fanin_isa)isa;
		for (unsigned int n = 0; n < 4 * N_LENGTHS; n++) {
			unsigned int dtype = wide_dtypes[n % 2];
			unsigned int op = wide_ops[n / 2 % 2];

			operands.count = lengths[n / 4];
			rig.job.payload_bytes = operands.count * 4; /* no more than is needed */
			reduce(dtype, op, expected);
			check_result(dtype, op, rig.job.children, expected);
			check_room(isa, dtype, op);
			handler_rig_flush(&rig);
			operands.block += 2 * WINDOW;
		}
		handler_rig_stop(&rig);
	}
}
END_TEST

/* Numbers whose sum a half holds but not every partial sum, in whatever order. */
static const struct {
	unsigned int dtype;
	unsigned int op;
	uint16_t sent[3];
	uint16_t in_f32;
	uint16_t native;
} rounded[] = {
	{ FANIN_WIRE_F16, FANIN_WIRE_SUM, { 0x6800, 0x3c00, 0x3c00 }, 0x6801, 0x6800 },  /* 2048 + 1
											    + 1 */
	{ FANIN_WIRE_BF16, FANIN_WIRE_SUM, { 0x4380, 0x3f80, 0x3f80 }, 0x4381, 0x4380 }, /* 256 + 1
											    + 1 */
	{ FANIN_WIRE_F16, FANIN_WIRE_AVG, { 0x7bff, 0x7bff, 0x7bff }, 0x7bff, 0x7c00 },  /* 65504 */
	{ FANIN_WIRE_BF16, FANIN_WIRE_AVG, { 0x4380, 0x3f80, 0x3f80 }, 0x42ac, 0x42ab }, /* 258 / 3
											  */
};

START_TEST(f32_keeps_what_native_accumulation_loses)
{
	rig_start(handlers[_i % n_handlers], 3);
	rig.job.wide = _i < n_handlers;
	operands.count = 1;
	for (size_t i = 0; i < sizeof(rounded) / sizeof(rounded[0]); i++) {
		unsigned int dtype = rounded[i].dtype;
		unsigned int op = rounded[i].op;
		uint64_t expected = rig.job.wide ? rounded[i].in_f32 : rounded[i].native;

		for (uint16_t child = 0; child < 3; child++) {
			struct rte_mbuf *mbuf = contribution_make(child, dtype, op, 0);

			memcpy(elements_of(mbuf), &rounded[i].sent[child], 2);
			handler_rig_offer(&rig, mbuf);
		}
		check_result(dtype, op, rig.job.children, &expected);
		handler_rig_flush(&rig);
		operands.block += 2 * WINDOW;
	}
	handler_rig_stop(&rig);
}
END_TEST

START_TEST(a_sum_in_f32_takes_half_a_packet)
{
	struct answer answer;
	uint64_t expected[COUNT];

	rig_start(handlers[_i], 2);
	rig.job.wide = true;
	rig.job.payload_bytes = (COUNT - 1) * 4;
	for (unsigned int i = 0; i < 4; i++) {
		unsigned int dtype = wide_dtypes[i % 2];
		unsigned int op = wide_ops[i / 2];

		operands.count = COUNT;
		answer = contribute(0, dtype, op, 0);
		ck_assert_int_eq(answer.verdict, FANIN_VERDICT_DROP);
		ck_assert_int_eq(answer.reason, FANIN_REASON_PAYLOAD);
		/* Other operators may use all of it. */
		reduce(dtype, FANIN_WIRE_MAX, expected);
		check_result(dtype, FANIN_WIRE_MAX, rig.job.children, expected);
		handler_rig_flush(&rig);
		operands.block += 2 * WINDOW;
		operands.count = COUNT - 1;
		reduce(dtype, op, expected);
		check_result(dtype, op, rig.job.children, expected);
		handler_rig_flush(&rig);
		operands.block += 2 * WINDOW;
	}
	handler_rig_stop(&rig);
}
END_TEST

START_TEST(an_f32_sum_takes_duplicates_and_repeats_as_any_other)
{
	const uint16_t again = FANIN_FLAG_RETRANSMIT;
	uint64_t sent[COUNT], expected[COUNT];

	rig_start(handlers[_i], 3);
	rig.job.wide = true;
	contribute(1, FANIN_WIRE_F16, FANIN_WIRE_AVG, 0);
	memcpy(sent, operands.sent[1], sizeof(sent));
	ck_assert_int_eq(contribute(1, FANIN_WIRE_F16, FANIN_WIRE_AVG, 0).verdict,
			 FANIN_VERDICT_FREE);
	ck_assert_uint_eq(rig.ctx.n_emissions, 0);
	contribute(1, FANIN_WIRE_F16, FANIN_WIRE_AVG, again);
	ck_assert_uint_eq(rig.ctx.n_emissions, 1);
	ck_assert_int_eq(rig.ctx.emissions[0].kind, FANIN_EMIT_REPLY);
	handler_rig_flush(&rig);
	memcpy(operands.sent[1], sent, sizeof(sent));
	contribute(0, FANIN_WIRE_F16, FANIN_WIRE_AVG, 0);
	contribute(2, FANIN_WIRE_F16, FANIN_WIRE_AVG, again);
	for (unsigned int i = 0; i < COUNT; i++)
		expected[i] = reference(FANIN_WIRE_F16, FANIN_WIRE_AVG, i);
	check_result(FANIN_WIRE_F16, FANIN_WIRE_AVG, rig.job.children, expected);
	handler_rig_flush(&rig);
	for (uint16_t child = 0; child < 3; child++) {
		contribute(child, FANIN_WIRE_F16, FANIN_WIRE_AVG, again);
		check_result(FANIN_WIRE_F16, FANIN_WIRE_AVG, UINT64_C(1) << child, expected);
		handler_rig_flush(&rig);
	}
	handler_rig_stop(&rig);
}
END_TEST

START_TEST(a_packet_that_is_to_be_tried_again_is_unchanged)
{
	struct fanin_dense_state *state;
	struct fake_mbuf before;
	struct rte_mbuf *mbuf;
	uint64_t expected[COUNT];
	uint64_t word;

	rig_start(handlers[_i], 3);
	rig.job.wide = true;
	rig.job.shared = true;
	contribute(0, FANIN_WIRE_BF16, FANIN_WIRE_SUM, 0);
	mbuf = contribution_make(1, FANIN_WIRE_BF16, FANIN_WIRE_SUM, 0);
	memcpy(&before, container_of(mbuf, struct fake_mbuf, mbuf), sizeof(before));

	/* Another worker is preparing the slot. */
	state = rig.slot;
	word = state->word;
	state->word = fanin_state_make(operands.block, FANIN_PHASE_SETUP, 1);
	ck_assert_int_eq(handler_rig_offer(&rig, mbuf).verdict, FANIN_VERDICT_RETRY);
	ck_assert_mem_eq(&before, container_of(mbuf, struct fake_mbuf, mbuf), sizeof(before));
	state->word = word;
	if (strcmp(rig.handler->name, "single") == 0) {
		/* Another worker combines. */
		state->word = word + 1;
		ck_assert_int_eq(handler_rig_offer(&rig, mbuf).verdict, FANIN_VERDICT_RETRY);
		state->word = word;
	} else if (strcmp(rig.handler->name, "multi") == 0) {
		/* There is no buffer that others don't use. */
		rig.job.buffers = 0;
		ck_assert_int_eq(handler_rig_offer(&rig, mbuf).verdict, FANIN_VERDICT_RETRY);
		rig.job.buffers = 3;
	}
	ck_assert_mem_eq(&before, container_of(mbuf, struct fake_mbuf, mbuf), sizeof(before));

	ck_assert_int_ne(handler_rig_offer(&rig, mbuf).verdict, FANIN_VERDICT_RETRY);
	contribute(2, FANIN_WIRE_BF16, FANIN_WIRE_SUM, 0);
	for (unsigned int i = 0; i < COUNT; i++)
		expected[i] = reference(FANIN_WIRE_BF16, FANIN_WIRE_SUM, i);
	check_result(FANIN_WIRE_BF16, FANIN_WIRE_SUM, rig.job.children, expected);
	handler_rig_stop(&rig);
}
END_TEST

Suite *
suite_wide(void)
{
	Suite *suite = suite_create("wide");
	TCase *wide = tcase_create("wide");

	n_handlers = handlers_here(handlers, RTE_DIM(handlers));
	tcase_add_loop_test(wide, halves_are_accumulated_in_f32, 0, N_SIZES * n_handlers);
	tcase_add_loop_test(wide, f32_keeps_what_native_accumulation_loses, 0, 2 * n_handlers);
	tcase_add_loop_test(wide, a_sum_in_f32_takes_half_a_packet, 0, n_handlers);
	tcase_add_loop_test(wide, an_f32_sum_takes_duplicates_and_repeats_as_any_other, 0,
			    n_handlers);
	tcase_add_loop_test(wide, a_packet_that_is_to_be_tried_again_is_unchanged, 0, n_handlers);
	suite_add_tcase(suite, wide);
	return suite;
}
