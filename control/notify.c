/* SPDX-License-Identifier: BSD-3-Clause */
/* See notify.h. */
#include "control/notify.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int
notify_service(const char *state)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	const char *path = getenv("NOTIFY_SOCKET");
	size_t len = path == NULL ? 0 : strlen(path);
	int ret = 0;
	int fd;

	if (len == 0)
		return 0;
	if (len >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	memcpy(address.sun_path, path, len);
	if (path[0] == '@')
		address.sun_path[0] = '\0'; /* an abstract name */
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (sendto(fd, state, strlen(state), MSG_NOSIGNAL, (const struct sockaddr *)&address,
		   (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)) < 0)
		ret = -errno;
	close(fd);
	return ret;
}
