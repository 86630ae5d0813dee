/* SPDX-License-Identifier: BSD-3-Clause */
/* See settings.h. */
#include "control/settings.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/args.h"
#include "control/text.h"

/* Far above any real file; keeps a wrong path from being read without end. */
#define LONGEST_FILE ((size_t)4 << 20)

int
settings_fail_at(const char *source, struct control_error *error)
{
	char message[CONTROL_MESSAGE_LEN];

	memcpy(message, error->message, sizeof(message));
	snprintf(error->message, sizeof(error->message), "%.120s: %.380s", source, message);
	text_make_printable(error->message);
	return -EINVAL;
}

json_t *
settings_load(const char *path, struct control_error *error)
{
	FILE *file = fopen(path, "re");
	json_error_t json_error;
	json_t *root;
	char *text;
	size_t len;

	if (file == NULL)
		return control_fail(error, "not_found", "%s: cannot open: %s", path,
				    strerror(errno));
	text = malloc(LONGEST_FILE);
	len = text == NULL ? 0 : fread(text, 1, LONGEST_FILE, file);
	if (text == NULL || ferror(file) || len == LONGEST_FILE) {
		control_fail(error, "invalid", "%s: cannot read: %s", path,
			     len == LONGEST_FILE ? "longer than 4 MiB" : strerror(errno));
		free(text);
		fclose(file);
		return NULL;
	}
	fclose(file);
	root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &json_error);
	free(text);
	if (root == NULL)
		return control_fail(error, "invalid", "%s: line %d, column %d: %s", path,
				    json_error.line, json_error.column, json_error.text);
	if (json_is_object(root))
		return root;
	json_decref(root);
	return control_fail(error, "invalid", "%s: found an array, expected an object", path);
}

int
settings_object(const char *where, const json_t *parent, const char *key, const char *const *known,
		const json_t **object, struct control_error *error)
{
	*object = json_object_get(parent, key);
	if (*object == NULL)
		return 0;
	if (!json_is_object(*object)) {
		control_fail(error, "invalid", "%s: expected an object", where);
		return -EINVAL;
	}
	return args_check_known_at(where, *object, known, error);
}

int
settings_tls(const char *where, const json_t *parent, struct control_tcp *tcp,
	     struct control_error *error)
{
	static const char *const known[] = { "certificate", "key", "ca", NULL };
	const json_t *tls;
	bool present;

	if (settings_object(where, parent, "tls", known, &tls, error) != 0)
		return -EINVAL;
	if (tls == NULL)
		return 0;
	if (args_string_at(where, tls, "certificate", 255, &tcp->certificate, NULL, error) != 0 ||
	    args_string_at(where, tls, "key", 255, &tcp->key, NULL, error) != 0 ||
	    args_string_at(where, tls, "ca", 255, &tcp->ca, &present, error) != 0)
		return -EINVAL;
	return 0;
}
