/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests of control over TCP: who may listen where, tokens, handshakes that never end, answers that come later, and TLS with
 * certificates made here. A thread serves; the client is tools/client.c or a bare socket.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <check.h>
#include <jansson.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "control/address.h"
#include "control/clock.h"
#include "control/control.h"
#include "control/secret.h"
#include "manager/peer.h"
#include "tests/unit/suites.h"
#include "tools/client.h"

#define TOKEN "correct-horse"

static char directory[] = "/tmp/fanin-tcp-XXXXXX";
static char token_file[64], certificate_file[64], key_file[64], other_file[64];
static char at[64]; /* where the server listens */
static struct control *control;
static pthread_t server;
static int wake_fd;

/* A request that is answered by the next one, or never. */
static struct control_client *waiting;
static json_t *waiting_id;
static int n_gone;

static json_t *
run_wait(void *user, struct control_client *client, json_t *id, const json_t *args,
	 struct control_error *error)
{
	(void)user;
	(void)args;
	waiting = client;
	waiting_id = json_incref(id);
	control_client_set_data(client, &waiting);
	return control_later(error);
}

static json_t *
run_release(void *user, const json_t *args, struct control_error *error)
{
	struct control_error late;

	(void)user;
	(void)error;
	if (waiting != NULL && json_object_get(args, "refuse") != NULL) {
		control_fail(&late, "no_room", "too late");
		control_refuse(waiting, waiting_id, &late);
	} else if (waiting != NULL) {
		control_notify(waiting, json_pack("{s:s}", "event", "soon"));
		control_answer(waiting, waiting_id, json_pack("{s:i}", "seven", 7));
	}
	return json_pack("{s:b, s:i}", "was_waiting", waiting != NULL, "gone", n_gone);
}

static void
client_gone(void *user, struct control_client *client, void *data)
{
	(void)user;
	ck_assert_ptr_eq(client, waiting);
	ck_assert_ptr_eq(data, &waiting);
	waiting = NULL;
	n_gone++;
}

static const struct control_command commands[] = {
	{ .name = "wait", .run_for = run_wait },
	{ .name = "release", .run = run_release },
	{ 0 },
};

static void
write_file(const char *path, const char *text, mode_t mode)
{
	FILE *file = fopen(path, "w");

	ck_assert_ptr_nonnull(file);
	fputs(text, file);
	ck_assert_int_eq(fclose(file), 0);
	ck_assert_int_eq(chmod(path, mode), 0);
}

/* A self-signed certificate for 127.0.0.1, with its key. */
static void
make_certificate(const char *certificate_path, const char *key_path)
{
	EVP_PKEY *key = EVP_EC_gen("P-256");
	X509 *certificate = X509_new();
	X509_NAME *name = X509_get_subject_name(certificate);
	X509_EXTENSION *alternative;
	FILE *file;

	X509_set_version(certificate, 2);
	ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
	X509_gmtime_adj(X509_getm_notBefore(certificate), -3600);
	X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
	X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)"test", -1, -1,
				   0);
	X509_set_issuer_name(certificate, name);
	X509_set_pubkey(certificate, key);
	alternative = X509V3_EXT_conf_nid(NULL, NULL, NID_subject_alt_name, "IP:127.0.0.1");
	X509_add_ext(certificate, alternative, -1);
	ck_assert_int_gt(X509_sign(certificate, key, EVP_sha256()), 0);
	file = fopen(certificate_path, "w");
	ck_assert(file != NULL && PEM_write_X509(file, certificate) == 1);
	fclose(file);
	file = fopen(key_path, "w");
	ck_assert(file != NULL && PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL) == 1);
	fclose(file);
	X509_EXTENSION_free(alternative);
	X509_free(certificate);
	EVP_PKEY_free(key);
}

static void
make_files(void)
{
	ck_assert_ptr_nonnull(mkdtemp(directory));
	snprintf(token_file, sizeof(token_file), "%s/token", directory);
	snprintf(certificate_file, sizeof(certificate_file), "%s/certificate.pem", directory);
	snprintf(key_file, sizeof(key_file), "%s/key.pem", directory);
	snprintf(other_file, sizeof(other_file), "%s/other", directory);
	write_file(token_file, TOKEN "\n", 0600);
	signal(SIGPIPE, SIG_IGN);
	unsetenv("FANIN_TOKEN");
}

static void
remove_files(void)
{
	unlink(token_file);
	unlink(certificate_file);
	unlink(key_file);
	unlink(other_file);
	ck_assert_int_eq(rmdir(directory), 0);
}

static void *
serve(void *arg)
{
	(void)arg;
	ck_assert_int_eq(control_serve(control, wake_fd, -1), 1);
	return NULL;
}

static void
start_server(const struct control_tcp *tcp, bool answers_hello, unsigned int max_clients)
{
	const struct control_options options = { .service = "manager",
						 .name = "m0",
						 .commands = commands,
						 .closed = client_gone,
						 .tcp = *tcp,
						 .answers_hello = answers_hello,
						 .max_clients = max_clients,
						 .line_max = 10000 };
	char error[CONTROL_MESSAGE_LEN] = "";

	ck_assert_msg(control_open(&options, &control, error) == 0, "%s", error);
	snprintf(at, sizeof(at), "127.0.0.1:%u", control_tcp_port(control));
	wake_fd = eventfd(0, EFD_CLOEXEC);
	ck_assert_int_ge(wake_fd, 0);
	ck_assert_int_eq(pthread_create(&server, NULL, serve, NULL), 0);
}

/* After it the counters are the test's to read. */
static void
stop_serving(void)
{
	ck_assert_int_eq(eventfd_write(wake_fd, 1), 0);
	ck_assert_int_eq(pthread_join(server, NULL), 0);
	close(wake_fd);
}

static void
stop_server(void)
{
	stop_serving();
	control_close(control);
	json_decref(waiting_id);
	waiting_id = NULL;
}

static int
dial(void)
{
	struct timeval patience = { .tv_sec = 20 };
	char error[ADDRESS_ERROR_LEN];
	struct address address;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ck_assert_int_eq(address_parse(at, 0, false, &address, error), 0);
	ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&address.socket, address.len), 0);
	return fd;
}

static void
say(int fd, const char *text)
{
	ck_assert_int_eq(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

/* The next line without its newline, "" at the end of the connection. A static buffer. */
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
	const struct control_tcp tcp = { .listen = "0.0.0.0:0", .token_file = token_file };
	char error[CONTROL_MESSAGE_LEN] = "";

	ck_assert_msg(control_tcp_check(&tcp, error) == 0, "%s", error);
	start_server(&tcp, false, 0);
	stop_server();
}
END_TEST

static void
expect_token_error(const char *text, mode_t mode, const char *message)
{
	char error[SECRET_ERROR_LEN] = "";
	char secret[SECRET_SIZE] = "kept";

	write_file(other_file, text, mode);
	ck_assert_int_lt(secret_load(other_file, secret, error), 0);
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
	write_file(other_file, longest, 0640);
	ck_assert_int_eq(secret_load(other_file, secret, error), 0);
	ck_assert_str_eq(secret, longest);
	ck_assert_int_eq(secret_load("/nonexistent/token", secret, error), -ENOENT);
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
	static const char *const wrong[] = { "{\"hello\":1}\n", "{\"hello\":1,\"token\":\"wrong\"}\n",
					     "{\"hello\":1,\"token\":7}\n",
					     "{\"hello\":1,\"token\":\"correct-horse2\"}\n" };
	const struct control_tcp tcp = { .listen = "127.0.0.1:0", .token_file = token_file };
	const char *answer;
	int fd;

	start_server(&tcp, true, 0);
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
	ck_assert_str_eq(hear(fd), "{\"fanin\":\"manager\",\"protocol\":1,\"version\":\"" FANIN_VERSION
				   "\",\"name\":\"m0\",\"hello\":1}");
	ck_assert_str_eq(hear(fd),
			 "{\"id\":1,\"ok\":true,\"result\":{\"was_waiting\":false,\"gone\":0}}");
	close(fd);
	stop_serving();
	ck_assert_uint_eq(control_counters(control)->token_wrong, 4);
	ck_assert_uint_eq(control_counters(control)->connections, 5);
	control_close(control);
}
END_TEST

START_TEST(the_oldest_half_open_connection_makes_room)
{
	const struct control_tcp tcp = { .listen = "127.0.0.1:0" };
	int good, fds[20];

	start_server(&tcp, true, 8);
	good = dial();
	say(good, "{\"hello\":1}\n");
	hear(good);
	for (unsigned int i = 0; i < 20; i++) {
		fds[i] = dial();
		/* A client that talks still gets in, and goes again. */
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
	stop_serving();
	ck_assert_uint_ge(control_counters(control)->half_open_dropped, 16);
	control_close(control);
}
END_TEST

START_TEST(a_handshake_is_short_and_a_line_bounded)
{
	const struct control_tcp tcp = { .listen = "127.0.0.1:0" };
	char line[20000];
	int fd;

	memset(line, ' ', sizeof(line));
	line[sizeof(line) - 1] = '\0';
	start_server(&tcp, true, 8);
	fd = dial();
	say(fd, line);
	ck_assert_msg(strstr(hear(fd), "found a line of more than 4096 bytes") != NULL, "handshake");
	close(fd);
	fd = dial();
	say(fd, "{\"hello\":1}\n");
	hear(fd);
	say(fd, line);
	ck_assert_msg(strstr(hear(fd), "found a line of more than 10000 bytes") != NULL, "request");
	close(fd);
	stop_serving();
	ck_assert_uint_eq(control_counters(control)->line_long, 2);
	control_close(control);
}
END_TEST

START_TEST(an_answer_may_come_later)
{
	const struct control_tcp tcp = { .listen = "127.0.0.1:0" };
	int first, second;

	start_server(&tcp, true, 8);
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
	/* Its end is told to the daemon, in a round before or after this request. */
	do {
		say(second, "{\"id\":5,\"command\":\"release\"}\n");
	} while (strstr(hear(second), "\"was_waiting\":false,\"gone\":1") == NULL);
	close(second);
	stop_server();
}
END_TEST

static int
open_client(const char *ca, const char *key, struct client **client, char *error)
{
	const struct client_options options = { .at = at,
						.manager = true,
						.token_file = token_file,
						.ca = ca,
						.certificate = key == NULL ? NULL : certificate_file,
						.key = key };

	return client_open(&options, client, error);
}

START_TEST(tls_protects_a_connection_and_names_what_is_wrong)
{
	const struct control_tcp tcp = { .listen = "127.0.0.1:0",
					 .token_file = token_file,
					 .certificate = certificate_file,
					 .key = key_file };
	char error[CLIENT_ERROR_LEN] = "";
	char other_key[80];
	struct client *client;
	json_t *result;
	int fd;

	make_certificate(certificate_file, key_file);
	start_server(&tcp, true, 0);
	ck_assert_msg(open_client(certificate_file, NULL, &client, error) == 0, "%s", error);
	ck_assert_int_eq(client_call(client, "release", NULL, &result, error), 0);
	ck_assert(json_is_false(json_object_get(result, "was_waiting")));
	json_decref(result);
	client_close(client);

	/* Another CA's certificate. */
	snprintf(other_key, sizeof(other_key), "%s.key", other_file);
	make_certificate(other_file, other_key);
	unlink(other_key);
	ck_assert_int_eq(open_client(other_file, NULL, &client, error), -EPROTO);
	ck_assert_msg(strstr(error, "TLS with 127.0.0.1:") != NULL &&
			      strstr(error, "self-signed certificate") != NULL,
		      "%s", error);
	/* No TLS at all: the server hangs up. */
	ck_assert_int_eq(open_client(NULL, NULL, &client, error), -ECONNRESET);
	fd = dial();
	say(fd, "{\"hello\":1,\"token\":\"" TOKEN "\"}\n");
	ck_assert_ptr_null(strstr(hear(fd), "hello"));
	close(fd);
	stop_server();
}
END_TEST

START_TEST(a_ca_of_the_server_asks_for_a_certificate_of_the_client)
{
	const struct control_tcp tcp = { .listen = "127.0.0.1:0",
					 .token_file = token_file,
					 .certificate = certificate_file,
					 .key = key_file,
					 .ca = certificate_file };
	char error[CLIENT_ERROR_LEN] = "";
	struct client *client;

	make_certificate(certificate_file, key_file);
	start_server(&tcp, true, 0);
	ck_assert_msg(open_client(certificate_file, key_file, &client, error) == 0, "%s", error);
	client_close(client);
	ck_assert_int_lt(open_client(certificate_file, NULL, &client, error), 0);
	stop_server();
}
END_TEST

START_TEST(a_wrong_certificate_stops_the_start)
{
	const struct control_tcp tcp = { .listen = "127.0.0.1:0",
					 .certificate = other_file,
					 .key = "/nonexistent/key" };
	const struct control_options options = { .service = "switch", .name = "s", .tcp = tcp };
	char error[CONTROL_MESSAGE_LEN] = "";

	write_file(other_file, "no certificate\n", 0600);
	ck_assert_int_eq(control_open(&options, &control, error), -EINVAL);
	ck_assert_msg(strstr(error, other_file) != NULL, "%s", error);
}
END_TEST

/* What a manager's connection to a switch has told. */
struct peer_story {
	bool ready;
	bool lost;
	char code[32]; /* of the answer; "ok": a result */
};

static void
peer_is_ready(void *user, struct peer *peer)
{
	(void)peer;
	((struct peer_story *)user)->ready = true;
}

static void
peer_is_lost(void *user, struct peer *peer)
{
	(void)peer;
	((struct peer_story *)user)->lost = true;
}

static void
peer_answers(void *user, uint32_t which, struct peer *peer, const json_t *result, const char *code,
	     const char *message)
{
	(void)peer;
	(void)message;
	ck_assert_uint_eq(which, 7);
	snprintf(((struct peer_story *)user)->code, 32, "%s", result == NULL ? code : "ok");
}

/* Serves the peer by its events and times until a flag or a text is set, or it has an error other than `before`. */
static void
serve_peer(struct peer *peer, const bool *flag, const char *text, const char *before)
{
	uint64_t end_ms = clock_ms() + 20000;

	for (;;) {
		uint64_t wake_ms = peer_serve(peer, clock_ms());
		uint64_t now = clock_ms();
		struct epoll_event event;

		if ((flag != NULL && *flag) || (text != NULL && text[0] != '\0') ||
		    strcmp(peer->error, before) != 0)
			return;
		ck_assert_uint_lt(now, end_ms);
		if (wake_ms > now)
			epoll_wait(peer->epoll_fd, &event, 1,
				   wake_ms - now < 1000 ? (int)(wake_ms - now) : 1000);
	}
}

#define NOT_YET "not connected yet"

static void
open_peer(struct peer *peer, struct peer_story *story, const struct topology_switch *about,
	  const struct peer_events *events)
{
	char error[CONTROL_MESSAGE_LEN] = "";

	*story = (struct peer_story){ 0 };
	ck_assert_msg(peer_begin(peer, about, 0, events, epoll_create1(EPOLL_CLOEXEC), error) == 0,
		      "%s", error);
}

static void
close_peer(struct peer *peer)
{
	peer_end(peer);
	close(peer->epoll_fd);
}

START_TEST(a_manager_asks_a_switch_under_tls)
{
	const struct control_tcp tcp = { .listen = "127.0.0.1:0",
					 .token_file = token_file,
					 .certificate = certificate_file,
					 .key = key_file,
					 .ca = certificate_file };
	const struct topology_switch about = { .name = "m0",
					       .control = at,
					       .token_file = token_file,
					       .ca = certificate_file,
					       .certificate = certificate_file,
					       .key = key_file };
	struct peer_story story;
	const struct peer_events events = { &story, peer_is_ready, peer_is_lost };
	struct peer peer;

	make_certificate(certificate_file, key_file);
	start_server(&tcp, false, 0);
	open_peer(&peer, &story, &about, &events);
	serve_peer(&peer, &story.ready, NULL, NOT_YET);
	ck_assert_msg(story.ready, "%s", peer.error);
	ck_assert_int_eq(peer_ask(&peer, "release", NULL, peer_answers, &story, 7), 0);
	serve_peer(&peer, NULL, story.code, NOT_YET);
	ck_assert_str_eq(story.code, "ok");
	story.code[0] = '\0';
	ck_assert_int_eq(peer_ask(&peer, "junk", NULL, peer_answers, &story, 7), 0);
	serve_peer(&peer, NULL, story.code, NOT_YET);
	ck_assert_str_eq(story.code, "not_found");

	/* A request that is never answered is lost with the switch. */
	ck_assert_int_eq(peer_ask(&peer, "wait", NULL, peer_answers, &story, 7), 0);
	peer.dead_after_ms = 100;
	serve_peer(&peer, &story.lost, NULL, NOT_YET);
	ck_assert(story.lost);
	ck_assert_str_eq(story.code, "lost");
	ck_assert_str_eq(peer.error, "the switch does not answer");
	ck_assert_int_eq(peer_ask(&peer, "release", NULL, peer_answers, &story, 7), -ENOTCONN);
	/* It is tried again. */
	story.ready = false;
	peer.dead_after_ms = 5000;
	serve_peer(&peer, &story.ready, NULL, "the switch does not answer");
	ck_assert(story.ready);
	close_peer(&peer);
	stop_server();
}
END_TEST

static const struct {
	const char *name;
	const char *token; /* NULL: none */
	bool tls;          /* of the server; the manager wants it always */
	const char *error; /* a part of it */
} wrong_peers[] = {
	{ "leaf7", TOKEN, true, "calls itself \"m0\", expected \"leaf7\"" },
	{ "m0", "wrong", true, "token: found another one" },
	{ "m0", NULL, true, "token: found none" },
	{ "m0", TOKEN, false, "wrong version number" },
};

START_TEST(what_is_wrong_between_manager_and_switch_is_named)
{
	const struct control_tcp tcp = { .listen = "127.0.0.1:0",
					 .token_file = token_file,
					 .certificate = wrong_peers[_i].tls ? certificate_file : NULL,
					 .key = wrong_peers[_i].tls ? key_file : NULL };
	const struct topology_switch about = {
		.name = wrong_peers[_i].name,
		.control = at,
		.token_file = wrong_peers[_i].token == NULL ? NULL : other_file,
		.ca = certificate_file,
	};
	struct peer_story story;
	const struct peer_events events = { &story, peer_is_ready, peer_is_lost };
	struct peer peer;

	make_certificate(certificate_file, key_file);
	if (wrong_peers[_i].token != NULL)
		write_file(other_file, wrong_peers[_i].token, 0600);
	start_server(&tcp, false, 0);
	open_peer(&peer, &story, &about, &events);
	serve_peer(&peer, NULL, NULL, NOT_YET);
	ck_assert_msg(strstr(peer.error, wrong_peers[_i].error) != NULL, "%s", peer.error);
	close_peer(&peer);
	stop_server();
}
END_TEST

Suite *
suite_control_tcp(void)
{
	Suite *suite = suite_create("control_tcp");
	TCase *tcase = tcase_create("tcp");

	tcase_add_checked_fixture(tcase, make_files, remove_files);
	tcase_set_timeout(tcase, 60);
	tcase_add_loop_test(tcase, a_wrong_listener_is_named, 0,
			    (int)(sizeof(wrong_listeners) / sizeof(wrong_listeners[0])));
	tcase_add_test(tcase, any_address_may_be_listened_on_with_a_token);
	tcase_add_test(tcase, a_token_file_has_one_line_and_is_not_for_everybody);
	tcase_add_test(tcase, secrets_are_equal_only_if_all_of_them_is);
	tcase_add_test(tcase, only_clients_with_the_token_are_served);
	tcase_add_test(tcase, the_oldest_half_open_connection_makes_room);
	tcase_add_test(tcase, a_handshake_is_short_and_a_line_bounded);
	tcase_add_test(tcase, an_answer_may_come_later);
	tcase_add_test(tcase, tls_protects_a_connection_and_names_what_is_wrong);
	tcase_add_test(tcase, a_ca_of_the_server_asks_for_a_certificate_of_the_client);
	tcase_add_test(tcase, a_wrong_certificate_stops_the_start);
	tcase_add_test(tcase, a_manager_asks_a_switch_under_tls);
	tcase_add_loop_test(tcase, what_is_wrong_between_manager_and_switch_is_named, 0,
			    (int)(sizeof(wrong_peers) / sizeof(wrong_peers[0])));
	suite_add_tcase(suite, tcase);
	return suite;
}
