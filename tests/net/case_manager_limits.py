# SPDX-License-Identifier: BSD-3-Clause
"""The memory that a manager takes and gives back, and its limits for everybody."""

from pathlib import Path

from tests.net.support import KIB, MIB, Lab, case, expect, expect_equal, wait_until
from tests.net.manager_lab import FOUR, Refused, close_all, played, played_manager

WAITING_JOBS = 300
KEPT_MAX = MIB


def memory_of(process, field):
    """Returns a field of the process in bytes: VmRSS or VmData."""
    for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * KIB
    raise AssertionError(f"no {field}")


def wait_with(manager, job):
    """A host joins a job of two ranks, the other of which does not come."""
    client = manager.client()
    client.start("join", job=job, size=2, rank=0, ip="10.77.0.1")
    return client


@case()
def a_waiting_job_takes_memory_by_its_ranks_and_gives_it_back():
    with Lab(1, "af_packet") as lab:
        manager = played_manager(lab, played(lab))
        # The first request allocates memory that belongs to no job.
        wait_with(manager, "first").close()
        manager.wait_idle()
        before = {field: memory_of(manager.process, field) for field in ("VmData", "VmRSS")}
        clients = [wait_with(manager, f"job{number}") for number in range(WAITING_JOBS)]
        wait_until(lambda: len(manager.ask("jobs")["jobs"]) == WAITING_JOBS, 60, "all jobs to wait")
        each = max(memory_of(manager.process, field) - before[field]
                   for field in before) // WAITING_JOBS
        expect(each < 16 * KIB, f"a waiting job of 2 ranks takes {each} bytes, expected less than "
                                "16 KiB")
        for client in clients:
            client.close()
        manager.wait_idle()
        wait_until(lambda: memory_of(manager.process, "VmRSS") - before["VmRSS"] < KEPT_MAX, 60,
                   f"the memory of {WAITING_JOBS} jobs that have gone to be given back, all but 1 "
                   "MiB")
        manager.stop()


@case()
def names_of_jobs_beside_a_job_are_for_its_members():
    with Lab(1, "af_packet") as lab:
        manager = played_manager(lab, played(lab))
        clients, results = manager.join("train", FOUR)
        key = results[0]["key"]
        for name, arguments, code, words in (
                ("train.multicast", {}, "invalid",
                 "args.job: found \"train.multicast\": names that end in .multicast, .push, .pull, "
                 "or .region"),
                ("none.region12", {}, "invalid",
                 "are for jobs that the library makes beside a job"),
                ("train.push", {"beside_key": "0x0123456789abcdef"}, "unauthorized",
                 "another one than that of job \"train\""),
                ("train.pull", {"beside_key": key, "size": 3}, "size_mismatch",
                 "job \"train\" has 4 ranks"),
                ("none.pull", {"beside_key": key}, "not_found", "job \"none\" does not run"),
                ("train2", {"beside_key": key}, "invalid", "with args.beside_key")):
            stranger = manager.client()
            try:
                stranger.ask("join", **{"job": name, "size": 4, "ip": "10.77.0.1", **arguments})
                expect(False, f"a stranger is in {name}")
            except Refused as error:
                expect(error.code == code and words in error.message,
                       f"{name}: {error}, expected {code}: {words}")
            stranger.close()
        members = [manager.join(f"train.{kind}", FOUR, beside_key=key)[0]
                   for kind in ("multicast", "region0", "region17")]
        # No other names are reserved.
        members += [manager.join(name, FOUR[:1])[0]
                    for name in ("multicast", ".push", "train.region", "train.multicast1",
                                 "train_pull")]
        expect_equal(len(manager.ask("jobs")["jobs"]), 9, "jobs")
        close_all([client for each in members for client in each] + clients)
        manager.wait_idle()
        manager.stop()
