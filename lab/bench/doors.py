#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""MPI_Allreduce through the doors of MPI programs, beside fanin-perf over the same network and Open
MPI alone: the library to preload, and Open MPI's component.

The sides take turns. A run's figure is the median of its calls, each as long as on its slowest
rank; a ratio is the median over all turns of goodput through a door by fanin-perf's, or by Open
MPI's own, in the same turn.
"""

import json
import statistics
import sys

from lab.fabric import Fabric, single
from lab.mpi import MpiHosts
from lab.namespaces import BUILD_DIR, DEFAULT_MTU, LabError

from lab.bench.io_forwarding import say
from lab.bench.options import add_bytes, bench_parser
from lab.bench.outcome import outcome
from lab.bench.pairs import catch_signals, pair_count
from lab.bench.runs import figure, slowest, times_of
from lab.bench.sizes import KIB, MIB, human_bytes
from lab.bench.stamp import stamp_now, words

HOSTS, WARMUP, PAIRS = 4, 2, 20
SIZES = (4 * KIB, MIB)
BYTES_IN_ALL = 32 * MIB
MAX_ITERATIONS = 400
RUN_SECONDS = 120
PERF, ALONE, DOORS = "fanin-perf", "Open MPI", ("openmpi", "component")
LIMITS = {"limits": {"max_jobs": 8, "slots": 4096}}


def iterations_of(size):
    return max(10, min(MAX_ITERATIONS, BYTES_IN_ALL // size))


class Turn:
    """Runs one side after the other in a network."""

    def __init__(self, fabric):
        self.fabric = fabric
        self.hosts = MpiHosts(fabric)
        self.runs = 0

    def perf(self, size):
        self.runs += 1
        ranks = [self.fabric.spawn_named(host, f"perf-{self.runs}", host, HOSTS, transport="udp",
                                         bytes=size, dtype="f32", op="sum", warmup=WARMUP,
                                         iters=iterations_of(size), times=True)
                 for host in range(HOSTS)]
        for rank in ranks:
            if rank.wait(RUN_SECONDS) != 0:
                raise LabError(f"fanin-perf: {rank.last_words()}")
        return figure(slowest([times_of(PERF, json.loads(rank.stdout())) for rank in ranks]))

    def mpi(self, size, door):
        program = BUILD_DIR / "lab" / "bench" / "peers" / "collective-mpi"
        printed = self.hosts.run(door or "openmpi", program, "allreduce", size,
                                 iterations_of(size), WARMUP, preload=door is not None,
                                 timeout=RUN_SECONDS)
        return figure(times_of(door or ALONE, json.loads(printed.splitlines()[-1])))

    def run(self, side, size):
        if side == PERF:
            return self.perf(size)
        return self.mpi(size, None if side == ALONE else side)


def ratios(turns, size):
    """Returns {door: {other side: median of the ratios of goodput}}."""
    return {door: {other: statistics.median(turn[size][other] / turn[size][door]
                                            for turn in turns)
                   for other in (PERF, ALONE)} for door in DOORS}


def measure(options):
    sides = (PERF, ALONE, *DOORS)
    stamp = stamp_now()
    turns = []
    with Fabric(single(HOSTS), "udp", DEFAULT_MTU["udp"], LIMITS) as fabric:
        fabric.start()
        fabric.start_manager()
        turn = Turn(fabric)
        for number in range(options.pairs):
            found = {size: {side: turn.run(side, size)
                            for side in (sides if number % 2 == 0 else sides[::-1])}
                     for size in options.bytes}
            turns.append(found)
            say(f"turn {number + 1} of {options.pairs}: " + "; ".join(
                f"{human_bytes(size)} " + ", ".join(f"{side} {found[size][side] * 1e6:.0f} us"
                                                    for side in sides) for size in options.bytes))
    return {"ok": True, "error": None, "stamp": stamp, "rows": [
        {"bytes": size, "turns": len(turns),
         "seconds": {side: statistics.median(turn[size][side] for turn in turns)
                     for side in sides},
         "ratios": ratios(turns, size)} for size in options.bytes]}


def print_table(result):
    print(f"MPI_Allreduce of f32 by {HOSTS} ranks on as many hosts, over udp at MTU "
          f"{DEFAULT_MTU['udp']}; {words(result['stamp'])}\n")
    for row in result["rows"]:
        print(f"  {human_bytes(row['bytes'])}, {row['turns']} turns")
        for side, seconds in row["seconds"].items():
            line = f"    {side:<12}{seconds * 1e6:>10.0f} us"
            if side in row["ratios"]:
                line += "".join(f"   {ratio:.3f} of {other}'s goodput"
                                for other, ratio in row["ratios"][side].items())
            print(line)


def main():
    parser = bench_parser("doors", __doc__)
    add_bytes(parser, "of the vector (default: 4 KiB and 1 MiB)")
    parser.add_argument("--pairs", type=pair_count, default=PAIRS, metavar="N",
                        help=f"turns, 1 to 100; default: {PAIRS}")
    options = parser.parse_args()
    options.bytes = options.bytes or list(SIZES)
    catch_signals()
    return outcome("doors", options, lambda: measure(options), print_table)


if __name__ == "__main__":
    sys.exit(main())
