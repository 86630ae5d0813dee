/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A group's job: a context of the library, and a thread that makes all calls on the context. It
 * posts tasks in the order of submission, and reports when they are done.
 */
#ifndef FANIN_TORCH_NETWORK_HH
#define FANIN_TORCH_NETWORK_HH

#include "bindings/torch/notes.hh"
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
	/* stats: its ranks are known. notes: ranks tell there who has failed or left. */
	Network(Hosts hosts, std::shared_ptr<Stats> stats, std::shared_ptr<Notes> notes)
	    : hosts_(std::move(hosts)), rank_(stats->rank), stats_(std::move(stats)),
	      notes_(std::move(notes))
	{
	}
	/* Returns "", or why joining failed. To be called before begin. */
	std::string join(const JoinOptions &options);
	/* Starts the thread. */
	void begin();
	/* Returns false if the network closes; the task is not carried out then. */
	bool submit(Task task);
	/*
	 * Fails all unfinished tasks, and those that follow, and leaves the job at once. Any
	 * thread.
	 */
	void abort(const std::string &why);
	/*
	 * Begins to close: the thread finishes its tasks, and then leaves the job, in which the
	 * ranks wait for each other, once it is let leave.
	 */
	void close_begin();
	/*
	 * Waits until the thread has finished its tasks. Returns false without waiting if there is
	 * no thread, or if it is the caller, which then goes on and leaves later.
	 */
	bool await_done();
	void let_leave();
	/*
	 * Closes, and waits for the end of that, but not much longer than this rank's own part
	 * takes: ranks may close their groups in different orders. After that, the job is left in
	 * the background.
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
	void waits(fanin_ctx *ctx);
	void wake();
	void expire(const Task &task);
	void leave();
	bool has_expired() const;
	std::string failure(int status);
	std::string left_among(std::vector<int> ranks);
	std::string missing_in_words(const std::vector<int> &ranks);
	void tell_hosts(const std::vector<int> &missing, int status, const std::string &text);
	static void print_line(int level, const char *line, void *arg);
	void refresh_stats();
	static bool interrupted(void *arg);

	const Hosts hosts_;
	const int rank_;
	const std::shared_ptr<Stats> stats_;
	const std::shared_ptr<Notes> notes_;
	fanin_ctx *ctx_ = nullptr;   /* used by the thread, while it runs */
	fanin_comm *comm_ = nullptr; /* the same */
	std::string broken_;         /* used by the thread: why nothing can be posted any more */
	/* Used by the thread: when the first of the tasks in flight expires. */
	Clock::time_point until_ = Clock::time_point::max();
	Clock::time_point last_done_; /* used by the thread: when a task was last done */
	std::atomic<bool> aborted_{ false };
	std::atomic<bool> leaving_{ false };
	std::atomic<bool> has_fresh_{ false }; /* the queue has tasks */

	std::mutex mutex_; /* protects all fields below */
	std::condition_variable cv_;
	std::deque<Task> queue_;
	fanin_ctx *waiting_ = nullptr; /* context that the thread waits on, or NULL */
	std::string why_aborted_;
	bool closing_ = false;
	bool is_done_ = false;   /* all is done except leaving */
	bool may_leave_ = false; /* whoever closes has done what comes before that */
	bool has_left_ = false;
	bool in_background_ = false; /* no caller waits for leaving */
	std::thread::id thread_id_;  /* none: it has not begun */
	std::thread thread_;         /* whoever closes joins or detaches it */
};

} // namespace fanin_torch

#endif
