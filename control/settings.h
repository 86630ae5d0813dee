/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Configuration files of daemons, in JSON: reading a file, and the parts that several daemons
 * share. Errors name the file and the place in it. Any thread.
 */
#ifndef FANIN_CONTROL_SETTINGS_H
#define FANIN_CONTROL_SETTINGS_H

#include <jansson.h>

#include "control/control.h"

/*
 * Reads a file with one JSON object, of less than 4 MiB. Returns the caller's reference, or NULL
 * with *error filled.
 */
json_t *settings_load(const char *path, struct control_error *error);

/* Puts the source, such as a file's name, before the error's message. Returns -EINVAL. */
int settings_fail_at(const char *source, struct control_error *error);

/*
 * Finds an object in another one.
 *
 * where: the object's path, for messages. known: the keys that it may have, ending with NULL.
 * object: set to the object, borrowed, or to NULL if it is absent. Returns 0, or -EINVAL with
 * *error filled.
 */
int settings_object(const char *where, const json_t *parent, const char *key,
		    const char *const *known, const json_t **object, struct control_error *error);

/*
 * Reads "tls", an object with certificate, key and ca, if it is there. The strings belong to the
 * parent. Returns like settings_object.
 */
int settings_tls(const char *where, const json_t *parent, struct control_tcp *tcp,
		 struct control_error *error);

#endif
