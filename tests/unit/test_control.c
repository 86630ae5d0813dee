/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests of the control socket with real clients: handshake, requests and their errors, partial
 * lines and writes, floods, and the life of the socket file. A thread serves; the test's own thread
 * is the client.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <check.h>
#include <jansson.h>

#include "control/args.h"
#include "control/control.h"
#include "tests/unit/suites.h"

#define HELLO "{\"hello\":1}\n"
#define GREETING                                                                                   \
	"{\"fanin\":\"switch\",\"protocol\":1,\"version\":\"" FANIN_VERSION "\",\"name\":\"sw0\"}"

static char directory[] = "/tmp/fanin-control-XXXXXX";
static char path[80];
static struct control *control;
static pthread_t server;
static int wake_fd;
static int user_data;

static json_t *
run_echo(void *user, const json_t *args, struct control_error *error)
{
	(void)error;
	ck_assert_ptr_eq(user, &user_data);
	ck_assert(json_is_object(args));
	return json_deep_copy(args);
}

static json_t *
run_refuse(void *user, const json_t *args, struct control_error *error)
{
	(void)user;
	(void)args;
	return control_fail(error, "no_room", "found %d,\nexpected %d", 3, 2);
}

static json_t *
run_nothing(void *user, const json_t *args, struct control_error *error)
{
	(void)user;
	(void)args;
	(void)error;
	return NULL;
}

/* Returns an answer of slightly more than this many bytes. */
static json_t *
run_fill(void *user, const json_t *args, struct control_error *error)
{
	int64_t bytes = 0;
	char *text;
	json_t *result;

	(void)user;
	if (args_check_known(args, error, "bytes") != 0 ||
	    args_integer(args, "bytes", 1, 100 << 20, &bytes, NULL, error) != 0)
		return NULL;
	text = malloc((size_t)bytes);
	ck_assert_ptr_nonnull(text);
	memset(text, 'x', (size_t)bytes);
	result = json_pack("{s:s%}", "fill", text, (size_t)bytes);
	free(text);
	return result;
}

/* Takes all kinds of arguments, and returns the values read. */
static json_t *
run_args(void *user, const json_t *args, struct control_error *error)
{
	int64_t slots = -1;
	const char *handler = "-";
	uint64_t key = 0;
	uint32_t ip_be = 0;
	const json_t *members = NULL;
	bool has_slots, has_handler, has_key, has_ip, has_members;

	(void)user;
	if (args_check_known(args, error, "slots", "handler", "key", "ip", "members") != 0 ||
	    args_integer(args, "slots", 2, 8192, &slots, &has_slots, error) != 0 ||
	    args_string(args, "handler", 8, &handler, &has_handler, error) != 0 ||
	    args_hex64(args, "key", &key, &has_key, error) != 0 ||
	    args_ipv4(args, "ip", &ip_be, &has_ip, error) != 0 ||
	    args_objects(args, "members", 1, 2, &members, &has_members, error) != 0)
		return NULL;
	return json_pack("{s:I, s:s, s:I, s:I, s:i, s:[b,b,b,b,b]}", "slots", (json_int_t)slots,
			 "handler", handler, "key", (json_int_t)key, "ip", (json_int_t)ip_be,
			 "members", (int)json_array_size(members), "present", has_slots,
			 has_handler, has_key, has_ip, has_members);
}

static json_t *
run_required(void *user, const json_t *args, struct control_error *error)
{
	int64_t id;

	(void)user;
	if (args_check_known(args, error, "id") != 0 ||
	    args_integer(args, "id", 1, 65535, &id, NULL, error) != 0)
		return NULL;
	return json_object();
}

static json_t *
run_no_arguments(void *user, const json_t *args, struct control_error *error)
{
	(void)user;
	if (args_check_known(args, error) != 0)
		return NULL;
	return json_object();
}

static const struct control_command commands[] = {
	{ .name = "echo", .run = run_echo },
	{ .name = "refuse", .run = run_refuse },
	{ .name = "nothing", .run = run_nothing },
	{ .name = "fill", .run = run_fill },
	{ .name = "args", .run = run_args },
	{ .name = "required", .run = run_required },
	{ .name = "no.arguments", .run = run_no_arguments },
	{ 0 },
};

static void *
serve(void *arg)
{
	(void)arg;
	ck_assert_int_eq(control_serve(control, wake_fd, -1), 1);
	return NULL;
}

static struct control_options
options_at(const char *at)
{
	return (struct control_options){ .service = "switch",
					 .name = "sw0",
					 .commands = commands,
					 .user = &user_data,
					 .path = at };
}

static void
open_control(void)
{
	const struct control_options options = options_at(path);
	char error[CONTROL_MESSAGE_LEN] = "";

	ck_assert_msg(control_open(&options, &control, error) == 0, "%s", error);
}

static void
make_directory(void)
{
	ck_assert_ptr_nonnull(mkdtemp(directory));
	snprintf(path, sizeof(path), "%s/run/switch.sock", directory);
}

static void
remove_directory(void)
{
	char run[80];

	unlink(path);
	snprintf(run, sizeof(run), "%s/run", directory);
	rmdir(run);
	ck_assert_int_eq(rmdir(directory), 0);
}

static void
start_server(void)
{
	make_directory();
	open_control();
	wake_fd = eventfd(0, EFD_CLOEXEC);
	ck_assert_int_ge(wake_fd, 0);
	ck_assert_int_eq(pthread_create(&server, NULL, serve, NULL), 0);
}

static void
stop_server(void)
{
	ck_assert_int_eq(eventfd_write(wake_fd, 1), 0);
	ck_assert_int_eq(pthread_join(server, NULL), 0);
	control_close(control);
	close(wake_fd);
	ck_assert_int_eq(access(path, F_OK), -1);
	remove_directory();
}

/* Opens a connection that gives up after 20 s, so that a failing test ends. */
static int
dial(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct timeval patience = { .tv_sec = 20 };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	memcpy(address.sun_path, path, strlen(path) + 1);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
	ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)), 0);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	return fd;
}

static void
say(int fd, const char *text)
{
	size_t len = strlen(text);

	ck_assert_int_eq(send(fd, text, len, MSG_NOSIGNAL), (ssize_t)len);
}

/* Returns the next line without its newline, "" at the end of the connection. A static buffer. */
static const char *
hear(int fd)
{
	static char line[8192];
	size_t len = 0;

	while (len < sizeof(line) - 1) {
		ssize_t got = recv(fd, line + len, 1, 0);

		if (got <= 0) {
			ck_assert_msg(got == 0 || errno == ECONNRESET, "no answer: %s",
				      strerror(errno));
			ck_assert_uint_eq(len, 0);
			break;
		}
		if (line[len] == '\n')
			break;
		len++;
	}
	line[len] = '\0';
	return line;
}

static int
dial_and_greet(void)
{
	int fd = dial();

	ck_assert_str_eq(hear(fd), GREETING);
	say(fd, HELLO);
	return fd;
}

struct exchange {
	const char *line;
	const char *answer;
};

#define OK(id, result) "{\"id\":" id ",\"ok\":true,\"result\":" result "}"
#define ERROR(id, code, message)                                                                   \
	"{\"id\":" id ",\"ok\":false,\"error\":{\"code\":\"" code "\",\"message\":\"" message "\"}}"

static const struct exchange exchanges[] = {
	{ "{\"id\":1,\"cmd\":\"echo\",\"args\":{\"a\":[1,\"\xc3\xa4\"]}}",
	  OK("1", "{\"a\":[1,\"\xc3\xa4\"]}") },
	{ "{\"id\":\"x\",\"cmd\":\"echo\"}\r", OK("\"x\"", "{}") },
	{ "{\"cmd\":\"echo\"}", OK("null", "{}") },
	{ "{\"id\":2,\"cmd\":\"refuse\"}", ERROR("2", "no_room", "found 3,?expected 2") },
	{ "{\"id\":2,\"cmd\":\"nothing\"}",
	  ERROR("2", "internal", "the command gave neither a result nor an error") },

	{ "", ERROR("null", "invalid",
		    "the line is not JSON: column 0: unexpected token near end of file") },
	{ "junk",
	  ERROR("null", "invalid", "the line is not JSON: column 4: invalid token near 'junk'") },
	{ "{\"id\":1", ERROR("null", "invalid",
			     "the line is not JSON: column 7: '}' expected near end of file") },
	{ "{} {}", ERROR("null", "invalid",
			 "the line is not JSON: column 4: end of file expected near '{'") },
	{ "{\"id\":1,\"id\":2}",
	  ERROR("null", "invalid",
		"the line is not JSON: column 12: duplicate object key near '\\\"id\\\"'") },
	{ "\xff\xfe",
	  ERROR("null", "invalid", "the line is not JSON: column 0: unable to decode byte 0xff") },
	{ "[1]", ERROR("null", "invalid", "found an array, expected an object") },
	{ "3", ERROR("null", "invalid", "found 3, expected an object") },

	{ "{\"id\":1}",
	  ERROR("1", "invalid", "cmd: found nothing, expected the name of a command") },
	{ "{\"id\":1,\"cmd\":7}",
	  ERROR("1", "invalid", "cmd: found 7, expected the name of a command") },
	{ "{\"id\":[1],\"cmd\":\"echo\"}",
	  ERROR("null", "invalid", "id: found an array, expected an integer or a string") },
	{ "{\"id\":1,\"cmd\":\"echo\",\"args\":[]}",
	  ERROR("1", "invalid", "args: found an empty array, expected an object") },
	{ "{\"id\":1,\"cmd\":\"echo\",\"arg\":{}}",
	  ERROR("1", "invalid", "request.arg: unknown argument (did you mean \\\"args\\\"?)") },
	{ "{\"id\":1,\"cmd\":\"ehco\"}",
	  ERROR("1", "not_found", "unknown command \\\"ehco\\\" (did you mean \\\"echo\\\"?)") },
	{ "{\"id\":1,\"cmd\":\"\\u001b[2J\"}",
	  ERROR("1", "not_found", "unknown command \\\"\\\\u001B[2J\\\"") },

	{ "{\"id\":1,\"cmd\":\"args\"}",
	  OK("1", "{\"slots\":-1,\"handler\":\"-\",\"key\":0,\"ip\":0,\"members\":0,"
		  "\"present\":[false,false,false,false,false]}") },
	{ "{\"id\":1,\"cmd\":\"args\",\"args\":{\"slots\":2,\"handler\":\"single\",\"key\":\"0xFf\",\"ip\":\"10.0.0.1\","
	  "\"members\":[{}]}}",
	  OK("1", "{\"slots\":2,\"handler\":\"single\",\"key\":255,\"ip\":16777226,\"members\":1,"
		  "\"present\":[true,true,true,true,true]}") },
	{ "{\"id\":1,\"cmd\":\"args\",\"args\":{\"slots\":\"many\"}}",
	  ERROR("1", "invalid",
		"args.slots: found \\\"many\\\", expected an integer from 2 to 8192") },
	{ "{\"id\":1,\"cmd\":\"args\",\"args\":{\"slots\":8193}}",
	  ERROR("1", "invalid", "args.slots: found 8193, expected an integer from 2 to 8192") },
	{ "{\"id\":1,\"cmd\":\"args\",\"args\":{\"slot\":8}}",
	  ERROR("1", "invalid", "args.slot: unknown argument (did you mean \\\"slots\\\"?)") },
	{ "{\"id\":1,\"cmd\":\"args\",\"args\":{\"handler\":\"muchtoolong\"}}",
	  ERROR("1", "invalid",
		"args.handler: found \\\"muchtoolong\\\", expected a string of 1 to 8 bytes") },
	{ "{\"id\":1,\"cmd\":\"args\",\"args\":{\"key\":\"ff\"}}",
	  ERROR("1", "invalid",
		"args.key: found \\\"ff\\\", expected a string of \\\"0x\\\" and 1 to 16 hexadecimal digits") },
	{ "{\"id\":1,\"cmd\":\"args\",\"args\":{\"key\":\"0x11112222333344445\"}}",
	  ERROR("1", "invalid",
		"args.key: found \\\"0x11112222333344445\\\", "
		"expected a string of \\\"0x\\\" and 1 to 16 hexadecimal digits") },
	{ "{\"id\":1,\"cmd\":\"args\",\"args\":{\"key\":17}}",
	  ERROR("1", "invalid",
		"args.key: found 17, expected a string of \\\"0x\\\" and 1 to 16 hexadecimal digits") },
	{ "{\"id\":1,\"cmd\":\"args\",\"args\":{\"ip\":\"10.0.0\"}}",
	  ERROR("1", "invalid",
		"args.ip: found \\\"10.0.0\\\", expected a unicast IPv4 address like \\\"10.77.0.1\\\"") },
	{ "{\"id\":1,\"cmd\":\"args\",\"args\":{\"members\":[]}}",
	  ERROR("1", "invalid",
		"args.members: found 0 entries, expected an array of 1 to 2 objects") },
	{ "{\"id\":1,\"cmd\":\"args\",\"args\":{\"members\":[{},7]}}",
	  ERROR("1", "invalid", "args.members[1]: found 7, expected an object") },
	{ "{\"id\":1,\"cmd\":\"required\"}",
	  ERROR("1", "invalid", "args.id: missing, expected an integer from 1 to 65535") },
	{ "{\"id\":1,\"cmd\":\"no.arguments\",\"args\":{\"x\":1}}",
	  ERROR("1", "invalid", "args.x: unknown argument") },
	{ "{\"id\":1,\"cmd\":\"fill\",\"args\":{\"bytes\":100000000}}",
	  ERROR("1", "internal", "the answer is longer than 67108864 bytes") },
};

START_TEST(each_line_is_answered_and_the_connection_stays)
{
	const struct exchange *exchange = &exchanges[_i];
	int fd = dial_and_greet();

	say(fd, exchange->line);
	say(fd, "\n");
	ck_assert_str_eq(hear(fd), exchange->answer);
	say(fd, "{\"id\":9,\"cmd\":\"echo\"}\n");
	ck_assert_str_eq(hear(fd), OK("9", "{}"));
	close(fd);
}
END_TEST

static const struct exchange handshakes[] = {
	{ "{\"hello\":2}", ERROR("null", "unsupported",
				 "found protocol 2, expected 1: use the faninctl of this switch") },
	{ "{\"hello\":\"1\"}",
	  ERROR("null", "unsupported",
		"found protocol \\\"1\\\", expected 1: use the faninctl of this switch") },
	{ "{\"id\":1,\"cmd\":\"echo\"}",
	  ERROR("null", "invalid",
		"found no handshake, expected {\\\"hello\\\":1} as the first line") },
	{ "GET / HTTP/1.1",
	  ERROR("null", "invalid", "the line is not JSON: column 3: invalid token near 'GET'") },
};

START_TEST(without_a_handshake_the_connection_ends)
{
	int fd = dial();

	ck_assert_str_eq(hear(fd), GREETING);
	say(fd, handshakes[_i].line);
	say(fd, "\n{\"id\":1,\"cmd\":\"echo\"}\n");
	ck_assert_str_eq(hear(fd), handshakes[_i].answer);
	ck_assert_str_eq(hear(fd), "");
	close(fd);
}
END_TEST

START_TEST(lines_may_come_in_pieces_and_many_at_once)
{
	static const char request[] = "{\"id\":1,\"cmd\":\"echo\"}\n";
	int fd = dial_and_greet();

	for (const char *c = request; *c != '\0'; c++)
		ck_assert_int_eq(send(fd, c, 1, 0), 1);
	ck_assert_str_eq(hear(fd), OK("1", "{}"));
	for (unsigned int i = 0; i < 500; i++)
		say(fd, request);
	for (unsigned int i = 0; i < 500; i++)
		ck_assert_str_eq(hear(fd), OK("1", "{}"));
	close(fd);
}
END_TEST

START_TEST(a_client_that_has_ended_gets_its_answers)
{
	int fd = dial();

	say(fd, HELLO "{\"id\":1,\"cmd\":\"echo\"}\n{\"id\":2,\"cmd\":\"echo\"}\n{\"half");
	ck_assert_int_eq(shutdown(fd, SHUT_WR), 0);
	ck_assert_str_eq(hear(fd), GREETING);
	ck_assert_str_eq(hear(fd), OK("1", "{}"));
	ck_assert_str_eq(hear(fd), OK("2", "{}"));
	ck_assert_str_eq(hear(fd), "");
	close(fd);
}
END_TEST

/* Reads to the newline or the end; returns the number of bytes. */
static size_t
swallow_line(int fd)
{
	char chunk[65536];
	size_t total = 0;

	for (;;) {
		ssize_t got = recv(fd, chunk, sizeof(chunk), 0);

		if (got <= 0)
			return total;
		total += (size_t)got;
		if (chunk[got - 1] == '\n')
			return total;
	}
}

START_TEST(a_long_answer_arrives_whole)
{
	int fd = dial_and_greet();
	int other = dial_and_greet();

	say(fd, "{\"id\":1,\"cmd\":\"fill\",\"args\":{\"bytes\":20000000}}\n");
	/* The answer does not fit the socket's buffer; no other client waits until it is read. */
	say(other, "{\"id\":1,\"cmd\":\"echo\"}\n");
	ck_assert_str_eq(hear(other), OK("1", "{}"));
	ck_assert_uint_eq(swallow_line(fd), 20000000 + strlen(OK("1", "{\"fill\":\"\"}")) + 1);
	say(fd, "{\"id\":2,\"cmd\":\"echo\"}\n");
	ck_assert_str_eq(hear(fd), OK("2", "{}"));
	close(fd);
	close(other);
}
END_TEST

START_TEST(a_line_of_one_megabyte_is_allowed_and_no_longer_one)
{
	size_t limit = 1 << 20;
	char *line = malloc(10 * limit);
	int fd = dial_and_greet();
	size_t sent = 0;

	ck_assert_ptr_nonnull(line);
	memset(line, ' ', 10 * limit);
	memcpy(line, "{\"cmd\":\"echo\"}", strlen("{\"cmd\":\"echo\"}"));
	line[limit] = '\n';
	while (sent < limit + 1) {
		ssize_t got = send(fd, line + sent, limit + 1 - sent, MSG_NOSIGNAL);

		ck_assert_int_gt(got, 0);
		sent += (size_t)got;
	}
	ck_assert_str_eq(hear(fd), OK("null", "{}"));

	line[limit] = ' ';
	for (sent = 0; sent < 10 * limit;) {
		ssize_t got = send(fd, line + sent, 10 * limit - sent, MSG_NOSIGNAL);

		if (got < 0)
			break;
		sent += (size_t)got;
	}
	ck_assert_uint_lt(sent, 10 * limit);
	ck_assert_str_eq(
		hear(fd),
		ERROR("null", "invalid",
		      "found a line of more than 1048576 bytes, expected a newline before"));
	ck_assert_str_eq(hear(fd), "");
	close(fd);
	free(line);
}
END_TEST

/* Sends a request on each connection: none of them is idle afterwards. */
static void
ask_all(const int *fds, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++) {
		say(fds[i], "{\"id\":1,\"cmd\":\"echo\"}\n");
		ck_assert_str_eq(hear(fds[i]), OK("1", "{}"));
	}
}

START_TEST(of_a_hundred_clients_32_are_served_and_the_others_told)
{
	static const char refusal[] =
		ERROR("null", "no_room",
		      "found 32 clients connected already, expected fewer: try again later");
	int fds[100];

	for (unsigned int i = 0; i < 100; i++) {
		ask_all(fds, i < 32 ? i : 32);
		if (i < 32) {
			fds[i] = dial_and_greet();
			continue;
		}
		fds[i] = dial();
		ck_assert_str_eq(hear(fds[i]), refusal);
	}
	for (unsigned int i = 0; i < 100; i++) {
		if (i >= 32)
			ck_assert_str_eq(hear(fds[i]), "");
		close(fds[i]);
	}
	/* The server sees the ends before it accepts another connection, as they came before. */
	fds[0] = dial_and_greet();
	close(fds[0]);
}
END_TEST

START_TEST(clients_without_a_handshake_make_room)
{
	int fds[100];

	for (unsigned int i = 0; i < 100; i++) {
		fds[i] = dial();
		ck_assert_str_eq(hear(fds[i]), GREETING);
	}
	ck_assert_str_eq(hear(fds[0]), "");
	close(dial_and_greet());
	for (unsigned int i = 0; i < 100; i++)
		close(fds[i]);
}
END_TEST

/* Idle clients give way before those that send requests. */
START_TEST(a_client_that_asks_for_nothing_makes_room)
{
	int fds[32], newcomer;
	char answer[256] = "";

	for (unsigned int i = 0; i < 32; i++)
		fds[i] = dial_and_greet();
	do {
		ask_all(fds, 31);
		newcomer = dial();
		snprintf(answer, sizeof(answer), "%s", hear(newcomer));
		if (strcmp(answer, GREETING) != 0)
			close(newcomer);
	} while (strcmp(answer, GREETING) != 0);
	ask_all(fds, 31);
	ck_assert_str_eq(hear(fds[31]), "");
	for (unsigned int i = 0; i < 32; i++)
		close(fds[i]);
	close(newcomer);
}
END_TEST

/*
 * Sends requests and reads nothing until the connection is lost. Returns the number of bytes sent.
 */
static size_t
flood(int fd, const char *request)
{
	size_t total = 0;

	for (;;) {
		ssize_t sent = send(fd, request, strlen(request), MSG_NOSIGNAL);

		if (sent < 0)
			break;
		total += (size_t)sent;
	}
	ck_assert_msg(errno == EPIPE || errno == ECONNRESET, "%s", strerror(errno));
	return total;
}

START_TEST(a_client_that_never_reads_is_closed_and_holds_nobody_up)
{
	int fd = dial_and_greet();
	int other = dial_and_greet();
	size_t taken;

	say(fd, "{\"id\":1,\"cmd\":\"fill\",\"args\":{\"bytes\":10000000}}\n");
	for (unsigned int i = 0; i < 100; i++) {
		say(other, "{\"id\":1,\"cmd\":\"echo\"}\n");
		ck_assert_str_eq(hear(other), OK("1", "{}"));
	}
	/* Further requests stay in the socket's buffer. */
	taken = flood(fd, "{\"id\":1,\"cmd\":\"echo\"}\n");
	ck_assert_uint_lt(taken, 4 << 20);
	say(other, "{\"id\":1,\"cmd\":\"echo\"}\n");
	ck_assert_str_eq(hear(other), OK("1", "{}"));
	close(fd);
	close(other);
}
END_TEST

static void *
flood_and_read(void *arg)
{
	int fd = *(int *)arg;
	char chunk[65536];

	/* Ends when the test shuts the connection down. */
	for (;;) {
		if (send(fd, "{\"cmd\":\"echo\"}\njunk\n", 20, MSG_NOSIGNAL) < 0)
			return NULL;
		while (recv(fd, chunk, sizeof(chunk), MSG_DONTWAIT) > 0)
			;
	}
}

START_TEST(a_flood_of_requests_does_not_keep_others_waiting)
{
	int flooder = dial_and_greet();
	int fd = dial_and_greet();
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, flood_and_read, &flooder), 0);
	for (unsigned int i = 0; i < 300; i++) {
		say(fd, "{\"id\":1,\"cmd\":\"echo\"}\n");
		ck_assert_str_eq(hear(fd), OK("1", "{}"));
	}
	shutdown(flooder, SHUT_RDWR);
	pthread_join(thread, NULL);
	close(flooder);
	close(fd);
}
END_TEST

START_TEST(a_client_that_vanishes_leaves_nothing_behind)
{
	/* There are more connections than places, so each one must be freed. */
	for (unsigned int i = 0; i < 100; i++) {
		int fd = dial();

		if (i % 2 == 0)
			ck_assert_str_eq(hear(fd), GREETING);
		say(fd, i % 3 == 0 ? HELLO "{\"cmd\":\"fill\",\"args\":{\"bytes\":1000000}}\n"
				   : "{\"hel");
		close(fd);
	}
	stop_server();
	memcpy(directory + strlen(directory) - 6, "XXXXXX", 6);
	start_server();
	close(dial_and_greet());
}
END_TEST

START_TEST(serving_ends_after_its_time)
{
	make_directory();
	open_control();
	ck_assert_int_eq(control_serve(control, -1, 0), 0);
	ck_assert_int_eq(control_serve(control, -1, 20), 0);
	ck_assert_int_eq(control_serve(control, 1000, 20), -EBADF);
	control_close(control);
	control_close(NULL);
	remove_directory();
}
END_TEST

START_TEST(the_socket_is_for_owner_and_group_and_its_directory_is_made)
{
	struct stat status;
	mode_t mask = umask(0);

	make_directory();
	open_control();
	ck_assert_int_eq(stat(path, &status), 0);
	ck_assert_int_eq(status.st_mode & 07777, 0660);
	*strrchr(path, '/') = '\0';
	ck_assert_int_eq(stat(path, &status), 0);
	ck_assert_int_eq(status.st_mode & 07777, 0755);
	path[strlen(path)] = '/';
	umask(mask);
	control_close(control);
	ck_assert_int_eq(access(path, F_OK), -1);
	remove_directory();
}
END_TEST

static void
expect_open_error(const char *at, int code, const char *message)
{
	char error[CONTROL_MESSAGE_LEN] = "";
	char expected[CONTROL_MESSAGE_LEN];
	const struct control_options options = options_at(at);
	struct control *unset = NULL;

	snprintf(expected, sizeof(expected), "control socket %s: %s", at, message);
	ck_assert_int_eq(control_open(&options, &unset, error), code);
	ck_assert_str_eq(error, expected);
	ck_assert_ptr_null(unset);
}

START_TEST(a_socket_left_behind_is_replaced_and_one_in_use_is_not)
{
	char moved[100];
	int fd;

	make_directory();
	open_control();
	expect_open_error(path, -EADDRINUSE,
			  "another process listens on it: stop it or choose another path");

	/* A file without a listener, as after a crash. */
	snprintf(moved, sizeof(moved), "%s.old", path);
	ck_assert_int_eq(rename(path, moved), 0);
	control_close(control);
	ck_assert_int_eq(rename(moved, path), 0);
	open_control();
	fd = dial();
	ck_assert_int_eq(control_serve(control, -1, 0), 0);
	ck_assert_str_eq(hear(fd), GREETING);
	close(fd);

	/* A file that belongs to another process by now stays. */
	ck_assert_int_eq(unlink(path), 0);
	fd = open(path, O_CREAT | O_WRONLY, 0600);
	ck_assert_int_ge(fd, 0);
	close(fd);
	control_close(control);
	ck_assert_int_eq(access(path, F_OK), 0);
	expect_open_error(path, -EEXIST,
			  "found a file that is not a socket: remove it or choose another path");
	remove_directory();
}
END_TEST

START_TEST(a_path_that_cannot_be_is_named)
{
	char longest[200];

	memset(longest, 'a', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	expect_open_error(longest, -ENAMETOOLONG, "expected a path of 1 to 107 bytes");
	expect_open_error("", -ENAMETOOLONG, "expected a path of 1 to 107 bytes");
	expect_open_error("/nonexistent/a/b", -ENOENT,
			  "cannot create the directory /nonexistent/a: No such file or directory");
	expect_open_error("/dev/null/b", -ENOTDIR, "Not a directory");
}
END_TEST

Suite *
suite_control(void)
{
	Suite *suite = suite_create("control");
	TCase *served = tcase_create("served");
	TCase *file = tcase_create("file");

	tcase_add_checked_fixture(served, start_server, stop_server);
	tcase_set_timeout(served, 300);
	tcase_add_loop_test(served, each_line_is_answered_and_the_connection_stays, 0,
			    (int)(sizeof(exchanges) / sizeof(exchanges[0])));
	tcase_add_loop_test(served, without_a_handshake_the_connection_ends, 0,
			    (int)(sizeof(handshakes) / sizeof(handshakes[0])));
	tcase_add_test(served, lines_may_come_in_pieces_and_many_at_once);
	tcase_add_test(served, a_client_that_has_ended_gets_its_answers);
	tcase_add_test(served, a_long_answer_arrives_whole);
	tcase_add_test(served, a_line_of_one_megabyte_is_allowed_and_no_longer_one);
	tcase_add_test(served, of_a_hundred_clients_32_are_served_and_the_others_told);
	tcase_add_test(served, clients_without_a_handshake_make_room);
	tcase_add_test(served, a_client_that_asks_for_nothing_makes_room);
	tcase_add_test(served, a_client_that_never_reads_is_closed_and_holds_nobody_up);
	tcase_add_test(served, a_flood_of_requests_does_not_keep_others_waiting);
	tcase_add_test(served, a_client_that_vanishes_leaves_nothing_behind);
	suite_add_tcase(suite, served);

	tcase_add_test(file, serving_ends_after_its_time);
	tcase_add_test(file, the_socket_is_for_owner_and_group_and_its_directory_is_made);
	tcase_add_test(file, a_socket_left_behind_is_replaced_and_one_in_use_is_not);
	tcase_add_test(file, a_path_that_cannot_be_is_named);
	suite_add_tcase(suite, file);
	return suite;
}
