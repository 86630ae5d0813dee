# SPDX-License-Identifier: BSD-3-Clause
"""The backend of PyTorch: real ranks of torch.distributed on hosts of a switch with a manager."""

import json
import time

from support import CaseFailed, LabError, case, expect, expect_equal
from fabric import MANAGER_IP, MANAGER_PORT, Fabric, single
from lab import BUILD_DIR, HOST_INTERFACE, SOURCE_DIR

PACKAGE = BUILD_DIR / "torch"
RANKS = 4


def interpreter():
    """The python3 that the extension was built for."""
    path = PACKAGE / "fanin_torch" / "interpreter"
    if not path.exists():
        raise LabError(f"{path} does not exist: this build has no PyTorch backend; meson's summary says why (packages: packages.txt, [test])")
    return path.read_text().strip()


class TorchFabric(Fabric):
    """Four hosts at a switch with a manager; without one if it is not to be found."""

    def __init__(self, manager=True):
        super().__init__(single(RANKS))
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

    def environment(self, **more):
        values = {"PYTHONPATH": PACKAGE, "FANIN_CONF": "/dev/null", "FANIN_MANAGER": f"{MANAGER_IP}:{MANAGER_PORT}",
                  "FANIN_TOKEN": self.token_file.read_text().strip(), "FANIN_INTERFACE": HOST_INTERFACE,
                  "GLOO_SOCKET_IFNAME": HOST_INTERFACE, "MASTER_ADDR": self.host_ip(0), "MASTER_PORT": 29500, "OMP_NUM_THREADS": 1,
                  "PYTHONDONTWRITEBYTECODE": 1, **more}
        return ["/usr/bin/env"] + [f"{key}={value}" for key, value in values.items()]

    def ranks(self, scenario, hosts=range(RANKS), **environment):
        program = SOURCE_DIR / "tests" / "net" / "torch_rank.py"
        return [self.spawn(host, [*self.environment(RANK=rank, WORLD_SIZE=len(hosts), **environment), interpreter(), program, scenario],
                           "torch") for rank, host in enumerate(hosts)]


def results_of(ranks, seconds=120):
    """What the ranks have printed, once all have ended well."""
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
        expect_equal((world["rank"], world["size"], world["in_network"], world["failed"], world["transport"]),
                     (rank, RANKS, True, False, "af_packet"), f"the group of all ranks, as rank {rank} reports it: {world}")
        expect_equal(result["warnings"], [], f"warnings of rank {rank}")


@case(120)
def torch_collectives_are_exact_in_the_network():
    with TorchFabric() as lab:
        results = results_of(lab.ranks("collectives"))
        expect_world_in_network(results)
        for result in results:
            world = result["report"][0]
            expect_equal(sorted(world["network"]),
                         ["_allgather_base", "_reduce_scatter_base", "allgather", "allreduce", "broadcast", "reduce", "reduce_scatter"],
                         "what ran in the network")
            reasons = {name: list(reasons) for name, reasons in world["gloo"].items() if name not in ("send", "recv")}
            elsewhere = ["no such collective in the library"]
            expect_equal(reasons, dict.fromkeys(("alltoall", "alltoall_base", "gather", "monitored_barrier", "scatter"), elsewhere),
                         "what ran on Gloo, and why")
            expect(world["blocks"] > 0, f"no block came from the switch: {world}")
        expect_equal([list(results[0]["report"][0]["gloo"]["send"]), list(results[1]["report"][0]["gloo"]["recv"])],
                     [["point-to-point is not in the library"]] * 2, "point-to-point")


@case(60)
def torch_groups_work_side_by_side():
    with TorchFabric() as lab:
        results = results_of(lab.ranks("groups"))
        expect_world_in_network(results)
        for rank, result in enumerate(results):
            report = {(group["size"], group["accumulates_f32"]): group for group in result["report"][1:]}
            expect_equal((report[2, False]["in_network"], report[4, True]["in_network"], report[1, False]["in_network"],
                          report[1, False]["reason"]), (True, True, False, "the group has one rank"), f"groups of rank {rank}")
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
            expect(all(value < 1e-5 for value in differences.values()), f"parameters beside Gloo's: {differences}")
            expect(0 < bf16 < 0.05, f"with bfloat16 beside Gloo's: {bf16}")
            for group in result["report"]:
                expect((group["in_network"], group["gloo"]) == (True, {}), f"what did not go through the network: {group}")
                if group["group"] != result["report"][0]["group"]:
                    expect(group["network"]["allreduce"]["calls"] >= 20, f"allreduces of a training: {group}")


@case(60)
def a_killed_rank_of_torch_is_named():
    with TorchFabric() as lab:
        began = time.monotonic()
        ranks = lab.ranks("killed")
        results = results_of([ranks[rank] for rank in (0, 1, 3)])
        expect_equal(ranks[2].wait(10), -9, "exit status of the killed rank")
        for result in results:
            expect("missing ranks of the group: 2" in result["error"], f"the exception: {result['error']}")
            expect("missing ranks of the group: 2" in result["report"][0]["reason"], f"the report: {result['report'][0]}")
        expect(time.monotonic() - began < 60, "the others waited for more than a minute")


@case(60)
def torchs_timeout_ends_the_wait_for_a_late_rank():
    with TorchFabric() as lab:
        for rank, result in enumerate(results_of(lab.ranks("late"))):
            if rank != 1:
                expect("missing ranks of the group: 1" in result["error"], f"the exception: {result['error']}")
                expect(2.5 < result["seconds"] < 11, f"a timeout of 3 s took {result['seconds']} s")


@case(120)
def torch_falls_back_to_gloo_or_raises_as_it_is_told():
    with TorchFabric(manager=False) as lab:
        for rank, result in enumerate(results_of(lab.ranks("fallen_back", FANIN_TORCH_JOIN_TIMEOUT=5))):
            world = result["report"][0]
            expect_equal((world["in_network"], world["network"], len(result["warnings"])), (False, {}, 1 if rank == 0 else 0),
                         f"rank {rank}, fallen back: {result}")
            expect("rank 0: the network manager can't be reached" in world["reason"], f"why: {world['reason']}")
            if rank == 0:
                expect("runs on Gloo, not in the network: rank 0: " in result["warnings"][0], f"the warning: {result['warnings']}")
        ranks = lab.ranks("fallen_back", FANIN_TORCH_JOIN_TIMEOUT=5, FANIN_TORCH_FALLBACK="raise")
        for rank in ranks:
            expect_equal(rank.wait(60), 1, f"exit status of a rank that is to raise: {rank.stderr()[-500:]}")
            expect("RuntimeError: fanin: not in the network: rank 0: " in rank.stderr(), f"the exception: {rank.stderr()[-500:]}")


@case(60)
def torch_ranks_that_share_a_host_say_so():
    with TorchFabric() as lab:
        for result in results_of(lab.ranks("fallen_back", hosts=(0, 1, 2, 2))):
            expect_equal(result["report"][0]["reason"], "ranks 2, 3 share a host, of which a job has one rank", "why")
