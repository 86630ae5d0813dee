/* SPDX-License-Identifier: BSD-3-Clause */
/* One descriptor in place of several, for control_serve to wait for. Any thread. */
#ifndef FANIN_CONTROL_WAKE_H
#define FANIN_CONTROL_WAKE_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Opens a descriptor that is readable if one of these is, of which some may be -1. Returns it, the
 * caller's, or -errno.
 */
int wake_fd_open(const int *fds, size_t n);

/* Returns whether there is something to read now. */
bool wake_is_readable(int fd);

#endif
