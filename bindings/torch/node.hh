/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ranks of a host, of which the first one leads the others. Each collective has three steps:
 * the ranks give their data to the leader in shared memory; the leaders reduce it in the network;
 * the ranks take the result from the leader's memory. A thread does a rank's part of this, so that
 * a rank whose program is busy elsewhere does not delay the others.
 */
#ifndef FANIN_TORCH_NODE_HH
#define FANIN_TORCH_NODE_HH

#include "bindings/torch/layout.hh"
#include "bindings/torch/network.hh"
#include "bindings/torch/part.hh"
#include "bindings/torch/shared.hh"
#include "bindings/torch/stats.hh"

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace fanin_torch {

class Node : public std::enable_shared_from_this<Node> {
      public:
	/* network: the leader's, closed by the node; the others have none. */
	Node(const Layout &layout, std::shared_ptr<Stats> stats, std::shared_ptr<Notes> notes,
	     std::shared_ptr<Network> network);
	~Node();
	/* Meets the other ranks of the host. Returns "", or why that failed. */
	std::string meet(const std::string &job_name, std::chrono::milliseconds patience);
	/*
	 * Starts the thread. timeout: torch's. accumulate_f32: sums of half and bfloat16 are
	 * accumulated in float.
	 */
	void begin(std::chrono::milliseconds timeout, bool accumulate_f32);
	void submit(Task task);
	/* See Network::close_begin(). */
	void close_begin();
	void close();

      private:
	using Clock = std::chrono::steady_clock;

	/*
	 * A collective, found by its number. Other ranks may reach it before this rank's program
	 * does.
	 */
	struct Entry {
		bool has_own = false;
		Task own;
		std::string signature;
		Clock::time_point began;
		std::vector<const SharedBuffer *> given; /* leader: data of each place */
		std::vector<std::string> signatures;     /* leader: of each place */
		size_t n_given = 0;
		SharedBuffer *buffer = nullptr; /* leader: the result; others: the data that they
						   give */
		size_t n_readers = 0; /* leader: number of ranks that have not taken the result yet
				       */
		bool posted = false;
		bool done = false; /* this rank's own part of it is done */
	};

	void run();
	void look();
	bool has_work() const;
	void add(Task task);
	void handle(Peer &peer, const Message &message);
	void advance();
	void post(uint64_t number, Entry &entry);
	void posted_done(uint64_t number, const std::string &error);
	void finish(Entry &entry, const char *result);
	void lost(const Peer &peer);
	void check_timeout();
	void fail(const std::string &text, const std::string &note);
	void wait_for_events();
	void later(std::function<void()> what);
	void forget();

	const Layout layout_;
	const std::shared_ptr<Stats> stats_;
	const std::shared_ptr<Notes> notes_;
	const std::shared_ptr<Network> network_;
	std::chrono::milliseconds timeout_{ 0 };
	bool accumulate_f32_ = false;
	int wake_fd_;

	/* Used by the thread. */
	std::vector<std::unique_ptr<Peer>> peers_; /* leader: all others; others: the leader */
	SharedPool pool_;
	std::map<uint64_t, Entry> entries_;
	uint64_t next_own_ = 0, next_post_ = 0;
	std::string broken_;
	std::string left_; /* ranks of this host that have left, such as "1, 3" */
	bool closing_ = false;
	Clock::time_point last_done_;

	std::mutex mutex_; /* protects all fields below */
	std::deque<std::function<void()>> todo_;
	std::thread thread_;
};

} // namespace fanin_torch

#endif
