/* SPDX-License-Identifier: BSD-3-Clause */
/* See memif_gate.h. */
#include "switch/memif_gate.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "control/clock.h"
#include "control/listener.h"
#include "switch/log.h"
#include "switch/memif_session.h"

#define MAX_SESSIONS 128
/* Includes places for hosts that the gate has disconnected, until the driver has, too. */
#define MAX_PLACES (MAX_SESSIONS + 32)
#define HANDSHAKE_MS 5000u /* time within which a host's port must be up */
#define BACKLOG 64
#define EVENTS 32
#define LISTENER_EVENT UINT32_MAX

/*
 * The longest that the driver may take to accept a connection, and to disconnect all hosts when the
 * switch stops.
 */
#define ACCEPT_SECONDS 1
#define STOP_MS 2000

static_assert(CONFIG_ERROR_LEN == LISTENER_ERROR_LEN, "buffers");

struct memif_gate {
	const struct config *config;
	struct listener listener;
	char driver_path[CONFIG_PATH_LEN];
	int epoll_fd;
	struct memif_session sessions[MAX_PLACES];
};

static struct memif_world
world_of(struct memif_gate *gate, struct pipeline *pipeline)
{
	return (struct memif_world){ gate->config, pipeline, gate->sessions, MAX_PLACES };
}

void
memif_driver_socket(const struct config *config, char *path)
{
	snprintf(path, CONFIG_PATH_LEN, "%s.dpdk", config->memif_socket);
}

/* number: of the session. from_driver: selects one of its two connections. */
static int
watch(const struct memif_gate *gate, int fd, uint32_t number, bool from_driver)
{
	struct epoll_event event = {
		.events = EPOLLIN,
		.data.u64 = (uint64_t)number << 1 | from_driver,
	};

	return epoll_ctl(gate->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : -errno;
}

int
memif_gate_open(const struct config *config, struct memif_gate **gate, char *error)
{
	struct memif_gate *opened;
	int ret;

	*gate = NULL;
	if (!config_has_memif(config))
		return 0;
	opened = calloc(1, sizeof(*opened));
	if (opened == NULL)
		return -ENOMEM;
	opened->config = config;
	memif_driver_socket(config, opened->driver_path);
	ret = listener_open(&opened->listener, "memif socket", config->memif_socket, SOCK_SEQPACKET,
			    BACKLOG, error);
	if (ret != 0)
		goto free_gate;
	/* No other process has the gate's path, so none has the driver's. */
	unlink(opened->driver_path);
	opened->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	ret = opened->epoll_fd < 0 ? -errno
				   : watch(opened, opened->listener.fd, LISTENER_EVENT, false);
	if (ret != 0) {
		snprintf(error, CONFIG_ERROR_LEN, "memif socket %s: cannot wait for hosts: %s",
			 config->memif_socket, strerror(-ret));
		goto close_listener;
	}
	*gate = opened;
	return 0;

close_listener:
	if (opened->epoll_fd >= 0)
		close(opened->epoll_fd);
	listener_close(&opened->listener);
free_gate:
	free(opened);
	return ret;
}

int
memif_gate_fd(const struct memif_gate *gate)
{
	return gate == NULL ? -1 : gate->epoll_fd;
}

/* Returns a connection to the driver, or -errno. */
static int
connect_driver(const struct memif_gate *gate)
{
	const struct timeval limit = { .tv_sec = ACCEPT_SECONDS };
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	int ret;

	if (fd < 0)
		return -errno;
	memcpy(address.sun_path, gate->driver_path, sizeof(address.sun_path));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0)
		return fd;
	ret = -errno;
	close(fd);
	return ret;
}

/* Refuses hosts whose handshake is overdue: they would keep a place. */
static void
end_overdue(struct memif_gate *gate, struct pipeline *pipeline)
{
	const struct memif_world world = world_of(gate, pipeline);
	const uint64_t now_ms = clock_ms();

	for (unsigned int i = 0; i < MAX_PLACES; i++) {
		struct memif_session *session = &gate->sessions[i];

		if (session->state == MEMIF_TALKING && now_ms - session->since_ms >= HANDSHAKE_MS)
			memif_session_refuse(&world, session,
					     "the handshake was not complete within 5 s");
	}
}

/* If all places are taken, refuses the host whose handshake takes the longest. */
static void
make_room(struct memif_gate *gate, struct pipeline *pipeline)
{
	const struct memif_world world = world_of(gate, pipeline);
	struct memif_session *oldest = NULL;
	unsigned int n = 0;

	for (unsigned int i = 0; i < MAX_PLACES; i++) {
		struct memif_session *session = &gate->sessions[i];

		n += session->state == MEMIF_TALKING || session->state == MEMIF_UP;
		if (session->state == MEMIF_TALKING &&
		    (oldest == NULL || session->since_ms < oldest->since_ms))
			oldest = session;
	}
	if (n >= MAX_SESSIONS && oldest != NULL)
		memif_session_refuse(&world, oldest, "too many hosts connect at a time");
}

static void
accept_host(struct memif_gate *gate, struct pipeline *pipeline)
{
	int fd = accept4(gate->listener.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct memif_session *session = NULL;
	uint32_t number;
	int driver_fd;

	if (fd < 0)
		return;
	make_room(gate, pipeline);
	for (number = 0; number < MAX_PLACES; number++) {
		if (gate->sessions[number].state == MEMIF_UNUSED) {
			session = &gate->sessions[number];
			break;
		}
	}
	driver_fd = session == NULL ? -ENOSPC : connect_driver(gate);
	if (session == NULL || driver_fd < 0) {
		log_warning("memif socket %s: a host can't be served: %s",
			    gate->config->memif_socket, strerror(-driver_fd));
		close(fd);
		return;
	}
	*session = (struct memif_session){
		.state = MEMIF_TALKING,
		.host_fd = fd,
		.driver_fd = driver_fd,
		.port = MEMIF_NO_PORT,
		.since_ms = clock_ms(),
	};
	if (watch(gate, fd, number, false) == 0 && watch(gate, driver_fd, number, true) == 0)
		return;
	log_warning("memif socket %s: a host can't be served: %s", gate->config->memif_socket,
		    strerror(errno));
	close(fd);
	close(driver_fd);
	session->state = MEMIF_UNUSED;
}

/* Returns the number of events. */
static int
serve_events(struct memif_gate *gate, struct pipeline *pipeline, int timeout_ms)
{
	const struct memif_world world = world_of(gate, pipeline);
	struct epoll_event events[EVENTS];
	int n = epoll_wait(gate->epoll_fd, events, EVENTS, timeout_ms);

	for (int i = 0; i < n; i++) {
		uint32_t number = (uint32_t)(events[i].data.u64 >> 1);
		struct memif_session *session;

		if (number == LISTENER_EVENT) {
			accept_host(gate, pipeline);
			continue;
		}
		session = &gate->sessions[number];
		if ((events[i].data.u64 & 1) != 0) {
			if (session->state != MEMIF_UNUSED)
				memif_session_driver(&world, session);
		} else if (session->state == MEMIF_TALKING || session->state == MEMIF_UP) {
			memif_session_host(&world, session);
		}
	}
	return n;
}

void
memif_gate_serve(struct memif_gate *gate, struct pipeline *pipeline)
{
	if (gate == NULL)
		return;
	serve_events(gate, pipeline, 0);
	end_overdue(gate, pipeline);
}

static unsigned int
sessions_left(const struct memif_gate *gate)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < MAX_PLACES; i++)
		n += gate->sessions[i].state != MEMIF_UNUSED;
	return n;
}

void
memif_gate_stop(struct memif_gate *gate, struct pipeline *pipeline)
{
	struct memif_world world;

	if (gate == NULL)
		return;
	world = world_of(gate, pipeline);
	epoll_ctl(gate->epoll_fd, EPOLL_CTL_DEL, gate->listener.fd, NULL);
	for (unsigned int i = 0; i < MAX_PLACES; i++) {
		if (gate->sessions[i].state == MEMIF_TALKING || gate->sessions[i].state == MEMIF_UP)
			memif_session_end(&world, &gate->sessions[i]);
	}
	while (sessions_left(gate) != 0 && serve_events(gate, pipeline, STOP_MS) > 0)
		;
	if (sessions_left(gate) != 0)
		log_error("the memif driver has not let go of %u hosts within %d ms",
			  sessions_left(gate), STOP_MS);
}

void
memif_gate_close(struct memif_gate *gate)
{
	if (gate == NULL)
		return;
	close(gate->epoll_fd);
	listener_close(&gate->listener);
	unlink(gate->driver_path);
	free(gate);
}
