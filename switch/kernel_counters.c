/* SPDX-License-Identifier: BSD-3-Clause */
/* See kernel_counters.h. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <linux/if_xdp.h>

#include "switch/kernel_counters.h"

#ifndef SOL_XDP
#define SOL_XDP 283
#endif

char *
kernel_interfaces_read(void)
{
	FILE *file = fopen("/proc/thread-self/net/dev", "re");
	char *text = NULL;
	size_t size = 0;

	if (file == NULL)
		return NULL;
	if (getdelim(&text, &size, '\0', file) < 0) {
		free(text);
		text = NULL;
	}
	fclose(file);
	return text;
}

/* Returns the text after an interface's name and colon, where its counters begin. */
static const char *
find_interface(const char *interfaces, const char *interface)
{
	const size_t len = strlen(interface);

	for (const char *line = interfaces; line != NULL && *line != '\0';) {
		const char *end = strchr(line, '\n');

		while (*line == ' ')
			line++;
		if (strncmp(line, interface, len) == 0 && line[len] == ':')
			return line + len + 1;
		line = end == NULL ? NULL : end + 1;
	}
	return NULL;
}

struct kernel_drops
kernel_interface_drops(const char *interfaces, const char *interface)
{
	struct kernel_drops drops = { 0 };
	const char *at = find_interface(interfaces, interface);
	uint64_t rx, tx;

	/*
	 * Received bytes, packets, errors and drops; four more counters; then the same for sending.
	 */
	if (at != NULL && sscanf(at,
				 "%*u %*u %*u %" SCNu64 " %*u %*u %*u %*u "
				 "%*u %*u %*u %" SCNu64,
				 &rx, &tx) == 2)
		drops = (struct kernel_drops){ .rx = rx, .tx = tx };
	return drops;
}

uint64_t
kernel_backlog_drops(void)
{
	FILE *file = fopen("/proc/net/softnet_stat", "re");
	uint64_t sum = 0;
	uint64_t drops;
	char line[512];

	if (file == NULL)
		return 0;
	/* One line for each CPU: packets, drops, and more. */
	while (fgets(line, sizeof(line), file) != NULL) {
		if (sscanf(line, "%*x %" SCNx64, &drops) == 1)
			sum += drops;
	}
	fclose(file);
	return sum;
}

size_t
kernel_xdp_sockets(int *fds, size_t max)
{
	DIR *directory = opendir("/proc/self/fd");
	const struct dirent *entry;
	size_t n = 0;

	while (directory != NULL && n < max && (entry = readdir(directory)) != NULL) {
		struct xdp_statistics stats;
		socklen_t len = sizeof(stats);
		int fd = atoi(entry->d_name);

		if (isdigit((unsigned char)entry->d_name[0]) &&
		    getsockopt(fd, SOL_XDP, XDP_STATISTICS, &stats, &len) == 0)
			fds[n++] = fd;
	}
	if (directory != NULL)
		closedir(directory);
	return n;
}

bool
kernel_xdp_is_lost(int fd)
{
	int error = 0;
	socklen_t len = sizeof(error);

	/* Reading the error clears it. */
	return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == ENETDOWN;
}

uint64_t
kernel_xdp_drops(int fd)
{
	struct xdp_statistics stats = { 0 };
	socklen_t len = sizeof(stats);

	if (getsockopt(fd, SOL_XDP, XDP_STATISTICS, &stats, &len) != 0)
		return 0;
	return stats.rx_dropped + stats.rx_ring_full;
}
