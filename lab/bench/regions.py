#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Push and pull reductions over table sizes and waves, beside `single`, in virtual time over links
of one rate (Klenk et al., figures 9 and 10).

regions-bench runs a network of real switches, queues and engines. Each row is a run. Goodput is the
vector's size divided by the time of an allreduce.
"""

import json
import statistics
import subprocess
import sys
from pathlib import Path

from lab.bench import virtual_time
from lab.bench.options import add_part, add_processes, bench_parser
from lab.bench.virtual_time import RunError

KIB, MIB = 1 << 10, 1 << 20
HANDLERS = ("push", "pull")
TABLES = (4, 16, 64, 256, 1024, 4096)
WAVES = (1, 4, 16, 64)
# As in the paper, a wave has 8 KiB.
WAVE_BLOCKS = 8
WINDOW = 512
# Waves of one block, as many as the window has blocks: only the window bounds the blocks in flight.
NO_WAVES = {"waves": WINDOW, "wave_blocks": 1}
SIZES = tuple(KIB << shift for shift in range(4, 14, 3))
TOPOLOGIES = {"small": {"leaves": 2, "hosts_per_leaf": 4, "ranks": 8},
              "large": {"leaves": 4, "hosts_per_leaf": 4, "ranks": 16}}
BYTES = 4 * MIB
QUICK = {"tables": (4, 64, 1024), "waves": (1, 16), "sizes": (16 * KIB, MIB),
         "topologies": ("small",), "bytes": MIB}
LINK_MBIT = 1000
# Each row is the median of this many seeds; hosts are late at random, so that packets of a block do
# not come at the same time.
SEEDS = 3
BUSY = {"busy_share": 0.05, "busy_ns": 20000}
# Goodput of at least this share of the best counts as the best.
NEAR = 0.9


def groups_of(rows, *keys):
    groups = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return groups


# ------------------------------------------------------------------ runs

def make_row(part, key, options):
    found = virtual_time.run_one("regions-bench", options)
    command = " ".join(virtual_time.command_of("regions-bench", options))
    if found["error"] or not found["exact"] or not found["done"]:
        raise RunError(f"{command}: "
                       f"{found['error'] or ('a result is not the sum' if found['done'] else 'it did not end')}")
    seconds = statistics.median(found["seconds"])
    return {"part": part, **key, "bytes": found["bytes"], "ranks": found["ranks"],
            "seconds": seconds, "goodput_mbit": found["bytes"] * 8 / seconds / 1e6,
            "hosts": found["hosts"], "switches": found["switches"], "links": found["links"],
            "dropped": found["dropped"], "command": command}


def allreduces_of(size):
    return 8 if size < MIB else 1


def run_of(topology, handler, seed, table, waves, size):
    """Makes a run: the fields that identify its row, and its options. waves: a number; 0: none;
    None: hosts choose it.
    """
    chosen = {"waves": waves,
              "wave_blocks": WAVE_BLOCKS} if waves else NO_WAVES if waves == 0 else {}
    tables = {"entries": table} if table else {}
    options = {"handler": handler, **TOPOLOGIES[topology], "seed": seed, "bytes": size,
               "allreduces": allreduces_of(size), "window": WINDOW, **BUSY}
    if handler != "single":
        options.update(tables)
        options.update(chosen)
    return {"topology": topology, "handler": handler, "seed": seed, "table": table,
            "waves": waves}, options


def run_all(part, runs, arguments):
    return virtual_time.run_all(f"regions: {part}", runs, arguments.processes,
                                lambda run: make_row(part, *run))


def seeds(arguments):
    return range(1, arguments.seeds + 1)


def baseline(arguments, sizes):
    return [run_of(topology, "single", seed, 0, 0, size) for topology in arguments.topologies
            for size in sizes for seed in seeds(arguments)]


def tables(arguments):
    """Figure 9: table sizes without waves, by the vector's size."""
    return run_all("tables", baseline(arguments, arguments.sizes) +
                   [run_of(topology, handler, seed, table, 0, size)
                    for topology in arguments.topologies for handler in HANDLERS
                    for table in arguments.tables
                    for size in arguments.sizes for seed in seeds(arguments)], arguments)


def waves(arguments):
    """Figure 10: table sizes by waves: given numbers, none, and those that hosts choose."""
    return run_all("waves", baseline(arguments, [arguments.bytes]) +
                   [run_of(topology, handler, seed, table, number, arguments.bytes)
                    for topology in arguments.topologies for handler in HANDLERS
                    for table in arguments.tables for number in (*arguments.waves, 0, None)
                    for seed in seeds(arguments)], arguments)


PARTS = {"tables": tables, "waves": waves}


# ------------------------------------------------------------------ tables

def median_of(rows):
    return statistics.median(row["goodput_mbit"] for row in rows)


def label_of_waves(number):
    return "chosen" if number is None else "none" if number == 0 else str(number)


def label_of_size(size):
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB"


def show_grid(rows, column, label):
    columns = sorted({row[column] for row in rows if row["handler"] != "single"},
                     key=lambda value: (value in (0, None), value is None, value))
    print("  " + f"{'entries':>10}" + "".join(f"{label(value):>10}" for value in columns))
    single = groups_of([row for row in rows if row["handler"] == "single"],
                       column if column == "bytes" else "handler")
    for handler in HANDLERS:
        groups = groups_of([row for row in rows if row["handler"] == handler], "table", column)
        print(f"  {handler}")
        for table in sorted({table for table, _ in groups}):
            print(f"  {table:>10}" + "".join(f"{median_of(groups[table, value]):>10.0f}"
                                             for value in columns))
    print(f"  {'single':>10}"
          + "".join(f"{median_of(single[(value,)] if column == 'bytes' else single[('single',)]):>10.0f}" for value in columns))


def show(part, rows):
    for (topology,), group in groups_of(rows, "topology").items():
        hosts = TOPOLOGIES[topology]
        title = "no waves, by the vector's size" if part == "tables" else f"{label_of_size(group[0]['bytes'])}, by waves of {WAVE_BLOCKS} blocks"
        print(f"{part}: {hosts['ranks']} hosts, {hosts['leaves']} leaves, one spine: goodput in "
              f"Mbit/s, {title}")
        if part == "tables":
            show_grid(group, "bytes", label_of_size)
        else:
            show_grid(group, "waves", label_of_waves)
        print()


# ------------------------------------------------------------------ the paper's orders

class Findings:
    """Sentences about the paper's orders and about goals of this bench, each of which is found or
    not.
    """

    def __init__(self):
        self.same, self.different = [], []
        self.reached, self.missed = [], []

    def add(self, is_same, sentence):
        (self.same if is_same else self.different).append(sentence)

    def add_goal(self, is_reached, sentence):
        (self.reached if is_reached else self.missed).append(sentence)


def worst_of_best(rows):
    """Returns the smallest table's goodput as a share of the best table's."""
    found = {table: median_of(group) for (table,), group in groups_of(rows, "table").items()}
    return found[min(found)] / max(found.values())


def judge_tables(rows, findings):
    """Judges whether push is more sensitive to the table's size than pull (figure 9)."""
    for (topology, size), group in groups_of([row for row in rows if row["handler"] != "single"],
                                             "topology", "bytes").items():
        left = {handler: worst_of_best(one) for (handler,),
                one in groups_of(group, "handler").items()}
        findings.add(left["push"] < left["pull"],
                     f"tables, {topology}, {label_of_size(size)}: with the smallest table push has "
                     f"{100 * left['push']:.0f} % of its best goodput, pull "
                     f"{100 * left['pull']:.0f} % (in the paper push suffers more)")


def waves_needed(rows):
    """Returns the smallest of the given numbers of waves whose goodput counts as the best."""
    found = {number: median_of(group) for (number,),
             group in groups_of(rows, "waves").items() if number}
    return min(number for number, goodput in found.items() if goodput >= NEAR * max(found.values()))


def judge_waves(rows, findings):
    for (topology,), group in groups_of(rows, "topology").items():
        reductions = [row for row in group if row["handler"] != "single"]
        single = median_of([row for row in group if row["handler"] == "single"])
        best = {}
        for (handler,), one in groups_of(reductions, "handler").items():
            cells = {cell: median_of(rows) for cell,
                     rows in groups_of(one, "table", "waves").items()}
            best[handler] = max(cells.values())
            smallest = min(table for table, _ in cells)
            with_waves = max(goodput for (table, number),
                             goodput in cells.items() if table == smallest and number != 0)
            findings.add(with_waves > cells[smallest, 0],
                         f"waves, {topology}: with {smallest} entries {handler} has "
                         f"{with_waves:.0f} Mbit/s with waves, {cells[smallest, 0]:.0f} without "
                         "(in the paper waves hide small tables)")
            chosen = {table: goodput / max(other for (of, _),
                                           other in cells.items() if of == table)
                      for (table, number), goodput in cells.items()
                      if number is None}
            findings.add_goal(min(chosen.values()) >= NEAR,
                              f"waves, {topology}: those that hosts choose for {handler} have at "
                              f"least {100 * min(chosen.values()):.0f} % of the best waves' "
                              f"goodput, for each table (wanted {100 * NEAR:.0f} %)")
        needed = {handler: waves_needed(one) for (handler,),
                  one in groups_of([row for row in reductions
                                    if row["table"] == max(r["table"] for r in reductions)],
                                                                             "handler").items()}
        findings.add(needed["push"] >= needed["pull"],
                     f"waves, {topology}: push needs {needed['push']} waves for {100 * NEAR:.0f} % "
                     f"of its best, pull {needed['pull']}"
                     " (in the paper push needs more)")
        findings.add(best["push"] > best["pull"],
                     f"waves, {topology}: at its best push has {best['push']:.0f} Mbit/s, pull "
                     f"{best['pull']:.0f}, single {single:.0f}"
                     " (in the paper push is ahead for large vectors)")


JUDGES = {"tables": judge_tables, "waves": judge_waves}


# ------------------------------------------------------------------ plots

def draw(results, directory):
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot

    directory.mkdir(parents=True, exist_ok=True)
    for (part, topology), rows in groups_of(results, "part", "topology").items():
        figure, axes = pyplot.subplots(1, 2, figsize=(10, 4), sharey=True)
        for one, handler in zip(axes, HANDLERS):
            for (table,), group in sorted(groups_of([row for row in rows
                                                     if row["handler"] == handler],
                                                    "table").items()):
                points = {}
                for row in group:
                    points.setdefault(row["bytes"] if part == "tables" else row["waves"],
                                      []).append(row["goodput_mbit"])
                order = sorted((x for x in points if part == "tables" or x), key=int)
                one.plot([str(x) if part == "waves" else label_of_size(x) for x in order],
                         [statistics.median(points[x]) for x in order], marker="o",
                         label=f"{table} entries")
            one.set_title(handler)
            one.set_xlabel("vector" if part == "tables" else f"waves of {WAVE_BLOCKS} blocks")
            one.set_ylim(bottom=0)
        axes[0].set_ylabel("Mbit/s, medians")
        axes[1].legend(fontsize="small")
        figure.tight_layout()
        figure.savefig(directory / f"regions-{part}-{topology}.png")
        pyplot.close(figure)


# ------------------------------------------------------------------ command line

def parse():
    parser = bench_parser("regions", __doc__)
    parser.add_argument("--quick", action="store_true",
                        help="fewer tables, waves and sizes, one topology, one seed")
    add_part(parser, PARTS)
    parser.add_argument("--seeds", type=int, metavar="N",
                        help=f"runs of each cell, default: {SEEDS}")
    add_processes(parser)
    parser.add_argument("--plots", type=Path, metavar="DIR", help="draw figures there, too")
    arguments = parser.parse_args()
    quick = QUICK if arguments.quick else {}
    arguments.tables = quick.get("tables", TABLES)
    arguments.waves = quick.get("waves", WAVES)
    arguments.sizes = quick.get("sizes", SIZES)
    arguments.topologies = quick.get("topologies", tuple(TOPOLOGIES))
    arguments.bytes = quick.get("bytes", BYTES)
    arguments.seeds = arguments.seeds or (1 if arguments.quick else SEEDS)
    return arguments


def main():
    arguments = parse()
    findings, results = Findings(), []
    try:
        for part in arguments.part or PARTS:
            rows = PARTS[part](arguments)
            results += rows
            JUDGES[part](rows, findings)
            if not arguments.json:
                show(part, rows)
        if arguments.plots:
            draw(results, arguments.plots)
    except (RunError, OSError, ValueError, subprocess.TimeoutExpired) as error:
        print(f"regions: {error}", file=sys.stderr)
        return 2
    if arguments.json:
        print(json.dumps({"benchmark": "regions",
                          "machine": f"virtual time, links of {LINK_MBIT} Mbit/s",
                          "results": results,
                          "as_in_the_paper": findings.same, "differs": findings.different,
                          "goals_reached": findings.reached, "goals_missed": findings.missed}))
    else:
        for what, sentences in (("as in the paper", findings.same), ("DIFFERS", findings.different),
                                ("goal reached", findings.reached),
                                ("goal MISSED", findings.missed)):
            for sentence in sentences:
                print(f"{what}: {sentence}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
