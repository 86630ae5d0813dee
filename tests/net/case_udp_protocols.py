# SPDX-License-Identifier: BSD-3-Clause
"""Hosts on UDP sockets, as nobody, over leaves and spines with the network manager: each family of
protocols is exact at MTU 9000, and at 1500 with packets lost at every hop. The cases that are
also_over_udp make up the rest of the matrix.
"""

from tests.net.support import KIB, MIB, case, expect, expect_equal
from protocols.region.tests.case_regions import expect_right, found_by, write
from tests.net.case_trees import finish, managed_fabric, start
from lab.fabric import leaf_spine
from lab.namespaces import NOBODY

LOST = 0.05
HOSTS = 4
SIZE = MIB + 16
PART = 4  # divides the sizes where losses take time
REGION_ROUNDS = 2


def jobs(*collectives, trees=1, **options):
    """Returns a function that runs a job of each of these collectives, (name, bytes), and returns
    the ranks' reports. part: divides the sizes.
    """
    def run(fabric, part):
        found = []
        for collective, size in collectives or (("allreduce", SIZE),):
            ranks = start(fabric, f"job-{collective}", trees, collective=collective,
                          bytes=size // part, iters=2, **options)
            found += finish(fabric, ranks)
        return found
    return run


def regions(fabric, _part):
    expect_right(fabric, found_by([write(fabric, host, HOSTS, REGION_ROUNDS, NOBODY)
                                   for host in range(HOSTS)]))
    return []


# name: (handler, the function that runs it)
FAMILIES = {
    "single_buffers": ("single",
                       jobs(("allreduce", SIZE), ("reduce_scatter", MIB), handler="single")),
    "several_buffers": ("multi", jobs(handler="multi")),
    "trees_of_buffers": ("tree", jobs(handler="tree")),
    "two_trees": ("single", jobs(handler="single", trees=2)),
    "tags": ("single", jobs(handler="single", authenticate=True)),
    "pushes": ("push", jobs(("allreduce", 300 * KIB + 16), handler="push")),
    "pulls": ("pull", jobs(("allreduce", 300 * KIB + 16), handler="pull")),
    "multicasts": ("single", jobs(("broadcast", SIZE), ("allgather", MIB), handler="single",
                                  multicast="always")),
    "parameter_servers": ("pa-atp", jobs(("allreduce", 300 * KIB), handler="pa-atp", trees=2)),
    "leaders": ("canary", jobs(("allreduce", 300 * KIB), handler="canary", trees=None)),
    "sparse_vectors": ("sparse", jobs(handler="sparse", sparse=True, density=0.05)),
    "regions": (None, regions),
}


def family_is_exact(name, mtu, lost):
    handler, run = FAMILIES[name]
    topology = leaf_spine(2, 2, HOSTS)
    if handler == "pa-atp":
        topology.add_servers(2, ["spine0", "spine1"])
    # Each slot of a sparse job keeps a result of 64 packets.
    config = {"limits": {"max_jobs": 2, "slots": 4160}
              if handler == "sparse" else {"max_jobs": 16, "slots": 2048}}
    if lost:
        config["faults"] = {"drop": lost, "seed": 7}
    with managed_fabric(topology, transport="udp", mtu=mtu, config=config) as fabric:
        for rank, report in enumerate(run(fabric, PART if lost else 1)):
            where = f"report {rank} of {name}, MTU {mtu}"
            expect(report.get("ok") and report["mismatches"] == 0 and report["in_network"],
                   f"{where}: {report}")
            expect_equal((report["handler"], report["transport"]), (handler, "udp"),
                         f"handler and transport in {where}")
        if lost:
            dropped = {switch: fabric.drops(switch).get("fault_drop", 0)
                       for switch in fabric.topology.switches}
            expect(all(dropped[switch] > 0 for switch in ("leaf0", "leaf1")),
                   f"packets that switches have lost on purpose: {dropped}")


def enter(name):
    def at_mtu_9000():
        family_is_exact(name, 9000, 0)

    def with_losses():
        family_is_exact(name, 1500, LOST)
    at_mtu_9000.__name__ = f"{name}_are_exact_over_udp_at_mtu_9000"
    with_losses.__name__ = f"{name}_are_exact_over_udp_with_5_percent_lost"
    case()(at_mtu_9000)
    case()(with_losses)


for family in FAMILIES:
    enter(family)
