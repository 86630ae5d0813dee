/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Looks (the handler's `peek`) at a slot's block in each of its phases, with each of the handlers
 * below (_i). That looks and workers don't disturb one another is in test_concurrent.c;
 * the last test here makes one such moment on purpose.
 */
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#include "protocols/dense/switch/dense.h"
#include "tests/unit/handler_rig.h"
#include "tests/unit/suites.h"

#define CHILDREN 4
#define WINDOW 4
#define COUNT 4
#define INDEX 3
#define EPOCH 9

static const char *const handlers[] = { "single", "multi", "tree" };
#define N_HANDLERS (int)RTE_DIM(handlers)

static struct handler_rig rig;

static void
start(int which, bool has_parent)
{
	const struct fanin_job_params job = {
		.id = 5,
		.n_children = CHILDREN,
		.window = WINDOW,
		.payload_bytes = COUNT * 4,
		.keys = { .up = 1, .down = 2 },
		.buffers = 2,
	};

	handler_rig_start(&rig, handlers[which], &job, INDEX);
	rig.ctx.epoch = EPOCH;
	rig.ctx.parent_epoch = EPOCH + 1;
	rig.job.has_parent = has_parent;
}

static void
contribute(uint16_t child, uint32_t block, uint64_t now_ns)
{
	static const struct shape shape = { FANIN_WIRE_I32, FANIN_WIRE_SUM, COUNT };
	static const int32_t values[COUNT] = { 1, 2, 3, 4 };

	rig.ctx.now_ns = now_ns;
	handler_rig_contribute(&rig, child, block, 0, &shape, values);
}

static bool
look(uint32_t epoch, struct fanin_peek *peek)
{
	return rig.handler->peek(&rig.job, epoch, rig.slot, peek);
}

static void
expect_nothing(void)
{
	struct fanin_peek peek;

	ck_assert(!look(EPOCH, &peek));
}

static void
expect_waiting(uint32_t block, bool sent, uint64_t missing, uint64_t begun_ns)
{
	struct fanin_peek peek;

	ck_assert(look(EPOCH, &peek));
	ck_assert_uint_eq(peek.block, block);
	ck_assert_int_eq(peek.sent, sent);
	ck_assert_uint_eq(peek.missing, missing);
	ck_assert_uint_eq(peek.begun_ns, begun_ns);
}

/* Plays the parent's result of a block. Its elements don't matter here, and are undefined. */
static void
take_result(uint32_t block)
{
	struct rte_mbuf *mbuf = fake_get(&rig.pool, COUNT * 4);
	struct fanin_packet packet = { .mbuf = mbuf, .headers = headers_of(mbuf) };
	enum fanin_reason reason = FANIN_REASON_NONE;

	fanin_wire_encode_header(&packet.headers->fanin, FANIN_TYPE_RESULT, rig.job.id,
				 rig.ctx.parent_epoch, rig.job.keys.down);
	packet.headers->fanin.block = block;
	packet.headers->fanin.dtype = FANIN_WIRE_I32;
	packet.headers->fanin.op = FANIN_WIRE_SUM;
	packet.headers->fanin.count = COUNT;
	packet.payload = elements_of(mbuf);
	packet.payload_len = COUNT * 4;
	ck_assert_int_eq(rig.handler->other(&rig.ctx, rig.slot, rig.index, &packet, &reason),
			 FANIN_VERDICT_HELD);
}

START_TEST(a_slot_that_nothing_came_to_waits_for_nobody)
{
	struct fanin_peek peek;

	start(_i, false);
	expect_nothing();
	ck_assert(!look(0, &peek));
	handler_rig_stop(&rig);
}
END_TEST

START_TEST(a_slot_of_a_new_run_without_a_block_waits_for_nobody)
{
	start(_i, false);
	/* The contribution resets the slot and is dropped: the slot's first block is INDEX. */
	contribute(1, INDEX + 1, 1000);
	expect_nothing();
	handler_rig_stop(&rig);
}
END_TEST

START_TEST(an_open_block_waits_for_those_that_have_not_contributed)
{
	struct fanin_peek peek;

	start(_i, false);
	contribute(1, INDEX, 1000);
	expect_waiting(INDEX, false, 0xd, 1000);
	contribute(3, INDEX, 2000);
	contribute(3, INDEX, 3000);
	expect_waiting(INDEX, false, 0x5, 1000);
	ck_assert(!look(EPOCH + 1, &peek));
	ck_assert(!look(EPOCH - 1, &peek));
	handler_rig_stop(&rig);
}
END_TEST

START_TEST(a_block_that_is_done_waits_for_nobody_and_the_next_one_anew)
{
	start(_i, false);
	for (uint16_t child = 0; child < CHILDREN; child++)
		contribute(child, INDEX, 1000);
	expect_nothing();
	contribute(2, INDEX + 2 * WINDOW, 7000);
	expect_waiting(INDEX + 2 * WINDOW, false, 0xb, 7000);
	handler_rig_stop(&rig);
}
END_TEST

START_TEST(a_block_that_was_sent_up_waits_for_the_parent_until_its_result_comes)
{
	start(_i, true);
	for (uint16_t child = 0; child < CHILDREN; child++)
		contribute(child, INDEX, 1000 + child);
	expect_waiting(INDEX, true, 0, 1000);
	take_result(INDEX);
	expect_nothing();
	handler_rig_stop(&rig);
}
END_TEST

/*
 * The slot lies across two pages; its begun_ns is the first field on the second page, which can't
 * be read at first. A look faults there, after it has read the other fields. The signal handler
 * then plays a worker: it makes the page readable, and puts the slot's next block in place of the
 * one that the look had begun to read.
 */
static struct torn {
	struct fanin_dense *slot;
	uint8_t *pages;
	size_t page_size;
	bool interrupted;
} torn;

static void
begin_next_block(int signal_number)
{
	(void)signal_number;
	torn.interrupted = true;
	if (mprotect(torn.pages + torn.page_size, torn.page_size, PROT_READ | PROT_WRITE) != 0)
		_exit(1);
	torn.slot->state.present = 0x2;
	torn.slot->begun_ns = 9000;
	torn.slot->state.word = fanin_state_make(INDEX + 2 * WINDOW, FANIN_PHASE_OPEN, 0);
}

START_TEST(a_look_reads_fields_of_one_block_only)
{
	const struct sigaction action = { .sa_handler = begin_next_block };
	static struct fanin_job_params job;
	struct fanin_peek peek;

	fanin_job_params_hosts(&job, CHILDREN);
	torn.page_size = (size_t)sysconf(_SC_PAGESIZE);
	torn.pages = mmap(NULL, 2 * torn.page_size, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(torn.pages, MAP_FAILED);
	torn.slot = (struct fanin_dense *)(torn.pages + torn.page_size -
					   offsetof(struct fanin_dense, begun_ns));
	torn.slot->state.epoch = EPOCH;
	torn.slot->state.present = 0x1;
	torn.slot->state.word = fanin_state_make(INDEX, FANIN_PHASE_OPEN, 0);
	ck_assert_int_eq(sigaction(SIGSEGV, &action, NULL), 0);
	ck_assert_int_eq(mprotect(torn.pages + torn.page_size, torn.page_size, PROT_NONE), 0);

	ck_assert(fanin_dense_peek(&job, EPOCH, torn.slot, &peek));
	ck_assert(torn.interrupted);
	ck_assert_uint_eq(peek.block, INDEX + 2 * WINDOW);
	ck_assert_uint_eq(peek.missing, 0xd);
	ck_assert_uint_eq(peek.begun_ns, 9000);
	munmap(torn.pages, 2 * torn.page_size);
}
END_TEST

Suite *
suite_peek(void)
{
	Suite *suite = suite_create("peek");
	TCase *tcase = tcase_create("dense");

	tcase_add_loop_test(tcase, a_slot_that_nothing_came_to_waits_for_nobody, 0, N_HANDLERS);
	tcase_add_loop_test(tcase, a_slot_of_a_new_run_without_a_block_waits_for_nobody, 0,
			    N_HANDLERS);
	tcase_add_loop_test(tcase, an_open_block_waits_for_those_that_have_not_contributed, 0,
			    N_HANDLERS);
	tcase_add_loop_test(tcase, a_block_that_is_done_waits_for_nobody_and_the_next_one_anew, 0,
			    N_HANDLERS);
	tcase_add_loop_test(tcase,
			    a_block_that_was_sent_up_waits_for_the_parent_until_its_result_comes, 0,
			    N_HANDLERS);
	tcase_add_test(tcase, a_look_reads_fields_of_one_block_only);
	suite_add_tcase(suite, tcase);
	return suite;
}
