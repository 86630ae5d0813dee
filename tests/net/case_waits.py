# SPDX-License-Identifier: BSD-3-Clause
"""Switches and the manager name what a job waits for when a host or a switch stands still."""

import re
import signal

from tests.net.support import (KIB, MIB, Lab, LabError, case, expect, expect_equal, expect_exact,
                               reports_of, running_lab, start_ranks, wait_for_results, wait_until)
from lab.fabric import Fabric, leaf_spine
from tests.net.manager_lab import FOUR, Refused, close_all, played, played_manager


def wait_for_lines(ask, pattern, what, timeout=60):
    """Asks again and again until each line is of this form; returns the last lines."""
    lines = []

    def matches():
        lines[:] = ask().splitlines()
        return bool(lines) and all(re.fullmatch(pattern, line) for line in lines)
    try:
        wait_until(matches, timeout, what)
    except LabError as error:
        raise LabError(f"{error}: the last lines were {lines}") from error
    return lines


SINCE = r"since \d+\.\d s"


@case(90, long=True)
def a_host_that_stands_still_is_named_from_the_root_down():
    with Fabric(leaf_spine(2, 1, 4)) as fabric:
        fabric.start()
        fabric.start_manager()
        expect_equal(fabric.ctl_manager("waits"), "there are no jobs\n", "without jobs")
        options = {"bytes": MIB, "iters": 120, "warmup": 1, "timeout_ms": 60000,
                   "join_timeout_ms": 60000, "check": True,
                   "transport": fabric.transport}
        ranks = [fabric.spawn_named(host, "train", host, 4, **options) for host in range(3)]
        wait_until(lambda: fabric.ctl_manager("waits", "train") == "job train waits for 1 of 4 "
                                                                   "ranks to come\n", 60,
                   "three of the ranks")
        ranks.append(fabric.spawn_named(3, "train", 3, 4, **options))

        def entry(switch):
            jobs = fabric.ask(switch, "jobs.list")["jobs"]
            return jobs[0] if jobs else {"id": 0, "stats": {"results": 0}}
        wait_until(lambda: entry("leaf1")["stats"]["results"] > 100, 60, "results")
        ranks[3].popen.send_signal(signal.SIGSTOP)
        try:
            number = entry("leaf1")["id"]
            wait_for_lines(lambda: fabric.ctl_manager("waits", "train"),
                           rf"block \d+ of job train waits for rank 3 behind leaf1 \(late\) "
                           rf"{SINCE}|\d+ more blocks of job train wait",
                           "the manager to name rank 3")
            more = r"|\d+ more blocks of job \d+ wait"
            for switch, whom in (("leaf1", r"rank 3 \(port h3, 10\.77\.1\.4, late\)"),
                                 ("spine0", r"ranks 2, 3 \(port to-leaf1, 10\.77\.1\.254, late\)"),
                                 ("leaf0",
                                  r"the parent's result \(port to-spine0, 10\.77\.2\.254\)")):
                wait_for_lines(lambda switch=switch: fabric.ctl(switch, "jobs", "waits", number),
                               rf"block \d+ waits for {whom} {SINCE}{more}",
                               f"{switch} to say whom it waits for")
            first = fabric.ask("leaf1", "jobs.waits", id=number)
            expect_equal((first["state"], first["blocks"][0]["for"], first["blocks"][0]["missing"]),
                         ("active", "members", [3]), "the oldest block at leaf1")
            expect(len(first["blocks"]) <= 16 and first["waiting"] >= len(first["blocks"]),
                   f"more than asked for: {first}")
            ages = [block["since_ms"] for block in first["blocks"]]
            expect_equal(ages, sorted(ages, reverse=True), "the oldest first")
            expect_equal(len(fabric.ask("leaf1", "jobs.waits", id=number, most=1)["blocks"]), 1,
                         "blocks, of which one was asked")
            again = fabric.ask("leaf1", "jobs.waits", id=number)
            expect(again["blocks"][0]["block"] == first["blocks"][0]["block"]
                   and again["blocks"][0]["since_ms"] >= ages[0],
                   f"a block that waits has become younger: {first} {again}")
            told = fabric.ask_manager("waits")["jobs"][0]
            expect_equal(told["blocks"][0]["waits_for"],
                         [{"switch": "leaf1", "ranks": [3], "why": "missing", "ended": [],
                           "silent": []}], "as JSON")
            expect_equal((told["unreached"], told["not_joined"]), ([], []),
                         "switches and hosts that are there")
        finally:
            ranks[3].popen.send_signal(signal.SIGCONT)
        for rank in ranks:
            rank.wait(80)
        expect_exact([fabric.perf_report(rank) for rank in ranks], "the job that had to wait")
        wait_until(lambda: fabric.ctl_manager("waits") == "there are no jobs\n", 60,
                   "the job to go")


@case(60)
def a_switch_that_stands_still_is_named_too():
    with Fabric(leaf_spine(2, 1, 2)) as fabric:
        fabric.start()
        fabric.start_manager()
        ranks = [fabric.spawn_named(host, "train", host, 2, bytes=64 * KIB, iters=1000000,
                                    timeout_ms=60000,
                                    transport=fabric.transport) for host in range(2)]
        wait_until(lambda: any(job["stats"]["results"] > 10
                               for job in fabric.ask("spine0", "jobs.list")["jobs"]), 60, "results")
        fabric.switches["leaf1"].popen.send_signal(signal.SIGSTOP)
        try:
            wait_for_lines(lambda: fabric.ctl_manager("waits"),
                           r"switch leaf1 of job train can't be asked: .+|"
                           rf"block \d+ of job train waits for leaf1, which can't be asked {SINCE}|"
                           r"\d+ more blocks of job train wait", "the manager to name leaf1")
            told = fabric.ask_manager("waits", "train")["jobs"][0]
            expect_equal([entry["switch"] for entry in told["unreached"]], ["leaf1"],
                         "switches that can't be asked")
            expect_equal(told["blocks"][0]["waits_for"],
                         [{"switch": "leaf1", "ranks": [1], "why": "unreached"}], "the cause")
        finally:
            fabric.switches["leaf1"].popen.send_signal(signal.SIGCONT)
        for rank in ranks:
            rank.popen.kill()
            rank.wait(60)


@case()
def a_job_without_a_run_says_who_has_not_joined():
    with running_lab(2) as lab:
        job = lab.create_job()

        def waits():
            return lab.ctl("jobs", "waits", job["id"]).stdout
        expect_equal(waits(), f"job {job['id']} does not run without rank 0 (port h0, "
                              f"{lab.host_ip(0)}), rank 1 (port h1, {lab.host_ip(1)})\n",
                     "before anybody has joined")
        ranks = start_ranks(lab, job, [0, 1], bytes=MIB, iters=100000, timeout_ms=60000)
        wait_for_results(lab, job, 10)
        ranks[1].popen.send_signal(signal.SIGSTOP)
        try:
            wait_for_lines(waits, rf"block \d+ waits for rank 1 \(port h1, "
                                  rf"{re.escape(lab.host_ip(1))}, late\) {SINCE}|"
                           r"\d+ more blocks of job \d+ wait", "the switch to name rank 1")
        finally:
            ranks[1].popen.send_signal(signal.SIGCONT)
        for rank in ranks:
            rank.popen.send_signal(signal.SIGKILL)
            rank.wait(60)
        # The next run does not care what the blocks of the last run wait for.
        again = start_ranks(lab, job, [0, 1], bytes=64 * KIB)
        expect_exact(reports_of(lab, again), "the next run")
        wait_until(lambda: "does not run" in waits(), 60, "the end of the run")
        for wrong in (["jobs", "waits"], ["jobs", "waits", "x"], ["jobs", "waits", 77],
                      ["jobs", "waits", 1, 2]):
            expect(lab.ctl(*wrong, check=False).returncode in (1, 2),
                   f"faninctl {wrong} did not fail")
        for wrong in ({}, {"id": 0}, {"id": "1"}, {"id": 1, "most": 0}, {"id": 1, "most": 1025},
                      {"id": 1, "colour": 1}):
            try:
                lab.control.ask("jobs.waits", **wrong)
            except LabError:
                continue
            expect(False, f"jobs.waits took {wrong}")


@case(60, sanitized=True)
def a_question_whose_asker_has_gone_harms_nobody():
    with Lab(1, "af_packet") as lab:
        switches = played(lab)
        manager = played_manager(lab, switches)
        clients, _ = manager.join("j", FOUR)
        switches["leaf0"].silent_on = "jobs.waits"
        # The questions end while leaf0 is silent: with their connection, or with their job.
        for _ in range(8):
            asker = manager.client()
            asker.start("waits")
            asker.close()
        asker = manager.client()
        numbers = [asker.start("waits", job="j") for _ in range(8)]
        try:
            asker.ask("waits")
            expect(False, "a question too many was taken")
        except Refused as error:
            expect_equal(error.code, "no_room", "code for too many questions")
        manager.ask("jobs.destroy", name="j")
        for number in numbers:
            told = asker.finish(number, "waits")["jobs"]
            expect_equal([(job["name"], [entry["switch"] for entry in job["unreached"]])
                          for job in told], [("j", ["leaf0"])],
                         "what is told of a job that has gone meanwhile")
        expect_equal(asker.ask("waits"), {"jobs": []}, "without jobs")
        # A manager that stops does not wait for answers.
        switches["leaf0"].silent_on = None
        manager.wait_up("leaf0")
        manager.wait_idle()
        others, _ = manager.join("k", FOUR)
        switches["leaf0"].silent_on = "jobs.waits"
        asker.start("waits")
        manager.ask("version")
        manager.stop()
        close_all(clients + others + [asker])
