/* SPDX-License-Identifier: BSD-3-Clause */
/* See meeting.h. */
#include "meeting.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <poll.h>
#include <stdalign.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "hostlib/src/base/clock.h"

#define MAGIC 0x636f6c66u
/* Of the memory and the messages: ranks of one host have the same library. */
#define LAYOUT                                                                                     \
	((uint32_t)(sizeof(struct fanin_local_head) * 31 + sizeof(struct fanin_local_member) * 7 + \
		    FANIN_LOCAL_DEPTH * 3 + FANIN_LOCAL_CHUNK_BYTES + 1))
#define LOOK_MS 20
#define RETRY_NS (5 * 1000000ull)

/* A rank's first message. */
struct hello {
	uint32_t magic;
	uint32_t layout;
	uint64_t agreement;
	uint16_t rank;
	uint8_t unused[6];
};

/* The leader's answer, with the memory's descriptor unless it refuses. */
struct welcome {
	uint32_t magic;
	int32_t status; /* FANIN_OK, or why it refuses */
	struct fanin_error error;
};

static const uint8_t mapped = 'm', woken = 'w';

static int
system_error(struct fanin_error *error, const char *what)
{
	const int errnum = errno;

	return fanin_error_set(error, fanin_status_from_errno(errnum, FANIN_ERR_SYSTEM), "%s: %s",
			       what, strerror(errnum));
}

/* Finds the name of the leader's socket, which exists in this network namespace only. */
static socklen_t
address_of(const struct fanin_local_meeting_config *config, struct sockaddr_un *address)
{
	unsigned char digest[EVP_MAX_MD_SIZE] = { 0 };
	char *name = address->sun_path + 1;
	size_t len = 0;

	*address = (struct sockaddr_un){ .sun_family = AF_UNIX };
	EVP_Digest(config->secret, strlen(config->secret), digest, NULL, EVP_sha256(), NULL);
	len = (size_t)snprintf(name, sizeof(address->sun_path) - 1, "fanin-ranks/");
	for (unsigned int i = 0; i < 16; i++)
		len += (size_t)snprintf(name + len, sizeof(address->sun_path) - 1 - len, "%02x",
					digest[i]);
	len += (size_t)snprintf(name + len, sizeof(address->sun_path) - 1 - len, "/%u",
				config->ranks[0]);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len);
}

static bool
is_interrupted(const struct fanin_local_meeting_config *config)
{
	return config->interrupt != NULL && config->interrupt(config->interrupt_arg);
}

/* Returns FANIN_OK while there is time left. */
static int
time_check(const struct fanin_local_meeting_config *config, struct fanin_error *error)
{
	if (is_interrupted(config))
		return fanin_error_set(error, FANIN_ERR_INTERRUPTED,
				       "interrupted while waiting for the ranks of this host");
	return fanin_now_ns(NULL) < config->deadline_ns ? FANIN_OK : FANIN_ERR_JOIN_TIMEOUT;
}

/* Waits a moment for a descriptor. */
static bool
look_at(int fd, short events)
{
	struct pollfd look = { .fd = fd, .events = events };

	return poll(&look, 1, LOOK_MS) > 0;
}

/* Returns the user of the other process; (uid_t)-1 if it is unknown. */
static uid_t
user_of(int fd, pid_t *pid)
{
	struct ucred other = { .uid = (uid_t)-1 };
	socklen_t len = sizeof(other);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &other, &len) != 0)
		return (uid_t)-1;
	*pid = other.pid;
	return other.uid;
}

/*
 * Takes a connection with another rank. Children of its process may keep the connection open when
 * it ends, so the process is watched, too.
 */
static int
peer_take(struct fanin_local_meeting *meeting, unsigned int place, int fd, pid_t pid,
	  struct fanin_error *error)
{
	struct fanin_local_peer *peer = &meeting->peers[place];
	struct epoll_event event = { .events = EPOLLIN, .data.u32 = place };

	peer->fd = fd;
	if (pid > 0)
		peer->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (epoll_ctl(meeting->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0 ||
	    (peer->pidfd >= 0 &&
	     epoll_ctl(meeting->epoll_fd, EPOLL_CTL_ADD, peer->pidfd, &event) != 0))
		return system_error(error, "epoll_ctl");
	return FANIN_OK;
}

/* Maps the memory, and closes its descriptor. */
static int
memory_map(struct fanin_local_meeting *meeting, int fd, struct fanin_error *error)
{
	const size_t bytes = fanin_local_memory_bytes(meeting->n);
	void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	int status = FANIN_OK;

	if (base == MAP_FAILED)
		status = system_error(error, "the memory of this host's ranks");
	else
		meeting->memory = fanin_local_memory_at(base, meeting->n);
	close(fd);
	return status;
}

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
		return system_error(error, "memfd_create for this host's ranks");
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

/* ---- the leader */

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
	return peer_take(reception->meeting, place, guest.fd, guest.pid, error);
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
				       : system_error(error, "accept of this host's ranks");
		if (user_of(guest.fd, &guest.pid) == geteuid())
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
			status = time_check(reception->config, error);
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
	const socklen_t len = address_of(config, &address);
	const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int status = FANIN_OK;

	if (fd < 0)
		return system_error(error, "the socket for this host's ranks");
	while (bind(fd, (struct sockaddr *)&address, len) != 0 && status == FANIN_OK) {
		if (errno != EADDRINUSE)
			status = system_error(error, "the socket for this host's ranks");
		else
			status = time_check(config, error);
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
		status = system_error(error, "listen");
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

		if (got == 1 && said == mapped)
			return FANIN_OK;
		if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
			fanin_error_set(error, FANIN_ERR_JOIN_REFUSED,
					"rank %u of this host has ended while its ranks met",
					config->ranks[place]);
			fanin_ranks_add(&error->missing, config->ranks[place]);
			return FANIN_ERR_JOIN_REFUSED;
		}
		look_at(meeting->peers[place].fd, POLLIN);
		status = time_check(config, error);
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

static int
lead(const struct fanin_local_meeting_config *config, struct fanin_local_meeting *meeting,
     struct fanin_error *error)
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
		status = memory_map(meeting, fd, error);
	for (unsigned int place = 1; place < meeting->n && status == FANIN_OK; place++)
		status = mapping_await(meeting, place, config, error);
	return status;
}

/* ---- the other ranks */

static int
leader_absence_error(const struct fanin_local_meeting_config *config, const char *what,
		     struct fanin_error *error)
{
	fanin_error_set(error, FANIN_ERR_JOIN_TIMEOUT,
			"rank %u, which leads this host, %s within %u ms; ranks of one host run in "
			"one network namespace and belong to one user",
			config->ranks[0], what, config->join_timeout_ms);
	fanin_ranks_add(&error->missing, config->ranks[0]);
	return FANIN_ERR_JOIN_TIMEOUT;
}

/* Connects with the leader, once it listens. Returns a descriptor or a negative status. */
static int
leader_connect(const struct fanin_local_meeting_config *config, pid_t *pid,
	       struct fanin_error *error)
{
	struct sockaddr_un address;
	const socklen_t len = address_of(config, &address);

	for (;;) {
		const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		int status;
		uid_t user;

		if (fd < 0)
			return system_error(error, "the socket for this host's ranks");
		if (connect(fd, (struct sockaddr *)&address, len) == 0) {
			user = user_of(fd, pid);
			if (user == geteuid())
				return fd;
			close(fd);
			return fanin_error_set(
				error, FANIN_ERR_PERMISSION,
				"the socket '@%s' of rank %u, which leads this host: "
				"found user %d, expected %d",
				address.sun_path + 1, config->ranks[0], (int)user, (int)geteuid());
		}
		status = errno == ECONNREFUSED || errno == EAGAIN || errno == EINTR
				 ? FANIN_OK
				 : system_error(error,
						"the socket of the rank that leads this host");
		close(fd);
		if (status == FANIN_OK)
			status = time_check(config, error);
		if (status == FANIN_ERR_JOIN_TIMEOUT)
			return leader_absence_error(config, "has not come", error);
		if (status != FANIN_OK)
			return status;
		nanosleep(&(struct timespec){ .tv_nsec = RETRY_NS }, NULL);
	}
}

/* Receives the leader's answer. fd: receives the memory's descriptor, or -1. */
static ssize_t
welcome_receive(int from, struct welcome *welcome, int *fd)
{
	alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
	struct iovec piece = { welcome, sizeof(*welcome) };
	struct msghdr message = { .msg_iov = &piece,
				  .msg_iovlen = 1,
				  .msg_control = control,
				  .msg_controllen = sizeof(control) };
	const ssize_t got = recvmsg(from, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	struct cmsghdr *rights = got < 0 ? NULL : CMSG_FIRSTHDR(&message);

	*fd = -1;
	if (rights != NULL && rights->cmsg_level == SOL_SOCKET && rights->cmsg_type == SCM_RIGHTS &&
	    rights->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(fd, CMSG_DATA(rights), sizeof(int));
	return got;
}

static int
follow(const struct fanin_local_meeting_config *config, struct fanin_local_meeting *meeting,
       struct fanin_error *error)
{
	const struct hello hello = { .magic = MAGIC,
				     .layout = LAYOUT,
				     .agreement = config->agreement,
				     .rank = config->ranks[config->place] };
	struct welcome welcome;
	struct stat found;
	pid_t pid = 0;
	const int leader = leader_connect(config, &pid, error);
	int status, fd;
	ssize_t got;

	if (leader < 0)
		return leader;
	status = peer_take(meeting, 0, leader, pid, error);
	if (status != FANIN_OK)
		return status;
	(void)!send(leader, &hello, sizeof(hello), MSG_DONTWAIT | MSG_NOSIGNAL);
	while ((got = welcome_receive(leader, &welcome, &fd)) < 0 &&
	       (errno == EAGAIN || errno == EINTR)) {
		look_at(leader, POLLIN);
		status = time_check(config, error);
		if (status == FANIN_ERR_JOIN_TIMEOUT)
			return leader_absence_error(config, "has not met all of its ranks", error);
		if (status != FANIN_OK)
			return status;
	}
	if (got == (ssize_t)sizeof(welcome) && welcome.magic == MAGIC && welcome.status < 0) {
		*error = welcome.error;
		error->text[sizeof(error->text) - 1] = '\0';
		return welcome.status == FANIN_ERR_INTERRUPTED ? FANIN_ERR_JOIN_REFUSED
							       : welcome.status;
	}
	if (got == (ssize_t)sizeof(welcome) && fd < 0)
		return fanin_error_set(
			error, FANIN_ERR_SYSTEM,
			"the memory of this host's ranks: its descriptor did not come: "
			"does this process have too many open files?");
	if (fd < 0 || fstat(fd, &found) != 0 ||
	    (size_t)found.st_size != fanin_local_memory_bytes(meeting->n)) {
		if (fd >= 0)
			close(fd);
		fanin_error_set(error, FANIN_ERR_JOIN_REFUSED,
				"rank %u, which leads this host, has ended while its ranks met",
				config->ranks[0]);
		fanin_ranks_add(&error->missing, config->ranks[0]);
		return FANIN_ERR_JOIN_REFUSED;
	}
	status = memory_map(meeting, fd, error);
	if (status == FANIN_OK)
		(void)!send(leader, &mapped, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
	return status;
}

/* ---- all */

int
fanin_local_meet(const struct fanin_local_meeting_config *config,
		 struct fanin_local_meeting *meeting, struct fanin_error *error)
{
	*meeting = (struct fanin_local_meeting){ .n = config->n,
						 .place = config->place,
						 .epoll_fd = epoll_create1(EPOLL_CLOEXEC) };
	meeting->ranks = calloc(config->n, sizeof(meeting->ranks[0]));
	meeting->peers = calloc(config->n, sizeof(meeting->peers[0]));
	for (unsigned int place = 0; meeting->peers != NULL && place < config->n; place++)
		meeting->peers[place] = (struct fanin_local_peer){ .fd = -1, .pidfd = -1 };
	if (meeting->epoll_fd < 0)
		return system_error(error, "epoll_create1");
	if (meeting->ranks == NULL || meeting->peers == NULL)
		return fanin_error_set(error, FANIN_ERR_NO_MEMORY, "out of memory");
	memcpy(meeting->ranks, config->ranks, config->n * sizeof(meeting->ranks[0]));
	return config->place == 0 ? lead(config, meeting, error) : follow(config, meeting, error);
}

void
fanin_local_part(struct fanin_local_meeting *meeting)
{
	for (unsigned int place = 0; meeting->peers != NULL && place < meeting->n; place++) {
		if (meeting->peers[place].fd >= 0)
			close(meeting->peers[place].fd);
		if (meeting->peers[place].pidfd >= 0)
			close(meeting->peers[place].pidfd);
	}
	if (meeting->memory.head != NULL)
		munmap(meeting->memory.head, meeting->memory.bytes);
	if (meeting->epoll_fd >= 0)
		close(meeting->epoll_fd);
	free(meeting->peers);
	free(meeting->ranks);
	*meeting = (struct fanin_local_meeting){ .epoll_fd = -1 };
}

void
fanin_local_wake(struct fanin_local_meeting *meeting, unsigned int place)
{
	/* If the socket is full, the other rank is woken already. */
	if (meeting->peers[place].fd >= 0 && !meeting->peers[place].gone)
		(void)!send(meeting->peers[place].fd, &woken, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Reads a peer's messages, which only wake. Returns false once it is gone. */
static bool
peer_listen(const struct fanin_local_peer *peer)
{
	uint8_t said[64];
	struct pollfd ended = { .fd = peer->pidfd, .events = POLLIN };
	ssize_t got;

	while ((got = recv(peer->fd, said, sizeof(said), MSG_DONTWAIT)) > 0)
		;
	if (got == 0 || (errno != EAGAIN && errno != EINTR))
		return false;
	return peer->pidfd < 0 || poll(&ended, 1, 0) <= 0;
}

bool
fanin_local_listen(struct fanin_local_meeting *meeting)
{
	struct epoll_event events[16];
	bool lost = false;
	int n = epoll_wait(meeting->epoll_fd, events, 16, 0);

	for (int i = 0; i < n; i++) {
		struct fanin_local_peer *peer = &meeting->peers[events[i].data.u32];

		if (peer->gone || peer_listen(peer))
			continue;
		peer->gone = true;
		lost = true;
		epoll_ctl(meeting->epoll_fd, EPOLL_CTL_DEL, peer->fd, NULL);
		if (peer->pidfd >= 0)
			epoll_ctl(meeting->epoll_fd, EPOLL_CTL_DEL, peer->pidfd, NULL);
	}
	return lost;
}
