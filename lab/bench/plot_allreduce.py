# SPDX-License-Identifier: BSD-3-Clause
"""
Plots of `./dev bench allreduce --json` for plot.py: hosts on UDP sockets and Open MPI's TCP, at the
same MTU and at its best.

Colours and the transparent background suit light and dark pages.
"""

from lab.bench.allreduce_rows import ALLREDUCE, BARRIER, HOSTS, IN_PLACE
from lab.bench.sizes import MIB, human_bytes

INK = "#6e7781"
FANIN, PEER, BEST = "#2f81f7", "#d9730d", "#8957e5"
STYLES = {1500: "--", 9000: "-"}
BAR_BYTES = MIB  # of the panels that compare hosts and collectives


def in_place(rows):
    return [row for row in rows if row["peer"] == IN_PLACE]


def by_size(rows):
    """Returns {(who, MTU): [(bytes, Gbit/s)]} of allreduces of four hosts. Open MPI's best is the
    best over all its links.
    """
    lines = {}
    for row in in_place(rows):
        if (row["collective"], row["hosts"]) != (ALLREDUCE, HOSTS):
            continue
        lines.setdefault(("Fanin", row["mtu"]), []).append((row["bytes"], row["gbps"]))
        lines.setdefault(("Open MPI", row["mtu"]),
                         []).append((row["bytes"], row["same_mtu"]["gbps"]))
        lines.setdefault(("Open MPI at its best", None),
                         []).append((row["bytes"], row["peer_gbps"]))
    best = ("Open MPI at its best", None)
    if best in lines:
        lines[best] = [(size, max(gbps for other, gbps in lines[best] if other == size)) for size,
                       _ in lines[best]]
    return {name: sorted(set(lines[name]))
            for name in sorted(lines, key=lambda name: name[1] or float("inf"))}


def bars(rows, field, wanted):
    """Returns (values of a field, {(who, MTU): [Gbit/s for each]}) of the wanted rows of one size;
    None if there are fewer than two values.
    """
    chosen = [row for row in in_place(rows) if row["bytes"] == BAR_BYTES and wanted(row)]
    values = list(dict.fromkeys(row[field] for row in chosen))
    if field == "hosts":
        values.sort()
    found = {}
    for mtu in sorted({row["mtu"] for row in chosen}):
        at = {row[field]: row for row in chosen if row["mtu"] == mtu}
        if set(at) == set(values):
            found["Fanin", mtu] = [at[value]["gbps"] for value in values]
            found["Open MPI", mtu] = [at[value]["same_mtu"]["gbps"] for value in values]
    return (values, found) if len(values) > 1 and found else None


def draw_sizes(axes, lines):
    colours = {"Fanin": FANIN, "Open MPI": PEER, "Open MPI at its best": BEST}
    for (who, mtu), points in lines.items():
        label = who if mtu is None else f"{who}, MTU {mtu}"
        axes.plot(*zip(*points, strict=True), marker="o", markersize=4, color=colours[who],
                  linestyle=STYLES.get(mtu, ":"), label=label)
    ticks = sorted({size for points in lines.values() for size, _ in points})
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [human_bytes(tick) for tick in ticks], rotation=45, ha="right")
    axes.minorticks_off()
    axes.set_xlabel("bytes of the vector")
    axes.set_title(f"allreduce, {HOSTS} hosts", fontsize="medium", color=INK)


def draw_bars(axes, values, found, field, title):
    width = 0.8 / len(found)
    for i, ((who, mtu), gbps) in enumerate(found.items()):
        at = [k + (i - (len(found) - 1) / 2) * width for k in range(len(values))]
        axes.bar(at, gbps, width * 0.92, color=FANIN if who == "Fanin" else PEER,
                 alpha=0.55 if mtu == 1500 else 1.0, label=f"{who}, MTU {mtu}")
    axes.set_xticks(range(len(values)), [str(value).replace("_", "\n") for value in values])
    axes.set_xlabel(field)
    axes.set_title(title, fontsize="medium", color=INK)


def finish(axes):
    axes.set_ylim(bottom=0)
    axes.set_ylabel("goodput of each host, Gbit/s")
    axes.grid(axis="y", alpha=0.3, color=INK)
    axes.set_facecolor("none")
    axes.tick_params(colors=INK)
    axes.xaxis.label.set_color(INK)
    axes.yaxis.label.set_color(INK)
    for name, spine in axes.spines.items():
        spine.set_visible(name in ("left", "bottom"))
        spine.set_color(INK)
    axes.legend(fontsize="small", labelcolor=INK, framealpha=0)


def panels_of(rows):
    """Returns (draw, arguments) of each panel that has rows."""
    lines = by_size(rows)
    hosts = bars(rows, "hosts", lambda row: row["collective"] == ALLREDUCE)
    collectives = bars(rows, "collective",
                       lambda row: row["hosts"] == HOSTS and row["collective"] != BARRIER)
    panels = [(draw_sizes, (lines,))] if lines else []
    if hosts is not None:
        panels.append((draw_bars,
                       (*hosts, "hosts", f"allreduce of {human_bytes(BAR_BYTES)}, by hosts")))
    if collectives is not None:
        panels.append((draw_bars,
                       (*collectives, "collective", f"{human_bytes(BAR_BYTES)}, {HOSTS} hosts")))
    return panels


def draw(document, out):
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = panels_of(document["results"])
    if not panels:
        raise ValueError('found no rows with "udp" hosts in "results", expected some')
    # Equal rows must give equal files.
    pyplot.rcParams.update({"svg.hashsalt": "fanin", "svg.fonttype": "none",
                            "font.family": "sans-serif"})
    figure, axes = pyplot.subplots(1, len(panels), figsize=(6.5 * len(panels), 4.5),
                                   layout="constrained", squeeze=False)
    for at, (draw_panel, arguments) in zip(axes[0], panels, strict=True):
        draw_panel(at, *arguments)
        finish(at)
    stamp = document["stamp"]
    figure.suptitle(f"{stamp['machine']}; {stamp['date']}, commit "
                    f"{(stamp['commit'] or 'unknown')[:10]}, load average {stamp['load']:.1f}; "
                    f"medians of {document['rounds']}",
                    fontsize="small", color=INK)
    figure.savefig(out, transparent=True,
                   metadata={"Date": None} if str(out).endswith(".svg") else None)
