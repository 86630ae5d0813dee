/* SPDX-License-Identifier: BSD-3-Clause */
/* The other ranks of a host find their leader. See meeting.h. */
#include "meeting_internal.h"

#include <errno.h>
#include <poll.h>
#include <stdalign.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

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
	const socklen_t len = fanin_local_address_of(config, &address);

	for (;;) {
		const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		int status;
		uid_t user;

		if (fd < 0)
			return fanin_local_system_error(error, "the socket for this host's ranks");
		if (connect(fd, (struct sockaddr *)&address, len) == 0) {
			user = fanin_local_user_of(fd, pid);
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
				 : fanin_local_system_error(
					   error, "the socket of the rank that leads this host");
		close(fd);
		if (status == FANIN_OK)
			status = fanin_local_time_check(config, error);
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

int
fanin_local_follow(const struct fanin_local_meeting_config *config,
		   struct fanin_local_meeting *meeting, struct fanin_error *error)
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
	status = fanin_local_peer_take(meeting, 0, leader, pid, error);
	if (status != FANIN_OK)
		return status;
	(void)!send(leader, &hello, sizeof(hello), MSG_DONTWAIT | MSG_NOSIGNAL);
	while ((got = welcome_receive(leader, &welcome, &fd)) < 0 &&
	       (errno == EAGAIN || errno == EINTR)) {
		fanin_local_look_at(leader, POLLIN);
		status = fanin_local_time_check(config, error);
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
	status = fanin_local_memory_map(meeting, fd, error);
	if (status == FANIN_OK)
		(void)!send(leader, &fanin_local_mapped, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
	return status;
}
