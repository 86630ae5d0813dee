# SPDX-License-Identifier: BSD-3-Clause
"""The backend of PyTorch: real ranks of torch.distributed on hosts of a switch with a manager."""

import json
import statistics
import time

from tests.net.support import CaseFailed, case as any_case, expect, expect_equal, run
from lab.fabric import single
from lab.namespaces import SOURCE_DIR, module, wait_until
from lab.demo.training import TrainingFabric, interpreter, missing_backend, torch_release

RANKS = 4
# A slot of a sparse job is as large as 65 other slots.
SPARSE_LIMITS = {"limits": {"max_jobs": 5, "slots": 5 * 16 * 65},
                 "memory": {"hugepages": "never", "megabytes": 512}}
MANY_GROUPS = {"limits": {"max_jobs": 24, "slots": 24 * 16},
               "memory": {"hugepages": "never", "megabytes": 512}}
IN_NETWORK = ["_allgather_base", "_reduce_scatter_base", "allgather", "allgather_coalesced",
              "allreduce", "allreduce_coalesced", "broadcast",
              "reduce", "reduce_scatter"]
# Both options default to None with Python 3.11, which breaks torchrun of 1.13: these values name a
# worker that does not exist.
TO_CONSOLE = ("--redirects", "9:1", "--tee", "9:1")


def case(*arguments, **options):
    """Enters a function into the list of cases if this build has the backend: ./dev test enables it,
    and meson leaves it out only where the installed torch is not one that it is for.
    """
    return any_case(*arguments, **options) if missing_backend() == "" else lambda function: function


def case_of_one(*arguments, **options):
    """Does the same for a case of what torch had until 2.0 only."""
    if missing_backend() != "" or torch_release() >= (2, 0):
        return lambda function: function
    return any_case(*arguments, **options)


def case_of_two(*arguments, **options):
    """Does the same for a case of calls that torch has from 2.0 on."""
    if missing_backend() != "" or torch_release() < (2, 0):
        return lambda function: function
    return any_case(*arguments, **options)


class TorchFabric(TrainingFabric):
    """Four hosts at a switch, with a manager unless it is to be missing."""

    def __init__(self, manager=True, config=None):
        super().__init__(single(RANKS), config=config)
        self.with_manager = manager

    def __enter__(self):
        super().__enter__()
        try:
            self.start()
            self.start_manager()
            if not self.with_manager:
                self.manager.popen.kill()
                self.manager.popen.wait()
        except BaseException:
            self.close()
            raise
        return self

    def ranks(self, scenario, hosts=range(RANKS), **environment):
        return self.workers(SOURCE_DIR / "tests" / "net" / "torch_rank.py", scenario, hosts=hosts,
                            MASTER_ADDR=self.host_ip(hosts[0]), **environment)


def results_of(ranks, seconds=120):
    """Returns what the ranks have printed, once all have ended well."""
    results = []
    for number, rank in enumerate(ranks):
        status = rank.wait(seconds)
        if status != 0:
            raise CaseFailed(f"rank {number} ended with {status}: {rank.stderr()[-1500:]}")
        results.append(json.loads(rank.stdout().splitlines()[-1]))
    return results


def expect_world_in_network(results):
    for rank, result in enumerate(results):
        world = result["report"][0]
        expect_equal((world["rank"], world["size"], world["in_network"], world["failed"],
                      world["transport"]),
                     (rank, RANKS, True, False, "udp"),
                     f"the group of all ranks, as rank {rank} reports it: {world}")
        expect_equal(result["warnings"], [], f"warnings of rank {rank}")


@case(120, thorough=True)
def torch_collectives_are_exact_in_the_network():
    with TorchFabric() as lab:
        results = results_of(lab.ranks("collectives"))
        expect_world_in_network(results)
        for result in results:
            world = result["report"][0]
            expect_equal(sorted(world["network"]), IN_NETWORK, "what ran in the network")
            reasons = {name: list(reasons) for name,
                       reasons in world["gloo"].items() if name not in ("send", "recv")}
            elsewhere = ["no such collective in the library"]
            expect_equal(reasons, dict.fromkeys(("alltoall", "alltoall_base", "gather",
                                                 "monitored_barrier", "scatter"), elsewhere),
                         "what ran on Gloo, and why")
            expect(world["blocks"] > 0, f"no block came from the switch: {world}")
        expect_equal([list(results[0]["report"][0]["gloo"]["send"]),
                      list(results[1]["report"][0]["gloo"]["recv"])],
                     [["point-to-point is not in the library"]] * 2, "point-to-point")


@case(60, long=True)
def torch_groups_work_side_by_side():
    with TorchFabric() as lab:
        ranks = lab.ranks("groups", FANIN_TORCH_REPORT=1)
        results = results_of(ranks)
        for rank, process in enumerate(ranks):
            lines = [line for line in process.stderr().splitlines()
                     if line.startswith('{"fanin_torch"')]
            expect_equal(len(lines), 1 if rank == 0 else 0,
                         f"reports that rank {rank} printed at exit")
        printed = json.loads(next(line for line in ranks[0].stderr().splitlines()
                                  if line.startswith('{"fanin_torch"')))["fanin_torch"]
        expect_equal([group["network"] for group in printed],
                     [group["network"] for group in results[0]["report"]], "the report at exit")
        expect_world_in_network(results)
        for rank, result in enumerate(results):
            report = {(group["size"], group["accumulates_f32"]): group
                      for group in result["report"][1:]}
            expect_equal((report[2, False]["in_network"], report[4, True]["in_network"],
                          report[1, False]["in_network"],
                          report[1, False]["reason"]),
                         (True, True, False, "the group has one rank"), f"groups of rank {rank}")
            names = {group["job"] for group in result["report"] if group["in_network"]}
            expect_equal(len(names), 3, f"names of jobs of rank {rank}: {names}")


@case(120)
def torch_training_is_equal_on_all_ranks_and_near_gloos():
    with TorchFabric() as lab:
        results = results_of(lab.ranks("training"))
        expect_world_in_network(results)
        for result in results:
            differences = dict(result["difference"])
            bf16 = differences.pop("bf16")
            expect(all(value < 1e-5 for value in differences.values()),
                   f"parameters beside Gloo's: {differences}")
            expect(0 < bf16 < 0.05, f"with bfloat16 beside Gloo's: {bf16}")
            for group in result["report"]:
                expect((group["in_network"], group["gloo"]) == (True, {}),
                       f"what did not go through the network: {group}")
                if group["group"] != result["report"][0]["group"]:
                    expect(group["network"]["allreduce"]["calls"] >= 20,
                           f"allreduces of a training: {group}")


@case(150, thorough=True)
def the_hook_top_k_keeps_what_it_does_not_send():
    with TorchFabric(config=SPARSE_LIMITS) as lab:
        for rank, result in enumerate(results_of(lab.ranks("sparse"), 140)):
            world, job, other, strict = result["report"]
            dense, top_k = result["losses"]["dense"], result["losses"]["top_k"]
            expect(dense[-1] < 0.7 * dense[0], f"the loss of dense gradients: {dense}")
            expect(sum(top_k[-5:]) < 1.5 * sum(dense[-5:]),
                   f"the loss of the largest 2 %: {top_k[-5:]} beside {dense[-5:]}")
            expect(sum(top_k[-5:]) / 5 < 0.4 * top_k[0], f"the loss of the largest 2 %: {top_k}")
            expect(result["distance"] > 0, "the largest 2 % gave the same as all")
            # The first step has all gradients in one bucket, the later steps in two.
            expect(result["layouts"][0] >= 3 and result["buckets"][0] >= 1 + 2 * 59,
                   f"{result['layouts']} layouts, {result['buckets']} buckets")
            expect_equal((job["in_network"], job["handler"], job["gloo"]), (True, "sparse", {}),
                         "the job of the sparse sums")
            expect(job["network"]["allreduce_sparse"]["calls"] >= result["buckets"][0]
                   + result["buckets"][1], f"sparse sums: {job}")
            expect(0 < job["sparse_bytes"] < 0.4 * job["sparse_dense_bytes"], f"bytes: {job}")
            reason = 'sparse vectors in a job of the handler single: Options(handler="sparse") asks for one that has them'
            expect_equal({name: list(reasons) for name, reasons in other["gloo"].items()},
                         {"allreduce_sparse": [reason]}, "what ran on Gloo")
            expect_equal(len(result["hook_warnings"]), 1 if rank == 0 else 0,
                         f"warnings: {result['hook_warnings']}")
            expect(f"fanin: not in the network: {reason}" in result["raised"],
                   f"what raised: {result['raised']}")
            expect_equal(strict["gloo"], {}, "what ran on Gloo although it is to raise")
            expect_equal(world["failed"], False, "the group of all ranks")


@case(150, thorough=True)
def hooks_send_fewer_bytes():
    with TorchFabric(config=SPARSE_LIMITS) as lab:
        for result in results_of(lab.ranks("hook_costs"), 140):
            sent = {name: cost["bytes"] for name, cost in result["costs"].items()}
            expect(sent["bf16"] < 0.55 * sent["dense"] and sent["top_k"] < 0.1 * sent["dense"],
                   f"bytes on the wire of a step: {sent}")


@case(240, thorough=True)
def torchs_callbacks_make_collectives_and_wait_for_them():
    """Hooks of DistributedDataParallel make collectives; a rank leaves; and programs end without
    leaving their groups.
    """
    with TorchFabric(config=MANY_GROUPS) as lab:
        for hosts in (range(RANKS), (0, 0, 1, 1)):
            ranks = lab.ranks("callbacks", hosts=hosts)
            for rank, process in enumerate(ranks):
                expect_equal(process.wait(110), 0,
                             f"exit status of rank {rank}: {process.stderr()[-1500:]}")
                result, end = (json.loads(line) for line in process.stdout().splitlines()[-2:])
                for name, losses in result["losses"].items():
                    expect(losses[-1] < (0.8 if len(losses) > 20 else 1) * losses[0],
                           f"the loss with the hook {name}: {losses}")
                reason = "rank 1 has left the process group (destroy_process_group, or the end of its program)"
                missing = "missing ranks of the group: 1 (has left the process group)"
                expect(rank == 1 or reason in result["left"] or missing in result["left"],
                       f"what rank {rank} is told of one that has left: {result['left']}")
                expect(end["exit_seconds"] < 12,
                       f"the end of rank {rank} took {end['exit_seconds']} s")
                expect_equal([line for line in process.stderr().splitlines()
                              if line.startswith("fanin_torch:")], [], f"what rank {rank} has said")
                expect(all(group["in_network"] for group in result["report"]),
                       f"groups: {result['report']}")


@case(60, long=True)
def torchs_futures_complete_where_no_thread_can_be_made():
    """Callbacks run on the thread that completes their futures, or on the program's thread if the
    sum is there already.
    """
    with TorchFabric() as lab:
        ranks = lab.ranks("without_threads", hosts=range(2))
        for rank, result in enumerate(results_of(ranks, 50)):
            lines = [line for line in ranks[rank].stderr().splitlines()
                     if line.startswith("fanin_torch:")]
            expect(len(lines) == 1 and "no thread for callbacks of futures" in lines[0],
                   f"what rank {rank} has said: {lines}")
            expect(all("no thread could be made for the callback" in told
                       for told in result["told"]), f"collectives in callbacks: {result['told']}")


@case(60, long=True)
def forked_children_of_a_torch_rank_end_and_begin_anew():
    with TorchFabric() as lab:
        ranks = lab.ranks("forks", hosts=range(2))
        for rank, _ in enumerate(results_of(ranks, 50)):
            lines = [line for line in ranks[rank].stderr().splitlines()
                     if line.startswith("fanin_torch:")]
            expect_equal(lines, [], f"what rank {rank} and its children have said")


@case(60, long=True)
def a_killed_rank_of_torch_is_named():
    with TorchFabric() as lab:
        began = time.monotonic()
        ranks = lab.ranks("killed")
        results = results_of([ranks[rank] for rank in (0, 1, 3)])
        expect_equal(ranks[2].wait(10), -9, "exit status of the killed rank")
        for result in results:
            expect("missing ranks of the group: 2" in result["error"],
                   f"the exception: {result['error']}")
            expect("missing ranks of the group: 2" in result["report"][0]["reason"],
                   f"the report: {result['report'][0]}")
        expect(time.monotonic() - began < 60, "the others waited for more than a minute")


@case(60, thorough=True)
def torchs_timeout_ends_the_wait_for_a_late_rank():
    with TorchFabric() as lab:
        for rank, result in enumerate(results_of(lab.ranks("late"))):
            if rank != 1:
                expect("missing ranks of the group: 1" in result["error"],
                       f"the exception: {result['error']}")
                expect(2.5 < result["seconds"] < 30, f"a timeout of 3 s took {result['seconds']} s")


def torchrun(lab, *options):
    """Returns the command of an agent that starts ranks again, with its environment. Where torch is
    built without libuv, workers can't share the agents' store, as torchrun has them do by default.
    """
    fits = torch_release() < (2, 0)
    way = ["-m", "torch.distributed.run", *TO_CONSOLE] if fits else \
        [SOURCE_DIR / "tests" / "net" / "torchrun.py", "--rdzv_backend", "c10d", "--rdzv_endpoint",
         f"{lab.host_ip(0)}:29400"]
    return [*lab.environment(TORCH_DISABLE_SHARE_RDZV_TCP_STORE=int(not fits)), interpreter(), *way,
            "--max_restarts", 2, *options, SOURCE_DIR / "tests" / "net" / "torch_rank.py",
            "restarted"]


@case(120, thorough=True)
def torchrun_starts_killed_workers_again():
    with TorchFabric() as lab:
        named = ("unshare", "--uts", "sh", "-c", "hostname $0; exec \"$@\"")
        agents = [lab.spawn(host, [*named, lab.host_ip(host),
                                   *torchrun(lab, "--nnodes", RANKS, "--node_rank", host,
                                             "--nproc_per_node", 1, "--master_addr",
                                             lab.host_ip(0), "--master_port", 29400)], "torchrun")
                  for host in range(RANKS)]
        results = list(results_of(agents, 110))
        restarts = [result["restarts"] for result in results]
        # By c10d an agent counts no restart if it finds the others at a new round before its own
        # workers have failed.
        expect((min if torch_release() < (2, 0) else max)(restarts) >= 1, f"restarts: {restarts}")
        for result in results:
            expect(result["report"][0]["in_network"], f"after the restart: {result['report'][0]}")


@case(150, thorough=True)
def torchrun_finds_itself_by_c10d_with_several_workers_on_a_host():
    """Workers learn the name of the first agent's host, which is its address here."""
    with TorchFabric() as lab:
        named = ("unshare", "--uts", "sh", "-c", "hostname $0; exec \"$@\"")
        agents = [lab.spawn(host, [*named, lab.host_ip(host),
                                   *torchrun(lab, "--nnodes", 2, "--nproc_per_node", 2,
                                             "--rdzv_backend", "c10d", "--rdzv_endpoint",
                                             f"{lab.host_ip(0)}:29400", "--rdzv_id", "fanin")],
                            "torchrun") for host in range(2)]
        results = list(results_of(agents, 140))
        # An agent counts no restart if it finds the other agent at a new round before its own
        # workers have failed.
        expect(max(result["restarts"] for result in results) >= 1,
               f"restarts: {[result['restarts'] for result in results]}")
        for result in results:
            world = result["report"][0]
            expect_equal((world["in_network"], [len(ranks) for ranks in world["hosts"]]),
                         (True, [2, 2]), f"after the restart: {world}")


@case(120, thorough=True)
def torch_jobs_are_as_their_options_say():
    with TorchFabric() as lab:
        for hosts in (range(RANKS), (0, 0, 1, 1)):
            for result in results_of(lab.ranks("options", hosts=hosts)):
                world, authenticated, reproducible, both = result["report"]
                for group, has_codes, handler in ((world, False, "single"),
                                                  (authenticated, True, "single"),
                                                  (reproducible, False, "tree")):
                    expect_equal((group["in_network"], group["handler"], group["authenticated"]),
                                 (True, handler, has_codes), f"the job: {group}")
                expect_equal((both["in_network"], "sparse" in both["reason"]), (False, True),
                             f"a reproducible job of sparse vectors: {both}")


@case(60, thorough=True)
def a_slow_group_does_not_hold_up_others():
    with TorchFabric() as lab:
        for result in results_of(lab.ranks("slow")):
            expect(result["waited"], "the group has not waited until the others had done their "
                                     "collectives")


@case(120, thorough=True)
def torch_falls_back_to_gloo_or_raises_as_it_is_told():
    with TorchFabric(manager=False) as lab:
        for rank, result in enumerate(results_of(lab.ranks("fallen_back",
                                                           FANIN_TORCH_JOIN_TIMEOUT=5))):
            world = result["report"][0]
            expect_equal((world["in_network"], world["network"], len(result["warnings"])),
                         (False, {}, 1 if rank == 0 else 0),
                         f"rank {rank}, fallen back: {result}")
            expect("rank 0: the network manager can't be reached" in world["reason"],
                   f"why: {world['reason']}")
            if rank == 0:
                expect("runs on Gloo, not in the network: rank 0: " in result["warnings"][0],
                       f"the warning: {result['warnings']}")
        conf = lab.directory / "fanin.conf"
        conf.write_text("FANIN_TORCH_JOIN_TIMEOUT = 30\nFANIN_TORCH_FALLBACK = raise\n")
        ranks = lab.ranks("fallen_back", FANIN_TORCH_JOIN_TIMEOUT=5, FANIN_CONF=conf)
        for rank in ranks:
            expect_equal(rank.wait(60), 1,
                         f"exit status of a rank that is to raise: {rank.stderr()[-500:]}")
            expect("RuntimeError: fanin: not in the network: rank 0: " in rank.stderr(),
                   f"the exception: {rank.stderr()[-500:]}")


@case(60, thorough=True)
def torch_ranks_that_are_all_on_one_host_say_so():
    with TorchFabric() as lab:
        for result in results_of(lab.ranks("fallen_back", hosts=(2, 2, 2, 2))):
            expect_equal(result["report"][0]["reason"], "all ranks are on one host", "why")


def expect_hosts(results, hosts):
    """Expects all ranks in the network, where only the first rank of each host sends. hosts: the
    host of each rank.
    """
    ranks_of = [[rank for rank, host in enumerate(hosts) if host == one]
                for one in dict.fromkeys(hosts)]
    for rank, result in enumerate(results):
        world = result["report"][0]
        leader = next(ranks for ranks in ranks_of if rank in ranks)[0]
        expect_equal((world["in_network"], world["failed"], world["hosts"], result["warnings"]),
                     (True, False, ranks_of, []),
                     f"the group of all ranks, as rank {rank} reports it: {world}")
        expect_equal((world["transport"], world["blocks"] > 0),
                     ("udp" if rank == leader else f"shared memory of rank {leader}", True),
                     f"where rank {rank} sends: {world}")
        expect(world["shared_bytes"] > 0 or hosts.count(hosts[rank]) == 1,
               f"shared memory of rank {rank}: {world}")


@case(240, thorough=True)
def torch_collectives_are_exact_with_several_ranks_on_a_host():
    with TorchFabric() as lab:
        for hosts in ((0, 0, 1, 1), (0, 1, 0, 1), (2, 3, 3, 3)):
            results = results_of(lab.ranks("collectives", hosts=hosts))
            expect_hosts(results, hosts)
            for result in results:
                expect_equal(sorted(result["report"][0]["network"]), IN_NETWORK,
                             "what ran in the network")
        results = results_of(lab.ranks("groups", hosts=(0, 1, 0, 1)))
        expect_hosts(results, (0, 1, 0, 1))


@case(150, thorough=True)
def torch_trains_with_several_ranks_on_a_host():
    with TorchFabric() as lab:
        results = results_of(lab.ranks("training", hosts=(0, 0, 1, 1)))
        expect_hosts(results, (0, 0, 1, 1))
        for result in results:
            differences = dict(result["difference"])
            bf16 = differences.pop("bf16")
            expect(all(value < 1e-5 for value in differences.values()) and 0 < bf16 < 0.05,
                   f"parameters beside Gloo's: {result}")
    with TorchFabric(config=SPARSE_LIMITS) as lab:
        results = results_of(lab.ranks("sparse", hosts=(0, 0, 1, 1)))
        expect_hosts(results, (0, 0, 1, 1))
        for result in results:
            losses = result["losses"]
            expect(sum(losses["top_k"][-5:]) < 1.5 * sum(losses["dense"][-5:]),
                   f"the loss of the largest 2 %: {losses}")
            expect_equal((result["report"][1]["handler"], result["report"][1]["gloo"]),
                         ("sparse", {}), "the job of the sparse sums")


@case(150, thorough=True)
def a_killed_rank_of_several_on_a_host_is_named():
    """The killed rank is one that is no leader, then a leader, and then the one that has the store.
    """
    with TorchFabric() as lab:
        for killed in (3, 2, 0):
            began = time.monotonic()
            ranks = lab.ranks("killed", hosts=(0, 0, 1, 1), KILLED_RANK=killed, PARENT_RANK=3)
            others = [rank for rank in range(RANKS) if rank != killed]
            for rank, result in zip(others, results_of([ranks[rank] for rank in others])):
                expect(f"missing ranks of the group: {killed}" in result["error"],
                       f"the exception of rank {rank}: {result['error']}")
                expect_equal(result["report"][0]["failed"], True, f"the report of rank {rank}")
            expect_equal(ranks[killed].wait(10), -9, "exit status of the killed rank")
            expect(time.monotonic() - began < 28,
                   f"the others waited for {time.monotonic() - began} s for rank {killed}")


@case(90, thorough=True)
def late_and_disagreeing_ranks_of_a_host_are_named():
    with TorchFabric() as lab:
        for rank, result in enumerate(results_of(lab.ranks("late", hosts=(0, 0, 1, 1)))):
            if rank != 1:
                expect("missing ranks of the group: 1" in result["error"],
                       f"the exception of rank {rank}: {result['error']}")
                expect(2.5 < result["seconds"] < 30, f"a timeout of 3 s took {result['seconds']} s")
        for rank, result in enumerate(results_of(lab.ranks("disagreeing", hosts=(0, 0, 1, 1)))):
            words = "ranks of one host make different calls: rank "
            expect(words in result["error"] and ("allreduce of 44 bytes of f32, sum" in result["error"]),
                   f"rank {rank}: {result['error']}")


@case_of_two(120)
def calls_of_sharded_models_run_in_the_network():
    with TorchFabric() as lab:
        for hosts in (range(RANKS), (0, 1, 0, 1)):
            for result in results_of(lab.ranks("coalesced", hosts=hosts)):
                world = result["report"][0]
                expect_equal((world["in_network"], world["gloo"]), (True, {}),
                             f"what ran on Gloo: {world}")
                expect(world["network"]["allgather_into_tensor_coalesced"]["calls"] >= 3
                       and world["network"]["reduce_scatter_tensor_coalesced"]["calls"] >= 2,
                       f"coalesced calls: {world['network']}")
            for result in results_of(lab.ranks("premultiplied", hosts=hosts)):
                expect_equal(result["report"][0]["gloo"], {}, "what ran on Gloo")
            for result in results_of(lab.ranks("sharded", hosts=hosts)):
                expect(all(value < 1e-5 for value in result["difference"].values()),
                       f"parameters beside Gloo's: {result['difference']}")
                expect_equal(result["report"][0]["gloo"], {}, "what ran on Gloo")


@case_of_one(60)
def factors_of_sums_are_single_numbers():
    with TorchFabric() as lab:
        results_of(lab.ranks("premultiplied"))
        results_of(lab.ranks("factors"))


@case_of_two(120, thorough=True)
def the_calls_of_sharded_models_fall_back_to_gloo():
    with TorchFabric(manager=False) as lab:
        for scenario in ("coalesced", "premultiplied", "sharded"):
            for result in results_of(lab.ranks(scenario, FANIN_TORCH_JOIN_TIMEOUT=5)):
                expect_equal((result["report"][0]["in_network"], result["report"][0]["network"]),
                             (False, {}), "what ran in the network")


@case_of_two(60)
def torch_has_this_backend_for_the_cpu_and_another_for_other_devices():
    with TorchFabric() as lab:
        for debug in ("OFF", "DETAIL"):
            for result in results_of(lab.ranks("devices", TEST_BACKEND="cpu:fanin,cuda:gloo",
                                               TORCH_DISTRIBUTED_DEBUG=debug)):
                for group in result["report"]:
                    expect(group["in_network"] and group["network"]["allreduce"]["calls"] == 1,
                           f"a group of two backends: {group}")


@case_of_two(60)
def a_checkpoint_of_torch_is_saved_and_loaded():
    with TorchFabric() as lab:
        directory = lab.directory / "checkpoint"
        for result in results_of(lab.ranks("checkpoint", TEST_DIRECTORY=directory)):
            expect(result["report"][1]["in_network"], f"the group: {result['report'][1]}")


@case(150, thorough=True)
def a_calls_own_timeout_and_an_abort_end_its_group():
    with TorchFabric() as lab:
        for hosts in (range(RANKS), (0, 0, 1, 1)):
            for rank, result in enumerate(results_of(lab.ranks("timeouts", hosts=hosts))):
                if rank == 1:
                    continue
                expect(1.9 < result["seconds"] < 7, f"2 s took {result['seconds']} s")
                expect(result["error"].endswith("missing ranks of the group: 1"),
                       f"rank {rank}: {result['error']}")
            for rank, result in enumerate(results_of(lab.ranks("aborted", hosts=hosts))):
                expect(rank != 0 or (result["seconds"] < 3 and "the process group was aborted" in
                                     result["error"]), f"after an abort: {result}")


@case(150, thorough=True)
def groups_of_torch_leave_nothing_and_end_with_calls_in_flight():
    with TorchFabric(config=MANY_GROUPS) as lab:
        for hosts in (range(RANKS), (0, 0, 1, 1)):
            for result in results_of(lab.ranks("many", hosts=hosts)):
                expect(result["descriptors"] < 60 and result["threads"] < 40,
                       f"after 50 groups: {result['descriptors']} descriptors, "
                       f"{result['threads']} threads")
                expect(all(group["in_network"] for group in result["report"]), "a group on Gloo")
            ranks = lab.ranks("pending", hosts=hosts)
            for result in results_of([ranks[rank] for rank in (0, 1, 3)]):
                expect(result["seconds"] < 15, f"destroying took {result['seconds']} s")
                expect(len(result["errors"]) == 3 and all("missing ranks of the group: 2" in error
                                                          for error in result["errors"]),
                       f"errors: {result['errors']}")
            ranks[2].wait(10)


@case(60, long=True)
def a_program_that_ends_after_a_forward_step_ends_at_once():
    with TorchFabric() as lab:
        ranks = lab.ranks("ends")
        ended = max(result["ended"] for result in results_of(ranks))
        expect(time.monotonic() - ended < 5, f"the end took {time.monotonic() - ended} s")
        wait_until(lambda: lab.ask_manager("jobs")["jobs"] == [], 5, "jobs are left")


@case(60, long=True)
def tensors_of_every_kind_are_summed_or_refused_at_all_ranks():
    with TorchFabric() as lab:
        for hosts in (range(RANKS), (0, 0, 1, 1)):
            found = [result["found"] for result in results_of(lab.ranks("tensors", hosts=hosts))]
            expect(all(one == found[0] for one in found), f"what ranks found: {found}")
            expect_equal([found[0][name] for name in ("bool", "half", "empty", "strided")],
                         [[True] * 3] * 4, "calls")


@case(120, thorough=True)
def the_demo_trains_over_fanin_as_over_gloo():
    steps = 6
    done = run([*module("lab.demo"), "--torch", "--json", "--steps", str(steps)], check=False,
               timeout=110)
    expect_equal(done.returncode, 0,
                 f"exit status of the demo: {done.stdout[-600:]} {done.stderr[-600:]}")
    result = json.loads(done.stdout)
    expect_equal((result["ok"], result["equal"], result["elsewhere_calls"],
                  len(result["loss"]["gloo"])), (True, True, 0, steps), "the demo")
    # The program ran as a user without rights, over ordinary links.
    expect_equal((result["user"], result["transport"], result["mtu"]), ("nobody", "udp", 1500),
                 "the hosts")
    expect(min(result["loss"]["fanin"]) < result["loss"]["fanin"][0], f"losses: {result['loss']}")
    # Floats of the layers, the last layer first: each layer except the last fills a bucket.
    hidden = 512 * 512 + 512
    buckets = [4 * n for n in (512 * 10 + 10 + hidden, hidden, hidden, 784 * 512 + 512)]
    expect_equal(result["bucket_bytes"], buckets, "gradients of a step, in their buckets")
    expect(result["network_bytes"] >= 2 * steps * sum(buckets),
           f"bytes in the network: {result['network_bytes']}")
    for side in ("fanin", "gloo"):
        times = {name: result[name][side] for name in ("ms", "sum_ms", "communication_ms")}
        expect_equal([len(values) for values in times.values()], [steps] * 3,
                     f"times over {side}: {times}")
        expect(min(times["ms"] + times["sum_ms"]) > 0, f"times over {side}: {times}")
        expect_equal(times["communication_ms"],
                     [step - none for step, none in zip(times["ms"], result["ms"]["none"])],
                     f"communication over {side}")
    # A difference of two steps may be negative while other tests run.
    for name, values in (("step", "ms"), ("communication", "communication_ms"), ("sum", "sum_ms")):
        fanin, gloo = (statistics.median(result[values][side][2:]) for side in ("fanin", "gloo"))
        expect_equal(result["ratio"][name], fanin / gloo if min(fanin, gloo) > 0 else None,
                     f"the ratio of {name}")
    for words in (("--hosts", "1"), ("--steps", "x"), ("--bucket-mb", "26"),
                  ("--topology", "tree3")):
        done = run([*module("lab.demo"), "--torch", *words], check=False)
        expect_equal(done.returncode, 2, f"exit status of the demo with {words}")
