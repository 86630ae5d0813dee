/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests of reading the network manager's answer to a join of a job whose blocks have leaders: it
 * has all values that a switch would tell, and an error names each invalid part. Other answers are
 * tested by the net tests.
 */
#include <stdio.h>
#include <string.h>

#include <arpa/inet.h>
#include <check.h>

#include "hostlib/src/comm/comm.h"
#include "hostlib/src/manager/manager_internal.h"
#include "tests/unit/suites.h"

static const char good[] =
	"{\"rank\":1,\"size\":2,\"mode\":\"network\",\"shape\":\"leaders\",\"handler\":\"canary\",\"trees\":1,\"trees_asked\":1,"
	"\"window\":64,\"payload_bytes\":1408,\"slots\":16,\"sharing\":3,\"parameters\":[100,0,70000],\"job\":17,\"key\":\"0x1234\","
	"\"generation\":1,\"ip\":\"10.77.1.1\",\"switch_ip\":\"10.77.1.254\",\"udp_port\":21930,\"authenticated\":false,"
	"\"peers\":[{\"rank\":0,\"ip\":\"10.77.0.1\",\"switch_ip\":\"10.77.0.254\"},"
	"{\"rank\":1,\"ip\":\"10.77.1.1\",\"switch_ip\":\"10.77.1.254\"}]}";

static struct fanin_manager_answer answer;
static struct fanin_error error;

/*
 * Reads the valid answer with one member replaced or removed. json: NULL: removed; key: NULL: no
 * member. Returns the status.
 */
static int
read_with(const char *key, const char *json)
{
	struct fanin_manager manager = { .settings.address = "10.0.0.1:21932" };
	json_t *result = json_loads(good, 0, NULL);
	int status;

	ck_assert_ptr_nonnull(result);
	if (key != NULL && json == NULL)
		json_object_del(result, key);
	else if (key != NULL)
		json_object_set_new(result, key, json_loads(json, JSON_DECODE_ANY, NULL));
	memset(&error, 0, sizeof(error));
	status = fanin_manager_read_answer(&manager, result, 2, &answer, &error);
	json_decref(result);
	return status;
}

START_TEST(an_answer_has_what_a_switch_would_tell)
{
	ck_assert_msg(read_with(NULL, NULL) == FANIN_OK, "%s", error.text);
	ck_assert(answer.has_leaders && !answer.ring);
	ck_assert_str_eq(answer.handler, "canary");
	ck_assert_uint_eq(answer.rank, 1);
	ck_assert_uint_eq(answer.window, 64);
	ck_assert_uint_eq(answer.payload_bytes, 1408);
	ck_assert_uint_eq(answer.slots, 16);
	ck_assert_uint_eq(answer.sharing_jobs, 3);
	ck_assert_uint_eq(answer.parameters[0], 100);
	ck_assert_uint_eq(answer.parameters[2], 70000);
	ck_assert_uint_eq(answer.parameters[3], 0);
	ck_assert_uint_eq(answer.trees[0].job, 17);
	ck_assert_uint_eq(answer.trees[0].key, 0x1234);
	ck_assert_uint_eq(answer.trees[0].home.switch_ip_be, inet_addr("10.77.1.254"));
	ck_assert_uint_eq(answer.trees[0].peers[0].ip_be, inet_addr("10.77.0.1"));
	fanin_manager_answer_free(&answer);
	/* Members that are useful, but not required. */
	ck_assert_int_eq(read_with("slots", NULL), FANIN_OK);
	ck_assert_uint_eq(answer.slots, 0);
	fanin_manager_answer_free(&answer);
	ck_assert_int_eq(read_with("parameters", NULL), FANIN_OK);
	fanin_manager_answer_free(&answer);
}
END_TEST

static const struct {
	const char *key;
	const char *json; /* NULL: absent */
	const char *words;
} wrong[] = {
	{ "handler", NULL, "handler nothing, expected a short name" },
	{ "handler", "\"\"", "expected a short name" },
	{ "handler", "\"a-name-of-a-handler-that-no-switch-has\"", "expected a short name" },
	{ "window", NULL, "window nothing, expected a power of two" },
	{ "window", "48", "window 48, expected a power of two" },
	{ "window", "8192", "window 8192, expected a power of two up to 4096" },
	{ "payload_bytes", NULL, "payload_bytes nothing" },
	{ "payload_bytes", "1409", "payload_bytes 1409" },
	{ "slots", "-1", "slots -1, expected a number of slots" },
	{ "sharing", "\"3\"", "expected a number of jobs" },
	{ "peers", NULL, "peers nothing, expected a list with one for each rank" },
	{ "peers", "[]", "peers [], expected a list with one for each rank" },
	{ "parameters", "{}", "parameters {}, expected a list of up to 8 numbers" },
	{ "parameters", "[1,2,3,4,5,6,7,8,9]", "expected a list of up to 8 numbers" },
	{ "parameters", "[1,-2]", "expected numbers that are not negative" },
	{ "more_trees",
	  "[{\"job\":18,\"key\":\"0x1\",\"switch_ip\":\"10.0.0.1\",\"udp_port\":21930}]",
	  "expected none, as its blocks have leaders" },
};

START_TEST(faulty_answers_are_named)
{
	ck_assert_int_eq(read_with(wrong[_i].key, wrong[_i].json), FANIN_ERR_MANAGER);
	ck_assert_msg(strstr(error.text, wrong[_i].words) != NULL, "found '%s', expected '%s'",
		      error.text, wrong[_i].words);
}
END_TEST

START_TEST(other_jobs_need_none_of_it)
{
	struct fanin_manager manager = { .settings.address = "10.0.0.1:21932" };
	json_t *result = json_loads(good, 0, NULL);

	json_object_set_new(result, "shape", json_string("tree"));
	json_object_del(result, "peers");
	json_object_del(result, "window");
	ck_assert_int_eq(fanin_manager_read_answer(&manager, result, 2, &answer, &error), FANIN_OK);
	ck_assert(!answer.has_leaders);
	json_decref(result);
	fanin_manager_answer_free(&answer);
}
END_TEST

static char logged[FANIN_TEXT_LEN];

static void
log_keep(int level, const char *line, void *arg)
{
	(void)level;
	(void)arg;
	snprintf(logged, sizeof(logged), "%s", line);
}

START_TEST(events_are_told_in_words)
{
	static const char *const cases[][2] = {
		{ "{\"event\":\"member_lost\",\"job\":\"j\",\"rank\":2}",
		  "job \"j\": member lost: rank 2" },
		{ "{\"event\":\"members_silent\",\"job\":\"j\",\"ranks\":[3,5]}",
		  "job \"j\": members silent: ranks 3, 5" },
		{ "{\"event\":\"members_silent\",\"job\":\"j\",\"ranks\":[]}",
		  "job \"j\": members silent: none any more" },
		{ "{\"event\":\"link_lost\",\"job\":\"j\",\"switch\":\"leaf0\",\"port\":\"p1\"}",
		  "job \"j\": link lost: switch leaf0, port p1" },
		{ "{\"event\":\"restored\",\"job\":\"j\",\"tree\":1,\"reason\":\"\"}",
		  "job \"j\": restored (tree 1)" },
		{ "{\"event\":\"moved\",\"job\":\"j\",\"tree\":0,\"generation\":2,\"ip\":\"10.0.0.1\","
		  "\"switch_ip\":\"10.0.1.254\",\"udp_port\":21930}",
		  "job \"j\": moved to the switch 10.0.1.254" },
		{ "{\"event\":\"no_path\",\"job\":\"j\",\"tree\":0,\"reason\":\"two\\nlines\"}",
		  "job \"j\": no path: two lines" },
		/* An event of a newer manager. */
		{ "{\"event\":\"brand_new\",\"so\":1}", "brand new" },
	};
	const struct fanin_log log = { .print = log_keep };
	struct fanin_manager manager = { .settings.address = "10.0.0.1:21932",
					 .options.log = &log };
	char expected[FANIN_TEXT_LEN];
	json_t *result;
	int status;

	snprintf(expected, sizeof(expected), "the manager 10.0.0.1:21932 says: %s", cases[_i][1]);
	ck_assert_int_eq(fanin_manager_read(&manager, cases[_i][0], &result, &status, &error),
			 FANIN_MANAGER_LINE_NONE);
	ck_assert_msg(strstr(logged, expected) != NULL && strchr(logged, '{') == NULL,
		      "found '%s', expected '%s'", logged, expected);
}
END_TEST

Suite *
suite_manager_answer(void)
{
	Suite *suite = suite_create("manager_answer");
	TCase *tcase = tcase_create("leaders");

	tcase_add_test(tcase, an_answer_has_what_a_switch_would_tell);
	tcase_add_loop_test(tcase, faulty_answers_are_named, 0, sizeof(wrong) / sizeof(wrong[0]));
	tcase_add_test(tcase, other_jobs_need_none_of_it);
	tcase_add_loop_test(tcase, events_are_told_in_words, 0, 8);
	suite_add_tcase(suite, tcase);
	return suite;
}
