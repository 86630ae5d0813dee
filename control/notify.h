/* SPDX-License-Identifier: BSD-3-Clause */
/* What a daemon tells the service manager that started it, by the protocol of sd_notify(3). Any thread. */
#ifndef FANIN_CONTROL_NOTIFY_H
#define FANIN_CONTROL_NOTIFY_H

/*
 * Sends a line like "READY=1" to the socket that NOTIFY_SOCKET names. Without that nobody wants to know, and nothing happens.
 * Returns 0, or -errno if it could not be sent.
 */
int notify_service(const char *state);

#endif
