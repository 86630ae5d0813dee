/* SPDX-License-Identifier: BSD-3-Clause */
/* See cli.h. */
#include "control/cli.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

#define LINE_LEN 96
/* Width of the column of names: the help of an option with longer names begins on the next line. */
#define MAX_NAMES_LEN 26
#define NAMES_LEN 64

static bool
has_letter(const struct cli_option *option)
{
	return option->code < 128;
}

static void
cli_add(struct cli *cli, size_t *n, const struct cli_option *option)
{
	const int has_arg = option->argument == NULL     ? no_argument
			    : option->argument[0] == '[' ? optional_argument
							 : required_argument;
	size_t len = strlen(cli->letters);

	assert(*n < CLI_MAX_OPTIONS);
	cli->long_options[(*n)++] = (struct option){ option->name, has_arg, NULL, option->code };
	if (!has_letter(option))
		return;
	cli->letters[len++] = (char)option->code;
	for (int i = 0; i < has_arg; i++)
		cli->letters[len++] = ':';
}

void
cli_prepare(struct cli *cli, const struct cli_option *options, const struct cli_option *others,
	    int stop)
{
	size_t n = 0;

	*cli = (struct cli){ .letters = { stop != 0 ? '+' : '\0' } };
	for (; options->name != NULL; options++)
		cli_add(cli, &n, options);
	for (; others != NULL && others->name != NULL; others++)
		cli_add(cli, &n, others);
}

/*
 * Writes "-c, --config FILE" to a buffer of NAMES_LEN bytes. aligned: other options have letters.
 * Returns its length.
 */
static int
names_of(const struct cli_option *option, bool aligned, char *names)
{
	char letter[] = "-?, ";
	int len;

	letter[1] = (char)option->code;
	len = snprintf(names, NAMES_LEN, "%s--%s%s%s",
		       has_letter(option) ? letter
		       : aligned          ? "    "
					  : "",
		       option->name, option->argument == NULL ? "" : " ",
		       option->argument == NULL ? "" : option->argument);
	assert(len < NAMES_LEN);
	return len;
}

/* Prints a text from the current column on; further lines are indented to that column. */
static void
print_text(FILE *out, const char *text, int column)
{
	int at = column;

	while (*text != '\0') {
		const int len = (int)strcspn(text, " \n");

		if (at > column && at + 1 + len > LINE_LEN) {
			fprintf(out, "\n%*s", column, "");
			at = column;
		}
		at += fprintf(out, "%s%.*s", at > column ? " " : "", len, text);
		text += len;
		if (*text == '\n') {
			fprintf(out, "\n%*s", column, "");
			at = column;
		}
		text += *text != '\0';
	}
	fputc('\n', out);
}

void
cli_print_options(FILE *out, const struct cli_option *options)
{
	char names[NAMES_LEN];
	bool aligned = false;
	int column = 0;

	for (const struct cli_option *option = options; option->name != NULL; option++)
		aligned = aligned || has_letter(option);
	for (const struct cli_option *option = options; option->name != NULL; option++) {
		const int len = names_of(option, aligned, names);

		if (len > column && len <= MAX_NAMES_LEN)
			column = len;
	}
	for (const struct cli_option *option = options; option->name != NULL; option++) {
		if (names_of(option, aligned, names) > column)
			fprintf(out, "  %s\n%*s", names, column + 4, "");
		else
			fprintf(out, "  %-*s  ", column, names);
		print_text(out, option->help, column + 4);
	}
}
