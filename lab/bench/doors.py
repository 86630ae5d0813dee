#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""A collective of MPI programs through their doors, beside fanin-perf over the same network and
Open MPI alone: the library to preload, and Open MPI's component.

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
COLLECTIVES = ("allreduce", "reduce_scatter", "allgather")
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

    def __init__(self, fabric, options):
        self.fabric, self.options = fabric, options
        self.hosts = MpiHosts(fabric)
        self.runs = 0

    def perf(self, size):
        self.runs += 1
        each = self.options.ranks_per_host
        places = [host for host in range(self.options.hosts) for _ in range(each)]
        placed = {"hosts": ",".join(map(str, places))} if each > 1 else {}
        ranks = [self.fabric.spawn_named(host, f"perf-{self.runs}", rank, len(places),
                                         transport="udp",
                                         collective=self.options.collective,
                                         bytes=size, dtype="f32", op="sum", warmup=WARMUP,
                                         iters=iterations_of(size), times=True, **placed)
                 for rank, host in enumerate(places)]
        for rank in ranks:
            if rank.wait(RUN_SECONDS) != 0:
                raise LabError(f"fanin-perf: {rank.last_words()}")
        return figure(slowest([times_of(PERF, json.loads(rank.stdout())) for rank in ranks]))

    def mpi(self, size, door):
        program = BUILD_DIR / "lab" / "bench" / "peers" / "collective-mpi"
        printed = self.hosts.run(door or "openmpi", program, self.options.collective, size,
                                 iterations_of(size), WARMUP, preload=door is not None,
                                 ranks_per_host=self.options.ranks_per_host,
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
    with Fabric(single(options.hosts), "udp", options.mtu, LIMITS) as fabric:
        fabric.start()
        fabric.start_manager()
        turn = Turn(fabric, options)
        for number in range(options.pairs):
            found = {size: {side: turn.run(side, size)
                            for side in (sides if number % 2 == 0 else sides[::-1])}
                     for size in options.bytes}
            turns.append(found)
            say(f"turn {number + 1} of {options.pairs}: " + "; ".join(
                f"{human_bytes(size)} " + ", ".join(f"{side} {found[size][side] * 1e6:.0f} us"
                                                    for side in sides) for size in options.bytes))
    return {"ok": True, "error": None, "stamp": stamp, "collective": options.collective,
            "hosts": options.hosts, "ranks_per_host": options.ranks_per_host, "mtu": options.mtu,
            "rows": [
        {"bytes": size, "turns": len(turns),
         "seconds": {side: statistics.median(turn[size][side] for turn in turns)
                     for side in sides},
         "ratios": ratios(turns, size)} for size in options.bytes]}


def print_table(result):
    print(f"MPI_{result['collective'].capitalize()} of f32, {result['ranks_per_host']} ranks on "
          f"each of {result['hosts']} hosts, over udp at MTU {result['mtu']}; "
          f"{words(result['stamp'])}\n")
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
    parser.add_argument("--collective", choices=COLLECTIVES, default="allreduce", metavar="NAME",
                        help=f"{', '.join(COLLECTIVES)} (default: allreduce)")
    parser.add_argument("--hosts", type=int, choices=range(2, 17), default=HOSTS, metavar="N",
                        help=f"2 to 16; default: {HOSTS}")
    parser.add_argument("--ranks-per-host", type=int, choices=range(1, 17), default=1, metavar="N",
                        help="1 to 16; default: 1")
    parser.add_argument("--mtu", type=int, choices=range(1280, 9001), default=DEFAULT_MTU["udp"],
                        metavar="BYTES", help=f"1280 to 9000; default: {DEFAULT_MTU['udp']}")
    parser.add_argument("--pairs", type=pair_count, default=PAIRS, metavar="N",
                        help=f"turns, 1 to 100; default: {PAIRS}")
    options = parser.parse_args()
    options.bytes = options.bytes or list(SIZES)
    catch_signals()
    return outcome("doors", options, lambda: measure(options), print_table)


if __name__ == "__main__":
    sys.exit(main())
