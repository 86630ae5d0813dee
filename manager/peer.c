/* SPDX-License-Identifier: BSD-3-Clause */
/* See peer.h. */
#include "manager/peer.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "control/clock.h"
#include "control/log.h"
#include "control/tls.h"

#define LONGEST_ANSWER ((size_t)80 << 20)
#define LINES_PER_ROUND 64
#define COMPLAIN_MS 10000u

int
peer_begin(struct peer *peer, const struct topology_switch *about, uint16_t index,
	   const struct peer_events *events, int epoll_fd, char *error)
{
	const struct tls_files files = { about->certificate, about->key, about->ca };
	char message[CONTROL_MESSAGE_LEN];
	int ret = 0;

	*peer = (struct peer){ .about = about,
			       .events = events,
			       .index = index,
			       .epoll_fd = epoll_fd,
			       .connecting_fd = -1,
			       .dead_after_ms = 2000,
			       .retry_after_ms = 500,
			       .since_ms = clock_ms(),
			       .line.stream.fd = -1,
			       .service.options.line_max = LONGEST_ANSWER,
			       .address.socket.ss_family = AF_UNIX,
			       .error = "not connected yet" };
	TAILQ_INIT(&peer->requests);
	if (strchr(about->control, '/') == NULL)
		ret = address_parse(about->control, 0, false, &peer->address, message);
	if (ret == 0 && about->token_file != NULL)
		ret = secret_load(about->token_file, peer->token, message);
	if (ret == 0 && about->ca != NULL)
		ret = tls_client_create(&files, &peer->tls, message);
	if (ret != 0)
		snprintf(error, CONTROL_MESSAGE_LEN, "%s %s: %.450s", topology_kind(about),
			 about->name, message);
	return ret;
}

static void
close_connection(struct peer *peer)
{
	/* A reset: nothing of the old connection may arrive after requests over the next one. */
	const struct linger reset = { .l_onoff = 1 };

	if (peer->connecting_fd >= 0)
		close(peer->connecting_fd);
	peer->connecting_fd = -1;
	if (peer->line.stream.fd < 0)
		return;
	setsockopt(peer->line.stream.fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
	control_client_stop(&peer->line);
}

/*
 * Logs why a switch is not reached. Attempts come twice a second: each reason is logged once, and
 * alternating reasons at most every COMPLAIN_MS.
 */
static void
complain(struct peer *peer, uint64_t now_ms)
{
	if (strcmp(peer->told, peer->error) == 0 ||
	    (peer->told_ms != 0 && now_ms - peer->told_ms < COMPLAIN_MS))
		return;
	log_warning("%s %s is not reached: %s", topology_kind(peer->about), peer->about->name,
		    peer->error);
	snprintf(peer->told, sizeof(peer->told), "%s", peer->error);
	peer->told_ms = now_ms;
}

void
peer_lose(struct peer *peer, const char *why)
{
	struct peer_requests lost = TAILQ_HEAD_INITIALIZER(lost);
	const bool was_ready = peer->state >= PEER_LEARNING;
	struct peer_request *request;
	uint64_t now = clock_ms();

	snprintf(peer->error, sizeof(peer->error), "%s", why);
	close_connection(peer);
	peer->state = PEER_DOWN;
	peer->retry_ms = now + peer->retry_after_ms;
	peer->pinging = false;
	if (was_ready)
		peer->since_ms = now;
	TAILQ_CONCAT(&lost, &peer->requests, entry);
	while ((request = TAILQ_FIRST(&lost)) != NULL) {
		TAILQ_REMOVE(&lost, request, entry);
		request->answer(request->user, request->which, peer, NULL, "lost", peer->error);
		free(request);
	}
	if (was_ready)
		peer->events->lost(peer->events->user, peer);
	else
		complain(peer, now);
}

/* Sets the events that the connection waits for; 0: only its end. */
static void
watch(const struct peer *peer, int fd, int operation, uint32_t events)
{
	struct epoll_event event = { .events = events };

	epoll_ctl(peer->epoll_fd, operation, fd, &event);
}

static void
start_line(struct peer *peer, uint64_t now_ms)
{
	struct stream stream;

	if (stream_connect(&stream, peer->connecting_fd, peer->tls, peer->address.host) != 0) {
		peer_lose(peer, "out of memory");
		return;
	}
	peer->connecting_fd = -1;
	control_client_start(&peer->line, &peer->service, &stream, now_ms);
	peer->state = PEER_GREETING;
}

/* Ends an attempt that failed with a system error. */
static void
lose_attempt(struct peer *peer, int code)
{
	char why[CONTROL_MESSAGE_LEN];

	snprintf(why, sizeof(why), "%s (%.200s)", strerror(code), peer->about->control);
	peer_lose(peer, why);
}

static void
start_connecting(struct peer *peer, uint64_t now_ms)
{
	struct sockaddr_un path = { .sun_family = AF_UNIX };
	const struct sockaddr *address = (const struct sockaddr *)&peer->address.socket;
	socklen_t len = peer->address.len;
	int fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0) {
		peer_lose(peer, strerror(errno));
		return;
	}
	if (address->sa_family == AF_UNIX) {
		snprintf(path.sun_path, sizeof(path.sun_path), "%s", peer->about->control);
		address = (const struct sockaddr *)&path;
		len = sizeof(path);
	}
	peer->connecting_fd = fd;
	if (connect(fd, address, len) == 0) {
		watch(peer, fd, EPOLL_CTL_ADD, EPOLLIN);
		start_line(peer, now_ms);
	} else if (errno == EINPROGRESS) {
		watch(peer, fd, EPOLL_CTL_ADD, EPOLLOUT);
		peer->state = PEER_CONNECTING;
		peer->retry_ms = now_ms + peer->dead_after_ms;
	} else {
		lose_attempt(peer, errno);
	}
}

static void
finish_connecting(struct peer *peer, uint64_t now_ms)
{
	struct pollfd fd = { .fd = peer->connecting_fd, .events = POLLOUT };
	socklen_t len = sizeof(int);
	int code = 0;

	if (poll(&fd, 1, 0) == 0) {
		if (now_ms >= peer->retry_ms)
			peer_lose(peer, "no answer to the attempt to connect");
		return;
	}
	if (getsockopt(peer->connecting_fd, SOL_SOCKET, SO_ERROR, &code, &len) != 0)
		code = errno;
	if (code != 0)
		lose_attempt(peer, code);
	else
		start_line(peer, now_ms);
}

/* Handles the switch's first line. */
static void
greet(struct peer *peer, const json_t *greeting)
{
	const char *name = json_string_value(json_object_get(greeting, "name"));
	json_int_t protocol = json_integer_value(json_object_get(greeting, "protocol"));
	char why[CONTROL_MESSAGE_LEN];
	json_t *hello;
	int ret;

	if (name == NULL || protocol != CONTROL_PROTOCOL) {
		snprintf(why, sizeof(why), "found no greeting of a %s with protocol %d at %.200s",
			 topology_kind(peer->about), CONTROL_PROTOCOL, peer->about->control);
		peer_lose(peer, why);
		return;
	}
	if (strcmp(name, peer->about->name) != 0) {
		snprintf(why, sizeof(why),
			 "the %s at %.200s calls itself \"%.60s\", expected \"%s\"",
			 topology_kind(peer->about), peer->about->control, name, peer->about->name);
		peer_lose(peer, why);
		return;
	}
	hello = json_pack("{s:i, s:s*}", "hello", CONTROL_PROTOCOL, "token",
			  peer->token[0] == '\0' ? NULL : peer->token);
	ret = control_client_send(&peer->line, hello);
	json_decref(hello);
	if (ret != 0) {
		peer_lose(peer, strerror(-ret));
		return;
	}
	peer->line.greeted = true;
	peer->line.deadline_ms = 0;
	peer->state = PEER_LEARNING;
	peer->since_ms = clock_ms();
	peer->events->ready(peer->events->user, peer);
}

static void
take_answer(struct peer *peer, const json_t *answer)
{
	struct peer_request *request = TAILQ_FIRST(&peer->requests);
	const json_t *error = json_object_get(answer, "error");
	const char *code = json_string_value(json_object_get(error, "code"));
	const char *message = json_string_value(json_object_get(error, "message"));
	const json_t *result = json_object_get(answer, "result");
	json_int_t id = json_integer_value(json_object_get(answer, "id"));

	if (request == NULL || id != request->id) {
		/*
		 * An error that ends the connection answers no request, such as a wrong token or
		 * too many clients.
		 */
		peer_lose(peer, message == NULL ? "an answer to nothing that was asked" : message);
		return;
	}
	TAILQ_REMOVE(&peer->requests, request, entry);
	if (!json_is_true(json_object_get(answer, "ok")) || !json_is_object(result))
		result = NULL;
	request->answer(request->user, request->which, peer, result,
			code == NULL ? "internal" : code,
			message == NULL ? "no reason was given" : message);
	free(request);
}

static void
take_lines(struct peer *peer)
{
	json_error_t json_error;
	const char *line;
	json_t *object;
	size_t len;

	for (unsigned int n = 0; n < LINES_PER_ROUND && peer->state >= PEER_GREETING; n++) {
		if (!control_client_has_line(&peer->line))
			return;
		line = control_client_line(&peer->line, &len);
		object = json_loadb(line, len, 0, &json_error);
		if (!json_is_object(object))
			peer_lose(peer, "found a line that is no JSON object");
		else if (peer->state == PEER_GREETING)
			greet(peer, object);
		else
			take_answer(peer, object);
		json_decref(object);
	}
}

/*
 * True if the switch may expect TLS: over TCP without TLS, it has sent nothing yet. It may be
 * waiting for a TLS handshake, or have closed the connection because none came.
 */
static bool
may_expect_tls(const struct peer *peer)
{
	return peer->state == PEER_GREETING && peer->tls == NULL &&
	       peer->address.socket.ss_family != AF_UNIX;
}

static void
fail_line(struct peer *peer, int code)
{
	char why[CONTROL_MESSAGE_LEN];

	snprintf(why, sizeof(why), "%s",
		 code == -EPROTO     ? stream_tls_error(&peer->line.stream)
		 : code == -EMSGSIZE ? "found an answer without end"
				     : strerror(-code));
	peer_lose(peer, why);
}

/* Ends the connection. why: what the switch does. tls: add a hint if the switch may expect TLS. */
static void
lose_line(struct peer *peer, const char *why, bool tls)
{
	char text[CONTROL_MESSAGE_LEN];

	snprintf(text, sizeof(text), "the %s %s%s", topology_kind(peer->about), why,
		 tls && may_expect_tls(peer) ? ": does it expect TLS (\"ca\" in the topology)?"
					     : "");
	peer_lose(peer, text);
}

/*
 * Sends, receives, and then checks whether the switch is dead, after all that it has sent is
 * handled.
 */
static void
serve_line(struct peer *peer, uint64_t now_ms)
{
	const struct peer_request *oldest;
	int ret = 0;
	int received;

	if (control_client_has_output(&peer->line))
		ret = control_client_flush(&peer->line);
	/* If the switch reads no more, its last line says why. */
	received = control_client_receive(&peer->line);
	take_lines(peer);
	control_client_rest(&peer->line);
	if (peer->state < PEER_GREETING)
		return;
	if (ret != 0 || received != 0) {
		fail_line(peer, ret != 0 ? ret : received);
		return;
	}
	oldest = TAILQ_FIRST(&peer->requests);
	if (peer->line.ended && !control_client_has_line(&peer->line))
		lose_line(peer, "closed the connection", true);
	else if (peer->line.deadline_ms != 0 && now_ms >= peer->line.deadline_ms)
		lose_line(peer,
			  may_expect_tls(peer) ? "does not greet"
					       : "does not read or does not greet",
			  true);
	else if (oldest != NULL && now_ms >= oldest->asked_ms + peer->dead_after_ms &&
		 !control_client_has_line(&peer->line))
		lose_line(peer, "does not answer", false);
}

uint64_t
peer_serve(struct peer *peer, uint64_t now_ms)
{
	const struct peer_request *oldest;
	const struct stream *stream = &peer->line.stream;
	uint64_t wake_ms;

	if (peer->state == PEER_DOWN && now_ms >= peer->retry_ms)
		start_connecting(peer, now_ms);
	else if (peer->state == PEER_CONNECTING)
		finish_connecting(peer, now_ms);
	if (peer->state >= PEER_GREETING)
		serve_line(peer, now_ms);
	if (peer->state < PEER_GREETING)
		return peer->retry_ms;
	if (control_client_has_line(&peer->line) || stream_has_pending(stream))
		return now_ms;
	watch(peer, stream->fd, EPOLL_CTL_MOD,
	      (uint32_t)stream->receive_events |
		      (control_client_has_output(&peer->line) ? (uint32_t)stream->send_events : 0));
	oldest = TAILQ_FIRST(&peer->requests);
	wake_ms = oldest == NULL ? UINT64_MAX : oldest->asked_ms + peer->dead_after_ms;
	if (peer->line.deadline_ms != 0 && peer->line.deadline_ms < wake_ms)
		wake_ms = peer->line.deadline_ms;
	return wake_ms;
}

int
peer_ask(struct peer *peer, const char *command, json_t *args, peer_answer answer, void *user,
	 uint32_t which)
{
	struct peer_request *request;
	json_t *line;

	if (peer->state < PEER_LEARNING) {
		json_decref(args);
		return -ENOTCONN;
	}
	request = calloc(1, sizeof(*request));
	line = json_pack("{s:I, s:s, s:o*}", "id", peer->last_id + 1, "cmd", command, "args", args);
	if (request == NULL || line == NULL) {
		free(request);
		json_decref(line);
		return -ENOMEM;
	}
	request->id = ++peer->last_id;
	request->asked_ms = clock_ms();
	request->answer = answer;
	request->user = user;
	request->which = which;
	TAILQ_INSERT_TAIL(&peer->requests, request, entry);
	/* If the connection is lost, peer_serve finds that, and answers this request then. */
	control_client_send(&peer->line, line);
	json_decref(line);
	watch(peer, peer->line.stream.fd, EPOLL_CTL_MOD,
	      (uint32_t)peer->line.stream.receive_events | (uint32_t)peer->line.stream.send_events);
	return 0;
}

void
peer_end(struct peer *peer)
{
	struct peer_request *request;

	while ((request = TAILQ_FIRST(&peer->requests)) != NULL) {
		TAILQ_REMOVE(&peer->requests, request, entry);
		free(request);
	}
	close_connection(peer);
	tls_free(peer->tls);
	json_decref(peer->handlers);
	json_decref(peer->ports);
	json_decref(peer->ports_down);
	json_decref(peer->next_hops);
	json_decref(peer->unnumbered);
	json_decref(peer->namesakes);
}
