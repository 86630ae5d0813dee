/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Handles one line of the control protocol: checks, runs and answers the handshake or a request.
 * Called by control/control.c on the main thread.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "control/args.h"
#include "control/clock.h"
#include "control/control.h"
#include "control/control_client.h"
#include "control/text.h"

static const char later_code[] = "later";

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
control_later(struct control_error *error)
{
	error->code = later_code;
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
is_token_right(const struct control_client *client, const json_t *object)
{
	const char *expected = client->service->token;
	const json_t *token = json_object_get(object, "token");

	return !client->tcp || expected[0] == '\0' ||
	       (json_is_string(token) && secret_equal(json_string_value(token), expected));
}

static bool
check_hello(const struct control_client *client, const json_t *object, struct control_error *error)
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
			     "found protocol %s, expected %d: use the faninctl of this %s",
			     text_describe(hello, found), CONTROL_PROTOCOL,
			     client->service->options.service);
		return false;
	}
	return true;
}

json_t *
control_greeting(const struct control_service *service)
{
	const struct control_options *options = &service->options;

	return json_pack("{s:s, s:i, s:s, s:s}", "fanin", options->service, "protocol",
			 CONTROL_PROTOCOL, "version", FANIN_VERSION, "name", options->name);
}

/* Accepts the client: sends the greeting if the client waits for it. */
static int
greet(struct control_client *client, uint64_t now_ms)
{
	json_t *greeting;
	int ret;

	client->greeted = true;
	client->deadline_ms = control_client_has_output(client) ? now_ms + CONTROL_STALL_MS : 0;
	if (!client->service->options.answers_hello)
		return 0;
	greeting = control_greeting(client->service);
	json_object_set_new(greeting, "hello", json_integer(CONTROL_PROTOCOL));
	if (client->service->options.packet_version != 0)
		json_object_set_new(greeting, "packet_version",
				    json_integer(client->service->options.packet_version));
	ret = control_client_send(client, greeting);
	json_decref(greeting);
	return ret;
}

/* Sends a last error, after which the connection is closed. */
static int
end_with(struct control_client *client, const struct control_error *error)
{
	json_t *answer = control_error_answer(NULL, error);
	int ret;

	client->closing = true;
	ret = control_client_send(client, answer);
	json_decref(answer);
	return ret;
}

int
control_refuse_token(struct control_client *client, uint64_t now_ms)
{
	struct control_error error;

	client->refuse_ms = 0;
	client->deadline_ms = now_ms + CONTROL_STALL_MS;
	control_fail(&error, "unauthorized",
		     "token: found %s, expected that of this %s's token file",
		     client->gave_token ? "another one" : "none", client->service->options.service);
	return end_with(client, &error);
}

/*
 * Handles a wrong token: refuses it at once or later. If too many refusals to its address are
 * waiting, the connection ends without an answer.
 */
static int
note_wrong_token(struct control_client *client, uint64_t now_ms)
{
	struct control_service *service = client->service;
	const uint32_t delay_ms = guard_wrong_token(&service->guard, &client->source, now_ms);

	service->counters.token_wrong++;
	if (delay_ms == 0)
		return control_refuse_token(client, now_ms);
	if (service->count_held(service, &client->source) >= GUARD_HELD) {
		service->counters.token_unanswered++;
		return -EACCES;
	}
	service->counters.token_delayed++;
	client->refuse_ms = now_ms + delay_ms;
	client->deadline_ms = 0;
	return 0;
}

/*
 * Handles the first line. Without a common protocol version the connection ends, since nothing that
 * follows could be understood.
 */
static int
shake_hands(struct control_client *client, const char *line, size_t len, uint64_t now_ms)
{
	struct control_error error;
	json_t *object = parse_line(line, len, &error);
	int ret;

	if (object == NULL || !check_hello(client, object, &error)) {
		client->service->counters.hello_wrong++;
		ret = end_with(client, &error);
	} else if (is_token_right(client, object)) {
		client->packet_version =
			json_integer_value(json_object_get(object, "packet_version"));
		ret = greet(client, now_ms);
	} else {
		client->gave_token = json_object_get(object, "token") != NULL;
		ret = note_wrong_token(client, now_ms);
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

/*
 * Runs a request. id: set to the request's id, borrowed, if it has one. Returns a new reference to
 * the result, or NULL with *error filled.
 */
static json_t *
run_request(struct control_client *client, const json_t *request, json_t **id, json_t *empty,
	    struct control_error *error)
{
	static const char *const known[] = { "id", "cmd", "command", "args", NULL };
	const struct control_options *options = &client->service->options;
	const struct control_command *command;
	const json_t *cmd = json_object_get(request, "cmd");
	const json_t *args = json_object_get(request, "args");
	json_t *given_id = json_object_get(request, "id");
	char found[TEXT_VALUE_LEN];

	client->service->counters.line_wrong++;
	if (json_is_integer(given_id) || json_is_string(given_id))
		*id = given_id;
	if (cmd == NULL)
		cmd = json_object_get(request, "command");
	if (args_check_known_at("request", request, known, error) != 0)
		return NULL;
	if (given_id != NULL && *id == NULL)
		return control_fail(error, "invalid",
				    "id: found %s, expected an integer or a string",
				    text_describe(given_id, found));
	if (!json_is_string(cmd))
		return control_fail(error, "invalid",
				    "cmd: found %s, expected the name of a command",
				    text_describe(cmd, found));
	if (args != NULL && !json_is_object(args))
		return control_fail(error, "invalid", "args: found %s, expected an object",
				    text_describe(args, found));
	client->service->counters.line_wrong--;
	command = find_command(options->commands, json_string_value(cmd), error);
	if (command == NULL) {
		client->service->counters.command_unknown++;
		return NULL;
	}
	control_fail(error, "internal", "the command gave neither a result nor an error");
	if (args == NULL)
		args = empty;
	return command->run != NULL ? command->run(options->user, args, error)
				    : command->run_for(options->user, client, *id, args, error);
}

/* result: borrowed. Returns a new reference. */
static json_t *
result_answer(json_t *id, json_t *result)
{
	json_t *answer = json_pack("{s:O?, s:b, s:O}", "id", id, "ok", 1, "result", result);
	struct control_error error;

	if (answer != NULL && json_dumpb(answer, NULL, 0, JSON_COMPACT) <= CONTROL_ANSWER_MAX)
		return answer;
	json_decref(answer);
	control_fail(&error, "internal", "the answer is longer than %zu bytes", CONTROL_ANSWER_MAX);
	return control_error_answer(id, &error);
}

/* Returns a new reference to the answer, or NULL if there is none yet. */
static json_t *
answer_line(struct control_client *client, const char *line, size_t len)
{
	struct control_error error;
	json_t *request = parse_line(line, len, &error);
	json_t *empty = json_object();
	json_t *answer = NULL;
	json_t *result = NULL;
	json_t *id = NULL;

	if (request != NULL)
		result = run_request(client, request, &id, empty, &error);
	else
		client->service->counters.line_wrong++;
	if (result != NULL) {
		answer = result_answer(id, result);
	} else if (error.code == later_code) {
		client->n_later++;
	} else {
		client->service->counters.command_failed++;
		answer = control_error_answer(id, &error);
	}
	json_decref(result);
	json_decref(empty);
	json_decref(request);
	return answer;
}

int
control_request(struct control_client *client, const char *line, size_t len, uint64_t now_ms)
{
	json_t *answer;
	int ret;

	client->heard_ms = now_ms;
	if (!client->greeted)
		return shake_hands(client, line, len, now_ms);
	answer = answer_line(client, line, len);
	if (answer == NULL)
		return 0;
	ret = control_client_send(client, answer);
	json_decref(answer);
	return ret;
}

/* Sends an unsolicited or late line. message: taken. */
static void
send_unsolicited(struct control_client *client, json_t *message)
{
	int ret = control_client_send(client, message);

	/* Keep the first error of the socket. */
	if (ret != 0 && !client->lost) {
		client->lost = true;
		client->ended_by = ret;
	}
	json_decref(message);
}

void
control_answer(struct control_client *client, json_t *id, json_t *result)
{
	client->n_later--;
	send_unsolicited(client, result_answer(id, result));
	json_decref(result);
}

void
control_refuse(struct control_client *client, json_t *id, const struct control_error *error)
{
	client->n_later--;
	client->service->counters.command_failed++;
	send_unsolicited(client, control_error_answer(id, error));
}

void
control_notify(struct control_client *client, json_t *message)
{
	send_unsolicited(client, message);
}

void *
control_client_data(const struct control_client *client)
{
	return client->data;
}

void
control_client_set_data(struct control_client *client, void *data)
{
	client->data = data;
}

int64_t
control_client_packet_version(const struct control_client *client)
{
	return client->packet_version;
}

uint64_t
control_client_number(const struct control_client *client)
{
	return client->number;
}

bool
control_client_is_silent(const struct control_client *client)
{
	return client->ended_by == -ETIMEDOUT || client->ended_by == -EHOSTUNREACH ||
	       client->ended_by == -ENETUNREACH;
}
