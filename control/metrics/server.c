/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The web server for Prometheus: libmicrohttpd without threads of its own, so that all runs inside
 * of metrics_server_serve on its owner's thread.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <microhttpd.h>

#include "control/clock.h"
#include "control/metrics/metrics.h"

#define MAX_CONNECTIONS 16u
/* Includes places for connections that the server has ended, until libmicrohttpd has noticed. */
#define MAX_PLACES (2 * MAX_CONNECTIONS)
#define REQUEST_MS 5000u                 /* for a whole request, and between two requests */
#define ANSWER_MS 10000u                 /* for receiving an answer */
#define REQUEST_BYTES ((size_t)16 << 10) /* headers of a request and of its answer */
#define ROUNDS 8                         /* in one call, before the caller's other work */

struct place {
	int fd;            /* -1: unused */
	bool ended;        /* shut down; libmicrohttpd closes it */
	bool answering;    /* a whole request has been received */
	uint64_t since_ms; /* when the connection was made, or its last request or answer began */
};

struct metrics_server {
	struct MHD_Daemon *daemon;
	const struct metrics_family *families;
	json_t *(*values)(void *user);
	void *user;
	int fd; /* epoll's */
	struct place places[MAX_PLACES];
};

/*
 * Ends a connection. libmicrohttpd's own timeout restarts with each byte, so a client could hold a
 * place by sending a byte now and then.
 */
static void
end_place(struct place *place)
{
	shutdown(place->fd, SHUT_RDWR);
	place->ended = true;
}

static void
end_overdue(struct metrics_server *server)
{
	const uint64_t now_ms = clock_ms();

	for (unsigned int i = 0; i < MAX_PLACES; i++) {
		struct place *place = &server->places[i];

		if (place->fd >= 0 && !place->ended &&
		    now_ms - place->since_ms >= (place->answering ? ANSWER_MS : REQUEST_MS))
			end_place(place);
	}
}

/*
 * If all connections are taken, ends the one whose request takes the longest; one with an answer
 * only if all have answers.
 */
static void
make_room(struct metrics_server *server)
{
	struct place *oldest = NULL;
	unsigned int n = 0;

	for (unsigned int i = 0; i < MAX_PLACES; i++) {
		struct place *place = &server->places[i];

		if (place->fd < 0 || place->ended)
			continue;
		n++;
		if (oldest == NULL || place->answering < oldest->answering ||
		    (place->answering == oldest->answering && place->since_ms < oldest->since_ms))
			oldest = place;
	}
	if (n >= MAX_CONNECTIONS && oldest != NULL)
		end_place(oldest);
}

/* Notes that libmicrohttpd has accepted or closed a connection. context: its place. */
static void
note_connection(void *user, struct MHD_Connection *connection, void **context,
		enum MHD_ConnectionNotificationCode code)
{
	struct metrics_server *server = user;
	const union MHD_ConnectionInfo *info;

	if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
		if (*context != NULL)
			((struct place *)*context)->fd = -1;
		return;
	}
	info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
	if (info == NULL)
		return;
	make_room(server);
	for (unsigned int i = 0; i < MAX_PLACES; i++) {
		struct place *place = &server->places[i];

		if (place->fd >= 0)
			continue;
		*place = (struct place){ .fd = info->connect_fd, .since_ms = clock_ms() };
		*context = place;
		return;
	}
}

static void
note_progress(struct MHD_Connection *connection, bool answering)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
	struct place *place = info == NULL ? NULL : info->socket_context;

	if (place == NULL)
		return;
	place->answering = answering;
	place->since_ms = clock_ms();
}

static void
note_completed(void *user, struct MHD_Connection *connection, void **state,
	       enum MHD_RequestTerminationCode code)
{
	(void)user;
	(void)state;
	(void)code;
	note_progress(connection, false);
}

static enum MHD_Result
answer(struct MHD_Connection *connection, unsigned int status, struct MHD_Response *response)
{
	enum MHD_Result result;

	if (response == NULL)
		return MHD_NO;
	note_progress(connection, true);
	result = MHD_queue_response(connection, status, response);
	MHD_destroy_response(response);
	return result;
}

static enum MHD_Result
refuse(struct MHD_Connection *connection, unsigned int status, const char *words)
{
	struct MHD_Response *response = MHD_create_response_from_buffer(strlen(words),
									(void *)(uintptr_t)words,
									MHD_RESPMEM_PERSISTENT);

	if (response != NULL) {
		MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "text/plain");
		if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
			MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
	}
	return answer(connection, status, response);
}

static enum MHD_Result
give_metrics(struct metrics_server *server, struct MHD_Connection *connection)
{
	json_t *values = server->values(server->user);
	struct MHD_Response *response;
	char *text;
	size_t len;

	if (values == NULL)
		return refuse(connection, MHD_HTTP_INTERNAL_SERVER_ERROR, "out of memory\n");
	text = metrics_render(server->families, values, &len);
	json_decref(values);
	if (text == NULL)
		return refuse(connection, MHD_HTTP_INTERNAL_SERVER_ERROR, "out of memory\n");
	response = MHD_create_response_from_buffer(len, text, MHD_RESPMEM_MUST_FREE);
	if (response == NULL)
		free(text);
	else
		MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE,
					"text/plain; version=0.0.4; charset=utf-8");
	return answer(connection, MHD_HTTP_OK, response);
}

static enum MHD_Result
handle_request(void *user, struct MHD_Connection *connection, const char *url, const char *method,
	       const char *version, const char *upload, size_t *upload_len, void **state)
{
	(void)version;
	(void)upload;
	(void)upload_len;
	if (strcmp(url, "/metrics") != 0)
		return refuse(connection, MHD_HTTP_NOT_FOUND,
			      "found another path, expected /metrics\n");
	if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
		return refuse(connection, MHD_HTTP_METHOD_NOT_ALLOWED,
			      "found another method, expected GET\n");
	/*
	 * The first call comes after the headers, before the end of the request: an answer to it
	 * would close the connection.
	 */
	if (*state == NULL) {
		*state = user;
		return MHD_YES;
	}
	return give_metrics(user, connection);
}

/* Returns a listening socket or -errno. */
static int
listen_on(const char *text)
{
	struct address address;
	int yes = 1;
	int fd, ret;

	ret = metrics_address(text, &address);
	if (ret != 0)
		return ret;
	fd = socket(address.socket.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) == 0 &&
	    bind(fd, (const struct sockaddr *)&address.socket, address.len) == 0 &&
	    listen(fd, (int)MAX_CONNECTIONS) == 0)
		return fd;
	ret = -errno;
	close(fd);
	return ret;
}

static struct MHD_Daemon *
start_daemon(struct metrics_server *server, int listen_fd)
{
	return MHD_start_daemon(MHD_USE_EPOLL, 0, NULL, NULL, handle_request, server,
				MHD_OPTION_LISTEN_SOCKET, listen_fd, MHD_OPTION_CONNECTION_LIMIT,
				MAX_PLACES, MHD_OPTION_CONNECTION_MEMORY_LIMIT, REQUEST_BYTES,
				MHD_OPTION_NOTIFY_CONNECTION, note_connection, server,
				MHD_OPTION_NOTIFY_COMPLETED, note_completed, server,
				MHD_OPTION_END);
}

int
metrics_server_open(const char *listen, const struct metrics_family *families,
		    json_t *(*values)(void *user), void *user, struct metrics_server **server,
		    char *error)
{
	struct metrics_server *opened = NULL;
	const union MHD_DaemonInfo *info;
	int ret;
	int listen_fd;

	*server = NULL;
	if (listen == NULL || listen[0] == '\0')
		return 0;
	listen_fd = listen_on(listen);
	if (listen_fd < 0) {
		ret = listen_fd;
		goto fail;
	}
	ret = -ENOMEM;
	opened = calloc(1, sizeof(*opened));
	if (opened == NULL)
		goto close_socket;
	opened->families = families;
	opened->values = values;
	opened->user = user;
	for (unsigned int i = 0; i < MAX_PLACES; i++)
		opened->places[i].fd = -1;
	opened->daemon = start_daemon(opened, listen_fd);
	if (opened->daemon == NULL)
		goto free_server;
	info = MHD_get_daemon_info(opened->daemon, MHD_DAEMON_INFO_EPOLL_FD);
	if (info == NULL) {
		MHD_stop_daemon(opened->daemon); /* closes the socket */
		free(opened);
		ret = -ENOTSUP;
		goto fail;
	}
	opened->fd = info->epoll_fd;
	*server = opened;
	return 0;

free_server:
	free(opened);
close_socket:
	close(listen_fd);
fail:
	snprintf(error, METRICS_ERROR_LEN, "metrics: cannot listen on %s: %s", listen,
		 strerror(-ret));
	return ret;
}

int
metrics_server_fd(const struct metrics_server *server)
{
	return server == NULL ? -1 : server->fd;
}

bool
metrics_server_serve(struct metrics_server *server)
{
	MHD_UNSIGNED_LONG_LONG wait_ms = 1;

	if (server == NULL)
		return false;
	end_overdue(server);
	for (unsigned int i = 0; i < ROUNDS; i++) {
		MHD_run(server->daemon);
		/* A run that closes a connection leaves waiting ones to the next run. */
		if (i == 0)
			continue;
		if (MHD_get_timeout(server->daemon, &wait_ms) != MHD_YES || wait_ms > 0)
			return false;
	}
	return true;
}

void
metrics_server_close(struct metrics_server *server)
{
	if (server == NULL)
		return;
	MHD_stop_daemon(server->daemon);
	free(server);
}
