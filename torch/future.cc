/* SPDX-License-Identifier: BSD-3-Clause */
/* See future.hh. */
#include "torch/future.hh"

namespace fanin_torch {

/* Where a callback that is registered now has its place. */
std::shared_ptr<Sequence>
Future::where() const
{
	std::shared_ptr<Sequence> current = Sequence::current();

	return current != nullptr ? current : sequence_;
}

/* Attaches a callback: to this future if it can run now, else to one with the same result that completes when it is its turn. */
void
Future::in_turn(const std::shared_ptr<Sequence> &sequence, const std::function<void(Future &)> &attach)
{
	if (fut->completed() && sequence->is_empty()) {
		attach(*this);
		return;
	}
	Inner turn = fut->createInstance(fut->elementType());
	attach(*std::make_shared<Future>(turn, sequence_));
	auto slot = sequence->add([turn, done = fut] {
		if (done->hasError())
			turn->setError(done->exception_ptr());
		else
			turn->markCompleted(done->value());
	});
	fut->addCallback([sequence, slot](c10::ivalue::Future &) { sequence->ready(slot); });
}

std::shared_ptr<Future>
Future::then(pybind11::function callback)
{
	const std::shared_ptr<Sequence> sequence = where();
	Inner result;

	in_turn(sequence, [&](Future &future) { result = future.Base::then(callback)->fut; });
	return std::make_shared<Future>(std::move(result), sequence_, sequence);
}

void
Future::add_done_callback(pybind11::function callback)
{
	in_turn(where(), [&](Future &future) { future.Base::add_done_callback(callback); });
}

pybind11::object
Future::wait()
{
	{
		pybind11::gil_scoped_release release;
		if (made_in_ != nullptr && !fut->completed())
			made_in_->yield();
		fut->wait();
	}
	return value();
}

} // namespace fanin_torch
