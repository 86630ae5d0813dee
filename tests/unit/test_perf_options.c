/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fanin-perf's command line: the options that reach the library, and command lines that are refused
 * with status 2.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/suites.h"
#include "tools/perf.h"
#include "tools/perf_values.h"

#define MAX_ARGUMENTS 24

static struct options options;

/* Parses a command line: the words of a text, without the program's name. */
static void
parse(const char *text)
{
	static char copy[512];
	char *argv[MAX_ARGUMENTS + 1] = { (char *)"fanin-perf" };
	int argc = 1;

	ck_assert_uint_lt(strlen(text), sizeof(copy));
	memcpy(copy, text, strlen(text) + 1);
	for (char *word = strtok(copy, " "); word != NULL; word = strtok(NULL, " ")) {
		ck_assert_int_lt(argc, MAX_ARGUMENTS);
		argv[argc++] = word;
	}
	optind = 0; /* getopt starts again */
	options_parse(&options, argc, argv);
}

#define ON_SWITCH "--switch 10.77.0.254 --job 3 --rank 1 --size 2 --key 0x1234"
#define AT_MANAGER "--job-name training --size 2"

START_TEST(both_ways_to_a_job_are_as_given)
{
	parse(ON_SWITCH);
	ck_assert_str_eq(options.join.switch_address, "10.77.0.254");
	ck_assert_uint_eq(options.join.job, 3);
	ck_assert_uint_eq(options.join.rank, 1);
	ck_assert_uint_eq(options.join.key, 0x1234);
	ck_assert_ptr_null(options.join.job_name);
	parse(AT_MANAGER " --accumulate f32 --trees 3 --no-fallback");
	ck_assert_str_eq(options.join.job_name, "training");
	ck_assert(options.join.accumulate_f32 && options.join.no_fallback);
	ck_assert_uint_eq(options.join.trees, 3);
	ck_assert(!options.join.fixed_rank);
	parse(AT_MANAGER " --accumulate native");
	ck_assert(!options.join.accumulate_f32);
}
END_TEST

START_TEST(authentication_is_asked_for_on_both_ways_and_off_otherwise)
{
	parse(ON_SWITCH);
	ck_assert(!options.join.authenticate);
	parse(ON_SWITCH " --authenticate");
	ck_assert(options.join.authenticate);
	parse(AT_MANAGER);
	ck_assert(!options.join.authenticate);
	parse(AT_MANAGER " --authenticate");
	ck_assert(options.join.authenticate);
}
END_TEST

START_TEST(sizes_have_units)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} sizes[] = { { "0", 0 },     { "4096", 4096 },   { "3B", 3 },        { "2k", 2000 },
		      { "2K", 2048 }, { "64KiB", 65536 }, { "5MB", 5000000 }, { "1GiB", 1 << 30 } };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		ck_assert_uint_eq(parse_bytes(sizes[i].text), sizes[i].bytes);
	ck_assert_uint_eq(parse_number("n", "0x10", 0, 16), 16);
}
END_TEST

START_TEST(sparse_vectors_are_as_given)
{
	parse(ON_SWITCH " --sparse --density 2e-3 --pattern disjoint");
	ck_assert(options.sparse);
	ck_assert(options.density == 2e-3);
	ck_assert_int_eq(options.pattern, PERF_DISJOINT);
	parse(ON_SWITCH " --sparse");
	ck_assert(options.density == 0.01);
	ck_assert_int_eq(options.pattern, PERF_UNIFORM);
	parse(ON_SWITCH);
	ck_assert(!options.sparse);
}
END_TEST

/* Writes a file for --pattern, and returns options that have it. */
static const char *
pattern_file(const char *text)
{
	static char arguments[128];
	char path[] = "/tmp/fanin-pattern-XXXXXX";
	const int descriptor = mkstemp(path);
	const size_t len = strlen(text);

	ck_assert_int_ge(descriptor, 0);
	ck_assert_int_eq(write(descriptor, text, len), (ssize_t)len);
	close(descriptor);
	snprintf(arguments, sizeof(arguments), ON_SWITCH " --sparse --pattern %s", path);
	return arguments;
}

/* Parses options of pattern_file() and more, and removes the file. */
static void
parse_and_remove(const char *arguments, const char *more)
{
	char text[256];

	snprintf(text, sizeof(text), "%s%s", arguments, more);
	parse(text);
	ck_assert_int_eq(unlink(strrchr(arguments, ' ') + 1), 0);
}

START_TEST(a_file_says_length_and_density)
{
	parse_and_remove(pattern_file("n 100\n1 2 3\n50 99\n"), "");
	ck_assert_ptr_nonnull(options.pattern_file);
	ck_assert_uint_eq(options.bytes, 400);
	ck_assert(options.density == 0.03);
	ck_assert_uint_eq(options.places.counts[1], 2);
	ck_assert_uint_eq(options.places.indices[1][1], 99);
	perf_places_free(&options.places);
	parse_and_remove(pattern_file("1 2 3\n4\n"), " --bytes 80 --dtype f64 --density 0.5");
	ck_assert_uint_eq(options.bytes, 80);
	ck_assert_uint_eq(options.places.n, 10);
	ck_assert(options.density == 0.5);
	perf_places_free(&options.places);
	parse_and_remove(pattern_file("1 2 3\n4\n"), "");
	ck_assert_uint_eq(options.bytes, 64 << 20);
	perf_places_free(&options.places);
}
END_TEST

static const char *const wrong_with_a_file[][2] = {
	{ "n 100\n1\n2\n", " --bytes 404" }, { "n 100\n1\n2\n", " --bytes 0" },
	{ "n 100\n1\n100\n", "" },           { "n 4611686018427387904\n1\n2\n", "" },
	{ "1\n20\n", " --bytes 80" },        { "1\n", "" },
};

#define N_WRONG_WITH_A_FILE (int)(sizeof(wrong_with_a_file) / sizeof(wrong_with_a_file[0]))

START_TEST(a_file_that_does_not_fit_ends_with_status_2)
{
	static char path[64];
	char text[256];

	snprintf(text, sizeof(text), "%s%s", pattern_file(wrong_with_a_file[_i][0]),
		 wrong_with_a_file[_i][1]);
	sscanf(strstr(text, "/tmp/"), "%63s", path);
	/* Only the child ends: this process removes the file. */
	const pid_t child = fork();
	int status;

	if (child == 0) {
		ck_assert_ptr_nonnull(freopen("/dev/null", "w", stderr));
		parse(text);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert(WIFEXITED(status));
	ck_assert_int_eq(WEXITSTATUS(status), 2);
}
END_TEST

static const char *const wrong[] = {
	"--authenticate",
	ON_SWITCH " --authenticate=yes",
	ON_SWITCH " authenticate",
	ON_SWITCH " --accumulate f32",
	AT_MANAGER " --accumulate f64",
	AT_MANAGER " --accumulate F32",
	ON_SWITCH " --job-name training",
	ON_SWITCH " --bytes 4x",
	ON_SWITCH " --bytes -4",
	ON_SWITCH " --bytes 9999999999GiB",
	ON_SWITCH " --bytes 5",
	ON_SWITCH " --iters 0",
	ON_SWITCH " --iters 1x",
	ON_SWITCH " --rank 2",
	ON_SWITCH " --dtype f8",
	ON_SWITCH " --op avge",
	ON_SWITCH " --dtype f32 --op band",
	ON_SWITCH " --data zero",
	ON_SWITCH " --data random --dtype i32",
	ON_SWITCH " --collective gather",
	ON_SWITCH " --memif /run/memif.sock --address 10.77.0.1",
	AT_MANAGER " --trees 9",
	ON_SWITCH " --density 0.1",
	ON_SWITCH " --pattern same",
	ON_SWITCH " --sparse --density 0",
	ON_SWITCH " --sparse --density 1.1",
	ON_SWITCH " --sparse --density nan",
	ON_SWITCH " --sparse --density 10%",
	ON_SWITCH " --sparse --pattern dense",
	ON_SWITCH " --sparse --pattern /",
	ON_SWITCH " --sparse --op avg",
	ON_SWITCH " --sparse --in-place",
	ON_SWITCH " --sparse --data random",
	ON_SWITCH " --sparse --collective reduce",
};

#define N_WRONG (int)(sizeof(wrong) / sizeof(wrong[0]))

START_TEST(wrong_options_end_with_status_2)
{
	/* The error's text is for users. */
	ck_assert_ptr_nonnull(freopen("/dev/null", "w", stderr));
	parse(wrong[_i]);
}
END_TEST

Suite *
suite_perf_options(void)
{
	Suite *suite = suite_create("perf_options");
	TCase *tcase = tcase_create("options");

	tcase_add_test(tcase, both_ways_to_a_job_are_as_given);
	tcase_add_test(tcase, authentication_is_asked_for_on_both_ways_and_off_otherwise);
	tcase_add_test(tcase, sizes_have_units);
	tcase_add_test(tcase, sparse_vectors_are_as_given);
	tcase_add_test(tcase, a_file_says_length_and_density);
	tcase_add_loop_test(tcase, a_file_that_does_not_fit_ends_with_status_2, 0,
			    N_WRONG_WITH_A_FILE);
	tcase_add_loop_exit_test(tcase, wrong_options_end_with_status_2, 2, 0, N_WRONG);
	suite_add_tcase(suite, tcase);
	return suite;
}
