/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Threads for the callbacks of futures. A callback may wait for collectives, and for other
 * callbacks: so it never runs on a thread that completes collectives, and each has a thread of its
 * own while it runs.
 *
 * Collectives are matched by the order in which each rank makes them, so the collectives of
 * callbacks must have a fixed place in that order: the place that they would have if then() ran the
 * callback at once, as it does with NCCL. Callbacks run in the order of then(), and the thread that
 * has called then() makes its next collective in that group only when they are done. A callback's
 * own callbacks come before anything that follows the callback. The needs of each callback are
 * recorded, so that no callback waits for one whose turn would come after its own.
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
 * Runs a function that completes a future, and so runs its callbacks, on a thread that has nothing
 * else to do: one that waits for work, or a new one; on this thread if no thread can be made. For
 * threads that complete collectives.
 */
void callback_complete(std::function<void()> what);
/*
 * Returns false in a callback on a thread that completes collectives or callbacks, which must not
 * wait for these.
 */
bool callback_can_wait();
/* Waits until all callbacks have returned. Returns false if they have not within that time. */
bool callbacks_wait(std::chrono::milliseconds patience);

class Sequence;

/* A callback, in its sequence. A mutex of callbacks.cc protects all fields. */
struct Slot {
	std::function<void()> run;
	Sequence *in = nullptr;          /* its sequence; NULL: that no longer exists */
	std::shared_ptr<Slot> after;     /* it is not ready before this one has a result */
	std::shared_ptr<Slot> awaits;    /* it runs, and waits for the result of this one */
	std::shared_ptr<Sequence> inner; /* it runs, and returns after the callbacks that it has
					    registered */
	bool ready = false, started = false, returned = false;
};

/*
 * The callbacks that a group's program has registered, or those that one callback has registered.
 * They run one after the other, in that order. A callback that earlier ones need, directly or not,
 * overtakes these, as they could not return otherwise. Any thread.
 */
class Sequence : public std::enable_shared_from_this<Sequence> {
      public:
	~Sequence();
	/*
	 * Returns the sequence of the callbacks that the callback on this thread registers; NULL:
	 * this thread runs none.
	 */
	static std::shared_ptr<Sequence> current();

	/*
	 * Adds a callback, which runs once it is ready and its turn has come. after: the callback
	 * whose result it takes, or NULL.
	 */
	std::shared_ptr<Slot> add(std::function<void()> run, std::shared_ptr<Slot> after);
	void ready(const std::shared_ptr<Slot> &slot);
	/* True if it has no callbacks. */
	bool is_empty();
	/*
	 * Waits until it has no callbacks. Returns false if it still has some after the limit; 0:
	 * no limit.
	 */
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
	std::deque<std::shared_ptr<Slot>> slots_; /* callbacks that have not returned */
};

/*
 * While an object of this class exists, the callback on this thread, if any, waits for the result
 * of another one.
 */
class Waiting {
      public:
	/* what: NULL: it waits for nothing. */
	explicit Waiting(const std::shared_ptr<Slot> &what);
	~Waiting();
	Waiting(const Waiting &) = delete;
	Waiting &operator=(const Waiting &) = delete;

      private:
	std::shared_ptr<Slot> waiter_;
};

} // namespace fanin_torch

#endif
