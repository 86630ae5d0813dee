/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The tree handler's promise: floating-point sums have the same bits whatever the order of arrival,
 * namely those of the written order, halves of the ranks rounded up to a power of two, on one
 * switch and on several.
 */
#include <string.h>

#include "tests/unit/placed_rig.h"
#include "lab/reference/random.h"
#include "tests/unit/suites.h"

#define COUNT 32
#define CHILDREN_MAX 64
#define SHUFFLES 100

static float values[CHILDREN_MAX][COUNT];

static void
draw_values(uint16_t n_children)
{
	struct random random = random_seed(n_children);

	for (uint16_t child = 0; child < n_children; child++) {
		for (int i = 0; i < COUNT; i++) {
			float mantissa = (float)random_u32(&random) / 4294967296.0f - 0.5f;

			/* Of very different sizes: every order gives other bits. */
			values[child][i] = mantissa * (float)(1u << random_below(&random, 30));
		}
	}
}

/* The sum of ranks first to first + width - 1, as docs/operators.md states it. */
static float
reference(uint16_t first, uint16_t width, uint16_t n_children, int i)
{
	if (width == 1)
		return values[first][i];
	if (first + width / 2 >= n_children)
		return reference(first, width / 2, n_children, i);
	return reference(first, width / 2, n_children, i) +
	       reference((uint16_t)(first + width / 2), width / 2, n_children, i);
}

static uint32_t
bits_of(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

/* Runs one block with the children in the given order, and compares the result's bits. */
static void
run_block(uint16_t n_children, const uint16_t *order)
{
	static const struct shape shape = { FANIN_WIRE_F32, FANIN_WIRE_SUM, COUNT };
	const struct fanin_job_params job = {
		.id = 1, .n_children = n_children, .window = 1, .payload_bytes = COUNT * 4
	};
	static struct handler_rig rig;
	const float *result;

	handler_rig_start(&rig, "tree", &job, 0);
	for (uint16_t i = 0; i < n_children; i++) {
		ck_assert_uint_eq(rig.ctx.n_emissions, 0);
		ck_assert_int_eq(handler_rig_contribute(&rig, order[i], 0, 0, &shape,
							values[order[i]])
					 .verdict,
				 FANIN_VERDICT_HELD);
	}
	result = elements_of(
		handler_rig_emission(&rig, FANIN_EMIT_CHILDREN, rig.job.children)->mbuf);
	for (int i = 0; i < COUNT; i++) {
		float expected = reference(0, (uint16_t)rte_align32pow2(n_children), n_children, i);

		ck_assert_msg(bits_of(result[i]) == bits_of(expected),
			      "%u children, element %d: found %a, expected %a", n_children, i,
			      (double)result[i], (double)expected);
	}
	handler_rig_stop(&rig);
}

static const uint16_t sizes[] = { 1, 2, 3, 5, 8, 11, 16, 33, 64 };

START_TEST(sums_have_the_same_bits_in_every_order_of_arrival)
{
	uint16_t n_children = sizes[_i];
	struct random random = random_seed((uint64_t)_i + 1);
	uint16_t order[CHILDREN_MAX];

	draw_values(n_children);
	for (uint16_t i = 0; i < n_children; i++)
		order[i] = i;
	for (int shuffle = 0; shuffle < SHUFFLES; shuffle++) {
		for (uint16_t i = n_children; i > 1; i--) {
			uint32_t k = random_below(&random, i);
			uint16_t swap = order[i - 1];

			order[i - 1] = order[k];
			order[k] = swap;
		}
		run_block(n_children, order);
	}
}
END_TEST

/*
 * Ranks on one switch, in a row on two or three, in another order of switches, and with some at the
 * root.
 */
static const char *const placements[] = {
	"****",   "aabb",     "bbaa",     "**aa",     "aa**",     "a*bb",     "*****",    "aaaab",
	"aabb*",  "aa***",    "aaaa*",    "******",   "aaaabb",   "bbbbaa",   "aabbcc",   "aa****",
	"aaaa**", "********", "aaaabbbb", "bbbbaaaa", "aabbccdd", "****bbbb", "aa**bbbb",
};

START_TEST(sums_have_the_same_bits_wherever_ranks_are)
{
	static const struct shape shape = { FANIN_WIRE_F32, FANIN_WIRE_SUM, COUNT };
	const char *at = placements[_i];
	const uint16_t n_ranks = (uint16_t)strlen(at);
	struct random random = random_seed((uint64_t)_i);
	float result[COUNT];

	draw_values(n_ranks);
	for (int round = 0; round < 20; round++) {
		ck_assert(placed_reduce(at, &shape, values, &random, result));
		for (int i = 0; i < COUNT; i++) {
			const float expected = reference(0, (uint16_t)rte_align32pow2(n_ranks),
							 n_ranks, i);

			ck_assert_msg(bits_of(result[i]) == bits_of(expected),
				      "%s, element %d: found %a, expected %a", at, i,
				      (double)result[i], (double)expected);
		}
	}
}
END_TEST

Suite *
suite_tree(void)
{
	Suite *suite = suite_create("tree");
	TCase *tcase = tcase_create("reproducible");

	tcase_add_loop_test(tcase, sums_have_the_same_bits_in_every_order_of_arrival, 0,
			    (int)(sizeof(sizes) / sizeof(sizes[0])));
	tcase_add_loop_test(tcase, sums_have_the_same_bits_wherever_ranks_are, 0,
			    (int)(sizeof(placements) / sizeof(placements[0])));
	suite_add_tcase(suite, tcase);
	return suite;
}
