/* SPDX-License-Identifier: BSD-3-Clause */
/* See callbacks.hh. */
#include "bindings/torch/callbacks.hh"

#include "bindings/torch/process.hh"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

namespace fanin_torch {

using std::chrono::milliseconds;

#define IDLE std::chrono::seconds(10) /* maximum time for which a thread waits for more */

namespace {

/* A callback that this thread runs. */
struct Frame {
	Frame *below;               /* the frame that it runs within, or NULL */
	std::shared_ptr<Slot> slot; /* NULL: it is not in a sequence */
	std::shared_ptr<Sequence> inner;
};

class Pool {
      public:
	/* Runs the function. Returns false if no thread can be made: it does not run then. */
	bool run(std::function<void()> &what);
	bool wait(milliseconds patience);

      private:
	void serve();

	std::mutex mutex_; /* protects all fields below */
	std::condition_variable work_, rest_;
	std::deque<std::function<void()>> queue_;
	size_t n_idle_ = 0, n_busy_ = 0;
	bool has_told_ = false; /* that a thread could not be made has been reported */
};

thread_local Frame *current_frame;
thread_local bool completes; /* this thread runs callbacks that should have another thread */

} // namespace

static Pool &
pool()
{
	return OfProcess<Pool>::get();
}

/*
 * Returns the mutex of all slots and sequences. No thread needs the GIL while it holds the mutex.
 */
static std::mutex &
slots_mutex()
{
	return OfProcess<std::mutex>::get();
}

/*
 * Runs a callback, and the callbacks that it registers, which come before anything that follows it.
 * slot: its place, or NULL.
 */
static void
call(std::function<void()> what, std::shared_ptr<Slot> slot)
{
	Frame frame = { current_frame, std::move(slot), std::make_shared<Sequence>() };

	if (frame.slot != nullptr) {
		std::lock_guard<std::mutex> lock(slots_mutex());
		frame.slot->inner = frame.inner;
	}
	current_frame = &frame;
	try {
		what();
	} catch (const std::exception &error) {
		std::fprintf(stderr, "fanin_torch: a callback of a future has failed: %s\n",
			     error.what());
	}
	what = nullptr;
	if (!completes)
		frame.inner->wait(milliseconds(0));
	current_frame = frame.below;
}

bool
Pool::run(std::function<void()> &what)
{
	std::lock_guard<std::mutex> lock(mutex_);

	if (queue_.size() >= n_idle_) {
		try {
			std::thread([this] { serve(); }).detach();
		} catch (const std::system_error &error) {
			if (!has_told_)
				std::fprintf(
					stderr,
					"fanin_torch: no thread for callbacks of futures: %s; they run on "
					"the thread that completes these, where none can wait\n",
					error.what());
			has_told_ = true;
			return false;
		}
	}
	queue_.push_back(std::move(what));
	work_.notify_one();
	return true;
}

void
Pool::serve()
{
	std::unique_lock<std::mutex> lock(mutex_);

	for (;;) {
		n_idle_++;
		const bool has_more = work_.wait_for(lock, IDLE, [&] { return !queue_.empty(); });
		n_idle_--;
		if (!has_more)
			return;
		std::function<void()> what = std::move(queue_.front());
		queue_.pop_front();
		n_busy_++;
		lock.unlock();
		call(std::move(what), nullptr);
		lock.lock();
		n_busy_--;
		rest_.notify_all();
	}
}

bool
Pool::wait(milliseconds patience)
{
	std::unique_lock<std::mutex> lock(mutex_);

	return rest_.wait_for(lock, patience, [&] { return queue_.empty() && n_busy_ == 0; });
}

static void
callback_run(std::function<void()> what)
{
	if (!pool().run(what))
		call(std::move(what), nullptr);
}

void
callback_complete(std::function<void()> what)
{
	if (pool().run(what))
		return;
	completes = true;
	call(std::move(what), nullptr);
	completes = false;
}

bool
callback_can_wait()
{
	return !completes;
}

bool
callbacks_wait(milliseconds patience)
{
	return pool().wait(patience);
}

std::shared_ptr<Sequence>
Sequence::current()
{
	return current_frame == nullptr ? nullptr : current_frame->inner;
}

Sequence::~Sequence()
{
	std::lock_guard<std::mutex> lock(slots_mutex());

	for (const std::shared_ptr<Slot> &slot : slots_)
		slot->in = nullptr;
}

/* Adds the callbacks that have to return, or begin, before this one returns. With the mutex. */
void
Sequence::need(const Slot *slot, Slots *needed)
{
	std::vector<const Slot *> todo = { slot };
	const auto see = [&](const std::shared_ptr<Slot> &other) {
		if (other != nullptr && !other->returned && needed->insert(other.get()).second)
			todo.push_back(other.get());
	};

	while (!todo.empty()) {
		const Slot *const one = todo.back();
		todo.pop_back();
		see(one->after);
		see(one->awaits);
		if (one->inner != nullptr)
			for (const std::shared_ptr<Slot> &other : one->inner->slots_)
				see(other);
		if (one->started || one->in == nullptr)
			continue;
		for (const std::shared_ptr<Slot> &other : one->in->slots_) {
			if (other.get() == one)
				break;
			see(other);
		}
	}
}

/*
 * Called when a callback begins to wait for this one: the callbacks that this one needs may
 * overtake the waiting one.
 */
void
Sequence::look_at_needs_of(const std::shared_ptr<Slot> &slot)
{
	std::unordered_set<std::shared_ptr<Sequence>> sequences;

	{
		std::lock_guard<std::mutex> lock(slots_mutex());
		Slots needed = { slot.get() };
		need(slot.get(), &needed);
		for (const Slot *one : needed)
			if (!one->started && one->in != nullptr)
				sequences.insert(one->in->weak_from_this().lock());
	}
	sequences.erase(nullptr);
	for (const std::shared_ptr<Sequence> &sequence : sequences)
		sequence->advance();
}

std::shared_ptr<Slot>
Sequence::add(std::function<void()> run, std::shared_ptr<Slot> after)
{
	auto slot = std::make_shared<Slot>();
	const bool needs_another = after != nullptr;

	slot->run = std::move(run);
	slot->in = this;
	slot->after = std::move(after);
	{
		std::lock_guard<std::mutex> lock(slots_mutex());
		slots_.push_back(slot);
	}
	if (needs_another)
		look_at_needs_of(slot);
	return slot;
}

void
Sequence::ready(const std::shared_ptr<Slot> &slot)
{
	std::shared_ptr<Slot> dropped; /* released without the mutex */

	{
		std::lock_guard<std::mutex> lock(slots_mutex());
		slot->ready = true;
		dropped.swap(slot->after);
	}
	advance();
}

/* Starts the callback whose turn it is, and returns it, or NULL. */
std::shared_ptr<Slot>
Sequence::next()
{
	std::lock_guard<std::mutex> lock(slots_mutex());
	Slots passing; /* callbacks of this sequence that all earlier ones need */

	for (const std::shared_ptr<Slot> &slot : slots_) {
		const bool is_first = slot == slots_.front();
		if (!slot->started && slot->ready && (is_first || passing.count(slot.get()) != 0)) {
			slot->started = true;
			return slot;
		}
		Slots needed, both;
		need(slot.get(), &needed);
		for (const Slot *one : needed)
			if (one->in == this && (is_first || passing.count(one) != 0))
				both.insert(one);
		passing.swap(both);
		if (passing.empty())
			return nullptr;
	}
	return nullptr;
}

void
Sequence::advance()
{
	std::shared_ptr<Slot> slot = next();

	if (slot != nullptr)
		callback_run([self = shared_from_this(), slot] { self->run(slot); });
}

/* Runs this callback, and those whose turn comes after it. */
void
Sequence::run(std::shared_ptr<Slot> slot)
{
	for (; slot != nullptr; slot = next()) {
		call(std::move(slot->run), slot);
		remove(slot);
	}
}

void
Sequence::remove(const std::shared_ptr<Slot> &slot)
{
	std::shared_ptr<Sequence> dropped; /* released without the mutex */
	std::lock_guard<std::mutex> lock(slots_mutex());

	dropped.swap(slot->inner);
	slot->returned = true;
	slots_.erase(std::find(slots_.begin(), slots_.end(), slot));
	cv_.notify_all();
}

bool
Sequence::is_empty()
{
	std::lock_guard<std::mutex> lock(slots_mutex());

	return slots_.empty();
}

bool
Sequence::wait(milliseconds limit)
{
	std::unique_lock<std::mutex> lock(slots_mutex());
	const auto is_done = [&] { return slots_.empty(); };

	if (limit.count() == 0) {
		cv_.wait(lock, is_done);
		return true;
	}
	return cv_.wait_for(lock, limit, is_done);
}

Waiting::Waiting(const std::shared_ptr<Slot> &what)
{
	const Frame *frame = current_frame;

	while (frame != nullptr && frame->slot == nullptr)
		frame = frame->below;
	if (frame == nullptr || what == nullptr)
		return;
	waiter_ = frame->slot;
	{
		std::lock_guard<std::mutex> lock(slots_mutex());
		waiter_->awaits = what;
	}
	Sequence::look_at_needs_of(what);
}

Waiting::~Waiting()
{
	std::shared_ptr<Slot> dropped; /* released without the mutex */

	if (waiter_ == nullptr)
		return;
	std::lock_guard<std::mutex> lock(slots_mutex());
	dropped.swap(waiter_->awaits);
}

} // namespace fanin_torch
