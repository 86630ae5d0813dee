# SPDX-License-Identifier: BSD-3-Clause
"""Pull reductions on real processes: all collectives are exact by them, answers meet in the
switches' tables, and ranks name one that is killed.
"""

import json
import os
import signal

from tests.net.support import MIB, case, expect, expect_equal, expect_exact, wait_until
from lab.fabric import leaf_spine
from tests.net.case_levels import LOSS
from tests.net.case_trees import finish, jobs_left, managed_fabric, start

DATA_MTU = 9000
# Each collective has a size that is less than a packet, and one that neither packets nor ranks
# divide.
COLLECTIVES = {"allreduce": (4, 2 * MIB + 20), "reduce_scatter": (32, MIB + 160),
               "reduce": (4, MIB + 12), "broadcast": (4, MIB + 4),
               "allgather": (32, MIB + 32), "barrier": (0,)}


def counters(fabric):
    """Returns the handler's own counters, summed over the jobs of all switches."""
    sums = {}
    for switch in fabric.topology.switches:
        for job in fabric.ask(switch, "jobs.list")["jobs"]:
            for counter in job["counters"]:
                sums[counter["name"]] = sums.get(counter["name"], 0) + counter["count"]
    return sums


@case(300, also_over_udp=True, family=True)
def pulls_are_exact_with_packets_lost_doubled_and_reordered():
    with managed_fabric(leaf_spine(2, 2, 8), mtu=DATA_MTU, config=LOSS) as fabric:
        for collective, sizes in COLLECTIVES.items():
            for size in sizes:
                where = f"{collective} of {size} bytes"
                reports = finish(fabric,
                                 start(fabric, "pull", 1, handler="pull", collective=collective,
                                       bytes=size))
                expect_exact(reports, where, "pull")
                wait_until(lambda: not any(jobs_left(fabric).values()), 60,
                           f"{where}: the job to be gone from all switches")
        reports = finish(fabric, start(fabric, "pull", 2, handler="pull", bytes=MIB + 4))
        expect_exact(reports, "two trees", "pull")
        expect_equal([report["trees"] for report in reports], [2] * 8, "trees")


@case(240, also_over_udp=True)
def answers_meet_in_tables_and_a_rank_that_is_killed_is_named():
    """The ranks at its leaf and at the other leaf name it."""
    with managed_fabric(leaf_spine(2, 1, 8), mtu=DATA_MTU) as fabric:
        victim = 5
        ranks = start(fabric, "pull", 1, handler="pull", bytes=16 * MIB, iters=1000, check=None,
                      check_ends=True, timeout_ms=5000)
        wait_until(lambda: counters(fabric).get("completed", 0) > 2000, 60, "sums to be complete")
        found = counters(fabric)
        expect(found["hits"] > found["completed"], f"sums of more than one answer: {found}")
        os.kill(ranks[victim].pid, signal.SIGKILL)
        for host, rank in enumerate(ranks):
            if host == victim:
                continue
            expect(rank.wait(60) != 0, f"rank {host} goes on without rank {victim}")
            error = json.loads(rank.stdout())["error"]
            expect_equal(error["code"], "timeout", f"rank {host}: {error['message']}")
            expect(victim in error["missing"],
                   f"rank {host} names {error['missing']}, expected {victim}: {error['message']}")


@case(240, also_over_udp=True, thorough=True)
def pulls_go_on_when_their_spine_dies():
    """Pulls go on over the other spine: the next run asks directly for what the lost run asked for.
    """
    with managed_fabric(leaf_spine(2, 2, 8), mtu=DATA_MTU) as fabric:
        ranks = start(fabric, "pull", 1, handler="pull", bytes=4 * MIB, iters=40)
        wait_until(lambda: counters(fabric).get("completed", 0) > 1000, 60, "sums to be complete")
        root = next(tree["nodes"][0]["switch"] for tree in fabric.ask_manager("trees")["trees"]
                    if tree["name"] == "pull")
        os.kill(fabric.switches[root].pid, signal.SIGKILL)
        reports = finish(fabric, ranks)
        expect_exact(reports, f"pulls while {root} dies", "pull")
        expect(all(report["resumed"] for report in reports),
               f"resumed: {[report['resumed'] for report in reports]}")


@case(120, also_over_udp=True)
def pulls_of_a_job_with_tags_are_exact():
    with managed_fabric(leaf_spine(2, 1, 4), mtu=DATA_MTU, config=LOSS) as fabric:
        for collective, size in (("allreduce", 2 * MIB + 20), ("reduce_scatter", MIB)):
            reports = finish(fabric, start(fabric, "pull", 1, handler="pull", authenticate=True,
                                           collective=collective, bytes=size))
            expect_exact(reports, f"{collective} with tags", "pull")
