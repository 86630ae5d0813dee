/* SPDX-License-Identifier: BSD-3-Clause */
/* The group's life: join, the thread that posts and completes, leave; its counters. See group.hh. */
#include "torch/group.hh"

#include <cstdio>
#include <exception>
#include <stdexcept>
#include <unistd.h>

namespace fanin_torch {

static std::mutex registry_mutex;
static std::vector<std::shared_ptr<Stats>> registry;

std::vector<std::shared_ptr<Stats>>
all_stats()
{
	std::lock_guard<std::mutex> lock(registry_mutex);

	return registry;
}

GroupWork::GroupWork(int rank, c10d::OpType type, std::vector<at::Tensor> inputs, c10::IValue outputs)
    : c10d::Work(rank, type), inputs_(std::move(inputs)), outputs_(std::move(outputs)),
      future_(c10::make_intrusive<c10::ivalue::Future>(outputs_.type()))
{
}

c10::intrusive_ptr<c10::ivalue::Future>
GroupWork::getFuture()
{
	return future_;
}

std::vector<at::Tensor>
GroupWork::result()
{
	TORCH_CHECK(isCompleted(), "the collective is not completed: call wait() before result()");
	if (outputs_.isTensorList())
		return outputs_.toTensorVector();
	TORCH_CHECK(outputs_.toListRef().size() == 1,
		    "the collective has several lists of outputs, result() has one");
	return outputs_.toListRef()[0].toTensorVector();
}

void
GroupWork::complete(std::exception_ptr error)
{
	if (error == nullptr)
		future_->markCompleted(outputs_);
	else
		future_->setError(error);
	finish(error);
}

static void
print_line(int level, const char *line, void *)
{
	if (level <= 1)
		std::fprintf(stderr, "fanin_torch: %s\n", line);
}

Group::Group(c10::intrusive_ptr<c10d::ProcessGroup> gloo, int rank, int size, const std::string &name)
    : c10d::ProcessGroup(rank, size), gloo_(std::move(gloo)), stats_(std::make_shared<Stats>()),
      gloo_reason_("the group has not chosen yet"), pid_(getpid())
{
	stats_->name = name;
	stats_->rank = rank;
	stats_->size = size;
	std::lock_guard<std::mutex> lock(registry_mutex);
	registry.push_back(stats_);
}

Group::~Group()
{
	close();
}

/* What the last failed call said, with the ranks that it missed. */
std::string
Group::failure(int status)
{
	std::string text = fanin_strerror(status);
	const char *said = comm_ != nullptr ? fanin_comm_error(comm_) : "";

	if (said[0] == '\0')
		said = fanin_ctx_error(ctx_);
	if (said[0] != '\0')
		text += std::string(": ") + said;
	std::vector<uint16_t> ranks(getSize());
	size_t n = fanin_ctx_missing_ranks(ctx_, ranks.data(), ranks.size());
	for (size_t i = 0; i < n && i < ranks.size(); i++)
		text += (i == 0 ? "; missing ranks of the group: " : ", ") + std::to_string(ranks[i]);
	return text;
}

std::string
Group::join(const JoinOptions &options)
{
	struct fanin_init_opts init = {};
	init.sz = sizeof(init);
	init.print = print_line;
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
	join.rank = static_cast<uint16_t>(getRank());
	join.fixed_rank = true;
	join.size = static_cast<uint16_t>(getSize());
	join.join_timeout_ms = static_cast<uint32_t>(options.join_timeout.count());
	/* A rank that is gone fails a collective after 5 s; one that is late after torch's timeout. */
	join.timeout_ms = static_cast<uint32_t>(std::min<int64_t>(5000, options.timeout.count()));
	join.wait_limit_ms = static_cast<uint64_t>(options.timeout.count());
	join.no_fallback = true; /* a ring of hosts would be Gloo by another name */
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
	stats_->job_name = options.job_name;
	stats_->transport = report.transport;
	stats_->handler = handler_ = report.handler;
	stats_->mode_reason = report.mode_reason;
	stats_->accumulates_f32 = report.accumulates_f32;
	return "";
}

void
Group::use_network(bool raises)
{
	TORCH_CHECK(comm_ != nullptr, "the group has not joined a job");
	raises_ = raises;
	gloo_reason_.clear();
	{
		std::lock_guard<std::mutex> lock(stats_->mutex);
		stats_->in_network = true;
		stats_->reason = stats_->mode_reason;
	}
	thread_ = std::thread([this] { run(); });
}

void
Group::use_gloo(const std::string &reason)
{
	fanin_finalize(ctx_);
	ctx_ = nullptr;
	comm_ = nullptr;
	gloo_reason_ = reason;
	std::lock_guard<std::mutex> lock(stats_->mutex);
	stats_->reason = reason;
}

bool
Group::accumulates_f32() const
{
	std::lock_guard<std::mutex> lock(stats_->mutex);

	return !stats_->in_network || stats_->accumulates_f32;
}

void
Group::close()
{
	/* In a forked process there is neither the thread nor, for it, the job. */
	if (getpid() != pid_) {
		if (thread_.joinable())
			thread_.detach();
		return;
	}
	{
		std::lock_guard<std::mutex> lock(mutex_);
		if (closed_)
			return;
		closed_ = closing_ = true;
	}
	cv_.notify_all();
	if (thread_.joinable())
		thread_.join();
	{
		std::unique_lock<std::mutex> lock(mutex_);
		cv_.wait(lock, [&] { return n_gloo_ == 0; });
	}
	fanin_finalize(ctx_);
	ctx_ = nullptr;
	comm_ = nullptr;
}

/* For the network. */
Group::WorkPtr
Group::start(const char *collective, c10d::OpType type, const Tensors &inputs, c10::IValue outputs,
	     std::vector<Part> parts, Moves moves)
{
	Task task;

	task.parts = std::move(parts);
	task.finish = all_of(std::move(moves));
	task.work = c10::make_intrusive<GroupWork>(getRank(), type, inputs, std::move(outputs));
	count_network(collective, bytes_of(inputs));
	return submit(std::move(task));
}

Group::WorkPtr
Group::submit(Task task)
{
	WorkPtr work = task.work;

	{
		std::lock_guard<std::mutex> lock(mutex_);
		TORCH_CHECK(!closing_, "the process group is closed");
		if (!task.gloo)
			queue_.push_back(std::move(task));
		else
			n_gloo_++;
	}
	if (task.gloo)
		follow_gloo(std::move(task));
	else
		cv_.notify_all();
	return work;
}

/* Does what is left of a task. error: what it has failed of, or NULL. */
static void
task_complete(Task &task, std::exception_ptr error)
{
	try {
		if (error == nullptr && task.finish) {
			at::NoGradGuard no_grad;
			task.finish();
		}
	} catch (...) {
		error = std::current_exception();
	}
	task.work->complete(error);
}

/* Gloo's threads complete it, so that it holds up nothing in the network. */
void
Group::follow_gloo(Task task)
{
	auto kept = std::make_shared<Task>(std::move(task));

	kept->gloo->getFuture()->addCallback([this, kept](c10::ivalue::Future &future) {
		task_complete(*kept, future.hasError() ? future.exception_ptr() : nullptr);
		std::lock_guard<std::mutex> lock(mutex_);
		n_gloo_--;
		cv_.notify_all();
	});
}

void
Group::run()
{
	std::deque<Task> posted;

	for (;;) {
		std::deque<Task> fresh;
		{
			std::unique_lock<std::mutex> lock(mutex_);
			cv_.wait(lock,
				 [&] { return closing_ || !queue_.empty() || !posted.empty(); });
			fresh.swap(queue_);
			if (fresh.empty() && posted.empty())
				return;
		}
		for (Task &task : fresh) {
			post(task);
			posted.push_back(std::move(task));
		}
		/* The oldest one first: what follows is on its way meanwhile. */
		finish(posted.front());
		posted.pop_front();
	}
}

void
Group::post(Task &task)
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

void
Group::finish(Task &task)
{
	std::exception_ptr error;

	/* Parts that are posted hold their buffers until they have been waited for, whatever became of the others. */
	std::string text;
	for (Part &part : task.parts) {
		if (part.request != nullptr) {
			int status = fanin_wait(&part.request);
			if (status != FANIN_OK && broken_.empty())
				broken_ = failure(status);
			if (status != FANIN_OK)
				text = broken_;
		} else {
			text = broken_;
		}
	}
	if (!text.empty())
		error = std::make_exception_ptr(std::runtime_error("fanin: " + text));
	refresh_stats();
	task_complete(task, error);
}

void
Group::refresh_stats()
{
	if (comm_ == nullptr)
		return;
	struct fanin_report report = {};
	report.sz = sizeof(report);
	fanin_comm_report(comm_, &report);
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

void
Group::count_network(const char *collective, uint64_t bytes)
{
	std::lock_guard<std::mutex> lock(stats_->mutex);
	Count &count = stats_->network[collective];

	count.calls++;
	count.bytes += bytes;
}

void
Group::count_gloo(const char *collective, const std::string &reason, uint64_t bytes)
{
	std::lock_guard<std::mutex> lock(stats_->mutex);
	Count &count = stats_->gloo[collective][reason];

	count.calls++;
	count.bytes += bytes;
}

} // namespace fanin_torch
