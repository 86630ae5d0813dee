/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A connection that carries lines of text, by TCP or by TLS over it. Nothing blocks: all work is
 * done in fanin_link_poll. One thread at a time.
 */
#ifndef FANIN_HOSTLIB_MANAGER_LINK_H
#define FANIN_HOSTLIB_MANAGER_LINK_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>

#include "hostlib/src/base/error.h"
#include "manager_settings.h"

struct fanin_link;

/*
 * Begins to connect. Lines may be sent at once; they leave once the connection is up.
 *
 * settings: constant as long as the link is open. link: set on success only.
 * Returns FANIN_OK, FANIN_ERR_MANAGER or FANIN_ERR_NO_MEMORY.
 */
int fanin_link_open(const struct fanin_manager_settings *settings, struct fanin_link **link,
		    struct fanin_error *error);

/* Closes the connection; unsent data is lost. link may be NULL. */
void fanin_link_close(struct fanin_link *link);

/*
 * Connects, sends and receives as far as possible without blocking.
 *
 * Returns FANIN_OK, or FANIN_ERR_MANAGER or FANIN_ERR_NO_MEMORY once the connection has failed or
 * ended. Lines received before can still be read.
 */
int fanin_link_poll(struct fanin_link *link, struct fanin_error *error);

/*
 * Returns the next line, without its newline; NULL: there is none. Valid until the next
 * fanin_link_poll.
 */
const char *fanin_link_line(struct fanin_link *link);

/* Queues a line, given without its newline. Returns FANIN_OK or FANIN_ERR_NO_MEMORY. */
int fanin_link_send(struct fanin_link *link, const char *line);

/* True if everything has been handed to the kernel. */
bool fanin_link_flushed(const struct fanin_link *link);

/* True if the manager has closed the connection. */
bool fanin_link_was_closed(const struct fanin_link *link);

/* Returns the descriptor and the events to wait for with poll(). */
struct pollfd fanin_link_pollfd(const struct fanin_link *link);

#endif
