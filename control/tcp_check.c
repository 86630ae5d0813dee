/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Checks a TCP listener's options: see control_tcp_check and control_tcp_check_machine in
 * control/control.h.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <openssl/crypto.h>

#include "control/address.h"
#include "control/control.h"
#include "control/listener.h"
#include "control/secret.h"
#include "control/tls.h"

static_assert(CONTROL_MESSAGE_LEN >= SECRET_ERROR_LEN, "buffers");
static_assert(CONTROL_MESSAGE_LEN >= TLS_ERROR_LEN, "buffers");
static_assert(CONTROL_MESSAGE_LEN >= LISTENER_ERROR_LEN, "buffers");

/* Puts "control address ADDRESS: " before the message in `error`. */
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
	snprintf(
		error, CONTROL_MESSAGE_LEN,
		"found no token file, expected one: without it only addresses of this machine alone, like 127.0.0.1, may be listened on");
	return fail_listen(tcp->listen, -EINVAL, error);
}

int
control_tcp_check_machine(const struct control_tcp *tcp, char *error)
{
	const struct tls_files files = { .certificate = tcp->certificate,
					 .key = tcp->key,
					 .ca = is_set(tcp->ca) ? tcp->ca : NULL };
	char token[SECRET_SIZE] = "";
	struct address address;
	struct tls *tls = NULL;
	int ret = 0;

	if (!is_set(tcp->listen))
		return 0;
	if (is_set(tcp->token_file))
		ret = secret_load(tcp->token_file, token, error);
	OPENSSL_cleanse(token, sizeof(token));
	if (ret == 0 && is_set(tcp->certificate))
		ret = tls_server_create(&files, &tls, error);
	tls_free(tls);
	if (ret == 0)
		ret = address_parse(tcp->listen, 0, false, &address, error);
	if (ret == 0)
		ret = listener_check_tcp("control address", tcp->listen, &address, error);
	return ret;
}
