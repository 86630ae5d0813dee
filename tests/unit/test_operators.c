/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every data type and operator through each handler: what comes out is the naive reference's result of all contributions
 * in the handler's order, and pairs that are not defined are refused, as they are by the host library.
 */
#include <stdlib.h>
#include <string.h>

#include "context.h"
#include "fanin/fanin.h"
#include "handlers/handler.h"
#include "tests/unit/fake_mbuf.h"
#include "tests/unit/kernel_reference.h"
#include "tests/unit/suites.h"

#define COUNT 37
#define EPOCH 1
#define WINDOW 1

static const uint16_t sizes[] = { 1, 2, 3, 8, 64 };

static const char *const handlers[] = { "single", "multi", "tree" };

#define N_SIZES (int)(sizeof(sizes) / sizeof(sizes[0]))
#define N_HANDLERS (int)(sizeof(handlers) / sizeof(handlers[0]))

/* One slot of one job, whose blocks come one after the other. */
static struct rig {
	const struct fanin_handler *handler;
	struct fanin_job_params job;
	struct fanin_handler_ctx ctx;
	struct fanin_handler_stats stats;
	struct fake_pool pool;
	struct random random;
	uint32_t block;
	uint64_t sent[FANIN_WIRE_MAX_CHILDREN][COUNT];
	void *slot;
} rig;

static void
rig_start(const char *handler, uint16_t n_children)
{
	memset(&rig, 0, sizeof(rig));
	rig.handler = fanin_handler_find(handler);
	ck_assert_ptr_nonnull(rig.handler);
	rig.job = (struct fanin_job_params){
		.id = 1,
		.n_children = n_children,
		.window = WINDOW,
		.payload_bytes = COUNT * 8,
		.children = UINT64_MAX >> (FANIN_WIRE_MAX_CHILDREN - n_children),
		.isa = fanin_isa_detect(),
		.buffers = 3,
	};
	rig.ctx.job = &rig.job;
	rig.ctx.epoch = EPOCH;
	rig.ctx.stats = &rig.stats;
	rig.random = random_seed(n_children);
	fake_pool_init(&rig.pool, 2 * FANIN_WIRE_MAX_CHILDREN);
	rig.slot = aligned_alloc(64, RTE_CACHE_LINE_ROUNDUP(rig.handler->slot_size(&rig.job)));
	ck_assert_ptr_nonnull(rig.slot);
	memset(rig.slot, 0, rig.handler->slot_size(&rig.job));
}

/* As if every packet had been sent. */
static void
rig_flush(void)
{
	for (unsigned int i = 0; i < rig.ctx.n_emissions; i++) {
		const struct fanin_emission *emission = &rig.ctx.emissions[i];

		for (uint64_t left = emission->children; left != 0; left &= left - 1)
			fake_put(&rig.pool, emission->mbuf);
	}
	for (unsigned int i = 0; i < rig.ctx.n_frees; i++)
		fake_put(&rig.pool, rig.ctx.frees[i]);
	rig.ctx.n_emissions = 0;
	rig.ctx.n_frees = 0;
}

static void
rig_stop(void)
{
	rig_flush();
	rig.handler->slot_release(&rig.ctx, rig.slot);
	rig_flush();
	ck_assert_uint_eq(fake_pool_in_use(&rig.pool), 0);
	fake_pool_fini(&rig.pool);
	free(rig.slot);
}

static uint8_t *
payload_of(struct rte_mbuf *mbuf)
{
	return rte_pktmbuf_mtod_offset(mbuf, uint8_t *, FANIN_PAYLOAD_OFFSET);
}

/* A contribution of random elements, which are noted in rig.sent. */
static enum fanin_verdict
contribute(uint16_t child, unsigned int dtype, unsigned int op, uint16_t flags,
	   enum fanin_reason *reason)
{
	unsigned int size = fanin_dtype_size(dtype);
	struct rte_mbuf *mbuf = fake_get(&rig.pool, COUNT * size);
	struct fanin_packet packet = {
		.mbuf = mbuf,
		.headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *),
		.payload = payload_of(mbuf),
		.payload_len = COUNT * size,
		.child = child,
	};
	struct fanin_hdr *hdr = &packet.headers->fanin;
	enum fanin_verdict verdict;

	fanin_wire_encode_header(hdr, FANIN_TYPE_CONTRIBUTION, rig.job.id, EPOCH, 0);
	hdr->flags = flags;
	hdr->rank = child;
	hdr->contributions = 1;
	hdr->block = rig.block;
	hdr->dtype = (uint8_t)dtype;
	hdr->op = (uint8_t)op;
	hdr->count = COUNT;
	for (unsigned int i = 0; i < COUNT; i++) {
		uint64_t element = reference_random(&rig.random, dtype);

		memcpy(payload_of(mbuf) + i * size, &element, size);
		rig.sent[child][i] = element;
	}
	verdict = rig.handler->contribution(&rig.ctx, rig.slot, rig.block % (2 * WINDOW), &packet,
					    reason);
	if (verdict != FANIN_VERDICT_HELD)
		fake_put(&rig.pool, mbuf);
	return verdict;
}

/* What the tree makes of element i of children first to first + width - 1: the halves of a power of two. */
static uint64_t
tree_reference(unsigned int dtype, unsigned int op, unsigned int i, uint16_t first, uint16_t width)
{
	uint16_t half = width / 2;

	if (width == 1)
		return rig.sent[first][i];
	if (first + half >= rig.job.n_children)
		return tree_reference(dtype, op, i, first, half);
	return reference_combine(dtype, op, tree_reference(dtype, op, i, first, half),
				 tree_reference(dtype, op, i, (uint16_t)(first + half), half));
}

/* The result's element i; children contributed in the order of their numbers. */
static uint64_t
reference(unsigned int dtype, unsigned int op, unsigned int i)
{
	uint64_t result = rig.sent[0][i];

	for (uint16_t child = 1; child < rig.job.n_children; child++)
		result = reference_combine(dtype, op, result, rig.sent[child][i]);
	if (strcmp(rig.handler->name, "tree") == 0)
		result = tree_reference(dtype, op, i, 0, FANIN_WIRE_MAX_CHILDREN);
	return op == FANIN_WIRE_AVG ? reference_divide(dtype, result, rig.job.n_children) : result;
}

/* The one emission that the last call made, which has to be the right result. */
static void
check_result(unsigned int dtype, unsigned int op, const uint64_t *expected)
{
	unsigned int size = fanin_dtype_size(dtype);
	const struct fanin_hdr *hdr;
	struct rte_mbuf *mbuf;

	ck_assert_uint_eq(rig.ctx.n_emissions, 1);
	ck_assert_int_eq(rig.ctx.emissions[0].kind, FANIN_EMIT_CHILDREN);
	mbuf = rig.ctx.emissions[0].mbuf;
	hdr = &rte_pktmbuf_mtod(mbuf, struct fanin_headers *)->fanin;
	ck_assert_uint_eq(hdr->dtype, dtype);
	ck_assert_uint_eq(hdr->op, op);
	ck_assert_uint_eq(hdr->contributions, rig.job.n_children);
	for (unsigned int i = 0; i < COUNT; i++) {
		uint64_t found = 0;

		memcpy(&found, payload_of(mbuf) + i * size, size);
		if (!reference_same(dtype, op, found, expected[i]))
			ck_abort_msg("%s: %s of %s on %u children: element %u is %#llx, expected %#llx",
				     rig.handler->name, fanin_op_name(op), fanin_dtype_name(dtype),
				     rig.job.n_children, i, (unsigned long long)found,
				     (unsigned long long)expected[i]);
	}
}

/* A whole block, whose result is left to be looked at. */
static void
reduce(unsigned int dtype, unsigned int op, uint64_t *expected)
{
	enum fanin_reason reason;

	for (uint16_t child = 0; child < rig.job.n_children; child++)
		contribute(child, dtype, op, 0, &reason);
	for (unsigned int i = 0; i < COUNT; i++)
		expected[i] = reference(dtype, op, i);
}

START_TEST(every_defined_pair_is_reduced)
{
	uint64_t expected[COUNT];

	rig_start(handlers[_i / N_SIZES], sizes[_i % N_SIZES]);
	for (unsigned int dtype = 1; dtype < FANIN_WIRE_DTYPE_COUNT; dtype++) {
		for (unsigned int op = 1; op < FANIN_WIRE_OP_COUNT; op++) {
			if (!fanin_operation_defined(dtype, op))
				continue;
			reduce(dtype, op, expected);
			check_result(dtype, op, expected);
			rig_flush();
			rig.block += 2 * WINDOW;
		}
	}
	rig_stop();
}
END_TEST

START_TEST(every_other_pair_is_refused)
{
	enum fanin_reason reason;
	unsigned int refused = 0;

	rig_start(handlers[_i], 2);
	for (unsigned int dtype = 1; dtype < FANIN_WIRE_DTYPE_COUNT; dtype++) {
		for (unsigned int op = 1; op < FANIN_WIRE_OP_COUNT; op++) {
			if (fanin_operation_defined(dtype, op))
				continue;
			ck_assert_int_eq(contribute(0, dtype, op, 0, &reason), FANIN_VERDICT_DROP);
			ck_assert_int_eq(reason, FANIN_REASON_OPERATION);
			refused++;
		}
	}
	ck_assert_uint_eq(refused, 4 * 6);
	rig_stop();
}
END_TEST

START_TEST(an_average_is_divided_once_however_often_it_is_sent)
{
	enum fanin_reason reason;
	uint64_t expected[COUNT];

	rig_start(handlers[_i], 3);
	reduce(FANIN_WIRE_F64, FANIN_WIRE_AVG, expected);
	check_result(FANIN_WIRE_F64, FANIN_WIRE_AVG, expected);
	rig_flush();
	for (uint16_t child = 0; child < 3; child++) {
		contribute(child, FANIN_WIRE_F64, FANIN_WIRE_AVG, FANIN_FLAG_RETRANSMIT, &reason);
		check_result(FANIN_WIRE_F64, FANIN_WIRE_AVG, expected);
		rig_flush();
	}
	rig_stop();
}
END_TEST

START_TEST(the_library_supports_what_the_switch_has_kernels_for)
{
	for (int isa = 0; isa <= (int)fanin_isa_detect(); isa++) {
		for (int dtype = -1; dtype <= FANIN_WIRE_DTYPE_COUNT; dtype++) {
			for (int op = -1; op <= FANIN_WIRE_OP_COUNT; op++)
				ck_assert(fanin_supports((enum fanin_dtype)dtype, (enum fanin_op)op) ==
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

	tcase_add_loop_test(handler, every_defined_pair_is_reduced, 0, N_SIZES * N_HANDLERS);
	tcase_add_loop_test(handler, every_other_pair_is_refused, 0, N_HANDLERS);
	tcase_add_loop_test(handler, an_average_is_divided_once_however_often_it_is_sent, 0,
			    N_HANDLERS);
	suite_add_tcase(suite, handler);

	tcase_add_test(library, the_library_supports_what_the_switch_has_kernels_for);
	tcase_add_test(library, the_library_refuses_other_pairs_by_name);
	suite_add_tcase(suite, library);
	return suite;
}
