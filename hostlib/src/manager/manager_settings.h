/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Finds the network manager's address and how to connect to it. The caller's options take
 * precedence over the environment, and the environment over the file. Also has fanin_setting of the
 * public interface. Reads files; keeps no state.
 */
#ifndef FANIN_HOSTLIB_MANAGER_SETTINGS_H
#define FANIN_HOSTLIB_MANAGER_SETTINGS_H

#include <limits.h>
#include <netinet/in.h>
#include <stdbool.h>

#include "hostlib/src/base/error.h"

#define FANIN_MANAGER_PORT 21932
#define FANIN_MANAGER_FILE "/etc/fanin/fanin.conf"
#define FANIN_MANAGER_ADDRESS_LEN 256
#define FANIN_MANAGER_TOKEN_LEN 512

struct fanin_manager_settings {
	char address[FANIN_MANAGER_ADDRESS_LEN + 8]; /* "10.0.0.1:21932" */
	char host[FANIN_MANAGER_ADDRESS_LEN];        /* the same without the port */
	struct sockaddr_in socket;                   /* the same as numbers */
	char token[FANIN_MANAGER_TOKEN_LEN];         /* "": none */
	bool tls;
	char ca[PATH_MAX]; /* file of certificates that are trusted; "": the system's */
};

/*
 * Finds all settings; resolves the manager's name, which may take some time.
 *
 * manager, token: from the caller, or NULL. settings: set on success only. Returns FANIN_OK or
 * FANIN_ERR_INVALID with what was found and what is expected.
 */
int fanin_manager_settings_find(const char *manager, const char *token,
				struct fanin_manager_settings *settings, struct fanin_error *error);

/* Parses "10.0.0.1:4711"; address and port must be numeric. Returns false for any other text. */
bool fanin_address_parse(const char *text, struct sockaddr_in *address);

#endif
