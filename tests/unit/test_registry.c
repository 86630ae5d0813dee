/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The registry of handlers: a handler of this file is registered without a line elsewhere, and a
 * job that names none gets exactly one.
 */
#include <signal.h>
#include <stdlib.h>
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

/* The handler reduces nothing, and its slots hold much. */
static struct fanin_handler spare = {
	.name = "spare",
	.description = "refuses all contributions",
	.slot_mbufs = { .fixed = 1, .per_buffer = 2, .per_pair = 3 },
	.counters = spare_counters,
	.parameters = spare_parameters,
	.state_bytes = sizeof(struct spare_state),
	.slot_bytes = 8,
	.contribution = spare_contribution,
	.slot_release = spare_release,
};

/* A handler of multicast jobs, which has no slots. */
static struct fanin_handler caster = {
	.name = "spare_caster",
	.description = "refuses all contributions of a multicast job",
	.shape = FANIN_SHAPE_MULTICAST,
	.slots_of = FANIN_SLOTS_NONE,
	.contribution = spare_contribution,
};

START_TEST(handlers_are_listed_once_each_by_name)
{
	const struct fanin_handler *last = NULL;
	bool found = false;

	for (const struct fanin_handler *handler = fanin_handler_first(); handler != NULL;
	     handler = handler->next) {
		ck_assert(last == NULL || strcmp(last->name, handler->name) < 0);
		ck_assert_ptr_eq(fanin_handler_find(handler->name), handler);
		ck_assert((fanin_slot_mbufs(handler, 1, 1, 1) == 0) ==
			  (handler->slots_of == FANIN_SLOTS_NONE));
		found = found || handler == &spare;
		last = handler;
	}
	ck_assert(found);
	ck_assert_ptr_null(fanin_handler_find("spar"));
}
END_TEST

START_TEST(buffers_count_as_far_as_there_are_children)
{
	ck_assert_uint_eq(fanin_slot_mbufs(&spare, 1, 1, 4), 1 + 2 + 3);
	ck_assert_uint_eq(fanin_slot_mbufs(&spare, 4, 2, 4), 1 + 2 * 4 + 3 * 2);
	ck_assert_uint_eq(fanin_slot_mbufs(&spare, 5, 3, 4), 1 + 2 * 4 + 3 * 3);
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
	struct job_spec spec = {
		.key = 1, .handler = "spare", .n_members = 4, .reproducible = true
	};
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
	ck_assert_uint_le((job->params.slots.mask + 1) * 11, sw.pipeline->jobs->mbufs_per_job);
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
		spec.members[rank].ranks = fanin_ranks_one(rank);
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

#define PARENT_EPOCH 77

static uint8_t taken[4096];

/*
 * Puts in a packet of the parent of the job, which the test plays: on host 3's port. Packets for
 * all children go to the group.
 */
static void
put_from_parent(const struct job *job, enum fanin_type type, uint32_t epoch, const void *body,
		uint32_t body_len)
{
	uint8_t frame[4096];
	struct fanin_headers *headers = (struct fanin_headers *)frame;
	size_t len = host_packet(&sw, 3, type, job->params.id, epoch, body, body_len, headers);

	memcpy(headers->eth.src, job->parent_mac, sizeof(job->parent_mac));
	headers->fanin.key = job->params.keys.down;
	if (fanin_type_class((uint8_t)type) == FANIN_CLASS_BLOCK) {
		memcpy(headers->eth.dst, job->params.result_headers.eth.dst,
		       sizeof(headers->eth.dst));
		headers->ip.dst_be = job->group_be;
		headers->ip.checksum_be = 0;
		headers->ip.checksum_be = fanin_ip_checksum(&headers->ip);
		headers->udp.src_be = sw.pipeline->udp_port_be;
		headers->fanin.rank = 0;
	}
	if (type == FANIN_TYPE_RESULT) {
		headers->fanin.contributions = 6;
		headers->fanin.dtype = FANIN_WIRE_F32;
		headers->fanin.op = FANIN_WIRE_SUM;
		headers->fanin.count = (uint16_t)(body_len / sizeof(float));
	}
	ring_switch_put(&sw, 3, frame, len);
}

/*
 * Makes a switch with a job of a handler below another switch, which lets it join.
 *
 * slots: of the job. window, flags: as the parent says. The job has a run if both agree.
 */
static struct job *
join_below_parent(const char *handler, uint32_t slots, uint16_t window, uint32_t flags)
{
	static const uint8_t parent_mac[6] = { 2, 0, 0, 0, 2, 9 };
	const struct fanin_headers *got = (const struct fanin_headers *)taken;
	struct job_spec spec = { .key = RING_SWITCH_KEY,
				 .handler = handler,
				 .slots = slots,
				 .n_ranks = 6,
				 .n_members = 3,
				 .has_parent = true,
				 .parent = { .port = 3, .ip_be = host_ip_be(3) } };
	struct fanin_join_ack_body ack = {
		.state = FANIN_JOIN_ACTIVE, .size = 6, .window = window, .flags = flags
	};
	char error[PIPELINE_ERROR_LEN];
	uint8_t answer[4096];
	const char *code;
	struct job *job;

	ring_switch_eal();
	ring_switch_open(&sw, 4, 1, NULL);
	for (uint16_t i = 0; i < 3; i++) {
		spec.members[i].port = i;
		spec.members[i].ip_be = host_ip_be(i);
		spec.members[i].ranks = fanin_ranks_one(i);
	}
	memcpy(spec.parent.mac, parent_mac, sizeof(parent_mac));
	ck_assert_msg(job_create(sw.pipeline, &spec, &job, &code, error) == 0, "%s", error);
	for (unsigned int i = 0; i < 3; i++)
		ck_assert_ptr_nonnull(host_sends_join(&sw, i, job->params.id, 7 + i, 6,
						      (struct fanin_headers *)answer));
	ck_assert_uint_gt(ring_switch_take(&sw, 3, taken), 0);
	ck_assert_uint_eq(got->fanin.type, FANIN_TYPE_JOIN);
	memcpy(&ack.nonce, got + 1, sizeof(ack.nonce));
	ack.payload_bytes = job->params.payload_bytes;
	put_from_parent(job, FANIN_TYPE_JOIN_ACK, PARENT_EPOCH, &ack, sizeof(ack));
	return job;
}

static const struct {
	const char *handler;
	uint16_t window; /* of the parent; the job's is 2 */
	uint32_t flags;  /* of the parent */
	bool agree;
} parents[] = {
	{ "single", 2, 0, true },
	{ "single", 1, 0, false },
	{ "single", 2, FANIN_JOB_MULTICAST, false },
	{ "spare_caster", 2, FANIN_JOB_MULTICAST, true },
	/* For these handlers nothing waits in slots. */
	{ "spare_caster", 1, FANIN_JOB_MULTICAST, true },
	{ "spare_caster", 2, 0, false },
};

START_TEST(a_parent_has_to_run_a_job_of_the_same_kind)
{
	const struct job *job = join_below_parent(parents[_i].handler, 4, parents[_i].window,
						  parents[_i].flags);

	ck_assert_uint_eq(job->params.window, 2);
	ck_assert_int_eq(job->epoch != 0, parents[_i].agree);
	ring_switch_close(&sw);
}
END_TEST

/* Makes such a job with a run. */
static struct job *
begin_below_parent(const char *handler)
{
	struct job *job = join_below_parent(handler, 2, 1, 0);

	ck_assert_uint_ne(job->epoch, 0);
	for (uint16_t p = 0; p < 4; p++) {
		while (ring_switch_take(&sw, p, taken) != 0)
			;
	}
	return job;
}

/*
 * A handler that takes only contributions, in which nothing ever waits, below another switch. _i:
 * the parent's packet.
 */
START_TEST(a_handler_that_takes_contributions_only_may_have_a_parent)
{
	const struct fanin_headers *got = (const struct fanin_headers *)taken;
	float elements[RING_SWITCH_COUNT] = { 0 };
	struct job *job = begin_below_parent("spare");

	if (_i == 0) {
		put_from_parent(job, FANIN_TYPE_PROBE, PARENT_EPOCH, NULL, 0);
		ck_assert_uint_gt(ring_switch_take(&sw, 3, taken), 0);
		ck_assert_uint_eq(got->fanin.type, FANIN_TYPE_PROBE_ACK);
	} else {
		put_from_parent(job, FANIN_TYPE_RESULT, PARENT_EPOCH, elements, sizeof(elements));
		ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_TYPE), 1);
	}
	ring_switch_close(&sw);
}
END_TEST

#define NEWS 200 /* the code of a type that goes to all children */

static const uint8_t listener_types[] = { NEWS, 0 };
static unsigned int n_news;

static enum fanin_verdict
listener_other(struct fanin_handler_ctx *ctx, void *slot, uint32_t index,
	       struct fanin_packet *packet, enum fanin_reason *reason)
{
	(void)ctx;
	(void)slot;
	(void)index;
	(void)packet;
	(void)reason;
	n_news++;
	return FANIN_VERDICT_FREE;
}

static struct fanin_handler listener = {
	.name = "spare_listener",
	.description = "counts what the parent sends",
	.slot_mbufs = { .fixed = 1 },
	.slot_bytes = 8,
	.contribution = spare_contribution,
	.types = listener_types,
	.other = listener_other,
	.slot_release = spare_release,
};

static uint64_t
never(const struct fanin_job_params *params)
{
	(void)params;
	return UINT64_MAX;
}

/*
 * Packets of the parent to the job's group are for the switch, whatever type of a handler they
 * have, and go to no port.
 */
START_TEST(a_registered_type_of_the_parent_comes_to_the_group)
{
	static const struct fanin_packet_type news = { .name = "NEWS",
						       .text = "for all children",
						       .code = NEWS,
						       .direction = FANIN_DOWN,
						       .class = FANIN_CLASS_BLOCK,
						       .payload = FANIN_PAYLOAD_NOTHING };
	struct job *job;

	ck_assert_int_eq(fanin_wire_register_type(&news), 0);
	job = begin_below_parent("spare_listener");
	put_from_parent(job, (enum fanin_type)NEWS, PARENT_EPOCH, NULL, 0);
	ck_assert_uint_eq(n_news, 1);
	for (uint16_t p = 0; p < 4; p++)
		ck_assert_uint_eq(ring_switch_take(&sw, p, taken), 0);
	ring_switch_close(&sw);
}
END_TEST

/* Each of these is invalid in one way. */
START_TEST(a_handler_that_makes_no_sense_is_refused_with_the_reason)
{
	static const struct fanin_counter many[FANIN_OWN_COUNTERS_MAX + 2] = {
		[0 ... FANIN_OWN_COUNTERS_MAX] = { "one", "of too many" }
	};
	static const struct fanin_parameter odd[] = { { "odd", "", 5, 7, 8 }, { 0 } };
	static const struct fanin_parameter huge[] = { { "huge", "", 0, UINT64_MAX, 8 }, { 0 } };
	struct fanin_handler handler;

#define EXPECT_PROBLEM(words, change)                                                              \
	do {                                                                                       \
		const char *problem;                                                               \
		handler = spare;                                                                   \
		handler.name = "candidate";                                                        \
		change;                                                                            \
		problem = fanin_handler_problem(&handler);                                         \
		ck_assert_msg(problem != NULL && strstr(problem, words) != NULL, "%s: found %s",   \
			      words, problem == NULL ? "no problem" : problem);                    \
	} while (0)

	handler = spare;
	handler.name = "candidate";
	ck_assert_ptr_null(fanin_handler_problem(&handler));
	EXPECT_PROBLEM("name", handler.name = NULL);
	EXPECT_PROBLEM("name", handler.name = "");
	EXPECT_PROBLEM("15 characters", handler.name = "sixteen_letters_");
	EXPECT_PROBLEM("another handler's", handler.name = "spare");
	EXPECT_PROBLEM("description", handler.description = NULL);
	EXPECT_PROBLEM("contribution", handler.contribution = NULL);
	EXPECT_PROBLEM("types and other", handler.types = listener_types);
	EXPECT_PROBLEM("types and other", handler.other = listener_other);
	EXPECT_PROBLEM("timeout_ns and expired", handler.timeout_ns = never);
	EXPECT_PROBLEM("slot_mbufs", handler.slot_mbufs = (struct fanin_slot_mbufs){ 0 });
	EXPECT_PROBLEM("slot_mbufs", handler.slots_of = FANIN_SLOTS_NONE);
	EXPECT_PROBLEM("slot_size", handler.slot_bytes = 0);
	EXPECT_PROBLEM("slot_size", handler.slot_size = never);
	EXPECT_PROBLEM("state_size", handler.state_size = never);
	EXPECT_PROBLEM("slot_release", handler.slot_release = NULL);
	EXPECT_PROBLEM("counters", handler.counters = many);
	EXPECT_PROBLEM("usual value", handler.parameters = odd);
	EXPECT_PROBLEM("INT64_MAX", handler.parameters = huge);
#undef EXPECT_PROBLEM
}
END_TEST

static const struct fanin_packet_type taken_name[] = {
	{ .name = "QUERY",
	  .text = "as a type of the tree",
	  .code = NEWS,
	  .class = FANIN_CLASS_BLOCK },
	{ 0 },
};

static const struct fanin_packet_type taken_code[] = {
	{ .name = "QUESTION",
	  .text = "a code of the tree",
	  .code = 10,
	  .class = FANIN_CLASS_BLOCK },
	{ 0 },
};

/* These end the process with a line that names them; _i: which one. */
START_TEST(a_handler_that_cannot_be_registered_ends_the_program)
{
	struct fanin_handler *handler = malloc(sizeof(*handler));

	ck_assert_ptr_nonnull(handler);
	*handler = spare;
	if (_i > 0) {
		handler->name = "candidate";
		handler->packets = _i == 1 ? taken_name : taken_code;
	}
	fanin_handler_register(handler);
}
END_TEST

/*
 * Registered here, not before main: other suites of this program use all registered handlers that
 * reduce.
 */
static void
setup(void)
{
	if (fanin_handler_find(spare.name) != NULL)
		return;
	fanin_handler_register(&spare);
	fanin_handler_register(&caster);
	fanin_handler_register(&listener);
}

Suite *
suite_registry(void)
{
	Suite *suite = suite_create("registry");
	TCase *tcase = tcase_create("registry");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, handlers_are_listed_once_each_by_name);
	tcase_add_test(tcase, buffers_count_as_far_as_there_are_children);
	tcase_add_test(tcase, one_handler_suits_each_size_of_message);
	tcase_add_test(tcase, a_job_has_the_handler_that_it_names);
	tcase_add_test(tcase, a_job_has_the_parameters_and_counters_of_its_handler);
	tcase_add_loop_test(tcase, a_parent_has_to_run_a_job_of_the_same_kind, 0,
			    (int)RTE_DIM(parents));
	tcase_add_loop_test(tcase, a_handler_that_takes_contributions_only_may_have_a_parent, 0, 2);
	tcase_add_test(tcase, a_registered_type_of_the_parent_comes_to_the_group);
	tcase_add_test(tcase, a_handler_that_makes_no_sense_is_refused_with_the_reason);
	tcase_add_loop_test_raise_signal(tcase,
					 a_handler_that_cannot_be_registered_ends_the_program,
					 SIGABRT, 0, 3);
	suite_add_tcase(suite, tcase);
	return suite;
}
