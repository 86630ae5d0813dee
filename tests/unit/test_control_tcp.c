/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests of control over TCP: who may listen where, tokens, handshakes that never end, late answers,
 * and TLS with certificates made here. The client is tools/client.c or a bare socket.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <check.h>
#include <jansson.h>

#include "control/address.h"
#include "control/control.h"
#include "control/guard.h"
#include "control/secret.h"
#include "control/tls.h"
#include "tests/unit/suites.h"
#include "tests/unit/tcp_rig.h"
#include "control/client.h"

static int
dial(void)
{
	struct timeval patience = { .tv_sec = 20 };
	char error[ADDRESS_ERROR_LEN];
	struct address address;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ck_assert_int_eq(address_parse(tcp_rig.at, 0, false, &address, error), 0);
	ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&address.socket, address.len), 0);
	return fd;
}

static void
say(int fd, const char *text)
{
	ck_assert_int_eq(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

/* Returns the next line without its newline, "" at the end of the connection. A static buffer. */
static const char *
hear(int fd)
{
	static char line[8192];
	size_t len = 0;

	while (len < sizeof(line) - 1 && recv(fd, line + len, 1, 0) == 1 && line[len] != '\n')
		len++;
	line[len] = '\0';
	return line;
}

static const struct {
	struct control_tcp tcp;
	const char *message;
} wrong_listeners[] = {
	{ { .listen = "0.0.0.0:21931" },
	  "control address 0.0.0.0:21931: found no token file, expected one: without it only addresses of this machine alone, "
	  "like 127.0.0.1, may be listened on" },
	{ { .listen = "[::]:21931" },
	  "control address [::]:21931: found no token file, expected one: without it only addresses of this machine alone, "
	  "like 127.0.0.1, may be listened on" },
	{ { .listen = "localhost:1" },
	  "control address localhost:1: found \"localhost:1\", expected a numeric ADDRESS:PORT like 10.0.0.1:21932 or [::1]:21932" },
	{ { .listen = "127.0.0.1" },
	  "control address 127.0.0.1: found \"127.0.0.1\", expected a numeric ADDRESS:PORT like 10.0.0.1:21932 or [::1]:21932" },
	{ { .listen = "127.0.0.1:65536" },
	  "control address 127.0.0.1:65536: found \"127.0.0.1:65536\", expected a numeric ADDRESS:PORT like 10.0.0.1:21932 or "
	  "[::1]:21932" },
	{ { .listen = "127.0.0.1:1", .key = "k" },
	  "found a TLS key without a certificate, expected both or none" },
	{ { .listen = "127.0.0.1:1", .certificate = "c" },
	  "found a TLS certificate without a key, expected both or none" },
	{ { .listen = "127.0.0.1:1", .ca = "c" },
	  "found a TLS CA without a certificate, expected both" },
	{ { .token_file = "t" }, "found a token file or TLS without an address to listen on" },
};

START_TEST(a_wrong_listener_is_named)
{
	char error[CONTROL_MESSAGE_LEN] = "";

	ck_assert_int_eq(control_tcp_check(&wrong_listeners[_i].tcp, error), -EINVAL);
	ck_assert_str_eq(error, wrong_listeners[_i].message);
}
END_TEST

START_TEST(any_address_may_be_listened_on_with_a_token)
{
	const struct control_tcp tcp = { .listen = "0.0.0.0:0", .token_file = tcp_rig.token_file };
	char error[CONTROL_MESSAGE_LEN] = "";

	ck_assert_msg(control_tcp_check(&tcp, error) == 0, "%s", error);
	tcp_rig_start(&tcp, false, 0);
	tcp_rig_stop();
}
END_TEST

static void
expect_token_error(const char *text, mode_t mode, const char *message)
{
	char error[SECRET_ERROR_LEN] = "";
	char secret[SECRET_SIZE] = "kept";

	tcp_rig_write(tcp_rig.other_file, text, mode);
	ck_assert_int_lt(secret_load(tcp_rig.other_file, secret, error), 0);
	ck_assert_msg(strstr(error, message) != NULL, "%s", error);
	ck_assert_str_eq(secret, "kept");
}

START_TEST(a_token_file_has_one_line_and_is_not_for_everybody)
{
	char secret[SECRET_SIZE];
	char error[SECRET_ERROR_LEN];
	char longest[SECRET_MAX + 2];

	memset(longest, 'x', sizeof(longest));
	longest[SECRET_MAX + 1] = '\0';
	expect_token_error("abc\n", 0604, "found the mode 0604, expected no access for others");
	expect_token_error("", 0600, "expected a line of 1 to 128 printable characters");
	expect_token_error("a b\n", 0600, "expected a line of 1 to 128 printable characters");
	expect_token_error(longest, 0600, "expected a line of 1 to 128 printable characters");
	longest[SECRET_MAX] = '\0';
	tcp_rig_write(tcp_rig.other_file, longest, 0640);
	ck_assert_int_eq(secret_load(tcp_rig.other_file, secret, error), 0);
	ck_assert_str_eq(secret, longest);
	ck_assert_int_eq(secret_load("/nonexistent/token", secret, error), -ENOENT);
}
END_TEST

/* Returns an IPv4 address by its last byte, or an IPv6 one. */
static struct guard_source
source_of(const char *text)
{
	char error[ADDRESS_ERROR_LEN];
	struct address address;

	ck_assert_int_eq(address_parse(text, 0, false, &address, error), 0);
	return guard_source_of(&address.socket);
}

START_TEST(wrong_tokens_of_one_address_are_refused_late_and_forgotten)
{
	static struct guard guard;
	const struct guard_source source = source_of("10.0.0.1:1"), other = source_of("10.0.0.2:1");
	uint64_t now_ms = 1000000;

	guard = (struct guard){ 0 };
	for (unsigned int i = 0; i < GUARD_FREE; i++)
		ck_assert_uint_eq(guard_wrong_token(&guard, &source, now_ms), 0);
	/* Nothing that this address sends affects others. */
	for (unsigned int i = 0; i < 2500; i++)
		ck_assert_uint_eq(guard_wrong_token(&guard, &source, now_ms), GUARD_DELAY_MS);
	ck_assert_uint_eq(guard_wrong_token(&guard, &other, now_ms), 0);
	ck_assert_uint_eq(guard_wrong_token(&guard, &source, now_ms + 30000), GUARD_DELAY_MS);
	now_ms += 30000 + 61000;
	for (unsigned int i = 0; i < GUARD_FREE; i++)
		ck_assert_uint_eq(guard_wrong_token(&guard, &source, now_ms), 0);
}
END_TEST

START_TEST(addresses_of_one_network_are_one_source)
{
	const struct guard_source source = source_of("[2001:db8:1:2::1]:1");
	const struct guard_source near = source_of("[2001:db8:1:2:ffff::2]:1");
	const struct guard_source far = source_of("[2001:db8:1:3::1]:1");
	const struct guard_source plain = source_of("10.0.0.1:1");
	const struct guard_source mapped = source_of("[::ffff:10.0.0.1]:1");

	ck_assert_mem_eq(&source, &near, sizeof(source));
	ck_assert_mem_ne(&source, &far, sizeof(source));
	ck_assert_mem_eq(&plain, &mapped, sizeof(plain));
}
END_TEST

START_TEST(more_sources_than_are_remembered_do_no_harm)
{
	static struct guard guard;

	guard = (struct guard){ 0 };
	for (unsigned int i = 0; i < 10 * GUARD_SOURCES; i++) {
		char text[32];
		struct guard_source source;

		snprintf(text, sizeof(text), "10.0.%u.%u:1", i / 256, i % 256);
		source = source_of(text);
		ck_assert_uint_eq(guard_wrong_token(&guard, &source, 1000000 + i), 0);
	}
}
END_TEST

START_TEST(a_tls_key_is_not_for_everybody)
{
	const struct tls_files files = { .certificate = tcp_rig.certificate_file,
					 .key = tcp_rig.key_file };
	char error[TLS_ERROR_LEN] = "";
	struct tls *tls = NULL;

	tcp_rig_certificate(tcp_rig.certificate_file, tcp_rig.key_file);
	ck_assert_int_eq(chmod(tcp_rig.key_file, 0644), 0);
	ck_assert_int_eq(tls_server_create(&files, &tls, error), -EACCES);
	ck_assert_msg(strstr(error, "found the mode 0644, expected no access for others") != NULL,
		      "found '%s'", error);
	ck_assert_int_eq(chmod(tcp_rig.key_file, 0640), 0);
	ck_assert_int_eq(tls_server_create(&files, &tls, error), 0);
	tls_free(tls);
}
END_TEST

START_TEST(secrets_are_equal_only_if_all_of_them_is)
{
	char longest[SECRET_MAX + 2];

	memset(longest, 'x', sizeof(longest));
	longest[SECRET_MAX + 1] = '\0';
	ck_assert(secret_equal("abc", "abc"));
	ck_assert(!secret_equal("abc", "abd"));
	ck_assert(!secret_equal("abc", "ab"));
	ck_assert(!secret_equal("", "a"));
	ck_assert(secret_equal("", ""));
	ck_assert(!secret_equal(longest, longest));
}
END_TEST

START_TEST(only_clients_with_the_token_are_served)
{
	static const char *const wrong[] = { "{\"hello\":1}\n",
					     "{\"hello\":1,\"token\":\"wrong\"}\n",
					     "{\"hello\":1,\"token\":7}\n",
					     "{\"hello\":1,\"token\":\"correct-horse2\"}\n" };
	const struct control_tcp tcp = { .listen = "127.0.0.1:0",
					 .token_file = tcp_rig.token_file };
	const char *answer;
	int fd;

	tcp_rig_start(&tcp, true, 0);
	for (size_t i = 0; i < 4; i++) {
		fd = dial();
		say(fd, wrong[i]);
		answer = hear(fd);
		ck_assert_msg(strstr(answer, "\"unauthorized\"") != NULL, "%s", answer);
		ck_assert_str_eq(hear(fd), "");
		close(fd);
	}
	fd = dial();
	say(fd, "{\"hello\":1,\"token\":\"" TOKEN "\"}\n{\"id\":1,\"command\":\"release\"}\n");
	ck_assert_str_eq(hear(fd),
			 "{\"fanin\":\"manager\",\"protocol\":1,\"version\":\"" FANIN_VERSION
			 "\",\"name\":\"m0\",\"hello\":1}");
	ck_assert_str_eq(hear(fd),
			 "{\"id\":1,\"ok\":true,\"result\":{\"was_waiting\":false,\"gone\":0}}");
	close(fd);
	tcp_rig_stop_serving();
	ck_assert_uint_eq(control_counters(tcp_rig.control)->token_wrong, 4);
	ck_assert_uint_eq(control_counters(tcp_rig.control)->connections, 5);
	control_close(tcp_rig.control);
}
END_TEST

START_TEST(the_oldest_half_open_connection_makes_room)
{
	const struct control_tcp tcp = { .listen = "127.0.0.1:0" };
	int good, fds[20];

	tcp_rig_start(&tcp, true, 8);
	good = dial();
	say(good, "{\"hello\":1}\n");
	hear(good);
	for (unsigned int i = 0; i < 20; i++) {
		fds[i] = dial();
		/* A client that sends requests still gets in, and leaves again. */
		int other = dial();

		say(other, "{\"hello\":1}\n");
		ck_assert_msg(strstr(hear(other), "\"hello\":1") != NULL, "connection %u", i);
		close(other);
	}
	say(good, "{\"id\":1,\"command\":\"release\"}\n");
	ck_assert_str_eq(hear(good),
			 "{\"id\":1,\"ok\":true,\"result\":{\"was_waiting\":false,\"gone\":0}}");
	ck_assert_str_eq(hear(fds[0]), "");
	for (unsigned int i = 0; i < 20; i++)
		close(fds[i]);
	close(good);
	tcp_rig_stop_serving();
	ck_assert_uint_ge(control_counters(tcp_rig.control)->half_open_dropped, 16);
	control_close(tcp_rig.control);
}
END_TEST

START_TEST(a_handshake_is_short_and_a_line_bounded)
{
	const struct control_tcp tcp = { .listen = "127.0.0.1:0" };
	char line[20000];
	int fd;

	memset(line, ' ', sizeof(line));
	line[sizeof(line) - 1] = '\0';
	tcp_rig_start(&tcp, true, 8);
	fd = dial();
	say(fd, line);
	ck_assert_msg(strstr(hear(fd), "found a line of more than 4096 bytes") != NULL,
		      "handshake");
	close(fd);
	fd = dial();
	say(fd, "{\"hello\":1}\n");
	hear(fd);
	say(fd, line);
	ck_assert_msg(strstr(hear(fd), "found a line of more than 10000 bytes") != NULL, "request");
	close(fd);
	tcp_rig_stop_serving();
	ck_assert_uint_eq(control_counters(tcp_rig.control)->line_long, 2);
	control_close(tcp_rig.control);
}
END_TEST

START_TEST(an_answer_may_come_later)
{
	const struct control_tcp tcp = { .listen = "127.0.0.1:0" };
	int first, second;

	tcp_rig_start(&tcp, true, 8);
	first = dial();
	second = dial();
	say(first,
	    "{\"hello\":1}\n{\"id\":\"w\",\"command\":\"wait\"}\n{\"id\":2,\"command\":\"junk\"}\n");
	hear(first);
	ck_assert_msg(strstr(hear(first), "\"id\":2,\"ok\":false") != NULL, "the request after it");
	say(second, "{\"hello\":1}\n{\"id\":3,\"command\":\"release\"}\n");
	ck_assert_str_eq(hear(first), "{\"event\":\"soon\"}");
	ck_assert_str_eq(hear(first), "{\"id\":\"w\",\"ok\":true,\"result\":{\"seven\":7}}");
	hear(second);
	hear(second);
	say(second, "{\"id\":4,\"command\":\"release\",\"args\":{\"refuse\":true}}\n");
	ck_assert_str_eq(
		hear(first),
		"{\"id\":\"w\",\"ok\":false,\"error\":{\"code\":\"no_room\",\"message\":\"too late\"}}");
	hear(second);
	close(first);
	/*
	 * The daemon learns of the end of the connection in a round before or after this request.
	 */
	do {
		say(second, "{\"id\":5,\"command\":\"release\"}\n");
	} while (strstr(hear(second), "\"was_waiting\":false,\"gone\":1") == NULL);
	close(second);
	tcp_rig_stop();
}
END_TEST

static int
open_client(const char *ca, const char *key, struct client **client, char *error)
{
	const struct client_options options = { .at = tcp_rig.at,
						.manager = true,
						.token_file = tcp_rig.token_file,
						.ca = ca,
						.certificate = key == NULL
								       ? NULL
								       : tcp_rig.certificate_file,
						.key = key };

	return client_open(&options, client, error);
}

START_TEST(tls_protects_a_connection_and_names_what_is_wrong)
{
	const struct control_tcp tcp = { .listen = "127.0.0.1:0",
					 .token_file = tcp_rig.token_file,
					 .certificate = tcp_rig.certificate_file,
					 .key = tcp_rig.key_file };
	char error[CLIENT_ERROR_LEN] = "";
	char other_key[80];
	struct client *client;
	json_t *result;
	int fd;

	tcp_rig_certificate(tcp_rig.certificate_file, tcp_rig.key_file);
	tcp_rig_start(&tcp, true, 0);
	ck_assert_msg(open_client(tcp_rig.certificate_file, NULL, &client, error) == 0, "%s",
		      error);
	ck_assert_int_eq(client_call(client, "release", NULL, &result, error), 0);
	ck_assert(json_is_false(json_object_get(result, "was_waiting")));
	json_decref(result);
	client_close(client);

	/* A certificate of another CA. */
	snprintf(other_key, sizeof(other_key), "%s.key", tcp_rig.other_file);
	tcp_rig_certificate(tcp_rig.other_file, other_key);
	unlink(other_key);
	ck_assert_int_eq(open_client(tcp_rig.other_file, NULL, &client, error), -EPROTO);
	ck_assert_msg(strstr(error, "TLS with 127.0.0.1:") != NULL &&
			      strstr(error, "self-signed certificate") != NULL,
		      "%s", error);
	/* Without TLS the server hangs up. */
	ck_assert_int_eq(open_client(NULL, NULL, &client, error), -ECONNRESET);
	fd = dial();
	say(fd, "{\"hello\":1,\"token\":\"" TOKEN "\"}\n");
	ck_assert_ptr_null(strstr(hear(fd), "hello"));
	close(fd);
	tcp_rig_stop();
}
END_TEST

START_TEST(a_ca_of_the_server_asks_for_a_certificate_of_the_client)
{
	const struct control_tcp tcp = { .listen = "127.0.0.1:0",
					 .token_file = tcp_rig.token_file,
					 .certificate = tcp_rig.certificate_file,
					 .key = tcp_rig.key_file,
					 .ca = tcp_rig.certificate_file };
	char error[CLIENT_ERROR_LEN] = "";
	struct client *client;

	tcp_rig_certificate(tcp_rig.certificate_file, tcp_rig.key_file);
	tcp_rig_start(&tcp, true, 0);
	ck_assert_msg(open_client(tcp_rig.certificate_file, tcp_rig.key_file, &client, error) == 0,
		      "%s", error);
	client_close(client);
	ck_assert_int_lt(open_client(tcp_rig.certificate_file, NULL, &client, error), 0);
	tcp_rig_stop();
}
END_TEST

START_TEST(a_wrong_certificate_stops_the_start)
{
	const struct control_tcp tcp = { .listen = "127.0.0.1:0",
					 .certificate = tcp_rig.other_file,
					 .key = "/nonexistent/key" };
	const struct control_options options = { .service = "switch", .name = "s", .tcp = tcp };
	char error[CONTROL_MESSAGE_LEN] = "";

	tcp_rig_write(tcp_rig.other_file, "no certificate\n", 0600);
	ck_assert_int_eq(control_open(&options, &tcp_rig.control, error), -EINVAL);
	ck_assert_msg(strstr(error, tcp_rig.other_file) != NULL, "%s", error);
}
END_TEST

Suite *
suite_control_tcp(void)
{
	Suite *suite = suite_create("control_tcp");
	TCase *tcase = tcase_create("tcp");

	tcase_add_checked_fixture(tcase, tcp_rig_begin, tcp_rig_end);
	tcase_set_timeout(tcase, 300);
	tcase_add_loop_test(tcase, a_wrong_listener_is_named, 0,
			    (int)(sizeof(wrong_listeners) / sizeof(wrong_listeners[0])));
	tcase_add_test(tcase, any_address_may_be_listened_on_with_a_token);
	tcase_add_test(tcase, a_token_file_has_one_line_and_is_not_for_everybody);
	tcase_add_test(tcase, a_tls_key_is_not_for_everybody);
	tcase_add_test(tcase, wrong_tokens_of_one_address_are_refused_late_and_forgotten);
	tcase_add_test(tcase, addresses_of_one_network_are_one_source);
	tcase_add_test(tcase, more_sources_than_are_remembered_do_no_harm);
	tcase_add_test(tcase, secrets_are_equal_only_if_all_of_them_is);
	tcase_add_test(tcase, only_clients_with_the_token_are_served);
	tcase_add_test(tcase, the_oldest_half_open_connection_makes_room);
	tcase_add_test(tcase, a_handshake_is_short_and_a_line_bounded);
	tcase_add_test(tcase, an_answer_may_come_later);
	tcase_add_test(tcase, tls_protects_a_connection_and_names_what_is_wrong);
	tcase_add_test(tcase, a_ca_of_the_server_asks_for_a_certificate_of_the_client);
	tcase_add_test(tcase, a_wrong_certificate_stops_the_start);
	suite_add_tcase(suite, tcase);
	return suite;
}
