/* SPDX-License-Identifier: BSD-3-Clause */
/* fanin_torch._core: the parts of a group that the Python package needs. */
#include "bindings/torch/future.hh"
#include "bindings/torch/group.hh"
#include "bindings/torch/process.hh"

#include <algorithm>
#include <cstdio>

#include <pybind11/chrono.h>
#include <pybind11/stl.h>

#include <torch/csrc/utils/pybind.h>

namespace py = pybind11;
using namespace fanin_torch;

class PyGroup;

namespace {

/* All existing groups of this process, whoever holds them. */
struct Groups {
	std::mutex mutex;
	std::vector<c10::weak_intrusive_ptr<PyGroup>> list;
};

} // namespace

/*
 * A group that Python holds. Its thread may need the interpreter for callbacks of futures, while
 * the group waits for its thread.
 */
class PyGroup : public Group {
      public:
	using Group::Group;
	~PyGroup() override
	{
		if (Py_IsInitialized() && PyGILState_Check()) {
			py::gil_scoped_release release;
			end();
		} else {
			end();
		}
	}
	/*
	 * Called when the last reference is gone. The group is destroyed after this, once its
	 * entry, a weak reference, is erased.
	 */
	void
	release_resources() override
	{
		Groups &groups = OfProcess<Groups>::get();
		std::lock_guard<std::mutex> lock(groups.mutex);
		groups.list.erase(std::remove_if(groups.list.begin(), groups.list.end(),
						 [](const auto &group) { return group.expired(); }),
				  groups.list.end());
	}
};

static void
remember(const c10::intrusive_ptr<PyGroup> &group)
{
	Groups &groups = OfProcess<Groups>::get();
	std::lock_guard<std::mutex> lock(groups.mutex);

	groups.list.emplace_back(group);
}

/*
 * At exit: finishes all queued collectives, leaves all jobs, and waits for callbacks, for some
 * seconds at most.
 */
static void
close_all()
{
	std::vector<c10::intrusive_ptr<PyGroup>> live;

	{
		Groups &groups = OfProcess<Groups>::get();
		std::lock_guard<std::mutex> lock(groups.mutex);
		for (const auto &group : groups.list)
			live.push_back(group.lock());
	}
	live.erase(std::remove(live.begin(), live.end(), nullptr), live.end());
	for (const auto &group : live)
		group->close_begin();
	for (const auto &group : live)
		group->close_done();
	for (const auto &group : live)
		group->close();
	Network::await_leaving();
	if (!callbacks_wait(std::chrono::seconds(10)))
		std::fprintf(
			stderr,
			"fanin_torch: the process ends while callbacks of futures still run\n");
}

static py::dict
count_dict(const Count &count)
{
	py::dict dict;

	dict["calls"] = count.calls;
	dict["bytes"] = count.bytes;
	return dict;
}

static GroupStats
copy_of(Stats &stats)
{
	std::lock_guard<std::mutex> lock(stats.mutex);

	return stats;
}

static py::list
report()
{
	py::list list;

	for (const std::shared_ptr<Stats> &one : all_stats()) {
		/* Python may destroy a group while it makes objects, which needs the mutex. */
		const GroupStats stats = copy_of(*one);
		py::dict group, network, gloo;
		group["group"] = stats.name;
		group["rank"] = stats.rank;
		group["size"] = stats.size;
		group["in_network"] = stats.in_network;
		group["failed"] = stats.failed;
		group["reason"] = stats.reason;
		group["job"] = stats.job_name;
		group["transport"] = stats.transport;
		group["handler"] = stats.handler;
		group["accumulates_f32"] = stats.accumulates_f32;
		group["hosts"] = stats.hosts;
		group["shared_bytes"] = stats.shared_bytes;
		group["authenticated"] = stats.authenticated;
		group["blocks"] = stats.blocks;
		group["bytes_reduced"] = stats.bytes_reduced;
		group["retransmits"] = stats.retransmits;
		group["sparse_bytes"] = stats.sparse_bytes;
		group["sparse_dense_bytes"] = stats.sparse_dense_bytes;
		for (const auto &[collective, count] : stats.network)
			network[py::str(collective)] = count_dict(count);
		for (const auto &[collective, reasons] : stats.gloo) {
			py::dict by_reason;
			for (const auto &[reason, count] : reasons)
				by_reason[py::str(reason)] = count_dict(count);
			gloo[py::str(collective)] = by_reason;
		}
		group["network"] = network;
		group["gloo"] = gloo;
		list.append(group);
	}
	return list;
}

static std::string
setting(const std::string &name)
{
	char value[4096];

	/* An invalid file is reported when the rank joins. */
	return fanin_setting(name.c_str(), value, sizeof(value)) == FANIN_OK ? value : "";
}

static std::string
host_id()
{
	char id[FANIN_HOST_ID_LEN];

	TORCH_CHECK(fanin_host_id(id) == FANIN_OK, "fanin: the system does not tell this host's ",
		    "identity");
	return id;
}

PYBIND11_MODULE(_core, module)
{
	module.def("setting", setting);
	module.def("host_id", host_id);
	/* torch.distributed registers the base class. */
	py::module_::import("torch.distributed");
	py::class_<JoinOptions>(module, "JoinOptions")
		.def(py::init<>())
		.def_readwrite("job_name", &JoinOptions::job_name)
		.def_readwrite("manager", &JoinOptions::manager)
		.def_readwrite("interface", &JoinOptions::interface)
		.def_readwrite("handler", &JoinOptions::handler)
		.def_readwrite("join_timeout", &JoinOptions::join_timeout)
		.def_readwrite("timeout", &JoinOptions::timeout)
		.def_readwrite("accumulate_f32", &JoinOptions::accumulate_f32)
		.def_readwrite("authenticate", &JoinOptions::authenticate)
		.def_readwrite("reproducible", &JoinOptions::reproducible);
	py::class_<Future, torch::jit::PythonFutureWrapper, std::shared_ptr<Future>>(module,
										     "Future")
		.def("then", &Future::then)
		.def("add_done_callback", &Future::add_done_callback)
		.def("wait", &Future::wait);
	py::class_<GroupWork, c10d::Work, c10::intrusive_ptr<GroupWork>>(module, "Work")
		.def("get_future", [](GroupWork &work) {
			return std::make_shared<Future>(work.getFuture(), work.sequence);
		});
	py::class_<PyGroup, Base, c10::intrusive_ptr<PyGroup>>(module, "Group")
		.def(py::init([](c10::intrusive_ptr<Base> gloo,
				 c10::intrusive_ptr<c10d::Store> store, int rank, int size,
				 const std::string &name, std::chrono::milliseconds timeout) {
			auto group = c10::make_intrusive<PyGroup>(std::move(gloo), std::move(store),
								  rank, size, name, timeout);
			remember(group);
			return group;
		}))
		.def("join", &PyGroup::join, py::call_guard<py::gil_scoped_release>())
		.def("use_network", &PyGroup::use_network, py::call_guard<py::gil_scoped_release>())
		.def("use_gloo", &PyGroup::use_gloo, py::call_guard<py::gil_scoped_release>())
		.def("accumulates_f32", &PyGroup::accumulates_f32)
		.def("why_not_sparse",
		     [](const PyGroup &group, const at::Tensor &like) {
			     return group.why_not_sparse(like.scalar_type());
		     })
		.def("allreduce_vectors", &PyGroup::allreduce_vectors, py::arg("dense"),
		     py::arg("indices"), py::arg("values"), py::arg("most"),
		     py::call_guard<py::gil_scoped_release>())
		.def("abort", &PyGroup::abort, py::call_guard<py::gil_scoped_release>())
		.def("shutdown", &PyGroup::shutdown, py::call_guard<py::gil_scoped_release>());
	module.def("close_all", &close_all, py::call_guard<py::gil_scoped_release>());
	module.def("report", &report);
}
