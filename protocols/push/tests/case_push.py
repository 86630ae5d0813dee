# SPDX-License-Identifier: BSD-3-Clause
"""Push reductions on real processes: exact with small tables and packets lost at every hop, over
one tree or several and with tags; ranks name one that is killed. The reductions go on over another
spine when theirs dies.
"""

import json
import os
import signal

from tests.net.support import KIB, MIB, case, expect, expect_equal, expect_exact, wait_until
from tests.net.case_demo import demo_is_exact
from lab.fabric import leaf_spine
from tests.net.case_levels import LOSS, KEY, running_fabric, start as start_ranks
from tests.net.case_trees import finish, jobs_left, managed_fabric, start

HANDLER = "push"
# Hosts have more blocks in flight than the tables hold.
SMALL = {"entries": 4, "timeout_us": 5000, "waves": 8, "wave_blocks": 4}


def counted(fabric, name):
    """Returns a counter of the only job, summed over all switches."""
    jobs = [job for switch in fabric.topology.switches
            for job in fabric.ask(switch, "jobs.list")["jobs"]]
    return sum(counter["count"] for job in jobs for counter in job["counters"]
               if counter["name"] == name)


@case(180, also_over_udp=True, family=True)
def small_tables_are_exact_under_loss_and_home_hosts_complete_what_leaves_them():
    with running_fabric(leaf_spine(2, 2, 8), config=LOSS) as fabric:
        ranks = {host: host for host in range(8)}
        parents = fabric.tree("spine0", ranks)
        for number, options in enumerate(({"bytes": 300 * KIB + 4, "iters": 2},
                                          {"collective": "reduce_scatter", "bytes": 64 * KIB,
                                           "dtype": "bf16"},
                                          {"collective": "allgather", "bytes": 64 * KIB,
                                           "dtype": "i8"},
                                          {"bytes": 100 * KIB, "dtype": "f64", "op": "avg"})):
            fabric.install(5, KEY, parents, ranks, handler=HANDLER, parameters=SMALL)
            reports = finish(fabric, start_ranks(fabric, 5, ranks, **options))
            expect_exact(reports, str(options), HANDLER)
            if number == 0:
                for name in ("evicted", "homed", "hits", "completed"):
                    expect(counted(fabric, name) > 0, f"no switch counted {name}")
            fabric.uninstall(5, parents)


@case(150, also_over_udp=True, long=True)
def jobs_of_the_manager_are_exact_over_one_tree_and_two_and_with_tags():
    with managed_fabric(leaf_spine(2, 2, 5), config=LOSS, manager={"trees": 2}) as fabric:
        for trees, options in ((1, {"bytes": 200 * KIB + 4, "iters": 2}),
                               (2, {"bytes": 200 * KIB + 4, "iters": 2}),
                               (2, {"collective": "barrier", "bytes": None}),
                               (2, {"collective": "broadcast", "root": 3, "bytes": 100 * KIB + 1,
                                    "dtype": "u8"}),
                               (1, {"bytes": 100 * KIB, "authenticate": True})):
            reports = finish(fabric, start(fabric, "push", trees, handler=HANDLER, **options))
            expect_exact(reports, f"{trees} trees, {options}", HANDLER)
            expect_equal({report["trees"] for report in reports}, {trees}, f"trees, {options}")
            wait_until(lambda: not any(jobs_left(fabric).values()), 60,
                       "the job to be gone from all switches")


@case(120, also_over_udp=True)
def a_rank_that_is_killed_is_named_by_all():
    with managed_fabric(leaf_spine(2, 1, 4)) as fabric:
        ranks = start(fabric, "push", 1, handler=HANDLER, bytes=MIB, iters=100000, check=None,
                      check_ends=True, timeout_ms=5000)
        wait_until(lambda: counted(fabric, "completed") > 2000, 60, "blocks to complete")
        victim = 2
        os.kill(ranks[victim].pid, signal.SIGKILL)
        for host, rank in enumerate(ranks):
            if host == victim:
                continue
            expect(rank.wait(60) != 0, f"rank {host} goes on without rank {victim}")
            error = json.loads(rank.stdout())["error"]
            expect_equal((error["code"], error["missing"]), ("timeout", [victim]),
                         f"rank {host}: {error['message']}")


@case(180, also_over_udp=True)
def a_push_job_goes_on_over_another_spine():
    with managed_fabric(leaf_spine(2, 2, 4)) as fabric:
        ranks = start(fabric, "push", 1, handler=HANDLER, bytes=MIB, iters=60, check=None,
                      check_ends=True)
        wait_until(lambda: counted(fabric, "completed") > 1000, 60, "blocks to complete")
        root = next(tree["nodes"][0]["switch"] for tree in fabric.ask_manager("trees")["trees"]
                    if tree["name"] == "push")
        os.kill(fabric.switches[root].pid, signal.SIGKILL)
        reports = finish(fabric, ranks)
        expect_exact(reports, f"a job while {root} dies", HANDLER)
        expect(all(report["resumed"] > 0 for report in reports),
               f"runs that were resumed: {[report['resumed'] for report in reports]}")
        wait_until(lambda: not any(jobs_left(fabric).values()), 60,
                   "the job to be gone from all switches")


@case(120)
def demo_shows_a_push_job():
    for arguments in (("--loss", "0.02"),
                      ("--workers", 2, "--cluster-size", 2, "--dtype", "f16", "--op", "avg")):
        demo_is_exact("--handler", HANDLER, "--bytes", "1MiB", *arguments, handler=HANDLER)
