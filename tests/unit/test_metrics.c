/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Metrics: conversion of a table and JSON values to Prometheus' text, the server's addresses, and
 * its answers.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "control/clock.h"
#include "control/metrics/metrics.h"
#include "tests/unit/suites.h"

#define CONNECTIONS 16 /* maximum of the server's */

static void
expect_text(const struct metrics_family *families, const char *json, const char *expected)
{
	json_t *values = json_loads(json, 0, NULL);
	size_t len = 0;
	char *text;

	ck_assert_ptr_nonnull(values);
	text = metrics_render(families, values, &len);
	ck_assert_ptr_nonnull(text);
	ck_assert_str_eq(text, expected);
	ck_assert_uint_eq(len, strlen(expected));
	free(text);
	json_decref(values);
}

START_TEST(values_become_samples)
{
	static const struct metrics_family families[] = {
		{ .name = "a_total", .type = METRICS_COUNTER, .help = "Of a.", .path = "x.a" },
		{ .name = "b_seconds",
		  .type = METRICS_GAUGE,
		  .help = "B.",
		  .path = "x.b",
		  .scale = 1e-9 },
		{ .name = "c", .type = METRICS_GAUGE, .help = "C.", .path = "x.c" },
		{ .name = "d", .type = METRICS_GAUGE, .help = "D.", .path = "x.d", .equals = "on" },
		{ .name = "e",
		  .type = METRICS_GAUGE,
		  .help = "E.",
		  .path = "x.d",
		  .equals = "off" },
		{ .name = "f",
		  .type = METRICS_GAUGE,
		  .help = "F.",
		  .path = "x",
		  .labels = { { "d", "d", 0 }, { "a", "a", 0 }, { "c", "c", 0 } } },
		{ .name = "absent", .type = METRICS_GAUGE, .help = "G.", .path = "x.none.more" },
		{ .name = NULL },
	};

	expect_text(families,
		    "{\"x\":{\"a\":9007199254740993,\"b\":1500000000,\"c\":true,\"d\":\"on\"}}",
		    "# HELP a_total Of a.\n# TYPE a_total counter\na_total 9007199254740993\n"
		    "# HELP b_seconds B.\n# TYPE b_seconds gauge\nb_seconds 1.5\n"
		    "# HELP c C.\n# TYPE c gauge\nc 1\n"
		    "# HELP d D.\n# TYPE d gauge\nd 1\n"
		    "# HELP e E.\n# TYPE e gauge\ne 0\n"
		    "# HELP f F.\n# TYPE f gauge\nf{d=\"on\",a=\"9007199254740993\",c=\"true\"} 1\n"
		    "# HELP absent G.\n# TYPE absent gauge\n");
}
END_TEST

START_TEST(entries_of_arrays_are_labelled)
{
	static const struct metrics_family families[] = {
		{ .name = "m",
		  .type = METRICS_GAUGE,
		  .help = "M.",
		  .path = "jobs[].members[].up",
		  .labels = { { "fanin_job", "id", 0 }, { "port", "port", 1 } } },
		{ .name = "i",
		  .type = METRICS_GAUGE,
		  .help = "I.",
		  .path = "jobs[]",
		  .labels = { { "fanin_job", "id", 0 } } },
		{ .name = NULL },
	};

	expect_text(
		families,
		"{\"jobs\":[{\"id\":1,\"members\":[{\"port\":\"a\\\"b\\\\c\\nd\",\"up\":true},"
		"{\"port\":\"h1\",\"up\":false}]},{\"id\":7,\"members\":[]}]}",
		"# HELP m M.\n# TYPE m gauge\n"
		"m{fanin_job=\"1\",port=\"a\\\"b\\\\c\\nd\"} 1\nm{fanin_job=\"1\",port=\"h1\"} 0\n"
		"# HELP i I.\n# TYPE i gauge\ni{fanin_job=\"1\"} 1\ni{fanin_job=\"7\"} 1\n");
}
END_TEST

START_TEST(histograms_are_cumulative)
{
	static const struct metrics_family families[] = {
		{ .name = "h",
		  .type = METRICS_HISTOGRAM,
		  .help = "H.",
		  .path = "w[].h",
		  .labels = { { "w", "n", 0 } },
		  .sum = "s" },
		{ .name = NULL },
	};
	static const char head[] =
		"# HELP h H.\n# TYPE h histogram\n"
		"h_bucket{w=\"3\",le=\"0\"} 5\nh_bucket{w=\"3\",le=\"1\"} 5\nh_bucket{w=\"3\",le=\"3\"} 7\n"
		"h_bucket{w=\"3\",le=\"7\"} 7\n";
	static const char tail[] =
		"h_bucket{w=\"3\",le=\"2047\"} 7\nh_bucket{w=\"3\",le=\"4095\"} 10\n"
		"h_bucket{w=\"3\",le=\"+Inf\"} 11\nh_sum{w=\"3\"} 123\n"
		"h_count{w=\"3\"} 11\n";
	char expected[1024];
	size_t used = (size_t)snprintf(expected, sizeof(expected), "%s", head);

	for (unsigned int le = 15; le <= 1023; le = 2 * le + 1)
		used += (size_t)snprintf(expected + used, sizeof(expected) - used,
					 "h_bucket{w=\"3\",le=\"%u\"} 7\n", le);
	snprintf(expected + used, sizeof(expected) - used, "%s", tail);
	expect_text(
		families,
		"{\"w\":[{\"n\":3,\"s\":123,\"h\":{\"0\":5,\"2-3\":2,\"2048-4095\":3,\"4096-\":1}}]}",
		expected);
}
END_TEST

START_TEST(an_address_is_an_ip_address_and_a_port)
{
	static const char *const wrong[] = {
		"",
		":",
		"127.0.0.1",
		"127.0.0.1:",
		"127.0.0.1:0",
		":9464",
		"[]:9464",
		"::1:9464",
		"[::1:9464",
		"127.0.0.1:65536",
		"localhost:1",
		"127.0.0.1: 1",
		"127.0.0.1:+1",
		"127.0.0.1:0x10",
		"1.2.3:99999999999999999999",
		"[::1]9464",
	};
	struct address address;

	ck_assert_int_eq(metrics_address("127.0.0.1:9464", &address), 0);
	ck_assert_int_eq(address.socket.ss_family, AF_INET);
	ck_assert_uint_eq(address_port(&address), 9464);
	ck_assert(address_is_loopback(&address));
	ck_assert_int_eq(metrics_address("[::1]:65535", &address), 0);
	ck_assert_int_eq(address.socket.ss_family, AF_INET6);
	ck_assert_uint_eq(address_port(&address), 65535);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		ck_assert_msg(metrics_address(wrong[i], &address) == -EINVAL, "\"%s\"", wrong[i]);
}
END_TEST

static const struct metrics_family one_family[] = {
	{ .name = "one", .type = METRICS_GAUGE, .help = "One.", .path = "one" },
	{ .name = NULL },
};

static json_t *
one_value(void *user)
{
	return *(bool *)user ? json_pack("{s:i}", "one", 1) : NULL;
}

/* Listens on a port that the kernel chose a moment ago. */
static struct metrics_server *
open_server(bool *works, struct sockaddr_in *address)
{
	struct metrics_server *server;
	struct metrics_server *second;
	char error[METRICS_ERROR_LEN] = "";
	char text[32];
	socklen_t len = sizeof(*address);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	*address = (struct sockaddr_in){ .sin_family = AF_INET,
					 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	ck_assert_int_eq(bind(fd, (const struct sockaddr *)address, sizeof(*address)), 0);
	ck_assert_int_eq(getsockname(fd, (struct sockaddr *)address, &len), 0);
	close(fd);
	snprintf(text, sizeof(text), "127.0.0.1:%u", ntohs(address->sin_port));
	ck_assert_msg(metrics_server_open(text, one_family, one_value, works, &server, error) == 0,
		      "%s", error);
	ck_assert_int_eq(metrics_server_open(text, one_family, one_value, works, &second, error),
			 -EADDRINUSE);
	ck_assert_ptr_null(second);
	ck_assert_msg(strstr(error, text) != NULL && strstr(error, strerror(EADDRINUSE)) != NULL,
		      "%s", error);
	return server;
}

static int
connect_to(const struct sockaddr_in *address)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(connect(fd, (const struct sockaddr *)address, sizeof(*address)), 0);
	return fd;
}

/*
 * Serves until the client has something to read, or nothing has happened for quiet_ms. Returns true
 * if it has.
 */
static bool
serve_until_answer(struct metrics_server *server, int client, int quiet_ms)
{
	struct pollfd fds[] = {
		{ .fd = client, .events = POLLIN },
		{ .fd = metrics_server_fd(server), .events = POLLIN },
	};
	bool more = true;

	while (more || poll(fds, 2, quiet_ms) > 0) {
		if (poll(fds, 1, 0) > 0)
			return true;
		more = metrics_server_serve(server);
	}
	return false;
}

/*
 * Sends a request and expects the answer to start and to end like this; end: NULL if that does not
 * matter.
 */
static void
expect_answer(struct metrics_server *server, int client, const char *request, const char *start,
	      const char *end)
{
	char answer[2048];
	size_t used = 0;

	ck_assert_int_eq(write(client, request, strlen(request)), (ssize_t)strlen(request));
	do {
		ssize_t n;

		ck_assert_msg(serve_until_answer(server, client, 5000), "%.20s: no answer",
			      request);
		n = read(client, answer + used, sizeof(answer) - 1 - used);
		ck_assert_msg(n > 0, "%.20s: the answer ended early", request);
		used += (size_t)n;
		answer[used] = '\0';
	} while (strstr(answer, "\r\n\r\n") == NULL ||
		 (end != NULL && strstr(answer, end) == NULL));
	ck_assert_msg(strncmp(answer, start, strlen(start)) == 0, "%.20s: found %s", request,
		      answer);
}

/*
 * Sends what is no request, and expects an answer that says so, or the connection's end without
 * one, as with libmicrohttpd 1.0.
 */
static void
expect_refusal(struct metrics_server *server, int client, const char *junk)
{
	char answer[16] = "";
	ssize_t n;

	ck_assert_int_eq(write(client, junk, strlen(junk)), (ssize_t)strlen(junk));
	ck_assert_msg(serve_until_answer(server, client, 5000), "junk: no answer");
	n = read(client, answer, sizeof(answer) - 1);
	ck_assert_msg(n == 0 || (n < 0 && errno == ECONNRESET) ||
			      strncmp(answer, "HTTP/1.", strlen("HTTP/1.")) == 0,
		      "junk: found %s", answer);
}

START_TEST(only_metrics_can_be_got)
{
	struct sockaddr_in address;
	bool works = true;
	struct metrics_server *server = open_server(&works, &address);
	int client = connect_to(&address);
	int other;

	for (int i = 0; i < 3; i++)
		expect_answer(server, client, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
			      "HTTP/1.1 200 ", "\none 1\n");
	expect_answer(server, client, "HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 200 ",
		      "text/plain; version=0.0.4");
	works = false;
	expect_answer(server, client, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 500 ",
		      NULL);
	works = true;
	other = connect_to(&address);
	expect_answer(server, other, "GET /other HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 404 ",
		      "/metrics\n");
	close(other);
	other = connect_to(&address);
	expect_answer(server, other,
		      "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc",
		      "HTTP/1.1 405 ", "GET\n");
	close(other);
	other = connect_to(&address);
	expect_refusal(server, other, "\1\2\3 junk\r\n\r\n");
	close(other);
	close(client);
	metrics_server_close(server);
}
END_TEST

/* Returns whether the server has closed the connection. */
static bool
is_closed(int client)
{
	char byte;
	ssize_t n = recv(client, &byte, 1, MSG_DONTWAIT | MSG_PEEK);

	return n == 0 || (n < 0 && errno != EAGAIN);
}

/* No client can hold all places: the oldest connection without a whole request gives way. */
START_TEST(connections_without_a_request_give_way)
{
	struct sockaddr_in address;
	bool works = true;
	struct metrics_server *server = open_server(&works, &address);
	const char request[] = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
	int silent[CONNECTIONS];
	int client;

	for (int i = 0; i < CONNECTIONS; i++) {
		silent[i] = connect_to(&address);
		ck_assert_int_eq(write(silent[i], "GET /", 5), 5);
		ck_assert(!serve_until_answer(server, silent[i], 10));
	}
	/*
	 * The places are taken: a connection that has made a request is no longer the oldest one.
	 */
	expect_answer(server, silent[0], "metrics HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 200 ",
		      "\none 1\n");
	for (int i = 0; i < CONNECTIONS; i++)
		ck_assert(!is_closed(silent[i]));
	for (int turn = 1; turn <= 3; turn++) {
		client = connect_to(&address);
		expect_answer(server, client, request, "HTTP/1.1 200 ", "\none 1\n");
		for (int i = 0; i < CONNECTIONS; i++)
			ck_assert_int_eq(is_closed(silent[i]), i == turn);
		close(silent[turn]);
		silent[turn] = client;
	}
	for (int i = 0; i < CONNECTIONS; i++)
		close(silent[i]);
	metrics_server_close(server);
}
END_TEST

/* A byte now and then does not count as progress. */
START_TEST(a_request_has_a_deadline)
{
	struct sockaddr_in address;
	bool works = true;
	struct metrics_server *server = open_server(&works, &address);
	const char request[] = "GET /metrics HTTP/1.1\r\nHost: xxxxxxxxxxxxxxxxxxxxxxxxxxxxx";
	uint64_t began_ms = clock_ms();
	int slow = connect_to(&address);
	size_t sent = 0;

	while (!is_closed(slow) && sent < strlen(request)) {
		send(slow, &request[sent++], 1, MSG_NOSIGNAL);
		serve_until_answer(server, slow, 200);
	}
	ck_assert_msg(is_closed(slow), "still open after %lu ms",
		      (unsigned long)(clock_ms() - began_ms));
	ck_assert_uint_ge(clock_ms() - began_ms, 4900);
	ck_assert_uint_lt(clock_ms() - began_ms, 11000);
	close(slow);
	metrics_server_close(server);
}
END_TEST

START_TEST(without_an_address_there_is_no_server)
{
	struct metrics_server *server = (struct metrics_server *)1;
	char error[METRICS_ERROR_LEN];

	ck_assert_int_eq(metrics_server_open("", one_family, one_value, NULL, &server, error), 0);
	ck_assert_ptr_null(server);
	ck_assert_int_eq(metrics_server_fd(server), -1);
	ck_assert(!metrics_server_serve(server));
	metrics_server_close(server);
	ck_assert_int_eq(metrics_server_open("192.0.2.1:9464", one_family, one_value, NULL, &server,
					     error),
			 -EADDRNOTAVAIL);
}
END_TEST

Suite *
suite_metrics(void)
{
	Suite *suite = suite_create("metrics");
	TCase *text = tcase_create("text");
	TCase *server = tcase_create("server");

	tcase_add_test(text, values_become_samples);
	tcase_add_test(text, entries_of_arrays_are_labelled);
	tcase_add_test(text, histograms_are_cumulative);
	tcase_add_test(text, an_address_is_an_ip_address_and_a_port);
	suite_add_tcase(suite, text);

	tcase_set_timeout(server, 300);
	tcase_add_test(server, only_metrics_can_be_got);
	tcase_add_test(server, connections_without_a_request_give_way);
	tcase_add_test(server, a_request_has_a_deadline);
	tcase_add_test(server, without_an_address_there_is_no_server);
	suite_add_tcase(suite, server);
	return suite;
}
