/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The table of the configuration's keys, which the parser walks and the tests compare with the JSON
 * schema. Internal to the configuration: other code uses switch/config/config.h.
 */
#ifndef FANIN_SWITCH_CONFIG_CONFIG_KEYS_H
#define FANIN_SWITCH_CONFIG_CONFIG_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "switch/config/config.h"

#define CONFIG_KEY_PATH_LEN 160
#define CONFIG_EXPECTED_LEN 128

enum config_type {
	CONFIG_TYPE_INTEGER,
	CONFIG_TYPE_BOOLEAN,
	CONFIG_TYPE_SHARE, /* a number from 0 to 1, stored as double */
	CONFIG_TYPE_NAME,  /* letters, digits, '.', '_', '-' */
	CONFIG_TYPE_TEXT,
	CONFIG_TYPE_PATH,   /* absolute, and usable among a device's arguments */
	CONFIG_TYPE_CHOICE, /* one of choices, stored as its index */
	CONFIG_TYPE_IPV4,
	CONFIG_TYPE_PREFIX, /* stored as struct config_prefix */
	CONFIG_TYPE_MAC,
	CONFIG_TYPE_ENDPOINT,  /* an IP address and a TCP port */
	CONFIG_TYPE_INTERFACE, /* a name of a network interface */
	CONFIG_TYPE_VDEV,
	CONFIG_TYPE_PCI,
	CONFIG_TYPE_OBJECT, /* its keys' fields are in the same struct */
	CONFIG_TYPE_ARRAY,  /* of objects, each with a struct of its own */
};

/* Source of the JSON text, and where errors are written. */
struct config_reader {
	const char *source;
	char *error; /* CONFIG_ERROR_LEN bytes */
};

struct config_key {
	const char *name; /* NULL ends a table */
	enum config_type type;
	bool required;
	size_t offset; /* of the field in the struct of this table */
	size_t size;   /* of the field in bytes */

	int64_t minimum; /* of an INTEGER, or of the number of entries of an ARRAY */
	int64_t maximum;
	int64_t fallback; /* default of an INTEGER, BOOLEAN or CHOICE */
	bool derived; /* the default depends on something else; fallback only marks the absence */
	const char *fallback_text; /* default of string types */
	const char *const *choices;

	const struct config_key *keys; /* of an OBJECT or an ARRAY's entries */
	size_t item_size;              /* ARRAY: bytes of an entry's struct */
	size_t count_offset;           /* ARRAY: of the uint16_t that counts the entries */

	/*
	 * ARRAY: checks the keys of one entry together; may be NULL. Returns 0, or -EINVAL with the
	 * reader's error filled in.
	 */
	int (*finish_item)(const struct config_reader *reader, const char *path, const json_t *item,
			   void *fields);
};

/* All keys of the file. */
extern const struct config_key config_keys[];

/* Marks a worker without a configured CPU. */
#define CONFIG_CPU_OF_LCORE UINT16_MAX

/*
 * Writes "SOURCE: PATH: message" as the error; without the path if that is empty. Always returns
 * -EINVAL.
 */
int config_fail(const struct config_reader *reader, const char *path, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/*
 * Reads one value that is neither object nor array into its field.
 *
 * value: NULL stores the default. fields: the struct of the key's table.
 * Returns 0, or -EINVAL if the value is of the wrong type or out of range.
 */
int config_value_store(const struct config_key *key, const json_t *value, void *fields);

/*
 * Writes which values a key takes, as in an error: "an integer from 576 to 61184".
 *
 * buffer: CONFIG_EXPECTED_LEN bytes. Returns buffer.
 */
const char *config_value_expected(const struct config_key *key, char *buffer);

/*
 * Checks keys that depend on each other, after all of them were read and found valid on their own.
 * Returns 0, or -EINVAL with the reader's error filled in.
 */
int config_check_together(const struct config_reader *reader, const struct config *config);

/*
 * Finds the port of each next hop by its name, and checks the routes and the switch's own subnet.
 * Call it after config_check_together. Returns 0, or -EINVAL with the reader's error filled.
 */
int config_finish_routes(const struct config_reader *reader, struct config *config);

#endif
