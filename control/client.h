/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The client's side of the control protocol (control/control.h is the switch's): connects, shakes hands, asks and waits for
 * the answer, never longer than CLIENT_TIMEOUT_MS. Blocking; one thread at a time.
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

/* Whom to talk to, and how. */
struct client_options {
	const char *at; /* path of a Unix socket; or HOST:PORT, which has no '/'; a manager's port may be left out */
	bool manager; /* it waits for the handshake; else it is a switch, which greets first */
	const char *token_file;  /* for TCP; NULL: the token is in FANIN_TOKEN, or there is none */
	const char *ca;          /* TLS with a server of this CA's; NULL: plain */
	const char *certificate; /* for a server that asks for one, with key; NULL: none */
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
 * error: CLIENT_ERROR_LEN bytes; "CODE: message" if it refused.
 * Returns 0; -EREMOTEIO if it answered with an error; or -errno, after which only client_close may follow.
 */
int client_call(struct client *client, const char *command, json_t *args, json_t **result,
		char *error);

/* What the other side said of itself: version, name. Borrowed, as long as the client is open. */
const json_t *client_greeting(const struct client *client);

/* client may be NULL. */
void client_close(struct client *client);

#endif
