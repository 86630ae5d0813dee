#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Counts the instructions that the workers' loop takes per packet, and holds them against a budget.

Callgrind counts while core-bench runs the pipeline on packets in memory with the portable kernels,
and while super-frames become packets and packets super-frames: the same binary gives the same
counts however busy the machine is. A case that exceeds its budget by over 3 % fails, and the
functions that grew are printed. A change that is worth its cost, or that saves something, brings a
new budget: --update.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE_DIR = Path(__file__).resolve().parent.parent.parent
BUILD_DIR = Path(os.environ.get("FANIN_BUILD_DIR", SOURCE_DIR / "build"))
BUDGET = SOURCE_DIR / "lab" / "bench" / "instructions.json"
TOLERANCE = 0.03
BATCHES = 6
WARM_UP = 2  # batches that core-bench adds
MBUFS = 1024
# Functions with less of a packet's instructions are printed together.
MIN_SHOWN = 1.0

ROUNDS = 100  # of super-frames, in bursts of 64 packets


def self_costs(text):
    """Returns the instructions of each function itself, from callgrind's output format."""
    names = {}
    costs = {}
    function = None
    skip = False
    for line in text.splitlines():
        if line.startswith("fn="):
            number, _, name = line[3:].partition(" ")
            if name:
                names[number] = name
            function = names.get(number, number)
        elif line.startswith(("cfn=", "cfi=", "cfl=", "cob=")):
            if line.startswith("cfn="):
                number, _, name = line[4:].partition(" ")
                if name:
                    names[number] = name
        elif line.startswith("calls="):
            skip = True  # The next line is the inclusive cost of that call.
        elif re.match(r"^[+\-*0-9]", line):
            if not skip and function is not None:
                costs[function] = costs.get(function, 0) + int(line.split()[1])
            skip = False
    return costs


def plain_name(name):
    """Returns the name in the source: without the compiler's suffixes and without addresses of
    unnamed functions.
    """
    if name.startswith("0x"):
        return "functions of shared libraries"
    return re.sub(r"\.(constprop|isra|part|cold)(\.\d+)?", "", name).split("'")[0]


def core_bench(arguments):
    """Returns the command of a case, the function that is counted, and how many packets go through
    it.
    """
    return (["core-bench", "--no-huge", "--isa", "portable", "--mbufs", str(MBUFS), "--batches",
             str(BATCHES), "--seconds", "0", *arguments],
            "worker_round", (BATCHES + WARM_UP) * MBUFS)


def super_frames(flows):
    return ["super-frames-bench", str(ROUNDS), str(flows)], "super_frames_round", ROUNDS * 64


CASES = {
    "single, 4 hosts, 1024 bytes": core_bench(["--handler", "single", "--hosts", "4", "--payload",
                                               "1024"]),
    "single, 4 hosts, 256 bytes": core_bench(["--handler", "single", "--hosts", "4", "--payload",
                                              "256"]),
    "single, 16 hosts, 256 bytes": core_bench(["--handler", "single", "--hosts", "16", "--payload",
                                               "256"]),
    "single, 4 hosts, parent, 256 bytes": core_bench(["--handler", "single", "--hosts", "4",
                                                      "--payload", "256", "--parent"]),
    "multi, 4 hosts, 256 bytes": core_bench(["--handler", "multi", "--hosts", "4", "--payload",
                                             "256"]),
    "tree, 4 hosts, 256 bytes": core_bench(["--handler", "tree", "--hosts", "4", "--payload",
                                            "256"]),
    "super-frames in and out, 1 flow": super_frames(1),
    "super-frames in and out, 8 flows": super_frames(8),
}


def count(program, function, packets):
    """Returns the instructions per packet by function."""
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "callgrind.out"
        command = ["valgrind", "--tool=callgrind", f"--toggle-collect={function}",
                   f"--callgrind-out-file={out}",
                   str(BUILD_DIR / "lab" / "bench" / program[0]), *program[1:]]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=300)
        if done.returncode != 0:
            raise SystemExit(f"instructions: {' '.join(command)} ended with status "
                             f"{done.returncode}:\n{done.stderr}")
        costs = self_costs(out.read_text(encoding="utf-8", errors="replace"))
    result = {}
    for name, cost in costs.items():
        key = plain_name(name)
        result[key] = result.get(key, 0.0) + cost / packets
    total = sum(result.values())
    if total == 0:
        raise SystemExit(f"instructions: callgrind counted nothing: is {function} inlined?")
    large = {name: round(cost, 1) for name, cost in result.items() if cost >= MIN_SHOWN}
    large["others"] = round(total - sum(large.values()), 1)
    return {"total": round(total, 1),
            "functions": dict(sorted(large.items(), key=lambda item: -item[1]))}


def growth(found, budget):
    """Returns the functions that grew, the largest growth first: (name, found, budget)."""
    names = set(found["functions"]) | set(budget["functions"])
    rows = [(name, found["functions"].get(name, 0.0), budget["functions"].get(name, 0.0))
            for name in names]
    return sorted((row for row in rows if row[1] > row[2]), key=lambda row: row[2] - row[1])


def compare(case, found, budget):
    """Prints a line; returns False if the case is over its budget."""
    if budget is None:
        print(f"  {case:34} {found['total']:8.1f}   no budget yet: --update")
        return False
    ratio = found["total"] / budget["total"]
    over = ratio > 1 + TOLERANCE
    print(f"  {case:34} {found['total']:8.1f}  budget {budget['total']:8.1f}  "
          f"{100 * (ratio - 1):+6.1f} %{'  TOO MANY' if over else ''}")
    if over:
        for name, now, before in growth(found, budget)[:5]:
            print(f"      {name}: {before:.1f} -> {now:.1f}")
    return not over


def main():
    parser = argparse.ArgumentParser(prog="./dev bench instructions",
                                     description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--update", action="store_true",
                        help="write what is counted as the new budget")
    parser.add_argument("--json", action="store_true",
                        help="print one JSON object with what was counted")
    arguments = parser.parse_args()
    budgets = json.loads(BUDGET.read_text(encoding="utf-8")) if BUDGET.exists() else {}
    found = {case: count(*what) for case, what in CASES.items()}
    if arguments.update:
        BUDGET.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(f"wrote {BUDGET.relative_to(SOURCE_DIR)}")
        return 0
    if arguments.json:
        print(json.dumps({"tolerance": TOLERANCE, "cases": found}))
        return 0 if all(case in budgets
                        and found[case]["total"] <= budgets[case]["total"] * (1 + TOLERANCE)
                        for case in CASES) else 1
    print("instructions per packet in the workers' loop, portable kernels:")
    results = [compare(case, found[case], budgets.get(case)) for case in CASES]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
