/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the ranks of a host have in common: buffers of memory, and a socket between the leader and
 * each other rank, whose messages say what is in them. Used by the node's thread.
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

/* A buffer that this process has made, or one of a peer's. */
class SharedBuffer {
      public:
	/* Throws std::system_error. */
	SharedBuffer(uint32_t id, size_t size);
	/* A peer's, of which it takes the file over. */
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

/* Buffers that are used again. */
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
	int32_t rank = 0;    /* HELLO: who it is */
	uint64_t number = 0; /* DATA, DONE, READ: of the collective */
	int64_t buffer = -1; /* DATA, DONE: where its data is */
	std::string text;    /* DATA: its signature; FAIL: why */
};

/* A connection with another process of this user on this host. */
class Peer {
      public:
	Peer(int fd, int rank);
	~Peer();
	Peer(const Peer &) = delete;
	Peer &operator=(const Peer &) = delete;

	/* Queues a message; buffer: the one it speaks of, or NULL. */
	void send(Message message, const SharedBuffer *buffer = nullptr);
	/* Sends what the socket takes. False: something is left. */
	bool flush();
	/* True and a message; false: there is none now, or `gone`. */
	bool receive(Message *message);
	/* A buffer of the peer's that a message has spoken of. */
	const SharedBuffer *buffer_of(const Message &message) const;

	const int fd;
	int pidfd = -1; /* readable once its process has ended; -1: unknown */
	int rank;
	bool gone = false;
	bool said_bye = false;

      private:
	struct Outgoing {
		Message message;
		int fd; /* of a buffer that it does not know yet, or -1 */
	};
	std::deque<Outgoing> out_;
	std::map<uint32_t, std::unique_ptr<SharedBuffer>> buffers_;
	std::vector<bool> knows_; /* which of this process's buffers, by id */
};

/*
 * Returns a socket that listens at this name, known in this network namespace only. Throws
 * std::system_error.
 */
int listen_at(const std::string &name);
/* The next connection by this user, as a peer that has said who it is; NULL: none by then. */
std::unique_ptr<Peer> accept_peer(int fd, std::chrono::steady_clock::time_point until);
/* Connects when there is somebody who listens; NULL: not by then. */
std::unique_ptr<Peer> connect_peer(const std::string &name, int own_rank, int rank,
				   std::chrono::steady_clock::time_point until);

} // namespace fanin_torch

#endif
