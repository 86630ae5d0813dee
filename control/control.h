/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The control socket: a Unix stream socket that speaks one JSON object per line, with a version
 * handshake. Knows sockets and JSON only; what the commands do stands in a table that the daemon
 * gives it. Runs on the main thread.
 */
#ifndef FANIN_CONTROL_H
#define FANIN_CONTROL_H

#include <jansson.h>

#define CONTROL_PROTOCOL 1
#define CONTROL_MESSAGE_LEN 512

/* Why a command failed. */
struct control_error {
	const char *code; /* static: "invalid", "not_found", "exists", "no_room", "unsupported", "internal" */
	char message[CONTROL_MESSAGE_LEN]; /* one sentence with what was found and what is expected */
};

struct control_command {
	const char *name; /* "jobs.create" */
	/*
	 * args: a borrowed object, empty if the client gave none. Returns a new reference to the
	 * result object, or NULL with *error filled by control_fail. user: as given to
	 * control_open.
	 */
	json_t *(*run)(void *user, const json_t *args, struct control_error *error);
};

struct control;

/*
 * Fills an error; always returns NULL, so that a command can `return control_fail(...)`.
 */
json_t *control_fail(struct control_error *error, const char *code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/*
 * Binds and listens, mode 0660. A socket file that no process listens on is replaced; one that is
 * in use is an error.
 *
 * commands: ends with a NULL name; borrowed, as are switch_name and user, until control_close.
 * error: CONTROL_MESSAGE_LEN bytes. Returns 0 and sets *control, or -errno with *error filled.
 */
int control_open(const char *path, const char *switch_name, const struct control_command *commands,
		 void *user, struct control **control, char *error);

/*
 * Serves clients until wake_fd becomes readable or timeout_ms have passed. Clients never block the caller: a line
 * longer than 1 MiB, too many clients (32) or one that does not read its answers is closed.
 *
 * Returns 1 if wake_fd is readable, 0 after the timeout, -errno on failure.
 */
int control_serve(struct control *control, int wake_fd, int timeout_ms);

/* Closes all clients and removes the socket file. control may be NULL. */
void control_close(struct control *control);

#endif
