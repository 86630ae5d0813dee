# SPDX-License-Identifier: BSD-3-Clause
"""The plots of `./dev bench congestion --plots DIR`: goodput by variant and by share of hosts, the
use of links, latency, and timeouts.
"""

import statistics

from lab.bench import congestion
from lab.bench.virtual_time import quartiles

BINS = [n / 20 for n in range(21)]


def spread(axes, points, label):
    """Draws a line through medians, with quartiles. points: {x: values}."""
    x = sorted(points)
    middle = [statistics.median(points[one]) for one in x]
    low, high = zip(*(quartiles(points[one]) for one in x))
    axes.errorbar(x, middle, yerr=[[m - q for m, q in zip(middle, low)],
                                   [q - m for m, q in zip(middle, high)]], marker="o", capsize=3,
                  label=label)


def values_by(rows, x, y):
    points = {}
    for row in rows:
        points.setdefault(row[x], []).append(row[y])
    return points


def draw_goodput(axes, rows):
    groups = congestion.groups_of(rows, "variant")
    axes.boxplot([[row["goodput_mbit"] for row in group] for group in groups.values()],
                 labels=[name for (name,) in groups])
    axes.set_ylim(bottom=0)
    axes.set_ylabel("Mbit/s, over placements")


def draw_used(axes, rows):
    for (variant,), group in congestion.groups_of(rows, "variant").items():
        used = [one for row in group for one in congestion.used_links(row)]
        axes.hist(used, bins=BINS, histtype="step", weights=[1 / len(used)] * len(used),
                  label=variant)
    axes.set_xlabel("share of a link's rate")
    axes.set_ylabel("share of links")
    axes.legend(fontsize="small")


def draw_shares(axes, rows):
    for (variant,), group in congestion.groups_of(rows, "variant").items():
        spread(axes, values_by(group, "share", "goodput_mbit"), variant)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("share of hosts with a rank")
    axes.set_ylabel("Mbit/s, medians and quartiles")
    axes.legend(fontsize="small")


def draw_sizes(axes, rows):
    for (variant,), group in congestion.groups_of(rows, "variant").items():
        spread(axes, values_by(group, "bytes", "seconds"), variant)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("bytes")
    axes.set_ylabel("seconds, medians and quartiles")
    axes.legend(fontsize="small")


def draw_timeouts(axes, rows):
    for (variant, timeout), group in congestion.groups_of(rows, "variant", "timeout").items():
        spread(axes, values_by(group, "busy", "goodput_mbit"),
               variant if timeout == "-" else f"{variant}, {timeout}")
    axes.set_xscale("symlog", linthresh=0.0001)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("share of packets before which a host is busy")
    axes.set_ylabel("Mbit/s, medians and quartiles")
    axes.legend(fontsize="small")


def draw_table(axes, rows):
    for (background,), group in congestion.groups_of(rows, "background").items():
        spread(axes, values_by(group, "descriptors", "goodput_mbit"), f"background {background}")
    axes.set_xscale("log", base=2)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("descriptors of each switch")
    axes.set_ylabel("Mbit/s, medians and quartiles")
    axes.legend(fontsize="small")


DRAWN = {"free": (draw_goodput, draw_used), "spine": (draw_goodput, draw_used),
         "uniform": (draw_shares, draw_used), "permutation": (draw_shares, draw_used),
         "sizes": (draw_sizes,), "timeouts": (draw_timeouts,), "table": (draw_table,)}


def draw_part(pyplot, part, rows, directory):
    """Draws a line of panels for each topology, or for each background."""
    by = "background" if part == "timeouts" else "topology"
    groups = congestion.groups_of(rows, by)
    figure, axes = pyplot.subplots(len(groups), len(DRAWN[part]),
                                   figsize=(6 * len(DRAWN[part]), 4 * len(groups)), squeeze=False,
                                   layout="constrained")
    for line, ((value,), group) in zip(axes, groups.items()):
        for axis, function in zip(line, DRAWN[part]):
            function(axis, group)
            axis.grid(alpha=0.3)
            axis.set_title(f"{part}, {by} {value}", fontsize="small")
    figure.savefig(directory / f"congestion-{part}.svg")
    pyplot.close(figure)


def draw(rows, directory):
    """Draws a file for each part that has rows."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot

    directory.mkdir(parents=True, exist_ok=True)
    for (part,), group in congestion.groups_of(rows, "part").items():
        draw_part(pyplot, part, [row for row in group if row["done"]], directory)
