/* SPDX-License-Identifier: BSD-3-Clause */
/* See callbacks.hh. */
#include "torch/callbacks.hh"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <system_error>
#include <thread>

namespace fanin_torch {

using std::chrono::milliseconds;

#define IDLE std::chrono::seconds(10) /* that a thread waits for more */

namespace {

/* A callback that this thread runs. */
struct Frame {
	Frame *below; /* the one that it runs within, or NULL */
	std::shared_ptr<Sequence> outer;
	std::shared_ptr<Sequence::Slot> slot;
	std::shared_ptr<Sequence> inner;
};

class Pool {
      public:
	void run(std::function<void()> what);
	bool wait(milliseconds patience);

      private:
	void serve();

	std::mutex mutex_; /* of all below */
	std::condition_variable work_, rest_;
	std::deque<std::function<void()>> queue_;
	size_t n_idle_ = 0, n_busy_ = 0;
};

thread_local Frame *current_frame;

} // namespace

/* Never destroyed: its threads may still wait when the process ends. */
static Pool &
pool()
{
	static Pool *const the_pool = new Pool;

	return *the_pool;
}

/* Runs what is a callback, and those that it registers: they come before what follows it. slot: its place in outer, or NULL. */
static void
call(std::function<void()> what, std::shared_ptr<Sequence> outer, std::shared_ptr<Sequence::Slot> slot)
{
	Frame frame = { current_frame, std::move(outer), std::move(slot),
			std::make_shared<Sequence>() };

	current_frame = &frame;
	try {
		what();
	} catch (const std::exception &error) {
		std::fprintf(stderr, "fanin_torch: a callback of a future has failed: %s\n",
			     error.what());
	}
	what = nullptr;
	frame.inner->wait(milliseconds(0));
	current_frame = frame.below;
}

void
Pool::run(std::function<void()> what)
{
	{
		std::lock_guard<std::mutex> lock(mutex_);
		queue_.push_back(std::move(what));
		if (queue_.size() <= n_idle_) {
			work_.notify_one();
			return;
		}
	}
	try {
		std::thread([this] { serve(); }).detach();
	} catch (const std::system_error &error) {
		/* One that runs takes it later. */
		std::fprintf(stderr, "fanin_torch: no thread for a callback of a future: %s\n",
			     error.what());
	}
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
		call(std::move(what), nullptr, nullptr);
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

void
callback_run(std::function<void()> what)
{
	pool().run(std::move(what));
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

void
Sequence::yield()
{
	for (const Frame *frame = current_frame; frame != nullptr; frame = frame->below) {
		if (frame->outer.get() != this)
			continue;
		{
			std::lock_guard<std::mutex> lock(mutex_);
			frame->slot->yields = true;
		}
		advance();
	}
}

std::shared_ptr<Sequence::Slot>
Sequence::add(std::function<void()> run)
{
	auto slot = std::make_shared<Slot>();

	slot->run = std::move(run);
	std::lock_guard<std::mutex> lock(mutex_);
	slots_.push_back(slot);
	return slot;
}

void
Sequence::ready(const std::shared_ptr<Slot> &slot)
{
	{
		std::lock_guard<std::mutex> lock(mutex_);
		slot->ready = true;
	}
	advance();
}

/* The one whose turn it is, which is started now, or NULL. */
std::shared_ptr<Sequence::Slot>
Sequence::next()
{
	std::lock_guard<std::mutex> lock(mutex_);

	for (const std::shared_ptr<Slot> &slot : slots_) {
		if (slot->yields)
			continue;
		if (slot->started || !slot->ready)
			return nullptr;
		slot->started = true;
		return slot;
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

void
Sequence::run(const std::shared_ptr<Slot> &slot)
{
	call(std::move(slot->run), shared_from_this(), slot);
	{
		std::lock_guard<std::mutex> lock(mutex_);
		slots_.erase(std::find(slots_.begin(), slots_.end(), slot));
		cv_.notify_all();
	}
	advance();
}

bool
Sequence::is_empty()
{
	std::lock_guard<std::mutex> lock(mutex_);

	return slots_.empty();
}

bool
Sequence::wait(milliseconds limit)
{
	std::unique_lock<std::mutex> lock(mutex_);
	const auto is_done = [&] { return slots_.empty(); };

	if (limit.count() == 0) {
		cv_.wait(lock, is_done);
		return true;
	}
	return cv_.wait_for(lock, limit, is_done);
}

} // namespace fanin_torch
