# SPDX-License-Identifier: BSD-3-Clause
"""Benchmarks in pairs of runs, this tree's build and an older commit's in turns: options, turns,
ratios, a printed table.
"""

import argparse
import os
import signal
import statistics

from lab.namespaces import BUILD_DIR, Interrupted, LabError

from lab.bench.older_build import build_of, commit_of, git
from lab.bench.virtual_time import quartiles

THIS, AGAINST = "this", "against"
PAIRS = 5


def pair_count(text):
    if not text.isdecimal() or not 1 <= int(text) <= 100:
        raise argparse.ArgumentTypeError(f"found '{text}', expected a whole number from 1 to 100")
    return int(text)


def add_options(parser):
    """Adds the options of a benchmark that runs in pairs only on request."""
    parser.add_argument("--against", metavar="COMMIT",
                        help="in pairs of runs with an older commit, which is built for it")
    parser.add_argument("--pairs", type=pair_count, metavar="N",
                        help=f"how many, 1 to 100; default: {PAIRS}")


def check_options(parser, options):
    if options.pairs is not None and options.against is None:
        parser.error("argument --pairs: it goes with --against")
    options.pairs = options.pairs or PAIRS


def catch_signals():
    """Raises Interrupted when a signal asks this process to end."""
    def interrupt(signum, _frame):
        raise Interrupted(signum)
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, interrupt)


def turns(pairs, sides):
    """Returns (pair, side) in the order of their runs: every other pair begins with the other side.
    """
    return [(pair, side) for pair in range(pairs)
            for side in (list(sides) if pair % 2 == 0 else list(sides)[::-1])]


def sides_of(bench, against, programs, say):
    """Returns the commit's full name, and the directory with the programs of each side. Raises
    LabError if they can't be built.
    """
    commit = commit_of(against)
    return commit, {THIS: BUILD_DIR, AGAINST: build_of(commit, say, bench, programs)}


def case_of(name, this, against):
    """Returns a row: medians of both sides' figures, of which more is better, and the median and
    quartiles of the pairs' ratios.
    """
    ratios = [mine / other for mine, other in zip(this, against, strict=True)]
    lower, upper = quartiles(ratios)
    return {"name": name, THIS: statistics.median(this), AGAINST: statistics.median(against),
            "ratios": ratios,
            "ratio": {"median": statistics.median(ratios), "lower": lower, "upper": upper}}


def compare(bench, against, pairs, programs, run, say):
    """
    Runs both sides in turns. run(build): returns one run's figures, by the cases' names; raises
    LabError if the run fails. Returns the object that --json prints.
    """
    catch_signals()
    commit, sides = sides_of(bench, against, programs, say)
    found = {side: [] for side in sides}
    load = os.getloadavg()
    for number, (pair, side) in enumerate(turns(pairs, sides)):
        say(f"run {number + 1} of {2 * pairs}: {side}")
        found[side].append(run(sides[side]))
    names = list(found[THIS][0])
    for figures in found[AGAINST]:
        if list(figures) != names:
            raise LabError(f"--against: {commit[:10]} measures other cases: found "
                           f"{', '.join(figures)}, expected {', '.join(names)}")
    return {"ok": True, "error": None, "commit": git("rev-parse", "HEAD"),
            "changed": bool(git("status", "--porcelain")), "against": commit,
            "pairs": pairs, "load_before": load, "load_after": os.getloadavg(),
            "cases": [case_of(name, *([figures[name] for figures in found[side]]
                                      for side in (THIS, AGAINST))) for name in names]}


def table(result, unit):
    """Returns the result as a table. unit: of the figures."""
    this = f"this tree ({result['commit'][:10]}{' with changes' if result['changed'] else ''})"
    width = max(len(case["name"]) for case in result["cases"])
    lines = [f"{unit} of {this} / {result['against'][:10]}, medians of {result['pairs']} pairs; "
             "ratio: median (quartiles) of the pairs'",
             f"load average {result['load_before'][0]:.1f} before, {result['load_after'][0]:.1f} "
             "after", ""]
    for case in result["cases"]:
        ratio = case["ratio"]
        lines.append(f"{case['name']:<{width}} {case[THIS]:9.3f} / {case[AGAINST]:9.3f}   "
                     f"{ratio['median']:.3f} ({ratio['lower']:.3f} to {ratio['upper']:.3f})")
    return "\n".join(lines)
