# SPDX-License-Identifier: BSD-3-Clause
"""Sparse allreduces by the real programs: exact with every handler that has them, also under loss, and without a switch; refused by name where there are none."""

import signal
import time

from case_by_name import expect_ring, run_by_name, spawn_by_name
from fake_manager import FakeManager
from pace import Pace
from support import KIB, MIB, case, expect, expect_equal, reports_of, run_exact_job, running_lab, start_ranks, wait_until

HANDLERS = ("sparse-array", "sparse-hash", "sparse")
PATTERNS = ("uniform", "clustered", "same", "disjoint")
LOSS = {"faults": {"drop": 0.02, "duplicate": 0.02, "reorder": 0.02, "seed": 5}, "limits": {"max_jobs": 1, "slots": 2080}}


def limits():
    return {key: value for key, value in LOSS.items() if key == "limits"}


@case(120)
def sparse_vectors_are_exact_with_every_handler():
    with running_lab(3, config=limits()) as lab:
        for handler in HANDLERS:
            for number, pattern in enumerate(PATTERNS):
                density = (0.3, 0.05, 0.01, 0.001)[number]
                reports = run_exact_job(lab, f"{handler}, {pattern}", handler=handler, sparse=True, density=density, pattern=pattern,
                                        bytes=MIB, iters=2)
                for report in reports:
                    sparse = report["sparse"]
                    expect(0.7 * density < sparse["density_in"] < 1.3 * density, f"{handler}, {pattern}: {sparse}")
                    expect(sparse["density_in"] <= sparse["density_out"] < 3.5 * density, f"{handler}, {pattern}: {sparse}")
                    expect_equal(sparse["dense_bytes"], 2 * MIB, "what dense blocks would have taken")
                    # Indices of 2 bytes with each value of 4.
                    expect(sparse["bytes_sent"] < 2 * density * sparse["dense_bytes"] + 64 * KIB, f"{handler}, {pattern}: {sparse}")


@case(120)
def sparse_vectors_are_exact_under_loss():
    with running_lab(3, config=LOSS) as lab:
        for handler in HANDLERS:
            reports = run_exact_job(lab, f"{handler} under loss", handler=handler, sparse=True, density=0.2, bytes=MIB, iters=2)
            expect(any(report["retransmits"] for report in reports), f"{handler}: nothing was lost")
            run_exact_job(lab, f"{handler} under loss, dense", handler=handler, bytes=MIB)


@case()
def jobs_without_sparse_blocks_say_so():
    with running_lab(2) as lab:
        job = lab.create_job(None, "--handler", "single")
        for report in reports_of(lab, start_ranks(lab, job, sparse=True)):
            expect_equal(report["error"]["code"], "unsupported", "the error")
            expect("handler single has no allreduce_sparse" in report["error"]["message"], report["error"]["message"])


@case(240)
def sparse_vectors_are_exact_without_a_switch():
    with running_lab(8) as lab, FakeManager(lab, ring="test") as manager:
        for size in (2, 3, 5, 8):
            for number, pattern in enumerate(PATTERNS):
                density = (0.3, 0.05, 0.01, 0.001)[number]
                options = {"bytes": MIB, "iters": 2, "dtype": ("f32", "u8", "f16", "i64")[number]}
                where = f"{size} ranks, {pattern}"
                reports = run_by_name(lab, manager, range(size), sparse=True, density=density, pattern=pattern, **options)
                expect_ring(reports, where, "test")
                for report in reports:
                    sparse = report["sparse"]
                    expect_equal(sparse["algorithm"], "recursive-doubling", f"{where}: how it ran")
                    expect(0.7 * min(density, 1 / size) < sparse["density_in"] < 1.3 * density, f"{where}: {sparse}")
                    expect(sparse["density_in"] <= sparse["density_out"] < size * 1.1 * density, f"{where}: {sparse}")
                    expect_equal(sparse["blocks"], 2, f"{where}: collectives")
                    expect(0 <= report["tcp_bytes_sent"] - sparse["bytes_sent"] < KIB, f"{where}: {report}")
                dense = run_by_name(lab, manager, range(size), **options)
                expect_ring(dense, f"{where}, dense", "test")
                told = {report["rank"]: report["sparse"]["dense_bytes"] for report in reports}
                for report in dense:
                    # Barriers send a few bytes, too.
                    expect(0 <= report["tcp_bytes_sent"] - told[report["rank"]] < KIB,
                           f"{where}: a dense allreduce sends {report['tcp_bytes_sent']} bytes, told are {told}")


@case()
def a_host_killed_in_a_sparse_allreduce_without_a_switch_is_named():
    with running_lab(5) as lab, FakeManager(lab, ring="test") as manager:
        for killed in (1, 4):
            already = len(manager.told("heartbeat"))
            ranks = [spawn_by_name(lab, host, manager=manager.address, size=5, rank=host, iters=100000, check=False, sparse=True,
                                   density=0.1, bytes=16 * MIB) for host in range(5)]
            wait_until(lambda least=already + 5: len(manager.told("heartbeat")) >= least, 60, "heartbeats of all hosts")
            with Pace() as pace:
                ranks[killed].popen.send_signal(signal.SIGKILL)
                reports = reports_of(lab, [ranks[rank] for rank in range(5) if rank != killed])
                seconds = time.monotonic() - pace.began
            pace.expect_within(seconds, 2, "that the others learn of it, without the timeout")
            for report in reports:
                expect_equal((report["error"]["code"], report["error"]["missing"]), ("timeout", [killed]), f"error: {report['error']}")
                expect("its process has ended" in report["error"]["message"], report["error"]["message"])
