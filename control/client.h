/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The client's side of the control protocol (control/control.h is the server's): connects, shakes
 * hands, sends a request and waits for the answer, for CLIENT_TIMEOUT_MS at most. Blocking; one
 * thread at a time.
 */
#ifndef FANIN_CONTROL_CLIENT_SIDE_H
#define FANIN_CONTROL_CLIENT_SIDE_H

#include <stdbool.h>

#include <jansson.h>

#define CLIENT_PROTOCOL 1
#define CLIENT_MANAGER_PORT 21932
#define CLIENT_TIMEOUT_MS 5000
#define CLIENT_ERROR_LEN 1024

struct client;

/* Which server to connect to, and how. */
struct client_options {
	const char *at; /* path of a Unix socket, or HOST:PORT without '/'; the port is optional for
			   a manager */
	bool manager;   /* true: a manager, which waits for the handshake; false: a switch, which
			   greets first */
	const char *token_file;  /* for TCP; NULL: the token is in FANIN_TOKEN, or there is none */
	const char *ca;          /* TLS with a server certificate of this CA; NULL: no TLS */
	const char *certificate; /* own certificate, with key, if the server requires one; NULL:
				    none */
	const char *key;
};

/*
 * Connects to a switch or a manager and shakes hands.
 *
 * error: CLIENT_ERROR_LEN bytes, one line on failure. Returns 0 and sets *client, or -errno.
 */
int client_open(const struct client_options *options, struct client **client, char *error);

/*
 * Runs one command.
 *
 * args: a reference that the call takes; NULL for none. result: set on success to a new reference.
 * error: CLIENT_ERROR_LEN bytes; "CODE: message" if the server refused.
 * Returns 0; -EREMOTEIO if the server answered with an error; or -errno, after which only
 * client_close may follow.
 */
int client_call(struct client *client, const char *command, json_t *args, json_t **result,
		char *error);

/* Returns the server's greeting: version, name. Borrowed until the client is closed. */
const json_t *client_greeting(const struct client *client);

/* Closes the connection. client may be NULL. */
void client_close(struct client *client);

#endif
