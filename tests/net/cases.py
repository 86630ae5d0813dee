#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The net tests: real processes in network namespaces, one function per claim.
tests/unit/test_net.c runs each of them.

usage: python3 -m tests.net.cases --list [--all | MARK] | NAME... | --lanes N DIRECTORY NAME...
       --list prints each name with the most seconds it may take; --all: also those that are long
       or thorough; MARK: those with this mark, one of long, sanitized and family
       --lanes runs N at a time, each in a process of its own, those with the longest limits first:
               what NAME prints goes to DIRECTORY/NAME.out, and at its end DIRECTORY/NAME.status has
               its exit status, or "timeout"
"""

import importlib
import os
import random
import select
import shutil
import signal
import sys
import time
import traceback
from pathlib import Path

from tests.net.support import CASES, CaseFailed, LabError
from lab.namespaces import BUILD_DIR, SOURCE_DIR, Interrupted, note_fork, programs

SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)

# Each file enters its cases into the list.
for path in sorted([*SOURCE_DIR.glob("tests/net/case_*.py"),
                    *SOURCE_DIR.glob("examples/*/tests/case_*.py"),
                    *SOURCE_DIR.glob("protocols/*/tests/case_*.py")]):
    importlib.import_module(".".join(path.relative_to(SOURCE_DIR).with_suffix("").parts))


def run_case(name):
    """Exit status of one case: 0 if its claim holds."""
    function = CASES[name].function
    started = time.monotonic()
    try:
        function()
    except CaseFailed as failure:
        print(f"{name}: {failure}")
        return 1
    except LabError as failure:
        lines = traceback.extract_tb(failure.__traceback__)
        where = next((line for line in lines if Path(line.filename).name.startswith("case_")),
                     lines[-1])
        print(f"{name}: {failure} (line {where.lineno} of {where.name})")
        return 1
    except Interrupted as interruption:
        print(f"{name}: {interruption} after {time.monotonic() - started:.1f} s")
        return 1
    print(f"{name}: ok, {time.monotonic() - started:.1f} s")
    return 0


class Running:
    """A case in a process of its own, a fork of this one: it has all modules already."""

    CLEANUP_SECONDS = 30  # from SIGTERM to SIGKILL: for a case to remove its namespaces

    def __init__(self, name, directory):
        self.name, self.directory = name, directory
        self.status = None  # what is known before its end: that it took too long
        self.deadline = time.monotonic() + CASES[name].seconds
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            self._run()
        self.fd = os.pidfd_open(self.pid)

    def _run(self):
        status = 1
        try:
            for signum in SIGNALS:
                signal.signal(signum, signal.SIG_DFL)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            out = os.open(self.directory / f"{self.name}.out", os.O_WRONLY | os.O_CREAT, 0o644)
            os.dup2(out, 1)
            os.dup2(out, 2)
            os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # the caller waits for its pipe's end
            random.seed()
            note_fork()
            status = run_case(self.name)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def end(self, status="ended"):
        """Asks it to end; the second time it has no choice."""
        signum = signal.SIGTERM if self.status is None else signal.SIGKILL
        signal.pidfd_send_signal(self.fd, signum)
        self.status = self.status or status
        self.deadline = time.monotonic() + self.CLEANUP_SECONDS

    def check_time(self):
        if time.monotonic() >= self.deadline:
            self.end("timeout")

    def collect(self):
        """It has ended: writes how."""
        _, status = os.waitpid(self.pid, 0)
        os.close(self.fd)
        status = self.status or os.waitstatus_to_exitcode(status)
        part = self.directory / f"{self.name}.part"
        part.write_text(f"{status}\n", encoding="ascii")
        part.rename(self.directory / f"{self.name}.status")


class Lanes:
    """Cases side by side: most of them wait most of the time."""

    POLL_MS = 200

    def __init__(self, names, directory):
        # The longest first, as far as their limits tell: the last ones leave no lane idle.
        self.names = sorted(names, key=lambda name: CASES[name].seconds)
        self.directory = directory
        self.interrupted = False

    def _interrupt(self, _signum, _frame):
        self.interrupted = True

    def run(self, n):
        """Runs all; if a signal ends it, what it has begun is cleaned up, with the directory."""
        for signum in SIGNALS:
            signal.signal(signum, self._interrupt)
        running, poll = {}, select.poll()
        while running or (self.names and not self.interrupted):
            while self.names and len(running) < n and not self.interrupted:
                one = Running(self.names.pop(), self.directory)
                running[one.fd] = one
                poll.register(one.fd, select.POLLIN)
            for fd, _ in poll.poll(self.POLL_MS):
                poll.unregister(fd)
                running.pop(fd).collect()
            for one in running.values():
                if self.interrupted and one.status is None:
                    one.end()
                one.check_time()
        if self.interrupted:
            shutil.rmtree(self.directory, ignore_errors=True)


def main(arguments):
    if arguments[:1] == ["--list"] and (len(arguments) == 1
                                        or arguments[1:] in (["--all"], ["long"], ["sanitized"],
                                                             ["family"])):
        for name, one in CASES.items():
            by_default = len(arguments) == 1 and one.by_default
            if by_default or arguments[-1] == "--all" or arguments[-1] in one.marks:
                print(name, one.seconds)
        return 0
    lanes = directory = None
    has_lanes = arguments[:1] == ["--lanes"] and len(arguments) > 3
    if has_lanes and arguments[1].isdecimal() and int(arguments[1]) > 0:
        lanes, directory, arguments = int(arguments[1]), Path(arguments[2]), arguments[3:]
    unknown = [name for name in arguments if name not in CASES]
    if not arguments or unknown:
        print(f"cases.py: found {unknown or 'no name'}, expected --list or names that it prints",
              file=sys.stderr)
        return 2
    if lanes is not None:
        programs(BUILD_DIR)  # looked up once for all cases
        Lanes(arguments, directory).run(lanes)
        return 0
    return max(run_case(name) for name in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
