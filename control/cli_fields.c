/* SPDX-License-Identifier: BSD-3-Clause */
/* See cli_fields.h. */
#include "control/cli_fields.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* First code of options, which have no letters. */
#define FIRST_CODE 256

bool
cli_number(const char *text, int base, uint64_t least, uint64_t most, uint64_t *value)
{
	char *end;

	errno = 0;
	*value = strtoull(text, &end, base);
	return errno == 0 && end != text && *end == '\0' && text[0] != '-' && *value >= least &&
	       *value <= most;
}

/* Stores in a field of a size of 1, 2, 4 or 8 bytes. */
static void
store(void *field, size_t size, uint64_t value)
{
	const uint8_t byte = (uint8_t)value;
	const uint16_t half = (uint16_t)value;
	const uint32_t word = (uint32_t)value;

	assert(size == sizeof(byte) || size == sizeof(half) || size == sizeof(word) ||
	       size == sizeof(value));
	memcpy(field,
	       size == sizeof(byte)   ? (const void *)&byte
	       : size == sizeof(half) ? (const void *)&half
	       : size == sizeof(word) ? (const void *)&word
				      : (const void *)&value,
	       size);
}

static void
take_integer(const struct cli_program *program, const struct cli_field *row, void *field,
	     const char *text)
{
	char expected[96];
	uint64_t value;

	if (!cli_number(text, program->base, row->least, row->most, &value)) {
		snprintf(expected, sizeof(expected), "%s%" PRIu64 " to %" PRIu64, program->number,
			 row->least, row->most);
		program->refuse(row->name, text, expected);
	}
	store(field, row->size, value * (row->unit != 0 ? row->unit : 1));
}

static void
take_real(const struct cli_program *program, const struct cli_field *row, void *field,
	  const char *text)
{
	const double high = row->kind == CLI_REAL ? row->high : 1;
	char bounds[64];
	double value;
	char *end;

	errno = 0;
	value = strtod(text, &end);
	snprintf(bounds, sizeof(bounds), "a number from %g to %g", row->low, high);
	/* NaN fails both comparisons. */
	if (errno != 0 || end == text || *end != '\0' || !(value >= row->low && value <= high) ||
	    (row->kind == CLI_PART && value == 0))
		program->refuse(row->name, text, row->expected != NULL ? row->expected : bounds);
	value /= row->divisor != 0 ? row->divisor : 1;
	memcpy(field, &value, sizeof(value));
}

/* Returns the index of a name among a row's choices, or -1. */
static int
choice_of(const struct cli_field *row, const char *text)
{
	for (size_t i = 0; i < row->n_names; i++) {
		if (row->names[i] != NULL && strcmp(row->names[i], text) == 0)
			return (int)i;
	}
	return -1;
}

static void
take_choice(const struct cli_program *program, const struct cli_field *row, void *field,
	    const char *text)
{
	const int found = row->kind == CLI_FIND ? row->find(text) : choice_of(row, text);

	if (found < 0 && row->expected == NULL)
		program->usage(program, 2);
	if (found < 0)
		program->refuse(row->name, text, row->expected);
	store(field, row->size, (uint64_t)found);
}

static void
take(const struct cli_program *program, const struct cli_field *row, void *fields, char *argument)
{
	void *field = (uint8_t *)fields + row->offset;

	switch (row->kind) {
	case CLI_SET:
	case CLI_CLEAR:
		store(field, row->size, row->kind == CLI_SET);
		break;
	case CLI_TEXT:
		memcpy(field, &argument, sizeof(argument));
		break;
	case CLI_INTEGER:
		take_integer(program, row, field, argument);
		break;
	case CLI_REAL:
	case CLI_SHARE:
	case CLI_PART:
		take_real(program, row, field, argument);
		break;
	case CLI_CHOICE:
	case CLI_FIND:
		take_choice(program, row, field, argument);
		break;
	case CLI_TAKE:
		row->take(fields, argument);
		break;
	case CLI_HELP:
		program->usage(program, 0);
	}
}

/* Makes the table of cli.h. */
static void
options_of(const struct cli_field *fields, struct cli_option options[CLI_MAX_OPTIONS + 1])
{
	int n = 0;

	for (; fields[n].name != NULL; n++) {
		assert(n < CLI_MAX_OPTIONS);
		options[n] = (struct cli_option){ fields[n].name, fields[n].argument,
						  FIRST_CODE + n, fields[n].help };
	}
	options[n] = (struct cli_option){ 0 };
}

int
cli_fields_parse(const struct cli_program *program, void *fields, int argc, char **argv,
		 struct cli_given *given)
{
	struct cli_option options[CLI_MAX_OPTIONS + 1];
	struct cli cli;
	int code;

	*given = (struct cli_given){ .fields = program->fields };
	options_of(program->fields, options);
	cli_prepare(&cli, options, NULL, 0);
	while ((code = getopt_long(argc, argv, cli.letters, cli.long_options, NULL)) != -1) {
		if (code == '?')
			program->usage(program, 2);
		take(program, &program->fields[code - FIRST_CODE], fields, optarg);
		given->is[code - FIRST_CODE] = true;
	}
	return optind;
}

bool
cli_given(const struct cli_given *given, const char *name)
{
	size_t i = 0;

	while (strcmp(given->fields[i].name, name) != 0)
		i++;
	return given->is[i];
}

void
cli_usage(const struct cli_program *program, int status)
{
	struct cli_option options[CLI_MAX_OPTIONS + 1];

	if (status == 0) {
		options_of(program->fields, options);
		fputs(program->about, stdout);
		cli_print_options(stdout, options);
	} else {
		fprintf(stderr, "%s --help lists the options.\n", program_invocation_short_name);
	}
	exit(status);
}
