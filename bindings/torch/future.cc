/* SPDX-License-Identifier: BSD-3-Clause */
/* See future.hh. */
#include "bindings/torch/future.hh"

namespace fanin_torch {

/* Returns the sequence of a callback that is registered now. */
std::shared_ptr<Sequence>
Future::where() const
{
	std::shared_ptr<Sequence> current = Sequence::current();

	return current != nullptr ? current : sequence_;
}

/*
 * Attaches a callback: to this future if the callback can run now, else to a future with the same
 * result that completes at the callback's turn. Returns the callback's place then, or NULL.
 */
std::shared_ptr<Slot>
Future::in_turn(const std::function<void(Future &)> &attach)
{
	const std::shared_ptr<Sequence> sequence = where();

	if (fut->completed() && sequence->is_empty()) {
		attach(*this);
		return nullptr;
	}
	Inner turn = fut->createInstance(fut->elementType());
	attach(*std::make_shared<Future>(turn, sequence_));
	/* If no thread can be made, callbacks that can run do so here. */
	pybind11::gil_scoped_release release;
	auto slot = sequence->add(
		[turn, done = fut] {
			if (done->hasError())
				turn->setError(done->exception_ptr());
			else
				turn->markCompleted(done->value());
		},
		made_by_);
	fut->addCallback([sequence, slot](c10::ivalue::Future &) { sequence->ready(slot); });
	return slot;
}

std::shared_ptr<Future>
Future::then(pybind11::function callback)
{
	Inner result;
	std::shared_ptr<Slot> slot =
		in_turn([&](Future &future) { result = future.Base::then(callback)->fut; });

	return std::make_shared<Future>(std::move(result), sequence_, std::move(slot));
}

void
Future::add_done_callback(pybind11::function callback)
{
	in_turn([&](Future &future) { future.Base::add_done_callback(callback); });
}

pybind11::object
Future::wait()
{
	{
		pybind11::gil_scoped_release release;
		TORCH_CHECK(
			fut->completed() || callback_can_wait(),
			"fanin: no thread could be made for the callback of a future, which can't wait here");
		const Waiting waiting(fut->completed() ? nullptr : made_by_);
		fut->wait();
	}
	return value();
}

} // namespace fanin_torch
