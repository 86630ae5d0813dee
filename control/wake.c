/* SPDX-License-Identifier: BSD-3-Clause */
/* See wake.h. */
#include "control/wake.h"

#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

int
wake_fd_open(const int *fds, size_t n)
{
	struct epoll_event event = { .events = EPOLLIN };
	int fd = epoll_create1(EPOLL_CLOEXEC);

	if (fd < 0)
		return -errno;
	for (size_t i = 0; i < n; i++) {
		if (fds[i] >= 0 && epoll_ctl(fd, EPOLL_CTL_ADD, fds[i], &event) != 0) {
			close(fd);
			return -EIO;
		}
	}
	return fd;
}

bool
wake_is_readable(int fd)
{
	struct pollfd poll_fd = { .fd = fd, .events = POLLIN };

	return poll(&poll_fd, 1, 0) == 1;
}
