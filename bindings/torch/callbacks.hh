/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Threads for the callbacks of futures. A callback may wait for collectives, and for other
 * callbacks: so it never runs on a thread that completes collectives, and each has a thread of its
 * own while it runs.
 *
 * Which collective is which depends on the order in which a rank makes them, so that those of
 * callbacks must have their place in it: the one that they would have if then() ran the callback at
 * once, as it does with NCCL. Callbacks run in the order of then(), and the thread that has called
 * then() makes its next collective in that group only when they are done. A callback's own
 * callbacks come before what follows it. What has to wait for what is known of each callback, so
 * that none waits for one whose turn would come after its own.
 */
#ifndef FANIN_TORCH_CALLBACKS_HH
#define FANIN_TORCH_CALLBACKS_HH

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_set>

namespace fanin_torch {

/*
 * Runs what completes a future, and so its callbacks, on a thread that has nothing else to do: one
 * that waits for work, or a new one; on this thread if none can be made. Threads that complete
 * collectives.
 */
void callback_complete(std::function<void()> what);
/*
 * Whether what runs on this thread may wait for collectives and callbacks: not in a callback on a
 * thread that completes these.
 */
bool callback_can_wait();
/* Waits until all have returned. False: not within that time. */
bool callbacks_wait(std::chrono::milliseconds patience);

class Sequence;

/* A callback, in its sequence. All of it is under a mutex of callbacks.cc. */
struct Slot {
	std::function<void()> run;
	Sequence *in = nullptr;          /* its sequence; NULL: that is gone */
	std::shared_ptr<Slot> after;     /* not ready before this one has a result */
	std::shared_ptr<Slot> awaits;    /* it runs, and waits for this one's result */
	std::shared_ptr<Sequence> inner; /* it runs, and returns after those that it has registered
					  */
	bool ready = false, started = false, returned = false;
};

/*
 * The callbacks that a group's program has registered, or one that a callback has. They run one
 * after the other, in that order; but one that others before it need, directly or not, passes
 * these, as they could not return otherwise. Any thread.
 */
class Sequence : public std::enable_shared_from_this<Sequence> {
      public:
	~Sequence();
	/* Of the callbacks that the one on this thread registers; NULL: it runs none. */
	static std::shared_ptr<Sequence> current();

	/*
	 * Takes a callback, which runs once it is ready and its turn has come. after: the one whose
	 * result it takes, or NULL.
	 */
	std::shared_ptr<Slot> add(std::function<void()> run, std::shared_ptr<Slot> after);
	void ready(const std::shared_ptr<Slot> &slot);
	/* Whether there is none. */
	bool is_empty();
	/* Waits until there is none. False: not within that time; 0: no limit. */
	bool wait(std::chrono::milliseconds limit);

      private:
	using Slots = std::unordered_set<const Slot *>;

	static void need(const Slot *slot, Slots *needed);
	static void look_at_needs_of(const std::shared_ptr<Slot> &slot);
	friend class Waiting;
	void advance();
	void run(std::shared_ptr<Slot> slot);
	std::shared_ptr<Slot> next();
	void remove(const std::shared_ptr<Slot> &slot);

	std::condition_variable cv_;
	std::deque<std::shared_ptr<Slot>> slots_; /* that have not returned */
};

/* While there is one, the callback on this thread, if any, waits for the result of another one. */
class Waiting {
      public:
	/* what: NULL: for nothing. */
	explicit Waiting(const std::shared_ptr<Slot> &what);
	~Waiting();
	Waiting(const Waiting &) = delete;
	Waiting &operator=(const Waiting &) = delete;

      private:
	std::shared_ptr<Slot> waiter_;
};

} // namespace fanin_torch

#endif
