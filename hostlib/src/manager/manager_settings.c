/* SPDX-License-Identifier: BSD-3-Clause */
/* See manager_settings.h. */
#include "manager_settings.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define LINE_LEN (PATH_MAX + 64)

/* The file's contents. */
struct file {
	const char *path;
	char manager[FANIN_MANAGER_ADDRESS_LEN];
	char token_file[PATH_MAX];
	char ca[PATH_MAX];
	bool tls;
	const char *wanted; /* name of a variable whose value is looked for, or NULL */
	char value[PATH_MAX];
};

/* Strips white space at both ends. */
static char *
trim(char *text)
{
	size_t len;

	while (isspace((unsigned char)*text))
		text++;
	len = strlen(text);
	while (len > 0 && isspace((unsigned char)text[len - 1]))
		text[--len] = '\0';
	return text;
}

/*
 * True if the file may set an environment variable of this name: not if it is the library's own, or
 * a secret, since everybody may read the file.
 */
static bool
is_variable(const char *key)
{
	static const char *const others[] = { "FANIN_MANAGER",
					      "FANIN_TOKEN",
					      "FANIN_KEY",
					      "FANIN_CONF",
					      "FANIN_BACKGROUND_PROGRESS",
					      "FANIN_RECEIVE_BUFFER" };

	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if (strcmp(key, others[i]) == 0)
			return false;
	return strncmp(key, "FANIN_", 6) == 0 && key[6] != '\0' &&
	       strspn(key, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == strlen(key);
}

static int
variable_take(struct file *file, unsigned int number, const char *key, const char *value,
	      struct fanin_error *error)
{
	if (strlen(value) >= sizeof(file->value))
		return fanin_error_set(
			error, FANIN_ERR_INVALID,
			"%s, line %u: %.64s has %zu characters, expected at most %zu", file->path,
			number, key, strlen(value), sizeof(file->value) - 1);
	if (file->wanted != NULL && strcmp(key, file->wanted) == 0)
		memcpy(file->value, value, strlen(value) + 1);
	return FANIN_OK;
}

static int
value_take(struct file *file, unsigned int number, const char *key, const char *value,
	   struct fanin_error *error)
{
	char *const texts[] = { file->manager, file->token_file, file->ca };
	const size_t sizes[] = { sizeof(file->manager), sizeof(file->token_file),
				 sizeof(file->ca) };
	static const char *const keys[] = { "manager", "token_file", "ca" };

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		if (strcmp(key, keys[i]) != 0)
			continue;
		if (value[0] == '\0' || strlen(value) >= sizes[i])
			return fanin_error_set(
				error, FANIN_ERR_INVALID,
				"%s, line %u: %s has %zu characters, expected 1 to %zu", file->path,
				number, key, strlen(value), sizes[i] - 1);
		memcpy(texts[i], value, strlen(value) + 1);
		return FANIN_OK;
	}
	if (is_variable(key))
		return variable_take(file, number, key, value, error);
	if (strcmp(key, "tls") != 0)
		return fanin_error_set(
			error, FANIN_ERR_INVALID,
			"%s, line %u: found '%.64s', expected manager, token_file, tls or ca, or a variable FANIN_NAME that is not the library's own (fanin.conf(5))",
			file->path, number, key);
	if (strcmp(value, "yes") != 0 && strcmp(value, "no") != 0)
		return fanin_error_set(error, FANIN_ERR_INVALID,
				       "%s, line %u: tls is '%.64s', expected yes or no",
				       file->path, number, value);
	file->tls = strcmp(value, "yes") == 0;
	return FANIN_OK;
}

/* Parses lines "key = value"; empty lines and those that begin with # are skipped. */
static int
lines_read(struct file *file, FILE *stream, struct fanin_error *error)
{
	char line[LINE_LEN];
	int status = FANIN_OK;

	for (unsigned int number = 1;
	     status == FANIN_OK && fgets(line, sizeof(line), stream) != NULL; number++) {
		char *key = trim(line);
		char *equals = strchr(key, '=');

		if (key[0] == '\0' || key[0] == '#')
			continue;
		if (equals == NULL)
			return fanin_error_set(error, FANIN_ERR_INVALID,
					       "%s, line %u: found '%.64s', expected key = value",
					       file->path, number, key);
		*equals = '\0';
		status = value_take(file, number, trim(key), trim(equals + 1), error);
	}
	return status;
}

static int
file_read(struct file *file, struct fanin_error *error)
{
	const char *path = secure_getenv("FANIN_CONF");
	FILE *stream;
	int status;

	file->path = path != NULL ? path : FANIN_MANAGER_FILE;
	stream = fopen(file->path, "re");
	if (stream == NULL) {
		/* The default file may be absent; a named one must exist. */
		if (path == NULL && errno == ENOENT)
			return FANIN_OK;
		return fanin_error_set(error, FANIN_ERR_INVALID, "cannot read %s%s: %s", file->path,
				       path != NULL ? ", which FANIN_CONF names" : "",
				       strerror(errno));
	}
	status = lines_read(file, stream, error);
	fclose(stream);
	return status;
}

static int
token_take(struct fanin_manager_settings *settings, const char *token, const char *from,
	   struct fanin_error *error)
{
	size_t len = strlen(token);

	if (len == 0 || len >= sizeof(settings->token))
		return fanin_error_set(error, FANIN_ERR_INVALID,
				       "the token from %s has %zu characters, expected 1 to %zu",
				       from, len, sizeof(settings->token) - 1);
	for (size_t i = 0; i < len; i++) {
		if (!isgraph((unsigned char)token[i]))
			return fanin_error_set(
				error, FANIN_ERR_INVALID,
				"the token from %s has the byte 0x%02x, expected printable ASCII "
				"without blanks",
				from, (unsigned char)token[i]);
	}
	memcpy(settings->token, token, len + 1);
	return FANIN_OK;
}

/* Reads the file with the token that fanin.conf names. line: size bytes. */
static int
token_file_read(const struct file *file, char *line, size_t size, struct fanin_error *error)
{
	FILE *stream = fopen(file->token_file, "re");
	struct stat status;
	int ret = FANIN_OK;

	if (stream == NULL)
		return fanin_error_set(error, FANIN_ERR_INVALID,
				       "cannot read the token file %s, which %s names: %s",
				       file->token_file, file->path, strerror(errno));
	/* All programs that read a token check this. */
	if (fstat(fileno(stream), &status) != 0 || (status.st_mode & S_IRWXO) != 0)
		ret = fanin_error_set(
			error, FANIN_ERR_INVALID,
			"token file %s, which %s names: found the mode %04o, expected no access for others: chmod o= %s",
			file->token_file, file->path, status.st_mode & 07777u, file->token_file);
	else if (fgets(line, (int)size, stream) == NULL)
		line[0] = '\0';
	fclose(stream);
	return ret;
}

static int
token_find(struct fanin_manager_settings *settings, const struct file *file, const char *token,
	   struct fanin_error *error)
{
	char line[FANIN_MANAGER_TOKEN_LEN + 2] = "";
	int status;

	if (token != NULL)
		return token_take(settings, token, "the caller", error);
	token = secure_getenv("FANIN_TOKEN");
	if (token != NULL)
		return token_take(settings, token, "FANIN_TOKEN", error);
	if (file->token_file[0] == '\0')
		return FANIN_OK;
	status = token_file_read(file, line, sizeof(line), error);
	if (status == FANIN_OK)
		status = token_take(settings, trim(line), file->token_file, error);
	explicit_bzero(line, sizeof(line));
	return status;
}

/* Parses "10.0.0.1" or "manager.example:4711". */
static int
address_take(struct fanin_manager_settings *settings, const char *address,
	     struct fanin_error *error)
{
	const struct addrinfo hints = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM };
	const char *colon = strrchr(address, ':');
	size_t len = colon == NULL ? strlen(address) : (size_t)(colon - address);
	struct addrinfo *found;
	long port = FANIN_MANAGER_PORT;
	int ret;

	if (colon != NULL) {
		char *end;

		port = strtol(colon + 1, &end, 10);
		if (!isdigit((unsigned char)colon[1]) || *end != '\0' || port < 1 || port > 65535)
			return fanin_error_set(
				error, FANIN_ERR_INVALID,
				"the manager's address is '%.128s', expected ADDRESS or ADDRESS:PORT",
				address);
	}
	if (len == 0 || len >= sizeof(settings->host))
		return fanin_error_set(
			error, FANIN_ERR_INVALID,
			"the manager's address has %zu characters, expected 1 to %zu", len,
			sizeof(settings->host) - 1);
	memcpy(settings->host, address, len);
	settings->host[len] = '\0';
	snprintf(settings->address, sizeof(settings->address), "%s:%ld", settings->host, port);

	ret = getaddrinfo(settings->host, NULL, &hints, &found);
	if (ret != 0)
		return fanin_error_set(error, FANIN_ERR_INVALID,
				       "the manager's address '%.128s' is not known: %s",
				       settings->host, gai_strerror(ret));
	memcpy(&settings->socket, found->ai_addr, sizeof(settings->socket));
	settings->socket.sin_port = htons((uint16_t)port);
	freeaddrinfo(found);
	return FANIN_OK;
}

int
fanin_manager_settings_find(const char *manager, const char *token,
			    struct fanin_manager_settings *settings, struct fanin_error *error)
{
	struct fanin_manager_settings found = { 0 };
	struct file file = { 0 };
	int status;

	status = file_read(&file, error);
	if (status != FANIN_OK)
		return status;
	if (manager == NULL)
		manager = secure_getenv("FANIN_MANAGER");
	if (manager == NULL && file.manager[0] != '\0')
		manager = file.manager;
	if (manager == NULL)
		return fanin_error_set(
			error, FANIN_ERR_INVALID,
			"no manager is configured: give its address, or set FANIN_MANAGER, or put a line "
			"\"manager = ADDRESS\" into %s",
			file.path);
	status = address_take(&found, manager, error);
	if (status == FANIN_OK)
		status = token_find(&found, &file, token, error);
	if (status != FANIN_OK)
		return status;
	found.tls = file.tls;
	memcpy(found.ca, file.ca, sizeof(found.ca));
	*settings = found;
	return FANIN_OK;
}

int
fanin_setting(const char *name, char *value, size_t size)
{
	struct file file = { .wanted = name };
	const char *found = secure_getenv(name);
	struct fanin_error error = { 0 };
	int status = FANIN_OK;

	if (found == NULL || found[0] == '\0') {
		status = file_read(&file, &error);
		found = status == FANIN_OK ? file.value : error.text;
	}
	if (status == FANIN_OK && strlen(found) >= size) {
		status = fanin_error_set(&error, FANIN_ERR_INVALID,
					 "%s has %zu characters, expected at most %zu", name,
					 strlen(found), size - 1);
		found = error.text;
	}
	snprintf(value, size, "%s", found);
	return status;
}

bool
fanin_address_parse(const char *text, struct sockaddr_in *address)
{
	const char *colon = strchr(text, ':');
	char ip[INET_ADDRSTRLEN];
	char *end;
	long port;

	if (colon == NULL || (size_t)(colon - text) >= sizeof(ip) ||
	    !isdigit((unsigned char)colon[1]))
		return false;
	memcpy(ip, text, (size_t)(colon - text));
	ip[colon - text] = '\0';
	port = strtol(colon + 1, &end, 10);
	*address = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	return *end == '\0' && port >= 1 && port <= 65535 &&
	       inet_pton(AF_INET, ip, &address->sin_addr) == 1;
}
