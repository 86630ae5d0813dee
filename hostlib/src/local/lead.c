/* SPDX-License-Identifier: BSD-3-Clause */
/* The leader of a host receives its other ranks, and makes their memory. See meeting.h. */
#include "meeting_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "hostlib/src/base/clock.h"

/*
 * Makes memory without a name, of which no page is missing later: a rank must not end by a signal
 * in the middle of a collective. Returns a descriptor or a negative status.
 */
static int
memory_make(const struct fanin_local_meeting_config *config,
	    const struct fanin_local_meeting *meeting, struct fanin_error *error)
{
	const size_t bytes = fanin_local_memory_bytes(meeting->n);
	int fd = memfd_create("fanin-ranks", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int errnum;

	if (fd < 0)
		return fanin_local_system_error(error, "memfd_create for this host's ranks");
	do
		errnum = posix_fallocate(fd, 0, (off_t)bytes);
	while (errnum == EINTR && fanin_now_ns(NULL) < config->deadline_ns);
	if (errnum != 0 || fchmod(fd, S_IRUSR | S_IWUSR) != 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
		if (errnum == 0)
			errnum = errno;
		close(fd);
		return fanin_error_set(error, FANIN_ERR_NO_MEMORY,
				       "%zu bytes of memory for the %u ranks of this host: %s",
				       bytes, meeting->n, strerror(errnum));
	}
	return fd;
}

/* A connection of somebody who has not said who it is. */
struct guest {
	int fd;
	pid_t pid;
};

struct reception {
	const struct fanin_local_meeting_config *config;
	struct fanin_local_meeting *meeting;
	struct guest guests[FANIN_LOCAL_MAX];
	unsigned int n_guests;
	unsigned int n_here; /* with the leader */
};

/* error: of a status other than FANIN_OK. */
static void
welcome_send(int fd, int memory_fd, int status, const struct fanin_error *error)
{
	struct welcome welcome = { .magic = MAGIC, .status = status };
	alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec piece = { &welcome, sizeof(welcome) };
	struct msghdr message = { .msg_iov = &piece, .msg_iovlen = 1 };

	if (status != FANIN_OK) {
		welcome.error = *error;
	} else {
		struct cmsghdr *rights;

		message.msg_control = control;
		message.msg_controllen = sizeof(control);
		rights = CMSG_FIRSTHDR(&message);
		rights->cmsg_level = SOL_SOCKET;
		rights->cmsg_type = SCM_RIGHTS;
		rights->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(rights), &memory_fd, sizeof(int));
	}
	/* One that is gone is noticed later. */
	(void)!sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void
guest_dismiss(struct reception *reception, unsigned int i, int status,
	      const struct fanin_error *error)
{
	if (status != FANIN_OK)
		welcome_send(reception->guests[i].fd, -1, status, error);
	close(reception->guests[i].fd);
	reception->guests[i] = reception->guests[--reception->n_guests];
}

/* Returns the place of a rank of this host, or 0. */
static unsigned int
place_of(const struct fanin_local_meeting_config *config, uint16_t rank)
{
	for (unsigned int place = 1; place < config->n; place++)
		if (config->ranks[place] == rank)
			return place;
	return 0;
}

/* Reads a guest's first message: it becomes a peer, or is sent away. */
static int
guest_hear(struct reception *reception, unsigned int i, struct fanin_error *error)
{
	const struct fanin_local_meeting_config *config = reception->config;
	const struct guest guest = reception->guests[i];
	struct hello hello;
	const ssize_t got = recv(guest.fd, &hello, sizeof(hello), MSG_DONTWAIT);
	struct fanin_error refusal = { 0 };
	unsigned int place;

	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return FANIN_OK;
	if (got != (ssize_t)sizeof(hello) || hello.magic != MAGIC) {
		guest_dismiss(reception, i, FANIN_OK, NULL);
		return FANIN_OK;
	}
	place = place_of(config, hello.rank);
	if (hello.layout != LAYOUT || hello.agreement != config->agreement || place == 0) {
		fanin_error_set(
			&refusal, FANIN_ERR_JOIN_REFUSED,
			hello.layout != LAYOUT
				? "rank %u, which leads this host, has another version of libfanin "
				  "than rank %u"
				: "rank %u, which leads this host, has other hosts, another size or "
				  "other options of the join than rank %u",
			config->ranks[0], hello.rank);
		guest_dismiss(reception, i, FANIN_ERR_JOIN_REFUSED, &refusal);
		return FANIN_OK;
	}
	if (reception->meeting->peers[place].fd >= 0) {
		fanin_error_set(&refusal, FANIN_ERR_JOIN_REFUSED,
				"rank %u of this host has come already", hello.rank);
		guest_dismiss(reception, i, FANIN_ERR_JOIN_REFUSED, &refusal);
		return FANIN_OK;
	}
	reception->guests[i] = reception->guests[--reception->n_guests];
	reception->n_here++;
	return fanin_local_peer_take(reception->meeting, place, guest.fd, guest.pid, error);
}

/* Takes connections of this user. */
static int
guests_accept(struct reception *reception, int listener, struct fanin_error *error)
{
	while (reception->n_guests < FANIN_LOCAL_MAX) {
		struct guest guest = { .fd = accept4(listener, NULL, NULL,
						     SOCK_CLOEXEC | SOCK_NONBLOCK) };

		if (guest.fd < 0)
			return errno == EAGAIN || errno == EINTR || errno == ECONNABORTED
				       ? FANIN_OK
				       : fanin_local_system_error(error,
								  "accept of this host's ranks");
		if (fanin_local_user_of(guest.fd, &guest.pid) == geteuid())
			reception->guests[reception->n_guests++] = guest;
		else
			close(guest.fd);
	}
	return FANIN_OK;
}

/* Sets the error of ranks that have not come. */
static int
absence_error(const struct fanin_local_meeting *meeting,
	      const struct fanin_local_meeting_config *config, struct fanin_error *error)
{
	struct fanin_ranks missing = { 0 };
	char text[200];

	for (unsigned int place = 1; place < meeting->n; place++)
		if (meeting->peers[place].fd < 0)
			fanin_ranks_add(&missing, config->ranks[place]);
	fanin_error_set(error, FANIN_ERR_JOIN_TIMEOUT,
			"%s of this host %s not come to rank %u within %u ms",
			fanin_format_ranks(&missing, text, sizeof(text)),
			fanin_ranks_count(&missing) == 1 ? "has" : "have", config->ranks[0],
			config->join_timeout_ms);
	error->missing = missing;
	return FANIN_ERR_JOIN_TIMEOUT;
}

/* Takes connections until all ranks of the host are here. */
static int
all_receive(struct reception *reception, int listener, struct fanin_error *error)
{
	int status = FANIN_OK;

	while (reception->n_here < reception->config->n && status == FANIN_OK) {
		struct pollfd fds[FANIN_LOCAL_MAX + 1] = { { .fd = listener, .events = POLLIN } };

		for (unsigned int i = 0; i < reception->n_guests; i++)
			fds[i + 1] = (struct pollfd){ .fd = reception->guests[i].fd,
						      .events = POLLIN };
		poll(fds, reception->n_guests + 1, LOOK_MS);
		status = guests_accept(reception, listener, error);
		for (unsigned int i = reception->n_guests; i-- > 0 && status == FANIN_OK;)
			status = guest_hear(reception, i, error);
		if (status == FANIN_OK)
			status = fanin_local_time_check(reception->config, error);
		if (status == FANIN_ERR_JOIN_TIMEOUT)
			status = absence_error(reception->meeting, reception->config, error);
	}
	return status;
}

/* Binds the socket; an earlier meeting of the same name may still be there. */
static int
listener_open(const struct fanin_local_meeting_config *config, struct fanin_error *error)
{
	struct sockaddr_un address;
	const socklen_t len = fanin_local_address_of(config, &address);
	const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int status = FANIN_OK;

	if (fd < 0)
		return fanin_local_system_error(error, "the socket for this host's ranks");
	while (bind(fd, (struct sockaddr *)&address, len) != 0 && status == FANIN_OK) {
		if (errno != EADDRINUSE)
			status = fanin_local_system_error(error,
							  "the socket for this host's ranks");
		else
			status = fanin_local_time_check(config, error);
		if (status == FANIN_ERR_JOIN_TIMEOUT)
			fanin_error_set(error, status,
					"rank %u can't meet the other ranks of this host: the "
					"socket '@%s' is taken; does another job of this name "
					"begin here?",
					config->ranks[0], address.sun_path + 1);
		if (status == FANIN_OK)
			nanosleep(&(struct timespec){ .tv_nsec = RETRY_NS }, NULL);
	}
	if (status == FANIN_OK && listen(fd, FANIN_LOCAL_MAX) != 0)
		status = fanin_local_system_error(error, "listen");
	if (status == FANIN_OK)
		return fd;
	close(fd);
	return status;
}

/* Waits until a peer has mapped the memory. */
static int
mapping_await(const struct fanin_local_meeting *meeting, unsigned int place,
	      const struct fanin_local_meeting_config *config, struct fanin_error *error)
{
	uint8_t said = 0;

	for (;;) {
		const ssize_t got = recv(meeting->peers[place].fd, &said, 1, MSG_DONTWAIT);
		int status;

		if (got == 1 && said == fanin_local_mapped)
			return FANIN_OK;
		if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
			fanin_error_set(error, FANIN_ERR_JOIN_REFUSED,
					"rank %u of this host has ended while its ranks met",
					config->ranks[place]);
			fanin_ranks_add(&error->missing, config->ranks[place]);
			return FANIN_ERR_JOIN_REFUSED;
		}
		fanin_local_look_at(meeting->peers[place].fd, POLLIN);
		status = fanin_local_time_check(config, error);
		if (status == FANIN_ERR_JOIN_TIMEOUT) {
			fanin_error_set(error, status,
					"rank %u of this host has not taken its memory in time",
					config->ranks[place]);
			fanin_ranks_add(&error->missing, config->ranks[place]);
		}
		if (status != FANIN_OK)
			return status;
	}
}

int
fanin_local_lead(const struct fanin_local_meeting_config *config,
		 struct fanin_local_meeting *meeting, struct fanin_error *error)
{
	struct reception *reception = calloc(1, sizeof(*reception));
	int listener;
	int status, fd = -1;

	if (reception == NULL)
		return fanin_error_set(error, FANIN_ERR_NO_MEMORY, "out of memory");
	/* A rank that is alone on its host listens to nobody. */
	listener = config->n > 1 ? listener_open(config, error) : -1;
	status = listener < 0 && config->n > 1 ? listener : FANIN_OK;
	*reception = (struct reception){ .config = config, .meeting = meeting, .n_here = 1 };
	if (status == FANIN_OK)
		status = all_receive(reception, listener, error);
	if (listener >= 0)
		close(listener);
	while (reception->n_guests != 0)
		guest_dismiss(reception, 0, status, error);
	free(reception);
	if (status == FANIN_OK) {
		fd = memory_make(config, meeting, error);
		status = fd < 0 ? fd : FANIN_OK;
	}
	for (unsigned int place = 1; place < meeting->n; place++)
		if (meeting->peers[place].fd >= 0)
			welcome_send(meeting->peers[place].fd, fd, status, error);
	if (status == FANIN_OK)
		status = fanin_local_memory_map(meeting, fd, error);
	for (unsigned int place = 1; place < meeting->n && status == FANIN_OK; place++)
		status = mapping_await(meeting, place, config, error);
	return status;
}
