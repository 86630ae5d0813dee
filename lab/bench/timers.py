#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What a million timers per second cost one worker of the switch: its packets per second, and its
instructions.

timers-bench compares batches of packets with and without timers, in turns. It is started many
times, since where the kernel puts a process's pages moves what it finds by a percent; the median of
these counts. Callgrind counts the instructions of the workers' loop for both: these counts are the
same however busy the machine is. It knows no AVX-512, so kernels are those of AVX2 there.
"""

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from lab.bench.instructions import BUILD_DIR, self_costs
from lab.bench.options import bench_parser

LIMIT = 0.02
PER_SECOND = 1000000
PAYLOADS = (256, 1024)
COMPARISONS = 250
COUNTED_BATCHES = 6
BATCH_PACKETS = 2048


def run(command, **options):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=600, check=False, **options)
    if done.returncode != 0:
        raise SystemExit(f"timers: {' '.join(map(str, command))} ended with status "
                         f"{done.returncode}:\n{done.stderr}")
    return done.stdout


def program():
    return str(BUILD_DIR / "lab" / "bench" / "timers-bench")


def count(kind, payload, every, isa):
    """Returns the instructions per packet in the workers' loop, of batches with or without timers.
    """
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "callgrind.out"
        run(["valgrind", "--tool=callgrind", "--toggle-collect=worker_round",
             f"--callgrind-out-file={out}", program(), "--no-huge",
             "--isa", isa, "--only", kind, "--every", str(every), "--payload", str(payload),
             "--comparisons", str(COUNTED_BATCHES)])
        costs = self_costs(out.read_text(encoding="utf-8", errors="replace"))
    total = sum(costs.values()) / (COUNTED_BATCHES * BATCH_PACKETS)
    if total == 0:
        raise SystemExit("timers: callgrind counted nothing: is worker_round inlined?")
    return total


def compare(payload, starts):
    """Compares the rate of packets and the cost, each the median of several processes."""
    rows = [json.loads(run([program(), "--json", "--per-second", str(PER_SECOND), "--payload",
                            str(payload),
                            "--comparisons", str(COMPARISONS)])) for _ in range(starts)]
    costs = [row["cost"] for row in rows]
    found = {key: rows[0][key] for key in ("cpu", "isa", "payload", "hosts", "every")}
    found.update({key: statistics.median(row[key] for row in rows)
                  for key in ("packets_per_s", "timers_per_s", "cost", "noise")})
    found.update(starts=starts, least_cost=min(costs), most_cost=max(costs), costs=costs,
                 undisturbed=sum(row["undisturbed"] for row in rows) / (starts * COMPARISONS))
    return found


def measure(payload, starts):
    found = compare(payload, starts)
    isa = "portable" if found["isa"] == "portable" else "avx2"
    without = count("without", payload, found["every"], isa)
    with_timers = count("with", payload, found["every"], isa)
    found["counted"] = {"isa": isa, "without": round(without, 2), "with": round(with_timers, 2),
                        "per_timer": round((with_timers - without) * found["every"], 1),
                        "cost": round(1 - without / with_timers, 5)}
    found["limit"] = LIMIT
    found["passed"] = found["cost"] < LIMIT and found["counted"]["cost"] < LIMIT
    return found


def main():
    parser = bench_parser("timers", __doc__)
    parser.add_argument("--starts", type=int, default=24, metavar="N",
                        help="of the program for each row, default: %(default)s")
    arguments = parser.parse_args()
    rows = [measure(payload, arguments.starts) for payload in PAYLOADS]
    if arguments.json:
        print(json.dumps({"results": rows}))
        return 0 if all(row["passed"] for row in rows) else 1
    print(f"one worker, 4 hosts, {rows[0]['cpu']}: packets per second that {PER_SECOND} timers per "
          "second cost")
    for row in rows:
        counted = row["counted"]
        print(f"  {row['payload']:5} bytes: {row['packets_per_s'] / 1e6:6.2f} Mpps, "
              f"{row['timers_per_s'] / 1e6:.2f} M timers/s: {100 * row['cost']:.2f} % "
              f"({100 * row['least_cost']:.2f} to {100 * row['most_cost']:.2f} in {row['starts']} "
              f"processes, noise {100 * row['noise']:.2f} %, {100 * row['undisturbed']:.0f} % "
              f"undisturbed); instructions per packet {counted['without']:.1f} -> "
              f"{counted['with']:.1f}, {100 * counted['cost']:.2f} %, {counted['per_timer']:.0f} "
              f"per timer ({counted['isa']}): {'reached' if row['passed'] else 'MISSED'}")
    return 0 if all(row["passed"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
