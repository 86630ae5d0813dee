/* SPDX-License-Identifier: BSD-3-Clause */
/* Reading the address that a metrics server listens on. No state; any thread. */
#include <errno.h>
#include <netdb.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "metrics/metrics.h"

#define LONGEST_ADDRESS 64

int
metrics_address(const char *text, struct sockaddr_storage *address, socklen_t *len)
{
	const struct addrinfo hints = {
		.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE,
		.ai_socktype = SOCK_STREAM,
	};
	const char *colon = strrchr(text, ':');
	char host[LONGEST_ADDRESS];
	struct addrinfo *found;
	size_t host_len;

	if (colon == NULL || colon == text)
		return -EINVAL;
	host_len = (size_t)(colon - text);
	if (text[0] == '[' && colon[-1] == ']' && host_len > 2) {
		text++;
		host_len -= 2;
	} else if (memchr(text, ':', host_len) != NULL) {
		return -EINVAL;
	}
	if (host_len >= sizeof(host))
		return -EINVAL;
	memcpy(host, text, host_len);
	host[host_len] = '\0';
	/* getaddrinfo takes what strtoul takes; a port is 1 to 65535 in plain digits. */
	if (colon[1] == '\0' || strlen(colon + 1) > 5 ||
	    strspn(colon + 1, "0123456789") != strlen(colon + 1) ||
	    strtoul(colon + 1, NULL, 10) - 1 >= UINT16_MAX)
		return -EINVAL;
	if (getaddrinfo(host, colon + 1, &hints, &found) != 0)
		return -EINVAL;
	memcpy(address, found->ai_addr, found->ai_addrlen);
	*len = found->ai_addrlen;
	freeaddrinfo(found);
	return 0;
}
