/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The control socket: listens, and serves its clients from one poll loop that no client can hold up. Runs on the main
 * thread; the lines themselves are handled in switch/control_request.c.
 */
#include "switch/control.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "switch/control_client.h"
#include "switch/text.h"

#define MAX_CLIENTS 32
#define LINES_PER_ROUND 64  /* of one client before the others have their turn */
#define ACCEPT_PAUSE_MS 100 /* without file descriptors there is nothing to do but wait */

struct control {
	int fd;
	struct sockaddr_un address;
	dev_t device; /* of the socket file, to remove no other's */
	ino_t inode;
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

/* Writes "control socket PATH: message"; returns code. */
static int __attribute__((format(printf, 4, 5)))
open_fail(char *error, int code, const char *path, const char *format, ...)
{
	size_t used = (size_t)snprintf(error, CONTROL_MESSAGE_LEN, "control socket %s: ", path);
	va_list args;

	if (used < CONTROL_MESSAGE_LEN) {
		va_start(args, format);
		vsnprintf(error + used, CONTROL_MESSAGE_LEN - used, format, args);
		va_end(args);
	}
	text_make_printable(error);
	return code;
}

static int
make_parent(const char *path, char *error)
{
	char parent[sizeof(((struct sockaddr_un *)NULL)->sun_path)];
	char *slash;

	snprintf(parent, sizeof(parent), "%s", path);
	slash = strrchr(parent, '/');
	if (slash == NULL || slash == parent)
		return 0;
	*slash = '\0';
	if (mkdir(parent, 0755) == 0 || errno == EEXIST)
		return 0;
	return open_fail(error, -errno, path, "cannot create the directory %s: %s", parent,
			 strerror(errno));
}

/* Removes a socket file that a process left behind; refuses anything else that is there. */
static int
remove_stale(const struct sockaddr_un *address, char *error)
{
	const char *path = address->sun_path;
	struct stat status;
	int fd, ret;

	if (lstat(path, &status) != 0) {
		if (errno == ENOENT)
			return 0;
		return open_fail(error, -errno, path, "%s", strerror(errno));
	}
	if (!S_ISSOCK(status.st_mode))
		return open_fail(error, -EEXIST, path,
				 "found a file that is not a socket: remove it or choose another path");
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return open_fail(error, -errno, path, "%s", strerror(errno));
	ret = connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0 ? 0 : -errno;
	close(fd);
	if (ret == 0 || ret == -EAGAIN)
		return open_fail(error, -EADDRINUSE, path,
				 "another process listens on it: stop it or choose another path");
	if (ret != -ECONNREFUSED)
		return open_fail(error, ret, path, "cannot tell whether it is in use: %s",
				 strerror(-ret));
	if (unlink(path) != 0 && errno != ENOENT)
		return open_fail(error, -errno, path, "cannot remove the socket left behind: %s",
				 strerror(errno));
	return 0;
}

static int
bind_and_listen(struct control *control, char *error)
{
	const char *path = control->address.sun_path;
	struct stat status;
	int ret;

	/* The mode before bind is a ceiling: nobody else can connect until chmod has set it exactly. */
	fchmod(control->fd, 0660);
	if (bind(control->fd, (const struct sockaddr *)&control->address,
		 sizeof(control->address)) != 0)
		return open_fail(error, -errno, path, "cannot bind: %s", strerror(errno));
	if (chmod(path, 0660) == 0 && lstat(path, &status) == 0 &&
	    listen(control->fd, MAX_CLIENTS) == 0) {
		control->device = status.st_dev;
		control->inode = status.st_ino;
		return 0;
	}
	ret = open_fail(error, -errno, path, "cannot listen: %s", strerror(errno));
	unlink(path);
	return ret;
}

int
control_open(const char *path, const char *switch_name, const struct control_command *commands,
	     void *user, struct control **control, char *error)
{
	struct control *opened;
	int ret;

	if (path[0] == '\0' || strlen(path) >= sizeof(opened->address.sun_path))
		return open_fail(error, -ENAMETOOLONG, path, "expected a path of 1 to %zu bytes",
				 sizeof(opened->address.sun_path) - 1);
	opened = calloc(1, sizeof(*opened));
	if (opened == NULL)
		return open_fail(error, -ENOMEM, path, "out of memory");
	opened->address.sun_family = AF_UNIX;
	memcpy(opened->address.sun_path, path, strlen(path) + 1);
	opened->switch_name = switch_name;
	opened->commands = commands;
	opened->user = user;
	for (unsigned int i = 0; i < MAX_CLIENTS; i++)
		opened->clients[i].fd = -1;

	opened->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (opened->fd < 0) {
		ret = open_fail(error, -errno, path, "%s", strerror(errno));
		goto free_control;
	}
	ret = make_parent(path, error);
	if (ret == 0)
		ret = remove_stale(&opened->address, error);
	if (ret == 0)
		ret = bind_and_listen(opened, error);
	if (ret != 0)
		goto close_socket;
	*control = opened;
	return 0;

close_socket:
	close(opened->fd);
free_control:
	free(opened);
	return ret;
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
		int fd = accept4(control->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

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
	fds[MAX_CLIENTS] = (struct pollfd){ .fd = control->fd, .events = POLLIN };
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
	struct stat status;

	if (control == NULL)
		return;
	for (unsigned int i = 0; i < MAX_CLIENTS; i++) {
		if (control->clients[i].fd >= 0)
			control_client_stop(&control->clients[i]);
	}
	close(control->fd);
	if (lstat(control->address.sun_path, &status) == 0 && status.st_dev == control->device &&
	    status.st_ino == control->inode)
		unlink(control->address.sun_path);
	free(control);
}
