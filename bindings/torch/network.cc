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
Network::has_expired() const
{
	return Clock::now() >= until_;
}

bool
Network::interrupted(void *arg)
{
	const Network *network = static_cast<Network *>(arg);

	return network->aborted_ || network->has_fresh_ || network->has_expired();
}

/* Returns those of these other ranks that have left; "" if none has. */
std::string
Network::left_among(std::vector<int> ranks)
{
	std::string list;

	ranks.erase(std::remove(ranks.begin(), ranks.end(), rank_), ranks.end());
	for (int rank : notes_->left_among(ranks))
		list_add(&list, std::to_string(rank));
	return list;
}

/*
 * Returns a list of missing ranks, "" for none. Of a host with several, other hosts know only that
 * the host is missing: its ranks have told which of them it is, unless they are all gone. A rank
 * that has left its own host for another's fault has told whose.
 */
std::string
Network::missing_in_words(const std::vector<int> &ranks)
{
	const int own = hosts_.of[rank_];
	std::vector<std::string> notes(hosts_.ranks.size());
	std::vector<int> others;
	std::string list;

	for (int rank : ranks) {
		const int host = hosts_.of[rank];
		if (host == own && hosts_.ranks[own].size() > 1)
			notes[own] = notes_->read_failed({ own }, false)[0];
		else if (hosts_.ranks[host].size() > 1 &&
			 std::find(others.begin(), others.end(), host) == others.end())
			others.push_back(host);
	}
	const std::vector<std::string> found = notes_->read_failed(others, true);
	for (size_t i = 0; i < others.size(); i++)
		notes[others[i]] = found[i];
	for (int rank : ranks) {
		std::string &note = notes[hosts_.of[rank]];
		if (note.empty())
			list_add(&list, std::to_string(rank));
		else if (list.find(note) == std::string::npos)
			list_add(&list, note);
	}
	return list.empty() ? "" : "; missing ranks of the group: " + list;
}

/* Tells other hosts, which see only that this host fails, which of its ranks are the cause. */
void
Network::tell_hosts(const std::vector<int> &missing, int status, const std::string &text)
{
	const uint16_t host = hosts_.of[rank_];
	std::string list;

	if (hosts_.ranks[host].size() == 1)
		return;
	for (int rank : missing) {
		if (hosts_.of[rank] != host)
			return;
		list_add(&list, std::to_string(rank));
	}
	if (list.empty() && status == FANIN_ERR_REFUSED) {
		for (int rank : hosts_.ranks[host])
			list_add(&list, std::to_string(rank));
		list += " (" + text + ")";
	}
	if (!list.empty())
		notes_->write_failed(host, list);
}

/* Returns the error of the last failed call, with the ranks that were missing. */
std::string
Network::failure(int status)
{
	std::vector<uint16_t> found(hosts_.of.size());
	found.resize(
		std::min(fanin_ctx_missing_ranks(ctx_, found.data(), found.size()), found.size()));
	const std::vector<int> missing(found.begin(), found.end());
	std::string text = fanin_strerror(status);
	const char *said = comm_ != nullptr ? fanin_comm_error(comm_) : "";

	if (said[0] == '\0')
		said = fanin_ctx_error(ctx_);
	if (said[0] != '\0')
		text += std::string(": ") + said;
	/* Nobody can have left what this rank has not joined. */
	if (comm_ == nullptr)
		return text;
	/*
	 * A rank that leaves sends something else than the others expect, which then need not
	 * report it as missing.
	 */
	std::vector<int> suspects = missing;
	for (size_t rank = 0; missing.empty() && rank < hosts_.of.size(); rank++)
		suspects.push_back(static_cast<int>(rank));
	const std::string left = left_among(suspects);
	if (!left.empty())
		return missing.empty() ? text + "; " + left_in_words(left) : left_in_words(left);
	tell_hosts(missing, status, text);
	return text + missing_in_words(missing);
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
	join.rank = static_cast<uint16_t>(rank_);
	join.fixed_rank = true;
	join.size = static_cast<uint16_t>(hosts_.of.size());
	join.hosts = hosts_.of.data();
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
	const std::vector<int> &neighbors = hosts_.ranks[hosts_.of[rank_]];
	stats_->transport = neighbors[0] == rank_
				    ? report.transport
				    : "shared memory of rank " + std::to_string(neighbors[0]);
	stats_->handler = report.handler;
	stats_->mode_reason = report.mode_reason;
	stats_->accumulates_f32 = report.accumulates_f32;
	stats_->authenticated = report.authenticated;
	return "";
}

void
Network::begin()
{
	std::lock_guard<std::mutex> lock(mutex_);

	thread_ = std::thread([self = shared_from_this()] { self->run(); });
	thread_id_ = thread_.get_id();
}

bool
Network::submit(Task task)
{
	std::lock_guard<std::mutex> lock(mutex_);

	if (closing_)
		return false;
	queue_.push_back(std::move(task));
	has_fresh_ = true;
	wake();
	return true;
}

/* Wakes the thread, whatever it waits for. With the mutex. */
void
Network::wake()
{
	cv_.notify_all();
	fanin_ctx_interrupt(waiting_);
}

void
Network::abort(const std::string &why)
{
	std::lock_guard<std::mutex> lock(mutex_);

	why_aborted_ = why;
	aborted_ = true;
	wake();
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

bool
Network::await_done()
{
	std::unique_lock<std::mutex> lock(mutex_);

	if (thread_id_ == std::thread::id() || thread_id_ == std::this_thread::get_id())
		return false;
	cv_.wait(lock, [&] { return is_done_; });
	return true;
}

void
Network::let_leave()
{
	std::lock_guard<std::mutex> lock(mutex_);

	may_leave_ = true;
	cv_.notify_all();
}

void
Network::close()
{
	close_begin();
	let_leave();
	if (!thread_.joinable()) {
		fanin_finalize(ctx_);
		ctx_ = nullptr;
		return;
	}
	if (thread_.get_id() == std::this_thread::get_id()) {
		thread_.detach();
		return;
	}
	await_done();
	std::unique_lock<std::mutex> lock(mutex_);
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
		bool is_aborted;
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
			has_fresh_ = false;
			is_aborted = aborted_;
			if (is_aborted)
				broken_ = why_aborted_;
			if (closing_ && fresh.empty() && posted.empty())
				break;
		}
		/* Buffers in flight are in use until the job is left. */
		if (is_aborted)
			leave();
		for (Task &task : fresh) {
			post(task);
			posted.push_back(std::move(task));
		}
		/* The oldest one is waited for first: the others are in flight meanwhile. */
		if (posted.empty())
			continue;
		const auto expires = [&](const Task &task) { return task.until(last_done_); };
		const auto next = std::min_element(posted.begin(), posted.end(),
						   [&](const Task &a, const Task &b) {
							   return expires(a) < expires(b);
						   });
		until_ = expires(*next);
		waits(ctx_);
		const bool is_done = finish(posted.front());
		waits(nullptr);
		if (!is_done && !aborted_ && has_expired())
			expire(*next);
		until_ = Clock::time_point::max();
		if (is_done) {
			posted.pop_front();
			last_done_ = Clock::now();
		}
	}
	{
		std::unique_lock<std::mutex> lock(mutex_);
		is_done_ = true;
		cv_.notify_all();
		/* The job is looked after meanwhile: another group's calls may take long. */
		while (!cv_.wait_for(lock, std::chrono::milliseconds(100),
				     [&] { return may_leave_; }))
			fanin_progress(ctx_);
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

/* ctx: the context that the thread waits on now, or NULL. */
void
Network::waits(fanin_ctx *ctx)
{
	std::lock_guard<std::mutex> lock(mutex_);

	waiting_ = ctx;
	if (has_fresh_ || aborted_)
		fanin_ctx_interrupt(ctx);
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

/* Ends the job because a task has not ended within its own timeout. */
void
Network::expire(const Task &task)
{
	std::vector<uint16_t> found(hosts_.of.size());

	found.resize(std::min(fanin_comm_missing_ranks(comm_, found.data(), found.size()),
			      found.size()));
	const std::vector<int> late(found.begin(), found.end());
	const std::string text = "no result within the collective's timeout of " +
				 std::to_string(task.timeout.count()) + " ms";
	/* The others of this host see only that this rank leaves. */
	std::string list;
	for (int rank : late)
		list_add(&list, std::to_string(rank));
	if (!late.empty() && hosts_.ranks[hosts_.of[rank_]].size() > 1)
		notes_->write_failed(hosts_.of[rank_], list);
	abort(text + missing_in_words(late));
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
		if (part.done) {
			text = part.status != FANIN_OK ? broken_ : text;
			continue;
		}
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
		part.status = status;
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
	stats_->shared_bytes = report.local_bytes;
	stats_->sparse_bytes = report.shard_bytes_sent;
	stats_->sparse_dense_bytes = report.sparse_dense_bytes;
	if (!broken_.empty() && !stats_->failed) {
		stats_->failed = true;
		stats_->reason = broken_;
	}
}

} // namespace fanin_torch
