/* SPDX-License-Identifier: BSD-3-Clause */
/* See address.h. */
#include "control/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/text.h"

/*
 * Splits "HOST:PORT". host, port: ADDRESS_TEXT_LEN bytes; port is empty if there is none. Returns 0
 * or -EINVAL.
 */
static int
split(const char *text, char *host, char *port)
{
	const char *colon = strrchr(text, ':');
	const char *end = text + strlen(text);

	if (text[0] == '\0' || strlen(text) >= ADDRESS_TEXT_LEN)
		return -EINVAL;
	if (text[0] == '[') {
		const char *bracket = strchr(text, ']');

		if (bracket == NULL || (bracket[1] != '\0' && bracket[1] != ':'))
			return -EINVAL;
		snprintf(host, ADDRESS_TEXT_LEN, "%.*s", (int)(bracket - text - 1), text + 1);
		snprintf(port, ADDRESS_TEXT_LEN, "%s", bracket[1] == ':' ? bracket + 2 : "");
		return host[0] == '\0' || strcmp(bracket, "]:") == 0 ? -EINVAL : 0;
	}
	if (colon != NULL && strchr(text, ':') != colon)
		return -EINVAL;
	snprintf(host, ADDRESS_TEXT_LEN, "%.*s", (int)((colon == NULL ? end : colon) - text), text);
	snprintf(port, ADDRESS_TEXT_LEN, "%s", colon == NULL ? "" : colon + 1);
	return host[0] == '\0' || (colon != NULL && colon[1] == '\0') ? -EINVAL : 0;
}

static int
fail_form(const char *text, bool resolve, char *error)
{
	char shown[TEXT_VALUE_LEN];

	snprintf(error, ADDRESS_ERROR_LEN, "found %s, expected %s like %s", text_key(text, shown),
		 resolve ? "HOST:PORT" : "a numeric ADDRESS:PORT", "10.0.0.1:21932 or [::1]:21932");
	return -EINVAL;
}

int
address_parse(const char *text, uint16_t default_port, bool resolve, struct address *address,
	      char *error)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV };
	struct address parsed = { 0 };
	struct addrinfo *found;
	char port[ADDRESS_TEXT_LEN];
	char *end;
	long number;
	int ret;

	if (split(text, parsed.host, port) != 0)
		return fail_form(text, resolve, error);
	if (port[0] == '\0') {
		if (default_port == 0)
			return fail_form(text, resolve, error);
		snprintf(port, sizeof(port), "%u", default_port);
	}
	number = strtol(port, &end, 10);
	if (*end != '\0' || strspn(port, "0123456789") != strlen(port) || number < 0 ||
	    number > 65535)
		return fail_form(text, resolve, error);
	if (!resolve)
		hints.ai_flags |= AI_NUMERICHOST;
	ret = getaddrinfo(parsed.host, port, &hints, &found);
	if (ret != 0 && !resolve)
		return fail_form(text, resolve, error);
	if (ret != 0) {
		snprintf(error, ADDRESS_ERROR_LEN, "cannot look up \"%.200s\": %s", parsed.host,
			 gai_strerror(ret));
		text_make_printable(error);
		return -EINVAL;
	}
	memcpy(&parsed.socket, found->ai_addr, found->ai_addrlen);
	parsed.len = found->ai_addrlen;
	freeaddrinfo(found);
	*address = parsed;
	return 0;
}

bool
address_is_loopback(const struct address *address)
{
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)&address->socket;
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&address->socket;

	if (address->socket.ss_family == AF_INET)
		return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
	return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

uint16_t
address_port(const struct address *address)
{
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)&address->socket;
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&address->socket;

	return ntohs(address->socket.ss_family == AF_INET ? v4->sin_port : v6->sin6_port);
}

void
address_set_port(struct address *address, uint16_t port)
{
	if (address->socket.ss_family == AF_INET)
		((struct sockaddr_in *)&address->socket)->sin_port = htons(port);
	else
		((struct sockaddr_in6 *)&address->socket)->sin6_port = htons(port);
}
