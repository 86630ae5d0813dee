/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * To preload into a program: what waits for the kernel's lock on network interfaces waits
 * SLOW_KERNEL_MS longer, as if something else held it, while there is the file SLOW_KERNEL_FILE.
 * That are requests by netlink, and those of ethtool.
 */
#include <dlfcn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <linux/sockios.h>

static void
wait_for_lock(void)
{
	const char *file = getenv("SLOW_KERNEL_FILE");
	const char *ms = getenv("SLOW_KERNEL_MS");
	const long wait_ms = ms == NULL ? 0 : atol(ms);
	const struct timespec wait = { wait_ms / 1000, wait_ms % 1000 * 1000000 };

	if (file != NULL && access(file, F_OK) == 0)
		nanosleep(&wait, NULL);
}

int
ioctl(int fd, unsigned long request, ...)
{
	int (*next)(int, unsigned long, ...) = (int (*)(int, unsigned long, ...))dlsym(RTLD_NEXT,
										       "ioctl");
	va_list list;
	void *argument;

	va_start(list, request);
	argument = va_arg(list, void *);
	va_end(list);
	if (request == SIOCETHTOOL || request == SIOCSIFFLAGS)
		wait_for_lock();
	return next(fd, request, argument);
}

ssize_t
send(int fd, const void *data, size_t len, int flags)
{
	ssize_t (*next)(int, const void *, size_t,
			int) = (ssize_t(*)(int, const void *, size_t, int))dlsym(RTLD_NEXT, "send");
	int domain = AF_UNSPEC;
	socklen_t domain_len = sizeof(domain);

	if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &domain_len) == 0 &&
	    domain == AF_NETLINK)
		wait_for_lock();
	return next(fd, data, len, flags);
}
