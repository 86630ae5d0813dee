/* SPDX-License-Identifier: BSD-3-Clause */
/* The group's life: join, complete, leave; its counters. See group.hh. */
#include <Python.h>

#include "bindings/torch/group.hh"
#include "bindings/torch/process.hh"

#include <exception>
#include <stdexcept>
#include <unistd.h>

namespace fanin_torch {

static const char no_thread[] =
	"fanin: no thread could be made for the callback of a future, which can't make collectives or wait here";

static const char is_closed[] = "fanin: the process group is closed",
		  was_aborted[] = "the process group was aborted";

namespace {

/* All groups that this process has made. */
struct Registry {
	std::mutex mutex;
	std::vector<std::shared_ptr<Stats>> groups;
};

} // namespace

std::vector<std::shared_ptr<Stats>>
all_stats()
{
	Registry &registry = OfProcess<Registry>::get();
	std::lock_guard<std::mutex> lock(registry.mutex);

	return registry.groups;
}

GroupWork::GroupWork(int rank, c10d::OpType type, std::vector<at::Tensor> inputs,
		     c10::IValue outputs, std::shared_ptr<Sequence> its_sequence)
    : c10d::Work(rank, type), sequence(std::move(its_sequence)), inputs_(std::move(inputs)),
      outputs_(std::move(outputs)),
      future_(c10::make_intrusive<c10::ivalue::Future>(outputs_.type()))
{
}

c10::intrusive_ptr<c10::ivalue::Future>
GroupWork::getFuture()
{
	std::lock_guard<std::mutex> lock(future_mutex_);

	future_is_shared_ = true;
	return future_;
}

bool
GroupWork::isCompleted()
{
	return Work::isCompleted() && future_->completed();
}

/* Waits for the future, too: the caller finds it completed. */
bool
GroupWork::wait(std::chrono::milliseconds timeout)
{
	std::exception_ptr error;

	TORCH_CHECK(isCompleted() || callback_can_wait(), no_thread);
	try {
		Work::wait(timeout);
	} catch (...) {
		error = std::current_exception();
	}
	if (Work::isCompleted())
		future_->wait();
	if (error != nullptr)
		std::rethrow_exception(error);
	return true;
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
	auto settle = [future = future_, outputs = outputs_, error] {
		if (error == nullptr)
			future->markCompleted(outputs);
		else
			future->setError(error);
	};
	/* The work is completed first, as callbacks must find it completed. */
	finish(error);
	{
		std::lock_guard<std::mutex> lock(future_mutex_);
		if (!future_is_shared_) {
			settle(); /* The future has no callbacks. */
			return;
		}
	}
	/* Callbacks may run here, and may ask for the future. */
	callback_complete(settle);
}

Group::Group(c10::intrusive_ptr<Base> gloo, c10::intrusive_ptr<c10d::Store> store, int rank,
	     int size, const std::string &name, std::chrono::milliseconds timeout)
    : Base(rank, size), gloo_(std::move(gloo)), stats_(std::make_shared<Stats>()),
      notes_(std::make_shared<Notes>(std::move(store))),
      gloo_reason_("the group has not chosen yet"), timeout_(timeout), pid_(getpid())
{
	stats_->name = name;
	stats_->rank = rank;
	stats_->size = size;
	Registry &registry = OfProcess<Registry>::get();
	std::lock_guard<std::mutex> lock(registry.mutex);
	registry.groups.push_back(stats_);
}

Group::~Group()
{
	close();
}

std::string
Group::join(const JoinOptions &options, const std::vector<uint16_t> &hosts)
{
	TORCH_CHECK(hosts.size() == static_cast<size_t>(getSize()), "hosts: found ", hosts.size(),
		    " entries, expected one for each of ", getSize(), " ranks");
	Hosts placed(hosts);
	{
		std::lock_guard<std::mutex> lock(stats_->mutex);
		stats_->job_name = options.job_name;
		stats_->hosts = placed.ranks;
	}
	Network::await_leaving(); /* Earlier groups may hold the slots that it needs. */
	network_ = std::make_shared<Network>(std::move(placed), stats_, notes_);
	return network_->join(options);
}

void
Group::use_network(bool raises)
{
	TORCH_CHECK(network_ != nullptr, "the group has not joined a job");
	raises_ = raises;
	gloo_reason_.clear();
	{
		std::lock_guard<std::mutex> lock(stats_->mutex);
		stats_->in_network = true;
		stats_->reason = stats_->mode_reason;
	}
	network_->begin();
}

void
Group::use_gloo(const std::string &reason)
{
	if (network_ != nullptr)
		network_->close();
	network_.reset();
	gloo_reason_ = reason;
	std::lock_guard<std::mutex> lock(stats_->mutex);
	stats_->reason = reason;
}

bool
Group::accumulates_f32() const
{
	std::lock_guard<std::mutex> lock(stats_->mutex);

	return network_ == nullptr || stats_->accumulates_f32;
}

void
Group::close_begin()
{
	if (getpid() != pid_)
		return;
	{
		std::lock_guard<std::mutex> lock(mutex_);
		if (closing_)
			return;
		closing_ = true;
	}
	if (network_ != nullptr)
		network_->close_begin();
}

void
Group::close_done()
{
	if (getpid() != pid_)
		return;
	close_begin();
	if (network_ == nullptr || !network_->await_done())
		return;
	/* This thread writes the note: the network's looks after the job meanwhile. */
	if (!has_failed())
		notes_->write_left(getRank());
	network_->let_leave();
}

void
Group::close()
{
	/*
	 * A forked process has neither the threads nor a part in the job: everything that they use
	 * is left as it is, and never destroyed.
	 */
	if (getpid() != pid_) {
		new std::shared_ptr<Network>(std::move(network_));
		new std::shared_ptr<Notes>(std::move(notes_));
		new std::shared_ptr<Sequence>(sequence_);
		new c10::intrusive_ptr<Base>(std::move(gloo_));
		return;
	}
	{
		std::lock_guard<std::mutex> lock(mutex_);
		if (closed_)
			return;
		closed_ = true;
	}
	close_done();
	if (network_ != nullptr)
		network_->close();
	std::unique_lock<std::mutex> lock(pending_->mutex);
	if (!is_aborted()) {
		pending_->cv.wait(lock, [&] { return pending_->n == 0; });
	} else if (pending_->n != 0) {
		/* Never destroyed: that would wait for what runs. */
		new c10::intrusive_ptr<Base>(gloo_);
	}
}

void
Group::end()
{
	TORCH_CHECK(callback_can_wait(), no_thread);
	close();
	gloo_.reset();
}

void
Group::abort()
{
	TORCH_CHECK(getpid() == pid_, "fanin: the process group is of another process");
	{
		std::lock_guard<std::mutex> lock(mutex_);
		aborted_ = true;
	}
	if (network_ != nullptr)
		network_->abort(was_aborted);
}

void
Group::shutdown()
{
	close();
}

/* Finishes a collective and completes its work. error: why it failed, or NULL. */
static void
complete(GroupWork &work, const std::function<void()> &finish, std::exception_ptr error)
{
	try {
		if (error == nullptr && finish) {
			/*
			 * Tensors of inference mode can only be written in that mode; others can be
			 * written in it, too.
			 */
			c10::InferenceMode inference;
			finish();
		}
	} catch (...) {
		error = std::current_exception();
	}
	work.complete(error);
}

bool
Group::has_failed() const
{
	std::lock_guard<std::mutex> lock(stats_->mutex);

	return stats_->failed;
}

bool
Group::is_aborted()
{
	std::lock_guard<std::mutex> lock(mutex_);

	return aborted_;
}

std::string
Group::handler_of_job() const
{
	std::lock_guard<std::mutex> lock(stats_->mutex);

	return stats_->handler;
}

c10::intrusive_ptr<GroupWork>
Group::make_work(c10d::OpType type, const Tensors &inputs, c10::IValue value)
{
	return c10::make_intrusive<GroupWork>(getRank(), type, inputs, std::move(value), sequence_);
}

/* Waits for callbacks that come before a new collective: their own collectives come before it. */
void
Group::await_callbacks()
{
	const std::shared_ptr<Sequence> current = Sequence::current(),
					&sequence = current != nullptr ? current : sequence_;

	TORCH_CHECK(getpid() == pid_, "fanin: the process group is of another process, ", pid_,
		    ", which has forked this one");
	TORCH_CHECK(callback_can_wait(), no_thread);
	if (sequence->is_empty())
		return;
	/* Callbacks in Python need the GIL. */
	PyThreadState *const python = PyGILState_Check() ? PyEval_SaveThread() : nullptr;
	const bool are_done = sequence->wait(timeout_);
	if (python != nullptr)
		PyEval_RestoreThread(python);
	TORCH_CHECK(are_done,
		    "fanin: a callback of the future of an earlier collective has not returned "
		    "within the group's timeout of ",
		    timeout_.count(), " ms");
}

/* Starts a collective in the network. timeout: the call's; it counts if it is below the group's. */
Group::WorkPtr
Group::start(const char *collective, c10d::OpType type, const Tensors &inputs, c10::IValue outputs,
	     std::vector<Part> parts, Moves moves, std::chrono::milliseconds timeout)
{
	auto work = make_work(type, inputs, std::move(outputs));
	Task task;

	task.parts = std::move(parts);
	task.done = [work, finish = all_of(std::move(moves))](const std::string &error) {
		complete(*work, finish,
			 error.empty()
				 ? nullptr
				 : std::make_exception_ptr(std::runtime_error("fanin: " + error)));
	};
	if (timeout.count() > 0 && timeout < timeout_)
		task.timeout = timeout;
	TORCH_CHECK(network_->submit(std::move(task)), is_closed);
	count_network(collective, bytes_of(inputs));
	return work;
}

/*
 * Starts a collective by Gloo, whose threads complete it, so that it delays nothing in the network.
 */
Group::WorkPtr
Group::follow(GlooTask task)
{
	auto kept = std::make_shared<GlooTask>(std::move(task));
	auto works = std::make_shared<std::vector<WorkPtr>>();

	{
		std::lock_guard<std::mutex> lock(mutex_);
		TORCH_CHECK(!aborted_, was_aborted);
		TORCH_CHECK(!closing_, is_closed);
	}
	for (const std::function<WorkPtr()> &step : kept->steps)
		works->push_back(step());
	{
		std::lock_guard<std::mutex> lock(pending_->mutex);
		pending_->n++;
	}
	/* The callback is the last step's, whose own wait would wait for the callback. */
	const WorkPtr last = works->back();
	works->pop_back();
	last->getFuture()->addCallback([pending = pending_, kept,
					works](c10::ivalue::Future &future) {
		std::exception_ptr error = future.hasError() ? future.exception_ptr() : nullptr;
		for (const WorkPtr &work : *works) {
			try {
				work->wait();
			} catch (...) {
				error = error != nullptr ? error : std::current_exception();
			}
		}
		complete(*kept->work, kept->finish, error);
		std::lock_guard<std::mutex> lock(pending->mutex);
		pending->n--;
		pending->cv.notify_all();
	});
	return kept->work;
}

/* moves: copies of results to their destination. */
Group::WorkPtr
Group::follow(GlooTask task, c10d::OpType type, const Tensors &inputs, c10::IValue value,
	      Moves moves)
{
	task.finish = all_of(std::move(moves));
	task.work = make_work(type, inputs, std::move(value));
	return follow(std::move(task));
}

/* Starts a collective by Gloo that uses the caller's own tensors. */
Group::WorkPtr
Group::follow(c10d::OpType type, c10::IValue value, std::function<WorkPtr()> step)
{
	GlooTask task;

	task.work = make_work(type, {}, std::move(value));
	task.steps = { std::move(step) };
	return follow(std::move(task));
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
