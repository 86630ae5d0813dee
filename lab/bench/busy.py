#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Allreduce and ping on a busy machine, in pairs of runs with an older commit's.

Hosts are network namespaces on one fanin-switch. Each cell has a number of hosts, a transport and a
load: nothing, busy loops, injected loss. Every pair has a run of this tree's build and one of the
older commit's, in turns. docs/performance.md explains more.
"""

import fnmatch
import json
import os
import sys
import time
from typing import NamedTuple

from lab.namespaces import BUILD_DIR, DEFAULT_MTU, Interrupted, Lab, LabError, report_interruption

from lab.bench.busy_report import criteria_of, geometric_mean, summary_of, table
from lab.bench.busy_run import RunFailed, one_run
from lab.bench.io_forwarding import machine, say
from lab.bench.older_build import build_of, commit_of, git
from lab.bench.options import bench_parser
from lab.bench.pairs import AGAINST, PAIRS, THIS, catch_signals, pair_count, turns
from lab.bench.sizes import byte_count

HOSTS = (4, 8, 16)
TRANSPORTS = ("af_xdp", "af_packet", "udp")
LOSS = 0.02
# name: (busy loops, injected loss)
LOADS = {"quiet": (0, 0.0), "one-loop": (1, 0.0), "two-loops": (2, 0.0), "loss": (0, LOSS),
         "two-loops+loss": (2, LOSS)}
QUICK_HOSTS = (4, 16)
QUICK_LOADS = ("quiet", "two-loops", "loss")
BYTES = 8 << 20
# The last commit before hosts asked for results instead of sending payloads again.
BEFORE_QUERIES = "fe3d12b"
PROGRAMS = ("fanin-switch", "faninctl", "fanin-perf")


class Cell(NamedTuple):
    hosts: int
    transport: str
    load: str

    @property
    def name(self):
        return f"{self.hosts}-{self.transport}-{self.load}"

    @property
    def loops(self):
        return LOADS[self.load][0]

    @property
    def loss(self):
        return LOADS[self.load][1]


def cells_wanted(patterns, quick):
    """Returns all cells, or with --quick fewer, or those that a pattern matches."""
    every = [Cell(hosts, transport, load) for hosts in HOSTS for transport in TRANSPORTS
             for load in LOADS]
    if patterns:
        return [cell for cell in every
                if any(fnmatch.fnmatchcase(cell.name, pattern) for pattern in patterns)]
    return [cell for cell in every if not quick
            or (cell.hosts in QUICK_HOSTS and cell.load in QUICK_LOADS)]


class Progress:
    """Prints lines on standard error: which run it is, and how long the rest takes at the pace so
    far.
    """

    def __init__(self, runs):
        self.runs, self.done, self.started = runs, 0, time.monotonic()

    def tell(self, text):
        self.done += 1
        left = (time.monotonic() - self.started) / self.done * (self.runs - self.done)
        say(f"run {self.done} of {self.runs}, about {left / 60:.1f} min left: {text}")


def words_of(run):
    if not run["ok"]:
        return f"FAILED: {run['error']}"
    ping = run["ping"]
    median = "none came back" if ping["median_ms"] is None else f"median {ping['median_ms']:.2f} ms"
    return f"{run['goodput_gbps']:.3f} Gbit/s, {run['retransmit_percent']:.2f} % sent again, ping: {ping['lost']} lost, {median}"


class Bench:
    def __init__(self, options, cells, sides):
        self.options, self.cells, self.sides = options, cells, sides
        self.paces = {}
        self.results = []  # of the cells that are done
        self.progress = Progress(len(cells) * options.pairs * len(sides))

    def _run(self, lab, cell, side, pair):
        """Does a run of one side; a failure is a result, too."""
        lab.build = self.sides[side]
        started = time.monotonic()
        try:
            figures = {"ok": True, "error": None, "wrong": 0,
                       **one_run(lab, cell, self.options.bytes, pair + 1, self.paces, side)}
        except (RunFailed, LabError) as error:
            figures = {"ok": False, "error": str(error), "wrong": getattr(error, "wrong", 0)}
        run = {"side": side, "pair": pair, "wall_seconds": round(time.monotonic() - started, 3),
               **figures}
        self.progress.tell(f"{cell.name}, {side}: {words_of(run)}")
        return run

    def _cell(self, cell):
        """Does all pairs of a cell. The laboratory is kept from run to run, unless a run in it has
        failed.
        """
        order = turns(self.options.pairs, self.sides)
        runs = []
        while len(runs) < len(order):
            with Lab(cell.hosts, cell.transport) as lab:
                while len(runs) < len(order):
                    pair, side = order[len(runs)]
                    runs.append(self._run(lab, cell, side, pair))
                    if not runs[-1]["ok"]:
                        break
        return runs

    def measure(self):
        for number, cell in enumerate(self.cells):
            say(f"cell {number + 1} of {len(self.cells)}: {cell.name}")
            runs = self._cell(cell)
            self.results.append({"name": cell.name, "hosts": cell.hosts,
                                 "transport": cell.transport, "load": cell.load,
                                 "loops": cell.loops, "loss": cell.loss,
                                 "mtu": DEFAULT_MTU[cell.transport], "runs": runs,
                                 **summary_of(runs, AGAINST in self.sides)})


def result_of(bench, commit, load, error):
    """Returns the object that --json prints, from the cells that are done. error: why there are no
    more, or None.
    """
    cells, options = bench.results, bench.options
    criteria = criteria_of(cells)
    wrong = sum(run["wrong"] for cell in cells for run in cell["runs"] if run["side"] == THIS)
    if error is None and wrong:
        error = f"{wrong} elements are wrong"
    return {"ok": error is None, "error": error,
            "machine": {"description": machine(), "cpus": os.cpu_count(), "load_before": load,
                        "load_after": os.getloadavg()},
            "commit": git("rev-parse", "HEAD"), "against": commit, "pairs": options.pairs,
            "bytes": options.bytes,
            "cells_wanted": len(bench.cells), "cells": cells,
            "ratio_geometric_mean": geometric_mean([cell["ratio"] for cell in cells]),
            "criteria": criteria, "criteria_met": all(criterion["ok"] is not False
                                                      for criterion in criteria)}


def measure(options):
    """Returns the result, and the signal that ended the measurement early, or None: measured cells
    are not lost.
    """
    sides = {THIS: BUILD_DIR}
    commit = ended = error = None
    if options.against != "none":
        commit = commit_of(options.against, ", or none")
        sides[AGAINST] = build_of(commit, say, "busy", PROGRAMS)
    load = os.getloadavg()
    bench = Bench(options, cells_wanted(options.cells, options.quick), sides)
    try:
        bench.measure()
    except Interrupted as interruption:
        if not bench.results:
            raise
        ended, error = interruption, str(interruption)
    except (LabError, OSError) as failure:
        if not bench.results:
            raise
        error = str(failure)
    return result_of(bench, commit, load, error), ended


def parse_arguments():
    parser = bench_parser("busy", __doc__)
    parser.add_argument("--quick", action="store_true",
                        help="4 and 16 hosts, three loads, one pair")
    parser.add_argument("--pairs", type=pair_count, metavar="N",
                        help="of runs in each cell; default: 5, with --quick 1")
    parser.add_argument("--against", default=BEFORE_QUERIES, metavar="COMMIT",
                        help=f"the older commit, or none; default: {BEFORE_QUERIES}, the last one "
                             "before queries")
    parser.add_argument("--cells", nargs="+", metavar="PATTERN",
                        help="those whose names match one of these, like '16-*-two-loops'; "
                             "--list-cells lists the names")
    parser.add_argument("--bytes", type=byte_count, default=BYTES, metavar="B",
                        help="of the vector; default: 8MiB")
    parser.add_argument("--list-cells", action="store_true",
                        help="print the cells' names and nothing else")
    parser.add_argument("--check", action="store_true",
                        help="exit status 1 if a criterion is missed")
    options = parser.parse_args()
    options.pairs = options.pairs or (1 if options.quick else PAIRS)
    if not cells_wanted(options.cells, options.quick):
        parser.error(f"argument --cells: found {' '.join(options.cells)}, which match no cell; "
                     "--list-cells lists them")
    return options


def main():
    options = parse_arguments()
    if options.list_cells:
        print("\n".join(cell.name for cell in cells_wanted(options.cells, options.quick)))
        return 0
    catch_signals()
    ended = None
    try:
        result, ended = measure(options)
    except Interrupted as interruption:
        return report_interruption(interruption)
    except (LabError, OSError) as error:
        result = {"ok": False, "error": str(error)}
    if options.json:
        print(json.dumps(result))
    elif "cells" in result:
        print(table(result))
    if ended is not None:
        return report_interruption(ended)
    if result["error"]:
        print(f"bench busy: {result['error']}", file=sys.stderr)
    return 0 if result["ok"] and (result["criteria_met"] or not options.check) else 1


if __name__ == "__main__":
    sys.exit(main())
