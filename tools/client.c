/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Talks to a switch over its control socket. Used by faninctl; blocking, one thread at a time.
 */
#include "tools/client.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "control/text.h"

/* A little above the switch's own limit, so that its answers always fit. */
#define LONGEST_ANSWER ((size_t)80 << 20)
#define READ_CHUNK 65536

struct client {
	int fd;
	char path[sizeof(((struct sockaddr_un *)NULL)->sun_path)];
	json_t *greeting;
	json_int_t last_id;
	char *buffer; /* what was received and not yet taken */
	size_t used;
	size_t size;
};

static int __attribute__((format(printf, 3, 4))) fail(char *error, int code, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(error, CLIENT_ERROR_LEN, format, args);
	va_end(args);
	text_make_printable(error);
	return code;
}

static int64_t
now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Waits for the connection to be ready for events. Returns 0 or -errno with the error filled. */
static int
wait_ready(const struct client *client, short events, int64_t end_ms, char *error)
{
	struct pollfd fd = { .fd = client->fd, .events = events };
	int64_t left_ms = end_ms - now_ms();
	int ready = left_ms <= 0 ? 0 : poll(&fd, 1, (int)left_ms);

	if (ready > 0 || (ready < 0 && errno == EINTR))
		return 0;
	if (ready < 0)
		return fail(error, -errno, "poll: %s", strerror(errno));
	return fail(error, -ETIMEDOUT,
		    "no answer from %s within %d s: is the switch stopped or overloaded?",
		    client->path, CLIENT_TIMEOUT_MS / 1000);
}

static int
send_line(struct client *client, const json_t *message, int64_t end_ms, char *error)
{
	char *text = json_dumps(message, JSON_COMPACT);
	size_t len, sent = 0;
	int ret = 0;

	if (text == NULL)
		return fail(error, -ENOMEM, "out of memory");
	len = strlen(text);
	text[len] = '\n'; /* in place of the terminator: only len + 1 bytes are sent */
	while (ret == 0 && sent < len + 1) {
		ssize_t got;

		ret = wait_ready(client, POLLOUT, end_ms, error);
		if (ret != 0)
			break;
		got = send(client->fd, text + sent, len + 1 - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (got >= 0)
			sent += (size_t)got;
		else if (errno == EPIPE || errno == ECONNRESET)
			break; /* its last words may tell why */
		else if (errno != EAGAIN && errno != EINTR)
			ret = fail(error, -errno, "cannot send to %s: %s", client->path,
				   strerror(errno));
	}
	free(text);
	return ret;
}

/* Receives more of the answer. Returns 0 or -errno with the error filled. */
static int
receive(struct client *client, int64_t end_ms, char *error)
{
	ssize_t got;
	int ret;

	if (client->size - client->used < READ_CHUNK) {
		size_t size = client->size * 2 + READ_CHUNK;
		char *buffer;

		if (client->used > LONGEST_ANSWER)
			return fail(error, -EMSGSIZE, "the answer from %s is longer than %zu bytes",
				    client->path, LONGEST_ANSWER);
		buffer = realloc(client->buffer, size);
		if (buffer == NULL)
			return fail(error, -ENOMEM, "out of memory");
		client->buffer = buffer;
		client->size = size;
	}
	ret = wait_ready(client, POLLIN, end_ms, error);
	if (ret != 0)
		return ret;
	got = recv(client->fd, client->buffer + client->used, client->size - client->used,
		   MSG_DONTWAIT);
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (got <= 0)
		return fail(error, -ECONNRESET,
			    "the switch closed the connection to %s: has it stopped?", client->path);
	client->used += (size_t)got;
	return 0;
}

/* Waits for a line and parses it. Returns 0 with *object set, or -errno. */
static int
receive_object(struct client *client, int64_t end_ms, json_t **object, char *error)
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
		    "found no JSON object in what %s sent: is it the control socket of a switch?",
		    client->path);
}

/* Turns an answer's error object into the error. */
static int
fail_refused(const json_t *answer, char *error)
{
	const json_t *object = json_object_get(answer, "error");
	const char *code = json_string_value(json_object_get(object, "code"));
	const char *message = json_string_value(json_object_get(object, "message"));

	return fail(error, -EREMOTEIO, "%s: %s", code == NULL ? "unknown" : code,
		    message == NULL ? "the switch gave no reason" : message);
}

static int
connect_to(struct client *client, char *error)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int code;

	memcpy(address.sun_path, client->path, sizeof(address.sun_path));
	if (connect(client->fd, (const struct sockaddr *)&address, sizeof(address)) == 0)
		return 0;
	code = errno;
	if (code == ENOENT)
		return fail(error, -code,
			    "cannot connect to %s: no such file: is fanin-switch running?",
			    client->path);
	if (code == ECONNREFUSED)
		return fail(error, -code,
			    "cannot connect to %s: nobody listens: has fanin-switch crashed?",
			    client->path);
	if (code == EACCES)
		return fail(error, -code,
			    "cannot connect to %s: permission denied: be root or in the file's group",
			    client->path);
	if (code == EAGAIN)
		return fail(error, -code,
			    "cannot connect to %s: its queue is full: is the switch stopped?",
			    client->path);
	return fail(error, -code, "cannot connect to %s: %s", client->path, strerror(code));
}

static int
shake_hands(struct client *client, char *error)
{
	int64_t end_ms = now_ms() + CLIENT_TIMEOUT_MS;
	const json_t *protocol;
	const char *version;
	json_t *hello;
	int ret;

	ret = receive_object(client, end_ms, &client->greeting, error);
	if (ret != 0)
		return ret;
	if (json_object_get(client->greeting, "error") != NULL)
		return fail_refused(client->greeting, error);
	protocol = json_object_get(client->greeting, "protocol");
	version = json_string_value(json_object_get(client->greeting, "version"));
	if (json_object_get(client->greeting, "fanin") == NULL || !json_is_integer(protocol))
		return fail(error, -EPROTO,
			    "found no greeting from %s: is it the control socket of a switch?",
			    client->path);
	if (json_integer_value(protocol) != CLIENT_PROTOCOL)
		return fail(error, -EPROTO,
			    "the switch speaks protocol %" JSON_INTEGER_FORMAT
			    ", this program %d: use that of the switch's version, %s",
			    json_integer_value(protocol), CLIENT_PROTOCOL,
			    version == NULL ? "unknown" : version);
	hello = json_pack("{s:i}", "hello", CLIENT_PROTOCOL);
	ret = send_line(client, hello, end_ms, error);
	json_decref(hello);
	return ret;
}

int
client_open(const char *path, struct client **client, char *error)
{
	struct client *opened;
	int ret;

	if (strlen(path) >= sizeof(opened->path))
		return fail(error, -ENAMETOOLONG,
			    "cannot connect to %s: expected a path of at most %zu bytes", path,
			    sizeof(opened->path) - 1);
	opened = calloc(1, sizeof(*opened));
	if (opened == NULL)
		return fail(error, -ENOMEM, "out of memory");
	memcpy(opened->path, path, strlen(path) + 1);
	/* Non-blocking already for connect: on a full queue it would wait without end. */
	opened->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (opened->fd < 0)
		ret = fail(error, -errno, "cannot make a socket: %s", strerror(errno));
	else
		ret = connect_to(opened, error);
	if (ret == 0)
		ret = shake_hands(opened, error);
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
	int64_t end_ms = now_ms() + CLIENT_TIMEOUT_MS;
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
			   client->path, command);
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
	if (client->fd >= 0)
		close(client->fd);
	json_decref(client->greeting);
	free(client->buffer);
	free(client);
}
