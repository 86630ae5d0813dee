/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One line of the control protocol: the handshake or a request, checked, run and answered. Called by control/control.c on the
 * main thread.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "control/args.h"
#include "control/control.h"
#include "control/control_client.h"
#include "control/text.h"

json_t *
control_fail(struct control_error *error, const char *code, const char *format, ...)
{
	va_list args;

	error->code = code;
	va_start(args, format);
	vsnprintf(error->message, sizeof(error->message), format, args);
	va_end(args);
	text_make_printable(error->message);
	return NULL;
}

json_t *
control_error_answer(json_t *id, const struct control_error *error)
{
	return json_pack("{s:O?, s:b, s:{s:s, s:s}}", "id", id, "ok", 0, "error", "code",
			 error->code, "message", error->message);
}

/* Parses a line as an object. Returns a new reference, or NULL with *error filled. */
static json_t *
parse_line(const char *line, size_t len, struct control_error *error)
{
	char found[TEXT_VALUE_LEN];
	json_error_t json_error;
	json_t *object;

	object = json_loadb(line, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &json_error);
	if (object == NULL)
		return control_fail(error, "invalid", "the line is not JSON: column %d: %s",
				    json_error.column, json_error.text);
	if (!json_is_object(object)) {
		control_fail(error, "invalid", "found %s, expected an object",
			     text_describe(object, found));
		json_decref(object);
		return NULL;
	}
	return object;
}

static bool
check_hello(const json_t *object, struct control_error *error)
{
	const json_t *hello = json_object_get(object, "hello");
	char found[TEXT_VALUE_LEN];

	if (hello == NULL) {
		control_fail(error, "invalid",
			     "found no handshake, expected {\"hello\":%d} as the first line",
			     CONTROL_PROTOCOL);
		return false;
	}
	if (!json_is_integer(hello) || json_integer_value(hello) != CONTROL_PROTOCOL) {
		control_fail(error, "unsupported",
			     "found protocol %s, expected %d: use the faninctl of this switch",
			     text_describe(hello, found), CONTROL_PROTOCOL);
		return false;
	}
	return true;
}

/* The first line. Without a common protocol nothing that follows has a meaning, so the connection ends. */
static int
shake_hands(struct control_client *client, const char *line, size_t len, uint64_t now_ms)
{
	struct control_error error;
	json_t *object = parse_line(line, len, &error);
	json_t *answer;
	int ret = 0;

	if (object != NULL && check_hello(object, &error)) {
		client->greeted = true;
		client->deadline_ms = control_client_has_output(client) ? now_ms + CONTROL_STALL_MS
									: 0;
	} else {
		client->closing = true;
		answer = control_error_answer(NULL, &error);
		ret = control_client_send(client, answer, now_ms);
		json_decref(answer);
	}
	json_decref(object);
	return ret;
}

static const struct control_command *
find_command(const struct control_command *commands, const char *name, struct control_error *error)
{
	struct text_guess guess = { .word = name };
	json_t *word;
	char shown[TEXT_VALUE_LEN];

	for (const struct control_command *command = commands; command->name != NULL; command++) {
		if (strcmp(command->name, name) == 0)
			return command;
		text_guess_offer(&guess, command->name);
	}
	word = json_string(name);
	text_describe(word, shown);
	json_decref(word);
	if (guess.best != NULL)
		control_fail(error, "not_found", "unknown command %s (did you mean \"%s\"?)", shown,
			     guess.best);
	else
		control_fail(error, "not_found", "unknown command %s", shown);
	return NULL;
}

/* Runs a request. Returns a new reference to its result, or NULL with *error filled. */
static json_t *
run_request(const struct control_command *commands, void *user, const json_t *request,
	    json_t *empty, struct control_error *error)
{
	static const char *const known[] = { "id", "cmd", "args", NULL };
	const struct control_command *command;
	const json_t *id = json_object_get(request, "id");
	const json_t *cmd = json_object_get(request, "cmd");
	const json_t *args = json_object_get(request, "args");
	char found[TEXT_VALUE_LEN];

	if (args_check_known_at("request", request, known, error) != 0)
		return NULL;
	if (id != NULL && !json_is_integer(id) && !json_is_string(id))
		return control_fail(error, "invalid", "id: found %s, expected an integer or a string",
				    text_describe(id, found));
	if (!json_is_string(cmd))
		return control_fail(error, "invalid", "cmd: found %s, expected the name of a command",
				    text_describe(cmd, found));
	if (args != NULL && !json_is_object(args))
		return control_fail(error, "invalid", "args: found %s, expected an object",
				    text_describe(args, found));
	command = find_command(commands, json_string_value(cmd), error);
	if (command == NULL)
		return NULL;
	control_fail(error, "internal", "the command gave neither a result nor an error");
	return command->run(user, args == NULL ? empty : args, error);
}

static json_t *
answer_line(const struct control_command *commands, void *user, const char *line, size_t len)
{
	struct control_error error;
	json_t *request = parse_line(line, len, &error);
	json_t *empty = json_object();
	json_t *answer = NULL;
	json_t *result = NULL;
	json_t *id = NULL;

	if (request != NULL) {
		result = run_request(commands, user, request, empty, &error);
		id = json_object_get(request, "id");
		if (!json_is_integer(id) && !json_is_string(id))
			id = NULL;
	}
	if (result != NULL) {
		answer = json_pack("{s:O?, s:b, s:O}", "id", id, "ok", 1, "result", result);
		if (answer != NULL && json_dumpb(answer, NULL, 0, JSON_COMPACT) > CONTROL_ANSWER_MAX) {
			json_decref(answer);
			answer = NULL;
			control_fail(&error, "internal", "the answer is longer than %zu bytes",
				     CONTROL_ANSWER_MAX);
		}
	}
	if (answer == NULL)
		answer = control_error_answer(id, &error);
	json_decref(result);
	json_decref(empty);
	json_decref(request);
	return answer;
}

int
control_request(struct control_client *client, const struct control_command *commands, void *user,
		const char *line, size_t len, uint64_t now_ms)
{
	json_t *answer;
	int ret;

	if (!client->greeted)
		return shake_hands(client, line, len, now_ms);
	answer = answer_line(commands, user, line, len);
	ret = control_client_send(client, answer, now_ms);
	json_decref(answer);
	return ret;
}
