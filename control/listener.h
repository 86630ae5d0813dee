/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A listening socket: a Unix socket with a file of its own, or TCP. No thread safety.
 */
#ifndef FANIN_CONTROL_LISTENER_H
#define FANIN_CONTROL_LISTENER_H

#include <stddef.h>
#include <sys/types.h>
#include <sys/un.h>

#include "control/address.h"

#define LISTENER_ERROR_LEN 512

struct listener {
	int fd;
	struct sockaddr_un address; /* has no path for TCP */
	dev_t device; /* of the socket file, so that only this process's file is removed */
	ino_t inode;
};

/*
 * Binds and listens without blocking, mode 0660; creates the last directory of the path. A socket
 * file that no process listens on is replaced; one that is in use is an error.
 *
 * what: precedes the path in errors. type: SOCK_STREAM or SOCK_SEQPACKET. error: LISTENER_ERROR_LEN
 * bytes.
 * Returns 0, or -errno with the error filled in and nothing left open.
 */
int listener_open(struct listener *listener, const char *what, const char *path, int type,
		  int backlog, char *error);

/*
 * Binds and listens on a TCP address without blocking. The same errors.
 */
int listener_open_tcp(struct listener *listener, const char *what, const char *text,
		      const struct address *address, int backlog, char *error);

/*
 * Checks that a TCP address is one of this machine's and may be listened on. Does not check that
 * the port is free, since the daemon may be running. The same errors.
 */
int listener_check_tcp(const char *what, const char *text, const struct address *address,
		       char *error);

/* Closes the listener and removes its file, if it has one. */
void listener_close(struct listener *listener);

#endif
