/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Notifications to the service manager that started a daemon, by the protocol of sd_notify(3). Any
 * thread.
 */
#ifndef FANIN_CONTROL_NOTIFY_H
#define FANIN_CONTROL_NOTIFY_H

/*
 * Sends a line to the socket that the environment variable NOTIFY_SOCKET names, as sd_notify(3)
 * does. Does nothing if the variable is unset or empty.
 *
 * state: the line, such as "READY=1".
 *
 * Returns 0, or -errno if the line could not be sent.
 */
int notify_service(const char *state);

#endif
