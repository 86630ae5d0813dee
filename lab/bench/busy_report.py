# SPDX-License-Identifier: BSD-3-Clause
"""The report of ./dev bench busy: medians of each cell, ratios of pairs, the criteria, a printed
table.
"""

import math
import statistics

MAX_RESENT_PERCENT = 2.0
MAX_RESENT_OF_LOSS = 3.0
MIN_RATIO = 0.9
MIN_GEOMETRIC_MEAN = 1.0
BUSY_HOSTS = 16
BUSY_LOAD = "two-loops"
MIN_BUSY_RATIO = 2.0
MIN_OF_QUIET = 0.35
PING_HOSTS = 4
MAX_PING_MS = {"quiet": 3.0, BUSY_LOAD: 20.0}

FIGURES = ("goodput_gbps", "retransmit_percent", "packets", "frames_sent", "retransmits",
           "spurious", "queries", "slowest_seconds")
PING_FIGURES = ("median_ms", "p99_ms", "max_ms")


# ---- medians and ratios

def median_of(values):
    """Returns the median of the values that exist; None if there are none."""
    there = [value for value in values if value is not None]
    return statistics.median(there) if there else None


def side_of(runs, side):
    """Returns a side's medians, and how its runs failed."""
    mine = [run for run in runs if run["side"] == side]
    good = [run for run in mine if run["ok"]]
    return {"runs": len(mine), "failed": len(mine) - len(good),
            "errors": sorted({run["error"] for run in mine if not run["ok"]}),
            **{name: median_of(run[name] for run in good) for name in FIGURES},
            "pings_sent": sum(run["ping"]["sent"] for run in good),
            "pings_lost": sum(run["ping"]["lost"] for run in good),
            **{f"ping_{name}": median_of(run["ping"][name] for run in good)
               for name in PING_FIGURES}}


def ratio_of(this, against):
    """Returns the ratio of two runs' goodput. A failed run has none: the ratio is 0 if this tree's
    run failed, infinite if only the other one did.
    """
    if not this["ok"]:
        return 0.0
    return this["goodput_gbps"] / against["goodput_gbps"] if against["ok"] else math.inf


def finite(value):
    """Replaces infinity, which JSON lacks."""
    return value if math.isfinite(value) else None


def ratios_of(runs):
    """Returns, for each pair, this tree's goodput divided by the other's."""
    pairs = {}
    for run in runs:
        pairs.setdefault(run["pair"], {})[run["side"]] = run
    return [ratio_of(pair["this"], pair["against"]) for _, pair in sorted(pairs.items())]


def summary_of(runs, compared):
    """Returns a cell's medians and, if there is something to compare with, its ratios. None stands
    for a failure of the other side.
    """
    summary = {"this": side_of(runs, "this"), "against": None, "ratios": [], "ratio": None}
    if compared:
        ratios = ratios_of(runs)
        summary.update(against=side_of(runs, "against"), ratios=[finite(ratio) for ratio in ratios],
                       ratio={"median": finite(statistics.median(ratios)),
                              "min": finite(min(ratios)), "max": finite(max(ratios))})
    return summary


def geometric_mean(ratios):
    """Returns the geometric mean of the known medians; None if there are none. ratios: each
    {"median", ...} or None.
    """
    medians = [ratio["median"] for ratio in ratios if ratio is not None
               and ratio["median"] is not None]
    if not medians:
        return None
    return 0.0 if 0.0 in medians else statistics.geometric_mean(medians)


# ---- criteria

def criterion(name, wanted, found, holds, worst=max):
    """Returns one row: the worst value, and all cells that miss it. found: [(cell's name, value)];
    the value None is of a cell without a successful run, and misses it.
    """
    missed = [cell for cell, value in found if value is None or not holds(value)]
    measured = [(value, cell) for cell, value in found if value is not None]
    value, cell = worst(measured) if measured else (None, None)
    return {"name": name, "found": value, "wanted": wanted, "cell": cell, "missed": missed,
            "ok": not missed if found else None}


def resent_criteria(cells):
    def resent(chosen):
        return [(cell["name"], cell["this"]["retransmit_percent"]) for cell in chosen]

    rows = [criterion("payload sent again without injected loss, % of contributions' first "
                      "transmissions",
                      f"< {MAX_RESENT_PERCENT:g}",
                      resent(cell for cell in cells if not cell["loss"]),
                      lambda percent: percent < MAX_RESENT_PERCENT)]
    for loss in sorted({cell["loss"] for cell in cells if cell["loss"]}):
        most = MAX_RESENT_OF_LOSS * 100 * loss
        rows.append(criterion(f"payload sent again with {100 * loss:g} % loss in each direction, % "
                              "of the same", f"< {most:g}",
                              resent(cell for cell in cells if cell["loss"] == loss),
                              lambda percent, most=most: percent < most))
    return rows


def ping_criteria(cells):
    # Injected faults affect only Fanin's packets, so pings must come through in every cell.
    rows = [criterion("pings lost", "0",
                      [(cell["name"], cell["this"]["pings_lost"]
                        if cell["this"]["pings_sent"] else None)
                                          for cell in cells], lambda lost: lost == 0)]
    for load, most in MAX_PING_MS.items():
        found = [(cell["name"], cell["this"]["ping_median_ms"]) for cell in cells
                 if cell["hosts"] == PING_HOSTS and cell["load"] == load]
        rows.append(criterion(f"median ping during a job of {PING_HOSTS} hosts, {load}, ms",
                              f"<= {most:g}", found,
                              lambda milliseconds, most=most: milliseconds <= most))
    return rows


def goodput_criteria(cells):
    # If only the other side failed, there is no ratio and nothing is missed.
    known = [(cell["name"], cell["ratio"]["median"]) for cell in cells
             if cell["ratio"] is not None and cell["ratio"]["median"] is not None]
    mean = geometric_mean([cell["ratio"] for cell in cells])
    by_name = {cell["name"]: cell for cell in cells}
    busy = [cell for cell in cells if cell["hosts"] == BUSY_HOSTS and cell["load"] == BUSY_LOAD]
    of_quiet = []
    for cell in busy:
        quiet = by_name.get(f"{cell['hosts']}-{cell['transport']}-quiet",
                            {"this": {"goodput_gbps": None}})
        mine, other = cell["this"]["goodput_gbps"], quiet["this"]["goodput_gbps"]
        if other is not None:
            of_quiet.append((cell["name"], None if mine is None else mine / other))
    names = {cell["name"] for cell in busy}
    return [criterion("goodput of each cell by the older commit's, median of pairs",
                      f">= {MIN_RATIO:g}", known,
                      lambda ratio: ratio >= MIN_RATIO, min),
            criterion("the same, geometric mean of all cells", f">= {MIN_GEOMETRIC_MEAN:g}",
                      [] if mean is None else [("all", mean)],
                      lambda ratio: ratio >= MIN_GEOMETRIC_MEAN),
            criterion(f"the same, {BUSY_HOSTS} hosts, {BUSY_LOAD}", f">= {MIN_BUSY_RATIO:g}",
                      [(name, ratio) for name, ratio in known if name in names],
                      lambda ratio: ratio >= MIN_BUSY_RATIO, min),
            criterion(f"goodput of {BUSY_HOSTS} hosts, {BUSY_LOAD}, by that of their quiet cell",
                      f">= {MIN_OF_QUIET:g}",
                      of_quiet, lambda ratio: ratio >= MIN_OF_QUIET, min)]


def criteria_of(cells):
    """Returns rows {name, found, wanted, cell, missed, ok}; ok is None if nothing was measured."""
    failed = [(cell["name"], cell["this"]["failed"]) for cell in cells]
    return [criterion("runs that failed", "0", failed, lambda count: count == 0),
            *resent_criteria(cells), *ping_criteria(cells),
            *goodput_criteria(cells)]


# ---- printing

def shown(value, pattern):
    return "-" if value is None else pattern.format(value)


def both(cell, name, pattern):
    """Returns a figure of both sides: this/against."""
    sides = [cell["this"]] if cell["against"] is None else [cell["this"], cell["against"]]
    return " / ".join(shown(side[name], pattern) for side in sides)


COLUMNS = (("Gbit/s", "goodput_gbps", "{:.3f}"), ("again %", "retransmit_percent", "{:.2f}"),
           ("needless", "spurious", "{:.0f}"),
           ("queries", "queries", "{:.0f}"), ("pings lost", "pings_lost", "{}"),
           ("ping ms", "ping_median_ms", "{:.2f}"),
           ("p99 ms", "ping_p99_ms", "{:.1f}"), ("failed", "failed", "{}"))


def ratio_words(ratio):
    if ratio is None:
        return "-"
    low, high = (shown(ratio[name], "{:.2f}") for name in ("min", "max"))
    return f"{shown(ratio['median'], '{:.2f}')} ({low} to {high})"


def aligned(rows):
    """Aligns text columns: the first to the left, the others to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(text.ljust(width) if i == 0 else text.rjust(width) for i,
                      (text, width) in enumerate(zip(row, widths)))
            for row in rows]


def criterion_words(row):
    """Returns a criterion's line: the goal, the worst value, and other cells that miss the goal."""
    words = f"  {row['name']}: wanted {row['wanted']}"
    if row["found"] is not None:
        words += f", worst {row['found']:.3g}" + (""
                                                  if row["cell"] == "all" else f" in {row['cell']}")
    words += ": " + {True: "reached", False: "MISSED", None: "not measured"}[row["ok"]]
    others = [name for name in row["missed"] if name not in (row["cell"], "all")]
    return words + (f", as in {', '.join(others)}" if others else "")


def table(result):
    against = result["against"]
    head = f"{result['pairs']} runs of each cell" if against is None else \
        f"{result['pairs']} pairs in each cell: this tree / {against[:10]}"
    lines = [result["machine"]["description"], "load average {:.1f} before, {:.1f} after".format(
        result["machine"]["load_before"][0], result["machine"]["load_after"][0]),
        f"allreduce, sum of f32, {result['bytes']} bytes; goodput per host; {head}; medians, pings "
        "lost are sums", ""]
    rows = [["hosts-transport-load", *(title for title, _, _ in COLUMNS), "ratio (of pairs)"]]
    rows += [[cell["name"], *(both(cell, name, pattern) for _, name, pattern in COLUMNS),
              ratio_words(cell["ratio"])]
             for cell in result["cells"]]
    lines += aligned(rows)
    if len(result["cells"]) < result["cells_wanted"]:
        lines += ["", f"only {len(result['cells'])} of {result['cells_wanted']} cells were measured"]
    errors = sorted({f"{cell['name']}, {side}: {error}" for cell in result["cells"]
                     for side in ("this", "against")
                     if cell[side] for error in cell[side]["errors"]})
    lines += ["", *errors] if errors else []
    if result["ratio_geometric_mean"] is not None:
        lines += ["", f"geometric mean of the ratios: {result['ratio_geometric_mean']:.3f}"]
    lines += ["", "criteria, for this tree:", *(criterion_words(row) for row in result["criteria"])]
    return "\n".join(lines)
