#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Draws a benchmark's rows: plot.py FILE.json OUT.svg or OUT.png, the file being what ./dev bench
... --json printed.

Every field of the rows that ends in "gbps" becomes a line over the size of message or payload, one
for each value of --by. Of `./dev bench allreduce` hosts on UDP sockets stand beside Open MPI at the
same MTU, unless --by is given; of `./dev bench stragglers` each part becomes a panel: the time of
an iteration over load or memory, and throughput over time.
"""

import argparse
import json
import sys
from pathlib import Path

from lab.bench import plot_allreduce
from lab.bench import plot_stragglers
from lab.bench.sizes import human_bytes

X_FIELDS = {"chains": "chains", "subgroups": "subgroups", "bytes": "message",
            "payload_bytes": "payload", "payload": "payload"}
Y_SUFFIX = "gbps"


class PlotError(Exception):
    """The file can't be drawn; the text says why."""


def series_of(rows, by, name="results"):
    """Returns (name of x, {label: [(x, y), ...] in order of x}). Lines that are equal under several
    labels are kept once.
    """
    if not rows:
        raise PlotError(f'found no rows in "{name}"')
    x_field = next((field for field in X_FIELDS if field in rows[0]), None)
    y_fields = [field for field in rows[0] if field.endswith(Y_SUFFIX)]
    if x_field is None or not y_fields:
        raise PlotError(f"found rows with {', '.join(rows[0])}, expected one of "
                        f"{', '.join(X_FIELDS)} and fields that end in {Y_SUFFIX}")
    lines = {}
    for row in rows:
        for field in y_fields:
            label = f"{field.removesuffix(Y_SUFFIX).rstrip('_') or 'fanin'}" + (
                f" ({row[by]})" if by in row else "")
            lines.setdefault(label, []).append((row[x_field], row[field]))
    kept = {}
    for label, points in lines.items():
        points.sort()
        if points not in kept.values():
            kept[label] = points
    return X_FIELDS[x_field], kept


def draw(document, rows, by, out):
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot

    x_name, lines = series_of(document.get(rows, []), by, rows)
    figure, axes = pyplot.subplots(figsize=(8, 5), layout="constrained")
    for label, points in lines.items():
        axes.plot(*zip(*points), marker="o", label=label)
    ticks = sorted({x for points in lines.values() for x, _ in points})
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [human_bytes(tick) if x_name in ("message", "payload") else str(tick)
                            for tick in ticks], rotation=45)
    axes.set_ylim(bottom=0)
    axes.set_xlabel(x_name)
    axes.set_ylabel("Gbit/s")
    machine = document.get("machine", "")
    axes.set_title(machine.get("description", "") if isinstance(machine, dict) else machine,
                   fontsize="small")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(out)


def main():
    parser = argparse.ArgumentParser(prog="plot.py", description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("file", type=Path, help="JSON that a benchmark printed")
    parser.add_argument("out", type=Path, help="image to be made; .svg or .png")
    parser.add_argument("--by", metavar="FIELD",
                        help="one line for each of its values (default: peer)")
    parser.add_argument("--rows", default="results", metavar="FIELD",
                        help="the list of rows (default: results), such as chains or subgroups of "
                             "multicast")
    options = parser.parse_args()
    try:
        document = json.loads(options.file.read_text(encoding="utf-8"))
        if not isinstance(document,
                          dict) or not all(isinstance(row, dict)
                                           for row in document.get(options.rows, [])):
            raise PlotError(f'found no JSON object whose "{options.rows}" are objects, expected '
                            'what a benchmark printed with --json')
        if document.get("benchmark") == "stragglers":
            plot_stragglers.draw(document, options.out)
        elif document.get("benchmark") == "allreduce" and options.by is None:
            plot_allreduce.draw(document, options.out)
        else:
            draw(document, options.rows, options.by or "peer", options.out)
    except ImportError as error:
        print(f"plot.py: {error}: install python3-matplotlib", file=sys.stderr)
        return 1
    except KeyError as error:
        print(f"plot.py: {options.file}: found no {error} where one was expected", file=sys.stderr)
        return 1
    except (OSError, ValueError, PlotError) as error:
        print(f"plot.py: {options.file}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
