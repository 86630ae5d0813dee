#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Runs the whole pipeline on packets in memory, in pairs of runs with an older commit's; without
--against, core-bench itself.
"""

import argparse
import json
import os
import subprocess
import sys

from lab.namespaces import Interrupted, LabError, program, report_interruption

from lab.bench import pairs
from lab.bench.io_forwarding import say

PROGRAM = "core-bench"
HELP = f"""\
  --against COMMIT  in pairs of runs with an older commit, which is built for it
  --pairs N         how many, 1 to 100 (default {pairs.PAIRS})
"""


def name_of(row):
    """Returns the fields that identify a row of core-bench. Older builds lack some of them."""
    jobs, workers = row.get("jobs", 1), row.get("workers", 1)
    return (f"{row['handler']} {row['dtype']} {row['op']}, {row['payload']} bytes, {row['hosts']} "
            f"hosts{' and a parent' if row.get('parent') else ''}, {jobs} job{'s' * (jobs != 1)}, "
            f"{workers} worker{'s' * (workers != 1)}, {row['mbufs']} packets")


class Runs:
    """Runs of core-bench. Each gets the fastest calibration of the runs before it, so that a run
    that is disturbed throughout detects this.
    """

    def __init__(self, options):
        self.options, self.calibration = options, None

    def __call__(self, build):
        known = [] if self.calibration is None or "--calibration" in self.options else [
            "--calibration", str(self.calibration)]
        done = subprocess.run([program(PROGRAM, build), *self.options, *known, "--json"],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0:
            raise LabError(f"{PROGRAM} of {build}: "
                           f"{(done.stderr.strip() or f'exit status {done.returncode}').splitlines()[0]}")
        result = json.loads(done.stdout)
        self.calibration = min(result["calibration"], self.calibration or result["calibration"])
        return {name_of(row): row["mpps"] for row in result["results"]}


def main():
    parser = argparse.ArgumentParser(prog="./dev bench core", add_help=False, allow_abbrev=False,
                                     usage="%(prog)s [--against COMMIT [--pairs N]] [OPTIONS]; "
                                           "--help lists them")
    pairs.add_options(parser)
    options, others = parser.parse_known_args()
    bench = program(PROGRAM)
    if "--help" in others:
        status = subprocess.run([bench, "--help"]).returncode
        print(HELP, end="")
        return status
    pairs.check_options(parser, options)
    if options.against is None:
        os.execv(bench, [bench, *others])
    as_json = "--json" in others
    try:
        result = pairs.compare("core", options.against, options.pairs, (PROGRAM,),
                               Runs([word for word in others if word != "--json"]), say)
    except Interrupted as interruption:
        return report_interruption(interruption)
    except (LabError, OSError) as error:
        result = {"ok": False, "error": str(error)}
    if as_json:
        print(json.dumps(result))
    elif result["ok"]:
        print(pairs.table(result, "millions of packets per second"))
    if result["error"]:
        print(f"bench core: {result['error']}", file=sys.stderr)
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
