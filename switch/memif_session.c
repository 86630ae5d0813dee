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

/* One descriptor is expected; more are received and closed. */
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

/* Returns 1 with a message, 0 if there is none now, or -errno if there will be none. */
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

static void
forget_words(struct memif_session *session)
{
	for (unsigned int i = 0; i < session->n_words; i++) {
		if (session->words[i].fd >= 0)
			close(session->words[i].fd);
	}
	session->n_words = 0;
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
	forget_words(session);
	/*
	 * The driver reads the end of the connection and removes the port; the end of the driver's
	 * own half reports that it is done.
	 */
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

/* Checks that no other host has the port. Returns 0, or -EBUSY with the reason filled. */
static int
port_is_free(const struct memif_world *world, uint16_t port, char *reason)
{
	for (unsigned int i = 0; i < world->n_sessions; i++) {
		const struct memif_session *other = &world->sessions[i];

		if (other->state == MEMIF_UNUSED || !other->claimed || other->port != port)
			continue;
		snprintf(reason, MEMIF_CHECK_REASON_LEN, "%s: \"%.32s\"", MEMIF_BUSY_REASON,
			 other->name);
		return -EBUSY;
	}
	return 0;
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
		session->port = i;
		snprintf(session->name, sizeof(session->name), "%.31s", init->name);
		text_make_printable(session->name);
		/* If the port is taken, the host is refused at once. */
		return port_is_free(world, i, reason);
	}
	snprintf(reason, MEMIF_CHECK_REASON_LEN, "no port has the memif id %u", init->id);
	return -ENOENT;
}

static unsigned int
fds_of(const struct memif_session *session)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < session->n_words; i++)
		n += session->words[i].fd >= 0;
	return n;
}

/*
 * Makes room for one more descriptor: of the other hosts, refuses the one whose handshake takes the
 * longest.
 */
static void
make_room_for_fd(const struct memif_world *world, const struct memif_session *session)
{
	struct memif_session *oldest = NULL;
	unsigned int n_fds = 0;

	for (unsigned int i = 0; i < world->n_sessions; i++) {
		struct memif_session *other = &world->sessions[i];
		const unsigned int n = other->state == MEMIF_TALKING ? fds_of(other) : 0;

		n_fds += n;
		if (n != 0 && other != session &&
		    (oldest == NULL || other->since_ms < oldest->since_ms))
			oldest = other;
	}
	if (n_fds >= MEMIF_MAX_HELD && oldest != NULL)
		memif_session_refuse(world, oldest, "too many hosts connect at a time");
}

/* Sends all of the host's messages to the driver. Returns 0 or -errno. */
static int
tell_driver(struct memif_session *session)
{
	int ret = 0;

	for (unsigned int i = 0; ret == 0 && i < session->n_words; i++)
		ret = pass_on(session->driver_fd, &session->words[i].message, session->words[i].fd);
	forget_words(session);
	return ret;
}

/* Keeps a host's message, which was checked, and answers it. passed: becomes the session's. */
static void
hear(const struct memif_world *world, struct memif_session *session,
     const struct memif_message *message, int passed)
{
	const struct memif_message ack = { .type = MEMIF_TYPE_ACK };

	if (passed >= 0)
		make_room_for_fd(world, session);
	session->words[session->n_words++] = (struct memif_word){ *message, passed };
	if (message->type == MEMIF_TYPE_CONNECT) {
		session->claimed = true;
		if (tell_driver(session) != 0)
			memif_session_refuse(world, session, "the driver does not listen any more");
	} else if (pass_on(session->host_fd, &ack, -1) != 0) {
		memif_session_end(world, session);
	}
}

/* Checks a host's message. Returns 0, or -errno with the reason filled. */
static int
check(const struct memif_world *world, struct memif_session *session,
      const struct memif_message *message, int passed, char *reason)
{
	int ret = memif_check(&session->layout, message, passed, reason);

	if (ret == 0 && session->claimed) {
		snprintf(reason, MEMIF_CHECK_REASON_LEN, "found message type %u after CONNECT",
			 message->type);
		ret = -EPROTO;
	}
	if (ret == 0 && message->type == MEMIF_TYPE_INIT)
		ret = name_port(world, session, &message->init, reason);
	if (ret == 0 && message->type == MEMIF_TYPE_CONNECT)
		ret = port_is_free(world, session->port, reason);
	return ret;
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
	/* Once the port is up, any message ends the session. */
	if (ret < 0 || session->state == MEMIF_UP || message.type == MEMIF_TYPE_DISCONNECT) {
		memif_session_end(world, session);
		goto close_passed;
	}
	if (check(world, session, &message, passed, reason) != 0) {
		memif_session_refuse(world, session, reason);
	} else if (message.type != MEMIF_TYPE_ACK) {
		hear(world, session, &message, passed);
		passed = -1;
	}
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
	/* The gate has already answered each of the host's messages. */
	if (session->state == MEMIF_CLOSING || message.type == MEMIF_TYPE_ACK)
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
