# SPDX-License-Identifier: BSD-3-Clause
"""Several ranks on a host: they reduce in shared memory, and one of them takes part in the job of
hosts. Exact wherever the ranks are, under loss too; whoever fails is named on all hosts.
"""

import signal
import time
from pathlib import Path

from tests.net.support import (KIB, MIB, case, expect, expect_equal, reports_of, running_lab,
                               wait_until)
from tests.net.case_collectives import COLLECTIVES, LOSS, size_of
from lab.fabric import Fabric, leaf_spine
from lab.namespaces import inside

# Hosts of the ranks.
PLACEMENTS = ((0, 0, 1, 1), (0, 1, 0, 1), (0, 0, 0, 1), (0, 1, 1, 0, 1))
DTYPES = ("f32", "i64", "bf16", "u8", "f16", "i32")


def start_placed(lab, job, placement, **options):
    """Starts the ranks of a job whose members are hosts."""
    options = {"bytes": MIB, "check": True, "hosts": ",".join(map(str, placement)), **options}
    return [lab.spawn_perf(host, job, rank, len(placement), **options)
            for rank, host in enumerate(placement)]


def expect_placed(reports, placement, where):
    """All ranks ended well, in the network, and told where they are."""
    for rank, report in enumerate(reports):
        expect(not report.get("error"), f"{where}: rank {rank} failed: {report.get('error')}")
        expect_equal((report["ok"], report["mismatches"], report["in_network"]), (True, 0, True),
                     f"{where}: rank {rank}")
        expect_equal((report["rank"], report["size"], report["hosts"], report["local_ranks"]),
                     (rank, len(placement), len(set(placement)),
                      placement.count(placement[rank])), f"{where}: what rank {rank} tells")


def run_placed(lab, job, placement, where, **options):
    reports = reports_of(lab, start_placed(lab, job, placement, **options))
    expect_placed(reports, placement, where)
    return reports


@case(150, family=True)
def several_ranks_on_a_host_have_exact_results_wherever_they_are():
    with running_lab(2, config=LOSS) as lab:
        job = lab.create_job(None, "--handler", "single")
        for placement in PLACEMENTS:
            size = len(placement)
            for number, (collective, dtype) in enumerate(zip(COLLECTIVES, DTYPES)):
                run_placed(lab, job, placement, f"{collective} of {placement}",
                           collective=collective, dtype=dtype, iters=3, root=number % size,
                           bytes=size_of(collective, size), in_place=number % 2 == 1)
        for op, dtype in (("avg", "i32"), ("avg", "f16"), ("max", "u64"), ("band", "u8"),
                          ("prod", "f64")):
            run_placed(lab, job, PLACEMENTS[0], f"{op} of {dtype}", op=op, dtype=dtype)
        expect(lab.drops()["fault_drop"] > 0, "no packet was lost")


@case(120)
def sparse_vectors_of_several_ranks_on_a_host_are_exact():
    with running_lab(2, config=LOSS) as lab:
        for handler in ("sparse", "sparse-hash"):
            job = lab.create_job(None, "--handler", handler)
            for placement in PLACEMENTS:
                for options in ({"sparse": True, "density": 0.02}, {"sparse": True, "density": 0.7},
                                {"maybe_sparse": True, "density": 0.01}):
                    run_placed(lab, job, placement, f"{options} by {handler} of {placement}",
                               dtype="i32", iters=3, bytes=400 * KIB, **options)
            lab.ctl("jobs", "destroy", job["id"])
        job = lab.create_job(None, "--handler", "single")
        reports = reports_of(lab, start_placed(lab, job, PLACEMENTS[0], sparse=True))
        for report in reports:
            expect("the job's handler single has no allreduce_sparse" in report["error"]["message"],
                   f"without sparse blocks: {report['error']}")


@case(60)
def only_leaders_send_and_nothing_is_left_of_the_ranks_memory():
    before = sorted(path.name for path in Path("/dev/shm").iterdir())
    with running_lab(2) as lab:
        job = lab.create_job()
        reports = run_placed(lab, job, (0, 0, 1, 1), "4 ranks", bytes=4 * MIB)
        expect_equal([report["frames_sent"] > 0 for report in reports],
                     [True, False, True, False], "ranks that sent frames")
        for host in range(2):
            with inside(lab.host_namespace(host)):
                sockets = Path("/proc/thread-self/net/unix").read_text(encoding="utf-8")
            expect("fanin-ranks" not in sockets, f"host {host}: a socket is left: {sockets}")
    expect_equal(sorted(path.name for path in Path("/dev/shm").iterdir()), before, "/dev/shm")


@case(60)
def a_killed_rank_of_a_host_is_named_there_and_its_host_elsewhere():
    for killed, others in ((1, [0, 1]), (0, [0, 1])):
        with running_lab(2) as lab:
            job = lab.create_job()
            ranks = start_placed(lab, job, (0, 0, 1, 1), bytes=64 * KIB, iters=1000000,
                                 check=False, timeout_ms=2000)
            wait_until(lambda lab=lab: lab.frames()["rx"] > 200, 20, "the ranks run")
            ranks[killed].popen.send_signal(signal.SIGKILL)
            began = time.monotonic()
            reports = reports_of(lab, [rank for rank in ranks if rank is not ranks[killed]])
            expect(time.monotonic() - began < 15, "ranks took long to notice")
            errors = [report["error"] for report in reports]
            for error in errors:
                expect(error is not None, "a rank went on without the killed one")
            expect_equal(errors[0]["missing"], [killed], f"missing: {errors[0]}")
            expect(f"rank {killed} of this host has ended" in errors[0]["message"],
                   f"its own host: {errors[0]}")
            for error in errors[1:]:
                expect_equal(error["missing"], others, f"the other host: {error}")
                expect("host 0" in error["message"], f"the other host: {error}")


@case(60)
def a_late_rank_of_another_host_is_waited_for_and_named_by_its_host():
    with running_lab(2) as lab:
        job = lab.create_job()
        ranks = [lab.spawn_perf(host, job, rank, 4, bytes=MIB, iters=3, hosts="0,0,1,1",
                                check=True, wait_limit_ms=0 if rank > 1 else 1500,
                                **({"pause": 5, "pause_at": 1} if rank == 3 else {}))
                 for rank, host in enumerate((0, 0, 1, 1))]
        reports = reports_of(lab, ranks)
        for rank in (0, 1):
            error = reports[rank]["error"]
            expect(error is not None, f"rank {rank} did not end at its limit")
            expect_equal(error["missing"], [2, 3], f"rank {rank}: {error}")


@case(60)
def the_hosts_of_several_ranks_find_their_job_at_the_manager():
    with Fabric(leaf_spine(hosts=4)) as fabric:
        fabric.start()
        fabric.start_manager()
        placement = (0, 0, 1, 1, 2, 2, 3, 3)
        hosts = ",".join(map(str, placement))
        ranks = [fabric.spawn_named(host, "placed", rank, 8, hosts=hosts, bytes=MIB, check=True,
                                    iters=3, dtype="bf16", accumulate="f32")
                 for rank, host in enumerate(placement)]
        reports = reports_of(fabric, ranks)
        expect_placed(reports, placement, "by name")
        expect_equal({report["accumulate"] for report in reports}, {"f32"}, "accumulation")
        # The leader's failure to join is every rank's.
        ranks = [fabric.spawn_named(host, "placed", rank, 8, hosts=hosts, handler="nosuch",
                                    bytes=MIB) for rank, host in enumerate(placement)]
        for rank, report in enumerate(reports_of(fabric, ranks)):
            expect("nosuch" in (report["error"] or {"message": ""})["message"],
                   f"rank {rank}: {report['error']}")
