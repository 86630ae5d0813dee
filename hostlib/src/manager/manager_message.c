/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages between host and manager: {"hello"}, then requests with an id, answered by results or
 * errors, and unsolicited events. All messages from the manager are checked.
 */
#include "manager_internal.h"

#include <ctype.h>
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hostlib/src/base/clock.h"
#include "wire/wire.h"

#define KEY_LEN 24 /* of a job's key as text */

/* ----------------------------------------------------------------- to it */

/* Sends a message and releases it. */
static int
message_send(struct fanin_manager *manager, json_t *message)
{
	char *text = message == NULL ? NULL : json_dumps(message, JSON_COMPACT);
	int status = text == NULL ? FANIN_ERR_NO_MEMORY : fanin_link_send(manager->link, text);

	json_decref(message);
	free(text);
	return status;
}

int
fanin_manager_say_hello(struct fanin_manager *manager)
{
	const char *token = manager->settings.token;

	return message_send(manager, json_pack("{s:i, s:i, s:s*}", "hello", FANIN_MANAGER_PROTOCOL,
					       "packet_version", FANIN_WIRE_VERSION, "token",
					       token[0] != '\0' ? token : NULL));
}

/* Sends a request. args: released, also if it is NULL, which is an error. */
static int
request_send(struct fanin_manager *manager, const char *command, json_t *args)
{
	if (args == NULL)
		return FANIN_ERR_NO_MEMORY;
	return message_send(manager, json_pack("{s:I, s:s, s:o}", "id", ++manager->last_id,
					       "command", command, "args", args));
}

int
fanin_manager_say(struct fanin_manager *manager, const char *command)
{
	return request_send(manager, command, json_object());
}

/* Writes a key as text. key: KEY_LEN bytes; returned. */
static const char *
key_text(uint64_t value, char *key)
{
	snprintf(key, KEY_LEN, "0x%016llx", (unsigned long long)value);
	return key;
}

/* Packs the handler's parameters. Returns a new reference, or NULL without memory. */
static json_t *
parameters_pack(const struct fanin_manager_join *join)
{
	json_t *parameters = json_object();

	for (size_t i = 0; i < join->n_parameters; i++)
		json_object_set_new(parameters, join->parameters[i].name,
				    json_integer((json_int_t)join->parameters[i].value));
	return parameters;
}

int
fanin_manager_say_join(struct fanin_manager *manager, const struct fanin_manager_join *join)
{
	char endpoint[INET_ADDRSTRLEN + 8] = "";
	char ip[INET_ADDRSTRLEN];
	char key[KEY_LEN];
	json_t *args;

	if (join->endpoint != NULL) {
		inet_ntop(AF_INET, &join->endpoint->sin_addr, ip, sizeof(ip));
		snprintf(endpoint, sizeof(endpoint), "%s:%u", ip, ntohs(join->endpoint->sin_port));
	}
	inet_ntop(AF_INET, &join->ip_be, ip, sizeof(ip));
	args = json_pack("{s:s, s:i, s:s, s:i, s:s, s:b, s:s, s:i, s:b, s:i}", "job", join->job,
			 "size", join->size, "ip", ip, "mtu", (int)join->mtu, "handler",
			 join->handler, "reproducible", join->reproducible, "accumulate",
			 join->wide ? "f32" : "native", "payload_bytes", 0, "fallback",
			 join->endpoint != NULL, "trees", join->trees);
	/*
	 * A manager that does not know this option would refuse the job, so it is sent only if it
	 * is set.
	 */
	if (args != NULL && join->authenticate)
		json_object_set_new(args, "authenticate", json_true());
	if (args != NULL && join->beside_key != 0)
		json_object_set_new(args, "beside_key",
				    json_string(key_text(join->beside_key, key)));
	if (args != NULL && join->n_parameters != 0)
		json_object_set_new(args, "parameters", parameters_pack(join));
	if (args != NULL && join->rank >= 0)
		json_object_set_new(args, "rank", json_integer(join->rank));
	if (args != NULL && join->endpoint != NULL)
		json_object_set_new(args, "endpoint", json_string(endpoint));
	return request_send(manager, "join", args);
}

int
fanin_manager_say_reattach(struct fanin_manager *manager)
{
	char key[KEY_LEN];

	return request_send(manager, "reattach",
			    json_pack("{s:s, s:i, s:s}", "job", manager->job, "rank", manager->rank,
				      "key", key_text(manager->key, key)));
}

/* --------------------------------------------------------------- from it */

/* Writes a JSON value for messages, shortened. Returns text. */
static const char *
describe(const json_t *value, char *text, size_t text_len)
{
	char *found = value == NULL ? NULL : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);

	snprintf(text, text_len, "%.60s", found == NULL ? "nothing" : found);
	free(found);
	return text;
}

/* Fills in the text of an error answer, and the status for its code. */
static int
refusal_read(const struct fanin_manager *manager, const json_t *message, struct fanin_error *error)
{
	const json_t *refusal = json_object_get(message, "error");
	const char *code = json_string_value(json_object_get(refusal, "code"));
	const char *words = json_string_value(json_object_get(refusal, "message"));
	char doing[FANIN_JOB_NAME_MAX + 32] = "refused the handshake";

	if (manager->state != FANIN_MANAGER_GREETING)
		snprintf(doing, sizeof(doing), "refused job '%s'", manager->job);
	return fanin_error_set(error, FANIN_ERR_JOIN_REFUSED, "the manager %s %s: %.250s (%.32s)",
			       manager->settings.address, doing,
			       words != NULL ? words : "no reason given",
			       code != NULL ? code : "no code");
}

/* Reads the answer to the handshake. */
static enum fanin_manager_line
hello_read(const struct fanin_manager *manager, const json_t *message, int *status,
	   struct fanin_error *error)
{
	const json_t *hello = json_object_get(message, "hello");
	const json_t *packets = json_object_get(message, "packet_version");
	json_int_t version = FANIN_WIRE_VERSION_BEFORE;
	char found[64];

	if (json_is_false(json_object_get(message, "ok"))) {
		*status = refusal_read(manager, message, error);
		return FANIN_MANAGER_LINE_FAILED;
	}
	if (!json_is_integer(hello) || json_integer_value(hello) != FANIN_MANAGER_PROTOCOL) {
		*status = fanin_error_set(error, FANIN_ERR_MANAGER,
					  "the manager %s answered the handshake with protocol %s, "
					  "expected %d",
					  manager->settings.address,
					  describe(hello, found, sizeof(found)),
					  FANIN_MANAGER_PROTOCOL);
		return FANIN_MANAGER_LINE_FAILED;
	}
	/* Managers of earlier releases send no version of packets. */
	if (json_is_integer(packets))
		version = json_integer_value(packets);
	if (version != FANIN_WIRE_VERSION) {
		*status = fanin_error_set(
			error, FANIN_ERR_MANAGER,
			"packets of the network of the manager %s have version %lld, those of this library %d: use the same release everywhere",
			manager->settings.address, (long long)version, FANIN_WIRE_VERSION);
		return FANIN_MANAGER_LINE_FAILED;
	}
	return FANIN_MANAGER_LINE_HELLO;
}

static bool
integer_read(const json_t *result, const char *name, json_int_t least, json_int_t most,
	     json_int_t *value)
{
	const json_t *found = json_object_get(result, name);

	*value = json_integer_value(found);
	return json_is_integer(found) && *value >= least && *value <= most;
}

static bool
address_read(const json_t *message, const char *name, uint32_t *ip_be)
{
	const char *text = json_string_value(json_object_get(message, name));

	return text != NULL && inet_pton(AF_INET, text, ip_be) == 1;
}

static uint32_t
generation_read(const json_t *message)
{
	json_int_t generation;

	return integer_read(message, "generation", 1, UINT32_MAX, &generation)
		       ? (uint32_t)generation
		       : 0;
}

/* Stores the switch where a tree continues, if a message names it completely. */
static void
note_home(struct fanin_manager *manager, uint16_t tree, const json_t *message)
{
	struct fanin_manager_home home;
	json_int_t value;

	if (!address_read(message, "ip", &home.ip_be) ||
	    !address_read(message, "switch_ip", &home.switch_ip_be) ||
	    !integer_read(message, "udp_port", 1, UINT16_MAX, &value))
		return;
	home.udp_port = (uint16_t)value;
	home.generation = generation_read(message);
	manager->homes[tree] = home;
	manager->news++;
}

/* Stores whether a tree is gone. reason: the cause; NULL: the tree is not gone. */
static void
note_stranded(struct fanin_manager *manager, uint16_t tree, const char *reason)
{
	snprintf(manager->stranded[tree], sizeof(manager->stranded[tree]), "%s",
		 reason != NULL ? reason : "");
	manager->news++;
}

/* Stores a message's statements about a tree, in place of all earlier ones. */
static void
note_tree(struct fanin_manager *manager, uint16_t tree, const json_t *message)
{
	note_home(manager, tree, message);
	note_stranded(manager, tree, json_string_value(json_object_get(message, "stranded")));
}

/* Reads a list of ranks as a set; entries that are no ranks are skipped. */
static struct fanin_ranks
ranks_read(const json_t *message, const char *name)
{
	const json_t *list = json_object_get(message, name);
	const json_t *entry;
	struct fanin_ranks ranks = { 0 };
	size_t i;

	json_array_foreach(list, i, entry) {
		const json_int_t rank = json_integer_value(entry);

		if (json_is_integer(entry) && rank >= 0 && rank < FANIN_WIRE_MAX_RANKS)
			fanin_ranks_add(&ranks, (unsigned int)rank);
	}
	return ranks;
}

/* Stores which ranks the manager has lost and which it does not hear, and when that changed. */
static void
note_away(struct fanin_manager *manager, const struct fanin_ranks *lost,
	  const struct fanin_ranks *silent)
{
	struct fanin_ranks added = *lost;

	fanin_ranks_merge(&added, silent);
	fanin_ranks_subtract(&added, &manager->lost);
	fanin_ranks_subtract(&added, &manager->silent);
	if (!fanin_ranks_is_empty(&added))
		manager->away_ns = fanin_now_ns(NULL);
	manager->lost = *lost;
	manager->silent = *silent;
}

void
fanin_manager_note_job(struct fanin_manager *manager, const json_t *result)
{
	const json_t *more = json_object_get(result, "more_trees");
	const struct fanin_ranks lost = ranks_read(result, "gone");
	const struct fanin_ranks silent = ranks_read(result, "silent");

	note_away(manager, &lost, &silent);
	note_tree(manager, 0, result);
	for (uint16_t i = 0; i < json_array_size(more) && i < FANIN_MAX_TREES - 1; i++)
		note_tree(manager, (uint16_t)(i + 1), json_array_get(more, i));
}

/* Handles an event about the job's ranks. Returns false for other events. */
static bool
note_ranks(struct fanin_manager *manager, const char *name, const json_t *message)
{
	struct fanin_ranks lost = manager->lost;
	struct fanin_ranks silent = manager->silent;
	struct fanin_ranks one = { 0 };
	json_int_t rank;

	if (integer_read(message, "rank", 0, FANIN_WIRE_MAX_RANKS - 1, &rank))
		fanin_ranks_add(&one, (unsigned int)rank);
	if (strcmp(name, "member_left") == 0)
		fanin_ranks_merge(&manager->left, &one);
	else if (strcmp(name, "member_lost") == 0)
		fanin_ranks_merge(&lost, &one);
	else if (strcmp(name, "member_back") == 0)
		fanin_ranks_subtract(&lost, &one);
	else if (strcmp(name, "members_silent") == 0)
		silent = ranks_read(message, "ranks");
	else
		return false;
	note_away(manager, &lost, &silent);
	return true;
}

/* Logs an event, mostly about lost hosts, switches and jobs. */
static void
event_note(struct fanin_manager *manager, const json_t *event, const json_t *message)
{
	const char *name = json_string_value(event);
	const char *reason = json_string_value(json_object_get(message, "reason"));
	json_int_t tree = json_integer_value(json_object_get(message, "tree"));

	if (name == NULL || note_ranks(manager, name, message) || tree < 0 ||
	    tree >= FANIN_MAX_TREES)
		return;
	if (strcmp(name, "job_destroyed") == 0) {
		snprintf(manager->ended, sizeof(manager->ended), "%s",
			 reason != NULL ? reason : "it does not say why");
		manager->news++;
	}
	if (strcmp(name, "no_path") == 0)
		note_stranded(manager, (uint16_t)tree,
			      reason != NULL ? reason : "it does not say why");
	else if (strcmp(name, "moved") == 0 || strcmp(name, "restored") == 0)
		note_stranded(manager, (uint16_t)tree, NULL);
	if (strcmp(name, "moved") == 0)
		note_home(manager, (uint16_t)tree, message);
}

/*
 * Appends words to a text, without characters that would break a line. Returns the text's new
 * length.
 */
static size_t
words_add(char *text, size_t n, size_t len, const char *format, const char *words)
{
	const int added = snprintf(text + n, len - n, format, words);
	const size_t end = added < 0 || n + (size_t)added >= len ? len - 1 : n + (size_t)added;

	for (size_t i = n; i < end; i++) {
		if (iscntrl((unsigned char)text[i]))
			text[i] = ' ';
	}
	return end;
}

/*
 * Writes an event in words: `job "j": member lost: rank 3`. Parts that this library does not know
 * are left out.
 */
static const char *
event_format(const json_t *message, char *text, size_t len)
{
	static const struct {
		const char *key;
		const char *format;
	} parts[] = {
		{ "switch", ": switch %.48s" }, { "server", ": server %.48s" },
		{ "port", ", port %.48s" },     { "switch_ip", " to the switch %.48s" },
		{ "reason", ": %.200s" },
	};
	const char *job = json_string_value(json_object_get(message, "job"));
	const struct fanin_ranks ranks = ranks_read(message, "ranks");
	json_int_t rank, tree = json_integer_value(json_object_get(message, "tree"));
	char event[64], list[128];
	size_t n = 0;

	snprintf(event, sizeof(event), "%s", json_string_value(json_object_get(message, "event")));
	for (char *c = strchr(event, '_'); c != NULL; c = strchr(c, '_'))
		*c = ' ';
	text[0] = '\0';
	if (job != NULL)
		n = words_add(text, n, len, "job \"%.64s\": ", job);
	n = words_add(text, n, len, "%s", event);
	if (tree != 0) {
		snprintf(list, sizeof(list), "%lld", (long long)tree);
		n = words_add(text, n, len, " (tree %s)", list);
	}
	if (integer_read(message, "rank", 0, FANIN_WIRE_MAX_RANKS - 1, &rank)) {
		snprintf(list, sizeof(list), "%lld", (long long)rank);
		n = words_add(text, n, len, ": rank %s", list);
	} else if (json_is_array(json_object_get(message, "ranks"))) {
		n = words_add(text, n, len, ": %s",
			      fanin_ranks_is_empty(&ranks)
				      ? "none any more"
				      : fanin_format_ranks(&ranks, list, sizeof(list)));
	}
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		const char *words = json_string_value(json_object_get(message, parts[i].key));

		if (words != NULL && words[0] != '\0')
			n = words_add(text, n, len, parts[i].format, words);
	}
	return text;
}

/*
 * Ranks leave at the end of every job, and a link may be down for a moment: these events alone are
 * not worth a warning.
 */
static int
event_level(const json_t *event)
{
	const char *name = json_string_value(event);

	return name != NULL && (strcmp(name, "member_left") == 0 ||
				strcmp(name, "members_silent") == 0)
		       ? FANIN_LOG_INFO
		       : FANIN_LOG_WARNING;
}

enum fanin_manager_line
fanin_manager_read(struct fanin_manager *manager, const char *line, json_t **result, int *status,
		   struct fanin_error *error)
{
	enum fanin_manager_line kind = FANIN_MANAGER_LINE_NONE;
	json_error_t where;
	json_t *message = json_loads(line, JSON_REJECT_DUPLICATES, &where);
	const json_t *event;
	char words[600];

	*result = NULL;
	if (!json_is_object(message)) {
		*status = fanin_error_set(
			error, FANIN_ERR_MANAGER,
			"%s says '%.64s', expected an object in JSON: is that a manager's address?",
			manager->settings.address, line);
		json_decref(message);
		return FANIN_MANAGER_LINE_FAILED;
	}
	event = json_object_get(message, "event");
	if (event != NULL) {
		event_note(manager, event, message);
		if (json_is_string(event))
			fanin_log_line(manager->options.log, event_level(event),
				       "the manager %s says: %s", manager->settings.address,
				       event_format(message, words, sizeof(words)));
	} else if (manager->state == FANIN_MANAGER_GREETING) {
		kind = hello_read(manager, message, status, error);
	} else if (json_integer_value(json_object_get(message, "id")) == manager->last_id) {
		if (json_is_true(json_object_get(message, "ok"))) {
			*result = json_incref(json_object_get(message, "result"));
			kind = FANIN_MANAGER_LINE_RESULT;
		} else {
			*status = refusal_read(manager, message, error);
			kind = FANIN_MANAGER_LINE_FAILED;
		}
	}
	json_decref(message);
	return kind;
}

/* ------------------------------------------------------- answer to a join */

/* Fails because of an invalid member of the answer. */
static int
answer_fail(const struct fanin_manager *manager, const json_t *result, const char *name,
	    const char *expected, struct fanin_error *error)
{
	char found[64];

	return fanin_error_set(error, FANIN_ERR_MANAGER,
			       "the manager %s answered the join with %s %s, expected %s",
			       manager->settings.address, name,
			       describe(json_object_get(result, name), found, sizeof(found)),
			       expected);
}

static bool
key_read(const json_t *result, uint64_t *key)
{
	const char *text = json_string_value(json_object_get(result, "key"));
	char *end;

	if (text == NULL || strncmp(text, "0x", 2) != 0)
		return false;
	errno = 0;
	*key = strtoull(text, &end, 16);
	return errno == 0 && *end == '\0' && end != text + 2;
}

/* Reads the addresses of a tree's ranks, if the manager tells them. */
static int
peers_read(const struct fanin_manager *manager, const json_t *result, uint16_t size,
	   struct fanin_manager_tree *tree, struct fanin_error *error)
{
	const json_t *list = json_object_get(result, "peers");

	if (list == NULL)
		return FANIN_OK;
	if (!json_is_array(list) || json_array_size(list) != size)
		return answer_fail(manager, result, "peers", "a list with one for each rank",
				   error);
	tree->peers = calloc(size, sizeof(*tree->peers));
	if (tree->peers == NULL)
		return fanin_error_set(error, FANIN_ERR_NO_MEMORY, "out of memory");
	for (uint16_t i = 0; i < size; i++) {
		const json_t *entry = json_array_get(list, i);
		json_int_t rank;

		if (!integer_read(entry, "rank", i, i, &rank) ||
		    !address_read(entry, "ip", &tree->peers[i].ip_be) ||
		    !address_read(entry, "switch_ip", &tree->peers[i].switch_ip_be))
			return answer_fail(manager, result, "peers",
					   "rank, ip and switch_ip of each rank", error);
		if (json_object_get(entry, "second_ip") != NULL &&
		    (!address_read(entry, "second_ip", &tree->peers[i].second_ip_be) ||
		     !address_read(entry, "second_switch_ip", &tree->peers[i].second_switch_ip_be)))
			return answer_fail(
				manager, result, "peers",
				"second_ip and second_switch_ip of a rank with two links", error);
	}
	return FANIN_OK;
}

static int
tree_read(const struct fanin_manager *manager, const json_t *result, uint16_t size,
	  struct fanin_manager_tree *tree, struct fanin_error *error)
{
	json_int_t value;

	if (!address_read(result, "switch_ip", &tree->home.switch_ip_be))
		return answer_fail(manager, result, "switch_ip", "an IPv4 address", error);
	inet_ntop(AF_INET, &tree->home.switch_ip_be, tree->switch_ip, sizeof(tree->switch_ip));
	/* Managers of hosts with one link each need not send the address. */
	if (json_object_get(result, "ip") != NULL && !address_read(result, "ip", &tree->home.ip_be))
		return answer_fail(manager, result, "ip", "an IPv4 address", error);
	if (!integer_read(result, "job", 1, FANIN_WIRE_MAX_JOB, &value))
		return answer_fail(manager, result, "job", "a job's number", error);
	tree->job = (uint32_t)value;
	if (!integer_read(result, "udp_port", 1, UINT16_MAX, &value))
		return answer_fail(manager, result, "udp_port", "1 to 65535", error);
	tree->home.udp_port = (uint16_t)value;
	tree->home.generation = generation_read(result);
	if (!key_read(result, &tree->key))
		return answer_fail(manager, result, "key", "a string like \"0x1234\"", error);
	return peers_read(manager, result, size, tree, error);
}

/* Reads the values of the handler's parameters; those that are missing are 0. */
static int
parameters_read(const struct fanin_manager *manager, const json_t *result,
		struct fanin_manager_answer *answer, struct fanin_error *error)
{
	const json_t *list = json_object_get(result, "parameters");
	const json_t *value;
	size_t i;

	if (list == NULL)
		return FANIN_OK;
	if (!json_is_array(list) || json_array_size(list) > FANIN_WIRE_PARAMETERS)
		return answer_fail(manager, result, "parameters", "a list of up to 8 numbers",
				   error);
	json_array_foreach(list, i, value) {
		if (!json_is_integer(value) || json_integer_value(value) < 0)
			return answer_fail(manager, result, "parameters",
					   "numbers that are not negative", error);
		answer->parameters[i] = (uint64_t)json_integer_value(value);
	}
	return FANIN_OK;
}

/* Reads the fields that replace a switch's answer, for a job whose hosts join no switch. */
static int
leaders_read(const struct fanin_manager *manager, const json_t *result,
	     struct fanin_manager_answer *answer, struct fanin_error *error)
{
	const char *handler = json_string_value(json_object_get(result, "handler"));
	json_int_t window, payload, slots = 0, sharing = 0;

	if (handler == NULL || handler[0] == '\0' || strlen(handler) >= sizeof(answer->handler))
		return answer_fail(manager, result, "handler", "a short name", error);
	if (!integer_read(result, "window", 1, FANIN_WIRE_MAX_WINDOW, &window) ||
	    (window & (window - 1)) != 0)
		return answer_fail(manager, result, "window", "a power of two up to 4096", error);
	if (!integer_read(result, "payload_bytes", FANIN_PAYLOAD_ALIGN, UINT16_MAX, &payload) ||
	    payload % FANIN_PAYLOAD_ALIGN != 0)
		return answer_fail(manager, result, "payload_bytes", "a packet's", error);
	if (json_object_get(result, "slots") != NULL &&
	    !integer_read(result, "slots", 0, UINT32_MAX, &slots))
		return answer_fail(manager, result, "slots", "a number of slots", error);
	if (json_object_get(result, "sharing") != NULL &&
	    !integer_read(result, "sharing", 0, UINT32_MAX, &sharing))
		return answer_fail(manager, result, "sharing", "a number of jobs", error);
	if (answer->n_trees != 1)
		return answer_fail(manager, result, "more_trees",
				   "none, as its blocks have leaders", error);
	if (answer->trees[0].peers == NULL)
		return answer_fail(manager, result, "peers", "a list with one for each rank",
				   error);
	answer->has_leaders = true;
	memcpy(answer->handler, handler, strlen(handler) + 1);
	answer->window = (uint16_t)window;
	answer->payload_bytes = (uint16_t)payload;
	answer->slots = (uint32_t)slots;
	answer->sharing_jobs = (uint32_t)sharing;
	return parameters_read(manager, result, answer, error);
}

/* Reads the trees. The result itself describes the first one, and a list of objects the others. */
static int
network_read(const struct fanin_manager *manager, const json_t *result,
	     struct fanin_manager_answer *answer, struct fanin_error *error)
{
	const json_t *more = json_object_get(result, "more_trees");
	const char *reason = json_string_value(json_object_get(result, "trees_reason"));
	const char *shape = json_string_value(json_object_get(result, "shape"));
	json_int_t payload, asked = 0;
	int status;

	if (more != NULL && (!json_is_array(more) || json_array_size(more) >= FANIN_MAX_TREES))
		return answer_fail(manager, result, "more_trees", "a short list", error);
	status = tree_read(manager, result, answer->size, &answer->trees[0], error);
	answer->n_trees = 1;
	for (size_t i = 0; i < json_array_size(more) && status == FANIN_OK; i++)
		status = tree_read(manager, json_array_get(more, i), answer->size,
				   &answer->trees[answer->n_trees++], error);
	if (status == FANIN_OK && answer->n_trees > 1) {
		if (!integer_read(result, "payload_bytes", FANIN_PAYLOAD_ALIGN, UINT16_MAX,
				  &payload))
			return answer_fail(manager, result, "payload_bytes", "a packet's", error);
		answer->payload_bytes = (uint16_t)payload;
	}
	if (status == FANIN_OK && shape != NULL && strcmp(shape, "leaders") == 0)
		status = leaders_read(manager, result, answer, error);
	if (!integer_read(result, "trees_asked", answer->n_trees, FANIN_MAX_TREES, &asked))
		asked = answer->n_trees;
	answer->trees_asked = (uint16_t)asked;
	answer->authenticated = json_is_true(json_object_get(result, "authenticated"));
	snprintf(answer->trees_reason, sizeof(answer->trees_reason), "%s",
		 reason != NULL ? reason : "");
	return status;
}

static int
ring_read(const struct fanin_manager *manager, const json_t *result,
	  struct fanin_manager_answer *answer, struct fanin_error *error)
{
	const json_t *endpoints = json_object_get(result, "endpoints");
	const char *reason = json_string_value(json_object_get(result, "reason"));

	snprintf(answer->reason, sizeof(answer->reason), "%s",
		 reason != NULL ? reason : "the manager gave no reason");
	if (answer->size > FANIN_MANAGER_MAX_PEERS)
		return fanin_error_set(
			error, FANIN_ERR_MANAGER,
			"the manager has no tree for the %u ranks of job \"%s\", and without one there can be %u: %s",
			answer->size, manager->job, FANIN_MANAGER_MAX_PEERS, answer->reason);
	if (!json_is_array(endpoints) || json_array_size(endpoints) != answer->size)
		return answer_fail(manager, result, "endpoints", "a list with one for each rank",
				   error);
	for (uint16_t i = 0; i < answer->size; i++) {
		const char *text = json_string_value(json_array_get(endpoints, i));

		if (text == NULL || !fanin_address_parse(text, &answer->endpoints[i]))
			return answer_fail(manager, result, "endpoints",
					   "strings like 10.0.0.1:4711", error);
	}
	return FANIN_OK;
}

int
fanin_manager_read_answer(const struct fanin_manager *manager, const json_t *result, uint16_t size,
			  struct fanin_manager_answer *answer, struct fanin_error *error)
{
	const char *mode = json_string_value(json_object_get(result, "mode"));
	struct fanin_manager_answer found = { .size = size };
	json_int_t value;
	int status;

	if (mode == NULL || (strcmp(mode, "network") != 0 && strcmp(mode, "ring") != 0))
		return answer_fail(manager, result, "mode", "\"network\" or \"ring\"", error);
	if (!integer_read(result, "size", size, size, &value))
		return answer_fail(manager, result, "size", "that of this host", error);
	if (!integer_read(result, "rank", 0, size - 1, &value))
		return answer_fail(manager, result, "rank", "one below the size", error);
	found.rank = (uint16_t)value;
	if (!key_read(result, &found.key))
		return answer_fail(manager, result, "key", "a string like \"0x1234\"", error);
	found.ring = strcmp(mode, "ring") == 0;
	status = found.ring ? ring_read(manager, result, &found, error)
			    : network_read(manager, result, &found, error);
	if (status == FANIN_OK)
		*answer = found;
	else
		fanin_manager_answer_free(&found);
	return status;
}

void
fanin_manager_answer_free(struct fanin_manager_answer *answer)
{
	for (unsigned int i = 0; i < FANIN_MAX_TREES; i++) {
		free(answer->trees[i].peers);
		answer->trees[i].peers = NULL;
	}
}
