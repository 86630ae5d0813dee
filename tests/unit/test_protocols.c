/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Host protocols (hostlib/src/protocol/protocol.h): the job's handler selects the protocol, a
 * protocol from outside of the tree registers itself, and communicators and public calls use only
 * its table. It is registered here like any user's.
 */
#include <stdlib.h>
#include <string.h>

#include "hostlib/src/comm/comm_join.h"
#include "tests/unit/memory_link.h"
#include "tests/unit/suites.h"

/*
 * ---------------------------------------------- a protocol of one rank: a result is what was sent,
 * a poll later
 */

struct alone {
	struct fanin_endpoint endpoint;
	struct fanin_request_list requests;
	struct fanin_error error;
	uint64_t done;
	uint16_t rank;
};

static int
alone_open(const struct fanin_protocol *protocol, const struct fanin_protocol_config *config,
	   struct fanin_endpoint **engine, struct fanin_error *error)
{
	struct alone *alone;

	if (config->size != 1)
		return fanin_error_set(error, FANIN_ERR_INVALID, "size is %u, expected 1",
				       config->size);
	alone = calloc(1, sizeof(*alone));
	ck_assert_ptr_nonnull(alone);
	alone->endpoint.protocol = protocol;
	fanin_request_list_init(&alone->requests);
	alone->rank = config->rank;
	*engine = &alone->endpoint;
	return FANIN_OK;
}

static void
alone_close(struct fanin_endpoint *engine)
{
	free(engine);
}

static int
alone_post(struct fanin_endpoint *engine, struct fanin_request *request, uint64_t count)
{
	struct alone *alone = (struct alone *)engine;

	fanin_request_layout(request, alone->rank, 1, count);
	fanin_request_list_append(&alone->requests, request);
	return FANIN_OK;
}

static int
alone_poll(struct fanin_endpoint *engine)
{
	struct alone *alone = (struct alone *)engine;
	struct fanin_request *request = alone->requests.first;

	if (request == NULL)
		return 0;
	memcpy(request->recv, request->send, request->send_bytes);
	request->done_bytes = request->total_bytes;
	alone->done++;
	fanin_request_list_finish(&alone->requests, request);
	return 1;
}

static uint64_t
alone_idle_ns(struct fanin_endpoint *engine)
{
	(void)engine;
	return 0;
}

static unsigned int
alone_poll_fds(struct fanin_endpoint *engine, struct pollfd *fds)
{
	(void)engine;
	(void)fds;
	return 0;
}

static const struct fanin_error *
alone_error(struct fanin_endpoint *engine)
{
	return &((const struct alone *)engine)->error;
}

static void
alone_missing(struct fanin_endpoint *engine, struct fanin_ranks *ranks)
{
	(void)engine;
	*ranks = (struct fanin_ranks){ 0 };
}

static void
alone_report(struct fanin_endpoint *engine, struct fanin_report *report)
{
	report->blocks = ((const struct alone *)engine)->done;
}

static const char *const alone_handlers[] = { "mirror", NULL };

static struct fanin_protocol alone = {
	.name = "alone",
	.handlers = alone_handlers,
	.collectives = 1 << FANIN_COLLECTIVE_ALLREDUCE,
	.open = alone_open,
	.close = alone_close,
	.post = alone_post,
	.poll = alone_poll,
	.idle_ns = alone_idle_ns,
	.poll_fds = alone_poll_fds,
	.error = alone_error,
	.missing = alone_missing,
	.report = alone_report,
};

FANIN_PROTOCOL_REGISTER(alone)

/* A protocol on switches: the test only checks for which jobs it is chosen. */
static const char *const echo_handlers[] = { "echo", NULL };
static const struct fanin_switch_ops echo_ops = { 0 };
static struct fanin_protocol echo = {
	.name = "echo",
	.handlers = echo_handlers,
	.collectives = 1 << FANIN_COLLECTIVE_ALLREDUCE,
	.on_switch = &echo_ops,
	.open = alone_open,
	.close = alone_close,
	.post = alone_post,
	.poll = alone_poll,
	.idle_ns = alone_idle_ns,
	.poll_fds = alone_poll_fds,
	.error = alone_error,
	.missing = alone_missing,
	.report = alone_report,
};

FANIN_PROTOCOL_REGISTER(echo)

/* A protocol whose hosts join no switch. */
static const char *const leading_handlers[] = { "leading", NULL };
static struct fanin_protocol leading = {
	.name = "leading",
	.handlers = leading_handlers,
	.has_leaders = true,
	.collectives = 1 << FANIN_COLLECTIVE_ALLREDUCE,
	.on_switch = &echo_ops,
	.open = alone_open,
	.close = alone_close,
	.post = alone_post,
	.poll = alone_poll,
	.idle_ns = alone_idle_ns,
	.poll_fds = alone_poll_fds,
	.error = alone_error,
	.missing = alone_missing,
	.report = alone_report,
};

FANIN_PROTOCOL_REGISTER(leading)

/*
 * ----------------------------------------------------------------------------------------------
 * choice
 */

static const struct {
	const char *handler;
	const char *protocol;
	const char *reason;
} choices[] = {
	{ "single", "window", "the job's handler is single" },
	{ "multi", "window", "the job's handler is multi" },
	{ "tree", "window", "the job's handler is tree" },
	{ "ring", "ring", "the job's handler is ring" },
	{ "mirror", "alone", "the job's handler is mirror" },
	{ "quad", "window",
	  "the job's handler is quad, which no protocol names: this is the usual one" },
};

START_TEST(the_handler_of_a_job_names_its_protocol)
{
	char reason[FANIN_TEXT_LEN];

	ck_assert_str_eq(fanin_protocol_of(choices[_i].handler, reason, sizeof(reason))->name,
			 choices[_i].protocol);
	ck_assert_str_eq(reason, choices[_i].reason);
}
END_TEST

static uint64_t
cut(struct fanin_endpoint *engine, struct fanin_request *request, uint64_t count)
{
	(void)engine;
	(void)request;
	return count;
}

/* Returns the first use of jobs beside others that a protocol of this build has. */
static enum fanin_beside_use
use_here(void)
{
	enum fanin_beside_use use = FANIN_BESIDE_NONE + 1;

	while (use < FANIN_BESIDE_USES && fanin_protocol_beside(use) == NULL)
		use++;
	ck_assert_int_lt(use, FANIN_BESIDE_USES);
	return use;
}

START_TEST(a_protocol_that_makes_no_sense_is_refused_with_the_reason)
{
	static const char *const other_handlers[] = { "other", NULL };
	static const char *const taken_handlers[] = { "other", "tree", NULL };
	static const struct fanin_switch_ops half = { .cut = cut };
	static const struct fanin_switch_ops nothing = { 0 };
	struct fanin_switch_ops one;
	struct fanin_protocol protocol;
	char reason[FANIN_TEXT_LEN];

#define EXPECT_PROBLEM(words, change)                                                              \
	do {                                                                                       \
		const char *problem;                                                               \
		protocol = alone;                                                                  \
		protocol.name = "other";                                                           \
		protocol.handlers = other_handlers;                                                \
		change;                                                                            \
		problem = fanin_protocol_problem(&protocol);                                       \
		ck_assert_msg(problem != NULL && strstr(problem, words) != NULL, "%s: found %s",   \
			      words, problem == NULL ? "no problem" : problem);                    \
	} while (0)

	protocol = alone;
	protocol.name = "other";
	protocol.handlers = other_handlers;
	ck_assert_ptr_null(fanin_protocol_problem(&protocol));
	/* A protocol may leave out functions for jobs with several trees, and for lost runs. */
	protocol.on_switch = &nothing;
	ck_assert_ptr_null(fanin_protocol_problem(&protocol));
	ck_assert(!fanin_protocol_splits(&protocol));
	ck_assert(!fanin_protocol_recovers(&protocol));
	/* To end with its job it needs only this function. */
	one = (struct fanin_switch_ops){
		.abort = fanin_protocol_of("single", reason, sizeof(reason))->on_switch->abort
	};
	protocol.on_switch = &one;
	ck_assert_ptr_null(fanin_protocol_problem(&protocol));
	/* A protocol may support resumed runs without several trees, or vice versa. */
	one = *fanin_protocol_of("single", reason, sizeof(reason))->on_switch;
	protocol.on_switch = &one;
	ck_assert_ptr_null(fanin_protocol_problem(&protocol));
	one.cut = NULL;
	one.accepts = NULL;
	ck_assert_ptr_null(fanin_protocol_problem(&protocol));
	one.abort = NULL;
	EXPECT_PROBLEM("all or none", protocol.on_switch = &one);
	EXPECT_PROBLEM("name", protocol.name = NULL);
	EXPECT_PROBLEM("another protocol's", protocol.name = "window");
	EXPECT_PROBLEM("handlers", protocol.handlers = NULL);
	EXPECT_PROBLEM("runs the jobs", protocol.handlers = taken_handlers);
	EXPECT_PROBLEM("usual", protocol.is_usual = true);
	EXPECT_PROBLEM("same use", protocol.beside = use_here());
	EXPECT_PROBLEM("poll_fds", protocol.poll_fds = NULL);
	EXPECT_PROBLEM("all or none", protocol.on_switch = &half);
#undef EXPECT_PROBLEM
}
END_TEST

START_TEST(a_job_beside_another_needs_a_protocol_of_this_build)
{
	const struct fanin_join_opts options = { .job_name = "job" };
	struct fanin_ctx context = { .transport = "udp" };
	struct fanin_comm joined = { .ctx = &context, .protocol = &echo };

	ck_assert_ptr_null(fanin_comm_beside_obstacle(&joined, &options, use_here(), ""));
	/* No protocol is for this. */
	ck_assert_str_eq(fanin_comm_beside_obstacle(&joined, &options, FANIN_BESIDE_USES, ""),
			 "this library was built without the protocol of such a job");
}
END_TEST

static const struct {
	const char *handler;
	bool multicast;
	const char *protocol; /* NULL: none */
	const char *words;    /* in the reason, or in the error */
} choices_on_switch[] = {
	{ "single", false, "window", "the job's handler is single" },
	{ "quad", false, "window", "which no protocol names" },
	{ "quad", true, NULL,
	  "job 7 is a multicast job: its handler quad sends packets of each rank to all others and reduces nothing" },
	{ "multicast", true, NULL,
	  "a protocol for the handler multicast, which this library has not" },
	{ "echo", true, "echo", "the job's handler is echo" },
	{ "ring", false, NULL,
	  "job 7 has the handler ring, whose protocol ring runs without a switch" },
	{ "leading", false, NULL,
	  "job 7 has the handler leading and is joined at a switch, but in its protocol leading hosts lead blocks and join none" },
};

START_TEST(a_multicast_job_takes_a_protocol_that_names_its_handler)
{
	const struct fanin_protocol *found = NULL;
	char reason[FANIN_TEXT_LEN] = "";
	struct fanin_error error = { 0 };
	const int status = fanin_protocol_on_switch(7, choices_on_switch[_i].handler,
						    choices_on_switch[_i].multicast, &found, reason,
						    sizeof(reason), &error);

	if (choices_on_switch[_i].protocol == NULL) {
		ck_assert_int_eq(status, FANIN_ERR_UNSUPPORTED);
		ck_assert_ptr_null(found);
		ck_assert_msg(strstr(error.text, choices_on_switch[_i].words) != NULL, "%s",
			      error.text);
	} else {
		ck_assert_int_eq(status, FANIN_OK);
		ck_assert_str_eq(found->name, choices_on_switch[_i].protocol);
		ck_assert_msg(strstr(reason, choices_on_switch[_i].words) != NULL, "%s", reason);
	}
}
END_TEST

START_TEST(a_job_with_leaders_takes_only_a_protocol_that_has_them)
{
	const struct fanin_protocol *found = NULL;
	char reason[FANIN_TEXT_LEN] = "";
	struct fanin_error error = { 0 };

	ck_assert_int_eq(fanin_protocol_with_leaders(7, "leading", &found, reason, sizeof(reason),
						     &error),
			 FANIN_OK);
	ck_assert_ptr_eq(found, &leading);
	ck_assert_int_eq(fanin_protocol_with_leaders(7, "quad", &found, reason, sizeof(reason),
						     &error),
			 FANIN_ERR_UNSUPPORTED);
	ck_assert_msg(strstr(error.text, "job 7 has the handler quad, whose hosts lead blocks") !=
			      NULL,
		      "%s", error.text);
}
END_TEST

START_TEST(options_that_do_not_go_with_leaders_are_refused_by_name)
{
	const struct fanin_ctx context = { .transport = "auto" };
	const struct fanin_join_opts wrong[] = { { .memif_socket = "/none" },
						 { .authenticate = true },
						 { .accumulate_f32 = true },
						 { .reproducible = true },
						 { .trees = 2 } };
	static const char *const words[] = { "memif", "authenticate", "accumulate_f32",
					     "reproducible", "several trees" };
	const struct fanin_join_opts usual = { .trees = 1 };
	struct fanin_error error = { 0 };

	ck_assert_int_eq(fanin_comm_leaders_check(&context, &usual, "leading", &error), FANIN_OK);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		ck_assert_int_eq(fanin_comm_leaders_check(&context, &wrong[i], "leading", &error),
				 FANIN_ERR_INVALID);
		ck_assert_msg(strstr(error.text, words[i]) != NULL, "%s", error.text);
		/* For other handlers these options are allowed. */
		ck_assert_int_eq(fanin_comm_leaders_check(&context, &wrong[i], "single", &error),
				 FANIN_OK);
		ck_assert_int_eq(fanin_comm_leaders_check(&context, &wrong[i], NULL, &error),
				 FANIN_OK);
	}
}
END_TEST

/*
 * ------------------------------------------------------------------------------------------------
 * use
 */

static struct fanin_ctx ctx;
static struct fanin_comm comm;

static void
comm_open(void)
{
	const struct fanin_join_opts options = { .timeout_ms = 1000 };
	struct fanin_protocol_config config = { .listener = -1 };

	ctx = (struct fanin_ctx){ 0 };
	comm = (struct fanin_comm){
		.ops = &fanin_comm_single_ops,
		.ctx = &ctx,
		.member.config = { .size = 1 },
	};
	comm.protocol = fanin_protocol_of("mirror", comm.protocol_reason,
					  sizeof(comm.protocol_reason));
	ck_assert_int_eq(fanin_comm_engine_open(&comm, &options, &config, &ctx.error), FANIN_OK);
	ctx.comms = &comm;
}

static void
comm_close(void)
{
	ck_assert_ptr_null(comm.requests);
	ck_assert_int_eq(comm.ops->leave(&comm, &ctx.error), FANIN_OK);
}

START_TEST(collectives_run_on_a_protocol_from_outside_the_tree)
{
	struct fanin_report report = { .sz = sizeof(report) };
	const int32_t send[3] = { 1, -2, 3 };
	int32_t recv[3] = { 0 };

	comm_open();
	for (int i = 0; i < 5; i++) {
		memset(recv, 0, sizeof(recv));
		ck_assert_int_eq(fanin_allreduce(send, recv, 3, FANIN_I32, FANIN_SUM, &comm),
				 FANIN_OK);
		ck_assert_mem_eq(send, recv, sizeof(send));
	}
	ck_assert_int_eq(fanin_comm_report(&comm, &report), FANIN_OK);
	ck_assert_str_eq(report.protocol, "alone");
	ck_assert_str_eq(report.protocol_reason, "the job's handler is mirror");
	ck_assert_str_eq(report.mode, "alone");
	ck_assert(!report.in_network);
	ck_assert_uint_eq(report.blocks, 5);
	comm_close();
}
END_TEST

START_TEST(a_collective_that_a_protocol_lacks_is_refused_by_name)
{
	fanin_request *request = NULL;
	int32_t vector[3] = { 1, 2, 3 };

	comm_open();
	ck_assert_int_eq(fanin_ibroadcast(vector, 3, FANIN_I32, 0, &comm, &request),
			 FANIN_ERR_UNSUPPORTED);
	ck_assert_ptr_null(request);
	ck_assert_str_eq(fanin_ctx_error(&ctx),
			 "the protocol alone, which this job runs, has no broadcast");
	ck_assert_int_eq(fanin_ireduce(vector, vector, 3, FANIN_I32, FANIN_CUSTOM(200), 0, &comm,
				       &request),
			 FANIN_ERR_UNSUPPORTED);
	comm_close();
}
END_TEST

/* The protocol has no functions for lost runs and several trees: these are never called. */
START_TEST(a_protocol_on_switches_may_leave_out_what_it_does_not_do)
{
	static const struct fanin_switch_ops nothing = { 0 };
	struct fanin_report report = { .sz = sizeof(report) };
	struct fanin_protocol on_switch = alone;
	const int32_t send[3] = { 1, -2, 3 };
	int32_t recv[3] = { 0 };

	on_switch.on_switch = &nothing;
	comm_open();
	comm.protocol = &on_switch;
	comm.trees.n = 1;
	ck_assert_int_eq(fanin_allreduce(send, recv, 3, FANIN_I32, FANIN_SUM, &comm), FANIN_OK);
	ck_assert_mem_eq(send, recv, sizeof(send));
	ck_assert_int_eq(fanin_comm_report(&comm, &report), FANIN_OK);
	ck_assert_str_eq(report.mode, "network");
	ck_assert(report.in_network);
	fanin_comm_close_begin(&comm);
	comm_close();
}
END_TEST

START_TEST(a_protocols_failure_to_open_is_told)
{
	const struct fanin_join_opts options = { 0 };
	struct fanin_protocol_config config = { 0 };

	comm = (struct fanin_comm){ .ctx = &ctx, .protocol = &alone, .member.config.size = 3 };
	ck_assert_int_eq(fanin_comm_engine_open(&comm, &options, &config, &ctx.error),
			 FANIN_ERR_INVALID);
	ck_assert_ptr_null(comm.endpoint);
	ck_assert_str_eq(ctx.error.text, "size is 3, expected 1");
}
END_TEST

/*
 * ----------------------------------------------------------------------------------------------
 * clock
 */

#define TIMEOUT_NS (5 * 1000000000ull)
#define STEP_NS (50 * 1000000ull)

static uint64_t
played_now(void *arg)
{
	return *(const uint64_t *)arg;
}

static void
frame_lose(struct memory_link *link, const void *frame, uint32_t len)
{
	(void)link;
	(void)frame;
	(void)len;
}

static size_t
nothing_take(struct memory_link *link, void *frame)
{
	(void)link;
	(void)frame;
	return 0;
}

/* Seconds of its clock pass in as many polls as the test makes. */
START_TEST(a_protocol_has_the_clock_that_it_is_given)
{
	char reason[FANIN_TEXT_LEN];
	const struct fanin_protocol *window = fanin_protocol_of("single", reason, sizeof(reason));
	struct memory_link *link = calloc(1, sizeof(*link));
	uint64_t now_ns = TIMEOUT_NS;
	const struct fanin_protocol_config config = {
		.timeout_ns = TIMEOUT_NS,
		.size = 2,
		.now_ns = played_now,
		.now_arg = &now_ns,
		.transport = &link->transport,
		.window = 64,
		.payload_bytes = 1024,
		.listener = -1,
	};
	struct fanin_request request = { .dtype = FANIN_U8, .op = FANIN_BOR };
	struct fanin_error error;
	unsigned int polls = 0;
	struct fanin_endpoint *engine;

	ck_assert_ptr_nonnull(link);
	memory_link_init(link, frame_lose, nothing_take);
	ck_assert_int_eq(window->open(window, &config, &engine, &error), FANIN_OK);
	ck_assert_int_eq(window->post(engine, &request, 0), FANIN_OK);
	while (request.status == FANIN_IN_PROGRESS) {
		ck_assert_uint_le(++polls, TIMEOUT_NS / STEP_NS + 1);
		now_ns += STEP_NS;
		window->poll(engine);
	}
	ck_assert_int_eq(request.status, FANIN_ERR_TIMEOUT);
	ck_assert_uint_ge(polls, TIMEOUT_NS / STEP_NS);
	window->close(engine);
	free(link);
}
END_TEST

Suite *
suite_protocols(void)
{
	Suite *suite = suite_create("protocols");
	TCase *choice = tcase_create("choice");
	TCase *use = tcase_create("use");

	tcase_add_loop_test(choice, the_handler_of_a_job_names_its_protocol, 0,
			    (int)(sizeof(choices) / sizeof(choices[0])));
	tcase_add_test(choice, a_protocol_that_makes_no_sense_is_refused_with_the_reason);
	tcase_add_test(choice, a_job_beside_another_needs_a_protocol_of_this_build);
	tcase_add_loop_test(choice, a_multicast_job_takes_a_protocol_that_names_its_handler, 0,
			    (int)(sizeof(choices_on_switch) / sizeof(choices_on_switch[0])));
	tcase_add_test(choice, a_job_with_leaders_takes_only_a_protocol_that_has_them);
	tcase_add_test(choice, options_that_do_not_go_with_leaders_are_refused_by_name);
	suite_add_tcase(suite, choice);
	tcase_add_test(use, collectives_run_on_a_protocol_from_outside_the_tree);
	tcase_add_test(use, a_collective_that_a_protocol_lacks_is_refused_by_name);
	tcase_add_test(use, a_protocol_on_switches_may_leave_out_what_it_does_not_do);
	tcase_add_test(use, a_protocols_failure_to_open_is_told);
	tcase_add_test(use, a_protocol_has_the_clock_that_it_is_given);
	suite_add_tcase(suite, use);
	return suite;
}
