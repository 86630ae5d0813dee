# SPDX-License-Identifier: BSD-3-Clause
"""Plots of `./dev bench stragglers --json` for plot.py: a panel for each part and, for figure 8,
one for each member.
"""

from lab.bench import stragglers
from lab.bench import stragglers_reasons

# A member whose ranks hardly ever lead has nothing to show.
MIN_WAITING = 0.05
WORKERS = ("A1", "A2", "B1", "B2")
TITLES = {"loads": "background by DCTCP", "loads-udp": "background by UDP",
          "without-ecn": "without marks at the ports", "memory": "memory"}


def draw_medians(axes, rows, key):
    found = stragglers.summarise(rows, key, "member")
    for member in stragglers.MEMBERS:
        line = [one for one in found.values() if one["member"] == member and one["ended"]]
        line.sort(key=lambda one: one[key])
        if not line:
            continue
        spread = [[one["seconds"] - one["quartiles"][0] for one in line],
                  [one["quartiles"][1] - one["seconds"] for one in line]]
        axes.errorbar([one[key] for one in line], [one["seconds"] for one in line], yerr=spread,
                      marker="o", capsize=3, label=member)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("seconds of an iteration, median and quartiles")
    axes.set_xlabel(key)
    if key == "aggregators":
        axes.set_xscale("log", base=2)
    axes.legend(fontsize="small")


def draw_timeline(axes, row):
    trace = row["trace"]
    times = [trace["bin_seconds"] * (i + 1) for i in range(len(trace["bins"]))]
    for worker, name in enumerate(WORKERS):
        axes.plot(times, [at["sent_mbit"][worker] for at in trace["bins"]], label=f"f_{name}")
    axes.plot(times, [sum(at["aggregated_mbit"]) for at in trace["bins"]], color="black",
              linestyle=":", label="aggregated")
    axes.set_title(row["member"], fontsize="small")
    axes.set_ylabel("Mbit/s")
    axes.set_xlabel("s")


def draw_reasons(axes, rows):
    """Draws the traffic on the path of a job's straggler, one bar for each load and member."""
    found = [line for line in stragglers_reasons.summarise(rows) if line["question"] == "paths"
             and line["waiting"] >= MIN_WAITING]
    labels = [f"{line['label']} {line['member']}" for line in found]
    shares = {"the job's own": [line["straggler_own"] for line in found],
              "leaders of others": [line["straggler_leaders"] for line in found],
              "others": [line["straggler_others"] - line["straggler_leaders"] for line in found],
              "flows": [line["straggler_background"] for line in found]}
    base = [0] * len(found)
    for name, values in shares.items():
        axes.barh(labels, values, left=base, label=name)
        base = [low + value for low, value in zip(base, values, strict=True)]
    axes.set_xlabel("share of the path")
    axes.legend(fontsize="small", loc="lower left")


def draw(document, out):
    """Draws one panel for each part with medians, one for the reasons, and six for figure 8, as far
    as there are rows.
    """
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot

    parts = {}
    for row in document["results"]:
        parts.setdefault(row["part"], []).append(row)
    panels = [(part, rows) for part, rows in parts.items() if part in TITLES]
    panels += [("reasons", parts["reasons"])] if "reasons" in parts else []
    panels += [("timeline", [row]) for row in parts.get("timeline", [])]
    if not panels:
        raise ValueError(f"found no part that is drawn, only {', '.join(parts)}")
    columns = min(3, len(panels))
    lines = (len(panels) + columns - 1) // columns
    figure, axes = pyplot.subplots(lines, columns, figsize=(5 * columns, 4 * lines), squeeze=False,
                                   layout="constrained")
    for axis, (part, rows) in zip(axes.flat, panels):
        axis.grid(alpha=0.3)
        if part == "timeline":
            draw_timeline(axis, rows[0])
        elif part == "reasons":
            draw_reasons(axis, rows)
            axis.set_title("the path of a job's straggler", fontsize="small")
        else:
            draw_medians(axis, rows, "aggregators" if part == "memory" else "load")
            axis.set_title(TITLES[part], fontsize="small")
    for axis in axes.flat[len(panels):]:
        axis.remove()
    if "timeline" in parts:
        axes.flat[len(panels) - 1].legend(fontsize="x-small")
    figure.savefig(out)
