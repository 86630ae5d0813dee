/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The tree handler's promise: floating-point sums have the same bits whatever the order of arrival,
 * namely those of the written order, halves of the children rounded up to a power of two.
 */
#include <stdlib.h>
#include <string.h>

#include "handlers/handler.h"
#include "tests/unit/fake_mbuf.h"
#include "tests/unit/random.h"
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

/* The sum of children first to first + width - 1, as docs/architecture.md states it. */
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

static struct rte_mbuf *
contribution(struct fake_pool *pool, uint16_t child)
{
	struct rte_mbuf *mbuf = fake_get(pool, COUNT * 4);
	struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *);

	fanin_wire_encode_header(&headers->fanin, FANIN_TYPE_CONTRIBUTION, 1, 1, 1);
	headers->fanin.dtype = FANIN_WIRE_F32;
	headers->fanin.op = FANIN_WIRE_SUM;
	headers->fanin.count = COUNT;
	memcpy(headers + 1, values[child], sizeof(values[child]));
	return mbuf;
}

/* Runs one block with the children in the given order, and compares the result's bits. */
static void
run_block(const struct fanin_handler *handler, uint16_t n_children, const uint16_t *order)
{
	struct fanin_job_params job = {
		.id = 1,
		.n_children = n_children,
		.window = 1,
		.payload_bytes = COUNT * 4,
		.children = UINT64_MAX >> (64 - n_children),
		.key = 1,
		.isa = fanin_isa_detect(),
	};
	struct fanin_handler_stats stats = { 0 };
	struct fanin_handler_ctx ctx = { .job = &job, .epoch = 1, .stats = &stats };
	void *slot = aligned_alloc(64, RTE_CACHE_LINE_ROUNDUP(handler->slot_size(&job)));
	struct fake_pool pool;
	const float *result;

	memset(slot, 0, RTE_CACHE_LINE_ROUNDUP(handler->slot_size(&job)));
	fake_pool_init(&pool, CHILDREN_MAX);
	for (uint16_t i = 0; i < n_children; i++) {
		enum fanin_reason reason = FANIN_REASON_NONE;
		struct rte_mbuf *mbuf = contribution(&pool, order[i]);
		struct fanin_packet packet = {
			.mbuf = mbuf,
			.headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *),
			.payload_len = COUNT * 4,
			.child = order[i],
		};

		packet.payload = packet.headers + 1;
		ck_assert_int_eq(handler->contribution(&ctx, slot, 0, &packet, &reason),
				 FANIN_VERDICT_HELD);
		ck_assert_uint_eq(ctx.n_emissions, i + 1 == n_children);
	}
	result = rte_pktmbuf_mtod_offset(ctx.emissions[0].mbuf, const float *, FANIN_PAYLOAD_OFFSET);
	for (int i = 0; i < COUNT; i++) {
		float expected = reference(0, (uint16_t)rte_align32pow2(n_children), n_children, i);

		ck_assert_msg(bits_of(result[i]) == bits_of(expected),
			      "%u children, element %d: found %a, expected %a", n_children, i,
			      (double)result[i], (double)expected);
	}
	fake_pool_fini(&pool);
	free(slot);
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
		run_block(fanin_handler_find("tree"), n_children, order);
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
	suite_add_tcase(suite, tcase);
	return suite;
}
