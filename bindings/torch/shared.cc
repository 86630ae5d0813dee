/* SPDX-License-Identifier: BSD-3-Clause */
/* See shared.hh. */
#include "bindings/torch/shared.hh"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <system_error>
#include <thread>

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

namespace fanin_torch {

using Clock = std::chrono::steady_clock;

#define SMALLEST_BUFFER ((size_t)64 << 10)
#define LONGEST_TEXT 4000u
#define PAUSE std::chrono::milliseconds(5)

/* A message as it is sent; its text follows. */
struct Header {
	uint32_t kind;
	int32_t rank;
	uint64_t number;
	int64_t buffer;
	uint64_t has_file;
};

[[noreturn]] static void
raise_errno(const char *what)
{
	throw std::system_error(errno, std::generic_category(), what);
}

SharedBuffer::SharedBuffer(uint32_t id, size_t size) : id(id), size(size)
{
	fd = memfd_create("fanin_torch", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		raise_errno("memfd_create");
	if (ftruncate(fd, static_cast<off_t>(size)) != 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) != 0) {
		close(fd);
		raise_errno("shared memory");
	}
	map(PROT_READ | PROT_WRITE);
}

SharedBuffer::SharedBuffer(uint32_t id, int file) : id(id), fd(file)
{
	struct stat status;

	if (fstat(fd, &status) != 0)
		raise_errno("fstat");
	size = static_cast<size_t>(status.st_size);
	map(PROT_READ);
}

void
SharedBuffer::map(int protection)
{
	void *place = mmap(nullptr, size, protection, MAP_SHARED, fd, 0);

	if (place == MAP_FAILED) {
		close(fd);
		raise_errno("mmap");
	}
	data = static_cast<char *>(place);
}

SharedBuffer::~SharedBuffer()
{
	munmap(data, size);
	close(fd);
}

SharedBuffer *
SharedPool::take(size_t bytes)
{
	SharedBuffer *best = nullptr;
	size_t size = SMALLEST_BUFFER;

	for (const std::unique_ptr<SharedBuffer> &buffer : buffers_)
		if (!buffer->in_use && buffer->size >= bytes &&
		    (best == nullptr || buffer->size < best->size))
			best = buffer.get();
	if (best == nullptr) {
		while (size < bytes)
			size *= 2;
		buffers_.push_back(
			std::make_unique<SharedBuffer>(static_cast<uint32_t>(buffers_.size()),
						       size));
		best = buffers_.back().get();
	}
	best->in_use = true;
	return best;
}

Peer::Peer(int fd, int rank) : fd(fd), rank(rank)
{
	struct ucred other = {};
	socklen_t length = sizeof(other);

	/*
	 * The pidfd is needed because the peer's children may hold the socket open when the peer is
	 * killed.
	 */
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &other, &length) == 0 && other.pid > 0)
		pidfd = static_cast<int>(syscall(SYS_pidfd_open, other.pid, 0));
}

Peer::~Peer()
{
	close(fd);
	if (pidfd >= 0)
		close(pidfd);
}

void
Peer::send(Message message, const SharedBuffer *buffer)
{
	int file = -1;

	if (gone)
		return;
	if (buffer != nullptr) {
		message.buffer = buffer->id;
		knows_.resize(std::max(knows_.size(), static_cast<size_t>(buffer->id) + 1));
		if (!knows_[buffer->id])
			file = buffer->fd;
		knows_[buffer->id] = true;
	}
	if (message.text.size() > LONGEST_TEXT)
		message.text.resize(LONGEST_TEXT);
	out_.push_back({ std::move(message), file });
}

bool
Peer::flush()
{
	while (!out_.empty()) {
		const Message &message = out_.front().message;
		Header header = { static_cast<uint32_t>(message.kind), message.rank, message.number,
				  message.buffer, out_.front().fd >= 0 };
		struct iovec pieces[] = { { &header, sizeof(header) },
					  { const_cast<char *>(message.text.data()),
					    message.text.size() } };
		alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
		struct msghdr wire = {};
		wire.msg_iov = pieces;
		wire.msg_iovlen = 2;
		if (out_.front().fd >= 0) {
			wire.msg_control = control;
			wire.msg_controllen = sizeof(control);
			struct cmsghdr *rights = CMSG_FIRSTHDR(&wire);
			rights->cmsg_level = SOL_SOCKET;
			rights->cmsg_type = SCM_RIGHTS;
			rights->cmsg_len = CMSG_LEN(sizeof(int));
			std::memcpy(CMSG_DATA(rights), &out_.front().fd, sizeof(int));
		}
		if (sendmsg(fd, &wire, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
			if (errno == EINTR)
				continue;
			if (errno == EAGAIN)
				return false;
			/* The peer is gone. Messages that it has sent before can still be read. */
			out_.clear();
			return true;
		}
		out_.pop_front();
	}
	return true;
}

bool
Peer::receive(Message *message)
{
	alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
	char text[LONGEST_TEXT];
	Header header;
	struct iovec pieces[] = { { &header, sizeof(header) }, { text, sizeof(text) } };
	struct msghdr wire = {};
	ssize_t n;

	if (gone)
		return false;
	wire.msg_iov = pieces;
	wire.msg_iovlen = 2;
	wire.msg_control = control;
	wire.msg_controllen = sizeof(control);
	do {
		n = recvmsg(fd, &wire, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EAGAIN)
		return false;
	if (n < static_cast<ssize_t>(sizeof(header))) {
		gone = true;
		return false;
	}
	message->kind = static_cast<MessageKind>(header.kind);
	message->rank = header.rank;
	message->number = header.number;
	message->buffer = header.buffer;
	message->text.assign(text, static_cast<size_t>(n) - sizeof(header));
	struct cmsghdr *rights = CMSG_FIRSTHDR(&wire);
	if (rights != nullptr && rights->cmsg_type == SCM_RIGHTS) {
		int file;
		std::memcpy(&file, CMSG_DATA(rights), sizeof(file));
		auto id = static_cast<uint32_t>(header.buffer);
		buffers_[id] = std::make_unique<SharedBuffer>(id, file);
	}
	return true;
}

const SharedBuffer *
Peer::buffer_of(const Message &message) const
{
	auto found = buffers_.find(static_cast<uint32_t>(message.buffer));

	return message.buffer < 0 || found == buffers_.end() ? nullptr : found->second.get();
}

/* Abstract names belong to a network namespace, as a host does here. */
static socklen_t
address_of(const std::string &name, struct sockaddr_un *address)
{
	std::memset(address, 0, sizeof(*address));
	address->sun_family = AF_UNIX;
	std::memcpy(address->sun_path + 1, name.data(),
		    std::min(name.size(), sizeof(address->sun_path) - 1));
	return static_cast<socklen_t>(offsetof(struct sockaddr_un, sun_path) + 1 +
				      std::min(name.size(), sizeof(address->sun_path) - 1));
}

static int
open_socket()
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (fd < 0)
		raise_errno("socket");
	return fd;
}

static bool
is_of_this_user(int fd)
{
	struct ucred other;
	socklen_t length = sizeof(other);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &other, &length) == 0 &&
	       other.uid == geteuid();
}

int
listen_at(const std::string &name)
{
	struct sockaddr_un address;
	socklen_t length = address_of(name, &address);
	int fd = open_socket();

	if (bind(fd, reinterpret_cast<struct sockaddr *>(&address), length) != 0 ||
	    listen(fd, SOMAXCONN) != 0) {
		close(fd);
		raise_errno("a socket for the ranks of this host");
	}
	return fd;
}

static int
milliseconds_until(Clock::time_point until)
{
	auto left =
		std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();

	return static_cast<int>(std::max<int64_t>(0, std::min<int64_t>(left + 1, 3600 * 1000)));
}

std::unique_ptr<Peer>
accept_peer(int fd, Clock::time_point until)
{
	while (Clock::now() < until) {
		struct pollfd ready = { fd, POLLIN, 0 };
		if (poll(&ready, 1, milliseconds_until(until)) <= 0)
			continue;
		int other = accept4(fd, nullptr, nullptr, SOCK_CLOEXEC);
		if (other < 0)
			continue;
		auto peer = std::make_unique<Peer>(other, -1);
		Message hello;
		struct pollfd said = { other, POLLIN, 0 };
		if (!is_of_this_user(other) || poll(&said, 1, milliseconds_until(until)) <= 0 ||
		    !peer->receive(&hello) || hello.kind != MessageKind::HELLO)
			continue;
		peer->rank = hello.rank;
		return peer;
	}
	return nullptr;
}

std::unique_ptr<Peer>
connect_peer(const std::string &name, int own_rank, int rank, Clock::time_point until)
{
	struct sockaddr_un address;
	socklen_t length = address_of(name, &address);

	while (Clock::now() < until) {
		int fd = open_socket();
		if (connect(fd, reinterpret_cast<struct sockaddr *>(&address), length) == 0 &&
		    is_of_this_user(fd)) {
			auto peer = std::make_unique<Peer>(fd, rank);
			Message hello;
			hello.kind = MessageKind::HELLO;
			hello.rank = own_rank;
			peer->send(hello);
			peer->flush();
			return peer;
		}
		close(fd);
		std::this_thread::sleep_for(PAUSE);
	}
	return nullptr;
}

} // namespace fanin_torch
