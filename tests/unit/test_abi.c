/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The structs that callers pass to the host library, and callers that were compiled with older
 * ones: fields stay where they are, fields that an older caller lacks are not read, and fields that
 * a newer one sets are not ignored.
 */
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hostlib/src/base/error.h"
#include "hostlib/src/base/report.h"
#include "hostlib/src/comm/comm.h"
#include "tests/abi/older_caller.h"
#include "tests/unit/suites.h"

static fanin_ctx *ctx;

static void
context_make(void)
{
	ck_assert_int_eq(fanin_init(NULL, &ctx), FANIN_OK);
}

static void
context_free(void)
{
	fanin_finalize(ctx);
}

/* Checks that a caller gets the same error as a caller of this header with the same fields set. */
static void
expect_as_now(int status, const char *found, const struct fanin_join_opts *options)
{
	char older[FANIN_TEXT_LEN];
	fanin_comm *comm = NULL;

	snprintf(older, sizeof(older), "%s", found);
	ck_assert_int_eq(fanin_join(ctx, options, &comm), status);
	ck_assert_str_eq(older, fanin_ctx_error(ctx));
	ck_assert_str_ne(older, "");
}

/* Keeps the last line. */
static void
keep_line(int level, const char *line, void *kept)
{
	if (level == FANIN_LOG_ERROR)
		snprintf(kept, FANIN_TEXT_LEN, "%s", line);
}

START_TEST(a_library_that_is_older_than_its_caller_refuses_it)
{
	char line[FANIN_TEXT_LEN] = "";
	const struct fanin_init_opts options = { .sz = sizeof(options),
						 .print = keep_line,
						 .print_arg = line };
	fanin_ctx *made = NULL;

	ck_assert_str_eq(FANIN_HEADER_VERSION, fanin_version());
	ck_assert_int_eq(fanin_init_from(FANIN_HEADER_NUMBER + 1, NULL, &made), FANIN_ERR_VERSION);
	ck_assert_int_eq(fanin_init_from(12034056, &options, &made), FANIN_ERR_VERSION);
	ck_assert_ptr_null(made);
	ck_assert_str_eq(line, "found libfanin " FANIN_HEADER_VERSION
			       ", expected 12.34.56 or newer: the caller was compiled with that "
			       "header");
	ck_assert_ptr_nonnull(strstr(fanin_strerror(FANIN_ERR_VERSION), FANIN_HEADER_VERSION));
	line[0] = '\0';
	ck_assert_int_eq(fanin_init(&options, &made), FANIN_OK);
	fanin_finalize(made);
	/* Of callers that were compiled before the header had a number, and of older ones. */
	ck_assert_int_eq((fanin_init)(&options, &made), FANIN_OK);
	fanin_finalize(made);
	ck_assert_int_eq(fanin_init_from(FANIN_HEADER_NUMBER - 1, &options, &made), FANIN_OK);
	fanin_finalize(made);
	ck_assert_str_eq(line, "");
}
END_TEST

START_TEST(older_callers_may_leave_padding_undefined)
{
	const struct fanin_join_opts plain = { .sz = sizeof(plain), .size = 2, .job = 1, .key = 1 };
	struct fanin_join_opts memif = plain;

	memif.switch_address = "10.0.0.1";
	memif.memif_socket = "/nonexistent/memif.sock";
	expect_as_now(older_join(ctx), fanin_ctx_error(ctx), &plain);
	expect_as_now(older_join_without_trees(ctx), fanin_ctx_error(ctx), &plain);
	expect_as_now(older_join_without_recover(ctx), fanin_ctx_error(ctx), &memif);
}
END_TEST

/* clang-format off */
#define JOIN_FIELDS(X) \
	X(sz) X(switch_address) X(interface) X(key) X(job) X(rank) X(size) X(udp_port) X(window) \
	X(join_timeout_ms) X(timeout_ms) X(no_stagger) X(memif_socket) X(address) X(memif_id) \
	X(recover) X(job_name) X(manager) X(token) X(handler) X(fixed_rank) X(reproducible) \
	X(accumulate_f32) X(no_fallback) X(trees) X(wait_limit_ms) X(authenticate)

#define REPORT_FIELDS(X) \
	X(sz) X(transport) X(transport_reason) X(handler) X(interface) X(in_network) X(window) \
	X(payload_bytes) X(blocks) X(bytes_reduced) X(frames_sent) X(frames_received) \
	X(retransmits) X(duplicates) X(invalid) X(accumulates_f32) X(spurious) X(ring_drops) \
	X(resumed) X(rank) X(size) X(mode) X(mode_reason) X(manager) X(job_name) \
	X(manager_problem) X(manager_reconnects) X(trees) X(trees_asked) X(trees_reason) \
	X(queries) X(late) X(authenticated)
/* clang-format on */

#define CHECK_JOIN_FIELD(field)                                                                    \
	ck_assert_str_eq(older->name, #field);                                                     \
	ck_assert_uint_eq(older->offset, offsetof(struct fanin_join_opts, field));                 \
	ck_assert_uint_eq(older->size, sizeof(((struct fanin_join_opts *)NULL)->field));           \
	older++;
#define CHECK_REPORT_FIELD(field)                                                                  \
	ck_assert_str_eq(older->name, #field);                                                     \
	ck_assert_uint_eq(older->offset, offsetof(struct fanin_report, field));                    \
	ck_assert_uint_eq(older->size, sizeof(((struct fanin_report *)NULL)->field));              \
	older++;

START_TEST(fields_stay_where_they_are)
{
	const struct older_field *older = older_join_fields;

	JOIN_FIELDS(CHECK_JOIN_FIELD)
	ck_assert_ptr_null(older->name);
	older = older_report_fields;
	REPORT_FIELDS(CHECK_REPORT_FIELD)
	ck_assert_ptr_null(older->name);
}
END_TEST

START_TEST(former_padding_holds_no_field)
{
	/*
	 * The first reserved byte is behind the last field of the older header, and all bytes up to
	 * its end are reserved.
	 */
	ck_assert_uint_eq(offsetof(struct fanin_join_opts, reserved),
			  offsetof(struct fanin_join_opts, authenticate) + 1);
	ck_assert_uint_eq(offsetof(struct fanin_join_opts, reserved) % 8 +
				  sizeof(((struct fanin_join_opts *)NULL)->reserved),
			  8);
	ck_assert_uint_eq(offsetof(struct fanin_report, reserved),
			  offsetof(struct fanin_report, authenticated) + 1);
	ck_assert_uint_eq(offsetof(struct fanin_report, reserved) +
				  sizeof(((struct fanin_report *)NULL)->reserved),
			  older_report_size);
}
END_TEST

START_TEST(unknown_fields_of_newer_callers_are_refused)
{
	struct {
		struct fanin_join_opts known;
		uint64_t later;
	} options = { .known = { .sz = sizeof(options), .size = 2, .job = 1, .key = 1 } };
	fanin_comm *comm = NULL;

	ck_assert_int_eq(fanin_join(ctx, &options.known, &comm), FANIN_ERR_INVALID);
	ck_assert_ptr_null(strstr(fanin_ctx_error(ctx), "sz"));
	options.later = 1;
	ck_assert_int_eq(fanin_join(ctx, &options.known, &comm), FANIN_ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(fanin_ctx_error(ctx), "sz"));
}
END_TEST

static void
report_nothing(struct fanin_endpoint *engine, struct fanin_report *report)
{
	(void)engine;
	report->authenticated = true;
}

START_TEST(a_report_is_as_long_as_its_reader_knows)
{
	static const struct fanin_protocol protocol = { .name = "test", .report = report_nothing };
	const struct fanin_comm comm = { .ops = &fanin_comm_single_ops,
					 .protocol = &protocol,
					 .ctx = ctx };
	union {
		struct fanin_report report;
		uint8_t bytes[sizeof(struct fanin_report) + 8];
	} found;
	const size_t older = offsetof(struct fanin_report, authenticated);

	memset(found.bytes, 0xa5, sizeof(found));
	found.report.sz = older;
	ck_assert_int_eq(fanin_comm_report(&comm, &found.report), FANIN_OK);
	for (size_t i = older; i < sizeof(found); i++)
		ck_assert_uint_eq(found.bytes[i], 0xa5);

	found.report.sz = sizeof(found);
	ck_assert_int_eq(fanin_comm_report(&comm, &found.report), FANIN_OK);
	ck_assert(found.report.authenticated);
	for (size_t i = 0; i < sizeof(found.report.reserved); i++)
		ck_assert_uint_eq(found.report.reserved[i], 0);
	for (size_t i = sizeof(struct fanin_report); i < sizeof(found); i++)
		ck_assert_uint_eq(found.bytes[i], 0xa5);
}
END_TEST

/* Returns the content of a file of the tree; to be freed. */
static char *
source_read(const char *path)
{
	char full[PATH_MAX];
	char *text = NULL;
	size_t capacity = 0;
	FILE *file;

	snprintf(full, sizeof(full), "%s/%s", FANIN_SOURCE_DIR, path);
	file = fopen(full, "r");
	ck_assert_msg(file != NULL, "%s is missing", full);
	ck_assert_int_gt(getdelim(&text, &capacity, '\0', file), 0);
	fclose(file);
	return text;
}

/* True if the text has the word by itself, not only within a longer one. */
static bool
has_word(const char *text, const char *word)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789_";

	for (const char *at = strstr(text, word); at != NULL; at = strstr(at + 1, word)) {
		if (strspn(at, letters) == strlen(word) && strchr(letters, at[-1]) == NULL)
			return true;
	}
	return false;
}

START_TEST(every_field_of_a_report_is_printed_and_described)
{
	/* Fields that fanin-perf takes from its options, or that don't belong to a measurement. */
	static const char *const not_printed[] = { "sz",     "reserved",     "rank",
						   "size",   "interface",    "accumulates_f32",
						   "blocks", "bytes_reduced" };
	const char *const fields[] = {
#define NAME(field, trees) #field,
		FANIN_REPORT_FIELDS(NAME)
#undef NAME
	};
	char *page = source_read("docs/man/fanin_comm_report.3");
	char *printer = source_read("tools/perf_output.c");
	const size_t n_not_printed = sizeof(not_printed) / sizeof(not_printed[0]);

	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		char taken[64];
		size_t j = 0;

		snprintf(taken, sizeof(taken), "report->%s", fields[i]);
		while (j < n_not_printed && strcmp(not_printed[j], fields[i]) != 0)
			j++;
		ck_assert_msg(j < n_not_printed || strstr(printer, taken) != NULL,
			      "fanin-perf does not print %s", fields[i]);
		ck_assert_msg(strcmp(fields[i], "reserved") == 0 || has_word(page, fields[i]),
			      "fanin_comm_report.3 does not tell of %s", fields[i]);
	}
	free(page);
	free(printer);
}
END_TEST

Suite *
suite_abi(void)
{
	Suite *suite = suite_create("abi");
	TCase *tcase = tcase_create("structs");

	tcase_add_checked_fixture(tcase, context_make, context_free);
	tcase_add_test(tcase, a_library_that_is_older_than_its_caller_refuses_it);
	tcase_add_test(tcase, older_callers_may_leave_padding_undefined);
	tcase_add_test(tcase, fields_stay_where_they_are);
	tcase_add_test(tcase, former_padding_holds_no_field);
	tcase_add_test(tcase, unknown_fields_of_newer_callers_are_refused);
	tcase_add_test(tcase, a_report_is_as_long_as_its_reader_knows);
	tcase_add_test(tcase, every_field_of_a_report_is_printed_and_described);
	suite_add_tcase(suite, tcase);
	return suite;
}
