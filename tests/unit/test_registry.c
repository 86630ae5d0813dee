/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The registry of handlers: one that this file adds is there without a line elsewhere, and a job that names none gets exactly one.
 */
#include <string.h>

#include "tests/unit/ring_switch.h"
#include "tests/unit/suites.h"

static struct ring_switch sw;

enum {
	SPARE_REFUSED,
	SPARE_SEEN,
	SPARE_COUNTERS
};

struct spare_state {
	uint64_t seen; /* atomic */
};

static size_t
spare_state_size(const struct fanin_job_params *job)
{
	(void)job;
	return sizeof(struct spare_state);
}

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
	struct spare_state *state = ctx->state;

	(void)slot;
	(void)index;
	(void)packet;
	ctx->stats->own[SPARE_REFUSED] += ctx->job->parameters[1];
	ctx->stats->own[SPARE_SEEN] = __atomic_add_fetch(&state->seen, 1, __ATOMIC_RELAXED);
	*reason = FANIN_REASON_OPERATION;
	return FANIN_VERDICT_DROP;
}

static void
spare_release(struct fanin_handler_ctx *ctx, void *slot)
{
	(void)ctx;
	(void)slot;
}

static const struct fanin_counter spare_counters[SPARE_COUNTERS + 1] = {
	[SPARE_REFUSED] = { "refused", "contributions, each as often as the parameter says" },
	[SPARE_SEEN] = { "seen", "contributions" },
};

static const struct fanin_parameter spare_parameters[] = {
	{ "first", "of no use", 0, 7, 3 },
	{ "weight", "how often each contribution counts", 1, 100, 1 },
	{ 0 },
};

/* It reduces nothing, and its slots hold much. */
static struct fanin_handler spare = {
	.name = "spare",
	.description = "refuses all contributions",
	.slot_mbufs = { .fixed = 1, .per_buffer = 2, .per_pair = 3 },
	.counters = spare_counters,
	.parameters = spare_parameters,
	.state_size = spare_state_size,
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

START_TEST(a_job_has_the_parameters_and_counters_of_its_handler)
{
	struct job_spec spec = { .key = RING_SWITCH_KEY,
				 .handler = "spare",
				 .n_members = 2,
				 .n_parameters = 1,
				 .parameters = { { "weight", 101 } } };
	struct fanin_handler_stats stats;
	char error[PIPELINE_ERROR_LEN];
	const char *code;
	struct job *job;
	uint32_t epoch;

	ring_switch_eal();
	ring_switch_open(&sw, 4, 1, NULL);
	for (uint16_t rank = 0; rank < 2; rank++) {
		spec.members[rank].port = rank;
		spec.members[rank].ip_be = host_ip_be(rank);
		spec.members[rank].ranks = UINT64_C(1) << rank;
	}
	ck_assert_int_eq(job_create(sw.pipeline, &spec, &job, &code, error), -EINVAL);
	ck_assert_str_eq(
		error,
		"parameter weight: found 101, expected 1 to 100 (how often each contribution counts)");
	spec.parameters[0] = (struct job_parameter){ "wait", 5 };
	ck_assert_int_eq(job_create(sw.pipeline, &spec, &job, &code, error), -EINVAL);
	ck_assert_str_eq(error,
			 "found the parameter \"wait\", the handler \"spare\" has first, weight");
	spec.handler = "single";
	ck_assert_int_eq(job_create(sw.pipeline, &spec, &job, &code, error), -EINVAL);
	ck_assert_str_eq(error, "found the parameter \"wait\", the handler \"single\" has none");

	spec.handler = "spare";
	spec.parameters[0] = (struct job_parameter){ "weight", 5 };
	ck_assert_int_eq(job_create(sw.pipeline, &spec, &job, &code, error), 0);
	ck_assert_uint_eq(job->params.parameters[0], 3);
	epoch = host_join_all(&sw, job, 2, 1);
	for (uint32_t block = 0; block < 3; block++)
		host_contribute(&sw, job, 0, epoch, block, false);
	job_stats(job, &stats);
	ck_assert_uint_eq(stats.own[SPARE_REFUSED], 15);
	ck_assert_uint_eq(stats.own[SPARE_SEEN], 3);
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
	tcase_add_test(tcase, a_job_has_the_parameters_and_counters_of_its_handler);
	suite_add_tcase(suite, tcase);
	return suite;
}
