/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Checked access to the arguments of a control command. Called by command functions, on the main
 * thread.
 */
#include "control/args.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "control/text.h"

/* Returns the separator between a path and a key. */
static const char *
dot(const char *where)
{
	return where[0] == '\0' ? "" : ".";
}

int
args_check_known_at(const char *where, const json_t *object, const char *const *names,
		    struct control_error *error)
{
	char shown[TEXT_VALUE_LEN];
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)(uintptr_t)object, key, value) {
		struct text_guess guess = { .word = key };
		bool known = false;

		for (size_t i = 0; names != NULL && names[i] != NULL; i++) {
			known = known || strcmp(names[i], key) == 0;
			text_guess_offer(&guess, names[i]);
		}
		if (known)
			continue;
		text_key(key, shown);
		if (guess.best != NULL)
			control_fail(error, "invalid",
				     "%s%s%s: unknown argument (did you mean \"%s\"?)", where,
				     dot(where), shown, guess.best);
		else
			control_fail(error, "invalid", "%s%s%s: unknown argument", where,
				     dot(where), shown);
		return -EINVAL;
	}
	return 0;
}

/*
 * Looks an argument up. Returns 1 with *value set if it is present, 0 if it is optional and absent,
 * -EINVAL if it is required and absent.
 */
static int
look_up(const char *where, const json_t *object, const char *key, const json_t **value,
	bool *present, const char *expected, struct control_error *error)
{
	*value = json_object_get(object, key);
	if (present != NULL)
		*present = *value != NULL;
	if (*value != NULL)
		return 1;
	if (present != NULL)
		return 0;
	control_fail(error, "invalid", "%s%s%s: missing, expected %s", where, dot(where), key,
		     expected);
	return -EINVAL;
}

static int
fail_value(const char *where, const char *key, const json_t *value, const char *expected,
	   struct control_error *error)
{
	char found[TEXT_VALUE_LEN];

	control_fail(error, "invalid", "%s%s%s: found %s, expected %s", where, dot(where), key,
		     text_describe(value, found), expected);
	return -EINVAL;
}

int
args_integer_at(const char *where, const json_t *object, const char *key, int64_t min, int64_t max,
		int64_t *value, bool *present, struct control_error *error)
{
	char expected[96];
	const json_t *found;
	int ret;

	snprintf(expected, sizeof(expected), "an integer from %" PRId64 " to %" PRId64, min, max);
	ret = look_up(where, object, key, &found, present, expected, error);
	if (ret <= 0)
		return ret;
	if (!json_is_integer(found) || json_integer_value(found) < min ||
	    json_integer_value(found) > max)
		return fail_value(where, key, found, expected, error);
	*value = json_integer_value(found);
	return 0;
}

int
args_boolean_at(const char *where, const json_t *object, const char *key, bool *value,
		bool *present, struct control_error *error)
{
	static const char expected[] = "true or false";
	const json_t *found;
	int ret = look_up(where, object, key, &found, present, expected, error);

	if (ret <= 0)
		return ret;
	if (!json_is_boolean(found))
		return fail_value(where, key, found, expected, error);
	*value = json_is_true(found);
	return 0;
}

int
args_string_at(const char *where, const json_t *object, const char *key, size_t max_len,
	       const char **value, bool *present, struct control_error *error)
{
	char expected[64];
	const json_t *found;
	int ret;

	snprintf(expected, sizeof(expected), "a string of 1 to %zu bytes", max_len);
	ret = look_up(where, object, key, &found, present, expected, error);
	if (ret <= 0)
		return ret;
	if (!json_is_string(found) || json_string_length(found) == 0 ||
	    json_string_length(found) > max_len)
		return fail_value(where, key, found, expected, error);
	*value = json_string_value(found);
	return 0;
}

int
args_name_at(const char *where, const json_t *object, const char *key, size_t max_len,
	     const char **value, bool *present, struct control_error *error)
{
	char expected[64];
	const json_t *found;
	const char *text;
	int ret;

	snprintf(expected, sizeof(expected), "1 to %zu letters, digits, '.', '_' or '-'", max_len);
	ret = look_up(where, object, key, &found, present, expected, error);
	if (ret <= 0)
		return ret;
	text = json_string_value(found);
	if (text == NULL || text[0] == '\0' || json_string_length(found) > max_len ||
	    strspn(text, TEXT_NAME_CHARACTERS) != json_string_length(found))
		return fail_value(where, key, found, expected, error);
	*value = text;
	return 0;
}

int
args_hex64_at(const char *where, const json_t *object, const char *key, uint64_t *value,
	      bool *present, struct control_error *error)
{
	static const char expected[] = "a string of \"0x\" and 1 to 16 hexadecimal digits";
	const json_t *found;
	const char *digits;
	size_t len;
	int ret;

	ret = look_up(where, object, key, &found, present, expected, error);
	if (ret <= 0)
		return ret;
	digits = json_string_value(found);
	if (digits == NULL || digits[0] != '0' || (digits[1] != 'x' && digits[1] != 'X'))
		return fail_value(where, key, found, expected, error);
	digits += 2;
	len = strspn(digits, "0123456789abcdefABCDEF");
	if (len == 0 || len > 16 || digits[len] != '\0')
		return fail_value(where, key, found, expected, error);
	*value = strtoull(digits, NULL, 16);
	return 0;
}

int
args_ipv4_at(const char *where, const json_t *object, const char *key, uint32_t *value_be,
	     bool *present, struct control_error *error)
{
	static const char expected[] = "a unicast IPv4 address like \"10.77.0.1\"";
	const json_t *found;
	int ret;

	ret = look_up(where, object, key, &found, present, expected, error);
	if (ret <= 0)
		return ret;
	if (!json_is_string(found) || text_unicast_ipv4(json_string_value(found), value_be) != 0)
		return fail_value(where, key, found, expected, error);
	return 0;
}

int
args_objects_at(const char *where, const json_t *object, const char *key, size_t min, size_t max,
		const json_t **value, bool *present, struct control_error *error)
{
	char expected[64];
	const json_t *found;
	const json_t *item;
	char path[128];
	size_t i;
	int ret;

	snprintf(expected, sizeof(expected), "an array of %zu to %zu objects", min, max);
	ret = look_up(where, object, key, &found, present, expected, error);
	if (ret <= 0)
		return ret;
	if (!json_is_array(found))
		return fail_value(where, key, found, expected, error);
	if (json_array_size(found) < min || json_array_size(found) > max) {
		control_fail(error, "invalid", "%s%s%s: found %zu entries, expected %s", where,
			     dot(where), key, json_array_size(found), expected);
		return -EINVAL;
	}
	json_array_foreach(found, i, item) {
		if (json_is_object(item))
			continue;
		snprintf(path, sizeof(path), "%s[%zu]", key, i);
		return fail_value(where, path, item, "an object", error);
	}
	*value = found;
	return 0;
}
