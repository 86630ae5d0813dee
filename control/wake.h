/* SPDX-License-Identifier: BSD-3-Clause */
/* Combines several descriptors into one, for control_serve to wait for. Any thread. */
#ifndef FANIN_CONTROL_WAKE_H
#define FANIN_CONTROL_WAKE_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Opens a descriptor that is readable if one of several is, some of which may be -1. Returns the
 * descriptor, owned by the caller, or -errno.
 */
int wake_fd_open(const int *fds, size_t n);

/* Returns true if there is something to read now. */
bool wake_is_readable(int fd);

#endif
