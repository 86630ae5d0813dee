/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tables of options (control/cli.h, cli_fields.h): their form for getopt_long(), the fields that
 * they fill, and the layout of the help.
 */
#include <check.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "control/cli_fields.h"
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

/* Fields that a table fills. */
struct filled {
	const char *text;
	double share;
	double part;
	double real;
	uint64_t wide;
	uint32_t choice;
	uint16_t narrow;
	bool set;
	bool cleared;
	int taken;
};

static const char *const choices[] = { NULL, "one", "two" };

static int
find(const char *text)
{
	return strcmp(text, "seven") == 0 ? 7 : -1;
}

static void
count(void *all, char *argument)
{
	ck_assert_ptr_null(argument);
	((struct filled *)all)->taken++;
}

static const struct cli_field fields[] = {
	{ "text", "T", .kind = CLI_TEXT, CLI_FIELD(struct filled, text) },
	{ "share", "S", .kind = CLI_SHARE, CLI_FIELD(struct filled, share) },
	{ "part", "S", .kind = CLI_PART, CLI_FIELD(struct filled, part), .expected = "a part" },
	{ "real", "R", CLI_DOUBLE(struct filled, real, 1, 1e6), .divisor = 1e3 },
	{ "wide", "N", CLI_NUMBER(struct filled, wide, 0, UINT32_MAX), .unit = 1000 },
	{ "narrow", "N", CLI_NUMBER(struct filled, narrow, 3, 70) },
	{ "choice", "C", .kind = CLI_CHOICE, CLI_FIELD(struct filled, choice), CLI_NAMES(choices) },
	{ "find", "F", .kind = CLI_FIND, CLI_FIELD(struct filled, narrow), .find = find,
	  .expected = "seven" },
	{ "set", CLI_FLAG(struct filled, set) },
	{ "clear", .kind = CLI_CLEAR, CLI_FIELD(struct filled, cleared) },
	{ "count", .kind = CLI_TAKE, .take = count },
	{ "help", .kind = CLI_HELP },
	{ 0 },
};

static void __attribute__((noreturn))
refuse(const char *name, const char *found, const char *expected)
{
	fprintf(stderr, "%s, %s, %s", name, found, expected);
	exit(10);
}

static void __attribute__((noreturn)) usage(const struct cli_program *program, int status)
{
	ck_assert_ptr_eq(program->fields, fields);
	exit(20 + status);
}

static const struct cli_program program = {
	.fields = fields, .base = 10, .number = "of ", .usage = usage, .refuse = refuse
};

START_TEST(options_fill_the_fields_of_a_table)
{
	char *argv[] = {
		WORD("program"),      WORD("--text"),   WORD("a b"),      WORD("--share=0"),
		WORD("--part"),       WORD("1"),        WORD("--set"),    WORD("--real=2500"),
		WORD("--wide"),       WORD("4000000"),  WORD("--narrow"), WORD("9"),
		WORD("--narrow=070"), WORD("--choice"), WORD("two"),      WORD("--clear"),
		WORD("--count"),      WORD("--count"),  WORD("operand"),  NULL
	};
	const int argc = (int)(sizeof(argv) / sizeof(argv[0])) - 1;
	struct filled filled = { .share = 0.5, .cleared = true };
	struct cli_given given;

	optind = 0;
	ck_assert_int_eq(cli_fields_parse(&program, &filled, argc, argv, &given), argc - 1);
	ck_assert_str_eq(filled.text, "a b");
	ck_assert(filled.share == 0 && filled.part == 1 && filled.set && !filled.cleared);
	ck_assert(filled.real == 2.5);
	ck_assert_uint_eq(filled.wide, UINT64_C(4000000000));
	ck_assert_uint_eq(filled.narrow, 70);
	ck_assert_uint_eq(filled.choice, 2);
	ck_assert_int_eq(filled.taken, 2);
	for (const struct cli_field *row = fields; row->name != NULL; row++)
		ck_assert_int_eq(cli_given(&given, row->name),
				 strcmp(row->name, "help") != 0 && strcmp(row->name, "find") != 0);
}
END_TEST

static const struct {
	const char *word;
	const char *value;
	int status;
} wrong[] = {
	{ "--help", NULL, 20 },
	{ "--none", NULL, 22 },
	{ "--text", NULL, 22 },
	{ "--set=1", NULL, 22 },
	{ "--share", "1.01", 10 },
	{ "--share", "nan", 10 },
	{ "--share", "", 10 },
	{ "--part", "0", 10 },
	{ "--real", "0.9", 10 },
	{ "--real", "1e7", 10 },
	{ "--narrow", "2", 10 },
	{ "--narrow", "71", 10 },
	{ "--narrow", "-5", 10 },
	{ "--narrow", "5x", 10 },
	{ "--narrow", "0x5", 10 },
	{ "--narrow", "", 10 },
	{ "--wide", "99999999999999999999", 10 },
	{ "--choice", "three", 22 },
	{ "--find", "eight", 10 },
};

START_TEST(a_wrong_option_or_argument_ends_the_program)
{
	char *argv[] = { WORD("program"), (char *)(uintptr_t)wrong[_i].word,
			 (char *)(uintptr_t)wrong[_i].value, NULL };
	const int argc = wrong[_i].value == NULL ? 2 : 3;
	const pid_t child = fork();
	struct filled filled = { 0 };
	struct cli_given given;
	int status;

	if (child == 0) {
		ck_assert_ptr_nonnull(freopen("/dev/null", "w", stderr));
		optind = 0;
		cli_fields_parse(&program, &filled, argc, argv, &given);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFEXITED(status));
	ck_assert_int_eq(WEXITSTATUS(status), wrong[_i].status);
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
	ck_assert_str_eq(
		text,
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

/*
 * Returns whether this process may dump core after a daemon has read its command line, and allows
 * it again.
 */
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
					      "", NULL, &options),
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
	tcase_add_test(all, options_fill_the_fields_of_a_table);
	tcase_add_loop_test(all, a_wrong_option_or_argument_ends_the_program, 0,
			    (int)(sizeof(wrong) / sizeof(wrong[0])));
	tcase_add_test(all, the_help_is_broken_between_words_and_aligned);
	tcase_add_test(all, a_daemon_has_no_core_dumps_unless_they_are_asked_for);
	suite_add_tcase(suite, all);
	return suite;
}
