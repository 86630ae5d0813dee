/* SPDX-License-Identifier: BSD-3-Clause */
/* See listener.h. */
#include "control/listener.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "control/text.h"

/* The parts of an open's error message, and its destination. */
struct complaint {
	const char *what;
	const char *path;
	char *error;
};

/* Writes "WHAT PATH: message"; returns code. */
static int __attribute__((format(printf, 3, 4)))
open_fail(const struct complaint *complaint, int code, const char *format, ...)
{
	char *error = complaint->error;
	size_t used = (size_t)snprintf(error, LISTENER_ERROR_LEN, "%s %s: ", complaint->what,
				       complaint->path);
	va_list args;

	if (used < LISTENER_ERROR_LEN) {
		va_start(args, format);
		vsnprintf(error + used, LISTENER_ERROR_LEN - used, format, args);
		va_end(args);
	}
	text_make_printable(error);
	return code;
}

static int
make_parent(const struct complaint *complaint)
{
	char parent[sizeof(((struct sockaddr_un *)NULL)->sun_path)];
	char *slash;

	snprintf(parent, sizeof(parent), "%s", complaint->path);
	slash = strrchr(parent, '/');
	if (slash == NULL || slash == parent)
		return 0;
	*slash = '\0';
	if (mkdir(parent, 0755) == 0 || errno == EEXIST)
		return 0;
	return open_fail(complaint, -errno, "cannot create the directory %s: %s", parent,
			 strerror(errno));
}

/* Removes a socket file left behind by a process; refuses to remove anything else. */
static int
remove_stale(const struct complaint *complaint, const struct sockaddr_un *address, int type)
{
	const char *path = address->sun_path;
	struct stat status;
	int fd, ret;

	if (lstat(path, &status) != 0) {
		if (errno == ENOENT)
			return 0;
		return open_fail(complaint, -errno, "%s", strerror(errno));
	}
	if (!S_ISSOCK(status.st_mode))
		return open_fail(
			complaint, -EEXIST,
			"found a file that is not a socket: remove it or choose another path");
	fd = socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return open_fail(complaint, -errno, "%s", strerror(errno));
	ret = connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0 ? 0 : -errno;
	close(fd);
	if (ret == 0 || ret == -EAGAIN)
		return open_fail(complaint, -EADDRINUSE,
				 "another process listens on it: stop it or choose another path");
	if (ret != -ECONNREFUSED)
		return open_fail(complaint, ret, "cannot tell whether it is in use: %s",
				 strerror(-ret));
	if (unlink(path) != 0 && errno != ENOENT)
		return open_fail(complaint, -errno, "cannot remove the socket left behind: %s",
				 strerror(errno));
	return 0;
}

static int
bind_and_listen(const struct complaint *complaint, struct listener *listener, int backlog)
{
	const char *path = listener->address.sun_path;
	struct stat status;
	int ret;

	/*
	 * The mode before bind is an upper bound: until chmod sets it exactly, no other user can
	 * connect.
	 */
	fchmod(listener->fd, 0660);
	if (bind(listener->fd, (const struct sockaddr *)&listener->address,
		 sizeof(listener->address)) != 0)
		return open_fail(complaint, -errno, "cannot bind: %s", strerror(errno));
	if (chmod(path, 0660) == 0 && lstat(path, &status) == 0 &&
	    listen(listener->fd, backlog) == 0) {
		listener->device = status.st_dev;
		listener->inode = status.st_ino;
		return 0;
	}
	ret = open_fail(complaint, -errno, "cannot listen: %s", strerror(errno));
	unlink(path);
	return ret;
}

int
listener_open(struct listener *listener, const char *what, const char *path, int type, int backlog,
	      char *error)
{
	const struct complaint complaint = { what, path, error };
	struct listener opened = { .address = { .sun_family = AF_UNIX } };
	int ret;

	if (path[0] == '\0' || strlen(path) >= sizeof(opened.address.sun_path))
		return open_fail(&complaint, -ENAMETOOLONG, "expected a path of 1 to %zu bytes",
				 sizeof(opened.address.sun_path) - 1);
	memcpy(opened.address.sun_path, path, strlen(path) + 1);
	opened.fd = socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (opened.fd < 0)
		return open_fail(&complaint, -errno, "%s", strerror(errno));
	ret = make_parent(&complaint);
	if (ret == 0)
		ret = remove_stale(&complaint, &opened.address, type);
	if (ret == 0)
		ret = bind_and_listen(&complaint, &opened, backlog);
	if (ret != 0) {
		close(opened.fd);
		return ret;
	}
	*listener = opened;
	return 0;
}

int
listener_open_tcp(struct listener *listener, const char *what, const char *text,
		  const struct address *address, int backlog, char *error)
{
	const struct complaint complaint = { what, text, error };
	struct listener opened = { 0 };
	const int on = 1;
	int ret;

	opened.fd = socket(address->socket.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC,
			   0);
	if (opened.fd < 0)
		return open_fail(&complaint, -errno, "%s", strerror(errno));
	/* A restarted daemon must not wait for the old connections to time out. */
	setsockopt(opened.fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(opened.fd, (const struct sockaddr *)&address->socket, address->len) == 0 &&
	    listen(opened.fd, backlog) == 0) {
		*listener = opened;
		return 0;
	}
	ret = open_fail(&complaint, -errno, "cannot listen: %s", strerror(errno));
	close(opened.fd);
	return ret;
}

int
listener_check_tcp(const char *what, const char *text, const struct address *address, char *error)
{
	const struct complaint complaint = { what, text, error };
	struct address any_port = *address;
	int ret = 0;
	int fd;

	address_set_port(&any_port, 0);
	fd = socket(any_port.socket.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return open_fail(&complaint, -errno, "%s", strerror(errno));
	if (bind(fd, (const struct sockaddr *)&any_port.socket, any_port.len) != 0)
		ret = open_fail(&complaint, -errno, "cannot listen: %s", strerror(errno));
	close(fd);
	return ret;
}

void
listener_close(struct listener *listener)
{
	struct stat status;

	close(listener->fd);
	if (listener->address.sun_path[0] == '\0')
		return;
	if (lstat(listener->address.sun_path, &status) == 0 && status.st_dev == listener->device &&
	    status.st_ino == listener->inode)
		unlink(listener->address.sun_path);
}
