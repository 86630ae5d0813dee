/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every data type and operator through each handler, in jobs of both kinds of accumulation: the
 * result is the naive reference's result of all contributions in the handler's order, and undefined
 * pairs are refused, as by the host library.
 */
#include "hostlib/src/comm/comm.h"
#include "fanin/fanin.h"
#include "tests/unit/operator_rig.h"
#include "tests/unit/suites.h"

START_TEST(every_defined_pair_is_reduced)
{
	uint64_t expected[COUNT];

	rig_start(handlers[_i / N_SIZES % n_handlers], sizes[_i % N_SIZES]);
	rig.job.wide = _i >= N_SIZES * n_handlers;
	for (unsigned int dtype = 1; dtype < FANIN_WIRE_DTYPE_COUNT; dtype++) {
		for (unsigned int op = 1; op < FANIN_WIRE_OP_COUNT; op++) {
			if (!fanin_operation_defined(dtype, op))
				continue;
			reduce(dtype, op, expected);
			check_result(dtype, op, rig.job.children, expected);
			handler_rig_flush(&rig);
			operands.block += 2 * WINDOW;
		}
	}
	handler_rig_stop(&rig);
}
END_TEST

START_TEST(every_other_pair_is_refused)
{
	struct answer answer;
	unsigned int refused = 0;

	rig_start(handlers[_i], 2);
	for (unsigned int dtype = 1; dtype < FANIN_WIRE_DTYPE_COUNT; dtype++) {
		for (unsigned int op = 1; op < FANIN_WIRE_OP_COUNT; op++) {
			if (fanin_operation_defined(dtype, op))
				continue;
			answer = contribute(0, dtype, op, 0);
			ck_assert_int_eq(answer.verdict, FANIN_VERDICT_DROP);
			ck_assert_int_eq(answer.reason, FANIN_REASON_OPERATION);
			refused++;
		}
	}
	ck_assert_uint_eq(refused, 4 * 6);
	handler_rig_stop(&rig);
}
END_TEST

START_TEST(an_average_is_divided_once_however_often_it_is_sent)
{
	uint64_t expected[COUNT];

	rig_start(handlers[_i], 3);
	reduce(FANIN_WIRE_F64, FANIN_WIRE_AVG, expected);
	check_result(FANIN_WIRE_F64, FANIN_WIRE_AVG, rig.job.children, expected);
	handler_rig_flush(&rig);
	for (uint16_t child = 0; child < 3; child++) {
		contribute(child, FANIN_WIRE_F64, FANIN_WIRE_AVG, FANIN_FLAG_RETRANSMIT);
		check_result(FANIN_WIRE_F64, FANIN_WIRE_AVG, UINT64_C(1) << child, expected);
		handler_rig_flush(&rig);
	}
	handler_rig_stop(&rig);
}
END_TEST

START_TEST(the_library_supports_what_the_switch_has_kernels_for)
{
	for (int isa = 0; isa <= (int)fanin_isa_detect(); isa++) {
		for (int dtype = -1; dtype <= FANIN_WIRE_DTYPE_COUNT; dtype++) {
			for (int op = -1; op <= FANIN_WIRE_OP_COUNT; op++)
				ck_assert(fanin_supports((enum fanin_dtype)dtype,
							 (enum fanin_op)op) ==
					  (fanin_kernel((enum fanin_isa)isa, (unsigned int)dtype,
							(unsigned int)op) != NULL));
		}
	}
}
END_TEST

START_TEST(the_library_refuses_other_pairs_by_name)
{
	struct fanin_ctx ctx = { 0 };
	struct fanin_comm comm = { .ctx = &ctx };
	fanin_request *request = NULL;

	for (int dtype = FANIN_I8; dtype <= FANIN_F64; dtype++) {
		for (int op = FANIN_SUM; op <= FANIN_AVG; op++) {
			enum fanin_dtype type = (enum fanin_dtype)dtype;

			if (fanin_supports(type, (enum fanin_op)op))
				continue;
			ck_assert_int_eq(fanin_iallreduce(NULL, NULL, 0, type, (enum fanin_op)op,
							  &comm, &request),
					 FANIN_ERR_UNSUPPORTED);
			ck_assert_ptr_null(request);
			ck_assert_ptr_nonnull(
				strstr(fanin_ctx_error(&ctx), fanin_dtype_name_of(type)));
		}
	}
}
END_TEST

Suite *
suite_operators(void)
{
	Suite *suite = suite_create("operators");
	TCase *handler = tcase_create("handler");
	TCase *library = tcase_create("library");

	n_handlers = handlers_here(handlers, RTE_DIM(handlers));
	tcase_add_loop_test(handler, every_defined_pair_is_reduced, 0, 2 * N_SIZES * n_handlers);
	tcase_add_loop_test(handler, every_other_pair_is_refused, 0, n_handlers);
	tcase_add_loop_test(handler, an_average_is_divided_once_however_often_it_is_sent, 0,
			    n_handlers);
	suite_add_tcase(suite, handler);

	tcase_add_test(library, the_library_supports_what_the_switch_has_kernels_for);
	tcase_add_test(library, the_library_refuses_other_pairs_by_name);
	suite_add_tcase(suite, library);
	return suite;
}
