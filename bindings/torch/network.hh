/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A group's job: a context of the library, and a thread that makes all calls on the context. It
 * posts tasks in the order of submission, and reports when they are done. With several ranks on a
 * host only their leader has one.
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
	std::string handler; /* of the job */
	std::chrono::milliseconds join_timeout;
	std::chrono::milliseconds timeout; /* torch's: maximum wait for ranks that are late */
	bool accumulate_f32;
	bool authenticate;
	bool reproducible;
};

class Network : public std::enable_shared_from_this<Network> {
      public:
	/* notes: hosts tell there which of their ranks has failed. */
	Network(const Layout &layout, std::shared_ptr<Stats> stats, std::shared_ptr<Notes> notes)
	    : layout_(layout), stats_(std::move(stats)), notes_(std::move(notes))
	{
	}
	/* Returns "", or why joining failed. To be called before begin. */
	std::string join(const JoinOptions &options);
	/* Starts the thread. */
	void begin();
	void submit(Task task);
	/* Fails all unfinished tasks, and leaves the job at once. Any thread. */
	void abort(const std::string &why);
	/*
	 * Begins to close: the thread finishes its tasks and leaves the job, in which the ranks
	 * wait for each other.
	 */
	void close_begin();
	/*
	 * Closes, and waits for the end of that, but not much longer than this rank's own part
	 * takes: ranks may close their groups in different orders. After that, the job is left in
	 * the background. If the thread itself calls this, the thread goes on and leaves later.
	 */
	void close();
	/*
	 * Waits until the jobs that are being left in the background have been left, some seconds
	 * at most.
	 */
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
	fanin_ctx *ctx_ = nullptr;   /* used by the thread, while it runs */
	fanin_comm *comm_ = nullptr; /* the same */
	std::string broken_;         /* used by the thread: why nothing can be posted any more */
	std::atomic<bool> aborted_{ false };
	std::atomic<bool> leaving_{ false };

	std::mutex mutex_; /* protects all fields below */
	std::condition_variable cv_;
	std::deque<Task> queue_;
	std::string why_aborted_;
	bool closing_ = false;
	bool is_done_ = false; /* all is done except leaving */
	bool has_left_ = false;
	bool in_background_ = false; /* no caller waits for leaving */
	std::thread thread_;
};

} // namespace fanin_torch

#endif
