/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One client of a control socket: bounded buffers around a non-blocking connection. Called by
 * control/control.c on the main thread.
 */
#include "control/control_client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "control/clock.h"

#define READ_CHUNK 65536

/* Makes room for `more` bytes after the end. Returns 0 or -ENOMEM. */
static int
buffer_reserve(struct control_buffer *buffer, size_t more)
{
	size_t used = buffer->end - buffer->start;
	size_t size = buffer->size;
	char *data;

	if (buffer->size - buffer->end >= more)
		return 0;
	if (buffer->start > 0) {
		memmove(buffer->data, buffer->data + buffer->start, used);
		buffer->start = 0;
		buffer->end = used;
	}
	while (size - used < more)
		size = size == 0 ? 4096 : size * 2;
	if (size == buffer->size)
		return 0;
	data = realloc(buffer->data, size);
	if (data == NULL)
		return -ENOMEM;
	buffer->data = data;
	buffer->size = size;
	return 0;
}

/*
 * Frees the memory of an empty buffer: there are many connections, and most are idle most of the
 * time.
 */
static void
buffer_rest(struct control_buffer *buffer)
{
	if (buffer->start < buffer->end)
		return;
	free(buffer->data);
	*buffer = (struct control_buffer){ 0 };
}

void
control_client_start(struct control_client *client, struct control_service *service,
		     const struct stream *stream, uint64_t now_ms)
{
	*client = (struct control_client){ .stream = *stream,
					   .service = service,
					   .since_ms = now_ms,
					   .heard_ms = now_ms,
					   .deadline_ms = now_ms + CONTROL_HELLO_MS };
}

void
control_client_stop(struct control_client *client)
{
	const struct control_options *options = &client->service->options;

	if (client->data != NULL && options->closed != NULL)
		options->closed(options->user, client, client->data);
	stream_stop(&client->stream);
	free(client->in.data);
	free(client->out.data);
	*client = (struct control_client){ .stream = { .fd = -1 } };
}

size_t
control_client_line_max(const struct control_client *client)
{
	if (client->tcp && !client->greeted)
		return CONTROL_HELLO_MAX;
	return client->service->options.line_max;
}

bool
control_client_wants_input(const struct control_client *client)
{
	return !client->closing && client->refuse_ms == 0 && !control_client_has_output(client);
}

bool
control_client_has_line(struct control_client *client)
{
	const struct control_buffer *in = &client->in;
	const char *newline = NULL;

	if (in->end - in->start > client->scanned)
		newline = memchr(in->data + in->start + client->scanned, '\n',
				 in->end - in->start - client->scanned);
	client->scanned = newline == NULL ? in->end - in->start
					  : (size_t)(newline - in->data) - in->start;
	return newline != NULL;
}

bool
control_client_has_output(const struct control_client *client)
{
	return client->out.end > client->out.start;
}

int
control_client_receive(struct control_client *client)
{
	struct control_buffer *in = &client->in;
	/* Before its handshake, a TCP client gets only the memory that the handshake needs. */
	const size_t chunk = client->tcp && !client->greeted ? CONTROL_HELLO_MAX : READ_CHUNK;
	ssize_t got;

	if (buffer_reserve(in, chunk) != 0)
		return -ENOMEM;
	got = stream_receive(&client->stream, in->data + in->end, chunk);
	if (got < 0)
		return got == -EAGAIN ? 0 : (int)got;
	if (got == 0) {
		client->ended = true;
		return 0;
	}
	in->end += (size_t)got;
	if (in->end - in->start > control_client_line_max(client) &&
	    !control_client_has_line(client))
		return -EMSGSIZE;
	return 0;
}

const char *
control_client_line(struct control_client *client, size_t *len)
{
	const char *line = client->in.data + client->in.start;

	if (!control_client_has_line(client))
		return NULL;
	*len = client->scanned;
	client->in.start += client->scanned + 1;
	client->scanned = 0;
	/* The memory is freed by control_client_rest: the caller still reads the line. */
	return line;
}

void
control_client_rest(struct control_client *client)
{
	buffer_rest(&client->in);
}

int
control_client_flush(struct control_client *client)
{
	struct control_buffer *out = &client->out;

	while (out->end > out->start) {
		ssize_t sent = stream_send(&client->stream, out->data + out->start,
					   out->end - out->start);

		if (sent == -EAGAIN) {
			if (client->deadline_ms == 0)
				client->deadline_ms = clock_ms() + CONTROL_STALL_MS;
			return 0;
		}
		if (sent < 0)
			return (int)sent;
		out->start += (size_t)sent;
		buffer_rest(out);
		if (client->greeted)
			client->deadline_ms = 0;
	}
	return 0;
}

int
control_client_send(struct control_client *client, const json_t *message)
{
	struct control_buffer *out = &client->out;
	char *text = message == NULL ? NULL
				     : json_dumps(message, JSON_COMPACT | JSON_REAL_PRECISION(15));
	size_t len = text == NULL ? 0 : strlen(text);
	int ret = -ENOMEM;

	/* A client that does not read gets no more answers and events. */
	if (out->end - out->start > CONTROL_ANSWER_MAX) {
		ret = -ENOBUFS;
	} else if (text != NULL && buffer_reserve(out, len + 1) == 0) {
		memcpy(out->data + out->end, text, len);
		out->data[out->end + len] = '\n';
		out->end += len + 1;
		ret = control_client_flush(client);
	}
	free(text);
	return ret;
}
