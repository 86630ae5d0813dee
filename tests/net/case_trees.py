# SPDX-License-Identifier: BSD-3-Clause
"""Jobs of several reduction trees: each spine carries its part of the blocks, all collectives are
exact, one spine's death moves the trees over it, and a request for more trees than possible gets an
error.
"""

import contextlib
import time

from tests.net.support import KIB, MIB, case, expect, expect_equal, expect_exact, wait_until
from lab.fabric import Fabric, leaf_spine
from tests.net.case_levels import LOSS
from tests.net.pace import Pace
from lab.traffic import link_bytes

RANK_SECONDS = 180


@contextlib.contextmanager
def managed_fabric(*arguments, manager=None, **options):
    with Fabric(*arguments, **options) as fabric:
        fabric.start()
        fabric.start_manager(**(manager or {}))
        yield fabric


def start(fabric, job, trees, ranks=None, **options):
    """Starts a job. ranks: of the hosts; default: their numbers."""
    options = {"bytes": MIB, "check": True, "transport": fabric.transport, "trees": trees,
               "no_fallback": True, **options}
    return [fabric.spawn_named(host, job, rank, fabric.hosts, **options) for host,
            rank in enumerate(ranks or range(fabric.hosts))]


def finish(fabric, ranks):
    for rank in ranks:
        rank.wait(RANK_SECONDS)
    return [fabric.perf_report(rank) for rank in ranks]


def run_job(fabric, where, trees, handler="single", has=None, **options):
    """Runs a job and expects it to be exact over `has` trees, or as many as it asks for."""
    reports = finish(fabric, start(fabric, "job", trees, **options))
    expect_exact(reports, where, handler)
    for rank, report in enumerate(reports):
        expect_equal((report["trees"], report["trees_asked"]), (has or trees, trees),
                     f"{where}: trees of rank {rank}")
    wait_until(lambda: not any(jobs_left(fabric).values()), 60,
               f"{where}: the job to be gone from all switches")
    return reports


def jobs_left(fabric):
    return {switch: len(fabric.ask(switch, "jobs.list")["jobs"])
            for switch in fabric.topology.switches
            if fabric.switches[switch].running()}


def uplinks(fabric):
    """Returns {(leaf, spine): (received, sent)}, as the kernel counts at the leaf's interface."""
    return {(leaf, spine): link_bytes(fabric.switch_ns(leaf), f"to-{spine}")
            for leaf, spine in fabric.topology.links}


def measure(fabric, trees, size):
    """Returns {(leaf, spine): (received, sent)} in multiples of the vector, while a job runs."""
    before = uplinks(fabric)
    run_job(fabric, f"{trees} trees", trees, bytes=size, iters=1, warmup=0)
    parts = {link: tuple((after - earlier) / size for after, earlier in zip(both, before[link]))
             for link, both in uplinks(fabric).items()}
    print(f"{trees} trees: " + ", ".join(f"{leaf}-{spine} {up:.3f} {down:.3f}" for (leaf, spine),
                                         (up, down) in parts.items()))
    return parts


@case(120, long=True)
def two_trees_put_half_of_the_vector_on_each_spine():
    """A busy machine sends blocks again that were not lost: then the case runs the job once more.
    """
    size = 16 * MIB
    with managed_fabric(leaf_spine(2, 2, 8), mtu=9000,
                        config={"limits": {"max_jobs": 4, "slots": 512}}) as fabric:
        for trees, least, most in ((2, 0.5, 0.6), (1, 0, 1.1)):
            for _ in range(5):
                parts = measure(fabric, trees, size)
                if all(part <= most for both in parts.values() for part in both):
                    break
            for link, both in parts.items():
                expect(all(least <= part <= most for part in both),
                       f"{trees} trees: {link} carried {both} of the vector")
        # With one tree, one of the spines carries the whole vector.
        expect_equal(sorted(round(up) for up, _ in parts.values()), [0, 0, 1, 1],
                     "links of one tree that carried the vector")


@case(150, also_over_udp=True, thorough=True)
def collectives_over_three_trees_are_exact_under_loss():
    with managed_fabric(leaf_spine(2, 3, 5), config=LOSS, manager={"trees": 3}) as fabric:
        lost = 0
        for options in ({"bytes": 300 * KIB + 4, "iters": 3},
                        {"collective": "barrier", "bytes": None, "iters": 20},
                        {"collective": "allgather", "bytes": 50 * KIB, "dtype": "i8"},
                        {"collective": "reduce_scatter", "bytes": 200 * KIB, "dtype": "i64"},
                        {"collective": "broadcast", "root": 3, "bytes": 100 * KIB + 1,
                         "dtype": "u8"},
                        {"collective": "reduce", "root": 4, "in_place": True, "bytes": 8 * KIB,
                         "op": "avg"},
                        {"bytes": 4, "iters": 10}, {"dtype": "bf16", "bytes": 100 * KIB},
                        {"window": 4, "bytes": 100 * KIB}):
            lost += sum(report["retransmits"]
                        for report in run_job(fabric, str(options), 3, **options))
        expect(lost > 0, "no packet was lost")
        # Three hosts are at leaf0, and two at leaf1, which has the first ranks: leaf0 is the root
        # of each tree.
        digests = {report["digest"] for trees in (3, 1)
                   for report in run_job(fabric, "reproducible", trees, ranks=(2, 3, 4, 0, 1),
                                         handler="tree", reproducible=True,
                                         data="random", bytes=200 * KIB)}
        expect_equal((len(digests), None in digests), (1, False),
                     f"bits of reproducible sums over 3 trees and one: {digests}")
        # Hosts that leave the number to the manager get as many trees.
        ranks = [fabric.spawn_named(host, "job", host, 5, bytes=MIB, check=True)
                 for host in range(5)]
        expect_equal({report["trees"] for report in finish(fabric, ranks)}, {3},
                     "trees by the manager's configuration")


@case(120, also_over_udp=True, long=True)
def sparse_vectors_over_three_trees_are_exact_under_loss():
    config = {**LOSS, "limits": {"max_jobs": 3, "slots": 3 * 2080}}
    with managed_fabric(leaf_spine(2, 3, 5), config=config) as fabric:
        for options in ({"sparse": True, "density": 0.1},
                        {"sparse": True, "density": 0.001, "bytes": 4 * KIB},
                        {"maybe_sparse": True, "density": 0.02},
                        {"maybe_sparse": True, "density": 0.9}):
            reports = finish(fabric, start(fabric, "job", 3, handler="sparse",
                                           **{"bytes": 300 * KIB, "iters": 3, **options}))
            expect_exact(reports, str(options), "sparse")
            for report in reports:
                expect_equal(report["trees"], 3, f"{options}: trees")
                expect((report["sparse"]["dense_bytes"] > 0) == (options["density"] < 0.5),
                       f"{options}: {report['sparse']}")
            wait_until(lambda: not any(jobs_left(fabric).values()), 60,
                       "the job to be gone from all switches")
        # The error names a handler without sparse blocks.
        for report in finish(fabric, start(fabric, "job", 3, handler="single", sparse=True)):
            expect("handler single has no allreduce_sparse" in report["error"]["message"],
                   report["error"]["message"])


def kill_a_spine(config=None, **options):
    with managed_fabric(leaf_spine(2, 2, 4), mtu=9000, config=config) as fabric:
        ranks = start(fabric, "job", 2, bytes=2 * MIB, iters=40, **options)
        wait_until(lambda: all(job["stats"]["results"] > 200 for spine in ("spine0", "spine1")
                               for job in fabric.ask(spine, "jobs.list")["jobs"]
                               or [{"stats": {"results": 0}}]), 60, "results of both")
        before = {tree["tree"]: tree for tree in fabric.ask_manager("trees")["trees"]}
        expect_equal({tree["nodes"][0]["switch"] for tree in before.values()}, {"spine0", "spine1"},
                     "roots of the trees")
        fabric.switches["spine1"].popen.kill()
        fabric.switches["spine1"].popen.wait()
        wait_until(lambda: fabric.ask_manager("stats")["counters"]["jobs_moved"] == 1, 60,
                   "a tree to move")
        for number, tree in {tree["tree"]: tree
                             for tree in fabric.ask_manager("trees")["trees"]}.items():
            moved = before[number]["nodes"][0]["switch"] == "spine1"
            expect_equal((tree["nodes"][0]["switch"], tree["generation"], tree["id"]),
                         ("spine0", 2 if moved else 1, before[number]["id"]),
                         f"tree {number} afterwards")
        reports = finish(fabric, ranks)
        expect_exact(reports, "40 allreduces and a spine killed", options.get("handler", "single"))
        expect_equal({report["resumed"] for report in reports}, {1},
                     "runs taken up again, of all trees")
        fabric.launch("spine1")
        fabric.await_switch("spine1")
        wait_until(lambda: not any(jobs_left(fabric).values()), 60,
                   "the job to be gone from all switches")


@case(120, also_over_udp=True, long=True)
def a_spine_that_dies_moves_only_the_trees_over_it():
    kill_a_spine()


@case(120, also_over_udp=True, long=True)
def a_spine_that_dies_moves_trees_with_tags():
    kill_a_spine(authenticate=True)


@case(120, long=True)
def a_spine_that_dies_moves_trees_of_sparse_vectors():
    # Each slot of two jobs on a leaf keeps a result of 64 packets.
    kill_a_spine(config={"limits": {"max_jobs": 2, "slots": 4160}}, handler="sparse", sparse=True,
                 density=0.1)


@case(120, long=True)
def who_asks_for_more_trees_than_there_are_is_told():
    with managed_fabric(leaf_spine(2, 2, 4), config={"limits": {"max_jobs": 3}}) as fabric:
        for report in run_job(fabric, "4 trees over 2 spines", 4, has=2):
            expect("all links between the switches of its hosts are in its other trees" in report[
                "trees_reason"], str(report))
        # Another job's two trees are on both leaves, which have room for one more; a second tree
        # would be one too many.
        other = [fabric.spawn_named(host, "other", host, 4, trees=2, iters=100000,
                                    timeout_ms=60000) for host in range(4)]
        wait_until(lambda: sum(jobs_left(fabric).values()) == 6, 60, "another job of two trees")
        for report in run_job_beside(fabric, 2):
            expect_equal((report["trees"], report["trees_asked"]), (1, 2),
                         "trees without room for more")
            expect("has 3 jobs, its limits.max_jobs is 3" in report["trees_reason"], str(report))
        shown = fabric.ctl_manager("jobs")
        expect("other" in shown and "1 of 1024 jobs" in shown, shown)
        entry = next(job for job in fabric.ask_manager("jobs")["jobs"] if job["name"] == "other")
        expect_equal((entry["trees"], len(entry["numbers"]), entry["state"]), (2, 2, "network"),
                     "the other job")
        trees = fabric.ctl_manager("trees")
        expect("1 of 2" in trees and "2 of 2" in trees, trees)
        expect("job other, tree 2 of 2" in fabric.ctl_manager("waits", "other"),
               "the second tree is not told of")
        fabric.ctl_manager("jobs", "destroy", "other")
        wait_until(lambda: not any(jobs_left(fabric).values()), 60,
                   "the job to be gone from all switches")
        for rank in other:
            rank.popen.kill()
    with managed_fabric(leaf_spine(2, 2, 4), manager={"hosts": []}) as fabric:
        reports = finish(fabric, [fabric.spawn_named(host, "job", host, 4, trees=2, check=True,
                                                     bytes=MIB) for host in range(4)])
        expect_equal({(report["mode"], report["trees"], report["trees_asked"],
                       report["mismatches"]) for report in reports},
                     {("ring", 0, 2, 0)}, "a ring")


def run_job_beside(fabric, trees):
    reports = finish(fabric, start(fabric, "job", trees))
    expect_exact(reports, "beside another job")
    return reports


@case(60)
def hosts_that_disagree_about_trees_are_told():
    with managed_fabric(leaf_spine(2, 2, 2)) as fabric:
        first = fabric.spawn_named(0, "job", 0, 2, trees=2, bytes=MIB, check=True)
        wait_until(lambda: fabric.ask_manager("jobs")["jobs"], 60, "the first host")
        second = fabric.spawn_named(1, "job", 1, 2, trees=3, bytes=MIB)
        second.wait(RANK_SECONDS)
        error = fabric.perf_report(second)["error"]
        expect_equal(error["code"], "join_refused", "code")
        expect('found 3 trees, the others asked for 2 (trees_mismatch)' in error["message"],
               error["message"])
        again = fabric.spawn_named(1, "job", 1, 2, trees=2, bytes=MIB, check=True)
        for rank in (first, again):
            rank.wait(RANK_SECONDS)
        expect_exact([fabric.perf_report(first), fabric.perf_report(again)], "after the refusal")
        for transport in ("af_xdp",):
            alone = fabric.spawn_named(0, "job", 0, 2, trees=2, transport=transport)
            alone.wait(RANK_SECONDS)
            expect(f"{transport} serves one tree of a host" in fabric.perf_report(
                alone)["error"]["message"],
                   f"{transport}: {fabric.perf_report(alone)}")


@case(60, also_over_udp=True, sanitized=True)
def a_killed_host_ends_a_job_of_several_trees_for_the_others():
    with managed_fabric(leaf_spine(2, 2, 4)) as fabric:
        ranks = start(fabric, "job", 2, iters=100000, timeout_ms=1500)
        wait_until(lambda: sum(job["stats"]["results"] > 50 for spine in ("spine0", "spine1")
                               for job in fabric.ask(spine, "jobs.list")["jobs"]) == 2, 60,
                   "results of both")
        with Pace() as pace:
            ranks[1].popen.kill()
            for host in (0, 2, 3):
                ranks[host].wait(60)
            seconds = time.monotonic() - pace.began
        for host in (0, 2, 3):
            error = fabric.perf_report(ranks[host])["error"]
            expect_equal((error["code"], 1 in error["missing"]), ("timeout", True),
                         f"error of host {host}: {error}")
        pace.expect_within(seconds, 1.5 + 3, "that the others are told")
        wait_until(lambda: not any(jobs_left(fabric).values()), 60,
                   "the job to be gone from all switches")
