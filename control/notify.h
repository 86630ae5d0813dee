/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Notifications to the service manager that started a daemon, by the protocol of sd_notify(3). Any
 * thread.
 */
#ifndef FANIN_CONTROL_NOTIFY_H
#define FANIN_CONTROL_NOTIFY_H

/*
 * Sends a line like "READY=1" to the socket that NOTIFY_SOCKET names. Does nothing if the variable
 * is not set.
 * Returns 0, or -errno if the line could not be sent.
 */
int notify_service(const char *state);

#endif
