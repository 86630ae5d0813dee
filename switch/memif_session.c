/* SPDX-License-Identifier: BSD-3-Clause */
/* See memif_session.h. */
#include "switch/memif_session.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "switch/log.h"
#include "control/text.h"

/* One descriptor is expected; more are taken, to be closed. */
union control_buffer {
	struct cmsghdr header;
	uint8_t bytes[CMSG_SPACE(8 * sizeof(int))];
};

/* Keeps the first descriptor of a message and closes all others. Returns it, or -1. */
static int
take_fd(struct msghdr *header)
{
	int kept = -1;

	for (struct cmsghdr *part = CMSG_FIRSTHDR(header); part != NULL;
	     part = CMSG_NXTHDR(header, part)) {
		size_t n;

		if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
			continue;
		n = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < n; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(fd));
			if (kept < 0)
				kept = fd;
			else
				close(fd);
		}
	}
	return kept;
}

/* Returns 1 with a message, 0 if there is none now, -errno if there will be none any more. */
static int
receive(int fd, struct memif_message *message, int *passed)
{
	union control_buffer control;
	struct iovec part = { message, sizeof(*message) };
	struct msghdr header = {
		.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	ssize_t len = recvmsg(fd, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	*passed = -1;
	if (len < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	*passed = take_fd(&header);
	if (len == sizeof(*message) && (header.msg_flags & MSG_TRUNC) == 0)
		return 1;
	if (*passed >= 0)
		close(*passed);
	*passed = -1;
	return len == 0 ? -ECONNRESET : -EPROTO;
}

static int
pass_on(int fd, const struct memif_message *message, int passed)
{
	union control_buffer control = { 0 };
	struct iovec part = { (void *)(uintptr_t)message, sizeof(*message) };
	struct msghdr header = { .msg_iov = &part, .msg_iovlen = 1 };

	if (passed >= 0) {
		header.msg_control = &control;
		header.msg_controllen = CMSG_SPACE(sizeof(int));
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(&control.header), &passed, sizeof(passed));
	}
	return sendmsg(fd, &header, MSG_DONTWAIT | MSG_NOSIGNAL) == sizeof(*message) ? 0 : -errno;
}

static const char *
port_name(const struct memif_world *world, const struct memif_session *session)
{
	return session->port == MEMIF_NO_PORT ? "none" : world->config->ports[session->port].name;
}

void
memif_session_end(const struct memif_world *world, struct memif_session *session)
{
	if (session->state == MEMIF_UP) {
		pipeline_port_set_down(world->pipeline, session->port, true);
		log_info("port \"%s\": the host \"%s\" is gone", port_name(world, session),
			 session->name);
	}
	if (session->host_fd >= 0)
		close(session->host_fd);
	session->host_fd = -1;
	session->state = MEMIF_CLOSING;
	/* The driver reads the end and takes the port apart; the end of its own half tells that this is done. */
	shutdown(session->driver_fd, SHUT_WR);
}

void
memif_session_refuse(const struct memif_world *world, struct memif_session *session,
		     const char *reason)
{
	struct memif_message message = { .type = MEMIF_TYPE_DISCONNECT };

	snprintf(message.disconnect.reason, sizeof(message.disconnect.reason), "%s", reason);
	log_warning("memif port \"%s\": a host is refused: %s", port_name(world, session), reason);
	pass_on(session->host_fd, &message, -1);
	memif_session_end(world, session);
}

/* Finds the port that an INIT names. Returns 0, or -errno with the reason filled. */
static int
name_port(const struct memif_world *world, struct memif_session *session,
	  const struct memif_init *init, char *reason)
{
	for (uint16_t i = 0; i < world->config->n_ports; i++) {
		const struct config_port *port = &world->config->ports[i];

		if (!port->memif || port->memif_id != init->id)
			continue;
		for (unsigned int k = 0; k < world->n_sessions; k++) {
			const struct memif_session *other = &world->sessions[k];

			if (other->state == MEMIF_UNUSED || other->port != i)
				continue;
			snprintf(reason, MEMIF_CHECK_REASON_LEN, "%s: \"%.32s\"", MEMIF_BUSY_REASON,
				 other->name);
			return -EBUSY;
		}
		session->port = i;
		snprintf(session->name, sizeof(session->name), "%.31s", init->name);
		text_make_printable(session->name);
		return 0;
	}
	snprintf(reason, MEMIF_CHECK_REASON_LEN, "no port has the memif id %u", init->id);
	return -ENOENT;
}

void
memif_session_host(const struct memif_world *world, struct memif_session *session)
{
	char reason[MEMIF_CHECK_REASON_LEN];
	struct memif_message message;
	int passed;
	int ret = receive(session->host_fd, &message, &passed);

	if (ret == 0)
		return;
	if (ret == -EPROTO) {
		memif_session_refuse(world, session, "a message is not 128 bytes long");
		return;
	}
	/* Once it is up there is nothing left to say but that it is over. */
	if (ret < 0 || session->state == MEMIF_UP || message.type == MEMIF_TYPE_DISCONNECT) {
		memif_session_end(world, session);
		goto close_passed;
	}
	ret = memif_check(&session->layout, &message, passed, reason);
	if (ret == 0 && message.type == MEMIF_TYPE_INIT)
		ret = name_port(world, session, &message.init, reason);
	if (ret != 0)
		memif_session_refuse(world, session, reason);
	else if (pass_on(session->driver_fd, &message, passed) != 0)
		memif_session_refuse(world, session, "the driver does not listen any more");
close_passed:
	if (passed >= 0)
		close(passed);
}

void
memif_session_driver(const struct memif_world *world, struct memif_session *session)
{
	struct memif_message message;
	int passed;
	int ret = receive(session->driver_fd, &message, &passed);

	if (ret == 0)
		return;
	if (ret < 0) {
		if (session->state != MEMIF_CLOSING)
			memif_session_end(world, session);
		close(session->driver_fd);
		session->driver_fd = -1;
		session->state = MEMIF_UNUSED;
		return;
	}
	if (passed >= 0)
		close(passed);
	if (session->state == MEMIF_CLOSING)
		return;
	/* A port has one queue in each direction. */
	if (message.type == MEMIF_TYPE_HELLO) {
		message.hello.max_ring_to_client = 0;
		message.hello.max_ring_to_server = 0;
		message.hello.max_region = MEMIF_CHECK_REGIONS - 1;
	}
	if (message.type == MEMIF_TYPE_CONNECTED && session->port != MEMIF_NO_PORT) {
		session->state = MEMIF_UP;
		pipeline_port_set_down(world->pipeline, session->port, false);
		log_info("port \"%s\": the host \"%s\" is connected", port_name(world, session),
			 session->name);
	}
	if (pass_on(session->host_fd, &message, -1) != 0)
		memif_session_end(world, session);
}
