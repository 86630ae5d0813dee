/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Talks to a switch or a manager over a control socket. Used by faninctl and fanin-pktgen;
 * blocking, one thread at a time.
 */
#include "control/client.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "control/address.h"
#include "control/clock.h"
#include "control/secret.h"
#include "control/stream.h"
#include "control/text.h"
#include "control/tls.h"

/* A little above the server's own limit, so that its answers always fit. */
#define LONGEST_ANSWER ((size_t)80 << 20)
#define READ_CHUNK 65536
#define QUEUE_SECONDS 5 /* longest wait for room in a Unix socket's queue */

struct client {
	struct stream stream; /* fd -1: not connected */
	struct tls *tls;
	const char *peer; /* "the switch" */
	char at[ADDRESS_TEXT_LEN];
	bool plain_tcp; /* without TLS */
	json_t *greeting;
	json_int_t last_id;
	char *buffer; /* received and not yet parsed */
	size_t used;
	size_t size;
};

static int __attribute__((format(printf, 3, 4)))
fail(char *error, int code, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(error, CLIENT_ERROR_LEN, format, args);
	va_end(args);
	text_make_printable(error);
	return code;
}

/*
 * Returns another possible reason why a server has said nothing: it waits for a TLS handshake, or
 * has closed a plain connection.
 */
static const char *
tls_hint(const struct client *client)
{
	return client->plain_tcp && client->greeting == NULL ? ", or does it expect TLS (--ca)"
							     : "";
}

/* Waits for the connection to be ready for events. Returns 0 or -errno with the error filled. */
static int
wait_ready(const struct client *client, short events, uint64_t end_ms, char *error)
{
	struct pollfd fd = { .fd = client->stream.fd, .events = events };
	int64_t left_ms = (int64_t)(end_ms - clock_ms());
	int ready = left_ms <= 0 ? 0 : poll(&fd, 1, (int)left_ms);

	if (ready > 0 || (ready < 0 && errno == EINTR))
		return 0;
	if (ready < 0)
		return fail(error, -errno, "poll: %s", strerror(errno));
	return fail(error, -ETIMEDOUT,
		    "no answer from %s within %d s: is %s stopped or overloaded%s?", client->at,
		    CLIENT_TIMEOUT_MS / 1000, client->peer, tls_hint(client));
}

/* Fails with the error of stream_receive or stream_send. */
static int
fail_stream(const struct client *client, int code, const char *format, char *error)
{
	char message[CLIENT_ERROR_LEN / 2];

	snprintf(message, sizeof(message), "%s",
		 code == -EPROTO ? stream_tls_error(&client->stream) : strerror(-code));
	if (code == -EPROTO)
		return fail(error, code, "TLS with %s failed: %s", client->at, message);
	return fail(error, code, format, client->at, message);
}

static int
send_line(struct client *client, const json_t *message, uint64_t end_ms, char *error)
{
	char *text = json_dumps(message, JSON_COMPACT);
	size_t len, sent = 0;
	int ret = 0;

	if (text == NULL)
		return fail(error, -ENOMEM, "out of memory");
	len = strlen(text);
	text[len] = '\n'; /* in place of the terminator: only len + 1 bytes are sent */
	while (ret == 0 && sent < len + 1) {
		ssize_t got = stream_send(&client->stream, text + sent, len + 1 - sent);

		if (got >= 0)
			sent += (size_t)got;
		else if (got == -EPIPE || got == -ECONNRESET)
			break; /* the server's last message may tell why */
		else if (got == -EAGAIN)
			ret = wait_ready(client, client->stream.send_events, end_ms, error);
		else
			ret = fail_stream(client, (int)got, "cannot send to %s: %s", error);
	}
	free(text);
	return ret;
}

/* Receives more of the answer. Returns 0 or -errno with the error filled. */
static int
receive(struct client *client, uint64_t end_ms, char *error)
{
	ssize_t got;

	if (client->size - client->used < READ_CHUNK) {
		size_t size = client->size * 2 + READ_CHUNK;
		char *buffer;

		if (client->used > LONGEST_ANSWER)
			return fail(error, -EMSGSIZE, "the answer from %s is longer than %zu bytes",
				    client->at, LONGEST_ANSWER);
		buffer = realloc(client->buffer, size);
		if (buffer == NULL)
			return fail(error, -ENOMEM, "out of memory");
		client->buffer = buffer;
		client->size = size;
	}
	got = stream_receive(&client->stream, client->buffer + client->used,
			     client->size - client->used);
	if (got == -EAGAIN)
		return wait_ready(client, client->stream.receive_events, end_ms, error);
	if (got < 0 && got != -ECONNRESET)
		return fail_stream(client, (int)got, "cannot receive from %s: %s", error);
	if (got <= 0)
		return fail(error, -ECONNRESET, "%s closed the connection to %s: has it stopped%s?",
			    client->peer, client->at, tls_hint(client));
	client->used += (size_t)got;
	return 0;
}

/* Receives a line and parses it. Returns 0 with *object set, or -errno. */
static int
receive_object(struct client *client, uint64_t end_ms, json_t **object, char *error)
{
	json_error_t json_error;
	char *newline = NULL;
	size_t scanned = 0;
	int ret;

	while (newline == NULL) {
		if (client->used > scanned)
			newline = memchr(client->buffer + scanned, '\n', client->used - scanned);
		if (newline != NULL)
			break;
		scanned = client->used;
		ret = receive(client, end_ms, error);
		if (ret != 0)
			return ret;
	}
	*object = json_loadb(client->buffer, (size_t)(newline - client->buffer), 0, &json_error);
	client->used -= (size_t)(newline + 1 - client->buffer);
	memmove(client->buffer, newline + 1, client->used);
	if (json_is_object(*object))
		return 0;
	json_decref(*object);
	*object = NULL;
	return fail(error, -EPROTO,
		    "found no JSON object in what %s sent: is it the control socket of %s?",
		    client->at, client->peer);
}

/* Makes the error text from an answer's error object. */
static int
fail_refused(const json_t *answer, char *error)
{
	const json_t *object = json_object_get(answer, "error");
	const char *code = json_string_value(json_object_get(object, "code"));
	const char *message = json_string_value(json_object_get(object, "message"));

	return fail(error, -EREMOTEIO, "%s: %s", code == NULL ? "unknown" : code,
		    message == NULL ? "no reason was given" : message);
}

static int
connect_unix(struct client *client, int fd, char *error)
{
	const struct timeval patience = { .tv_sec = QUEUE_SECONDS };
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int flags, code;

	if (strlen(client->at) >= sizeof(address.sun_path))
		return fail(error, -ENAMETOOLONG,
			    "cannot connect to %s: expected a path of at most %zu bytes",
			    client->at, sizeof(address.sun_path) - 1);
	memcpy(address.sun_path, client->at, strlen(client->at) + 1);
	/* If many are connecting, connect waits for room in the queue, but not without end. */
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	flags = fcntl(fd, F_GETFL);
	fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
	code = connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0 ? 0 : errno;
	fcntl(fd, F_SETFL, flags);
	if (code == 0)
		return 0;
	if (code == ENOENT)
		return fail(error, -code,
			    "cannot connect to %s: no such file: is fanin-switch running?",
			    client->at);
	if (code == ECONNREFUSED)
		return fail(error, -code,
			    "cannot connect to %s: no process listens: has fanin-switch crashed?",
			    client->at);
	if (code == EACCES)
		return fail(
			error, -code,
			"cannot connect to %s: permission denied: be root or in the file's group",
			client->at);
	if (code == EAGAIN)
		return fail(error, -code,
			    "cannot connect to %s: its queue is full: is the switch stopped?",
			    client->at);
	return fail(error, -code, "cannot connect to %s: %s", client->at, strerror(code));
}

/* Connects the stream's socket, so that the wait is limited. */
static int
connect_tcp(struct client *client, const struct address *address, char *error)
{
	socklen_t len = sizeof(int);
	int code = 0;
	int ret;

	if (connect(client->stream.fd, (const struct sockaddr *)&address->socket, address->len) !=
	    0)
		code = errno;
	if (code == EINPROGRESS) {
		ret = wait_ready(client, POLLOUT, clock_ms() + CLIENT_TIMEOUT_MS, error);
		if (ret != 0)
			return ret;
		if (getsockopt(client->stream.fd, SOL_SOCKET, SO_ERROR, &code, &len) != 0)
			code = errno;
	}
	if (code != 0)
		return fail(error, -code, "cannot connect to %s: %s", client->at, strerror(code));
	return 0;
}

/* Connects to the path or address of the options. Returns 0 or -errno with the error filled. */
static int
connect_to(struct client *client, const struct client_options *options, char *error)
{
	const struct tls_files files = { options->certificate, options->key, options->ca };
	const bool path = strchr(options->at, '/') != NULL ||
			  (!options->manager && strchr(options->at, ':') == NULL);
	struct address address = { .socket.ss_family = AF_UNIX };
	char message[ADDRESS_ERROR_LEN];
	int fd, ret;

	if (!path && address_parse(options->at, options->manager ? CLIENT_MANAGER_PORT : 0, true,
				   &address, message) != 0)
		return fail(error, -EINVAL, "cannot connect: %s", message);
	client->plain_tcp = !path && options->ca == NULL;
	if (options->ca != NULL && !path && tls_client_create(&files, &client->tls, message) != 0)
		return fail(error, -EINVAL, "%s", message);
	/* Non-blocking even before connect, which could wait for minutes over TCP. */
	fd = socket(address.socket.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return fail(error, -errno, "cannot make a socket: %s", strerror(errno));
	ret = path ? connect_unix(client, fd, error) : 0;
	if (ret == 0 && stream_connect(&client->stream, fd, client->tls, address.host) != 0)
		ret = fail(error, -ENOMEM, "out of memory");
	if (ret != 0) {
		close(fd);
		return ret;
	}
	return path ? 0 : connect_tcp(client, &address, error);
}

/* Receives the server's greeting. */
static int
receive_greeting(struct client *client, uint64_t end_ms, char *error)
{
	const json_t *protocol;
	const char *version;
	int ret = receive_object(client, end_ms, &client->greeting, error);

	if (ret != 0)
		return ret;
	if (json_object_get(client->greeting, "error") != NULL)
		return fail_refused(client->greeting, error);
	protocol = json_object_get(client->greeting, "protocol");
	version = json_string_value(json_object_get(client->greeting, "version"));
	if (json_object_get(client->greeting, "fanin") == NULL || !json_is_integer(protocol))
		return fail(error, -EPROTO,
			    "found no greeting from %s: is it the control socket of %s?",
			    client->at, client->peer);
	if (json_integer_value(protocol) != CLIENT_PROTOCOL)
		return fail(error, -EPROTO,
			    "%s speaks protocol %" JSON_INTEGER_FORMAT
			    ", this program %d: use that of its version, %s",
			    client->peer, json_integer_value(protocol), CLIENT_PROTOCOL,
			    version == NULL ? "unknown" : version);
	return 0;
}

static int
shake_hands(struct client *client, const struct client_options *options, char *error)
{
	uint64_t end_ms = clock_ms() + CLIENT_TIMEOUT_MS;
	const char *token = getenv("FANIN_TOKEN");
	char secret[SECRET_SIZE];
	json_t *hello;
	int ret = 0;

	if (options->token_file != NULL) {
		char message[SECRET_ERROR_LEN];

		if (secret_load(options->token_file, secret, message) != 0)
			return fail(error, -EINVAL, "%s", message);
		token = secret;
	}
	if (!options->manager)
		ret = receive_greeting(client, end_ms, error);
	if (ret != 0)
		return ret;
	hello = json_pack("{s:i, s:s*}", "hello", CLIENT_PROTOCOL, "token", token);
	ret = send_line(client, hello, end_ms, error);
	json_decref(hello);
	if (ret == 0 && options->manager)
		ret = receive_greeting(client, end_ms, error);
	return ret;
}

int
client_open(const struct client_options *options, struct client **client, char *error)
{
	struct client *opened;
	int ret;

	if (strlen(options->at) >= sizeof(opened->at))
		return fail(error, -ENAMETOOLONG,
			    "cannot connect to %.40s...: expected at most %zu bytes", options->at,
			    sizeof(opened->at) - 1);
	opened = calloc(1, sizeof(*opened));
	if (opened == NULL)
		return fail(error, -ENOMEM, "out of memory");
	opened->stream.fd = -1;
	opened->peer = options->manager ? "the manager" : "the switch";
	memcpy(opened->at, options->at, strlen(options->at) + 1);
	ret = connect_to(opened, options, error);
	if (ret == 0)
		ret = shake_hands(opened, options, error);
	if (ret != 0) {
		client_close(opened);
		return ret;
	}
	*client = opened;
	return 0;
}

int
client_call(struct client *client, const char *command, json_t *args, json_t **result, char *error)
{
	uint64_t end_ms = clock_ms() + CLIENT_TIMEOUT_MS;
	json_t *request, *answer = NULL;
	int ret;

	request = json_pack("{s:I, s:s, s:o*}", "id", ++client->last_id, "cmd", command, "args",
			    args);
	if (request == NULL)
		return fail(error, -ENOMEM, "out of memory");
	ret = send_line(client, request, end_ms, error);
	json_decref(request);
	if (ret == 0)
		ret = receive_object(client, end_ms, &answer, error);
	if (ret != 0)
		return ret;
	if (!json_is_true(json_object_get(answer, "ok"))) {
		ret = fail_refused(answer, error);
	} else if (json_integer_value(json_object_get(answer, "id")) != client->last_id ||
		   !json_is_object(json_object_get(answer, "result"))) {
		ret = fail(error, -EPROTO, "found an answer from %s that does not belong to \"%s\"",
			   client->at, command);
	} else {
		*result = json_incref(json_object_get(answer, "result"));
	}
	json_decref(answer);
	return ret;
}

const json_t *
client_greeting(const struct client *client)
{
	return client->greeting;
}

void
client_close(struct client *client)
{
	if (client == NULL)
		return;
	if (client->stream.fd >= 0)
		stream_stop(&client->stream);
	tls_free(client->tls);
	json_decref(client->greeting);
	free(client->buffer);
	free(client);
}
