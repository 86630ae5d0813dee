# SPDX-License-Identifier: BSD-3-Clause
"""Runs benchmark programs in virtual time, several at a time, and summarises their figures."""

import concurrent.futures
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

BUILD_DIR = Path(os.environ.get("FANIN_BUILD_DIR",
                                Path(__file__).resolve().parent.parent.parent / "build"))
RUN_SECONDS = 900
# A line on stderr after this many runs.
PROGRESS_RUNS = 20


class RunError(Exception):
    """A run failed; the text says which one and why."""


def command_of(program, options):
    command = [str(BUILD_DIR / "lab" / "bench" / program)]
    for name, value in options.items():
        command += ["--" + name.replace("_", "-")] + ([] if value is True else [str(value)])
    return command


def run_one(program, options):
    """Makes one run. Returns the JSON object that it prints."""
    command = command_of(program, options)
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=RUN_SECONDS, check=False)
    if done.returncode != 0:
        raise RunError(f"{' '.join(command)} ended with status {done.returncode}: "
                       f"{done.stderr.strip()[-300:]}")
    return json.loads(done.stdout)


def run_all(label, runs, processes, run):
    """Returns the results of run(options) for all runs, in order. label: of lines on stderr."""
    found = []
    with concurrent.futures.ThreadPoolExecutor(processes) as pool:
        futures = [pool.submit(run, options) for options in runs]
        for future in futures:
            found.append(future.result())
            if len(found) % PROGRESS_RUNS == 0:
                print(f"{label}: {len(found)} of {len(runs)} runs", file=sys.stderr)
    return found


def quartiles(values):
    if len(values) < 2:
        return values[0], values[0]
    found = statistics.quantiles(values, n=4, method="inclusive")
    return found[0], found[2]
