/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Joining a job by its name, as far as it works without a manager: invalid options are reported
 * before anything is sent. The net tests have the rest.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fanin/fanin.h"
#include "hostlib/src/manager/manager_settings.h"
#include "tests/unit/suites.h"

static fanin_ctx *ctx;

static void
environment_clear(void)
{
	/* Tests must not use this machine's configuration. */
	setenv("FANIN_CONF", "/dev/null", 1);
	unsetenv("FANIN_MANAGER");
	unsetenv("FANIN_TOKEN");
	ck_assert_int_eq(fanin_init(NULL, &ctx), FANIN_OK);
}

static void
context_free(void)
{
	fanin_finalize(ctx);
}

static void
expect_refused(const struct fanin_join_opts *options, int status, const char *words)
{
	fanin_comm *comm = NULL;

	ck_assert_int_eq(fanin_join(ctx, options, &comm), status);
	ck_assert_ptr_null(comm);
	ck_assert_msg(strstr(fanin_ctx_error(ctx), words) != NULL, "found '%s', expected '%s'",
		      fanin_ctx_error(ctx), words);
}

START_TEST(options_that_make_no_sense_are_refused)
{
	const struct fanin_join_opts good = { .sz = sizeof(good), .job_name = "a", .size = 2 };
	struct fanin_join_opts options = good;
	char name[80];

	options.switch_address = "10.0.0.1";
	expect_refused(&options, FANIN_ERR_INVALID, "both job_name and switch_address are given");
	options = good;
	options.key = 1;
	expect_refused(&options, FANIN_ERR_INVALID, "both job_name and key are given");
	options = good;
	options.job_name = NULL;
	options.manager = "10.0.0.1";
	expect_refused(&options, FANIN_ERR_INVALID, "job_name is missing");
	options = good;
	options.size = 0;
	expect_refused(&options, FANIN_ERR_INVALID, "size is 0, expected 1 to 4096");
	options.size = 4097;
	expect_refused(&options, FANIN_ERR_INVALID, "size is 4097, expected 1 to 4096");
	options = good;
	options.rank = 2;
	options.fixed_rank = true;
	expect_refused(&options, FANIN_ERR_INVALID, "rank is 2, expected 0 to 1");
	options = good;
	memset(name, 'x', sizeof(name));
	name[64] = '\0';
	options.job_name = name;
	expect_refused(&options, FANIN_ERR_INVALID, "expected 1 to 63 letters");
	name[63] = '\0';
	expect_refused(&options, FANIN_ERR_INVALID, "no manager is configured");
	options.job_name = "";
	expect_refused(&options, FANIN_ERR_INVALID, "job_name is ''");
}
END_TEST

START_TEST(the_short_form_uses_the_environment)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	socklen_t len = sizeof(address);
	fanin_comm *comm = NULL;
	char manager[64];

	/* A port of this process that nobody listens on. */
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, len), 0);
	ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&address, &len), 0);
	ck_assert_int_eq(fanin_join_job(ctx, "a", 2, &comm), FANIN_ERR_INVALID);
	ck_assert_int_eq(fanin_join_job(ctx, NULL, 2, &comm), FANIN_ERR_INVALID);
	snprintf(manager, sizeof(manager), "127.0.0.1:%u", ntohs(address.sin_port));
	setenv("FANIN_MANAGER", manager, 1);
	ck_assert_int_eq(fanin_join_job(ctx, "a", 2, &comm), FANIN_ERR_MANAGER);
	ck_assert_ptr_null(comm);
	ck_assert_ptr_nonnull(strstr(fanin_ctx_error(ctx), manager));
	ck_assert_ptr_nonnull(strstr(fanin_ctx_error(ctx), "Connection refused"));
	close(fd);
}
END_TEST

START_TEST(endpoints_are_numbers_and_nothing_else)
{
	static const char *const wrong[] = { "",
					     "10.0.0.1",
					     "10.0.0.1:",
					     "10.0.0.1:0",
					     "10.0.0.1:65536",
					     "10.0.0.1:1x",
					     "10.0.0.1: 1",
					     "10.0.0:1",
					     "localhost:1",
					     "1234567890123456789:1",
					     ":1" };
	struct sockaddr_in address;

	ck_assert(fanin_address_parse("10.0.0.1:65535", &address));
	ck_assert_uint_eq(ntohl(address.sin_addr.s_addr), 0x0a000001);
	ck_assert_uint_eq(ntohs(address.sin_port), 65535);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		ck_assert_msg(!fanin_address_parse(wrong[i], &address), "'%s' is taken", wrong[i]);
}
END_TEST

START_TEST(the_caller_comes_before_the_environment_and_that_before_the_file)
{
	char directory[] = "/tmp/fanin-by-name-XXXXXX";
	struct fanin_manager_settings settings;
	struct fanin_error error;
	char path[64];
	FILE *file;

	ck_assert_ptr_nonnull(mkdtemp(directory));
	snprintf(path, sizeof(path), "%s/fanin.conf", directory);
	file = fopen(path, "w");
	ck_assert_ptr_nonnull(file);
	fputs("# comment\n\n  manager\t= 10.0.0.3:7 \ntls = yes\nca = /x\n", file);
	fclose(file);
	setenv("FANIN_CONF", path, 1);
	ck_assert_int_eq(fanin_manager_settings_find(NULL, NULL, &settings, &error), FANIN_OK);
	ck_assert_str_eq(settings.address, "10.0.0.3:7");
	ck_assert_str_eq(settings.token, "");
	ck_assert(settings.tls);
	ck_assert_str_eq(settings.ca, "/x");
	setenv("FANIN_MANAGER", "10.0.0.2", 1);
	setenv("FANIN_TOKEN", "b", 1);
	ck_assert_int_eq(fanin_manager_settings_find(NULL, NULL, &settings, &error), FANIN_OK);
	ck_assert_str_eq(settings.address, "10.0.0.2:21932");
	ck_assert_str_eq(settings.token, "b");
	ck_assert_int_eq(fanin_manager_settings_find("10.0.0.1", "a", &settings, &error), FANIN_OK);
	ck_assert_str_eq(settings.host, "10.0.0.1");
	ck_assert_str_eq(settings.token, "a");
	ck_assert_int_eq(fanin_manager_settings_find("10.0.0.1", "a b", &settings, &error),
			 FANIN_ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(error.text, "the byte 0x20"));
	unlink(path);
	rmdir(directory);
}
END_TEST

START_TEST(a_token_file_that_everybody_may_read_is_refused)
{
	static const mode_t modes[] = { 0666, 0644, 0640, 0600 };
	const mode_t mode = modes[_i];
	char directory[] = "/tmp/fanin-by-name-XXXXXX";
	struct fanin_manager_settings settings;
	char path[64], token[64], words[320];
	struct fanin_error error;
	FILE *file;
	int status;

	ck_assert_ptr_nonnull(mkdtemp(directory));
	snprintf(path, sizeof(path), "%s/fanin.conf", directory);
	snprintf(token, sizeof(token), "%s/token", directory);
	file = fopen(path, "w");
	ck_assert_ptr_nonnull(file);
	fprintf(file, "manager = 10.0.0.3\ntoken_file = %s\n", token);
	fclose(file);
	file = fopen(token, "w");
	ck_assert_ptr_nonnull(file);
	fputs("secret\n", file);
	fclose(file);
	ck_assert_int_eq(chmod(token, mode), 0);
	setenv("FANIN_CONF", path, 1);
	unsetenv("FANIN_MANAGER");
	unsetenv("FANIN_TOKEN");
	status = fanin_manager_settings_find(NULL, NULL, &settings, &error);
	snprintf(
		words, sizeof(words),
		"token file %s, which %s names: found the mode %04o, expected no access for others",
		token, path, mode);
	if ((mode & S_IRWXO) != 0) {
		ck_assert_int_eq(status, FANIN_ERR_INVALID);
		ck_assert_msg(strstr(error.text, words) != NULL, "found '%s'", error.text);
	} else {
		ck_assert_int_eq(status, FANIN_OK);
		ck_assert_str_eq(settings.token, "secret");
	}
	unlink(token);
	unlink(path);
	rmdir(directory);
}
END_TEST

START_TEST(settings_are_of_the_environment_or_the_file)
{
	static const struct {
		const char *text, *words;
	} wrong[] = {
		{ "FANIN_TOKEN = a\n", "line 1: found 'FANIN_TOKEN', expected manager" },
		{ "FANIN_ = a\n", "line 1: found 'FANIN_'" },
		{ "\nFANIN_mpi = a\n", "line 2: found 'FANIN_mpi'" },
		{ "FANIN_MPI\n", "line 1: found 'FANIN_MPI', expected key = value" },
	};
	char directory[] = "/tmp/fanin-setting-XXXXXX";
	struct fanin_manager_settings settings;
	struct fanin_error error;
	char path[64], value[200];
	FILE *file;

	ck_assert_ptr_nonnull(mkdtemp(directory));
	snprintf(path, sizeof(path), "%s/fanin.conf", directory);
	setenv("FANIN_CONF", path, 1);
	unsetenv("FANIN_TEST");
	ck_assert_int_eq(fanin_setting("FANIN_TEST", value, sizeof(value)), FANIN_ERR_INVALID);
	ck_assert_msg(strstr(value, "which FANIN_CONF names") != NULL, "found '%s'", value);
	file = fopen(path, "w");
	ck_assert_ptr_nonnull(file);
	fputs("manager = 10.0.0.3\nFANIN_TEST =  a b \nFANIN_TEST_2=long\n", file);
	fclose(file);
	ck_assert_int_eq(fanin_setting("FANIN_TEST", value, sizeof(value)), FANIN_OK);
	ck_assert_str_eq(value, "a b");
	ck_assert_int_eq(fanin_setting("FANIN_TEST_3", value, sizeof(value)), FANIN_OK);
	ck_assert_str_eq(value, "");
	ck_assert_int_eq(fanin_setting("FANIN_TEST_2", value, 5), FANIN_OK);
	ck_assert_str_eq(value, "long");
	ck_assert_int_eq(fanin_setting("FANIN_TEST_2", value, 4), FANIN_ERR_INVALID);
	setenv("FANIN_TEST", "", 1);
	ck_assert_int_eq(fanin_setting("FANIN_TEST", value, sizeof(value)), FANIN_OK);
	ck_assert_str_eq(value, "a b");
	setenv("FANIN_TEST", "c", 1);
	ck_assert_int_eq(fanin_setting("FANIN_TEST", value, sizeof(value)), FANIN_OK);
	ck_assert_str_eq(value, "c");
	/* The manager's address is among them. */
	ck_assert_int_eq(fanin_manager_settings_find(NULL, NULL, &settings, &error), FANIN_OK);
	ck_assert_str_eq(settings.host, "10.0.0.3");
	unsetenv("FANIN_TEST");
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		file = fopen(path, "w");
		ck_assert_ptr_nonnull(file);
		fputs(wrong[i].text, file);
		fclose(file);
		ck_assert_int_eq(fanin_setting("FANIN_TEST", value, sizeof(value)),
				 FANIN_ERR_INVALID);
		ck_assert_msg(strstr(value, wrong[i].words) != NULL, "found '%s', expected '%s'",
			      value, wrong[i].words);
	}
	unlink(path);
	rmdir(directory);
}
END_TEST

Suite *
suite_by_name(void)
{
	Suite *suite = suite_create("by_name");
	TCase *options = tcase_create("options");

	tcase_add_checked_fixture(options, environment_clear, context_free);
	tcase_add_test(options, options_that_make_no_sense_are_refused);
	tcase_add_test(options, the_short_form_uses_the_environment);
	tcase_add_test(options, endpoints_are_numbers_and_nothing_else);
	tcase_add_test(options, the_caller_comes_before_the_environment_and_that_before_the_file);
	tcase_add_loop_test(options, a_token_file_that_everybody_may_read_is_refused, 0, 4);
	tcase_add_test(options, settings_are_of_the_environment_or_the_file);
	suite_add_tcase(suite, options);
	return suite;
}
