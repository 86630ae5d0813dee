/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reads the daemon's configuration: walks the JSON text along the table of keys
 * (switch/config/config_keys.c) and fills struct config. No state; any thread may call.
 */
#include "switch/config/config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "switch/config/config_keys.h"
#include "control/text.h"

/* Far above any real file; keeps a wrong path (a log, a device) from being read without end. */
#define LONGEST_FILE (1u << 20)

int
config_fail(const struct config_reader *reader, const char *path, const char *format, ...)
{
	size_t used;
	va_list args;

	used = (size_t)snprintf(reader->error, CONFIG_ERROR_LEN, "%s%s%s%s",
				reader->source == NULL ? "" : reader->source,
				reader->source == NULL ? "" : ": ", path,
				path[0] == '\0' ? "" : ": ");
	if (used < CONFIG_ERROR_LEN) {
		va_start(args, format);
		vsnprintf(reader->error + used, CONFIG_ERROR_LEN - used, format, args);
		va_end(args);
	}
	text_make_printable(reader->error);
	return -EINVAL;
}

static const struct config_key *
find_key(const struct config_key *keys, const char *name)
{
	for (; keys->name != NULL; keys++) {
		if (strcmp(keys->name, name) == 0)
			return keys;
	}
	return NULL;
}

/* Writes "PATH.NAME", or "NAME" at the top level. */
static void
join_path(char *joined, const char *path, const char *name)
{
	snprintf(joined, CONFIG_KEY_PATH_LEN, "%s%s%s", path, path[0] == '\0' ? "" : ".", name);
}

static int
fail_unknown(const struct config_reader *reader, const struct config_key *keys, const char *path,
	     const char *name)
{
	struct text_guess guess = { .word = name };
	char known[CONFIG_ERROR_LEN / 2] = "";
	char joined[CONFIG_KEY_PATH_LEN];
	char shown[TEXT_VALUE_LEN];

	join_path(joined, path, text_key(name, shown));
	for (const struct config_key *key = keys; key->name != NULL; key++) {
		size_t used = strlen(known);

		text_guess_offer(&guess, key->name);
		snprintf(known + used, sizeof(known) - used, "%s%s", used == 0 ? "" : ", ",
			 key->name);
	}
	if (guess.best != NULL)
		return config_fail(reader, joined, "unknown key (did you mean \"%s\"?)",
				   guess.best);
	return config_fail(reader, joined, "unknown key, expected one of %s", known);
}

static int
fail_value(const struct config_reader *reader, const struct config_key *key, const char *path,
	   const json_t *value)
{
	char expected[CONFIG_EXPECTED_LEN];
	char found[TEXT_VALUE_LEN];

	config_value_expected(key, expected);
	if (value == NULL)
		return config_fail(reader, path, "missing, expected %s", expected);
	if (json_is_array(value) && key->type == CONFIG_TYPE_ARRAY)
		return config_fail(reader, path, "found %zu entries, expected %s",
				   json_array_size(value), expected);
	return config_fail(reader, path, "found %s, expected %s", text_describe(value, found),
			   expected);
}

static int read_object(const struct config_reader *reader, const struct config_key *keys,
		       const char *path, const json_t *object, void *fields);

static int
read_array(const struct config_reader *reader, const struct config_key *key, const char *path,
	   const json_t *array, void *fields)
{
	char *item_fields = (char *)fields + key->offset;
	char item_path[CONFIG_KEY_PATH_LEN];
	uint16_t count = 0;
	unsigned int i;
	json_t *item;
	int ret;

	if (array != NULL || key->required) {
		if (!json_is_array(array) || (int64_t)json_array_size(array) < key->minimum ||
		    (int64_t)json_array_size(array) > key->maximum)
			return fail_value(reader, key, path, array);
	}
	json_array_foreach(array, i, item) {
		snprintf(item_path, sizeof(item_path), "%.128s[%u]", path, i);
		ret = read_object(reader, key->keys, item_path, item, item_fields);
		if (ret == 0 && key->finish_item != NULL)
			ret = key->finish_item(reader, item_path, item, item_fields);
		if (ret != 0)
			return ret;
		item_fields += key->item_size;
		count++;
	}
	memcpy((char *)fields + key->count_offset, &count, sizeof(count));
	return 0;
}

/*
 * object: NULL stands for an empty one, so that the defaults are stored and a required key inside
 * is reported.
 */
static int
read_object(const struct config_reader *reader, const struct config_key *keys, const char *path,
	    const json_t *object, void *fields)
{
	char found[TEXT_VALUE_LEN];
	char key_path[CONFIG_KEY_PATH_LEN];
	const char *name;
	json_t *value;
	int ret;

	if (object != NULL && !json_is_object(object))
		return config_fail(reader, path, "found %s, expected an object",
				   text_describe(object, found));
	json_object_foreach((json_t *)(uintptr_t)object, name, value) {
		if (find_key(keys, name) == NULL)
			return fail_unknown(reader, keys, path, name);
	}
	for (const struct config_key *key = keys; key->name != NULL; key++) {
		value = json_object_get(object, key->name);
		join_path(key_path, path, key->name);
		if (key->type == CONFIG_TYPE_OBJECT) {
			ret = read_object(reader, key->keys, key_path, value, fields);
		} else if (key->type == CONFIG_TYPE_ARRAY) {
			ret = read_array(reader, key, key_path, value, fields);
		} else {
			ret = value == NULL && key->required
				      ? -EINVAL
				      : config_value_store(key, value, fields);
			if (ret != 0)
				ret = fail_value(reader, key, key_path, value);
		}
		if (ret != 0)
			return ret;
	}
	return 0;
}

/*
 * Configures one worker on the last CPU that this process may use: the first CPUs serve most
 * interrupts.
 */
static void
default_workers(struct config *config)
{
	cpu_set_t cpus;
	uint16_t last = 0;

	CPU_ZERO(&cpus);
	if (sched_getaffinity(0, sizeof(cpus), &cpus) == 0) {
		for (uint16_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
			if (CPU_ISSET(cpu, &cpus))
				last = cpu;
		}
	}
	config->workers[0].lcore = last < 128 ? last : 0;
	config->workers[0].cpu = last;
	config->n_workers = 1;
}

int
config_parse(const char *text, size_t len, const char *source, struct config *config, char *error)
{
	const struct config_reader reader = { .source = source, .error = error };
	struct config parsed = { 0 };
	json_error_t json_error;
	char where[64];
	json_t *root;
	int ret;

	root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &json_error);
	if (root == NULL) {
		snprintf(where, sizeof(where), "line %d, column %d", json_error.line,
			 json_error.column);
		return config_fail(&reader, where, "%s", json_error.text);
	}
	ret = read_object(&reader, config_keys, "", root, &parsed);
	json_decref(root);
	if (ret != 0)
		return ret;
	if (parsed.n_workers == 0)
		default_workers(&parsed);
	ret = config_check_together(&reader, &parsed);
	if (ret == 0)
		ret = config_finish_routes(&reader, &parsed);
	if (ret != 0)
		return ret;
	*config = parsed;
	return 0;
}

static int
read_file(int fd, char *buffer, size_t size, size_t *len)
{
	size_t used = 0;

	for (;;) {
		ssize_t got = read(fd, buffer + used, size - used);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (got == 0)
			break;
		used += (size_t)got;
		if (used == size)
			return -EFBIG;
	}
	*len = used;
	return 0;
}

int
config_load(const char *path, struct config *config, char *error)
{
	const struct config_reader reader = { .source = path, .error = error };
	char *text = NULL;
	size_t len = 0;
	int fd, ret;

	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		ret = -errno;
		config_fail(&reader, "", "cannot open: %s", strerror(-ret));
		return ret;
	}
	text = malloc(LONGEST_FILE);
	ret = text == NULL ? -ENOMEM : read_file(fd, text, LONGEST_FILE, &len);
	close(fd);
	if (ret == -EFBIG)
		config_fail(&reader, "", "longer than %u bytes: not a configuration file",
			    LONGEST_FILE - 1);
	else if (ret != 0)
		config_fail(&reader, "", "cannot read: %s", strerror(-ret));
	else
		ret = config_parse(text, len, path, config, error);
	free(text);
	return ret;
}
