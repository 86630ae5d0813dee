/* SPDX-License-Identifier: BSD-3-Clause */
/* Tells which processes can share memory. See fanin/fanin.h. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fanin/fanin.h"

#define BOOT_ID_LEN 36

int
fanin_host_id(char id[FANIN_HOST_ID_LEN])
{
	char boot[BOOT_ID_LEN + 1] = "";
	struct stat network;
	const int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	const ssize_t got = fd < 0 ? -1 : read(fd, boot, BOOT_ID_LEN);

	if (fd >= 0)
		close(fd);
	if (got != BOOT_ID_LEN || stat("/proc/self/ns/net", &network) != 0)
		return FANIN_ERR_SYSTEM;
	snprintf(id, FANIN_HOST_ID_LEN, "%s/%llx/%u", boot, (unsigned long long)network.st_ino,
		 geteuid());
	return FANIN_OK;
}
