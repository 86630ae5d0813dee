/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The client's side of the control protocol (control/control.h is the switch's): connects, shakes hands, asks and waits for
 * the answer, never longer than CLIENT_TIMEOUT_MS. Blocking; one thread at a time.
 */
#ifndef FANIN_TOOLS_CLIENT_H
#define FANIN_TOOLS_CLIENT_H

#include <jansson.h>

#define CLIENT_PROTOCOL 1
#define CLIENT_TIMEOUT_MS 5000
#define CLIENT_ERROR_LEN 1024

struct client;

/*
 * Connects to a switch and shakes hands.
 *
 * error: CLIENT_ERROR_LEN bytes, one line on failure. Returns 0 and sets *client, or -errno.
 */
int client_open(const char *path, struct client **client, char *error);

/*
 * Runs one command.
 *
 * args: a reference that the call takes; NULL for none. result: set on success to a new reference.
 * error: CLIENT_ERROR_LEN bytes; "CODE: message" if the switch refused.
 * Returns 0; -EREMOTEIO if the switch answered with an error; or -errno, after which only client_close may follow.
 */
int client_call(struct client *client, const char *command, json_t *args, json_t **result,
		char *error);

/* What the switch said of itself: version, name. Borrowed, as long as the client is open. */
const json_t *client_greeting(const struct client *client);

/* client may be NULL. */
void client_close(struct client *client);

#endif
