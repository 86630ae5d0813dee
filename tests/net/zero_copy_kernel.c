/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * To preload into a program: ethtool tells it that each interface has the driver of a network card
 * with zero-copy AF_XDP. The kernel's own answer to AF_XDP stays, so that it copies.
 */
#include <dlfcn.h>
#include <net/if.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>

#include <linux/ethtool.h>
#include <linux/sockios.h>

int
ioctl(int fd, unsigned long request, ...)
{
	int (*next)(int, unsigned long, ...) = (int (*)(int, unsigned long, ...))dlsym(RTLD_NEXT,
										       "ioctl");
	struct ethtool_drvinfo *info;
	va_list list;
	void *argument;
	int found;

	va_start(list, request);
	argument = va_arg(list, void *);
	va_end(list);
	found = next(fd, request, argument);
	if (found != 0 || request != SIOCETHTOOL)
		return found;
	info = (struct ethtool_drvinfo *)((struct ifreq *)argument)->ifr_data;
	if (info->cmd == ETHTOOL_GDRVINFO)
		strcpy(info->driver, "ice");
	return found;
}
