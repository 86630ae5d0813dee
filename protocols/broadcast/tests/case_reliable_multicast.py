# SPDX-License-Identifier: BSD-3-Clause
"""Reliable multicast on real processes: it makes broadcasts and allgathers exact, each link carries
their data once, nothing is fetched without loss, blocking calls find it by themselves, and ranks
name one that is killed.
"""

import json
import os
import re
import signal
import time

from tests.net.support import (KIB, MIB, case, expect, expect_equal, expect_exact, program,
                               wait_until)
from lab.fabric import MANAGER_IP, leaf_spine
from tests.net.case_levels import LOSS
from tests.net.case_trees import finish, jobs_left, managed_fabric, start
from lab.namespaces import HOST_INTERFACE
from lab.traffic import link_bytes

ROUNDS = 3
DATA_MTU = 9000
IDLE_SECONDS = 2
TIMES = 4  # joining and leaving take frames, too


def run(fabric, where, **options):
    """Runs a job by multicast, and returns its reports."""
    reports = finish(fabric, start(fabric, "cast", 1, multicast="always", **options))
    expect_exact(reports, where)
    for rank, report in enumerate(reports):
        expect_equal(report["multicast_reason"],
                     "all broadcasts and allgathers: the options say always",
                     f"{where}: rank {rank}")
        expect_equal(report["multicast_operations"],
                     options.get("iters", 1) + options.get("warmup", 0),
                     f"{where}: operations of rank {rank}")
    wait_until(lambda: not any(jobs_left(fabric).values()), 60,
               f"{where}: both jobs to be gone from all switches")
    return reports


def fetched_part(reports):
    return sum(report["multicast_fetched"] for report in reports) / sum(report["multicast_packets"]
                                                                        for report in reports)


@case(300, also_over_udp=True, family=True)
def multicast_is_exact_with_packets_lost_doubled_and_reordered():
    with managed_fabric(leaf_spine(2, 2, 8), mtu=DATA_MTU, config=LOSS) as fabric:
        for collective in ("broadcast", "allgather"):
            for size in (8, MIB, 8 * MIB):
                reports = run(fabric, f"{collective} of {size} bytes", collective=collective,
                              bytes=size if collective == "broadcast" else max(size, 32))
        expect(fetched_part(reports) > 0, "nothing was fetched")
        run(fabric, "two subgroups, last root", collective="broadcast", bytes=MIB + 4, root=7,
            subgroups=2)


def links_of(fabric):
    """Returns {name: (namespace, interface)} of hosts' and leaves' links."""
    ends = {f"host {host}": (fabric.host_namespace(host), HOST_INTERFACE)
            for host in range(fabric.hosts)}
    ends.update({f"{leaf} to {spine}": (fabric.switch_ns(leaf), f"to-{spine}") for leaf,
                 spine in fabric.topology.links})
    return ends


def carried(fabric, size, **options):
    """Runs a job. Returns {link: (received, sent)} in multiples of the vector, and the frames that
    came into each switch for each packet of data.
    """
    def frames():
        """Returns (time, {switch: frames that came in})."""
        return time.monotonic(), {switch: sum(port["rx_frames"]
                                              for port in fabric.port_counters(switch).values())
                                  for switch in fabric.topology.switches}

    def rates(first, last):
        return {switch: (last[1][switch] - first[1][switch]) / (last[0] - first[0])
                for switch in first[1]}

    # Switches ask each other all the time which neighbors are there.
    idle = frames()
    wait_until(lambda: time.monotonic() - idle[0] > IDLE_SECONDS, 60, "some time to pass")
    idle = rates(idle, frames())
    before = {name: link_bytes(*end) for name, end in links_of(fabric).items()}
    first = frames()
    reports = run(fabric, f"{options['collective']} of {size} bytes", bytes=size, warmup=0,
                  iters=TIMES, **options)
    packets = TIMES * size / reports[0]["payload_bytes"]
    last = frames()
    entered = {switch: (rate - idle[switch]) * (last[0] - first[0]) / packets for switch,
               rate in rates(first, last).items()}
    parts = {name: tuple((after - earlier) / size / TIMES for after,
                         earlier in zip(link_bytes(*end), before[name])) for name,
             end in links_of(fabric).items()}
    return parts, entered


@case(400, long=True)
def each_link_carries_a_multicast_once():
    """On a busy machine ranks may fetch packets that were only late: the case then runs the job
    again.
    """
    size = 64 * MIB
    with managed_fabric(leaf_spine(2, 2, 8), mtu=DATA_MTU) as fabric:
        for collective in ("broadcast", "allgather"):
            for _ in range(5):
                parts, entered = carried(fabric, size, collective=collective)
                if max(max(both) for both in parts.values(
                        )) <= 1.05 and max(entered.values()) <= 1.05:
                    break
            print(f"{collective}: most of a link {max(max(both) for both in parts.values()):.3f} "
                  f"of the vector, frames into a switch {max(entered.values()):.3f} for each packet")
            for name, both in parts.items():
                expect(max(both) <= 1.05, f"{collective}: {name} carried {both} of the vector")
            for switch, each in entered.items():
                expect(each <= 1.05, f"{collective}: {each:.3f} frames came into {switch} for each "
                                     "packet")


def gather(fabric, host, size, rounds):
    token = fabric.token_file.read_text().strip()
    return fabric.spawn(host,
                        ["env", f"FANIN_TOKEN={token}", program("gathering"), MANAGER_IP, "train",
                         fabric.host_ip(host), host, size, rounds], "gathering")


@case(120, also_over_udp=True)
def a_call_that_is_interrupted_while_ranks_agree_on_multicast_ends_the_communicator():
    """The interrupted rank has posted nothing that could be resumed, and the others must not go on
    as if it had agreed.
    """
    interrupted = -12
    with managed_fabric(leaf_spine(2, 1, 4), mtu=DATA_MTU) as fabric:
        ranks = [gather(fabric, host, 4, ROUNDS if host else 0) for host in range(4)]
        for process in ranks:
            process.wait(60)
        found = [json.loads(process.stdout()) for process in ranks]
        expect_equal((found[0].get("first"), found[0].get("second")), (interrupted, interrupted),
                     f"what the interrupted rank found: {found[0]}")
        expect("interrupted" in found[0]["error"], f"the error of the interrupted rank: {found[0]}")
        for rank, other in enumerate(found[1:], 1):
            expect(not other["ok"] and re.search(r"\branks? 0\b", other["error"]),
                   f"rank {rank} does not name rank 0: {other}")
        wait_until(lambda: not any(jobs_left(fabric).values()), 60,
                   "the job to be gone from all switches")


def expect_told(found, status, words, missing, where):
    """Expects the context and the communicator to name the reason why the broadcasts' job has
    failed, and the communicator to fail with the job.
    """
    expect_equal((found.get("status"), found.get("next")), (status, status),
                 f"what {where} found: {found}")
    for name in ("ctx", "comm", "why"):
        expect(words in found[name], f"{name} of {where}, expected {words}: {found}")
    for name in ("ctx_missing", "comm_missing"):
        expect(set(missing) <= set(found[name]), f"{name} of {where}, expected {missing}: {found}")
    expect("'train.multicast', by which broadcasts go" in found["why"],
           f"why a sum fails at {where}: {found}")


@case(120, long=True)
def a_rank_that_is_killed_in_a_broadcast_is_named_by_the_communicator_that_was_asked_for_it():
    with managed_fabric(leaf_spine(2, 1, 4), mtu=DATA_MTU) as fabric:
        ranks = [gather(fabric, host, 4, "killed") for host in range(4)]
        wait_until(lambda: all("running" in process.stderr() for process in ranks), 60,
                   "the broadcasts to run")
        os.kill(ranks[2].pid, signal.SIGKILL)
        for rank in (0, 1, 3):
            ranks[rank].wait(60)
            expect_told(json.loads(ranks[rank].stdout()), -8, "rank", [2], f"rank {rank}")


@case(120)
def ranks_that_disagree_about_a_broadcast_have_no_communicator_any_more():
    """Some ranks may know of the failure and others not yet: they would not agree on which
    operations go by multicast.
    """
    with managed_fabric(leaf_spine(2, 1, 4), mtu=DATA_MTU) as fabric:
        ranks = [gather(fabric, host, 4, "disagree") for host in range(4)]
        for rank, process in enumerate(ranks):
            process.wait(60)
            expect_told(json.loads(process.stdout()), -9, "the ranks disagree about the collective",
                        [], f"rank {rank}")


@case(120)
def blocking_calls_find_multicast_by_themselves():
    with managed_fabric(leaf_spine(2, 2, 8), mtu=DATA_MTU) as fabric:
        ranks = [gather(fabric, host, 8, ROUNDS) for host in range(8)]
        for process in ranks:
            process.wait(60)
        for process in ranks:
            expect(process.stdout(), f"a rank said nothing: {process.last_words()}")
            found = json.loads(process.stdout())
            expect_equal((found["ok"], found.get("wrong"), found.get("reason"),
                          found.get("operations")),
                         (True, 0, f"broadcasts and allgathers of {16 * 8896} bytes or more",
                          2 * ROUNDS), f"what a rank found: {found}")
        wait_until(lambda: not any(jobs_left(fabric).values()), 60,
                   "both jobs to be gone from all switches")


@case(120)
def perf_finds_multicast_where_it_is_faster():
    """perf decides by size: a short operation asks for no second job."""
    with managed_fabric(leaf_spine(2, 1, 4), mtu=DATA_MTU) as fabric:
        for size, calls in ((MIB, 4), (KIB, 0)):
            reports = finish(fabric, start(fabric, "found", 1, multicast="auto",
                                           collective="allgather", bytes=size, iters=2, warmup=1,
                                           check=None))
            for rank, report in enumerate(reports):
                expect_equal(report["multicast_operations"], calls,
                             f"operations of rank {rank} with {size} bytes: "
                             f"{report['multicast_reason']}")


@case(240, also_over_udp=True, long=True)
def a_rank_that_is_killed_in_a_multicast_is_named():
    """The ranks that wait for its data name it, and so do the ranks that wait for it to receive, at
    its leaf and at others.
    """
    for victim in (0, 5):
        with managed_fabric(leaf_spine(2, 1, 8), mtu=DATA_MTU) as fabric:
            ranks = start(fabric, "cast", 1, multicast="always", collective="broadcast",
                          bytes=64 * MIB, iters=1000, check=None,
                          check_ends=True, timeout_ms=5000)
            wait_until(lambda: fabric.port_counters("leaf0")["h1"]["tx_frames"] > 20000, 60,
                       "the broadcasts to run")
            os.kill(ranks[victim].pid, signal.SIGKILL)
            for host, rank in enumerate(ranks):
                if host == victim:
                    continue
                expect(rank.wait(60) != 0, f"rank {host} goes on without rank {victim}")
                error = json.loads(rank.stdout())["error"]
                expect_equal(error["code"], "timeout", f"rank {host}: {error['message']}")
                expect(victim in error["missing"],
                       f"rank {host} names {error['missing']}, expected {victim}: "
                       f"{error['message']}")


@case(240, also_over_udp=True, long=True)
def a_multicast_goes_on_when_its_spine_dies():
    """The multicast goes on over the other spine, in a run that begins with the same block; lost
    packets are fetched.
    """
    with managed_fabric(leaf_spine(2, 2, 8), mtu=DATA_MTU) as fabric:
        ranks = start(fabric, "cast", 1, multicast="always", collective="broadcast", bytes=16 * MIB,
                      iters=60, check=None, check_ends=True)
        wait_until(lambda: fabric.port_counters("leaf0")["h1"]["tx_frames"] > 10000, 60,
                   "the broadcasts to run")
        root = next(tree["nodes"][0]["switch"] for tree in fabric.ask_manager("trees")["trees"]
                    if tree["name"] == "cast.multicast")
        os.kill(fabric.switches[root].pid, signal.SIGKILL)
        reports = finish(fabric, ranks)
        expect_exact(reports, f"broadcasts while {root} dies")
        expect_equal([report["multicast_operations"] for report in reports], [60] * 8, "operations")


@case(60)
def multicast_that_has_to_be_is_refused_where_it_cannot_be():
    with managed_fabric(leaf_spine(2, 1, 2)) as fabric:
        ranks = start(fabric, "cast", 1, multicast="always", handler="ring", no_fallback=None,
                      collective="broadcast", bytes=100 * KIB)
        for rank in ranks:
            expect(rank.wait(60) != 0, "a ring multicasts")
            error = json.loads(rank.stdout())["error"]
            expect_equal(error["code"], "unsupported", error["message"])
            expect("has no multicast: the job runs without a switch" in error["message"],
                   error["message"])
