/* SPDX-License-Identifier: BSD-3-Clause */
/* Meetings: the parts of both sides, and the connections afterwards. See meeting.h. */
#include "meeting_internal.h"

#include <errno.h>
#include <openssl/evp.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "hostlib/src/base/clock.h"

static const uint8_t woken = 'w';

int
fanin_local_system_error(struct fanin_error *error, const char *what)
{
	const int errnum = errno;

	return fanin_error_set(error, fanin_status_from_errno(errnum, FANIN_ERR_SYSTEM), "%s: %s",
			       what, strerror(errnum));
}

/* Finds the name of the leader's socket, which exists in this network namespace only. */
socklen_t
fanin_local_address_of(const struct fanin_local_meeting_config *config, struct sockaddr_un *address)
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
int
fanin_local_time_check(const struct fanin_local_meeting_config *config, struct fanin_error *error)
{
	if (is_interrupted(config))
		return fanin_error_set(error, FANIN_ERR_INTERRUPTED,
				       "interrupted while waiting for the ranks of this host");
	return fanin_now_ns(NULL) < config->deadline_ns ? FANIN_OK : FANIN_ERR_JOIN_TIMEOUT;
}

/* Waits a moment for a descriptor. */
bool
fanin_local_look_at(int fd, short events)
{
	struct pollfd look = { .fd = fd, .events = events };

	return poll(&look, 1, LOOK_MS) > 0;
}

/* Returns the user of the other process; (uid_t)-1 if it is unknown. */
uid_t
fanin_local_user_of(int fd, pid_t *pid)
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
int
fanin_local_peer_take(struct fanin_local_meeting *meeting, unsigned int place, int fd, pid_t pid,
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
		return fanin_local_system_error(error, "epoll_ctl");
	return FANIN_OK;
}

/* Maps the memory, and closes its descriptor. */
int
fanin_local_memory_map(struct fanin_local_meeting *meeting, int fd, struct fanin_error *error)
{
	const size_t bytes = fanin_local_memory_bytes(meeting->n);
	void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	int status = FANIN_OK;

	if (base == MAP_FAILED)
		status = fanin_local_system_error(error, "the memory of this host's ranks");
	else
		meeting->memory = fanin_local_memory_at(base, meeting->n);
	close(fd);
	return status;
}

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
		return fanin_local_system_error(error, "epoll_create1");
	if (meeting->ranks == NULL || meeting->peers == NULL)
		return fanin_error_set(error, FANIN_ERR_NO_MEMORY, "out of memory");
	memcpy(meeting->ranks, config->ranks, config->n * sizeof(meeting->ranks[0]));
	return config->place == 0 ? fanin_local_lead(config, meeting, error)
				  : fanin_local_follow(config, meeting, error);
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
