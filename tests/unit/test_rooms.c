/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The check of rooms (tests/rooms.py) on small trees with and without an include that their table
 * forbids, and on this tree.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/suites.h"

#define PYTHON "/usr/bin/python3"
#define SCRIPT FANIN_SOURCE_DIR "/tests/rooms.py"
#define NAMES FANIN_SOURCE_DIR "/tests/names.py"
#define WIDTHS FANIN_SOURCE_DIR "/tests/widths.py"
#define EDGE 100 /* maximum of columns in a line */

#define TABLE                                                                                      \
	"# A tree\n\n## Rooms\n\n"                                                                 \
	"| room | what is in it | may include |\n|---|---|---|\n"                                  \
	"| `low/` | what all need | nothing of ours |\n"                                           \
	"| `low/inner/` | a folder with a row of its own | `low/` |\n"                             \
	"| `high/` | the program | `low/`, `part/one/` |\n"                                        \
	"| `part/*/` | a part | `low/` |\n| `part/*/tests/` | its tests | `part/*/` |\n\nWords with `high/` | that | are no rows.\n"

static char root[PATH_MAX];
static char output[16384];

static void
file_write(const char *path, const char *text)
{
	char full[2 * PATH_MAX];
	FILE *file;

	snprintf(full, sizeof(full), "%s/%s", root, path);
	file = fopen(full, "w");
	ck_assert_ptr_nonnull(file);
	ck_assert_int_ge(fputs(text, file), 0);
	ck_assert_int_eq(fclose(file), 0);
}

static void
directory_make(const char *path)
{
	char full[2 * PATH_MAX];

	snprintf(full, sizeof(full), "%s/%s", root, path);
	ck_assert_int_eq(mkdir(full, 0700), 0);
}

/* Makes a tree whose includes are all allowed. */
static void
tree_make(void)
{
	strcpy(root, "/tmp/fanin-rooms-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(root));
	directory_make("docs");
	directory_make("low");
	directory_make("low/inner");
	directory_make("high");
	directory_make("part");
	directory_make("part/one");
	directory_make("part/one/tests");
	directory_make("part/two");
	file_write("docs/architecture.md", TABLE);
	file_write("low/low.h", "#include <stdint.h>\n");
	file_write("low/low.c", "#include \"low.h\"\n\n#include \"low/made.h\"\n");
	file_write("low/meson.build", "configure_file(output: 'made.h')\n");
	file_write("low/inner/inner.h", "#include \"low/low.h\"\n");
	file_write("high/high.h", "#include \"low/low.h\"\n");
	file_write("high/high.c", "#include \"high/high.h\"\n#include \"part/one/one.h\"\n");
	file_write("part/one/one.h", "#include \"low/low.h\"\n");
	file_write("part/one/tests/one.c", "#include \"part/one/one.h\"\n");
	file_write("part/two/two.h", "");
}

static void
tree_remove(void)
{
	char command[PATH_MAX + 16];

	snprintf(command, sizeof(command), "rm -r %s", root);
	ck_assert_int_eq(system(command), 0);
}

/* Runs the check on a tree; its output is in `output`. Returns its exit status. */
static int
check(const char *script, const char *tree)
{
	char command[3 * PATH_MAX];
	FILE *pipe;
	size_t len;
	int status;

	snprintf(command, sizeof(command), PYTHON " %s %s 2>&1", script, tree);
	pipe = popen(command, "r");
	ck_assert_ptr_nonnull(pipe);
	len = fread(output, 1, sizeof(output) - 1, pipe);
	output[len] = '\0';
	status = pclose(pipe);
	ck_assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

/* A file that makes a tree invalid, and the error about it. */
static const struct {
	const char *path;
	const char *text;
	int status;
	const char *output;
} wrong[] = {
	{ "low/low.c", "/* */\n\n#include \"high/high.h\"\n", 1,
	  "low/low.c:3: room low may not include room high (high/high.h)\n" },
	{ "low/low.c", "#include \"../high/high.h\"\n", 1,
	  "low/low.c:1: room low may not include room high (../high/high.h)\n" },
	{ "low/low.h", "#ifdef SOMETIMES\n#  include \"low/inner/inner.h\"\n#endif\n", 1,
	  "low/low.h:2: room low may not include room low/inner (low/inner/inner.h)\n" },
	{ "high/high.h", "#include \"low/inner/inner.h\"\n", 1,
	  "high/high.h:1: room high may not include room low/inner (low/inner/inner.h)\n" },
	{ "high/high.c", "#include \"low/lost.h\"\n", 1,
	  "high/high.c:1: found low/lost.h nowhere in the tree\n" },
	{ "high/high.c", "#include \"part/two/two.h\"\n", 1,
	  "high/high.c:1: room high may not include room part/two (part/two/two.h)\n" },
	{ "part/one/tests/one.c", "#include \"part/two/two.h\"\n", 1,
	  "part/one/tests/one.c:1: room part/one/tests may not include room part/two (part/two/two.h)\n" },
	{ "part/one/one.h", "#include \"part/two/two.h\"\n", 1,
	  "part/one/one.h:1: room part/one may not include room part/two (part/two/two.h)\n" },
	{ "docs/stray.c", "", 1,
	  "docs/stray.c:1: found a file in no room, expected one of the table in "
	  "docs/architecture.md\n" },
	{ "docs/architecture.md", "# A tree\n", 2,
	  "rooms: docs/architecture.md: found no heading \"## Rooms\"\n" },
	{ "docs/architecture.md",
	  "## Rooms\n| room | what | may include |\n|---|---|---|\n| `low/` | | `attic/` |\n", 2,
	  "rooms: docs/architecture.md:4: found attic, expected a room of the first column\n" },
};

START_TEST(forbidden_includes_are_told_with_file_and_line)
{
	tree_make();
	file_write(wrong[_i].path, wrong[_i].text);
	ck_assert_int_eq(check(SCRIPT, root), wrong[_i].status);
	ck_assert_str_eq(output, wrong[_i].output);
	tree_remove();
}
END_TEST

START_TEST(a_tree_that_keeps_to_its_table_is_clean)
{
	tree_make();
	ck_assert_int_eq(check(SCRIPT, root), 0);
	ck_assert_str_eq(output, "rooms: 8 files in 6 rooms, clean\n");
	tree_remove();
}
END_TEST

START_TEST(this_tree_keeps_to_its_table)
{
	if (check(SCRIPT, FANIN_SOURCE_DIR) != 0)
		ck_abort_msg("%s", output);
}
END_TEST

START_TEST(names_of_protocols_stay_in_their_folders)
{
	if (check(NAMES, FANIN_SOURCE_DIR) != 0)
		ck_abort_msg("%s", output);
}
END_TEST

/* Writes a line with this many columns before `end`. */
static void
line_write(const char *path, int columns, const char *end)
{
	char line[4 * EDGE];

	snprintf(line, sizeof(line), "%*s%s\n", columns, "x", end);
	file_write(path, line);
}

START_TEST(lines_that_are_too_wide_are_told_with_file_and_line)
{
	tree_make();
	line_write("low/wide.c", EDGE, "");
	ck_assert_msg(check(WIDTHS, root) == 0, "%s", output);
	line_write("low/wide.c", EDGE - 1, " \\");
	ck_assert_msg(check(WIDTHS, root) == 0, "%s", output);
	line_write("low/wide.c", EDGE - 8, "\"a string over the edge\");");
	ck_assert_msg(check(WIDTHS, root) == 0, "%s", output);
	line_write("low/wide.c", EDGE + 1, "");
	ck_assert_int_eq(check(WIDTHS, root), 1);
	ck_assert_msg(strstr(output, "low/wide.c:1: found 101 columns, expected at most 100") !=
			      NULL,
		      "%s", output);
	tree_remove();
	if (check(WIDTHS, FANIN_SOURCE_DIR) != 0)
		ck_abort_msg("%s", output);
}
END_TEST

/* Writes a document with a line of more than EDGE columns. */
static void
wide_page_write(const char *begin, const char *end)
{
	char prose[EDGE + 1];
	char page[4 * EDGE];

	memset(prose, 'x', EDGE);
	prose[EDGE] = '\0';
	snprintf(page, sizeof(page), "%s%s%s\n", begin, prose, end);
	file_write("low/page.md", page);
}

START_TEST(prose_of_documents_is_not_wide_but_tables_code_and_links_may_be)
{
	tree_make();
	wide_page_write("| ", " |");
	ck_assert_msg(check(WIDTHS, root) == 0, "%s", output);
	wide_page_write("    ", "");
	ck_assert_msg(check(WIDTHS, root) == 0, "%s", output);
	wide_page_write("```\n", "\n```");
	ck_assert_msg(check(WIDTHS, root) == 0, "%s", output);
	wide_page_write("[a page](", ")");
	ck_assert_msg(check(WIDTHS, root) == 0, "%s", output);
	wide_page_write("```\n```\n", "y");
	ck_assert_int_eq(check(WIDTHS, root), 1);
	ck_assert_msg(strstr(output, "low/page.md:3: found 101 columns, expected at most 100") !=
			      NULL,
		      "%s", output);
	tree_remove();
}
END_TEST

Suite *
suite_rooms(void)
{
	Suite *suite = suite_create("rooms");
	TCase *tcase = tcase_create("includes");

	tcase_add_test(tcase, a_tree_that_keeps_to_its_table_is_clean);
	tcase_add_loop_test(tcase, forbidden_includes_are_told_with_file_and_line, 0,
			    (int)(sizeof(wrong) / sizeof(wrong[0])));
	tcase_add_test(tcase, this_tree_keeps_to_its_table);
	tcase_add_test(tcase, names_of_protocols_stay_in_their_folders);
	tcase_add_test(tcase, lines_that_are_too_wide_are_told_with_file_and_line);
	tcase_add_test(tcase, prose_of_documents_is_not_wide_but_tables_code_and_links_may_be);
	suite_add_tcase(suite, tcase);
	return suite;
}
