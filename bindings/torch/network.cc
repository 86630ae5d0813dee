/* SPDX-License-Identifier: BSD-3-Clause */
/* Joins, posts and waits. See network.hh. */
#include "bindings/torch/network.hh"

#include "bindings/torch/process.hh"

#include <algorithm>
#include <cstdio>

namespace fanin_torch {

#define PATIENCE                                                                                   \
	std::chrono::seconds(2) /* also the time for other ranks to come and leave together */
#define LONGEST_LEAVE std::chrono::seconds(10)

namespace {

/* Groups that leave in the background. */
struct Leaving {
	std::mutex mutex;
	std::condition_variable cv;
	size_t n = 0;
};

} // namespace

/*
 * Prints the library's errors and warnings. While leaving, warnings are left out: they are about
 * results that this rank has already, or ranks that come later.
 */
void
Network::print_line(int level, const char *line, void *arg)
{
	if (level <= (static_cast<Network *>(arg)->leaving_ ? 0 : 1))
		std::fprintf(stderr, "fanin_torch: %s\n", line);
}

bool
Network::interrupted(void *arg)
{
	return static_cast<Network *>(arg)->aborted_;
}

/* Returns the first ranks of those of these hosts that have left; "" if none has. */
std::string
Network::left_among(const std::vector<uint16_t> &hosts)
{
	std::string ranks;

	for (uint16_t host : hosts)
		if (host != layout_.host() && notes_->has_left(host))
			ranks += (ranks.empty() ? "" : ", ") +
				 std::to_string(layout_.hosts[host][0]);
	return ranks;
}

/* Returns the error of the last failed call, with the ranks that were missing. */
std::string
Network::failure(int status)
{
	std::vector<uint16_t> hosts(layout_.hosts.size());
	size_t n = std::min(fanin_ctx_missing_ranks(ctx_, hosts.data(), hosts.size()),
			    hosts.size());
	std::string text = fanin_strerror(status);
	const char *said = comm_ != nullptr ? fanin_comm_error(comm_) : "";

	if (said[0] == '\0')
		said = fanin_ctx_error(ctx_);
	if (said[0] != '\0')
		text += std::string(": ") + said;
	if (!layout_.is_flat())
		text += " (ranks of the job are hosts)";
	/*
	 * A rank that leaves sends something else than the others expect, which then need not
	 * report it as missing.
	 */
	std::vector<uint16_t> suspects(hosts.begin(), hosts.begin() + static_cast<ptrdiff_t>(n));
	for (uint16_t host = 0; n == 0 && host < hosts.size(); host++)
		suspects.push_back(host);
	const std::string left = left_among(suspects);
	if (!left.empty())
		return n == 0 ? text + "; " + left_in_words(left) : left_in_words(left);
	for (size_t i = 0; i < n; i++) {
		std::string note;
		if (layout_.hosts[hosts[i]].size() > 1)
			note = notes_->read(hosts[i]);
		if (note.empty())
			note = layout_.name_of_host(hosts[i]);
		text += (i == 0 ? "; missing ranks of the group: " : ", ") + note;
	}
	return text;
}

std::string
Network::join(const JoinOptions &options)
{
	struct fanin_init_opts init = {};
	init.sz = sizeof(init);
	init.print = print_line;
	init.print_arg = this;
	init.interrupt = interrupted;
	init.interrupt_arg = this;
	int status = fanin_init(&init, &ctx_);
	if (status != FANIN_OK) {
		ctx_ = nullptr;
		return fanin_strerror(status);
	}

	struct fanin_join_opts join = {};
	join.sz = sizeof(join);
	join.job_name = options.job_name.c_str();
	join.manager = options.manager.empty() ? nullptr : options.manager.c_str();
	join.interface = options.interface.empty() ? nullptr : options.interface.c_str();
	join.handler = options.handler.c_str();
	join.rank = static_cast<uint16_t>(layout_.host());
	join.fixed_rank = true;
	join.size = static_cast<uint16_t>(layout_.hosts.size());
	join.join_timeout_ms = static_cast<uint32_t>(options.join_timeout.count());
	/*
	 * A rank that is gone fails a collective after 5 s; a late one fails it after torch's
	 * timeout.
	 */
	join.timeout_ms = static_cast<uint32_t>(std::min<int64_t>(5000, options.timeout.count()));
	join.wait_limit_ms = static_cast<uint64_t>(options.timeout.count());
	join.no_fallback = true; /* a ring of hosts would only replace Gloo */
	join.accumulate_f32 = options.accumulate_f32;
	join.authenticate = options.authenticate;
	join.reproducible = options.reproducible;
	status = fanin_join(ctx_, &join, &comm_);
	if (status != FANIN_OK) {
		std::string text = failure(status);
		fanin_finalize(ctx_);
		ctx_ = nullptr;
		return text;
	}
	std::lock_guard<std::mutex> lock(stats_->mutex);
	struct fanin_report report = {};
	report.sz = sizeof(report);
	fanin_comm_report(comm_, &report);
	stats_->transport = report.transport;
	stats_->handler = report.handler;
	stats_->mode_reason = report.mode_reason;
	stats_->accumulates_f32 = report.accumulates_f32;
	stats_->authenticated = report.authenticated;
	return "";
}

void
Network::begin()
{
	thread_ = std::thread([self = shared_from_this()] { self->run(); });
}

void
Network::submit(Task task)
{
	std::lock_guard<std::mutex> lock(mutex_);

	queue_.push_back(std::move(task));
	cv_.notify_all();
}

void
Network::abort(const std::string &why)
{
	std::lock_guard<std::mutex> lock(mutex_);

	why_aborted_ = why;
	aborted_ = true;
	cv_.notify_all();
}

void
Network::close_begin()
{
	std::lock_guard<std::mutex> lock(mutex_);

	closing_ = true;
	cv_.notify_all();
}

/* Once a group is being left in the background, other groups need not be waited for one by one. */
static std::chrono::seconds
patience_left()
{
	Leaving &leaving = OfProcess<Leaving>::get();
	std::lock_guard<std::mutex> lock(leaving.mutex);

	return leaving.n == 0 ? PATIENCE : std::chrono::seconds(0);
}

void
Network::close()
{
	close_begin();
	if (!thread_.joinable()) {
		fanin_finalize(ctx_);
		ctx_ = nullptr;
		return;
	}
	if (thread_.get_id() == std::this_thread::get_id()) {
		thread_.detach();
		return;
	}
	std::unique_lock<std::mutex> lock(mutex_);
	cv_.wait(lock, [&] { return is_done_; });
	if (cv_.wait_for(lock, patience_left(), [&] { return has_left_; })) {
		lock.unlock();
		thread_.join();
		return;
	}
	in_background_ = true;
	Leaving &leaving = OfProcess<Leaving>::get();
	std::lock_guard<std::mutex> also(leaving.mutex);
	leaving.n++;
	thread_.detach();
}

void
Network::await_leaving()
{
	Leaving &leaving = OfProcess<Leaving>::get();
	std::unique_lock<std::mutex> lock(leaving.mutex);

	leaving.cv.wait_for(lock, LONGEST_LEAVE, [&] { return leaving.n == 0; });
}

void
Network::leave()
{
	if (ctx_ == nullptr)
		return;
	refresh_stats();
	/*
	 * Collectives that this rank has not posted must fail at the others, which must not take
	 * this for the end of the job.
	 */
	if (aborted_ || !broken_.empty())
		fanin_abort(comm_);
	fanin_finalize(ctx_);
	ctx_ = nullptr;
	comm_ = nullptr;
}

void
Network::run()
{
	std::deque<Task> posted;

	for (;;) {
		std::deque<Task> fresh;
		{
			std::unique_lock<std::mutex> lock(mutex_);
			/*
			 * The program may compute for long, and the job is looked after meanwhile:
			 * the manager may be gone, or back.
			 */
			while (!cv_.wait_for(lock, std::chrono::milliseconds(100), [&] {
				return closing_ || !queue_.empty() || !posted.empty() ||
				       (aborted_ && ctx_ != nullptr);
			}))
				fanin_progress(ctx_);
			fresh.swap(queue_);
			if (aborted_)
				broken_ = why_aborted_;
			if (closing_ && fresh.empty() && posted.empty())
				break;
		}
		/* Buffers in flight are in use until the job is left. */
		if (aborted_)
			leave();
		for (Task &task : fresh) {
			post(task);
			posted.push_back(std::move(task));
		}
		/* The oldest one is waited for first: the others are in flight meanwhile. */
		if (!posted.empty() && finish(posted.front()))
			posted.pop_front();
	}
	{
		std::lock_guard<std::mutex> lock(mutex_);
		is_done_ = true;
		cv_.notify_all();
	}
	leaving_ = true;
	leave();
	std::lock_guard<std::mutex> lock(mutex_);
	has_left_ = true;
	cv_.notify_all();
	if (in_background_) {
		Leaving &leaving = OfProcess<Leaving>::get();
		std::lock_guard<std::mutex> also(leaving.mutex);
		leaving.n--;
		leaving.cv.notify_all();
	}
}

void
Network::post(Task &task)
{
	for (Part &part : task.parts) {
		if (!broken_.empty())
			return;
		if (part_post(&part, comm_) != FANIN_OK) {
			broken_ = failure(part.status);
			return;
		}
	}
}

/*
 * Waits for a task's parts. Returns false if it was interrupted, and the task is still in flight.
 */
bool
Network::finish(Task &task)
{
	/*
	 * Posted parts use their buffers until they have been waited for, even after others have
	 * failed.
	 */
	std::string text;
	for (Part &part : task.parts) {
		if (part.done)
			continue;
		if (part.request == nullptr || ctx_ == nullptr) {
			text = broken_;
			continue;
		}
		int status = fanin_wait(&part.request);
		if (status == FANIN_ERR_INTERRUPTED)
			return false;
		if (status != FANIN_OK && broken_.empty())
			broken_ = failure(status);
		if (status != FANIN_OK)
			text = broken_;
		part.done = true;
	}
	refresh_stats();
	task.done(text);
	return true;
}

void
Network::refresh_stats()
{
	struct fanin_report report = {};

	report.sz = sizeof(report);
	if (comm_ == nullptr || fanin_comm_report(comm_, &report) != FANIN_OK)
		return;
	std::lock_guard<std::mutex> lock(stats_->mutex);
	stats_->blocks = report.blocks;
	stats_->bytes_reduced = report.bytes_reduced;
	stats_->retransmits = report.retransmits;
	stats_->sparse_bytes = report.shard_bytes_sent;
	stats_->sparse_dense_bytes = report.sparse_dense_bytes;
	if (!broken_.empty() && !stats_->failed) {
		stats_->failed = true;
		stats_->reason = broken_;
	}
}

} // namespace fanin_torch
