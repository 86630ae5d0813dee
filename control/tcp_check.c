/* SPDX-License-Identifier: BSD-3-Clause */
/* What a TCP listener may be given: see control_tcp_check in control/control.h. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "control/address.h"
#include "control/control.h"

/* "control address ADDRESS: message", from the message in `error` itself. */
static int
fail_listen(const char *listen, int ret, char *error)
{
	char message[CONTROL_MESSAGE_LEN];

	memcpy(message, error, sizeof(message));
	snprintf(error, CONTROL_MESSAGE_LEN, "control address %.100s: %.380s", listen, message);
	return ret;
}

static bool
is_set(const char *text)
{
	return text != NULL && text[0] != '\0';
}

int
control_tcp_check(const struct control_tcp *tcp, char *error)
{
	struct address address;

	if (is_set(tcp->certificate) != is_set(tcp->key)) {
		snprintf(error, CONTROL_MESSAGE_LEN,
			 "found a TLS %s without a %s, expected both or none",
			 is_set(tcp->key) ? "key" : "certificate",
			 is_set(tcp->key) ? "certificate" : "key");
		return -EINVAL;
	}
	if (is_set(tcp->ca) && !is_set(tcp->certificate)) {
		snprintf(error, CONTROL_MESSAGE_LEN,
			 "found a TLS CA without a certificate, expected both");
		return -EINVAL;
	}
	if (!is_set(tcp->listen)) {
		if (!is_set(tcp->token_file) && !is_set(tcp->certificate))
			return 0;
		snprintf(error, CONTROL_MESSAGE_LEN,
			 "found a token file or TLS without an address to listen on");
		return -EINVAL;
	}
	if (address_parse(tcp->listen, 0, false, &address, error) != 0)
		return fail_listen(tcp->listen, -EINVAL, error);
	if (address_is_loopback(&address) || is_set(tcp->token_file))
		return 0;
	snprintf(error, CONTROL_MESSAGE_LEN,
		 "found no token file, expected one: without it only addresses of this machine alone, like 127.0.0.1, may be listened on");
	return fail_listen(tcp->listen, -EINVAL, error);
}
