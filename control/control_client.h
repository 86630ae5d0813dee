/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One end of a control connection: non-blocking, with bounded buffers in both directions, split
 * into lines. The control socket has one for each client; a manager has one for each switch, whose
 * client it is. Main thread only.
 */
#ifndef FANIN_CONTROL_CLIENT_H
#define FANIN_CONTROL_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "control/control.h"
#include "control/guard.h"
#include "control/secret.h"
#include "control/stream.h"

#define CONTROL_HELLO_MAX ((size_t)4096) /* bytes of a handshake over TCP */
/* Bytes of an answer: a MAC table of a million entries. */
#define CONTROL_ANSWER_MAX ((size_t)64 << 20)
#define CONTROL_HELLO_MS 10000 /* for the handshake */
#define CONTROL_STALL_MS 3000  /* for reading any part of the waiting answers */
#define CONTROL_SPENT_MS 250

struct control_buffer {
	char *data;
	size_t start; /* of unread data */
	size_t end;
	size_t size;
};

/* State shared by all clients of a daemon. */
struct control_service {
	struct control_options options;
	struct control_counters counters;
	char token[SECRET_SIZE]; /* required of TCP clients; empty: none */
	struct guard guard;
	/* Returns how many refusals to a source are delayed. NULL: none are delayed. */
	unsigned int (*count_held)(const struct control_service *service,
				   const struct guard_source *source);
};

struct control_client {
	struct stream stream; /* fd -1: unused */
	struct control_service *service;
	void *data;      /* owned by the daemon */
	uint64_t number; /* number of the connection; the oldest has the lowest */
	bool tcp;
	uid_t uid;                  /* of a Unix client */
	struct guard_source source; /* of a TCP client */
	bool greeted;               /* the handshake succeeded */
	int64_t packet_version;     /* of a host, from its handshake; 0: not given */
	bool ended;                 /* the client has sent its end of stream */
	bool closing;               /* close once the answers are sent */
	bool lost;                  /* close at once */
	int ended_by;               /* -errno that ended the connection; 0: none */
	uint64_t deadline_ms;       /* when to close the connection; 0: never */
	/*
	 * when to refuse the client's token; the client gets no answer before. 0: the token is not
	 * refused
	 */
	uint64_t refuse_ms;
	uint64_t since_ms; /* when it connected */
	uint64_t heard_ms; /* when its last line came */
	bool gave_token;   /* the refused client gave a wrong token rather than none */
	int n_later;       /* requests that are not answered yet */
	uint64_t spent_ns; /* recent time on its requests; halved every CONTROL_SPENT_MS */
	bool served;       /* was served in this round */
	struct control_buffer in;
	struct control_buffer out;
	size_t scanned; /* bytes of `in` known to hold no newline */
};

/* Takes over a connection. */
void control_client_start(struct control_client *client, struct control_service *service,
			  const struct stream *stream, uint64_t now_ms);

/* Returns the length of the longest line that the client may send now, bytes. */
size_t control_client_line_max(const struct control_client *client);

/*
 * Closes the connection, calls the daemon's `closed` if the client has data, and frees the buffers.
 */
void control_client_stop(struct control_client *client);

/*
 * True if requests of this client may be read and run now: all answers have been sent, and the
 * client is neither closing nor about to be refused.
 */
bool control_client_wants_input(const struct control_client *client);

/* True if a whole line has been received and not taken yet. */
bool control_client_has_line(struct control_client *client);

/* True if answers are waiting to be sent. */
bool control_client_has_output(const struct control_client *client);

/*
 * Reads available data once. Returns 0; -EMSGSIZE if a line is too long; or -errno if the
 * connection is lost.
 */
int control_client_receive(struct control_client *client);

/*
 * Takes the next whole line, without its newline. Valid until the next call for this client.
 * Returns NULL if there is none.
 */
const char *control_client_line(struct control_client *client, size_t *len);

/* Frees the memory of lines that have been taken, which must not be used any more. */
void control_client_rest(struct control_client *client);

/*
 * Queues a message as one line and sends as much as possible. message: NULL if it could not be
 * built. Returns 0, or -errno if the connection is lost.
 */
int control_client_send(struct control_client *client, const json_t *message);

/*
 * Sends queued answers, as much as possible. The time to read the rest counts from now, since
 * making a long answer takes a while. Returns 0, or -errno if the connection is lost.
 */
int control_client_flush(struct control_client *client);

/*
 * Runs one request line and queues its answer (control/control_request.c). Returns 0, or -errno if
 * the connection is lost.
 */
int control_request(struct control_client *client, const char *line, size_t len, uint64_t now_ms);

/* Refuses a client whose token was wrong. Returns 0, or -errno if the connection is lost. */
int control_refuse_token(struct control_client *client, uint64_t now_ms);

/* Returns the daemon's greeting: a new reference. */
json_t *control_greeting(const struct control_service *service);

/*
 * Returns an answer that reports an error: a new reference, or NULL without memory. id: borrowed;
 * NULL if unknown.
 */
json_t *control_error_answer(json_t *id, const struct control_error *error);

#endif
