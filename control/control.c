/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The control socket: listens, and serves its clients from one poll loop that no client can hold up. Runs on the main
 * thread; the lines themselves are handled in control/control_request.c.
 */
#include "control/control.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "control/control_client.h"
#include "control/listener.h"

#define MAX_CLIENTS 32
#define LINES_PER_ROUND 64  /* of one client before the others have their turn */
#define ACCEPT_PAUSE_MS 100 /* without file descriptors there is nothing to do but wait */

static_assert(CONTROL_MESSAGE_LEN == LISTENER_ERROR_LEN, "buffers");

struct control {
	struct listener listener;
	const char *switch_name;
	const struct control_command *commands;
	void *user;
	uint64_t accept_after_ms;
	struct control_client clients[MAX_CLIENTS];
};

static uint64_t
now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

int
control_open(const char *path, const char *switch_name, const struct control_command *commands,
	     void *user, struct control **control, char *error)
{
	struct control *opened = calloc(1, sizeof(*opened));
	int ret;

	if (opened == NULL) {
		snprintf(error, CONTROL_MESSAGE_LEN, "control socket %s: out of memory", path);
		return -ENOMEM;
	}
	opened->switch_name = switch_name;
	opened->commands = commands;
	opened->user = user;
	for (unsigned int i = 0; i < MAX_CLIENTS; i++)
		opened->clients[i].fd = -1;
	ret = listener_open(&opened->listener, "control socket", path, SOCK_STREAM, MAX_CLIENTS,
			    error);
	if (ret != 0) {
		free(opened);
		return ret;
	}
	*control = opened;
	return 0;
}

/* Tells a connection that there is no room for it; whether it reads that is its own affair. */
static void
refuse_client(int fd)
{
	struct control_error error;
	struct control_client guest;
	json_t *answer;

	control_client_start(&guest, fd, 0);
	control_fail(&error, "no_room",
		     "found %d clients connected already, expected fewer: try again later",
		     MAX_CLIENTS);
	answer = control_error_answer(NULL, &error);
	control_client_send(&guest, answer, 0);
	json_decref(answer);
	control_client_stop(&guest);
}

static void
welcome_client(struct control *control, struct control_client *client, int fd, uint64_t now)
{
	json_t *greeting;

	control_client_start(client, fd, now);
	greeting = json_pack("{s:s, s:i, s:s, s:s}", "fanin", "switch", "protocol", CONTROL_PROTOCOL,
			     "version", FANIN_VERSION, "name", control->switch_name);
	if (control_client_send(client, greeting, now) != 0)
		control_client_stop(client);
	json_decref(greeting);
}

static void
accept_clients(struct control *control, uint64_t now)
{
	/* A bounded number, so that a flood of connections does not keep the clients that are there waiting. */
	for (unsigned int n = 0; n < MAX_CLIENTS; n++) {
		struct control_client *unused = NULL;
		int fd = accept4(control->listener.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd < 0) {
			if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
				control->accept_after_ms = now + ACCEPT_PAUSE_MS;
			return;
		}
		for (unsigned int i = 0; i < MAX_CLIENTS && unused == NULL; i++) {
			if (control->clients[i].fd < 0)
				unused = &control->clients[i];
		}
		if (unused == NULL)
			refuse_client(fd);
		else
			welcome_client(control, unused, fd, now);
	}
}

/* A line too long can't be skipped safely: the client is told and let go. */
static int
end_long_line(struct control_client *client, uint64_t now)
{
	struct control_error error;
	json_t *answer;
	int ret;

	client->closing = true;
	control_fail(&error, "invalid",
		     "found a line of more than %zu bytes, expected a newline before",
		     CONTROL_LINE_MAX);
	answer = control_error_answer(NULL, &error);
	ret = control_client_send(client, answer, now);
	json_decref(answer);
	return ret;
}

/* Runs the lines that wait. Returns 0, or -errno if the connection is lost. */
static int
run_lines(struct control *control, struct control_client *client, uint64_t now)
{
	const char *line;
	size_t len;
	int ret;

	for (unsigned int n = 0; n < LINES_PER_ROUND && control_client_wants_input(client); n++) {
		line = control_client_line(client, &len);
		if (line == NULL)
			return 0;
		if (len > CONTROL_LINE_MAX)
			return end_long_line(client, now);
		ret = control_request(client, control->commands, control->user, line, len, now);
		if (ret != 0)
			return ret;
	}
	return 0;
}

static void
serve_client(struct control *control, struct control_client *client, short events, uint64_t now)
{
	int ret = 0;

	if (control_client_has_output(client))
		ret = control_client_flush(client, now);
	if (ret == 0 && (events & (POLLIN | POLLHUP | POLLERR)) != 0 &&
	    control_client_wants_input(client) && !client->ended && !control_client_has_line(client)) {
		ret = control_client_receive(client);
		if (ret == -EMSGSIZE)
			ret = end_long_line(client, now);
	}
	if (ret == 0)
		ret = run_lines(control, client, now);
	if (ret == 0 && !control_client_has_output(client) &&
	    (client->closing || (client->ended && !control_client_has_line(client))))
		ret = -ECONNRESET;
	if (ret == 0 && client->deadline_ms != 0 && now >= client->deadline_ms)
		ret = -ETIMEDOUT;
	if (ret != 0)
		control_client_stop(client);
}

/* What to wait for on a client's connection; lowers *wake_ms to when it must be looked at without an event. */
static short
client_events(struct control_client *client, uint64_t now, uint64_t *wake_ms)
{
	bool wants_input = control_client_wants_input(client);
	short events = 0;

	if (client->deadline_ms != 0 && client->deadline_ms < *wake_ms)
		*wake_ms = client->deadline_ms;
	if (control_client_has_output(client))
		events |= POLLOUT;
	if (wants_input && control_client_has_line(client))
		*wake_ms = now;
	else if (wants_input && !client->ended)
		events |= POLLIN;
	return events;
}

/* One poll and what it brings. Returns 1 if wake_fd is readable, 0 if not, -errno on failure. */
static int
serve_round(struct control *control, int wake_fd, uint64_t wake_ms)
{
	struct pollfd fds[MAX_CLIENTS + 2];
	uint64_t now = now_ms();
	int timeout_ms;

	if (control->accept_after_ms > now && control->accept_after_ms < wake_ms)
		wake_ms = control->accept_after_ms;
	for (unsigned int i = 0; i < MAX_CLIENTS; i++) {
		struct control_client *client = &control->clients[i];

		fds[i] = (struct pollfd){ .fd = client->fd };
		if (client->fd >= 0)
			fds[i].events = client_events(client, now, &wake_ms);
	}
	fds[MAX_CLIENTS] = (struct pollfd){ .fd = control->listener.fd, .events = POLLIN };
	if (control->accept_after_ms > now)
		fds[MAX_CLIENTS].fd = -1;
	fds[MAX_CLIENTS + 1] = (struct pollfd){ .fd = wake_fd, .events = POLLIN };

	timeout_ms = wake_ms == UINT64_MAX ? -1 : wake_ms <= now ? 0 : (int)(wake_ms - now);
	if (poll(fds, MAX_CLIENTS + 2, timeout_ms) < 0)
		return errno == EINTR ? 0 : -errno;
	now = now_ms();
	for (unsigned int i = 0; i < MAX_CLIENTS; i++) {
		if (control->clients[i].fd >= 0)
			serve_client(control, &control->clients[i], fds[i].revents, now);
	}
	if (fds[MAX_CLIENTS].revents != 0)
		accept_clients(control, now);
	if ((fds[MAX_CLIENTS + 1].revents & POLLNVAL) != 0)
		return -EBADF;
	return fds[MAX_CLIENTS + 1].revents != 0;
}

int
control_serve(struct control *control, int wake_fd, int timeout_ms)
{
	uint64_t end_ms = timeout_ms < 0 ? UINT64_MAX : now_ms() + (uint64_t)timeout_ms;
	int ret;

	do {
		ret = serve_round(control, wake_fd, end_ms);
	} while (ret == 0 && now_ms() < end_ms);
	return ret;
}

void
control_close(struct control *control)
{
	if (control == NULL)
		return;
	for (unsigned int i = 0; i < MAX_CLIENTS; i++) {
		if (control->clients[i].fd >= 0)
			control_client_stop(&control->clients[i]);
	}
	listener_close(&control->listener);
	free(control);
}
