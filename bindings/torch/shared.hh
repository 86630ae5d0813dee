/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Buffers of memory that the ranks of a host share, and a socket between the leader and each other
 * rank, whose messages describe the buffers' contents. Used by the node's thread.
 */
#ifndef FANIN_TORCH_SHARED_HH
#define FANIN_TORCH_SHARED_HH

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <sys/types.h>

namespace fanin_torch {

/* A buffer that this process or a peer has made. */
class SharedBuffer {
      public:
	/* Makes a buffer. Throws std::system_error. */
	SharedBuffer(uint32_t id, size_t size);
	/* Opens a peer's buffer, and takes over its file descriptor. */
	SharedBuffer(uint32_t id, int fd);
	~SharedBuffer();
	SharedBuffer(const SharedBuffer &) = delete;
	SharedBuffer &operator=(const SharedBuffer &) = delete;

	const uint32_t id;
	int fd = -1;
	size_t size = 0;
	char *data = nullptr;
	bool in_use = false;

      private:
	void map(int protection);
};

/* This process's buffers, which are reused. */
class SharedPool {
      public:
	SharedBuffer *take(size_t bytes);

      private:
	std::vector<std::unique_ptr<SharedBuffer>> buffers_;
};

enum class MessageKind : uint32_t {
	HELLO = 1,
	DATA,
	DONE,
	READ,
	FAIL,
	BYE
};

struct Message {
	MessageKind kind;
	int32_t rank = 0;    /* HELLO: the sender's rank */
	uint64_t number = 0; /* DATA, DONE, READ: number of the collective */
	int64_t buffer = -1; /* DATA, DONE: id of the buffer with the data */
	std::string text;    /* DATA: the collective's signature; FAIL: the reason */
};

/* A connection with another process of this user on this host. */
class Peer {
      public:
	Peer(int fd, int rank);
	~Peer();
	Peer(const Peer &) = delete;
	Peer &operator=(const Peer &) = delete;

	/* Queues a message. buffer: the one that it refers to, or NULL. */
	void send(Message message, const SharedBuffer *buffer = nullptr);
	/* Sends as much as the socket takes. Returns false if something is left. */
	bool flush();
	/*
	 * Receives a message. Returns false if there is none now, or if the peer is gone (`gone`).
	 */
	bool receive(Message *message);
	/* Returns the peer's buffer that a message refers to. */
	const SharedBuffer *buffer_of(const Message &message) const;

	const int fd;
	int pidfd = -1; /* readable once the peer's process has ended; -1: unknown */
	int rank;
	bool gone = false;
	bool said_bye = false;

      private:
	struct Outgoing {
		Message message;
		int fd; /* file descriptor of a buffer that the peer does not know yet, or -1 */
	};
	std::deque<Outgoing> out_;
	std::map<uint32_t, std::unique_ptr<SharedBuffer>> buffers_;
	std::vector<bool> knows_; /* by buffer id: true if the peer knows this process's buffer */
};

/*
 * Returns a socket that listens at this name, which exists in this network namespace only. Throws
 * std::system_error.
 */
int listen_at(const std::string &name);
/*
 * Accepts the next connection by this user, once it has sent its HELLO. Returns the peer, or NULL
 * if there is none by that time.
 */
std::unique_ptr<Peer> accept_peer(int fd, std::chrono::steady_clock::time_point until);
/* Connects once the other process listens. Returns NULL if it does not by that time. */
std::unique_ptr<Peer> connect_peer(const std::string &name, int own_rank, int rank,
				   std::chrono::steady_clock::time_point until);

} // namespace fanin_torch

#endif
