# SPDX-License-Identifier: BSD-3-Clause
"""What the net tests share: the list of cases, expectations with words, jobs that must be exact."""

import functools
import os
import pwd
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from tests.net import over_udp
from lab.namespaces import (  # noqa: F401
    NOBODY, PATIENCE, SOURCE_DIR, Control, Lab, LabError, as_user, ip_in, program, run, wait_until)

CASES = {}
MIB = 1 << 20
KIB = 1 << 10
JOB_SECONDS = 90


def kernel_takes_super_frames():
    """
    Do packet sockets of this kernel take super-frames of UDP? Those of Linux 6.2 are the first; see
    case_guest.py for one before.
    """
    return tuple(map(int, re.match(r"(\d+)\.(\d+)", os.uname().release).groups())) >= (6, 2)


class CaseFailed(Exception):
    """A claim does not hold; the text says what was found and what was expected."""


@dataclass(frozen=True)
class Case:
    """A net case. seconds: until it has stopped; by_default: not only with --long or --all; marks:
    sets of cases that are run for themselves.
    """

    function: Callable
    seconds: int
    by_default: bool
    marks: frozenset


def case(seconds=60, long=False, thorough=False, also_over_udp=False, sanitized=False,
         family=False):
    """
    Enters a function into the list of cases. seconds: the most that it takes on a machine that has
    nothing else to do; PATIENCE times that, it has stopped. long: it takes so long that only --long
    and --all run it. thorough: only --all runs it, as it takes long to say a little more.
    also_over_udp: so does NAME_over_udp, the same with hosts on UDP sockets. sanitized: it is also
    run with programs under sanitizers. family: it stands for its protocol's folder where builds
    without another one are tested.
    """
    marks = frozenset(name for name, is_so in
                      (("long", long), ("sanitized", sanitized), ("family", family)) if is_so)

    def enter(function):
        CASES[function.__name__] = Case(function, PATIENCE * seconds, not (long or thorough), marks)
        if also_over_udp:
            CASES[f"{function.__name__}_over_udp"] = Case(functools.partial(run_over_udp, function),
                                                          PATIENCE * seconds, False, frozenset())
        return function
    return enter


def run_over_udp(function):
    expect(over_udp.run(function) > 0, "no host has run over UDP sockets instead")


def expect(condition, text):
    if not condition:
        raise CaseFailed(text)


def expect_equal(found, expected, what):
    expect(found == expected, f"{what}: found {found!r}, expected {expected!r}")


def expect_exact(reports, where, handler="single"):
    """All ranks ended well, in the network, with every element right."""
    for rank, report in enumerate(reports):
        expect(not report.get("error"), f"{where}: rank {rank} failed: {report.get('error')}")
        expect_equal(report.get("mismatches"), 0, f"{where}: mismatches of rank {rank}")
        expect(report.get("ok"), f"{where}: rank {rank} is not ok: {report}")
        expect(report.get("in_network"), f"{where}: rank {rank} did not run in the network")
        expect_equal(report.get("handler"), handler, f"{where}: handler of rank {rank}")
        protocol = "sparse window" if handler.startswith(
            "sparse") else handler if handler in ("pa-atp", "pull", "push") else "window"
        expect_equal((report.get("protocol"), report.get("protocol_reason")),
                     (protocol, f"the job's handler is {handler}"),
                     f"{where}: protocol of rank {rank}")


def dissect(capture, *arguments):
    """Runs tshark with Fanin's dissector on a capture; returns what it prints. It is user nobody's:
    as root, tshark from 4.4 on runs no scripts.
    """
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        place.chmod(0o755)
        home = place / "home"
        home.mkdir(mode=0o700)
        user = pwd.getpwnam(NOBODY)
        os.chown(home, user.pw_uid, user.pw_gid)
        for source, name in ((SOURCE_DIR / "wire" / "fanin.lua", "fanin.lua"),
                             (capture, "capture.pcap")):
            shutil.copyfile(source, place / name)
            (place / name).chmod(0o644)
        return run(["env", f"HOME={home}",
                    *as_user(user, ["tshark", "-X", f"lua_script:{place / 'fanin.lua'}", "-r",
                                    str(place / "capture.pcap"), *map(str, arguments)],
                             closed=False)], timeout=60).stdout


def start_ranks(lab, job, members=None, **options):
    """Starts fanin-perf --check on each of these hosts; rank = place in the list."""
    members = list(range(lab.hosts)) if members is None else list(members)
    options.setdefault("bytes", MIB)
    options.setdefault("transport", lab.transport)
    options.setdefault("check", True)
    return [lab.spawn_perf(host, job, rank, len(members), **options) for rank,
            host in enumerate(members)]


def reports_of(lab, ranks, timeout=JOB_SECONDS):
    for rank in ranks:
        rank.wait(timeout)
    return [lab.perf_report(rank) for rank in ranks]


def run_exact_job(lab, where, members=None, job=None, handler="single", **options):
    """Creates a job, runs it, expects it to be exact, destroys it; returns the reports."""
    created = job or lab.create_job(members, "--handler", handler)
    reports = reports_of(lab, start_ranks(lab, created, members, **options))
    expect_exact(reports, where, created["handler"])
    if job is None:
        lab.ctl("jobs", "destroy", created["id"])
    return reports


def expect_unless_repeated(claim, tries=6):
    """
    A claim on what goes over links. Where hosts repeated packets, although nothing is lost, because
    timers were early on a busy machine, it is tried again. claim: returns a list of what is wrong,
    and the reports of the hosts.
    """
    for left in reversed(range(tries)):
        wrong, reports = claim()
        if not wrong:
            return
        repeats = [report["retransmits"] for report in reports]
        expect(left != 0 and any(repeats), f"{'; '.join(wrong)}; packets repeated: {repeats}")


def job_entry(lab, job):
    """The job as jobs.list shows it; None if it is not there."""
    return next((entry for entry in lab.control.ask("jobs.list")["jobs"]
                 if entry["id"] == job["id"]), None)


def wait_for_results(lab, job, count, timeout=60):
    """Waits until the switch has sent that many results of the job."""
    wait_until(lambda: job_entry(lab, job)["stats"]["results"] >= count, timeout,
               f"{count} results")


def running_lab(*arguments, base=Lab, **options):
    """A Lab, or another kind of it, whose switch is up; use as a context manager."""
    class Running(base):
        def __enter__(self):
            super().__enter__()
            try:
                self.start_switch()
            except BaseException:
                self.close()
                raise
            return self
    return Running(*arguments, **options)
