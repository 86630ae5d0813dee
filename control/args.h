/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The arguments of a control command: each helper checks one of them, and describes in the
 * command's error what was found and what is expected. For the command functions of a control table
 * (control/control.h); no state.
 *
 * All helpers return 0, or -EINVAL with *error filled. An absent argument leaves *value unchanged
 * and sets *present to false; without present (NULL), the argument is required. The _at variants
 * read from an object inside of the arguments; `where` is the object's path for messages, like
 * "args.members[0]", and empty at the top of a file.
 */
#ifndef FANIN_CONTROL_ARGS_H
#define FANIN_CONTROL_ARGS_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "control/control.h"

/*
 * Fails on an argument that is not one of the names. names: ends with NULL; NULL itself if the
 * command takes no arguments.
 */
int args_check_known_at(const char *where, const json_t *object, const char *const *names,
			struct control_error *error);

/* An integer from min to max. */
int args_integer_at(const char *where, const json_t *object, const char *key, int64_t min,
		    int64_t max, int64_t *value, bool *present, struct control_error *error);

/* true or false. */
int args_boolean_at(const char *where, const json_t *object, const char *key, bool *value,
		    bool *present, struct control_error *error);

/* A string of 1 to max_len bytes; borrowed from the object. */
int args_string_at(const char *where, const json_t *object, const char *key, size_t max_len,
		   const char **value, bool *present, struct control_error *error);

/* A string of 1 to max_len letters, digits, dots, underscores and hyphens; borrowed. */
int args_name_at(const char *where, const json_t *object, const char *key, size_t max_len,
		 const char **value, bool *present, struct control_error *error);

/* A string of "0x" and 1 to 16 hexadecimal digits. */
int args_hex64_at(const char *where, const json_t *object, const char *key, uint64_t *value,
		  bool *present, struct control_error *error);

/* A string that is a unicast IPv4 address; network order. */
int args_ipv4_at(const char *where, const json_t *object, const char *key, uint32_t *value_be,
		 bool *present, struct control_error *error);

/* An array of min to max objects; borrowed. */
int args_objects_at(const char *where, const json_t *object, const char *key, size_t min,
		    size_t max, const json_t **value, bool *present, struct control_error *error);

/*
 * args_check_known(args, error, "id", "members"): checks against the names that the command takes.
 */
#define args_check_known(args, error, ...)                                                         \
	args_check_known_at("args", (args),                                                        \
			    (const char *const[]){ __VA_ARGS__ __VA_OPT__(, ) NULL }, (error))

static inline int
args_integer(const json_t *args, const char *key, int64_t min, int64_t max, int64_t *value,
	     bool *present, struct control_error *error)
{
	return args_integer_at("args", args, key, min, max, value, present, error);
}

static inline int
args_boolean(const json_t *args, const char *key, bool *value, bool *present,
	     struct control_error *error)
{
	return args_boolean_at("args", args, key, value, present, error);
}

static inline int
args_string(const json_t *args, const char *key, size_t max_len, const char **value, bool *present,
	    struct control_error *error)
{
	return args_string_at("args", args, key, max_len, value, present, error);
}

static inline int
args_name(const json_t *args, const char *key, size_t max_len, const char **value, bool *present,
	  struct control_error *error)
{
	return args_name_at("args", args, key, max_len, value, present, error);
}

static inline int
args_hex64(const json_t *args, const char *key, uint64_t *value, bool *present,
	   struct control_error *error)
{
	return args_hex64_at("args", args, key, value, present, error);
}

static inline int
args_ipv4(const json_t *args, const char *key, uint32_t *value_be, bool *present,
	  struct control_error *error)
{
	return args_ipv4_at("args", args, key, value_be, present, error);
}

static inline int
args_objects(const json_t *args, const char *key, size_t min, size_t max, const json_t **value,
	     bool *present, struct control_error *error)
{
	return args_objects_at("args", args, key, min, max, value, present, error);
}

#endif
