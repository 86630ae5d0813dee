/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Custom operators through the handlers: registered ones are reduced, others refused, and an
 * operator whose order matters runs in the order of the ranks or not at all. It is registered here
 * like any user's.
 */
#include <stdlib.h>
#include <string.h>

#include "hostlib/src/comm/comm.h"
#include "fanin/fanin.h"
#include "handlers/handler.h"
#include "handlers/operator.h"
#include "tests/unit/placed_rig.h"
#include "lab/reference/random.h"
#include "tests/unit/suites.h"

#define COUNT 13
#define N_CHILDREN 5
#define COMPLEX_CODE 128
#define AFFINE_CODE 255
#define FREE_CODE 254

/*
 * ------------------------------------------------- an operator whose order matters, exact in
 * integers
 */

/*
 * The function a x + b, modulo 2^32; combining two of them composes them, the left one after the
 * right one.
 */
struct affine {
	uint32_t a;
	uint32_t b;
} __attribute__((packed, may_alias));

static struct affine
compose(struct affine left, struct affine right)
{
	return (struct affine){ left.a * right.a, left.a * right.b + left.b };
}

static void
affine_combine(void *acc, const void *in, size_t count)
{
	struct affine *left = acc;
	const struct affine *right = in;

	for (size_t i = 0; i < count; i++)
		left[i] = compose(left[i], right[i]);
}

static const struct affine affine_identity = { 1, 0 };

static const struct fanin_operator affine = {
	.name = "compose",
	.dtype_name = "affine-u32",
	.dtype = FANIN_WIRE_OPAQUE + sizeof(struct affine),
	.op = AFFINE_CODE,
	.ordered = true,
	.identity = &affine_identity,
	.combine = affine_combine,
};

FANIN_OPERATOR_REGISTER(affine)

/*
 * --------------------------------------------------------------------------------------------
 * handler
 */

static struct handler_rig rig;

static void
rig_start(const char *handler)
{
	const struct fanin_job_params job = {
		.id = 1, .n_children = N_CHILDREN, .window = 1, .payload_bytes = 1024, .buffers = 2
	};

	handler_rig_start(&rig, handler, &job, 0);
}

static struct answer
contribute(uint16_t child, unsigned int dtype, unsigned int op, const void *elements)
{
	const struct shape shape = { dtype, op, COUNT };

	return handler_rig_contribute(&rig, child, 0, 0, &shape, elements);
}

static void
expect_refused(const char *handler, unsigned int dtype, unsigned int op)
{
	static const uint8_t elements[FAKE_PAYLOAD_MAX];
	struct answer answer;

	rig_start(handler);
	answer = contribute(0, dtype, op, elements);
	ck_assert_int_eq(answer.verdict, FANIN_VERDICT_DROP);
	ck_assert_int_eq(answer.reason, FANIN_REASON_OPERATION);
	ck_assert_uint_eq(rig.stats.blocks, 0);
	handler_rig_stop(&rig);
}

static const void *
result(void)
{
	return elements_of(handler_rig_emission(&rig, FANIN_EMIT_CHILDREN, rig.job.children)->mbuf);
}

START_TEST(a_registered_operator_is_reduced_by_every_handler)
{
	for (const struct fanin_handler *handler = fanin_handler_first(); handler != NULL;
	     handler = handler->next) {
		float elements[COUNT][2];
		const float(*found)[2];

		if (!fanin_handler_reduces(handler))
			continue;
		/*
		 * Home hosts complete blocks that the switch's table could not, and have no custom
		 * operators.
		 */
		if (strcmp(handler->name, "push") == 0) {
			expect_refused(handler->name, FANIN_WIRE_OPAQUE + 8, COMPLEX_CODE);
			continue;
		}
		rig_start(handler->name);
		for (uint16_t child = 0; child < N_CHILDREN; child++) {
			for (int i = 0; i < COUNT; i++) {
				elements[i][0] = (float)i;
				elements[i][1] = 1;
			}
			ck_assert_int_ne(contribute(child, FANIN_WIRE_OPAQUE + 8, COMPLEX_CODE,
						    elements)
						 .verdict,
					 FANIN_VERDICT_DROP);
		}
		found = result();
		for (int i = 0; i < COUNT; i++) {
			/* (x + i)^5 */
			float x = (float)i;
			float x2 = x * x;

			ck_assert_float_eq(found[i][0], x * x2 * x2 - 10 * x * x2 + 5 * x);
			ck_assert_float_eq(found[i][1], 5 * x2 * x2 - 10 * x2 + 1);
		}
		handler_rig_stop(&rig);
	}
}
END_TEST

START_TEST(an_operator_whose_order_matters_runs_in_the_order_of_the_ranks)
{
	struct random random = random_seed(1);
	uint16_t order[N_CHILDREN];

	for (uint16_t i = 0; i < N_CHILDREN; i++)
		order[i] = i;
	for (int round = 0; round < 100; round++) {
		struct affine elements[N_CHILDREN][COUNT];
		const struct affine *found;

		for (uint16_t i = N_CHILDREN; i > 1; i--) {
			uint32_t k = random_below(&random, i);
			uint16_t swap = order[i - 1];

			order[i - 1] = order[k];
			order[k] = swap;
		}
		rig_start("tree");
		for (uint16_t i = 0; i < N_CHILDREN; i++) {
			for (int j = 0; j < COUNT; j++)
				elements[order[i]][j] = (struct affine){ random_u32(&random),
									 random_u32(&random) };
			ck_assert_int_eq(contribute(order[i], FANIN_WIRE_OPAQUE + 8, AFFINE_CODE,
						    elements[order[i]])
						 .verdict,
					 FANIN_VERDICT_HELD);
		}
		found = result();
		for (int i = 0; i < COUNT; i++) {
			struct affine expected = affine_identity;

			for (uint16_t child = 0; child < N_CHILDREN; child++)
				expected = compose(expected, elements[child][i]);
			ck_assert_uint_eq(found[i].a, expected.a);
			ck_assert_uint_eq(found[i].b, expected.b);
		}
		handler_rig_stop(&rig);
	}
}
END_TEST

/* Composes functions in the order of ranks. Returns false if a switch refuses. */
static bool
compose_at(const char *at, struct random *random, struct affine *expected, struct affine *found)
{
	static const struct shape shape = { FANIN_WIRE_OPAQUE + sizeof(struct affine), AFFINE_CODE,
					    COUNT };
	static struct affine elements[PLACED_RANKS_MAX][COUNT];

	for (int i = 0; i < COUNT; i++)
		expected[i] = affine_identity;
	for (size_t rank = 0; at[rank] != '\0'; rank++) {
		for (int i = 0; i < COUNT; i++) {
			elements[rank][i] = (struct affine){ random_u32(random),
							     random_u32(random) };
			expected[i] = compose(expected[i], elements[rank][i]);
		}
	}
	return placed_reduce(at, &shape, elements, random, found);
}

START_TEST(an_operator_whose_order_matters_is_right_over_switches_or_refused)
{
	static const struct {
		const char *at;
		bool is_right;
	} placements[] = {
		{ "aabb", true },    { "bbaa", true },     { "aaaab", true }, { "aaaabb", true },
		{ "aabb*", true },   { "aa**bbbb", true }, { "abab", false }, { "baba", false },
		{ "aaabbb", false }, { "abba", false },    { "a**a", false },
	};
	struct random random = random_seed(2);

	for (size_t i = 0; i < sizeof(placements) / sizeof(placements[0]); i++) {
		for (int round = 0; round < 20; round++) {
			struct affine expected[COUNT], found[COUNT];

			ck_assert_msg(compose_at(placements[i].at, &random, expected, found) ==
					      placements[i].is_right,
				      "%s", placements[i].at);
			if (placements[i].is_right)
				ck_assert_mem_eq(found, expected, sizeof(found));
		}
	}
}
END_TEST

START_TEST(an_operator_whose_order_matters_is_refused_by_other_handlers)
{
	expect_refused("single", FANIN_WIRE_OPAQUE + 8, AFFINE_CODE);
	expect_refused("multi", FANIN_WIRE_OPAQUE + 8, AFFINE_CODE);
}
END_TEST

START_TEST(unregistered_operators_are_refused)
{
	for (const struct fanin_handler *handler = fanin_handler_first(); handler != NULL;
	     handler = handler->next) {
		if (!fanin_handler_reduces(handler))
			continue;
		expect_refused(handler->name, FANIN_WIRE_OPAQUE + 8, FREE_CODE);
		expect_refused(handler->name, FANIN_WIRE_F32, FREE_CODE);
		/* Elements of another size or type. */
		expect_refused(handler->name, FANIN_WIRE_OPAQUE + 4, COMPLEX_CODE);
		expect_refused(handler->name, FANIN_WIRE_OPAQUE + 16, COMPLEX_CODE);
		expect_refused(handler->name, FANIN_WIRE_F64, COMPLEX_CODE);
		/* A built-in operator. */
		expect_refused(handler->name, FANIN_WIRE_OPAQUE + 8, FANIN_WIRE_SUM);
	}
}
END_TEST

/*
 * -------------------------------------------------------------------------------------------
 * registry
 */

START_TEST(every_identity_changes_nothing)
{
	struct random random = random_seed(1);
	unsigned int found = 0;

	for (unsigned int op = FANIN_WIRE_CUSTOM; op <= FANIN_WIRE_CUSTOM_LAST; op++) {
		const struct fanin_operator *custom = fanin_operator_find(op);
		uint8_t x[FANIN_WIRE_OPAQUE_MAX], acc[FANIN_WIRE_OPAQUE_MAX];
		unsigned int size;

		if (custom == NULL)
			continue;
		found++;
		size = fanin_dtype_size(custom->dtype);
		/* Every 32 bits are a small number, both as integer and as f32. */
		for (unsigned int i = 0; i < size; i++)
			x[i] = i % 4 == 3 ? 0x40 : (uint8_t)random_u32(&random);
		memcpy(acc, x, size);
		custom->combine(acc, custom->identity, 1);
		ck_assert_mem_eq(acc, x, size);
		memcpy(acc, custom->identity, size);
		custom->combine(acc, x, 1);
		ck_assert_mem_eq(acc, x, size);
	}
	ck_assert_uint_ge(found, 2);
}
END_TEST

START_TEST(an_operator_is_found_by_its_code_only)
{
	ck_assert_ptr_eq(fanin_operator_find(AFFINE_CODE), &affine);
	ck_assert_ptr_null(fanin_operator_find(FREE_CODE));
	ck_assert_ptr_null(fanin_operator_find(0));
	ck_assert_ptr_null(fanin_operator_find(FANIN_WIRE_SUM));
	ck_assert_ptr_null(fanin_operator_find(FANIN_WIRE_CUSTOM - 1));
	ck_assert_ptr_null(fanin_operator_find(FANIN_WIRE_CUSTOM_LAST + 1));
}
END_TEST

START_TEST(a_registration_that_can_not_work_is_a_problem)
{
	struct fanin_operator good = affine;
	struct fanin_operator bad;

	good.op = FREE_CODE;
	ck_assert_ptr_null(fanin_operator_problem(&good));
	good.dtype = FANIN_WIRE_F32;
	ck_assert_ptr_null(fanin_operator_problem(&good));
	ck_assert_ptr_nonnull(fanin_operator_problem(&affine)); /* the code is taken */

#define EXPECT_PROBLEM(change)                                                                     \
	do {                                                                                       \
		bad = good;                                                                        \
		change;                                                                            \
		ck_assert_ptr_nonnull(fanin_operator_problem(&bad));                               \
	} while (0)

	EXPECT_PROBLEM(bad.name = NULL);
	EXPECT_PROBLEM(bad.dtype_name = NULL);
	EXPECT_PROBLEM(bad.identity = NULL);
	EXPECT_PROBLEM(bad.combine = NULL);
	EXPECT_PROBLEM(bad.op = FANIN_WIRE_CUSTOM - 1);
	EXPECT_PROBLEM(bad.dtype = FANIN_WIRE_OPAQUE);
	EXPECT_PROBLEM(bad.dtype = FANIN_WIRE_OPAQUE + FANIN_WIRE_OPAQUE_MAX + 1);
#undef EXPECT_PROBLEM
}
END_TEST

/*
 * --------------------------------------------------------------------------------------------
 * library
 */

START_TEST(the_library_knows_sizes_and_leaves_operators_to_the_switch)
{
	struct fanin_ctx ctx = { 0 };
	struct fanin_comm comm = { .ctx = &ctx };
	fanin_request *request = NULL;

	for (unsigned int bytes = 1; bytes <= 64; bytes++)
		ck_assert_uint_eq(fanin_dtype_size_of(FANIN_OPAQUE(bytes)), bytes);
	ck_assert(!fanin_supports(FANIN_OPAQUE(8), FANIN_CUSTOM(COMPLEX_CODE)));
	ck_assert_int_eq(fanin_iallreduce(NULL, NULL, 0, FANIN_OPAQUE(0),
					  FANIN_CUSTOM(COMPLEX_CODE), &comm, &request),
			 FANIN_ERR_INVALID);
	ck_assert_int_eq(fanin_iallreduce(NULL, NULL, 0, FANIN_OPAQUE(65),
					  FANIN_CUSTOM(COMPLEX_CODE), &comm, &request),
			 FANIN_ERR_INVALID);
	ck_assert_int_eq(fanin_iallreduce(NULL, NULL, 0, FANIN_OPAQUE(8), FANIN_SUM, &comm,
					  &request),
			 FANIN_ERR_UNSUPPORTED);
	ck_assert_int_eq(fanin_iallreduce(NULL, NULL, 0, FANIN_OPAQUE(8), FANIN_CUSTOM(127), &comm,
					  &request),
			 FANIN_ERR_UNSUPPORTED);
	ck_assert_int_eq(fanin_iallreduce(NULL, NULL, 0, FANIN_OPAQUE(8), FANIN_CUSTOM(256), &comm,
					  &request),
			 FANIN_ERR_UNSUPPORTED);
	ck_assert_ptr_null(request);
}
END_TEST

Suite *
suite_custom(void)
{
	Suite *suite = suite_create("custom");
	TCase *handler = tcase_create("handler");
	TCase *registry = tcase_create("registry");
	TCase *library = tcase_create("library");

	tcase_add_test(handler, a_registered_operator_is_reduced_by_every_handler);
	tcase_add_test(handler, an_operator_whose_order_matters_runs_in_the_order_of_the_ranks);
	tcase_add_test(handler, an_operator_whose_order_matters_is_right_over_switches_or_refused);
	tcase_add_test(handler, an_operator_whose_order_matters_is_refused_by_other_handlers);
	tcase_add_test(handler, unregistered_operators_are_refused);
	suite_add_tcase(suite, handler);

	tcase_add_test(registry, every_identity_changes_nothing);
	tcase_add_test(registry, an_operator_is_found_by_its_code_only);
	tcase_add_test(registry, a_registration_that_can_not_work_is_a_problem);
	suite_add_tcase(suite, registry);

	tcase_add_test(library, the_library_knows_sizes_and_leaves_operators_to_the_switch);
	suite_add_tcase(suite, library);
	return suite;
}
