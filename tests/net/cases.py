#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The net tests: real processes in network namespaces, one function per claim.
tests/unit/test_net.c runs each of them.

usage: python3 -m tests.net.cases --list [--all | sanitized | family] | NAME... | --lanes N
DIRECTORY NAME...
       --list prints each name with the most seconds it may take; --all: also those that are
       thorough; or those with a mark --lanes runs N at a time, each in a process of its own: what
       NAME prints goes to DIRECTORY/NAME.out, and at its end
               DIRECTORY/NAME.status has its exit status, or "timeout"
"""

import importlib
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path

from tests.net.support import CASES, CaseFailed, LabError
from lab.namespaces import SOURCE_DIR, Interrupted, module

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


class Lanes:
    """Cases side by side: most of them wait most of the time."""

    CLEANUP_SECONDS = 30  # from SIGTERM to SIGKILL: for a case to remove its namespaces

    def __init__(self, names, directory):
        self.names = iter(names)
        self.directory = directory
        self.running = set()
        self.ended = False
        self.lock = threading.Lock()

    def _start(self):
        """The next case's name and process, or None."""
        with self.lock:
            name = None if self.ended else next(self.names, None)
            if name is None:
                return None
            with open(self.directory / f"{name}.out", "wb") as out:
                process = subprocess.Popen([*module("tests.net.cases"), name],
                                           stdin=subprocess.DEVNULL, stdout=out,
                                           stderr=subprocess.STDOUT)
            self.running.add(process)
            return name, process

    def _end(self, process):
        process.terminate()
        try:
            process.wait(self.CLEANUP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _lane(self):
        while (started := self._start()) is not None:
            name, process = started
            try:
                status = str(process.wait(CASES[name].seconds))
            except subprocess.TimeoutExpired:
                status = "timeout"
                self._end(process)
            with self.lock:
                self.running.discard(process)
            part = self.directory / f"{name}.part"
            part.write_text(status + "\n", encoding="ascii")
            part.rename(self.directory / f"{name}.status")

    def _interrupt(self, _signum, _frame):
        self.ended = True

    def run(self, n):
        """Runs all; if a signal ends it, what it has begun is cleaned up, with the directory."""
        for signum in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(signum, self._interrupt)
        threads = [threading.Thread(target=self._lane) for _ in range(n)]
        for thread in threads:
            thread.start()
        # A signal may come to any of the threads, but only this one acts on it, when it wakes up.
        while not self.ended and any(thread.is_alive() for thread in threads):
            for thread in threads:
                thread.join(0.2)
        if not self.ended:
            return
        with self.lock:
            left = list(self.running)
        for process in left:
            self._end(process)
        for thread in threads:
            thread.join()
        shutil.rmtree(self.directory, ignore_errors=True)


def main(arguments):
    if arguments[:1] == ["--list"] and (len(arguments) == 1
                                        or arguments[1:] in (["--all"], ["sanitized"], ["family"])):
        for name, one in CASES.items():
            if arguments[-1] in one.marks or arguments[
                    -1] == "--all" or len(arguments) == 1 and not one.thorough:
                print(name, one.seconds)
        return 0
    lanes = directory = None
    if arguments[:1] == [
            "--lanes"] and len(
                arguments) > 3 and arguments[1].isdecimal() and int(arguments[1]) > 0:
        lanes, directory, arguments = int(arguments[1]), Path(arguments[2]), arguments[3:]
    unknown = [name for name in arguments if name not in CASES]
    if not arguments or unknown:
        print(f"cases.py: found {unknown or 'no name'}, expected --list or names that it prints",
              file=sys.stderr)
        return 2
    if lanes is not None:
        Lanes(arguments, directory).run(lanes)
        return 0
    return max(run_case(name) for name in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
