# SPDX-License-Identifier: BSD-3-Clause
"""Multicast regions on real processes: after a fence the writes of each rank are everywhere,
whatever is lost and whichever spine dies; ranks name one that is killed; and nobody writes outside
a region.
"""

import json
import os
import signal
import struct

from tests.net.support import case, expect, expect_equal, program, wait_until
from lab.fabric import MANAGER_IP, leaf_spine
from tests.net.frames import WRITE
from tests.net.case_levels import KEY, LOSS, running_fabric
from protocols.multicast.tests.case_multicast import Member, WireFabric
from tests.net.case_trees import jobs_left, managed_fabric

DATA_MTU = 9000
ROUNDS = 3
BASE, BYTES = 1 << 40, 4096
JOB = 7


def write(fabric, host, size, mode, user=None):
    token = fabric.token_file.read_text().strip()
    return fabric.spawn(host,
                        ["env", f"FANIN_TOKEN={token}", program("regions"), MANAGER_IP, "train",
                         fabric.host_ip(host), host, size, mode], "regions",
                        user)


def found_by(ranks, timeout=120):
    statuses = [process.wait(timeout) for process in ranks]
    found = []
    for process, status in zip(ranks, statuses):
        expect(process.stdout(), f"a rank said nothing: {process.last_words()}")
        found.append(json.loads(process.stdout()))
        expect_equal(status, 0 if found[-1]["ok"] else 1,
                     f"exit status of a rank that found {found[-1]}: {process.last_words()}")
    return found


def expect_right(fabric, found):
    for rank, each in enumerate(found):
        expect_equal((each["ok"], each.get("wrong"), each.get("wrong_sums"), each.get("refuses")),
                     (True, 0, 0, True), f"what rank {rank} found: {each}")
        expect_equal(each["addresses"], found[0]["addresses"], f"addresses of rank {rank}")
    wait_until(lambda: not any(jobs_left(fabric).values()), 60,
               "all jobs to be gone from all switches")


@case(240, also_over_udp=True, family=True)
def regions_are_exact_with_packets_lost_doubled_and_reordered():
    with managed_fabric(leaf_spine(2, 2, 8), mtu=DATA_MTU, config=LOSS) as fabric:
        expect_right(fabric, found_by([write(fabric, host, 8, ROUNDS) for host in range(8)]))


@case(120, also_over_udp=True)
def regions_have_tags_if_their_communicator_has():
    with managed_fabric(leaf_spine(2, 1, 4), mtu=DATA_MTU, config=LOSS) as fabric:
        found = found_by([write(fabric, host, 4, "tags") for host in range(4)])
        expect_right(fabric, found)
        expect_equal([each["tags"] for each in found], [True] * 4, "tags of the regions")


@case(120)
def each_region_is_an_entry_of_the_switches_tables():
    """The entries exist while the ranks run; writes reach hosts that call nothing."""
    with managed_fabric(leaf_spine(2, 1, 4), mtu=DATA_MTU) as fabric:
        ranks = [write(fabric, host, 4, "silent") for host in range(4)]
        entries = {}

        def seen():
            for switch in fabric.topology.switches:
                for job in fabric.ask(switch, "jobs.list")["jobs"]:
                    if job["handler"] == "region":
                        entries[switch, job["id"]] = (job["parameters"]["base"],
                                                      job["parameters"]["bytes"])
            return len(entries) >= 2 * len(
                fabric.topology.switches) or not any(process.running() for process in ranks)
        wait_until(seen, 60, "the regions on all switches")
        found = found_by(ranks)
        expect_right(fabric, found)
        expect_equal(sorted(set(entries.values())),
                     sorted((address, 16 * 50021 + 13) for address in found[0]["addresses"]),
                     "entries of the switches")
        for rank, each in enumerate(found):
            expect(each["silent_s"] < 10,
                   f"rank {rank} saw what rank 0 wrote after {each['silent_s']} s")


@case(180, also_over_udp=True)
def a_rank_that_is_killed_is_named_by_all_others_in_a_fence():
    with managed_fabric(leaf_spine(2, 1, 8), mtu=DATA_MTU) as fabric:
        victim = 5
        ranks = [write(fabric, host, 8, "endless") for host in range(8)]
        wait_until(lambda: fabric.port_counters("leaf0")["h1"]["tx_frames"] > 1000, 60,
                   "the ranks to write")
        os.kill(ranks[victim].pid, signal.SIGKILL)
        for rank, each in enumerate(found_by([process for rank,
                                              process in enumerate(ranks) if rank != victim])):
            expect_equal((each["ok"], each["what"] in ("fence", "write"), each["missing"]),
                         (False, True, [victim]), f"what a rank found: {each}")
            expect(f"rank {victim}" in each["error"], f"the error of a rank: {each['error']}")


@case(240, also_over_udp=True, long=True)
def regions_go_on_when_their_spine_dies():
    """Regions go on over the other spine: fences begin with the same block, and lost packets are
    fetched.
    """
    with managed_fabric(leaf_spine(2, 2, 4), mtu=DATA_MTU) as fabric:
        ranks = [write(fabric, host, 4, 300) for host in range(4)]
        wait_until(lambda: fabric.port_counters("leaf0")["h1"]["tx_frames"] > 2000, 60,
                   "the ranks to write")
        root = next(tree["nodes"][0]["switch"] for tree in fabric.ask_manager("trees")["trees"]
                    if tree["name"] == "train.region0")
        os.kill(fabric.switches[root].pid, signal.SIGKILL)
        for rank, each in enumerate(found_by(ranks)):
            expect_equal((each["ok"], each.get("wrong"), each.get("wrong_sums"),
                          each.get("resumed", 0) > 0), (True, 0, 0, True),
                         f"what rank {rank} found: {each}")


@case(60)
def ranks_that_give_different_lengths_get_no_region():
    with managed_fabric(leaf_spine(2, 1, 4), mtu=DATA_MTU) as fabric:
        for rank, each in enumerate(found_by([write(fabric, host, 4, "lengths")
                                              for host in range(4)])):
            expect_equal((each["ok"], each["what"], each["status"]), (False, "create", -1),
                         f"what rank {rank} found: {each}")
            expect("the ranks give regions of 800348 to 800349 bytes" in each["error"],
                   f"the error of rank {rank}: {each['error']}")


@case(60)
def a_rank_without_memory_for_a_region_tells_all_others_and_the_communicator_goes_on():
    with managed_fabric(leaf_spine(2, 1, 4), mtu=DATA_MTU) as fabric:
        found = found_by([write(fabric, host, 4, "memory") for host in range(4)])
        for rank, each in enumerate(found):
            expect_equal((each.get("first"), each.get("why")),
                         (-2, "rank 1 has no memory for a region"),
                         f"what rank {rank} found: {each}")
        expect_right(fabric, found)


@case(60)
def a_rank_without_memory_to_agree_on_a_region_is_waited_for_by_nobody():
    """The rank can't take part, so the communicator ends, and the others name it."""
    with managed_fabric(leaf_spine(2, 2, 4), mtu=DATA_MTU) as fabric:
        found = found_by([write(fabric, host, 4, "agreement") for host in range(4)])
        expect_equal((found[1]["status"], found[1]["what"]), (-2, "create"),
                     f"what the rank without memory found: {found[1]}")
        expect("out of memory while the ranks of job 'train' agreed" in found[1]["error"],
               f"the error of the rank without memory: {found[1]}")
        for rank, each in enumerate(found):
            if rank != 1:
                expect_equal((each["ok"], each["what"], 1 in each["missing"]),
                             (False, "create", True), f"what rank {rank} found: {each}")


@case(120)
def bytes_outside_of_a_region_go_nowhere():
    """A member sends packets by hand, at a real switch."""
    with running_fabric(leaf_spine(1, 1, 2), mtu=1500, base=WireFabric) as fabric:
        parents = fabric.tree("leaf0", {0: 0, 1: 1})
        fabric.install(JOB, KEY, parents, {0: 0, 1: 1}, handler="region",
                       parameters={"base": BASE, "bytes": BYTES})
        members = [Member(fabric, host, host, 2, job=JOB) for host in range(2)]
        wait_until(lambda: all([member.joined() for member in members]), 60, "both to have joined")
        heard = []

        def listen():
            for _, frame in members[1].port.arrived():
                content = frame[42:]
                if frame[12:14] == b"\x08\x00" and len(content) >= 54 and content[1] == WRITE + 1:
                    heard.append(struct.unpack_from("<Q", content, 40)[0])
            return heard
        before = fabric.drops("leaf0")
        addresses = (BASE - 1, BASE + BYTES - 99, BASE + BYTES, 0, (1 << 64) - 1, BASE,
                     BASE + BYTES - 100)
        for address in addresses:
            members[0].port.send(members[0].make(WRITE, bytes(100), epoch=members[0].epoch,
                                                 members=address, count=0))
        members[0].port.send(members[0].make(WRITE, b"", epoch=members[0].epoch, members=BASE,
                                             count=0))
        members[0].port.send(members[0].make(WRITE, bytes(100), epoch=members[0].epoch,
                                             members=BASE + 1, count=1))
        members[0].port.send(members[0].make(WRITE, bytes(100), epoch=members[0].epoch,
                                             members=BASE + 2, count=0))
        wait_until(lambda: BASE + 2 in listen(), 60, "the last packet, which is right")
        expect_equal(heard, [BASE, BASE + BYTES - 100, BASE + 2],
                     "addresses that came to the other member")
        after = fabric.drops("leaf0")
        expect_equal([after.get(name, 0) - before.get(name, 0)
                      for name in ("region_range", "rank_unknown")], [6, 1], "drops")
        job = next(job for job in fabric.ask("leaf0", "jobs.list")["jobs"] if job["id"] == JOB)
        counters = {counter["name"]: counter["count"] for counter in job["counters"]}
        expect_equal((counters["out_of_range"], counters["writes"]), (6, 3), "counters of the job")
        for member in members:
            member.port.socket.close()
        fabric.uninstall(JOB, parents)
