/* SPDX-License-Identifier: BSD-3-Clause */
/* A table of options (control/cli.h): what getopt_long() makes of it, and how the help looks. */
#include <check.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "control/cli.h"
#include "control/options.h"
#include "tests/unit/suites.h"

#define LINE_LEN 96

enum {
	WITH_VALUE = 256,
	FLAG,
	LONG
};

static const struct cli_option table[] = {
	{ "file", "FILE", 'f', "short" },
	{ "watch", "[SECONDS]", 'w', "first line\nsecond line" },
	{ "value", "N", WITH_VALUE,
	  "a text that is longer than a line has room for, so that it is broken between words and goes on below" },
	{ "flag", NULL, FLAG, "none" },
	{ "a-name-that-is-far-too-long", "ARGUMENT", LONG, "below" },
	{ 0 },
};
static const struct cli_option others[] = {
	{ "flag", "X", 'x', "hidden by the first" },
	{ "other", NULL, 'o', "another" },
	{ 0 },
};

/* Parses words; returns the codes in a static string, with values in parentheses. */
static const char *
parsed(char **argv, int argc, int stop)
{
	static char text[256];
	struct cli cli;
	size_t len = 0;
	int code;

	cli_prepare(&cli, table, others, stop);
	text[0] = '\0';
	optind = 0;
	opterr = 0;
	while ((code = getopt_long(argc, argv, cli.letters, cli.long_options, NULL)) != -1)
		len += (size_t)snprintf(text + len, sizeof(text) - len, "%d(%s)", code,
					optarg == NULL ? "" : optarg);
	snprintf(text + len, sizeof(text) - len, "+%d", argc - optind);
	return text;
}

#define PARSED(stop, ...)                                                                          \
	({                                                                                         \
		char *argv[] = { (char[]){ "program" }, __VA_ARGS__, NULL };                       \
		parsed(argv, (int)(sizeof(argv) / sizeof(argv[0])) - 1, stop);                     \
	})
#define WORD(text) ((char[]){ text })

START_TEST(options_are_taken_by_name_and_by_letter)
{
	ck_assert_str_eq(PARSED(0, WORD("--file"), WORD("a"), WORD("-fb"), WORD("--flag")),
			 "102(a)102(b)257()+0");
	ck_assert_str_eq(PARSED(0, WORD("-w"), WORD("-w2"), WORD("--watch=3"), WORD("-o")),
			 "119()119(2)119(3)111()+0");
	ck_assert_str_eq(PARSED(0, WORD("--value")), "63()+0");
	ck_assert_str_eq(PARSED(0, WORD("--none")), "63()+0");
}
END_TEST

START_TEST(the_first_word_that_is_no_option_ends_them_if_asked)
{
	ck_assert_str_eq(PARSED(1, WORD("-o"), WORD("word"), WORD("--flag")), "111()+2");
	ck_assert_str_eq(PARSED(0, WORD("-o"), WORD("word"), WORD("--flag")), "111()257()+1");
}
END_TEST

START_TEST(names_are_found_by_their_codes)
{
	for (const struct cli_option *option = table; option->name != NULL; option++)
		ck_assert_str_eq(cli_option_name(table, option->code), option->name);
}
END_TEST

START_TEST(the_help_is_broken_between_words_and_aligned)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	ck_assert_ptr_nonnull(out);
	cli_print_options(out, table);
	fclose(out);
	ck_assert_str_eq(text,
			 "  -f, --file FILE        short\n"
			 "  -w, --watch [SECONDS]  first line\n"
			 "                         second line\n"
			 "      --value N          a text that is longer than a line has room for, so that it is broken\n"
			 "                         between words and goes on below\n"
			 "      --flag             none\n"
			 "      --a-name-that-is-far-too-long ARGUMENT\n"
			 "                         below\n");
	for (const char *line = text; *line != '\0'; line = strchr(line, '\n') + 1)
		ck_assert_uint_le(strcspn(line, "\n"), LINE_LEN);
	free(text);
}
END_TEST

/* Whether a core dump of this process may be written after a daemon has taken its command line. Its memory is shown again. */
static int
dumpable_after(const char *option)
{
	char *argv[] = { (char *)(uintptr_t) "fanin-test", (char *)(uintptr_t) "--config",
			 (char *)(uintptr_t) "x", (char *)(uintptr_t)option, NULL };
	struct options options;
	int dumpable;

	ck_assert_int_eq(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0), 0);
	optind = 0;
	ck_assert_int_eq(daemon_options_parse(option == NULL ? 3 : 4, argv, "fanin-test", "", "",
					      "", &options),
			 -1);
	dumpable = prctl(PR_GET_DUMPABLE, 0, 0, 0, 0);
	ck_assert_int_eq(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0), 0);
	return dumpable;
}

START_TEST(a_daemon_has_no_core_dumps_unless_they_are_asked_for)
{
	ck_assert_int_eq(dumpable_after(NULL), 0);
	ck_assert_int_eq(dumpable_after("--core-dumps"), 1);
}
END_TEST

Suite *
suite_cli(void)
{
	Suite *suite = suite_create("cli");
	TCase *all = tcase_create("all");

	tcase_set_timeout(all, 300);
	tcase_add_test(all, options_are_taken_by_name_and_by_letter);
	tcase_add_test(all, the_first_word_that_is_no_option_ends_them_if_asked);
	tcase_add_test(all, names_are_found_by_their_codes);
	tcase_add_test(all, the_help_is_broken_between_words_and_aligned);
	tcase_add_test(all, a_daemon_has_no_core_dumps_unless_they_are_asked_for);
	suite_add_tcase(suite, all);
	return suite;
}
