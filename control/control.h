/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The control sockets of a daemon: a Unix socket, TCP, or both, with one JSON object per line and a
 * version handshake. Knows sockets and JSON only; the daemon passes a table of commands. Runs on
 * the main thread.
 */
#ifndef FANIN_CONTROL_H
#define FANIN_CONTROL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#define CONTROL_PROTOCOL 1
#define CONTROL_MESSAGE_LEN 512
#define CONTROL_MAX_CLIENTS 32             /* unless the daemon sets another number */
#define CONTROL_LINE_MAX ((size_t)1 << 20) /* bytes of a request without its newline, likewise */

struct control;
struct control_client;

/* Why a command failed. */
struct control_error {
	const char *code; /* static: "invalid", "not_found", "exists", "no_room", "unsupported",
			     "internal" */
	char message[CONTROL_MESSAGE_LEN]; /* one sentence: what was found and what is expected */
};

struct control_command {
	const char *name; /* "jobs.create" */
	/*
	 * args: a borrowed object, empty if the client gave none. Returns a new reference to the
	 * result object, or NULL with *error filled in by control_fail. user: as given to
	 * control_open.
	 */
	json_t *(*run)(void *user, const json_t *args, struct control_error *error);
	/*
	 * Replaces run for commands that need the client's connection. id: of the request,
	 * borrowed, may be NULL. It may also return control_later and answer some time afterwards.
	 */
	json_t *(*run_for)(void *user, struct control_client *client, json_t *id,
			   const json_t *args, struct control_error *error);
};

/* Failed connections and lines, by kind. */
#define CONTROL_COUNTERS(X)                                                                        \
	X(connections, "accepted")                                                                 \
	X(too_many, "refused: as many connections as allowed")                                     \
	X(half_open_dropped, "dropped for a newer one: no handshake yet")                          \
	X(idle_dropped,                                                                            \
	  "dropped for a newer one: it had asked for nothing for a while, or not read")            \
	X(hello_late, "closed: no handshake in time")                                              \
	X(hello_wrong, "closed: the first line is no handshake")                                   \
	X(token_wrong, "closed: wrong token or none")                                              \
	X(token_delayed, "a wrong token that was refused late: many came from its address")        \
	X(token_unanswered, "a wrong token that was not answered: too many refusals waited")       \
	X(line_long, "closed: a line longer than allowed")                                         \
	X(line_wrong, "a line that is no request")                                                 \
	X(command_unknown, "a command that does not exist")                                        \
	X(command_failed, "a command that ended with an error")                                    \
	X(stalled, "closed: answers were not read")

struct control_counters {
#define CONTROL_COUNTER_FIELD(name, text) uint64_t name;
	CONTROL_COUNTERS(CONTROL_COUNTER_FIELD)
#undef CONTROL_COUNTER_FIELD
};

/* A TCP listener; all NULL: none. An empty text counts as NULL. */
struct control_tcp {
	const char *listen;      /* ADDRESS:PORT */
	const char *token_file;  /* contains the token that clients must give */
	const char *certificate; /* for TLS, with key */
	const char *key;
	const char *ca; /* clients need a certificate of this CA */
};

struct control_options {
	const char *service; /* "switch": named in the greeting */
	const char *name;
	const struct control_command *commands; /* ends with a NULL name */
	void *user;                             /* passed to the commands */
	/*
	 * Called when a client with data (control_client_set_data) is gone. The client must not be
	 * used any more. May be NULL.
	 */
	void (*closed)(void *user, struct control_client *client, void *data);
	const char *path; /* of the Unix socket; NULL: none */
	struct control_tcp tcp;
	bool answers_hello; /* true: the greeting answers the client's handshake; false: it is sent
			       first */
	/* version of Fanin's packets in the greeting, if answers_hello; 0: none */
	int packet_version;
	unsigned int max_clients; /* 0: CONTROL_MAX_CLIENTS */
	size_t line_max;          /* 0: CONTROL_LINE_MAX */
};

/*
 * Fills an error; always returns NULL, so that a command can `return control_fail(...)`.
 */
json_t *control_fail(struct control_error *error, const char *code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/*
 * Marks the result of a command that control_answer or control_refuse will answer later. Always
 * NULL.
 */
json_t *control_later(struct control_error *error);

/*
 * Answers a request later. id: of the request, borrowed. result: a reference that the call takes. A
 * connection that has been lost is closed in the next round of control_serve.
 */
void control_answer(struct control_client *client, json_t *id, json_t *result);

/* Refuses a request later, with an error. */
void control_refuse(struct control_client *client, json_t *id, const struct control_error *error);

/* Sends an unsolicited line. message: a reference that the call takes. */
void control_notify(struct control_client *client, json_t *message);

/* Returns the daemon's data of a client; NULL at first. */
void *control_client_data(const struct control_client *client);
void control_client_set_data(struct control_client *client, void *data);

/*
 * Returns the number of a client's connection: above 0, and never reused by this daemon. For late
 * answers to clients without data: a client stays at its address until control_close, and has
 * another number, or none, once the connection is gone.
 */
uint64_t control_client_number(const struct control_client *client);

/* Returns the version of Fanin's packets from a client's handshake; 0: none was given. */
int64_t control_client_packet_version(const struct control_client *client);

/*
 * Within `closed`: true if the connection timed out, false if the other side closed it. After a
 * timeout, the client's machine or the network may be gone while its process lives.
 */
bool control_client_is_silent(const struct control_client *client);

/*
 * Checks the options of a TCP listener without reading files: the address is valid; an address that
 * other machines can reach has a token; certificate and key come together. error:
 * CONTROL_MESSAGE_LEN bytes. Returns 0 or -EINVAL.
 */
int control_tcp_check(const struct control_tcp *tcp, char *error);

/*
 * Checks the rest on this machine: the token file and the TLS files exist and are valid, and the
 * address is one of this machine's. A daemon that already listens there is no error. Call it after
 * control_tcp_check; the same errors, or -errno.
 */
int control_tcp_check_machine(const struct control_tcp *tcp, char *error);

/*
 * Binds and listens; a Unix socket has mode 0660. A socket file that no process listens on is
 * replaced; one that is in use is an error.
 *
 * options: copied; what it points to is borrowed until control_close.
 * error: CONTROL_MESSAGE_LEN bytes. Returns 0 and sets *control, or -errno with *error filled.
 */
int control_open(const struct control_options *options, struct control **control, char *error);

/* Returns the port of the TCP listener, host order; 0 if there is none. */
uint16_t control_tcp_port(const struct control *control);

/*
 * Serves clients until wake_fd becomes readable or timeout_ms have passed. Clients never block the
 * caller: a client is closed if it sends a line longer than allowed, is one too many, or does not
 * read its answers. Of each listener, at most half of the allowed clients may be without a
 * handshake: the oldest of these makes room for a new one. If there is no room otherwise, the Unix
 * client that has requested nothing for the longest time makes room. Each user but root and the
 * daemon's own has at most half of all places, and all these users together three quarters. Clients
 * whose requests take long take turns, after the others.
 *
 * Returns 1 if wake_fd is readable, 0 after the timeout, -errno on failure.
 */
int control_serve(struct control *control, int wake_fd, int timeout_ms);

/* Returns the counters since control_open. */
const struct control_counters *control_counters(const struct control *control);

/* Returns the counters as a new object, by name. */
json_t *control_counters_json(const struct control *control);

/* Closes all clients and removes the socket file. control may be NULL. */
void control_close(struct control *control);

#endif
