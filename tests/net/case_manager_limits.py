# SPDX-License-Identifier: BSD-3-Clause
"""What a manager takes of its machine, and gives back."""

from pathlib import Path

from support import KIB, MIB, Lab, case, expect, wait_until
from manager_lab import played, played_manager

WAITING_JOBS = 300
KEPT_MOST = MIB


def memory_of(process, field):
    """VmRSS, VmData: bytes."""
    for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * KIB
    raise AssertionError(f"no {field}")


def wait_with(manager, job):
    """A host that joins a job of two ranks, of which the other does not come."""
    client = manager.client()
    client.start("join", job=job, size=2, rank=0, ip="10.77.0.1")
    return client


@case()
def a_waiting_job_takes_memory_by_its_ranks_and_gives_it_back():
    with Lab(1, "af_packet") as lab:
        manager = played_manager(lab, played(lab))
        # What every first request allocates is no job's.
        wait_with(manager, "first").close()
        manager.wait_idle()
        before = {field: memory_of(manager.process, field) for field in ("VmData", "VmRSS")}
        clients = [wait_with(manager, f"job{number}") for number in range(WAITING_JOBS)]
        wait_until(lambda: len(manager.ask("jobs")["jobs"]) == WAITING_JOBS, 60, "all jobs to wait")
        each = max(memory_of(manager.process, field) - before[field] for field in before) // WAITING_JOBS
        expect(each < 16 * KIB, f"a waiting job of 2 ranks takes {each} bytes, expected less than 16 KiB")
        for client in clients:
            client.close()
        manager.wait_idle()
        wait_until(lambda: memory_of(manager.process, "VmRSS") - before["VmRSS"] < KEPT_MOST, 60,
                   f"the memory of {WAITING_JOBS} jobs that have gone to be given back, all but 1 MiB")
        manager.stop()
