/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The configuration of fanin-server: the example is complete and loads, the schema has the same
 * keys, and defaults are as documented. protocols/pa_atp/tests/case_server.py tests what is
 * refused.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "protocols/pa_atp/server/config.h"
#include "tests/unit/suites.h"

static void
compare_keys(const json_t *schema, const json_t *example, const char *where)
{
	const json_t *properties = json_object_get(schema, "properties");
	const char *key;
	json_t *value;

	ck_assert_msg(json_is_false(json_object_get(schema, "additionalProperties")), "%s", where);
	json_object_foreach((json_t *)(uintptr_t)properties, key, value) {
		const json_t *item = json_object_get(example, key);

		ck_assert_msg(item != NULL, "%s of the example lacks %s", where, key);
		if (json_is_object(item))
			compare_keys(value, item, key);
	}
	json_object_foreach((json_t *)(uintptr_t)example, key, value)
		ck_assert_msg(json_object_get(properties, key) != NULL, "the schema of %s lacks %s",
			      where, key);
}

START_TEST(the_example_loads_and_the_schema_knows_its_keys)
{
	struct server_config config;
	struct control_error error;
	json_t *schema = json_load_file(FANIN_SOURCE_DIR "/packaging/examples/server-schema.json",
					0, NULL);
	json_t *example = json_load_file(FANIN_SOURCE_DIR "/packaging/examples/server.json", 0,
					 NULL);

	ck_assert(json_is_object(schema) && json_is_object(example));
	compare_keys(schema, example, "the whole");
	json_decref(schema);
	json_decref(example);
	ck_assert_msg(server_config_load(FANIN_SOURCE_DIR "/packaging/examples/server.json",
					 &config, &error) == 0,
		      "%s", error.message);
	ck_assert_str_eq(config.name, "server0");
	ck_assert_str_eq(config.ip, "10.77.0.200");
	ck_assert_uint_eq(config.udp_port, 21930);
	ck_assert_str_eq(config.socket, "/run/fanin-server/server.sock");
	ck_assert_str_eq(config.tcp.listen, "10.77.0.200:21931");
	ck_assert_str_eq(config.tcp.token_file, "/etc/fanin/token");
	ck_assert_str_eq(config.tcp.certificate, "/etc/fanin/server.pem");
	ck_assert_str_eq(config.tcp.key, "/etc/fanin/server.key");
	ck_assert_str_eq(config.tcp.ca, "/etc/fanin/ca.pem");
	ck_assert_str_eq(config.metrics_listen, "127.0.0.1:9466");
	server_config_free(&config);
}
END_TEST

/* The schema's default of a key, given by its path. */
static json_int_t
schema_default(const json_t *schema, const char *object, const char *key)
{
	const json_t *properties = json_object_get(schema, "properties");

	if (object != NULL)
		properties = json_object_get(json_object_get(properties, object), "properties");
	return json_integer_value(json_object_get(json_object_get(properties, key), "default"));
}

START_TEST(defaults_are_those_of_the_schema)
{
	json_t *schema = json_load_file(FANIN_SOURCE_DIR "/packaging/examples/server-schema.json",
					0, NULL);
	char path[] = "/tmp/fanin-test-server-XXXXXX";
	static const char text[] = "{\"address\": {\"ip\": \"10.77.0.1\"}}";
	struct server_config config;
	struct control_error error;
	int fd = mkstemp(path);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
	ck_assert_msg(server_config_load(path, &config, &error) == 0, "%s", error.message);
	unlink(path);
	ck_assert_str_eq(config.name, "fanin-server");
	ck_assert_int_eq(config.udp_port, schema_default(schema, "address", "udp_port"));
	ck_assert_int_eq(config.max_jobs, schema_default(schema, "limits", "max_jobs"));
	ck_assert_int_eq(config.memory_megabytes, schema_default(schema, "limits", "megabytes"));
	ck_assert_int_eq(config.receive_buffer_kilobytes,
			 schema_default(schema, NULL, "receive_buffer_kilobytes"));
	ck_assert_int_eq(config.round_trip_us, schema_default(schema, NULL, "round_trip_us"));
	ck_assert_ptr_null(config.metrics_listen);
	ck_assert_ptr_null(config.tcp.listen);
	ck_assert_int_eq(config.log_level, LOG_LEVEL_INFO);
	server_config_free(&config);
	json_decref(schema);
}
END_TEST

Suite *
suite_server_config(void)
{
	Suite *suite = suite_create("server_config");
	TCase *files = tcase_create("files");

	tcase_add_test(files, the_example_loads_and_the_schema_knows_its_keys);
	tcase_add_test(files, defaults_are_those_of_the_schema);
	suite_add_tcase(suite, files);
	return suite;
}
