/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Threads for the callbacks of futures. A callback may wait for collectives, and for other callbacks: so it never runs on a
 * thread that completes collectives, and each has a thread of its own while it runs.
 *
 * Which collective is which depends on the order in which a rank makes them, so that those of callbacks must have their place in
 * it: the one that they would have if then() ran the callback at once, as it does with NCCL. Callbacks run in the order of
 * then(), and the thread that has called then() makes its next collective in that group only when they are done. A callback's
 * own callbacks come before what follows it.
 */
#ifndef FANIN_TORCH_CALLBACKS_HH
#define FANIN_TORCH_CALLBACKS_HH

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

namespace fanin_torch {

/* Runs it on a thread that has nothing else to do: one that waits for work, or a new one. Any thread. */
void callback_run(std::function<void()> what);
/* Waits until all have returned. False: not within that time. */
bool callbacks_wait(std::chrono::milliseconds patience);

/* The callbacks that a group's program has registered, or one that a callback has, in that order. Any thread. */
class Sequence : public std::enable_shared_from_this<Sequence> {
      public:
	struct Slot {
		std::function<void()> run;
		bool ready = false, started = false;
		bool yields = false; /* it waits for one that comes after it */
	};
	/* Of the callbacks that the one on this thread registers; NULL: it runs none. */
	static std::shared_ptr<Sequence> current();
	/* This thread waits for a callback of this sequence, which must run although it may come after the one on this thread. */
	void yield();

	/* Takes a callback, which runs once it is ready and those before it have returned. */
	std::shared_ptr<Slot> add(std::function<void()> run);
	void ready(const std::shared_ptr<Slot> &slot);
	/* Whether there is none. */
	bool is_empty();
	/* Waits until there is none. False: not within that time; 0: no limit. */
	bool wait(std::chrono::milliseconds limit);

      private:
	void advance();
	void run(const std::shared_ptr<Slot> &slot);
	std::shared_ptr<Slot> next();

	std::mutex mutex_; /* of all below */
	std::condition_variable cv_;
	std::deque<std::shared_ptr<Slot>> slots_;
};

} // namespace fanin_torch

#endif
