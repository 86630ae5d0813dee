/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The future of a Work as Python sees it, whose callbacks run as described in callbacks.hh. All
 * functions need the GIL.
 */
#ifndef FANIN_TORCH_FUTURE_HH
#define FANIN_TORCH_FUTURE_HH

#include "bindings/torch/callbacks.hh"

#include <memory>

#include <torch/csrc/jit/python/pybind_utils.h>

namespace fanin_torch {

class __attribute__((visibility("hidden"))) Future : public torch::jit::PythonFutureWrapper {
      public:
	using Base = torch::jit::PythonFutureWrapper;
	using Inner = c10::intrusive_ptr<c10::ivalue::Future>;

	/*
	 * sequence: of the group that completes it. made_by: the callback whose result it is, or
	 * NULL.
	 */
	Future(Inner future, std::shared_ptr<Sequence> sequence,
	       std::shared_ptr<Slot> made_by = nullptr)
	    : Base(std::move(future)), sequence_(std::move(sequence)), made_by_(std::move(made_by))
	{
	}
	/* Like the functions of torch's Future. */
	std::shared_ptr<Future> then(pybind11::function callback);
	void add_done_callback(pybind11::function callback);
	pybind11::object wait();

      private:
	std::shared_ptr<Sequence> where() const;
	std::shared_ptr<Slot> in_turn(const std::function<void(Future &)> &attach);

	const std::shared_ptr<Sequence> sequence_;
	const std::shared_ptr<Slot> made_by_;
};

} // namespace fanin_torch

/*
 * pybind11 needs this to make a Future known to Python, though torch's class is not polymorphic: an
 * object of that class is always a Future here.
 */
template <>
inline std::shared_ptr<fanin_torch::Future>
std::dynamic_pointer_cast<fanin_torch::Future, torch::jit::PythonFutureWrapper>(
	const std::shared_ptr<torch::jit::PythonFutureWrapper> &future) noexcept
{
	return std::static_pointer_cast<fanin_torch::Future>(future);
}

#endif
