/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fuzzes what clients say to the manager: an input is what one of them sends after a right
 * handshake. All of the manager is there but its switches. Every line that comes back is JSON, and
 * when the client has gone no job of it is left.
 */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <jansson.h>

#include "control/log.h"
#include "manager/manager.h"

#define MAX_ROUNDS 1000
#define MAX_BYTES 100000 /* what the socket takes at once */

#define REQUIRE(condition)                                                                         \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);            \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct manager_config config;
static struct manager *manager;
static char path[64];

static void
remove_socket(void)
{
	char *slash = strrchr(path, '/');

	manager_close(manager);
	manager_config_free(&config);
	*slash = '\0';
	rmdir(path);
}

static void
start(void)
{
	static const char topology[] =
		"{\"switches\":[{\"name\":\"a\",\"control\":\"/nonexistent/a\"},{\"name\":\"b\",\"control\":\"/nonexistent/b\"}],"
		"\"links\":[{\"a\":\"a:u0\",\"b\":\"b:u0\"}],\"hosts\":[{\"ip\":\"10.0.0.1\",\"switch\":\"a\",\"port\":\"h0\"},"
		"{\"ip\":\"10.0.0.2\",\"switch\":\"b\",\"port\":\"h0\"}]}";
	char error[CONTROL_MESSAGE_LEN];
	struct control_error failure;
	json_t *root = json_loads(topology, 0, NULL);

	log_init("fuzz-manager", LOG_LEVEL_ERROR);
	signal(SIGPIPE, SIG_IGN);
	snprintf(path, sizeof(path), "/tmp/fanin-fuzz-XXXXXX");
	REQUIRE(mkdtemp(path) != NULL);
	strcat(path, "/s");
	REQUIRE(topology_read(root, "topology", &config.topology, &failure) == 0);
	json_decref(root);
	config.name = "m0";
	config.socket = path;
	memcpy(config.database, ":memory:", sizeof(":memory:"));
	config.heartbeat_ms = 500;
	config.dead_after_ms = 2000;
	config.reconcile_ms = 10000;
	config.max_connections = 8;
	config.max_jobs = 4;
	REQUIRE(manager_open(&config, &manager, error) == 0);
	atexit(remove_socket);
}

/* Checks the whole lines of what has come, and keeps the rest. Returns how many bytes are kept. */
static size_t
check_lines(char *text, size_t len)
{
	char *line = text;
	char *newline;

	while ((newline = memchr(line, '\n', (size_t)(text + len - line))) != NULL) {
		json_t *object = json_loadb(line, (size_t)(newline - line), 0, NULL);

		REQUIRE(json_is_object(object));
		REQUIRE(json_object_get(object, "hello") != NULL ||
			json_object_get(object, "event") != NULL ||
			json_is_boolean(json_object_get(object, "ok")));
		json_decref(object);
		line = newline + 1;
	}
	len -= (size_t)(line - text);
	memmove(text, line, len);
	return len;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static char answer[1 << 20];
	static const char hello[] = "{\"hello\":1}\n";
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	unsigned int rounds = 0;
	size_t kept = 0;
	ssize_t got = -1;
	int fd;

	if (manager == NULL)
		start();
	if (size > MAX_BYTES)
		return 0;
	memcpy(address.sun_path, path, strlen(path));
	fd = socket(AF_UNIX, SOCK_STREAM, 0);
	REQUIRE(fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
	REQUIRE(send(fd, hello, strlen(hello), 0) == (ssize_t)strlen(hello));
	REQUIRE(size == 0 || send(fd, data, size, MSG_DONTWAIT) == (ssize_t)size);
	shutdown(fd, SHUT_WR);
	while (got != 0 && rounds++ < MAX_ROUNDS) {
		REQUIRE(control_serve(manager->control, -1, 0) == 0);
		got = recv(fd, answer + kept, sizeof(answer) - kept, MSG_DONTWAIT);
		if (got > 0)
			kept = check_lines(answer, kept + (size_t)got);
	}
	REQUIRE(got == 0 && kept == 0);
	close(fd);
	REQUIRE(TAILQ_EMPTY(&manager->groups) && manager->n_jobs == 0);
	return 0;
}
