/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A non-blocking stream connection, plain or under TLS. One thread.
 */
#ifndef FANIN_CONTROL_STREAM_H
#define FANIN_CONTROL_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct ssl_st;
struct tls;

struct stream {
	int fd;
	struct ssl_st *ssl;   /* NULL: plain */
	short receive_events; /* poll events to wait for before receiving */
	short send_events;    /* poll events to wait for before sending */
};

/*
 * Takes over a non-blocking connection, as the side that accepted it. tls: NULL for a plain one.
 * Returns 0; or -ENOMEM, and the connection is still the caller's.
 */
int stream_accept(struct stream *stream, int fd, struct tls *tls);

/*
 * The same for the side that connected. host: the name that the other side's certificate must have.
 */
int stream_connect(struct stream *stream, int fd, struct tls *tls, const char *host);

/*
 * Receives available data, at most size bytes. Returns the number of bytes; 0 at the end; -EAGAIN
 * if there is none: wait for receive_events; other -errno if the connection is lost, -EPROTO if TLS
 * failed.
 */
ssize_t stream_receive(struct stream *stream, void *data, size_t size);

/*
 * Sends as much as possible. Returns the number of bytes, -EAGAIN to wait for send_events, or
 * -errno.
 */
ssize_t stream_send(struct stream *stream, const void *data, size_t size);

/* True if there is buffered data to receive, which poll does not see. */
bool stream_has_pending(const struct stream *stream);

/* Returns the reason of -EPROTO, one line, in a static buffer. */
const char *stream_tls_error(const struct stream *stream);

/* Closes the connection. */
void stream_stop(struct stream *stream);

#endif
