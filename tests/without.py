#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Builds Fanin without each of the protocols that can be left out, one after the other, in
build-without/, and tests what is left.

usage: python3 -m tests.without [NAME...]

NAME: choices of the option `without` in meson_options.txt; by default all. Of each build the unit
suites are run but for those that are long, slow or thorough, those that wait, and those that no
sanitizer runs, and the net case that stands for each protocol that is left. Needs root. Progress
goes to standard error, a line for each protocol to standard output. Exit status: 0 all right, 1
something failed, 2 wrong usage.
"""

import os
import subprocess
import sys
import time

from lab.namespaces import SOURCE_DIR, module
from tests.sources import protocols_of
from tests.net.cases import CASES
from tests.release import LEFT_OUT

BUILD = SOURCE_DIR / "build-without"
FEATURES = ("bench", "peers", "mpi", "torch")


class Failed(Exception):
    """A step failed; the text is one line for people."""


def step(words, what, seconds, **options):
    """Runs a step to its end and returns what it said."""
    with open(BUILD / "log", "ab") as log:
        done = subprocess.run(words, cwd=SOURCE_DIR, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=seconds, check=False, **options)
        log.write(done.stdout.encode())
    if done.returncode != 0:
        raise Failed(f"{what} failed; {BUILD / 'log'} says why:\n{done.stdout[-2000:]}")
    return done.stdout


def configure(name):
    """Prepares the build without a protocol."""
    words = ["--buildtype=release", "-Doptimization=1", "--werror",
             *(f"-D{feature}=disabled" for feature in FEATURES), f"-Dwithout={name}"]
    BUILD.mkdir(exist_ok=True)
    if (BUILD / "build.ninja").exists():
        step(["meson", "configure", str(BUILD), f"-Dwithout={name}"], "meson configure", 120)
    else:
        step(["meson", "setup", str(BUILD), *words], "meson setup", 300)


def suites():
    """The unit suites of this build that are run."""
    program = str(BUILD / "tests" / "fanin-check")
    without = {suite for mark in LEFT_OUT
               for suite in step([program, "--list", mark], f"--list {mark}", 60).split()}
    return program, [suite for suite in step([program, "--list"], "--list", 60).split()
                     if suite not in without and suite != "net"]


def family(without):
    """The cases that stand for the protocols that are left."""
    gone = {f"protocols.{name}." for name in without}
    return [name for name, one in CASES.items() if "family" in one.marks
            and not one.function.__module__.startswith(tuple(gone))]


def test(name):
    """Builds and tests without a protocol; returns a line of what was done."""
    started = time.monotonic()
    configure(name)
    step(["ninja", "-C", str(BUILD)], "the build", 3600)
    built = time.monotonic()
    program, wanted = suites()
    words = step([program, *wanted], "unit suites", 3600).strip().splitlines()
    tested = time.monotonic()
    cases = family({name, "pull"} if name == "broadcast" else {name})
    step([*module("tests.net.cases"), *cases], "net cases", 1800,
         env={**os.environ, "FANIN_BUILD_DIR": str(BUILD)})
    ended = time.monotonic()
    return (f"without {name}: {len(wanted)} suites ({words[-1]}), {len(cases)} net cases; "
            f"{built - started:.0f} s to build, {tested - built:.0f} s and {ended - tested:.0f} s "
            "to test")


def main(arguments):
    """Returns the exit status."""
    known = protocols_of(SOURCE_DIR)
    unknown = [name for name in arguments if name not in known]
    if unknown:
        print(f"without: found {', '.join(unknown)}, expected some of {', '.join(known)}",
              file=sys.stderr)
        return 2
    status = 0
    for name in arguments or known:
        print(f"without {name}: building and testing in {BUILD}", file=sys.stderr)
        try:
            print(test(name), flush=True)
        except (Failed, subprocess.TimeoutExpired) as failure:
            print(f"without {name}: FAILED: {failure}", flush=True)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
