# SPDX-License-Identifier: BSD-3-Clause
"""Jobs over several switches: sums go up the tree hop by hop and results come down, exact under
loss at every hop.
"""

import contextlib
import signal

from tests.net.support import KIB, MIB, case, expect, expect_equal, expect_exact, wait_until
from lab.fabric import Fabric, leaf_spine, tree3
from lab.namespaces import HOST_INTERFACE
from lab.traffic import link_bytes

KEY = "0x5eed"
LOSS = {"faults": {"drop": 0.02, "duplicate": 0.02, "reorder": 0.02, "seed": 5}}
RANK_SECONDS = 300


@contextlib.contextmanager
def running_fabric(*arguments, base=Fabric, **options):
    with base(*arguments, **options) as fabric:
        fabric.start()
        yield fabric


def start(fabric, job, ranks, **options):
    options = {"bytes": MIB, "transport": fabric.transport, "check": True, **options}
    return [fabric.spawn_rank(host, job, KEY, rank, len(ranks), **options) for host,
            rank in ranks.items()]


def finish(fabric, processes):
    for process in processes:
        process.wait(RANK_SECONDS)
    return [fabric.perf_report(process) for process in processes]


def run_tree_job(fabric, root, where, job=5, ranks=None, handler="single", job_options=(),
                 **options):
    """Installs a job, runs it, expects it to be exact, and removes it."""
    ranks = ranks or {host: host for host in range(fabric.hosts)}
    parents = fabric.tree(root, ranks)
    fabric.install(job, KEY, parents, ranks, handler=handler, **dict(job_options))
    reports = finish(fabric, start(fabric, job, ranks, **options))
    expect_exact(reports, where, handler)
    fabric.uninstall(job, parents)
    return reports


@case(180, also_over_udp=True)
def a_tree_of_switches_is_exact_under_loss_with_every_handler():
    with running_fabric(leaf_spine(2, 2, 8), config=LOSS) as fabric:
        for handler, root in (("single", "spine0"), ("multi", "spine1"), ("tree", "spine0")):
            run_tree_job(fabric, root, f"{handler}, root {root}", handler=handler,
                         bytes=300 * KIB + 4, iters=3)
        # Hosts of both leaves in any order, one of them alone at its leaf, and a root switch with
        # hosts of its own.
        run_tree_job(fabric, "leaf0", "ranks in another order",
                     ranks={5: 0, 1: 1, 0: 2, 7: 3, 2: 4}, dtype="f32", op="avg")
        run_tree_job(fabric, "spine1", "one host at each leaf", ranks={6: 0, 3: 1}, dtype="i64",
                     op="bxor")
        for switch in fabric.topology.switches:
            expect_equal(fabric.ask(switch, "jobs.list")["jobs"], [], f"jobs left on {switch}")


@case(180, also_over_udp=True)
def three_levels_are_exact_under_loss():
    with running_fabric(tree3(16), config=LOSS) as fabric:
        reports = run_tree_job(fabric, "core", "three levels", handler="tree", bytes=200 * KIB + 4,
                               iters=2)
        expect(sum(report["retransmits"] for report in reports) > 0, "no packet was lost")


@case(120, also_over_udp=True)
def hosts_with_different_windows_are_exact_on_two_levels_under_loss():
    windows = (1, 4, 64, 16, 2, 64, 8, 32)
    with running_fabric(leaf_spine(2, 1, 8), config=LOSS) as fabric:
        ranks = {host: host for host in range(8)}
        fabric.install(5, KEY, fabric.tree("spine0", ranks), ranks)
        processes = [fabric.spawn_rank(rank, 5, KEY, rank, 8, bytes=200 * KIB + 4, iters=2,
                                       check=True, transport=fabric.transport,
                                       window=windows[rank]) for rank in ranks]
        reports = finish(fabric, processes)
        expect_exact(reports, "different windows")
        expect_equal([report["window"] for report in reports], list(windows), "windows")


@case(120)
def two_jobs_run_over_two_spines_at_the_same_time():
    with running_fabric(leaf_spine(2, 2, 8)) as fabric:
        jobs = {5: ("spine0", {0: 0, 1: 1, 4: 2, 5: 3}), 6: ("spine1", {2: 0, 3: 1, 6: 2, 7: 3})}
        started = []
        for job, (root, ranks) in jobs.items():
            fabric.install(job, KEY, fabric.tree(root, ranks), ranks)
            started += start(fabric, job, ranks, bytes=2 * MIB)
        expect_exact(finish(fabric, started), "two jobs")


def traffic(links, run_job, size):
    """Returns {link: (received, sent)} in multiples of the vector while a job runs."""
    before = {name: link_bytes(*link) for name, link in links.items()}
    run_job()
    return {name: tuple((after - earlier) / size for after,
                        earlier in zip(link_bytes(*link), before[name]))
            for name, link in links.items()}


@case(120, long=True)
def every_link_carries_the_vector_once_each_way():
    """Including headers, at most 1.1 times the vector's bytes on every link of the tree, at MTU
    9000. A ring needs almost twice as much.
    """
    size = 16 * MIB
    with running_fabric(leaf_spine(2, 1, 8), mtu=9000,
                        config={"limits": {"max_jobs": 4, "slots": 512}}) as fabric:
        hosts = {f"host {host}": (fabric.host_namespace(host), HOST_INTERFACE) for host in range(8)}
        links = {**hosts, **{leaf: (fabric.switch_ns(leaf), "to-spine0")
                             for leaf in ("leaf0", "leaf1")}}
        tree = traffic(links, lambda: run_tree_job(fabric, "spine0", "16 MiB", bytes=size, iters=1,
                                                   warmup=0), size)
        for name, both in tree.items():
            for way, found in zip(("received", "sent"), both):
                expect(1 <= found <= 1.1,
                       f"{name} {way} {found:.3f} times the vector, expected 1 to 1.1")

        def run_ring():
            ranks = [fabric.spawn_named(host, "ring", host, 8, bytes=size, check=True)
                     for host in range(8)]
            for report in finish(fabric, ranks):
                expect(report["ok"] and not report["in_network"], f"the ring: {report}")
        # The manager knows no hosts, so there is no tree.
        fabric.start_manager(hosts=[])
        ring = traffic(hosts, run_ring, size)
        print("of the vector's bytes, received and sent, in the tree and in a ring: "
              + "; ".join(f"{name} {tree[name][0]:.3f} {tree[name][1]:.3f}, {ring[name][0]:.3f} "
                          f"{ring[name][1]:.3f}" for name in hosts))
        for name, both in ring.items():
            expect(all(1.75 <= found <= 2 for found in both),
                   f"{name} in the ring: {both}, expected 2 x 7/8 and headers")


@case(90, also_over_udp=True)
def hosts_behind_other_switches_are_missed_by_their_ranks():
    with running_fabric(leaf_spine(2, 1, 4)) as fabric:
        ranks = {host: host for host in range(4)}
        parents = fabric.tree("spine0", ranks)
        fabric.install(5, KEY, parents, ranks)
        processes = start(fabric, 5, ranks, iters=100000, timeout_ms=2000)
        wait_until(lambda: fabric.ask("spine0", "jobs.list")["jobs"][0]["stats"]["results"] > 100,
                   60, "results")
        processes[2].stop(signal.SIGKILL)
        for rank, process in enumerate(processes):
            if rank == 2:
                continue
            process.wait(60)
            error = fabric.perf_report(process)["error"]
            # From another leaf's view all ranks behind the leaf of the missing one are missing.
            missing = [2] if rank == 3 else [2, 3]
            expect_equal((error["code"], error["missing"]), ("timeout", missing),
                         f"error of rank {rank}")
        # The same job continues with all ranks in a new run.
        expect_exact(finish(fabric, start(fabric, 5, ranks)), "the next run")


def results_of(fabric, switch):
    return fabric.ask(switch, "jobs.list")["jobs"][0]["stats"]["results"]


def remake(fabric, job, before, after, ranks, **options):
    """Acts like a manager after the failure of a switch of the tree: moves the job to another tree,
    with the same number.
    """
    for switch in before:
        if fabric.switches[switch].running():
            fabric.ask(switch, "jobs.destroy", id=job)
    fabric.install(job, KEY, after, ranks, **options)


@case(150, also_over_udp=True, thorough=True)
def ranks_go_on_over_another_spine_where_they_were():
    """Spines are killed at different moments; allreduces in place and shorter than a window are
    included.
    """
    ranks = {host: host for host in range(6)}
    kinds = ({"bytes": 2 * MIB, "iters": 10}, {"bytes": 4 * KIB, "iters": 1500, "handler": "tree"},
             {"bytes": 300 * KIB, "iters": 50, "collective": "reduce", "in_place": True,
              "handler": "multi"})
    loss = {"faults": {"drop": 0.002, "duplicate": 0.002, "reorder": 0.002, "seed": 5}}
    for kind in kinds:
        options = dict(kind)
        handler = options.pop("handler", "single")
        with running_fabric(leaf_spine(2, 2, 6), config=loss) as fabric:
            before, after = fabric.tree("spine0", ranks), fabric.tree("spine1", ranks)
            fabric.install(5, KEY, before, ranks, handler=handler)
            processes = start(fabric, 5, ranks, recover=True, **options)
            wait_until(lambda: results_of(fabric, "leaf0") > 300, 60, "results")
            fabric.switches["spine0"].popen.kill()
            fabric.switches["spine0"].popen.wait()
            remake(fabric, 5, before, after, ranks, handler=handler)
            wait_until(lambda: results_of(fabric, "leaf1") > 10, 60, "results over the other spine")
            # Once more, with all switches up: only the job is created again.
            remake(fabric, 5, after, after, ranks, handler=handler)
            reports = finish(fabric, processes)
            expect_exact(reports, f"{kind}", handler)
            for rank, report in enumerate(reports):
                expect(report["resumed"] >= 1, f"{kind}: rank {rank} was never moved: {report}")


@case(90)
def what_ranks_of_two_switches_disagree_on_is_refused():
    with running_fabric(leaf_spine(2, 1, 2)) as fabric:
        ranks = {0: 0, 1: 1}
        fabric.install(5, KEY, fabric.tree("spine0", ranks), ranks)
        processes = [fabric.spawn_rank(host, 5, KEY, rank, 2, bytes=KIB, dtype=dtype,
                                       transport=fabric.transport)
                     for (host, rank), dtype in zip(ranks.items(), ("f32", "i32"))]
        for process in processes:
            process.wait(60)
        texts = [(fabric.perf_report(process)["error"] or {}).get("message", "")
                 for process in processes]
        expect(any("type, operator or count differ" in text for text in texts), f"errors: {texts}")


@case(60)
def ranks_behind_other_switches_hear_who_disagrees():
    """Two ranks of one leaf disagree while those of the other one wait for them; or one leaf's
    disagree with the other's.
    """
    ranks = {host: host for host in range(4)}
    for small in ({0}, {0, 1}):
        with running_fabric(leaf_spine(2, 1, 4)) as fabric:
            fabric.install(5, KEY, fabric.tree("spine0", ranks), ranks)
            processes = [fabric.spawn_rank(host, 5, KEY, rank, 4,
                                           bytes=KIB if rank in small else 2 * KIB,
                                           transport=fabric.transport,
                                           timeout_ms=10000) for host, rank in ranks.items()]
            for process in processes:
                process.wait(60)
            texts = [(fabric.perf_report(process)["error"] or {}).get("message", "")
                     for process in processes]
            for rank, text in enumerate(texts):
                expect("type, operator or count differ" in text and "512 elements f32 sum" in text
                       and "256 elements f32 sum" in text,
                       f"ranks {small} have other counts, and rank {rank} is told: {texts}")


@case(60)
def a_switch_whose_parent_does_not_know_the_job_says_so():
    with running_fabric(leaf_spine(2, 1, 2)) as fabric:
        ranks = {0: 0, 1: 1}
        parents = fabric.tree("spine0", ranks)
        fabric.install(5, KEY, parents, ranks)
        fabric.ask("spine0", "jobs.destroy", id=5)
        process = start(fabric, 5, ranks)[0]
        process.wait(60)
        error = fabric.perf_report(process)["error"]
        expect("does not exist on this switch" in error["message"], f"error: {error}")
