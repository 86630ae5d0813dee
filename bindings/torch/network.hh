/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A group's job: a context of the library, and a thread that all calls on the context come from. It
 * posts what it is given, in that order, and tells when it is done. With several ranks on a host
 * only their leader has one.
 */
#ifndef FANIN_TORCH_NETWORK_HH
#define FANIN_TORCH_NETWORK_HH

#include "bindings/torch/layout.hh"
#include "bindings/torch/part.hh"
#include "bindings/torch/stats.hh"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace fanin_torch {

/* How a group joins its job; see fanin_join_opts. */
struct JoinOptions {
	std::string job_name;
	std::string manager;
	std::string interface;
	std::string handler; /* the job's */
	std::chrono::milliseconds join_timeout;
	std::chrono::milliseconds timeout; /* torch's: the longest wait for ranks that are late */
	bool accumulate_f32;
	bool authenticate;
	bool reproducible;
};

class Network : public std::enable_shared_from_this<Network> {
      public:
	/* notes: where hosts tell which of their ranks has failed. */
	Network(const Layout &layout, std::shared_ptr<Stats> stats, std::shared_ptr<Notes> notes)
	    : layout_(layout), stats_(std::move(stats)), notes_(std::move(notes))
	{
	}
	/* Returns "" or why that failed. Before begin. */
	std::string join(const JoinOptions &options);
	/* Starts the thread. */
	void begin();
	void submit(Task task);
	/* Fails all that is not done, and leaves the job at once. Any thread. */
	void abort(const std::string &why);
	/*
	 * Has it do what it has been given and leave the job, in which the ranks wait for each
	 * other.
	 */
	void close_begin();
	/*
	 * The same, and waits until that is done; but not much longer than its own part takes:
	 * ranks may close their groups in different orders. Then it leaves in the background. By
	 * its own thread: that goes on and leaves later.
	 */
	void close();
	/* Waits until what leaves in the background has left, some seconds at most. */
	static void await_leaving();

      private:
	void run();
	void post(Task &task);
	bool finish(Task &task);
	void leave();
	std::string failure(int status);
	std::string left_among(const std::vector<uint16_t> &hosts);
	static void print_line(int level, const char *line, void *arg);
	void refresh_stats();
	static bool interrupted(void *arg);

	const Layout layout_;
	const std::shared_ptr<Stats> stats_;
	const std::shared_ptr<Notes> notes_;
	fanin_ctx *ctx_ = nullptr;   /* the thread's, while there is one */
	fanin_comm *comm_ = nullptr; /* likewise */
	std::string broken_;         /* the thread: why nothing can be posted any more */
	std::atomic<bool> aborted_{ false };
	std::atomic<bool> leaving_{ false };

	std::mutex mutex_; /* of all below */
	std::condition_variable cv_;
	std::deque<Task> queue_;
	std::string why_aborted_;
	bool closing_ = false;
	bool is_done_ = false; /* with all but leaving */
	bool has_left_ = false;
	bool in_background_ = false; /* nobody waits for it to leave */
	std::thread thread_;
};

} // namespace fanin_torch

#endif
